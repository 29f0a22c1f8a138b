// SPDX-License-Identifier: Apache-2.0
// Settings of the allocator: their effects, and PyTorch's error texts for invalid ones.
#include "device_test.h"

enum { MIB = 1 << 20 };

static void refuses(const char *text, const char *why) {
  FAILS(px_memory_configure(text), PX_VALUE, why);
}

PX_TEST(invalid_settings_change_nothing) {
  simulate_plainly(1);
  OK(px_memory_configure("max_split_size_mb:64"));
  OK(px_device_init());
  px__allocation_free(block_on(px_cuda(0), 1));
  refuses("max_split_size_mb:19",
          "CachingAllocator option max_split_size_mb too small, must be >= 20");
  refuses("max_split_size_mb", "Expected ':' at index 1 in ConfigTokenizer but got ''");
  refuses("max_split_size_mb:", "Expected a number at index 2 in ConfigTokenizer but got ''");
  refuses("max_split_size_mb:x", "Expected a number at index 2 in ConfigTokenizer but got 'x'");
  refuses("max_split_size_mb:20.5", "Expected an integer at index 2");
  refuses("max_split_size_mb:-20", "Expected a number at index 2");
  refuses("max_split_size_mb:20:", "Expected ',' at index 3 in ConfigTokenizer but got ':'");
  refuses("foo:1", "Unrecognized key 'foo' in Accelerator allocator config.");
  refuses("backend:x", "Unknown allocator backend, options are native and cudaMallocAsync");
  refuses("expandable_segments:maybe",
          "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'maybe'");
  refuses("garbage_collection_threshold:1",
          "garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
  refuses("roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2");
  refuses("roundup_power2_divisions:[3:1]", "For roundups, the intervals have to be power of 2");
  refuses("roundup_power2_divisions:[256:1", "Expected ']' at index 6");
  refuses("pinned_num_register_threads:256", "less than or equal to 128");
  refuses("expandable_segments_reserve:1GB", "a size like 40G, but got '1GB'");
  refuses("expandable_segments_reserve:0", "a positive fraction like 0.5");
  refuses("expandable_segments_reserve_by_class:side", "Expected '[' at index 2");
  refuses("expandable_segments_reserve_by_class:[side:4G,:2]", "Expected ':' at index 8");
  CHECK_EQ(stat_of("max_split_size"), 64 * MIB);
  OK(px_memory_configure(""));
  CHECK_EQ(stat_of("max_split_size"), -1);
}

PX_TEST(an_invalid_environment_fails_the_first_use) {
  simulate_plainly(1);
  setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb", 1);
  CHECK_EQ(px_device_count(PX_CUDA), 1);
  FAILS(px_device_init(), PX_VALUE, "Expected ':' at index 1");
  FAILS(px_device_init(), PX_VALUE, "Expected ':' at index 1");
  setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:32", 1);  // overrides the other
  OK(px_device_init());
  px__allocation_free(block_on(px_cuda(0), 1));
  CHECK_EQ(stat_of("max_split_size"), 32 * MIB);
}

static char warned[256];
static px_status keep_warning(px_warning category, const char *text) {
  snprintf(warned, sizeof warned, "%s", text);
  return PX_OK;
}

PX_TEST(settings_without_effect_warn) {
  simulate_plainly(1);
  px_warning_set_sink(keep_warning);
  OK(px_memory_configure("expandable_segments:False,pinned_use_background_threads:False"));
  CHECK(!warned[0]);
  OK(px_memory_configure("expandable_segments:True"));
  CHECK(!warned[0]);
  OK(px_memory_configure("throw_on_cudamalloc_oom:True"));
  CHECK(strstr(warned, "throw_on_cudamalloc_oom has no effect"));
  OK(px_memory_configure("pinned_free_catch_all:True"));
  CHECK(strstr(warned, "pinned_free_catch_all has no effect"));
  OK(px_memory_configure("release_lock_on_hipmalloc:True"));
  CHECK(strstr(warned, "release_lock_on_cudamalloc has no effect"));
  OK(px_memory_configure("pinned_use_hip_host_register:True"));
  CHECK(strstr(warned, "pinned_use_cuda_host_register has no effect"));
  OK(px_memory_configure("expandable_segments_reserve:40G"));
  CHECK(strstr(warned, "expandable_segments_reserve has no effect: a device has one range"));
  warned[0] = 0;
  OK(px_memory_configure("expandable_segments_reserve_by_class:[default:0.5,side:40G]"));
  CHECK(strstr(warned, "expandable_segments_reserve has no effect"));
  OK(px_memory_configure("backend:native , pinned_reserve_segment_size_mb : 8"));
  CHECK(strstr(warned, "pinned_reserve_segment_size_mb has no effect: memory is taken as "));
}

static int64_t freed;
static void find_frees(const px_memory_stat *stat, void *context) {
  if (!strcmp(stat->key, "num_host_free")) freed = stat->value;
}
static int64_t frees_now(void) {
  OK(px_memory_host_stats(find_frees, NULL));
  return freed;
}

PX_TEST(large_pinned_blocks_are_not_cached_beyond_the_limit) {
  simulate_plainly(1);
  int64_t before = frees_now();
  px__allocation_free(pinned_block(9 << 20));
  CHECK_EQ(frees_now(), before);
  OK(px_memory_configure("pinned_max_cached_size_mb:8"));
  px__allocation_free(pinned_block(9 << 20));
  CHECK_EQ(frees_now(), before + 1);
  px__allocation_free(pinned_block(8 << 20));
  CHECK_EQ(frees_now(), before + 1);
  OK(px_memory_configure(""));
}

static int64_t rounded(size_t bytes) {
  px_allocation *block = block_on(px_cuda(0), bytes);
  int64_t size = stat_of("active_bytes.all.current");
  px__allocation_free(block);
  OK(px_memory_empty_cache());
  return size;
}

PX_TEST(sizes_round_to_fractions_of_powers_of_two) {
  simulate_plainly(1);
  OK(px_memory_configure("roundup_power2_divisions:4"));
  CHECK_EQ(rounded(1200), 1536);
  CHECK_EQ(rounded(5000), 5120);
  CHECK_EQ(rounded(64 * MIB + 1), 80 * MIB);
  CHECK_EQ(rounded(80 * MIB), 80 * MIB);
  OK(px_memory_configure("roundup_power2_divisions:[32:1,64:2,>:8]"));
  CHECK_EQ(rounded(17 * MIB), 18 * MIB);  // the size of its segment
  CHECK_EQ(rounded(33 * MIB), 48 * MIB);
  CHECK_EQ(rounded(65 * MIB), 72 * MIB);
}

PX_TEST(large_segments_have_the_configured_size) {
  simulate_plainly(1);
  OK(px_memory_configure("large_segment_size_mb:40"));
  px__allocation_free(block_on(px_cuda(0), 2 * MIB));
  CHECK_EQ(px_memory_reserved(0), 40 * MIB);
}

PX_TEST(limits_below_the_segment_size_are_refused_in_any_order) {
  static const struct {
    const char *text, *error;
  } cases[] = {
      {"large_segment_size_mb:10", "option large_segment_size_mb must be > 10 MB"},
      {"large_segment_size_mb:30,max_split_size_mb:25",
       "max_split_size_mb too small, must be >= 30"},
      {"max_split_size_mb:25,large_segment_size_mb:30",
       "max_split_size_mb too small, must be >= 30"},
      {"max_non_split_rounding_mb:25,large_segment_size_mb:30",
       "max_non_split_rounding_mb too small, must be >= 30"},
      {"max_non_split_rounding_mb:0", "max_non_split_rounding_mb too small, must be >= 20"},
      {"pinned_reserve_segment_size_mb:0", "has to be greater than 0"},
      {"pinned_num_register_threads:3", "has to be power of 2, got 3"},
      {"pinned_num_register_threads:256", "less than or equal to 128, got 256"}};
  static const char *const good[] = {
      "large_segment_size_mb:30", "max_non_split_rounding_mb:30,max_split_size_mb:20",
      "max_split_size_mb:12,large_segment_size_mb:11,max_non_split_rounding_mb:11"};
  simulate_plainly(1);
  for (int i = 0; i < PX_COUNT_OF(cases); i++)
    FAILS(px_memory_configure(cases[i].text), PX_VALUE, cases[i].error);
  for (int i = 0; i < PX_COUNT_OF(good); i++) OK(px_memory_configure(good[i]));
}

PX_TEST(large_blocks_are_not_split) {
  simulate_plainly(1);
  OK(px_memory_configure("max_split_size_mb:32,max_non_split_rounding_mb:20"));
  px_allocation *large = block_on(px_cuda(0), 64 * MIB);
  CHECK_EQ(stat_of("oversize_allocations.current"), 1);
  CHECK_EQ(stat_of("oversize_segments.current"), 1);
  void *at = large->data;
  px__allocation_free(large);
  px_allocation *small = block_on(px_cuda(0), 16 * MIB);  // does not use the large block
  CHECK(small->data < at || (char *)small->data >= (char *)at + 64 * MIB);
  px_allocation *other = block_on(px_cuda(0), 40 * MIB);  // the split would waste too much
  CHECK(other->data != at);
  px_allocation *near = block_on(px_cuda(0), 50 * MIB);
  CHECK(near->data == at);
  px__allocation_free(near), px__allocation_free(other), px__allocation_free(small);
}

PX_TEST(idle_segments_are_freed_above_the_threshold) {
  simulate_plainly(1);
  OK(px_memory_configure("garbage_collection_threshold:0.4,per_process_memory_fraction:0.05"));
  px__allocation_free(block_on(px_cuda(0), 1));
  size_t free_bytes, total;
  OK(px_device_memory(&free_bytes, &total, 0));
  size_t quarter = total / 20 / 4 / (2 * MIB) * (2 * MIB);
  px_allocation *a = block_on(px_cuda(0), quarter), *b = block_on(px_cuda(0), quarter);
  px__allocation_free(a);
  CHECK(px_memory_reserved(0) >= (int64_t)(2 * quarter));
  px_allocation *c = block_on(px_cuda(0), quarter + 4 * MIB);  // the segment of `a` is freed first
  CHECK(px_memory_reserved(0) < (int64_t)(3 * quarter));
  CHECK_EQ(stat_of("num_alloc_retries"), 0);
  CHECK(stat_of("num_device_free") > 0);
  px__allocation_free(b), px__allocation_free(c);
}

PX_TEST(a_fraction_limits_reserved_memory) {
  simulate_plainly(2);
  px__allocation_free(block_on(px_cuda(0), 1));
  OK(px_memory_configure("per_process_memory_fraction:0.01"));
  px_allocation *block;
  for (int device = 0; device < 2; device++)  // for an open device, and for one opened now
    FAILS(px__allocation_new(&block, (size_t)1 << 30, px_cuda(device)), PX_OUT_OF_MEMORY,
          " allowed; ");
}

// ---- synchronizing calls

PX_TEST(synchronizing_calls_warn_or_fail) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 64), *host = block_on(px_cpu(), 64);
  px_allocation *pinned = pinned_block(64);
  px_warning_set_sink(keep_warning);
  OK(px_sync_debug_set(PX_SYNC_WARN));
  CHECK_EQ(px_sync_debug_get(), PX_SYNC_WARN);
  OK(fill(block, 7, 0));
  OK(px_device_synchronize(0));
  OK(px__copy_bytes(pinned, 0, block, 0, 64, true));
  CHECK(!warned[0]);
  OK(px__copy_bytes(host, 0, block, 0, 64, false));
  CHECK(!strcmp(warned, "called a synchronizing CUDA operation"));
  OK(px_sync_debug_set(PX_SYNC_ERROR));
  FAILS(px__copy_bytes(host, 0, block, 0, 64, false), PX_RUNTIME,
        "called a synchronizing CUDA operation");
  FAILS(px_stream_synchronize(default_stream(0)), PX_RUNTIME, "called a synchronizing");
  FAILS(px_sync_debug_set((px_sync_debug)3), PX_RUNTIME, "invalid value of debug_mode");
  OK(px_sync_debug_set(PX_SYNC_SILENT));
  OK(px_stream_synchronize(default_stream(0)));
  CHECK_EQ(*(int64_t *)host->data, 7);
  px__allocation_free(block), px__allocation_free(host), px__allocation_free(pinned);
}
