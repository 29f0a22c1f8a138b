// SPDX-License-Identifier: Apache-2.0
// The race checker against an exact oracle: random programs of streams, events, tensors, copies and
// waits on two simulated devices. The oracle keeps its own vector clocks over the steps and knows
// the elements read and written by each step. The checker must report a step if and only if it
// races, together with a step it races with. Programs without races must give the results of
// sequential execution. In half of the programs, each step waits for exactly the steps it would
// race with, so no report is allowed.
#include "fuzz.h"

#include "devices.h"
#include "phlox/event.h"
#include "phlox/memory.h"

#include <stdarg.h>

enum { STREAMS = 5, EVENTS = 4, SLOTS = 7, PINNED = 5, SIDE = 4, ELEMENTS = SIDE * SIDE };
enum { STEPS = 28, ACCESSES = 4 * STEPS };

// ---- the oracle

typedef struct clock_vector {
  int at[STREAMS];  // the latest step of each stream known to be complete
} clock_vector;
typedef struct access_record {
  uint16_t elements;
  bool write;
  int stream, seq, step;
} access_record;
// A tensor, its expected values and its accesses. Slots 0 to 2 are on the first device, 3 and 4 on
// the second, the others in page-locked memory.
typedef struct slot_state {
  px_tensor *tensor;
  int64_t values[ELEMENTS];
  access_record accesses[ACCESSES];
  int count;
} slot_state;
typedef struct mark {
  px_event *event;
  bool recorded;
  clock_vector known;
} mark;

static px_stream *streams[STREAMS];  // 0 to 2 on the first device, default streams first
static mark marks[EVENTS];           // 0 and 1 for streams of the first device
static slot_state slots[SLOTS];
static int issued[STREAMS], step;
static clock_vector known[STREAMS], host;
static uint64_t racing;         // steps that race with this one
static bool raced, raises;      // so far; a racing step fails, and then counts as not executed
static int64_t planted, clean;  // racing steps, and programs without any
static bool planted_here;
static bool race_free;  // a step that would race waits first, for exactly those steps

// Prints the steps if FUZZ_SHOW=1.
__attribute__((format(printf, 1, 2))) static void show_step(const char *text, ...) {
  va_list list;
  if (!getenv("FUZZ_SHOW")) return;
  va_start(list, text);
  vfprintf(stderr, text, list);
  va_end(list);
}

static int device_of_stream(int s) { return s >= 3; }
static int device_of_slot(int p) { return p >= PINNED ? -1 : p >= 3; }
static int random_stream(int device) {
  return device ? 3 + (int)fuzz_below(2) : (int)fuzz_below(3);
}
static int random_slot(int device) { return device ? 3 + (int)fuzz_below(2) : (int)fuzz_below(3); }
static int pinned_slot(void) { return PINNED + (int)fuzz_below(SLOTS - PINNED); }

static void join(clock_vector *into, const clock_vector *from) {
  for (int s = 0; s < STREAMS; s++)
    if (from->at[s] > into->at[s]) into->at[s] = from->at[s];
}
// The steps complete once all current work of stream s is.
static clock_vector stream_clock(int s) {
  clock_vector m = known[s];
  m.at[s] = issued[s];
  return m;
}
static void host_waits(int s) {
  clock_vector m = stream_clock(s);
  show_step("  the host waits for stream %d\n", s);
  join(&host, &m);
}
static void stream_waits(int s, int other) {
  clock_vector m = stream_clock(other);
  show_step("  stream %d waits for stream %d\n", s, other);
  join(&known[s], &m);
}

// s < 0 is the host.
static bool is_complete(const access_record *t, int s) {
  if (host.at[t->stream] >= t->seq) return true;
  return s >= 0 && (t->stream == s || known[s].at[t->stream] >= t->seq);
}

static void wait_for(const access_record *t, int s) {
  if (s < 0) {
    OK(px_stream_synchronize(streams[t->stream]));
    host_waits(t->stream);
  } else {
    OK(px_stream_wait_stream(streams[s], streams[t->stream]));
    stream_waits(s, t->stream);
  }
}

