// SPDX-License-Identifier: Apache-2.0
// Norms and pools of channels_last tensors on a device against row-major tensors on the CPU, for
// channel counts that fill 16-byte vectors and others. (Convolutions are in conv_device_test.c.)
#include "device_help.h"
#include "hidden.h"
#include "phlox/phlox.h"

static const int64_t channels[] = {5, 8, 24, 40};
enum { CHANNELS = sizeof channels / sizeof *channels };

// A row-major pattern on the CPU, and its channels_last copy on the device.
static void sides_of(px_tensor *sides[2], px_dtype dtype, int64_t n, int64_t c, int64_t h,
                     int64_t w) {
  px_tensor *plain = pattern(dtype, S(n, c, h, w)), *last = NULL;
  OK(px_clone(&last, plain, "channels_last"));
  sides[0] = plain, sides[1] = to_device_take(last);
}
// Releases both results, which must agree. The device's is channels_last.
static void same(const char *what, px_tensor *made[2], double tolerance) {
  bool good = agrees(what, made[0], made[1], tolerance);
  bool formed =
      px_tensor_ndim(made[1]) != 4 || px_tensor_has_format(made[1], PX_FORMAT_CHANNELS_LAST);
  px_release(made[0]), px_release(made[1]);
  CHECK(good && formed);
}
static const char *format_at(int k) { return k ? "channels_last" : "contiguous_format"; }

PX_TEST(max_pooling_of_channels_last) {
  static const struct {
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil;
  } windows[] = {{{2, 2}, {2, 2}, {0, 0}, {1, 1}, false}, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
                 {{3, 3}, {1, 1}, {1, 1}, {1, 1}, false}, {{2, 2}, {3, 3}, {1, 1}, {1, 1}, true},
                 {{3, 2}, {1, 2}, {1, 1}, {1, 1}, false}, {{3, 3}, {2, 3}, {1, 0}, {2, 1}, false}};
  arrange();
  for (int i = 0; i < 6 * CHANNELS; i++)
    for (px_dtype d = PX_FLOAT16; d <= PX_FLOAT64; d++) {
      px_tensor *sides[2], *out[2] = {0}, *at[2] = {0}, *back[2] = {0};
      sides_of(sides, d, 3, channels[i % CHANNELS], 13, 10);
      const int64_t *kernel = windows[i / CHANNELS].kernel, *stride = windows[i / CHANNELS].stride;
      const int64_t *padding = windows[i / CHANNELS].padding;
      const int64_t *dilation = windows[i / CHANNELS].dilation;
      for (int k = 0; k < 2; k++) {
        OK(px_max_pool2d_with_indices(&out[k], &at[k], sides[k], kernel, 2, stride, 2, padding, 2,
                                      dilation, 2, windows[i / CHANNELS].ceil));
        OK(HIDDEN(max_pool2d_backward, (&back[k]), PX_T(out[k]), PX_T(at[k]),
                  PX_IS(px_tensor_sizes(sides[k]), 4), PX_IS(kernel, 2), PX_IS(stride, 2),
                  PX_IS(padding, 2), PX_IS(dilation, 2)));
        px_release(sides[k]);
      }
      same("maxima", out, 0);
      same("places", at, 0);
      same("gradients", back, tolerance_of(d));
    }
}

PX_TEST(max_pooling_returns_the_last_nan) {
  px_tensor *sides[2], *out[2] = {0}, *at[2] = {0};
  arrange();
  sides_of(sides, PX_FLOAT32, 1, 4, 4, 5);
  for (int k = 0; k < 2; k++) {
    px_tensor *some = NULL;
    OK(px_sqrt(&some, sides[k]));
    OK(px_max_pool2d_with_indices(&out[k], &at[k], some, SIZES(3), 1, SIZES(1), 1, SIZES(1), 1,
                                  SIZES(1), 1, false));
    px_release(sides[k]), px_release(some);
  }
  same("maxima", out, 0);
  same("places", at, 0);
}

PX_TEST(average_pooling_of_channels_last) {
  static const int64_t sizes[][2] = {{1, 1}, {2, 3}, {7, 4}, {12, 15}};
  arrange();
  for (int i = 0; i < CHANNELS; i++)
    for (px_dtype d = PX_FLOAT16; d <= PX_FLOAT64; d++) {
      px_tensor *sides[2];
      sides_of(sides, d, 3, channels[i], 9, 11);
      for (int s = 0; s < 5; s++) {
        px_tensor *out[2] = {0}, *back[2] = {0};
        for (int k = 0; k < 2; k++) {
          px_value all = PX_IS(px_tensor_sizes(sides[k]), 4);
          if (s < 4) {
            OK(px_adaptive_avg_pool2d(&out[k], sides[k], sizes[s], 2));
            OK(HIDDEN(adaptive_avg_pool2d_backward, (&back[k]), PX_T(out[k]), all,
                      PX_TX(format_at(k))));
            continue;
          }
          OK(px_avg_pool2d(&out[k], sides[k], SIZES(3, 2), 2, SIZES(2), 1, SIZES(1), 1, true, false,
                           NULL));
          OK(HIDDEN(avg_pool2d_backward, (&back[k]), PX_T(out[k]), all, PX_IS(SIZES(3, 2), 2),
                    PX_IS(SIZES(2), 1), PX_IS(SIZES(1), 1), PX_B(true), PX_B(false), PX_NONE(),
                    PX_TX(format_at(k))));
        }
        same("means", out, tolerance_of(d));
        same("gradients", back, tolerance_of(d));
      }
      px_release(sides[0]), px_release(sides[1]);
    }
}

