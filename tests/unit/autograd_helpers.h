// SPDX-License-Identifier: Apache-2.0
// Shared by the autograd tests: small tensors from numbers, and back.
#pragma once
#include "phlox/autograd.h"
#include "phlox/ops.h"
#include "test.h"

#define VECTOR(...) \
  vector((const float[]){__VA_ARGS__}, \
         (int64_t)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))

static inline px_tensor *vector(const float *values, int64_t n) {
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, values, 1, &n, PX_FLOAT32, px_cpu()));
  return t;
}

static inline px_tensor *needing_grad(px_tensor *t) {
  OK(px_tensor_set_requires_grad(t, true));
  return t;
}
#define LEAF(...) needing_grad(VECTOR(__VA_ARGS__))

// Returns element i in row-major order.
static inline double at(const px_tensor *t, int64_t i) {
  CHECK(t);
  int64_t n = px_tensor_numel(t);
  CHECK(i < n);
  size_t item = px_dtype_size(px_tensor_dtype(t));
  char *raw = malloc((size_t)n * item);
  OK(px_tensor_read(t, raw, (size_t)n * item));
  double value = px_scalar_float(px_scalar_load(px_tensor_dtype(t), raw + (size_t)i * item));
  free(raw);
  return value;
}

// Backward of sum(y).
static inline void back(px_tensor *y) {
  PX_SCOPED(px_tensor) total = NULL;
  OK(px_sum(&total, y, NULL, 0, false, PX_DTYPE_NONE));
  OK(px_backward(1, &total, NULL, false, false));
}

static inline const char *maker(px_tensor *t) {
  px_node *fn = NULL;
  OK(px_tensor_grad_fn(&fn, t));
  return fn ? px_node_name(fn) : "";
}