static void note(int p, uint16_t elements, bool write, int s) {
  show_step("  %s place %d, elements %04x, on stream %d\n", write ? "writes" : "reads", p, elements,
            s);
  for (int i = 0; i < slots[p].count; i++) {
    const access_record *t = &slots[p].accesses[i];
    if ((!write && !t->write) || !(t->elements & elements) || is_complete(t, s)) continue;
    if (race_free)
      wait_for(t, s);
    else
      racing |= (uint64_t)1 << t->step;
  }
  if (s < 0) return;
  CHECK(slots[p].count < ACCESSES);
  slots[p].accesses[slots[p].count++] = (access_record){elements, write, s, issued[s], step};
}
// Removes the accesses of a failed step.
static void forget_step(void) {
  for (int p = 0; p < SLOTS; p++)
    while (slots[p].count && slots[p].accesses[slots[p].count - 1].step == step) slots[p].count--;
}

// ---- reports

static int step_in(const char *text) {
  const char *at = text ? strstr(text, " at program:") : NULL;
  return at ? atoi(at + strlen(" at program:")) : -1;
}

// Checks the report of the step against the oracle. `nothing`: expects the report of a wait without
// a record.
static void compare(px_status status, bool nothing) {
  bool race = racing || nothing;
  int64_t count = px_race_count();
  if (race || count)
    show_step("  races with steps 0x%llx; %s\n", (unsigned long long)racing,
              count ? px_race_report(0) : "no report");
  if (raises ? status != PX_OK : count > 0) CHECK(race);
  if (race) CHECK(count > 0 && (status != PX_OK) == raises);
  if (race) planted++, planted_here = true;
  for (int64_t i = 0; i < count && !nothing; i++) {
    const char *text = px_race_report(i), *second = strchr(text, '\n');
    second = strchr(second + 1, '\n');  // the third line has the earlier step
    CHECK_EQ(step_in(text), step);
    CHECK(racing >> step_in(second) & 1);
  }
  if (status != PX_OK) CHECK(raises && race);
  px_error_clear();
  px_race_clear();
  raced |= racing && !raises;
  if (status != PX_OK) forget_step();
}
static bool executed(px_status status) {
  compare(status, false);
  return status == PX_OK;
}

// ---- views: rows r, r + rs, ... and columns c, c + cs, ... of a matrix
typedef struct window {
  int r, rs, rn, c, cs, cn;
} window;

static window some_window(int rows, int columns) {
  window w = {.rn = rows, .cn = columns, .rs = 1, .cs = 1};
  if ((rows - 1) * 2 < SIDE && fuzz_one_in(3)) w.rs = 2;
  if ((columns - 1) * 2 < SIDE && fuzz_one_in(3)) w.cs = 2;
  w.r = (int)fuzz_below(SIDE - (rows - 1) * w.rs);
  w.c = (int)fuzz_below(SIDE - (columns - 1) * w.cs);
  return w;
}
static window some_rows(int rows) {
  return (window){(int)fuzz_below(SIDE - rows + 1), 1, rows, 0, 1, SIDE};
}
static int element(window w, int i, int k) { return (w.r + i * w.rs) * SIDE + w.c + k * w.cs; }
static uint16_t elements_of(window w) {
  uint16_t set = 0;
  for (int i = 0; i < w.rn; i++)
    for (int k = 0; k < w.cn; k++) set |= (uint16_t)(1u << element(w, i, k));
  return set;
}
static px_tensor *view_of(int p, window w) {
  PX_SCOPED(px_tensor) rows = NULL;
  px_tensor *view = NULL;
  int64_t r = w.r, r_end = w.r + (w.rn - 1) * w.rs + 1, c = w.c;
  int64_t c_end = w.c + (w.cn - 1) * w.cs + 1;
  OK(px_slice(&rows, slots[p].tensor, 0, &r, &r_end, w.rs));
  OK(px_slice(&view, rows, 1, &c, &c_end, w.cs));
  return view;
}

typedef int64_t (*formula)(int64_t to, int64_t from);
static int64_t take(int64_t to, int64_t from) { return from; }
static int64_t plus(int64_t to, int64_t from) { return (int64_t)((uint64_t)to + (uint64_t)from); }
static void compute(int p, window to, int q, window from, formula f) {
  int64_t old[ELEMENTS];
  memcpy(old, slots[q].values, sizeof old);
  for (int i = 0; i < to.rn; i++)
    for (int k = 0; k < to.cn; k++) {
      int64_t *at = &slots[p].values[element(to, i, k)];
      *at = f(*at, old[element(from, i, k)]);
    }
}

