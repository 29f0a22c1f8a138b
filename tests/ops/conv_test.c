// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling against explicit sums, for small and large images; error texts.
#include "kernels_help.h"

typedef struct geometry {
  int64_t n, c, h, w, oc, kernel[2], stride[2], padding[2], dilation[2], groups;
} geometry;
static bool image_last, weight_last;  // operands of a test in channels_last
// Switches NNPACK off, for tests of the direct methods.
static void disable_nnpack(void) { px_setting_set(PX_SETTING_NNPACK_ENABLED, 0); }

// ---- the reference: sums over all overlapping elements, in double

typedef struct sums {
  const geometry *g;
  int64_t oh, ow;
  double *y, *gx, *gw;  // results, and gradients of image and weight
  double *x, *w, *dy;   // image, weight, and the gradient of the results
} sums;
static double number(const px_tensor *t, int64_t i) {
  px_dtype dtype = px_tensor_dtype(t);
  const char *at = px_tensor_data((px_tensor *)t);
  return px_scalar_float(px_scalar_load(dtype, at + (size_t)i * px_dtype_size(dtype)));
}
// Adds one output pixel of one output channel.
static void add_pixel(sums *s, int64_t n, int64_t o, int64_t oy, int64_t ox) {
  const geometry *g = s->g;
  int64_t cg = g->c / g->groups, first = o / (g->oc / g->groups) * cg;
  int64_t out = ((n * g->oc + o) * s->oh + oy) * s->ow + ox;
  for (int64_t c = 0; c < cg; c++)
    for (int64_t k = 0; k < g->kernel[0] * g->kernel[1]; k++) {
      int64_t y = oy * g->stride[0] - g->padding[0] + k / g->kernel[1] * g->dilation[0];
      int64_t x = ox * g->stride[1] - g->padding[1] + k % g->kernel[1] * g->dilation[1];
      if (y < 0 || y >= g->h || x < 0 || x >= g->w) continue;
      int64_t at = ((n * g->c + first + c) * g->h + y) * g->w + x;
      int64_t tap = (o * cg + c) * g->kernel[0] * g->kernel[1] + k;
      s->y[out] += s->x[at] * s->w[tap];
      s->gx[at] += s->dy[out] * s->w[tap];
      s->gw[tap] += s->dy[out] * s->x[at];
    }
}
static void add_all(sums *s) {
  for (int64_t n = 0; n < s->g->n; n++)
    for (int64_t o = 0; o < s->g->oc; o++)
      for (int64_t y = 0; y < s->oh; y++)
        for (int64_t x = 0; x < s->ow; x++) add_pixel(s, n, o, y, x);
}

// ---- comparisons

static double *zeros(const px_tensor *t) {
  double *all = calloc((size_t)px_tensor_numel(t) + 1, sizeof *all);
  CHECK(all);
  return all;
}
static px_tensor *row_major(const px_tensor *t) {
  px_tensor *plain = NULL;
  OK(px_contiguous_in(&plain, t, "contiguous_format"));
  return plain;
}
static double *numbers(const px_tensor *given) {
  PX_SCOPED(px_tensor) t = row_major(given);
  double *all = zeros(t);
  for (int64_t i = 0; i < px_tensor_numel(t); i++) all[i] = number(t, i);
  return all;
}
static void check_close(const px_tensor *given, const double *wanted, const char *what) {
  PX_SCOPED(px_tensor) t = row_major(given);
  double tolerance = px_tensor_dtype(t) == PX_FLOAT64 ? 1e-11 : 1e-3;
  double rounding = px_tensor_dtype(t) == PX_BFLOAT16 ? 0x1p-8 : tolerance / 100;
  for (int64_t i = 0; i < px_tensor_numel(t); i++) {
    double x = number(t, i), bound = tolerance + rounding * fabs(wanted[i]);
    if (fabs(x - wanted[i]) <= bound || x == wanted[i] || (x != x && wanted[i] != wanted[i]))
      continue;
    fprintf(stderr, "%s: element %lld is %.9g, not %.9g\n", what, (long long)i, x, wanted[i]);
    exit(1);
  }
}
static px_tensor *leaf(px_dtype dtype, double scale, int ndim, const int64_t *sizes) {
  PX_SCOPED(px_tensor) whole = pattern(dtype, ndim, sizes);
  px_tensor *t = NULL;
  OK(px_mul_scalar(&t, whole, px_float(scale)));
  OK(px_tensor_set_requires_grad(t, true));
  return t;
}
static void to_channels_last(px_tensor **t) {
  px_tensor *last = NULL;
  OK(px_contiguous_in(&last, *t, "channels_last"));
  px_release(*t);
  *t = last;
}
static void leaf_to_channels_last(px_tensor **leaf) {
  OK(px_tensor_set_requires_grad(*leaf, false));
  to_channels_last(leaf);
  OK(px_tensor_set_requires_grad(*leaf, true));
}
// Computes results and gradients. `first`, unless 0, replaces the first element of the image. Sums
// of the pattern are exact unless it is scaled.
static void convolve(const geometry *g, px_dtype dtype, double scale, double first,
                     px_tensor *all[4]) {
  all[0] = leaf(dtype, scale, S(g->n, g->c, g->h, g->w));
  all[1] = leaf(dtype, scale, S(g->oc, g->c / g->groups, g->kernel[0], g->kernel[1]));
  if (first != 0) px_scalar_store(px_float(first), dtype, px_tensor_data(all[0]));
  if (image_last) leaf_to_channels_last(&all[0]);
  if (weight_last) leaf_to_channels_last(&all[1]);
  OK(px_conv2d(&all[2], all[0], all[1], NULL, g->stride, 2, g->padding, 2, g->dilation, 2,
               g->groups));
  all[3] = pattern(dtype, 4, px_tensor_sizes(all[2]));
  if (image_last) to_channels_last(&all[3]);
  OK(px_backward(1, &all[2], &all[3], false, false));
}
static void check_with(geometry g, px_dtype dtype, double first) {
  px_tensor *all[4] = {NULL};
  convolve(&g, dtype, 1, first, all);
  sums s = {.g = &g, .x = numbers(all[0]), .w = numbers(all[1]), .dy = numbers(all[3])};
  s.oh = px_tensor_size(all[2], 2), s.ow = px_tensor_size(all[2], 3);
  s.y = zeros(all[2]), s.gx = zeros(all[0]), s.gw = zeros(all[1]);
  add_all(&s);
  check_close(all[2], s.y, "results");
  check_close(px_tensor_grad(all[0]), s.gx, "gradient of the image");
  check_close(px_tensor_grad(all[1]), s.gw, "gradient of the weight");
  free(s.x), free(s.w), free(s.dy);
  free(s.y), free(s.gx), free(s.gw);
  for (int i = 0; i < 4; i++) px_release(all[i]);
}
static void check_conv(geometry g) {
  check_with(g, PX_FLOAT32, 0);
  check_with(g, PX_FLOAT64, 0);
  check_with(g, PX_BFLOAT16, 0);
}

