// SPDX-License-Identifier: Apache-2.0
// The single path of all op calls.
//
// Fills in and checks the arguments, computes the results by the function of the op's kind, records
// the call for differentiation and returns the results. A failed call does not change the caller's
// tensors.
#include "call/autocast.h"
#include "call/fusion/fusion.h"
#include "phlox/ops/copy.h"
#include "phlox/register.h"
#include "tensor/in_use.h"

// ---- arguments

const char *px_arg_name(int kind) {
  static const char *const names[] = {[PX_ARG_NONE] = "NoneType",
                                      [PX_ARG_TENSOR] = "Tensor",
                                      [PX_ARG_TENSORS] = "tuple of Tensors",
                                      [PX_ARG_SCALAR] = "Number",
                                      [PX_ARG_INT] = "int",
                                      [PX_ARG_FLOAT] = "float",
                                      [PX_ARG_BOOL] = "bool",
                                      [PX_ARG_INTS] = "tuple of ints",
                                      [PX_ARG_DTYPE] = "torch.dtype",
                                      [PX_ARG_DEVICE] = "torch.device",
                                      [PX_ARG_TEXT] = "str",
                                      [PX_ARG_GENERATOR] = "torch.Generator",
                                      [PX_ARG_INVALID_LIST] = "list of invalid length"};
  return kind >= 0 && kind < PX_COUNT_OF(names) ? names[kind] : "object";
}

static px_status wrong_kind(const px_op *op, int i, px_value a) {
  const char *given = a.kind == PX_ARG_SCALAR ? (a.category == 'f'   ? "float"
                                                 : a.category == 'b' ? "bool"
                                                                     : "int")
                                              : px_arg_name(a.kind);
  PX_FAIL(PX_TYPE, "%s(): argument '%s' (position %d) must be %s, not %s", op->name,
          i == 0 && !strcmp(op->params[i].name, "self") ? "input" : op->params[i].name, i + 1,
          px_arg_name(op->params[i].kind), given);
}

// Converts compatible kinds: numbers to each other without loss, an int to a list of one, an empty
// list to an empty list of another kind.
static px_status adapt(px_call *call, int i, const px_value *given) {
  const px_op *op = call->op;
  px_value a = *given, *to = &call->args[i];
  bool integer = a.kind == PX_ARG_INT || a.kind == PX_ARG_BOOL ||
                 (a.kind == PX_ARG_SCALAR && a.category != 'f');
  switch (op->params[i].kind) {
    case PX_ARG_TENSOR:
      call->wraps = true;
      // fall through
    case PX_ARG_SCALAR:
      if (!px__is_number(a)) break;
      *to = PX_S(px_value_scalar(a));
      return PX_OK;
    case PX_ARG_FLOAT:
      if (!px__is_number(a)) break;
      *to = PX_F(px_value_float(a));
      return PX_OK;
    case PX_ARG_INT:
    case PX_ARG_BOOL:
      if (!integer) break;
      *to = op->params[i].kind == PX_ARG_INT ? PX_I(a.v.i) : PX_B(a.v.i != 0);
      return PX_OK;
    case PX_ARG_INTS:
      if (a.kind == PX_ARG_TENSORS && a.n == 0) {
        *to = PX_IS(NULL, 0);
        return PX_OK;
      }
      if (!integer) break;
      *to = PX_IS(&given->v.i, 1);
      return PX_OK;
    case PX_ARG_TENSORS:
      if (a.kind != PX_ARG_INTS || a.n) break;
      *to = PX_TS(NULL, 0);
      return PX_OK;
    default:
      break;
  }
  return wrong_kind(op, i, a);
}

// True if the arguments have the schema's kinds, or are absent without a default, and none is a
// list of tensors. Then the arguments need no filling in, wrapping or checks of list elements.
static inline bool is_exact(const px_op *op, const px_value *args) {
  for (int i = 0; i < op->param_count; i++) {
    const px_param *p = &op->params[i];
    if (args[i].kind == PX_ARG_TENSORS) return false;
    if (PX_LIKELY(args[i].kind == p->kind)) continue;
    if (args[i].kind != PX_ARG_NONE || !p->optional || p->has_default) return false;
  }
  return true;
}

static px_status fill(px_call *call, const px_value *args) {
  const px_op *op = call->op;
  for (int i = 0; i < op->param_count; i++) {
    const px_param *p = &op->params[i];
    if (args[i].kind == p->kind) {
      call->args[i] = args[i];
      call->wraps |= p->kind == PX_ARG_TENSORS;
      continue;
    }
    if (args[i].kind != PX_ARG_NONE) {
      PX_TRY(adapt(call, i, &args[i]));
      continue;
    }
    PX_CHECK(p->has_default || p->optional, PX_TYPE,
             "%s() missing 1 required positional arguments: \"%s\"", op->name,
             i == 0 && !strcmp(p->name, "self") ? "input" : p->name);
    call->args[i] = p->has_default ? p->fallback : PX_NONE();
  }
  return PX_OK;
}