// ---- steps

// Begins work on a stream, which becomes its device's current one.
static void begin(int s) {
  OK(px_stream_set_current(streams[s]));
  issued[s]++;
}

// Adds a view to another on the same device, or copies it.
static void work(void) {
  int s = random_stream((int)fuzz_below(2)), device = device_of_stream(s);
  int p = random_slot(device), q = random_slot(device), rows = 1 + (int)fuzz_below(SIDE);
  int columns = 1 + (int)fuzz_below(SIDE);
  window to = some_window(rows, columns), from = some_window(rows, columns);
  if (p == q) from = to;  // partially overlapping views are refused
  PX_SCOPED(px_tensor) target = view_of(p, to);
  PX_SCOPED(px_tensor) source = view_of(q, from);
  bool adds = p == q || fuzz_one_in(2);  // a copy of a tensor to itself is a no-op
  begin(s);
  note(p, elements_of(to), true, s);
  note(q, elements_of(from), false, s);
  if (executed(adds ? px_add_(target, source, px_int(1)) : px_copy_(target, source, false)))
    compute(p, to, q, from, adds ? plus : take);
}

static void fill(void) {
  int s = random_stream((int)fuzz_below(2)), p = random_slot(device_of_stream(s));
  window w = some_window(1 + (int)fuzz_below(SIDE), 1 + (int)fuzz_below(SIDE));
  int64_t value = fuzz_below(1000);
  PX_SCOPED(px_tensor) target = view_of(p, w);
  begin(s);
  note(p, elements_of(w), true, s);
  if (!executed(px_fill_(target, px_int(value)))) return;
  for (int i = 0; i < w.rn; i++)
    for (int k = 0; k < w.cn; k++) slots[p].values[element(w, i, k)] = value;
}

// Replaces the tensor of a slot. The old one is released with work in flight.
static void replace_tensor(void) {
  int s = random_stream((int)fuzz_below(2)), device = device_of_stream(s);
  int to = random_slot(device), p = random_slot(device), q = random_slot(device);
  px_tensor *made = NULL;
  begin(s);
  note(p, 0xffff, false, s);
  note(q, 0xffff, false, s);
  if (!executed(px_add(&made, slots[p].tensor, slots[q].tensor, px_int(1)))) return;
  int64_t sums[ELEMENTS];
  for (int i = 0; i < ELEMENTS; i++) sums[i] = plus(slots[p].values[i], slots[q].values[i]);
  px_release(slots[to].tensor);
  slots[to].tensor = made;
  memcpy(slots[to].values, sums, sizeof sums);
  slots[to].count = 0;
  note(to, 0xffff, true, s);
}

// Copies rows between a device and page-locked memory.
static void transfer(void) {
  int s = random_stream((int)fuzz_below(2)), p = random_slot(device_of_stream(s)),
      q = pinned_slot();
  bool up = fuzz_one_in(2), queued = !fuzz_one_in(4);
  int rows = 1 + (int)fuzz_below(SIDE), a = up ? p : q, b = up ? q : p;
  window to = some_rows(rows), from = some_rows(rows);
  PX_SCOPED(px_tensor) target = view_of(a, to);
  PX_SCOPED(px_tensor) source = view_of(b, from);
  begin(s);
  note(a, elements_of(to), true, s);
  note(b, elements_of(from), false, s);
  if (!executed(px_copy_(target, source, queued))) return;
  compute(a, to, b, from, take);
  if (!queued) host_waits(s);
}

// Copies rows from pageable memory, which the call has read on return.
static void upload(void) {
  int s = random_stream((int)fuzz_below(2)), p = random_slot(device_of_stream(s));
  bool queued = fuzz_one_in(2);
  int64_t numbers[ELEMENTS], sizes[] = {SIDE, SIDE};
  for (int i = 0; i < ELEMENTS; i++) numbers[i] = fuzz_below(1000);
  PX_SCOPED(px_tensor) source = NULL;
  OK(px_tensor_from_data(&source, numbers, 2, sizes, PX_INT64, px_cpu()));
  begin(s);
  note(p, 0xffff, true, s);
  if (!executed(px_copy_(slots[p].tensor, source, queued))) return;
  memcpy(slots[p].values, numbers, sizeof numbers);
  if (!queued) host_waits(s);
}

