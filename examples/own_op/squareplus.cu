// SPDX-License-Identifier: Apache-2.0
// toys::squareplus on NVIDIA GPUs: blocks of 256 threads, one element per thread in a grid-stride
// loop; consecutive threads access consecutive elements. The caller has made the device's context
// current. The launch is asynchronous on the given stream.
#include <phlox/backend.h>

template <typename T>
static __global__ void squareplus(T *y, const T *x, T beta, int64_t n) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = (x[i] + sqrt(x[i] * x[i] + beta)) / 2;
}

template <typename T>
static void launch(const px_launch *l) {
  int64_t n = px_operand_numel(&l->operands[0]), blocks = (n + 255) / 256;
  squareplus<T><<<(unsigned)(blocks < 1024 ? blocks : 1024), 256, 0, (cudaStream_t)l->stream>>>(
      (T *)l->operands[0].data, (const T *)l->operands[1].data, (T)px_value_float(l->params[1]), n);
}

extern "C" __attribute__((visibility("default"))) px_status squareplus_cuda(const px_launch *l) {
  if (l->compute == PX_FLOAT64)
    launch<double>(l);
  else
    launch<float>(l);
  return cudaPeekAtLastError() == cudaSuccess ? PX_OK : PX_ACCELERATOR;
}
