/* One step, from its launch to its barrier. Included by _quick.c once.
 *
 * What fails here fails silently: the likeness is forgotten, and the general hooks, which look at the same things, say
 * what is wrong. Nothing here may leave an exception set; see _quick_raised.h.
 */

/* Compare with this from now on, whose parts are given away; NULL: with nothing. */
static void become_like(repeating_t *self, PyObject *like, PyObject *const *part)
{
    PyObject *before[LIKENESSES + 1];
    memcpy(before, self->part, sizeof self->part);
    before[LIKENESSES] = self->like;
    self->like = Py_XNewRef(like);
    for (int place = 0; place < LIKENESSES; place++)
        self->part[place] = like == NULL ? NULL : part[place];
    self->cell_steps = number_in(self->part[CELL], counted_type);
    self->route_steps = number_in(self->part[ROUTE], counted_type);
    self->slack = as_histogram(self->part[SLACK]);
    self->wait = as_histogram(self->part[WAIT]);
    for (int place = 0; place <= LIKENESSES; place++)
        Py_XDECREF(before[place]);
    if (self->like == NULL) {
        leave_home(&self->scheduler_home);
        leave_home(&self->owner_home);
    }
}

void forget_likeness(repeating_t *self)
{
    become_like(self, NULL, NULL);
}

/* Whether the runner that owns the step's last shared read is the one of before; -1: it can't be had. */
static int is_owner(repeating_t *self, PyObject *scheduler, PyObject *owner)
{
    if (self->sole)
        return 1;
    PyObject *worker = attribute_of(&self->scheduler_home, scheduler, N_WORKER);
    int same = worker == NULL ? -1 : attribute_is(worker, N_LAST_RUNNER, owner);
    Py_XDECREF(worker);
    return same;
}

static int note_results_in_hand(repeating_t *self, number_t newest)
{
    if (newest < NO_STEP)
        newest = NO_STEP;
    if (self->in_hand != NULL) {
        self->in_hand->in_hand = newest;
        return 0;
    }
    PyObject *number = PyLong_FromLongLong(newest);
    if (number == NULL)
        return -1;
    PyObject *progress = Py_NewRef(self->progress);
    int status = PyObject_SetAttr(progress, name_of[N_IN_HAND], number);
    Py_DECREF(progress);
    Py_DECREF(number);
    return status;
}

/* As step_begins; -1: something can't be had. */
static int looks_alike(repeating_t *self, PyObject *like, PyObject *const *part, PyObject *scheduler, PyObject *batch,
                       number_t number)
{
    PyObject *owner = part[OWNER];
    come_home(self, &self->scheduler_home, scheduler);
    come_home(self, &self->owner_home, owner);
    Py_ssize_t waiting = length_of(attribute_of(&self->scheduler_home, scheduler, N_RESULT_QUEUE));
    if (waiting <= 0) /* the launch isn't overlapped with another */
        return (int)waiting;
    int same = attribute_is(batch, N_FORWARD_MODE, part[BATCH_MODE]);
    if (same == 1)
        same = is_owner(self, scheduler, owner);
    if (same == 1)
        same = is_wanted(attribute_of(&self->owner_home, owner, N_MAILBOX), Py_None);
    if (same == 1)
        same = is_wanted(attribute_of(&self->owner_home, owner, N_BACKEND), part[BACKEND]);
    if (same == 1 && self->progress != NULL && self->progress != Py_None)
        same = note_results_in_hand(self, number - 1 - waiting) < 0 ? -1 : 1;
    if (same == 1 && self->row_count) /* last: a step that is begun the general way has no row here */
        same = write_row_of(self, like, number, batch) < 0 ? -1 : 1;
    if (same != 1 || self->like == like)
        return same;
    if (self->row != NULL && self->row->step == number) /* while that was looked at, it became another */
        self->row->step = NO_STEP;
    return 0;
}

static int tries_to_begin(repeating_t *self, PyObject *scheduler, PyObject *batch, number_t number)
{
    PyObject *like = Py_NewRef(self->like), *part[] = {
        [OWNER] = Py_NewRef(self->part[OWNER]),
        [BACKEND] = Py_NewRef(self->part[BACKEND]),
        [BATCH_MODE] = Py_NewRef(self->part[BATCH_MODE]),
    };
    int same = looks_alike(self, like, part, scheduler, batch, number);
    if (same < 0) {
        forgive(self);
        forget_likeness(self);
    }
    Py_DECREF(like);
    Py_DECREF(part[OWNER]);
    Py_DECREF(part[BACKEND]);
    Py_DECREF(part[BATCH_MODE]);
    return same;
}

