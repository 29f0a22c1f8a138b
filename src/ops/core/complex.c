// SPDX-License-Identifier: Apache-2.0
// Complex numbers without kernels: composed from their parts. Matrix products on the CPU are four
// products of real matrices. GPUs have kernels.
#include "call/shapes.h"
#include "formulas.h"
#include "hidden/linalg.h"
#include "hidden/arithmetic.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/linalg.h"
#include "run_functions/norm.h"
#include "run_functions/arithmetic.h"
#include "run_functions/index.h"

// ---- products

typedef px_status (*product)(px_tensor **out, const px_tensor *a, const px_tensor *b);

static px_status parts_of(px_tensor *parts[2], const px_tensor *t) {
  PX_TRY(px_real(&parts[0], t));
  return px_imag(&parts[1], t);
}
static void drop(px_tensor **list, int n) {
  for (int i = 0; i < n; i++) px_release(list[i]);
}

// One part of the product: ac - bd, or ad + bc.
static px_status one_part(px_tensor *to, px_tensor *const a[2], px_tensor *const b[2],
                          int part_index, product of) {
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) y = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(of(&x, a[0], b[part_index]));
  PX_TRY(of(&y, a[1], b[!part_index]));
  PX_TRY(part_index ? px_add(&sum, x, y, px_int(1)) : px_sub(&sum, x, y, px_int(1)));
  return px__tensor_copy(to, sum, false);
}

static px_status multiply(px_tensor *to, const px_tensor *a, const px_tensor *b, product of) {
  px_tensor *parts[6] = {NULL};
  px_status status = parts_of(parts, a);
  if (status == PX_OK) status = parts_of(parts + 2, b);
  if (status == PX_OK) status = parts_of(parts + 4, to);
  for (int part_index = 0; part_index < 2 && status == PX_OK; part_index++)
    status = one_part(parts[4 + part_index], parts, parts + 2, part_index, of);
  drop(parts, 6);
  return status;
}

// alpha * product + beta * self. self is not read if beta is 0, nor a matrix product if alpha is 0.
typedef struct scaled {
  const px_tensor *self;
  px_scalar beta, alpha;
} scaled;
static px_status add_scaled(px_tensor **out, const px_tensor *made, const scaled *s) {
  PX_SCOPED(px_tensor) scaled_self = NULL;
  PX_SCOPED(px_tensor) times = NULL;
  if (px_scalar_float(s->alpha) == 0 && made->ndim == 2)
    PX_TRY(px_zeros_like(&times, made, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL));
  else
    PX_TRY(px_mul_scalar(&times, made, s->alpha));
  if (px_scalar_float(s->beta) == 0) return *out = PX_MOVE(times), PX_OK;
  PX_TRY(px_mul_scalar(&scaled_self, s->self, s->beta));
  return px_add(out, times, scaled_self, px_int(1));
}

static px_status run_product(px_call *call, const px_tensor *a, const px_tensor *b, int ndim,
                             const int64_t *sizes, product of, const scaled *s) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px__check_dtype(call->op, (px_dtype)a->dtype, call->device));
  PX_TRY(px__call_result(call, 0, ndim, sizes, (px_dtype)a->dtype));
  PX_TRY(px_tensor_empty(&made, ndim, sizes, (px_dtype)a->dtype, px__tensor_device(a)));
  PX_TRY(multiply(made, a, b, of));
  if (s) PX_TRY(add_scaled(&sum, made, s));
  PX_TRY(px__tensor_copy(call->results[0], s ? sum : made, false));
  call->skip_launch = true;
  return PX_OK;
}

// Called before the launch; real operands pass through. Callers test is_real first as a fast path.
// Nested calls are not recorded.
static bool is_real(const px_tensor *t) {
  return PX_LIKELY(!px_dtype_is_complex((px_dtype)t->dtype));
}
static px_status products(px_call *call, const px_tensor *a, const px_tensor *b, int ndim,
                          const int64_t *sizes, product of, const scaled *s) {
  if (is_real(a)) return PX_OK;
  px_device_type type = (px_device_type)call->device.type;
  if (a->dtype != PX_COMPLEX32 && type != PX_META && !px__runs_host_kernels(type)) return PX_OK;
  if (px__hooks) px__hooks->suspend(true);
  px_status status = run_product(call, a, b, ndim, sizes, of, s);
  if (px__hooks) px__hooks->suspend(false);
  return status;
}

// The term added to a product broadcasts to its sizes.
static px_status scaled_products(px_call *call, const scaled *s, const px_tensor *a,
                                 const px_tensor *b, int ndim, const int64_t *sizes, product of) {
  PX_TRY(px__check_expands(PX_T((px_tensor *)s->self), (px__sizes){sizes, ndim}));
  return products(call, a, b, ndim, sizes, of, s);
}

