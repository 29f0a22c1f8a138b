// SPDX-License-Identifier: Apache-2.0
// Creation and properties of tensors.
//
// A tensor is a geometry over a storage. Only the first ndim sizes and strides are initialised,
// since every op makes a tensor.
#include "tensor/in_use.h"
#include "tensor/storage.h"

#include <stdio.h>

static void (*kept_release)(void *kept);  // set once

// `user` is the language's object, or its kept data with the lowest bit set.
static bool is_kept(const px_tensor *self) { return (uintptr_t)self->user & 1; }
// Places the sizes and strides in memory for `dims` dimensions.
static void place_geometry(px_tensor *t, int64_t *memory, int dims) {
  t->sizes = memory + PX__GUARD_WORDS, t->strides = t->sizes + dims + PX__GUARD_WORDS;
}
static void own_geometry(px_tensor *t) { place_geometry(t, t->own, PX__OWN_DIMS); }

// Releases members that few tensors have.
__attribute__((noinline)) static void release_rare(px_tensor *t) {
  px_release(t->base);
  px_release(t->version);
  px_release(t->autograd);
  t->base = NULL, t->version = NULL, t->autograd = NULL;
  if (PX_UNLIKELY(t->physical != NULL)) px__batched_end(t);
}

// Leaves the tensor in the state of tensor_new, except for fields written by tensor_make.
static void tensor_destroy(void *self) {
  px_tensor *t = self;
  px__thread_cache *here = px__thread_cache_here;
  if (PX_UNLIKELY(is_kept(t))) kept_release(px_tensor_kept(t));
  if (PX_UNLIKELY((t->flags & PX_TENSOR_SAVED) != 0))
    __atomic_sub_fetch(&t->storage->saves, 1, __ATOMIC_RELAXED);
  px__storage_release(t->storage, here);
  t->user = NULL;
  if (t->base || t->version || t->autograd || t->physical) release_rare(t);
  if (PX_UNLIKELY(!px__tensor_owns_dims(t))) px__free(t->sizes - PX__GUARD_WORDS), own_geometry(t);
  px__object_list_push(here, PX__OBJECT_LIST_TENSOR, t);
}
static const px_class tensor_class = {"tensor", tensor_destroy};

__attribute__((noinline, cold)) px_status px__tensor_grow_dims(px_tensor *t) {
  int64_t *memory, *sizes = t->sizes, *strides = t->strides;
  PX_TRY(px_alloc((void **)&memory, (2 * PX_MAX_DIMS + 3 * PX__GUARD_WORDS) * sizeof *memory));
  place_geometry(t, memory, PX_MAX_DIMS);
  for (int d = 0; d < t->ndim; d++) t->sizes[d] = sizes[d], t->strides[d] = strides[d];
  return PX_OK;
}

// NULL: out of memory, with the error recorded.
static px_tensor *tensor_new(void) {
  px_tensor *t;
  if (PX_NEW(&t) != PX_OK) return NULL;
  px__object_init(t, &tensor_class);
  own_geometry(t);
  return t;
}

// Returns a tensor with capacity for `ndim` dimensions, or NULL.
static px_tensor *take_tensor(int ndim, px__thread_cache *here) {
  px_tensor *t = px__object_list_pop(here, PX__OBJECT_LIST_TENSOR);
  if (PX_UNLIKELY(!t)) t = tensor_new();
  if (PX_LIKELY(ndim <= PX__OWN_DIMS) || !t) return t;
  t->ndim = 0;
  if (px__tensor_grow_dims(t) == PX_OK) return t;
  px__object_list_push(here, PX__OBJECT_LIST_TENSOR, t);
  return NULL;
}

