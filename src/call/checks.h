// SPDX-License-Identifier: Apache-2.0
// Predicates of the checks in the op tables (ops/GRAMMAR.md), on tensors, numbers for Tensor
// parameters, and lists. Absent arguments have neither sizes nor dtype.
#pragma once
#include "call/autocast.h"
#include "call/op_impl.h"
#include "conditions.h"

static inline bool px__is_tensor(px_value a) { return a.kind == PX_ARG_TENSOR; }
// Hints to the compiler that the driver has checked the kind.
static inline void px__assume_tensor(px_value a) {
  if (!px__is_tensor(a)) __builtin_unreachable();
}
static inline int64_t px__ndim_of(px_value a) { return px__is_tensor(a) ? a.v.tensor->ndim : 0; }
// Also of a list of sizes.
static inline int64_t px__numel_of(px_value a) {
  if (px__is_tensor(a)) return a.v.tensor->numel;
  return a.kind == PX_ARG_INTS ? px__sizes_product(a.v.ints, a.n) : 1;
}
static inline int64_t px__length_of(px_value a) { return a.n; }

// Dtype of a tensor, of a number, or of a dtype argument. Always inline: matrix products check it
// at each call, and it reduces to one load for known tensors.
__attribute__((always_inline)) static inline px_dtype px__dtype_of(px_value a) {
  if (px__is_tensor(a)) return (px_dtype)a.v.tensor->dtype;
  if (a.kind == PX_ARG_DTYPE) return (px_dtype)a.v.i;
  return a.kind == PX_ARG_NONE ? PX_DTYPE_NONE : px_scalar_dtype(px_value_scalar(a));
}
// Inline and without a call: every `add` checks it.
static inline bool px__is_float(px_value a) {
  if (a.kind == PX_ARG_SCALAR) return a.category == 'f';
  return a.kind != PX_ARG_NONE && px_dtype_is_float(px__dtype_of(a));
}
static inline bool px__is_complex(px_value a) { return px_dtype_is_complex(px__dtype_of(a)); }
static inline bool px__is_dtype(px_value a) { return px__dtype_of(a) != PX_DTYPE_NONE; }
// True if b, if given, holds all numbers of dtype a.
static inline bool px__widens(px_value a, px_value b) {
  px_dtype from = px__dtype_of(a), to = px__dtype_of(b);
  return to == PX_DTYPE_NONE || px_dtype_promote(from, to) == to;
}
static inline bool px__is_bool(px_value a) { return px__dtype_of(a) == PX_BOOL; }
// True if the call is recorded for a gradient of the tensor, also at outer vmap levels.
static inline bool px__is_differentiated(px_value a) {
  const px_tensor *t = a.kind == PX_ARG_TENSOR ? a.v.tensor : NULL;
  bool needs = false;
  for (; t; t = px__is_batched(t) ? t->physical : NULL) needs |= px__needs_grad(t);
  return needs && px__hooks && px__hooks->recording();
}
static inline bool px__is_batched_value(px_value a) {
  return px__is_tensor(a) && px__is_batched(a.v.tensor);
}
static inline bool px__same_device(px_value a, px_value b) {
  return px__is_tensor(a) && px__is_tensor(b) &&
         px_device_equal(px__tensor_device(a.v.tensor), px__tensor_device(b.v.tensor));
}
static inline bool px__on_cpu(px_value a) {
  return px__is_tensor(a) && px__tensor_device(a.v.tensor).type == PX_CPU;
}
static inline bool px__on_meta(px_value a) {
  return px__is_tensor(a) && px__tensor_device(a.v.tensor).type == PX_META;
}
// True if autocast applies to calls on the tensor's device.
static inline bool px__autocasts(px_value a) {
  return px__is_tensor(a) && px__autocast_here.on &&
         px__autocast_here.set.enabled[px__tensor_device(a.v.tensor).type];
}
// Lowest finite number of a dtype.
static inline double px__lowest(px_value a) { return px_dtype_about(px__dtype_of(a))->min; }
static inline bool px__is_int64(px_value a) { return px__dtype_of(a) == PX_INT64; }
static inline bool px__is_index(px_value a) {
  return px__dtype_of(a) == PX_INT64 || px__dtype_of(a) == PX_INT32;
}
__attribute__((always_inline)) static inline bool px__same_dtype(px_value a, px_value b) {
  return px__dtype_of(a) == px__dtype_of(b);
}
static inline const char *px__class_of(px_value a) { return px_dtype_class(px__dtype_of(a)); }

