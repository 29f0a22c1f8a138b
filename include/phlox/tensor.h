// SPDX-License-Identifier: Apache-2.0
// Tensors: a dtype, sizes and strides over a storage on a device.
//
// Several tensors may share a storage: they are views of each other. Sizes and strides are counted
// in elements; a tensor has at most PX_MAX_DIMS dimensions. One thread at a time may use a tensor;
// several threads may use tensors that share a storage.
#pragma once
#include "phlox/backend.h"
#include "phlox/dtype.h"
#include "phlox/stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_storage px_storage;

// In which order the dimensions of a tensor lie in memory. Ops take a format by its name
// ("channels_last").
typedef enum px_memory_format {
  PX_FORMAT_CONTIGUOUS,       // row-major
  PX_FORMAT_PRESERVE,         // as those of the tensor that is copied
  PX_FORMAT_CHANNELS_LAST,    // of images (N, C, H, W): the channels of one place lie side by side
  PX_FORMAT_CHANNELS_LAST_3D  // of volumes (N, C, D, H, W)
} px_memory_format;
PX_API const char *px_memory_format_name(px_memory_format format);
// PX_VALUE for a name of none.
PX_CALL px_memory_format_parse(px_memory_format *out, const char *name);

// A list of tensors, as split and unbind give. The list owns its elements; accessors lend them.
typedef struct px_list px_list;
PX_CALL px_list_new(px_list **out, px_tensor *const *items, int64_t count);
PX_API int64_t px_list_size(const px_list *list);
PX_API px_tensor *px_list_get(const px_list *list, int64_t i);
PX_API px_tensor *const *px_list_items(const px_list *list);

// ---- making
// dtype PX_DTYPE_NONE means the default float type; device PX_DEVICE_NONE the default device.

// Makes a tensor with uninitialised elements, row-major or with the strides given. PX_RUNTIME for
// negative sizes, or sizes that overflow; PX_OUT_OF_MEMORY (devices), PX_NOMEM (CPU).
PX_CALL px_tensor_empty(px_tensor **out, int ndim, const int64_t *sizes, px_dtype dtype,
                        px_device device);
PX_CALL px_tensor_empty_strided(px_tensor **out, int ndim, const int64_t *sizes,
                                const int64_t *strides, px_dtype dtype, px_device device);
// The same with the strides of a memory format; PX_FORMAT_PRESERVE is row-major. PX_RUNTIME if
// tensors of so many dimensions cannot have it.
PX_CALL px_tensor_empty_format(px_tensor **out, int ndim, const int64_t *sizes,
                               px_memory_format format, px_dtype dtype, px_device device);
// Makes a CPU tensor in page-locked memory. PX_RUNTIME if there is no accelerator.
PX_CALL px_tensor_empty_pinned(px_tensor **out, int ndim, const int64_t *sizes, px_dtype dtype);
// Makes a tensor from elements of `dtype` on the host, in row-major order; `data` is copied.
PX_CALL px_tensor_from_data(px_tensor **out, const void *data, int ndim, const int64_t *sizes,
                            px_dtype dtype, px_device device);
// Makes a tensor over memory of `device` that somebody else owns; release(context) is called when
// the last view is gone. strides NULL: row-major. `bytes` is the size of the memory from `data` on.
PX_CALL px_tensor_wrap(px_tensor **out, void *data, size_t bytes, int ndim, const int64_t *sizes,
                       const int64_t *strides, px_dtype dtype, px_device device,
                       void (*release)(void *context), void *context);
// Makes a tensor over a storage, of which it keeps a reference, with any geometry that fits it. The
// offset is in elements. It is no view: it has no base.
PX_CALL px_tensor_from_storage(px_tensor **out, px_storage *storage, px_dtype dtype, int ndim,
                               const int64_t *sizes, const int64_t *strides, int64_t offset);
// Makes a 0-dim CPU tensor from a number. As an operand it takes part in promotion as a number
// does: it is "wrapped".
PX_CALL px_tensor_from_scalar(px_tensor **out, px_scalar value);
// The same of a complex number. Ops take numbers as such tensors where they are complex.
PX_CALL px_tensor_from_complex(px_tensor **out, px_complex value);
// Makes a view of self's storage with any geometry that fits the storage. The offset is in
// elements, from the start of the storage.
PX_CALL px_tensor_as_strided(px_tensor **out, const px_tensor *self, int ndim, const int64_t *sizes,
                             const int64_t *strides, int64_t offset);
