// SPDX-License-Identifier: Apache-2.0
// Checks gradients by central differences: first derivatives of a function, and second ones.
//
// The Jacobian is compared element by element: J[i][j] is the derivative of result element j with
// respect to input element i. Inputs should be float64 or complex128: differences with eps 1e-6
// mean little in other dtypes. A complex number counts as two real ones, and its gradient as the
// slopes by both.
#include <math.h>

#include "autograd/engine/graph.h"
#include "phlox/ops/copy.h"

typedef px_status (*px__checked)(px_tensor **out, px_tensor *const *inputs, void *context);
typedef struct px__check {
  px__checked fn;
  void *context;
  int count;
  px_tensor *const *inputs;
  px_tensor **shifted;  // the inputs, one of them replaced
  double eps, atol, rtol;
} px__check;

// Number of real scalars of a tensor: elements, or real and imaginary parts.
static int64_t numbers_of(const px_tensor *t) {
  return px_tensor_numel(t) * (px_dtype_is_complex(px_tensor_dtype(t)) ? 2 : 1);
}

// Reads all scalars as doubles. The caller frees *out.
static px_status read_all(double **out, const px_tensor *t) {
  int64_t n = numbers_of(t);
  px_dtype dtype = px_dtype_to_real(px_tensor_dtype(t));
  size_t item = px_dtype_size(dtype);
  double *values = NULL;
  char *raw = NULL;
  PX_TRY(px_alloc((void **)&values, (size_t)n * sizeof *values));
  px_status status = px_alloc((void **)&raw, (size_t)n * item);
  if (status == PX_OK) status = px_tensor_read(t, raw, (size_t)n * item);
  for (int64_t i = 0; status == PX_OK && i < n; i++)
    values[i] = px_scalar_float(px_scalar_load(dtype, raw + (size_t)i * item));
  px_free(raw);
  if (status != PX_OK) px_free(values);
  *out = status == PX_OK ? values : NULL;
  return status;
}

static px_status result_at(double **out, int64_t *n, const px__check *c, int input,
                           double *values) {
  const px_tensor *like = c->inputs[input];
  px_dtype dtype = px_tensor_dtype(like);
  PX_SCOPED(px_tensor) exact = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  PX_TRY(px_tensor_from_data(&exact, values, px_tensor_ndim(like), px_tensor_sizes(like),
                             px_dtype_is_complex(dtype) ? PX_COMPLEX128 : PX_FLOAT64,
                             px_tensor_device(like)));
  PX_TRY(px_to(&moved, exact, dtype, PX_DEVICE_NONE, false, false));
  PX_TRY(px_tensor_set_requires_grad(moved, true));
  memcpy(c->shifted, c->inputs, (size_t)c->count * sizeof *c->shifted);
  c->shifted[input] = moved;
  PX_TRY(c->fn(&result, c->shifted, c->context));
  *n = numbers_of(result);
  return read_all(out, result);
}

// Numerical row i of the Jacobian.
static px_status numeric_row(double *row, const px__check *c, int input, double *values,
                             int64_t i) {
  double at = values[i], *plus = NULL, *minus = NULL;
  int64_t n = 0;
  values[i] = at + c->eps;
  px_status status = result_at(&plus, &n, c, input, values);
  values[i] = at - c->eps;
  if (status == PX_OK) status = result_at(&minus, &n, c, input, values);
  values[i] = at;
  for (int64_t j = 0; status == PX_OK && j < n; j++) row[j] = (plus[j] - minus[j]) / (2 * c->eps);
  px_free(plus);
  px_free(minus);
  return status;
}

static px_status one_hot(px_tensor **out, const px_tensor *like, int64_t j) {
  char *raw = NULL;
  px_dtype number = px_dtype_to_real(px_tensor_dtype(like));
  size_t item = px_dtype_size(number);
  PX_TRY(px_alloc((void **)&raw, (size_t)numbers_of(like) * item));
  px_scalar_store(px_float(1), number, raw + (size_t)j * item);
  px_status status = px_tensor_from_data(out, raw, px_tensor_ndim(like), px_tensor_sizes(like),
                                         px_tensor_dtype(like), px_tensor_device(like));
  px_free(raw);
  return status;
}

