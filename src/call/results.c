// SPDX-License-Identifier: Apache-2.0
// Tensors written by a call: new ones, self of an in-place call, or out= tensors.
//
// Kernels write an out= tensor directly if it has the right form and shares no memory with an
// argument. Otherwise they write a new tensor, copied to out= after the launch. Kernels that can
// fail at an element always write a new tensor, in place too.
#include <stdio.h>

#include "call/call_impl.h"

static bool is_expanded(const px_tensor *t) {
  for (int d = 0; d < t->ndim && t->numel > 1; d++)
    if (t->strides[d] == 0 && t->sizes[d] > 1) return true;
  return false;
}

// Fails if elements of an output share memory. Few ops allow it, some of them with a warning.
static px_status check_expanded(const px_op *op, const px_tensor *out) {
  const px__op_impl *impl = px__impl(op);
  if (!is_expanded(out)) return PX_OK;
  if (impl->texts && impl->texts->expand_warning)
    return px_warn(PX_WARN_USER, "%s", impl->texts->expand_warning);
  PX_CHECK(impl->idempotent, PX_RUNTIME,
           "unsupported operation: more than one element of the written-to tensor refers to a "
           "single memory location. Please clone() the tensor before performing the operation.");
  return PX_OK;
}

// True if t's elements fill their range of memory without gaps.
static bool is_dense(const px_tensor *t) {
  int64_t last = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (t->strides[d] < 0) return false;
    last += (t->sizes[d] - 1) * t->strides[d];
  }
  return t->numel == 0 || last + 1 == t->numel;
}

static bool same_geometry(const px_tensor *a, const px_tensor *b) {
  if (a->offset != b->offset || a->ndim != b->ndim || a->dtype != b->dtype) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->sizes[d] != b->sizes[d] || (a->strides[d] != b->strides[d] && a->sizes[d] > 1))
      return false;
  return true;
}

// Memory overlap of two tensors of one storage. Reported as NOTHING for tensors with gaps.
typedef enum overlap_kind { OVERLAP_NONE, OVERLAP_PARTIAL, OVERLAP_FULL } overlap_kind;
static overlap_kind overlap_of(const px_tensor *a, const px_tensor *b) {
  if (a == b || same_geometry(a, b)) return OVERLAP_FULL;
  if (!is_dense(a) || !is_dense(b)) return OVERLAP_NONE;
  size_t at = (size_t)a->offset * px__item(a), bt = (size_t)b->offset * px__item(b);
  bool disjoint =
      at + (size_t)a->numel * px__item(a) <= bt || bt + (size_t)b->numel * px__item(b) <= at;
  return disjoint ? OVERLAP_NONE : OVERLAP_PARTIAL;
}

static px_status check_shared(const px_tensor *out, const px_tensor *in, bool disjoint) {
  if (!out->numel || !in->numel) return PX_OK;
  overlap_kind found = overlap_of(out, in);
  PX_CHECK(found != OVERLAP_PARTIAL && !(disjoint && found == OVERLAP_FULL), PX_RUNTIME,
           "unsupported operation: some elements of the input tensor and the written-to tensor "
           "refer to a single memory location. Please clone() the tensor before performing the "
           "operation.");
  return PX_OK;
}

static inline px_status check_read(const px_tensor *out, const px_tensor *in, bool disjoint) {
  return PX_UNLIKELY(in && out->storage == in->storage) ? check_shared(out, in, disjoint) : PX_OK;
}

static px_status check_reads(const px_call *call, const px_tensor *out, bool disjoint) {
  const px_value *a = call->args, *end = a + call->op->param_count;
  // out= may alias self if the op has an in-place form.
  const px_value *same = disjoint && (call->op->flags & PX_OP_HAS_INPLACE) ? a : NULL;
  for (a += call->mode == PX_CALL_INPLACE; a < end; a++) {
    if (a->kind == PX_ARG_TENSOR) PX_TRY(check_read(out, a->v.tensor, disjoint && a != same));
    for (int i = 0; a->kind == PX_ARG_TENSORS && i < a->n; i++)
      PX_TRY(check_read(out, a->v.tensors[i], disjoint));
  }
  return PX_OK;
}

