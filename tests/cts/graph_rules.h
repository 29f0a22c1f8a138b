// SPDX-License-Identifier: Apache-2.0
// The rules of graphs, G1 to G9, of the conformance program: captures, replays, their memory and
// random numbers, and calls that a capture forbids.
#pragma once

static px_graph *graph(void) {
  px_graph *g;
  OK(px_graph_new(&g));
  return own(g);
}
static const px_graph_pool own_pool;
static px_status begin_graph(px_graph *g, px_capture_mode mode) {
  px_status status = px_graph_begin(g, own_pool, mode);
  if (status == PX_UNIMPLEMENTED) SKIP("the backend has no graphs");
  return status;
}
// Begins a capture on a new stream, which becomes the current one.
static px_stream *capture(px_graph *g, px_capture_mode mode) {
  px_stream *s = stream(0);
  on(s);
  OK(begin_graph(g, mode));
  CHECK(px_stream_capturing(s));
  return s;
}
static int error_of(px_status status) {
  CHECK_EQ(status, PX_ACCELERATOR);
  int code = px_error_last()->detail;
  px_error_clear();
  return code;
}

RULE(G1, capture_runs_nothing) {
  px_graph *g = graph();
  px_tensor *t = device_tensor(0, N);
  fill(t, 1);
  OK(px_device_synchronize(0));
  px_stream *s = capture(g, PX_CAPTURE_GLOBAL);
  add(t, 1);
  add(t, 2);
  OK(px_graph_end(g));
  CHECK(!px_stream_capturing(s));
  CHECK_EQ(px_graph_size(g), 2);
  CHECK_EQ(first_of(t), 1);
  for (int i = 1; i <= 3; i++) {
    OK(px_graph_replay(g));
    CHECK_EQ(first_of(t), 1 + 3 * i);
  }
}

RULE(G2, replays_are_ordered) {
  px_graph *g = graph();
  px_tensor *x = device_tensor(0, N), *y = device_tensor(0, N);
  capture(g, PX_CAPTURE_GLOBAL);
  copy(y, x, true);
  add(y, 1);
  OK(px_graph_end(g));
  for (int i = 0; i < 20; i++) {
    fill(x, i);
    OK(px_graph_replay(g));
    fill(x, -1);
  }
  CHECK_EQ(first_of(y), 20);
}

RULE(G2, replays_follow_each_other) {
  px_graph *g = graph();
  px_tensor *t = device_tensor(0, N);
  px_stream *s = capture(g, PX_CAPTURE_GLOBAL), *other = stream(0);
  add(t, 1);
  OK(px_graph_end(g));
  fill(t, 0);
  gate held;
  close_gate(s, &held);
  OK(px_graph_replay(g));
  on(other);
  OK(px_graph_replay(g));
  give_time();
  CHECK(!done(other));
  gate_open(&held);
  CHECK_EQ(first_of(t), 2);
}

RULE(G3, streams_fork_and_join) {
  px_graph *g = graph();
  px_tensor *a = device_tensor(0, N), *b = device_tensor(0, N);
  px_stream *side = stream(0), *s = capture(g, PX_CAPTURE_GLOBAL);
  px_event *e = event();
  add(a, 1);
  OK(px_event_record(e, s));
  OK(px_stream_wait_event(side, e));
  CHECK(px_stream_capturing(side));
  on(side);
  copy(b, a, true);
  add(b, 10);
  on(s);
  OK(px_stream_wait_stream(s, side));
  add(b, 100);
  OK(px_graph_end(g));
  CHECK(!px_stream_capturing(side));
  for (int i = 0; i < 8; i++) {
    fill(a, i);
    OK(px_graph_replay(g));
    CHECK_EQ(first_of(b), 111 + i);
  }
}

// Reads memory that a device may be writing, without a wait.
__attribute__((no_sanitize("thread"))) static int32_t peek_first(const px_tensor *t) {
  return *(const volatile int32_t *)px_tensor_data(t);
}

