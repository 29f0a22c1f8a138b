// SPDX-License-Identifier: Apache-2.0
// Element-wise calls: broadcast the operands, compute in the promoted dtype, store in the result's.
//
// In most calls all operands are row-major and have one shape, dtype and device. These take a short
// way, which only allocates and launches. Kernels convert elements when they load and store them.
#include "call/call_impl.h"

// The dtype in which a number is handed to a kernel: wide enough not to round it twice.
static inline px_dtype number_dtype(px_dtype compute) {
  return compute == PX_FLOAT16 || compute == PX_BFLOAT16 ? PX_FLOAT32 : compute;
}

static px_status issue(px_call *call, px_operand *operands, int n, const px_access *accesses,
                       int uses) {
  px_launch l;
  px__launch_start(&l, call, call->compute);
  l.operands = operands, l.operand_count = n;
  if (PX_UNLIKELY(!l.kernel))
    return px__no_kernel(call->op, call->compute, (px_device_type)call->device.type);
  return px__launch(call->device, &l, accesses, uses);
}

// ---- the short way

static inline bool number_fits(px_value a, px_dtype dtype) {
  int c = a.kind == PX_ARG_SCALAR  ? a.category
          : a.kind == PX_ARG_FLOAT ? 'f'
          : a.kind == PX_ARG_INT   ? 'i'
                                   : 'b';
  return px_dtype_is_float(dtype) || c == 'b' || (c == 'i' && dtype != PX_BOOL);
}

static inline bool alike(const px_tensor *a, const px_tensor *b) {
  if (a == b) return true;
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->numel != b->numel) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->sizes[d] != b->sizes[d]) return false;
  return px_device_equal(px__tensor_device(a), px__tensor_device(b));
}

// Finds the tensor that all others are like, and gathers their flags; NULL if the call is not that
// simple.
static inline const px_tensor *pattern(px_call *call) {
  const px_op *op = call->op;
  const px_tensor *first = NULL;
  unsigned flags = 0;
  bool numbers = false;
  for (int i = 0; i < op->param_count; i++) {
    const px_value *a = &call->args[i];
    if (a->kind != PX_ARG_TENSOR) {
      numbers |= op->params[i].kind == PX_ARG_TENSOR || op->params[i].kind == PX_ARG_SCALAR;
      continue;
    }
    const px_tensor *t = a->v.tensor;
    flags |= t->flags;
    if (!first) first = t;
    if (!t->contiguous || t->numel == 0 || !alike(first, t)) return NULL;
  }
  if (!first || (flags & PX_TENSOR_WRAPPED)) return NULL;
  // A view may have to be recorded for its base's sake: needs_record looks closer.
  call->needs_grad = (flags & (PX_TENSOR_NEEDS_GRAD | PX_TENSOR_VIEW)) != 0;
  if (!numbers || px_dtype_is_float((px_dtype)first->dtype)) return first;
  for (int i = 0; i < op->param_count; i++) {
    bool counts = op->params[i].kind == PX_ARG_TENSOR || op->params[i].kind == PX_ARG_SCALAR;
    if (counts && px__is_number(call->args[i]) && !number_fits(call->args[i], first->dtype))
      return NULL;
  }
  return first;
}

static bool simple_dtypes(px_call *call, const px_tensor *t) {
  const px__op_impl *impl = px__impl(call->op);
  px_dtype d = (px_dtype)t->dtype;
  if (d >= PX_DTYPE_COMPUTED || (impl->dtypes && !(impl->dtypes >> d & 1))) return false;
  if (impl->promotion == PX__PROMOTE_FLOAT && !px_dtype_is_float(d)) return false;
  if (impl->promotion > PX__PROMOTE_FIRST || impl->masks) return false;
  call->compute = d;
  call->dtype = px__result_dtype(call->op, 0, d);
  return true;
}

static px_status short_result(px_call *call, const px_tensor *like) {
  if (call->mode == PX_CALL_INPLACE) {
    PX_TRY(px__check_cast(call->dtype, (px_dtype)like->dtype));
    if (PX_LIKELY(!px__may_fault(call))) {
      call->results[0] = px_retain(call->given[0]);
      return PX_OK;
    }
  }
  px_storage *storage = NULL;
  size_t bytes = (size_t)like->numel * px_dtype_size(call->dtype);
  PX_TRY(px__storage_new(&storage, bytes, call->device));
  return px__tensor_over(&call->results[0], storage, like->ndim, like->sizes, NULL, call->dtype);
}

static px_status short_way(px_call *call, const px_tensor *like) {
  px_operand operands[PX_MAX_OPERANDS];
  px_access accesses[PX_MAX_OPERANDS];
  PX_TRY(short_result(call, like));
  px__operand_of(&operands[0], call->results[0]);
  int n = 1, uses = 0;
  px__note_access(accesses, &uses, call->device, call->results[0], true);
  for (int i = 0; i < call->op->param_count; i++) {
    if (call->op->params[i].kind != PX_ARG_TENSOR) continue;
    px_value *a = &call->args[i];
    if (a->kind == PX_ARG_TENSOR) {
      px__operand_of(&operands[n], a->v.tensor);
      px__note_access(accesses, &uses, call->device, a->v.tensor, false);
    } else if (a->kind == PX_ARG_NONE) {
      operands[n] = (px_operand){.dtype = PX_DTYPE_NONE};
    } else {
      px__immediate(&operands[n], px_value_scalar(*a), number_dtype(call->compute), like->ndim,
                    like->sizes);
    }
    n++;
  }
  return issue(call, operands, n, accesses, uses);
}

