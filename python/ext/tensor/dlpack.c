// SPDX-License-Identifier: Apache-2.0
// DLPack: Tensor.__dlpack__ and __dlpack_device__, the import of capsules, and the table of C
// functions for consumers that call no Python (Tensor.__dlpack_c_exchange_api__). A consumed
// capsule is renamed, as the protocol requires. from_dlpack is in phlox/utils/dlpack.py.
// https://dmlc.github.io/dlpack/latest/python_spec.html
#include "phlox/dlpack.h"

#include "bind/ext.h"

#define PLAIN "dltensor"
#define VERSIONED "dltensor_versioned"
enum { DL_CPU = 1, DL_CUDA = 2 };

static void plain_end(PyObject *capsule) {
  px_dl_managed *managed =
      PyCapsule_IsValid(capsule, PLAIN) ? PyCapsule_GetPointer(capsule, PLAIN) : NULL;
  if (managed) managed->deleter(managed);
}
static void versioned_end(PyObject *capsule) {
  px_dl_versioned *managed =
      PyCapsule_IsValid(capsule, VERSIONED) ? PyCapsule_GetPointer(capsule, VERSIONED) : NULL;
  if (managed) managed->deleter(managed);
}

// ---- arguments of __dlpack__
static int wants_versioned(PyObject *max_version) {
  if (ext_is_none(max_version)) return 0;
  EXT_OWNED *zero = PyLong_FromLong(0);
  EXT_OWNED *one = PyLong_FromLong(1);
  EXT_OWNED *major = zero && one ? PyObject_GetItem(max_version, zero) : NULL;
  int older = major ? PyObject_RichCompareBool(major, one, Py_LT) : -1;
  return older < 0 ? -1 : !older;
}

// Native handle of the consumer's stream. None means the legacy default stream (1); 0 is ambiguous
// and refused. -1, the default, requests no wait and results in NULL.
static int to_native(PyObject *stream, bool cuda, void **out) {
  long long handle = stream == Py_None ? 1 : -1;
  if (stream && stream != Py_None && !PyLong_CheckExact(stream))
    EXT_FAIL_INT(PyExc_TypeError, "stream must be ``int`` or ``none``");
  if (stream && stream != Py_None) handle = PyLong_AsLongLong(stream);
  if (handle == -1 && PyErr_Occurred()) return -1;
  if (!cuda && handle != -1 && stream != Py_None)
    EXT_FAIL_INT(PyExc_AssertionError, "stream should be None on cpu.");
  if (cuda && (handle == 0 || handle < -1))
    EXT_FAIL_INT(PyExc_AssertionError, "unsupported stream on CUDA: %lld.", handle);
  *out = handle == -1 ? NULL : (void *)(intptr_t)handle;
  return 0;
}

// The device of a DLPack device; that of the tensor for None and for its own DLPack device.
static int to_device(PyObject *dl_device, const px_tensor *tensor, px_device *out) {
  px_dl_device own = px_dlpack_device(tensor);
  ext_ints given;
  *out = px_tensor_device(tensor);
  if (ext_is_none(dl_device)) return 0;
  if (!PyTuple_Check(dl_device) && !PyList_Check(dl_device))
    EXT_FAIL_INT(PyExc_TypeError,
                 "__dlpack__(): argument 'dl_device' must be tuple of ints, not %s",
                 ext_type_name(dl_device));
  if (ext_to_ints(dl_device, &given) < 0) return -1;
  if (given.count != 2)
    EXT_FAIL_INT(PyExc_RuntimeError, "dl_device must be either None or a tuple of ints");
  long long type = given.items[0], index = given.items[1];
  if (type == own.device_type && index == own.device_id) return 0;
  if (type != DL_CPU && type != DL_CUDA)
    EXT_FAIL_INT(PyExc_BufferError, "Unsupported device_type: %lld", type);
  *out = type == DL_CPU ? px_cpu() : px_cuda(ext_clamp_device_index(index));
  return ext_zero(px_device_resolve(out, *out));
}

// BufferError for a tensor that DLPack cannot describe.
static int check_exportable(const px_tensor *tensor) {
  const char *bit = px_tensor_unresolved(tensor);
  if (bit) EXT_FAIL_INT(PyExc_BufferError, "Can't export tensors with the %s bit set", bit);
  if (px_tensor_device(tensor).type == PX_META)
    EXT_FAIL_INT(PyExc_BufferError, "Cannot pack tensors on meta");
  return 0;
}

