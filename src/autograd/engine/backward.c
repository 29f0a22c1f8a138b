// SPDX-License-Identifier: Apache-2.0
// Entry points of the engine: px_backward and px_grad.
#include "autograd/engine/engine.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/vmap.h"

#include <stdio.h>

// ---- initial gradients

static px_status implicit_one(px_tensor **out, const px_tensor *t) {
  PX_CHECK(px_tensor_numel(t) == 1, PX_RUNTIME,
           "grad can be implicitly created only for scalar outputs");
  px_dtype dtype = px_tensor_dtype(t);
  PX_CHECK(px_dtype_is_float(dtype), PX_RUNTIME,
           "grad can be implicitly created only for real scalar outputs but got torch.%s",
           px_dtype_name(dtype));
  PX_SCOPED(px_tensor) one = NULL;
  PX_TRY(px_tensor_empty(&one, px_tensor_ndim(t), px_tensor_sizes(t), dtype, px_tensor_device(t)));
  PX_TRY(px_fill_(one, px_float(1)));
  *out = PX_MOVE(one);
  return PX_OK;
}

static void size_text(const px_tensor *t, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "torch.Size([");
  for (int d = 0; d < px_tensor_ndim(t) && used < size; d++)
    used += (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "",
                             (long long)px_tensor_sizes(t)[d]);
  if (used < size) snprintf(text + used, size - used, "])");
}

static px_status check_shape(const px_tensor *t, const px_tensor *grad, int64_t i) {
  int ndim = px_tensor_ndim(t);
  if (ndim == px_tensor_ndim(grad) &&
      !memcmp(px_tensor_sizes(t), px_tensor_sizes(grad), (size_t)ndim * sizeof(int64_t)))
    return PX_OK;
  char actual[300], expected[300];
  size_text(grad, actual, sizeof actual);
  size_text(t, expected, sizeof expected);
  PX_FAIL(PX_RUNTIME,
          "Mismatch in shape: grad_output[%lld] has a shape of %s and output[%lld] has a shape of "
          "%s.",
          (long long)i, actual, (long long)i, expected);
}

static bool batched_at(const px_tensor *t, int level) {
  while (px_tensor_batch_level(t) > level) t = px_tensor_physical(t);
  return px_tensor_batch_level(t) == level;
}

