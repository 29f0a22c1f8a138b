// SPDX-License-Identifier: Apache-2.0
// Quantiles: sorts along the dimension and interpolates between neighbouring ranks.
#include <string.h>

#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/sort.h"
#include "phlox/ops/statistics.h"
#include "phlox/ops/view.h"
#include "run_functions/statistics.h"

typedef struct quantiles {
  px_tensor *self, *q;
  px_value dim;
  bool keepdim, skips_nan;
  const char *interpolation;
} quantiles;

// Moves the reduced dimension last, keeping its place with size 1, and sorts.
static px_status sorted_lines(px_tensor **out, const quantiles *s) {
  const px_tensor *self = s->self;
  int64_t sizes[PX_MAX_DIMS];
  int dim;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_TRY(px__check_ndim(self->ndim + 1));
  if (px__given(s->dim)) {
    PX_SCOPED(px_tensor) tall = NULL;
    PX_TRY(px__wrap_dim(&dim, s->dim.v.i, self->ndim));
    PX_TRY(px_unsqueeze(&tall, self, -1));
    if (self->ndim)
      PX_TRY(px_transpose(&lines, tall, dim, -1));
    else
      lines = PX_MOVE(tall);
  } else {
    for (int d = 0; d < self->ndim; d++) sizes[d] = 1;
    sizes[self->ndim] = self->numel;
    PX_TRY(px_reshape(&lines, self, sizes, self->ndim + 1));
  }
  return px__sorted_values(out, lines, -1);
}

// Ranks of q in each row. NaNs sort last: a row with a NaN gets the last rank only. With skips_nan
// the ranks are among the other elements.
static px_status ranks_of(px_tensor **out, const px_tensor *sorted, const px_tensor *q,
                          bool skips_nan) {
  int64_t last = -1, n = sorted->sizes[sorted->ndim - 1];
  PX_SCOPED(px_tensor) nans = NULL;
  PX_SCOPED(px_tensor) known = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) highest = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) ranks = NULL;
  PX_TRY(px_isnan(&nans, sorted));
  if (!skips_nan) {
    PX_SCOPED(px_tensor) any = NULL;
    PX_TRY(px_any(&any, nans, &last, 1, true));
    PX_TRY(px_mul_scalar(&ranks, q, px_int(n - 1)));
    return px_masked_fill(out, ranks, any, px_int(n - 1));
  }
  PX_TRY(px_logical_not(&known, nans));
  PX_TRY(px_sum(&count, known, &last, 1, true, PX_DTYPE_NONE));
  PX_TRY(px_sub_scalar(&highest, count, px_int(1), px_int(1)));
  PX_TRY(px_mul(&ranks, q, highest));
  PX_TRY(px_lt_scalar(&first, ranks, px_int(0)));  // for rows of NaNs only
  return px_masked_fill(out, ranks, first, px_int(0));
}

static px_status gather_ranks(px_tensor **out, const px_tensor *sorted, const px_tensor *ranks) {
  PX_SCOPED(px_tensor) indices = NULL;
  PX_TRY(px_to(&indices, ranks, PX_INT64, PX_DEVICE_NONE, false, false));
  return px_gather(out, sorted, -1, indices, false);
}
static px_status interpolated(px_tensor **out, const px_tensor *sorted, const px_tensor *ranks,
                              const char *how) {
  PX_SCOPED(px_tensor) floor = NULL;
  PX_SCOPED(px_tensor) ceiling = NULL;
  PX_SCOPED(px_tensor) nearest = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) above = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) weight = NULL;
  if (!strcmp(how, "nearest")) {
    PX_TRY(px_round(&nearest, ranks));
    return gather_ranks(out, sorted, nearest);
  }
  PX_TRY(px_ceil(&ceiling, ranks));
  if (!strcmp(how, "higher")) return gather_ranks(out, sorted, ceiling);
  PX_TRY(px_tensor_detach(&plain, ranks));
  PX_TRY(px_floor(&floor, plain));
  if (!strcmp(how, "lower")) return gather_ranks(out, sorted, floor);
  PX_TRY(gather_ranks(&below, sorted, floor));
  PX_TRY(gather_ranks(&above, sorted, ceiling));
  if (!strcmp(how, "midpoint"))
    PX_TRY(px_full_like(&weight, plain, px_float(0.5), PX_DTYPE_NONE, PX_DEVICE_NONE, false, false,
                        NULL));
  else
    PX_TRY(px_sub(&weight, ranks, floor, px_int(1)));
  return px_lerp(out, below, above, weight);
}