PX_RUN(mm) {
  const px_tensor *a = args->self, *b = args->mat2;
  if (is_real(a)) return PX_OK;
  return products(call, a, b, 2, (const int64_t[]){a->sizes[0], b->sizes[1]}, px_mm, NULL);
}
PX_RUN(bmm) {
  const px_tensor *a = args->self, *b = args->mat2;
  if (is_real(a)) return PX_OK;
  const int64_t sizes[] = {a->sizes[0], a->sizes[1], b->sizes[2]};
  return products(call, a, b, 3, sizes, px_bmm, NULL);
}
PX_RUN(mv) { return products(call, args->self, args->vec, 1, args->self->sizes, px_mv, NULL); }
PX_RUN(dot) { return products(call, args->self, args->tensor, 0, NULL, px_dot, NULL); }
PX_RUN(addmm) {
  const px_tensor *a = args->mat1, *b = args->mat2;
  const scaled s = {args->self, args->beta, args->alpha};
  return scaled_products(call, &s, a, b, 2, (const int64_t[]){a->sizes[0], b->sizes[1]}, px_mm);
}
PX_RUN(baddbmm) {
  const px_tensor *a = args->batch1, *b = args->batch2;
  const scaled s = {args->self, args->beta, args->alpha};
  const int64_t sizes[] = {a->sizes[0], a->sizes[1], b->sizes[2]};
  return scaled_products(call, &s, a, b, 3, sizes, px_bmm);
}
static px_status mm_transposed(px_tensor **out, const px_tensor *a, const px_tensor *b) {
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_TRY(px_t(&transposed, b));
  return px_mm(out, a, transposed);
}
PX_RUN(_linear) {
  const px_tensor *a = args->mat1, *b = args->mat2;
  const scaled s = {args->self, args->beta, args->alpha};
  const int64_t sizes[] = {a->sizes[0], b->sizes[0]};
  return scaled_products(call, &s, a, b, 2, sizes, mm_transposed);
}

// ---- complex scalar factors: multiplied into the operands they scale

PX_RUN(_complex_number) {
  px_tensor *number = args->number;
  px_dtype dtype = args->dtype;
  px_complex value;
  bool complex = px_dtype_is_complex(dtype);
  PX_TRY(px_tensor_item_complex(&value, number));
  px_scalar real =
      dtype == PX_BOOL ? px_bool(value.real != 0 || value.imag != 0) : px_float(value.real);
  PX_CHECK(complex || dtype == PX_BOOL || (value.imag == 0 && px_scalar_fits(real, dtype)),
           PX_RUNTIME, "value cannot be converted to type %s without overflow",
           px_dtype_about(dtype)->c_name);
  if (!complex) return px_full(&call->results[0], NULL, 0, real, dtype, px_cpu(), false, false);
  return call->results[0] = px_retain(number), PX_OK;
}
// The same as a factor, which fp16 and bf16 tensors multiply as float32.
static px_status factor_of(px_tensor **out, const px_tensor *number, px_dtype dtype) {
  bool narrow = px_dtype_is_float(dtype) && px_dtype_size(dtype) <= 2;
  return px__complex_number(out, number, narrow ? PX_FLOAT32 : dtype);
}
// Multiplies t by a number, if any, in the dtype of the op.
static px_status scale(px_tensor **out, px_tensor *t, const px_tensor *number, px_dtype dtype) {
  PX_SCOPED(px_tensor) factor = NULL;
  if (!number) return *out = px_retain(t), PX_OK;
  PX_TRY(factor_of(&factor, number, dtype));
  return px_mul(out, t, factor);
}
// t multiplied by a number. A factor of 0 stays apart in `left`, so that t is not read.
static px_status times_number(px_tensor **out, px_scalar *left, px_tensor *t,
                              const px_tensor *number, px_dtype dtype) {
  px_complex value = {1, 0};
  *left = px_int(1);
  if (number && px__tensor_device(number).type == PX_CPU)
    PX_TRY(px_tensor_item_complex(&value, number));
  if (value.real == 0 && value.imag == 0) *left = px_int(0);
  return scale(out, t, px_scalar_int(*left) ? number : NULL, dtype);
}
static px_dtype common_dtype(const px_tensor *a, const px_tensor *b, const px_tensor *c) {
  px_dtype dtype = px_dtype_promote((px_dtype)a->dtype, (px_dtype)b->dtype);
  return px_dtype_promote(dtype, (px_dtype)c->dtype);
}
#define OF_COMPLEX(name, first, second) \
  PX_RUN(name##_of_complex) { \
    PX_SCOPED(px_tensor) self = NULL; \
    PX_SCOPED(px_tensor) factor = NULL; \
    px_scalar beta, alpha; \
    px_dtype dtype = common_dtype(args->self, args->first, args->second); \
    PX_TRY(times_number(&self, &beta, args->self, args->beta, dtype)); \
    PX_TRY(times_number(&factor, &alpha, args->first, args->alpha, dtype)); \
    return px_##name(&call->results[0], self, factor, args->second, beta, alpha); \
  }
