// SPDX-License-Identifier: Apache-2.0
// Tensors: a dtype, sizes and strides over a storage on a device.
//
// Several tensors may share a storage (views). Sizes and strides are counted in elements, 64-bit,
// at most PX_MAX_DIMS of them. A tensor is used by one thread at a time; its storage may be shared
// between threads.
#pragma once
#include "phlox/backend.h"
#include "phlox/dtype.h"
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_storage px_storage;

// A list of tensors: the result of split, unbind, ... Elements are borrowed from the list.
typedef struct px_list px_list;
PX_CALL px_list_new(px_list **out, px_tensor *const *items, int64_t count);
PX_API int64_t px_list_size(const px_list *list);
PX_API px_tensor *px_list_get(const px_list *list, int64_t i);
PX_API px_tensor *const *px_list_items(const px_list *list);

// ---- making
// dtype PX_DTYPE_NONE means the default float type; device PX_DEVICE_NONE the default device.

// Uninitialised. PX_RUNTIME for negative or overflowing sizes; PX_OUT_OF_MEMORY, PX_NOMEM.
PX_CALL px_tensor_empty(px_tensor **out, int ndim, const int64_t *sizes, px_dtype dtype,
                        px_device device);
PX_CALL px_tensor_empty_strided(px_tensor **out, int ndim, const int64_t *sizes,
                                const int64_t *strides, px_dtype dtype, px_device device);
// On the CPU in page-locked memory. PX_RUNTIME where there is no accelerator.
PX_CALL px_tensor_empty_pinned(px_tensor **out, int ndim, const int64_t *sizes, px_dtype dtype);
// A copy of `data`, numel elements of `dtype` in row-major order on the host.
PX_CALL px_tensor_from_data(px_tensor **out, const void *data, int ndim, const int64_t *sizes,
                            px_dtype dtype, px_device device);
// A tensor over memory that somebody else owns, on `device`; `release(context)` is called when the
// last view is gone. strides NULL means row-major. `bytes` is the extent of the memory from `data`.
PX_CALL px_tensor_wrap(px_tensor **out, void *data, size_t bytes, int ndim, const int64_t *sizes,
                       const int64_t *strides, px_dtype dtype, px_device device,
                       void (*release)(void *context), void *context);
// 0-dim on the CPU from a number. As an operand it takes part in type promotion as a number does
// ("wrapped").
PX_CALL px_tensor_from_scalar(px_tensor **out, px_scalar value);
// A view of the same storage; the geometry is checked against the storage. offset in elements from
// the storage's start.
PX_CALL px_tensor_as_strided(px_tensor **out, const px_tensor *self, int ndim, const int64_t *sizes,
                             const int64_t *strides, int64_t offset);
// A tensor that shares storage and version but has no history; `alias` (PyTorch's .data) does not
// share the version either.
PX_CALL px_tensor_detach(px_tensor **out, const px_tensor *self);
PX_CALL px_tensor_alias(px_tensor **out, const px_tensor *self);
// A tensor with self's sizes, strides, dtype and device and no memory: for those who need to
// remember only the shape.
PX_CALL px_tensor_outline(px_tensor **out, const px_tensor *self);
// Makes self an alias of `value` (x.data = value): storage, dtype, sizes, device. History and
// identity of self stay.
PX_CALL px_tensor_set_data(px_tensor *self, const px_tensor *value);
// Changes the sizes in place; grows the storage as needed; elements past the old end are
// uninitialised.
PX_CALL px_tensor_resize(px_tensor *self, int ndim, const int64_t *sizes);

// ---- looking

PX_API int px_tensor_ndim(const px_tensor *self);
PX_API const int64_t *px_tensor_sizes(const px_tensor *self);    // ndim of them, borrowed
PX_API const int64_t *px_tensor_strides(const px_tensor *self);  // likewise
PX_API int64_t px_tensor_size(const px_tensor *self,
                              int dim);  // dim may be negative; 0 if out of range
