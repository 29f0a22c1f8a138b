// SPDX-License-Identifier: Apache-2.0
// Properties of a device, by the driver.
#include "cuda/host/driver/cuda.h"

#include <string.h>

static px_status attribute(int *out, CUdevice_attribute which, CUdevice device) {
  PX_CUDA_TRY(cuDeviceGetAttribute(out, which, device));
  return PX_OK;
}

px_status px__cuda_measure(px__cuda_device *d) {
  PX_CUDA_PASS(attribute(&d->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->handle));
  PX_CUDA_PASS(
      attribute(&d->threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, d->handle));
  PX_CUDA_PASS(
      attribute(&d->shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, d->handle));
  PX_CUDA_PASS(attribute(&d->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->handle));
  return attribute(&d->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->handle);
}

px_status px__cuda_properties(int device, px_device_properties *out) {
  CUdevice handle;
  CUuuid uuid;
  int cache = 0;
  *out = (px_device_properties){0};
  PX_CUDA_TRY(cuDeviceGet(&handle, device));
  px__cuda_device d = {.handle = handle};
  PX_CUDA_PASS(px__cuda_measure(&d));
  PX_CUDA_TRY(cuDeviceGetName(out->name, sizeof out->name, handle));
  PX_CUDA_TRY(cuDeviceTotalMem(&out->total_memory, handle));
  PX_CUDA_TRY(cuDeviceGetUuid(&uuid, handle));
  PX_CUDA_PASS(attribute(&cache, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, handle));
  PX_CUDA_PASS(attribute(&out->pci_domain_id, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, handle));
  PX_CUDA_PASS(attribute(&out->pci_bus_id, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, handle));
  PX_CUDA_PASS(attribute(&out->pci_device_id, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, handle));
  memcpy(out->uuid, uuid.bytes, sizeof out->uuid);
  out->major = d.major, out->minor = d.minor;
  out->multi_processor_count = d.multiprocessors;
  out->max_threads_per_multi_processor = d.threads;
  out->l2_cache_size = (size_t)cache;
  return PX_OK;
}
