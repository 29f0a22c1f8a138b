// SPDX-License-Identifier: Apache-2.0
// PyTorch's checks of the arguments of convolutions, and sizes of their results.
#include "ops/conv/conv_impl.h"

#include <stdio.h>

#define LL(x) ((long long)(x))

// ---- lists

// PyTorch's text lists the dilation of all dimensions, at least two.
static px_status refuse_dilation(px_value v, int dims) {
  char text[256];
  int64_t all[3] = {1, 1, 1};
  int count = dims < 2 ? 2 : dims;
  for (int k = 0; k < dims; k++) all[count - dims + k] = px__int_at(v, k);
  for (int k = 0; k < v.n; k++)
    PX_CHECK(v.v.ints[k] >= 0, PX_RUNTIME, "dilation should be greater than zero");
  PX_FAIL(PX_RUNTIME, "dilation should be greater than zero, but got %s",
          px__sizes_text(text, sizeof text, count, all));
}
px_status px__conv_list(px_value v, const char *name, int64_t min, int dims, bool both) {
  char text[256];
  PX_CHECK(v.n == 1 || v.n == dims || (both && v.n == 2 * dims), PX_RUNTIME,
           "expected %s to be a single integer value or a list of %d values to match the "
           "convolution dimensions, but got %s=%s",
           name, dims, name, px__sizes_text(text, sizeof text, v.n, v.v.ints));
  for (int i = 0; i < v.n; i++) {
    if (v.v.ints[i] < min && !strcmp(name, "dilation")) return refuse_dilation(v, dims);
    PX_CHECK(v.v.ints[i] >= min, PX_RUNTIME, "%s %s is not supported",
             min ? "non-positive" : "negative", name);
    PX_CHECK(v.v.ints[i] <= INT32_MAX, PX_RUNTIME, "integer out of range");
  }
  return PX_OK;
}
px_status px__conv_lists(px__conv_steps by, int dims, bool both) {
  PX_TRY(px__conv_list(by.stride, "stride", 1, dims, false));
  PX_TRY(px__conv_list(by.padding, "padding", 0, dims, both));
  return px__conv_list(by.dilation, "dilation", 1, dims, false);
}

// Text of a list by dimension: " stride_height: 1 stride_width: 2".
const char *px__by_dimension(char text[160], const char *name, int dims, px_value list) {
  static const char *const dimensions[] = {"depth", "height", "width"};
  size_t used = 0;
  for (int k = 0; k < dims; k++)
    used += (size_t)snprintf(text + used, 160 - used, " %s_%s: %lld", name,
                             dimensions[3 - dims + k], LL(px__int_at(list, k)));
  return text;
}
// "5 x 5": sizes of all dimensions.
const char *px__by_text(char text[96], int dims, const int64_t *sizes) {
  size_t used = 0;
  for (int k = 0; k < dims; k++)
    used += (size_t)snprintf(text + used, 96 - used, k ? " x %lld" : "%lld", LL(sizes[k]));
  return text;
}

// ---- operands

