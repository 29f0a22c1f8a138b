// SPDX-License-Identifier: Apache-2.0
// What the two ways of convolving share: conv.c multiplies columns, conv_small.c goes tap by tap
// for float images of few positions.
#pragma once
#include "phlox/backend.h"

typedef struct conv {
  void *out, *sums;
  const void *in, *weight, *bias, *grad;
  int64_t n, c, h, w, oc, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, groups;
  int64_t cg, og, k, p;         // channels of a group, in and out; column length; positions
  int64_t images, rows, parts;  // of a piece
  bool wide, inner, failed;
  char what;               // 'f' forward, 'i' gradient of input, 'w' of weight
  struct conv_taps *taps;  // of the small way
} conv;

// Prepares the small way, if the convolution is one for it.
bool px__conv_small(conv *t);
void px__conv_small_end(conv *t);
// Forward or gradient of the input (`what`): pieces [begin, end) of units; and gradient of the
// weight: parts, into t->sums.
int64_t px__conv_small_units(const conv *t);
void px__conv_small_forward(void *ctx, int64_t begin, int64_t end);
void px__conv_small_weight(void *ctx, int64_t begin, int64_t end);
