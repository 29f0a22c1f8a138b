// SPDX-License-Identifier: Apache-2.0
// Initialization of weights as in torch.nn.init. It is not recorded.
//
// Kaiming: He et al. 2015, "Delving deep into rectifiers". Xavier: Glorot and Bengio 2010,
// "Understanding the difficulty of training deep feedforward neural networks".
#include "conditions.h"
#include "formulas.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/random.h"
#include "phlox/ops/reduce.h"

#include <math.h>

px_status px_init_fans(int64_t *fan_in, int64_t *fan_out, const px_tensor *weight) {
  PX_GIVEN(fan_in);
  PX_GIVEN(fan_out);
  PX_GIVEN(weight);
  int ndim = px_tensor_ndim(weight);
  PX_CHECK(ndim >= 2, PX_VALUE,
           "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions");
  int64_t field = 1;
  for (int i = 2; i < ndim; i++) field = px__product(field, px_tensor_size(weight, i));
  *fan_in = px__product(px_tensor_size(weight, 1), field);
  *fan_out = px__product(px_tensor_size(weight, 0), field);
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

// Disables grad mode and returns the previous value.
static bool disable_grad(void) {
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  return was;
}

static px_status restore_grad(bool was, px_status status) {
  px_grad_set_enabled(was);
  return status;
}

px_status px_init_uniform(px_tensor *weight, double from, double to, px_generator *generator) {
  PX_GIVEN(weight);
  bool was = disable_grad();
  return restore_grad(was, px_uniform_(weight, from, to, generator));
}

px_status px_init_normal(px_tensor *weight, double mean, double std, px_generator *generator) {
  PX_GIVEN(weight);
  bool was = disable_grad();
  return restore_grad(was, px_normal_(weight, mean, std, generator));
}

px_status px_init_constant(px_tensor *weight, double value) {
  PX_GIVEN(weight);
  bool was = disable_grad();
  return restore_grad(was, px_fill_(weight, px_float(value)));
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

// ---- truncated normal distribution

static double normal_cdf(double x) { return (1 + erf(x / sqrt(2))) / 2; }

// `how` has the arguments of `redrawn`; the first two are set here.
static px_status draw_between(px_tensor *weight, px_value *how) {
  px_tensor *drawn[2];
  how[1] = PX_T(weight);
  PX_TRY(px__formula_candidates(drawn, how + 1));
  for (;;) {
    PX_SCOPED(px_tensor) numbers = drawn[0];
    PX_SCOPED(px_tensor) pending = drawn[1];
    PX_SCOPED(px_tensor) any = NULL;
    px_scalar left;
    drawn[0] = drawn[1] = NULL;
    PX_TRY(px_any(&any, pending, NULL, 0, false));
    PX_TRY(px_tensor_item(&left, any));
    if (!px_scalar_int(left)) return px_copy_(weight, numbers, false);
    how[0] = PX_T(numbers), how[1] = PX_T(pending);
    PX_TRY(px__formula_redrawn(drawn, how));
  }
}
px_status px_init_truncated_normal(px_tensor *weight, double mean, double std, double a, double b,
                                   px_generator *generator) {
  PX_GIVEN(weight);
  double part = normal_cdf((b - mean) / std) - normal_cdf((a - mean) / std);
  double mode = fmax(a, fmin(mean, b)), off = (mode - mean) / std;
  px_value how[] = {PX_NONE(),
                    PX_NONE(),
                    PX_F(mean),
                    PX_F(std),
                    PX_F(a),
                    PX_F(b),
                    PX_F(-0.5 * off * off),
                    PX_B(part > 0.3),
                    PX_G(generator)};
  PX_CHECK(std > 0 && a < b, PX_VALUE, "trunc_normal_: expected std > 0 and a < b");
  if (mean < a - 2 * std || mean > b + 2 * std)
    PX_TRY(px_warn(PX_WARN_USER,
                   "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The "
                   "distribution of values may be incorrect."));
  if (px_tensor_device(weight).type == PX_META || !px_tensor_numel(weight)) return PX_OK;
  bool was = disable_grad();
  return restore_grad(was, draw_between(weight, how));
}
