// SPDX-License-Identifier: Apache-2.0
// The kinds of optimiser: one row each. SGD with momentum as PyTorch defines it (Sutskever et al.
// 2013); Adam (Kingma and Ba 2015) with AMSGrad (Reddi et al. 2018); AdamW (Loshchilov and Hutter
// 2019); Adadelta (Zeiler 2012); RMSprop (Hinton 2012; centred: Graves 2013); Adagrad (Duchi et al.
// 2011).
#include <math.h>

#include "optim/optim_impl.h"
#include "phlox/ops.h"

// The k-th state of a parameter begins as zeros.
static px_status zeros_for(px__slot *slot, int k) {
  if (slot->state[k]) return PX_OK;
  return px_zeros_like(&slot->state[k], slot->parameter, PX_DTYPE_NONE, PX_DEVICE_NONE, false,
                       false);
}

enum { SGD_LR, SGD_MOMENTUM, SGD_DAMPENING, SGD_DECAY, SGD_NESTEROV, SGD_MAXIMIZE };
static const px_option sgd_options[] = {{"lr", 1e-3, 'f'},     {"momentum", 0, 'f'},
                                        {"dampening", 0, 'f'}, {"weight_decay", 0, 'f'},
                                        {"nesterov", 0, 'b'},  {"maximize", 0, 'b'}};

static px_status sgd_check(const double *o) {
  PX_CHECK(o[SGD_NESTEROV] == 0 || (o[SGD_MOMENTUM] > 0 && o[SGD_DAMPENING] == 0), PX_VALUE,
           "Nesterov momentum requires a momentum and zero dampening");
  return PX_OK;
}

static px_status sgd_update(px__slot *slot, const double *o) {
  PX_SCOPED(px_tensor) same = NULL;
  PX_SCOPED(px_tensor) buffer = NULL;
  px_tensor *grad = px_tensor_grad(slot->parameter);
  bool first = o[SGD_MOMENTUM] != 0 && !slot->state[0];
  if (first) PX_TRY(zeros_for(slot, 0));
  px_status status = px_sgd_step(&same, &buffer, slot->parameter, grad,
                                 o[SGD_MOMENTUM] != 0 ? slot->state[0] : NULL, o[SGD_LR],
                                 o[SGD_MOMENTUM], o[SGD_DAMPENING], o[SGD_DECAY],
                                 o[SGD_NESTEROV] != 0, o[SGD_MAXIMIZE] != 0, first);
  // A buffer that no step has filled is no buffer.
  if (status != PX_OK && first) px_release(slot->state[0]), slot->state[0] = NULL;
  return status;
}

enum { ADAM_LR, ADAM_BETA1, ADAM_BETA2, ADAM_EPS, ADAM_DECAY, ADAM_AMSGRAD, ADAM_MAXIMIZE };
static const px_option adam_options[] = {
    {"lr", 1e-3, 'f'},        {"beta1", 0.9, 'p'}, {"beta2", 0.999, 'q'}, {"eps", 1e-8, 'f'},
    {"weight_decay", 0, 'f'}, {"amsgrad", 0, 'b'}, {"maximize", 0, 'b'}};
static const px_option adamw_options[] = {
    {"lr", 1e-3, 'f'},           {"beta1", 0.9, 'p'}, {"beta2", 0.999, 'q'}, {"eps", 1e-8, 'f'},
    {"weight_decay", 1e-2, 'f'}, {"amsgrad", 0, 'b'}, {"maximize", 0, 'b'}};

