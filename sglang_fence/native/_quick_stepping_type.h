/* The type of Stepping: how one is made, armed and freed. Included by _quick.c once, behind _quick_stepping.h. */

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
    told_nothing(self);
    return 0;
}

static PyObject *stepping_arm(stepping_t *self, PyObject *args)
{
    told_nothing(self); /* a general step was here */
    return arm_by(&self->base, args, alike_names, (flags_t){0});
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

/* Each of them raises what was kept for it. */
#define DELIVERED(name)                                                                                       \
    static PyObject *delivered_##name(stepping_t *self, PyObject *const *args, Py_ssize_t count)              \
    {                                                                                                         \
        return deliver(&self->base, stepping_##name(self, args, count));                                      \
    }

DELIVERED(step_started)
DELIVERED(forward_started)
DELIVERED(resolved)
DELIVERED(end_event)
DELIVERED(reads_end)
DELIVERED(before_wait)
DELIVERED(at_barrier)
DELIVERED(after_wait)

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))delivered_##name, METH_FASTCALL, NULL}

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