// Under vmap: gives the gradient the batch dimensions of t. Formulas change gradients in place, and
// an unbatched tensor cannot become batched in place.
static px_status as_batched(px_tensor **out, px_tensor *t, px_tensor *provided) {
  PX_SCOPED(px_tensor) zeros = NULL;
  bool all = true;
  for (const px_tensor *b = t; px_tensor_is_batched(b); b = px_tensor_physical(b))
    all &= batched_at(provided, px_tensor_batch_level(b));
  *out = all ? px_retain(provided) : NULL;
  if (all) return PX_OK;
  PX_TRY(px_zeros_like(&zeros, t, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  return px_add(out, zeros, provided, px_int(1));
}

static px_status check_complex(const px_tensor *t, const px_tensor *grad, int64_t i) {
  px_dtype actual = px_tensor_dtype(grad), expected = px_tensor_dtype(t);
  PX_CHECK(px_dtype_is_complex(actual) == px_dtype_is_complex(expected), PX_RUNTIME,
           "For complex Tensors, both grad_output and output are required to have the same dtype. "
           "Mismatch in dtype: grad_output[%lld] has a dtype of torch.%s and output[%lld] has a "
           "dtype of torch.%s.",
           (long long)i, px_dtype_name(actual), (long long)i, px_dtype_name(expected));
  return PX_OK;
}
static bool has_graph(const px_tensor *t, bool forward) {
  return forward ? px__has_history(t) : px_tensor_requires_grad(t);
}
static px_status first_grad(px_tensor **out, bool forward, px_tensor *t, px_tensor *provided,
                            int64_t i) {
  PX_CHECK(t, PX_TYPE, "element %lld of tensors is missing", (long long)i);
  if (provided) {
    PX_TRY(check_shape(t, provided, i));
    PX_TRY(check_complex(t, provided, i));
    return as_batched(out, t, provided);
  }
  if (!has_graph(t, forward)) return PX_OK;
  PX_SCOPED(px_tensor) one = NULL;
  PX_TRY(implicit_one(&one, t));
  return as_batched(out, t, one);
}

// ---- a task: roots, captures, running

typedef struct px__roots {
  int64_t count;
  px__edge *edges;    // owned nodes
  px_tensor **grads;  // owned
} px__roots;

static void roots_end(px__roots *roots) {
  for (int64_t i = 0; i < roots->count; i++) {
    if (roots->edges) px_release(roots->edges[i].node);
    if (roots->grads) px_release(roots->grads[i]);
  }
  px_free(roots->edges);
  px_free(roots->grads);
}

static px_status roots_fill(px__roots *roots, bool forward, int64_t count,
                            px_tensor *const *outputs, px_tensor *const *gradients) {
  PX_TRY(px_alloc((void **)&roots->edges, (size_t)count * sizeof *roots->edges));
  PX_TRY(px_alloc((void **)&roots->grads, (size_t)count * sizeof *roots->grads));
  roots->count = count;
  for (int64_t i = 0; i < count; i++)
    PX_TRY(first_grad(&roots->grads[i], forward, outputs[i], gradients ? gradients[i] : NULL, i));
  for (int64_t i = 0; i < count; i++) {
    PX_CHECK(has_graph(outputs[i], forward), PX_RUNTIME,
             "element %lld of tensors does not require grad and does not have a grad_fn",
             (long long)i);
    PX_TRY(px__edge_of(&roots->edges[i], outputs[i]));
    const px__meta *meta = &roots->edges[i].node->results[roots->edges[i].nr];
    PX_TRY(px__fit_grad(&roots->grads[i], meta, NULL, (int)i));
  }
  return PX_OK;
}

// Adds entries for the inputs before the traversal, which then marks the paths to them as needed.
static px_status add_captures(px__task *task, int64_t count, px_tensor *const *inputs,
                              px__edge *edges) {
  PX_TRY(px_alloc((void **)&task->captures, (size_t)count * sizeof *task->captures));
  for (int64_t i = 0; i < count; i++) {
    bool known = task->forward ? px__has_history(inputs[i]) : px_tensor_requires_grad(inputs[i]);
    PX_CHECK(known, PX_RUNTIME, "One of the differentiated Tensors does not require grad");
    PX_TRY(px__edge_of(&edges[i], inputs[i]));
    px__capture *capture = &task->captures[i];
    PX_TRY(px__task_add(task, edges[i].node, &capture->entry));
    px__task_entry *entry = &task->entries[capture->entry];
    capture->nr = edges[i].nr;
    capture->next = entry->capture;
    entry->capture = (int32_t)i;
    entry->needed = true;
    task->capture_count++;
  }
  return PX_OK;
}

static px_status prepare(px__task *task, px__roots *roots) {
  for (int64_t i = 0; i < roots->count; i++) PX_TRY(px__task_reach(task, roots->edges[i].node));
  for (int64_t i = 0; i < roots->count; i++) {
    int64_t entry = px__task_find(task, roots->edges[i].node);
    px_tensor *grad = roots->grads[i];
    roots->grads[i] = NULL;
    PX_TRY(px__buffer_add(&task->entries[entry], roots->edges[i].nr, grad));
  }
  return PX_OK;
}

// Queues root nodes once each. A root reachable from another root is queued when its last gradient
// arrives.
static px_status push_roots(px__task *task, const px__roots *roots) {
  for (int64_t i = 0; i < roots->count; i++) {
    bool seen = false;
    for (int64_t k = 0; k < i && !seen; k++) seen = roots->edges[k].node == roots->edges[i].node;
    if (seen) continue;
    uint32_t entry = (uint32_t)px__task_find(task, roots->edges[i].node);
    if (task->entries[entry].dependencies == 0) PX_TRY(px__task_push(task, entry));
  }
  return PX_OK;
}

// Orders the caller's later work after writes on other streams.
static px_status join_streams(const px__task *task) {
  for (int i = 0; i < task->end_count; i++) {
    px_stream *current;
    PX_TRY(px_stream_current(&current, px_stream_device(task->ends[i])));
    if (current != task->ends[i]) PX_TRY(px_stream_wait_stream(current, task->ends[i]));
  }
  return PX_OK;
}

static px_status outcome(px__task *task) {
  if (!task->failed) {
    PX_TRY(join_streams(task));
    return px__task_run_last_calls(task);
  }
  PX_CHECK(task->error, PX_NOMEM, "out of memory in backward");
  return px_error_give(task->error);
}

enum { DEVICES = 64 };  // bits of px__task.devices
// The thread's current device and streams, restored after the task has run nodes. The streams are
// those of the task's devices, and of the worker's device for nodes of other tasks.
typedef struct thread_state {
  int device, count;
  px_stream *streams[DEVICES];
} thread_state;

static px_status state_save(thread_state *state, const px__task *task) {
  uint64_t devices = task->shared && !task->alone ? 0 : task->devices;
  if (px__worker_device() >= 0) devices |= UINT64_C(1) << px__worker_device();
  state->device = px_device_peek();
  state->count = 0;
  for (; devices; devices &= devices - 1)
    PX_TRY(px_stream_current(&state->streams[state->count++], px_cuda(__builtin_ctzll(devices))));
  return PX_OK;
}

static px_status state_restore(const thread_state *state) {
  if (!state->count) return PX_OK;
  for (int i = 0; i < state->count; i++) PX_TRY(px_stream_set_current(state->streams[i]));
  return px_device_set(state->device);
}

static bool has_peer(int device, int count) {
  for (int other = 0; other < count; other++)
    if (other != device && px__are_peers(device, other)) return true;
  return false;
}

static px_status note_peers(px__task *task) {
  int count = task->shared ? px_device_count(PX_CUDA) : 0;
  for (int device = 0; device < count; device++) {
    px_stream *stream;
    if (!has_peer(device, count)) continue;
    PX_TRY(px_stream_current(&stream, px_cuda(device)));
    PX_TRY(px_realloc((void **)&task->peers, (size_t)(task->peer_count + 1) * sizeof(px_stream *)));
    task->peers[task->peer_count++] = px_retain(stream);
  }
  return PX_OK;
}

// After an interrupt the task fails. Its remaining items are still popped and discarded.
static bool next(px__task *task, px__item *out) {
  bool found;
  if (px__queue_pop(task->home, task, &found, out) == PX_OK) return found;
  px__task_fail(task);
  px_interrupt_hold(true);
  if (px__queue_pop(task->home, task, &found, out) != PX_OK) found = false;
  px_interrupt_hold(false);
  return found;
}

static px_status work(px__task *task, px__roots *roots) {
  thread_state before;
  PX_TRY(state_save(&before, task));
  if (task->shared) task->site = px_site_here();
  PX_TRY(note_peers(task));
  px__task_lock(task);
  px_status status = push_roots(task, roots);
  px__task_unlock(task);
  if (status != PX_OK) px__task_fail(task);
  px__item item;
  while (next(task, &item)) px__run_item(item);
  if (task->fuses && px_fuse_end(PX_OK) != PX_OK) px__task_fail(task);
  status = state_restore(&before);
  if (status != PX_OK) px__task_fail(task);
  return outcome(task);
}

static px_status run_task(px__task *task, px__roots *roots) {
  bool before = px__grad_swap(task->create);
  task->alone = !px_multithreading_enabled();
  px_status status = prepare(task, roots);
  px__grad_swap(before);
  PX_TRY(status);
  task->home = px__worker_queue();
  if (task->home) return work(task, roots);
  px__queue_init(&task->own, !task->shared);
  task->home = &task->own;
  status = work(task, roots);
  px__queue_end(&task->own);
  return status;
}

static px_status begin(const px__task *task, px__roots *roots, int64_t count,
                       px_tensor *const *outputs, px_tensor *const *gradients) {
  bool before = px__grad_swap(task->create);
  px_status status = roots_fill(roots, task->forward, count, outputs, gradients);
  px__grad_swap(before);
  return status;
}

static px_status check_no_vmap(void) {
  PX_CHECK(!px_vmap_depth(), PX_RUNTIME,
           "backward() called inside a functorch transform. This is not supported, please use "
           "functorch.grad or functorch.vjp instead or call backward() outside of functorch "
           "transforms.");
  return PX_OK;
}

px_status px_backward(int64_t count, px_tensor *const *outputs, px_tensor *const *gradients,
                      bool retain_graph, bool create_graph) {
  PX_GIVEN_N(outputs, count);
  PX_TRY(check_no_vmap());
  px__task task;
  px__roots roots = {0};
  PX_TRY(px__task_init(&task));
  task.keep = retain_graph;
  task.create = create_graph;
  task.depth = px__run_depth();
  px_status status = begin(&task, &roots, count, outputs, gradients);
  if (status == PX_OK) status = run_task(&task, &roots);
  px__task_end(&task);
  roots_end(&roots);
  return status;
}

// ---- px_backward_inputs

// Adds entries for the inputs, whose nodes run and store the gradients: those of leaves add them,
// others by retain_grad.
static px_status add_targets(px__task *task, int64_t count, px_tensor *const *inputs,
                             px__edge *edges) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t entry;
    PX_CHECK(px_tensor_requires_grad(inputs[i]), PX_RUNTIME,
             "One of the differentiated Tensors does not require grad");
    if (!px_tensor_is_leaf(inputs[i])) PX_TRY(px_tensor_retain_grad(inputs[i]));
    PX_TRY(px__edge_of(&edges[i], inputs[i]));
    PX_TRY(px__task_add(task, edges[i].node, &entry));
    task->entries[entry].needed = task->entries[entry].target = true;
  }
  return PX_OK;
}