// Sets everything but the geometry. Takes ownership of the storage, also on failure.
static px_status tensor_make(px_tensor **out, px_storage *storage_take, px_dtype dtype, int ndim,
                             uint16_t flags, px__thread_cache *here) {
  px_tensor *t = *out = take_tensor(ndim, here);
  if (PX_UNLIKELY(!t)) {
    px_release(storage_take);
    return px_error_add_frame(PX_NOMEM, __FILE__, __LINE__, __func__);
  }
  t->storage = storage_take;
  t->offset = 0;
  t->own_version = 0;
  t->dtype = (int8_t)dtype;
  t->flags = flags;
  return PX_OK;
}

static void set_row_major(px_tensor *t, int ndim, const int64_t *sizes) {
  uint64_t stride = 1, numel = 1;  // may wrap, see px__row_major
  px__tensor_guard_dims(t, ndim);
  for (int d = ndim - 1; d >= 0; d--) {
    t->sizes[d] = sizes[d];
    t->strides[d] = (int64_t)stride;
    stride *= sizes[d] > 1 ? (uint64_t)sizes[d] : 1;
    numel *= (uint64_t)sizes[d];
  }
  t->ndim = (int8_t)ndim;
  t->numel = (int64_t)numel;
  t->contiguous = true;
}

static void set_geometry(px_tensor *t, int ndim, const int64_t *sizes, const int64_t *strides,
                         int64_t offset) {
  t->offset = offset;
  if (!strides) {
    set_row_major(t, ndim, sizes);
    return;
  }
  px__tensor_guard_dims(t, ndim);
  for (int d = 0; d < ndim; d++) t->sizes[d] = sizes[d], t->strides[d] = strides[d];
  t->ndim = (int8_t)ndim;
  px__tensor_update_derived(t);
}

px_status px__tensor_new(px_tensor **out, px_storage *storage, px_dtype dtype, int ndim,
                         const int64_t *sizes, const int64_t *strides, int64_t offset) {
  PX_TRY(tensor_make(out, px_retain(storage), dtype, ndim, px__thread_marks.fresh,
                     px__thread_cache_here));
  set_geometry(*out, ndim, sizes, strides, offset);
  return PX_OK;
}

PX__FLATTEN px_status px__tensor_over(px_tensor **out, px_storage *storage_take, int ndim,
                                      const int64_t *sizes, const int64_t *strides,
                                      px_dtype dtype) {
  PX_TRY(
      tensor_make(out, storage_take, dtype, ndim, px__thread_marks.fresh, px__thread_cache_here));
  set_geometry(*out, ndim, sizes, strides, 0);
  return PX_OK;
}

// The version counter: the tensor's own for aliases and tensors derived from them, else the
// storage's.
static uint64_t *version_of(const px_tensor *t) {
  return t->version ? &t->version->count : &t->storage->version;
}
static uint64_t version_here(const px_tensor *t) {
  return __atomic_load_n(version_of(t), __ATOMIC_RELAXED);
}

// A view stores the root tensor as its base, so writes through it update the root's history. A view
// of an alias shares the alias's version counter.
PX__FLATTEN static inline px_status view_plain(px_tensor **out, const px_tensor *self, int ndim,
                                               const int64_t *sizes, const int64_t *strides,
                                               int64_t offset) {
  unsigned marks = px__thread_marks.view, kept = PX_TENSOR_INFERENCE | PX_TENSOR_CONJ_NEG;
  if (!(marks & PX_TENSOR_VIEW)) kept |= PX_TENSOR_ALIASED;
  PX_TRY(tensor_make(out, px_retain(self->storage), (px_dtype)self->dtype, ndim,
                     (uint16_t)(marks | (px__flags(self) & kept)), px__thread_cache_here));
  px_tensor *view = *out;
  set_geometry(view, ndim, sizes, strides, offset);
  if (self->version) view->version = px_retain(self->version);
  if (marks & PX_TENSOR_VIEW) {
    view->base = px_retain(self->base ? self->base : self);
    view->own_version = version_here(view);
  }
  return PX_OK;
}

