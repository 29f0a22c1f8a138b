// SPDX-License-Identifier: Apache-2.0
// Simulated accelerators: the backend table, the environment, devices and peer access.
//
// The environment is read when the first device is opened. The number of devices is read at each
// probe before that.
#include "sim/cost_model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PX_ENV(name, type, fallback, allowed, doc) \
  __attribute__((warn_unused_result)) static inline px_status px_env_##name(const px_core *core, \
                                                                            px_env_##type *out) { \
    return core->env(#name, out); \
  }
#include "phlox/tables/env_cluster.def"
#undef PX_ENV

// ---- the environment

// Parses one item of PHLOX_SIM_PEERS, "0-1" for both directions or "0>1" for one. Returns the rest
// of the text, NULL if invalid.
static const char *peer_item(const char *text) {
  char *end;
  long a = strtol(text, &end, 10);
  char sign = *end;
  if (end == text || (sign != '-' && sign != '>')) return NULL;
  text = end + 1;
  long b = strtol(text, &end, 10);
  bool good = end != text && (!*end || *end == ',') && a >= 0 && b >= 0 && a != b &&
              a < PX__SIM_DEVICES && b < PX__SIM_DEVICES;
  if (!good) return NULL;
  px__sim.device[a].peers |= 1ull << b;
  if (sign == '-') px__sim.device[b].peers |= 1ull << a;
  return *end ? end + 1 : end;
}

static px_status peers(void) {
  const char *text, *at;
  PX__SIM_TRY(px_env_PHLOX_SIM_PEERS(px__sim.core, &text));
  bool all = !strcmp(text, "all");
  for (int i = 0; i < PX__SIM_DEVICES; i++) px__sim.device[i].peers = all ? ~(1ull << i) : 0;
  if (all || !strcmp(text, "none")) return PX_OK;
  for (at = text; at && *at;) at = peer_item(at);
  if (!at)
    PX__SIM_FAIL(PX_VALUE, 0,
                 "PHLOX_SIM_PEERS must be all, none, or pairs such as 0-1,2-3 or 0>1, but is "
                 "'%.40s'",
                 text);
  return PX_OK;
}

static px_status device_count(int *out) {
  int64_t count;
  PX__SIM_TRY(px_env_PHLOX_SIM_DEVICES(px__sim.core, &count));
  *out = (int)count;
  return PX_OK;
}

static px_status loading(bool *late) {
  const char *choice;
  PX__SIM_TRY(px_env_PHLOX_SIM_LOADING(px__sim.core, &choice));
  *late = !strcmp(choice, "late");
  return PX_OK;
}

static px_status machine(void) {
  const char *path, *kernels;
  PX__SIM_TRY(px_env_PHLOX_SIM_KERNELS(px__sim.core, &kernels));
  px__sim.skips = !strcmp(kernels, "skip");
  PX__SIM_TRY(px_env_PHLOX_SIM_MACHINE(px__sim.core, &path));
  PX__SIM_TRY(px__sim_machine_read(path ? path : ""));
  if (px__sim_figure(PX__SIM_link) >= 1) px__sim.bandwidth = (int64_t)px__sim_figure(PX__SIM_link);
  if (px__sim_figure(PX__SIM_link_ns) > 0)
    px__sim.latency = (int64_t)px__sim_figure(PX__SIM_link_ns);
  return PX_OK;
}

px_status px__sim_configure(void) {
  const px_core *core = px__sim.core;
  int64_t memory, delay, seed, starve;
  const char *mode;
  if (px__sim.configured) return PX_OK;
  PX__SIM_TRY(device_count(&px__sim.devices));
  PX__SIM_TRY(px_env_PHLOX_SIM_MEMORY(core, &memory));
  PX__SIM_TRY(px_env_PHLOX_SIM_DELAY(core, &delay));
  PX__SIM_TRY(px_env_PHLOX_SIM_SEED(core, &seed));
  PX__SIM_TRY(px_env_PHLOX_SIM_STARVE(core, &starve));
  PX__SIM_TRY(px_env_PHLOX_SIM_POISON(core, &px__sim.poison));
  PX__SIM_TRY(px_env_PHLOX_SIM_MODE(core, &mode));
  PX__SIM_TRY(px_env_PHLOX_SIM_LINK_BANDWIDTH(core, &px__sim.bandwidth));
  PX__SIM_TRY(px_env_PHLOX_SIM_LINK_LATENCY(core, &px__sim.latency));
  PX__SIM_TRY(loading(&px__sim.late));
  PX__SIM_TRY(peers());
  PX__SIM_TRY(machine());
  px__sim.memory = (size_t)memory & ~(size_t)4095;
  px__sim.delay = (int)delay;
  px__sim.seed = (uint64_t)seed;
  px__sim.starve = (int)starve;
  px__sim.schedule = !strcmp(mode, "schedule");
  px__sim.configured = true;
  return PX_OK;
}

// ---- devices

static int probe(void) {
  px__sim_lock();
  int count = px__sim.devices;
  px_status status = px__sim.configured ? PX_OK : device_count(&count);
  px__sim_unlock();
  return status == PX_OK ? count : PX_PROBE_ERROR;
}

