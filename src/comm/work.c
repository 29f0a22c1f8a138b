// SPDX-License-Identifier: Apache-2.0
// One collective: validation, packing of its tensors into contiguous memory and back, execution,
// and waiting.
#include "comm/comm_impl.h"

#include <stdio.h>
#include <string.h>

#include "phlox/graph.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/view.h"
#include "phlox/extend.h"

// Operands of each collective, in units of one rank's share: 1 for one share, MANY for one share
// per rank, FREE for caller-defined counts. `root_in`, `root_out`: only the root has that side.
enum { MANY = 2, FREE = 3 };
static const struct {
  int8_t in, out;
  bool in_place, reduces, rooted, root_in, root_out;
} shapes[PX_COLLECTIVE_COUNT] = {
    [PX_BROADCAST] = {.out = 1, .in_place = true, .rooted = true},
    [PX_ALL_REDUCE] = {.out = 1, .in_place = true, .reduces = true},
    [PX_REDUCE] = {.out = 1, .in_place = true, .reduces = true, .rooted = true},
    [PX_ALL_GATHER] = {.in = 1, .out = MANY},
    [PX_REDUCE_SCATTER] = {.in = MANY, .out = 1, .reduces = true},
    [PX_ALL_TO_ALL] = {.in = FREE, .out = FREE},
    [PX_GATHER] = {.in = 1, .out = MANY, .rooted = true, .root_out = true},
    [PX_SCATTER] = {.in = MANY, .out = 1, .rooted = true, .root_in = true},
    [PX_BARRIER] = {0},
    [PX_SEND] = {.in = 1},
    [PX_RECV] = {.out = 1},
};
// ---- checks

static bool shares_elements(const px_tensor *tensor) {
  bool any = false;
  for (int d = 0; d < px_tensor_ndim(tensor); d++)
    any |= px_tensor_sizes(tensor)[d] > 1 && px_tensor_strides(tensor)[d] == 0;
  return any;
}

// Queued work takes contiguous tensors, as NCCL does. Others may have any strides, and outputs no
// elements that share memory.
static px_status check_one(const px_tensor *tensor, const px_tensor *first, bool queued, bool out) {
  PX_CHECK(tensor, PX_TYPE, "expected a tensor as operand of a collective, got NULL");
  bool contiguous = px_tensor_is_contiguous(tensor);
  PX_CHECK(contiguous || !queued, PX_VALUE, "Tensors must be contiguous");
  PX_CHECK(!out || contiguous || !shares_elements(tensor), PX_RUNTIME,
           "unsupported operation: more than one element of the written-to tensor refers to a "
           "single memory location. Please clone() the tensor before performing the operation.");
  PX_CHECK(px_tensor_dtype(tensor) == px_tensor_dtype(first), PX_VALUE,
           "Invalid usage of tensors with different dtypesFound torch.%s and  torch.%s",
           px_dtype_name(px_tensor_dtype(first)), px_dtype_name(px_tensor_dtype(tensor)));
  PX_CHECK(px_device_equal(px_tensor_device(tensor), px_tensor_device(first)), PX_VALUE,
           "expected all tensors of a collective on the same device");
  // Check the size, not the address: reading the address would mark the memory as shared outside
  // and prevent its reuse.
  size_t end = (size_t)(px_tensor_offset(tensor) + px_tensor_numel(tensor)) *
               px_dtype_size(px_tensor_dtype(tensor));
  PX_CHECK(
      !contiguous || !px_tensor_numel(tensor) || px_storage_bytes(px_tensor_storage(tensor)) >= end,
      PX_RUNTIME, "a tensor of a collective exceeds its storage: the storage was resized");
  return PX_OK;
}

static int64_t numel(px_tensor *const *tensors, int count) {
  int64_t sum = 0;
  for (int i = 0; i < count; i++) sum += px_tensor_numel(tensors[i]);
  return sum;
}

