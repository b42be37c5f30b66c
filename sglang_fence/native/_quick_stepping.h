/* The same for the runtime's own probe, which is told of a step in more calls than SGLang makes. Included once.
 *
 * Its methods stand in front of those of sglang_fence/observe/probe.py, and hand on to them what isn't a repetition; so
 * does sglang_fence/observe/quickening.py say, which puts them there.
 */

/* What is compared, in the places of a Likeness. */
enum { P_BACKEND = OWNER, P_MODE = BATCH_MODE, P_PHASE = GRAPH, P_FORWARD = GRAPH_BACKEND, P_ENDS = RESULT };

static const char *const alike_names[LIKENESSES] = {
    [P_BACKEND] = "backend_name", [P_MODE] = "mode", [P_PHASE] = "phase", [P_FORWARD] = "forward",
    [GRAPH_MODE] = "fine", [P_ENDS] = "ends", [CELL] = "cell", [ROUTE] = "route", /* and no draft is extended */
};

enum general { STEP_STARTED, FORWARD_STARTED, PHASE_RESOLVED, END_EVENT, READS_END, BEFORE_WAIT, AT_BARRIER, AFTER_WAIT,
               GENERALS };

typedef struct {
    repeating_t base;
    PyObject *probe, *blank, *tracer, *lent, *general[GENERALS]; /* owned */
    PyObject *forward, *batch_size, *tokens;                     /* of the open step; owned */
    number_t bound; /* what the open step's fence waits for, once that was looked at */
    char checked, lent_now, told_timing, told_blank;
} stepping_t;

static PyObject *call_general_of(stepping_t *self, enum general which, PyObject *const *args, Py_ssize_t count)
{
    PyObject *general = self->general[which];
    if (self->base.kept_type != NULL) /* that is raised in its place */
        return NULL;
    if (general == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Stepping has no general method to hand this on to");
        return NULL;
    }
    PyObject *packed = PyTuple_New(count);
    if (packed == NULL)
        return NULL;
    Py_INCREF(general);
    for (Py_ssize_t place = 0; place < count; place++)
        PyTuple_SetItem(packed, place, Py_NewRef(args[place]));
    PyObject *result = PyObject_Call(general, packed, NULL);
    Py_DECREF(packed);
    Py_DECREF(general);
    return result;
}

/* The step isn't a repetition after all: let the general way begin it, and go on with this call. */
static PyObject *go_general(stepping_t *self, enum general which, PyObject *const *args, Py_ssize_t count)
{
    forgive(&self->base);
    if (self->base.repeats)
        step_demote(&self->base);
    return call_general_of(self, which, args, count);
}

static int tell(PyObject *object, enum name name, PyObject *value)
{
    if (object == NULL || value == NULL)
        return -1;
    Py_INCREF(object);
    int status = PyObject_SetAttr(object, name_of[name], value);
    Py_DECREF(object);
    return status;
}

/* What the probe was told last isn't known: it went the general way. */
static void told_nothing(stepping_t *self)
{
    self->told_timing = -1;
    self->told_blank = 0;
}

/* Tell the runtime what this step asks of it, where that isn't what it was told last. */
static int tell_step(stepping_t *self, char timed)
{
    if (self->told_timing != timed && tell(self->probe, N_TIMING, timed ? Py_True : Py_False) < 0)
        return -1;
    self->told_timing = timed;
    if (!self->told_blank && tell(self->probe, N_RECORD, self->blank) < 0)
        return -1;
    self->told_blank = 1;
    return 0;
}

static int stepping_begins(stepping_t *self, PyObject *const *args)
{
    repeating_t *step = &self->base;
    if (step->like == NULL || args[1] != step->part[P_MODE] || args[2] != step->part[P_BACKEND] ||
        !PyLong_Check(args[0]) || !PyLong_Check(args[3]) || !PyLong_Check(args[4]) || step->cost_sample < 1)
        return 0;
    number_t number = PyLong_AsLongLong(args[0]);
    if (number < 0 || number >= step->due)
        return 0;
    step->metered = number % step->cost_sample == 0;
    number_t began = step->metered ? now_ns() : 0;
    char timed = (char)is_timed(&step->times, number);
    if (step->row_count) {
        number_t size = PyLong_AsLongLong(args[3]), tokens = PyLong_AsLongLong(args[4]);
        if (size < 0 || tokens < 0)
            return 0;
        write_row(step, step->like, number, size, tokens);
    }
    if (tell_step(self, timed) < 0) {
        if (step->row != NULL)
            step->row->step = NO_STEP;
        return 0;
    }
    step->number = number;
    step->timed = timed;
    step->open = step->repeats = 1;
    step->resolved = self->checked = self->lent_now = 0;
    put(&self->batch_size, Py_NewRef(args[3]));
    put(&self->tokens, Py_NewRef(args[4]));
    Py_CLEAR(self->forward);
    if (began)
        meter(step, H_STEP_STARTED, began);
    return 1;
}

