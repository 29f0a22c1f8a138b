// SPDX-License-Identifier: Apache-2.0
// Tests of a device against the CPU: on a real device if TEST_DEVICE is set, otherwise on a
// simulated one.
#pragma once
#include "kernels_help.h"
#include "phlox/memory.h"

static inline void arrange(void) {
  if (!getenv("TEST_DEVICE")) setenv("PHLOX_SIM_DEVICES", "1", 0);
  if (px_device_count(PX_CUDA) == 0) SKIP("no device of type cuda");
  px_setting_set(PX_SETTING_CUDNN_TF32, false);
}

// Returns a copy on the device.
static inline px_tensor *to_device(const px_tensor *t) {
  px_tensor *out = NULL;
  OK(px_to_cuda(&out, t, px_cuda(0), false));
  return out;
}
static inline px_tensor *to_device_take(px_tensor *source) {
  px_tensor *out = to_device(source);
  px_release(source);
  return out;
}

// A product that leaves NaN in the registers of the whole GPU, to expose reads of unset registers.
// Skipped under a checker, since it takes too long there.
static inline void fill_registers_with_nan(void) {
  px_tensor *tall = NULL, *wide = NULL, *product = NULL;
  if (!getenv("TEST_DEVICE") || getenv("TEST_CHECKED")) return;
  for (int k = 0; k < 2; k++) {
    px_dtype dtype = k ? PX_FLOAT32 : PX_BFLOAT16;
    OK(px_full(&tall, (int64_t[]){2048, 64}, 2, px_float(NAN), dtype, px_cuda(0), false, false));
    OK(px_full(&wide, (int64_t[]){64, 2048}, 2, px_float(NAN), dtype, px_cuda(0), false, false));
    OK(px_matmul(&product, tall, wide));
    px_release(tall), px_release(wide), px_release(product);
  }
}

// The effect of one rounding, or of two in another order, on a result. 0 for integers.
static inline double tolerance_of(px_dtype dtype) {
  dtype = px_dtype_to_real(dtype);
  return dtype == PX_FLOAT64    ? 1e-10
         : dtype == PX_FLOAT32  ? 2e-5
         : dtype == PX_FLOAT16  ? 8e-3
         : dtype == PX_BFLOAT16 ? 6e-2
                                : 0;
}

static inline double number_at(const char *raw, px_dtype dtype, int64_t i) {
  return px_scalar_float(px_scalar_load(dtype, raw + (size_t)i * px_dtype_size(dtype)));
}
// True if two tensors have the same shape and dtype and close values. Prints the first difference.
static inline bool agrees(const char *what, const px_tensor *want, const px_tensor *got,
                          double tolerance) {
  px_dtype dtype = px_tensor_dtype(want);
  int64_t n = px_tensor_numel(want);
  if (px_tensor_dtype(got) != dtype || px_tensor_numel(got) != n ||
      px_tensor_ndim(got) != px_tensor_ndim(want)) {
    fprintf(stderr, "%s: another dtype or shape\n", what);
    return false;
  }
  size_t bytes = px_dtype_size(dtype) * (size_t)n;
  px_dtype part = px_dtype_to_real(dtype);  // complex numbers are compared as pairs
  n = (int64_t)(bytes / px_dtype_size(part));
  char *a = malloc(bytes + 1), *b = malloc(bytes + 1);
  bool good = true;
  OK(px_tensor_read(want, a, bytes));
  if (px_tensor_read(got, b, bytes)) {
    fprintf(stderr, "%s: %s\n", what, px_error_last()->message);
    px_error_clear();
    good = false;
  }
  for (int64_t i = 0; good && i < n; i++) {
    double x = number_at(a, part, i), y = number_at(b, part, i), scale = fabs(x) > 1 ? fabs(x) : 1;
    good = x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * scale;
    if (!good)
      fprintf(stderr, "%s (%s): element %lld is %.9g, not %.9g\n", what, px_dtype_name(dtype),
              (long long)i, y, x);
  }
  free(a);
  free(b);
  return good;
}
