// SPDX-License-Identifier: Apache-2.0
// Segments of pages: when pages move and which, the allocator's lists and counters, and
// deterministic addresses. The simulator breaks a device if pages in use are unmapped.
#include <sys/wait.h>

#include "device_test.h"

#define MIB ((size_t)1 << 20)
enum { STREAMS = 3 };

static px__device *device(int index) {
  px__device *d;
  OK(px__device_get(&d, index));
  return d;
}

// ---- invariants of the lists and counters of a device
typedef struct sums {
  int64_t reserved, segments, taken, taken_bytes, split, split_bytes;
} sums;

static void add_blocks(const px__segment *s, sums *sum) {
  uintptr_t at = (uintptr_t)s->data;
  const px__block *before = NULL;
  for (const px__block *c = s->first; c; before = c, c = c->next) {
    CHECK(c->segment == s && c->prev == before && c->node.address == at);
    CHECK(c->node.size && c->node.size % PX__GRAIN == 0);
    at += c->node.size;
    bool taken = c->state == PX__ALLOCATED, is_part = c->prev || c->next;
    sum->taken += taken, sum->taken_bytes += taken ? (int64_t)c->node.size : 0;
    if (c->state != PX__FREE || !is_part) continue;
    sum->split++, sum->split_bytes += (int64_t)c->node.size;
  }
  CHECK(before && before == s->last);
  CHECK_EQ(at, (uintptr_t)s->data + s->size);
}

static int in_order(const px__cache *cache) {
  uintptr_t end = cache->range;
  int count = 0;
  for (const px__segment *s = cache->lowest, *below = NULL; s; below = s, s = s->above, count++) {
    CHECK(s->paged && s->below == below && (uintptr_t)s->data >= end);
    end = (uintptr_t)s->data + s->size;
    CHECK(s->size % PX__PAGE == 0 && (uintptr_t)s->data % PX__PAGE == 0);
  }
  CHECK(end <= cache->range_end);
  return count;
}

static void check_invariants(int index) {
  px__device *d = device(index);
  px__statistics *l = &d->cache.statistics;
  sums sum = {0};
  int paged = 0;
  px__device_lock(d);
  px__pool_flush(d);
  for (const px__segment *s = d->cache.segments; s; s = s->next) {
    sum.reserved += (int64_t)s->size, sum.segments++, paged += s->paged;
    add_blocks(s, &sum);
  }
  CHECK_EQ(paged, in_order(&d->cache));
  CHECK_EQ(sum.reserved, d->cache.reserved);
  CHECK_EQ(sum.reserved, l->reserved_bytes[0].current);
  CHECK_EQ(sum.segments, l->segment[0].current);
  CHECK_EQ(sum.taken, l->allocation[0].current);
  CHECK_EQ(sum.taken_bytes, l->allocated_bytes[0].current);
  CHECK_EQ(sum.split, l->inactive_split[0].current);
  CHECK_EQ(sum.split_bytes, l->inactive_split_bytes[0].current);
  px__device_unlock(d);
}

static void small_device(const char *memory, const char *settings) {
  setenv("PHLOX_SIM_MEMORY", memory, 1);
  simulate_plainly(1);
  OK(px_memory_configure(settings));
}

// Allocates `count` pieces of `size` each and frees every other one, optionally in use by work of
// the current stream.
static void comb_in(px_allocation **blocks, int count, size_t size, bool busy) {
  for (int i = 0; i < count; i++) blocks[i] = block_on(px_cuda(0), size);
  for (int i = 0; i < count && busy; i += 2) OK(fill(blocks[i], 1, 40));
  for (int i = 0; i < count; i += 2) px__allocation_free(blocks[i]);
}
static void comb(px_allocation **blocks, int count, size_t size) {
  comb_in(blocks, count, size, false);
}
static void busy_comb(px_allocation **blocks, int count, size_t size) {
  comb_in(blocks, count, size, true);
}
static void release_comb(px_allocation **blocks, int count) {
  for (int i = 1; i < count; i += 2) px__allocation_free(blocks[i]);
}

