// SPDX-License-Identifier: Apache-2.0
// Graphs: begin, end and replay a capture.
//
// A replay is one unit of work of its stream. Before it, each generator of the graph writes its
// state to the graph's memory and advances. Replays of one graph are ordered one after another, on
// any streams.
#include "device/order/capture.h"
#include "device/work/work.h"

static px_stream *current_of(const px_graph *g) { return px__stream_now(g->device); }

static px_status can_capture(void) {
  PX_TRY(px_device_init());
  PX_CHECK(PX__BACKEND_HAS(px__rt.backend, graph_release), PX_UNIMPLEMENTED,
           "the backend %s has no graphs", px__rt.backend->name);
  return PX_OK;
}

// ---- release

// Ends the capture of all streams.
static void end_streams(px_graph *g) {
  px__capture_finish(g);
  for (int i = 0; i < g->member_count; i++) {
    px_stream *s = g->members[i];
    px__device_lock(s->owner);
    __atomic_store_n(&s->capture, 0, __ATOMIC_RELEASE);
    s->private_pool = NULL;
    // Without a mark, a later wait records one.
    if (px__stream_mark(s) != PX_OK) px_error_clear();
    px__device_unlock(s->owner);
    px_release(s);
  }
  px__free(g->members);
  g->members = NULL, g->member_count = 0;
}

static void drop_generator_states(px_graph *g) {
  while (g->generator_states) {
    px__generator_state *s = g->generator_states;
    g->generator_states = s->next;
    px__allocation_free(s->allocation);
    px_release(s->generator);
    px__free(s);
  }
}

static void close_pools(px_graph *g) {
  for (int i = 0; i < g->pool_count; i++) {
    px__device *d = g->pools[i].device;
    px__device_lock(d);
    px__private_pool_close(d, g->pools[i].private_pool);
    px__device_unlock(d);
  }
  px__free(g->pools);
  g->pools = NULL, g->pool_count = 0;
}

// Graph's lock held; the capture has ended. In a forked child the devices belong to the parent.
static void clear(px_graph *g) {
  px__capture_unregister(g);
  if (px__device_alive()) {
    if (g->native) px__rt.backend->graph_release(g->device->physical, g->native);
    if (g->kept) px__rt.backend->graph_drop(g->device->physical, g->kept);
    drop_generator_states(g);
    close_pools(g);
  }
  px__free(g->works);
  px__free(g->accesses);
  px__free(g->last_clock.at);
  px_release(g->last_stream);
  px_release(g->origin);
  g->works = NULL, g->accesses = NULL, g->last_stream = g->origin = NULL,
  g->native = g->kept = NULL;
  g->work_count = g->work_capacity = g->access_count = g->access_capacity = 0;
  g->last_clock = (px__clock){0};
  g->device = NULL;
  g->pool = (px_graph_pool){0};
}

// Moves the captured graph from the backend to `out` (NULL: drops it), and ends the capture.
static px_status end_native(px_graph *g, void **out) {
  bool keep_captured = out && out == &g->kept;
  px__device_lock(g->device);
  px_status status = (keep_captured ? px__rt.backend->capture_keep : px__rt.backend->capture_end)(
      g->origin->native, out);
  px__device_unlock(g->device);
  end_streams(g);
  return status;
}

static void abort_capture(px_graph *g) {
  px__error_guard guard;
  px__error_save(&guard);
  if (px__device_alive() && end_native(g, NULL) != PX_OK) px_error_clear();
  px__error_restore(&guard);
  clear(g);
}

static void reset(px_graph *g) {
  if (g->active)
    abort_capture(g);
  else if (g->device)
    clear(g);
}

static void graph_destroy(void *self) {
  px_graph *g = self;
  reset(g);
  pthread_mutex_destroy(&g->lock);
  px__object_end(g);
  px__free(g);
}
static const px_class graph_class = {"graph", graph_destroy};

