// SPDX-License-Identifier: Apache-2.0
// Small tensors for tests of ops, and checks of their elements.
#pragma once
#include "phlox/autograd.h"
#include "phlox/ops.h"

#include <stdarg.h>

__attribute__((unused)) static px_tensor *floats(int n, ...) {
  float data[64];
  va_list list;
  va_start(list, n);
  for (int i = 0; i < n; i++) data[i] = (float)va_arg(list, double);
  va_end(list);
  px_tensor *t = NULL;
  int64_t size = n;
  OK(px_tensor_from_data(&t, data, 1, &size, PX_FLOAT32, PX_DEVICE_NONE));
  return t;
}
__attribute__((unused)) static px_tensor *longs(int n, ...) {
  int64_t data[64], size = n;
  va_list list;
  va_start(list, n);
  for (int i = 0; i < n; i++) data[i] = va_arg(list, int);
  va_end(list);
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, data, 1, &size, PX_INT64, PX_DEVICE_NONE));
  return t;
}
// Returns the max difference of elements.
__attribute__((unused)) static double max_difference(const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) difference = NULL;
  PX_SCOPED(px_tensor) size = NULL;
  PX_SCOPED(px_tensor) most = NULL;
  px_scalar number;
  OK(px_sub(&difference, a, b, px_int(1)));
  OK(px_abs(&size, difference));
  OK(px_amax(&most, size, NULL, 0, false));
  OK(px_tensor_item(&number, most));
  return px_scalar_float(number);
}
// [[0, 1, 2], [3, 4, 5]]
__attribute__((unused)) static px_tensor *matrix(void) {
  const float data[6] = {0, 1, 2, 3, 4, 5};
  const int64_t sizes[2] = {2, 3};
  px_tensor *t = NULL;
  OK(px_tensor_from_data(&t, data, 2, sizes, PX_FLOAT32, PX_DEVICE_NONE));
  return t;
}
__attribute__((unused)) static void is_at(const char *file, int line, const px_tensor *t, int n,
                                          ...) {
  PX_SCOPED(px_tensor) wide = NULL;
  double data[64];
  OK(px_to(&wide, t, PX_FLOAT64, px_cpu(), false, false));
  if (px_tensor_numel(t) != n) {
    fprintf(stderr, "%s:%d: %lld elements, wanted %d\n", file, line, (long long)px_tensor_numel(t),
            n);
    exit(1);
  }
  OK(px_tensor_read(wide, data, (size_t)n * sizeof *data));
  va_list list;
  va_start(list, n);
  for (int i = 0; i < n; i++) {
    double want = va_arg(list, double);
    if (fabs(data[i] - want) <= 1e-5 * (1 + fabs(want))) continue;
    fprintf(stderr, "%s:%d: element %d is %g, wanted %g\n", file, line, i, data[i], want);
    exit(1);
  }
  va_end(list);
}
#define IS(t, ...) is_at(__FILE__, __LINE__, t, __VA_ARGS__)
__attribute__((unused)) static void shape_at(const char *file, int line, const px_tensor *t, int n,
                                             ...) {
  va_list list;
  va_start(list, n);
  bool same = px_tensor_ndim(t) == n;
  for (int d = 0; d < n && same; d++) same = px_tensor_size(t, d) == va_arg(list, int);
  va_end(list);
  if (same) return;
  fprintf(stderr, "%s:%d: shape [", file, line);
  for (int d = 0; d < px_tensor_ndim(t); d++)
    fprintf(stderr, "%s%lld", d ? ", " : "", (long long)px_tensor_size(t, d));
  fprintf(stderr, "] is not what was wanted\n");
  exit(1);
}
#define SHAPE(t, ...) shape_at(__FILE__, __LINE__, t, __VA_ARGS__)
