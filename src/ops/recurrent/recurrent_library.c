// SPDX-License-Identifier: Apache-2.0
// Run functions of recurrent nets executed by a library of the backend (cuDNN).
//
// The library requires all weights in one buffer in its own layout, and saves data for the backward
// pass in a buffer of its own size. Both are parts of one tensor, `saved`, with the weights first.
// The backend returns the sizes and the offsets (px_backend.recurrent_plan). Its kernels run the
// net.
#include "ops/recurrent/recurrent_impl.h"
#include "hidden/recurrent.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "run_functions/recurrent.h"

enum { UNIT = 512 };  // bytes: alignment of the data for the backward pass

// A net and the library's plan for it.
typedef struct plan {
  px_recurrent_net net;
  int64_t *offsets, params;  // owned: the offset of each weight, in elements; their number
  int64_t weights, all;      // elements of saved: of the weights, and in total
  px_device device;
  px_dtype dtype;
} plan;

static void plan_end(plan *p) { px__free(p->offsets); }

// ---- arguments of the library

static int gates_of(const char *mode) {
  static const struct {
    const char *mode;
    int gates;
  } modes[] = {{"lstm", 4}, {"gru", 3}, {"rnn_tanh", 1}, {"rnn_relu", 1}};
  for (int i = 0; i < PX_COUNT_OF(modes); i++)
    if (!strcmp(modes[i].mode, mode)) return modes[i].gates;
  return 0;
}

// True if t has the given sizes and the dtype and device of the rows.
static bool like_rows(const px_tensor *t, const px_tensor *rows, int ndim, int64_t a, int64_t b,
                      int64_t c) {
  const int64_t sizes[] = {a, b, c};
  return t->dtype == rows->dtype && px__has_sizes(t, ndim, sizes) &&
         px_device_equal(px__tensor_device(t), px__tensor_device(rows));
}

// Sets the sizes of the k-th parameter and returns its number of dimensions.
static int param_sizes(int64_t sizes[2], const px_recurrent_net *net, int64_t k) {
  int each = px__recurrent_param_count(net);
  int64_t gates = gates_of(net->mode), position = k % each, layer = k / each / net->directions;
  bool hr = net->projected && position == each - 1;
  sizes[0] = hr ? net->width : gates * net->hidden;
  sizes[1] = hr              ? net->hidden
             : position == 1 ? net->width
             : layer         ? net->directions * net->width
                             : net->input;
  return hr || position < 2 ? 2 : 1;
}

// Sets the number of time steps and the rows of each. Returns false if they are inconsistent.
static bool read_counts(px_recurrent_net *net, const px_tensor *sizes, int64_t rows) {
  if (!sizes) return net->times = rows / net->batch, rows % net->batch == 0;
  if (sizes->ndim != 1 || sizes->dtype != PX_INT64 || !sizes->contiguous ||
      px__tensor_device(sizes).type != PX_CPU)
    return false;
  const int64_t *counts;
  if (px__tensor_read(&counts, sizes) != PX_OK)
    return px_error_clear(), false;  // recurrent_layer reports the error
  net->counts = counts;
  int64_t sum = 0, before = net->batch;
  net->times = sizes->numel;
  for (int64_t t = 0; t < net->times; before = counts[t++]) {
    if (counts[t] <= 0 || counts[t] > before || counts[t] > rows - sum) return false;
    sum += counts[t];
  }
  return net->times > 0 && counts[0] == net->batch && sum == rows;
}

static bool fits_in_int(int64_t a, int64_t b) {
  int64_t all;
  return !__builtin_mul_overflow(a, b, &all) && all <= INT32_MAX;
}

