// SPDX-License-Identifier: Apache-2.0
// The reducer: gradient hooks, bucket reduction, and the end of backward.
//
// Invariant: collectives start in bucket order, which is the same on all ranks, independent of the
// order in which buckets fill. `in_step` is set between the first gradient and the end of
// backward. A step that begins while it is set is missing gradients.
#include <stdio.h>
#include <string.h>

#include "parallel/reducer_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

// ---- reducing a bucket

static px_status begin_hook(px_reducer *self, px__bucket *bucket) {
  px_tensor **lists;
  int n = bucket->count;
  PX_TRY(px_alloc((void **)&lists, 2 * (size_t)n * sizeof *lists));
  for (int i = 0; i < n; i++) {
    lists[i] = self->variables[bucket->members[i]].view;
    lists[n + i] = self->variables[bucket->members[i]].tensor;
  }
  int index = (int)(bucket - self->buckets);
  px_bucket info = {index, index == self->bucket_count - 1, bucket->flat, lists, lists + n, n};
  px_status status = self->hook.begin(&bucket->pending_hook, &info, self->hook_context);
  px_free(lists);
  return status;
}

static px_status begin_compressed(px_reducer *self, px__bucket *bucket) {
  PX_TRY(px_to(&bucket->sent, bucket->flat, self->compress, PX_DEVICE_NONE, false, false));
  PX_TRY(px_div_scalar_(bucket->sent, px_int(self->divisor)));
  return px__run_all_reduce(&bucket->work, self->comm, bucket->sent);
}

static px_status begin_mean(px_reducer *self, px__bucket *bucket) {
  px_tensor **tensors;
  PX_TRY(px_alloc((void **)&tensors, (size_t)(bucket->count + 1) * sizeof *tensors));
  px_collective all = {.op = PX_ALL_REDUCE, .reduce = PX_REDUCE_AVG, .outputs = tensors};
  if (px_tensor_numel(bucket->flat)) tensors[all.output_count++] = bucket->flat;
  for (int i = 0; i < bucket->count; i++) {
    const px__variable *v = &self->variables[bucket->members[i]];
    if (v->in_place) tensors[all.output_count++] = v->view;
  }
  px_status status = all.output_count ? px_comm_run(&bucket->work, self->comm, &all) : PX_OK;
  px_free(tensors);
  return status;
}

// True if gradients of the tensor are sent in another dtype.
static bool is_compressed(const px_reducer *self, const px_tensor *tensor) {
  px_dtype dtype = px_tensor_dtype(tensor);
  return self->compress != PX_DTYPE_NONE && self->compress != dtype && px_dtype_is_float(dtype);
}

static px_status begin(px_reducer *self, px__bucket *bucket) {
  bucket->begun = true;
  if (self->has_hook) return begin_hook(self, bucket);
  if (is_compressed(self, bucket->flat)) return begin_compressed(self, bucket);
  if (self->averages) return begin_mean(self, bucket);
  return px__run_all_reduce(&bucket->work, self->comm, bucket->flat);
}

static px_status end(px_reducer *self, px__bucket *bucket) {
  PX_SCOPED(px_tensor) result = NULL;
  if (self->has_hook) {
    void *pending = bucket->pending_hook;
    bucket->pending_hook = NULL;
    PX_TRY(self->hook.end(&result, pending, self->hook_context));
    if (!result || result == bucket->flat) return PX_OK;
    PX_CHECK(px_tensor_numel(result) == px_tensor_numel(bucket->flat), PX_RUNTIME,
             "expected %lld elements from a communication hook, got %lld",
             (long long)px_tensor_numel(bucket->flat), (long long)px_tensor_numel(result));
    return px_copy_(bucket->flat, result, false);
  }
  if (bucket->work) PX_TRY(px_work_wait(bucket->work, 0));
  return bucket->sent ? px_copy_(bucket->flat, bucket->sent, false) : PX_OK;
}

// ---- the end of backward

