// SPDX-License-Identifier: Apache-2.0
// Devices: their names, the current one, and their properties.
//
// Devices of type `cuda` come from the cuda backend if there are a driver and a GPU, or from the
// sim backend if PHLOX_SIM_DEVICES=N asks for it. No driver is touched before the first call that
// needs a device. Each thread has its own current device, 0 at the start.
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

// Tensors of type meta have a shape, a dtype and strides but no memory: ops on them check their
// arguments and give results of the right shape, and compute nothing.
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
#define PX_DEVICE_TEXT 24  // room for the text of any device
static inline px_device px_cpu(void) {
  px_device device = {PX_CPU, -1};
  return device;
}
// An index that is too large for the type becomes one that no device has.
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

// Parses "cpu", "meta", "cuda" or "cuda:1" (blanks around the index are allowed). PX_RUNTIME, with
// PyTorch's text, for anything else.
PX_CALL px_device_parse(px_device *out, const char *text);
// Writes "cuda:1", "cpu" or "meta"; returns `text`.
PX_API const char *px_device_format(px_device device, char text[PX_DEVICE_TEXT]);
// "cpu", "cuda" or "meta".
PX_API const char *px_device_type_name(int type);
// Returns the number of usable devices: 0 if there are none, 1 for cpu and for meta. Creates no
// context.
PX_API int px_device_count(px_device_type type);
// Whether type `cuda` has been initialised; and the name of its backend, "sim", "cuda", or "" if
// there are no devices.
PX_API bool px_device_initialized(void);
PX_API const char *px_device_backend(void);
// Initialises type `cuda`. PX_RUNTIME: "No CUDA GPUs are available"; in the child of a fork, that
// CUDA cannot be initialised again. PX_VALUE for bad environment variables.
PX_CALL px_device_init(void);
// Gives the calling thread's current device; initialises. Errors as px_device_init.
PX_CALL px_device_current(int *index);
// The same without initialising, for printing and scopes.
PX_API int px_device_peek(void);
// Makes `index` the current device; a negative index does nothing. PX_ACCELERATOR 101 if it is out
// of range; the current device is then unchanged.
PX_CALL px_device_set(int index);
// Fills in the index of a cuda device that has none, and checks that the device exists; removes the
// index of a device of another type. Errors as px_device_set.
PX_CALL px_device_resolve(px_device *out, px_device device);
// The device on which factories make tensors if none is given: what the calling thread prefers, or
// else the process's (px_device_home).
PX_API px_device px_device_default(void);
// Sets what the calling thread prefers; PX_DEVICE_NONE: nothing. PX_VALUE for an unknown type.
PX_CALL px_device_set_default(px_device device);
PX_API px_device px_device_preferred(void);
// The process's default device, whose tensors print without `device=`: cpu, unless set (by
// PX_DEVICE_NONE: the cpu again); cuda without an index means the current device.
PX_API px_device px_device_home(void);
PX_CALL px_device_set_home(px_device device);
// Waits until all work on the device is done, and raises what its kernels reported (PX_INDEX ...).
// A broken device gives PX_ACCELERATOR.
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
// Gives the properties of a device. PX_ASSERTION "Invalid device id" if it is out of range.
PX_CALL px_device_get_properties(px_device_properties *out, int index);
// Free and total bytes of the device's memory.
PX_CALL px_device_memory(size_t *free, size_t *total, int index);
// Figures of a device at this moment, as nvidia-smi shows them: XX(name, Python's name, doc).
// Shares are in percent, of the last time span; the temperature is in degrees Celsius, power in
// milliwatts, the clock of its processors in MHz, memory in bytes, that of all processes.
#define PX_FIGURE_MAP(XX) \
  XX(UTILIZATION, utilization, "How much of the time a kernel ran on it, in percent.") \
  XX(MEMORY_USAGE, memory_usage, "How much of the time its memory was busy.") \
  XX(TEMPERATURE, temperature, "Its temperature, in degrees Celsius.") \
  XX(POWER, power_draw, "The power that it draws, in milliwatts.") \
  XX(CLOCK, clock_rate, "The clock of its processors, in MHz.") \
  XX(MEMORY_USED, device_memory_used, "Its memory that any process uses, in bytes.")
