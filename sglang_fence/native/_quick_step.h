/* One step, from its launch to its barrier. Included by _quick.c once.
 *
 * What fails here fails silently: the likeness is forgotten, and the general hooks, which look at the same things, say
 * what is wrong. Nothing here may leave an exception set.
 */

static void meter(repeating_t *self, const char *hook, number_t began)
{
    number_t spent = now_ns() - began - self->clock_ns;
    PyObject *key = PyUnicode_FromString(hook);
    PyObject *before = key == NULL ? NULL : PyObject_GetItem(self->cost_ns, key);
    if (before == NULL)
        PyErr_Clear();
    PyObject *more = PyLong_FromLongLong((spent > 0 ? spent : 0) * self->cost_sample);
    PyObject *sum = before == NULL || more == NULL ? Py_XNewRef(more) : PyNumber_Add(before, more);
    if (key == NULL || sum == NULL || PyObject_SetItem(self->cost_ns, key, sum) < 0)
        PyErr_Clear();
    Py_XDECREF(key);
    Py_XDECREF(before);
    Py_XDECREF(more);
    Py_XDECREF(sum);
}

void forget_likeness(repeating_t *self)
{
    Py_CLEAR(self->like);
    for (int place = 0; place < LIKENESSES; place++)
        Py_CLEAR(self->part[place]);
}

/* Whether an attribute is this very object; -1: it can't be had. */
static int attribute_is(PyObject *object, enum name name, PyObject *wanted)
{
    PyObject *found = PyObject_GetAttr(object, name_of[name]);
    if (found == NULL)
        return -1;
    int same = found == wanted;
    Py_DECREF(found);
    return same;
}

static int note_results_in_hand(repeating_t *self, number_t newest)
{
    PyObject *number = PyLong_FromLongLong(newest < NO_STEP ? NO_STEP : newest);
    if (number == NULL)
        return -1;
    int status = PyObject_SetAttr(self->progress, name_of[N_IN_HAND], number);
    Py_DECREF(number);
    return status;
}

/* As step_begins; -1: something can't be had. */
static int tries_to_begin(repeating_t *self, PyObject *scheduler, PyObject *batch, number_t number)
{
    Py_ssize_t waiting = length_of(scheduler, N_RESULT_QUEUE);
    if (waiting <= 0) /* the launch isn't overlapped with another */
        return (int)waiting;
    int same = attribute_is(batch, N_FORWARD_MODE, self->part[BATCH_MODE]);
    if (same == 1)
        same = attribute_is(self->part[OWNER], N_MAILBOX, Py_None);
    if (same == 1 && self->row_count)
        same = write_row_of(self, number, batch) < 0 ? -1 : 1;
    if (same == 1 && self->progress != Py_None)
        same = note_results_in_hand(self, number - 1 - waiting) < 0 ? -1 : 1;
    return same;
}

int step_begins(repeating_t *self, PyObject *args)
{
    number_t number = self->number + 1;
    if (self->like == NULL || self->open || number >= self->due || PyTuple_Size(args) < 3)
        return 0;
    PyObject *scheduler = PyTuple_GetItem(args, 1), *batch = PyTuple_GetItem(args, 2);
    if (batch == Py_None)
        return 0;
    self->metered = number % COST_SAMPLE == METERED;
    number_t began = self->metered ? now_ns() : 0;
    int same = tries_to_begin(self, scheduler, batch, number);
    if (same < 0) {
        PyErr_Clear();
        forget_likeness(self);
    }
    if (same != 1)
        return 0;
    self->number = number;
    put(&self->scheduler, Py_NewRef(scheduler));
    put(&self->batch, Py_NewRef(batch));
    self->open = self->repeats = 1;
    self->resolved = 0;
    if (began)
        meter(self, "run_batch", began);
    return 1;
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
        meter(self, "decode_resolve", began);
    return 1;
}

/* Whether every fence is to be coarse. Where a variable isn't set, its switch needn't be asked. */
static int is_forced(repeating_t *self)
{
    if (self->unset_in != Py_None) {
        if (PyDict_GetItemWithError(self->unset_in, self->unset_name) == NULL)
            return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *found = PyObject_CallNoArgs(self->forced);
    if (found == NULL)
        return -1;
    int forced = PyObject_IsTrue(found);
    Py_DECREF(found);
    return forced;
}

static int add_one(PyObject *counter)
{
    PyObject *before = PyObject_GetAttr(counter, name_of[N_STEPS]);
    number_t steps = before == NULL ? -1 : PyLong_AsLongLong(before);
    Py_XDECREF(before);
    PyObject *after = steps < 0 ? NULL : PyLong_FromLongLong(steps + 1);
    int status = after == NULL ? -1 : PyObject_SetAttr(counter, name_of[N_STEPS], after);
    Py_XDECREF(after);
    return status;
}

/* Whether the runner that owns the step's last shared read is the one of before. */
static int is_owner(repeating_t *self, PyObject *scheduler)
{
    PyObject *worker = PyObject_GetAttr(scheduler, name_of[N_WORKER]);
    int same = worker == NULL ? -1 : attribute_is(worker, N_LAST_RUNNER, self->part[OWNER]);
    Py_XDECREF(worker);
    return same == 1;
}

/* Return what is published for the barrier to wait for, if it is as it was; NULL: it isn't. */
static PyObject *event_of(repeating_t *self, PyObject *scheduler)
{
    PyObject *enabled = PyObject_GetAttr(scheduler, name_of[N_ENABLED]);
    int on = enabled == NULL ? -1 : PyObject_IsTrue(enabled);
    Py_XDECREF(enabled);
    if (on != 1)
        return NULL;
    if (!self->sole && !is_owner(self, scheduler))
        return NULL;
    PyObject *event = PyObject_GetAttr(self->part[OWNER], name_of[N_MAILBOX]);
    if (event == NULL)
        return NULL;
    if (event != Py_None && is_forced(self) == 0)
        return event;
    Py_DECREF(event);
    return NULL;
}

int step_ends(repeating_t *self, PyObject *args)
{
    number_t began = self->metered ? now_ns() : 0;
    if (self->like == NULL || !self->resolved || PyTuple_Size(args) != 2 ||
        PyTuple_GetItem(args, 1) != self->scheduler)
        return 0;
    PyObject *event = event_of(self, self->scheduler);
    if (event == NULL || add_one(self->part[CELL]) < 0 || add_one(self->part[ROUTE]) < 0) {
        PyErr_Clear();
        Py_XDECREF(event);
        return 0;
    }
    self->open = self->repeats = 0;
    self->timed = self->times.every && self->number % self->times.every == 0;
    if (self->timed)
        record_times(self, event, 1);
    Py_CLEAR(self->scheduler);
    Py_CLEAR(self->batch);
    if (self->row != NULL) {
        self->row->progress = FENCED;
        self->row->event = event;
        self->row->entered_ns = now_ns();
    }
    Py_DECREF(event);
    if (began)
        meter(self, "apply_war_barrier", began);
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
        meter(self, "apply_war_barrier", began);
}

void step_demote(repeating_t *self)
{
    PyObject *result = PyObject_CallNoArgs(self->demote);
    if (result == NULL)
        PyErr_Clear();
    Py_XDECREF(result);
    self->repeats = 0;
}
