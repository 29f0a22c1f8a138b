// SPDX-License-Identifier: Apache-2.0
// Run functions of orthogonal decompositions, whose kernels write column-major results, and checks
// of batches. The other ops are formulas of ops/factor.op.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formulas.h"
#include "hidden/factor.h"
#include "ops/core/matrix_checks.h"
#include "run_functions/factor.h"

static int64_t rows_of(const px_tensor *t) { return t->sizes[t->ndim - 2]; }
static int64_t columns_of(const px_tensor *t) { return t->sizes[t->ndim - 1]; }
static px_dtype real_of(const px_tensor *t) { return px_dtype_to_real((px_dtype)t->dtype); }
static px_status empty_like(px_tensor **out, const px_tensor *t, px_dtype dtype) {
  int64_t none = 0;
  return px_tensor_empty(out, 1, &none, dtype, px__tensor_device(t));
}

// ---- kernels

PX_RUN(_linalg_geqrf) {
  const px_tensor *a = args->self;
  PX_TRY(px__check_kernel(call, a, false));
  PX_TRY(px__matrices_result(call, 0, a, rows_of(a), columns_of(a)));
  return px__lines_result(call, 1, a, px__min(rows_of(a), columns_of(a)), (px_dtype)a->dtype);
}
PX_RUN(_linalg_householder) {
  const px_tensor *a = args->input, *tau = args->tau;
  PX_TRY(px__check_kernel(call, a, false));
  PX_TRY(px__check_batch_like(call, a, tau, 1, (px_dtype)a->dtype));
  int64_t k = columns_of(tau), columns = args->columns;
  PX_TRY(px__check_fits(call, k <= columns_of(a) && k <= columns && columns <= rows_of(a)));
  return px__matrices_result(call, 0, a, rows_of(a), columns);
}
PX_RUN(_linalg_ormqr) {
  const px_tensor *a = args->self, *tau = args->input2, *c = args->input3;
  PX_TRY(px__check_kernel(call, a, false));
  PX_TRY(px__check_batch_like(call, a, tau, 1, (px_dtype)a->dtype));
  PX_TRY(px__check_batch_like(call, a, c, 2, (px_dtype)a->dtype));
  int64_t k = columns_of(tau), m = args->left ? rows_of(c) : columns_of(c);
  PX_TRY(px__check_fits(call, k <= columns_of(a) && k <= m && m == rows_of(a)));
  return px__matrices_result(call, 0, c, rows_of(c), columns_of(c));
}
PX_RUN(_linalg_eigh) {
  const px_tensor *a = args->self;
  PX_TRY(px__check_kernel(call, a, true));
  PX_TRY(px__lines_result(call, 0, a, rows_of(a), real_of(a)));
  PX_TRY(args->vectors ? px__matrices_result(call, 1, a, rows_of(a), rows_of(a))
                       : empty_like(&call->results[1], a, (px_dtype)a->dtype));
  return px__lines_result(call, 2, a, -1, PX_INT32);
}
PX_RUN(_linalg_eig) {
  const px_tensor *a = args->self;
  px_dtype dtype = px_dtype_to_complex((px_dtype)a->dtype);
  PX_TRY(px__check_kernel(call, a, true));
  PX_TRY(px__lines_result(call, 0, a, rows_of(a), dtype));
  PX_TRY(args->vectors ? px__matrices_result_of(call, 1, a, rows_of(a), rows_of(a), dtype)
                       : empty_like(&call->results[1], a, dtype));
  return px__lines_result(call, 2, a, -1, PX_INT32);
}
PX_RUN(_linalg_svd) {
  const px_tensor *a = args->A;
  px_dtype dtype = (px_dtype)a->dtype;
  PX_TRY(px__check_kernel(call, a, false));
  int64_t m = rows_of(a), n = columns_of(a), k = px__min(m, n);
  PX_TRY(px__lines_result(call, 1, a, k, real_of(a)));
  PX_TRY(px__lines_result(call, 3, a, -1, PX_INT32));
  if (!args->vectors) {
    PX_TRY(empty_like(&call->results[0], a, dtype));
    return empty_like(&call->results[2], a, dtype);
  }
  PX_TRY(px__matrices_result(call, 0, a, m, args->full_matrices ? m : k));
  return px__matrices_result(call, 2, a, args->full_matrices ? n : k, n);
}
static const char *driver_of(const char *given) {
  static const char *const known[] = {"gels", "gelsy", "gelsd", "gelss"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(given, known[i])) return known[i];
  return NULL;
}
PX_RUN(_linalg_lstsq) {
  const px_tensor *a = args->A, *b = args->B;
  PX_TRY(px__check_kernel(call, a, false));
  PX_TRY(px__check_batch_like(call, a, b, 2, (px_dtype)a->dtype));
  PX_TRY(px__check_fits(call, rows_of(a) == rows_of(b) && args->driver && driver_of(args->driver)));
  PX_TRY(px__matrices_result(call, 0, b, px__max(rows_of(a), columns_of(a)), columns_of(b)));
  PX_TRY(px__lines_result(call, 1, a, -1, PX_INT64));
  PX_TRY(px__lines_result(call, 2, a, px__min(rows_of(a), columns_of(a)), real_of(a)));
  return px__lines_result(call, 3, a, -1, PX_INT32);
}

