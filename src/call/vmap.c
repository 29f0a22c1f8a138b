// SPDX-License-Identifier: Apache-2.0
// vmap: calls of batched tensors. The batching rule of an op calls ops on the physical tensors, one
// level up.
//
// A rule's calls return here if the physical tensors are batched too. They are recorded for
// differentiation at their level; the driver then records the call at its own level. Most rules
// are words of an entry (`vmap`): they change the arguments, call the same op and wrap its
// results.
#include "call/vmap.h"
#include "conditions.h"

#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"
#include "phlox/vmap.h"

// ---- levels

typedef struct vmap_frame vmap_frame;
struct vmap_frame {
  vmap_frame *outer;
  int level;
  int64_t size;
  px_randomness randomness;
};
// `depth`: the level of new calls. It is below the innermost level while a rule runs.
static _Thread_local struct {
  vmap_frame *innermost;
  int depth;
} current;

int px_vmap_depth(void) { return current.depth; }
int64_t px_vmap_size(px_randomness *randomness) {
  if (!current.innermost) return -1;
  *randomness = current.innermost->randomness;
  return current.innermost->size;
}

static const vmap_frame *frame_at(int level) {
  const vmap_frame *m = current.innermost;
  while (m && m->level != level) m = m->outer;
  return m;
}

px_status px_vmap_begin(int *level, int64_t size, px_randomness randomness) {
  PX_GIVEN(level);
  PX_CHECK(size >= 0, PX_VALUE, "px_vmap_begin: expected a size of at least 0, got %lld",
           (long long)size);
  PX_CHECK(current.depth < PX_VMAP_LEVELS, PX_RUNTIME, "vmap can be nested at most %d levels deep",
           PX_VMAP_LEVELS);
  vmap_frame *frame;
  PX_TRY(PX_NEW(&frame));
  *frame = (vmap_frame){current.innermost, current.depth + 1, size, randomness};
  current.innermost = frame;
  current.depth = *level = frame->level;
  __atomic_add_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
  return PX_OK;
}

void px_vmap_end(void) {
  vmap_frame *ended = current.innermost;
  if (!ended) return;
  current.innermost = ended->outer;
  current.depth = ended->level - 1;
  px__free(ended);
  __atomic_sub_fetch(&px__special_calls, 1, __ATOMIC_RELAXED);
}

bool px_tensor_is_batched(const px_tensor *self) { return px__is_batched(self); }
int px_tensor_batch_level(const px_tensor *self) { return px__is_batched(self) ? self->level : 0; }
px_tensor *px_tensor_physical(const px_tensor *self) { return self->physical; }

// Thread state saved by `enter_level` and restored by `leave_level`.
typedef struct saved_level {
  int depth;
  px_recording_state descent;
} saved_level;
static saved_level enter_level(int level) {
  saved_level a = {current.depth, {0, 0}};
  current.depth = level - 1;
  if (px__hooks && px__hooks->swap_recording)
    a.descent = px__hooks->swap_recording((px_recording_state){0, level});
  return a;
}
static px_status leave_level(saved_level a, px_status status) {
  current.depth = a.depth;
  if (px__hooks && px__hooks->swap_recording) (void)px__hooks->swap_recording(a.descent);
  return status;
}

// ---- tensors of the innermost level

static px_status check_inside(const char *name) {
  PX_CHECK(current.depth, PX_RUNTIME, "%s: called outside of px_vmap_begin and px_vmap_end", name);
  return PX_OK;
}

px_status px_batch(px_tensor **out, px_tensor *self, int64_t dim) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  *out = NULL;
  int d, level = current.depth;
  int64_t first = 0;
  PX_TRY(check_inside("px_batch"));
  PX_CHECK(self->ndim > 0, PX_INDEX,
           "px_batch: expected a tensor with dimensions, got a 0-dim tensor");
  PX_TRY(px__wrap_dim(&d, dim, self->ndim));
  PX_CHECK(self->sizes[d] == frame_at(level)->size, PX_VALUE,
           "px_batch: dimension %d has size %lld, but the level has size %lld", d,
           (long long)self->sizes[d], (long long)frame_at(level)->size);
  PX_SCOPED(px_tensor) moved = d ? NULL : px_retain(self);
  saved_level a = enter_level(level);
  PX_TRY(leave_level(a, d ? px_movedim(&moved, self, &dim, 1, &first, 1) : PX_OK));
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
  int d, level = current.depth;
  int64_t first = 0;
  PX_TRY(check_inside("px_unbatch"));
  PX_TRY(px__wrap_dim(&d, dim, self->ndim + 1));
  bool mapped = px_tensor_batch_level(self) == level;
  PX_SCOPED(px_tensor) batched = mapped ? px_retain(self->physical) : NULL;
  saved_level a = enter_level(level);
  px_status status = mapped ? PX_OK : repeat(&batched, self, frame_at(level)->size);
  if (status == PX_OK && d) status = px_movedim(out, batched, &first, 1, &dim, 1);
  PX_TRY(leave_level(a, status));
  if (!d) *out = PX_MOVE(batched);
  return PX_OK;
}

