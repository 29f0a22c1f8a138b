// SPDX-License-Identifier: Apache-2.0
// Storages: the memory of tensors. Tensor.untyped_storage() is sized in bytes, the deprecated
// storage() in elements of a dtype. Each call creates an object; objects of the same memory are
// equal.
#include "io/unpickle.h"

typedef struct storage_object {
  PyObject_HEAD px_storage *storage;
  px_dtype dtype;  // PX_DTYPE_NONE: untyped
} storage_object;
static PyTypeObject untyped_type, typed_type;

static px_storage *storage_of(PyObject *self) { return ((storage_object *)self)->storage; }
static px_dtype dtype_of(PyObject *self) { return ((storage_object *)self)->dtype; }

static PyObject *storage_wrap(px_storage *storage_take, px_dtype dtype) {
  storage_object *self = ext_new(dtype == PX_DTYPE_NONE ? &untyped_type : &typed_type);
  if (!self) {
    px_release(storage_take);
    return NULL;
  }
  self->storage = storage_take;
  self->dtype = dtype;
  return (PyObject *)self;
}

static Py_ssize_t storage_length(PyObject *self) {
  size_t bytes = px_storage_bytes(storage_of(self));
  return (Py_ssize_t)(dtype_of(self) == PX_DTYPE_NONE ? bytes
                                                      : bytes / px_dtype_size(dtype_of(self)));
}
static PyObject *storage_title(PyObject *self) {
  char text[PX_DEVICE_TEXT];
  px_dtype dtype = dtype_of(self);
  px_device_format(px_storage_device(storage_of(self)), text);
  if (dtype == PX_DTYPE_NONE)
    return PyUnicode_FromFormat("[torch.storage.UntypedStorage(device=%s) of size %zd]", text,
                                storage_length(self));
  return PyUnicode_FromFormat("[torch.storage.TypedStorage(dtype=torch.%s, device=%s) of size %zd]",
                              px_dtype_name(dtype), text, storage_length(self));
}
static Py_hash_t storage_hash(PyObject *self) { return Py_HashPointer(storage_of(self)); }
static PyObject *storage_compare(PyObject *a, PyObject *b, int op) {
  if (!Py_IS_TYPE(b, Py_TYPE(a)) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((storage_of(a) == storage_of(b)) == (op == Py_EQ));
}

// Elements as a 1-D tensor over the same memory.
static PyObject *flat_tensor(PyObject *self) {
  px_dtype dtype = dtype_of(self);
  if (dtype == PX_DTYPE_NONE) dtype = PX_UINT8;
  int64_t count = storage_length(self);
  px_tensor *made = NULL;
  px_status status = px_tensor_wrap(
      &made, px_storage_data(storage_of(self)), px_storage_bytes(storage_of(self)), 1, &count, NULL,
      dtype, px_storage_device(storage_of(self)), px_release, px_retain(storage_of(self)));
  if (status == PX_OK) return ext_wrap(made);
  px_release(storage_of(self));
  return ext_raise();
}
// One element per line, then the title, as in PyTorch.
static PyObject *storage_repr(PyObject *self) {
  EXT_OWNED *elements = flat_tensor(self);
  EXT_OWNED *list = elements ? PyObject_CallMethod(elements, "tolist", NULL) : NULL;
  EXT_OWNED *title = list ? storage_title(self) : NULL;
  EXT_OWNED *texts = title ? PyList_New(0) : NULL;
  EXT_OWNED *space = PyUnicode_FromString(" ");
  if (texts && space && !PyList_GET_SIZE(list) && PyList_Append(texts, space) < 0) return NULL;
  for (Py_ssize_t i = 0; texts && i < PyList_GET_SIZE(list); i++) {
    EXT_OWNED *line = PyUnicode_FromFormat(" %S", PyList_GET_ITEM(list, i));
    if (!line || PyList_Append(texts, line) < 0) return NULL;
  }
  if (!texts || PyList_Append(texts, title) < 0) return NULL;
  EXT_OWNED *comma = PyUnicode_FromString("\n");
  return comma ? PyUnicode_Join(comma, texts) : NULL;
}
// A slice of an untyped storage, sharing the memory.
static PyObject *slice_bytes(PyObject *self, PyObject *slice) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return NULL;
  int64_t count = PySlice_AdjustIndices(storage_length(self), &start, &stop, step);
  if (step != 1)
    EXT_FAIL(PyExc_RuntimeError,
             "Trying to slice with a step of %zd, but only a step of 1 is supported", step);
  px_storage *storage = storage_of(self);
  px_tensor *made = NULL;
  px_status status =
      px_tensor_wrap(&made, (char *)px_storage_data(storage) + start, (size_t)count, 1, &count,
                     NULL, PX_UINT8, px_storage_device(storage), px_release, px_retain(storage));
  if (status != PX_OK) {
    px_release(storage);
    return ext_raise();
  }
  PyObject *result = storage_wrap(px_retain(px_tensor_storage(made)), PX_DTYPE_NONE);
  px_release(made);
  return result;
}
static PyObject *storage_item(PyObject *self, PyObject *index) {
  if (PySlice_Check(index) && dtype_of(self) == PX_DTYPE_NONE) return slice_bytes(self, index);
  if (PySlice_Check(index))
    EXT_FAIL(PyExc_RuntimeError, "slices are only supported in UntypedStorage.__getitem__");
  EXT_OWNED *elements = flat_tensor(self);
  EXT_OWNED *element = elements ? ext_getitem(elements, index) : NULL;
  return element ? PyObject_CallMethod(element, "tolist", NULL) : NULL;
}
static PyObject *storage_iter(PyObject *self) {
  EXT_OWNED *elements = flat_tensor(self);
  EXT_OWNED *list = elements ? PyObject_CallMethod(elements, "tolist", NULL) : NULL;
  return list ? PyObject_GetIter(list) : NULL;
}
static int storage_set_item(PyObject *self, PyObject *index, PyObject *value) {
  EXT_OWNED *elements = flat_tensor(self);
  return elements ? ext_setitem(elements, index, value) : -1;
}

