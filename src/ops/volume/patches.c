// SPDX-License-Identifier: Apache-2.0
// Run functions over windows of images and channels (im2col, col2im, local_response_norm), and of
// bilinear.
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

// Unfolds dimension `dim` by the window's k-th dimension, as a new last dimension.
static px_status windows_of(px_tensor **out, const px_tensor *x, int dim, const window *w, int k) {
  PX_SCOPED(px_tensor) unfolded = NULL;
  PX_TRY(px_unfold(&unfolded, x, dim, w->dilation[k] * (w->kernel[k] - 1) + 1, w->stride[k]));
  return px_slice(out, unfolded, -1, NULL, NULL, w->dilation[k]);
}
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
  const int64_t pad[4] = {w.padding[1], w.padding[1], w.padding[0], w.padding[0]};
  PX_SCOPED(px_tensor) padded = NULL;
  PX_SCOPED(px_tensor) tall = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  PX_SCOPED(px_tensor) permuted = NULL;
  PX_TRY(px_constant_pad_nd(&padded, x, pad, 4, px_int(0)));
  PX_TRY(windows_of(&tall, padded, n - 2, &w, 0));
  PX_TRY(windows_of(&both, tall, n - 1, &w, 1));  // [.., C, OH, OW, kH, kW]
  const int64_t order[] = {0, 1, 4, 5, 2, 3}, unbatched_order[] = {0, 3, 4, 1, 2};
  PX_TRY(px_permute(&permuted, both, n == 4 ? order : unbatched_order, n + 2));
  int64_t columns = px__product(x->sizes[n - 3], w.kernel[0] * w.kernel[1]);
  int64_t count = px__product(w.count[0], w.count[1]);
  int64_t sizes[3] = {x->sizes[0], columns, count};
  return px_reshape(&call->results[0], permuted, sizes + (n == 3), n - 1);
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
PX_RUN(fold) {
  const px_tensor *x = args->input;
  window w;
  int n = x->ndim;
  int64_t size[2];
  PX_TRY(read_window(&w, args->kernel_size, args->dilation, args->padding, args->stride));
  PX_TRY(read_list(size, args->output_size, "output_size", "output_size", 1));
  count_windows(&w, size);
  PX_TRY(check_columns(x, &w, size));
  int64_t batch = n == 3 ? x->sizes[0] : 1;
  int64_t channels = x->sizes[n - 2] / (w.kernel[0] * w.kernel[1]);
  int64_t padded[4] = {batch, channels, size[0] + 2 * w.padding[0], size[1] + 2 * w.padding[1]};
  int64_t cut[6] = {batch, channels, w.kernel[0], w.kernel[1], w.count[0], w.count[1]};
  PX_SCOPED(px_tensor) columns = NULL;
  PX_SCOPED(px_tensor) images = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_reshape(&columns, x, cut, 6));
  PX_TRY(px__zeros_like_sized(&images, x, 4, padded));
  for (int64_t at = 0; at < w.kernel[0] * w.kernel[1]; at++)
    PX_TRY(add_tap(images, columns, &w, at / w.kernel[1], at % w.kernel[1]));
  PX_TRY(px_narrow(&rows, images, 2, w.padding[0], size[0]));
  PX_TRY(px_narrow(&inner, rows, 3, w.padding[1], size[1]));
  PX_TRY(px_contiguous(&made, inner));
  if (n == 2) return px_view(&call->results[0], made, (int64_t[]){channels, size[0], size[1]}, 3);
  call->results[0] = PX_MOVE(made);
  return PX_OK;
}

// The mean square of `size` channels is an average pool over the channels, as rows of an image.
PX_RUN(local_response_norm) {
  const px_tensor *x = args->input;
  int64_t n = args->size, one = 1, none = 0;
  int64_t pixels = px__sizes_product(x->sizes + 2, x->ndim - 2);
  const int64_t around[] = {0, 0, n / 2, (n - 1) / 2};
  if (!x->numel) return px_clone(&call->results[0], x, NULL);
  PX_SCOPED(px_tensor) squares = NULL;
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) padded = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) power = NULL;
  PX_TRY(px_mul(&squares, x, x));
  PX_TRY(px_reshape(&image, squares, (int64_t[]){x->sizes[0], 1, x->sizes[1], pixels}, 4));
  PX_TRY(px_constant_pad_nd(&padded, image, around, 4, px_int(0)));
  PX_TRY(px_avg_pool2d(&means, padded, (int64_t[]){n, 1}, 2, &one, 1, &none, 1, false, true, NULL));
  PX_TRY(px_reshape(&shaped, means, x->sizes, x->ndim));
  PX_TRY(px_mul_scalar(&scaled, shaped, px_float(args->alpha)));
  PX_TRY(px_add_scalar(&shifted, scaled, px_float(args->k), px_int(1)));
  PX_TRY(px_pow_scalar(&power, shifted, px_float(args->beta)));
  return px_div(&call->results[0], x, power);
}

// ---- products and distances of rows

// input1 @ weight, times input2, summed.
PX_RUN(bilinear) {
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) right = NULL;
  PX_SCOPED(px_tensor) products = NULL;
  PX_SCOPED(px_tensor) terms = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  const int64_t last = -1;
  PX_TRY(px_unsqueeze(&row, args->input1, -2));
  PX_TRY(px_unsqueeze(&left, row, -2));
  PX_TRY(px_unsqueeze(&column, args->input2, -2));
  PX_TRY(px_unsqueeze(&right, column, -2));
  PX_TRY(px_matmul(&products, left, args->weight));
  PX_TRY(px_mul(&terms, products, right));
  PX_TRY(px_sum(&sums, terms, &last, 1, false, (px_dtype)terms->dtype));
  PX_TRY(px_squeeze_dim(&made, sums, &last, 1));
  if (args->bias) return px_add(&call->results[0], made, args->bias, px_int(1));
  call->results[0] = PX_MOVE(made);
  return PX_OK;
}