// Checks one side: `share` elements, or `share` for each rank.
static px_status check_side(const char *what, const px_comm *comm, px_collective_op op, int8_t kind,
                            px_tensor *const *tensors, int count, int64_t share) {
  int64_t expected = kind == 0 ? 0 : kind == MANY ? share * comm->size : share;
  bool several = kind && shapes[op].in_place && count > 1;
  PX_CHECK(
      count == 1 || several || (kind == MANY && count == comm->size) || (kind == 0 && count == 0),
      PX_RUNTIME, "%s: got %d %s tensors for a group of %d ranks", px__collective_names[op], count,
      what, comm->size);
  PX_CHECK(numel(tensors, count) == expected, PX_RUNTIME,
           "%s: expected %lld elements in the %s tensors for a group of %d ranks, got %lld",
           px__collective_names[op], (long long)expected, what, comm->size,
           (long long)numel(tensors, count));
  for (int i = 1; i < count && !several; i++)
    PX_CHECK(px_tensor_numel(tensors[i]) == share, PX_RUNTIME,
             "%s: expected %s tensors of equal size", px__collective_names[op], what);
  return PX_OK;
}

static px_status check_counts(const px_comm *comm, const int64_t *counts, px_tensor *const *tensors,
                              int count) {
  int64_t sum = 0;
  for (int r = 0; counts && r < comm->size; r++) {
    PX_CHECK(counts[r] >= 0, PX_VALUE, "all_to_all: expected split sizes >= 0, got %lld",
             (long long)counts[r]);
    sum += counts[r];
  }
  PX_CHECK(count == comm->size || count == 1, PX_RUNTIME,
           "all_to_all: expected 1 or %d tensors, got %d", comm->size, count);
  PX_CHECK(!counts || sum == numel(tensors, count), PX_RUNTIME,
           "Split sizes doesn't match total dim 0 size");
  PX_CHECK(counts || count > 1 || numel(tensors, 1) % comm->size == 0, PX_RUNTIME,
           "Tensor's dim 0 does not divide equally across group size");
  return PX_OK;
}

static px_status check_sides(const px_comm *comm, const px_collective *c, bool has_in, bool has_out,
                             int64_t *share) {
  int8_t in = has_in ? shapes[c->op].in : 0, out = has_out ? shapes[c->op].out : 0;
  if (in == FREE) {
    PX_TRY(check_counts(comm, c->input_counts, c->inputs, c->input_count));
    return check_counts(comm, c->output_counts, c->outputs, c->output_count);
  }
  int64_t all_in = numel(c->inputs, c->input_count), all_out = numel(c->outputs, c->output_count);
  *share = in == 1 ? all_in : out == 1 ? all_out : 0;
  PX_TRY(check_side("input", comm, c->op, in, c->inputs, c->input_count, *share));
  return check_side("output", comm, c->op, out, c->outputs, c->output_count, *share);
}

static px_status check_peer(const px_comm *comm, const px_collective *c) {
  bool pairs = px__is_p2p(c->op);
  bool any = c->op == PX_RECV && c->peer == -1;
  if (!pairs && !shapes[c->op].rooted) return PX_OK;
  PX_CHECK(any || (c->peer >= 0 && c->peer < comm->size), PX_VALUE,
           "%s: rank %d is not in a group of %d", px__collective_names[c->op], c->peer, comm->size);
  PX_CHECK(!pairs || c->peer != comm->rank, PX_VALUE,
           "Invalid %s rank: %s rank should not be the "
           "same as the rank of the current process.",
           c->op == PX_SEND ? "destination" : "source",
           c->op == PX_SEND ? "destination" : "source");
  return PX_OK;
}

// ---- making

static uint32_t tag_of(const px_work *self, const px_collective *c) {
  uint64_t h = 0xcbf29ce484222325u;
  uint64_t fields[] = {self->called.number,
                       (uint64_t)c->op,
                       (uint64_t)c->peer,
                       shapes[c->op].reduces ? (uint64_t)c->reduce : 0,
                       (uint64_t)self->called.dtype,
                       (uint64_t)self->call.count};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    for (int byte = 0; byte < 8; byte++) h = (h ^ (fields[i] >> 8 * byte & 255)) * 0x100000001b3u;
  return (uint32_t)(h ^ h >> 32);
}

static px_status keep_tensors(px_work *self, const px_collective *c) {
  int n = c->input_count + c->output_count;
  PX_TRY(px_alloc((void **)&self->tensors, (size_t)(n + 1) * sizeof *self->tensors));
  for (int i = 0; i < n; i++) {
    px_tensor *tensor = i < c->input_count ? c->inputs[i] : c->outputs[i - c->input_count];
    PX_TRY(check_one(tensor, i ? self->tensors[0] : tensor, self->queued, i >= c->input_count));
    self->tensors[i] = px_retain(tensor);
    *(i < c->input_count ? &self->input_count : &self->output_count) += 1;
  }
  self->called.dtype = n ? px_tensor_dtype(self->tensors[0]) : PX_UINT8;
  self->device = n ? px_tensor_device(self->tensors[0]) : (px_device){PX_CPU, -1};
  return PX_OK;
}

