// SPDX-License-Identifier: Apache-2.0
// Parameters of the device kernels: plain structs passed by value, for C and CUDA C++.
//
// Dtypes have the numbers of px_dtype. Strides are in elements unless stated as bytes.
// Dimensions are innermost first.
#pragma once
#include "phlox/tables/dtypes.h"

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

// Destination of fault reports: the mapped slot (NULL: none) and the launch's id.
typedef struct k_where {
  void *slot;
  uint64_t id;
} k_where;

// Division by an integer known on the host: for n below 2^31, (umulhi(n, magic) + n) >> shift.
typedef struct k_divisor {
  uint32_t size, magic, shift;
} k_divisor;

// Threads of a loop's block, and vectors of n elements in flight a thread. Measured; the most
// for 2-byte elements.
enum { K_LOOP = 128 };
#define K_FLIGHT(n) ((n) > 8 ? 1 : (n) == 8 ? 4 : 2)

// Kinds of loop operands: array, one element for all, immediate number.
enum { K_MANY, K_ONE, K_VALUE };
// Loop modes. FLAT: all operands row-major and aligned. LIST: a batch of such loops. ROWS:
// aligned rows of vectors (sizes[0] counts vectors). NARROW: fewer than 2^31 elements. WIDE:
// any.
enum { K_FLAT, K_LIST, K_ROWS, K_NARROW, K_WIDE };
// A batch of loops in one launch, each with its own blocks: `count` entries of `words` words. An
// entry's first word holds the number of elements (31 bits), alignment (K_LIST_VECTORS) and the
// end of its block range (32 bits); the others hold the operands' addresses.
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
  uint32_t has, truth;  // bit i of has: optional argument i is given; truth: result of is()
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

// A transposing copy in tiles of 32 or K_WIDE_TILE(item size) elements each way. Planes of rows
// x columns are dense along columns in the target and along rows in the source; `batch` counts
// planes over the loop's other dimensions.
#define K_WIDE_TILE(item) ((item) < 4 ? 128 : 64)
typedef struct k_tiles {
  int64_t rows, columns, to_step, from_step, batch;
  int64_t tiles_down, tiles_across;
  void *to;
  const void *from;
  int32_t ndim;
  int64_t sizes[K_DIMS], to_strides[K_DIMS], from_strides[K_DIMS];
} k_tiles;

// A reduction; strides in bytes. By rows, `lanes` threads compute a result. By columns, 8
// threads compute each of 32 adjacent results. Each of several parts stores an accumulator in
// `partial`.
typedef struct k_axis {
  int64_t size, in, out, out2;
} k_axis;
typedef struct k_fold {
  const void *in;
  void *out, *out2, *partial;
  int64_t results, length, parts, part;
  int64_t inner;  // size of gone[0] if parts are pieces of it alone, else 0
  int32_t in_dtype, out_dtype, kept_count, reduced_count, lanes, dense, vector;
  k_number a, b;
  k_axis kept[K_DIMS], reduced[K_DIMS];
} k_fold;

// Batched whole-tensor reductions. `all` holds the shared parameters and the scratch memory of
// all parts. Each tensor has the index of its first part there, and the end of its block range.
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

// Gather and scatter by index tensors (kernels index_get and index_put). K_RUNS: elements a
// thread of the run kernels.
enum { K_RUNS = 4 };
typedef struct k_pick {
  int64_t n, run;  // run: contiguous elements moved by one index, for join_ordered
  k_where where;
  int32_t ndim, count, wraps, fault, dtype, wide, how;  // how: px_put_mode
  k_divisor by[K_DIMS];
  int64_t sizes[K_DIMS], self_strides[K_DIMS], other_strides[K_DIMS];
  int64_t index_strides[K_INDICES][K_DIMS];
  const int64_t *index[K_INDICES];
  int64_t dim_sizes[K_INDICES], dim_strides[K_INDICES], dims[K_INDICES];
  void *self, *other;
} k_pick;

// Row kernels: softmax, layer and batch normalisation, losses. Tensors are named as in the ops,
// NULL if absent: `result` is the op's output or the input's gradient, `grad` the output's
// gradient, `partial` scratch memory. Numbers are explained at their kernels.
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
enum { K_SUM_COLUMNS = 8 };                          // columns of a block of layer_sums
enum { K_EACH, K_MEAN, K_SUM };                      // k_rows.how
enum { K_MSE, K_SMOOTH, K_HUBER, K_BCE, K_LOGITS };  // k_rows.logs of an element-wise loss

// A step of a recurrent cell, forward or backward. Rows have `size` elements, or `size` for each
// gate. Unused operands are NULL.
typedef struct k_step {
  void *gates, *kept, *c, *h, *h_before, *output;
  const void *hidden;
  void *grad_gates, *grad_hidden, *grad_h, *grad_c;
  const void *grad_output;
  int64_t n, size;
  int32_t relu;
} k_step;

