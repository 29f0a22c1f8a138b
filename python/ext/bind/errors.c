// SPDX-License-Identifier: Apache-2.0
// Errors and warnings between core and Python. A core error record becomes a Python exception. A
// Python exception in a callback becomes a core record and is later restored as the same object.
#include "bind/ext.h"

#include <frameobject.h>
#include <string.h>

PyObject *ext_AcceleratorError, *ext_OutOfMemoryError, *ext_LinAlgError;
// Maps a status name to a class of torch.distributed: "DistError" and its subclasses.
static PyObject *dist_errors;

const char *ext_type_name(PyObject *object) {
  const char *name = Py_TYPE(object)->tp_name, *dot = strrchr(name, '.');
  return !strncmp(name, "torch.", 6) && dot ? dot + 1 : name;
}

#if PY_VERSION_HEX >= 0x030C0000
PyObject *ext_exception_take(void) { return PyErr_GetRaisedException(); }
void ext_exception_set(PyObject *exception) { PyErr_SetRaisedException(exception); }
#else
PyObject *ext_exception_take(void) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (!type) return NULL;
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  Py_XDECREF(trace);
  Py_DECREF(type);
  return value;
}
void ext_exception_set(PyObject *exception) {
  PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exception)), exception,
                PyException_GetTraceback(exception));
}
#endif

// Python class of a status: a builtin by name, or one defined here.
static PyObject *exception_class(px_status code) {
  const char *name = px_status_exception(code);
  if (code == PX_OUT_OF_MEMORY) return ext_OutOfMemoryError;
  if (code == PX_ACCELERATOR) return ext_AcceleratorError;
  if (code == PX_LINALG) return ext_LinAlgError;
  PyObject *dist = name ? PyDict_GetItemString(dist_errors, name) : NULL;
  if (dist) return dist;
  PyObject *found = name && *name ? PyDict_GetItemString(PyEval_GetBuiltins(), name) : NULL;
  return found ? found : PyExc_RuntimeError;
}

static PyObject *raise_accelerator(const px_error *error) {
  EXT_OWNED *text = ext_str(error->message);
  EXT_OWNED *exception = text ? PyObject_CallOneArg(ext_AcceleratorError, text) : NULL;
  EXT_OWNED *code = exception ? PyLong_FromLong(error->detail) : NULL;
  if (!code || PyObject_SetAttrString(exception, "error_code", code) < 0) return NULL;
  PyErr_SetObject(ext_AcceleratorError, exception);  // its __context__ is the handled exception
  return NULL;
}

// File errors carry errno, like Python's own.
static void *raise_os(const px_error *error) {
  EXT_OWNED *text = ext_str(error->message);
  EXT_OWNED *exception = text ? PyObject_CallOneArg(exception_class(error->code), text) : NULL;
  EXT_OWNED *code = exception ? PyLong_FromLong(error->detail) : NULL;
  if (!code || PyObject_SetAttrString(exception, "errno", code) < 0) return NULL;
  PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
  return NULL;
}

void *ext_raise(void) {
  px_error error;
  px_error_take(&error);
  if (error.code == PX_FOREIGN && error.foreign) {
    ext_exception_set((PyObject *)error.foreign);
    return NULL;
  }
  if (PyErr_Occurred()) return NULL;
  if (error.code == PX_ACCELERATOR) return raise_accelerator(&error);
  if ((error.code == PX_IO || error.code == PX_NOT_FOUND) && error.detail) return raise_os(&error);
  EXT_OWNED *text = ext_str(error.message);
  if (text) PyErr_SetObject(exception_class(error.code), text);
  return NULL;
}

void ext_release(void *object) {
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return;
  Py_DECREF((PyObject *)object);
  ext_gil_give(&gil);
}

