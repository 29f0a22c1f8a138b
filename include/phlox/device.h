// SPDX-License-Identifier: Apache-2.0
// Devices: their names, the current one, and their properties.
//
// Devices of type `cuda` come from the cuda backend if there are a driver and a GPU, or from the
// sim backend with PHLOX_SIM_DEVICES=N. No driver is loaded before the first call needing a device.
// Each thread has its own current device, 0 at the start.
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

// Tensors of type meta have sizes, strides and a dtype but no memory. Ops on them check their
// arguments and return results of the right shape, without computing.
typedef enum px_device_type { PX_CPU, PX_CUDA, PX_META, PX_DEVICE_TYPES } px_device_type;
// Index -1 means "no index": the current device of the type.
typedef struct px_device {
  int16_t type, index;
} px_device;
#ifdef __cplusplus
#define PX_DEVICE_NONE (px_device{-1, -1})  // "not given"
#else
#define PX_DEVICE_NONE ((px_device){-1, -1})
#endif
#define PX_DEVICE_TEXT 24  // bytes sufficient for the text of any device
static inline px_device px_cpu(void) {
  px_device device = {PX_CPU, -1};
  return device;
}
// An index too large for the type is replaced by one that no device has.
static inline px_device px_cuda(int index) {
  px_device device = {PX_CUDA, -1};
  device.index = (int16_t)(index > INT16_MAX ? INT16_MAX : index < -1 ? -1 : index);
  return device;
}
static inline px_device px_meta(void) {
  px_device device = {PX_META, -1};
  return device;
}
static inline bool px_device_equal(px_device a, px_device b) {
  return a.type == b.type && a.index == b.index;
}

// Parses "cpu", "meta", "cuda" or "cuda:1", with optional blanks around the index. PX_RUNTIME, with
// PyTorch's text, for other texts.
PX_CALL px_device_parse(px_device *out, const char *text);
// Writes "cuda:1", "cpu" or "meta"; returns `text`.
PX_API const char *px_device_format(px_device device, char text[PX_DEVICE_TEXT]);
// "cpu", "cuda" or "meta".
PX_API const char *px_device_type_name(int type);
// Returns the number of usable devices: 0 if there are none, 1 for cpu and for meta. Creates no
// context.
PX_API int px_device_count(px_device_type type);
// px_device_initialized is true once type `cuda` was initialised. px_device_backend returns the
// name of its backend: "sim", "cuda", or "" without devices.
PX_API bool px_device_initialized(void);
PX_API const char *px_device_backend(void);
// Lists the backends for type `cuda`: those of PHLOX_BACKENDS in the order tried, then the
// library's others. Loads their libraries; starts no driver. Writes at most `capacity` rows and
// sets *count to the number of backends. PX_VALUE if PHLOX_BACKEND_PATH is no folder.
typedef struct px_backend_row {
  char name[32];
  bool listed;               // PHLOX_BACKENDS names it
  const char *library;       // path of its library, static; NULL if it was not found
  char why[PX_LOADER_TEXT];  // the reason if it cannot be used, else empty
} px_backend_row;
PX_CALL px_device_backends(px_backend_row *rows, int capacity, int *count);
// Initialises type `cuda`. PX_RUNTIME "No CUDA GPUs are available"; PX_RUNTIME in the child of a
// fork, if the parent had initialised CUDA. PX_VALUE for invalid environment variables.
PX_CALL px_device_init(void);
// Returns the calling thread's current device, initialising first. Errors as px_device_init.
PX_CALL px_device_current(int *index);
// The same without initialising, for printing and scopes.
PX_API int px_device_peek(void);
// Makes `index` the current device; a negative index does nothing. PX_ACCELERATOR 101 if out of
// range; the current device is then unchanged.
PX_CALL px_device_set(int index);
// Completes a device: fills in the current index for a cuda device without index and checks that
// the device exists; removes the index of other types. Errors as px_device_set.
PX_CALL px_device_resolve(px_device *out, px_device device);
// Sets *out to the index of the device holding `memory`, which may be another library's, or to -1
// if it is unknown. Initialises first. Errors as px_device_init.
PX_CALL px_device_of_memory(int *out, const void *memory);
// The device of factories without a device argument: the calling thread's preference, else the
// process's default (px_device_home).
PX_API px_device px_device_default(void);
// Sets the calling thread's preference; PX_DEVICE_NONE: none. PX_VALUE for an unknown type.
PX_CALL px_device_set_default(px_device device);
PX_API px_device px_device_preferred(void);
// The process's default device; its tensors print without `device=`. cpu unless set; PX_DEVICE_NONE
// resets it. cuda without an index means the current device.
PX_API px_device px_device_home(void);
PX_CALL px_device_set_home(px_device device);
// Waits until all work on the device is done, and raises errors reported by its kernels (PX_INDEX
// ...). PX_ACCELERATOR for a broken device.
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
// Returns the properties of a device. PX_ASSERTION "Invalid device id" if out of range.
PX_CALL px_device_get_properties(px_device_properties *out, int index);
// Free and total bytes of the device's memory.
PX_CALL px_device_memory(size_t *free, size_t *total, int index);
// Current metrics of a device, as shown by nvidia-smi: XX(name, Python's name, doc). Utilisation
// and memory usage are percentages of the last sample period; temperature is in degrees Celsius,
// power in milliwatts, the clock in MHz, memory in bytes over all processes.
#define PX_METRIC_MAP(XX) \
  XX(UTILIZATION, utilization, \
     "Returns the percent of time over the past sample period with a kernel running.") \
  XX(MEMORY_USAGE, memory_usage, \
     "Returns the percent of time over the past sample period with device memory in use.") \
  XX(TEMPERATURE, temperature, "Returns the temperature in degrees Celsius.") \
  XX(POWER, power_draw, "Returns the power draw in milliwatts.") \
  XX(CLOCK, clock_rate, "Returns the clock rate of the multiprocessors in MHz.") \
  XX(MEMORY_USED, device_memory_used, "Returns the bytes of device memory used by all processes.")