// ---- views

static bool same_dims(const px_tensor *t, const int64_t *sizes, const int64_t *strides, int d,
                      int k) {
  return t->sizes[d] == sizes[k] && t->strides[d] == strides[k];
}

// True if the geometry is a permutation of t's dimensions. Gradients of permutations are simpler
// than those of arbitrary geometries.
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
  bool same_offset = offset == t->offset;
  if (same_offset && is_permuted(t, ndim, sizes, strides, dims))
    return px_permute(out, t, dims, ndim);
  bool possible = false;
  int64_t view_sizes[PX_MAX_DIMS], found[PX_MAX_DIMS];
  px__sizes_copy(view_sizes, sizes, ndim);
  if (same_offset && t->numel == px__sizes_product(sizes, ndim) && t->numel)
    PX_TRY(px__view_strides(&possible, t, ndim, view_sizes, found));
  if (possible && (!ndim || !memcmp(found, strides, (size_t)ndim * sizeof *found)))
    return px_view(out, t, sizes, ndim);
  return px_as_strided(out, t, sizes, ndim, strides, ndim, &offset);
}

static px_status view_physical(px_tensor **out, px_tensor *physical, int level, int ndim,
                               const int64_t *sizes, const int64_t *strides, int64_t offset) {
  int64_t physical_sizes[PX_MAX_DIMS + 1] = {physical->sizes[0]};
  int64_t physical_strides[PX_MAX_DIMS + 1] = {physical->strides[0]};
  PX_TRY(px__check_ndim((int64_t)ndim + 1));
  px__sizes_copy(physical_sizes + 1, sizes, ndim);
  px__sizes_copy(physical_strides + 1, strides, ndim);
  saved_level a = enter_level(level);
  return leave_level(a, view_as(out, physical, ndim + 1, physical_sizes, physical_strides, offset));
}

// ---- helpers of rules

// Inserts n dimensions of size 1 after the first.
static px_status with_ones(px_tensor **out, px_tensor *t, int n) {
  int64_t sizes[PX_MAX_DIMS + 1];
  PX_TRY(px__check_ndim((int64_t)t->ndim + n));
  sizes[0] = t->sizes[0];
  for (int d = 0; d < n; d++) sizes[1 + d] = 1;
  px__sizes_copy(sizes + 1 + n, t->sizes + 1, t->ndim - 1);
  return px_view(out, t, sizes, t->ndim + n);
}

px_status px__vmap_physical(px_tensor **out, const px__vmap_call *b, px_tensor *t, int ndim) {
  *out = NULL;
  if (px__is_mapped(b, t) && t->ndim < ndim) return with_ones(out, t->physical, ndim - t->ndim);
  *out = px_retain(px__is_mapped(b, t) ? t->physical : t);
  return PX_OK;
}

px_status px__vmap_ensure_batch_dim(px_tensor **out, const px__vmap_call *b, px_tensor *t) {
  *out = NULL;
  if (t && !px__is_mapped(b, t)) return repeat(out, t, b->size);
  *out = px_retain(t ? t->physical : NULL);
  return PX_OK;
}

px_status px__vmap_set_result(px__vmap_call *b, int i, px_tensor *made_take) {
  PX_SCOPED(px_tensor) made = made_take;
  if (b->call->mode == PX_CALL_INPLACE) {
    b->call->results[i] = px_retain(b->call->given[i]);
    return PX_OK;
  }
  PX_CHECK(made->ndim > 0, PX_RUNTIME,
           "vmap: %s of these sizes has a result without the batch dimension", b->call->op->name);
  return px__batched_new(&b->call->results[i], made, b->level);
}

px_status px__vmap_sizes(int64_t *buffer, const px__vmap_call *b, px_value sizes) {
  PX_TRY(px__check_ndim((int64_t)sizes.n + 1));
  buffer[0] = b->size;
  px__sizes_copy(buffer + 1, sizes.v.ints, sizes.n);
  return PX_OK;
}

