// SPDX-License-Identifier: Apache-2.0
// Each layer of layers/*.layer on its samples, on the CPU and on the first device: construction,
// text, forward, loading a state, and gradients against finite differences. LAYER=name in the
// environment selects one layer.
#include "phlox/layers.h"
#include "phlox/ops/factory.h"
#include "samples.h"

#include <pthread.h>

typedef struct layer_row {
  const char *name, *constructor, *inputs, *sizes;
} layer_row;
#define PX_LAYER_SAMPLE(name, constructor, inputs, sizes) {name, constructor, inputs, sizes},
static const layer_row rows[] = {
#include "layer_samples.inc"
};
enum { ROWS = sizeof rows / sizeof *rows, TENSORS = 16 };

// One sample: its module, and the tensors of gradcheck with inputs first.
typedef struct subject {
  const layer_row *row;
  sample constructor, inputs;
  px_op shape_of_constructor, shape_of_inputs;  // parameter lists for the sample reader
  px_module *module;
} subject;

static void set_sample(sample *s, px_op *op, const px_param *params, int count, const char *text,
                       px_device device) {
  *op = (px_op){.params = params, .param_count = (uint8_t)count, .grad_mask = 0xf};
  *s = (sample){.text = text, .lo = -2, .hi = 2, .op = op, .dtype = PX_FLOAT64, .device = device};
  sample_read(s);
}

static px_module *construct(const subject *s) {
  px_module *m = NULL;
  px_manual_seed(1);
  OK(px_module_new(&m, px_module_kind_find(s->row->name), s->constructor.args, NULL));
  OK(px_module_to(m, PX_FLOAT64, s->inputs.device, false));
  return m;
}

static void open_row(subject *s, int i, px_device device) {
  static const px_param inputs[] = {{.name = "a", .kind = PX_ARG_TENSOR},
                                    {.name = "b", .kind = PX_ARG_TENSOR},
                                    {.name = "c", .kind = PX_ARG_TENSOR},
                                    {.name = "d", .kind = PX_ARG_TENSOR}};
  s->row = &rows[i];
  const px_module_kind *kind = px_module_kind_find(s->row->name);
  CHECK(kind);
  set_sample(&s->constructor, &s->shape_of_constructor, kind->params, kind->param_count,
             s->row->constructor, device);
  set_sample(&s->inputs, &s->shape_of_inputs, inputs, 4, s->row->inputs, device);
  CHECK(s->inputs.tensor_count <= px_module_port_tensors(kind->inputs, kind->input_count));
  s->module = construct(s);
}

static void close_row(subject *s) {
  px_release(s->module);
  sample_close(&s->constructor);
  sample_close(&s->inputs);
}

// Copies the inputs, since a layer may work in place.
static px_status call(px_tensor **out, px_module *m, px_tensor *const *inputs, int count) {
  px_tensor *copies[4] = {NULL};
  px_status status = PX_OK;
  for (int i = 0; i < count && status == PX_OK; i++) status = px_clone(&copies[i], inputs[i], NULL);
  px_manual_seed(7);
  if (status == PX_OK) status = px_module_forward(out, m, copies, count);
  for (int i = 0; i < count; i++) px_release(copies[i]);
  return status;
}

static px_status forward(px_tensor **out, px_module *m, const subject *s) {
  return call(out, m, s->inputs.tensors, s->inputs.tensor_count);
}

static bool chosen(const char *name) {
  const char *only = getenv("LAYER");
  return !only || !strcmp(only, name);
}

static bool report(const subject *s, const char *what) {
  char device[PX_DEVICE_TEXT];
  fprintf(stderr, "%s(%s) of %s on %s, %s: %s\n", s->row->name, s->row->constructor, s->row->inputs,
          px_device_format(s->inputs.device, device), what, px_error_last()->message);
  px_error_clear();
  return false;
}

// Calls `check` for each row and device. Returns the number of failures.
static int each_row(bool (*check)(subject *s)) {
  px_device devices[] = {px_cpu(), px_cuda(0)};
  int failed = 0, count = px_device_count(PX_CUDA) > 0 ? 2 : 1;
  for (int d = 0; d < count; d++)
    for (int i = 0; i < ROWS; i++) {
      subject s;
      if (!chosen(rows[i].name)) continue;
      open_row(&s, i, devices[d]);
      failed += !check(&s);
      close_row(&s);
    }
  return failed;
}

// ---- forward

