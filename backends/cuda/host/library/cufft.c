// SPDX-License-Identifier: Apache-2.0
// cuFFT and its plans.
//
// A plan has one stream and one work area, so a device's plans are used by one thread at a time:
// the device's `lock` guards all its fields. Work areas are scratch memory of the launch. A plan
// captured by a graph is never destroyed after eviction, because the graph reads its tables.
#include "cuda/host/library/cufft.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- the library

typedef struct fft_api {
#define XX(name, parameters) int(*name) parameters;
#include "cuda/cufft.sym"
#undef XX
} fft_api;
static fft_api fft;
static const px__cuda_symbol symbols[] = {
#define XX(name, parameters) {#name, offsetof(fft_api, name)},
#include "cuda/cufft.sym"
#undef XX
};
// Constants of cuFFT's headers; types of library_types.h.
enum { SUCCESS = 0, FORWARD = -1, INVERSE = 1 };
enum { REAL_32F = 0, REAL_64F = 1, COMPLEX_32F = 4, COMPLEX_64F = 5 };

enum { CHAINS = 256 };
typedef struct plan {
  struct plan *next;  // in the hash chain
  px__cufft_shape shape;
  int handle;
  bool captured;
  size_t area;    // bytes
  uint64_t used;  // value of `uses` at the last use
} plan;
static struct {
  pthread_mutex_t lock;
  plan *chains[CHAINS];
  int64_t count, capacity;
  uint64_t uses;
} devices[PX__CUDA_DEVICES];

static pthread_once_t library_once = PTHREAD_ONCE_INIT, plans_once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load(void) {
  static const char *const names[] = {"libcufft.so.12", "libcufft.so.11"};
  void *library = px__cuda_library(names, 2);
  loaded = px__cuda_symbols(&fft, library, symbols, sizeof symbols / sizeof *symbols);
}
static void begin_plans(void) {
  for (int i = 0; i < PX__CUDA_DEVICES; i++) {
    pthread_mutex_init(&devices[i].lock, NULL);
    devices[i].capacity = PX_FFT_PLANS;
  }
}

// PyTorch's text.
static px_status failed(int status) {
  static const char *const names[] = {
      [1] = "CUFFT_INVALID_PLAN",    [2] = "CUFFT_ALLOC_FAILED",
      [3] = "CUFFT_INVALID_TYPE",    [4] = "CUFFT_INVALID_VALUE",
      [5] = "CUFFT_INTERNAL_ERROR",  [6] = "CUFFT_EXEC_FAILED",
      [7] = "CUFFT_SETUP_FAILED",    [8] = "CUFFT_INVALID_SIZE",
      [9] = "CUFFT_UNALIGNED_DATA",  [11] = "CUFFT_INVALID_DEVICE",
      [13] = "CUFFT_NO_WORKSPACE",   [14] = "CUFFT_NOT_IMPLEMENTED",
      [16] = "CUFFT_NOT_SUPPORTED",  [17] = "CUFFT_MISSING_DEPENDENCY",
      [18] = "CUFFT_NVRTC_FAILURE",  [19] = "CUFFT_NVJITLINK_FAILURE",
      [20] = "CUFFT_NVSHMEM_FAILURE"};
  const int known = sizeof names / sizeof *names;
  const char *name = status > 0 && status < known && names[status] ? names[status] : "unknown";
  return px__cuda_core->error(PX_RUNTIME, status, __FILE__, __LINE__, __func__, "cuFFT error: %s",
                              name);
}

// ---- plans; lock held

static unsigned chain_of(const px__cufft_shape *shape) {
  const unsigned char *at = (const unsigned char *)shape;
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof *shape; i++) hash = (hash ^ at[i]) * 16777619u;
  return hash % CHAINS;
}

