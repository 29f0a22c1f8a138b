// SPDX-License-Identifier: Apache-2.0
// Assignment of parameters to buckets, and the buckets' memory.
//
// Parameters are assigned in the reducer's order. Parameters of one dtype and device fill a bucket
// up to its size. Buckets are numbered in the order in which they become full, so no collective
// waits for a bucket that fills later.
#include <string.h>

#include "parallel/reducer_impl.h"
#include "phlox/ops/view.h"

static int64_t bytes_of(const px_tensor *tensor) {
  return px_tensor_numel(tensor) * (int64_t)px_dtype_size(px_tensor_dtype(tensor));
}

static bool fits(const px_reducer *self, const px__bucket *bucket, const px_tensor *tensor) {
  const px_tensor *first = self->variables[bucket->members[0]].tensor;
  return px_tensor_dtype(first) == px_tensor_dtype(tensor) &&
         px_device_equal(px_tensor_device(first), px_tensor_device(tensor));
}

// Returns the open bucket of the tensor's dtype and device, or a new one. The first bucket of a
// kind is small so that its collective starts early.
static px__bucket *bucket_for(px_reducer *self, const px_tensor *tensor) {
  int64_t limit = self->first_bytes;
  for (int i = 0; i < self->bucket_count; i++) {
    px__bucket *bucket = &self->buckets[i];
    if (!fits(self, bucket, tensor)) continue;
    if (bucket->bytes < limit) return bucket;
    limit = self->bucket_bytes;
  }
  return &self->buckets[self->bucket_count++];
}

static px_status assign(px_reducer *self) {
  PX_TRY(px_alloc((void **)&self->buckets, (size_t)self->count * sizeof *self->buckets));
  for (int i = 0; i < self->count; i++) {
    const px_tensor *tensor = self->variables[self->order[i]].tensor;
    px__bucket *bucket = bucket_for(self, tensor);
    if (!bucket->members)
      PX_TRY(
          px_alloc((void **)&bucket->members, (size_t)(self->count - i) * sizeof *bucket->members));
    bucket->members[bucket->count++] = self->order[i];
    bucket->bytes += bytes_of(tensor);
    // Move the bucket to the end: it now fills later than those after it.
    px__bucket now = *bucket;
    size_t after = (size_t)(self->buckets + self->bucket_count - bucket - 1);
    memmove(bucket, bucket + 1, after * sizeof now);
    self->buckets[self->bucket_count - 1] = now;
  }
  return PX_OK;
}

// Returns a view of the bucket. A dense parameter keeps its strides; others become contiguous.
static px_status view_for(px_tensor **out, px_tensor *flat, const px_tensor *like, int64_t at) {
  PX_SCOPED(px_tensor) part = NULL;
  if (px_tensor_is_contiguous(like) || !px_tensor_is_dense(like)) {
    PX_TRY(px_narrow(&part, flat, 0, at, px_tensor_numel(like)));
    return px_view(out, part, px_tensor_sizes(like), px_tensor_ndim(like));
  }
  return px_as_strided(out, flat, px_tensor_sizes(like), px_tensor_ndim(like),
                       px_tensor_strides(like), px_tensor_ndim(like), &at);
}

// True without communication hook, compression and mixed precision.
static bool is_plain(const px_reducer *self) {
  return !self->has_hook && self->compress == PX_DTYPE_NONE && !self->mixed;
}
static bool reduces_in_place(const px_reducer *self, const px_tensor *tensor) {
  return !self->view && is_plain(self) && px_tensor_is_contiguous(tensor) &&
         bytes_of(tensor) >= self->unbucketed_bytes;
}

static px_status allocate_bucket(px_reducer *self, int index) {
  px__bucket *bucket = &self->buckets[index];
  int64_t total = 0, at = 0;
  for (int i = 0; i < bucket->count; i++) {
    px__variable *v = &self->variables[bucket->members[i]];
    v->in_place = reduces_in_place(self, v->tensor);
    if (!v->in_place) total += px_tensor_numel(v->tensor);
  }
  const px_tensor *first = self->variables[bucket->members[0]].tensor;
  PX_TRY(
      px_tensor_empty(&bucket->flat, 1, &total, px_tensor_dtype(first), px_tensor_device(first)));
  for (int i = 0; i < bucket->count; i++) {
    px__variable *v = &self->variables[bucket->members[i]];
    v->bucket = index;
    px_release(v->view);
    v->view = NULL;
    if (v->in_place) continue;
    PX_TRY(view_for(&v->view, bucket->flat, v->tensor, at));
    at += px_tensor_numel(v->tensor);
  }
  return PX_OK;
}

void px__buckets_drop(px_reducer *self) {
  for (int i = 0; i < self->bucket_count; i++) {
    px__bucket *bucket = &self->buckets[i];
    if (bucket->pending_hook) self->hook.drop(bucket->pending_hook);
    px_release(bucket->flat);
    px_release(bucket->sent);
    px_release(bucket->work);
    px_release(bucket->stream);
    px_free(bucket->members);
  }
  px_free(self->buckets);
  self->buckets = NULL;
  self->bucket_count = 0;
}

px_status px__buckets_lay_out(px_reducer *self) {
  bool was = px_grad_enabled();
  px__buckets_drop(self);
  PX_TRY(assign(self));
  px_grad_set_enabled(false);
  px_status status = PX_OK;
  for (int i = 0; i < self->bucket_count && status == PX_OK; i++) status = allocate_bucket(self, i);
  px_grad_set_enabled(was);
  return status;
}

px_status px__check_no_hook(const px_reducer *self) {
  PX_CHECK(is_plain(self), PX_RUNTIME,
           "register_comm_hook or register_builtin_comm_hook can only be called once.");
  PX_CHECK(!self->in_step, PX_RUNTIME, "a communication hook cannot be set during a step");
  return PX_OK;
}
