// SPDX-License-Identifier: Apache-2.0
// Running one node: hooks, captures, its backward, conversion of the gradients, and passing them to
// the nodes of its inputs.
#include "autograd/engine/engine.h"
#include "phlox/profile.h"

// ---- queueing of entries, and the end of a task

// Counts queued items. Only the caller's thread counts those of an unshared task.
static void add_outstanding(px__task *task, int by) {
  if (task->shared)
    __atomic_add_fetch(&task->outstanding, by, __ATOMIC_RELAXED);
  else
    __atomic_store_n(&task->outstanding, task->outstanding + by, __ATOMIC_RELAXED);
}

px_status px__task_push(px__task *task, uint32_t entry) {
  px_node *node = task->entries[entry].node;
  px__queue *queue = task->home;
  bool elsewhere = task->shared && !task->alone && node->device.type == PX_CUDA;
  if (elsewhere) PX_TRY(px__worker_of(&queue, node->device.index, px__run_item));
  px__item item = {task, entry, task->depth, node->sequence};
  add_outstanding(task, 1);
  px_status status = px__queue_push(queue, item);
  if (status != PX_OK) add_outstanding(task, -1);
  return status;
}

void px__task_fail(px__task *task) {
  px__task_lock(task);
  bool first = !task->failed;
  __atomic_store_n(&task->failed, true, __ATOMIC_RELAXED);
  if (first && px_alloc((void **)&task->error, sizeof *task->error) == PX_OK)
    px_error_take(task->error);
  else if (!first)
    px_error_clear();
  px__task_unlock(task);
}

static void finish(px__task *task) {
  // The caller may destroy the task as soon as it sees zero.
  px__queue *home = task->home;
  if (!task->shared) {
    add_outstanding(task, -1);
    return;
  }
  pthread_mutex_lock(&home->lock);
  if (__atomic_sub_fetch(&task->outstanding, 1, __ATOMIC_ACQ_REL) == 0)
    pthread_cond_broadcast(&home->changed);
  pthread_mutex_unlock(&home->lock);
}

// ---- captures, and the streams of results

static px_status note_end(px__task *task, px_stream *stream) {
  for (int i = 0; i < task->end_count; i++)
    if (task->ends[i] == stream) return PX_OK;
  if (task->end_count == task->end_capacity) {
    int capacity = task->end_capacity ? task->end_capacity * 2 : 8;
    PX_TRY(px_realloc((void **)&task->ends, (size_t)capacity * sizeof *task->ends));
    task->end_capacity = capacity;
  }
  task->ends[task->end_count++] = px_retain(stream);
  return PX_OK;
}

static px_status note_ends(px__task *task, px_device device) {
  if (device.type != PX_CUDA) return PX_OK;
  px_stream *stream;
  PX_TRY(px_stream_current(&stream, device));
  px__task_lock(task);
  px_status status = note_end(task, stream);
  px__task_unlock(task);
  return status;
}

static px_status capture(px__task *task, px__task_entry *entry, px_tensor *const *grads) {
  for (int i = entry->capture; i >= 0; i = task->captures[i].next) {
    px_tensor *grad = grads[task->captures[i].nr];
    if (!grad) continue;
    task->captures[i].grad = px_retain(grad);
    PX_TRY(note_ends(task, px_tensor_device(grad)));
  }
  return PX_OK;
}

// ---- a node

typedef struct px__frame {
  px_node *node;
  px_tensor **grads;  // moved from the entry
  px__run run;
  void *memory;  // heap memory of `run`, if its arrays are large
} px__frame;

static bool all_missing(const px__frame *f) {
  for (int i = 0; i < f->node->result_count; i++)
    if (f->grads[i]) return false;
  return true;
}

// Sets run.wanted. Returns whether the node must run. Captured leaves do not accumulate.
static bool find_required(px__task *task, px__frame *f) {
  bool any = !task->limited && f->node->edge_count == 0;
  for (int i = 0; i < f->node->edge_count; i++) {
    px_node *next = f->node->edges[i].node;
    f->run.required[i] = px__sees(f->node, i, task->forward) &&
                         (!task->limited || task->entries[px__task_find(task, next)].needed);
    any |= f->run.required[i];
  }
  return any;
}

