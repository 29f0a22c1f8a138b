// SPDX-License-Identifier: Apache-2.0
// Run functions of random layers composed from other ops.
#include <math.h>

#include "ops/core/run.h"
#include "hidden/layer.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/layer.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/random.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/layer.h"

// Mask of ones with probability `keep`, per element or per channel.
static px_status keep_mask(px_tensor **out, const px_tensor *x, double keep, bool channels) {
  PX_SCOPED(px_tensor) like = NULL;
  int64_t sizes[PX_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) sizes[d] = channels && d > 1 ? 1 : x->sizes[d];
  px_dtype dtype = px_dtype_to_real((px_dtype)x->dtype);
  PX_TRY(px_tensor_empty(&like, x->ndim, sizes, dtype, px__tensor_device(x)));
  return px_bernoulli_like(out, like, keep, NULL);
}

// Sets dropped elements to -1.758, the negative limit of selu, then scales and shifts.
PX_RUN(alpha_dropout) {
  const px_tensor *x = args->input;
  const double alpha = 1.7580993408473766, p = args->p;
  bool channels = *call->op->name == 'f';
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) dropped = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) shift = NULL;
  PX_SCOPED(px_tensor) factor = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  if (!args->training || p == 0 || !x->numel) {
    call->results[0] = px_retain((px_tensor *)x);
    return PX_OK;
  }
  if (p == 1) return px_mul_scalar(&call->results[0], x, px_int(0));
  double a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
  PX_TRY(keep_mask(&kept, x, 1 - p, channels));
  PX_TRY(px_add_scalar(&dropped, kept, px_int(-1), px_int(1)));
  PX_TRY(px_mul_scalar(&scaled, dropped, px_float(alpha * a)));
  PX_TRY(px_add_scalar(&shift, scaled, px_float(alpha * a * p), px_int(1)));
  PX_TRY(px_mul_scalar(&factor, kept, px_float(a)));
  PX_TRY(px_mul(&product, x, factor));
  return px_add(&call->results[0], product, shift, px_int(1));
}

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

// Hard samples in the forward pass, with the gradient of the soft ones.
static px_status harden(px_tensor **out, const px_tensor *soft, int64_t dim) {
  PX_SCOPED(px_tensor) maxima = NULL;
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_SCOPED(px_tensor) hard = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) difference = NULL;
  PX_TRY(px_tensor_detach(&plain, soft));
  PX_TRY(px_max_dim(&maxima, &at, plain, dim, true));
  PX_TRY(px__zeros_like_sized(&zeros, plain, soft->ndim, soft->sizes));
  PX_TRY(px_scatter_value(&hard, zeros, dim, at, px_int(1)));
  PX_TRY(px_sub(&difference, hard, plain, px_int(1)));
  return px_add(out, difference, soft, px_int(1));
}
PX_RUN(gumbel_softmax) {
  const px_tensor *x = args->logits;
  PX_SCOPED(px_tensor) exponential = NULL;
  PX_SCOPED(px_tensor) logs = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) tempered = NULL;
  PX_SCOPED(px_tensor) soft = NULL;
  PX_TRY(
      px_tensor_empty(&exponential, x->ndim, x->sizes, (px_dtype)x->dtype, px__tensor_device(x)));
  PX_TRY(px_exponential_(exponential, 1, NULL));
  PX_TRY(px_log(&logs, exponential));
  PX_TRY(px_sub(&sum, x, logs, px_int(1)));
  PX_TRY(px_div_scalar(&tempered, sum, px_float(args->tau)));
  PX_TRY(px_softmax(&soft, tempered, args->dim, PX_DTYPE_NONE));
  if (args->hard) return harden(&call->results[0], soft, args->dim);
  call->results[0] = PX_MOVE(soft);
  return PX_OK;
}
