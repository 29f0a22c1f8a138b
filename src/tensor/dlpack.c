// SPDX-License-Identifier: Apache-2.0
// DLPack import and export. An export is one allocation: the struct, followed by shape and strides.
#include "phlox/dlpack.h"

#include "tensor/in_use.h"

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
  px_dl_managed managed;
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

static void export_delete(px_dl_managed *self) {
  const export *e = (const export *)self;
  px_tensor *tensor = self->manager_ctx;
  if (e->native && extend_lifetime(tensor, e->native) != PX_OK) px_error_clear();
  px_release(tensor);
  px__free(self);
}

// Takes ownership on success.
static px_status export_new(px_dl_managed **out, px_tensor *tensor_take) {
  export *made;
  const px_tensor *tensor = tensor_take;
  PX__USES(tensor);
  size_t dims = (size_t)tensor->ndim;
  void *data;
  PX_TRY(px__tensor_memory(&data, tensor));
  PX_TRY(px__alloc((void **)&made, sizeof *made + 2 * dims * sizeof(int64_t)));
  memcpy(made->sizes, tensor->sizes, dims * sizeof(int64_t));
  memcpy(made->sizes + dims, tensor->strides, dims * sizeof(int64_t));
  made->managed.dl_tensor = (px_dl_tensor){.data = data,
                                           .device = px_dlpack_device(tensor),
                                           .ndim = tensor->ndim,
                                           .dtype = type_of((px_dtype)tensor->dtype),
                                           .shape = made->sizes,
                                           .strides = made->sizes + dims};
  made->managed.manager_ctx = tensor_take;
  made->managed.deleter = export_delete;
  *out = &made->managed;
  return PX_OK;
}

// Prepares an export. The importer may use the memory on any stream at any time, so its address is
// handed out. *kept shares the tensor's memory, also if the tensor gets other memory later.
// *current: the stream whose work must be made visible; NULL for the CPU.
static px_status prepare_export(px_stream **current, px_tensor **kept, const px_tensor *given) {
  *current = NULL;
  PX_TRY(px_tensor_detach(kept, given));
  const px_tensor *tensor = *kept;
  PX__USES(tensor);
  PX_CHECK(px__tensor_device(tensor).type != PX_META, PX_RUNTIME, "Cannot pack tensors on meta");
  PX_CHECK(!px_tensor_unresolved(tensor), PX_RUNTIME, "Can't export tensors with the %s bit set",
           px_tensor_unresolved(tensor));
  px__allocation_expose(tensor->storage->allocation);
  if (!px_tensor_is_cuda(tensor))
    return px__allocation_wait(tensor->storage->allocation, "dlpack", true);
  return px_stream_current(current, px__tensor_device(tensor));
}

px_status px_dlpack_export(px_dl_managed **out, px_tensor *tensor, px_stream *stream) {
  PX_GIVEN(out);
  PX_GIVEN(tensor);
  px_stream *current;
  PX_SCOPED(px_tensor) kept = NULL;
  *out = NULL;
  PX_TRY(prepare_export(&current, &kept, tensor));
  if (current && stream) PX_TRY(px_stream_wait_stream(stream, current));
  PX_TRY(export_new(out, kept));
  (void)PX_MOVE(kept);
  return PX_OK;
}

px_status px_dlpack_export_native(px_dl_managed **out, px_tensor *tensor, void *native) {
  PX_GIVEN(out);
  PX_GIVEN(tensor);
  px_stream *current;
  PX_SCOPED(px_tensor) kept = NULL;
  *out = NULL;
  PX_TRY(prepare_export(&current, &kept, tensor));
  if (current) PX_TRY(px_stream_hand_over(current, native));
  PX_TRY(export_new(out, kept));
  (void)PX_MOVE(kept);
  bool is_default = native == DEFAULT_STREAM || native == THREAD_STREAM;
  if (current && is_default) ((export *)*out)->native = native;
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

static void managed_release(void *context) {
  px_dl_managed *managed = context;
  if (managed->deleter) managed->deleter(managed);
}

// Returns the tensor behind one of our own exports, so work on the import is tracked as work on its
// memory. NULL for foreign exports, or if the fields were changed to leave its allocation.
static px_tensor *origin_of(px_dl_managed *managed, uintptr_t at, size_t bytes, px_dtype dtype) {
  px_tensor *tensor = managed->deleter == export_delete ? managed->manager_ctx : NULL;
  if (!tensor || px_dlpack_device(tensor).device_type != managed->dl_tensor.device.device_type)
    return NULL;
  const px_allocation *allocation = tensor->storage->allocation;
  uintptr_t start = (uintptr_t)allocation->data, end = start + allocation->bytes;
  bool within = at >= start && at <= end && bytes <= end - at;
  return within && (at - start) % px_dtype_size(dtype) == 0 ? tensor : NULL;
}

static px_status import_own(px_tensor **out, px_dl_managed *managed, px_tensor *origin,
                            uintptr_t at, const int64_t *strides, px_dtype dtype) {
  const px_dl_tensor *t = &managed->dl_tensor;
  px_storage *storage = origin->storage;
  PX_TRY(px__check_sizes(t->ndim, t->shape));
  int64_t offset = (int64_t)((at - (uintptr_t)storage->allocation->data) / px_dtype_size(dtype));
  PX_TRY(px__tensor_new(out, storage, dtype, t->ndim, t->shape, strides, offset));
  managed->deleter(managed);
  return PX_OK;
}

px_status px_dlpack_import_take(px_tensor **out, px_dl_managed *managed) {
  PX_GIVEN(out);
  PX_GIVEN(managed);
  *out = NULL;
  const px_dl_tensor *t = &managed->dl_tensor;
  px_dtype dtype = PX_FLOAT32;
  px_device device;
  size_t bytes;
  PX_CHECK(t->ndim >= 0 && t->ndim <= PX_MAX_DIMS, PX_RUNTIME,
           "a tensor may have at most %d dimensions, got %d", PX_MAX_DIMS, t->ndim);
  PX_CHECK(t->shape || !t->ndim, PX_RUNTIME, "a tensor of %d dimensions needs a shape", t->ndim);
  PX_TRY(dtype_of(&dtype, t->dtype));
  PX_TRY(device_of(&device, t->device));
  int64_t strides[PX_MAX_DIMS];
  px__row_major(t->ndim, t->shape, strides);
  if (t->strides) memcpy(strides, t->strides, (size_t)t->ndim * sizeof *strides);
  PX_TRY(px__extent_bytes(&bytes, t->ndim, t->shape, strides, 0, dtype));
  uintptr_t at = (uintptr_t)t->data, end;
  PX_CHECK(!__builtin_add_overflow(at, (uintptr_t)t->byte_offset, &at) &&
               !__builtin_add_overflow(at, (uintptr_t)bytes, &end) && t->byte_offset <= INT64_MAX,
           PX_RUNTIME, "a byte_offset of %llu is out of range", (unsigned long long)t->byte_offset);
  px_tensor *origin = t->data ? origin_of(managed, at, bytes, dtype) : NULL;
  if (origin) return import_own(out, managed, origin, at, strides, dtype);
  void *first = t->data ? (char *)t->data + t->byte_offset : NULL;
  return px_tensor_wrap(out, first, bytes, t->ndim, t->shape, strides, dtype, device,
                        managed_release, managed);
}
