// SPDX-License-Identifier: Apache-2.0
// Run functions of recurrent nets (stacked layers in one or two directions) and of single steps.
// They are composites of recurrent_layer, or call a library of the device for the whole net.
#include "hidden/recurrent.h"
#include "ops/recurrent/recurrent_impl.h"
#include "ops/core/run.h"
#include "phlox/autograd.h"
#include "phlox/ops/index.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/view.h"
#include "run_functions/recurrent.h"

// The arguments common to the ops of this file. `input` is (L, N, features); with batch_sizes (a
// packed sequence) or if `flat`, it is a matrix of rows. c is the cell state of an LSTM, or NULL.
typedef struct net {
  const char *mode;
  const px_tensor *input, *batch_sizes, *h, *c;
  px_tensor *const *params;
  int64_t param_count, layers;
  double dropout;
  bool has_biases, train, bidirectional, batch_first, flat;
  int directions, layer_params;  // params of one layer in one direction
  bool projected;
} net;

#define NET(mode_name, a) \
  { \
    .mode = mode_name, .params = (a)->params.v.tensors, .param_count = (a)->params.n, \
    .layers = (a)->num_layers, .dropout = (a)->dropout, .has_biases = (a)->has_biases, \
    .train = (a)->train, .bidirectional = (a)->bidirectional \
  }

static px_status two_states(net *n, px_value hx, const char *op) {
  PX_CHECK(hx.n == 2, PX_RUNTIME, "%s expects two hidden states", op);
  n->h = hx.v.tensors[0], n->c = hx.v.tensors[1];
  return PX_OK;
}

static px_status check_state(const net *n, const px_tensor *state) {
  int64_t expected = px__product(n->layers, n->directions);
  PX_CHECK(state->ndim == 3, PX_RUNTIME, "hidden states must have 3 dimensions, got %d",
           state->ndim);
  PX_CHECK(state->sizes[0] >= expected, PX_RUNTIME, "Expected more hidden states in stacked_rnn");
  PX_CHECK(state->sizes[0] == expected, PX_RUNTIME,
           "Expected %lld hidden states, one for each layer and direction, but got %lld",
           (long long)expected, (long long)state->sizes[0]);
  return PX_OK;
}

// Checks the arguments and sets the derived fields. An LSTM has a projection if the sizes of h and
// c differ.
static px_status check(net *n) {
  int ndim = n->batch_sizes || n->flat ? 2 : 3;
  n->directions = n->bidirectional ? 2 : 1;
  PX_CHECK(n->input->ndim == ndim, PX_RUNTIME, "input must have %d dimensions, got %d", ndim,
           n->input->ndim);
  PX_CHECK(n->layers > 0, PX_VALUE, "num_layers must be greater than zero");
  PX_CHECK(n->layers <= n->param_count, PX_RUNTIME,
           "%s: expected params for %lld layers, got %lld params", n->mode, (long long)n->layers,
           (long long)n->param_count);
  PX_TRY(check_state(n, n->h));
  if (n->c) PX_TRY(check_state(n, n->c));
  n->projected = n->c && n->c->sizes[2] != n->h->sizes[2];
  n->layer_params = 2 + 2 * n->has_biases + n->projected;
  PX_CHECK(n->param_count == n->layers * n->directions * n->layer_params, PX_RUNTIME,
           "%s: expected %d params for each layer and direction, %lld in total, got %lld", n->mode,
           n->layer_params, (long long)(n->layers * n->directions * n->layer_params),
           (long long)n->param_count);
  return PX_OK;
}

// The input as a matrix of rows ordered by time step.
static px_status rows_of(px_tensor **out, const net *n) {
  PX_SCOPED(px_tensor) transposed = NULL;
  const px_tensor *input = n->input;
  if (input->ndim == 2) return *out = px_retain((px_tensor *)input), PX_OK;
  if (n->batch_first) {
    PX_TRY(px_transpose(&transposed, input, 0, 1));
    input = transposed;
  }
  PX_CHECK(input->sizes[0] > 0, PX_RUNTIME, "Expected sequence length to be larger than 0 in RNN");
  PX_CHECK(input->sizes[1] == n->h->sizes[1], PX_RUNTIME,
           "Expected hidden states of batch size %lld, got %lld", (long long)input->sizes[1],
           (long long)n->h->sizes[1]);
  int64_t sizes[] = {px__product(input->sizes[0], input->sizes[1]), input->sizes[2]};
  return px_reshape(out, input, sizes, 2);
}

// ---- layers

// The state of a running net: the rows of the current layer, and the final states of each layer and
// direction. References are owned.
typedef struct progress {
  px_tensor *rows;
  px_tensor **h, **c;
} progress;

