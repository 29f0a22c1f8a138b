// SPDX-License-Identifier: Apache-2.0
// Layers that look at the sizes of their input: whose result may have one of several sizes, or the
// input's own.
#include "layer_functions.h"
#include "nn/layers/layer_code.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/index.h"
#include "phlox/ops/volume.h"

enum { DIMS = 3, ROOM = 96 };

px_value px__own_sizes(int64_t room[PX_MAX_DIMS], px_value sizes, const px_tensor *x) {
  int ndim = px_tensor_ndim(x);
  for (int i = 0; i < sizes.n; i++) {
    int dim = ndim - sizes.n + i;
    room[i] = sizes.v.ints[i];
    if (room[i] == PX_OWN_SIZE && dim >= 0) room[i] = px_tensor_size(x, dim);
  }
  sizes.v.ints = room;
  return sizes;
}

// What is added at the end of the result, so that it has the sizes.
static px_status beyond_of(int64_t *beyond, const px_module *self, const px_tensor *x, int dims,
                           px_value sizes) {
  px_value stride = px_module_attribute(self, "stride"), kernel;
  px_value padding = px_module_attribute(self, "padding");
  px_value dilation = px_module_attribute(self, "dilation");
  int ndim = px_tensor_ndim(x), lead = ndim == dims + 2 ? 2 : 1, skip = sizes.n - dims;
  int64_t least[DIMS], most[DIMS];
  char text[3][ROOM];
  kernel = px_module_attribute(self, "kernel_size");
  PX_CHECK(skip == 0 || skip == lead, PX_VALUE,
           "ConvTranspose%dD: for %dD input, output_size must have %d or %d elements (got %d)",
           dims, ndim, dims, lead + dims, sizes.n);
  const int64_t *wanted = sizes.v.ints + skip;
  bool fits = true;
  for (int k = 0; k < dims; k++) {
    least[k] = (px_tensor_size(x, ndim - dims + k) - 1) * stride.v.ints[k] - 2 * padding.v.ints[k] +
               dilation.v.ints[k] * (kernel.v.ints[k] - 1) + 1;
    most[k] = least[k] + stride.v.ints[k] - 1;
    beyond[k] = wanted[k] - least[k];
    fits &= least[k] <= wanted[k] && wanted[k] <= most[k];
  }
  PX_CHECK(fits, PX_VALUE,
           "requested an output size of [%s], but valid sizes range from [%s] to [%s]",
           px__comma_text(text[0], ROOM, dims, wanted), px__comma_text(text[1], ROOM, dims, least),
           px__comma_text(text[2], ROOM, dims, most));
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
  PX_TRY(beyond_of(beyond, self, args->input, dims, args->sizes));
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

// ---- padding that goes around, which has text of its own for other dimensions

px_status px__circular_pad_forward(px_tensor **out, px_module *self,
                                   const px__circular_pad_forward_args *args) {
  int ndim = px_tensor_ndim(args->input), alone = 1 + (int)args->number;
  px_value padding = px_module_attribute(self, "padding");
  PX_CHECK(ndim == alone || ndim == alone + 1, PX_VALUE,
           "expected %dD or %dD input (got %dD input)", alone, alone + 1, ndim);
  return px_pad(out, args->input, padding.v.ints, padding.n, "circular", px_no_scalar());
}
