// SPDX-License-Identifier: Apache-2.0
// Convolutions of each channel by itself (depthwise), of float images: forward and the gradient of
// the input where kernels go by steps or images are small (others are in conv_depth.c), and the
// gradient of the weight.
//
// The source is laid into a plane with zeros about it, in the cache; one that is gone over by steps
// into a plane for each remainder, so that what neighbours meet lies together. Then each place of
// the kernel, a tap, meets what lies at a distance of its own from the result, and a plane of
// results is one line: those between its rows nobody wants. The gradient of the input has such a
// plane for each remainder of the steps, which are laid together at the end.
//
// The gradient of the weight has for each tap the products of the results' gradient, with zeros
// between its rows, and what lies at the tap's distance. As zero times what is not finite would
// count, it is computed in another way if the sums are not finite.
#include "cpu/conv.h"
#include "cpu/simd_wide.h"
#include "cpu/threads.h"

#include <stdlib.h>

// Steps and taps at most; taps of the weight's gradient that are summed together; lanes.
enum { MOST_STEP = 2, MOST_TAPS = 49, TOGETHER = 9, MOST_LANES = 16 };
// Elements of the source's planes in the cache, and those of its fewest rows at most; and work for
// a thread. Of the weight's gradient: units at least, where channels are few, and elements of
// an image that a unit takes from channels side by side, as the next image lies far away.
enum { NEAR = 8 * 1024, MOST_NEAR = 32 * 1024, GRAIN = 64 * 1024, UNITS = 32, BESIDE = 1024 };

// A place of the kernel, and how far from a result's place in its plane lies what it meets.
typedef struct tap {
  int64_t weight, offset;
} tap;

#include "cpu/conv_planes_rows.h"
#if defined(__AVX2__)
#define WIDE_NAMES
#include "cpu/conv_planes_rows.h"
#endif

