// SPDX-License-Identifier: Apache-2.0
// Devices: their names, which is current, what they can do.
//
// The device type `cuda` is served by the cuda backend where a driver and a GPU are there, or by
// the sim backend where PHLOX_SIM_DEVICES=N asks for it. Nothing touches a driver before the first
// call that needs a device. The current device is per thread and starts at 0.
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum px_device_type { PX_CPU, PX_CUDA, PX_DEVICE_TYPES } px_device_type;
// index -1 means "no index": the current device of the type.
typedef struct px_device {
  int16_t type, index;
} px_device;
#ifdef __cplusplus
#define PX_DEVICE_NONE (px_device{-1, -1})  // "not given"
#else
#define PX_DEVICE_NONE ((px_device){-1, -1})
#endif
#define PX_DEVICE_TEXT 24  // room for the text of any device
static inline px_device px_cpu(void) {
  px_device device = {PX_CPU, -1};
  return device;
}
// An index that no device can have stays one.
static inline px_device px_cuda(int index) {
  px_device device = {PX_CUDA, -1};
  device.index = (int16_t)(index > INT16_MAX ? INT16_MAX : index < -1 ? -1 : index);
  return device;
}
static inline bool px_device_equal(px_device a, px_device b) {
  return a.type == b.type && a.index == b.index;
}

// Parses "cpu", "cuda", "cuda:1" (blanks around the index allowed). PX_RUNTIME with PyTorch's texts
// otherwise.
PX_CALL px_device_parse(px_device *out, const char *text);
// Writes "cuda:1" or "cpu"; returns `text`.
PX_API const char *px_device_format(px_device device, char text[PX_DEVICE_TEXT]);
// "cpu" or "cuda".
PX_API const char *px_device_type_name(int type);
// Number of usable devices; never fails, 0 where there is none (1 for the CPU). Creates no context.
PX_API int px_device_count(px_device_type type);
// Whether type `cuda` has been initialised, and which backend serves it ("sim", "cuda" or "" where
// there is none).
PX_API bool px_device_initialized(void);
PX_API const char *px_device_backend(void);
// Initialises type `cuda`. PX_RUNTIME "No CUDA GPUs are available", or the fork text in a forked
// child.
PX_CALL px_device_init(void);
// The current device of the calling thread (initialises).
PX_CALL px_device_current(int *index);
// The index without initialising; for printing and scopes.
PX_API int px_device_peek(void);
// Makes `index` current; negative does nothing. PX_ACCELERATOR 101 if out of range, the current
// device then unchanged.
PX_CALL px_device_set(int index);
// Fills in the index of an index-less cuda device and checks the range; drops the index of cpu.
PX_CALL px_device_resolve(px_device *out, px_device device);
// The device that factories use where none is given: cpu, unless set. PX_DEVICE_NONE resets.
PX_API px_device px_device_default(void);
PX_CALL px_device_set_default(px_device device);
// Where tensors print without `device=`: cpu, unless set; cuda without an index is the current
// device. Setting it (PX_DEVICE_NONE resets) makes it the default device too.
PX_API px_device px_device_home(void);
PX_CALL px_device_set_home(px_device device);
// Waits until all work on the device is done; raises what its kernels reported.
PX_CALL px_device_synchronize(int index);

typedef struct px_device_properties {
  char name[256];
  int major, minor;  // compute capability
  size_t total_memory;
  int multi_processor_count;
  int max_threads_per_multi_processor;
  size_t l2_cache_size;
  unsigned char uuid[16];
  int pci_domain_id, pci_bus_id, pci_device_id;
  bool simulated;
} px_device_properties;
// PX_ASSERTION "Invalid device id" if out of range.
PX_CALL px_device_get_properties(px_device_properties *out, int index);
// Free and total bytes of the device's memory.
PX_CALL px_device_memory(size_t *free, size_t *total, int index);
// Whether `from` can address memory of `to`; (a, a) is false. PX_ASSERTION for a bad index.
PX_CALL px_device_can_access_peer(bool *out, int from, int to);
// Enables it, for this ordered pair. PX_RUNTIME where it is not possible. Enabling twice is fine.
PX_CALL px_device_enable_peer(int from, int to);
PX_API bool px_device_peer_enabled(int from, int to);

// How the libraries of a backend may compute: XX(name, module, attribute, default), torch.backends'
// names. MATMUL_TF32 is 0 "highest", 1 "high", 2 "medium", the precisions of products of float32;
// the others are 0 or 1.
#define PX_SETTING_MAP(XX) \
  XX(MATMUL_TF32, "cuda.matmul", "allow_tf32", 0) \
  XX(MATMUL_FP16_REDUCTION, "cuda.matmul", "allow_fp16_reduced_precision_reduction", 1) \
  XX(MATMUL_BF16_REDUCTION, "cuda.matmul", "allow_bf16_reduced_precision_reduction", 1) \
  XX(CUDNN_ENABLED, "cudnn", "enabled", 1) \
  XX(CUDNN_BENCHMARK, "cudnn", "benchmark", 0) \
  XX(CUDNN_DETERMINISTIC, "cudnn", "deterministic", 0) \
  XX(CUDNN_TF32, "cudnn", "allow_tf32", 1) \
  XX(MKLDNN_ENABLED, "mkldnn", "enabled", 1)
typedef enum px_setting {
#define XX(name, module, attribute, value) PX_SETTING_##name,
  PX_SETTING_MAP(XX)
#undef XX
      PX_SETTING_COUNT
} px_setting;
// Settings are of the process, and hold for what is called from then on. What is no setting is 0.
PX_API int px_setting_get(px_setting setting);
PX_API void px_setting_set(px_setting setting, int value);

// The version of a library that the backend of type `cuda` found ("cudnn": 91900 is 9.19.0); 0
// where there is none, or the backend does not know it. Loads the library, creates no context.
PX_API int64_t px_device_library(const char *name);

#ifdef __cplusplus
}
#endif
