// SPDX-License-Identifier: Apache-2.0
// Devices: names, visibility, initialisation, fork, current device and stream, streams, host
// memory.
#include "device_test.h"

static void parses(const char *text, const char *as) {
  px_device device;
  char out[PX_DEVICE_TEXT];
  OK(px_device_parse(&device, text));
  CHECK_TEXT(px_device_format(device, out), as);
}

PX_TEST(names_are_parsed) {
  parses("cpu", "cpu");
  parses("cuda", "cuda");
  parses("cuda:0", "cuda:0");
  parses("cuda:12", "cuda:12");
  parses("cuda: 0", "cuda:0");
  parses("cpu:0", "cpu:0");
}

PX_TEST(malformed_names_are_refused) {
  static const char *const bad[] = {"cuda:01",  "cuda:-1", "cuda:",   "cuda:1:1", "cuda:1 ",
                                    "cuda:  1", "cuda :1", "cuda:1x", ":0",       "cuda: "};
  px_device device;
  char text[64];
  for (int i = 0; i < PX_COUNT_OF(bad); i++) {
    snprintf(text, sizeof text, "Invalid device string: '%s'", bad[i]);
    FAILS(px_device_parse(&device, bad[i]), PX_RUNTIME, text);
  }
  FAILS(px_device_parse(&device, ""), PX_RUNTIME, "Device string must not be empty");
}

PX_TEST(unknown_types_are_refused_with_the_list) {
  px_device device;
  FAILS(px_device_parse(&device, "gpu"), PX_RUNTIME,
        "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, "
        "xla, lazy, vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device "
        "string: gpu");
  FAILS(px_device_parse(&device, "CUDA"), PX_RUNTIME, "at start of device string: CUDA");
  FAILS(px_device_parse(&device, "mps"), PX_UNIMPLEMENTED, "'mps'");
}

PX_TEST(an_out_of_range_index_is_refused) {
  px_device device;
  FAILS(px_device_parse(&device, "cuda:300"), PX_RUNTIME, "between 0 and 127");
  FAILS(px_device_parse(&device, "cuda:4294967296"), PX_RUNTIME, "between 0 and 127");
}

static int count_with(const char *visible) {
  setenv("CUDA_VISIBLE_DEVICES", visible, 1);
  return px_device_count(PX_CUDA);
}

PX_TEST(visible_devices_follow_the_drivers_rules) {
  simulate_plainly(4);
  CHECK_EQ(px_device_count(PX_CUDA), 4);
  CHECK_EQ(count_with("0,2,3"), 3);
  CHECK_EQ(count_with(""), 0);
  CHECK_EQ(count_with("-1"), 0);
  CHECK_EQ(count_with("5"), 0);
  CHECK_EQ(count_with("0,5,1"), 1);
  CHECK_EQ(count_with("1,-1,0"), 1);
  CHECK_EQ(count_with("1gpu,0x"), 2);
  CHECK_EQ(count_with(" 1 "), 1);
  CHECK_EQ(count_with(",1"), 0);
  CHECK_EQ(count_with("0,0"), 0);
  CHECK_EQ(count_with("GPU-nothing"), 0);
  CHECK(!px_device_initialized());
}

static int list_of(px_backend_row rows[8], const char *names) {
  int count = -1;
  setenv("PHLOX_BACKENDS", names, 1);
  OK(px_device_backends(rows, 8, &count));
  return count;
}

PX_TEST(backends_are_listed_in_order_with_paths_or_reasons) {
  px_backend_row rows[8];
  simulate_plainly(2);
  CHECK_EQ(list_of(rows, "nosuch,sim,,sim"), 3);
  CHECK_TEXT(rows[0].name, "nosuch");
  CHECK(!rows[0].library && strstr(rows[0].why, "libphlox_nosuch.so"));
  CHECK_TEXT(rows[1].name, "sim");
  CHECK(rows[1].listed && rows[1].library && strstr(rows[1].library, "libphlox_sim.so"));
  CHECK_TEXT(rows[1].why, "");
  CHECK_TEXT(rows[2].name, "cuda");
  CHECK(!rows[2].listed);
  CHECK_EQ(list_of(rows, ""), 2);  // the default
  CHECK(rows[0].listed && rows[1].listed && !px_device_initialized());
}