typedef enum px_metric {
#define XX(name, python, doc) PX_METRIC_##name,
  PX_METRIC_MAP(XX)
#undef XX
} px_metric;
// PX_UNIMPLEMENTED if the backend cannot read the metric: simulated devices, and GPUs without NVML.
PX_CALL px_device_metric(int64_t *out, int index, px_metric metric);
// The cache of Fourier plans of a GPU (cuFFT's): its size, its capacity (4096 unless set), and
// eviction of all. Least recently used plans are evicted first. Simulated devices store the
// capacity but cache no plans; they use FFTW's, cached by the CPU. PX_RUNTIME for a negative
// capacity.
PX_CALL px_device_fft_plans(int64_t *count, int64_t *capacity, int index);
PX_CALL px_device_set_fft_plans(int index, int64_t capacity);
PX_CALL px_device_clear_fft_plans(int index);
// True if device `from` can address the memory of device `to`; false for (a, a). PX_ASSERTION for
// an invalid index.
PX_CALL px_device_can_access_peer(bool *out, int from, int to);
// Enables peer access for the ordered pair; no-op if enabled. PX_RUNTIME if impossible. With both
// directions enabled, operands of a call may be on both devices. The call runs on the device of its
// first operand, after all work and before all later work of the calling thread's current streams
// of both devices.
PX_CALL px_device_enable_peer(int from, int to);
PX_API bool px_device_peer_enabled(int from, int to);

