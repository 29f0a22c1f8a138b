// SPDX-License-Identifier: Apache-2.0
// Launches: a function call on the CPU, work of the current stream on a device.
#include "device/work/work.h"

// ---- kernels
px_status px__kernels_ready(px_device_type type) {
  if (type == PX_CUDA) return px_device_init();
  PX_TRY(px__threads_check());
  PX_TRY(px__processor_check());
  return px__env_check();
}

px_kernel px__kernel_find(px_device_type type, const char *name) {
  if (type == PX_CPU) return px__host_kernel(name);
  if (type == PX_META) return px__host_kernel(name) ? px__meta_launch : NULL;
  if (px_device_init() != PX_OK) return NULL;
  return px__rt.backend->find(name);
}

px_kernel px__named_kernel_find(px__named_kernel *kernel, px_device_type type) {
  px_kernel k = px__kernel_find(type, kernel->name);
  if (k) __atomic_store_n(&kernel->found[type], k, __ATOMIC_RELAXED);
  return k;
}

bool px__runs_host_kernels(px_device_type type) {
  if (type != PX_CUDA) return true;
  if (px_device_init() != PX_OK) return false;
  return PX__BACKEND_HAS(px__rt.backend, runs_host_kernels);
}

bool px__recurrent_plan(px_device device, const px_recurrent_net *net, px_recurrent_sizes *room,
                        int64_t *places) {
  if (device.type != PX_CUDA || !PX__BACKEND_HAS(px__rt.backend, recurrent_plan)) return false;
  return px__rt.backend->recurrent_plan(px__rt.devices[device.index]->physical, net, room, places);
}

const char *px__attention_refusal(px_device device, px_attention_call *call) {
  if (px__runs_host_kernels((px_device_type)device.type)) return NULL;
  if (!PX__BACKEND_HAS(px__rt.backend, attention_refusal)) return "GPUs have no kernel for it.";
  return px__rt.backend->attention_refusal(px__rt.devices[device.index]->physical, call);
}

// ---- the CPU
static _Thread_local px_fault_slot own_slot;

static px_status host_accesses(const char *op, const px_access *accesses, int count,
                               bool *irregular) {
  for (int i = 0; i < count; i++) {
    px_allocation *allocation = accesses[i].allocation;
    if (!allocation || !__atomic_load_n(&allocation->pending, __ATOMIC_ACQUIRE)) continue;
    PX_TRY(px__allocation_host_access(op, &accesses[i]));
    *irregular |= allocation->irregular;
  }
  return PX_OK;
}

// An interrupted kernel's findings are no fault. Out of line, to spare the launch's registers.
static __attribute__((noinline)) px_status end_interrupted(px_status status) {
  own_slot = (px_fault_slot){0};
  return status;
}

static inline px_status launch_host(px_launch *launch, const px_access *accesses, int count) {
  bool irregular = false;
  PX_TRY(host_accesses(launch->op, accesses, count, &irregular));
  PX_CHECK(!px__fault(PX__FAULT_LAUNCH), PX_ACCELERATOR, "%s could not be launched (injected)",
           launch->op);
  launch->id = 1;
  launch->fault = &own_slot;
  launch->device = -1;
  launch->stream = NULL;
  px_status status =
      PX_UNLIKELY(irregular) ? px__launch_aligned(launch, accesses, count) : launch->kernel(launch);
  px_status stopped = px__interrupted_take();
  if (PX_UNLIKELY(stopped != PX_OK)) return end_interrupted(stopped);
  if (PX_UNLIKELY(__atomic_load_n(&launch->fault->launch, __ATOMIC_RELAXED) != 0))
    return px__fault_error(launch->fault);
  return status;
}

// ---- devices
// Replaces a kernel to inject a fault, on any backend: reports it from the host.
static px_status inject_fault(const px_launch *launch) {
  px_kernel_fault(launch, PX_FAULT_INJECTED, 0, 0, 0);
  return PX_OK;
}

static px_status pass_fault_points(px_launch *launch) {
  PX_CHECK(!px__fault(PX__FAULT_LAUNCH), PX_ACCELERATOR, "%s could not be launched (injected)",
           launch->op);
  if (px__fault(PX__FAULT_KERNEL)) launch->kernel = inject_fault;
  return PX_OK;
}

static px_status issue(px__device *d, px_stream *stream, px_launch *launch,
                       const px_access *accesses, int count) {
  px__work work;
  PX_TRY(px__work_begin(&work, stream, launch->op, accesses, count));
  launch->id = work.id;
  px__launch_bind(launch, d, stream);
  px__scratch_here.device = d;
  px_status status = px__rt.backend->launch(stream->native, launch);
  px__scratch_here.device = NULL;
  px__work_end(&work, false);
  return px__launch_finish(d, status);
}

// ---- lazy loading of code
// Returns a launch's kind: a hash of its kernel and dtypes, by which code is loaded. Never 0.
static uint64_t kind_of(const px_launch *launch) {
  uint64_t kind = (uintptr_t)launch->kernel;
  for (int i = 0; i < launch->operand_count; i++)
    kind = (kind + (uint64_t)launch->operands[i].dtype + 1) * 0x9e3779b97f4a7c15u;
  return kind | 1;
}
// Returns the slot of the kind in the device's table, or a free one.
static uint64_t *slot_of(px__device *d, uint64_t kind) {
  for (uint64_t at = kind >> 32;; at++) {
    uint64_t *slot = &d->launch_kinds[at % PX__LAUNCH_KINDS];
    uint64_t found = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (found == kind || !found) return slot;
  }
}

