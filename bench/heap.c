// SPDX-License-Identifier: Apache-2.0
// Device memory under pressure, and the time of an allocation.
//
// heap near [TRACES [REQUESTS]]: random sizes from 256 bytes to 6 MiB on 1, 2, 3 and 8 streams,
// with at most 80 % of the device live. One block in five is also used by another stream. Counts
// the failed requests, and those that failed although the pages (2 MiB) without a live block would
// have sufficed. PHLOX_SIM_MEMORY is the device's memory (default 64M). Settings are those of
// PYTORCH_CUDA_ALLOC_CONF.
//
// heap time: the time to allocate and free a tensor, for one size and for many, on the CPU, and
// from two threads on two streams, compared to a lock. Each figure is the median of all calls and
// of the quietest stretch: another program on the same core halves its throughput. The yardsticks
// detect this: latency-bound code takes the same time then, throughput-bound code twice as long.
#include <phlox/phlox.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "bench.h"

enum {
  STREAMS = 8,
  LIVE = 4096,
  SAMPLES = 200000,
  SIZES = 64,
  STRETCH = 1000,
  PAGE = 2 << 20,
  PAGES = 1 << 14,
  ROUNDS = 5
};
#define MAX_LOAD 0.8

static void must(px_status status) {
  if (status == PX_OK) return;
  fprintf(stderr, "%s\n", px_error_last()->message);
  exit(1);
}

static px_status allocate_on(px_tensor **out, int64_t bytes, px_device device) {
  return px_tensor_empty(out, 1, &bytes, PX_UINT8, device);
}
static px_status allocate(px_tensor **out, int64_t bytes) {
  return allocate_on(out, bytes, px_cuda(0));
}

// ---- nearly full
typedef struct trace {
  unsigned seed;
  int streams;
  px_stream *stream[STREAMS];
  px_tensor *live[LIVE];
  int64_t size[LIVE];
  int count;
  int64_t held, capacity, failed, spurious;
} trace;

static double uniform(trace *t) { return rand_r(&t->seed) / ((double)RAND_MAX + 1); }
static int random_below(trace *t, int n) { return (int)(uniform(t) * n); }

static void free_block(trace *t, int i) {
  px_release(t->live[i]);
  t->held -= t->size[i];
  t->count--;
  t->live[i] = t->live[t->count], t->size[i] = t->size[t->count];
}

// Uses the block on the current stream, and sometimes on another one, ordered after it.
static void use(trace *t, px_tensor *block) {
  px_tensor *part;
  must(px_narrow(&part, block, 0, 0, 1));
  must(px_zero_(part));
  if (uniform(t) < 0.2) {
    px_stream *other = t->stream[random_below(t, t->streams)], *first;
    must(px_stream_current(&first, px_cuda(0)));
    must(px_stream_wait_stream(other, first));
    must(px_stream_set_current(other));
    must(px_zero_(part));
  }
  px_release(part);
}

// Marks the pages touched by a live block. The device's address range is small enough that page
// indices modulo PAGES are unique.
static void touch(const px_memory_block *block, void *context) {
  bool *touched = context;
  if (!strcmp(block->state, "inactive")) return;
  int64_t last = (block->address + block->size - 1) / PAGE;
  for (int64_t page = block->address / PAGE; page <= last; page++) touched[page % PAGES] = true;
}

// Returns true if the pages without a live block have enough bytes for the request.
static bool would_fit(const trace *t, int64_t size) {
  bool touched[PAGES] = {false};
  int64_t pages = t->capacity / PAGE;
  must(px_memory_snapshot(0, touch, touched));
  for (int i = 0; i < PAGES; i++) pages -= touched[i];
  return pages >= (size + PAGE - 1) / PAGE;
}

static void request(trace *t) {
  int64_t size = (int64_t)exp2(8 + 14.58 * uniform(t));
  while (t->count &&
         ((double)(t->held + size) > MAX_LOAD * (double)t->capacity || t->count == LIVE))
    free_block(t, random_below(t, t->count));
  must(px_stream_set_current(t->stream[random_below(t, t->streams)]));
  px_tensor *block;
  if (allocate(&block, size) != PX_OK) {
    if (px_error_last()->code != PX_OUT_OF_MEMORY) must(px_error_last()->code);
    px_error_clear();
    t->failed++;
    t->spurious += would_fit(t, size);
    return;
  }
  use(t, block);
  t->live[t->count] = block, t->size[t->count++] = size;
  t->held += size;
}

static void run_traces(int streams, int traces, int requests) {
  static trace t;
  px_device_properties properties;
  int64_t failed = 0, failed_traces = 0;
  must(px_device_get_properties(&properties, 0));
  t = (trace){.streams = streams, .capacity = (int64_t)properties.total_memory};
  must(px_stream_default(&t.stream[0], px_cuda(0)));
  for (int i = 1; i < streams; i++) must(px_stream_new(&t.stream[i], px_cuda(0), 0));
  for (int seed = 0; seed < traces; seed++) {
    t.seed = (unsigned)seed + 1, t.failed = 0;
    for (int i = 0; i < requests; i++) request(&t);
    while (t.count) free_block(&t, 0);
    failed += t.failed, failed_traces += t.failed > 0;
  }
  must(px_stream_set_current(t.stream[0]));
  for (int i = 1; i < streams; i++) px_release(t.stream[i]);
  must(px_memory_empty_cache());
  printf(
      "%d streams: %lld of %lld requests fail, in %lld of %d traces; %lld with enough free pages\n",
      streams, (long long)failed, (long long)traces * requests, (long long)failed_traces, traces,
      (long long)t.spurious);
  fflush(stdout);
}

