// SPDX-License-Identifier: Apache-2.0
// How a group of sharded parameters moves: gathered into one piece and from there into the whole
// parameters, and gradients into one piece that is reduced, of which each rank gets its part.
//
// A piece has a part of each rank, in turn, and in a part the rows of each parameter; so what a
// parameter has in the piece is a matrix of a row for each rank, and one copy moves all of it.
// Pieces are made and filled on streams of their own, which wait for the current one only where
// something was changed there, so that the next group is on its way while this one computes.
#include "parallel/shard_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

enum { ALIGNED = 16 };  // bytes at which a parameter begins in a part

static int ranks(const px_shards *self) { return px_comm_size(self->context->comm); }
static px_device device_of(const px_shards *self) {
  return self->offload ? self->device : px_tensor_device(self->items[0].local);
}

// ---- streams: each function that changes the current one puts it back

static px_status need_streams(px__shard_context *context, px_device device) {
  if (device.type != PX_CUDA) return PX_OK;
  PX_CHECK(!context->gather || px_device_equal(context->device, device), PX_UNIMPLEMENTED,
           "sharded parameters of one communicator on several devices are not implemented");
  if (!context->gather) PX_TRY(px_stream_new(&context->gather, device, -1));
  if (!context->reduce) PX_TRY(px_stream_new(&context->reduce, device, -1));
  context->device = device;
  return PX_OK;
}

// Has a stream wait for what the current one was given. Nothing where there are no streams.
static px_status follow(px_stream *stream) {
  px_stream *current;
  if (!stream) return PX_OK;
  PX_TRY(px_stream_current(&current, px_stream_device(stream)));
  return px_stream_wait_stream(stream, current);
}

static px_status on_stream(px_stream *stream, px_status (*fn)(px_shards *self), px_shards *self) {
  px_stream *before;
  if (!stream) return fn(self);
  PX_TRY(px_stream_current(&before, px_stream_device(stream)));
  PX_SCOPED(px_stream) kept = px_retain(before);
  PX_TRY(px_stream_set_current(stream));
  px_status status = fn(self);
  px_status back = px_stream_set_current(kept);
  return status == PX_OK ? back : status;
}

// ---- pieces

// Elements over a storage. What is written there counts as no change of the tensors that lie there:
// it is what they had before.
static px_status elements_at(px_tensor **out, const px_tensor *piece, px_dtype dtype, int ndim,
                             const int64_t *sizes, const int64_t *strides, int64_t offset) {
  PX_SCOPED(px_tensor) made = NULL;
  px_storage *storage = px_tensor_storage(piece);
  PX_TRY(px_tensor_from_storage(&made, storage, dtype, ndim, sizes, strides, offset));
  return px_tensor_alias(out, made);
}
// `rows` of `columns` elements, `stride` from one to the next.
static px_status rows_at(px_tensor **out, const px_tensor *piece, px_dtype dtype, int64_t rows,
                         int64_t columns, int64_t stride, int64_t offset) {
  int64_t sizes[] = {rows, columns}, strides[] = {stride, 1};
  return elements_at(out, piece, dtype, 2, sizes, strides, offset);
}

// Of a parameter that is cut along another dimension than the first: its lines of `width` elements,
// of which each rank has one in turn, as ranks x lines x elements.
static int64_t line_width(const px__shard *v) {
  int64_t lines = 1;
  for (int d = 0; d < v->dim; d++) lines *= v->sizes[d];
  return lines ? v->share / lines : 0;
}
static px_status lines_at(px_tensor **out, const px_tensor *piece, const px__shard *v,
                          px_dtype dtype, int64_t from_rank, int64_t from_line, int64_t offset) {
  int64_t width = line_width(v), sizes[] = {ranks(v->shards), v->share / width, width};
  int64_t strides[] = {from_rank, from_line, 1};
  return elements_at(out, piece, dtype, 3, sizes, strides, offset);
}

static px_status copy_rows(px_tensor *to, const px_tensor *from) {
  return px_tensor_numel(to) ? px_copy_(to, from, true) : PX_OK;
}

// ---- gathering

