/* The moments of a step, taken and read through the CUDA driver: one call from Python where there would be several.

   Python code that runs once a step runs from a cold cache, where a call costs 1 us or more; so what is called in a row
   is called in a row here. The driver's library is opened by name when a Driver is made, and its functions are declared
   below: no CUDA header is needed to build this, and no CUDA to load it. The interpreter's lock is kept: giving it up
   and taking it back would cost as much as a call.

   The types are described in _moments.pyi. */

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <dlfcn.h>

#ifndef SOURCE
#define SOURCE "" /* the build says from which source this was compiled */
#endif

typedef void *Handle; /* CUevent or CUstream */

typedef int (*RecordFunction)(Handle event, Handle stream);
typedef int (*WaitFunction)(Handle stream, Handle event, unsigned int flags);
typedef int (*ElapsedFunction)(float *ms, Handle start, Handle end);

enum { SUCCESS = 0, NOT_READY = 600 };       /* of CUresult */
enum { END = 2, RELEASED = 4, WAIT = 8 };    /* as in observe/timing.py */

static PyTypeObject *driver_type, *event_type;
static PyObject *handle_name, *raw_name, *cuda_event_name; /* interned */

static PyObject *refuse(const char *call, int status)
{
    return PyErr_Format(PyExc_RuntimeError, "%s failed with CUDA error %d", call, status);
}

/* Read a handle out of an int. False, with an exception set, where it is none. */
static int as_handle(PyObject *number, Handle *handle)
{
    *handle = PyLong_AsVoidPtr(number);
    return *handle != NULL || !PyErr_Occurred();
}

/* Read `handle` of a stream. */
static int handle_of(PyObject *stream, Handle *handle)
{
    PyObject *number = PyObject_GetAttr(stream, handle_name);
    if (number == NULL)
        return 0;
    int done = as_handle(number, handle);
    Py_DECREF(number);
    return done;
}

/* Read `raw.cuda_event` of an event of the device. */
static int handle_of_event(PyObject *event, Handle *handle)
{
    PyObject *raw = PyObject_GetAttr(event, raw_name);
    if (raw == NULL)
        return 0;
    PyObject *number = PyObject_GetAttr(raw, cuda_event_name);
    Py_DECREF(raw);
    if (number == NULL)
        return 0;
    int done = as_handle(number, handle);
    Py_DECREF(number);
    return done;
}

static PyObject *allocate(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

static void release(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc give_back = (freefunc)PyType_GetSlot(type, Py_tp_free);
    give_back(self);
    Py_DECREF(type);
}

/* ----------------------------------------------------------------------------------------------------------- Driver */

typedef struct {
    PyObject_HEAD
    void *library;
    RecordFunction record;
    WaitFunction wait;
    ElapsedFunction elapsed;
} Driver;

static PyObject *driver_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"library", NULL};
    const char *name = "libcuda.so.1";
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|s:Driver", names, &name))
        return NULL;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    void *record = dlsym(library, "cuEventRecord");
    void *wait = dlsym(library, "cuStreamWaitEvent");
    void *elapsed = dlsym(library, "cuEventElapsedTime_v2");
    if (elapsed == NULL)
        elapsed = dlsym(library, "cuEventElapsedTime");
    if (record == NULL || wait == NULL || elapsed == NULL) {
        dlclose(library);
        return PyErr_Format(PyExc_OSError, "%s lacks functions of the CUDA driver", name);
    }
    Driver *self = (Driver *)allocate(type);
    if (self == NULL) {
        dlclose(library);
        return NULL;
    }
    self->library = library;
    self->record = (RecordFunction)record;
    self->wait = (WaitFunction)wait;
    self->elapsed = (ElapsedFunction)elapsed;
    return (PyObject *)self;
}

static void driver_dealloc(PyObject *self)
{
    dlclose(((Driver *)self)->library);
    release(self);
}

static PyType_Slot driver_slots[] = {
    {Py_tp_doc, "Driver(library='libcuda.so.1')\n--\n\nThe driver's functions."},
    {Py_tp_new, driver_new},
    {Py_tp_dealloc, driver_dealloc},
    {0, NULL},
};

