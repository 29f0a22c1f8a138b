// SPDX-License-Identifier: Apache-2.0
// Run functions of convolutions of images and volumes, transposed ones and gradients; checks of
// those of signals, which are formulas (ops/conv.op). The op's name has the number of dimensions.
#include "formulas.h"
#include "hidden/conv.h"
#include "hidden/volume.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/conv.h"

// ---- the convolution

// Adds a batch dimension to the input for the call.
static px_status unbatched(px_call *call) {
  px_value values[PX__MAX_PARAMS];
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  call->composed = true;
  memcpy(values, call->args, call->op->param_count * sizeof *values);
  PX_TRY(px_unsqueeze(&batch, values->v.tensor, 0));
  *values = PX_T(batch);
  PX_TRY(px_op_call(call->op, PX_CALL_NEW, values, (void **)&result));
  return px_squeeze_dim(&call->results[0], result, (int64_t[]){0}, 1);
}
static px_status conv_of_integers(px_call *call) {
  const px_value *a = call->args, operands[] = {a[0], a[1], a[3], a[4], a[5], a[6]};
  PX_SCOPED(px_tensor) made = NULL;
  call->composed = true;
  PX_TRY(px__formula_integer_conv(&made, operands));
  return px__formula_add_bias(call->results, (px_value[]){PX_T(made), a[2]});
}
PX_RUN(conv) {
  const px_tensor *x = args->input, *w = args->weight;
  int dims = px__op_dims(call->op);
  int64_t sizes[5];
  if (x->ndim == dims + 1 && w->ndim == dims + 2) return unbatched(call);
  PX_TRY(px__conv_lists(PX_CONV_STEPS(args), dims, true));
  PX_TRY(px__conv_operands(false, dims, x, w, args->bias, args->groups));
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__conv_sizes(dims, x->sizes, w->sizes, PX_CONV_STEPS(args), sizes));
  if (dims == 2 && px__has_integers(x)) return conv_of_integers(call);
  if (!x->sizes[1]) {
    sizes[1] = 0;  // as in PyTorch
    call->composed = true;
    return px__formula_empty_conv(
        call->results, (px_value[]){PX_T(x), PX_T(w), PX_T(args->bias), PX_IS(sizes, dims + 2)});
  }
  if (px__conv_by_images(call, dims, x)) return px__call_function(call, px__conv_of_images);
  return px__call_result(call, 0, dims + 2, sizes, (px_dtype)x->dtype);
}

// ---- gradients

static px_status check_conv_grad(const px_call *call, int dims, const px_tensor *grad, px_value x,
                                 px_value w, px__conv_steps by, int64_t groups) {
  int64_t sizes[5];
  char have[128], want[128];
  PX_TRY(px__conv_lists(by, dims, true));
  PX_CHECK(x.n == dims + 2 && w.n == dims + 2, PX_RUNTIME,
           "%s: expected %d sizes of the input and of the weight, got %d and %d", call->op->name,
           dims + 2, x.n, w.n);
  PX_CHECK(
      groups > 0 && w.v.ints[0] % groups == 0 && x.v.ints[1] == px__product(w.v.ints[1], groups),
      PX_RUNTIME, "%s: input of size %s does not match weight of size %s", call->op->name,
      px__sizes_text(have, sizeof have, x.n, x.v.ints),
      px__sizes_text(want, sizeof want, w.n, w.v.ints));
  PX_TRY(px__conv_sizes(dims, x.v.ints, w.v.ints, by, sizes));
  PX_CHECK(px__has_sizes(grad, dims + 2, sizes), PX_RUNTIME,
           "%s: expected a gradient of size %s, but got %s", call->op->name,
           px__sizes_text(want, sizeof want, dims + 2, sizes),
           px__size_text(have, sizeof have, grad));
  return PX_OK;
}
static px_value sizes_of(const px_tensor *t) { return PX_IS(t->sizes, t->ndim); }
PX_RUN(conv_backward_input) {
  const px_tensor *grad = args->grad_output;
  px_value sizes = args->input_size;
  int dims = px__op_dims(call->op);
  PX_TRY(check_conv_grad(call, dims, grad, sizes, sizes_of(args->weight), PX_CONV_STEPS(args),
                         args->groups));
  if (dims == 2 && grad->dtype == PX_INT64) {
    call->composed = true;
    return px__formula_integer_conv_input(call->results, call->args);
  }
  if (px__conv_by_images(call, dims, grad)) return px__call_function(call, px__input_of_images);
  return px__call_result(call, 0, sizes.n, sizes.v.ints, (px_dtype)grad->dtype);
}
PX_RUN(conv_backward_weight) {
  const px_tensor *grad = args->grad_output;
  px_value sizes = args->weight_size;
  int dims = px__op_dims(call->op);
  PX_TRY(check_conv_grad(call, dims, grad, sizes_of(args->input), sizes, PX_CONV_STEPS(args),
                         args->groups));
  if (px__conv_by_images(call, dims, grad)) return px__call_function(call, px__weight_of_images);
  return px__call_result(call, 0, sizes.n, sizes.v.ints, (px_dtype)grad->dtype);
}

