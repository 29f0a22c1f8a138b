// SPDX-License-Identifier: Apache-2.0
// Calls of batched tensors: the rule of the op calls ops on the tensors beneath, one level up.
//
// A rule's calls come back here where what is beneath is batched too, and are recorded for
// differentiation there; then the driver records the call at its own level. Most rules are words of
// an entry (`batch`): they change the arguments, call the same op and wrap what it gives.
#include "call/batch.h"

#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "phlox/vmap.h"

// ---- levels

typedef struct mapping mapping;
struct mapping {
  mapping *outer;
  int level;
  int64_t size;
  px_randomness randomness;
};
// `depth` is the level that calls are made at: less than the innermost one's while a rule runs.
static _Thread_local struct {
  mapping *innermost;
  int depth;
} here;

int px_vmap_depth(void) { return here.depth; }

static const mapping *mapping_at(int level) {
  const mapping *m = here.innermost;
  while (m && m->level != level) m = m->outer;
  return m;
}

px_status px_vmap_begin(int *level, int64_t size, px_randomness randomness) {
  PX_GIVEN(level);
  PX_CHECK(size >= 0, PX_VALUE, "a dimension cannot have %lld places", (long long)size);
  PX_CHECK(here.depth < PX_VMAP_LEVELS, PX_RUNTIME, "mappings can be nested %d deep at most",
           PX_VMAP_LEVELS);
  mapping *made;
  PX_TRY(PX_NEW(&made));
  *made = (mapping){here.innermost, here.depth + 1, size, randomness};
  here.innermost = made;
  here.depth = *level = made->level;
  __atomic_add_fetch(&px__calls_differ, 1, __ATOMIC_RELAXED);
  return PX_OK;
}

void px_vmap_end(void) {
  mapping *ended = here.innermost;
  if (!ended) return;
  here.innermost = ended->outer;
  here.depth = ended->level - 1;
  px__free(ended);
  __atomic_sub_fetch(&px__calls_differ, 1, __ATOMIC_RELAXED);
}

bool px_tensor_is_batched(const px_tensor *self) { return px__is_batched(self); }
int px_tensor_batch_level(const px_tensor *self) { return px__is_batched(self) ? self->level : 0; }
px_tensor *px_tensor_physical(const px_tensor *self) { return self->physical; }

// What a thread sets aside for the calls beneath a level.
typedef struct above {
  int depth;
  px_recording_state descent;
} above;
static above descend(int level) {
  above a = {here.depth, {0, 0}};
  here.depth = level - 1;
  if (px__hooks && px__hooks->swap_recording)
    a.descent = px__hooks->swap_recording((px_recording_state){0, level});
  return a;
}
static px_status ascend(above a, px_status status) {
  here.depth = a.depth;
  if (px__hooks && px__hooks->swap_recording) (void)px__hooks->swap_recording(a.descent);
  return status;
}

// ---- tensors of the innermost mapping

static px_status check_mapping(const char *name) {
  PX_CHECK(here.depth, PX_RUNTIME, "%s outside of px_vmap_begin and px_vmap_end", name);
  return PX_OK;
}

px_status px_batch(px_tensor **out, px_tensor *self, int64_t dim) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  int d, level = here.depth;
  int64_t first = 0;
  PX_TRY(check_mapping("px_batch"));
  PX_CHECK(self->ndim > 0, PX_INDEX, "a tensor without dimensions cannot be mapped over");
  PX_TRY(px__wrap_dim(&d, dim, self->ndim));
  PX_CHECK(self->sizes[d] == mapping_at(level)->size, PX_VALUE,
           "dimension %d has %lld places, but the mapping has %lld", d, (long long)self->sizes[d],
           (long long)mapping_at(level)->size);
  PX_SCOPED(px_tensor) moved = d ? NULL : px_retain(self);
  above a = descend(level);
  PX_TRY(ascend(a, d ? px_movedim(&moved, self, &dim, 1, &first, 1) : PX_OK));
  return px__batched_new(out, moved, level);
}

static px_status repeat(px_tensor **out, px_tensor *t, int64_t size) {
  int64_t sizes[PX_MAX_DIMS + 1] = {size};
  px__sizes_copy(sizes + 1, t->sizes, t->ndim);
  return px_expand(out, t, sizes, t->ndim + 1);
}

px_status px_unbatch(px_tensor **out, px_tensor *self, int64_t dim) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  int d, level = here.depth;
  int64_t first = 0;
  PX_TRY(check_mapping("px_unbatch"));
  PX_TRY(px__wrap_dim(&d, dim, self->ndim + 1));
  bool mapped = px_tensor_batch_level(self) == level;
  PX_SCOPED(px_tensor) whole = mapped ? px_retain(self->physical) : NULL;
  above a = descend(level);
  px_status status = mapped ? PX_OK : repeat(&whole, self, mapping_at(level)->size);
  if (status == PX_OK && d) status = px_movedim(out, whole, &first, 1, &dim, 1);
  PX_TRY(ascend(a, status));
  if (!d) *out = PX_MOVE(whole);
  return PX_OK;
}

