// SPDX-License-Identifier: Apache-2.0
// Tensors: a dtype, sizes and strides over a storage on a device.
//
// Tensors sharing a storage are views of each other. Sizes and strides are in elements; a tensor
// has at most PX_MAX_DIMS dimensions. docs/reference/threads.md describes concurrent use.
#pragma once
#include "phlox/backend.h"
#include "phlox/dtype.h"
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_storage px_storage;

// The memory order of dimensions. Ops take a format by name ("channels_last").
typedef enum px_memory_format {
  PX_FORMAT_CONTIGUOUS,       // row-major
  PX_FORMAT_PRESERVE,         // that of the copied tensor
  PX_FORMAT_CHANNELS_LAST,    // images (N, C, H, W) with contiguous channels: NHWC
  PX_FORMAT_CHANNELS_LAST_3D  // volumes (N, C, D, H, W): NDHWC
} px_memory_format;
PX_API const char *px_memory_format_name(px_memory_format format);
// PX_VALUE for an unknown name.
PX_CALL px_memory_format_parse(px_memory_format *out, const char *name);

// A list of tensors, as returned by split and unbind. It owns its elements; accessors borrow.
typedef struct px_list px_list;
PX_CALL px_list_new(px_list **out, px_tensor *const *items, int64_t count);
PX_API int64_t px_list_size(const px_list *list);
PX_API px_tensor *px_list_get(const px_list *list, int64_t i);
PX_API px_tensor *const *px_list_items(const px_list *list);

// ---- creation
// dtype PX_DTYPE_NONE means the default floating-point type, device PX_DEVICE_NONE the default
// device.

// Make a tensor with uninitialised elements, row-major or with the given strides. PX_RUNTIME for
// negative or overflowing sizes; PX_OUT_OF_MEMORY (devices), PX_NOMEM (CPU).
PX_CALL px_tensor_empty(px_tensor **out, int ndim, const int64_t *sizes, px_dtype dtype,
                        px_device device);
PX_CALL px_tensor_empty_strided(px_tensor **out, int ndim, const int64_t *sizes,
                                const int64_t *strides, px_dtype dtype, px_device device);
// The same with the strides of a memory format; PX_FORMAT_PRESERVE is row-major. PX_RUNTIME if the
// format needs another number of dimensions.
PX_CALL px_tensor_empty_format(px_tensor **out, int ndim, const int64_t *sizes,
                               px_memory_format format, px_dtype dtype, px_device device);
// Makes a CPU tensor in page-locked memory. PX_RUNTIME if there is no accelerator.
PX_CALL px_tensor_empty_pinned(px_tensor **out, int ndim, const int64_t *sizes, px_dtype dtype);
// Makes a tensor from elements of `dtype` on the host, in row-major order; `data` is copied.
PX_CALL px_tensor_from_data(px_tensor **out, const void *data, int ndim, const int64_t *sizes,
                            px_dtype dtype, px_device device);
// Makes a tensor over external memory of `device`. The last view's destruction calls
// release(context). strides NULL: row-major. `bytes` is the size of the memory from `data` on.
PX_CALL px_tensor_wrap(px_tensor **out, void *data, size_t bytes, int ndim, const int64_t *sizes,
                       const int64_t *strides, px_dtype dtype, px_device device,
                       void (*release)(void *context), void *context);
// Makes a tensor over a storage, which it retains, with any geometry within its bounds. The offset
// is in elements. It is not a view: it has no base.
PX_CALL px_tensor_from_storage(px_tensor **out, px_storage *storage, px_dtype dtype, int ndim,
                               const int64_t *sizes, const int64_t *strides, int64_t offset);
// Makes a 0-dim CPU tensor from a number. As an operand it is promoted like a number ("wrapped").
PX_CALL px_tensor_from_scalar(px_tensor **out, px_scalar value);
// The same for a complex number. Ops take complex numbers as such tensors.
PX_CALL px_tensor_from_complex(px_tensor **out, px_complex value);
// Makes a view of self's storage with any geometry within its bounds. The offset is in elements
// from the start of the storage.
PX_CALL px_tensor_as_strided(px_tensor **out, const px_tensor *self, int ndim, const int64_t *sizes,
                             const int64_t *strides, int64_t offset);
// Make a tensor sharing self's storage, without history. `detach` shares the version counter, too;
// `alias` (PyTorch's .data) does not.
PX_CALL px_tensor_detach(px_tensor **out, const px_tensor *self);
PX_CALL px_tensor_alias(px_tensor **out, const px_tensor *self);
// Makes an outline of self: sizes, strides, dtype and device, without memory.
PX_CALL px_tensor_outline(px_tensor **out, const px_tensor *self);
// Replaces self's storage, dtype, sizes and device by those of `value` (x.data = value). Self
// remains the same object, with its history.
PX_CALL px_tensor_set_data(px_tensor *self, const px_tensor *value);
// Changes self's sizes in place, and grows its storage if needed; new elements are uninitialised.
PX_CALL px_tensor_resize(px_tensor *self, int ndim, const int64_t *sizes);

