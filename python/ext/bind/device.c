// SPDX-License-Identifier: Apache-2.0
// torch.device: an immutable (type, index). Common devices are shared singletons: x.device costs
// one reference. As a context manager it sets the default device of factories.
#include "bind/ext.h"

#include <string.h>

typedef struct device_object {
  PyObject_HEAD px_device device;
  PyObject *saved;  // list of defaults to restore on exit
} device_object;

// Immortal: borrowed pointers stay valid.
enum { SHARED = 17 };  // no index, and indexes 0 to 15
static PyObject *shared[PX_DEVICE_TYPES][SHARED];

bool ext_is_device(PyObject *object) { return Py_IS_TYPE(object, &ext_DeviceType); }
static px_device device_of(PyObject *self) { return ((device_object *)self)->device; }

static PyObject *device_make(px_device device) {
  device_object *self = ext_new(&ext_DeviceType);
  if (self) self->device = device;
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
  if (ext_is_none(object)) return *out = PX_DEVICE_NONE, 0;
  if (ext_is_device(object)) return *out = device_of(object), 0;
  if (PyUnicode_Check(object)) {
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) return -1;
    if (strlen(text) != (size_t)size)
      EXT_FAIL_INT(PyExc_RuntimeError, "Invalid device string: %R", object);
    return ext_zero(px_device_parse(out, text));
  }
  if (PyLong_Check(object) && !PyBool_Check(object)) {
    int64_t index;
    return ext_to_int(object, &index) < 0 ? -1 : device_from_index(index, out);
  }
  EXT_FAIL_INT(PyExc_TypeError, "must be torch.device, not %s", ext_type_name(object));
}

int ext_to_scope_index(PyObject *object, int *out) {
  px_device device;
  int64_t index;
  char text[PX_DEVICE_TEXT];
  if (PyLong_Check(object))
    return ext_to_int(object, &index) < 0 ? -1 : (*out = ext_clamp_device_index(index), 0);
  if (ext_to_device(object, &device) < 0) return -1;
  if (device.type != PX_CUDA)
    EXT_FAIL_INT(PyExc_ValueError, "Expected a cuda device, but got: %s",
                 px_device_format(device, text));
  *out = device.index;
  return 0;
}

int ext_to_cuda_index(PyObject *object, int *out) {
  bool none = ext_is_none(object), number = !none && PyLong_Check(object);
  *out = -1;
  if (!none && ext_to_scope_index(object, out) < 0) return -1;
  if (*out < 0 && !number) EXT_TRY_INT(px_device_current(out));
  return 0;
}

static PyObject *fail_arguments(PyObject *object) {
  EXT_FAIL(PyExc_TypeError,
           "device() received an invalid combination of arguments - got (%s), but expected one "
           "of:\n * (torch.device device)\n      didn't match because some of the arguments have "
           "invalid types: (!%s!)\n * (str type, int index = -1)\n",
           ext_type_name(object), ext_type_name(object));
}

// An index of None is none.
static PyObject *device_with_index(PyObject *type, PyObject *index) {
  px_device device;
  int64_t number;
  if (!PyUnicode_Check(type))
    EXT_FAIL(PyExc_TypeError, "device(): argument 'type' (position 1) must be str, not %s",
             ext_type_name(type));
  if (index != Py_None && (!PyLong_Check(index) || PyBool_Check(index)))
    EXT_FAIL(PyExc_TypeError, "device(): argument 'index' (position 2) must be int, not %s",
             ext_type_name(index));
  if (ext_to_device(type, &device) < 0) return NULL;
  if (device.index >= 0)
    EXT_FAIL(PyExc_RuntimeError,
             "type (string) must not include an index because index was passed explicitly: %U",
             type);
  if (index == Py_None) return ext_device(device);
  if (ext_to_int(index, &number) < 0) return NULL;
  if (number < 0) EXT_FAIL(PyExc_RuntimeError, "Device index must not be negative");
  if (number > 127)
    EXT_FAIL(PyExc_RuntimeError, "Device index is too large: %lld", (long long)number);
  device.index = (int16_t)number;
  return ext_device(device);
}

