// SPDX-License-Identifier: Apache-2.0
// Host functions of recurrent.cu, and recurrent nets run as a whole by cuDNN.
#include "cuda/host/library/cudnn.h"
#include "cuda/host/ops/kernel.h"
#include "kernel_args/recurrent.h"

// Launches a kernel on opened operands and closes them. `state` defines the rows.
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

// ---- whole nets

// Describes the net from the kernels' common operands.
static px_recurrent_net net_of(const px_operand *rows, const px_operand *h, const px_operand *c,
                               const px_value *counts, const char *mode, bool has_biases, bool tf32,
                               int64_t columns) {
  px_recurrent_net net = {.mode = mode,
                          .dtype = rows->dtype,
                          .has_biases = has_biases,
                          .tf32 = tf32,
                          .input = rows->sizes[1],
                          .width = h->sizes[2],
                          .batch = h->sizes[1]};
  net.hidden = c->dtype == PX_DTYPE_NONE ? net.width : c->sizes[2];
  net.projected = net.hidden != net.width;
  net.directions = (int)(columns / net.width), net.layers = (int)(h->sizes[0] / net.directions);
  net.times = counts->n ? counts->n : rows->sizes[0] / net.batch;
  net.counts = counts->n ? counts->v.ints : NULL;
  return net;
}

// Opens a net for a launch.
static px_status begin(px__cudnn_net *n, const px__cuda_dense *d, const px_recurrent_net *net,
                       bool training) {
  PX_CUDA_PASS(d->status);
  px_status status = px__cudnn_net_open(n, d->launch, net, training);
  if (status != PX_OK) px__cudnn_net_close(n);
  return status;
}

// Ends a launch: reports the status of `call` and closes the operands.
static px_status end(px__cudnn_net *n, px__cuda_dense *d, int status, const char *call) {
  px_status failed = status ? px__cudnn_error(status, call) : PX_OK;
  px__cudnn_net_close(n);
  PX_CUDA_PASS(failed);
  return px__cuda_dense_close(d);
}

PX_CUDA_KERNEL(recurrent_whole) {
  int dtype = args->output->dtype;
  px__cudnn_net n;
  px_recurrent_net net = net_of(args->rows, args->h, args->c, &args->counts, args->mode,
                                args->has_biases, args->tf32, args->output->sizes[1]);
  bool training = args->kept->dtype != PX_DTYPE_NONE;
  px__cuda_dense d = {.launch = l};
  void *rows = px__cuda_dense_in(&d, args->rows, dtype), *h = px__cuda_dense_in(&d, args->h, dtype),
       *c = px__cuda_dense_in(&d, args->c, dtype),
       *weights = px__cuda_dense_in(&d, args->weights, dtype),
       *output = px__cuda_dense_out(&d, args->output, dtype),
       *h_n = px__cuda_dense_out(&d, args->h_n, dtype),
       *c_n = px__cuda_dense_out(&d, args->c_n, dtype);
  PX_CUDA_PASS(begin(&n, &d, &net, training));
  return end(&n, &d,
             px__cudnn_recurrent.cudnnRNNForward(
                 n.handle, n.net, training, NULL, n.x_rows, rows, n.y_rows, output, n.h, h, h_n,
                 n.c, c, c_n, n.weights, weights, n.workspace, n.scratch, training ? n.kept : 0,
                 training ? args->kept->data : NULL),
             "cudnnRNNForward");
}

PX_CUDA_KERNEL(recurrent_whole_back) {
  int dtype = args->output->dtype;
  px__cudnn_net n;
  px_recurrent_net net = net_of(args->grad_rows, args->h, args->c, &args->counts, args->mode,
                                args->has_biases, args->tf32, args->output->sizes[1]);
  px__cuda_dense d = {.launch = l};
  void *output = px__cuda_dense_in(&d, args->output, dtype),
       *grad_output = px__cuda_dense_in(&d, args->grad_output, dtype),
       *grad_h_n = px__cuda_dense_in(&d, args->grad_h_n, dtype),
       *grad_c_n = px__cuda_dense_in(&d, args->grad_c_n, dtype),
       *h = px__cuda_dense_in(&d, args->h, dtype), *c = px__cuda_dense_in(&d, args->c, dtype),
       *weights = px__cuda_dense_in(&d, args->weights, dtype),
       *grad_rows = px__cuda_dense_out(&d, args->grad_rows, dtype),
       *grad_h = px__cuda_dense_out(&d, args->grad_h, dtype),
       *grad_c = px__cuda_dense_out(&d, args->grad_c, dtype);
  PX_CUDA_PASS(begin(&n, &d, &net, true));
  return end(&n, &d,
             px__cudnn_recurrent.cudnnRNNBackwardData_v8(
                 n.handle, n.net, NULL, n.y_rows, output, grad_output, n.x_rows, grad_rows, n.h, h,
                 grad_h_n, grad_h, n.c, c, grad_c_n, grad_c, n.weights, weights, n.workspace,
                 n.scratch, n.kept, args->kept->data),
             "cudnnRNNBackwardData_v8");
}

PX_CUDA_KERNEL(recurrent_whole_weights) {
  enum { ADD = 0 };  // cuDNN supports accumulation only
  int dtype = args->output->dtype;
  px__cudnn_net n;
  px_recurrent_net net = net_of(args->rows, args->h, args->c, &args->counts, args->mode,
                                args->has_biases, args->tf32, args->output->sizes[1]);
  px__cuda_dense d = {.launch = l};
  void *rows = px__cuda_dense_in(&d, args->rows, dtype), *h = px__cuda_dense_in(&d, args->h, dtype),
       *output = px__cuda_dense_in(&d, args->output, dtype);
  PX_CUDA_PASS(begin(&n, &d, &net, true));
  return end(&n, &d,
             px__cudnn_recurrent.cudnnRNNBackwardWeights_v8(
                 n.handle, n.net, ADD, NULL, n.x_rows, rows, n.h, h, n.y_rows, output, n.weights,
                 args->grad_weights->data, n.workspace, n.scratch, n.kept, args->kept->data),
             "cudnnRNNBackwardWeights_v8");
}
