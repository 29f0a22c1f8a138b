// SPDX-License-Identifier: Apache-2.0
// 3x3 convolutions of images and their gradients by Winograd's algorithm F(2x2, 3x3) (Lavin and
// Gray, Fast Algorithms for Convolutional Neural Networks, 2016): a tile, 2x2 results of a channel,
// takes 16 multiplications instead of 36.
//
// A tile reads 4 x 4 pixels d of each channel. With weights g its results are
//   y = A' ((G g G') * (B' d B)) A,    * elementwise, where
//   B' = 1  0 -1  0    G = 1    0    0    A' = 1  1  1  0
//        0  1  1  0        1/2  1/2  1/2       0  1 -1 -1
//        0 -1  1  0        1/2 -1/2  1/2
//        0  1  0 -1        0    0    1
// The channels are summed before the last transform: each of the 16 elements is a matrix product of
// (tiles x channels) and (channels x results). The input gradient is such a convolution of the
// output gradient with the flipped kernel. The weight gradient is
//   G' (the sum over tiles of (A y A') * (B' d B)) G.
// All factors are 1 or 1/2 and the sums are shorter than those of a direct 3x3 convolution, so
// errors are comparable.
//
// Pixels have their channels innermost, for vectors of channels. Other layouts are transposed row
// by row, and results transposed back. Units are rows of tiles, over all images.
//
// Differences of pixels lose digits if neighbours differ much, unlike sums of products. The setting
// PX_SETTING_NNPACK_ENABLED turns the algorithm off.
//
// An inf or NaN would spread over its whole tile, since inf - inf is NaN. If a result is inf or
// NaN, the functions return false and the caller uses another method. finite, false says that the
// convolution is to be computed in another way.
#include "cpu/threads/cache_line.h"
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_indirect.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/vector/simd_avx512.h"
#include "cpu/threads/threads.h"

#include <stdlib.h>

#if defined(__AVX2__)
enum {
  ELEMENTS = 16,    // elements of a transformed tile
  SIDE = 4,         // elements of its side
  TAPS = 9,         // kernel taps
  KERNEL_SIDE = 3,  // taps of the kernel's side
  LANES = WF,
  RESULT_BLOCK = 64  // results of a block
};
// Images; `last`: channels_last.
typedef struct images {
  float *at;
  int64_t channels, height, width;
  bool last;
} images;
// For the weight gradient, `result` is the gradient of the results.
typedef struct winograd {
  images source, result;
  int64_t n, top, left;                         // images; padding rows and columns before them
  int64_t down, across;                         // tiles of an image
  int64_t rows;                                 // tile rows of a unit
  float *weight;                                // or its gradient
  const float *bias;                            // or NULL
  int64_t result_step, channel_step, tap_step;  // strides of the weights
  bool flip_kernel;                             // flip the kernel
  float *
      factors;  // G g G': a matrix of channels x RESULT_BLOCK for each element and block of results
  int64_t *at;  // offsets of its rows, or of the rows of tiles x channels
  // Weight gradient: sums for each part, element, result and channel.
  float *sums;
  int64_t parts, cuts;
  // Transformed sources and transformed result gradients for each element, shared by several units
  // if threads would have few units. Else NULL. They cover rows [base, end), at most `shared` rows;
  // for the weight gradient within a part.
  float *sources, *gradients;
  int64_t sources_step, gradients_step;  // strides between elements
  int64_t base, end, shared, part;
  bool failed, not_finite;  // out of memory; a result is inf or NaN
} winograd;
static int64_t blocks_of(const winograd *w) {
  return px__ceil_div(w->result.channels, RESULT_BLOCK);
}
static int64_t all_rows(const winograd *w) { return w->n * w->down; }
static int64_t all_tiles(const winograd *w) { return all_rows(w) * w->across; }

// Pads to an odd number of vectors, so that elements do not collide in L1 sets.
static int64_t padded(int64_t n) {
  return px__ceil_div(n, LANES) * LANES + (n / LANES % 2 ? 0 : LANES);
}
static int64_t factors_step(const winograd *w) {
  return padded(blocks_of(w) * w->source.channels * RESULT_BLOCK);
}

// ---- transposition

