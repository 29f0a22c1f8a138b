// SPDX-License-Identifier: Apache-2.0
// Convolution and its gradients as products of matrices: the method for all calls.
//
// The im2col matrix (channels * kh * kw rows, a column per output pixel) is never materialized. Its
// rows are slices of the image at different offsets, so the product takes an offset table. The
// image is first copied into zero-padded planes in which the pixels of one tap are contiguous,
// separated by stride remainder. If plane rows are longer than result rows, the product has unused
// columns between them. The input gradient is such a convolution of the output gradient for each
// stride remainder.
//
// A volume is convolved one result plane at a time: an image whose channels are the input planes it
// reads, of every channel, zero-padded. "Images" below are thus result planes; those of a volume
// are consecutive.
//
// channels_last operands are not transposed: the offset of a term is the sum of a
// pixel offset and a term offset, in the source itself or in a zero-padded copy. A row of the
// product is an output pixel, or a term for the weight gradient. Large products of other layouts
// (`pixel_rows`) work the same way and transpose the results at the end.
//
// A unit is a group of small images, or a band of rows of a large one. Threads share the units. The
// weight gradient is summed per batch part, then over parts in order, so results do not depend on
// the number of threads.
#include "cpu/threads/cache_line.h"
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_indirect.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/conv/conv_product.h"
#include "cpu/convert/dense.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/vector/fp16_bf16.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>
#include <string.h>

typedef struct unit {
  int64_t first, images, group, y0, y1, part, c0, c1, o0, o1;  // c: channels; pixels: terms
  bool first_of_part;  // first unit of a part of the weight gradient
  // Rotation of the plane slots, and whether the planes of the previous depth are still present.
  int64_t rotation;
  bool continues;
} unit;

enum {
  TRANSPOSED_CHANNELS = 16,  // channels transposed together
  PACK_PIECES = 4            // independently packed pieces per panel
};
static int64_t transposed_blocks(const conv *t) { return px__ceil_div(t->cg, TRANSPOSED_CHANNELS); }

// ---- planes of one dimension

// The source position of a plane's first element.
static int64_t start_of(const conv_axis *a, int64_t plane) {
  return a->shared ? a->low * a->step + plane : px__conv_at(a, plane);
}
// The first q with start + q * step >= bound, at most `max`.
static int64_t first_from(int64_t start, int64_t step, int64_t bound, int64_t max) {
  int64_t q = bound <= start ? 0 : px__ceil_div(bound - start, step);
  return q < max ? q : max;
}

static const int64_t *table_of(const conv *t, const unit *u) {
  return t->term_offsets ? t->term_offsets + u->rotation * t->terms : NULL;
}

// Sizes of the output of a pass, and the strides of its results in it.
typedef struct result_grid {
  int64_t depth, height, width, rz, ry, rx;
} result_grid;
static result_grid grid_of(const conv *t) {
  if (t->mode == 'i') return (result_grid){t->d, t->h, t->w, t->sd, t->sh, t->sw};
  return (result_grid){t->od, t->oh, t->ow, 1, 1, 1};
}

// The kernel tap with index i in this pass.
static int64_t kernel_tap(const conv *t, int64_t i) {
  int64_t column = i % t->x.count, row = i / t->x.count % t->y.count;
  int64_t depth = i / (t->x.count * t->y.count);
  depth = t->z.first + depth * t->z.every;
  row = t->y.first + row * t->y.every, column = t->x.first + column * t->x.every;
  return (depth * t->kh + row) * t->kw + column;
}
#define T float
#define SUM float
#define FROM_SUM(x) (x)
#define GEMM px__gemm_f32
#define NAME(x) x##_f32
#include "cpu/conv/conv_rows.h"
#undef T
#undef SUM
#undef GEMM
#undef NAME
#define T double
#define SUM double
#define GEMM px__gemm_f64
#define NAME(x) x##_f64
#include "cpu/conv/conv_rows.h"
#undef T
#undef SUM
#undef FROM_SUM
#undef GEMM
#undef NAME
#define T uint16_t
#define SUM float
#define FROM_SUM(x) px__bfloat_store(x)
#define GEMM px__gemm_bf16
#define NAME(x) x##_bf16
#include "cpu/conv/conv_rows.h"

