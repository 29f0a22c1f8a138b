// SPDX-License-Identifier: Apache-2.0
// The names from before dtypes: torch.Tensor(2, 3), torch.FloatTensor, torch.cuda.FloatTensor,
// set_default_tensor_type, autograd.Variable.
#include "ext.h"

#include <string.h>

// The device that torch.Tensor() uses: not the default device, but set_default_tensor_type's.
static px_device constructor_device = {PX_CPU, -1};

static px_tensor *empty_of(const ext_ints *sizes, px_dtype dtype, px_device device) {
  px_tensor *made = NULL;
  if (px_tensor_empty(&made, sizes->count, sizes->items, dtype, device) != PX_OK)
    return ext_raise();
  return made;
}

static px_tensor *alias_of(PyObject *source, px_dtype dtype) {
  px_tensor *t = ext_tensor(source), *alias = NULL;
  char text[48];
  if (px_tensor_dtype(t) != dtype) {
    PyErr_Format(PyExc_TypeError, "expected %s (got %s)", px_dtype_class(dtype),
                 px_tensor_type_name(t, text));
    return NULL;
  }
  if (px_tensor_detach(&alias, t) != PX_OK) return ext_raise();
  return alias;
}

// new(): nothing, sizes, a sequence of values, or a tensor.
static px_tensor *construct(PyObject *const *args, Py_ssize_t nargs, px_dtype dtype,
                            px_device device) {
  ext_ints sizes = {.count = 1};
  if (nargs == 0) {
    sizes.items[0] = 0;
    return empty_of(&sizes, dtype, device);
  }
  PyObject *first = args[0];
  if (nargs == 1 && ext_is_tensor(first)) return alias_of(first, dtype);
  if (nargs == 1 && Py_IS_TYPE(first, &ext_SizeType))
    return ext_to_ints(first, &sizes) < 0 ? NULL : empty_of(&sizes, dtype, device);
  if (nargs == 1 && !PyLong_Check(first) &&
      (ext_is_array(first) || (PySequence_Check(first) && !PyUnicode_Check(first))))
    return ext_tensor_from(first, dtype, device);
  if (nargs > EXT_LENGTH(sizes.items)) {
    PyErr_SetString(PyExc_TypeError, "new(): too many sizes");
    return NULL;
  }
  sizes.count = (int)nargs;
  for (Py_ssize_t i = 0; i < nargs; i++) {
    if (PyFloat_Check(args[i]) || !PyIndex_Check(args[i])) {
      PyErr_Format(PyExc_TypeError, "new(): data must be a sequence (got %s)",
                   ext_type_name(args[i]));
      return NULL;
    }
    if (ext_to_int(args[i], &sizes.items[i]) < 0) return NULL;
  }
  return empty_of(&sizes, dtype, device);
}

// device=: must be of the constructor's type.
static int take_device(PyObject *kwargs, px_device *device) {
  PyObject *given = kwargs ? PyDict_GetItemString(kwargs, "device") : NULL;
  px_device asked;
  if (ext_is_none(given)) return 0;
  if (ext_to_device(given, &asked) < 0) return -1;
  if (asked.type != device->type)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "legacy constructor expects device type: %s but device type: %s was passed",
                 px_device_type_name(device->type), px_device_type_name(asked.type));
  *device = asked;
  return 0;
}

PyObject *ext_tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  px_device device = constructor_device;
  px_dtype dtype = px_dtype_default();
  if (take_device(kwargs, &device) < 0) return NULL;
  PyObject *const *items = PySequence_Fast_ITEMS(args);
  Py_ssize_t nargs = PyTuple_GET_SIZE(args);
  PyObject *data = kwargs ? PyDict_GetItemString(kwargs, "data") : NULL;
  if (nargs == 1 && ext_is_tensor(items[0]) && type != ext_TensorType)
    dtype = px_tensor_dtype(ext_tensor(items[0]));
  px_tensor *made =
      data ? construct(&data, 1, dtype, device) : construct(items, nargs, dtype, device);
  return made ? ext_wrap_as(type, made) : NULL;
}

