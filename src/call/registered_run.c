// SPDX-License-Identifier: Apache-2.0
// The run functions of registered ops.
//
// Kernels without `strided` get row-major operands only. Other operands are copied before the
// launch and results after it, on the same stream. The call's own arguments stay unchanged, because
// they are recorded.
#include "call/registered.h"

typedef struct row_major {
  px_value args[PX__MAX_PARAMS];
  px_tensor *made[PX_MAX_OPERANDS];     // owned
  px_tensor *results[PX__MAX_RESULTS];  // written by the kernel; owned
  int made_count;
  // Pointwise ops: common shape and dtype of all operands.
  bool spread;
  int ndim;
  const int64_t *sizes;
  px_dtype dtype;
} row_major;

// ---- operands

static bool is_row_major(const px_tensor *t, int ndim, const int64_t *sizes, px_dtype dtype) {
  return t->contiguous && t->dtype == dtype && px__has_sizes(t, ndim, sizes);
}

static px_status make_row_major(px_tensor **out, const row_major *p, px_tensor *t,
                                px_device device) {
  int ndim = p->spread ? p->ndim : t->ndim;
  const int64_t *sizes = p->spread ? p->sizes : t->sizes;
  px_dtype dtype = p->spread ? p->dtype : (px_dtype)t->dtype;
  PX_SCOPED(px_tensor) made = NULL;
  bool same_device = px_device_equal(px__tensor_device(t), device);
  if (same_device && is_row_major(t, ndim, sizes, dtype)) {
    *out = px_retain(t);
    return PX_OK;
  }
  PX_TRY(px_tensor_empty(&made, ndim, sizes, dtype, device));
  PX_TRY(px__tensor_copy(made, t, false));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status put_tensor(row_major *p, const px_call *call, px_tensor *t) {
  PX_CHECK(p->made_count < PX_MAX_OPERANDS, PX_VALUE, "a kernel can have at most %d tensors",
           PX_MAX_OPERANDS);
  PX_TRY(make_row_major(&p->made[p->made_count], p, t, call->device));
  p->made_count++;
  return PX_OK;
}

static px_status put_argument(row_major *p, const px_call *call, int i) {
  px_value *a = &p->args[i];
  int first = p->made_count;
  if (a->kind == PX_ARG_TENSOR) {
    PX_TRY(put_tensor(p, call, a->v.tensor));
    *a = PX_T(p->made[first]);
  } else if (a->kind == PX_ARG_TENSORS) {
    for (int k = 0; k < a->n; k++) PX_TRY(put_tensor(p, call, a->v.tensors[k]));
    *a = PX_TS(p->made + first, a->n);
  } else if (call->op->params[i].kind == PX_ARG_TENSOR && a->kind != PX_ARG_NONE) {
    PX_SCOPED(px_tensor) number = NULL;
    PX_TRY(px_tensor_from_scalar(&number, px_value_scalar(*a)));
    PX_TRY(put_tensor(p, call, number));
    *a = PX_T(p->made[first]);
  }
  return PX_OK;
}

// Sets the output of the kernel: the result itself, or a tensor to be copied to it. In place,
// kernels that are not pointwise always get a separate output.
static px_status put_result(row_major *p, const px_call *call, int i) {
  px_tensor *t = call->results[i];
  px_dtype dtype = p->spread ? px__result_dtype(call->op, i, p->dtype) : (px_dtype)t->dtype;
  bool direct = is_row_major(t, t->ndim, t->sizes, dtype);
  if (call->mode == PX_CALL_INPLACE && !p->spread) direct = false;
  if (!direct) return px_tensor_empty(&p->results[i], t->ndim, t->sizes, dtype, call->device);
  p->results[i] = px_retain(t);
  return PX_OK;
}

// ---- launching

// Launches with the row-major operands instead of the call's own.
static px_status launch(px_call *call, row_major *p) {
  px_value *args = call->args;
  px_tensor *results[PX__MAX_RESULTS];
  memcpy(results, call->results, sizeof results);
  memcpy(call->results, p->results, sizeof results);
  call->args = p->args;
  px_status status = px__launch_call_as(call, p->spread ? p->dtype : PX_DTYPE_NONE);
  call->args = args;
  memcpy(call->results, results, sizeof results);
  return status;
}

static px_status launch_row_major(px_call *call, row_major *p) {
  const px_op *op = call->op;
  for (int i = 0; i < op->result_count; i++) PX_TRY(put_result(p, call, i));
  for (int i = 0; i < op->param_count; i++) {
    p->args[i] = call->args[i];
    PX_TRY(put_argument(p, call, i));
  }
  PX_TRY(launch(call, p));
  for (int i = 0; i < op->result_count; i++)
    if (p->results[i] != call->results[i])
      PX_TRY(px__tensor_copy(call->results[i], p->results[i], false));
  return PX_OK;
}

static px_status run_row_major(px_call *call, row_major *p) {
  const char *outer = px__caller_enter(call->op->python_name);
  px_status status = launch_row_major(call, p);
  px__caller_leave(outer);
  for (int i = 0; i < p->made_count; i++) px_release(p->made[i]);
  for (int i = 0; i < PX__MAX_RESULTS; i++) px_release(p->results[i]);
  return status;
}

static bool is_empty(const px_call *call) {
  for (int i = 0; i < call->op->result_count; i++)
    if (call->results[i]->numel) return false;
  return true;
}

// ---- pointwise

px_status px__registered_pointwise(px_call *call) {
  row_major p = {.spread = true};
  int64_t sizes[PX_MAX_DIMS];
  PX_TRY(px__call_find_device(call));
  PX_TRY(px__call_promote(call));
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = px__arg_tensor(call, i);
    if (t) PX_TRY(px__broadcast(&p.ndim, sizes, p.ndim, sizes, t->ndim, t->sizes));
  }
  p.sizes = sizes, p.dtype = call->compute;
  PX_TRY(px__call_result(call, 0, p.ndim, sizes, call->dtype));
  call->skip_launch = true;
  return is_empty(call) ? PX_OK : run_row_major(call, &p);
}

