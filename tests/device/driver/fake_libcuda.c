/* A CUDA driver for tests: it keeps a log of the calls, and answers by what it was told. Handles are plain numbers. */

#include <stddef.h>
#include <string.h>

enum { CALLS = 4096, EVENTS = 4096 };

typedef struct {
    char name;              /* r: record, w: wait, e: elapsed */
    unsigned long first, second;
} Call;

static Call calls[CALLS];
static int count;
static void *capturing;
static float moments_ms[EVENTS];
static int reached[EVENTS];
static int status_of[128];  /* by the call's letter: what it answers; 0: it does what it is for */
static int good_calls[128]; /* how often it still does, before that */

static int note(char name, void *first, void *second)
{
    if (count < CALLS)
        calls[count++] = (Call){name, (unsigned long)first, (unsigned long)second};
    if (status_of[(int)name] == 0)
        return 0;
    if (good_calls[(int)name] > 0) {
        good_calls[(int)name]--;
        return 0;
    }
    return status_of[(int)name];
}

int cuEventRecord(void *event, void *stream)
{
    return note('r', event, stream);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
    int status = note('w', stream, event);
    return flags == 0 ? status : 1;
}

int cuEventElapsedTime(float *ms, void *start, void *end)
{
    unsigned long from = (unsigned long)start, to = (unsigned long)end;
    int status = note('e', start, end);
    if (status != 0)
        return status;
    if (!reached[from % EVENTS] || !reached[to % EVENTS])
        return 600;
    *ms = moments_ms[to % EVENTS] - moments_ms[from % EVENTS];
    return 0;
}

/* What a test says and asks. */

void fake_reset(void)
{
    count = 0;
    capturing = NULL;
    memset(reached, 0, sizeof reached);
    memset(status_of, 0, sizeof status_of);
    memset(good_calls, 0, sizeof good_calls);
}

void fake_reach(unsigned long event, float ms)
{
    moments_ms[event % EVENTS] = ms;
    reached[event % EVENTS] = 1;
}

void fake_fail(char name, int status, int after)
{
    status_of[(int)name] = status;
    good_calls[(int)name] = after;
}

int fake_count(void)
{
    return count;
}

char fake_call(int place, unsigned long *first, unsigned long *second)
{
    *first = calls[place].first;
    *second = calls[place].second;
    return calls[place].name;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    *status = capturing != NULL && stream == capturing;
    return 0;
}

void fake_capture(void *stream)
{
    capturing = stream;
}
