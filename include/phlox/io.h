// SPDX-License-Identifier: Apache-2.0
// Tensors in files: safetensors, written atomically, read with every size and offset checked before
// it is used.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// Writes the tensors (from any device) to `path`: first to a temporary file beside it, which then
// takes its name, so that a crash leaves the old file whole. metadata: key, value, key, value, ...,
// NULL; may be NULL. PX_IO with errno in the detail.
PX_CALL px_save(const char *path, const px_dict *tensors, const char *const *metadata);
// Reads a file. Tensors go to `device` (PX_DEVICE_NONE: the CPU). PX_NOT_FOUND, PX_IO; PX_RUNTIME
// for a file that is no safetensors file, saying what is wrong and where.
PX_CALL px_load(px_dict **out, const char *path, px_device device);
// The value of a metadata key of a file: *out NULL if it has none; freed by the caller with
// px_free.
PX_CALL px_load_metadata(char **out, const char *path, const char *key);

#ifdef __cplusplus
}
#endif
