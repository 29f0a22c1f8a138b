// SPDX-License-Identifier: Apache-2.0
// Random layers that draw into memory of their own.
#include <math.h>

#include "ops/core/run.h"
#include "formulas.h"
#include "hidden/layer.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/random.h"
#include "phlox/ops/reduce.h"
#include "run_functions/layer.h"

// Random slopes for x <= 0, otherwise 1. On the CPU only the needed slopes are drawn, in order and
// in double precision, as in PyTorch.
static px_status draw_slopes(px_tensor **out, const px_tensor *x, double lower, double upper) {
  px_dtype dtype = x->dtype == PX_FLOAT64 ? PX_FLOAT64 : PX_FLOAT32;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) ones = NULL;
  PX_SCOPED(px_tensor) drawn = NULL;
  PX_SCOPED(px_tensor) slopes = NULL;
  PX_TRY(px_le_scalar(&below, x, px_int(0)));
  PX_TRY(px_ones_like(&ones, x, dtype, PX_DEVICE_NONE, false, false, NULL));
  if (dtype == PX_FLOAT32) lower = (float)lower, upper = (float)upper;
  if (px__tensor_device(x).type == PX_CPU && !px__is_batched(x)) {
    PX_SCOPED(px_tensor) sum = NULL;
    px_scalar count;
    PX_TRY(px_sum(&sum, below, NULL, 0, false, PX_DTYPE_NONE));
    PX_TRY(px_tensor_item(&count, sum));
    PX_TRY(px_tensor_empty(&drawn, 1, (int64_t[]){count.v.i}, PX_FLOAT64, px_cpu()));
    PX_TRY(px_uniform_(drawn, lower, upper, NULL));
    PX_TRY(px_to(&slopes, drawn, dtype, PX_DEVICE_NONE, false, false));
    return px_masked_scatter(out, ones, below, slopes);
  }
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_rand_like(&drawn, x, dtype, PX_DEVICE_NONE, false, false, NULL));
  PX_TRY(px_mul_scalar(&wide, drawn, px_float(upper - lower)));
  PX_TRY(px_add_scalar(&slopes, wide, px_float(lower), px_int(1)));
  return px_where(out, below, slopes, ones);
}
PX_RUN(rrelu) {
  const px_tensor *x = args->input;
  double lower = args->lower, upper = args->upper;
  PX_SCOPED(px_tensor) slopes = NULL;
  if (!args->training) return px_leaky_relu(&call->results[0], x, px_float((lower + upper) / 2));
  PX_TRY(draw_slopes(&slopes, x, lower, upper));
  return px_rrelu_with_noise(&call->results[0], x, slopes);
}

PX_RUN(gumbel_softmax) {
  const px_tensor *x = args->logits;
  PX_SCOPED(px_tensor) exponential = NULL;
  PX_TRY(px__empty_as(&exponential, x, (px_dtype)x->dtype, px__tensor_device(x)));
  PX_TRY(px_exponential_(exponential, 1, NULL));
  return px__formula_gumbel_samples(
      call->results, (px_value[]){PX_T((px_tensor *)x), PX_T(exponential), PX_F(args->tau),
                                  PX_B(args->hard), PX_I(args->dim)});
}
