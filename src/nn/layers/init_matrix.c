// SPDX-License-Identifier: Apache-2.0
// Matrix initialization: identity, Dirac, sparse, orthogonal. Patterns are computed on the host and
// copied. Random numbers are drawn on the weight's device.
#include "formulas.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/random.h"
#include "phlox/ops/view.h"

#include <math.h>

// Copies row-major values into a weight, unrecorded.
static px_status fill(px_tensor *weight, const px_tensor *host) {
  PX_SCOPED(px_tensor) shaped = NULL;
  bool recording = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = px_reshape(&shaped, host, px_tensor_sizes(weight), px_tensor_ndim(weight));
  if (status == PX_OK) status = px_copy_(weight, shaped, false);
  px_grad_set_enabled(recording);
  return status;
}
static px_status host_zeros(px_tensor **out, double **numbers, int64_t rows, int64_t columns) {
  PX_TRY(px_zeros(out, (int64_t[]){rows, columns}, 2, PX_FLOAT64, px_cpu(), false, false));
  *numbers = px_tensor_data(*out);
  return PX_OK;
}

px_status px_init_eye(px_tensor *weight) {
  PX_GIVEN(weight);
  double *numbers;
  PX_SCOPED(px_tensor) host = NULL;
  PX_CHECK(px_tensor_ndim(weight) == 2, PX_VALUE, "Only tensors with 2 dimensions are supported");
  int64_t rows = px_tensor_size(weight, 0), columns = px_tensor_size(weight, 1);
  PX_TRY(host_zeros(&host, &numbers, rows, columns));
  for (int64_t i = 0; i < rows && i < columns; i++) numbers[i * columns + i] = 1;
  return fill(weight, host);
}

// Sets the center of each kernel that preserves a channel to one.
px_status px_init_dirac(px_tensor *weight, int64_t groups) {
  PX_GIVEN(weight);
  int ndim = px_tensor_ndim(weight);
  int64_t field = 1, middle = 0;
  double *numbers;
  PX_SCOPED(px_tensor) host = NULL;
  PX_CHECK(ndim >= 3 && ndim <= 5, PX_VALUE,
           "Only tensors with 3, 4, or 5 dimensions are supported");
  int64_t rows = px_tensor_size(weight, 0), columns = px_tensor_size(weight, 1);
  PX_CHECK(groups > 0 && rows % groups == 0, PX_VALUE, "dim 0 must be divisible by groups");
  if (px_tensor_numel(weight) == 0) return PX_OK;
  for (int d = 2; d < ndim; d++) {
    int64_t size = px_tensor_size(weight, d);
    field *= size, middle = middle * size + size / 2;
  }
  int64_t each = rows / groups, preserved = each < columns ? each : columns;
  PX_TRY(host_zeros(&host, &numbers, rows, columns * field));
  for (int64_t g = 0; g < groups; g++)
    for (int64_t c = 0; c < preserved; c++)
      numbers[((g * each + c) * columns + c) * field + middle] = 1;
  return fill(weight, host);
}

// Sets a fraction of each column to zero; the rest is normally distributed.
px_status px_init_sparse(px_tensor *weight, double sparsity, double std, px_generator *generator) {
  PX_GIVEN(weight);
  double *numbers;
  PX_CHECK(px_tensor_ndim(weight) == 2, PX_VALUE, "Only tensors with 2 dimensions are supported");
  int64_t rows = px_tensor_size(weight, 0), columns = px_tensor_size(weight, 1);
  if (px_tensor_numel(weight) == 0) return PX_OK;
  double requested = ceil(sparsity * (double)rows);
  int64_t zeros = requested < 0 ? 0 : requested > (double)rows ? rows : (int64_t)requested;
  PX_TRY(px_init_normal(weight, 0, std, generator));
  PX_SCOPED(px_tensor) host = NULL;
  PX_TRY(px__formula_host_copy(&host, (px_value[]){PX_T(weight)}));
  numbers = px_tensor_data(host);
  for (int64_t c = 0; c < columns; c++) {
    PX_SCOPED(px_tensor) order = NULL;
    int64_t *at;
    PX_TRY(px_randperm(&order, rows, NULL, PX_INT64, px_cpu(), false, false));
    at = px_tensor_data(order);
    for (int64_t k = 0; k < zeros; k++) numbers[at[k] * columns + c] = 0;
  }
  return fill(weight, host);
}

// ---- orthogonal vectors

// One step of Gram-Schmidt: removes the components of vector k along the previous ones, twice for
// numerical accuracy, and normalizes it. Vectors have length `n` and are stored contiguously.
static void orthogonalize(double *vectors, int64_t k, int64_t n) {
  double *own = vectors + k * n, length = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t j = 0; j < k; j++) {
      const double *other = vectors + j * n;
      double along = 0;
      for (int64_t i = 0; i < n; i++) along += own[i] * other[i];
      for (int64_t i = 0; i < n; i++) own[i] -= along * other[i];
    }
  for (int64_t i = 0; i < n; i++) length += own[i] * own[i];
  length = sqrt(length);
  for (int64_t i = 0; length > 0 && i < n; i++) own[i] /= length;
}

// Saxe et al. 2013, "Exact solutions to the nonlinear dynamics of learning in deep linear neural
// networks".
px_status px_init_orthogonal(px_tensor *weight, double gain, px_generator *generator) {
  PX_GIVEN(weight);
  PX_SCOPED(px_tensor) host = NULL;
  double *numbers;
  PX_CHECK(px_tensor_ndim(weight) >= 2, PX_VALUE,
           "Only tensors with 2 or more dimensions are supported");
  if (px_tensor_numel(weight) == 0) return PX_OK;
  int64_t rows = px_tensor_size(weight, 0), columns = px_tensor_numel(weight) / rows;
  bool wide = rows < columns;  // the rows are the vectors
  PX_TRY(px__formula_drawn_vectors(
      &host, (px_value[]){PX_T(weight), PX_I(rows), PX_I(columns), PX_B(wide), PX_G(generator)}));
  numbers = px_tensor_data(host);
  int64_t count = wide ? rows : columns, n = wide ? columns : rows;
  for (int64_t k = 0; k < count; k++) orthogonalize(numbers, k, n);
  for (int64_t i = 0; i < count * n; i++) numbers[i] *= gain;
  if (wide) return fill(weight, host);
  PX_SCOPED(px_tensor) back = NULL;
  PX_TRY(px_transpose(&back, host, 0, 1));
  return fill(weight, back);
}
