// SPDX-License-Identifier: Apache-2.0
// Run functions over windows of images and channels (im2col, col2im, local_response_norm), and of
// bilinear.
#include "formulas.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/layer.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/layer.h"

#define LL(x) ((long long)(x))

// A window over an image, and its number of positions.
typedef struct window {
  int64_t kernel[2], dilation[2], padding[2], stride[2], count[2];
} window;

static px_status read_list(int64_t to[2], px_value list, const char *name, const char *kind,
                           int64_t min) {
  PX_CHECK(list.n == 1 || list.n == 2, PX_RUNTIME, "It is expected %s equals to 2, but got size %d",
           name, list.n);
  to[0] = px__int_at(list, 0), to[1] = px__int_at(list, 1);
  bool pads = !min;
  const char *part = pads ? "pad" : *name == 'k' ? "kernel" : name;
  PX_CHECK(to[0] >= min && to[1] >= min, PX_RUNTIME,
           "%s should be %s, but got %s_height: %lld %s_width: %lld", pads ? "padding" : kind,
           pads ? "non-negative" : "greater than zero", part, LL(to[0]), part, LL(to[1]));
  PX_CHECK(to[0] <= INT32_MAX && to[1] <= INT32_MAX, PX_RUNTIME, "integer out of range");
  return PX_OK;
}
static px_status read_window(window *w, px_value kernel, px_value dilation, px_value padding,
                             px_value stride) {
  PX_TRY(read_list(w->kernel, kernel, "kernel_size", "kernel size", 1));
  PX_TRY(read_list(w->dilation, dilation, "dilation", "dilation", 1));
  PX_TRY(read_list(w->padding, padding, "padding", "padding", 0));
  return read_list(w->stride, stride, "stride", "stride", 1);
}
static void count_windows(window *w, const int64_t *size) {
  for (int k = 0; k < 2; k++)
    w->count[k] = px__window_outputs(size[k], w->kernel[k], w->stride[k], w->padding[k],
                                     w->dilation[k], false);
}
#define PAIR(x) LL((x)[0]), LL((x)[1])

PX_RUN(unfold_images) {
  const px_tensor *x = args->input;
  window w;
  char text[128];
  int n = x->ndim;
  bool empty = false;
  PX_TRY(read_window(&w, args->kernel_size, args->dilation, args->padding, args->stride));
  for (int d = n == 4; d < n; d++) empty |= x->sizes[d] == 0;
  PX_CHECK((n == 3 || n == 4) && !empty, PX_RUNTIME,
           "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
           "dimensions for input, but got: %s",
           px__size_text(text, sizeof text, x));
  const int64_t *size = x->sizes + n - 2;
  count_windows(&w, size);
  PX_CHECK(w.count[0] > 0 && w.count[1] > 0, PX_RUNTIME,
           "Given input with spatial size (%lld, %lld), kernel_size=(%lld, %lld), "
           "dilation=(%lld, %lld), padding=(%lld, %lld), calculated shape of the array of sliding "
           "blocks as (%lld, %lld), but its components must be at least one.",
           PAIR(size), PAIR(w.kernel), PAIR(w.dilation), PAIR(w.padding), PAIR(w.count));
  return PX_OK;
}

static px_status check_columns(const px_tensor *x, const window *w, const int64_t *size) {
  char text[128];
  int n = x->ndim;
  int64_t each = w->kernel[0] * w->kernel[1];
  PX_CHECK((n == 2 || n == 3) && x->sizes[n - 1] > 0 && x->sizes[n - 2] > 0, PX_RUNTIME,
           "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
           "non-zero dimensions for input, but got: %s",
           px__size_text(text, sizeof text, x));
  PX_CHECK(x->sizes[n - 2] % each == 0, PX_RUNTIME,
           "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
           "but got input.size(1)=%lld and kernel_size=(%lld, %lld).",
           LL(x->sizes[n - 2]), PAIR(w->kernel));
  bool fits = w->count[0] > 0 && w->count[1] > 0 && w->count[0] <= x->sizes[n - 1] &&
              px__product(w->count[0], w->count[1]) == x->sizes[n - 1];
  PX_CHECK(fits, PX_RUNTIME,
           "Given output_size=(%lld, %lld), kernel_size=(%lld, %lld), dilation=(%lld, %lld), "
           "padding=(%lld, %lld), stride=(%lld, %lld), expected size of input's dimension 2 to "
           "match the calculated number of sliding blocks %lld * %lld = %lld, but got "
           "input.size(2)=%lld.",
           PAIR(size), PAIR(w->kernel), PAIR(w->dilation), PAIR(w->padding), PAIR(w->stride),
           PAIR(w->count), LL(px__steps(w->count[0], w->count[1])), LL(x->sizes[n - 1]));
  return PX_OK;
}
// Adds the columns of tap (i, j) to the padded images.
static px_status add_tap(px_tensor *images, const px_tensor *columns, const window *w, int64_t i,
                         int64_t j) {
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) to = NULL;
  PX_TRY(px__part_select(&row, columns, 2, i));
  PX_TRY(px__part_select(&part, row, 2, j));
  PX_TRY(px__part_slice(&rows, images, 2, i * w->dilation[0], w->count[0], w->stride[0]));
  PX_TRY(px__part_slice(&to, rows, 3, j * w->dilation[1], w->count[1], w->stride[1]));
  return px_add_(to, part, px_int(1));
}
// The sums of the columns at each pixel of the padded images.
static px_status padded_images(px_tensor **out, const px_tensor *x, const window *w,
                               const int64_t *size) {
  int n = x->ndim;
  int64_t batch = n == 3 ? x->sizes[0] : 1, taps = w->kernel[0] * w->kernel[1];
  int64_t channels = x->sizes[n - 2] / taps;
  int64_t padded[4] = {batch, channels, size[0] + 2 * w->padding[0], size[1] + 2 * w->padding[1]};
  int64_t cut[6] = {batch, channels, w->kernel[0], w->kernel[1], w->count[0], w->count[1]};
  PX_SCOPED(px_tensor) columns = NULL;
  PX_SCOPED(px_tensor) images = NULL;
  PX_TRY(px_reshape(&columns, x, cut, 6));
  PX_TRY(px__zeros_like_sized(&images, x, 4, padded));
  for (int64_t at = 0; at < taps; at++)
    PX_TRY(add_tap(images, columns, w, at / w->kernel[1], at % w->kernel[1]));
  *out = PX_MOVE(images);
  return PX_OK;
}
PX_RUN(fold) {
  const px_tensor *x = args->input;
  window w;
  int64_t size[2];
  PX_SCOPED(px_tensor) images = NULL;
  PX_TRY(read_window(&w, args->kernel_size, args->dilation, args->padding, args->stride));
  PX_TRY(read_list(size, args->output_size, "output_size", "output_size", 1));
  count_windows(&w, size);
  PX_TRY(check_columns(x, &w, size));
  PX_TRY(padded_images(&images, x, &w, size));
  const px_value given[] = {PX_T(images), PX_IS(w.padding, 2), PX_IS(size, 2), PX_B(x->ndim == 3)};
  return px__formula_without_padding(call->results, given);
}
