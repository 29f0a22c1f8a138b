// SPDX-License-Identifier: Apache-2.0
// Convolutions of images by 3 x 3 places, and their gradients, by Winograd's algorithm (Lavin and
// Gray, Fast Algorithms for Convolutional Neural Networks, 2016): four results of a channel, a
// tile, take 16 multiplications where they would take 36.
//
// A tile sees 4 x 4 pixels of each channel, d. Of weights g its results are
//   y = A' ((G g G') * (B' d B)) A,    * place by place, where
//   B' = 1  0 -1  0    G = 1    0    0    A' = 1  1  1  0
//        0  1  1  0        1/2  1/2  1/2       0  1 -1 -1
//        0 -1  1  0        1/2 -1/2  1/2
//        0  1  0 -1        0    0    1
// The sum over channels is of what is multiplied: for each of the 16 places a product of matrices,
// of tiles and channels with channels and results. The gradient of the source is such a convolution
// of the results' gradient, with the kernel the other way round. That of the weights is
//   G' (the sum over tiles of (A y A') * (B' d B)) G.
// All factors are 1 or 1/2 and the sums of products are shorter than those of 3 x 3 places, so that
// errors are like theirs.
//
// Pixels have their channels innermost, for vectors of channels; rows of images that have not are
// turned, and results turned back. Rows of tiles are the units, of all images.
//
// Differences of pixels lose digits where neighbours differ much, which sums of products alone do
// not: whoever minds turns it off (PX_SETTING_NNPACK_ENABLED).
//
// What is not finite would reach all of its tile, as inf minus inf is no number: if a result is not
// finite, false says that the convolution is to be computed in another way.
#include "cpu/cache.h"
#include "cpu/conv.h"
#include "cpu/conv_tiles.h"
#include "cpu/simd_wide.h"
#include "cpu/threads.h"

#include <stdlib.h>

#if defined(__AVX2__)
// Of a tile: places, and those of a side; places of the kernel, and those of a side; lanes; results
// that are computed at once.
enum { PLACES = 16, SIDE = 4, TAPS = 9, REACH = 3, LANES = WF, SOME = 64 };
// Bytes of what a unit multiplies, for the second cache. Channels and results at least, and tiles,
// for which turning the weights pays: more of them where the weights are many, as they are turned
// into memory that is far away.
enum { NEAR = 1 << 20, LEAST = 32, TILES = 24, MANY = 128 * 1024, TILES_OF_MANY = 40 };
// Units for each thread, of so many tiles at least. Bytes of weights that each unit would fetch
// from far away, from which units are blocks of results, and bytes at most that they share then.
enum { UNITS = 4, UNIT_TILES = 16, FAR = 2 << 20, MOST_SHARED = 32 << 20 };
// Of the weights' gradient: parts of the tiles at most that are summed by themselves, numbers of
// their sums at most, tiles of a unit at least, and results of a cut; and bytes that are shared at
// a time.
enum { PARTS = 8, PART_SUMS = 1024 * 1024, DEEP = 128, CUT = 32, SHARED_ONCE = 16 << 20 };
// Turned blocks of weights that a thread should have at least.
enum { GRAIN = 256 };

// Images; `last`: their channels lie innermost.
typedef struct images {
  float *at;
  int64_t channels, height, width;
  bool last;
} images;
// `result`, of the weights' gradient: that of the results.
typedef struct winograd {
  images source, result;
  int64_t n, top, left;                         // images, rows and columns of zeros before them
  int64_t down, across;                         // tiles of an image
  int64_t rows;                                 // of tiles, of a unit
  float *weight;                                // or its gradient
  const float *bias;                            // or NULL
  int64_t result_step, channel_step, tap_step;  // of the weights
  bool turned;                                  // the kernel is the other way round
  float *factors;  // G g G': for each place and SOME results a matrix of channels and SOME
  int64_t *at;     // where its rows begin, or those of tiles and channels
  // Of the weights' gradient: sums for each part, place, result and channel.
  float *sums;
  int64_t parts, cuts;
  // Where threads would have few units: what tiles see, for each place, and gradients of results
  // likewise, which several units use. Else NULL. They are of rows [base, end), up to `shared`; of
  // the weights' gradient a part's.
  float *seen, *spread;
  int64_t seen_step, spread_step;  // between places
  int64_t base, end, shared, part;
  bool failed, odd;  // no memory; a result is not finite
} winograd;
static int64_t blocks_of(const winograd *w) { return px__ceil_div(w->result.channels, SOME); }
static int64_t all_rows(const winograd *w) { return w->n * w->down; }
static int64_t all_tiles(const winograd *w) { return all_rows(w) * w->across; }