// The tensor or, if it is requested or required, a copy. New reference.
static px_tensor *as_requested(px_tensor *tensor, PyObject *dl_device, PyObject *copy) {
  px_device device, own = px_tensor_device(tensor);
  char from[PX_DEVICE_TEXT], to[PX_DEVICE_TEXT];
  if (!ext_is_none(copy) && !PyBool_Check(copy))
    EXT_FAIL(PyExc_TypeError, "__dlpack__(): argument 'copy' must be bool, not %s",
             ext_type_name(copy));
  if (to_device(dl_device, tensor, &device) < 0) return NULL;
  bool same = px_device_equal(device, own);
  if (same && copy != Py_True) return px_retain(tensor);
  if (copy == Py_False)
    EXT_FAIL(PyExc_ValueError,
             "cannot move (i.e. copy=False) tensor from %s to %s without copying.",
             px_device_format(own, from), px_device_format(device, to));
  return ext_op_tensor(EXT_OP("_to_copy"), PX_CALL_NEW, 2,
                       (ext_named[]){{"self", PX_T(tensor)}, {"device", PX_DV(device)}});
}

static PyObject *plain_capsule(px_tensor *tensor, void *native) {
  px_dl_managed *managed;
  EXT_WAIT(px_dlpack_export_native(&managed, tensor, native));
  PyObject *capsule = PyCapsule_New(managed, PLAIN, plain_end);
  if (!capsule) managed->deleter(managed);
  return capsule;
}
static PyObject *versioned_capsule(px_tensor *tensor, void *native, uint64_t flags) {
  px_dl_versioned *managed;
  EXT_WAIT(px_dlpack_export_versioned(&managed, tensor, native, flags));
  PyObject *capsule = PyCapsule_New(managed, VERSIONED, versioned_end);
  if (!capsule) managed->deleter(managed);
  return capsule;
}

EXT_METHOD(
    tensor, __dlpack__,
    "(*, stream: Any = -1, max_version: tuple[int, int] | None = None, dl_device: "
    "tuple[int, int] | None = None, copy: bool | None = None, read_only: bool = False) -> object",
    "Exports the tensor as a DLPack capsule for another library.\n\n"
    "Args:\n"
    "    stream (int or None): the consumer's stream, which waits for pending work; None: CUDA's "
    "default stream; -1: no wait\n"
    "    max_version: the consumer's version of DLPack; a capsule of DLPack 1 from (1, 0) on\n"
    "    dl_device: the DLPack device of the result; another device than the tensor's requires a "
    "copy\n"
    "    copy (bool or None): True exports a copy, False never copies\n"
    "    read_only (bool): tells the consumer not to write\n\n"
    "Raises BufferError if DLPack does not support it, such as a tensor that requires gradient.") {
  PyObject *stream, *max_version, *dl_device, *copy;
  bool read_only;
  void *native;
  EXT_BIND(stream, max_version, dl_device, copy, read_only);
  px_tensor *tensor = ext_tensor(self);
  if (px_tensor_requires_grad(tensor))
    EXT_FAIL(PyExc_BufferError, "Can't export tensors that require gradient, use tensor.detach()");
  int versioned = check_exportable(tensor) < 0 ? -1 : wants_versioned(max_version);
  if (versioned < 0) return NULL;
  if (read_only && !versioned)
    EXT_FAIL(PyExc_BufferError,
             "read_only export requires the versioned DLPack protocol; pass max_version=(1, 0) or "
             "higher");
  PX_SCOPED(px_tensor) made = as_requested(tensor, dl_device, copy);
  if (!made || to_native(stream, px_tensor_is_cuda(tensor) || px_tensor_is_cuda(made), &native) < 0)
    return NULL;
  uint64_t flags = (read_only ? PX_DL_READ_ONLY : 0) | (made != tensor ? PX_DL_IS_COPIED : 0);
  return versioned ? versioned_capsule(made, native, flags) : plain_capsule(made, native);
}