static void sizes_text(const px_tensor *t, char *text) {
  *text++ = '(';
  for (int d = 0; d < px_tensor_ndim(t); d++)
    text += sprintf(text, "%s%lld", d ? "," : "", (long long)px_tensor_size(t, d));
  *text++ = ')', *text = 0;
}

static bool has_the_sizes(subject *s) {
  PX_SCOPED(px_tensor) result = NULL;
  char sizes[64];
  if (forward(&result, s->module, s) != PX_OK) return report(s, "the call");
  sizes_text(result, sizes);
  if (strcmp(sizes, s->row->sizes)) return report(s, sizes);
  return px_device_equal(px_tensor_device(result), s->inputs.device) || report(s, "the device");
}
PX_TEST(results_have_the_sizes_of_the_samples) { CHECK_EQ(each_row(has_the_sizes), 0); }

// ---- text and state

static bool is_printed(subject *s) {
  char *text = NULL, begin[64];
  OK(px_module_text(&text, s->module));
  snprintf(begin, sizeof begin, "%s(", s->row->name);
  bool fine = !strncmp(text, begin, strlen(begin)) && text[strlen(text) - 1] == ')' &&
              !strpbrk(text, "{}[]");
  px_free(text);
  return fine || report(s, "the text");
}
PX_TEST(texts_have_the_name_and_all_arguments) { CHECK_EQ(each_row(is_printed), 0); }

static bool same_numbers(const px_tensor *a, const px_tensor *b) {
  double left[512], right[512];
  size_t bytes = (size_t)px_tensor_numel(a) * sizeof *left;
  CHECK(bytes <= sizeof left && px_tensor_numel(a) == px_tensor_numel(b));
  OK(px_tensor_read(a, left, bytes));
  OK(px_tensor_read(b, right, bytes));
  return !memcmp(left, right, bytes);
}

// A second module loads the state and then returns the same result.
static bool has_a_state(subject *s) {
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_tensor) original = NULL;
  PX_SCOPED(px_tensor) other_layer = NULL;
  PX_SCOPED(px_module) other = construct(s);
  px_module_entry entry;
  px_manual_seed(5);
  for (int i = 0; px_module_entry_at(s->module, PX_ENTRY_PARAMETER, i, &entry); i++)
    if (entry.tensor) OK(px_init_uniform(entry.tensor, 0.5, 1.5, NULL));
  OK(px_module_state_dict(&state, s->module, ""));
  if (px_module_load_state_dict(other, state, true) != PX_OK) return report(s, "the state");
  if (forward(&original, s->module, s) != PX_OK) return report(s, "the call");
  if (forward(&other_layer, other, s) != PX_OK) return report(s, "the call");
  return same_numbers(original, other_layer) || report(s, "the state's numbers");
}
PX_TEST(states_load_into_another_layer) { CHECK_EQ(each_row(has_a_state), 0); }

// ---- gradients

typedef struct check_tensors {
  px_tensor *tensors[TENSORS];
  const char *names[TENSORS];  // names of parameters
  int count;
} check_tensors;

static check_tensors check_tensors_of(const subject *s) {
  check_tensors w = {.count = s->inputs.tensor_count};
  px_module_entry entry;
  for (int i = 0; i < w.count; i++) {
    const px_module_kind *kind =
        px_module_kind_of(s->module);  // inputs of a tensor list have no names
    bool constant = i < kind->input_count && !strcmp(kind->inputs[i].name, "target");
    w.tensors[i] = s->inputs.tensors[i];
    if (s->inputs.smooth[i] && !constant) OK(px_tensor_set_requires_grad(w.tensors[i], true));
  }
  for (int i = 0; px_module_entry_at(s->module, PX_ENTRY_PARAMETER, i, &entry); i++)
    if (entry.tensor) {
      w.names[w.count] = entry.name;
      w.tensors[w.count++] = entry.tensor;
    }
  return w;
}

typedef struct check_context {
  const subject *s;
  const check_tensors *w;
} check_context;

static px_status with_tensors(px_tensor **out, px_tensor *const *tensors, void *context) {
  const check_context *q = context;
  for (int i = 0; i < q->w->count; i++)
    if (q->w->names[i])
      PX_TRY(px_module_register_parameter(q->s->module, q->w->names[i], tensors[i]));
  return call(out, q->s->module, tensors, q->s->inputs.tensor_count);
}

