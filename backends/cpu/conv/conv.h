// SPDX-License-Identifier: Apache-2.0
// Shared state of the convolution methods. conv.c: matrix products; conv_direct.c: tap by tap, for
// many small float images; conv_few_pixels.c: few output pixels and many channels; conv_depthwise.c
// and conv_depthwise_planes.c: depthwise; conv_winograd.c: 3x3.
#pragma once
#include "cpu/conv/conv_axis.h"
#include "phlox/backend.h"

// The smallest source coordinates read by grid position 0.
typedef struct conv_origin {
  int64_t z, y, x;
} conv_origin;

typedef struct conv {
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

// True if n results fill at least 90 % of the lanes of 16-lane vectors.
static inline bool px__conv_fills_lanes(int64_t n) { return 10 * n >= 9 * ((n + 15) / 16 * 16); }

// Prepares conv_direct.c's method if applicable; not for volumes.
bool px__conv_small(conv *t);
void px__conv_small_end(conv *t);
// Forward or input gradient (`mode`): units [begin, end). Weight gradient: parts [begin, end), into
// t->sums.
int64_t px__conv_small_units(const conv *t);
void px__conv_small_forward(void *ctx, int64_t begin, int64_t end);
void px__conv_small_weight(void *ctx, int64_t begin, int64_t end);

// Depthwise, forward or input gradient, from row-major arrays. False: not applicable. t->failed:
// out of memory.
bool px__conv_depth(conv *t);
// Depthwise by planes (conv_depthwise_planes.c), including the weight gradient. False: not
// applicable, or the weight gradient has inf or NaN and must be computed by another method.
bool px__conv_planes(conv *t);
// Float 3x3 convolution of images with fewer multiplications (conv_winograd.c). False: not
// applicable, or a result is inf or NaN and must be computed by another method. t->failed: out of
// memory.
bool px__conv_winograd(conv *t);
// True if the sizes suit Winograd.
bool px__conv_winograd_applies(const conv *t);
// Float convolution of images or volumes with few output pixels and many channels. Operands are
// row-major or channels_last; uses only t's sizes and `mode`. False: not applicable. t->failed: out
// of memory.
bool px__conv_few(conv *t, const px_operand *source, const px_operand *weight,
                  const px_operand *bias, const px_operand *result);
