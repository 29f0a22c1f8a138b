// SPDX-License-Identifier: Apache-2.0
// The library on a thread with a stack of 64 KiB: training, printing, saving, errors.
#include <limits.h>
#include <pthread.h>

#include "devices.h"

// Frames of sanitized code are several times as large.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK = 8 << 20 };
#else
enum { STACK = 64 << 10 };
#endif

typedef struct work {
  px_status (*run)(px_device device);
  px_device device;
  px_status status;
  char message[256];
} work;
static void *run_work(void *argument) {
  work *w = argument;
  w->status = w->run(w->device);
  snprintf(w->message, sizeof w->message, "%.255s", px_error_last()->message);
  return NULL;
}
static void on_small_stack(px_status (*run)(px_device device)) {
  simulate(1);
  for (int i = 0; i < 2; i++) {
    pthread_attr_t attributes;
    pthread_t thread;
    work w = {run, i ? px_cuda(0) : px_cpu(), PX_OK, ""};
    pthread_attr_init(&attributes);
    // The smallest stack of an aarch64 thread has 128 KiB.
    size_t least = (size_t)PTHREAD_STACK_MIN;
    CHECK(!pthread_attr_setstacksize(&attributes, STACK < least ? least : STACK));
    CHECK(!pthread_create(&thread, &attributes, run_work, &w));
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    if (w.status != PX_OK) fprintf(stderr, "%s\n", w.message);
    CHECK_EQ(w.status, PX_OK);
  }
}

static px_status random_input(px_tensor **out, px_device device, int ndim, const int64_t *sizes) {
  return px_randn(out, sizes, ndim, NULL, PX_FLOAT32, device, false, false);
}

// Three steps of a classifier with Adam and cross entropy; the results have 10 columns.
static px_status train(px_module *net, px_tensor *input, int64_t rows) {
  PX_SCOPED(px_list) parameters = NULL;
  PX_SCOPED(px_optimizer) optimizer = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_TRY(px_module_to(net, PX_DTYPE_NONE, px_tensor_device(input), false));
  PX_TRY(px_module_parameters(&parameters, net));
  PX_TRY(px_adam_new(&optimizer, px_list_items(parameters), px_list_size(parameters), .lr = 0.001));
  PX_TRY(
      px_randint(&target, 0, 10, &rows, 1, NULL, PX_INT64, px_tensor_device(input), false, false));
  double first = 0, last = 0;
  for (int step = 0; step < 3; step++) {
    PX_SCOPED(px_tensor) scores = NULL;
    PX_SCOPED(px_tensor) loss = NULL;
    px_scalar value;
    PX_TRY(px_optimizer_zero_grad(optimizer, true));
    PX_TRY(px_module_call(&scores, net, input));
    PX_TRY(px_cross_entropy(&loss, scores, target, NULL, -100, "mean", 0));
    PX_TRY(px_backward(1, &loss, NULL, false, false));
    PX_TRY(px_optimizer_step(optimizer));
    PX_TRY(px_tensor_item(&value, loss));
    last = px_scalar_float(value);
    if (step == 0) first = last;
  }
  PX_CHECK(last < first, PX_RUNTIME, "the loss rose from %g to %g", first, last);
  return PX_OK;
}

static px_status train_linears(px_device device) {
  enum { LAYERS = 9 };
  px_module *layers[LAYERS] = {NULL};
  PX_SCOPED(px_module) net = NULL;
  PX_SCOPED(px_tensor) input = NULL;
  px_status status = PX_OK;
  for (int i = 0; i < LAYERS && status == PX_OK; i++)
    status = i % 2 ? px_relu_new(&layers[i]) : px_linear_new(&layers[i], 256, i == 8 ? 10 : 256);
  if (status == PX_OK) status = px_sequential_new(&net, layers, LAYERS);
  for (int i = 0; i < LAYERS; i++) px_release(layers[i]);
  PX_TRY(status);
  PX_TRY(random_input(&input, device, 2, (int64_t[]){128, 256}));
  return train(net, input, 128);
}
PX_TEST(five_linears_train_on_64_kib_of_stack) { on_small_stack(train_linears); }

static px_status train_convolutions(px_device device) {
  px_module *layers[6] = {NULL};
  PX_SCOPED(px_module) net = NULL;
  PX_SCOPED(px_tensor) input = NULL;
  px_status status = px_conv2d_new(&layers[0], 1, 16, 3, .padding = 1);
  if (status == PX_OK) status = px_batch_norm2d_new(&layers[1], 16);
  if (status == PX_OK) status = px_relu_new(&layers[2]);
  if (status == PX_OK) status = px_max_pool2d_new(&layers[3], 2);
  if (status == PX_OK) status = px_flatten_new(&layers[4]);
  if (status == PX_OK) status = px_linear_new(&layers[5], 16 * 14 * 14, 10);
  if (status == PX_OK) status = px_sequential_new(&net, layers, 6);
  for (int i = 0; i < 6; i++) px_release(layers[i]);
  PX_TRY(status);
  PX_TRY(random_input(&input, device, 4, (int64_t[]){32, 1, 28, 28}));
  return train(net, input, 32);
}
PX_TEST(convolutions_train_on_64_kib_of_stack) { on_small_stack(train_convolutions); }

