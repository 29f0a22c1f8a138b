// SPDX-License-Identifier: Apache-2.0
// Lookup of op kernels and device functions by name, and launches.
//
// A module is loaded as a driver library: one handle for all devices, with code moved to a device
// at its first launch there. Functions are cached in a fixed-size table read without a lock. Names
// are compared by content, so callers may build them.
#include "cuda/host/driver/cuda.h"
#include "operands.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS = 1 << 14, ROWS = 1 << 12, MODULES = 256, STATIC_SHARED = 48 << 10 };

static uint32_t hash_of(const char *text, uint32_t hash) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
  return hash;
}

// ---- kernels of ops

extern const px_kernel_row *const __start_px_cuda_rows[] __attribute__((visibility("hidden")));
extern const px_kernel_row *const __stop_px_cuda_rows[] __attribute__((visibility("hidden")));
static const px_kernel_row *rows[ROWS];
static pthread_once_t rows_once = PTHREAD_ONCE_INIT;

static void list_rows(void) {
  // cppcheck-suppress comparePointers ; the ends of one section
  int64_t count = __stop_px_cuda_rows - __start_px_cuda_rows;
  for (int64_t i = 0; i < count && i < ROWS - 1; i++) {
    uint32_t at = hash_of(__start_px_cuda_rows[i]->name, 2166136261u) % ROWS;
    while (rows[at]) at = (at + 1) % ROWS;
    rows[at] = __start_px_cuda_rows[i];
  }
}

px_kernel px__cuda_find(const char *name) {
  pthread_once(&rows_once, list_rows);
  for (uint32_t at = hash_of(name, 2166136261u) % ROWS; rows[at]; at = (at + 1) % ROWS)
    if (!strcmp(rows[at]->name, name)) return rows[at]->run;
  return NULL;
}

// ---- modules and functions

