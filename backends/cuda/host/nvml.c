// SPDX-License-Identifier: Apache-2.0
// Which processes hold memory of a device, by NVML, the driver's library of nvidia-smi. It is
// loaded at the first question, which is asked when memory has run out.
#include "cuda/host/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// Of NVML's header.
typedef struct nvml_process {
  unsigned id;
  unsigned long long bytes;
  unsigned instance, compute_instance;
} nvml_process;
enum { SUCCESS = 0, LIST = 64 };

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

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static void load(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  loaded = px__cuda_symbols(&nvml, library, symbols, sizeof symbols / sizeof *symbols) &&
           nvml.nvmlInit_v2() == SUCCESS;
}

int px__cuda_processes(int device, px_process *out, int room) {
  nvml_process rows[LIST];
  unsigned count = LIST;
  char place[32];
  void *handle;
  px_device_properties p;
  pthread_once(&once, load);
  if (!loaded || px__cuda_properties(device, &p) != PX_OK) return 0;
  snprintf(place, sizeof place, "%08x:%02x:%02x.0", (unsigned)p.pci_domain_id,
           (unsigned)p.pci_bus_id, (unsigned)p.pci_device_id);
  if (nvml.nvmlDeviceGetHandleByPciBusId_v2(place, &handle) != SUCCESS ||
      nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, &count, rows) != SUCCESS)
    return 0;
  int listed = (int)count < room ? (int)count : room;
  for (int i = 0; i < listed; i++) out[i] = (px_process){rows[i].id, (size_t)rows[i].bytes};
  return listed;
}