static px_status receive_used(px_reducer *self) {
  int64_t *numbers;
  if (!self->used_work) return PX_OK;
  PX_TRY(px_work_wait(self->used_work, 0));
  PX_TRY(px_alloc((void **)&numbers, (size_t)self->count * sizeof *numbers));
  px_status status = px__numbers_get(numbers, self->used);
  for (int i = 0; i < self->count && status == PX_OK; i++) self->variables[i].used = numbers[i] > 0;
  px_free(numbers);
  return status;
}

static bool same_memory(const px_tensor *a, const px_tensor *b) {
  return px_tensor_storage(a) == px_tensor_storage(b) &&
         px_tensor_offset(a) == px_tensor_offset(b) && px_tensor_numel(a) > 0;
}

// Writes the reduced gradient. A parameter unused on all ranks keeps its previous gradient.
static px_status write_gradient(px_reducer *self, px__variable *v) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_tensor_get_grad(&grad, v->tensor));
  if (!v->used && !grad) return PX_OK;
  if (!v->used && (self->find_unused || self->static_graph)) return PX_OK;
  if (self->view) return grad == v->view ? PX_OK : px_tensor_set_grad(v->tensor, v->view);
  if (grad) {
    PX_SCOPED(px_tensor) plain = NULL;
    PX_TRY(px_tensor_detach(&plain, grad));
    if (!same_memory(plain, v->view)) return px_copy_(plain, v->view, false);
    px_tensor_bump_version(plain);
    return PX_OK;
  }
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_clone(&made, v->view, "preserve_format"));
  return px_tensor_set_grad(v->tensor, made);
}

// Releases the views of gradients reduced in place.
static void release_in_place(px_reducer *self) {
  for (int i = 0; i < self->count; i++) {
    px__variable *v = &self->variables[i];
    if (!v->in_place) continue;
    px_release(v->view);
    v->view = NULL;
  }
}

// A static graph keeps the uses of the first step.
static void forget_uses(px_reducer *self) {
  for (int i = 0; i < self->count && !self->static_graph; i++) self->variables[i].used = false;
}

static px_status finish_all(px_reducer *self) {
  for (int b = 0; b < self->bucket_count; b++) PX_TRY(end(self, &self->buckets[b]));
  PX_TRY(receive_used(self));
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int i = 0; i < self->count && status == PX_OK; i++)
    status = write_gradient(self, &self->variables[i]);
  PX_TRY(px_launch_batch_end(status));
  release_in_place(self);
  forget_uses(self);
  return PX_OK;
}

static px_status finish(void *context) {
  px_reducer *self = context;
  bool was = px_grad_enabled();
  pthread_mutex_lock(&self->lock);
  px_grad_set_enabled(false);
  px_status status = finish_all(self);
  px_grad_set_enabled(was);
  if (status == PX_OK) self->armed = self->in_step = false;
  pthread_mutex_unlock(&self->lock);
  return status;
}

static px_status call_at_end(px_reducer *self, px_status (*fn)(void *context)) {
  return px_backward_at_end(fn, px_retain(self), px_release);
}

// ---- arrival of a gradient

// Sets the view of an in-place parameter: the gradient's memory, or a copy if it is not contiguous.
// Without a gradient the view is zeros.
static px_status view_in_place(px__variable *v, px_tensor *grad) {
  PX_SCOPED(px_tensor) plain = NULL;
  px_release(v->view);
  v->view = NULL;
  if (!grad)
    return px_zeros(&v->view, px_tensor_sizes(v->tensor), px_tensor_ndim(v->tensor),
                    px_tensor_dtype(v->tensor), px_tensor_device(v->tensor), false, false);
  PX_TRY(px_tensor_detach(&plain, grad));
  return px_contiguous(&v->view, plain);
}

