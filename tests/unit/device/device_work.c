// SPDX-License-Identifier: Apache-2.0
// Work on devices: launches and their errors, copies, events, races.
#include "device_test.h"

PX_TEST(a_kernel_error_on_the_cpu_is_raised_by_the_call) {
  px_allocation *block = block_on(px_cpu(), 64);
  FAILS(start("index", index_kernel, block, true, 0, 0), PX_INDEX,
        "index 5 is out of bounds for dimension 0 with size 2");
  OK(fill(block, 2, 0));
  CHECK_EQ(((int64_t *)block->data)[7], 2);
  px__allocation_free(block);
}

PX_TEST(a_kernel_error_on_a_device_names_op_and_line) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64);
  px_site_set("train.py", 12);
  OK(start("index", index_kernel, block, true, 0, 0));
  px_site_set("train.py", 13);
  OK(fill(block, 2, 0));
  FAILS(px_device_synchronize(0), PX_INDEX,
        "index 5 is out of bounds for dimension 0 with size 2\nIt was reported by index on the "
        "default stream of cuda:0, launched at train.py:12");
  OK(px_device_synchronize(0));
  CHECK_EQ(first_of(block), 2);  // the context is usable
  px__allocation_free(block);
}

PX_TEST(a_kernel_error_names_the_public_op) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64);
  px__caller_here = "gather";
  OK(start("index", index_kernel, block, true, 0, 0));
  px__caller_here = NULL;
  FAILS(px_device_synchronize(0), PX_INDEX, "It was reported by gather (kernel index) on the");
  px__allocation_free(block);
}

PX_TEST(blocking_launches_fail_at_the_call) {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64);
  FAILS(start("index", index_kernel, block, true, 0, 0), PX_INDEX, "index 5 is out of bounds");
  px__allocation_free(block);
}

static px_status wrecking_kernel(const px_launch *l) { return PX_RUNTIME; }

PX_TEST(a_broken_device_names_the_launch_that_broke_it) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64);
  px_site_set("train.py", 12);
  OK(start("wreck", wrecking_kernel, block, true, 0, 0));
  px_site_set("train.py", 13);
  for (int i = 0; i < 2; i++)
    FAILS(px_device_synchronize(0), PX_ACCELERATOR,
          "wreck on device 0 failed with status 1\nIt was reported by wreck on the default stream "
          "of cuda:0, launched "
          "at train.py:12");
  FAILS(fill(block, 1, 0), PX_ACCELERATOR, "launched at train.py:12");
  FAILS(px_stream_synchronize(default_stream(0)), PX_ACCELERATOR, "launched at train.py:12");
  px__allocation_free(block);
}

PX_TEST(launches_and_copies_are_fault_points) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64), *host = block_on(px_cpu(), 64);
  OK(px_fault_arm("launch", 1, false));
  FAILS(fill(block, 1, 0), PX_ACCELERATOR, "injected");
  OK(fill(block, 1, 0));
  OK(px_fault_arm("copy", 1, false));
  FAILS(px__copy_bytes(host, 0, block, 0, 64, false), PX_ACCELERATOR, "injected");
  OK(px__copy_bytes(host, 0, block, 0, 64, false));
  px__allocation_free(block), px__allocation_free(host);
}

// ---- copies
PX_TEST(a_copy_from_pageable_memory_has_read_it_on_return) {
  simulate_plainly(1);
  px_allocation *host = block_on(px_cpu(), 1 << 20), *device = block_on(px_cuda(0), 1 << 20);
  OK(fill(host, 5, 0));
  OK(px__copy_bytes(device, 0, host, 0, 1 << 20, true));
  OK(fill(host, 6, 0));
  CHECK_EQ(first_of(device), 5);
  px__allocation_free(host), px__allocation_free(device);
}

PX_TEST(a_pinned_copy_is_asynchronous_and_reading_waits) {
  simulate_plainly(1);
  px_allocation *device = block_on(px_cuda(0), 4096), *host = pinned_block(4096);
  bool idle;
  OK(fill(device, 8, 60));
  OK(px__copy_bytes(host, 0, device, 0, 4096, true));
  OK(px_stream_query(&idle, default_stream(0)));
  CHECK(!idle && host->pending);
  OK(px__allocation_wait(host, "look", false));
  CHECK_EQ(*(int64_t *)host->data, 8);
  CHECK(!host->pending);
  px__allocation_free(host), px__allocation_free(device);
}

