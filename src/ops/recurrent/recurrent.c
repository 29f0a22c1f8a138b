// SPDX-License-Identifier: Apache-2.0
// Run functions of one recurrent layer in one direction, and of its gradient. One matrix product
// computes the input part of the gates for all time steps. Each step then runs one product with the
// hidden state and one kernel.
//
// The rows of a time step are contiguous. The states of the `count` sequences of a step are the
// first rows of h and c. A sequence that ends early keeps its final state in its row. A sequence
// that starts late (a packed batch in reverse) finds its initial state there. The backward pass
// visits the steps in the opposite order.
#include "hidden/recurrent.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/view.h"
#include "run_functions/recurrent.h"

typedef struct layer layer;
typedef struct step_rows step_rows;
typedef px_status (*stepper)(layer *x, const step_rows *m);

// A cell type: the number of gates; has_c: a second state; keeps: one more saved element per
// hidden element for the backward pass; separate: the product with the state is not added to the
// input part of the gates; relu: the activation is relu.
typedef struct cell {
  const char *mode;
  int gates;
  bool has_c, keeps, separate, relu;
  stepper step, back;
} cell;

// An iterator over the time steps, forward or backward.
typedef struct walk {
  const int64_t *counts;  // rows of each step; NULL: `batch` rows in every step
  int64_t times, batch, rows;
  bool back;
  int64_t time, first, count;  // the current step, its first row and its number of rows
} walk;

// The state of a run. Tensors are owned, except the weights and biases.
struct layer {
  const cell *cell;
  const px_tensor *w_hh, *w_hr;
  px_device device;
  px_dtype dtype;
  int64_t size, width;  // of the cell and of its output; equal without a projection w_hr
  walk walk;
  px_tensor *saved, *h_before, *raw, *gates, *kept;  // `saved` and views of its parts
  px_tensor *h, *c, *output, *w_hr_t;
  px_tensor *weight, *packed;  // the recurrent weight; in the backend's packed format, or NULL
  px_tensor *grad_output, *grad_gates, *grad_h, *grad_c, *grad_other;
  const px_tensor *b_hh;
  px_tensor *work;  // of one step: the hidden part of the gates, or the gradient of `raw`
};

static void layer_end(layer *x) {
  px_tensor *all[] = {x->saved,      x->h_before,   x->raw,         x->gates,  x->kept,
                      x->h,          x->c,          x->output,      x->weight, x->packed,
                      x->w_hr_t,     x->grad_gates, x->grad_output, x->grad_h, x->grad_c,
                      x->grad_other, x->work};
  for (int i = 0; i < PX_COUNT_OF(all); i++) px_release(all[i]);
}

// ---- time steps

static bool next(walk *w) {
  if (w->back ? w->time == 0 : w->time + 1 >= w->times) return false;
  w->time += w->back ? -1 : 1;
  if (!w->back) w->first += w->count;
  w->count = w->counts ? w->counts[w->time] : w->batch;
  if (w->back) w->first -= w->count;
  return true;
}

static walk begin(walk w, bool back) {
  w.back = back;
  w.time = back ? w.times : -1, w.first = back ? w.rows : 0, w.count = 0;
  return w;
}

// The rows of one time step in each tensor of the layer; NULL for missing tensors.
struct step_rows {
  px_tensor *gates, *kept, *h_before, *raw, *output, *h, *c, *work;
  px_tensor *grad_output, *grad_gates, *grad_h, *grad_c, *grad_other;
};
enum { PARTS = sizeof(step_rows) / sizeof(px_tensor *) };

static void step_rows_end(step_rows *m) {
  px_tensor *all[PARTS];
  memcpy(all, m, sizeof all);
  for (int i = 0; i < PARTS; i++) px_release(all[i]);
}

