// SPDX-License-Identifier: Apache-2.0
// Reductions: the reduced dimensions, the result's shape, and the view of the result passed to
// kernels.
//
// Kernels get the result with the input's number of dimensions; reduced ones have size 1 and stride
// 0. An empty input yields the fold's identity if it has one.
#include "call/fusion/fusion.h"

typedef struct shape {
  uint64_t reduced;  // bit d
  bool keep, all;
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
} shape;

static px_value argument(const px_call *call, int returns_index) {
  return returns_index ? call->args[returns_index] : PX_NONE();
}

static px_status choose_dims(const px_call *call, const px_tensor *self, shape *s) {
  px_value dim = argument(call, px__impl(call->op)->dim);
  int64_t one = dim.v.i;
  const int64_t *dims = dim.kind == PX_ARG_INTS ? dim.v.ints : &one;
  int n = dim.kind == PX_ARG_INTS ? dim.n : dim.kind == PX_ARG_NONE ? 0 : 1;
  s->keep = argument(call, px__impl(call->op)->keepdim).v.i != 0;
  bool given = dim.kind == PX_ARG_INTS;  // an empty list: none for all and any, otherwise all
  s->all = n == 0 && !(given && px__impl(call->op)->promotion == PX__PROMOTE_FIRST &&
                       px__impl(call->op)->result_dtypes[0] == PX_BOOL);
  PX_TRY(px__wrap_dims(&s->reduced, dims, n, self->ndim));
  if (s->all) s->reduced = UINT64_MAX;
  return PX_OK;
}

static px_status check_empty(const px_call *call, const px_tensor *self, const shape *s) {
  if (self->numel || !px__impl(call->op)->nonempty) return PX_OK;
  bool returns_index = px__impl(call->op)->result_dtypes[0] == PX_INT64;  // the op returns indices
  PX_CHECK(!s->all, returns_index ? PX_INDEX : PX_RUNTIME,
           "%s(): Expected reduction dim to be specified for input.numel() == 0.%s",
           call->op->python_name,
           returns_index ? "" : " Specify the reduction dim with the 'dim' argument.");
  px_value dim = argument(call, px__impl(call->op)->dim);
  bool list = dim.kind == PX_ARG_INTS;  // errors show dimensions as given
  for (int i = 0; i < (list ? dim.n : self->ndim); i++) {
    long long named = list ? dim.v.ints[i] : i, d = named < 0 ? named + self->ndim : named;
    PX_CHECK(!(s->reduced >> d & 1) || self->sizes[d], PX_INDEX,
             "%s(): Expected reduction dim %lld to have non-zero size.", call->op->python_name,
             named);
  }
  return PX_OK;
}

static void result_shape(const px_tensor *self, shape *s) {
  s->ndim = 0;
  for (int d = 0; d < self->ndim; d++) {
    bool is_reduced = s->reduced >> d & 1;
    if (!is_reduced || s->keep) s->sizes[s->ndim++] = is_reduced ? 1 : self->sizes[d];
  }
}

// True if out= has a floating-point dtype. Elements are then accumulated in it.
static bool accumulates_in_out(const px_call *call, px_dtype dtype) {
  const px_tensor *out = call->mode == PX_CALL_OUT ? call->given[0] : NULL;
  return out && px__impl(call->op)->out == PX__OUT_CAST && px_dtype_is_float(dtype) &&
         px_dtype_is_float((px_dtype)out->dtype);
}

static bool is_integer(px_dtype d) { return !px_dtype_is_float(d) && !px_dtype_is_complex(d); }

// True if the op only tests elements for zero (any, all, count_nonzero).
static bool tests_zero(const px_call *call) {
  int result = px__impl(call->op)->result_dtypes[0];
  return result == PX_BOOL || result == PX_INT64;
}

static px_status choose_dtypes(px_call *call, const px_tensor *self) {
  px_value asked = argument(call, px__impl(call->op)->dtype);
  px_dtype d = (px_dtype)self->dtype;
  px__promotion rule = (px__promotion)px__impl(call->op)->promotion;
  if (asked.kind == PX_ARG_DTYPE)
    d = (px_dtype)asked.v.i;
  else if (rule == PX__PROMOTE_SUM && is_integer(d))
    d = PX_INT64;
  else if (rule == PX__PROMOTE_FLOAT && is_integer(d))
    d = px_dtype_default();
  if (PX_UNLIKELY(px_dtype_is_complex(d)) && tests_zero(call)) {
    PX_TRY(px__check_dtype(call->op, d, call->device));
    d = PX_BOOL;
  }
  if (asked.kind != PX_ARG_DTYPE && accumulates_in_out(call, d))
    d = (px_dtype)call->given[0]->dtype;
  if (px__is_unsigned(d) && rule == PX__PROMOTE_FIRST && tests_zero(call)) d = PX_BOOL;
  if (px__is_unsigned(d)) return px__refuse_dtype(call->op, d, call->device);
  call->compute = d;
  call->dtype = d;
  if (self->dtype >= PX_DTYPE_COMPUTED && self->dtype != d &&
      !(d == PX_BOOL && px_dtype_is_complex((px_dtype)self->dtype)))
    PX_TRY(px__check_dtype(call->op, (px_dtype)self->dtype, call->device));
  return px__check_dtype(call->op, d, call->device);
}

