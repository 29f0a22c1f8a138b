// SPDX-License-Identifier: Apache-2.0
// Host functions of random.cu. The numbers depend on l->blocks, the grid size of PyTorch's launch.
#include "cuda/host/ops/kernel.h"
#include "cuda/host/ops/sort.h"
#include "kernel_args/random.h"

#include <math.h>

// Parameters for numbers written to `out` in its own dtype.
static k_random start(px__cuda_dense *d, const px_operand *out) {
  const px_launch *l = d->launch;
  return (k_random){.where = px__cuda_where(l),
                    .out = px__cuda_dense_out(d, out, out->dtype),
                    .n = px_operand_numel(out),
                    .dtype = out->dtype,
                    .seed = l->seed,
                    .offset = l->offset,
                    .state = l->random};
}
static px_status draw_floats(const px_launch *l, const char *name, k_random *p, int64_t blocks) {
  return px__cuda_by_dtype(l, "random", name, p->dtype, p->n ? blocks : 0, K_BLOCK, p);
}
static px_status draw_any(const px_launch *l, const char *name, k_random *p, int64_t blocks) {
  void *params[] = {p};
  return px__cuda_launch(l, "random", name, p->n ? (unsigned)blocks : 0, K_BLOCK, 0, params);
}

PX_CUDA_KERNEL(uniform) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  p.a = args->from, p.b = args->to;
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_floats(l, "uniform", &p, l->blocks));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(normal) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  p.a = args->mean, p.b = args->std;
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_floats(l, "normal", &p, l->blocks));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(exponential) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  p.a = args->lambd;
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_floats(l, "exponential", &p, l->blocks));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(bernoulli_scalar) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  p.a = args->p, p.b = 1;
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_any(l, "chance", &p, l->blocks));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(dropout_mask) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  p.a = args->keep, p.b = 1 / p.a, p.from = args->lanes;
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_floats(l, "dropout", &p, l->blocks));
  return px__cuda_dense_close(&d);
}
// Probabilities from a tensor.
PX_CUDA_KERNEL(bernoulli) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  p.in = px__cuda_dense_in(&d, args->self, args->self->dtype);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "random", "bernoulli", args->self->dtype,
                                 (p.n + K_BLOCK - 1) / K_BLOCK, K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}

// ---- distributions with a variable number of draws; parameters are operands or numbers

typedef struct parameter {
  const px_operand *from;
  double number;
} parameter;
static px_status draw_each(const px_launch *l, const char *name, const px_operand *out,
                           parameter first, parameter second) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, out);
  p.a = first.number, p.b = second.number;
  if (first.from) p.in = px__cuda_dense_in(&d, first.from, PX_FLOAT64);
  if (second.from) p.in2 = px__cuda_dense_in(&d, second.from, PX_FLOAT64);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_any(l, name, &p, (p.n + K_BLOCK - 1) / K_BLOCK));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(geometric) {
  return draw_each(l, "drawn_geometric", args->out, (parameter){.number = args->p}, (parameter){0});
}
PX_CUDA_KERNEL(cauchy) {
  return draw_each(l, "drawn_cauchy", args->out, (parameter){.number = args->median},
                   (parameter){.number = args->sigma});
}
PX_CUDA_KERNEL(log_normal) {
  return draw_each(l, "drawn_log_normal", args->out, (parameter){.number = args->mean},
                   (parameter){.number = args->std});
}
PX_CUDA_KERNEL(_standard_gamma) {
  return draw_each(l, "drawn_gamma", args->out, (parameter){.from = args->self},
                   (parameter){.number = px__dtypes[args->out->dtype].tiny});
}
PX_CUDA_KERNEL(poisson_draw) {
  return draw_each(l, "drawn_poisson", args->out, (parameter){.from = args->self}, (parameter){0});
}
PX_CUDA_KERNEL(binomial_draw) {
  return draw_each(l, "drawn_binomial", args->out, (parameter){.from = args->count},
                   (parameter){.from = args->prob});
}

PX_CUDA_KERNEL(random) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  PX_CUDA_PASS(d.status);
  bool ranged = px__random_range(&args->from, &args->to, &p.from, &p.range);
  if (!ranged) p.range = px__random_values(p.dtype);
  p.wide = ranged ? p.range >= UINT64_C(1) << 28 : p.dtype == PX_INT64 || p.dtype == PX_FLOAT64;
  PX_CUDA_PASS(draw_any(l, "whole", &p, l->blocks));
  return px__cuda_dense_close(&d);
}

// ---- permutations

static int key_bits(int64_t n) {
  double x = (double)n, bits = ceil(log2(x - (6 * x * x + 1) / (log(0.9) * 12)));
  return bits < 64 ? (int)bits : 64;
}
// Sorts by random keys, then shuffles runs of equal keys.
PX_CUDA_KERNEL(randperm_fill) {
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  PX_CUDA_PASS(d.status);
  if (p.n == 0) return PX_OK;
  void *buffers[4];
  for (int i = 0; i < 4; i++) PX_CUDA_PASS(px__cuda_scratch(l, (size_t)p.n * 8, &buffers[i]));
  p.keys = buffers[0], p.scratch = buffers[1], p.bits = key_bits(p.n);
  PX_CUDA_PASS(draw_any(l, "order_keys", &p, l->blocks));
  k_sort s = {.in = p.keys, .from = p.scratch, .out = buffers[2], .indices = buffers[3]};
  s.lines = 1, s.size = s.take = p.n;
  px__cuda_sort_as(&s, PX_INT64, false);
  s.passes = (p.bits + 7) / 8;
  PX_CUDA_PASS(px__cuda_sort_lines(l, &s));
  int64_t stride = l->blocks * K_BLOCK;
  p.keys = s.out, p.scratch = s.indices;
  p.offset += (uint64_t)((p.n - 1) / (stride * 2) + 1) * 4;
  PX_CUDA_PASS(px__cuda_over(l, "random", "order_runs", p.n, &p));
  return px__cuda_dense_close(&d);
}

PX_CUDA_KERNEL(multinomial) {
  const px_operand *self = args->self;
  int64_t numel = px_operand_numel(self), n = self->sizes[self->ndim - 1];
  px__cuda_dense d = {.launch = l};
  k_random p = start(&d, args->out);
  p.in = px__cuda_dense_in(&d, self, PX_FLOAT64), p.range = (uint64_t)n, p.rows = n ? numel / n : 0;
  p.from = args->num_samples, p.replacement = args->replacement;
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(numel + 1) * sizeof(double), &p.scratch));
  PX_CUDA_PASS(px__cuda_over(l, "random", "multinomial", p.rows, &p));
  return px__cuda_dense_close(&d);
}