// ---- views

static bool same_dims(const px_tensor *t, const int64_t *sizes, const int64_t *strides, int d,
                      int k) {
  return t->sizes[d] == sizes[k] && t->strides[d] == strides[k];
}

// Whether the geometry is that of t with its dimensions in another order, of which gradients are
// simpler than of any geometry.
static bool is_permuted(const px_tensor *t, int ndim, const int64_t *sizes, const int64_t *strides,
                        int64_t *dims) {
  uint64_t used = 0;
  if (ndim != t->ndim) return false;
  for (int k = 0; k < ndim; k++) {
    int d = 0;
    while (d < ndim && ((used >> d & 1) || !same_dims(t, sizes, strides, d, k))) d++;
    if (d == ndim) return false;
    used |= UINT64_C(1) << d;
    dims[k] = d;
  }
  return true;
}

static px_status view_as(px_tensor **out, px_tensor *t, int ndim, const int64_t *sizes,
                         const int64_t *strides, int64_t offset) {
  int64_t dims[PX_MAX_DIMS];
  bool here_too = offset == t->offset;
  if (here_too && is_permuted(t, ndim, sizes, strides, dims)) return px_permute(out, t, dims, ndim);
  bool possible = false;
  int64_t wanted[PX_MAX_DIMS], found[PX_MAX_DIMS];
  px__sizes_copy(wanted, sizes, ndim);
  if (here_too && t->numel == px__sizes_product(sizes, ndim) && t->numel)
    PX_TRY(px__view_strides(&possible, t, ndim, wanted, found));
  if (possible && (!ndim || !memcmp(found, strides, (size_t)ndim * sizeof *found)))
    return px_view(out, t, sizes, ndim);
  return px_as_strided(out, t, sizes, ndim, strides, ndim, &offset);
}

static px_status view_beneath(px_tensor **out, px_tensor *beneath, int level, int ndim,
                              const int64_t *sizes, const int64_t *strides, int64_t offset) {
  int64_t all_sizes[PX_MAX_DIMS + 1] = {beneath->sizes[0]};
  int64_t all_strides[PX_MAX_DIMS + 1] = {beneath->strides[0]};
  PX_CHECK(ndim < PX_MAX_DIMS, PX_RUNTIME, "only tensors with up to %d dims are supported",
           PX_MAX_DIMS);
  px__sizes_copy(all_sizes + 1, sizes, ndim);
  px__sizes_copy(all_strides + 1, strides, ndim);
  above a = descend(level);
  return ascend(a, view_as(out, beneath, ndim + 1, all_sizes, all_strides, offset));
}

// ---- for rules

// With n dimensions of size 1 behind the first.
static px_status with_ones(px_tensor **out, px_tensor *t, int n) {
  int64_t sizes[PX_MAX_DIMS + 1];
  PX_CHECK(t->ndim + n <= PX_MAX_DIMS, PX_RUNTIME, "only tensors with up to %d dims are supported",
           PX_MAX_DIMS);
  sizes[0] = t->sizes[0];
  for (int d = 0; d < n; d++) sizes[1 + d] = 1;
  px__sizes_copy(sizes + 1 + n, t->sizes + 1, t->ndim - 1);
  return px_view(out, t, sizes, t->ndim + n);
}

px_status px__batch_align(px_tensor **out, const px__batching *b, px_tensor *t, int ndim) {
  *out = NULL;
  if (px__is_mapped(b, t) && t->ndim < ndim) return with_ones(out, t->physical, ndim - t->ndim);
  *out = px_retain(px__is_mapped(b, t) ? t->physical : t);
  return PX_OK;
}

px_status px__batch_whole(px_tensor **out, const px__batching *b, px_tensor *t) {
  *out = NULL;
  if (t && !px__is_mapped(b, t)) return repeat(out, t, b->size);
  *out = px_retain(t ? t->physical : NULL);
  return PX_OK;
}

px_status px__batch_give(px__batching *b, int i, px_tensor *made_take) {
  PX_SCOPED(px_tensor) made = made_take;
  if (b->call->mode != PX_CALL_INPLACE)
    return px__batched_new(&b->call->results[i], made, b->level);
  b->call->results[i] = px_retain(b->call->given[i]);
  return PX_OK;
}

// Arguments for the call beneath; the tensors that were made for them are owned.
typedef struct beneath {
  px_value args[PX__MAX_PARAMS];
  px_tensor **made;
  int count;
} beneath;

