// SPDX-License-Identifier: Apache-2.0
// The tensor layer, for the layers above it.
#pragma once
#include "device/device_impl.h"
#include "phlox/random.h"
#include "phlox/tensor.h"

typedef struct px__shared px__shared;                // shared.c
typedef struct px__ipc_reference px__ipc_reference;  // passed.c
typedef struct px__former px__former;                // storage.c
struct px_storage {
  px_object head;
  px_allocation *block;
  uint64_t version;           // of all tensors over it, but for aliases
  bool fixed;                 // somebody else's memory, or other processes' too: cannot grow
  px__shared *shared;         // the block's memory file, if it has one
  px__ipc_reference *passed;  // of a device: that other processes have it too
  px__former *former;         // blocks that it had, and whose addresses are still known to somebody
  size_t whole;  // bytes that tensors over it may reach to, where it has been cut below; 0
};

// Shared memory in files with names (named.c): how often which processes hold one, a page behind
// its data.
enum { PX__NAME_ROOM = 48 };
size_t px__named_page(void);                    // its bytes: the system decides
px_status px__shared_failed(const char *what);  // an error with the system's reason
typedef struct px__holders px__holders;
px_status px__named_new(int *out, char name[PX__NAME_ROOM], size_t bytes)
    __attribute__((warn_unused_result));
px_status px__named_hold(px__holders *self, pid_t process) __attribute__((warn_unused_result));
// The last that lets go takes the name away.
void px__named_drop(px__holders *self, const char *name, pid_t process);

// The version of a tensor that does not use its storage's; its views and detached forms share it.
typedef struct px_counter {
  px_object head;
  uint64_t count;  // atomic
} px_counter;
// Autograd's data of a tensor. The tensor layer only releases it.
typedef struct px_autograd_slot {
  px_object head;
} px_autograd_slot;

enum {
  PX_TENSOR_WRAPPED = 1,  // a number
  PX_TENSOR_PARAMETER = 2,
  PX_TENSOR_ALIASED = 4,     // has a version of its own (.data)
  PX_TENSOR_NEEDS_GRAD = 8,  // requires_grad: a leaf so marked, or with a history
  PX_TENSOR_INFERENCE = 16,
  PX_TENSOR_VIEW = 32,         // `base` is what it is a view of
  PX_TENSOR_UNRECORDED = 64,   // a view made while grad mode was off
  PX_TENSOR_MULTI_VIEW = 128,  // a view made by an op that gives several
  PX_TENSOR_FUNCTION_VIEW = 256,
  PX_TENSOR_BATCHED = 512,  // stands for the places of a mapped dimension: batched.c
  PX_TENSOR_CONJ = 1024,    // its numbers are the conjugates of those in memory
  PX_TENSOR_NEG = 2048,     // ... the negatives
  PX_TENSOR_LAZY = PX_TENSOR_CONJ | PX_TENSOR_NEG,
};
enum { PX__OWN_DIMS = 8 };
struct px_tensor {
  px_object head;
  px_storage *storage;
  int64_t offset;  // elements
  int64_t numel;
  px_counter *version;   // instead of the storage's: of aliases, their views and detached forms
  uint64_t own_version;  // of a view: the version when it was made
  px_tensor *base;       // of a differentiable view: the tensor at the root, owned
  px_autograd_slot *autograd;
  px_tensor *beneath;  // of a batched tensor: all places, along its first dimension; owned
  void *user;
  int8_t ndim;
  int8_t dtype;
  uint16_t flags;
  bool contiguous;           // row-major without gaps
  uint8_t level;             // of a batched tensor: of which mapping, 1 being the outermost
  int64_t *sizes, *strides;  // in `own`, or in memory for tensors of more dimensions
  int64_t own[2 * PX__OWN_DIMS];
};