// Copies rows to the other device on the source's stream, synchronized with the target's stream in
// both directions.
static void copy_across(void) {
  int from_device = (int)fuzz_below(2), s = random_stream(from_device),
      t = random_stream(!from_device);
  int p = random_slot(!from_device), q = random_slot(from_device), rows = 1 + (int)fuzz_below(SIDE);
  window to = some_rows(rows), from = some_rows(rows);
  PX_SCOPED(px_tensor) target = view_of(p, to);
  PX_SCOPED(px_tensor) source = view_of(q, from);
  OK(px_stream_set_current(streams[t]));
  stream_waits(s, t);
  begin(s);
  note(p, elements_of(to), true, s);
  note(q, elements_of(from), false, s);
  if (!executed(px_copy_(target, source, fuzz_one_in(2)))) return;
  compute(p, to, q, from, take);
  stream_waits(t, s);
}

// The host reads or fills rows of page-locked memory.
static void touch_pinned(void) {
  int p = pinned_slot();
  window w = some_rows(1 + (int)fuzz_below(SIDE));
  bool write = fuzz_one_in(2);
  int64_t read[ELEMENTS], value = fuzz_below(1000);
  PX_SCOPED(px_tensor) rows = view_of(p, w);
  note(p, elements_of(w), write, -1);
  px_status status = write ? px_fill_(rows, px_int(value))
                           : px_tensor_read(rows, read, (size_t)(w.rn * SIDE) * sizeof *read);
  if (!executed(status)) return;
  int64_t *mine = &slots[p].values[element(w, 0, 0)];
  for (int i = 0; i < w.rn * SIDE && write; i++) mine[i] = value;
  if (!write && !raced) CHECK(!memcmp(read, mine, (size_t)(w.rn * SIDE) * sizeof *read));
}

// The host reads a device tensor.
static void download(void) {
  int s = random_stream((int)fuzz_below(2)), p = random_slot(device_of_stream(s));
  int64_t read[ELEMENTS];
  begin(s);
  note(p, 0xffff, false, s);
  bool done = executed(px_tensor_read(slots[p].tensor, read, sizeof read));
  host_waits(s);  // even if the read is refused
  if (!done) return;
  if (!raced) CHECK(!memcmp(read, slots[p].values, sizeof read));
}

static void record(void) {
  int e = (int)fuzz_below(EVENTS), s = random_stream(e / 2);
  OK(px_event_record(marks[e].event, streams[s]));
  marks[e].recorded = true;
  marks[e].known = stream_clock(s);
}

static void wait_event(void) {
  int e = (int)fuzz_below(EVENTS), s = (int)fuzz_below(STREAMS);
  if (race_free && !marks[e].recorded) return;  // a wait without a record counts as a race
  compare(px_stream_wait_event(streams[s], marks[e].event), !marks[e].recorded);
  if (marks[e].recorded) join(&known[s], &marks[e].known);
}

static void host_event(void) {
  mark *m = &marks[fuzz_below(EVENTS)];
  bool done = true;
  if (fuzz_one_in(2))
    OK(px_event_query(&done, m->event));
  else
    OK(px_event_synchronize(m->event));
  if (m->recorded && done) join(&host, &m->known);
}

static void wait_stream(void) {
  int s = (int)fuzz_below(STREAMS), other = (int)fuzz_below(STREAMS);
  OK(px_stream_wait_stream(streams[s], streams[other]));
  if (s != other) stream_waits(s, other);
}

static void host_stream(void) {
  int s = (int)fuzz_below(STREAMS);
  bool done = true;
  if (fuzz_one_in(2))
    OK(px_stream_query(&done, streams[s]));
  else
    OK(px_stream_synchronize(streams[s]));
  if (done) host_waits(s);
}

static void host_device(void) {
  int device = (int)fuzz_below(2);
  if (!fuzz_one_in(3)) return;
  OK(px_device_synchronize(device));
  for (int s = 0; s < STREAMS; s++)
    if (device_of_stream(s) == device) host_waits(s);
}

