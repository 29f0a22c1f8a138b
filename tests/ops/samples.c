// SPDX-License-Identifier: Apache-2.0
// Each sample of each op table: it runs, first and second gradients of composites match finite
// differences, and in-place forms, out= forms and strided inputs give the same values.
#include "sample.h"

static int failures;
static void report(const sample *s, const char *what) {
  fprintf(stderr, "%s %s: %s: %s\n", s->op, s->text, what, px_error_last()->message);
  px_error_clear();
  failures++;
}
static bool is_random(const arguments *a) {
  return (a->op->flags & (PX_OP_RANDOM | PX_OP_IS_FACTORY)) != 0;
}
static bool only_inplace(const arguments *a) { return (a->op->flags & PX_OP_ONLY_INPLACE) != 0; }
static void release_all(px_tensor **results, int count) {
  for (int i = 0; i < count; i++) px_release(results[i]);
}
static px_call_mode mode_of(const arguments *a) {
  return only_inplace(a) ? PX_CALL_INPLACE : PX_CALL_NEW;
}

PX_TEST(every_sample_runs) {
  for (const sample *s = samples; s->op; s++) {
    arguments a;
    px_tensor *results[8] = {NULL};
    int count = 0;
    read_sample(&a, s, false);
    bool failed = call_sample(&a, mode_of(&a), results, &count) != PX_OK;
    const char *text = px_error_last()->message;
    bool wants_device = strstr(text, "No CUDA GPUs") || strstr(text, "pin_memory=True requires");
    if (failed && !wants_device) report(s, "fails");
    px_error_clear();
    release_all(results, count);
    release_sample(&a);
  }
  CHECK_EQ(failures, 0);
}

// The samples are real; test_complex.py calls these ops.
static bool is_of_complex_numbers(const px_op *op) {
  return !strcmp(op->name, "imag") || !strncmp(op->name, "view_as_", strlen("view_as_")) ||
         strstr(op->name, "_of_complex");
}

PX_TEST(every_visible_op_has_a_sample) {
  for (int i = 0; i < px_op_count(); i++) {
    const px_op *op = px_op_at(i);
    bool found =
        op->kind == PX_OP_COMPOSITE || op->flags & PX_OP_HIDDEN || is_of_complex_numbers(op);
    for (const sample *s = samples; s->op; s++) found |= !strcmp(s->op, op->name);
    if (!found) fprintf(stderr, "%s has no sample\n", op->name), failures++;
  }
  CHECK_EQ(failures, 0);
}

// ---- gradients

typedef struct gradcheck_context {
  const arguments *a;
  px_value values[MAX_ARGS];
  int params[MAX_TENSORS], items[MAX_TENSORS], count;  // item -1: the parameter itself
  px_tensor *lists[MAX_ARGS][8];
} gradcheck_context;

static px_status symmetric(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) transposed = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_transpose(&transposed, t, -2, -1));
  PX_TRY(px_add(&sum, t, transposed, px_int(1)));
  return px_mul_scalar(out, sum, px_float(0.5));
}
static bool is_symmetric(const arguments *a, const px_tensor *t) {
  for (int k = 0; k < a->tensor_count; k++)
    if (a->tensors[k] == t) return a->symmetric[k];
  return false;
}
static px_status evaluate(px_tensor **out, px_tensor *const *inputs, void *context) {
  gradcheck_context *c = context;
  for (int i = 0; i < c->count; i++) {
    if (c->items[i] < 0)
      c->values[c->params[i]] = PX_T(inputs[i]);
    else
      c->lists[c->params[i]][c->items[i]] = inputs[i];
  }
  PX_SCOPED(px_tensor) symmetrized = NULL;  // for a matrix of which the op reads one triangle
  for (int i = 0; i < c->count; i++)
    if (c->items[i] < 0 && !symmetrized &&
        is_symmetric(c->a, c->a->values[c->params[i]].v.tensor)) {
      PX_TRY(symmetric(&symmetrized, inputs[i]));
      c->values[c->params[i]] = PX_T(symmetrized);
    }
  arguments call = *c->a;
  px_tensor *results[8] = {NULL};
  int count = 0;
  memcpy(call.values, c->values, sizeof call.values);
  PX_TRY(call_sample(&call, PX_CALL_NEW, results, &count));
  *out = px_retain(results[0]);
  release_all(results, count);
  return PX_OK;
}