// ---- recording

static bool list_needs_grad(px_value a) {
  for (int k = 0; k < a.n; k++)
    if (a.v.tensors[k] && px__needs_grad(a.v.tensors[k])) return true;
  return false;
}

static bool needs_record(const px_call *call) {
  const px_value *a = call->args, *end = a + px__impl(call->op)->tensors;
  for (; a < end; a++)
    if (a->kind == PX_ARG_TENSOR ? px__needs_grad(a->v.tensor)
                                 : a->kind == PX_ARG_TENSORS && list_needs_grad(*a))
      return px__hooks && px__hooks->recording();
  return false;
}

static px_status record(const px_call *call) {
  if (call->list)
    return px__hooks->record(call->op, call->mode, call->args, (int)px_list_size(call->list),
                             px_list_items(call->list), call->original);
  return px__hooks->record(call->op, call->mode, call->args, call->op->result_count, call->results,
                           call->original);
}

// Memory of batched tensors is checked in the call on their physical tensors.
static inline bool self_is_batched(const px_call *call) {
  return call->given[0] && px__is_batched(call->given[0]);
}

static px_status check_unrecorded(const px_call *call) {
  bool on = px__hooks && px__hooks->recording(), needs = needs_record(call);
  for (int i = 0; i < call->op->result_count; i++)
    needs |= on && call->given[i] && px__needs_grad(call->given[i]);
  PX_CHECK(!needs, PX_RUNTIME,
           "%s(): functions with out=... arguments don't support automatic differentiation, but "
           "one of the arguments requires grad.",
           call->op->python_name);
  return PX_OK;
}

// Checks before a call that writes to tensors of the caller.
static px_status before_write(px_call *call, void **results) {
  const px_op *op = call->op;
  unsigned form = call->mode == PX_CALL_OUT       ? PX_OP_HAS_OUT
                  : call->mode == PX_CALL_INPLACE ? PX_OP_HAS_INPLACE | PX_OP_ONLY_INPLACE
                                                  : 0;
  PX_CHECK(op->flags & form, PX_TYPE, "%s() does not support writing to %s", op->name,
           call->mode == PX_CALL_OUT ? "out=" : "self");
  if (call->mode == PX_CALL_INPLACE) {
    PX_CHECK(op->param_count > 0 && px__arg_tensor(call, PX__SELF), PX_TYPE,
             "%s_(): argument 'self' must be Tensor", op->name);
    call->given[0] = px__arg_tensor(call, PX__SELF);
  } else {
    for (int i = 0; i < op->result_count; i++) call->given[i] = results[i];
    PX_CHECK(results[0], PX_TYPE, "%s(): argument 'out' must be Tensor, not NoneType", op->name);
  }
  px_tensor *self = call->given[0];
  if (op->kind != PX_OP_VIEW && !self_is_batched(call)) PX_TRY(px__check_written(call));
  if (PX_UNLIKELY(__atomic_load_n(&px__writes_watched, __ATOMIC_ACQUIRE))) {
    int written = call->mode == PX_CALL_OUT ? op->result_count : 1;
    for (int i = 0; i < written; i++) PX_TRY(px_op_before_write(call->given[i]));
  }
  if (!self || !px__hooks) return PX_OK;
  bool on = px__hooks->recording();
  if (call->mode == PX_CALL_OUT) PX_TRY(check_unrecorded(call));
  if (on || (px__flags(self) & PX_TENSOR_INFERENCE))
    PX_TRY(px__hooks->before_inplace(op, call->mode, self, call->args, &call->original));
  return PX_OK;
}

// ---- kinds

static px_status check_elements(const px_call *call, int i) {
  px_value list = call->args[i];
  for (int k = 0; k < list.n; k++)
    PX_CHECK(list.v.tensors[k], PX_TYPE,
             "expected Tensor as element %d in argument %d, but got NoneType", k, i);
  return PX_OK;
}

px_status px__call_wrap_numbers(px_call *call, px__numbers *w) {
  for (int i = 0; i < call->op->param_count; i++) {
    if (call->args[i].kind == PX_ARG_TENSORS) PX_TRY(check_elements(call, i));
    if (call->op->params[i].kind != PX_ARG_TENSOR || !px__is_number(call->args[i])) continue;
    PX_TRY(px_tensor_from_scalar(&w->made[w->n], px_value_scalar(call->args[i])));
    call->args[i] = PX_T(w->made[w->n++]);
  }
  return PX_OK;
}

