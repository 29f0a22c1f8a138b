// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions of float images: forward and input gradient with strides or small images
// (others: conv_depthwise.c), and the weight gradient.
//
// The source is copied into a zero-padded plane in cache. With a stride there is a plane per
// remainder, so that inputs of neighbouring results are adjacent. Each kernel tap then reads at a
// fixed offset from the result, and a plane of results is one line, with unused elements between
// its rows. The input gradient has such a plane per stride remainder; they are interleaved at the
// end.
//
// The weight gradient sums, for each tap, the products of the output gradient, zero between its
// rows, and the source at the tap's offset. Zero times inf or NaN would contribute, so another
// method is used if the sums contain inf or NaN.
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/vector/simd_avx512.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

enum {
  MAX_STRIDE = 2,  // max stride
  MAX_TAPS = 49,   // max kernel taps
  TAP_GROUP = 9,   // taps of the weight gradient summed together
  MAX_LANES = 16
};

// A kernel tap, and the offset of its source element from the result's position in its plane.
typedef struct tap {
  int64_t weight, offset;
} tap;

#include "cpu/conv/conv_depthwise_planes_rows.h"
#if defined(__AVX2__)
#define WIDE_NAMES
#include "cpu/conv/conv_depthwise_planes_rows.h"
#endif