// Scales a summand to its share of the mean. An averaging collective divides by the number of
// ranks.
static px_status scale_to_share(px_reducer *self, px__variable *v) {
  int ranks = px_comm_size(self->comm);
  if (self->has_hook || is_compressed(self, v->view)) return PX_OK;
  if (self->averages && self->divisor == ranks) return PX_OK;
  return px_mul_scalar_(v->view, px_float((self->averages ? ranks : 1.0) / self->divisor));
}

// Copies the gradient into the parameter's slot of the bucket.
static px_status fill_slot(px_reducer *self, px__variable *v) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px_tensor_get_grad(&grad, v->tensor));
  if (v->in_place) return view_in_place(v, grad);
  if (!grad) return px_zero_(v->view);
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_tensor_detach(&plain, grad));
  return same_memory(plain, v->view) ? PX_OK : px_copy_(v->view, plain, false);
}

// Applies fn to all parameters of a bucket, with batched launches.
static px_status for_each(px_reducer *self, const px__bucket *bucket,
                          px_status (*fn)(px_reducer *self, px__variable *v)) {
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int i = 0; i < bucket->count && status == PX_OK; i++)
    status = fn(self, &self->variables[bucket->members[i]]);
  return px_launch_batch_end(status);
}

// Copies the gradients and scales them.
static px_status fill_bucket(px_reducer *self, const px__bucket *bucket) {
  PX_TRY(for_each(self, bucket, fill_slot));
  return for_each(self, bucket, scale_to_share);
}

// Backward may run on several streams. Each gradient's stream waits for the previous one's, so the
// last one may fill the bucket.
static px_status follow_stream(px__bucket *bucket) {
  px_stream *stream;
  px_device device = px_tensor_device(bucket->flat);
  if (device.type != PX_CUDA) return PX_OK;
  PX_TRY(px_stream_current(&stream, device));
  if (bucket->stream == stream) return PX_OK;
  if (bucket->stream) PX_TRY(px_stream_wait_stream(stream, bucket->stream));
  px_release(bucket->stream);
  bucket->stream = px_retain(stream);
  return PX_OK;
}

static px_status send_used(px_reducer *self) {
  int64_t *numbers;
  px_release(self->used);
  self->used = NULL;
  PX_TRY(px_alloc((void **)&numbers, (size_t)self->count * sizeof *numbers));
  for (int i = 0; i < self->count; i++) numbers[i] = self->variables[i].used;
  px_status status = px__numbers_put(&self->used, numbers, self->count,
                                     px_tensor_device(self->variables[0].tensor));
  px_free(numbers);
  PX_TRY(status);
  return px__run_all_reduce(&self->used_work, self->comm, self->used);
}

static const char marked_twice[] =
    "Expected to mark a variable ready only once. This error is caused by one of the following "
    "reasons: 1) Use of a module parameter outside the `forward` function. Please make sure model "
    "parameters are not shared across multiple concurrent forward-backward passes. or try to use "
    "_set_static_graph() as a workaround if this module graph does not change during training "
    "loop.2) Reused parameters in multiple reentrant backward passes. For example, if you use "
    "multiple `checkpoint` functions to wrap the same part of your model, it would result in the "
    "same set of parameters been used by different reentrant backward passes multiple times, and "
    "hence marking a variable ready multiple times. DDP does not support such use cases in "
    "default. You can try to use _set_static_graph() as a workaround if your module graph does "
    "not change over iterations.";

static px_status mark_ready(px_reducer *self, px__variable *v) {
  PX_CHECK(!v->ready, PX_RUNTIME, "%s", marked_twice);
  px__bucket *bucket = &self->buckets[v->bucket];
  PX_TRY(follow_stream(bucket));
  v->ready = true;
  if (--bucket->pending == 0) PX_TRY(fill_bucket(self, bucket));
  while (self->next < self->bucket_count && !self->buckets[self->next].pending)
    PX_TRY(begin(self, &self->buckets[self->next++]));
  return PX_OK;
}

