// SPDX-License-Identifier: Apache-2.0
// Pruning masks: remove the elements, or channels, of least magnitude, or random ones.
#include "formulas.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/random.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/sort.h"
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

static px_status flat_elements(px_tensor **out, const px_prune *how, const px_tensor *scores) {
  PX_SCOPED(px_tensor) numbers = NULL;
  int64_t count;
  PX_TRY(count_of(&count, how, px_tensor_numel(scores)));
  if (how->random)
    PX_TRY(px_rand_like(&numbers, scores, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  else
    PX_TRY(px_abs(&numbers, scores));
  return px__formula_extreme_places(out,
                                    (px_value[]){PX_T(numbers), PX_I(count), PX_B(how->random)});
}

static px_status without_elements(px_tensor **out, const px_prune *how, const px_tensor *scores,
                                  const px_tensor *mask) {
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  int64_t count;
  PX_TRY(count_of(&count, how, px_tensor_numel(scores)));
  PX_TRY(px_clone(&left, mask, "contiguous_format"));
  PX_TRY(px_view(&flat, left, (int64_t[]){-1}, 1));
  if (count) PX_TRY(flat_elements(&indices, how, scores));
  if (count) PX_TRY(px_index_fill_(flat, 0, indices, px_int(0)));
  *out = PX_MOVE(left);
  return PX_OK;
}

// Indices of randomly kept channels.
static px_status random_channels(px_tensor **out, int64_t size, int64_t count, px_device device) {
  PX_SCOPED(px_tensor) chances = NULL;
  PX_SCOPED(px_tensor) places = NULL;
  PX_TRY(px_rand(&chances, &size, 1, NULL, PX_DTYPE_NONE, px_cpu(), false, false));
  PX_TRY(px__formula_places_above(&places, (px_value[]){PX_T(chances), PX_I(count)}));
  return px_to(out, places, PX_DTYPE_NONE, device, false, false);
}

// Indices of the channels with the largest norms.
static px_status largest_channels(px_tensor **out, const px_prune *how, const px_tensor *scores,
                                  int dim, int64_t kept) {
  PX_SCOPED(px_tensor) norms = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  int64_t others[PX_MAX_DIMS];
  int count = 0;
  for (int d = 0; d < px_tensor_ndim(scores); d++)
    if (d != dim) others[count++] = d;
  PX_TRY(px_norm(&norms, scores, px_float(how->p), others, count, false, PX_DTYPE_NONE));
  return px_topk(&values, out, norms, kept, 0, true, true);
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
  PX_SCOPED(px_tensor) left = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) before = NULL;
  int64_t count;
  PX_TRY(check_dim(scores, how->dim));
  int dim = how->dim < 0 ? how->dim + px_tensor_ndim(scores) : how->dim;
  int64_t size = px_tensor_size(scores, dim);
  PX_TRY(count_of(&count, how, size));
  if (!count) return px_detach(out, mask);
  if (how->random)
    PX_TRY(random_channels(&kept, size, count, px_tensor_device(scores)));
  else
    PX_TRY(largest_channels(&kept, how, scores, dim, size - count));
  PX_TRY(px_zeros_like(&left, scores, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  PX_TRY(px_index_fill_(left, dim, kept, px_int(1)));
  PX_TRY(px_to(&before, mask, px_tensor_dtype(left), PX_DEVICE_NONE, false, false));
  PX_TRY(px_mul_(left, before));
  *out = PX_MOVE(left);
  return PX_OK;
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