// ---- when pages move
PX_TEST(free_pages_serve_a_large_request_above_the_slack_limit) {
  small_device("1G", "expandable_segments:True");
  px_allocation *blocks[8];
  comb(blocks, 8, 30 * MIB);
  px_allocation *large = block_on(px_cuda(0), 110 * MIB);
  CHECK_EQ(px_memory_reserved(0), 240 * MIB);
  CHECK_EQ(stat_of("num_device_free"), 4);
  OK(fill(large, 3, 0));
  CHECK_EQ(first_of(large), 3);
  check_invariants(0);
  px__allocation_free(large), release_comb(blocks, 8);
}

// A step without a fit for its last request: the free block next to the first allocation is too
// small.
static void misfit_step(size_t first, size_t last) {
  px_allocation *a = block_on(px_cuda(0), first), *b = block_on(px_cuda(0), 2 * first / 3);
  px__allocation_free(a);
  a = block_on(px_cuda(0), last);
  px__allocation_free(a), px__allocation_free(b);
}

PX_TEST(a_repeated_step_stops_moving_pages) {
  small_device("4G", "expandable_segments:True");
  px_allocation *held = block_on(px_cuda(0), 2000 * MIB);
  for (int i = 0; i < 4; i++) misfit_step(90 * MIB, 270 * MIB);
  int64_t taken = stat_of("num_device_alloc"), given = stat_of("num_device_free");
  CHECK(given >= 1);
  for (int i = 0; i < 10; i++) misfit_step(90 * MIB, 270 * MIB);
  CHECK_EQ(stat_of("num_device_alloc"), taken);
  CHECK_EQ(stat_of("num_device_free"), given);
  CHECK_EQ(px_memory_reserved(0), (2000 + 330 + 90) * MIB);
  check_invariants(0);
  px__allocation_free(held);
}

PX_TEST(memory_of_repeated_steps_is_bounded) {
  small_device("2G", "expandable_segments:True");
  for (int i = 0; i < 10; i++) misfit_step(90 * MIB, 270 * MIB);
  CHECK(stat_of("num_device_free") >= 8);  // pages move each time, since the slack would be 90 MiB
  CHECK_EQ(px_memory_reserved(0), 330 * MIB);
  check_invariants(0);
}

PX_TEST(steps_of_varying_sizes_reserve_no_more_than_live_memory) {
  small_device("4G", "expandable_segments:True");
  px_allocation *held = block_on(px_cuda(0), 2000 * MIB);
  for (size_t i = 0; i < 10; i++) misfit_step((90 + 3 * i) * MIB, (270 - 2 * i) * MIB);
  CHECK(stat_of("num_device_free") >= 8);
  CHECK_EQ(px_memory_reserved(0), (2000 + 330 + 2) * MIB);
  check_invariants(0);
  px__allocation_free(held);
}

PX_TEST(below_the_slack_limit_segments_grow_like_pytorchs) {
  small_device("4G", "");
  px_allocation *blocks[8];
  comb(blocks, 8, 30 * MIB);
  px_allocation *large = block_on(px_cuda(0), 110 * MIB);
  CHECK_EQ(px_memory_reserved(0), 350 * MIB);
  px_allocation *larger = block_on(px_cuda(0), 114 * MIB);  // 230 MiB live, of 464 with it
  CHECK_EQ(px_memory_reserved(0), 464 * MIB);
  px_allocation *last =
      block_on(px_cuda(0), 800 * MIB);  // 1144 MiB live, and the slack limit is 256
  CHECK_EQ(px_memory_reserved(0), 1264 * MIB);
  px__allocation_free(last);
  last = block_on(px_cuda(0), 1000 * MIB);  // 1344 MiB live, of 2264: all free pages move
  CHECK_EQ(px_memory_reserved(0), 1344 * MIB);
  check_invariants(0);
  px__allocation_free(large), px__allocation_free(larger), px__allocation_free(last),
      release_comb(blocks, 8);
}