static px_status mark_unused_ready(px_reducer *self) {
  if (self->marked_unused) return PX_OK;
  self->marked_unused = true;
  for (int i = 0; i < self->count; i++)
    if (self->variables[i].unused) PX_TRY(mark_ready(self, &self->variables[i]));
  return PX_OK;
}

// ---- static graph: the first step counts the arrivals of each gradient and reduces all buckets at
// its end

static px_status reduce_all(px_reducer *self) {
  self->learned = true;
  for (int i = 0; i < self->count; i++) PX_TRY(mark_ready(self, &self->variables[i]));
  return PX_OK;
}

static px_status finish_first(void *context) {
  px_reducer *self = context;
  bool was = px_grad_enabled();
  pthread_mutex_lock(&self->lock);
  px_grad_set_enabled(false);
  for (int i = 0; i < self->bucket_count; i++) {
    px_release(self->buckets[i].stream);
    self->buckets[i].stream = NULL;
  }
  px_status status = reduce_all(self);
  if (status == PX_OK) status = send_used(self);
  if (status == PX_OK) status = finish_all(self);
  px_grad_set_enabled(was);
  if (status == PX_OK) self->armed = self->in_step = false;
  pthread_mutex_unlock(&self->lock);
  return status;
}

static px_status count_use(px_reducer *self, px__variable *v) {
  v->uses++;
  if (self->in_step) return PX_OK;
  self->in_step = true;
  return call_at_end(self, finish_first);
}

// ---- the hook of a parameter

static void note_arrival(px_reducer *self, px__variable *v) {
  if (self->rebuilt || v->noted) return;
  v->noted = true;
  self->arrival[self->arrived++] = (int)(v - self->variables);
}

static px_status take_gradient(px_reducer *self, px__variable *v) {
  note_arrival(self, v);
  if (self->static_graph && !self->learned) return count_use(self, v);
  if (self->static_graph && --v->left > 0) return PX_OK;
  self->in_step = true;
  PX_TRY(mark_unused_ready(self));
  PX_TRY(mark_ready(self, v));
  if (self->next < self->bucket_count) return PX_OK;
  if (self->find_unused && !self->static_graph) PX_TRY(send_used(self));
  return call_at_end(self, finish);
}

// A gradient accumulated in passes that are not reduced is part of the next reduction, although the
// parameter may be unused there.
static px_status on_gradient(px_tensor *tensor, void *context) {
  px__variable *v = context;
  px_reducer *self = v->reducer;
  bool was = px_grad_enabled();
  pthread_mutex_lock(&self->lock);
  px_grad_set_enabled(false);
  v->used |= !self->learned;
  px_status status = px__mixed_on_gradient(self);
  if (status == PX_OK && self->armed) status = take_gradient(self, v);
  px_grad_set_enabled(was);
  pthread_mutex_unlock(&self->lock);
  return status;
}

// ---- begin of a step

#define ALL_IN_LOSS "making sure all `forward` function outputs participate in calculating loss. "
static const char unfinished[] =
    "Expected to have finished reduction in the prior iteration before starting a new one. This "
    "error indicates that your module has parameters that were not used in producing loss. ";
static const char enable_finding[] =
    "You can enable unused parameter detection by passing the keyword argument "
    "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by "
    "\n" ALL_IN_LOSS;
static const char though_finding[] =
    "Since `find_unused_parameters=True` is enabled, this likely  means that not all `forward` "
    "outputs participate in computing loss. You can fix this by " ALL_IN_LOSS;
static const char not_located[] =
    "\nIf you already have done the above, then the distributed data parallel module wasn't able "
    "to locate the output tensors in the return value of your module's `forward` function. Please "
    "include the loss function and the structure of the return value of `forward` of your module "
    "when reporting this issue (e.g. list, dict, iterable).";
static const char not_static[] =
    "Expected to have finished reduction in the prior iteration before starting a new one. This "
    "error indicates that your training graph has changed in this iteration, e.g., one parameter "
    "is used in first iteration, but then got unused in the second iteration. this is not "
    "compatible with static_graph set to True.";

