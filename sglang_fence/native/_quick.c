/* Repeating: steps that are like the one before are recognised by what they are made of, and only counted.
 *
 * The same as the class of that name in sglang_fence/sglang_plugin/repeating.py, whose comments say what each part
 * means; for a machine whose caches a server's own work has filled with something else, where a few hundred
 * instructions that read little cost a third of what the interpreter takes to do the same.
 */

#include "_quick.h"

#ifndef SOURCE
#define SOURCE "" /* the build says from which source this was compiled */
#endif

PyObject *name_of[NAMES];

static const char *const names[NAMES] = {
    "result_queue", "forward_mode",         "shared_read_done_event", "reqs",
    "extend_num_tokens", "_war_barrier_enabled", "model_worker",           "last_shared_read_runner",
    "steps",             "in_hand",              "cuda_event",             "timing",
    "_record",           "pending",              "raw",                    "kind",
    "published",         "last_fenced",          "model_runner",           "draft_extend_attn_backend",
    "attn_backend",
};

static const char *const likeness_names[LIKENESSES] = {
    "owner", "backend", "batch_mode", "graph", "graph_backend", "graph_mode", "resolved", "cell", "route", "extender",
    "extend_backend", "extend_mode",
};

#include "_quick_raised.h"

#include "_quick_numbers.h"

#include "_quick_histogram.h"

#include "_quick_attributes.h"

#include "_quick_rows.h"

#include "_quick_costs.h"

#include "_quick_times.h"

#include "_quick_step.h"

#include "_quick_hooks.h"

void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int repeating_init(repeating_t *self, PyObject *args, PyObject *kwargs)
{
    static char *arguments[] = {"cost_ns", "clock_ns", NULL};
    PyObject *cost_ns;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OL", arguments, &cost_ns, &self->clock_ns))
        return -1;
    put(&self->cost_ns, Py_NewRef(cost_ns));
    self->number = NO_STEP;
    self->cost_sample = COST_SAMPLE;
    PyObject **optional[] = {&self->demote,   &self->tell_inputs, &self->tell_extended, &self->forced,
                             &self->unset_in, &self->unset_name,  &self->progress};
    for (size_t place = 0; place < sizeof optional / sizeof *optional; place++)
        if (*optional[place] == NULL)
            *optional[place] = Py_NewRef(Py_None);
    return 0;
}

/* A part of what is armed; None: it has no such part. NULL: it should have, and an exception says so. */
static PyObject *part_of(PyObject *like, PyObject *const *part, int place, const char *name)
{
    if (place != SLACK && place != WAIT)
        return name == NULL ? Py_NewRef(Py_None) : PyObject_GetAttrString(like, name);
    PyObject *found = PyObject_GetAttrString(part[CELL], place == SLACK ? "slack" : "wait");
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return found;
}

/* What a likeness says yes or no to. */
typedef struct {
    int extends, sole, coarse;
} flags_t;

static PyObject *arm_by(repeating_t *self, PyObject *args, const char *const *part_names, flags_t flags)
{
    PyObject *like, *part[LIKENESSES] = {NULL};
    number_t due = 0, every = 0;
    if (!PyArg_ParseTuple(args, "O|LL", &like, &due, &every))
        return NULL;
    if (every < 0 || (every && !self->times.on)) {
        PyErr_SetString(PyExc_ValueError, "arm(): no times are taken");
        return NULL;
    }
    int another = like != self->like && like != Py_None;
    for (int place = 0; another && place < LIKENESSES; place++)
        if ((part[place] = part_of(like, part, place, part_names[place])) == NULL) {
            while (place-- > 0)
                Py_DECREF(part[place]);
            return NULL;
        }
    self->due = due;
    self->times.every = self->times.on ? every : 0;
    self->extends = (char)flags.extends, self->sole = (char)flags.sole, self->coarse = (char)flags.coarse;
    if (another) /* last: the end of what was compared with may run anything, and arm anew */
        become_like(self, like, part);
    else if (like == Py_None)
        forget_likeness(self);
    Py_RETURN_NONE;
}

static int truth_of(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    int truth = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return truth;
}

static PyObject *repeating_arm(repeating_t *self, PyObject *args)
{
    PyObject *like = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    flags_t is = {0};
    if (like != Py_None && ((is.extends = truth_of(like, "extends")) < 0 || (is.sole = truth_of(like, "sole")) < 0 ||
                            (is.coarse = truth_of(like, "coarse")) < 0))
        return NULL;
    return arm_by(self, args, likeness_names, is);
}

