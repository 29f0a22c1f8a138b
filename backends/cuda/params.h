// SPDX-License-Identifier: Apache-2.0
// What the host hands to the device kernels: plain structs, passed by value, for C and for CUDA
// C++.
//
// Dtypes have the numbers of px_dtype. Strides are in elements unless a comment says bytes.
// Dimensions are innermost first.
#pragma once
#include "phlox/dtypes.h"

#include <stdint.h>

enum {
#define XX(name, ...) K_##name,
  PX_DTYPE_MAP(XX)
#undef XX
};
enum { K_DIMS = 16, K_OPERANDS = 6, K_INDICES = 10, K_NUMBERS = 8, K_BLOCK = 256 };

typedef union k_number {
  double f;
  int64_t i;
} k_number;

// Where a fault is reported: the mapped slot (NULL: nowhere), and the launch's id.
typedef struct k_where {
  void *slot;
  uint64_t id;
} k_where;

// A division by a number known on the host: of n below 2^31, (umulhi(n, magic) + n) >> shift.
typedef struct k_divisor {
  uint32_t size, magic, shift;
} k_divisor;

// Threads of a block of a loop, and vectors of n elements that a thread has in flight: measured,
// most where elements are of two bytes.
enum { K_LOOP = 128 };
#define K_FLIGHT(n) ((n) > 8 ? 1 : (n) == 8 ? 4 : 2)

// A loop over elements. An operand has many elements, one for all, or is a number.
enum { K_MANY, K_ONE, K_VALUE };
// All row-major and aligned; several such loops; aligned rows, of vectors (sizes[0] counts them);
// below 2^31 elements; any.
enum { K_FLAT, K_LIST, K_ROWS, K_NARROW, K_WIDE };
// Several loops in one launch, each with blocks of its own: `count` entries of `words`. The first
// word of an entry has the number of elements (31 bits), whether they are aligned (K_LIST_VECTORS)
// and the block behind its own (32 bits); the others are where its operands lie.
enum { K_LIST_WORDS = 135 };
#define K_LIST_VECTORS (1u << 31)
typedef struct k_list {
  int32_t count, words;
  uint64_t at[K_LIST_WORDS];
} k_list;
typedef struct k_loop {
  int64_t n;
  k_where where;
  int32_t mode, ndim;
  uint32_t has, truth;  // bit i: the i-th optional argument is given; the answer of is()
  uint8_t kind[K_OPERANDS];
  uint8_t dtype[K_OPERANDS];
  void *data[K_OPERANDS];
  k_number value[K_OPERANDS], numbers[K_NUMBERS];
  union {
    struct {
      k_divisor by[K_DIMS];
      int64_t sizes[K_DIMS], strides[K_DIMS][K_OPERANDS];
    };
    k_list list;  // K_LIST
  };
} k_loop;

// A transposing copy, by tiles of 32 or K_WIDE_TILE(item size) elements each way: planes of rows x
// columns, dense along columns in the target and along rows in the source; `batch` planes with the
// loop's dimensions.
#define K_WIDE_TILE(item) ((item) < 4 ? 128 : 64)
typedef struct k_tiles {
  int64_t rows, columns, to_step, from_step, batch;
  int64_t tiles_down, tiles_across;
  void *to;
  const void *from;
  int32_t ndim;
  int64_t sizes[K_DIMS], to_strides[K_DIMS], from_strides[K_DIMS];
} k_tiles;

// A reduction. Strides are in bytes. `lanes` threads make a result; or, by columns, 32 neighbouring
// results are made by 8 threads each. With several parts each makes an accumulator in `partial`.
typedef struct k_axis {
  int64_t size, in, out, out2;
} k_axis;
typedef struct k_fold {
  const void *in;
  void *out, *out2, *partial;
  int64_t results, length, parts, part;
  int64_t inner;  // where parts are pieces of gone[0] alone: its size; 0 otherwise
  int32_t in_dtype, out_dtype, kept_count, gone_count, lanes, dense, vector;
  k_number a, b;
  k_axis kept[K_DIMS], gone[K_DIMS];
} k_fold;