// Few rows, many rows, and more channels than a CUDA block covers.
static void check_norms(px_dtype d, const int64_t *s, bool training) {
  enum { RESULTS = 4, GIVEN = 4 };
  double tolerance = tolerance_of(d) * 10;
  px_dtype wide = d == PX_FLOAT64 ? d : PX_FLOAT32;
  px_tensor *sides[2], *out[2], *mean[2], *invstd[2], *var[2], *dx[2], *dw[2], *db[2];
  sides_of(sides, d, s[0], s[1], s[2], s[3]);
  for (int k = 0; k < 2; k++) {
    px_tensor *given[GIVEN];  // weight, bias, running mean and variance
    for (int i = 0; i < GIVEN; i++) {
      given[i] = pattern(i < 2 ? d : wide, S(s[1]));
      if (i == 3) OK(px_mul_(given[i], given[i]));
      if (k) given[i] = to_device_take(given[i]);
    }
    px_value statistics[2] = {training ? PX_NONE() : PX_T(given[2]),
                              training ? PX_NONE() : PX_T(given[3])};
    out[k] = mean[k] = invstd[k] = var[k] = dx[k] = dw[k] = db[k] = NULL;
    OK(HIDDEN(native_batch_norm, (&out[k], &mean[k], &invstd[k], &var[k]), PX_T(sides[k]),
              PX_T(given[0]), PX_T(given[1]), statistics[0], statistics[1], PX_B(training),
              PX_F(0.1)));
    OK(HIDDEN(batch_norm_backward, (&dx[k], &dw[k], &db[k]), PX_T(sides[k]), PX_T(sides[k]),
              PX_T(given[0]), statistics[0], statistics[1], PX_T(mean[k]), PX_T(invstd[k]),
              PX_B(training), PX_F(0.1)));
    for (int i = 0; i < GIVEN; i++) px_release(given[i]);
    px_release(sides[k]);
  }
  same("results", out, tolerance), same("means", mean, tolerance);
  same("deviations", invstd, tolerance), same("variances", var, tolerance);
  // Long sums are accumulated in another order.
  same("gradients", dx, tolerance), same("of weights", dw, tolerance * 100);
  same("of biases", db, tolerance * 100);
}
PX_TEST(batch_norm_of_channels_last) {
  static const int64_t shapes[][4] = {
      {2, 8, 1, 3}, {3, 24, 9, 7}, {16, 64, 20, 21}, {2, 5, 6, 7}, {5, 2056, 3, 3}};
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_FLOAT64, PX_FLOAT16, PX_BFLOAT16};
  arrange();
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < 8; k++) check_norms(dtypes[k / 2], shapes[i], k % 2);
}

PX_TEST(running_averages_are_updated_in_their_dtype) {
  static const px_dtype dtypes[] = {PX_FLOAT32, PX_BFLOAT16};
  arrange();
  for (int i = 0; i < 2; i++) {
    px_tensor *kept[2] = {pattern(dtypes[i], S(300)), NULL};
    px_tensor *value[2] = {pattern(PX_FLOAT32, S(300)), NULL};
    OK(px_mul_scalar_(value[0], px_float(0.3)));
    kept[1] = to_device(kept[0]), value[1] = to_device(value[0]);
    for (int k = 0; k < 2; k++) {
      OK(HIDDEN_INPLACE(running_average, PX_T(kept[k]), PX_T(value[k]), PX_F(0.1)));
      px_release(value[k]);
    }
    same("averages", kept, tolerance_of(dtypes[i]) / 4);
  }
}

PX_TEST(optimizers_update_channels_last_parameters_inplace) {
  px_tensor *p[2], *grad[2];
  arrange();
  sides_of(p, PX_FLOAT32, 6, 5, 3, 3), sides_of(grad, PX_FLOAT32, 6, 5, 3, 3);
  for (int k = 0; k < 2; k++) {
    PX_SCOPED(px_optimizer) o = NULL;
    OK(px_tensor_set_requires_grad(p[k], true));
    OK(px_tensor_set_grad(p[k], grad[k]));
    OK(px_adam_new(&o, &p[k], 1, .lr = 0.1));
    for (int i = 0; i < 3; i++) OK(px_optimizer_step(o));
    px_tensor *state = px_optimizer_state(o, 0, 0, "exp_avg");
    CHECK(!k || px_tensor_has_format(state, PX_FORMAT_CHANNELS_LAST));
    px_release(grad[k]);
  }
  same("parameters", p, 1e-5);
}
