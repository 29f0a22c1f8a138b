// SPDX-License-Identifier: Apache-2.0
// Pruning masks: remove the elements, or channels, of least magnitude, or random ones.
#include "formulas.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/random.h"
#include "phlox/ops/view.h"

#include <math.h>

// Number of items to prune out of `size`.
static px_status count_of(int64_t *out, const px_prune *how, int64_t size) {
  if (!how->share) {
    PX_CHECK(how->amount <= (double)size, PX_VALUE,
             "amount=%lld should be smaller than the number of parameters to prune=%lld",
             (long long)how->amount, (long long)size);
    return *out = (int64_t)how->amount, PX_OK;
  }
  *out = (int64_t)nearbyint(how->amount * (double)size);
  return PX_OK;
}

static px_status without_elements(px_tensor **out, const px_prune *how, const px_tensor *scores,
                                  const px_tensor *mask) {
  int64_t count;
  PX_TRY(count_of(&count, how, px_tensor_numel(scores)));
  return px__formula_pruned_elements(
      out, (px_value[]){PX_T(scores), PX_T(mask), PX_I(count), PX_B(how->random)});
}

// Indices of randomly kept channels.
static px_status random_channels(px_tensor **out, int64_t size, int64_t count,
                                 const px_tensor *scores) {
  PX_SCOPED(px_tensor) chances = NULL;
  PX_TRY(px_rand(&chances, &size, 1, NULL, PX_DTYPE_NONE, px_cpu(), false, false));
  return px__formula_places_above(out, (px_value[]){PX_T(chances), PX_I(count), PX_T(scores)});
}

static px_status check_dim(const px_tensor *scores, int dim) {
  char text[256];
  int ndim = px_tensor_ndim(scores);
  px__comma_text(text, sizeof text, ndim, px_tensor_sizes(scores));
  PX_CHECK(ndim > 1, PX_VALUE,
           "Structured pruning can only be applied to multidimensional tensors. Found tensor of "
           "shape torch.Size([%s]) with %d dims",
           text, ndim);
  PX_CHECK(dim < ndim, PX_INDEX, "Invalid index %d for tensor of size torch.Size([%s])", dim, text);
  PX_CHECK(dim >= -ndim, PX_INDEX, "Index is out of bounds for tensor with dimensions %d", ndim);
  return PX_OK;
}

static px_status without_channels(px_tensor **out, const px_prune *how, const px_tensor *scores,
                                  const px_tensor *mask) {
  PX_SCOPED(px_tensor) kept = NULL;
  int64_t count;
  PX_TRY(check_dim(scores, how->dim));
  int dim = how->dim < 0 ? how->dim + px_tensor_ndim(scores) : how->dim;
  int64_t size = px_tensor_size(scores, dim);
  PX_TRY(count_of(&count, how, size));
  if (!count) return px_detach(out, mask);
  if (how->random)
    PX_TRY(random_channels(&kept, size, count, scores));
  else
    PX_TRY(px__formula_largest_channels(
        &kept, (px_value[]){PX_T(scores), PX_S(px_float(how->p)), PX_I(dim), PX_I(size - count)}));
  return px__formula_mask_of_channels(
      out, (px_value[]){PX_T(scores), PX_T(mask), PX_T(kept), PX_I(dim)});
}

px_status px_prune_mask(px_tensor **out, const px_tensor *scores, const px_tensor *mask,
                        const px_prune *how) {
  PX_GIVEN(out);
  PX_GIVEN(scores);
  PX_GIVEN(mask);
  PX_GIVEN(how);
  PX_CHECK(how->amount >= 0 && (!how->share || how->amount <= 1), PX_VALUE,
           "amount=%g should either be a float in the range [0, 1] or a non-negative integer",
           how->amount);
  bool recording = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = how->channels ? without_channels(out, how, scores, mask)
                                   : without_elements(out, how, scores, mask);
  px_grad_set_enabled(recording);
  return status;
}