PX_TEST(a_pinned_source_is_not_overwritten_too_early) {
  simulate_plainly(1);
  px_allocation *busy = block_on(px_cuda(0), 64), *device = block_on(px_cuda(0), 4096);
  px_allocation *host = pinned_block(4096);
  OK(fill(host, 1, 0));
  OK(fill(busy, 0, 60));
  OK(px__copy_bytes(device, 0, host, 0, 4096, true));
  OK(look(host));  // reading needs no wait
  CHECK(host->pending);
  OK(fill(host, 7, 0));
  CHECK_EQ(first_of(device), 1);
  px__allocation_free(host), px__allocation_free(device), px__allocation_free(busy);
}

static void check_between_devices(void) {
  size_t bytes = 40 << 20;
  px_allocation *a = block_on(px_cuda(0), bytes), *b = block_on(px_cuda(1), bytes);
  OK(fill(b, 1, 0));
  OK(fill(a, 2, 40));
  OK(px__copy_bytes(b, 0, a, 0, bytes, false));
  OK(fill(a, 3, 0));  // after the copy, on its stream
  px_allocation *last = block_on(px_cpu(), 8);
  OK(px__copy_bytes(last, 0, b, bytes - 8, 8, false));
  CHECK_EQ(*(int64_t *)last->data, 2);
  CHECK_EQ(first_of(a), 3);
  px__allocation_free(a), px__allocation_free(b), px__allocation_free(last);
}

PX_TEST(copies_between_peers_are_ordered_with_both_streams) {
  simulate_plainly(2);
  px_race_enable(1, true);
  check_between_devices();
  CHECK(!px_device_peer_enabled(0, 1));
}

PX_TEST(without_peer_access_copies_go_through_the_host) {
  setenv("PHLOX_SIM_PEERS", "none", 1);
  simulate_plainly(2);
  px_race_enable(1, true);
  check_between_devices();
  FAILS(px_device_enable_peer(0, 1), PX_RUNTIME, "is not possible");
}

// ---- events
PX_TEST(an_event_refers_to_its_latest_record) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64);
  PX_SCOPED(px_event) event = NULL;
  bool done;
  OK(px_event_new(&event, 0));
  OK(px_event_query(&done, event));
  CHECK(done && !px_event_recorded(event) && px_event_device(event).type < 0);
  OK(px_event_record(event, default_stream(0)));
  OK(px_event_synchronize(event));
  OK(fill(block, 1, 60));
  OK(px_event_record(event, default_stream(0)));
  OK(px_event_query(&done, event));
  CHECK(!done);
  OK(px_event_synchronize(event));
  OK(px_event_query(&done, event));
  CHECK(done && px_event_device(event).index == 0);
  px__allocation_free(block);
}

PX_TEST(elapsed_time_has_preconditions) {
  simulate_plainly(1);
  float ms;
  PX_SCOPED(px_event) plain = NULL;
  PX_SCOPED(px_event) start_event = NULL;
  PX_SCOPED(px_event) end = NULL;
  OK(px_event_new(&plain, 0));
  OK(px_event_new(&start_event, PX_EVENT_TIMING));
  OK(px_event_new(&end, PX_EVENT_TIMING));
  FAILS(px_event_elapsed(&ms, plain, end), PX_VALUE,
        "Both events must be created with argument 'enable_timing=True'.");
  FAILS(px_event_elapsed(&ms, start_event, end), PX_VALUE,
        "Both events must be recorded before calculating elapsed time.");
  px_allocation *block = block_on(px_cuda(0), 64);
  OK(px_event_record(start_event, default_stream(0)));
  OK(fill(block, 1, 30));
  OK(px_event_record(end, default_stream(0)));
  FAILS(px_event_elapsed(&ms, start_event, end), PX_RUNTIME,
        "Both events must be completed before calculating elapsed time.");
  OK(px_event_synchronize(end));
  OK(px_event_elapsed(&ms, start_event, end));
  CHECK(ms >= 25 && ms < 5000);
  px__allocation_free(block);
}