// ---- properties

PX_API int px_tensor_ndim(const px_tensor *self);
PX_API const int64_t *px_tensor_sizes(const px_tensor *self);    // ndim elements, borrowed
PX_API const int64_t *px_tensor_strides(const px_tensor *self);  // ndim elements, borrowed
// True if the sizes equal the `ndim` given ones.
PX_API bool px_tensor_has_sizes(const px_tensor *self, int ndim, const int64_t *sizes);
// True if the sizes of two tensors are equal, also beside threads that replace their data.
PX_API bool px_tensor_same_sizes(const px_tensor *a, const px_tensor *b);
PX_API int64_t px_tensor_size(const px_tensor *self,
                              int dim);  // dim may be negative; 0 if out of range
PX_API int64_t px_tensor_numel(const px_tensor *self);
PX_API px_dtype px_tensor_dtype(const px_tensor *self);
PX_API px_device px_tensor_device(const px_tensor *self);
PX_API int64_t px_tensor_offset(const px_tensor *self);
PX_API px_storage *px_tensor_storage(const px_tensor *self);  // borrowed
PX_API bool px_tensor_is_contiguous(const px_tensor *self);
// True if the elements are laid out in a format, without gaps. Images with one channel or one pixel
// may satisfy two formats.
PX_API bool px_tensor_has_format(const px_tensor *self, px_memory_format format);
// Returns the format suggested by the strides, even with gaps: channels_last or row-major.
PX_API px_memory_format px_tensor_suggest_format(const px_tensor *self);
// True if the elements fill their memory without gaps, in any order of dimensions.
PX_API bool px_tensor_is_dense(const px_tensor *self);
PX_API bool px_tensor_is_pinned(const px_tensor *self);
PX_API bool px_tensor_is_cuda(const px_tensor *self);
// True if self was made from a number (px_tensor_from_scalar).
PX_API bool px_tensor_is_wrapped(const px_tensor *self);
// The base of a view, borrowed; NULL for other tensors.
PX_API px_tensor *px_tensor_base(const px_tensor *self);
PX_API uint64_t px_tensor_version(const px_tensor *self);
PX_API void px_tensor_bump_version(px_tensor *self);
// Returns the bit of a conjugate or negative view, "conjugate" or "negative"; NULL for other
// tensors. The memory of such a view differs from its values: px_resolve_conj and px_resolve_neg
// copy the values, and px_copy_ writes them back.
PX_API const char *px_tensor_unresolved(const px_tensor *self);
// Returns the address of the first element, on self's device. The allocator then assumes accesses
// by unknown work. NULL for empty tensors, and for conjugate and negative views.
PX_API void *px_tensor_data(const px_tensor *self);
// Returns the address of a CPU tensor's first element, for reading and writing; waits for pending
// copies. NULL for device tensors. PX_RUNTIME for conjugate and negative views.
PX_CALL px_tensor_host_data(void **out, const px_tensor *self);
// "torch.cuda.FloatTensor"; returns `text`.
PX_API const char *px_tensor_type_name(const px_tensor *self, char text[48]);
// Returns the single element as a number; waits for the device. PX_RUNTIME "a Tensor with 6
// elements cannot be converted to Scalar". PX_RUNTIME for a complex element with an imaginary part
// other than 0.
PX_CALL px_tensor_item(px_scalar *out, const px_tensor *self);
// The same as a complex number, for any dtype.
PX_CALL px_tensor_item_complex(px_complex *out, const px_tensor *self);
// Copies all elements to host memory in row-major order; waits for the device. PX_VALUE unless
// `bytes` is numel times the element size.
PX_CALL px_tensor_read(const px_tensor *self, void *to, size_t bytes);
// Records a use by all work issued to the stream so far (record_stream). PX_UNIMPLEMENTED for CPU
// tensors.
PX_CALL px_tensor_record_stream(px_tensor *self, px_stream *stream);

