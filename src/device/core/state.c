// SPDX-License-Identifier: Apache-2.0
// Shared state of the layer, and errors with CUDA error codes.
#include "device/order/order.h"

_Thread_local int px__current_device;
px__runtime px__rt;
px__device *px__devices_open[PX__DEVICES];
px_stream *px__streams[PX__STREAM_LIMIT];
const px__opener *px__device_opener;
int px__watching;
_Thread_local const char *px__caller_here;
_Thread_local const px__launch_batch_hooks *px__launch_batching;

px_status px_device_init(void) { return px__device_opener->init(); }

int px_device_count(px_device_type type) { return px__device_opener->count(type); }

px_status px__device_open(px__device **out, int index) {
  return px__device_opener->open(out, index);
}

static const struct {
  int code;
  const char *text;
} cuda_errors[] = {
    {3,
     "initialization error\nSearch for `cudaErrorInitializationError' in "
     "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more "
     "information."},
    {401, "the operation cannot be performed in the present state"},
    {900, "operation not permitted when stream is capturing"},
    {901, "operation failed due to a previous error during capture"},
    {902, "operation would result in a merge of separate capture sequences"},
    {904, "capturing stream has unjoined work"},
    {905, "dependency created on uncaptured work in another stream"},
    {907, "operation not permitted on an event last recorded in a capturing stream"},
    {908, "attempt to terminate a thread-local capture sequence from another thread"},
    {101, "invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"},
};

px_status px__error_cuda(int code) {
  const char *text = "unknown error";
  for (int i = 0; i < PX_COUNT_OF(cuda_errors); i++)
    if (cuda_errors[i].code == code) text = cuda_errors[i].text;
  const char *late = px__rt.blocking
                         ? ""
                         : "CUDA kernel errors might be asynchronously reported at some "
                           "other API call, so the stacktrace below might be "
                           "incorrect.\nFor debugging consider passing "
                           "CUDA_LAUNCH_BLOCKING=1\n";
  return px_error_set(PX_ACCELERATOR, code, __FILE__, __LINE__, __func__,
                      "CUDA error: %s\n%sCompile with `TORCH_USE_CUDA_DSA` to enable device-side "
                      "assertions.\n",
                      text, late);
}
