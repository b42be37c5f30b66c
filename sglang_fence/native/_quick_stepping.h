/* The same for the runtime's own probe, which is told of a step in more calls than SGLang makes. Included once.
 *
 * Its methods stand in front of those of sglang_fence/observe/probe.py, and hand on to them what isn't a repetition; so
 * does sglang_fence/observe/quickening.py say, which puts them there.
 */

/* What is compared, in the places of a Likeness. */
enum { P_BACKEND = OWNER, P_MODE = BATCH_MODE, P_PHASE = GRAPH, P_FORWARD = GRAPH_BACKEND, P_ENDS = RESULT };

static const char *const alike_names[LIKENESSES] = {
    [P_BACKEND] = "backend_name", [P_MODE] = "mode", [P_PHASE] = "phase", [P_FORWARD] = "forward",
    [GRAPH_MODE] = "fine", [P_ENDS] = "ends", [CELL] = "cell", [ROUTE] = "route",
};

enum general { STEP_STARTED, FORWARD_STARTED, PHASE_RESOLVED, END_EVENT, READS_END, BEFORE_WAIT, AT_BARRIER, AFTER_WAIT,
               GENERALS };

typedef struct {
    repeating_t base;
    PyObject *probe, *blank, *tracer, *lent, *general[GENERALS]; /* owned */
    PyObject *forward, *batch_size, *tokens;                     /* of the open step; owned */
    char checked, lent_now, told_timing, told_blank;
} stepping_t;

static PyObject *call_general_of(stepping_t *self, enum general which, PyObject *const *args, Py_ssize_t count)
{
    PyObject *packed = PyTuple_New(count);
    if (packed == NULL)
        return NULL;
    for (Py_ssize_t place = 0; place < count; place++)
        PyTuple_SetItem(packed, place, Py_NewRef(args[place]));
    PyObject *result = PyObject_Call(self->general[which], packed, NULL);
    Py_DECREF(packed);
    return result;
}

/* The step isn't a repetition after all: let the general way begin it, and go on with this call. */
static PyObject *go_general(stepping_t *self, enum general which, PyObject *const *args, Py_ssize_t count)
{
    PyErr_Clear();
    if (self->base.repeats)
        step_demote(&self->base);
    return call_general_of(self, which, args, count);
}

static int tell(PyObject *object, enum name name, PyObject *value)
{
    return PyObject_SetAttr(object, name_of[name], value);
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
    if (step->like == NULL || args[1] != step->part[P_MODE] || args[2] != step->part[P_BACKEND])
        return 0;
    number_t number = PyLong_AsLongLong(args[0]);
    if (number < 0 || number >= step->due)
        return 0;
    step->metered = number % step->cost_sample == 0;
    number_t began = step->metered ? now_ns() : 0;
    char timed = step->times.every && number % step->times.every == 0;
    if (step->row_count) {
        number_t size = PyLong_AsLongLong(args[3]), tokens = PyLong_AsLongLong(args[4]);
        if (size < 0 || tokens < 0)
            return 0;
        write_row(step, number, size, tokens);
    }
    if (tell_step(self, timed) < 0)
        return 0;
    step->number = number;
    step->timed = timed;
    step->open = step->repeats = 1;
    step->resolved = self->checked = self->lent_now = 0;
    put(&self->batch_size, Py_NewRef(args[3]));
    put(&self->tokens, Py_NewRef(args[4]));
    Py_CLEAR(self->forward);
    if (began)
        meter(step, "step_started", began);
    return 1;
}

static PyObject *stepping_step_started(stepping_t *self, PyObject *const *args, Py_ssize_t count)
{
    repeating_t *step = &self->base;
    step->open = step->repeats = 0; /* one that met no barrier wasn't told, and isn't */
    if (count == 5 && stepping_begins(self, args))
        Py_RETURN_NONE;
    PyErr_Clear();
    step->open = step->repeats = 0;
    self->told_timing = -1;
    self->told_blank = 0;
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
    if (!step->timed || !times->count)
        Py_RETURN_NONE;
    PyObject *event = PyTuple_GetItem(self->lent, (times->first + times->pending) % times->count);
    if (event == NULL)
        return NULL;
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
        record_times(step, raw, !self->lent_now);
        Py_DECREF(raw);
    }
    if (began)
        meter(step, "reads_end", began);
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
        step->row->event = args[1] == Py_None ? NULL : args[1];
        step->row->entered_ns = now_ns();
    }
    Py_RETURN_NONE;
}

/* Count the step; -1: that can't be done. */
static int stepping_count(stepping_t *self)
{
    repeating_t *step = &self->base;
    if (step->like == NULL || add_one(step->part[CELL]) < 0 || add_one(step->part[ROUTE]) < 0)
        return -1;
    step->open = step->repeats = 0;
    if (step->row != NULL)
        step->row->barrier_ns = now_ns();
    if (self->tracer != Py_None) {
        PyObject *number = PyLong_FromLongLong(step->number);
        if (number == NULL || tell(self->tracer, N_LAST_FENCED, number) < 0)
            PyErr_Clear();
        Py_XDECREF(number);
    }
    if (step->timed && step->times.pending > BATCH && tell(self->probe, N_PENDING, Py_True) < 0)
        PyErr_Clear();
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
        meter(step, "after_wait", began);
    Py_RETURN_NONE;
}