// ---- shapes: batch, channels, height, width, output channels, kernel, stride, padding, dilation

PX_TEST(small_images_in_batches) {
  check_conv((geometry){37, 3, 8, 8, 5, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
}
PX_TEST(images_of_a_few_pixels) {
  check_conv((geometry){50, 4, 3, 3, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){3, 4, 3, 2, 40, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
}
PX_TEST(large_images_in_bands) {
  check_conv((geometry){1, 3, 70, 90, 4, {5, 5}, {1, 1}, {2, 2}, {1, 1}, 1});
  check_conv((geometry){2, 70, 45, 61, 19, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){1, 40, 70, 61, 33, {3, 2}, {2, 3}, {0, 1}, {1, 2}, 1});
}
PX_TEST(strides_dilation_groups) {
  check_conv((geometry){3, 4, 11, 13, 6, {3, 3}, {2, 2}, {2, 2}, {2, 2}, 2});
  check_conv((geometry){2, 6, 17, 12, 10, {4, 3}, {3, 2}, {1, 0}, {2, 3}, 2});
}
PX_TEST(single_pixels) { check_conv((geometry){5, 7, 1, 1, 3, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}); }
PX_TEST(pointwise_kernels) {
  check_conv((geometry){2, 20, 19, 13, 21, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  check_conv((geometry){2, 5, 19, 13, 3, {1, 1}, {2, 3}, {0, 0}, {1, 1}, 1});
  check_conv((geometry){2, 5, 12, 13, 3, {1, 1}, {1, 1}, {2, 1}, {1, 1}, 1});
}
PX_TEST(non_overlapping_patches) {
  check_conv((geometry){2, 3, 48, 40, 18, {8, 8}, {8, 8}, {0, 0}, {1, 1}, 1});
}
PX_TEST(depthwise) {
  check_conv((geometry){2, 7, 29, 31, 7, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 7});
  check_conv((geometry){2, 5, 23, 130, 5, {5, 3}, {1, 1}, {2, 0}, {1, 1}, 5});
  check_conv((geometry){3, 5, 23, 19, 5, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 5});
  check_conv((geometry){1, 6, 20, 22, 6, {3, 3}, {1, 1}, {3, 3}, {3, 3}, 6});
  check_conv((geometry){9, 5, 7, 7, 5, {7, 7}, {1, 1}, {3, 3}, {1, 1}, 5});
}
// Overlapping strips, rows shorter than a vector, bands, and all amounts of padding.
PX_TEST(depthwise_in_column_strips) {
  for (int64_t size = 3; size <= 7; size += 2) {
    for (int64_t w = size; w < 40; w++)
      check_with((geometry){1, 2, 9, w, 2, {size, size}, {1, 1}, {1, 1}, {1, 1}, 2}, PX_FLOAT32, 0);
    for (int64_t pad = 0; pad <= size; pad++)
      check_with((geometry){2, 3, 70, 21, 3, {size, size}, {1, 1}, {pad, size - pad}, {1, 1}, 3},
                 PX_FLOAT32, 0);
    check_with((geometry){1, 2, 20, 40, 2, {size, size}, {1, 1}, {1, 1}, {1, 1}, 2}, PX_FLOAT32,
               INFINITY);
    check_with((geometry){1, 1, 4, 600, 1, {size, size}, {1, 1}, {2, 2}, {1, 1}, 1}, PX_FLOAT32, 0);
  }
}
// Strides and dilations in each dimension, unused remainders, all amounts of padding, kernels
// larger than the image, bands, and few channels with images summed in parts.
PX_TEST(depthwise_of_whole_planes) {
  static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33};
  for (int64_t i = 0; i < 12 * 4 * 4; i++) {
    int64_t w = sizes[i % 12], rows = 1 + i / 12 % 4, columns = 1 + i / 48;
    for (int64_t k = 0; k < 12; k++) {
      int64_t dilation_step = 1 + k / 8, steps[2] = {1 + k % 2, 1 + k / 2 % 2};
      int64_t bound = k % 3 ? dilation_step * (columns - 1) : 0,
              pad = k % 3 == 2 ? bound : bound / 2;
      if (w + 2 * pad < dilation_step * (columns - 1) + 1) continue;
      check_with((geometry){2,
                            3,
                            6 + i % 5 + 2 * rows,
                            w,
                            3,
                            {rows, columns},
                            {steps[0], steps[1]},
                            {k % 4, pad},
                            {dilation_step, dilation_step},
                            3},
                 PX_FLOAT32, k == 5 ? INFINITY : 0);
    }
  }
  check_conv((geometry){9, 5, 7, 7, 5, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 5});
  check_conv((geometry){3, 2, 130, 150, 2, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 2});
  check_conv((geometry){2, 2, 160, 130, 2, {5, 5}, {2, 1}, {3, 2}, {1, 2}, 2});
  check_with((geometry){1, 2, 160, 130, 2, {7, 7}, {1, 1}, {3, 3}, {1, 1}, 2}, PX_FLOAT32,
             INFINITY);
  check_with((geometry){1, 2, 1, 5000, 2, {1, 9}, {1, 2}, {0, 4}, {1, 1}, 2}, PX_FLOAT32, 0);
  check_with((geometry){1, 2, 1, 70000, 2, {1, 5}, {1, 1}, {0, 2}, {1, 1}, 2}, PX_FLOAT32, 0);
}
PX_TEST(few_pixels_and_many_channels) {
  for (int k = 0; k < 4; k++) {
    image_last = k & 1, weight_last = k & 2;
    check_conv((geometry){2, 40, 4, 4, 160, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    check_conv((geometry){3, 30, 5, 6, 150, {3, 2}, {2, 2}, {2, 0}, {2, 1}, 1});
    check_conv((geometry){1, 70, 7, 7, 130, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 1});
    check_conv((geometry){2, 80, 3, 3, 90, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  }
}
PX_TEST(many_pixels_in_channels_last) {
  image_last = weight_last = true;
  check_conv((geometry){2, 20, 19, 23, 30, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){1, 17, 31, 22, 9, {2, 3}, {2, 3}, {1, 0}, {3, 2}, 1});
  check_conv((geometry){3, 70, 11, 13, 21, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
}
PX_TEST(channels_last_without_packing) {
  disable_nnpack();
  image_last = true;
  for (int k = 0; k < 2; k++) {
    weight_last = k;
    check_conv((geometry){3, 32, 13, 17, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    check_conv((geometry){2, 16, 31, 45, 31, {3, 2}, {2, 3}, {2, 0}, {1, 2}, 1});
    check_conv(
        (geometry){30, 32, 7, 7, 64, {3, 1}, {3, 1}, {1, 0}, {2, 1}, 1});  // several images at once
    check_conv((geometry){4, 96, 24, 10, 64, {4, 3}, {3, 2}, {0, 2}, {2, 2}, 2});
    check_conv((geometry){1, 3, 70, 61, 32, {7, 7}, {2, 2}, {3, 3}, {1, 1}, 1});
    check_conv((geometry){2, 32, 40, 37, 16, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
    check_conv((geometry){2, 32, 30, 30, 16, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1});  // no padding
    check_conv((geometry){1, 64, 40, 50, 15, {3, 3}, {1, 1}, {2, 5}, {1, 1}, 1});  // in bands
  }
}
// Products large enough that a GEMM row is an output pixel; the result is transposed afterwards.
PX_TEST(large_products_with_pixels_as_rows) {
  disable_nnpack();
  for (int k = 0; k < 2; k++) {
    weight_last = k;
    check_with((geometry){5, 64, 13, 17, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
    check_conv((geometry){
        6, 64, 7, 7, 64 - k, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});  // several images at once
    check_with((geometry){3, 96, 31, 15, 256, {3, 2}, {2, 3}, {2, 0}, {1, 2}, 2}, PX_FLOAT32, 0);
    check_with((geometry){1, 16, 30, 61, 94, {7, 7}, {2, 2}, {3, 3}, {1, 1}, 1}, PX_FLOAT32, 0);
    check_with((geometry){3, 79, 31, 15, 256, {3, 3}, {2, 1}, {2, 0}, {1, 2}, 1}, PX_FLOAT64, 0);
    check_with((geometry){6, 256, 5, 9, 128, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32, 0);
    check_with((geometry){2, 256, 25, 27, 128, {1, 1}, {2, 2}, {0, 0}, {1, 1}, 1}, PX_FLOAT64, 0);
  }
}
// Output pixels with a vector tail, results with partial tiles, sums of several k blocks, bands of
// few pixels, and input pixels without a result.
PX_TEST(row_major_without_packing) {
  disable_nnpack();
  check_conv((geometry){2, 20, 19, 23, 13, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  check_conv((geometry){3, 48, 12, 11, 36, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 3});
  for (int64_t w = 128; w < 146; w++)
    check_with((geometry){2, 16, 1, w, 12, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){1, 16, 103, 5, 12, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){1, 300, 16, 16, 32, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){1, 72, 20, 40, 19, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){1, 24, 123, 9, 14, {5, 2}, {1, 1}, {2, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){2, 30, 33, 37, 26, {3, 3}, {1, 1}, {2, 2}, {2, 2}, 2}, PX_FLOAT32, 0);
  check_with((geometry){2, 5, 41, 39, 20, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){1, 16, 12, 12, 16, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32,
             INFINITY);
}
// A unit has several images with a remainder, or each image is tiled by itself.
PX_TEST(small_images_1x1_without_packing) {
  for (int k = 0; k < 2; k++) {
    weight_last = k;
    check_conv((geometry){9, 256, 7, 7, 130, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
    check_with((geometry){7, 512, 6, 7, 128, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 2}, PX_FLOAT32, 0);
    check_with((geometry){17, 256, 4, 4, 96, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT64, 0);
    check_conv((geometry){3, 40, 8, 8, 30, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
    check_conv((geometry){1, 300, 6, 8, 20, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
    check_with((geometry){2, 96, 7, 9, 60, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 3}, PX_FLOAT32, 0);
  }
  weight_last = false;
  check_with((geometry){8, 256, 7, 7, 96, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32, INFINITY);
  check_with((geometry){1, 64, 7, 7, 32, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32, INFINITY);
}
// More terms than a GEMM block, so that partial sums are accumulated.
PX_TEST(channels_last_rows_of_each_length) {
  disable_nnpack();
  image_last = true;
  for (int64_t w = 1; w < 18; w++)
    check_conv((geometry){2, 80, 5, w, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
}
// The terms of a tap leave partial tiles.
PX_TEST(gradients_of_weights_of_many_channels_last_pixels) {
  image_last = true;
  for (int k = 0; k < 2; k++) {
    weight_last = k;
    check_conv((geometry){4, 3, 15, 19, 80, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    check_conv((geometry){4, 19, 15, 19, 80, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    check_conv((geometry){2, 64, 25, 19, 160, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 2});
    check_conv((geometry){3, 80, 25, 19, 45, {1, 1}, {2, 1}, {0, 0}, {1, 1}, 1});
  }
}
PX_TEST(an_infinite_channels_last_pixel_reaches_only_its_windows) {
  disable_nnpack();
  image_last = true;
  check_with((geometry){1, 16, 30, 30, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32,
             INFINITY);
}
PX_TEST(channels_last_weights) {
  weight_last = true;
  check_conv((geometry){2, 70, 9, 8, 20, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){1, 66, 9, 11, 18, {3, 2}, {2, 2}, {1, 0}, {1, 1}, 1});
  check_conv((geometry){2, 72, 8, 9, 40, {3, 3}, {2, 1}, {1, 1}, {1, 2}, 2});
}
static void compare_thread_counts(px_dtype dtype, geometry g) {
  px_tensor *alone[4] = {NULL};
  OK(px_set_num_threads(1));
  convolve(&g, dtype, 1 / 3.0, 0, alone);
  for (int k = 0; k < 3; k++) {
    px_tensor *together[4] = {NULL};
    OK(px_set_num_threads(SIZES(2, 7, 16)[k]));
    convolve(&g, dtype, 1 / 3.0, 0, together);
    for (int i = 0; i < 3; i++) {
      px_tensor *a = i == 2 ? alone[2] : px_tensor_grad(alone[i]);
      px_tensor *b = i == 2 ? together[2] : px_tensor_grad(together[i]);
      size_t bytes = (size_t)px_tensor_numel(a) * px_dtype_size(dtype);
      CHECK(!memcmp(px_tensor_data(a), px_tensor_data(b), bytes));
    }
    for (int i = 0; i < 4; i++) px_release(together[i]);
  }
  for (int i = 0; i < 4; i++) px_release(alone[i]);
}
// Winograd: tiles beyond the image border, units with tile rows of several images, partial output
// blocks, units and parts in several pieces, and padding that skips rows or exceeds one.
PX_TEST(winograd_3x3) {
  for (int k = 0; k < 4; k++) {
    image_last = k & 1, weight_last = k & 2;
    check_with((geometry){3, 32, 13, 17, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
    check_with((geometry){2, 48, 30, 31, 112, {3, 3}, {1, 1}, {0, 2}, {1, 1}, 1}, PX_FLOAT32, 0);
    check_with((geometry){20, 64, 5, 4, 80, {3, 3}, {1, 1}, {1, 0}, {1, 1}, 1}, PX_FLOAT32, 0);
    check_with((geometry){1, 32, 3, 139, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_BFLOAT16, 0);
  }
  check_with((geometry){2, 160, 23, 20, 32, {3, 3}, {1, 1}, {2, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){1, 32, 61, 70, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
}
PX_TEST(winograd_an_infinite_pixel_reaches_only_its_windows) {
  for (int k = 0; k < 2; k++) {
    image_last = k;
    check_with((geometry){1, 32, 20, 20, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32,
               INFINITY);
  }
}
PX_TEST(winograd_does_not_depend_on_the_number_of_threads) {
  for (int last = 0; last < 2; last++) {
    image_last = weight_last = last;
    compare_thread_counts(PX_FLOAT32,
                          (geometry){3, 96, 15, 13, 144, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    compare_thread_counts(PX_FLOAT32,
                          (geometry){2, 32, 40, 61, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    compare_thread_counts(PX_FLOAT32,
                          (geometry){2, 160, 14, 14, 192, {3, 3}, {1, 1}, {0, 1}, {1, 1}, 1});
  }
}
// Winograd sums are shorter and in another order, so the setting distinguishes the methods.
PX_TEST(winograd_can_be_switched_off) {
  geometry g = {2, 64, 20, 20, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1};
  px_tensor *tiles[4] = {NULL}, *plain[4] = {NULL};
  if (strcmp(px_cpu_capability(), "AVX512")) SKIP("there are no kernels of AVX-512");
  convolve(&g, PX_FLOAT32, 1 / 3.0, 0, tiles);
  disable_nnpack();
  convolve(&g, PX_FLOAT32, 1 / 3.0, 0, plain);
  size_t bytes = (size_t)px_tensor_numel(plain[2]) * sizeof(float);
  CHECK(memcmp(px_tensor_data(tiles[2]), px_tensor_data(plain[2]), bytes));
  CHECK(px_setting_get(PX_SETTING_NNPACK_ENABLED) == 0);
  for (int i = 0; i < 4; i++) px_release(tiles[i]), px_release(plain[i]);
}

static void check_bias(px_tensor *x, int64_t results, int64_t side) {
  int64_t channels = px_tensor_size(x, 1), each;
  PX_SCOPED(px_tensor) w = pattern(PX_FLOAT32, S(results, channels, side, side));
  PX_SCOPED(px_tensor) b = pattern(PX_FLOAT32, S(results));
  px_tensor *y[2] = {NULL};
  for (int k = 0; k < 2; k++)
    OK(px_conv2d(&y[k], x, w, k ? b : NULL, SIZES(1), 1, SIZES(0), 1, SIZES(1), 1, 1));
  double *wanted = numbers(y[0]);
  each = px_tensor_size(y[0], 2) * px_tensor_size(y[0], 3);
  for (int64_t i = 0; i < px_tensor_numel(y[0]); i++) wanted[i] += number(b, i / each % results);
  check_close(y[1], wanted, "results with a bias");
  free(wanted), px_release(y[0]), px_release(y[1]);
}
PX_TEST(winograd_adds_the_bias) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(2, 32, 15, 14));
  check_bias(x, 48, 3);
}
PX_TEST(few_pixels_add_the_bias) {
  for (int last = 0; last < 2; last++) {
    PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(2, 80, 2, 3));
    if (last) leaf_to_channels_last(&x);
    check_bias(x, 70, 1);
  }
}
PX_TEST(unpacked_weights_add_the_bias) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(2, 140, 11, 13));
  PX_SCOPED(px_tensor) small = pattern(PX_FLOAT32, S(1, 70, 7, 7));
  check_bias(x, 21, 1);
  check_bias(small, 30, 1);
}
PX_TEST(a_1x1_kernel_reads_trailing_padding) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(2, 64, 2, 3));
  PX_SCOPED(px_tensor) w = pattern(PX_FLOAT32, S(5, 64, 1, 1));
  px_tensor *y[2] = {NULL};
  for (int last = 0; last < 2; last++) {
    if (last) leaf_to_channels_last(&x), leaf_to_channels_last(&w);
    OK(px_conv2d(&y[last], x, w, NULL, SIZES(1), 1, SIZES(0, 0, 2, 1), 4, SIZES(1), 1, 1));
  }
  double *wanted = numbers(y[0]);
  CHECK(wanted[3] == 0 && wanted[4 * 4 - 1] == 0);
  check_close(y[1], wanted, "results with zeros behind");
  free(wanted), px_release(y[0]), px_release(y[1]);
}
PX_TEST(groups_of_each_channel_count) {
  for (int64_t out = 1; out < 19; out++)
    check_conv((geometry){1, 4, 13, 21, 2 * out, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2});
  check_conv((geometry){2, 3, 16, 17, 12, {3, 3}, {2, 1}, {1, 1}, {1, 1}, 3});
  check_conv((geometry){2, 96, 12, 12, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 3});
}
PX_TEST(rows_of_each_length) {
  for (int64_t w = 1; w < 40; w++)
    check_conv((geometry){1, 2, 6, w, 2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2});
}
PX_TEST(kernels_far_beyond_the_image) {
  check_conv((geometry){1, 2, 5, 6, 2, {3, 3}, {1, 1}, {20, 17}, {20, 15}, 1});
  check_conv((geometry){1, 2, 9, 9, 18, {2, 2}, {5, 5}, {3, 4}, {1, 1}, 1});
}
PX_TEST(gradients_of_weights_of_few_output_channels) {
  check_conv((geometry){3, 6, 13, 17, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){2, 20, 70, 90, 32, {3, 2}, {1, 1}, {2, 0}, {1, 3}, 1});  // in bands
  check_conv(
      (geometry){13, 9, 6, 5, 30, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});  // several images at once
  check_conv((geometry){2, 8, 23, 19, 64, {3, 5}, {2, 3}, {1, 2}, {2, 1}, 2});
  check_conv((geometry){2, 130, 9, 11, 47, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
}
// Values between rows that belong to no result must not reach the sums of others.
PX_TEST(an_infinite_pixel_reaches_only_its_windows) {
  check_with((geometry){1, 4, 20, 20, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32, INFINITY);
  check_with((geometry){1, 3, 20, 20, 3, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 3}, PX_FLOAT32, INFINITY);
  check_with((geometry){1, 3, 20, 20, 40, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1}, PX_FLOAT32, INFINITY);
}

PX_TEST(convolutions_do_not_depend_on_the_number_of_threads) {
  disable_nnpack();
  compare_thread_counts(PX_FLOAT32,
                        (geometry){2, 20, 24, 24, 32, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){1, 32, 24, 24, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){5, 16, 30, 30, 24, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){2, 150, 30, 31, 40, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){3, 24, 30, 30, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 24});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){2, 24, 90, 50, 24, {5, 5}, {1, 1}, {2, 2}, {1, 1}, 24});
  compare_thread_counts(PX_FLOAT32, (geometry){9, 5, 30, 31, 5, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 5});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){1, 3, 130, 140, 40, {3, 3}, {2, 1}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){1, 64, 44, 41, 64, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_BFLOAT16,
                        (geometry){5, 16, 30, 30, 24, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_BFLOAT16,
                        (geometry){2, 160, 4, 4, 96, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
}

// Splits of this reduction alone would be small products.
PX_TEST(gradients_of_1x1_weights_do_not_depend_on_the_number_of_threads) {
  compare_thread_counts(PX_FLOAT64,
                        (geometry){8, 150, 14, 14, 160, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
}
PX_TEST(large_products_of_pixels_do_not_depend_on_the_number_of_threads) {
  disable_nnpack();
  compare_thread_counts(PX_FLOAT32, (geometry){9, 64, 7, 7, 96, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){6, 192, 7, 7, 200, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT64,
                        (geometry){2, 64, 33, 30, 64, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){9, 256, 7, 7, 520, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT64,
                        (geometry){7, 256, 7, 7, 130, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32,
                        (geometry){1, 96, 7, 7, 300, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  compare_thread_counts(PX_FLOAT32, (geometry){5, 64, 8, 8, 96, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
}
PX_TEST(channels_last_does_not_depend_on_the_number_of_threads) {
  disable_nnpack();
  image_last = true;
  for (int last = 0; last < 2; last++) {
    weight_last = last;
    compare_thread_counts(PX_FLOAT32,
                          (geometry){5, 16, 30, 30, 32, {3, 3}, {2, 1}, {1, 1}, {1, 1}, 1});
    compare_thread_counts(PX_FLOAT64,
                          (geometry){1, 64, 33, 30, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    compare_thread_counts(PX_FLOAT32,
                          (geometry){3, 160, 9, 17, 224, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
    compare_thread_counts(PX_FLOAT32,
                          (geometry){6, 96, 15, 13, 96, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  }
}
PX_TEST(convolutions_of_few_pixels_do_not_depend_on_the_number_of_threads) {
  for (int last = 0; last < 2; last++) {
    image_last = weight_last = last;
    compare_thread_counts(PX_FLOAT32,
                          (geometry){2, 96, 4, 4, 160, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
    compare_thread_counts(PX_BFLOAT16,
                          (geometry){2, 160, 4, 4, 96, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  }
}

static void check_level(px_cpu_level level, const char *name) {
  setenv("PHLOX_CPU", name, 1);
  if (px_cpu_level_used() != level) SKIP("the processor does not have it");
  check_with((geometry){2, 32, 13, 12, 48, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1}, PX_FLOAT32, 0);
  check_with((geometry){2, 5, 23, 37, 5, {5, 5}, {2, 2}, {2, 2}, {1, 1}, 5}, PX_FLOAT32, 0);
  check_with((geometry){2, 5, 23, 37, 5, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 5}, PX_FLOAT32, 0);
  disable_nnpack();
  check_conv((geometry){3, 20, 9, 11, 33, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){2, 40, 13, 13, 48, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 2});
  check_conv((geometry){1, 48, 7, 7, 70, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  check_conv((geometry){2, 3, 19, 37, 3, {7, 7}, {1, 1}, {3, 3}, {1, 1}, 3});
  check_conv((geometry){1, 40, 12, 17, 25, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1});
  image_last = true;
  check_conv((geometry){2, 32, 23, 19, 48, {3, 3}, {2, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){2, 70, 4, 4, 150, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
  check_conv((geometry){1, 80, 9, 29, 80, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1});
}
PX_TEST(convolutions_at_the_base_level) { check_level(PX_CPU_BASE, "base"); }
PX_TEST(convolutions_of_avx2) { check_level(PX_CPU_AVX2, "avx2"); }
PX_TEST(convolutions_of_avx512) { check_level(PX_CPU_AVX512, "avx512"); }
PX_TEST(convolutions_of_avx512_bf16) { check_level(PX_CPU_AVX512_BF16, "avx512_bf16"); }
PX_TEST(convolutions_of_amx) { check_level(PX_CPU_AMX, "amx"); }

PX_TEST(gradients_reach_input_weight_and_bias) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 1, 2, 2), VALUES(1, 2, 3, 4));
  PX_SCOPED(px_tensor) w = made(PX_FLOAT32, S(1, 1, 2, 2), VALUES(1, 10, 100, 1000));
  PX_SCOPED(px_tensor) b = made(PX_FLOAT32, S(1), VALUES(0));
  px_tensor *all[3] = {x, w, b}, *y = NULL;
  for (int i = 0; i < 3; i++) OK(px_tensor_set_requires_grad(all[i], true));
  OK(px_conv2d(&y, x, w, b, SIZES(1), 1, SIZES(0), 1, SIZES(1), 1, 1));
  ELEMENTS(y, 0, 4321);
  CHECK_TEXT(node_name(y), "ConvolutionBackward0");
  PX_SCOPED(px_tensor) one = made(PX_FLOAT32, S(1, 1, 1, 1), VALUES(1));
  OK(px_backward(1, &y, &one, false, false));
  ELEMENTS(px_tensor_grad(x), 0, 1, 10, 100, 1000);
  ELEMENTS(px_tensor_grad(w), 0, 1, 2, 3, 4);
  ELEMENTS(px_tensor_grad(b), 0, 1);
  px_release(y);
}
PX_TEST(max_pooling_with_indices) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 1, 2, 4), VALUES(1, 5, 2, 0, 3, 4, 9, 8));
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_max_pool2d_with_indices(&y, &where, x, SIZES(2), 1, NULL, 0, SIZES(0), 1, SIZES(1), 1,
                                false));
  ELEMENTS(y, 0, 5, 9);
  ELEMENTS(where, 0, 1, 6);
}
// Returns the index of the first max of a window, or of the last NaN.
static int64_t index_of_max(const px_tensor *x, const geometry *g, int64_t plane, int64_t oy,
                            int64_t ox) {
  int64_t best = -1;
  for (int64_t k = 0; k < g->kernel[0] * g->kernel[1]; k++) {
    int64_t y = oy * g->stride[0] - g->padding[0] + k / g->kernel[1] * g->dilation[0];
    int64_t c = ox * g->stride[1] - g->padding[1] + k % g->kernel[1] * g->dilation[1];
    if (y < 0 || y >= g->h || c < 0 || c >= g->w) continue;
    double v = number(x, plane * g->h * g->w + y * g->w + c);
    double top = best < 0 ? -INFINITY : number(x, plane * g->h * g->w + best);
    if (best < 0 || v > top || v != v) best = y * g->w + c;
  }
  return best;
}
static void check_maxima(geometry g, px_dtype dtype) {
  PX_SCOPED(px_tensor) x = pattern(dtype, S(2, g.c, g.h, g.w));
  PX_SCOPED(px_tensor) last = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) tap = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  for (int64_t i = 5; i < px_tensor_numel(x); i += 37)
    px_scalar_store(px_float(i % 2 ? -INFINITY : NAN), dtype,
                    (char *)px_tensor_data(x) + (size_t)i * px_dtype_size(dtype));
  OK(px_contiguous_in(&last, x, image_last ? "channels_last" : "contiguous_format"));
  OK(px_max_pool2d_with_indices(&result, &tap, last, g.kernel, 2, g.stride, 2, g.padding, 2,
                                g.dilation, 2, false));
  y = row_major(result), where = row_major(tap);
  int64_t oh = px_tensor_size(y, 2), ow = px_tensor_size(y, 3);
  for (int64_t i = 0; i < px_tensor_numel(y); i++) {
    int64_t plane = i / (oh * ow);
    int64_t best = index_of_max(x, &g, plane, i / ow % oh, i % ow);
    CHECK_EQ((int64_t)number(where, i), best);
    double top = number(x, plane * g.h * g.w + best);
    CHECK(number(y, i) == top || (top != top && number(y, i) != number(y, i)));
  }
}
PX_TEST(max_pooling_of_any_stride_and_dilation) {
  for (int64_t stride = 1; stride < 4; stride++)
    for (int64_t dilation = 1; dilation < 3; dilation++)
      for (int wide = 0; wide < 2; wide++) {
        geometry g = {.c = 3, .h = 13, .w = 41, .kernel = {3, 4}, .padding = {1, 2}};
        g.stride[0] = g.stride[1] = stride, g.dilation[0] = 1, g.dilation[1] = dilation;
        check_maxima(g, wide ? PX_FLOAT64 : PX_FLOAT32);
        g.w = 9, g.padding[1] = 0;
        check_maxima(g, wide ? PX_FLOAT64 : PX_FLOAT32);
        image_last = true, g.padding[1] = 1;
        for (g.c = 1; g.c < 24; g.c += 5) check_maxima(g, wide ? PX_FLOAT64 : PX_FLOAT32);
        image_last = false;
      }
}
// Planes converted one by one, and larger ones.
PX_TEST(max_pooling_of_fp16_and_bf16) {
  const px_dtype dtypes[] = {PX_FLOAT16, PX_BFLOAT16};
  for (int k = 0; k < 4; k++) {
    geometry g = {2, 3, 11, 13, 0, {2, 3}, {2, 2}, {1, 1}, {1, 1}, 1};
    if (k & 2) g.h = 70, g.w = 90;
    check_maxima(g, dtypes[k & 1]);
    PX_SCOPED(px_tensor) x = leaf(dtypes[k & 1], 1, S(2, 3, g.h, g.w));
    PX_SCOPED(px_tensor) y = NULL;
    PX_SCOPED(px_tensor) total = NULL;
    OK(px_max_pool2d(&y, x, g.kernel, 2, SIZES(2, 3), 2, SIZES(0, 0), 2, g.dilation, 2, false));
    OK(px_sum(&total, y, NULL, 0, false, PX_DTYPE_NONE));
    OK(px_backward(1, &total, NULL, false, false));
    PX_SCOPED(px_tensor) ones = NULL;
    OK(px_sum(&ones, px_tensor_grad(x), NULL, 0, false, PX_FLOAT32));
    CHECK(element(ones, 0) ==
          (double)px_tensor_numel(y));  // each window contributes 1 to one element
  }
}
PX_TEST(average_pooling) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 1, 2, 4), VALUES(1, 5, 2, 0, 3, 4, 9, 8));
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  OK(px_avg_pool2d(&y, x, SIZES(2), 1, NULL, 0, SIZES(0), 1, false, true, NULL));
  ELEMENTS(y, 1e-6, 3.25, 4.75);
  OK(px_adaptive_avg_pool2d(&whole, x, SIZES(1), 1));
  ELEMENTS(whole, 1e-6, 4);
}
static void check_means(const geometry *g, px_dtype dtype, bool count_padding) {
  PX_SCOPED(px_tensor) x = pattern(dtype, S(2, 3, g->h, g->w));
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_avg_pool2d(&y, x, g->kernel, 2, g->stride, 2, g->padding, 2, false, count_padding, NULL));
  int64_t oh = px_tensor_size(y, 2), ow = px_tensor_size(y, 3), all = g->kernel[0] * g->kernel[1];
  double *wanted = zeros(y);
  CHECK(wanted);
  for (int64_t i = 0; i < px_tensor_numel(y); i++) {
    int64_t plane = i / (oh * ow), count = 0;
    for (int64_t k = 0; k < all; k++) {
      int64_t r = i / ow % oh * g->stride[0] - g->padding[0] + k / g->kernel[1];
      int64_t c = i % ow * g->stride[1] - g->padding[1] + k % g->kernel[1];
      if (r < 0 || r >= g->h || c < 0 || c >= g->w) continue;
      wanted[i] += number(x, plane * g->h * g->w + r * g->w + c), count++;
    }
    wanted[i] /= (double)(count_padding ? all : count);
  }
  check_close(y, wanted, "means");
  free(wanted);
}
PX_TEST(average_pooling_of_any_stride) {
  static const int64_t kernels[][2] = {{3, 4}, {1, 1}, {2, 1}, {2, 9}};
  for (int64_t stride = 1; stride < 4; stride++)
    for (int i = 0; i < 16; i++) {
      geometry g = {.h = 13, .w = i & 8 ? 41 : 11, .stride = {stride, stride}};
      memcpy(g.kernel, kernels[i % 4], sizeof g.kernel);
      for (int k = 0; k < 2; k++) g.padding[k] = i & 4 ? g.kernel[k] / 2 : 0;
      check_means(&g, PX_FLOAT32, i & 4);
      check_means(&g, PX_FLOAT64, false);
    }
}
static void check_adaptive(int64_t h, int64_t w, int64_t oh, int64_t ow) {
  PX_SCOPED(px_tensor) x = leaf(PX_FLOAT32, 1, S(3, 41, h, w));
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_adaptive_avg_pool2d(&y, x, SIZES(oh, ow), 2));
  PX_SCOPED(px_tensor) dy = pattern(PX_FLOAT32, 4, px_tensor_sizes(y));
  double *wanted = zeros(y), *spread = zeros(x);
  CHECK(wanted && spread);
  for (int64_t i = 0; i < px_tensor_numel(y); i++) {
    int64_t plane = i / (oh * ow), oy = i / ow % oh, ox = i % ow;
    int64_t y0 = oy * h / oh, y1 = ((oy + 1) * h + oh - 1) / oh;
    int64_t x0 = ox * w / ow, x1 = ((ox + 1) * w + ow - 1) / ow;
    double share = 1.0 / (double)((y1 - y0) * (x1 - x0));
    for (int64_t at = 0; at < h * w; at++) {
      if (at / w < y0 || at / w >= y1 || at % w < x0 || at % w >= x1) continue;
      wanted[i] += number(x, plane * h * w + at) * share;
      spread[plane * h * w + at] += number(dy, i) * share;
    }
  }
  OK(px_backward(1, &y, &dy, false, false));
  check_close(y, wanted, "means");
  check_close(px_tensor_grad(x), spread, "gradient of the means");
  free(wanted), free(spread);
}
PX_TEST(adaptive_average_pooling_of_many_planes) {
  check_adaptive(7, 7, 1, 1);
  check_adaptive(40, 41, 1, 1);
  check_adaptive(5, 9, 2, 3);
  check_adaptive(17, 12, 3, 1);
  check_adaptive(3, 2, 7, 5);
}
PX_TEST(mismatched_operands_are_refused) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(1, 3, 4, 4));
  PX_SCOPED(px_tensor) w = pattern(PX_FLOAT32, S(2, 2, 3, 3));
  PX_SCOPED(px_tensor) big = pattern(PX_FLOAT32, S(2, 3, 9, 9));
  PX_SCOPED(px_tensor) doubles = pattern(PX_FLOAT64, S(2, 3, 3, 3));
  px_tensor *none = NULL;
  FAILS(px_conv2d(&none, x, w, NULL, SIZES(1), 1, SIZES(0), 1, SIZES(1), 1, 1), PX_RUNTIME,
        "Given groups=1, weight of size [2, 2, 3, 3], expected input[1, 3, 4, 4] to have 2 "
        "channels, but got 3 channels instead");
  FAILS(px_conv2d(&none, x, big, NULL, SIZES(1), 1, SIZES(0), 1, SIZES(1), 1, 1), PX_RUNTIME,
        "Calculated padded input size per channel: (4 x 4). Kernel size: (9 x 9). Kernel size "
        "can't be greater than actual input size");
  FAILS(px_conv2d(&none, x, doubles, NULL, SIZES(1), 1, SIZES(0), 1, SIZES(1), 1, 1), PX_RUNTIME,
        "Input type (torch.FloatTensor) and weight type (torch.DoubleTensor) should be the same");
  FAILS(px_conv2d_mode(&none, x, w, NULL, NULL, 0, "same", SIZES(1), 1, 1), PX_RUNTIME,
        "expected stride to be a single integer value or a list of 2 values");
  FAILS(px_conv2d_mode(&none, x, w, NULL, SIZES(1), 1, "same", NULL, 0, 1), PX_RUNTIME,
        "expected dilation to be a single integer value or a list of 2 values");
}
