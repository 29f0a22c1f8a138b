// SPDX-License-Identifier: Apache-2.0
// Host functions of random.cu. The argument `generator` carries the number of blocks that the
// numbers depend on.
#include "cuda/host/kernel.h"
#include "cuda/host/sort.h"

#include <math.h>

static px_status start(k_random *p, px__cuda_dense *d, const px_launch *l, const char *spec,
                       int dtype) {
  memset(p, 0, sizeof *p);
  PX_CUDA_PASS(px__cuda_open(d, l, spec, dtype));
  p->where = px__cuda_where(l);
  p->out = d[0].at, p->n = d[0].n, p->dtype = l->operands[0].dtype;
  p->seed = l->seed, p->offset = l->offset;
  return PX_OK;
}
static px_status draw_floats(const px_launch *l, const char *name, k_random *p, int generator) {
  return px__cuda_by_dtype(l, "random", name, p->dtype,
                           p->n ? px_value_int(l->params[generator]) : 0, K_BLOCK, p);
}
static px_status draw_any(const px_launch *l, const char *name, k_random *p, int generator) {
  void *params[] = {p};
  return px__cuda_launch(l, "random", name, p->n ? (unsigned)px_value_int(l->params[generator]) : 0,
                         K_BLOCK, 0, params);
}

// uniform_(self, from, to, generator), normal_(self, mean, std, generator)
static px_status two_numbers(const px_launch *l, const char *name) {
  px__cuda_dense d[1];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, "W", PX_FLOAT32));
  p.a = px__param_float(l, 1), p.b = px__param_float(l, 2);
  PX_CUDA_PASS(draw_floats(l, name, &p, 3));
  return px__cuda_close(d, l, "W");
}
PX_CUDA_KERNEL(uniform) { return two_numbers(l, "uniform"); }
PX_CUDA_KERNEL(normal) { return two_numbers(l, "normal"); }
// exponential_(self, lambd, generator)
PX_CUDA_KERNEL(exponential) {
  px__cuda_dense d[1];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, "W", PX_FLOAT32));
  p.a = px__param_float(l, 1);
  PX_CUDA_PASS(draw_floats(l, "exponential", &p, 2));
  return px__cuda_close(d, l, "W");
}

static px_status chance(const px_launch *l, double one) {
  px__cuda_dense d[1];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, "W", PX_FLOAT32));
  p.a = px__param_float(l, 1), p.b = one;
  PX_CUDA_PASS(draw_any(l, "chance", &p, 2));
  return px__cuda_close(d, l, "W");
}
PX_CUDA_KERNEL(bernoulli_scalar) { return chance(l, 1); }
// dropout_mask(self, keep, lanes, generator)
PX_CUDA_KERNEL(dropout_mask) {
  px__cuda_dense d[1];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, "W", PX_FLOAT32));
  p.a = px__param_float(l, 1), p.b = 1 / p.a, p.from = px__param_int(l, 2);
  PX_CUDA_PASS(draw_floats(l, "dropout", &p, 3));
  return px__cuda_close(d, l, "W");
}
// bernoulli(self, generator): the probabilities are a tensor
PX_CUDA_KERNEL(bernoulli) {
  static const char spec[] = "WR";
  px__cuda_dense d[2];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, spec, PX_FLOAT32));
  p.in = d[1].at;
  PX_CUDA_PASS(px__cuda_by_dtype(l, "random", "bernoulli", l->operands[1].dtype,
                                 (p.n + K_BLOCK - 1) / K_BLOCK, K_BLOCK, &p));
  return px__cuda_close(d, l, spec);
}

// The number of values that a dtype can draw without bounds.
static uint64_t full_range(int dtype) {
  static const uint64_t ranges[PX_DTYPE_COUNT] = {[PX_BOOL] = 2,
                                                  [PX_UINT8] = 256,
                                                  [PX_INT8] = 128,
                                                  [PX_INT16] = 32768,
                                                  [PX_INT32] = UINT64_C(1) << 31,
                                                  [PX_INT64] = UINT64_C(1) << 63,
                                                  [PX_FLOAT16] = (1 << 11) + 1,
                                                  [PX_BFLOAT16] = (1 << 8) + 1,
                                                  [PX_FLOAT32] = (1 << 24) + 1,
                                                  [PX_FLOAT64] = (UINT64_C(1) << 53) + 1};
  return ranges[dtype];
}
// random_(self, from, to, generator)
PX_CUDA_KERNEL(random) {
  px__cuda_dense d[1];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, "W", PX_FLOAT32));
  bool ranged = l->params[2].kind != PX_ARG_NONE;
  p.from = ranged ? px__param_int(l, 1) : 0;
  uint64_t range = ranged ? (uint64_t)px__param_int(l, 2) - (uint64_t)p.from : full_range(p.dtype);
  p.range = range;
  p.wide = ranged ? range >= UINT64_C(1) << 28 : p.dtype == PX_INT64 || p.dtype == PX_FLOAT64;
  PX_CUDA_PASS(draw_any(l, "whole", &p, 3));
  return px__cuda_close(d, l, "W");
}

// ---- orders

static int key_bits(int64_t n) {
  double x = (double)n, bits = ceil(log2(x - (6 * x * x + 1) / (log(0.9) * 12)));
  return bits < 64 ? (int)bits : 64;
}
// randperm_fill_(self, generator): sorts by random keys, then shuffles equal ones.
PX_CUDA_KERNEL(randperm_fill) {
  px__cuda_dense d[1];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, "W", PX_FLOAT32));
  if (p.n == 0) return PX_OK;
  void *room[4];
  for (int i = 0; i < 4; i++) PX_CUDA_PASS(px__cuda_scratch(l, (size_t)p.n * 8, &room[i]));
  p.keys = room[0], p.scratch = room[1], p.bits = key_bits(p.n);
  PX_CUDA_PASS(draw_any(l, "order_keys", &p, 1));
  k_sort s = {.in = p.keys, .from = p.scratch, .out = room[2], .indices = room[3]};
  s.lines = 1, s.size = s.take = p.n;
  px__cuda_sort_as(&s, PX_INT64, false);
  s.passes = (p.bits + 7) / 8;
  PX_CUDA_PASS(px__cuda_sort_lines(l, &s));
  int64_t stride = px_value_int(l->params[1]) * K_BLOCK;
  p.keys = s.out, p.scratch = s.indices;
  p.offset += (uint64_t)((p.n - 1) / (stride * 2) + 1) * 4;
  PX_CUDA_PASS(px__cuda_over(l, "random", "order_runs", p.n, &p));
  return px__cuda_close(d, l, "W");
}

// multinomial(self, num_samples, replacement, generator)
PX_CUDA_KERNEL(multinomial) {
  static const char spec[] = "Wr";
  px__cuda_dense d[2];
  k_random p;
  PX_CUDA_PASS(start(&p, d, l, spec, PX_FLOAT64));
  int64_t n = l->operands[1].sizes[l->operands[1].ndim - 1];
  p.in = d[1].at, p.range = (uint64_t)n, p.rows = n ? d[1].n / n : 0;
  p.from = px__param_int(l, 1), p.again = px__param_int(l, 2) != 0;
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(d[1].n + 1) * sizeof(double), &p.scratch));
  PX_CUDA_PASS(px__cuda_over(l, "random", "multinomial", p.rows, &p));
  return px__cuda_close(d, l, spec);
}