px_status px__vmap_scale_size(px_value *sizes, int64_t *buffer, int dim, int64_t by) {
  PX_TRY(px__check_ndim(sizes->n));
  PX_CHECK(dim < sizes->n, PX_RUNTIME, "expected at least %d sizes, got %d", dim + 1, sizes->n);
  px__sizes_copy(buffer, sizes->v.ints, sizes->n);
  buffer[dim] = px__product(buffer[dim], by);
  sizes->v.ints = buffer;
  return PX_OK;
}

// Arguments of the physical call. Owns the tensors made for it.
typedef struct physical_args {
  px_value args[PX__MAX_PARAMS];
  px_tensor **made;
  int count;
} physical_args;

static int tensors_in(const px_call *call) {
  int n = 0;
  for (int i = 0; i < call->op->param_count; i++)
    n += call->args[i].kind == PX_ARG_TENSOR    ? 1
         : call->args[i].kind == PX_ARG_TENSORS ? call->args[i].n
                                                : 0;
  return n;
}

static px_status begin_args(physical_args *to, const px_call *call) {
  memcpy(to->args, call->args, call->op->param_count * sizeof *to->args);
  to->made = NULL, to->count = 0;
  return px__alloc((void **)&to->made, (size_t)(tensors_in(call) + 2) * sizeof *to->made);
}
static px_status end_args(physical_args *to, px_status status) {
  for (int i = 0; i < to->count; i++) px_release(to->made[i]);
  px__free(to->made);
  return status;
}

// Replaces each tensor argument by the result of `make`. `mask`: bits of the parameters to replace.
static px_status map_tensors(physical_args *to, const px__vmap_call *b, uint32_t mask,
                             px__vmap_transform make, int64_t number) {
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

static px_status call_physical(px__vmap_call *b, const px_op *op, const px_value *args) {
  void *results[PX__MAX_RESULTS] = {0};
  PX_TRY(px_op_call(op, b->call->mode, args, results));
  px_status status = PX_OK;
  for (int i = 0; i < op->result_count; i++) {
    if (status == PX_OK && results[i])
      status = px__vmap_set_result(b, i, results[i]);
    else
      px_release(results[i]);
  }
  return status;
}

// ---- pointwise: align

static px_status make_aligned(px_tensor **out, const px__vmap_call *b, px_tensor *t, int64_t ndim) {
  return px__vmap_physical(out, b, t, (int)ndim);
}

static int max_ndim(const px_call *call) {
  int ndim = 0;
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (t && t->ndim > ndim) ndim = t->ndim;
  }
  return ndim;
}
int px__vmap_rank(const px__vmap_call *b) { return max_ndim(b->call); }