// Describes the net for the library. Returns false if the arguments are inconsistent.
// recurrent_layer then reports the error.
static bool describe(px_recurrent_net *net, const px__recurrent_inputs *w) {
  const px_tensor *rows = w->rows, *h = w->h, *c = w->c;
  int directions = w->bidirectional ? 2 : 1, gates = gates_of(w->mode);
  if (!gates || rows->ndim != 2 || h->ndim != 3 || !c != (gates != 4) || (c && c->ndim != 3) ||
      w->layers < 1 || w->layers > INT32_MAX / 16)
    return false;
  int64_t states = w->layers * directions, batch = h->sizes[1], width = h->sizes[2];
  *net = (px_recurrent_net){.mode = w->mode,
                            .dtype = rows->dtype,
                            .layers = (int)w->layers,
                            .directions = directions,
                            .has_biases = w->has_biases,
                            .tf32 = w->tf32,
                            .input = rows->sizes[1],
                            .hidden = c ? c->sizes[2] : width,
                            .width = width,
                            .batch = batch};
  net->projected = net->hidden != width;
  if (!like_rows(h, rows, 3, states, batch, width) ||
      (c && !like_rows(c, rows, 3, states, batch, net->hidden)))
    return false;
  if (rows->numel == 0 || h->numel == 0 || net->hidden < width ||
      !fits_in_int(rows->sizes[0], 8 * (net->hidden + net->input)) ||
      !fits_in_int(8 * net->hidden, net->hidden + net->input))
    return false;
  return read_counts(net, w->batch_sizes, rows->sizes[0]);
}

static bool has_params(const px_recurrent_net *net, const px__recurrent_inputs *w) {
  if (w->param_count != (int64_t)net->layers * net->directions * px__recurrent_param_count(net))
    return false;
  for (int64_t k = 0; k < w->param_count; k++) {
    int64_t sizes[2];
    int ndim = param_sizes(sizes, net, k);
    if (!like_rows(w->params[k], w->rows, ndim, sizes[0], sizes[1], 0)) return false;
  }
  return true;
}

bool px__recurrent_supported(const px__recurrent_inputs *w) {
  px_recurrent_net net;
  return px__tensor_device(w->rows).type == PX_CUDA && describe(&net, w) && has_params(&net, w) &&
         px__recurrent_plan(px__tensor_device(w->rows), &net, NULL, NULL);
}

// Sets *out to true if there is a plan. The caller must then call plan_end.
static px_status make_plan(plan *p, const px__recurrent_inputs *w, bool *out) {
  px_recurrent_sizes needed;
  *p = (plan){.device = px__tensor_device(w->rows), .dtype = (px_dtype)w->rows->dtype};
  *out = false;
  if (p->device.type != PX_CUDA || !describe(&p->net, w)) return PX_OK;
  p->params = (int64_t)p->net.layers * p->net.directions * px__recurrent_param_count(&p->net);
  PX_TRY(px__alloc((void **)&p->offsets, (size_t)p->params * sizeof *p->offsets));
  *out = px__recurrent_plan(p->device, &p->net, &needed, p->offsets);
  if (!*out) return plan_end(p), PX_OK;
  size_t item = px__item(w->rows), weights = (needed.weights + UNIT - 1) / UNIT * UNIT;
  p->weights = (int64_t)(weights / item);
  p->all = (int64_t)((weights + needed.kept + item - 1) / item);
  return PX_OK;
}

// ---- the weights

// A view of the k-th parameter in the buffer of weights.
static px_status param_at(px_tensor **out, const plan *p, const px_tensor *weights, int64_t k) {
  int64_t sizes[2], strides[2] = {1, 1};
  int ndim = param_sizes(sizes, &p->net, k);
  if (ndim == 2) strides[0] = sizes[1];
  return px__tensor_view(out, weights, ndim, sizes, strides, weights->offset + p->offsets[k]);
}

static px_status fill_weights(const plan *p, const px_tensor *weights, px_tensor *const *params) {
  for (int64_t k = 0; k < p->params; k++) {
    PX_SCOPED(px_tensor) to = NULL;
    PX_TRY(param_at(&to, p, weights, k));
    PX_TRY(px__tensor_copy(to, params[k], false));
  }
  return PX_OK;
}

static px_status empty_vector(px_tensor **out, const plan *p, int64_t numel) {
  return px_tensor_empty(out, 1, &numel, p->dtype, p->device);
}
// Views of the weights and of the data for the backward pass.
static px_status parts(px_tensor **weights, px_tensor **kept, const plan *p, const px_tensor *all) {
  PX_TRY(px__part_slice(weights, all, 0, 0, p->weights, 1));
  return px__part_slice(kept, all, 0, p->weights, p->all - p->weights, 1);
}

// ---- forward

// The non-tensor arguments of the kernels.
enum { KERNEL_ARGS = 4 };
static void set_kernel_args(px_value kernel_args[KERNEL_ARGS], const plan *p) {
  kernel_args[0] = p->net.counts ? PX_IS(p->net.counts, p->net.times) : PX_IS(NULL, 0);
  kernel_args[1] = PX_TX(p->net.mode), kernel_args[2] = PX_B(p->net.has_biases),
  kernel_args[3] = PX_B(p->net.tf32);
}

