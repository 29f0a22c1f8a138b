// SPDX-License-Identifier: Apache-2.0
// Costs and limits of the convolution methods: the constants that decide how a convolution is
// computed. "min" and "max" are inclusive.
//
// Costs and the limits with percentages were measured on a 2-core EPYC with AVX-512: the forward
// pass in float on one thread, each method alone, in percent of the product's time. Older limits
// are those of the machines of docs/measurements/cpu.md; bench/convolutions.py measures them.
#pragma once

// ---- choice of the method

// Expected time in percent of the product's. The product computes every call, so a cost above 100
// excludes a method. Among methods that accept a call only the order matters.
enum {
  DEPTHWISE_COST = 35,  // 8 x 64 x 56 x 56 with 7x7 kernels: 37; 8 x 64 x 6 x 6 with 5x5: 34
  WINOGRAD_COST = 45,   // 8 x 256 x 14 x 14: 42; 8 x 64 x 56 x 56: 65
  FEW_COST = 50,        // 512 channels of 7 x 7, stride 2: 35; four images of 4 x 4: 58
  PLANES_COST = 70,     // 8 x 64 x 56 x 56, stride 2: 67; 8 x 64 x 14 x 14: 74
  DIRECT_COST = 90,     // 64 x 8 x 5 x 5: 93; one channel with 5x5 kernels: 91
  PRODUCT_COST = 100,
  EXCLUDED = 1000
};
// Few pixels. 288 pixels of 256 channels: 123 %; 64 pixels: 42 %.
enum {
  FEW_MAX_PIXELS = 256,            // output pixels of all images, max, row-major
  FEW_MIN_CHANNELS_PER_PIXEL = 4,  // results per output pixel, min, 1x1 kernels
  FEW_MIN_TERMS = 64,              // terms of a result, min
  FEW_MIN_CHANNELS_LAST = 16,      // channels, min, channels_last
  FEW_MAX_PIXELS_LAST = 512,       // output pixels, max, channels_last with full vectors of results
  FEW_MAX_VIEW_ELEMENTS = 2 << 20  // elements of the views, max, channels_last
};
// Depthwise: rows in registers, and planes.
enum {
  DEPTHWISE_MIN_RESULTS = 36,           // results of a plane, min
  PLANES_MAX_BAND_ELEMENTS = 32 * 1024  // elements of the smallest band's source planes, max
};
// Winograd. 16 channels: 124 %; 32 channels and 25 tiles: 46 %; 512 channels and 36 tiles: 132 %.
enum {
  WINOGRAD_MIN_CHANNELS = 32,           // channels and results, min
  WINOGRAD_MIN_TILES = 24,              // 2x2 tiles, min, to amortize the weights' transforms
  WINOGRAD_MANY_WEIGHTS = 128 * 1024,   // channels times results with transforms larger than L2
  WINOGRAD_MIN_TILES_MANY_WEIGHTS = 40  // 2x2 tiles, min, in that case
};
// Direct sums over taps.
enum {
  DIRECT_MAX_PIXELS = 128,            // pixels of a result, max
  DIRECT_MAX_PIXELS_WITH_TILES = 25,  // the same if product tiles are larger: many taps are padding
  DIRECT_MAX_WEIGHT_CHANNELS = 16,    // channels of a group, max, weight gradient
  DIRECT_MAX_TAPS = 128 * 1024        // taps of all lists, max: 1 MB
};
// Compute dtype of bfloat16.
enum {
  BF16_MIN_CHANNELS = 16,       // channels and results of a group, min, for bfloat16 products
  BF16_MIN_FLOAT_PIXELS = 1024  // output pixels, min, for float instead without AMX
};

// ---- forms of the product

