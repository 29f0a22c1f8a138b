// SPDX-License-Identifier: Apache-2.0
// Broadcast, scatter, gather and their gradients. Forward runs unrecorded; each call is then
// recorded as one node.
#include <string.h>

#include "parallel/parallel_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

// State saved for backward: devices, streams and sizes of the parts.
typedef struct plan {
  int dim;
  px_device source_device;  // of the unsplit tensor
  int64_t count;
  struct {
    px_device device;
    px_stream *stream;  // current stream of `device` in forward; owned, NULL on the CPU
    int64_t size;
  } parts[];
} plan;

static void plan_end(void *context) {
  plan *self = context;
  for (int i = 0; self && i < self->count; i++) px_release(self->parts[i].stream);
  px_free(self);
}

static px_status plan_new(plan **out, px_tensor *const *parts, int count, px_device source_device,
                          int dim) {
  PX_TRY(px_alloc((void **)out, sizeof **out + (size_t)count * sizeof((*out)->parts[0])));
  (*out)->dim = dim;
  (*out)->source_device = source_device;
  (*out)->count = count;
  for (int i = 0; i < count; i++) {
    px_stream *stream = NULL;
    (*out)->parts[i].device = px_tensor_device(parts[i]);
    if (px_tensor_is_cuda(parts[i])) PX_TRY(px_stream_current(&stream, px_tensor_device(parts[i])));
    (*out)->parts[i].stream = px_retain(stream);
    (*out)->parts[i].size = px_tensor_ndim(parts[i]) ? px_tensor_size(parts[i], dim) : 1;
  }
  return PX_OK;
}

// Copies to devices are asynchronous and stream-ordered. A copy to the host blocks, because later
// host reads have no stream to order them.
static px_status copy_to(px_tensor **out, px_tensor *tensor, px_device device) {
  return px_to(out, tensor, PX_DTYPE_NONE, device, device.type == PX_CUDA, false);
}

// Like `copy_to`, on a given stream of the tensor's device. The current stream does not wait for
// it. NULL: the current stream.
static px_status copy_on_stream(px_tensor **out, px_tensor *tensor, px_device device,
                                px_stream *stream) {
  px_stream *current = NULL;
  if (stream) PX_TRY(px_stream_current(&current, px_stream_device(stream)));
  if (current == stream) return copy_to(out, tensor, device);
  PX_TRY(px_stream_wait_stream(stream, current));
  PX_ON_STREAM(stream);
  return copy_to(out, tensor, device);
}

void px__drop_all(px_tensor **tensors, int count) {
  for (int i = 0; i < count; i++) px_release(tensors[i]), tensors[i] = NULL;
}

// Records results of a forward that ran unrecorded. On failure releases the results.
static px_status record_results(px_tensor **results, int count, px_tensor *const *inputs,
                                int input_count, px_device source_device, int dim,
                                const px_function *function, px_status status) {
  plan *saved = NULL;
  bool first = function->name[0] == 'G';  // gather saves its inputs, the others their results
  if (status == PX_OK)
    status =
        plan_new(&saved, first ? inputs : results, first ? input_count : count, source_device, dim);
  if (status != PX_OK)
    plan_end(saved);
  else
    status = px_function_record(function, saved, input_count, inputs, count, results);
  if (status != PX_OK) px__drop_all(results, count);
  return status;
}

px_status px__check_devices(const char *what, int min, int count) {
  PX_CHECK(count >= min && count <= PX__REPLICAS, PX_VALUE, "%s takes %d to %d devices, but got %d",
           what, min, PX__REPLICAS, count);
  return PX_OK;
}

// ---- sums across devices

// Sums tensors on `destination`. `of`: the plan with the parts' streams, or NULL. Skips NULLs.
static px_status add_parts(px_tensor **out, px_tensor *const *tensors, int count,
                           px_device destination, const plan *of) {
  PX_SCOPED(px_tensor) sum = NULL;
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) here = NULL;
    PX_SCOPED(px_tensor) next = NULL;
    if (!tensors[i]) continue;
    PX_TRY(copy_on_stream(&here, tensors[i], destination, of ? of->parts[i].stream : NULL));
    if (sum)
      PX_TRY(px_add(&next, sum, here, px_int(1)));
    else
      next = PX_MOVE(here);
    px_release(sum);
    sum = PX_MOVE(next);
  }
  *out = PX_MOVE(sum);
  return PX_OK;
}