PX_TEST(emptying_the_cache_resets_the_peak_of_live_memory) {
  small_device("4G", "");
  px__allocation_free(block_on(px_cuda(0), 3000 * MIB));
  OK(px_memory_empty_cache());
  px_allocation *blocks[8];
  comb(blocks, 8, 100 * MIB);
  px_allocation *large = block_on(px_cuda(0), 410 * MIB);  // 810 MiB live
  CHECK_EQ(px_memory_reserved(0), 810 * MIB);
  px__allocation_free(large), release_comb(blocks, 8);
}

PX_TEST(pages_between_live_blocks_are_unmapped_individually) {
  small_device("64M", "expandable_segments:True");
  px_allocation *a = block_on(px_cuda(0), 3 * MIB), *b = block_on(px_cuda(0), 9 * MIB);
  px_allocation *c = block_on(px_cuda(0), 3 * MIB), *d = block_on(px_cuda(0), 20 * MIB);
  px__allocation_free(b);
  px_allocation *wide = block_on(px_cuda(0), 30 * MIB);
  CHECK_EQ(stat_of("num_ooms"), 0);
  OK(fill(wide, 1, 0));
  OK(fill(a, 2, 0));
  OK(fill(c, 3, 0));
  CHECK(first_of(a) == 2 && first_of(c) == 3 && first_of(wide) == 1);
  check_invariants(0);
  px__allocation_free(a), px__allocation_free(c), px__allocation_free(d), px__allocation_free(wide);
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 0);
  check_invariants(0);
}

// Starts work on another stream, unordered with others. The caller owns the allocation.
static px_allocation *busy_stream(px_stream *side, size_t size) {
  px_allocation *block = block_on(px_cuda(0), size);
  OK(px_stream_set_current(side));
  for (int i = 0; i < 8; i++) OK(fill(block, 1, 40));
  OK(px_stream_set_current(default_stream(0)));
  return block;
}

PX_TEST(pages_in_use_do_not_move) {
  small_device("1G", "expandable_segments:True");
  px_allocation *blocks[8];
  px_stream *side = new_stream(0);
  px_allocation *other = busy_stream(side, 10 * MIB);
  busy_comb(blocks, 8, 30 * MIB);
  px_allocation *large = block_on(px_cuda(0), 110 * MIB);
  CHECK_EQ(px_memory_reserved(0), 360 * MIB);
  OK(px_device_synchronize(0));
  px__allocation_free(large), px__allocation_free(other), release_comb(blocks, 8);
  px_release(side);
}

PX_TEST(a_request_above_the_slack_limit_waits_for_its_own_stream) {
  small_device("1G", "expandable_segments:True");
  px_allocation *blocks[8];
  busy_comb(blocks, 8, 30 * MIB);
  px_allocation *large = block_on(px_cuda(0), 110 * MIB);
  CHECK_EQ(px_memory_reserved(0), 240 * MIB);
  check_invariants(0);
  px__allocation_free(large), release_comb(blocks, 8);
}

PX_TEST(waits_for_pages_are_rate_limited_by_work) {
  small_device("1G", "expandable_segments:True");
  enum { ENOUGH = 200 };
  px_allocation *blocks[8], *large[3];
  busy_comb(blocks, 8, 30 * MIB);
  large[0] = block_on(px_cuda(0), 110 * MIB);
  OK(fill(large[0], 1, 40));
  px__allocation_free(large[0]);
  large[0] = block_on(px_cuda(0), 60 * MIB);  // on its own stream, so immediately; 60 MiB are free
  large[1] = block_on(px_cuda(0), 90 * MIB);
  CHECK_EQ(px_memory_reserved(0), 270 * MIB);  // 30 more than these, and no wait
  px__allocation_free(large[0]), px__allocation_free(large[1]);
  for (int i = 0; i < ENOUGH; i++) OK(look(blocks[1]));
  OK(fill(blocks[1], 1, 40));
  px__allocation_free(blocks[1]);
  large[2] = block_on(px_cuda(0), 190 * MIB);
  CHECK_EQ(px_memory_reserved(0), 280 * MIB);
  check_invariants(0);
  px__allocation_free(large[2]);
  for (int i = 3; i < 8; i += 2) px__allocation_free(blocks[i]);
}

