// SPDX-License-Identifier: Apache-2.0
// Rules of indexing for mapped dimensions. A mapped dimension of self is one more that is not
// indexed; if an index tensor is mapped too, it is indexed by the numbers of the places.
#include "batch_functions/factory.h"
#include "batch_functions/index.h"
#include "batch_functions/arithmetic.h"
#include "call/batch.h"
#include "hidden/index.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

// ---- picking by several index tensors

typedef struct picking {
  px_tensor *made[PX_MAX_DIMS + 1];
  int64_t dims[PX_MAX_DIMS + 1];
  int count;  // of indices, perhaps with the numbers of the places
  int taken;  // dimensions of a place that they index
  int ndim;   // of what the indices of a place broadcast to
  // Where the dimensions of what is picked lie beneath, and where they belong: `moved` from `from`
  // on to `to` on.
  int64_t from[PX_MAX_DIMS], to[PX_MAX_DIMS];
  int moved;
} picking;
static void drop(picking *p) {
  for (int i = 0; i < p->count; i++) px_release(p->made[i]);
}

static bool is_mask(const px_tensor *t) { return t->dtype == PX_BOOL || t->dtype == PX_UINT8; }
static bool any_mask(px_value indices) {
  for (int i = 0; i < indices.n; i++)
    if (is_mask(indices.v.tensors[i])) return true;
  return false;
}
static bool any_mapped(const px__batching *b, px_value indices) {
  for (int i = 0; i < indices.n; i++)
    if (px__is_mapped(b, indices.v.tensors[i])) return true;
  return false;
}

static void move(picking *p, int64_t from, int64_t to, int count) {
  p->moved = from == to ? 0 : count;
  for (int i = 0; i < p->moved; i++) p->from[i] = from + i, p->to[i] = to + i;
}

// The numbers of the places, with dimensions of size 1 for those of the other indices.
static px_status number_places(px_tensor **out, const px__batching *b, const px_tensor *beside,
                               int ndim) {
  int64_t sizes[PX_MAX_DIMS] = {b->size};
  PX_SCOPED(px_tensor) line = NULL;
  for (int d = 0; d < ndim; d++) sizes[1 + d] = 1;
  PX_TRY(px_arange(&line, px_int(0), px_int(b->size), px_int(1), PX_INT64,
                   px__tensor_device(beside), false, false));
  return px_view(out, line, sizes, 1 + ndim);
}

// A mask stands for an index of one dimension for each of its own.
static bool measure(picking *p, px_value indices, px_value dims) {
  bool together = true;
  for (int i = 0; i < indices.n; i++) {
    const px_tensor *t = indices.v.tensors[i];
    int ndim = is_mask(t) ? 1 : t->ndim;
    if (ndim > p->ndim) p->ndim = ndim;
    together &= i == 0 || dims.v.ints[i] == dims.v.ints[0] + p->taken;
    p->taken += is_mask(t) ? t->ndim : 1;
  }
  return together;
}

// What is picked of a self that is mapped.
static px_status start(picking *p, const px__batching *b, const px_tensor *self, px_value indices,
                       px_value dims) {
  bool mapped = any_mapped(b, indices);
  *p = (picking){.count = 0};
  bool together = measure(p, indices, dims);
  if (mapped) PX_TRY(number_places(&p->made[p->count++], b, self, p->ndim));
  for (int i = 0; i < indices.n; i++) {
    p->dims[p->count] = dims.v.ints[i] + 1;
    PX_TRY(px__batch_align(&p->made[p->count++], b, indices.v.tensors[i], p->ndim));
  }
  int64_t first = dims.v.ints[0];
  if (mapped && together) move(p, 1, 1 + first, p->ndim);  // [places, indices, rest]
  if (!mapped && !together) move(p, p->ndim, 0, 1);        // [indices, places, rest]
  return PX_OK;
}

// A mask has no numbers of places beside it, and one without dimensions no index.
static bool has_rule(const px__batching *b, px_value indices) {
  for (int i = 0; i < indices.n; i++) {
    const px_tensor *t = indices.v.tensors[i];
    if (is_mask(t) && (t->ndim == 0 || any_mapped(b, indices))) return false;
  }
  return indices.n > 0 && indices.n < PX_MAX_DIMS && b->size > 0;
}

