// SPDX-License-Identifier: Apache-2.0
// Pointwise calls: broadcast the operands, compute in the promoted dtype, store in the result
// dtype.
//
// Fast path: operands are row-major and agree in shape, dtype and device, as in most calls. It only
// allocates and launches. Kernels convert elements on load and store.
#include "call/fusion/fusion.h"
#include "tensor/storage.h"

// Dtype of a number passed to a kernel: wide enough to avoid double rounding.
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
  if (PX_UNLIKELY(call->records)) return px__fusion_record(call, &l);
  return px__launch(call->device, &l, accesses, uses);
}

// ---- the fast path

static inline bool number_fits(px_value a, px_dtype dtype) {
  int c = a.kind == PX_ARG_SCALAR  ? a.category
          : a.kind == PX_ARG_FLOAT ? 'f'
          : a.kind == PX_ARG_INT   ? 'i'
                                   : 'b';
  return px_dtype_is_float(dtype) || c == 'b' || (c == 'i' && dtype != PX_BOOL);
}

// True if numbers are bounds that the dtype may lack.
static inline bool is_bounded(const px_op *op, px_dtype dtype) {
  return px__impl(op)->composed == PX__OF_UINT64 && px_dtype_is_integer(dtype) &&
         px__dtype_bytes[dtype] < sizeof(int64_t);
}

static inline bool same_form(const px_tensor *a, const px_tensor *b) {
  if (a == b) return true;
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->numel != b->numel) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->sizes[d] != b->sizes[d]) return false;
  return px_device_equal(px__tensor_device(a), px__tensor_device(b));
}