typedef struct conv_type {
  size_t item, sum;  // bytes of an element, and of a sum of the weight gradient
  bool (*results)(const conv *t, const unit *u, void *buffer);
  bool (*to_weight)(const conv *t, const unit *u, void *buffer);
  void (*add_parts)(void *conv, int64_t begin, int64_t end);
  void (*add_narrow)(void *conv, int64_t begin, int64_t end);
  void (*transpose_weights)(void *conv, int64_t begin, int64_t end);
  void (*pack_transposed)(const conv *t, int64_t group, int64_t first, int64_t count, int64_t begin,
                          int64_t end, void *to);
} conv_type;
static const conv_type *type_of(const conv *t) {
#define TYPE(item, sum, name) \
  { \
    item, sum, results_##name, to_weight_##name, add_parts_##name, add_narrow_##name, \
        transpose_weights_##name, pack_transposed_##name \
  }
  static const conv_type in_float = TYPE(4, 4, f32), in_double = TYPE(8, 8, f64),
                         in_half = TYPE(2, 4, bf16);
#undef TYPE
  return t->dtype == PX_FLOAT32 ? &in_float : t->dtype == PX_FLOAT64 ? &in_double : &in_half;
}

// ---- packed factors

static int64_t panels_of(const conv *t) {
  return px__product_packed(t) / (px__product_panel(t) * t->terms);
}
// Packs pieces [begin, end) of the panels of all groups' factors.
static void pack_factors(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  bool back = t->pixel_rows && t->mode == 'i' && t->kernel_taps > 1;
  int64_t item = (int64_t)type_of(t)->item, width = px__product_panel(t), panels = panels_of(t);
  int64_t each = back ? t->terms / t->og : 1, all = t->terms / each;
  for (int64_t i = begin; i < end; i++) {
    int64_t panel = i / PACK_PIECES, group = panel / panels, first = panel % panels * width;
    int64_t from = all * (i % PACK_PIECES) / PACK_PIECES,
            to = all * (i % PACK_PIECES + 1) / PACK_PIECES;
    int64_t count = px__min_count(t->results - first, width);
    if (count <= 0) continue;
    char *at = t->packed;
    at += (group * px__product_packed(t) + first * t->terms + from * each * width) * item;
    if (back) {
      type_of(t)->pack_transposed(t, group, first, count, from, to, at);
      continue;
    }
    int64_t place = group * t->results * t->terms + first * t->row;
    px__gemm g = {.n = count,
                  .k = to - from,
                  .b = (const char *)t->factors + (place + from * t->term) * item,
                  .br = t->term,
                  .bc = t->row};
    px__gemm_pack(&g, t->dtype == PX_FLOAT64, at);
  }
}
static bool pack_all_factors(conv *t) {
  t->packed = malloc((size_t)(t->groups * px__product_packed(t)) * type_of(t)->item + 1);
  int64_t pieces = t->groups * panels_of(t) * PACK_PIECES,
          grain = PRODUCT_WEIGHT_GRAIN * PACK_PIECES / t->terms;
  if (t->packed) px__cpu_parallel(pieces, grain / px__product_panel(t) + 1, pack_factors, t);
  return t->packed != NULL;
}
static bool plan(conv *t, const conv *like) {
  if (!px__product_plan(t, like)) return false;
  bool packs = t->channels_last ? t->mode != 'w' : t->pixel_rows;
  return !packs || pack_all_factors(t);
}

// ---- units

static int64_t blocks_of(const conv *t) { return px__ceil_div(px__product_images(t), t->images); }
static int64_t bands_of(const conv *t) { return px__ceil_div(t->y.grid, t->rows); }
static unit unit_of(const conv *t, int64_t block, int64_t group, int64_t band) {
  unit u = {.first = block * t->images,
            .group = group,
            .y0 = band * t->rows,
            .c1 = t->channels_last ? t->k : t->channels,
            .o1 = t->results};
  int64_t left = px__product_images(t) - u.first;
  u.images = left < t->images ? left : t->images;
  if (t->rotates) u.rotation = u.first % t->z.grid % t->z.count;
  u.y1 = u.y0 + t->rows < t->y.grid ? u.y0 + t->rows : t->y.grid;
  return u;
}
// Scratch for the planes and for results or gradients of any phase. Clears the slack after the
// planes: it is read, and garbage may be subnormal, which is slow.
static void *scratch_new(const conv *t) {
  size_t item = type_of(t)->item;
  int64_t max = 0;
  for (int64_t i = 0; i < t->phases; i++) {
    int64_t lines = t->mode == 'w' ? t->og : t[i].results, all = t[i].planes_size + lines * t[i].ld;
    if (all > max) max = all;
  }
  char *buffer = px__aligned_new((size_t)max * item);
  for (int64_t i = 0; buffer && i < t->phases; i++)
    if (t[i].planes_size && !t->channels_last)
      memset(buffer + (size_t)(t[i].planes_size - PX__GEMM_SLACK) * item, 0, PX__GEMM_SLACK * item);
  return buffer;
}

