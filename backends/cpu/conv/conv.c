// SPDX-License-Identifier: Apache-2.0
// conv2d, conv3d and their gradients as products of matrices.
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
#include "cpu/convert/dense.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_tiles.h"
#include "cpu/vector/fp16_bf16.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"
#include "kernel_args/conv.h"
#include "kernel_args/volume.h"

#include <stdlib.h>
#include <string.h>

enum {
  MIN_UNIT_COLUMNS = 128,           // min GEMM columns per work unit
  MAX_PLANE_ELEMENTS = 128 * 1024,  // max elements of a unit's planes
  MAX_WASTED_RESULTS = 64,          // unused results per pixel that cost as much as a plane per tap
  MIN_BF16_CHANNELS = 16,           // min channels of a group, in and out, for bfloat16
  MAX_PARTS = 8,                    // of the weight gradient
  PART_ELEMENTS = 128 * 1024,       // max elements of the parts' sums
  MIN_CUT_CHANNELS = 8,             // min channels of a cut of the weight gradient
  MIN_CUT_RESULTS = 32,             // the same for results, channels_last and pixels
  MAX_NARROW_RESULTS = 128,         // max results of a group to pack their gradients, not the input
  MIN_PIXEL_ROW_TERMS = 256,        // min terms, results, weights and pixels for pixel rows
  MIN_PIXEL_ROW_RESULTS = 64,
  MIN_PIXEL_ROW_WEIGHTS = 32 * 1024
};
enum {
  MIN_PIXEL_ROWS = 256,
  PIXEL_ROW_COLUMNS = 96,  // columns of a unit with pixel rows
  TILE_LANES = 32
};
enum {
  MIN_TILED_RESULTS = 12,   // min results of a group for conv_indirect.h
  MIN_TILED_CUT = 24,       // min results of a cut of them
  MIN_COPIED_CUT = 128,     // min results of a cut if each cut copies the source
  MAX_DIRECT_COLUMNS = 512  // max pixels of a unit with a directly used source
};
enum {
  SMALL_WEIGHTS = 16 * 1024,  // max weights for which an image is cut into many bands
  SMALL_WEIGHT_BANDS = 32     // bands of all images in that case
};
enum { CACHED_WEIGHTS = 192 * 1024 };  // weights that stay in L2 with the streamed data
enum { MIN_BORDER_CLEAR_PITCH = 24 };  // min row stride to clear only a plane's borders
enum { UNITS_PER_THREAD = 4 };         // min units per thread if depths are merged or results cut
enum {
  WEIGHT_GRAIN = 16 * 1024,  // weights transposed or added per thread, min
  PACK_PIECES = 4            // independently packed pieces per panel
};

typedef struct unit {
  int64_t first, images, group, y0, y1, part, c0, c1, o0, o1;  // c: channels; pixels: terms
  bool first_of_part;  // first unit of a part of the weight gradient
  // Rotation of the plane slots, and whether the planes of the previous depth are still present.
  int64_t rotation;
  bool continues;
} unit;

// Channels transposed together.
enum { TRANSPOSED_CHANNELS = 16 };
static int64_t transposed_blocks(const conv *t) { return px__ceil_div(t->cg, TRANSPOSED_CHANNELS); }

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
// The first q with start + q * step >= bound, at most `max`.
static int64_t first_from(int64_t start, int64_t step, int64_t bound, int64_t max) {
  int64_t q = bound <= start ? 0 : px__ceil_div(bound - start, step);
  return q < max ? q : max;
}

// The slot of depth tap k among a channel's planes.
static int64_t slot_of(const conv *t, int64_t rotation, int64_t k) {
  if (!t->rotates) return k;
  return (rotation + (t->z.move > 0 ? k : t->z.count - k)) % t->z.count;
}
static const int64_t *table_of(const conv *t, const unit *u) {
  return t->term_offsets ? t->term_offsets + u->rotation * t->terms : NULL;
}

// Elements of a group's packed factors.
static int64_t packed_size(const conv *t) {
  return px__ceil_div(t->results, PX__GEMM_PACK) * PX__GEMM_PACK * t->terms;
}