typedef struct lines {
  void (*copy)(const float *from, int64_t n, float *to);
  void (*take_apart)(const float *from, int64_t n, float *even, float *odd);
  void (*lay_in_turn)(const float *even, const float *odd, int64_t n, float *to);
  void (*sum)(const tap *taps, int64_t n, const float *weight, float bias, const float *source,
              int64_t length, float *to);
  void (*multiply)(const tap *taps, const float *source, const float *grad, int64_t length,
                   float totals[TOGETHER][MOST_LANES]);
} lines;
static const lines *choose_lines(void) {
#define LINES(w) \
  { copy_##w, take_apart_##w, lay_in_turn_##w, sum_##w, multiply_##w }
  static const lines narrow = LINES(vf);
#if defined(__AVX2__)
  static const lines wide = LINES(wf);
  if (px_cpu_level_used() >= PX_CPU_AVX512) return &wide;
#endif
#undef LINES
  return &narrow;
}

// Rows or columns of a convolution: how the places of each plane of results meet the source.
typedef struct side {
  conv_axis to[MOST_STEP];
  int64_t size, grid;        // of results, and of the longest plane of them
  int64_t results, sources;  // planes of each: one of the two is 1
  int64_t low, reach;        // the first position of a source's plane, and how many more there are
} side;
static side side_of(bool back, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
                    int64_t dilation) {
  side s = {.size = back ? in : out, .results = back ? stride : 1, .sources = back ? 1 : stride};
  int64_t high = 0;
  s.grid = px__ceil_div(s.size, s.results);
  for (int64_t r = 0; r < s.results; r++) {
    s.to[r] = back ? px__conv_axis_back(in, out, kernel, stride, pad, dilation, r)
                   : px__conv_axis_forward(in, out, kernel, stride, pad, dilation);
    for (int64_t j = 0; j < s.to[r].count; j++) {
      int64_t at = px__conv_floor(px__conv_at(&s.to[r], j), s.sources);
      if (at < s.low) s.low = at;
      if (at > high) high = at;
    }
  }
  s.reach = high - s.low;
  return s;
}

typedef struct planes {
  const conv *t;
  const lines *by;
  const float *source;
  side y, x;
  int64_t height, width;        // of the source
  int64_t pitch, rows, length;  // of a plane: of its rows, them all, and of the line of results
  int64_t plane;                // its elements
  int64_t band, bands;          // rows of results in each, and how many
  tap taps[MOST_TAPS + TOGETHER];
  int64_t first[MOST_STEP * MOST_STEP + 1];  // the taps of each plane of results
  // Of the weight's gradient: parts of images and bands that are summed by themselves, channels of
  // a unit, and sums.
  int64_t parts, beside;
  float *sums;
  bool failed;  // atomic: no memory
} planes;

static void add_tap(planes *p, int64_t at, int64_t ry, int64_t rx, int64_t jy, int64_t jx) {
  const conv_axis *y = &p->y.to[ry], *x = &p->x.to[rx];
  int64_t sees_y = px__conv_at(y, jy), row = px__conv_floor(sees_y, p->y.sources);
  int64_t sees_x = px__conv_at(x, jx), column = px__conv_floor(sees_x, p->x.sources);
  int64_t plane = (sees_y - row * p->y.sources) * p->x.sources + sees_x - column * p->x.sources;
  p->taps[at].weight = (y->first + jy * y->every) * p->t->kw + x->first + jx * x->every;
  p->taps[at].offset = plane * p->plane + (row - p->y.low) * p->pitch + column - p->x.low;
}
static void list_taps(planes *p) {
  int64_t count = 0;
  for (int64_t r = 0; r < p->y.results * p->x.results; r++) {
    int64_t ry = r / p->x.results, rx = r % p->x.results;
    p->first[r] = count;
    for (int64_t jy = 0; jy < p->y.to[ry].count; jy++)
      for (int64_t jx = 0; jx < p->x.to[rx].count; jx++) add_tap(p, count++, ry, rx, jy, jx);
  }
  p->first[p->y.results * p->x.results] = count;
}
// False: not a convolution for this way.
static bool plan(planes *p, const conv *t) {
  bool back = t->what == 'i', flat = t->d == 1 && t->od == 1 && t->kd == 1;
  bool steps = t->sh <= MOST_STEP && t->sw <= MOST_STEP;
  if (t->dtype != PX_FLOAT32 || t->cg != 1 || t->og != 1 || !flat || !steps) return false;
  if (t->places == 1 || t->places > MOST_TAPS) return false;
  *p = (planes){.t = t, .by = choose_lines(), .source = back ? t->grad : t->in};
  p->height = back ? t->oh : t->h, p->width = back ? t->ow : t->w;
  p->y = side_of(back, t->h, t->oh, t->kh, t->sh, t->ph, t->dh);
  p->x = side_of(back, t->w, t->ow, t->kw, t->sw, t->pw, t->dw);
  p->pitch = p->x.grid + p->x.reach;
  int64_t row = p->pitch * p->y.sources * p->x.sources;
  if (row * (1 + p->y.reach) > MOST_NEAR) return false;
  p->band = NEAR / row - p->y.reach;
  if (p->band < 1 + p->y.reach) p->band = 1 + p->y.reach;
  if (p->band > p->y.grid) p->band = p->y.grid;
  p->bands = px__ceil_div(p->y.grid, p->band);
  p->rows = p->band + p->y.reach, p->plane = p->rows * p->pitch;
  p->length = (p->band - 1) * p->pitch + p->x.grid;
  list_taps(p);
  return true;
}

// A thread's room, all zeros: for the planes of a source, and behind them for so many lines of
// results, or of their gradient. Vectors may reach beyond a line.
static int64_t source_size(const planes *p) {
  return p->y.sources * p->x.sources * p->plane + 2 * MOST_LANES;
}
static int64_t line_size(const planes *p) { return p->band * p->pitch + 2 * MOST_LANES; }
static float *room_of(const planes *p, int64_t count) {
  return calloc((size_t)(source_size(p) + count * line_size(p)), sizeof(float));
}

// A row of the source into that of one plane, or into those of even and odd positions. Zeros are
// there.
static void lay_row(const planes *p, const float *from, float *to) {
  int64_t low = p->x.low, longest = (p->pitch + low) * p->x.sources;
  int64_t n = p->width < longest ? p->width : longest;
  if (n <= 0) return;
  if (p->x.sources == 1)
    p->by->copy(from, n, to - low);
  else
    p->by->take_apart(from, n, to - low, to - low + p->plane);
}
static void lay(const planes *p, const float *image, int64_t band, float *to) {
  for (int64_t fy = 0; fy < p->y.sources; fy++, to += p->x.sources * p->plane)
    for (int64_t i = 0; i < p->rows; i++) {
      int64_t y = (band * p->band + i + p->y.low) * p->y.sources + fy;
      if (y >= 0 && y < p->height)
        lay_row(p, image + y * p->width, to + i * p->pitch);
      else if (p->bands > 1)
        for (int64_t fx = 0; fx < p->x.sources; fx++)
          memset(to + fx * p->plane + i * p->pitch, 0, (size_t)p->pitch * sizeof *to);
    }
}

// ---- forward, and the gradient of the input

// Writes the rows of a band of the results whose rows are `ry`-th.
static void write_rows(const planes *p, const float *line, int64_t band, int64_t ry, float *image) {
  for (int64_t i = 0; i < p->band; i++, line += p->pitch) {
    int64_t y = (band * p->band + i) * p->y.results + ry;
    if (y >= p->y.size) return;
    if (p->x.results == 1)
      p->by->copy(line, p->x.size, image + y * p->x.size);
    else
      p->by->lay_in_turn(line, line + line_size(p), p->x.size, image + y * p->x.size);
  }
}
static void run_plane(const planes *p, int64_t image, int64_t band, float *room) {
  const conv *t = p->t;
  int64_t channel = image % t->c;
  const float *weight = (const float *)t->weight + channel * t->places;
  float bias = t->bias ? ((const float *)t->bias)[channel] : 0, *line = room + source_size(p);
  lay(p, p->source + image * p->height * p->width, band, room);
  for (int64_t ry = 0; ry < p->y.results; ry++) {
    for (int64_t rx = 0; rx < p->x.results; rx++) {
      const int64_t *first = &p->first[ry * p->x.results + rx];
      p->by->sum(p->taps + first[0], first[1] - first[0], weight, bias, room, p->length,
                 line + rx * line_size(p));
    }
    write_rows(p, line, band, ry, (float *)t->out + image * p->y.size * p->x.size);
  }
}
static void run_planes(void *ctx, int64_t begin, int64_t end) {
  planes *p = ctx;
  float *room = room_of(p, p->x.results);
  if (!room) __atomic_store_n(&p->failed, true, __ATOMIC_RELAXED);
  int64_t work = 0;
  for (int64_t i = begin; room && i < end && !px__work_stopped(&work, p->length); i++)
    run_plane(p, i / p->bands, i % p->bands, room);
  free(room);
}

// ---- the gradient of the weight

static void lay_grad(const planes *p, const float *image, int64_t band, float *to) {
  for (int64_t i = 0; i < p->band; i++, to += p->pitch) {
    int64_t y = band * p->band + i;
    if (y < p->y.size)
      p->by->copy(image + y * p->x.size, p->x.size, to);
    else
      memset(to, 0, (size_t)p->x.size * sizeof *to);
  }
}
typedef float products[TOGETHER][MOST_LANES];
static int64_t groups_of(const conv *t) { return px__ceil_div(t->places, TOGETHER); }
static void add_image(const planes *p, int64_t image, int64_t band, float *room, products *totals) {
  const conv *t = p->t;
  float *grad = room + source_size(p);
  lay(p, p->source + image * p->height * p->width, band, room);
  lay_grad(p, (const float *)t->grad + image * t->p, band, grad);
  for (int64_t g = 0; g < groups_of(t); g++)
    p->by->multiply(p->taps + g * TOGETHER, room, grad, p->length, totals[g]);
}
static void write_sums(const conv *t, const products *totals, float *to) {
  for (int64_t k = 0; k < t->places; k++) {
    to[k] = 0;
    for (int64_t l = 0; l < MOST_LANES; l++) to[k] += totals[k / TOGETHER][k % TOGETHER][l];
  }
}
// A part of channels [first, last): images and bands one after the other.
static void sum_part(const planes *p, int64_t first, int64_t last, int64_t part, float *room,
                     products *totals) {
  const conv *t = p->t;
  int64_t pieces = t->n * p->bands, groups = groups_of(t), work = 0;
  memset(totals, 0, (size_t)((last - first) * groups) * sizeof *totals);
  for (int64_t i = pieces * part / p->parts; i < pieces * (part + 1) / p->parts; i++)
    for (int64_t c = first; c < last; c++) {
      if (px__work_stopped(&work, p->length)) return;
      add_image(p, i / p->bands * t->c + c, i % p->bands, room, totals + (c - first) * groups);
    }
  for (int64_t c = first; c < last; c++)
    write_sums(t, totals + (c - first) * groups, p->sums + (c * p->parts + part) * t->places);
}
static void sum_parts(void *ctx, int64_t begin, int64_t end) {
  planes *p = ctx;
  products *totals = malloc((size_t)(p->beside * groups_of(p->t)) * sizeof *totals);
  float *room = room_of(p, 1);
  if (!room || !totals) __atomic_store_n(&p->failed, true, __ATOMIC_RELAXED);
  for (int64_t i = begin; room && totals && i < end; i++) {
    int64_t first = i / p->parts * p->beside;
    sum_part(p, first, px__min_count(first + p->beside, p->t->c), i % p->parts, room, totals);
  }
  free(room), free(totals);
}
// The sums of all parts, in order. False: some are not finite.
static bool add_parts(const planes *p) {
  const conv *t = p->t;
  float none = 0;
  for (int64_t i = 0; i < t->c * t->places; i++) {
    const float *from = p->sums + i / t->places * p->parts * t->places + i % t->places;
    float sum = 0;
    for (int64_t part = 0; part < p->parts; part++) sum += from[part * t->places];
    ((float *)t->out)[i] = sum;
    none += sum * 0;
  }
  return none == 0;
}
static bool gradient_of_weight(planes *p) {
  const conv *t = p->t;
  int64_t pieces = t->n * p->bands, most = t->c / UNITS;
  p->parts = px__min_count(px__ceil_div(UNITS, t->c), pieces);
  p->beside = px__min_count(BESIDE / t->p + 1, most > 1 ? most : 1);
  int64_t units = px__ceil_div(t->c, p->beside) * p->parts;
  int64_t each = p->beside * pieces * p->length * t->places / p->parts;
  p->sums = calloc((size_t)(t->c * p->parts * t->places), sizeof *p->sums);
  p->failed = !p->sums;
  if (p->sums) px__cpu_parallel(units, GRAIN / (each + 1) + 1, sum_parts, p);
  bool done = p->failed || add_parts(p);
  free(p->sums);
  return done;
}

bool px__conv_planes(conv *t) {
  planes p;
  bool done = true;
  if (!plan(&p, t)) return false;
  if (t->what == 'w')
    done = gradient_of_weight(&p);
  else
    px__cpu_parallel(t->n * t->c * p.bands, GRAIN / (p.length * t->places) + 1, run_planes, &p);
  t->failed = p.failed;
  return done;
}