px_status px_graph_new(px_graph **out) {
  PX_GIVEN(out);
  px_graph *graph;
  *out = NULL;
  PX_TRY(PX_NEW(&graph));
  pthread_mutex_init(&graph->lock, NULL);
  px__object_init(graph, &graph_class);
  *out = graph;
  return PX_OK;
}

px_status px_graph_reset(px_graph *graph) {
  PX_GIVEN(graph);
  pthread_mutex_lock(&graph->lock);
  reset(graph);
  pthread_mutex_unlock(&graph->lock);
  return PX_OK;
}

// ---- capturing

static px_status check_stream(const px_stream *stream) {
  PX_CHECK(stream->id != 0, PX_RUNTIME,
           "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok "
           "to replay them on the default stream.)");
  PX_CHECK(!px__fault(PX__FAULT_GRAPH), PX_ACCELERATOR, "a capture could not begin (injected)");
  if (px__capture_of(stream))
    return px__capture_refuse("Cannot register the state during capturing stage.");
  return PX_OK;
}

// Begins the capture in the backend before marking the stream as captured, both under the device's
// lock. The mark serves later waits for work issued before the capture.
static px_status start(px_graph *g) {
  px_stream *stream = g->origin;
  px__device_lock(g->device);
  px_status status = px__stream_mark(stream);
  if (status == PX_OK) status = px__rt.backend->capture_begin(stream->native);
  bool begun = status == PX_OK;
  if (begun) status = px__capture_add(g, stream);
  if (begun && status != PX_OK) (void)px__rt.backend->capture_end(stream->native, NULL);
  px__device_unlock(g->device);
  return status;
}

static px_status begin(px_graph *g, px_graph_pool pool, px_capture_mode mode) {
  px__device *d;
  PX_CHECK(!g->device, PX_RUNTIME,
           "This CUDAGraph instance already owns a captured graph. To capture a new graph, create "
           "a new instance.");
  PX_TRY(px__device_get(&d, px_device_peek()));
  px_stream *stream = px__stream_now(d);
  PX_TRY(check_stream(stream));
  bool own = !pool.own && !pool.shared;
  g->device = d;
  g->pool = own ? px__graph_pool_own() : pool;
  g->mode = mode, g->thread = pthread_self();
  g->origin = px_retain(stream);
  px__capture_register(g);
  px_status status = start(g);
  if (status != PX_OK) clear(g);
  return status;
}

px_status px_graph_begin(px_graph *graph, px_graph_pool pool, px_capture_mode mode) {
  PX_GIVEN(graph);
  PX_CHECK(mode >= PX_CAPTURE_GLOBAL && mode <= PX_CAPTURE_RELAXED, PX_VALUE,
           "there is no capture mode %d", (int)mode);
  PX_TRY(can_capture());
  PX_TRY(px__issue_recorded());  // they are not part of the graph
  pthread_mutex_lock(&graph->lock);
  px_status status = begin(graph, pool, mode);
  pthread_mutex_unlock(&graph->lock);
  return status;
}

// Returns the error of an invalidated or unjoined capture.
static px_status check_capture(px_graph *g) {
  const px_stream *origin = g->origin;
  bool joined = true;
  px__device_lock(origin->owner);
  px__captures_lock();
  for (int i = 0; i < g->member_count; i++) {
    const px_stream *s = g->members[i];
    uint64_t last_stream = __atomic_load_n(&s->captured, __ATOMIC_RELAXED);
    joined &= s == origin || px__clock_at(&origin->clock, s->index) >= last_stream;
  }
  bool invalid = g->invalid;
  px__captures_unlock();
  px__device_unlock(origin->owner);
  if (invalid) return px__error_cuda(901);
  return joined ? PX_OK : px__error_cuda(904);
}

