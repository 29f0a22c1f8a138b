// SPDX-License-Identifier: Apache-2.0
// Recording: which calls are recorded, their results and inputs, and folds of their results.
#include "call/fusion/fusion.h"
#include "tensor/storage.h"

enum {
  WINDOW = 256,       // calls recorded until results that are held are computed
  MAX_RECORDS = 4096  // most records; further calls are not recorded
};

// ---- which calls are recorded

static px_status make_ready(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++) {
    const px_value *a = &call->args[i];
    if (a->kind == PX_ARG_TENSOR) PX_TRY(px__storage_ready(a->v.tensor->storage));
    for (int k = 0; a->kind == PX_ARG_TENSORS && k < a->n; k++)
      if (a->v.tensors[k]) PX_TRY(px__storage_ready(a->v.tensors[k]->storage));
  }
  for (int i = 0; i < call->op->result_count; i++)
    if (call->given[i]) PX_TRY(px__storage_ready(call->given[i]->storage));
  return PX_OK;
}

// Memory that other libraries or processes may change at any time is read at once.
static bool can_read_later(const px_tensor *t) {
  const px_storage *s = t->storage;
  const px_allocation *a = s->allocation;
  bool shared = s->shared || s->ipc_reference || a->foreign || a->irregular;
  return !shared && !px__is_batched(t) && t->numel && (s->deferred || a->data) &&
         (!a->pending || a->readers);
}

// False while something watches single launches.
static bool records_now(void) {
  return !px__call_watched(~0) && !px__captures_any() && px__record_count < MAX_RECORDS &&
         __atomic_load_n(&px__race_on, __ATOMIC_RELAXED) <= 0;
}

// True if an in-place call may end the chain of an argument. The chain reads an element of self
// before it writes it, so other arguments must not share self's memory in another order.
static bool can_write(const px_call *call) {
  const px_tensor *self = call->given[0];
  bool deferred = false;
  if (call->op->kind != PX_OP_POINTWISE || !self->contiguous || px__is_deferred(self->storage))
    return false;
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = call->args[i].kind == PX_ARG_TENSOR ? call->args[i].v.tensor : NULL;
    if (!t) continue;
    bool same = t->offset == self->offset && t->dtype == self->dtype && t->contiguous &&
                px__has_sizes(t, self->ndim, self->sizes);
    if (t->storage == self->storage && !same) return false;
    deferred |= px__is_deferred(t->storage);
  }
  return deferred;
}

static bool can_record(const px_call *call) {
  const px__op_impl *impl = px__impl(call->op);
  bool fits = call->mode == PX_CALL_NEW || (call->mode == PX_CALL_INPLACE && can_write(call));
  if (!fits || !impl->chained || impl->registered || impl->order) return false;
  if (!records_now()) return false;
  const px_tensor *first = NULL;
  for (int i = 0; i < call->op->param_count; i++) {
    const px_value *a = &call->args[i];
    if (a->kind == PX_ARG_TENSORS) return false;
    if (a->kind != PX_ARG_TENSOR) continue;
    if (!can_read_later(a->v.tensor)) return false;
    if (!first || !a->v.tensor->ndim == !first->ndim) first = a->v.tensor;
  }
  return first && px__chain_kernel(px__tensor_device(first));
}

bool (*px__fusion_converts)(const px_call *call, px_dtype *to);

// True for a conversion of a dense tensor's dtype. Complex numbers stay complex.
static bool is_cast(const px_call *call) {
  px_dtype to;
  if (!px__fusion_converts || !px__fusion_converts(call, &to) || !records_now()) return false;
  const px_tensor *self = px__arg_tensor(call, PX__SELF);
  bool drops = px_dtype_is_complex((px_dtype)self->dtype) && !px_dtype_is_complex(to);
  return !drops && can_read_later(self) && px_tensor_is_dense(self) && !px__has_conj_neg(self) &&
         px__chain_kernel(px__tensor_device(self));
}

px_status px__fusion_enter(px_call *call, bool *off) {
  *off = px__fusion_here.off;
  switch (call->op->kind) {
    case PX_OP_VIEW:
    case PX_OP_COMPOSITE:
      return PX_OK;
    case PX_OP_POINTWISE:
    case PX_OP_REDUCE:
      call->records = px__fuses_here() && can_record(call);
      return call->records ? PX_OK : make_ready(call);
    default:
      call->records = px__fuses_here() && is_cast(call);
      if (!call->records) PX_TRY(make_ready(call));
      px__fusion_here.off = true;
      return PX_OK;
  }
}

