// SPDX-License-Identifier: Apache-2.0
// Data movement of a group of sharded parameters. Shards are all-gathered into one flat buffer and
// copied into the unsharded parameters. Gradients are packed into one flat buffer and
// reduce-scattered.
//
// A flat buffer has one part per rank, in rank order. A part holds the rows of each parameter. One
// parameter's data is therefore a strided matrix with one row per rank, moved by a single copy.
// Buffers are filled on side streams. These wait for the current stream only after changes there,
// so the next group's communication overlaps this group's computation.
#include "formulas.h"
#include "parallel/shard_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/view.h"

enum { ALIGNED = 16 };  // alignment of a parameter within a part, bytes

static int rank_count(const px_shards *self) { return px_comm_size(self->context->comm); }
static px_device device_of(const px_shards *self) {
  return self->offload ? self->device : px_tensor_device(self->items[0].local);
}

// ---- streams: every function restores the current stream

static px_status need_streams(px__shard_context *context, px_device device) {
  if (device.type != PX_CUDA) return PX_OK;
  PX_CHECK(!context->gather || px_device_equal(context->device, device), PX_UNIMPLEMENTED,
           "sharded parameters of one communicator on several devices are not implemented");
  if (!context->gather) PX_TRY(px_stream_new(&context->gather, device, -1));
  if (!context->reduce) PX_TRY(px_stream_new(&context->reduce, device, -1));
  context->device = device;
  return PX_OK;
}

// Makes a stream wait for the current one. No-op for NULL.
static px_status wait_for_current(px_stream *stream) {
  px_stream *current;
  if (!stream) return PX_OK;
  PX_TRY(px_stream_current(&current, px_stream_device(stream)));
  return px_stream_wait_stream(stream, current);
}

static px_status on_stream(px_stream *stream, px_status (*fn)(px_shards *self), px_shards *self) {
  PX_ON_STREAM(stream);
  return fn(self);
}

// ---- views of flat buffers

// Returns a strided view of a storage. Writes through it do not bump the version of other tensors
// on the storage: they restore the values already held.
static px_status elements_at(px_tensor **out, const px_tensor *piece, px_dtype dtype, int ndim,
                             const int64_t *sizes, const int64_t *strides, int64_t offset) {
  PX_SCOPED(px_tensor) made = NULL;
  px_storage *storage = px_tensor_storage(piece);
  PX_TRY(px_tensor_from_storage(&made, storage, dtype, ndim, sizes, strides, offset));
  return px_tensor_alias(out, made);
}
// A view of `rows` x `columns` elements with the given row stride.
static px_status rows_at(px_tensor **out, const px_tensor *piece, px_dtype dtype, int64_t rows,
                         int64_t columns, int64_t stride, int64_t offset) {
  int64_t sizes[] = {rows, columns}, strides[] = {stride, 1};
  return elements_at(out, piece, dtype, 2, sizes, strides, offset);
}

// Parameters sharded along another dimension than the first: a view as ranks x lines x elements.
// A line has `width` consecutive elements, and each rank owns one line in turn.
static int64_t line_width(const px__shard *v) {
  int64_t lines = 1;
  for (int d = 0; d < v->dim; d++) lines *= v->sizes[d];
  return lines ? v->share / lines : 0;
}
static px_status lines_at(px_tensor **out, const px_tensor *piece, const px__shard *v,
                          px_dtype dtype, int64_t from_rank, int64_t from_line, int64_t offset) {
  int64_t width = line_width(v), sizes[] = {rank_count(v->shards), v->share / width, width};
  int64_t strides[] = {from_rank, from_line, 1};
  return elements_at(out, piece, dtype, 3, sizes, strides, offset);
}

static px_status copy_rows(px_tensor *to, const px_tensor *from) {
  return px_tensor_numel(to) ? px_copy_(to, from, true) : PX_OK;
}

// ---- gathering