static px_status step_rows_at(step_rows *m, const layer *x, const walk *w) {
  const struct {
    px_tensor *of, **to;
    bool state;  // has the rows of one step only
  } parts[] = {{x->gates, &m->gates, false},
               {x->kept, &m->kept, false},
               {x->h_before, &m->h_before, false},
               {x->raw, &m->raw, false},
               {x->output, &m->output, false},
               {x->grad_output, &m->grad_output, false},
               {x->grad_gates, &m->grad_gates, false},
               {x->grad_other, &m->grad_other, false},
               {x->h, &m->h, true},
               {x->c, &m->c, true},
               {x->work, &m->work, true},
               {x->grad_h, &m->grad_h, true},
               {x->grad_c, &m->grad_c, true}};
  for (int i = 0; i < PX_COUNT_OF(parts); i++)
    if (parts[i].of)
      PX_TRY(
          px__part_slice(parts[i].to, parts[i].of, 0, parts[i].state ? 0 : w->first, w->count, 1));
  return PX_OK;
}

static px_status each_step(layer *x, bool back, stepper step) {
  px_status status = PX_OK;
  for (walk w = begin(x->walk, back); status == PX_OK && next(&w);) {
    step_rows m = {0};
    if (!w.count || !x->size) continue;
    status = step_rows_at(&m, x, &w);
    if (status == PX_OK) status = step(x, &m);
    step_rows_end(&m);
  }
  return status;
}

// ---- the cells

// Writes or adds to `to` the product of rows and the recurrent weight.
static px_status product(const layer *x, px_tensor *to, px_tensor *rows, bool add) {
  static px__named_kernel kernel = {.name = "weight_product"};
  px_tensor *inputs[] = {rows, x->packed};
  const px_value sum = PX_B(add);
  if (x->packed) return px__run_kernel(&kernel, x->device, 1, &to, 2, inputs, &sum, 1);
  return add ? px_addmm_(to, rows, x->weight, px_int(1), px_int(1))
             : px_mm_out(to, rows, x->weight);
}

// Packs the recurrent weight if it is large and used by several steps. Otherwise packing costs more
// than it saves.
static px_status open_weight(layer *x, const px_tensor *weight) {
  enum { UNIT = 64, MIN_NUMEL = 1 << 15 };
  static px__named_kernel kernel = {.name = "weight_pack"};
  bool floats = x->dtype == PX_FLOAT32 || x->dtype == PX_FLOAT64;
  int64_t columns = (weight->sizes[1] + UNIT - 1) / UNIT * UNIT,
          packed_numel = columns * weight->sizes[0];
  x->weight = px_retain((px_tensor *)weight);
  if (!floats || weight->numel < MIN_NUMEL || x->walk.times < 2 ||
      !px__named_kernel_on(&kernel, (px_device_type)x->device.type))
    return PX_OK;
  PX_TRY(px_tensor_empty(&x->packed, 1, &packed_numel, x->dtype, x->device));
  return px__run_kernel(&kernel, x->device, 1, &x->packed, 1, &x->weight, NULL, 0);
}

static px_status lstm_step(layer *x, const step_rows *m) {
  static px__named_kernel kernel = {.name = "lstm_step"};
  PX_TRY(product(x, m->gates, m->h, true));
  px_tensor *plain[] = {m->gates, m->c, m->kept, m->output, m->h, m->h_before};
  px_tensor *projected[] = {m->gates, m->c, m->kept, m->raw, NULL, NULL};
  PX_TRY(px__run_kernel(&kernel, x->device, 6, x->w_hr ? projected : plain, 0, NULL, NULL, 0));
  if (!x->w_hr) return PX_OK;
  PX_TRY(px_copy_(m->h_before, m->h, false));
  PX_TRY(px_mm_out(m->output, m->raw, x->w_hr_t));
  return px_copy_(m->h, m->output, false);
}

static px_status lstm_back(layer *x, const step_rows *m) {
  static px__named_kernel kernel = {.name = "lstm_step_back"};
  px_tensor *grad_h = m->grad_h, *grad_output = m->grad_output;
  if (x->w_hr) {  // the gradient of the projected state passes through the projection first
    PX_TRY(px_copy_(m->grad_other, m->grad_h, false));
    if (grad_output) PX_TRY(px_add_(m->grad_other, grad_output, px_int(1)));
    PX_TRY(px_mm_out(m->work, m->grad_other, x->w_hr));
    grad_h = m->work, grad_output = NULL;
  }
  px_tensor *results[] = {m->grad_gates, m->grad_c, grad_h};
  px_tensor *inputs[] = {m->gates, m->kept, grad_output};
  PX_TRY(px__run_kernel(&kernel, x->device, 3, results, 3, inputs, NULL, 0));
  return product(x, m->grad_h, m->grad_gates, false);
}