PX_API int64_t px_tensor_numel(const px_tensor *self);
PX_API px_dtype px_tensor_dtype(const px_tensor *self);
PX_API px_device px_tensor_device(const px_tensor *self);
PX_API int64_t px_tensor_offset(const px_tensor *self);
PX_API px_storage *px_tensor_storage(const px_tensor *self);  // borrowed
PX_API bool px_tensor_is_contiguous(const px_tensor *self);
PX_API bool px_tensor_is_pinned(const px_tensor *self);
PX_API bool px_tensor_is_cuda(const px_tensor *self);
// Whether self is a number in disguise (px_tensor_from_scalar).
PX_API bool px_tensor_is_wrapped(const px_tensor *self);
// The tensor that self is a view of, or NULL; borrowed.
PX_API px_tensor *px_tensor_base(const px_tensor *self);
PX_API uint64_t px_tensor_version(const px_tensor *self);
PX_API void px_tensor_bump_version(px_tensor *self);
// Address of the first element. From then on the memory is treated conservatively by the allocator
// and the race checker.
PX_API void *px_tensor_data(const px_tensor *self);
// A CPU tensor's first element for reading and writing by the caller; waits for pending copies into
// it. NULL elsewhere.
PX_CALL px_tensor_host_data(void **out, const px_tensor *self);
// "torch.cuda.FloatTensor"; returns `text`.
PX_API const char *px_tensor_type_name(const px_tensor *self, char text[48]);
// One element as a number (waits). PX_RUNTIME "a Tensor with 6 elements cannot be converted to
// Scalar".
PX_CALL px_tensor_item(px_scalar *out, const px_tensor *self);
// Copies all elements to host memory in row-major order (waits). `bytes` must be numel * element
// size.
PX_CALL px_tensor_read(const px_tensor *self, void *to, size_t bytes);
// Declares a use by work on the stream (record_stream). PX_UNIMPLEMENTED for CPU tensors.
PX_CALL px_tensor_record_stream(px_tensor *self, px_stream *stream);

// The embedding language's object for this tensor, borrowed; and a mark "is a Parameter", kept by
// detach's caller.
PX_API void *px_tensor_user(const px_tensor *self);
PX_API void px_tensor_set_user(px_tensor *self, void *user);
// What the language keeps of an object that ended before the tensor did (its attributes), until it
// takes it back by setting a user, or NULL: when the tensor ends, on any thread, it is given to the
// function of px_tensor_set_kept_release.
PX_API void *px_tensor_kept(const px_tensor *self);
PX_API void px_tensor_set_kept(px_tensor *self, void *kept);
PX_API void px_tensor_set_kept_release(void (*release)(void *kept));
PX_API bool px_tensor_is_parameter(const px_tensor *self);
PX_API void px_tensor_set_parameter(px_tensor *self, bool parameter);

// ---- storage

PX_API size_t px_storage_bytes(const px_storage *storage);
PX_API px_device px_storage_device(const px_storage *storage);
PX_API bool px_storage_is_pinned(const px_storage *storage);
PX_API void *px_storage_data(const px_storage *storage);
// A page-locked copy (or a new reference to itself if it is pinned already).
PX_CALL px_storage_pin(px_storage **out, px_storage *storage);

// ---- printing

typedef struct px_print_options {
  int precision, threshold, edgeitems, linewidth;
  int sci_mode;  // -1 decide, 0 never, 1 always
} px_print_options;
PX_API px_print_options px_print_options_get(void);
PX_API void px_print_options_set(px_print_options options);
// PyTorch's text of a tensor (waits). `prefix` is "tensor(", or the subclass's. The caller frees
// *out with px_free.
PX_CALL px_tensor_text(char **out, const px_tensor *self, const char *prefix);
PX_API void px_free(void *memory);

#ifdef __cplusplus
}
#endif
