// SPDX-License-Identifier: Apache-2.0
// Host functions of random.cu. The numbers depend on l->blocks, the grid size of PyTorch's launch.
#include "cuda/host/ops/kernel.h"
#include "cuda/host/ops/sort.h"
#include "kernel_args/random.h"

#include <math.h>

// Sets the parameters that all kernels have. `out` is written in its own dtype.
static void start(k_random *p, px__cuda_dense *d, const px_operand *out) {
  const px_launch *l = d->launch;
  p->where = px__cuda_where(l);
  p->out = px__cuda_dense_out(d, out, out->dtype);
  p->n = px_operand_numel(out);
  p->dtype = out->dtype;
  p->seed = l->seed, p->offset = l->offset, p->state = l->random;
}
static px_status draw_floats(const px_launch *l, const char *name, k_random *p, int64_t blocks) {
  return px__cuda_by_dtype(l, "random", name, p->dtype, p->n ? blocks : 0, K_BLOCK, p);
}
static px_status draw_any(const px_launch *l, const char *name, k_random *p, int64_t blocks) {
  void *params[] = {p};
  return px__cuda_launch(l, "random", name, p->n ? (unsigned)blocks : 0, K_BLOCK, 0, params);
}

// ---- kernels without operands: numbers in the order of memory, as in PyTorch

static px_status fill(const px_launch *l, const px_operand *out, const char *name,
                      px_status (*draw)(const px_launch *, const char *, k_random *, int64_t),
                      k_random p) {
  px__cuda_dense d = {.launch = l};
  px__ordered ordered;
  start(&p, &d, px__by_stride(&ordered, out));
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw(l, name, &p, l->blocks));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(uniform) {
  return fill(l, args->out, "uniform", draw_floats, (k_random){.a = args->from, .b = args->to});
}
PX_CUDA_KERNEL(normal) {
  return fill(l, args->out, "normal", draw_floats, (k_random){.a = args->mean, .b = args->std});
}
PX_CUDA_KERNEL(exponential) {
  return fill(l, args->out, "exponential", draw_floats, (k_random){.a = args->lambd});
}
PX_CUDA_KERNEL(cauchy) {
  return fill(l, args->out, "cauchy", draw_floats, (k_random){.a = args->median, .b = args->sigma});
}
PX_CUDA_KERNEL(log_normal) {
  return fill(l, args->out, "log_normal", draw_floats, (k_random){.a = args->mean, .b = args->std});
}
PX_CUDA_KERNEL(geometric) {
  return fill(l, args->out, "geometric", draw_any, (k_random){.a = args->p});
}
PX_CUDA_KERNEL(bernoulli_scalar) {
  return fill(l, args->out, "chance", draw_any, (k_random){.a = args->p, .b = 1});
}
PX_CUDA_KERNEL(random) {
  k_random p = {0};
  int dtype = args->out->dtype;
  bool ranged = px__random_range(&args->from, &args->to, &p.from, &p.range);
  if (!ranged) p.range = px__random_values(dtype);
  p.wide = ranged ? p.range >= UINT64_C(1) << 28 : dtype == PX_INT64 || dtype == PX_FLOAT64;
  return fill(l, args->out, "whole", draw_any, p);
}

// ---- kernels with operands, and dropout: numbers in the order of dimensions

PX_CUDA_KERNEL(dropout_mask) {
  px__cuda_dense d = {.launch = l};
  k_random p = {.a = args->keep, .b = 1 / args->keep, .from = args->lanes};
  start(&p, &d, args->out);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_floats(l, "dropout", &p, l->blocks));
  return px__cuda_dense_close(&d);
}
// Probabilities from a tensor.
PX_CUDA_KERNEL(bernoulli) {
  px__cuda_dense d = {.launch = l};
  k_random p = {0};
  start(&p, &d, args->out);
  p.in = px__cuda_dense_in(&d, args->self, args->self->dtype);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_by_dtype(l, "random", "bernoulli", args->self->dtype,
                                 (p.n + K_BLOCK - 1) / K_BLOCK, K_BLOCK, &p));
  return px__cuda_dense_close(&d);
}

// ---- distributions with a variable number of draws

// The second parameter is an operand or a number.
static px_status draw_each(const px_launch *l, const char *name, const px_operand *out,
                           const px_operand *first, const px_operand *second, double number) {
  px__cuda_dense d = {.launch = l};
  k_random p = {.b = number};
  start(&p, &d, out);
  p.in = px__cuda_dense_in(&d, first, PX_FLOAT64);
  if (second) p.in2 = px__cuda_dense_in(&d, second, PX_FLOAT64);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(draw_any(l, name, &p, (p.n + K_BLOCK - 1) / K_BLOCK));
  return px__cuda_dense_close(&d);
}
PX_CUDA_KERNEL(_standard_gamma) {
  double least = px__dtypes[args->out->dtype].tiny;
  return draw_each(l, "drawn_gamma", args->out, args->self, NULL, least);
}
PX_CUDA_KERNEL(poisson_draw) {
  return draw_each(l, "drawn_poisson", args->out, args->self, NULL, 0);
}
PX_CUDA_KERNEL(binomial_draw) {
  return draw_each(l, "drawn_binomial", args->out, args->count, args->prob, 0);
}

// ---- permutations

static int key_bits(int64_t n) {
  double x = (double)n, bits = ceil(log2(x - (6 * x * x + 1) / (log(0.9) * 12)));
  return bits < 64 ? (int)bits : 64;
}
// Sorts by random keys, then shuffles runs of equal keys.
PX_CUDA_KERNEL(randperm_fill) {
  px__cuda_dense d = {.launch = l};
  k_random p = {0};
  start(&p, &d, args->out);
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
  k_random p = {0};
  start(&p, &d, args->out);
  p.in = px__cuda_dense_in(&d, self, PX_FLOAT64), p.range = (uint64_t)n, p.rows = n ? numel / n : 0;
  p.from = args->num_samples, p.replacement = args->replacement && p.from > 1;
  p.stride = l->blocks * K_BLOCK, p.wide = self->dtype == PX_FLOAT64;
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_scratch(l, (size_t)(numel + 1) * sizeof(double), &p.scratch));
  PX_CUDA_PASS(px__cuda_over(l, "random", "multinomial", p.rows, &p));
  return px__cuda_dense_close(&d);
}
