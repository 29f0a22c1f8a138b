// SPDX-License-Identifier: Apache-2.0
// Layers dependent on the sizes of their input: with an output_size argument, or with the input's
// own sizes.
#include "layer_functions.h"
#include "nn/layers/layer_code.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/index.h"
#include "phlox/ops/volume.h"

enum { DIMS = 3, TEXT_SIZE = 96 };

px_value px__own_sizes(int64_t out[PX_MAX_DIMS], px_value sizes, const px_tensor *x) {
  int ndim = px_tensor_ndim(x);
  for (int i = 0; i < sizes.n; i++) {
    int dim = ndim - sizes.n + i;
    out[i] = sizes.v.ints[i];
    if (out[i] == PX_OWN_SIZE && dim >= 0) out[i] = px_tensor_size(x, dim);
  }
  sizes.v.ints = out;
  return sizes;
}

// Computes output_padding for the requested sizes.
static px_status output_padding(int64_t *beyond, const px_module *self, const px_tensor *x,
                                int dims, px_value sizes) {
  px_value stride = px_module_attribute(self, "stride"), kernel;
  px_value padding = px_module_attribute(self, "padding");
  px_value dilation = px_module_attribute(self, "dilation");
  int ndim = px_tensor_ndim(x), lead = ndim == dims + 2 ? 2 : 1, skip = sizes.n - dims;
  int64_t min[DIMS], max[DIMS];
  char text[3][TEXT_SIZE];
  kernel = px_module_attribute(self, "kernel_size");
  PX_CHECK(skip == 0 || skip == lead, PX_VALUE,
           "ConvTranspose%dD: for %dD input, output_size must have %d or %d elements (got %d)",
           dims, ndim, dims, lead + dims, sizes.n);
  const int64_t *requested = sizes.v.ints + skip;
  bool fits = true;
  for (int k = 0; k < dims; k++) {
    min[k] = (px_tensor_size(x, ndim - dims + k) - 1) * stride.v.ints[k] - 2 * padding.v.ints[k] +
             dilation.v.ints[k] * (kernel.v.ints[k] - 1) + 1;
    max[k] = min[k] + stride.v.ints[k] - 1;
    beyond[k] = requested[k] - min[k];
    fits &= min[k] <= requested[k] && requested[k] <= max[k];
  }
  PX_CHECK(
      fits, PX_VALUE, "requested an output size of [%s], but valid sizes range from [%s] to [%s]",
      px__comma_text(text[0], TEXT_SIZE, dims, requested),
      px__comma_text(text[1], TEXT_SIZE, dims, min), px__comma_text(text[2], TEXT_SIZE, dims, max));
  return PX_OK;
}

px_status px__conv_transpose_sized(px_tensor **out, px_module *self,
                                   const px__conv_transpose_sized_args *args) {
  px_tensor *w = px__tensor_of(self, "weight"), *bias = px__tensor_of(self, "bias");
  px_value stride = px_module_attribute(self, "stride");
  px_value padding = px_module_attribute(self, "padding");
  px_value dilation = px_module_attribute(self, "dilation");
  int64_t beyond[DIMS], groups = px_value_int(px_module_attribute(self, "groups"));
  int dims = stride.n;
  px_status (*const spread[])(px_tensor **, const px_tensor *, const px_tensor *, const px_tensor *,
                              const int64_t *, int64_t, const int64_t *, int64_t, const int64_t *,
                              int64_t, int64_t, const int64_t *, int64_t) = {
      px_conv_transpose1d, px_conv_transpose2d, px_conv_transpose3d};
  PX_TRY(output_padding(beyond, self, args->input, dims, args->sizes));
  return spread[dims - 1](out, args->input, w, bias, stride.v.ints, dims, padding.v.ints, dims,
                          beyond, dims, groups, dilation.v.ints, dims);
}

px_status px__max_unpool_sized(px_tensor **out, px_module *self,
                               const px__max_unpool_sized_args *args) {
  px_value kernel = px_module_attribute(self, "kernel_size");
  px_value stride = px_module_attribute(self, "stride");
  px_value padding = px_module_attribute(self, "padding");
  px_status (*const unpool[])(px_tensor **, const px_tensor *, const px_tensor *, const int64_t *,
                              int64_t, const int64_t *, int64_t, const int64_t *, int64_t,
                              const int64_t *,
                              int64_t) = {px_max_unpool1d, px_max_unpool2d, px_max_unpool3d};
  return unpool[kernel.n - 1](out, args->input, args->indices, kernel.v.ints, kernel.n,
                              stride.v.ints, stride.n, padding.v.ints, padding.n,
                              args->sizes.v.ints, args->sizes.n);
}

// ---- circular padding, with its own error text for the number of dimensions

px_status px__circular_pad_forward(px_tensor **out, px_module *self,
                                   const px__circular_pad_forward_args *args) {
  int ndim = px_tensor_ndim(args->input), alone = 1 + (int)args->number;
  px_value padding = px_module_attribute(self, "padding");
  PX_CHECK(ndim == alone || ndim == alone + 1, PX_VALUE,
           "expected %dD or %dD input (got %dD input)", alone, alone + 1, ndim);
  return px_pad(out, args->input, padding.v.ints, padding.n, "circular", px_no_scalar());
}