static inline px_device px__tensor_device(const px_tensor *t) { return t->storage->block->device; }
// How many batched tensors (batched.c), mappings that are under way, and threads with a keeper of
// calls there are in the process: where there are none, calls need not look for them.
extern int px__calls_differ;  // atomic
static inline bool px__is_batched(const px_tensor *t) {
  return PX_UNLIKELY((t->flags & PX_TENSOR_BATCHED) != 0);
}
// Makes a tensor that stands for the places of the first dimension of `beneath`.
px_status px__batched_new(px_tensor **out, px_tensor *beneath, int level)
    __attribute__((warn_unused_result));
// Makes self, whose geometry is that of a place, stand for the places of `beneath`.
void px__batched_over(px_tensor *self, px_tensor *beneath, int level);
void px__batched_end(px_tensor *self);
// Makes the view beneath a view of a batched tensor: of each place, with the geometry given. Set by
// the layer that calls ops, which record it.
extern px_status (*px__batched_view)(px_tensor **out, px_tensor *beneath, int level, int ndim,
                                     const int64_t *sizes, const int64_t *strides, int64_t offset);
// What lies under all levels of a batched tensor: the elements of all places. Another tensor
// itself.
static inline const px_tensor *px__all_places(const px_tensor *t) {
  while (px__is_batched(t)) t = t->beneath;
  return t;
}
// Fails with PyTorch's text if t is batched: it has no memory of its own to be read or written.
px_status px__refuse_batched(const px_tensor *t) __attribute__((warn_unused_result));
// Whether autograd must look at t: it requires grad, or it is a view of a tensor that does by now.
static inline bool px__needs_grad(const px_tensor *t) {
  return (t->flags & PX_TENSOR_NEEDS_GRAD) || (t->base && (t->base->flags & PX_TENSOR_NEEDS_GRAD));
}
extern PX__HIDDEN const uint8_t px__dtype_bytes[PX_DTYPE_COUNT];
static inline bool px__has_sizes(const px_tensor *t, int ndim, const int64_t *sizes) {
  return t->ndim == ndim && (!ndim || !memcmp(t->sizes, sizes, (size_t)ndim * sizeof *sizes));
}
static inline size_t px__item(const px_tensor *t) { return px__dtype_bytes[t->dtype]; }
static inline void *px__tensor_at(const px_tensor *t) {
  return t->storage->block->data ? (char *)t->storage->block->data + (size_t)t->offset * px__item(t)
                                 : NULL;
}

// Makes a tensor over `storage`, of which it keeps a reference, with the geometry given, which is
// not checked, and the flags px__thread_marks.fresh. strides NULL: row-major. px__tensor_over takes
// over the caller's reference, also on failure.
px_status px__tensor_over(px_tensor **out, px_storage *storage_take, int ndim, const int64_t *sizes,
                          const int64_t *strides, px_dtype dtype)
    __attribute__((warn_unused_result));
px_status px__tensor_new(px_tensor **out, px_storage *storage, px_dtype dtype, int ndim,
                         const int64_t *sizes, const int64_t *strides, int64_t offset)
    __attribute__((warn_unused_result));
// The flags that the calling thread's new tensors and new views get (phlox/extend.h).
typedef struct px__marks {
  uint16_t fresh, view;
} px__marks;
extern _Thread_local PX__HIDDEN_THREAD px__marks px__thread_marks;  // src/tensor/extend.c
// Makes a view of self with another geometry, which is not checked. Its flags are
// px__thread_marks.view, and PX_TENSOR_INFERENCE if self has it. With PX_TENSOR_VIEW it keeps
// `base` (self's base, if self is a view) and notes the version in own_version, so that in-place
// writes reach the history. px_tensor_detach and px_tensor_alias do not make such views.
px_status px__tensor_view(px_tensor **out, const px_tensor *self, int ndim, const int64_t *sizes,
                          const int64_t *strides, int64_t offset)
    __attribute__((warn_unused_result));
// Makes a storage over memory of somebody else. release(context) is called when the last tensor
// ends, but not if this call fails.
px_status px__storage_wrap(px_storage **out, void *data, size_t bytes, px_device device,
                           void (*release)(void *), void *context)
    __attribute__((warn_unused_result));
