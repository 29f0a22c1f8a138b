// SPDX-License-Identifier: Apache-2.0
// Initialisation of weights, as torch.nn.init draws them. It is not recorded.
//
// Kaiming: He et al. 2015, "Delving deep into rectifiers". Xavier: Glorot and Bengio 2010,
// "Understanding the difficulty of training deep feedforward neural networks".
#include "nn/nn_impl.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/random.h"

#include <math.h>

px_status px_init_fans(int64_t *fan_in, int64_t *fan_out, const px_tensor *weight) {
  PX_GIVEN(fan_in);
  PX_GIVEN(fan_out);
  PX_GIVEN(weight);
  int ndim = px_tensor_ndim(weight);
  PX_CHECK(ndim >= 2, PX_VALUE,
           "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions");
  int64_t field = 1;
  for (int i = 2; i < ndim; i++) field *= px_tensor_size(weight, i);
  *fan_in = px_tensor_size(weight, 1) * field;
  *fan_out = px_tensor_size(weight, 0) * field;
  return PX_OK;
}

px_status px_init_gain(double *out, const char *nonlinearity, double parameter) {
  PX_GIVEN(out);
  PX_GIVEN(nonlinearity);
  static const struct {
    const char *name;
    double gain;
  } gains[] = {{"linear", 1},
               {"conv1d", 1},
               {"conv2d", 1},
               {"conv3d", 1},
               {"sigmoid", 1},
               {"tanh", 5.0 / 3},
               {"relu", 1.4142135623730951},
               {"selu", 0.75}};
  *out = sqrt(2 / (1 + parameter * parameter));
  if (!strcmp(nonlinearity, "leaky_relu")) return PX_OK;
  for (size_t i = 0; i < sizeof gains / sizeof *gains; i++)
    if (!strcmp(gains[i].name, nonlinearity)) return *out = gains[i].gain, PX_OK;
  PX_FAIL(PX_VALUE, "Unsupported nonlinearity %s", nonlinearity);
}

// Switches recording off and tells what it was.
static bool quiet(void) {
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  return was;
}

static px_status loud(bool was, px_status status) {
  px_grad_set_enabled(was);
  return status;
}

px_status px_init_uniform(px_tensor *weight, double from, double to, px_generator *generator) {
  PX_GIVEN(weight);
  bool was = quiet();
  return loud(was, px_uniform_(weight, from, to, generator));
}

px_status px_init_normal(px_tensor *weight, double mean, double std, px_generator *generator) {
  PX_GIVEN(weight);
  bool was = quiet();
  return loud(was, px_normal_(weight, mean, std, generator));
}

px_status px_init_constant(px_tensor *weight, double value) {
  PX_GIVEN(weight);
  bool was = quiet();
  return loud(was, px_fill_(weight, px_float(value)));
}

static px_status kaiming_std(double *out, const px_tensor *weight, double a, bool use_fan_out,
                             const char *nonlinearity) {
  int64_t fan_in, fan_out;
  double gain;
  PX_TRY(px_init_fans(&fan_in, &fan_out, weight));
  PX_TRY(px_init_gain(&gain, nonlinearity ? nonlinearity : "leaky_relu", a));
  *out = gain / sqrt((double)(use_fan_out ? fan_out : fan_in));
  return PX_OK;
}

static px_status warn_empty(void) {
  return px_warn(PX_WARN_USER, "Initializing zero-element tensors is a no-op");
}

px_status px_init_kaiming_uniform(px_tensor *weight, double a, bool fan_out,
                                  const char *nonlinearity, px_generator *generator) {
  PX_GIVEN(weight);
  double std;
  if (px_tensor_numel(weight) == 0) return warn_empty();
  PX_TRY(kaiming_std(&std, weight, a, fan_out, nonlinearity));
  double bound = sqrt(3.0) * std;
  return px_init_uniform(weight, -bound, bound, generator);
}

px_status px_init_kaiming_normal(px_tensor *weight, double a, bool fan_out,
                                 const char *nonlinearity, px_generator *generator) {
  PX_GIVEN(weight);
  double std;
  if (px_tensor_numel(weight) == 0) return warn_empty();
  PX_TRY(kaiming_std(&std, weight, a, fan_out, nonlinearity));
  return px_init_normal(weight, 0, std, generator);
}

static px_status xavier_std(double *out, const px_tensor *weight, double gain) {
  int64_t fan_in, fan_out;
  PX_TRY(px_init_fans(&fan_in, &fan_out, weight));
  *out = gain * sqrt(2.0 / (double)(fan_in + fan_out));
  return PX_OK;
}

px_status px_init_xavier_uniform(px_tensor *weight, double gain, px_generator *generator) {
  PX_GIVEN(weight);
  double std;
  PX_TRY(xavier_std(&std, weight, gain));
  double bound = sqrt(3.0) * std;
  return px_init_uniform(weight, -bound, bound, generator);
}

px_status px_init_xavier_normal(px_tensor *weight, double gain, px_generator *generator) {
  PX_GIVEN(weight);
  double std;
  PX_TRY(xavier_std(&std, weight, gain));
  return px_init_normal(weight, 0, std, generator);
}
