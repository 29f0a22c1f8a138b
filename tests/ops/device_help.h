// SPDX-License-Identifier: Apache-2.0
// For tests of a device against the CPU: on a real device where TEST_DEVICE is set, else on a
// simulated one.
#pragma once
#include "kernels_help.h"
#include "phlox/memory.h"

static inline void arrange(void) {
  if (!getenv("TEST_DEVICE")) setenv("PHLOX_SIM_DEVICES", "1", 0);
  if (px_device_count(PX_CUDA) == 0) SKIP("no device of type cuda");
  px_setting_set(PX_SETTING_CUDNN_TF32, false);
}

// A copy on the device.
static inline px_tensor *there(const px_tensor *t) {
  px_tensor *out = NULL;
  OK(px_to_cuda(&out, t, px_cuda(0), false));
  return out;
}
static inline px_tensor *there_take(px_tensor *take) {
  px_tensor *out = there(take);
  px_release(take);
  return out;
}

// A product that leaves NaN in the registers of a whole GPU: what reads one that was not set shows.
// A checker takes too long for it.
static inline void leave_nan_behind(void) {
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

// What one rounding or two in another order may do to a result. 0 for integers.
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
// Whether two tensors have the same shape, dtype and, nearly, numbers; says where not.
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
  px_dtype part = px_dtype_to_real(dtype);  // complex numbers are compared as two
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
