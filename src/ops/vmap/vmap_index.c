// SPDX-License-Identifier: Apache-2.0
// vmap: batching rules of indexing. A batch dimension of self alone is a dimension without an
// index. If an index tensor is batched too, the batch dimension is indexed by an arange.
#include "vmap_rules/factory.h"
#include "vmap_rules/index.h"
#include "vmap_rules/arithmetic.h"
#include "call/vmap.h"
#include "hidden/index.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

// ---- advanced indexing by several index tensors

typedef struct indexing {
  px_tensor *made[PX_MAX_DIMS + 1];
  int64_t dims[PX_MAX_DIMS + 1];
  int count;  // of index tensors, perhaps with the batch index
  int taken;  // indexed dimensions of a sample
  int ndim;   // of the broadcast indices of a sample
  // Permutation from the dimensions of the physical result to batch-first order: `moved` dimensions
  // starting at `from` move to `to`.
  int64_t from[PX_MAX_DIMS], to[PX_MAX_DIMS];
  int moved;
} indexing;
static void drop(indexing *p) {
  for (int i = 0; i < p->count; i++) px_release(p->made[i]);
}

static bool is_mask(const px_tensor *t) { return t->dtype == PX_BOOL || t->dtype == PX_UINT8; }
static bool any_mask(px_value indices) {
  for (int i = 0; i < indices.n; i++)
    if (is_mask(indices.v.tensors[i])) return true;
  return false;
}
static bool any_mapped(const px__vmap_call *b, px_value indices) {
  for (int i = 0; i < indices.n; i++)
    if (px__is_mapped(b, indices.v.tensors[i])) return true;
  return false;
}

static void move(indexing *p, int64_t from, int64_t to, int count) {
  p->moved = from == to ? 0 : count;
  for (int i = 0; i < p->moved; i++) p->from[i] = from + i, p->to[i] = to + i;
}

// Batch index: an arange over the batch, with `ndim` dimensions of size 1 after it.
static px_status batch_arange(px_tensor **out, const px__vmap_call *b, const px_tensor *like,
                              int ndim) {
  int64_t sizes[PX_MAX_DIMS] = {b->size};
  PX_SCOPED(px_tensor) line = NULL;
  PX_TRY(px__check_ndim((int64_t)ndim + 1));
  for (int d = 0; d < ndim; d++) sizes[1 + d] = 1;
  PX_TRY(px_arange(&line, px_int(0), px_int(b->size), px_int(1), PX_INT64, px__tensor_device(like),
                   false, false));
  return px_view(out, line, sizes, 1 + ndim);
}

// A mask counts as one 1-d index and indexes as many dimensions as it has.
static bool measure(indexing *p, px_value indices, px_value dims) {
  bool adjacent = true;
  for (int i = 0; i < indices.n; i++) {
    const px_tensor *t = indices.v.tensors[i];
    int ndim = is_mask(t) ? 1 : t->ndim;
    if (ndim > p->ndim) p->ndim = ndim;
    adjacent &= i == 0 || dims.v.ints[i] == dims.v.ints[0] + p->taken;
    p->taken += is_mask(t) ? t->ndim : 1;
  }
  return adjacent;
}

// Sets up the indices for a batched self, whose samples have `ndim` dimensions.
static px_status start(indexing *p, const px__vmap_call *b, const px_tensor *self, int ndim,
                       px_value indices, px_value dims) {
  bool mapped = any_mapped(b, indices);
  int dim;
  *p = (indexing){.count = 0};
  PX_CHECK(indices.n == dims.n, PX_VALUE, "index(): expected a dimension for each index tensor");
  bool adjacent = measure(p, indices, dims);
  if (mapped) PX_TRY(batch_arange(&p->made[p->count++], b, self, p->ndim));
  for (int i = 0; i < indices.n; i++) {
    PX_TRY(px__wrap_dim(&dim, dims.v.ints[i], ndim));
    p->dims[p->count] = dim + 1;
    PX_TRY(px__vmap_physical(&p->made[p->count++], b, indices.v.tensors[i], p->ndim));
  }
  if (mapped && adjacent) move(p, 1, p->dims[1], p->ndim);  // [batch, indices, rest]
  if (!mapped && !adjacent) move(p, p->ndim, 0, 1);         // [indices, batch, rest]
  return PX_OK;
}

