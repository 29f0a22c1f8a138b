// SPDX-License-Identifier: Apache-2.0
// Run functions of 3-D convolutions. The CPU has kernels for floating-point dtypes. Other devices
// and integers use 2-D convolutions. An output depth of a kernel with kD planes reads kD input
// planes of each channel. They become C * kD channels of an image, and the weight is reshaped
// likewise. The image takes kD times the memory of the input. Gradients are those of the 2-D
// convolution, summed over the copies of each plane.
#include "hidden/conv.h"
#include "hidden/volume.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "phlox/ops/volume.h"
#include "run_functions/volume.h"

#include <stdio.h>

#define LL(x) ((long long)(x))
#define LIST(list) (list).v.ints, (list).n
enum { DIMS = 3 };

static px_status check_volume(const char *name, const px_tensor *x, const px_tensor *w) {
  char text[128];
  PX_CHECK(x->ndim == 5 && w->ndim == 5, PX_RUNTIME,
           "Expected 4D (unbatched) or 5D (batched) input to %s, but got input of size: %s", name,
           px__size_text(text, sizeof text, x));
  return PX_OK;
}

// The output sizes for an input of sizes x and a weight of sizes w.
static px_status conv_sizes(const int64_t *x, const int64_t *w, px__conv_steps by, int64_t *sizes) {
  for (int k = 2; k < 2 + DIMS; k++) {
    PX_CHECK(w[k] > 0, PX_RUNTIME,
             "kernel size should be greater than zero, but got kernel of size %lld", LL(w[k]));
    PX_CHECK(w[k] <= INT32_MAX && x[k] >= 0 && x[k] <= INT64_MAX / 4, PX_RUNTIME,
             "integer out of range");
  }
  return px__conv_sizes(DIMS, x, w, by, sizes);
}

// ---- planes as channels

// The input planes read by kernel plane k, and their output depths.
typedef struct planes {
  int64_t first, count, step;  // input planes
  int64_t at;                  // first output depth
} planes;
static planes planes_of(int64_t depth, int64_t out, px__conv_steps by, int64_t k) {
  int64_t step = px__int_at(by.stride, 0);
  int64_t from = k * px__int_at(by.dilation, 0) - px__int_at(by.padding, 0);
  int64_t at = from < 0 ? (-from + step - 1) / step : 0;
  planes p = {.first = from + at * step, .step = step, .at = at};
  int64_t available = p.first < depth ? (depth - p.first + step - 1) / step : 0;
  p.count = out - at < available ? out - at : available;
  if (p.count < 0) p.count = 0;
  return p;
}
// The source and destination of the copy of kernel plane k, both [N, count, C, H, W]: parts of the
// columns [N, out, C, kD, H, W] and of the volume.
static px_status copy_views(px_tensor **columns_part, px_tensor **volume_part,
                            const px_tensor *columns, const px_tensor *volume, planes p,
                            int64_t k) {
  PX_SCOPED(px_tensor) outputs = NULL;
  PX_SCOPED(px_tensor) range = NULL;
  PX_TRY(px__part_slice(&outputs, columns, 1, p.at, p.count, 1));
  PX_TRY(px__part_select(columns_part, outputs, 3, k));
  PX_TRY(px__part_slice(&range, volume, 2, p.first, p.count, p.step));
  return px_permute(volume_part, range, (int64_t[]){0, 2, 1, 3, 4}, 5);
}
// Copies planes to the columns, or adds the columns to the planes if `back`.
static px_status copy_planes(px_tensor *columns, px_tensor *volume, px__conv_steps by, bool back) {
  int64_t out = columns->sizes[1], kernel_depth = columns->sizes[3];
  for (int64_t k = 0; k < kernel_depth; k++) {
    PX_SCOPED(px_tensor) at = NULL;
    PX_SCOPED(px_tensor) plane = NULL;
    planes p = planes_of(volume->sizes[2], out, by, k);
    if (!p.count) continue;
    PX_TRY(copy_views(&at, &plane, columns, volume, p, k));
    PX_TRY(back ? px_add_(plane, at, px_int(1)) : px_copy_(at, plane, false));
  }
  return PX_OK;
}
// The input volume as images [N * out, C * kD, H, W] for a kernel of kD planes.
static px_status as_images(px_tensor **out, px_tensor *x, int64_t kernel_depth, int64_t depths,
                           px__conv_steps by) {
  const int64_t *s = x->sizes;
  PX_SCOPED(px_tensor) columns = NULL;
  PX_TRY(px__zeros_like_sized(&columns, x, 6,
                              (int64_t[]){s[0], depths, s[1], kernel_depth, s[3], s[4]}));
  PX_TRY(copy_planes(columns, x, by, false));
  int64_t sizes[4] = {px__product(s[0], depths), px__product(s[1], kernel_depth), s[3], s[4]};
  return px_reshape(out, columns, sizes, 4);
}
// A weight [O, C, kD, kH, kW] as [O, C * kD, kH, kW].
static px_status as_kernel(px_tensor **out, const px_tensor *w) {
  const int64_t *s = w->sizes;
  return px_reshape(out, w, (int64_t[]){s[0], px__product(s[1], s[2]), s[3], s[4]}, 4);
}
// An output [N, O, D, H, W] as images [N * D, O, H, W], and back.
static px_status results_as_images(px_tensor **out, const px_tensor *y) {
  const int64_t *s = y->sizes;
  PX_SCOPED(px_tensor) permuted = NULL;
  PX_TRY(px_permute(&permuted, y, (int64_t[]){0, 2, 1, 3, 4}, 5));
  return px_reshape(out, permuted, (int64_t[]){px__product(s[0], s[2]), s[1], s[3], s[4]}, 4);
}
static px_status results_as_volume(px_tensor **out, const px_tensor *images, const int64_t *s) {
  PX_SCOPED(px_tensor) split = NULL;
  PX_SCOPED(px_tensor) permuted = NULL;
  PX_TRY(px_reshape(&split, images, (int64_t[]){s[0], s[2], s[1], s[3], s[4]}, 5));
  PX_TRY(px_permute(&permuted, split, (int64_t[]){0, 2, 1, 3, 4}, 5));
  return px_contiguous(out, permuted);
}
// The parameters of the 2-D convolution.
typedef struct steps2d {
  int64_t stride[2], padding[4], dilation[2];
} steps2d;
static steps2d steps2d_of(px__conv_steps by) {
  steps2d f;
  for (int k = 0; k < 2; k++) {
    f.stride[k] = px__int_at(by.stride, 1 + k), f.dilation[k] = px__int_at(by.dilation, 1 + k);
    f.padding[k] = px__int_at(by.padding, 1 + k);
    f.padding[2 + k] = px__pad_end(by.padding, DIMS, 1 + k);
  }
  return f;
}