// ---- checks of composites

// Checks before the conversion to real tensors, so that errors refer to the complex ones.
PX_RUN(complex_conv) { return px__conv_types(args->input, args->weight, args->bias); }
// Padding 'same' is that of stride 1.
PX_RUN(conv_mode) {
  int dims = args->weight->ndim - 2;
  PX_TRY(px__conv_list(args->stride, "stride", 1, dims, false));
  PX_TRY(px__conv_list(args->dilation, "dilation", 1, dims, false));
  for (int k = 0; k < dims; k++)
    PX_CHECK(strcmp(args->padding, "same") != 0 || px__int_at(args->stride, k) == 1, PX_RUNTIME,
             "padding='same' is not supported for strided convolutions");
  return PX_OK;
}
// Checks before the conversion to an image, so that errors refer to the signal.
PX_RUN(conv1d) {
  px__pair p = px__pair_of(args->input, args->weight);
  int64_t sizes[3];
  PX_TRY(px__conv_lists(PX_CONV_STEPS(args), 1, false));
  PX_TRY(px__conv_channels(&p, args->bias, args->groups, false));
  PX_TRY(px__conv_kernel(2, (int64_t[]){0, 0, 1, p.x[2]}, (int64_t[]){0, 0, 1, p.w[2]}));
  return px__conv_sizes(1, p.x, p.w, PX_CONV_STEPS(args), sizes);
}
PX_RUN(conv_transpose1d) {
  px__pair p = px__pair_of(args->input, args->weight);
  PX_TRY(px__conv_list(args->stride, "stride", 1, 1, false));
  PX_TRY(px__conv_list(args->padding, "padding", 0, 1, false));
  PX_TRY(px__conv_list(args->output_padding, "output_padding", 0, 1, false));
  PX_TRY(px__conv_list(args->dilation, "dilation", 1, 1, false));
  return px__conv_channels(&p, args->bias, args->groups, true);
}

// ---- transposed