static px_status finish(px_graph *g) {
  PX_CHECK(g->active && current_of(g) == g->origin, PX_RUNTIME,
           "Capture must end on the same stream it began on.");
  if (g->mode != PX_CAPTURE_RELAXED && !pthread_equal(g->thread, pthread_self()))
    return px__capture_invalidate(g->id, 908);
  px_status status = check_capture(g);
  if (status == PX_OK && px__fault(PX__FAULT_GRAPH))
    status = px_error_set(PX_ACCELERATOR, 0, __FILE__, __LINE__, __func__,
                          "a capture could not end (injected)");
  if (status != PX_OK) return abort_capture(g), status;
  status = end_native(g, g->keep_captured ? &g->kept : &g->native);
  if (status != PX_OK) clear(g);
  return status;
}

px_status px_graph_end(px_graph *graph) {
  PX_GIVEN(graph);
  pthread_mutex_lock(&graph->lock);
  px_status status = finish(graph);
  bool empty = status == PX_OK && !graph->work_count;
  pthread_mutex_unlock(&graph->lock);
  if (!empty) return status;
  return px_warn(PX_WARN_USER,
                 "The CUDA Graph is empty. This usually means that the graph was attempted to be "
                 "captured on wrong device or stream.");
}

// ---- replaying

// Checks the graph's accesses for races as accesses of the replay, under the names of the captured
// work. Skips allocations freed since. Lock of the device held.
static px_status check_races(const px_graph *g, const px__work *work) {
  px__work *works = NULL;
  px_access *accesses = NULL;
  size_t limit = (size_t)(g->access_count + g->pool_count);
  px_status status = px__alloc((void **)&works, limit * sizeof *works);
  if (status == PX_OK) status = px__alloc((void **)&accesses, limit * sizeof *accesses);
  int count = 0;
  for (int i = 0; i < g->pool_count && status == PX_OK; i++) {
    if (g->pools[i].device != g->device) continue;
    px_allocation *whole = &g->pools[i].private_pool->replay_proxy.pub;
    accesses[count] = (px_access){.allocation = whole, .end = whole->bytes, .write = true};
    works[count++] = *work;
  }
  for (int64_t i = 0; i < g->access_count && status == PX_OK; i++) {
    const px__captured_access *access = &g->accesses[i];
    px__allocation *allocation = px__pool_allocation_at(g->device, access->data);
    if (!allocation || allocation->pub.bytes < access->end) continue;
    accesses[count] =
        (px_access){&allocation->pub, access->begin, access->end, access->write, {{0}}};
    memcpy(accesses[count].gaps, access->gaps, sizeof access->gaps);
    works[count] = g->works[access->work];
    works[count].stream = work->stream, works[count].seq = work->seq, works[count].capture = 0;
    count++;
  }
  if (status == PX_OK) status = px__race_works(works, accesses, count);
  px__free(works);
  px__free(accesses);
  return status;
}

// Copies a generator's state to the graph's memory. Small enough to be copied by value.
static px_status send_state(const px__generator_state *s, px_stream *stream) {
  px_copy copy = {.kind = PX_COPY_HOST_TO_DEVICE,
                  .to = s->allocation->data,
                  .from = s->taken,
                  .to_device = px__rt.devices[s->allocation->device.index]->physical,
                  .from_device = -1,
                  .bytes = sizeof s->taken};
  return px__rt.backend->copy(stream->native, &copy);
}

// The same for another device, on its current stream, ordered between the last replay and this one.
static px_status send_to_other_device(const px__generator_state *s, px_stream *stream) {
  px_stream *own = px__stream_now(px__rt.devices[s->allocation->device.index]);
  px__work work;
  PX_TRY(px__stream_order(own, stream));
  PX_TRY(px__work_begin(&work, own, "graph_replay", NULL, 0));
  px_status status = send_state(s, own);
  px__work_end(&work, false);
  PX_TRY(status);
  return px__stream_order(stream, own);
}

static bool is_on_other_device(const px_graph *g, const px__generator_state *s) {
  return s->allocation->device.index != g->device->index;
}