// Transposes 16x16 elements.
WIDE_INLINE void transpose(wf *x) {
#pragma GCC unroll 4
  for (int round = 0; round < 4; round++) {
    wf y[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
      y[2 * i] = wf_interleave_low(x[i], x[i + 8]);
      y[2 * i + 1] = wf_interleave_high(x[i], x[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) x[i] = y[i];
  }
}
// Transposes `rows` rows of `lines` elements, `from_step` apart, into lines `to_step` apart.
static WIDE void transpose_rows(const float *from, int64_t from_step, int64_t rows, int64_t lines,
                                float *to, int64_t to_step) {
  for (int64_t i = 0; i < rows; i += LANES)
    for (int64_t j = 0; j < lines; j += LANES) {
      int64_t high = px__min_count(rows - i, LANES), wide = px__min_count(lines - j, LANES);
      wf x[LANES];
      for (int64_t r = 0; r < LANES; r++)
        x[r] = wf_load_first(from + (i + (r < high ? r : 0)) * from_step + j, wide);
      transpose(x);
      for (int64_t r = 0; r < wide; r++) wf_store_first(to + (j + r) * to_step + i, x[r], high);
    }
}

// ---- weights

// The taps of 16 results for one channel: x[tap].
WIDE_INLINE void load_taps(const winograd *w, int64_t result, int64_t channel, wf *x) {
  const float *from = w->weight + result * w->result_step + channel * w->channel_step;
  if (w->tap_step == 1) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) x[i] = wf_load_first(from + i * w->result_step, TAPS);
    transpose(x);
    return;
  }
  for (int tap = 0; tap < TAPS; tap++)
    for (int i = 0; i < LANES; i++) x[tap][i] = from[i * w->result_step + tap * w->tap_step];
}
// G times a column of three.
WIDE_INLINE void transform_column(wf a, wf b, wf c, wf *to, int step) {
  wf outer = (a + c) * 0.5f, inner = b * 0.5f;
  to[0] = a, to[step] = outer + inner, to[2 * step] = outer - inner, to[3 * step] = c;
}
// The transformed weights of 16 results and a channel.
static WIDE void transform_taps(const winograd *w, int64_t result, int64_t channel, float *to) {
  wf x[LANES], half[SIDE * KERNEL_SIDE], whole[ELEMENTS];
  load_taps(w, result, channel, x);
#pragma GCC unroll 3
  for (int j = 0; j < KERNEL_SIDE; j++)
    if (w->flip_kernel)
      transform_column(x[8 - j], x[5 - j], x[2 - j], half + j, KERNEL_SIDE);
    else
      transform_column(x[j], x[3 + j], x[6 + j], half + j, KERNEL_SIDE);
#pragma GCC unroll 4
  for (int j = 0; j < SIDE; j++)
    transform_column(half[3 * j], half[3 * j + 1], half[3 * j + 2], whole + SIDE * j, 1);
#pragma GCC unroll 16
  for (int j = 0; j < ELEMENTS; j++) wf_store(to + j * factors_step(w), whole[j]);
}
// Transforms rows [begin, end) of the matrices of all blocks.
static void transform_weights(void *ctx, int64_t begin, int64_t end) {
  const winograd *w = ctx;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i / w->source.channels * RESULT_BLOCK,
            count = px__min_count(w->result.channels - first, RESULT_BLOCK);
    for (int64_t j = 0; j < count; j += LANES)
      transform_taps(w, first + j, i % w->source.channels, w->factors + i * RESULT_BLOCK + j);
  }
}

// ---- sources

