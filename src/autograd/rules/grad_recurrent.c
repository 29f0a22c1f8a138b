// SPDX-License-Identifier: Apache-2.0
// Gradient of a recurrent layer. One op walks the time steps backward. Weight gradients are then
// products over all time steps at once. With create_graph the layer is recomputed with recorded
// ops.
#include "autograd/rules/backward.h"
#include "formulas.h"
#include "grad_functions.h"
#include "hidden/recurrent.h"
#include "phlox/autograd.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/index.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

#include <string.h>

// Intermediate gradients, with one row per step and sequence.
typedef struct traces {
  px_tensor *grad_gates, *grad_h, *grad_c, *grad_other;
} traces;

static void traces_end(traces *t) {
  px_release(t->grad_gates);
  px_release(t->grad_h);
  px_release(t->grad_c);
  px_release(t->grad_other);
}

// Gradient of a weight: row gradients times the multiplied inputs.
static px_status weight_gradient(px_tensor **out, const px_tensor *grad, const px_tensor *with) {
  PX_SCOPED(px_tensor) transposed = NULL;
  if (!out) return PX_OK;
  PX_TRY(px_t(&transposed, grad));
  return px_mm(out, transposed, with);
}
static px_status bias_gradient(px_tensor **out, const px_tensor *grad) {
  return out ? px_sum(out, grad, (int64_t[]){0}, 1, false, PX_DTYPE_NONE) : PX_OK;
}
// A matrix inside `saved` with `rows` rows.
static px_status saved_rows(px_tensor **out, const px_tensor *saved, int64_t at, int64_t rows,
                            int64_t columns) {
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(px_narrow(&flat, saved, 0, at, rows * columns));
  return px_view(out, flat, (int64_t[]){rows, columns}, 2);
}

static px_status parameters(const px__recurrent_layer_grad *args, const traces *t) {
  PX_SCOPED(px_tensor) h_before = NULL;
  PX_SCOPED(px_tensor) raw = NULL;
  bool gru = !strcmp(args->mode, "gru");
  const px_tensor *hidden = gru ? t->grad_other : t->grad_gates;
  int64_t rows = px_tensor_size(args->input, 0), width = px_tensor_size(args->w_hh, 1);
  PX_TRY(weight_gradient(args->d_w_ih, t->grad_gates, args->input));
  PX_TRY(bias_gradient(args->d_b_ih, t->grad_gates));
  PX_TRY(bias_gradient(args->d_b_hh, hidden));
  if (args->d_w_hh) PX_TRY(saved_rows(&h_before, args->saved, 0, rows, width));
  PX_TRY(weight_gradient(args->d_w_hh, hidden, h_before));
  if (!args->d_w_hr) return PX_OK;
  PX_TRY(saved_rows(&raw, args->saved, rows * width, rows, px_tensor_size(args->w_hr, 1)));
  return weight_gradient(args->d_w_hr, t->grad_other, raw);
}

static px_status all(const px__recurrent_layer_grad *args, traces *t) {
  PX_TRY(px_recurrent_layer_backward(
      &t->grad_gates, &t->grad_h, &t->grad_c, &t->grad_other, args->grad_output, args->grad_h_n,
      args->c ? args->grad_c_n : NULL, args->saved, args->w_hh, args->w_hr, args->batch_sizes,
      px_tensor_size(args->input, 0), px_tensor_size(args->h, 0), args->mode, args->reverse));
  PX_TRY(parameters(args, t));
  if (args->d_input) PX_TRY(px_mm(args->d_input, t->grad_gates, args->w_ih));
  if (args->d_h) *args->d_h = px_retain(t->grad_h);
  if (args->d_c) *args->d_c = px_retain(t->grad_c);
  return PX_OK;
}

// ---- recomputation with recorded ops

typedef const px__recurrent_layer_grad arguments;

// State during recomputation; h and c have one row per sequence.
typedef struct recomputation {
  px_tensor *gates;  // input contributions of all time steps
  px_tensor *h, *c;
} recomputation;

// Replaces the first rows of a state.
static px_status replace_rows(px_tensor **state, const px_tensor *first) {
  PX_SCOPED(px_tensor) before = PX_MOVE(*state);
  return px__formula_with_first_rows(state, (px_value[]){PX_T(before), PX_T(first)});
}
static px_status run_step(px_tensor **out, recomputation *x, arguments *args, int64_t first,
                          int64_t count) {
  px_tensor *made[2] = {NULL};
  PX_TRY(px__formula_recurrent_step(
      made, (px_value[]){PX_T(x->gates), PX_T(x->h), args->c ? PX_T(x->c) : PX_NONE(),
                         PX_T(args->w_hh), PX_T(args->b_hh), PX_T(args->w_hr), PX_TX(args->mode),
                         PX_I(first), PX_I(count)}));
  PX_SCOPED(px_tensor) c = made[1];
  *out = made[0];
  if (c) PX_TRY(replace_rows(&x->c, c));
  return replace_rows(&x->h, *out);
}

