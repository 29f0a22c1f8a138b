// SPDX-License-Identifier: Apache-2.0
// The allocators: PyTorch's sizes and statistics, reuse between streams, out of memory, page-locked
// memory.
#include "device_test.h"

static void check_sizes(size_t bytes, int64_t allocated, int64_t reserved) {
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 0);
  px_allocation *block = block_on(px_cuda(0), bytes);
  CHECK_EQ(px_memory_allocated(0), allocated);
  CHECK_EQ(px_memory_reserved(0), reserved);
  CHECK_EQ((uintptr_t)block->data % 512, 0);
  px__allocation_free(block);
  CHECK_EQ(px_memory_allocated(0), 0);
}

PX_TEST(sizes_match_pytorch) {
  simulate_plainly(1);
  check_sizes(0, 0, 0);
  check_sizes(1, 512, 2097152);
  check_sizes(513, 1024, 2097152);
  check_sizes(1048576, 1048576, 2097152);
  check_sizes(1048577, 1049088, 20971520);
  check_sizes(5242880, 5242880, 20971520);
  check_sizes(10485759, 10485760, 10485760);
  check_sizes(10485761, 10486272, 12582912);
  check_sizes(20971520, 20971520, 20971520);
  check_sizes(22020101, 23068672, 23068672);
  check_sizes(104857600, 104857600, 104857600);
}

PX_TEST(requested_bytes_are_not_rounded) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 22020101);
  CHECK_EQ(stat_of("requested_bytes.all.current"), 22020101);
  CHECK_EQ(stat_of("allocated_bytes.large_pool.current"), 23068672);
  CHECK_EQ(stat_of("allocated_bytes.small_pool.current"), 0);
  px__allocation_free(block);
  CHECK_EQ(stat_of("requested_bytes.all.freed"), 22020101);
}

PX_TEST(freed_memory_is_reused) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 4096);
  void *at = block->data;
  px__allocation_free(block);
  block = block_on(px_cuda(0), 4000);
  CHECK(block->data == at);
  px__allocation_free(block);
  CHECK_EQ(stat_of("num_device_alloc"), 1);
}

PX_TEST(immediately_reused_memory_is_counted) {
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 4096));
  px_allocation *block = block_on(px_cuda(0), 4000);
  CHECK_EQ(stat_of("allocation.all.allocated"), 2);
  CHECK_EQ(stat_of("active_bytes.small_pool.allocated"), 8192);
  CHECK_EQ(stat_of("allocated_bytes.all.peak"), 4096);
  CHECK_EQ(stat_of("requested_bytes.all.current"), 4000);
  CHECK_EQ(stat_of("requested_bytes.all.allocated"), 8096);
  px__allocation_free(block);
  px_allocation *whole =
      block_on(px_cuda(0), 1048576);  // the freed block was merged with its neighbour
  CHECK_EQ(stat_of("inactive_split_bytes.all.current"), 1048576);
  CHECK_EQ(stat_of("num_device_alloc"), 1);
  px__allocation_free(whole);
}

PX_TEST(the_best_fit_is_used) {
  simulate_plainly(1);
  px_allocation *a = block_on(px_cuda(0), 8192), *wall = block_on(px_cuda(0), 512);
  px_allocation *b = block_on(px_cuda(0), 2048), *end = block_on(px_cuda(0), 512);
  void *at = b->data;
  px__allocation_free(a);
  px__allocation_free(b);
  px_allocation *c = block_on(px_cuda(0), 1536);
  CHECK(c->data == at);
  px__allocation_free(c), px__allocation_free(wall), px__allocation_free(end);
}

PX_TEST(neighbours_merge_and_splits_are_counted) {
  simulate_plainly(1);
  px_allocation *a = block_on(px_cuda(0), 512), *b = block_on(px_cuda(0), 512);
  CHECK_EQ(stat_of("inactive_split.all.current"), 1);
  CHECK_EQ(stat_of("inactive_split_bytes.all.current"), 2097152 - 1024);
  px__allocation_free(a);
  CHECK_EQ(stat_of("inactive_split.all.current"), 2);
  px__allocation_free(b);
  CHECK_EQ(stat_of("inactive_split.all.current"), 0);
  CHECK_EQ(stat_of("inactive_split_bytes.all.current"), 0);
  CHECK_EQ(stat_of("active.all.current"), 0);
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 0);
  CHECK_EQ(stat_of("num_device_free"), 1);
}

static char last_key[64];
static int key_count;
static void in_order(const px_memory_stat *stat, void *context) {
  CHECK(strcmp(last_key, stat->key) < 0);
  strcpy(last_key, stat->key);
  key_count++;
}

PX_TEST(statistics_have_pytorchs_keys) {
  simulate_plainly(1);
  OK(px_memory_stats(0, in_order, NULL));
  CHECK_EQ(key_count, 0);
  CHECK_EQ(px_memory_allocated(0), 0);
  OK(px_memory_empty_cache());
  OK(px_device_init());
  OK(px_memory_stats(0, in_order, NULL));
  CHECK_EQ(key_count, 9 * 3 * 4 + 2 * 4 + 7);
  int64_t value;
  FAILS(px_memory_stat_get(&value, 0, "no.such.key"), PX_KEY, "no.such.key");
  FAILS(px_memory_stat_get(&value, 7, "num_ooms"), PX_RUNTIME, "Invalid device argument 7");
}