// A unit's scratch: image rows with channels innermost, a row of zeros, transformed sources for
// each element, their products (or transformed result gradients), result rows, and the scratch of
// a product. Transformed sources and gradients may be the shared ones.
typedef struct scratch {
  float *all, *pixels, *zeros, *sources, *sums, *lines, *product;
  int64_t sources_step, sums_step;  // strides between elements
} scratch;
// Tile rows [first, last) of an image; its first tile has index `tile` in the unit.
typedef struct piece {
  int64_t image, first, last, tile;
} piece;
// Advances to the next piece of a unit's rows [begin, end), over all images; p starts as zeros.
static bool next_piece(const winograd *w, int64_t begin, int64_t end, piece *p) {
  if (p->last) begin = p->image * w->down + p->last;
  p->tile += (p->last - p->first) * w->across;
  p->image = begin / w->down, p->first = begin % w->down;
  p->last = px__min_count(w->down, p->first + end - begin);
  return begin < end;
}
// Returns rows [y0, y1) of an image with channels innermost, clipped to the image; transposed
// into `to` if needed. The returned pointer is that of row 0, which may be outside of the buffer.
static const float *load_rows(const images *x, int64_t image, int64_t y0, int64_t y1, float *to) {
  int64_t plane = x->height * x->width;
  const float *from = x->at + image * x->channels * plane;
  if (x->last) return from;
  if (y0 < 0) y0 = 0;
  y1 = px__min_count(y1, x->height);
  if (y0 < y1)
    transpose_rows(from + y0 * x->width, plane, x->channels, (y1 - y0) * x->width, to, x->channels);
  return to - y0 * x->width * x->channels;
}
// Pointers to pixel rows from y on; zeros outside of the image.
static void find_rows(const images *x, const float *image, int64_t y, int count, const scratch *r,
                      const float **rows) {
  for (int i = 0; i < count; i++, y++)
    rows[i] = y < 0 || y >= x->height ? r->zeros : image + y * x->width * x->channels;
}
WIDE_INLINE wf pixel(const images *x, const float *row, int64_t at, int64_t c) {
  bool there = at >= 0 && at < x->width;
  return there ? wf_load(row + at * x->channels + c) : wf_set(0);
}
// B' times a column of a tile.
WIDE_INLINE void transform_source_column(const images *s, const float *const *rows, int64_t x,
                                         int64_t c, wf *to) {
  wf a = pixel(s, rows[0], x, c), b = pixel(s, rows[1], x, c);
  wf d = pixel(s, rows[2], x, c), e = pixel(s, rows[3], x, c);
  to[0] = a - d, to[1] = b + d, to[2] = d - b, to[3] = b - e;
}
// B' d B for a row of tiles.
static WIDE void transform_source_row(const winograd *w, const float *const *rows, float *to,
                                      int64_t step) {
  const images *s = &w->source;
  for (int64_t c = 0; c < s->channels; c += LANES) {
    wf a[SIDE], b[SIDE], d[SIDE], e[SIDE];
    transform_source_column(s, rows, -w->left, c, a);
    transform_source_column(s, rows, 1 - w->left, c, b);
    for (int64_t x = 0; x < w->across; x++) {
      float *tile = to + x * s->channels + c;
      transform_source_column(s, rows, 2 * x + 2 - w->left, c, d);
      transform_source_column(s, rows, 2 * x + 3 - w->left, c, e);
#pragma GCC unroll 4
      for (int i = 0; i < SIDE; i++, tile += SIDE * step) {
        wf_store(tile, a[i] - d[i]);
        wf_store(tile + step, b[i] + d[i]);
        wf_store(tile + 2 * step, d[i] - b[i]);
        wf_store(tile + 3 * step, b[i] - e[i]);
        a[i] = d[i], b[i] = e[i];
      }
    }
  }
}
static void transform_source_piece(const winograd *w, const piece *p, const scratch *r) {
  const images *s = &w->source;
  const float *rows[SIDE];
  const float *image =
      load_rows(s, p->image, 2 * p->first - w->top, 2 * p->last + 2 - w->top, r->pixels);
  for (int64_t row = p->first, tile = p->tile; row < p->last; row++, tile += w->across) {
    find_rows(s, image, 2 * row - w->top, SIDE, r, rows);
    transform_source_row(w, rows, r->sources + tile * s->channels, r->sources_step);
  }
}

// ---- results