static px_status refuse_masks(const px__batching *b, px_value indices) {
  PX_CHECK(!(any_mask(indices) && any_mapped(b, indices)), PX_RUNTIME,
           "vmap: We do not support batching operators that can support dynamic shape. Attempting "
           "to batch over indexing with a boolean mask.");
  return PX_OK;
}

static px_status pick(px_tensor **out, const picking *p, const px_tensor *whole) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_index(&made, whole, p->made, p->count, p->dims, p->count));
  *out = NULL;
  if (p->moved) return px_movedim(out, made, p->from, p->moved, p->to, p->moved);
  *out = PX_MOVE(made);
  return PX_OK;
}

PX_BATCH(index) {
  PX_TRY(refuse_masks(b, args->indices));
  if (!has_rule(b, args->indices)) return px__batch_loop(b, false);
  picking p;
  PX_SCOPED(px_tensor) whole = NULL;
  px_tensor *made = NULL;
  px_status status = px__batch_whole(&whole, b, args->self);
  p.count = 0;
  if (status == PX_OK) status = start(&p, b, args->self, args->indices, args->dims);
  if (status == PX_OK) status = pick(&made, &p, whole);
  drop(&p);
  PX_TRY(status);
  return px__batch_give(b, 0, made);
}

// Values as what is picked lies beneath; `ndim` of them a place.
static px_status values_beneath(px_tensor **out, const picking *p, const px__batching *b,
                                px_tensor *values, int ndim) {
  int64_t sizes[PX_MAX_DIMS + 1];
  PX_SCOPED(px_tensor) aligned = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px__batch_align(&aligned, b, values, ndim));
  *out = NULL;
  int missing = ndim + 1 - aligned->ndim;
  for (int d = 0; d < missing; d++) sizes[d] = 1;
  px__sizes_copy(sizes + (missing > 0 ? missing : 0), aligned->sizes, aligned->ndim);
  if (missing > 0)
    PX_TRY(px_view(&whole, aligned, sizes, ndim + 1));
  else
    whole = px_retain(aligned);
  if (p->moved) return px_movedim(out, whole, p->to, p->moved, p->from, p->moved);
  *out = PX_MOVE(whole);
  return PX_OK;
}

static px_status put(px__batching *b, const px__index_put_batch_args *args, const picking *p) {
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  px_tensor *made = NULL;
  int picked = args->self->ndim - p->taken + p->ndim;
  PX_TRY(px__batch_whole(&whole, b, args->self));
  PX_TRY(values_beneath(&values, p, b, args->values, picked));
  if (b->call->mode == PX_CALL_INPLACE)
    PX_TRY(px_index_put_(whole, p->made, p->count, p->dims, p->count, values, args->accumulate));
  else
    PX_TRY(
        px_index_put(&made, whole, p->made, p->count, p->dims, p->count, values, args->accumulate));
  return px__batch_give(b, 0, made);
}
PX_BATCH(index_put) {
  PX_TRY(refuse_masks(b, args->indices));
  if (!has_rule(b, args->indices)) return px__batch_loop(b, false);
  picking p;
  px_status status = start(&p, b, args->self, args->indices, args->dims);
  if (status == PX_OK) status = put(b, args, &p);
  drop(&p);
  return status;
}

static px_status add_back(px__batching *b, const px__index_backward_batch_args *args,
                          const picking *p) {
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  px_tensor *made = NULL;
  int n = args->input_sizes.n;
  px__sizes_copy(sizes + 1, args->input_sizes.v.ints, n);
  PX_TRY(px__batch_whole(&whole, b, args->grad_output));
  if (p->moved)
    PX_TRY(px_movedim(&grad, whole, p->to, p->moved, p->from, p->moved));
  else
    grad = px_retain(whole);
  PX_TRY(px_index_backward(&made, grad, sizes, n + 1, p->made, p->count, p->dims, p->count));
  return px__batch_give(b, 0, made);
}
PX_BATCH(index_backward) {
  PX_TRY(refuse_masks(b, args->indices));
  if (!has_rule(b, args->indices)) return px__batch_loop(b, false);
  picking p;
  px_status status = start(&p, b, args->grad_output, args->indices, args->dims);
  if (status == PX_OK) status = add_back(b, args, &p);
  drop(&p);
  return status;
}

// ---- rows by number: as what is picked by the numbers of the places and these