static px_status adam(px__slot *slot, const double *o, bool decoupled) {
  px_tensor *results[4] = {NULL};
  int needed = o[ADAM_AMSGRAD] != 0 ? 3 : 2;
  for (int k = 0; k < needed; k++) PX_TRY(zeros_for(slot, k));
  px_status status =
      px_adam_step(&results[0], &results[1], &results[2], &results[3], slot->parameter,
                   px_tensor_grad(slot->parameter), slot->state[0], slot->state[1],
                   needed == 3 ? slot->state[2] : NULL, o[ADAM_LR], o[ADAM_BETA1], o[ADAM_BETA2],
                   o[ADAM_EPS], o[ADAM_DECAY], slot->steps, decoupled, o[ADAM_MAXIMIZE] != 0);
  for (int k = 0; k < 4; k++) px_release(results[k]);
  return status;
}

static px_status adam_update(px__slot *slot, const double *o) { return adam(slot, o, false); }
static px_status adamw_update(px__slot *slot, const double *o) { return adam(slot, o, true); }

enum { DELTA_LR, DELTA_RHO, DELTA_EPS, DELTA_DECAY, DELTA_MAXIMIZE };
static const px_option adadelta_options[] = {{"lr", 1, 'f'},
                                             {"rho", 0.9, 'f'},
                                             {"eps", 1e-6, 'f'},
                                             {"weight_decay", 0, 'f'},
                                             {"maximize", 0, 'b'}};

static px_status adadelta_update(px__slot *slot, const double *o) {
  px_tensor *results[3] = {NULL};
  for (int k = 0; k < 2; k++) PX_TRY(zeros_for(slot, k));
  px_status status =
      px_adadelta_step(&results[0], &results[1], &results[2], slot->parameter,
                       px_tensor_grad(slot->parameter), slot->state[0], slot->state[1], o[DELTA_LR],
                       o[DELTA_RHO], o[DELTA_EPS], o[DELTA_DECAY], o[DELTA_MAXIMIZE] != 0);
  for (int k = 0; k < 3; k++) px_release(results[k]);
  return status;
}

// ---- put together from ops

static px_status times_(px_tensor *self, double factor) {
  void *same = self;
  PX_TRY(px_op_call(px_op_find("mul"), PX_CALL_INPLACE,
                    (px_value[]){PX_T(self), PX_S(px_float(factor))}, &same));
  px_release(same);
  return PX_OK;
}

// The root of t plus eps.
static px_status root(px_tensor **out, const px_tensor *t, double eps) {
  PX_SCOPED(px_tensor) plain = NULL;
  PX_TRY(px_sqrt(&plain, t));
  return px_add_scalar(out, plain, px_float(eps), px_int(1));
}

// The gradient, turned round to maximise, with the weight decay; what is not needed is not done.
static px_status direction(px_tensor **out, const px__slot *slot, double decay, bool maximize) {
  PX_SCOPED(px_tensor) grad = px_retain(px_tensor_grad(slot->parameter));
  if (maximize) {
    px_tensor *turned;
    PX_TRY(px_neg(&turned, grad));
    px_release(grad);
    grad = turned;
  }
  if (decay != 0) return px_add(out, grad, slot->parameter, px_float(decay));
  *out = PX_MOVE(grad);
  return PX_OK;
}

enum { RMS_LR, RMS_ALPHA, RMS_EPS, RMS_DECAY, RMS_MOMENTUM, RMS_CENTERED, RMS_MAXIMIZE };
static const px_option rmsprop_options[] = {
    {"lr", 1e-2, 'f'},    {"alpha", 0.99, 'f'}, {"eps", 1e-8, 'f'},  {"weight_decay", 0, 'f'},
    {"momentum", 0, 'f'}, {"centered", 0, 'b'}, {"maximize", 0, 'b'}};
enum { RMS_SQUARES, RMS_BUFFER, RMS_MEAN };

