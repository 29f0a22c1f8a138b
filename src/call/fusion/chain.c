// SPDX-License-Identifier: Apache-2.0
// Chains: the launch of several records as one. Records whose results nobody else needs get no
// memory.
#include "call/fusion/fusion.h"
#include "tensor/storage.h"

typedef struct chain {
  px__deferred *items[PX_CHAIN_STEPS];      // in order: sources come first
  px_chain_step steps[PX_CHAIN_STEPS + 1];  // and a fold
  px_allocation *made[PX_CHAIN_STEPS];      // memory of the results; NULL: none
  px_storage *own[PX_CHAIN_STEPS];          // storages of results that have none left
  int64_t flat_size, flat_stride;           // geometry of the results
  uint32_t mark;
  int count, reach, operand_count, access_count, param_count, first_input;
  px_operand *operands;
  px_access *accesses;
  px_value *params;  // the steps, then the parameters of each
} chain;

static uint32_t new_mark(void) {
  static uint32_t last;  // guarded by the lock
  return ++last ? last : ++last;
}

// ---- the records of a chain

static int reach(px__deferred *d, uint32_t mark, int limit) {
  if (d->seen == mark || d->computed || limit <= 0) return 0;
  d->seen = mark;
  int n = 0;
  for (int i = 1; i < PX_MAX_OPERANDS; i++) {
    const px__source *s = &d->sources[i];
    n += s->deferred || s->storage;
    if (s->deferred) n += reach(s->deferred, mark, limit - n);
  }
  return n ? n : 1;
}

int px__chain_reach(px__deferred *d, int limit) { return reach(d, new_mark(), limit); }

static void include(chain *c, px__deferred *d) {
  if (d->mark == c->mark || d->computed) return;
  d->mark = c->mark;
  for (int i = 1; i < PX_MAX_OPERANDS; i++)
    if (d->sources[i].deferred) include(c, d->sources[i].deferred);
  d->step = c->count;
  c->items[c->count++] = d;
}

// A held result that has run without memory before gets memory the second time.
static bool stores(px__deferred *d, px__deferred *const *targets, int count) {
  for (int i = 0; i < count; i++)
    if (targets[i] == d) return true;
  return px__is_held(d) && d->reruns++ > 0;
}

// ---- the launch

static int add_operand(chain *c, const px_operand *o, px_allocation *allocation, size_t begin,
                       size_t bytes, bool write) {
  c->operands[c->operand_count] = *o;
  if (allocation)
    c->accesses[c->access_count++] =
        (px_access){.allocation = allocation, .begin = begin, .end = begin + bytes, .write = write};
  return c->operand_count++;
}

static px_status make_memory(chain *c, const px__deferred *d) {
  bool alive = d->storage && __atomic_load_n(&d->storage->head.refs, __ATOMIC_RELAXED) > 0;
  if (!alive) PX_TRY(px__storage_make(&c->own[d->step], NULL, px__thread_cache_here));
  return px__allocation_new(&c->made[d->step], d->allocation.bytes, d->allocation.device);
}

static px_status add_result(chain *c, const px__deferred *d) {
  px_allocation *to = d->into ? d->into->storage->allocation : NULL;
  size_t begin = d->into ? (size_t)d->into->offset * px__item(d->into) : 0;
  if (!to) PX_TRY(make_memory(c, d));
  if (!to) to = c->made[d->step];
  px_operand o = {.data = (char *)to->data + begin,
                  .sizes = &c->flat_size,
                  .strides = &c->flat_stride,
                  .ndim = 1,
                  .dtype = d->dtype};
  c->steps[d->step].stores = add_operand(c, &o, to, begin, d->allocation.bytes, true);
  return PX_OK;
}

static bool same_operand(const px_operand *a, const px_operand *b) {
  size_t bytes = (size_t)a->ndim * sizeof(int64_t);
  return a->data == b->data && a->ndim == b->ndim && a->dtype == b->dtype && !a->immediate &&
         !b->immediate && !memcmp(a->sizes, b->sizes, bytes) &&
         !memcmp(a->strides, b->strides, bytes);
}

// Elements from the first to the last of an operand.
static int64_t extent(const px_operand *o) {
  int64_t last = 0;
  for (int d = 0; d < o->ndim; d++) last += (o->sizes[d] - 1) * o->strides[d];
  return last + 1;
}

