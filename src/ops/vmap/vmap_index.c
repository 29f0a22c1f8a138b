// SPDX-License-Identifier: Apache-2.0
// vmap: batching rules of indexing. A batch dimension of self alone is a dimension without an
// index. If an index tensor is batched too, the batch dimension is indexed by an arange. Formulas
// cannot build the lists of index tensors.
#include "vmap_rules/factory.h"
#include "vmap_rules/index.h"
#include "call/vmap.h"
#include "formulas.h"
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
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) old = NULL;
  PX_TRY(mask_over(&mask, b, self, args->indices.v.tensors[0], args->dims.v.ints[0]));
  PX_TRY(px__vmap_physical(&number, b, args->values, self->ndim));
  PX_TRY(px__vmap_physical(&old, b, self, self->ndim));
  PX_TRY(px__formula_where_masked(&made, (px_value[]){PX_T(mask), PX_T(number), PX_T(old)}));
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

// ---- index_add and similar with an index per sample: scatter along dim

// Expands the index of each sample for gather and scatter: self's sizes, except index->numel along
// dim.
static px_status element_indices(px_tensor **out, int64_t *dim, const px_tensor *self,
                                 px_tensor *index, int64_t given) {
  *dim = given + (given >= 0 && given < INT64_MAX);  // a check of the op refuses it
  return px__formula_index_of_samples(
      out, (px_value[]){PX_T(index->physical), PX_IS(self->sizes, self->ndim), PX_I(given),
                        PX_I(index->numel)});
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
  PX_TRY(element_indices(&elements, &dim, p->self, p->index, p->dim));
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
  PX_TRY(element_indices(&elements, &dim, p->self, p->index, p->dim));
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

// ---- roll

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
  px_tensor *made = NULL, *self = args->self;
  const int64_t rows[2] = {b->size, self->numel};
  PX_TRY(args->dims.n ? roll_dims(&made, self, args->shifts, args->dims)
                      : px__formula_rolled_rows(&made, (px_value[]){PX_T(self->physical),
                                                                    PX_IS(rows, 2), args->shifts}));
  return px__vmap_set_result(b, 0, made);
}
