// SPDX-License-Identifier: Apache-2.0
// Element-wise ops give the same bits for an element in a long row, alone, and in a strided view.
#include "phlox/ops.h"
#include "test.h"

enum { COUNT = 67, MAX_PARAMS = 32 };

static int tensors_of(const px_op *op) {
  int count = 0;
  for (int i = 0; i < op->param_count; i++) count += op->params[i].kind == PX_ARG_TENSOR;
  return count;
}

// Element-wise, with tensors as the only required arguments.
static bool is_elementwise(const px_op *op) {
  if (op->kind != PX_OP_POINTWISE || op->result_count != 1 || op->param_count > MAX_PARAMS)
    return false;
  for (int i = 0; i < op->param_count; i++) {
    const px_param *p = &op->params[i];
    if (p->kind != PX_ARG_TENSOR && !p->has_default && !p->optional) return false;
  }
  return tensors_of(op) >= 1 && tensors_of(op) <= 3;
}

// Distinct numbers for each operand. Some are far outside any fast path.
static px_tensor *numbers(int operand, px_dtype dtype) {
  float values[COUNT];
  px_tensor *t = NULL, *out = NULL;
  for (int i = 0; i < COUNT; i++) {
    double x = sin(12.9898 * (i + 1) + 78.233 * operand) * (operand % 2 ? 3 : 40);
    values[i] = (float)(i % 13 == 5 ? x * 1e9 : i % 17 == 3 ? x * 1e-9 : x);
  }
  OK(px_tensor_from_data(&t, values, 1, (int64_t[]){COUNT}, PX_FLOAT32, px_cpu()));
  OK(px_to(&out, t, dtype, px_cpu(), false, false));
  px_release(t);
  return out;
}

static px_status apply(px_tensor **out, const px_op *op, px_tensor *const *inputs) {
  px_value args[MAX_PARAMS];
  void *results[4] = {NULL};
  int next = 0;
  for (int i = 0; i < op->param_count; i++)
    args[i] = op->params[i].kind == PX_ARG_TENSOR ? PX_T(inputs[next++]) : PX_NONE();
  px_status status = px_op_call(op, PX_CALL_NEW, args, results);
  *out = results[0];
  return status;
}

// Applies the op to elements [start, start + n * step) of the inputs.
static px_tensor *part(const px_op *op, px_tensor *const *inputs, int64_t start, int64_t n,
                       int64_t step) {
  px_tensor *views[4] = {NULL}, *out = NULL;
  for (int i = 0; i < tensors_of(op); i++)
    OK(px_as_strided(&views[i], inputs[i], &n, 1, &step, 1, &start));
  OK(apply(&out, op, views));
  for (int i = 0; i < 4; i++) px_release(views[i]);
  return out;
}

static void same(const px_op *op, const px_tensor *whole, const px_tensor *some, int64_t start,
                 int64_t step) {
  size_t size = px_dtype_size(px_tensor_dtype(whole));
  char all[COUNT * 8], few[COUNT * 8];
  OK(px_tensor_read(whole, all, COUNT * size));
  OK(px_tensor_read(some, few, (size_t)px_tensor_numel(some) * size));
  for (int64_t i = 0; i < px_tensor_numel(some); i++) {
    const char *a = all + (size_t)(start + i * step) * size, *b = few + (size_t)i * size;
    double x = px_scalar_float(px_scalar_load(px_tensor_dtype(whole), a));
    double y = px_scalar_float(px_scalar_load(px_tensor_dtype(whole), b));
    if (!memcmp(a, b, size) || (x != x && y != y)) continue;
    fprintf(stderr, "%s: element %lld is %.17g, and %.17g from %lld on by %lld\n", op->name,
            (long long)(start + i * step), x, y, (long long)start, (long long)step);
    exit(1);
  }
}

static bool check(const px_op *op, px_dtype dtype) {
  PX_SCOPED(px_tensor) whole = NULL;
  px_tensor *inputs[4] = {NULL};
  for (int i = 0; i < tensors_of(op); i++) inputs[i] = numbers(i, dtype);
  bool there = apply(&whole, op, inputs) == PX_OK;
  for (int64_t step = 1; there && step <= 3; step++)
    for (int64_t start = 0; start < 5; start++) {
      PX_SCOPED(px_tensor) some = part(op, inputs, start, (COUNT - start + step - 1) / step, step);
      PX_SCOPED(px_tensor) one = part(op, inputs, start, 1, 1);
      same(op, whole, some, start, step);
      same(op, whole, one, start, 1);
    }
  for (int i = 0; i < 4; i++) px_release(inputs[i]);
  return there;
}

PX_TEST(results_do_not_depend_on_the_position_of_an_element) {
  int checked = 0;
  for (int id = 0; id < px_op_count(); id++)
    if (is_elementwise(px_op_at(id)))
      checked += check(px_op_at(id), PX_FLOAT32) && check(px_op_at(id), PX_FLOAT64);
  fprintf(stderr, "%d ops checked\n", checked);
  CHECK(checked > 60);
}