// ---- the convolution and its gradients

static bool has_kernel(const px_call *call, const px_tensor *x) {
  return call->device.type == PX_CPU && px_dtype_is_float((px_dtype)x->dtype) &&
         x->dtype < PX_DTYPE_COMPUTED;
}

static px_status forward_of_images(px_call *call) {
  const px__conv3d_forward_args args = px__conv3d_forward_args_of(call->args);
  px_tensor *x = args.input, *w = args.weight;
  px__conv_steps by = PX_CONV_STEPS(&args);
  int64_t sizes[5];
  PX_TRY(conv_sizes(x->sizes, w->sizes, by, sizes));
  steps2d f = steps2d_of(by);
  PX_SCOPED(px_tensor) images = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(as_images(&images, x, w->sizes[2], sizes[2], by));
  PX_TRY(as_kernel(&kernel, w));
  PX_TRY(px_conv2d(&made, images, kernel, args.bias, f.stride, 2, f.padding, 4, f.dilation, 2,
                   args.groups));
  return results_as_volume(&call->results[0], made, sizes);
}
PX_RUN(conv3d_forward) {
  px_tensor *x = args->input, *w = args->weight;
  px__conv_steps by = PX_CONV_STEPS(args);
  int64_t sizes[5];
  PX_TRY(px__conv_lists(by, DIMS, true));
  PX_TRY(check_volume("conv3d", x, w));
  PX_TRY(px__conv_types(x, w, args->bias));
  px__pair p = px__pair_of(x, w);
  PX_TRY(px__conv_channels(&p, args->bias, args->groups, false));
  PX_TRY(px__call_same_device(call));
  PX_TRY(conv_sizes(x->sizes, w->sizes, by, sizes));
  if (!has_kernel(call, x)) return px__call_function(call, forward_of_images);
  return px__call_result(call, 0, 5, sizes, (px_dtype)x->dtype);
}