static px_status empty_as(px_tensor **out, const px_tensor *t) {
  return px_tensor_empty(out, t->ndim, t->sizes, (px_dtype)t->dtype, px__tensor_device(t));
}
static px_status empty_state(px_tensor **out, const px_tensor *t, const plan *p) {
  return t ? empty_as(out, t) : empty_vector(out, p, 0);
}

static px_status forward(px_call *call, const plan *p, const px__recurrent_inputs *w, bool keeps) {
  static px__named_kernel kernel = {.name = "recurrent_whole"};
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  px_value kernel_args[KERNEL_ARGS];
  px_tensor **results = call->results;
  int64_t sizes[] = {w->rows->sizes[0], p->net.directions * p->net.width};
  PX_TRY(empty_vector(&all, p, keeps ? p->all : p->weights));
  if (keeps)
    PX_TRY(parts(&weights, &kept, p, all));
  else
    weights = px_retain(all);
  PX_TRY(fill_weights(p, weights, w->params));
  PX_TRY(px_tensor_empty(&results[0], 2, sizes, p->dtype, p->device));
  PX_TRY(empty_as(&results[1], w->h));
  PX_TRY(empty_state(&results[2], w->c, p));
  set_kernel_args(kernel_args, p);
  px_tensor *written[] = {results[0], results[1], w->c ? results[2] : NULL, kept};
  px_tensor *read[] = {(px_tensor *)w->rows, (px_tensor *)w->h, (px_tensor *)w->c, weights};
  PX_TRY(px__run_kernel(&kernel, p->device, 4, written, 4, read, kernel_args, KERNEL_ARGS));
  if (!keeps) return empty_vector(&results[3], p, 0);
  results[3] = PX_MOVE(all);
  return PX_OK;
}

static px_status run_layers(px_call *call, const px__recurrent_inputs *w) {
  px_tensor **results = call->results;
  PX_TRY(px_recurrent_layers(&results[0], &results[1], &results[2], w->rows, w->h, w->c, w->params,
                             w->param_count, w->batch_sizes, w->mode, w->has_biases, w->layers,
                             w->bidirectional));
  return px_tensor_empty(&results[3], 1, (int64_t[]){0}, (px_dtype)w->rows->dtype,
                         px__tensor_device(w->rows));
}

#define INPUTS(a) \
  { \
    .rows = (a)->rows, .h = (a)->h, .c = (a)->c, .batch_sizes = (a)->batch_sizes, \
    .mode = (a)->mode, .layers = (a)->num_layers, .has_biases = (a)->has_biases, \
    .bidirectional = (a)->bidirectional, .tf32 = (a)->tf32 \
  }

PX_RUN(recurrent_whole) {
  px__recurrent_inputs w = INPUTS(args);
  plan p;
  bool planned = false;
  w.params = args->params.v.tensors, w.param_count = args->params.n;
  if (px__recurrent_supported(&w)) PX_TRY(make_plan(&p, &w, &planned));
  if (planned) {
    px_status status = forward(call, &p, &w, args->keeps);
    plan_end(&p);
    PX_TRY(status);
  } else {
    PX_TRY(run_layers(call, &w));
  }
  call->device = px__tensor_device(w.rows);
  return PX_OK;
}

// ---- backward

static px_status check_plan(const plan *p, bool planned, const px_tensor *rows, const char *op,
                            const px_tensor *t, int64_t numel) {
  PX_CHECK(planned, PX_UNIMPLEMENTED, "%s has no kernel for device type %s (dtype %s)", op,
           px_device_type_name(px__tensor_device(rows).type), px_dtype_name((px_dtype)rows->dtype));
  PX_CHECK(
      like_rows(t, rows, 1, numel, 0, 0) && t->contiguous, PX_RUNTIME,
      "%s: expected a contiguous vector of %lld elements with the dtype and device of the rows", op,
      (long long)numel);
  return PX_OK;
}