// Gives a storage another block, and takes it, also on failure.
px_status px__storage_replace(px_storage *storage, px_allocation *block_take)
    __attribute__((warn_unused_result));
// Of a storage that other processes have, which lets go of the block.
void px__passed_end(px_storage *storage, px_allocation *block_take);
// Grows a storage to at least `bytes`, with its contents. PX_RUNTIME for memory of somebody else.
px_status px__storage_grow(px_storage *storage, size_t bytes) __attribute__((warn_unused_result));
// Check sizes: PX_RUNTIME for a negative size or too many dimensions; for row-major sizes that
// overflow.
px_status px__check_sizes(int ndim, const int64_t *sizes) __attribute__((warn_unused_result));
px_status px__row_major_bytes(size_t *out, int ndim, const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));
// Gives the bytes that a geometry needs, from the start of the storage. PX_RUNTIME on overflow:
// "Storage size calculation overflowed with sizes=[...]".
px_status px__extent_bytes(size_t *out, int ndim, const int64_t *sizes, const int64_t *strides,
                           int64_t offset, px_dtype dtype) __attribute__((warn_unused_result));
// Gives self the sizes, strides and offset of a view of it.
px_status px__tensor_take_geometry(px_tensor *self, const px_tensor *view)
    __attribute__((warn_unused_result));
// Recomputes numel and contiguous after sizes or strides changed.
void px__tensor_settle(px_tensor *t);
// Makes room for that many dimensions; the geometry stays.
px_status px__tensor_grow(px_tensor *t) __attribute__((warn_unused_result));
static inline px_status px__tensor_room(px_tensor *t, int ndim) {
  return PX_LIKELY(ndim <= PX__OWN_DIMS) || t->sizes != t->own ? PX_OK : px__tensor_grow(t);
}
void px__row_major(int ndim, const int64_t *sizes, int64_t *strides);
// The strides of a memory format; PX_RUNTIME if tensors of so many dimensions cannot have it.
px_status px__format_strides(int64_t *strides, int ndim, const int64_t *sizes,
                             px_memory_format format) __attribute__((warn_unused_result));
// Operands of one shape, with stride 0 where one repeats.
typedef struct px__layout {
  int ndim, n;
  const int64_t *sizes, *strides[PX_MAX_OPERANDS];
} px__layout;
// The strides of what is computed from such operands: without gaps, its dimensions in their order.
void px__layout_strides(int64_t *strides, const px__layout *l);
// The strides of a copy of t that keeps its order of dimensions: t's own, or in `room`; NULL:
// row-major.
const int64_t *px__kept_strides(int64_t *room, const px_tensor *t);
// Shapes. broadcast: into out_sizes (ndim in *out_ndim); PyTorch's text on mismatch.
px_status px__broadcast(int *out_ndim, int64_t *out_sizes, int a_ndim, const int64_t *a, int b_ndim,
                        const int64_t *b) __attribute__((warn_unused_result));
// Wraps a dimension; PX_INDEX "Dimension out of range (expected to be in range of [-1, 0], but got
// 4)".
px_status px__wrap_dim(int *out, int64_t dim, int ndim) __attribute__((warn_unused_result));
// The same for a list, as a mask; PX_RUNTIME where one is there twice.
px_status px__wrap_dims(uint64_t *out, const int64_t *dims, int count, int ndim)
    __attribute__((warn_unused_result));
// Gives the strides of a view of self with other sizes, of which one may be -1 and is filled in;
// *possible is false if only a copy can have them.
px_status px__view_strides(bool *possible, const px_tensor *self, int ndim, int64_t *sizes,
                           int64_t *strides) __attribute__((warn_unused_result));

// Views self with other PX_TENSOR_LAZY flags. Kernels read memory: such a tensor comes to none.
// What calls ops need not care, since the driver copies it before (call/lazy.c).
px_status px__tensor_lazy_view(px_tensor **out, const px_tensor *self, unsigned flags)
    __attribute__((warn_unused_result));
// Whether there ever was a tensor with such flags.
extern bool px__any_lazy;  // atomic

