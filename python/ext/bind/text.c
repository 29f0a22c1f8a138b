// SPDX-License-Identifier: Apache-2.0
// Texts between Python and C.
#include "bind/ext.h"

#include <string.h>

const char *ext_text(PyObject *object) {
  Py_ssize_t size;
  const char *text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text && strlen(text) != (size_t)size) EXT_FAIL(PyExc_ValueError, "embedded null character");
  return text;
}
const char *ext_lookup_text(PyObject *object) {
  const char *text = ext_text(object);
  if (!text) PyErr_Clear();
  return text;
}

PyObject *ext_str(const char *text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}
