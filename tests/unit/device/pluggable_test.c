// SPDX-License-Identifier: Apache-2.0
// Allocators of the program's own, in place of the cache and beneath pools. This one takes memory
// of the device, counts, and can be told to have no more.
#include "device_test.h"

#define MIB ((size_t)1 << 20)
static int taken, given, refused;  // atomic
static int64_t held;               // atomic: bytes
static bool refuses;

static void *take(int64_t size, int device, void *stream) {
  void *at;
  if (refuses) return __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED), NULL;
  if (px_memory_device_alloc(&at, (size_t)size, device) != PX_OK) return px_error_clear(), NULL;
  __atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&held, size, __ATOMIC_RELAXED);
  return at;
}
static void give(void *at, int64_t size, int device, void *stream) {
  OK(px_memory_device_free(at, device));
  __atomic_add_fetch(&given, 1, __ATOMIC_RELAXED);
  __atomic_sub_fetch(&held, size, __ATOMIC_RELAXED);
}
static const px_memory_allocator ours = {take, give};

// ---- in place of the cache
PX_TEST(each_block_is_the_allocators) {
  CHECK(!px_memory_is_plugged());
  OK(px_memory_set_allocator(&ours));
  CHECK(px_memory_is_plugged());
  simulate_plainly(2);
  px_allocation *a = block_on(px_cuda(0), 1000), *b = block_on(px_cuda(1), 3 * MIB);
  CHECK(taken == 2 && held == 1000 + 3 * (int64_t)MIB);
  CHECK_EQ(px_memory_allocated(0), 0);
  OK(fill(a, 7, 0));
  OK(px__copy_bytes(b, 0, a, 0, 1000, false));
  CHECK_EQ(first_of(b), 7);
  px__allocation_free(a), px__allocation_free(b);
  CHECK(given == 2 && held == 0);
}

PX_TEST(an_allocator_is_chosen_before_the_first_use) {
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 512));
  FAILS(px_memory_set_allocator(&ours), PX_RUNTIME, "Can't swap an already initialized allocator");
  CHECK(!px_memory_is_plugged());
  px__allocation_free(block_on(px_cuda(0), 512));
  CHECK_EQ(taken, 0);
}

PX_TEST(the_choice_may_change_before_the_first_use) {
  OK(px_memory_set_allocator(&ours));
  OK(px_memory_set_allocator(NULL));
  FAILS(px_memory_set_allocator(&(px_memory_allocator){.alloc = take}), PX_TYPE, "both functions");
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 512));
  CHECK(taken == 0 && stat_of("allocation.all.allocated") == 1);
}

PX_TEST(the_allocator_gets_back_what_nothing_uses) {
  OK(px_memory_set_allocator(&ours));
  simulate_plainly(1);
  PX_SCOPED(px_stream) side = new_stream(0);
  px_allocation *block = block_on(px_cuda(0), MIB);
  OK(fill(block, 1, 30));
  OK(px_stream_wait_stream(side, default_stream(0)));
  OK(px_stream_set_current(side));
  OK(fill(block, 2, 30));
  OK(px_stream_set_current(default_stream(0)));
  px__allocation_free(block);
  bool done;
  OK(px_stream_query(&done, side));
  CHECK(done && given == 1);
}

PX_TEST(without_memory_the_allocator_is_named) {
  OK(px_memory_set_allocator(&ours));
  simulate_plainly(1);
  px_allocation *block = NULL;
  refuses = true;
  FAILS(px__allocation_new(&block, 4096, px_cuda(0)), PX_OUT_OF_MEMORY, "CUDA out of memory");
  refuses = false;
  px__allocation_free(block_on(px_cuda(0), 4096));
  CHECK(refused == 1 && taken == 1 && given == 1);
}

