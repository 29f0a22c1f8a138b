// SPDX-License-Identifier: Apache-2.0
// torch.device: an immutable (type, index). The common ones are made once and shared, so that
// x.device costs a reference. As a context manager it is the default device of factories.
#include "ext.h"

#include <string.h>

typedef struct device_object {
  PyObject_HEAD px_device device;
  PyObject *saved;  // list of the defaults to go back to, while entered
} device_object;

enum { SHARED = 17 };  // no index, and 0 to 15
static PyObject *shared[PX_DEVICE_TYPES][SHARED];

bool ext_is_device(PyObject *object) { return Py_IS_TYPE(object, &ext_DeviceType); }
static px_device device_of(PyObject *self) { return ((device_object *)self)->device; }

static PyObject *device_make(px_device device) {
  device_object *self = PyObject_New(device_object, &ext_DeviceType);
  if (!self) return NULL;
  self->device = device;
  self->saved = NULL;
  return (PyObject *)self;
}

PyObject *ext_device(px_device device) {
  if (device.type < 0) Py_RETURN_NONE;
  if (device.index >= SHARED - 1) return device_make(device);
  PyObject **place = &shared[device.type][device.index + 1];
  if (!*place) *place = device_make(device);
  return Py_XNewRef(*place);
}

static int device_from_index(int64_t index, px_device *out) {
  if (index < 0) EXT_FAIL_INT(PyExc_RuntimeError, "Device index must not be negative");
  if (px_device_count(PX_CUDA) == 0)
    EXT_FAIL_INT(PyExc_RuntimeError, "Cannot access accelerator device when none is available.");
  if (index > 127)
    EXT_FAIL_INT(PyExc_RuntimeError, "Device index is too large: %lld", (long long)index);
  *out = px_cuda((int)index);
  return 0;
}

int ext_to_device(PyObject *object, px_device *out) {
  if (ext_is_none(object)) {
    *out = PX_DEVICE_NONE;
    return 0;
  }
  if (ext_is_device(object)) {
    *out = device_of(object);
    return 0;
  }
  if (PyUnicode_Check(object)) {
    const char *text = PyUnicode_AsUTF8(object);
    if (!text) return -1;
    EXT_TRY_INT(px_device_parse(out, text));
    return 0;
  }
  if (PyLong_Check(object) && !PyBool_Check(object)) {
    int64_t index;
    return ext_to_int(object, &index) < 0 ? -1 : device_from_index(index, out);
  }
  EXT_FAIL_INT(PyExc_TypeError, "must be torch.device, not %s", ext_type_name(object));
}

int ext_to_cuda_index(PyObject *object, int *out) {
  px_device device = px_cuda(-1);
  int64_t index;
  if (!ext_is_none(object) && PyLong_Check(object)) {
    if (ext_to_int(object, &index) < 0) return -1;
    *out = (int)index;
    return 0;
  }
  if (!ext_is_none(object) && ext_to_device(object, &device) < 0) return -1;
  if (device.type != PX_CUDA) {
    char text[PX_DEVICE_TEXT];
    EXT_FAIL_INT(PyExc_ValueError, "Expected a cuda device, but got: %s",
                 px_device_format(device, text));
  }
  *out = device.index;
  if (device.index < 0) EXT_TRY_INT(px_device_current(out));
  return 0;
}

static PyObject *bad_arguments(PyObject *object) {
  EXT_FAIL(PyExc_TypeError,
           "device() received an invalid combination of arguments - got (%s), but expected one "
           "of:\n * (torch.device device)\n      didn't match because some of the arguments have "
           "invalid types: (!%s!)\n * (str type, int index = -1)\n",
           ext_type_name(object), ext_type_name(object));
}

static PyObject *device_with_index(PyObject *type, PyObject *index) {
  px_device device;
  int64_t number;
  if (!PyUnicode_Check(type)) return bad_arguments(type);
  if (!PyLong_Check(index))
    EXT_FAIL(PyExc_TypeError, "device(): argument 'index' must be int, not %s",
             ext_type_name(index));
  if (ext_to_device(type, &device) < 0 || ext_to_int(index, &number) < 0) return NULL;
  if (device.index >= 0)
    EXT_FAIL(PyExc_RuntimeError,
             "type (string) must not include an index because index was passed explicitly: %U",
             type);
  if (number < 0) EXT_FAIL(PyExc_RuntimeError, "Device index must not be negative");
  if (number > 127)
    EXT_FAIL(PyExc_RuntimeError, "Device index is too large: %lld", (long long)number);
  device.index = (int16_t)number;
  return ext_device(device);
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"device", "type|index device", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (kwargs && PyDict_Size(kwargs) == 1 && !PyTuple_GET_SIZE(args)) {
    PyObject *named = PyDict_GetItemString(kwargs, "device");
    px_device device;
    if (named) return ext_to_device(named, &device) < 0 ? NULL : ext_device(device);
  }
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return NULL;
  if (out[1]) return device_with_index(out[0], out[1]);
  px_device device;
  if (!ext_is_device(out[0]) && !PyUnicode_Check(out[0]) &&
      (!PyLong_Check(out[0]) || PyBool_Check(out[0])))
    return bad_arguments(out[0]);
  return ext_to_device(out[0], &device) < 0 ? NULL : ext_device(device);
}

