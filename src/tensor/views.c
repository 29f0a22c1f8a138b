// SPDX-License-Identifier: Apache-2.0
// Tensors over existing memory: as_strided with bounds checks, detach, aliases. In-place changes of
// a tensor's geometry or storage.
#include "phlox/extend.h"
#include "tensor/in_use.h"
#include "tensor/storage.h"

enum { SIZES_TEXT = 512 };

static px_status check_bounds(const px_storage *storage, px_dtype dtype, int ndim,
                              const int64_t *sizes, const int64_t *strides, int64_t offset) {
  char a[SIZES_TEXT], b[SIZES_TEXT];
  size_t needed, held = storage->allocation->bytes;
  PX_TRY(px__extent_bytes(&needed, ndim, sizes, strides, offset, dtype));
  PX_CHECK(needed <= held, PX_RUNTIME,
           "setStorage: sizes %s, strides %s, storage offset %lld, and itemsize %zu requiring a "
           "storage size of %zu are out of bounds for storage of size %zu",
           px__sizes_text(a, sizeof a, ndim, sizes), px__sizes_text(b, sizeof b, ndim, strides),
           (long long)offset, px_dtype_size(dtype), needed, held);
  return PX_OK;
}

static px_status check_geometry(const px_storage *storage, px_dtype dtype, int ndim,
                                const int64_t *sizes, const int64_t *strides, int64_t offset) {
  char text[SIZES_TEXT];
  PX_GIVEN_N(sizes, ndim);
  PX_GIVEN_N(strides, ndim);
  PX_TRY(px__check_sizes(ndim, sizes));
  for (int d = 0; d < ndim; d++)
    PX_CHECK(strides[d] >= 0, PX_RUNTIME,
             "as_strided: Negative strides are not supported at the moment, got strides: %s",
             px__sizes_text(text, sizeof text, ndim, strides));
  PX_CHECK(offset >= 0, PX_RUNTIME, "Tensor: invalid storage offset %lld", (long long)offset);
  return check_bounds(storage, dtype, ndim, sizes, strides, offset);
}

px_status px_tensor_as_strided(px_tensor **out, const px_tensor *self, int ndim,
                               const int64_t *sizes, const int64_t *strides, int64_t offset) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  PX__USES(self);
  PX_TRY(check_geometry(self->storage, (px_dtype)self->dtype, ndim, sizes, strides, offset));
  PX_TRY(px__tensor_view(out, self, ndim, sizes, strides, offset));
  return PX_OK;
}

px_status px_tensor_from_storage(px_tensor **out, px_storage *storage, px_dtype dtype, int ndim,
                                 const int64_t *sizes, const int64_t *strides, int64_t offset) {
  PX_GIVEN(out);
  PX_GIVEN(storage);
  *out = NULL;
  PX_TRY(check_geometry(storage, dtype, ndim, sizes, strides, offset));
  return px__tensor_new(out, storage, dtype, ndim, sizes, strides, offset);
}

static px_status same_memory(px_tensor **out, const px_tensor *self) {
  PX_TRY(px__tensor_new(out, self->storage, (px_dtype)self->dtype, self->ndim, self->sizes,
                        self->strides, self->offset));
  (*out)->flags |= px__flags(self) & (PX_TENSOR_INFERENCE | PX_TENSOR_CONJ_NEG);
  if (px__is_batched(self)) px__batched_over(*out, self->physical, self->level);
  return PX_OK;
}

px_status px__tensor_conj_neg_view(px_tensor **out, const px_tensor *self, unsigned flags) {
  PX_TRY(px__tensor_view(out, self, self->ndim, self->sizes, self->strides, self->offset));
  (*out)->flags = (uint16_t)((px__flags(*out) & ~PX_TENSOR_CONJ_NEG) | flags);
  __atomic_store_n(&px__any_conj_neg, true, __ATOMIC_RELAXED);
  return PX_OK;
}

px_status px_tensor_share(px_tensor **out, const px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  PX__USES(self);
  PX_TRY(same_memory(out, self));
  (*out)->version = px_retain(self->version);
  (*out)->flags |= px__flags(self) & PX_TENSOR_ALIASED;
  return PX_OK;
}