static inline const px_tensor *first_tensor(const px_call *call) {
  const px_value *a = call->args, *end = a + px__impl(call->op)->tensors;
  for (; a < end; a++) {
    if (a->kind == PX_ARG_TENSOR && !(px__flags(a->v.tensor) & PX_TENSOR_WRAPPED))
      return a->v.tensor;
    if (a->kind == PX_ARG_TENSORS && a->n && a->v.tensors[0]) return a->v.tensors[0];
  }
  return NULL;
}

static px_status call_kernel(px_call *call, const px_tensor *first) {
  PX_TRY(px__impl(call->op)->run(call));
  if (call->skip_launch || call->composed) return PX_OK;
  PX_TRY(px__call_same_device(call));
  if (first) PX_TRY(px__check_dtype(call->op, (px_dtype)first->dtype, call->device));
  if (PX_UNLIKELY(px__impl(call->op)->rows)) return px__launch_rows(call);
  return px__launch_call(call);
}

// Runs a function op without recording or casting nested calls.
static px_status run_function(px_call *call, px_status (*run)(px_call *)) {
  bool casts = px__autocast_here.on;
  px__autocast_here.on = false;
  if (px__hooks) px__hooks->suspend(true);
  px_status status = run(call);
  if (px__hooks) px__hooks->suspend(false);
  px__autocast_here.on = casts;
  return status;
}
static px_status call_function(px_call *call) {
  return run_function(call, px__impl(call->op)->run);
}
px_status px__call_function(px_call *call, px_status (*run)(px_call *)) {
  call->skip_launch = true;
  return run_function(call, run);
}

// In place, self takes the geometry of the view. Gradient formulas read the original self.
static px_status call_view(px_call *call) {
  PX_TRY(call_function(call));
  if (call->mode != PX_CALL_INPLACE) return PX_OK;
  PX_SCOPED(px_tensor) view = PX_MOVE(call->results[0]);
  px_tensor *self = call->given[0];
  if (!call->original) PX_TRY(px_tensor_share(&call->original, self));
  PX_TRY(px__tensor_take_geometry(self, view));
  call->results[0] = px_retain(self);
  return PX_OK;
}

static px_status call_by_kind(px_call *call) {
  const px_tensor *first = first_tensor(call);
  PX_CHECK(px__impl(call->op)->run, PX_UNIMPLEMENTED, "%s is not implemented", call->op->name);
  call->device = first ? px__tensor_device(first) : px_cpu();
  if (call->op->kind == PX_OP_KERNEL) return call_kernel(call, first);
  if (first) PX_TRY(px__check_dtype(call->op, (px_dtype)first->dtype, call->device));
  switch (call->op->kind) {
    case PX_OP_COMPOSITE:
      return px__impl(call->op)->run(call);
    case PX_OP_VIEW:
      return call_view(call);
    default:
      return call_function(call);
  }
}

// ---- the call

static px_status finish(px_call *call) {
  bool composed = call->op->kind == PX_OP_COMPOSITE || call->composed;
  if (composed && call->mode == PX_CALL_NEW) return PX_OK;
  bool writes = call->mode != PX_CALL_NEW && call->op->kind != PX_OP_COMPOSITE;
  if (call->mode == PX_CALL_OUT || (writes && px__impl(call->op)->faults))
    PX_TRY(px__call_copy_outs(call));
  for (int i = 0; writes && i < call->op->result_count; i++)
    if (call->given[i] && call->results[i] == call->given[i])
      px_tensor_bump_version(call->results[i]);
  if (!composed && needs_record(call)) PX_TRY(record(call));
  return PX_OK;
}

static void drop(px_call *call) {
  for (int i = 0; i < PX__MAX_RESULTS; i++) px_release(call->results[i]);
  px_release(call->list);
}

static px_status call_other_kind(px_call *call) {
  px__numbers w;
  w.n = 0;
  const char *outer = px__caller_enter(call->op->python_name);
  px_status status = call->wraps ? px__call_wrap_numbers(call, &w) : PX_OK;
  if (status == PX_OK) status = call_by_kind(call);
  if (status == PX_OK && px__has_layout(px__impl(call->op))) status = px__call_format(call);
  if (status == PX_OK) status = finish(call);
  px__caller_leave(outer);
  px__numbers_release(&w);
  return status;
}

// A view without recording. It needs no wrapping, suspension or copies to outputs.
static inline bool is_plain_view(const px_call *call) {
  return call->op->kind == PX_OP_VIEW && !call->wraps && call->mode == PX_CALL_NEW &&
         !needs_record(call);
}

px_status (*px__call_batched)(px_call *call, bool *taken);

