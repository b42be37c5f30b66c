/* Attributes that are read in each step. Included by _quick.c once.
 *
 * Python looks for an attribute on the class and on all its bases first, and only then on the object. What it found there
 * it keeps in a cache that all other lookups go through as well: where another name has taken the place, a class with
 * many bases is searched anew each time, which takes longer than all else that is done here. So a class is asked once
 * whether it has the attribute. If it hasn't, the object's own dictionary is asked from then on, for as long as steps
 * are compared with this object. Another class is noticed; a class that gets the attribute meanwhile isn't.
 */

static const enum name asked_often[] = {N_RESULT_QUEUE, N_ENABLED, N_WORKER, N_MAILBOX, N_BACKEND};

/* Whether nothing but the object itself can have an attribute. */
static int is_its_own(repeating_t *self, PyTypeObject *type, enum name name)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, name_of[name]);
    if (found == NULL) {
        forgive(self);
        return 1;
    }
    Py_DECREF(found);
    return 0;
}

static void leave_home(home_t *home)
{
    PyObject *object = home->object, *dict = home->dict, *type = (PyObject *)home->type;
    memset(home, 0, sizeof *home);
    Py_XDECREF(object);
    Py_XDECREF(dict);
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
    home_t fresh = {Py_NewRef(object), NULL, (PyTypeObject *)Py_NewRef((PyObject *)type), 0};
    if (PyType_GetSlot(type, Py_tp_getattro) == (void *)PyObject_GenericGetAttr) {
        fresh.dict = PyObject_GenericGetDict(object, NULL);
        if (fresh.dict == NULL)
            forgive(self);
        for (size_t place = 0; fresh.dict != NULL && place < sizeof asked_often / sizeof *asked_often; place++)
            if (is_its_own(self, type, asked_often[place]))
                fresh.plain |= 1u << asked_often[place];
    }
    home_t before = *home;
    *home = fresh;
    leave_home(&before); /* last: that may run anything, and know another */
}

/* A new reference; NULL: it can't be had, and an exception says so. */
static PyObject *attribute_of(const home_t *home, PyObject *object, enum name name)
{
    if (is_home(home, object) && home->plain >> name & 1u) {
        PyObject *dict = Py_NewRef(home->dict), *found = Py_XNewRef(PyDict_GetItemWithError(dict, name_of[name]));
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