PX_TEST(peaks_and_sums_can_be_reset) {
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 1000));
  CHECK_EQ(px_memory_allocated_peak(0), 1024);
  OK(px_memory_reset_peak(0));
  CHECK_EQ(px_memory_allocated_peak(0), 0);
  CHECK_EQ(px_memory_reserved_peak(0), 2097152);
  CHECK_EQ(stat_of("allocation.all.allocated"), 1);
  OK(px_memory_reset_accumulated(0));
  CHECK_EQ(stat_of("allocation.all.allocated"), 0);
}

PX_TEST(out_of_memory_errors_list_usage) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px_allocation *held = block_on(px_cuda(0), 1000), *block = NULL;
  FAILS(px__allocation_new(&block, 100 << 20, px_cuda(0)), PX_OUT_OF_MEMORY,
        "CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 64.00 MiB "
        "of which 62.00 MiB is free. Including non-PyTorch memory, this process has 2.00 MiB "
        "memory in use. Of the allocated memory 1024 bytes is allocated by PyTorch, and 2.00 MiB "
        "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
        "documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/"
        "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)");
  CHECK_EQ(stat_of("num_ooms"), 1);
  CHECK_EQ(stat_of("num_alloc_retries"), 1);
  px__allocation_free(held);
}

static void note_shortage(int device, size_t requested, size_t total, size_t unused,
                          void *context) {
  size_t *seen = context;
  int64_t live = px_memory_allocated(device);  // no lock is held
  seen[0]++, seen[1] = requested, seen[2] = total, seen[3] = unused, seen[4] = (size_t)live;
}
PX_TEST(observers_see_a_shortage_before_the_error) {
  size_t seen[5] = {0};
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px_allocation *held = block_on(px_cuda(0), 1000), *block = NULL;
  OK(px_memory_observe_shortage(note_shortage, seen));
  CHECK(px__allocation_new(&block, 100 << 20, px_cuda(0)) == PX_OUT_OF_MEMORY);
  CHECK(seen[0] == 1 && seen[1] == 100 << 20 && seen[2] == 64 << 20 && seen[3] == 62 << 20);
  CHECK_EQ((int64_t)seen[4], 1024);
  for (int i = 1; i < 16; i++) OK(px_memory_observe_shortage(note_shortage, seen));
  FAILS(px_memory_observe_shortage(note_shortage, seen), PX_RUNTIME, "16 observers of shortages");
  FAILS(px_memory_observe_shortage(NULL, seen), PX_TYPE, "needs a function");
  px__allocation_free(held);
}

PX_TEST(unused_segments_are_freed_before_out_of_memory) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 40 << 20));
  px__allocation_free(block_on(px_cuda(0), 60 << 20));
  CHECK_EQ(stat_of("num_ooms"), 0);
  CHECK_EQ(px_memory_reserved(0), 60 << 20);
}

static void simulate_small(const char *memory) {
  setenv("PHLOX_SIM_MEMORY", memory, 1);
  simulate_plainly(1);
}
static px_allocation *block_of(px_stream *stream, size_t bytes) {
  OK(px_stream_set_current(stream));
  return block_on(px_cuda(0), bytes);
}

PX_TEST(free_neighbours_of_several_streams_merge_before_out_of_memory) {
  simulate_small("22M");
  OK(px_memory_configure("expandable_segments:False"));
  px_stream *first = default_stream(0), *second = new_stream(0);
  px_allocation *a = block_of(first, 9 << 20), *b = block_of(second, 9 << 20);
  px_allocation *c = block_of(first, 3 << 19);
  OK(fill(a, 1, 20));
  OK(px_stream_set_current(second));
  OK(fill(b, 1, 20));
  px__allocation_free(a), px__allocation_free(b);
  px_allocation *both = block_of(first, 17 << 20);
  CHECK_EQ(px_memory_reserved(0), 20 << 20);
  px__allocation_free(both), px__allocation_free(c);
  px_release(second);
}

PX_TEST(large_pool_blocks_serve_small_requests_before_out_of_memory) {
  simulate_small("22M");
  px_allocation *blocks[] = {block_on(px_cuda(0), 9 << 20), block_on(px_cuda(0), 1 << 20),
                             block_on(px_cuda(0), 1 << 20), block_on(px_cuda(0), 512)};
  CHECK_EQ(px_memory_allocated(0), (11 << 20) + 512);
  px_allocation *large =
      block_on(px_cuda(0), 10 << 20);  // the remainder still serves large requests
  px__allocation_free(large);
  for (int i = 0; i < PX_COUNT_OF(blocks); i++) px__allocation_free(blocks[i]);
  CHECK_EQ(stat_of("num_ooms"), 0);
}

PX_TEST(segments_shrink_to_the_request_before_out_of_memory) {
  simulate_small("30M");
  px_allocation *a = block_on(px_cuda(0), 9 << 20), *b = block_on(px_cuda(0), 9 << 20);
  px_allocation *c = block_on(px_cuda(0), 5 << 20);
  CHECK_EQ(px_memory_reserved(0), 24 << 20);  // in pages: 10, 8 and 6 MiB
  px__allocation_free(a), px__allocation_free(b), px__allocation_free(c);
}