RULE(G3, branches_are_independent) {
  px_graph *g = graph();
  px_stream *side = stream(0), *s = capture(g, PX_CAPTURE_GLOBAL);
  px_tensor *t = device_tensor(0, N), *seen = pinned_tensor(N);
  gate held;
  OK(px_stream_wait_stream(side, s));
  close_gate(s, &held);
  on(side);
  fill(t, 5);
  copy(seen, t, true);
  on(s);
  OK(px_stream_wait_stream(s, side));
  OK(px_graph_end(g));
  OK(px_graph_replay(g));
  gate_started(&held);
  for (int i = 0; i < 1000 && peek_first(seen) != 5; i++) give_time();
  CHECK_EQ(peek_first(seen), 5);
  CHECK(!done(s));
  gate_open(&held);
  OK(px_stream_synchronize(s));
}

RULE(G4, unjoined_work_is_refused) {
  px_graph *g = graph();
  px_tensor *t = device_tensor(0, N);
  px_stream *side = stream(0), *s = capture(g, PX_CAPTURE_GLOBAL);
  OK(px_stream_wait_stream(side, s));
  on(side);
  add(t, 1);
  on(s);
  CHECK_EQ(error_of(px_graph_end(g)), 904);
  FAILS(px_graph_replay(g), PX_RUNTIME, "without a preceding successful capture");
  CHECK(!px_stream_capturing(side) && !px_stream_capturing(s));
  fill(t, 3);
  CHECK_EQ(first_of(t), 3);
}

RULE(G4, work_from_outside_is_refused) {
  px_graph *g = graph();
  px_stream *outside = stream(0);
  px_event *e = event();
  OK(px_event_record(e, outside));
  px_stream *s = capture(g, PX_CAPTURE_GLOBAL);
  CHECK_EQ(error_of(px_stream_wait_event(s, e)), 905);
  CHECK_EQ(error_of(px_graph_end(g)), 901);
  s = capture(g, PX_CAPTURE_GLOBAL);
  OK(px_event_record(e, s));
  OK(px_graph_end(g));
  CHECK_EQ(error_of(px_stream_wait_event(outside, e)), 907);
  OK(px_stream_synchronize(outside));
}

RULE(G4, captures_do_not_merge) {
  px_graph *a = graph(), *b = graph();
  px_stream *first = capture(a, PX_CAPTURE_RELAXED), *second = capture(b, PX_CAPTURE_RELAXED);
  CHECK_EQ(error_of(px_stream_wait_stream(second, first)), 902);
  CHECK_EQ(error_of(px_graph_end(b)), 901);
  on(first);
  CHECK_EQ(error_of(px_graph_end(a)), 901);
}

RULE(G5, waits_are_refused) {
  px_graph *g = graph();
  px_tensor *t = device_tensor(0, N), *pinned = pinned_tensor(N);
  px_event *e = event();
  bool answer;
  fill(t, 4);
  OK(px_device_synchronize(0));
  for (int i = 0; i < 6; i++) {
    px_stream *s = capture(g, PX_CAPTURE_RELAXED);
    OK(px_event_record(e, s));
    px_value args[PX_MAX_OPERANDS] = {PX_T(pinned), PX_T(t), PX_B(false)};
    void *result = NULL;
    const int wanted[] = {900, 900, 907, 907, 900, 900};
    px_status status = i == 0   ? px_stream_synchronize(s)
                       : i == 1 ? px_stream_query(&answer, s)
                       : i == 2 ? px_event_query(&answer, e)
                       : i == 3 ? px_event_synchronize(e)
                       : i == 4 ? px_device_synchronize(0)
                                : px_op_call(px_op_find("copy"), PX_CALL_INPLACE, args, &result);
    CHECK_EQ(error_of(status), wanted[i]);
    CHECK_EQ(error_of(px_graph_end(g)), 901);
    CHECK_EQ(first_of(t), 4);
  }
}