// Global settings of numerics: XX(name, module, attribute, default), with the names of
// torch.backends. MATMUL_TF32, the precision of float32 matrix products, is 0 "highest", 1 "high"
// or 2 "medium"; the others are 0 or 1. Setting CUDNN_TF32, for convolutions, also sets
// CUDNN_RNN_TF32, for recurrent layers. DETERMINISTIC makes scatter-add kernels on GPUs add in a
// fixed order. With FILL_UNINITIALIZED it also fills new memory with NaN or the largest integer.
// DETERMINISTIC_WARN (warn instead of fail) is stored without effect, since every kernel has a
// deterministic variant.
//
// NNPACK_ENABLED allows Winograd's algorithm for 3x3 convolutions on the CPU, as NNPACK does in
// PyTorch. It needs fewer multiplications but rounds differently: pixels with neighbours a million
// times larger lose digits. MKLDNN_ENABLED is stored without effect: Phlox does not use oneDNN.
//
// SDP_* select implementations of scaled_dot_product_attention. MATH is a composition of other ops.
// The tiled kernel is used if FLASH is on, and on devices also if EFFICIENT or CUDNN is. If both
// are possible the kernel is used, unless SDP_ORDER is 2. On GPUs it is cuDNN's.
#define PX_SETTING_MAP(XX) \
  XX(MATMUL_TF32, "cuda.matmul", "allow_tf32", 0) \
  XX(MATMUL_FP16_REDUCTION, "cuda.matmul", "allow_fp16_reduced_precision_reduction", 1) \
  XX(MATMUL_BF16_REDUCTION, "cuda.matmul", "allow_bf16_reduced_precision_reduction", 1) \
  XX(CUDNN_ENABLED, "cudnn", "enabled", 1) \
  XX(CUDNN_BENCHMARK, "cudnn", "benchmark", 0) \
  XX(CUDNN_DETERMINISTIC, "cudnn", "deterministic", 0) \
  XX(CUDNN_TF32, "cudnn", "allow_tf32", 1) \
  XX(CUDNN_RNN_TF32, "cudnn.rnn", "allow_tf32", 1) \
  XX(MKLDNN_ENABLED, "mkldnn", "enabled", 1) \
  XX(NNPACK_ENABLED, "nnpack", "enabled", 1) \
  XX(DETERMINISTIC, "", "deterministic", 0) \
  XX(DETERMINISTIC_WARN, "", "deterministic_warn", 0) \
  XX(FILL_UNINITIALIZED, "", "fill_uninitialized_memory", 1) \
  XX(SDP_MATH, "sdp", "math", 1) \
  XX(SDP_FLASH, "sdp", "flash", 1) \
  XX(SDP_EFFICIENT, "sdp", "mem_efficient", 1) \
  XX(SDP_CUDNN, "sdp", "cudnn", 1) \
  XX(SDP_ORDER, "sdp", "order", 0)
typedef enum px_setting {
#define XX(name, module, attribute, value) PX_SETTING_##name,
  PX_SETTING_MAP(XX)
#undef XX
      PX_SETTING_COUNT
} px_setting;
// Settings are per process and apply to later calls. Unknown settings read as 0.
PX_API int px_setting_get(px_setting setting);
PX_API void px_setting_set(px_setting setting, int value);

// A handle of an allocation, event or file for other processes: plain bytes, sent by any means. It
// is valid while this process keeps the object.
enum { PX_IPC_HANDLE = 64 };
typedef struct px_ipc_handle {
  unsigned char bytes[PX_IPC_HANDLE];
} px_ipc_handle;

// Returns the version of a library found by the backend ("cudnn": 91900 is 9.19.0), or 0. Loads the
// library; creates no context.
PX_API int64_t px_device_library(const char *name);
// Returns the highest instruction set of the CPU kernels: "DEFAULT", "AVX2" or "AVX512". A static
// string.
PX_API const char *px_cpu_capability(void);

// ---- LAPACK on the CPU
// Returns the path of the loaded LAPACK, loading it first if no call has needed it yet. A static
// string. PX_RUNTIME if none is found.
PX_CALL px_cpu_lapack(const char **path);

#ifdef __cplusplus
}
#endif