OF_COMPLEX(addmm, mat1, mat2)
OF_COMPLEX(baddbmm, batch1, batch2)
OF_COMPLEX(addmv, mat, vec)
OF_COMPLEX(addr, vec1, vec2)
OF_COMPLEX(addbmm, batch1, batch2)

#define ADD_TERM(name) \
  PX_RUN(name##_of_complex) { \
    PX_SCOPED(px_tensor) multiple = NULL; \
    px_dtype dtype = common_dtype(args->self, args->tensor1, args->tensor2); \
    PX_TRY(scale(&multiple, args->tensor1, args->value, dtype)); \
    return px_##name(&call->results[0], args->self, multiple, args->tensor2, px_int(1)); \
  }
ADD_TERM(addcmul)
ADD_TERM(addcdiv)
// ---- softmax

// Unsigned integers, only with a floating-point dtype argument. They are converted first.
static px_status softmax_of_unsigned(px_call *call, const px_tensor *self, px_dtype dtype,
                                     int64_t dim, bool log) {
  PX_SCOPED(px_tensor) wide = NULL;
  if (dtype == PX_DTYPE_NONE || !px_dtype_is_float(dtype))
    return px__refuse_dtype(px_op_find(log ? "log_softmax" : "softmax"), (px_dtype)self->dtype,
                            call->device);
  PX_TRY(px_to(&wide, self, dtype, PX_DEVICE_NONE, false, false));
  px_tensor **out = &call->results[0];
  return log ? px_log_softmax(out, wide, dim, dtype) : px_softmax(out, wide, dim, dtype);
}
PX_RUN(_softmax_of_complex) {
  if (px__is_unsigned((px_dtype)args->self->dtype))
    return softmax_of_unsigned(call, args->self, args->dtype, args->dim, args->log);
  px_dtype dtype = args->dtype == PX_DTYPE_NONE ? (px_dtype)args->self->dtype : args->dtype;
  const px_value of[] = {PX_T(args->self), PX_I(args->dim), PX_DT(dtype), PX_B(args->log)};
  return px__formula_softmax_of_parts(call->results, of);
}

// ---- construction from parts

static px_status check_parts(const px_tensor *a, const px_tensor *b, const char *name) {
  PX_CHECK(px_dtype_to_complex((px_dtype)a->dtype) != PX_DTYPE_NONE &&
               px_dtype_is_float((px_dtype)a->dtype) && px_dtype_is_float((px_dtype)b->dtype) &&
               px_dtype_to_complex((px_dtype)b->dtype) != PX_DTYPE_NONE,
           PX_UNIMPLEMENTED,
           "Expected both inputs to be Half, Float or Double tensors but got %s and %s",
           px_dtype_class((px_dtype)a->dtype), px_dtype_class((px_dtype)b->dtype));
  PX_CHECK(a->dtype == b->dtype, PX_RUNTIME,
           "Expected object of scalar type %s but got scalar type %s for second argument",
           px_dtype_class((px_dtype)a->dtype), px_dtype_class((px_dtype)b->dtype));
  return PX_OK;
}

PX_RUN(complex_of) {
  const px_tensor *a = args->real, *b = args->imag;
  px_tensor *parts[2] = {NULL};
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  PX_TRY(check_parts(a, b, "complex"));
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__broadcast(&ndim, sizes, a->ndim, a->sizes, b->ndim, b->sizes));
  PX_TRY(px__call_result(call, 0, ndim, sizes, px_dtype_to_complex((px_dtype)a->dtype)));
  px_status status = parts_of(parts, call->results[0]);
  if (status == PX_OK) status = px__tensor_copy(parts[0], a, false);
  if (status == PX_OK) status = px__tensor_copy(parts[1], b, false);
  drop(parts, 2);
  return status;
}

PX_RUN(conj_physical) {
  px_tensor *self = args->self;
  if (px_dtype_is_complex((px_dtype)self->dtype)) return px__conj_physical(&call->results[0], self);
  call->results[0] = px_retain(self);
  return PX_OK;
}
