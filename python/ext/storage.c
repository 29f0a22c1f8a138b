// SPDX-License-Identifier: Apache-2.0
// Storages: the memory of tensors. Tensor.untyped_storage() and the older storage().
#include "ext.h"

typedef struct storage_object {
  PyObject_HEAD px_storage *storage;
  px_dtype dtype;  // PX_DTYPE_NONE: untyped, counted in bytes
} storage_object;
static PyTypeObject storage_type, typed_type;

static px_storage *storage_of(PyObject *self) { return ((storage_object *)self)->storage; }

static PyObject *storage_wrap(px_storage *storage_take, px_dtype dtype) {
  storage_object *self =
      PyObject_New(storage_object, dtype == PX_DTYPE_NONE ? &storage_type : &typed_type);
  if (!self) {
    px_release(storage_take);
    return NULL;
  }
  self->storage = storage_take;
  self->dtype = dtype;
  return (PyObject *)self;
}
static void storage_dealloc(PyObject *self) {
  px_release(storage_of(self));
  PyObject_Free(self);
}

static Py_ssize_t storage_length(PyObject *self) {
  px_dtype dtype = ((storage_object *)self)->dtype;
  size_t bytes = px_storage_bytes(storage_of(self));
  return (Py_ssize_t)(dtype == PX_DTYPE_NONE ? bytes : bytes / px_dtype_size(dtype));
}
static PyObject *storage_size(PyObject *self, PyObject *u) {
  return PyLong_FromSsize_t(storage_length(self));
}
static PyObject *storage_nbytes(PyObject *self, PyObject *u) {
  return PyLong_FromSize_t(px_storage_bytes(storage_of(self)));
}
static PyObject *storage_data_ptr(PyObject *self, PyObject *u) {
  return PyLong_FromVoidPtr(px_storage_data(storage_of(self)));
}
static PyObject *storage_element_size(PyObject *self, PyObject *u) {
  px_dtype dtype = ((storage_object *)self)->dtype;
  return PyLong_FromSize_t(dtype == PX_DTYPE_NONE ? 1 : px_dtype_size(dtype));
}
EXT_FAST(storage_is_pinned) {
  EXT_ARGS("is_pinned", "|device", out);
  return PyBool_FromLong(px_storage_is_pinned(storage_of(self)));
}
EXT_FAST(storage_pin_memory) {
  EXT_ARGS("pin_memory", "|device", out);
  px_storage *pinned = NULL;
  if (px_storage_device(storage_of(self)).type != PX_CPU)
    EXT_FAIL(PyExc_TypeError,
             "cannot pin 'torch.storage.UntypedStorage' only CPU memory can be "
             "pinned");
  EXT_WAIT(px_storage_pin(&pinned, storage_of(self)));
  return storage_wrap(pinned, ((storage_object *)self)->dtype);
}
static PyObject *storage_untyped(PyObject *self, PyObject *u) {
  return storage_wrap(px_retain(storage_of(self)), PX_DTYPE_NONE);
}
static PyObject *storage_device(PyObject *self, void *u) {
  return ext_device(px_storage_device(storage_of(self)));
}
static PyObject *storage_is_cuda(PyObject *self, void *u) {
  return PyBool_FromLong(px_storage_device(storage_of(self)).type == PX_CUDA);
}
static PyObject *storage_dtype(PyObject *self, void *u) {
  return ext_dtype(((storage_object *)self)->dtype);
}
static PyObject *storage_get_device(PyObject *self, PyObject *u) {
  px_device device = px_storage_device(storage_of(self));
  return PyLong_FromLong(device.type == PX_CUDA ? device.index : -1);
}
static PyObject *storage_repr(PyObject *self) {
  char text[PX_DEVICE_TEXT];
  px_dtype dtype = ((storage_object *)self)->dtype;
  px_device device = px_storage_device(storage_of(self));
  if (dtype == PX_DTYPE_NONE)
    return PyUnicode_FromFormat("[torch.storage.UntypedStorage(device=%s) of size %zd]",
                                px_device_format(device, text), storage_length(self));
  return PyUnicode_FromFormat("[torch.storage.TypedStorage(dtype=torch.%s, device=%s) of size %zd]",
                              px_dtype_name(dtype), px_device_format(device, text),
                              storage_length(self));
}
static Py_hash_t storage_hash(PyObject *self) { return _Py_HashPointer(storage_of(self)); }
static PyObject *storage_compare(PyObject *a, PyObject *b, int op) {
  if (!Py_IS_TYPE(b, Py_TYPE(a)) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((storage_of(a) == storage_of(b)) == (op == Py_EQ));
}

// The elements as a flat tensor over the same memory.
static px_tensor *as_tensor(PyObject *self) {
  px_dtype dtype = ((storage_object *)self)->dtype;
  if (dtype == PX_DTYPE_NONE) dtype = PX_UINT8;
  int64_t count = storage_length(self);
  px_tensor *made = NULL;
  px_status status = px_tensor_wrap(
      &made, px_storage_data(storage_of(self)), px_storage_bytes(storage_of(self)), 1, &count, NULL,
      dtype, px_storage_device(storage_of(self)), px_release, px_retain(storage_of(self)));
  if (status == PX_OK) return made;
  px_release(storage_of(self));
  return ext_raise();
}
static PyObject *storage_tolist(PyObject *self, PyObject *u) {
  px_tensor *flat = as_tensor(self);
  EXT_OWNED *object = flat ? ext_wrap(flat) : NULL;
  return object ? PyObject_CallMethod(object, "tolist", NULL) : NULL;
}
static PyObject *storage_item(PyObject *self, PyObject *index) {
  px_tensor *flat = as_tensor(self);
  EXT_OWNED *object = flat ? ext_wrap(flat) : NULL;
  EXT_OWNED *element = object ? ext_getitem(object, index) : NULL;
  return element ? PyObject_CallMethod(element, "tolist", NULL) : NULL;
}
static int storage_set_item(PyObject *self, PyObject *index, PyObject *value) {
  px_tensor *flat = as_tensor(self);
  EXT_OWNED *object = flat ? ext_wrap(flat) : NULL;
  return object ? ext_setitem(object, index, value) : -1;
}

// The storage itself where it is there already, else a copy on the device.
static PyObject *storage_on(PyObject *self, px_device device) {
  if (px_device_equal(px_storage_device(storage_of(self)), device)) return Py_NewRef(self);
  px_tensor *flat = as_tensor(self);
  EXT_OWNED *object = flat ? ext_wrap(flat) : NULL;
  EXT_OWNED *moved = object ? ext_convert(object, device, PX_DTYPE_NONE, false, false) : NULL;
  if (!moved) return NULL;
  return storage_wrap(px_retain(px_tensor_storage(ext_tensor(moved))),
                      ((storage_object *)self)->dtype);
}
EXT_FAST(storage_cuda) {
  EXT_ARGS("cuda", "|device non_blocking", out);
  int index;
  if (ext_to_cuda_index(out[0], &index) < 0) return NULL;
  return storage_on(self, px_cuda(index));
}
static PyObject *storage_cpu(PyObject *self, PyObject *u) { return storage_on(self, px_cpu()); }

static PyMethodDef storage_methods[] = {{"size", storage_size, METH_NOARGS, NULL},
                                        {"nbytes", storage_nbytes, METH_NOARGS, NULL},
                                        {"data_ptr", storage_data_ptr, METH_NOARGS, NULL},
                                        {"element_size", storage_element_size, METH_NOARGS, NULL},
                                        {"get_device", storage_get_device, METH_NOARGS, NULL},
                                        {"untyped", storage_untyped, METH_NOARGS, NULL},
                                        {"_untyped", storage_untyped, METH_NOARGS, NULL},
                                        {"tolist", storage_tolist, METH_NOARGS, NULL},
                                        {"cpu", storage_cpu, METH_NOARGS, NULL},
                                        EXT_DEF("cuda", storage_cuda),
                                        EXT_DEF("is_pinned", storage_is_pinned),
                                        EXT_DEF("pin_memory", storage_pin_memory),
                                        {NULL, NULL, 0, NULL}};
static PyGetSetDef storage_getset[] = {{"device", storage_device, NULL, NULL, NULL},
                                       {"is_cuda", storage_is_cuda, NULL, NULL, NULL},
                                       {"dtype", storage_dtype, NULL, NULL, NULL},
                                       {NULL, NULL, NULL, NULL, NULL}};
static PyMappingMethods storage_mapping = {.mp_length = storage_length,
                                           .mp_subscript = storage_item,
                                           .mp_ass_subscript = storage_set_item};
#define STORAGE_TYPE(variable, name) \
  static PyTypeObject variable = { \
      PyVarObject_HEAD_INIT(NULL, 0).tp_name = name, \
      .tp_basicsize = sizeof(storage_object), \
      .tp_flags = Py_TPFLAGS_DEFAULT, \
      .tp_dealloc = storage_dealloc, \
      .tp_repr = storage_repr, \
      .tp_hash = storage_hash, \
      .tp_richcompare = storage_compare, \
      .tp_as_mapping = &storage_mapping, \
      .tp_methods = storage_methods, \
      .tp_getset = storage_getset, \
  }
STORAGE_TYPE(storage_type, "torch.storage.UntypedStorage");
STORAGE_TYPE(typed_type, "torch.storage.TypedStorage");

static PyObject *tensor_untyped_storage(PyObject *self, PyObject *u) {
  return storage_wrap(px_retain(px_tensor_storage(ext_tensor(self))), PX_DTYPE_NONE);
}
static PyObject *tensor_storage(PyObject *self, PyObject *u) {
  return storage_wrap(px_retain(px_tensor_storage(ext_tensor(self))),
                      px_tensor_dtype(ext_tensor(self)));
}
static PyObject *is_storage(PyObject *m, PyObject *object) {
  return PyBool_FromLong(Py_IS_TYPE(object, &storage_type) || Py_IS_TYPE(object, &typed_type));
}
static PyMethodDef methods[] = {{"untyped_storage", tensor_untyped_storage, METH_NOARGS, NULL},
                                {"storage", tensor_storage, METH_NOARGS, NULL},
                                {"_typed_storage", tensor_storage, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyMethodDef functions[] = {{"is_storage", is_storage, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static int ext_init_storage(PyObject *m) {
  PyObject *storage = ext_submodule(m, "storage", NULL);
  if (!storage || ext_add_type(m, "UntypedStorage", &storage_type) < 0 ||
      ext_add_type(storage, "UntypedStorage", &storage_type) < 0 ||
      ext_add_type(m, "TypedStorage", &typed_type) < 0 ||
      ext_add_type(storage, "TypedStorage", &typed_type) < 0)
    return -1;
  return ext_add_methods(ext_TensorType, methods) < 0 ? -1 : PyModule_AddFunctions(m, functions);
}
EXT_START(EXT_VALUES, ext_init_storage);