__attribute__((always_inline)) static inline px_status run_here(px_call *call) {
  if (is_plain_view(call)) {
    const px_tensor *first = first_tensor(call);
    call->device = first ? px__tensor_device(first) : px_cpu();
    if (first) PX_TRY(px__check_dtype(call->op, (px_dtype)first->dtype, call->device));
    return px__impl(call->op)->run(call);
  }
  if (call->op->kind == PX_OP_POINTWISE) {
    bool simple = false;
    PX_TRY(px__call_pointwise(call, &simple));
    // The fast path wrote the results and set needs_grad.
    if (PX_LIKELY(simple && call->mode == PX_CALL_NEW && !call->needs_grad)) return PX_OK;
  } else if (call->op->kind == PX_OP_REDUCE) {
    PX_TRY(px__call_reduce(call));
  } else {
    return call_other_kind(call);
  }
  return finish(call);
}

// ---- calls changed by vmap or by the thread's dispatch hook

// The out-of-line copy of run_here, shared by the rare callers.
static px_status run_plain(px_call *call) {
  bool off;
  PX_TRY(px__fusion_enter(call, &off));
  px_status status;
  if (call->records && call->op->kind == PX_OP_FUNCTION) {
    status = px__fusion_cast(call);
    if (status == PX_OK) status = finish(call);
  } else {
    status = run_here(call);
  }
  px__fusion_leave(off);
  return status;
}

static px_status report_results(const px_dispatch_hook *hook, const px_call *call) {
  int count = call->list ? (int)px_list_size(call->list) : call->op->result_count;
  px_tensor *const *results = call->list ? px_list_items(call->list) : call->results;
  bool complete = !call->list && !call->composed && call->mode == PX_CALL_NEW;
  return hook->made(call->op, call->mode, call->args, count, results, complete, hook->context);
}
static px_status run_hooked(px_call *call, const px_dispatch_hook *hook) {
  bool replaced = false;
  if (hook->recall && call->mode == PX_CALL_NEW)
    PX_TRY(hook->recall(call->op, call->args, call->results, &replaced, hook->context));
  PX_TRY(replaced ? finish(call) : run_plain(call));
  return hook->made ? report_results(hook, call) : PX_OK;
}

__attribute__((noinline)) static px_status run_dispatched(px_call *call) {
  bool taken = false;
  PX_TRY(px__call_batched(call, &taken));
  if (taken) return !call->composed && needs_record(call) ? record(call) : PX_OK;
  const px_dispatch_hook *hook = call->op->kind == PX_OP_COMPOSITE ? NULL : px__dispatch_hook();
  if (!hook) return run_plain(call);
  px__dispatch_hook_set(NULL);
  px_status status = run_hooked(call, hook);
  px__dispatch_hook_set(hook);
  return status;
}

static inline px_status run_call(px_call *call) {
  if (PX_UNLIKELY(__atomic_load_n(&px__special_calls, __ATOMIC_RELAXED) != 0))
    return run_dispatched(call);
  return run_here(call);
}

static void start(px_call *call, const px_op *op, px_call_mode mode) {
  call->op = op, call->mode = mode, call->list = NULL;
  call->uses_random = call->skip_launch = call->composed = call->wraps = false;
  call->one_device = call->records = false;
  call->original = NULL;
  for (int i = 0; i < PX__MAX_RESULTS; i++) call->results[i] = call->given[i] = NULL;
}

// ---- in-place calls of ops without an in-place form

// Copies the result to self. Fails unless sizes match and self's dtype can hold the result.
static px_status copy_to_self(const px_op *op, px_tensor *self, const px_tensor *made) {
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a call that worked has made a result
  PX_TRY(px__check_fits_self(op, self, made->ndim, made->sizes, (px_dtype)made->dtype));
  return px_copy_(self, made, false);
}

static px_status check_self(const px_op *op, const px_value *args) {
  px_call call;
  start(&call, op, PX_CALL_INPLACE);
  call.args = (px_value *)args;  // only read
  call.given[0] = args[PX__SELF].v.tensor;
  return px__impl(op)->overlap && !self_is_batched(&call) ? px__check_written(&call) : PX_OK;
}

// Computes the result and copies it to self. A graph that saves self gets a copy. noinline, to keep
// its stack frame out of other calls.
__attribute__((noinline)) static px_status call_into_self(const px_op *op, const px_value *args,
                                                          void **results) {
  px_value own[PX__MAX_PARAMS];
  PX_SCOPED(px_tensor) kept = NULL;
  PX_CHECK(op->param_count > 0 && args[PX__SELF].kind == PX_ARG_TENSOR, PX_TYPE,
           "%s_(): argument 'self' must be Tensor", op->name);
  px_tensor *self = args[PX__SELF].v.tensor;
  PX_TRY(check_self(op, args));
  memcpy(own, args, op->param_count * sizeof *args);
  if (px__needs_grad(self) && px__hooks && px__hooks->recording()) {
    PX_TRY(px_clone(&kept, self, NULL));
    own[PX__SELF] = PX_T(kept);
  }
  void *made = NULL;
  bool casts = px__autocast_here.on;  // autocast does not apply to in-place forms
  px__autocast_here.on = false;
  px_status status = px_op_call(op, PX_CALL_NEW, own, &made);
  px__autocast_here.on = casts;
  PX_TRY(status);
  status = copy_to_self(op, self, made);
  px_release(made);
  if (status == PX_OK) results[0] = px_retain(self);
  return status;
}

