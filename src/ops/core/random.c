// SPDX-License-Identifier: Apache-2.0
// Run functions of the random ops: checks, generator advances computed from arguments, and
// factories of random tensors.
#include <math.h>

#include "hidden/random.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/random.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/random.h"

#define LL(x) ((long long)(x))

// int64 needs no check: `from` and `to` are int64, and a double cannot represent INT64_MAX.
static px_status check_range(px_dtype dtype, int64_t from, int64_t to) {
  const px_dtype_info *info = px_dtype_about(dtype);
  if (dtype == PX_INT64) return PX_OK;
  PX_CHECK((double)from >= info->min, PX_RUNTIME, "from is out of bounds for %s", info->type_name);
  PX_CHECK((double)(to - 1) <= info->max, PX_RUNTIME, "to - 1 is out of bounds for %s",
           info->type_name);
  return PX_OK;
}
// Draws int64 numbers and converts them: kernels draw in their compute type.
static px_status random_converted(px_call *call, px_tensor *self, int64_t from, int64_t to,
                                  px_generator *generator) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px__empty_as(&wide, self, PX_INT64, px__tensor_device(self)));
  PX_TRY(px_random_(wide, &from, &to, generator));
  call->skip_launch = true;
  return px__tensor_copy(self, wide, false);
}
// The number of significant bits of a floating-point dtype.
static int digits_of(px_dtype dtype) {
  return dtype == PX_BFLOAT16 ? 8 : dtype == PX_FLOAT16 ? 11 : dtype == PX_FLOAT32 ? 24 : 53;
}
static int highest_bit(int64_t x) { return 63 - __builtin_clzll((uint64_t)llabs(x) | 1); }
// Rounds to a number of significant bits, halves to even. 2**63 wraps around.
static int64_t rounded(int64_t x, int digits) {
  int dropped = highest_bit(x) + 1 - digits;
  if (dropped <= 0) return x;
  uint64_t unit = UINT64_C(1) << dropped, rest = (uint64_t)x & (unit - 1), half = unit / 2;
  uint64_t below = (uint64_t)x - rest;
  return (int64_t)(below + (rest > half || (rest == half && below & unit) ? unit : 0));
}
// Narrows a range so that no number of it is rounded to `to` or beyond. The bounds are PyTorch's.
static px_status narrow_range(int64_t *from, int64_t *to, px_dtype dtype) {
  int digits = digits_of(dtype);
  int64_t first = rounded(*from + 1, digits), last = rounded(*to - 1, digits);
  if (first < *from) *from = first + (INT64_C(1) << (highest_bit(*from + 1) - digits + 1));
  if (last >= *to) *to = last - (INT64_C(1) << (highest_bit(*to - 1) - digits + 1));
  PX_CHECK(*from < *to, PX_RUNTIME,
           "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got "
           "from=%lld >= to=%lld",
           LL(*from), LL(*to));
  return PX_OK;
}
// Without `to`, `from` is the end of the range.
PX_RUN(random) {
  px_value from = px__given(args->to) ? args->from : PX_I(0);
  px_value to = px__given(args->to) ? args->to : args->from;
  px_dtype dtype = (px_dtype)args->self->dtype;
  bool ranged = px__given(to);
  PX_CHECK(!ranged || from.v.i < to.v.i, PX_RUNTIME,
           "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
           LL(from.v.i), LL(to.v.i));
  int64_t first = from.v.i, end = to.v.i;
  if (ranged && px_dtype_is_float(dtype)) PX_TRY(narrow_range(&first, &end, dtype));
  if (ranged) PX_TRY(check_range(dtype, first, end));
  if (ranged && (px__is_unsigned(dtype) || first != from.v.i || end != to.v.i))
    return random_converted(call, args->self, first, end, args->generator);
  uint64_t range = ranged ? (uint64_t)end - (uint64_t)first : 0;
  bool wide = ranged ? range >= UINT64_C(1) << 28 : dtype == PX_INT64 || dtype == PX_FLOAT64;
  return px__call_draws(call, args->generator, args->self->numel, wide ? 2 : 4);
}
PX_RUN(randperm_fill) {
  PX_TRY(px__call_draws(call, args->generator, args->self->numel, 2));
  // Reserves up to numel further draws for each thread, to order elements with equal keys.
  if (call->device.type != PX_CPU) call->counter += (uint64_t)(args->self->numel + 3) / 4 * 4;
  return PX_OK;
}

// ---- factories: an empty tensor, then filled