// Makes a tensor that shares self's storage and has no history. `detach` shares the version too,
// `alias` (PyTorch's .data) does not.
PX_CALL px_tensor_detach(px_tensor **out, const px_tensor *self);
PX_CALL px_tensor_alias(px_tensor **out, const px_tensor *self);
// Makes an outline of self: its sizes, strides, dtype and device, without memory.
PX_CALL px_tensor_outline(px_tensor **out, const px_tensor *self);
// Gives self the storage, dtype, sizes and device of `value` (x.data = value). Self stays the same
// object, with its history.
PX_CALL px_tensor_set_data(px_tensor *self, const px_tensor *value);
// Changes self's sizes in place, and grows its storage if needed; new elements are uninitialised.
PX_CALL px_tensor_resize(px_tensor *self, int ndim, const int64_t *sizes);

// ---- looking

PX_API int px_tensor_ndim(const px_tensor *self);
PX_API const int64_t *px_tensor_sizes(const px_tensor *self);    // ndim of them, borrowed
PX_API const int64_t *px_tensor_strides(const px_tensor *self);  // likewise
// Whether its sizes are these, `ndim` of them.
PX_API bool px_tensor_has_sizes(const px_tensor *self, int ndim, const int64_t *sizes);
PX_API int64_t px_tensor_size(const px_tensor *self,
                              int dim);  // dim may be negative; 0 if out of range
PX_API int64_t px_tensor_numel(const px_tensor *self);
PX_API px_dtype px_tensor_dtype(const px_tensor *self);
PX_API px_device px_tensor_device(const px_tensor *self);
PX_API int64_t px_tensor_offset(const px_tensor *self);
PX_API px_storage *px_tensor_storage(const px_tensor *self);  // borrowed
PX_API bool px_tensor_is_contiguous(const px_tensor *self);
// Whether the elements lie as a format has them, without gaps. Images of one channel, or of one
// place, may have two formats.
PX_API bool px_tensor_has_format(const px_tensor *self, px_memory_format format);
// The format that the strides show, gaps or not: channels_last or row-major.
PX_API px_memory_format px_tensor_suggest_format(const px_tensor *self);
// Whether the elements fill their memory, in any order of dimensions.
PX_API bool px_tensor_is_dense(const px_tensor *self);
PX_API bool px_tensor_is_pinned(const px_tensor *self);
PX_API bool px_tensor_is_cuda(const px_tensor *self);
// Whether self was made from a number (px_tensor_from_scalar).
PX_API bool px_tensor_is_wrapped(const px_tensor *self);
// The tensor that self is a view of, or NULL; borrowed.
PX_API px_tensor *px_tensor_base(const px_tensor *self);
PX_API uint64_t px_tensor_version(const px_tensor *self);
PX_API void px_tensor_bump_version(px_tensor *self);
// Returns the address of the first element, on self's device. From then on the allocator assumes
// that unknown work may use the memory.
PX_API void *px_tensor_data(const px_tensor *self);
// Gives the address of a CPU tensor's first element, to read and write; waits for copies that are
// still running. NULL for tensors of devices.
PX_CALL px_tensor_host_data(void **out, const px_tensor *self);
// "torch.cuda.FloatTensor"; returns `text`.
PX_API const char *px_tensor_type_name(const px_tensor *self, char text[48]);
// Gives the only element as a number; waits for the device. PX_RUNTIME "a Tensor with 6 elements
// cannot be converted to Scalar".
// Of a complex one PX_RUNTIME if its imaginary part is not 0.
PX_CALL px_tensor_item(px_scalar *out, const px_tensor *self);
// The same as a complex number, of any dtype.
PX_CALL px_tensor_item_complex(px_complex *out, const px_tensor *self);
// Copies all elements to host memory, in row-major order; waits for the device. PX_VALUE unless
// `bytes` is numel times the size of an element.
PX_CALL px_tensor_read(const px_tensor *self, void *to, size_t bytes);
// Notes a use by all work issued to the stream so far (record_stream). PX_UNIMPLEMENTED for CPU
// tensors.
PX_CALL px_tensor_record_stream(px_tensor *self, px_stream *stream);