PX_TEST(captures_do_not_allocate_over_it) {
  OK(px_memory_set_allocator(&ours));
  simulate_plainly(1);
  PX_SCOPED(px_stream) side = new_stream(0);
  PX_SCOPED(px_graph) graph = NULL;
  px_allocation *block = NULL;
  OK(px_stream_set_current(side));
  OK(px_graph_new(&graph));
  OK(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  FAILS(px__allocation_new(&block, 512, px_cuda(0)), PX_UNIMPLEMENTED, "pluggable allocator");
  OK(px_graph_end(graph));
  OK(px_stream_set_current(default_stream(0)));
  CHECK_EQ(taken, 0);
}

PX_TEST(faults_of_the_allocator_are_survived) {
  OK(px_memory_set_allocator(&ours));
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 512));
  static const char *const points[] = {"alloc", "device.alloc"};
  for (int i = 0; i < PX_COUNT_OF(points); i++)
    for (int n = 1, met = 1; met; n++) {
      px_allocation *block = NULL;
      OK(px_fault_arm(points[i], n, false));
      px_status status = px__allocation_new(&block, 512, px_cuda(0));
      met = px_fault_seen(points[i]) >= n;
      px_fault_disarm_all();
      CHECK(met == (status != PX_OK));
      px_error_clear();
      px__allocation_free(block);
      CHECK(taken == given && held == 0);
    }
}

// ---- beneath a pool
PX_TEST(segments_of_a_pool_come_from_its_allocator) {
  simulate_plainly(1);
  px_memory_pool *pool;
  OK(px_memory_pool_new_over(&pool, 0, &ours));
  px_allocation *outside = block_on(px_cuda(0), 4096);
  CHECK_EQ(taken, 0);
  OK(px_memory_pool_begin(pool, 0));
  px_allocation *a = block_on(px_cuda(0), 4096), *b = block_on(px_cuda(0), 4096);
  OK(px_memory_pool_end(pool, 0));
  CHECK(taken == 1 && held == 2 * (int64_t)MIB);
  CHECK_EQ(px_memory_reserved(0), 4 * MIB);
  OK(fill(a, 3, 20));
  px__allocation_free(a), px__allocation_free(b);
  CHECK_EQ(given, 0);
  px_release(pool);  // waits for the work
  CHECK(given == 1 && held == 0);
  CHECK_EQ(px_memory_reserved(0), 2 * MIB);
  px__allocation_free(outside);
}

PX_TEST(what_lives_of_a_pool_goes_when_the_cache_is_emptied) {
  simulate_plainly(1);
  px_memory_pool *pool;
  OK(px_memory_pool_new_over(&pool, 0, &ours));
  OK(px_memory_pool_begin(pool, 0));
  px_allocation *block = block_on(px_cuda(0), 30 * MIB);
  OK(px_memory_pool_end(pool, 0));
  px_release(pool);
  CHECK(given == 0 && held == 30 * (int64_t)MIB);
  OK(fill(block, 3, 20));
  px__allocation_free(block);
  OK(px_memory_empty_cache());
  CHECK(given == 1 && held == 0);
}

PX_TEST(a_pool_whose_allocator_has_no_memory_is_out_of_memory) {
  simulate_plainly(1);
  PX_SCOPED(px_memory_pool) pool = NULL;
  px_allocation *block = NULL;
  OK(px_memory_pool_new_over(&pool, 0, &ours));
  OK(px_memory_pool_begin(pool, 0));
  refuses = true;
  FAILS(px__allocation_new(&block, 4096, px_cuda(0)), PX_OUT_OF_MEMORY, "CUDA out of memory");
  refuses = false;
  px__allocation_free(block_on(px_cuda(0), 4096));
  OK(px_memory_pool_end(pool, 0));
  CHECK_EQ(taken, 1);
}

PX_TEST(memory_of_a_device_itself) {
  simulate_plainly(1);
  void *at;
  FAILS(px_memory_device_alloc(&at, 0, 0), PX_VALUE, "at least 1 byte, got 0");
  FAILS(px_memory_device_alloc(&at, (size_t)1 << 50, 0), PX_OUT_OF_MEMORY, "");
  FAILS(px_memory_device_alloc(&at, 8, 9), PX_ACCELERATOR, "invalid device ordinal");
  OK(px_memory_device_alloc(&at, 4096, 0));
  CHECK(at && px_memory_reserved(0) == 0);
  OK(px_memory_device_free(at, 0));
  OK(px_memory_device_free(NULL, 0));
}