static int tensors_in(const px_call *call) {
  int n = 0;
  for (int i = 0; i < call->op->param_count; i++)
    n += call->args[i].kind == PX_ARG_TENSOR    ? 1
         : call->args[i].kind == PX_ARG_TENSORS ? call->args[i].n
                                                : 0;
  return n;
}

static px_status start_beneath(beneath *to, const px_call *call) {
  memcpy(to->args, call->args, call->op->param_count * sizeof *to->args);
  to->made = NULL, to->count = 0;
  return px__alloc((void **)&to->made, (size_t)(tensors_in(call) + 2) * sizeof *to->made);
}
static px_status end_beneath(beneath *to, px_status status) {
  for (int i = 0; i < to->count; i++) px_release(to->made[i]);
  px__free(to->made);
  return status;
}

// Puts for each tensor argument what `make` gives; `mask`: of which parameters.
typedef px_status (*maker)(px_tensor **out, const px__batching *b, px_tensor *t, int64_t number);
static px_status put_each(beneath *to, const px__batching *b, uint32_t mask, maker make,
                          int64_t number) {
  for (int i = 0; i < b->call->op->param_count; i++) {
    px_value *arg = &to->args[i];
    if (!(mask >> i & 1)) continue;
    if (arg->kind == PX_ARG_TENSOR) {
      PX_TRY(make(&to->made[to->count], b, arg->v.tensor, number));
      arg->v.tensor = to->made[to->count++];
    } else if (arg->kind == PX_ARG_TENSORS) {
      px_tensor **items = to->made + to->count;
      for (int k = 0; k < arg->n; k++, to->count++)
        PX_TRY(make(&to->made[to->count], b, arg->v.tensors[k], number));
      arg->v.tensors = items;
    }
  }
  return PX_OK;
}

static px_status call_beneath(px__batching *b, const px_op *op, const px_value *args) {
  void *results[PX__MAX_RESULTS] = {0};
  PX_TRY(px_op_call(op, b->call->mode, args, results));
  px_status status = PX_OK;
  for (int i = 0; i < op->result_count; i++) {
    if (status == PX_OK && results[i])
      status = px__batch_give(b, i, results[i]);
    else
      px_release(results[i]);
  }
  return status;
}

// ---- element by element

static px_status make_aligned(px_tensor **out, const px__batching *b, px_tensor *t, int64_t ndim) {
  return px__batch_align(out, b, t, (int)ndim);
}

static int widest(const px_call *call) {
  int ndim = 0;
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (t && t->ndim > ndim) ndim = t->ndim;
  }
  return ndim;
}

// Whether a mapped number (of no dimensions) has another dtype than some operand: beneath it has a
// dimension, and would count for more in promotion. A number that is changed in place keeps its
// dtype.
static bool promotes_otherwise(const px__batching *b) {
  const px_call *call = b->call;
  if (call->mode == PX_CALL_INPLACE && call->given[0]->ndim == 0) return false;
  int dtype = -1;
  bool number = false, differ = false;
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (!t || (px__impl(call->op)->masks >> i & 1)) continue;
    differ |= dtype >= 0 && dtype != t->dtype;
    dtype = t->dtype;
    number |= px__is_mapped(b, t) && t->ndim == 0;
  }
  return number && differ;
}

static px_status make_converted(px_tensor **out, const px__batching *b, px_tensor *t,
                                int64_t dtype) {
  *out = NULL;
  return t ? px_to(out, t, (px_dtype)dtype, PX_DEVICE_NONE, false, false) : PX_OK;
}

// What an op writes to, or fills, that is not element by element: all places, with self's sizes.
static px_status whole_self(beneath *to, const px__batching *b) {
  px_tensor *self = b->call->args[PX__SELF].v.tensor;
  if (b->call->op->kind == PX_OP_POINTWISE || px__is_mapped(b, self)) return PX_OK;
  PX_TRY(px__batch_whole(&to->made[to->count], b, self));
  to->args[PX__SELF].v.tensor = to->made[to->count++];
  return PX_OK;
}

static px_status align_beneath(px__batching *b, beneath *to) {
  px_call *call = b->call;
  int ndim = widest(call);
  above a = descend(b->level);
  px_status status = put_each(to, b, UINT32_MAX, make_aligned, ndim);
  if (status == PX_OK) status = whole_self(to, b);
  if (status == PX_OK) status = call_beneath(b, call->op, to->args);
  return ascend(a, status);
}

// The operands' own level converts them first, all: then they do not differ again.
static px_status align_converted(px__batching *b, beneath *to) {
  px_call *call = b->call;
  PX_TRY(px__call_agree(call));
  PX_TRY(px__call_promote(call));
  uint32_t mask = UINT32_MAX & ~px__impl(call->op)->masks;
  if (call->mode == PX_CALL_INPLACE) mask &= ~1u;
  PX_TRY(put_each(to, b, mask, make_converted, call->compute));
  void *result[1] = {NULL};
  PX_TRY(px_op_call(call->op, call->mode, to->args, result));
  call->results[0] = result[0];
  return PX_OK;
}