static const int64_t two_dims[] = {0, 1};

static px_status row_indices(px_tensor *pair[2], const px__batching *b, px_tensor *input) {
  PX_TRY(number_places(&pair[0], b, input, input->ndim));
  return px__batch_whole(&pair[1], b, input);
}

PX_BATCH(embedding) {
  px_tensor *made = NULL, *pair[2] = {NULL, NULL};
  const int64_t *padding = args->padding_idx.kind == PX_ARG_NONE ? NULL : &args->padding_idx.v.i;
  if (!px__is_mapped(b, args->weight)) {
    PX_TRY(px_embedding(&made, args->input->physical, args->weight, padding));
    return px__batch_give(b, 0, made);
  }
  px_status status = row_indices(pair, b, args->input);
  if (status == PX_OK) status = px_index(&made, args->weight->physical, pair, 2, two_dims, 2);
  px_release(pair[0]);
  px_release(pair[1]);
  PX_TRY(status);
  return px__batch_give(b, 0, made);
}

// The gradient without that of the padding's rows.
static px_status without_padding(px_tensor **out, px_tensor *grad, const px_tensor *input,
                                 px_value padding) {
  PX_SCOPED(px_tensor) is_padding = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  *out = NULL;
  if (padding.kind == PX_ARG_NONE) {
    *out = px_retain(grad);
    return PX_OK;
  }
  PX_TRY(px_eq_scalar(&is_padding, input, px_int(padding.v.i)));
  PX_TRY(px_unsqueeze(&rows, is_padding, -1));
  return px_masked_fill(out, grad, rows, px_int(0));
}

static px_status add_rows(px_tensor **out, const px__batching *b,
                          const px__embedding_backward_batch_args *args, px_tensor *pair[2]) {
  int64_t sizes[3] = {b->size, args->weight_sizes.v.ints[0], args->weight_sizes.v.ints[1]};
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(px__batch_whole(&whole, b, args->grad_output));
  PX_TRY(without_padding(&grad, whole, pair[1], args->padding_idx));
  return px_index_backward(out, grad, sizes, 3, pair, 2, two_dims, 2);
}
PX_BATCH(embedding_backward) {
  px_tensor *made = NULL, *pair[2] = {NULL, NULL};
  px_status status = row_indices(pair, b, args->input);
  if (status == PX_OK) status = add_rows(&made, b, args, pair);
  px_release(pair[0]);
  px_release(pair[1]);
  PX_TRY(status);
  return px__batch_give(b, 0, made);
}

// ---- elements by a mask that all places share: of each place, as a line

static px_status check_shared(const px__batching *b, const px_tensor *mask) {
  PX_CHECK(!px__is_mapped(b, mask), PX_RUNTIME,
           "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot "
           "support this because for each batch this would return a differently shaped Tensor. "
           "Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
           "feature.");
  return PX_OK;
}
static px_status mask_line(px_tensor **out, px_tensor *mask, const int64_t *sizes, int ndim) {
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(px_expand(&wide, mask, sizes, ndim));
  return px_reshape(out, wide, (const int64_t[]){px__sizes_product(sizes, ndim)}, 1);
}
static const int64_t second_dim = 1;

PX_BATCH(masked_select) {
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
  PX_TRY(mask_line(&mask, args->mask, sizes + 1, ndim));
  PX_TRY(px__batch_align(&aligned, b, args->self, ndim));
  PX_TRY(px_expand(&wide, aligned, sizes, ndim + 1));
  PX_TRY(px_reshape(&lines, wide, (const int64_t[]){b->size, mask->numel}, 2));
  PX_TRY(px_index(&made, lines, &mask, 1, &second_dim, 1));
  return px__batch_give(b, 0, made);
}
PX_BATCH(masked_select_backward) {
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
  PX_TRY(mask_line(&mask, args->mask, sizes + 1, ndim));
  PX_TRY(px__batch_whole(&grad, b, args->grad_output));
  PX_TRY(px_index_backward(&lines, grad, (const int64_t[]){b->size, mask->numel}, 2, &mask, 1,
                           &second_dim, 1));
  PX_TRY(px_reshape(&made, lines, sizes, ndim + 1));
  return px__batch_give(b, 0, made);
}

// ---- places of a dimension, where each place has numbers of its own: element by element