PX_TEST(an_event_is_bound_to_its_device) {
  simulate_plainly(2);
  PX_SCOPED(px_event) event = NULL;
  OK(px_event_new(&event, 0));
  OK(px_event_record(event, default_stream(0)));
  FAILS(px_event_record(event, default_stream(1)), PX_RUNTIME,
        "Event device 0 does not match recording stream's device 1.");
  OK(px_stream_wait_event(default_stream(1), event));
}

static int calls;
static void count_call(void *argument) { __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED); }

PX_TEST(host_calls_run_in_the_streams_order) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64);
  OK(fill(block, 1, 40));
  OK(px_stream_host_call(default_stream(0), count_call, NULL));
  CHECK_EQ(__atomic_load_n(&calls, __ATOMIC_RELAXED), 0);
  OK(px_stream_synchronize(default_stream(0)));
  CHECK_EQ(calls, 1);
  px__allocation_free(block);
}

static void fail_twice(void *argument) {
  for (int i = 1; i < 3; i++) {
    px_error why;
    (void)px_error_set(PX_VALUE, 0, __FILE__, __LINE__, __func__, "reason %d", i);
    px_error_take(&why);
    px_device_fail(px_cuda(0), &why);
  }
}

PX_TEST(a_failed_host_call_is_raised_by_the_next_synchronization) {
  simulate_plainly(1);
  OK(px_stream_host_call(default_stream(0), fail_twice, NULL));
  FAILS(px_stream_synchronize(default_stream(0)), PX_VALUE, "reason 1");
  OK(px_device_synchronize(0));
  OK(px_stream_host_call(default_stream(0), fail_twice, NULL));
  FAILS(px_device_synchronize(0), PX_VALUE, "reason 1");
  fail_twice(NULL);
  px_device_fail(px_cuda(0), NULL);
  OK(px_device_synchronize(0));
}

// ---- races: the example of the documentation, a filled tensor read on a side stream
static px_status race_example(px_allocation *block, bool wait) {
  px_stream *side = new_stream(0);
  px_site_set("example.py", 3);
  px_status status = fill(block, 1, 20);
  if (wait && status == PX_OK) status = px_stream_wait_stream(side, default_stream(0));
  OK(px_stream_set_current(side));
  px_site_set("example.py", 5);
  if (status == PX_OK) status = look(block);
  OK(px_stream_set_current(default_stream(0)));
  px_release(side);
  return status;
}

PX_TEST(a_missing_wait_is_a_race) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_allocation *block = block_on(px_cuda(0), 4096);
  FAILS(race_example(block, false), PX_RUNTIME, "look reads it on stream 1 of cuda:0");
  const char *text = px_race_report(0);
  CHECK(px_race_count() == 1 && text);
  CHECK(strstr(text, "at example.py:5\n  fill wrote bytes [0, 4096)"));
  CHECK(strstr(text, "on the default stream of cuda:0 (operation 1) at example.py:3"));
  CHECK(strstr(text, "stream 1 of cuda:0 must wait for the default stream of cuda:0"));
  px_race_clear();
  CHECK(px_race_count() == 0 && !px_race_report(0));
  px__allocation_free(block);
}

PX_TEST(a_wait_or_a_synchronisation_prevents_the_race) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_allocation *block = block_on(px_cuda(0), 4096);
  OK(race_example(block, true));
  OK(px_device_synchronize(0));
  OK(fill(block, 1, 10));
  OK(px_stream_synchronize(default_stream(0)));
  px_stream *side = new_stream(0);
  OK(px_stream_set_current(side));
  OK(fill(block, 2, 10));
  CHECK_EQ(px_race_count(), 0);
  px__allocation_free(block);
  px_release(side);
}