// Runs all time steps; outs[t] has the rows of step t.
static px_status run_steps(px_tensor **outs, recomputation *x, arguments *args,
                           const int64_t *counts, int64_t times) {
  int64_t rows = px_tensor_size(args->input, 0), batch = px_tensor_size(args->h, 0);
  int64_t first = args->reverse ? rows : 0;
  for (int64_t i = 0; i < times; i++) {
    int64_t t = args->reverse ? times - 1 - i : i, count = counts ? counts[t] : batch;
    if (args->reverse) first -= count;
    PX_TRY(run_step(&outs[t], x, args, first, count));
    if (!args->reverse) first += count;
  }
  return PX_OK;
}

static px_status layer_recomputed(px_tensor **output, recomputation *x, arguments *args) {
  int64_t rows = px_tensor_size(args->input, 0), batch = px_tensor_size(args->h, 0);
  void *counts = NULL;
  px_tensor **outs;
  if (args->batch_sizes) PX_TRY(px_tensor_host_data(&counts, args->batch_sizes));
  int64_t times = counts ? px_tensor_numel(args->batch_sizes) : batch ? rows / batch : 0;
  PX_TRY(px_linear(&x->gates, args->input, args->w_ih, args->b_ih));
  x->h = px_retain((px_tensor *)args->h), x->c = px_retain((px_tensor *)args->c);
  PX_TRY(px_alloc((void **)&outs, (size_t)(times + 1) * sizeof *outs));
  px_status status = run_steps(outs, x, args, counts, times);
  if (status == PX_OK && times) status = px_cat(output, outs, times, 0);
  for (int64_t t = 0; t < times; t++) px_release(outs[t]);
  px_free(outs);
  return status;
}

// Gradients of the required inputs from the results with gradients. `own` has a separate view per
// argument, since one tensor may be passed for several.
static px_status recomputed_gradients(arguments *own, const recomputation *x, px_tensor *output) {
  const struct {
    px_tensor *result, *grad;
  } results[] = {{output, own->grad_output}, {x->h, own->grad_h_n}, {x->c, own->grad_c_n}};
  const struct {
    const px_tensor *tensor;
    px_tensor **to;
  } inputs[] = {{own->input, own->d_input}, {own->h, own->d_h},       {own->c, own->d_c},
                {own->w_ih, own->d_w_ih},   {own->w_hh, own->d_w_hh}, {own->b_ih, own->d_b_ih},
                {own->b_hh, own->d_b_hh},   {own->w_hr, own->d_w_hr}};
  enum { INPUTS = sizeof inputs / sizeof *inputs };
  px_tensor *from[3], *grads[3], *required[INPUTS], *got[INPUTS] = {NULL};
  int64_t from_count = 0, wanted_count = 0;
  for (int i = 0; i < 3; i++)
    if (results[i].result && results[i].grad)
      from[from_count] = results[i].result, grads[from_count++] = results[i].grad;
  for (int i = 0; i < INPUTS; i++)
    if (inputs[i].to) required[wanted_count++] = (px_tensor *)inputs[i].tensor;
  PX_TRY(px_grad(got, from_count, from, grads, wanted_count, required, true, true, true));
  for (int i = 0, k = 0; i < INPUTS; i++)
    if (inputs[i].to) *inputs[i].to = got[k++];
  return PX_OK;
}

static px_status recompute_layer(arguments *args) {
  recomputation x = {0};
  px__recurrent_layer_grad own = *args;
  PX_SCOPED(px_tensor) output = NULL;
  px_tensor **tensors[] = {&own.input, &own.h,    &own.c,    &own.w_ih,
                           &own.w_hh,  &own.b_ih, &own.b_hh, &own.w_hr};
  px_tensor *views[sizeof tensors / sizeof *tensors] = {NULL};
  px_status status = PX_OK;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors && status == PX_OK; i++) {
    const px_tensor *t = *tensors[i];
    if (t) status = px_view(&views[i], t, px_tensor_sizes(t), px_tensor_ndim(t));
    *tensors[i] = views[i];
  }
  if (status == PX_OK) status = layer_recomputed(&output, &x, &own);
  if (status == PX_OK && output) status = recomputed_gradients(&own, &x, output);
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) px_release(views[i]);
  px_release(x.gates);
  px_release(x.h);
  px_release(x.c);
  return status;
}

PX_GRAD(recurrent_layer) {
  PX_CHECK(
      !args->grad_saved, PX_UNIMPLEMENTED,
      "the gradient of a recurrent layer with respect to its saved tensors is not implemented");
  if (px_grad_enabled()) return recompute_layer(args);
  traces t = {0};
  px_status status = all(args, &t);
  traces_end(&t);
  return status;
}

// ---- whole networks

typedef const px__recurrent_whole_grad whole;

