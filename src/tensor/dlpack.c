// SPDX-License-Identifier: Apache-2.0
// DLPack import and export. An export is one allocation: the struct, followed by shape and strides.
#include "phlox/dlpack.h"

#include "tensor/in_use.h"
#include "tensor/storage.h"

enum { DL_CPU = 1, DL_CUDA = 2, DL_PINNED = 3 };
// Handles that always name a stream: CUDA's default stream and the thread's default stream.
#define DEFAULT_STREAM ((void *)1)
#define THREAD_STREAM ((void *)2)

px_dl_device px_dlpack_device(const px_tensor *tensor) {
  px_device device = px__tensor_device(tensor);
  if (device.type == PX_CUDA) return (px_dl_device){DL_CUDA, device.index};
  return (px_dl_device){px_tensor_is_pinned(tensor) ? DL_PINNED : DL_CPU, 0};
}

static px_dl_dtype type_of(px_dtype dtype) {
  const px_dtype_info *about = px_dtype_about(dtype);
  return (px_dl_dtype){about->dlpack, (uint8_t)(8 * about->size), 1};
}

typedef struct export {
  union {
    px_dl_managed managed;
    px_dl_versioned versioned;
  };
  px_tensor *tensor;
  void *native;     // the importer's stream, if it is a CUDA default stream; else NULL
  int64_t sizes[];  // followed by the strides
}
export;

// Extends the lifetime past the importer's pending work on its default stream: the current stream
// waits for it, and the memory is recorded on the current stream.
static px_status extend_lifetime(px_tensor *tensor, void *native) {
  px_stream *current;
  PX_TRY(px_stream_current(&current, px__tensor_device(tensor)));
  PX_TRY(px_stream_take_over(current, native));
  return px__allocation_record_stream(tensor->storage->allocation, current);
}

static void export_end(export *e) {
  if (e->native && extend_lifetime(e->tensor, e->native) != PX_OK) px_error_clear();
  px_release(e->tensor);
  px__free(e);
}
static void managed_delete(px_dl_managed *self) { export_end((export *)self); }
static void versioned_delete(px_dl_versioned *self) { export_end((export *)self); }

static px_status describe(px_dl_tensor *out, px_tensor *tensor) {
  void *data;
  PX__USES(tensor);
  PX_TRY(px__tensor_memory(&data, tensor));
  *out = (px_dl_tensor){.data = data,
                        .device = px_dlpack_device(tensor),
                        .ndim = tensor->ndim,
                        .dtype = type_of((px_dtype)tensor->dtype),
                        .shape = tensor->sizes,
                        .strides = tensor->strides};
  return PX_OK;
}

// Takes ownership on success. *out describes the tensor, with sizes and strides of its own.
static px_status export_new(export **out, px_dl_tensor *described, px_tensor *tensor_take) {
  export *made;
  size_t dims = (size_t)tensor_take->ndim;
  PX_TRY(describe(described, tensor_take));
  PX_TRY(px__alloc((void **)&made, sizeof *made + 2 * dims * sizeof(int64_t)));
  memcpy(made->sizes, described->shape, dims * sizeof(int64_t));
  memcpy(made->sizes + dims, described->strides, dims * sizeof(int64_t));
  described->shape = made->sizes;
  described->strides = made->sizes + dims;
  made->tensor = tensor_take;
  *out = made;
  return PX_OK;
}

// Checks an export and waits for the host's pending copies. The importer may use the memory on any
// stream at any time, so its address is handed out. *current: the stream whose work must be made
// visible; NULL for the CPU.
static px_status prepare(px_stream **current, px_tensor *tensor) {
  *current = NULL;
  PX__USES(tensor);
  PX_CHECK(px__tensor_device(tensor).type != PX_META, PX_RUNTIME, "Cannot pack tensors on meta");
  PX_CHECK(!px_tensor_unresolved(tensor), PX_RUNTIME, "Can't export tensors with the %s bit set",
           px_tensor_unresolved(tensor));
  PX_TRY(px__storage_expose(tensor->storage));
  if (!px_tensor_is_cuda(tensor))
    return px__allocation_wait(tensor->storage->allocation, "dlpack", true);
  return px_stream_current(current, px__tensor_device(tensor));
}

px_status px_dlpack_describe(px_dl_tensor *out, px_tensor *tensor) {
  PX_GIVEN(out);
  PX_GIVEN(tensor);
  px_stream *current;
  PX_TRY(prepare(&current, tensor));
  return describe(out, tensor);
}