static px_dtype gathered_dtype(const px__shard *v) {
  px_dtype own = px_tensor_dtype(v->local), wanted = v->shards->param_dtype;
  return wanted == PX_DTYPE_NONE || !px_dtype_is_float(own) ? own : wanted;
}

static px_status check_memory(const px_shards *self) {
  for (int i = 0; self->offload && i < self->count; i++) {
    px_device device = px_tensor_device(self->items[i].local);
    PX_CHECK(device.type == PX_CPU || device.type == PX_META, PX_RUNTIME,
             "FSDP parameters should be materialized on CPU when enabling CPU offloading. For "
             "example, load a CPU state dict or call module.to_empty(device=\"cpu\"). Found "
             "following parameters on non-CPU device: %s",
             self->items[i].name);
  }
  for (int i = 0; i < self->count; i++)
    PX_CHECK(px_tensor_device(self->items[i].local).type != PX_META, PX_RUNTIME,
             "FSDP parameters should be materialized from meta device before training, but the "
             "following were still on meta device: ['%s']\nFor example, call "
             "module.to_empty(device) to materialize to device and call module.reset_parameters() "
             "on each module to initialize values.",
             self->items[i].name);
  return PX_OK;
}

static void lay_out(px_shards *self) {
  self->part = 0;
  for (int i = 0; i < self->count; i++) {
    px__shard *v = &self->items[i];
    v->at = self->part;
    int64_t bytes = v->share * (int64_t)px_dtype_size(gathered_dtype(v));
    self->part += (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
  }
}

static px_status put_mine(px_tensor *mine, px__shard *v) {
  PX_SCOPED(px_tensor) place = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  px_dtype dtype = gathered_dtype(v);
  int64_t n = px_tensor_numel(v->local);
  v->version = px_tensor_version(v->local);
  if (!n) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, v->local));
  PX_TRY(px_view(&row, plain, (int64_t[]){1, n}, 2));
  PX_TRY(rows_at(&place, mine, dtype, 1, n, n, v->at / (int64_t)px_dtype_size(dtype)));
  return px_copy_(place, row, true);
}

static px_status fill_mine(px_shards *self, px_tensor *mine) {
  px_status status = PX_OK;
  px_together_begin();
  for (int i = 0; i < self->count && status == PX_OK; i++) status = put_mine(mine, &self->items[i]);
  return px_together_end(status);
}

static px_status gather(px_shards *self) {
  PX_SCOPED(px_tensor) mine = NULL;
  int64_t all = self->part * ranks(self);
  px_device device = device_of(self);
  PX_TRY(px_tensor_empty(&self->flat, 1, &all, PX_UINT8, device));
  PX_TRY(px_zeros(&mine, &self->part, 1, PX_UINT8, device, false, false));
  PX_TRY(fill_mine(self, mine));
  px_collective collective = {.op = PX_ALL_GATHER,
                              .inputs = &mine,
                              .input_count = 1,
                              .outputs = &self->flat,
                              .output_count = 1};
  return px_comm_run(&self->gathering, self->context->comm, &collective);
}

static void let_go_of_piece(px_shards *self) {
  px_release(self->flat);
  px_release(self->gathering);
  self->flat = NULL;
  self->gathering = NULL;
}

px_status px__shards_gather(px_shards *self) {
  if (self->state != PX__SHARDED) return PX_OK;
  PX_TRY(check_memory(self));
  lay_out(self);
  if (self->part) {
    px__shard_context *context = self->context;
    bool first = !context->gather;
    PX_TRY(need_streams(context, device_of(self)));
    if (first) PX_TRY(follow(context->gather));
    px_status status = on_stream(context->gather, gather, self);
    if (status != PX_OK) let_go_of_piece(self);
    PX_TRY(status);
  }
  self->state = PX__GATHERING;
  return PX_OK;
}

// ---- the whole parameters