// The embedding language's object for this tensor, borrowed, or NULL.
PX_API void *px_tensor_user(const px_tensor *self);
PX_API void px_tensor_set_user(px_tensor *self, void *user);
// What the language keeps of such an object (its attributes) if that ends before the tensor; it is
// there until the language sets NULL. If the tensor ends first, on any thread, the function set
// with px_tensor_set_kept_release gets it.
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
// Gives the storage memory of that many bytes, with its contents as far as they fit; all tensors
// over it see it there. A tensor that then reaches past the end keeps its sizes, and cannot be used
// (PX_RUNTIME) until the storage is long enough again: with 0 bytes its memory is free meanwhile.
// PX_RUNTIME for memory of somebody else, or that other processes have too.
PX_CALL px_storage_resize(px_storage *storage, size_t bytes);
PX_API bool px_storage_resizable(const px_storage *storage);
// Gives a page-locked copy, or the storage itself if it is pinned.
PX_CALL px_storage_pin(px_storage **out, px_storage *storage);
// Moves the memory of a CPU storage, with its contents, into shared memory, which other processes
// can have too; all tensors over the storage see it there. No other thread may use them meanwhile.
// The storage cannot grow any more. Nothing happens if it is shared already, or a device's.
//
//   px_tensor *t;
//   PX_TRY(px_zeros(&t, PX_SIZES(4)));
//   PX_TRY(px_storage_share(px_tensor_storage(t)));
//   if (fork() == 0) write_to(t);  // the parent sees it
//
// PX_RUNTIME if the system gives no file or no memory.
PX_CALL px_storage_share(px_storage *storage);
// Whether other processes can have the memory: shared memory, and that of devices.
PX_API bool px_storage_is_shared(const px_storage *storage);
// Gives the file of shared memory, to be sent to another process. It stays the storage's, and is
// closed with it. PX_RUNTIME if there is none.
PX_CALL px_storage_fd(int *out, px_storage *storage);
// Makes a storage over the first `bytes` of such a file, which stays the caller's. PX_VALUE if the
// file has fewer bytes or is no regular file.
PX_CALL px_storage_from_fd(px_storage **out, int fd, size_t bytes);

// As px_storage_share, but in a file with a name, of which no descriptor stays open: for processes
// that share more storages than they may have files open. The last process that lets go takes the
// name away. What ended processes held is let go when the next process makes its first such file.
PX_CALL px_storage_share_named(px_storage *storage);
PX_API bool px_storage_is_named(const px_storage *storage);
// Gives a name for one message to another process, which takes it with px_storage_from_name. The
// memory stays until then, or until this process ends. `out` has room for PX_SHARED_NAME bytes.
// PX_RUNTIME if the storage is in no memory that has a name, or it has lost it.
enum { PX_SHARED_NAME = 64 };
PX_CALL px_storage_name(char *out, px_storage *storage);
// Makes a storage over the first `bytes` of what a name from px_storage_name stands for. PX_VALUE
// if it is no such name, or for fewer bytes; PX_RUNTIME if its memory is gone.
PX_CALL px_storage_from_name(px_storage **out, const char *name, size_t bytes);

// A storage of a device as another process can have it: plain bytes, to be sent in any way. Each
// handle is one message, which one process may receive, or which is lost.
typedef struct px_storage_handle {
  unsigned char device[16];  // uuid
  px_ipc_handle memory;      // the allocation that the storage lies in
  uint64_t bytes, offset;    // of the storage, there
  px_ipc_handle counters;    // where the sender counts messages that were not received yet ...
  uint64_t place, serial;    // ... of which storage
  px_ipc_handle event;       // recorded after the work that comes before the message; 0: none
} px_storage_handle;
// Gives a handle, after which comes all work that the calling thread's current stream of the device
// has so far. The memory of the storage stays as it is until every process that received a handle
// has let go of its storage, or has ended, also if this process lets go of its own before.
// PX_RUNTIME for a storage that came from another process, or is not a device's; PX_UNIMPLEMENTED
// if the backend cannot share memory.
PX_CALL px_storage_ipc_handle(px_storage_handle *out, px_storage *storage);
// Makes the storage of a handle: the same memory. What the streams of its device are given from now
// on comes after the sender's work; nothing else orders the processes' work. Storages of one
// storage are one. The process that made the memory must outlive its use here. PX_RUNTIME if the
// sender has ended, or has let go of the storage; PX_VALUE if the bytes are no handle.
PX_CALL px_storage_from_ipc_handle(px_storage **out, const px_storage_handle *handle);
// Frees the memory that this process kept for others and that they have let go of. That also
// happens before memory runs out, and now and then when a handle is made. Gives how many storages
// of this process others still have, or have still to receive.
PX_CALL px_storage_ipc_collect(int64_t *left);

// ---- printing

typedef struct px_print_options {
  int precision, threshold, edgeitems, linewidth;
  int sci_mode;  // -1 decide, 0 never, 1 always
} px_print_options;
PX_API px_print_options px_print_options_get(void);
PX_API void px_print_options_set(px_print_options options);
// Gives PyTorch's text of a tensor; waits for the device. `prefix` is "tensor(", or that of a
// subclass. The caller frees *out with px_free.
PX_CALL px_tensor_text(char **out, const px_tensor *self, const char *prefix);
PX_API void px_free(void *memory);

#ifdef __cplusplus
}
#endif