// Column j of the Jacobian by backward: `rows` entries with stride `n`.
static px_status analytic_column(double *matrix, int64_t rows, int64_t n, int64_t j,
                                 px_tensor *result, px_tensor *input) {
  PX_SCOPED(px_tensor) seed = NULL;
  PX_SCOPED(px_tensor) grad = NULL;
  PX_TRY(one_hot(&seed, result, j));
  PX_TRY(px_grad(&grad, 1, &result, &seed, 1, &input, true, false, true));
  if (!grad) return PX_OK;
  double *values = NULL;
  PX_TRY(read_all(&values, grad));
  for (int64_t i = 0; i < rows; i++) matrix[i * n + j] = values[i];
  px_free(values);
  return PX_OK;
}

static px_status compare(const px__check *c, int input, const double *numeric,
                         const double *analytic, int64_t rows, int64_t n) {
  for (int64_t k = 0; k < rows * n; k++) {
    bool same = fabs(numeric[k] - analytic[k]) <= c->atol + c->rtol * fabs(numeric[k]);
    PX_CHECK(same, PX_RUNTIME,
             "Jacobian mismatch for output 0 with respect to input %d, element %lld of the output "
             "by element %lld of the input: numerical %.9g, analytical %.9g",
             input, (long long)(k % n), (long long)(k / n), numeric[k], analytic[k]);
  }
  return PX_OK;
}

static px_status check_matrix(const px__check *c, int input, px_tensor *result, double *values,
                              double *numeric, double *analytic) {
  int64_t rows = numbers_of(c->inputs[input]), n = numbers_of(result);
  for (int64_t i = 0; i < rows; i++) PX_TRY(numeric_row(numeric + i * n, c, input, values, i));
  for (int64_t j = 0; j < n && px_tensor_requires_grad(result); j++)
    PX_TRY(analytic_column(analytic, rows, n, j, result, c->inputs[input]));
  return compare(c, input, numeric, analytic, rows, n);
}

static px_status check_input(const px__check *c, int input) {
  PX_SCOPED(px_tensor) result = NULL;
  PX_TRY(c->fn(&result, c->inputs, c->context));
  PX_CHECK(result, PX_VALUE, "gradcheck expects the function to return a result");
  PX_CHECK(px_dtype_is_differentiable(px_tensor_dtype(result)), PX_VALUE,
           "gradcheck expects a result of floating point or complex dtype");
  size_t cells = (size_t)numbers_of(c->inputs[input]) * (size_t)numbers_of(result);
  double *values = NULL, *matrices = NULL;
  PX_TRY(read_all(&values, c->inputs[input]));
  px_status status = px_alloc((void **)&matrices, 2 * cells * sizeof *matrices);
  if (status == PX_OK) status = check_matrix(c, input, result, values, matrices, matrices + cells);
  px_free(matrices);
  px_free(values);
  return status;
}

static bool checked(const px_tensor *t) { return t && px_tensor_requires_grad(t); }

static px_status check_inputs(const px__check *c) {
  int seen = 0;
  for (int i = 0; i < c->count; i++) {
    if (!checked(c->inputs[i])) continue;
    if (px_dtype_to_real(px_tensor_dtype(c->inputs[i])) != PX_FLOAT64)
      PX_TRY(px_warn(PX_WARN_USER,
                     "Input #%d requires gradient and is not a double precision floating point or "
                     "complex. This check will likely fail if all the inputs are not of double "
                     "precision floating point or complex. ",
                     i));
    PX_TRY(check_input(c, i));
    seen++;
  }
  PX_CHECK(seen, PX_VALUE,
           "gradcheck expects at least one input tensor to require gradient, but none of the them "
           "have requires_grad=True.");
  return PX_OK;
}