// Lanes of a packed panel.
static int64_t panel_of(const conv *t) {
  return (t->dtype == PX_FLOAT64 ? px__tiles_f64() : px__tiles_f32())->columns;
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

// ---- the plan

// A kernel with one tap per plane and unchanged planes: a plane becomes a row of an image.
static void flatten_planes(conv *t) {
  bool whole = t->sh == 1 && t->sw == 1 && t->ph == 0 && t->pw == 0;
  if (!whole || t->oh != t->h || t->ow != t->w) return;
  t->w *= t->h, t->ow = t->w;
  t->h = t->d, t->oh = t->od, t->kh = t->kd;
  t->sh = t->sd, t->ph = t->pd, t->dh = t->dd;
  t->d = t->od = t->kd = t->sd = t->dd = 1, t->pd = 0;
}
// Stride, padding, dilation and groups of a call.
typedef struct steps {
  const px_value *stride, *padding, *dilation;
  int64_t groups;
} steps;
#define STEPS(args) \
  &(steps) { &(args)->stride, &(args)->padding, &(args)->dilation, (args)->groups }
static void conv_start(conv *t, const px_operand *in, const px_operand *weight,
                       const px_operand *out, const steps *by) {
  bool deep = in->ndim == 5;
  int y = deep ? 1 : 0, x = y + 1;  // indices in the lists
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
    if (t->kh * t->kw == 1) flatten_planes(t);
  }
  t->groups = by->groups;
  t->cg = t->c / t->groups, t->og = t->oc / t->groups;
  t->kernel_taps = t->kd * t->kh * t->kw, t->k = t->cg * t->kernel_taps;
  t->p = t->oh * t->ow, t->out_pixels = t->od * t->p;
}