// The bytes as a buffer, for Python files and checksums. CPU memory only.
static int storage_buffer(PyObject *self, Py_buffer *view, int flags) {
  px_storage *storage = storage_of(self);
  if (px_storage_device(storage).type != PX_CPU)
    EXT_FAIL_INT(PyExc_BufferError, "device memory does not support the buffer protocol");
  return PyBuffer_FillInfo(view, self, px_storage_data(storage),
                           (Py_ssize_t)px_storage_bytes(storage), 0, flags);
}
static PyBufferProcs buffer = {.bf_getbuffer = storage_buffer};

// ---- the types
static PyMappingMethods mapping = {.mp_length = storage_length,
                                   .mp_subscript = storage_item,
                                   .mp_ass_subscript = storage_set_item};
EXT_OWNS(storage, EXT_CORE(storage_object, storage));
#define STORAGE_TYPE(word, name, text) \
  EXT_TYPE(word, "torch.storage." name, name " storage." name, storage_object, EXT_FINAL, text, \
           EXT_LIFETIME_SLOTS(storage), .tp_repr = storage_repr, .tp_hash = storage_hash, \
           .tp_richcompare = storage_compare, .tp_iter = storage_iter, .tp_as_mapping = &mapping)
STORAGE_TYPE(untyped, "UntypedStorage", "The memory of tensors, in bytes.");
STORAGE_TYPE(typed, "TypedStorage", "The memory of tensors, in elements of a dtype.");

EXT_SLOT(untyped, tp_as_buffer, &buffer);

// Shared by both types.
#define STORAGE_GET(name, annotation, expression, text) \
  EXT_GET(untyped, name, annotation, expression, text); \
  EXT_SAME_MEMBERS(typed, untyped_attr, name)
#define STORAGE_RETURNS(name, annotation, expression, text) \
  EXT_RETURNS(untyped, name, annotation, expression, text); \
  EXT_SAME_MEMBERS(typed, untyped, name)
STORAGE_GET(device, "device", px_storage_device(storage_of(self)), "The device of the memory.");
STORAGE_GET(is_cuda, "bool", (bool)(px_storage_device(storage_of(self)).type == PX_CUDA),
            "True if the memory is on a CUDA device.");
STORAGE_GET(dtype, "dtype | None", ext_dtype(dtype_of(self)),
            "The dtype; None for an untyped storage.");
