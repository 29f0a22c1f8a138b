// SPDX-License-Identifier: Apache-2.0
// Copies and fills of the simulated devices.
//
// Rule C6: copies from pageable host memory stage a small source at the call and block for a large
// one, as drivers do. Copies to pageable memory block. Copies with page-locked memory are
// asynchronous. A call fails if its bytes are not live memory of the device. Copies between devices
// without peer access go through the host and take longer.
#include "sim/cost_model.h"

#include <string.h>

enum { STAGED = 64 << 10 };  // bytes: the largest source that is staged instead of awaited

static bool reaches(int from, const void *at, size_t bytes) {
  intptr_t delta;
  px__sim_lock();
  bool good =
      px__sim_owner((uintptr_t)at) >= 0 && px__sim_reach(from, (uintptr_t)at, bytes, &delta);
  px__sim_unlock();
  return good;
}

static px_status check_side(int device, const void *at, size_t bytes) {
  if (reaches(device, at, bytes)) return PX_OK;
  PX__SIM_FAIL(PX_VALUE, PX__SIM_INVALID,
               "CUDA error: invalid argument\n%zu bytes at %p are not memory that device %d may "
               "address",
               bytes, at, device);
}

static px_status check_copy(const px__sim_stream *s, const px_copy *c) {
  bool within = c->kind == PX_COPY_DEVICE_TO_DEVICE;
  if (c->kind != PX_COPY_HOST_TO_DEVICE)
    PX__SIM_TRY(check_side(within ? s->device : c->from_device, c->from, c->bytes));
  if (c->kind != PX_COPY_DEVICE_TO_HOST)
    PX__SIM_TRY(check_side(within ? s->device : c->to_device, c->to, c->bytes));
  return PX_OK;
}

// ---- execution

// Translates a task's address to the host-visible mapping. The ranges were checked at the call, and
// memory is not released while a task uses it.
static char *translate(const char *at) {
  px__sim_lock();
  int owner = px__sim_owner((uintptr_t)at);
  intptr_t delta = owner < 0 ? 0 : px__sim.device[owner].delta;
  px__sim_unlock();
  return (char *)((uintptr_t)at + (uintptr_t)delta);
}

// True if one side of a replayed copy is still live; it was checked only at capture.
static bool is_live(const char *at, size_t bytes) {
  intptr_t delta;
  return px__sim_reach(-1, (uintptr_t)at, bytes, &delta);
}

// False if the device is broken. For tasks of a graph (`node`), breaks the device if the memory was
// released since capture.
static bool may_execute(const px__sim_stream *stream, const px__sim_task *task) {
  px__sim_lock();
  bool node = task != stream->head, here = is_live(task->to, task->bytes);
  if (task->from && here) here = is_live(task->from, task->bytes);
  if (node && !here)
    px__sim_break(stream->device, PX__SIM_ILLEGAL,
                  "a replay of a graph on device %d copies or fills %zu bytes at %p, whose "
                  "memory was released",
                  stream->device, task->bytes, (void *)task->to);
  bool good = !px__sim.device[stream->device].broken;
  px__sim_unlock();
  return good;
}

static void run_copy(px__sim_stream *stream, px__sim_task *task) {
  if (may_execute(stream, task)) memmove(translate(task->to), translate(task->from), task->bytes);
}

static void run_fill(px__sim_stream *stream, px__sim_task *task) {
  if (may_execute(stream, task)) memset(translate(task->to), task->value, task->bytes);
}

static bool touches(const px__sim_task *task, uintptr_t low, uintptr_t high) {
  uintptr_t to = (uintptr_t)task->to, from = (uintptr_t)task->from;
  return (to && to < high && to + task->bytes > low) ||
         (from && from < high && from + task->bytes > low);
}

// ---- calls

static bool takes_detour(const px_copy *c) {
  return c->kind == PX_COPY_PEER && !(px__sim.device[c->from_device].peers >> c->to_device & 1);
}

px_status px__sim_copy(void *stream, const px_copy *copy) {
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  if (!copy->bytes) return PX_OK;
  PX__SIM_TRY(check_copy(s, copy));
  bool to_host = copy->kind == PX_COPY_DEVICE_TO_HOST;
  bool pageable = !copy->pinned && (to_host || copy->kind == PX_COPY_HOST_TO_DEVICE);
  bool staged = pageable && !to_host && copy->bytes <= STAGED;
  px__sim_lock();
  bool captured = s->capture != NULL;
  px__sim_unlock();
  if (captured && pageable) return px__sim_fail(PX__SIM_CAPTURING);
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_WORK, staged ? copy->bytes : 0);
  if (task) {
    task->run = run_copy, task->touches = touches;
    task->to = copy->to, task->from = copy->from, task->bytes = copy->bytes;
    task->cost = px__sim_copy_cost(copy, takes_detour(copy));
  }
  if (task && staged) task->from = memcpy(task->payload, copy->from, copy->bytes);
  uint64_t sequence;
  PX__SIM_TRY(px__sim_issue(s, task, &sequence));
  if (!pageable || staged) return PX_OK;
  px__sim_waiter waiter = {.stream = s, .device = -1, .sequence = sequence};
  px__sim_lock();
  px__sim_await(&waiter);
  px__sim_unlock();
  return px__sim_check(s->device);
}

px_status px__sim_fill(void *stream, void *memory, int value, size_t bytes) {
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  if (!bytes) return PX_OK;
  PX__SIM_TRY(check_side(s->device, memory, bytes));
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_WORK, 0);
  if (task) {
    task->run = run_fill, task->touches = touches;
    task->to = memory, task->value = value, task->bytes = bytes;
    task->cost = px__sim_fill_cost(bytes);
  }
  return px__sim_issue(s, task, NULL);
}
