// SPDX-License-Identifier: Apache-2.0
// Complex convolutions, composed from four real ones: convolution is linear in images and weights.
// Their gradients follow from the composition.
#include "hidden/conv.h"
#include "hidden/volume.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/view.h"
#include "run_functions/conv.h"
#include "run_functions/volume.h"

// Common parameters of the four convolutions. With `sizes` they are gradients of the input.
typedef struct conv_params {
  int dims;
  px_value stride, padding, dilation;
  int64_t groups;
  px_value sizes;  // absent: forward
  const char *format;
} conv_params;
#define LIST(list) (list).v.ints, (list).n

static px_status real_conv(px_tensor **out, const px_tensor *a, const px_tensor *b,
                           const conv_params *w) {
  if (!px__given(w->sizes))
    return (w->dims == 2 ? px_conv2d : px_conv3d_forward)(
        out, a, b, NULL, LIST(w->stride), LIST(w->padding), LIST(w->dilation), w->groups);
  return (w->dims == 2 ? px_conv2d_backward_input : px_conv3d_backward_input)(
      out, a, b, LIST(w->sizes), LIST(w->stride), LIST(w->padding), LIST(w->dilation), w->groups,
      w->format);
}
// One part of the product: ac - bd, or ad + bc.
static px_status one_part(px_tensor **out, px_tensor *const a[2], px_tensor *const b[2],
                          int part_index, const conv_params *w) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_TRY(real_conv(&x, a[0], b[part_index], w));
  PX_TRY(real_conv(&y, a[1], b[!part_index], w));
  return part_index ? px_add(out, x, y, px_int(1)) : px_sub(out, x, y, px_int(1));
}
static px_status complex_conv(px_tensor **out, const px_tensor *a, const px_tensor *b,
                              const conv_params *w) {
  PX_SCOPED(px_tensor) a_real = NULL;
  PX_SCOPED(px_tensor) a_imag = NULL;
  PX_SCOPED(px_tensor) b_real = NULL;
  PX_SCOPED(px_tensor) b_imag = NULL;
  PX_SCOPED(px_tensor) real = NULL;
  PX_SCOPED(px_tensor) imag = NULL;
  PX_TRY(px_real(&a_real, a));
  PX_TRY(px_imag(&a_imag, a));
  PX_TRY(px_real(&b_real, b));
  PX_TRY(px_imag(&b_imag, b));
  px_tensor *const x[] = {a_real, a_imag}, *const y[] = {b_real, b_imag};
  PX_TRY(one_part(&real, x, y, 0, w));
  PX_TRY(one_part(&imag, x, y, 1, w));
  return px_complex_of(out, real, imag);
}
static px_status forward(px_tensor **out, const px_tensor *x, const px_tensor *weight,
                         const px_tensor *bias, const conv_params *w) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px__conv_types(x, weight, bias));
  PX_TRY(complex_conv(&made, x, weight, w));
  return px__conv_biased(out, made, bias, w->dims);
}
#define CONV_PARAMS(n) \
  { \
    .dims = (n), .stride = args->stride, .padding = args->padding, .dilation = args->dilation, \
    .groups = args->groups \
  }

PX_RUN(_complex_conv2d) {
  const conv_params w = CONV_PARAMS(2);
  return forward(&call->results[0], args->input, args->weight, args->bias, &w);
}
PX_RUN(_complex_conv3d) {
  const conv_params w = CONV_PARAMS(3);
  return forward(&call->results[0], args->input, args->weight, args->bias, &w);
}
PX_RUN(_complex_conv2d_input) {
  conv_params w = CONV_PARAMS(2);
  w.sizes = args->input_size, w.format = args->memory_format;
  return complex_conv(&call->results[0], args->grad_output, args->weight, &w);
}
PX_RUN(_complex_conv3d_input) {
  conv_params w = CONV_PARAMS(3);
  w.sizes = args->input_size, w.format = args->memory_format;
  return complex_conv(&call->results[0], args->grad_output, args->weight, &w);
}