static px_status launch(const px_graph *g, px_stream *stream) {
  for (const px__generator_state *s = g->generator_states; s; s = s->next)
    if (!is_on_other_device(g, s)) PX_TRY(send_state(s, stream));
  PX_CHECK(!px__fault(PX__FAULT_GRAPH), PX_ACCELERATOR, "a graph could not be replayed (injected)");
  return px__rt.backend->graph_launch(stream->native, g->native);
}

static px_status issue(px_graph *g, px_stream *stream, px__work *work) {
  if (g->last_stream && g->last_stream != stream)
    PX_TRY(px__stream_order_at(stream, g->last_stream, g->last_seq, &g->last_clock));
  for (const px__generator_state *s = g->generator_states; s; s = s->next)
    if (is_on_other_device(g, s)) PX_TRY(send_to_other_device(s, stream));
  PX_TRY(px__work_begin(work, stream, "graph_replay", NULL, 0));
  px_status status = px__races() ? check_races(g, work) : PX_OK;
  if (status == PX_OK) status = px__clock_copy(&g->last_clock, &stream->clock);
  if (status == PX_OK) status = launch(g, stream);
  px__work_end(work, false);
  return status == PX_OK ? PX_OK : px__broken_note(g->device, status);
}

// Last one first: entries of the same generator undo their draws in reverse.
static void give_back(const px__generator_state *s) {
  if (!s) return;
  give_back(s->next);
  s->draws->give_back(s->generator, s->words, s->taken);
}

static px_status make_ready(px_graph *g) {
  void *made;
  PX_CHECK(!px__fault(PX__FAULT_GRAPH), PX_ACCELERATOR, "a graph could not be made (injected)");
  PX_TRY(px__rt.backend->graph_make(g->device->physical, g->kept, &made));
  if (g->native) px__rt.backend->graph_release(g->device->physical, g->native);
  g->native = made;
  return PX_OK;
}

static px_status replay(px_graph *g) {
  if (g->kept && !g->native) PX_TRY(make_ready(g));
  PX_CHECK(g->native, PX_RUNTIME,
           "Called CUDAGraph::replay without a preceding successful capture.");
  px_stream *stream = current_of(g);
  if (px__capture_of(stream)) return px__capture_invalidate(px__capture_of(stream), 900);
  for (px__generator_state *s = g->generator_states; s; s = s->next)
    s->draws->take(s->generator, s->words, s->taken);
  px__work work;
  px_status status = issue(g, stream, &work);
  if (status != PX_OK) return give_back(g->generator_states), status;
  px_retain(stream);
  px_release(g->last_stream);
  g->last_stream = stream, g->last_seq = work.seq;
  return px__stream_blocks(stream) ? px__stream_finish(stream) : PX_OK;
}

px_status px_graph_replay(px_graph *graph) {
  PX_GIVEN(graph);
  if (px__rt.forked) return px__error_cuda(3);
  pthread_mutex_lock(&graph->lock);
  px_status status = replay(graph);
  pthread_mutex_unlock(&graph->lock);
  return status;
}

// ---- kept graphs

px_status px_graph_keep(px_graph *graph) {
  PX_GIVEN(graph);
  PX_TRY(can_capture());
  PX_CHECK(PX__BACKEND_HAS(px__rt.backend, graph_drop), PX_UNIMPLEMENTED,
           "the backend %s keeps no graphs", px__rt.backend->name);
  pthread_mutex_lock(&graph->lock);
  graph->keep_captured = true;
  pthread_mutex_unlock(&graph->lock);
  return PX_OK;
}

static px_status instantiate(px_graph *g) {
  PX_CHECK(g->keep_captured, PX_RUNTIME,
           "instantiate() is intended to be called by the user only when keep_graph=true");
  PX_CHECK(g->kept, PX_RUNTIME, "capture_end() must have been called before calling instantiate");
  return make_ready(g);
}

px_status px_graph_instantiate(px_graph *graph) {
  PX_GIVEN(graph);
  if (px__rt.forked) return px__error_cuda(3);
  pthread_mutex_lock(&graph->lock);
  px_status status = instantiate(graph);
  pthread_mutex_unlock(&graph->lock);
  return status;
}

