// SPDX-License-Identifier: Apache-2.0
// Gradients of indexing, joining and rearranging that cannot be written as formulas.
#include "autograd/rules/backward.h"

#include "grad_functions.h"
#include "hidden/index.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

// ---- x[i, j]

PX_GRAD(index) {
  const px_tensor *self = args->self;
  px_value indices = args->indices, dims = args->dims;
  if (!args->d_self || !args->grad) return PX_OK;
  return px_index_backward(args->d_self, args->grad, px_tensor_sizes(self), px_tensor_ndim(self),
                           indices.v.tensors, indices.n, dims.v.ints, dims.n);
}

PX_GRAD(index_backward) {
  px_value indices = args->indices, dims = args->dims;
  if (!args->d_grad_output || !args->grad) return PX_OK;
  return px_index(args->d_grad_output, args->grad, indices.v.tensors, indices.n, dims.v.ints,
                  dims.n);
}

PX_GRAD(index_put) {
  px_value indices = args->indices, dims = args->dims;
  px_tensor *grad = args->grad;
  PX_SCOPED(px_tensor) zero = NULL;
  if (!grad) return PX_OK;
  if (args->d_values)
    PX_TRY(px_index(args->d_values, grad, indices.v.tensors, indices.n, dims.v.ints, dims.n));
  if (!args->d_self) return PX_OK;
  if (args->accumulate) {
    *args->d_self = px_retain(grad);
    return PX_OK;
  }
  PX_TRY(px_zeros(&zero, NULL, 0, px_tensor_dtype(grad), px_tensor_device(grad), false, false));
  return px_index_put(args->d_self, grad, indices.v.tensors, indices.n, dims.v.ints, dims.n, zero,
                      false);
}

// ---- joining

static int wrapped(int64_t dim, int ndim) { return (int)(dim < 0 ? dim + ndim : dim); }

static px_status in_dtype(px_tensor **out, const px_tensor *part, const px_tensor *like) {
  return px_to(out, part, px_tensor_dtype(like), PX_DEVICE_NONE, false, false);
}

PX_GRAD(cat) {
  px_value list = args->tensors;
  px_tensor *grad = args->grad;
  if (!grad) return PX_OK;
  int dim = wrapped(args->dim, px_tensor_ndim(grad));
  int64_t at = 0;
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    PX_SCOPED(px_tensor) part = NULL;
    if (px_tensor_ndim(t) != px_tensor_ndim(grad)) continue;  // legacy empty tensor
    int64_t n = px_tensor_size(t, dim);
    PX_TRY(px_narrow(&part, grad, dim, at, n));
    PX_TRY(in_dtype(&args->d_tensors[i], part, t));
    at += n;
  }
  return PX_OK;
}

PX_GRAD(stack) {
  px_value list = args->tensors;
  px_tensor *grad = args->grad;
  if (!grad) return PX_OK;
  int dim = wrapped(args->dim, px_tensor_ndim(grad));
  for (int i = 0; i < list.n; i++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_TRY(px_select(&part, grad, dim, i));
    PX_TRY(in_dtype(&args->d_tensors[i], part, list.v.tensors[i]));
  }
  return PX_OK;
}

PX_GRAD(vmap_join) {
  int n = args->samples.n;
  for (int i = 0; args->grad && i < n; i++)
    PX_TRY(px__vmap_sample(&args->d_samples[i], args->grad, i, args->level, n));
  return PX_OK;
}

// ---- repeating and rearranging

// Folds the gradient to [repeats, size] pairs and sums over the repeats. The engine sums leading
// dimensions away.
px_status px__grad_repeat(px_tensor **out, px_tensor *grad, px_value sizes, px_value repeats) {
  px_tensor *at = px_retain(grad);
  int lead = repeats.n - sizes.n;
  px_status status = PX_OK;
  // One dimension at a time, last first: [.., r * n, ..] becomes [.., r, n, ..], summed over r.
  for (int d = repeats.n - 1; d >= 0 && status == PX_OK; d--) {
    int64_t n = d < lead ? 1 : sizes.v.ints[d - lead], pair[2] = {repeats.v.ints[d], n}, over = d;
    PX_SCOPED(px_tensor) split = NULL;
    px_tensor *summed = NULL;
    if (repeats.v.ints[d] == 1 && d >= lead) continue;
    status = px_unflatten(&split, at, d, pair, 2);
    if (status == PX_OK && d < lead) {
      PX_SCOPED(px_tensor) flat = NULL;
      status = px_sum(&flat, split, &over, 1, false, PX_DTYPE_NONE);
      if (status == PX_OK) status = px_sum(&summed, flat, &over, 1, false, PX_DTYPE_NONE);
    } else if (status == PX_OK) {
      status = px_sum(&summed, split, &over, 1, false, PX_DTYPE_NONE);
    }
    if (status != PX_OK) break;
    px_release(at);
    at = summed;
  }
  if (status == PX_OK)
    *out = at;
  else
    px_release(at);
  return status;
}

px_status px__grad_roll(px_tensor **out, px_tensor *grad, px_value shifts, px_value dims) {
  int64_t *back;
  PX_TRY(px_alloc((void **)&back, (size_t)shifts.n * sizeof *back));
  for (int i = 0; i < shifts.n; i++) {
    int64_t size = dims.n ? px_tensor_size(grad, (int)dims.v.ints[i]) : px_tensor_numel(grad);
    back[i] = size ? -(shifts.v.ints[i] % size) : 0;
  }
  px_status status = px_roll(out, grad, back, shifts.n, dims.v.ints, dims.n);
  px_free(back);
  return status;
}