// False for a mask together with a batched index, and for 0-dim masks.
static bool has_rule(const px__vmap_call *b, px_value indices) {
  for (int i = 0; i < indices.n; i++) {
    const px_tensor *t = indices.v.tensors[i];
    if (is_mask(t) && (t->ndim == 0 || any_mapped(b, indices))) return false;
  }
  return indices.n > 0 && indices.n < PX_MAX_DIMS;
}

static px_status refuse_masks(const px__vmap_call *b, px_value indices) {
  PX_CHECK(!(any_mask(indices) && any_mapped(b, indices)), PX_RUNTIME,
           "vmap: We do not support batching operators that can support dynamic shape. Attempting "
           "to batch over indexing with a boolean mask.");
  return PX_OK;
}

static px_status index_physical(px_tensor **out, const indexing *p, const px_tensor *batched) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_index(&made, batched, p->made, p->count, p->dims, p->count));
  *out = NULL;
  if (p->moved) return px_movedim(out, made, p->from, p->moved, p->to, p->moved);
  *out = PX_MOVE(made);
  return PX_OK;
}

PX_VMAP_RULE(index) {
  PX_TRY(refuse_masks(b, args->indices));
  if (!has_rule(b, args->indices)) return px__vmap_loop(b, false);
  indexing p;
  PX_SCOPED(px_tensor) batched = NULL;
  px_tensor *made = NULL;
  px_status status = px__vmap_ensure_batch_dim(&batched, b, args->self);
  p.count = 0;
  if (status == PX_OK)
    status = start(&p, b, args->self, args->self->ndim, args->indices, args->dims);
  if (status == PX_OK) status = index_physical(&made, &p, batched);
  drop(&p);
  PX_TRY(status);
  return px__vmap_set_result(b, 0, made);
}

// Permutes values to the layout of the physical result. `ndim`: dimensions of a sample's values.
static px_status physical_values(px_tensor **out, const indexing *p, const px__vmap_call *b,
                                 px_tensor *values, int ndim) {
  int64_t sizes[PX_MAX_DIMS + 1];
  PX_SCOPED(px_tensor) aligned = NULL;
  PX_SCOPED(px_tensor) batched = NULL;
  PX_TRY(px__vmap_physical(&aligned, b, values, ndim));
  *out = NULL;
  int missing = ndim + 1 - aligned->ndim;
  for (int d = 0; d < missing; d++) sizes[d] = 1;
  px__sizes_copy(sizes + (missing > 0 ? missing : 0), aligned->sizes, aligned->ndim);
  if (missing > 0)
    PX_TRY(px_view(&batched, aligned, sizes, ndim + 1));
  else
    batched = px_retain(aligned);
  if (p->moved) return px_movedim(out, batched, p->to, p->moved, p->from, p->moved);
  *out = PX_MOVE(batched);
  return PX_OK;
}

static px_status put_values(px__vmap_call *b, const px__index_put_vmap_args *args,
                            const indexing *p) {
  PX_SCOPED(px_tensor) batched = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  px_tensor *made = NULL;
  int picked = args->self->ndim - p->taken + p->ndim;
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, args->self));
  PX_TRY(physical_values(&values, p, b, args->values, picked));
  if (b->call->mode == PX_CALL_INPLACE)
    PX_TRY(px_index_put_(batched, p->made, p->count, p->dims, p->count, values, args->accumulate));
  else
    PX_TRY(px_index_put(&made, batched, p->made, p->count, p->dims, p->count, values,
                        args->accumulate));
  return px__vmap_set_result(b, 0, made);
}
// Aligns the value with the physical tensor and converts it to self's dtype and device.
static px_status aligned_value(px_tensor **out, const px__vmap_call *b, px_tensor *value,
                               const px_tensor *self, int ndim) {
  PX_SCOPED(px_tensor) aligned = NULL;
  PX_TRY(px__vmap_physical(&aligned, b, value, ndim));
  return px_to(out, aligned, (px_dtype)self->dtype, px__tensor_device(self), false, false);
}