// The first launch of a kind waits in the driver for queued work, with locks held. Wait here
// before, where the program can interrupt it.
static px_status wait_before_loading(px__device *d, px_stream *stream, const px_launch *launch) {
  uint64_t kind = kind_of(launch);
  if (PX_LIKELY(__atomic_load_n(slot_of(d, kind), __ATOMIC_RELAXED))) return PX_OK;
  // The table is half full: stop tracking kinds.
  if (__atomic_load_n(&d->launch_kind_count, __ATOMIC_RELAXED) >= PX__LAUNCH_KINDS / 2)
    return PX_OK;
  if (px_interrupt_wanted())
    PX_TRY(px__broken_note(d, px__rt.backend->stream_synchronize(stream->native)));
  px__device_lock(d);
  uint64_t *slot = slot_of(d, kind);
  if (!*slot) __atomic_add_fetch(&d->launch_kind_count, 1, __ATOMIC_RELAXED);
  __atomic_store_n(slot, kind, __ATOMIC_RELAXED);
  px__device_unlock(d);
  return PX_OK;
}

// ---- operands on peers
// Returns a bit mask of the other devices with operands of the launch.
static uint64_t peers_of(const px__device *d, const px_access *accesses, int count) {
  uint64_t peers = 0;
  for (int i = 0; i < count; i++) {
    const px_allocation *allocation = accesses[i].allocation;
    if (allocation && allocation->device.type == PX_CUDA && allocation->device.index != d->index)
      peers |= (uint64_t)1 << allocation->device.index;
  }
  return peers;
}

static px_stream *peer_stream(uint64_t peers) {
  return px__stream_now(px__rt.devices[__builtin_ctzll(peers)]);
}

// Orders a peer's stream after an issued launch. If that fails, waits for the launch instead.
static px_status order_peer(px_stream *peer, px_stream *stream) {
  if (px__stream_order(peer, stream) == PX_OK) return PX_OK;
  px_error_clear();
  px_interrupt_hold(true);
  px_status status = px__stream_wait_all(stream);
  px_interrupt_hold(false);
  return status;
}

// Orders the launch after the current streams of all devices with operands, and these after the
// launch, as if each op were executed when called.
static px_status issue_with_peers(px__device *d, px_stream *stream, px_launch *launch,
                                  const px_access *accesses, int count) {
  uint64_t peers = peers_of(d, accesses, count);
  for (uint64_t left = peers; left; left &= left - 1)
    PX_TRY(px__stream_order(stream, peer_stream(left)));
  PX_TRY(issue(d, stream, launch, accesses, count));
  px_status status = PX_OK;
  for (uint64_t left = peers; left && status == PX_OK; left &= left - 1)
    status = order_peer(peer_stream(left), stream);
  return status;
}

static px_status before_writes(const px_access *accesses, int count) {
  for (int i = 0; i < count; i++)
    if (accesses[i].write && accesses[i].allocation)
      PX_TRY(px__allocation_before_write(accesses[i].allocation));
  return PX_OK;
}

static px_status check_all_bounds(const px_access *accesses, int count) {
  for (int i = 0; i < count; i++)
    if (accesses[i].allocation)
      PX_TRY(px__allocation_check_bounds(accesses[i].allocation, accesses[i].end));
  return PX_OK;
}

px_status px__launch(px_device device, px_launch *launch, const px_access *accesses,
                     int access_count) {
  if (device.type == PX_CPU) return launch_host(launch, accesses, access_count);
  if (device.type == PX_META) return launch->kernel(launch);
  if (px__rt.forked) return px__error_cuda(3);
  if (PX_UNLIKELY(__atomic_load_n(&px__shrunk_count, __ATOMIC_RELAXED) != 0))
    PX_TRY(check_all_bounds(accesses, access_count));
  PX_TRY(before_writes(accesses, access_count));
  px__device *d;
  PX_TRY(px__device_get(&d, device.index));
  if (px__faults()) PX_TRY(pass_fault_points(launch));
  px_stream *stream = px__stream_now(d);
  if (px__rt.loads_late && !px__capture_of(stream)) PX_TRY(wait_before_loading(d, stream, launch));
  bool peers_enabled = __atomic_load_n(&px__rt.peers_enabled, __ATOMIC_RELAXED);
  if (PX_UNLIKELY(px__launch_batching != NULL) && !px__stream_blocks(stream) && !px__profile_on() &&
      !(peers_enabled && peers_of(d, accesses, access_count))) {
    bool taken;
    PX_TRY(px__launch_batch_add(&taken, d, stream, launch, accesses, access_count));
    if (taken) return PX_OK;
  }
  PX_TRY((PX_UNLIKELY(peers_enabled) ? issue_with_peers : issue)(d, stream, launch, accesses,
                                                                 access_count));
  return px__stream_blocks(stream) ? px__stream_finish(stream) : PX_OK;
}