// The operand of a source in memory: an earlier one with the same elements, or a new one.
static int find_operand(chain *c, const px_operand *o, const px__source *from) {
  const px_storage *read = from->deferred ? from->deferred->storage : from->storage;
  px_operand own = *o;
  if (!read) return add_operand(c, &own, NULL, 0, 0, false);
  if (from->deferred) {
    own.data = read->allocation->data, own.ndim = 1;
    own.sizes = &c->flat_size, own.strides = &c->flat_stride;
  }
  for (int i = c->first_input; i < c->operand_count; i++)
    if (same_operand(&own, &c->operands[i])) return i;
  size_t begin = (size_t)((char *)own.data - (char *)read->allocation->data);
  size_t bytes = (size_t)extent(&own) * px__dtype_bytes[own.dtype];
  return add_operand(c, &own, read->allocation, begin, bytes, false);
}

static void add_inputs(chain *c, const px__deferred *d) {
  px_chain_step *s = &c->steps[d->step];
  for (int i = 1; i < d->launch->operand_count; i++) {
    const px__source *from = &d->sources[i];
    bool inside = from->deferred && !from->deferred->computed;
    s->sources[i] = inside ? ~from->deferred->step : find_operand(c, &d->launch->operands[i], from);
  }
}

static void add_step(chain *c, int at, const px_launch *l, int dtype) {
  c->steps[at] = (px_chain_step){.kernel = l->kernel,
                                 .op = l->op,
                                 .compute = l->compute,
                                 .dtype = dtype,
                                 .stores = -1,
                                 .first_param = c->param_count,
                                 .param_count = l->param_count,
                                 .operand_count = l->operand_count,
                                 .shape = -1};
  for (int i = 0; i < l->param_count; i++) c->params[c->param_count++] = l->params[i];
}

static px_status reserve(chain *c, const px_launch *fold) {
  size_t params = 1 + (fold ? (size_t)fold->param_count : 0), operands = 2;
  for (int k = 0; k < c->count; k++) {
    params += (size_t)c->items[k]->launch->param_count;
    operands += (size_t)c->items[k]->launch->operand_count;
  }
  PX_TRY(px__alloc((void **)&c->params, params * sizeof *c->params));
  PX_TRY(px__alloc((void **)&c->operands, operands * sizeof *c->operands));
  return px__alloc((void **)&c->accesses, operands * sizeof *c->accesses);
}

// The fold's operands are its result, and the shape of its input, which has no memory.
static void add_fold(chain *c, const px_launch *fold, const px_access *accesses, int count) {
  enum { RESULT, SHAPE };
  px_chain_step *s = &c->steps[c->count];
  add_step(c, c->count, fold, fold->operands[0].dtype);
  s->fold = true;
  s->stores = add_operand(c, &fold->operands[RESULT], NULL, 0, 0, true);
  px_operand shape = fold->operands[SHAPE];
  shape.immediate = true;
  s->shape = add_operand(c, &shape, NULL, 0, 0, false);
  for (int i = 0; i < count; i++) c->accesses[c->access_count++] = accesses[i];
}

static int64_t work_of(const chain *c) {
  int64_t work = 0;
  for (int k = 0; k < c->count; k++) work += c->items[k]->launch->work;
  return work;
}

px_kernel px__chain_kernel(px_device device) {
  static px__named_kernel chain_kernel = {.name = "chain"};
  return px__named_kernel_on(&chain_kernel, (px_device_type)device.type);
}

static px_status launch(const chain *c, const px_launch *fold) {
  px_device device = c->items[0]->allocation.device;
  px_launch l = {.op = c->count == 1 && !fold ? c->items[0]->launch->op : "chain",
                 .kernel = px__chain_kernel(device),
                 .operands = c->operands,
                 .operand_count = c->operand_count,
                 .params = c->params,
                 .param_count = c->param_count,
                 .compute = PX_DTYPE_NONE,
                 .work = work_of(c) + (fold ? fold->work : 0)};
  px_interrupt_hold(true);
  px_status status = px__launch(device, &l, c->accesses, c->access_count);
  px_interrupt_hold(false);
  return status;
}

// ---- the end

static void finish(px__deferred *d, px_allocation *made, px_storage *own) {
  px_storage *storage = own ? own : d->storage;
  for (int i = 0; i < d->readers; i++) px__allocation_reader_begin(made);
  if (own && d->storage) d->storage->allocation = NULL;
  if (d->storage) __atomic_store_n(&d->storage->deferred, NULL, __ATOMIC_RELEASE);
  storage->allocation = made;
  d->computed = true;
  d->storage = own || d->readers ? storage : NULL;
  if (!own && d->readers) px_retain(storage);
  px__deferred_end_launch(d);
  px__deferred_free(d);
}

