// SPDX-License-Identifier: Apache-2.0
// Integer convolution and pooling composed from other ops, exactly. No backend needs kernels for
// them. There are no gradients.
#include "hidden/conv.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// ---- convolution

// Unfolds dimension d of [N, C, H, W] into windows: [.., outputs, .., size].
static px_status windows(px_tensor **out, const px_tensor *x, int d, int64_t size, int64_t stride,
                         int64_t dilation) {
  PX_SCOPED(px_tensor) unfolded = NULL;
  PX_TRY(px_unfold(&unfolded, x, d, dilation * (size - 1) + 1, stride));
  return px_slice(out, unfolded, -1, NULL, NULL, dilation);
}
// im2col: the windows as rows [groups, N * H * W, C / groups * kH * kW].
static px_status window_rows(px_tensor **out, const px_tensor *padded, const px_tensor *w,
                             px__conv_steps by, int64_t groups, const int64_t *sizes) {
  PX_SCOPED(px_tensor) tall = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) permuted = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  int64_t each = px__product(px__product(w->sizes[1], w->sizes[2]), w->sizes[3]);
  int64_t outputs = px__product(px__product(sizes[0], sizes[2]), sizes[3]);
  PX_TRY(
      windows(&tall, padded, 2, w->sizes[2], px__int_at(by.stride, 0), px__int_at(by.dilation, 0)));
  PX_TRY(
      windows(&wide, tall, 3, w->sizes[3], px__int_at(by.stride, 1), px__int_at(by.dilation, 1)));
  PX_TRY(px_permute(&permuted, wide, (const int64_t[]){0, 2, 3, 1, 4, 5}, 6));
  PX_TRY(px_reshape(&rows, permuted, (const int64_t[]){outputs, groups, each}, 3));
  return px_transpose(out, rows, 0, 1);
}
px_status px__conv_integers(px_tensor **out, const px_tensor *x, const px_tensor *w,
                            px__conv_steps by, int64_t groups, const int64_t *sizes) {
  int64_t pad[4];
  for (int k = 0; k < 2; k++) {
    pad[2 - 2 * k] = px__int_at(by.padding, k);
    pad[3 - 2 * k] = px__pad_end(by.padding, 2, k);
  }
  PX_SCOPED(px_tensor) padded = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) columns = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) split = NULL;
  PX_SCOPED(px_tensor) permuted = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_constant_pad_nd(&padded, x, pad, 4, px_int(0)));
  PX_TRY(window_rows(&rows, padded, w, by, groups, sizes));
  int64_t each = w->sizes[0] / groups;
  PX_TRY(px_reshape(&kernel, w, (const int64_t[]){groups, each, rows->sizes[2]}, 3));
  PX_TRY(px_transpose(&columns, kernel, 1, 2));
  PX_TRY(px_bmm(&product, rows, columns));
  PX_TRY(px_reshape(&split, product, (const int64_t[]){groups, sizes[0], sizes[2], sizes[3], each},
                    5));
  PX_TRY(px_permute(&permuted, split, (const int64_t[]){1, 0, 4, 2, 3}, 5));
  PX_TRY(px_reshape(&made, permuted, sizes, 4));
  return px_contiguous(out, made);
}

// Inserts stride - 1 zeros after each element of the last two dimensions.
static px_status insert_zeros(px_tensor **out, const px_tensor *x, px__conv_steps by) {
  const int64_t *s = x->sizes;
  int64_t rows = px__int_at(by.stride, 0), columns = px__int_at(by.stride, 1);
  PX_SCOPED(px_tensor) dilated = NULL;
  PX_SCOPED(px_tensor) padded = NULL;
  PX_TRY(px_reshape(&dilated, x, (const int64_t[]){s[0], s[1], s[2], 1, s[3], 1}, 6));
  PX_TRY(px_constant_pad_nd(&padded, dilated, (const int64_t[]){0, columns - 1, 0, 0, 0, rows - 1},
                            6, px_int(0)));
  return px_reshape(
      out, padded,
      (const int64_t[]){s[0], s[1], px__product(s[2], rows), px__product(s[3], columns)}, 4);
}
// Kernel of the transposed convolution: channels swapped within each group, both dimensions
// flipped.
static px_status transpose_kernel(px_tensor **out, const px_tensor *w, int64_t groups) {
  const int64_t *s = w->sizes;
  PX_SCOPED(px_tensor) split = NULL;
  PX_SCOPED(px_tensor) permuted = NULL;
  PX_SCOPED(px_tensor) joined = NULL;
  PX_TRY(px_reshape(&split, w, (const int64_t[]){groups, s[0] / groups, s[1], s[2], s[3]}, 5));
  PX_TRY(px_transpose(&permuted, split, 1, 2));
  PX_TRY(px_reshape(&joined, permuted,
                    (const int64_t[]){px__product(groups, s[1]), s[0] / groups, s[2], s[3]}, 4));
  return px_flip(out, joined, (const int64_t[]){2, 3}, 2);
}
px_status px__conv_integers_back(px_tensor **out, const px_tensor *grad, const px_tensor *w,
                                 px__conv_steps by, int64_t groups, const int64_t *sizes) {
  PX_SCOPED(px_tensor) dilated = NULL;
  PX_SCOPED(px_tensor) padded = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  int64_t pad[4], one = 1, none = 0;
  PX_TRY(insert_zeros(&dilated, grad, by));
  for (int k = 0; k < 2; k++) {
    int64_t reach = px__product(px__int_at(by.dilation, k), w->sizes[2 + k] - 1);
    int64_t before = reach - px__int_at(by.padding, k);
    pad[2 - 2 * k] = before;
    pad[3 - 2 * k] = sizes[2 + k] + reach - before - dilated->sizes[2 + k];
  }
  PX_TRY(px_constant_pad_nd(&padded, dilated, pad, 4, px_int(0)));
  PX_TRY(transpose_kernel(&kernel, w, groups));
  px__conv_steps steps = {PX_IS(&one, 1), PX_IS(&none, 1), by.dilation};
  return px__conv_integers(out, padded, kernel, steps, groups, sizes);
}