static px_dtype gathered_dtype(const px__shard *v) {
  px_dtype own = px_tensor_dtype(v->local), requested = v->shards->param_dtype;
  return requested == PX_DTYPE_NONE || !px_dtype_is_float(own) ? own : requested;
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

// Copies elements of t to rows of a buffer, `stride` elements apart, at `offset`.
static px_status pack_rows(const px_tensor *flat, px_dtype dtype, px_tensor *t, int64_t first,
                           int64_t rows, int64_t columns, int64_t stride, int64_t offset) {
  PX_SCOPED(px_tensor) slot = NULL;
  PX_SCOPED(px_tensor) written = NULL;
  PX_TRY(rows_at(&slot, flat, dtype, rows, columns, stride, offset));
  return px__formula_write_rows(
      &written, (px_value[]){PX_T(slot), PX_T(t), PX_I(first), PX_I(rows), PX_I(columns)});
}

static px_status pack_shard(px_tensor *mine, px__shard *v) {
  px_dtype dtype = gathered_dtype(v);
  int64_t n = px_tensor_numel(v->local);
  v->version = px_tensor_version(v->local);
  if (!n) return PX_OK;
  return pack_rows(mine, dtype, v->local, 0, 1, n, n, v->at / (int64_t)px_dtype_size(dtype));
}

static px_status pack_shards(px_shards *self, px_tensor *mine) {
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int i = 0; i < self->count && status == PX_OK; i++)
    status = pack_shard(mine, &self->items[i]);
  return px_launch_batch_end(status);
}

static px_status gather(px_shards *self) {
  PX_SCOPED(px_tensor) mine = NULL;
  int64_t all = self->part * rank_count(self);
  px_device device = device_of(self);
  PX_TRY(px_tensor_empty(&self->flat, 1, &all, PX_UINT8, device));
  PX_TRY(px_zeros(&mine, &self->part, 1, PX_UINT8, device, false, false));
  PX_TRY(pack_shards(self, mine));
  px_collective collective = {.op = PX_ALL_GATHER,
                              .inputs = &mine,
                              .input_count = 1,
                              .outputs = &self->flat,
                              .output_count = 1};
  return px_comm_run(&self->gathering, self->context->comm, &collective);
}

static void release_flat(px_shards *self) {
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
    if (first) PX_TRY(wait_for_current(context->gather));
    px_status status = on_stream(context->gather, gather, self);
    if (status != PX_OK) release_flat(self);
    PX_TRY(status);
  }
  self->state = PX__GATHERING;
  return PX_OK;
}

// ---- unsharded parameters

static px_status make_whole(px__shard *v) {
  PX_SCOPED(px_tensor) memory = NULL;
  int64_t strides[PX_MAX_DIMS], all = v->share * rank_count(v->shards), step = 1;
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

// Reallocates the storage of the unsharded parameter. A changed dtype or device creates a new one.
static px_status need_whole(px__shard *v) {
  px_dtype dtype = gathered_dtype(v);
  bool fits = v->whole && px_tensor_dtype(v->whole) == dtype &&
              px_device_equal(px_tensor_device(v->whole), device_of(v->shards));
  size_t bytes = (size_t)(v->share * rank_count(v->shards)) * px_dtype_size(dtype);
  if (fits)
    PX_TRY(px_storage_resize(px_tensor_storage(v->whole), bytes));
  else
    PX_TRY(make_whole(v));
  bool needs_grad = px_tensor_requires_grad(v->local);
  if (needs_grad != px_tensor_requires_grad(v->whole))
    PX_TRY(px_tensor_set_requires_grad(v->whole, needs_grad));
  if (!needs_grad || v->hook) return PX_OK;
  return px_tensor_add_accumulated_hook(&v->hook, v->whole, v->shards->on_gradient, v, NULL);
}

static px_status unpack_whole(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) from = NULL;
  PX_SCOPED(px_tensor) to = NULL;
  px_dtype dtype = gathered_dtype(v);
  int64_t item = (int64_t)px_dtype_size(dtype);
  if (!v->share) return PX_OK;
  int64_t rows = rank_count(self), part = self->part / item, width = line_width(v);
  if (v->dim) {
    PX_TRY(lines_at(&from, self->flat, v, dtype, part, width, v->at / item));
    PX_TRY(lines_at(&to, v->whole, v, dtype, width, rows * width, 0));
  } else {
    PX_TRY(rows_at(&from, self->flat, dtype, rows, v->share, part, v->at / item));
    PX_TRY(rows_at(&to, v->whole, dtype, rows, v->share, v->share, 0));
  }
  return copy_rows(to, from);
}

