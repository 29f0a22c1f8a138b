// SPDX-License-Identifier: Apache-2.0
// Sizes of results and dtypes, as computed by the `result` lines of op tables (ops/GRAMMAR.md).
#pragma once
#include "call/call_impl.h"
#include "call/checks.h"

// Counts all dimensions, and stores one more than a tensor may have.
typedef struct px__shape {
  int n;
  int64_t sizes[PX_MAX_DIMS + 1];
} px__shape;

static inline void px__shape_add(px__shape *s, int64_t size) {
  if (s->n <= PX_MAX_DIMS) s->sizes[s->n] = size;
  s->n++;
}
// Appends the sizes of a tensor or a list except the last ones.
static inline void px__shape_leading(px__shape *s, px_value of, int64_t last) {
  px__sizes x = px__sizes_of(of);
  for (int d = 0; d < x.n - last; d++) px__shape_add(s, x.at[d]);
}
static inline void px__shape_sizes(px__shape *s, px_value of) { px__shape_leading(s, of, 0); }
// ... with 1 for the last ones.
static inline void px__shape_rows(px__shape *s, px_value of, int64_t last) {
  px__sizes x = px__sizes_of(of);
  for (int d = 0; d < x.n; d++) px__shape_add(s, d < x.n - last ? x.at[d] : 1);
}
// ... with `size` for dimension dim.
static inline void px__shape_along(px__shape *s, px_value of, int64_t dim, int64_t size) {
  px__sizes x = px__sizes_of(of);
  if (dim < 0) dim += x.n;
  for (int d = 0; d < x.n; d++) px__shape_add(s, d == dim ? size : x.at[d]);
}
// ... without dimension dim, or with 1 for it.
static inline void px__shape_reduced(px__shape *s, px_value of, int64_t dim, bool keepdim) {
  px__sizes x = px__sizes_of(of);
  if (dim < 0) dim += x.n;
  for (int d = 0; d < x.n; d++)
    if (d != dim || keepdim) px__shape_add(s, d == dim ? 1 : x.at[d]);
}

// ... with 1 for the dimensions `dims`, by default all.
static inline void px__shape_kept(px__shape *s, px_value of, px_value dims) {
  px__sizes x = px__sizes_of(of);
  for (int d = 0; d < x.n; d++) {
    bool reduced = dims.n == 0;
    for (int i = 0; i < dims.n; i++)
      reduced |= d == (dims.v.ints[i] < 0 ? dims.v.ints[i] + x.n : dims.v.ints[i]);
    px__shape_add(s, reduced ? 1 : x.at[d]);
  }
}

// Appends the integers from `first` to `end`, without `end`.
static inline void px__shape_range(px__shape *s, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; i++) px__shape_add(s, i);
}

// Appends n sizes: -1 for dimension dim, which reshape infers, and 1 for the others.
static inline void px__shape_only(px__shape *s, int64_t n, int64_t dim) {
  if (dim < 0) dim += n;
  for (int64_t d = 0; d < n; d++) px__shape_add(s, d == dim ? -1 : 1);
}
// Appends the dimensions from 0 to n - 1 except dim.
static inline void px__shape_others(px__shape *s, int64_t n, int64_t dim) {
  if (dim < 0) dim += n;
  for (int64_t d = 0; d < n; d++)
    if (d != dim) px__shape_add(s, d);
}
// Appends the sizes of dimensions from `first` to `end`, without `end`.
static inline void px__shape_between(px__shape *s, px_value of, int64_t first, int64_t end) {
  px__sizes x = px__sizes_of(of);
  for (int64_t d = first; d < end && d < x.n; d++) px__shape_add(s, x.at[d]);
}
// Appends the numbers of a list. A single number is repeated n times.
static inline void px__shape_each(px__shape *s, px_value of, int64_t n) {
  px__sizes x = px__sizes_of(of);
  for (int64_t d = 0; d < (x.n == 1 ? n : x.n); d++) px__shape_add(s, x.at[x.n == 1 ? 0 : d]);
}
// Appends the common sizes of two operands; fails with PyTorch's text.
px_status px__shape_broadcast(px__shape *s, px_value a, px_value b)
    __attribute__((warn_unused_result));
// The list as an argument of an op. Too many dimensions make the op fail.
static inline px_value px__shape_list(const px__shape *s) {
  return PX_IS(s->sizes, s->n <= PX_MAX_DIMS ? s->n : PX_MAX_DIMS + 1);
}
static inline px__sizes px__shape_made(const px__shape *s) { return (px__sizes){s->sizes, s->n}; }

// Makes result i with these sizes.
static inline px_status px__shape_result(px_call *call, int i, px__sizes x, px_dtype dtype) {
  PX_CHECK(x.n <= PX_MAX_DIMS, PX_RUNTIME, "%s: too many dimensions", call->op->name);
  return px__call_result(call, i, x.n, x.at, dtype);
}

// Fails with the error text of expand() unless a tensor broadcasts to these sizes.
px_status px__check_expands(px_value a, px__sizes target) __attribute__((warn_unused_result));
// Fails with PyTorch's text unless dim is a dimension of a tensor or a list of sizes. 0-dim tensors
// have 0 and -1.
static inline px_status px__check_dim(px_value a, int64_t dim) {
  int wrapped;
  return px__wrap_dim(&wrapped, dim, px__sizes_of(a).n);
}

// Integers and bool become int64.
static inline px_dtype px__sum_dtype(px_dtype d) {
  return px_dtype_is_differentiable(d) ? d : PX_INT64;
}
// Integers and bool become the default dtype.
static inline px_dtype px__floating_dtype(px_dtype d) {
  return px_dtype_is_differentiable(d) ? d : px_dtype_default();
}
// Accumulation dtype: float64 or float32.
static inline px_dtype px__acc_dtype(px_dtype d) { return d == PX_FLOAT64 ? d : PX_FLOAT32; }
