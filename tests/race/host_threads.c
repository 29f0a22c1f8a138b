// SPDX-License-Identifier: Apache-2.0
// Stress test: four host threads on four devices, on private and shared streams. They create and
// release tensors, compute, copy between devices, record events, exchange tensors and empty caches.
// Each value read must be that of the preceding work. STRESS_SEED (default 1) determines the
// actions of each thread; STRESS_SECONDS (default 1) is the duration of each test.
//
// Contents are closed under the ops: element i of a tensor is `base`, xor i if `counts`.
#include "devices.h"

#include <pthread.h>
#include <time.h>

enum { DEVICES = 4, THREADS = 4, SLOTS = 10, MAILBOXES = 6, LONGEST = 5 << 16 };

// A tensor, its contents, and its last use: a stream, or an event recorded after it. Both are NULL
// for the host.
typedef struct item {
  px_tensor *tensor;
  int64_t count;
  int32_t base;
  bool counts;
  px_stream *stream;
  px_event *event;
} item;

typedef struct worker {
  pthread_t thread;
  uint64_t state;
  px_stream *own[DEVICES];
  item items[SLOTS];
  int32_t *host;  // buffer of LONGEST numbers
  int64_t read;   // number of compared tensors
  int64_t launched;
} worker;

static px_stream *shared[DEVICES][2];
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;
static item mailboxes[MAILBOXES];  // guarded by `mailbox_lock`
static bool checked;               // with the race checker, the host waits before each access
static double deadline;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int64_t below(worker *w, int64_t n) {  // splitmix64
  uint64_t z = w->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (int64_t)((z ^ z >> 31) % (uint64_t)n);
}

static item *slot(worker *w) { return &w->items[below(w, SLOTS)]; }

static void clear_item(item *it) {
  px_release(it->tensor);
  px_release(it->stream);
  px_release(it->event);
  memset(it, 0, sizeof *it);
}

static px_device device_of(const item *it) { return px_tensor_device(it->tensor); }

// Makes a random stream of the device current. Returns NULL for the CPU.
static px_stream *choose_stream(worker *w, px_device device) {
  if (device.type == PX_CPU) return NULL;
  int64_t which = below(w, 4);
  px_stream *stream = w->own[device.index];
  if (which == 0) OK(px_stream_default(&stream, device));
  if (which == 1) stream = shared[device.index][below(w, 2)];
  OK(px_stream_set_current(stream));
  return stream;
}

// Orders the next use on the stream, or on the host, after the item's last use.
static void order_after_last_use(worker *w, item *it, px_stream *stream) {
  bool patient = checked || below(w, 2);  // if not, the library waits for pinned memory itself
  if (stream && it->event) OK(px_stream_wait_event(stream, it->event));
  if (stream && it->stream) OK(px_stream_wait_stream(stream, it->stream));
  if (!stream && it->event && patient) OK(px_event_synchronize(it->event));
  if (!stream && it->stream && patient) OK(px_stream_synchronize(it->stream));
}

static void record_use(worker *w, item *it, px_stream *stream) {
  px_release(it->stream), it->stream = NULL;
  px_release(it->event), it->event = NULL;
  if (stream && below(w, 2)) {
    OK(px_event_new(&it->event, 0));
    OK(px_event_record(it->event, stream));
  } else {
    it->stream = px_retain(stream);
  }
}

// Puts a new tensor, written by work on the stream, into a slot. Takes ownership.
static void store(worker *w, px_tensor *tensor_taken, int32_t base, bool counts,
                  px_stream *stream) {
  item *it = slot(w);
  clear_item(it);
  *it = (item){tensor_taken, px_tensor_numel(tensor_taken), base, counts, NULL, NULL};
  record_use(w, it, stream);
  w->launched += stream != NULL;
}

// ---- actions of a thread

static px_status make(worker *w) {
  int64_t length = (int64_t)(int[]){1, 3, 5}[below(w, 3)] << below(w, 17);
  px_device device = below(w, 8) ? px_cuda((int)below(w, DEVICES)) : px_cpu();
  int32_t base = (int32_t)below(w, 1 << 20);
  px_stream *stream = choose_stream(w, device);
  px_tensor *made = NULL;
  bool counts = below(w, 2), from_host = below(w, 4) == 0;
  if (from_host)
    for (int64_t i = 0; i < length; i++) w->host[i] = base ^ (counts ? (int32_t)i : 0);
  else if (counts)
    base = 0;
  if (from_host)
    PX_TRY(px_tensor_from_data(&made, w->host, 1, &length, PX_INT32, device));
  else if (counts)
    PX_TRY(px_arange(&made, px_int(0), px_int(length), px_int(1), PX_INT32, device, false, false));
  else
    PX_TRY(px_full(&made, &length, 1, px_int(base), PX_INT32, device, false, false));
  store(w, made, base, counts, stream);
  return PX_OK;
}

