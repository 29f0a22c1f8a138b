// SPDX-License-Identifier: Apache-2.0
// Short forms for tests of hand-written kernels: tensors from numbers, and comparisons.
#pragma once
#include "phlox/autograd.h"
#include "phlox/ops.h"
#include "phlox/random.h"
#include "test.h"

#define SIZES(...) \
  (const int64_t[]) { __VA_ARGS__ }
#define COUNT(...) ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define VALUES(...) \
  (const double[]) { __VA_ARGS__ }

#define S(...) COUNT(__VA_ARGS__), SIZES(__VA_ARGS__)
static inline px_tensor *made(px_dtype dtype, int ndim, const int64_t *sizes,
                              const double *values) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, ndim, sizes, dtype, px_cpu()));
  char *at = px_tensor_data(t);
  for (int64_t i = 0; i < px_tensor_numel(t); i++) {
    px_scalar x = dtype == PX_INT64 ? px_int((int64_t)values[i]) : px_float(values[i]);
    px_scalar_store(x, dtype, at + (size_t)i * px_dtype_size(dtype));
  }
  return t;
}
// Small integers and halves in a pattern without symmetry. Products of them are exact.
static inline px_tensor *pattern(px_dtype dtype, int ndim, const int64_t *sizes) {
  px_tensor *t = NULL;
  OK(px_tensor_empty(&t, ndim, sizes, dtype, px_cpu()));
  char *at = px_tensor_data(t);
  for (int64_t i = 0; i < px_tensor_numel(t); i++)
    px_scalar_store(px_float((double)(i * 7 % 11 - 5) / 2), dtype,
                    at + (size_t)i * px_dtype_size(dtype));
  return t;
}
// Returns element i in row-major order of a tensor on any device.
static inline double element(const px_tensor *t, int64_t i) {
  px_dtype dtype = px_tensor_dtype(t);
  size_t item = px_dtype_size(dtype), bytes = item * (size_t)px_tensor_numel(t);
  char *all = malloc(bytes ? bytes : 1);
  CHECK(all && i < px_tensor_numel(t));
  OK(px_tensor_read(t, all, bytes));
  double x = px_scalar_float(px_scalar_load(dtype, all + (size_t)i * item));
  free(all);
  return x;
}
static inline void check_elements(const px_tensor *t, int count, const double *wanted,
                                  double tolerance, int line) {
  CHECK_EQ(px_tensor_numel(t), count);
  for (int i = 0; i < count; i++)
    if (!(fabs(element(t, i) - wanted[i]) <= tolerance)) {
      fprintf(stderr, "line %d: element %d is %.9g, not %.9g\n", line, i, element(t, i), wanted[i]);
      exit(1);
    }
}
#define ELEMENTS(t, tolerance, ...) \
  check_elements(t, (int)(sizeof(VALUES(__VA_ARGS__)) / sizeof(double)), VALUES(__VA_ARGS__), \
                 tolerance, __LINE__)
static inline const char *node_name(px_tensor *t) {
  px_node *node = NULL;
  OK(px_tensor_grad_fn(&node, t));
  return node ? px_node_name(node) : "";
}
