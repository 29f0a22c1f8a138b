// SPDX-License-Identifier: Apache-2.0
// Kernels of the matrix ops: operands become batches of matrices.
#include "cuda/host/gemm.h"

// The operand as matrices of the sizes given: dimensions that are missing or single are broadcast.
static px__cuda_matrices broadcast(const px_operand *o, const int64_t sizes[3]) {
  px__cuda_matrices out = {.at = o->data};
  for (int i = 0; i < 3; i++) {
    int from = o->ndim - 3 + i;
    out.sizes[i] = sizes[i];
    out.strides[i] = from >= 0 && o->sizes[from] != 1 ? o->strides[from] : 0;
  }
  return out;
}

// The operand, of two or three dimensions, as it is.
static px__cuda_matrices matrices(const px_operand *o) {
  px__cuda_matrices out = {.at = o->data, .sizes = {1, 1, 1}};
  for (int i = 0; i < o->ndim; i++) {
    out.sizes[3 - o->ndim + i] = o->sizes[i];
    out.strides[3 - o->ndim + i] = o->strides[i];
  }
  return out;
}

static px_status multiply(const px_launch *l, int first) {
  const px_operand *o = l->operands;
  px__cuda_product p = {.c = matrices(&o[0]),
                        .a = matrices(&o[first]),
                        .b = matrices(&o[first + 1]),
                        .dtype = o[0].dtype,
                        .alpha = 1};
  if (first == 2) {
    p.s = broadcast(&o[1], p.c.sizes);
    p.beta = px_value_float(l->params[3]);
    p.alpha = px_value_float(l->params[4]);
  }
  return px__cuda_multiply(l, p);
}

PX_CUDA_KERNEL(mm) { return multiply(l, 1); }
PX_CUDA_KERNEL(bmm) { return multiply(l, 1); }
PX_CUDA_KERNEL(addmm) { return multiply(l, 2); }
PX_CUDA_KERNEL(baddbmm) { return multiply(l, 2); }

// A vector as a column.
static px__cuda_matrices column(const px_operand *o) {
  return (px__cuda_matrices){
      .at = o->data, .sizes = {1, o->sizes[0], 1}, .strides = {0, o->strides[0], 1}};
}
static px__cuda_matrices row(const px_operand *o) {
  return (px__cuda_matrices){
      .at = o->data, .sizes = {1, 1, o->sizes[0]}, .strides = {0, 1, o->strides[0]}};
}

PX_CUDA_KERNEL(mv) {
  const px_operand *o = l->operands;
  return px__cuda_multiply(l, (px__cuda_product){.c = column(&o[0]),
                                                 .a = matrices(&o[1]),
                                                 .b = column(&o[2]),
                                                 .dtype = o[0].dtype,
                                                 .alpha = 1});
}

PX_CUDA_KERNEL(dot) {
  const px_operand *o = l->operands;
  return px__cuda_multiply(l, (px__cuda_product){.c = matrices(&o[0]),
                                                 .a = row(&o[1]),
                                                 .b = column(&o[2]),
                                                 .dtype = o[0].dtype,
                                                 .alpha = 1});
}