// Allocates and frees many sizes in different orders. Written memory must be exclusive.
static px_status churn(worker *w) {
  enum { COUNT = 64, STRIDE = 27 };  // coprime to COUNT
  px_device device = px_cuda((int)below(w, DEVICES));
  px_tensor *made[COUNT] = {NULL};
  px_status status = PX_OK;
  choose_stream(w, device);
  for (int i = 0; i < COUNT && status == PX_OK; i++) {
    int64_t length = (int64_t)1 << below(w, 16);
    status = px_tensor_empty(&made[i], 1, &length, PX_INT32, device);
    if (status == PX_OK && i % 16 == 0) {
      status = px_fill_(made[i], px_int(i));
      w->launched += status == PX_OK;
    }
  }
  for (int i = 0; i < COUNT; i++) px_release(made[i * STRIDE % COUNT]);
  return status;
}

static px_status release_one(worker *w) {
  clear_item(slot(w));
  return PX_OK;
}

// Returns another item usable with `a` as a second operand, or `a`.
static item *partner(worker *w, item *a) {
  int64_t start = below(w, SLOTS);
  for (int64_t i = 0; i < SLOTS; i++) {
    item *b = &w->items[(start + i) % SLOTS];
    if (b->tensor && b->count == a->count && px_device_equal(device_of(a), device_of(b))) return b;
  }
  return a;
}

static px_status compute(worker *w) {
  item *a = slot(w);
  if (!a->tensor) return PX_OK;
  item *b = partner(w, a);
  px_stream *stream = choose_stream(w, device_of(a));
  px_tensor *made = NULL;
  order_after_last_use(w, a, stream);
  order_after_last_use(w, b, stream);
  PX_TRY(px_bitwise_xor(&made, a->tensor, b->tensor));
  record_use(w, a, stream);
  record_use(w, b, stream);
  store(w, made, a->base ^ b->base, a->counts != b->counts, stream);
  return PX_OK;
}

static px_status add_inplace(worker *w) {
  item *a = slot(w);
  if (!a->tensor) return PX_OK;
  px_stream *stream = choose_stream(w, device_of(a));
  order_after_last_use(w, a, stream);
  PX_TRY(px_bitwise_not_(a->tensor));
  a->base = ~a->base;
  record_use(w, a, stream);
  return PX_OK;
}

// Replaces a tensor by its first half.
static px_status halve(worker *w) {
  item *a = slot(w);
  px_tensor *half = NULL;
  if (!a->tensor || a->count < 2) return PX_OK;
  PX_TRY(px_narrow(&half, a->tensor, 0, 0, a->count / 2));
  px_release(a->tensor);
  a->tensor = half;
  a->count /= 2;
  return PX_OK;
}

static px_status copy_to_device(worker *w) {
  item *a = slot(w);
  if (!a->tensor) return PX_OK;
  px_device to = below(w, 4) ? px_cuda((int)below(w, DEVICES)) : px_cpu();
  px_stream *source = choose_stream(w, device_of(a)), *target = source;
  px_tensor *made = NULL;
  if (!px_device_equal(to, device_of(a))) target = choose_stream(w, to);
  order_after_last_use(w, a, source);
  if (!source && target) order_after_last_use(w, a, target);
  PX_TRY(px_to(&made, a->tensor, PX_DTYPE_NONE, to, below(w, 2), true));
  record_use(w, a, source ? source : target);
  store(w, made, a->base, a->counts, target ? target : source);
  return PX_OK;
}

static px_status compare(worker *w) {
  item *a = slot(w);
  if (!a->tensor) return PX_OK;
  px_stream *stream = choose_stream(w, device_of(a));
  order_after_last_use(w, a, stream);
  PX_TRY(px_tensor_read(a->tensor, w->host, (size_t)a->count * sizeof *w->host));
  for (int64_t i = 0; i < a->count; i++)
    CHECK_EQ(w->host[i], a->base ^ (a->counts ? (int32_t)i : 0));
  record_use(w, a, stream);
  w->read++;
  return PX_OK;
}

static px_status exchange(worker *w) {
  item *a = slot(w), *box = &mailboxes[below(w, MAILBOXES)];
  pthread_mutex_lock(&mailbox_lock);
  item got = *box;
  *box = *a;
  *a = got;
  pthread_mutex_unlock(&mailbox_lock);
  return PX_OK;
}

static px_status record_stream(worker *w) {
  item *a = slot(w);
  if (!a->tensor || device_of(a).type == PX_CPU) return PX_OK;
  return px_tensor_record_stream(a->tensor, shared[below(w, DEVICES)][below(w, 2)]);
}

static px_status give_address(worker *w) {
  item *a = slot(w);
  if (a->tensor) CHECK(px_tensor_data(a->tensor));
  return PX_OK;
}

