/* Device moments of repeated steps, by the driver's own calls. Included by _quick.c once.
 *
 * What the general hooks take of a fine step that is timed in turn, and as they do: F, the end of the forward; R, the
 * marker's moment, copied by the observer's stream; A, the schedule stream before its wait. Slack is F less R, and the
 * wait R less A: both are differences of two events, read once the device is past them. Nothing here blocks.
 */

#include <dlfcn.h>

enum { CUDA_NOT_READY = 600 };

#define BATCH 8        /* steps that may wait before they are read in one go, as in sglang_fence/observe/reading.py */
#define DRAIN_LIMIT 12 /* what is read in one go at the most */

static void *handle_from(PyObject *number)
{
    return PyLong_AsVoidPtr(number);
}

static int load_driver(times_t *times, const char *library)
{
    times->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (times->library == NULL) {
        PyErr_Format(PyExc_OSError, "%s can't be loaded", library);
        return -1;
    }
    *(void **)&times->record = dlsym(times->library, "cuEventRecord");
    *(void **)&times->wait = dlsym(times->library, "cuStreamWaitEvent");
    *(void **)&times->elapsed = dlsym(times->library, "cuEventElapsedTime_v2");
    if (times->elapsed == NULL)
        *(void **)&times->elapsed = dlsym(times->library, "cuEventElapsedTime");
    *(void **)&times->capturing = dlsym(times->library, "cuStreamIsCapturing");
    if (times->record && times->wait && times->elapsed && times->capturing)
        return 0;
    PyErr_Format(PyExc_OSError, "%s lacks a function that device times are taken with", library);
    return -1;
}