// *out shares the tensor's memory, also if the tensor gets other memory later.
static px_status export_for(export **out, px_dl_tensor *described, px_tensor *tensor,
                            px_stream *stream, void *native) {
  px_stream *current;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_TRY(px_tensor_detach(&kept, tensor));
  PX_TRY(prepare(&current, kept));
  if (current && stream) PX_TRY(px_stream_wait_stream(stream, current));
  if (current && native) PX_TRY(px_stream_hand_over(current, native));
  PX_TRY(export_new(out, described, kept));
  (void)PX_MOVE(kept);
  bool is_default = native == DEFAULT_STREAM || native == THREAD_STREAM;
  if (current && is_default) (*out)->native = native;
  return PX_OK;
}

static px_status export_managed(px_dl_managed **out, px_tensor *tensor, px_stream *stream,
                                void *native) {
  PX_GIVEN(out);
  PX_GIVEN(tensor);
  export *made;
  px_dl_tensor described;
  *out = NULL;
  PX_TRY(export_for(&made, &described, tensor, stream, native));
  made->managed = (px_dl_managed){described, made->tensor, managed_delete};
  *out = &made->managed;
  return PX_OK;
}
px_status px_dlpack_export(px_dl_managed **out, px_tensor *tensor, px_stream *stream) {
  return export_managed(out, tensor, stream, NULL);
}
px_status px_dlpack_export_native(px_dl_managed **out, px_tensor *tensor, void *native) {
  return export_managed(out, tensor, NULL, native);
}

px_status px_dlpack_export_versioned(px_dl_versioned **out, px_tensor *tensor, void *native,
                                     uint64_t flags) {
  PX_GIVEN(out);
  PX_GIVEN(tensor);
  export *made;
  px_dl_tensor described;
  *out = NULL;
  PX_CHECK(!(flags & ~(uint64_t)(PX_DL_READ_ONLY | PX_DL_IS_COPIED)), PX_VALUE,
           "unknown DLPack flags: %llu", (unsigned long long)flags);
  PX_TRY(export_for(&made, &described, tensor, NULL, native));
  made->versioned = (px_dl_versioned){.version = {PX_DL_MAJOR, PX_DL_MINOR},
                                      .manager_ctx = made->tensor,
                                      .deleter = versioned_delete,
                                      .flags = flags,
                                      .dl_tensor = described};
  *out = &made->versioned;
  return PX_OK;
}

// ---- import

static px_status dtype_of(px_dtype *out, px_dl_dtype type) {
  for (int i = 0; i < PX_DTYPE_COUNT && type.lanes == 1; i++) {
    px_dl_dtype own = type_of((px_dtype)i);
    if (own.code == type.code && own.bits == type.bits) return *out = (px_dtype)i, PX_OK;
  }
  PX_FAIL(PX_RUNTIME, "Unsupported DLPack dtype: code %d, %d bits, %d lanes", type.code, type.bits,
          type.lanes);
}

static px_status device_of(px_device *out, px_dl_device device) {
  bool known = device.device_type == DL_CPU || device.device_type == DL_PINNED ||
               device.device_type == DL_CUDA;
  PX_CHECK(known, PX_RUNTIME, "Unsupported device_type: %d", device.device_type);
  PX_CHECK(device.device_type != DL_CUDA || device.device_id >= 0, PX_RUNTIME,
           "invalid device_id %d", device.device_id);
  *out = device.device_type == DL_CUDA ? px_cuda(device.device_id) : px_cpu();
  return px_device_resolve(out, *out);
}

// A managed tensor of either form.
typedef struct source {
  const px_dl_tensor *tensor;
  px_tensor *own;  // the tensor behind one of our own exports; else NULL
  void *managed;
  void (*release)(void *managed);
} source;

static void managed_release(void *context) {
  px_dl_managed *managed = context;
  if (managed->deleter) managed->deleter(managed);
}
static void versioned_release(void *context) {
  px_dl_versioned *managed = context;
  if (managed->deleter) managed->deleter(managed);
}