static PyObject *stepping_step_started(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    repeating_t *step = &self->base;
    if (step->open) /* it met no barrier, or went the general way from its midst on */
        told_nothing(self);
    step->open = step->repeats = 0; /* one that met no barrier wasn't told, and isn't */
    if (count == 5 && stepping_begins(self, args))
        Py_RETURN_NONE;
    forgive(step);
    step->open = step->repeats = 0;
    told_nothing(self);
    return call_general_of(self, STEP_STARTED, args, count);
}

static PyObject *stepping_forward_started(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    if (!self->base.repeats || count != 1 || args[0] != self->base.part[P_FORWARD])
        return go_general(self, FORWARD_STARTED, args, count);
    put(&self->forward, Py_NewRef(args[0]));
    Py_RETURN_NONE;
}

static PyObject *stepping_resolved(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    repeating_t *step = &self->base;
    if (!step->repeats || step->resolved || count != 1 || args[0] != step->part[P_PHASE])
        return go_general(self, PHASE_RESOLVED, args, count);
    step->resolved = 1;
    if (step->row != NULL)
        step->row->progress = RESOLVED;
    Py_RETURN_NONE;
}

static PyObject *stepping_end_event(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    repeating_t *step = &self->base;
    times_t *times = &step->times;
    if (!step->repeats)
        return go_general(self, END_EVENT, args, count);
    if (!step->timed || !times->on || self->lent == NULL)
        Py_RETURN_NONE;
    make_room(times); /* the runtime records it: none may be lent that a step still waits to be read from */
    Py_ssize_t place = next_slot(times) - times->slots;
    if (place >= PyTuple_Size(self->lent))
        Py_RETURN_NONE;
    PyObject *event = PyTuple_GetItem(self->lent, place);
    self->lent_now = event != Py_None;
    return Py_NewRef(event);
}

/* Whether the fence is the fine one that was published for this step, as before. */
static int is_as_before(stepping_t *self, PyObject *verdict)
{
    repeating_t *step = &self->base;
    if (!step->resolved || attribute_is(verdict, N_KIND, step->part[GRAPH_MODE]) != 1)
        return 0;
    PyObject *published = PyObject_GetAttr(verdict, name_of[N_PUBLISHED]);
    int same = published != NULL && PyTuple_Check(published) && PyTuple_Size(published) == 2 &&
               PyTuple_GetItem(published, 0) == step->part[P_ENDS];
    PyObject *bound = same ? PyTuple_GetItem(published, 1) : NULL;
    self->bound = bound != NULL && PyLong_Check(bound) ? PyLong_AsLongLong(bound) : step->number;
    if (same)
        forgive(step); /* of a number that is too large */
    Py_XDECREF(published);
    return same;
}

static PyObject *stepping_reads_end(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    repeating_t *step = &self->base;
    if (!step->repeats || count != 3 || args[1] == Py_None || args[2] != step->part[P_FORWARD] ||
        !is_as_before(self, args[0]))
        return go_general(self, READS_END, args, count);
    number_t began = step->metered ? now_ns() : 0;
    self->checked = 1;
    if (step->timed) {
        PyObject *raw = PyObject_GetAttr(args[1], name_of[N_RAW]);
        if (raw == NULL)
            return go_general(self, READS_END, args, count);
        PyObject *like = Py_XNewRef(step->like);
        if (like != NULL)
            record_times(step, like, raw, !self->lent_now);
        Py_XDECREF(like);
        Py_DECREF(raw);
    }
    if (began)
        meter(step, H_READS_END, began);
    Py_RETURN_FALSE;
}

static PyObject *stepping_before_wait(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    if (!self->base.repeats)
        return go_general(self, BEFORE_WAIT, args, count);
    Py_RETURN_NONE;
}

static PyObject *stepping_at_barrier(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    repeating_t *step = &self->base;
    if (!step->repeats || count != 2 || !(self->checked || is_as_before(self, args[0])))
        return go_general(self, AT_BARRIER, args, count);
    self->checked = 1;
    if (step->row != NULL) {
        step->row->progress = FENCED;
        step->row->bound = self->bound;
        step->row->event = args[1] == Py_None ? NULL : args[1];
        step->row->entered_ns = now_ns();
    }
    Py_RETURN_NONE;
}

/* Count the step; -1: that can't be done. */
static int stepping_count(stepping_t *self)
{
    repeating_t *step = &self->base;
    if (count_step(step) < 0)
        return -1;
    step->open = step->repeats = 0;
    if (step->row != NULL)
        step->row->barrier_ns = now_ns();
    if (self->tracer != Py_None) {
        PyObject *number = PyLong_FromLongLong(step->number);
        if (number == NULL || tell(self->tracer, N_LAST_FENCED, number) < 0)
            forgive(step);
        Py_XDECREF(number);
    }
    if (step->timed && step->times.pending > BATCH && tell(self->probe, N_PENDING, Py_True) < 0)
        forgive(step);
    return 0;
}

static PyObject *stepping_after_wait(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    repeating_t *step = &self->base;
    if (!step->repeats || count != 1)
        return go_general(self, AFTER_WAIT, args, count);
    number_t began = step->metered ? now_ns() : 0;
    if (!(self->checked || is_as_before(self, args[0])) || stepping_count(self) < 0)
        return go_general(self, AFTER_WAIT, args, count);
    if (began)
        meter(step, H_AFTER_WAIT, began);
    Py_RETURN_NONE;
}