// A single result is the common case. Compilers turn the loop alone into a call of memcpy.
static inline void return_results(const px_call *call, void **results) {
  if (PX_UNLIKELY(call->op->flags & PX_OP_RETURNS_LIST))
    results[0] = call->list;
  else if (PX_LIKELY(call->op->result_count == 1))
    results[0] = call->results[0];
  else
    for (int i = 0; i < call->op->result_count; i++) results[i] = call->results[i];
}

// Ops with one result: no views, no lists. In-place calls of composites always make a new tensor.
static inline bool lacks_inplace(const px_op *op) {
  unsigned forms = PX_OP_ONLY_INPLACE | PX_OP_RETURNS_LIST;
  if (op->kind != PX_OP_COMPOSITE) forms |= PX_OP_HAS_INPLACE;
  return !(op->flags & forms) && op->result_count == 1 && op->kind != PX_OP_VIEW;
}

static px_status call_op(const px_op *op, px_call_mode mode, const px_value *args, void **results);

// ---- out= of ops that compute in its dtype

// True if only out= determines the compute dtype and device.
static bool takes_dtype_from_out(const px_op *op, const px_value *args) {
  for (int i = 0; i < op->param_count && px__impl(op)->out == PX__OUT_SETS_DTYPE; i++)
    if (op->params[i].kind == PX_ARG_DTYPE) return args[i].kind == PX_ARG_NONE;
  return false;
}

__attribute__((noinline)) static px_status call_like_out(const px_op *op, const px_value *args,
                                                         void **results) {
  px_value own[PX__MAX_PARAMS];
  const px_tensor *out = results[0];
  for (int i = 0; i < op->param_count; i++) {
    int kind = args[i].kind == PX_ARG_NONE ? op->params[i].kind : PX_ARG_NONE;
    own[i] = kind == PX_ARG_DTYPE    ? PX_DT((px_dtype)out->dtype)
             : kind == PX_ARG_DEVICE ? PX_DV(px__tensor_device(out))
                                     : args[i];
  }
  return call_op(op, PX_CALL_OUT, own, results);
}

// Calls the op with autocast arguments.
__attribute__((noinline)) static px_status call_cast(const px_op *op, px_call_mode mode,
                                                     const px_value *args, void **results) {
  px__casting c;
  px_status status = px__autocast_begin(&c, op, mode, args);
  if (status == PX_OK) status = call_op(op, mode, c.given, results);
  px__autocast_end(&c);
  return status;
}

// ---- conjugate and negative views (resolve.c)

static px_status call_resolved(px__resolved *r, const px_op *op, px_call_mode mode,
                               const px_value *args, void **results) {
  void *made[PX__MAX_RESULTS];
  PX_TRY(px__resolve_begin(r, op, mode, args, results));
  memcpy(made, r->results, sizeof made);
  PX_TRY(px_op_call(op, mode, r->args, made));
  int count = op->flags & PX_OP_RETURNS_LIST ? 1 : op->result_count;
  px_status status = px__resolve_finish(r, mode, count, made);
  for (int k = 0; k < count && status != PX_OK; k++) px_release(made[k]);
  if (status == PX_OK) memcpy(results, made, (size_t)count * sizeof *made);
  return status;
}

// True if all Tensor parameters have tensor arguments.
static bool has_tensors(const px_op *op, const px_value *args) {
  for (int i = 0; i < op->param_count; i++)
    if (op->params[i].kind == PX_ARG_TENSOR && args[i].kind != PX_ARG_TENSOR) return false;
  return true;
}

__attribute__((noinline)) static px_status call_conj_neg(const px_op *op, px_call_mode mode,
                                                         const px_value *args, void **results) {
  px__resolved r = {.made = NULL};
  bool done = false;
  if (px__impl(op)->conj_neg && mode == PX_CALL_INPLACE && has_tensors(op, args))
    PX_TRY(px__impl(op)->conj_neg(args, results, &done));
  if (done) return PX_OK;
  px_status status = call_resolved(&r, op, mode, args, results);
  px__resolve_end(&r);
  return status;
}

// ---- complex and unsigned numbers composed from other ops; uint64 in the order of int64

