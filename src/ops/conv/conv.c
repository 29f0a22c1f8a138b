// SPDX-License-Identifier: Apache-2.0
// Run functions of convolution and pooling: sizes of results, and PyTorch's argument checks.
#include "ops/conv/conv_impl.h"

#include "hidden/conv.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/conv.h"

#include <stdio.h>

#define LL(x) ((long long)(x))

// PyTorch's text lists the dilation of all dimensions, at least two.
static px_status refuse_dilation(px_value v, int dims) {
  char text[256];
  int64_t all[3] = {1, 1, 1};
  int count = dims < 2 ? 2 : dims;
  for (int k = 0; k < dims; k++) all[count - dims + k] = px__int_at(v, k);
  for (int k = 0; k < v.n; k++)
    PX_CHECK(v.v.ints[k] >= 0, PX_RUNTIME, "dilation should be greater than zero");
  PX_FAIL(PX_RUNTIME, "dilation should be greater than zero, but got %s",
          px__sizes_text(text, sizeof text, count, all));
}
px_status px__conv_list(px_value v, const char *name, int64_t min, int dims, bool both) {
  char text[256];
  PX_CHECK(v.n == 1 || v.n == dims || (both && v.n == 2 * dims), PX_RUNTIME,
           "expected %s to be a single integer value or a list of %d values to match the "
           "convolution dimensions, but got %s=%s",
           name, dims, name, px__sizes_text(text, sizeof text, v.n, v.v.ints));
  for (int i = 0; i < v.n; i++) {
    if (v.v.ints[i] < min && !strcmp(name, "dilation")) return refuse_dilation(v, dims);
    PX_CHECK(v.v.ints[i] >= min, PX_RUNTIME, "%s %s is not supported",
             min ? "non-positive" : "negative", name);
    PX_CHECK(v.v.ints[i] <= INT32_MAX, PX_RUNTIME, "integer out of range");
  }
  return PX_OK;
}
px_status px__conv_lists(px__conv_steps by, int dims, bool both) {
  PX_TRY(px__conv_list(by.stride, "stride", 1, dims, false));
  PX_TRY(px__conv_list(by.padding, "padding", 0, dims, both));
  return px__conv_list(by.dilation, "dilation", 1, dims, false);
}
px__pair px__pair_of(const px_tensor *x, const px_tensor *w) {
  px__pair p = {.ndim = w->ndim};
  bool alone = x->ndim < w->ndim;
  p.x[0] = 1;
  memcpy(p.x + alone, x->sizes, (size_t)x->ndim * sizeof *p.x);
  memcpy(p.w, w->sizes, (size_t)w->ndim * sizeof *p.w);
  return p;
}
// Error texts are formatted only when needed.
static const char *weight_text(char text[128], const px__pair *p) {
  return px__sizes_text(text, 128, p->ndim, p->w);
}
static const char *kind_text(char text[48], bool transposed, int64_t groups) {
  snprintf(text, 48, transposed ? "transposed=1, " : "groups=%lld, ", LL(groups));
  return text;
}
// Checks that the first dimension of a weight is divisible by groups.
static px_status check_groups(const px__pair *p, int64_t groups) {
  char ws[128];
  PX_CHECK(p->w[0] >= groups, PX_RUNTIME,
           "Given groups=%lld, expected weight to be at least %lld at dimension 0, but got weight "
           "of size %s instead",
           LL(groups), LL(groups), weight_text(ws, p));
  PX_CHECK(p->w[0] % groups == 0, PX_RUNTIME,
           "Given groups=%lld, expected weight to be divisible by %lld at dimension 0, but got "
           "weight of size [%s] instead",
           LL(groups), LL(groups), weight_text(ws, p));
  return PX_OK;
}
px_status px__conv_channels(const px__pair *p, const px_tensor *bias, int64_t groups,
                            bool transposed) {
  char ws[128], xs[128], buffer[48];
  int64_t channels = px__steps(groups, p->w[1]);
  int64_t expected = transposed ? p->w[0] : channels, given = transposed ? channels : p->w[0];
  PX_TRY(check_groups(p, groups));
  PX_CHECK(p->x[1] == expected, PX_RUNTIME,
           "Given %sweight of size %s, expected input%s to have %lld channels, but got %lld "
           "channels instead",
           kind_text(buffer, transposed, groups), weight_text(ws, p),
           px__sizes_text(xs, sizeof xs, p->ndim, p->x), LL(expected), LL(p->x[1]));
  PX_CHECK(!bias || (bias->ndim == 1 && bias->numel == given), PX_RUNTIME,
           "Given %sweight of size %s, expected bias to be 1-dimensional with %lld elements, but "
           "got bias of size %s instead",
           transposed ? kind_text(buffer, true, groups) : "", weight_text(ws, p), LL(given),
           px__size_text(xs, sizeof xs, bias));
  return PX_OK;
}
// Checks that the kernel is not empty and that sizes of images and kernels are in range.
static px_status check_kernel(const int64_t *x, const int64_t *w) {
  PX_CHECK(w[2] > 0 && w[3] > 0, PX_RUNTIME,
           "kernel size should be greater than zero, but got kernel_height: %lld kernel_width: "
           "%lld",
           LL(w[2]), LL(w[3]));
  for (int k = 2; k < 4; k++)
    PX_CHECK(w[k] <= INT32_MAX && x[k] >= 0 && x[k] <= INT64_MAX / 4, PX_RUNTIME,
             "integer out of range");
  return PX_OK;
}

