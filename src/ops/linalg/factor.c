// SPDX-License-Identifier: Apache-2.0
// Run functions of orthogonal decompositions. Kernels write column-major results; the other
// functions are composites over them.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formulas.h"
#include "hidden/factor.h"
#include "ops/core/matrix_checks.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/factor.h"

static int64_t rows_of(const px_tensor *t) { return t->sizes[t->ndim - 2]; }
static int64_t columns_of(const px_tensor *t) { return t->sizes[t->ndim - 1]; }
static px_status transposed(px_tensor **out, const px_tensor *t) {
  return px_transpose(out, t, -2, -1);
}
static bool is_recorded(const px_tensor *t) {
  return px__hooks && px__hooks->recording() && px__needs_grad(t);
}
static px_status adjoint(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) other = NULL;
  PX_TRY(transposed(&other, t));
  return px_conj(out, other);
}
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

PX_RUN(linalg_qr) {
  const char *mode = args->mode;
  PX_TRY(px__check_matrices(args->A, "linalg.qr", "A"));
  PX_TRY(px__check_numbers(args->A, "linalg.qr", true));
  PX_CHECK(!strcmp(mode, "reduced") || !strcmp(mode, "r") || !strcmp(mode, "complete"), PX_RUNTIME,
           "qr received unrecognized mode '%s' but expected one of 'reduced' (default), 'r', or "
           "'complete'",
           mode);
  return px__linalg_qr(&call->results[0], &call->results[1], args->A, mode);
}
PX_RUN(geqrf) { return px__linalg_geqrf(&call->results[0], &call->results[1], args->self); }
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

// ---- eigenvalues

static px_status eigh(px_tensor **values, px_tensor **vectors, const px_tensor *self,
                      const char *uplo, bool wants_vectors) {
  PX_SCOPED(px_tensor) info = NULL;
  char side = uplo[0] == 'l' ? 'L' : uplo[0] == 'u' ? 'U' : uplo[0];
  PX_TRY(px__check_square(self, "linalg.eigh"));
  PX_CHECK((side == 'L' || side == 'U') && !uplo[1], PX_RUNTIME,
           "Expected UPLO argument to be 'L' or 'U', but got %s", uplo);
  PX_TRY(px__linalg_eigh(values, vectors, &info, self, side == 'U', wants_vectors));
  return px__check_info(info, PX_LINALG, "linalg.eigh",
                        "%s: %sThe algorithm failed to converge because the input matrix is "
                        "ill-conditioned or has too many repeated eigenvalues (error code: %d).");
}
PX_RUN(linalg_eigh) {
  return eigh(&call->results[0], &call->results[1], args->self, args->UPLO, true);
}
PX_RUN(linalg_eigvalsh) {
  PX_SCOPED(px_tensor) vectors = NULL;
  return eigh(&call->results[0], &vectors, args->self, args->UPLO, is_recorded(args->self));
}

static px_status check_finite(const px_tensor *t) {
  px_scalar truth;
  PX_SCOPED(px_tensor) finite = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  if (px__is_meta(t)) return PX_OK;
  PX_TRY(px_isfinite(&finite, px__innermost_physical(t)));
  PX_TRY(px_all(&all, finite, NULL, 0, false));
  PX_TRY(px_tensor_item(&truth, all));
  PX_CHECK(px_scalar_int(truth), PX_RUNTIME,
           "torch.linalg.eig: input tensor should not contain infs or NaNs.");
  return PX_OK;
}
static px_status eig(px_tensor **values, px_tensor **vectors, const px_tensor *self,
                     bool with_vectors, const char *name) {
  PX_SCOPED(px_tensor) info = NULL;
  PX_TRY(px__check_square(self, name));
  PX_TRY(px__check_numbers(self, name, false));
  PX_TRY(check_finite(self));
  PX_TRY(px__linalg_eig(values, vectors, &info, self, with_vectors));
  return px__check_info(info, PX_LINALG, "linalg.eig",
                        "%s: %sThe algorithm failed to converge because the input matrix is "
                        "ill-conditioned or has too many repeated eigenvalues (error code: %d).");
}
PX_RUN(linalg_eig) {
  return eig(&call->results[0], &call->results[1], args->self, true, "linalg.eig");
}
PX_RUN(linalg_eigvals) {
  PX_SCOPED(px_tensor) vectors = NULL;
  return eig(&call->results[0], &vectors, args->self, is_recorded(args->self), "linalg.eigvals");
}

// ---- singular values

