// SPDX-License-Identifier: Apache-2.0
// The plan of a convolution as a product: planes, units and tables of offsets.
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_indirect.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/conv/conv_product.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

enum { TILE_LANES = 32 };  // results of a tile of `pixel_rows`

// ---- planes of one dimension

static int64_t plane_of(const conv_axis *a, int64_t j) {
  int64_t at = px__conv_at(a, j);
  return a->shared ? at - px__conv_floor(at, a->step) * a->step : j;
}
static int64_t offset_of(const conv_axis *a, int64_t j) {
  return a->shared ? px__conv_floor(px__conv_at(a, j), a->step) - a->low : 0;
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
      (t->pitch - t->x.grid) * t->results <= PRODUCT_MAX_WASTED_RESULTS * t->x.grid)
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
  int64_t units = px__product_images(t) * px__ceil_div(t->results, PX__GEMM_PACK);
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
  int64_t max = PRODUCT_MAX_PLANE_ELEMENTS / row - t->y.reach,
          min = px__ceil_div(PRODUCT_MIN_UNIT_COLUMNS, t->pitch);
  int64_t far = PRODUCT_MAX_IN_PLACE_COLUMNS / t->pitch,
          bands = t->mode == 'w' ? MAX_PARTS : PRODUCT_SMALL_WEIGHT_BANDS;
  if (t->tiled && is_identity(&t->y) && is_identity(&t->x)) max = far;
  if (t->results * t->terms <= PRODUCT_SMALL_WEIGHTS &&
      (t->mode != 'i' || t->results >= TILED_MIN_RESULTS))
    max = px__min_count(max, px__ceil_div(t->y.grid * px__product_images(t), bands) + far);
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
  int64_t columns = t->tiled ? t->p : t->pixel_rows ? PIXEL_ROWS_COLUMNS : PRODUCT_MIN_UNIT_COLUMNS;
  t->images = px__ceil_div(columns, t->p);
  if (t->images > px__product_images(t)) t->images = px__product_images(t);
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
        int64_t plane = c * t->z.count + px__product_slot(t, rotation, k);
        plane = (plane * t->y.planes + plane_of(&t->y, i)) * t->x.planes + plane_of(&t->x, j);
        int64_t place = (k * t->y.count + i) * t->x.count + j;
        table[inside ? place * t->channels + c : c * kernel_taps + place] =
            plane * t->plane + offset_of(&t->y, i) * t->pitch + offset_of(&t->x, j);
      }
}
// Offsets of a unit's output pixels in its planes or in the source.
static bool set_pixel_offsets(conv *t) {
  int64_t grid = t->x.grid, image = t->rows * grid, n = t->images * image;
  int64_t apart = t->direct_source ? px__product_image(t) : t->rows * t->pitch;
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
      like ? like->images
           : px__min_count(px__ceil_div(PRODUCT_MIN_UNIT_COLUMNS, t->p), px__product_images(t));
  t->rows = like ? px__min_count(like->rows, t->y.grid) : t->y.grid;
  if (!like && t->images == 1) {
    int64_t row = t->z.count * whole * each * t->y.step,
            columns = px__ceil_div(PRODUCT_MIN_UNIT_COLUMNS, t->x.grid);
    int64_t max = PRODUCT_MAX_PLANE_ELEMENTS / row;
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
  return true;
}

// True if rows of the product should be output pixels: the product is large enough for the cost of
// transposing results and packing weights to be small, and results fill tiles to 90 %. Not for
// large images that are rows of the product already.
bool px__product_pixel_rows(const conv *t) {
  int64_t tiles = px__ceil_div(t->results, TILE_LANES);
  if (t->mode == 'w' || t->dtype == PX_BFLOAT16) return false;
  if (t->mode == 'i' && t->kernel_taps > 1 && t->weight_channels_last) return false;
  if (t->terms < PIXEL_ROWS_MIN_TERMS || t->results < PIXEL_ROWS_MIN_RESULTS) return false;
  if (t->terms * t->results < PIXEL_ROWS_MIN_WEIGHTS ||
      t->n * t->out_pixels < PIXEL_ROWS_MIN_PIXELS)
    return false;
  if (10 * t->results < 9 * tiles * TILE_LANES) return false;
  return !uses_source_directly(t) || t->p < PRODUCT_MIN_UNIT_COLUMNS;
}
// True if conv_indirect.h applies: tiles of weight rows and consecutive pixels. If too many lanes
// would be empty, or stride-separated taps share no cache lines, other methods are better:
// `pixel_rows`, or a panel product for 1x1 kernels with many results.
bool px__product_tiled(const conv *t) {
  bool dense = t->sd == 1 && t->sh == 1 && t->sw == 1, small = t->p < PRODUCT_MIN_UNIT_COLUMNS;
  if (t->dtype != PX_FLOAT32 || t->mode == 'w' || (t->mode == 'i' && !dense)) return false;
  if (t->term != 1 || t->results < TILED_MIN_RESULTS) return false;
  if (small && (t->p < TILED_MIN_IMAGE_PIXELS || !uses_source_directly(t))) return false;
  int64_t pitch = is_identity(&t->x) ? t->x.grid : t->x.grid + 1;
  bool full = 100 * vectors_in(t, t->y.grid, pitch) * 16 <= 105 * t->y.grid * t->x.grid;
  if (!small && is_identity(&t->x) && !full && t->results > t->terms) return false;
  return px__conv_has_tiles() && ((dense && full) || !px__product_pixel_rows(t));
}
// Derives the plan from the axes and channels. Returns false if out of memory.
bool px__product_plan(conv *t, const conv *like) {
  if (t->channels_last) return plan_channels_last(t, like);
  int64_t sources = t->channels * t->z.count;
  t->terms = sources * t->y.count * t->x.count;
  t->tiled = px__product_tiled(t);
  t->pixel_rows = !t->tiled && px__product_pixel_rows(t);
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

void px__product_plan_end(conv *t) {
  free(t->own), free(t->term_offsets), free(t->pixel_offsets), free(t->packed);
}