// The start of the next unit's directly used source, for prefetching; NULL: none.
static const float *source_after(const conv *t, const unit *u) {
  unit next = *u;
  next.y0 += t->rows;
  if (next.y0 >= t->y.grid) next.y0 = 0, next.group++;
  if (next.group >= t->groups) next.group = 0, next.first++;
  return next.first < px__product_images(t) ? sources_f32(t, &next, NULL) : NULL;
}
// results() by tiles of pixels.
static bool tiled_results(const conv *t, const unit *u, void *buffer) {
  result_grid r = grid_of(t);
  int64_t n = (u->y1 - u->y0) * t->pitch - (t->pitch - t->x.grid);
  int64_t apart = r.depth * r.height * r.width;
  if (n < PX__CONV_MIN_PIXELS) return results_f32(t, u, buffer);
  px__conv_product g = {
      .m = u->o1 - u->o0,
      .n = n,
      .k = t->terms,
      .a = (const float *)t->factors + u->group * t->results * t->terms + u->o0 * t->row,
      .ar = t->row,
      .b = sources_f32(t, u, buffer),
      .after = t->direct_source ? source_after(t, u) : NULL,
      .at = table_of(t, u),
      .c = results_at_f32(t, u, 0, &r) + u->o0 * apart,
      .cr = apart,
      .pitch = t->pitch,
      .grid = t->x.grid,
      .scratch = t->direct_source ? buffer : NULL};
  if (t->bias) g.bias = (const float *)t->bias + u->group * t->results + u->o0;
  px__conv_product_run(&g);
  return true;
}
// First result of cut i: at a tile or panel boundary.
static int64_t cut_unit(const conv *t) { return t->tiled ? TILED_MIN_CUT : PX__GEMM_PACK; }
static int64_t cut_at(const conv *t, int64_t i) {
  int64_t each = cut_unit(t), pieces = px__ceil_div(t->results, each);
  return px__min_count(pieces * i / t->cuts * each, t->results);
}
// The share of unit i in a phase.
static bool run_phase(const conv *t, const conv *p, int64_t i, void *buffer, int64_t *work) {
  int64_t cut = t->cut_by_cut ? i / t->units : i % t->cuts;
  i = t->cut_by_cut ? i % t->units : i / t->cuts;
  int64_t first = i / t->bands / t->groups * t->blocks_per_unit;
  for (int64_t block = first; block < first + t->blocks_per_unit; block++) {
    unit u = unit_of(p, block, i / t->bands % t->groups, i % t->bands);
    u.continues = p->rotates && block > first && u.first % p->z.grid > 0;
    if (p->cuts > 1) u.o0 = cut_at(p, cut), u.o1 = cut_at(p, cut + 1);
    if (u.y0 >= u.y1 || u.images <= 0 || px__work_stopped(work, p->ld * p->terms)) return true;
    if (!(p->tiled ? tiled_results : type_of(t)->results)(p, &u, buffer)) return false;
  }
  return true;
}
// Phases of a unit write the same cache lines, so they run consecutively.
static void results_run(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  void *buffer = scratch_new(t);
  bool done = buffer != NULL;
  int64_t work = 0;
  for (int64_t i = begin; i < end; i++)
    for (int64_t phase = 0; done && phase < t->phases; phase++)
      done = run_phase(t, &t[phase], i, buffer, &work);
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(buffer);
}
// to_weight() for 1x1 kernels and channels_last: gradients of results, transposed, times the input,
// both used directly.
static bool tiled_weight(const conv *t, const unit *u, void *buffer) {
  int64_t pixel = u->first * t->p + u->y0 * t->ow, result = u->group * t->og + u->o0;
  px__conv_product g = {.m = u->o1 - u->o0,
                        .n = t->cg,
                        .k = u->images * (u->y1 - u->y0) * t->ow,
                        .a = (const float *)t->grad + pixel * t->oc + result,
                        .ar = t->oc,
                        .transposed = true,
                        .b = box_f32(t, u, buffer) + u->group * t->cg,
                        .at = t->pixel_offsets,
                        .c = (float *)t->sums + (u->part * t->oc + result) * t->k,
                        .cr = t->k,
                        .pitch = t->cg,
                        .grid = t->cg};
  px__conv_sums_run(&g, !u->first_of_part);
  return true;
}
// Extent of the cut dimension: results, terms (channels_last) or channels of a group.
static int64_t cut_side(const conv *t) {
  return t->cuts_results ? t->og : t->channels_last ? t->k : t->cg;
}
// A unit of the weight gradient is a block of channels or results of a group, for a part of the
// batch: the bands of all images, band by band.
static void weight_run(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  void *buffer = scratch_new(t);
  bool done = buffer != NULL;
  int64_t blocks = blocks_of(t), pieces = blocks * bands_of(t), work = 0, side = cut_side(t);
  for (int64_t i = begin; i < end; i++) {
    int64_t rest = i / t->cuts, cut = i % t->cuts;
    int64_t part = rest / t->groups, to = pieces * (part + 1) / t->parts;
    int64_t from = pieces * part / t->parts;
    for (int64_t p = from; done && p < to && !px__work_stopped(&work, t->ld * t->terms); p++) {
      unit u = unit_of(t, p % blocks, rest % t->groups, p / blocks);
      u.part = part, u.first_of_part = p == from;
      u.continues = t->rotates && p > from && u.first % t->z.grid > 0;
      int64_t low = side * cut / t->cuts, high = side * (cut + 1) / t->cuts;
      if (t->cuts_results)
        u.o0 = low, u.o1 = high;
      else
        u.c0 = low, u.c1 = high;
      done = (t->tiled ? tiled_weight : type_of(t)->to_weight)(t, &u, buffer);
    }
  }
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(buffer);
}
void px__conv_run_units(conv *t, int64_t units, void (*run)(void *, int64_t, int64_t)) {
  double work = (double)t->n * (double)t->out_pixels * (double)t->k * (double)t->oc;
  px__cpu_parallel(units, work < SMALL_WORK ? units : 1, run, t);
}
static int64_t cuts_for(int64_t wanted, int64_t units) {
  return units ? px__ceil_div(wanted, units) : 1;
}
// Number of cuts of the results, to balance few units over several threads. Each cut copies the
// source again unless it is used directly; this is cheap for PRODUCT_MIN_COPIED_CUT results, and
// not worthwhile if units divide evenly among threads. Sums do not change. A single unit, unless
// tiled, is a product that uses the threads itself.
static int64_t choose_cuts(const conv *t, int64_t phases, int64_t units) {
  int64_t threads = px__cpu_thread_count(), runs = threads > 1 ? UNITS_PER_THREAD * threads : 1;
  int64_t cuts = cuts_for(threads, units), more = cuts_for(runs, units);
  bool tiled = true, even = units % threads == 0;
  for (int64_t i = 0; i < phases; i++) {
    int64_t min = cut_unit(&t[i]);
    cuts = px__min_count(cuts, t[i].results / min);
    more = px__min_count(more, t->direct_source ? t[i].results / min
                               : even           ? 1
                                                : t[i].results / PRODUCT_MIN_COPIED_CUT);
    tiled &= t[i].tiled;
  }
  if (more > cuts) cuts = more;
  return (units > 1 || tiled) && cuts > 1 ? cuts : 1;
}
// Number of cuts for which a cut's weights stay in cache: every panel of a directly used source
// reads them. The cuts are then processed one after the other over all images.
static int64_t cached_cuts(const conv *t) {
  if (!t->tiled || !t->direct_source || t->p < PRODUCT_MIN_UNIT_COLUMNS) return 1;
  int64_t cuts = t->results * t->terms / PRODUCT_CACHED_WEIGHTS + 1;
  return px__min_count(cuts, t->results / TILED_MIN_CUT);
}
// Runs all phases, consecutive from t.
static void convolve(conv *t, int64_t phases) {
  t->phases = phases, t->blocks = t->bands = 0;
  for (int64_t i = 0; i < phases; i++) {
    if (blocks_of(&t[i]) > t->blocks) t->blocks = blocks_of(&t[i]);
    if (bands_of(&t[i]) > t->bands) t->bands = bands_of(&t[i]);
  }
  int64_t units = t->blocks * t->groups * t->bands,
          runs = UNITS_PER_THREAD * px__cpu_thread_count();
  t->blocks_per_unit = t->rotates && units > runs ? units / runs : 1;
  if (t->blocks_per_unit > t->z.grid) t->blocks_per_unit = t->z.grid;
  units = px__ceil_div(t->blocks, t->blocks_per_unit) * t->groups * t->bands;
  int64_t cuts = choose_cuts(t, phases, units), near = cached_cuts(t);
  t->units = units, t->cut_by_cut = near > 1;
  if (cuts < near) cuts = near;
  for (int64_t i = 0; i < phases; i++) t[i].parallel_gemm = units == 1, t[i].cuts = cuts;
  px__conv_run_units(t, units * cuts, results_run);
}
// ---- forward, and the gradient of the input