// Tiles of conv_indirect.h.
enum {
  TILED_MIN_RESULTS = 12,       // results of a group, min
  TILED_MIN_IMAGE_PIXELS = 48,  // pixels of an image processed alone, min
  TILED_MIN_CUT = 24,           // results of a cut, min
  TILED_NEAR_TERMS = 512,       // terms of a block, max, near source: taps share cache lines
  TILED_FAR_TERMS = 128         // terms of a block, max, distant source: 32 KB of a panel, for L1
};
// Output pixels as rows.
enum {
  PIXEL_ROWS_MIN_TERMS = 256,          // terms, min
  PIXEL_ROWS_MIN_RESULTS = 64,         // results, min
  PIXEL_ROWS_MIN_WEIGHTS = 32 * 1024,  // weights, min
  PIXEL_ROWS_MIN_PIXELS = 256,         // output pixels, min
  PIXEL_ROWS_COLUMNS = 96              // output pixels of a unit
};
// Planes of the source.
enum {
  PRODUCT_MAX_PLANE_ELEMENTS = 128 * 1024,  // elements of a unit's planes, max: 512 KB, for L2
  PRODUCT_MAX_WASTED_RESULTS = 64,          // unused results per pixel worth a plane per tap
  PRODUCT_MIN_BORDER_CLEAR_PITCH = 24       // elements of a row, min, to clear only the borders
};
// Gradient of the weight.
enum {
  MAX_PARTS = 8,                       // separately summed parts, max
  PRODUCT_MAX_PART_SUMS = 128 * 1024,  // elements of the parts' sums, max
  PRODUCT_MIN_CUT_CHANNELS = 8,        // channels of a cut, min
  PRODUCT_MIN_CUT_RESULTS = 32,        // results of a cut, min; channels_last channels, too
  PRODUCT_MAX_NARROW_RESULTS = 128     // results of a group, max, to pack their gradients
};

// ---- units of work

enum {
  UNITS_PER_THREAD = 4,                // units per thread, min, if there are cuts
  SMALL_WORK = 100 * 1000,             // multiplications, max, on the calling thread
  PRODUCT_MIN_UNIT_COLUMNS = 128,      // columns of a unit, min
  PRODUCT_MAX_IN_PLACE_COLUMNS = 512,  // columns of a unit, max, if the source is used in place
  PRODUCT_MIN_COPIED_CUT = 128,        // results of a cut, min, if each cut copies the source
  PRODUCT_SMALL_WEIGHTS = 16 * 1024,   // weights, max, for many bands of an image
  PRODUCT_SMALL_WEIGHT_BANDS = 32,     // bands of all images in that case
  PRODUCT_CACHED_WEIGHTS = 192 * 1024  // weights of a cut, max: 768 KB, for L2
};
// Elements or multiplications per thread, min.
enum {
  PRODUCT_WEIGHT_GRAIN = 16 * 1024,  // weights transposed or added
  FEW_GRAIN = 16 * 1024,             // elements unfolded or added
  DEPTHWISE_GRAIN = 64 * 1024,       // multiplications
  WINOGRAD_GRAIN = 256               // blocks of weights transformed
};
// Depthwise.
enum {
  DEPTHWISE_MIN_BAND_ROWS = 32,             // rows of a band, min
  DEPTHWISE_MIN_BAND_ELEMENTS = 16 * 1024,  // elements of a band, min
  PLANES_BAND_ELEMENTS = 8 * 1024,          // elements of a band's source planes: 32 KB, for L1
  PLANES_MIN_UNITS = 32,                    // units of the weight gradient, min
  PLANES_UNIT_ELEMENTS = 1024               // elements of an image per unit: the next one is far
};
// Winograd.
enum {
  WINOGRAD_UNIT_BYTES = 1 << 20,          // bytes multiplied by a unit, for L2
  WINOGRAD_MIN_UNIT_TILES = 16,           // 2x2 tiles of a unit, min
  WINOGRAD_MIN_SHARED_FACTORS = 2 << 20,  // bytes of transformed weights, min, to divide results
  WINOGRAD_MAX_SHARED_BYTES = 32 << 20,   // bytes of shared transformed sources, max
  WINOGRAD_SHARED_BYTES = 16 << 20,       // the same at a time, weight gradient
  WINOGRAD_MAX_PART_SUMS = 1024 * 1024,   // elements of the parts' sums, max
  WINOGRAD_MIN_PART_TILES = 128,          // 2x2 tiles of a part's unit, min
  WINOGRAD_MIN_CUT_RESULTS = 32           // results of a cut, min
};