// Whether the bytes from the first to the last element of each share some.
bool px__overlap(const px_tensor *a, const px_tensor *b);
// Copies elements, and converts them, on one device (kernel "copy") or between devices. `from` is
// broadcast to the sizes of `to`. Does not increase the version, and records nothing.
px_status px__tensor_copy(px_tensor *to, const px_tensor *from, bool non_blocking)
    __attribute__((warn_unused_result));
// Gives a row-major tensor with self's contents: self itself if it is row-major, else a copy.
px_status px__tensor_contiguous(px_tensor **out, const px_tensor *self)
    __attribute__((warn_unused_result));
// Describes a tensor to a kernel, and the bytes that it touches.
static inline void px__operand_of(px_operand *operand, const px_tensor *t) {
  operand->data = px__tensor_at(t);
  operand->sizes = t->sizes;
  operand->strides = t->strides;
  operand->ndim = t->ndim;
  operand->dtype = t->dtype;
  operand->immediate = false;
}
// `count` times `stride`. Where nothing moves (one place, or no elements at all) strides are
// arbitrary, and the product may wrap around.
static inline int64_t px__steps(int64_t count, int64_t stride) {
  return (int64_t)((uint64_t)count * (uint64_t)stride);
}
static inline void px__sizes_copy(int64_t *to, const int64_t *sizes, int n) {
  for (int d = 0; d < n; d++) to[d] = sizes[d];
}
// The product of sizes; beside a size of 0 it may wrap around.
static inline int64_t px__sizes_product(const int64_t *sizes, int n) {
  int64_t product = 1;
  for (int d = 0; d < n; d++) product = px__steps(sizes[d], product);
  return product;
}
int64_t px__tensor_reach(const px_tensor *t);             // elements from the first to the last one
void px__tensor_gaps(px__gap *gaps, const px_tensor *t);  // which bytes a strided tensor leaves out
static inline px_access px__access_of(const px_tensor *t, bool write) {
  size_t item = px__item(t), begin = (size_t)t->offset * item;
  if (PX_LIKELY(t->contiguous))
    return (px_access){t->storage->block, begin, begin + (size_t)t->numel * item, write, {{0}}};
  size_t bytes = (size_t)px__tensor_reach(t) * item;
  px_access access = {t->storage->block, begin, begin + bytes, write, {{0}}};
  if (PX_UNLIKELY(__atomic_load_n(&px__race_on, __ATOMIC_RELAXED) != 0))
    px__tensor_gaps(access.gaps, t);
  return access;
}
// Whether t's access need not be noted: on the CPU that is needed only while a copy to or from the
// block is running.
static inline bool px__is_quiet(px_device device, const px_tensor *t) {
  return device.type == PX_CPU && !__atomic_load_n(&t->storage->block->pending, __ATOMIC_ACQUIRE);
}
// Adds t's access to those of a launch.
static inline void px__note_access(px_access *accesses, int *count, px_device device,
                                   const px_tensor *t, bool write) {
  if (!px__is_quiet(device, t) && t->numel) accesses[(*count)++] = px__access_of(t, write);
}

// The elements of a CPU tensor of int64 that lie in a row, for the host to read: copies into them
// are waited for.
px_status px__tensor_read(const int64_t **out, const px_tensor *t)
    __attribute__((warn_unused_result));

// Writes what the layer above adds when a tensor is printed: ", requires_grad=True", ",
// grad_fn=<Name>" or "".
// Defined in print.c, set by px_op_set_hooks; NULL means "".
extern void (*px__print_suffix)(const px_tensor *t, char *text, size_t room);

// For a launch of a random kernel: reserves `counter` Philox steps per thread of the generator
// (NULL: the device's default); on the CPU, passes the mt19937 state.
px_status px__generator_use(px_launch *launch, px_generator *generator, px_device device,
                            uint64_t counter_offset) __attribute__((warn_unused_result));
// Fails unless a generator is of the device's type and index.
px_status px__generator_fits(const px_generator *generator, px_device device)
    __attribute__((warn_unused_result));