px_status px__conv_types(const px_tensor *x, const px_tensor *w, const px_tensor *bias) {
  char name_x[48], name_w[48];
  bool device_mismatch =
      px__tensor_device(x).type == PX_CUDA && px__tensor_device(w).type == PX_CPU;
  PX_CHECK(x->dtype == w->dtype && !device_mismatch, PX_RUNTIME,
           "Input type (%s) and weight type (%s) should be the same",
           px_tensor_type_name(x, name_x), px_tensor_type_name(w, name_w));
  PX_CHECK(!bias || bias->dtype == x->dtype, PX_RUNTIME,
           "Input type (%s) and bias type (%s) should be the same",
           px_dtype_about((px_dtype)x->dtype)->type_name,
           px_dtype_about((px_dtype)(bias ? bias : x)->dtype)->type_name);
  return PX_OK;
}
static px_status check_conv(const px__conv2d_args *args) {
  const px_tensor *x = args->input, *w = args->weight;
  char xs[128];
  PX_TRY(px__conv_lists(PX_CONV_STEPS(args), 2, true));
  PX_CHECK(w->ndim == 4 && x->ndim == 4, PX_RUNTIME,
           "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: %s",
           px__size_text(xs, sizeof xs, x));
  PX_TRY(px__conv_types(x, w, args->bias));
  px__pair p = px__pair_of(x, w);
  return px__conv_channels(&p, args->bias, args->groups, false);
}
// "5 x 5": sizes of all dimensions.
static const char *by_text(char text[96], int dims, const int64_t *sizes) {
  size_t used = 0;
  for (int k = 0; k < dims; k++)
    used += (size_t)snprintf(text + used, 96 - used, k ? " x %lld" : "%lld", LL(sizes[k]));
  return text;
}
px_status px__conv_check_kernel(int dims, const int64_t *padded, const int64_t *kernel) {
  char have[96], need[96];
  for (int k = 0; k < dims; k++)
    PX_CHECK(padded[k] >= kernel[k], PX_RUNTIME,
             "Calculated padded input size per channel: (%s). Kernel size: (%s). Kernel size can't "
             "be greater than actual input size",
             by_text(have, dims, padded), by_text(need, dims, kernel));
  return PX_OK;
}
px_status px__conv_sizes(int dims, const int64_t *x, const int64_t *w, px__conv_steps by,
                         int64_t *sizes) {
  int64_t padded[3], kernel[3];
  sizes[0] = x[0], sizes[1] = w[0];
  for (int k = 0; k < dims; k++) {
    padded[k] = x[2 + k] + px__int_at(by.padding, k) + px__pad_end(by.padding, dims, k);
    kernel[k] = px__int_at(by.dilation, k) * (w[2 + k] - 1) + 1;
    sizes[2 + k] = (padded[k] - kernel[k]) / px__int_at(by.stride, k) + 1;
  }
  return px__conv_check_kernel(dims, padded, kernel);
}
// Adds a batch dimension to an image for the call.
static px_status unbatched(px_call *call, const px__conv2d_args *args) {
  px_value stride = args->stride, padding = args->padding, dilation = args->dilation;
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  call->composed = true;
  PX_TRY(px_unsqueeze(&batch, args->input, 0));
  PX_TRY(px_conv2d(&result, batch, args->weight, args->bias, stride.v.ints, stride.n,
                   padding.v.ints, padding.n, dilation.v.ints, dilation.n, args->groups));
  return px_squeeze_dim(&call->results[0], result, (int64_t[]){0}, 1);
}
px_status px__conv_empty(px_tensor **out, const px_tensor *const *tensors, int n, int ndim,
                         const int64_t *sizes) {
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  PX_TRY(px_zeros(&none, sizes, ndim, (px_dtype)tensors[0]->dtype, px__tensor_device(tensors[0]),
                  false, false));
  for (int i = 0; i < n && tensors[i]; i++) {
    PX_SCOPED(px_tensor) sum = NULL;
    px_tensor *next = NULL;
    PX_TRY(px_sum(&sum, tensors[i], NULL, 0, false, PX_DTYPE_NONE));
    PX_TRY(px_add(&next, total ? total : none, sum, px_int(1)));
    px_release(total);
    total = next;
  }
  *out = PX_MOVE(total);
  return PX_OK;
}
PX_RUN(conv2d) {
  const px_tensor *x = args->input, *w = args->weight;
  if (x->ndim == 3 && w->ndim == 4) return unbatched(call, args);
  PX_TRY(check_conv(args));
  PX_TRY(px__call_same_device(call));
  int64_t sizes[4];
  PX_TRY(check_kernel(x->sizes, w->sizes));
  PX_TRY(px__conv_sizes(2, x->sizes, w->sizes, PX_CONV_STEPS(args), sizes));
  if (px__has_integers(x)) {
    PX_SCOPED(px_tensor) made = NULL;
    call->composed = true;
    PX_TRY(px__conv_integers(&made, x, w, PX_CONV_STEPS(args), args->groups, sizes));
    return px__conv_biased(&call->results[0], made, args->bias, 2);
  }
  if (!x->sizes[1]) {
    sizes[1] = 0;  // as in PyTorch
    call->composed = true;
    return px__conv_empty(&call->results[0], (const px_tensor *[]){x, w, args->bias}, 3, 4, sizes);
  }
  return px__call_result(call, 0, 4, sizes, (px_dtype)x->dtype);
}

