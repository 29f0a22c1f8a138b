// SPDX-License-Identifier: Apache-2.0
// The race checker on strided tensors of two streams: views without a common element are silent,
// overlapping views are reported.

// The streams race on purpose, and ThreadSanitizer would sometimes report it.
#define TSAN_DEFAULTS "report_bugs=0:atexit_sleep_ms=20"
#include "devices.h"

#include "phlox/memory.h"
#include "phlox/ops.h"

// A view of the 8 x 8 matrix: rows r, r + rs, ... and columns c, c + cs, ... with the count of
// each.
typedef struct window {
  int64_t r, rs, rn, c, cs, cn;
} window;

static px_tensor *view_of(const px_tensor *matrix, window w) {
  px_tensor *view = NULL;
  OK(px_as_strided(&view, matrix, (int64_t[]){w.rn, w.cn}, 2, (int64_t[]){8 * w.rs, w.cs}, 2,
                   &(int64_t){8 * w.r + w.c}));
  return view;
}

static bool touches(window w, int64_t at) {
  for (int64_t i = 0; i < w.rn; i++)
    for (int64_t k = 0; k < w.cn; k++)
      if ((w.r + i * w.rs) * 8 + w.c + k * w.cs == at) return true;
  return false;
}
static bool share(window a, window b) {
  for (int64_t at = 0; at < 64; at++)
    if (touches(a, at) && touches(b, at)) return true;
  return false;
}

static void fill_on(px_stream *stream, px_tensor *view) {
  px_stream *before;
  OK(px_stream_current(&before, px_cuda(0)));
  OK(px_stream_set_current(stream));
  OK(px_fill_(view, px_float(1)));
  OK(px_stream_set_current(before));
}

// True if writes to both views on two streams are reported.
static bool reported(px_tensor *matrix, px_stream *const *streams, window a, window b) {
  PX_SCOPED(px_tensor) first = view_of(matrix, a);
  PX_SCOPED(px_tensor) second = view_of(matrix, b);
  px_race_clear();
  OK(px_device_synchronize(0));
  fill_on(streams[0], first);
  fill_on(streams[1], second);
  return px_race_count() > 0;
}

typedef struct setting {
  px_tensor *matrix;
  px_stream *streams[2];
} setting;
static setting set_up(void) {
  setting s = {0};
  simulate(1);
  px_race_enable(1, false);
  OK(px_zeros(&s.matrix, (int64_t[]){8, 8}, 2, PX_FLOAT32, px_cuda(0), false, false));
  for (int i = 0; i < 2; i++) OK(px_stream_new(&s.streams[i], px_cuda(0), 0));
  OK(px_device_synchronize(0));
  return s;
}
static void tear_down(setting *s) {
  OK(px_device_synchronize(0));
  px_race_enable(0, false);
  px_release(s->matrix);
  px_release(s->streams[0]);
  px_release(s->streams[1]);
}