px_status ext_error_from_python(void) {
  PyObject *exception = ext_exception_take();
  if (!exception)
    return px_error_set(PX_BUG, 0, __FILE__, __LINE__, __func__, "no exception is set");
  PyObject *text = PyObject_Str(exception);
  const char *message = text ? PyUnicode_AsUTF8(text) : NULL;
  PyErr_Clear();
  px_status status = px_error_set_foreign(exception, ext_release, message ? message : "");
  Py_XDECREF(text);
  return status;
}

// A warning turned into an exception fails the call issuing it.
static px_status warn(px_warning category, const char *text) {
  PyObject *const classes[] = {PyExc_UserWarning, PyExc_FutureWarning, PyExc_DeprecationWarning};
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return PX_OK;
  px_status status = PX_OK;
  EXT_OWNED *message = ext_str(text);
  if (!message || PyErr_WarnFormat(classes[category], 1, "%U", message) < 0)
    status = ext_error_from_python();
  Py_CLEAR(message);
  ext_gil_give(&gil);
  return status;
}

// ---- signals

// Called by long operations of the main thread, which runs Python's signal handlers. An exception
// of a handler ends the operation.
px_status ext_run_handlers(void) {
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return PX_OK;
  px_status status = PX_OK;
  if (!PyErr_Occurred() && PyErr_CheckSignals() < 0) status = ext_error_from_python();
  ext_gil_give(&gil);
  return status;
}

static int watch_signals(void *unused) {
  px_interrupt_set_check(ext_run_handlers);
  return 0;
}

static int make_dist_errors(PyObject *torch) {
  static const char *const names[][2] = {{"torch.distributed.DistError", ""},
                                         {"torch.distributed.DistBackendError", "DistError"},
                                         {"torch.distributed.DistNetworkError", "DistError"},
                                         {"torch.distributed.DistStoreError", "DistError"}};
  dist_errors = PyDict_New();
  for (int i = 0; dist_errors && i < EXT_LENGTH(names); i++) {
    PyObject *base = PyDict_GetItemString(dist_errors, names[i][1]);
    EXT_OWNED *made =
        PyErr_NewExceptionWithDoc(names[i][0], "Raised when an error occurs in torch.distributed.",
                                  base ? base : PyExc_RuntimeError, NULL);
    if (!made || PyDict_SetItemString(dist_errors, strrchr(names[i][0], '.') + 1, made) < 0)
      return -1;
  }
  return dist_errors ? PyModule_AddObjectRef(torch, "_dist_errors", dist_errors) : -1;
}

static int make_errors(PyObject *torch) {
  if (make_dist_errors(torch) < 0) return -1;
  ext_AcceleratorError = PyErr_NewExceptionWithDoc(
      "torch.AcceleratorError", "Raised while executing on a device.", PyExc_RuntimeError, NULL);
  ext_OutOfMemoryError = PyErr_NewExceptionWithDoc(
      "torch.OutOfMemoryError", "Raised when a device is out of memory.", PyExc_RuntimeError, NULL);
  ext_LinAlgError = PyErr_NewExceptionWithDoc(
      "torch._C._LinAlgError", "Raised when a matrix has no such inverse or decomposition.",
      PyExc_RuntimeError, NULL);
  if (!ext_AcceleratorError || !ext_OutOfMemoryError || !ext_LinAlgError) return -1;
  PyObject_SetAttrString(ext_AcceleratorError, "error_code", Py_None);
  px_warning_set_sink(warn);
  if (Py_AddPendingCall(watch_signals, NULL) < 0) return -1;  // runs in the main thread
  EXT_OWNED *cuda = PyObject_GetAttrString(torch, "cuda");
  if (!cuda || PyModule_AddObjectRef(cuda, "OutOfMemoryError", ext_OutOfMemoryError) < 0) return -1;
  if (PyModule_AddObjectRef(torch, "AcceleratorError", ext_AcceleratorError) < 0) return -1;
  return PyModule_AddObjectRef(torch, "OutOfMemoryError", ext_OutOfMemoryError);
}
EXT_START(EXT_ERRORS, make_errors);
