// SPDX-License-Identifier: Apache-2.0
// Batch normalization over the batches of all ranks of a communicator.
//
// Forward: the ranks all-gather count, mean and variance of each channel, and compute the same
// global statistics. Backward: the two batch sums in the gradient of the input are all-reduced. The
// gradients of weight and bias are this rank's; DistributedDataParallel averages them like all
// others. Statistics are at least float32.
#include "formulas.h"
#include "nn/module/nn_impl.h"
#include "phlox/comm.h"
#include "phlox/distributed.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/statistics.h"

typedef struct sync_norm {
  px_comm *comm;
  px_saved *input, *weight;  // weight may be NULL
  px_tensor *mean, *invstd;  // of the global batch, along the channels
  double count;
  bool input_grad;
} sync_norm;

static void sync_norm_release(void *context) {
  sync_norm *self = context;
  px_release(self->comm);
  px_release(self->input);
  px_release(self->weight);
  px_release(self->mean);
  px_release(self->invstd);
  px_free(self);
}

// ---- shapes

// All dimensions except channels.
static int batch_dims(int64_t *dims, const px_tensor *x) {
  int n = 0;
  for (int d = 0; d < px_tensor_ndim(x); d++)
    if (d != 1) dims[n++] = d;
  return n;
}

static px_dtype wide_dtype(const px_tensor *x) {
  return px_tensor_dtype(x) == PX_FLOAT64 ? PX_FLOAT64 : PX_FLOAT32;
}

static px_status widened(px_tensor **out, px_tensor *x) {
  return px_to(out, x, wide_dtype(x), PX_DEVICE_NONE, false, false);
}

// ---- statistics

// Returns rows of mean, variance and count per channel of this rank; zeros for an empty batch.
static px_status own_moments(px_tensor **out, px_tensor *x, int64_t channels, int64_t count) {
  int64_t dims[PX_MAX_DIMS], sizes[] = {3, channels};
  int n = batch_dims(dims, x);
  if (!count) return px_zeros(out, sizes, 2, px_tensor_dtype(x), px_tensor_device(x), false, false);
  PX_SCOPED(px_list) pair = NULL;
  PX_TRY(px_var_mean(&pair, x, dims, n, px_int(0), false));
  return px__formula_moments_of_rank(
      out,
      (px_value[]){PX_T(px_list_get(pair, 1)), PX_T(px_list_get(pair, 0)), PX_F((double)count)});
}

static px_status gather(px_tensor **out, px_comm *comm, px_tensor *rows) {
  PX_SCOPED(px_work) work = NULL;
  PX_SCOPED(px_tensor) all = NULL;
  int64_t sizes[] = {px_comm_size(comm), 3, px_tensor_size(rows, 1)};
  PX_TRY(px_tensor_empty(&all, 3, sizes, px_tensor_dtype(rows), px_tensor_device(rows)));
  px_collective collective = {
      .op = PX_ALL_GATHER, .inputs = &rows, .input_count = 1, .outputs = &all, .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &collective));
  PX_TRY(px_work_wait(work, 0));
  *out = PX_MOVE(all);
  return PX_OK;
}

static px_status all_moments(px_tensor *moments[2], double *count, px_tensor *all) {
  PX_SCOPED(px_tensor) total = NULL;
  px_scalar number;
  PX_TRY(px__formula_count_of_ranks(&total, (px_value[]){PX_T(all)}));
  PX_TRY(px_tensor_item(&number, total));
  *count = px_scalar_float(number);
  PX_CHECK(*count > 0, PX_VALUE, "SyncBatchNorm: the batches of all ranks are empty");
  return px__formula_moments_of_ranks(moments, (px_value[]){PX_T(all)});
}

// running = running * (1 - momentum) + value * momentum
static px_status update_running(px_tensor *running, px_tensor *value, double momentum,
                                double scale) {
  PX_SCOPED(px_tensor) fitting = NULL;
  if (!running) return PX_OK;
  PX_TRY(px_to(&fitting, value, px_tensor_dtype(running), PX_DEVICE_NONE, false, false));
  PX_TRY(px_mul_scalar_(running, px_float(1 - momentum)));
  return px_add_(running, fitting, px_float(momentum * scale));
}

// ---- backward

static px_status sum_over_ranks(px_comm *comm, px_tensor *tensor) {
  PX_SCOPED(px_work) work = NULL;
  px_collective all = {.op = PX_ALL_REDUCE, .outputs = &tensor, .output_count = 1};
  PX_TRY(px_comm_run(&work, comm, &all));
  return px_work_wait(work, 0);
}

static px_status narrowed(px_tensor **out, px_tensor *grad, const px_tensor *like) {
  return px_to(out, grad, px_tensor_dtype(like), PX_DEVICE_NONE, false, false);
}