// Returns the tensor behind one of our own exports, so work on the import is tracked as work on its
// memory. NULL for foreign exports, or if the fields were changed to leave its allocation.
static px_tensor *origin_of(const source *s, uintptr_t at, size_t bytes, px_dtype dtype) {
  px_tensor *tensor = s->tensor->data ? s->own : NULL;
  if (!tensor || px_dlpack_device(tensor).device_type != s->tensor->device.device_type) return NULL;
  const px_allocation *allocation = tensor->storage->allocation;
  uintptr_t start = (uintptr_t)allocation->data, end = start + allocation->bytes;
  bool within = at >= start && at <= end && bytes <= end - at;
  return within && (at - start) % px_dtype_size(dtype) == 0 ? tensor : NULL;
}

static px_status import_own(px_tensor **out, const source *s, px_tensor *origin, uintptr_t at,
                            const int64_t *strides, px_dtype dtype) {
  const px_dl_tensor *t = s->tensor;
  px_storage *storage = origin->storage;
  PX_TRY(px__check_sizes(t->ndim, t->shape));
  int64_t offset = (int64_t)((at - (uintptr_t)storage->allocation->data) / px_dtype_size(dtype));
  PX_TRY(px__tensor_new(out, storage, dtype, t->ndim, t->shape, strides, offset));
  s->release(s->managed);
  return PX_OK;
}

static px_status read_type(px_dtype *dtype, px_device *device, const px_dl_tensor *t) {
  PX_CHECK(t->ndim >= 0 && t->ndim <= PX_MAX_DIMS, PX_RUNTIME,
           "a tensor may have at most %d dimensions, got %d", PX_MAX_DIMS, t->ndim);
  PX_CHECK(t->shape || !t->ndim, PX_RUNTIME, "a tensor of %d dimensions needs a shape", t->ndim);
  PX_TRY(dtype_of(dtype, t->dtype));
  return device_of(device, t->device);
}

static px_status import_take(px_tensor **out, const source *s) {
  const px_dl_tensor *t = s->tensor;
  px_dtype dtype = PX_FLOAT32;
  px_device device;
  size_t bytes;
  PX_TRY(read_type(&dtype, &device, t));
  int64_t strides[PX_MAX_DIMS];
  px__row_major(t->ndim, t->shape, strides);
  if (t->strides) memcpy(strides, t->strides, (size_t)t->ndim * sizeof *strides);
  PX_TRY(px__extent_bytes(&bytes, t->ndim, t->shape, strides, 0, dtype));
  uintptr_t at = (uintptr_t)t->data, end;
  PX_CHECK(!__builtin_add_overflow(at, (uintptr_t)t->byte_offset, &at) &&
               !__builtin_add_overflow(at, (uintptr_t)bytes, &end) && t->byte_offset <= INT64_MAX,
           PX_RUNTIME, "a byte_offset of %llu is out of range", (unsigned long long)t->byte_offset);
  px_tensor *origin = origin_of(s, at, bytes, dtype);
  if (origin) return import_own(out, s, origin, at, strides, dtype);
  void *first = t->data ? (char *)t->data + t->byte_offset : NULL;
  return px_tensor_wrap(out, first, bytes, t->ndim, t->shape, strides, dtype, device, s->release,
                        s->managed);
}

px_status px_dlpack_import_take(px_tensor **out, px_dl_managed *managed) {
  PX_GIVEN(out);
  PX_GIVEN(managed);
  *out = NULL;
  px_tensor *own = managed->deleter == managed_delete ? managed->manager_ctx : NULL;
  return import_take(out, &(source){&managed->dl_tensor, own, managed, managed_release});
}

bool px_dlpack_is_own(const px_dl_versioned *managed) {
  return managed->deleter == versioned_delete;
}

px_status px_dlpack_import_versioned_take(px_tensor **out, px_dl_versioned *managed) {
  PX_GIVEN(out);
  PX_GIVEN(managed);
  *out = NULL;
  PX_CHECK(managed->version.major == PX_DL_MAJOR, PX_RUNTIME,
           "expected a tensor of DLPack %d, got version %u.%u", PX_DL_MAJOR, managed->version.major,
           managed->version.minor);
  px_tensor *own = px_dlpack_is_own(managed) ? managed->manager_ctx : NULL;
  return import_take(out, &(source){&managed->dl_tensor, own, managed, versioned_release});
}

px_status px_dlpack_empty(px_tensor **out, const px_dl_tensor *prototype) {
  PX_GIVEN(out);
  PX_GIVEN(prototype);
  px_dtype dtype = PX_FLOAT32;
  px_device device;
  *out = NULL;
  PX_TRY(read_type(&dtype, &device, prototype));
  return px_tensor_empty(out, prototype->ndim, prototype->shape, dtype, device);
}
