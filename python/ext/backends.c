// SPDX-License-Identifier: Apache-2.0
// torch.backends: its modules' attributes are the settings of PX_SETTING_MAP, read and written
// where the library keeps them; and torch.set_float32_matmul_precision.
#include "ext.h"

static const struct {
  const char *module, *name;
} settings[] = {
#define XX(name, module, attribute, value) {module, attribute},
    PX_SETTING_MAP(XX)
#undef XX
};

// ---- attributes

// The setting of a module's attribute, or -1. Modules are named after what follows "backends.".
static int setting_of(PyObject *module, PyObject *attribute) {
  const char *full = PyModule_GetName(module);
  const char *at = full ? strstr(full, "backends.") : NULL;
  if (!at) PyErr_Clear();
  for (int i = 0; at && i < PX_SETTING_COUNT; i++)
    if (!strcmp(settings[i].module, at + strlen("backends.")) &&
        PyUnicode_CompareWithASCIIString(attribute, settings[i].name) == 0)
      return i;
  return -1;
}

static PyObject *get_attribute(PyObject *module, PyObject *name) {
  int setting = setting_of(module, name);
  if (setting < 0) return PyModule_Type.tp_getattro(module, name);
  return PyBool_FromLong(px_setting_get((px_setting)setting));
}

static int set_attribute(PyObject *module, PyObject *name, PyObject *value) {
  int setting = setting_of(module, name);
  if (setting < 0) return PyModule_Type.tp_setattro(module, name, value);
  if (!value || !PyBool_Check(value))
    EXT_FAIL_INT(PyExc_RuntimeError, "%U expects a bool, but got %s", name,
                 value ? ext_type_name(value) : "nothing");
  px_setting_set((px_setting)setting, value == Py_True);
  return 0;
}

static PyObject *attributes(PyObject *module, PyObject *u) {
  EXT_OWNED *names = PyDict_Keys(PyModule_GetDict(module));
  for (int i = 0; names && i < PX_SETTING_COUNT; i++) {
    EXT_OWNED *name = PyUnicode_FromString(settings[i].name);
    bool fails = !name || (setting_of(module, name) == i && PyList_Append(names, name) < 0);
    if (fails) return NULL;
  }
  return ext_moved(&names);
}
static PyMethodDef module_methods[] = {{"__dir__", attributes, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyTypeObject module_type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.backends.module",
                                   .tp_flags = Py_TPFLAGS_DEFAULT, .tp_getattro = get_attribute,
                                   .tp_setattro = set_attribute, .tp_methods = module_methods};

// ---- the precision of products of float32

static const char *const precisions[] = {"highest", "high", "medium"};

static PyObject *set_precision(PyObject *m, PyObject *text) {
  if (!PyUnicode_Check(text))
    EXT_FAIL(PyExc_RuntimeError, "set_float32_matmul_precision expects a str, but got %s",
             ext_type_name(text));
  for (int i = 0; i < EXT_LENGTH(precisions); i++) {
    if (PyUnicode_CompareWithASCIIString(text, precisions[i]) != 0) continue;
    px_setting_set(PX_SETTING_MATMUL_TF32, i);
    Py_RETURN_NONE;
  }
  if (PyErr_WarnFormat(PyExc_UserWarning, 1,
                       "%U is not one of 'highest', 'high', or 'medium'; the current "
                       "setFloat32MatmulPrecision call has no effect.",
                       text) < 0)
    return NULL;
  Py_RETURN_NONE;
}
static PyObject *get_precision(PyObject *m, PyObject *u) {
  return PyUnicode_FromString(precisions[px_setting_get(PX_SETTING_MATMUL_TF32)]);
}
static PyMethodDef functions[] = {
    {"set_float32_matmul_precision", set_precision, METH_O, NULL},
    {"get_float32_matmul_precision", get_precision, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

// ---- the modules

static PyObject *on_device(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_device_count(PX_CUDA) > 0);
}
static PyObject *never(PyObject *m, PyObject *u) { Py_RETURN_FALSE; }
static PyMethodDef not_built[] = {{"is_available", never, METH_NOARGS, NULL},
                                  {"is_built", never, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};
static PyMethodDef built[] = {{"is_built", on_device, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyObject *has_cudnn(PyObject *m, PyObject *u) {
  return PyBool_FromLong(px_device_library("cudnn") > 0);
}
static PyObject *cudnn_version(PyObject *m, PyObject *u) {
  int64_t version = px_device_library("cudnn");
  if (version == 0) Py_RETURN_NONE;
  return PyLong_FromLongLong(version);
}
static PyMethodDef cudnn_functions[] = {{"is_available", has_cudnn, METH_NOARGS, NULL},
                                        {"version", cudnn_version, METH_NOARGS, NULL},
                                        {NULL, NULL, 0, NULL}};

static PyObject *settings_module(PyObject *parent, const char *name, PyMethodDef *methods) {
  PyObject *module = parent ? ext_submodule(parent, name, methods) : NULL;
  if (module) Py_SET_TYPE(module, &module_type);
  return module;
}

static int add_version(PyObject *m) {
  PyObject *version = ext_submodule(m, "version", NULL);
  if (!version || ext_add(version, "cuda", Py_NewRef(Py_None)) < 0) return -1;
  if (ext_add(version, "hip", Py_NewRef(Py_None)) < 0) return -1;
  return ext_add(version, "__version__", PyUnicode_FromString("2.14.1+phlox"));
}

static int ext_init_backends(PyObject *m) {
  PyObject *backends = ext_submodule(m, "backends", NULL);
  module_type.tp_base = &PyModule_Type;
  if (!backends || PyType_Ready(&module_type) < 0) return -1;
  PyObject *cuda = ext_submodule(backends, "cuda", built);
  if (!settings_module(cuda, "matmul", NULL) ||
      !settings_module(backends, "cudnn", cudnn_functions) ||
      !settings_module(backends, "mkldnn", not_built) || !ext_submodule(backends, "mps", not_built))
    return -1;
  return PyModule_AddFunctions(m, functions) < 0 ? -1 : add_version(m);
}
EXT_START(EXT_VALUES, ext_init_backends);