STORAGE_RETURNS(size, "int", storage_length(self),
                "Returns the number of elements; of bytes if untyped.");
STORAGE_RETURNS(nbytes, "int", px_storage_bytes(storage_of(self)), "Returns the number of bytes.");
STORAGE_RETURNS(data_ptr, "int", px_storage_data(storage_of(self)),
                "Returns the address of the memory.");
STORAGE_RETURNS(element_size, "int",
                dtype_of(self) == PX_DTYPE_NONE ? (size_t)1 : px_dtype_size(dtype_of(self)),
                "Returns the size of an element in bytes; 1 if untyped.");
STORAGE_RETURNS(untyped, "UntypedStorage", storage_wrap(px_retain(storage_of(self)), PX_DTYPE_NONE),
                "Returns the untyped storage of the same memory.");
EXT_ALIASES(untyped, untyped_untyped, _untyped);
EXT_ALIASES(typed, untyped_untyped, _untyped);

STORAGE_RETURNS(is_shared, "bool", px_storage_is_shared(storage_of(self)),
                "Returns True if the memory can be shared with other processes.");

EXT_METHOD0(untyped, get_device, "int", "Returns the device index; -1 on the CPU.") {
  px_device device = px_storage_device(storage_of(self));
  return PyLong_FromLong(device.type == PX_CUDA ? device.index : -1);
}
EXT_METHOD0(untyped, tolist, "list", "Returns a list of the elements; of bytes if untyped.") {
  EXT_OWNED *elements = flat_tensor(self);
  return elements ? PyObject_CallMethod(elements, "tolist", NULL) : NULL;
}
EXT_METHOD(untyped, is_pinned, "(device: Device | None = None) -> bool",
           "Returns True if the memory is pinned.") {
  EXT_ARGS(PyObject *, device);
  return PyBool_FromLong(px_storage_is_pinned(storage_of(self)));
}
EXT_METHOD(untyped, pin_memory, "(device: Device | None = None) -> UntypedStorage",
           "Returns a copy in pinned memory.") {
  PyObject *device;
  px_storage *pinned = NULL;
  EXT_BIND(device);
  if (px_storage_device(storage_of(self)).type != PX_CPU)
    EXT_FAIL(PyExc_TypeError,
             "cannot pin 'torch.storage.UntypedStorage' only CPU memory can be "
             "pinned");
  EXT_WAIT(px_storage_pin(&pinned, storage_of(self)));
  return storage_wrap(pinned, dtype_of(self));
}

static PyObject *resize(PyObject *self, PyObject *size) {
  if (!PyLong_Check(size))
    EXT_FAIL(PyExc_RuntimeError, "resize_ expects an int, but got %s", Py_TYPE(size)->tp_name);
  long long count = PyLong_AsLongLong(size), item = 1;
  if (count == -1 && PyErr_Occurred()) return NULL;
  if (dtype_of(self) != PX_DTYPE_NONE) item = (long long)px_dtype_size(dtype_of(self));
  if (count < 0 || __builtin_mul_overflow(count, item, &count))
    EXT_FAIL(PyExc_RuntimeError, "resize_: a storage cannot have the size %S", size);
  EXT_WAIT(px_storage_resize(storage_of(self), (size_t)count));
  Py_RETURN_NONE;
}
EXT_METHOD(
    untyped, resize_, "(size: int) -> UntypedStorage",
    "Resizes the storage to a number of bytes, preserving contents as far as they fit. "
    "Tensors over it keep\ntheir size; tensors exceeding the storage cannot be used until it "
    "is large enough again.\n\n"
    ">>> x = torch.ones(4)\n"
    ">>> x.untyped_storage().resize_(0).nbytes()\n"
    "0\n"
    ">>> x.untyped_storage().resize_(16).nbytes()\n"
    "16\n\n"
    "Raises RuntimeError for memory not owned by the library.") {
  EXT_ARGS(PyObject *, size);
  EXT_OWNED *done = resize(self, size);
  return done ? Py_NewRef(self) : NULL;
}
EXT_METHOD(typed, resize_, "(size: int) -> None", "Resizes the storage to a number of elements.") {
  EXT_ARGS(PyObject *, size);
  return resize(self, size);
}
STORAGE_RETURNS(resizable, "bool", px_storage_resizable(storage_of(self)),
                "Returns True if the storage can be resized: its memory is owned by the library.");