// any and all of uint8 return uint8, as in PyTorch, where bool was once uint8.
static px_dtype result_dtype(const px_call *call, int i) {
  px_dtype dtype = px__result_dtype(call->op, i, call->dtype);
  return dtype == PX_BOOL && call->dtype == PX_UINT8 ? PX_UINT8 : dtype;
}

static px_status make_results(px_call *call, const shape *s) {
  for (int i = 0; i < call->op->result_count; i++)
    PX_TRY(px__call_result(call, i, s->ndim, s->sizes, result_dtype(call, i)));
  return PX_OK;
}

typedef struct folded {
  int64_t sizes[PX_MAX_DIMS], strides[PX__MAX_RESULTS][PX_MAX_DIMS];
} folded;

static void result_operand(px_operand *o, folded *f, int i, const px_tensor *r, const shape *s,
                           const px_tensor *self) {
  int param = 0;
  for (int d = 0; d < self->ndim; d++) {
    bool is_reduced = s->reduced >> d & 1;
    f->sizes[d] = is_reduced ? 1 : self->sizes[d];
    f->strides[i][d] = is_reduced || r->sizes[param] == 1 ? 0 : r->strides[param];
    param += !is_reduced || s->keep;
  }
  *o = (px_operand){.data = px__tensor_at(r),
                    .sizes = f->sizes,
                    .strides = f->strides[i],
                    .ndim = self->ndim,
                    .dtype = r->dtype};
}

static px_status launch_fold(px_call *call, const px_tensor *self, const shape *s) {
  px_operand operands[PX__MAX_RESULTS + 1];
  px_access accesses[PX__MAX_RESULTS + 1];
  folded f;
  int n = call->op->result_count, uses = 0;
  for (int i = 0; i < n; i++) {
    result_operand(&operands[i], &f, i, call->results[i], s, self);
    px__note_access(accesses, &uses, call->device, call->results[i], true);
  }
  bool chained = PX_UNLIKELY(call->records) && px__fusion_takes_fold(call, self, s->reduced);
  if (!chained) PX_TRY(px__storage_ready(self->storage));
  px__operand_of(&operands[n], self);
  if (!chained) px__note_access(accesses, &uses, call->device, self, false);
  px_launch l;
  px__launch_start(&l, call, call->compute);
  l.operands = operands, l.operand_count = n + 1;
  if (!l.kernel) return px__no_kernel(call->op, call->compute, (px_device_type)call->device.type);
  if (chained) return px__fusion_fold(self, &l, accesses, uses);
  return px__launch(call->device, &l, accesses, uses);
}

// Converts the input first: to bool before elements are combined, unsigned integers to the compute
// dtype.
__attribute__((noinline)) static px_status launch_converted(px_call *call, const px_tensor *self,
                                                            const shape *s) {
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_tensor_empty(&made, self->ndim, self->sizes, call->compute, px__tensor_device(self)));
  PX_TRY(px__tensor_copy(made, self, false));
  return launch_fold(call, made, s);
}

px_status px__call_reduce(px_call *call) {
  const px_tensor *self = px__arg_tensor(call, PX__SELF);
  PX_CHECK(self, PX_TYPE, "%s(): argument 'input' (position 1) must be Tensor", call->op->name);
  shape s;
  call->device = px__tensor_device(self);
  PX_TRY(choose_dims(call, self, &s));
  PX_TRY(choose_dtypes(call, self));
  PX_TRY(check_empty(call, self, &s));
  result_shape(self, &s);
  PX_TRY(make_results(call, &s));
  if (!call->results[0]->numel) return PX_OK;
  bool truth = PX_UNLIKELY(call->compute == PX_BOOL) && self->dtype != PX_BOOL;
  if (truth || PX_UNLIKELY(px__is_unsigned((px_dtype)self->dtype)))
    return launch_converted(call, self, &s);
  return launch_fold(call, self, &s);
}
