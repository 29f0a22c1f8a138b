// SPDX-License-Identifier: Apache-2.0
// Run functions of normalisations and dropout.
#include "formulas.h"
#include "hidden/norm.h"
#include "hidden/random.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "phlox/vmap.h"
#include "run_functions/norm.h"

#include <stdio.h>

// ---- batch_norm

// Empty batches have no statistics.
static px_status check_element(const px_tensor *parameter) {
  char text[128];
  PX_CHECK(!parameter || parameter->numel, PX_INDEX,
           "select(): index 0 out of range for tensor of size %s at dimension 0",
           px__size_text(text, sizeof text, parameter));
  return PX_OK;
}
static px_status scale_empty(px_call *call, const px__batch_norm_args *args) {
  PX_TRY(check_element(args->weight));
  PX_TRY(check_element(args->bias));
  return px__formula_batch_norm_of_none(
      call->results, (px_value[]){PX_T(args->input), PX_T(args->weight), PX_T(args->bias)});
}
// Updates running statistics without recording, and without a new version: a graph that read them
// is not stale, as in PyTorch.
static px_status update_running(px_tensor *running, const px_tensor *current, double momentum) {
  PX_SCOPED(px_tensor) unversioned = NULL;
  if (!running) return PX_OK;
  if (!px__is_batched(running)) PX_TRY(px_tensor_alias(&unversioned, running));
  if (px__hooks) px__hooks->suspend(true);
  px_status status = px_running_average_(unversioned ? unversioned : running, current, momentum);
  if (px__hooks) px__hooks->suspend(false);
  return status;
}
// Fails if the input is batched and running statistics, written in place, are not.
static px_status check_running(const px_tensor *x, const px_tensor *running, bool training) {
  PX_CHECK(!training || !running || px_tensor_batch_level(running) >= px_tensor_batch_level(x),
           PX_RUNTIME,
           "Batch norm got a batched tensor as input while the running_mean or running_var, which "
           "will be updated in place, were not batched.\nIf you are using a module and do not need "
           "eval mode, please set `track_running_stats` to be False.If you are using a prebuilt "
           "module and do not need eval mode, please see the functorch website for resources on "
           "how to patch your module to work with vmap");
  return PX_OK;
}
PX_RUN(batch_norm) {
  const px_tensor *x = args->input;
  px_tensor *mean = args->running_mean, *var = args->running_var;
  bool training = args->training;
  double momentum = args->momentum;
  PX_TRY(check_running(x, mean, training));
  PX_TRY(check_running(x, var, training));
  if (training && x->ndim >= 2 && x->sizes[1] && x->numel == x->sizes[1]) {
    char text[128];
    PX_FAIL(PX_VALUE,
            "Expected more than 1 value per channel when training, got input size torch.Size(%s)",
            px__size_text(text, sizeof text, x));
  }
  if (!x->numel) return scale_empty(call, args);
  PX_SCOPED(px_tensor) save_mean = NULL;
  PX_SCOPED(px_tensor) invstd = NULL;
  PX_SCOPED(px_tensor) variance = NULL;
  // In training the running statistics are output only, so the tensors saved for the gradient stay
  // unchanged.
  PX_TRY(px_native_batch_norm(&call->results[0], &save_mean, &invstd, &variance, x, args->weight,
                              args->bias, training ? NULL : mean, training ? NULL : var, training,
                              args->eps));
  if (!training || !save_mean->numel) return PX_OK;
  PX_TRY(update_running(mean, save_mean, momentum));
  return update_running(var, variance, momentum);
}