px__pair px__pair_of(const px_tensor *x, const px_tensor *w) {
  px__pair p = {.ndim = w->ndim};
  bool alone = x->ndim < w->ndim;
  p.x[0] = 1;
  memcpy(p.x + alone, x->sizes, (size_t)x->ndim * sizeof *p.x);
  memcpy(p.w, w->sizes, (size_t)w->ndim * sizeof *p.w);
  return p;
}
// Error texts are formatted only when needed.
static const char *weight_text(char text[128], const px__pair *p) {
  return px__sizes_text(text, 128, p->ndim, p->w);
}
static const char *kind_text(char text[48], bool transposed, int64_t groups) {
  snprintf(text, 48, transposed ? "transposed=1, " : "groups=%lld, ", LL(groups));
  return text;
}
// Checks that the first dimension of a weight is divisible by groups.
static px_status check_groups(const px__pair *p, int64_t groups) {
  char ws[128];
  PX_CHECK(p->w[0] >= groups, PX_RUNTIME,
           "Given groups=%lld, expected weight to be at least %lld at dimension 0, but got weight "
           "of size %s instead",
           LL(groups), LL(groups), weight_text(ws, p));
  PX_CHECK(p->w[0] % groups == 0, PX_RUNTIME,
           "Given groups=%lld, expected weight to be divisible by %lld at dimension 0, but got "
           "weight of size [%s] instead",
           LL(groups), LL(groups), weight_text(ws, p));
  return PX_OK;
}
px_status px__conv_channels(const px__pair *p, const px_tensor *bias, int64_t groups,
                            bool transposed) {
  char ws[128], xs[128], buffer[48];
  int64_t channels = px__steps(groups, p->w[1]);
  int64_t expected = transposed ? p->w[0] : channels, given = transposed ? channels : p->w[0];
  PX_TRY(check_groups(p, groups));
  PX_CHECK(p->x[1] == expected, PX_RUNTIME,
           "Given %sweight of size %s, expected input%s to have %lld channels, but got %lld "
           "channels instead",
           kind_text(buffer, transposed, groups), weight_text(ws, p),
           px__sizes_text(xs, sizeof xs, p->ndim, p->x), LL(expected), LL(p->x[1]));
  PX_CHECK(!bias || (bias->ndim == 1 && bias->numel == given), PX_RUNTIME,
           "Given %sweight of size %s, expected bias to be 1-dimensional with %lld elements, but "
           "got bias of size %s instead",
           transposed ? kind_text(buffer, true, groups) : "", weight_text(ws, p), LL(given),
           px__size_text(xs, sizeof xs, bias));
  return PX_OK;
}
px_status px__conv_types(const px_tensor *x, const px_tensor *w, const px_tensor *bias) {
  char name_x[48], name_w[48];
  bool device_mismatch =
      px__tensor_device(x).type == PX_CUDA && px__tensor_device(w).type == PX_CPU;
  PX_CHECK(x->dtype == w->dtype && !device_mismatch, PX_RUNTIME,
           "Input type (%s) and weight type (%s) should be the same",
           px_tensor_type_name(x, name_x), px_tensor_type_name(w, name_w));
  PX_CHECK(!bias || bias->dtype == x->dtype, PX_RUNTIME,
           "Input type (%s) and bias type (%s) should be the same",
           px_dtype_about((px_dtype)x->dtype)->type_name,
           px_dtype_about((px_dtype)(bias ? bias : x)->dtype)->type_name);
  return PX_OK;
}
// Checks the numbers of dimensions.
static px_status check_dims(const char *name, int dims, const px_tensor *x, const px_tensor *w) {
  char text[128];
  PX_CHECK(x->ndim == dims + 2 && w->ndim == dims + 2, PX_RUNTIME,
           "Expected %dD (unbatched) or %dD (batched) input to %s%dd, but got input of size: %s",
           dims + 1, dims + 2, name, dims, px__size_text(text, sizeof text, x));
  return PX_OK;
}
// Checks everything except sizes.
px_status px__conv_operands(bool transposed, int dims, const px_tensor *x, const px_tensor *w,
                            const px_tensor *bias, int64_t groups) {
  PX_TRY(check_dims(transposed ? "conv_transpose" : "conv", dims, x, w));
  PX_TRY(px__conv_types(x, w, bias));
  px__pair p = px__pair_of(x, w);
  return px__conv_channels(&p, bias, groups, transposed);
}

// ---- sizes

// Checks that the kernel is not empty and that sizes of inputs and kernels are in range.
px_status px__conv_kernel(int dims, const int64_t *x, const int64_t *w) {
  char text[160];
  for (int k = 0; k < dims; k++)
    PX_CHECK(w[2 + k] > 0, PX_RUNTIME, "kernel size should be greater than zero, but got%s",
             px__by_dimension(text, "kernel", dims, PX_IS(w + 2, dims)));
  for (int k = 2; k < 2 + dims; k++)
    PX_CHECK(w[k] <= INT32_MAX && x[k] >= 0 && x[k] <= INT64_MAX / 4, PX_RUNTIME,
             "integer out of range");
  return PX_OK;
}
// Checks that no kernel is larger than the padded input.
static px_status check_padded(int dims, const int64_t *padded, const int64_t *kernel) {
  char have[96], need[96];
  for (int k = 0; k < dims; k++)
    PX_CHECK(padded[k] >= kernel[k], PX_RUNTIME,
             "Calculated padded input size per channel: (%s). Kernel size: (%s). Kernel size can't "
             "be greater than actual input size",
             px__by_text(have, dims, padded), px__by_text(need, dims, kernel));
  return PX_OK;
}
// Sizes of a convolution of x by a kernel w.
px_status px__conv_sizes(int dims, const int64_t *x, const int64_t *w, px__conv_steps by,
                         int64_t *sizes) {
  int64_t padded[3], kernel[3];
  PX_TRY(px__conv_kernel(dims, x, w));
  sizes[0] = x[0], sizes[1] = w[0];
  for (int k = 0; k < dims; k++) {
    padded[k] = x[2 + k] + px__int_at(by.padding, k) + px__pad_end(by.padding, dims, k);
    kernel[k] = px__int_at(by.dilation, k) * (w[2 + k] - 1) + 1;
    sizes[2 + k] = (padded[k] - kernel[k]) / px__int_at(by.stride, k) + 1;
  }
  return check_padded(dims, padded, kernel);
}