static bool has_gradients(subject *s) {
  PX_SCOPED(px_list) kept = NULL;  // the parameters, replaced during the check
  check_tensors w = check_tensors_of(s);
  check_context q = {s, &w};
  int64_t parameter_count = w.count - s->inputs.tensor_count;
  OK(px_list_new(&kept, w.tensors + s->inputs.tensor_count, parameter_count));
  px_status status = px_gradcheck(with_tensors, &q, w.count, w.tensors, 1e-6, 2e-5, 1e-3);
  return status == PX_OK || report(s, "gradients");
}
PX_TEST(gradients_match_finite_differences) { CHECK_EQ(each_row(has_gradients), 0); }

// ---- failures

// Fails the n-th allocation of construction and forward, for every n.
static bool survives_failed_allocations(subject *s) {
  bool failed = true;
  for (int64_t n = 1; failed; n++) {
    px_module *m = NULL;
    px_tensor *result = NULL;
    const px_module_kind *kind = px_module_kind_find(s->row->name);
    int64_t before = px_live_objects(NULL);
    OK(px_fault_arm("alloc", n, false));
    failed = px_module_new(&m, kind, s->constructor.args, NULL) != PX_OK;
    px_fault_disarm_all();
    OK(px_fault_arm("alloc", n, false));
    if (m && px_module_to(m, PX_FLOAT64, s->inputs.device, false) == PX_OK)
      failed |= forward(&result, m, s) != PX_OK;
    else
      failed = true;
    px_fault_disarm_all();
    px_release(result);
    px_release(m);
    if (px_live_objects(NULL) != before) return report(s, "objects are left");
  }
  px_error_clear();
  return true;
}
PX_TEST(failed_allocations_leak_nothing) { CHECK_EQ(each_row(survives_failed_allocations), 0); }

// ---- several threads

enum { CALLERS = 4, ROUNDS = 5 };
typedef struct caller {
  subject *s;
  const px_tensor *expected;
  bool fine;
  pthread_t thread;
} caller;

static bool is_random(const px_module *m) {
  const char *name = px_module_kind_of(m)->name;
  return px_module_training(m) && (strstr(name, "ropout") || strstr(name, "RReLU"));
}

// Calls the layer and backpropagates through the result.
static bool forward_and_backward(caller *self) {
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  if (forward(&result, self->s->module, self->s) != PX_OK) return report(self->s, "the call");
  if (!is_random(self->s->module) && !same_numbers(result, self->expected))
    return report(self->s, "the numbers");
  if (!px_tensor_requires_grad(result)) return true;
  OK(px_sum(&sum, result, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, false, false) == PX_OK || report(self->s, "backward");
}

static void *run_caller(void *argument) {
  caller *self = argument;
  self->fine = true;
  for (int i = 0; i < ROUNDS && self->fine; i++) self->fine = forward_and_backward(self);
  return NULL;
}

// Concurrent calls of one layer share nothing but the gradients.
static bool allows_concurrent_calls(subject *s) {
  caller callers[CALLERS];
  PX_SCOPED(px_tensor) expected = NULL;
  px_module_entry entry;
  bool fine = true;
  (void)check_tensors_of(s);
  // Running statistics change in training, so calls would write shared state.
  if (px_module_entry_at(s->module, PX_ENTRY_BUFFER, 0, &entry))
    OK(px_module_train(s->module, false));
  if (forward(&expected, s->module, s) != PX_OK) return report(s, "the call");
  for (int i = 0; i < CALLERS; i++) {
    callers[i] = (caller){.s = s, .expected = expected};
    CHECK(pthread_create(&callers[i].thread, NULL, run_caller, &callers[i]) == 0);
  }
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(callers[i].thread, NULL);
    fine &= callers[i].fine;
  }
  return fine;
}
PX_TEST(threads_call_a_layer_at_once) { CHECK_EQ(each_row(allows_concurrent_calls), 0); }

// ---- the constructors for C

static void prints(px_module *m, const char *as) {
  char *text = NULL;
  OK(px_module_text(&text, m));
  CHECK_TEXT(text, as);
  px_free(text);
  px_release(m);
}

PX_TEST(arguments_are_passed_by_name) {
  px_module *m = NULL;
  OK(px_conv2d_new(&m, 1, 32, 3, .padding = 1));
  prints(m, "Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))");
  OK(px_conv2d_new(&m, 2, 4, PX_SIZES(3, 5), .stride = {1, 2}, .groups = 2, .bias = false));
  prints(m, "Conv2d(2, 4, kernel_size=(3, 5), stride=(1, 2), groups=2, bias=False)");
  OK(px_conv2d_new(&m, 1, 1, 3, .padding_word = "same"));
  prints(m, "Conv2d(1, 1, kernel_size=(3, 3), stride=(1, 1), padding=same)");
  OK(px_linear_new(&m, 3, 2, .bias = false));
  prints(m, "Linear(in_features=3, out_features=2, bias=False)");
  OK(px_flatten_new(&m, .start_dim = 0));
  prints(m, "Flatten(start_dim=0, end_dim=-1)");
}

