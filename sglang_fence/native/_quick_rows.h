/* Repeated steps as the flight recorder keeps them. Included by _quick.c once. */

/* How long something is that is given away; -1: it isn't there, or has no length. */
static Py_ssize_t length_of(PyObject *found)
{
    if (found == NULL)
        return -1;
    Py_ssize_t length = PyObject_Size(found);
    Py_DECREF(found);
    return length;
}

/* The batch's tokens: what it extends by, or one a request where that is nothing. */
static number_t tokens_of(PyObject *batch, Py_ssize_t size)
{
    PyObject *found = PyObject_GetAttr(batch, name_of[N_EXTEND_TOKENS]);
    if (found == NULL)
        return -1;
    number_t tokens = found == Py_None ? 0 : PyLong_AsLongLong(found);
    Py_DECREF(found);
    if (tokens == -1 && PyErr_Occurred())
        return -1;
    return tokens ? tokens : size;
}

/* Where a step is written; NULL: nowhere. */
static row_t *row_at(repeating_t *self, number_t number)
{
    return self->row_count ? &self->rows[number % self->row_count] : NULL;
}

static void write_row(repeating_t *self, PyObject *like, number_t number, number_t size, number_t tokens)
{
    row_t *row = row_at(self, number);
    if (row == NULL)
        return;
    self->row = row;
    PyObject *before = row->like;
    row->like = Py_NewRef(like);
    row->started_ns = now_ns();
    row->step = row->bound = number;
    row->batch_size = size;
    row->tokens = tokens;
    row->progress = LAUNCHED;
    row->entered_ns = row->barrier_ns = NOT_YET;
    row->event = NULL;
    Py_XDECREF(before); /* last: that may run anything, and free the rows */
}

static int write_row_of(repeating_t *self, PyObject *like, number_t number, PyObject *batch)
{
    Py_ssize_t size = length_of(PyObject_GetAttr(batch, name_of[N_REQS]));
    number_t tokens = size < 0 || !self->extends ? size : tokens_of(batch, size);
    if (tokens < 0)
        return -1;
    write_row(self, like, number, size, tokens);
    return 0;
}

/* Keep others, which are given away. */
static void replace_rows(repeating_t *self, row_t *rows, Py_ssize_t count)
{
    row_t *before = self->rows;
    Py_ssize_t count_before = self->row_count;
    self->rows = rows, self->row_count = count, self->row = NULL;
    for (Py_ssize_t place = 0; place < count_before; place++)
        Py_XDECREF(before[place].like);
    PyMem_Free(before);
}

static void free_rows(repeating_t *self)
{
    replace_rows(self, NULL, 0);
}

static PyObject *repeating_keep(repeating_t *self, PyObject *steps)
{
    Py_ssize_t count = PyLong_AsSsize_t(steps);
    if (count < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "keep() takes how many steps to keep, 0 or more");
        return NULL;
    }
    row_t *rows = count ? PyMem_Calloc(count, sizeof *rows) : NULL;
    if (count && rows == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t place = 0; place < count; place++)
        rows[place].step = NO_STEP;
    replace_rows(self, rows, count);
    Py_RETURN_NONE;
}

/* step, batch_size, tokens, started_ns, entered_ns, barrier_ns, bound, event, like, progress */
static PyObject *row_tuple(const row_t *at)
{
    row_t one = *at, *row = &one; /* making a tuple may collect garbage, which may run anything */
    PyObject *event = row->event == NULL ? Py_NewRef(Py_None) : PyLong_FromVoidPtr(row->event);
    if (event == NULL)
        return NULL;
    return Py_BuildValue("(LLLLLLLNNi)", row->step, row->batch_size, row->tokens, row->started_ns, row->entered_ns,
                         row->barrier_ns, row->bound, event, Py_NewRef(row->like), (int)row->progress);
}

static PyObject *repeating_kept(repeating_t *self, PyObject *ignored)
{
    (void)ignored;
    PyObject *found = PyList_New(0);
    for (Py_ssize_t place = 0; found != NULL && place < self->row_count; place++) {
        if (self->rows[place].step == NO_STEP)
            continue;
        PyObject *row = row_tuple(&self->rows[place]);
        if (row == NULL || PyList_Append(found, row) < 0)
            Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

static PyObject *repeating_newest(repeating_t *self, PyObject *ignored)
{
    (void)ignored;
    if (self->row == NULL || self->row->step == NO_STEP)
        Py_RETURN_NONE;
    return row_tuple(self->row);
}

static PyObject *repeating_forget_row(repeating_t *self, PyObject *ignored)
{
    (void)ignored;
    if (self->row == NULL || self->row->step == NO_STEP)
        Py_RETURN_NONE;
    self->row->step = NO_STEP;
    return PyLong_FromLongLong(self->row->started_ns);
}