px_status px_tensor_detach_physical(px_tensor *self) {
  PX_GIVEN(self);
  PX_SCOPED(px_tensor) plain = NULL;
  if (!px__is_batched(self)) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, self->physical));
  px__batched_over(self, plain, self->level);
  return PX_OK;
}
px_status px_tensor_detach(px_tensor **out, const px_tensor *self) {
  PX_GIVEN(out);
  *out = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_share(&made, self));
  PX_TRY(px_tensor_detach_physical(made));
  *out = PX_MOVE(made);
  return PX_OK;
}

static void version_destroy(void *self) {
  px__object_end(self);
  px__free(self);
}

// Gives self its own version counter, starting at `count`.
static px_status make_own_version(px_tensor *self, uint64_t count) {
  static const px_class version_class = {"version", version_destroy};
  px_counter *version;
  PX_TRY(PX_NEW(&version));
  px__object_init(version, &version_class);
  version->count = count;
  self->version = version;
  px__flags_set(self, PX_TENSOR_ALIASED, true);
  return PX_OK;
}

px_status px_tensor_alias(px_tensor **out, const px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX__USES(self);
  PX_TRY(same_memory(&made, self));
  PX_TRY(px_tensor_detach_physical(made));
  PX_TRY(make_own_version(made, 0));
  *out = PX_MOVE(made);
  return PX_OK;
}

// A batched tensor has the geometry of batch index 0.
px_status px__batched_new(px_tensor **out, px_tensor *physical, int level) {
  PX_TRY(px__tensor_new(out, physical->storage, (px_dtype)physical->dtype, physical->ndim - 1,
                        physical->sizes + 1, physical->strides + 1, physical->offset));
  (*out)->version = px_retain(physical->version);
  (*out)->flags |=
      px__flags(physical) & (PX_TENSOR_INFERENCE | PX_TENSOR_ALIASED | PX_TENSOR_CONJ_NEG);
  px__batched_over(*out, physical, level);
  return PX_OK;
}

px_status px_tensor_outline(px_tensor **out, const px_tensor *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  PX_SCOPED(px_storage) none = NULL;
  PX__USES(self);
  PX_TRY(px__storage_new(&none, 0, px__tensor_device(self), px__thread_cache_here));
  PX_TRY(
      px__tensor_new(out, none, (px_dtype)self->dtype, self->ndim, self->sizes, self->strides, 0));
  return PX_OK;
}

static void set_geometry(px_tensor *self, const px_tensor *value) {
  PX__SET(self->offset, value->offset);
  PX__SET(self->ndim, value->ndim);
  PX__SET(self->dtype, value->dtype);
  px__flags_set(self, PX_TENSOR_CONJ_NEG, false);
  px__flags_set(self, px__flags(value) & PX_TENSOR_CONJ_NEG, true);
  px__tensor_guard_dims(self, value->ndim);
  for (int d = 0; d < value->ndim; d++) {
    self->sizes[d] = value->sizes[d];
    self->strides[d] = value->strides[d];
  }
  PX__SET(self->numel, value->numel);
  PX__SET(self->contiguous, value->contiguous);
}

static px_status take_geometry(px_tensor *self, const px_tensor *view) {
  PX__CHANGE(self, NULL);
  PX_TRY(px__tensor_reserve_dims(self, view->ndim));
  set_geometry(self, view);
  return PX_OK;
}

px_status px__tensor_take_geometry(px_tensor *self, const px_tensor *view) {
  PX_TRY(take_geometry(self, view));
  if (px__is_batched(view)) px__batched_over(self, view->physical, view->level);
  return PX_OK;
}