// ---- pooling

// Range of a window in elements, and its size including padding.
static void window_range(const px__window_steps *s, int64_t at, int64_t *from, int64_t *to,
                         int64_t *with_padding) {
  int64_t first = at * s->stride - s->pad, last = first + s->kernel;
  *with_padding = (last < s->size + s->pad ? last : s->size + s->pad) - first;
  *from = first > 0 ? first : 0;
  *to = last < s->size ? last : s->size;
}
// Moves a column, with one number per window, to the device of x.
static px_status to_device(px_tensor **out, px_tensor *column, const px_tensor *x) {
  return px__tensor_to(out, column, PX_INT64, px__tensor_device(x));
}
typedef enum part { BEGIN, END, COUNT } part;
static px_status column_of(px_tensor **out, const px__window_steps *s, part kind, bool count_pad,
                           const px_tensor *x) {
  PX_SCOPED(px_tensor) column = NULL;
  PX_TRY(px_tensor_empty(&column, 1, &s->outputs, PX_INT64, px_cpu()));
  int64_t *to = px__tensor_at(column);
  for (int64_t i = 0; i < s->outputs; i++) {
    int64_t begin, end, padded;
    window_range(s, i, &begin, &end, &padded);
    to[i] = kind == BEGIN ? begin : kind == END ? end : count_pad ? padded : end - begin;
  }
  return to_device(out, column, x);
}
// Window sums along dimension d: differences of prefix sums.
static px_status window_sums(px_tensor **out, const px_tensor *x, int d,
                             const px__window_steps *s) {
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) prefix = NULL;
  PX_SCOPED(px_tensor) begins = NULL;
  PX_SCOPED(px_tensor) ends = NULL;
  PX_SCOPED(px_tensor) low = NULL;
  PX_SCOPED(px_tensor) high = NULL;
  int64_t pad[2 * PX_MAX_DIMS] = {0};
  int dims_after = x->ndim - 1 - d;
  pad[2 * dims_after] = 1;
  PX_TRY(px_cumsum(&sums, x, d, PX_DTYPE_NONE));
  PX_TRY(px_constant_pad_nd(&prefix, sums, pad, 2 * (dims_after + 1), px_int(0)));
  PX_TRY(column_of(&begins, s, BEGIN, false, x));
  PX_TRY(column_of(&ends, s, END, false, x));
  PX_TRY(px_index_select(&low, prefix, d, begins));
  PX_TRY(px_index_select(&high, prefix, d, ends));
  return px_sub(out, high, low, px_int(1));
}
// Number of elements of each window.
static px_status window_counts(px_tensor **out, const px_tensor *x, int dims,
                               const px__window_steps *s, bool count_pad) {
  PX_SCOPED(px_tensor) counts = NULL;
  PX_TRY(column_of(&counts, &s[0], COUNT, count_pad, x));
  for (int k = 1; k < dims; k++) {
    PX_SCOPED(px_tensor) rows = PX_MOVE(counts);
    PX_SCOPED(px_tensor) tall = NULL;
    PX_SCOPED(px_tensor) column = NULL;
    PX_TRY(px_unsqueeze(&tall, rows, -1));
    PX_TRY(column_of(&column, &s[k], COUNT, count_pad, x));
    PX_TRY(px_mul(&counts, tall, column));
  }
  *out = PX_MOVE(counts);
  return PX_OK;
}
px_status px__integer_means(px_tensor **out, px_tensor *x, int dims, const px__window_steps *s,
                            bool count_pad, int64_t divisor) {
  PX_SCOPED(px_tensor) sums = px_retain(x);
  PX_SCOPED(px_tensor) counts = NULL;
  for (int k = 0; k < dims; k++) {
    PX_SCOPED(px_tensor) before = PX_MOVE(sums);
    PX_TRY(window_sums(&sums, before, x->ndim - dims + k, &s[k]));
  }
  if (divisor) return px_div_mode_scalar(out, sums, px_int(divisor), "trunc");
  PX_TRY(window_counts(&counts, x, dims, s, count_pad));
  return px_div_mode(out, sums, counts, "trunc");
}

// Table [outputs, taps] of the element indices of each window. Short windows repeat their last
// element.
static px_status window_table(px_tensor **out, const void *context, int k, const px_tensor *x) {
  const px__window_steps *s = (const px__window_steps *)context + k;
  int64_t taps = (s->size - 1) / s->dilation + 1;
  if (taps > s->kernel) taps = s->kernel;
  PX_SCOPED(px_tensor) table = NULL;
  PX_TRY(px_tensor_empty(&table, 2, (int64_t[]){s->outputs, taps}, PX_INT64, px_cpu()));
  int64_t *at = px__tensor_at(table);
  for (int64_t i = 0; i < s->outputs; i++) {
    int64_t first = i * s->stride - s->pad, end = first + (s->kernel - 1) * s->dilation;
    if (first < 0) first += (-first + s->dilation - 1) / s->dilation * s->dilation;
    for (int64_t n = 0, tap = first; n < taps; n++) {
      *at++ = tap < s->size ? tap : s->size - 1;
      if (tap + s->dilation < s->size && tap + s->dilation <= end) tap += s->dilation;
    }
  }
  return to_device(out, table, x);
}
px_status px__integer_maxima(px_tensor **out, px_tensor **where, px_tensor *x, int dims,
                             const px__window_steps *s) {
  return px__max_over_windows(out, where, x, dims, window_table, s);
}