// Sharing strategy set by torch.multiprocessing; process-wide.
static bool share_by_name;
static px_status share(px_storage *storage) {
  bool named = __atomic_load_n(&share_by_name, __ATOMIC_RELAXED);
  return named ? px_storage_share_named(storage) : px_storage_share(storage);
}

EXT_METHOD0(untyped, share_memory_, "UntypedStorage", "Moves the storage to shared memory.") {
  EXT_WAIT(share(storage_of(self)));
  return Py_NewRef(self);
}

// The storage itself if already on the device, else a copy.
static PyObject *storage_on(PyObject *self, px_device device) {
  if (px_device_equal(px_storage_device(storage_of(self)), device)) return Py_NewRef(self);
  EXT_OWNED *here = flat_tensor(self);
  EXT_OWNED *there = here ? ext_convert(here, device, PX_DTYPE_NONE, false, false) : NULL;
  return there ? storage_wrap(px_retain(px_tensor_storage(ext_tensor(there))), dtype_of(self))
               : NULL;
}
EXT_METHOD(untyped, cuda,
           "(device: Device | None = None, non_blocking: bool = False) -> UntypedStorage",
           "Returns a copy in CUDA memory; self if it is already on the device.") {
  ext_cuda device;
  bool non_blocking;
  EXT_BIND(device, non_blocking);
  return storage_on(self, px_cuda(device.index));
}
EXT_SAME_MEMBERS(typed, untyped, get_device, tolist, is_pinned, pin_memory, share_memory_, cuda);
STORAGE_RETURNS(cpu, "UntypedStorage", storage_on(self, px_cpu()),
                "Returns a CPU copy; self if it is already on the CPU.");

// ---- storages of tensors
EXT_RETURNS(tensor, untyped_storage, "UntypedStorage",
            storage_wrap(px_retain(px_tensor_storage(ext_tensor(self))), PX_DTYPE_NONE),
            "Returns the underlying UntypedStorage.");
EXT_RETURNS(tensor, storage, "TypedStorage",
            storage_wrap(px_retain(px_tensor_storage(ext_tensor(self))),
                         px_tensor_dtype(ext_tensor(self))),
            "Returns the underlying TypedStorage; deprecated.");
EXT_ALIASES(tensor, tensor_storage, _typed_storage);
EXT_RETURNS(tensor, is_shared, "bool", px_storage_is_shared(px_tensor_storage(ext_tensor(self))),
            "Returns True if the tensor is in shared memory. Always True for CUDA tensors.");
EXT_METHOD0(
    tensor, share_memory_, "Tensor",
    "Moves the underlying storage to shared memory, for the tensor and all its views. A no-op "
    "if it is\nalready there, and for CUDA tensors.\n\n"
    ">>> torch.zeros(2).share_memory_().is_shared()\n"
    "True\n") {
  EXT_WAIT(share(px_tensor_storage(ext_tensor(self))));
  return Py_NewRef(self);
}

EXT_CLASS_METHOD(
    untyped, from_file, "(filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage",
    "Creates a CPU storage backed by the first bytes of a file. If shared, changes are written to "
    "the\nfile, which is created or extended if needed.\n\n"
    "Raises RuntimeError for a file that cannot be read or is too short.") {
  PyObject *filename;
  bool shared;
  int64_t nbytes;
  EXT_BIND(filename, shared, nbytes);
  EXT_OWNED *made = ext_call_from("phlox._files", "mapped", "(OOL)", filename,
                                  shared ? Py_True : Py_False, (long long)nbytes);
  return made ? storage_wrap(px_retain(px_tensor_storage(ext_tensor(made))), PX_DTYPE_NONE) : NULL;
}

