// SPDX-License-Identifier: Apache-2.0
// The program of docs/learn/first-network.md: a gradient on a device.
#include <phlox/phlox.h>
#include <stdio.h>

static px_status run(void) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) loss = NULL;
  px_device device = px_device_count(PX_CUDA) ? px_cuda(0) : px_cpu();
  float values[] = {1, 2, 3};
  char *text;
  PX_TRY(px_tensor_from_data(&x, values, 1, (int64_t[]){3}, PX_FLOAT32, device));
  PX_TRY(px_tensor_set_requires_grad(x, true));
  PX_TRY(px_mul(&y, x, x));
  PX_TRY(px_sum(&loss, y, NULL, 0, false, PX_DTYPE_NONE));
  PX_TRY(px_backward(1, &loss, NULL, false, false));
  PX_TRY(px_tensor_text(&text, px_tensor_grad(x), "tensor("));
  puts(text);
  px_free(text);
  return PX_OK;
}

int main(void) {
  if (run() == PX_OK) return 0;
  px_error_print();
  return 1;
}