static PyObject *repeating_ask_forced(repeating_t *self, PyObject *args)
{
    PyObject *forced, *unset_in = Py_None, *unset_name = Py_None;
    if (!PyArg_ParseTuple(args, "O|OO", &forced, &unset_in, &unset_name))
        return NULL;
    if (unset_in != Py_None && !PyDict_Check(unset_in)) {
        PyErr_SetString(PyExc_TypeError, "ask_forced() looks for a name in a dict");
        return NULL;
    }
    put(&self->forced, Py_NewRef(forced));
    put(&self->unset_in, Py_NewRef(unset_in));
    put(&self->unset_name, Py_NewRef(unset_name));
    Py_RETURN_NONE;
}

static PyObject *repeating_get_progress(repeating_t *self, void *ignored)
{
    (void)ignored;
    return Py_NewRef(self->progress == NULL ? Py_None : self->progress);
}

static int repeating_set_progress(repeating_t *self, PyObject *progress, void *ignored)
{
    (void)ignored;
    self->in_hand = progress != NULL && PyObject_TypeCheck(progress, in_hand_type) ? (in_hand_t *)progress : NULL;
    put(&self->progress, Py_XNewRef(progress)); /* NULL: it is deleted, and read as None */
    return 0;
}

static PyObject *repeating_launch(repeating_t *self, PyObject *general)
{
    return make_hook(LAUNCH, self, general);
}

static PyObject *repeating_inputs(repeating_t *self, PyObject *general)
{
    return make_hook(INPUTS, self, general);
}

static PyObject *repeating_resolve(repeating_t *self, PyObject *general)
{
    return make_hook(RESOLVE, self, general);
}

static PyObject *repeating_extend(repeating_t *self, PyObject *general)
{
    return make_hook(EXTEND, self, general);
}

static PyObject *repeating_barrier(repeating_t *self, PyObject *general)
{
    return make_hook(BARRIER, self, general);
}

static int repeating_traverse(repeating_t *self, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)Py_TYPE((PyObject *)self));
    Py_VISIT(self->scheduler);
    Py_VISIT(self->batch);
    Py_VISIT(self->demote);
    Py_VISIT(self->tell_inputs);
    Py_VISIT(self->tell_extended);
    Py_VISIT(self->forced);
    Py_VISIT(self->unset_in);
    Py_VISIT(self->unset_name);
    Py_VISIT(self->progress);
    Py_VISIT(self->cost_ns);
    Py_VISIT(self->like);
    Py_VISIT(self->scheduler_home.object);
    Py_VISIT((PyObject *)self->scheduler_home.type);
    Py_VISIT(self->owner_home.object);
    Py_VISIT((PyObject *)self->owner_home.type);
    Py_VISIT(self->kept_type);
    Py_VISIT(self->kept_value);
    Py_VISIT(self->kept_traceback);
    for (int place = 0; place < LIKENESSES; place++)
        Py_VISIT(self->part[place]);
    for (Py_ssize_t place = 0; place < self->row_count; place++)
        Py_VISIT(self->rows[place].like);
    for (Py_ssize_t place = 0; place < self->times.count; place++)
        Py_VISIT(self->times.slots[place].like);
    Py_VISIT(self->times.marker_of);
    Py_VISIT(self->times.settle);
    Py_VISIT(self->times.fail);
    return 0;
}

static int repeating_clear(repeating_t *self)
{
    Py_CLEAR(self->scheduler);
    Py_CLEAR(self->batch);
    Py_CLEAR(self->demote);
    Py_CLEAR(self->tell_inputs);
    Py_CLEAR(self->tell_extended);
    Py_CLEAR(self->forced);
    Py_CLEAR(self->unset_in);
    Py_CLEAR(self->unset_name);
    self->in_hand = NULL;
    Py_CLEAR(self->progress);
    Py_CLEAR(self->cost_ns);
    Py_CLEAR(self->kept_type);
    Py_CLEAR(self->kept_value);
    Py_CLEAR(self->kept_traceback);
    forget_likeness(self);
    free_rows(self);
    free_times(self);
    return 0;
}

static void repeating_dealloc(repeating_t *self)
{
    PyObject_GC_UnTrack(self);
    repeating_clear(self);
    free_object((PyObject *)self);
}

