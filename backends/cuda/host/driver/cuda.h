// SPDX-License-Identifier: Apache-2.0
// The cuda backend: declarations shared by its host files.
//
// PX_CUDA_KERNEL(op) defines an op's kernel: a host function that launches device functions by
// name. Device functions are extern "C" in backends/cuda/kernels/MODULE.cu. Each .cu file becomes
// one module, embedded in this library and loaded by the driver at its first launch. The driver is
// not linked: calls go through `px__cu`, filled in by open() before any kernel runs. Streams and
// events are driver handles, usable by other libraries.
#pragma once
#include "cuda/params.h"
#include "phlox/backend.h"

#include <cuda.h>

#define PX__CUDA_DEVICES 64

// ---- driver.c: the driver's functions, its errors, contexts

// A function's name and the offset of its pointer in the struct of functions.
typedef struct px__cuda_symbol {
  const char *name;
  size_t at;
} px__cuda_symbol;
// Fills the struct `api`. False if the library is NULL or lacks a function.
bool px__cuda_symbols(void *api, void *library, const px__cuda_symbol *symbols, size_t count);

typedef struct px__cuda_api {
#define XX(name) __typeof__(&name) name;
#include "cuda/cuda.sym"
#undef XX
} px__cuda_api;
extern px__cuda_api px__cu;
extern const px_core *px__cuda_core;

typedef struct px__cuda_device {
  bool open;  // atomic
  CUdevice handle;
  CUcontext context;             // primary context
  px_fault_slot *fault;          // page-locked: same address on the host and all devices
  int multiprocessors, threads;  // threads: maximum resident threads a multiprocessor
  int shared;                    // bytes: opt-in maximum of shared memory a block
  int major, minor;
} px__cuda_device;
extern px__cuda_device px__cuda_devices[PX__CUDA_DEVICES];

// Fills in `px__cu` at the first call. False without a driver that exports all of it.
bool px__cuda_load(void);
// Records a driver error with PyTorch's text and returns its status.
px_status px__cuda_error(int code, const char *file, int line, const char *function);
// Makes the device's context current on the calling thread; `any` picks any open device.
px_status px__cuda_use(int device);
px_status px__cuda_use_any(void);
px_status px__cuda_use_stream(CUstream stream);

// PX_CUDA_TRY(cuMemAlloc(...)) returns on a driver error.
#define PX_CUDA_TRY(call) \
  do { \
    CUresult result_ = px__cu.call; \
    if (__builtin_expect(result_ != CUDA_SUCCESS, 0)) \
      return px__cuda_error((int)result_, __FILE__, __LINE__, __func__); \
  } while (0)
#define PX_CUDA_PASS(call) \
  do { \
    px_status status_ = (call); \
    if (__builtin_expect(status_ != PX_OK, 0)) return status_; \
  } while (0)
#define PX_CUDA_FAIL(status, ...) \
  return px__cuda_core->error((status), 0, __FILE__, __LINE__, __func__, __VA_ARGS__)

// ---- library.c: libraries loaded on first use

// Opens the first library found of several file names of the CUDA toolkit; NULL if none is.
void *px__cuda_library(const char *const *names, int count);

// ---- launch.c: kernels by name, device functions by name

// PX_CUDA_KERNEL(mm) { ... args->self ... args->mat2 ... } defines and registers the kernel `mm`.
// It receives the launch `l` and its operands and scalars by name in `args`
// (build/gen/kernel_args/TABLE.h). PX_CUDA_ROW registers generated kernels.
#define PX_CUDA_ROW(ident, text, function) \
  static const px_kernel_row px__cuda_row_##ident = {text, function}; \
  static const px_kernel_row *const px__cuda_at_##ident \
      __attribute__((section("px_cuda_rows"), used)) = &px__cuda_row_##ident
