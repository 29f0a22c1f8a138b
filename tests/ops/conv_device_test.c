// SPDX-License-Identifier: Apache-2.0
// Convolution on a device, forward and both gradients, against the CPU: with cuDNN if available,
// and with the backend's kernels if cuDNN is switched off. On a real device if there is one,
// otherwise on a simulated one. Channels_last tensors, too, since cuDNN has separate plans for
// them.
#include "kernels_help.h"

typedef struct problem {
  int64_t x[4], w[4], stride[2], padding[4], dilation[2], groups;
  int padding_count;
} problem;
static const problem problems[] = {
    {{2, 3, 9, 10}, {4, 3, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, 2},
    {{3, 8, 12, 11}, {16, 8, 5, 3}, {2, 1}, {2, 1}, {1, 1}, 1, 2},
    {{2, 6, 14, 14}, {9, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 3, 2},
    {{1, 4, 17, 15}, {4, 1, 3, 3}, {1, 2}, {2, 2}, {2, 2}, 4, 2},
    {{2, 5, 7, 8}, {3, 5, 2, 4}, {1, 1}, {0, 1, 1, 2}, {1, 1}, 1, 4},
    {{5, 16, 4, 4}, {32, 16, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, 2},
    {{64, 1, 28, 28}, {32, 1, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, 2},
    {{8, 32, 26, 26}, {64, 32, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, 2},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static void arrange(bool library) {
  if (!getenv("TEST_DEVICE")) setenv("PHLOX_SIM_DEVICES", "1", 0);
  if (px_device_count(PX_CUDA) == 0) SKIP("no device of type cuda");
  px_setting_set(PX_SETTING_CUDNN_ENABLED, library);
  px_setting_set(PX_SETTING_CUDNN_TF32, false);
}

// The channels_last operands among image, weight and gradient.
enum { IMAGE_LAST = 1, WEIGHT_LAST = 2, GRAD_LAST = 8 };
static px_tensor *with_layout(px_tensor *source, int which, int last) {
  px_tensor *made = NULL;
  if (!(last >> which & 1)) return source;
  OK(px_clone(&made, source, "channels_last"));
  px_release(source);
  return made;
}

// Computes on the CPU the result, and the gradients of image, weight and bias for a patterned
// gradient.
enum { RESULTS = 4 };
static void compute_last(px_tensor *out[RESULTS], const problem *p, px_dtype dtype,
                         px_device device, int last) {
  px_tensor *leaves[3], *y = NULL;
  const int64_t *sizes[3] = {p->x, p->w, p->w};
  for (int i = 0; i < 3; i++) {
    px_tensor *here = with_layout(pattern(dtype, i < 2 ? 4 : 1, sizes[i]), i, last);
    leaves[i] = NULL;
    OK(px_to(&leaves[i], here, PX_DTYPE_NONE, device, false, true));
    OK(px_tensor_set_requires_grad(leaves[i], true));
    px_release(here);
  }
  OK(px_conv2d(&y, leaves[0], leaves[1], leaves[2], p->stride, 2, p->padding, p->padding_count,
               p->dilation, 2, p->groups));
  px_tensor *grad = with_layout(pattern(dtype, 4, px_tensor_sizes(y)), 3, last), *there = NULL;
  OK(px_to(&there, grad, PX_DTYPE_NONE, device, false, true));
  OK(px_backward(1, &y, &there, false, false));
  px_tensor *results[RESULTS] = {y, px_tensor_grad(leaves[0]), px_tensor_grad(leaves[1]),
                                 px_tensor_grad(leaves[2])};
  bool formed = last & (IMAGE_LAST | WEIGHT_LAST);
  CHECK(px_tensor_has_format(y, formed ? PX_FORMAT_CHANNELS_LAST : PX_FORMAT_CONTIGUOUS));
  for (int i = 0; i < 2; i++)
    CHECK(px_tensor_has_format(results[1 + i],
                               last >> i & 1 ? PX_FORMAT_CHANNELS_LAST : PX_FORMAT_CONTIGUOUS));
  for (int i = 0; i < RESULTS; i++) {
    PX_SCOPED(px_tensor) plain = NULL;
    OK(px_contiguous(&plain, results[i]));
    OK(px_to(&out[i], plain, PX_FLOAT64, px_cpu(), false, true));
  }
  px_release(y), px_release(grad), px_release(there);
  for (int i = 0; i < 3; i++) px_release(leaves[i]);
}

// Max difference, relative to the max element.
static double difference(const px_tensor *want, const px_tensor *got) {
  CHECK_EQ(px_tensor_numel(want), px_tensor_numel(got));
  const double *a = px_tensor_data(want), *b = px_tensor_data(got);
  double most = 0, apart = 0;
  for (int64_t i = 0; i < px_tensor_numel(want); i++) {
    if (fabs(a[i]) > most) most = fabs(a[i]);
    if (!(fabs(a[i] - b[i]) <= apart)) apart = fabs(a[i] - b[i]);
  }
  return apart / (most > 1 ? most : 1);
}

static void compute(px_tensor *out[RESULTS], const problem *p, px_dtype dtype, px_device device) {
  compute_last(out, p, dtype, device, 0);
}

static void check_last(px_dtype dtype, double tolerance, int last) {
  static const char *const names[] = {"result", "image", "weight", "bias"};
  int failures = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    px_tensor *want[RESULTS] = {0}, *got[RESULTS] = {0};
    compute(want, &problems[i], dtype, px_cpu());
    compute_last(got, &problems[i], dtype, px_cuda(0), last);
    for (int k = 0; k < RESULTS; k++) {
      double apart = difference(want[k], got[k]);
      if (!(apart <= tolerance)) {
        fprintf(stderr, "%s of problem %d in %s, %d: off by %g\n", names[k], i,
                px_dtype_name(dtype), last, apart);
        failures++;
      }
      px_release(want[k]), px_release(got[k]);
    }
  }
  CHECK_EQ(failures, 0);
}

static void check_all(px_dtype dtype, double tolerance) { check_last(dtype, tolerance, 0); }
static void check_orders(px_dtype dtype, double tolerance) {
  static const int orders[] = {IMAGE_LAST | WEIGHT_LAST | GRAD_LAST, IMAGE_LAST, WEIGHT_LAST,
                               IMAGE_LAST | WEIGHT_LAST};
  for (int i = 0; i < 4; i++) check_last(dtype, tolerance, orders[i]);
}

// Gradients of weights are sums of up to 43264 products, accumulated in any order.
PX_TEST(convolutions_in_float32) { arrange(true), check_all(PX_FLOAT32, 1e-4); }
PX_TEST(convolutions_in_float64) { arrange(true), check_all(PX_FLOAT64, 1e-12); }
PX_TEST(convolutions_in_float16) { arrange(true), check_all(PX_FLOAT16, 4e-3); }
PX_TEST(convolutions_in_bfloat16) { arrange(true), check_all(PX_BFLOAT16, 3e-2); }
PX_TEST(convolutions_in_tf32) {
  arrange(true);
  px_setting_set(PX_SETTING_CUDNN_TF32, true);
  check_all(PX_FLOAT32, 2e-3);
}
PX_TEST(channels_last_in_float32) { arrange(true), check_orders(PX_FLOAT32, 1e-4); }
PX_TEST(channels_last_in_float64) { arrange(true), check_orders(PX_FLOAT64, 1e-12); }
PX_TEST(channels_last_in_float16) { arrange(true), check_orders(PX_FLOAT16, 4e-3); }
PX_TEST(channels_last_in_bfloat16) { arrange(true), check_orders(PX_BFLOAT16, 3e-2); }
PX_TEST(channels_last_without_a_library) { arrange(false), check_orders(PX_FLOAT32, 1e-5); }
PX_TEST(plans_chosen_by_trial) {
  arrange(true);
  px_setting_set(PX_SETTING_CUDNN_BENCHMARK, true);
  check_all(PX_FLOAT32, 1e-4);
}
PX_TEST(deterministic_plans_are_reproducible) {
  px_tensor *first[RESULTS] = {0}, *second[RESULTS] = {0};
  arrange(true);
  px_setting_set(PX_SETTING_CUDNN_DETERMINISTIC, true);
  compute(first, &problems[7], PX_FLOAT32, px_cuda(0));
  compute(second, &problems[7], PX_FLOAT32, px_cuda(0));
  for (int k = 0; k < RESULTS; k++) {
    CHECK_EQ(difference(first[k], second[k]), 0);
    px_release(first[k]), px_release(second[k]);
  }
}
PX_TEST(kernels_of_the_backend_in_float32) { arrange(false), check_all(PX_FLOAT32, 1e-5); }
PX_TEST(kernels_of_the_backend_in_float64) { arrange(false), check_all(PX_FLOAT64, 1e-12); }
PX_TEST(kernels_of_the_backend_in_float16) { arrange(false), check_all(PX_FLOAT16, 4e-3); }
PX_TEST(kernels_of_the_backend_in_bfloat16) { arrange(false), check_all(PX_BFLOAT16, 3e-2); }

PX_TEST(the_environment_switches_the_library_off) {
  setenv("PHLOX_CUDNN", "0", 1);
  arrange(true);
  CHECK_EQ(px_device_library("cudnn"), 0);
  check_all(PX_FLOAT32, 1e-5);
}
PX_TEST(the_library_version_is_known_or_zero) {
  arrange(true);
  int64_t version = px_device_library("cudnn");
  fprintf(stderr, "cuDNN: %lld\n", (long long)version);
  CHECK(version == 0 || (version >= 90000 && version < 100000));
  CHECK_EQ(px_device_library("nonesuch"), 0);
}