// ---- QR

static px_status same_batches(const px_tensor *t, int last, const px_tensor *other, int other_last,
                              const char *name, const char *role) {
  int ndim = t->ndim - last;
  bool same = ndim == other->ndim - other_last;
  for (int d = 0; same && d < ndim; d++) same = t->sizes[d] == other->sizes[d];
  char have[128];
  PX_CHECK(same, PX_RUNTIME, "%s: Expected batch dimensions of %s to be those of input, but got %s",
           name, role, px__sizes_text(have, sizeof have, other->ndim - other_last, other->sizes));
  return PX_OK;
}
PX_RUN(linalg_householder_product) {
  const px_tensor *input = args->input;
  PX_TRY(same_batches(input, 2, args->tau, 1, "torch.linalg.householder_product", "tau"));
  return px__linalg_householder(&call->results[0], input, args->tau, columns_of(input));
}
PX_RUN(ormqr) {
  PX_TRY(same_batches(args->self, 2, args->input2, 1, "torch.ormqr", "tau"));
  PX_TRY(same_batches(args->self, 2, args->input3, 2, "torch.ormqr", "other"));
  return px__linalg_ormqr(&call->results[0], args->self, args->input2, args->input3, args->left,
                          args->transpose);
}

// ---- least squares

static double epsilon_of(const px_tensor *t) {
  return real_of(t) == PX_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
}
// In C because the default driver depends on the device.
PX_RUN(linalg_lstsq) {
  px_tensor *self = args->self, *given = args->b;
  px_device_type type = (px_device_type)px__tensor_device(self).type;
  bool gpu = type == PX_CUDA && !px__runs_host_kernels(type);
  const char *driver = driver_of(args->driver ? args->driver : gpu ? "gels" : "gelsy");
  int missing = self->ndim - given->ndim;
  PX_CHECK(missing == 0 || missing == 1, PX_RUNTIME,
           "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and "
           "(input.dim() - other.dim()) <= 1");
  PX_CHECK(px__is_lapacks(self), PX_RUNTIME,
           "This function doesn't handle types other than float and double");
  PX_CHECK(rows_of(self) == (missing ? columns_of(given) : rows_of(given)), PX_RUNTIME,
           "torch.linalg.lstsq: input.size(-2) should match other.size(-%d)", missing ? 1 : 2);
  PX_CHECK(driver, PX_RUNTIME,
           "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  PX_CHECK(!gpu || !strcmp(driver, "gels"), PX_RUNTIME,
           "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA");
  double limit = px__given(args->rcond)
                     ? px_value_float(args->rcond)
                     : epsilon_of(self) * (double)px__max(rows_of(self), columns_of(self));
  return px__formula_least_squares(
      call->results, (px_value[]){PX_T(self), PX_T(given), PX_F(limit), PX_TX((char *)driver)});
}
