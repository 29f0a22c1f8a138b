// SPDX-License-Identifier: Apache-2.0
// Device works. A queueing engine enqueues them on the communicator's stream. On simulated devices
// any other engine runs as a host call of the stream, surrounded by copies.
#include "comm/comm_impl.h"
#include "phlox/autograd.h"
#include "phlox/graph.h"
#include "phlox/extend.h"

#include <stdio.h>
#include <string.h>

// ---- the stream

static px_status stream_for(px_stream **out, px_comm *self, const px_work *work) {
  int min_priority, max_priority;
  px_stream **stream = &self->streams[self->queues || work->call.op != PX_RECV];
  PX_CHECK(self->queues || !strcmp(px_device_backend(), "sim"), PX_UNIMPLEMENTED,
           "collectives on GPU tensors require the nccl backend, got %s", self->engine_name);
  PX_TRY(px_stream_priority_range(&min_priority, &max_priority));
  // High priority: other ranks wait for collectives.
  if (!*stream) PX_TRY(px_stream_new(stream, work->device, self->queues ? max_priority : 0));
  PX_CHECK(px_stream_device(*stream).index == work->device.index, PX_VALUE,
           "expected tensors on cuda:%d, the device of the group, got cuda:%d",
           px_stream_device(*stream).index, work->device.index);
  *out = *stream;
  return PX_OK;
}

// Calls `body` with `stream` current. The stream first waits for the previously current one.
static px_status with_stream(px_stream *stream, px_status (*body)(px_stream *stream, void *context),
                             void *context) {
  px_stream *current;
  PX_TRY(px_stream_current(&current, px_stream_device(stream)));
  PX_TRY(px_stream_wait_stream(stream, current));
  PX_ON_STREAM(stream);
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = body(stream, context);
  px_grad_set_enabled(was);
  return status;
}

// ---- simulated devices

// Runs on the stream's thread, so it calls no device function. `reap` releases the work later.
static void run_on_stream(void *argument) {
  px_work *work = argument;
  px__work_run(work, work->comm);
  if (work->error) px_device_fail(work->device, work->error);
  px__work_done(work);
}

// Completion callback of an engine with `post`.
static void on_posted_end(void *argument, int peer, const char *why) {
  px_work *work = argument;
  work->source = peer;
  if (why && px__work_break_group(work, work->comm, why) != PX_OK) px__work_fail(work);
  if (work->error) px_device_fail(work->device, work->error);
  px__work_done(work);
}

static px_status post(void *native, void *const *addresses, void *context) {
  px_work *work = context;
  px_comm *comm = work->comm;
  char why[PX__REASON] = "injected fault";
  work->call.in = work->in ? addresses[0] : NULL;
  work->call.out = work->out ? addresses[work->in && work->in != work->out] : NULL;
  if (!px_fault_check("collective") &&
      !comm->engine->post(comm->joined, &work->call, native, on_posted_end, work, why, sizeof why))
    return PX_OK;
  return px__work_break_group(work, comm, why);
}

// Queues a posted call. In-place operands are writes, except on a rank that only sends: concurrent
// reads are allowed there.
static px_status post_on(px_stream *stream, px_work *work) {
  bool root = work->call.peer == work->comm->rank;
  bool only_sends = work->call.op == PX_BROADCAST ? root : work->call.op == PX_REDUCE && !root;
  px_tensor *touched[2];
  int reads = 0, count = 0;
  if (work->in && (work->in != work->out || only_sends)) touched[count++] = work->in, reads = 1;
  if (work->out && !only_sends) touched[count++] = work->out;
  return px_stream_queue(stream, px__collective_names[work->call.op], touched, count, reads, post,
                         work);
}

static px_status on_stream(px_stream *stream, void *context) {
  px_work *work = context;
  PX_TRY(px__work_gather(work));
  PX_TRY(px_event_new(&work->event, 0));
  PX_TRY(px__comm_posts(work->comm) ? post_on(stream, work)
                                    : px_stream_host_call(stream, run_on_stream, work));
  px_status status = px__work_spread(work);
  px_status recorded = px_event_record(work->event, stream);
  return status != PX_OK ? status : recorded;
}