// ---- gradients

px_status px__conv_grad_fits(const px_call *call, const px_tensor *grad, px_value x, px_value w,
                             int64_t groups, const int64_t *sizes) {
  char have[128], want[128];
  int n = grad->ndim;
  PX_CHECK(sizes || (x.n == w.n && groups > 0 && w.v.ints[0] % groups == 0 &&
                     x.v.ints[1] == px__product(w.v.ints[1], groups)),
           PX_RUNTIME, "%s: input of size %s does not match weight of size %s", call->op->name,
           px__sizes_text(have, sizeof have, x.n, x.v.ints),
           px__sizes_text(want, sizeof want, w.n, w.v.ints));
  PX_CHECK(!sizes || (n == x.n && !memcmp(sizes, grad->sizes, (size_t)n * sizeof *sizes)),
           PX_RUNTIME, "%s: expected a gradient of size %s, but got %s", call->op->name,
           px__sizes_text(want, sizeof want, x.n, sizes ? sizes : x.v.ints),
           px__size_text(have, sizeof have, grad));
  return PX_OK;
}
static px_status check_conv_grad(const px_call *call, const px_tensor *grad, px_value x, px_value w,
                                 px__conv_steps by, int64_t groups) {
  int64_t sizes[4];
  PX_TRY(px__conv_lists(by, 2, true));
  PX_CHECK(x.n == 4 && w.n == 4, PX_RUNTIME,
           "%s: expected 4 sizes of the input and of the weight, got %d and %d", call->op->name,
           x.n, w.n);
  PX_TRY(px__conv_grad_fits(call, grad, x, w, groups, NULL));
  PX_TRY(check_kernel(x.v.ints, w.v.ints));
  PX_TRY(px__conv_sizes(2, x.v.ints, w.v.ints, by, sizes));
  return px__conv_grad_fits(call, grad, x, w, groups, sizes);
}
static px_value sizes_of(const px_tensor *t) { return PX_IS(t->sizes, t->ndim); }
PX_RUN(conv2d_backward_input) {
  const px_tensor *grad = args->grad_output;
  px_value sizes = args->input_size;
  PX_TRY(check_conv_grad(call, grad, sizes, sizes_of(args->weight), PX_CONV_STEPS(args),
                         args->groups));
  if (grad->dtype != PX_INT64)
    return px__call_result(call, 0, sizes.n, sizes.v.ints, (px_dtype)grad->dtype);
  call->composed = true;
  return px__conv_integers_back(&call->results[0], grad, args->weight, PX_CONV_STEPS(args),
                                args->groups, sizes.v.ints);
}
PX_RUN(conv2d_backward_weight) {
  return check_conv_grad(call, args->grad_output, sizes_of(args->input), args->weight_size,
                         PX_CONV_STEPS(args), args->groups);
}