// Self continues its version count in its own counter, independent of the storage's: saved tensors
// compare with it.
px_status px_tensor_set_data(px_tensor *self, const px_tensor *value) {
  PX_GIVEN(self);
  PX_GIVEN(value);
  if (self == value) return PX_OK;
  PX_CHECK(!px__is_batched(self) && !px__is_batched(value), PX_RUNTIME,
           "mutating directly with `.data` under vmap transform is not allowed.");
  PX_SCOPED(px_storage) old = NULL;  // released after the change
  PX__CHANGE(self, NULL);
  PX_TRY(px__tensor_reserve_dims(self, value->ndim));
  if (!self->version) PX_TRY(make_own_version(self, px_tensor_version(self)));
  old = self->storage;
  self->storage = px_retain(value->storage);
  set_geometry(self, value);
  return PX_OK;
}

#define EXCHANGE(field) \
  do { \
    __typeof__(self->field) kept = self->field; \
    self->field = other->field; \
    other->field = kept; \
  } while (0)

px_status px_tensor_exchange(px_tensor *self, px_tensor *other) {
  PX_GIVEN(self);
  PX_GIVEN(other);
  PX_CHECK(!px__is_batched(self) && !px__is_batched(other), PX_RUNTIME,
           "tensors under vmap transform cannot be exchanged");
  PX_SCOPED(px_tensor) before = NULL;  // released after the change
  PX_TRY(px_tensor_detach(&before, self));
  PX__CHANGE(self, other->storage);
  PX_TRY(px__tensor_reserve_dims(self, other->ndim));
  PX_TRY(px__tensor_reserve_dims(other, before->ndim));
  uint16_t mine = px__flags(self), theirs = px__flags(other);
  set_geometry(self, other);
  set_geometry(other, before);
  PX__SET(self->flags, theirs);
  PX__SET(other->flags, mine);
  EXCHANGE(storage);
  EXCHANGE(version);
  EXCHANGE(own_version);
  EXCHANGE(base);
  EXCHANGE(autograd);
  return PX_OK;
}

// State of a tensor before a resize.
typedef struct resized {
  px_storage *storage;  // owned
  int64_t offset;
  px_dtype dtype;
  bool same;  // the tensor has the sizes
} resized;

static resized resized_of(const px_tensor *self, int ndim, const int64_t *sizes) {
  PX__USES(self);
  return (resized){px_retain(self->storage), self->offset, (px_dtype)self->dtype,
                   px__has_sizes(self, ndim, sizes)};
}

// *done is false if another thread has changed the tensor meanwhile.
static px_status set_sizes(bool *done, px_tensor *self, const resized *to, int ndim,
                           const int64_t *sizes, const int64_t *strides) {
  PX__CHANGE(self, NULL);
  *done = self->storage == to->storage && self->offset == to->offset && self->dtype == to->dtype;
  if (!*done) return PX_OK;
  PX_TRY(px__tensor_reserve_dims(self, ndim));
  px__tensor_guard_dims(self, ndim);
  for (int d = 0; d < ndim; d++) self->sizes[d] = sizes[d], self->strides[d] = strides[d];
  PX__SET(self->ndim, (int8_t)ndim);
  px__tensor_update_derived(self);
  return PX_OK;
}

static px_status try_resize(bool *done, px_tensor *self, int ndim, const int64_t *sizes) {
  size_t bytes;
  int64_t strides[PX_MAX_DIMS];
  resized to = resized_of(self, ndim, sizes);
  PX_SCOPED(px_storage) storage = to.storage;
  *done = to.same;
  if (to.same) return PX_OK;
  PX_TRY(px__row_major_bytes(&bytes, ndim, sizes, to.dtype));
  px__row_major(ndim, sizes, strides);
  PX_TRY(px__extent_bytes(&bytes, ndim, sizes, strides, to.offset, to.dtype));
  PX_TRY(px__storage_grow(storage, bytes));
  return set_sizes(done, self, &to, ndim, sizes, strides);
}

px_status px_tensor_resize(px_tensor *self, int ndim, const int64_t *sizes) {
  PX_GIVEN(self);
  PX_GIVEN_N(sizes, ndim);
  PX_TRY(px__check_sizes(ndim, sizes));
  PX_TRY(px__check_not_batched(self));
  for (bool done = false; !done;) PX_TRY(try_resize(&done, self, ndim, sizes));
  return PX_OK;
}