px_status px__shard_register(px__shard *v, px_tensor *tensor) {
  for (int i = 0; i < v->registration_count; i++) {
    px_module_entry entry = {.name = v->registrations[i].name,
                             .sort = PX_ENTRY_PARAMETER,
                             .persistent = true,
                             .tensor = tensor};
    PX_TRY(px_module_put(v->registrations[i].owner, &entry));
  }
  return PX_OK;
}

static px_status unpack_all(px_shards *self) {
  px_status status = PX_OK;
  if (!self->part) return PX_OK;
  PX_TRY(px_work_wait(self->gathering, 0));
  for (int i = 0; i < self->count; i++) PX_TRY(need_whole(&self->items[i]));
  px_launch_batch_begin();
  for (int i = 0; i < self->count && status == PX_OK; i++)
    status = unpack_whole(self, &self->items[i]);
  PX_TRY(px_launch_batch_end(status));
  for (int i = 0; i < self->count; i++)
    PX_TRY(px__shard_register(&self->items[i], self->items[i].whole));
  return wait_for_current(self->context->gather);  // its next buffer may reuse this one's memory
}

px_status px__shards_unshard(px_shards *self) {
  if (self->state != PX__GATHERING) return PX_OK;
  px_status status = unpack_all(self);
  release_flat(self);
  self->state = PX__UNSHARDED;
  if (status == PX_OK) return PX_OK;
  if (px__shards_reshard(self) != PX_OK) self->state = PX__SHARDED;
  return status;
}

px_status px__shards_reshard(px_shards *self) {
  release_flat(self);
  px__shard_state was = self->state;
  self->state = PX__SHARDED;
  for (int i = 0; was == PX__UNSHARDED && i < self->count; i++) {
    px__shard *v = &self->items[i];
    PX_TRY(px__shard_register(v, v->local));
    if (v->whole) PX_TRY(px_storage_resize(px_tensor_storage(v->whole), 0));
  }
  return PX_OK;
}

// ---- reducing

// Accumulates the new gradient into that of earlier unreduced passes, in the reduction dtype.
static px_status accumulate_unreduced(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) plain = NULL;
  if (v->whole) PX_TRY(px_tensor_get_grad(&grad, v->whole));
  if (!grad || (self->reduces && !v->summed)) return PX_OK;
  PX_TRY(px_tensor_detach(&plain, grad));
  if (v->summed) {
    PX_TRY(px_add_(v->summed, plain, px_int(1)));
  } else {
    if (self->reduce_dtype == PX_DTYPE_NONE || self->reduce_dtype == px_tensor_dtype(plain))
      return PX_OK;  // keep it as the parameter's gradient
    PX_TRY(px_to(&v->summed, plain, self->reduce_dtype, PX_DEVICE_NONE, false, true));
  }
  return px_tensor_set_grad(v->whole, NULL);
}

// Packs a gradient sharded along another dimension than the first.
static px_status pack_lines(px_tensor *flat, px__shard *v, int64_t part, int64_t size) {
  PX_SCOPED(px_tensor) slot = NULL;
  PX_SCOPED(px_tensor) written = NULL;
  int64_t width = line_width(v);
  PX_TRY(lines_at(&slot, flat, v, px_tensor_dtype(flat), part, width, v->reduce_at));
  return px__formula_write_lines(
      &written,
      (px_value[]){PX_T(slot), PX_T(v->reducing), PX_I(v->share / width), PX_I(size), PX_I(width)});
}

static px_status pack_gradient(px_tensor *flat, px__shard *v, int64_t part, int64_t size) {
  if (v->dim) return v->share ? pack_lines(flat, v, part, size) : PX_OK;
  px_dtype dtype = px_tensor_dtype(flat);
  int64_t all = px_tensor_numel(v->reducing), full = v->share ? all / v->share : 0;
  if (full) PX_TRY(pack_rows(flat, dtype, v->reducing, 0, full, v->share, part, v->reduce_at));
  int64_t done = full * v->share, left = all - done;
  if (!left || full >= size) return PX_OK;
  return pack_rows(flat, dtype, v->reducing, done, 1, left, left, full * part + v->reduce_at);
}