static px_status set_filled(px__vmap_call *b, px_tensor *self, px_tensor *made_take) {
  PX_SCOPED(px_tensor) made = made_take;
  if (b->call->mode != PX_CALL_INPLACE) return px__vmap_set_result(b, 0, PX_MOVE(made));
  PX_TRY(px_copy_(self->physical, made, false));
  return px__vmap_set_result(b, 0, NULL);
}

// A mask per sample selects different numbers of elements, but one number fills all of them.
static bool is_masked_fill(const px__vmap_call *b, const px__index_put_vmap_args *args) {
  return args->indices.n == 1 && any_mask(args->indices) && any_mapped(b, args->indices) &&
         args->values->ndim == 0 && !args->accumulate;
}
// The physical mask with dimensions of size 1 for those of self without an index.
static px_status mask_over(px_tensor **out, const px__vmap_call *b, const px_tensor *self,
                           px_tensor *mask, int64_t given) {
  int dim;
  char texts[2][256];
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  PX_SCOPED(px_tensor) batched = NULL;
  PX_TRY(px__wrap_dim(&dim, given, self->ndim + (mask->ndim == 0)));
  PX_CHECK(dim + mask->ndim <= self->ndim, PX_INDEX, "too many indices for tensor of dimension %d",
           self->ndim);
  for (int d = 0; d < self->ndim; d++) sizes[1 + d] = 1;
  for (int d = 0; d < mask->ndim; d++) {
    PX_CHECK(mask->sizes[d] == self->sizes[dim + d], PX_INDEX,
             "The shape of the mask %s at index %d does not match the shape of the indexed tensor "
             "%s at index %d",
             px__sizes_text(texts[0], sizeof texts[0], mask->ndim, mask->sizes), d,
             px__sizes_text(texts[1], sizeof texts[1], self->ndim, self->sizes), dim + d);
    sizes[1 + dim + d] = mask->sizes[d];
  }
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, mask));
  return px_reshape(out, batched, sizes, 1 + self->ndim);
}
static px_status put_number(px__vmap_call *b, const px__index_put_vmap_args *args) {
  px_tensor *made = NULL, *self = args->self;
  PX_SCOPED(px_tensor) bytes = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) old = NULL;
  PX_TRY(mask_over(&bytes, b, self, args->indices.v.tensors[0], args->dims.v.ints[0]));
  PX_TRY(px_to(&mask, bytes, PX_BOOL, px__tensor_device(self), false, false));
  PX_TRY(aligned_value(&number, b, args->values, self, self->ndim));
  PX_TRY(px__vmap_physical(&old, b, self, self->ndim));
  PX_TRY(px_where(&made, mask, number, old));
  return set_filled(b, self, made);
}

PX_VMAP_RULE(index_put) {
  if (is_masked_fill(b, args)) return put_number(b, args);
  PX_TRY(refuse_masks(b, args->indices));
  if (!has_rule(b, args->indices)) return px__vmap_loop(b, false);
  indexing p;
  px_status status = start(&p, b, args->self, args->self->ndim, args->indices, args->dims);
  if (status == PX_OK) status = put_values(b, args, &p);
  drop(&p);
  return status;
}