static bool is_integer(px_value a) { return px__is_number(a) && px_value_scalar(a).kind != 'f'; }
// True if all tensors are uint64 and all numbers are integers.
static bool is_all_uint64(const px_op *op, const px_value *args) {
  bool found = false;
  for (int i = 0; i < op->param_count; i++) {
    bool uint64 = args[i].kind == PX_ARG_TENSOR && args[i].v.tensor->dtype == PX_UINT64;
    if (!uint64 && args[i].kind != PX_ARG_NONE && !is_integer(args[i])) return false;
    found |= uint64;
  }
  return found;
}

// Returns the dtype of the tensors with dimensions if that is an unsigned one of 16 bits or more
// and integers without dimensions have another dtype; else PX_DTYPE_NONE.
px_dtype px__unsigned_with_others(const px_op *op, const px_value *args) {
  px_dtype dtype = PX_DTYPE_NONE;
  bool others = false;
  for (int i = 0; i < op->param_count; i++) {
    const px_tensor *t = args[i].kind == PX_ARG_TENSOR ? args[i].v.tensor : NULL;
    if (!t || !t->ndim) continue;
    if (!px__is_unsigned((px_dtype)t->dtype) || (dtype != PX_DTYPE_NONE && t->dtype != dtype))
      return PX_DTYPE_NONE;
    dtype = (px_dtype)t->dtype;
  }
  for (int i = 0; i < op->param_count; i++) {
    const px_tensor *t = args[i].kind == PX_ARG_TENSOR ? args[i].v.tensor : NULL;
    if (!t || t->ndim) continue;
    if (px_dtype_is_differentiable((px_dtype)t->dtype)) return PX_DTYPE_NONE;
    others |= t->dtype != dtype;
  }
  return others ? dtype : PX_DTYPE_NONE;
}

static bool is_composed(const px_op *op, const px_value *args) {
  px__composed of = (px__composed)px__impl(op)->composed;
  if (of == PX__OF_UINT64)
    return is_all_uint64(op, args) || px__unsigned_with_others(op, args) != PX_DTYPE_NONE;
  for (int i = 0; i < op->param_count; i++) {
    if (args[i].kind != PX_ARG_TENSOR) continue;
    px_dtype dtype = (px_dtype)args[i].v.tensor->dtype;
    if (PX_LIKELY(dtype < PX_DTYPE_COMPUTED)) continue;
    if (px_dtype_is_complex(dtype) ? of != PX__OF_UNSIGNED
                                   : of != PX__OF_COMPLEX && px__is_unsigned(dtype))
      return true;
  }
  return false;
}

static px_status call_composed(px_call *call, const px_value *args, void **results) {
  if (call->mode == PX_CALL_INPLACE) return call_into_self(call->op, args, results);
  if (call->mode == PX_CALL_OUT) PX_TRY(before_write(call, results));
  const px_tensor *first = first_tensor(call);
  call->device = first ? px__tensor_device(first) : px_cpu();
  call->composed = true;
  px_status status = px__impl(call->op)->complex(call);
  if (status == PX_OK) status = finish(call);
  if (status != PX_OK) {
    drop(call);
    return px_error_add_frame(status, __FILE__, __LINE__, call->op->name);
  }
  return_results(call, results);
  return PX_OK;
}

// Pointwise and reduce ops do not enter px__caller. Adds the op's name to the error.
__attribute__((noinline, cold)) static void name_op(const px_op *op) {
  bool sets_caller = op->kind != PX_OP_POINTWISE && op->kind != PX_OP_REDUCE;
  if (!sets_caller && !px__caller()) PX_NOTE(" The op was %s.", op->python_name);
}

static px_status call_op(const px_op *op, px_call_mode mode, const px_value *args, void **results) {
  px_call call;
  px_value filled[PX__MAX_PARAMS];
  if (PX_UNLIKELY(mode != PX_CALL_NEW)) {
    if (mode == PX_CALL_INPLACE && lacks_inplace(op)) return call_into_self(op, args, results);
    if (mode == PX_CALL_OUT && results[0] && takes_dtype_from_out(op, args))
      return call_like_out(op, args, results);
  }
  if (PX_UNLIKELY(__atomic_load_n(&px__any_conj_neg, __ATOMIC_RELAXED)) &&
      px__call_has_conj_neg(op, mode, args, results))
    return call_conj_neg(op, mode, args, results);
  start(&call, op, mode);
  if (PX_LIKELY(is_exact(op, args))) {
    call.args = (px_value *)args;  // written only by wrap_numbers, which is not called
  } else {
    call.args = filled;
    PX_TRY(fill(&call, args));
  }
  // Ops with an autocast policy have a check, so ops without either need one test.
  if (PX_UNLIKELY(px__impl(op)->check != NULL)) {
    if ((op->flags & PX_OP_AUTOCASTS) && PX_UNLIKELY(px__autocast_here.on) && px__autocast_due())
      return call_cast(op, mode, args, results);
    PX_TRY(px__impl(op)->check(&call));
  }
  if (PX_UNLIKELY(px__impl(op)->complex != NULL) && is_composed(op, call.args))
    return call_composed(&call, args, results);
  if (PX_UNLIKELY(mode != PX_CALL_NEW)) PX_TRY(before_write(&call, results));
  px_status status = run_call(&call);
  if (PX_UNLIKELY(call.original != NULL)) px_release(call.original);
  if (PX_UNLIKELY(status != PX_OK)) {
    drop(&call);
    if (status == PX_OUT_OF_MEMORY) name_op(op);
    return px_error_add_frame(status, __FILE__, __LINE__, op->name);
  }
  return_results(&call, results);
  return PX_OK;
}