static px_status pack_gradients(px_shards *self, px_tensor *flat, int64_t part) {
  px_status status = PX_OK;
  px_launch_batch_begin();
  for (int i = 0; i < self->count && status == PX_OK; i++)
    if (self->items[i].reduced)
      status = pack_gradient(flat, &self->items[i], part, rank_count(self));
  return px_launch_batch_end(status);
}

static bool is_padded(const px_shards *self) {
  for (int i = 0; i < self->count; i++) {
    const px__shard *v = &self->items[i];
    if (v->reduced && v->share * rank_count(self) != px_tensor_numel(v->reducing)) return true;
  }
  return false;
}

// Lays out the reduction buffer. Ranks with different sets of gradients issue different calls, and
// the communicator reports the mismatch.
static px_status plan_reduction(int64_t *part, px_shards *self, px_dtype *dtype) {
  *part = 0;
  *dtype = self->reduce_dtype;
  for (int i = 0; i < self->count; i++) {
    px__shard *v = &self->items[i];
    if (v->whole) PX_TRY(px_tensor_get_grad(&v->reducing, v->whole));
    if (!v->reducing) v->reducing = px_retain(v->summed);
    v->reduced = v->reducing != NULL;
    v->reduce_at = *part;
    if (!v->reducing) continue;
    if (*dtype == PX_DTYPE_NONE) *dtype = px_tensor_dtype(v->reducing);
    *part += v->share;
  }
  return PX_OK;
}

static px_status reduce_gradients(px_shards *self) {
  PX_SCOPED(px_tensor) flat = NULL;
  px_dtype dtype;
  int64_t part;
  PX_TRY(plan_reduction(&part, self, &dtype));
  int64_t all = part * rank_count(self);
  if (!part) return PX_OK;
  PX_TRY(px_tensor_empty(&flat, 1, &all, dtype, device_of(self)));
  if (is_padded(self)) PX_TRY(px_zero_(flat));
  PX_TRY(pack_gradients(self, flat, part));
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

static px_status reduce(px_shards *self) {
  px_status status = reduce_gradients(self);
  for (int i = 0; i < self->count; i++) {
    px_release(self->items[i].reducing);
    self->items[i].reducing = NULL;
  }
  return status;
}

// Returns a parameter's rows of the reduction result.
static px_status rows_of(px_tensor **out, const px_shards *self, const px__shard *v) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px_narrow(&part, self->mine, 0, v->reduce_at, px_tensor_numel(v->local)));
  return px_view(out, part, px_tensor_sizes(v->local), v->ndim);
}

// Converts rows to a gradient, on the CPU with offload. Asynchronous copies to pinned memory
// complete at the end of backward.
static px_status as_gradient(px_tensor **out, px_shards *self, const px__shard *v,
                             const px_tensor *rows, bool accumulates) {
  PX_SCOPED(px_tensor) cast = NULL;
  bool to_cpu = self->offload && px_tensor_device(rows).type != PX_CPU;
  px_dtype dtype = px_tensor_dtype(v->local);
  PX_TRY(px_to(&cast, rows, dtype, PX_DEVICE_NONE, false, false));
  if (!to_cpu) return *out = PX_MOVE(cast), PX_OK;
  if (!self->pin || accumulates) return px_to(out, cast, PX_DTYPE_NONE, px_cpu(), false, false);
  PX_TRY(px_tensor_empty_pinned(out, v->ndim, px_tensor_sizes(v->local), dtype));
  self->context->copies_pending = true;
  return px_copy_(*out, cast, true);
}

static px_status accumulate_part(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) before = NULL;
  PX_TRY(px_tensor_get_grad(&before, v->local));
  PX_TRY(rows_of(&rows, self, v));
  PX_TRY(as_gradient(&grad, self, v, rows, before != NULL));
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
static px_status run_reduced_hook(px_shards *self) {
  px_stream *reduce = self->context->reduce, *own = self->on_reduced_stream;
  if (!self->on_reduced) return PX_OK;
  if (!reduce || !own) return call_hook(self);
  PX_TRY(px_stream_wait_stream(own, reduce));
  PX_TRY(on_stream(own, call_hook, self));
  return px_stream_wait_stream(reduce, own);
}