static px_status singular(px_tensor **u, px_tensor **s, px_tensor **vh, const px_tensor *a,
                          bool full, bool vectors) {
  PX_SCOPED(px_tensor) info = NULL;
  PX_TRY(px__check_matrices(a, "linalg.svd", "A"));
  PX_TRY(px__check_numbers(a, "linalg.svd", true));
  PX_TRY(px__linalg_svd(u, s, vh, &info, a, full, vectors));
  return px__check_info(info, PX_LINALG, "linalg.svd",
                        "%s: %sThe algorithm failed to converge because the input matrix is "
                        "ill-conditioned or has too many repeated singular values (error code: "
                        "%d).");
}
static px_status check_driver(const char *driver) {
  PX_CHECK(!driver, PX_RUNTIME,
           "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with "
           "cuSOLVER backend.");
  return PX_OK;
}
PX_RUN(linalg_svd) {
  px_tensor **r = call->results;
  PX_TRY(check_driver(args->driver));
  return singular(&r[0], &r[1], &r[2], args->A, args->full_matrices, true);
}
// Computes vectors only if the gradient needs them.
static px_status singular_values(px_tensor **out, const px_tensor *a) {
  PX_SCOPED(px_tensor) u = NULL;
  PX_SCOPED(px_tensor) vh = NULL;
  return singular(&u, out, &vh, a, false, is_recorded(a));
}
PX_RUN(linalg_svdvals) {
  PX_TRY(check_driver(args->driver));
  return singular_values(&call->results[0], args->A);
}
static px_status zero_square(px_tensor **out, const px_tensor *t, int64_t n) {
  int64_t sizes[PX_MAX_DIMS];
  px__sizes_copy(sizes, t->sizes, t->ndim - 2);
  sizes[t->ndim - 2] = sizes[t->ndim - 1] = n;
  return px__zeros_like_sized(out, t, t->ndim, sizes);
}
PX_RUN(svd) {
  const px_tensor *self = args->self;
  px_tensor **r = call->results;
  PX_SCOPED(px_tensor) vh = NULL;
  PX_TRY(px__check_matrices(self, "linalg.svd", "A"));
  if (args->compute_uv) {
    PX_TRY(singular(&r[0], &r[1], &vh, self, !args->some, true));
    return adjoint(&r[2], vh);
  }
  PX_TRY(singular_values(&r[1], self));
  PX_TRY(zero_square(&r[0], self, rows_of(self)));
  PX_TRY(zero_square(&vh, self, columns_of(self)));
  return transposed(&r[2], vh);
}

// ---- least squares

static double epsilon_of(const px_tensor *t) {
  return real_of(t) == PX_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
}
// Residual sums of squares, for matrices of full rank with more rows than columns.
static px_status residuals(px_tensor **out, const px_tensor *a, const px_tensor *raw,
                           const px_tensor *rank, const char *driver) {
  int64_t m = rows_of(a), n = columns_of(a);
  bool full = m > n && strcmp(driver, "gelsy") != 0;
  if (full && strcmp(driver, "gels") != 0 && !px__is_meta(a)) {
    PX_SCOPED(px_tensor) fits = NULL;
    PX_SCOPED(px_tensor) all = NULL;
    px_scalar truth;
    PX_TRY(px_eq_scalar(&fits, rank, px_int(n)));
    PX_TRY(px_all(&all, fits, NULL, 0, false));
    PX_TRY(px_tensor_item(&truth, all));
    full = px_scalar_int(truth) != 0;
  }
  if (!full) return empty_like(out, a, real_of(a));
  return px__formula_residual_squares(out, (px_value[]){PX_T(raw), PX_I(n)});
}
PX_RUN(linalg_lstsq) {
  const px_tensor *self = args->self, *given = args->b;
  px_tensor **r = call->results;
  px_device_type type = (px_device_type)px__tensor_device(self).type;
  bool gpu = type == PX_CUDA && !px__runs_host_kernels(type);
  const char *driver = driver_of(args->driver ? args->driver : gpu ? "gels" : "gelsy");
  int missing = self->ndim - given->ndim;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) a = NULL;
  PX_SCOPED(px_tensor) b = NULL;
  PX_SCOPED(px_tensor) raw = NULL;
  PX_SCOPED(px_tensor) rank = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) info = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_CHECK(missing == 0 || missing == 1, PX_RUNTIME,
           "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and "
           "(input.dim() - other.dim()) <= 1");
  PX_CHECK(px__is_lapacks(self), PX_RUNTIME,
           "This function doesn't handle types other than float and double");
  if (missing) PX_TRY(px_unsqueeze(&column, given, -1));
  const px_tensor *sides = missing ? column : given;
  PX_CHECK(rows_of(self) == rows_of(sides), PX_RUNTIME,
           "torch.linalg.lstsq: input.size(-2) should match other.size(-%d)", missing ? 1 : 2);
  PX_CHECK(driver, PX_RUNTIME,
           "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  PX_CHECK(!gpu || !strcmp(driver, "gels"), PX_RUNTIME,
           "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA");
  double limit = px__given(args->rcond)
                     ? px_value_float(args->rcond)
                     : epsilon_of(self) * (double)px__max(rows_of(self), columns_of(self));
  PX_TRY(px__match_batches(&a, &b, self, sides));
  PX_TRY(px__linalg_lstsq(&raw, &rank, &values, &info, a, b, limit, driver));
  PX_TRY(px__check_info(info, PX_LINALG, "torch.linalg.lstsq",
                        "%s: %sThe least squares solution could not be computed because the input "
                        "matrix does not have full rank (error code: %d)."));
  PX_TRY(px_narrow(&part, raw, -2, 0, columns_of(a)));
  PX_TRY(residuals(&r[1], a, raw, rank, driver));
  bool ranks = strcmp(driver, "gels") != 0, has_values = ranks && strcmp(driver, "gelsy") != 0;
  if (ranks)
    r[2] = PX_MOVE(rank);
  else
    PX_TRY(empty_like(&r[2], a, PX_INT64));
  if (has_values)
    r[3] = PX_MOVE(values);
  else
    PX_TRY(empty_like(&r[3], a, real_of(a)));
  if (missing) return px_squeeze_dim(&r[0], part, (const int64_t[]){-1}, 1);
  r[0] = PX_MOVE(part);
  return PX_OK;
}