static px_status check_grad(const px_call *call, const px_tensor *grad, px_value x, px_value w,
                            px__conv_steps by, int64_t groups) {
  int64_t sizes[5];
  PX_TRY(px__conv_lists(by, DIMS, true));
  PX_CHECK(x.n == 5 && w.n == 5, PX_RUNTIME,
           "%s: expected 5 sizes of the input and of the weight, got %d and %d", call->op->name,
           x.n, w.n);
  PX_TRY(px__conv_grad_fits(call, grad, x, w, groups, NULL));
  PX_TRY(conv_sizes(x.v.ints, w.v.ints, by, sizes));
  return px__conv_grad_fits(call, grad, x, w, groups, sizes);
}
static px_value sizes_of(const px_tensor *t) { return PX_IS(t->sizes, t->ndim); }

static px_status input_of_images(px_call *call) {
  const px__conv3d_backward_input_args args = px__conv3d_backward_input_args_of(call->args);
  px_tensor *g = args.grad_output, *w = args.weight;
  const int64_t *s = args.input_size.v.ints;
  px__conv_steps by = PX_CONV_STEPS(&args);
  steps2d f = steps2d_of(by);
  int64_t kernel_depth = w->sizes[2], images_of[] = {px__product(s[0], g->sizes[2]),
                                                     px__product(s[1], kernel_depth), s[3], s[4]};
  PX_SCOPED(px_tensor) grads = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) images = NULL;
  PX_SCOPED(px_tensor) columns = NULL;
  PX_SCOPED(px_tensor) volume = NULL;
  PX_TRY(results_as_images(&grads, g));
  PX_TRY(as_kernel(&kernel, w));
  PX_TRY(px_conv2d_backward_input(&images, grads, kernel, images_of, 4, f.stride, 2, f.padding, 4,
                                  f.dilation, 2, args.groups, NULL));
  PX_TRY(px_reshape(&columns, images,
                    (int64_t[]){s[0], g->sizes[2], s[1], kernel_depth, s[3], s[4]}, 6));
  PX_TRY(px__zeros_of(&volume, g, args.input_size));
  PX_TRY(copy_planes(columns, volume, by, true));
  call->results[0] = PX_MOVE(volume);
  return PX_OK;
}
PX_RUN(conv3d_backward_input) {
  const px_tensor *g = args->grad_output;
  px_value sizes = args->input_size;
  PX_TRY(check_grad(call, g, sizes, sizes_of(args->weight), PX_CONV_STEPS(args), args->groups));
  if (!has_kernel(call, g)) return px__call_function(call, input_of_images);
  return px__call_result(call, 0, sizes.n, sizes.v.ints, (px_dtype)g->dtype);
}

static px_status weight_of_images(px_call *call) {
  const px__conv3d_backward_weight_args args = px__conv3d_backward_weight_args_of(call->args);
  px_tensor *g = args.grad_output, *x = args.input;
  const int64_t *s = args.weight_size.v.ints;
  px__conv_steps by = PX_CONV_STEPS(&args);
  steps2d f = steps2d_of(by);
  PX_SCOPED(px_tensor) grads = NULL;
  PX_SCOPED(px_tensor) images = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_TRY(results_as_images(&grads, g));
  PX_TRY(as_images(&images, x, s[2], g->sizes[2], by));
  PX_TRY(px_conv2d_backward_weight(&kernel, grads, images,
                                   (int64_t[]){s[0], px__product(s[1], s[2]), s[3], s[4]}, 4,
                                   f.stride, 2, f.padding, 4, f.dilation, 2, args.groups, NULL));
  return px_reshape(&call->results[0], kernel, s, 5);
}
PX_RUN(conv3d_backward_weight) {
  const px_tensor *g = args->grad_output;
  px_value sizes = args->weight_size;
  PX_TRY(check_grad(call, g, sizes_of(args->input), sizes, PX_CONV_STEPS(args), args->groups));
  if (!has_kernel(call, g)) return px__call_function(call, weight_of_images);
  return px__call_result(call, 0, sizes.n, sizes.v.ints, (px_dtype)g->dtype);
}