px_status px__same_padding(int64_t *padding, const char *mode, const px_tensor *w, px_value stride,
                           px_value dilation) {
  bool same = !strcmp(mode, "same");
  int dims = w->ndim - 2;
  for (int k = 0; same && k < dims; k++) {
    PX_CHECK(px__int_at(stride, k) == 1, PX_RUNTIME,
             "padding='same' is not supported for strided convolutions");
    int64_t total = px__product(px__int_at(dilation, k), w->sizes[2 + k] - 1);
    padding[k] = total / 2, padding[dims + k] = total - total / 2;
  }
  return PX_OK;
}
PX_RUN(conv2d_mode) {
  const px_tensor *x = args->input, *w = args->weight;
  px_value stride = args->stride, dilation = args->dilation;
  int64_t padding[4] = {0};
  PX_TRY(px__conv_list(stride, "stride", 1, 2, false));
  PX_TRY(px__conv_list(dilation, "dilation", 1, 2, false));
  PX_TRY(px__same_padding(padding, args->padding, w, args->stride, args->dilation));
  return px_conv2d(&call->results[0], x, w, args->bias, stride.v.ints, stride.n, padding, 4,
                   dilation.v.ints, dilation.n, args->groups);
}
// Checks that lists have one number, for a signal's only dimension. A stride may be omitted.
static px_status check_lone(const px_call *call) {
  for (int i = 1; i < call->op->param_count; i++) {
    const px_param *p = &call->op->params[i];
    px_value list = call->args[i];
    bool left_out = p->has_default && p->fallback.n == 0 && list.n == 0;
    PX_CHECK(list.kind != PX_ARG_INTS || list.n == 1 || left_out, PX_RUNTIME,
             "expected %s to be a single integer value or a list of 1 values to match the "
             "convolution dimensions, but got %s=%s",
             p->name, p->name, px__sizes_text((char[128]){0}, 128, list.n, list.v.ints));
  }
  return PX_OK;
}
// Converts a signal to an image of one row, and back.
static px_status as_image(px_tensor **out, const px_tensor *signal) {
  return px_unsqueeze(out, signal, -2);
}
static px_status as_signal(px_tensor **out, const px_tensor *image) {
  return px_squeeze_dim(out, image, (int64_t[]){-2}, 1);
}
// Lists for an image of one row: {row, the signal's number}. `row` is 1 or 0.
typedef struct row_pair {
  int64_t of[2];
} row_pair;
static row_pair as_row_pair(px_value list, int64_t row) {
  return (row_pair){{row, list.v.ints[0]}};
}
// Checks before the conversion to an image, so that errors refer to the signal.
static px_status check_signal(const px__conv1d_args *args) {
  px__pair p = px__pair_of(args->input, args->weight);
  int64_t padding = args->padding.v.ints[0], dilation = args->dilation.v.ints[0];
  PX_TRY(px__conv_lists(PX_CONV_STEPS(args), 1, false));
  PX_TRY(px__conv_channels(&p, args->bias, args->groups, false));
  PX_TRY(check_kernel((int64_t[]){0, 0, 1, p.x[2]}, (int64_t[]){0, 0, 1, p.w[2]}));
  int64_t padded = p.x[2] + 2 * padding, kernel = dilation * (p.w[2] - 1) + 1;
  return px__conv_check_kernel(1, &padded, &kernel);
}
// Convolves the signal as an image of one row.
PX_RUN(conv1d) {
  PX_TRY(check_lone(call));
  PX_TRY(check_signal(args));
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(as_image(&image, args->input));
  PX_TRY(as_image(&kernel, args->weight));
  PX_TRY(px_conv2d(&wide, image, kernel, args->bias, as_row_pair(args->stride, 1).of, 2,
                   as_row_pair(args->padding, 0).of, 2, as_row_pair(args->dilation, 1).of, 2,
                   args->groups));
  return as_signal(&call->results[0], wide);
}
PX_RUN(conv1d_mode) {
  const px_tensor *x = args->input, *w = args->weight;
  PX_SCOPED(px_tensor) padded = NULL;
  int64_t padding[2] = {0}, none = 0;
  PX_TRY(check_lone(call));
  PX_TRY(px__same_padding(padding, args->padding, w, args->stride, args->dilation));
  PX_TRY(px_constant_pad_nd(&padded, x, padding, 2, px_int(0)));
  return px_conv1d(&call->results[0], padded, w, args->bias, args->stride.v.ints, args->stride.n,
                   &none, 1, args->dilation.v.ints, args->dilation.n, args->groups);
}

// ---- transposed