static px_status make_whole(px__shard *v) {
  PX_SCOPED(px_tensor) memory = NULL;
  int64_t strides[PX_MAX_DIMS], all = v->share * ranks(v->shards), step = 1;
  for (int d = v->ndim; d-- > 0; step *= v->sizes[d]) strides[d] = step;
  if (v->hook) px_tensor_remove_hook(v->whole, v->hook);
  v->hook = 0;
  px_release(v->whole);
  v->whole = NULL;
  PX_TRY(px_tensor_empty(&memory, 1, &all, gathered_dtype(v), device_of(v->shards)));
  PX_TRY(px_tensor_from_storage(&v->whole, px_tensor_storage(memory), gathered_dtype(v), v->ndim,
                                v->sizes, strides, 0));
  px_tensor_set_parameter(v->whole, true);
  return PX_OK;
}

// Gives the whole parameter its memory again, where it has been moved or cast a new one.
static px_status need_whole(px__shard *v) {
  px_dtype dtype = gathered_dtype(v);
  bool fits = v->whole && px_tensor_dtype(v->whole) == dtype &&
              px_device_equal(px_tensor_device(v->whole), device_of(v->shards));
  size_t bytes = (size_t)(v->share * ranks(v->shards)) * px_dtype_size(dtype);
  if (fits)
    PX_TRY(px_storage_resize(px_tensor_storage(v->whole), bytes));
  else
    PX_TRY(make_whole(v));
  bool wants = px_tensor_requires_grad(v->local);
  if (wants != px_tensor_requires_grad(v->whole))
    PX_TRY(px_tensor_set_requires_grad(v->whole, wants));
  if (!wants || v->hook) return PX_OK;
  return px_tensor_add_accumulated_hook(&v->hook, v->whole, v->shards->on_gradient, v, NULL);
}

static px_status take_whole(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) from = NULL;
  PX_SCOPED(px_tensor) to = NULL;
  px_dtype dtype = gathered_dtype(v);
  int64_t item = (int64_t)px_dtype_size(dtype);
  if (!v->share) return PX_OK;
  int64_t rows = ranks(self), part = self->part / item, width = line_width(v);
  if (v->dim) {
    PX_TRY(lines_at(&from, self->flat, v, dtype, part, width, v->at / item));
    PX_TRY(lines_at(&to, v->whole, v, dtype, width, rows * width, 0));
  } else {
    PX_TRY(rows_at(&from, self->flat, dtype, rows, v->share, part, v->at / item));
    PX_TRY(rows_at(&to, v->whole, dtype, rows, v->share, v->share, 0));
  }
  return copy_rows(to, from);
}

px_status px__shard_show(px__shard *v, px_tensor *tensor) {
  for (int i = 0; i < v->place_count; i++) {
    px_module_entry entry = {.name = v->places[i].name,
                             .sort = PX_ENTRY_PARAMETER,
                             .persistent = true,
                             .tensor = tensor};
    PX_TRY(px_module_put(v->places[i].owner, &entry));
  }
  return PX_OK;
}

static px_status take_all(px_shards *self) {
  px_status status = PX_OK;
  if (!self->part) return PX_OK;
  PX_TRY(px_work_wait(self->gathering, 0));
  for (int i = 0; i < self->count; i++) PX_TRY(need_whole(&self->items[i]));
  px_together_begin();
  for (int i = 0; i < self->count && status == PX_OK; i++)
    status = take_whole(self, &self->items[i]);
  PX_TRY(px_together_end(status));
  for (int i = 0; i < self->count; i++)
    PX_TRY(px__shard_show(&self->items[i], self->items[i].whole));
  return follow(self->context->gather);  // whose next piece may have the memory of this one
}

px_status px__shards_take(px_shards *self) {
  if (self->state != PX__GATHERING) return PX_OK;
  px_status status = take_all(self);
  let_go_of_piece(self);
  self->state = PX__WHOLE;
  if (status == PX_OK) return PX_OK;
  if (px__shards_part(self) != PX_OK) self->state = PX__SHARDED;
  return status;
}

px_status px__shards_part(px_shards *self) {
  let_go_of_piece(self);
  px__shard_state was = self->state;
  self->state = PX__SHARDED;
  for (int i = 0; was == PX__WHOLE && i < self->count; i++) {
    px__shard *v = &self->items[i];
    PX_TRY(px__shard_show(v, v->local));
    if (v->whole) PX_TRY(px_storage_resize(px_tensor_storage(v->whole), 0));
  }
  return PX_OK;
}