// So that places do not share lines of the first cache.
static int64_t apart(int64_t n) {
  return px__ceil_div(n, LANES) * LANES + (n / LANES % 2 ? 0 : LANES);
}
static int64_t factors_step(const winograd *w) {
  return apart(blocks_of(w) * w->source.channels * SOME);
}

// ---- turning

// 16 rows of 16 numbers become 16 lines.
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
// Turns `rows` rows of `lines` numbers, `from_step` apart, into lines that are `to_step` apart.
static WIDE void turn(const float *from, int64_t from_step, int64_t rows, int64_t lines, float *to,
                      int64_t to_step) {
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

// The taps of 16 results, of a channel: x[tap].
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
// G times three numbers.
WIDE_INLINE void spread_taps(wf a, wf b, wf c, wf *to, int step) {
  wf outer = (a + c) * 0.5f, inner = b * 0.5f;
  to[0] = a, to[step] = outer + inner, to[2 * step] = outer - inner, to[3 * step] = c;
}
// The factors of 16 results and a channel.
static WIDE void turn_taps(const winograd *w, int64_t result, int64_t channel, float *to) {
  wf x[LANES], half[SIDE * REACH], whole[PLACES];
  load_taps(w, result, channel, x);
#pragma GCC unroll 3
  for (int j = 0; j < REACH; j++)
    if (w->turned)
      spread_taps(x[8 - j], x[5 - j], x[2 - j], half + j, REACH);
    else
      spread_taps(x[j], x[3 + j], x[6 + j], half + j, REACH);
#pragma GCC unroll 4
  for (int j = 0; j < SIDE; j++)
    spread_taps(half[3 * j], half[3 * j + 1], half[3 * j + 2], whole + SIDE * j, 1);
#pragma GCC unroll 16
  for (int j = 0; j < PLACES; j++) wf_store(to + j * factors_step(w), whole[j]);
}
// The rows [begin, end) of the matrices of all blocks.
static void turn_weights(void *ctx, int64_t begin, int64_t end) {
  const winograd *w = ctx;
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i / w->source.channels * SOME,
            count = px__min_count(w->result.channels - first, SOME);
    for (int64_t j = 0; j < count; j += LANES)
      turn_taps(w, first + j, i % w->source.channels, w->factors + i * SOME + j);
  }
}

// ---- sources

