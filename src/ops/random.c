// SPDX-License-Identifier: Apache-2.0
// Run functions of the random ops: what a kernel draws from, how far the generator moves, and
// PyTorch's texts.
//
// On devices the numbers depend on the number of blocks that PyTorch would launch; the argument
// `generator`, which a kernel has no use for, carries it there.
#include "ops/run.h"
#include "ops/run_impl.h"

#define LL(x) ((long long)(x))
enum { BLOCK = 256 };

static px_status blocks_of(int64_t *out, px_device device, int64_t n) {
  *out = 1;
  if (device.type == PX_CPU || n <= 0) return PX_OK;
  px_device_properties p;
  PX_TRY(px_device_get_properties(&p, device.index));
  int64_t most = (int64_t)p.multi_processor_count * (p.max_threads_per_multi_processor / BLOCK);
  int64_t wanted = (n + BLOCK - 1) / BLOCK;
  *out = wanted < most ? wanted : most;
  return PX_OK;
}
// Says that the call's kernel draws n values, `unroll` at a time, with the generator at argument i.
static px_status draws(px_call *call, int i, int64_t n, int unroll) {
  px_value *g = &call->args[i];
  if (g->kind == PX_ARG_GENERATOR) {
    call->generator = g->v.generator;
    PX_TRY(px__generator_fits(call->generator, call->device));
  }
  int64_t blocks;
  PX_TRY(blocks_of(&blocks, call->device, n));
  *g = PX_I(blocks);
  call->uses_random = true;
  call->counter = px__philox_steps(call->device, n, unroll);
  return PX_OK;
}
static int unroll_of(px_dtype dtype) { return dtype == PX_FLOAT64 ? 2 : 4; }
static px_status fill_self(px_call *call, int generator, int unroll) {
  const px_tensor *t = px__arg_tensor(call, 0);
  PX_TRY(px__call_result(call, 0, t->ndim, t->sizes, (px_dtype)t->dtype));
  return draws(call, generator, t->numel, unroll);
}

PX_RUN(uniform) {
  double from = call->args[1].v.f, to = call->args[2].v.f;
  PX_CHECK(from <= to, PX_RUNTIME,
           "uniform_ expects to return a [from, to) range, but found from=%g > to=%g", from, to);
  return fill_self(call, 3, unroll_of((px_dtype)px__arg_tensor(call, 0)->dtype));
}
PX_RUN(normal) {
  double std = call->args[2].v.f;
  PX_CHECK(std >= 0, PX_RUNTIME, "normal expects std >= 0.0, but found std %g", std);
  return fill_self(call, 3, unroll_of((px_dtype)px__arg_tensor(call, 0)->dtype));
}
PX_RUN(exponential) {
  double rate = call->args[1].v.f;
  PX_CHECK(rate > 0, PX_RUNTIME, "exponential_ expects lambda > 0.0, but found lambda=%g", rate);
  return fill_self(call, 2, unroll_of((px_dtype)px__arg_tensor(call, 0)->dtype));
}
PX_RUN(random) {
  px_value *from = &call->args[1], *to = &call->args[2];
  px_dtype dtype = (px_dtype)px__arg_tensor(call, 0)->dtype;
  if (from->kind != PX_ARG_NONE && to->kind == PX_ARG_NONE) {
    *to = *from;
    *from = PX_I(0);
  }
  bool ranged = to->kind != PX_ARG_NONE;
  PX_CHECK(!ranged || from->v.i < to->v.i, PX_RUNTIME,
           "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
           LL(from->v.i), LL(to->v.i));
  uint64_t range = ranged ? (uint64_t)to->v.i - (uint64_t)from->v.i : 0;
  int narrow = call->device.type == PX_CPU ? 32 : 28;  // bits that one word serves, as in PyTorch
  bool wide = ranged ? range >= UINT64_C(1) << narrow : dtype == PX_INT64 || dtype == PX_FLOAT64;
  return fill_self(call, 3, wide ? 2 : 4);
}
PX_RUN(bernoulli_scalar) {
  double p = call->args[1].v.f;
  PX_CHECK(p >= 0 && p <= 1, PX_RUNTIME, "bernoulli_ expects p to be in [0, 1], but got p=%g", p);
  return fill_self(call, 2, unroll_of((px_dtype)px__arg_tensor(call, 0)->dtype));
}
PX_RUN(dropout_mask) { return fill_self(call, 3, 4); }
PX_RUN(bernoulli) {
  PX_TRY(fill_self(call, 1, 4));
  if (call->device.type != PX_CPU) call->counter = 12;  // a thread draws once; PyTorch reserves ten
  return PX_OK;
}
PX_RUN(randperm_fill) {
  PX_TRY(fill_self(call, 1, 2));
  // Each thread may draw as many numbers again as there are elements, to order equal keys.
  if (call->device.type != PX_CPU)
    call->counter += (uint64_t)(px__arg_tensor(call, 0)->numel + 3) / 4 * 4;
  return PX_OK;
}