PX_TEST(a_list_of_backends_is_cut_at_its_capacity) {
  px_backend_row row = {.name = "unchanged"};
  int count = -1;
  setenv("PHLOX_BACKENDS", "sim", 1);
  OK(px_device_backends(&row, 0, &count));
  CHECK_EQ(count, 2);
  CHECK_TEXT(row.name, "unchanged");
  FAILS(px_device_backends(NULL, 1, &count), PX_TYPE, "`rows` is NULL");
  FAILS(px_device_backends(&row, 1, NULL), PX_TYPE, "`count` is NULL");
  setenv("PHLOX_BACKEND_PATH", "/nowhere", 1);
  setenv("PHLOX_BACKENDS", "another", 1);
  FAILS(px_device_backends(&row, 1, &count), PX_VALUE, "PHLOX_BACKEND_PATH");
  CHECK_EQ(count, 2);
}

PX_TEST(listing_backends_passes_no_fault_point) {
  px_backend_row rows[8];
  int count;
  const char *points[] = {"alloc", "device.alloc", "launch", "file", "thread"};
  for (int i = 0; i < PX_COUNT_OF(points); i++) {
    OK(px_fault_arm(points[i], 1, true));
    OK(px_device_backends(rows, 8, &count));
    px_fault_disarm_all();
  }
}

static bool glanced(int device, const char *name, size_t length) {
  static const char *const uuids[] = {"GPU-01ab", "GPU-01cd", "MIG-77"};
  return !strncmp(uuids[device], name, length);
}

PX_TEST(visibility_by_uuid_uses_the_backends_lookup) {
  const px_backend driver = {
      .name = "cuda", .match_forksafe = glanced};  // without properties, which would need a driver
  int physical[PX__DEVICES];
  CHECK_EQ(px__visible(NULL, 3, &driver, true, physical), 3);
  CHECK_EQ(px__visible("GPU-01c, 0", 3, &driver, true, physical), 2);
  CHECK_EQ(physical[0], 1);
  CHECK_EQ(px__visible("GPU-01", 3, &driver, true, physical), 0);  // ambiguous
  CHECK_EQ(px__visible("MIG-77", 3, &driver, true, physical), 1);
  CHECK_EQ(px__visible("0,GPU-01a", 3, &driver, true, physical), -1);  // twice
}

static int warnings;
static px_status count_warning(px_warning category, const char *text) {
  CHECK(strstr(text, "CUDA initialization: Unexpected error from cudaGetDeviceCount()"));
  warnings++;
  return PX_OK;
}

PX_TEST(a_device_named_twice_fails_the_initialisation) {
  simulate_plainly(4);
  setenv("CUDA_VISIBLE_DEVICES", "0,0", 1);
  px_warning_set_sink(count_warning);
  CHECK_EQ(px_device_count(PX_CUDA) + px_device_count(PX_CUDA), 0);
  CHECK_EQ(warnings, 1);
  FAILS(px_device_init(), PX_RUNTIME, "Error 101: invalid device ordinal");
}

PX_TEST(visible_devices_are_renumbered) {
  simulate_plainly(4);
  setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
  px_device_properties properties;
  OK(px_device_get_properties(&properties, 0));
  CHECK_EQ(properties.pci_bus_id, 4);
  FAILS(px_device_get_properties(&properties, 2), PX_ASSERTION, "Invalid device id");
}

PX_TEST(the_environment_is_read_until_initialisation) {
  simulate_plainly(2);
  OK(px_device_init());
  CHECK(px_device_initialized());
  CHECK_TEXT(px_device_backend(), "sim");
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  CHECK_EQ(px_device_count(PX_CUDA), 2);
}