static px_status require_kept(const px_graph *g) {
  PX_CHECK(g->keep_captured, PX_RUNTIME,
           "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with "
           "keep_graph=true");
  PX_CHECK(g->kept, PX_RUNTIME,
           "You cannot access the raw cudaGraph_t instance until after capture_end() has been "
           "called");
  return PX_OK;
}

px_status px_graph_native(void **out, px_graph *graph, bool ready) {
  PX_GIVEN(out);
  PX_GIVEN(graph);
  pthread_mutex_lock(&graph->lock);
  px_status status = ready ? PX_OK : require_kept(graph);
  *out = ready ? graph->native : graph->kept;
  pthread_mutex_unlock(&graph->lock);
  PX_TRY(status);
  PX_CHECK(*out, PX_RUNTIME,
           "You cannot access the raw cudaGraphExec_t instance until instantiate() has been "
           "called");
  return PX_OK;
}

px_status px_graph_print(px_graph *graph, const char *path) {
  PX_GIVEN(graph);
  PX_GIVEN(path);
  if (px__rt.forked) return px__error_cuda(3);
  pthread_mutex_lock(&graph->lock);
  px_status status = require_kept(graph);
  if (status == PX_OK)
    status = px__rt.backend->graph_print(graph->device->physical, graph->kept, path);
  pthread_mutex_unlock(&graph->lock);
  return status;
}

// ---- random numbers

static px__generator_state *find_state(const px_graph *g, int device, const void *generator) {
  px__generator_state *s = g->generator_states;
  while (s && !(s->generator == generator && s->allocation->device.index == device)) s = s->next;
  return s;
}

// The state is written before a replay, so no replayed work may write to its memory.
static px_status new_state(px__generator_state **out, px__device *d, void *generator,
                           const px__draw_functions *draws) {
  px__generator_state *s;
  PX_TRY(PX_NEW(&s));
  px_status status = px__cache_new_lasting(&s->allocation, sizeof s->taken, d);
  if (status != PX_OK) return px__free(s), status;
  s->generator = px_retain(generator);
  s->draws = draws;
  *out = s;
  return PX_OK;
}

px_status px__capture_draw(px_launch *launch, int device, void *generator, uint64_t words,
                           const px__draw_functions *draws) {
  px__device *d;
  if (PX_LIKELY(!px__captures_any())) return PX_OK;
  PX_TRY(px__device_get(&d, device));
  uint64_t capture = px__capture_of(px__stream_now(d));
  if (!capture) return PX_OK;
  px__captures_lock();
  px_graph *g = px__capture_by_id(capture);
  px__generator_state *s = g ? find_state(g, device, generator) : NULL;
  px__captures_unlock();
  if (!g) return px__error_cuda(901);
  // Only the thread working on the captured stream draws from it.
  if (!s) {
    PX_TRY(new_state(&s, d, generator, draws));
    px__captures_lock();
    s->next = g->generator_states;
    g->generator_states = s;
    px__captures_unlock();
  }
  launch->random = s->allocation->data;
  launch->offset = s->words;
  s->words += words;
  return PX_OK;
}

// ---- queries

px_status px_graph_pool_of(px_graph_pool *out, px_graph *graph) {
  PX_GIVEN(out);
  PX_GIVEN(graph);
  pthread_mutex_lock(&graph->lock);
  *out = graph->pool;
  bool captured = graph->device != NULL;
  pthread_mutex_unlock(&graph->lock);
  PX_CHECK(captured, PX_RUNTIME,
           "Called CUDAGraph::pool() without a preceding successful capture.");
  return PX_OK;
}

int64_t px_graph_size(const px_graph *graph) {
  px__captures_lock();
  int64_t count = graph->work_count;
  px__captures_unlock();
  return count;
}

bool px_stream_capturing(const px_stream *stream) { return px__capture_of(stream) != 0; }