static void set_forward(conv *t) {
  t->z = px__conv_axis_forward(t->d, t->od, t->kd, t->sd, t->pd, t->dd);
  t->y = px__conv_axis_forward(t->h, t->oh, t->kh, t->sh, t->ph, t->dh);
  t->x = px__conv_axis_forward(t->w, t->ow, t->kw, t->sw, t->pw, t->dw);
  t->channels = t->cg, t->results = t->og, t->source = t->in, t->factors = t->weight;
  t->row = t->k, t->term = 1;
}
static void forward(conv *t) {
  set_forward(t);
  t->failed = !plan(t, NULL);
  if (!t->failed) convolve(t, 1);
}

// Copies the channels_last weights of output channels [begin, end) at the taps of this pass.
static void pick_weights(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  size_t run = (size_t)t->cg * type_of(t)->item;
  int64_t each = t->z.count * t->y.count * t->x.count;
  char *to = (char *)t->own + (size_t)(begin * each) * run;
  for (int64_t o = begin; o < end; o++)
    for (int64_t i = 0; i < each; i++, to += run)
      memcpy(to, (const char *)t->weight + (size_t)(o * t->kernel_taps + kernel_tap(t, i)) * run,
             run);
}

// Plans the input positions z0, y0, x0 modulo the stride. 1x1 weights are used directly, except for
// tiles; `pixel_rows` packs the weights. Returns false if out of memory.
static bool plan_phase(conv *t, const conv *like) {
  int64_t kernel_taps = t->z.count * t->y.count * t->x.count, row = t->og * kernel_taps;
  t->channels = t->og, t->results = t->cg, t->source = t->grad, t->factors = t->weight;
  t->terms = t->row = row, t->term = 1;
  bool tiled = !t->channels_last && px__product_tiled(t);
  if (t->kernel_taps == 1 && !tiled) {
    t->row = 1, t->term = t->cg;
    return plan(t, like);
  }
  if (!t->channels_last && !tiled && px__product_pixel_rows(t)) return plan(t, like);
  t->row = t->weight_channels_last ? 1 : row, t->term = t->weight_channels_last ? t->cg : 1;
  if (t->weight_channels_last && kernel_taps == t->kernel_taps) return plan(t, like);
  t->factors = t->own = malloc((size_t)(t->c * row) * type_of(t)->item + 1);
  if (t->own && t->weight_channels_last)
    px__cpu_parallel(t->oc, PRODUCT_WEIGHT_GRAIN / (kernel_taps * t->cg) + 1, pick_weights, t);
  else if (t->own)
    px__cpu_parallel(transposed_blocks(t) * t->groups,
                     PRODUCT_WEIGHT_GRAIN / (TRANSPOSED_CHANNELS * row) + 1,
                     type_of(t)->transpose_weights, t);
  return t->own && plan(t, like);
}
// Plans the phases with at least one tap; returns their number.
static int64_t plan_phases(const conv *t, conv *phases, bool *failed) {
  int64_t count = 0, depth = px__min_count(t->sd, t->d), rows = px__min_count(t->sh, t->h);
  int64_t columns = px__min_count(t->sw, t->w);
  for (int64_t i = 0; i < depth * rows * columns; i++) {
    conv p = *t;
    p.z0 = i / (rows * columns), p.y0 = i / columns % rows, p.x0 = i % columns;
    p.z = px__conv_axis_back(t->d, t->od, t->kd, t->sd, t->pd, t->dd, p.z0);
    p.y = px__conv_axis_back(t->h, t->oh, t->kh, t->sh, t->ph, t->dh, p.y0);
    p.x = px__conv_axis_back(t->w, t->ow, t->kw, t->sw, t->pw, t->dw, p.x0);
    if (!p.z.count || !p.y.count || !p.x.count) continue;
    *failed |= !plan_phase(&p, count ? phases : NULL);
    phases[count++] = p;
  }
  return count;
}
static void backward_input(conv *t) {
  conv *phases = malloc((size_t)t->kernel_taps * sizeof *phases);
  int64_t all =
      px__min_count(t->sd, t->d) * px__min_count(t->sh, t->h) * px__min_count(t->sw, t->w);
  int64_t count = phases ? plan_phases(t, phases, &t->failed) : 0;
  if (count < all) {
    size_t numbers = (size_t)(t->n * t->c * t->d * t->h * t->w);
    px__cpu_clear(t->out, numbers * type_of(t)->item);
  }
  if (count && !t->failed) {
    convolve(phases, count);
    t->failed = phases->failed;
  }
  for (int64_t i = 0; i < count; i++) px__product_plan_end(&phases[i]);
  t->failed |= !phases;
  free(phases);
}