// A GRU applies its reset gate to the product with the state before the sum, so the product is
// written to a buffer.
static px_status gru_step(layer *x, const step_rows *m) {
  static px__named_kernel kernel = {.name = "gru_step"};
  if (x->b_hh) PX_TRY(px_copy_(m->work, x->b_hh, false));
  PX_TRY(product(x, m->work, m->h, x->b_hh != NULL));
  px_tensor *results[] = {m->gates, m->kept, m->output, m->h, m->h_before};
  return px__run_kernel(&kernel, x->device, 5, results, 1, &m->work, NULL, 0);
}

static px_status gru_back(layer *x, const step_rows *m) {
  static px__named_kernel kernel = {.name = "gru_step_back"};
  px_tensor *results[] = {m->grad_gates, m->grad_other, m->grad_h};
  px_tensor *inputs[] = {m->gates, m->kept, m->h_before, m->grad_output};
  PX_TRY(px__run_kernel(&kernel, x->device, 3, results, 4, inputs, NULL, 0));
  return product(x, m->grad_h, m->grad_other, true);
}

static px_status rnn_step(layer *x, const step_rows *m) {
  static px__named_kernel kernel = {.name = "rnn_step"};
  PX_TRY(product(x, m->gates, m->h, true));
  px_tensor *results[] = {m->gates, m->output, m->h, m->h_before};
  const px_value relu = PX_B(x->cell->relu);
  return px__run_kernel(&kernel, x->device, 4, results, 0, NULL, &relu, 1);
}

static px_status rnn_back(layer *x, const step_rows *m) {
  static px__named_kernel kernel = {.name = "rnn_step_back"};
  px_tensor *results[] = {m->grad_gates, m->grad_h}, *inputs[] = {m->gates, m->grad_output};
  const px_value relu = PX_B(x->cell->relu);
  PX_TRY(px__run_kernel(&kernel, x->device, 2, results, 2, inputs, &relu, 1));
  return product(x, m->grad_h, m->grad_gates, false);
}

static const cell cells[] = {
    {"lstm", 4, .has_c = true, .keeps = true, .step = lstm_step, .back = lstm_back},
    {"gru", 3, .keeps = true, .separate = true, .step = gru_step, .back = gru_back},
    {"rnn_tanh", 1, .step = rnn_step, .back = rnn_back},
    {"rnn_relu", 1, .relu = true, .step = rnn_step, .back = rnn_back}};

// ---- checks of the arguments

static px_status check_sizes(const px_tensor *t, const char *name, int64_t rows, int64_t columns) {
  PX_CHECK(t->ndim == 2 && t->sizes[0] == rows && t->sizes[1] == columns, PX_RUNTIME,
           "recurrent_layer: expected %s of size [%lld, %lld], got %s", name, (long long)rows,
           (long long)columns, px__size_text((char[256]){0}, 256, t));
  return PX_OK;
}

static px_status find_cell(const cell **out, const char *mode) {
  for (int i = 0; i < PX_COUNT_OF(cells); i++)
    if (!strcmp(cells[i].mode, mode)) return *out = &cells[i], PX_OK;
  PX_FAIL(PX_VALUE, "recurrent_layer: unknown mode '%s'", mode);
}

static px_status read_weights(layer *x, const px_tensor *w_hh, const px_tensor *w_hr) {
  PX_CHECK(w_hh->ndim == 2 && w_hh->sizes[0] % x->cell->gates == 0, PX_RUNTIME,
           "recurrent_layer: expected w_hh to be a matrix with a multiple of %d rows",
           x->cell->gates);
  x->w_hh = w_hh, x->w_hr = w_hr;
  x->size = w_hh->sizes[0] / x->cell->gates, x->width = w_hh->sizes[1];
  x->device = px__tensor_device(w_hh), x->dtype = (px_dtype)w_hh->dtype;
  PX_CHECK(!w_hr || x->cell->has_c, PX_RUNTIME, "recurrent_layer: w_hr requires mode 'lstm'");
  if (w_hr) return check_sizes(w_hr, "w_hr", x->width, x->size);
  return check_sizes(w_hh, "w_hh", x->cell->gates * x->size, x->size);
}

