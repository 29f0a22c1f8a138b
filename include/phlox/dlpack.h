// SPDX-License-Identifier: Apache-2.0
// DLPack 1.0: handing tensors to other libraries and taking theirs, without a copy.
// https://dmlc.github.io/dlpack/latest/
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// The structures of the DLPack specification, by layout.
typedef struct px_dl_device {
  int32_t device_type;  // 1 CPU, 2 CUDA, 3 page-locked
  int32_t device_id;
} px_dl_device;
typedef struct px_dl_dtype {
  uint8_t code;  // 0 int, 1 uint, 2 float, 4 bfloat, 6 bool
  uint8_t bits;
  uint16_t lanes;
} px_dl_dtype;
typedef struct px_dl_tensor {
  void *data;
  px_dl_device device;
  int32_t ndim;
  px_dl_dtype dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} px_dl_tensor;
typedef struct px_dl_managed {
  px_dl_tensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct px_dl_managed *self);
} px_dl_managed;

// Exports a tensor: the caller, or whoever it is handed to, calls (*out)->deleter. Work on the
// tensor's current stream is made visible to `stream` (NULL: none asked).
PX_CALL px_dlpack_export(px_dl_managed **out, px_tensor *tensor, px_stream *stream);
// The same for a stream of another library by its handle, as DLPack's protocol passes it. Work that
// the library has queued on CUDA's default streams (1 and 2) when it calls the deleter may still
// use the memory; of its other streams it has to wait for the work first, since they may be gone.
PX_CALL px_dlpack_export_native(px_dl_managed **out, px_tensor *tensor, void *native);
// Takes over a managed tensor; its deleter runs when the last view is gone. PX_RUNTIME for types or
// devices Phlox has not.
PX_CALL px_dlpack_import_take(px_tensor **out, px_dl_managed *managed);
// The DLPack device of a tensor.
PX_API px_dl_device px_dlpack_device(const px_tensor *tensor);

#ifdef __cplusplus
}
#endif