PX_TEST(a_full_device_waits_for_work_before_pages_move) {
  small_device("256M", "");
  px_stream *side = new_stream(0);
  px_allocation *blocks[8];
  for (int i = 0; i < 8; i++) blocks[i] = block_on(px_cuda(0), 30 * MIB);
  OK(px_stream_set_current(side));
  for (int i = 0; i < 8; i += 2) OK(fill(blocks[i], 1, 20));
  OK(px_stream_set_current(default_stream(0)));
  for (int i = 0; i < 8; i += 2) px__allocation_free(blocks[i]);
  px_allocation *large = block_on(px_cuda(0), 110 * MIB);
  OK(px_device_synchronize(0));
  px__allocation_free(large), release_comb(blocks, 8);
  px_release(side);
}

// When the allocation is freed, another device's stream is copying from it.
PX_TEST(pages_wait_for_streams_of_other_devices) {
  setenv("PHLOX_SIM_MEMORY", "256M", 1);
  setenv("PHLOX_SIM_DELAY", "20000", 1);
  simulate_plainly(2);
  px_allocation *on_peer = block_on(px_cuda(1), 120 * MIB),
                *on_device = block_on(px_cuda(0), 120 * MIB);
  OK(fill(on_device, 5, 0));
  OK(px_device_set(1));
  for (int i = 0; i < 4; i++) OK(px__copy_bytes(on_peer, 0, on_device, 0, on_device->bytes, true));
  OK(px_device_set(0));
  px_allocation *neighbour = block_on(px_cuda(0), 60 * MIB);
  px__allocation_free(on_device);
  on_device = block_on(px_cuda(0), 180 * MIB);  // needs its pages
  OK(px_device_synchronize(0));
  CHECK_EQ(first_of(on_peer), 5);
  px__allocation_free(on_device), px__allocation_free(on_peer), px__allocation_free(neighbour);
}

PX_TEST(above_the_slack_limit_small_requests_use_free_large_blocks) {
  small_device("64M", "expandable_segments:True");
  px_allocation *blocks[8];
  px_stream *side = new_stream(0);
  px_allocation *other = busy_stream(side, 5 * MIB);  // prevents pages from moving yet
  busy_comb(blocks, 8, 5 * MIB);
  px_allocation *large = block_on(px_cuda(0), 11 * MIB);
  int64_t before = px_memory_reserved(0);
  CHECK(before > 44 * (int64_t)MIB);
  px_allocation *small = block_on(px_cuda(0), 512);
  CHECK_EQ(px_memory_reserved(0), before);
  CHECK_EQ(stat_of("segment.small_pool.current"), 0);
  px__allocation_free(large), px__allocation_free(small), px__allocation_free(other),
      release_comb(blocks, 8);
  px_release(side);
}

PX_TEST(adjacent_runs_merge) {
  small_device("64M", "expandable_segments:True");
  px_allocation *blocks[7];
  for (int i = 0; i < 7; i++) blocks[i] = block_on(px_cuda(0), 7 * MIB);
  CHECK_EQ(stat_of("segment.all.current"), 1);
  CHECK_EQ(px_memory_reserved(0), 50 * MIB);  // 49 in one run
  for (int i = 0; i < 7; i++) px__allocation_free(blocks[i]);
  px_allocation *all = block_on(px_cuda(0), 50 * MIB);
  CHECK_EQ(stat_of("num_device_free"), 0);
  px__allocation_free(all);
}