static px_status replace_stream(worker *w) {
  int device = (int)below(w, DEVICES);
  px_stream *made = NULL;
  PX_TRY(px_stream_new(&made, px_cuda(device), -(int)below(w, 2)));
  PX_TRY(px_stream_set_current(made));
  px_release(w->own[device]);
  w->own[device] = made;
  return PX_OK;
}

static void sleep_us(void *argument) { usleep((useconds_t)(uintptr_t)argument); }

static px_status stall(worker *w) {
  px_device device = px_cuda((int)below(w, DEVICES));
  return px_stream_host_call(choose_stream(w, device), sleep_us, (void *)(uintptr_t)below(w, 300));
}

static px_status clear(worker *w) {
  PX_TRY(px_memory_empty_host_cache());
  return px_memory_empty_cache();
}

static px_status synchronize_one(worker *w) {
  return px_device_synchronize((int)below(w, DEVICES));
}

static const struct {
  int weight;
  px_status (*act)(worker *w);
} actions[] = {{24, make},         {16, release_one},    {24, compute},       {12, add_inplace},
               {4, halve},         {16, copy_to_device}, {14, compare},       {10, exchange},
               {4, record_stream}, {2, give_address},    {2, replace_stream}, {3, stall},
               {1, clear},         {1, synchronize_one}, {6, churn}};

static px_status act(worker *w) {
  int64_t total = 0;
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) total += actions[i].weight;
  int64_t chosen = below(w, total), i = 0;
  while (chosen >= actions[i].weight) chosen -= actions[i++].weight;
  return actions[i].act(w);
}

// ---- threads

static void *work(void *argument) {
  worker *w = argument;
  for (int d = 0; d < DEVICES; d++) OK(px_stream_new(&w->own[d], px_cuda(d), 0));
  while (now() < deadline || w->read < 2) {  // a slow machine may need long for the first actions
    px_status status = act(w);
    if (status == PX_OUT_OF_MEMORY)
      for (int i = 0; i < SLOTS / 2; i++) clear_item(slot(w));
    else
      OK(status);
  }
  for (int i = 0; i < SLOTS; i++) clear_item(&w->items[i]);
  for (int d = 0; d < DEVICES; d++) px_release(w->own[d]);
  return NULL;
}

static int64_t allocated_bytes(void) {
  int64_t bytes = 0;
  for (int d = 0; d < DEVICES; d++) bytes += px_memory_allocated(d);
  return bytes;
}

static void count_allocations(void) {
  int64_t sum = 0, count;
  for (int d = 0; d < DEVICES; d++) {
    OK(px_memory_stat_get(&count, d, "allocation.all.allocated"));
    sum += count;
  }
  tally("allocations", sum);
}

static void stress(void) {
  const char *seed = getenv("STRESS_SEED"), *seconds = getenv("STRESS_SECONDS");
  worker workers[THREADS] = {0};
  int64_t read = 0, launched = 0;
  setenv("PHLOX_SIM_SEED", seed ? seed : "1", 1);
  simulate(DEVICES);
  px_race_enable(checked, false);
  for (int i = 0; i < DEVICES * 2; i++) OK(px_stream_new(&shared[i / 2][i % 2], px_cuda(i / 2), 0));
  deadline = now() + (seconds ? atof(seconds) : 1);
  for (uint64_t i = 0; i < THREADS; i++) {
    workers[i].state = (seed ? strtoull(seed, NULL, 10) : 1) * THREADS + i;
    CHECK(workers[i].host = calloc(LONGEST, sizeof(int32_t)));
    CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_join(workers[i].thread, NULL) == 0);
    free(workers[i].host);
    read += workers[i].read;
    launched += workers[i].launched;
  }
  for (int i = 0; i < MAILBOXES; i++) clear_item(&mailboxes[i]);
  for (int i = 0; i < DEVICES * 2; i++) px_release(shared[i / 2][i % 2]);
  CHECK(read > THREADS);
  CHECK_EQ(allocated_bytes(), 0);
  if (px_race_count()) fprintf(stderr, "%s\n", px_race_report(0));
  CHECK_EQ(px_race_count(), 0);
  count_allocations();
  tally("launches", launched);
}

PX_TEST(threads_read_correct_contents) { stress(); }

PX_TEST(threads_read_correct_contents_with_delayed_streams) {
  setenv("PHLOX_SIM_DELAY", "100", 1);
  setenv("PHLOX_SIM_POISON", "1", 1);
  stress();
}

PX_TEST(threads_read_correct_contents_with_little_memory) {
  setenv("PHLOX_SIM_MEMORY", "24M", 1);
  stress();
}

PX_TEST(threads_read_correct_contents_in_schedule_mode) {
  setenv("PHLOX_SIM_MODE", "schedule", 1);
  stress();
}

PX_TEST(waiting_threads_have_no_race) {
  checked = true;
  stress();
}