static bool posted(const px_work *self) {
  return self->device.type == PX_CUDA && px__comm_posts(self->comm);
}
static bool scales(const px_work *self) {
  return shapes[self->call.op].reduces && self->called.reduce == PX_REDUCE_PREMUL_SUM;
}

// True if the values of a tensor are not its memory in order: conjugate and negative views, and
// strided tensors.
static bool any_differs(px_tensor *const *tensors, int count) {
  bool any = false;
  for (int i = 0; i < count; i++)
    any |= px_tensor_unresolved(tensors[i]) || !px_tensor_is_contiguous(tensors[i]);
  return any;
}

// Returns contiguous memory for the tensors of one side: device memory if the engine queues, host
// memory otherwise. It is the only tensor itself, or a new buffer: for several tensors, those whose
// values are not their memory in order, tensors staged in host memory, or elements scaled before
// the reduction.
static px_status contiguous_operand(px_tensor **out, bool *copies, const px_work *self,
                                    px_tensor *const *tensors, int count) {
  int64_t total = numel(tensors, count);
  if (count == 0) return PX_OK;
  bool stays = self->device.type == PX_CPU || self->queued || posted(self);
  *copies = count > 1 || !stays || scales(self) || any_differs(tensors, count);
  if (!*copies) return *out = px_retain(tensors[0]), PX_OK;
  if (!stays) return px_tensor_empty_pinned(out, 1, &total, self->called.dtype);
  return px_tensor_empty(out, 1, &total, self->called.dtype, self->device);
}

static px_status lay_out(px_work *self, const px_collective *c) {
  px_tensor *const *outputs = self->tensors + self->input_count;
  int64_t one = 1;
  if (self->queued && c->op == PX_BARRIER)
    return px_tensor_empty(&self->out, 1, &one, PX_UINT8, self->device);
  bool copies = scales(self) || any_differs(outputs, self->output_count);
  if (self->queued && shapes[c->op].in_place && !copies) return PX_OK;  // one call a tensor
  PX_TRY(contiguous_operand(&self->out, &self->scatters_out, self, outputs, self->output_count));
  if (shapes[c->op].in_place) {
    self->in = px_retain(self->out);
    self->packs_in = self->scatters_out;
  } else {
    PX_TRY(contiguous_operand(&self->in, &self->packs_in, self, self->tensors, self->input_count));
  }
  if (self->queued || posted(self)) return PX_OK;
  self->call.in = self->in ? px_tensor_data(self->in) : NULL;
  self->call.out = self->out ? px_tensor_data(self->out) : NULL;
  return PX_OK;
}

static px_status count_parts(px_work *self, const px_comm *comm, const px_collective *c) {
  if (c->op != PX_ALL_TO_ALL) return PX_OK;
  PX_TRY(px_alloc((void **)&self->counts, 2 * (size_t)comm->size * sizeof *self->counts));
  for (int side = 0; side < 2; side++) {
    const int64_t *given = side ? c->output_counts : c->input_counts;
    px_tensor *const *tensors = side ? c->outputs : c->inputs;
    int n = side ? c->output_count : c->input_count;
    for (int r = 0; r < comm->size; r++)
      self->counts[side * comm->size + r] = given   ? given[r]
                                            : n > 1 ? px_tensor_numel(tensors[r])
                                                    : numel(tensors, n) / comm->size;
  }
  self->call.in_counts = self->counts;
  self->call.out_counts = self->counts + comm->size;
  return PX_OK;
}

