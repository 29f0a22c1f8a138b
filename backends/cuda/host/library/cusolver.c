// SPDX-License-Identifier: Apache-2.0
// Loads cuSOLVER and runs it on batches of matrices.
#include "cuda/host/library/cusolver.h"

#include <pthread.h>
#include <stdlib.h>

#include "cuda/host/library/gemm.h"

static px__cusolver_common base;
static px__cusolver_api typed[PX__CUDA_KINDS];

#define YY(name, parameters)
#define ZZ(name, complex, parameters)
#define WW(name, parameters)
#define XX(name, parameters) {#name, offsetof(px__cusolver_common, name)},
static const px__cuda_symbol base_symbols[] = {
#include "cuda/cusolver.sym"
};
#undef WW
#undef XX
#define WW(name, parameters) {#name, offsetof(px__cusolver_common, name)},
#define XX(name, parameters)
static const px__cuda_symbol newer_symbols[] = {
#include "cuda/cusolver.sym"
};
#undef WW
#undef YY
#undef ZZ
#define WW(name, parameters)
#define YY(name, parameters) {"cusolverDn" LETTER #name, offsetof(px__cusolver_api, name)},
#define ZZ(name, complex, parameters) \
  {"cusolverDn" LETTER NAME(name, complex), offsetof(px__cusolver_api, name)},
enum { FUNCTIONS = sizeof(px__cusolver_api) / sizeof(void *) };
static const px__cuda_symbol typed_symbols[PX__CUDA_KINDS][FUNCTIONS] = {
#define NAME(real, complex) #real
#define LETTER "S"
    {
#include "cuda/cusolver.sym"
    },
#undef LETTER
#define LETTER "D"
    {
#include "cuda/cusolver.sym"
    },
#undef LETTER
#undef NAME
#define NAME(real, complex) #complex
#define LETTER "C"
    {
#include "cuda/cusolver.sym"
    },
#undef LETTER
#define LETTER "Z"
    {
#include "cuda/cusolver.sym"
    },
#undef LETTER
#undef NAME
};
#undef WW
#undef XX
#undef YY
#undef ZZ
#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static struct {
  pthread_mutex_t lock;
  void *handle, *jacobi, *svd_jacobi, *options;
} devices[PX__CUDA_DEVICES];

static void load(void) {
  static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11"};
  for (int i = 0; i < PX__CUDA_DEVICES; i++) pthread_mutex_init(&devices[i].lock, NULL);
  void *library = px__cuda_library(names, 2);
  loaded = px__cuda_symbols(&base, library, base_symbols, COUNT_OF(base_symbols));
  for (int k = 0; k < PX__CUDA_KINDS; k++)
    loaded = loaded && px__cuda_symbols(&typed[k], library, typed_symbols[k], FUNCTIONS);
  for (size_t i = 0; i < COUNT_OF(newer_symbols); i++)
    px__cuda_symbols(&base, library, &newer_symbols[i], 1);
}

// PyTorch's text.
static px_status failed(int status, const char *call) {
  static const char *const names[] = {[1] = "NOT_INITIALIZED", [2] = "ALLOC_FAILED",
                                      [3] = "INVALID_VALUE",   [4] = "ARCH_MISMATCH",
                                      [5] = "MAPPING_ERROR",   [6] = "EXECUTION_FAILED",
                                      [7] = "INTERNAL_ERROR",  [8] = "MATRIX_TYPE_NOT_SUPPORTED",
                                      [9] = "NOT_SUPPORTED",   [10] = "ZERO_PIVOT",
                                      [11] = "INVALID_LICENSE"};
  const char *name = status > 0 && status < (int)COUNT_OF(names) ? names[status] : "UNKNOWN";
  return px__cuda_core->error(PX_RUNTIME, status, __FILE__, __LINE__, __func__,
                              "cusolver error: CUSOLVER_STATUS_%s, when calling `%s`", name, call);
}

// Creates a handle or parameter object once.
static px_status ready(void **made, int (*create)(void **), const char *name) {
  int status = *made ? 0 : create(made);
  return status ? *made = NULL, failed(status, name) : PX_OK;
}

// Lock held.
static px_status run(px__cusolver_task *t, int dtype, int64_t count) {
  void *info;
  void **handle = &devices[t->l->device].handle;
  void **jacobi = &devices[t->l->device].jacobi, **svd = &devices[t->l->device].svd_jacobi;
  PX_CUDA_PASS(ready(handle, base.cusolverDnCreate, "cusolverDnCreate(handle)"));
  PX_CUDA_PASS(ready(jacobi, base.cusolverDnCreateSyevjInfo, "cusolverDnCreateSyevjInfo"));
  PX_CUDA_PASS(ready(svd, base.cusolverDnCreateGesvdjInfo, "cusolverDnCreateGesvdjInfo"));
  void **options = &devices[t->l->device].options;
  if (base.cusolverDnCreateParams)
    PX_CUDA_PASS(ready(options, base.cusolverDnCreateParams, "cusolverDnCreateParams"));
  t->options = *options;
  t->handle = *handle, t->jacobi = *jacobi, t->svd_jacobi = *svd, t->count = (int)count;
  int status = base.cusolverDnSetStream(t->handle, t->l->stream);
  if (!status && t->query) status = t->query(t, &t->work_size);
  if (status) return failed(status, t->name);
  size_t bytes = (size_t)t->work_size * px__cuda_dtype_size(dtype);
  PX_CUDA_PASS(px__cuda_scratch(t->l, sizeof(int), &info));
  if (bytes) PX_CUDA_PASS(px__cuda_scratch(t->l, bytes, &t->work));
  t->info = info;
  t->host = t->host_bytes ? malloc(t->host_bytes) : NULL;
  if (t->host_bytes && !t->host)
    PX_CUDA_FAIL(PX_NOMEM, "%s: could not allocate %zu bytes of host workspace", t->name,
                 t->host_bytes);
  if (t->synchronizes) PX_CUDA_PASS(px__cuda_stream_synchronize(t->l->stream));
  if (t->run_batch) status = t->run_batch(t);
  for (int64_t i = 0; !t->run_batch && i < count && !status; i++) status = t->run_one(t, i);
  free(t->host);
  return status ? failed(status, t->name) : PX_OK;
}

px_status px__cusolver_run(px__cusolver_task *t, int dtype, int64_t count) {
  if (!count) return PX_OK;
  pthread_once(&once, load);
  if (!loaded)
    PX_CUDA_FAIL(PX_RUNTIME,
                 "%s on cuda:%d needs cuSOLVER (libcusolver.so.12), which was not found; set "
                 "PHLOX_CUDA_PATH to its folder",
                 t->l->op, t->l->device);
  t->api = &typed[px__cuda_kind(dtype)], t->common = &base;
  pthread_mutex_lock(&devices[t->l->device].lock);
  px_status status = run(t, dtype, count);
  pthread_mutex_unlock(&devices[t->l->device].lock);
  return status;
}

const px__cusolver_common *px__cusolver_any(void) {
  pthread_once(&once, load);
  return loaded ? &base : NULL;
}