PX_TEST(free_pages_serve_a_large_request_with_expandable_segments) {
  simulate_plainly(1);
  for (int expands = 0; expands < 2; expands++) {
    OK(px_memory_configure(expands ? "expandable_segments:True" : ""));
    OK(px_memory_empty_cache());
    px_allocation *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = block_on(px_cuda(0), 30 << 20);
    for (int i = 0; i < 4; i++) px__allocation_free(blocks[i]);
    px_allocation *large = block_on(px_cuda(0), 50 << 20), *small = block_on(px_cuda(0), 512);
    CHECK_EQ(px_memory_reserved(0), (expands ? 122 : 172) << 20);
    px__allocation_free(large), px__allocation_free(small);
  }
  OK(px_memory_configure(""));
}

static px_allocation *reclaimable;
static void release_reclaimable(void) {
  px__allocation_free(reclaimable);
  reclaimable = NULL;
}

PX_TEST(reclaim_callbacks_run_before_out_of_memory) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  reclaimable = block_on(px_cuda(0), 40 << 20);
  px__reclaim_add(release_reclaimable);
  px__allocation_free(block_on(px_cuda(0), 60 << 20));
  CHECK(!reclaimable);
}

PX_TEST(pending_frees_are_waited_for_before_a_second_search) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px_stream *side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 60 << 20);
  OK(px_stream_set_current(side));
  OK(start("hold", fill_kernel, block, true, 1, 50));
  OK(px_stream_set_current(default_stream(0)));
  px__allocation_free(block);
  CHECK_EQ(stat_of("active.all.current"), 1);
  px__allocation_free(block_on(px_cuda(0), 60 << 20));
  CHECK_EQ(stat_of("num_device_alloc"), 1);
  px_release(side);
}

PX_TEST(a_fraction_limits_allocated_memory) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px_allocation *block;
  FAILS(px_memory_set_fraction(1.5, 0), PX_VALUE,
        "Invalid fraction value: 1.5. Allowed range: 0~1");
  OK(px_memory_set_fraction(0.5, 0));
  FAILS(px__allocation_new(&block, 40 << 20, px_cuda(0)), PX_OUT_OF_MEMORY,
        "32.00 MiB allowed; Of");
  OK(px_memory_set_fraction(1, 0));
  px__allocation_free(block_on(px_cuda(0), 40 << 20));
}

PX_TEST(a_failed_device_allocation_is_retried) {
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 512));
  OK(px_fault_arm("device.alloc", 1, false));
  px__allocation_free(block_on(px_cuda(0), 30 << 20));
  CHECK_EQ(stat_of("num_alloc_retries"), 1);
  OK(px_memory_empty_cache());
  OK(px_fault_arm("device.alloc", 1, true));
  px_allocation *block;
  FAILS(px__allocation_new(&block, 512, px_cuda(0)), PX_OUT_OF_MEMORY, "CUDA out of memory");
}

PX_TEST(a_retried_device_allocation_leaves_no_error) {
  simulate_plainly(1);
  OK(px_fault_arm("device.alloc", 1, false));
  px__allocation_free(block_on(px_cuda(0), 30 << 20));
  CHECK_EQ(px_error_last()->code, PX_OK);
}

PX_TEST(without_the_cache_the_counters_stay_at_zero) {
  setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1);
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 4096);
  OK(fill(block, 9, 10));
  CHECK_EQ(first_of(block), 9);
  CHECK_EQ(px_memory_allocated(0), 0);
  px__allocation_free(block);
}

// ---- pending uses
// Frees an allocation in use by a side stream. Returns the address of the next one.
static void *next_after_busy_free(px_stream *side, px_allocation *block) {
  OK(px_stream_set_current(side));
  OK(fill(block, 1, 80));
  OK(px_stream_set_current(default_stream(0)));
  px__allocation_free(block);
  block = block_on(px_cuda(0), 30 << 20);
  void *at = block->data;
  px__allocation_free(block);
  return at;
}

PX_TEST(memory_in_use_by_another_stream_is_not_reused) {
  simulate_plainly(1);
  px_stream *side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 30 << 20);
  void *at = block->data;
  CHECK(next_after_busy_free(side, block) != at);
  OK(px_device_synchronize(0));
  px_allocation *a = block_on(px_cuda(0), 30 << 20), *b = block_on(px_cuda(0), 30 << 20);
  CHECK(a->data == at || b->data == at);
  px__allocation_free(a), px__allocation_free(b);
  px_release(side);
}

PX_TEST(memory_is_reused_once_the_use_is_ordered) {
  simulate_plainly(1);
  px_stream *side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 30 << 20);
  void *at = block->data;
  OK(px_stream_set_current(side));
  OK(fill(block, 1, 80));
  OK(px_stream_set_current(default_stream(0)));
  OK(px_stream_wait_stream(default_stream(0), side));
  px__allocation_free(block);
  block = block_on(px_cuda(0), 30 << 20);
  CHECK(block->data == at);
  px__allocation_free(block);
  px_release(side);
}

// A freed block is put aside. Meanwhile its stream waits for another stream, which frees the block
// next to it. The merged block is ordered by that wait, not by the earlier state.
PX_TEST(a_merged_block_waits_for_all_its_parts) {
  simulate_plainly(1);
  px_stream *side = new_stream(0), *third = new_stream(0);
  px_allocation *x = block_on(px_cuda(0), 512), *y = block_on(px_cuda(0), 512);
  char *at = x->data;
  CHECK((char *)y->data == at + 512);
  OK(px_stream_set_current(side));
  OK(fill(y, 1, 80));
  OK(px_stream_set_current(default_stream(0)));
  px__allocation_free(y);
  px__allocation_free(x);
  OK(px_stream_wait_stream(default_stream(0), side));
  OK(px_stream_set_current(third));
  px_allocation *other = block_on(px_cuda(0), 1024);
  CHECK((char *)other->data < at || (char *)other->data >= at + 1024);
  px__allocation_free(other);
  px_release(side), px_release(third);
}

