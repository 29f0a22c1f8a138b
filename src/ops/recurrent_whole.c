// SPDX-License-Identifier: Apache-2.0
// Recurrent nets that a library of the backend runs as a whole.
//
// The library has the weights in one piece, in an order of its own, and leaves in memory of a size
// of its own what its backward pass needs. Both lie in one tensor, `saved`, the weights first. The
// backend tells the sizes and the places (px_backend.recurrent_plan); its kernels do the rest.
#include "ops/recurrent_impl.h"
#include "hidden/recurrent.h"
#include "ops/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "run_functions/recurrent.h"

enum { UNIT = 512 };  // bytes: where what is kept begins

// A net with the library's plan for it.
typedef struct plan {
  px_recurrent_net net;
  int64_t *places, params;  // owned; of the weights
  int64_t weights, all;     // elements of saved: of the weights, and with what is kept
  px_device device;
  px_dtype dtype;
} plan;

static void plan_end(plan *p) { px__free(p->places); }

// ---- what the library is asked

static int gates_of(const char *mode) {
  static const struct {
    const char *mode;
    int gates;
  } modes[] = {{"lstm", 4}, {"gru", 3}, {"rnn_tanh", 1}, {"rnn_relu", 1}};
  for (int i = 0; i < PX_COUNT_OF(modes); i++)
    if (!strcmp(modes[i].mode, mode)) return modes[i].gates;
  return 0;
}

// Whether the tensor lies beside the rows and has these sizes.
static bool beside(const px_tensor *t, const px_tensor *rows, int ndim, int64_t a, int64_t b,
                   int64_t c) {
  const int64_t sizes[] = {a, b, c};
  return t->dtype == rows->dtype && px__has_sizes(t, ndim, sizes) &&
         px_device_equal(px__tensor_device(t), px__tensor_device(rows));
}

// The sizes of the k-th parameter, of those of a layer in one direction; returns how many.
static int param_sizes(int64_t sizes[2], const px_recurrent_net *net, int64_t k) {
  int each = px__recurrent_each(net);
  int64_t gates = gates_of(net->mode), which = k % each, layer = k / each / net->directions;
  bool hr = net->projected && which == each - 1;
  sizes[0] = hr ? net->width : gates * net->hidden;
  sizes[1] = hr           ? net->hidden
             : which == 1 ? net->width
             : layer      ? net->directions * net->width
                          : net->input;
  return hr || which < 2 ? 2 : 1;
}