typedef enum px_figure {
#define XX(name, python, doc) PX_FIGURE_##name,
  PX_FIGURE_MAP(XX)
#undef XX
} px_figure;
// PX_UNIMPLEMENTED where the backend does not know it: simulated devices, and GPUs without NVML.
PX_CALL px_device_figure(int64_t *out, int index, px_figure figure);
// Plans of Fourier transforms, which a GPU keeps to use them again (cuFFT's): how many there are,
// and may be, 4096 unless set; those used longest ago go first. Simulated devices remember the
// number and keep no plans of their own: there FFTW's serve, which the CPU keeps. A limit less than
// 0 is PX_RUNTIME.
PX_CALL px_device_fft_plans(int64_t *count, int64_t *most, int index);
PX_CALL px_device_set_fft_plans(int index, int64_t most);
PX_CALL px_device_clear_fft_plans(int index);
// Whether device `from` can address the memory of device `to`; false for (a, a). PX_ASSERTION for a
// bad index.
PX_CALL px_device_can_access_peer(bool *out, int from, int to);
// Enables this, for the ordered pair. PX_RUNTIME if it is not possible. Enabling twice is fine.
// With both directions enabled, operands of a call may be on both devices: the call runs where its
// first operand is, after all work that the calling thread's current streams of both devices have
// been given, and before all that they will be given.
PX_CALL px_device_enable_peer(int from, int to);
PX_API bool px_device_peer_enabled(int from, int to);

// How a backend's libraries may compute: XX(name, module, attribute, default); the names are those
// of torch.backends. MATMUL_TF32, the precision of float32 products, is 0 "highest", 1 "high" or 2
// "medium"; the others are 0 or 1. With DETERMINISTIC, what adds by index on a GPU does so in a
// fixed order, and with FILL_UNINITIALIZED too, new memory has NaN or the greatest integer. All
// kernels have a form of which results are the same every time, so DETERMINISTIC_WARN, that others
// warn and do not fail, is remembered alone.
//
// NNPACK_ENABLED: whether convolutions by 3 x 3 places may be computed on the CPU with fewer
// multiplications, by Winograd's algorithm, as PyTorch has it from NNPACK. Each sum is then rounded
// in another way; a pixel whose neighbours are a million times as large loses digits.
// MKLDNN_ENABLED is remembered alone, as by a PyTorch without oneDNN, which there is none of here.
//
// SDP_* say how scaled_dot_product_attention may be computed: MATH is a composition of other ops;
// the kernel in tiles serves where FLASH is on, and on devices also where EFFICIENT or CUDNN is.
// Where both serve, the kernel does, unless SDP_ORDER is 2. On GPUs it is cuDNN's.
#define PX_SETTING_MAP(XX) \
  XX(MATMUL_TF32, "cuda.matmul", "allow_tf32", 0) \
  XX(MATMUL_FP16_REDUCTION, "cuda.matmul", "allow_fp16_reduced_precision_reduction", 1) \
  XX(MATMUL_BF16_REDUCTION, "cuda.matmul", "allow_bf16_reduced_precision_reduction", 1) \
  XX(CUDNN_ENABLED, "cudnn", "enabled", 1) \
  XX(CUDNN_BENCHMARK, "cudnn", "benchmark", 0) \
  XX(CUDNN_DETERMINISTIC, "cudnn", "deterministic", 0) \
  XX(CUDNN_TF32, "cudnn", "allow_tf32", 1) \
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
// Settings belong to the process and apply to later calls. An unknown setting is 0.
PX_API int px_setting_get(px_setting setting);
PX_API void px_setting_set(px_setting setting, int value);

// What another process needs to find an allocation, an event or a file of this one: plain bytes, to
// be sent in any way. They are good as long as this process has the thing.
enum { PX_IPC_HANDLE = 64 };
typedef struct px_ipc_handle {
  unsigned char bytes[PX_IPC_HANDLE];
} px_ipc_handle;

// Returns the version of a library that the backend found ("cudnn": 91900 is 9.19.0), or 0 if it
// found none. Loads the library; creates no context.
PX_API int64_t px_device_library(const char *name);
// Returns which instructions of the processor CPU kernels use at most: "DEFAULT", "AVX2" or
// "AVX512". The text is constant.
PX_API const char *px_cpu_capability(void);

#ifdef __cplusplus
}
#endif
