// SPDX-License-Identifier: Apache-2.0
// The kinds of optimiser: one row each. SGD with momentum as PyTorch defines it (Sutskever et al.
// 2013); Adam (Kingma and Ba 2015) with AMSGrad (Reddi et al. 2018); AdamW (Loshchilov and Hutter
// 2019); Adadelta (Zeiler 2012).
#include <math.h>

#include "optim/optim_impl.h"
#include "phlox/ops.h"

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
  if (first)
    PX_TRY(px_zeros_like(&slot->state[0], slot->parameter, PX_DTYPE_NONE, PX_DEVICE_NONE, false,
                         false));
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
  for (int k = 0; k < needed; k++)
    if (!slot->state[k])
      PX_TRY(px_zeros_like(&slot->state[k], slot->parameter, PX_DTYPE_NONE, PX_DEVICE_NONE, false,
                           false));
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
  for (int k = 0; k < 2; k++)
    if (!slot->state[k])
      PX_TRY(px_zeros_like(&slot->state[k], slot->parameter, PX_DTYPE_NONE, PX_DEVICE_NONE, false,
                           false));
  px_status status =
      px_adadelta_step(&results[0], &results[1], &results[2], slot->parameter,
                       px_tensor_grad(slot->parameter), slot->state[0], slot->state[1], o[DELTA_LR],
                       o[DELTA_RHO], o[DELTA_EPS], o[DELTA_DECAY], o[DELTA_MAXIMIZE] != 0);
  for (int k = 0; k < 3; k++) px_release(results[k]);
  return status;
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
    {"Adadelta", OPTIONS(adadelta_options), {"square_avg", "acc_delta"}, adadelta_update, NULL},
};
const int px__optimizer_kind_count = sizeof px__optimizer_kinds / sizeof *px__optimizer_kinds;
