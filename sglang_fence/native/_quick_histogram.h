/* Histogram: how many durations fell between powers of two, and their sum. Included by _quick.c once.
 *
 * The same as the class of that name in sglang_fence/observe/numbers.py.
 */

#include <math.h>

static PyTypeObject *histogram_type;

static int histogram_init(histogram_t *self, PyObject *args, PyObject *kwargs)
{
    static char *arguments[] = {"buckets", NULL};
    Py_ssize_t buckets;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n", arguments, &buckets))
        return -1;
    if (buckets < 1 || buckets > MOST_BUCKETS) {
        PyErr_Format(PyExc_ValueError, "a histogram has 1 to %d buckets", (int)MOST_BUCKETS);
        return -1;
    }
    self->buckets = buckets;
    self->sum_us = 0.0;
    memset(self->counts, 0, sizeof self->counts);
    return 0;
}

/* The first bucket whose upper bound, 2^k, isn't below `us`. */
static Py_ssize_t bucket_of(const histogram_t *self, double us)
{
    int exponent;
    if (!(us > 1.0))
        return 0;
    if (isinf(us))
        return self->buckets;
    double fraction = frexp(us, &exponent); /* us = fraction * 2^exponent, and 0.5 <= fraction < 1 */
    Py_ssize_t bucket = fraction == 0.5 ? exponent - 1 : exponent;
    return bucket < self->buckets ? bucket : self->buckets;
}

static void add_duration(histogram_t *self, double us)
{
    self->counts[bucket_of(self, us)]++;
    self->sum_us += us;
}

static PyObject *histogram_add(histogram_t *self, PyObject *duration)
{
    double us = PyFloat_AsDouble(duration);
    if (us == -1.0 && PyErr_Occurred())
        return NULL;
    add_duration(self, us);
    Py_RETURN_NONE;
}

static PyObject *histogram_counts(histogram_t *self, void *ignored)
{
    (void)ignored;
    Py_ssize_t buckets = self->buckets; /* to make a list may collect garbage, which may run anything */
    PyObject *found = PyList_New(buckets + 1);
    for (Py_ssize_t bucket = 0; found != NULL && bucket <= buckets; bucket++) {
        PyObject *count = PyLong_FromLongLong(self->counts[bucket]);
        if (count == NULL || PyList_SetItem(found, bucket, count) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *histogram_count(histogram_t *self, void *ignored)
{
    (void)ignored;
    number_t sum = 0;
    for (Py_ssize_t bucket = 0; bucket <= self->buckets; bucket++)
        sum += self->counts[bucket];
    return PyLong_FromLongLong(sum);
}

static PyMethodDef histogram_methods[] = {
    {"add", (PyCFunction)histogram_add, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef histogram_members[] = {
    {"sum_us", T_DOUBLE, offsetof(histogram_t, sum_us), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef histogram_properties[] = {
    {"counts", (getter)histogram_counts, NULL, NULL, NULL},
    {"count", (getter)histogram_count, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot histogram_slots[] = {
    {Py_tp_doc, "Durations by powers of two."},
    {Py_tp_init, histogram_init},
    {Py_tp_methods, histogram_methods},
    {Py_tp_members, histogram_members},
    {Py_tp_getset, histogram_properties},
    {0, NULL},
};

static PyType_Spec histogram_spec = {
    "sglang_fence.native._quick.Histogram", sizeof(histogram_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    histogram_slots,
};

static int add_histogram_type(PyObject *module)
{
    return add_type(module, "Histogram", &histogram_spec, &histogram_type);
}

/* An object as a histogram; NULL: it is none, or was never initialised. */
static histogram_t *as_histogram(PyObject *object)
{
    if (object == NULL || !PyObject_TypeCheck(object, histogram_type))
        return NULL;
    histogram_t *found = (histogram_t *)object;
    return found->buckets ? found : NULL;
}