// ---- kernels of any shape

static void form_like(px_op_result *out, const px_tensor *t) {
  out->ndim = t->ndim;
  out->dtype = (px_dtype)t->dtype;
  memcpy(out->sizes, t->sizes, (size_t)t->ndim * sizeof *t->sizes);
}

static px_status make_results(px_call *call) {
  const px_op *op = call->op;
  px_op_result forms[PX__MAX_RESULTS];
  for (int i = 0; i < op->result_count; i++) form_like(&forms[i], call->args[PX__SELF].v.tensor);
  if (px__impl(op)->registered->shape) PX_TRY(px__impl(op)->registered->shape(forms, call->args));
  for (int i = 0; i < op->result_count; i++) {
    PX_CHECK(forms[i].ndim >= 0 && forms[i].ndim <= PX_MAX_DIMS, PX_VALUE,
             "%s: result %d has an invalid number of dimensions, %d", op->name, i, forms[i].ndim);
    PX_TRY(px__call_result(call, i, forms[i].ndim, forms[i].sizes, forms[i].dtype));
  }
  return PX_OK;
}

px_status px__registered_kernel(px_call *call) {
  bool strided = px__impl(call->op)->registered->strided;
  row_major p = {.spread = false};
  PX_TRY(px__call_same_device(call));
  PX_TRY(px__check_dtype(call->op, (px_dtype)call->args[PX__SELF].v.tensor->dtype, call->device));
  PX_TRY(make_results(call));
  call->skip_launch = !strided || is_empty(call);
  return strided || is_empty(call) ? PX_OK : run_row_major(call, &p);
}

// ---- functions and composites

px_status px__registered_function(px_call *call) {
  const px_op *op = call->op;
  const px__registered *r = px__impl(op)->registered;
  PX_TRY(r->serve ? r->serve(r->data, call->results, call->args)
                  : r->run(call->results, call->args));
  for (int i = 0; i < op->result_count; i++)
    PX_CHECK(call->results[i], PX_RUNTIME, "%s returned no result %d", op->name, i);
  return PX_OK;
}
