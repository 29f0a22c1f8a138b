// SPDX-License-Identifier: Apache-2.0
// DLPack 1.3: zero-copy exchange of tensors with other libraries.
// https://dmlc.github.io/dlpack/latest/
#pragma once
#include "phlox/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// The structures of the DLPack specification, with identical layout.
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
// The same with a version and flags, since DLPack 1.0.
typedef struct px_dl_version {
  uint32_t major, minor;
} px_dl_version;
typedef enum px_dl_flags {
  PX_DL_READ_ONLY = 1,  // the consumer must not write
  PX_DL_IS_COPIED = 2,  // the memory has no other user
} px_dl_flags;
typedef struct px_dl_versioned {
  px_dl_version version;
  void *manager_ctx;
  void (*deleter)(struct px_dl_versioned *self);
  uint64_t flags;
  px_dl_tensor dl_tensor;
} px_dl_versioned;
#define PX_DL_MAJOR 1
#define PX_DL_MINOR 3

// Exports a tensor. The last owner of *out calls (*out)->deleter(*out). Later work of `stream`
// waits for the work on the tensor's current stream; NULL: no wait.
PX_CALL px_dlpack_export(px_dl_managed **out, px_tensor *tensor, px_stream *stream);
// The same for a stream of another library, by its DLPack handle; NULL: no wait. Work on CUDA's
// default streams (1 and 2) queued before the deleter call may still use the memory. Work on other
// streams must be done by then, since those streams may no longer exist.
PX_CALL px_dlpack_export_native(px_dl_managed **out, px_tensor *tensor, void *native);
// The same as a versioned tensor. flags: of px_dl_flags, for the consumer.
PX_CALL px_dlpack_export_versioned(px_dl_versioned **out, px_tensor *tensor, void *native,
                                   uint64_t flags);
// Describes a tensor without an export; no stream waits. The shape, strides and memory are the
// tensor's: they are valid until the tensor is released or changed.
PX_CALL px_dlpack_describe(px_dl_tensor *out, px_tensor *tensor);
// Makes a tensor over a managed one, and takes ownership of it. The deleter is called when the last
// view is destroyed. PX_RUNTIME for dtypes and devices not supported by Phlox.
PX_CALL px_dlpack_import_take(px_tensor **out, px_dl_managed *managed);
// The same for a versioned one. Phlox has no read-only tensors: a caller that writes to the result
// must check PX_DL_READ_ONLY before. PX_RUNTIME for another major version.
PX_CALL px_dlpack_import_versioned_take(px_tensor **out, px_dl_versioned *managed);
// True for an export of this library.
PX_API bool px_dlpack_is_own(const px_dl_versioned *managed);
// Makes an uninitialised tensor of a prototype's shape, dtype and device; its strides and memory
// are ignored.
PX_CALL px_dlpack_empty(px_tensor **out, const px_dl_tensor *prototype);
// Returns the DLPack device of a tensor.
PX_API px_dl_device px_dlpack_device(const px_tensor *tensor);

#ifdef __cplusplus
}
#endif
