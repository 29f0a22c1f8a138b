// SPDX-License-Identifier: Apache-2.0
// Kernels of matrix ops: operands become batches of matrices.
#include "cuda/host/library/gemm.h"
#include "kernel_args/linalg.h"

// The operand as matrices of the given sizes; missing and size-1 dimensions are broadcast.
static px__cuda_matrices broadcast(const px_operand *o, const int64_t sizes[3]) {
  px__cuda_matrices out = {.at = o->data};
  for (int i = 0; i < 3; i++) {
    int from = o->ndim - 3 + i;
    out.sizes[i] = sizes[i];
    out.strides[i] = from >= 0 && o->sizes[from] != 1 ? o->strides[from] : 0;
  }
  return out;
}

// A 2D or 3D operand as matrices.
static px__cuda_matrices matrices(const px_operand *o) {
  px__cuda_matrices out = {.at = o->data, .sizes = {1, 1, 1}};
  for (int i = 0; i < o->ndim; i++) {
    out.sizes[3 - o->ndim + i] = o->sizes[i];
    out.strides[3 - o->ndim + i] = o->strides[i];
  }
  return out;
}

// c = a b, and c = beta s + alpha a b.
static px_status multiply(const px_launch *l, const px_operand *c, const px_operand *a,
                          const px_operand *b) {
  return px__cuda_multiply(
      l, (px__cuda_product){
             .c = matrices(c), .a = matrices(a), .b = matrices(b), .dtype = c->dtype, .alpha = 1});
}
static px_status multiply_add(const px_launch *l, const px_operand *c, const px_operand *s,
                              const px_operand *a, const px_operand *b, px_scalar beta,
                              px_scalar alpha) {
  px__cuda_product p = {.c = matrices(c),
                        .a = matrices(a),
                        .b = matrices(b),
                        .dtype = c->dtype,
                        .beta = px_scalar_float(beta),
                        .alpha = px_scalar_float(alpha)};
  p.s = broadcast(s, p.c.sizes);
  return px__cuda_multiply(l, p);
}

PX_CUDA_KERNEL(mm) { return multiply(l, args->out, args->self, args->mat2); }
PX_CUDA_KERNEL(bmm) { return multiply(l, args->out, args->self, args->mat2); }
PX_CUDA_KERNEL(addmm) {
  return multiply_add(l, args->out, args->self, args->mat1, args->mat2, args->beta, args->alpha);
}
PX_CUDA_KERNEL(baddbmm) {
  return multiply_add(l, args->out, args->self, args->batch1, args->batch2, args->beta,
                      args->alpha);
}

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
  return px__cuda_multiply(l, (px__cuda_product){.c = column(args->out),
                                                 .a = matrices(args->self),
                                                 .b = column(args->vec),
                                                 .dtype = args->out->dtype,
                                                 .alpha = 1});
}

PX_CUDA_KERNEL(dot) {
  return px__cuda_multiply(l, (px__cuda_product){.c = matrices(args->out),
                                                 .a = row(args->self),
                                                 .b = column(args->tensor),
                                                 .dtype = args->out->dtype,
                                                 .alpha = 1});
}