PX_TEST(disjoint_views_are_silent) {
  setting s = set_up();
  static const struct {
    window a, b;
    bool race;
  } rows[] = {
      {{0, 1, 8, 0, 1, 1}, {0, 1, 8, 1, 1, 1}, false},  // two columns
      {{0, 1, 8, 0, 1, 4}, {0, 1, 8, 4, 1, 4}, false},  // two halves
      {{0, 1, 8, 0, 1, 5}, {0, 1, 8, 4, 1, 4}, true},
      {{0, 1, 8, 0, 2, 4}, {0, 1, 8, 1, 2, 4}, false},  // even and odd
      {{0, 1, 8, 0, 2, 4}, {0, 1, 8, 0, 4, 2}, true},
      {{0, 1, 8, 1, 2, 4}, {0, 1, 8, 0, 4, 2}, false},
      {{0, 2, 4, 0, 1, 8}, {1, 2, 4, 0, 1, 8}, false},  // even and odd rows
      {{0, 2, 4, 0, 1, 8}, {1, 1, 1, 2, 1, 3}, false},  // part of a row in a gap
      {{0, 2, 4, 0, 1, 8}, {1, 1, 1, 2, 1, 7}, true},   // ... that continues after it
      {{0, 1, 8, 3, 1, 1}, {0, 1, 8, 0, 1, 8}, true},   // a column of all
      {{0, 2, 4, 0, 2, 4}, {1, 2, 4, 0, 2, 4}, false},  // x[::2, ::2], x[1::2, ::2]
      {{0, 2, 4, 0, 2, 4}, {0, 2, 4, 1, 2, 4}, false},  // x[::2, ::2], x[::2, 1::2]
      {{0, 2, 4, 0, 2, 4}, {1, 2, 4, 0, 1, 8}, false},  // x[::2, ::2], x[1::2]
      {{0, 2, 4, 0, 2, 4}, {0, 1, 8, 1, 2, 4}, false},  // x[::2, ::2], x[:, 1::2]
      {{0, 2, 4, 0, 2, 4}, {0, 1, 8, 0, 4, 2}, true},   // x[::2, ::2], x[:, ::4]
      {{0, 2, 4, 0, 3, 3}, {1, 2, 4, 0, 2, 4}, false},  // x[::2, ::3], x[1::2, ::2]
      {{0, 2, 4, 0, 3, 3}, {0, 2, 4, 0, 2, 4}, true},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    CHECK_EQ(reported(s.matrix, s.streams, rows[i].a, rows[i].b), rows[i].race);
    CHECK_EQ(reported(s.matrix, s.streams, rows[i].b, rows[i].a), rows[i].race);
  }
  tear_down(&s);
}

PX_TEST(a_report_without_memory_is_counted_and_raised) {
  setting s = set_up();
  int described = 0, bare = 0, n = 1;
  PX_SCOPED(px_tensor) all = view_of(s.matrix, (window){0, 1, 8, 0, 1, 8});
  px_race_enable(1, true);
  for (bool met = true; met; n++) {
    px_race_clear();
    OK(px_device_synchronize(0));
    fill_on(s.streams[0], all);
    OK(px_stream_set_current(s.streams[1]));
    OK(px_fault_arm("alloc", n, true));
    px_status status = px_fill_(all, px_float(1));
    met = px_fault_seen("alloc") >= n;
    px_fault_disarm_all();
    CHECK(status != PX_OK);
    const char *said = px_error_last()->message, *kept = px_race_report(0);
    CHECK_EQ(px_race_count(), status == PX_RUNTIME);
    if (kept) CHECK_TEXT(kept, said);
    if (px_race_count()) *(kept ? &described : &bare) += 1;
    px_error_clear();
  }
  CHECK(described && bare);
  px_race_clear();
  tear_down(&s);
}

static window random_window(void) {
  window v = {.r = rand() % 4, .rs = 1 + rand() % 3, .c = rand() % 4, .cs = 1 + rand() % 3};
  v.rn = 1 + rand() % ((7 - v.r) / v.rs + 1);
  v.cn = 1 + rand() % ((7 - v.c) / v.cs + 1);
  return v;
}

// Random pairs of windows: a common element is always reported.
PX_TEST(overlapping_views_are_reported) {
  setting s = set_up();
  int silent = 0, disjoint = 0;
  srand(1);
  for (int n = 0; n < 2000; n++) {
    window a = random_window(), b = random_window();
    bool raced = reported(s.matrix, s.streams, a, b);
    if (share(a, b)) CHECK(raced);
    disjoint += !share(a, b), silent += !raced;
  }
  CHECK(silent > disjoint * 4 / 5);
  tear_down(&s);
}

// Any strides, including overlapping elements.
typedef struct strided {
  int64_t first, sizes[3], strides[3];
} strided;
static strided random_view(void) {
  strided v = {.first = rand() % 16};
  int64_t available = 63 - v.first;
  for (int d = 0; d < 3; d++) {
    v.strides[d] = 1 + rand() % 17;
    v.sizes[d] = 1 + rand() % 4;
    while ((v.sizes[d] - 1) * v.strides[d] > available) v.sizes[d]--;
    available -= (v.sizes[d] - 1) * v.strides[d];
  }
  return v;
}
static bool overlaps(const strided *v, window w) {
  for (int64_t i = 0; i < v->sizes[0] * v->sizes[1] * v->sizes[2]; i++) {
    int64_t a = i % v->sizes[0], b = i / v->sizes[0] % v->sizes[1];
    int64_t c = i / v->sizes[0] / v->sizes[1];
    if (touches(w, v->first + a * v->strides[0] + b * v->strides[1] + c * v->strides[2]))
      return true;
  }
  return false;
}