static px_status run_direction(px_tensor **out, const net *n, progress *p, int64_t k,
                               bool reverse) {
  PX_SCOPED(px_tensor) h = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  PX_SCOPED(px_tensor) saved = NULL;
  PX_SCOPED(px_tensor) last = NULL;
  px_tensor *const *w = n->params + k * n->layer_params;
  PX_TRY(px_select(&h, n->h, 0, k));
  if (n->c) PX_TRY(px_select(&c, n->c, 0, k));
  PX_TRY(px_recurrent_layer(out, &p->h[k], &last, &saved, p->rows, h, c, w[0], w[1],
                            n->has_biases ? w[2] : NULL, n->has_biases ? w[3] : NULL,
                            n->projected ? w[n->layer_params - 1] : NULL, n->batch_sizes, n->mode,
                            reverse));
  if (p->c) p->c[k] = PX_MOVE(last);
  return PX_OK;
}

static px_status set_rows(progress *p, px_tensor **from) {
  px_release(p->rows);
  p->rows = PX_MOVE(*from);
  return PX_OK;
}

static px_status run_layer(const net *n, progress *p, int64_t layer) {
  px_tensor *outs[2] = {NULL};
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) dropped = NULL;
  px_status status = PX_OK;
  for (int d = 0; d < n->directions && status == PX_OK; d++)
    status = run_direction(&outs[d], n, p, layer * n->directions + d, d);
  if (status == PX_OK)
    status = n->bidirectional ? px_cat(&rows, outs, 2, 1) : (rows = px_retain(outs[0]), PX_OK);
  for (int d = 0; d < 2; d++) px_release(outs[d]);
  PX_TRY(status);
  if (!n->train || n->dropout == 0 || layer + 1 == n->layers) return set_rows(p, &rows);
  PX_TRY(px_dropout(&dropped, rows, n->dropout, true));
  return set_rows(p, &dropped);
}

static px_status set_output(px_call *call, const net *n, const progress *p) {
  PX_SCOPED(px_tensor) times = NULL;
  const px_tensor *rows = p->rows;
  if (n->input->ndim == 2) return call->results[0] = px_retain(p->rows), PX_OK;
  int64_t batch = n->h->sizes[1], length = n->input->sizes[n->batch_first ? 1 : 0];
  int64_t sizes[] = {length, batch, rows->sizes[1]};
  PX_TRY(px_view(n->batch_first ? &times : &call->results[0], rows, sizes, 3));
  return n->batch_first ? px_transpose(&call->results[0], times, 0, 1) : PX_OK;
}

static px_status all_layers(px_call *call, const net *n, progress *p) {
  int64_t states = n->layers * n->directions;
  PX_TRY(px_alloc((void **)&p->h, (size_t)states * sizeof *p->h));
  if (n->c) PX_TRY(px_alloc((void **)&p->c, (size_t)states * sizeof *p->c));
  for (int64_t layer = 0; layer < n->layers; layer++) PX_TRY(run_layer(n, p, layer));
  PX_TRY(set_output(call, n, p));
  PX_TRY(px_stack(&call->results[1], p->h, states, 0));
  return n->c ? px_stack(&call->results[2], p->c, states, 0) : PX_OK;
}

// ---- nets run by a library

// True if a library may run the net. Its dropout uses another random sequence than Phlox, and its
// sums are not deterministic.
static bool library_allowed(const net *n) {
  return px__tensor_device(n->input).type == PX_CUDA && px_setting_get(PX_SETTING_CUDNN_ENABLED) &&
         !px_setting_get(PX_SETTING_DETERMINISTIC) &&
         (!n->train || n->dropout == 0 || n->layers == 1);
}

static bool needs_grad(const net *n) {
  bool needed = px__needs_grad(n->input) || px__needs_grad(n->h) || (n->c && px__needs_grad(n->c));
  for (int64_t k = 0; k < n->param_count; k++) needed |= px__needs_grad(n->params[k]);
  return needed && px_grad_enabled();
}

// Sets *done to false if no library supports the net.
static px_status run_library(px_call *call, const net *n, progress *p, bool *done) {
  PX_SCOPED(px_tensor) c_n = NULL;
  PX_SCOPED(px_tensor) output = NULL;
  PX_SCOPED(px_tensor) saved = NULL;
  px__recurrent_inputs w = {.rows = p->rows,
                            .h = n->h,
                            .c = n->c,
                            .batch_sizes = n->batch_sizes,
                            .params = n->params,
                            .param_count = n->param_count,
                            .layers = n->layers,
                            .mode = n->mode,
                            .has_biases = n->has_biases,
                            .bidirectional = n->bidirectional,
                            .tf32 = px_setting_get(PX_SETTING_CUDNN_RNN_TF32)};
  *done = px__recurrent_supported(&w);
  if (!*done) return PX_OK;
  PX_TRY(px_recurrent_whole(&output, &call->results[1], &c_n, &saved, w.rows, w.h, w.c, w.params,
                            w.param_count, w.batch_sizes, w.mode, w.has_biases, w.layers,
                            w.bidirectional, needs_grad(n), w.tf32));
  if (n->c) call->results[2] = PX_MOVE(c_n);
  PX_TRY(set_rows(p, &output));
  return set_output(call, n, p);
}

// ---- the ops