static px_status check_like(const px_tensor *t, const px_tensor *like, const char *name) {
  PX_CHECK(
      !t || (like && t->dtype == like->dtype && px__has_sizes(t, like->ndim, like->sizes) &&
             px_device_equal(px__tensor_device(t), px__tensor_device(like))),
      PX_RUNTIME,
      "recurrent_whole_backward: expected %s to match the size, dtype and device of its tensor",
      name);
  return PX_OK;
}

static px_status grad_weights(px_call *call, const plan *p,
                              const px__recurrent_whole_backward_args *args, px_tensor *kept) {
  static px__named_kernel kernel = {.name = "recurrent_whole_weights"};
  px_value kernel_args[KERNEL_ARGS];
  set_kernel_args(kernel_args, p);
  PX_TRY(empty_vector(&call->results[3], p, p->weights));
  PX_TRY(px_zero_(call->results[3]));
  px_tensor *written[] = {call->results[3], kept};
  px_tensor *read[] = {args->rows, args->h, args->c, args->output};
  return px__run_kernel(&kernel, p->device, 2, written, 4, read, kernel_args, KERNEL_ARGS);
}

// The library overwrites the saved data. It gets a copy, since a second backward pass may follow.
static px_status backward(px_call *call, const plan *p,
                          const px__recurrent_whole_backward_args *args) {
  static px__named_kernel kernel = {.name = "recurrent_whole_back"};
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) saved = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) grad_output = px_retain(args->grad_output);
  px_tensor **results = call->results;
  px_value kernel_args[KERNEL_ARGS];
  PX_TRY(parts(&weights, &saved, p, args->saved));
  PX_TRY(empty_vector(&kept, p, p->all - p->weights));
  PX_TRY(px__tensor_copy(kept, saved, false));
  if (!grad_output) {
    PX_TRY(empty_as(&grad_output, args->output));
    PX_TRY(px_zero_(grad_output));
  }
  PX_TRY(empty_as(&results[0], args->rows));
  PX_TRY(empty_as(&results[1], args->h));
  PX_TRY(empty_state(&results[2], args->c, p));
  set_kernel_args(kernel_args, p);
  px_tensor *written[] = {results[0], results[1], args->c ? results[2] : NULL, kept};
  px_tensor *read[] = {args->output, grad_output, args->grad_h_n, args->grad_c_n,
                       args->h,      args->c,     weights};
  PX_TRY(px__run_kernel(&kernel, p->device, 4, written, 7, read, kernel_args, KERNEL_ARGS));
  return args->params ? grad_weights(call, p, args, kept) : empty_vector(&results[3], p, 0);
}

PX_RUN(recurrent_whole_backward) {
  px__recurrent_inputs w = INPUTS(args);
  plan p;
  bool planned;
  PX_TRY(check_like(args->grad_output, args->output, "grad_output"));
  PX_TRY(check_like(args->grad_h_n, args->h, "grad_h_n"));
  PX_TRY(check_like(args->grad_c_n, args->c, "grad_c_n"));
  PX_TRY(make_plan(&p, &w, &planned));
  px_status status =
      check_plan(&p, planned, w.rows, "recurrent_whole_backward", args->saved, p.all);
  if (status == PX_OK &&
      !like_rows(args->output, w.rows, 2, w.rows->sizes[0], p.net.directions * p.net.width, 0))
    status = px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                          "recurrent_whole_backward: expected output to match the rows");
  if (status == PX_OK) status = backward(call, &p, args);
  if (planned) plan_end(&p);
  return status;
}

static px_status list_params(px_call *call, const plan *p, const px_tensor *weights) {
  px_tensor **views;
  PX_TRY(px__alloc((void **)&views, (size_t)p->params * sizeof *views));
  px_status status = PX_OK;
  for (int64_t k = 0; k < p->params && status == PX_OK; k++)
    status = param_at(&views[k], p, weights, k);
  if (status == PX_OK) status = px_list_new(&call->list, views, p->params);
  for (int64_t k = 0; k < p->params; k++) px_release(views[k]);
  px__free(views);
  return status;
}

PX_RUN(recurrent_whole_params) {
  px__recurrent_inputs w = INPUTS(args);
  plan p;
  bool planned;
  PX_TRY(make_plan(&p, &w, &planned));
  px_status status =
      check_plan(&p, planned, w.rows, "recurrent_whole_params", args->weights, p.weights);
  if (status == PX_OK) status = list_params(call, &p, args->weights);
  if (planned) plan_end(&p);
  return status;
}