// Releases the operands. Their copies are queued, so stream order protects the memory.
static void release_tensors(px_work *work) {
  for (int i = 0; i < work->input_count + work->output_count; i++) px_release(work->tensors[i]);
  work->input_count = work->output_count = 0;
}

px_status px__begin_on_device(px_comm *self, px_work *work) {
  px_stream *stream = NULL;
  PX_TRY(stream_for(&stream, self, work));
  px_status status = with_stream(stream, on_stream, work);
  release_tensors(work);
  // Once queued, the stream uses the work, even if a later step failed.
  if (work->event) {
    px__works_reap(self, false);
    px__works_add(self, work);
  }
  return status;
}

// ---- queueing engines

// A batch of works for one `queue` call of the engine. For each engine call, `operand_index` holds
// the indices of its operands in `tensors`. Read operands precede written ones.
typedef struct batch {
  px_comm *comm;
  px_work **works;
  int work_count, count, reads, tensor_count;
  px_engine_call *calls;
  struct {
    int in, out;  // -1: none
  } * operand_index;
  px_tensor **tensors;
  char why[PX__REASON];
} batch;

// Number of engine calls: one for each tensor of an in-place collective, otherwise one.
static int calls_of(const px_work *work) {
  return work->in || work->out || !work->output_count ? 1 : work->output_count;
}

static void add_reads(batch *o) {
  for (int w = 0; w < o->work_count; w++) {
    const px_work *work = o->works[w];
    for (int i = calls_of(work); i > 0; i--) {
      o->operand_index[o->count].in = work->in ? o->reads : -1;
      if (work->in) o->tensors[o->reads++] = work->in;
      o->calls[o->count] = work->call;
      int64_t left = work->deadline - px__now_ms();
      o->calls[o->count++].timeout_ms = left > 1 ? left : 1;
    }
  }
}

static void add_writes(batch *o) {
  int call = 0;
  o->tensor_count = o->reads;
  for (int w = 0; w < o->work_count; w++) {
    const px_work *work = o->works[w];
    int calls = calls_of(work);
    for (int i = 0; i < calls; i++, call++) {
      px_tensor *out = work->out || work->in ? work->out
                       : work->output_count  ? work->tensors[work->input_count + i]
                                             : NULL;
      o->operand_index[call].out = out ? o->tensor_count : -1;
      if (out) o->tensors[o->tensor_count++] = out;
      if (calls == 1 && work->call.op != PX_BARRIER) continue;
      o->calls[call].count = px_tensor_numel(out) * (int64_t)px_dtype_size(px_tensor_dtype(out)) /
                             (int64_t)o->calls[call].item;
    }
  }
}

static px_status queue(void *native, void *const *addresses, void *context) {
  batch *o = context;
  px_comm *comm = o->comm;
  for (int i = 0; i < o->count; i++) {
    px_engine_call *call = &o->calls[i];
    call->out = o->operand_index[i].out >= 0 ? addresses[o->operand_index[i].out] : NULL;
    call->in = o->operand_index[i].in >= 0 ? addresses[o->operand_index[i].in] : call->out;
  }
  int bad = comm->engine->queue(comm->joined, o->calls, o->count, native, o->why, sizeof o->why);
  PX_CHECK(!bad, PX_DIST_BACKEND, "%s", o->why);
  return PX_OK;
}

static px_status queue_all(batch *o, px_stream *stream) {
  int calls = 0;
  for (int w = 0; w < o->work_count; w++) calls += calls_of(o->works[w]);
  size_t each = sizeof *o->calls + sizeof *o->operand_index + 2 * sizeof *o->tensors;
  PX_TRY(px_alloc((void **)&o->calls, (size_t)calls * each));
  o->tensors = (px_tensor **)(o->calls + calls);
  o->operand_index = (void *)(o->tensors + 2 * calls);
  add_reads(o);
  add_writes(o);
  px_status status = px_stream_queue(stream, px__collective_names[o->works[0]->call.op], o->tensors,
                                     o->tensor_count, o->reads, queue, o);
  px_free(o->calls);
  return status;
}