static px_status accumulate_parts(px_shards *self) {
  PX_TRY(px_work_wait(self->reduction, 0));
  PX_TRY(run_reduced_hook(self));
  return for_each_reduced(self, accumulate_part);
}

// ---- replicas (HSDP)

static px_status keep_unaveraged(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_TRY(rows_of(&rows, self, v));
  if (v->unaveraged) return px_add_(v->unaveraged, rows, px_int(1));
  return px_clone(&v->unaveraged, rows, "contiguous_format");
}
static px_status keep_all_unaveraged(px_shards *self) {
  return for_each_reduced(self, keep_unaveraged);
}

static px_status add_unaveraged(px_shards *self, px__shard *v) {
  PX_SCOPED(px_tensor) rows = NULL;
  if (!v->unaveraged) return PX_OK;
  PX_TRY(rows_of(&rows, self, v));
  PX_TRY(px_add_(rows, v->unaveraged, px_int(1)));
  px_release(v->unaveraged);
  v->unaveraged = NULL;
  return PX_OK;
}

static px_status average(px_shards *self) {
  PX_TRY(for_each_reduced(self, add_unaveraged));
  px_release(self->reduction);
  self->reduction = NULL;
  px_collective collective = {.op = PX_ALL_REDUCE,
                              .reduce = self->divide != 0 ? PX_REDUCE_SUM : PX_REDUCE_AVG,
                              .outputs = &self->mine,
                              .output_count = 1};
  return px_comm_run(&self->reduction, self->context->replicas, &collective);
}

// ---- pipelining of reductions: with replicas, the average of one group overlaps the
// reduce-scatter of the next

static void release_reduction(px_shards *self) {
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
  release_reduction(self);
  return status;
}

static px_status finish_average(px__shard_context *context) {
  return context->averaging ? end_reduction(context->averaging, accumulate_parts) : PX_OK;
}

// Completes the reduce-scatter of a group. Its rows become gradients, or start their average over
// replicas.
static px_status advance_reduction(px__shard_context *context) {
  px_shards *self = context->reducing;
  if (!self) return PX_OK;
  if (!context->replicas || !self->reduction) return end_reduction(self, accumulate_parts);
  if (!self->averages) return end_reduction(self, keep_all_unaveraged);
  px_status status = on_stream(context->reduce, average, self);
  if (status != PX_OK) release_reduction(self);
  PX_TRY(status);
  context->reducing = NULL;
  context->averaging = self;
  return PX_OK;
}

px_status px__shards_finish_reductions(px__shard_context *context) {
  PX_TRY(finish_average(context));
  PX_TRY(advance_reduction(context));
  return finish_average(context);
}

// Discards earlier accumulated gradients, too: a failed pass may have included some groups only.
px_status px__shards_discard(px_shards *self) {
  release_reduction(self);
  for (int i = 0; i < self->count; i++) {
    px__shard *v = &self->items[i];
    if (v->whole) PX_TRY(px_tensor_set_grad(v->whole, NULL));
    PX_SCOPED(px_tensor) summed = v->summed;
    PX_SCOPED(px_tensor) unaveraged = v->unaveraged;
    v->summed = v->unaveraged = NULL;
  }
  return PX_OK;
}

px_status px__shards_reduce(px_shards *self) {
  px__shard_context *context = self->context;
  for (int i = 0; i < self->count; i++) PX_TRY(accumulate_unreduced(self, &self->items[i]));
  if (!self->reduces || !self->count) return PX_OK;
  PX_TRY(finish_average(context));
  PX_TRY(advance_reduction(context));
  PX_TRY(wait_for_current(context->reduce));
  PX_TRY(on_stream(context->reduce, reduce, self));
  for (int i = 0; i < self->count; i++) {
    px__shard *v = &self->items[i];
    if (v->whole) PX_TRY(px_tensor_set_grad(v->whole, NULL));
    px_release(v->summed);
    v->summed = NULL;
  }
  context->reducing = self;
  return context->reduce ? advance_reduction(context) : PX_OK;
}