// ---- time
static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *took, int count) {
  qsort(took, (size_t)count, sizeof *took, compare);
  return took[count / 2];
}

// Prints medians in ns. Sorts `took`, the times of single calls; subtracts `clock`, the time of
// reading the clock.
static void print_median(const char *name, double *took, double clock) {
  double minimum = 1e9;
  for (int i = 0; i + STRETCH <= SAMPLES; i += STRETCH) {
    double now = median(took + i, STRETCH);
    if (now < minimum) minimum = now;
  }
  printf("%s: median %.0f ns, in the quietest stretch %.0f", name,
         1e9 * (median(took, SAMPLES) - clock), 1e9 * (minimum - clock));
}

static double empty_seconds(void) {
  double start = bench_seconds();
  return bench_seconds() - start;
}

// Times single calls, without the time of reading the clock.
static void print_times(const char *name, const int64_t *sizes, px_device device) {
  static double took[SAMPLES];
  double clock = 1e9;
  for (int i = 0; i < SAMPLES; i++) {
    double now = empty_seconds(), start = bench_seconds();
    if (now < clock) clock = now;
    px_tensor *block;
    must(allocate_on(&block, sizes[i % SIZES], device));
    px_release(block);
    took[i] = bench_seconds() - start;
  }
  print_median(name, took, clock);
  printf(", 99.9 %% %.0f\n", 1e9 * (took[SAMPLES - SAMPLES / 1000] - clock));
}

// ---- yardsticks
static void products(void) {
  uint64_t x = 3;
  for (int i = 0; i < 100; i++) {
    x *= x;
    __asm__ volatile("" : "+r"(x));
  }
}
static void additions(void) {
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0;
  for (int i = 0; i < 100; i++) {
    a += 1, b += 2, c += 3, d += 4, e += 5;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
  }
}
static void print_yardstick(const char *name, void (*work)(void)) {
  static double took[SAMPLES];
  double clock = 1e9;
  for (int i = 0; i < SAMPLES; i++) {
    double now = empty_seconds(), start = bench_seconds();
    if (now < clock) clock = now;
    work();
    took[i] = bench_seconds() - start;
  }
  print_median(name, took, clock);
  printf("\n");
}

// Prints the minimum time of an uncontended mutex.
static void print_lock(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  double minimum = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    double start = bench_seconds();
    for (int i = 0; i < SAMPLES; i++) pthread_mutex_lock(&lock), pthread_mutex_unlock(&lock);
    double took = (bench_seconds() - start) / SAMPLES;
    if (took < minimum) minimum = took;
  }
  printf("a mutex, taken and given back: %.0f ns\n", 1e9 * minimum);
}

// CPU time of this thread, unaffected by other processes.
static double thread_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *spin(void *stream) {
  must(px_stream_set_current(stream));
  double start = thread_seconds();
  for (int i = 0; i < 20 * SAMPLES; i++) {
    px_tensor *block;
    must(allocate(&block, 4096));
    px_release(block);
  }
  static _Thread_local double seconds;
  seconds = thread_seconds() - start;
  double *out = malloc(sizeof *out);
  if (out) *out = seconds;
  return out;
}

// Returns allocations per second of CPU time, summed over the threads.
static double rate(int threads) {
  pthread_t thread[2];
  px_stream *stream[2];
  double sum = 0;
  for (int i = 0; i < threads; i++) must(px_stream_new(&stream[i], px_cuda(0), 0));
  for (int i = 0; i < threads; i++)
    if (pthread_create(&thread[i], NULL, spin, stream[i])) exit(1);
  for (int i = 0; i < threads; i++) {
    void *seconds = NULL;
    pthread_join(thread[i], &seconds);
    if (seconds) sum += 20 * SAMPLES / *(double *)seconds;
    free(seconds);
    px_release(stream[i]);
  }
  return sum;
}

static void times(void) {
  int64_t same[SIZES], many[SIZES];
  for (int i = 0; i < SIZES; i++) same[i] = 4096, many[i] = 512 * (1 + i * 7 % 61);
  print_times("a tensor of 4096 bytes, taken and given back", same, px_cuda(0));
  print_times("... of 61 sizes by turns", many, px_cuda(0));
  print_times("... on the CPU", same, px_cpu());
  double one = 0, two = 0;
  for (int round = 0; round < ROUNDS; round++) {
    double now = rate(1), both = rate(2);
    if (now > one) one = now;
    if (both > two) two = both;
  }
  printf("two threads on two streams: %.2f times one\n", two / one);
  print_lock();
  print_yardstick("100 products, each of the one before", products);
  print_yardstick("500 additions", additions);
}

int main(int argc, char **argv) {
  static const int streams[] = {1, 2, 3, 8};
  bool is_near = argc > 1 && !strcmp(argv[1], "near");
  int traces = argc > 2 ? atoi(argv[2]) : 20, requests = argc > 3 ? atoi(argv[3]) : 2200;
  setenv("PHLOX_SIM_DEVICES", "1", 0);
  setenv("PHLOX_SIM_MEMORY", is_near ? "64M" : "4G", 0);
  if (!is_near && (argc < 2 || strcmp(argv[1], "time"))) {
    fprintf(stderr, "usage: heap near [TRACES [REQUESTS]] | heap time\n");
    return 2;
  }
  for (size_t i = 0; is_near && i < sizeof streams / sizeof *streams; i++)
    run_traces(streams[i], traces, requests);
  if (!is_near) times();
  return 0;
}
