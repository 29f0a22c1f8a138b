// SPDX-License-Identifier: Apache-2.0
// Shared state of the convolution methods, and their table. conv.c chooses the method of a call.
#pragma once
#include "cpu/conv/conv_axis.h"
#include "phlox/backend.h"

// The operands of a call, named by their part in the forward convolution: one of `in`, `weight` and
// `out` is the result. The bias is absent in gradients.
typedef struct conv_operands {
  const px_operand *in, *weight, *bias, *out;
} conv_operands;

// The smallest source coordinates read by grid position 0.
typedef struct conv_origin {
  int64_t z, y, x;
} conv_origin;

typedef struct conv {
  const px_launch *launch;
  conv_operands operands;
  // Arrays of the compute dtype: row-major, or the operands' own if channels_last. `out` is the
  // result of the call.
  void *out, *sums;
  const void *in, *weight, *bias, *grad;
  // For 2-D images the depths d, od and kd are 1.
  int64_t n, c, d, h, w, oc, od, oh, ow, kd, kh, kw, sd, sh, sw, pd, ph, pw, dd, dh, dw, groups;
  int64_t cg, og, k;                   // channels per group, in and out; terms per output element
  int64_t kernel_taps, p, out_pixels;  // kernel taps; output pixels per plane, and in total
  int dtype;                           // compute dtype: float, double, or bfloat16 with float sums
  bool parallel_gemm, failed;
  bool weight_channels_last;  // the weights, or their gradient, are channels_last
  char mode;  // 'f': forward, 'i': gradient of the input, 'w': gradient of the weight
  // Gradient of the weight: number of batch parts, and of cuts along the channels or the results.
  int64_t parts, cuts;
  bool cuts_results;
  int64_t units;    // per cut
  bool cut_by_cut;  // process one cut after the other
  bool narrow;      // weight gradient: results innermost in the sums; the input is read directly
  bool pixel_rows;  // forward and input gradient: rows of the product are pixels; transposed at the
                    // end
  bool tiled;       // forward and input gradient: tiles of conv_indirect.h
  struct conv_taps *taps;  // conv_direct.c
  // A pass: results on a grid from sources on a grid. `channels`, `results` and `terms` per group.
  conv_axis z, y, x;
  void *own;                                    // factors freed with the pass
  const void *source, *factors;                 // factors: results x terms for each group
  int64_t channels, results, terms, row, term;  // row, term: strides of the factors
  int64_t z0, y0, x0;                           // the grid's origin in the results
  int64_t phases, blocks, bands;                // see convolve()
  int64_t images, rows, pitch;                  // of a unit: images, grid rows, and row stride
  // Elements of a plane, of all planes (tiled: of the sums), and of a result; offsets of the terms.
  int64_t plane, planes_size, ld, *term_offsets;
  int64_t *pixel_offsets;  // offsets of output pixels: `narrow`, `pixel_rows` and `channels_last`
  bool direct_source;      // the source is used directly, without planes
  // Volumes: all but one of a depth's source planes per channel are reused by the next depth. They
  // stay in their slots, and there is an offset table for each rotation of the slots.
  bool rotates;
  int64_t blocks_per_unit;  // consecutive blocks per unit
  // Source and result are channels_last and used directly. The source of a unit is a box of pixels
  // with all channels. Strides of its images, planes and rows; its origin `low`; the packed
  // factors.
  bool channels_last;
  int64_t box_image, box_plane, box_row;
  conv_origin low;
  void *packed;
} conv;

// A method of convolution.
typedef struct conv_method {
  bool (*accepts)(const conv *t);  // true if the method can compute the call
  int (*cost)(const conv *t);      // expected time of an accepted call (conv_limits.h)
  // Computes the call. Returns false if the results would be wrong, a table has no memory or the
  // plan exceeds a limit: a later method of the table then computes it. t->failed: out of memory.
  bool (*run)(conv *t);
  bool reads_stored;  // reads and writes the operands as stored, not t's arrays
} conv_method;
extern const conv_method px__method_few_pixels;        // few output pixels and many channels
extern const conv_method px__method_depthwise;         // depthwise, rows in registers
extern const conv_method px__method_depthwise_planes;  // depthwise, zero-padded planes
extern const conv_method px__method_winograd;          // 3x3 with fewer multiplications
extern const conv_method px__method_direct;            // many small images, tap by tap
extern const conv_method px__method_product;           // products of matrices: every call

// True if images are convolved: all depths are 1.
static inline bool px__conv_is_flat(const conv *t) { return t->d == 1 && t->od == 1 && t->kd == 1; }
// True if each group has one channel and one result.
static inline bool px__conv_is_depthwise(const conv *t) { return t->cg == 1 && t->og == 1; }
// True if n results fill at least 90 % of the lanes of 16-lane vectors.
static inline bool px__conv_fills_lanes(int64_t n) { return 10 * n >= 9 * ((n + 15) / 16 * 16); }

// Runs `units` work units on the thread pool; few multiplications run on the calling thread.
void px__conv_run_units(conv *t, int64_t units, void (*run)(void *, int64_t, int64_t));
// Number of separately summed parts of the weight gradient, of `pieces` of the batch.
int64_t px__conv_parts(const conv *t, int64_t pieces);
// Sums the weight gradient: `run` sums units of t->parts parts into t->sums, then the parts are
// added in order. `in_place`: t->sums is the result, for a single part.
void px__conv_sum_parts(conv *t, bool in_place, int64_t units,
                        void (*run)(void *, int64_t, int64_t));