static px_status check_transposed(const px__conv_transpose2d_args *args, const px_tensor *x) {
  const px_tensor *w = args->weight;
  px_value stride = args->stride, extra_padding = args->output_padding, dilation = args->dilation;
  char xs[128];
  PX_TRY(px__conv_list(stride, "stride", 1, 2, false));
  PX_TRY(px__conv_list(args->padding, "padding", 0, 2, false));
  PX_TRY(px__conv_list(extra_padding, "output_padding", 0, 2, false));
  PX_TRY(px__conv_list(dilation, "dilation", 1, 2, false));
  PX_CHECK(x->ndim == 4 && w->ndim == 4, PX_RUNTIME,
           "Expected 3D (unbatched) or 4D (batched) input to conv_transpose2d, but got input of "
           "size: %s",
           px__size_text(xs, sizeof xs, x));
  px__pair p = px__pair_of(x, w);
  PX_TRY(px__conv_channels(&p, args->bias, args->groups, true));
  for (int k = 0; k < 2; k++)
    PX_CHECK(px__int_at(extra_padding, k) < px__int_at(stride, k) ||
                 px__int_at(extra_padding, k) < px__int_at(dilation, k),
             PX_RUNTIME,
             "output padding must be smaller than either stride or dilation, but got "
             "output_padding_height: %lld output_padding_width: %lld stride_height: %lld "
             "stride_width: %lld dilation_height: %lld dilation_width: %lld",
             LL(px__int_at(extra_padding, 0)), LL(px__int_at(extra_padding, 1)),
             LL(px__int_at(stride, 0)), LL(px__int_at(stride, 1)), LL(px__int_at(dilation, 0)),
             LL(px__int_at(dilation, 1)));
  return PX_OK;
}
static px_status transposed_sizes(const px__conv_transpose2d_args *args, const px_tensor *x,
                                  int64_t *sizes) {
  const px_tensor *w = args->weight;
  PX_TRY(check_kernel(x->sizes, w->sizes));
  sizes[0] = x->sizes[0], sizes[1] = px__product(w->sizes[1], args->groups);
  for (int k = 0; k < 2; k++) {
    int64_t stride = px__int_at(args->stride, k), dilation = px__int_at(args->dilation, k), span;
    PX_CHECK(!px__mul_size(x->sizes[2 + k], stride, &span) && span <= INT64_MAX / 4, PX_RUNTIME,
             "integer out of range");
    sizes[2 + k] = span - stride - 2 * px__int_at(args->padding, k) +
                   dilation * (w->sizes[2 + k] - 1) + px__int_at(args->output_padding, k) + 1;
  }
  PX_CHECK(sizes[2] > 0 && sizes[3] > 0, PX_RUNTIME,
           "Given input size per channel: (%lld x %lld). Calculated output size per channel: "
           "(%lld x %lld). Output size is too small",
           LL(x->sizes[2]), LL(x->sizes[3]), LL(sizes[2]), LL(sizes[3]));
  return PX_OK;
}
int px__split_output_padding(px__output_padding *out, int64_t *sizes, int dims,
                             px_value extra_padding, px__conv_steps by) {
  bool any = false;
  *out = (px__output_padding){{0}, {0}};
  for (int k = 0; k < dims; k++) {
    int64_t stride = px__int_at(by.stride, k), pad = px__int_at(by.padding, k);
    int64_t extra = px__int_at(extra_padding, k), taken = extra < stride ? 0
                                                          : extra < pad  ? extra
                                                                         : pad;
    int64_t zeros_end = (extra - taken) / stride * stride;
    sizes[2 + k] -= zeros_end;
    out->padding[k] = pad, out->padding[dims + k] = pad - taken;
    out->zeros[2 * (dims - 1 - k) + 1] = zeros_end;
    any |= taken > 0;
  }
  return any ? 2 * dims : dims;
}
px_status px__conv_biased(px_tensor **out, px_tensor *made, const px_tensor *bias, int dims) {
  PX_SCOPED(px_tensor) shift = NULL;
  if (!bias) return *out = px_retain(made), PX_OK;
  PX_TRY(px_reshape(&shift, bias, (int64_t[]){-1, 1, 1, 1}, dims + 1));
  return px_add(out, made, shift, px_int(1));
}
// Transposed convolution: the gradient of conv2d by its input, plus a bias per channel.
static px_status transpose_images(px_tensor **out, const px__conv_transpose2d_args *args,
                                  const px_tensor *x) {
  const px_tensor *w = args->weight, *bias = args->bias;
  px_value stride = args->stride, dilation = args->dilation;
  PX_SCOPED(px_tensor) dilated = NULL;
  PX_SCOPED(px_tensor) padded_result = NULL;
  px__output_padding extra_padding;
  int64_t sizes[4];
  char text[128];
  PX_TRY(check_transposed(args, x));
  PX_TRY(transposed_sizes(args, x, sizes));
  PX_CHECK(x->numel || !x->sizes[0], PX_RUNTIME,
           "Only zero batch or zero channel inputs are supported, but got input shape: %s",
           px__size_text(text, sizeof text, x));
  if (!sizes[0] || !sizes[1])
    return px__conv_empty(out, (const px_tensor *[]){x, w, bias}, 3, 4, sizes);
  int paddings =
      px__split_output_padding(&extra_padding, sizes, 2, args->output_padding, PX_CONV_STEPS(args));
  PX_TRY(px_conv2d_backward_input(&dilated, x, w, sizes, 4, stride.v.ints, stride.n,
                                  extra_padding.padding, paddings, dilation.v.ints, dilation.n,
                                  args->groups,
                                  px_memory_format_name(px_tensor_suggest_format(x))));
  PX_TRY(px_constant_pad_nd(&padded_result, dilated, extra_padding.zeros, 4, px_int(0)));
  return px__conv_biased(out, padded_result, bias, 2);
}
PX_RUN(conv_transpose2d) {
  px_tensor *x = args->input;
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  if (x->ndim != 3 || args->weight->ndim != 4) return transpose_images(&call->results[0], args, x);
  PX_TRY(px_unsqueeze(&batch, x, 0));
  PX_TRY(transpose_images(&made, args, batch));
  return px_squeeze_dim(&call->results[0], made, (int64_t[]){0}, 1);
}

