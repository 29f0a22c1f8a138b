// SPDX-License-Identifier: Apache-2.0
// Forward functions of recurrent layers and cells: PyTorch's checks with its texts, default states,
// and the batch dimension of unbatched input.
#include "layer_functions.h"
#include "nn/module/nn_impl.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/recurrent.h"
#include "phlox/ops/view.h"

#include <stdio.h>

static int64_t int_of(const px_module *self, const char *name) {
  px_value value = px_module_attribute(self, name);
  return value.kind == PX_ARG_NONE ? 0 : px_value_int(value);
}
static bool is_relu(const px_module *self) {
  return !strcmp(px_module_attribute(self, "nonlinearity").v.text, "relu");
}

px_status px__rnn_init(px_module *self) {
  const char *name = px_module_attribute(self, "nonlinearity").v.text;
  PX_CHECK(!strcmp(name, "tanh") || !strcmp(name, "relu"), PX_VALUE,
           "Unknown nonlinearity '%s'. Select from 'tanh' or 'relu'.", name);
  return PX_OK;
}

// ---- arguments of a call

enum { STATES = 2 };
typedef struct call {
  px_module *self;
  px_tensor *sizes;  // of a packed sequence, or NULL; borrowed, like the weights
  px_tensor *input;  // with batch dimension
  px_tensor *states[STATES];
  int state_count;
  bool batched;  // the caller's input had a batch dimension
  px_tensor **weights;
  int weight_count;
} call;

static void call_end(call *c) {
  px_release(c->input);
  for (int i = 0; i < STATES; i++) px_release(c->states[i]);
  px_free(c->weights);
}

static px_status read_weights(call *c) {
  enum { NAME = 64 };
  char name[NAME];
  while (px_module_tensor_name(c->self, c->weight_count, name, NAME)) c->weight_count++;
  PX_TRY(px_alloc((void **)&c->weights, (size_t)c->weight_count * sizeof *c->weights));
  for (int i = 0; i < c->weight_count; i++) {
    px_module_tensor_name(c->self, i, name, NAME);
    c->weights[i] = px__tensor_of(c->self, name);
    PX_CHECK(c->weights[i], PX_ATTRIBUTE, "'%s' object has no attribute '%s'", c->self->kind->name,
             name);
  }
  return PX_OK;
}

static px_status check_ndim(const call *c, const px_tensor *input) {
  const char *name = c->self->kind->name;
  int ndim = px_tensor_ndim(input);
  if (c->sizes) return PX_OK;
  PX_CHECK(ndim == 2 || ndim == 3, PX_VALUE, "%s: Expected input to be 2D or 3D, got %dD%s instead",
           name, ndim, strcmp(name, "RNN") ? "" : " tensor");
  return PX_OK;
}

static px_status check_state_ndims(const call *c, px_tensor *const *states) {
  int expected = c->batched ? 3 : 2;
  const char *batched = c->batched ? "batched" : "unbatched";
  if (c->sizes || !states[0]) return PX_OK;
  int first = px_tensor_ndim(states[0]);
  if (c->state_count == 1) {
    PX_CHECK(first == expected, PX_RUNTIME,
             "For %s %d-D input, hx should also be %d-D but got %d-D tensor", batched, expected,
             expected, first);
    return PX_OK;
  }
  int second = px_tensor_ndim(states[1]);
  PX_CHECK(first == expected && second == expected, PX_RUNTIME,
           "For %s %d-D input, hx and cx should also be %d-D but got (%d-D, %d-D) tensors", batched,
           expected, expected, first, second);
  return PX_OK;
}

static px_status check_input(const call *c) {
  int ndim = px_tensor_ndim(c->input), expected = c->sizes ? 2 : 3;
  const char *mine = px_dtype_name(px_tensor_dtype(c->input));
  const char *own = px_dtype_name(px_tensor_dtype(c->weights[0]));
  PX_CHECK(!strcmp(mine, own), PX_VALUE,
           "RNN input dtype (torch.%s) does not match weight dtype (torch.%s). Convert input: "
           "input.to(torch.%s), or convert model: model.to(torch.%s)",
           mine, own, own, mine);
  PX_CHECK(ndim == expected, PX_RUNTIME, "input must have %d dimensions, got %d", expected, ndim);
  int64_t size = int_of(c->self, "input_size"), got = px_tensor_size(c->input, -1);
  PX_CHECK(size == got, PX_RUNTIME,
           "input.size(-1) must be equal to input_size. Expected %lld, got %lld", (long long)size,
           (long long)got);
  return PX_OK;
}

