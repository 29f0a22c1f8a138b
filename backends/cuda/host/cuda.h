// SPDX-License-Identifier: Apache-2.0
// The cuda backend: what its host files share.
//
// A kernel of an op is a host function, PX_CUDA_KERNEL(op), that launches device functions by name.
// Device functions are extern "C" in backends/cuda/kernels/MODULE.cu; each .cu file becomes one
// module of this library, loaded by the driver at its first launch. Nothing here links the driver:
// all of it goes through `px__cu`, which open() has filled in before any kernel runs. Streams and
// events are the driver's own handles, so that programs may hand them to other libraries.
#pragma once
#include "cuda/params.h"
#include "phlox/backend.h"

#include <cuda.h>

#define PX__CUDA_DEVICES 64

// ---- driver.c: the driver's functions, its errors, contexts

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
  CUcontext context;             // the primary one
  px_fault_slot *fault;          // page-locked: one address for the host and all devices
  int multiprocessors, threads;  // threads: that one multiprocessor may hold
  int shared;                    // bytes of shared memory that a block may have
  int major, minor;
} px__cuda_device;
extern px__cuda_device px__cuda_devices[PX__CUDA_DEVICES];

// Fills in `px__cu` at the first call; false where there is no driver that has all of it.
bool px__cuda_load(void);
// Records the error of a driver's code, with PyTorch's text, and returns its status.
px_status px__cuda_error(int code, const char *file, int line, const char *function);
// Makes the device's context the thread's; `any` where no matter which.
px_status px__cuda_use(int device);
px_status px__cuda_use_any(void);
px_status px__cuda_use_stream(CUstream stream);

// PX_CUDA_TRY(cuMemAlloc(...)) returns the driver's error to the caller.
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

// ---- library.c: libraries that are found when they are first needed

// A library of the CUDA toolkit by its file names, the first that is found; NULL where none is.
void *px__cuda_library(const char *const *names, int count);
// A function by name, and where its address goes in a struct of functions.
typedef struct px__cuda_symbol {
  const char *name;
  size_t at;
} px__cuda_symbol;
// Fills the struct `api`; false where there is no library (NULL), or not all of its functions.
bool px__cuda_symbols(void *api, void *library, const px__cuda_symbol *symbols, size_t count);

// ---- launch.c: kernels by name, device functions by name

// PX_CUDA_KERNEL(mm) { ... args->self ... args->mat2 ... } defines the kernel `mm`. It gets the
// launch `l` and, as `args`, its operands and numbers by name (build/gen/kernel_args/TABLE.h).
// PX_CUDA_ROW is for generated ones. Nothing else lists them.
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

// Launches `function` of kernels/`module`.cu on the launch's stream and device. `shared` bytes of
// dynamic shared memory may exceed 48 KiB. A grid of 0 is nothing to do.
px_status px__cuda_launch(const px_launch *l, const char *module, const char *function,
                          unsigned grid, unsigned block, unsigned shared, void **params);
// The same with grids and blocks of three dimensions.
px_status px__cuda_launch_3d(const px_launch *l, const char *module, const char *function,
                             const unsigned grid[3], const unsigned block[3], unsigned shared,
                             void **params);
// The function alone, for who keeps it (it serves all devices), and a launch of it.
px_status px__cuda_function(CUkernel *out, const char *module, const char *function);
px_status px__cuda_launch_function(const px_launch *l, CUkernel function, const unsigned grid[3],
                                   const unsigned block[3], unsigned shared, void **params);
// Of the launch's device: multiprocessors, and threads that one may hold.
int px__cuda_multiprocessors(const px_launch *l);
int px__cuda_threads(const px_launch *l);
// Blocks for a loop with the grid's stride over n elements: enough to fill the device, no more.
unsigned px__cuda_grid(const px_launch *l, int64_t n, unsigned block);
// Gives scratch memory on the device, 512-byte aligned, until the launch is over; PX_OUT_OF_MEMORY.
px_status px__cuda_scratch(const px_launch *l, size_t bytes, void **out);
// Says that the kernel lacks the dtype, naming op, dtype and device.
px_status px__cuda_missing(const px_launch *l, int dtype);
const char *px__cuda_dtype_class(int dtype);  // "Float"
const char *px__cuda_suffix(int dtype);       // "f32"
size_t px__cuda_dtype_size(int dtype);

// The modules, in the order of their names; written by tools/bin2c.c.
typedef struct px__cuda_module {
  const char *name;
  const void *image;
} px__cuda_module;
extern const px__cuda_module px__cuda_modules[];
extern const int px__cuda_module_count;

px_kernel px__cuda_find(const char *name);
bool px__cuda_loads_late(void);

// ---- memory.c, stream.c, nvml.c: parts of the table

px_status px__cuda_properties(int device, px_device_properties *out);
int px__cuda_processes(int device, px_process *out, int room);
bool px__cuda_figure(int device, px_metric figure, int64_t *out);
int px__cuda_glance(void);
bool px__cuda_glance_named(int device, const char *name, size_t length);

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
px_status px__cuda_memory_share(int device, void *memory, px_ipc_handle *out, size_t *offset);
px_status px__cuda_memory_open(int device, const px_ipc_handle *handle, void **out, size_t *bytes);
void px__cuda_memory_close(int device, void *memory);
px_status px__cuda_event_share(void *event, px_ipc_handle *out);
px_status px__cuda_event_open(int device, const px_ipc_handle *handle, void **out);
// pages.c. `reach`: device `from` has access to the pages of `to`, those of later too.
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
bool px__cuda_captures(CUstream stream);  // whether its work is being captured

// ---- copy.c: matrices and their like

px_status px__cuda_strided_copy(const px_launch *l, const k_strided *copy, int dtype);