static px_status run(px_call *call, net *n) {
  progress p = {0};
  bool done = false;
  PX_TRY(check(n));
  px_status status = rows_of(&p.rows, n);
  if (status == PX_OK && !n->flat && library_allowed(n)) status = run_library(call, n, &p, &done);
  if (status == PX_OK && !done) status = all_layers(call, n, &p);
  for (int64_t k = 0; k < n->layers * n->directions; k++) {
    if (p.h) px_release(p.h[k]);
    if (p.c) px_release(p.c[k]);
  }
  px_free(p.h);
  px_free(p.c);
  px_release(p.rows);
  return status;
}

PX_RUN(lstm) {
  net n = NET("lstm", args);
  n.input = args->input, n.batch_first = args->batch_first;
  PX_TRY(two_states(&n, args->hx, "lstm"));
  return run(call, &n);
}
PX_RUN(lstm_packed) {
  net n = NET("lstm", args);
  n.input = args->data, n.batch_sizes = args->batch_sizes;
  PX_TRY(two_states(&n, args->hx, "lstm"));
  return run(call, &n);
}

#define ONE_STATE(name) \
  PX_RUN(name) { \
    net n = NET(#name, args); \
    n.input = args->input, n.h = args->hx, n.batch_first = args->batch_first; \
    return run(call, &n); \
  } \
  PX_RUN(name##_packed) { \
    net n = NET(#name, args); \
    n.input = args->data, n.batch_sizes = args->batch_sizes, n.h = args->hx; \
    return run(call, &n); \
  }
ONE_STATE(gru)
ONE_STATE(rnn_tanh)
ONE_STATE(rnn_relu)

PX_RUN(recurrent_layers) {
  net n = {.mode = args->mode,
           .input = args->rows,
           .batch_sizes = args->batch_sizes,
           .h = args->h,
           .c = args->c,
           .params = args->params.v.tensors,
           .param_count = args->params.n,
           .layers = args->num_layers,
           .has_biases = args->has_biases,
           .bidirectional = args->bidirectional,
           .flat = true};
  PX_TRY(run(call, &n));
  if (n.c) return PX_OK;
  return px_tensor_empty(&call->results[2], 1, (int64_t[]){0}, (px_dtype)n.h->dtype,
                         px__tensor_device(n.h));
}

// ---- one step

typedef struct step {
  const char *mode;
  int gates;
  const px_tensor *input, *h, *c, *w_ih, *w_hh, *b_ih, *b_hh;
} step;

static px_status check_step(const step *s) {
  const px_tensor *states[] = {s->h, s->c}, *input = s->input;
  PX_CHECK(input->ndim == 2, PX_RUNTIME, "Expected 2D input (batch x feature), but got %dD input",
           input->ndim);
  PX_CHECK(s->w_ih->ndim == 2 && s->w_hh->ndim == 2, PX_RUNTIME, "expected weights to be matrices");
  PX_CHECK(input->sizes[1] == s->w_ih->sizes[1], PX_RUNTIME,
           "input has inconsistent input_size: got %lld expected %lld", (long long)input->sizes[1],
           (long long)s->w_ih->sizes[1]);
  int64_t size = s->w_hh->sizes[1];
  for (int i = 0; i < 2 && states[i]; i++) {
    PX_CHECK(states[i]->ndim == 2, PX_RUNTIME, "Expected 2D hidden%d, but got %dD", i,
             states[i]->ndim);
    PX_CHECK(states[i]->sizes[0] == input->sizes[0], PX_RUNTIME,
             "Input batch size %lld doesn't match hidden%d batch size %lld",
             (long long)input->sizes[0], i, (long long)states[i]->sizes[0]);
    PX_CHECK(states[i]->sizes[1] == size, PX_RUNTIME,
             "hidden%d has inconsistent hidden_size: got %lld, expected %lld", i,
             (long long)states[i]->sizes[1], (long long)size);
  }
  PX_CHECK(s->w_ih->sizes[0] == px__product(s->gates, size), PX_RUNTIME,
           "weight_ih first dim must be %d * hidden_size = %lld, but got %lld", s->gates,
           (long long)(px__product(s->gates, size)), (long long)s->w_ih->sizes[0]);
  return PX_OK;
}

#define STEP(mode_name, count, a) \
  { \
    .mode = mode_name, .gates = count, .input = (a)->input, .w_ih = (a)->w_ih, .w_hh = (a)->w_hh, \
    .b_ih = (a)->b_ih, .b_hh = (a)->b_hh \
  }

PX_RUN(lstm_cell) {
  step s = STEP("lstm", 4, args);
  PX_CHECK(args->hx.n == 2, PX_RUNTIME, "lstm_cell expects two hidden states");
  s.h = args->hx.v.tensors[0], s.c = args->hx.v.tensors[1];
  return check_step(&s);
}

#define ONE_STATE_STEP(name, count) \
  PX_RUN(name##_cell) { \
    step s = STEP(#name, count, args); \
    s.h = args->hx; \
    return check_step(&s); \
  }
ONE_STATE_STEP(gru, 3)
ONE_STATE_STEP(rnn_tanh, 1)
ONE_STATE_STEP(rnn_relu, 1)