px_status px_reduce_add(px_tensor **out, px_tensor *const *tensors, int count,
                        px_device destination) {
  PX_GIVEN(out);
  PX_GIVEN_N(tensors, count);
  *out = NULL;
  PX_CHECK(count > 0, PX_RUNTIME, "reduce_add expects at least one tensor");
  for (int i = 0; i < count; i++) {
    PX_CHECK(tensors[i], PX_TYPE, "input %d of reduce_add is missing", i);
    PX_CHECK(px_tensor_is_cuda(tensors[i]), PX_ASSERTION,
             "reduce_add expects all inputs to be on GPUs, but input %d is on CPU", i);
    PX_CHECK(px_tensor_numel(tensors[i]) == px_tensor_numel(tensors[0]), PX_VALUE,
             "input %d has invalid size: got %lld, but expected %lld", i,
             (long long)px_tensor_numel(tensors[i]), (long long)px_tensor_numel(tensors[0]));
  }
  if (destination.type < 0) destination = px_tensor_device(tensors[0]);
  return add_parts(out, tensors, count, destination, NULL);
}

// ---- broadcast

static px_status broadcast_backward(px_tensor **grad_inputs, int input_count,
                                    px_tensor *const *grad_outputs, int output_count,
                                    void *context) {
  const plan *p = context;
  return add_parts(&grad_inputs[0], grad_outputs, output_count, p->source_device, p);
}

static px_status copies(px_tensor **results, px_tensor *tensor, const px_device *devices, int n) {
  for (int i = 0; i < n; i++) {
    PX_SCOPED(px_tensor) here = NULL;
    PX_TRY(copy_to(&here, tensor, devices[i]));
    // A copy to the same device returns the tensor itself; an alias carries the new history.
    if (here == tensor)
      PX_TRY(px_tensor_alias(&results[i], tensor));
    else
      results[i] = PX_MOVE(here);
  }
  return PX_OK;
}

px_status px_broadcast(px_tensor **results, px_tensor *tensor, const px_device *devices,
                       int device_count) {
  PX_GIVEN_N(results, device_count);
  PX_GIVEN(tensor);
  PX_GIVEN_N(devices, device_count);
  PX_TRY(px__check_devices("broadcast", 0, device_count));
  static const px_function function = {"BroadcastBackward", broadcast_backward, plan_end, NULL};
  memset(results, 0, (size_t)device_count * sizeof *results);
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = copies(results, tensor, devices, device_count);
  px_grad_set_enabled(was);
  PX_TRY(record_results(results, device_count, &tensor, 1, px_tensor_device(tensor), 0, &function,
                        status));
  px_node *node = NULL;
  if (device_count) status = px_tensor_grad_fn(&node, results[0]);
  if (node) px_node_prioritize(node);  // start the gradient copies early, overlapping backward
  if (status != PX_OK) px__drop_all(results, device_count);
  return status;
}

// ---- gather

static px_status join(px_tensor **out, px_tensor *const *tensors, int count, px_device destination,
                      int dim, px_tensor **here) {
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_TRY(copy_to(&part, tensors[i], destination));
    if (px_tensor_ndim(part))
      here[i] = PX_MOVE(part);
    else
      PX_TRY(px_unsqueeze(&here[i], part, 0));
  }
  return px_cat(out, here, count, dim);
}

static px_status split_to(px_tensor **results, px_tensor *tensor, int dim, const px_device *devices,
                          const int64_t *sizes, int count) {
  int64_t at = 0;
  for (int i = 0; i < count; at += sizes[i++]) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_TRY(px_narrow(&part, tensor, dim, at, sizes[i]));
    PX_TRY(copy_to(&results[i], part, devices[i]));
  }
  PX_CHECK(
      at == px_tensor_size(tensor, dim), PX_RUNTIME,
      "scatter expects sizes that sum to %lld, the size of dimension %d, but got a sum of %lld",
      (long long)px_tensor_size(tensor, dim), dim, (long long)at);
  return PX_OK;
}

static px_status gather_backward(px_tensor **grad_inputs, int input_count,
                                 px_tensor *const *grad_outputs, int output_count, void *context) {
  const plan *p = context;
  int64_t at = 0;
  for (int i = 0; i < input_count; at += p->parts[i++].size) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_TRY(px_narrow(&part, grad_outputs[0], p->dim, at, p->parts[i].size));
    PX_TRY(copy_to(&grad_inputs[i], part, p->parts[i].device));
  }
  return PX_OK;
}