PX_TEST(free_neighbours_of_several_streams_are_unmapped_separately) {
  small_device("64M", "expandable_segments:True");
  PX_SCOPED(px_stream) side = new_stream(0);
  px_allocation *held = block_on(px_cuda(0), 4 * MIB), *a = block_on(px_cuda(0), 4 * MIB);
  OK(fill(a, 1, 30));
  OK(px_stream_set_current(side));
  px_allocation *b = block_on(px_cuda(0), 4 * MIB);
  OK(fill(b, 1, 30));
  px__allocation_free(a), px__allocation_free(b);
  CHECK_EQ(stat_of("inactive_split.all.current"), 2);
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 4 * MIB);
  check_invariants(0);
  OK(px_stream_set_current(default_stream(0)));
  px__allocation_free(held);
}

PX_TEST(settings_select_pages) {
  static const struct {
    const char *text;
    bool paged;
  } cases[] = {{"", true},
               {"expandable_segments:True", true},
               {"expandable_segments:False", false},
               {"max_split_size_mb:40", false}};
  simulate_plainly(1);
  for (int i = 0; i < PX_COUNT_OF(cases); i++) {
    OK(px_memory_empty_cache());
    OK(px_memory_configure(cases[i].text));
    px_allocation *block = block_on(px_cuda(0), 512);
    CHECK_EQ(((px__block *)px__allocation_of(block))->segment->paged, cases[i].paged);
    px__allocation_free(block);
  }
}

PX_TEST(exported_memory_does_not_move) {
  small_device("64M", "expandable_segments:True");
  px_allocation *a = block_on(px_cuda(0), 15 * MIB), *b = block_on(px_cuda(0), 3 * MIB);
  px_allocation *c = block_on(px_cuda(0), 15 * MIB);
  px_ipc_handle handle;
  size_t offset;
  OK(fill(b, 7, 0));
  OK(px__allocation_share(&handle, &offset, b));
  px__allocation_free(a), px__allocation_free(c);
  px_allocation *large = block_on(px_cuda(0), 40 * MIB);  // of pages from both sides
  px__foreign other = {.handle = handle, .offset = offset, .bytes = b->bytes};
  px_allocation *seen;
  OK(px__allocation_open(&seen, 0, &other));
  CHECK_EQ(first_of(seen), 7);
  OK(fill(seen, 8, 0));
  CHECK_EQ(first_of(b), 8);
  px__allocation_free(seen), px__allocation_free(b), px__allocation_free(large);
}

PX_TEST(a_user_defined_pool_keeps_its_pages) {
  small_device("1G", "expandable_segments:True");
  PX_SCOPED(px_memory_pool) pool = NULL;
  OK(px_memory_pool_new(&pool, 0));
  OK(px_memory_pool_begin(pool, 0));
  px__allocation_free(block_on(px_cuda(0), 100 * MIB));
  OK(px_memory_pool_end(pool, 0));
  px_allocation *large = block_on(px_cuda(0), 150 * MIB);
  CHECK_EQ(px_memory_reserved(0), 250 * MIB);
  px__allocation_free(large);
  check_invariants(0);
}

// ---- faults
static px_status force_page_moves(void) {
  px_allocation *blocks[8] = {NULL}, *large = NULL;
  px_status status = PX_OK;
  for (int i = 0; i < 8 && status == PX_OK; i++)
    status = px__allocation_new(&blocks[i], 5 * MIB, px_cuda(0));
  for (int i = 0; i < 8; i += 2) px__allocation_free(blocks[i]), blocks[i] = NULL;
  if (status == PX_OK) status = px__allocation_new(&large, 30 * MIB, px_cuda(0));
  if (status == PX_OK) status = fill(large, 1, 0);
  px__allocation_free(large);
  for (int i = 0; i < 8; i++) px__allocation_free(blocks[i]);
  return status;
}