px_status px__batch_operands(px__batching *b) {
  beneath to;
  bool converts = b->call->op->kind == PX_OP_POINTWISE && promotes_otherwise(b);
  PX_TRY(start_beneath(&to, b->call));
  return end_beneath(&to, converts ? align_converted(b, &to) : align_beneath(b, &to));
}

// ---- the mapped dimension before the others

static bool names_dims(const char *name) {
  return !strncmp(name, "dim", 3) || !strcmp(name, "start_dim") || !strcmp(name, "end_dim");
}
static bool names_sizes(const char *name) {
  return !strncmp(name, "size", 4) || !strncmp(name, "input_size", 10);
}

// Moves dimensions by the mapped one: those that are counted from the end stay. `room` is for a
// list.
static px_status shift_dims(px_value *arg, int ndim, int64_t *room) {
  int wrapped;
  if (arg->kind == PX_ARG_INT) {
    PX_TRY(px__wrap_dim(&wrapped, arg->v.i, ndim));
    arg->v.i = wrapped + 1;
  } else if (arg->kind == PX_ARG_INTS) {
    PX_CHECK(arg->n <= PX_MAX_DIMS, PX_VALUE, "a tensor has at most %d dimensions", PX_MAX_DIMS);
    for (int k = 0; k < arg->n; k++) {
      PX_TRY(px__wrap_dim(&wrapped, arg->v.ints[k], ndim));
      room[k] = wrapped + 1;
    }
    arg->v.ints = room;
  }
  return PX_OK;
}

static px_status shift_sizes(px_value *arg, int64_t size, int64_t *room) {
  if (arg->kind != PX_ARG_INTS) return PX_OK;
  PX_CHECK(arg->n < PX_MAX_DIMS, PX_RUNTIME, "only tensors with up to %d dims are supported",
           PX_MAX_DIMS);
  room[0] = size;
  px__sizes_copy(room + 1, arg->v.ints, arg->n);
  *arg = PX_IS(room, arg->n + 1);
  return PX_OK;
}

enum { LISTS = 4 };
static px_status shift_numbers(px__batching *b, px_value *args, int ndim,
                               int64_t rooms[LISTS][PX_MAX_DIMS + 1]) {
  const px_op *op = b->call->op;
  int used = 0;
  for (int i = 0; i < op->param_count; i++) {
    bool dims = names_dims(op->params[i].name), sizes = names_sizes(op->params[i].name);
    if (!(dims || sizes)) continue;
    PX_CHECK(used < LISTS, PX_BUG, "%s has too many lists of dimensions", op->name);
    if (dims)
      PX_TRY(shift_dims(&args[i], ndim, rooms[used++]));
    else
      PX_TRY(shift_sizes(&args[i], b->size, rooms[used++]));
  }
  return PX_OK;
}

static px_status make_whole(px_tensor **out, const px__batching *b, px_tensor *t, int64_t unused) {
  return px__batch_whole(out, b, t);
}

static uint32_t mask_of(const px_op *op) {
  return px__impl(op)->batch_mask ? px__impl(op)->batch_mask : UINT32_MAX;
}

// How many dimensions the tensors have that the mapped one comes before: of the first in a list or
// alone, or of the sizes that are given; and whether one that has none has a dimension all the
// same, 0 or -1, which does not move.
static int ndim_of(const px__batching *b, bool *number) {
  const px_call *call = b->call;
  int ndim = -1;
  for (int i = 0; i < call->op->param_count; i++) {
    px_value a = call->args[i];
    const px_tensor *t = a.kind == PX_ARG_TENSOR               ? a.v.tensor
                         : a.kind == PX_ARG_TENSORS && a.n > 0 ? a.v.tensors[0]
                                                               : NULL;
    if (t && (mask_of(call->op) >> i & 1)) {
      *number |= t->ndim == 0;
      if (ndim < 0) ndim = t->ndim;
    }
    if (a.kind == PX_ARG_INTS && names_sizes(call->op->params[i].name)) ndim = a.n;
  }
  return ndim < 0 ? 0 : ndim;
}

static bool has_dims(const px_op *op) {
  for (int i = 0; i < op->param_count; i++)
    if (names_dims(op->params[i].name)) return true;
  return false;
}

static bool list_mapped(const px__batching *b, px_value a) {
  for (int k = 0; a.kind == PX_ARG_TENSORS && k < a.n; k++)
    if (px__is_mapped(b, a.v.tensors[k])) return true;
  return a.kind == PX_ARG_TENSOR && px__is_mapped(b, a.v.tensor);
}