// ---- sharing between processes
bool ext_is_storage(PyObject *object) {
  return Py_IS_TYPE(object, &untyped_type) || Py_IS_TYPE(object, &typed_type);
}
static int check_storage(PyObject *object) {
  if (ext_is_storage(object)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "expected a storage, not %.200s", Py_TYPE(object)->tp_name);
}
EXT_FUNCTION(torch, _storage_elements, "(storage: UntypedStorage) -> Tensor",
             "Returns the elements (bytes if untyped) as a tensor sharing the memory.") {
  EXT_ARGS(PyObject *, storage);
  return check_storage(storage) < 0 ? NULL : flat_tensor(storage);
}
EXT_FUNCTION(torch, _sharing_strategy, "(by_name: bool | None = None) -> bool",
             "Sets and returns whether storages are shared by name; None only returns it.") {
  EXT_ARGS(PyObject *, by_name);
  if (by_name && by_name != Py_None)
    __atomic_store_n(&share_by_name, by_name == Py_True, __ATOMIC_RELAXED);
  return PyBool_FromLong(__atomic_load_n(&share_by_name, __ATOMIC_RELAXED));
}
EXT_FUNCTION(
    torch, _storage_fd, "(storage: UntypedStorage) -> int | None",
    "Moves a storage to shared memory and returns its file descriptor, owned by the storage. "
    "None if it is\nshared by name.") {
  EXT_ARGS(PyObject *, storage);
  int fd;
  if (check_storage(storage) < 0) return NULL;
  EXT_WAIT(share(storage_of(storage)));
  if (px_storage_is_named(storage_of(storage))) Py_RETURN_NONE;
  EXT_TRY(px_storage_fd(&fd, storage_of(storage)));
  return PyLong_FromLong(fd);
}
EXT_FUNCTION(torch, _storage_of_fd, "(fd: int, bytes: int) -> UntypedStorage",
             "Returns the storage of a shared memory file descriptor, which the caller keeps.") {
  EXT_ARGS(int64_t, fd, bytes);
  px_storage *made;
  if (bytes < 0) EXT_FAIL(PyExc_ValueError, "bytes must not be negative");
  EXT_TRY(px_storage_from_fd(&made, (int)fd, (size_t)bytes));
  return storage_wrap(made, PX_DTYPE_NONE);
}
EXT_FUNCTION(torch, _storage_name, "(storage: UntypedStorage) -> str",
             "Returns a name of shared memory, valid for one message.") {
  EXT_ARGS(PyObject *, storage);
  char name[PX_SHARED_NAME];
  if (check_storage(storage) < 0) return NULL;
  EXT_TRY(px_storage_name(name, storage_of(storage)));
  return ext_str(name);
}
EXT_FUNCTION(torch, _storage_of_name, "(name: str, bytes: int) -> UntypedStorage",
             "Returns the storage of a name from _storage_name.") {
  const char *name;
  int64_t bytes;
  px_storage *made;
  EXT_BIND(name, bytes);
  if (bytes < 0) EXT_FAIL(PyExc_ValueError, "bytes must not be negative");
  EXT_TRY(px_storage_from_name(&made, name, (size_t)bytes));
  return storage_wrap(made, PX_DTYPE_NONE);
}

