// SPDX-License-Identifier: Apache-2.0
// Launches: on the CPU a call, on devices work of the current stream; and what kernels reported,
// raised with the op and the line that launched it.
#include "device/state.h"

#include <stdio.h>

static const struct {
  px_status status;
  const char *text;
} faults[] = {{PX_OK, ""},
#define XX(name, status, text) {PX_##status, text},
              PX_FAULT_MAP(XX)
#undef XX
};

_Thread_local const char *px__caller;

px_status px__fault_error(px_fault_slot *slot) {
  int64_t code = __atomic_load_n(&slot->code, __ATOMIC_ACQUIRE);
  bool known = code > 0 && code < PX_COUNT_OF(faults);
  long long a = slot->a, b = slot->b, c = slot->c;
  slot->code = 0;
  __atomic_store_n(&slot->launch, 0, __ATOMIC_RELEASE);
  if (!known) PX_FAIL(PX_BUG, "a kernel reported an unknown fault %lld", (long long)code);
  char text[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  snprintf(text, sizeof text, faults[code].text, a, b, c);
#pragma GCC diagnostic pop
  return px_error_set(faults[code].status, 0, __FILE__, __LINE__, __func__, "%s", text);
}

px_status px__fault_raise(px__device *d) {
  px_fault_slot *slot = d->slot;
  uint64_t id = slot ? __atomic_load_n(&slot->launch, __ATOMIC_ACQUIRE) : 0;
  if (PX_LIKELY(id == 0) || !__atomic_load_n(&slot->code, __ATOMIC_ACQUIRE)) return PX_OK;
  px__record record;
  bool found = px__record_find(&record, d, id);
  px_status status = px__fault_error(slot);
  if (!found) return status;
  char stream[64];
  px__stream_text(record.stream, stream);
  if (record.caller && strcmp(record.caller, record.op))
    PX_NOTE("\nIt was reported by %s (kernel %s) on %s", record.caller, record.op, stream);
  else
    PX_NOTE("\nIt was reported by %s on %s", record.op, stream);
  if (record.site.file) PX_NOTE(", launched at %s:%d", record.site.file, record.site.line);
  return status;
}

// ---- the CPU
static _Thread_local px_fault_slot own_slot;

static px_status host_accesses(const px_access *accesses, int count) {
  for (int i = 0; i < count; i++)
    if (accesses[i].block && __atomic_load_n(&accesses[i].block->pending, __ATOMIC_ACQUIRE))
      PX_TRY(px__block_host_access(accesses[i].block, accesses[i].write));
  return PX_OK;
}

static inline px_status launch_host(px_launch *launch, const px_access *accesses, int count) {
  PX_TRY(host_accesses(accesses, count));
  PX_CHECK(!px__fault(PX__FAULT_LAUNCH), PX_ACCELERATOR, "%s could not be launched (injected)",
           launch->op);
  launch->id = 1;
  launch->fault = &own_slot;
  launch->device = -1;
  launch->stream = NULL;
  px_status status = launch->kernel(launch);
  if (PX_UNLIKELY(__atomic_load_n(&own_slot.launch, __ATOMIC_RELAXED) != 0))
    return px__fault_error(&own_slot);
  return status;
}

// ---- devices
// The launch that this thread is issuing, and the scratch memory that it took.
static _Thread_local struct {
  px__device *device;
  px_block *scratch;  // linked by `uses`, which scratch has none of
} inside;

bool px__launch_inside(void) { return inside.device != NULL; }

void *px__launch_scratch(const px_launch *launch, size_t bytes) {
  px_block *block = NULL;
  if (!inside.device || px__cache_new(&block, bytes, inside.device) != PX_OK) return NULL;
  px__block_of(block)->uses = (px__use *)inside.scratch;
  inside.scratch = block;
  return block->data;
}

static void drop_scratch(void) {
  while (inside.scratch) {
    px_block *block = inside.scratch;
    inside.scratch = (px_block *)px__block_of(block)->uses;
    px__block_of(block)->uses = NULL;
    px__block_free(block);
  }
}

static px_status issue(px__device *d, px_stream *stream, px_launch *launch,
                       const px_access *accesses, int count) {
  px__work work;
  PX_TRY(px__work_begin(&work, stream, launch->op, accesses, count));
  launch->id = work.id;
  launch->fault = d->slot;
  launch->device = d->physical;
  launch->stream = stream->native;
  inside.device = d;
  px_status status = px__rt.backend->launch(stream->native, launch);
  drop_scratch();
  inside.device = NULL;
  px__work_end(&work, false);
  return status;
}

px_status px__launch(px_device device, px_launch *launch, const px_access *accesses,
                     int access_count) {
  if (device.type == PX_CPU) return launch_host(launch, accesses, access_count);
  if (px__rt.forked) return px__error_cuda(3);
  px__device *d;
  PX_TRY(px__device_get(&d, device.index));
  PX_CHECK(!px__fault(PX__FAULT_LAUNCH), PX_ACCELERATOR, "%s could not be launched (injected)",
           launch->op);
  px_stream *stream = px__stream_now(d);
  PX_TRY(issue(d, stream, launch, accesses, access_count));
  return PX_UNLIKELY(px__rt.blocking) ? px__stream_finish(stream) : PX_OK;
}
