// SPDX-License-Identifier: Apache-2.0
// Convolutions of volumes as those of images, for integers and for devices without such kernels. An
// output depth of a kernel with kD planes reads kD input planes of each channel. They become C * kD
// channels of an image, and the weight is reshaped likewise. The image takes kD times the memory of
// the input. Gradients are those of the 2-D convolution, summed over the copies of each plane.
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
#include "run_functions/conv.h"

enum { DIMS = 3 };

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

bool px__conv_by_images(const px_call *call, int dims, const px_tensor *x) {
  bool has_kernel = call->device.type == PX_CPU && px_dtype_is_float((px_dtype)x->dtype) &&
                    x->dtype < PX_DTYPE_COMPUTED;
  return dims == DIMS && !has_kernel;
}
px_status px__conv_of_images(px_call *call) {
  const px__conv_args args = px__conv_args_of(call->args);
  px_tensor *x = args.input, *w = args.weight;
  px__conv_steps by = PX_CONV_STEPS(&args);
  int64_t sizes[5];
  PX_TRY(px__conv_sizes(DIMS, x->sizes, w->sizes, by, sizes));
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

px_status px__input_of_images(px_call *call) {
  const px__conv_backward_input_args args = px__conv_backward_input_args_of(call->args);
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

px_status px__weight_of_images(px_call *call) {
  const px__conv_backward_weight_args args = px__conv_backward_weight_args_of(call->args);
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
