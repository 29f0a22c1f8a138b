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
  if (ext_add(m, "_phlox_version", PyUnicode_FromString(px_version())) < 0) return -1;
  return ext_add(m, "__version__", PyUnicode_FromString("2.14.1+phlox"));
}

// The extension keeps Python objects in static variables: one interpreter of the process can import
// it, and the GIL guards them.
static int check_interpreter(void) {
  static bool imported;
  PyObject *is_enabled = PySys_GetObject("_is_gil_enabled");  // NULL before Python 3.13
  EXT_OWNED *enabled = is_enabled ? PyObject_CallNoArgs(is_enabled) : Py_NewRef(Py_True);
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    EXT_FAIL_INT(PyExc_ImportError, "module phlox._C does not support loading in subinterpreters");
  if (imported)
    EXT_FAIL_INT(PyExc_ImportError, "cannot load module phlox._C more than once per process");
  if (enabled != Py_True)
    EXT_FAIL_INT(PyExc_ImportError,
                 "module phlox._C requires the GIL, which PYTHON_GIL=0 or -X gil=0 disables");
  imported = true;
  return 0;
}

static int fill(PyObject *m) {
  return check_interpreter() < 0 || ext_gil_watch() < 0 || add_constants(m) < 0 ||
                 ext_declare_all(m) < 0
             ? -1
             : 0;
}

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void) {
  static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL}
  };
  static struct PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "phlox._C", NULL, 0, NULL, slots, NULL, NULL, NULL};
  return PyModuleDef_Init(&definition);
}