PX_TEST(size_lists_end_at_zero) {
  px_module *m = NULL;
  OK(px_max_pool2d_new(&m, 2));
  prints(m, "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  OK(px_max_pool2d_new(&m, PX_SIZES(2, 3), .stride = 1));
  prints(m, "MaxPool2d(kernel_size=(2, 3), stride=1, padding=0, dilation=1, ceil_mode=False)");
  OK(px_layer_norm_new(&m, PX_SIZES(2, 3, 4), .eps = 0.1));
  prints(m, "LayerNorm((2, 3, 4), eps=0.1, elementwise_affine=True, bias=True)");
}

PX_TEST(none_has_a_name_for_each_type) {
  px_module *m = NULL;
  OK(px_batch_norm1d_new(&m, 3, .momentum = PX_NO_FLOAT));
  CHECK_EQ(px_module_attribute(m, "momentum").kind, PX_ARG_NONE);
  px_release(m);
  OK(px_embedding_new(&m, 5, 3));
  prints(m, "Embedding(5, 3)");
  OK(px_embedding_new(&m, 5, 3, .padding_idx = -1));
  prints(m, "Embedding(5, 3, padding_idx=4)");
}

PX_TEST(argument_structs_can_be_filled) {
  px_module *m = NULL;
  px_linear_args args = {PX_LINEAR_ARGS};
  args.out = &m;
  args.in_features = 3;
  FAILS(px_linear_make(&args), PX_TYPE, "missing 1 required positional argument: 'out_features'");
  args.out_features = 2;
  args.dtype = PX_FLOAT64;
  OK(px_linear_make(&args));
  px_module_entry entry;
  CHECK(px_module_entry_find(m, "weight", &entry));
  CHECK_EQ(px_tensor_dtype(entry.tensor), PX_FLOAT64);
  px_release(m);
  FAILS(px_linear_make(NULL), PX_TYPE, "`args` is NULL");
}

PX_TEST(invalid_arguments_are_refused) {
  px_module *m = NULL;
  FAILS(px_conv2d_new(&m, 3, 4, 2, .groups = 2), PX_VALUE,
        "in_channels must be divisible by groups");
  FAILS(px_conv2d_new(&m, 3, 4, 2, .groups = 0), PX_VALUE, "groups must be a positive integer");
  FAILS(px_conv2d_new(&m, 3, 4, 2, .padding_word = "some"), PX_VALUE,
        "Invalid padding string 'some', should be one of {'valid', 'same'}");
  FAILS(px_conv2d_new(&m, 3, 4, 2, .padding_word = "same", .stride = 2), PX_VALUE,
        "padding='same' is not supported for strided convolutions");
  FAILS(px_dropout_new(&m, .p = 1.5), PX_VALUE,
        "dropout probability has to be between 0 and 1, but got 1.5");
  FAILS(px_group_norm_new(&m, 3, 4), PX_VALUE,
        "num_channels (4) must be divisible by num_groups (3)");
  CHECK(!m);
}

// ---- lazy layers: constructed without the input size

// The sample's constructor arguments without the first.
static px_module *construct_lazy(const subject *s, const px_module_kind *lazy) {
  px_module *m = NULL;
  OK(px_module_new(&m, lazy, s->constructor.args + 1, NULL));
  OK(px_module_to(m, PX_FLOAT64, s->inputs.device, false));
  return m;
}

// NULL if the layer has no lazy kind, or the lazy kind has tensors that the layer lacks by default.
static const px_module_kind *lazy_of(const subject *s) {
  char name[64];
  if (!strncmp(s->row->name, "InstanceNorm", 12)) return NULL;
  snprintf(name, sizeof name, "Lazy%s", s->row->name);
  return px_module_kind_find(name);
}

static int lazy_seen;
static bool materializes(subject *s) {
  const px_module_kind *lazy = lazy_of(s);
  if (!lazy) return true;
  lazy_seen++;
  PX_SCOPED(px_module) m = construct_lazy(s, lazy);
  PX_SCOPED(px_tensor) original = NULL;
  PX_SCOPED(px_tensor) other_layer = NULL;
  PX_SCOPED(px_dict) state = NULL;
  CHECK_EQ(px_value_int(px_module_attribute(m, lazy->lazy->size)), 0);
  px_manual_seed(1);
  OK(px_module_infer(m, s->inputs.tensors[0]));
  CHECK(px_module_kind_of(m) == lazy);
  if (forward(&original, m, s) != PX_OK) return report(s, "the lazy call");
  CHECK_TEXT(px_module_kind_of(m)->name, s->row->name);
  OK(px_module_state_dict(&state, m, ""));
  if (px_module_load_state_dict(s->module, state, true) != PX_OK) return report(s, "the state");
  if (forward(&other_layer, s->module, s) != PX_OK) return report(s, "the call");
  return same_numbers(original, other_layer) || report(s, "the lazy layer's numbers");
}
PX_TEST(a_lazy_layer_becomes_its_regular_kind) {
  CHECK_EQ(each_row(materializes), 0);
  CHECK(getenv("LAYER") || lazy_seen > 10);
}

static bool materializes_from_state(subject *s) {
  const px_module_kind *lazy = lazy_of(s);
  if (!lazy) return true;
  PX_SCOPED(px_module) m = construct_lazy(s, lazy);
  PX_SCOPED(px_tensor) original = NULL;
  PX_SCOPED(px_tensor) other_layer = NULL;
  PX_SCOPED(px_dict) state = NULL;
  OK(px_module_state_dict(&state, s->module, ""));
  OK(px_module_load_state_dict(m, state, true));
  if (forward(&original, m, s) != PX_OK) return report(s, "the lazy call");
  if (forward(&other_layer, s->module, s) != PX_OK) return report(s, "the call");
  return same_numbers(original, other_layer) || report(s, "the state's numbers");
}
PX_TEST(a_lazy_layer_takes_sizes_from_a_state) { CHECK_EQ(each_row(materializes_from_state), 0); }

// The n-th allocation fails during size inference, and the layer stays lazy.
static bool stays_lazy(subject *s) {
  const px_module_kind *lazy = lazy_of(s);
  bool failed = lazy != NULL;
  for (int64_t n = 1; failed; n++) {
    px_module *m = construct_lazy(s, lazy);
    px_tensor *result = NULL;
    int64_t before = px_live_objects(NULL);
    OK(px_fault_arm("alloc", n, false));
    failed = px_module_infer(m, s->inputs.tensors[0]) != PX_OK;
    px_fault_disarm_all();
    if (failed) CHECK_EQ(px_value_int(px_module_attribute(m, lazy->lazy->size)), 0);
    if (failed) CHECK_EQ(px_live_objects(NULL), before);
    OK(forward(&result, m, s));
    px_release(result);
    px_release(m);
  }
  px_error_clear();
  return true;
}
PX_TEST(a_failed_allocation_leaves_a_layer_lazy) { CHECK_EQ(each_row(stays_lazy), 0); }

PX_TEST(a_lazy_layer_names_the_expected_input) {
  PX_SCOPED(px_module) m = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  OK(px_lazy_conv2d_new(&m, 3, 2));
  OK(px_ones(&x, (int64_t[]){2, 4}, 2, PX_DTYPE_NONE, px_cpu(), false, false));
  px_tensor *out = NULL;
  FAILS(px_module_call(&out, m, x), PX_RUNTIME,
        "Expected 3D (unbatched) or 4D (batched) input to LazyConv2d, but got input of size: "
        "torch.Size([2, 4])");
}

// ---- reset

static px_module *reset_module(const subject *s) {
  px_module *m = NULL;
  px_module_entry parameter_count;
  OK(px_module_new(&m, px_module_kind_of(s->module), s->constructor.args, NULL));
  for (int i = 0; px_module_entry_at(m, PX_ENTRY_PARAMETER, i, &parameter_count); i++)
    if (parameter_count.tensor) OK(px_init_uniform(parameter_count.tensor, 5, 6, NULL));
  px_manual_seed(1);
  OK(px_module_reset(m));
  OK(px_module_to(m, PX_FLOAT64, s->inputs.device, false));
  return m;
}
// Reset parameters equal those of construction. If children drew numbers at construction, they
// equal those of another reset.
static bool resets(subject *s) {
  px_module_entry parameter_count, other_layer;
  bool children = px_module_entry_at(s->module, PX_ENTRY_MODULE, 0, &parameter_count);
  PX_SCOPED(px_module) original = reset_module(s);
  PX_SCOPED(px_module) other = children ? reset_module(s) : px_retain(s->module);
  for (int i = 0; px_module_entry_at(original, PX_ENTRY_PARAMETER, i, &parameter_count); i++) {
    CHECK(px_module_entry_at(other, PX_ENTRY_PARAMETER, i, &other_layer));
    if (parameter_count.tensor && !same_numbers(parameter_count.tensor, other_layer.tensor))
      return report(s, parameter_count.name);
  }
  return true;
}
PX_TEST(reset_draws_the_parameters_of_construction) { CHECK_EQ(each_row(resets), 0); }

// ---- several results

static void has_shape(const px_tensor *t, int64_t a, int64_t b, int64_t c) {
  const int64_t sizes[] = {a, b, c};
  CHECK_EQ(px_tensor_ndim(t), 3);
  for (int d = 0; d < 3; d++) CHECK_EQ(px_tensor_size(t, d), sizes[d]);
}

static px_tensor *ones(int ndim, const int64_t *sizes) {
  px_tensor *t = NULL;
  OK(px_ones(&t, sizes, ndim, PX_FLOAT32, px_cpu(), false, false));
  return t;
}
#define ONES(...) \
  ones(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

PX_TEST(a_layer_returns_all_results) {
  PX_SCOPED(px_module) m = NULL;
  PX_SCOPED(px_tensor) x = ONES(5, 2, 10);
  PX_SCOPED(px_tensor) first = NULL;
  px_tensor *results[4];
  OK(px_lstm_new(&m, 10, 20, .num_layers = 2, .bidirectional = true));
  OK(px_module_forward_all(results, 3, m, &x, 1));
  has_shape(results[0], 5, 2, 40);
  has_shape(results[1], 4, 2, 20);
  has_shape(results[2], 4, 2, 20);
  OK(px_module_call(&first, m, x));
  has_shape(first, 5, 2, 40);
  for (int i = 0; i < 3; i++) px_release(results[i]);
  FAILS(px_module_forward_all(results, 4, m, &x, 1), PX_VALUE,
        "LSTM: expected at most 3 results, got 4");
}

PX_TEST(optional_inputs_may_be_null) {
  PX_SCOPED(px_module) m = NULL;
  PX_SCOPED(px_tensor) data = ONES(3, 4);
  PX_SCOPED(px_tensor) sizes = NULL;
  px_tensor *inputs[] = {data, NULL, NULL, NULL, NULL}, *results[2];
  OK(px_tensor_from_data(&sizes, (int64_t[]){2, 1}, 1, (int64_t[]){2}, PX_INT64, px_cpu()));
  OK(px_gru_new(&m, 4, 3));
  inputs[2] = sizes;  // packed data
  OK(px_module_forward_all(results, 2, m, inputs, 3));
  CHECK_EQ(px_tensor_ndim(results[0]), 2);
  has_shape(results[1], 1, 2, 3);
  for (int i = 0; i < 2; i++) px_release(results[i]);
  FAILS(px_module_forward_all(results, 2, m, inputs, 4), PX_TYPE, "takes 4 positional arguments");
  FAILS(px_module_forward_all(results, 2, m, inputs + 1, 1), PX_TYPE, "input 0 is missing");
  FAILS(px_module_forward_all(results, 2, m, inputs, 0), PX_TYPE, "but 1 were given");
}

PX_TEST(recurrent_layers_refuse_mismatched_inputs) {
  px_module *m = NULL;
  PX_SCOPED(px_tensor) x = ONES(5, 2, 4);
  PX_SCOPED(px_tensor) h = ONES(1, 2, 3);
  px_tensor *results[3];
  FAILS(px_lstm_new(&m, 4, 3, .proj_size = 3), PX_VALUE, "proj_size has to be smaller");
  FAILS(px_rnn_new(&m, 4, 3, .nonlinearity = "relu6"), PX_VALUE, "Unknown nonlinearity 'relu6'");
  FAILS(px_rnn_base_new(&m, "SRU", 4, 3), PX_VALUE, "Unrecognized RNN mode: SRU");
  OK(px_lstm_new(&m, 4, 3));
  FAILS(px_module_forward_all(results, 3, m, (px_tensor *[]){x, h}, 2), PX_TYPE,
        "LSTM: expected two states or none");
  px_release(m);
  OK(px_rnn_base_new(&m, "GRU", 4, 3));
  FAILS(px_module_forward_all(results, 1, m, &x, 1), PX_UNIMPLEMENTED, "missing the required");
  px_release(m);
}