PX_TEST(record_stream_adds_a_use) {
  simulate_plainly(1);
  px_stream *side = new_stream(0);
  px_allocation *busy = block_on(px_cuda(0), 512), *block = block_on(px_cuda(0), 30 << 20);
  void *at = block->data;
  OK(px_stream_set_current(side));
  OK(fill(busy, 1, 80));
  OK(px_stream_set_current(default_stream(0)));
  OK(px__allocation_record_stream(block, side));
  px__allocation_free(block);
  block = block_on(px_cuda(0), 30 << 20);
  CHECK(block->data != at);
  px__allocation_free(block), px__allocation_free(busy);
  px_release(side);
}

PX_TEST(exported_memory_waits_for_every_stream) {
  simulate_plainly(1);
  px_stream *side = new_stream(0);
  px_allocation *busy = block_on(px_cuda(0), 512), *block = block_on(px_cuda(0), 30 << 20);
  void *at = block->data;
  OK(px_stream_set_current(side));
  OK(fill(busy, 1, 80));
  OK(px_stream_set_current(default_stream(0)));
  px__allocation_expose(block);
  px__allocation_free(block);
  block = block_on(px_cuda(0), 30 << 20);
  CHECK(block->data != at);
  px__allocation_free(block), px__allocation_free(busy);
  px_release(side);
}

PX_TEST(idle_memory_moves_to_another_stream_if_ordered) {
  simulate_plainly(1);
  px_stream *side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 30 << 20);
  void *at = block->data;
  OK(fill(block, 1, 80));
  px__allocation_free(block);
  OK(px_stream_set_current(side));
  block = block_on(px_cuda(0), 30 << 20);
  CHECK(block->data != at);  // the default stream still uses it
  OK(px_stream_wait_stream(side, default_stream(0)));
  px_allocation *other = block_on(px_cuda(0), 30 << 20);
  CHECK(other->data == at);
  px__allocation_free(block), px__allocation_free(other);
  px_release(side);
}

// Random requests on three streams. The contents of live allocations must stay intact.
PX_TEST(live_blocks_are_disjoint) {
  setenv("PHLOX_SIM_DELAY", "200", 1);
  simulate_plainly(1);
  px_stream *streams[3] = {default_stream(0), new_stream(0), new_stream(0)};
  px_allocation *live[24] = {0};
  unsigned seed = 1;
  for (int step = 0; step < 1500; step++) {
    int i = rand_r(&seed) % 24, s = rand_r(&seed) % 3;
    if (live[i]) {
      OK(px_stream_set_current(streams[live[i]->bytes / 8 % 3]));
      CHECK_EQ(first_of(live[i]), i);
      px__allocation_free(live[i]);
      live[i] = NULL;
      continue;
    }
    OK(px_stream_set_current(streams[s]));
    live[i] = block_on(px_cuda(0), (size_t)(3 * (1 + rand_r(&seed) % 200) + s) * 8);
    OK(fill(live[i], i, 0));
    if (step % 3 == 0) {  // a reader on another stream, ordered by a wait
      px_stream *reader = streams[(s + 1) % 3];
      OK(px_stream_wait_stream(reader, streams[s]));
      OK(px_stream_set_current(reader));
      OK(look(live[i]));
    }
  }
  for (int i = 0; i < 24; i++) px__allocation_free(live[i]);
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 0);
}

PX_TEST(a_grown_segment_may_use_a_recycled_record) {
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 512));  // the record of the put-aside block is now spare
  px_allocation *a = block_on(px_cuda(0), 3 << 20), *b = block_on(px_cuda(0), 3 << 20);
  px__allocation_free(b);
  CHECK_EQ(stat_of("active.all.current"), 1);
  px__allocation_free(a);
  CHECK_EQ(stat_of("inactive_split.all.current"), 0);
}

static int64_t segment_bytes, block_count;
static void add_block(const px_memory_block *block, void *context) {
  segment_bytes += block->size;
  block_count++;
  CHECK(block->address >= block->segment_address);
}

PX_TEST(the_snapshot_lists_every_block) {
  simulate_plainly(1);
  px_allocation *a = block_on(px_cuda(0), 512), *b = block_on(px_cuda(0), 3 << 20);
  OK(px_memory_snapshot(0, add_block, NULL));
  CHECK_EQ(block_count, 4);
  CHECK_EQ(segment_bytes, px_memory_reserved(0));
  px__allocation_free(a), px__allocation_free(b);
}

// ---- the history
static px_memory_event seen[64];
static int seen_count;
static void see(const px_memory_event *event, void *context) {
  if (seen_count < PX_COUNT_OF(seen)) seen[seen_count++] = *event;
}
static void record(int64_t max_entries, px_history_stacks stacks) {
  px_memory_history history = {.max_entries = max_entries, .stacks = stacks, .clear = true};
  OK(px_memory_record(&history));
}
static int events_now(void) {
  seen_count = 0;
  OK(px_memory_events(0, see, NULL));
  return seen_count;
}
static void check_actions(const char *wanted) {
  char text[512] = "";
  for (int i = 0, count = events_now(); i < count; i++)
    strcat(strcat(text, i ? " " : ""), px_memory_action_name(seen[i].action));
  CHECK_TEXT(text, wanted);
}