PX_RUN(multinomial) {
  const px_tensor *p = px__arg_tensor(call, 0);
  int64_t samples = call->args[1].v.i;
  PX_CHECK(p->ndim == 1 || p->ndim == 2, PX_RUNTIME, "prob_dist must be 1 or 2 dim");
  PX_CHECK(samples > 0, PX_RUNTIME, "cannot sample n_sample <= 0 samples");
  PX_CHECK(px__arg_bool(call, 2) || samples <= p->sizes[p->ndim - 1], PX_RUNTIME,
           "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  bool no_rows = p->ndim == 2 && p->sizes[0] == 0;
  PX_CHECK(p->numel || no_rows, PX_RUNTIME,
           "invalid multinomial distribution (sum of probabilities <= 0)");
  int64_t sizes[2] = {p->sizes[0], samples};
  if (p->ndim == 1) sizes[0] = samples;
  PX_TRY(px__call_result(call, 0, p->ndim, sizes, PX_INT64));
  return draws(call, 3, px__arg_bool(call, 2) ? call->results[0]->numel : p->numel, 4);
}

// ---- makers: an empty tensor, filled. The last four arguments are those of all factories.

static px_dtype dtype_of(const px_call *call, px_dtype otherwise) {
  const px_value *a = &call->args[call->op->param_count - 4];
  return a->kind == PX_ARG_DTYPE ? (px_dtype)a->v.i : otherwise;
}
static px_device device_of(const px_call *call, px_device otherwise) {
  const px_value *a = &call->args[call->op->param_count - 3];
  return a->kind == PX_ARG_DEVICE ? a->v.device : otherwise;
}
static bool option(const px_call *call, int from_end) {
  return call->args[call->op->param_count - from_end].v.i != 0;
}
static px_status made(px_call *call, int64_t n, const int64_t *sizes, px_dtype dtype,
                      px_device device) {
  return px_empty(&call->results[0], sizes, n, dtype, device, option(call, 2), false);
}
// Marks the result as a leaf that needs a gradient, after it was filled.
static px_status marked(px_call *call, px_status status) {
  px_tensor *t = call->results[0];
  PX_TRY(status);
  if (!option(call, 1)) return PX_OK;
  PX_CHECK(px_dtype_is_float((px_dtype)t->dtype), PX_RUNTIME,
           "Only Tensors of floating point and complex dtype can require gradients");
  t->flags |= PX_TENSOR_NEEDS_GRAD;
  return PX_OK;
}
static px_generator *generator_at(const px_call *call, int i) {
  return call->args[i].kind == PX_ARG_GENERATOR ? call->args[i].v.generator : NULL;
}
PX_RUN(rand) {
  px_value size = call->args[0];
  PX_TRY(made(call, size.n, size.v.ints, dtype_of(call, PX_DTYPE_NONE),
              device_of(call, PX_DEVICE_NONE)));
  return marked(call, px_uniform_(call->results[0], 0, 1, generator_at(call, 1)));
}
PX_RUN(randn) {
  px_value size = call->args[0];
  PX_TRY(made(call, size.n, size.v.ints, dtype_of(call, PX_DTYPE_NONE),
              device_of(call, PX_DEVICE_NONE)));
  return marked(call, px_normal_(call->results[0], 0, 1, generator_at(call, 1)));
}
static px_status whole(px_call *call, int64_t low, int64_t high, int size_at) {
  px_value size = call->args[size_at];
  PX_TRY(
      made(call, size.n, size.v.ints, dtype_of(call, PX_INT64), device_of(call, PX_DEVICE_NONE)));
  return marked(call, px_random_(call->results[0], &low, &high, generator_at(call, size_at + 1)));
}
PX_RUN(randint) { return whole(call, call->args[0].v.i, call->args[1].v.i, 2); }
PX_RUN(randint_below) { return whole(call, 0, call->args[0].v.i, 1); }
PX_RUN(randperm) {
  int64_t n = call->args[0].v.i;
  PX_CHECK(n >= 0, PX_RUNTIME, "n must be non-negative, got%lld", LL(n));
  PX_TRY(made(call, 1, &n, dtype_of(call, PX_INT64), device_of(call, PX_DEVICE_NONE)));
  return marked(call, px_randperm_fill_(call->results[0], generator_at(call, 1)));
}
static px_status like(px_call *call) {
  const px_tensor *t = px__arg_tensor(call, 0);
  return made(call, t->ndim, t->sizes, dtype_of(call, (px_dtype)t->dtype),
              device_of(call, px__tensor_device(t)));
}
PX_RUN(rand_like) {
  PX_TRY(like(call));
  return marked(call, px_uniform_(call->results[0], 0, 1, NULL));
}
PX_RUN(randn_like) {
  PX_TRY(like(call));
  return marked(call, px_normal_(call->results[0], 0, 1, NULL));
}
PX_RUN(randint_like) {
  int64_t low = call->args[1].v.i, high = call->args[2].v.i;
  PX_TRY(like(call));
  return marked(call, px_random_(call->results[0], &low, &high, NULL));
}
PX_RUN(randint_like_below) {
  int64_t low = 0, high = call->args[1].v.i;
  PX_TRY(like(call));
  return marked(call, px_random_(call->results[0], &low, &high, NULL));
}
PX_RUN(bernoulli_like) {
  const px_tensor *self = px__arg_tensor(call, 0);
  PX_TRY(px__empty_as(&call->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return px_bernoulli_scalar_(call->results[0], call->args[1].v.f, generator_at(call, 2));
}
PX_RUN(bernoulli_tensor) {
  px_tensor *self = px__arg_tensor(call, 0);
  PX_SCOPED(px_tensor) chances = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_TRY(px_expand_as(&chances, px__arg_tensor(call, 1), self));
  PX_TRY(px_bernoulli(&drawn, chances, generator_at(call, 2)));
  PX_TRY(px__call_result(call, 0, self->ndim, self->sizes, (px_dtype)self->dtype));
  return px__tensor_copy(self, drawn, false);
}

// ---- normal(): standard numbers of the shape of mean and std, then scaled, then moved

static px_status standard_normal(px_call *call, int ndim, const int64_t *sizes,
                                 const px_tensor *like, double std, int generator) {
  PX_TRY(px_tensor_empty(&call->results[0], ndim, sizes, (px_dtype)like->dtype,
                         px__tensor_device(like)));
  return px_normal_(call->results[0], 0, std, generator_at(call, generator));
}
static px_status check_deviations(const px_tensor *std) {
  PX_SCOPED(px_tensor) least = NULL;
  px_scalar value;
  if (std->numel == 0) return PX_OK;
  PX_TRY(px_min(&least, std));
  PX_TRY(px_tensor_item(&value, least));
  PX_CHECK(px_scalar_float(value) >= 0, PX_RUNTIME, "normal expects all elements of std >= 0.0");
  return PX_OK;
}
PX_RUN(normal_of) {
  const px_tensor *mean = px__arg_tensor(call, 0), *std = px__arg_tensor(call, 1);
  int64_t sizes[PX_MAX_DIMS];
  int ndim;
  PX_TRY(check_deviations(std));
  PX_TRY(px__broadcast(&ndim, sizes, mean->ndim, mean->sizes, std->ndim, std->sizes));
  PX_TRY(standard_normal(call, ndim, sizes, mean, 1, 2));
  PX_TRY(px_mul_(call->results[0], std));
  return px_add_(call->results[0], mean, px_int(1));
}
PX_RUN(normal_around) {
  const px_tensor *mean = px__arg_tensor(call, 0);
  PX_TRY(standard_normal(call, mean->ndim, mean->sizes, mean, call->args[1].v.f, 2));
  return px_add_(call->results[0], mean, px_int(1));
}
PX_RUN(normal_wide) {
  const px_tensor *std = px__arg_tensor(call, 1);
  PX_TRY(check_deviations(std));
  PX_TRY(standard_normal(call, std->ndim, std->sizes, std, 1, 2));
  PX_SCOPED(px_tensor) mean = NULL;
  PX_TRY(px_tensor_from_scalar(&mean, px_float(call->args[0].v.f)));
  PX_TRY(px_mul_(call->results[0], std));
  return px_add_(call->results[0], mean, px_int(1));
}
PX_RUN(normal_sized) {
  px_value size = call->args[2];
  PX_TRY(made(call, size.n, size.v.ints, dtype_of(call, PX_DTYPE_NONE),
              device_of(call, PX_DEVICE_NONE)));
  double mean = call->args[0].v.f, std = call->args[1].v.f;
  return marked(call, px_normal_(call->results[0], mean, std, generator_at(call, 3)));
}