static px_status choose_reduction(px_work *self, const px_comm *comm, const px_collective *c) {
  int per;
  if (!shapes[c->op].reduces) return PX_OK;
  PX_CHECK((unsigned)c->reduce < PX_REDUCE_COUNT, PX_VALUE, "invalid reduction: %d", c->reduce);
  self->call.reduce = px__reduce_find(c->reduce, self->called.dtype, &per);
  // An engine with queues reduces itself, and refuses what it cannot.
  bool own = self->queued && !px_dtype_is_complex(self->called.dtype);
  PX_CHECK(self->call.reduce || own || !px_dtype_is_complex(self->called.dtype), PX_VALUE,
           "%s does not support RedOpType.%s on complex tensors", px__collective_names[c->op],
           px__reduction_names[c->reduce]);
  bool bits =
      c->reduce == PX_REDUCE_BAND || c->reduce == PX_REDUCE_BOR || c->reduce == PX_REDUCE_BXOR;
  PX_CHECK(self->call.reduce || own, PX_RUNTIME, "Cannot use ReduceOp.%s with %s",
           px__reduction_names[c->reduce],
           bits ? "non-integral dtype" : px_dtype_name(self->called.dtype));
  self->call.item /= (size_t)per;
  self->call.count *= per;
  self->called.reduce = c->reduce;
  self->factor = c->factor;
  self->call.reduction = scales(self) ? PX_REDUCE_SUM : c->reduce;
  if (c->reduce == PX_REDUCE_AVG && !self->queued && (c->op != PX_REDUCE || c->peer == comm->rank))
    self->divide = comm->size;
  return PX_OK;
}

// Fails if the engine does not support the call.
static px_status check_engine(const px_work *self, const px_comm *comm) {
  static const px_status statuses[] = {PX_VALUE, PX_TYPE, PX_RUNTIME};
  char why[PX__REASON] = "";
  if (!PX__ENGINE_HAS(comm->engine, refuse)) return PX_OK;
  int bad = comm->engine->refuse(&self->call, why, sizeof why);
  if (!bad) return PX_OK;
  PX_FAIL(statuses[bad - 1], "%s%s", why, bad == 2 ? px_dtype_class(self->called.dtype) : "");
}

// Sets the work's device. A call without tensors uses the group's device, or the current one.
static px_status choose_device(px_work *self, const px_comm *comm) {
  px_stream *current;
  if (comm->queues && !self->input_count && !self->output_count)
    self->device = comm->streams[1] ? px_stream_device(comm->streams[1]) : px_cuda(-1);
  if (comm->queues) {
    PX_CHECK(self->device.type == PX_CUDA, PX_RUNTIME,
             "No backend type associated with device type cpu");
    return px_device_resolve(&self->device, self->device);
  }
  if (self->device.type != PX_CUDA) return PX_OK;
  PX_TRY(px_stream_current(&current, self->device));
  PX_CHECK(!px_stream_capturing(current), PX_UNIMPLEMENTED,
           "host collectives cannot be captured in a graph; NCCL collectives on GPUs can");
  return PX_OK;
}

// ---- callbacks of the engine

static px_work *work_of(const px_engine_call *call) {
  return (px_work *)((char *)call - offsetof(px_work, call));
}

static void divide(const px_engine_call *call, void *out, int64_t n) {
  const px_work *self = work_of(call);
  px__reduce_divide(self->called.dtype, out, n, self->divide);
}

static void describe(const px_engine_call *call, char *text, size_t size) {
  px__call_describe(text, size, &work_of(call)->called, true);
}

static px_status prepare(px_work *self, px_comm *comm, const px_collective *c) {
  bool root = !shapes[c->op].rooted || c->peer == comm->rank;
  int64_t timeout = c->timeout_ms > 0 ? c->timeout_ms : comm->timeout_ms;
  PX_TRY(keep_tensors(self, c));
  PX_TRY(choose_device(self, comm));
  PX_TRY(check_peer(comm, c));
  PX_TRY(check_sides(comm, c, root || !shapes[c->op].root_in, root || !shapes[c->op].root_out,
                     &self->call.count));
  self->call.peer = c->peer;
  self->call.item = px_dtype_size(self->called.dtype);
  self->call.dtype = px_dtype_to_real(self->called.dtype);
  self->call.timeout_ms = timeout;
  self->deadline = px__now_ms() + timeout;
  PX_TRY(choose_reduction(self, comm, c));
  PX_TRY(check_engine(self, comm));
  self->call.finish = self->divide && px__comm_posts(comm) ? divide : NULL;
  self->call.describe = describe;
  PX_TRY(count_parts(self, comm, c));
  return lay_out(self, c);
}