PX_TEST(the_history_records_events) {
  simulate_plainly(1);
  px_allocation *before = block_on(px_cuda(0), 4096);
  CHECK(!px_memory_recording());
  record(100, PX_HISTORY_ALL);
  CHECK(px_memory_recording());
  px_site_set("history.c", 7);
  px_allocation *block = block_on(px_cuda(0), 3 << 20);
  px__allocation_free(block), px__allocation_free(before);
  OK(px_memory_empty_cache());
  check_actions(
      "segment_map alloc free_requested free_completed free_requested free_completed "
      "segment_unmap segment_unmap");
  CHECK_EQ(seen[1].size, 3 << 20);
  CHECK_EQ(seen[1].address, seen[2].address);
  CHECK_TEXT(seen[1].stack->frames[0].file, "history.c");
  CHECK_EQ(seen[1].stack->frames[0].line, 7);
  CHECK(seen[0].stack == seen[1].stack && seen[1].time > 0);
  OK(px_memory_record(NULL));
  CHECK_EQ(events_now(), 0);
}

PX_TEST(the_history_keeps_the_latest_events) {
  simulate_plainly(1);
  record(4, PX_HISTORY_NO_STACKS);
  for (size_t i = 1; i <= 3; i++) px__allocation_free(block_on(px_cuda(0), i * 100));
  check_actions("free_completed alloc free_requested free_completed");
  CHECK(seen[0].size == 200 && seen[3].size == 300 && !seen[3].stack);
  record(0, PX_HISTORY_LIVE);
  px__allocation_free(block_on(px_cuda(0), 100));
  CHECK_EQ(events_now(), 0);
  FAILS(px_memory_record(&(px_memory_history){.max_entries = -1}), PX_VALUE,
        "max_entries must not be negative, but it is -1");
}

PX_TEST(a_free_in_use_is_requested_before_it_is_completed) {
  simulate_plainly(1);
  px_stream *side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), 3 << 20);
  px_memory_history history = {.max_entries = 9, .skipped = 1u << PX_MEMORY_ALLOC};
  OK(px_memory_record(&history));
  OK(px_stream_set_current(side));
  OK(fill(block, 1, 50));
  px__allocation_free(block);
  check_actions("free_requested");
  OK(px_stream_synchronize(side));
  px_allocation *other = block_on(px_cuda(0), 512);
  check_actions("free_requested free_completed segment_map");
  px__allocation_free(other);
  px_release(side);
}

PX_TEST(a_failed_request_is_recorded) {
  simulate_plainly(1);
  record(9, PX_HISTORY_ALLOCATIONS);
  px_allocation *block;
  CHECK(px__allocation_new(&block, (size_t)1 << 50, px_cuda(0)) == PX_OUT_OF_MEMORY);
  check_actions("oom");
  CHECK(seen[0].size == (int64_t)1 << 50 && seen[0].free_bytes > 0 && seen[0].stack);
}

static void keep_stack(const px_memory_block *block, void *context) {
  if (block->requested == 4096) *(const px_traceback **)context = block->stack;
}

PX_TEST(out_of_memory_errors_name_the_request_and_the_owners) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px_allocation *blocks[6], *block;
  px__allocation_free(block_on(px_cuda(0), 512));
  px_allocation *before = block_on(px_cuda(0), 512);
  record(0, PX_HISTORY_LIVE);
  px__caller_here = "linear";
  for (int i = 0; i < 6; i++) {
    px_site_set("net.c", i < 4 ? 7 : 8);
    blocks[i] = block_on(px_cuda(0), 9 << 20);
  }
  FAILS(px__allocation_new(&block, 12 << 20, px_cuda(0)), PX_OUT_OF_MEMORY,
        "conf)\n"
        "Requested by linear at net.c:8.\n"
        "Free in blocks: 2.00 MiB, the largest has 2.00 MiB.\n"
        "Live memory by op and line:\n"
        "  36.00 MiB in 4 blocks: linear at net.c:7\n"
        "  18.00 MiB in 2 blocks: linear at net.c:8\n"
        "  512 bytes from before the history\n"
        "Possible remedy: ");
  px__caller_here = NULL;
  px_site_set(NULL, 0);
  for (int i = 0; i < 6; i++) px__allocation_free(blocks[i]);
  px__allocation_free(before);
}

PX_TEST(out_of_memory_errors_suggest_remedies) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px_allocation *held = block_on(px_cuda(0), 40 << 20), *block;
  FAILS(px__allocation_new(&block, 30 << 20, px_cuda(0)), PX_OUT_OF_MEMORY,
        "Possible remedy: 6.00 MiB less in use at this time");
  OK(px_memory_set_fraction(0.75, 0));
  FAILS(px__allocation_new(&block, 20 << 20, px_cuda(0)), PX_OUT_OF_MEMORY,
        "Possible remedy: a higher limit (set_per_process_memory_fraction), since the "
        "device has 24.00 MiB unused.");
  px__allocation_free(held);
}

