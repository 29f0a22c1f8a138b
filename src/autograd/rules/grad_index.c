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

// ---- scatter_reduce

// Arguments of both gradients; src is scattered to `index`.
typedef struct reduction {
  px_tensor *grad, *self, *index, *src, *result;
  int64_t dim;
  bool include_self;
} reduction;

static px_status gather_at(px_tensor **out, const reduction *r, const px_tensor *t) {
  return px_gather(out, t, r->dim, r->index, false);
}
// amax and amin: equal extremes share the gradient evenly.
static px_status share_evenly(px_tensor **d_self, px_tensor **d_src, const reduction *r) {
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) best = NULL;
  PX_SCOPED(px_tensor) theirs = NULL;
  PX_SCOPED(px_tensor) equal = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) share = NULL;
  px_dtype dtype = px_tensor_dtype(r->grad);
  PX_TRY(px_eq(&equal, r->self, r->result));
  PX_TRY(px_to(&own, equal, dtype, PX_DEVICE_NONE, false, false));
  PX_TRY(gather_at(&best, r, r->result));
  px_release(equal), equal = NULL;
  PX_TRY(px_eq(&equal, r->src, best));
  PX_TRY(px_to(&theirs, equal, dtype, PX_DEVICE_NONE, false, false));
  PX_TRY(px_scatter_add(&count, own, r->dim, r->index, theirs));
  PX_TRY(px_div(&share, r->grad, count));
  if (d_self) PX_TRY(px_mul(d_self, own, share));
  if (!d_src) return PX_OK;
  PX_SCOPED(px_tensor) shares = NULL;
  PX_TRY(gather_at(&shares, r, share));
  return px_mul(d_src, theirs, shares);
}

// prod: the product of all other elements. For the only zero it is computed with 1 in its place.
// With several zeros it is 0. For nonzero elements it is the result divided by the element.
static px_status product_of_others(px_tensor **d_src, const reduction *r) {
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_SCOPED(px_tensor) zeros_at = NULL;
  PX_SCOPED(px_tensor) single = NULL;
  PX_SCOPED(px_tensor) alone = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) masked = NULL;
  PX_SCOPED(px_tensor) quotient = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) second = NULL;
  PX_TRY(px_eq_scalar(&zero, r->src, px_int(0)));
  PX_TRY(px_to(&number, zero, PX_INT64, PX_DEVICE_NONE, false, false));
  PX_TRY(px_zeros(&none, px_tensor_sizes(r->self), px_tensor_ndim(r->self), PX_INT64,
                  px_tensor_device(r->self), false, false));
  PX_TRY(px_scatter_add(&zeros, none, r->dim, r->index, number));
  PX_TRY(gather_at(&zeros_at, r, zeros));
  PX_TRY(px_eq_scalar(&single, zeros_at, px_int(1)));
  PX_TRY(px_logical_and(&alone, single, zero));
  PX_TRY(px_masked_fill(&others, r->src, alone, px_int(1)));
  PX_TRY(px_scatter_reduce(&product, r->self, r->dim, r->index, others, "prod", r->include_self));
  PX_TRY(px_mul(&scaled, r->grad, product));
  PX_TRY(gather_at(&first, r, scaled));
  px_release(scaled), scaled = NULL;
  PX_TRY(px_mul(&scaled, r->grad, r->result));
  PX_TRY(gather_at(&second, r, scaled));
  PX_TRY(px_masked_fill(&masked, r->src, zero, px_int(1)));
  PX_TRY(px_div(&quotient, second, masked));
  return px_where(d_src, alone, first, quotient);
}
static px_status share_product(px_tensor **d_self, px_tensor **d_src, const reduction *r) {
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  if (d_src) PX_TRY(product_of_others(d_src, r));
  if (!d_self) return PX_OK;
  PX_TRY(px_eq_scalar(&zero, r->self, px_int(0)));
  PX_TRY(px_masked_fill(&own, r->self, zero, px_int(1)));
  PX_TRY(px_scatter_reduce(&product, own, r->dim, r->index, r->src, "prod", r->include_self));
  PX_TRY(px_mul(&scaled, r->grad, product));
  return px_div(d_self, scaled, own);
}