px_status px__check_written(const px_call *call) {
  const px_op *op = call->op;
  const px__op_impl *impl = px__impl(op);
  if (impl->idempotent && !impl->overlap && !impl->texts) return PX_OK;
  bool disjoint =
      impl->overlap == PX__OVERLAP_SELF ||
      (impl->overlap && (call->mode == PX_CALL_INPLACE || !(op->flags & PX_OP_HAS_INPLACE)));
  bool reads = disjoint || op->kind != PX_OP_REDUCE;  // which write to memory of their own
  for (int i = 0; i < op->result_count; i++) {
    const px_tensor *out = call->given[i];
    if (!out) continue;
    if (PX_UNLIKELY(!out->contiguous)) PX_TRY(check_expanded(op, out));
    if (reads) PX_TRY(check_reads(call, out, disjoint));
  }
  return PX_OK;
}

px_status px__resize_output(px_tensor *out, int ndim, const int64_t *sizes) {
  if (px__has_sizes(out, ndim, sizes)) return PX_OK;
  char have[256], want[256];
  if (out->numel)
    PX_TRY(px_warn(
        PX_WARN_USER,
        "An output with one or more elements was resized since it had shape %s, which does not "
        "match the required output shape %s. This behavior is deprecated, and in a future PyTorch "
        "release outputs will not be resized unless they have zero elements. You can explicitly "
        "reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
        px__sizes_text(have, sizeof have, out->ndim, out->sizes),
        px__sizes_text(want, sizeof want, ndim, sizes)));
  return px_tensor_resize(out, ndim, sizes);
}

static bool shares_storage(const px_call *call, const px_tensor *out) {
  for (int i = 0; i < call->op->param_count; i++) {
    px_value a = call->args[i];
    if (a.kind == PX_ARG_TENSOR && a.v.tensor->storage == out->storage) return true;
    for (int k = 0; a.kind == PX_ARG_TENSORS && k < a.n; k++)
      if (a.v.tensors[k] && a.v.tensors[k]->storage == out->storage) return true;
  }
  return false;
}

// True if the argument `dtype` sets the result's dtype. out= must then match it.
static bool asks_dtype(const px_call *call) {
  for (int i = 0; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_DTYPE) return true;
  return false;
}

// True if all arguments but the first are numbers.
static bool is_unary(const px_call *call) {
  for (int i = 1; i < call->op->param_count; i++)
    if (call->args[i].kind == PX_ARG_TENSOR &&
        !(px__flags(call->args[i].v.tensor) & PX_TENSOR_WRAPPED))
      return false;
  return true;
}

static const char *self_class(const px_call *call) {
  bool has = call->op->param_count && call->args[PX__SELF].kind == PX_ARG_TENSOR;
  return has ? px_dtype_class((px_dtype)call->args[PX__SELF].v.tensor->dtype) : "";
}

// Fails with a refusal's text. %1$s is replaced by the first value, and so on. Unlike printf
// formats, a text may skip a number.
static px_status refuse_as(px__refusal refusal, const char *const *values) {
  char text[PX_ERROR_MESSAGE] = "";
  size_t used = 0;
  for (const char *c = refusal.text; *c && used < sizeof text;) {
    bool is_argument = c[0] == '%' && c[1] >= '1' && c[1] <= '9' && !strncmp(c + 2, "$s", 2);
    const char *piece = is_argument ? values[c[1] - '1'] : c;
    size_t length = is_argument ? strlen(piece) : 1;
    used += (size_t)snprintf(text + used, sizeof text - used, "%.*s", (int)length, piece);
    c += is_argument ? 4 : 1;
  }
  PX_FAIL(refusal.code, "%s", text);
}

