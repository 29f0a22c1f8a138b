// SPDX-License-Identifier: Apache-2.0
// Pools of integers composed from other ops, exactly, for all devices. There are no gradients. The
// windows are measured on the host.
#include "formulas.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"

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
// Window sums along dimension d.
static px_status window_sums(px_tensor **out, const px_tensor *x, int d,
                             const px__window_steps *s) {
  PX_SCOPED(px_tensor) begins = NULL;
  PX_SCOPED(px_tensor) ends = NULL;
  PX_TRY(column_of(&begins, s, BEGIN, false, x));
  PX_TRY(column_of(&ends, s, END, false, x));
  return px__formula_window_sums(out, (px_value[]){PX_T(x), PX_I(d), PX_T(begins), PX_T(ends)});
}
// Number of elements of each window.
static px_status window_counts(px_tensor **out, const px_tensor *x, int dims,
                               const px__window_steps *s, bool count_pad) {
  PX_SCOPED(px_tensor) counts = NULL;
  PX_TRY(column_of(&counts, &s[0], COUNT, count_pad, x));
  for (int k = 1; k < dims; k++) {
    PX_SCOPED(px_tensor) rows = PX_MOVE(counts);
    PX_SCOPED(px_tensor) column = NULL;
    PX_TRY(column_of(&column, &s[k], COUNT, count_pad, x));
    PX_TRY(px__formula_outer_product(&counts, (px_value[]){PX_T(rows), PX_T(column)}));
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
