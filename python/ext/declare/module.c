// SPDX-License-Identifier: Apache-2.0
// The module phlox._C: constants, and everything declared by other files (declare.h). Submodules
// (phlox.cuda, phlox.nn.functional, ...) are registered in sys.modules, which makes `import
// phlox.cuda` work.
#include "bind/ext.h"

static int add_constants(PyObject *m) {
  static const struct {
    const char *name;
    double value;
  } numbers[] = {{"pi", 3.14159265358979323846}, {"e", 2.7182818284590452354}};
  for (int i = 0; i < EXT_LENGTH(numbers); i++)
    if (ext_add(m, numbers[i].name, PyFloat_FromDouble(numbers[i].value)) < 0) return -1;
  if (ext_add(m, "inf", PyFloat_FromDouble(Py_HUGE_VAL)) < 0) return -1;
  if (ext_add(m, "nan", PyFloat_FromDouble(Py_NAN)) < 0) return -1;
  if (ext_add(m, "newaxis", Py_NewRef(Py_None)) < 0) return -1;
  return ext_add(m, "__version__", PyUnicode_FromString("2.14.1+phlox"));
}

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void) {
  static struct PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "phlox._C", NULL, -1, NULL, NULL, NULL, NULL, NULL};
  PyObject *m = PyModule_Create(&definition);
  return m && add_constants(m) == 0 && ext_declare_all(m) == 0 ? m : NULL;
}