PX_TEST(event_waits_are_transitive) {
  simulate_plainly(1);
  px_race_enable(1, true);
  PX_SCOPED(px_event) event = NULL;
  px_stream *a = new_stream(0), *b = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 4096);
  OK(px_event_new(&event, 0));
  OK(fill(block, 1, 5));
  OK(px_event_record(event, default_stream(0)));
  OK(px_stream_wait_event(a, event));
  OK(px_stream_wait_stream(b, a));  // orders the fill before b, too
  OK(px_stream_set_current(b));
  OK(fill(block, 2, 0));
  OK(px_stream_set_current(a));
  FAILS(look(block), PX_RUNTIME, "Phlox found a race");
  px__allocation_free(block);
  px_release(a), px_release(b);
}

static px_status touch(px_allocation *block, size_t begin, size_t end, bool write) {
  int64_t size = 0, stride = 1;
  px_operand operand = {.sizes = &size, .strides = &stride, .ndim = 1, .dtype = PX_INT64};
  px_value params[2] = {PX_I(0), PX_I(0)};
  px_launch launch = {.op = "touch",
                      .kernel = nothing_kernel,
                      .operands = &operand,
                      .operand_count = 1,
                      .params = params,
                      .param_count = 2};
  px_access access = {.allocation = block, .begin = begin, .end = end, .write = write};
  return px__launch(block->device, &launch, &access, 1);
}

PX_TEST(marks_are_bounded_without_synchronization) {
  simulate_plainly(2);
  px_stream *first_stream = default_stream(0), *second_stream = default_stream(1);
  px_allocation *block = block_on(px_cuda(0), 64);
  for (int i = 0; i < 20000; i++) {
    OK(fill(block, i & 1, 0));
    OK(px_stream_wait_stream(second_stream, first_stream));
  }
  CHECK(first_stream->marks < 3000);  // the simulated stream's queue limit, and some more
  int marks = 0;
  for (const px__mark *mark = first_stream->first; mark; mark = mark->next) marks++;
  CHECK_EQ(marks, first_stream->marks);
  px__allocation_free(block);
}

// Launches on another stream with two allocations. The second is in use.
static void refuse(px_stream *side, px_allocation *good, px_allocation *bad) {
  px_access both[] = {{.allocation = good, .end = 8, .write = true},
                      {.allocation = bad, .end = 8, .write = true}};
  px_launch launch = {.op = "both", .kernel = nothing_kernel};
  OK(fill(bad, 1, 20));
  OK(px_stream_set_current(side));
  FAILS(px__launch(px_cuda(0), &launch, both, 2), PX_RUNTIME, "Phlox found a race");
}

// A refused launch has already recorded a use of its first allocation. This must neither block nor
// complete early.
PX_TEST(a_refused_launch_leaves_its_blocks_usable) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_stream *side = new_stream(0);
  px_allocation *good = block_on(px_cuda(0), 4096), *bad = block_on(px_cuda(0), 4096);
  refuse(side, good, bad);
  px__allocation_free(good), px__allocation_free(bad);
  OK(px_memory_empty_cache());
  CHECK(px__completed(side) <= px__issued(side));  // otherwise later work would count as complete
  CHECK_EQ(px_memory_reserved(0), 0);
  px_release(side);
}

PX_TEST(only_overlapping_bytes_race_and_only_if_one_writes) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_stream *side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 4096);
  OK(touch(block, 0, 1024, true));
  OK(touch(block, 1024, 2048, false));
  OK(px_stream_set_current(side));
  OK(touch(block, 2048, 4096, true));
  OK(touch(block, 1024, 2048, false));
  CHECK_EQ(px_race_count(), 0);
  FAILS(touch(block, 1000, 1025, false), PX_RUNTIME, "touch wrote bytes [0, 1024)");
  FAILS(touch(block, 2047, 2050, true), PX_RUNTIME, "touch read bytes [1024, 2048)");
  px__allocation_free(block);
  px_release(side);
}

PX_TEST(recycled_memory_races_with_its_earlier_owner) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_stream *side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 4096);
  OK(fill(block, 1, 20));
  px__allocation_free(block);
  block = block_on(px_cuda(0), 4096);
  OK(px_stream_set_current(side));
  FAILS(fill(block, 2, 0), PX_RUNTIME, "the memory's earlier owner wrote");
  px__allocation_free(block);
  OK(px_stream_wait_stream(side, default_stream(0)));
  block = block_on(px_cuda(0), 4096);
  OK(fill(block, 2, 0));
  px__allocation_free(block);
  px_release(side);
}

