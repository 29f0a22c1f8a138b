// SPDX-License-Identifier: Apache-2.0
// NVML, the driver's management library: number of devices without initialising CUDA (an
// initialised CUDA breaks a later fork); processes holding device memory, for out-of-memory
// reports; utilisation, temperature and clocks. Loaded on first use.
#include "cuda/host/driver/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// Declarations of NVML's header.
typedef struct nvml_process {
  unsigned id;
  unsigned long long bytes;
  unsigned instance, compute_instance;
} nvml_process;
typedef struct nvml_rates {
  unsigned device, memory;
} nvml_rates;
typedef struct nvml_memory {
  unsigned long long total, free, used;
} nvml_memory;
enum { SUCCESS = 0, LIST = 64, SENSOR_OF_CHIP = 0, CLOCK_OF_PROCESSORS = 1 };

typedef struct nvml_api {
#define XX(name, parameters) int(*name) parameters;
#include "cuda/nvml.sym"
#undef XX
} nvml_api;
static nvml_api nvml;
static const px__cuda_symbol symbols[] = {
#define XX(name, parameters) {#name, offsetof(nvml_api, name)},
#include "cuda/nvml.sym"
#undef XX
};

// False for devices partitioned by MIG. Only the driver can enumerate their visible parts.
static bool is_unpartitioned(unsigned device) {
  void *handle;
  unsigned now = 0, later;
  if (nvml.nvmlDeviceGetHandleByIndex_v2(device, &handle) != SUCCESS) return false;
  return nvml.nvmlDeviceGetMigMode(handle, &now, &later) != SUCCESS || !now;
}

// Counts the devices if none is partitioned. Each query takes 100 us, so the result is cached.
static int count_devices(void) {
  unsigned count = 0;
  if (nvml.nvmlDeviceGetCount_v2(&count) != SUCCESS || !count) return PX_PROBE_UNKNOWN;
  for (unsigned i = 0; i < count; i++)
    if (!is_unpartitioned(i)) return PX_PROBE_UNKNOWN;
  return count > PX__CUDA_DEVICES ? PX__CUDA_DEVICES : (int)count;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static int present = PX_PROBE_UNKNOWN;
static void load(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  loaded = px__cuda_symbols(&nvml, library, symbols, sizeof symbols / sizeof *symbols) &&
           nvml.nvmlInit_v2() == SUCCESS;
  if (loaded) present = count_devices();
}

// True if CUDA_VISIBLE_DEVICES names a MIG partition: the only visible device then.
static bool is_part(const char *name) { return name && !strncmp(name, "MIG-", 4); }

int px__cuda_probe_forksafe(void) {
  const char *path, *visible;
  void *handle;
  if (px_env_PHLOX_CUDA_PATH(px__cuda_core, &path) != PX_OK) return PX_PROBE_UNKNOWN;
  if (px_env_CUDA_VISIBLE_DEVICES(px__cuda_core, &visible) != PX_OK) return PX_PROBE_UNKNOWN;
  if (!px__cuda_load()) return 0;
  pthread_once(&once, load);
  if (!loaded || !is_part(visible)) return present;
  return nvml.nvmlDeviceGetHandleByUUID(visible, &handle) == SUCCESS ? 1 : PX_PROBE_UNKNOWN;
}

bool px__cuda_match_forksafe(int device, const char *name, size_t length) {
  void *handle;
  char uuid[96];
  if (is_part(name)) return device == 0;
  return nvml.nvmlDeviceGetHandleByIndex_v2((unsigned)device, &handle) == SUCCESS &&
         nvml.nvmlDeviceGetUUID(handle, uuid, sizeof uuid) == SUCCESS &&
         !strncasecmp(uuid, name, length);
}

// Returns NVML's handle of a device, or NULL.
static void *handle_of(int device) {
  char bus_id[32];
  void *handle = NULL;
  px_device_properties p;
  pthread_once(&once, load);
  if (!loaded || px__cuda_properties(device, &p) != PX_OK) return NULL;
  snprintf(bus_id, sizeof bus_id, "%08x:%02x:%02x.0", (unsigned)p.pci_domain_id,
           (unsigned)p.pci_bus_id, (unsigned)p.pci_device_id);
  return nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, &handle) == SUCCESS ? handle : NULL;
}

static bool utilization(void *handle, bool of_memory, int64_t *out) {
  nvml_rates rates;
  if (nvml.nvmlDeviceGetUtilizationRates(handle, &rates) != SUCCESS) return false;
  *out = of_memory ? rates.memory : rates.device;
  return true;
}

bool px__cuda_metric(int device, px_metric figure, int64_t *out) {
  void *handle = handle_of(device);
  unsigned value = 0;
  nvml_memory memory = {0};
  int status = -1;
  if (!handle) return false;
  if (figure == PX_METRIC_UTILIZATION || figure == PX_METRIC_MEMORY_USAGE)
    return utilization(handle, figure == PX_METRIC_MEMORY_USAGE, out);
  if (figure == PX_METRIC_TEMPERATURE)
    status = nvml.nvmlDeviceGetTemperature(handle, SENSOR_OF_CHIP, &value);
  if (figure == PX_METRIC_POWER) status = nvml.nvmlDeviceGetPowerUsage(handle, &value);
  if (figure == PX_METRIC_CLOCK)
    status = nvml.nvmlDeviceGetClockInfo(handle, CLOCK_OF_PROCESSORS, &value);
  if (figure == PX_METRIC_MEMORY_USED) status = nvml.nvmlDeviceGetMemoryInfo(handle, &memory);
  *out = figure == PX_METRIC_MEMORY_USED ? (int64_t)memory.used : (int64_t)value;
  return status == SUCCESS;
}

int px__cuda_processes(int device, px_process *out, int capacity) {
  nvml_process rows[LIST];
  unsigned count = LIST;
  void *handle = handle_of(device);
  if (!handle || nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, rows) != SUCCESS)
    return 0;
  int listed = (int)count < capacity ? (int)count : capacity;
  for (int i = 0; i < listed; i++) out[i] = (px_process){rows[i].id, (size_t)rows[i].bytes};
  return listed;
}