// A device storage as a tuple in PyTorch's order. Related handle fields share one bytes object.
typedef struct memory_handle {
  unsigned char device[16];
  px_ipc_handle allocation;
} memory_handle;
typedef struct counter_handle {
  px_ipc_handle file;
  uint64_t serial;
} counter_handle;
static PyObject *bytes_of(const void *at, size_t size) {
  return PyBytes_FromStringAndSize(at, (Py_ssize_t)size);
}
EXT_METHOD0(untyped, _share_cuda_, "tuple",
            "Returns the arguments of _new_shared_cuda for another process to open this device "
            "memory. Each call is\none message for one receiver.") {
  px_storage_handle h;
  EXT_WAIT(px_storage_ipc_handle(&h, storage_of(self)));
  memory_handle memory = {.allocation = h.memory};
  counter_handle counter = {h.counters, h.serial};
  memcpy(memory.device, h.device, sizeof h.device);
  return Py_BuildValue("(iNKKNKNO)", px_storage_device(storage_of(self)).index,
                       bytes_of(&memory, sizeof memory), (unsigned long long)h.bytes,
                       (unsigned long long)h.offset, bytes_of(&counter, sizeof counter),
                       (unsigned long long)h.slot, bytes_of(&h.event, sizeof h.event), Py_True);
}
// Copies the bytes of one part of a handle, checking their size.
static int read_handle(void *to, size_t size, PyObject *from, const char *name) {
  if (!PyBytes_Check(from) || PyBytes_GET_SIZE(from) != (Py_ssize_t)size)
    EXT_FAIL_INT(PyExc_ValueError, "%s must be %zu bytes from _share_cuda_", name, size);
  memcpy(to, PyBytes_AS_STRING(from), size);
  return 0;
}
EXT_STATIC_METHOD(
    untyped, _new_shared_cuda,
    "(device: object, handle: bytes, size: int, offset: int, ref_counter_handle: bytes, "
    "ref_counter_offset: int, event_handle: bytes, event_sync_required: bool) -> UntypedStorage",
    "Opens a device storage of another process. `device` is its index there; the handle identifies "
    "the\ndevice itself. With `event_sync_required`, work of the current stream waits for the "
    "sender's.") {
  PyObject *device, *handle, *ref_counter_handle, *event_handle;
  int64_t size, offset, ref_counter_offset;
  bool event_sync_required;
  px_storage_handle h = {.bytes = 0};
  memory_handle memory;
  counter_handle counter;
  px_storage *made;
  EXT_BIND(device, handle, size, offset, ref_counter_handle, ref_counter_offset, event_handle,
           event_sync_required);
  if (read_handle(&memory, sizeof memory, handle, "handle") < 0 ||
      read_handle(&counter, sizeof counter, ref_counter_handle, "ref_counter_handle") < 0 ||
      read_handle(&h.event, sizeof h.event, event_handle, "event_handle") < 0)
    return NULL;
  memcpy(h.device, memory.device, sizeof h.device);
  h.memory = memory.allocation;
  h.bytes = (uint64_t)size, h.offset = (uint64_t)offset;
  h.counters = counter.file, h.serial = counter.serial, h.slot = (uint64_t)ref_counter_offset;
  if (!event_sync_required) memset(&h.event, 0, sizeof h.event);
  EXT_WAIT(px_storage_from_ipc_handle(&made, &h));
  return storage_wrap(made, PX_DTYPE_NONE);
}
EXT_METHOD0(
    torch, _ipc_collect, "int",
    "Implements cuda.ipc_collect; returns the number of storages still used by other processes.") {
  int64_t left;
  EXT_WAIT(px_storage_ipc_collect(&left));
  return PyLong_FromLongLong(left);
}

// ---- tensors over storages
static PyObject *tensor_over(PyObject *storage, px_dtype dtype, int64_t offset,
                             const ext_ints *size, const ext_ints *stride) {
  px_tensor *made = NULL;
  if (size->count != stride->count)
    EXT_FAIL(PyExc_RuntimeError, "expected %d strides, got %d", size->count, stride->count);
  EXT_TRY(px_tensor_from_storage(&made, storage_of(storage), dtype, size->count, size->items,
                                 stride->items, offset));
  return ext_wrap(made);
}
EXT_FUNCTION(torch, _tensor_of_storage,
             "(storage: UntypedStorage | TypedStorage, dtype: dtype, offset: int, "
             "size: Sequence[int], stride: Sequence[int]) -> Tensor",
             "Returns a tensor over a storage, with any geometry within it.") {
  PyObject *storage;
  px_dtype dtype;
  int64_t offset;
  ext_ints size, stride;
  EXT_BIND(storage, dtype, offset, size, stride);
  return check_storage(storage) < 0 ? NULL : tensor_over(storage, dtype, offset, &size, &stride);
}
PyObject *ext_storage_tensor(PyObject *storage, int64_t offset, const ext_ints *size,
                             const ext_ints *stride) {
  px_dtype dtype = dtype_of(storage) == PX_DTYPE_NONE ? PX_UINT8 : dtype_of(storage);
  return tensor_over(storage, dtype, offset, size, stride);
}
PyObject *ext_storage_as(PyObject *storage, px_dtype dtype) {
  return storage_wrap(px_retain(storage_of(storage)), dtype);
}
EXT_FUNCTION(torch, is_storage, "(obj: object) -> bool",
             "Returns True if obj is a storage object.") {
  EXT_ARGS(PyObject *, obj);
  return PyBool_FromLong(ext_is_storage(obj));
}

EXT_MODULE(storage, "storage", "Storage classes.");