// ---- states

static void state_sizes(const call *c, int i, int64_t batch, int64_t sizes[3]) {
  int64_t projected = int_of(c->self, "proj_size");
  sizes[0] = int_of(c->self, "num_layers") * (1 + int_of(c->self, "bidirectional"));
  sizes[1] = batch;
  sizes[2] = i == 0 && projected > 0 ? projected : int_of(c->self, "hidden_size");
}

static px_status check_state(const call *c, int i, const int64_t sizes[3]) {
  const px_tensor *state = c->states[i];
  enum { TEXT_SIZE = PX_MAX_DIMS * 24 };
  int ndim = px_tensor_ndim(state);
  char at[16] = "";
  if (c->state_count > 1) snprintf(at, sizeof at, "[%d]", i);
  PX_CHECK(px_tensor_has_sizes(state, 3, sizes), PX_RUNTIME,
           "Expected hidden%s size (%lld, %lld, %lld), got [%s]", at, (long long)sizes[0],
           (long long)sizes[1], (long long)sizes[2],
           px__comma_text((char[TEXT_SIZE]){0}, TEXT_SIZE, ndim, px_tensor_sizes(state)));
  return PX_OK;
}

static px_status batch_of(int64_t *out, const call *c) {
  if (!c->sizes) {
    *out = px_tensor_size(c->input, int_of(c->self, "batch_first") ? 0 : 1);
    return PX_OK;
  }
  PX_SCOPED(px_tensor) first = NULL;
  px_scalar number;
  PX_CHECK(px_tensor_ndim(c->sizes) == 1 && px_tensor_numel(c->sizes) > 0, PX_RUNTIME,
           "batch_sizes must be a 1-D tensor with an element for each time");
  PX_TRY(px_select(&first, c->sizes, 0, 0));
  PX_TRY(px_tensor_item(&number, first));
  *out = px_scalar_int(number);
  return PX_OK;
}

// Sets the states: the given ones with a batch dimension, or zeros.
static px_status open_states(call *c, px_tensor *const *states) {
  int64_t batch = 0, sizes[3];
  PX_TRY(batch_of(&batch, c));
  for (int i = 0; i < c->state_count; i++) {
    state_sizes(c, i, batch, sizes);
    if (!states[i])
      PX_TRY(px_zeros(&c->states[i], sizes, 3, px_tensor_dtype(c->input),
                      px_tensor_device(c->input), false, false));
    else if (c->batched)
      c->states[i] = px_retain(states[i]);
    else
      PX_TRY(px_unsqueeze(&c->states[i], states[i], 1));
    PX_TRY(check_state(c, i, sizes));
  }
  return PX_OK;
}

static px_status open_call(call *c, px_tensor *input, px_tensor *const *states) {
  int batch_dim = int_of(c->self, "batch_first") ? 0 : 1;
  PX_TRY(check_ndim(c, input));
  c->batched = c->sizes || px_tensor_ndim(input) == 3;
  PX_CHECK(c->state_count == 1 || !states[0] == !states[1], PX_TYPE,
           "%s: expected two states or none", c->self->kind->name);
  PX_TRY(check_state_ndims(c, states));
  if (c->batched)
    c->input = px_retain(input);
  else
    PX_TRY(px_unsqueeze(&c->input, input, batch_dim));
  PX_TRY(read_weights(c));
  PX_TRY(check_input(c));
  return open_states(c, states);
}

// ---- layers

// Moves the results, without the added batch dimension.
static px_status move_results(px_tensor **out, const call *c, px_tensor **made, int count) {
  int64_t batch_dim = int_of(c->self, "batch_first") ? 0 : 1, state_dim = 1;
  for (int i = 0; i < count; i++)
    if (c->batched)
      out[i] = PX_MOVE(made[i]);
    else
      PX_TRY(px_squeeze_dim(&out[i], made[i], i ? &state_dim : &batch_dim, 1));
  return PX_OK;
}