// Fails unless an out= tensor of dtype `given` can hold a result of dtype `made`.
static px_status check_out(const px_call *call, int i, px_dtype made, px_dtype given) {
  const px__op_texts *texts = px__impl(call->op)->texts;
  px__out_rule rule = (px__out_rule)px__impl(call->op)->out;
  if (made == given || rule == PX__OUT_ANY) return PX_OK;
  if (rule == PX__OUT_SAME_IF_UNARY && !is_unary(call)) rule = PX__OUT_CAST;
  bool casts = rule == PX__OUT_CAST && !asks_dtype(call);
  if (casts && px_dtype_can_cast(made, given)) return PX_OK;
  if (texts && texts->of_out.code) {
    const char *name = call->op->result_names ? call->op->result_names[i] : "result";
    const char *where = px__tensor_device(call->given[i]).type == PX_CPU ? "" : "cuda.";
    return refuse_as(
        i == 1 && texts->of_second.code ? texts->of_second : texts->of_out,
        (const char *[]){px_dtype_class(given), px_dtype_class(made),
                         px_dtype_about(given)->type_name, px_dtype_about(made)->type_name, name,
                         self_class(call), where});
  }
  if (casts) return px__check_cast(made, given);
  PX_CHECK(call->op->kind != PX_OP_POINTWISE, PX_RUNTIME, "Found dtype %s but expected %s",
           px_dtype_class(given), px_dtype_class(made));
  PX_FAIL(PX_RUNTIME, "Expected out tensor to have dtype %s, but got %s instead",
          px_dtype_about(made)->type_name, px_dtype_about(given)->type_name);
}

px_status px__call_check_outs(const px_call *call, const px_dtype *dtypes) {
  for (int i = 0; i < call->op->result_count && call->mode == PX_CALL_OUT; i++)
    if (call->given[i]) PX_TRY(check_out(call, i, dtypes[i], (px_dtype)call->given[i]->dtype));
  return PX_OK;
}

// In-place dtype check. Uses the out= text of ops that have one.
static px_status check_cast(const px_op *op, px_dtype made, const px_tensor *self) {
  const px__op_texts *texts = px__impl(op)->texts;
  const char *have = px_dtype_class((px_dtype)self->dtype), *want = px_dtype_class(made);
  if (texts && texts->of_out.code && px__impl(op)->out == PX__OUT_CAST &&
      !px_dtype_can_cast(made, (px_dtype)self->dtype))
    return refuse_as(texts->of_out, (const char *[]){have, want, "", "", "result", have, ""});
  return px__check_cast(made, (px_dtype)self->dtype);
}

px_status px__check_fits_self(const px_op *op, const px_tensor *self, int ndim,
                              const int64_t *sizes, px_dtype dtype) {
  const px__op_texts *texts = px__impl(op)->texts;
  char have[256], want[256];
  if (PX_LIKELY(px__has_sizes(self, ndim, sizes))) return check_cast(op, dtype, self);
  (void)px__sizes_text(have, sizeof have, self->ndim, self->sizes);
  (void)px__sizes_text(want, sizeof want, ndim, sizes);
  if (texts && texts->of_sizes.code) {
    char dims[16];
    snprintf(dims, sizeof dims, "%d", self->ndim);
    return refuse_as(texts->of_sizes, (const char *[]){have, want, dims});
  }
  PX_FAIL(PX_RUNTIME, "output with shape %s doesn't match the broadcast shape %s", have, want);
}

static px_status inplace_result(px_call *call, int i, int ndim, const int64_t *sizes,
                                px_dtype dtype) {
  px_tensor *self = call->given[i];
  PX_TRY(px__check_fits_self(call->op, self, ndim, sizes, dtype));
  if (px__may_fault(call))
    return px_tensor_empty(&call->results[i], ndim, sizes, dtype, call->device);
  call->results[i] = px_retain(self);
  return PX_OK;
}