PX_TEST(every_fault_during_page_moves_is_survived) {
  static const char *const points[] = {"alloc", "device.alloc", "map"};
  small_device("64M", "expandable_segments:True");
  OK(force_page_moves());
  for (int i = 0; i < PX_COUNT_OF(points); i++)
    for (int n = 1, reached = 1; reached; n++) {
      OK(px_memory_empty_cache());
      OK(px_fault_arm(points[i], n, n % 2));
      px_status status = force_page_moves();
      reached = px_fault_seen(points[i]) >= n;
      px_fault_disarm_all();
      CHECK(reached || status == PX_OK);
      px_error_clear();
      OK(px_device_synchronize(0));
      CHECK_EQ(px_memory_allocated(0), 0);
      check_invariants(0);
    }
}

// ---- random programs
// Writes a number to each page, in the middle and at the end. More would not move any other page.
static px_status mark_kernel(const px_launch *l) {
  int64_t *at = l->operands[0].data, last = l->operands[0].sizes[0] - 1;
  for (int64_t i = 0; i <= last; i += 512) at[i] = l->params[0].v.i;
  at[last / 2] = at[last] = l->params[0].v.i;
  return PX_OK;
}
static int wrong;  // atomic
static px_status check_kernel(const px_launch *l) {
  const int64_t *at = l->operands[0].data;
  int64_t last = l->operands[0].sizes[0] - 1, wanted = l->params[0].v.i;
  if (at[0] != wanted || at[last] != wanted || at[last / 2] != wanted)
    __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
  return PX_OK;
}

typedef struct random_state {
  unsigned seed;
  int streams, live_count;
  px_stream *stream[8];
  struct {
    px_allocation *block;
    px_stream *home;
    int64_t mark;
  } live[64];
  size_t held, most, largest;
  uint64_t address_hash;  // hash of the addresses
  int failed;
} random_state;

static size_t random_size(random_state *p) {
  double share = rand_r(&p->seed) / (double)RAND_MAX;
  size_t size = 512;
  while (size < p->largest && share > 0.07) size *= 2, share -= 0.07;
  return size + (size_t)rand_r(&p->seed) % size;
}

// The last reader of an allocation is on its home stream or on another one ordered after it.
static void random_free(random_state *p, int i) {
  px_allocation *block = p->live[i].block;
  px_stream *home = p->live[i].home, *at = p->stream[rand_r(&p->seed) % p->streams];
  if (at != home) OK(px_stream_wait_stream(at, home));
  OK(px_stream_set_current(at));
  OK(start("check", check_kernel, block, false, p->live[i].mark, 0));
  p->held -= block->bytes;
  px__allocation_free(block);
  p->live[i] = p->live[--p->live_count];
}

static void random_step(random_state *p, int64_t step) {
  size_t size = random_size(p) & ~(size_t)7;
  while (p->live_count && (p->held + size > p->most || p->live_count == PX_COUNT_OF(p->live)))
    random_free(p, rand_r(&p->seed) % p->live_count);
  px_stream *home = p->stream[rand_r(&p->seed) % p->streams];
  px_allocation *block;
  OK(px_stream_set_current(home));
  if (px__allocation_new(&block, size, px_cuda(0)) != PX_OK) {
    p->failed++;
    return px_error_clear();
  }
  p->address_hash =
      (p->address_hash ^ ((uintptr_t)block->data - device(0)->cache.range)) * 0x9E3779B97F4A7C15u;
  OK(start("mark", mark_kernel, block, true, step, 0));
  p->live[p->live_count].block = block, p->live[p->live_count].home = home;
  p->live[p->live_count++].mark = step;
  p->held += size;
}

static void run_steps(random_state *p, int steps) {
  p->stream[0] = default_stream(0);
  for (int i = 1; i < p->streams; i++) p->stream[i] = new_stream(0);
  for (int step = 0; step < steps; step++) {
    random_step(p, step);
    if (step % 50 == 0) check_invariants(0);
  }
  while (p->live_count) random_free(p, 0);
  OK(px_device_synchronize(0));
  check_invariants(0);
  for (int i = 1; i < p->streams; i++) px_release(p->stream[i]);
  OK(px_stream_set_current(p->stream[0]));
}