PX_TEST(initialisation_without_devices_is_an_error) {
  simulate_plainly(1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  int index;
  px_allocation *block;
  FAILS(px_device_current(&index), PX_RUNTIME, "No CUDA GPUs are available");
  FAILS(px__allocation_new(&block, 8, px_cuda(0)), PX_RUNTIME, "No CUDA GPUs are available");
  FAILS(px__allocation_new_pinned(&block, 8), PX_RUNTIME,
        "pin_memory=True requires a CUDA or other accelerator backend");
  CHECK_TEXT(px_device_backend(), "");
}

// Runs `body` in a forked child. Its CHECKs fail the test.
static void in_child(void (*body)(void)) {
  int status;
  pid_t child = fork();
  if (!child) {
    body();
    _exit(0);
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static px_allocation *parents_block;
static void use_in_child(void) {
  int index;
  px_allocation *block;
  FAILS(px_device_current(&index), PX_RUNTIME,
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' start method");
  FAILS(px__allocation_new(&block, 8, px_cuda(0)), PX_ACCELERATOR, "initialization error");
  FAILS(fill(parents_block, 1, 0), PX_ACCELERATOR, "CUDA error: initialization error");
  CHECK(!px_device_initialized());
  px__allocation_free(parents_block);
  px__allocation_free(block_on(px_cpu(), 64));
}

PX_TEST(a_forked_child_gets_an_error) {
  simulate_plainly(1);
  parents_block = block_on(px_cuda(0), 4096);
  in_child(use_in_child);
  OK(fill(parents_block, 7, 0));
  CHECK_EQ(first_of(parents_block), 7);
}

static void start_in_child(void) { OK(px_device_init()); }

PX_TEST(a_child_of_an_uninitialised_process_can_initialise) {
  simulate_plainly(1);
  CHECK_EQ(px_device_count(PX_CUDA), 1);
  in_child(start_in_child);
}

static void *current_of_thread(void *argument) {
  OK(px_device_current(argument));
  return NULL;
}

PX_TEST(the_current_device_is_per_thread) {
  simulate_plainly(3);
  int index = -1;
  pthread_t thread;
  OK(px_device_set(2));
  OK(px_device_set(-1));
  OK(px_device_current(&index));
  CHECK_EQ(index, 2);
  OK(px__thread_start(&thread, current_of_thread, &index));
  pthread_join(thread, NULL);
  CHECK_EQ(index, 0);
}

PX_TEST(an_invalid_device_keeps_the_current_one) {
  simulate_plainly(2);
  OK(px_device_set(1));
  FAILS(px_device_set(5), PX_ACCELERATOR,
        "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough "
        "GPUs?\nCUDA kernel errors might be asynchronously reported at some other API call");
  CHECK_EQ(px_device_peek(), 1);
  px_device device;
  if (px_device_resolve(&device, px_cuda(9)) != PX_OK) CHECK_EQ(px_error_last()->detail, 101);
  CHECK(px_device_resolve(&device, px_cuda(1 << 16)) != PX_OK);  // not device 0
  OK(px_device_resolve(&device, px_cuda(-1)));
  CHECK_EQ(device.index, 1);
}

PX_TEST(held_streams_are_distinct) {
  simulate_plainly(2);
  px_stream *streams[80];
  for (int i = 0; i < 80; i++) {
    streams[i] = new_stream(1);
    for (int k = 0; k < i; k++) CHECK(streams[i] != streams[k]);
  }
  CHECK_EQ(px_stream_id(default_stream(1)), 0);
  CHECK(default_stream(1) != default_stream(0));
  for (int i = 0; i < 80; i++) px_release(streams[i]);
}

PX_TEST(unheld_streams_are_reused_in_rotation) {
  simulate_plainly(1);
  px_stream *kept = new_stream(0), *first[32];
  for (int i = 1; i < 32; i++) {
    first[i] = new_stream(0);
    px_release(first[i]);
    CHECK(first[i] != first[i - 1] || i == 1);
  }
  OK(px_stream_set_current(first[7]));  // held by the thread
  for (int i = 1; i < 32; i++) {
    if (i == 7) continue;
    px_stream *again = new_stream(0);
    CHECK(again == first[i]);
    px_release(again);
  }
  px_release(kept);
}

static void *set_and_end(void *stream) {
  OK(px_stream_set_current(stream));
  return NULL;
}

PX_TEST(an_ending_thread_releases_its_stream) {
  simulate_plainly(1);
  px_stream *stream = new_stream(0);
  pthread_t thread;
  CHECK_EQ(px_refs(stream), 2);
  OK(px_thread_start(&thread, set_and_end, stream));
  pthread_join(thread, NULL);
  CHECK_EQ(px_refs(stream), 2);
  px_release(stream);
}

PX_TEST(held_streams_are_shared_beyond_960) {
  enum { COUNT = 2000 };
  simulate_plainly(1);
  static px_stream *streams[COUNT];
  for (int i = 0; i < COUNT; i++) OK(px_stream_new(&streams[i], px_cuda(0), 0));
  for (int i = 1; i < PX__DISTINCT_STREAMS; i++) CHECK(streams[i] != streams[i - 1]);
  px__device *d;
  OK(px__device_get(&d, 0));
  CHECK_EQ(d->stream_count, PX__DISTINCT_STREAMS + 1);
  CHECK(streams[PX__DISTINCT_STREAMS] != streams[PX__DISTINCT_STREAMS + 1]);
  CHECK(streams[2 * PX__DISTINCT_STREAMS] == streams[PX__DISTINCT_STREAMS]);
  px_stream *urgent;
  OK(px_stream_new(&urgent, px_cuda(0), -1));
  CHECK(px_stream_priority(urgent) == -1);
  px_release(urgent);
  for (int i = 0; i < COUNT; i++) px_release(streams[i]);
}

PX_TEST(priorities_clamp) {
  simulate_plainly(1);
  px_stream *urgent, *idle;
  OK(px_stream_new(&urgent, px_cuda(0), -100));
  OK(px_stream_new(&idle, px_cuda(0), 100));
  CHECK_EQ(px_stream_priority(urgent), px__rt.highest_priority);
  CHECK_EQ(px_stream_priority(idle), px__rt.lowest_priority);
  CHECK(urgent != idle);
  px_release(urgent);
  px_release(idle);
}

PX_TEST(the_current_stream_is_per_device_and_thread) {
  simulate_plainly(2);
  px_stream *stream = new_stream(1), *now;
  OK(px_stream_set_current(stream));
  OK(px_stream_set_current(NULL));
  OK(px_stream_current(&now, px_cuda(1)));
  CHECK(now == stream);
  CHECK_EQ(px_device_peek(), 0);
  OK(px_stream_current(&now, px_cuda(0)));
  CHECK(now == default_stream(0));
  px_release(stream);
}

static px_status current_within(px_stream **stream, int *device, px_stream *wanted, bool fails) {
  PX_ON_STREAM(wanted);
  PX_TRY(px_stream_current(stream, px_cuda(1)));
  PX_TRY(px_device_current(device));
  PX_CHECK(!fails, PX_VALUE, "expected");
  return PX_OK;
}
PX_TEST(a_stream_scope_restores_the_stream_and_the_device) {
  px_stream *within, *after, *before;
  PX_SCOPED(px_stream) side = NULL;
  int device = -1;
  simulate(2);
  OK(px_stream_current(&before, px_cuda(1)));
  OK(px_stream_new(&side, px_cuda(1), 0));
  for (int fails = 0; fails < 2; fails++) {
    CHECK_EQ(current_within(&within, &device, side, fails), fails ? PX_VALUE : PX_OK);
    CHECK(within == side && device == 1);
    OK(px_stream_current(&after, px_cuda(1)));
    CHECK(after == before);
    CHECK_EQ(px_device_peek(), 0);
  }
  OK(current_within(&within, &device, NULL, false));
  CHECK(within == before && device == 0);
}
PX_TEST(a_stream_is_busy_while_its_work_runs) {
  simulate_plainly(1);
  bool idle;
  px_allocation *block = block_on(px_cuda(0), 64);
  OK(fill(block, 3, 60));
  OK(px_stream_query(&idle, default_stream(0)));
  CHECK(!idle);
  OK(px_stream_synchronize(default_stream(0)));
  OK(px_stream_query(&idle, default_stream(0)));
  CHECK(idle);
  px__allocation_free(block);
}

PX_TEST(peer_access_is_per_ordered_pair) {
  simulate_plainly(2);
  bool can;
  OK(px_device_can_access_peer(&can, 0, 1));
  CHECK(can);
  OK(px_device_can_access_peer(&can, 0, 0));
  CHECK(!can);
  FAILS(px_device_can_access_peer(&can, 5, 0), PX_ASSERTION, "Invalid device id");
  FAILS(px_device_can_access_peer(&can, 0, 5), PX_ASSERTION, "Invalid peer device id");
  OK(px_device_enable_peer(0, 1));
  OK(px_device_enable_peer(0, 1));
  CHECK(px_device_peer_enabled(0, 1) && !px_device_peer_enabled(1, 0));
  CHECK(!px__device_reaches(px_cuda(0), px_cuda(1)));
  OK(px_device_enable_peer(1, 0));
  CHECK(px__device_reaches(px_cuda(0), px_cuda(1)));
}

PX_TEST(host_blocks_are_aligned_and_reused) {
  for (size_t bytes = 1; bytes < 3 << 20; bytes = bytes * 5 / 3 + 1) {
    px_allocation *block = block_on(px_cpu(), bytes);
    CHECK_EQ((uintptr_t)block->data % 64, 0);
    CHECK_EQ(block->bytes, bytes);
    memset(block->data, 1, bytes);
    px__allocation_free(block);
  }
  px_allocation *empty = block_on(px_cpu(), 0);
  CHECK(empty->data == NULL);
  px__allocation_free(empty);
}

PX_TEST(a_too_large_host_block_is_an_error) {
  px_allocation *block;
  FAILS(px__allocation_new(&block, SIZE_MAX, px_cpu()), PX_NOMEM, "can't allocate memory");
  OK(px_fault_arm("alloc", 1, false));
  FAILS(px__allocation_new(&block, 16, px_cpu()), PX_NOMEM, "you tried to allocate 16 bytes");
}

static px_status count_release(int *count) { return ++*count, PX_OK; }
static void released(void *context) { OK(count_release(context)); }

PX_TEST(wrapped_memory_is_released_once) {
  int count = 0;
  char memory[16];
  px_allocation *block;
  OK(px__allocation_wrap(&block, memory, sizeof memory, px_cpu(), released, &count));
  CHECK(block->data == memory && block->foreign);
  px__allocation_free(block);
  CHECK_EQ(count, 1);
}