// ---- torch.FloatTensor and the like: objects that construct and that isinstance accepts
typedef struct type_object {
  PyObject_HEAD px_dtype dtype;
  px_device device;
  char name[40];
} type_object;
static PyTypeObject tensortype;

bool ext_is_type_object(PyObject *object) { return Py_IS_TYPE(object, &tensortype); }
void ext_type_object(PyObject *object, px_dtype *dtype, px_device *device) {
  *dtype = ((type_object *)object)->dtype;
  *device = ((type_object *)object)->device;
}

static PyObject *type_repr(PyObject *self) {
  return PyUnicode_FromFormat("<class '%s'>", ((type_object *)self)->name);
}
static PyObject *type_instancecheck(PyObject *self, PyObject *object) {
  const type_object *type = (type_object *)self;
  if (!ext_is_tensor(object)) Py_RETURN_FALSE;
  const px_tensor *t = ext_tensor(object);
  return PyBool_FromLong(px_tensor_dtype(t) == type->dtype &&
                         px_tensor_device(t).type == type->device.type);
}
static PyObject *type_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  static bool warned;
  px_device device = ((type_object *)self)->device;
  if (device.type == PX_CUDA && !warned) {
    warned = true;
    if (PyErr_WarnEx(PyExc_UserWarning,
                     "The torch.cuda.*DtypeTensor constructors are no longer recommended. It's "
                     "best to use methods such as torch.tensor(data, dtype=*, device='cuda') to "
                     "create tensors.",
                     1) < 0)
      return NULL;
  }
  if (take_device(kwargs, &device) < 0) return NULL;
  px_tensor *made = construct(PySequence_Fast_ITEMS(args), PyTuple_GET_SIZE(args),
                              ((type_object *)self)->dtype, device);
  return made ? ext_wrap(made) : NULL;
}
static PyObject *get_dtype(PyObject *self, void *u) {
  return ext_dtype(((type_object *)self)->dtype);
}
static PyObject *get_name(PyObject *self, void *u) {
  return PyUnicode_FromString(strrchr(((type_object *)self)->name, '.') + 1);
}
static PyObject *get_module(PyObject *self, void *u) {
  const char *name = ((type_object *)self)->name;
  return PyUnicode_FromStringAndSize(name, strrchr(name, '.') - name);
}
static PyObject *get_is_cuda(PyObject *self, void *u) {
  return PyBool_FromLong(((type_object *)self)->device.type == PX_CUDA);
}
static PyGetSetDef type_getset[] = {
    {"dtype", get_dtype, NULL, NULL, NULL},       {"__name__", get_name, NULL, NULL, NULL},
    {"__qualname__", get_name, NULL, NULL, NULL}, {"__module__", get_module, NULL, NULL, NULL},
    {"is_cuda", get_is_cuda, NULL, NULL, NULL},   {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef type_methods[] = {{"__instancecheck__", type_instancecheck, METH_O, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyTypeObject tensortype = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.tensortype",
    .tp_basicsize = sizeof(type_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = type_repr,
    .tp_call = type_call,
    .tp_methods = type_methods,
    .tp_getset = type_getset,
};

int ext_dtype_of_type_name(const char *text, px_dtype *dtype, px_device *device) {
  *device = px_cpu();
  if (strncmp(text, "torch.", 6)) return 0;
  text += 6;
  if (!strncmp(text, "cuda.", 5)) {
    *device = px_cuda(-1);
    text += 5;
  }
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    char name[32];
    snprintf(name, sizeof name, "%sTensor", px_dtype_class((px_dtype)i));
    *dtype = (px_dtype)i;
    if (!strcmp(text, name)) return 1;
  }
  *dtype = px_dtype_default();
  return !strcmp(text, "Tensor");
}

// ---- Variable: every tensor is one
static PyObject *variable_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"Variable", "|data requires_grad volatile", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return NULL;
  px_tensor *data = ext_need_tensor(out[0], "Variable", "data");
  int requires_grad = data ? ext_to_bool(out[1], false) : -1;
  if (requires_grad < 0) return NULL;
  PX_SCOPED(px_tensor) variable = NULL;
  EXT_TRY(px_tensor_detach(&variable, data));
  if (requires_grad) EXT_TRY(px_tensor_set_requires_grad(variable, true));
  return ext_wrap_as(ext_TensorType, PX_MOVE(variable));
}
static PyObject *variable_instancecheck(PyObject *self, PyObject *object) {
  return PyBool_FromLong(ext_is_tensor(object));
}
static PyObject *variable_repr(PyObject *self) {
  return PyUnicode_FromString("<class 'torch.autograd.variable.Variable'>");
}
static PyMethodDef variable_methods[] = {
    {"__instancecheck__", variable_instancecheck, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyTypeObject variable_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.autograd.VariableMeta",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_repr = variable_repr,
    .tp_call = variable_call,
    .tp_methods = variable_methods,
};

static PyObject *set_default_tensor_type(PyObject *module, PyObject *type) {
  px_dtype dtype = PX_DTYPE_NONE;
  px_device device = px_cpu();
  if (PyErr_WarnEx(PyExc_UserWarning,
                   "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
                   "torch.set_default_dtype() and torch.set_default_device() as alternatives.",
                   1) < 0)
    return NULL;
  if (ext_is_type_object(type)) {
    ext_type_object(type, &dtype, &device);
  } else if (type == (PyObject *)ext_TensorType) {
    dtype = PX_FLOAT32;
  } else {
    const char *text = PyUnicode_Check(type) ? PyUnicode_AsUTF8(type) : NULL;
    if (!text) EXT_FAIL(PyExc_TypeError, "invalid type object");
    if (!ext_dtype_of_type_name(text, &dtype, &device))
      EXT_FAIL(PyExc_TypeError, "type %s not available", text);
  }
  if (!px_dtype_is_float(dtype))
    EXT_FAIL(PyExc_TypeError, "only floating-point types are supported as the default type");
  if (device.type == PX_CUDA) EXT_TRY(px_device_init());
  EXT_TRY(px_dtype_set_default(dtype));
  EXT_TRY(px_device_set_home(device.type == PX_CUDA ? device : PX_DEVICE_NONE));
  constructor_device = device;
  Py_RETURN_NONE;
}

static int add_types(PyObject *module, px_device device, const char *prefix) {
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    type_object *type = PyObject_New(type_object, &tensortype);
    if (!type) return -1;
    type->dtype = (px_dtype)i;
    type->device = device;
    snprintf(type->name, sizeof type->name, "%s%sTensor", prefix, px_dtype_class((px_dtype)i));
    if (ext_add(module, strrchr(type->name, '.') + 1, (PyObject *)type) < 0) return -1;
  }
  return 0;
}

static PyMethodDef functions[] = {
    {"set_default_tensor_type", set_default_tensor_type, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static int ext_init_legacy(PyObject *m) {
  if (PyType_Ready(&tensortype) < 0 || PyType_Ready(&variable_type) < 0) return -1;
  EXT_OWNED *cuda = PyObject_GetAttrString(m, "cuda");
  EXT_OWNED *autograd = PyObject_GetAttrString(m, "autograd");
  if (!cuda || !autograd) return -1;
  if (add_types(m, px_cpu(), "torch.") < 0 || add_types(cuda, px_cuda(-1), "torch.cuda.") < 0)
    return -1;
  if (ext_add(autograd, "Variable", (PyObject *)PyObject_New(PyObject, &variable_type)) < 0)
    return -1;
  return PyModule_AddFunctions(m, functions);
}
EXT_START(EXT_VALUES, ext_init_legacy);
