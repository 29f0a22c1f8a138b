// SPDX-License-Identifier: Apache-2.0
// Convolutions of volumes as those of images, for integers and for devices without such kernels. An
// output depth of a kernel with kD planes reads kD input planes of each channel. They become C * kD
// channels of an image, and the weight is reshaped likewise. The image takes kD times the memory of
// the input. Gradients are those of the 2-D convolution, summed over the copies of each plane.
#include "formulas.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"
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

// ---- the convolution and its gradients

bool px__conv_by_images(const px_call *call, int dims, const px_tensor *x) {
  bool has_kernel = call->device.type == PX_CPU && px_dtype_is_float((px_dtype)x->dtype) &&
                    x->dtype < PX_DTYPE_COMPUTED;
  return dims == DIMS && !has_kernel;
}
px_status px__conv_of_images(px_call *call) {
  const px__conv_args args = px__conv_args_of(call->args);
  const px_value *a = call->args;
  px_tensor *x = args.input, *w = args.weight;
  px__conv_steps by = PX_CONV_STEPS(&args);
  int64_t sizes[5];
  PX_SCOPED(px_tensor) images = NULL;
  PX_TRY(px__conv_sizes(DIMS, x->sizes, w->sizes, by, sizes));
  PX_TRY(as_images(&images, x, w->sizes[2], sizes[2], by));
  const px_value given[] = {PX_T(images), a[1], a[2], a[3], a[4], a[5], a[6], PX_I(sizes[2])};
  return px__formula_conv_of_planes(call->results, given);
}
px_status px__input_of_images(px_call *call) {
  const px__conv_backward_input_args args = px__conv_backward_input_args_of(call->args);
  PX_SCOPED(px_tensor) columns = NULL;
  PX_SCOPED(px_tensor) volume = NULL;
  PX_TRY(px__formula_gradient_of_planes(&columns, call->args));
  PX_TRY(px__zeros_of(&volume, args.grad_output, args.input_size));
  PX_TRY(copy_planes(columns, volume, PX_CONV_STEPS(&args), true));
  call->results[0] = PX_MOVE(volume);
  return PX_OK;
}
px_status px__weight_of_images(px_call *call) {
  const px__conv_backward_weight_args args = px__conv_backward_weight_args_of(call->args);
  const px_value *a = call->args;
  PX_SCOPED(px_tensor) images = NULL;
  PX_TRY(as_images(&images, args.input, args.weight_size.v.ints[2], args.grad_output->sizes[2],
                   PX_CONV_STEPS(&args)));
  const px_value given[] = {a[0], PX_T(images), a[2], a[3], a[4], a[5], a[6]};
  return px__formula_weight_of_planes(call->results, given);
}