px_status px__call_result(px_call *call, int i, int ndim, const int64_t *sizes, px_dtype dtype) {
  if (call->results[i]) return PX_OK;
  px_tensor *given = call->given[i];
  if (given && call->mode == PX_CALL_INPLACE) return inplace_result(call, i, ndim, sizes, dtype);
  if (given) {
    PX_TRY(check_out(call, i, dtype, (px_dtype)given->dtype));
    if (given->contiguous && given->dtype == dtype && px__has_sizes(given, ndim, sizes) &&
        px_device_equal(px__tensor_device(given), call->device) && !px__may_fault(call) &&
        !shares_storage(call, given)) {
      call->results[i] = px_retain(given);
      return PX_OK;
    }
  }
  const px__op_impl *impl = px__impl(call->op);
  if (PX_UNLIKELY((impl->format && call->op->kind == PX_OP_KERNEL) || impl->order))
    return px__call_empty(call, i, ndim, sizes, dtype);
  return px_tensor_empty(&call->results[i], ndim, sizes, dtype, call->device);
}

// True if t consists of column-major matrices, like results of decompositions.
static bool is_column_major(const px_tensor *t) {
  int n = t->ndim;
  if (n < 2 || t->numel == 0 || t->sizes[n - 2] == 1 || t->sizes[n - 1] == 1) return false;
  int64_t step = t->sizes[n - 2] * t->sizes[n - 1];
  if (t->strides[n - 2] != 1 || t->strides[n - 1] != t->sizes[n - 2]) return false;
  for (int d = n - 3; d >= 0; step *= t->sizes[d--])
    if (t->sizes[d] != 1 && t->strides[d] != step) return false;
  return true;
}
static px_status set_geometry_like(px_tensor *given, const px_tensor *made) {
  PX_SCOPED(px_tensor) view = NULL;
  PX_TRY(px_tensor_as_strided(&view, given, made->ndim, made->sizes, made->strides, given->offset));
  return px__tensor_take_geometry(given, view);
}
static px_status deliver_one(px_call *call, int i) {
  px_tensor *given = call->given[i], *made = call->results[i];
  bool columns = call->op->kind == PX_OP_COMPOSITE && px__impl(call->op)->out == PX__OUT_SAME &&
                 is_column_major(made) && !px__has_sizes(given, made->ndim, made->sizes);
  // Factories and random ops resize without a warning.
  if (call->op->flags & (PX_OP_IS_FACTORY | PX_OP_RANDOM))
    PX_TRY(px_tensor_resize(given, made->ndim, made->sizes));
  else
    PX_TRY(px__resize_output(given, made->ndim, made->sizes));
  if (columns) PX_TRY(set_geometry_like(given, made));
  PX_TRY(px__tensor_copy(given, made, false));
  px_release(made);
  call->results[i] = px_retain(given);
  return PX_OK;
}

// Fails if a factory's device argument differs from the device of out=.
static px_status check_device(const px_call *call, const px_tensor *given) {
  char asked[PX_DEVICE_TEXT], have[PX_DEVICE_TEXT];
  px_device device = px__tensor_device(given);
  for (int i = 0; i < call->op->param_count; i++) {
    if (call->args[i].kind != PX_ARG_DEVICE || call->args[i].v.device.type < 0) continue;
    px_device requested;
    PX_TRY(px_device_resolve(&requested, call->args[i].v.device));
    PX_CHECK(px_device_equal(requested, device), PX_RUNTIME,
             "device %s does not match device of out parameter (%s)",
             px_device_format(requested, asked), px_device_format(device, have));
  }
  return PX_OK;
}

px_status px__call_copy_outs(px_call *call) {
  if (call->mode == PX_CALL_INPLACE)
    return call->results[0] != call->given[0] ? deliver_one(call, 0) : PX_OK;
  if (call->op->kind != PX_OP_POINTWISE) PX_TRY(px__call_same_device(call));
  for (int i = 0; i < call->op->result_count; i++) {
    px_tensor *given = call->given[i], *made = call->results[i];
    if (!given || !made || given == made) continue;
    if (call->op->flags & PX_OP_IS_FACTORY) PX_TRY(check_device(call, given));
    PX_TRY(px__check_not_batched(made));
    PX_TRY(check_out(call, i, (px_dtype)made->dtype, (px_dtype)given->dtype));
    PX_TRY(deliver_one(call, i));
  }
  return PX_OK;
}
