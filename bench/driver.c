// SPDX-License-Identifier: Apache-2.0
// Lower bounds of a GPU: the driver's time for creating a context, launching an empty kernel, and
// copies on the device and from and to page-locked memory. Prints lines "name value". Prints
// nothing and returns status 1 without a driver or GPU. Units: seconds for context and launch;
// bytes per second for copies. Copies on the device count reads and writes.
//
// The driver is loaded by dlopen, as in the library: building needs no CUDA.
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "bench.h"

// XX(driver function, parameters). All return 0 on success.
#define DRIVER(XX) \
  XX(cuInit, (unsigned flags)) \
  XX(cuDeviceGet, (int *out, int index)) \
  XX(cuDevicePrimaryCtxRetain, (void **out, int device)) \
  XX(cuCtxSetCurrent, (void *context)) \
  XX(cuStreamCreate, (void **out, unsigned flags)) \
  XX(cuStreamSynchronize, (void *stream)) \
  XX(cuModuleLoadData, (void **out, const void *image)) \
  XX(cuModuleGetFunction, (void **out, void *module, const char *name)) \
  XX(cuMemAlloc_v2, (uint64_t * out, size_t bytes)) \
  XX(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags)) \
  XX(cuMemsetD8Async, (uint64_t to, unsigned char value, size_t bytes, void *stream)) \
  XX(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t bytes, void *stream)) \
  XX(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream)) \
  XX(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream)) \
  XX(cuLaunchKernel, \
     (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
      unsigned bz, unsigned shared, void *stream, void **parameters, void **extra))
#define XX(name, parameters) static int(*name) parameters;
DRIVER(XX)
#undef XX

static const char nothing[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 n)\n"
    "{ ret; }\n";
enum { BYTES = 1 << 30, NON_BLOCKING = 1 };

typedef struct fixture {
  void *stream, *function, *host;
  uint64_t from, to;
} fixture;

static void must(int status, const char *call) {
  if (status == 0) return;
  fprintf(stderr, "%s: error %d of the driver\n", call, status);
  exit(1);
}
#define MUST(call) must((call), #call)

static int find_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return 0;
#define XX(name, parameters) \
  { \
    void *found = dlsym(library, #name); \
    if (!found) return 0; \
    memcpy(&name, &found, sizeof found); \
  }
  DRIVER(XX)
#undef XX
  return 1;
}

static void launch(void *context) {
  fixture *s = context;
  uint64_t values[4] = {s->from, s->from, s->to, 4};
  void *parameters[] = {&values[0], &values[1], &values[2], &values[3]};
  MUST(cuLaunchKernel(s->function, 1, 1, 1, 128, 1, 1, 0, s->stream, parameters, NULL));
}
static void copy(void *context) {
  fixture *s = context;
  MUST(cuMemcpyDtoDAsync_v2(s->to, s->from, BYTES, s->stream));
}
static void to_device(void *context) {
  fixture *s = context;
  MUST(cuMemcpyHtoDAsync_v2(s->to, s->host, BYTES / 4, s->stream));
}
static void to_host(void *context) {
  fixture *s = context;
  MUST(cuMemcpyDtoHAsync_v2(s->host, s->from, BYTES / 4, s->stream));
}
static void finish(void *context) { MUST(cuStreamSynchronize(((fixture *)context)->stream)); }

// `bytes`: 0 prints seconds; otherwise bytes per second.
static const struct {
  const char *name;
  void (*fn)(void *context);
  double bytes;
  int calls;
} rows[] = {{"launch", launch, 0, 2000},
            {"copy", copy, 2.0 * BYTES, 8},
            {"to_device", to_device, BYTES / 4, 2},
            {"to_host", to_host, BYTES / 4, 2}};

static void open_device(void) {
  int device;
  void *context;
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
}

static void set_up(fixture *s) {
  void *module;
  MUST(cuStreamCreate(&s->stream, NON_BLOCKING));
  MUST(cuModuleLoadData(&module, nothing));
  MUST(cuModuleGetFunction(&s->function, module, "nothing"));
  MUST(cuMemAlloc_v2(&s->from, BYTES));
  MUST(cuMemAlloc_v2(&s->to, BYTES));
  MUST(cuMemHostAlloc(&s->host, BYTES / 4, 0));
  memset(s->host, 1, BYTES / 4);
  MUST(cuMemsetD8Async(s->from, 1, BYTES, s->stream));
}

int main(void) {
  fixture s;
  double start = bench_seconds();
  if (!find_driver() || cuInit(0)) return 1;
  open_device();
  printf("context %.6g\n", bench_seconds() - start);
  set_up(&s);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double took = bench_min_seconds(rows[i].fn, finish, &s, rows[i].calls, 20);
    printf("%s %.6g\n", rows[i].name, rows[i].bytes > 0 ? rows[i].bytes / took : took);
  }
  return 0;
}