int step_begins(repeating_t *self, PyObject *args)
{
    if (self->like == NULL || self->open || self->number < NO_STEP || self->due <= 0 ||
        self->number >= self->due - 1 || PyTuple_Size(args) < 3)
        return 0;
    number_t number = self->number + 1;
    PyObject *scheduler = PyTuple_GetItem(args, 1), *batch = PyTuple_GetItem(args, 2);
    if (batch == Py_None)
        return 0;
    self->metered = is_metered(number);
    number_t began = self->metered ? now_ns() : 0;
    if (tries_to_begin(self, scheduler, batch, number) != 1)
        return 0;
    self->number = number;
    self->open = self->repeats = 1;
    self->resolved = self->extended = 0;
    put(&self->scheduler, Py_NewRef(scheduler));
    put(&self->batch, Py_NewRef(batch));
    if (began)
        meter(self, H_RUN_BATCH, began);
    return 1;
}

static int is_asked(PyObject *tell)
{
    return tell != NULL && tell != Py_None;
}

void step_launches(repeating_t *self)
{
    PyObject *tell = self->tell_inputs;
    if (!is_asked(tell))
        return;
    self->tell_inputs = Py_NewRef(Py_None); /* once */
    PyObject *result = PyObject_CallNoArgs(tell);
    if (result == NULL)
        forgive(self);
    Py_XDECREF(result);
    Py_DECREF(tell);
}

int step_resolves(repeating_t *self, PyObject *result, PyObject *args)
{
    number_t began = self->metered ? now_ns() : 0;
    if (self->like == NULL || self->resolved || PyTuple_Size(args) != 4 ||
        PyTuple_GetItem(args, 1) != self->part[GRAPH] || PyTuple_GetItem(args, 2) != self->part[GRAPH_BACKEND] ||
        PyTuple_GetItem(args, 3) != self->part[GRAPH_MODE] || result != self->part[RESULT])
        return 0;
    self->resolved = 1;
    if (self->row != NULL)
        self->row->progress = RESOLVED;
    if (began)
        meter(self, H_RESOLVE, began);
    return 1;
}

int step_extends(repeating_t *self, PyObject *args)
{
    number_t began = self->metered ? now_ns() : 0;
    if (self->like == NULL || !self->resolved || self->extended || PyTuple_Size(args) < 2 ||
        self->part[EXTENDER] == Py_None || PyTuple_GetItem(args, 1) != self->part[EXTENDER])
        return 0;
    PyObject *owner = Py_NewRef(self->part[OWNER]);
    int empty = is_wanted(attribute_of(&self->owner_home, owner, N_MAILBOX), Py_None);
    Py_DECREF(owner);
    if (empty < 0)
        forgive(self);
    if (began)
        meter(self, H_EXTEND, began);
    return empty == 1;
}

/* Whether it came out as it did; no exception is set afterwards. */
static int extended_alike(repeating_t *self, PyObject *runner)
{
    PyObject *like = Py_XNewRef(self->like);
    if (like == NULL)
        return 0;
    PyObject *owner = Py_NewRef(self->part[OWNER]), *backend = Py_NewRef(self->part[EXTEND_BACKEND]);
    PyObject *mode = Py_NewRef(self->part[EXTEND_MODE]);
    int same = attribute_is(runner, N_MODEL_RUNNER, owner) == 1 &&
               attribute_is(runner, N_EXTEND_BACKEND, backend) == 1 &&
               attribute_is(runner, N_FORWARD_MODE, mode) == 1 && attribute_is(owner, N_MAILBOX, Py_None) == 1 &&
               self->like == like && self->repeats;
    forgive(self);
    Py_DECREF(like);
    Py_DECREF(owner);
    Py_DECREF(backend);
    Py_DECREF(mode);
    return same;
}

void step_extended(repeating_t *self, PyObject *args)
{
    number_t began = self->metered ? now_ns() : 0;
    PyObject *runner = PyTuple_GetItem(args, 1);
    if (self->repeats && extended_alike(self, runner)) {
        self->extended = 1;
        if (self->row != NULL)
            self->row->progress = EXTENDED;
        if (began)
            meter(self, H_EXTEND, began);
        return;
    }
    if (self->repeats)
        step_demote(self);
    if (!self->open || self->tell_extended == NULL)
        return;
    PyObject *tell = Py_NewRef(self->tell_extended), *result = PyObject_CallFunctionObjArgs(tell, runner, NULL);
    if (result == NULL)
        forgive(self);
    Py_XDECREF(result);
    Py_DECREF(tell);
}

