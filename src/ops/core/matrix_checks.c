// SPDX-License-Identifier: Apache-2.0
// Checks and results of matrix ops.
#include "ops/core/matrix_checks.h"

// ---- checks

px_status px__check_matrices(const px_tensor *t, const char *name, const char *role) {
  PX_CHECK(t->ndim >= 2, PX_RUNTIME, "%s: The input tensor %s must have at least 2 dimensions.",
           name, role);
  return PX_OK;
}
px_status px__check_square(const px_tensor *t, const char *name) {
  PX_TRY(px__check_matrices(t, name, "A"));
  int64_t m = t->sizes[t->ndim - 2], n = t->sizes[t->ndim - 1];
  PX_CHECK(m == n, PX_RUNTIME,
           "%s: A must be batches of square matrices, but they are %lld by %lld matrices", name,
           (long long)m, (long long)n);
  return PX_OK;
}
bool px__is_lapacks(const px_tensor *t) {
  px_dtype real = px_dtype_to_real((px_dtype)t->dtype);
  return real == PX_FLOAT32 || real == PX_FLOAT64;
}
px_status px__check_numbers(const px_tensor *t, const char *name, bool narrow) {
  px_dtype dtype = (px_dtype)t->dtype;
  PX_CHECK(px_dtype_is_differentiable(dtype), PX_UNIMPLEMENTED,
           "%s: Expected a floating point or complex tensor as input. Got %s", name,
           px_dtype_class(dtype));
  PX_CHECK(narrow || px__is_lapacks(t), PX_UNIMPLEMENTED,
           "%s: Low precision dtypes not supported. Got %s", name, px_dtype_class(dtype));
  return PX_OK;
}
px_status px__check_lapack(const px_call *call, const px_tensor *t) {
  px_dtype dtype = (px_dtype)t->dtype;
  px_device device = px__tensor_device(t);
  if (!px__is_lapacks(t)) return px__refuse_dtype(call->op, dtype, device);
  for (int d = t->ndim - 2; d < t->ndim; d++)
    PX_CHECK(t->sizes[d] <= INT32_MAX / 128, PX_RUNTIME, "%s: a matrix of size %lld is too large",
             call->op->name, (long long)t->sizes[d]);
  PX_TRY(px__refuse_gpu(call->op, dtype, device));
  bool host = device.type != PX_META && px__runs_host_kernels((px_device_type)device.type);
  return host ? px__lapack_ready() : PX_OK;
}

px_status px__check_fits(const px_call *call, bool fits) {
  PX_CHECK(fits, PX_RUNTIME, "%s: sizes or dtypes of the arguments do not match",
           px__caller() ? px__caller() : call->op->name);
  return PX_OK;
}
px_status px__check_kernel(const px_call *call, const px_tensor *t, bool square) {
  PX_TRY(px__check_matrices(t, call->op->name, "A"));
  if (square) PX_TRY(px__check_square(t, call->op->name));
  return px__check_lapack(call, t);
}
px_status px__check_batch_like(const px_call *call, const px_tensor *t, const px_tensor *other,
                               int last, px_dtype dtype) {
  int ndim = t->ndim - 2;
  bool fits = other->dtype == dtype && other->ndim == ndim + last;
  for (int d = 0; fits && d < ndim; d++) fits = other->sizes[d] == t->sizes[d];
  return px__check_fits(call, fits);
}

// ---- results

px_status px__matrices_result(px_call *call, int i, const px_tensor *t, int64_t m, int64_t n) {
  return px__matrices_result_of(call, i, t, m, n, (px_dtype)t->dtype);
}
px_status px__matrices_result_of(px_call *call, int i, const px_tensor *t, int64_t m, int64_t n,
                                 px_dtype dtype) {
  int64_t sizes[PX_MAX_DIMS], strides[PX_MAX_DIMS], step;
  int ndim = t->ndim;
  px__sizes_copy(sizes, t->sizes, ndim - 2);
  sizes[ndim - 2] = m, sizes[ndim - 1] = n;
  strides[ndim - 2] = 1, strides[ndim - 1] = m > 1 ? m : 1;
  step = px__product(strides[ndim - 1], n > 1 ? n : 1);
  for (int d = ndim - 3; d >= 0; d--) {
    strides[d] = step;
    step = px__product(step, sizes[d] > 1 ? sizes[d] : 1);
  }
  return px_tensor_empty_strided(&call->results[i], ndim, sizes, strides, dtype,
                                 px__tensor_device(t));
}
px_status px__lines_result(px_call *call, int i, const px_tensor *t, int64_t n, px_dtype dtype) {
  int64_t sizes[PX_MAX_DIMS];
  int ndim = t->ndim - 2;
  px__sizes_copy(sizes, t->sizes, ndim);
  if (n >= 0) sizes[ndim++] = n;
  return px_tensor_empty(&call->results[i], ndim, sizes, dtype, px__tensor_device(t));
}