// Batched optimiser updates. Each parameter has its tensor and states, NULL if absent. Numbers
// computed on the device are read from a line (phlox/backend.h), which also holds new values of
// scalars. `end`: end of its block range.
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
// Computes the numbers of steps. Inputs: each parameter's scalars in turn, the rate if it is a
// tensor, and the flag of a gradient with inf or NaN.
enum { K_NUMBERS_OPTIONS = 14, K_NUMBERS_SCALARS = 9 };
typedef struct k_numbers {
  double first, options[K_NUMBERS_OPTIONS];
  const float *scalars[K_NUMBERS_SCALARS], *found;
  const double *rate;
  double *out;
  int32_t each, rate_at, lines;
} k_numbers;

// Gradient scaling: the gradient and the flag of an inf or NaN element; then the scale's update.
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

// Random numbers with the counter layout of PyTorch's device kernels.
typedef struct k_random {
  k_where where;
  void *out;
  const void *in, *in2;
  int64_t n, from, rows, stride;
  uint64_t seed, offset, range;
  const uint64_t *state;  // graphs: the seed and an addend of `offset`; else NULL
  double a, b;
  int32_t dtype, wide, bits, replacement;
  void *scratch, *keys;
} k_random;

// Pooling and convolution of planes. The divisors are for the loop's planes and the strides;
// `wide`: too many elements for them. A plane has fewer than 2^31.
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

// State exchanged between tiles of a line (kernels/tiles.cuh), initialised to zero. A line has
// K_TILE_STATES entries, aligned to their size.
typedef struct k_tile_state {
  int64_t value, ready;
} k_tile_state;
#define K_TILE_STATES(tiles) ((tiles) + (tiles) / 32 + (tiles) / 1024)
typedef struct k_tiles_of {
  int64_t tiles;  // a line
  k_tile_state *states;
  uint32_t *next;
} k_tiles_of;

// Lines along a dimension: `size` elements at stride `inner`. A scan tile has K_SCAN_VECTORS
// 16-byte vectors a thread.
enum { K_SCAN_VECTORS = 8 };
#define K_SCAN_TILE(bytes) (K_BLOCK * K_SCAN_VECTORS * 16 / (bytes))
typedef struct k_lines {
  k_where where;
  void *out;
  const void *in, *other;
  int64_t *indices;
  int64_t outer, size, inner, chunks, take, width, dim;
  void *keys;
  int32_t product, backwards, scatters;
  k_divisor by_width;
  k_tiles_of tiles;
} k_lines;

// Insertion points of `count` values in sorted lines of `size` elements: `each` values a line.
typedef struct k_search {
  k_where where;
  const void *lines, *values;
  int64_t *out;
  int64_t count, size, each;
  int32_t right;
} k_search;

// Sorts of dense lines, and selection of their first elements: elements `skip` to `skip` +
// `take` of each sorted line are written. Indices are smaller than the line length. Elements of
// `item` bytes become keys, unsigned integers in the requested order (kernels/keys.cuh). A block
// of K_SORT_WARPS warps holds K_SORT_EACH(bytes of a key or index) elements per thread. Short
// lines have up to K_SORT_SHORT elements; selections of up to K_SELECT need no sort.
enum { K_SORT_WARPS = 16, K_SORT_SHORT = 256, K_SELECT = 1024, K_SELECT_STEP = 2048 };
#define K_SORT_EACH(bytes) (64 / (int)(bytes))
typedef struct k_sort {
  const void *in;
  const int64_t *from;  // the elements' original indices; NULL: these are whole lines
  void *out;
  int64_t *indices;  // NULL: not requested
  int64_t lines, size, skip, take, tiles, width;
  uint64_t top, negative, positive, max_magnitude, nan, minus_zero, zero;
  int32_t item, pass, passes;
  k_divisor by_take;
  void *keys[2], *positions[2];  // ping-pong buffers of the passes
  void *starts, *states;
  uint8_t *uniform;  // flag for each line and pass (stride 8): all elements have one digit
  uint32_t *next;
} k_sort;

// Tensors computed from the element's index.
typedef struct k_make {
  void *out;
  const void *in;
  int64_t n, columns, start, step, diagonal;
  double from, by, to;
  int32_t dtype, integer, lower, ndim;
  int64_t sizes[K_DIMS], to_strides[K_DIMS], from_strides[K_DIMS];
} k_make;

// Compaction of selected elements, and starts of runs of equal elements; dense. A thread has
// K_MASK_EACH elements. Elements are compared by bits: `magnitude` masks the bits of a nonzero
// value, `max_magnitude` is the largest magnitude that is not NaN.
enum { K_MASK_EACH = 32 };  // bits of a word
typedef struct k_mask {
  const void *in, *from;
  void *out;
  int64_t *starts, *number;  // NULL: not requested
  int64_t n, capacity;       // elements of `in`; capacity of `out`
  uint64_t magnitude, max_magnitude;
  int32_t ndim;
  int64_t sizes[K_DIMS];
  k_tiles_of tiles;
} k_mask;

// Strided copies of three dimensions; elements of 1, 2, 4, 8 or 16 bytes.
typedef struct k_strided {
  void *to;
  const void *from;
  int64_t sizes[3], to_strides[3], from_strides[3];
} k_strided;