// The 16 products of a block of results, over `tiles` tiles.
static void multiply(const winograd *w, const scratch *r, int64_t block, int64_t tiles) {
  int64_t channels = w->source.channels, panel = channels * RESULT_BLOCK, step = factors_step(w);
  const float *factors = w->factors + block * panel;
  for (int64_t i = 0; i < ELEMENTS; i++, factors += step) {
    int64_t n = px__min_count(w->result.channels - block * RESULT_BLOCK, RESULT_BLOCK);
    px__conv_product g = {.m = tiles,
                          .n = n,
                          .k = channels,
                          .a = r->sources + i * r->sources_step,
                          .ar = channels,
                          .b = factors,
                          .after = i + 1 < ELEMENTS ? factors + step : NULL,
                          .at = w->at,
                          .c = r->sums + i * r->sums_step,
                          .cr = RESULT_BLOCK,
                          .pitch = n,
                          .grid = n,
                          .scratch = r->product};
    px__conv_product_run(&g);
  }
}
// A' times a column of four.
WIDE_INLINE void inverse_column(wf a, wf b, wf c, wf d, wf *first, wf *second) {
  *first = a + b + c, *second = b - c - d;
}
// Stores `count` results from `result` on for a row of tiles: two pixel rows with pixels `step`
// apart, the second only if `both`. Returns NaN if a result is inf or NaN, else 0.
static WIDE float store_row(const winograd *w, const float *sums, int64_t sums_step, int64_t result,
                            int64_t count, bool both, float *to, int64_t step) {
  wf not_finite = wf_set(0);
  int64_t next = w->result.width * step;
  for (int64_t x = 0; x < w->across; x++, sums += RESULT_BLOCK, to += 2 * step)
    for (int64_t c = 0; c < count; c += LANES) {
      wf half[2][SIDE], y[2][2], bias = wf_set(0);
      if (w->bias) bias = wf_load(w->bias + result + c);
#pragma GCC unroll 4
      for (int i = 0; i < SIDE; i++) {
        const float *at = sums + c + i * sums_step;
        inverse_column(wf_load(at), wf_load(at + 4 * sums_step), wf_load(at + 8 * sums_step),
                       wf_load(at + 12 * sums_step), &half[0][i], &half[1][i]);
      }
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++) {
        inverse_column(half[i][0], half[i][1], half[i][2], half[i][3], &y[i][0], &y[i][1]);
        y[i][0] += bias, y[i][1] += bias;
        not_finite += (y[i][0] + y[i][1]) * 0;
      }
      bool has_right = 2 * x + 1 < w->result.width;
      wf_store(to + c, y[0][0]);
      if (has_right) wf_store(to + c + step, y[0][1]);
      if (both) wf_store(to + c + next, y[1][0]);
      if (both && has_right) wf_store(to + c + next + step, y[1][1]);
    }
  return _mm512_reduce_add_ps((__m512)not_finite);
}
// Stores a block of results of a piece. Returns false if a result is inf or NaN.
static bool store_piece(const winograd *w, const piece *p, const scratch *r, int64_t block) {
  const images *y = &w->result;
  int64_t result = block * RESULT_BLOCK, count = px__min_count(y->channels - result, RESULT_BLOCK);
  int64_t plane = y->height * y->width, step = y->last ? y->channels : count;
  float *image = y->at + p->image * y->channels * plane, not_finite = 0;
  const float *sums = r->sums + p->tile * RESULT_BLOCK;
  for (int64_t row = p->first; row < p->last; row++, sums += w->across * RESULT_BLOCK) {
    int64_t pixel = 2 * row * y->width, high = px__min_count(y->height - 2 * row, 2);
    float *to = y->last ? image + pixel * y->channels + result : r->lines;
    not_finite += store_row(w, sums, r->sums_step, result, count, high == 2, to, step);
    if (!y->last)
      transpose_rows(to, count, high * y->width, count, image + result * plane + pixel, plane);
  }
  return not_finite == 0;
}

// ---- units