PX_RUN(conv_transpose1d) {
  const px_tensor *x = args->input, *w = args->weight;
  px__pair p = px__pair_of(x, w);
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(check_lone(call));
  PX_TRY(px__conv_channels(&p, args->bias, args->groups, true));
  PX_TRY(as_image(&image, x));
  PX_TRY(as_image(&kernel, w));
  PX_TRY(px_conv_transpose2d(&wide, image, kernel, args->bias, as_row_pair(args->stride, 1).of, 2,
                             as_row_pair(args->padding, 0).of, 2,
                             as_row_pair(args->output_padding, 0).of, 2, args->groups,
                             as_row_pair(args->dilation, 1).of, 2));
  return as_signal(&call->results[0], wide);
}

// ---- pooling

// A pooling window. Default dilation: 1; default stride: the kernel's size.
typedef struct window {
  px_value kernel, stride, padding, dilation;
  bool ceiling;
} window;
static px_status check_window(const char *name, const window *w) {
  px_value kernel = w->kernel, stride = w->stride, padding = w->padding;
  PX_CHECK(kernel.n == 1 || kernel.n == 2, PX_RUNTIME,
           "%s: kernel_size must either be a single int, or a tuple of two ints", name);
  PX_CHECK(stride.n <= 2, PX_RUNTIME,
           "%s: stride must either be omitted, a single int, or a tuple of two ints", name);
  PX_CHECK(padding.n == 1 || padding.n == 2, PX_RUNTIME,
           "%s: padding must either be a single int, or a tuple of two ints", name);
  const px_value lists[] = {kernel, stride, padding, w->dilation};
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < lists[i].n; k++)
      PX_CHECK(lists[i].v.ints[k] == (int)lists[i].v.ints[k], PX_RUNTIME, "integer out of range");
  return PX_OK;
}
// Batches may be empty, images may not.
static px_status check_image(px_value x) {
  char text[128];
  for (int i = x.n - 3; i < x.n; i++)
    PX_CHECK(x.v.ints[i] > 0, PX_RUNTIME,
             "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but "
             "got:%s",
             px__sizes_text(text, sizeof text, x.n, x.v.ints));
  return PX_OK;
}
// Checks that precede those of the image's sizes.
static px_status check_steps(const window *w, int k) {
  px_value strides = w->stride.n ? w->stride : w->kernel;
  int64_t kernel = px__int_at(w->kernel, k), pad = px__int_at(w->padding, k);
  int64_t step = px__int_at(strides, k), gap = w->dilation.n ? px__int_at(w->dilation, k) : 1;
  PX_CHECK(step != 0, PX_RUNTIME, "stride should not be zero");
  PX_CHECK(kernel > 0, PX_RUNTIME,
           "kernel size should be greater than zero, but got kH: %lld kW: %lld",
           LL(px__int_at(w->kernel, 0)), LL(px__int_at(w->kernel, 1)));
  PX_CHECK(step > 0, PX_RUNTIME, "stride should be greater than zero, but got dH: %lld dW: %lld",
           LL(px__int_at(strides, 0)), LL(px__int_at(strides, 1)));
  PX_CHECK(pad >= 0, PX_RUNTIME, "pad must be non-negative, but got pad: %lld", LL(pad));
  PX_CHECK(pad <= kernel / 2, PX_RUNTIME,
           "pad should be at most half of effective kernel size, but got pad=%lld, "
           "kernel_size=%lld and dilation=%lld",
           LL(pad), LL(kernel), LL(gap));
  return PX_OK;
}
// Number of outputs along dimension k of `size` elements.
static px_status pool_outputs(int64_t *out, const window *w, int k, int64_t size) {
  px_value strides = w->stride.n ? w->stride : w->kernel;
  int64_t gap = w->dilation.n ? px__int_at(w->dilation, k) : 1;
  PX_CHECK(size <= INT64_MAX / 4, PX_RUNTIME, "integer out of range");
  *out = px__window_outputs(size, px__int_at(w->kernel, k), px__int_at(strides, k),
                            px__int_at(w->padding, k), gap, w->ceiling);
  return PX_OK;
}
// Sizes of the result for an input of sizes x.
static px_status pool_sizes(const char *name, px_value x, const window *w, int64_t *sizes) {
  PX_TRY(check_window(name, w));
  PX_CHECK(x.n == 3 || x.n == 4, PX_RUNTIME,
           "non-empty 3D or 4D (batch mode) tensor expected for input");
  for (int k = 0; k < 2; k++) PX_TRY(check_steps(w, k));
  PX_TRY(check_image(x));
  for (int i = 0; i < x.n; i++) sizes[i] = x.v.ints[i];
  int64_t *out = &sizes[x.n - 3];
  const int64_t *in = &x.v.ints[x.n - 3];
  for (int k = 0; k < 2; k++) PX_TRY(pool_outputs(&out[k + 1], w, k, in[k + 1]));
  PX_CHECK(out[1] >= 1 && out[2] >= 1, PX_RUNTIME,
           "Given input size: (%lldx%lldx%lld). Calculated output size: (%lldx%lldx%lld). Output "
           "size is too small",
           LL(in[0]), LL(in[1]), LL(in[2]), LL(out[0]), LL(out[1]), LL(out[2]));
  return PX_OK;
}
// The windows along both dimensions.
static void steps_of(px__window_steps *s, const window *w, const px_tensor *x,
                     const int64_t *sizes) {
  px_value strides = w->stride.n ? w->stride : w->kernel;
  for (int k = 0; k < 2; k++)
    s[k] = (px__window_steps){.size = x->sizes[x->ndim - 2 + k],
                              .outputs = sizes[x->ndim - 2 + k],
                              .kernel = px__int_at(w->kernel, k),
                              .stride = px__int_at(strides, k),
                              .pad = px__int_at(w->padding, k),
                              .dilation = w->dilation.n ? px__int_at(w->dilation, k) : 1};
}
// Copies to the memory format of x, like the kernel's results.
static px_status like_format(px_tensor **out, const px_tensor *made, const px_tensor *x) {
  return px_clone(out, made, px_memory_format_name(px_tensor_suggest_format(x)));
}
static px_status integer_maxima(px_call *call, px_tensor *x, const window *w,
                                const int64_t *sizes) {
  px__window_steps steps[2];
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  call->composed = true;
  if (!x->numel) {
    PX_TRY(px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype));
    return px__call_result(call, 1, x->ndim, sizes, PX_INT64);
  }
  steps_of(steps, w, x, sizes);
  PX_TRY(px__integer_maxima(&made, &where, x, 2, steps));
  PX_TRY(like_format(&call->results[0], made, x));
  return like_format(&call->results[1], where, x);
}
PX_RUN(max_pool2d_with_indices) {
  px_tensor *x = args->self;
  int64_t sizes[PX_MAX_DIMS];
  window w = {args->kernel_size, args->stride, args->padding, args->dilation, args->ceil_mode};
  PX_TRY(pool_sizes(call->op->name, sizes_of(x), &w, sizes));
  if (px__has_integers(x)) return integer_maxima(call, x, &w, sizes);
  PX_TRY(px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype));
  return px__call_result(call, 1, x->ndim, sizes, PX_INT64);
}
PX_RUN(max_pool2d) {
  PX_SCOPED(px_tensor) indices = NULL;
  px_value kernel = args->kernel_size, stride = args->stride, padding = args->padding;
  px_value dilation = args->dilation;
  return px_max_pool2d_with_indices(&call->results[0], &indices, args->self, kernel.v.ints,
                                    kernel.n, stride.v.ints, stride.n, padding.v.ints, padding.n,
                                    dilation.v.ints, dilation.n, args->ceil_mode);
}
PX_RUN(avg_pool2d) {
  px_tensor *x = args->self;
  int64_t sizes[PX_MAX_DIMS];
  window w = {args->kernel_size, args->stride, args->padding, PX_IS(NULL, 0), args->ceil_mode};
  PX_TRY(pool_sizes(call->op->name, sizes_of(x), &w, sizes));
  if (x->dtype == PX_INT64) {
    px__window_steps steps[2];
    int64_t divisor = px__given(args->divisor_override) ? px_value_int(args->divisor_override) : 0;
    steps_of(steps, &w, x, sizes);
    call->composed = true;
    PX_SCOPED(px_tensor) made = NULL;
    PX_TRY(px__integer_means(&made, x, 2, steps, args->count_include_pad, divisor));
    return like_format(&call->results[0], made, x);
  }
  return px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype);
}
// Fails unless grad has these sizes.
static px_status check_pool_grad(const px_call *call, const px_tensor *grad, px_value input,
                                 const int64_t *sizes) {
  char have[128], want[128];
  PX_CHECK(px__has_sizes(grad, input.n, sizes), PX_RUNTIME,
           "%s: expected a gradient of size %s, but got %s", call->op->name,
           px__sizes_text(want, sizeof want, input.n, sizes),
           px__size_text(have, sizeof have, grad));
  return PX_OK;
}
PX_RUN(avg_pool2d_backward) {
  int64_t sizes[PX_MAX_DIMS];
  window w = {args->kernel_size, args->stride, args->padding, PX_IS(NULL, 0), args->ceil_mode};
  PX_TRY(pool_sizes(call->op->name, args->input_size, &w, sizes));
  return check_pool_grad(call, args->grad_output, args->input_size, sizes);
}