px_status px__fusion_settle(px_call *call, int64_t numel) {
  bool faults = px__impl(call->op)->faults && !px_dtype_is_float(call->compute);
  if (numel && !faults && !call->results[0] && px__chain_kernel(call->device)) return PX_OK;
  call->records = false;
  return make_ready(call);
}

px_status px__fusion_result(px_call *call, int ndim, const int64_t *sizes, const int64_t *strides) {
  px__deferred *d;
  px_storage *storage;
  int64_t numel = px__sizes_product(sizes, ndim);
  PX_TRY(px__deferred_new(&d, (size_t)numel * px__dtype_bytes[call->dtype], call->device));
  px_status status = px__storage_make(&storage, &d->allocation, px__thread_cache_here);
  if (status != PX_OK) {
    px__deferred_free(d);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  d->storage = storage, d->numel = numel, d->dtype = call->dtype, d->thread = &px__fusion_here;
  __atomic_store_n(&storage->deferred, d, __ATOMIC_RELEASE);
  return px__tensor_over(&call->results[0], storage, ndim, sizes, strides, call->dtype);
}

// ---- operands

typedef struct dims {
  int n;
  int64_t *sizes, *strides;
} dims;

// Adds a dimension inside of the previous one, and merges them if the strides allow it.
static void put_dim(dims *to, int64_t size, int64_t stride) {
  int last = to->n - 1;
  if (last >= 0 && to->strides[last] == stride * size) {
    to->sizes[last] *= size, to->strides[last] = stride;
    return;
  }
  to->sizes[to->n] = size, to->strides[to->n++] = stride;
}

// Gives an operand the order of the result's memory: its dimensions are sorted by the result's
// strides. `room`: for the sizes and strides of all dimensions.
static void order_dims(px_operand *o, const px_operand *result, int64_t *room) {
  int order[PX_MAX_DIMS], n = 0;
  dims to = {0, room, room + result->ndim};
  for (int d = 0; d < result->ndim; d++) {
    if (result->sizes[d] == 1) continue;
    int at = n++;
    for (; at > 0 && result->strides[order[at - 1]] < result->strides[d]; at--)
      order[at] = order[at - 1];
    order[at] = d;
  }
  bool many = !o->immediate && o->dtype != PX_DTYPE_NONE;
  for (int k = 0; k < n && many; k++) put_dim(&to, result->sizes[order[k]], o->strides[order[k]]);
  bool single = to.n == 1 && to.strides[0] == 0;
  o->ndim = single ? 0 : to.n, o->sizes = to.sizes, o->strides = to.strides;
}

// True if the operand's elements are those of the result at the same place in memory.
static bool is_flat(const px_operand *o, int64_t numel) {
  return numel == 1 || (o->ndim == 1 && o->strides[0] == 1);
}

static bool same_place(const px__deferred *d, const px__deferred *from, const px_tensor *t,
                       const px_operand *o) {
  return is_flat(o, d->numel) && t->offset == 0 && from->numel == d->numel &&
         from->dtype == t->dtype && from->stream == d->stream &&
         px_device_equal(from->allocation.device, d->allocation.device);
}

static px_status add_source(px__deferred *d, int i, const px_tensor *t, px_operand *o) {
  px__deferred *from = t->storage->deferred;
  if (from && !same_place(d, from, t, o)) {
    PX_TRY(px__chain_run(&from, 1));
    from = NULL;
  }
  if (from) {
    from->readers++;
    d->sources[i].deferred = from;
    o->data = NULL;
    return PX_OK;
  }
  d->sources[i].storage = px_retain(t->storage);
  px__allocation_reader_begin(t->storage->allocation);
  o->data = px__tensor_at(t);
  return PX_OK;
}

static px_status pack(px__deferred *d, const px_launch *launch) {
  size_t bytes = px__launch_pack(launch, NULL, 0);
  PX_TRY(px__alloc((void **)&d->launch, bytes));
  px__launch_pack(launch, d->launch, bytes);
  return PX_OK;
}

// A result that depends on too many records: computes its inputs first.
static px_status limit_reach(px__deferred *d) {
  px__deferred *from[PX_MAX_OPERANDS];
  int count = 0;
  d->reach = 1;
  for (int i = 1; i < d->launch->operand_count; i++) {
    px__deferred *source = d->sources[i].deferred;
    bool deferred = source && !source->computed;
    d->reach += 1 + (deferred ? source->reach : 0);
    if (deferred) from[count++] = source;
  }
  if (d->reach < PX_CHAIN_STEPS) return PX_OK;
  d->reach = px__chain_reach(d, PX_CHAIN_STEPS);
  if (d->reach < PX_CHAIN_STEPS) return PX_OK;
  d->reach = d->launch->operand_count;
  return px__chain_run(from, count);
}

static px_status record(px_call *call, px__deferred *d, const px_launch *launch) {
  enum { RESULT };
  px_operand operands[PX_MAX_OPERANDS];
  const px_operand *result = &launch->operands[RESULT];
  int count = launch->operand_count, n = 1;
  PX__INTS(room);
  PX_TRY(px__ints_reserve(&room, (int64_t)2 * count * result->ndim));
  if (call->device.type != PX_CPU) {
    PX_TRY(px_stream_current(&d->stream, call->device));
    px_retain(d->stream);
  }
  operands[RESULT] = (px_operand){.dtype = result->dtype};
  for (int i = 1; i < count; i++) {
    operands[i] = launch->operands[i];
    order_dims(&operands[i], result, room.at + (int64_t)2 * i * result->ndim);
  }
  for (int i = 0; i < call->op->param_count; i++) {
    if (call->op->params[i].kind != PX_ARG_TENSOR) continue;
    px_operand *o = &operands[n];
    if (!o->immediate && o->dtype != PX_DTYPE_NONE)
      PX_TRY(add_source(d, n, call->args[i].v.tensor, o));
    n++;
  }
  px_launch kept = *launch;
  kept.operands = operands;
  PX_TRY(pack(d, &kept));
  return limit_reach(d);
}

// Runs an in-place call as the end of the chain of its arguments.
static px_status record_write(px_call *call, const px_launch *launch) {
  px_tensor *self = call->given[0];
  px__deferred *d;
  PX_TRY(px__allocation_before_write(self->storage->allocation));
  PX_TRY(px__deferred_new(&d, (size_t)self->numel * px__item(self), call->device));
  d->into = self, d->numel = self->numel, d->dtype = self->dtype, d->thread = &px__fusion_here;
  d->pins++;
  px_status status = record(call, d, launch);
  if (status == PX_OK) status = px__chain_run(&d, 1);
  d->pins--;
  px__deferred_free(d);
  return status;
}
static px_status record_write_locked(px_call *call, const px_launch *launch) {
  px__records_lock();
  px_status status = record_write(call, launch);
  px__records_unlock();
  return status;
}

px_status px__fusion_record(px_call *call, const px_launch *launch) {
  if (call->mode == PX_CALL_INPLACE) return record_write_locked(call, launch);
  px__deferred *d = call->results[0]->storage->deferred;
  px__records_lock();
  px_status status = record(call, d, launch);
  px__records_unlock();
  if (status != PX_OK || ++px__fusion_here.window < WINDOW) return status;
  px__fusion_here.window = 0;
  return px__chain_run_all(px__is_held_here);
}

px_status px__fusion_cast(px_call *call) {
  static px__named_kernel copy = {.name = "copy"};
  enum { TO, FROM, OPERANDS };
  const px_tensor *self = px__arg_tensor(call, PX__SELF);
  px_operand operands[OPERANDS];
  (void)px__fusion_converts(call, &call->dtype);
  call->device = px__tensor_device(self);
  PX_TRY(px__fusion_result(call, self->ndim, self->sizes, self->strides));
  px__operand_of(&operands[TO], call->results[0]);
  px__operand_of(&operands[FROM], self);
  px_launch l = {.op = "copy_",
                 .kernel = px__named_kernel_on(&copy, (px_device_type)call->device.type),
                 .operand_count = OPERANDS,
                 .operands = operands,
                 .compute = PX_DTYPE_NONE};
  return px__fusion_record(call, &l);
}

// ---- folds

// The kernel computes the input in rows: the last dimension is reduced, or holds the inputs of
// several neighbouring results.
bool px__fusion_takes_fold(const px_call *call, const px_tensor *self, uint64_t reduced) {
  enum { MIN_COLUMNS = 8 };
  const px__deferred *d = self->storage->deferred;
  bool whole =
      d && self->contiguous && !self->offset && self->numel == d->numel && self->dtype == d->dtype;
  if (!call->records || !whole || call->op->result_count != 1) return false;
  int last = self->ndim - 1;
  while (last >= 0 && self->sizes[last] == 1) last--;
  return last >= 0 && (reduced >> last & 1 || self->sizes[last] >= MIN_COLUMNS);
}

px_status px__fusion_fold(const px_tensor *self, const px_launch *fold, const px_access *accesses,
                          int count) {
  px__records_lock();
  px__deferred *d = self->storage->deferred;
  px_status status = px__chain_fold(d, fold, accesses, count);
  px__records_unlock();
  return status;
}