static px_status add_back(px__vmap_call *b, const px__index_backward_vmap_args *args,
                          const indexing *p) {
  int64_t sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) batched = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  px_tensor *made = NULL;
  int n = args->input_sizes.n;
  PX_TRY(px__vmap_sizes(sizes, b, args->input_sizes));
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, args->grad_output));
  if (p->moved)
    PX_TRY(px_movedim(&grad, batched, p->to, p->moved, p->from, p->moved));
  else
    grad = px_retain(batched);
  PX_TRY(px_index_backward(&made, grad, sizes, n + 1, p->made, p->count, p->dims, p->count));
  return px__vmap_set_result(b, 0, made);
}
PX_VMAP_RULE(index_backward) {
  PX_TRY(refuse_masks(b, args->indices));
  if (!has_rule(b, args->indices)) return px__vmap_loop(b, false);
  indexing p;
  px_status status =
      start(&p, b, args->grad_output, args->input_sizes.n, args->indices, args->dims);
  if (status == PX_OK) status = add_back(b, args, &p);
  drop(&p);
  return status;
}

// ---- embedding: a batched weight is indexed by (batch index, row)

static const int64_t two_dims[] = {0, 1};

static px_status row_indices(px_tensor *pair[2], const px__vmap_call *b, px_tensor *input) {
  PX_TRY(batch_arange(&pair[0], b, input, input->ndim));
  return px__vmap_ensure_batch_dim(&pair[1], b, input);
}

// True for the rows of the padding.
static px_status padding_rows(px_tensor **out, const px_tensor *input, px_value padding) {
  PX_SCOPED(px_tensor) is_padding = NULL;
  PX_TRY(px_eq_scalar(&is_padding, input, px_int(padding.v.i)));
  return px_unsqueeze(out, is_padding, -1);
}
// Rows without gradient at the padding.
static px_status detach_padding(px_tensor **out, px_tensor *rows, const px_tensor *input,
                                px_value padding) {
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) fixed = NULL;
  if (padding.kind == PX_ARG_NONE) return *out = px_retain(rows), PX_OK;
  PX_TRY(padding_rows(&mask, input, padding));
  PX_TRY(px_tensor_detach(&fixed, rows));
  return px_where(out, mask, fixed, rows);
}
PX_VMAP_RULE(embedding) {
  px_tensor *made = NULL, *pair[2] = {NULL, NULL};
  const int64_t *padding = args->padding_idx.kind == PX_ARG_NONE ? NULL : &args->padding_idx.v.i;
  if (!px__is_mapped(b, args->weight)) {
    PX_TRY(px_embedding(&made, args->input->physical, args->weight, padding));
    return px__vmap_set_result(b, 0, made);
  }
  PX_SCOPED(px_tensor) rows = NULL;
  px_status status = row_indices(pair, b, args->input);
  if (status == PX_OK) status = px_index(&rows, args->weight->physical, pair, 2, two_dims, 2);
  if (status == PX_OK) status = detach_padding(&made, rows, pair[1], args->padding_idx);
  px_release(pair[0]);
  px_release(pair[1]);
  PX_TRY(status);
  return px__vmap_set_result(b, 0, made);
}

// Zeroes the gradient of the padding's rows.
static px_status without_padding(px_tensor **out, px_tensor *grad, const px_tensor *input,
                                 px_value padding) {
  PX_SCOPED(px_tensor) rows = NULL;
  if (padding.kind == PX_ARG_NONE) return *out = px_retain(grad), PX_OK;
  PX_TRY(padding_rows(&rows, input, padding));
  return px_masked_fill(out, grad, rows, px_int(0));
}

static px_status add_rows(px_tensor **out, const px__vmap_call *b,
                          const px__embedding_backward_vmap_args *args, px_tensor *pair[2]) {
  int64_t sizes[3] = {b->size, args->weight_sizes.v.ints[0], args->weight_sizes.v.ints[1]};
  PX_SCOPED(px_tensor) batched = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, args->grad_output));
  PX_TRY(without_padding(&grad, batched, pair[1], args->padding_idx));
  return px_index_backward(out, grad, sizes, 3, pair, 2, two_dims, 2);
}
PX_VMAP_RULE(embedding_backward) {
  px_tensor *made = NULL, *pair[2] = {NULL, NULL};
  px_status status = row_indices(pair, b, args->input);
  if (status == PX_OK) status = add_rows(&made, b, args, pair);
  px_release(pair[0]);
  px_release(pair[1]);
  PX_TRY(status);
  return px__vmap_set_result(b, 0, made);
}

