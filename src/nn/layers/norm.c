// SPDX-License-Identifier: Apache-2.0
// Forward functions of batch and instance normalization. They count batches and depend on the
// number of dimensions, so they are not generated from formulas.
#include "layer_functions.h"
#include "nn/module/nn_impl.h"
#include "phlox/distributed.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/layer.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/view.h"

// dims: 1 for signals, 2 for images, 3 for volumes, 0 for any.
static px_status check_batch(const px_tensor *x, int64_t dims) {
  int ndim = px_tensor_ndim(x);
  if (!dims)
    PX_CHECK(ndim >= 2, PX_VALUE, "expected at least 2D input (got %dD input)", ndim);
  else if (dims == 1)
    PX_CHECK(ndim == 2 || ndim == 3, PX_VALUE, "expected 2D or 3D input (got %dD input)", ndim);
  else
    PX_CHECK(ndim == dims + 2, PX_VALUE, "expected %dD input (got %dD input)", (int)dims + 2, ndim);
  return PX_OK;
}

// Counts the batch. Returns the weight of its statistics in the running ones.
static px_status batch_weight(double *out, px_module *self) {
  px_tensor *seen = px__tensor_of(self, "num_batches_tracked");
  px_value momentum = px_module_attribute(self, "momentum");
  *out = momentum.kind == PX_ARG_NONE ? 0 : px_value_float(momentum);
  if (!px__training(self) || !seen || !px_module_attribute(self, "track_running_stats").v.i)
    return PX_OK;
  PX_TRY(px_add_scalar_(seen, px_int(1), px_int(1)));
  if (momentum.kind != PX_ARG_NONE) return PX_OK;
  px_scalar count;
  PX_TRY(px_tensor_item(&count, seen));
  *out = 1 / px_scalar_float(count);
  return PX_OK;
}

px_status px__batch_norm_forward(px_tensor **out, px_module *self,
                                 const px__batch_norm_forward_args *args) {
  double weight;
  PX_SCOPED(px_comm) comm = NULL;
  px_tensor *mean = px__tensor_of(self, "running_mean"), *var = px__tensor_of(self, "running_var");
  bool tracks = px_module_attribute(self, "track_running_stats").v.i;
  PX_TRY(check_batch(args->input, args->number));
  PX_TRY(batch_weight(&weight, self));
  bool batch = px__training(self) || (!mean && !var);
  if (px__training(self) && !tracks) mean = var = NULL;  // tracking was disabled after construction
  if (px__training(self) && !args->number) PX_TRY(px__sync_norm_comm(&comm, self));
  if (comm)
    return px_sync_batch_norm(out, comm, args->input, mean, var, px__tensor_of(self, "weight"),
                              px__tensor_of(self, "bias"), weight, px__float_of(self, "eps"));
  return px_batch_norm(out, args->input, mean, var, px__tensor_of(self, "weight"),
                       px__tensor_of(self, "bias"), batch, weight, px__float_of(self, "eps"));
}

// Channels must match num_features if the layer has per-channel tensors.
static px_status check_features(const px_module *self, const px_tensor *x, int dim) {
  int64_t expected = px_value_int(px_module_attribute(self, "num_features"));
  int64_t size = px_tensor_size(x, dim);
  if (size == expected) return PX_OK;
  PX_CHECK(!px_value_int(px_module_attribute(self, "affine")), PX_VALUE,
           "expected input's size at dim=%d to match num_features (%lld), but got: %lld.", dim,
           (long long)expected, (long long)size);
  return px_warn(PX_WARN_USER,
                 "input's size at dim=%d does not match num_features. You can silence this warning "
                 "by not passing in num_features, which is not used because affine=False",
                 dim);
}

px_status px__instance_norm_forward(px_tensor **out, px_module *self,
                                    const px__instance_norm_forward_args *args) {
  px_tensor *mean = px__tensor_of(self, "running_mean"), *var = px__tensor_of(self, "running_var");
  int ndim = px_tensor_ndim(args->input), alone = 1 + (int)args->number;
  bool tracks = px_module_attribute(self, "track_running_stats").v.i;
  PX_CHECK(ndim == alone || ndim == alone + 1, PX_VALUE,
           "expected %dD or %dD input (got %dD input)", alone, alone + 1, ndim);
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_TRY(check_features(self, args->input, ndim - alone));
  if (ndim == alone)
    PX_TRY(px_unsqueeze(&batch, args->input, 0));
  else
    batch = px_retain(args->input);
  PX_TRY(px_instance_norm(&result, batch, mean, var, px__tensor_of(self, "weight"),
                          px__tensor_of(self, "bias"), px__training(self) || !tracks,
                          px__float_of(self, "momentum"), px__float_of(self, "eps")));
  if (ndim == alone) return px_squeeze_dim(out, result, (int64_t[]){0}, 1);
  *out = PX_MOVE(result);
  return PX_OK;
}

// Computed as the mean over an odd window, rescaled to a sum divided by `size`.
px_status px__cross_map_lrn2d_forward(px_tensor **out, px_module *self,
                                      const px__cross_map_lrn2d_forward_args *args) {
  int64_t size = px_value_int(px_module_attribute(self, "size"));
  int ndim = px_tensor_ndim(args->input);
  PX_CHECK(ndim == 4, PX_VALUE, "CrossMapLRN2d: Expected input to be 4D, got %dD instead.", ndim);
  PX_CHECK(size > 0, PX_RUNTIME, "CrossMapLRN2d: size must be positive, but is %lld",
           (long long)size);
  int64_t odd = (size - 1) / 2 * 2 + 1;
  double alpha = px__float_of(self, "alpha") * (double)odd / (double)size;
  return px_local_response_norm(out, args->input, odd, alpha, px__float_of(self, "beta"),
                                px__float_of(self, "k"));
}
