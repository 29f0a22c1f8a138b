// SPDX-License-Identifier: Apache-2.0
// Gradients of picking, joining and rearranging that are no formula.
#include "autograd/rules/backward.h"

#include "grad_functions.h"

// ---- x[i, j]

px_status px__grad_index(px__backward *b) {
  const px_value *a = b->args;
  const px_tensor *self = a[0].v.tensor;
  if (!(b->needs & 1) || !b->grads[0]) return PX_OK;
  return px_index_backward(&b->out[0], b->grads[0], px_tensor_sizes(self), px_tensor_ndim(self),
                           a[1].v.tensors, a[1].n, a[2].v.ints, a[2].n);
}

px_status px__grad_index_backward(px__backward *b) {
  const px_value *a = b->args;
  if (!(b->needs & 1) || !b->grads[0]) return PX_OK;
  return px_index(&b->out[0], b->grads[0], a[2].v.tensors, a[2].n, a[3].v.ints, a[3].n);
}

px_status px__grad_index_put(px__backward *b) {
  const px_value *a = b->args;
  px_tensor *grad = b->grads[0];
  PX_SCOPED(px_tensor) zero = NULL;
  if (!grad) return PX_OK;
  if (b->needs & 1 << 3)
    PX_TRY(px_index(&b->out[3], grad, a[1].v.tensors, a[1].n, a[2].v.ints, a[2].n));
  if (!(b->needs & 1)) return PX_OK;
  if (a[4].v.i) {
    b->out[0] = px_retain(grad);
    return PX_OK;
  }
  PX_TRY(px_zeros(&zero, NULL, 0, px_tensor_dtype(grad), px_tensor_device(grad), false, false));
  return px_index_put(&b->out[0], grad, a[1].v.tensors, a[1].n, a[2].v.ints, a[2].n, zero, false);
}

// ---- joining

static int wrapped(int64_t dim, int ndim) { return (int)(dim < 0 ? dim + ndim : dim); }

static px_status in_dtype(px_tensor **out, const px_tensor *part, const px_tensor *like) {
  return px_to(out, part, px_tensor_dtype(like), PX_DEVICE_NONE, false, false);
}

px_status px__grad_cat(px__backward *b) {
  px_value list = b->args[0];
  px_tensor *grad = b->grads[0];
  if (!grad) return PX_OK;
  int dim = wrapped(b->args[1].v.i, px_tensor_ndim(grad));
  int64_t at = 0;
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    PX_SCOPED(px_tensor) part = NULL;
    if (px_tensor_ndim(t) != px_tensor_ndim(grad)) continue;  // an empty one, joined with anything
    int64_t n = px_tensor_size(t, dim);
    PX_TRY(px_narrow(&part, grad, dim, at, n));
    PX_TRY(in_dtype(&b->out_lists[0][i], part, t));
    at += n;
  }
  return PX_OK;
}

px_status px__grad_stack(px__backward *b) {
  px_value list = b->args[0];
  px_tensor *grad = b->grads[0];
  if (!grad) return PX_OK;
  int dim = wrapped(b->args[1].v.i, px_tensor_ndim(grad));
  for (int i = 0; i < list.n; i++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_TRY(px_select(&part, grad, dim, i));
    PX_TRY(in_dtype(&b->out_lists[0][i], part, list.v.tensors[i]));
  }
  return PX_OK;
}

// ---- repeating and rearranging

// Folds the gradient to [repeats, size] pairs and sums over the repeats. The engine sums leading
// dimensions away.
px_status px__grad_repeat(px_tensor **out, const px_value *args, int count) {
  const px_value sizes = args[1], repeats = args[2];
  px_tensor *at = px_retain(args[0].v.tensor);
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

px_status px__grad_roll(px_tensor **out, const px_value *args, int count) {
  int64_t back[PX_MAX_DIMS];
  int n = args[1].n < PX_MAX_DIMS ? args[1].n : PX_MAX_DIMS;
  for (int i = 0; i < n; i++) back[i] = -args[1].v.ints[i];
  return px_roll(out, args[0].v.tensor, back, n, args[2].v.ints, args[2].n);
}

// ---- embedding

// (grad, input, padding_idx): looks the gradient's gradient up; the padding's rows got nothing.
px_status px__grad_embedding_again(px_tensor **out, const px_value *args, int count) {
  const px_tensor *grad = args[0].v.tensor, *input = args[1].v.tensor;
  if (args[2].kind == PX_ARG_NONE) return px_embedding(out, input, grad, NULL);
  int64_t padding = args[2].v.i < 0 ? args[2].v.i + px_tensor_size(grad, 0) : args[2].v.i;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) pads = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_TRY(px_embedding(&rows, input, grad, NULL));
  PX_TRY(px_eq_scalar(&pads, input, px_int(padding)));
  PX_TRY(px_unsqueeze(&mask, pads, -1));
  return px_masked_fill(out, rows, mask, px_int(0));
}
