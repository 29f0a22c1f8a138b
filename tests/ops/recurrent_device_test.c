// SPDX-License-Identifier: Apache-2.0
// Fault injection in a recurrent net on a device, forward and backward: with a library's
// implementation, and layer by layer. On a real device if there is one, otherwise on a simulated
// one.
#include "device_help.h"
#include "faults.h"

enum { LAYERS = 2, IN = 3, SIZE = 4, EACH = 4, PARAMS = LAYERS * EACH };
static const int64_t counts[] = {3, 2, 2, 1};
enum { TIMES = sizeof counts / sizeof *counts, ROWS = 8, BATCH = 3 };

static px_status filled(px_tensor **out, const job *j, int ndim, const int64_t *sizes, bool grad) {
  PX_SCOPED(px_tensor) here = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  int64_t numel = 1;
  float values[256];
  for (int d = 0; d < ndim; d++) numel *= sizes[d];
  for (int64_t i = 0; i < numel; i++) values[i] = (float)(i % 7 - 3) / 4;
  PX_TRY(px_tensor_from_data(&here, values, ndim, sizes, PX_FLOAT32, px_cpu()));
  PX_TRY(px_to(&made, here, PX_DTYPE_NONE, j->device, false, true));
  PX_TRY(px_tensor_set_requires_grad(made, grad));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status run_layers(job *j, px_tensor *rows, px_tensor *h, px_tensor *const *params) {
  PX_SCOPED(px_tensor) output = NULL;
  PX_SCOPED(px_tensor) h_n = NULL;
  PX_SCOPED(px_tensor) c_n = NULL;
  PX_SCOPED(px_tensor) sizes = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  px_tensor *hx[] = {h, h};
  PX_TRY(px_tensor_from_data(&sizes, counts, 1, (int64_t[]){TIMES}, PX_INT64, px_cpu()));
  PX_TRY(px_lstm_packed(&output, &h_n, &c_n, rows, sizes, hx, 2, params, PARAMS, true, LAYERS, 0,
                        true, false));
  PX_TRY(px_sum_all(&sum, output, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(add_to_loss(j, c_n));
  PX_TRY(add_to_loss(j, px_tensor_grad(rows)));
  for (int k = 0; k < PARAMS; k++) PX_TRY(add_to_loss(j, px_tensor_grad(params[k])));
  return PX_OK;
}

static px_status step(void *context) {
  job *j = context;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) h = NULL;
  px_tensor *params[PARAMS] = {NULL};
  j->loss = 0;
  px_status status = filled(&rows, j, 2, (int64_t[]){ROWS, IN}, true);
  if (status == PX_OK) status = filled(&h, j, 3, (int64_t[]){LAYERS, BATCH, SIZE}, false);
  for (int k = 0; k < PARAMS && status == PX_OK; k++) {
    int64_t columns = k % EACH == 0 && k < EACH ? IN : SIZE;
    status = filled(&params[k], j, k % EACH < 2 ? 2 : 1, (int64_t[]){4 * SIZE, columns}, true);
  }
  if (status == PX_OK) status = run_layers(j, rows, h, params);
  for (int k = 0; k < PARAMS; k++) px_release(params[k]);
  return status;
}

static void survive_faults(bool library) {
  static const char *const points[] = {"alloc", "device.alloc", "launch", "copy"};
  arrange();
  px_setting_set(PX_SETTING_CUDNN_ENABLED, library);
  for (size_t p = 0; p < sizeof points / sizeof *points; p++)
    CHECK(fail_each(points[p], step, &(job){px_cuda(0), NULL, 0, 0}) > 0);
}

PX_TEST(a_library_net_survives_every_fault) { survive_faults(true); }
PX_TEST(a_layered_net_survives_every_fault) { survive_faults(false); }

PX_TEST(a_library_net_equals_its_layers) {
  job j = {.replicas = 0};
  float results[2];
  arrange();
  j.device = px_cuda(0);
  for (int library = 0; library < 2; library++) {
    px_setting_set(PX_SETTING_CUDNN_ENABLED, library);
    OK(step(&j));
    results[library] = j.loss;
  }
  CHECK_NEAR(results[0], results[1], 1e-4 * (fabsf(results[0]) + 1));
}