static px_status view_batched(px_tensor **out, const px_tensor *self, int ndim,
                              const int64_t *sizes, const int64_t *strides, int64_t offset) {
  PX_SCOPED(px_tensor) physical = NULL;
  PX_TRY(px__batched_view(&physical, self->physical, self->level, ndim, sizes, strides, offset));
  PX_TRY(view_plain(out, self, ndim, sizes, strides, offset));
  px__batched_over(*out, physical, self->level);
  return PX_OK;
}

px_status px__tensor_view(px_tensor **out, const px_tensor *self, int ndim, const int64_t *sizes,
                          const int64_t *strides, int64_t offset) {
  if (PX_UNLIKELY(px__is_batched(self)))
    return view_batched(out, self, ndim, sizes, strides, offset);
  return view_plain(out, self, ndim, sizes, strides, offset);
}

static px_status resolve_dtype(px_dtype *dtype) {
  if (PX_LIKELY((unsigned)*dtype < PX_DTYPE_COUNT)) return PX_OK;
  PX_CHECK(*dtype == PX_DTYPE_NONE, PX_TYPE, "invalid dtype %d", (int)*dtype);
  *dtype = px_dtype_default();
  return PX_OK;
}

// Completes the defaults of a factory call.
static px_status resolve_options(px_dtype *dtype, px_device *device) {
  PX_TRY(resolve_dtype(dtype));
  if (device->type < 0) *device = px_device_default();
  if (device->type == PX_CPU) device->index = -1;
  bool known =
      device->type == PX_CPU || (device->type == PX_CUDA && px__device_found(device->index));
  return PX_LIKELY(known) ? PX_OK : px_device_resolve(device, *device);
}

// Fast path: if all sizes are positive and the bytes do not overflow, nothing else can; one pass
// suffices.
static inline px_status compute_bytes(size_t *out, int ndim, const int64_t *sizes, px_dtype dtype) {
  int64_t bytes = px__dtype_bytes[dtype];
  bool special = ndim > PX_MAX_DIMS;
  for (int d = 0; d < ndim && !special; d++)
    special = sizes[d] <= 0 || px__mul_size(bytes, sizes[d], &bytes);
  *out = (size_t)bytes;
  if (PX_LIKELY(!special)) return PX_OK;
  PX_TRY(px__check_sizes(ndim, sizes));
  return px__row_major_bytes(out, ndim, sizes, dtype);
}

PX__FLATTEN px_status px_tensor_empty(px_tensor **out, int ndim, const int64_t *sizes,
                                      px_dtype dtype, px_device device) {
  PX_GIVEN(out);
  PX_GIVEN_N(sizes, ndim);
  size_t bytes;
  px_storage *storage;
  px__thread_cache *here = px__thread_cache_here;
  uint16_t marks = px__thread_marks.fresh;
  *out = NULL;
  PX_TRY(resolve_options(&dtype, &device));
  PX_TRY(compute_bytes(&bytes, ndim, sizes, dtype));
  PX_TRY(px__storage_new(&storage, bytes, device, here));
  PX_TRY(tensor_make(out, storage, dtype, ndim, marks, here));
  set_row_major(*out, ndim, sizes);
  return PX_OK;
}

px_status px_tensor_empty_strided(px_tensor **out, int ndim, const int64_t *sizes,
                                  const int64_t *strides, px_dtype dtype, px_device device) {
  PX_GIVEN(out);
  PX_GIVEN_N(sizes, ndim);
  PX_GIVEN_N(strides, ndim);
  size_t bytes;
  px_storage *storage;
  *out = NULL;
  PX_TRY(resolve_options(&dtype, &device));
  PX_TRY(px__check_sizes(ndim, sizes));
  PX_TRY(px__extent_bytes(&bytes, ndim, sizes, strides, 0, dtype));
  PX_TRY(px__storage_new(&storage, bytes, device, px__thread_cache_here));
  PX_TRY(px__tensor_over(out, storage, ndim, sizes, strides, dtype));
  return PX_OK;
}