// ---- masks shared by all samples: each sample is flattened

static px_status check_shared(const px__vmap_call *b, const px_tensor *mask) {
  PX_CHECK(!px__is_mapped(b, mask), PX_RUNTIME,
           "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot "
           "support this because for each batch this would return a differently shaped Tensor. "
           "Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
           "feature.");
  return PX_OK;
}
static px_status flat_mask(px_tensor **out, px_tensor *mask, const int64_t *sizes, int ndim) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_expand(&wide, mask, sizes, ndim));
  return px_reshape(out, wide, (const int64_t[]){px__sizes_product(sizes, ndim)}, 1);
}
static const int64_t second_dim = 1;

PX_VMAP_RULE(masked_select) {
  int ndim;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  const px_tensor *self = args->self;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) aligned = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) lines = NULL;
  px_tensor *made = NULL;
  PX_TRY(check_shared(b, args->mask));
  PX_TRY(px__broadcast(&ndim, sizes + 1, args->mask->ndim, args->mask->sizes, self->ndim,
                       self->sizes));
  PX_TRY(flat_mask(&mask, args->mask, sizes + 1, ndim));
  PX_TRY(px__vmap_physical(&aligned, b, args->self, ndim));
  PX_TRY(px_expand(&wide, aligned, sizes, ndim + 1));
  PX_TRY(px_reshape(&lines, wide, (const int64_t[]){b->size, mask->numel}, 2));
  PX_TRY(px_index(&made, lines, &mask, 1, &second_dim, 1));
  return px__vmap_set_result(b, 0, made);
}
PX_VMAP_RULE(masked_select_backward) {
  int ndim;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  px_value input = args->input_sizes;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) lines = NULL;
  px_tensor *made = NULL;
  PX_TRY(check_shared(b, args->mask));
  PX_TRY(
      px__broadcast(&ndim, sizes + 1, args->mask->ndim, args->mask->sizes, input.n, input.v.ints));
  PX_TRY(flat_mask(&mask, args->mask, sizes + 1, ndim));
  PX_TRY(px__vmap_ensure_batch_dim(&grad, b, args->grad_output));
  PX_TRY(px_index_backward(&lines, grad, (const int64_t[]){b->size, mask->numel}, 2, &mask, 1,
                           &second_dim, 1));
  PX_TRY(px_reshape(&made, lines, sizes, ndim + 1));
  return px__vmap_set_result(b, 0, made);
}

// ---- index_select and similar with an index per sample: gather and scatter along dim

// Expands the index of each sample for gather and scatter: self's sizes, except index->numel along
// dim.
static px_status element_indices(px_tensor **out, int64_t *dim, const px__vmap_call *b,
                                 const px_tensor *self, px_tensor *index, int64_t given) {
  int d;
  int64_t ones[PX_MAX_DIMS + 1] = {b->size}, sizes[PX_MAX_DIMS + 1] = {b->size};
  PX_SCOPED(px_tensor) line = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px__wrap_dim(&d, given, self->ndim));
  for (int k = 0; k < self->ndim; k++) {
    sizes[1 + k] = k == d ? index->numel : self->sizes[k];
    ones[1 + k] = k == d ? index->numel : 1;
  }
  *dim = d + 1;
  PX_TRY(px_to(&wide, index->physical, PX_INT64, PX_DEVICE_NONE, false, false));
  PX_TRY(px_reshape(&line, wide, ones, self->ndim + 1));
  return px_expand(out, line, sizes, self->ndim + 1);
}

