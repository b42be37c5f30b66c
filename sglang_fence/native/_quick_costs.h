/* What the hooks cost, as they measure it themselves on one step in so many. Included by _quick.c once.
 *
 * A look at the clock is cheap, a change of the account isn't: what was measured is put there now and then.
 */

static const char *const cost_names[HOOKS] = {
    [H_RUN_BATCH] = "run_batch",       [H_RESOLVE] = "decode_resolve",
    [H_EXTEND] = "draft_extend_execute", [H_BARRIER] = "apply_war_barrier",
    [H_STEP_STARTED] = "step_started", [H_READS_END] = "reads_end",
    [H_AFTER_WAIT] = "after_wait",
};

/* Whether a step of SGLang's is one of those. */
static char is_metered(number_t number)
{
    uint32_t mixed = (uint32_t)(number ^ number >> 16) * 0x85ebca6bu;
    mixed = (mixed ^ mixed >> 13) * 0xc2b2ae35u;
    return (mixed ^ mixed >> 16) < ((uint64_t)1 << 32) / COST_SAMPLE;
}

enum { MEASURED_MOST = 64 };

static void add_cost(repeating_t *self, PyObject *cost_ns, const char *hook, number_t ns)
{
    PyObject *key = PyUnicode_FromString(hook), *before = key == NULL ? NULL : PyObject_GetItem(cost_ns, key);
    if (before == NULL)
        forgive(self);
    PyObject *more = PyLong_FromLongLong(ns);
    PyObject *sum = before == NULL || more == NULL ? Py_XNewRef(more) : PyNumber_Add(before, more);
    if (key == NULL || sum == NULL || PyObject_SetItem(cost_ns, key, sum) < 0)
        forgive(self);
    Py_XDECREF(key);
    Py_XDECREF(before);
    Py_XDECREF(more);
    Py_XDECREF(sum);
}

/* Put on the account what was measured. */
static void settle_costs(repeating_t *self)
{
    number_t spent_ns[HOOKS];
    memcpy(spent_ns, self->spent_ns, sizeof spent_ns);
    memset(self->spent_ns, 0, sizeof self->spent_ns);
    self->measured = 0;
    PyObject *cost_ns = Py_XNewRef(self->cost_ns);
    for (int hook = 0; cost_ns != NULL && hook < HOOKS; hook++)
        if (spent_ns[hook])
            add_cost(self, cost_ns, cost_names[hook], spent_ns[hook]);
    Py_XDECREF(cost_ns);
}

static void meter(repeating_t *self, enum hook hook, number_t began)
{
    number_t spent = now_ns() - began - self->clock_ns;
    self->spent_ns[hook] += spent > 0 ? spent * self->cost_sample : 0;
    if (++self->measured >= MEASURED_MOST)
        settle_costs(self);
}