static px_status check_finished(const px_reducer *self) {
  char list[300] = "";
  size_t at = 0;
  if (!self->in_step) return PX_OK;
  for (int i = 0; i < self->count; i++)
    if (!self->variables[i].ready && at < sizeof list)
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? " " : "", i);
  bool fixed = self->static_graph;
  PX_FAIL(PX_RUNTIME,
          "%s%s%s\nParameter indices which did not receive grad for rank %d: %s\n In addition, you "
          "can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to "
          "print out information about which particular parameters did not receive gradient on "
          "this rank as part of this error",
          fixed ? not_static : unfinished,
          fixed               ? ""
          : self->find_unused ? though_finding
                              : enable_finding,
          fixed ? "" : not_located, px_comm_rank(self->comm), list);
}

// Uses rank 0's arrival order, as ranks may differ.
static px_status order_by_arrival(px_reducer *self) {
  int64_t *numbers;
  for (int i = 0; i < self->count; i++) note_arrival(self, &self->variables[i]);
  PX_TRY(px_alloc((void **)&numbers, (size_t)self->count * sizeof *numbers));
  for (int i = 0; i < self->count; i++) numbers[i] = self->arrival[i];
  px_status status = px__numbers_from(self->comm, 0, numbers, self->count,
                                      px_tensor_device(self->variables[0].tensor));
  for (int i = 0; i < self->count && status == PX_OK; i++) self->order[i] = (int)numbers[i];
  px_free(numbers);
  return status;
}

static px_status begin_step(px_reducer *self) {
  PX_TRY(check_finished(self));
  bool moves = self->static_graph || !self->find_unused;
  if (self->rebuilt || !moves || !self->arrived) return PX_OK;
  PX_TRY(order_by_arrival(self));
  self->rebuilt = true;
  return px__buckets_lay_out(self);
}

px_status px_reducer_begin(px_reducer *self) {
  PX_GIVEN(self);
  pthread_mutex_lock(&self->lock);
  px_status status = begin_step(self);
  pthread_mutex_unlock(&self->lock);
  return status;
}

static void clear_bucket(px_reducer *self, px__bucket *bucket) {
  if (bucket->pending_hook) self->hook.drop(bucket->pending_hook);
  px_release(bucket->sent);
  px_release(bucket->work);
  px_release(bucket->stream);
  bucket->pending_hook = bucket->sent = NULL;
  bucket->work = NULL;
  bucket->stream = NULL;
  bucket->begun = false;
  bucket->pending = bucket->count;
}

static void prepare(px_reducer *self) {
  for (int i = 0; i < self->bucket_count; i++) clear_bucket(self, &self->buckets[i]);
  for (int i = 0; i < self->count; i++) {
    px__variable *v = &self->variables[i];
    v->ready = false;
    v->unused = self->learned && !v->uses;
    v->left = v->uses;
  }
  px_release(self->used_work);
  self->used_work = NULL;
  self->next = 0;
  self->marked_unused = false;
}

static px_status expect(px_reducer *self, px_tensor *const *outputs, int count) {
  prepare(self);
  if (self->find_unused && !self->static_graph) PX_TRY(px__find_unused(self, outputs, count));
  self->armed = true;
  return PX_OK;
}

px_status px_reducer_expect(px_reducer *self, px_tensor *const *outputs, int count) {
  PX_GIVEN(self);
  PX_GIVEN_EACH(outputs, count);
  pthread_mutex_lock(&self->lock);
  px_status status = expect(self, outputs, count);
  pthread_mutex_unlock(&self->lock);
  return status;
}

// ---- uneven inputs: participating in a step of other ranks