PX_TEST(reports_may_be_recorded_only) {
  simulate_plainly(1);
  px_race_enable(1, false);
  px_allocation *block = block_on(px_cuda(0), 4096);
  OK(race_example(block, false));
  CHECK_EQ(px_race_count(), 1);
  px__allocation_free(block);
}

PX_TEST(reading_a_copy_in_flight_is_a_race) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_allocation *device = block_on(px_cuda(0), 4096), *host = pinned_block(4096);
  OK(fill(device, 8, 40));
  px_site_set("copy.py", 9);
  OK(px__copy_bytes(host, 0, device, 0, 4096, true));
  FAILS(px__allocation_wait(host, "look", false), PX_RUNTIME,
        "writes it on the default stream of cuda:0");
  CHECK(strstr(px_race_report(0), "at copy.py:9"));
  OK(px_stream_synchronize(default_stream(0)));
  OK(px__allocation_wait(host, "look", false));
  CHECK_EQ(*(int64_t *)host->data, 8);
  px__allocation_free(device), px__allocation_free(host);
}

PX_TEST(reading_other_bytes_than_a_copy_writes_is_no_race) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_allocation *device = block_on(px_cuda(0), 4096), *host = pinned_block(4096);
  OK(px__copy_bytes(host, 0, device, 0, 2048, true));
  OK(px__copy_bytes(device, 2048, host, 2048, 1024, true));
  px_access behind = {.allocation = host, .begin = 2048, .end = 3072};
  OK(px__allocation_host_access("read", &behind));  // also read by the second copy
  px_access across = {.allocation = host, .begin = 2040, .end = 3072};
  OK(px__copy_bytes(host, 0, device, 0, 2048, true));
  FAILS(px__allocation_host_access("read", &across), PX_RUNTIME, "writes it on the default stream");
  OK(px_device_synchronize(0));
  px__allocation_free(device), px__allocation_free(host);
}

// The waiting copy is ordered after the asynchronous one, by its stream or by a wait.
PX_TEST(a_synchronous_copy_may_follow_an_asynchronous_one) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_stream *side = new_stream(0);
  px_allocation *device = block_on(px_cuda(0), 4096), *host = pinned_block(4096);
  OK(fill(device, 8, 20));
  OK(px__copy_bytes(host, 0, device, 0, 4096, true));
  OK(px__copy_bytes(device, 0, host, 0, 4096, false));
  OK(px__copy_bytes(host, 0, device, 0, 4096, true));
  OK(px_stream_wait_stream(side, default_stream(0)));
  OK(px_stream_set_current(side));
  OK(px__copy_bytes(device, 0, host, 0, 4096, false));
  OK(px_stream_set_current(default_stream(0)));
  OK(px__copy_bytes(host, 0, device, 0, 4096, true));
  OK(px_stream_set_current(side));
  FAILS(px__copy_bytes(device, 0, host, 0, 4096, false), PX_RUNTIME, "Phlox found a race");
  OK(px_device_synchronize(0));
  px__allocation_free(device), px__allocation_free(host);
  px_release(side);
}

PX_TEST(refused_work_races_with_nothing_later) {
  simulate_plainly(1);
  px_race_enable(1, true);
  px_stream *side = new_stream(0);
  px_allocation *good = block_on(px_cuda(0), 4096), *bad = block_on(px_cuda(0), 4096);
  refuse(side, good, bad);
  OK(px_stream_set_current(default_stream(0)));
  OK(fill(good, 1, 0));
  px__allocation_free(good), px__allocation_free(bad);
  px_release(side);
}

PX_TEST(a_wait_without_a_record_is_reported) {
  simulate_plainly(1);
  PX_SCOPED(px_event) event = NULL;
  OK(px_event_new(&event, 0));
  OK(px_stream_wait_event(default_stream(0), event));
  px_race_enable(1, false);
  OK(px_stream_wait_event(default_stream(0), event));
  CHECK(strstr(px_race_report(0), "Phlox found a wait on nothing"));
}

