// SPDX-License-Identifier: Apache-2.0
// Kernels of the simulated devices: the CPU kernels, executed when the stream reaches them.
//
// Each operand must be in live memory addressable by the device: its own, a peer's after
// enable_peer, or page-locked. Otherwise the kernel does not run and the device is broken from then
// on, as after an illegal access on a GPU.
#include "operands.h"
#include "sim/cost_model.h"

#include <stdlib.h>
#include <string.h>

px_kernel px__sim_find(const char *name) {
  const px_core *core = px__sim.core;
  for (int i = 0; i < core->host_kernel_count; i++)
    if (!strcmp(core->host_kernels[i].name, name)) return core->host_kernels[i].run;
  return NULL;
}

static size_t element_size(int dtype) {
  return dtype >= 0 && dtype < PX_DTYPE_COUNT ? px__dtypes[dtype].size : 0;
}

// Computes the byte range spanned by an operand. False if it is empty or immediate.
static bool extent(const px_operand *o, uintptr_t *low, size_t *bytes) {
  size_t element = element_size(o->dtype);
  int64_t first = 0, last = 0;
  if (o->immediate || !element || px_operand_numel(o) == 0) return false;
  for (int i = 0; i < o->ndim; i++) {
    int64_t reach = (o->sizes[i] - 1) * o->strides[i];
    first += reach < 0 ? reach : 0;
    last += reach > 0 ? reach : 0;
  }
  *low = (uintptr_t)o->data + (uintptr_t)(first * (int64_t)element);
  *bytes = (size_t)(last - first + 1) * element;
  return true;
}

static bool touches(const px__sim_task *task, uintptr_t low, uintptr_t high) {
  uintptr_t at;
  size_t bytes;
  for (int i = 0; i < task->launch->operand_count; i++)
    if (extent(&task->launch->operands[i], &at, &bytes) && at < high && at + bytes > low)
      return true;
  return false;
}

static const char *describe_address(int device, uintptr_t at) {
  int owner = px__sim_owner(at);
  if (owner < 0) return "pageable host memory";
  if (owner == device) return "not in one live allocation";
  return px__sim.device[device].enabled >> owner & 1 ? "not in one live allocation of its peer"
                                                     : "memory of a device without peer access";
}

// Computes the offset of each operand to its host-visible mapping. Breaks the device and returns
// false if one is inaccessible.
static bool locate(px__sim_stream *s, const px_launch *l, intptr_t *deltas) {
  bool good = true;
  px__sim_lock();
  for (int i = 0; good && i < l->operand_count; i++) {
    uintptr_t at;
    size_t bytes;
    if (!extent(&l->operands[i], &at, &bytes)) continue;
    good = px__sim_reach(s->device, at, bytes, &deltas[i]);
    if (!good && px__sim_break(s->device, PX__SIM_ILLEGAL,
                               "%s on device %d: operand %d, %zu bytes at %p, is %s",
                               l->op ? l->op : "a kernel", s->device, i, bytes, (void *)at,
                               describe_address(s->device, at)))
      px_kernel_fault(l, PX_FAULT_BROKEN, 0, 0, 0);
  }
  bool broken = px__sim.device[s->device].broken != 0;
  px__sim_unlock();
  return good && !broken;
}

// Launches of a graph read their seed and offset from device memory. Breaks the device and returns
// false if the memory was released.
static bool load_random_state(const px__sim_stream *s, px_launch *l) {
  intptr_t delta;
  uintptr_t at = (uintptr_t)l->random;
  px__sim_lock();
  bool good = px__sim_reach(s->device, at, 2 * sizeof *l->random, &delta);
  if (!good)
    px__sim_break(s->device, PX__SIM_ILLEGAL, "the random numbers of %s on device %d have no state",
                  l->op ? l->op : "a kernel", s->device);
  px__sim_unlock();
  if (!good) return false;
  const uint64_t *state = (const uint64_t *)(at + (uintptr_t)delta);
  l->seed = state[0];
  l->offset += state[1];
  return true;
}

// Room in a task for translated operands and for their distances, zero at first.
static px_operand *room_of(const px__sim_task *task) {
  return (px_operand *)(void *)(task->payload + px__sim.core->pack(task->launch, NULL, 0));
}

// Other threads read a running launch's operands to find tasks touching a range. The kernel
// therefore gets a translated copy.
static void run_launch(px__sim_stream *stream, px__sim_task *task) {
  px_launch launch = *task->launch;
  px_operand *operands = room_of(task);
  intptr_t *deltas = (intptr_t *)(operands + launch.operand_count);
  if (!locate(stream, &launch, deltas) || px__sim.skips) return;
  if (launch.random && !load_random_state(stream, &launch)) return;
  for (int i = 0; i < launch.operand_count; i++) {
    operands[i] = launch.operands[i];
    if (operands[i].immediate)
      operands[i].data = operands[i].value;
    else if (operands[i].data)
      operands[i].data = (void *)((uintptr_t)operands[i].data + (uintptr_t)deltas[i]);
  }
  launch.operands = operands;
  px_status status = launch.kernel(&launch);
  if (!status) return;
  if (status == PX_NOMEM && launch.fault) {
    px_kernel_fault(&launch, PX_FAULT_NOMEM, 0, 0, 0);
    return;
  }
  px__sim_lock();
  if (px__sim_break(stream->device, PX__SIM_LAUNCH, "%s on device %d failed with status %d",
                    launch.op ? launch.op : "?", stream->device, (int)status))
    px_kernel_fault(&launch, PX_FAULT_BROKEN, 0, 0, 0);
  px__sim_unlock();
}

// Emulates lazy loading: the first launch of a kernel on a device waits for the whole device,
// without interruption. If host memory runs out, the kernel stays unloaded.
static void load(int device, px_kernel kernel) {
  px__sim_device *d = &px__sim.device[device];
  px__sim_lock();
  int i = 0;
  while (i < d->loaded_count && d->loaded[i] != kernel) i++;
  if (i == d->loaded_count) {
    px__sim_waiter waiter = {.device = device};
    px__sim_await(&waiter);
    px_kernel *more = realloc(d->loaded, (size_t)(i + 1) * sizeof *more);
    if (more) d->loaded = more, more[d->loaded_count++] = kernel;
  }
  px__sim_unlock();
}

px_status px__sim_launch(void *stream, const px_launch *launch) {
  px__sim_stream *s = stream;
  PX__SIM_TRY(px__sim_check(s->device));
  if (px__sim.late) load(s->device, launch->kernel);
  size_t size = px__sim.core->pack(launch, NULL, 0);
  size_t room = (size_t)launch->operand_count * (sizeof(px_operand) + sizeof(intptr_t));
  px__sim_task *task = px__sim_task_new(PX__SIM_TASK_WORK, size + room);
  if (task) {
    px__sim.core->pack(launch, task->payload, size);
    task->launch = (px_launch *)task->payload;
    task->launch->mt19937 = NULL;
    task->launch->stream = s;
    task->cost = px__sim_launch_cost(launch), task->host = px__sim_host_cost(launch);
    task->run = run_launch, task->touches = touches;
  }
  return px__sim_issue(s, task, NULL);
}