// True if a batched 0-dim tensor differs in dtype from another operand. Its physical tensor has a
// dimension and so would take precedence in promotion. In place, a 0-dim self keeps its dtype.
static bool promotes_differently(const px__vmap_call *b) {
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

static px_status make_converted(px_tensor **out, const px__vmap_call *b, px_tensor *t,
                                int64_t dtype) {
  *out = NULL;
  return t ? px_to(out, t, (px_dtype)dtype, PX_DEVICE_NONE, false, false) : PX_OK;
}

// Adds the batch dimension to self of ops that write or fill it and are not pointwise.
static px_status ensure_self(physical_args *to, const px__vmap_call *b) {
  px_tensor *self = b->call->args[PX__SELF].v.tensor;
  if (b->call->op->kind == PX_OP_POINTWISE || px__is_mapped(b, self)) return PX_OK;
  PX_TRY(px__vmap_ensure_batch_dim(&to->made[to->count], b, self));
  to->args[PX__SELF].v.tensor = to->made[to->count++];
  return PX_OK;
}

static px_status align_physical(px__vmap_call *b, physical_args *to) {
  px_call *call = b->call;
  int ndim = max_ndim(call);
  saved_level a = enter_level(b->level);
  px_status status = map_tensors(to, b, UINT32_MAX, make_aligned, ndim);
  if (status == PX_OK) status = ensure_self(to, b);
  if (status == PX_OK) status = call_physical(b, call->op, to->args);
  return leave_level(a, status);
}

// Converts all operands at their own level first. In place, self keeps its dtype: its physical
// tensor has dimensions, and promotes with those of the others to the same dtype.
static px_status align_converted(px__vmap_call *b, physical_args *to) {
  px_call *call = b->call;
  physical_args converted;
  PX_TRY(px__call_find_device(call));
  PX_TRY(px__call_promote(call));
  uint32_t mask = UINT32_MAX & ~px__impl(call->op)->masks;
  if (call->mode == PX_CALL_INPLACE) mask &= ~1u;
  PX_TRY(map_tensors(to, b, mask, make_converted, call->compute));
  PX_TRY(begin_args(&converted, call));
  memcpy(converted.args, to->args, call->op->param_count * sizeof *to->args);
  return end_args(&converted, align_physical(b, &converted));
}

px_status px__vmap_align(px__vmap_call *b) {
  physical_args to;
  bool converts = b->call->op->kind == PX_OP_POINTWISE && promotes_differently(b);
  PX_TRY(begin_args(&to, b->call));
  return end_args(&to, converts ? align_converted(b, &to) : align_physical(b, &to));
}

// ---- the batch dimension before the others: shift, grow

static bool is_dim_param(const char *name) {
  return !strncmp(name, "dim", 3) || !strcmp(name, "start_dim") || !strcmp(name, "end_dim");
}
static bool is_size_param(const char *name) {
  return !strncmp(name, "size", 4) || !strncmp(name, "input_size", 10);
}

// Increments dimensions by one for the batch dimension. Negative ones are wrapped first. `buffer`
// holds a list.
static px_status shift_dims(px_value *arg, int ndim, int64_t *buffer) {
  int wrapped;
  if (arg->kind == PX_ARG_INT) {
    PX_TRY(px__wrap_dim(&wrapped, arg->v.i, ndim));
    arg->v.i = wrapped + 1;
  } else if (arg->kind == PX_ARG_INTS) {
    PX_TRY(px__check_ndim(arg->n));
    for (int k = 0; k < arg->n; k++) {
      PX_TRY(px__wrap_dim(&wrapped, arg->v.ints[k], ndim));
      buffer[k] = wrapped + 1;
    }
    arg->v.ints = buffer;
  }
  return PX_OK;
}

static px_status shift_sizes(px_value *arg, const px__vmap_call *b, int64_t *buffer) {
  if (arg->kind != PX_ARG_INTS) return PX_OK;
  PX_TRY(px__vmap_sizes(buffer, b, *arg));
  *arg = PX_IS(buffer, arg->n + 1);
  return PX_OK;
}

enum { LISTS = 4 };
static px_status shift_numbers(px__vmap_call *b, px_value *args, int ndim,
                               int64_t buffers[LISTS][PX_MAX_DIMS + 1]) {
  const px_op *op = b->call->op;
  int used = 0;
  for (int i = 0; i < op->param_count; i++) {
    bool dims = is_dim_param(op->params[i].name), sizes = is_size_param(op->params[i].name);
    if (!(dims || sizes)) continue;
    PX_CHECK(used < LISTS, PX_BUG, "%s has too many lists of dimensions", op->name);
    if (dims)
      PX_TRY(shift_dims(&args[i], ndim, buffers[used++]));
    else
      PX_TRY(shift_sizes(&args[i], b, buffers[used++]));
  }
  return PX_OK;
}

static px_status make_whole(px_tensor **out, const px__vmap_call *b, px_tensor *t, int64_t unused) {
  return px__vmap_ensure_batch_dim(out, b, t);
}

static uint32_t mapped_params(const px_op *op) {
  return px__impl(op)->vmap_mask ? px__impl(op)->vmap_mask : UINT32_MAX;
}

// Number of dimensions of a sample: from the first tensor, the first tensor of a list, or the given
// sizes. *number: a tensor is 0-dim. Its dimensions 0 and -1 do not move.
static int ndim_of(const px__vmap_call *b, bool *number) {
  const px_call *call = b->call;
  int ndim = -1;
  for (int i = 0; i < call->op->param_count; i++) {
    px_value a = call->args[i];
    const px_tensor *t = a.kind == PX_ARG_TENSOR               ? a.v.tensor
                         : a.kind == PX_ARG_TENSORS && a.n > 0 ? a.v.tensors[0]
                                                               : NULL;
    if (t && (mapped_params(call->op) >> i & 1)) {
      *number |= t->ndim == 0;
      if (ndim < 0) ndim = t->ndim;
    }
    if (a.kind == PX_ARG_INTS && is_size_param(call->op->params[i].name)) ndim = a.n;
  }
  return ndim < 0 ? 0 : ndim;
}

static bool has_dims(const px_op *op) {
  for (int i = 0; i < op->param_count; i++)
    if (is_dim_param(op->params[i].name)) return true;
  return false;
}

static bool has_mapped(const px__vmap_call *b, px_value a) {
  for (int k = 0; a.kind == PX_ARG_TENSORS && k < a.n; k++)
    if (px__is_mapped(b, a.v.tensors[k])) return true;
  return a.kind == PX_ARG_TENSOR && px__is_mapped(b, a.v.tensor);
}

// True if a tensor is batched that is not among the rule's parameters.
static bool maps_unlisted(const px__vmap_call *b) {
  for (int i = 0; i < b->call->op->param_count; i++)
    if (!(mapped_params(b->call->op) >> i & 1) && has_mapped(b, b->call->args[i])) return true;
  return false;
}

// Physical tensors have one dimension more than memory formats allow. Moves channels last, as a
// row-major tensor, and back in the result.
static px_status move_channels_last(px_tensor **out, const px__vmap_call *b, px_tensor *t,
                                    int64_t unused) {
  int64_t from = 2, to = -1;
  PX_SCOPED(px_tensor) batched = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, t));
  return px_movedim(out, batched, &from, 1, &to, 1);
}
static px_status move_channels_back(px__vmap_call *b) {
  int64_t from = -1, to = 2;
  px_tensor *made = NULL, *moved = b->call->results[0]->physical;
  PX_TRY(px_movedim(&made, moved, &from, 1, &to, 1));
  px_release(b->call->results[0]);
  b->call->results[0] = NULL;
  return px__vmap_set_result(b, 0, made);
}