static px_status run_lstm(px_tensor **out, const call *c) {
  px_module *self = c->self;
  bool bias = int_of(self, "bias"), both = int_of(self, "bidirectional"),
       train = px__training(self);
  int64_t layers = int_of(self, "num_layers");
  double dropout = px__float_of(self, "dropout");
  if (c->sizes)
    return px_lstm_packed(&out[0], &out[1], &out[2], c->input, c->sizes, c->states, 2, c->weights,
                          c->weight_count, bias, layers, dropout, train, both);
  return px_lstm(&out[0], &out[1], &out[2], c->input, c->states, 2, c->weights, c->weight_count,
                 bias, layers, dropout, train, both, int_of(self, "batch_first"));
}

// Ops of a network with one state, for padded and for packed sequences.
typedef struct one_state {
  px_status (*padded)(px_tensor **output, px_tensor **h_n, const px_tensor *input,
                      const px_tensor *hx, px_tensor *const *params, int64_t params_n,
                      bool has_biases, int64_t num_layers, double dropout, bool train,
                      bool bidirectional, bool batch_first);
  px_status (*packed)(px_tensor **output, px_tensor **h_n, const px_tensor *data,
                      const px_tensor *batch_sizes, const px_tensor *hx, px_tensor *const *params,
                      int64_t params_n, bool has_biases, int64_t num_layers, double dropout,
                      bool train, bool bidirectional);
} one_state;

static px_status run_one_state(px_tensor **out, const call *c, const one_state *ops) {
  px_module *self = c->self;
  bool bias = int_of(self, "bias"), both = int_of(self, "bidirectional"),
       train = px__training(self);
  int64_t layers = int_of(self, "num_layers");
  double dropout = px__float_of(self, "dropout");
  if (c->sizes)
    return ops->packed(&out[0], &out[1], c->input, c->sizes, c->states[0], c->weights,
                       c->weight_count, bias, layers, dropout, train, both);
  return ops->padded(&out[0], &out[1], c->input, c->states[0], c->weights, c->weight_count, bias,
                     layers, dropout, train, both, int_of(self, "batch_first"));
}

// `ops` NULL: LSTM, with two states.
static px_status run(px_tensor **out, px_module *self, px_tensor *input, px_tensor *const *states,
                     px_tensor *batch_sizes, const one_state *ops) {
  call c = {.self = self, .state_count = ops ? 1 : 2, .sizes = batch_sizes};
  px_tensor *made[1 + STATES] = {NULL};
  px_status status = open_call(&c, input, states);
  if (status == PX_OK) status = ops ? run_one_state(made, &c, ops) : run_lstm(made, &c);
  if (status == PX_OK) status = move_results(out, &c, made, 1 + c.state_count);
  for (int i = 0; i <= STATES; i++) px_release(made[i]);
  call_end(&c);
  return status;
}

px_status px__lstm_forward(px_tensor **out, px_module *self, const px__lstm_forward_args *args) {
  return run(out, self, args->input, args->hx, args->batch_sizes, NULL);
}
px_status px__gru_forward(px_tensor **out, px_module *self, const px__gru_forward_args *args) {
  static const one_state gru = {px_gru, px_gru_packed};
  return run(out, self, args->input, &args->hx, args->batch_sizes, &gru);
}
px_status px__rnn_forward(px_tensor **out, px_module *self, const px__rnn_forward_args *args) {
  static const one_state ops[] = {{px_rnn_tanh, px_rnn_tanh_packed},
                                  {px_rnn_relu, px_rnn_relu_packed}};
  return run(out, self, args->input, &args->hx, args->batch_sizes, &ops[is_relu(self)]);
}

// ---- cells