EXT_METHOD0(tensor, __dlpack_device__, "tuple[int, int]",
            "Returns the device as a DLPack (device_type, device_id) tuple.") {
  if (px_tensor_device(ext_tensor(self)).type == PX_META)
    EXT_FAIL(PyExc_ValueError, "Unknown device type meta for Dlpack");
  px_dl_device device = px_dlpack_device(ext_tensor(self));
  return Py_BuildValue(
      "(Ni)", ext_call_from("phlox.utils.dlpack", "DLDeviceType", "(i)", device.device_type),
      device.device_id);
}

// ---- import
// A tensor of another library. Its deleter may run Python code: the core calls it on any thread,
// also during Python's shutdown.
typedef struct foreign_tensor {
  px_dl_managed managed;
  px_dl_managed *plain;  // the owner is this or `versioned`
  px_dl_versioned *versioned;
} foreign_tensor;
static void foreign_end(px_dl_managed *managed) {
  foreign_tensor *self = (foreign_tensor *)managed;
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return;
  PyObject *pending = ext_exception_take();
  if (self->plain && self->plain->deleter) self->plain->deleter(self->plain);
  if (self->versioned && self->versioned->deleter) self->versioned->deleter(self->versioned);
  if (pending) ext_exception_set(pending);
  PyMem_Free(self);
  ext_gil_give(&gil);
}

static px_tensor *import_foreign(const px_dl_tensor *tensor, px_dl_managed *plain,
                                 px_dl_versioned *versioned) {
  px_tensor *made;
  foreign_tensor *self = PyMem_Malloc(sizeof *self);
  if (!self) return PyErr_NoMemory(), NULL;
  *self = (foreign_tensor){{*tensor, NULL, foreign_end}, plain, versioned};
  if (px_dlpack_import_take(&made, &self->managed) == PX_OK) return made;
  PyMem_Free(self);
  return ext_raise();
}

// Takes ownership on success, as import_plain does. The version is checked before other fields.
static px_tensor *import_versioned(px_dl_versioned *given) {
  px_tensor *made;
  if (!px_dlpack_is_own(given) && given->version.major == PX_DL_MAJOR)
    return import_foreign(&given->dl_tensor, NULL, given);
  return px_dlpack_import_versioned_take(&made, given) == PX_OK ? made : ext_raise();
}
static px_tensor *import_plain(px_dl_managed *given, bool own) {
  px_tensor *made;
  if (!own) return import_foreign(&given->dl_tensor, given, NULL);
  return px_dlpack_import_take(&made, given) == PX_OK ? made : ext_raise();
}

EXT_FUNCTION(
    torch, _take_capsule, "(capsule: object, copy: bool = False) -> Tensor",
    "Returns the tensor of a capsule and renames the capsule to prevent a second import. copy: a "
    "copy was requested; it is made if a versioned capsule lacks the flag of copies.") {
  PyObject *capsule;
  bool copy, copied = true;
  EXT_BIND(capsule, copy);
  px_tensor *made;
  if (PyCapsule_IsValid(capsule, VERSIONED)) {
    px_dl_versioned *given = PyCapsule_GetPointer(capsule, VERSIONED);
    copied = given->version.major != PX_DL_MAJOR || given->flags & PX_DL_IS_COPIED;
    made = import_versioned(given);
    if (made) PyCapsule_SetName(capsule, "used_" VERSIONED);
  } else if (PyCapsule_IsValid(capsule, PLAIN)) {
    bool own = PyCapsule_GetDestructor(capsule) == plain_end;
    made = import_plain(PyCapsule_GetPointer(capsule, PLAIN), own);
    if (made) PyCapsule_SetName(capsule, "used_" PLAIN);
  } else {
    EXT_FAIL(PyExc_RuntimeError,
             "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed "
             "only once, so you might have already constructed a tensor from it once.");
  }
  if (!made || !copy || copied) return made ? ext_wrap(made) : NULL;
  PX_SCOPED(px_tensor) shared = made;
  px_tensor *clone =
      ext_op_tensor(EXT_OP("_to_copy"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(shared)}});
  return clone ? ext_wrap(clone) : NULL;
}
EXT_FUNCTION(cuda, _native_stream, "(device: int) -> int",
             "Returns the handle of a device's current stream for the protocol.") {
  px_stream *stream;
  EXT_ARGS(int64_t, device);
  EXT_TRY(px_stream_current(&stream, px_cuda(ext_clamp_device_index(device))));
  return PyLong_FromVoidPtr(px_stream_native(stream));
}

