// SPDX-License-Identifier: Apache-2.0
// Gradients of real-to-complex and complex-to-real Fourier transforms with half spectra. Each is
// the other transform, with a factor for elements representing two frequencies. The first element
// represents one, and for even n the last. The gradients call ops, so they are differentiable.
#include "grad_functions.h"
#include "hidden/fft.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

// Multiplies the elements representing two frequencies in a half spectrum of n points.
static px_status weighted(px_tensor **out, const px_tensor *half, int64_t dim, int64_t n,
                          double by) {
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) twice = NULL;
  PX_SCOPED(px_tensor) spread = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) pairs = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) dense = NULL;
  int64_t sizes[PX_MAX_DIMS], ndim = px_tensor_ndim(half), count = n / 2 + 1;
  PX_CHECK(ndim < PX_MAX_DIMS, PX_RUNTIME, "gradients of a transform of %lld dimensions",
           (long long)ndim);
  for (int64_t d = 0; d <= ndim; d++) sizes[d] = d == dim ? count : 1;
  px_dtype dtype = px_dtype_to_real(px_tensor_dtype(half));
  PX_TRY(px_ones(&weights, &count, 1, dtype, px_tensor_device(half), false, false));
  PX_TRY(px_narrow(&twice, weights, 0, 1, (n + 1) / 2 - 1));
  PX_TRY(px_fill_(twice, px_float(by)));
  PX_TRY(px_view(&spread, weights, sizes, ndim + 1));
  // Multiplies pairs of real numbers, a layout supported by the GPU kernels.
  PX_TRY(px_resolve_conj(&plain, half));
  PX_TRY(px_view_as_real(&pairs, plain));
  PX_TRY(px_mul(&scaled, pairs, spread));
  PX_TRY(px_contiguous(&dense, scaled));
  return px_view_as_complex(out, dense);
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