static px_status sync_norm_backward(px_tensor **grads, int input_count, px_tensor *const *outputs,
                                    int output_count, void *context) {
  const sync_norm *self = context;
  PX_SCOPED(px_tensor) input = NULL, *weight = NULL, *dy = NULL, *normal = NULL, *wide_grad = NULL;
  px_tensor *sums[3] = {NULL};
  PX_TRY(px_saved_unpack(&input, self->input, "SyncBatchNormBackward"));
  if (self->weight) PX_TRY(px_saved_unpack(&weight, self->weight, "SyncBatchNormBackward"));
  PX_TRY(widened(&dy, outputs[0]));
  PX_TRY(px__formula_centred_and_scaled(
      &normal, (px_value[]){PX_T(input), PX_T(self->mean), PX_T(self->invstd)}));
  PX_TRY(px__formula_sums_over_batch(sums, (px_value[]){PX_T(dy), PX_T(normal)}));
  PX_SCOPED(px_tensor) bias_grad = sums[0], *weight_grad = sums[1], *both = sums[2];
  if (self->input_grad) {
    PX_TRY(sum_over_ranks(self->comm, both));
    PX_TRY(px__formula_sync_norm_gradient(
        &wide_grad, (px_value[]){PX_T(dy), PX_T(normal), PX_T(both), PX_T(self->invstd),
                                 PX_T(weight), PX_F(self->count)}));
    PX_TRY(narrowed(&grads[0], wide_grad, input));
  }
  if (weight) PX_TRY(narrowed(&grads[1], weight_grad, weight));
  if (weight) PX_TRY(narrowed(&grads[2], bias_grad, weight));
  return PX_OK;
}

// ---- forward

static px_status save_for_backward(sync_norm *self, px_comm *comm, px_tensor *input,
                                   px_tensor *weight, px_tensor *mean, px_tensor *var, double eps) {
  self->comm = px_retain(comm);
  self->input_grad = px_tensor_requires_grad(input);
  PX_TRY(px_saved_new(&self->input, input, false));
  if (weight) PX_TRY(px_saved_new(&self->weight, weight, false));
  PX_TRY(px__formula_along_channels(&self->mean, (px_value[]){PX_T(mean), PX_T(input)}));
  return px__formula_inverse_deviations(&self->invstd,
                                        (px_value[]){PX_T(var), PX_F(eps), PX_T(input)});
}

static px_status normalize(px_tensor **out, sync_norm *self, px_comm *comm, px_tensor *input,
                           px_tensor *const *running, px_tensor *weight, px_tensor *bias,
                           double momentum, double eps) {
  PX_SCOPED(px_tensor) x = NULL, *own = NULL, *all = NULL;
  px_tensor *moments[2] = {NULL};
  int64_t channels = px_tensor_size(input, 1);
  PX_TRY(widened(&x, input));
  PX_TRY(own_moments(&own, x, channels, px_tensor_numel(input) / channels));
  PX_TRY(gather(&all, comm, own));
  PX_TRY(all_moments(moments, &self->count, all));
  PX_SCOPED(px_tensor) mean = moments[0], *var = moments[1];
  PX_TRY(save_for_backward(self, comm, input, weight, mean, var, eps));
  double unbiased = self->count > 1 ? self->count / (self->count - 1) : 1;
  PX_TRY(px_batch_norm(out, input, mean, var, weight, bias, false, momentum, eps));
  PX_TRY(update_running(running[0], mean, momentum, 1));
  return update_running(running[1], var, momentum, unbiased);
}

static px_status check_channels(const px_tensor *input, px_tensor *const *given) {
  static const char *const names[] = {"running_mean", "running_var", "weight", "bias"};
  int64_t channels = px_tensor_size(input, 1);
  PX_CHECK(channels > 0, PX_VALUE, "SyncBatchNorm number of input channels should be non-zero");
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
    PX_CHECK(!given[i] || px_tensor_numel(given[i]) == channels, PX_RUNTIME,
             "%s should contain %lld elements not %lld", names[i], (long long)channels,
             (long long)px_tensor_numel(given[i]));
  return PX_OK;
}

px_status px_sync_batch_norm(px_tensor **out, px_comm *comm, px_tensor *input,
                             px_tensor *running_mean, px_tensor *running_var, px_tensor *weight,
                             px_tensor *bias, double momentum, double eps) {
  static const px_function function = {"SyncBatchNormBackward", sync_norm_backward,
                                       sync_norm_release, NULL};
  PX_GIVEN(out);
  PX_GIVEN(comm);
  PX_GIVEN(input);
  PX_CHECK(px_tensor_ndim(input) >= 2, PX_VALUE, "expected at least 2D input (got %dD input)",
           px_tensor_ndim(input));
  PX_CHECK(px_dtype_is_float(px_tensor_dtype(input)), PX_VALUE,
           "SyncBatchNorm: expected a floating-point tensor, got %s",
           px_dtype_name(px_tensor_dtype(input)));
  PX_TRY(check_channels(input, (px_tensor *[]){running_mean, running_var, weight, bias}));
  sync_norm *self;
  px_tensor *inputs[] = {input, weight, bias}, *running[] = {running_mean, running_var};
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  *out = NULL;
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = normalize(out, self, comm, input, running, weight, bias, momentum, eps);
  px_grad_set_enabled(was);
  if (status != PX_OK) {
    sync_norm_release(self);
    px_release(*out);
    *out = NULL;
    return status;
  }
  status = px_function_record(&function, self, 3, inputs, 1, out);
  if (status == PX_OK) return PX_OK;
  px_release(*out);
  *out = NULL;
  return status;
}

// ---- the layer

static px_sync_norm_choice chosen;  // atomic

void px_sync_norm_choose(px_sync_norm_choice choice) {
  __atomic_store_n(&chosen, choice, __ATOMIC_RELEASE);
}

px_status px__sync_norm_comm(px_comm **out, px_module *layer) {
  px_sync_norm_choice choice = __atomic_load_n(&chosen, __ATOMIC_ACQUIRE);
  PX_SCOPED(px_comm) comm = NULL;
  *out = NULL;
  if (choice) PX_TRY(choice(&comm, layer));
  if (comm && px_comm_size(comm) > 1) *out = PX_MOVE(comm);
  return PX_OK;
}