static px_status fit(px__frame *f) {
  for (int i = 0; i < f->node->edge_count; i++) {
    const px__edge *edge = &f->node->edges[i];
    px_tensor **grad = &f->run.out[i];
    if (!*grad) continue;
    if (f->run.required[i]) {
      PX_TRY(px__fit_grad(grad, &edge->node->results[edge->nr], f->node->name, i));
      continue;
    }
    px_release(*grad);
    *grad = NULL;
  }
  return px__check_nan() ? px__find_nan(f->node->name, f->node->edge_count, f->run.out) : PX_OK;
}

static px_status apply(px__task *task, px__frame *f) {
  px_node *node = f->node;
  px__node_grads grads = {f->grads, f->run.out, node->result_count, node->edge_count};
  if (px__has_hooks(node)) PX_TRY(px__hooks_run_node(node, false, &grads));
  PX_TRY(px__node_enter(node));
  int64_t part = px_profile_enter(PX_PROFILE_NODE, node->name);
  px_status status = node->kind->apply(node, &f->run);
  px_profile_leave(part);
  bool kept = task->keep || (node->dual && px__forward());
  px__node_leave(node, !kept && status == PX_OK);
  PX_TRY(status);
  if (px__has_hooks(node)) PX_TRY(px__hooks_run_node(node, true, &grads));
  if (node->edge_count == 0) return note_ends(task, node->device);
  return fit(f);
}

static px_status pass_grad(px__task *task, px__frame *f, int i) {
  const px__edge *edge = &f->node->edges[i];
  uint32_t index = (uint32_t)px__task_find(task, edge->node);
  px__task_entry *next = &task->entries[index];
  px_tensor *grad = f->run.out[i];
  f->run.out[i] = NULL;
  next->from = f->node;
  if (grad) PX_TRY(px__buffer_add(next, edge->nr, grad));
  return --next->dependencies == 0 ? px__task_push(task, index) : PX_OK;
}

static px_status pass_grads(px__task *task, px__frame *f) {
  px_status status = PX_OK;
  px__task_lock(task);
  for (int i = 0; i < f->node->edge_count && status == PX_OK; i++)
    if (f->run.required[i]) status = pass_grad(task, f, i);
  px__task_unlock(task);
  return status;
}

static void warn_of(const px_node *node) {
  px_error error;
  px_error_take(&error);
  px_status status =
      node->file
          ? px_warn(PX_WARN_USER,
                    "Error detected in %s. Traceback of forward call that caused the error:\n"
                    "  File \"%s\", line %d\n",
                    node->name, node->file, node->line)
          : px_warn(PX_WARN_USER,
                    "Error detected in %s. No forward pass information available. Enable detect "
                    "anomaly during forward pass for more information.",
                    node->name);
  if (status != PX_OK) px_error_clear();
  (void)px_error_give(&error);
}

static px_status run_frame(px__task *task, px__task_entry *entry, px__frame *f) {
  PX_TRY(px__hooks_run(f->node, f->grads));
  if (entry->capture >= 0) PX_TRY(capture(task, entry, f->grads));
  if (task->limited && !entry->needed) return PX_OK;
  if (!find_required(task, f) && !entry->target) return PX_OK;
  px_status status = all_missing(f) ? PX_OK : apply(task, f);
  if (status != PX_OK && px_anomaly_enabled()) warn_of(f->node);
  PX_TRY(status);
  return pass_grads(task, f);
}

enum { SMALL = 16 };

static px_status frame_alloc(px__frame *f, px_tensor **small, bool *required) {
  size_t edges = (size_t)f->node->edge_count;
  if (edges <= SMALL) {
    f->run.out = small;
    f->run.required = required;
    return PX_OK;
  }
  PX_TRY(px_alloc(&f->memory, edges * (sizeof(px_tensor *) + sizeof(bool))));
  f->run.out = f->memory;
  f->run.required = (bool *)(f->run.out + edges);
  return PX_OK;
}