#define PX_CUDA_KERNEL(name) \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args); \
  static px_status launch_##name(const px_launch *l) { \
    const px__##name##_kernel args = px__##name##_kernel_of(l); \
    return kernel_##name(l, &args); \
  } \
  PX_CUDA_ROW(name, #name, launch_##name); \
  static inline px_status kernel_##name(const px_launch *l, const px__##name##_kernel *args)

// Launches `function` of kernels/`module`.cu on the launch's stream and device with a 1D grid of
// `grid` blocks of `block` threads. `shared`: bytes of dynamic shared memory, which may exceed 48
// KiB. A grid of 0 launches nothing.
px_status px__cuda_launch(const px_launch *l, const char *module, const char *function,
                          unsigned grid, unsigned block, unsigned shared, void **params);
// The same with 3D grids and blocks.
px_status px__cuda_launch_3d(const px_launch *l, const char *module, const char *function,
                             const unsigned grid[3], const unsigned block[3], unsigned shared,
                             void **params);
// Looks up a function for repeated launches; the handle is valid on all devices.
px_status px__cuda_function(CUkernel *out, const char *module, const char *function);
px_status px__cuda_launch_function(const px_launch *l, CUkernel function, const unsigned grid[3],
                                   const unsigned block[3], unsigned shared, void **params);
// The launch's device: number of multiprocessors, maximum resident threads of each.
int px__cuda_multiprocessors(const px_launch *l);
int px__cuda_threads(const px_launch *l);
// Grid for a grid-stride loop over n elements: at most as many blocks as fill the device.
unsigned px__cuda_grid(const px_launch *l, int64_t n, unsigned block);
// Allocates device scratch memory, 512-byte aligned and valid until the launch completes;
// PX_OUT_OF_MEMORY.
px_status px__cuda_scratch(const px_launch *l, size_t bytes, void **out);
// Returns the error for a dtype the kernel lacks, naming op, dtype and device.
px_status px__cuda_missing(const px_launch *l, int dtype);
const char *px__cuda_dtype_class(int dtype);  // "Float"
const char *px__cuda_suffix(int dtype);       // "f32"
size_t px__cuda_dtype_size(int dtype);

// Files embedded in the library, sorted by name; generated by tools/bin2c.c: modules, and headers
// for NVRTC.
typedef struct px__cuda_file {
  const char *name;
  const void *content;
} px__cuda_file;
extern const px__cuda_file px__cuda_modules[], px__cuda_sources[];
extern const int px__cuda_modules_count, px__cuda_sources_count;

px_kernel px__cuda_find(const char *name);
bool px__cuda_loads_late(void);

// ---- properties.c
px_status px__cuda_measure(px__cuda_device *d);  // reads the properties used by launches
px_status px__cuda_properties(int device, px_device_properties *out);

// ---- memory.c, stream.c, nvml.c: functions of the backend table

int px__cuda_processes(int device, px_process *out, int capacity);
bool px__cuda_metric(int device, px_metric figure, int64_t *out);
int px__cuda_probe_forksafe(void);
bool px__cuda_match_forksafe(int device, const char *name, size_t length);

px_status px__cuda_alloc(int device, size_t bytes, void **out);
void px__cuda_release(int device, void *memory);
px_status px__cuda_host_alloc(size_t bytes, void **out);
void px__cuda_host_release(void *memory);
px_status px__cuda_copy(void *stream, const px_copy *copy);
px_status px__cuda_fill(void *stream, void *memory, int value, size_t bytes);
px_status px__cuda_stream_new(int device, int priority, void **out);
void px__cuda_stream_release(int device, void *stream);
px_status px__cuda_stream_adopt(int device, void *stream, int *priority);
px_status px__cuda_stream_query(void *stream, bool *out);
px_status px__cuda_stream_synchronize(void *stream);
px_status px__cuda_stream_wait(void *stream, void *event);
px_status px__cuda_host_call(void *stream, void (*fn)(void *), void *argument);
px_status px__cuda_event_new(int device, unsigned flags, void **out);
void px__cuda_event_release(int device, void *event);
px_status px__cuda_event_record(void *event, void *stream);
px_status px__cuda_event_query(void *event, bool *out);
px_status px__cuda_event_synchronize(void *event);
px_status px__cuda_event_elapsed(void *start, void *end, float *out);
int px__cuda_memory_device(const void *memory);
px_status px__cuda_host_register(void *memory, size_t bytes);
px_status px__cuda_host_unregister(void *memory);
px_status px__cuda_memory_share(int device, void *memory, px_ipc_handle *out, size_t *offset);
px_status px__cuda_memory_open(int device, const px_ipc_handle *handle, void **out, size_t *bytes);
void px__cuda_memory_close(int device, void *memory);
px_status px__cuda_event_share(void *event, px_ipc_handle *out);
px_status px__cuda_event_open(int device, const px_ipc_handle *handle, void **out);
// pages.c. `reach` gives device `from` access to the current and future pages of `to`.
size_t px__cuda_page_size(int device);
px_status px__cuda_range_new(int device, size_t bytes, void **out);
px_status px__cuda_pages_map(int device, void *at, size_t bytes);
void px__cuda_pages_unmap(int device, void *at, size_t bytes);
px_status px__cuda_pages_reach(int from, int to);
// graph.c
px_status px__cuda_capture_begin(void *stream);
px_status px__cuda_capture_end(void *stream, void **out);
px_status px__cuda_graph_launch(void *stream, void *graph);
void px__cuda_graph_release(int device, void *graph);
px_status px__cuda_capture_keep(void *stream, void **out);
px_status px__cuda_graph_make(int device, void *kept, void **out);
px_status px__cuda_graph_print(int device, void *kept, const char *path);
void px__cuda_graph_drop(int device, void *kept);
bool px__cuda_captures(CUstream stream);  // true while the stream is capturing

// ---- strided_copy.c

px_status px__cuda_strided_copy(const px_launch *l, const k_strided *copy, int dtype);