static px_status warn_scalars(void) {
  return px_warn(PX_WARN_USER,
                 "Was asked to gather along dimension 0, but all input tensors were scalars; will "
                 "instead unsqueeze and return a vector.");
}

px_status px_gather_parts(px_tensor **out, px_tensor *const *tensors, int count,
                          px_device destination, int dim) {
  PX_GIVEN(out);
  PX_GIVEN_N(tensors, count);
  static const px_function function = {"GatherBackward", gather_backward, plan_end, NULL};
  *out = NULL;
  PX_CHECK(count > 0, PX_RUNTIME, "gather expects at least one tensor");
  for (int i = 0; i < count; i++) PX_CHECK(tensors[i], PX_TYPE, "input %d of gather is missing", i);
  if (!px_tensor_ndim(tensors[0]) && dim == 0) PX_TRY(warn_scalars());
  px_tensor **here;
  PX_TRY(px_alloc((void **)&here, (size_t)count * sizeof *here));
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = join(out, tensors, count, destination, dim, here);
  px_grad_set_enabled(was);
  px__drop_all(here, count);
  px_free(here);
  return record_results(out, 1, tensors, count, destination, dim, &function, status);
}

// ---- scatter

// Zero gradient for an unused part. Shaped like another part's gradient, with its own split size.
static px_status zero_gradient(px_tensor **out, const plan *p, int i, const px_tensor *other) {
  int64_t sizes[PX_MAX_DIMS];
  int ndim = px_tensor_ndim(other);
  memcpy(sizes, px_tensor_sizes(other), (size_t)ndim * sizeof *sizes);
  sizes[p->dim < 0 ? p->dim + ndim : p->dim] = p->parts[i].size;
  return px_zeros(out, sizes, ndim, px_tensor_dtype(other), p->source_device, false, false);
}

// At least one gradient is not NULL, otherwise the engine does not call this.
static px_status scatter_backward(px_tensor **grad_inputs, int input_count,
                                  px_tensor *const *grad_outputs, int output_count, void *context) {
  const plan *p = context;
  px_tensor *grads[PX__REPLICAS] = {NULL};
  const px_tensor *known = NULL;
  px_status status = PX_OK;
  for (int i = 0; i < output_count && !known; i++) known = grad_outputs[i];
  for (int i = 0; i < output_count && status == PX_OK; i++) {
    grads[i] = px_retain(grad_outputs[i]);
    if (!grads[i]) status = zero_gradient(&grads[i], p, i, known);
  }
  if (status == PX_OK)
    status = px_gather_parts(&grad_inputs[0], grads, output_count, p->source_device, p->dim);
  px__drop_all(grads, output_count);
  return status;
}

px_status px_scatter_sizes(px_tensor **results, px_tensor *tensor, const px_device *devices,
                           const int64_t *sizes, int device_count, int dim) {
  PX_GIVEN_N(results, device_count);
  PX_GIVEN(tensor);
  PX_GIVEN_N(devices, device_count);
  PX_GIVEN_N(sizes, device_count);
  PX_TRY(px__check_devices("scatter", 1, device_count));
  static const px_function function = {"ScatterBackward", scatter_backward, plan_end, NULL};
  memset(results, 0, (size_t)device_count * sizeof *results);
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = split_to(results, tensor, dim, devices, sizes, device_count);
  px_grad_set_enabled(was);
  return record_results(results, device_count, &tensor, 1, px_tensor_device(tensor), dim, &function,
                        status);
}

px_status px_scatter_parts(px_tensor **results, int *count, px_tensor *tensor,
                           const px_device *devices, int device_count, int dim) {
  PX_GIVEN_N(results, device_count);
  PX_GIVEN(count);
  PX_GIVEN(tensor);
  PX_GIVEN_N(devices, device_count);
  PX_CHECK(px_tensor_ndim(tensor) > 0, PX_RUNTIME, "chunk expects at least a 1-dimensional tensor");
  int64_t whole = px_tensor_size(tensor, dim), sizes[PX__REPLICAS];
  PX_TRY(px__check_devices("scatter", 1, device_count));
  int64_t each = (whole + device_count - 1) / device_count;
  *count = 0;
  // Sizes of chunk: equal parts with a smaller last one, possibly fewer than devices.
  for (int64_t left = whole; *count == 0 || left > 0; left -= each)
    sizes[(*count)++] = left < each ? left : each;
  return px_scatter_sizes(results, tensor, devices, sizes, *count, dim);
}