static PyObject *device_repr(PyObject *self) {
  px_device d = device_of(self);
  if (d.index < 0) return PyUnicode_FromFormat("device(type='%s')", px_device_type_name(d.type));
  return PyUnicode_FromFormat("device(type='%s', index=%d)", px_device_type_name(d.type), d.index);
}
static PyObject *device_str(PyObject *self) {
  char text[PX_DEVICE_TEXT];
  return PyUnicode_FromString(px_device_format(device_of(self), text));
}
static Py_hash_t device_hash(PyObject *self) {
  return (Py_hash_t)device_of(self).type * 65599 + device_of(self).index + 1009;
}
static PyObject *device_compare(PyObject *a, PyObject *b, int op) {
  if (!ext_is_device(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong(px_device_equal(device_of(a), device_of(b)) == (op == Py_EQ));
}
static void device_dealloc(PyObject *self) {
  Py_XDECREF(((device_object *)self)->saved);
  PyObject_Free(self);
}

// Pickles go through functions of phlox._C, so that they load whether or not `torch` is bound.
static PyObject *device_reduce(PyObject *self, PyObject *unused) {
  char text[PX_DEVICE_TEXT];
  EXT_OWNED *module = PyImport_ImportModule("phlox._C");
  PyObject *maker = module ? PyObject_GetAttrString(module, "_device_of") : NULL;
  return maker ? Py_BuildValue("N(s)", maker, px_device_format(device_of(self), text)) : NULL;
}
static PyObject *device_of_text(PyObject *module, PyObject *text) {
  px_device device;
  return ext_to_device(text, &device) < 0 ? NULL : ext_device(device);
}

static PyObject *device_enter(PyObject *self, PyObject *unused) {
  device_object *object = (device_object *)self;
  if (!object->saved) object->saved = PyList_New(0);
  PyObject *before = object->saved ? ext_device(px_device_default()) : NULL;
  if (!before) return NULL;
  int failed = PyList_Append(object->saved, before);
  Py_DECREF(before);
  if (failed) return NULL;
  EXT_TRY(px_device_set_default(object->device));
  return Py_NewRef(self);
}

static PyObject *device_exit(PyObject *self, PyObject *unused) {
  PyObject *saved = ((device_object *)self)->saved;
  Py_ssize_t depth = saved ? PyList_GET_SIZE(saved) : 0;
  if (!depth) EXT_FAIL(PyExc_RuntimeError, "device was not entered");
  px_device before = device_of(PyList_GET_ITEM(saved, depth - 1));
  if (PyList_SetSlice(saved, depth - 1, depth, NULL) < 0) return NULL;
  EXT_TRY(px_device_set_default(before));
  Py_RETURN_NONE;
}

static PyObject *get_type(PyObject *self, void *unused) {
  return PyUnicode_InternFromString(px_device_type_name(device_of(self).type));
}
static PyObject *get_index(PyObject *self, void *unused) {
  if (device_of(self).index < 0) Py_RETURN_NONE;
  return PyLong_FromLong(device_of(self).index);
}
static int refuse_type(PyObject *self, PyObject *value, void *name) {
  EXT_FAIL_INT(PyExc_AttributeError, "attribute '%s' of 'torch.device' objects is not writable",
               (const char *)name);
}

static PyGetSetDef getset[] = {{"type", get_type, refuse_type, NULL, "type"},
                               {"index", get_index, refuse_type, NULL, "index"},
                               {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef methods[] = {{"__reduce__", device_reduce, METH_NOARGS, NULL},
                                {"__enter__", device_enter, METH_NOARGS, NULL},
                                {"__exit__", device_exit, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
PyTypeObject ext_DeviceType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.device",
    .tp_basicsize = sizeof(device_object),
    .tp_doc = "Where a tensor is: device('cuda', 1), device('cuda:1'), device('cpu').",
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = device_new,
    .tp_dealloc = device_dealloc,
    .tp_repr = device_repr,
    .tp_str = device_str,
    .tp_hash = device_hash,
    .tp_richcompare = device_compare,
    .tp_methods = methods,
    .tp_getset = getset,
};

EXT_FAST(set_default_device) {
  EXT_ARGS("set_default_device", "device", out);
  px_device device;
  if (ext_to_device(out[0], &device) < 0) return NULL;
  EXT_TRY(px_device_set_default(device));
  Py_RETURN_NONE;
}

static PyObject *get_default_device(PyObject *self, PyObject *unused) {
  px_device device = px_device_default();
  if (device.type == PX_CUDA && device.index < 0) device.index = (int16_t)px_device_peek();
  return ext_device(device);
}

static PyMethodDef functions[] = {{"_device_of", device_of_text, METH_O, NULL},
                                  EXT_DEF("set_default_device", set_default_device),
                                  {"get_default_device", get_default_device, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int ext_init_device(PyObject *m) {
  if (ext_add_type(m, "device", &ext_DeviceType) < 0) return -1;
  return PyModule_AddFunctions(m, functions);
}