// Returns the common operand if all operands are row-major and agree in shape, dtype and device;
// NULL otherwise. Sets call->needs_grad from their flags.
static inline const px_tensor *common_operand(px_call *call) {
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
    flags |= px__flags(t);
    if (!first) first = t;
    if (!t->contiguous || t->numel == 0 || !same_form(first, t)) return NULL;
  }
  if (!first || (flags & PX_TENSOR_WRAPPED)) return NULL;
  // A view may need recording because of its base; needs_record decides.
  call->needs_grad = (flags & (PX_TENSOR_NEEDS_GRAD | PX_TENSOR_VIEW)) != 0;
  if (!numbers || px_dtype_is_float((px_dtype)first->dtype)) return first;
  for (int i = 0; i < op->param_count; i++) {
    bool counts = op->params[i].kind == PX_ARG_TENSOR || op->params[i].kind == PX_ARG_SCALAR;
    if (counts && px__is_number(call->args[i]) &&
        (!number_fits(call->args[i], first->dtype) || is_bounded(op, (px_dtype)first->dtype)))
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

// ---- numbers that must fit the compute dtype

static inline bool is_small(px_value a) {
  return a.kind == PX_ARG_SCALAR && a.category == 'i' && (uint64_t)a.v.i <= INT8_MAX;
}
__attribute__((noinline)) static px_status check_fit(const px_call *call, int i) {
  px_value a = call->args[i];
  bool wide = px__impl(call->op)->fits_wide >> i & 1;
  bool narrow = px_dtype_is_float(call->compute) && px_dtype_size(call->compute) < 4;
  px_dtype dtype = wide && narrow ? PX_FLOAT32 : call->compute;
  PX_CHECK(!px__is_number(a) || px_scalar_fits(px_value_scalar(a), dtype), PX_RUNTIME,
           "value cannot be converted to type %s without overflow", px_dtype_about(dtype)->c_name);
  return PX_OK;
}
static inline px_status check_fits(const px_call *call) {
  const px__op_impl *impl = px__impl(call->op);
  for (uint32_t rest = impl->fits | impl->fits_wide; rest; rest &= rest - 1) {
    int i = __builtin_ctz(rest);
    if (PX_UNLIKELY(!is_small(call->args[i]))) PX_TRY(check_fit(call, i));
  }
  return PX_OK;
}

static px_status fast_result(px_call *call, const px_tensor *like) {
  if (call->mode == PX_CALL_INPLACE) {
    if (call->dtype != like->dtype) PX_TRY(px__check_cast(call->dtype, (px_dtype)like->dtype));
    if (PX_LIKELY(!px__may_fault(call))) {
      call->results[0] = px_retain(call->given[0]);
      return PX_OK;
    }
  }
  if (PX_UNLIKELY(call->records)) return px__fusion_result(call, like->ndim, like->sizes, NULL);
  px_storage *storage = NULL;
  size_t bytes = (size_t)like->numel * px__dtype_bytes[call->dtype];
  PX_TRY(px__storage_new(&storage, bytes, call->device, px__thread_cache_here));
  return px__tensor_over(&call->results[0], storage, like->ndim, like->sizes, NULL, call->dtype);
}

static px_status fast_path(px_call *call, const px_tensor *like) {
  px_operand operands[PX_MAX_OPERANDS];
  px_access accesses[PX_MAX_OPERANDS];
  if (PX_UNLIKELY(call->records)) PX_TRY(px__fusion_settle(call, like->numel));
  PX_TRY(fast_result(call, like));
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

// ---- the general path

typedef struct broadcast_operands {
  int ndim, n, uses;
  int64_t sizes[PX_MAX_DIMS];
  px_operand operands[PX_MAX_OPERANDS];
  px_access accesses[PX_MAX_OPERANDS];
  int64_t *strides;  // ndim for each operand
} broadcast_operands;

static px_status broadcast_all(const px_call *call, broadcast_operands *s) {
  s->ndim = 0;
  for (int i = 0; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_TENSOR) {
      const px_tensor *t = call->args[i].v.tensor;
      PX_TRY(px__broadcast(&s->ndim, s->sizes, s->ndim, s->sizes, t->ndim, t->sizes));
    }
  return PX_OK;
}

static void spread_tensor(broadcast_operands *s, const px_tensor *t, bool write) {
  int64_t *strides = s->strides + s->n * s->ndim;
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

// Bounds of clamp for integers: a number beyond the limits of the compute dtype is its limit,
// unless it excludes all values.
static px_status fit_bound(const px_call *call, int param, px_scalar *number) {
  const px_dtype_info *limits = px_dtype_about(call->compute);
  const char *name = call->op->params[param].name;
  double value = px_scalar_float(*number);
  bool low = value < limits->min;
  bool high = value > limits->max;
  PX_CHECK(!(low && !strncmp(name, "max", 3)) && !(high && !strncmp(name, "min", 3)), PX_RUNTIME,
           "Clamp %.3s value %g is outside the representable range of %s", name, value,
           limits->cls);
  if (low || high) *number = px_int((int64_t)(low ? limits->min : limits->max));
  return PX_OK;
}

static px_status spread_argument(const px_call *call, broadcast_operands *s, int i) {
  px_value a = call->args[i];
  px_operand *o = &s->operands[s->n];
  if (a.kind == PX_ARG_NONE) {
    *o = (px_operand){.dtype = PX_DTYPE_NONE};
    s->n++;
    return PX_OK;
  }
  if (a.kind != PX_ARG_TENSOR) {
    px_scalar number = px_value_scalar(a);
    if (is_bounded(call->op, call->compute)) PX_TRY(fit_bound(call, i, &number));
    px__immediate(o, number, number_dtype(call->compute), s->ndim, s->sizes);
    s->n++;
    return PX_OK;
  }
  const px_tensor *t = a.v.tensor;
  // An unsigned integer without dimensions does not decide the dtype of a kernel.
  if (t->ndim == 0 && px__is_unsigned((px_dtype)t->dtype) && call->compute < PX_DTYPE_COMPUTED) {
    px_scalar number;
    PX_TRY(px_tensor_item(&number, t));
    px__immediate(o, number, number_dtype(call->compute), s->ndim, s->sizes);
    s->n++;
    return PX_OK;
  }
  // Integers of any dtype are converted if the compute dtype is floating-point.
  bool converts = px__is_unsigned((px_dtype)t->dtype) && px_dtype_is_float(call->compute);
  if (PX_UNLIKELY(t->dtype >= PX_DTYPE_COMPUTED) && !converts)
    PX_TRY(px__check_dtype(call->op, (px_dtype)t->dtype, call->device));
  if (t->ndim == 0 && call->device.type != PX_CPU && px__tensor_device(t).type == PX_CPU) {
    px_scalar value = px_int(0);
    px_complex parts = {0, 0};
    px_dtype d = (px_dtype)t->dtype;
    PX_TRY(px_dtype_is_complex(d) ? px_tensor_item_complex(&parts, t) : px_tensor_item(&value, t));
    bool counts = (px__flags(t) & PX_TENSOR_WRAPPED) || d >= PX_DTYPE_COMPUTED;
    px__immediate(o, value, counts ? number_dtype(call->compute) : d, s->ndim, s->sizes);
    if (PX_UNLIKELY(px_dtype_is_complex(d))) px_complex_store(parts, (px_dtype)o->dtype, o->value);
    s->n++;
    return PX_OK;
  }
  spread_tensor(s, t, false);
  return PX_OK;
}

// ---- strides of a new result

static const px_tensor *tensor_at(const px_call *call, int i) {
  return call->args[i].kind == PX_ARG_TENSOR ? call->args[i].v.tensor : NULL;
}

static bool all_row_major(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++) {
    const px_tensor *t = tensor_at(call, i);
    if (t && !t->contiguous) return false;
  }
  return true;
}

// noinline, to keep its stack frame out of calls with row-major operands.
__attribute__((noinline)) static px_status strided_result(px_call *call,
                                                          const broadcast_operands *s) {
  int64_t strides[PX_MAX_DIMS];
  px__layout l = {.ndim = s->ndim, .sizes = s->sizes};
  int first = px__impl(call->op)->format ? __builtin_ctz(px__impl(call->op)->format) : 0;
  for (int k = 0; k < call->op->param_count; k++) {
    int i = k == 0 ? first : k <= first ? k - 1 : k;
    const px_tensor *t = tensor_at(call, i);
    l.mixed |= px__is_number(call->args[i]) && call->op->params[i].kind == PX_ARG_TENSOR;
    if (t) l.of[l.n++] = px__form_of(t);
  }
  px__layout_strides(strides, &l);
  if (PX_UNLIKELY(call->records)) return px__fusion_result(call, s->ndim, s->sizes, strides);
  return px_tensor_empty_strided(&call->results[0], s->ndim, s->sizes, strides, call->dtype,
                                 call->device);
}

static px_status general_result(px_call *call, broadcast_operands *s) {
  bool row_major = call->given[0] || all_row_major(call) || px__impl(call->op)->row_major;
  if (PX_UNLIKELY(!row_major)) return strided_result(call, s);
  if (PX_UNLIKELY(call->records && !call->given[0]))
    return px__fusion_result(call, s->ndim, s->sizes, NULL);
  return px__call_result(call, 0, s->ndim, s->sizes, call->dtype);
}

// Flattens dense operands with equal strides to one dimension. Registered kernels get the original
// dimensions.
static void flatten(broadcast_operands *s, const px_call *call) {
  const px_tensor *out = call->results[0];
  if (px__impl(call->op)->registered) return;
  for (int i = 1; i < s->n; i++) {
    const px_operand *o = &s->operands[i];
    if (o->immediate || o->dtype == PX_DTYPE_NONE) continue;
    if (memcmp(o->strides, s->strides, (size_t)s->ndim * sizeof *o->strides)) return;
  }
  if (!px_tensor_is_dense(out)) return;
  s->sizes[0] = out->numel;
  for (int i = 0; i < s->n; i++) s->operands[i].ndim = 1, s->strides[i * s->ndim] = 1;
}

// The same for numbers that the kernel reads from the launch.
static px_status fit_bounds(px_call *call, px_value *fitted) {
  memcpy(fitted, call->args, (size_t)call->op->param_count * sizeof *fitted);
  for (int i = 0; i < call->op->param_count; i++) {
    if (call->op->params[i].kind != PX_ARG_SCALAR || !px__is_number(fitted[i])) continue;
    px_scalar number = px_value_scalar(fitted[i]);
    PX_TRY(fit_bound(call, i, &number));
    fitted[i] = PX_S(number);
  }
  return PX_OK;
}

static px_status general_path(px_call *call) {
  px_value fitted[PX__MAX_PARAMS], *given = call->args;
  broadcast_operands s;
  PX__INTS(strides);
  s.n = s.uses = 0;
  PX_TRY(px__call_find_device(call));
  PX_TRY(px__call_promote(call));
  bool bounded = is_bounded(call->op, call->compute);
  if (!bounded) PX_TRY(check_fits(call));
  if (PX_UNLIKELY(bounded)) PX_TRY(fit_bounds(call, fitted));
  PX_TRY(broadcast_all(call, &s));
  PX_TRY(px__ints_reserve(&strides, (int64_t)(call->op->param_count + 1) * s.ndim));
  s.strides = strides.at;
  if (PX_UNLIKELY(call->records))
    PX_TRY(px__fusion_settle(call, px__sizes_product(s.sizes, s.ndim)));
  PX_TRY(general_result(call, &s));
  px_tensor *out = call->results[0];
  if (!out->numel) return PX_OK;
  spread_tensor(&s, out, true);
  for (int i = 0; i < call->op->param_count; i++)
    if (call->op->params[i].kind == PX_ARG_TENSOR) PX_TRY(spread_argument(call, &s, i));
  if (PX_UNLIKELY(!out->contiguous)) flatten(&s, call);
  if (PX_UNLIKELY(bounded)) call->args = fitted;
  px_status status = issue(call, s.operands, s.n, s.accesses, s.uses);
  call->args = given;
  return status;
}

px_status px__call_pointwise(px_call *call, bool *simple) {
  const px__op_impl *impl = px__impl(call->op);
  if (PX_UNLIKELY(impl->run != NULL)) {
    PX_TRY(impl->run(call));
    if (call->skip_launch) return PX_OK;
  }
  if (call->mode != PX_CALL_OUT) {
    const px_tensor *like = common_operand(call);
    if (like && simple_dtypes(call, like)) {
      *simple = true;
      PX_TRY(check_fits(call));
      call->device = px__tensor_device(like);
      return fast_path(call, like);
    }
  }
  return general_path(call);
}