// Sizes of a tensor, sizes of the tensors in a list, or empty brackets.
static void add_shapes(px__text *text, px_value a, const char *before) {
  px__text_add(text, "%s[", before);
  if (a.kind == PX_ARG_TENSOR)
    for (int d = 0; d < a.v.tensor->ndim; d++)
      px__text_add(text, "%s%lld", d ? ", " : "", (long long)a.v.tensor->sizes[d]);
  for (int i = 0; a.kind == PX_ARG_TENSORS && i < a.n; i++)
    if (a.v.tensors[i]) add_shapes(text, PX_T(a.v.tensors[i]), i ? ", " : "");
  px__text_add(text, "]");
}

static void add_all_shapes(px__text *text, const px_op *op, const px_value *args) {
  px__text_add(text, "[");
  for (int i = 0; i < op->param_count; i++) add_shapes(text, args[i], i ? ", " : "");
  px__text_add(text, "]");
}

// Pushes an NVTX range.
__attribute__((noinline)) static px_status call_emitted(const px_op *op, px_call_mode mode,
                                                        const px_value *args, void **results) {
  px__text text = {0};
  px__text_add(&text, "aten::%s%s", op->python_name, mode == PX_CALL_INPLACE ? "_" : "");
  if (px__call_watched(PX__WATCH_NVTX_SHAPES)) {
    px__text_add(&text, ", sizes = ");
    add_all_shapes(&text, op, args);
  }
  px_nvtx_push(text.failed ? op->python_name : text.at);
  if (text.failed) px_error_clear();
  px__free(text.at);
  px_status status = call_op(op, mode, args, results);
  px_nvtx_pop();
  return status;
}

__attribute__((noinline)) static px_status call_profiled(const px_op *op, px_call_mode mode,
                                                         const px_value *args, void **results) {
  px__text text = {0};
  if (px__call_watched(PX__WATCH_SHAPES)) add_all_shapes(&text, op, args);
  if (text.failed) px_error_clear();  // out of memory: shapes are omitted
  const char *shapes = text.at && !text.failed ? text.at : "";
  int64_t part = px__profile_enter_op(op->python_name, mode == PX_CALL_INPLACE, shapes);
  px__free(text.at);
  px_status status = call_op(op, mode, args, results);
  px_profile_leave(part);
  return status;
}

// Enters px__caller for ops that do not enter it themselves, for memory histories with op names.
__attribute__((noinline)) static px_status call_watched(const px_op *op, px_call_mode mode,
                                                        const px_value *args, void **results) {
  bool names = px__call_watched(PX__WATCH_CALLERS);
  const char *outer = px__caller_enter(names ? op->python_name : NULL);
  px_status status = px__profile_on()                   ? call_profiled(op, mode, args, results)
                     : px__call_watched(PX__WATCH_NVTX) ? call_emitted(op, mode, args, results)
                                                        : call_op(op, mode, args, results);
  px__caller_leave(outer);
  return status;
}

// ---- tensors in use (in_use.h)

static bool is_used(const px_tensor *used, const px_tensor *t, const px_storage *storage) {
  return used && (used == t || (storage && used->storage == storage));
}

static bool uses(const px__tensor_use *use, const px_tensor *t, const px_storage *storage) {
  for (int i = 0; i < use->count * use->op->param_count; i++) {
    const px_value *a = &use->args[i];
    if (a->kind == PX_ARG_TENSOR && is_used(a->v.tensor, t, storage)) return true;
    for (int k = 0; a->kind == PX_ARG_TENSORS && k < a->n; k++)
      if (is_used(a->v.tensors[k], t, storage)) return true;
  }
  return false;
}
static __attribute__((constructor)) void set_uses(void) { px__op_uses = uses; }

static px_status call_any(const px_op *op, px_call_mode mode, const px_value *args,
                          void **results) {
  return px__call_watched(~0) ? call_watched(op, mode, args, results)
                              : call_op(op, mode, args, results);
}

