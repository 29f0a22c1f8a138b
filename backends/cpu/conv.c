// SPDX-License-Identifier: Apache-2.0
// conv2d, conv3d and their gradients as products of matrices.
//
// The matrix of what each position sees (channels * kh * kw rows, a column for each position) is
// never written down. Its rows are pieces of the image that begin at different places, so the
// product gets a table of places. The image is laid into planes first, with zeros about it, and
// with the positions apart that a stride keeps apart; so that one place's row is contiguous.
// Where the planes' rows are longer than the results', there are results between the rows that
// nobody wants. The gradient of the input is, for each remainder of the stride, such a convolution
// of the output's gradient.
//
// A volume is convolved plane by plane of its results: each is an image whose channels are the
// planes that it sees, of every channel, and zeros for those that are outside. So "images" below
// are planes of results, those of a volume following one another.
//
// Of sources and results that lie channels_last (`pixels`) none is turned: where a term of a
// position lies is the sum of a place of the position and one of the term, in the source itself or
// in a copy with zeros about it. A row of the product is a position, or of the weight's gradient a
// term. So it is of large products of other layouts, whose results are turned at the end.
//
// A unit is a group of some small images, or of a band of rows of a large one. Threads share the
// units; the weight's gradient is summed per part of the batch and the parts in order, so that the
// numbers do not depend on the number of threads.
#include "cpu/cache.h"
#include "cpu/conv.h"
#include "cpu/conv_tiles.h"
#include "cpu/dense.h"
#include "cpu/gemm.h"
#include "cpu/gemm_tiles.h"
#include "cpu/half.h"
#include "cpu/simd.h"
#include "cpu/threads.h"
#include "kernel_args/conv.h"
#include "kernel_args/volume.h"

#include <stdlib.h>
#include <string.h>

// Columns that a unit should have at least, and elements of its planes at most; and results for
// nobody, for each position, that cost no more than another plane for each place.
enum { COLUMNS = 128, PIECE_ELEMENTS = 128 * 1024, WASTE = 64 };
// Channels of a group, in and out, from which it is computed in bfloat16.
enum { TILED = 16 };
// Of the weight's gradient: parts at most, elements of their sums, and channels of a cut at least,
// also where it lies channels_last, or results.
enum { MAX_PARTS = 8, PART_ELEMENTS = 128 * 1024, CUT_CHANNELS = 8, CUT_WIDE = 32 };
// And results of a group at most, in whole vectors but for a tenth, for which it is cheaper to pack
// their gradients than what they see.
enum { NARROW = 128 };
// Terms, results, weights and positions from which a row of the product may be a position; the
// columns of a unit whose source is used as it lies then, and lanes of a tile.
enum { UPRIGHT_TERMS = 256, UPRIGHT_RESULTS = 64, UPRIGHT_WEIGHTS = 32 * 1024 };
enum { UPRIGHT_POSITIONS = 256, UPRIGHT_COLUMNS = 96, TILE_LANES = 32 };
// Results of a group at least for tiles that need nothing packed or turned (conv_tiles.h), and of a
// cut of them, also of sources that are laid first, and positions of a unit at most whose source is
// used where it lies.
enum { TILED_RESULTS = 12, TILED_CUT = 24, LAID_CUT = 128, FAR_COLUMNS = 512 };
// Weights at most for which an image is cut into many bands, and bands of all images then.
enum { FEW_WEIGHTS = 16 * 1024, BANDS = 32 };
// Weights that stay in the second cache beside what passes.
enum { NEAR_WEIGHTS = 192 * 1024 };
// A distance of rows from which planes are not cleared before they are laid.
enum { LONG_PITCH = 24 };
// Units for each thread at least, where some depths of a volume are one, or results are cut whose
// sources are used as they lie.
enum { RUNS = 4 };
// Weights that a thread turns or adds at least, and pieces of a panel that are packed by
// themselves.
enum { GRAIN = 16 * 1024, PACKED = 4 };

typedef struct unit {
  int64_t first, images, group, y0, y1, part, c0, c1, o0, o1;  // c: of pixels, terms
  bool opens;                                                  // a part of the weight's gradient
  // Which of the tables holds; and that the planes of the depth before are there.
  int64_t turn;
  bool goes_on;
} unit;

// Channels whose weights are turned at once.
enum { TURNED = 16 };
static int64_t turned_blocks(const conv *t) { return px__ceil_div(t->cg, TURNED); }

static int64_t all_images(const conv *t) { return t->n * t->z.grid; }
// Elements of an image of the source.
static int64_t image_of(const conv *t) {
  return t->channels * t->groups * t->z.source * t->y.source * t->x.source;
}

// ---- planes of one dimension

static int64_t plane_of(const conv_axis *a, int64_t j) {
  int64_t at = px__conv_at(a, j);
  return a->shared ? at - px__conv_floor(at, a->step) * a->step : j;
}
static int64_t offset_of(const conv_axis *a, int64_t j) {
  return a->shared ? px__conv_floor(px__conv_at(a, j), a->step) - a->low : 0;
}
// The source position of a plane's first element.
static int64_t start_of(const conv_axis *a, int64_t plane) {
  return a->shared ? a->low * a->step + plane : px__conv_at(a, plane);
}
// The first q whose position start + q * step is not below `bound`; at most `most`.
static int64_t first_from(int64_t start, int64_t step, int64_t bound, int64_t most) {
  int64_t q = bound <= start ? 0 : px__ceil_div(bound - start, step);
  return q < most ? q : most;
}

// Where among a channel's planes that of place k of the depth lies.
static int64_t slot_of(const conv *t, int64_t turn, int64_t k) {
  if (!t->rolls) return k;
  return (turn + (t->z.move > 0 ? k : t->z.count - k)) % t->z.count;
}
static const int64_t *table_of(const conv *t, const unit *u) {
  return t->table ? t->table + u->turn * t->terms : NULL;
}

// Elements of a group's packed factors.
static int64_t packed_size(const conv *t) {
  return px__ceil_div(t->results, PX__GEMM_PACK) * PX__GEMM_PACK * t->terms;
}

// Lanes of a packed panel.
static int64_t panel_of(const conv *t) {
  return (t->dtype == PX_FLOAT64 ? px__tiles_f64() : px__tiles_f32())->columns;
}

