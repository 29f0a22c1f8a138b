// SPDX-License-Identifier: Apache-2.0
// Internal interface of the tensor layer.
#pragma once
#include "device/core/device_impl.h"
#include "phlox/random.h"
#include "phlox/tensor.h"

typedef struct px__shared px__shared;                // shared.c
typedef struct px__ipc_reference px__ipc_reference;  // ipc_counters.c
typedef struct px__replaced px__replaced;            // storage.c
typedef struct px__deferred px__deferred;            // src/call/fusion
struct px_storage {
  px_object head;
  px_allocation *allocation;
  uint64_t version;    // shared by all tensors over the storage, except aliases
  bool fixed;          // external or shared memory: cannot be resized
  int32_t saves;       // tensors over it with PX_TENSOR_SAVED; atomic
  int32_t changing;    // a thread of that process changes the allocation, or 0; atomic
  px__shared *shared;  // the allocation's memory file, or NULL
  px__ipc_reference *ipc_reference;  // device memory: its IPC reference counts, or NULL
  px__replaced *replaced;            // replaced allocations with addresses still in use
  px__deferred *deferred;            // the launch that will make its contents; NULL: they exist
  size_t unshrunk_bytes;             // shrunk storages: the largest previous size in bytes; else 0
};

// Deferred storages: their allocation has a size and a device, but no address, until the recorded
// launch runs. Set once by the layer above.
typedef struct px__deferred_hooks {
  px_status (*run)(px_storage *storage);
  void (*drop)(px_storage *storage);  // the storage is being destroyed
} px__deferred_hooks;
extern PX__HIDDEN const px__deferred_hooks *px__deferred_hooks_set;
static inline bool px__is_deferred(const px_storage *storage) {
  return PX_UNLIKELY(__atomic_load_n(&storage->deferred, __ATOMIC_ACQUIRE) != NULL);
}
// Required before the allocation of a storage is used.
__attribute__((warn_unused_result)) static inline px_status px__storage_ready(
    const px_storage *storage) {
  return px__is_deferred(storage) ? px__deferred_hooks_set->run((px_storage *)(uintptr_t)storage)
                                  : PX_OK;
}

// Shared memory in named files (named.c). A page after the data has the reference counts of the
// processes.
enum { PX__NAME_BYTES = 48 };
size_t px__named_page(void);                    // bytes of that page: the system's page size
px_status px__shared_failed(const char *what);  // fails with the system's reason
typedef struct px__holders px__holders;
px_status px__named_new(int *out, char name[PX__NAME_BYTES], size_t bytes)
    __attribute__((warn_unused_result));
px_status px__named_hold(px__holders *self, pid_t process) __attribute__((warn_unused_result));
// Drops a reference; the last one unlinks the name.
void px__named_drop(px__holders *self, const char *name, pid_t process);

// A version counter independent of the storage's, shared with views and detached tensors.
typedef struct px_counter {
  px_object head;
  uint64_t count;  // atomic
} px_counter;
// Autograd data of a tensor, only released by the tensor layer.
typedef struct px_autograd_slot {
  px_object head;
} px_autograd_slot;