// The running root of the squares; of their deviation from the running mean, if centred.
static px_status rms(px_tensor **out, px__slot *slot, const px_tensor *grad, const double *o) {
  PX_SCOPED(px_tensor) centred = NULL;
  px_tensor *squares = slot->state[RMS_SQUARES], *mean = slot->state[RMS_MEAN];
  PX_TRY(times_(squares, o[RMS_ALPHA]));
  PX_TRY(px_addcmul_(squares, grad, grad, px_float(1 - o[RMS_ALPHA])));
  if (o[RMS_CENTERED] == 0) return root(out, squares, o[RMS_EPS]);
  PX_TRY(times_(mean, o[RMS_ALPHA]));
  PX_TRY(px_add_(mean, grad, px_float(1 - o[RMS_ALPHA])));
  PX_TRY(px_addcmul(&centred, squares, mean, mean, px_float(-1)));
  return root(out, centred, o[RMS_EPS]);
}

static px_status rmsprop_update(px__slot *slot, const double *o) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) average = NULL;
  PX_TRY(zeros_for(slot, RMS_SQUARES));
  if (o[RMS_MOMENTUM] > 0) PX_TRY(zeros_for(slot, RMS_BUFFER));
  if (o[RMS_CENTERED] != 0) PX_TRY(zeros_for(slot, RMS_MEAN));
  PX_TRY(direction(&grad, slot, o[RMS_DECAY], o[RMS_MAXIMIZE] != 0));
  PX_TRY(rms(&average, slot, grad, o));
  if (o[RMS_MOMENTUM] <= 0)
    return px_addcdiv_(slot->parameter, grad, average, px_float(-o[RMS_LR]));
  PX_TRY(times_(slot->state[RMS_BUFFER], o[RMS_MOMENTUM]));
  PX_TRY(px_addcdiv_(slot->state[RMS_BUFFER], grad, average, px_int(1)));
  return px_add_(slot->parameter, slot->state[RMS_BUFFER], px_float(-o[RMS_LR]));
}

enum { GRAD_LR, GRAD_LR_DECAY, GRAD_DECAY, GRAD_FIRST, GRAD_EPS, GRAD_MAXIMIZE };
static const px_option adagrad_options[] = {
    {"lr", 1e-2, 'f'},        {"lr_decay", 0, 'f'},
    {"weight_decay", 0, 'f'}, {"initial_accumulator_value", 0, 'f'},
    {"eps", 1e-10, 'f'},      {"maximize", 0, 'b'}};

static px_status adagrad_update(px__slot *slot, const double *o) {
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) spread = NULL;
  if (!slot->state[0])
    PX_TRY(px_full_like(&slot->state[0], slot->parameter, px_float(o[GRAD_FIRST]), PX_DTYPE_NONE,
                        PX_DEVICE_NONE, false, false));
  PX_TRY(direction(&grad, slot, o[GRAD_DECAY], o[GRAD_MAXIMIZE] != 0));
  PX_TRY(px_addcmul_(slot->state[0], grad, grad, px_int(1)));
  PX_TRY(root(&spread, slot->state[0], o[GRAD_EPS]));
  double rate = o[GRAD_LR] / (1 + (double)(slot->steps - 1) * o[GRAD_LR_DECAY]);
  return px_addcdiv_(slot->parameter, grad, spread, px_float(-rate));
}

#define OPTIONS(array) (array), (int)(sizeof(array) / sizeof *(array))
const px_optimizer_kind px__optimizer_kinds[] = {
    {"SGD", OPTIONS(sgd_options), {"momentum_buffer"}, sgd_update, sgd_check},
    {"Adam", OPTIONS(adam_options), {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, adam_update, NULL},
    {"AdamW",
     OPTIONS(adamw_options),
     {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
     adamw_update,
     NULL},
    {"RMSprop",
     OPTIONS(rmsprop_options),
     {"square_avg", "momentum_buffer", "grad_avg"},
     rmsprop_update,
     NULL},
    {"Adagrad", OPTIONS(adagrad_options), {"sum"}, adagrad_update, NULL},
    {"Adadelta", OPTIONS(adadelta_options), {"square_avg", "acc_delta"}, adadelta_update, NULL},
};
const int px__optimizer_kind_count = sizeof px__optimizer_kinds / sizeof *px__optimizer_kinds;