// ---- the gradient of the weight

// Parts are summed separately, as long as their sums are small compared to the input. They change
// the order of the sums, so they depend on sizes only.
int64_t px__conv_parts(const conv *t, int64_t pieces) {
  int64_t parts = px__min_count(pieces, MAX_PARTS);
  while (parts > 1 && parts * t->k * t->oc > PRODUCT_MAX_PART_SUMS) parts /= 2;
  return parts;
}
// Channels are cut if there are too few units for the threads; or results, if they outnumber the
// terms. Cuts do not change sums.
static void choose_weight_cuts(conv *t) {
  int64_t threads = px__cpu_thread_count(), wanted = threads < MAX_PARTS ? MAX_PARTS : threads;
  t->cuts = threads > 1 ? wanted / (t->parts * t->groups) : 1;
  t->cuts_results = (t->og > t->k && !t->narrow) || t->tiled;
  bool results = t->cuts_results || t->weight_channels_last || t->channels_last;
  int64_t min = results ? PRODUCT_MIN_CUT_RESULTS : PRODUCT_MIN_CUT_CHANNELS;
  if (t->cuts > cut_side(t) / min) t->cuts = cut_side(t) / min;
  if (t->cuts < 1) t->cuts = 1;
}
void px__conv_sum_parts(conv *t, bool in_place, int64_t units,
                        void (*run)(void *, int64_t, int64_t)) {
  int64_t n = t->oc * t->k;
  size_t bytes = (size_t)(t->parts * n) * type_of(t)->sum;
  void *buffer = in_place ? NULL : px__scratch_new(t->launch, bytes);
  t->sums = in_place ? t->out : buffer;
  if (t->sums) {
    t->phases = 1, t->parallel_gemm = units == 1;
    px__conv_run_units(t, units, run);
    if (t->narrow)
      px__cpu_parallel(t->groups * t->k, PRODUCT_WEIGHT_GRAIN / t->og, type_of(t)->add_narrow, t);
    else if (buffer)
      px__cpu_parallel(n, PRODUCT_WEIGHT_GRAIN, type_of(t)->add_parts, t);
  }
  free(buffer);
}
static bool is_narrow(const conv *t) {
  bool fits =
      t->og <= PRODUCT_MAX_NARROW_RESULTS && 2 * t->og <= t->k && px__conv_fills_lanes(t->og);
  return t->channels_last || (fits && !t->weight_channels_last && t->dtype != PX_BFLOAT16);
}
// A single part is summed in the result, unless bfloat16 sums continue over several units.
static void backward_weight(conv *t) {
  set_forward(t);
  t->tiled = t->channels_last && t->kernel_taps == 1 && t->dtype == PX_FLOAT32 &&
             t->cg % PX__CONV_MIN_PIXELS == 0 && px__conv_has_tiles();
  t->narrow = !t->tiled && is_narrow(t);
  t->failed = !plan(t, NULL);
  if (t->failed) return;
  int64_t pieces = blocks_of(t) * bands_of(t);
  t->parts = px__conv_parts(t, pieces);
  choose_weight_cuts(t);
  bool same_dtype = type_of(t)->sum == type_of(t)->item;
  bool in_place = t->parts == 1 && !t->narrow && (pieces == 1 || same_dtype);
  px__conv_sum_parts(t, in_place, t->parts * t->groups * t->cuts, weight_run);
}

// ---- the method

static bool accepts(const conv *t) { return (void)t, true; }
static int cost(const conv *t) { return (void)t, PRODUCT_COST; }
static bool run(conv *t) {
  if (t->mode == 'f') forward(t);
  if (t->mode == 'i') backward_input(t);
  if (t->mode == 'w') backward_weight(t);
  px__product_plan_end(t);
  return true;
}
const conv_method px__method_product = {accepts, cost, run, .reads_stored = false};