// Mean: elements share the gradient evenly. Sum: each gets all of it.
static px_status share_sum(px_tensor **d_self, px_tensor **d_src, const reduction *r, bool mean) {
  PX_SCOPED(px_tensor) share = px_retain(r->grad);
  if (mean) {
    PX_SCOPED(px_tensor) none = NULL;
    PX_SCOPED(px_tensor) one = NULL;
    PX_SCOPED(px_tensor) count = NULL;
    px_device device = px_tensor_device(r->grad);
    PX_TRY(px_full(&none, px_tensor_sizes(r->grad), px_tensor_ndim(r->grad),
                   px_int(r->include_self), PX_INT64, device, false, false));
    PX_TRY(px_full(&one, NULL, 0, px_int(1), PX_INT64, device, false, false));
    PX_TRY(px_scatter_add(&count, none, r->dim, r->index, one));
    PX_TRY(px_clamp_min_(count, one));
    px_release(share), share = NULL;
    PX_TRY(px_div(&share, r->grad, count));
  }
  if (d_src) PX_TRY(gather_at(d_src, r, share));
  if (d_self) *d_self = PX_MOVE(share);
  return PX_OK;
}
PX_GRAD(scatter_reduce) {
  if (!args->grad) return PX_OK;
  reduction r = {args->grad,   args->self, args->index,       args->src,
                 args->result, args->dim,  args->include_self};
  PX_SCOPED(px_tensor) of_self = NULL;
  px_tensor **d_self = args->d_self ? &of_self : NULL;
  char kind = args->reduce[0];  // amax or amin, prod, mean or sum
  if (kind == 'a')
    PX_TRY(share_evenly(d_self, args->d_src, &r));
  else if (kind == 'p')
    PX_TRY(share_product(d_self, args->d_src, &r));
  else
    PX_TRY(share_sum(d_self, args->d_src, &r, kind == 'm'));
  if (!d_self) return PX_OK;
  if (!args->include_self)
    return px_scatter_value(args->d_self, of_self, args->dim, args->index, px_int(0));
  *args->d_self = PX_MOVE(of_self);
  return PX_OK;
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

// ---- embedding

// Looks up the gradient's gradient. Rows of the padding index are zero.
px_status px__grad_embedding_again(px_tensor **out, px_tensor *grad, px_tensor *input,
                                   px_value padding_idx) {
  if (padding_idx.kind == PX_ARG_NONE) return px_embedding(out, input, grad, NULL);
  int64_t padding = px_value_int(padding_idx);
  if (padding < 0) padding += px_tensor_size(grad, 0);
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) pads = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_TRY(px_embedding(&rows, input, grad, NULL));
  PX_TRY(px_eq_scalar(&pads, input, px_int(padding)));
  PX_TRY(px_unsqueeze(&mask, pads, -1));
  return px_masked_fill(out, rows, mask, px_int(0));
}

// ---- embedding bags

// Expands the gradient of each bag to the rows of its indices.
static px_status bag_rows(px_tensor **out, px_tensor *grad, px_tensor *begins, int64_t length) {
  int64_t count = px_tensor_size(grad, 0);
  PX_SCOPED(px_tensor) from = NULL;
  PX_SCOPED(px_tensor) to = NULL;
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_SCOPED(px_tensor) of = NULL;
  PX_TRY(px_narrow(&from, begins, 0, 0, count));
  PX_TRY(px_narrow(&to, begins, 0, 1, count));
  PX_TRY(px_sub(&sizes, to, from, px_int(1)));
  PX_TRY(px_repeat_interleave_counts(&of, sizes, &length));
  return px_index_select(out, grad, 0, of);
}
static px_status bag_factors(px_tensor **out, px_tensor *rows, px_tensor *indices,
                             px_tensor *weight, int64_t padding) {
  const int64_t last = -1;
  PX_SCOPED(px_tensor) picked = NULL;
  PX_SCOPED(px_tensor) products = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) pads = NULL;
  PX_TRY(px_embedding(&picked, indices, weight, NULL));
  PX_TRY(px_mul(&products, picked, rows));
  PX_TRY(px_sum(&sums, products, &last, 1, false, PX_DTYPE_NONE));
  PX_TRY(px_eq_scalar(&pads, indices, px_int(padding)));
  return px_masked_fill(out, sums, pads, px_int(0));
}
PX_GRAD(bag_sums) {
  px_tensor *indices = args->indices, *weight = args->weight;
  int64_t padding = args->padding;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  if (!args->grad) return PX_OK;
  PX_TRY(bag_rows(&rows, args->grad, args->begins, px_tensor_numel(indices)));
  if (args->d_factors) PX_TRY(bag_factors(args->d_factors, rows, indices, weight, padding));
  if (!args->d_weight) return PX_OK;
  if (args->factors) {
    PX_TRY(px_unsqueeze(&column, args->factors, 1));
    PX_TRY(px_mul(&scaled, rows, column));
  }
  return px_embedding_backward(args->d_weight, scaled ? scaled : rows, px_tensor_sizes(weight), 2,
                               indices, padding < 0 ? NULL : &padding);
}

// Empty bags have the index -1 and no gradient.
px_status px__grad_bag_tops(px_tensor **out, px_tensor *grad, px_tensor *maxima, px_value sizes) {
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) counted = NULL;
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_TRY(px_lt_scalar(&none, maxima, px_int(0)));
  PX_TRY(px_masked_fill(&counted, grad, none, px_int(0)));
  PX_TRY(px_masked_fill(&at, maxima, none, px_int(0)));
  PX_TRY(px_zeros(&zeros, sizes.v.ints, sizes.n, px_tensor_dtype(grad), px_tensor_device(grad),
                  false, false));
  return px_scatter_add(out, zeros, 0, at, counted);
}