static void work_destroy(void *object) {
  px_work *self = object;
  char why[PX__REASON];
  if (self->pending) self->comm->engine->finish(self->pending, &self->source, -1, why, sizeof why);
  for (int i = 0; i < self->input_count + self->output_count; i++) px_release(self->tensors[i]);
  px_free(self->tensors);
  px_release(self->in);
  px_release(self->out);
  px_release(self->event);
  px_free(self->counts);
  px_free(self->error_storage);
  if (self->owns) px_release(self->comm);
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

// Numbers a call. A send or recv carries the number of the preceding collective.
static void number(px_work *self, px_comm *comm, const px_collective *c) {
  bool pairs = px__is_p2p(c->op);
  px__call *called = &self->called;
  called->op = c->op;
  called->peer = c->peer;
  called->count = self->call.count;
  called->reduces = shapes[c->op].reduces;
  called->rooted = shapes[c->op].rooted;
  px_site_get(&called->site.file, &called->site.line);
  pthread_mutex_lock(&comm->lock);
  called->number = pairs ? comm->number : ++comm->number;
  called->tag = tag_of(self, c);
  if (!pairs) px__watchdog_begun(comm->watch, called);
  pthread_mutex_unlock(&comm->lock);
  self->call.tag = pairs ? (uint32_t)c->tag : called->tag;
  self->call.number = pairs ? 0 : called->number;
}

static px_status check_usable(px_comm *comm, px_collective_op op) {
  char why[PX__REASON];
  pthread_mutex_lock(&comm->lock);
  uint64_t next = comm->number + 1;
  snprintf(why, sizeof why, "%s", comm->broken);
  pthread_mutex_unlock(&comm->lock);
  for (int i = 0; i < 2 && why[0]; i++)  // the error is returned here; clear it on the device
    if (comm->streams[i]) px_device_fail(px_stream_device(comm->streams[i]), NULL);
  PX_CHECK(!why[0], PX_DIST_BACKEND,
           "[Rank %d] cannot start %s number %llu: the group is no longer usable: %s", comm->rank,
           px__collective_names[op], (unsigned long long)next, why);
  return PX_OK;
}

px_status px__work_new(px_work **out, px_comm *comm, const px_collective *c) {
  static const px_class cls = {"work", work_destroy};
  px_work *self;
  PX_CHECK((unsigned)c->op < PX_COLLECTIVE_COUNT, PX_VALUE, "invalid collective: %d", c->op);
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_work) owned = self;
  px_object_init(self, &cls);
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->source = -1;
  self->call.op = c->op;
  self->queued = comm->queues;
  self->owns = px__is_p2p(c->op) && !self->queued;
  self->comm = self->owns ? px_retain(comm) : comm;
  PX_TRY(px_alloc((void **)&self->error_storage, sizeof *self->error_storage));
  PX_TRY(check_usable(comm, c->op));
  PX_TRY(px__cluster_enter(comm, c->op));
  PX_TRY(prepare(self, comm, c));
  number(self, comm, c);
  *out = PX_MOVE(owned);
  return PX_OK;
}

// ---- copies between tensors and staging buffers

// Stream work fills a staging buffer in host memory later. A conjugate or negative view therefore
// gets the values from a copy on its device, in stream order.
static px_status deliver(px_tensor *to, const px_tensor *from) {
  PX_SCOPED(px_tensor) here = NULL;
  if (!px_tensor_unresolved(to)) return px_copy_(to, from, true);
  PX_TRY(px_to(&here, from, PX_DTYPE_NONE, px_tensor_device(to), true, false));
  return px_copy_(to, here, true);
}

static px_status move(px_tensor *const *tensors, int count, px_tensor *piece, bool out) {
  int64_t at = 0;
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_SCOPED(px_tensor) view = NULL;
    PX_SCOPED(px_tensor) plain = NULL;
    PX_TRY(px_narrow(&part, piece, 0, at, px_tensor_numel(tensors[i])));
    PX_TRY(px_view(&view, part, px_tensor_sizes(tensors[i]), px_tensor_ndim(tensors[i])));
    PX_TRY(px_tensor_detach(&plain, tensors[i]));
    PX_TRY(out ? deliver(plain, view) : px_copy_(view, plain, true));
    at += px_tensor_numel(tensors[i]);
  }
  return PX_OK;
}

static px_status gather(px_work *self) {
  bool in_place = shapes[self->call.op].in_place;
  if (!self->packs_in) return PX_OK;
  return move(self->tensors + (in_place ? self->input_count : 0),
              in_place ? self->output_count : self->input_count, self->in, false);
}

