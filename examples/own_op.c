// SPDX-License-Identifier: Apache-2.0
// Loads a user-defined op from a shared object and calls it on the CPU and on a device.
// Usage: own_op [LIBRARY]; see examples/own_op/squareplus.c for the library.
#include <phlox/phlox.h>
#include <stdio.h>

static px_status print(const char *what, const px_tensor *t) {
  char *text;
  PX_TRY(px_tensor_text(&text, t, "tensor("));
  printf("%s %s\n", what, text);
  px_free(text);
  return PX_OK;
}

static px_status show(px_device device) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  const float values[] = {-1.5f, 0, 1.5f};
  PX_TRY(px_tensor_from_data(&x, values, 1, (int64_t[]){3}, PX_FLOAT32, device));
  PX_TRY(px_tensor_set_requires_grad(x, true));
  void *results[1] = {NULL};
  px_value args[2] = {PX_T(x)};  // the second is the default
  PX_TRY(px_op_call(px_op_find("toys::squareplus"), PX_CALL_NEW, args, results));
  PX_SCOPED(px_tensor) y = results[0];
  PX_TRY(px_sum_all(&sum, y, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &sum, NULL, false, false));
  PX_TRY(print("value", y));
  return print("gradient", px_tensor_grad(x));
}

static px_status run(const char *library) {
  PX_TRY(px_op_load_library(library));
  PX_TRY(show(px_cpu()));
  return px_device_count(PX_CUDA) ? show(px_cuda(0)) : PX_OK;
}

int main(int argc, char **argv) {
  if (run(argc > 1 ? argv[1] : "build/examples/libsquareplus.so") == PX_OK) return 0;
  px_error_print();
  return 1;
}