// The results are in use, too.
__attribute__((noinline)) static px_status call_out(const px_op *op, const px_value *args,
                                                    void **results) {
  const px_tensor *outs[PX__MAX_RESULTS] = {NULL};
  int count = 0;
  bool into = op->flags & PX_OP_HAS_OUT;  // others fail without reading the results
  for (int i = 0; into && i < op->result_count; i++)
    if (results[i]) outs[count++] = results[i];
  px__tensor_use use = {.tensors = outs, .count = count};
  px__use_begin(&use);
  px_status status = call_any(op, PX_CALL_OUT, args, results);
  px__use_end(&use);
  return status;
}

__attribute__((noinline)) static px_status call_published(const px_op *op, px_call_mode mode,
                                                          const px_value *args, void **results) {
  px__tensor_use use;
  use.op = op, use.args = args, use.count = 1;
  px__use_begin(&use);
  px_status status = PX_UNLIKELY(mode == PX_CALL_OUT) ? call_out(op, args, results)
                                                      : call_any(op, mode, args, results);
  px__use_end(&use);
  return status;
}

px_status px_op_call(const px_op *op, px_call_mode mode, const px_value *args, void **results) {
  PX_GIVEN(results);
  PX_GIVEN(args);
  if (PX_UNLIKELY(!op)) return px__no_op();  // px_op_find failed
  return PX_LIKELY(PX_SINGLE_THREADED) ? call_any(op, mode, args, results)
                                       : call_published(op, mode, args, results);
}

// ---- several calls

static px_status call_sequentially(const px_op *op, px_call_mode mode, int count,
                                   const px_value *args, void **results, int *done) {
  for (*done = 0; *done < count; ++*done)
    PX_TRY(
        px_op_call(op, mode, args + *done * op->param_count, results + *done * op->result_count));
  return PX_OK;
}

// The batched launch failed: none of its calls took place.
static void discard_results(const px_op *op, void **results, int *done) {
  for (int i = 0; i < *done * op->result_count; i++) px_release(results[i]);
  *done = 0;
}

static px_status call_launch_batched(const px_op *op, px_call_mode mode, int count,
                                     const px_value *args, void **results, int *done) {
  px__error_guard error;
  px__tensor_use use = {.op = op, .args = args, .count = count};
  px__use_begin(&use);
  px__launch_batch_begin();
  px_status status = call_sequentially(op, mode, count, args, results, done);
  if (status != PX_OK) px__error_save(&error);
  px_status issued = px__launch_batch_end();
  px__use_end(&use);
  if (issued != PX_OK) discard_results(op, results, done);
  if (status == PX_OK) return issued;
  px__error_restore(&error);
  return status;
}

// Kernels from the op tables never wait for batched launches.
static bool can_batch_launches(const px_op *op) {
  bool kernel = op->kind == PX_OP_KERNEL || op->kind == PX_OP_POINTWISE || op->kind == PX_OP_REDUCE;
  return kernel && !px__impl(op)->registered;
}

px_status px_op_check_out(const px_op *op, const px_value *args, px_tensor *out, px_dtype dtype) {
  px_call call;
  if (PX_UNLIKELY(!op)) return px__no_op();
  PX_GIVEN(args);
  PX_GIVEN(out);
  start(&call, op, PX_CALL_OUT);
  call.args = (px_value *)args;  // only read
  call.given[0] = out;
  const px_tensor *first = first_tensor(&call);
  call.device = px__tensor_device(first ? first : out);
  PX_TRY(px__check_written(&call));
  PX_TRY(check_unrecorded(&call));
  PX_TRY(px__call_same_device(&call));
  return px__call_check_outs(&call, &dtype);
}

px_status px_op_call_batch(const px_op *op, px_call_mode mode, int count, const px_value *args,
                           void **results, int *done) {
  PX_GIVEN(done);
  *done = 0;
  if (PX_UNLIKELY(!op)) return px__no_op();
  PX_GIVEN_N(args, count);
  PX_GIVEN_N(results, count);
  if (!can_batch_launches(op)) return call_sequentially(op, mode, count, args, results, done);
  px_status status = PX_OK;
  while (*done < count && status == PX_OK) {
    int size = count - *done < PX__LAUNCH_BATCH_LIMIT ? count - *done : PX__LAUNCH_BATCH_LIMIT,
        done_now;
    status = call_launch_batched(op, mode, size, args + *done * op->param_count,
                                 results + *done * op->result_count, &done_now);
    *done += done_now;
  }
  return status;
}

void px_launch_batch_begin(void) { px__launch_batch_begin(); }

px_status px_launch_batch_end(px_status so_far) {
  px__error_guard error;
  if (so_far == PX_OK) return px__launch_batch_end();
  if ((unsigned)so_far >= PX_STATUS_COUNT) {
    (void)!px__launch_batch_end();
    PX_FAIL(PX_VALUE, "px_launch_batch_end: expected a px_status, got %d", (int)so_far);
  }
  px__error_save(&error);
  (void)!px__launch_batch_end();
  px__error_restore(&error);
  return so_far;
}