static px_status build_and_launch(chain *c, px__deferred *const *targets, int count,
                                  const px_launch *fold, const px_access *accesses,
                                  int access_count) {
  int words = (int)sizeof *c->steps / (int)sizeof(int64_t), steps = c->count + (fold != NULL);
  PX_TRY(reserve(c, fold));
  c->flat_size = c->items[0]->numel, c->flat_stride = 1;
  c->params[c->param_count++] = PX_IS((const int64_t *)(const void *)c->steps, words * steps);
  for (int k = 0; k < c->count; k++) add_step(c, k, c->items[k]->launch, c->items[k]->dtype);
  for (int k = 0; k < c->count; k++)
    if (stores(c->items[k], targets, fold ? 0 : count)) PX_TRY(add_result(c, c->items[k]));
  c->first_input = c->operand_count;
  for (int k = 0; k < c->count; k++) add_inputs(c, c->items[k]);
  if (fold) add_fold(c, fold, accesses, access_count);
  return launch(c, fold);
}

static void end(chain *c, px_status status) {
  for (int k = 0; k < c->count; k++) {
    if (c->made[k] && status == PX_OK) {
      finish(c->items[k], c->made[k], c->own[k]);
    } else {
      px__allocation_free(c->made[k]);
      px_release(c->own[k]);
    }
  }
  px__free(c->params);
  px__free(c->operands);
  px__free(c->accesses);
  px__free(c);
}

static void add_target(chain *c, px__deferred *d) {
  c->reach += px__chain_reach(d, PX_CHAIN_STEPS);
  include(c, d);
}

static px_status start(chain **out, px__deferred *first) {
  PX_TRY(PX_NEW(out));
  (*out)->mark = new_mark();
  add_target(*out, first);
  return PX_OK;
}

// The chain runs on the stream that was current when its calls were made.
static px_status run_on(chain *c, px_stream *stream, px__deferred *const *targets, int count,
                        const px_launch *fold, const px_access *accesses, int access_count) {
  px_stream *before = NULL;
  if (stream) PX_TRY(px_stream_current(&before, px_stream_device(stream)));
  if (before != stream) PX_TRY(px_stream_set_current(stream));
  px_status status = build_and_launch(c, targets, count, fold, accesses, access_count);
  if (before != stream && px_stream_set_current(before) != PX_OK) px_error_clear();
  return status;
}

static bool fits(const chain *c, px__deferred *d) {
  const px__deferred *first = c->items[0];
  return !d->computed && d->numel == first->numel && d->stream == first->stream &&
         px_device_equal(d->allocation.device, first->allocation.device) &&
         c->reach + px__chain_reach(d, PX_CHAIN_STEPS) <= PX_CHAIN_STEPS;
}

// Runs the targets from `first` on that fit one chain with it.
static px_status run_group(px__deferred *const *targets, int first, int count) {
  px__deferred *group[PX_CHAIN_STEPS];
  chain *c;
  int n = 0;
  PX_TRY(start(&c, targets[first]));
  group[n++] = targets[first];
  for (int i = first + 1; i < count; i++)
    if (fits(c, targets[i])) add_target(c, group[n++] = targets[i]);
  px_status status = run_on(c, targets[first]->stream, group, n, NULL, NULL, 0);
  end(c, status);
  return status;
}

px_status px__chain_run(px__deferred *const *targets, int count) {
  px_status status = PX_OK;
  for (int i = 0; i < count; i++) targets[i]->pins++;
  for (int i = 0; i < count && status == PX_OK; i++)
    if (!targets[i]->computed) status = run_group(targets, i, count);
  for (int i = 0; i < count; i++) {
    targets[i]->pins--;
    px__deferred_free(targets[i]);
  }
  return status;
}

px_status px__chain_fold(px__deferred *d, const px_launch *fold, const px_access *accesses,
                         int count) {
  chain *c;
  PX_TRY(start(&c, d));
  d->pins++;
  px_status status = run_on(c, d->stream, &d, 1, fold, accesses, count);
  end(c, status);
  d->pins--;
  px__deferred_free(d);
  return status;
}

static px_status run_all(bool (*kind)(const px__deferred *d)) {
  px__deferred **room;
  int count = 0;
  if (!px__record_count) return PX_OK;
  PX_TRY(px__alloc((void **)&room, (size_t)px__record_count * sizeof *room));
  for (px__deferred *d = px__records_oldest; d; d = d->after)
    if (kind(d)) room[count++] = d;
  px_status status = px__chain_run(room, count);
  px__free(room);
  return status;
}
px_status px__chain_run_all(bool (*kind)(const px__deferred *d)) {
  px__records_lock();
  px_status status = run_all(kind);
  px__records_unlock();
  return status;
}