EXT_NEW(device, "(type: Device, index: int = -1)") {
  px_device device;
  PyObject *type_, *index;
  bool one = call->kwargs && PyDict_Size(call->kwargs) == 1 && !call->nargs;
  PyObject *named = one ? PyDict_GetItemString(call->kwargs, "device") : NULL;
  if (named) return ext_to_device(named, &device) < 0 ? NULL : ext_device(device);
  EXT_BIND(type_, index);
  if (index) return device_with_index(type_, index);
  if (!ext_is_device(type_) && !PyUnicode_Check(type_) &&
      (!PyLong_Check(type_) || PyBool_Check(type_)))
    return fail_arguments(type_);
  return ext_to_device(type_, &device) < 0 ? NULL : ext_device(device);
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

EXT_OWNS(device, EXT_OBJECT(device_object, saved));
EXT_SHARED_TYPE(
    device, ext_DeviceType, "torch.device", "device", device_object, EXT_FINAL,
    "The device of a tensor: a type, \"cpu\" or \"cuda\", and an optional index. A device of type "
    "cuda\nwithout an index is the current one.\n\n"
    "Args:\n"
    "    type (str, int or torch.device): \"cuda:1\", \"cuda\", \"cpu\", or the index of a CUDA "
    "device\n"
    "    index (int): the index, if type has none\n\n"
    "Can be used as a context manager that sets the default device of factories, like\n"
    "torch.set_default_device.\n\n"
    ">>> torch.device('cuda', 1)\n"
    "device(type='cuda', index=1)\n"
    ">>> str(torch.device('cuda:1')), torch.device('cpu').type\n"
    "('cuda:1', 'cpu')\n",
    EXT_LIFETIME_SLOTS(device), .tp_new = device_new, .tp_repr = device_repr, .tp_str = device_str,
    .tp_hash = device_hash, .tp_richcompare = device_compare);

// Rejects assignment with PyTorch's message instead of CPython's for missing setters.
static int fail_assign(const char *name) {
  EXT_FAIL_INT(PyExc_AttributeError, "attribute '%s' of 'torch.device' objects is not writable",
               name);
}
EXT_GETTER_AND_SETTER(device, type, "str", "The device type: \"cpu\" or \"cuda\".") {
  return PyUnicode_InternFromString(px_device_type_name(device_of(self).type));
}
EXT_SETTER(device, type) { return fail_assign("type"); }
EXT_GETTER_AND_SETTER(device, index, "int | None", "The device index, or None.") {
  if (device_of(self).index < 0) Py_RETURN_NONE;
  return PyLong_FromLong(device_of(self).index);
}
EXT_SETTER(device, index) { return fail_assign("index"); }

// Pickles refer to functions of phlox._C: they load even if `torch` is not bound to Phlox.
EXT_METHOD0(device, __reduce__, "tuple", NULL) {
  return Py_BuildValue("N(N)", ext_extension_attr("_device_of"), device_str(self));
}
EXT_FUNCTION(torch, _device_of, "(device: Device) -> device", "Rebuilds a pickled device.") {
  EXT_ARGS(px_device, device);
  return ext_device(device);
}

EXT_METHOD0(device, __enter__, "device", NULL) {
  device_object *object = (device_object *)self;
  if (!object->saved) object->saved = PyList_New(0);
  EXT_OWNED *before = object->saved ? ext_device(px_device_preferred()) : NULL;
  if (!before || PyList_Append(object->saved, before) < 0) return NULL;
  EXT_TRY(px_device_set_default(object->device));
  return Py_NewRef(self);
}
EXT_METHOD(device, __exit__, "(*exc: object) -> None", NULL) {
  PyObject *saved = ((device_object *)self)->saved;
  Py_ssize_t depth = saved ? PyList_GET_SIZE(saved) : 0;
  if (!depth) EXT_FAIL(PyExc_RuntimeError, "the device was not entered");
  PyObject *last = PyList_GET_ITEM(saved, depth - 1);
  px_device before = last == Py_None ? PX_DEVICE_NONE : device_of(last);
  if (PyList_SetSlice(saved, depth - 1, depth, NULL) < 0) return NULL;
  return ext_none(px_device_set_default(before));
}

EXT_FUNCTION(torch, set_default_device, "(device: Device | None) -> None",
             "Sets the default device of factories in this thread.\n\n"
             "Args:\n"
             "    device (torch.device, str, int or None): the default device; None resets it\n\n"
             ">>> torch.set_default_device('cpu')\n") {
  EXT_ARGS(px_device, device);
  return ext_none(px_device_set_default(device));
}
EXT_FUNCTION0(torch, get_default_device, "device",
              "Returns the default device of factories in this thread.\n\n"
              ">>> torch.get_default_device()\n"
              "device(type='cpu')\n") {
  px_device device = px_device_default();
  if (device.type == PX_CUDA && device.index < 0) device.index = (int16_t)px_device_peek();
  return ext_device(device);
}

static int to_device(PyObject *object, void *out) { return ext_to_device(object, out); }
EXT_CONVERTS(EXT_KIND_DEVICE, to_device);
static int to_cuda(PyObject *object, void *out) { return ext_to_cuda_index(object, out); }
EXT_CONVERTS(EXT_KIND_CUDA, to_cuda);
