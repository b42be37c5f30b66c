/* The five hooks, as SGLang's registry calls them: with the original, then its arguments. Included by _quick.c once. */

typedef struct {
    PyObject_HEAD
    enum hook_kind kind;
    repeating_t *repeating; /* owned; NULL of a GIVEN */
    PyObject *general;      /* owned */
} hook_t;

static PyTypeObject *hook_type;

static PyObject *call_original(PyObject *args, PyObject *kwargs)
{
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
    if (rest == NULL)
        return NULL;
    PyObject *result = PyObject_Call(PyTuple_GetItem(args, 0), rest, kwargs);
    Py_DECREF(rest);
    return result;
}

/* The original was called already: let the general hook look at its result. */
static PyObject *call_general_with(PyObject *general, PyObject *result, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t size = PyTuple_Size(args);
    PyObject *given = make_hook(GIVEN, NULL, result), *changed = PyTuple_New(size), *found = NULL;
    if (changed != NULL && given != NULL) {
        PyTuple_SetItem(changed, 0, Py_NewRef(given));
        for (Py_ssize_t place = 1; place < size; place++)
            PyTuple_SetItem(changed, place, Py_NewRef(PyTuple_GetItem(args, place)));
        found = PyObject_Call(general, changed, kwargs);
    }
    Py_XDECREF(changed);
    Py_XDECREF(given);
    return found;
}

/* Let the general hook do it all; unless an exception waits to be raised, as of a signal: then nothing is called. */
static PyObject *call_general(hook_t *self, PyObject *args, PyObject *kwargs)
{
    return self->repeating->kept_type != NULL ? NULL : PyObject_Call(self->general, args, kwargs);
}

static PyObject *hook_launch(hook_t *self, PyObject *args, PyObject *kwargs, int plain)
{
    repeating_t *step = self->repeating;
    if (step->launching) /* a launch within a launch is the same step */
        return call_original(args, kwargs);
    if (!plain || !step_begins(step, args))
        return call_general(self, args, kwargs);
    step->launching = 1;
    PyObject *result = call_original(args, NULL);
    step->launching = 0;
    return result;
}

static PyObject *hook_inputs(hook_t *self, PyObject *args, PyObject *kwargs)
{
    repeating_t *step = self->repeating;
    if (!step->repeats)
        return PyObject_Call(self->general, args, kwargs);
    step_launches(step);
    return step->kept_type != NULL ? NULL : call_original(args, kwargs);
}

static PyObject *hook_resolve(hook_t *self, PyObject *args, PyObject *kwargs, int plain)
{
    repeating_t *step = self->repeating;
    if (!step->repeats)
        return PyObject_Call(self->general, args, kwargs);
    PyObject *result = call_original(args, kwargs);
    if (result == NULL || (step->repeats && plain && step_resolves(step, result, args)))
        return result;
    if (step->repeats)
        step_demote(step);
    PyObject *found = step->kept_type != NULL ? NULL : call_general_with(self->general, result, args, kwargs);
    Py_DECREF(result);
    return found;
}

static PyObject *hook_extend(hook_t *self, PyObject *args, PyObject *kwargs)
{
    repeating_t *step = self->repeating;
    if (!step->repeats)
        return PyObject_Call(self->general, args, kwargs);
    if (!step_extends(step, args)) {
        step_demote(step);
        return call_general(self, args, kwargs);
    }
    PyObject *result = call_original(args, kwargs);
    if (result != NULL)
        step_extended(step, args);
    return result;
}

static PyObject *hook_barrier(hook_t *self, PyObject *args, PyObject *kwargs, int plain)
{
    repeating_t *step = self->repeating;
    if (step->repeats) {
        if (plain && step_ends(step, args)) {
            PyObject *result = call_original(args, NULL);
            if (result != NULL)
                step_over(step);
            return result;
        }
        step_demote(step);
    }
    return call_general(self, args, kwargs);
}

static PyObject *hook_as(hook_t *self, PyObject *args, PyObject *kwargs)
{
    int plain = kwargs == NULL || PyDict_Size(kwargs) == 0;
    switch (self->kind) {
    case LAUNCH:
        return hook_launch(self, args, kwargs, plain);
    case INPUTS:
        return hook_inputs(self, args, kwargs);
    case RESOLVE:
        return hook_resolve(self, args, kwargs, plain);
    case EXTEND:
        return hook_extend(self, args, kwargs);
    default: /* BARRIER */
        return hook_barrier(self, args, kwargs, plain);
    }
}

static PyObject *hook_call(hook_t *self, PyObject *args, PyObject *kwargs)
{
    if (self->kind == GIVEN)
        return Py_XNewRef(self->general);
    if (PyTuple_Size(args) < 1) {
        PyErr_SetString(PyExc_TypeError, "a hook is called with the original, then its arguments");
        return NULL;
    }
    repeating_t *step = self->repeating;
    if (step == NULL || self->general == NULL) /* the collector took it apart: nobody looks on any more */
        return call_original(args, kwargs);
    return deliver(step, hook_as(self, args, kwargs));
}

static int hook_traverse(hook_t *self, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->repeating);
    Py_VISIT(self->general);
    return 0;
}

static int hook_clear(hook_t *self)
{
    Py_CLEAR(self->repeating);
    Py_CLEAR(self->general);
    return 0;
}

static void hook_dealloc(hook_t *self)
{
    PyObject_GC_UnTrack(self);
    hook_clear(self);
    free_object((PyObject *)self);
}

static PyType_Slot hook_slots[] = {
    {Py_tp_doc, "A hook in front of a general one."},
    {Py_tp_call, hook_call},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_dealloc, hook_dealloc},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    "sglang_fence.native._quick.Hook",
    sizeof(hook_t),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    hook_slots,
};

int add_hook_type(PyObject *module)
{
    return add_type(module, "Hook", &hook_spec, &hook_type);
}

PyObject *make_hook(enum hook_kind kind, repeating_t *repeating, PyObject *general)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(hook_type, Py_tp_alloc);
    hook_t *self = (hook_t *)allocate(hook_type, 0);
    if (self == NULL)
        return NULL;
    self->kind = kind;
    Py_XINCREF((PyObject *)repeating);
    self->repeating = repeating;
    Py_INCREF(general);
    self->general = general;
    return (PyObject *)self;
}
