// SPDX-License-Identifier: Apache-2.0
// Run functions over windows of images and channels (im2col, col2im, local_response_norm), and of
// bilinear.
#include "formulas.h"
#include "ops/conv/conv_impl.h"
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
PX_RUN(fold) {
  const px_tensor *x = args->input;
  window w;
  int64_t size[2];
  PX_TRY(read_window(&w, args->kernel_size, args->dilation, args->padding, args->stride));
  PX_TRY(read_list(size, args->output_size, "output_size", "output_size", 1));
  count_windows(&w, size);
  PX_TRY(check_columns(x, &w, size));
  int n = x->ndim;
  int64_t batch = n == 3 ? x->sizes[0] : 1,
          channels = x->sizes[n - 2] / (w.kernel[0] * w.kernel[1]);
  int64_t padded[] = {batch, channels, size[0] + 2 * w.padding[0], size[1] + 2 * w.padding[1]};
  int64_t taps[] = {batch, channels, w.kernel[0], w.kernel[1], w.count[0], w.count[1]};
  return px__formula_fold_columns(
      call->results,
      (px_value[]){PX_T(args->input), PX_IS(taps, 6), PX_IS(padded, 4), PX_IS(w.dilation, 2),
                   PX_IS(w.stride, 2), PX_IS(w.padding, 2), PX_IS(size, 2), PX_B(n == 3)});
}