// Forward and backward of a layer.
static px_status run_backward(px_module *layer, px_device device, const int64_t sizes[3]) {
  PX_SCOPED(px_tensor) input = NULL, *output = NULL, *sum = NULL;
  PX_TRY(px_module_to(layer, PX_DTYPE_NONE, device, false));
  PX_TRY(random_input(&input, device, 3, sizes));
  PX_TRY(px_module_call(&output, layer, input));
  PX_TRY(px_sum(&sum, output, NULL, 0, false, PX_DTYPE_NONE));
  return px_backward(1, &sum, NULL, false, false);
}
static px_status train_transformer(px_device device) {
  PX_SCOPED(px_module) layer = NULL;
  PX_TRY(
      px_transformer_encoder_layer_new(&layer, 64, 4, .dim_feedforward = 128, .batch_first = true));
  return run_backward(layer, device, (int64_t[]){8, 16, 64});
}
PX_TEST(attention_runs_backward_on_64_kib_of_stack) { on_small_stack(train_transformer); }

static px_status train_lstm(px_device device) {
  PX_SCOPED(px_module) lstm = NULL;
  PX_TRY(px_lstm_new(&lstm, 32, 64, .num_layers = 2));
  return run_backward(lstm, device, (int64_t[]){10, 8, 32});
}
PX_TEST(an_lstm_runs_backward_on_64_kib_of_stack) { on_small_stack(train_lstm); }

// Ops whose kernels need large buffers: conversions, folds, scans, sorts, indices, masks.
static px_status run_ops(px_device device) {
  PX_SCOPED(px_tensor) x = NULL, *half = NULL, *y = NULL, *z = NULL, *sums = NULL, *order = NULL;
  PX_SCOPED(px_tensor) mask = NULL, *chosen = NULL, *softmax = NULL, *norm = NULL, *scan = NULL;
  PX_TRY(random_input(&x, device, 2, (int64_t[]){2000, 100}));
  PX_TRY(px_to(&half, x, PX_BFLOAT16, PX_DEVICE_NONE, false, false));
  PX_TRY(px_add(&y, half, x, px_int(1)));
  PX_TRY(px_sum(&sums, half, (int64_t[]){0}, 1, false, PX_DTYPE_NONE));
  PX_TRY(px_softmax(&softmax, half, 1, PX_DTYPE_NONE));
  PX_TRY(px_cumsum(&scan, half, 0, PX_DTYPE_NONE));
  PX_TRY(px_argsort(&order, x, 0, false, false));
  PX_TRY(px_gather(&z, x, 0, order, false));
  PX_TRY(px_gt_scalar(&mask, x, px_float(0)));
  PX_TRY(px_masked_select(&chosen, x, mask));
  return px_layer_norm(&norm, half, (int64_t[]){100}, 1, NULL, NULL, 1e-5);
}
PX_TEST(large_buffers_of_kernels_fit_64_kib_of_stack) { on_small_stack(run_ops); }

static px_status print_and_save(px_device device) {
  char path[] = "/tmp/small_stack_XXXXXX";
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_dict) loaded = NULL;
  PX_SCOPED(px_tensor) x = NULL;
  char *text;
  int file = mkstemp(path);
  PX_CHECK(file >= 0, PX_IO, "no temporary file");
  close(file);
  PX_TRY(random_input(&x, device, 2, (int64_t[]){40, 40}));
  PX_TRY(px_tensor_text(&text, x, NULL));
  px_free(text);
  PX_TRY(px_dict_new(&state));
  PX_TRY(px_dict_set(state, "x", x));
  PX_TRY(px_save(path, state, NULL));
  PX_TRY(px_load(&loaded, path, device));
  unlink(path);
  PX_CHECK(px_dict_size(loaded) == 1, PX_RUNTIME, "the file has no tensor");
  return PX_OK;
}
PX_TEST(tensors_are_printed_and_saved_on_64_kib_of_stack) { on_small_stack(print_and_save); }

// The failing op is called by a layer, and the error passes through several functions.
static px_status fail_with_trace(px_device device) {
  PX_SCOPED(px_module) linear = NULL;
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) output = NULL;
  PX_TRY(px_linear_new(&linear, 3, 4));
  PX_TRY(px_module_to(linear, PX_DTYPE_NONE, device, false));
  PX_TRY(random_input(&input, device, 2, (int64_t[]){2, 5}));
  px_status status = px_module_call(&output, linear, input);
  bool told = status == PX_RUNTIME && px_error_last()->frame_count > 1 &&
              strstr(px_error_last()->message, "shapes cannot be multiplied (2x5 and 3x4)");
  if (!told) return status == PX_OK ? PX_BUG : status;
  px_error_clear();
  return PX_OK;
}
PX_TEST(errors_are_reported_on_64_kib_of_stack) { on_small_stack(fail_with_trace); }