// Sizes of a tensor, or a list of sizes.
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
// Size of dimension d; negative d counts from the end. -1 if out of range. A 0-dim tensor has
// dimensions 0 and -1, of size 1.
__attribute__((always_inline)) static inline int64_t px__size_of(px_value a, int64_t d) {
  px__sizes x = px__sizes_of(a);
  if (x.n == 0 && px__is_tensor(a) && (d == 0 || d == -1)) return 1;
  if (d < 0) d += x.n;
  return d >= 0 && d < x.n ? x.at[d] : -1;
}
// px__has_suffix: the last sizes of a equal those of b. px__rows_of: product of the other sizes.
static inline bool px__has_suffix(px_value a, px_value b) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  return y.n <= x.n && (y.n == 0 || !memcmp(x.at + x.n - y.n, y.at, (size_t)y.n * sizeof *y.at));
}
static inline int64_t px__rows_of(px_value a, px_value end) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(end);
  return px__sizes_product(x.at, x.n - y.n);
}
// True if all sizes except the last ones agree.
static inline bool px__same_leading(px_value a, px_value b, int64_t last) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  return x.n == y.n && x.n >= last &&
         (x.n == last || !memcmp(x.at, y.at, (size_t)(x.n - last) * sizeof *x.at));
}
// True if all sizes except that of dimension d agree.
static inline bool px__same_except(px_value a, px_value b, int64_t d) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  if (d < 0) d += x.n;
  for (int i = 0; x.n == y.n && i < x.n; i++)
    if (i != d && x.at[i] != y.at[i]) return false;
  return x.n == y.n && (x.n == 0 || (d >= 0 && d < x.n));
}
// True if target has one class index for each row of the input. Classes are in dimension 1 of the
// input, or 0 if it has one dimension.
static inline bool px__classes(px_value input, px_value target) {
  px__sizes x = px__sizes_of(input), y = px__sizes_of(target);
  if (x.n == 1) return y.n == 0 || (y.n == 1 && y.at[0] == 1);
  for (int i = 0; x.n == y.n + 1 && i < y.n; i++)
    if (y.at[i] != x.at[i ? i + 1 : 0]) return false;
  return x.n == y.n + 1;
}
#define PX__SHAPE_TEXT(a) px__sizes_text((char[128]){0}, 128, px__sizes_of(a).n, px__sizes_of(a).at)
// Sizes without brackets; a number with enough digits to be exact.
#define PX__NUMBERS_TEXT(a) px__numbers_text((char[128]){0}, px__sizes_of(a))
#define PX__FULL_DIGITS_TEXT(a) px__exact_text((char[32]){0}, px_value_float(a))
const char *px__numbers_text(char text[128], px__sizes sizes);
const char *px__exact_text(char text[32], double x);
// A float in Python's format; sizes in braces; the maximum of a tensor's dtype.
#define PX__PYTHON_REPR_TEXT(a) px__python_text((char[40]){0}, px_value_float(a))
#define PX__BRACED_TEXT(a) px__braced_text((char[136]){0}, px__sizes_of(a))
#define PX__MAX_TEXT(a) px__max_text((char[32]){0}, px__dtype_of(a))
const char *px__python_text(char text[40], double x);
const char *px__braced_text(char text[136], px__sizes sizes);
const char *px__max_text(char text[32], px_dtype dtype);
// The matrix of a batch whose decomposition failed first, "(Batch element 2): "; empty for one.
#define PX__BATCH_TEXT(a) px__batch_text((char[48]){0}, a)
const char *px__batch_text(char text[48], px_value info);
// The first code other than 0 of all samples.
px_status px__code_of(int64_t *out, const px_tensor *info) __attribute__((warn_unused_result));

// True if a number fits the dtype of a tensor; wide: float32 for fewer bits. C type names of its
// elements.
static inline bool px__number_fits(px_value number, px_value self) {
  return px_scalar_fits(px_value_scalar(number), px__dtype_of(self));
}
static inline bool px__is_narrow(px_value self) {
  px_dtype dtype = px__dtype_of(self);
  return px_dtype_is_float(dtype) && px_dtype_size(dtype) <= 2;
}
static inline bool px__number_fits_wide(px_value number, px_value self) {
  px_dtype dtype = px__is_narrow(self) ? PX_FLOAT32 : px__dtype_of(self);
  return px_scalar_fits(px_value_scalar(number), dtype);
}
const char *px__ctype_of(px_value self);
const char *px__cname_of(px_value self);
static inline const char *px__wide_ctype_of(px_value self) {
  return px__is_narrow(self) ? "float" : px__ctype_of(self);
}