static px_status refuse(const batch *o) {
  px_error_clear();
  return px__work_break_group(o->works[0], o->comm, o->why);
}

// Releases all memory of a queued work; the stream tracks its own uses.
static void release_memory(px_work *work) {
  release_tensors(work);
  px_release(work->in), work->in = NULL;
  px_release(work->out), work->out = NULL;
}

static px_status finish(batch *o, px_stream *stream) {
  px_status status = PX_OK;
  PX_SCOPED(px_event) event = NULL;
  for (int w = 0; w < o->work_count && status == PX_OK; w++) status = px__work_spread(o->works[w]);
  PX_TRY(px_event_new(&event, 0));
  PX_TRY(px_event_record(event, stream));
  for (int w = 0; w < o->work_count; w++) {
    px_work *work = o->works[w];
    work->event = px_retain(event);
    release_memory(work);
    px__work_done(work);
    px__works_add(o->comm, work);
  }
  return status;
}

static px_status queue_on(px_stream *stream, void *context) {
  batch *o = context;
  bool captured = px_stream_capturing(stream);
  for (int w = 0; w < o->work_count; w++) {
    o->works[w]->captured = captured;
    PX_TRY(px__work_gather(o->works[w]));
  }
  PX_TRY(queue_all(o, stream));
  return finish(o, stream);
}

// Makes the device current for the calling thread in the driver, as other libraries require.
// Recording an event has that side effect.
static px_status make_device_current(px_stream *stream) {
  PX_SCOPED(px_event) event = NULL;
  PX_TRY(px_event_new(&event, 0));
  return px_event_record(event, stream);
}

// Joins the group at the first call, once the device is known.
static px_status ensure_joined(batch *o, px_stream *stream) {
  px_comm *comm = o->comm;
  const px_work *work = o->works[0];
  int64_t left = work->deadline - px__now_ms();
  PX_TRY(make_device_current(stream));
  pthread_mutex_lock(&comm->lock);
  snprintf(o->why, sizeof o->why, "%s", comm->broken);
  pthread_mutex_unlock(&comm->lock);
  if (!o->why[0] && px_fault_check("collective")) snprintf(o->why, sizeof o->why, "injected fault");
  if (o->why[0]) return refuse(o);
  if (!comm->joined && px__comm_open(comm, left > 1 ? left : 1, o->why)) return refuse(o);
  return PX_OK;
}

static px_status begin_batch(batch *o, const px_collective *collectives) {
  px_stream *stream;
  PX_TRY(px__works_await_capacity(o->comm));
  for (int i = 0; i < o->work_count; i++)
    PX_TRY(px__work_new(&o->works[i], o->comm, &collectives[i]));
  PX_TRY(stream_for(&stream, o->comm, o->works[0]));
  for (int i = 1; i < o->work_count; i++)
    PX_CHECK(px_device_equal(o->works[i]->device, o->works[0]->device), PX_VALUE,
             "expected all tensors of a collective on the same device");
  PX_TRY(ensure_joined(o, stream));
  px_status status = with_stream(stream, queue_on, o);
  return status != PX_OK && o->why[0] ? refuse(o) : status;
}

px_status px__begin_on_stream(px_work **works, px_comm *self, const px_collective *collectives,
                              int count) {
  batch *o;
  if (!count) return PX_OK;
  PX_TRY(px_alloc((void **)&o, sizeof *o));
  o->comm = self, o->works = works, o->work_count = count;
  pthread_mutex_lock(&self->queueing);
  px_status status = begin_batch(o, collectives);
  pthread_mutex_unlock(&self->queueing);
  px_free(o);
  return status;
}