static px_status check_counts(const int64_t *counts, int64_t times, int64_t rows, int64_t batch) {
  int64_t sum = 0;
  for (int64_t t = 0; t < times; t++) {
    PX_CHECK(
        counts[t] > 0 && counts[t] <= (t ? counts[t - 1] : batch), PX_RUNTIME,
        "expected positive, non-increasing batch_sizes starting with %lld, got batch_sizes[%lld] = "
        "%lld",
        (long long)batch, (long long)t, (long long)counts[t]);
    sum = px__sum(sum, counts[t]);
  }
  PX_CHECK(
      sum == rows && (!times || counts[0] == batch), PX_RUNTIME,
      "expected batch_sizes to sum to the rows and start with the batch, got %lld and %lld for "
      "%lld rows and %lld sequences",
      (long long)sum, (long long)(times ? counts[0] : 0), (long long)rows, (long long)batch);
  return PX_OK;
}

static px_status read_times(layer *x, const px_tensor *sizes, int64_t rows, int64_t batch) {
  x->walk = (walk){.batch = batch, .rows = rows};
  PX_CHECK(rows >= 0 && batch >= 0, PX_RUNTIME, "recurrent_layer: expected rows and batch >= 0");
  if (!sizes) {
    PX_CHECK(batch ? rows % batch == 0 : !rows, PX_RUNTIME,
             "recurrent_layer: expected rows to be a multiple of batch, got %lld and %lld",
             (long long)rows, (long long)batch);
    x->walk.times = batch ? rows / batch : 0;
    return PX_OK;
  }
  PX_CHECK(sizes->ndim == 1 && sizes->dtype == PX_INT64 && sizes->contiguous &&
               px__tensor_device(sizes).type == PX_CPU,
           PX_RUNTIME, "expected batch_sizes to be a 1-D CPU tensor of int64");
  PX_TRY(px__tensor_read(&x->walk.counts, sizes));
  x->walk.times = sizes->numel;
  return check_counts(x->walk.counts, x->walk.times, rows, batch);
}

// Checks that t, unless NULL, has the dtype and the device of the weights.
static px_status check_like_weights(const layer *x, const px_tensor *t, const char *name) {
  char mine[PX_DEVICE_TEXT], theirs[PX_DEVICE_TEXT];
  if (!t) return PX_OK;
  PX_CHECK(px_device_equal(px__tensor_device(t), x->device), PX_RUNTIME,
           "Input, hidden and parameter tensors are not at the same device, found parameter tensor "
           "at %s and %s tensor at %s",
           px_device_format(x->device, mine), name, px_device_format(px__tensor_device(t), theirs));
  PX_CHECK(
      t->dtype == x->dtype, PX_RUNTIME,
      "Input, hidden and parameter tensors are not the same dtype, found parameter tensor with "
      "torch.%s and %s tensor with torch.%s",
      px_dtype_name(x->dtype), name, px_dtype_name((px_dtype)t->dtype));
  return PX_OK;
}

// ---- memory

static px_status matrix(px_tensor **out, const layer *x, int64_t rows, int64_t columns) {
  return px_tensor_empty(out, 2, (int64_t[]){rows, columns}, x->dtype, x->device);
}
// A view of the next rows x columns elements of `saved`.
static px_status part_of_saved(px_tensor **out, const layer *x, int64_t *at, int64_t rows,
                               int64_t columns) {
  PX_TRY(px__tensor_view(out, x->saved, 2, (int64_t[]){rows, columns}, (int64_t[]){columns, 1},
                         x->saved->offset + *at));
  *at += rows * columns;
  return PX_OK;
}
static int64_t saved_numel(const layer *x) {
  int64_t parts = x->cell->gates + x->cell->keeps + (x->w_hr ? 1 : 0);
  int64_t all, each = px__sum(x->width, px__product(parts, x->size));
  return __builtin_mul_overflow(x->walk.rows, each, &all) ? -1 : all;  // -1: overflow
}
static px_status open_saved(layer *x) {
  int64_t at = 0, rows = x->walk.rows;
  PX_TRY(part_of_saved(&x->h_before, x, &at, rows, x->width));
  if (x->w_hr) PX_TRY(part_of_saved(&x->raw, x, &at, rows, x->size));
  PX_TRY(part_of_saved(&x->gates, x, &at, rows, x->cell->gates * x->size));
  if (x->cell->keeps) PX_TRY(part_of_saved(&x->kept, x, &at, rows, x->size));
  return PX_OK;
}
// A state updated by the steps: a copy of `from`, or zeros.
static px_status state(px_tensor **out, const layer *x, const px_tensor *from, int64_t columns) {
  PX_TRY(matrix(out, x, x->walk.batch, columns));
  return from ? px_copy_(*out, from, false) : px_zero_(*out);
}
static px_status empty(px_tensor **out, const layer *x) {
  return px_tensor_empty(out, 1, (int64_t[]){0}, x->dtype, x->device);
}