// Chooses shared planes if they need less copying.
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
// Row stride of a plane. The zeros before a row also serve as padding after the previous row.
static int64_t pitch_of(const conv_axis *x) {
  int64_t lead = x->step == 1 ? -x->low : -x->low - 1, whole = x->grid + x->reach;
  int64_t behind = px__ceil_div(x->source, x->step) - x->low;
  int64_t pitch = whole - (lead > 0 ? lead : 0);
  if (pitch < behind) pitch = behind;
  if (pitch < x->grid) pitch = x->grid;
  return pitch < whole ? pitch : whole;
}
static void choose_pitch(conv *t) {
  choose_planes(&t->x, t->mode != 'w' || t->narrow);
  t->pitch = pitch_of(&t->x);
  if (t->narrow || t->pixel_rows ||
      (t->pitch - t->x.grid) * t->results <= MAX_WASTED_RESULTS * t->x.grid)
    return;
  choose_planes(&t->x, false);
  t->pitch = t->x.grid;
}
// Vectors of pixels in so many rows; and the cost of their tiles: a panel of four vectors, or
// fewer, costs about one vector extra.
static int64_t vectors_in(const conv *t, int64_t rows, int64_t pitch) {
  return rows ? (rows * pitch - (pitch - t->x.grid) + 15) / 16 : 0;
}
static int64_t tiles_in(const conv *t, int64_t rows) {
  int64_t vectors = vectors_in(t, rows, t->pitch);
  return vectors + (vectors + 3) / 4;
}
// Rows of a band of tiled pixels with the lowest cost, between max / 2 and `max`.
static int64_t even_rows(const conv *t, int64_t max) {
  int64_t best = max, min = INT64_MAX;
  for (int64_t rows = max; rows > 0 && 2 * rows >= max; rows--) {
    int64_t all = t->y.grid / rows * tiles_in(t, rows) + tiles_in(t, t->y.grid % rows);
    if (all < min) best = rows, min = all;
  }
  return best;
}
// Rows of a band such that each thread has one band, given the cuts of the results.
static int64_t shared_rows(const conv *t) {
  int64_t units = all_images(t) * px__ceil_div(t->results, PX__GEMM_PACK);
  int64_t bands = px__ceil_div(px__cpu_thread_count(), units);
  return px__ceil_div(t->y.grid, bands);
}
// Rows of a share if `rows` are divided evenly into the fewest shares of at most `max`.
static int64_t even_share(int64_t rows, int64_t max) {
  int64_t shares = px__ceil_div(rows, max);
  return px__ceil_div(rows, shares);
}
static bool is_identity(const conv_axis *a) {
  return a->count == 1 && a->step == 1 && a->shift == 0 && a->grid == a->source;
}
// True if the source can be used directly.
static bool uses_source_directly(const conv *t) {
  return is_identity(&t->z) && is_identity(&t->y) && is_identity(&t->x);
}
// Max rows of a band. A directly used image needs no planes in cache. Few weights are cheap to read
// repeatedly, so there may be bands for many threads.
static int64_t max_rows(const conv *t) {
  int64_t row = t->channels * t->z.count * t->y.planes * t->x.planes * t->pitch;
  int64_t max = MAX_PLANE_ELEMENTS / row - t->y.reach,
          min = px__ceil_div(MIN_UNIT_COLUMNS, t->pitch);
  int64_t far = MAX_DIRECT_COLUMNS / t->pitch,
          bands = t->mode == 'w' ? MAX_PARTS : SMALL_WEIGHT_BANDS;
  if (t->tiled && is_identity(&t->y) && is_identity(&t->x)) max = far;
  if (t->results * t->terms <= SMALL_WEIGHTS && (t->mode != 'i' || t->results >= MIN_TILED_RESULTS))
    max = px__min_count(max, px__ceil_div(t->y.grid * all_images(t), bands) + far);
  if (t->pixel_rows) max = px__min_count(max, shared_rows(t));
  return max > min ? max : min;
}
// The phases of one convolution use the images and rows of the first phase.
static void choose_rows(conv *t, const conv *like) {
  if (like) {
    choose_planes(&t->y, like->images == 1);
    t->images = like->images, t->rows = like->rows;
    return;
  }
  int64_t columns = t->tiled ? t->p : t->pixel_rows ? PIXEL_ROW_COLUMNS : MIN_UNIT_COLUMNS;
  t->images = px__ceil_div(columns, t->p);
  if (t->images > all_images(t)) t->images = all_images(t);
  choose_planes(&t->y, t->images == 1);
  t->rows = t->y.grid;
  if (t->images > 1) return;
  int64_t max = max_rows(t);
  if (max < t->rows) t->rows = t->tiled ? even_rows(t, max) : even_share(t->y.grid, max);
}
// Offsets of the terms, in the order of the weights.
static void set_term_offsets(conv *t, int64_t rotation, int64_t *table) {
  bool inside = t->weight_channels_last && t->mode != 'i';
  int64_t kernel_taps = t->z.count * t->y.count * t->x.count;
  for (int64_t source = 0; source < t->channels * t->z.count; source++)
    for (int64_t i = 0; i < t->y.count; i++)
      for (int64_t j = 0; j < t->x.count; j++) {
        int64_t c = source / t->z.count, k = source % t->z.count;
        int64_t plane = c * t->z.count + slot_of(t, rotation, k);
        plane = (plane * t->y.planes + plane_of(&t->y, i)) * t->x.planes + plane_of(&t->x, j);
        int64_t place = (k * t->y.count + i) * t->x.count + j;
        table[inside ? place * t->channels + c : c * kernel_taps + place] =
            plane * t->plane + offset_of(&t->y, i) * t->pitch + offset_of(&t->x, j);
      }
}
// Offsets of a unit's output pixels in its planes or in the source.
static bool set_pixel_offsets(conv *t) {
  int64_t grid = t->x.grid, image = t->rows * grid, n = t->images * image;
  int64_t apart = t->direct_source ? image_of(t) : t->rows * t->pitch;
  t->pixel_offsets = malloc((size_t)n * sizeof *t->pixel_offsets);
  for (int64_t i = 0; t->pixel_offsets && i < n; i++)
    t->pixel_offsets[i] = i / image * apart + i % image / grid * t->pitch + i % grid;
  return t->pixel_offsets != NULL;
}
// ---- the plan for channels_last