// Adds a batch dimension of 1 to unbatched input.
static px_status batch_of(px_tensor **out, px_tensor *x, const px_tensor *w) {
  if (x->ndim == 4 && w->ndim == 5) return px_unsqueeze(out, x, 0);
  *out = px_retain(x);
  return PX_OK;
}
static px_status like_input(px_tensor **out, px_tensor *made, const px_tensor *x) {
  if (x->ndim == 4) return px_squeeze_dim(out, made, (int64_t[]){0}, 1);
  *out = px_retain(made);
  return PX_OK;
}
PX_RUN(conv3d) {
  px_tensor *w = args->weight;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(batch_of(&x, args->input, w));
  if (x->ndim == 5 && w->ndim == 5 && !x->sizes[1] && !w->sizes[1]) {
    px__conv_steps by = PX_CONV_STEPS(args);
    int64_t sizes[5];
    PX_TRY(px__conv_lists(by, DIMS, true));
    PX_TRY(conv_sizes(x->sizes, w->sizes, by, sizes));
    sizes[1] = 0;  // as in PyTorch
    PX_TRY(px__conv_empty(&made, (const px_tensor *[]){x, w, args->bias}, 3, 5, sizes));
  } else {
    PX_TRY(px_conv3d_forward(&made, x, w, args->bias, LIST(args->stride), LIST(args->padding),
                             LIST(args->dilation), args->groups));
  }
  return like_input(&call->results[0], made, args->input);
}
PX_RUN(conv3d_mode) {
  int64_t padding[2 * DIMS] = {0};
  PX_TRY(px__conv_list(args->stride, "stride", 1, DIMS, false));
  PX_TRY(px__conv_list(args->dilation, "dilation", 1, DIMS, false));
  PX_TRY(px__same_padding(padding, args->padding, args->weight, args->stride, args->dilation));
  return px_conv3d(&call->results[0], args->input, args->weight, args->bias, LIST(args->stride),
                   padding, 2 * DIMS, LIST(args->dilation), args->groups);
}

// ---- transposed

static const char *by_dimension(char text[128], const char *name, px_value list) {
  snprintf(text, 128, " %s_depth: %lld %s_height: %lld %s_width: %lld", name,
           LL(px__int_at(list, 0)), name, LL(px__int_at(list, 1)), name, LL(px__int_at(list, 2)));
  return text;
}
static px_status transposed_sizes(const px__conv_transpose3d_args *args, const px_tensor *x,
                                  int64_t *sizes) {
  const px_tensor *w = args->weight;
  char text[3][128];
  sizes[0] = x->sizes[0], sizes[1] = px__product(w->sizes[1], args->groups);
  for (int k = 0; k < DIMS; k++) {
    int64_t stride = px__int_at(args->stride, k), dilation = px__int_at(args->dilation, k), span;
    int64_t extra = px__int_at(args->output_padding, k);
    PX_CHECK(extra < stride || extra < dilation, PX_RUNTIME,
             "output padding must be smaller than either stride or dilation, but got%s%s%s",
             by_dimension(text[0], "output_padding", args->output_padding),
             by_dimension(text[1], "stride", args->stride),
             by_dimension(text[2], "dilation", args->dilation));
    PX_CHECK(w->sizes[2 + k] > 0 && w->sizes[2 + k] <= INT32_MAX &&
                 !px__mul_size(x->sizes[2 + k], stride, &span) && span <= INT64_MAX / 4,
             PX_RUNTIME, "integer out of range");
    sizes[2 + k] = span - stride - 2 * px__int_at(args->padding, k) +
                   dilation * (w->sizes[2 + k] - 1) + extra + 1;
  }
  PX_CHECK(sizes[2] > 0 && sizes[3] > 0 && sizes[4] > 0, PX_RUNTIME,
           "Given input size per channel: (%lld x %lld x %lld). Calculated output size per "
           "channel: (%lld x %lld x %lld). Output size is too small",
           LL(x->sizes[2]), LL(x->sizes[3]), LL(x->sizes[4]), LL(sizes[2]), LL(sizes[3]),
           LL(sizes[4]));
  return PX_OK;
}
static px_status check_transposed(const px__conv_transpose3d_args *args, const px_tensor *x) {
  const px_tensor *w = args->weight;
  PX_TRY(px__conv_list(args->stride, "stride", 1, DIMS, false));
  PX_TRY(px__conv_list(args->padding, "padding", 0, DIMS, false));
  PX_TRY(px__conv_list(args->output_padding, "output_padding", 0, DIMS, false));
  PX_TRY(px__conv_list(args->dilation, "dilation", 1, DIMS, false));
  PX_TRY(check_volume("conv_transpose3d", x, w));
  PX_TRY(px__conv_types(x, w, args->bias));
  px__pair p = px__pair_of(x, w);
  return px__conv_channels(&p, args->bias, args->groups, true);
}
PX_RUN(conv_transpose3d) {
  const px_tensor *w = args->weight, *bias = args->bias;
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) conv_t = NULL;
  PX_SCOPED(px_tensor) padded = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  px__output_padding extra;
  int64_t sizes[5];
  PX_TRY(batch_of(&x, args->input, w));
  PX_TRY(check_transposed(args, x));
  PX_TRY(transposed_sizes(args, x, sizes));
  if (!sizes[0] || !sizes[1] || !x->numel) {
    PX_TRY(px__conv_empty(&made, (const px_tensor *[]){x, w, bias}, 3, 5, sizes));
    return like_input(&call->results[0], made, args->input);
  }
  int paddings =
      px__split_output_padding(&extra, sizes, DIMS, args->output_padding, PX_CONV_STEPS(args));
  PX_TRY(px_conv3d_backward_input(&conv_t, x, w, sizes, 5, LIST(args->stride), extra.padding,
                                  paddings, LIST(args->dilation), args->groups,
                                  px_memory_format_name(px_tensor_suggest_format(x))));
  PX_TRY(px_constant_pad_nd(&padded, conv_t, extra.zeros, 2 * DIMS, px_int(0)));
  PX_TRY(px__conv_biased(&made, padded, bias, DIMS));
  return like_input(&call->results[0], made, args->input);
}