// Orders nothing.
static void record_stream(void) {
  int s = (int)fuzz_below(STREAMS), p = random_slot(device_of_stream(s));
  OK(px_tensor_record_stream(slots[p].tensor, streams[s]));
}

// ---- programs

static void open_slot(int p) {
  int64_t sizes[] = {SIDE, SIDE};
  for (int i = 0; i < ELEMENTS; i++) slots[p].values[i] = fuzz_below(1000);
  PX_SCOPED(px_tensor) numbers = NULL;
  OK(px_tensor_from_data(&numbers, slots[p].values, 2, sizes, PX_INT64, px_cpu()));
  slots[p].count = 0;
  if (device_of_slot(p) < 0)
    OK(px_tensor_empty_pinned(&slots[p].tensor, 2, sizes, PX_INT64));
  else
    OK(px_tensor_empty(&slots[p].tensor, 2, sizes, PX_INT64, px_cuda(device_of_slot(p))));
  OK(px_copy_(slots[p].tensor, numbers, false));
}

static void synchronize_all(void) {
  OK(px_device_synchronize(0));
  OK(px_device_synchronize(1));
}

static void open_program(void) {
  px_race_enable(0, false);
  OK(px_stream_set_current(streams[0]));
  OK(px_stream_set_current(streams[3]));
  for (int p = 0; p < SLOTS; p++) open_slot(p);
  for (int e = 0; e < EVENTS; e++) {
    marks[e] = (mark){.recorded = false};
    OK(px_event_new(&marks[e].event, 0));
  }
  synchronize_all();
  memset(issued, 0, sizeof issued);
  memset(known, 0, sizeof known);
  host = (clock_vector){{0}};
  raced = planted_here = false, raises = fuzz_one_in(2);
  race_free = fuzz_case % 4 >= 2;
  px_race_enable(1, raises);
  px_race_clear();
}

static void close_program(void) {
  px_site_set(NULL, 0);
  px_race_enable(0, false);
  synchronize_all();
  for (int p = 0; p < SLOTS; p++) {
    int64_t numbers[ELEMENTS];
    OK(px_tensor_read(slots[p].tensor, numbers, sizeof numbers));
    if (!raced) CHECK(!memcmp(numbers, slots[p].values, sizeof numbers));
    px_release(slots[p].tensor);
  }
  for (int e = 0; e < EVENTS; e++) px_release(marks[e].event);
}

#define KIND(function) \
  { #function, function }
static const struct {
  const char *name;
  void (*run)(void);
} kinds[] = {KIND(work),        KIND(work),        KIND(fill),         KIND(replace_tensor),
             KIND(transfer),    KIND(transfer),    KIND(upload),       KIND(copy_across),
             KIND(download),    KIND(record),      KIND(record),       KIND(wait_event),
             KIND(wait_event),  KIND(host_event),  KIND(touch_pinned), KIND(wait_stream),
             KIND(wait_stream), KIND(host_stream), KIND(host_device),  KIND(record_stream)};

static void program(void) {
  open_program();
  int count = 1 + (int)fuzz_below(STEPS);
  for (step = 0; step < count; step++) {
    racing = 0;
    px_site_set("program", step);
    int64_t kind = fuzz_below(sizeof kinds / sizeof *kinds);
    show_step("step %d: %s\n", step, kinds[kind].name);
    kinds[kind].run();
    CHECK_EQ(px_race_count(), 0);
  }
  CHECK(!race_free || !planted_here);
  clean += !planted_here;
  close_program();
}

// FUZZ_SEED also seeds the simulator's order.
PX_TEST(programs) {
  setenv("PHLOX_SIM_MODE", "schedule", 0);
  setenv("PHLOX_SIM_SEED", getenv("FUZZ_SEED") ? getenv("FUZZ_SEED") : "1", 0);
  simulate(2);
  for (int s = 0; s < STREAMS; s++) {
    px_device device = px_cuda(device_of_stream(s));
    if (s == 0 || s == 3)
      OK(px_stream_default(&streams[s], device));
    else
      OK(px_stream_new(&streams[s], device, 0));
  }
  fuzz_counts = NULL;
  fuzz_run("programs", program);
  tally("races", planted);
  tally("race-free", clean);
}