// Sends zeroed buckets in the same order as a backward pass.
static px_status send_nothing(px_reducer *self) {
  for (int i = 0; i < self->bucket_count; i++) {
    px__bucket *bucket = &self->buckets[i];
    PX_TRY(follow_stream(bucket));
    PX_TRY(px_zero_(bucket->flat));
    for (int k = 0; k < bucket->count; k++) {
      px__variable *v = &self->variables[bucket->members[k]];
      if (v->in_place) PX_TRY(view_in_place(v, NULL));
    }
    PX_TRY(begin(self, bucket));
  }
  if (self->find_unused && !self->static_graph) PX_TRY(send_used(self));
  for (int i = 0; i < self->bucket_count; i++) PX_TRY(end(self, &self->buckets[i]));
  return self->used_work ? px_work_wait(self->used_work, 0) : PX_OK;
}

// Saves and restores bucket contents if gradients are views of buckets.
static px_status stash_buckets(px_reducer *self, px_tensor **kept, bool back) {
  for (int i = 0; self->view && i < self->bucket_count; i++) {
    px_tensor *flat = self->buckets[i].flat;
    PX_TRY(back ? px_copy_(flat, kept[i], false) : px_clone(&kept[i], flat, "preserve_format"));
  }
  return PX_OK;
}

static px_status shadow(px_reducer *self) {
  PX_CHECK(!self->static_graph || self->learned, PX_UNIMPLEMENTED,
           "a rank without a batch in the first step of a static graph (uneven inputs) is not "
           "implemented in Phlox");
  px_tensor **kept;
  PX_TRY(begin_step(self));
  prepare(self);
  forget_uses(self);
  PX_TRY(px_alloc((void **)&kept, (size_t)self->bucket_count * sizeof *kept));
  px_status status = stash_buckets(self, kept, false);
  if (status == PX_OK) status = send_nothing(self);
  if (status == PX_OK) status = stash_buckets(self, kept, true);
  release_in_place(self);
  px__drop_all(kept, self->bucket_count);
  px_free(kept);
  // Other ranks rebuild their buckets after this step. Keep the order consistent.
  for (int i = 0; i < self->count; i++) note_arrival(self, &self->variables[i]);
  return status;
}

px_status px_reducer_shadow(px_reducer *self) {
  PX_GIVEN(self);
  bool was = px_grad_enabled();
  pthread_mutex_lock(&self->lock);
  px_grad_set_enabled(false);
  px_status status = shadow(self);
  px_grad_set_enabled(was);
  pthread_mutex_unlock(&self->lock);
  return status;
}

px_status px_reducer_divide_by(px_reducer *self, int ranks) {
  PX_GIVEN(self);
  PX_CHECK(ranks >= 0, PX_VALUE, "expected a divisor of at least 0 ranks, got %d", ranks);
  pthread_mutex_lock(&self->lock);
  self->divisor = ranks ? ranks : px_comm_size(self->comm);
  pthread_mutex_unlock(&self->lock);
  return PX_OK;
}

// ---- construction