enum {
  PX_TENSOR_WRAPPED = 1,  // made from a number
  PX_TENSOR_PARAMETER = 2,
  PX_TENSOR_ALIASED = 4,     // has its own version counter (.data)
  PX_TENSOR_NEEDS_GRAD = 8,  // requires_grad: a leaf, or a tensor with history
  PX_TENSOR_INFERENCE = 16,
  PX_TENSOR_VIEW = 32,         // `base` is the tensor viewed
  PX_TENSOR_UNRECORDED = 64,   // a view made while grad mode was off
  PX_TENSOR_MULTI_VIEW = 128,  // a view made by an op with several results
  PX_TENSOR_FUNCTION_VIEW = 256,
  PX_TENSOR_BATCHED = 512,  // wraps a physical tensor: vmap.c
  PX_TENSOR_CONJ = 1024,    // lazily conjugated: values are the conjugates of those in memory
  PX_TENSOR_NEG = 2048,     // lazily negated: values are the negatives of those in memory
  PX_TENSOR_SAVED = 4096,   // held for a gradient only: counted in storage->saves
  PX_TENSOR_CONJ_NEG = PX_TENSOR_CONJ | PX_TENSOR_NEG,
};
// The address sanitizer reports accesses to sizes and strides outside of [0, ndim): they have
// poisoned words around them. Other builds have no such words.
#ifdef __SANITIZE_ADDRESS__
enum { PX__GUARD_WORDS = 8 };
#else
enum { PX__GUARD_WORDS = 0 };
#endif
enum { PX__OWN_DIMS = 8 };
struct px_tensor {
  px_object head;
  px_storage *storage;
  int64_t offset;  // elements
  int64_t numel;
  px_counter *version;   // replaces the storage's: for aliases, their views and detached tensors
  uint64_t own_version;  // of a view: the version at its creation
  px_tensor *base;       // of a differentiable view: the root tensor, owned
  px_autograd_slot *autograd;
  px_tensor *physical;  // of a batched tensor: the physical tensor, batch dimension first; owned
  void *user;
  int8_t ndim;
  int8_t dtype;
  uint16_t flags;            // atomic
  bool contiguous;           // row-major without gaps
  uint8_t level;             // of a batched tensor: vmap level, 1 is the outermost
  int64_t *sizes, *strides;  // in `own`, or on the heap for more than PX__OWN_DIMS dimensions
  int64_t own[2 * PX__OWN_DIMS + 3 * PX__GUARD_WORDS];
};

// Fields that px_tensor_ndim and the like read outside of calls, while another thread changes them.
#define PX__GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define PX__SET(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)
// The flags of a tensor may change in a call of another thread.
static inline uint16_t px__flags(const px_tensor *t) {
  return __atomic_load_n(&t->flags, __ATOMIC_RELAXED);
}
// Of two concurrent changes, a race in the program, one may be lost.
static inline void px__flags_set(px_tensor *t, unsigned flags, bool on) {
  unsigned before = px__flags(t);
  __atomic_store_n(&t->flags, (uint16_t)(on ? before | flags : before & ~flags), __ATOMIC_RELAXED);
}
static inline px_device px__tensor_device(const px_tensor *t) {
  return t->storage->allocation->device;
}
// The number of batched tensors (vmap.c), active vmaps, and threads with a dispatch hook in the
// process. If it is 0, calls skip the checks for them.
extern int px__special_calls;  // atomic
static inline bool px__is_batched(const px_tensor *t) {
  return PX_UNLIKELY((px__flags(t) & PX_TENSOR_BATCHED) != 0);
}
// Makes a batched tensor over a physical tensor, whose first dimension is the batch dimension.
px_status px__batched_new(px_tensor **out, px_tensor *physical, int level)
    __attribute__((warn_unused_result));
// Makes self, with the geometry of one batch index, a batched tensor over `physical`.
void px__batched_over(px_tensor *self, px_tensor *physical, int level);
void px__batched_end(px_tensor *self);
// Makes a view of the physical tensor for a view of a batched tensor, with the given geometry for
// each batch index. Set by the layer above, whose op calls record it.
extern px_status (*px__batched_view)(px_tensor **out, px_tensor *physical, int level, int ndim,
                                     const int64_t *sizes, const int64_t *strides, int64_t offset);
// Returns the innermost physical tensor, below all vmap levels; t itself if it is not batched.
static inline const px_tensor *px__innermost_physical(const px_tensor *t) {
  while (px__is_batched(t)) t = t->physical;
  return t;
}
// Fails with PyTorch's text if t is batched: it has no memory to read or write.
px_status px__check_not_batched(const px_tensor *t) __attribute__((warn_unused_result));
// True if autograd must handle t: it requires grad, or its base does by now.
static inline bool px__needs_grad(const px_tensor *t) {
  return (px__flags(t) & PX_TENSOR_NEEDS_GRAD) ||
         (t->base && (px__flags(t->base) & PX_TENSOR_NEEDS_GRAD));
}
extern PX__HIDDEN const uint8_t px__dtype_bytes[PX_DTYPE_COUNT];
static inline bool px__has_sizes(const px_tensor *t, int ndim, const int64_t *sizes) {
  return t->ndim == ndim && (!ndim || !memcmp(t->sizes, sizes, (size_t)ndim * sizeof *sizes));
}
static inline size_t px__item(const px_tensor *t) { return px__dtype_bytes[t->dtype]; }
static inline void *px__tensor_at(const px_tensor *t) {
  return t->storage->allocation->data
             ? (char *)t->storage->allocation->data + (size_t)t->offset * px__item(t)
             : NULL;
}

