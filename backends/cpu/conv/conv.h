// SPDX-License-Identifier: Apache-2.0
// What the ways of convolving share: conv.c multiplies matrices, conv_small.c goes tap by tap for
// many small float images, conv_few.c has those of few positions and many channels, conv_depth.c
// those of each channel by itself.
#pragma once
#include "cpu/conv/conv_axis.h"
#include "phlox/backend.h"

// The least positions of the source that position 0 of the grid meets.
typedef struct conv_low {
  int64_t z, y, x;
} conv_low;

typedef struct conv {
  void *out, *sums;
  const void *in, *weight, *bias, *grad;
  // Of images, the depths d, od and kd are 1.
  int64_t n, c, d, h, w, oc, od, oh, ow, kd, kh, kw, sd, sh, sw, pd, ph, pw, dd, dh, dw, groups;
  int64_t cg, og, k;        // channels of a group, in and out; numbers that an output sees
  int64_t places, p, seen;  // of the kernel; positions of the output in a plane, and in all
  int dtype;  // that it is computed in: float, double, or bfloat16, whose sums are float
  bool inner, failed;
  bool last;  // the weights, or their gradient, lie channels_last
  char what;  // 'f' forward, 'i' gradient of input, 'w' of weight
  // For the gradient of the weight: parts of the batch, and cuts of the channels, or of the
  // results.
  int64_t parts, cuts;
  bool results_cut;
  int64_t units;  // of a cut, and whether one cut is done after the other
  bool by_cuts;
  bool narrow;   // sums lie with the results innermost: what the positions see is read in place
  bool upright;  // of forward and the input's gradient: a position's results lie together at first
  bool tiled;    // of forward and the input's gradient: by the tiles of conv_tiles.h
  struct conv_taps *taps;  // of the small way
  // A pass: results on a grid from sources on a grid, of so many channels a group.
  conv_axis z, y, x;
  void *own;                                    // factors that are freed with the pass
  const void *source, *factors;                 // factors: for each group results x terms
  int64_t channels, results, terms, row, term;  // row, term: strides of the factors
  int64_t z0, y0, x0;                           // the grid's first place among the results
  int64_t phases, blocks, bands;                // see convolve()
  int64_t images, rows, pitch;  // of a unit: images, rows of the grid, and their distance
  // Elements of a plane and of all (tiled: or of sums); of a result; terms' places.
  int64_t plane, strips, ld, *table;
  int64_t *columns;  // places of positions, of `narrow`, `upright` and of pixels
  bool plain;        // the source needs no planes
  // A depth's planes of the source serve the next depth too, all but one for each channel: they
  // stay where they are, and there is a table for each of the turns in which they come to lie.
  bool rolls;
  int64_t run;  // blocks of a unit, one after the other
  // Source and result lie channels_last, and are used so. The source of a unit is a box of pixels,
  // of all channels: how far apart its images, planes and rows are, where the first term of the
  // first position lies, and the factors, packed.
  bool pixels;
  int64_t box_image, box_plane, box_row;
  conv_low low;
  void *packed;
} conv;

// Whether so many results are whole vectors, of up to sixteen, but for a tenth.
static inline bool px__conv_fills_lanes(int64_t n) { return 10 * n >= 9 * ((n + 15) / 16 * 16); }

// Prepares the small way, if the convolution is one for it; volumes are none.
bool px__conv_small(conv *t);
void px__conv_small_end(conv *t);
// Forward or gradient of the input (`what`): pieces [begin, end) of units; and gradient of the
// weight: parts, into t->sums.
int64_t px__conv_small_units(const conv *t);
void px__conv_small_forward(void *ctx, int64_t begin, int64_t end);
void px__conv_small_weight(void *ctx, int64_t begin, int64_t end);

// Does all of a convolution of each channel by itself, forward or the gradient of the input, from
// arrays that are row-major; false if this is none of those. t->failed: no memory.
bool px__conv_depth(conv *t);
// The same by planes (conv_planes.c), and the gradient of the weight; of that also false if it is
// not finite and has to be computed in another way.
bool px__conv_planes(conv *t);
// Does all of a float convolution of images by 3 x 3 places with fewer multiplications
// (conv_winograd.c); false if this is none for it, or a result was not finite and has to be
// computed in another way. t->failed: no memory.
bool px__conv_winograd(conv *t);
// Whether its sizes are ones for that.
bool px__conv_winograd_pays(const conv *t);
// Does all of a float convolution, of images or volumes, of few positions and many channels, of
// operands row-major or channels_last, from t's sizes and `what`; false if this is none. t->failed:
// no memory.
bool px__conv_few(conv *t, const px_operand *source, const px_operand *weight,
                  const px_operand *bias, const px_operand *result);
