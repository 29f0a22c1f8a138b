// SPDX-License-Identifier: Apache-2.0
// The race checker beside an exact oracle: random programs of streams, events, tensors, copies and
// waits on two simulated devices. The oracle has vector clocks of its own, over the steps of the
// program, and knows of each tensor which elements a step reads and writes. A step is reported if
// it races, and only then, beside a step that it races with; the numbers of a program without races
// are those of its steps one after the other. In half of the programs each step
// waits for what it would race with, and for no more, so that nothing may be reported.
#include "fuzz.h"

#include "devices.h"
#include "phlox/event.h"
#include "phlox/memory.h"

#include <stdarg.h>

enum { STREAMS = 5, EVENTS = 4, PLACES = 7, PINNED = 5, SIDE = 4, ELEMENTS = SIDE * SIDE };
enum { STEPS = 28, ACCESSES = 4 * STEPS };

// ---- the oracle

typedef struct moments {
  int at[STREAMS];  // the latest step of each stream that is known to be over
} moments;
typedef struct touch {
  uint16_t elements;
  bool write;
  int stream, seq, step;
} touch;
// A tensor, what it should hold, and who touched it. Places 0 to 2 are on the first device, 3 and 4
// on the second, the others in page-locked memory.
typedef struct place {
  px_tensor *tensor;
  int64_t values[ELEMENTS];
  touch touches[ACCESSES];
  int count;
} place;
typedef struct mark {
  px_event *event;
  bool recorded;
  moments known;
} mark;

static px_stream *streams[STREAMS];  // 0 to 2 on the first device, default streams first
static mark marks[EVENTS];           // 0 and 1 for streams of the first device
static place places[PLACES];
static int issued[STREAMS], step;
static moments known[STREAMS], host;
static uint64_t racing;         // steps that this one races with
static bool raced, raises;      // so far; a step that races fails, and then it has not raced
static int64_t planted, clean;  // steps that raced, and programs of which none did
static bool planted_here;
static bool peaceful;  // a step that would race waits first, and for no more than it must

// FUZZ_SHOW=1 prints the steps.
__attribute__((format(printf, 1, 2))) static void tell(const char *text, ...) {
  va_list list;
  if (!getenv("FUZZ_SHOW")) return;
  va_start(list, text);
  vfprintf(stderr, text, list);
  va_end(list);
}

static int device_of_stream(int s) { return s >= 3; }
static int device_of_place(int p) { return p >= PINNED ? -1 : p >= 3; }
static int stream_of(int device) { return device ? 3 + (int)fuzz_below(2) : (int)fuzz_below(3); }
static int place_of(int device) { return device ? 3 + (int)fuzz_below(2) : (int)fuzz_below(3); }
static int pinned_place(void) { return PINNED + (int)fuzz_below(PLACES - PINNED); }

static void join(moments *into, const moments *from) {
  for (int s = 0; s < STREAMS; s++)
    if (from->at[s] > into->at[s]) into->at[s] = from->at[s];
}
// What is over when all that stream s has so far is over.
static moments until_now(int s) {
  moments m = known[s];
  m.at[s] = issued[s];
  return m;
}
static void host_waits(int s) {
  moments m = until_now(s);
  tell("  the host waits for stream %d\n", s);
  join(&host, &m);
}
static void stream_waits(int s, int other) {
  moments m = until_now(other);
  tell("  stream %d waits for stream %d\n", s, other);
  join(&known[s], &m);
}

// s < 0: the host.
static bool is_over(const touch *t, int s) {
  if (host.at[t->stream] >= t->seq) return true;
  return s >= 0 && (t->stream == s || known[s].at[t->stream] >= t->seq);
}

static void wait_for(const touch *t, int s) {
  if (s < 0) {
    OK(px_stream_synchronize(streams[t->stream]));
    host_waits(t->stream);
  } else {
    OK(px_stream_wait_stream(streams[s], streams[t->stream]));
    stream_waits(s, t->stream);
  }
}

static void note(int p, uint16_t elements, bool write, int s) {
  tell("  %s place %d, elements %04x, on stream %d\n", write ? "writes" : "reads", p, elements, s);
  for (int i = 0; i < places[p].count; i++) {
    const touch *t = &places[p].touches[i];
    if ((!write && !t->write) || !(t->elements & elements) || is_over(t, s)) continue;
    if (peaceful)
      wait_for(t, s);
    else
      racing |= (uint64_t)1 << t->step;
  }
  if (s < 0) return;
  CHECK(places[p].count < ACCESSES);
  places[p].touches[places[p].count++] = (touch){elements, write, s, issued[s], step};
}
// The touches of a step that did not come to pass.
static void forget_step(void) {
  for (int p = 0; p < PLACES; p++)
    while (places[p].count && places[p].touches[places[p].count - 1].step == step)
      places[p].count--;
}