static px_status give_params(whole *args, const px_tensor *weights) {
  PX_SCOPED(px_list) parts = NULL;
  PX_TRY(px_recurrent_whole_params(&parts, weights, args->rows, args->h, args->c, args->batch_sizes,
                                   args->mode, args->has_biases, args->num_layers,
                                   args->bidirectional, args->tf32));
  for (int64_t k = 0; k < px_list_size(parts); k++)
    args->d_params[k] = px_retain(px_list_get(parts, k));
  return PX_OK;
}

static px_status by_library(whole *args) {
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) h = NULL;
  PX_SCOPED(px_tensor) c = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  PX_TRY(px_recurrent_whole_backward(
      &rows, &h, &c, &weights, args->grad_output, args->grad_h_n, args->c ? args->grad_c_n : NULL,
      args->rows, args->h, args->c, args->output, args->saved, args->batch_sizes, args->mode,
      args->has_biases, args->num_layers, args->bidirectional, args->tf32, args->d_params));
  if (args->d_params) PX_TRY(give_params(args, weights));
  if (args->d_rows) *args->d_rows = PX_MOVE(rows);
  if (args->d_h) *args->d_h = PX_MOVE(h);
  if (args->d_c) *args->d_c = PX_MOVE(c);
  return PX_OK;
}

// Views of the network's inputs, one per argument, since one tensor may be passed for several. The
// order is rows, h, c, params. `to`: destinations of the gradients, or NULL.
typedef struct net_views {
  int64_t count;
  px_tensor **own, **got;
  px_tensor ***to;
} net_views;

static void net_views_end(net_views *v) {
  for (int64_t i = 0; v->own && i < v->count; i++) px_release(v->own[i]);
  px_free(v->own);
  px_free(v->got);
  px_free((void *)v->to);
}

static px_status net_views_of(net_views *v, whole *args) {
  const px_tensor *first[] = {args->rows, args->h, args->c};
  px_tensor **to[] = {args->d_rows, args->d_h, args->d_c};
  size_t count = (size_t)(v->count = 3 + args->params.n);
  PX_TRY(px_alloc((void **)&v->own, count * sizeof *v->own));
  PX_TRY(px_alloc((void **)&v->got, count * sizeof *v->got));
  PX_TRY(px_alloc((void **)&v->to, count * sizeof *v->to));
  for (int64_t i = 0; i < v->count; i++) {
    const px_tensor *t = i < 3 ? first[i] : args->params.v.tensors[i - 3];
    if (t) PX_TRY(px_view(&v->own[i], t, px_tensor_sizes(t), px_tensor_ndim(t)));
    v->to[i] = i < 3 ? to[i] : args->d_params ? &args->d_params[i - 3] : NULL;
  }
  return PX_OK;
}

// Gradients of recorded inputs from the results with gradients.
static px_status net_gradients(whole *args, net_views *v, px_tensor *const results[3],
                               bool create_graph) {
  px_tensor *const grads[] = {args->grad_output, args->grad_h_n, args->grad_c_n};
  px_tensor *from[3], *of[3];
  int64_t from_count = 0, required = 0;
  for (int i = 0; i < 3; i++)
    if (grads[i] && (i < 2 || args->c)) from[from_count] = results[i], of[from_count++] = grads[i];
  if (!from_count) return PX_OK;
  px_tensor **inputs;
  PX_TRY(px_alloc((void **)&inputs, (size_t)v->count * sizeof *inputs));
  for (int64_t i = 0; i < v->count; i++)
    if (v->to[i] && px_tensor_is_recorded(v->own[i])) inputs[required++] = v->own[i];
  px_status status =
      px_grad(v->got, from_count, from, of, required, inputs, create_graph, create_graph, true);
  px_free(inputs);
  PX_TRY(status);
  for (int64_t i = 0, k = 0; i < v->count; i++)
    if (v->to[i] && px_tensor_is_recorded(v->own[i])) *v->to[i] = v->got[k++];
  return PX_OK;
}

// Recomputes the network by recorded layers.
static px_status recompute_net(whole *args, bool create_graph) {
  px_tensor *results[3] = {NULL};
  net_views v = {0};
  px_status status = net_views_of(&v, args);
  if (status == PX_OK)
    status = px_recurrent_layers(&results[0], &results[1], &results[2], v.own[0], v.own[1],
                                 v.own[2], v.own + 3, args->params.n, args->batch_sizes, args->mode,
                                 args->has_biases, args->num_layers, args->bidirectional);
  if (status == PX_OK) status = net_gradients(args, &v, results, create_graph);
  for (int i = 0; i < 3; i++) px_release(results[i]);
  net_views_end(&v);
  return status;
}

PX_GRAD(recurrent_whole) {
  PX_CHECK(
      !args->grad_saved, PX_UNIMPLEMENTED,
      "the gradient of a recurrent layer with respect to its saved tensors is not implemented");
  bool create_graph = px_grad_enabled();
  if (!create_graph && px_tensor_numel(args->saved)) return by_library(args);
  px_grad_set_enabled(true);
  px_status status = recompute_net(args, create_graph);
  px_grad_set_enabled(create_graph);
  return status;
}