static bool is_float(const px_tensor *t) { return px_dtype_is_float(px_tensor_dtype(t)); }
static void add_input(gradcheck_context *c, px_tensor **inputs, px_tensor *t, int param, int item) {
  if (!is_float(t)) return;
  OK(px_tensor_set_requires_grad(t, true));
  c->params[c->count] = param, c->items[c->count] = item;
  inputs[c->count++] = t;
}
static void choose_inputs(gradcheck_context *c, px_tensor **inputs) {
  const arguments *a = c->a;
  memcpy(c->values, a->values, sizeof c->values);
  for (int i = 0; i < a->op->param_count; i++) {
    px_value v = a->values[i];
    if (v.kind == PX_ARG_TENSOR) add_input(c, inputs, v.v.tensor, i, -1);
    for (int k = 0; v.kind == PX_ARG_TENSORS && k < v.n; k++) {
      c->lists[i][k] = v.v.tensors[k];
      add_input(c, inputs, v.v.tensors[k], i, k);
    }
    if (v.kind == PX_ARG_TENSORS) c->values[i] = PX_TS(c->lists[i], v.n);
  }
}
// True if the op has a differentiable first result for this sample. Ops with their own formulas are
// in gradcheck_test.c.
static bool differentiable(const arguments *a) {
  px_tensor *results[8] = {NULL};
  int count = 0;
  if (is_random(a) || only_inplace(a) || a->op->kind != PX_OP_COMPOSITE) return false;
  if (call_sample(a, PX_CALL_NEW, results, &count)) return false;
  bool real = count > 0 && is_float(results[0]) && px_tensor_requires_grad(results[0]);
  release_all(results, count);
  return real;
}

static void check_gradients(const sample *s, bool second) {
  arguments a;
  gradcheck_context c = {.a = &a};
  px_tensor *inputs[MAX_TENSORS];
  read_sample(&a, s, false);
  choose_inputs(&c, inputs);
  if (c.count && differentiable(&a)) {
    px_status status = second ? px_gradgradcheck(evaluate, &c, c.count, inputs, 1e-6, 1e-4, 1e-3)
                              : px_gradcheck(evaluate, &c, c.count, inputs, 1e-6, 1e-5, 1e-4);
    bool unwritten = status != PX_OK &&  // the error names the missing derivative
                     strstr(px_error_last()->message, "derivative for ");
    if (status && !unwritten) report(s, second ? "second derivative" : "gradient");
  }
  px_error_clear();
  release_sample(&a);
}
// Exceptions: class weights have no gradient, although the sample draws them as floats; and the
// backward of some ops is not differentiable yet.

static const char *const not_checked[] = {"cross_entropy", "linear_cross_entropy"};
static const char *const only_once[] = {"as_strided", "huber_loss", "smooth_l1_loss",
                                        "binary_cross_entropy_with_logits"};
static bool among(const char *const *names, size_t count, const char *op) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(names[i], op)) return true;
  return false;
}
#define AMONG(names, op) among(names, sizeof names / sizeof *names, op)

PX_TEST(gradients_match_finite_differences) {
  for (const sample *s = samples; s->op; s++)
    if (!AMONG(not_checked, s->op)) check_gradients(s, false);
  CHECK_EQ(failures, 0);
}
PX_TEST(second_derivatives_match_finite_differences) {
  for (const sample *s = samples; s->op; s++)
    if (!AMONG(not_checked, s->op) && !AMONG(only_once, s->op)) check_gradients(s, true);
  CHECK_EQ(failures, 0);
}

// ---- forms

static void check_form(const sample *s, px_call_mode mode, bool strided) {
  arguments a, b;
  px_tensor *wanted[8] = {NULL}, *got[8] = {NULL};
  int count = 0, got_count = 0;
  read_sample(&a, s, false);
  read_sample(&b, s, strided);
  unsigned flag = mode == PX_CALL_INPLACE ? PX_OP_HAS_INPLACE
                  : mode == PX_CALL_OUT   ? PX_OP_HAS_OUT
                                          : ~0u;
  bool applies = !is_random(&a) && !only_inplace(&a) && (a.op->flags & flag || flag == ~0u);
  if (!applies || call_sample(&a, PX_CALL_NEW, wanted, &count) || count == 0) goto done;
  if (mode == PX_CALL_INPLACE &&  // self takes the result only if shape and dtype match
      (px_tensor_numel(wanted[0]) != px_tensor_numel(a.tensors[0]) ||
       px_tensor_dtype(wanted[0]) != px_tensor_dtype(a.tensors[0])))
    goto done;
  int64_t none = 0;
  if (mode == PX_CALL_OUT && count == 1)
    OK(px_tensor_empty(&got[0], 1, &none, px_tensor_dtype(wanted[0]), (px_device){PX_CPU, -1}));
  px_tensor *given = got[0];
  if (count == 1 || mode == PX_CALL_NEW) {
    if (call_sample(&b, mode, got, &got_count))
      report(s, "fails in another form");
    else if (got_count != count || !same(wanted[0], got[0]))
      report(s, "gives other numbers in another form");
  }
  px_release(given);
  release_all(got, got_count);
done:
  px_error_clear();
  release_all(wanted, count);
  release_sample(&a);
  release_sample(&b);
}
PX_TEST(inplace_forms_give_the_same) {
  for (const sample *s = samples; s->op; s++) check_form(s, PX_CALL_INPLACE, false);
  CHECK_EQ(failures, 0);
}
PX_TEST(out_forms_give_the_same) {
  for (const sample *s = samples; s->op; s++) check_form(s, PX_CALL_OUT, false);
  CHECK_EQ(failures, 0);
}
PX_TEST(strided_inputs_give_the_same) {
  for (const sample *s = samples; s->op; s++)
    if (!strstr(s->op, "as_strided") && strcmp(s->op, "view_dtype"))
      check_form(s, PX_CALL_NEW, true);
  CHECK_EQ(failures, 0);
}