px_status px__work_gather(px_work *self) {
  PX_TRY(gather(self));
  // Host collectives scale in `run`.
  return (self->queued || posted(self)) && scales(self)
             ? px_mul_scalar_(self->in, px_float(self->factor))
             : PX_OK;
}

px_status px__work_spread(px_work *self) {
  bool lost = self->call.op == PX_REDUCE && self->call.peer != self->comm->rank;
  if (!self->scatters_out || lost) return PX_OK;
  return move(self->tensors + self->input_count, self->output_count, self->out, true);
}

// ---- running

void px__work_fail(px_work *self) {
  px_error_take(self->error_storage);
  self->error = self->error_storage;
}

px_status px__work_break_group(px_work *self, px_comm *comm, const char *why) {
  char description[PX__CALL], text[PX__FAILURE], reason[PX__REASON];
  bool pairs = px__is_p2p(self->call.op);
  px__call_describe(description, sizeof description, &self->called, false);
  // A number identifies a collective on the other ranks, but not a send or recv: name those.
  snprintf(reason, sizeof reason, "%s%s%.600s", pairs ? description : "", pairs ? ": " : "", why);
  px__watchdog_explain(comm->watch, self->call.number, reason);
  if (px__comm_detects(comm) && comm->joined) comm->engine->fail(comm->joined, 0, reason);
  px__call_explain(text, &self->called, comm->rank, self->call.timeout_ms, reason);
  pthread_mutex_lock(&comm->lock);
  if (!comm->refused) snprintf(comm->broken, sizeof comm->broken, "%.1000s", text);
  comm->refused = true;
  pthread_mutex_unlock(&comm->lock);
  PX_FAIL(PX_DIST_BACKEND, "%s", text);
}

static px_status run(px_work *self, px_comm *comm) {
  char why[PX__REASON] = "";
  int64_t left = self->deadline - px__now_ms();
  pthread_mutex_lock(&comm->lock);
  snprintf(why, sizeof why, "%s", comm->broken);
  pthread_mutex_unlock(&comm->lock);
  if (why[0]) return px__work_break_group(self, comm, why);
  self->call.timeout_ms = left > 1 ? left : 1;
  if (px_fault_check("collective")) return px__work_break_group(self, comm, "injected fault");
  if (scales(self))
    px__reduce_scale(self->called.dtype, px_tensor_data(self->in), px_tensor_numel(self->in),
                     self->factor);
  if (comm->engine->run(comm->joined, &self->call, why, sizeof why))
    return px__work_break_group(self, comm, why);
  if (!px__is_p2p(self->call.op)) px__watchdog_done(comm->watch, self->called.number);
  if (self->divide && !self->call.finish) divide(&self->call, self->call.out, self->call.count);
  return PX_OK;
}

void px__work_run(px_work *self, px_comm *comm) {
  if (run(self, comm) != PX_OK) px__work_fail(self);
}

void px__work_done(px_work *self) {
  pthread_mutex_lock(&self->lock);
  self->done = true;
  px__after *after = self->after, *first = NULL;
  self->after = NULL;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
  while (after) {  // reverse: callbacks run in the order of registration
    px__after *next = after->next;
    after->next = first;
    first = after;
    after = next;
  }
  while (first) {
    px__after *next = first->next;
    first->fn(first->context);
    px_free(first);
    first = next;
  }
}

// ---- the thread of a communicator

void px__work_run_first(px_comm *comm) {
  px_work *work = comm->first;
  comm->first = work->next;
  if (!comm->first) comm->last = NULL;
  pthread_mutex_unlock(&comm->lock);
  if (px__work_gather(work) != PX_OK)
    px__work_fail(work);
  else
    px__work_run(work, comm);
  if (!work->error && px__work_spread(work) != PX_OK) px__work_fail(work);
  px__work_done(work);
  px_release(work);
  pthread_mutex_lock(&comm->lock);
  if (!--comm->on_host) pthread_cond_broadcast(&comm->changed);
}

// Callbacks may wait for another work on the thread that must run it. Runs queued works until that
// one has completed.
static void run_queue_until(const px_work *until) {
  px_comm *comm = until->comm;
  if (!until->on_thread || !pthread_equal(until->thread, pthread_self())) return;
  pthread_mutex_lock(&comm->lock);
  while (comm->first && !px_work_is_completed(until)) px__work_run_first(comm);
  pthread_mutex_unlock(&comm->lock);
}

// ---- waiting

