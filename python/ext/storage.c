// SPDX-License-Identifier: Apache-2.0
// Storages: the memory of tensors. Tensor.untyped_storage() counts in bytes, the older storage() in
// elements of a dtype; both are made anew at each call, and equal where the memory is the same.
#include "unpickle.h"

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
static Py_hash_t storage_hash(PyObject *self) { return _Py_HashPointer(storage_of(self)); }
static PyObject *storage_compare(PyObject *a, PyObject *b, int op) {
  if (!Py_IS_TYPE(b, Py_TYPE(a)) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((storage_of(a) == storage_of(b)) == (op == Py_EQ));
}

// The elements as a flat tensor over the same memory.
static PyObject *flat(PyObject *self) {
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
// Each element in a line, as PyTorch writes them, and the title.
static PyObject *storage_repr(PyObject *self) {
  EXT_OWNED *elements = flat(self);
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
// Bytes of the memory, which is shared.
static PyObject *part(PyObject *self, PyObject *slice) {
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
  if (PySlice_Check(index) && dtype_of(self) == PX_DTYPE_NONE) return part(self, index);
  if (PySlice_Check(index))
    EXT_FAIL(PyExc_RuntimeError, "slices are only supported in UntypedStorage.__getitem__");
  EXT_OWNED *elements = flat(self);
  EXT_OWNED *element = elements ? ext_getitem(elements, index) : NULL;
  return element ? PyObject_CallMethod(element, "tolist", NULL) : NULL;
}
static PyObject *storage_iter(PyObject *self) {
  EXT_OWNED *elements = flat(self);
  EXT_OWNED *list = elements ? PyObject_CallMethod(elements, "tolist", NULL) : NULL;
  return list ? PyObject_GetIter(list) : NULL;
}
static int storage_set_item(PyObject *self, PyObject *index, PyObject *value) {
  EXT_OWNED *elements = flat(self);
  return elements ? ext_setitem(elements, index, value) : -1;
}

// The bytes, for Python's files and checksums. Those of a device are nobody's to read.
static int storage_buffer(PyObject *self, Py_buffer *view, int flags) {
  px_storage *storage = storage_of(self);
  if (px_storage_device(storage).type != PX_CPU)
    EXT_FAIL_INT(PyExc_BufferError, "the memory of a device has no buffer");
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

// Both have these.
#define STORAGE_GET(name, annotation, expression, text) \
  EXT_GET(untyped, name, annotation, expression, text); \
  EXT_SAME_MEMBERS(typed, untyped_attr, name)
#define STORAGE_GIVES(name, annotation, expression, text) \
  EXT_RETURNS(untyped, name, annotation, expression, text); \
  EXT_SAME_MEMBERS(typed, untyped, name)
STORAGE_GET(device, "device", px_storage_device(storage_of(self)), "Where the memory is.");
STORAGE_GET(is_cuda, "bool", (bool)(px_storage_device(storage_of(self)).type == PX_CUDA),
            "Whether it is on a device of type cuda.");
STORAGE_GET(dtype, "dtype | None", ext_dtype(dtype_of(self)), "None where it is untyped.");
STORAGE_GIVES(size, "int", storage_length(self), "The number of elements, or of bytes.");
STORAGE_GIVES(nbytes, "int", px_storage_bytes(storage_of(self)), "The number of bytes.");
STORAGE_GIVES(data_ptr, "int", px_storage_data(storage_of(self)), "The address.");
STORAGE_GIVES(element_size, "int",
              dtype_of(self) == PX_DTYPE_NONE ? (size_t)1 : px_dtype_size(dtype_of(self)),
              "Bytes of an element; 1 where it is untyped.");
STORAGE_GIVES(untyped, "UntypedStorage", storage_wrap(px_retain(storage_of(self)), PX_DTYPE_NONE),
              "The same memory, in bytes.");
EXT_ALIASES(untyped, untyped_untyped, _untyped);
EXT_ALIASES(typed, untyped_untyped, _untyped);

STORAGE_GIVES(is_shared, "bool", px_storage_is_shared(storage_of(self)),
              "Whether other processes can have the memory.");

EXT_METHOD0(untyped, get_device, "int", "The index of its device; -1 on the CPU.") {
  px_device device = px_storage_device(storage_of(self));
  return PyLong_FromLong(device.type == PX_CUDA ? device.index : -1);
}
EXT_METHOD0(untyped, tolist, "list", "The elements, or the bytes, as numbers.") {
  EXT_OWNED *elements = flat(self);
  return elements ? PyObject_CallMethod(elements, "tolist", NULL) : NULL;
}
EXT_METHOD(untyped, is_pinned, "(device: Device | None = None) -> bool",
           "Whether it is pinned memory.") {
  EXT_ARGS(PyObject *, device);
  return PyBool_FromLong(px_storage_is_pinned(storage_of(self)));
}
EXT_METHOD(untyped, pin_memory, "(device: Device | None = None) -> UntypedStorage",
           "A copy in pinned memory.") {
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
EXT_METHOD(untyped, resize_, "(size: int) -> UntypedStorage",
           "Gives the storage memory of that many bytes, with its contents as far as they fit. "
           "Tensors over it\nkeep their sizes; those that reach past its end cannot be used until "
           "it is long enough again.\n\n"
           ">>> x = torch.ones(4)\n"
           ">>> x.untyped_storage().resize_(0).nbytes()\n"
           "0\n"
           ">>> x.untyped_storage().resize_(16).nbytes()\n"
           "16\n\n"
           "Raises RuntimeError for memory of somebody else.") {
  EXT_ARGS(PyObject *, size);
  EXT_OWNED *done = resize(self, size);
  return done ? Py_NewRef(self) : NULL;
}
EXT_METHOD(typed, resize_, "(size: int) -> None", "The same, in elements.") {
  EXT_ARGS(PyObject *, size);
  return resize(self, size);
}
STORAGE_GIVES(resizable, "bool", px_storage_resizable(storage_of(self)),
              "Whether resize_ can be called: the memory is nobody else's.");

// The strategy that torch.multiprocessing has set; of all threads.
static bool shares_by_name;
static px_status share(px_storage *storage) {
  bool named = __atomic_load_n(&shares_by_name, __ATOMIC_RELAXED);
  return named ? px_storage_share_named(storage) : px_storage_share(storage);
}

EXT_METHOD0(untyped, share_memory_, "UntypedStorage",
            "Moves the memory to shared memory, which other processes can have too.") {
  EXT_WAIT(share(storage_of(self)));
  return Py_NewRef(self);
}

// The storage itself where it is there already, else a copy on the device.
static PyObject *storage_on(PyObject *self, px_device device) {
  if (px_device_equal(px_storage_device(storage_of(self)), device)) return Py_NewRef(self);
  EXT_OWNED *here = flat(self);
  EXT_OWNED *there = here ? ext_convert(here, device, PX_DTYPE_NONE, false, false) : NULL;
  return there ? storage_wrap(px_retain(px_tensor_storage(ext_tensor(there))), dtype_of(self))
               : NULL;
}
EXT_METHOD(untyped, cuda,
           "(device: Device | None = None, non_blocking: bool = False) -> UntypedStorage",
           "A copy on a device, or itself where it is there.") {
  ext_cuda device;
  bool non_blocking;
  EXT_BIND(device, non_blocking);
  return storage_on(self, px_cuda(device.index));
}
EXT_SAME_MEMBERS(typed, untyped, get_device, tolist, is_pinned, pin_memory, share_memory_, cuda);
STORAGE_GIVES(cpu, "UntypedStorage", storage_on(self, px_cpu()),
              "A copy in the host's memory, or itself where it is there.");

// ---- of tensors
EXT_RETURNS(tensor, untyped_storage, "UntypedStorage",
            storage_wrap(px_retain(px_tensor_storage(ext_tensor(self))), PX_DTYPE_NONE),
            "The memory that the tensor is a view of, in bytes.");
EXT_RETURNS(tensor, storage, "TypedStorage",
            storage_wrap(px_retain(px_tensor_storage(ext_tensor(self))),
                         px_tensor_dtype(ext_tensor(self))),
            "The memory that the tensor is a view of, in elements: the older form.");
EXT_ALIASES(tensor, tensor_storage, _typed_storage);
EXT_RETURNS(tensor, is_shared, "bool", px_storage_is_shared(px_tensor_storage(ext_tensor(self))),
            "Whether other processes can have the memory: always, of a device's tensor.");
EXT_METHOD0(tensor, share_memory_, "Tensor",
            "Moves the memory of the tensor, and of all that are views of it, to shared memory. "
            "Nothing\nhappens if it is there, or on a device.\n\n"
            ">>> torch.zeros(2).share_memory_().is_shared()\n"
            "True\n") {
  EXT_WAIT(share(px_tensor_storage(ext_tensor(self))));
  return Py_NewRef(self);
}

EXT_CLASS_METHOD(
    untyped, from_file, "(filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage",
    "The first bytes of a file as a storage on the CPU. With shared, changes go to the "
    "file, which is made,\nor made longer, where it must be.\n\n"
    "Raises RuntimeError for a file that cannot be read, or is too short.") {
  PyObject *filename;
  bool shared;
  int64_t nbytes;
  EXT_BIND(filename, shared, nbytes);
  EXT_OWNED *made = ext_call_from("phlox._files", "mapped", "(OOL)", filename,
                                  shared ? Py_True : Py_False, (long long)nbytes);
  return made ? storage_wrap(px_retain(px_tensor_storage(ext_tensor(made))), PX_DTYPE_NONE) : NULL;
}

// ---- for other processes
bool ext_is_storage(PyObject *object) {
  return Py_IS_TYPE(object, &untyped_type) || Py_IS_TYPE(object, &typed_type);
}
static int need_storage(PyObject *object) {
  if (ext_is_storage(object)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "expected a storage, not %.200s", Py_TYPE(object)->tp_name);
}
EXT_FUNCTION(torch, _storage_elements, "(storage: UntypedStorage) -> Tensor",
             "The elements of a storage, or its bytes, as a tensor over its memory.") {
  EXT_ARGS(PyObject *, storage);
  return need_storage(storage) < 0 ? NULL : flat(storage);
}
EXT_FUNCTION(torch, _sharing_strategy, "(by_name: bool | None = None) -> bool",
             "Whether storages move to shared memory that has names; None: as it was.") {
  EXT_ARGS(PyObject *, by_name);
  if (by_name && by_name != Py_None)
    __atomic_store_n(&shares_by_name, by_name == Py_True, __ATOMIC_RELAXED);
  return PyBool_FromLong(__atomic_load_n(&shares_by_name, __ATOMIC_RELAXED));
}
EXT_FUNCTION(torch, _storage_fd, "(storage: UntypedStorage) -> int | None",
             "The file of a storage, which is moved to shared memory. The storage closes it. None "
             "where it\nhas a name instead.") {
  EXT_ARGS(PyObject *, storage);
  int fd;
  if (need_storage(storage) < 0) return NULL;
  EXT_WAIT(share(storage_of(storage)));
  if (px_storage_is_named(storage_of(storage))) Py_RETURN_NONE;
  EXT_TRY(px_storage_fd(&fd, storage_of(storage)));
  return PyLong_FromLong(fd);
}
EXT_FUNCTION(torch, _storage_of_fd, "(fd: int, bytes: int) -> UntypedStorage",
             "The storage over a file of shared memory, which stays the caller's.") {
  EXT_ARGS(int64_t, fd, bytes);
  px_storage *made;
  if (bytes < 0) EXT_FAIL(PyExc_ValueError, "a storage has no negative size");
  EXT_TRY(px_storage_from_fd(&made, (int)fd, (size_t)bytes));
  return storage_wrap(made, PX_DTYPE_NONE);
}
EXT_FUNCTION(torch, _storage_name, "(storage: UntypedStorage) -> str",
             "The name of shared memory, for one message.") {
  EXT_ARGS(PyObject *, storage);
  char name[PX_SHARED_NAME];
  if (need_storage(storage) < 0) return NULL;
  EXT_TRY(px_storage_name(name, storage_of(storage)));
  return PyUnicode_FromString(name);
}
EXT_FUNCTION(torch, _storage_of_name, "(name: str, bytes: int) -> UntypedStorage",
             "The storage over what a name of _storage_name stands for.") {
  const char *name;
  int64_t bytes;
  px_storage *made;
  EXT_BIND(name, bytes);
  if (bytes < 0) EXT_FAIL(PyExc_ValueError, "a storage has no negative size");
  EXT_TRY(px_storage_from_name(&made, name, (size_t)bytes));
  return storage_wrap(made, PX_DTYPE_NONE);
}

// A storage of a device as a tuple, in PyTorch's order; fields that belong together are one bytes.
typedef struct memory_name {
  unsigned char device[16];
  px_ipc_handle allocation;
} memory_name;
typedef struct counter_name {
  px_ipc_handle file;
  uint64_t serial;
} counter_name;
static PyObject *bytes_of(const void *at, size_t size) {
  return PyBytes_FromStringAndSize(at, (Py_ssize_t)size);
}
EXT_METHOD0(untyped, _share_cuda_, "tuple",
            "What another process needs to have the memory of a device, as the arguments of "
            "_new_shared_cuda. Each\ncall is one message, which one process may receive.") {
  px_storage_handle h;
  EXT_WAIT(px_storage_ipc_handle(&h, storage_of(self)));
  memory_name memory = {.allocation = h.memory};
  counter_name counter = {h.counters, h.serial};
  memcpy(memory.device, h.device, sizeof h.device);
  return Py_BuildValue("(iNKKNKNO)", px_storage_device(storage_of(self)).index,
                       bytes_of(&memory, sizeof memory), (unsigned long long)h.bytes,
                       (unsigned long long)h.offset, bytes_of(&counter, sizeof counter),
                       (unsigned long long)h.place, bytes_of(&h.event, sizeof h.event), Py_True);
}
// Copies bytes of the size of a handle's part.
static int take_bytes(void *to, size_t size, PyObject *from, const char *name) {
  if (!PyBytes_Check(from) || PyBytes_GET_SIZE(from) != (Py_ssize_t)size)
    EXT_FAIL_INT(PyExc_ValueError, "%s must be the %zu bytes that _share_cuda_ gave", name, size);
  memcpy(to, PyBytes_AS_STRING(from), size);
  return 0;
}
EXT_STATIC_METHOD(
    untyped, _new_shared_cuda,
    "(device: object, handle: bytes, size: int, offset: int, ref_counter_handle: bytes, "
    "ref_counter_offset: int, event_handle: bytes, event_sync_required: bool) -> UntypedStorage",
    "The storage of another process that these are of. `device` is its number there; the handle "
    "knows the\ndevice itself. With `event_sync_required`, work of the current stream comes after "
    "the sender's.") {
  PyObject *device, *handle, *ref_counter_handle, *event_handle;
  int64_t size, offset, ref_counter_offset;
  bool event_sync_required;
  px_storage_handle h = {.bytes = 0};
  memory_name memory;
  counter_name counter;
  px_storage *made;
  EXT_BIND(device, handle, size, offset, ref_counter_handle, ref_counter_offset, event_handle,
           event_sync_required);
  if (take_bytes(&memory, sizeof memory, handle, "handle") < 0 ||
      take_bytes(&counter, sizeof counter, ref_counter_handle, "ref_counter_handle") < 0 ||
      take_bytes(&h.event, sizeof h.event, event_handle, "event_handle") < 0)
    return NULL;
  memcpy(h.device, memory.device, sizeof h.device);
  h.memory = memory.allocation;
  h.bytes = (uint64_t)size, h.offset = (uint64_t)offset;
  h.counters = counter.file, h.serial = counter.serial, h.place = (uint64_t)ref_counter_offset;
  if (!event_sync_required) memset(&h.event, 0, sizeof h.event);
  EXT_WAIT(px_storage_from_ipc_handle(&made, &h));
  return storage_wrap(made, PX_DTYPE_NONE);
}
EXT_METHOD0(torch, _ipc_collect, "int",
            "What cuda.ipc_collect does; how many storages of this process others still have.") {
  int64_t left;
  EXT_WAIT(px_storage_ipc_collect(&left));
  return PyLong_FromLongLong(left);
}

// ---- tensors over storages
static PyObject *tensor_over(PyObject *storage, px_dtype dtype, int64_t offset,
                             const ext_ints *size, const ext_ints *stride) {
  px_tensor *made = NULL;
  if (size->count != stride->count)
    EXT_FAIL(PyExc_RuntimeError, "a tensor of %d sizes has as many strides, not %d", size->count,
             stride->count);
  EXT_TRY(px_tensor_from_storage(&made, storage_of(storage), dtype, size->count, size->items,
                                 stride->items, offset));
  return ext_wrap(made);
}
EXT_FUNCTION(torch, _tensor_of_storage,
             "(storage: UntypedStorage | TypedStorage, dtype: dtype, offset: int, "
             "size: Sequence[int], stride: Sequence[int]) -> Tensor",
             "A tensor over a storage, with any geometry that fits it.") {
  PyObject *storage;
  px_dtype dtype;
  int64_t offset;
  ext_ints size, stride;
  EXT_BIND(storage, dtype, offset, size, stride);
  return need_storage(storage) < 0 ? NULL : tensor_over(storage, dtype, offset, &size, &stride);
}
PyObject *ext_storage_tensor(PyObject *storage, int64_t offset, const ext_ints *size,
                             const ext_ints *stride) {
  px_dtype dtype = dtype_of(storage) == PX_DTYPE_NONE ? PX_UINT8 : dtype_of(storage);
  return tensor_over(storage, dtype, offset, size, stride);
}
PyObject *ext_storage_as(PyObject *storage, px_dtype dtype) {
  return storage_wrap(px_retain(storage_of(storage)), dtype);
}
EXT_FUNCTION(torch, is_storage, "(obj: object) -> bool", "Whether an object is a storage.") {
  EXT_ARGS(PyObject *, obj);
  return PyBool_FromLong(ext_is_storage(obj));
}

EXT_MODULE(storage, "storage", "The classes of the memory under tensors.");