// ---- reducing

static px_tensor *gradient_of(const px__shard *v) {
  px_tensor *grad = v->whole ? px_tensor_grad(v->whole) : NULL;
  return grad ? grad : v->summed;
}

// What earlier passes have left, and what has come now, in the dtype of the reduction.
static px_status add_up(px_shards *self, px__shard *v) {
  px_tensor *grad = v->whole ? px_tensor_grad(v->whole) : NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  if (!grad || (self->reduces && !v->summed)) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, grad));
  if (v->summed) {
    PX_TRY(px_add_(v->summed, plain, px_int(1)));
  } else {
    if (self->reduce_dtype == PX_DTYPE_NONE || self->reduce_dtype == px_tensor_dtype(plain))
      return PX_OK;  // it stays where it is
    PX_TRY(px_to(&v->summed, plain, self->reduce_dtype, PX_DEVICE_NONE, false, true));
  }
  return px_tensor_set_grad(v->whole, NULL);
}

// The same of lines.
static px_status put_lines(px_tensor *flat, px__shard *v, int64_t part, int64_t size) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) lines = NULL;
  PX_SCOPED(px_tensor) from = NULL;
  PX_SCOPED(px_tensor) to = NULL;
  int64_t width = line_width(v);
  PX_TRY(px_tensor_detach(&plain, gradient_of(v)));
  PX_TRY(px_reshape(&lines, plain, (int64_t[]){v->share / width, size, width}, 3));
  PX_TRY(px_permute(&from, lines, (int64_t[]){1, 0, 2}, 3));
  PX_TRY(lines_at(&to, flat, v, px_tensor_dtype(flat), part, width, v->place));
  return px_copy_(to, from, true);
}

static px_status put_gradient(px_tensor *flat, px__shard *v, int64_t part, int64_t size) {
  if (v->dim) return v->share ? put_lines(flat, v, part, size) : PX_OK;
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_TRY(px_tensor_detach(&plain, gradient_of(v)));
  PX_TRY(px_reshape(&row, plain, (int64_t[]){px_tensor_numel(plain)}, 1));
  int64_t all = px_tensor_numel(plain), full = v->share ? all / v->share : 0;
  PX_SCOPED(px_tensor) to = NULL;
  PX_SCOPED(px_tensor) from = NULL;
  px_dtype dtype = px_tensor_dtype(flat);
  if (full) {
    PX_SCOPED(px_tensor) head = NULL;
    PX_TRY(px_narrow(&head, row, 0, 0, full * v->share));
    PX_TRY(px_view(&from, head, (int64_t[]){full, v->share}, 2));
    PX_TRY(rows_at(&to, flat, dtype, full, v->share, part, v->place));
    PX_TRY(px_copy_(to, from, true));
  }
  int64_t left = all - full * v->share;
  if (!left || full >= size) return PX_OK;
  PX_SCOPED(px_tensor) tail = NULL;
  PX_SCOPED(px_tensor) place = NULL;
  PX_SCOPED(px_tensor) end = NULL;
  PX_TRY(px_narrow(&tail, row, 0, full * v->share, left));
  PX_TRY(px_view(&end, tail, (int64_t[]){1, left}, 2));
  PX_TRY(rows_at(&place, flat, dtype, 1, left, left, full * part + v->place));
  return px_copy_(place, end, true);
}

static px_status fill_flat(px_shards *self, px_tensor *flat, int64_t part) {
  px_status status = PX_OK;
  px_together_begin();
  for (int i = 0; i < self->count && status == PX_OK; i++)
    if (self->items[i].reduced) status = put_gradient(flat, &self->items[i], part, ranks(self));
  return px_together_end(status);
}

static bool is_padded(const px_shards *self) {
  for (int i = 0; i < self->count; i++) {
    const px__shard *v = &self->items[i];
    if (v->reduced && v->share * ranks(self) != px_tensor_numel(gradient_of(v))) return true;
  }
  return false;
}