PX_TEST(the_environment_turns_the_checker_on) {
  const char *const names[] = {"PHLOX_SANITIZE", "TORCH_CUDA_SANITIZER"};
  setenv("PHLOX_SANITIZE", "0", 1);
  for (int i = 0; i < 2; i++) {
    setenv(names[i], "1", 1);
    px__race_on = -1;
    CHECK_EQ(px_race_level(), 1);
    setenv(names[i], "0", 1);
    px__race_on = -1;
    CHECK_EQ(px_race_level(), 0);
  }
}

// ---- threads and faults
static void *hammer(void *argument) {
  int device = (int)(intptr_t)argument % 2, other = 1 - device;
  px_stream *stream = new_stream(device);
  OK(px_device_set(device));
  OK(px_stream_set_current(stream));
  for (int i = 1; i <= 60; i++) {
    px_allocation *a = block_on(px_cuda(device), (size_t)(1 + i % 7) * 4096);
    px_allocation *b = block_on(px_cuda(other), a->bytes), *host = pinned_block(a->bytes);
    OK(fill(a, i, 0));
    OK(px__copy_bytes(b, 0, a, 0, a->bytes, true));
    OK(px__copy_bytes(host, 0, b, 0, a->bytes, true));
    px__allocation_free(a), px__allocation_free(b);
    OK(px_stream_synchronize(default_stream(other)));
    OK(px__allocation_wait(host, "look", false));
    CHECK_EQ(((int64_t *)host->data)[host->bytes / 8 - 1], i);
    px__allocation_free(host);
  }
  px_release(stream);
  return NULL;
}

PX_TEST(threads_share_devices) {
  simulate_plainly(2);
  pthread_t threads[4];
  px_race_enable(1, true);
  for (intptr_t i = 0; i < 4; i++) OK(px__thread_start(&threads[i], hammer, (void *)i));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_EQ(px_memory_allocated(0) + px_memory_allocated(1), 0);
}

// A mixed workload. Returns at the first failure and releases everything.
static px_status workload(void) {
  px_allocation *a = NULL, *b = NULL, *host = NULL;
  PX_SCOPED(px_stream) side = NULL;
  PX_SCOPED(px_event) event = NULL;
  px_status status = px_stream_new(&side, px_cuda(0), 0);
  if (!status) status = px__allocation_new(&a, 30 << 20, px_cuda(0));
  if (!status) status = px__allocation_new(&b, 4096, px_cuda(1));
  if (!status) status = px__allocation_new_pinned(&host, 2 << 20);
  if (!status) status = fill(a, 1, 0);
  if (!status) status = px_event_new(&event, 0);
  if (!status) status = px_event_record(event, default_stream(0));
  if (!status) status = px_stream_wait_event(side, event);
  if (!status) status = px_stream_set_current(side);
  if (!status) status = fill(a, 2, 0);
  if (!status) status = px__copy_bytes(b, 0, a, 0, 4096, true);
  if (!status) status = px__copy_bytes(host, 0, b, 0, 4096, true);
  if (!status) status = px__allocation_wait(host, "look", false);
  if (!status) CHECK_EQ(*(int64_t *)host->data, 2);
  CHECK_EQ(px_stream_set_current(default_stream(0)), PX_OK);
  px__allocation_free(a), px__allocation_free(b), px__allocation_free(host);
  return status;
}

static void survive(const char *point) {
  int64_t objects = px_live_objects(NULL);
  for (int n = 1;; n++) {
    CHECK(n < 500);
    OK(px_fault_arm(point, n, false));
    px_status status = workload();
    bool reached = px_fault_seen(point) >= n;
    px_fault_disarm_all();
    px_error_clear();
    OK(px_device_synchronize(0));
    CHECK_EQ(px_memory_allocated(0) + px_memory_allocated(1), 0);
    CHECK_EQ(px_live_objects(NULL), objects);
    OK(px_memory_empty_cache());
    OK(px_memory_empty_host_cache());
    CHECK_EQ(px_memory_reserved(0), 0);
    if (!reached) {
      OK(status);
      return;
    }
  }
}

