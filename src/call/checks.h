// SPDX-License-Identifier: Apache-2.0
// What the checks of the op tables ask of arguments (ops/GRAMMAR.md): of tensors, of numbers in
// their place, of lists. What is absent has no sizes and no dtype.
#pragma once
#include "call/op_impl.h"
#include "conditions.h"

static inline bool px__is_tensor(px_value a) { return a.kind == PX_ARG_TENSOR; }
// Tells the compiler what the driver has seen to.
static inline void px__assume_tensor(px_value a) {
  if (!px__is_tensor(a)) __builtin_unreachable();
}
static inline int64_t px__ndim_of(px_value a) { return px__is_tensor(a) ? a.v.tensor->ndim : 0; }
static inline int64_t px__numel_of(px_value a) { return px__is_tensor(a) ? a.v.tensor->numel : 1; }
static inline int64_t px__length_of(px_value a) { return a.n; }

// The dtype of a tensor, that which a number has, or an argument that is one. What products ask of
// each call is always inline: of what is surely a tensor hardly anything is left of it.
__attribute__((always_inline)) static inline px_dtype px__dtype_of(px_value a) {
  if (px__is_tensor(a)) return (px_dtype)a.v.tensor->dtype;
  if (a.kind == PX_ARG_DTYPE) return (px_dtype)a.v.i;
  return a.kind == PX_ARG_NONE ? PX_DTYPE_NONE : px_scalar_dtype(px_value_scalar(a));
}
// Inline, and without a call: add asks it each time.
static inline bool px__is_float(px_value a) {
  if (a.kind == PX_ARG_SCALAR) return a.category == 'f';
  return a.kind != PX_ARG_NONE && px_dtype_is_float(px__dtype_of(a));
}
static inline bool px__is_complex(px_value a) { return px_dtype_is_complex(px__dtype_of(a)); }
static inline bool px__is_bool(px_value a) { return px__dtype_of(a) == PX_BOOL; }
static inline bool px__is_int64(px_value a) { return px__dtype_of(a) == PX_INT64; }
__attribute__((always_inline)) static inline bool px__same_dtype(px_value a, px_value b) {
  return px__dtype_of(a) == px__dtype_of(b);
}
static inline const char *px__class_of(px_value a) { return px_dtype_class(px__dtype_of(a)); }

// Sizes: a tensor's, or a list of them.
typedef struct px__sizes {
  const int64_t *at;
  int n;
} px__sizes;
__attribute__((always_inline)) static inline px__sizes px__sizes_of(px_value a) {
  if (px__is_tensor(a)) return (px__sizes){a.v.tensor->sizes, a.v.tensor->ndim};
  return a.kind == PX_ARG_INTS ? (px__sizes){a.v.ints, a.n} : (px__sizes){NULL, 0};
}
static inline bool px__same_sizes(px_value a, px_value b) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  return x.n == y.n && (x.n == 0 || !memcmp(x.at, y.at, (size_t)x.n * sizeof *x.at));
}
// The size of dimension d, from the end if it is negative; -1 if there is none. A 0-dim tensor has
// dimensions 0 and -1, of size 1.
__attribute__((always_inline)) static inline int64_t px__size_of(px_value a, int64_t d) {
  px__sizes x = px__sizes_of(a);
  if (x.n == 0 && px__is_tensor(a) && (d == 0 || d == -1)) return 1;
  if (d < 0) d += x.n;
  return d >= 0 && d < x.n ? x.at[d] : -1;
}
// Whether the sizes of b end those of a; the product of the others.
static inline bool px__has_suffix(px_value a, px_value b) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  return y.n <= x.n && (y.n == 0 || !memcmp(x.at + x.n - y.n, y.at, (size_t)y.n * sizeof *y.at));
}
static inline int64_t px__rows_of(px_value a, px_value end) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(end);
  return px__sizes_product(x.at, x.n - y.n);
}
// Whether all sizes agree but those of the last dimensions.
static inline bool px__same_leading(px_value a, px_value b, int64_t last) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  return x.n == y.n && x.n >= last &&
         (x.n == last || !memcmp(x.at, y.at, (size_t)(x.n - last) * sizeof *x.at));
}
// Whether all sizes agree but that of dimension d.
static inline bool px__same_except(px_value a, px_value b, int64_t d) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  if (d < 0) d += x.n;
  for (int i = 0; x.n == y.n && i < x.n; i++)
    if (i != d && x.at[i] != y.at[i]) return false;
  return x.n == y.n && (x.n == 0 || (d >= 0 && d < x.n));
}
// Whether target has a place for each row of an input of these sizes, whose classes are in
// dimension 1, or 0 if it is the only one.
static inline bool px__classes(px_value input, px_value target) {
  px__sizes x = px__sizes_of(input), y = px__sizes_of(target);
  if (x.n == 1) return y.n == 0 || (y.n == 1 && y.at[0] == 1);
  for (int i = 0; x.n == y.n + 1 && i < y.n; i++)
    if (y.at[i] != x.at[i ? i + 1 : 0]) return false;
  return x.n == y.n + 1;
}
#define PX__SHAPE_TEXT(a) px__sizes_text((char[128]){0}, 128, px__sizes_of(a).n, px__sizes_of(a).at)
// The sizes without brackets; a number with as many digits as tell it from its neighbours.
#define PX__NUMBERS_TEXT(a) px__numbers_text((char[128]){0}, px__sizes_of(a))
#define PX__EXACT_TEXT(a) px__exact_text((char[32]){0}, px_value_float(a))
const char *px__numbers_text(char text[128], px__sizes sizes);
const char *px__exact_text(char text[32], double x);
// A float as Python prints it; the sizes in braces; the greatest number of a tensor's dtype.
#define PX__PYTHON_TEXT(a) px__python_text((char[40]){0}, px_value_float(a))
#define PX__BRACED_TEXT(a) px__braced_text((char[136]){0}, px__sizes_of(a))
#define PX__MAX_TEXT(a) px__max_text((char[32]){0}, px__dtype_of(a))
const char *px__python_text(char text[40], double x);
const char *px__braced_text(char text[136], px__sizes sizes);
const char *px__max_text(char text[32], px_dtype dtype);

// Whether a number can be written to elements of a tensor, and the C type of these.
static inline bool px__number_fits(px_value number, px_value self) {
  return px_scalar_fits(px_value_scalar(number), px__dtype_of(self));
}
const char *px__ctype_of(px_value self);
const char *px__cname_of(px_value self);