// A unit's memory: rows of images with channels innermost, a row of zeros, what tiles see, for each
// place, and what they sum up to (or the results' gradients), rows of results, and what a product
// needs. What tiles see, and the gradients, may be those that are shared.
typedef struct room {
  float *all, *pixels, *zeros, *seen, *sums, *lines, *product;
  int64_t seen_step, sums_step;  // between places
} room;
// Rows of tiles [first, last) of an image, the first of which is the unit's `tile`.
typedef struct piece {
  int64_t image, first, last, tile;
} piece;
// The next piece of a unit's rows [begin, end), of all images; p begins as zeros.
static bool next_piece(const winograd *w, int64_t begin, int64_t end, piece *p) {
  if (p->last) begin = p->image * w->down + p->last;
  p->tile += (p->last - p->first) * w->across;
  p->image = begin / w->down, p->first = begin % w->down;
  p->last = px__min_count(w->down, p->first + end - begin);
  return begin < end;
}
// Where pixels of an image would begin, of which rows [y0, y1) are to be used, as far as there are
// such.
static const float *lay_rows(const images *x, int64_t image, int64_t y0, int64_t y1, float *to) {
  int64_t plane = x->height * x->width;
  const float *from = x->at + image * x->channels * plane;
  if (x->last) return from;
  if (y0 < 0) y0 = 0;
  y1 = px__min_count(y1, x->height);
  if (y0 < y1)
    turn(from + y0 * x->width, plane, x->channels, (y1 - y0) * x->width, to, x->channels);
  return to - y0 * x->width * x->channels;
}
// Rows of pixels from the y-th on, or zeros where there are none.
static void find_rows(const images *x, const float *image, int64_t y, int count, const room *r,
                      const float **rows) {
  for (int i = 0; i < count; i++, y++)
    rows[i] = y < 0 || y >= x->height ? r->zeros : image + y * x->width * x->channels;
}
WIDE_INLINE wf pixel(const images *x, const float *row, int64_t at, int64_t c) {
  bool there = at >= 0 && at < x->width;
  return there ? wf_load(row + at * x->channels + c) : wf_set(0);
}
// B' times a column of a tile.
WIDE_INLINE void see_column(const images *s, const float *const *rows, int64_t x, int64_t c,
                            wf *to) {
  wf a = pixel(s, rows[0], x, c), b = pixel(s, rows[1], x, c);
  wf d = pixel(s, rows[2], x, c), e = pixel(s, rows[3], x, c);
  to[0] = a - d, to[1] = b + d, to[2] = d - b, to[3] = b - e;
}
// B' d B of a row of tiles.
static WIDE void see_row(const winograd *w, const float *const *rows, float *to, int64_t step) {
  const images *s = &w->source;
  for (int64_t c = 0; c < s->channels; c += LANES) {
    wf a[SIDE], b[SIDE], d[SIDE], e[SIDE];
    see_column(s, rows, -w->left, c, a);
    see_column(s, rows, 1 - w->left, c, b);
    for (int64_t x = 0; x < w->across; x++) {
      float *tile = to + x * s->channels + c;
      see_column(s, rows, 2 * x + 2 - w->left, c, d);
      see_column(s, rows, 2 * x + 3 - w->left, c, e);
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
static void see_piece(const winograd *w, const piece *p, const room *r) {
  const images *s = &w->source;
  const float *rows[SIDE];
  const float *image =
      lay_rows(s, p->image, 2 * p->first - w->top, 2 * p->last + 2 - w->top, r->pixels);
  for (int64_t row = p->first, tile = p->tile; row < p->last; row++, tile += w->across) {
    find_rows(s, image, 2 * row - w->top, SIDE, r, rows);
    see_row(w, rows, r->seen + tile * s->channels, r->seen_step);
  }
}

// ---- results

// The 16 products of a block of results, of so many tiles.
static void multiply(const winograd *w, const room *r, int64_t block, int64_t tiles) {
  int64_t channels = w->source.channels, panel = channels * SOME, step = factors_step(w);
  const float *factors = w->factors + block * panel;
  for (int64_t i = 0; i < PLACES; i++, factors += step) {
    int64_t n = px__min_count(w->result.channels - block * SOME, SOME);
    px__conv_product g = {.m = tiles,
                          .n = n,
                          .k = channels,
                          .a = r->seen + i * r->seen_step,
                          .ar = channels,
                          .b = factors,
                          .after = i + 1 < PLACES ? factors + step : NULL,
                          .at = w->at,
                          .c = r->sums + i * r->sums_step,
                          .cr = SOME,
                          .pitch = n,
                          .grid = n,
                          .room = r->product};
    px__conv_product_run(&g);
  }
}
// A' times four sums.
WIDE_INLINE void gather_sums(wf a, wf b, wf c, wf d, wf *first, wf *second) {
  *first = a + b + c, *second = b - c - d;
}
// The results of a row of tiles, `count` from `result` on, into two rows of pixels, `step` apart,
// of the last ones maybe one. Gives NaN if some are not finite.
static WIDE float place_row(const winograd *w, const float *sums, int64_t sums_step, int64_t result,
                            int64_t count, bool both, float *to, int64_t step) {
  wf odd = wf_set(0);
  int64_t next = w->result.width * step;
  for (int64_t x = 0; x < w->across; x++, sums += SOME, to += 2 * step)
    for (int64_t c = 0; c < count; c += LANES) {
      wf half[2][SIDE], y[2][2], bias = wf_set(0);
      if (w->bias) bias = wf_load(w->bias + result + c);
#pragma GCC unroll 4
      for (int i = 0; i < SIDE; i++) {
        const float *at = sums + c + i * sums_step;
        gather_sums(wf_load(at), wf_load(at + 4 * sums_step), wf_load(at + 8 * sums_step),
                    wf_load(at + 12 * sums_step), &half[0][i], &half[1][i]);
      }
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++) {
        gather_sums(half[i][0], half[i][1], half[i][2], half[i][3], &y[i][0], &y[i][1]);
        y[i][0] += bias, y[i][1] += bias;
        odd += (y[i][0] + y[i][1]) * 0;
      }
      bool beside = 2 * x + 1 < w->result.width;
      wf_store(to + c, y[0][0]);
      if (beside) wf_store(to + c + step, y[0][1]);
      if (both) wf_store(to + c + next, y[1][0]);
      if (both && beside) wf_store(to + c + next + step, y[1][1]);
    }
  return _mm512_reduce_add_ps((__m512)odd);
}
// Writes a block of results of a piece. False: some are not finite.
static bool place_piece(const winograd *w, const piece *p, const room *r, int64_t block) {
  const images *y = &w->result;
  int64_t result = block * SOME, count = px__min_count(y->channels - result, SOME);
  int64_t plane = y->height * y->width, step = y->last ? y->channels : count;
  float *image = y->at + p->image * y->channels * plane, odd = 0;
  const float *sums = r->sums + p->tile * SOME;
  for (int64_t row = p->first; row < p->last; row++, sums += w->across * SOME) {
    int64_t pixel = 2 * row * y->width, high = px__min_count(y->height - 2 * row, 2);
    float *to = y->last ? image + pixel * y->channels + result : r->lines;
    odd += place_row(w, sums, r->sums_step, result, count, high == 2, to, step);
    if (!y->last) turn(to, count, high * y->width, count, image + result * plane + pixel, plane);
  }
  return odd == 0;
}

// ---- units

static int64_t row_of(const images *x) { return x->channels * x->width; }
// Room for w->rows rows of tiles, and `sums` numbers for each of a place. False: no memory.
static bool room_new(winograd *w, int64_t sums, room *r) {
  int64_t tiles = w->rows * w->across, source = row_of(&w->source), result = row_of(&w->result);
  int64_t zeros = source > result ? source : result, pixels = 0;
  if (!w->source.last) pixels = (2 * w->rows + 2) * source;
  if (!w->result.last && 2 * w->rows * result > pixels) pixels = 2 * w->rows * result;
  r->seen_step = w->seen ? 0 : apart(tiles * w->source.channels);
  r->sums_step = w->spread ? 0 : apart(tiles * sums);
  int64_t lines = 2 * w->result.width * SOME, product = px__conv_room(tiles);
  int64_t all = product + PLACES * (r->seen_step + r->sums_step) + pixels + lines + zeros;
  r->product = r->all = px__aligned_new((size_t)all * sizeof(float));
  if (!r->all) {
    __atomic_store_n(&w->failed, true, __ATOMIC_RELAXED);
    return false;
  }
  r->seen = r->product + product;
  r->sums = r->seen + PLACES * r->seen_step;
  r->pixels = r->sums + PLACES * r->sums_step;
  r->lines = r->pixels + pixels;
  r->zeros = r->lines + lines;
  memset(r->zeros, 0, (size_t)zeros * sizeof(float));
  if (w->seen) r->seen_step = w->seen_step;
  if (w->spread) r->sums_step = w->spread_step;
  return true;
}
// Of what is shared, that of the tiles from a row on.
static void share_from(const winograd *w, int64_t row, room *r) {
  int64_t tile = (row - w->base) * w->across;
  if (w->seen) r->seen = w->seen + tile * w->source.channels;
  if (w->spread) r->sums = w->spread + tile * w->result.channels;
}
static void see_rows(const winograd *w, int64_t begin, int64_t end, const room *r) {
  for (piece p = {0}; next_piece(w, begin, end, &p);) see_piece(w, &p, r);
}
// Blocks of results [first, last) of rows of tiles [begin, end); false if some are not finite.
static bool run_rows(const winograd *w, int64_t begin, int64_t end, int64_t first, int64_t last,
                     const room *r) {
  bool finite = true;
  for (int64_t block = first; block < last && !px__cpu_stopped(); block++) {
    multiply(w, r, block, (end - begin) * w->across);
    for (piece p = {0}; next_piece(w, begin, end, &p);) finite &= place_piece(w, &p, r, block);
  }
  return finite;
}
// A unit has some rows of tiles and all results or, of what is shared, a block of them.
static int64_t bands_of(const winograd *w) { return px__ceil_div(all_rows(w), w->rows); }
static int64_t shares_of(const winograd *w) { return w->seen ? blocks_of(w) : 1; }
static void run_units(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  int64_t rows = all_rows(w), bands = bands_of(w), shares = shares_of(w), blocks = blocks_of(w);
  room r;
  if (!room_new(w, SOME, &r)) return;
  for (int64_t i = begin; i < end && !px__cpu_stopped(); i++) {
    int64_t band = i / shares, share = i % shares;
    int64_t from = rows * band / bands, to = rows * (band + 1) / bands;
    share_from(w, from, &r);
    if (!w->seen) see_rows(w, from, to, &r);
    if (!run_rows(w, from, to, blocks * share / shares, blocks * (share + 1) / shares, &r))
      __atomic_store_n(&w->odd, true, __ATOMIC_RELAXED);
  }
  free(r.all);
}

// ---- the gradient of the weights

// A y A' of a row of tiles, of results [first, first + count).
static WIDE void spread_row(const winograd *w, const float *const *rows, int64_t first,
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
      float *place = to;
#pragma GCC unroll 4
      for (int i = 0; i < SIDE; i++, place += SIDE * step) {
        wf a = column[i][0], b = column[i][1];
        wf_store(place, a), wf_store(place + step, a + b);
        wf_store(place + 2 * step, a - b), wf_store(place + 3 * step, -b);
      }
    }
}
static void spread_piece(const winograd *w, const piece *p, const room *r, int64_t first,
                         int64_t count) {
  const images *y = &w->result;
  const float *rows[2], *image = lay_rows(y, p->image, 2 * p->first, 2 * p->last, r->pixels);
  for (int64_t row = p->first, tile = p->tile; row < p->last; row++, tile += w->across) {
    find_rows(y, image, 2 * row, 2, r, rows);
    spread_row(w, rows, first, count, r->sums + tile * count, r->sums_step);
  }
}
// Rows of tiles [begin, end) of those that are shared.
static void share_rows(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  room r;
  if (!room_new(w, SOME, &r)) return;
  end += w->base;
  for (int64_t row = begin + w->base, next; row < end && !px__cpu_stopped(); row = next) {
    next = px__min_count(row + w->rows, end);
    share_from(w, row, &r);
    see_rows(w, row, next, &r);
    for (piece p = {0}; w->spread && next_piece(w, row, next, &p);)
      spread_piece(w, &p, &r, 0, w->result.channels);
  }
  free(r.all);
}

// What is added up at once: results [first, first + count), and places [place, end).
typedef struct share {
  int64_t first, count, place, end;
} share;
// Adds what so many tiles give to sums, or opens them.
static void add_products(const winograd *w, const room *r, int64_t tiles, const share *x, bool more,
                         float *sums) {
  int64_t channels = w->source.channels, size = w->result.channels * channels;
  for (int64_t i = x->place; i < x->end; i++) {
    px__conv_product g = {.m = x->count,
                          .n = channels,
                          .k = tiles,
                          .a = r->sums + i * r->sums_step + (w->spread ? x->first : 0),
                          .ar = w->spread ? w->result.channels : x->count,
                          .turned = true,
                          .b = r->seen + i * r->seen_step,
                          .at = w->at,
                          .c = sums + i * size + x->first * channels,
                          .cr = channels,
                          .pitch = channels,
                          .grid = channels};
    px__conv_sums_run(&g, more);
  }
}
// The i-th of the shares of a part: a cut of the results and, of what is shared, a place.
static share share_of(const winograd *w, int64_t i) {
  int64_t lanes = w->result.channels / LANES, cut = i % w->cuts, place = i / w->cuts;
  int64_t first = lanes * cut / w->cuts * LANES, last = lanes * (cut + 1) / w->cuts * LANES;
  if (!w->spread) return (share){first, last - first, 0, PLACES};
  return (share){first, last - first, place, place + 1};
}
static int64_t part_at(const winograd *w, int64_t part) { return all_rows(w) * part / w->parts; }
// Rows are taken some at a time, the same ones however they are shared: the order of sums follows.
static void add_part(const winograd *w, int64_t part, const share *x, room *r) {
  int64_t size = PLACES * w->result.channels * w->source.channels, from = part_at(w, part);
  int64_t to = w->spread ? w->end : part_at(w, part + 1);
  for (int64_t row = w->spread ? w->base : from, next; row < to && !px__cpu_stopped(); row = next) {
    next = px__min_count(row + w->rows, to);
    share_from(w, row, r);
    for (piece p = {0}; !w->spread && next_piece(w, row, next, &p);) {
      see_piece(w, &p, r);
      spread_piece(w, &p, r, x->first, x->count);
    }
    add_products(w, r, (next - row) * w->across, x, row > from, w->sums + part * size);
  }
}
static int64_t part_shares(const winograd *w) { return w->cuts * (w->spread ? PLACES : 1); }
static void run_parts(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  int64_t lanes = w->result.channels / LANES, shares = part_shares(w);
  room r;
  if (!room_new(w, px__ceil_div(lanes, w->cuts) * LANES, &r)) return;
  for (int64_t i = begin; i < end; i++) {
    share x = share_of(w, i % shares);
    add_part(w, w->spread ? w->part : i / shares, &x, &r);
  }
  free(r.all);
}
// What is shared of a part, some rows after the others.
static void share_part(winograd *w) {
  int64_t to = part_at(w, w->part + 1);
  for (w->base = part_at(w, w->part); w->base < to && !px__cpu_stopped(); w->base = w->end) {
    w->end = px__min_count(w->base + w->shared, to);
    px__cpu_parallel(w->end - w->base, 1, share_rows, w);
    px__cpu_parallel(part_shares(w), 1, run_parts, w);
  }
}
// G' times four sums.
WIDE_INLINE void gather_taps(wf a, wf b, wf c, wf d, wf *to, int step) {
  wf sum = (b + c) * 0.5f;
  to[0] = a + sum, to[step] = (b - c) * 0.5f, to[2 * step] = sum + d;
}
// The gradient of blocks of results and channels [begin, end), from the sums of all parts.
static WIDE void place_weights(void *ctx, int64_t begin, int64_t end) {
  winograd *w = ctx;
  int64_t channels = w->source.channels, size = w->result.channels * channels;
  int64_t groups = channels / LANES;
  wf odd = wf_set(0);
  for (int64_t i = begin; i < end; i++) {
    int64_t result = i / groups, channel = i % groups * LANES;
    const float *from = w->sums + result * channels + channel;
    wf x[PLACES], half[REACH * SIDE], y[LANES];
#pragma GCC unroll 16
    for (int j = 0; j < PLACES; j++) x[j] = wf_load(from + j * size);
    for (int64_t part = 1; part < w->parts; part++)
#pragma GCC unroll 16
      for (int j = 0; j < PLACES; j++) x[j] += wf_load(from + (part * PLACES + j) * size);
#pragma GCC unroll 4
    for (int j = 0; j < SIDE; j++) gather_taps(x[j], x[4 + j], x[8 + j], x[12 + j], half + j, SIDE);
#pragma GCC unroll 3
    for (int j = 0; j < REACH; j++)
      gather_taps(half[4 * j], half[4 * j + 1], half[4 * j + 2], half[4 * j + 3], y + 3 * j, 1);
#pragma GCC unroll 9
    for (int j = 0; j < TAPS; j++) odd += y[j] * 0;
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
  if (_mm512_reduce_add_ps((__m512)odd) != 0) __atomic_store_n(&w->odd, true, __ATOMIC_RELAXED);
}

// ---- which convolutions

static winograd winograd_of(const conv *t) {
  bool back = t->what == 'i', forward = t->what == 'f';
  images in = {back ? t->out : (float *)t->in, t->c, t->h, t->w, t->pixels};
  images out = {forward ? t->out : (float *)t->grad, t->oc, t->oh, t->ow, t->pixels};
  winograd w = {.source = in,
                .result = out,
                .n = t->n,
                .top = t->ph,
                .left = t->pw,
                .weight = t->what == 'w' ? t->out : (float *)t->weight,
                .bias = t->bias,
                .result_step = t->k,
                .channel_step = t->last ? 1 : TAPS,
                .tap_step = t->last ? t->c : 1};
  if (back) {
    w.source = out, w.result = in;
    w.top = REACH - 1 - t->ph, w.left = REACH - 1 - t->pw, w.turned = true;
    w.result_step = w.channel_step, w.channel_step = t->k;
  }
  w.down = (w.result.height + 1) / 2, w.across = (w.result.width + 1) / 2;
  return w;
}
bool px__conv_winograd_pays(const conv *t) {
  bool dense = t->sh == 1 && t->sw == 1 && t->dh == 1 && t->dw == 1 && t->groups == 1;
  if (!px_setting_get(PX_SETTING_NNPACK_ENABLED)) return false;
  bool flat = t->d == 1 && t->kd == 1 && t->kh == REACH && t->kw == REACH;
  if (!dense || !flat || t->c % LANES || t->oc % LANES || t->c < LEAST || t->oc < LEAST)
    return false;
  winograd w = winograd_of(t);
  int64_t least = t->c * t->oc >= MANY ? TILES_OF_MANY : TILES;
  return w.top >= 0 && w.left >= 0 && all_tiles(&w) >= least && px__conv_has_tiles();
}
// As many rows as the second cache holds, of so many numbers for each place of a tile; `least`
// tiles at least.
static int64_t near_rows(const winograd *w, int64_t numbers, int64_t least) {
  int64_t tiles = NEAR / (PLACES * numbers * (int64_t)sizeof(float));
  int64_t rows = (tiles > least ? tiles : least + w->across - 1) / w->across;
  return px__min_count(rows > 0 ? rows : 1, all_rows(w));
}
// Memory for what is shared, of all rows or, for the weights' gradient, of as many as there may be:
// without it the units do without.
static void share_all(winograd *w, bool weight) {
  int64_t channels = w->source.channels + (weight ? w->result.channels : 0);
  int64_t bytes = PLACES * w->across * channels * (int64_t)sizeof *w->seen;  // of a row
  int64_t most = (weight ? SHARED_ONCE : MOST_SHARED) / bytes;
  w->end = w->shared = all_rows(w);
  if (most < w->shared) w->shared = weight ? most / w->rows * w->rows : 0;
  if (!w->shared) return;
  w->seen_step = apart(w->shared * w->across * w->source.channels);
  w->spread_step = weight ? apart(w->shared * w->across * w->result.channels) : 0;
  int64_t numbers = PLACES * (w->seen_step + w->spread_step);
  w->seen = px__aligned_new((size_t)numbers * sizeof *w->seen);
  if (w->seen && weight) w->spread = w->seen + PLACES * w->seen_step;
}
static void choose_units(winograd *w) {
  int64_t threads = px__cpu_thread_count(), units = UNITS * threads;
  int64_t rows = all_rows(w), blocks = blocks_of(w);
  w->rows = near_rows(w, w->source.channels + SOME, 0);
  if (threads == 1 || bands_of(w) >= units) return;
  int64_t few = px__ceil_div(UNIT_TILES, w->across);
  if (PLACES * factors_step(w) * (int64_t)sizeof(float) > FAR) share_all(w, false);
  if (w->seen) units = px__ceil_div(threads, blocks);  // each fetches weights from far away
  int64_t each = px__ceil_div(rows, units);
  w->rows = px__min_count(w->rows, each > few ? each : few);
}
// The parts follow from sizes alone, as the order of sums does; cuts do not change it.
static void choose_parts(winograd *w) {
  int64_t sums = PLACES * w->result.channels * w->source.channels;
  int64_t threads = px__cpu_thread_count(), most = w->result.channels / CUT;
  w->rows = near_rows(w, w->source.channels + w->result.channels, DEEP);
  w->parts = px__min_count(PARTS, all_rows(w) / w->rows);
  while (w->parts > 1 && w->parts * sums > PART_SUMS) w->parts /= 2;
  if (threads > 2 * w->parts) share_all(w, true);
  int64_t units = w->spread ? PLACES : w->parts;
  w->cuts = px__min_count(px__ceil_div(threads, units), most);
}
static void to_results(winograd *w) {
  for (int64_t i = 0; i < w->source.channels; i++) w->at[i] = i * SOME;
  px__cpu_parallel(w->source.channels * blocks_of(w), GRAIN / 4, turn_weights, w);
  if (w->seen) px__cpu_parallel(all_rows(w), 1, share_rows, w);
  px__cpu_parallel(bands_of(w) * shares_of(w), 1, run_units, w);
}
static void to_weight(winograd *w) {
  int64_t channels = w->source.channels;
  for (int64_t i = 0; i < w->rows * w->across; i++) w->at[i] = i * channels;
  for (; w->spread && w->part < w->parts; w->part++) share_part(w);
  if (!w->spread) px__cpu_parallel(w->parts * part_shares(w), 1, run_parts, w);
  px__cpu_parallel(w->result.channels * (channels / LANES), GRAIN, place_weights, w);
}
bool px__conv_winograd(conv *t) {
  if (t->dtype != PX_FLOAT32 || !px__conv_winograd_pays(t)) return false;
  winograd w = winograd_of(t);
  bool weight = t->what == 'w';
  int64_t places = w.source.channels, numbers = factors_step(&w);
  (weight ? choose_parts : choose_units)(&w);
  if (weight) places = w.rows * w.across, numbers = w.parts * w.result.channels * w.source.channels;
  w.at = malloc((size_t)places * sizeof *w.at);
  w.sums = w.factors = px__aligned_new((size_t)(PLACES * numbers) * sizeof *w.factors);
  w.failed = !w.factors || !w.at;
  if (!w.failed) (weight ? to_weight : to_results)(&w);
  free(w.factors);
  free(w.at);
  free(w.seen);
  t->failed |= w.failed;
  return w.failed || !w.odd;
}
#else
bool px__conv_winograd_pays(const conv *t) { return false; }
bool px__conv_winograd(conv *t) { return false; }
#endif