// Returns the address of the first element for callers outside the library. PX_RUNTIME for a
// conjugate or negative view, whose memory differs from its values, for batched tensors, and if the
// storage was shrunk.
px_status px__tensor_memory(void **out, const px_tensor *self) __attribute__((warn_unused_result));

// Make a tensor over `storage` with unchecked geometry and the flags px__thread_marks.fresh.
// strides NULL: row-major. px__tensor_over takes ownership of the storage reference, also on
// failure; px__tensor_new retains the storage.
px_status px__tensor_over(px_tensor **out, px_storage *storage_take, int ndim, const int64_t *sizes,
                          const int64_t *strides, px_dtype dtype)
    __attribute__((warn_unused_result));
px_status px__tensor_new(px_tensor **out, px_storage *storage, px_dtype dtype, int ndim,
                         const int64_t *sizes, const int64_t *strides, int64_t offset)
    __attribute__((warn_unused_result));
// Flags of the calling thread's new tensors and new views (phlox/extend.h).
typedef struct px__marks {
  uint16_t fresh, view;
} px__marks;
extern _Thread_local PX__HIDDEN_THREAD px__marks px__thread_marks;  // src/tensor/extend.c
// Makes a view of self with unchecked geometry. Its flags are px__thread_marks.view, plus
// PX_TENSOR_INFERENCE if self has it. With PX_TENSOR_VIEW it retains `base` (self's base, if self
// is a view) and stores the version in own_version, so in-place writes reach the history.
// px_tensor_detach and px_tensor_alias do not make such views.
px_status px__tensor_view(px_tensor **out, const px_tensor *self, int ndim, const int64_t *sizes,
                          const int64_t *strides, int64_t offset)
    __attribute__((warn_unused_result));
// Makes a storage over external memory. The destruction of the last tensor calls release(context);
// a failure of this call does not.
px_status px__storage_wrap(px_storage **out, void *data, size_t bytes, px_device device,
                           void (*release)(void *), void *context)
    __attribute__((warn_unused_result));
// Replaces a storage's allocation. Takes ownership of the new one, also on failure.
px_status px__storage_replace(px_storage *storage, px_allocation *allocation_take)
    __attribute__((warn_unused_result));
// Destroys the record of a storage shared with other processes, and frees or keeps its allocation.
void px__ipc_reference_end(px_storage *storage, px_allocation *allocation_take);
// Grows a storage to at least `bytes`, preserving its contents. PX_RUNTIME for external memory.
px_status px__storage_grow(px_storage *storage, size_t bytes) __attribute__((warn_unused_result));
// px__check_sizes fails with PX_RUNTIME for a negative size or too many dimensions.
// px__row_major_bytes returns the bytes of row-major sizes; PX_RUNTIME on overflow.
px_status px__check_sizes(int ndim, const int64_t *sizes) __attribute__((warn_unused_result));
px_status px__row_major_bytes(size_t *out, int ndim, const int64_t *sizes, px_dtype dtype)
    __attribute__((warn_unused_result));
// Returns the bytes needed by a geometry, from the start of the storage. PX_RUNTIME on overflow:
// "Storage size calculation overflowed with sizes=[...]".
px_status px__extent_bytes(size_t *out, int ndim, const int64_t *sizes, const int64_t *strides,
                           int64_t offset, px_dtype dtype) __attribute__((warn_unused_result));
// Sets self's sizes, strides and offset to those of a view of it.
px_status px__tensor_take_geometry(px_tensor *self, const px_tensor *view)
    __attribute__((warn_unused_result));