PX_TEST(a_live_block_keeps_its_allocation_stack) {
  simulate_plainly(1);
  record(0, PX_HISTORY_LIVE);
  px__caller_here = "convolve";
  px_allocation *block = block_on(px_cuda(0), 4096);
  px__caller_here = NULL;
  OK(px_memory_record(NULL));
  const px_traceback *stack = NULL;
  OK(px_memory_snapshot(0, keep_stack, &stack));
  CHECK_TEXT(stack->op, "convolve");
  px__allocation_free(block);
  block = block_on(px_cuda(0), 4096);  // the same memory without a recorded history
  OK(px_memory_snapshot(0, keep_stack, &stack));
  CHECK(!stack);
  px__allocation_free(block);
}

PX_TEST(without_memory_the_history_drops_events) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 512);
  for (int n = 1; n < 6; n++) {
    record(1000, PX_HISTORY_ALL);
    px_site_set("fault.c", n);
    px_allocation *more = block_on(px_cuda(0), 3 << 20);
    OK(px_fault_arm("alloc", n, false));
    px__allocation_free(more);
    px_fault_disarm_all();
  }
  px__allocation_free(block);
  CHECK_EQ(stat_of("allocated_bytes.all.current"), 0);
}

// ---- page-locked memory
PX_TEST(pinned_memory_is_not_rounded_and_is_reused) {
  simulate_plainly(1);
  px_allocation *block = pinned_block(5 << 20);
  void *at = block->data;
  CHECK(block->pinned && block->device.type == PX_CPU);
  px__allocation_free(block);
  block = pinned_block(5 << 20);
  CHECK(block->data == at);
  px__allocation_free(block);
  block = pinned_block(0);
  CHECK(!block->pinned && !block->data);
  px__allocation_free(block);
}

PX_TEST(pinned_memory_is_reused_only_after_its_copies) {
  simulate_plainly(1);
  px_allocation *device = block_on(px_cuda(0), 1 << 20), *block = pinned_block(1 << 20);
  void *at = block->data;
  OK(fill(device, 4, 80));
  OK(px__copy_bytes(block, 0, device, 0, 1 << 20, true));
  px__allocation_free(block);
  px_allocation *other = pinned_block(1 << 20);
  CHECK(other->data != at);
  OK(px_device_synchronize(0));
  block = pinned_block(1 << 20);
  CHECK(block->data == at);
  px__allocation_free(block), px__allocation_free(other), px__allocation_free(device);
}

static int64_t host_allocs, host_allocated;  // from the latest statistics
static void find_host(const px_memory_stat *stat, void *context) {
  if (!strcmp(stat->key, "allocated_bytes.current")) host_allocated = stat->value;
  if (!strcmp(stat->key, "num_host_alloc")) host_allocs = stat->value;
}
static int64_t host_bytes(void) {
  OK(px_memory_host_stats(find_host, NULL));
  return host_allocated;
}
static void host_cache_is_emptied(void) {
  OK(px_memory_empty_host_cache());
  CHECK_EQ(host_bytes(), 0);
}

// Simulated devices with a backend that has no pages: page-locked memory comes in arenas.
static size_t no_page(int device) { return 0; }
static void simulate_without_pages(void) {
  static px_backend plain;
  simulate_plainly(1);
  OK(px_device_init());
  plain = *px__rt.backend;
  plain.page_size = no_page;
  px__rt.backend = &plain;
}

PX_TEST(pinned_memory_survives_a_failed_allocation) {
  simulate_plainly(1);
  px__allocation_free(pinned_block(4096));
  OK(px_fault_arm("host.alloc", 1, false));
  px__allocation_free(pinned_block(4 << 20));
  OK(px_fault_arm("host.alloc", 1, true));
  px_allocation *block;
  CHECK(px__allocation_new_pinned(&block, 8 << 20) != PX_OK);
  px_fault_disarm_all();
  px__allocation_free(pinned_block(8 << 20));
  host_cache_is_emptied();
}

PX_TEST(pinned_arenas_survive_a_failed_allocation) {
  simulate_without_pages();
  px__allocation_free(pinned_block(4096));
  OK(px_fault_arm("host.alloc", 1, false));
  px__allocation_free(
      pinned_block(4 << 20));  // the first arena is freed before this one is allocated
  CHECK_EQ(host_bytes(), 4 << 20);
  OK(px_fault_arm("host.alloc", 1, true));
  px_allocation *block;
  CHECK(px__allocation_new_pinned(&block, 8 << 20) != PX_OK);
  px_fault_disarm_all();
  CHECK_EQ(host_bytes(), 0);
}

static void check_merging(void) {
  px_allocation *whole = pinned_block(8 << 20);
  void *at = whole->data;
  px__allocation_free(whole);
  px_allocation *a = pinned_block(3 << 20), *b = pinned_block(5 << 20);
  CHECK(a->data == at && (char *)b->data == (char *)at + (3 << 20));
  px__allocation_free(a), px__allocation_free(b);
  whole = pinned_block(8 << 20);
  CHECK(whole->data == at);
  px__allocation_free(whole);
  CHECK_EQ(host_bytes(), 8 << 20);
  CHECK_EQ(host_allocs, 1);
  host_cache_is_emptied();
}
PX_TEST(idle_pinned_blocks_merge) {
  simulate_plainly(1);
  check_merging();
}
PX_TEST(idle_arena_blocks_merge) {
  simulate_without_pages();
  check_merging();
}