PX_TEST(overlapping_reads_of_any_strides_are_reported) {
  setting s = set_up();
  int silent = 0, disjoint = 0;
  srand(1);
  for (int n = 0; n < 2000; n++) {
    strided v = random_view();
    window w = random_window();
    PX_SCOPED(px_tensor) read = NULL;
    PX_SCOPED(px_tensor) sum = NULL;
    PX_SCOPED(px_tensor) written = view_of(s.matrix, w);
    OK(px_as_strided(&read, s.matrix, v.sizes, 3, v.strides, 3, &v.first));
    px_race_clear();
    OK(px_device_synchronize(0));
    OK(px_sum_all(&sum, read, PX_DTYPE_NONE));
    fill_on(s.streams[1], written);
    if (overlaps(&v, w)) CHECK(px_race_count() > 0);
    disjoint += !overlaps(&v, w), silent += px_race_count() == 0;
  }
  CHECK(silent > disjoint / 3);
  tear_down(&s);
}

PX_TEST(a_write_to_a_column_does_not_hide_earlier_writes_to_others) {
  setting s = set_up();
  window all = {0, 1, 8, 0, 1, 8}, column = {0, 1, 8, 2, 1, 1}, other = {0, 1, 8, 5, 1, 1};
  PX_SCOPED(px_tensor) whole = view_of(s.matrix, all);
  PX_SCOPED(px_tensor) part = view_of(s.matrix, column);
  PX_SCOPED(px_tensor) neighbour = view_of(s.matrix, other);
  px_race_clear();
  fill_on(s.streams[0], whole);
  fill_on(s.streams[0], part);
  fill_on(s.streams[1], neighbour);
  CHECK(px_race_count() > 0);
  tear_down(&s);
}

// ---- graphs: a replay has the accesses of its captured work

static px_graph *doubled(const setting *s, px_tensor *t) {
  px_graph *graph;
  OK(px_graph_new(&graph));
  OK(px_stream_set_current(s->streams[0]));
  OK(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  OK(px_mul_(t, t));
  OK(px_graph_end(graph));
  return graph;
}

PX_TEST(an_unordered_replay_races) {
  setting s = set_up();
  px_race_clear();
  OK(px_device_synchronize(0));
  PX_SCOPED(px_graph) graph = doubled(&s, s.matrix);
  CHECK_EQ(px_race_count(), 0);
  fill_on(s.streams[1], s.matrix);  // captured work has not run
  CHECK_EQ(px_race_count(), 0);
  OK(px_stream_set_current(s.streams[0]));
  OK(px_graph_replay(graph));
  CHECK(px_race_count() > 0);
  CHECK(strstr(px_race_report(0), "mul"));
  px_race_clear();
  OK(px_device_synchronize(0));
  OK(px_graph_replay(graph));
  OK(px_graph_replay(graph));
  OK(px_stream_set_current(s.streams[1]));
  OK(px_graph_replay(graph));  // replays of one graph are ordered
  CHECK_EQ(px_race_count(), 0);
  fill_on(s.streams[0], s.matrix);
  CHECK(px_race_count() > 0);
  tear_down(&s);
}

PX_TEST(unordered_work_within_a_capture_races) {
  setting s = set_up();
  PX_SCOPED(px_graph) graph = NULL;
  OK(px_device_synchronize(0));
  px_race_clear();
  OK(px_graph_new(&graph));
  OK(px_stream_set_current(s.streams[0]));
  OK(px_graph_begin(graph, (px_graph_pool){0}, PX_CAPTURE_GLOBAL));
  OK(px_stream_wait_stream(s.streams[1], s.streams[0]));
  fill_on(s.streams[0], s.matrix);
  fill_on(s.streams[1], s.matrix);
  CHECK(px_race_count() > 0);
  OK(px_stream_set_current(s.streams[0]));
  OK(px_stream_wait_stream(s.streams[0], s.streams[1]));
  OK(px_graph_end(graph));
  tear_down(&s);
}