// Recomputes numel and contiguous after sizes or strides changed.
void px__tensor_update_derived(px_tensor *t);
// Ensures capacity for PX_MAX_DIMS dimensions (grow), or for `ndim` (reserve); the geometry is
// unchanged.
px_status px__tensor_grow_dims(px_tensor *t) __attribute__((warn_unused_result));
static inline bool px__tensor_owns_dims(const px_tensor *t) {
  return t->sizes == t->own + PX__GUARD_WORDS;
}
static inline px_status px__tensor_reserve_dims(px_tensor *t, int ndim) {
  return PX_LIKELY(ndim <= PX__OWN_DIMS) || !px__tensor_owns_dims(t) ? PX_OK
                                                                     : px__tensor_grow_dims(t);
}
// Before a change of the geometry to `ndim` dimensions: poisons all other words of its memory.
static inline void px__tensor_guard_dims(px_tensor *t, int ndim) {
#ifdef __SANITIZE_ADDRESS__
  void __asan_poison_memory_region(const volatile void *, size_t);
  void __asan_unpoison_memory_region(const volatile void *, size_t);
  int64_t *begin = t->sizes - PX__GUARD_WORDS;
  int64_t words = 2 * (t->strides - begin) - PX__GUARD_WORDS;
  __asan_poison_memory_region(begin, (size_t)words * sizeof *begin);
  __asan_unpoison_memory_region(t->sizes, (size_t)ndim * sizeof *begin);
  __asan_unpoison_memory_region(t->strides, (size_t)ndim * sizeof *begin);
#endif
}
void px__row_major(int ndim, const int64_t *sizes, int64_t *strides);
// Computes the strides of a memory format; PX_RUNTIME if the format needs another number of
// dimensions.
px_status px__format_strides(int64_t *strides, int ndim, const int64_t *sizes,
                             px_memory_format format) __attribute__((warn_unused_result));
// Operands that broadcast to one shape.
typedef struct px__form {
  int ndim;
  const int64_t *sizes, *strides;
} px__form;
static inline px__form px__form_of(const px_tensor *t) {
  return (px__form){t->ndim, t->sizes, t->strides};
}
typedef struct px__layout {
  int ndim, n;
  bool mixed;  // there are numbers, too
  const int64_t *sizes;
  px__form of[PX_MAX_OPERANDS];
} px__layout;
// Computes the strides of an elementwise result: those that all operands have, or dense ones in the
// operands' order of dimensions.
void px__layout_strides(int64_t *strides, const px__layout *l);
// Returns the strides for a copy of t that preserves its dimension order: t's own, or computed in
// `room`; NULL: row-major.
const int64_t *px__preserved_strides(int64_t *buffer, const px_tensor *t);
// Broadcasts two shapes into out_sizes and *out_ndim; PX_RUNTIME with PyTorch's text on mismatch.
px_status px__broadcast(int *out_ndim, int64_t *out_sizes, int a_ndim, const int64_t *a, int b_ndim,
                        const int64_t *b) __attribute__((warn_unused_result));
// ---- dimensions and counts of callers. They index arrays of PX_MAX_DIMS elements after these
// checks only.
// Fails with PX_RUNTIME unless n is a number of dimensions.
__attribute__((warn_unused_result)) static inline px_status px__check_ndim(int64_t n) {
  PX_CHECK(n >= 0 && n <= PX_MAX_DIMS, PX_RUNTIME, "only tensors with up to %d dims are supported",
           PX_MAX_DIMS);
  return PX_OK;
}
// Wraps a negative dimension; PX_INDEX "Dimension out of range (expected to be in range of [-1, 0],
// but got 4)". A 0-dim tensor has dimensions 0 and -1, which index none of its sizes.
px_status px__wrap_dim(int *out, int64_t dim, int ndim) __attribute__((warn_unused_result));
// The same for a list, as a bit mask; PX_RUNTIME for a duplicate.
px_status px__wrap_dims(uint64_t *out, const int64_t *dims, int count, int ndim)
    __attribute__((warn_unused_result));
// The same in the order of the list. It has at most ndim dimensions, or one of a 0-dim tensor.
typedef struct px__dims {
  int64_t at[PX_MAX_DIMS];
  int n;
} px__dims;
px_status px__wrap_dim_list(px__dims *out, const int64_t *dims, int count, int ndim)
    __attribute__((warn_unused_result));
// Wraps a dimension of a tensor's sizes. PX_INDEX for a 0-dim tensor, which has none: "Dimension
// specified as 0 but tensor has no dimensions".
px_status px__wrap_size_dim(int *out, int64_t dim, int ndim) __attribute__((warn_unused_result));
// Computes the strides of a view of self with other sizes. One size may be -1 and is inferred.
// *possible is false if a copy is needed.
px_status px__view_strides(bool *possible, const px_tensor *self, int ndim, int64_t *sizes,
                           int64_t *strides) __attribute__((warn_unused_result));

