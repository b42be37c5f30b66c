/* What becomes of exceptions that are met while a step is looked at. Included by _quick.c once.
 *
 * One that `except Exception` would catch is dropped. Another, such as the KeyboardInterrupt or the SystemExit that a
 * signal's handler raises in whatever Python code happens to run, isn't ours to drop: it is kept until the hook, or the
 * method, is about to return, and raised there.
 */

/* Drop the exception that is set, if one is, or keep it for deliver(). None is set afterwards. */
static void forgive(repeating_t *self)
{
    if (PyErr_Occurred() == NULL)
        return;
    if (self->kept_type != NULL || PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return;
    }
    PyObject *type, *value, *traceback; /* first into these: nothing but what is complete may be seen in `self` */
    PyErr_Fetch(&type, &value, &traceback);
    self->kept_type = type, self->kept_value = value, self->kept_traceback = traceback;
}

/* Return `result`, which is given away; NULL, if an exception was kept: then that is set. */
static PyObject *deliver(repeating_t *self, PyObject *result)
{
    if (self->kept_type == NULL)
        return result;
    PyObject *type = self->kept_type, *value = self->kept_value, *traceback = self->kept_traceback;
    self->kept_type = self->kept_value = self->kept_traceback = NULL;
    Py_XDECREF(result);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return NULL;
}