/* Stepping(probe, generals, blank, tracer, lent, cost_ns, clock_ns, cost_sample) */
static int stepping_init(stepping_t *self, PyObject *args, PyObject *kwargs)
{
    PyObject *probe, *generals, *blank, *tracer, *lent, *cost_ns;
    number_t clock_ns, cost_sample;
    if (kwargs != NULL && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Stepping takes no keyword arguments");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OO!OOO!OLL", &probe, &PyTuple_Type, &generals, &blank, &tracer, &PyTuple_Type, &lent,
                          &cost_ns, &clock_ns, &cost_sample))
        return -1;
    if (PyTuple_Size(generals) != GENERALS || cost_sample < 1) {
        PyErr_Format(PyExc_ValueError, "Stepping takes %d general methods, and a sample of 1 step or more", GENERALS);
        return -1;
    }
    PyObject *based = Py_BuildValue("(OL)", cost_ns, clock_ns);
    int status = based == NULL ? -1 : repeating_init(&self->base, based, NULL);
    Py_XDECREF(based);
    if (status < 0)
        return -1;
    self->base.cost_sample = cost_sample;
    put(&self->probe, Py_NewRef(probe));
    put(&self->blank, Py_NewRef(blank));
    put(&self->tracer, Py_NewRef(tracer));
    put(&self->lent, Py_NewRef(lent));
    for (int place = 0; place < GENERALS; place++)
        put(&self->general[place], Py_NewRef(PyTuple_GetItem(generals, place)));
    self->told_timing = -1;
    return 0;
}

static PyObject *stepping_arm(stepping_t *self, PyObject *args)
{
    self->told_timing = -1; /* a general step was here */
    self->told_blank = 0;
    return arm_by(&self->base, args, alike_names);
}

static int stepping_traverse(stepping_t *self, visitproc visit, void *arg)
{
    Py_VISIT(self->probe);
    Py_VISIT(self->blank);
    Py_VISIT(self->tracer);
    Py_VISIT(self->lent);
    for (int place = 0; place < GENERALS; place++)
        Py_VISIT(self->general[place]);
    Py_VISIT(self->forward);
    Py_VISIT(self->batch_size);
    Py_VISIT(self->tokens);
    return repeating_traverse(&self->base, visit, arg);
}

static int stepping_clear(stepping_t *self)
{
    Py_CLEAR(self->probe);
    Py_CLEAR(self->blank);
    Py_CLEAR(self->tracer);
    Py_CLEAR(self->lent);
    for (int place = 0; place < GENERALS; place++)
        Py_CLEAR(self->general[place]);
    Py_CLEAR(self->forward);
    Py_CLEAR(self->batch_size);
    Py_CLEAR(self->tokens);
    return repeating_clear(&self->base);
}

static void stepping_dealloc(stepping_t *self)
{
    PyObject_GC_UnTrack(self);
    stepping_clear(self);
    free_object((PyObject *)self);
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))stepping_##name, METH_FASTCALL, NULL}

static PyMethodDef stepping_methods[] = {
    METHOD(step_started), METHOD(forward_started), METHOD(resolved),   METHOD(end_event), METHOD(reads_end),
    METHOD(before_wait),  METHOD(at_barrier),      METHOD(after_wait), {"arm", (PyCFunction)stepping_arm, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stepping_members[] = {
    {"forward", T_OBJECT, offsetof(stepping_t, forward), READONLY, NULL},
    {"batch_size", T_OBJECT, offsetof(stepping_t, batch_size), READONLY, NULL},
    {"tokens", T_OBJECT, offsetof(stepping_t, tokens), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot stepping_slots[] = {
    {Py_tp_doc, "Steps of the runtime that are like the ones before."},
    {Py_tp_init, stepping_init},
    {Py_tp_methods, stepping_methods},
    {Py_tp_members, stepping_members},
    {Py_tp_traverse, stepping_traverse},
    {Py_tp_clear, stepping_clear},
    {Py_tp_dealloc, stepping_dealloc},
    {0, NULL},
};

static PyType_Spec stepping_spec = {
    "sglang_fence.native._quick.Stepping",
    sizeof(stepping_t),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    stepping_slots,
};

static int add_stepping_type(PyObject *module, PyObject *base)
{
    PyObject *bases = PyTuple_Pack(1, base);
    PyObject *type = bases == NULL ? NULL : PyType_FromSpecWithBases(&stepping_spec, bases);
    Py_XDECREF(bases);
    int status = type == NULL ? -1 : PyModule_AddObjectRef(module, "Stepping", type);
    Py_XDECREF(type);
    return status;
}