// Whether a tensor is mapped that the rule has no place for.
static bool maps_others(const px__batching *b) {
  for (int i = 0; i < b->call->op->param_count; i++)
    if (!(mask_of(b->call->op) >> i & 1) && list_mapped(b, b->call->args[i])) return true;
  return false;
}

// With the channels last: beneath there is a dimension more than memory formats have. So they are
// moved there, and what is made row-major is moved back.
static px_status make_turned(px_tensor **out, const px__batching *b, px_tensor *t, int64_t unused) {
  int64_t from = 2, to = -1;
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px__batch_whole(&whole, b, t));
  return px_movedim(out, whole, &from, 1, &to, 1);
}
static px_status turn_back(px__batching *b) {
  int64_t from = -1, to = 2;
  px_tensor *made = NULL, *turned = b->call->results[0]->physical;
  PX_TRY(px_movedim(&made, turned, &from, 1, &to, 1));
  px_release(b->call->results[0]);
  b->call->results[0] = NULL;
  return px__batch_give(b, 0, made);
}

// The parameter that asks for channels_last; -1 if none does.
static int asks_turned(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_TEXT && !strcmp(call->op->params[i].name, "memory_format") &&
        !strncmp(call->args[i].v.text, "channels_last", 13))
      return i;
  return -1;
}

static px_status shift_beneath(px__batching *b, beneath *to, int ndim) {
  int64_t rooms[LISTS][PX_MAX_DIMS + 1];
  int turned = asks_turned(b->call);
  PX_TRY(shift_numbers(b, to->args, ndim, rooms));
  if (turned >= 0) {
    px_memory_format format;
    int64_t strides[PX_MAX_DIMS];
    const px_tensor *self = px__arg_tensor(b->call, PX__SELF);
    PX_TRY(px_memory_format_parse(&format, to->args[turned].v.text));
    PX_TRY(px__format_strides(strides, self->ndim, self->sizes, format));
    to->args[turned] = PX_TX("contiguous_format");
  }
  above a = descend(b->level);
  px_status status =
      put_each(to, b, mask_of(b->call->op), turned >= 0 ? make_turned : make_whole, 0);
  if (status == PX_OK) status = call_beneath(b, b->call->op, to->args);
  if (status == PX_OK && turned >= 0) status = turn_back(b);
  return ascend(a, status);
}

static px_status shift(px__batching *b, bool grow) {
  beneath to;
  bool number = false;
  int ndim = ndim_of(b, &number) + grow;
  if (maps_others(b)) return px__batch_loop(b, false);
  if (number && !grow && has_dims(b->call->op)) return px__batch_loop(b, true);
  PX_TRY(start_beneath(&to, b->call));
  return end_beneath(&to, shift_beneath(b, &to, ndim));
}

px_status px__batch_shift(px__batching *b) { return shift(b, false); }

// ---- the mapped dimension and the first made one

static px_status make_merged(px_tensor **out, const px__batching *b, px_tensor *t, int64_t unused) {
  PX_SCOPED(px_tensor) whole = NULL;
  PX_TRY(px__batch_whole(&whole, b, t));
  *out = NULL;
  return whole ? px_flatten(out, whole, 0, 1) : PX_OK;
}

static px_status unmerge(px__batching *b, int i) {
  px_tensor *made = NULL, *merged = b->call->results[i]->physical;
  int64_t sizes[2] = {b->size, merged->sizes[0] / b->size};
  PX_TRY(px_unflatten(&made, merged, 0, sizes, 2));
  px_release(b->call->results[i]);
  b->call->results[i] = NULL;
  return px__batch_give(b, i, made);
}

static px_status merge_beneath(px__batching *b, beneath *to) {
  const px_op *op = b->call->op;
  int64_t room[PX_MAX_DIMS];
  for (int i = 0; i < op->param_count; i++) {
    px_value *arg = &to->args[i];
    if (arg->kind != PX_ARG_INTS || !names_sizes(op->params[i].name) || !arg->n) continue;
    px__sizes_copy(room, arg->v.ints, arg->n);
    room[0] *= b->size;
    arg->v.ints = room;
  }
  above a = descend(b->level);
  px_status status = put_each(to, b, mask_of(op), make_merged, 0);
  if (status == PX_OK) status = call_beneath(b, op, to->args);
  for (int i = 0; status == PX_OK && i < op->result_count; i++) status = unmerge(b, i);
  return ascend(a, status);
}

px_status px__batch_merge(px__batching *b) {
  beneath to;
  if (maps_others(b) || b->size == 0) return px__batch_loop(b, false);
  PX_TRY(start_beneath(&to, b->call));
  return end_beneath(&to, merge_beneath(b, &to));
}

// ---- reductions