// ---- the exchange table
// Its functions are called with the GIL, except allocate. No function waits for a stream: consumers
// use the stream returned by current_stream.
typedef struct exchange_table {
  px_dl_version version;
  struct exchange_table *previous;  // of an older major version
  int (*allocate)(px_dl_tensor *prototype, px_dl_versioned **out, void *context,
                  void (*fail)(void *context, const char *kind, const char *message));
  int (*export)(void *object, px_dl_versioned **out);
  int (*import_take)(px_dl_versioned *managed, void **out);
  int (*describe)(void *object, px_dl_tensor *out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
} exchange_table;

static int exchange_allocate(px_dl_tensor *prototype, px_dl_versioned **out, void *context,
                             void (*fail)(void *context, const char *kind, const char *message)) {
  PX_SCOPED(px_tensor) made = NULL;
  px_status status = px_dlpack_empty(&made, prototype);
  if (status == PX_OK) status = px_dlpack_export_versioned(out, made, NULL, 0);
  if (status == PX_OK) return 0;
  const char *kind = px_status_exception(status);
  fail(context, *kind ? kind : "RuntimeError", px_error_last()->message);
  px_error_clear();
  return -1;
}

// Tensors that require gradient are exported, as kernels take parameters. NULL with an exception
// for objects without a description.
static px_tensor *exchanged(PyObject *object) {
  if (!ext_is_tensor(object))
    EXT_FAIL(PyExc_TypeError, "expected a Tensor, got %s", ext_type_name(object));
  return check_exportable(ext_tensor(object)) < 0 ? NULL : ext_tensor(object);
}
static int exchange_export(void *object, px_dl_versioned **out) {
  px_tensor *tensor = exchanged(object);
  if (!tensor) return -1;
  return ext_zero(EXT_NOGIL(px_dlpack_export_versioned(out, tensor, NULL, 0)));
}
static int exchange_export_read_only(void *object, px_dl_versioned **out) {
  px_tensor *tensor = exchanged(object);
  if (!tensor) return -1;
  return ext_zero(EXT_NOGIL(px_dlpack_export_versioned(out, tensor, NULL, PX_DL_READ_ONLY)));
}
static int exchange_describe(void *object, px_dl_tensor *out) {
  px_tensor *tensor = exchanged(object);
  return tensor ? ext_zero(EXT_NOGIL(px_dlpack_describe(out, tensor))) : -1;
}
static int exchange_import_take(px_dl_versioned *managed, void **out) {
  px_tensor *made = import_versioned(managed);
  *out = made ? ext_wrap(made) : NULL;
  if (made) return *out ? 0 : -1;
  PyObject *pending = ext_exception_take();
  if (managed->deleter) managed->deleter(managed);  // the caller has given it up
  ext_exception_set(pending);
  return -1;
}
static int exchange_current_stream(int32_t device_type, int32_t device_id, void **out) {
  px_stream *stream;
  *out = NULL;
  if (device_type != DL_CUDA) return 0;
  EXT_TRY_INT(px_stream_current(&stream, px_cuda(ext_clamp_device_index(device_id))));
  *out = px_stream_native(stream);
  return 0;
}

#define EXCHANGE_TABLE(export_) \
  { \
    .version = {PX_DL_MAJOR, PX_DL_MINOR}, .allocate = exchange_allocate, .export = export_, \
    .import_take = exchange_import_take, .describe = exchange_describe, \
    .current_stream = exchange_current_stream \
  }
static exchange_table exchange = EXCHANGE_TABLE(exchange_export);
static exchange_table exchange_read_only = EXCHANGE_TABLE(exchange_export_read_only);

static PyObject *table_capsule(exchange_table *table) {
  return PyCapsule_New(table, "dlpack_exchange_api", NULL);
}
EXT_FUNCTION0(torch, _const_dlpack_exchange_api, "object",
              "Returns the exchange table of read-only exports.") {
  return table_capsule(&exchange_read_only);
}
// Consumers read the attribute of the type.
static int add_table(PyObject *torch) {
  return ext_setattr_new((PyObject *)ext_TensorType, "__dlpack_c_exchange_api__",
                         table_capsule(&exchange));
}
EXT_START(EXT_VALUES, add_table);