typedef struct lines {
  void (*copy)(const float *from, int64_t n, float *to);
  void (*deinterleave)(const float *from, int64_t n, float *even, float *odd);
  void (*interleave)(const float *even, const float *odd, int64_t n, float *to);
  void (*sum)(const tap *taps, int64_t n, const float *weight, float bias, const float *source,
              int64_t length, float *to);
  void (*multiply)(const tap *taps, const float *source, const float *grad, int64_t length,
                   float totals[TAP_GROUP][MAX_LANES]);
} lines;
static const lines *choose_lines(void) {
#define LINES(w) \
  { copy_##w, deinterleave_##w, interleave_##w, sum_##w, multiply_##w }
  static const lines narrow = LINES(vf);
#if defined(__AVX2__)
  static const lines wide = LINES(wf);
  if (px_cpu_level_used() >= PX_CPU_AVX512) return &wide;
#endif
#undef LINES
  return &narrow;
}

// Rows or columns of a convolution: the mapping of result planes to the source.
typedef struct side {
  conv_axis to[MAX_STRIDE];
  int64_t size, grid;        // of the results, and of their longest plane
  int64_t results, sources;  // planes of each; one of the two is 1
  int64_t low, reach;        // first position of a source plane, and its extra positions
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
  int64_t pitch, rows, length;  // of a plane: row stride, rows, and length of a line of results
  int64_t plane;                // elements of a plane
  int64_t band, bands;          // rows of results per band, and number of bands
  tap taps[MAX_TAPS + TAP_GROUP];
  int64_t first[MAX_STRIDE * MAX_STRIDE + 1];  // first tap of each plane of results
  // Weight gradient: separately summed parts of images and bands, channels per unit, and sums.
  int64_t parts, channels_per_unit;
  float *sums;
  bool failed;  // atomic: out of memory
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
static planes planes_of(const conv *t) {
  bool back = t->mode == 'i';
  planes p = {.t = t, .by = choose_lines(), .source = back ? t->grad : t->in};
  p.height = back ? t->oh : t->h, p.width = back ? t->ow : t->w;
  p.y = side_of(back, t->h, t->oh, t->kh, t->sh, t->ph, t->dh);
  p.x = side_of(back, t->w, t->ow, t->kw, t->sw, t->pw, t->dw);
  p.pitch = p.x.grid + p.x.reach;
  return p;
}
// Elements of a row of all source planes.
static int64_t row_size(const planes *p) { return p->pitch * p->y.sources * p->x.sources; }
static void choose_bands(planes *p) {
  p->band = PLANES_BAND_ELEMENTS / row_size(p) - p->y.reach;
  if (p->band < 1 + p->y.reach) p->band = 1 + p->y.reach;
  if (p->band > p->y.grid) p->band = p->y.grid;
  p->bands = px__ceil_div(p->y.grid, p->band);
  p->rows = p->band + p->y.reach, p->plane = p->rows * p->pitch;
  p->length = (p->band - 1) * p->pitch + p->x.grid;
}

// A thread's zeroed scratch: the planes of a source, then `count` lines of results or of their
// gradient. Vectors may extend past a line.
static int64_t source_size(const planes *p) {
  return p->y.sources * p->x.sources * p->plane + 2 * MAX_LANES;
}
static int64_t line_size(const planes *p) { return p->band * p->pitch + 2 * MAX_LANES; }
static float *scratch_of(const planes *p, int64_t count) {
  return calloc((size_t)(source_size(p) + count * line_size(p)), sizeof(float));
}

// Copies a source row into that of one plane, or splits it into the planes of even and odd
// positions. The padding is zero already.
static void fill_row(const planes *p, const float *from, float *to) {
  int64_t low = p->x.low, longest = (p->pitch + low) * p->x.sources;
  int64_t n = p->width < longest ? p->width : longest;
  if (n <= 0) return;
  if (p->x.sources == 1)
    p->by->copy(from, n, to - low);
  else
    p->by->deinterleave(from, n, to - low, to - low + p->plane);
}
static void fill_planes(const planes *p, const float *image, int64_t band, float *to) {
  for (int64_t fy = 0; fy < p->y.sources; fy++, to += p->x.sources * p->plane)
    for (int64_t i = 0; i < p->rows; i++) {
      int64_t y = (band * p->band + i + p->y.low) * p->y.sources + fy;
      if (y >= 0 && y < p->height)
        fill_row(p, image + y * p->width, to + i * p->pitch);
      else if (p->bands > 1)
        for (int64_t fx = 0; fx < p->x.sources; fx++)
          memset(to + fx * p->plane + i * p->pitch, 0, (size_t)p->pitch * sizeof *to);
    }
}

// ---- forward, and the gradient of the input

// Stores the rows of a band of the results with row remainder `ry`.
static void write_rows(const planes *p, const float *line, int64_t band, int64_t ry, float *image) {
  for (int64_t i = 0; i < p->band; i++, line += p->pitch) {
    int64_t y = (band * p->band + i) * p->y.results + ry;
    if (y >= p->y.size) return;
    if (p->x.results == 1)
      p->by->copy(line, p->x.size, image + y * p->x.size);
    else
      p->by->interleave(line, line + line_size(p), p->x.size, image + y * p->x.size);
  }
}
static void run_plane(const planes *p, int64_t image, int64_t band, float *scratch) {
  const conv *t = p->t;
  int64_t channel = image % t->c;
  const float *weight = (const float *)t->weight + channel * t->kernel_taps;
  float bias = t->bias ? ((const float *)t->bias)[channel] : 0, *line = scratch + source_size(p);
  fill_planes(p, p->source + image * p->height * p->width, band, scratch);
  for (int64_t ry = 0; ry < p->y.results; ry++) {
    for (int64_t rx = 0; rx < p->x.results; rx++) {
      const int64_t *first = &p->first[ry * p->x.results + rx];
      p->by->sum(p->taps + first[0], first[1] - first[0], weight, bias, scratch, p->length,
                 line + rx * line_size(p));
    }
    write_rows(p, line, band, ry, (float *)t->out + image * p->y.size * p->x.size);
  }
}
static void run_planes(void *ctx, int64_t begin, int64_t end) {
  planes *p = ctx;
  float *scratch = scratch_of(p, p->x.results);
  if (!scratch) __atomic_store_n(&p->failed, true, __ATOMIC_RELAXED);
  int64_t work = 0;
  for (int64_t i = begin; scratch && i < end && !px__work_stopped(&work, p->length); i++)
    run_plane(p, i / p->bands, i % p->bands, scratch);
  free(scratch);
}

// ---- the gradient of the weight

static void fill_gradient(const planes *p, const float *image, int64_t band, float *to) {
  for (int64_t i = 0; i < p->band; i++, to += p->pitch) {
    int64_t y = band * p->band + i;
    if (y < p->y.size)
      p->by->copy(image + y * p->x.size, p->x.size, to);
    else
      memset(to, 0, (size_t)p->x.size * sizeof *to);
  }
}
typedef float products[TAP_GROUP][MAX_LANES];
static int64_t groups_of(const conv *t) { return px__ceil_div(t->kernel_taps, TAP_GROUP); }
static void add_image(const planes *p, int64_t image, int64_t band, float *scratch,
                      products *totals) {
  const conv *t = p->t;
  float *grad = scratch + source_size(p);
  fill_planes(p, p->source + image * p->height * p->width, band, scratch);
  fill_gradient(p, (const float *)t->grad + image * t->p, band, grad);
  for (int64_t g = 0; g < groups_of(t); g++)
    p->by->multiply(p->taps + g * TAP_GROUP, scratch, grad, p->length, totals[g]);
}
static void write_sums(const conv *t, const products *totals, float *to) {
  for (int64_t k = 0; k < t->kernel_taps; k++) {
    to[k] = 0;
    for (int64_t l = 0; l < MAX_LANES; l++) to[k] += totals[k / TAP_GROUP][k % TAP_GROUP][l];
  }
}
// One part of channels [first, last): images and bands in order.
static void sum_part(const planes *p, int64_t first, int64_t last, int64_t part, float *scratch,
                     products *totals) {
  const conv *t = p->t;
  int64_t pieces = t->n * p->bands, groups = groups_of(t), work = 0;
  memset(totals, 0, (size_t)((last - first) * groups) * sizeof *totals);
  for (int64_t i = pieces * part / p->parts; i < pieces * (part + 1) / p->parts; i++)
    for (int64_t c = first; c < last; c++) {
      if (px__work_stopped(&work, p->length)) return;
      add_image(p, i / p->bands * t->c + c, i % p->bands, scratch, totals + (c - first) * groups);
    }
  for (int64_t c = first; c < last; c++)
    write_sums(t, totals + (c - first) * groups, p->sums + (c * p->parts + part) * t->kernel_taps);
}
static void sum_parts(void *ctx, int64_t begin, int64_t end) {
  planes *p = ctx;
  products *totals = malloc((size_t)(p->channels_per_unit * groups_of(p->t)) * sizeof *totals);
  float *scratch = scratch_of(p, 1);
  if (!scratch || !totals) __atomic_store_n(&p->failed, true, __ATOMIC_RELAXED);
  for (int64_t i = begin; scratch && totals && i < end; i++) {
    int64_t first = i / p->parts * p->channels_per_unit;
    sum_part(p, first, px__min_count(first + p->channels_per_unit, p->t->c), i % p->parts, scratch,
             totals);
  }
  free(scratch), free(totals);
}
// Adds the parts in order. Returns false if a sum is inf or NaN.
static bool add_parts(const planes *p) {
  const conv *t = p->t;
  float not_finite = 0;
  for (int64_t i = 0; i < t->c * t->kernel_taps; i++) {
    const float *from =
        p->sums + i / t->kernel_taps * p->parts * t->kernel_taps + i % t->kernel_taps;
    float sum = 0;
    for (int64_t part = 0; part < p->parts; part++) sum += from[part * t->kernel_taps];
    ((float *)t->out)[i] = sum;
    not_finite += sum * 0;
  }
  return not_finite == 0;
}
static bool gradient_of_weight(planes *p) {
  const conv *t = p->t;
  int64_t pieces = t->n * p->bands, most = t->c / PLANES_MIN_UNITS;
  p->parts = px__min_count(px__ceil_div(PLANES_MIN_UNITS, t->c), pieces);
  p->channels_per_unit = px__min_count(PLANES_UNIT_ELEMENTS / t->p + 1, most > 1 ? most : 1);
  int64_t units = px__ceil_div(t->c, p->channels_per_unit) * p->parts;
  int64_t each = p->channels_per_unit * pieces * p->length * t->kernel_taps / p->parts;
  p->sums = calloc((size_t)(t->c * p->parts * t->kernel_taps), sizeof *p->sums);
  p->failed = !p->sums;
  if (p->sums) px__cpu_parallel(units, DEPTHWISE_GRAIN / (each + 1) + 1, sum_parts, p);
  bool done = p->failed || add_parts(p);
  free(p->sums);
  return done;
}

// ---- the method

static bool accepts(const conv *t) {
  bool steps = t->sh <= MAX_STRIDE && t->sw <= MAX_STRIDE;
  bool taps = t->kernel_taps > 1 && t->kernel_taps <= MAX_TAPS;
  return !t->channels_last && t->dtype == PX_FLOAT32 && px__conv_is_depthwise(t) &&
         px__conv_is_flat(t) && steps && taps;
}
static int cost(const conv *t) { return (void)t, PLANES_COST; }
static bool run(conv *t) {
  planes p = planes_of(t);
  if (row_size(&p) * (1 + p.y.reach) > PLANES_MAX_BAND_ELEMENTS) return false;
  bool done = true;
  choose_bands(&p);
  list_taps(&p);
  if (t->mode == 'w')
    done = gradient_of_weight(&p);
  else
    px__cpu_parallel(t->n * t->c * p.bands, DEPTHWISE_GRAIN / (p.length * t->kernel_taps) + 1,
                     run_planes, &p);
  t->failed = p.failed;
  return done;
}
const conv_method px__method_depthwise_planes = {accepts, cost, run, .reads_stored = false};