static px_status await(px_work *self, int64_t timeout_ms) {
  int64_t end = px__now_ms() + timeout_ms;
  px_status status = PX_OK;
  pthread_mutex_lock(&self->lock);
  while (!self->done && status == PX_OK) {
    px_interrupt_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    status = px_interrupt_poll();
    pthread_mutex_lock(&self->lock);
    if (!self->done && status == PX_OK && timeout_ms > 0 && px__now_ms() >= end)
      status = px_error_set(PX_DIST_BACKEND, 0, __FILE__, __LINE__, __func__,
                            "Operation timed out! (%s, after %lld ms)",
                            px__collective_names[self->call.op], (long long)timeout_ms);
  }
  pthread_mutex_unlock(&self->lock);
  return status;
}

px_status px_work_at_end(px_work *self, void (*fn)(void *context), void *context) {
  PX_GIVEN(self);
  PX_GIVEN(fn);
  px__after *after;
  PX_TRY(px_alloc((void **)&after, sizeof *after));
  *after = (px__after){fn, context, NULL};
  pthread_mutex_lock(&self->lock);
  bool done = self->done;
  if (!done) after->next = self->after, self->after = after;
  pthread_mutex_unlock(&self->lock);
  if (!done) return PX_OK;
  px_free(after);
  fn(context);
  return PX_OK;
}

px_event *px_work_event(px_work *self) { return self->event; }

// Completes a send or recv of host memory in the waiting thread.
static px_status finish(px_work *self, int64_t timeout_ms) {
  char why[PX__REASON] = "";
  int64_t left = timeout_ms > 0 ? timeout_ms : self->deadline - px__now_ms();
  void *pending = self->pending;
  self->pending = NULL;
  if (!pending) return PX_OK;
  int bad =
      self->comm->engine->finish(pending, &self->source, left > 1 ? left : 1, why, sizeof why);
  px_status status = bad ? px__work_break_group(self, self->comm, why) : px__work_spread(self);
  if (status != PX_OK) px__work_fail(self);
  px__work_done(self);
  return self->error ? px_error_give(self->error) : PX_OK;
}

// Polls until the stream reaches the event or the work has an error.
static px_status await_event(px_work *self, int64_t timeout_ms) {
  int64_t end = px__now_ms() + timeout_ms;
  while (!px_event_query_nolock(self->event) && !px_work_error(self)) {
    PX_TRY(px_interrupt_poll());
    PX_CHECK(px__now_ms() < end, PX_DIST_BACKEND, "Operation timed out! (%s, after %lld ms)",
             px__collective_names[self->call.op], (long long)timeout_ms);
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  return PX_OK;
}

// After a barrier the host, too, is synchronized.
static px_status await_barrier(px_work *self) {
  px_status status = PX_OK;
  if (!self->queued || self->captured || self->call.op != PX_BARRIER) return PX_OK;
  status = px_event_synchronize(self->event);
  if (status != PX_OK && px_work_error(self)) return px_error_clear(), PX_OK;
  return status;
}

px_status px_work_wait(px_work *self, int64_t timeout_ms) {
  PX_GIVEN(self);
  px_stream *current;
  if (self->event) {
    if (timeout_ms > 0 && !self->captured)
      PX_TRY(self->queued ? await_event(self, timeout_ms) : await(self, timeout_ms));
    PX_TRY(await_barrier(self));
    if (px_work_error(self)) {
      px_device_fail(self->device, NULL);  // the error is returned here; clear it on the device
      return px_error_give(self->error);
    }
    PX_TRY(px_stream_current(&current, self->device));
    return px_stream_wait_event(current, self->event);
  }
  if (self->pending) return finish(self, timeout_ms);
  run_queue_until(self);
  PX_TRY(await(self, timeout_ms));
  return self->error ? px_error_give(self->error) : PX_OK;
}

bool px_work_is_completed(const px_work *self) {
  px_work *work = (px_work *)self;
  bool over = true;
  pthread_mutex_lock(&work->lock);
  bool done = work->done;
  pthread_mutex_unlock(&work->lock);
  if (done && self->event && px_event_query(&over, self->event) != PX_OK) px_error_clear();
  return done && over;
}

const px_error *px_work_error(px_work *self) {
  pthread_mutex_lock(&self->lock);
  const px_error *error = self->done ? self->error : NULL;
  pthread_mutex_unlock(&self->lock);
  return error;
}

int px_work_source(const px_work *self) { return self->source; }