typedef struct found {
  uint32_t hash;
  CUkernel kernel;
  const char *module;  // points into the table of modules
  char function[];
} found;
static found *functions[FUNCTIONS];  // atomic
static int function_count;
static CUlibrary libraries[MODULES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int module_of(const char *name) {
  int low = 0, high = px__cuda_modules_count;
  while (low < high) {
    int middle = (low + high) / 2, order = strcmp(name, px__cuda_modules[middle].name);
    if (order == 0) return middle;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return -1;
}

// Lock held.
static px_status load_module(CUlibrary *out, const char **name, const char *wanted) {
  int module = module_of(wanted);
  if (module < 0 || module >= MODULES)
    PX_CUDA_FAIL(PX_BUG, "the cuda backend has no module '%s'", wanted);
  *name = px__cuda_modules[module].name;
  if (!libraries[module])
    PX_CUDA_TRY(cuLibraryLoadData(&libraries[module], px__cuda_modules[module].content, NULL, NULL,
                                  0, NULL, NULL, 0));
  *out = libraries[module];
  return PX_OK;
}

static found *lookup(const char *module, const char *function, uint32_t hash, uint32_t *at) {
  for (*at = hash % FUNCTIONS;; *at = (*at + 1) % FUNCTIONS) {
    found *f = __atomic_load_n(&functions[*at], __ATOMIC_ACQUIRE);
    if (!f) return NULL;
    if (f->hash == hash && !strcmp(f->function, function) && !strcmp(f->module, module)) return f;
  }
}

// Lock held.
static px_status add_function(CUkernel *out, const char *module, const char *function,
                              uint32_t hash) {
  CUlibrary library = NULL;
  const char *name = NULL;
  uint32_t at;
  found *known = lookup(module, function, hash, &at);
  if (known) return *out = known->kernel, PX_OK;
  PX_CUDA_PASS(load_module(&library, &name, module));
  CUresult result = px__cu.cuLibraryGetKernel(out, library, function);
  if (result == CUDA_ERROR_NOT_FOUND)
    PX_CUDA_FAIL(PX_BUG, "module '%s' of the cuda backend has no function '%s'", module, function);
  if (result != CUDA_SUCCESS) return px__cuda_error((int)result, __FILE__, __LINE__, __func__);
  size_t length = strlen(function);
  found *f = function_count < FUNCTIONS / 2 ? malloc(sizeof *f + length + 1) : NULL;
  if (!f) return PX_OK;  // not cached: looked up again next time
  f->hash = hash, f->kernel = *out, f->module = name;
  memcpy(f->function, function, length + 1);
  function_count++;
  __atomic_store_n(&functions[at], f, __ATOMIC_RELEASE);
  return PX_OK;
}

px_status px__cuda_function(CUkernel *out, const char *module, const char *function) {
  uint32_t hash = hash_of(function, hash_of(module, 2166136261u)), at;
  const found *f = lookup(module, function, hash, &at);
  if (__builtin_expect(f != NULL, 1)) return *out = f->kernel, PX_OK;
  pthread_mutex_lock(&lock);
  px_status status = add_function(out, module, function, hash);
  pthread_mutex_unlock(&lock);
  return status;
}

// True if code is loaded lazily: the first launch on a device then waits for queued work. The
// default, unless CUDA_MODULE_LOADING changes it.
bool px__cuda_loads_late(void) {
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  return px__cu.cuModuleGetLoadingMode(&mode) != CUDA_SUCCESS || mode == CU_MODULE_LAZY_LOADING;
}

// ---- launches

// Programmatic dependent launch: the next kernel may start before this one's writes are visible.
// All kernels begin with k_wait(), which waits for them. Saves a third of a small kernel's time.
enum { MIN_MAJOR = 9 };  // compute capability
static CUlaunchAttribute programmatic_launch = {
    .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    .value.programmaticStreamSerializationAllowed = 1};

px_status px__cuda_launch_function(const px_launch *l, CUkernel function, const unsigned grid[3],
                                   const unsigned block[3], unsigned shared, void **params) {
  if (!grid[0] || !grid[1] || !grid[2]) return PX_OK;
  if (shared > STATIC_SHARED)
    PX_CUDA_TRY(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared,
                                     function, px__cuda_devices[l->device].handle));
  CUlaunchConfig config = {.gridDimX = grid[0],
                           .gridDimY = grid[1],
                           .gridDimZ = grid[2],
                           .blockDimX = block[0],
                           .blockDimY = block[1],
                           .blockDimZ = block[2],
                           .sharedMemBytes = shared,
                           .hStream = l->stream,
                           .attrs = &programmatic_launch,
                           .numAttrs = px__cuda_devices[l->device].major >= MIN_MAJOR};
  PX_CUDA_TRY(cuLaunchKernelEx(&config, (CUfunction)function, params, NULL));
  return PX_OK;
}

px_status px__cuda_launch_3d(const px_launch *l, const char *module, const char *function,
                             const unsigned grid[3], const unsigned block[3], unsigned shared,
                             void **params) {
  CUkernel kernel;
  PX_CUDA_PASS(px__cuda_function(&kernel, module, function));
  return px__cuda_launch_function(l, kernel, grid, block, shared, params);
}

px_status px__cuda_launch(const px_launch *l, const char *module, const char *function,
                          unsigned grid, unsigned block, unsigned shared, void **params) {
  const unsigned grids[3] = {grid, 1, 1}, blocks[3] = {block, 1, 1};
  return px__cuda_launch_3d(l, module, function, grids, blocks, shared, params);
}

// ---- queries by kernels

int px__cuda_multiprocessors(const px_launch *l) {
  return px__cuda_devices[l->device].multiprocessors;
}
int px__cuda_threads(const px_launch *l) { return px__cuda_devices[l->device].threads; }

unsigned px__cuda_grid(const px_launch *l, int64_t n, unsigned block) {
  int64_t wanted = (n + block - 1) / block;
  int64_t full = (int64_t)px__cuda_multiprocessors(l) * (px__cuda_threads(l) / (int)block + 1);
  return (unsigned)(wanted < full ? wanted : full);
}

px_status px__cuda_scratch(const px_launch *l, size_t bytes, void **out) {
  *out = px__cuda_core->scratch(l, bytes);
  if (!*out)
    PX_CUDA_FAIL(PX_OUT_OF_MEMORY,
                 "CUDA out of memory. %s could not allocate %zu bytes of workspace",
                 l->op ? l->op : "A kernel", bytes);
  return PX_OK;
}

static bool is_dtype(int dtype) { return dtype >= 0 && dtype < PX_DTYPE_COUNT; }

const char *px__cuda_dtype_class(int dtype) {
  return is_dtype(dtype) ? px__dtypes[dtype].cls : "None";
}
const char *px__cuda_suffix(int dtype) {
  return is_dtype(dtype) ? px__dtypes[dtype].suffix : "none";
}
size_t px__cuda_dtype_size(int dtype) { return is_dtype(dtype) ? px__dtypes[dtype].size : 0; }

px_status px__cuda_missing(const px_launch *l, int dtype) {
  PX_CUDA_FAIL(PX_UNIMPLEMENTED, "\"%s\" not implemented for '%s' on cuda:%d", l->op ? l->op : "?",
               px__cuda_dtype_class(dtype), l->device);
}