// Dispatches by the number of dimensions of the weight.
PX_RUN(convolution) {
  const px_tensor *x = args->input, *w = args->weight, *b = args->bias;
  px_value stride = args->stride, padding = args->padding, dilation = args->dilation;
  px_value extra = args->output_padding;
  px_tensor **out = &call->results[0];
  if (args->transposed) {
    px_status (*const conv_t[])(
        px_tensor **, const px_tensor *, const px_tensor *, const px_tensor *, const int64_t *,
        int64_t, const int64_t *, int64_t, const int64_t *, int64_t, int64_t, const int64_t *,
        int64_t) = {px_conv_transpose1d, px_conv_transpose2d, px_conv_transpose3d};
    return conv_t[w->ndim - 3](out, x, w, b, LIST(stride), LIST(padding), LIST(extra), args->groups,
                               LIST(dilation));
  }
  px_status (*const convolve[])(px_tensor **, const px_tensor *, const px_tensor *,
                                const px_tensor *, const int64_t *, int64_t, const int64_t *,
                                int64_t, const int64_t *, int64_t,
                                int64_t) = {px_conv1d, px_conv2d, px_conv3d};
  return convolve[w->ndim - 3](out, x, w, b, LIST(stride), LIST(padding), LIST(dilation),
                               args->groups);
}

// ---- padding

// The padding list of F.pad: from the last dimension to the first, start and end of each.
PX_RUN(pad_around) {
  px_value padding = args->padding;
  int64_t pad[2 * DIMS];
  PX_CHECK(padding.n >= 1 && padding.n <= DIMS, PX_RUNTIME,
           "expected padding with 1 to 3 sizes, got %d", padding.n);
  for (int k = 0; k < padding.n; k++)
    pad[2 * k] = pad[2 * k + 1] = padding.v.ints[padding.n - 1 - k];
  return px_pad(&call->results[0], args->input, pad, 2 * padding.n, args->mode, px_no_scalar());
}
PX_RUN(pad_same) {
  int dims = args->weight->ndim - 2;
  int64_t pad[2 * DIMS] = {0}, both[2 * DIMS] = {0}, one = 1;
  PX_CHECK(dims >= 1 && dims <= DIMS, PX_RUNTIME,
           "expected weight to be 3-, 4- or 5-dimensional, but got %d dimensions", dims + 2);
  PX_TRY(px__conv_list(args->dilation, "dilation", 1, dims, false));
  PX_TRY(px__same_padding(both, args->padding, args->weight, PX_IS(&one, 1), args->dilation));
  for (int k = 0; k < dims; k++)
    pad[2 * k] = both[dims - 1 - k], pad[2 * k + 1] = both[2 * dims - 1 - k];
  return px_pad(&call->results[0], args->input, pad, 2 * dims, args->mode, px_no_scalar());
}
