/* A driver for tests: writes down what is called, and answers by a table. Times are µs; an event without one isn't done. */

#include <stddef.h>

enum { EVENTS = 4096, CALLS = 65536, NOT_READY = 600 };

static double at_us[EVENTS];
static char done[EVENTS];
static char call_name[CALLS];
static size_t call_first[CALLS], call_second[CALLS];
static int calls, failing;
static void *capturing;

static int said(char name, void *first, void *second)
{
    if (calls < CALLS) {
        call_name[calls] = name;
        call_first[calls] = (size_t)first;
        call_second[calls] = (size_t)second;
        calls++;
    }
    return failing;
}

int cuEventRecord(void *event, void *stream)
{
    return said('r', event, stream);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)flags;
    return said('w', stream, event);
}

int cuEventElapsedTime(float *ms, void *start, void *end)
{
    if (failing)
        return failing;
    if (!done[(size_t)start] || !done[(size_t)end])
        return NOT_READY;
    *ms = (float)((at_us[(size_t)end] - at_us[(size_t)start]) / 1e3);
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    *status = capturing != NULL && stream == capturing;
    return 0;
}

void fake_reset(void)
{
    calls = failing = 0;
    capturing = NULL;
    for (int event = 0; event < EVENTS; event++)
        done[event] = 0;
}

void fake_reach(size_t event, double us)
{
    at_us[event] = us;
    done[event] = 1;
}

void fake_fail(int status)
{
    failing = status;
}

void fake_capture(void *stream)
{
    capturing = stream;
}

int fake_calls(void)
{
    return calls;
}

int fake_call(int place, size_t *first, size_t *second)
{
    *first = call_first[place];
    *second = call_second[place];
    return call_name[place];
}