// Ranks may differ in which gradients have come: then they call for different things, and are told.
static int64_t choose(px_shards *self, px_dtype *dtype) {
  int64_t part = 0;
  *dtype = self->reduce_dtype;
  for (int i = 0; i < self->count; i++) {
    px__shard *v = &self->items[i];
    px_tensor *grad = gradient_of(v);
    v->reduced = grad != NULL;
    v->place = part;
    if (!grad) continue;
    if (*dtype == PX_DTYPE_NONE) *dtype = px_tensor_dtype(grad);
    part += v->share;
  }
  return part;
}

static px_status reduce(px_shards *self) {
  PX_SCOPED(px_tensor) flat = NULL;
  px_dtype dtype;
  int64_t part = choose(self, &dtype), all = part * ranks(self);
  if (!part) return PX_OK;
  PX_TRY(px_tensor_empty(&flat, 1, &all, dtype, device_of(self)));
  if (is_padded(self)) PX_TRY(px_zero_(flat));
  PX_TRY(fill_flat(self, flat, part));
  if (self->divide != 0) PX_TRY(px_mul_scalar_(flat, px_float(1 / self->divide)));
  PX_TRY(px_tensor_empty(&self->mine, 1, &part, dtype, device_of(self)));
  px_collective collective = {.op = PX_REDUCE_SCATTER,
                              .reduce = self->divide != 0 ? PX_REDUCE_SUM : PX_REDUCE_AVG,
                              .inputs = &flat,
                              .input_count = 1,
                              .outputs = &self->mine,
                              .output_count = 1};
  return px_comm_run(&self->reduction, self->context->comm, &collective);
}

// This rank's rows in what it has got of the reduction.
static px_status rows_of(px_tensor **out, const px_shards *self, const px__shard *v) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px_narrow(&part, self->mine, 0, v->place, px_tensor_numel(v->local)));
  return px_view(out, part, px_tensor_sizes(v->local), v->ndim);
}

// Rows as a gradient is, on the CPU where that is wanted. What comes to pinned memory without being
// waited for has come when backward ends.
static px_status as_gradient(px_tensor **out, px_shards *self, const px__shard *v,
                             const px_tensor *rows) {
  PX_SCOPED(px_tensor) cast = NULL;
  bool brings = self->offload && px_tensor_device(rows).type != PX_CPU;
  px_dtype dtype = px_tensor_dtype(v->local);
  PX_TRY(px_to(&cast, rows, dtype, PX_DEVICE_NONE, false, false));
  if (!brings) return *out = PX_MOVE(cast), PX_OK;
  if (!self->pin || px_tensor_grad(v->local))
    return px_to(out, cast, PX_DTYPE_NONE, px_cpu(), false, false);
  PX_TRY(px_tensor_empty_pinned(out, v->ndim, px_tensor_sizes(v->local), dtype));
  self->context->brings = true;
  return px_copy_(*out, cast, true);
}

static px_status give_part(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  px_tensor *before = px_tensor_grad(v->local);
  PX_TRY(rows_of(&rows, self, v));
  PX_TRY(as_gradient(&grad, self, v, rows));
  if (before) return px_add_(before, grad, px_int(1));
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_tensor_detach(&plain, grad));
  return px_tensor_set_grad(v->local, plain);
}

static px_status for_each_reduced(px_shards *self, px_status (*fn)(px_shards *, px__shard *)) {
  PX_TRY(px_work_wait(self->reduction, 0));
  for (int i = 0; i < self->count; i++)
    if (self->items[i].reduced) PX_TRY(fn(self, &self->items[i]));
  return PX_OK;
}

static px_status call_hook(px_shards *self) {
  return self->on_reduced(self->mine, self->on_reduced_context);
}
static px_status tell_reduced(px_shards *self) {
  px_stream *reduce = self->context->reduce, *own = self->on_reduced_stream;
  if (!self->on_reduced) return PX_OK;
  if (!reduce || !own) return call_hook(self);
  PX_TRY(px_stream_wait_stream(own, reduce));
  PX_TRY(on_stream(own, call_hook, self));
  return px_stream_wait_stream(reduce, own);
}

