// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling: against sums written out, for small and large images; texts.
#include "kernels_help.h"

typedef struct geometry {
  int64_t n, c, h, w, oc, k, stride, padding, dilation, groups;
} geometry;

// One element of the convolution as a sum.
static double sum_at(const geometry *g, const float *x, const float *w, int64_t n, int64_t o,
                     int64_t oy, int64_t ox) {
  int64_t cg = g->c / g->groups, first = o / (g->oc / g->groups) * cg;
  double sum = 0;
  for (int64_t c = 0; c < cg; c++)
    for (int64_t ky = 0; ky < g->k; ky++)
      for (int64_t kx = 0; kx < g->k; kx++) {
        int64_t y = oy * g->stride - g->padding + ky * g->dilation;
        int64_t z = ox * g->stride - g->padding + kx * g->dilation;
        if (y < 0 || y >= g->h || z < 0 || z >= g->w) continue;
        sum += (double)x[((n * g->c + first + c) * g->h + y) * g->w + z] *
               w[((o * cg + c) * g->k + ky) * g->k + kx];
      }
  return sum;
}
static void check_conv(geometry g) {
  PX_SCOPED(px_tensor) x = pattern(PX_FLOAT32, S(g.n, g.c, g.h, g.w));
  PX_SCOPED(px_tensor) w = pattern(PX_FLOAT32, S(g.oc, g.c / g.groups, g.k, g.k));
  PX_SCOPED(px_tensor) y = NULL;
  OK(px_conv2d(&y, x, w, NULL, &g.stride, 1, &g.padding, 1, &g.dilation, 1, g.groups));
  const float *at = px_tensor_data(y), *xs = px_tensor_data(x), *ws = px_tensor_data(w);
  for (int64_t n = 0; n < g.n; n++)
    for (int64_t o = 0; o < g.oc; o++)
      for (int64_t oy = 0; oy < px_tensor_size(y, 2); oy++)
        for (int64_t ox = 0; ox < px_tensor_size(y, 3); ox++)
          CHECK_NEAR(*at++, sum_at(&g, xs, ws, n, o, oy, ox), 1e-3);
}
PX_TEST(small_images_in_batches) { check_conv((geometry){37, 3, 8, 8, 5, 3, 1, 1, 1, 1}); }
PX_TEST(images_of_a_few_pixels) { check_conv((geometry){50, 4, 3, 3, 6, 3, 1, 1, 1, 1}); }
PX_TEST(large_images_in_bands) { check_conv((geometry){1, 3, 70, 90, 4, 5, 1, 2, 1, 1}); }
PX_TEST(strides_dilation_groups) { check_conv((geometry){3, 4, 11, 13, 6, 3, 2, 2, 2, 2}); }
PX_TEST(single_pixels) { check_conv((geometry){5, 7, 1, 1, 3, 1, 1, 0, 1, 1}); }

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
PX_TEST(maxima_and_their_places) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 1, 2, 4), VALUES(1, 5, 2, 0, 3, 4, 9, 8));
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  OK(px_max_pool2d_with_indices(&y, &where, x, SIZES(2), 1, NULL, 0, SIZES(0), 1, SIZES(1), 1,
                                false));
  ELEMENTS(y, 0, 5, 9);
  ELEMENTS(where, 0, 1, 6);
}
PX_TEST(means_over_windows) {
  PX_SCOPED(px_tensor) x = made(PX_FLOAT32, S(1, 1, 2, 4), VALUES(1, 5, 2, 0, 3, 4, 9, 8));
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  OK(px_avg_pool2d(&y, x, SIZES(2), 1, NULL, 0, SIZES(0), 1, false, true, NULL));
  ELEMENTS(y, 1e-6, 3.25, 4.75);
  OK(px_adaptive_avg_pool2d(&whole, x, SIZES(1), 1));
  ELEMENTS(whole, 1e-6, 4);
}
PX_TEST(what_does_not_fit_is_refused) {
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
}