PX_TEST(every_fault_is_survived) {
  simulate_plainly(2);
  static const char *const points[] = {"alloc", "device.alloc", "host.alloc", "launch",
                                       "copy",  "stream",       "event"};
  OK(px_device_synchronize(0));
  for (int i = 0; i < PX_COUNT_OF(points); i++) survive(points[i]);
}

// ---- packed launches
PX_TEST(a_packed_launch_copies_its_arguments) {
  int64_t sizes[2] = {3, 4}, strides[2] = {4, 1}, dims[3] = {7, 8, 9};
  char name[] = "mean";
  px_operand operands[2] = {{.sizes = sizes, .strides = strides, .ndim = 2, .dtype = PX_INT64},
                            {.sizes = sizes, .strides = strides, .immediate = true}};
  px_value params[3] = {PX_IS(dims, 3), PX_TX(name), PX_F(1.5)};
  px_launch launch = {
      .op = "test", .operands = operands, .operand_count = 2, .params = params, .param_count = 3};
  _Alignas(16) char packed[2048];
  size_t needed = px__launch_pack(&launch, NULL, 0);
  CHECK(needed <= sizeof packed);
  CHECK_EQ(px__launch_pack(&launch, packed, sizeof packed), needed);
  memset(sizes, 0, sizeof sizes), memset(dims, 0, sizeof dims), memset(name, 'x', 4);
  const px_launch *copy = (px_launch *)packed;
  CHECK(copy->operands[0].sizes[1] == 4 && copy->operands[1].data == copy->operands[1].value);
  CHECK(copy->params[0].v.ints[2] == 9 && !strcmp(copy->params[1].v.text, "mean"));
  CHECK(copy->params[2].v.f == 1.5);
}

// ---- streams of other libraries
PX_TEST(a_native_handle_maps_to_its_stream) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 8);
  PX_SCOPED(px_stream) first = new_stream(0);
  PX_SCOPED(px_stream) second = new_stream(0);
  for (int turn = 0; turn < 2; turn++) {
    OK(px_stream_set_current(first));
    OK(fill(block, 7 + turn, 30));
    OK(turn ? px_stream_take_over(second, px_stream_native(first))
            : px_stream_hand_over(first, px_stream_native(second)));
    OK(px_stream_set_current(second));
    CHECK_EQ(first_of(block), 7 + turn);
    OK(px_stream_wait_stream(first, second));
  }
  px__allocation_free(block);
}

PX_TEST(the_host_waits_for_unknown_streams) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 8);
  PX_SCOPED(px_stream) stream = new_stream(0);
  bool done;
  OK(px_stream_set_current(stream));
  OK(fill(block, 1, 30));
  OK(px_stream_take_over(stream, (void *)1));
  OK(px_stream_hand_over(stream, (void *)1));
  OK(px_stream_query(&done, stream));
  CHECK(done);
  px__allocation_free(block);
}

// ---- adopted streams of other libraries
// A native stream of device 0, unknown to the core.
static void *foreign_handle(void) {
  void *native = NULL;
  OK(px_device_init());
  OK(px__rt.backend->stream_new(0, -1, &native));
  return native;
}
static px_stream *adopted(void *native) {
  px_stream *stream = NULL;
  OK(px_stream_from_native(&stream, px_cuda(0), native));
  return stream;
}

PX_TEST(a_native_handle_returns_a_known_or_an_adopted_stream) {
  simulate_plainly(2);
  PX_SCOPED(px_stream) own = new_stream(0);
  PX_SCOPED(px_stream) same = adopted(px_stream_native(own));
  PX_SCOPED(px_stream) plain = adopted(NULL);
  CHECK(same == own && plain == default_stream(0));
  void *native = foreign_handle();
  PX_SCOPED(px_stream) stream = adopted(native);
  PX_SCOPED(px_stream) again = adopted(native);
  CHECK(again == stream && px_stream_native(stream) == native);
  CHECK_EQ(px_stream_priority(stream), -1);
  px_allocation *block = block_on(px_cuda(0), 8);
  OK(px_stream_wait_stream(stream, default_stream(0)));
  OK(px_stream_set_current(stream));
  OK(fill(block, 7, 10));
  CHECK_EQ(first_of(block), 7);
  px__allocation_free(block);
}

