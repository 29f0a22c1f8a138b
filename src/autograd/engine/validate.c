// SPDX-License-Identifier: Apache-2.0
// Converts each gradient passed between nodes to the metadata of its tensor. Formulas therefore
// need not undo broadcasting and type promotion. Fails for an incompatible gradient.
#include <stdio.h>

#include "autograd/engine/graph.h"
#include "hidden/copy.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

static bool sums_to(const px_tensor *grad, const px__meta *meta) {
  int lead = px_tensor_ndim(grad) - meta->ndim;
  if (lead < 0) return false;
  const int64_t *sizes = px_tensor_sizes(grad);
  for (int d = 0; d < meta->ndim; d++)
    if (sizes[lead + d] != meta->sizes[d] && meta->sizes[d] != 1) return false;
  return true;
}

static px_status replace(px_tensor **slot, px_tensor *value_take) {
  px_release(*slot);
  *slot = value_take;
  return PX_OK;
}

static px_status sum_to(px_tensor **grad, const px__meta *meta) {
  int lead = px_tensor_ndim(*grad) - meta->ndim, count = 0;
  int64_t dims[PX_MAX_DIMS];
  for (int d = 0; d < px_tensor_ndim(*grad); d++)
    if (d < lead || px_tensor_sizes(*grad)[d] != meta->sizes[d - lead]) dims[count++] = d;
  px_tensor *made = NULL;
  if (count) {
    PX_TRY(px_sum(&made, *grad, dims, count, true, PX_DTYPE_NONE));
    (void)replace(grad, made);
  }
  if (!lead) return PX_OK;
  PX_TRY(px_reshape(&made, *grad, meta->sizes, meta->ndim));
  return replace(grad, made);
}

static void text_of(char *text, size_t size, int ndim, const int64_t *sizes) {
  size_t used = (size_t)snprintf(text, size, "[");
  for (int d = 0; d < ndim && used < size; d++)
    used +=
        (size_t)snprintf(text + used, size - used, "%s%lld", d ? ", " : "", (long long)sizes[d]);
  if (used < size) snprintf(text + used, size - used, "]");
}

static void source_text(char *text, size_t size, const char *function, int index) {
  snprintf(text, size, "%s%s%sinvalid gradient at index %d", function ? "Function " : "",
           function ? function : "", function ? " returned an " : "", index);
}

static px_status fail_shape(const px_tensor *grad, const px__meta *meta, const char *function,
                            int index) {
  char source[256], actual[300], expected[300];
  source_text(source, sizeof source, function, index);
  text_of(actual, sizeof actual, px_tensor_ndim(grad), px_tensor_sizes(grad));
  text_of(expected, sizeof expected, meta->ndim, meta->sizes);
  PX_FAIL(PX_RUNTIME, "%s - got %s but expected shape compatible with %s", source, actual,
          expected);
}

static px_status convert(px_tensor **grad, px_dtype dtype, px_device device) {
  px_tensor *made = NULL;
  PX_TRY(px__to_copy(&made, *grad, dtype, device, false, false, NULL));
  return replace(grad, made);
}

// True if one call may have operands on both devices. Gradients may then cross devices.
static bool may_mix(px_device a, px_device b) {
  return a.type == PX_CUDA && b.type == PX_CUDA && px__are_peers(a.index, b.index);
}

px_status px__fit_grad(px_tensor **grad, const px__meta *meta, const char *function, int index) {
  if (meta->dtype == PX_DTYPE_NONE) return PX_OK;
  if (!px_tensor_has_sizes(*grad, meta->ndim, meta->sizes)) {
    if (!sums_to(*grad, meta)) return fail_shape(*grad, meta, function, index);
    PX_TRY(sum_to(grad, meta));
  }
  if (px_dtype_is_complex(px_tensor_dtype(*grad)) && !px_dtype_is_complex((px_dtype)meta->dtype)) {
    px_tensor *real = NULL;  // the gradient of a real input is the real part
    PX_TRY(px_real(&real, *grad));
    PX_TRY(replace(grad, real));
  }
  if (px_tensor_dtype(*grad) != meta->dtype)
    PX_TRY(convert(grad, (px_dtype)meta->dtype, px_tensor_device(*grad)));
  px_device actual = px_tensor_device(*grad);
  if (px_device_equal(actual, meta->device)) return PX_OK;
  if (px_tensor_ndim(*grad) == 0 || may_mix(actual, meta->device))
    return convert(grad, (px_dtype)meta->dtype, meta->device);
  char source[256], have_text[PX_DEVICE_TEXT], want_text[PX_DEVICE_TEXT];
  source_text(source, sizeof source, function, index);
  PX_FAIL(PX_RUNTIME, "%s - expected device %s but got %s", source,
          px_device_format(meta->device, want_text), px_device_format(actual, have_text));
}

static px_status has_nan(bool *out, px_tensor *t) {
  PX_SCOPED(px_tensor) each = NULL;
  PX_SCOPED(px_tensor) any = NULL;
  PX_TRY(px_isnan(&each, t));
  PX_TRY(px_any(&any, each, NULL, 0, false));
  px_scalar found;
  PX_TRY(px_tensor_item(&found, any));
  *out = px_scalar_int(found) != 0;
  return PX_OK;
}

px_status px__find_nan(const char *name, int count, px_tensor *const *grads) {
  bool before = px__grad_swap(false), nan = false;
  px_status status = PX_OK;
  int i = 0;
  for (; i < count && status == PX_OK && !nan; i++)
    if (grads[i]) status = has_nan(&nan, grads[i]);
  px__grad_swap(before);
  PX_TRY(status);
  PX_CHECK(!nan, PX_RUNTIME, "Function '%s' returned nan values in its %dth output.", name, i - 1);
  return PX_OK;
}
