// SPDX-License-Identifier: Apache-2.0
// Exceptions that crossed a thread or a process, raised again with their place.
#include "parallel.h"

// KeyError shows the repr of its argument; this text's repr is itself, so that lines stay lines.
static PyObject *plain_repr(PyObject *self) { return PyUnicode_FromObject(self); }
static PyTypeObject key_text = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch._utils.KeyErrorMessage",
    .tp_doc = "A text that prints as it is.",
    .tp_base = &PyUnicode_Type,
    .tp_repr = plain_repr,
};

static PyObject *message_for(PyObject *cls, PyObject *text) {
  if (!PyObject_IsSubclass(cls, PyExc_KeyError)) return Py_NewRef(text);
  if (PyType_Ready(&key_text) < 0) return NULL;
  return PyObject_CallOneArg((PyObject *)&key_text, text);
}

void ext_raise_caught(PyObject *cls, PyObject *traceback, const char *where) {
  EXT_OWNED *name = PyObject_GetAttrString(cls, "__name__");
  EXT_OWNED *text =
      name ? PyUnicode_FromFormat("Caught %U %s.\nOriginal %U", name, where, traceback) : NULL;
  EXT_OWNED *message = text ? message_for(cls, text) : NULL;
  EXT_OWNED *made = message ? PyObject_CallOneArg(cls, message) : NULL;
  if (made && PyExceptionInstance_Check(made)) {
    PyErr_SetObject(cls, made);
    return;
  }
  if (!text) return;
  // A class that cannot be made from a text alone.
  PyErr_Clear();
  PyErr_SetObject(PyExc_RuntimeError, text);
}

void ext_rewrap(const char *where) {
  EXT_OWNED *exception = ext_exception_take();
  EXT_OWNED *module = exception ? PyImport_ImportModule("traceback") : NULL;
  EXT_OWNED *lines =
      module ? PyObject_CallMethod(module, "format_exception", "O", exception) : NULL;
  EXT_OWNED *empty = lines ? PyUnicode_FromString("") : NULL;
  // What the library itself raised has no Python frames, and no heading of theirs.
  EXT_OWNED *frames = exception ? PyException_GetTraceback(exception) : NULL;
  const char *heading = frames ? "" : "Traceback (most recent call last):\n";
  EXT_OWNED *joined = empty ? PyUnicode_Join(empty, lines) : NULL;
  EXT_OWNED *text = joined ? PyUnicode_FromFormat("%s%U", heading, joined) : NULL;
  if (text) ext_raise_caught((PyObject *)Py_TYPE(exception), text, where);
}