static int read_handles(void **places, Py_ssize_t count, PyObject *numbers)
{
    if (!PyTuple_Check(numbers) || PyTuple_Size(numbers) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %zd handles is wanted", count);
        return -1;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        places[place] = handle_from(PyTuple_GetItem(numbers, place));
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* Give up what nobody can reach any more. */
static void discard_times(times_t *times)
{
    for (Py_ssize_t place = 0; place < times->count; place++)
        Py_XDECREF(times->slots[place].like);
    PyMem_Free(times->slots);
    Py_XDECREF(times->marker_of);
    Py_XDECREF(times->settle);
    Py_XDECREF(times->fail);
    if (times->library != NULL)
        dlclose(times->library);
}

static void free_times(repeating_t *self)
{
    times_t before = self->times;
    memset(&self->times, 0, sizeof self->times);
    discard_times(&before);
}

/* take_times(streams, events, offsets_us, settle, fail, library, in_place) */
static PyObject *repeating_take_times(repeating_t *self, PyObject *args)
{
    PyObject *streams, *events, *settle, *fail;
    const char *library;
    double copy_us, busy_us;
    int in_place = 0;
    if (!PyArg_ParseTuple(args, "OO!(dd)OOs|p", &streams, &PyTuple_Type, &events, &copy_us, &busy_us, &settle, &fail,
                          &library, &in_place))
        return NULL;
    times_t fresh, before, *times = &fresh;
    memset(times, 0, sizeof *times);
    void *handles[3];
    Py_ssize_t count = PyTuple_Size(events);
    if (load_driver(times, library) < 0 || read_handles(handles, 3, streams) < 0)
        goto failed;
    times->forward = handles[0], times->schedule = handles[1], times->observer = handles[2];
    times->slots = PyMem_Calloc(count ? count : 1, sizeof *times->slots);
    if (times->slots == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    times->count = count;
    for (Py_ssize_t place = 0; place < count; place++) {
        if (read_handles(handles, 3, PyTuple_GetItem(events, place)) < 0)
            goto failed;
        slot_t *slot = &times->slots[place];
        slot->end = handles[0], slot->released = handles[1], slot->wait = handles[2];
    }
    times->copy_us = copy_us, times->busy_us = busy_us;
    times->settle = Py_NewRef(settle);
    times->fail = Py_NewRef(fail);
    times->on = count > 0;
    times->in_place = (char)in_place;
    before = self->times;
    times->given_up = before.given_up + before.pending;
    self->times = fresh;
    discard_times(&before);
    Py_RETURN_NONE;
failed:
    discard_times(times);
    return NULL;
}

/* Take no more times, and say why: by the name of a call and the driver's number, or by the exception that is set. */
static void times_fail(repeating_t *self, const char *call, int status)
{
    forgive(self);
    self->times.every = self->times.on = 0;
    self->times.given_up += self->times.pending;
    self->times.pending = 0;
    self->due = 0; /* the next step goes the general way; the open one is still to be counted */
    PyObject *fail = Py_XNewRef(self->times.fail);
    PyObject *result = fail == NULL ? NULL : PyObject_CallFunction(fail, "si", call, status);
    if (result == NULL)
        forgive(self);
    Py_XDECREF(result);
    Py_XDECREF(fail);
}

/* Have a place for one more step: where the device is far behind, the oldest goes without its times. */
static void make_room(times_t *times)
{
    if (times->pending < times->count)
        return;
    times->given_up++;
    times->first = (times->first + 1) % times->count;
    times->pending--;
}

/* Where the events of a pending step are, the oldest being 0; there is one slot at least. */
static slot_t *slot_of(times_t *times, Py_ssize_t pending)
{
    return &times->slots[(times->first + pending) % times->count];
}

/* Where the events of the next step are, once there is room. */
static slot_t *next_slot(times_t *times)
{
    return slot_of(times, times->pending);
}

/* Whether a step is timed in turn. */
static int is_timed(const times_t *times, number_t number)
{
    return times->every && number % times->every == 0 && times->count;
}

/* The driver's handle of a published event, which it has for as long as it lives; NULL: it has none. */
static void *handle_of_marker(repeating_t *self, PyObject *event)
{
    if (event == self->times.marker_of)
        return self->times.marker;
    PyObject *number = PyObject_GetAttr(event, name_of[N_CUDA_EVENT]);
    void *marker = number == NULL ? NULL : handle_from(number);
    Py_XDECREF(number);
    if (marker != NULL) {
        self->times.marker = marker;
        put(&self->times.marker_of, Py_NewRef(event));
    }
    return marker;
}

/* Record the moments of the open step, whose schedule stream is about to wait for `event`; and its end, if asked to. */
static void record_times(repeating_t *self, PyObject *like, PyObject *event, int with_end)
{
    times_t *times = &self->times;
    void *marker = handle_of_marker(self, event);
    if (marker == NULL) {
        times_fail(self, "cuda_event", 0);
        return;
    }
    if (!times->on) /* no more: that was found out just now */
        return;
    make_room(times);
    slot_t *slot = next_slot(times);
    const char *call = "cuEventRecord";
    int status = with_end ? times->record(slot->end, times->forward) : 0;
    if (!status) {
        call = "cuStreamWaitEvent";
        status = times->wait(times->observer, marker, 0);
    }
    if (!status) {
        call = "cuEventRecord";
        status = times->record(slot->released, times->observer);
    }
    if (!status)
        status = times->record(slot->wait, times->schedule);
    if (status) {
        times_fail(self, call, status);
        return;
    }
    PyObject *before = slot->like;
    slot->like = Py_NewRef(like);
    slot->step = self->number;
    times->pending++;
    Py_XDECREF(before); /* last, as in write_row() */
}

/* Add what was read up in place, if it is as most are; 0: it isn't. */
static int add_in_place(repeating_t *self, const slot_t *slot, double slack_us, double wait_us)
{
    if (!self->times.in_place || slot->like != self->like || self->slack == NULL || self->wait == NULL ||
        slack_us < 0.0)
        return 0;
    add_duration(self->slack, slack_us);
    add_duration(self->wait, wait_us > 0.0 ? wait_us : 0.0);
    return 1;
}

/* Read the oldest pending step, and say which that was. 1: it is read, and added up, or put into the list `found`, which
 * is made for the first; 0: the device isn't past it; -1: the driver refused, which is told, or there is no memory. */
static int read_oldest(repeating_t *self, PyObject **found, number_t *newest)
{
    times_t *times = &self->times;
    slot_t *slot = slot_of(times, 0);
    float slack_ms, wait_ms;
    int status = times->elapsed(&slack_ms, slot->released, slot->end);
    if (!status)
        status = times->elapsed(&wait_ms, slot->wait, slot->released);
    if (status == CUDA_NOT_READY)
        return 0;
    if (status) {
        times_fail(self, "cuEventElapsedTime", status);
        return -1;
    }
    times->first = (times->first + 1) % times->count;
    times->pending--;
    double late_us = wait_ms > 0.0f ? times->copy_us : times->busy_us;
    double slack_us = slack_ms * 1e3 + late_us, wait_us = wait_ms * 1e3 - late_us;
    *newest = slot->step;
    if (add_in_place(self, slot, slack_us, wait_us))
        return 1;
    PyObject *row = Py_BuildValue("(NLdd)", Py_NewRef(slot->like), slot->step, slack_us, wait_us);
    if (*found == NULL)
        *found = PyList_New(0);
    int added = row == NULL || *found == NULL ? -1 : PyList_Append(*found, row);
    Py_XDECREF(row);
    times->given_up += added < 0;
    return added < 0 ? -1 : 1;
}

/* Tell which step was read last, with what wasn't added up in place; NULL: all was. */
static void hand_on(repeating_t *self, PyObject *found, number_t newest)
{
    if (found == NULL && self->in_hand != NULL) {
        self->in_hand->timed = newest;
        return;
    }
    PyObject *settle = Py_XNewRef(self->times.settle);
    PyObject *rows = found == NULL ? PyList_New(0) : Py_NewRef(found);
    PyObject *result = settle == NULL || rows == NULL ? NULL : PyObject_CallFunction(settle, "OL", rows, newest);
    if (settle != NULL && result == NULL)
        times_fail(self, "settle", 0);
    Py_XDECREF(result);
    Py_XDECREF(rows);
    Py_XDECREF(settle);
}

/* Read up to `limit` steps that the device is past, and hand them on in one go. Leaves no exception set. */
static Py_ssize_t drain_times(repeating_t *self, Py_ssize_t limit)
{
    times_t *times = &self->times;
    int schedule = 1, forward = 1; /* whether it captures; what can't be known counts as that it does */
    if (!times->pending || times->capturing(times->schedule, &schedule) || schedule ||
        times->capturing(times->forward, &forward) || forward)
        return 0;
    Py_ssize_t count = 0;
    number_t newest = NO_STEP;
    PyObject *found = NULL;
    while (times->pending && limit-- > 0 && read_oldest(self, &found, &newest) > 0)
        count++;
    forgive(self);
    if (count > 0)
        hand_on(self, found, newest);
    Py_XDECREF(found);
    return count;
}

static PyObject *repeating_drain(repeating_t *self, PyObject *limit)
{
    Py_ssize_t most = PyLong_AsSsize_t(limit);
    if (most == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t count = drain_times(self, most);
    return deliver(self, PyLong_FromSsize_t(count));
}

/* Forget what is pending; return how many steps went without their times since the last call. */
static PyObject *repeating_give_up(repeating_t *self, PyObject *args, PyObject *kwargs)
{
    static char *arguments[] = {"pending", NULL};
    times_t *times = &self->times;
    int forget;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$p", arguments, &forget))
        return NULL;
    if (forget) {
        times->given_up += times->pending;
        times->pending = 0;
    }
    Py_ssize_t given_up = times->given_up;
    times->given_up = 0;
    settle_costs(self);
    return deliver(self, PyLong_FromSsize_t(given_up));
}