static void *synchronize_elsewhere(void *stream) {
  px_status status = px_stream_synchronize(stream);
  px_error_clear();
  return (void *)(intptr_t)(status == PX_OK);
}

RULE(G5, modes_forbid) {
  px_stream *outside = stream(0);
  static const struct {
    px_capture_mode mode;
    bool here, there;  // waits allowed for the capturing thread, and for another
  } rows[] = {{PX_CAPTURE_GLOBAL, false, false},
              {PX_CAPTURE_THREAD_LOCAL, false, true},
              {PX_CAPTURE_RELAXED, true, true}};
  for (int i = 0; i < 6; i++) {
    px_graph *g = graph();
    bool here = i % 2, allowed = here ? rows[i / 2].here : rows[i / 2].there;
    capture(g, rows[i / 2].mode);
    void *fine = here ? synchronize_elsewhere(outside) : NULL;
    pthread_t thread;
    if (!here) {
      CHECK_EQ(pthread_create(&thread, NULL, synchronize_elsewhere, outside), 0);
      pthread_join(thread, &fine);
    }
    CHECK_EQ(fine != NULL, allowed);
    px_status status = px_graph_end(g);
    CHECK_EQ(status, allowed ? PX_OK : PX_ACCELERATOR);
    px_error_clear();
  }
}

RULE(G6, default_stream_is_refused) {
  px_graph *g = graph();
  px_stream *first;
  OK(px_stream_default(&first, px_cuda(0)));
  on(first);
  FAILS(begin_graph(g, PX_CAPTURE_GLOBAL), PX_RUNTIME, "must be captured on a non-default stream");
  px_stream *s = capture(g, PX_CAPTURE_GLOBAL);
  px_graph *again = graph();
  FAILS(begin_graph(again, PX_CAPTURE_GLOBAL), PX_RUNTIME,
        "Cannot register the state during capturing stage. during CUDA graph capture");
  OK(px_graph_end(g));
  FAILS(begin_graph(g, PX_CAPTURE_GLOBAL), PX_RUNTIME, "already owns a captured graph");
  CHECK(done(s));
}

RULE(G7, memory_is_private) {
  enum { MANY = 1 << 18 };
  px_graph *g = graph();
  px_tensor *x = device_tensor(0, MANY);
  px_stream *s = capture(g, PX_CAPTURE_GLOBAL);
  px_tensor *y = device_tensor(0, MANY);
  void *within = px_tensor_data(y);
  fill(y, 7);
  release_object(y);
  px_tensor *z = device_tensor(0, MANY);
  CHECK(px_tensor_data(z) == within);  // free again in capture order
  copy(z, x, true);
  OK(px_graph_end(g));
  release_object(z);
  for (int i = 0; i < 8; i++) {
    px_tensor *other = device_tensor(0, MANY);
    CHECK(px_tensor_data(other) != within);
    fill(other, i);
  }
  int64_t held = px_memory_reserved(0);
  OK(px_graph_replay(g));
  OK(px_stream_synchronize(s));
  OK(px_memory_empty_cache());
  CHECK(px_memory_reserved(0) >= (int64_t)sizeof(int32_t) * MANY);
  OK(px_graph_reset(g));
  OK(px_memory_empty_cache());
  CHECK(px_memory_reserved(0) < held);
}

static void draw(px_tensor *t) {
  px_value args[PX_MAX_OPERANDS] = {PX_T(t), PX_NONE(), PX_NONE(), PX_NONE()};
  inplace("random", args);
}
RULE(G8, random_numbers_continue) {
  px_graph *g = graph();
  px_tensor *t = device_tensor(0, N);
  int32_t eager[3][N], replayed[N];
  capture(g, PX_CAPTURE_GLOBAL);
  draw(t);
  OK(px_graph_end(g));
  px_manual_seed(7);
  for (int i = 0; i < 3; i++) {
    draw(t);
    OK(px_tensor_read(t, eager[i], sizeof eager[i]));
  }
  CHECK(memcmp(eager[0], eager[1], sizeof eager[0]));
  px_manual_seed(7);
  for (int i = 0; i < 3; i++) {
    OK(px_graph_replay(g));
    OK(px_tensor_read(t, replayed, sizeof replayed));
    CHECK(!memcmp(eager[i], replayed, sizeof replayed));
  }
}