static int64_t row_of(const images *x) { return x->channels * x->width; }
// Allocates scratch for w->rows rows of tiles with `sums` elements each. Returns false if out of
// memory.
static bool scratch_new(winograd *w, int64_t sums, scratch *r) {
  int64_t tiles = w->rows * w->across, source = row_of(&w->source), result = row_of(&w->result);
  int64_t zeros = source > result ? source : result, pixels = 0;
  if (!w->source.last) pixels = (2 * w->rows + 2) * source;
  if (!w->result.last && 2 * w->rows * result > pixels) pixels = 2 * w->rows * result;
  r->sources_step = w->sources ? 0 : padded(tiles * w->source.channels);
  r->sums_step = w->gradients ? 0 : padded(tiles * sums);
  int64_t lines = 2 * w->result.width * RESULT_BLOCK, product = px__conv_scratch_size(tiles);
  int64_t all = product + ELEMENTS * (r->sources_step + r->sums_step) + pixels + lines + zeros;
  r->product = r->all = px__aligned_new((size_t)all * sizeof(float));
  if (!r->all) {
    __atomic_store_n(&w->failed, true, __ATOMIC_RELAXED);
    return false;
  }
  r->sources = r->product + product;
  r->sums = r->sources + ELEMENTS * r->sources_step;
  r->pixels = r->sums + ELEMENTS * r->sums_step;
  r->lines = r->pixels + pixels;
  r->zeros = r->lines + lines;
  memset(r->zeros, 0, (size_t)zeros * sizeof(float));
  if (w->sources) r->sources_step = w->sources_step;
  if (w->gradients) r->sums_step = w->gradients_step;
  return true;
}
// Selects the shared data of the tiles from a row on.
static void select_shared(const winograd *w, int64_t row, scratch *r) {
  int64_t tile = (row - w->base) * w->across;
  if (w->sources) r->sources = w->sources + tile * w->source.channels;
  if (w->gradients) r->sums = w->gradients + tile * w->result.channels;
}
static void transform_source_rows(const winograd *w, int64_t begin, int64_t end, const scratch *r) {
  for (piece p = {0}; next_piece(w, begin, end, &p);) transform_source_piece(w, &p, r);
}
// Computes blocks of results [first, last) for tile rows [begin, end). Returns false if a result
// is inf or NaN.
static bool run_rows(const winograd *w, int64_t begin, int64_t end, int64_t first, int64_t last,
                     const scratch *r) {
  bool finite = true;
  for (int64_t block = first; block < last && !px__cpu_stopped(); block++) {
    multiply(w, r, block, (end - begin) * w->across);
    for (piece p = {0}; next_piece(w, begin, end, &p);) finite &= store_piece(w, &p, r, block);
  }
  return finite;
}
// A unit is a band of tile rows with all results, or one block of results if data are shared.
static int64_t bands_of(const winograd *w) { return px__ceil_div(all_rows(w), w->rows); }
static int64_t shares_of(const winograd *w) { return w->sources ? blocks_of(w) : 1; }
static void run_units(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  int64_t rows = all_rows(w), bands = bands_of(w), shares = shares_of(w), blocks = blocks_of(w);
  scratch r;
  if (!scratch_new(w, RESULT_BLOCK, &r)) return;
  for (int64_t i = begin; i < end && !px__cpu_stopped(); i++) {
    int64_t band = i / shares, share = i % shares;
    int64_t from = rows * band / bands, to = rows * (band + 1) / bands;
    select_shared(w, from, &r);
    if (!w->sources) transform_source_rows(w, from, to, &r);
    if (!run_rows(w, from, to, blocks * share / shares, blocks * (share + 1) / shares, &r))
      __atomic_store_n(&w->not_finite, true, __ATOMIC_RELAXED);
  }
  free(r.all);
}

// ---- the gradient of the weights

// A y A' for a row of tiles, results [first, first + count).
static WIDE void transform_gradient_row(const winograd *w, const float *const *rows, int64_t first,
                                        int64_t count, float *to, int64_t step) {
  const images *y = &w->result;
  for (int64_t x = 0; x < w->across; x++)
    for (int64_t o = 0; o < count; o += LANES, to += LANES) {
      wf column[SIDE][2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++) {
        wf a = pixel(y, rows[0], 2 * x + i, first + o), b = pixel(y, rows[1], 2 * x + i, first + o);
        column[0][i] = a, column[1][i] = a + b, column[2][i] = a - b, column[3][i] = -b;
      }
      float *element = to;
#pragma GCC unroll 4
      for (int i = 0; i < SIDE; i++, element += SIDE * step) {
        wf a = column[i][0], b = column[i][1];
        wf_store(element, a), wf_store(element + step, a + b);
        wf_store(element + 2 * step, a - b), wf_store(element + 3 * step, -b);
      }
    }
}
static void transform_gradient_piece(const winograd *w, const piece *p, const scratch *r,
                                     int64_t first, int64_t count) {
  const images *y = &w->result;
  const float *rows[2], *image = load_rows(y, p->image, 2 * p->first, 2 * p->last, r->pixels);
  for (int64_t row = p->first, tile = p->tile; row < p->last; row++, tile += w->across) {
    find_rows(y, image, 2 * row, 2, r, rows);
    transform_gradient_row(w, rows, first, count, r->sums + tile * count, r->sums_step);
  }
}
// Computes rows [begin, end) of the shared data.
static void transform_shared_rows(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  scratch r;
  if (!scratch_new(w, RESULT_BLOCK, &r)) return;
  end += w->base;
  for (int64_t row = begin + w->base, next; row < end && !px__cpu_stopped(); row = next) {
    next = px__min_count(row + w->rows, end);
    select_shared(w, row, &r);
    transform_source_rows(w, row, next, &r);
    for (piece p = {0}; w->gradients && next_piece(w, row, next, &p);)
      transform_gradient_piece(w, &p, &r, 0, w->result.channels);
  }
  free(r.all);
}