// ---- forward

// Computes the input part of the gates of all time steps in one product. Cells without `separate`
// add both biases here.
static px_status open_gates(layer *x, const px__recurrent_layer_args *args) {
  PX_SCOPED(px_tensor) w_ih_t = NULL;
  PX_SCOPED(px_tensor) both = NULL;
  bool separate = x->cell->separate;
  const px_tensor *bias = args->b_ih ? args->b_ih : separate ? NULL : args->b_hh;
  PX_TRY(px_t(&w_ih_t, args->w_ih));
  if (args->b_ih && args->b_hh && !separate) {
    PX_TRY(px_add(&both, args->b_ih, args->b_hh, px_int(1)));
    bias = both;
  }
  if (separate) x->b_hh = args->b_hh;
  if (!bias) return px_mm_out(x->gates, args->input, w_ih_t);
  return px_addmm_out(x->gates, bias, args->input, w_ih_t, px_int(1), px_int(1));
}

static px_status check_layer(layer *x, const px__recurrent_layer_args *args) {
  const px_tensor *input = args->input, *h = args->h, *c = args->c;
  const px_tensor *biases[] = {args->b_ih, args->b_hh};
  PX_TRY(find_cell(&x->cell, args->mode));
  PX_TRY(read_weights(x, args->w_hh, args->w_hr));
  PX_CHECK(input->ndim == 2 && h->ndim == 2, PX_RUNTIME,
           "recurrent_layer: expected input and h to be matrices");
  PX_TRY(read_times(x, args->batch_sizes, input->sizes[0], h->sizes[0]));
  PX_TRY(check_sizes(h, "h", x->walk.batch, x->width));
  PX_CHECK(!c == !x->cell->has_c, PX_RUNTIME, "recurrent_layer: %s in mode %s",
           c ? "unexpected c" : "missing c", args->mode);
  if (c) PX_TRY(check_sizes(c, "c", x->walk.batch, x->size));
  PX_TRY(check_sizes(args->w_ih, "w_ih", x->w_hh->sizes[0], input->sizes[1]));
  for (int i = 0; i < 2; i++)
    PX_CHECK(!biases[i] || (biases[i]->ndim == 1 && biases[i]->numel == x->w_hh->sizes[0]),
             PX_RUNTIME, "recurrent_layer: expected biases of size [%lld]",
             (long long)x->w_hh->sizes[0]);
  PX_TRY(check_like_weights(x, input, "input"));
  PX_TRY(check_like_weights(x, h, "hidden"));
  PX_TRY(check_like_weights(x, c, "hidden"));
  PX_TRY(check_like_weights(x, args->w_ih, "parameter"));
  PX_TRY(check_like_weights(x, args->w_hr, "parameter"));
  PX_TRY(check_like_weights(x, args->b_ih, "parameter"));
  return check_like_weights(x, args->b_hh, "parameter");
}

