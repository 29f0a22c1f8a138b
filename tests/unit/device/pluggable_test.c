// SPDX-License-Identifier: Apache-2.0
// User-defined allocators in place of the cache and below pools. The allocator of the test takes
// device memory, counts, and can be told to fail.
#include "device_test.h"

#define MIB ((size_t)1 << 20)
static int alloc_count, free_count, refused_count;  // atomic
static int64_t held_bytes;                          // atomic: bytes
static bool refuses;

static void *test_alloc(int64_t size, int device, void *stream) {
  void *at;
  if (refuses) return __atomic_add_fetch(&refused_count, 1, __ATOMIC_RELAXED), NULL;
  if (px_memory_device_alloc(&at, (size_t)size, device) != PX_OK) return px_error_clear(), NULL;
  __atomic_add_fetch(&alloc_count, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&held_bytes, size, __ATOMIC_RELAXED);
  return at;
}
static void test_free(void *at, int64_t size, int device, void *stream) {
  OK(px_memory_device_free(at, device));
  __atomic_add_fetch(&free_count, 1, __ATOMIC_RELAXED);
  __atomic_sub_fetch(&held_bytes, size, __ATOMIC_RELAXED);
}
static const px_memory_allocator test_allocator = {test_alloc, test_free};

// ---- in place of the cache
PX_TEST(each_block_comes_from_the_allocator) {
  CHECK(!px_memory_is_plugged());
  OK(px_memory_set_allocator(&test_allocator));
  CHECK(px_memory_is_plugged());
  simulate_plainly(2);
  px_allocation *a = block_on(px_cuda(0), 1000), *b = block_on(px_cuda(1), 3 * MIB);
  CHECK(alloc_count == 2 && held_bytes == 1000 + 3 * (int64_t)MIB);
  CHECK_EQ(px_memory_allocated(0), 0);
  OK(fill(a, 7, 0));
  OK(px__copy_bytes(b, 0, a, 0, 1000, false));
  CHECK_EQ(first_of(b), 7);
  px__allocation_free(a), px__allocation_free(b);
  CHECK(free_count == 2 && held_bytes == 0);
}

PX_TEST(an_allocator_must_be_set_before_the_first_use) {
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 512));
  FAILS(px_memory_set_allocator(&test_allocator), PX_RUNTIME,
        "Can't swap an already initialized allocator");
  CHECK(!px_memory_is_plugged());
  px__allocation_free(block_on(px_cuda(0), 512));
  CHECK_EQ(alloc_count, 0);
}

PX_TEST(the_allocator_may_change_before_the_first_use) {
  OK(px_memory_set_allocator(&test_allocator));
  OK(px_memory_set_allocator(NULL));
  FAILS(px_memory_set_allocator(&(px_memory_allocator){.alloc = test_alloc}), PX_TYPE,
        "both functions");
  simulate_plainly(1);
  px__allocation_free(block_on(px_cuda(0), 512));
  CHECK(alloc_count == 0 && stat_of("allocation.all.allocated") == 1);
}

PX_TEST(the_allocator_frees_unused_memory) {
  OK(px_memory_set_allocator(&test_allocator));
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
  CHECK(done && free_count == 1);
}

PX_TEST(without_memory_the_allocator_is_named) {
  OK(px_memory_set_allocator(&test_allocator));
  simulate_plainly(1);
  px_allocation *block = NULL;
  refuses = true;
  FAILS(px__allocation_new(&block, 4096, px_cuda(0)), PX_OUT_OF_MEMORY, "CUDA out of memory");
  refuses = false;
  px__allocation_free(block_on(px_cuda(0), 4096));
  CHECK(refused_count == 1 && alloc_count == 1 && free_count == 1);
}

PX_TEST(captures_do_not_allocate_over_it) {
  OK(px_memory_set_allocator(&test_allocator));
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
  CHECK_EQ(alloc_count, 0);
}

PX_TEST(faults_of_the_allocator_are_survived) {
  OK(px_memory_set_allocator(&test_allocator));
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
      CHECK(alloc_count == free_count && held_bytes == 0);
    }
}

// ---- below a pool
PX_TEST(segments_of_a_pool_come_from_its_allocator) {
  simulate_plainly(1);
  px_memory_pool *pool;
  OK(px_memory_pool_new_over(&pool, 0, &test_allocator));
  px_allocation *outside = block_on(px_cuda(0), 4096);
  CHECK_EQ(alloc_count, 0);
  OK(px_memory_pool_begin(pool, 0));
  px_allocation *a = block_on(px_cuda(0), 4096), *b = block_on(px_cuda(0), 4096);
  OK(px_memory_pool_end(pool, 0));
  CHECK(alloc_count == 1 && held_bytes == 2 * (int64_t)MIB);
  CHECK_EQ(px_memory_reserved(0), 4 * MIB);
  OK(fill(a, 3, 20));
  px__allocation_free(a), px__allocation_free(b);
  CHECK_EQ(free_count, 0);
  px_release(pool);  // waits for the work
  CHECK(free_count == 1 && held_bytes == 0);
  CHECK_EQ(px_memory_reserved(0), 2 * MIB);
  px__allocation_free(outside);
}

PX_TEST(memory_of_a_released_pool_is_freed_by_empty_cache) {
  simulate_plainly(1);
  px_memory_pool *pool;
  OK(px_memory_pool_new_over(&pool, 0, &test_allocator));
  OK(px_memory_pool_begin(pool, 0));
  px_allocation *block = block_on(px_cuda(0), 30 * MIB);
  OK(px_memory_pool_end(pool, 0));
  px_release(pool);
  CHECK(free_count == 0 && held_bytes == 30 * (int64_t)MIB);
  OK(fill(block, 3, 20));
  px__allocation_free(block);
  OK(px_memory_empty_cache());
  CHECK(free_count == 1 && held_bytes == 0);
}

PX_TEST(a_pool_whose_allocator_has_no_memory_is_out_of_memory) {
  simulate_plainly(1);
  PX_SCOPED(px_memory_pool) pool = NULL;
  px_allocation *block = NULL;
  OK(px_memory_pool_new_over(&pool, 0, &test_allocator));
  OK(px_memory_pool_begin(pool, 0));
  refuses = true;
  FAILS(px__allocation_new(&block, 4096, px_cuda(0)), PX_OUT_OF_MEMORY, "CUDA out of memory");
  refuses = false;
  px__allocation_free(block_on(px_cuda(0), 4096));
  OK(px_memory_pool_end(pool, 0));
  CHECK_EQ(alloc_count, 1);
}

PX_TEST(raw_device_memory) {
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
