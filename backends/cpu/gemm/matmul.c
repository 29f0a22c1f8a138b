// SPDX-License-Identifier: Apache-2.0
// Kernels of matrix products: translate operands to px__gemm and select parallelism over or within
// batches. Strides are passed through; nothing is copied.
#include "cpu/convert/dense.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_limits.h"
#include "cpu/threads/threads.h"
#include "kernel_args/linalg.h"

// Strides of the last two dimensions; 0 for missing dimensions and those of size 1.
static void last_two(const px_operand *o, int64_t *r, int64_t *c) {
  *c = o->ndim >= 1 && o->sizes[o->ndim - 1] != 1 ? o->strides[o->ndim - 1] : 0;
  *r = o->ndim >= 2 && o->sizes[o->ndim - 2] != 1 ? o->strides[o->ndim - 2] : 0;
}
static int64_t batch_stride(const px_operand *o) {
  return o->ndim == 3 && o->sizes[0] != 1 ? o->strides[0] : 0;
}

static px__gemm product_of(const px_operand *c, const px_operand *a, const px_operand *b) {
  int cd = c->ndim, ad = a->ndim, bd = b->ndim;
  return (px__gemm){.m = c->sizes[cd - 2],
                    .n = c->sizes[cd - 1],
                    .k = a->sizes[ad - 1],
                    .a = a->data,
                    .ar = a->strides[ad - 2],
                    .ac = a->strides[ad - 1],
                    .b = b->data,
                    .br = b->strides[bd - 2],
                    .bc = b->strides[bd - 1],
                    .c = c->data,
                    .cr = c->strides[cd - 2],
                    .cc = c->strides[cd - 1],
                    .alpha = 1};
}
static px_status multiply(const px_launch *l, const px__gemm *g, int dtype) {
  if (!px__gemm_any(g, dtype, true)) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
  return PX_OK;
}

PX_KERNEL(mm) {
  px__gemm g = product_of(args->out, args->self, args->mat2);
  return multiply(l, &g, args->out->dtype);
}
PX_KERNEL(addmm) {
  px__gemm g = product_of(args->out, args->mat1, args->mat2);
  g.s = args->self->data;
  last_two(args->self, &g.sr, &g.sc);
  g.beta = px_scalar_float(args->beta);
  g.alpha = px_scalar_float(args->alpha);
  // As in BLAS, the matrices are not read if alpha is 0. PyTorch reads fp16 and bf16 ones.
  bool by_blas = args->out->dtype == PX_FLOAT32 || args->out->dtype == PX_FLOAT64;
  if (g.alpha == 0 && by_blas) g.k = 0;
  return multiply(l, &g, args->out->dtype);
}
PX_KERNEL(mv) {
  const px_operand *c = args->out, *a = args->self, *x = args->vec;
  px__gemm g = {.m = a->sizes[0],
                .n = 1,
                .k = a->sizes[1],
                .a = a->data,
                .ar = a->strides[0],
                .ac = a->strides[1],
                .b = x->data,
                .br = x->strides[0],
                .bc = 1,
                .c = c->data,
                .cr = c->strides[0],
                .cc = 1,
                .alpha = 1};
  return multiply(l, &g, c->dtype);
}
PX_KERNEL(dot) {
  const px_operand *c = args->out, *a = args->self, *b = args->tensor;
  px__gemm g = {.m = 1,
                .n = 1,
                .k = a->sizes[0],
                .a = a->data,
                .ar = 0,
                .ac = a->strides[0],
                .b = b->data,
                .br = b->strides[0],
                .bc = 1,
                .c = c->data,
                .cr = 1,
                .cc = 1,
                .alpha = 1};
  return multiply(l, &g, c->dtype);
}

// ---- batches
typedef struct batch {
  px__gemm g;
  int dtype;
  int64_t as, bs, cs, ss;  // batch strides in bytes
  bool inner, failed;      // inner: each product uses the thread pool
} batch;
static void batch_run(void *ctx, int64_t begin, int64_t end) {
  batch *t = ctx;
  for (int64_t i = begin; i < end; i++) {
    px__gemm g = t->g;
    g.a = (const char *)g.a + i * t->as;
    g.b = (const char *)g.b + i * t->bs;
    g.c = (char *)g.c + i * t->cs;
    if (g.s) g.s = (const char *)g.s + i * t->ss;
    if (!px__gemm_any(&g, t->dtype, t->inner)) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  }
}
static px_status batch_multiply(const px_launch *l, const px_operand *c, const px_operand *s,
                                const px_operand *a, const px_operand *b, double beta,
                                double alpha) {
  int64_t item = (int64_t)px_dtype_size((px_dtype)c->dtype);
  int64_t count = px_operand_numel(c) ? c->sizes[0] : 0;  // the batch of empty products may be huge
  batch t = {.g = product_of(c, a, b),
             .dtype = c->dtype,
             .as = a->strides[0] * item,
             .bs = b->strides[0] * item,
             .cs = c->strides[0] * item};
  t.g.alpha = alpha;
  if (s) {
    t.g.s = s->data, t.g.beta = beta, t.ss = batch_stride(s) * item;
    last_two(s, &t.g.sr, &t.g.sc);
  }
  int64_t work = t.g.m * t.g.n * t.g.k + 1;
  t.inner = count == 1 || (count <= BATCH_MAX_DIVIDED && work > BATCH_MAX_WHOLE_WORK);
  if (t.inner)
    batch_run(&t, 0, count);
  else
    px__cpu_parallel(count, work > BATCH_UNIT_WORK ? 1 : BATCH_UNIT_WORK / work, batch_run, &t);
  if (t.failed) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
  return PX_OK;
}
PX_KERNEL(bmm) { return batch_multiply(l, args->out, NULL, args->self, args->mat2, 0, 1); }
PX_KERNEL(baddbmm) {
  return batch_multiply(l, args->out, args->self, args->batch1, args->batch2,
                        px_scalar_float(args->beta), px_scalar_float(args->alpha));
}