static px_status run_layer(layer *x, const px__recurrent_layer_args *args) {
  PX_SCOPED(px_tensor) w_hh_t = NULL;
  PX_TRY(px_tensor_empty(&x->saved, 1, (int64_t[]){saved_numel(x)}, x->dtype, x->device));
  PX_TRY(open_saved(x));
  PX_TRY(matrix(&x->output, x, x->walk.rows, x->width));
  PX_TRY(state(&x->h, x, args->h, x->width));
  PX_TRY(x->cell->has_c ? state(&x->c, x, args->c, x->size) : empty(&x->c, x));
  PX_TRY(px_t(&w_hh_t, x->w_hh));
  PX_TRY(open_weight(x, w_hh_t));
  if (x->w_hr) PX_TRY(px_t(&x->w_hr_t, x->w_hr));
  if (x->cell->separate) PX_TRY(matrix(&x->work, x, x->walk.batch, x->cell->gates * x->size));
  PX_TRY(open_gates(x, args));
  return each_step(x, args->reverse, x->cell->step);
}

PX_RUN(recurrent_layer) {
  layer x = {0};
  PX_TRY(check_layer(&x, args));
  px_status status = run_layer(&x, args);
  if (status == PX_OK) {
    call->results[0] = PX_MOVE(x.output), call->results[1] = PX_MOVE(x.h);
    call->results[2] = PX_MOVE(x.c), call->results[3] = PX_MOVE(x.saved);
    call->device = x.device;
  }
  layer_end(&x);
  return status;
}

// ---- backward

static px_status check_backward(layer *x, const px__recurrent_layer_backward_args *args) {
  PX_TRY(find_cell(&x->cell, args->mode));
  PX_TRY(read_weights(x, args->w_hh, args->w_hr));
  PX_TRY(read_times(x, args->batch_sizes, args->rows, args->batch));
  PX_CHECK(args->saved->ndim == 1 && args->saved->numel == saved_numel(x), PX_RUNTIME,
           "recurrent_layer_backward: saved must have %lld elements", (long long)saved_numel(x));
  if (args->grad_output)
    PX_TRY(check_sizes(args->grad_output, "grad_output", x->walk.rows, x->width));
  if (args->grad_h_n) PX_TRY(check_sizes(args->grad_h_n, "grad_h_n", x->walk.batch, x->width));
  if (args->grad_c_n && x->cell->has_c)
    PX_TRY(check_sizes(args->grad_c_n, "grad_c_n", x->walk.batch, x->size));
  PX_TRY(check_like_weights(x, args->saved, "saved"));
  PX_TRY(check_like_weights(x, args->w_hr, "parameter"));
  PX_TRY(check_like_weights(x, args->grad_output, "gradient"));
  PX_TRY(check_like_weights(x, args->grad_h_n, "gradient"));
  return check_like_weights(x, args->grad_c_n, "gradient");
}

static px_status run_backward(layer *x, const px__recurrent_layer_backward_args *args) {
  int64_t gates = x->cell->gates * x->size;
  PX_TRY(px_contiguous(&x->saved, args->saved));
  PX_TRY(open_saved(x));
  if (args->grad_output) PX_TRY(px_contiguous(&x->grad_output, args->grad_output));
  PX_TRY(matrix(&x->grad_gates, x, x->walk.rows, gates));
  PX_TRY(state(&x->grad_h, x, args->grad_h_n, x->width));
  PX_TRY(x->cell->has_c ? state(&x->grad_c, x, args->grad_c_n, x->size) : empty(&x->grad_c, x));
  PX_TRY(x->cell->separate ? matrix(&x->grad_other, x, x->walk.rows, gates)
         : x->w_hr         ? matrix(&x->grad_other, x, x->walk.rows, x->width)
                           : empty(&x->grad_other, x));
  if (x->w_hr) PX_TRY(matrix(&x->work, x, x->walk.batch, x->size));
  PX_TRY(open_weight(x, x->w_hh));
  return each_step(x, !args->reverse, x->cell->back);
}

PX_RUN(recurrent_layer_backward) {
  layer x = {0};
  PX_TRY(check_backward(&x, args));
  px_status status = run_backward(&x, args);
  if (status == PX_OK) {
    call->results[0] = PX_MOVE(x.grad_gates), call->results[1] = PX_MOVE(x.grad_h);
    call->results[2] = PX_MOVE(x.grad_c), call->results[3] = PX_MOVE(x.grad_other);
    call->device = x.device;
  }
  layer_end(&x);
  return status;
}
