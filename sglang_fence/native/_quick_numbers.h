/* Numbers that Python reads as attributes, and that are written here in place. Included by _quick.c once.
 *
 * To set an attribute by its name, and make a number for it, touches a dozen cache lines of the interpreter's, each of
 * which a step that comes every few milliseconds finds cold. Whoever is to be counted in has one of these for a base.
 */

typedef struct {
    PyObject_HEAD
    number_t value;
} numbered_t;

static PyTypeObject *counted_type, *in_hand_type;

static PyMemberDef counted_members[] = {
    {"steps", T_LONGLONG, offsetof(numbered_t, value), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef in_hand_members[] = {
    {"in_hand", T_LONGLONG, offsetof(in_hand_t, in_hand), 0, NULL},
    {"timed", T_LONGLONG, offsetof(in_hand_t, timed), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot counted_slots[] = {
    {Py_tp_doc, "Where steps are counted."},
    {Py_tp_members, counted_members},
    {0, NULL},
};

static PyType_Slot in_hand_slots[] = {
    {Py_tp_doc, "The newest step whose results the host has, and the newest whose timing events were read."},
    {Py_tp_members, in_hand_members},
    {0, NULL},
};

static PyType_Spec counted_spec = {
    "sglang_fence.native._quick.Counted", sizeof(numbered_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    counted_slots,
};

static PyType_Spec in_hand_spec = {
    "sglang_fence.native._quick.InHand", sizeof(in_hand_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    in_hand_slots,
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **place)
{
    if (*place == NULL && (*place = (PyTypeObject *)PyType_FromSpec(spec)) == NULL)
        return -1;
    return PyModule_AddObjectRef(module, name, (PyObject *)*place);
}

static int add_number_types(PyObject *module)
{
    int status = add_type(module, "Counted", &counted_spec, &counted_type);
    return status < 0 ? status : add_type(module, "InHand", &in_hand_spec, &in_hand_type);
}

/* The number in an object of that type, or one derived from it, which mustn't have another attribute of that name;
 * NULL: it is another. It is there for as long as the object: whoever keeps this keeps that. */
static number_t *number_in(PyObject *object, PyTypeObject *type)
{
    return object != NULL && PyObject_TypeCheck(object, type) ? &((numbered_t *)object)->value : NULL;
}