static void edges_end(px__edge *edges, int64_t count) {
  for (int64_t i = 0; i < count; i++) px_release(edges[i].node);
  px_free(edges);
}

px_status px_backward_inputs(int64_t count, px_tensor *const *outputs, px_tensor *const *gradients,
                             int64_t input_count, px_tensor *const *inputs, bool retain_graph,
                             bool create_graph) {
  PX_GIVEN_N(outputs, count);
  PX_GIVEN_N(inputs, input_count);
  PX_CHECK(input_count, PX_RUNTIME, "`inputs` argument to `backward()` cannot be empty.");
  PX_TRY(check_no_vmap());
  for (int64_t i = 0; i < input_count; i++)
    PX_CHECK(inputs[i], PX_TYPE, "element %lld of inputs is missing", (long long)i);
  px__task task;
  px__roots roots = {0};
  px__edge *edges = NULL;
  PX_TRY(px_alloc((void **)&edges, (size_t)input_count * sizeof *edges));
  px_status status = px__task_init(&task);
  if (status != PX_OK) return px_free(edges), status;
  task.keep = retain_graph;
  task.create = create_graph;
  task.limited = true;
  task.depth = px__run_depth();
  status = begin(&task, &roots, count, outputs, gradients);
  if (status == PX_OK) status = add_targets(&task, input_count, inputs, edges);
  if (status == PX_OK) status = run_task(&task, &roots);
  px__task_end(&task);
  roots_end(&roots);
  edges_end(edges, input_count);
  return status;
}