// Makes a view of self with other PX_TENSOR_CONJ_NEG flags. Kernels read memory as it is and must
// not receive such tensors. Callers of ops need not care: the dispatcher resolves them
// (call/resolve.c).
px_status px__tensor_conj_neg_view(px_tensor **out, const px_tensor *self, unsigned flags)
    __attribute__((warn_unused_result));
// True once a tensor with such flags was made.
extern bool px__any_conj_neg;  // atomic

// True if the byte ranges, from first to last element, overlap.
bool px__overlap(const px_tensor *a, const px_tensor *b);
// Copies and converts elements, on one device (kernel "copy") or between devices. `from` is
// broadcast to the sizes of `to`. Does not bump the version and records nothing.
px_status px__tensor_copy(px_tensor *to, const px_tensor *from, bool non_blocking)
    __attribute__((warn_unused_result));
// Returns a row-major tensor with self's contents: self itself if row-major, else a copy.
px_status px__tensor_contiguous(px_tensor **out, const px_tensor *self)
    __attribute__((warn_unused_result));
// Fills in a kernel operand from a tensor.
static inline void px__operand_of(px_operand *operand, const px_tensor *t) {
  operand->data = px__tensor_at(t);
  operand->sizes = t->sizes;
  operand->strides = t->strides;
  operand->ndim = t->ndim;
  operand->dtype = t->dtype;
  operand->immediate = false;
}
// `count` times `stride`. Strides of dimensions of size 1, or of empty tensors, are arbitrary, so
// the product may wrap.
static inline int64_t px__steps(int64_t count, int64_t stride) {
  return (int64_t)((uint64_t)count * (uint64_t)stride);
}
static inline void px__sizes_copy(int64_t *to, const int64_t *sizes, int n) {
  for (int d = 0; d < n; d++) to[d] = sizes[d];
}
// The product of sizes; it may wrap if one is 0.
static inline int64_t px__sizes_product(const int64_t *sizes, int n) {
  int64_t product = 1;
  for (int d = 0; d < n; d++) product = px__steps(sizes[d], product);
  return product;
}
int64_t px__tensor_reach(const px_tensor *t);             // elements from the first to the last
void px__tensor_gaps(px__gap *gaps, const px_tensor *t);  // byte ranges skipped by a strided tensor
static inline px_access px__access_of(const px_tensor *t, bool write) {
  size_t item = px__item(t), begin = (size_t)t->offset * item;
  if (PX_LIKELY(t->contiguous))
    return (px_access){
        t->storage->allocation, begin, begin + (size_t)t->numel * item, write, {{0}}};
  size_t bytes = (size_t)px__tensor_reach(t) * item;
  px_access access = {t->storage->allocation, begin, begin + bytes, write, {{0}}};
  if (PX_UNLIKELY(__atomic_load_n(&px__race_on, __ATOMIC_RELAXED) != 0))
    px__tensor_gaps(access.gaps, t);
  return access;
}
// True if t's access need not be recorded: on the CPU it matters only during a pending copy to or
// from the allocation.
static inline bool px__access_untracked(px_device device, const px_tensor *t) {
  return device.type == PX_CPU &&
         !__atomic_load_n(&t->storage->allocation->pending, __ATOMIC_ACQUIRE);
}
// Adds t's access to those of a launch.
static inline void px__note_access(px_access *accesses, int *count, px_device device,
                                   const px_tensor *t, bool write) {
  if (!px__access_untracked(device, t) && t->numel) accesses[(*count)++] = px__access_of(t, write);
}

// Returns the elements of a contiguous int64 CPU tensor for reading on the host; waits for pending
// copies into them.
px_status px__tensor_read(const int64_t **out, const px_tensor *t)
    __attribute__((warn_unused_result));

// Writes the history suffix of a printed tensor: ", requires_grad=True", ", grad_fn=<Name>" or "".
// Defined in print.c, set by px_op_set_hooks; NULL means "".
extern void (*px__print_suffix)(const px_tensor *t, char *text, size_t room);

// For a launch of a random kernel: reserves `counter_offset` Philox steps a thread from the
// generator (NULL: the device's default). On the CPU, passes the mt19937 state.
px_status px__generator_use(px_launch *launch, px_generator *generator, px_device device,
                            uint64_t counter_offset) __attribute__((warn_unused_result));
// Fails unless the generator's type and index match the device.
px_status px__generator_fits(const px_generator *generator, px_device device)
    __attribute__((warn_unused_result));