PX_VMAP_RULE(index_select) {
  px_tensor *made = NULL;
  int64_t dim;
  PX_SCOPED(px_tensor) elements = NULL;
  PX_SCOPED(px_tensor) batched = NULL;
  if (!px__is_mapped(b, args->index)) return px__vmap_shift(b);
  if (!args->self->ndim) return px__vmap_loop(b, true);
  PX_TRY(element_indices(&elements, &dim, b, args->self, args->index, args->dim));
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, args->self));
  PX_TRY(px_gather(&made, batched, dim, elements, false));
  return px__vmap_set_result(b, 0, made);
}
PX_VMAP_RULE(index_select_backward) {
  px_tensor *made = NULL, *grad = args->grad_output;
  int64_t dim, sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) elements = NULL;
  PX_SCOPED(px_tensor) batched = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  if (!px__is_mapped(b, args->index)) return px__vmap_shift(b);
  if (!args->input_sizes.n) return px__vmap_loop(b, true);
  PX_TRY(px__vmap_sizes(sizes, b, args->input_sizes));
  PX_TRY(element_indices(&elements, &dim, b, grad, args->index, args->dim));
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, grad));
  PX_TRY(px_zeros(&zeros, sizes, args->input_sizes.n + 1, (px_dtype)grad->dtype,
                  px__tensor_device(grad), false, false));
  PX_TRY(px_scatter_add(&made, zeros, dim, elements, batched));
  return px__vmap_set_result(b, 0, made);
}

// Scatters a source to the selected elements. `add`: accumulates.
typedef struct scattering {
  px_tensor *self, *index, *source;
  int64_t dim;
  bool add;
} scattering;

static px_status scatter(px__vmap_call *b, const scattering *p, px_tensor *elements, int64_t dim) {
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) self = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&self, b, p->self));
  if (b->call->mode == PX_CALL_INPLACE)
    PX_TRY((p->add ? px_scatter_add_ : px_scatter_)(self, dim, elements, p->source));
  else
    PX_TRY((p->add ? px_scatter_add : px_scatter)(&made, self, dim, elements, p->source));
  return px__vmap_set_result(b, 0, made);
}
static px_status scatter_source(px__vmap_call *b, scattering *p, px_scalar alpha) {
  int64_t dim;
  px_tensor *given = p->source;
  PX_SCOPED(px_tensor) elements = NULL;
  PX_SCOPED(px_tensor) batched = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  if (!px__is_mapped(b, p->index)) return px__vmap_shift(b);
  if (!p->self->ndim) return px__vmap_loop(b, true);
  PX_TRY(element_indices(&elements, &dim, b, p->self, p->index, p->dim));
  if (!px__has_sizes(given, elements->ndim - 1, elements->sizes + 1)) return px__vmap_loop(b, true);
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, given));
  if (!p->add || px_scalar_float(alpha) == 1)
    scaled = px_retain(batched);
  else
    PX_TRY(px_mul_scalar(&scaled, batched, alpha));
  p->source = scaled;
  return scatter(b, p, elements, dim);
}
PX_VMAP_RULE(index_add) {
  scattering p = {args->self, args->index, args->source, args->dim, true};
  return scatter_source(b, &p, args->alpha);
}
PX_VMAP_RULE(index_copy) {
  scattering p = {args->self, args->index, args->source, args->dim, false};
  return scatter_source(b, &p, px_int(1));
}

// Fills the selected elements with a value per sample, or with one for all.
static px_status scatter_value(px__vmap_call *b, const scattering *p, px_tensor *value) {
  int64_t dim;
  PX_SCOPED(px_tensor) elements = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) expanded = NULL;
  if (!p->self->ndim) return px__vmap_loop(b, true);
  PX_TRY(element_indices(&elements, &dim, b, p->self, p->index, p->dim));
  PX_TRY(aligned_value(&number, b, value, p->self, p->self->ndim));
  PX_TRY(px_expand(&expanded, number, elements->sizes, elements->ndim));
  scattering all = {p->self, p->index, expanded, p->dim, false};
  return scatter(b, &all, elements, dim);
}
PX_VMAP_RULE(index_fill_tensor) {
  scattering p = {args->self, args->index, NULL, args->dim, false};
  bool index = px__is_mapped(b, args->index);
  if (index) return scatter_value(b, &p, args->value);
  return px__vmap_shift(b);
}
PX_VMAP_RULE(index_fill) {
  scattering p = {args->self, args->index, NULL, args->dim, false};
  PX_SCOPED(px_tensor) value = NULL;
  if (!px__is_mapped(b, args->index)) return px__vmap_shift(b);
  PX_TRY(px_full(&value, NULL, 0, args->value, (px_dtype)args->self->dtype,
                 px__tensor_device(args->self), false, false));
  return scatter_value(b, &p, value);
}

