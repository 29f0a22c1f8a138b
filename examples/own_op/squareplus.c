// SPDX-License-Identifier: Apache-2.0
// A shared object with a user-defined op, toys::squareplus: (x + sqrt(x * x + beta)) / 2. The CPU
// and the simulator use the kernel of this file. The CUDA kernel is in another shared object,
// squareplus.cu: this one needs no CUDA. Called by examples/own_op.c and examples/own_op.py.
#include <dlfcn.h>
#include <math.h>
#include <phlox/phlox.h>
#include <stdio.h>
#include <string.h>

// Argument indices in the schema.
enum { SELF, BETA };

// ---- the CPU kernel. Operands: result, self; row-major, in the compute dtype.

#define ROWS(T, root) \
  static void rows_##T(const px_launch *l) { \
    T *y = l->operands[0].data, beta = (T)px_value_float(l->params[BETA]); \
    const T *x = l->operands[1].data; \
    for (int64_t i = 0, n = px_operand_numel(&l->operands[0]); i < n; i++) \
      y[i] = (x[i] + root(x[i] * x[i] + beta)) / 2; \
  }
ROWS(float, sqrtf)
ROWS(double, sqrt)

static px_status squareplus_cpu(const px_launch *l) {
  (l->compute == PX_FLOAT64 ? rows_double : rows_float)(l);
  return PX_OK;
}

// ---- the gradient, composed of ops: grad * result / (2 * result - self); the divisor is the root

static px_status squareplus_gradient(px_op_gradient *g) {
  PX_SCOPED(px_tensor) twice = NULL;
  PX_SCOPED(px_tensor) root = NULL;
  PX_SCOPED(px_tensor) slope = NULL;
  PX_TRY(px_mul_scalar(&twice, g->results[0], px_int(2)));
  PX_TRY(px_sub(&root, twice, g->args[SELF].v.tensor, px_int(1)));
  PX_TRY(px_div(&slope, g->results[0], root));
  return px_mul(&g->out[SELF], g->grads[0], slope);
}

// ---- registration

// Returns squareplus_cuda of libsquareplus_cuda.so in this library's folder; NULL if it was not
// built.
static px_kernel cuda_kernel(void) {
  px_kernel kernel = NULL;
  char path[1024];
  Dl_info self;
  if (!dladdr(__extension__(void *) cuda_kernel, &self)) return NULL;
  size_t stem = strlen(self.dli_fname) - strlen(".so");
  int length = snprintf(path, sizeof path, "%.*s_cuda.so", (int)stem, self.dli_fname);
  void *library = length < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library) *(void **)&kernel = dlsym(library, "squareplus_cuda");
  return kernel;
}

PX_CALL px_library_entry(void);
px_status px_library_entry(void) {
  px_op_definition definition = {
      .schema = "toys::squareplus(Tensor self, *, Scalar beta=4) -> Tensor",
      .kind = "pointwise float inplace out method",
      .dtypes = "float32 float64",
      .doc = "Gives half of self plus the root of self squared plus beta.",
      .kernels = {{"cpu", squareplus_cpu}},
      .gradient = squareplus_gradient};
  px_kernel cuda = cuda_kernel();
  if (cuda) definition.kernels[1] = (px_op_kernel){"cuda", cuda};
  return px_op_register(NULL, &definition);
}