// ---- the general way

typedef struct spread {
  int ndim, n, uses;
  int64_t sizes[PX_MAX_DIMS];
  px_operand operands[PX_MAX_OPERANDS];
  px_access accesses[PX_MAX_OPERANDS];
  int64_t strides[PX_MAX_OPERANDS][PX_MAX_DIMS];
} spread;

static px_status broadcast_all(const px_call *call, spread *s) {
  s->ndim = 0;
  for (int i = 0; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_TENSOR) {
      const px_tensor *t = call->args[i].v.tensor;
      PX_TRY(px__broadcast(&s->ndim, s->sizes, s->ndim, s->sizes, t->ndim, t->sizes));
    }
  return PX_OK;
}

static void spread_tensor(spread *s, const px_tensor *t, bool write) {
  int64_t *strides = s->strides[s->n];
  int shift = s->ndim - t->ndim;
  for (int d = 0; d < s->ndim; d++)
    strides[d] = d < shift || t->sizes[d - shift] == 1 ? 0 : t->strides[d - shift];
  s->operands[s->n++] = (px_operand){.data = px__tensor_at(t),
                                     .sizes = s->sizes,
                                     .strides = strides,
                                     .ndim = s->ndim,
                                     .dtype = t->dtype};
  s->accesses[s->uses++] = px__access_of(t, write);
}

static px_status spread_argument(const px_call *call, spread *s, int i) {
  px_value a = call->args[i];
  px_operand *o = &s->operands[s->n];
  if (a.kind == PX_ARG_NONE) {
    *o = (px_operand){.dtype = PX_DTYPE_NONE};
    s->n++;
    return PX_OK;
  }
  if (a.kind != PX_ARG_TENSOR) {
    px__immediate(o, px_value_scalar(a), number_dtype(call->compute), s->ndim, s->sizes);
    s->n++;
    return PX_OK;
  }
  const px_tensor *t = a.v.tensor;
  if (PX_UNLIKELY(t->dtype >= PX_DTYPE_COMPUTED))
    PX_TRY(px__check_dtype(call->op, (px_dtype)t->dtype, call->device));
  if (t->ndim == 0 && call->device.type != PX_CPU && px__tensor_device(t).type == PX_CPU) {
    px_scalar value;
    PX_TRY(px_tensor_item(&value, t));
    px_dtype d = (px_dtype)t->dtype;
    bool counts = (t->flags & PX_TENSOR_WRAPPED) || d >= PX_DTYPE_COMPUTED;
    px__immediate(o, value, counts ? number_dtype(call->compute) : d, s->ndim, s->sizes);
    s->n++;
    return PX_OK;
  }
  spread_tensor(s, t, false);
  return PX_OK;
}

// A dense operand of full size whose order of dimensions the result takes over, as PyTorch's does.
static const px_tensor *leader(const px_call *call, const spread *s) {
  const px_tensor *found = NULL;
  for (int i = 0; i < call->op->param_count; i++) {
    if (call->args[i].kind != PX_ARG_TENSOR) continue;
    const px_tensor *t = call->args[i].v.tensor;
    if (t->ndim != s->ndim || memcmp(t->sizes, s->sizes, (size_t)s->ndim * sizeof *s->sizes))
      continue;
    if (t->contiguous) return NULL;
    if (!found) found = t;
  }
  if (!found || found->numel == 0) return NULL;
  int64_t last = 0;
  for (int d = 0; d < found->ndim; d++) {
    if (found->strides[d] <= 0 && found->sizes[d] > 1) return NULL;
    last += (found->sizes[d] - 1) * found->strides[d];
  }
  return last + 1 == found->numel ? found : NULL;
}

static px_status general_result(px_call *call, spread *s) {
  const px_tensor *order = call->given[0] ? NULL : leader(call, s);
  if (!order) return px__call_result(call, 0, s->ndim, s->sizes, call->dtype);
  return px_tensor_empty_strided(&call->results[0], s->ndim, s->sizes, order->strides, call->dtype,
                                 call->device);
}

static px_status general_way(px_call *call) {
  spread s;
  s.n = s.uses = 0;
  PX_TRY(px__call_agree(call));
  PX_TRY(px__call_promote(call));
  PX_TRY(broadcast_all(call, &s));
  PX_TRY(general_result(call, &s));
  px_tensor *out = call->results[0];
  if (!out->numel) return PX_OK;
  spread_tensor(&s, out, true);
  for (int i = 0; i < call->op->param_count; i++)
    if (call->op->params[i].kind == PX_ARG_TENSOR) PX_TRY(spread_argument(call, &s, i));
  return issue(call, s.operands, s.n, s.accesses, s.uses);
}

px_status px__call_pointwise(px_call *call, bool *simple) {
  const px__op_impl *impl = px__impl(call->op);
  if (PX_UNLIKELY(impl->run != NULL)) {
    PX_TRY(impl->run(call));
    if (call->skip_launch) return PX_OK;
  }
  if (call->mode != PX_CALL_OUT) {
    const px_tensor *like = pattern(call);
    if (like && simple_dtypes(call, like)) {
      *simple = true;
      call->device = px__tensor_device(like);
      return short_way(call, like);
    }
  }
  return general_way(call);
}