// Returns statistics without gradient. Their dtype is that of the parameters on the CPU, and the
// compute dtype on devices, as in PyTorch.
static px_status detach_to(px_tensor **out, const px_tensor *t, px_dtype dtype) {
  PX_SCOPED(px_tensor) detached = NULL;
  PX_TRY(px_tensor_detach(&detached, t));
  return px__tensor_to(out, detached, dtype, PX_DEVICE_NONE);
}
PX_RUN(layer_norm_with_statistics) {
  px_dtype dtype = (px_dtype)(args->weight ? args->weight : args->input)->dtype;
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) rstd = NULL;
  PX_TRY(px_native_layer_norm(&call->results[0], &mean, &rstd, args->input,
                              args->normalized_shape.v.ints, args->normalized_shape.n, args->weight,
                              args->bias, args->eps));
  if (call->device.type != PX_CPU) dtype = (px_dtype)mean->dtype;
  PX_TRY(detach_to(&call->results[1], mean, dtype));
  return detach_to(&call->results[2], rstd, dtype);
}
PX_RUN(batch_norm_with_statistics) {
  px_tensor *mean = args->running_mean, *var = args->running_var;
  bool training = args->training;
  px_dtype dtype = (px_dtype)(args->weight ? args->weight : args->input)->dtype;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) deviations = NULL;
  PX_SCOPED(px_tensor) variance = NULL;
  PX_TRY(check_running(args->input, mean, training));
  PX_TRY(check_running(args->input, var, training));
  PX_TRY(px_native_batch_norm(&call->results[0], &means, &deviations, &variance, args->input,
                              args->weight, args->bias, training ? NULL : mean,
                              training ? NULL : var, training, args->eps));
  if (call->device.type != PX_CPU) dtype = (px_dtype)means->dtype;
  PX_TRY(detach_to(&call->results[1], means, dtype));
  PX_TRY(detach_to(&call->results[2], deviations, dtype));
  if (!training || !means->numel) return PX_OK;
  PX_TRY(update_running(mean, means, args->momentum));
  return update_running(var, variance, args->momentum);
}

// ---- cosine similarity

// Expands t to all dimensions of the broadcast shape, and to its size in `dim`. Other sizes
// broadcast later.
static px_status expand_along(px_tensor **out, const px_tensor *t, int ndim, const int64_t *sizes,
                              int dim) {
  int64_t own[PX_MAX_DIMS];
  int lead = ndim - t->ndim;
  for (int d = 0; d < ndim; d++) own[d] = d == dim ? sizes[d] : d < lead ? 1 : t->sizes[d - lead];
  if (lead || (ndim && own[dim] != t->sizes[dim])) return px_expand(out, t, own, ndim);
  *out = px_retain((px_tensor *)t);
  return PX_OK;
}
PX_RUN(cosine_similarity) {
  const px_tensor *a = args->x1, *b = args->x2;
  int64_t sizes[PX_MAX_DIMS];
  int ndim, dim;
  PX_SCOPED(px_tensor) x1 = NULL;
  PX_SCOPED(px_tensor) x2 = NULL;
  PX_TRY(px__broadcast(&ndim, sizes, a->ndim, a->sizes, b->ndim, b->sizes));
  PX_TRY(px__wrap_dim(&dim, args->dim, ndim));
  PX_TRY(expand_along(&x1, a, ndim, sizes, dim));
  PX_TRY(expand_along(&x2, b, ndim, sizes, dim));
  return px_cosine_along(&call->results[0], x1, x2, args->dim, args->eps);
}

// ---- group_norm