static px_status create(px_call *call, int64_t n, const int64_t *sizes, px__options o) {
  return px_empty(&call->results[0], sizes, n, o.dtype, o.device, o.pin_memory, false, NULL);
}
// Missing options default to those of t.
static px_status create_like(px_call *call, const px_tensor *t, px__options o,
                             const char *memory_format) {
  if (o.dtype == PX_DTYPE_NONE) o.dtype = (px_dtype)t->dtype;
  if (o.device.type < 0) o.device = px__tensor_device(t);
  return px__empty_in(&call->results[0], t, memory_format, o.dtype, o.device, o.pin_memory);
}
static px__options or_int64(px__options o) {
  if (o.dtype == PX_DTYPE_NONE) o.dtype = PX_INT64;
  return o;
}
// Sets requires_grad on the filled result if requested.
static px_status set_requires_grad(px_call *call, bool requires_grad, px_status status) {
  px_tensor *t = call->results[0];
  PX_TRY(status);
  if (!requires_grad) return PX_OK;
  PX_TRY(px_dtype_check_grad((px_dtype)t->dtype));
  t->flags |= PX_TENSOR_NEEDS_GRAD;
  return PX_OK;
}
PX_RUN(rand) {
  PX_TRY(create(call, args->size.n, args->size.v.ints, PX_OPTIONS(args)));
  return set_requires_grad(call, args->requires_grad,
                           px_uniform_(call->results[0], 0, 1, args->generator));
}
PX_RUN(randn) {
  PX_TRY(create(call, args->size.n, args->size.v.ints, PX_OPTIONS(args)));
  return set_requires_grad(call, args->requires_grad,
                           px_normal_(call->results[0], 0, 1, args->generator));
}
static px_status random_integers(px_call *call, int64_t low, int64_t high, px_value size,
                                 px__options o, px_generator *generator) {
  PX_TRY(create(call, size.n, size.v.ints, or_int64(o)));
  return set_requires_grad(call, o.requires_grad,
                           px_random_(call->results[0], &low, &high, generator));
}
PX_RUN(randint) {
  return random_integers(call, args->low, args->high, args->size, PX_OPTIONS(args),
                         args->generator);
}
PX_RUN(randint_below) {
  return random_integers(call, 0, args->high, args->size, PX_OPTIONS(args), args->generator);
}
PX_RUN(randperm) {
  PX_TRY(create(call, 1, &args->n, or_int64(PX_OPTIONS(args))));
  return set_requires_grad(call, args->requires_grad,
                           px_randperm_fill_(call->results[0], args->generator));
}
PX_RUN(rand_like) {
  PX_TRY(create_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return set_requires_grad(call, args->requires_grad, px_uniform_(call->results[0], 0, 1, NULL));
}
PX_RUN(randn_like) {
  PX_TRY(create_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return set_requires_grad(call, args->requires_grad, px_normal_(call->results[0], 0, 1, NULL));
}
PX_RUN(randint_like) {
  PX_TRY(create_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return set_requires_grad(call, args->requires_grad,
                           px_random_(call->results[0], &args->low, &args->high, NULL));
}
PX_RUN(randint_like_below) {
  int64_t low = 0;
  PX_TRY(create_like(call, args->self, PX_OPTIONS(args), args->memory_format));
  return set_requires_grad(call, args->requires_grad,
                           px_random_(call->results[0], &low, &args->high, NULL));
}
PX_RUN(bernoulli_like) {
  const px_tensor *self = args->self;
  PX_TRY(px__empty_as(&call->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return px_bernoulli_scalar_(call->results[0], args->p, args->generator);
}
PX_RUN(bernoulli_tensor) {
  px_tensor *self = args->self;
  PX_SCOPED(px_tensor) chances = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  if (px__tensor_device(args->p).type != PX_CPU) PX_TRY(px__call_same_device(call));
  PX_TRY(px_expand_as(&chances, args->p, self));
  PX_TRY(px_bernoulli(&drawn, chances, args->generator));
  PX_TRY(px__call_result(call, 0, self->ndim, self->sizes, (px_dtype)self->dtype));
  return px__tensor_copy(self, drawn, false);
}

// ---- normal(): standard normal numbers of the broadcast shape, then scaled and shifted

static px_status standard_normal(px_call *call, int ndim, const int64_t *sizes,
                                 const px_tensor *like, double std, px_generator *generator) {
  const px_tensor *out = call->mode == PX_CALL_OUT ? call->given[0] : like;
  PX_TRY(px_tensor_empty(&call->results[0], ndim, sizes, (px_dtype)out->dtype,
                         px__tensor_device(like)));
  return px_normal_(call->results[0], 0, std, generator);
}
// The last step. It resizes `out`, so no check may follow.
static px_status add_mean(px_call *call, const px_tensor *mean) {
  px_tensor *result = call->results[0];
  PX_TRY(px_add_(result, mean, px_int(1)));
  if (call->mode != PX_CALL_OUT) return PX_OK;
  PX_TRY(px__call_same_device(call));
  return px__resize_output(call->given[0], result->ndim, result->sizes);
}
static px_status check_deviations(const px_tensor *std) {
  PX_SCOPED(px_tensor) minimum = NULL;
  px_scalar value;
  if (std->numel == 0 || px__is_meta(std)) return PX_OK;
  PX_TRY(px_min(&minimum, std));
  PX_TRY(px_tensor_item(&value, minimum));
  PX_CHECK(px_scalar_float(value) >= 0, PX_RUNTIME, "normal expects all elements of std >= 0.0");
  return PX_OK;
}
PX_RUN(normal_of) {
  const px_tensor *mean = args->mean, *std = args->std;
  int64_t sizes[PX_MAX_DIMS];
  int ndim;
  PX_TRY(check_deviations(std));
  PX_TRY(px__broadcast(&ndim, sizes, mean->ndim, mean->sizes, std->ndim, std->sizes));
  PX_TRY(standard_normal(call, ndim, sizes, mean, 1, args->generator));
  PX_TRY(px_mul_(call->results[0], std));
  return add_mean(call, mean);
}
PX_RUN(normal_around) {
  const px_tensor *mean = args->mean;
  PX_TRY(standard_normal(call, mean->ndim, mean->sizes, mean, args->std, args->generator));
  return add_mean(call, mean);
}
PX_RUN(normal_wide) {
  const px_tensor *std = args->std;
  PX_TRY(check_deviations(std));
  PX_TRY(standard_normal(call, std->ndim, std->sizes, std, 1, args->generator));
  PX_SCOPED(px_tensor) mean = NULL;
  PX_TRY(px_tensor_from_scalar(&mean, px_float(args->mean)));
  PX_TRY(px_mul_(call->results[0], std));
  return add_mean(call, mean);
}
PX_RUN(normal_sized) {
  PX_TRY(create(call, args->size.n, args->size.v.ints, PX_OPTIONS(args)));
  return set_requires_grad(call, args->requires_grad,
                           px_normal_(call->results[0], args->mean, args->std, args->generator));
}