// Index of the parameter that requests channels_last; -1 if none.
static int channels_last_param(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_TEXT && !strcmp(call->op->params[i].name, "memory_format") &&
        !strncmp(call->args[i].v.text, "channels_last", 13))
      return i;
  return -1;
}

static px_status shift_physical(px__vmap_call *b, physical_args *to, int ndim) {
  int64_t buffers[LISTS][PX_MAX_DIMS + 1];
  int format_param = channels_last_param(b->call);
  PX_TRY(shift_numbers(b, to->args, ndim, buffers));
  if (format_param >= 0) {
    px_memory_format format;
    int64_t strides[PX_MAX_DIMS];
    const px_tensor *self = px__arg_tensor(b->call, PX__SELF);
    PX_TRY(px_memory_format_parse(&format, to->args[format_param].v.text));
    PX_TRY(px__format_strides(strides, self->ndim, self->sizes, format));
    to->args[format_param] = PX_TX("contiguous_format");
  }
  saved_level a = enter_level(b->level);
  px_status status = map_tensors(to, b, mapped_params(b->call->op),
                                 format_param >= 0 ? move_channels_last : make_whole, 0);
  if (status == PX_OK) status = call_physical(b, b->call->op, to->args);
  if (status == PX_OK && format_param >= 0) status = move_channels_back(b);
  return leave_level(a, status);
}

static px_status shift(px__vmap_call *b, bool grow) {
  physical_args to;
  bool number = false;
  int ndim = ndim_of(b, &number) + grow;
  if (maps_unlisted(b)) return px__vmap_loop(b, false);
  if (number && !grow && has_dims(b->call->op)) return px__vmap_loop(b, true);
  PX_TRY(begin_args(&to, b->call));
  return end_args(&to, shift_physical(b, &to, ndim));
}

px_status px__vmap_shift(px__vmap_call *b) { return shift(b, false); }

// ---- the batch dimension merged with the first: merge

static px_status make_merged(px_tensor **out, const px__vmap_call *b, px_tensor *t,
                             int64_t unused) {
  PX_SCOPED(px_tensor) batched = NULL;
  PX_TRY(px__vmap_ensure_batch_dim(&batched, b, t));
  *out = NULL;
  return batched ? px_flatten(out, batched, 0, 1) : PX_OK;
}

static px_status unmerge(px__vmap_call *b, int i) {
  px_tensor *made = NULL, *merged = b->call->results[i]->physical;
  int64_t sizes[2] = {b->size, merged->sizes[0] / b->size};
  PX_TRY(px_unflatten(&made, merged, 0, sizes, 2));
  px_release(b->call->results[i]);
  b->call->results[i] = NULL;
  return px__vmap_set_result(b, i, made);
}

static px_status merge_physical(px__vmap_call *b, physical_args *to) {
  const px_op *op = b->call->op;
  int64_t buffer[PX_MAX_DIMS];
  for (int i = 0; i < op->param_count; i++) {
    px_value *arg = &to->args[i];
    if (arg->kind != PX_ARG_INTS || !is_size_param(op->params[i].name) || !arg->n) continue;
    PX_TRY(px__vmap_scale_size(arg, buffer, 0, b->size));
  }
  saved_level a = enter_level(b->level);
  px_status status = map_tensors(to, b, mapped_params(op), make_merged, 0);
  if (status == PX_OK) status = call_physical(b, op, to->args);
  for (int i = 0; status == PX_OK && i < op->result_count; i++) status = unmerge(b, i);
  return leave_level(a, status);
}