// The times of a packed batch.
static bool read_counts(px_recurrent_net *net, const px_tensor *sizes, int64_t rows) {
  if (!sizes) return net->times = rows / net->batch, rows % net->batch == 0;
  if (sizes->ndim != 1 || sizes->dtype != PX_INT64 || !sizes->contiguous ||
      px__tensor_device(sizes).type != PX_CPU)
    return false;
  const int64_t *counts;
  if (px__tensor_read(&counts, sizes) != PX_OK) return px_error_clear(), false;  // told elsewhere
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

// Whether what is given makes a net that the library may be asked about. What does not fit, the
// layers tell.
static bool describe(px_recurrent_net *net, const px__whole *w) {
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
  if (!beside(h, rows, 3, states, batch, width) ||
      (c && !beside(c, rows, 3, states, batch, net->hidden)))
    return false;
  if (rows->numel == 0 || h->numel == 0 || net->hidden < width ||
      !fits_in_int(rows->sizes[0], 8 * (net->hidden + net->input)) ||
      !fits_in_int(8 * net->hidden, net->hidden + net->input))
    return false;
  return read_counts(net, w->batch_sizes, rows->sizes[0]);
}

static bool has_params(const px_recurrent_net *net, const px__whole *w) {
  if (w->param_count != (int64_t)net->layers * net->directions * px__recurrent_each(net))
    return false;
  for (int64_t k = 0; k < w->param_count; k++) {
    int64_t sizes[2];
    int ndim = param_sizes(sizes, net, k);
    if (!beside(w->params[k], w->rows, ndim, sizes[0], sizes[1], 0)) return false;
  }
  return true;
}

bool px__recurrent_serves(const px__whole *w) {
  px_recurrent_net net;
  return px__tensor_device(w->rows).type == PX_CUDA && describe(&net, w) && has_params(&net, w) &&
         px__recurrent_plan(px__tensor_device(w->rows), &net, NULL, NULL);
}

// *out says whether there is a plan; if so, plan_end is to be called.
static px_status make_plan(plan *p, const px__whole *w, bool *out) {
  px_recurrent_sizes room;
  *p = (plan){.device = px__tensor_device(w->rows), .dtype = (px_dtype)w->rows->dtype};
  *out = false;
  if (p->device.type != PX_CUDA || !describe(&p->net, w)) return PX_OK;
  p->params = (int64_t)p->net.layers * p->net.directions * px__recurrent_each(&p->net);
  PX_TRY(px__alloc((void **)&p->places, (size_t)p->params * sizeof *p->places));
  *out = px__recurrent_plan(p->device, &p->net, &room, p->places);
  if (!*out) return plan_end(p), PX_OK;
  size_t item = px__item(w->rows), weights = (room.weights + UNIT - 1) / UNIT * UNIT;
  p->weights = (int64_t)(weights / item);
  p->all = (int64_t)((weights + room.kept + item - 1) / item);
  return PX_OK;
}

// ---- the weights

// A view of the k-th parameter where it lies in the weights.
static px_status param_at(px_tensor **out, const plan *p, const px_tensor *weights, int64_t k) {
  int64_t sizes[2], strides[2] = {1, 1};
  int ndim = param_sizes(sizes, &p->net, k);
  if (ndim == 2) strides[0] = sizes[1];
  return px__tensor_view(out, weights, ndim, sizes, strides, weights->offset + p->places[k]);
}

static px_status fill_weights(const plan *p, const px_tensor *weights, px_tensor *const *params) {
  for (int64_t k = 0; k < p->params; k++) {
    PX_SCOPED(px_tensor) to = NULL;
    PX_TRY(param_at(&to, p, weights, k));
    PX_TRY(px__tensor_copy(to, params[k], false));
  }
  return PX_OK;
}

static px_status flat(px_tensor **out, const plan *p, int64_t numel) {
  return px_tensor_empty(out, 1, &numel, p->dtype, p->device);
}
// The two parts of what is saved.
static px_status parts(px_tensor **weights, px_tensor **kept, const plan *p, const px_tensor *all) {
  PX_TRY(px__part_slice(weights, all, 0, 0, p->weights, 1));
  return px__part_slice(kept, all, 0, p->weights, p->all - p->weights, 1);
}

// ---- forward

// What kernels are told of the net beside its tensors.
enum { TOLD = 4 };
static void tell(px_value told[TOLD], const plan *p) {
  told[0] = p->net.counts ? PX_IS(p->net.counts, p->net.times) : PX_IS(NULL, 0);
  told[1] = PX_TX(p->net.mode), told[2] = PX_B(p->net.has_biases), told[3] = PX_B(p->net.tf32);
}

static px_status empty_as(px_tensor **out, const px_tensor *t) {
  return px_tensor_empty(out, t->ndim, t->sizes, (px_dtype)t->dtype, px__tensor_device(t));
}
static px_status empty_state(px_tensor **out, const px_tensor *t, const plan *p) {
  return t ? empty_as(out, t) : flat(out, p, 0);
}

static px_status forward(px_call *call, const plan *p, const px__whole *w, bool keeps) {
  static px__named_kernel kernel = {.name = "recurrent_whole"};
  PX_SCOPED(px_tensor) all = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  px_value told[TOLD];
  px_tensor **results = call->results;
  int64_t sizes[] = {w->rows->sizes[0], p->net.directions * p->net.width};
  PX_TRY(flat(&all, p, keeps ? p->all : p->weights));
  if (keeps)
    PX_TRY(parts(&weights, &kept, p, all));
  else
    weights = px_retain(all);
  PX_TRY(fill_weights(p, weights, w->params));
  PX_TRY(px_tensor_empty(&results[0], 2, sizes, p->dtype, p->device));
  PX_TRY(empty_as(&results[1], w->h));
  PX_TRY(empty_state(&results[2], w->c, p));
  tell(told, p);
  px_tensor *written[] = {results[0], results[1], w->c ? results[2] : NULL, kept};
  px_tensor *read[] = {(px_tensor *)w->rows, (px_tensor *)w->h, (px_tensor *)w->c, weights};
  PX_TRY(px__run_kernel(&kernel, p->device, 4, written, 4, read, told, TOLD));
  if (!keeps) return flat(&results[3], p, 0);
  results[3] = PX_MOVE(all);
  return PX_OK;
}

static px_status by_layers(px_call *call, const px__whole *w) {
  px_tensor **results = call->results;
  PX_TRY(px_recurrent_layers(&results[0], &results[1], &results[2], w->rows, w->h, w->c, w->params,
                             w->param_count, w->batch_sizes, w->mode, w->has_biases, w->layers,
                             w->bidirectional));
  return px_tensor_empty(&results[3], 1, (int64_t[]){0}, (px_dtype)w->rows->dtype,
                         px__tensor_device(w->rows));
}

#define WHOLE(a) \
  { \
    .rows = (a)->rows, .h = (a)->h, .c = (a)->c, .batch_sizes = (a)->batch_sizes, \
    .mode = (a)->mode, .layers = (a)->num_layers, .has_biases = (a)->has_biases, \
    .bidirectional = (a)->bidirectional, .tf32 = (a)->tf32 \
  }

PX_RUN(recurrent_whole) {
  px__whole w = WHOLE(args);
  plan p;
  bool planned = false;
  w.params = args->params.v.tensors, w.param_count = args->params.n;
  if (px__recurrent_serves(&w)) PX_TRY(make_plan(&p, &w, &planned));
  if (planned) {
    px_status status = forward(call, &p, &w, args->keeps);
    plan_end(&p);
    PX_TRY(status);
  } else {
    PX_TRY(by_layers(call, &w));
  }
  call->device = px__tensor_device(w.rows);
  return PX_OK;
}

// ---- backward

static px_status check_plan(const plan *p, bool planned, const px_tensor *rows, const char *op,
                            const px_tensor *t, int64_t numel) {
  PX_CHECK(planned, PX_UNIMPLEMENTED, "%s has no kernel for device type %s (dtype %s)", op,
           px_device_type_name(px__tensor_device(rows).type), px_dtype_name((px_dtype)rows->dtype));
  PX_CHECK(beside(t, rows, 1, numel, 0, 0) && t->contiguous, PX_RUNTIME,
           "%s: expected %lld elements of one piece beside the rows", op, (long long)numel);
  return PX_OK;
}

static px_status check_like(const px_tensor *t, const px_tensor *like, const char *name) {
  PX_CHECK(!t || (like && t->dtype == like->dtype && px__has_sizes(t, like->ndim, like->sizes) &&
                  px_device_equal(px__tensor_device(t), px__tensor_device(like))),
           PX_RUNTIME, "recurrent_whole_backward: %s does not fit what it is a gradient of", name);
  return PX_OK;
}

static px_status grad_weights(px_call *call, const plan *p,
                              const px__recurrent_whole_backward_args *args, px_tensor *kept) {
  static px__named_kernel kernel = {.name = "recurrent_whole_weights"};
  px_value told[TOLD];
  tell(told, p);
  PX_TRY(flat(&call->results[3], p, p->weights));
  PX_TRY(px_zero_(call->results[3]));
  px_tensor *written[] = {call->results[3], kept};
  px_tensor *read[] = {args->rows, args->h, args->c, args->output};
  return px__run_kernel(&kernel, p->device, 2, written, 4, read, told, TOLD);
}

// What is kept is changed on the way; another backward pass may come, so it is a copy that is.
static px_status backward(px_call *call, const plan *p,
                          const px__recurrent_whole_backward_args *args) {
  static px__named_kernel kernel = {.name = "recurrent_whole_back"};
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) saved = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) grad_output = px_retain(args->grad_output);
  px_tensor **results = call->results;
  px_value told[TOLD];
  PX_TRY(parts(&weights, &saved, p, args->saved));
  PX_TRY(flat(&kept, p, p->all - p->weights));
  PX_TRY(px__tensor_copy(kept, saved, false));
  if (!grad_output) {
    PX_TRY(empty_as(&grad_output, args->output));
    PX_TRY(px_zero_(grad_output));
  }
  PX_TRY(empty_as(&results[0], args->rows));
  PX_TRY(empty_as(&results[1], args->h));
  PX_TRY(empty_state(&results[2], args->c, p));
  tell(told, p);
  px_tensor *written[] = {results[0], results[1], args->c ? results[2] : NULL, kept};
  px_tensor *read[] = {args->output, grad_output, args->grad_h_n, args->grad_c_n,
                       args->h,      args->c,     weights};
  PX_TRY(px__run_kernel(&kernel, p->device, 4, written, 7, read, told, TOLD));
  return args->params ? grad_weights(call, p, args, kept) : flat(&results[3], p, 0);
}

PX_RUN(recurrent_whole_backward) {
  px__whole w = WHOLE(args);
  plan p;
  bool planned;
  PX_TRY(check_like(args->grad_output, args->output, "grad_output"));
  PX_TRY(check_like(args->grad_h_n, args->h, "grad_h_n"));
  PX_TRY(check_like(args->grad_c_n, args->c, "grad_c_n"));
  PX_TRY(make_plan(&p, &w, &planned));
  px_status status =
      check_plan(&p, planned, w.rows, "recurrent_whole_backward", args->saved, p.all);
  if (status == PX_OK &&
      !beside(args->output, w.rows, 2, w.rows->sizes[0], p.net.directions * p.net.width, 0))
    status = px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                          "recurrent_whole_backward: output does not fit the rows");
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
  px__whole w = WHOLE(args);
  plan p;
  bool planned;
  PX_TRY(make_plan(&p, &w, &planned));
  px_status status =
      check_plan(&p, planned, w.rows, "recurrent_whole_params", args->weights, p.weights);
  if (status == PX_OK) status = list_params(call, &p, args->weights);
  if (planned) plan_end(&p);
  return status;
}