// Whole tensors, each reduced to one element, in one launch; `all` has what they share, and room
// for what the parts of all give. Of each: the first of its parts there, and the block behind its
// own.
enum { K_FOLDS = 48 };
typedef struct k_fold_of {
  const void *in;
  void *out;
  int64_t length, part;
  uint32_t parts, first, end;
  int16_t lanes, vector;
} k_fold_of;
typedef struct k_folds {
  k_fold all;
  int32_t count;
  k_fold_of of[K_FOLDS];
} k_folds;

// Elements picked by index tensors (the kernels index_get and index_put). A thread has K_RUNS where
// it takes runs.
enum { K_RUNS = 4 };
typedef struct k_pick {
  int64_t n, run;  // of join_ordered: elements in a row that one index moves
  k_where where;
  int32_t ndim, count, wraps, fault, dtype, wide, how;  // how: px_put_mode
  k_divisor by[K_DIMS];
  int64_t sizes[K_DIMS], self_strides[K_DIMS], other_strides[K_DIMS];
  int64_t index_strides[K_INDICES][K_DIMS];
  const int64_t *index[K_INDICES];
  int64_t dim_sizes[K_INDICES], dim_strides[K_INDICES], dims[K_INDICES];
  void *self, *other;
} k_pick;

// Rows: softmax, layer and batch normalisation, losses. What a launch reads and writes has the
// names of the ops, NULL where there is none; `result` is the op's, or the gradient of the input,
// `grad` the gradient of the op's, `partial` scratch memory. What a number means is said at the
// kernel.
typedef struct k_rows {
  k_where where;
  const void *input, *grad, *output, *weight, *bias, *target, *running_mean, *running_var;
  void *result, *grad_weight, *grad_bias, *mean, *rstd, *variance, *total_weight, *partial,
      *logsumexp;
  int64_t outer, size, inner, chunks;
  double eps;
  int32_t logs, lanes, vector, training, how, dtype;
  int64_t ignore;
  double number;
} k_rows;
enum { K_SUM_COLUMNS = 8 };                          // of a block of layer_sums
enum { K_EACH, K_MEAN, K_SUM };                      // k_rows.how
enum { K_MSE, K_SMOOTH, K_HUBER, K_BCE, K_LOGITS };  // k_rows.logs of an element-wise loss

// A step of a recurrent cell, forward or backward: rows of `size` elements, or of `size` for each
// gate. NULL: the launch has none.
typedef struct k_step {
  void *gates, *kept, *c, *h, *h_before, *output;
  const void *hidden;
  void *grad_gates, *grad_hidden, *grad_h, *grad_c;
  const void *grad_output;
  int64_t n, size;
  int32_t relu;
} k_step;

// Updates of optimisers, of several parameters in one launch. Of each: the parameter and the states
// that are tensors, NULL where one is absent. Numbers that are made on the device come as a line
// (phlox/backend.h), with the scalars that it has new values of. `end`: the block behind its own.
enum {
  K_UPDATED = 4,
  K_UPDATES = 32,
  K_UPDATE_NUMBERS = 16,
  K_SCALARS = 3,
  K_LEFT_OUT = 19,
  K_LINE = 20
};
typedef struct k_update {
  void *at[K_UPDATED];
  const void *grad;
  int64_t n;
  const double *line;
  float *scalars[K_SCALARS];
  int32_t vector;
  uint32_t end;
} k_update;
typedef struct k_updates {
  double numbers[K_UPDATE_NUMBERS];
  int32_t count;
  k_update of[K_UPDATES];
} k_updates;
// The numbers of steps: scalars of each parameter in turn, the rate if it is a tensor, and whether
// a gradient was not finite.
enum { K_NUMBERS_OPTIONS = 14, K_NUMBERS_SCALARS = 9 };
typedef struct k_numbers {
  double first, options[K_NUMBERS_OPTIONS];
  const float *scalars[K_NUMBERS_SCALARS], *found;
  const double *rate;
  double *out;
  int32_t each, rate_at, lines;
} k_numbers;

// The scale of gradients: what is scaled, and whether an element was not finite; the scale itself.
typedef struct k_amp {
  void *grad;
  float *found;
  const float *by;
  int64_t n;
} k_amp;
typedef struct k_amp_scale {
  float *scale;
  int32_t *tracker;
  const float *found;
  double growth, backoff;
  int64_t interval;
} k_amp_scale;