// Such numbers for each element of `sizes`, which a place of what is picked or put has but in dim;
// there it has as many as there are numbers.
static px_status element_indices(px_tensor **out, int64_t *dim, const px__batching *b,
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

PX_BATCH(index_select) {
  px_tensor *made = NULL;
  int64_t dim;
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  if (!px__is_mapped(b, args->index)) return px__batch_shift(b);
  if (!args->self->ndim) return px__batch_loop(b, true);
  PX_TRY(element_indices(&places, &dim, b, args->self, args->index, args->dim));
  PX_TRY(px__batch_whole(&whole, b, args->self));
  PX_TRY(px_gather(&made, whole, dim, places, false));
  return px__batch_give(b, 0, made);
}
PX_BATCH(index_select_backward) {
  px_tensor *made = NULL, *grad = args->grad_output;
  int64_t dim, sizes[PX_MAX_DIMS + 1] = {b->size};
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  if (!px__is_mapped(b, args->index)) return px__batch_shift(b);
  if (!args->input_sizes.n) return px__batch_loop(b, true);
  px__sizes_copy(sizes + 1, args->input_sizes.v.ints, args->input_sizes.n);
  PX_TRY(element_indices(&places, &dim, b, grad, args->index, args->dim));
  PX_TRY(px__batch_whole(&whole, b, grad));
  PX_TRY(px_zeros(&zeros, sizes, args->input_sizes.n + 1, (px_dtype)grad->dtype,
                  px__tensor_device(grad), false, false));
  PX_TRY(px_scatter_add(&made, zeros, dim, places, whole));
  return px__batch_give(b, 0, made);
}

// What is put at those places beneath; `add`: to what is there.
typedef struct putting {
  px_tensor *self, *index, *source;
  int64_t dim;
  bool add;
} putting;

static px_status put_elements(px__batching *b, const putting *p, px_tensor *places, int64_t dim) {
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) self = NULL;
  PX_TRY(px__batch_whole(&self, b, p->self));
  if (b->call->mode == PX_CALL_INPLACE)
    PX_TRY((p->add ? px_scatter_add_ : px_scatter_)(self, dim, places, p->source));
  else
    PX_TRY((p->add ? px_scatter_add : px_scatter)(&made, self, dim, places, p->source));
  return px__batch_give(b, 0, made);
}
static px_status put_source(px__batching *b, putting *p, px_scalar alpha) {
  int64_t dim;
  px_tensor *given = p->source;
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  if (!px__is_mapped(b, p->index)) return px__batch_shift(b);
  if (!p->self->ndim) return px__batch_loop(b, true);
  PX_TRY(element_indices(&places, &dim, b, p->self, p->index, p->dim));
  if (!px__has_sizes(given, places->ndim - 1, places->sizes + 1)) return px__batch_loop(b, true);
  PX_TRY(px__batch_whole(&whole, b, given));
  if (!p->add || px_scalar_float(alpha) == 1)
    scaled = px_retain(whole);
  else
    PX_TRY(px_mul_scalar(&scaled, whole, alpha));
  p->source = scaled;
  return put_elements(b, p, places, dim);
}
PX_BATCH(index_add) {
  putting p = {args->self, args->index, args->source, args->dim, true};
  return put_source(b, &p, args->alpha);
}
PX_BATCH(index_copy) {
  putting p = {args->self, args->index, args->source, args->dim, false};
  return put_source(b, &p, px_int(1));
}

// The number as it is broadcast beneath.
static px_status number_of(px_tensor **out, const px__batching *b, px_tensor *value,
                           const px_tensor *self, int ndim) {
  PX_SCOPED(px_tensor) aligned = NULL;
  PX_TRY(px__batch_align(&aligned, b, value, ndim));
  return px_to(out, aligned, (px_dtype)self->dtype, px__tensor_device(self), false, false);
}