px_status px_tensor_empty_format(px_tensor **out, int ndim, const int64_t *sizes,
                                 px_memory_format format, px_dtype dtype, px_device device) {
  PX_GIVEN(out);
  PX_GIVEN_N(sizes, ndim);
  int64_t strides[PX_MAX_DIMS];
  *out = NULL;
  PX_TRY(px__check_sizes(ndim, sizes));
  PX_TRY(px__format_strides(strides, ndim, sizes, format));
  return px_tensor_empty_strided(out, ndim, sizes, strides, dtype, device);
}

px_status px_tensor_empty_pinned(px_tensor **out, int ndim, const int64_t *sizes, px_dtype dtype) {
  PX_GIVEN(out);
  PX_GIVEN_N(sizes, ndim);
  size_t bytes;
  px_allocation *allocation;
  px_storage *storage;
  *out = NULL;
  PX_TRY(resolve_dtype(&dtype));
  PX_TRY(px__check_sizes(ndim, sizes));
  PX_TRY(px__row_major_bytes(&bytes, ndim, sizes, dtype));
  PX_TRY(px__allocation_new_pinned(&allocation, bytes));
  PX_TRY(px__storage_from_allocation(&storage, allocation, px__thread_cache_here));
  PX_TRY(px__tensor_over(out, storage, ndim, sizes, NULL, dtype));
  return PX_OK;
}