static px_status check_transposed(const px__conv_transpose_args *args, int dims,
                                  const px_tensor *x) {
  px_value stride = args->stride, extra = args->output_padding, dilation = args->dilation;
  char text[3][160];
  PX_TRY(px__conv_list(stride, "stride", 1, dims, false));
  PX_TRY(px__conv_list(args->padding, "padding", 0, dims, false));
  PX_TRY(px__conv_list(extra, "output_padding", 0, dims, false));
  PX_TRY(px__conv_list(dilation, "dilation", 1, dims, false));
  PX_TRY(px__conv_operands(true, dims, x, args->weight, args->bias, args->groups));
  for (int k = 0; k < dims; k++)
    PX_CHECK(px__int_at(extra, k) < px__int_at(stride, k) ||
                 px__int_at(extra, k) < px__int_at(dilation, k),
             PX_RUNTIME,
             "output padding must be smaller than either stride or dilation, but got%s%s%s",
             px__by_dimension(text[0], "output_padding", dims, extra),
             px__by_dimension(text[1], "stride", dims, stride),
             px__by_dimension(text[2], "dilation", dims, dilation));
  return PX_OK;
}
static px_status transposed_sizes(const px__conv_transpose_args *args, int dims, const px_tensor *x,
                                  int64_t *sizes) {
  const px_tensor *w = args->weight;
  char have[96], made[96];
  bool fits = true;
  PX_TRY(px__conv_kernel(dims, x->sizes, w->sizes));
  sizes[0] = x->sizes[0], sizes[1] = px__product(w->sizes[1], args->groups);
  for (int k = 0; k < dims; k++) {
    int64_t stride = px__int_at(args->stride, k), dilation = px__int_at(args->dilation, k), span;
    PX_CHECK(!px__mul_size(x->sizes[2 + k], stride, &span) && span <= INT64_MAX / 4, PX_RUNTIME,
             "integer out of range");
    sizes[2 + k] = span - stride - 2 * px__int_at(args->padding, k) +
                   dilation * (w->sizes[2 + k] - 1) + px__int_at(args->output_padding, k) + 1;
    fits &= sizes[2 + k] > 0;
  }
  PX_CHECK(fits, PX_RUNTIME,
           "Given input size per channel: (%s). Calculated output size per channel: (%s). Output "
           "size is too small",
           px__by_text(have, dims, x->sizes + 2), px__by_text(made, dims, sizes + 2));
  return PX_OK;
}
// Output padding of at least the stride, beyond the last output of a convolution of the result.
typedef struct output_padding {
  int64_t padding[6], zeros[6];
} output_padding;
// Reduces the padding at the end. The remainder, which receives no input, is removed from the sizes
// of the transposed convolution and added as zero padding. Returns the number of paddings.
static int split_output_padding(output_padding *out, const px__conv_transpose_args *args, int dims,
                                int64_t *sizes) {
  bool any = false;
  *out = (output_padding){{0}, {0}};
  for (int k = 0; k < dims; k++) {
    int64_t stride = px__int_at(args->stride, k), pad = px__int_at(args->padding, k);
    int64_t extra = px__int_at(args->output_padding, k);
    int64_t taken = extra < stride ? 0 : extra < pad ? extra : pad;
    int64_t zeros_end = (extra - taken) / stride * stride;
    sizes[2 + k] -= zeros_end;
    out->padding[k] = pad, out->padding[dims + k] = pad - taken;
    out->zeros[2 * (dims - 1 - k) + 1] = zeros_end;
    any |= taken > 0;
  }
  return any ? 2 * dims : dims;
}
// The gradient of a convolution by its input, plus a bias per channel.
static px_status transpose_batch(px_tensor **out, const px__conv_transpose_args *args, int dims,
                                 const px_tensor *x) {
  const px_tensor *w = args->weight;
  px_value stride = args->stride, dilation = args->dilation;
  int64_t sizes[5];
  char text[128];
  output_padding extra;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) padded = NULL;
  PX_TRY(check_transposed(args, dims, x));
  PX_TRY(transposed_sizes(args, dims, x, sizes));
  PX_CHECK(x->numel || !x->sizes[0] || dims == 3, PX_RUNTIME,
           "Only zero batch or zero channel inputs are supported, but got input shape: %s",
           px__size_text(text, sizeof text, x));
  if (!sizes[0] || !sizes[1] || !x->numel)
    return px__formula_empty_conv(
        out, (px_value[]){PX_T(x), PX_T(w), PX_T(args->bias), PX_IS(sizes, dims + 2)});
  int paddings = split_output_padding(&extra, args, dims, sizes);
  PX_TRY((dims == 2 ? px_conv2d_backward_input : px_conv3d_backward_input)(
      &made, x, w, sizes, dims + 2, stride.v.ints, stride.n, extra.padding, paddings,
      dilation.v.ints, dilation.n, args->groups,
      px_memory_format_name(px_tensor_suggest_format(x))));
  PX_TRY(px_constant_pad_nd(&padded, made, extra.zeros, 2 * dims, px_int(0)));
  return px__formula_add_bias(out, (px_value[]){PX_T(padded), PX_T(args->bias)});
}
PX_RUN(conv_transpose) {
  px_tensor *x = args->input;
  int dims = px__op_dims(call->op);
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  if (x->ndim != dims + 1 || args->weight->ndim != dims + 2)
    return transpose_batch(&call->results[0], args, dims, x);
  PX_TRY(px_unsqueeze(&batch, x, 0));
  PX_TRY(transpose_batch(&made, args, dims, batch));
  return px_squeeze_dim(&call->results[0], made, (int64_t[]){0}, 1);
}