// ---- fills with a value per sample

PX_VMAP_RULE(masked_fill_tensor) {
  px_tensor *made = NULL, *self = args->self;
  int ndim = self->ndim > args->mask->ndim ? self->ndim : args->mask->ndim;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) old = NULL;
  PX_TRY(aligned_value(&number, b, args->value, self, ndim));
  PX_TRY(px__vmap_physical(&mask, b, args->mask, ndim));
  PX_TRY(px__vmap_physical(&old, b, self, ndim));
  PX_TRY(px_where(&made, mask, number, old));
  return set_filled(b, self, made);
}

static px_status fill(px__vmap_call *b, px_tensor *self, px_tensor *value) {
  if (!px__is_mapped(b, value)) return px__vmap_align(b);
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) expanded = NULL;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  px__sizes_copy(sizes + 1, self->sizes, self->ndim);
  PX_TRY(aligned_value(&number, b, value, self, self->ndim));
  PX_TRY(px_expand(&expanded, number, sizes, self->ndim + 1));
  PX_TRY(px_clone(&made, expanded, "contiguous_format"));
  return set_filled(b, self, made);
}
PX_VMAP_RULE(filled_tensor) { return fill(b, args->self, args->value); }
PX_VMAP_RULE(fill_tensor) { return fill(b, args->self, args->value); }

// ---- roll and repeat

// A dimension may be rolled several times, so the list may have any length.
static px_status roll_dims(px_tensor **out, const px_tensor *self, px_value shifts, px_value dims) {
  int64_t *moved;
  int d = 0;
  PX_TRY(px__alloc((void **)&moved, (size_t)dims.n * sizeof *moved));
  px_status status = PX_OK;
  for (int k = 0; status == PX_OK && k < dims.n; k++) {
    status = px__wrap_dim(&d, dims.v.ints[k], self->ndim);
    moved[k] = d + 1;
  }
  if (status == PX_OK)
    status = px_roll(out, self->physical, shifts.v.ints, shifts.n, moved, dims.n);
  px__free(moved);
  return status;
}
PX_VMAP_RULE(roll) {
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) rolled = NULL;
  int64_t last = -1;
  const px_tensor *all = args->self->physical;
  px_value shifts = args->shifts;
  if (args->dims.n) {
    PX_TRY(roll_dims(&made, args->self, shifts, args->dims));
    return px__vmap_set_result(b, 0, made);
  }
  int64_t line[2] = {b->size, args->self->numel};
  PX_TRY(px_reshape(&flat, all, line, 2));
  PX_TRY(px_roll(&rolled, flat, shifts.v.ints, 1, &last, 1));
  PX_TRY(px_reshape(&made, rolled, all->sizes, all->ndim));
  return px__vmap_set_result(b, 0, made);
}

PX_VMAP_RULE(repeat) {
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) aligned = NULL;
  int64_t repeats[PX_MAX_DIMS + 1] = {1};
  int n = args->repeats.n;
  PX_CHECK(n >= args->self->ndim, PX_RUNTIME,
           "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
           "tensor");
  PX_TRY(px__check_ndim((int64_t)n + 1));
  px__sizes_copy(repeats + 1, args->repeats.v.ints, n);
  PX_TRY(px__vmap_physical(&aligned, b, args->self, n));
  PX_TRY(px_repeat(&made, aligned, repeats, n + 1));
  return px__vmap_set_result(b, 0, made);
}
