// SPDX-License-Identifier: Apache-2.0
// Distances between rows.
#include <math.h>
#include <string.h>

#include "hidden/statistics.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/layer.h"
#include "run_functions/statistics.h"

static const int64_t last = -1;

PX_RUN(sum_of_differences) {
  PX_SCOPED(px_tensor) size = NULL;
  PX_TRY(px_abs(&size, args->self));
  return px_sum(&call->results[0], size, &last, 1, false, PX_DTYPE_NONE);
}
PX_RUN(largest_of_differences) {
  PX_SCOPED(px_tensor) size = NULL;
  PX_TRY(px_abs(&size, args->self));
  return px_amax(&call->results[0], size, &last, 1, false);
}
// NaN if a difference is NaN.
PX_RUN(count_of_differences) {
  PX_SCOPED(px_tensor) is_nan = NULL;
  PX_SCOPED(px_tensor) differs = NULL;
  PX_SCOPED(px_tensor) counted = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  PX_TRY(px_ne(&is_nan, args->self, args->self));
  PX_TRY(px_ne_scalar(&differs, args->self, px_int(0)));
  PX_TRY(px_to(&counted, differs, (px_dtype)args->self->dtype, PX_DEVICE_NONE, false, false));
  PX_TRY(px_where(&all, is_nan, args->self, counted));
  return px_sum(&call->results[0], all, &last, 1, false, PX_DTYPE_NONE);
}
static px_status norm_of_differences(px_tensor **out, const px_tensor *difference, double p) {
  if (difference->sizes[difference->ndim - 1] == 0)
    return px_sum(out, difference, &last, 1, false, PX_DTYPE_NONE);
  if (p == 0) return px_count_of_differences(out, difference);
  if (p == 1) return px_sum_of_differences(out, difference);
  if (isinf(p)) return px_largest_of_differences(out, difference);
  return px_norm(out, difference, px_float(p), &last, 1, false, PX_DTYPE_NONE);
}

static px_status differences(px_tensor **out, const px_tensor *x1, const px_tensor *x2) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_TRY(px_unsqueeze(&a, x1, -2));
  PX_TRY(px_unsqueeze(&b, x2, -3));
  return px_sub(out, a, b, px_int(1));
}
PX_RUN(cdist) {
  enum { MM_ROWS = 25 };  // rows above which products are faster, as in PyTorch
  const px_tensor *x1 = args->x1, *x2 = args->x2;
  const char *mode = args->compute_mode ? args->compute_mode : "";
  bool many = x1->sizes[x1->ndim - 2] > MM_ROWS || x2->sizes[x2->ndim - 2] > MM_ROWS;
  bool never = !strncmp(mode, "donot", 5), always = !strcmp(mode, "use_mm_for_euclid_dist");
  if (args->p == 2 && !never && (many || always))
    return px_cdist_of_products(&call->results[0], x1, x2);
  PX_SCOPED(px_tensor) difference = NULL;
  PX_TRY(differences(&difference, x1, x2));
  return norm_of_differences(&call->results[0], difference, args->p);
}
static px_status squares(px_tensor **out, const px_tensor *rows, int64_t at) {
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_TRY(px_mul(&scaled, rows, rows));
  PX_TRY(px_sum(&sums, scaled, (const int64_t[]){-1}, 1, false, PX_DTYPE_NONE));
  return px_unsqueeze(out, sums, at);
}
PX_RUN(cdist_of_products) {
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) adjoint = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) difference = NULL;
  PX_SCOPED(px_tensor) clamped = NULL;
  PX_TRY(squares(&a, args->x1, -1));
  PX_TRY(squares(&b, args->x2, -2));
  PX_TRY(px_transpose(&adjoint, args->x2, -2, -1));
  PX_TRY(px_matmul(&product, args->x1, adjoint));
  PX_TRY(px_add(&both, a, b, px_int(1)));
  PX_TRY(px_sub(&difference, both, product, px_int(2)));
  PX_TRY(px_relu(&clamped, difference));
  return px_sqrt(&call->results[0], clamped);
}
PX_RUN(pdist) {
  const px_tensor *x = args->input;
  int64_t n = x->sizes[0];
  PX_SCOPED(px_tensor) pairs = NULL;
  PX_SCOPED(px_tensor) i = NULL;
  PX_SCOPED(px_tensor) j = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) difference = NULL;
  PX_TRY(px_triu_indices(&pairs, n, n, 1, PX_INT64, px__tensor_device(x), false, false));
  PX_TRY(px_select(&i, pairs, 0, 0));
  PX_TRY(px_select(&j, pairs, 0, 1));
  PX_TRY(px_index_select(&a, x, 0, i));
  PX_TRY(px_index_select(&b, x, 0, j));
  PX_TRY(px_sub(&difference, a, b, px_int(1)));
  return norm_of_differences(&call->results[0], difference, args->p);
}