static int64_t span_of(const conv_axis *a) {
  return (a->count - 1) * (a->move < 0 ? -a->move : a->move) + 1;
}
static int64_t low_of(const conv_axis *a) {
  int64_t first = px__conv_at(a, 0), last = px__conv_at(a, a->count - 1);
  return first < last ? first : last;
}
// True if no output pixel reads padding.
static bool stays_inside(const conv_axis *a) {
  return low_of(a) >= 0 && (a->grid - 1) * a->step + low_of(a) + span_of(a) <= a->source;
}
static void choose_box(conv *t, const conv *like) {
  int64_t each = t->channels * t->groups, whole = (t->x.grid - 1) * t->x.step + span_of(&t->x);
  t->images =
      like ? like->images : px__min_count(px__ceil_div(MIN_UNIT_COLUMNS, t->p), all_images(t));
  t->rows = like ? px__min_count(like->rows, t->y.grid) : t->y.grid;
  if (!like && t->images == 1) {
    int64_t row = t->z.count * whole * each * t->y.step,
            columns = px__ceil_div(MIN_UNIT_COLUMNS, t->x.grid);
    int64_t max = MAX_PLANE_ELEMENTS / row;
    t->rows = px__min_count(t->rows, max < columns ? columns : max);
  }
  t->low = (conv_origin){low_of(&t->z), low_of(&t->y), low_of(&t->x)};
  t->direct_source = (t->images == 1 || t->z.grid == 1) && stays_inside(&t->z) &&
                     stays_inside(&t->y) && stays_inside(&t->x);
  int64_t rows = t->direct_source ? t->y.source : (t->rows - 1) * t->y.step + span_of(&t->y);
  t->box_row = (t->direct_source ? t->x.source : whole) * each;
  t->box_plane = rows * t->box_row;
  t->box_image = t->box_plane * (t->direct_source ? t->z.source : t->z.count);
}
// Offsets of terms in the order of the weights, for their gradient with the channels of a pixel
// adjacent; and offsets of pixels.
static void set_channels_last_offsets(conv *t) {
  bool inside = t->mode == 'w' || (t->weight_channels_last && t->mode == 'f');
  int64_t kernel_taps = t->z.count * t->y.count * t->x.count, width = t->x.grid;
  for (int64_t i = 0; i < kernel_taps; i++) {
    int64_t k = i / (t->y.count * t->x.count);
    int64_t y = px__conv_at(&t->y, i / t->x.count % t->y.count) - t->low.y;
    int64_t x = px__conv_at(&t->x, i % t->x.count) - t->low.x;
    int64_t z = t->direct_source ? px__conv_at(&t->z, k) - t->low.z : k;
    int64_t at = z * t->box_plane + y * t->box_row + x * t->channels * t->groups;
    for (int64_t c = 0; c < t->channels; c++)
      t->term_offsets[inside ? i * t->channels + c : c * kernel_taps + i] = at + c;
  }
  for (int64_t i = 0; i < t->images * t->rows * width; i++) {
    int64_t row = i / width % t->rows, image = i / width / t->rows;
    int64_t x = i % width * t->x.step * t->channels * t->groups;
    t->pixel_offsets[i] = image * t->box_image + row * t->y.step * t->box_row + x;
  }
}
static int64_t panels_of(const conv *t) { return packed_size(t) / (panel_of(t) * t->terms); }
// Packs pieces [begin, end) of the panels of all groups' factors.
static void pack_factors(void *ctx, int64_t begin, int64_t end) {
  const conv *t = ctx;
  bool back = t->pixel_rows && t->mode == 'i' && t->kernel_taps > 1;
  int64_t item = (int64_t)type_of(t)->item, width = panel_of(t), panels = panels_of(t);
  int64_t each = back ? t->terms / t->og : 1, all = t->terms / each;
  for (int64_t i = begin; i < end; i++) {
    int64_t panel = i / PACK_PIECES, group = panel / panels, first = panel % panels * width;
    int64_t from = all * (i % PACK_PIECES) / PACK_PIECES,
            to = all * (i % PACK_PIECES + 1) / PACK_PIECES;
    int64_t count = px__min_count(t->results - first, width);
    if (count <= 0) continue;
    char *at = t->packed;
    at += (group * packed_size(t) + first * t->terms + from * each * width) * item;
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
  t->packed = malloc((size_t)(t->groups * packed_size(t)) * type_of(t)->item + 1);
  int64_t pieces = t->groups * panels_of(t) * PACK_PIECES,
          grain = WEIGHT_GRAIN * PACK_PIECES / t->terms;
  if (t->packed) px__cpu_parallel(pieces, grain / panel_of(t) + 1, pack_factors, t);
  return t->packed != NULL;
}
static bool plan_channels_last(conv *t, const conv *like) {
  t->terms = t->channels * t->z.count * t->y.count * t->x.count;
  choose_box(t, like);
  int64_t positions = t->images * t->rows * t->x.grid;
  t->planes_size = t->direct_source ? 0 : t->images * t->box_image;
  t->ld = positions;
  t->term_offsets = malloc((size_t)t->terms * sizeof *t->term_offsets);
  t->pixel_offsets = malloc((size_t)positions * sizeof *t->pixel_offsets);
  if (!t->term_offsets || !t->pixel_offsets) return false;
  set_channels_last_offsets(t);
  return t->mode == 'w' || pack_all_factors(t);
}

// True if rows of the product should be output pixels: the product is large enough for the cost of
// transposing results and packing weights to be small, and results fill tiles to 90 %. Not for
// large images that are rows of the product already.
static bool uses_pixel_rows(const conv *t) {
  int64_t tiles = px__ceil_div(t->results, TILE_LANES);
  if (t->mode == 'w' || t->dtype == PX_BFLOAT16) return false;
  if (t->mode == 'i' && t->kernel_taps > 1 && t->weight_channels_last) return false;
  if (t->terms < MIN_PIXEL_ROW_TERMS || t->results < MIN_PIXEL_ROW_RESULTS) return false;
  if (t->terms * t->results < MIN_PIXEL_ROW_WEIGHTS || t->n * t->out_pixels < MIN_PIXEL_ROWS)
    return false;
  if (10 * t->results < 9 * tiles * TILE_LANES) return false;
  return !uses_source_directly(t) || t->p < MIN_UNIT_COLUMNS;
}
// True if conv_indirect.h applies: tiles of weight rows and consecutive pixels. If too many lanes
// would be empty, or stride-separated taps share no cache lines, other methods are better:
// `pixel_rows`, or a panel product for 1x1 kernels with many results.
static bool is_tiled(const conv *t) {
  bool dense = t->sd == 1 && t->sh == 1 && t->sw == 1, small = t->p < MIN_UNIT_COLUMNS;
  if (t->dtype != PX_FLOAT32 || t->mode == 'w' || (t->mode == 'i' && !dense)) return false;
  if (t->term != 1 || t->results < MIN_TILED_RESULTS) return false;
  if (small && (t->p < PX__CONV_MIN_IMAGE_PIXELS || !uses_source_directly(t))) return false;
  int64_t pitch = is_identity(&t->x) ? t->x.grid : t->x.grid + 1;
  bool full = 100 * vectors_in(t, t->y.grid, pitch) * 16 <= 105 * t->y.grid * t->x.grid;
  if (!small && is_identity(&t->x) && !full && t->results > t->terms) return false;
  return px__conv_has_tiles() && ((dense && full) || !uses_pixel_rows(t));
}
// Derives the plan from the axes and channels. Returns false if out of memory.
static bool plan(conv *t, const conv *like) {
  if (t->channels_last) return plan_channels_last(t, like);
  int64_t sources = t->channels * t->z.count;
  t->terms = sources * t->y.count * t->x.count;
  t->tiled = is_tiled(t);
  t->pixel_rows = !t->tiled && uses_pixel_rows(t);
  choose_pitch(t);
  choose_rows(t, like);
  bool together = t->images == 1 || (t->pixel_rows && t->z.grid == 1);
  t->direct_source = together && uses_source_directly(t);
  t->plane = t->images * (t->rows + t->y.reach) * t->pitch + t->x.reach;
  t->planes_size = sources * t->y.planes * t->x.planes * t->plane + PX__GEMM_SLACK;
  if (t->direct_source)
    t->planes_size = t->tiled ? px__conv_scratch_size(t->results) + PX__GEMM_SLACK : 0;
  t->ld = (t->images * t->rows * t->pitch + 15) / 16 * 16;
  if ((t->narrow || t->pixel_rows) && !set_pixel_offsets(t)) return false;
  if (t->pixel_rows && !pack_all_factors(t)) return false;
  if (t->direct_source) {
    t->plane = t->z.source * t->p;
    if (!t->pixel_rows && !t->tiled) return true;
  }
  t->rotates =
      t->images == 1 && t->z.count > 1 && (t->z.move == t->z.step || t->z.move == -t->z.step);
  int64_t turns = t->rotates ? t->z.count : 1;
  t->term_offsets = malloc((size_t)(turns * t->terms) * sizeof *t->term_offsets);
  for (int64_t i = 0; t->term_offsets && i < turns; i++)
    set_term_offsets(t, i, t->term_offsets + i * t->terms);
  return t->term_offsets != NULL;
}

static void plan_end(conv *t) {
  free(t->own), free(t->term_offsets), free(t->pixel_offsets), free(t->packed);
}

// ---- units

static int64_t blocks_of(const conv *t) { return px__ceil_div(all_images(t), t->images); }
static int64_t bands_of(const conv *t) { return px__ceil_div(t->y.grid, t->rows); }
static unit unit_of(const conv *t, int64_t block, int64_t group, int64_t band) {
  unit u = {.first = block * t->images,
            .group = group,
            .y0 = band * t->rows,
            .c1 = t->channels_last ? t->k : t->channels,
            .o1 = t->results};
  int64_t left = all_images(t) - u.first;
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
  return next.first < all_images(t) ? sources_f32(t, &next, NULL) : NULL;
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
static int64_t cut_unit(const conv *t) { return t->tiled ? MIN_TILED_CUT : PX__GEMM_PACK; }
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
static void run_units(conv *t, int64_t units, void (*run)(void *, int64_t, int64_t)) {
  double work = (double)t->n * (double)t->out_pixels * (double)t->k * (double)t->oc;
  px__cpu_parallel(units, work < 1e5 ? units : 1, run, t);
}
static int64_t cuts_for(int64_t wanted, int64_t units) {
  return units ? px__ceil_div(wanted, units) : 1;
}
// Number of cuts of the results, to balance few units over several threads. Each cut copies the
// source again unless it is used directly; this is cheap for MIN_COPIED_CUT results, and not
// worthwhile if units divide evenly among threads. Sums do not change. A single unit, unless tiled,
// is a product that uses the threads itself.
static int64_t choose_cuts(const conv *t, int64_t phases, int64_t units) {
  int64_t threads = px__cpu_thread_count(), runs = threads > 1 ? UNITS_PER_THREAD * threads : 1;
  int64_t cuts = cuts_for(threads, units), more = cuts_for(runs, units);
  bool tiled = true, even = units % threads == 0;
  for (int64_t i = 0; i < phases; i++) {
    int64_t min = cut_unit(&t[i]);
    cuts = px__min_count(cuts, t[i].results / min);
    more = px__min_count(more, t->direct_source ? t[i].results / min
                               : even           ? 1
                                                : t[i].results / MIN_COPIED_CUT);
    tiled &= t[i].tiled;
  }
  if (more > cuts) cuts = more;
  return (units > 1 || tiled) && cuts > 1 ? cuts : 1;
}
// Number of cuts for which a cut's weights stay in cache: every panel of a directly used source
// reads them. The cuts are then processed one after the other over all images.
static int64_t cached_cuts(const conv *t) {
  if (!t->tiled || !t->direct_source || t->p < MIN_UNIT_COLUMNS) return 1;
  int64_t cuts = t->results * t->terms / CACHED_WEIGHTS + 1;
  return px__min_count(cuts, t->results / MIN_TILED_CUT);
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
  run_units(t, units * cuts, results_run);
}
static void report(const conv *t, const px_launch *l) {
  if (t->failed) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
}

// ---- the kernels

// The compute dtype. bfloat16 is kept if the processor has tiles for it and the groups have enough
// channels. With AVX512-BF16 alone float is twice as fast; converting the weights pays off for
// kernels of several taps with enough results.
enum { MIN_FLOAT_PIXELS = 1024 };  // output pixels
static int compute_of(const px_operand *weight, const px_operand *results, int64_t groups) {
  bool fits = groups == 1 || (weight->sizes[1] >= MIN_BF16_CHANNELS &&
                              weight->sizes[0] >= MIN_BF16_CHANNELS * groups);
  if (weight->dtype != PX_BFLOAT16 || !fits || !px__gemm_has_bf16())
    return px__compute_of(weight->dtype);
  int64_t kernel_taps = 1, count = results->sizes[0];
  for (int d = 2; d < weight->ndim; d++)
    kernel_taps *= weight->sizes[d], count *= results->sizes[d];
  bool floats = px_cpu_level_used() < PX_CPU_AMX && kernel_taps > 1 && count >= MIN_FLOAT_PIXELS;
  return floats ? PX_FLOAT32 : PX_BFLOAT16;
}
// Weights as a row-major array, or used directly if channels_last. Float methods other than
// `channels_last` require row-major weights.
static void *weights_of(conv *t, px__dense *d, const px_operand *o) {
  t->weight_channels_last = (t->dtype != PX_FLOAT32 || t->channels_last) && o->dtype == t->dtype &&
                            !o->immediate && px__operand_channels_last(o) &&
                            !px__operand_row_major(o);
  if (t->weight_channels_last) return o->data;
  return t->mode == 'w' ? px__dense_out(d, o, t->dtype) : px__dense_in(d, o, t->dtype);
}
// conv_few_pixels.c's method, if applicable and nothing is empty. Only t->mode is set before.
static bool run_conv_few(const px_launch *l, conv *t, const px_operand *in,
                         const px_operand *weight, const px_operand *bias, const px_operand *out,
                         const steps *by) {
  if (!px_operand_numel(in) || !px_operand_numel(weight) || !px_operand_numel(out)) return false;
  conv_start(t, in, weight, out, by);
  if (!px__conv_few(t, in, weight, bias, out)) return false;
  report(t, l);
  return true;
}
// True if source and result are channels_last and the results fill vectors to 90 %.
static bool are_channels_last(const px_operand *source, const px_operand *result, int64_t results,
                              int dtype) {
  const px_operand *both[] = {source, result};
  for (int i = 0; i < 2; i++)
    if (both[i]->dtype != dtype || both[i]->immediate || !px__operand_channels_last(both[i]) ||
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
  conv few = {.mode = 'f'};
  if (run_conv_few(l, &few, in, weight, bias, out, by)) return PX_OK;
  int compute = compute_of(weight, out, by->groups);
  conv t = {.mode = 'f',
            .dtype = compute,
            .channels_last = are_channels_last(in, out, out->sizes[1] / by->groups, compute)};
  t.out = t.channels_last ? out->data : px__dense_out(&d, out, compute);
  t.in = t.channels_last ? in->data : px__dense_in(&d, in, compute);
  t.bias = px__dense_in(&d, bias, compute);
  t.weight = weights_of(&t, &d, weight);
  if (!d.failed && px_operand_numel(out)) {
    conv_start(&t, in, weight, out, by);
    bool done =
        (!t.channels_last && (px__conv_depth(&t) || px__conv_planes(&t))) || px__conv_winograd(&t);
    if (!done && !t.channels_last && px__conv_small(&t)) {
      run_units(&t, px__conv_small_units(&t), px__conv_small_forward);
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
  bool tiled = !t->channels_last && is_tiled(t);
  if (t->kernel_taps == 1 && !tiled) {
    t->row = 1, t->term = t->cg;
    return plan(t, like);
  }
  if (!t->channels_last && !tiled && uses_pixel_rows(t)) return plan(t, like);
  t->row = t->weight_channels_last ? 1 : row, t->term = t->weight_channels_last ? t->cg : 1;
  if (t->weight_channels_last && kernel_taps == t->kernel_taps) return plan(t, like);
  t->factors = t->own = malloc((size_t)(t->c * row) * type_of(t)->item + 1);
  if (t->own && t->weight_channels_last)
    px__cpu_parallel(t->oc, WEIGHT_GRAIN / (kernel_taps * t->cg) + 1, pick_weights, t);
  else if (t->own)
    px__cpu_parallel(transposed_blocks(t) * t->groups,
                     WEIGHT_GRAIN / (TRANSPOSED_CHANNELS * row) + 1, type_of(t)->transpose_weights,
                     t);
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
static void backward(conv *t) {
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
  for (int64_t i = 0; i < count; i++) plan_end(&phases[i]);
  t->failed |= !phases;
  free(phases);
}
static px_status gradient_of_input(const px_launch *l, const px_operand *out,
                                   const px_operand *grad, const px_operand *weight,
                                   const steps *by) {
  px__dense d = {.launch = l};
  conv few = {.mode = 'i'};
  if (run_conv_few(l, &few, out, weight, NULL, grad, by)) return PX_OK;
  int compute = compute_of(weight, grad, by->groups);
  int64_t n = px_operand_numel(out), seen = px_operand_numel(grad);
  conv t = {.mode = 'i',
            .dtype = compute,
            .channels_last = are_channels_last(grad, out, out->sizes[1] / by->groups, compute)};
  t.out = t.channels_last ? out->data : px__dense_out(&d, out, compute);
  t.grad = t.channels_last ? grad->data : px__dense_in(&d, grad, compute);
  t.weight = weights_of(&t, &d, weight);
  if (!d.failed && !seen) px__cpu_clear(t.out, (size_t)n * px_dtype_size((px_dtype)compute));
  if (!d.failed && n && seen) {
    conv_start(&t, out, weight, grad, by);
    bool done =
        (!t.channels_last && (px__conv_depth(&t) || px__conv_planes(&t))) || px__conv_winograd(&t);
    if (!done && !t.channels_last && px__conv_small(&t))
      run_units(&t, px__conv_small_units(&t), px__conv_small_forward);
    else if (!done)
      backward(&t);
    px__conv_small_end(&t);
    report(&t, l);
  }
  px__dense_close(&d);
  return PX_OK;
}

// Parts are summed separately, as long as their sums are small compared to the input. Channels are
// cut if there are too few units for the threads; or results, if they outnumber the terms. Cuts do
// not change sums; parts do.
static void choose_parts(conv *t, int64_t pieces) {
  t->parts = pieces < MAX_PARTS ? pieces : MAX_PARTS;
  while (t->parts > 1 && t->parts * t->k * t->oc > PART_ELEMENTS) t->parts /= 2;
  int64_t threads = px__cpu_thread_count(), wanted = threads < MAX_PARTS ? MAX_PARTS : threads;
  t->cuts = threads > 1 ? wanted / (t->parts * t->groups) : 1;
  t->cuts_results = (t->og > t->k && !t->narrow) || t->tiled;
  int64_t min = t->cuts_results || t->weight_channels_last || t->channels_last ? MIN_CUT_RESULTS
                                                                               : MIN_CUT_CHANNELS;
  if (t->cuts > cut_side(t) / min) t->cuts = cut_side(t) / min;
  if (t->cuts < 1) t->cuts = 1;
}
// Sums of all parts, into t->sums.
static void weight_parts(conv *t, bool small) {
  int64_t units = small ? t->parts : t->parts * t->groups * t->cuts;
  t->phases = 1, t->parallel_gemm = units == 1;
  run_units(t, units, small ? px__conv_small_weight : weight_run);
}
static bool is_narrow(const conv *t) {
  bool fits = t->og <= MAX_NARROW_RESULTS && 2 * t->og <= t->k && px__conv_fills_lanes(t->og);
  return t->channels_last || (fits && !t->weight_channels_last && t->dtype != PX_BFLOAT16);
}
// The gradient of the weight, n elements. A single part is summed directly in the output, unless
// bfloat16 sums continue over several units.
static void backward_weight(const px_launch *l, conv *t, int64_t n) {
  forward(t);
  bool small = !t->channels_last && px__conv_small(t);
  t->tiled = t->channels_last && t->kernel_taps == 1 && t->dtype == PX_FLOAT32 &&
             t->cg % PX__CONV_MIN_PIXELS == 0 && px__conv_has_tiles();
  t->narrow = !small && !t->tiled && is_narrow(t);
  if (!small) t->failed = !plan(t, NULL);
  int64_t pieces = small ? t->n : blocks_of(t) * bands_of(t);
  choose_parts(t, pieces);
  bool once = !small && pieces == 1;
  bool there = t->parts == 1 && !t->narrow && (once || type_of(t)->sum == type_of(t)->item);
  void *buffer = there ? NULL : px__scratch_new(l, (size_t)(t->parts * n) * type_of(t)->sum);
  t->sums = there ? t->out : buffer;
  if (t->sums && !t->failed) {
    weight_parts(t, small);
    if (t->narrow)
      px__cpu_parallel(t->groups * t->k, WEIGHT_GRAIN / t->og, type_of(t)->add_narrow, t);
    else if (buffer)
      px__cpu_parallel(n, WEIGHT_GRAIN, type_of(t)->add_parts, t);
  }
  free(buffer);
  plan_end(t);
  px__conv_small_end(t);
  report(t, l);
}
static px_status gradient_of_weight(const px_launch *l, const px_operand *out,
                                    const px_operand *grad, const px_operand *in, const steps *by) {
  px__dense d = {.launch = l};
  conv few = {.mode = 'w'};
  if (run_conv_few(l, &few, in, out, NULL, grad, by)) return PX_OK;
  int compute = compute_of(out, grad, by->groups);
  int64_t n = px_operand_numel(out);
  conv t = {.mode = 'w',
            .dtype = compute,
            .channels_last = are_channels_last(in, grad, grad->sizes[1] / by->groups, compute)};
  t.grad = t.channels_last ? grad->data : px__dense_in(&d, grad, compute);
  t.in = t.channels_last ? in->data : px__dense_in(&d, in, compute);
  t.out = weights_of(&t, &d, out);
  bool seen = px_operand_numel(grad) > 0;
  if (!d.failed && !seen) px__cpu_clear(t.out, (size_t)n * px_dtype_size((px_dtype)compute));
  if (!d.failed && n && seen) {
    conv_start(&t, in, out, grad, by);
    if ((!t.channels_last && px__conv_planes(&t)) || px__conv_winograd(&t))
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