// ---- pooling of signals

static row_pair stride_pair(px_value stride, px_value kernel) {
  return as_row_pair(stride.n ? stride : kernel, 1);
}
// PyTorch's error texts for signal pooling windows.
static px_status check_signal_window(const px__max_pool1d_args *args) {
  int64_t kernel = args->kernel_size.v.ints[0], pad = args->padding.v.ints[0], span;
  int64_t gap = args->dilation.v.ints[0], size = args->self->sizes[args->self->ndim - 1];
  PX_CHECK(pad <= kernel / 2, PX_RUNTIME,
           "max_pool1d() padding should be at most half of kernel size, but got padding=%lld and "
           "kernel_size=%lld",
           LL(pad), LL(kernel));
  PX_CHECK(!__builtin_mul_overflow(kernel - 1, gap, &span), PX_RUNTIME,
           "effective kernel size overflows, but got kernel_size=%lld and dilation=%lld",
           LL(kernel), LL(gap));
  int64_t outputs = px__window_outputs(
      size, kernel, stride_pair(args->stride, args->kernel_size).of[1], pad, gap, args->ceil_mode);
  PX_CHECK(outputs > 0, PX_RUNTIME, "max_pool1d() Invalid computed output size: %lld", LL(outputs));
  return PX_OK;
}
PX_RUN(max_pool1d) {
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(check_lone(call));
  PX_TRY(check_signal_window(args));
  PX_TRY(as_image(&image, args->self));
  PX_TRY(px_max_pool2d(&wide, image, as_row_pair(args->kernel_size, 1).of, 2,
                       stride_pair(args->stride, args->kernel_size).of, 2,
                       as_row_pair(args->padding, 0).of, 2, as_row_pair(args->dilation, 1).of, 2,
                       args->ceil_mode));
  return as_signal(&call->results[0], wide);
}
PX_RUN(avg_pool1d) {
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(check_lone(call));
  PX_TRY(as_image(&image, args->self));
  PX_TRY(px_avg_pool2d(&wide, image, as_row_pair(args->kernel_size, 1).of, 2,
                       stride_pair(args->stride, args->kernel_size).of, 2,
                       as_row_pair(args->padding, 0).of, 2, args->ceil_mode,
                       args->count_include_pad, NULL));
  return as_signal(&call->results[0], wide);
}
PX_RUN(adaptive_avg_pool1d) {
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(check_lone(call));
  PX_TRY(as_image(&image, args->self));
  PX_TRY(px_adaptive_avg_pool2d(&wide, image, as_row_pair(args->output_size, 1).of, 2));
  return as_signal(&call->results[0], wide);
}