// The results of a pass lie in these, `rz`, `ry` and `rx` apart.
typedef struct result_grid {
  int64_t depth, height, width, rz, ry, rx;
} result_grid;
static result_grid grid_of(const conv *t) {
  if (t->what == 'i') return (result_grid){t->d, t->h, t->w, t->sd, t->sh, t->sw};
  return (result_grid){t->od, t->oh, t->ow, 1, 1, 1};
}

// The kernel's place that is the i-th of this pass.
static int64_t picked(const conv *t, int64_t i) {
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
#include "cpu/conv_rows.h"
#undef T
#undef SUM
#undef GEMM
#undef NAME
#define T double
#define SUM double
#define GEMM px__gemm_f64
#define NAME(x) x##_f64
#include "cpu/conv_rows.h"
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
#include "cpu/conv_rows.h"

typedef struct conv_type {
  size_t item, sum;  // bytes of an element, and of a sum for the weight
  bool (*results)(const conv *t, const unit *u, void *room);
  bool (*to_weight)(const conv *t, const unit *u, void *room);
  void (*add_parts)(void *conv, int64_t begin, int64_t end);
  void (*add_narrow)(void *conv, int64_t begin, int64_t end);
  void (*turn_weights)(void *conv, int64_t begin, int64_t end);
  void (*pack_back)(const conv *t, int64_t group, int64_t first, int64_t count, int64_t begin,
                    int64_t end, void *to);
} conv_type;
static const conv_type *type_of(const conv *t) {
#define TYPE(item, sum, name) \
  { \
    item, sum, results_##name, to_weight_##name, add_parts_##name, add_narrow_##name, \
        turn_weights_##name, pack_back_##name \
  }
  static const conv_type in_float = TYPE(4, 4, f32), in_double = TYPE(8, 8, f64),
                         in_half = TYPE(2, 4, bf16);
#undef TYPE
  return t->dtype == PX_FLOAT32 ? &in_float : t->dtype == PX_FLOAT64 ? &in_double : &in_half;
}

// ---- the plan

// A kernel of one place in each plane that takes planes as they are: they are rows of an image.
static void lay_flat(conv *t) {
  bool whole = t->sh == 1 && t->sw == 1 && t->ph == 0 && t->pw == 0;
  if (!whole || t->oh != t->h || t->ow != t->w) return;
  t->w *= t->h, t->ow = t->w;
  t->h = t->d, t->oh = t->od, t->kh = t->kd;
  t->sh = t->sd, t->ph = t->pd, t->dh = t->dd;
  t->d = t->od = t->kd = t->sd = t->dd = 1, t->pd = 0;
}
// How a kernel goes over its input.
typedef struct steps {
  const px_value *stride, *padding, *dilation;
  int64_t groups;
} steps;
#define STEPS(args) \
  &(steps) { &(args)->stride, &(args)->padding, &(args)->dilation, (args)->groups }
static void conv_start(conv *t, const px_operand *in, const px_operand *weight,
                       const px_operand *out, const steps *by) {
  bool deep = in->ndim == 5;
  int y = deep ? 1 : 0, x = y + 1;  // dimensions, in lists
  t->n = in->sizes[0], t->c = in->sizes[1], t->oc = out->sizes[1];
  t->h = in->sizes[2 + y], t->w = in->sizes[2 + x];
  t->oh = out->sizes[2 + y], t->ow = out->sizes[2 + x];
  t->kh = weight->sizes[2 + y], t->kw = weight->sizes[2 + x];
  t->sh = px__list_at(by->stride, y), t->sw = px__list_at(by->stride, x);
  t->ph = px__list_at(by->padding, y), t->pw = px__list_at(by->padding, x);
  t->dh = px__list_at(by->dilation, y), t->dw = px__list_at(by->dilation, x);
  t->d = t->od = t->kd = t->sd = t->dd = 1, t->pd = 0;
  if (deep) {
    t->d = in->sizes[2], t->od = out->sizes[2], t->kd = weight->sizes[2];
    t->sd = px__list_at(by->stride, 0), t->pd = px__list_at(by->padding, 0);
    t->dd = px__list_at(by->dilation, 0);
    if (t->kh * t->kw == 1) lay_flat(t);
  }
  t->groups = by->groups;
  t->cg = t->c / t->groups, t->og = t->oc / t->groups;
  t->places = t->kd * t->kh * t->kw, t->k = t->cg * t->places;
  t->p = t->oh * t->ow, t->seen = t->od * t->p;
}

// Chooses the planes: shared ones, if that is less to lay.
static void choose_planes(conv_axis *a, bool may_share) {
  int64_t high = px__conv_floor(px__conv_at(a, 0), a->step);
  a->low = high;
  for (int64_t j = 1; j < a->count; j++) {
    int64_t at = px__conv_floor(px__conv_at(a, j), a->step);
    if (at < a->low) a->low = at;
    if (at > high) high = at;
  }
  a->reach = high - a->low;
  a->shared = may_share && a->step * (a->grid + a->reach) <= a->count * a->grid;
  a->planes = a->shared ? a->step : a->count;
  if (!a->shared) a->low = a->reach = 0;
}
// A row's length in a plane. The zeros before a row serve as those behind the row before it.
static int64_t pitch_of(const conv_axis *x) {
  int64_t lead = x->step == 1 ? -x->low : -x->low - 1, whole = x->grid + x->reach;
  int64_t behind = px__ceil_div(x->source, x->step) - x->low;
  int64_t pitch = whole - (lead > 0 ? lead : 0);
  if (pitch < behind) pitch = behind;
  if (pitch < x->grid) pitch = x->grid;
  return pitch < whole ? pitch : whole;
}
static void choose_pitch(conv *t) {
  choose_planes(&t->x, t->what != 'w' || t->narrow);
  t->pitch = pitch_of(&t->x);
  if (t->narrow || t->upright || (t->pitch - t->x.grid) * t->results <= WASTE * t->x.grid) return;
  choose_planes(&t->x, false);
  t->pitch = t->x.grid;
}
// Vectors of positions in so many rows, and of tiled ones what they take: a panel of four, or of
// fewer, about as much as one vector besides.
static int64_t vectors_in(const conv *t, int64_t rows, int64_t pitch) {
  return rows ? (rows * pitch - (pitch - t->x.grid) + 15) / 16 : 0;
}
static int64_t tiles_in(const conv *t, int64_t rows) {
  int64_t vectors = vectors_in(t, rows, t->pitch);
  return vectors + (vectors + 3) / 4;
}
// Rows of a band of tiled positions, up to so many and at least half of them, that take least.
static int64_t even_rows(const conv *t, int64_t most) {
  int64_t best = most, least = INT64_MAX;
  for (int64_t rows = most; rows > 0 && 2 * rows >= most; rows--) {
    int64_t all = t->y.grid / rows * tiles_in(t, rows) + tiles_in(t, t->y.grid % rows);
    if (all < least) best = rows, least = all;
  }
  return best;
}
// Rows of bands of which, with cuts of the results, each thread has one.
static int64_t shared_rows(const conv *t) {
  int64_t units = all_images(t) * px__ceil_div(t->results, PX__GEMM_PACK);
  int64_t bands = px__ceil_div(px__cpu_thread_count(), units);
  return px__ceil_div(t->y.grid, bands);
}
// What each of the fewest shares of up to `most` has, of so many rows.
static int64_t even_share(int64_t rows, int64_t most) {
  int64_t shares = px__ceil_div(rows, most);
  return px__ceil_div(rows, shares);
}
static bool same_place(const conv_axis *a) {
  return a->count == 1 && a->step == 1 && a->shift == 0 && a->grid == a->source;
}
// Whether the source serves as it lies.
static bool lies_there(const conv *t) {
  return same_place(&t->z) && same_place(&t->y) && same_place(&t->x);
}
// Rows of a band at most: no piece is held of an image that is used where it lies, and few weights
// cost little to meet anew, so that there may be bands for many threads.
static int64_t most_rows(const conv *t) {
  int64_t row = t->channels * t->z.count * t->y.planes * t->x.planes * t->pitch;
  int64_t most = PIECE_ELEMENTS / row - t->y.reach, least = px__ceil_div(COLUMNS, t->pitch);
  int64_t far = FAR_COLUMNS / t->pitch, bands = t->what == 'w' ? MAX_PARTS : BANDS;
  if (t->tiled && same_place(&t->y) && same_place(&t->x)) most = far;
  if (t->results * t->terms <= FEW_WEIGHTS && (t->what != 'i' || t->results >= TILED_RESULTS))
    most = px__min_count(most, px__ceil_div(t->y.grid * all_images(t), bands) + far);
  if (t->upright) most = px__min_count(most, shared_rows(t));
  return most > least ? most : least;
}
// The phases of one convolution have images and rows of the first one.
static void choose_rows(conv *t, const conv *like) {
  if (like) {
    choose_planes(&t->y, like->images == 1);
    t->images = like->images, t->rows = like->rows;
    return;
  }
  int64_t columns = t->tiled ? t->p : t->upright ? UPRIGHT_COLUMNS : COLUMNS;
  t->images = px__ceil_div(columns, t->p);
  if (t->images > all_images(t)) t->images = all_images(t);
  choose_planes(&t->y, t->images == 1);
  t->rows = t->y.grid;
  if (t->images > 1) return;
  int64_t most = most_rows(t);
  if (most < t->rows) t->rows = t->tiled ? even_rows(t, most) : even_share(t->y.grid, most);
}
// In the order in which the weights lie.
static void place_terms(conv *t, int64_t turn, int64_t *table) {
  bool inside = t->last && t->what != 'i';
  int64_t places = t->z.count * t->y.count * t->x.count;
  for (int64_t source = 0; source < t->channels * t->z.count; source++)
    for (int64_t i = 0; i < t->y.count; i++)
      for (int64_t j = 0; j < t->x.count; j++) {
        int64_t c = source / t->z.count, k = source % t->z.count;
        int64_t plane = c * t->z.count + slot_of(t, turn, k);
        plane = (plane * t->y.planes + plane_of(&t->y, i)) * t->x.planes + plane_of(&t->x, j);
        int64_t place = (k * t->y.count + i) * t->x.count + j;
        table[inside ? place * t->channels + c : c * places + place] =
            plane * t->plane + offset_of(&t->y, i) * t->pitch + offset_of(&t->x, j);
      }
}
// Where the positions of a unit lie in its planes, or in the source.
static bool place_columns(conv *t) {
  int64_t grid = t->x.grid, image = t->rows * grid, n = t->images * image;
  int64_t apart = t->plain ? image_of(t) : t->rows * t->pitch;
  t->columns = malloc((size_t)n * sizeof *t->columns);
  for (int64_t i = 0; t->columns && i < n; i++)
    t->columns[i] = i / image * apart + i % image / grid * t->pitch + i % grid;
  return t->columns != NULL;
}
// ---- the plan of pixels

static int64_t span_of(const conv_axis *a) {
  return (a->count - 1) * (a->move < 0 ? -a->move : a->move) + 1;
}
static int64_t low_of(const conv_axis *a) {
  int64_t first = px__conv_at(a, 0), last = px__conv_at(a, a->count - 1);
  return first < last ? first : last;
}
// Whether no position sees anything outside of the source.
static bool stays_inside(const conv_axis *a) {
  return low_of(a) >= 0 && (a->grid - 1) * a->step + low_of(a) + span_of(a) <= a->source;
}
static void choose_box(conv *t, const conv *like) {
  int64_t each = t->channels * t->groups, whole = (t->x.grid - 1) * t->x.step + span_of(&t->x);
  t->images = like ? like->images : px__min_count(px__ceil_div(COLUMNS, t->p), all_images(t));
  t->rows = like ? px__min_count(like->rows, t->y.grid) : t->y.grid;
  if (!like && t->images == 1) {
    int64_t row = t->z.count * whole * each * t->y.step, columns = px__ceil_div(COLUMNS, t->x.grid);
    int64_t most = PIECE_ELEMENTS / row;
    t->rows = px__min_count(t->rows, most < columns ? columns : most);
  }
  t->low = (conv_low){low_of(&t->z), low_of(&t->y), low_of(&t->x)};
  t->plain = (t->images == 1 || t->z.grid == 1) && stays_inside(&t->z) && stays_inside(&t->y) &&
             stays_inside(&t->x);
  int64_t rows = t->plain ? t->y.source : (t->rows - 1) * t->y.step + span_of(&t->y);
  t->box_row = (t->plain ? t->x.source : whole) * each;
  t->box_plane = rows * t->box_row;
  t->box_image = t->box_plane * (t->plain ? t->z.source : t->z.count);
}
// In the order in which the weights lie; of their gradient, the terms of a pixel together.
static void place_pixels(conv *t) {
  bool inside = t->what == 'w' || (t->last && t->what == 'f');
  int64_t places = t->z.count * t->y.count * t->x.count, width = t->x.grid;
  for (int64_t i = 0; i < places; i++) {
    int64_t k = i / (t->y.count * t->x.count);
    int64_t y = px__conv_at(&t->y, i / t->x.count % t->y.count) - t->low.y;
    int64_t x = px__conv_at(&t->x, i % t->x.count) - t->low.x;
    int64_t z = t->plain ? px__conv_at(&t->z, k) - t->low.z : k;
    int64_t at = z * t->box_plane + y * t->box_row + x * t->channels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
      t->table[inside ? i * t->channels + c : c * places + i] = at + c;
  }
  for (int64_t i = 0; i < t->images * t->rows * width; i++) {
    int64_t row = i / width % t->rows, image = i / width / t->rows;
    int64_t x = i % width * t->x.step * t->channels * t->groups;
    t->columns[i] = image * t->box_image + row * t->y.step * t->box_row + x;
  }
}
static int64_t panels_of(const conv *t) { return packed_size(t) / (panel_of(t) * t->terms); }
// Pieces [begin, end) of the panels of all groups' factors.
static void pack_factors(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  bool back = t->upright && t->what == 'i' && t->places > 1;
  int64_t item = (int64_t)type_of(t)->item, width = panel_of(t), panels = panels_of(t);
  int64_t each = back ? t->terms / t->og : 1, all = t->terms / each;
  for (int64_t i = begin; i < end; i++) {
    int64_t panel = i / PACKED, group = panel / panels, first = panel % panels * width;
    int64_t from = all * (i % PACKED) / PACKED, to = all * (i % PACKED + 1) / PACKED;
    int64_t count = px__min_count(t->results - first, width);
    if (count <= 0) continue;
    char *at = t->packed;
    at += (group * packed_size(t) + first * t->terms + from * each * width) * item;
    if (back) {
      type_of(t)->pack_back(t, group, first, count, from, to, at);
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
  t->packed = malloc((size_t)(t->groups * packed_size(t)) * type_of(t)->item + 1);
  int64_t pieces = t->groups * panels_of(t) * PACKED, grain = GRAIN * PACKED / t->terms;
  if (t->packed) px__cpu_parallel(pieces, grain / panel_of(t) + 1, pack_factors, t);
  return t->packed != NULL;
}
static bool plan_pixels(conv *t, const conv *like) {
  t->terms = t->channels * t->z.count * t->y.count * t->x.count;
  choose_box(t, like);
  int64_t positions = t->images * t->rows * t->x.grid;
  t->strips = t->plain ? 0 : t->images * t->box_image;
  t->ld = positions;
  t->table = malloc((size_t)t->terms * sizeof *t->table);
  t->columns = malloc((size_t)positions * sizeof *t->columns);
  if (!t->table || !t->columns) return false;
  place_pixels(t);
  return t->what == 'w' || pack_all_factors(t);
}

// Whether a row of the product is to be a position, of a product so large that turning its results
// and packing weights take little: results are whole tiles then but for a tenth, and no position is
// for nobody. Not of large images that are rows of the product as they lie.
static bool is_upright(const conv *t) {
  int64_t tiles = px__ceil_div(t->results, TILE_LANES);
  if (t->what == 'w' || t->dtype == PX_BFLOAT16) return false;
  if (t->what == 'i' && t->places > 1 && t->last) return false;
  if (t->terms < UPRIGHT_TERMS || t->results < UPRIGHT_RESULTS) return false;
  if (t->terms * t->results < UPRIGHT_WEIGHTS || t->n * t->seen < UPRIGHT_POSITIONS) return false;
  if (10 * t->results < 9 * tiles * TILE_LANES) return false;
  return !lies_there(t) || t->p < COLUMNS;
}
// Whether results are tiles of rows of weights and of positions that follow one another. Where too
// many lanes of vectors are empty, or places that a stride keeps apart share no lines of the cache,
// others are better: the upright way, or for one place and many results a product with panels.
static bool is_tiled(const conv *t) {
  bool dense = t->sd == 1 && t->sh == 1 && t->sw == 1, small = t->p < COLUMNS;
  if (t->dtype != PX_FLOAT32 || t->what == 'w' || (t->what == 'i' && !dense)) return false;
  if (t->term != 1 || t->results < TILED_RESULTS) return false;
  if (small && (t->p < PX__CONV_ALONE || !lies_there(t))) return false;
  int64_t pitch = same_place(&t->x) ? t->x.grid : t->x.grid + 1;
  bool full = 100 * vectors_in(t, t->y.grid, pitch) * 16 <= 105 * t->y.grid * t->x.grid;
  if (!small && same_place(&t->x) && !full && t->results > t->terms) return false;
  return px__conv_has_tiles() && ((dense && full) || !is_upright(t));
}
// What follows from the axes and channels. False if there was no memory.
static bool plan(conv *t, const conv *like) {
  if (t->pixels) return plan_pixels(t, like);
  int64_t sources = t->channels * t->z.count;
  t->terms = sources * t->y.count * t->x.count;
  t->tiled = is_tiled(t);
  t->upright = !t->tiled && is_upright(t);
  choose_pitch(t);
  choose_rows(t, like);
  bool together = t->images == 1 || (t->upright && t->z.grid == 1);
  t->plain = together && lies_there(t);
  t->plane = t->images * (t->rows + t->y.reach) * t->pitch + t->x.reach;
  t->strips = sources * t->y.planes * t->x.planes * t->plane + PX__GEMM_SLACK;
  if (t->plain) t->strips = t->tiled ? px__conv_room(t->results) + PX__GEMM_SLACK : 0;
  t->ld = (t->images * t->rows * t->pitch + 15) / 16 * 16;
  if ((t->narrow || t->upright) && !place_columns(t)) return false;
  if (t->upright && !pack_all_factors(t)) return false;
  if (t->plain) {
    t->plane = t->z.source * t->p;
    if (!t->upright && !t->tiled) return true;
  }
  t->rolls =
      t->images == 1 && t->z.count > 1 && (t->z.move == t->z.step || t->z.move == -t->z.step);
  int64_t turns = t->rolls ? t->z.count : 1;
  t->table = malloc((size_t)(turns * t->terms) * sizeof *t->table);
  for (int64_t i = 0; t->table && i < turns; i++) place_terms(t, i, t->table + i * t->terms);
  return t->table != NULL;
}

static void plan_end(conv *t) { free(t->own), free(t->table), free(t->columns), free(t->packed); }

// ---- units

static int64_t blocks_of(const conv *t) { return px__ceil_div(all_images(t), t->images); }
static int64_t bands_of(const conv *t) { return px__ceil_div(t->y.grid, t->rows); }
static unit unit_of(const conv *t, int64_t block, int64_t group, int64_t band) {
  unit u = {.first = block * t->images,
            .group = group,
            .y0 = band * t->rows,
            .c1 = t->pixels ? t->k : t->channels,
            .o1 = t->results};
  int64_t left = all_images(t) - u.first;
  u.images = left < t->images ? left : t->images;
  if (t->rolls) u.turn = u.first % t->z.grid % t->z.count;
  u.y1 = u.y0 + t->rows < t->y.grid ? u.y0 + t->rows : t->y.grid;
  return u;
}
// Room for the planes, and for results or gradients, of any phase. What is read past the planes is
// cleared: numbers of no meaning may be subnormal, which are slow.
static void *room_new(const conv *t) {
  size_t item = type_of(t)->item;
  int64_t most = 0;
  for (int64_t i = 0; i < t->phases; i++) {
    int64_t lines = t->what == 'w' ? t->og : t[i].results, all = t[i].strips + lines * t[i].ld;
    if (all > most) most = all;
  }
  char *room = px__aligned_new((size_t)most * item);
  for (int64_t i = 0; room && i < t->phases; i++)
    if (t[i].strips && !t->pixels)
      memset(room + (size_t)(t[i].strips - PX__GEMM_SLACK) * item, 0, PX__GEMM_SLACK * item);
  return room;
}

// What the unit after this one reads first, of a source that is used where it lies; NULL: nothing.
static const float *source_after(const conv *t, const unit *u) {
  unit next = *u;
  next.y0 += t->rows;
  if (next.y0 >= t->y.grid) next.y0 = 0, next.group++;
  if (next.group >= t->groups) next.group = 0, next.first++;
  return next.first < all_images(t) ? sources_f32(t, &next, NULL) : NULL;
}
// As results() does, by tiles of positions.
static bool tiled_results(const conv *t, const unit *u, void *room) {
  result_grid r = grid_of(t);
  int64_t n = (u->y1 - u->y0) * t->pitch - (t->pitch - t->x.grid);
  int64_t apart = r.depth * r.height * r.width;
  if (n < PX__CONV_LEAST) return results_f32(t, u, room);
  px__conv_product g = {
      .m = u->o1 - u->o0,
      .n = n,
      .k = t->terms,
      .a = (const float *)t->factors + u->group * t->results * t->terms + u->o0 * t->row,
      .ar = t->row,
      .b = sources_f32(t, u, room),
      .after = t->plain ? source_after(t, u) : NULL,
      .at = table_of(t, u),
      .c = results_at_f32(t, u, 0, &r) + u->o0 * apart,
      .cr = apart,
      .pitch = t->pitch,
      .grid = t->x.grid,
      .room = t->plain ? room : NULL};
  if (t->bias) g.bias = (const float *)t->bias + u->group * t->results + u->o0;
  px__conv_product_run(&g);
  return true;
}
// Where the results of the i-th cut begin: between whole tiles, or packed panels.
static int64_t cut_unit(const conv *t) { return t->tiled ? TILED_CUT : PX__GEMM_PACK; }
static int64_t cut_at(const conv *t, int64_t i) {
  int64_t each = cut_unit(t), pieces = px__ceil_div(t->results, each);
  return px__min_count(pieces * i / t->cuts * each, t->results);
}
// The i-th unit's share in a phase.
static bool run_phase(const conv *t, const conv *p, int64_t i, void *room, int64_t *work) {
  int64_t cut = t->by_cuts ? i / t->units : i % t->cuts;
  i = t->by_cuts ? i % t->units : i / t->cuts;
  int64_t first = i / t->bands / t->groups * t->run;
  for (int64_t block = first; block < first + t->run; block++) {
    unit u = unit_of(p, block, i / t->bands % t->groups, i % t->bands);
    u.goes_on = p->rolls && block > first && u.first % p->z.grid > 0;
    if (p->cuts > 1) u.o0 = cut_at(p, cut), u.o1 = cut_at(p, cut + 1);
    if (u.y0 >= u.y1 || u.images <= 0 || px__work_stopped(work, p->ld * p->terms)) return true;
    if (!(p->tiled ? tiled_results : type_of(t)->results)(p, &u, room)) return false;
  }
  return true;
}
// A unit's phases write the same lines of memory, so they go one after the other.
static void results_run(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  void *room = room_new(t);
  bool done = room != NULL;
  int64_t work = 0;
  for (int64_t i = begin; i < end; i++)
    for (int64_t phase = 0; done && phase < t->phases; phase++)
      done = run_phase(t, &t[phase], i, room, &work);
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(room);
}
// As to_weight() does, of one place and pixels: rows of results' gradients, which lie across, times
// what they see, as it lies.
static bool tiled_weight(const conv *t, const unit *u, void *room) {
  int64_t pixel = u->first * t->p + u->y0 * t->ow, result = u->group * t->og + u->o0;
  px__conv_product g = {.m = u->o1 - u->o0,
                        .n = t->cg,
                        .k = u->images * (u->y1 - u->y0) * t->ow,
                        .a = (const float *)t->grad + pixel * t->oc + result,
                        .ar = t->oc,
                        .turned = true,
                        .b = box_f32(t, u, room) + u->group * t->cg,
                        .at = t->columns,
                        .c = (float *)t->sums + (u->part * t->oc + result) * t->k,
                        .cr = t->k,
                        .pitch = t->cg,
                        .grid = t->cg};
  px__conv_sums_run(&g, !u->opens);
  return true;
}
// How many channels of a group, or results, or terms of pixels, are cut.
static int64_t cut_side(const conv *t) { return t->results_cut ? t->og : t->pixels ? t->k : t->cg; }
// A unit of it is a block of channels of a group, or of results, for a part of the batch: of the
// bands of all images, one band after the other.
static void weight_run(void *ctx, int64_t begin, int64_t end) {
  conv *t = ctx;
  void *room = room_new(t);
  bool done = room != NULL;
  int64_t blocks = blocks_of(t), pieces = blocks * bands_of(t), work = 0, side = cut_side(t);
  for (int64_t i = begin; i < end; i++) {
    int64_t rest = i / t->cuts, cut = i % t->cuts;
    int64_t part = rest / t->groups, to = pieces * (part + 1) / t->parts;
    int64_t from = pieces * part / t->parts;
    for (int64_t p = from; done && p < to && !px__work_stopped(&work, t->ld * t->terms); p++) {
      unit u = unit_of(t, p % blocks, rest % t->groups, p / blocks);
      u.part = part, u.opens = p == from;
      u.goes_on = t->rolls && p > from && u.first % t->z.grid > 0;
      int64_t low = side * cut / t->cuts, high = side * (cut + 1) / t->cuts;
      if (t->results_cut)
        u.o0 = low, u.o1 = high;
      else
        u.c0 = low, u.c1 = high;
      done = (t->tiled ? tiled_weight : type_of(t)->to_weight)(t, &u, room);
    }
  }
  if (!done) __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
  free(room);
}
static void share(conv *t, int64_t units, void (*run)(void *, int64_t, int64_t)) {
  double work = (double)t->n * (double)t->seen * (double)t->k * (double)t->oc;
  px__cpu_parallel(units, work < 1e5 ? units : 1, run, t);
}
static int64_t cuts_for(int64_t wanted, int64_t units) {
  return units ? px__ceil_div(wanted, units) : 1;
}
// Cuts of the results where several threads would have few units, so that none waits long for the
// last: each lays its sources anew, unless they are used as they lie, which takes little time
// beside LAID_CUT results, and is not worth it where all threads have as many units. Sums are the
// same. A single unit is a product that shares the threads itself, if it is not tiled.
static int64_t choose_cuts(const conv *t, int64_t phases, int64_t units) {
  int64_t threads = px__cpu_thread_count(), runs = threads > 1 ? RUNS * threads : 1;
  int64_t cuts = cuts_for(threads, units), more = cuts_for(runs, units);
  bool tiled = true, even = units % threads == 0;
  for (int64_t i = 0; i < phases; i++) {
    int64_t least = cut_unit(&t[i]);
    cuts = px__min_count(cuts, t[i].results / least);
    more = px__min_count(more, t->plain ? t[i].results / least
                               : even   ? 1
                                        : t[i].results / LAID_CUT);
    tiled &= t[i].tiled;
  }
  if (more > cuts) cuts = more;
  return (units > 1 || tiled) && cuts > 1 ? cuts : 1;
}
// Cuts whose weights stay near, where each panel of sources that are used as they lie reads them:
// one cut is done for all images after the other.
static int64_t near_cuts(const conv *t) {
  if (!t->tiled || !t->plain || t->p < COLUMNS) return 1;
  int64_t cuts = t->results * t->terms / NEAR_WEIGHTS + 1;
  return px__min_count(cuts, t->results / TILED_CUT);
}
// All phases, which follow one another from t.
static void convolve(conv *t, int64_t phases) {
  t->phases = phases, t->blocks = t->bands = 0;
  for (int64_t i = 0; i < phases; i++) {
    if (blocks_of(&t[i]) > t->blocks) t->blocks = blocks_of(&t[i]);
    if (bands_of(&t[i]) > t->bands) t->bands = bands_of(&t[i]);
  }
  int64_t units = t->blocks * t->groups * t->bands, runs = RUNS * px__cpu_thread_count();
  t->run = t->rolls && units > runs ? units / runs : 1;
  if (t->run > t->z.grid) t->run = t->z.grid;
  units = px__ceil_div(t->blocks, t->run) * t->groups * t->bands;
  int64_t cuts = choose_cuts(t, phases, units), near = near_cuts(t);
  t->units = units, t->by_cuts = near > 1;
  if (cuts < near) cuts = near;
  for (int64_t i = 0; i < phases; i++) t[i].inner = units == 1, t[i].cuts = cuts;
  share(t, units * cuts, results_run);
}
static void report(const conv *t, const px_launch *l) {
  if (t->failed) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
}

// ---- the kernels

// The dtype to compute in: bfloat16 stays what it is where the processor has tiles for it, and
// groups have enough channels for them. Where it only multiplies it, float is twice as fast, which
// pays for kernels of several places with enough results to make the weights float for.
enum { ENOUGH = 1024 };
static int compute_of(const px_operand *weight, const px_operand *results, int64_t groups) {
  bool fits = groups == 1 || (weight->sizes[1] >= TILED && weight->sizes[0] >= TILED * groups);
  if (weight->dtype != PX_BFLOAT16 || !fits || !px__gemm_has_bf16())
    return px__compute_of(weight->dtype);
  int64_t places = 1, count = results->sizes[0];
  for (int d = 2; d < weight->ndim; d++) places *= weight->sizes[d], count *= results->sizes[d];
  bool floats = px_cpu_level_used() < PX_CPU_AMX && places > 1 && count >= ENOUGH;
  return floats ? PX_FLOAT32 : PX_BFLOAT16;
}
// Weights as an array, row-major, or channels_last as they lie: float has ways, but that of pixels,
// that want them row-major.
static void *weights_of(conv *t, px__dense *d, const px_operand *o) {
  t->last = (t->dtype != PX_FLOAT32 || t->pixels) && o->dtype == t->dtype && !o->immediate &&
            px__operand_last(o) && !px__operand_row_major(o);
  if (t->last) return o->data;
  return t->what == 'w' ? px__dense_out(d, o, t->dtype) : px__dense_in(d, o, t->dtype);
}
// The way of few positions, if this convolution has numbers and is one for it. In t only `what` is
// set before.
static bool done_few(const px_launch *l, conv *t, const px_operand *in, const px_operand *weight,
                     const px_operand *bias, const px_operand *out, const steps *by) {
  if (!px_operand_numel(in) || !px_operand_numel(weight) || !px_operand_numel(out)) return false;
  conv_start(t, in, weight, out, by);
  if (!px__conv_few(t, in, weight, bias, out)) return false;
  report(t, l);
  return true;
}
// Whether source and result lie channels_last, and have channels in whole vectors but for a tenth.
static bool in_pixels(const px_operand *source, const px_operand *result, int64_t results,
                      int dtype) {
  const px_operand *both[] = {source, result};
  for (int i = 0; i < 2; i++)
    if (both[i]->dtype != dtype || both[i]->immediate || !px__operand_last(both[i]) ||
        px__operand_row_major(both[i]))
      return false;
  return dtype != PX_BFLOAT16 && px__conv_fills_lanes(results);
}
static void forward(conv *t) {
  t->z = px__conv_axis_forward(t->d, t->od, t->kd, t->sd, t->pd, t->dd);
  t->y = px__conv_axis_forward(t->h, t->oh, t->kh, t->sh, t->ph, t->dh);
  t->x = px__conv_axis_forward(t->w, t->ow, t->kw, t->sw, t->pw, t->dw);
  t->channels = t->cg, t->results = t->og, t->source = t->in, t->factors = t->weight;
  t->row = t->k, t->term = 1;
}
static px_status results_of(const px_launch *l, const px_operand *out, const px_operand *in,
                            const px_operand *weight, const px_operand *bias, const steps *by) {
  px__dense d = {.launch = l};
  conv few = {.what = 'f'};
  if (done_few(l, &few, in, weight, bias, out, by)) return PX_OK;
  int compute = compute_of(weight, out, by->groups);
  conv t = {.what = 'f',
            .dtype = compute,
            .pixels = in_pixels(in, out, out->sizes[1] / by->groups, compute)};
  t.out = t.pixels ? out->data : px__dense_out(&d, out, compute);
  t.in = t.pixels ? in->data : px__dense_in(&d, in, compute);
  t.bias = px__dense_in(&d, bias, compute);
  t.weight = weights_of(&t, &d, weight);
  if (!d.failed && px_operand_numel(out)) {
    conv_start(&t, in, weight, out, by);
    bool done = (!t.pixels && (px__conv_depth(&t) || px__conv_planes(&t))) || px__conv_winograd(&t);
    if (!done && !t.pixels && px__conv_small(&t)) {
      share(&t, px__conv_small_units(&t), px__conv_small_forward);
    } else if (!done) {
      forward(&t);
      t.failed = !plan(&t, NULL);
      if (!t.failed) convolve(&t, 1);
      plan_end(&t);
    }
    px__conv_small_end(&t);
    report(&t, l);
  }
  px__dense_close(&d);
  return PX_OK;
}

// Of output channels [begin, end) the weights that lie channels_last, at the places of this pass.
static void pick_weights(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  size_t run = (size_t)t->cg * type_of(t)->item;
  int64_t each = t->z.count * t->y.count * t->x.count;
  char *to = (char *)t->own + (size_t)(begin * each) * run;
  for (int64_t o = begin; o < end; o++)
    for (int64_t i = 0; i < each; i++, to += run)
      memcpy(to, (const char *)t->weight + (size_t)(o * t->places + picked(t, i)) * run, run);
}

// The positions that are z0, y0 and x0 beyond a multiple of the stride. Weights of one place are
// used as they lie, but for tiles, and those of the upright way are packed so. False: no memory.
static bool phase_of(conv *t, const conv *like) {
  int64_t places = t->z.count * t->y.count * t->x.count, row = t->og * places;
  t->channels = t->og, t->results = t->cg, t->source = t->grad, t->factors = t->weight;
  t->terms = t->row = row, t->term = 1;
  bool tiled = !t->pixels && is_tiled(t);
  if (t->places == 1 && !tiled) {
    t->row = 1, t->term = t->cg;
    return plan(t, like);
  }
  if (!t->pixels && !tiled && is_upright(t)) return plan(t, like);
  t->row = t->last ? 1 : row, t->term = t->last ? t->cg : 1;
  if (t->last && places == t->places) return plan(t, like);
  t->factors = t->own = malloc((size_t)(t->c * row) * type_of(t)->item + 1);
  if (t->own && t->last)
    px__cpu_parallel(t->oc, GRAIN / (places * t->cg) + 1, pick_weights, t);
  else if (t->own)
    px__cpu_parallel(turned_blocks(t) * t->groups, GRAIN / (TURNED * row) + 1,
                     type_of(t)->turn_weights, t);
  return t->own && plan(t, like);
}
// Plans the phases that see anything; gives their number.
static int64_t plan_back(const conv *t, conv *phases, bool *failed) {
  int64_t count = 0, depth = px__min_count(t->sd, t->d), rows = px__min_count(t->sh, t->h);
  int64_t columns = px__min_count(t->sw, t->w);
  for (int64_t i = 0; i < depth * rows * columns; i++) {
    conv p = *t;
    p.z0 = i / (rows * columns), p.y0 = i / columns % rows, p.x0 = i % columns;
    p.z = px__conv_axis_back(t->d, t->od, t->kd, t->sd, t->pd, t->dd, p.z0);
    p.y = px__conv_axis_back(t->h, t->oh, t->kh, t->sh, t->ph, t->dh, p.y0);
    p.x = px__conv_axis_back(t->w, t->ow, t->kw, t->sw, t->pw, t->dw, p.x0);
    if (!p.z.count || !p.y.count || !p.x.count) continue;
    *failed |= !phase_of(&p, count ? phases : NULL);
    phases[count++] = p;
  }
  return count;
}
static void backward(conv *t) {
  conv *phases = malloc((size_t)t->places * sizeof *phases);
  int64_t all =
      px__min_count(t->sd, t->d) * px__min_count(t->sh, t->h) * px__min_count(t->sw, t->w);
  int64_t count = phases ? plan_back(t, phases, &t->failed) : 0;
  if (count < all) {
    size_t numbers = (size_t)(t->n * t->c * t->d * t->h * t->w);
    px__cpu_clear(t->out, numbers * type_of(t)->item);
  }
  if (count && !t->failed) {
    convolve(phases, count);
    t->failed = phases->failed;
  }
  for (int64_t i = 0; i < count; i++) plan_end(&phases[i]);
  t->failed |= !phases;
  free(phases);
}
static px_status gradient_of_input(const px_launch *l, const px_operand *out,
                                   const px_operand *grad, const px_operand *weight,
                                   const steps *by) {
  px__dense d = {.launch = l};
  conv few = {.what = 'i'};
  if (done_few(l, &few, out, weight, NULL, grad, by)) return PX_OK;
  int compute = compute_of(weight, grad, by->groups);
  int64_t n = px_operand_numel(out), seen = px_operand_numel(grad);
  conv t = {.what = 'i',
            .dtype = compute,
            .pixels = in_pixels(grad, out, out->sizes[1] / by->groups, compute)};
  t.out = t.pixels ? out->data : px__dense_out(&d, out, compute);
  t.grad = t.pixels ? grad->data : px__dense_in(&d, grad, compute);
  t.weight = weights_of(&t, &d, weight);
  if (!d.failed && !seen) px__cpu_clear(t.out, (size_t)n * px_dtype_size((px_dtype)compute));
  if (!d.failed && n && seen) {
    conv_start(&t, out, weight, grad, by);
    bool done = (!t.pixels && (px__conv_depth(&t) || px__conv_planes(&t))) || px__conv_winograd(&t);
    if (!done && !t.pixels && px__conv_small(&t))
      share(&t, px__conv_small_units(&t), px__conv_small_forward);
    else if (!done)
      backward(&t);
    px__conv_small_end(&t);
    report(&t, l);
  }
  px__dense_close(&d);
  return PX_OK;
}

// Parts to be summed by themselves, as long as the sums are small beside what is read; channels are
// cut where that leaves few units for several threads, or results, where there are more of them
// than numbers that an output sees. Cuts do not change sums, parts do.
static void choose_parts(conv *t, int64_t pieces) {
  t->parts = pieces < MAX_PARTS ? pieces : MAX_PARTS;
  while (t->parts > 1 && t->parts * t->k * t->oc > PART_ELEMENTS) t->parts /= 2;
  int64_t threads = px__cpu_thread_count(), wanted = threads < MAX_PARTS ? MAX_PARTS : threads;
  t->cuts = threads > 1 ? wanted / (t->parts * t->groups) : 1;
  t->results_cut = (t->og > t->k && !t->narrow) || t->tiled;
  int64_t least = t->results_cut || t->last || t->pixels ? CUT_WIDE : CUT_CHANNELS;
  if (t->cuts > cut_side(t) / least) t->cuts = cut_side(t) / least;
  if (t->cuts < 1) t->cuts = 1;
}
// The sums of all parts, into t->sums.
static void weight_parts(conv *t, bool small) {
  int64_t units = small ? t->parts : t->parts * t->groups * t->cuts;
  t->phases = 1, t->inner = units == 1;
  share(t, units, small ? px__conv_small_weight : weight_run);
}
static bool is_narrow(const conv *t) {
  bool fits = t->og <= NARROW && 2 * t->og <= t->k && px__conv_fills_lanes(t->og);
  return t->pixels || (fits && !t->last && t->dtype != PX_BFLOAT16);
}
// The gradient of the weight, n numbers. A single part is summed up where it belongs, if it does
// not go on from unit to unit in bfloat16.
static void backward_weight(const px_launch *l, conv *t, int64_t n) {
  forward(t);
  bool small = !t->pixels && px__conv_small(t);
  t->tiled = t->pixels && t->places == 1 && t->dtype == PX_FLOAT32 && t->cg % PX__CONV_LEAST == 0 &&
             px__conv_has_tiles();
  t->narrow = !small && !t->tiled && is_narrow(t);
  if (!small) t->failed = !plan(t, NULL);
  int64_t pieces = small ? t->n : blocks_of(t) * bands_of(t);
  choose_parts(t, pieces);
  bool once = !small && pieces == 1;
  bool there = t->parts == 1 && !t->narrow && (once || type_of(t)->sum == type_of(t)->item);
  void *room = there ? NULL : px__scratch_new(l, (size_t)(t->parts * n) * type_of(t)->sum);
  t->sums = there ? t->out : room;
  if (t->sums && !t->failed) {
    weight_parts(t, small);
    if (t->narrow)
      px__cpu_parallel(t->groups * t->k, GRAIN / t->og, type_of(t)->add_narrow, t);
    else if (room)
      px__cpu_parallel(n, GRAIN, type_of(t)->add_parts, t);
  }
  free(room);
  plan_end(t);
  px__conv_small_end(t);
  report(t, l);
}
static px_status gradient_of_weight(const px_launch *l, const px_operand *out,
                                    const px_operand *grad, const px_operand *in, const steps *by) {
  px__dense d = {.launch = l};
  conv few = {.what = 'w'};
  if (done_few(l, &few, in, out, NULL, grad, by)) return PX_OK;
  int compute = compute_of(out, grad, by->groups);
  int64_t n = px_operand_numel(out);
  conv t = {.what = 'w',
            .dtype = compute,
            .pixels = in_pixels(in, grad, grad->sizes[1] / by->groups, compute)};
  t.grad = t.pixels ? grad->data : px__dense_in(&d, grad, compute);
  t.in = t.pixels ? in->data : px__dense_in(&d, in, compute);
  t.out = weights_of(&t, &d, out);
  bool seen = px_operand_numel(grad) > 0;
  if (!d.failed && !seen) px__cpu_clear(t.out, (size_t)n * px_dtype_size((px_dtype)compute));
  if (!d.failed && n && seen) {
    conv_start(&t, in, out, grad, by);
    if ((!t.pixels && px__conv_planes(&t)) || px__conv_winograd(&t))
      report(&t, l);
    else
      backward_weight(l, &t, n);
  }
  px__dense_close(&d);
  return PX_OK;
}

PX_KERNEL(conv2d) {
  return results_of(l, args->out, args->input, args->weight, args->bias, STEPS(args));
}
PX_KERNEL(conv3d_forward) {
  return results_of(l, args->out, args->input, args->weight, args->bias, STEPS(args));
}
PX_KERNEL(conv2d_backward_input) {
  return gradient_of_input(l, args->out, args->grad_output, args->weight, STEPS(args));
}
PX_KERNEL(conv3d_backward_input) {
  return gradient_of_input(l, args->out, args->grad_output, args->weight, STEPS(args));
}
PX_KERNEL(conv2d_backward_weight) {
  return gradient_of_weight(l, args->out, args->grad_output, args->input, STEPS(args));
}
PX_KERNEL(conv3d_backward_weight) {
  return gradient_of_weight(l, args->out, args->grad_output, args->input, STEPS(args));
}
