// SPDX-License-Identifier: Apache-2.0
// Host functions of recurrent.cu.
#include "cuda/host/kernel.h"
#include "kernel_args/recurrent.h"

// Launches a kernel on operands that are opened, and closes them. `state` has the rows.
static px_status run(px__cuda_dense *d, k_step *p, const char *name, const px_operand *state) {
  char function[32];
  int dtype = state->dtype;
  PX_CUDA_PASS(d->status);
  if (!px__cuda_is_float(dtype)) return px__cuda_missing(d->launch, dtype);
  snprintf(function, sizeof function, "%s_%s", name, px__cuda_suffix(dtype));
  p->n = px_operand_numel(state), p->size = state->sizes[1];
  PX_CUDA_PASS(px__cuda_over(d->launch, "recurrent", function, p->n, p));
  return px__cuda_dense_close(d);
}

PX_CUDA_KERNEL(lstm_step) {
  int dtype = args->output->dtype;
  px__cuda_dense d = {.launch = l};
  k_step p = {.gates = px__cuda_dense_inout(&d, args->gates, dtype),
              .c = px__cuda_dense_inout(&d, args->c, dtype),
              .kept = px__cuda_dense_out(&d, args->c_before, dtype),
              .output = px__cuda_dense_out(&d, args->output, dtype),
              .h = px__cuda_dense_inout(&d, args->h, dtype),
              .h_before = px__cuda_dense_out(&d, args->h_before, dtype)};
  return run(&d, &p, "lstm_step", args->output);
}

PX_CUDA_KERNEL(gru_step) {
  int dtype = args->output->dtype;
  px__cuda_dense d = {.launch = l};
  k_step p = {.gates = px__cuda_dense_inout(&d, args->gates, dtype),
              .hidden = px__cuda_dense_in(&d, args->hidden, dtype),
              .kept = px__cuda_dense_out(&d, args->kept, dtype),
              .output = px__cuda_dense_out(&d, args->output, dtype),
              .h = px__cuda_dense_inout(&d, args->h, dtype),
              .h_before = px__cuda_dense_out(&d, args->h_before, dtype)};
  return run(&d, &p, "gru_step", args->output);
}

PX_CUDA_KERNEL(rnn_step) {
  int dtype = args->output->dtype;
  px__cuda_dense d = {.launch = l};
  k_step p = {.gates = px__cuda_dense_inout(&d, args->gates, dtype),
              .output = px__cuda_dense_out(&d, args->output, dtype),
              .h = px__cuda_dense_inout(&d, args->h, dtype),
              .h_before = px__cuda_dense_out(&d, args->h_before, dtype),
              .relu = args->relu};
  return run(&d, &p, "rnn_step", args->output);
}

PX_CUDA_KERNEL(lstm_step_back) {
  int dtype = args->grad_c->dtype;
  px__cuda_dense d = {.launch = l};
  k_step p = {.gates = px__cuda_dense_in(&d, args->gates, dtype),
              .kept = px__cuda_dense_in(&d, args->c_before, dtype),
              .grad_output = px__cuda_dense_in(&d, args->grad_output, dtype),
              .grad_gates = px__cuda_dense_out(&d, args->grad_gates, dtype),
              .grad_c = px__cuda_dense_inout(&d, args->grad_c, dtype),
              .grad_h = px__cuda_dense_inout(&d, args->grad_h, dtype)};
  return run(&d, &p, "lstm_step_back", args->grad_c);
}

PX_CUDA_KERNEL(gru_step_back) {
  int dtype = args->grad_h->dtype;
  px__cuda_dense d = {.launch = l};
  k_step p = {.gates = px__cuda_dense_in(&d, args->gates, dtype),
              .kept = px__cuda_dense_in(&d, args->kept, dtype),
              .h_before = px__cuda_dense_in(&d, args->h_before, dtype),
              .grad_output = px__cuda_dense_in(&d, args->grad_output, dtype),
              .grad_gates = px__cuda_dense_out(&d, args->grad_gates, dtype),
              .grad_hidden = px__cuda_dense_out(&d, args->grad_hidden, dtype),
              .grad_h = px__cuda_dense_inout(&d, args->grad_h, dtype)};
  return run(&d, &p, "gru_step_back", args->grad_h);
}

PX_CUDA_KERNEL(rnn_step_back) {
  int dtype = args->grad_gates->dtype;
  px__cuda_dense d = {.launch = l};
  k_step p = {.gates = px__cuda_dense_in(&d, args->gates, dtype),
              .grad_output = px__cuda_dense_in(&d, args->grad_output, dtype),
              .grad_gates = px__cuda_dense_out(&d, args->grad_gates, dtype),
              .grad_h = px__cuda_dense_inout(&d, args->grad_h, dtype),
              .relu = args->relu};
  return run(&d, &p, "rnn_step_back", args->grad_gates);
}