static void frame_end(px__frame *f) {
  for (int i = 0; f->run.out && i < f->node->edge_count; i++) px_release(f->run.out[i]);
  for (int i = 0; i < f->node->result_count; i++) px_release(f->grads[i]);
  px_free(f->memory);
}

static px_status run_entry(px__task *task, px__task_entry *entry) {
  px_tensor *one = NULL, *small[SMALL] = {0};
  bool required[SMALL];
  px_node *node = entry->node;
  px__frame f = {.node = node, .grads = node->result_count == 1 ? &one : entry->many};
  one = entry->one;
  entry->one = NULL;
  entry->many = NULL;
  f.run.grads = f.grads;
  px_status status = frame_alloc(&f, small, required);
  if (status == PX_OK) status = run_frame(task, entry, &f);
  frame_end(&f);
  if (node->result_count != 1) px_free(f.grads);
  return status;
}

static px_status enter_device(const px__task *task, const px_node *node) {
  if (node->device.type != PX_CUDA) return PX_OK;
  for (int i = 0; i < task->peer_count; i++) PX_TRY(px_stream_set_current(task->peers[i]));
  PX_TRY(px_device_set(node->device.index));
  return px_stream_set_current(node->stream);
}

static px_status run(px__item item) {
  px__task *task = item.task;
  px__task_entry *entry = &task->entries[item.entry];
  PX_TRY(enter_device(task, entry->node));
  if (entry->node->fused && !task->shared && !task->fuses) {
    PX_TRY(px_fuse_begin());
    task->fuses = true;
  }
  return run_entry(task, entry);
}

// Sites used by error reports of a node's work: backward call, node, and forward call.
typedef struct px__site_scope {
  px_site lent_site;
  px_backward_site backward;
} px__site_scope;

// An accumulator has no call site; it uses that of the node that sent the last gradient.
static void set_sites(px__site_scope *before, const px__task *task, const px__task_entry *entry) {
  const px_node *called = entry->node->file || !entry->from ? entry->node : entry->from;
  px_backward_site now = {entry->node->name, {.file = called->file, .line = called->line}};
  before->backward = px_site_set_backward(now);
  if (task->site.file) before->lent_site = px_site_lend(task->site);
}

static void restore_sites(const px__site_scope *before, const px__task *task) {
  (void)px_site_set_backward(before->backward);
  if (task->site.file) (void)px_site_lend(before->lent_site);
}

static _Thread_local px__running_item here;
int px__run_depth(void) { return here.depth; }
px__running_item px__run_here(void) { return here; }

// Sets the modes of the task and returns those before. The items of an unshared task run on its
// thread, where all modes but grad are those of the task.
static px_modes enter_modes(const px__task *task) {
  px_modes modes = task->modes, before = task->shared ? px_modes_get() : modes;
  modes.grad = task->create;
  if (task->shared)
    px_modes_set(modes);
  else
    px_grad_set_enabled(modes.grad);
  return before;
}

void px__run_item(px__item item) {
  px__running_item outer = here;
  here = (px__running_item){item.sequence, item.depth + 1, item.task->create};
  px__task *task_before = px__task_enter(item.task);
  px_modes before = enter_modes(item.task);
  bool passing = px__run_forward_swap(item.task->forward);
  bool failed = __atomic_load_n(&item.task->failed, __ATOMIC_RELAXED);
  bool on_devices = item.task->device >= 0;
  px__site_scope sites;
  if (on_devices) set_sites(&sites, item.task, &item.task->entries[item.entry]);
  if (!failed && run(item) != PX_OK) px__task_fail(item.task);
  if (on_devices) restore_sites(&sites, item.task);
  (void)px__run_forward_swap(passing);
  px_modes_set(before);
  here = outer;
  (void)px__task_enter(task_before);
  finish(item.task);
}