// Removes reduced dimensions and moves q's dimension first.
static px_status reshape_result(px_tensor **out, const px_tensor *values, const quantiles *s) {
  PX_SCOPED(px_tensor) squeezed = NULL;
  int64_t dims[PX_MAX_DIMS], count = 0, last = -1;
  if (!s->keepdim && px__given(s->dim) && s->self->ndim)
    dims[count++] = s->dim.v.i < 0 ? s->dim.v.i - 1 : s->dim.v.i;
  if (!s->keepdim && !px__given(s->dim))
    for (int d = 0; d < s->self->ndim; d++) dims[count++] = d;
  if (count)
    PX_TRY(px_squeeze_dim(&squeezed, values, dims, count));
  else
    squeezed = px_retain((px_tensor *)values);
  if (s->q->ndim == 0) return px_squeeze_dim(out, squeezed, &last, 1);
  return px_movedim(out, squeezed, &last, 1, (const int64_t[]){0}, 1);
}

static px_status check_q(const px_tensor *q) {
  px_scalar valid;
  PX_SCOPED(px_tensor) above = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) inside = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_tensor_detach(&plain, px__innermost_physical(q)));
  PX_TRY(px_ge_scalar(&above, plain, px_int(0)));
  PX_TRY(px_le_scalar(&below, plain, px_int(1)));
  PX_TRY(px_logical_and(&inside, above, below));
  PX_TRY(px_all(&all, inside, NULL, 0, false));
  PX_TRY(px_tensor_item(&valid, all));
  PX_CHECK(px_scalar_int(valid), PX_RUNTIME, "quantile() q values must be in the range [0, 1]");
  return PX_OK;
}
static px_status quantiles_of(px_call *call, const quantiles *s) {
  PX_SCOPED(px_tensor) sorted = NULL;
  PX_SCOPED(px_tensor) ranks = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_TRY(px_reshape(&row, s->q, &s->q->numel, 1));
  PX_TRY(sorted_lines(&sorted, s));
  PX_TRY(ranks_of(&ranks, sorted, row, s->skips_nan));
  PX_TRY(interpolated(&values, sorted, ranks, s->interpolation));
  return reshape_result(&call->results[0], values, s);
}
// Checks q's device before its values, because reading those waits for the device.
static px_status quantiles_by_tensor(px_call *call, const quantiles *s) {
  PX_CHECK(px_device_equal(px__tensor_device(s->self), px__tensor_device(s->q)), PX_RUNTIME,
           "quantile() q tensor must be on the same device as the input tensor");
  if (px__tensor_device(s->q).type == PX_CPU) PX_TRY(check_q(s->q));
  return quantiles_of(call, s);
}
static px_status quantiles_by_number(px_call *call, quantiles *s, double q) {
  PX_SCOPED(px_tensor) number = NULL;
  PX_TRY(px_full(&number, NULL, 0, px_float(q), (px_dtype)s->self->dtype,
                 px__tensor_device(s->self), false, false));
  s->q = number;
  return quantiles_of(call, s);
}
#define QUANTILES(name, skips) \
  PX_RUN(name) { \
    quantiles s = {args->self, args->q, args->dim, args->keepdim, skips, args->interpolation}; \
    return quantiles_by_tensor(call, &s); \
  } \
  PX_RUN(name##_number) { \
    quantiles s = {args->self, NULL, args->dim, args->keepdim, skips, args->interpolation}; \
    return quantiles_by_number(call, &s, args->q); \
  }
QUANTILES(quantile, false)
QUANTILES(nanquantile, true)