static PyType_Spec driver_spec = {
    "sglang_fence.native._moments.Driver", sizeof(Driver), 0, Py_TPFLAGS_DEFAULT, driver_slots,
};

/* ------------------------------------------------------------------------------------------------------------ Event */

typedef struct {
    PyObject_HEAD
    Driver *driver;
    Handle handle;
} Event;

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"driver", "handle", NULL};
    PyObject *driver, *number;
    Handle handle;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O:Event", names, driver_type, &driver, &number))
        return NULL;
    if (!as_handle(number, &handle))
        return NULL;
    Event *self = (Event *)allocate(type);
    if (self == NULL)
        return NULL;
    Py_INCREF(driver);
    self->driver = (Driver *)driver;
    self->handle = handle;
    return (PyObject *)self;
}

static void event_dealloc(PyObject *self)
{
    Py_XDECREF((PyObject *)((Event *)self)->driver);
    release(self);
}

static PyObject *event_handle(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(((Event *)self)->handle);
}

static PyObject *event_record(PyObject *self, PyObject *stream)
{
    Event *event = (Event *)self;
    Handle handle;
    if (!handle_of(stream, &handle))
        return NULL;
    int status = event->driver->record(event->handle, handle);
    if (status != SUCCESS)
        return refuse("cuEventRecord", status);
    Py_RETURN_NONE;
}

/* Read the us from one event to another. 1: they are there; 0: one of them isn't reached; -1: an exception is set. */
static int elapsed_us(const Driver *driver, Handle start, Handle end, double *us)
{
    float ms = 0.0f;
    int status = driver->elapsed(&ms, start, end);
    if (status == SUCCESS) {
        *us = (double)ms * 1e3;
        return 1;
    }
    if (status == NOT_READY)
        return 0;
    refuse("cuEventElapsedTime", status);
    return -1;
}

static PyObject *event_elapsed_us(PyObject *self, PyObject *end)
{
    double us = 0.0;
    if (!PyObject_TypeCheck(end, event_type))
        return PyErr_Format(PyExc_TypeError, "elapsed_us() takes an Event");
    int known = elapsed_us(((Event *)self)->driver, ((Event *)self)->handle, ((Event *)end)->handle, &us);
    if (known < 0)
        return NULL;
    if (known == 0)
        Py_RETURN_NONE;
    return PyFloat_FromDouble(us);
}

static PyMethodDef event_methods[] = {
    {"record", event_record, METH_O, "record($self, stream, /)\n--\n\nBind to the work enqueued on the stream so far."},
    {"elapsed_us", event_elapsed_us, METH_O,
     "elapsed_us($self, end_event, /)\n--\n\nReturn the us to another event; None while one of the two isn't reached."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef event_attributes[] = {
    {"handle", event_handle, NULL, "The driver's.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot event_slots[] = {
    {Py_tp_doc, "Event(driver, handle)\n--\n\nA timing event that somebody else made and keeps."},
    {Py_tp_new, event_new},
    {Py_tp_dealloc, event_dealloc},
    {Py_tp_methods, event_methods},
    {Py_tp_getset, event_attributes},
    {0, NULL},
};

static PyType_Spec event_spec = {
    "sglang_fence.native._moments.Event", sizeof(Event), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, event_slots,
};

/* ---------------------------------------------------------------------------------------------------------- Moments */

typedef struct {
    PyObject_HEAD
    Driver *driver;
    Event *end, *released, *wait;
} Moments;

static PyObject *moments_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"end", "released", "wait", NULL};
    PyObject *end, *released, *wait;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!O!:Moments", names, event_type, &end, event_type, &released,
                                     event_type, &wait))
        return NULL;
    Moments *self = (Moments *)allocate(type);
    if (self == NULL)
        return NULL;
    Py_INCREF(end);
    Py_INCREF(released);
    Py_INCREF(wait);
    self->end = (Event *)end;
    self->released = (Event *)released;
    self->wait = (Event *)wait;
    Py_INCREF((PyObject *)self->end->driver);
    self->driver = self->end->driver;
    return (PyObject *)self;
}