/* Whether every fence is to be coarse. Where a variable isn't set, its switch needn't be asked. */
static int is_forced(repeating_t *self)
{
    PyObject *forced_by = self->forced, *unset_in = self->unset_in, *unset_name = self->unset_name;
    if (forced_by == NULL || unset_in == NULL || unset_name == NULL)
        return -1;
    Py_INCREF(forced_by);
    if (unset_in != Py_None) {
        Py_INCREF(unset_in);
        Py_INCREF(unset_name);
        int set = PyDict_Contains(unset_in, unset_name);
        Py_DECREF(unset_in);
        Py_DECREF(unset_name);
        if (set != 1) {
            Py_DECREF(forced_by);
            return set;
        }
    }
    PyObject *found = PyObject_CallNoArgs(forced_by);
    Py_DECREF(forced_by);
    if (found == NULL)
        return -1;
    int forced = PyObject_IsTrue(found);
    Py_DECREF(found);
    return forced;
}

static int add_steps(PyObject *counter, int more)
{
    PyObject *before = PyObject_GetAttr(counter, name_of[N_STEPS]);
    number_t steps = before == NULL ? -1 : PyLong_AsLongLong(before);
    Py_XDECREF(before);
    PyObject *after = steps < 0 ? NULL : PyLong_FromLongLong(steps + more);
    int status = after == NULL ? -1 : PyObject_SetAttr(counter, name_of[N_STEPS], after);
    Py_XDECREF(after);
    return status;
}

/* Count the step in both places; where that can't be done (-1) in none, and no exception is set. */
static int count_step(repeating_t *self)
{
    if (self->cell_steps != NULL && self->route_steps != NULL) {
        ++*self->cell_steps;
        ++*self->route_steps;
        return 0;
    }
    PyObject *cell = Py_XNewRef(self->part[CELL]), *route = Py_XNewRef(self->part[ROUTE]);
    int status = cell == NULL || route == NULL ? -1 : add_steps(cell, 1);
    if (status == 0 && (status = add_steps(route, 1)) < 0) {
        forgive(self);
        add_steps(cell, -1);
    }
    if (status < 0)
        forgive(self);
    Py_XDECREF(cell);
    Py_XDECREF(route);
    return status;
}

/* Return what is published for the barrier to wait for, None where it is coarse, if it is as it was; NULL: it isn't. */
static PyObject *event_of(repeating_t *self, PyObject *scheduler, PyObject *owner)
{
    PyObject *enabled = attribute_of(&self->scheduler_home, scheduler, N_ENABLED);
    int on = enabled == NULL ? -1 : PyObject_IsTrue(enabled);
    Py_XDECREF(enabled);
    if (on != 1)
        return NULL;
    if (is_owner(self, scheduler, owner) != 1)
        return NULL;
    PyObject *event = attribute_of(&self->owner_home, owner, N_MAILBOX);
    if (event == NULL)
        return NULL;
    if ((event == Py_None) == self->coarse && is_forced(self) == 0)
        return event;
    Py_DECREF(event);
    return NULL;
}

int step_ends(repeating_t *self, PyObject *args)
{
    number_t began = self->metered ? now_ns() : 0;
    if (self->like == NULL || !self->resolved || self->extended != (self->part[EXTENDER] != Py_None) ||
        is_asked(self->tell_inputs) || PyTuple_Size(args) != 2 || PyTuple_GetItem(args, 1) != self->scheduler)
        return 0;
    PyObject *like = Py_NewRef(self->like), *owner = Py_NewRef(self->part[OWNER]);
    PyObject *event = event_of(self, PyTuple_GetItem(args, 1), owner);
    Py_DECREF(owner);
    if (event == NULL || self->like != like || count_step(self) < 0) {
        forgive(self);
        Py_DECREF(like);
        Py_XDECREF(event);
        return 0;
    }
    self->open = self->repeats = 0;
    self->timed = (char)is_timed(&self->times, self->number);
    if (self->timed && event != Py_None)
        record_times(self, like, event, 1);
    Py_DECREF(like);
    if (self->row != NULL) {
        self->row->progress = FENCED;
        self->row->event = event == Py_None ? NULL : event;
        self->row->entered_ns = now_ns();
    }
    Py_DECREF(event);
    Py_CLEAR(self->scheduler);
    Py_CLEAR(self->batch);
    if (began)
        meter(self, H_BARRIER, began);
    return 1;
}

void step_over(repeating_t *self)
{
    if (self->row != NULL)
        self->row->barrier_ns = now_ns();
    if (!self->timed || self->times.pending <= BATCH)
        return;
    number_t began = self->metered ? now_ns() : 0;
    drain_times(self, DRAIN_LIMIT);
    if (began)
        meter(self, H_BARRIER, began);
}

void step_demote(repeating_t *self)
{
    PyObject *demote = Py_XNewRef(self->demote);
    PyObject *result = demote == NULL ? NULL : PyObject_CallNoArgs(demote);
    if (result == NULL)
        forgive(self);
    Py_XDECREF(result);
    Py_XDECREF(demote);
    self->repeats = 0;
}
