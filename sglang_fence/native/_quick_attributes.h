/* Attributes that are read in each step. Included by _quick.c once.
 *
 * Python looks for an attribute on the class and on all its bases first, and only then on the object. What it found there
 * it keeps in a cache that all other lookups go through as well: where another name has taken the place, a class with
 * many bases is searched anew each time, which takes longer than all else that is done here. So a class is asked once
 * whether it has the attribute. If it hasn't, the object's own dictionary is asked from then on, for as long as steps
 * are compared with this object. Another class is noticed, and another dictionary; a class that gets the attribute
 * meanwhile isn't.
 */

static const enum name asked_often[] = {N_RESULT_QUEUE, N_ENABLED, N_WORKER, N_MAILBOX, N_BACKEND};

/* Whether a class's own dictionary has it; -1: that can't be had. */
static int has_own(PyObject *type, PyObject *name)
{
    PyObject *dict = PyObject_GetAttrString(type, "__dict__");
    int has = dict == NULL ? -1 : PySequence_Contains(dict, name);
    Py_XDECREF(dict);
    return has;
}

/* Whether nothing but the object itself can have an attribute. The classes aren't asked for it: what they have may say
 * there is nothing, or do something, where it isn't asked by an object. */
static int is_its_own(repeating_t *self, PyTypeObject *type, enum name name)
{
    PyObject *bases = PyObject_GetAttrString((PyObject *)type, "__mro__");
    int has = bases != NULL && PyTuple_Check(bases) ? 0 : -1;
    for (Py_ssize_t place = 0; has == 0 && place < PyTuple_Size(bases); place++)
        has = has_own(PyTuple_GetItem(bases, place), name_of[name]);
    Py_XDECREF(bases);
    forgive(self);
    return has == 0;
}

static void leave_home(home_t *home)
{
    PyObject *object = home->object, *type = (PyObject *)home->type;
    memset(home, 0, sizeof *home);
    Py_XDECREF(object);
    Py_XDECREF(type);
}

static int is_home(const home_t *home, PyObject *object)
{
    return home->object == object && home->type == Py_TYPE(object);
}

/* Know an object, whose attributes are read from now on. Leaves no exception set. */
static void come_home(repeating_t *self, home_t *home, PyObject *object)
{
    if (is_home(home, object))
        return;
    PyTypeObject *type = Py_TYPE(object);
    home_t fresh = {Py_NewRef(object), (PyTypeObject *)Py_NewRef((PyObject *)type), 0};
    if (PyType_GetSlot(type, Py_tp_getattro) == (void *)PyObject_GenericGetAttr) {
        PyObject *dict = PyObject_GenericGetDict(object, NULL);
        if (dict == NULL)
            forgive(self);
        for (size_t place = 0; dict != NULL && place < sizeof asked_often / sizeof *asked_often; place++)
            if (is_its_own(self, type, asked_often[place]))
                fresh.plain |= 1u << asked_often[place];
        Py_XDECREF(dict);
    }
    home_t before = *home;
    *home = fresh;
    leave_home(&before); /* last: that may run anything, and know another */
}

/* A new reference; NULL: it can't be had, and an exception says so. */
static PyObject *attribute_of(const home_t *home, PyObject *object, enum name name)
{
    if (is_home(home, object) && home->plain >> name & 1u) {
        PyObject *dict = PyObject_GenericGetDict(object, NULL); /* it may have been given another meanwhile */
        if (dict == NULL)
            return NULL;
        PyObject *found = Py_XNewRef(PyDict_GetItemWithError(dict, name_of[name]));
        Py_DECREF(dict);
        if (found != NULL || PyErr_Occurred())
            return found;
    }
    return PyObject_GetAttr(object, name_of[name]);
}

/* Whether an object, which is given away, is the one that is wanted; -1: there is none. */
static int is_wanted(PyObject *found, PyObject *wanted)
{
    int same = found == NULL ? -1 : found == wanted;
    Py_XDECREF(found);
    return same;
}

/* Whether an attribute is this very object; -1: it can't be had. */
static int attribute_is(PyObject *object, enum name name, PyObject *wanted)
{
    return is_wanted(PyObject_GetAttr(object, name_of[name]), wanted);
}