PX_TEST(small_pinned_blocks_share_an_arena) {
  simulate_without_pages();
  px_allocation *a = pinned_block(300), *b = pinned_block(1 << 20), *c = pinned_block(700 << 10);
  CHECK_EQ(host_bytes(), 2 << 20);
  CHECK((char *)b->data == (char *)a->data + 512 && (char *)c->data == (char *)b->data + (1 << 20));
  px__allocation_free(b);
  OK(px_memory_empty_host_cache());  // an arena is not freed while a part of it is in use
  CHECK_EQ(host_bytes(), 2 << 20);
  px__allocation_free(a), px__allocation_free(c);
  host_cache_is_emptied();
}

PX_TEST(pinned_memory_maps_only_the_pages_of_its_blocks) {
  simulate_plainly(1);
  px_allocation *a = pinned_block(300), *b = pinned_block(5 << 20), *c = pinned_block(300);
  memset(b->data, 1, b->bytes);
  CHECK_EQ(host_bytes(), 6 << 20);
  px__allocation_free(b);
  OK(px_memory_empty_host_cache());  // the pages of a and c stay
  CHECK_EQ(host_bytes(), 4 << 20);
  b = pinned_block(5 << 20);
  memset(b->data, 1, b->bytes);
  CHECK_EQ(host_bytes(), 6 << 20);
  px__allocation_free(a), px__allocation_free(b), px__allocation_free(c);
  host_cache_is_emptied();
}

PX_TEST(without_memory_for_a_record_pinned_memory_is_unchanged) {
  simulate_plainly(1);
  px_allocation *all = pinned_block(8 << 20), *part;
  void *at = all->data;
  px__allocation_free(all);
  OK(px_fault_arm("alloc", 1, false));
  FAILS(px__allocation_new_pinned(&part, 3 << 20), PX_NOMEM, "");
  px_fault_disarm_all();
  part = pinned_block(3 << 20);
  CHECK(part->data == at);
  px__allocation_free(part);
  host_cache_is_emptied();
}

PX_TEST(without_memory_for_a_record_an_arena_block_is_not_split) {
  simulate_without_pages();
  px_allocation *all = pinned_block(8 << 20);
  void *at = all->data;
  px__allocation_free(all);
  OK(px_fault_arm("alloc", 1, false));
  px_allocation *part = pinned_block(3 << 20);
  px_fault_disarm_all();
  CHECK(part->data == at);
  px__allocation_free(part);
  host_cache_is_emptied();
}

PX_TEST(pinned_memory_above_the_slack_limit_is_freed_for_larger_requests) {
  simulate_plainly(1);
  px_allocation *held = NULL;
  for (size_t mib = 40; mib < 400; mib += 40) {
    px_allocation *block = pinned_block(mib << 20);
    px__allocation_free(held), held = block;
    size_t bound = (2 * mib - 40) << 20;  // of this one and the previous one
    CHECK(host_bytes() <= (int64_t)(bound + bound / 32 + (4 << 20)));
  }
  px__allocation_free(held);
  host_cache_is_emptied();
}

PX_TEST(arenas_above_the_slack_limit_are_freed_for_larger_requests) {
  simulate_without_pages();
  for (size_t mib = 40; mib < 400; mib += 40) px__allocation_free(pinned_block(mib << 20));
  CHECK_EQ(host_bytes(), 360 << 20);  // each arena was freed for the next
  host_cache_is_emptied();
}

static void count_and_allocate(const px_memory_block *row, void *rows) {
  ++*(int64_t *)rows;
  px__allocation_free(block_on(px_cuda(0), 3 << 20));
}

PX_TEST(snapshot_callbacks_may_allocate_and_free) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 4096);
  int64_t rows = 0;
  OK(px_memory_snapshot(0, count_and_allocate, &rows));
  CHECK_EQ(rows, 2);  // the allocation, and the rest of its segment
  px__allocation_free(block);
}

// ---- scratch memory
PX_TEST(scratch_memory_is_available_only_during_a_launch) {
  simulate_plainly(1);
  px__device *d;
  OK(px__device_get(&d, 0));
  px_launch launch = {.op = "convolve"};
  CHECK(!px__scratch_take(&launch, 1000));
  px__device_lock(d);
  px__scratch_here.device = d;
  char *first = px__scratch_take(&launch, 1000), *second = px__scratch_take(&launch, 5 << 20);
  CHECK(first && second && first != second);
  CHECK(!px__scratch_take(&launch, 0));
  CHECK(!px__scratch_take(&launch, SIZE_MAX));
  px__scratch_here.device = NULL;
  px__device_unlock(d);
  CHECK_EQ(stat_of("allocated_bytes.all.current"), 1024 + (5 << 20));
  px__scratch_drop();
  CHECK_EQ(stat_of("allocated_bytes.all.current"), 0);
}

PX_TEST(scratch_memory_reclaims_idle_segments) {
  setenv("PHLOX_SIM_MEMORY", "64M", 1);
  simulate_plainly(1);
  px__device *d;
  OK(px__device_get(&d, 0));
  px__allocation_free(block_on(px_cuda(0), 40 << 20));
  px_allocation *held = block_on(px_cuda(0), 1000);
  px_launch launch = {.op = "convolve"};
  px__device_lock(d);
  px__scratch_here.device = d;
  CHECK(px__scratch_take(&launch, 60 << 20));
  CHECK(!px__scratch_take(&launch, 60 << 20));
  px__scratch_here.device = NULL;
  px__device_unlock(d);
  px__scratch_drop();
  px__allocation_free(held);
}