static PyMethodDef repeating_methods[] = {
    {"arm", (PyCFunction)repeating_arm, METH_VARARGS, NULL},
    {"keep", (PyCFunction)repeating_keep, METH_O, NULL},
    {"kept", (PyCFunction)repeating_kept, METH_NOARGS, NULL},
    {"newest", (PyCFunction)repeating_newest, METH_NOARGS, NULL},
    {"forget_row", (PyCFunction)repeating_forget_row, METH_NOARGS, NULL},
    {"take_times", (PyCFunction)repeating_take_times, METH_VARARGS, NULL},
    {"drain", (PyCFunction)repeating_drain, METH_O, NULL},
    {"give_up", (PyCFunction)(void (*)(void))repeating_give_up, METH_VARARGS | METH_KEYWORDS, NULL},
    {"ask_forced", (PyCFunction)repeating_ask_forced, METH_VARARGS, NULL},
    {"launch", (PyCFunction)repeating_launch, METH_O, NULL},
    {"inputs", (PyCFunction)repeating_inputs, METH_O, NULL},
    {"resolve", (PyCFunction)repeating_resolve, METH_O, NULL},
    {"extend", (PyCFunction)repeating_extend, METH_O, NULL},
    {"barrier", (PyCFunction)repeating_barrier, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef repeating_members[] = {
    {"number", T_LONGLONG, offsetof(repeating_t, number), 0, NULL},
    {"due", T_LONGLONG, offsetof(repeating_t, due), READONLY, NULL},
    {"timed_every", T_LONGLONG, offsetof(repeating_t, times.every), READONLY, NULL},
    {"pending", T_PYSSIZET, offsetof(repeating_t, times.pending), READONLY, NULL},
    {"times_taken", T_BOOL, offsetof(repeating_t, times.on), READONLY, NULL},
    {"open", T_BOOL, offsetof(repeating_t, open), 0, NULL},
    {"repeats", T_BOOL, offsetof(repeating_t, repeats), 0, NULL},
    {"has_resolved", T_BOOL, offsetof(repeating_t, resolved), 0, NULL},
    {"has_extended", T_BOOL, offsetof(repeating_t, extended), 0, NULL},
    {"scheduler", T_OBJECT, offsetof(repeating_t, scheduler), 0, NULL},
    {"batch", T_OBJECT, offsetof(repeating_t, batch), 0, NULL},
    {"demote", T_OBJECT, offsetof(repeating_t, demote), 0, NULL},
    {"tell_inputs", T_OBJECT, offsetof(repeating_t, tell_inputs), 0, NULL},
    {"tell_extended", T_OBJECT, offsetof(repeating_t, tell_extended), 0, NULL},
    {"like", T_OBJECT, offsetof(repeating_t, like), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef repeating_properties[] = {
    {"progress", (getter)repeating_get_progress, (setter)repeating_set_progress, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot repeating_slots[] = {
    {Py_tp_doc, "The step in progress, and whether it is like the ones before."},
    {Py_tp_init, repeating_init},
    {Py_tp_methods, repeating_methods},
    {Py_tp_members, repeating_members},
    {Py_tp_getset, repeating_properties},
    {Py_tp_traverse, repeating_traverse},
    {Py_tp_clear, repeating_clear},
    {Py_tp_dealloc, repeating_dealloc},
    {0, NULL},
};

static PyType_Spec repeating_spec = {
    "sglang_fence.native._quick.Repeating",
    sizeof(repeating_t),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    repeating_slots,
};

#include "_quick_stepping.h"

#include "_quick_stepping_type.h"

/* Names, and the types that are told by their address, are those of one interpreter. */
static int is_main_interpreter(void)
{
    return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0;
}

static int quick_exec(PyObject *module)
{
    if (!is_main_interpreter()) {
        PyErr_SetString(PyExc_ImportError, "_quick is for the main interpreter");
        return -1;
    }
    for (int place = 0; place < NAMES; place++)
        if (name_of[place] == NULL && (name_of[place] = PyUnicode_InternFromString(names[place])) == NULL)
            return -1;
    PyObject *type = PyType_FromSpec(&repeating_spec);
    if (type == NULL)
        return -1;
    int status = PyModule_AddObjectRef(module, "Repeating", type);
    if (status == 0)
        status = PyModule_AddStringConstant(module, "SOURCE", SOURCE);
    if (status == 0)
        status = add_number_types(module);
    if (status == 0)
        status = add_histogram_type(module);
    if (status == 0)
        status = add_hook_type(module);
    if (status == 0)
        status = add_stepping_type(module, type);
    Py_DECREF(type);
    return status;
}

static PyModuleDef_Slot quick_slots[] = {{Py_mod_exec, quick_exec}, {0, NULL}};

static PyModuleDef quick_module = {
    PyModuleDef_HEAD_INIT, "_quick", "Steps that repeat the one before, counted at next to no cost.", 0, NULL,
    quick_slots,           NULL,     NULL,                                                              NULL,
};

PyMODINIT_FUNC PyInit__quick(void)
{
    return PyModuleDef_Init(&quick_module);
}