static void moments_dealloc(PyObject *self)
{
    Moments *moments = (Moments *)self;
    Py_XDECREF((PyObject *)moments->end);
    Py_XDECREF((PyObject *)moments->released);
    Py_XDECREF((PyObject *)moments->wait);
    Py_XDECREF((PyObject *)moments->driver);
    release(self);
}

static PyObject *moments_take(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Moments *moments = (Moments *)self;
    const Driver *driver = moments->driver;
    Handle forward = NULL, observer, event, schedule;
    if (count != 4)
        return PyErr_Format(PyExc_TypeError, "take() takes forward, observer, event, schedule");
    int ends = args[0] != Py_None;
    /* All that can be wrong with the arguments comes first: then nothing of the step is on the device yet. */
    if ((ends && !handle_of(args[0], &forward)) || !handle_of(args[1], &observer) || !handle_of_event(args[2], &event)
        || !handle_of(args[3], &schedule))
        return NULL;
    int status;
    if (ends && (status = driver->record(moments->end->handle, forward)) != SUCCESS)
        return refuse("cuEventRecord", status);
    if ((status = driver->wait(observer, event, 0)) != SUCCESS)
        return refuse("cuStreamWaitEvent", status);
    if ((status = driver->record(moments->released->handle, observer)) != SUCCESS)
        return refuse("cuEventRecord", status);
    if ((status = driver->record(moments->wait->handle, schedule)) != SUCCESS)
        return refuse("cuEventRecord", status);
    return PyLong_FromLong((ends ? END : 0) | RELEASED | WAIT);
}

static PyObject *moments_read(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    Moments *moments = (Moments *)self;
    const Driver *driver = moments->driver;
    double slack = 0.0, wait = 0.0;
    int known = elapsed_us(driver, moments->released->handle, moments->end->handle, &slack);
    if (known > 0)
        known = elapsed_us(driver, moments->wait->handle, moments->released->handle, &wait);
    if (known < 0)
        return NULL;
    if (known == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(dd)", slack, wait);
}

static PyMethodDef moments_methods[] = {
    {"take", (PyCFunction)(void (*)(void))moments_take, METH_FASTCALL,
     "take($self, forward, observer, event, schedule, /)\n--\n\nRecord what is timed around a fence; say what was."},
    {"read", moments_read, METH_NOARGS,
     "read($self, /)\n--\n\nReturn the us from R to F and from A to R; None while one of them isn't reached."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot moments_slots[] = {
    {Py_tp_doc, "Moments(end, released, wait)\n--\n\nF, R and A of a step."},
    {Py_tp_new, moments_new},
    {Py_tp_dealloc, moments_dealloc},
    {Py_tp_methods, moments_methods},
    {0, NULL},
};

static PyType_Spec moments_spec = {
    "sglang_fence.native._moments.Moments", sizeof(Moments), 0, Py_TPFLAGS_DEFAULT, moments_slots,
};

/* ----------------------------------------------------------------------------------------------------------- module */

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_moments", "The moments of a step, through the CUDA driver.", -1, NULL, NULL, NULL, NULL,
    NULL,
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(spec);
    if (type == NULL || PyModule_AddType(module, type) < 0) {
        Py_XDECREF((PyObject *)type);
        return NULL;
    }
    return type; /* kept for good: these modules are never unloaded */
}

PyMODINIT_FUNC PyInit__moments(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    handle_name = PyUnicode_InternFromString("handle");
    raw_name = PyUnicode_InternFromString("raw");
    cuda_event_name = PyUnicode_InternFromString("cuda_event");
    driver_type = add_type(module, &driver_spec);
    event_type = add_type(module, &event_spec);
    PyTypeObject *moments_type = add_type(module, &moments_spec);
    if (handle_name == NULL || raw_name == NULL || cuda_event_name == NULL || driver_type == NULL || event_type == NULL
        || moments_type == NULL || PyModule_AddStringConstant(module, "SOURCE", SOURCE) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