// ---- px_grad

static px_status move_results(px__task *task, px_tensor **results, bool allow_unused) {
  for (int i = 0; i < task->capture_count; i++)
    PX_CHECK(
        allow_unused || task->captures[i].grad, PX_RUNTIME,
        "The differentiated Tensor at index %d appears to not have been used in the graph. Set "
        "allow_unused=True if this is the desired behavior.",
        i);
  for (int i = 0; i < task->capture_count; i++) {
    results[i] = task->captures[i].grad;
    task->captures[i].grad = NULL;
  }
  return PX_OK;
}

px_status px_grad(px_tensor **results, int64_t count, px_tensor *const *outputs,
                  px_tensor *const *gradients, int64_t input_count, px_tensor *const *inputs,
                  bool retain_graph, bool create_graph, bool allow_unused) {
  // Inside a node run for forward mode, this call belongs to that pass.
  return px__grad_by(px__run_forward(), results, count, outputs, gradients, input_count, inputs,
                     retain_graph, create_graph, allow_unused);
}

px_status px__grad_by(bool forward, px_tensor **results, int64_t count, px_tensor *const *outputs,
                      px_tensor *const *gradients, int64_t input_count, px_tensor *const *inputs,
                      bool retain_graph, bool create_graph, bool allow_unused) {
  PX_GIVEN_N(results, input_count);
  PX_GIVEN_N(outputs, count);
  PX_GIVEN_N(inputs, input_count);
  px__task task;
  px__roots roots = {0};
  px__edge *edges = NULL;
  for (int64_t i = 0; i < input_count; i++)
    PX_CHECK(inputs[i], PX_TYPE, "element %lld of inputs is missing", (long long)i);
  PX_TRY(px_alloc((void **)&edges, (size_t)input_count * sizeof *edges));
  PX_TRY(px__task_init(&task));
  task.keep = retain_graph;
  task.create = create_graph;
  task.limited = true;
  task.forward = forward;
  task.depth = px__run_depth();
  px_status status = begin(&task, &roots, count, outputs, gradients);
  if (status == PX_OK) status = add_captures(&task, input_count, inputs, edges);
  if (status == PX_OK) status = run_task(&task, &roots);
  if (status == PX_OK) status = move_results(&task, results, allow_unused);
  px__task_end(&task);
  roots_end(&roots);
  edges_end(edges, input_count);
  return status;
}