static px_status open_device(int device) {
  px__sim_lock();
  px_status status = px__sim_configure();
  bool inside = device >= 0 && device < px__sim.devices;
  bool open = inside && px__sim.device[device].open;
  px__sim_unlock();
  PX__SIM_TRY(status);
  if (!inside) return px__sim_fail(PX__SIM_ORDINAL);
  return open ? PX_OK : px__sim_map(device);
}

static px_status properties(int device, px_device_properties *out) {
  px__sim_lock();
  px_status status = px__sim_configure();
  px__sim_unlock();
  PX__SIM_TRY(status);
  *out = (px_device_properties){.name = "Phlox simulated device",
                                .major = 9,
                                .total_memory = px__sim.memory,
                                .multi_processor_count = 132,
                                .max_threads_per_multi_processor = 2048,
                                .l2_cache_size = (size_t)60 << 20,
                                .uuid = "phlox sim dev ",
                                .pci_bus_id = device + 1,
                                .simulated = true};
  out->uuid[15] = (unsigned char)device;
  return PX_OK;
}

static px_fault_slot *fault_slot(int device) { return &px__sim.device[device].slot; }

static bool can_access_peer(int from, int to) {
  px__sim_lock();
  bool inside = px__sim_configure() == PX_OK && from >= 0 && to >= 0 && from < px__sim.devices &&
                to < px__sim.devices;
  bool can = inside && from != to && (px__sim.device[from].peers >> to & 1);
  px__sim_unlock();
  return can;
}

static px_status enable_peer(int from, int to) {
  if (!can_access_peer(from, to)) return px__sim_fail(PX__SIM_PEER);
  px__sim_lock();
  px__sim.device[from].enabled |= 1ull << to;
  px__sim_unlock();
  return PX_OK;
}

static bool virtual_clock(int device, void *stream, void *event, int64_t *out) {
  px__sim_lock();
  bool is_virtual = px__sim_configure() == PX_OK && px__sim.schedule;
  *out = px__sim_schedule_clock(device, stream, event);
  px__sim_unlock();
  return is_virtual;
}

static bool loads_late(void) {
  bool late;
  return loading(&late) == PX_OK && late;  // opening the first device reports errors
}

static int64_t library(const char *name) { return 0; }

// A simulated device is used by this process alone.
static int processes(int device, px_process *out, int capacity) {
  size_t unused, total;
  if (capacity < 1 || px__sim_memory_info(device, &unused, &total) != PX_OK) return 0;
  *out = (px_process){getpid(), total - unused};
  return 1;
}

static const px_backend table = {
    .size = sizeof(px_backend),
    .abi = PX_BACKEND_ABI,
    .name = "sim",
    .type = PX_CUDA,
    .probe = probe,
    .open = open_device,
    .properties = properties,
    .memory_info = px__sim_memory_info,
    .processes = processes,
    .synchronize = px__sim_synchronize,
    .fault_slot = fault_slot,
    .alloc = px__sim_alloc,
    .release = px__sim_release,
    .host_alloc = px__sim_host_alloc,
    .host_release = px__sim_host_release,
    .can_access_peer = can_access_peer,
    .enable_peer = enable_peer,
    .stream_new = px__sim_stream_new,
    .stream_release = px__sim_stream_release,
    .priority_range = px__sim_priority_range,
    .stream_query = px__sim_stream_query,
    .stream_synchronize = px__sim_stream_synchronize,
    .stream_wait = px__sim_stream_wait,
    .copy = px__sim_copy,
    .fill = px__sim_fill,
    .host_call = px__sim_host_call,
    .event_new = px__sim_event_new,
    .event_release = px__sim_event_release,
    .event_record = px__sim_event_record,
    .event_query = px__sim_event_query,
    .event_synchronize = px__sim_event_synchronize,
    .event_elapsed = px__sim_event_elapsed,
    .find = px__sim_find,
    .launch = px__sim_launch,
    .loads_late = loads_late,
    .peek = px__sim_peek,
    .library = library,
    .runs_host_kernels = true,
    .memory_share = px__sim_memory_share,
    .memory_open = px__sim_memory_open,
    .memory_close = px__sim_memory_close,
    .event_share = px__sim_event_share,
    .event_open = px__sim_event_open,
    .stream_adopt = px__sim_stream_adopt,
    .capture_begin = px__sim_capture_begin,
    .capture_end = px__sim_capture_end,
    .graph_launch = px__sim_graph_launch,
    .graph_release = px__sim_graph_release,
    .capture_keep = px__sim_capture_keep,
    .graph_make = px__sim_graph_make,
    .graph_print = px__sim_graph_print,
    .graph_drop = px__sim_graph_release,
    .page_size = px__sim_page_size,
    .range_new = px__sim_range_new,
    .pages_map = px__sim_pages_map,
    .pages_unmap = px__sim_pages_unmap,
    .shares_pages = true,
    .clock = virtual_clock,
    .memory_device = px__sim_memory_device,
    .host_register = px__sim_host_register,
    .host_unregister = px__sim_host_unregister,
};

PX_API const px_backend *px_backend_entry(const px_core *core);
const px_backend *px_backend_entry(const px_core *core) {
  if (core->abi != PX_BACKEND_ABI || core->size < sizeof *core) return NULL;
  px__sim.core = core;
  return &table;
}