static void reducer_destroy(void *object) {
  px_reducer *self = object;
  px__mixed_drop(self);
  px__buckets_drop(self);
  for (int i = 0; self->variables && i < self->count; i++) {
    px__variable *v = &self->variables[i];
    if (v->hook) px_tensor_remove_hook(v->tensor, v->hook);
    px_release(v->node);
    px_release(v->view);
    px_release(v->tensor);
  }
  if (self->has_hook && self->hook.release) self->hook.release(self->hook_context);
  px_free(self->variables);
  px_free(self->order);
  px_free(self->arrival);
  px_release(self->used);
  px_release(self->used_work);
  px_release(self->comm);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

// Returns the parameter's AccumulateGrad node: the next edge of any op on the parameter.
static px_status find_node(px_node **out, px_tensor *tensor) {
  PX_SCOPED(px_tensor) other = NULL;
  px_node *node;
  int nr;
  bool was = px_grad_enabled();
  px_grad_set_enabled(true);
  px_status status = px_view_as(&other, tensor, tensor);
  px_grad_set_enabled(was);
  PX_TRY(status);
  PX_TRY(px_tensor_grad_fn(&node, other));
  *out = px_retain(px_node_edge(node, 0, &nr));
  return PX_OK;
}

static px_status add_variable(px_reducer *self, int i, px_tensor *tensor) {
  px__variable *v = &self->variables[i];
  PX_CHECK(tensor && px_tensor_is_leaf(tensor) && px_tensor_requires_grad(tensor), PX_RUNTIME,
           "expected a leaf that requires grad as parameter %d of a reducer", i);
  v->reducer = self;
  v->tensor = px_retain(tensor);
  PX_TRY(find_node(&v->node, tensor));
  self->order[i] = self->count - 1 - i;
  return px_tensor_add_accumulated_hook(&v->hook, tensor, on_gradient, v, NULL);
}

static px_status fill_in(px_reducer *self, const px_reducer_options *o) {
  size_t n = (size_t)o->count;
  PX_TRY(px_alloc((void **)&self->variables, n * sizeof *self->variables));
  self->count = o->count;
  PX_TRY(px_alloc((void **)&self->order, n * sizeof *self->order));
  PX_TRY(px_alloc((void **)&self->arrival, n * sizeof *self->arrival));
  for (int i = 0; i < o->count; i++) PX_TRY(add_variable(self, i, o->parameters[i]));
  return px__buckets_lay_out(self);
}

static void choose_in_place(px_reducer *self, int64_t bytes) {
  self->averages = px_comm_queues(self->comm) || bytes > 0;
  self->unbucketed_bytes = bytes > 0 ? bytes : bytes < 0 || !self->averages ? INT64_MAX : 1 << 20;
}

px_status px_reducer_new(px_reducer **out, const px_reducer_options *options) {
  static const px_class cls = {"reducer", reducer_destroy};
  PX_GIVEN(out);
  PX_GIVEN(options);
  PX_GIVEN(options->comm);
  PX_GIVEN_N(options->parameters, options->count);
  PX_CHECK(options->count > 0, PX_VALUE, "expected at least one parameter, got %d", options->count);
  PX_CHECK(options->first_bytes >= 0 && options->bucket_bytes >= 0, PX_VALUE,
           "expected bucket sizes >= 0");
  px_reducer *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_reducer) owned = self;
  px_object_init(self, &cls);
  pthread_mutex_init(&self->lock, NULL);
  self->comm = px_retain(options->comm);
  self->divisor = px_comm_size(options->comm);
  self->first_bytes = options->first_bytes ? options->first_bytes : 1 << 20;
  self->bucket_bytes = options->bucket_bytes ? options->bucket_bytes : 25 << 20;
  self->view = options->bucket_view;
  self->find_unused = options->find_unused;
  self->static_graph = options->static_graph;
  self->compress = PX_DTYPE_NONE;
  choose_in_place(self, options->unbucketed_bytes);
  PX_TRY(fill_in(self, options));
  *out = PX_MOVE(owned);
  return PX_OK;
}

// ---- compression and communication hooks

px_status px_reducer_compress(px_reducer *self, px_dtype dtype) {
  PX_GIVEN(self);
  PX_TRY(px__check_no_hook(self));
  self->compress = dtype;
  return px__buckets_lay_out(self);
}

px_status px_reducer_set_hook(px_reducer *self, const px_bucket_hook *hook, void *context) {
  PX_GIVEN(self);
  PX_GIVEN(hook);
  PX_CHECK(hook->begin && hook->end && hook->drop, PX_TYPE,
           "expected a hook with begin, end and drop");
  PX_TRY(px__check_no_hook(self));
  self->hook = *hook;
  self->has_hook = true;
  px_status status = px__buckets_lay_out(self);
  self->has_hook = status == PX_OK;  // on failure the caller keeps the context
  if (status == PX_OK) self->hook_context = context;
  return status;
}

int px_reducer_bucket_count(const px_reducer *self) { return self->bucket_count; }
