// SPDX-License-Identifier: Apache-2.0
// A trial of a registered op's gradient: finds contents that it reads and `saves` does not name.
#include "call/registered.h"

// Arguments and results of a forward call.
typedef struct trial {
  const px__registered *op;
  px_value args[PX__MAX_PARAMS];
  px_tensor *lists[PX__MAX_PARAMS][2];  // borrowed: inputs[i] twice
  px_tensor *inputs[PX__MAX_PARAMS];    // owned
  px_tensor *results[PX__MAX_RESULTS];  // owned
} trial;

static px_status ones(px_tensor **out, const px_op_result *like) {
  PX_SCOPED(px_tensor) one = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_from_scalar(&one, px_int(1)));
  PX_TRY(px_tensor_empty(&made, like->ndim, like->sizes, like->dtype, px_cpu()));
  PX_TRY(px__tensor_copy(made, one, false));
  *out = PX_MOVE(made);
  return PX_OK;
}

// The value of a parameter without a default.
static px_value sample_of(const px_param *param) {
  static const int64_t one = 1;
  switch (param->kind) {
    case PX_ARG_INT:
    case PX_ARG_FLOAT:
    case PX_ARG_SCALAR:
      return PX_S(px_int(1));
    case PX_ARG_INTS:
      return PX_IS(&one, 1);
    default:
      return PX_NONE();
  }
}

static px_status make_inputs(trial *t, const px_op_result *form) {
  for (int i = 0; i < t->op->op.param_count; i++) {
    const px_param *param = &t->op->op.params[i];
    bool list = param->kind == PX_ARG_TENSORS;
    t->args[i] = param->has_default ? param->fallback : sample_of(param);
    if (param->optional || !(param->kind == PX_ARG_TENSOR || list)) continue;
    PX_TRY(ones(&t->inputs[i], form));
    t->lists[i][0] = t->lists[i][1] = t->inputs[i];
    t->args[i] = list ? PX_TS(t->lists[i], 2) : PX_T(t->inputs[i]);
  }
  return PX_OK;
}

static px_status make_results(trial *t, const px_op_result *form) {
  px_op_result forms[PX__MAX_RESULTS];
  for (int k = 0; k < t->op->op.result_count; k++) forms[k] = *form;
  if (t->op->shape) PX_TRY(t->op->shape(forms, t->args));
  for (int k = 0; k < t->op->op.result_count; k++) PX_TRY(ones(&t->results[k], &forms[k]));
  return PX_OK;
}

// Calls the gradient without the contents of one parameter or result; -1: with all.
static px_status call_without(trial *t, int param, int result) {
  const px_op *op = &t->op->op;
  px_value args[PX__MAX_PARAMS];
  px_tensor *results[PX__MAX_RESULTS], *out[PX__MAX_PARAMS] = {NULL}, *pair[2] = {NULL};
  px_tensor *out_pairs[PX__MAX_PARAMS][2] = {{NULL}}, **out_lists[PX__MAX_PARAMS];
  PX_SCOPED(px_tensor) outline = NULL;
  memcpy(args, t->args, sizeof args);
  memcpy(results, t->results, sizeof results);
  if (param >= 0) {
    PX_TRY(px_tensor_outline(&outline, t->inputs[param]));
    px_tensor_guard_outline(outline);
    pair[0] = pair[1] = outline;
    args[param] = args[param].kind == PX_ARG_TENSORS ? PX_TS(pair, 2) : PX_T(outline);
  }
  if (result >= 0) results[result] = NULL;
  for (int i = 0; i < op->param_count; i++) out_lists[i] = out_pairs[i];
  px_op_gradient gradient = {op,  args,     results, t->results, op->result_count, op->grad_mask,
                             out, out_lists};
  px_status status = op->gradient(&gradient);
  for (int i = 0; i < op->param_count; i++) {
    px_release(out[i]);
    for (int k = 0; k < 2; k++) px_release(out_pairs[i][k]);
  }
  return status;
}

static px_status check_without(trial *t, int param, int result, const char *name) {
  px_status status = call_without(t, param, result);
  if (status == PX_OK || status == PX_NOMEM) return status;
  px_error_clear();
  PX_FAIL(PX_VALUE, "the gradient of %s reads the contents of '%s', which `saves` does not name",
          t->op->op.name, name);
}

static px_status check_saves(trial *t) {
  const px_op *op = &t->op->op;
  for (int i = 0; i < op->param_count; i++)
    if (t->inputs[i] && !(op->save_mask >> i & 1))
      PX_TRY(check_without(t, i, -1, op->params[i].name));
  for (int k = 0; k < op->result_count; k++)
    if (!(op->save_result_mask >> k & 1))
      PX_TRY(check_without(t, -1, k, t->op->schema.result_names[k]));
  return PX_OK;
}

static px_status prepare(trial *t) {
  px_op_result form = {2, {2, 2}, PX_FLOAT32};
  if (!(t->op->impl.dtypes >> PX_FLOAT32 & 1)) form.dtype = PX_FLOAT64;
  PX_TRY(make_inputs(t, &form));
  PX_TRY(make_results(t, &form));
  return call_without(t, -1, -1);
}

px_status px__registered_try_gradient(const px__registered *r) {
  trial t = {.op = r};
  if (r->op.kind == PX_OP_FUNCTION) return PX_OK;
  px_status status = prepare(&t);
  if (status == PX_OK)
    status = check_saves(&t);
  else if (status != PX_NOMEM)
    px_error_clear(), status = PX_OK;  // the op does not take these arguments
  for (int i = 0; i < PX__MAX_PARAMS; i++) px_release(t.inputs[i]);
  for (int k = 0; k < PX__MAX_RESULTS; k++) px_release(t.results[k]);
  return status;
}