// ---- user-defined pools
static bool is_of(px_memory_pool *pool, const void *data) {
  px__device *d;
  OK(px__device_get(&d, 0));
  px__allocation *block = px__pool_allocation_at(d, data);
  px_graph_pool name = px_memory_pool_name(pool);
  px__private_pool *own = ((px__block *)block)->segment->private_pool;
  return own && own->name.own == name.own && own->name.shared == name.shared;
}

PX_TEST(a_pool_serves_the_thread_that_began_it) {
  simulate_plainly(1);
  PX_SCOPED(px_memory_pool) pool = NULL;
  OK(px_memory_pool_new(&pool, -1));
  px_allocation *before = block_on(px_cuda(0), 1 << 20);
  OK(px_memory_pool_begin(pool, -1));
  px_allocation *inside = block_on(px_cuda(0), 1 << 20);
  CHECK(is_of(pool, inside->data));
  void *at = inside->data;
  px__allocation_free(inside);
  inside = block_on(px_cuda(0), 1 << 20);
  CHECK(inside->data == at);
  OK(px_memory_pool_end(pool, -1));
  px__allocation_free(before);
  px_allocation *after = block_on(px_cuda(0), 1 << 20);
  CHECK(after->data != at);
  px__allocation_free(after);
  px__allocation_free(inside);
}

static void *allocate_in_thread(void *unused) {
  px_allocation *block = block_on(px_cuda(0), 4096);
  void *at = block->data;
  px__allocation_free(block);
  return at;
}

PX_TEST(reserved_memory_is_counted_per_pool) {
  simulate_plainly(1);
  PX_SCOPED(px_memory_pool) pool = NULL;
  char key[64];
  int64_t value;
  OK(px_memory_pool_new(&pool, 0));
  OK(px_memory_pool_begin(pool, 0));
  px_allocation *small = block_on(px_cuda(0), 4096), *large = block_on(px_cuda(0), 12 << 20);
  OK(px_memory_pool_end(pool, 0));
  px_graph_pool name = px_memory_pool_name(pool);
  snprintf(key, sizeof key, "reserved_bytes_by_private_pools.%d_%d.all.current", (int)name.own,
           (int)name.shared);
  CHECK_EQ(stat_of(key), 14 << 20);
  px__allocation_free(block_on(px_cuda(0), 12 << 20));  // not in the pool
  CHECK_EQ(stat_of(key), 14 << 20);
  px__allocation_free(small), px__allocation_free(large);
  OK(px_memory_empty_cache());
  CHECK_EQ(stat_of(key), 14 << 20);  // the pool keeps it
  px_release(PX_MOVE(pool));
  FAILS(px_memory_stat_get(&value, 0, key), PX_KEY, key);
  CHECK_EQ(stat_of("num_oom_rejections"), 0);
}

PX_TEST(a_pool_does_not_serve_other_threads) {
  simulate_plainly(1);
  PX_SCOPED(px_memory_pool) pool = NULL;
  OK(px_memory_pool_new(&pool, 0));
  OK(px_memory_pool_begin(pool, 0));
  px_allocation *inside = block_on(px_cuda(0), 4096);
  void *at = inside->data, *other;
  px__allocation_free(inside);
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, NULL, allocate_in_thread, NULL), 0);
  pthread_join(thread, &other);
  CHECK(other != at);
  OK(px_memory_pool_end(pool, 0));
}

PX_TEST(pools_nest_and_end_in_order) {
  simulate_plainly(1);
  PX_SCOPED(px_memory_pool) outer = NULL;
  PX_SCOPED(px_memory_pool) inner = NULL;
  int uses;
  OK(px_memory_pool_new(&outer, 0));
  OK(px_memory_pool_new(&inner, 0));
  FAILS(px_memory_pool_end(outer, 0), PX_RUNTIME, "did not begin this pool of memory last");
  OK(px_memory_pool_begin(outer, 0));
  OK(px_memory_pool_begin(inner, 0));
  px_allocation *block = block_on(px_cuda(0), 100);
  CHECK(is_of(inner, block->data));
  px__allocation_free(block);
  FAILS(px_memory_pool_end(outer, 0), PX_RUNTIME, "did not begin this pool of memory last");
  OK(px_memory_pool_uses(&uses, inner));
  CHECK_EQ(uses, 2);
  OK(px_memory_pool_end(inner, 0));
  block = block_on(px_cuda(0), 100);
  CHECK(is_of(outer, block->data));
  px__allocation_free(block);
  OK(px_memory_pool_end(outer, 0));
}

PX_TEST(a_released_pool_frees_its_free_memory) {
  simulate_plainly(1);
  px_memory_pool *pool;
  OK(px_memory_pool_new(&pool, 0));
  OK(px_memory_pool_begin(pool, 0));
  px_allocation *held = block_on(px_cuda(0), 30 << 20);
  px__allocation_free(block_on(px_cuda(0), 40 << 20));
  OK(px_memory_pool_end(pool, 0));
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 70 << 20);
  px_release(pool);
  CHECK_EQ(px_memory_reserved(0), 30 << 20);
  px__allocation_free(held);
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 0);
}

PX_TEST(the_configured_fraction_is_returned) {
  simulate_plainly(1);
  double fraction;
  OK(px_memory_fraction(&fraction, -1));
  CHECK(fraction == 1);
  OK(px_memory_set_fraction(0.25, 0));
  OK(px_memory_fraction(&fraction, 0));
  CHECK(fraction == 0.25);
}
