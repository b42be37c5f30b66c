/* What the parts of _quick share: the step in progress, and what it is compared with. */

#ifndef SGLANG_FENCE_QUICK_H
#define SGLANG_FENCE_QUICK_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#define COST_SAMPLE 7 /* as in sglang_fence/sglang_plugin/repeating_metered.py */
#define NO_STEP (-1)
#define NOT_YET (-1)

typedef long long number_t;

/* Whose cost is measured; as `cost_names` has them. */
enum hook {
    H_RUN_BATCH, H_RESOLVE, H_EXTEND, H_BARRIER, H_STEP_STARTED, H_READS_END, H_AFTER_WAIT, HOOKS
};

enum progress { LAUNCHED, RESOLVED, EXTENDED, FENCED };

/* Durations between powers of two, and their sum. */
enum { MOST_BUCKETS = 64 };

typedef struct {
    PyObject_HEAD
    double sum_us;
    Py_ssize_t buckets;                /* finite ones */
    number_t counts[MOST_BUCKETS + 1]; /* the last in use is for what is longer than all of them */
} histogram_t;

/* What the flight recorder's progress has for a base. */
typedef struct {
    PyObject_HEAD
    number_t in_hand, timed;
} in_hand_t;

/* A step as the flight recorder keeps it. */
typedef struct {
    number_t step, batch_size, tokens, started_ns, entered_ns, barrier_ns;
    number_t bound; /* the publication that its fence waits for */
    void *event;    /* only told apart, never followed */
    PyObject *like; /* owned */
    enum progress progress;
} row_t;

/* The events of one step, and which it was. */
typedef struct {
    void *end, *released, *wait;
    PyObject *like; /* owned */
    number_t step;
} slot_t;

/* What device moments are taken with; all zero: none are. */
typedef struct {
    void *library;
    char on;       /* whether they are taken: there are events, and no call has failed */
    char in_place; /* whether nobody but the cell hears of what was read */
    int (*record)(void *event, void *stream);
    int (*wait)(void *stream, void *event, unsigned flags);
    int (*elapsed)(float *ms, void *start, void *end);
    int (*capturing)(void *stream, int *status);
    void *forward, *schedule, *observer;
    slot_t *slots; /* a ring: `pending` of them, from `first` on */
    Py_ssize_t count, first, pending, given_up;
    double copy_us, busy_us;
    PyObject *settle, *fail; /* owned */
    PyObject *marker_of;     /* whose handle `marker` is: a graph publishes one event each time; owned */
    void *marker;
    number_t every;          /* of each so-many-th step; 0: of none */
} times_t;

/* The parts of a Likeness, in the order of their names in `likeness_names`. */
enum likeness {
    OWNER, BACKEND, BATCH_MODE, GRAPH, GRAPH_BACKEND, GRAPH_MODE, RESULT, CELL, ROUTE, EXTENDER, EXTEND_BACKEND, EXTEND_MODE,
    SLACK, WAIT, /* of the cell: where durations are added up */
    LIKENESSES
};

/* An object that is asked in each step; see _quick_attributes.h. */
typedef struct {
    PyObject *object;   /* owned */
    PyTypeObject *type; /* owned: of the object, then */
    unsigned plain;     /* which attributes are read from its dict, by their names' bits; the others in the usual way */
} home_t;

typedef struct {
    PyObject_HEAD
    number_t number, due, clock_ns, cost_sample;
    number_t spent_ns[HOOKS]; /* what isn't in `cost_ns` yet */
    int measured;             /* how often since */
    char open, repeats, resolved, extended, timed, metered, launching;
    char extends, sole, coarse; /* of like: see Likeness */
    PyObject *scheduler, *batch, *demote, *tell_inputs, *tell_extended, *forced, *unset_in, *unset_name, *progress, *cost_ns;
    PyObject *like, *part[LIKENESSES];                 /* owned; there together, or NULL together */
    home_t scheduler_home, owner_home;
    number_t *cell_steps, *route_steps;                /* in those two parts, where they are of a type made here */
    histogram_t *slack, *wait;                         /* of the cell, likewise */
    in_hand_t *in_hand;                                /* progress, where that is of a type made here */
    PyObject *kept_type, *kept_value, *kept_traceback; /* an exception that is to be raised yet; owned */
    row_t *rows;
    Py_ssize_t row_count;
    row_t *row;
    times_t times;
} repeating_t;

/* Names of attributes, interned once. */
enum name {
    N_RESULT_QUEUE, N_FORWARD_MODE, N_MAILBOX, N_REQS, N_EXTEND_TOKENS, N_ENABLED, N_WORKER, N_LAST_RUNNER, N_STEPS,
    N_IN_HAND, N_CUDA_EVENT, N_TIMING, N_RECORD, N_PENDING, N_RAW, N_KIND, N_PUBLISHED, N_LAST_FENCED,
    N_MODEL_RUNNER, N_EXTEND_BACKEND, N_BACKEND, NAMES
};
extern PyObject *name_of[NAMES];

/* All that Python code can reach may change whenever Python code runs: attributes that are properties, calls, and the
 * end of objects, which any Py_DECREF may bring about. Whoever goes on with an object behind that has a reference of its
 * own, whoever goes on with a number or a pointer looks anew, and what is given up is let go of last. */

/* Put a new reference in the place of one. */
static inline void put(PyObject **place, PyObject *owned)
{
    PyObject *before = *place;
    *place = owned;
    Py_XDECREF(before);
}

static inline number_t now_ns(void)
{
    struct timespec now; /* the clock of time.perf_counter_ns */
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (number_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether the step that is launched with these arguments may be a repetition; then it is begun. */
int step_begins(repeating_t *self, PyObject *args);
/* The first work of its forward is enqueued next: tell whoever asked to be told. */
void step_launches(repeating_t *self);
/* Whether what a graph resolved is as it was. */
int step_resolves(repeating_t *self, PyObject *result, PyObject *args);
/* Whether a draft-extend that is about to run may be as the ones before. */
int step_extends(repeating_t *self, PyObject *args);
/* It has run: where it came out otherwise, or the step isn't a repetition by now, that is told. */
void step_extended(repeating_t *self, PyObject *args);
/* Whether the barrier is about to come out as it did; then the step is counted. */
int step_ends(repeating_t *self, PyObject *args);
/* The wait is enqueued. */
void step_over(repeating_t *self);
/* Let the general hooks begin the open step again. */
void step_demote(repeating_t *self);
/* Compare with nothing any more. */
void forget_likeness(repeating_t *self);

/* Make the hook of one of these kinds in front of `general`, or a call that only returns `general`. */
enum hook_kind { LAUNCH, INPUTS, RESOLVE, EXTEND, BARRIER, GIVEN };
PyObject *make_hook(enum hook_kind kind, repeating_t *repeating, PyObject *general);
int add_hook_type(PyObject *module);
/* The end of an object of a type made here, once what it holds is cleared. */
void free_object(PyObject *self);

#endif
