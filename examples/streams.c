// SPDX-License-Identifier: Apache-2.0
// Two streams and events: the next batch is copied to the device during the computation on the
// previous one. Requires a device: PHLOX_SIM_DEVICES=1 build/examples/streams. To see a report of
// the race checker, remove the line with px_stream_wait_event and set PHLOX_SANITIZE=1.
#include <phlox/phlox.h>
#include <stdio.h>

enum { BATCHES = 4, SIZE = 1 << 16 };
static px_stream *copies, *compute;  // `compute` is the default stream
static px_event *arrived[BATCHES];

// Starts the copy of a batch and records an event after it. The pinned memory may be released
// immediately.
static px_status upload(px_tensor **out, int batch) {
  PX_SCOPED(px_tensor) host = NULL;
  void *data;
  PX_TRY(px_tensor_empty_pinned(&host, 1, (int64_t[]){SIZE}, PX_FLOAT32));
  PX_TRY(px_tensor_host_data(&data, host));
  for (int i = 0; i < SIZE; i++) ((float *)data)[i] = (float)(batch + 1);
  PX_ON_STREAM(copies);
  PX_TRY(px_to(out, host, PX_DTYPE_NONE, px_cuda(0), true, false));
  return px_event_record(arrived[batch], copies);
}

static px_status mean_square(px_tensor **out, px_tensor *x, int batch) {
  PX_SCOPED(px_tensor) square = NULL;
  PX_TRY(px_stream_wait_event(compute, arrived[batch]));
  PX_TRY(px_mul(&square, x, x));
  return px_mean_all(out, square, PX_DTYPE_NONE);
}

static px_status work(px_tensor **x, px_tensor **means) {
  PX_TRY(px_stream_new(&copies, px_cuda(0), 0));
  PX_TRY(px_stream_default(&compute, px_cuda(0)));
  for (int i = 0; i < BATCHES; i++) PX_TRY(px_event_new(&arrived[i], 0));
  PX_TRY(upload(&x[0], 0));
  for (int i = 0; i < BATCHES; i++) {
    if (i + 1 < BATCHES) PX_TRY(upload(&x[i + 1], i + 1));
    PX_TRY(mean_square(&means[i], x[i], i));
  }
  for (int i = 0; i < BATCHES; i++) {
    px_scalar mean;
    PX_TRY(px_tensor_item(&mean, means[i]));  // synchronizes
    printf("batch %d: %g\n", i, px_scalar_float(mean));
  }
  return PX_OK;
}

int main(void) {
  px_tensor *x[BATCHES] = {NULL}, *means[BATCHES] = {NULL};
  px_status status = work(x, means);
  if (status != PX_OK) px_error_print();
  for (int i = 0; i < BATCHES; i++) px_release(x[i]), px_release(means[i]), px_release(arrived[i]);
  px_release(copies);
  return status != PX_OK;
}
