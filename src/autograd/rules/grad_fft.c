// SPDX-License-Identifier: Apache-2.0
// Gradients of real-to-complex and complex-to-real Fourier transforms with half spectra. Each is
// the other transform, with a factor for elements representing two frequencies. The first element
// represents one, and for even n the last. The gradients call ops, so they are differentiable.
#include "formulas.h"
#include "grad_functions.h"
#include "hidden/fft.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

static px_status weighted(px_tensor **out, const px_tensor *half, int64_t dim, int64_t n,
                          double by) {
  PX_CHECK(px_tensor_ndim(half) < PX_MAX_DIMS, PX_RUNTIME,
           "gradients of a transform of %d dimensions", px_tensor_ndim(half));
  return px__formula_weighted_pairs(out, (px_value[]){PX_T(half), PX_I(dim), PX_I(n), PX_F(by)});
}

px_status px__grad_fft_whole(px_tensor **out, px_tensor *grad, px_value dims, int64_t normalization,
                             bool onesided, px_value sizes) {
  int others = dims.n - 1;
  int64_t dim = dims.v.ints[others], n = sizes.v.ints[dim];
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  if (!onesided) {
    PX_TRY(px__fft_c2c(&made, grad, &dim, 1, normalization, -1));
    return px_real(out, made);
  }
  if (others) PX_TRY(px__fft_c2c(&first, grad, dims.v.ints, others, normalization, -1));
  PX_TRY(weighted(&made, others ? first : grad, dim, n, 0.5));
  return px__fft_c2r(out, made, dim, normalization, n);
}

px_status px__grad_fft_half(px_tensor **out, px_tensor *grad, int64_t dim, int64_t normalization) {
  PX_SCOPED(px_tensor) half = NULL;
  PX_TRY(px__fft_r2c(&half, grad, &dim, 1, normalization, true));
  return weighted(out, half, dim, px_tensor_sizes(grad)[dim], 2);
}
