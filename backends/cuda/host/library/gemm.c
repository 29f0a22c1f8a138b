// SPDX-License-Identifier: Apache-2.0
// Batched matrix products: maps strided operands to cuBLAS's column-major matrices.
//
// Each device has one cuBLAS handle, used under its lock. float32 is computed in float32 unless a
// setting allows TF32. fp16 and bf16 accumulate in float32; partial sums may be combined in their
// own precision if a setting allows it.
#include "cuda/host/library/gemm.h"

#include <pthread.h>
#include <string.h>

// ---- the library

typedef struct blas_api {
#define XX(name, parameters) int(*name) parameters;
#define YY(name, parameters)
#include "cuda/cublas.sym"
#undef XX
#undef YY
} blas_api;
static blas_api blas;
static const px__cuda_symbol symbols[] = {
#define XX(name, parameters) {#name, offsetof(blas_api, name)},
#define YY(name, parameters)
#include "cuda/cublas.sym"
#undef XX
#undef YY
};
// Functions for one dtype.
typedef struct typed_api {
#define XX(name, parameters)
#define YY(name, parameters) int(*name) parameters;
#include "cuda/cublas.sym"
#undef XX
#undef YY
} typed_api;
static typed_api typed[PX__CUDA_KINDS];
#define XX(name, parameters)
#define YY(name, parameters) {"cublas" LETTER #name, offsetof(typed_api, name)},
static const px__cuda_symbol typed_symbols[PX__CUDA_KINDS][4] = {
#define LETTER "S"
    {
#include "cuda/cublas.sym"
    },
#undef LETTER
#define LETTER "D"
    {
#include "cuda/cublas.sym"
    },
#undef LETTER
#define LETTER "C"
    {
#include "cuda/cublas.sym"
    },
#undef LETTER
#define LETTER "Z"
    {
#include "cuda/cublas.sym"
    },
#undef LETTER
};
#undef XX
#undef YY
// Constants of cuBLAS's headers.
enum { NO_TRANSPOSE = 0, TRANSPOSE = 1, ALGORITHM = -1, SUCCESS = 0 };
enum { DEFAULT_MATH = 0, WIDE_REDUCTIONS = 16 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static struct {
  pthread_mutex_t lock;
  void *handle;
} devices[PX__CUDA_DEVICES];

static void load(void) {
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
  for (int i = 0; i < PX__CUDA_DEVICES; i++) pthread_mutex_init(&devices[i].lock, NULL);
  void *library = px__cuda_library(names, 2);
  loaded = px__cuda_symbols(&blas, library, symbols, sizeof symbols / sizeof *symbols);
  for (int k = 0; k < PX__CUDA_KINDS; k++)
    loaded &= px__cuda_symbols(&typed[k], library, typed_symbols[k], 4);
}

static px_status failed(int status, const char *call) {
  static const char *const names[] = {
      [1] = "NOT_INITIALIZED", [3] = "ALLOC_FAILED",   [7] = "INVALID_VALUE",
      [8] = "ARCH_MISMATCH",   [11] = "MAPPING_ERROR", [13] = "EXECUTION_FAILED",
      [14] = "INTERNAL_ERROR", [15] = "NOT_SUPPORTED"};
  const char *name = status > 0 && status < 16 && names[status] ? names[status] : "UNKNOWN";
  return px__cuda_core->error(PX_RUNTIME, status, __FILE__, __LINE__, __func__,
                              "CUDA error: CUBLAS_STATUS_%s when calling `%s`", name, call);
}

// Returns the device's handle, creating it first if needed. Lock held.
static px_status handle_of(void **out, int device) {
  int status = devices[device].handle ? SUCCESS : blas.cublasCreate_v2(&devices[device].handle);
  *out = devices[device].handle;
  return status == SUCCESS ? PX_OK : failed(status, "cublasCreate(handle)");
}

// ---- layouts

static int64_t at_least_one(int64_t n) { return n > 1 ? n : 1; }

static bool describe_layout(px__cuda_layout *out, const px__cuda_matrices *x) {
  int64_t rows = x->sizes[1], cols = x->sizes[2], r = x->strides[1], c = x->strides[2];
  *out = (px__cuda_layout){.at = x->at, .batch = x->sizes[0] > 1 ? x->strides[0] : 0};
  if ((c == 1 || cols <= 1) && (rows <= 1 || r >= at_least_one(cols))) {
    out->rows = true;
    out->ld = rows <= 1 ? at_least_one(cols) : r;
    return true;
  }
  out->ld = cols <= 1 ? at_least_one(rows) : c;
  return (r == 1 || rows <= 1) && (cols <= 1 || c >= at_least_one(rows));
}

static int64_t count_of(const px__cuda_matrices *x) {
  return x->sizes[0] * x->sizes[1] * x->sizes[2];
}

static px_status copy_matrices(const px_launch *l, const px__cuda_matrices *to,
                               const px__cuda_matrices *from, int dtype) {
  k_strided copy = {.to = to->at, .from = from->at};
  memcpy(copy.sizes, to->sizes, sizeof copy.sizes);
  memcpy(copy.to_strides, to->strides, sizeof copy.to_strides);
  memcpy(copy.from_strides, from->strides, sizeof copy.from_strides);
  return px__cuda_strided_copy(l, &copy, dtype);
}

// Allocates row-major scratch memory for the same matrices.
static px_status allocate_dense(const px_launch *l, px__cuda_matrices *out,
                                const px__cuda_matrices *x, int dtype) {
  *out = *x;
  out->strides[0] = x->sizes[1] * x->sizes[2];
  out->strides[1] = x->sizes[2];
  out->strides[2] = 1;
  return px__cuda_scratch(l, (size_t)count_of(x) * px__cuda_dtype_size(dtype), &out->at);
}

static px_status prepare_input(const px_launch *l, px__cuda_layout *out, const px__cuda_matrices *x,
                               int dtype) {
  px__cuda_matrices dense;
  if (describe_layout(out, x) || !count_of(x)) return PX_OK;
  PX_CUDA_PASS(allocate_dense(l, &dense, x, dtype));
  PX_CUDA_PASS(copy_matrices(l, &dense, x, dtype));
  describe_layout(out, &dense);
  return PX_OK;
}

// ---- the product

// For a row-major c, computes its transpose: the factors transposed, in reverse order.
static int call(void *handle, const px__cuda_product *p, const px__cuda_layout *c,
                const px__cuda_layout *a, const px__cuda_layout *b) {
  const px__cuda_layout *first = c->rows ? b : a, *second = c->rows ? a : b;
  int64_t m = p->c.sizes[c->rows ? 2 : 1], n = p->c.sizes[c->rows ? 1 : 2], k = p->a.sizes[2];
  px__cuda_arithmetic kind = px__cuda_arithmetic_of(p->dtype);
  float factors[2][2] = {{(float)p->alpha}, {(float)p->beta}};  // complex scalars: imaginary part 0
  double wide[2][2] = {{p->alpha}, {p->beta}};
  bool is_wide = p->dtype == PX_FLOAT64 || p->dtype == PX_COMPLEX128;
  return blas.cublasGemmStridedBatchedEx_64(
      handle, first->rows == c->rows ? NO_TRANSPOSE : TRANSPOSE,
      second->rows == c->rows ? NO_TRANSPOSE : TRANSPOSE, m, n, k,
      is_wide ? (void *)wide[0] : (void *)factors[0], first->at, kind.type, first->ld, first->batch,
      second->at, kind.type, second->ld, second->batch,
      is_wide ? (void *)wide[1] : (void *)factors[1], c->at, kind.type, c->ld, c->batch,
      p->c.sizes[0], kind.compute, ALGORITHM);
}

static px_status run(const px_launch *l, const px__cuda_product *p, const px__cuda_layout *c,
                     const px__cuda_layout *a, const px__cuda_layout *b) {
  void *handle;
  size_t bytes = px__cuda_workspace_size(l, p);
  void *workspace = bytes ? px__cuda_core->scratch(l, bytes) : NULL;
  pthread_mutex_lock(&devices[l->device].lock);
  px_status result = handle_of(&handle, l->device);
  if (result == PX_OK) {
    int status = blas.cublasSetStream_v2(handle, l->stream);
    if (status == SUCCESS && workspace)
      status = blas.cublasSetWorkspace_v2(handle, workspace, bytes);
    int mode = px__cuda_reduced_precision(p->dtype) ? DEFAULT_MATH : WIDE_REDUCTIONS;
    if (status == SUCCESS) status = blas.cublasSetMathMode(handle, mode);
    if (status == SUCCESS) status = call(handle, p, c, a, b);
    if (status != SUCCESS) result = failed(status, "cublasGemmStridedBatchedEx");
  }
  pthread_mutex_unlock(&devices[l->device].lock);
  return result;
}

static bool same_layout(const px__cuda_matrices *a, const px__cuda_matrices *b) {
  if (a->at != b->at) return false;
  for (int i = 0; i < 3; i++)
    if (a->sizes[i] > 1 && a->strides[i] != b->strides[i]) return false;
  return true;
}

// True if s is one dense row broadcast over all rows: a bias.
static bool is_bias(const px__cuda_product *p) {
  return p->beta == 1 && p->c.sizes[0] == 1 && p->s.strides[1] == 0 && p->s.strides[2] == 1 &&
         p->c.sizes[1] > 1 && p->c.sizes[2] > 1 && p->a.sizes[2] > 0;
}

// Integer products are not implemented on devices, as in PyTorch; errors use its function names.
static px_status reject_dtype(const px_launch *l, int dtype) {
  static const char *const names[][2] = {{"mm", "addmm_cuda"},      {"addmm", "addmm_cuda"},
                                         {"bmm", "baddbmm_cuda"},   {"baddbmm", "baddbmm_cuda"},
                                         {"mv", "addmv_impl_cuda"}, {"dot", "dot"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (l->op && !strcmp(l->op, names[i][0]))
      PX_CUDA_FAIL(PX_UNIMPLEMENTED, "\"%s\" not implemented for '%s'", names[i][1],
                   px__cuda_dtype_class(dtype));
  return px__cuda_missing(l, dtype);
}

static px_status require_cublas(const px_launch *l) {
  pthread_once(&once, load);
  if (!loaded)
    PX_CUDA_FAIL(PX_RUNTIME,
                 "%s on cuda:%d needs cuBLAS (libcublas.so.13), which was not found; set "
                 "PHLOX_CUDA_PATH to its folder",
                 l->op, l->device);
  return PX_OK;
}

// Runs `work` with a handle on the launch's stream. It returns cuBLAS's status and sets the
// function's name for errors.
static px_status with_handle(const px_launch *l, const void *task,
                             int (*work)(void *handle, const void *task, const char **name)) {
  void *handle;
  const char *name = "cublasSetStream";
  PX_CUDA_PASS(require_cublas(l));
  pthread_mutex_lock(&devices[l->device].lock);
  px_status result = handle_of(&handle, l->device);
  if (result == PX_OK) {
    int status = blas.cublasSetStream_v2(handle, l->stream);
    if (status == SUCCESS) status = work(handle, task, &name);
    if (status != SUCCESS) result = failed(status, name);
  }
  pthread_mutex_unlock(&devices[l->device].lock);
  return result;
}

static int solve_triangle(void *handle, const void *task, const char **name) {
  const float one[2] = {1};
  const double wide_one[2] = {1};
  const px__cuda_triangle *t = task;
  bool wide = t->dtype == PX_FLOAT64 || t->dtype == PX_COMPLEX128;
  *name = "cublas<t>trsm";
  return typed[px__cuda_kind(t->dtype)].trsm_v2(
      handle, t->right, t->upper, t->operation, t->unit, t->m, t->n,
      wide ? (const void *)wide_one : (const void *)one, t->a, t->lda, t->b, t->ldb);
}
px_status px__cuda_solve_triangle(const px_launch *l, const px__cuda_triangle *t) {
  return with_handle(l, t, solve_triangle);
}

static int solve_systems(void *handle, const void *task, const char **name) {
  const px__cuda_systems *s = task;
  const typed_api *api = &typed[px__cuda_kind(s->dtype)];
  int status = SUCCESS, wrong = 0;
  *name = "cublas<t>getrfBatched";
  if (s->factor)
    status = api->getrfBatched(handle, s->n, s->a, s->lda, s->pivots, s->info, s->count);
  if (status != SUCCESS || !s->solve) return status;
  *name = "cublas<t>getrsBatched";
  return api->getrsBatched(handle, s->operation, s->n, s->columns, s->a, s->lda, s->pivots, s->b,
                           s->ldb, &wrong, s->count);
}
px_status px__cuda_solve_systems(const px_launch *l, const px__cuda_systems *s) {
  return with_handle(l, s, solve_systems);
}

static int factor_qr(void *handle, const void *task, const char **name) {
  const px__cuda_qr *r = task;
  int wrong = 0;  // host memory: index of an invalid argument
  *name = "cublas<t>geqrfBatched";
  return typed[px__cuda_kind(r->dtype)].geqrfBatched(handle, r->m, r->n, r->a, r->lda, r->tau,
                                                     &wrong, r->count);
}
px_status px__cuda_factor_qr(const px_launch *l, const px__cuda_qr *r) {
  return with_handle(l, r, factor_qr);
}

px_status px__cuda_multiply(const px_launch *l, px__cuda_product p) {
  px__cuda_layout a, b, c;
  pthread_once(&once, load);
  if (!count_of(&p.c)) return PX_OK;
  if (px__cuda_arithmetic_of(p.dtype).type < 0) return reject_dtype(l, p.dtype);
  if (px__cuda_is_dots(&p) && count_of(&p.c) < INT32_MAX) return px__cuda_dots(l, &p);
  if (!loaded)
    PX_CUDA_FAIL(PX_RUNTIME,
                 "%s on cuda:%d needs cuBLAS (libcublas.so.13), which was not found; set "
                 "PHLOX_CUDA_PATH to its folder",
                 l->op, l->device);
  px__cuda_matrices result = p.c;
  bool fits = describe_layout(&c, &result);
  if (!fits) {
    PX_CUDA_PASS(allocate_dense(l, &p.c, &result, p.dtype));
    describe_layout(&c, &p.c);
  }
  if (!p.s.at) p.beta = 0;
  PX_CUDA_PASS(prepare_input(l, &a, &p.a, p.dtype));
  PX_CUDA_PASS(prepare_input(l, &b, &p.b, p.dtype));
  if (!(is_bias(&p) && c.rows && px__cuda_multiply_lt(l, &p, &c, &a, &b, true))) {
    if (p.beta != 0 && !same_layout(&p.s, &p.c))
      PX_CUDA_PASS(copy_matrices(l, &p.c, &p.s, p.dtype));
    if (!px__cuda_multiply_lt(l, &p, &c, &a, &b, false)) PX_CUDA_PASS(run(l, &p, &c, &a, &b));
  }
  return fits ? PX_OK : copy_matrices(l, &result, &p.c, p.dtype);
}
