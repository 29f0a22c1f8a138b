// SPDX-License-Identifier: Apache-2.0
// Gradient clipping, by total norm or by value.
#include <math.h>

#include "optim/optim_impl.h"
#include "phlox/op.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"

// The norm of one gradient, as a 0-dim tensor on `device`.
static px_status norm_on(px_tensor **out, const px_tensor *grad, double type, px_device device) {
  PX_SCOPED(px_tensor) here = NULL;
  PX_TRY(px_norm(&here, grad, px_float(type), NULL, 0, false, PX_DTYPE_NONE));
  return px_to(out, here, PX_DTYPE_NONE, device, false, false);
}

static px_status join(px_tensor **total, px_tensor *const *grads, int64_t count, double type,
                      px_tensor **norms) {
  PX_SCOPED(px_tensor) all = NULL;
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int64_t i = 0; i < count && status == PX_OK; i++)
    status = norm_on(&norms[i], grads[i], type, px_tensor_device(grads[0]));
  PX_TRY(px_launch_batch_end(status));
  PX_TRY(px_stack(&all, norms, count, 0));
  return px_norm(total, all, px_float(type), NULL, 0, false, PX_DTYPE_NONE);
}

static px_status scale_one(px_tensor *grad, const px_tensor *factor) {
  PX_SCOPED(px_tensor) here = NULL;
  PX_TRY(px_to(&here, factor, PX_DTYPE_NONE, px_tensor_device(grad), false, false));
  return px_mul_(grad, here);
}

// Multiplies each gradient by min(1, max_norm / (total + 1e-6)), without synchronizing with the
// device.
static px_status scale(px_tensor *const *grads, int64_t count, const px_tensor *total,
                       double max_norm) {
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) ratio = NULL;
  PX_SCOPED(px_tensor) factor = NULL;
  PX_TRY(px_add_scalar(&shifted, total, px_float(1e-6), px_int(1)));
  PX_TRY(px_reciprocal(&ratio, shifted));
  PX_TRY(px_mul_scalar(&factor, ratio, px_float(max_norm)));
  PX_SCOPED(px_tensor) one = NULL;
  PX_TRY(px_tensor_from_scalar(&one, px_float(1)));
  PX_TRY(px_clamp_max_(factor, one));
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int64_t i = 0; i < count && status == PX_OK; i++) status = scale_one(grads[i], factor);
  return px_launch_batch_end(status);
}

static px_status check_finite(const px_tensor *total, double type) {
  px_scalar norm;
  PX_TRY(px_tensor_item(&norm, total));
  PX_CHECK(
      isfinite(px_scalar_float(norm)), PX_RUNTIME,
      "The total norm of order %g%s for gradients from `parameters` is non-finite, so it "
      "cannot be clipped. To disable this error and scale the gradients by the non-finite norm "
      "anyway, set `error_if_nonfinite=False`",
      type, isfinite(type) && type == floor(type) ? ".0" : "");
  return PX_OK;
}

static px_status clamp_all(px_tensor *const *grads, int64_t count, double limit) {
  PX_SCOPED(px_tensor) min = NULL;
  PX_SCOPED(px_tensor) max = NULL;
  PX_TRY(px_tensor_from_scalar(&min, px_float(-limit)));
  PX_TRY(px_tensor_from_scalar(&max, px_float(limit)));
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int64_t i = 0; i < count && status == PX_OK; i++) status = px_clamp_(grads[i], min, max);
  return px_launch_batch_end(status);
}

// Operations on gradients, in order, unrecorded.
typedef struct clipping {
  px_tensor **total;        // receives the computed norm, or NULL
  double type;              // order of the norm
  bool finite;              // fail for a norm of inf or NaN
  const px_tensor *known;   // a given norm
  const double *max_total;  // maximum norm; NULL: no scaling
  const double *element;    // maximum absolute value; NULL: no clamping
} clipping;

static px_status join_and_check(const clipping *c, px_tensor *const *grads, int64_t count) {
  px_tensor **norms;
  int64_t none = 0;
  if (count == 0) return px_tensor_from_data(c->total, &(float){0}, 0, &none, PX_FLOAT32, px_cpu());
  PX_TRY(px_alloc((void **)&norms, (size_t)count * sizeof *norms));
  px_status status = join(c->total, grads, count, c->type, norms);
  if (status == PX_OK && c->finite) status = check_finite(*c->total, c->type);
  for (int64_t i = 0; i < count; i++) px_release(norms[i]);
  px_free(norms);
  return status;
}

static px_status clip_recorded(const clipping *c, px_tensor *const *grads, int64_t count) {
  if (c->total) PX_TRY(join_and_check(c, grads, count));
  if (c->max_total) PX_TRY(scale(grads, count, c->total ? *c->total : c->known, *c->max_total));
  return c->element ? clamp_all(grads, count, *c->element) : PX_OK;
}

static px_status clip(const clipping *c, px_tensor *const *grads, int64_t count) {
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = clip_recorded(c, grads, count);
  px_grad_set_enabled(was);
  return status;
}

static px_status clip_grads(const clipping *c, px_tensor *const *parameters, int64_t count) {
  px_tensor **grads;
  int64_t n = 0;
  PX_TRY(px__parameters_given(parameters, count));
  PX_TRY(px_alloc((void **)&grads, (size_t)(count ? count : 1) * sizeof *grads));
  px_status status = PX_OK;
  for (int64_t i = 0; i < count && status == PX_OK; i++) {
    status = px_tensor_get_grad(&grads[n], parameters[i]);
    if (grads[n]) n++;
  }
  if (status == PX_OK) status = clip(c, grads, n);
  while (n > 0) px_release(grads[--n]);
  px_free(grads);
  return status;
}

px_status px_clip_grad_norm(px_tensor **total, px_tensor *const *parameters, int64_t count,
                            double max_norm, double norm_type, bool error_if_nonfinite) {
  PX_GIVEN_N(parameters, count);
  PX_SCOPED(px_tensor) norm = NULL;
  clipping c = {
      .total = &norm, .type = norm_type, .finite = error_if_nonfinite, .max_total = &max_norm};
  PX_TRY(clip_grads(&c, parameters, count));
  if (total) *total = PX_MOVE(norm);
  return PX_OK;
}

px_status px_total_norm(px_tensor **out, px_tensor *const *tensors, int64_t count, double norm_type,
                        bool error_if_nonfinite) {
  PX_GIVEN(out);
  PX_GIVEN_N(tensors, count);
  PX_SCOPED(px_tensor) norm = NULL;
  PX_TRY(px__parameters_given(tensors, count));
  clipping c = {.total = &norm, .type = norm_type, .finite = error_if_nonfinite};
  PX_TRY(clip(&c, tensors, count));
  *out = PX_MOVE(norm);
  return PX_OK;
}

px_status px_clip_grads_with_norm(px_tensor *const *parameters, int64_t count, double max_norm,
                                  const px_tensor *total_norm) {
  PX_GIVEN_N(parameters, count);
  PX_GIVEN(total_norm);
  return clip_grads(&(clipping){.known = total_norm, .max_total = &max_norm}, parameters, count);
}

px_status px_clip_grad_value(px_tensor *const *parameters, int64_t count, double clip_value) {
  PX_GIVEN_N(parameters, count);
  return clip_grads(&(clipping){.element = &clip_value}, parameters, count);
}