// A number of each place, or of all.
static px_status put_number(px__batching *b, const putting *p, px_tensor *value) {
  int64_t dim;
  PX_SCOPED(px_tensor) places = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) spread = NULL;
  if (!p->self->ndim) return px__batch_loop(b, true);
  PX_TRY(element_indices(&places, &dim, b, p->self, p->index, p->dim));
  PX_TRY(number_of(&number, b, value, p->self, p->self->ndim));
  PX_TRY(px_expand(&spread, number, places->sizes, places->ndim));
  putting all = {p->self, p->index, spread, p->dim, false};
  return put_elements(b, &all, places, dim);
}
PX_BATCH(index_fill_tensor) {
  putting p = {args->self, args->index, NULL, args->dim, false};
  bool index = px__is_mapped(b, args->index);
  if (index) return put_number(b, &p, args->value);
  return px__batch_shift(b);
}
PX_BATCH(index_fill) {
  putting p = {args->self, args->index, NULL, args->dim, false};
  PX_SCOPED(px_tensor) value = NULL;
  if (!px__is_mapped(b, args->index)) return px__batch_shift(b);
  PX_TRY(px_full(&value, NULL, 0, args->value, (px_dtype)args->self->dtype,
                 px__tensor_device(args->self), false, false));
  return put_number(b, &p, value);
}

// ---- filling with a number that each place has its own of

static px_status give_filled(px__batching *b, px_tensor *self, px_tensor *made_take) {
  PX_SCOPED(px_tensor) made = made_take;
  if (b->call->mode != PX_CALL_INPLACE) return px__batch_give(b, 0, PX_MOVE(made));
  PX_TRY(px_copy_(self->physical, made, false));
  return px__batch_give(b, 0, NULL);
}

PX_BATCH(masked_fill_tensor) {
  px_tensor *made = NULL, *self = args->self;
  int ndim = self->ndim > args->mask->ndim ? self->ndim : args->mask->ndim;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) mask = NULL;
  PX_SCOPED(px_tensor) old = NULL;
  PX_TRY(number_of(&number, b, args->value, self, ndim));
  PX_TRY(px__batch_align(&mask, b, args->mask, ndim));
  PX_TRY(px__batch_align(&old, b, self, ndim));
  PX_TRY(px_where(&made, mask, number, old));
  return give_filled(b, self, made);
}

static px_status fill(px__batching *b, px_tensor *self, px_tensor *value) {
  if (!px__is_mapped(b, value)) return px__batch_operands(b);
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) number = NULL;
  PX_SCOPED(px_tensor) spread = NULL;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  px__sizes_copy(sizes + 1, self->sizes, self->ndim);
  PX_TRY(number_of(&number, b, value, self, self->ndim));
  PX_TRY(px_expand(&spread, number, sizes, self->ndim + 1));
  PX_TRY(px_clone(&made, spread, "contiguous_format"));
  return give_filled(b, self, made);
}
PX_BATCH(filled_tensor) { return fill(b, args->self, args->value); }
PX_BATCH(fill_tensor) { return fill(b, args->self, args->value); }

// ---- the order and the number of elements

PX_BATCH(roll) {
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) rolled = NULL;
  int64_t dims[PX_MAX_DIMS], last = -1;
  const px_tensor *all = args->self->physical;
  px_value shifts = args->shifts;
  for (int k = 0; k < args->dims.n; k++) {
    int d;
    PX_TRY(px__wrap_dim(&d, args->dims.v.ints[k], args->self->ndim));
    dims[k] = d + 1;
  }
  if (args->dims.n) {
    PX_TRY(px_roll(&made, all, shifts.v.ints, shifts.n, dims, args->dims.n));
    return px__batch_give(b, 0, made);
  }
  int64_t line[2] = {b->size, args->self->numel};
  PX_TRY(px_reshape(&flat, all, line, 2));
  PX_TRY(px_roll(&rolled, flat, shifts.v.ints, 1, &last, 1));
  PX_TRY(px_reshape(&made, rolled, all->sizes, all->ndim));
  return px__batch_give(b, 0, made);
}

PX_BATCH(repeat) {
  px_tensor *made = NULL;
  PX_SCOPED(px_tensor) aligned = NULL;
  int64_t repeats[PX_MAX_DIMS + 1] = {1};
  int n = args->repeats.n;
  PX_CHECK(n >= args->self->ndim, PX_RUNTIME,
           "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
           "tensor");
  PX_CHECK(n < PX_MAX_DIMS, PX_RUNTIME, "only tensors with up to %d dims are supported",
           PX_MAX_DIMS);
  px__sizes_copy(repeats + 1, args->repeats.v.ints, n);
  PX_TRY(px__batch_align(&aligned, b, args->self, n));
  PX_TRY(px_repeat(&made, aligned, repeats, n + 1));
  return px__batch_give(b, 0, made);
}