static px_status check_group_sizes(const px_tensor *x, int64_t groups) {
  int64_t each = px__sizes_product(x->sizes + 2, x->ndim - 2);
  char text[128];
  PX_CHECK(x->sizes[1] > 0, PX_RUNTIME, "Expected number of channels to be greater than 0, got 0");
  PX_CHECK(each > 0, PX_RUNTIME, "Expected HxW to be greater than 0, got 0");
  PX_CHECK(x->sizes[1] % groups == 0, PX_RUNTIME,
           "Expected number of channels in input to be divisible by num_groups, but got input of "
           "shape %s and num_groups=%lld",
           px__size_text(text, sizeof text, x), (long long)groups);
  return PX_OK;
}
// A single value has no deviation. PyTorch's text has the sizes of all groups.
static px_status check_group_values(const px_tensor *x, int64_t groups) {
  int64_t sizes[PX_MAX_DIMS];
  char text[128];
  px__sizes_copy(sizes, x->sizes, x->ndim);
  sizes[0] = px__product(x->sizes[0], x->sizes[1]) / groups, sizes[1] = groups;
  PX_CHECK(!x->numel || x->numel != groups, PX_VALUE,
           "Expected more than 1 value per channel when training, got input size %s",
           px__sizes_text(text, sizeof text, x->ndim, sizes));
  return PX_OK;
}
// True if the kernel supports the arguments: no batched tensors, and one dtype.
static bool kernel_supports(const px_tensor *x, const px_tensor *w, const px_tensor *b) {
  const px_tensor *all[] = {x, w, b};
  for (int i = 0; i < 3; i++)
    if (all[i] && (px__is_batched(all[i]) || all[i]->dtype != x->dtype)) return false;
  return x->numel > 0;
}
static px_status call_kernel(px_call *call, const px__group_norm_args *args) {
  PX_SCOPED(px_tensor) mean = NULL;
  PX_SCOPED(px_tensor) rstd = NULL;
  return px_grouped_norm(&call->results[0], &mean, &rstd, args->input, args->num_groups,
                         args->weight, args->bias, args->eps);
}
static px_status check_mixed(const px_tensor *x, const px_tensor *parameter) {
  bool fits = !parameter || (parameter->dtype == PX_FLOAT32 && px__item(x) == 2);
  PX_CHECK(fits, PX_RUNTIME, "mixed dtype (CPU): expect parameter to have scalar type of Float");
  return PX_OK;
}
PX_RUN(group_norm) {
  const px_tensor *x = args->input, *w = args->weight, *b = args->bias;
  PX_TRY(check_group_sizes(x, args->num_groups));
  PX_TRY(check_group_values(x, args->num_groups));
  if ((w && w->dtype != x->dtype) || (b && b->dtype != x->dtype)) {
    PX_TRY(check_mixed(x, w));
    PX_TRY(check_mixed(x, b));
    return px__formula_group_norm_of_mixed(call->results, call->args);
  }
  return kernel_supports(x, w, b) ? call_kernel(call, args)
                                  : px__formula_group_norm_of_rows(call->results, call->args);
}

// ---- dropout

// Elements per thread of PyTorch's kernel: 16 bytes' worth, halved until it divides numel. 1 if x
// has gaps, because the mask then has other strides.
static int64_t lanes_of(const px_tensor *x, const px_tensor *mask) {
  int64_t lanes = 16 / (int64_t)px_dtype_size((px_dtype)x->dtype);
  for (int d = 0; d < x->ndim; d++)
    if (x->sizes[d] > 1 && x->strides[d] != mask->strides[d]) return 1;
  while (x->numel % lanes) lanes /= 2;
  return lanes;
}
// Lanes are adjacent in memory, so with several lanes the mask is drawn as one row.
static px_status draw_mask(px_tensor **out, const px_tensor *x, double keep) {
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  int64_t one = 1;
  px_dtype dtype = px_dtype_to_real((px_dtype)x->dtype);
  PX_TRY(px_empty_like(&mask, x, dtype, PX_DEVICE_NONE, false, false, NULL));
  int64_t lanes = !px_tensor_is_cuda(x) ? 1 : lanes_of(x, mask);
  if (lanes > 1) PX_TRY(px_as_strided(&row, mask, &x->numel, 1, &one, 1, NULL));
  PX_TRY(px_dropout_mask_(row ? row : mask, keep, lanes, NULL));
  *out = PX_MOVE(mask);
  return PX_OK;
}
PX_RUN(dropout) {
  px_tensor *x = args->input;
  double p = args->p;
  if (!args->training || p == 0 || x->numel == 0) {
    call->results[0] = px_retain(x);
    return PX_OK;
  }
  if (p == 1) return px_mul_scalar(&call->results[0], x, px_float(0));
  PX_SCOPED(px_tensor) mask = NULL;
  PX_TRY(draw_mask(&mask, x, 1 - p));
  return px_mul(&call->results[0], x, mask);
}