// ---- reports

static int step_in(const char *text) {
  const char *at = text ? strstr(text, " at program:") : NULL;
  return at ? atoi(at + strlen(" at program:")) : -1;
}

// Whether the step was reported as the oracle says. `nothing`: as a wait on nothing.
static void compare(px_status status, bool nothing) {
  bool race = racing || nothing;
  int64_t count = px_race_count();
  if (race || count)
    tell("  races with steps 0x%llx; %s\n", (unsigned long long)racing,
         count ? px_race_report(0) : "no report");
  if (raises ? status != PX_OK : count > 0) CHECK(race);
  if (race) CHECK(count > 0 && (status != PX_OK) == raises);
  if (race) planted++, planted_here = true;
  for (int64_t i = 0; i < count && !nothing; i++) {
    const char *text = px_race_report(i), *second = strchr(text, '\n');
    second = strchr(second + 1, '\n');  // the earlier step is in the third line
    CHECK_EQ(step_in(text), step);
    CHECK(racing >> step_in(second) & 1);
  }
  if (status != PX_OK) CHECK(raises && race);
  px_error_clear();
  px_race_clear();
  raced |= racing && !raises;
  if (status != PX_OK) forget_step();
}
static bool came_to_pass(px_status status) {
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
static px_tensor *look(int p, window w) {
  PX_SCOPED(px_tensor) rows = NULL;
  px_tensor *view = NULL;
  int64_t r = w.r, r_end = w.r + (w.rn - 1) * w.rs + 1, c = w.c;
  int64_t c_end = w.c + (w.cn - 1) * w.cs + 1;
  OK(px_slice(&rows, places[p].tensor, 0, &r, &r_end, w.rs));
  OK(px_slice(&view, rows, 1, &c, &c_end, w.cs));
  return view;
}

typedef int64_t (*formula)(int64_t to, int64_t from);
static int64_t take(int64_t to, int64_t from) { return from; }
static int64_t plus(int64_t to, int64_t from) { return (int64_t)((uint64_t)to + (uint64_t)from); }
static void compute(int p, window to, int q, window from, formula f) {
  int64_t old[ELEMENTS];
  memcpy(old, places[q].values, sizeof old);
  for (int i = 0; i < to.rn; i++)
    for (int k = 0; k < to.cn; k++) {
      int64_t *at = &places[p].values[element(to, i, k)];
      *at = f(*at, old[element(from, i, k)]);
    }
}

// ---- steps

// Begins work on a stream, which becomes its device's current one.
static void begin(int s) {
  OK(px_stream_set_current(streams[s]));
  issued[s]++;
}

// One view is added to another of its device, or copied.
static void work(void) {
  int s = stream_of((int)fuzz_below(2)), device = device_of_stream(s);
  int p = place_of(device), q = place_of(device), rows = 1 + (int)fuzz_below(SIDE);
  int columns = 1 + (int)fuzz_below(SIDE);
  window to = some_window(rows, columns), from = some_window(rows, columns);
  if (p == q) from = to;  // views that overlap by part are refused
  PX_SCOPED(px_tensor) target = look(p, to);
  PX_SCOPED(px_tensor) source = look(q, from);
  bool adds = p == q || fuzz_one_in(2);  // a copy of a tensor to itself is no work
  begin(s);
  note(p, elements_of(to), true, s);
  note(q, elements_of(from), false, s);
  if (came_to_pass(adds ? px_add_(target, source, px_int(1)) : px_copy_(target, source, false)))
    compute(p, to, q, from, adds ? plus : take);
}

static void fill(void) {
  int s = stream_of((int)fuzz_below(2)), p = place_of(device_of_stream(s));
  window w = some_window(1 + (int)fuzz_below(SIDE), 1 + (int)fuzz_below(SIDE));
  int64_t value = fuzz_below(1000);
  PX_SCOPED(px_tensor) target = look(p, w);
  begin(s);
  note(p, elements_of(w), true, s);
  if (!came_to_pass(px_fill_(target, px_int(value)))) return;
  for (int i = 0; i < w.rn; i++)
    for (int k = 0; k < w.cn; k++) places[p].values[element(w, i, k)] = value;
}

// A new tensor takes a place, whose old one is released with work on it under way.
static void renew(void) {
  int s = stream_of((int)fuzz_below(2)), device = device_of_stream(s);
  int to = place_of(device), p = place_of(device), q = place_of(device);
  px_tensor *made = NULL;
  begin(s);
  note(p, 0xffff, false, s);
  note(q, 0xffff, false, s);
  if (!came_to_pass(px_add(&made, places[p].tensor, places[q].tensor, px_int(1)))) return;
  int64_t sums[ELEMENTS];
  for (int i = 0; i < ELEMENTS; i++) sums[i] = plus(places[p].values[i], places[q].values[i]);
  px_release(places[to].tensor);
  places[to].tensor = made;
  memcpy(places[to].values, sums, sizeof sums);
  places[to].count = 0;
  note(to, 0xffff, true, s);
}

// Rows go between a device and page-locked memory.
static void transfer(void) {
  int s = stream_of((int)fuzz_below(2)), p = place_of(device_of_stream(s)), q = pinned_place();
  bool up = fuzz_one_in(2), queued = !fuzz_one_in(4);
  int rows = 1 + (int)fuzz_below(SIDE), a = up ? p : q, b = up ? q : p;
  window to = some_rows(rows), from = some_rows(rows);
  PX_SCOPED(px_tensor) target = look(a, to);
  PX_SCOPED(px_tensor) source = look(b, from);
  begin(s);
  note(a, elements_of(to), true, s);
  note(b, elements_of(from), false, s);
  if (!came_to_pass(px_copy_(target, source, queued))) return;
  compute(a, to, b, from, take);
  if (!queued) host_waits(s);
}

// Rows come from pageable memory, which the call has left when it returns.
static void upload(void) {
  int s = stream_of((int)fuzz_below(2)), p = place_of(device_of_stream(s));
  bool queued = fuzz_one_in(2);
  int64_t numbers[ELEMENTS], sizes[] = {SIDE, SIDE};
  for (int i = 0; i < ELEMENTS; i++) numbers[i] = fuzz_below(1000);
  PX_SCOPED(px_tensor) source = NULL;
  OK(px_tensor_from_data(&source, numbers, 2, sizes, PX_INT64, px_cpu()));
  begin(s);
  note(p, 0xffff, true, s);
  if (!came_to_pass(px_copy_(places[p].tensor, source, queued))) return;
  memcpy(places[p].values, numbers, sizeof numbers);
  if (!queued) host_waits(s);
}

// Rows go to the other device: on the source's stream, which waits for the target's and is waited
// for.
static void cross(void) {
  int from_device = (int)fuzz_below(2), s = stream_of(from_device), t = stream_of(!from_device);
  int p = place_of(!from_device), q = place_of(from_device), rows = 1 + (int)fuzz_below(SIDE);
  window to = some_rows(rows), from = some_rows(rows);
  PX_SCOPED(px_tensor) target = look(p, to);
  PX_SCOPED(px_tensor) source = look(q, from);
  OK(px_stream_set_current(streams[t]));
  stream_waits(s, t);
  begin(s);
  note(p, elements_of(to), true, s);
  note(q, elements_of(from), false, s);
  if (!came_to_pass(px_copy_(target, source, fuzz_one_in(2)))) return;
  compute(p, to, q, from, take);
  stream_waits(t, s);
}

// The host reads or fills rows of page-locked memory.
static void touch_pinned(void) {
  int p = pinned_place();
  window w = some_rows(1 + (int)fuzz_below(SIDE));
  bool write = fuzz_one_in(2);
  int64_t read[ELEMENTS], value = fuzz_below(1000);
  PX_SCOPED(px_tensor) rows = look(p, w);
  note(p, elements_of(w), write, -1);
  px_status status = write ? px_fill_(rows, px_int(value))
                           : px_tensor_read(rows, read, (size_t)(w.rn * SIDE) * sizeof *read);
  if (!came_to_pass(status)) return;
  int64_t *mine = &places[p].values[element(w, 0, 0)];
  for (int i = 0; i < w.rn * SIDE && write; i++) mine[i] = value;
  if (!write && !raced) CHECK(!memcmp(read, mine, (size_t)(w.rn * SIDE) * sizeof *read));
}

// The host reads a tensor of a device.
static void download(void) {
  int s = stream_of((int)fuzz_below(2)), p = place_of(device_of_stream(s));
  int64_t read[ELEMENTS];
  begin(s);
  note(p, 0xffff, false, s);
  bool done = came_to_pass(px_tensor_read(places[p].tensor, read, sizeof read));
  host_waits(s);  // also before it is refused
  if (!done) return;
  if (!raced) CHECK(!memcmp(read, places[p].values, sizeof read));
}

static void record(void) {
  int e = (int)fuzz_below(EVENTS), s = stream_of(e / 2);
  OK(px_event_record(marks[e].event, streams[s]));
  marks[e].recorded = true;
  marks[e].known = until_now(s);
}

static void wait_event(void) {
  int e = (int)fuzz_below(EVENTS), s = (int)fuzz_below(STREAMS);
  if (peaceful && !marks[e].recorded) return;  // a wait on nothing counts as a race
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
static void mention(void) {
  int s = (int)fuzz_below(STREAMS), p = place_of(device_of_stream(s));
  OK(px_tensor_record_stream(places[p].tensor, streams[s]));
}

// ---- programs

static void open_place(int p) {
  int64_t sizes[] = {SIDE, SIDE};
  for (int i = 0; i < ELEMENTS; i++) places[p].values[i] = fuzz_below(1000);
  PX_SCOPED(px_tensor) numbers = NULL;
  OK(px_tensor_from_data(&numbers, places[p].values, 2, sizes, PX_INT64, px_cpu()));
  places[p].count = 0;
  if (device_of_place(p) < 0)
    OK(px_tensor_empty_pinned(&places[p].tensor, 2, sizes, PX_INT64));
  else
    OK(px_tensor_empty(&places[p].tensor, 2, sizes, PX_INT64, px_cuda(device_of_place(p))));
  OK(px_copy_(places[p].tensor, numbers, false));
}

static void synchronize_all(void) {
  OK(px_device_synchronize(0));
  OK(px_device_synchronize(1));
}

static void open_program(void) {
  px_race_enable(0, false);
  OK(px_stream_set_current(streams[0]));
  OK(px_stream_set_current(streams[3]));
  for (int p = 0; p < PLACES; p++) open_place(p);
  for (int e = 0; e < EVENTS; e++) {
    marks[e] = (mark){.recorded = false};
    OK(px_event_new(&marks[e].event, 0));
  }
  synchronize_all();
  memset(issued, 0, sizeof issued);
  memset(known, 0, sizeof known);
  host = (moments){{0}};
  raced = planted_here = false, raises = fuzz_one_in(2);
  peaceful = fuzz_case % 4 >= 2;
  px_race_enable(1, raises);
  px_race_clear();
}

static void close_program(void) {
  px_site_set(NULL, 0);
  px_race_enable(0, false);
  synchronize_all();
  for (int p = 0; p < PLACES; p++) {
    int64_t numbers[ELEMENTS];
    OK(px_tensor_read(places[p].tensor, numbers, sizeof numbers));
    if (!raced) CHECK(!memcmp(numbers, places[p].values, sizeof numbers));
    px_release(places[p].tensor);
  }
  for (int e = 0; e < EVENTS; e++) px_release(marks[e].event);
}

#define KIND(function) \
  { #function, function }
static const struct {
  const char *name;
  void (*run)(void);
} kinds[] = {KIND(work),        KIND(work),        KIND(fill),         KIND(renew),
             KIND(transfer),    KIND(transfer),    KIND(upload),       KIND(cross),
             KIND(download),    KIND(record),      KIND(record),       KIND(wait_event),
             KIND(wait_event),  KIND(host_event),  KIND(touch_pinned), KIND(wait_stream),
             KIND(wait_stream), KIND(host_stream), KIND(host_device),  KIND(mention)};

static void program(void) {
  open_program();
  int count = 1 + (int)fuzz_below(STEPS);
  for (step = 0; step < count; step++) {
    racing = 0;
    px_site_set("program", step);
    int64_t kind = fuzz_below(sizeof kinds / sizeof *kinds);
    tell("step %d: %s\n", step, kinds[kind].name);
    kinds[kind].run();
    CHECK_EQ(px_race_count(), 0);
  }
  CHECK(!peaceful || !planted_here);
  clean += !planted_here;
  close_program();
}

// FUZZ_SEED is the seed of the simulator's order, too.
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