px_status px_tensor_wrap(px_tensor **out, void *data, size_t bytes, int ndim, const int64_t *sizes,
                         const int64_t *strides, px_dtype dtype, px_device device,
                         void (*release)(void *context), void *context) {
  PX_GIVEN(out);
  PX_GIVEN_N(sizes, ndim);
  size_t needed;
  *out = NULL;
  PX_TRY(resolve_options(&dtype, &device));
  PX_TRY(px__check_sizes(ndim, sizes));
  if (strides)
    PX_TRY(px__extent_bytes(&needed, ndim, sizes, strides, 0, dtype));
  else
    PX_TRY(px__row_major_bytes(&needed, ndim, sizes, dtype));
  PX_CHECK(needed <= bytes, PX_RUNTIME, "a tensor of %zu bytes does not fit in memory of %zu bytes",
           needed, bytes);
  PX_CHECK(data || !needed, PX_VALUE, "a tensor of %zu bytes needs memory, but got NULL", needed);
  size_t item = px_dtype_size(dtype);
  PX_CHECK(device.type == PX_CPU || (uintptr_t)data % item == 0, PX_RUNTIME,
           "expected %s device memory aligned to %zu bytes, got %p", px_dtype_name(dtype), item,
           data);
  // Wrapping the memory comes last, so a failure never calls `release`.
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(tensor_make(&made, NULL, dtype, ndim, px__thread_marks.fresh, px__thread_cache_here));
  PX_TRY(px__storage_wrap(&made->storage, data, bytes, device, release, context));
  set_geometry(made, ndim, sizes, strides, 0);
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px_tensor_from_scalar(px_tensor **out, px_scalar value) {
  PX_GIVEN(out);
  static const px_dtype dtypes[] = {
      ['b'] = PX_BOOL, ['i'] = PX_INT64, ['u'] = PX_UINT64, ['f'] = PX_FLOAT64};
  *out = NULL;
  PX_CHECK(value.kind && strchr("biuf", value.kind), PX_TYPE, "expected a number, got none");
  px_dtype dtype = dtypes[(unsigned char)value.kind];
  PX_TRY(px_tensor_empty(out, 0, NULL, dtype, px_cpu()));
  px_scalar_store(value, dtype, px__tensor_at(*out));
  (*out)->flags |= PX_TENSOR_WRAPPED;
  return PX_OK;
}

px_status px_tensor_from_complex(px_tensor **out, px_complex value) {
  PX_GIVEN(out);
  *out = NULL;
  PX_TRY(px_tensor_empty(out, 0, NULL, PX_COMPLEX128, px_cpu()));
  px_complex_store(value, PX_COMPLEX128, px__tensor_at(*out));
  (*out)->flags |= PX_TENSOR_WRAPPED;
  return PX_OK;
}

int px_tensor_ndim(const px_tensor *self) { return PX__GET(self->ndim); }
static __attribute__((noinline)) bool has_sizes_in_use(const px_tensor *self, int ndim,
                                                       const int64_t *sizes) {
  PX__USES(self);
  return px__has_sizes(self, ndim, sizes);
}
bool px_tensor_has_sizes(const px_tensor *self, int ndim, const int64_t *sizes) {
  return PX_LIKELY(PX_SINGLE_THREADED) ? px__has_sizes(self, ndim, sizes)
                                       : has_sizes_in_use(self, ndim, sizes);
}
static bool same_sizes(const px_tensor *a, const px_tensor *b) {
  return px__has_sizes(a, b->ndim, b->sizes);
}
static __attribute__((noinline)) bool same_sizes_in_use(const px_tensor *a, const px_tensor *b) {
  const px_tensor *both[] = {a, b};
  __attribute__((cleanup(px__use_end))) px__tensor_use use = {.count = 2, .tensors = both};
  px__use_begin(&use);
  return same_sizes(a, b);
}
bool px_tensor_same_sizes(const px_tensor *a, const px_tensor *b) {
  return PX_LIKELY(PX_SINGLE_THREADED) ? same_sizes(a, b) : same_sizes_in_use(a, b);
}
const int64_t *px_tensor_sizes(const px_tensor *self) { return self->sizes; }
const int64_t *px_tensor_strides(const px_tensor *self) { return self->strides; }
int64_t px_tensor_numel(const px_tensor *self) { return PX__GET(self->numel); }
px_dtype px_tensor_dtype(const px_tensor *self) { return (px_dtype)PX__GET(self->dtype); }
// Accessors of memory are brief while the process has one thread. The others are out of line: a use
// needs a stack frame.
static __attribute__((noinline)) px_device device_in_use(const px_tensor *self) {
  PX__USES(self);
  return px__tensor_device(self);
}
px_device px_tensor_device(const px_tensor *self) {
  return PX_LIKELY(PX_SINGLE_THREADED) ? px__tensor_device(self) : device_in_use(self);
}
int64_t px_tensor_offset(const px_tensor *self) { return PX__GET(self->offset); }
px_storage *px_tensor_storage(const px_tensor *self) { return self->storage; }
bool px_tensor_is_contiguous(const px_tensor *self) { return PX__GET(self->contiguous); }
bool px_tensor_is_cuda(const px_tensor *self) { return px_tensor_device(self).type == PX_CUDA; }
bool px_tensor_is_wrapped(const px_tensor *self) {
  return (px__flags(self) & PX_TENSOR_WRAPPED) != 0;
}
px_tensor *px_tensor_base(const px_tensor *self) { return self->base; }
void *px_tensor_user(const px_tensor *self) { return is_kept(self) ? NULL : self->user; }
void px_tensor_set_user(px_tensor *self, void *user) { self->user = user; }
void *px_tensor_kept(const px_tensor *self) {
  return is_kept(self) ? (char *)self->user - 1 : NULL;
}
void px_tensor_set_kept(px_tensor *self, void *kept) {
  self->user = kept ? (char *)kept + 1 : NULL;
}
void px_tensor_set_kept_release(void (*release)(void *kept)) { kept_release = release; }

int64_t px_tensor_size(const px_tensor *self, int dim) {
  PX__USES(self);
  if (dim < 0) dim += self->ndim;
  return dim >= 0 && dim < self->ndim ? self->sizes[dim] : 0;
}

// Empty tensors are never pinned.
bool px_tensor_is_pinned(const px_tensor *self) {
  PX__USES(self);
  const px_allocation *allocation = self->storage->allocation;
  size_t offset = (size_t)self->offset * px__item(self);
  return allocation->bytes && px__allocation_is_pinned(allocation, offset, 1);
}

bool px_tensor_is_parameter(const px_tensor *self) {
  return (px__flags(self) & PX_TENSOR_PARAMETER) != 0;
}
void px_tensor_set_parameter(px_tensor *self, bool parameter) {
  px__flags_set(self, PX_TENSOR_PARAMETER, parameter);
}

static __attribute__((noinline)) uint64_t version_in_use(const px_tensor *self) {
  PX__USES(self);
  return version_here(self);
}
uint64_t px_tensor_version(const px_tensor *self) {
  return PX_LIKELY(PX_SINGLE_THREADED) ? version_here(self) : version_in_use(self);
}

// Not an atomic increment: of two concurrent writes, a race in the program, one may not be counted.
static void bump(px_tensor *self) {
  uint64_t *version = version_of(self);
  __atomic_store_n(version, __atomic_load_n(version, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}
static __attribute__((noinline)) void bump_in_use(px_tensor *self) {
  PX__USES(self);
  bump(self);
}
void px_tensor_bump_version(px_tensor *self) {
  if (PX_LIKELY(PX_SINGLE_THREADED))
    bump(self);
  else
    bump_in_use(self);
}

const char *px_tensor_unresolved(const px_tensor *self) {
  unsigned flags = px__flags(self);
  return flags & PX_TENSOR_CONJ ? "conjugate" : flags & PX_TENSOR_NEG ? "negative" : NULL;
}

px_status px__tensor_memory(void **out, const px_tensor *self) {
  const char *bit = px_tensor_unresolved(self);
  *out = NULL;
  PX_TRY(px__check_not_batched(self));
  PX_TRY(px__storage_ready(self->storage));
  PX_CHECK(!bit, PX_RUNTIME,
           "Can't access the memory of a tensor with the %s bit set. Use resolve_%s() first", bit,
           px__flags(self) & PX_TENSOR_CONJ ? "conj" : "neg");
  if (self->numel)
    PX_TRY(px__allocation_check_bounds(self->storage->allocation, px__access_of(self, true).end));
  *out = px__tensor_at(self);
  return PX_OK;
}

void *px_tensor_data(const px_tensor *self) {
  PX__USES(self);
  void *at = NULL;
  px_status status = px__storage_expose(self->storage);
  if (status == PX_OK) status = px__tensor_memory(&at, self);
  if (status != PX_OK) px_error_clear();
  return self->numel ? at : NULL;
}

px_status px_tensor_host_data(void **out, const px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  PX__USES(self);
  PX_TRY(px__check_not_batched(self));
  if (px__tensor_device(self).type != PX_CPU) return PX_OK;
  PX_TRY(px__storage_ready(self->storage));
  PX_TRY(px__allocation_wait(self->storage->allocation, "data", true));
  return px__tensor_memory(out, self);
}

px_status px__tensor_read(const int64_t **out, const px_tensor *t) {
  PX_TRY(px__storage_ready(t->storage));
  px_access access = px__access_of(t, false);
  void *at;
  if (t->numel) PX_TRY(px__allocation_host_access("read", &access));
  PX_TRY(px__tensor_memory(&at, t));
  *out = at;
  return PX_OK;
}

const char *px_tensor_type_name(const px_tensor *self, char text[48]) {
  int type = px_tensor_device(self).type;
  bool host = type == PX_CPU;
  snprintf(text, 48, "torch.%s%s%sTensor", host ? "" : px_device_type_name(type), host ? "" : ".",
           px_dtype_class((px_dtype)self->dtype));
  return text;
}

px_status px_tensor_record_stream(px_tensor *self, px_stream *stream) {
  PX_GIVEN(self);
  PX_GIVEN(stream);
  PX_CHECK(px_tensor_is_cuda(self), PX_UNIMPLEMENTED,
           "Could not run 'aten::record_stream' with arguments from the 'CPU' backend. "
           "'aten::record_stream' is only available for these backends: [CUDA].");
  PX__USES(self);
  PX_TRY(px__storage_ready(self->storage));
  PX_TRY(px__allocation_record_stream(self->storage->allocation, stream));
  return PX_OK;
}