// Those without a parameter `dim` are called as another that has it.
static const px_op *folding_op(const px_op *op) {
  const char *as = px__impl(op)->batch_as;
  return as ? px_op_find(as) : op;
}

typedef struct folding {
  const px_op *op;
  px_value args[PX__MAX_PARAMS];
  int64_t dims[PX_MAX_DIMS];
  int ndim;   // of a place
  bool flat;  // all dimensions are reduced, as one
  bool keep;
} folding;

static int param_named(const px_op *op, const char *name) {
  for (int i = 0; i < op->param_count; i++)
    if (!strcmp(op->params[i].name, name)) return i;
  return -1;
}

static void fold_arguments(const px_call *call, folding *f) {
  for (int i = 0; i < f->op->param_count; i++) {
    int from = param_named(call->op, f->op->params[i].name);
    f->args[i] = from >= 0 ? call->args[from] : PX_NONE();
  }
}

// All dimensions of a place, or those given, moved by one.
static px_status fold_dims(const px_call *call, folding *f) {
  int at = param_named(f->op, "dim");
  px_value *dim = &f->args[at];
  bool given = dim->kind == PX_ARG_INTS;
  bool none_is_none = given && px__impl(call->op)->promotion == PX__PROMOTE_FIRST &&
                      px__impl(call->op)->result_dtypes[0] == PX_BOOL;
  bool all = dim->kind == PX_ARG_NONE || (given && dim->n == 0 && !none_is_none);
  if (all && f->op->params[at].kind == PX_ARG_INT) {
    f->flat = true;
    *dim = PX_I(1);
    return PX_OK;
  }
  if (!all) return shift_dims(dim, f->ndim, f->dims);
  for (int d = 0; d < f->ndim; d++) f->dims[d] = d + 1;
  *dim = PX_IS(f->dims, f->ndim);
  return PX_OK;
}

static px_status fold_input(px_tensor **out, px_tensor *all, const folding *f) {
  *out = NULL;
  if (f->flat && all->ndim > 2) return px_flatten(out, all, 1, -1);
  if (all->ndim == 1) return px_unsqueeze(out, all, 1);
  *out = px_retain(all);
  return PX_OK;
}

// A result of the flat form, or of a number that got a dimension, with the sizes that it should
// have.
static px_status fold_result(px__batching *b, const folding *f, px_tensor *made_take, int i) {
  PX_SCOPED(px_tensor) made = made_take;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  const px_tensor *self = px__arg_tensor(b->call, PX__SELF);
  bool number = self->ndim == 0;
  if (!number && !(f->flat && f->keep)) return px__batch_give(b, i, PX_MOVE(made));
  int n = number ? 0 : self->ndim;
  for (int d = 0; d < n; d++) sizes[1 + d] = 1;
  px_tensor *shaped = NULL;
  PX_TRY(px_reshape(&shaped, made, sizes, n + 1));
  return px__batch_give(b, i, shaped);
}

static px_status fold_beneath(px__batching *b, folding *f) {
  PX_SCOPED(px_tensor) input = NULL;
  void *results[PX__MAX_RESULTS] = {0};
  PX_TRY(fold_input(&input, px__arg_tensor(b->call, PX__SELF)->physical, f));
  f->args[PX__SELF] = PX_T(input);
  PX_TRY(px_op_call(f->op, PX_CALL_NEW, f->args, results));
  px_status status = PX_OK;
  for (int i = 0; i < f->op->result_count; i++) {
    if (status == PX_OK)
      status = fold_result(b, f, results[i], i);
    else
      px_release(results[i]);
  }
  return status;
}

static px_status batch_fold(px__batching *b) {
  const px_call *call = b->call;
  folding f = {.op = folding_op(call->op)};
  int ndim = px__arg_tensor(call, PX__SELF)->ndim;
  f.ndim = ndim ? ndim : 1;
  fold_arguments(call, &f);
  int keep = param_named(f.op, "keepdim");
  f.keep = keep >= 0 && f.args[keep].v.i != 0;
  PX_TRY(fold_dims(call, &f));
  if (f.flat && keep >= 0) f.args[keep] = PX_B(false);
  above a = descend(b->level);
  return ascend(a, fold_beneath(b, &f));
}

// ---- a call for each place

static px_status make_place(px_tensor **out, const px__batching *b, px_tensor *t, int64_t place) {
  *out = NULL;
  if (px__is_mapped(b, t)) return px_select(out, t->physical, 0, place);
  *out = px_retain(t);
  return PX_OK;
}