PX_TEST(a_number_returns_its_stream) {
  simulate_plainly(2);
  PX_SCOPED(px_stream) own = new_stream(1);
  PX_SCOPED(px_stream) same = NULL;
  PX_SCOPED(px_stream) plain = NULL;
  PX_SCOPED(px_stream) host = NULL;
  px_stream *none = NULL;
  OK(px_stream_from_id(&same, px_cuda(1), px_stream_id(own)));
  OK(px_stream_from_id(&plain, px_cuda(1), 0));
  OK(px_stream_from_id(&host, px_cpu(), 0));
  CHECK(same == own && plain == default_stream(1));
  CHECK_EQ(px_stream_device(host).type, PX_CPU);
  FAILS(px_stream_from_id(&none, px_cuda(0), px_stream_id(own)), PX_VALUE,
        "cuda:0 has no stream with the id");
  CHECK(!none);
}

PX_TEST(a_handle_of_another_device_is_refused) {
  simulate_plainly(2);
  px_stream *stream = NULL;
  void *native = foreign_handle();
  FAILS(px_stream_from_native(&stream, px_cuda(1), native), PX_ACCELERATOR,
        "CUDA error: invalid resource handle");
  FAILS(px_stream_from_native(&stream, px_cuda(0), (void *)1), PX_ACCELERATOR,
        "CUDA error: invalid resource handle");
  FAILS(px_stream_from_native(&stream, px_cpu(), native), PX_VALUE,
        "Expected a cuda device, but got: cpu");
  CHECK(!stream);
}

static void note_later(void *counter) {
  pause_ms(30);
  __atomic_store_n((int *)counter, 1, __ATOMIC_RELEASE);
}
static void note_seen(void *counters) {
  int *at = counters;
  at[1] = __atomic_load_n(&at[0], __ATOMIC_ACQUIRE);
}

PX_TEST(a_wait_for_an_adopted_stream_covers_its_owners_work) {
  simulate_plainly(1);
  int counters[2] = {0, -1};
  void *native = foreign_handle();
  PX_SCOPED(px_stream) stream = adopted(native);
  PX_SCOPED(px_stream) other = new_stream(0);
  OK(px__rt.backend->host_call(native, note_later, counters));
  OK(px_stream_wait_stream(other, stream));
  OK(px_stream_host_call(other, note_seen, counters));
  OK(px_stream_synchronize(other));
  CHECK_EQ(counters[1], 1);
}

PX_TEST(idle_unheld_adopted_streams_are_recycled) {
  simulate_plainly(1);
  PX_SCOPED(px_stream) held = adopted(foreign_handle());
  void *first = foreign_handle();
  px_stream *before = adopted(first);
  int64_t id = px_stream_id(before);
  OK(px_stream_synchronize(before));
  px_release(before);
  PX_SCOPED(px_stream) next = adopted(foreign_handle());
  CHECK(next == before && next != held && px_stream_id(next) != id);
  PX_SCOPED(px_stream) back = adopted(first);
  CHECK(back != next);
  // Streams created by the program are not among them.
  for (int i = 0; i < 2 * PX__STREAM_POOL; i++) {
    PX_SCOPED(px_stream) own = NULL;
    OK(px_stream_new(&own, px_cuda(0), -1));
    CHECK(!own->foreign);
  }
}

PX_TEST(a_failed_adoption_leaks_nothing) {
  simulate_plainly(1);
  void *native = foreign_handle();
  const char *points[] = {"stream", "alloc"};
  for (int i = 0; i < 2; i++) {
    px_stream *stream = NULL;
    int64_t live = px_live_objects(NULL);
    OK(px_fault_arm(points[i], 1, false));
    CHECK(px_stream_from_native(&stream, px_cuda(0), native) != PX_OK && !stream);
    px_fault_disarm_all();
    CHECK_EQ(px_live_objects(NULL), live);
  }
  PX_SCOPED(px_stream) stream = adopted(native);
  CHECK(stream);
}