px_status px__vmap_merge(px__vmap_call *b) {
  physical_args to;
  if (maps_unlisted(b) || b->size == 0) return px__vmap_loop(b, false);
  PX_TRY(begin_args(&to, b->call));
  return end_args(&to, merge_physical(b, &to));
}

// ---- reductions

// Ops without a parameter `dim` are called as another op that has one.
static const px_op *reduction_op(const px_op *op) {
  const char *as = px__impl(op)->vmap_as;
  return as ? px_op_find(as) : op;
}

typedef struct reduction {
  const px_op *op;
  px_value args[PX__MAX_PARAMS];
  int64_t dims[PX_MAX_DIMS];
  int ndim;   // of a sample
  bool flat;  // all dimensions are flattened to one, which is reduced
  bool keep;
} reduction;

static int param_named(const px_op *op, const char *name) {
  for (int i = 0; i < op->param_count; i++)
    if (!strcmp(op->params[i].name, name)) return i;
  return -1;
}

static void reduction_args(const px_call *call, reduction *f) {
  for (int i = 0; i < f->op->param_count; i++) {
    int from = param_named(call->op, f->op->params[i].name);
    f->args[i] = from >= 0 ? call->args[from] : PX_NONE();
  }
}

// Dimensions to reduce: all of a sample, or the given ones, incremented by one.
static px_status reduction_dims(const px_call *call, reduction *f) {
  int at = param_named(f->op, "dim");
  px_value *dim = &f->args[at];
  bool given = dim->kind == PX_ARG_INTS;
  bool empty_means_none = given && px__impl(call->op)->promotion == PX__PROMOTE_FIRST &&
                          px__impl(call->op)->result_dtypes[0] == PX_BOOL;
  bool all = dim->kind == PX_ARG_NONE || (given && dim->n == 0 && !empty_means_none);
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

static px_status reduction_input(px_tensor **out, px_tensor *all, const reduction *f) {
  *out = NULL;
  if (f->flat && all->ndim > 2) return px_flatten(out, all, 1, -1);
  if (all->ndim == 1) return px_unsqueeze(out, all, 1);
  *out = px_retain(all);
  return PX_OK;
}

// Reshapes a result of a flattened or 0-dim sample to the expected sizes.
static px_status reduction_result(px__vmap_call *b, const reduction *f, px_tensor *made_take,
                                  int i) {
  PX_SCOPED(px_tensor) made = made_take;
  int64_t sizes[PX_MAX_DIMS + 1] = {b->size};
  const px_tensor *self = px__arg_tensor(b->call, PX__SELF);
  bool number = self->ndim == 0;
  if (!number && !(f->flat && f->keep)) return px__vmap_set_result(b, i, PX_MOVE(made));
  int n = number ? 0 : self->ndim;
  for (int d = 0; d < n; d++) sizes[1 + d] = 1;
  px_tensor *shaped = NULL;
  PX_TRY(px_reshape(&shaped, made, sizes, n + 1));
  return px__vmap_set_result(b, i, shaped);
}

static px_status reduce_physical(px__vmap_call *b, reduction *f) {
  PX_SCOPED(px_tensor) input = NULL;
  void *results[PX__MAX_RESULTS] = {0};
  PX_TRY(reduction_input(&input, px__arg_tensor(b->call, PX__SELF)->physical, f));
  f->args[PX__SELF] = PX_T(input);
  PX_TRY(px_op_call(f->op, PX_CALL_NEW, f->args, results));
  px_status status = PX_OK;
  for (int i = 0; i < f->op->result_count; i++) {
    if (status == PX_OK)
      status = reduction_result(b, f, results[i], i);
    else
      px_release(results[i]);
  }
  return status;
}

static px_status batch_reduction(px__vmap_call *b) {
  const px_call *call = b->call;
  reduction f = {.op = reduction_op(call->op)};
  int ndim = px__arg_tensor(call, PX__SELF)->ndim;
  f.ndim = ndim ? ndim : 1;
  reduction_args(call, &f);
  int keep = param_named(f.op, "keepdim");
  f.keep = keep >= 0 && f.args[keep].v.i != 0;
  PX_TRY(reduction_dims(call, &f));
  if (f.flat && keep >= 0) f.args[keep] = PX_B(false);
  saved_level a = enter_level(b->level);
  return leave_level(a, reduce_physical(b, &f));
}

// ---- a call for each sample: loop

px_status px__vmap_select(px_tensor **out, const px__vmap_call *b, px_tensor *t, int64_t index) {
  *out = NULL;
  if (px__is_mapped(b, t)) return px_select(out, t->physical, 0, index);
  *out = px_retain(t);
  return PX_OK;
}

px_status px__vmap_call_sample(px__vmap_call *b, px__vmap_transform make, px_tensor **made,
                               int64_t index) {
  void *results[PX__MAX_RESULTS] = {0};
  physical_args to;
  PX_TRY(begin_args(&to, b->call));
  px_status status = map_tensors(&to, b, UINT32_MAX, make, index);
  if (status == PX_OK) status = px_op_call(b->call->op, b->call->mode, to.args, results);
  PX_TRY(end_args(&to, status));
  for (int i = 0; i < b->call->op->result_count; i++) made[i * b->size + index] = results[i];
  return PX_OK;
}

static px_status stack_samples(px__vmap_call *b, px_tensor **made) {
  for (int i = 0; i < b->call->op->result_count; i++) {
    px_tensor *all = NULL;
    if (b->call->mode == PX_CALL_NEW) PX_TRY(px_stack(&all, made + i * b->size, b->size, 0));
    PX_TRY(px__vmap_set_result(b, i, all));
  }
  return PX_OK;
}

static px_status call_samples(px__vmap_call *b, px_tensor **made) {
  saved_level a = enter_level(b->level);
  px_status status = PX_OK;
  for (int64_t index = 0; status == PX_OK && index < b->size; index++)
    status = px__vmap_call_sample(b, px__vmap_select, made, index);
  if (status == PX_OK) status = stack_samples(b, made);
  return leave_level(a, status);
}

px_status px__vmap_loop(px__vmap_call *b, bool quiet) {
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
  px_status status = call_samples(b, made);
  for (size_t i = 0; i < count; i++) px_release(made[i]);
  px__free(made);
  return status;
}

// ---- levels of integer tensors: indices

static bool is_index(const px_tensor *t) {
  return px__is_batched(t) && !px_dtype_is_differentiable((px_dtype)t->dtype);
}
// Finds the deepest level among the integer tensors of a call; 0 if none.
static void find_index_level(px__vmap_call *b) {
  b->level = 0;
  for (int i = 0; i < b->call->op->param_count; i++) {
    px_value a = b->call->args[i];
    const px_tensor *t = a.kind == PX_ARG_TENSOR ? a.v.tensor : NULL;
    if (!t || !is_index(t) || t->level <= b->level) continue;
    b->level = t->level;
    b->size = t->physical->sizes[0];
  }
}

static px_status run_rule(px__vmap_call *b) {
  saved_level a = enter_level(b->level);
  b->saved = &a;
  return leave_level(a, px__impl(b->call->op)->vmap_run(b));
}

px_status px__vmap_run_at(px_call *call, int64_t level, int64_t size) {
  PX_CHECK(level >= 1 && level <= PX_VMAP_LEVELS && frame_at((int)level), PX_VALUE,
           "%s: there is no active map of level %lld", call->op->name, (long long)level);
  px__vmap_call b = {.call = call, .level = (int)level, .size = size};
  return run_rule(&b);
}

// ---- random numbers

static px_status refuse_random(void) {
  PX_FAIL(PX_RUNTIME,
          "vmap: called random operation while in randomness error mode. Please either use the "
          "'same' or 'different' randomness flags on vmap or perform the randomness operation out "
          "of vmap");
}

// Same randomness: draws for one sample and copies it to the others.
static px_status draw_same(px__vmap_call *b) {
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

static int mapped_tensors(const px__vmap_call *b) {
  int n = 0;
  for (int i = 0; i < b->call->op->param_count; i++) n += has_mapped(b, b->call->args[i]);
  return n;
}

static px_status batch_random(px__vmap_call *b, px_randomness randomness) {
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
  if (!inplace || mapped_tensors(b) > 1) return px__vmap_loop(b, true);
  if (randomness == PX_RANDOMNESS_DIFFERENT) return px__vmap_align(b);
  saved_level a = enter_level(b->level);
  return leave_level(a, draw_same(b));
}

// ---- selection of the rule

static px__vmap_rule rule_of(const px_op *op) {
  px__vmap_rule rule = (px__vmap_rule)px__impl(op)->vmap_rule;
  if (rule != PX__VMAP_BY_KIND) return rule;
  switch (op->kind) {
    case PX_OP_POINTWISE:
      return PX__VMAP_ALIGN;
    case PX_OP_VIEW:
    case PX_OP_COMPOSITE:
      return PX__VMAP_DECOMPOSE;
    default:
      return PX__VMAP_LOOP;
  }
}

px_status px__vmap_itself(px__vmap_call *b) {
  (void)leave_level(*b->saved, PX_OK);
  px_status status = px__impl(b->call->op)->run(b->call);
  *b->saved = enter_level(b->level);
  return status;
}

static px_status apply_rule(px__vmap_call *b) {
  const px_op *op = b->call->op;
  if (op->kind == PX_OP_REDUCE && !px__impl(op)->vmap_rule) return batch_reduction(b);
  switch (rule_of(op)) {
    case PX__VMAP_ALIGN:
      return px__vmap_align(b);
    case PX__VMAP_SHIFT:
      return shift(b, false);
    case PX__VMAP_GROW:
      return shift(b, true);
    case PX__VMAP_MERGE:
      return px__vmap_merge(b);
    case PX__VMAP_INDICES:
      return px__impl(op)->vmap_run(b);
    case PX__VMAP_REFUSE:
      PX_FAIL(PX_RUNTIME, "%s", px__impl(op)->vmap_text);
    case PX__VMAP_RUN:
      return run_rule(b);
    default:
      return px__vmap_loop(b, false);
  }
}

static void update_level(px__vmap_call *b, const px_tensor *t) {
  if (!t || !px__is_batched(t) || t->level <= b->level) return;
  b->level = t->level;
  b->size = t->physical->sizes[0];
}

// Finds the deepest level among the tensors of a call; 0 if none.
static void find_level(px__vmap_call *b) {
  const px_call *call = b->call;
  for (int i = 0; i < call->op->param_count; i++) {
    px_value a = call->args[i];
    if (a.kind == PX_ARG_TENSOR) update_level(b, a.v.tensor);
    for (int k = 0; a.kind == PX_ARG_TENSORS && k < a.n; k++) update_level(b, a.v.tensors[k]);
  }
  for (int i = 0; call->mode == PX_CALL_OUT && i < call->op->result_count; i++)
    update_level(b, call->given[i]);
}

// Fails for out=, and for in-place calls that read batched tensors but write to an unbatched one.
static px_status check_inplace(const px__vmap_call *b) {
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

// Random ops without batched tensors, at the innermost level.
static px_status draw_unbatched(px__vmap_call *b, bool *handled) {
  const px_call *call = b->call;
  vmap_frame m = *frame_at(current.depth);
  // A composite may draw nothing (dropout in evaluation). The ops it calls decide.
  bool draws = call->op->kind != PX_OP_COMPOSITE || (call->op->flags & PX_OP_IS_FACTORY) ||
               (call->mode == PX_CALL_NEW && m.randomness == PX_RANDOMNESS_DIFFERENT);
  if (!draws || m.randomness == PX_RANDOMNESS_SAME) return PX_OK;
  b->level = current.depth, b->size = m.size;
  *handled = true;
  if (m.randomness == PX_RANDOMNESS_ERROR) return refuse_random();
  return call->mode == PX_CALL_NEW ? px__vmap_loop(b, true) : batch_random(b, m.randomness);
}

static px_status call_rule(px__vmap_call *b) {
  if (!(b->call->op->flags & PX_OP_RANDOM)) return apply_rule(b);
  const vmap_frame *m = frame_at(b->level);
  return batch_random(b, m ? m->randomness : PX_RANDOMNESS_ERROR);
}
// Rules read tensors, not numbers for Tensor parameters, except `align` of pointwise ops.
static px_status call_rule_on_tensors(px__vmap_call *b) {
  px_call *call = b->call;
  px__numbers w = {.n = 0};
  px_value given[PX__MAX_PARAMS];
  bool aligns = call->op->kind == PX_OP_POINTWISE && rule_of(call->op) == PX__VMAP_ALIGN;
  if (!call->wraps || aligns) return call_rule(b);
  memcpy(given, call->args, call->op->param_count * sizeof *given);
  px_status status = px__call_wrap_numbers(call, &w);
  if (status == PX_OK) status = call_rule(b);
  memcpy(call->args, given, call->op->param_count * sizeof *given);
  px__numbers_release(&w);
  return status;
}

static px_status call_batched(px_call *call, bool *handled) {
  const px_op *op = call->op;
  px__vmap_call b = {.call = call};
  *handled = false;
  find_level(&b);
  bool random = (op->flags & PX_OP_RANDOM) != 0;
  if (!b.level) return random && current.depth ? draw_unbatched(&b, handled) : PX_OK;
  if (rule_of(op) == PX__VMAP_INDICES) find_index_level(&b);
  if (rule_of(op) == PX__VMAP_DECOMPOSE || !b.level) return PX_OK;
  *handled = true;
  PX_TRY(check_inplace(&b));
  return call_rule_on_tensors(&b);
}

__attribute__((constructor)) static void install(void) {
  px__batched_view = view_physical;
  px__call_batched = call_batched;
}