static void random_program(const char *settings, unsigned seed) {
  OK(px_memory_configure(settings));
  random_state p = {
      .seed = seed, .streams = 1 + (int)(seed % 4), .most = 40 * MIB, .largest = 4 * MIB};
  run_steps(&p, 400);
  CHECK_EQ(__atomic_load_n(&wrong, __ATOMIC_RELAXED), 0);
  OK(px_memory_empty_cache());
  CHECK_EQ(px_memory_reserved(0), 0);
}

PX_TEST(random_programs_keep_their_contents) {
  static const char *const settings[] = {"", "expandable_segments:True", "deterministic:True",
                                         "expandable_segments:False"};
  setenv("PHLOX_SIM_DELAY", "30", 1);
  small_device("64M", "");
#ifdef __SANITIZE_THREAD__
  enum { STEP = 5 };  // each setting, and each number of streams, once
#else
  enum { STEP = 1 };
#endif
  for (unsigned seed = 0; seed < 16; seed += STEP) random_program(settings[seed / 4], seed);
}

// Without compact placement, ten times as many requests fail.
PX_TEST(a_device_with_few_pages_can_be_nearly_filled) {
#ifdef __SANITIZE_THREAD__
  enum { SEEDS = 4 };
#else
  enum { SEEDS = 12 };
#endif
  small_device("64M", "deterministic:True");
  int failed = 0;
  for (unsigned seed = 0; seed < SEEDS; seed++) {
    random_state p = {.seed = seed, .streams = 1, .most = 51 * MIB, .largest = 4 * MIB};
    run_steps(&p, 600);
    failed += p.failed;
  }
  CHECK(failed < 5);  // of 7200
}

static void *run_thread(void *seed) {
  random_state p = {.seed = *(unsigned *)seed, .streams = 2, .most = 12 * MIB, .largest = 2 * MIB};
  px_stream *first = new_stream(0);
  p.stream[0] = first, p.stream[1] = new_stream(0);
  for (int step = 0; step < 300; step++) random_step(&p, step);
  while (p.live_count) random_free(&p, 0);
  px_release(p.stream[1]), px_release(first);
  return NULL;
}

PX_TEST(threads_competing_for_pages_keep_their_contents) {
  small_device("64M", "expandable_segments:True");
  pthread_t threads[3];
  unsigned seeds[3] = {1, 2, 3};
  for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, run_thread, &seeds[i]), 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  OK(px_device_synchronize(0));
  CHECK_EQ(__atomic_load_n(&wrong, __ATOMIC_RELAXED), 0);
  check_invariants(0);
}

// ---- deterministic addresses
// Returns the hash of a program's addresses, in a process with devices of this delay.
static uint64_t address_hash_with(const char *delay) {
  int ends[2];
  uint64_t address_hash = 0;
  CHECK_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (!child) {
    setenv("PHLOX_SIM_DELAY", delay, 1);
    small_device("64M", "deterministic:True");
    random_state p = {.seed = 7, .streams = 4, .most = 44 * MIB, .largest = 4 * MIB};
    run_steps(&p, 500);
    _exit(write(ends[1], &p.address_hash, sizeof p.address_hash) != sizeof p.address_hash);
  }
  int status;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(read(ends[0], &address_hash, sizeof address_hash), sizeof address_hash);
  close(ends[0]), close(ends[1]);
  return address_hash;
}

PX_TEST(deterministic_addresses_depend_only_on_the_program) {
  uint64_t address_hash = address_hash_with("0");
  CHECK(address_hash_with("0") == address_hash);
  CHECK(address_hash_with("200") == address_hash);
  CHECK(address_hash_with("3") == address_hash);
}