// Random numbers in the layout of PyTorch's device kernels.
typedef struct k_random {
  k_where where;
  void *out;
  const void *in, *beside;
  int64_t n, from, rows;
  uint64_t seed, offset, range;
  const uint64_t *state;  // of a graph: the seed, and what is added to `offset`; or NULL
  double a, b;
  int32_t dtype, wide, bits, again;
  void *scratch, *keys;
} k_random;

// Pooling and convolution of planes. The divisors are those of the planes that are walked, and of
// the steps; `wide`: there are too many elements for them. A plane has less than 2^31.
typedef struct k_window {
  k_where where;
  void *out;
  const void *in, *weight, *bias;
  int64_t *indices;
  int64_t planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, divisor;
  int64_t n, c, oc, groups;
  k_divisor by_w, by_h, by_sh, by_sw;
  int32_t adaptive, count_pad, wide;
} k_window;

// What tiles of a line tell each other (kernels/tiles.cuh); all of it begins as zeros. A line has
// K_ROOMS rooms, which are aligned to their size.
typedef struct k_room {
  int64_t value, ready;
} k_room;
#define K_ROOMS(tiles) ((tiles) + (tiles) / 32 + (tiles) / 1024)
typedef struct k_tiles_of {
  int64_t tiles;  // of a line
  k_room *rooms;
  uint32_t *next;
} k_tiles_of;

// Lines along a dimension. A line has `size` elements `inner` apart. A tile of a scan has
// K_SCAN_VECTORS vectors of 16 bytes a thread.
enum { K_SCAN_VECTORS = 8 };
#define K_SCAN_TILE(bytes) (K_BLOCK * K_SCAN_VECTORS * 16 / (bytes))
typedef struct k_lines {
  k_where where;
  void *out;
  const void *in, *other;
  int64_t *indices;
  int64_t outer, size, inner, chunks, take, width, dim;
  void *keys;
  int32_t product, backwards, place;
  k_divisor by_width;
  k_tiles_of tiles;
} k_lines;

// Sorts of dense lines, and choices of the first of their elements: of each sorted line, those from
// `skip` to `skip` + `take` are given. Places are counts up to the length of a line. The elements
// of `item` bytes become keys: numbers without sign in the order that is wanted (kernels/keys.cuh).
// A block of K_SORT_WARPS warps has K_SORT_EACH(bytes of a key or place) elements a thread; short
// lines have K_SORT_SHORT elements at most; a choice of up to K_SELECT is made without a sort.
enum { K_SORT_WARPS = 16, K_SORT_SHORT = 256, K_SELECT = 1024, K_SELECT_STEP = 2048 };
#define K_SORT_EACH(bytes) (64 / (int)(bytes))
typedef struct k_sort {
  const void *in;
  const int64_t *from;  // where the elements were in their lines; NULL: these are the whole lines
  void *out;
  int64_t *indices;  // NULL: not wanted
  int64_t lines, size, skip, take, tiles, width;
  uint64_t top, negative, positive, most, nan, minus_zero, zero;
  int32_t item, pass, passes;
  k_divisor by_take;
  void *keys[2], *places[2];  // rooms that passes go to and fro between
  void *starts, *states;
  uint8_t *still;  // for each line and pass of eight: whether all elements have the same digit
  uint32_t *next;
} k_sort;

// Tensors by a rule of the place.
typedef struct k_make {
  void *out;
  const void *in;
  int64_t n, columns, start, step, diagonal;
  double from, by, to;
  int32_t dtype, whole, lower, ndim;
  int64_t sizes[K_DIMS], to_strides[K_DIMS], from_strides[K_DIMS];
} k_make;

// What a mask selects, and the first of each run of equal elements; dense. A thread has K_MASK_EACH
// elements. Elements are compared by their bits: `magnitude` has those that are set in one that is
// not zero, `most` is the greatest magnitude that is not NaN's.
enum { K_MASK_EACH = 32 };  // the bits of a word
typedef struct k_mask {
  const void *in, *from;
  void *out;
  int64_t *places, *number;  // NULL: not wanted
  int64_t n, room;           // elements of `in`, and of `out` at most
  uint64_t magnitude, most;
  int32_t ndim;
  int64_t sizes[K_DIMS];
  k_tiles_of tiles;
} k_mask;

// Copies between strided arrays of three dimensions; elements are 1, 2, 4 or 8 bytes.
typedef struct k_strided {
  void *to;
  const void *from;
  int64_t sizes[3], to_strides[3], from_strides[3];
} k_strided;