// Work of one share: results [first, first + count) and elements [element, end).
typedef struct share {
  int64_t first, count, element, end;
} share;
// Adds the products of `tiles` tiles to the sums, or overwrites them unless `more`.
static void add_products(const winograd *w, const scratch *r, int64_t tiles, const share *x,
                         bool more, float *sums) {
  int64_t channels = w->source.channels, size = w->result.channels * channels;
  for (int64_t i = x->element; i < x->end; i++) {
    px__conv_product g = {.m = x->count,
                          .n = channels,
                          .k = tiles,
                          .a = r->sums + i * r->sums_step + (w->gradients ? x->first : 0),
                          .ar = w->gradients ? w->result.channels : x->count,
                          .transposed = true,
                          .b = r->sources + i * r->sources_step,
                          .at = w->at,
                          .c = sums + i * size + x->first * channels,
                          .cr = channels,
                          .pitch = channels,
                          .grid = channels};
    px__conv_sums_run(&g, more);
  }
}
// Share i of a part: a cut of the results and, with shared data, a single element.
static share share_of(const winograd *w, int64_t i) {
  int64_t lanes = w->result.channels / LANES, cut = i % w->cuts, element = i / w->cuts;
  int64_t first = lanes * cut / w->cuts * LANES, last = lanes * (cut + 1) / w->cuts * LANES;
  if (!w->gradients) return (share){first, last - first, 0, ELEMENTS};
  return (share){first, last - first, element, element + 1};
}
static int64_t part_at(const winograd *w, int64_t part) { return all_rows(w) * part / w->parts; }
// Processes fixed-size groups of rows, regardless of the sharing, so the order of sums is fixed.
static void add_part(const winograd *w, int64_t part, const share *x, scratch *r) {
  int64_t size = ELEMENTS * w->result.channels * w->source.channels, from = part_at(w, part);
  int64_t to = w->gradients ? w->end : part_at(w, part + 1);
  for (int64_t row = w->gradients ? w->base : from, next; row < to && !px__cpu_stopped();
       row = next) {
    next = px__min_count(row + w->rows, to);
    select_shared(w, row, r);
    for (piece p = {0}; !w->gradients && next_piece(w, row, next, &p);) {
      transform_source_piece(w, &p, r);
      transform_gradient_piece(w, &p, r, x->first, x->count);
    }
    add_products(w, r, (next - row) * w->across, x, row > from, w->sums + part * size);
  }
}
static int64_t part_shares(const winograd *w) { return w->cuts * (w->gradients ? ELEMENTS : 1); }
static void run_parts(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  int64_t lanes = w->result.channels / LANES, shares = part_shares(w);
  scratch r;
  if (!scratch_new(w, px__ceil_div(lanes, w->cuts) * LANES, &r)) return;
  for (int64_t i = begin; i < end; i++) {
    share x = share_of(w, i % shares);
    add_part(w, w->gradients ? w->part : i / shares, &x, &r);
  }
  free(r.all);
}
// Processes a part with shared data, a group of rows at a time.
static void run_shared_part(winograd *w) {
  int64_t to = part_at(w, w->part + 1);
  for (w->base = part_at(w, w->part); w->base < to && !px__cpu_stopped(); w->base = w->end) {
    w->end = px__min_count(w->base + w->shared, to);
    px__cpu_parallel(w->end - w->base, 1, transform_shared_rows, w);
    px__cpu_parallel(part_shares(w), 1, run_parts, w);
  }
}
// G' times a column of four.
WIDE_INLINE void inverse_taps(wf a, wf b, wf c, wf d, wf *to, int step) {
  wf sum = (b + c) * 0.5f;
  to[0] = a + sum, to[step] = (b - c) * 0.5f, to[2 * step] = sum + d;
}
// Stores the weight gradient of blocks of results and channels [begin, end) from the sums of all
// parts.
static WIDE void store_weights(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  int64_t channels = w->source.channels, size = w->result.channels * channels;
  int64_t groups = channels / LANES;
  wf not_finite = wf_set(0);
  for (int64_t i = begin; i < end; i++) {
    int64_t result = i / groups, channel = i % groups * LANES;
    const float *from = w->sums + result * channels + channel;
    wf x[ELEMENTS], half[KERNEL_SIDE * SIDE], y[LANES];
#pragma GCC unroll 16
    for (int j = 0; j < ELEMENTS; j++) x[j] = wf_load(from + j * size);
    for (int64_t part = 1; part < w->parts; part++)
#pragma GCC unroll 16
      for (int j = 0; j < ELEMENTS; j++) x[j] += wf_load(from + (part * ELEMENTS + j) * size);
#pragma GCC unroll 4
    for (int j = 0; j < SIDE; j++)
      inverse_taps(x[j], x[4 + j], x[8 + j], x[12 + j], half + j, SIDE);
#pragma GCC unroll 3
    for (int j = 0; j < KERNEL_SIDE; j++)
      inverse_taps(half[4 * j], half[4 * j + 1], half[4 * j + 2], half[4 * j + 3], y + 3 * j, 1);
#pragma GCC unroll 9
    for (int j = 0; j < TAPS; j++) not_finite += y[j] * 0;
    float *to = w->weight + result * w->result_step + channel * w->channel_step;
    if (w->tap_step > 1) {
      for (int j = 0; j < TAPS; j++) wf_store(to + j * w->tap_step, y[j]);
      continue;
    }
#pragma GCC unroll 16
    for (int j = TAPS; j < LANES; j++) y[j] = y[0];
    transpose(y);
    for (int j = 0; j < LANES; j++) wf_store_first(to + j * TAPS, y[j], TAPS);
  }
  if (_mm512_reduce_add_ps((__m512)not_finite) != 0)
    __atomic_store_n(&w->not_finite, true, __ATOMIC_RELAXED);
}