px_status px_gradcheck(px_status (*fn)(px_tensor **out, px_tensor *const *inputs, void *context),
                       void *context, int input_count, px_tensor *const *inputs, double eps,
                       double atol, double rtol) {
  PX_GIVEN(fn);
  PX_GIVEN_N(inputs, input_count);
  px_tensor **shifted = NULL;
  PX_TRY(px_alloc((void **)&shifted, (size_t)input_count * sizeof *shifted));
  px__check c = {fn, context, input_count, inputs, shifted, eps, atol, rtol};
  bool before = px__grad_swap(true);
  px_status status = check_inputs(&c);
  px__grad_swap(before);
  px_free(shifted);
  return status;
}

// ---- second order: the checked function is one gradient of fn. Its additional last input is the
// gradient of fn's result

typedef struct px__second {
  px__checked fn;
  void *context;
  int count, which;
} px__second;

static px_status zeros_like(px_tensor **out, const px_tensor *t) {
  double *none = NULL;
  PX_TRY(px_alloc((void **)&none, (size_t)numbers_of(t) * sizeof *none));
  px_status status = px_tensor_from_data(out, none, px_tensor_ndim(t), px_tensor_sizes(t),
                                         px_tensor_dtype(t), px_tensor_device(t));
  px_free(none);
  return status;
}

static px_status gradient_of(px_tensor **out, px_tensor *const *inputs, void *context) {
  const px__second *s = context;
  PX_SCOPED(px_tensor) result = NULL;
  PX_TRY(s->fn(&result, inputs, s->context));
  px_tensor *input = inputs[s->which], *seed = inputs[s->count];
  if (px_tensor_requires_grad(result))
    PX_TRY(px_grad(out, 1, &result, &seed, 1, &input, true, true, true));
  return *out ? PX_OK : zeros_like(out, input);
}

// A gradient of the result with varied nonzero values.
static px_status varied_seed(px_tensor **out, const px_tensor *like) {
  double *values = NULL;
  int64_t n = numbers_of(like);
  bool complex = px_dtype_is_complex(px_tensor_dtype(like));
  PX_TRY(px_alloc((void **)&values, (size_t)n * sizeof *values));
  for (int64_t i = 0; i < n; i++) values[i] = 0.5 + 0.37 * (double)(i % 5) - 0.11 * (double)(i % 3);
  px_status status =
      px_tensor_from_data(out, values, px_tensor_ndim(like), px_tensor_sizes(like),
                          complex ? PX_COMPLEX128 : PX_FLOAT64, px_tensor_device(like));
  px_free(values);
  return status == PX_OK ? px_tensor_set_requires_grad(*out, true) : status;
}

static px_status check_second(px__second *s, px_tensor **inputs, double eps, double atol,
                              double rtol) {
  PX_SCOPED(px_tensor) result = NULL;
  PX_SCOPED(px_tensor) seed = NULL;
  PX_TRY(s->fn(&result, inputs, s->context));
  PX_CHECK(result, PX_VALUE, "gradgradcheck expects the function to return a result");
  PX_TRY(varied_seed(&seed, result));
  inputs[s->count] = seed;
  for (s->which = 0; s->which < s->count; s->which++)
    if (checked(inputs[s->which]))
      PX_TRY(px_gradcheck(gradient_of, s, s->count + 1, inputs, eps, atol, rtol));
  return PX_OK;
}

px_status px_gradgradcheck(px_status (*fn)(px_tensor **out, px_tensor *const *inputs,
                                           void *context),
                           void *context, int input_count, px_tensor *const *inputs, double eps,
                           double atol, double rtol) {
  PX_GIVEN(fn);
  PX_GIVEN_N(inputs, input_count);
  PX_CHECK(input_count > 0, PX_VALUE, "gradgradcheck expects at least one input, but got %d",
           input_count);
  px_tensor **all = NULL;
  PX_TRY(px_alloc((void **)&all, ((size_t)input_count + 1) * sizeof *all));
  memcpy(all, inputs, (size_t)input_count * sizeof *all);
  px__second s = {fn, context, input_count, 0};
  bool before = px__grad_swap(true);
  px_status status = check_second(&s, all, eps, atol, rtol);
  px__grad_swap(before);
  px_free(all);
  return status;
}