static void destroy_plan(plan *p) {
  if (!p->captured) fft.cufftDestroy(p->handle);
  free(p);
}
// Evicts least recently used plans until at most `capacity` are left.
static void evict_above(int device, int64_t capacity) {
  while (devices[device].count > capacity) {
    plan **oldest = NULL;
    for (int i = 0; i < CHAINS; i++)
      for (plan **at = &devices[device].chains[i]; *at; at = &(*at)->next)
        if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
    plan *p = *oldest;
    *oldest = p->next;
    devices[device].count--;
    destroy_plan(p);
  }
}

static int make_handle(plan *p) {
  const px__cufft_shape *s = &p->shape;
  px__cufft_shape own = *s;
  int complex = s->wide ? COMPLEX_64F : COMPLEX_32F, real = s->wide ? REAL_64F : REAL_32F;
  int status = fft.cufftCreate(&p->handle);
  if (status) return status;
  status = fft.cufftSetAutoAllocation(p->handle, 0);
  if (!status)
    status = fft.cufftXtMakePlanMany(
        p->handle, (int)s->rank, own.sizes, own.in.embed, s->in.stride, s->in.distance,
        s->kind == PX__CUFFT_R2C ? real : complex, own.out.embed, s->out.stride, s->out.distance,
        s->kind == PX__CUFFT_C2R ? real : complex, s->batch, &p->area, complex);
  if (status) fft.cufftDestroy(p->handle);
  return status;
}

static px_status find_plan(plan **out, int device, const px__cufft_shape *shape) {
  plan **chain = &devices[device].chains[chain_of(shape)];
  for (plan *p = *chain; p; p = p->next)
    if (!memcmp(&p->shape, shape, sizeof *shape)) return *out = p, PX_OK;
  plan *p = calloc(1, sizeof *p);
  if (!p) PX_CUDA_FAIL(PX_NOMEM, "could not allocate %zu bytes for a cuFFT plan", sizeof *p);
  p->shape = *shape;
  int status = make_handle(p);
  if (status) return free(p), failed(status);
  int64_t capacity = devices[device].capacity;
  evict_above(device, capacity ? capacity - 1 : 0);
  p->next = *chain;
  *chain = p;
  devices[device].count++;
  *out = p;
  return PX_OK;
}

static px_status execute(const px_launch *l, const px__cufft_shape *shape, void *in, void *out,
                         bool forward) {
  plan *p = NULL;
  void *area = NULL;
  PX_CUDA_PASS(find_plan(&p, l->device, shape));
  p->used = ++devices[l->device].uses;
  p->captured |= px__cuda_captures(l->stream);
  if (p->area) PX_CUDA_PASS(px__cuda_scratch(l, p->area, &area));
  int status = fft.cufftSetStream(p->handle, l->stream);
  if (!status && area) status = fft.cufftSetWorkArea(p->handle, area);
  if (!status) status = fft.cufftXtExec(p->handle, in, out, forward ? FORWARD : INVERSE);
  return status ? failed(status) : PX_OK;
}

// ---- interface

px_status px__cufft_run(const px_launch *l, const px__cufft_shape *shape, void *in, void *out,
                        bool forward) {
  pthread_once(&library_once, load);
  pthread_once(&plans_once, begin_plans);
  if (!loaded)
    PX_CUDA_FAIL(PX_RUNTIME,
                 "%s on cuda:%d needs cuFFT (libcufft.so.12), which was not found; set "
                 "PHLOX_CUDA_PATH to its folder",
                 l->op, l->device);
  pthread_mutex_lock(&devices[l->device].lock);
  px_status result = execute(l, shape, in, out, forward);
  evict_above(l->device, devices[l->device].capacity);
  pthread_mutex_unlock(&devices[l->device].lock);
  return result;
}

int64_t px__cufft_plans(int device, int64_t capacity) {
  pthread_once(&plans_once, begin_plans);
  pthread_mutex_lock(&devices[device].lock);
  if (capacity >= 0) {
    devices[device].capacity = capacity;
    if (devices[device].count > capacity && px__cuda_use(device) == PX_OK)
      evict_above(device, capacity);
  }
  int64_t count = devices[device].count;
  pthread_mutex_unlock(&devices[device].lock);
  return count;
}
