// SPDX-License-Identifier: Apache-2.0
// Run functions of normalisations and dropout.
#include "hidden/norm.h"
#include "hidden/random.h"
#include "ops/core/run.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"
#include "phlox/vmap.h"
#include "run_functions/norm.h"

#include <stdio.h>

// ---- batch_norm

// Updates running statistics without recording, and without a new version: a graph that read them
// is not stale, as in PyTorch.
PX_RUN(_update_running) {
  px_tensor *self = args->self;
  PX_SCOPED(px_tensor) unversioned = NULL;
  if (!px__is_batched(self)) PX_TRY(px_tensor_alias(&unversioned, self));
  if (px__hooks) px__hooks->suspend(true);
  px_status status =
      px_running_average_(unversioned ? unversioned : self, args->current, args->momentum);
  if (px__hooks) px__hooks->suspend(false);
  if (status == PX_OK) call->results[0] = px_retain(self);
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
static px_status check_both(const px_tensor *x, const px_tensor *mean, const px_tensor *var,
                            bool training) {
  PX_TRY(check_running(x, mean, training));
  return check_running(x, var, training);
}
PX_RUN(batch_norm) {
  return check_both(args->input, args->running_mean, args->running_var, args->training);
}
PX_RUN(batch_norm_with_statistics) {
  return check_both(args->input, args->running_mean, args->running_var, args->training);
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
static px_status check_mixed(const px_tensor *x, const px_tensor *parameter) {
  bool fits = !parameter || (parameter->dtype == PX_FLOAT32 && px__item(x) == 2);
  PX_CHECK(fits, PX_RUNTIME, "mixed dtype (CPU): expect parameter to have scalar type of Float");
  return PX_OK;
}
PX_RUN(group_norm) {
  const px_tensor *x = args->input, *w = args->weight, *b = args->bias;
  PX_TRY(check_group_sizes(x, args->num_groups));
  PX_TRY(check_group_values(x, args->num_groups));
  if ((!w || w->dtype == x->dtype) && (!b || b->dtype == x->dtype)) return PX_OK;
  PX_TRY(check_mixed(x, w));
  return check_mixed(x, b);
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
PX_RUN(_dropout_mask) {
  const px_tensor *x = args->like;
  PX_SCOPED(px_tensor) row = NULL;
  int64_t one = 1;
  px_dtype dtype = px_dtype_to_real((px_dtype)x->dtype);
  PX_TRY(px_empty_like(&call->results[0], x, dtype, PX_DEVICE_NONE, false, false, NULL));
  px_tensor *mask = call->results[0];
  int64_t lanes = !px_tensor_is_cuda(x) ? 1 : lanes_of(x, mask);
  if (lanes > 1) PX_TRY(px_as_strided(&row, mask, &x->numel, 1, &one, 1, NULL));
  return px_dropout_mask_(row ? row : mask, args->keep, lanes, NULL);
}