static px_status give_parts(px_shards *self) {
  PX_TRY(px_work_wait(self->reduction, 0));
  PX_TRY(tell_reduced(self));
  return for_each_reduced(self, give_part);
}

// ---- between replicas

static px_status keep_apart(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(rows_of(&rows, self, v));
  if (v->apart) return px_add_(v->apart, rows, px_int(1));
  return px_clone(&v->apart, rows, "contiguous_format");
}
static px_status keep_all_apart(px_shards *self) { return for_each_reduced(self, keep_apart); }

static px_status add_apart(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) rows = NULL;
  if (!v->apart) return PX_OK;
  PX_TRY(rows_of(&rows, self, v));
  PX_TRY(px_add_(rows, v->apart, px_int(1)));
  px_release(v->apart);
  v->apart = NULL;
  return PX_OK;
}

static px_status average(px_shards *self) {
  PX_TRY(for_each_reduced(self, add_apart));
  px_release(self->reduction);
  self->reduction = NULL;
  px_collective collective = {.op = PX_ALL_REDUCE,
                              .reduce = self->divide != 0 ? PX_REDUCE_SUM : PX_REDUCE_AVG,
                              .outputs = &self->mine,
                              .output_count = 1};
  return px_comm_run(&self->reduction, self->context->replicas, &collective);
}

// ---- one reduction after the other: where there are replicas, rows go between them while those of
// the next group are made

static void let_go_of_reduction(px_shards *self) {
  px__shard_context *context = self->context;
  px_release(self->reduction);
  px_release(self->mine);
  self->reduction = NULL;
  self->mine = NULL;
  if (context->reducing == self) context->reducing = NULL;
  if (context->averaging == self) context->averaging = NULL;
}

static px_status end_reduction(px_shards *self, px_status (*fn)(px_shards *self)) {
  px_status status = PX_OK;
  if (self->reduction) status = on_stream(self->context->reduce, fn, self);
  let_go_of_reduction(self);
  return status;
}

static px_status averaged(px__shard_context *context) {
  return context->averaging ? end_reduction(context->averaging, give_parts) : PX_OK;
}

// A group's rows are made: they become gradients, or go to the replicas.
static px_status go_on(px__shard_context *context) {
  px_shards *self = context->reducing;
  if (!self) return PX_OK;
  if (!context->replicas || !self->reduction) return end_reduction(self, give_parts);
  if (!self->averages) return end_reduction(self, keep_all_apart);
  px_status status = on_stream(context->reduce, average, self);
  if (status != PX_OK) let_go_of_reduction(self);
  PX_TRY(status);
  context->reducing = NULL;
  context->averaging = self;
  return PX_OK;
}

px_status px__shards_reduced(px__shard_context *context) {
  PX_TRY(averaged(context));
  PX_TRY(go_on(context));
  return averaged(context);
}

// Also what passes before had added up: of a pass that failed some groups' gradients were counted
// in, and others' were not.
px_status px__shards_forget(px_shards *self) {
  let_go_of_reduction(self);
  for (int i = 0; i < self->count; i++) {
    px__shard *v = &self->items[i];
    if (v->whole) PX_TRY(px_tensor_set_grad(v->whole, NULL));
    PX_SCOPED(px_tensor) summed = v->summed;
    PX_SCOPED(px_tensor) apart = v->apart;
    v->summed = v->apart = NULL;
  }
  return PX_OK;
}

px_status px__shards_reduce(px_shards *self) {
  px__shard_context *context = self->context;
  for (int i = 0; i < self->count; i++) PX_TRY(add_up(self, &self->items[i]));
  if (!self->reduces || !self->count) return PX_OK;
  PX_TRY(averaged(context));
  PX_TRY(go_on(context));
  PX_TRY(follow(context->reduce));
  PX_TRY(on_stream(context->reduce, reduce, self));
  for (int i = 0; i < self->count; i++) {
    px__shard *v = &self->items[i];
    if (v->whole) PX_TRY(px_tensor_set_grad(v->whole, NULL));
    px_release(v->summed);
    v->summed = NULL;
  }
  context->reducing = self;
  return context->reduce ? go_on(context) : PX_OK;
}
