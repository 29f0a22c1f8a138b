// SPDX-License-Identifier: Apache-2.0
// Rows, columns or depths of a convolution: the mapping of grid to source positions.
#pragma once
#include "cpu/threads/ceil_div.h"
#include <stdbool.h>

// One dimension of a sum over kernel taps. At tap first + j * every, 0 <= j < count, grid position
// q reads source position q * step + shift + j * move.
typedef struct conv_axis {
  int64_t source, grid, step, first, every, count, shift, move;
  // Planes that hold the source for this dimension. Shared: one per remainder of `step`, starting
  // at low * step and `reach` longer than the grid. Otherwise one per tap, as long as the grid.
  bool shared;
  int64_t planes, low, reach;
} conv_axis;

// The source position of tap j at grid position 0, and division rounding down.
static inline int64_t px__conv_at(const conv_axis *a, int64_t j) { return a->shift + j * a->move; }
static inline int64_t px__conv_floor(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static inline conv_axis px__conv_axis_forward(int64_t size, int64_t grid, int64_t kernel,
                                              int64_t stride, int64_t pad, int64_t dilation) {
  return (conv_axis){.source = size,
                     .grid = grid,
                     .step = stride,
                     .every = 1,
                     .count = kernel,
                     .shift = -pad,
                     .move = dilation};
}
// Input gradient: every stride-th position of the image from `at`, and the output positions that
// read it.
static inline conv_axis px__conv_axis_back(int64_t size, int64_t out, int64_t kernel,
                                           int64_t stride, int64_t pad, int64_t dilation,
                                           int64_t at) {
  conv_axis a = {.source = out, .grid = px__ceil_div(size - at, stride), .step = 1, .every = 1};
  for (int64_t k = 0; k < kernel; k++) {
    int64_t from = at + pad - k * dilation;
    if (from % stride) continue;
    if (a.count == 0) a.first = k, a.shift = from / stride;
    if (a.count == 1) a.every = k - a.first, a.move = from / stride - a.shift;
    a.count++;
  }
  return a;
}