// Results of the places: those of result i begin at i * size.
static px_status call_place(px__batching *b, px_tensor **made, int64_t place) {
  void *results[PX__MAX_RESULTS] = {0};
  beneath to;
  PX_TRY(start_beneath(&to, b->call));
  px_status status = put_each(&to, b, UINT32_MAX, make_place, place);
  if (status == PX_OK) status = px_op_call(b->call->op, b->call->mode, to.args, results);
  PX_TRY(end_beneath(&to, status));
  for (int i = 0; i < b->call->op->result_count; i++) made[i * b->size + place] = results[i];
  return PX_OK;
}

static px_status join_places(px__batching *b, px_tensor **made) {
  for (int i = 0; i < b->call->op->result_count; i++) {
    px_tensor *all = NULL;
    if (b->call->mode == PX_CALL_NEW) PX_TRY(px_stack(&all, made + i * b->size, b->size, 0));
    PX_TRY(px__batch_give(b, i, all));
  }
  return PX_OK;
}

static px_status call_places(px__batching *b, px_tensor **made) {
  above a = descend(b->level);
  px_status status = PX_OK;
  for (int64_t place = 0; status == PX_OK && place < b->size; place++)
    status = call_place(b, made, place);
  if (status == PX_OK) status = join_places(b, made);
  return ascend(a, status);
}

px_status px__batch_loop(px__batching *b, bool quiet) {
  const px_op *op = b->call->op;
  PX_CHECK(!(op->flags & PX_OP_RETURNS_LIST), PX_UNIMPLEMENTED,
           "Batching rule not implemented for aten::%s. We could not generate a fallback.",
           op->name);
  PX_CHECK(b->size > 0, PX_RUNTIME,
           "The fallback path does not support vmap over dims of size 0; there is no batching rule "
           "for aten::%s",
           op->name);
  if (!quiet)
    PX_TRY(px_warn(PX_WARN_USER,
                   "There is a performance drop because we have not yet implemented the batching "
                   "rule for aten::%s. Please file us an issue on GitHub so that we can prioritize "
                   "its implementation.",
                   op->name));
  px_tensor **made;
  size_t count = (size_t)b->size * op->result_count;
  PX_TRY(px__alloc((void **)&made, count * sizeof *made));
  px_status status = call_places(b, made);
  for (size_t i = 0; i < count; i++) px_release(made[i]);
  px__free(made);
  return status;
}

// ---- random numbers

static px_status refuse_random(void) {
  PX_FAIL(PX_RUNTIME,
          "vmap: called random operation while in randomness error mode. Please either use the "
          "'same' or 'different' randomness flags on vmap or perform the randomness operation out "
          "of vmap");
}

// The same numbers for all places: those of one place are drawn, and the others get copies.
static px_status draw_same(px__batching *b) {
  px_call *call = b->call;
  px_value args[PX__MAX_PARAMS];
  px_tensor *self = call->given[0];
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) copy = NULL;
  void *drawn[1] = {NULL};
  memcpy(args, call->args, call->op->param_count * sizeof *args);
  PX_TRY(px_select(&one, self->physical, 0, 0));
  PX_TRY(px_clone(&copy, one, NULL));
  args[PX__SELF] = PX_T(copy);
  PX_TRY(px_op_call(call->op, PX_CALL_INPLACE, args, drawn));
  px_release(drawn[0]);
  PX_TRY(px_copy_(self->physical, copy, false));
  call->results[0] = px_retain(self);
  return PX_OK;
}

static int mapped_tensors(const px__batching *b) {
  int n = 0;
  for (int i = 0; i < b->call->op->param_count; i++) n += list_mapped(b, b->call->args[i]);
  return n;
}

static px_status batch_random(px__batching *b, px_randomness randomness) {
  px_call *call = b->call;
  if (randomness == PX_RANDOMNESS_ERROR) return refuse_random();
  bool inplace = call->mode == PX_CALL_INPLACE;
  PX_CHECK(inplace || randomness == PX_RANDOMNESS_DIFFERENT, PX_UNIMPLEMENTED,
           "vmap: %s of batched tensors with randomness='same' is not implemented",
           call->op->python_name);
  PX_CHECK(!inplace || px__is_mapped(b, call->given[0]), PX_RUNTIME,
           "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will "
           "appear like same randomness. If this is necessary for your usage, please file an issue "
           "with functorch.");
  if (!inplace || mapped_tensors(b) > 1) return px__batch_loop(b, true);
  if (randomness == PX_RANDOMNESS_DIFFERENT) return px__batch_operands(b);
  above a = descend(b->level);
  return ascend(a, draw_same(b));
}

// ---- the choice of a rule

static px__batch_rule rule_of(const px_op *op) {
  px__batch_rule rule = (px__batch_rule)px__impl(op)->batch;
  if (rule != PX__BATCH_BY_KIND) return rule;
  switch (op->kind) {
    case PX_OP_POINTWISE:
      return PX__BATCH_ALIGN;
    case PX_OP_VIEW:
    case PX_OP_COMPOSITE:
      return PX__BATCH_ITSELF;
    default:
      return PX__BATCH_LOOP;
  }
}