// ---- selection

static winograd winograd_of(const conv *t) {
  bool back = t->mode == 'i', forward = t->mode == 'f';
  images in = {back ? t->out : (float *)t->in, t->c, t->h, t->w, t->channels_last};
  images out = {forward ? t->out : (float *)t->grad, t->oc, t->oh, t->ow, t->channels_last};
  winograd w = {.source = in,
                .result = out,
                .n = t->n,
                .top = t->ph,
                .left = t->pw,
                .weight = t->mode == 'w' ? t->out : (float *)t->weight,
                .bias = t->bias,
                .result_step = t->k,
                .channel_step = t->weight_channels_last ? 1 : TAPS,
                .tap_step = t->weight_channels_last ? t->c : 1};
  if (back) {
    w.source = out, w.result = in;
    w.top = KERNEL_SIDE - 1 - t->ph, w.left = KERNEL_SIDE - 1 - t->pw, w.flip_kernel = true;
    w.result_step = w.channel_step, w.channel_step = t->k;
  }
  w.down = (w.result.height + 1) / 2, w.across = (w.result.width + 1) / 2;
  return w;
}
static bool accepts(const conv *t) {
  bool dense = t->sh == 1 && t->sw == 1 && t->dh == 1 && t->dw == 1 && t->groups == 1;
  bool kernel = px__conv_is_flat(t) && t->kh == KERNEL_SIDE && t->kw == KERNEL_SIDE;
  if (t->dtype != PX_FLOAT32 || !dense || !kernel || t->c % LANES || t->oc % LANES) return false;
  winograd w = winograd_of(t);
  return w.top >= 0 && w.left >= 0 && px__conv_has_tiles() &&
         px_setting_get(PX_SETTING_NNPACK_ENABLED);
}
static int cost(const conv *t) {
  winograd w = winograd_of(t);
  int64_t min =
      t->c * t->oc >= WINOGRAD_MANY_WEIGHTS ? WINOGRAD_MIN_TILES_MANY_WEIGHTS : WINOGRAD_MIN_TILES;
  bool channels = t->c >= WINOGRAD_MIN_CHANNELS && t->oc >= WINOGRAD_MIN_CHANNELS;
  return channels && all_tiles(&w) >= min ? WINOGRAD_COST : EXCLUDED;
}
// Rows whose data fit into WINOGRAD_UNIT_BYTES bytes, with `numbers` values per element of a tile;
// at least `min` tiles.
static int64_t cached_rows(const winograd *w, int64_t numbers, int64_t min) {
  int64_t tiles = WINOGRAD_UNIT_BYTES / (ELEMENTS * numbers * (int64_t)sizeof(float));
  int64_t rows = (tiles > min ? tiles : min + w->across - 1) / w->across;
  return px__min_count(rows > 0 ? rows : 1, all_rows(w));
}
// Allocates the shared data: for all rows, or for the weight gradient as many as allowed. Without
// memory units do not share.
static void allocate_shared(winograd *w, bool weight) {
  int64_t channels = w->source.channels + (weight ? w->result.channels : 0);
  int64_t bytes = ELEMENTS * w->across * channels * (int64_t)sizeof *w->sources;  // per row
  int64_t max = (weight ? WINOGRAD_SHARED_BYTES : WINOGRAD_MAX_SHARED_BYTES) / bytes;
  w->end = w->shared = all_rows(w);
  if (max < w->shared) w->shared = weight ? max / w->rows * w->rows : 0;
  if (!w->shared) return;
  w->sources_step = padded(w->shared * w->across * w->source.channels);
  w->gradients_step = weight ? padded(w->shared * w->across * w->result.channels) : 0;
  int64_t numbers = ELEMENTS * (w->sources_step + w->gradients_step);
  w->sources = px__aligned_new((size_t)numbers * sizeof *w->sources);
  if (w->sources && weight) w->gradients = w->sources + ELEMENTS * w->sources_step;
}
static void choose_units(winograd *w) {
  int64_t threads = px__cpu_thread_count(), units = UNITS_PER_THREAD * threads;
  int64_t rows = all_rows(w), blocks = blocks_of(w);
  w->rows = cached_rows(w, w->source.channels + RESULT_BLOCK, 0);
  if (threads == 1 || bands_of(w) >= units) return;
  int64_t few = px__ceil_div(WINOGRAD_MIN_UNIT_TILES, w->across);
  if (ELEMENTS * factors_step(w) * (int64_t)sizeof(float) > WINOGRAD_MIN_SHARED_FACTORS)
    allocate_shared(w, false);
  if (w->sources) units = px__ceil_div(threads, blocks);  // each unit reads its weights from memory
  int64_t each = px__ceil_div(rows, units);
  w->rows = px__min_count(w->rows, each > few ? each : few);
}
// Parts depend on sizes only, since they determine the order of sums. Cuts do not change it.
static void choose_parts(winograd *w) {
  int64_t sums = ELEMENTS * w->result.channels * w->source.channels;
  int64_t threads = px__cpu_thread_count(), max = w->result.channels / WINOGRAD_MIN_CUT_RESULTS;
  w->rows = cached_rows(w, w->source.channels + w->result.channels, WINOGRAD_MIN_PART_TILES);
  w->parts = px__min_count(MAX_PARTS, all_rows(w) / w->rows);
  while (w->parts > 1 && w->parts * sums > WINOGRAD_MAX_PART_SUMS) w->parts /= 2;
  if (threads > 2 * w->parts) allocate_shared(w, true);
  int64_t units = w->gradients ? ELEMENTS : w->parts;
  w->cuts = px__min_count(px__ceil_div(threads, units), max);
}
static void to_results(winograd *w) {
  for (int64_t i = 0; i < w->source.channels; i++) w->at[i] = i * RESULT_BLOCK;
  px__cpu_parallel(w->source.channels * blocks_of(w), WINOGRAD_GRAIN / 4, transform_weights, w);
  if (w->sources) px__cpu_parallel(all_rows(w), 1, transform_shared_rows, w);
  px__cpu_parallel(bands_of(w) * shares_of(w), 1, run_units, w);
}
static void to_weight(winograd *w) {
  int64_t channels = w->source.channels;
  for (int64_t i = 0; i < w->rows * w->across; i++) w->at[i] = i * channels;
  for (; w->gradients && w->part < w->parts; w->part++) run_shared_part(w);
  if (!w->gradients) px__cpu_parallel(w->parts * part_shares(w), 1, run_parts, w);
  px__cpu_parallel(w->result.channels * (channels / LANES), WINOGRAD_GRAIN, store_weights, w);
}
static bool run(conv *t) {
  winograd w = winograd_of(t);
  bool weight = t->mode == 'w';
  int64_t offsets_count = w.source.channels, numbers = factors_step(&w);
  (weight ? choose_parts : choose_units)(&w);
  if (weight)
    offsets_count = w.rows * w.across, numbers = w.parts * w.result.channels * w.source.channels;
  w.at = malloc((size_t)offsets_count * sizeof *w.at);
  w.sums = w.factors = px__aligned_new((size_t)(ELEMENTS * numbers) * sizeof *w.factors);
  w.failed = !w.factors || !w.at;
  if (!w.failed) (weight ? to_weight : to_results)(&w);
  free(w.factors);
  free(w.at);
  free(w.sources);
  t->failed |= w.failed;
  return w.failed || !w.not_finite;
}
const conv_method px__method_winograd = {accepts, cost, run, .reads_stored = false};
#else
static bool accepts(const conv *t) { return (void)t, false; }
const conv_method px__method_winograd = {.accepts = accepts};
#endif