static px_status check_cell(const px_module *self, const px_tensor *input, px_tensor *const *states,
                            int count) {
  const char *name = self->kind->name;
  int ndim = px_tensor_ndim(input);
  PX_CHECK(ndim == 1 || ndim == 2, PX_VALUE, "%s: Expected input to be 1D or 2D, got %dD instead",
           name, ndim);
  for (int i = 0; i < count; i++) {
    char which[16] = "hidden";
    if (!states[i]) continue;
    if (count > 1) snprintf(which, sizeof which, "hx[%d]", i);
    ndim = px_tensor_ndim(states[i]);
    PX_CHECK(ndim == 1 || ndim == 2, PX_VALUE, "%s: Expected %s to be 1D or 2D, got %dD instead",
             name, which, ndim);
  }
  return PX_OK;
}

// Input and states of a cell, with batch dimension.
typedef struct cell {
  px_tensor *input, *states[STATES];
  bool batched;
  int count;  // of states
} cell;

static px_status with_batch(px_tensor **out, px_tensor *given, bool batched) {
  if (!batched) return px_unsqueeze(out, given, 0);
  *out = px_retain(given);
  return PX_OK;
}
// Missing states are zeros.
static px_status open_cell(cell *c, const px_module *self, px_tensor *input,
                           px_tensor *const *states) {
  PX_TRY(with_batch(&c->input, input, c->batched));
  for (int i = 0; i < c->count; i++) {
    int64_t sizes[] = {px_tensor_size(c->input, 0), int_of(self, "hidden_size")};
    if (states[i])
      PX_TRY(with_batch(&c->states[i], states[i], c->batched));
    else
      PX_TRY(px_zeros(&c->states[i], sizes, 2, px_tensor_dtype(input), px_tensor_device(input),
                      false, false));
  }
  return PX_OK;
}

typedef px_status (*cell_op)(px_tensor **out, const px_tensor *input, const px_tensor *hx,
                             const px_tensor *w_ih, const px_tensor *w_hh, const px_tensor *b_ih,
                             const px_tensor *b_hh);

// `op` NULL: LSTM cell.
static px_status step(px_tensor **made, const px_module *self, const cell *c, cell_op op) {
  const px_tensor *w_ih = px__tensor_of(self, "weight_ih"),
                  *w_hh = px__tensor_of(self, "weight_hh");
  const px_tensor *b_ih = px__tensor_of(self, "bias_ih"), *b_hh = px__tensor_of(self, "bias_hh");
  if (op) return op(&made[0], c->input, c->states[0], w_ih, w_hh, b_ih, b_hh);
  return px_lstm_cell(&made[0], &made[1], c->input, c->states, c->count, w_ih, w_hh, b_ih, b_hh);
}

static px_status run_cell(px_tensor **out, px_module *self, px_tensor *input,
                          px_tensor *const *states, cell_op op) {
  cell c = {.count = op ? 1 : 2};
  int64_t batch_dim = 0;
  px_tensor *made[STATES] = {NULL};
  PX_TRY(check_cell(self, input, states, c.count));
  c.batched = px_tensor_ndim(input) == 2;
  px_status status = open_cell(&c, self, input, states);
  if (status == PX_OK) status = step(made, self, &c, op);
  for (int i = 0; i < c.count && status == PX_OK; i++)
    if (c.batched)
      out[i] = PX_MOVE(made[i]);
    else
      status = px_squeeze_dim(&out[i], made[i], &batch_dim, 1);
  px_release(c.input);
  for (int i = 0; i < STATES; i++) px_release(c.states[i]);
  for (int i = 0; i < STATES; i++) px_release(made[i]);
  return status;
}

px_status px__lstm_cell_forward(px_tensor **out, px_module *self,
                                const px__lstm_cell_forward_args *args) {
  return run_cell(out, self, args->input, args->hx, NULL);
}
px_status px__gru_cell_forward(px_tensor **out, px_module *self,
                               const px__gru_cell_forward_args *args) {
  return run_cell(out, self, args->input, &args->hx, px_gru_cell);
}
px_status px__rnn_cell_forward(px_tensor **out, px_module *self,
                               const px__rnn_cell_forward_args *args) {
  const char *name = px_module_attribute(self, "nonlinearity").v.text;
  PX_CHECK(is_relu(self) || !strcmp(name, "tanh"), PX_RUNTIME, "Unknown nonlinearity: %s", name);
  return run_cell(out, self, args->input, &args->hx,
                  is_relu(self) ? px_rnn_relu_cell : px_rnn_tanh_cell);
}