// A graph on two devices: each replay draws on both, from the generator of each.
RULE(G8, random_numbers_of_two_devices_continue) {
  if (px_device_count(PX_CUDA) < 2) SKIP("one device");
  px_graph *g = graph();
  px_tensor *here = device_tensor(0, N), *there = device_tensor(1, N);
  int32_t eager[2][2][N], replayed[N];
  px_manual_seed(7);
  for (int i = 0; i < 2; i++) {
    draw(here), draw(there);
    OK(px_tensor_read(here, eager[i][0], sizeof replayed));
    OK(px_tensor_read(there, eager[i][1], sizeof replayed));
  }
  px_stream *far = stream(1), *s = capture(g, PX_CAPTURE_GLOBAL);
  OK(px_stream_wait_stream(far, s));
  draw(here);
  px_stream *was;
  OK(px_stream_current(&was, px_cuda(1)));
  on(far);
  draw(there);
  on(was);
  OK(px_stream_wait_stream(s, far));
  on(s);
  OK(px_graph_end(g));
  px_manual_seed(7);
  for (int i = 0; i < 2; i++) {
    OK(px_graph_replay(g));
    OK(px_device_synchronize(0));
    OK(px_tensor_read(here, replayed, sizeof replayed));
    CHECK(!memcmp(eager[i][0], replayed, sizeof replayed));
    OK(px_tensor_read(there, replayed, sizeof replayed));
    CHECK(!memcmp(eager[i][1], replayed, sizeof replayed));
  }
}

// After any failure, the next replay draws the numbers of the failed one.
RULE(G8, a_failed_replay_draws_nothing) {
  px_graph *g = graph();
  px_tensor *t = device_tensor(0, N), *u = device_tensor(0, N);
  int32_t eager[2][N], replayed[N];
  capture(g, PX_CAPTURE_GLOBAL);
  draw(t), draw(u);
  OK(px_graph_end(g));
  px_manual_seed(7);
  draw(t), draw(u);
  OK(px_tensor_read(t, eager[0], sizeof replayed));
  OK(px_tensor_read(u, eager[1], sizeof replayed));
  px_manual_seed(7);
  OK(px_fault_arm("graph", 1, false));
  FAILS(px_graph_replay(g), PX_ACCELERATOR, "could not be replayed");
  px_fault_disarm_all();
  OK(px_graph_replay(g));
  OK(px_tensor_read(t, replayed, sizeof replayed));
  CHECK(!memcmp(eager[0], replayed, sizeof replayed));
  OK(px_tensor_read(u, replayed, sizeof replayed));
  CHECK(!memcmp(eager[1], replayed, sizeof replayed));
}

RULE(G9, bad_index_names_its_launch) {
  px_graph *g = graph();
  px_tensor *t = device_tensor(0, N), *index;
  int64_t one = 1;
  OK(px_tensor_from_data(&index, &(int64_t){N + 5}, 1, &one, PX_INT64, px_cuda(0)));
  own(index);
  fill(t, 1);
  OK(px_device_synchronize(0));
  capture(g, PX_CAPTURE_GLOBAL);
  px_value args[] = {PX_T(t), PX_I(0), PX_T(index)};
  void *result = NULL;
  OK(px_op_call(px_op_find("index_select"), PX_CALL_NEW, args, &result));
  OK(px_graph_end(g));
  own(result);
  for (int i = 0; i < 9000; i++) add(t, 1);  // more than the record buffer holds
  OK(px_graph_replay(g));
  FAILS(px_device_synchronize(0), PX_INDEX, "It was reported by index_select");
  OK(px_device_synchronize(0));
}