// The embedding language's object for this tensor, borrowed, or NULL.
PX_API void *px_tensor_user(const px_tensor *self);
PX_API void px_tensor_set_user(px_tensor *self, void *user);
// Data kept for the embedding language (attributes of its object) after its object is destroyed
// before the tensor, until the language sets NULL. If the tensor is destroyed first, on any thread,
// the function set with px_tensor_set_kept_release receives it.
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
// Resizes the storage, preserving contents up to the smaller size; all tensors over it see the
// change. A tensor reaching past the end keeps its sizes and cannot be used (PX_RUNTIME) until the
// storage is large enough again; a size of 0 frees the memory meanwhile. PX_RUNTIME for external
// memory, and for memory shared with other processes.
PX_CALL px_storage_resize(px_storage *storage, size_t bytes);
PX_API bool px_storage_resizable(const px_storage *storage);
// Returns a page-locked copy, or the storage itself if pinned.
PX_CALL px_storage_pin(px_storage **out, px_storage *storage);
// Moves the memory of a CPU storage, with its contents, into shared memory accessible to other
// processes; all tensors over the storage see it there. No other thread may use them during the
// call. The storage can no longer grow. No-op if it is shared already or on a device.
//
//   px_tensor *t;
//   PX_TRY(px_zeros(&t, (int64_t[]){4}, 1, PX_FLOAT32, px_cpu(), false, false));
//   PX_TRY(px_storage_share(px_tensor_storage(t)));
//   if (fork() == 0) write_to(t);  // visible to the parent
//
// PX_RUNTIME if the system provides no file or memory.
PX_CALL px_storage_share(px_storage *storage);
// True if other processes can access the memory: shared memory, and device memory.
PX_API bool px_storage_is_shared(const px_storage *storage);
// Returns the file descriptor of shared memory, to be sent to another process. The storage owns and
// closes it. PX_RUNTIME if there is none.
PX_CALL px_storage_fd(int *out, px_storage *storage);
// Makes a storage over the first `bytes` of such a file; the caller keeps the descriptor. PX_VALUE
// if the file has fewer bytes or is not a regular file.
PX_CALL px_storage_from_fd(px_storage **out, int fd, size_t bytes);

// Like px_storage_share, but in a named file without an open descriptor, for processes sharing more
// storages than their limit of open files. The last process to release it removes the name.
// References of exited processes are released when the next process makes its first such file.
PX_CALL px_storage_share_named(px_storage *storage);
PX_API bool px_storage_is_named(const px_storage *storage);
// Returns a name for one message to another process, to be opened with px_storage_from_name. The
// memory stays alive until then, or until this process exits. `out` holds PX_SHARED_NAME bytes.
// PX_RUNTIME if the storage is not in a named file, or its name was removed.
enum { PX_SHARED_NAME = 64 };
PX_CALL px_storage_name(char *out, px_storage *storage);
// Makes a storage over the first `bytes` of the file named by px_storage_name. PX_VALUE for an
// invalid name or too few bytes; PX_RUNTIME if the memory is gone.
PX_CALL px_storage_from_name(px_storage **out, const char *name, size_t bytes);

// A handle of a device storage for another process: plain bytes, sent by any means. Each handle is
// one message, received by at most one process.
typedef struct px_storage_handle {
  unsigned char device[16];  // uuid
  px_ipc_handle memory;      // allocation containing the storage
  uint64_t bytes, offset;    // of the storage in the allocation
  px_ipc_handle counters;    // the sender's counts of messages in flight ...
  uint64_t slot, serial;     // ... and the slot and serial number of the storage in them
  px_ipc_handle event;       // recorded after the work preceding the message; 0: none
} px_storage_handle;
// Returns a handle, ordered after all work issued so far to the calling thread's current stream of
// the device. The memory is kept until every process that received a handle has released its
// storage or exited, even if this process releases its own first. PX_RUNTIME for a storage received
// from another process or not on a device; PX_UNIMPLEMENTED if the backend cannot share memory.
PX_CALL px_storage_ipc_handle(px_storage_handle *out, px_storage *storage);
// Makes the storage of a handle, over the same memory. Later work on its device's streams is
// ordered after the sender's work; nothing else orders the processes' work. Handles of the same
// storage give one storage. The process that allocated the memory must outlive its use here.
// PX_RUNTIME if the sender has exited or released the storage; PX_VALUE for an invalid handle.
PX_CALL px_storage_from_ipc_handle(px_storage **out, const px_storage_handle *handle);
// Frees memory kept for other processes and released by them. This also happens before an
// out-of-memory error, and occasionally when a handle is made. Returns the number of storages of
// this process still held by other processes or in flight.
PX_CALL px_storage_ipc_collect(int64_t *left);

// ---- printing

typedef struct px_print_options {
  int precision, threshold, edgeitems, linewidth;
  int sci_mode;  // -1 decide, 0 never, 1 always
} px_print_options;
PX_API px_print_options px_print_options_get(void);
PX_API void px_print_options_set(px_print_options options);
// Returns PyTorch's text of a tensor, to be freed with px_free; waits for the device. `prefix` is
// "tensor(", or that of a subclass.
PX_CALL px_tensor_text(char **out, const px_tensor *self, const char *prefix);
PX_API void px_free(void *memory);

#ifdef __cplusplus
}
#endif