static px_status run_rule(px__batching *b) {
  above a = descend(b->level);
  b->above = &a;
  return ascend(a, px__impl(b->call->op)->batch_run(b));
}

px_status px__batch_itself(px__batching *b) {
  (void)ascend(*b->above, PX_OK);
  px_status status = px__impl(b->call->op)->run(b->call);
  *b->above = descend(b->level);
  return status;
}

static px_status apply(px__batching *b) {
  const px_op *op = b->call->op;
  if (op->kind == PX_OP_REDUCE && !px__impl(op)->batch) return batch_fold(b);
  switch (rule_of(op)) {
    case PX__BATCH_ALIGN:
      return px__batch_operands(b);
    case PX__BATCH_SHIFT:
      return shift(b, false);
    case PX__BATCH_GROW:
      return shift(b, true);
    case PX__BATCH_MERGE:
      return px__batch_merge(b);
    case PX__BATCH_REFUSE:
      PX_FAIL(PX_RUNTIME, "%s", px__impl(op)->batch_text);
    case PX__BATCH_RUN:
      return run_rule(b);
    default:
      return px__batch_loop(b, false);
  }
}

static void look(px__batching *b, const px_tensor *t) {
  if (!t || !px__is_batched(t) || t->level <= b->level) return;
  b->level = t->level;
  b->size = t->physical->sizes[0];
}

// The deepest level among the tensors of a call; 0: there is none.
static void find_level(px__batching *b) {
  const px_call *call = b->call;
  for (int i = 0; i < call->op->param_count; i++) {
    px_value a = call->args[i];
    if (a.kind == PX_ARG_TENSOR) look(b, a.v.tensor);
    for (int k = 0; a.kind == PX_ARG_TENSORS && k < a.n; k++) look(b, a.v.tensors[k]);
  }
  for (int i = 0; call->mode == PX_CALL_OUT && i < call->op->result_count; i++)
    look(b, call->given[i]);
}

// In place, what is written has a place for each of what is read.
static px_status check_inplace(const px__batching *b) {
  const px_call *call = b->call;
  PX_CHECK(call->mode != PX_CALL_OUT, PX_RUNTIME,
           "Batching rule not implemented for aten::%s.out; the fallback path doesn't work on out= "
           "or view ops.",
           call->op->name);
  if (call->mode != PX_CALL_INPLACE || px__is_mapped(b, call->given[0])) return PX_OK;
  bool each = call->op->kind == PX_OP_POINTWISE;
  PX_FAIL(PX_RUNTIME,
          "vmap: %s%s(self, *extra_args) is not possible because there exists a Tensor `other` in "
          "extra_args that has more elements than `self`. This happened due to `other` being "
          "vmapped over but `self` not being vmapped over in a vmap. Please try to use "
          "out-of-place operators instead of inplace arithmetic. If said operator is being called "
          "inside the PyTorch framework, please file a bug report instead.",
          each ? "inplace arithmetic" : call->op->name, each ? "" : "_");
}

// Numbers that no batched tensor asks for, in the innermost mapping.
static px_status draw_plain(px__batching *b, bool *taken) {
  const px_call *call = b->call;
  mapping m = *mapping_at(here.depth);
  // A composite may draw nothing after all (dropout in evaluation): what it calls will tell.
  bool draws = call->op->kind != PX_OP_COMPOSITE || (call->op->flags & PX_OP_IS_FACTORY) ||
               (call->mode == PX_CALL_NEW && m.randomness == PX_RANDOMNESS_DIFFERENT);
  if (!draws || m.randomness == PX_RANDOMNESS_SAME) return PX_OK;
  b->level = here.depth, b->size = m.size;
  *taken = true;
  if (m.randomness == PX_RANDOMNESS_ERROR) return refuse_random();
  return call->mode == PX_CALL_NEW ? px__batch_loop(b, true) : batch_random(b, m.randomness);
}

static px_status call_batched(px_call *call, bool *taken) {
  const px_op *op = call->op;
  px__batching b = {.call = call};
  *taken = false;
  find_level(&b);
  bool random = (op->flags & PX_OP_RANDOM) != 0;
  if (!b.level) return random && here.depth ? draw_plain(&b, taken) : PX_OK;
  if (rule_of(op) == PX__BATCH_ITSELF) return PX_OK;
  *taken = true;
  PX_TRY(check_inplace(&b));
  const mapping *m = mapping_at(b.level);
  px_randomness randomness = m ? m->randomness : PX_RANDOMNESS_ERROR;
  return random ? batch_random(&b, randomness) : apply(&b);
}

__attribute__((constructor)) static void serve(void) {
  px__batched_view = view_beneath;
  px__call_batched = call_batched;
}
