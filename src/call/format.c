// SPDX-License-Identifier: Apache-2.0
// Strides of results, for ops with a field `format` or `order`.
//
// `format`: results are channels_last if one of the named tensors is channels_last, or if the
// argument memory_format requests it. `order`: they keep the order of dimensions of the named
// tensors, by the rule of elementwise ops, or are row-major.
//
// Kernels get channels_last results and operands in their own layout. The backend copies operands
// that its kernel does not support. Kernels that treat all pixels of a channel alike (`rows`) get
// channels_last operands as matrices of (pixels, channels). Results of other kinds are copied.
#include "call/call_impl.h"
#include "phlox/ops/copy.h"

px_memory_format px__list_format(px_value list) {
  px_memory_format common = PX_FORMAT_CONTIGUOUS;
  for (int i = 0; i < list.n; i++) {
    px_memory_format one = px_tensor_suggest_format(list.v.tensors[i]);
    if (i && one != common) return PX_FORMAT_CONTIGUOUS;
    common = one;
  }
  return common;
}

// Fast path: most tensors have larger strides for channels than for the last dimension.
static inline bool is_surely_row_major(const px_tensor *t) {
  return t->ndim < 4 || t->strides[1] > t->strides[t->ndim - 1];
}

static inline px_memory_format format_of(px_value a) {
  px_memory_format format = PX_FORMAT_CONTIGUOUS;
  if (PX_LIKELY(a.kind == PX_ARG_TENSOR))
    return is_surely_row_major(a.v.tensor) ? format : px_tensor_suggest_format(a.v.tensor);
  if (a.kind == PX_ARG_TENSORS) return px__list_format(a);
  if (a.kind == PX_ARG_TEXT && px_memory_format_parse(&format, a.v.text) != PX_OK) px_error_clear();
  return format;
}

px_memory_format px__result_format(const px_call *call) {
  for (uint32_t rest = px__impl(call->op)->format; rest; rest &= rest - 1) {
    px_memory_format format = format_of(call->args[__builtin_ctz(rest)]);
    if (format == PX_FORMAT_CHANNELS_LAST || format == PX_FORMAT_CHANNELS_LAST_3D) return format;
  }
  return PX_FORMAT_CONTIGUOUS;
}

// True if a tensor has the number of dimensions of a format.
static bool has_dims(const px_tensor *t, px_memory_format format) {
  return t->ndim == (format == PX_FORMAT_CHANNELS_LAST ? 4 : 5);
}

// ---- order of dimensions

static bool broadcasts_to(const px_tensor *t, int ndim, const int64_t *sizes) {
  int shift = ndim - t->ndim;
  for (int d = 0; d < t->ndim && shift >= 0; d++)
    if (t->sizes[d] != 1 && t->sizes[d] != sizes[d + shift]) return false;
  return shift >= 0;
}

// Computes the strides of a result of an op with `order`. Tensors that do not broadcast to the
// result do not count. Returns false if the result is row-major.
static bool order_strides(const px_call *call, int ndim, const int64_t *sizes, int64_t *strides) {
  px__layout l = {.ndim = ndim, .sizes = sizes};
  bool contiguous = true;
  for (uint32_t rest = px__impl(call->op)->order; rest; rest &= rest - 1) {
    px_value a = call->args[__builtin_ctz(rest)];
    if (a.kind != PX_ARG_TENSOR || !broadcasts_to(a.v.tensor, ndim, sizes)) continue;
    contiguous &= a.v.tensor->contiguous;
    l.of[l.n++] = px__form_of(a.v.tensor);
  }
  if (contiguous) return false;
  px__layout_strides(strides, &l);
  return true;
}

// Copies a result to a memory format. Composites copy by a recorded op.
static px_status convert(px_call *call, px_tensor **result, px_memory_format format) {
  px_tensor *made = NULL;
  if (call->op->kind == PX_OP_COMPOSITE) {
    PX_TRY(px_clone(&made, *result, px_memory_format_name(format)));
  } else {
    PX_TRY(px_tensor_empty_format(&made, (*result)->ndim, (*result)->sizes, format,
                                  (px_dtype)(*result)->dtype, px__tensor_device(*result)));
    px_status status = px__tensor_copy(made, *result, false);
    if (status != PX_OK) px_release(made);
    PX_TRY(status);
  }
  px_release(*result);
  *result = made;
  return PX_OK;
}

static px_status make_row_major(px_call *call) {
  for (int i = 0; i < call->op->result_count; i++) {
    px_tensor *made = call->results[i];
    if (made && made != call->given[i] && !made->contiguous)
      PX_TRY(convert(call, &call->results[i], PX_FORMAT_CONTIGUOUS));
  }
  return PX_OK;
}

px_status px__call_format(px_call *call) {
  px_memory_format format = px__result_format(call);
  if (call->composed) return PX_OK;
  if (PX_LIKELY(format == PX_FORMAT_CONTIGUOUS))
    return px__impl(call->op)->row_major ? make_row_major(call) : PX_OK;
  for (int i = 0; i < call->op->result_count; i++) {
    px_tensor *made = call->results[i];
    if (!made || made == call->given[i] || !has_dims(made, format)) continue;
    if (px_tensor_suggest_format(made) != format) PX_TRY(convert(call, &call->results[i], format));
  }
  return PX_OK;
}

// ---- rows

typedef struct rows {
  px_tensor *made[PX__MAX_PARAMS + PX__MAX_RESULTS];
  int n;
} rows;

// Views t as (pixels, channels). Copies t first unless it is in the format.
static px_status as_rows(rows *r, px_tensor **out, px_tensor *t, px_memory_format format) {
  PX_SCOPED(px_tensor) converted = px_retain(t);
  if (!has_dims(t, format)) return *out = t, PX_OK;
  if (!px_tensor_has_format(t, format)) {
    px_release(converted);
    converted = NULL;
    PX_TRY(px_tensor_empty_format(&converted, t->ndim, t->sizes, format, (px_dtype)t->dtype,
                                  px__tensor_device(t)));
    PX_TRY(px__tensor_copy(converted, t, false));
  }
  int64_t channels = t->sizes[1], sizes[2] = {channels ? t->numel / channels : 0, channels};
  PX_TRY(px__tensor_new(&r->made[r->n], converted->storage, (px_dtype)t->dtype, 2, sizes, NULL,
                        converted->offset));
  *out = r->made[r->n++];
  return PX_OK;
}

static px_status launch_rows(px_call *matrix_call, rows *r, px_memory_format format) {
  for (int i = 0; i < matrix_call->op->result_count; i++)
    if (matrix_call->results[i])
      PX_TRY(as_rows(r, &matrix_call->results[i], matrix_call->results[i], format));
  for (int i = 0; i < matrix_call->op->param_count; i++)
    if (matrix_call->args[i].kind == PX_ARG_TENSOR)
      PX_TRY(as_rows(r, &matrix_call->args[i].v.tensor, matrix_call->args[i].v.tensor, format));
  return px__launch_call(matrix_call);
}

px_status px__launch_rows(px_call *call) {
  px_memory_format format = px__result_format(call);
  if (PX_LIKELY(format == PX_FORMAT_CONTIGUOUS) || !px__arg_tensor(call, PX__SELF)->numel)
    return px__launch_call(call);
  px_call matrix_call = *call;
  px_value args[PX__MAX_PARAMS];
  rows r = {.n = 0};
  memcpy(args, call->args, call->op->param_count * sizeof *args);
  matrix_call.args = args;
  px_status status = launch_rows(&matrix_call, &r, format);
  for (int i = 0; i < r.n; i++) px_release(r.made[i]);
  return status;
}

px_status px__call_empty(px_call *call, int i, int ndim, const int64_t *sizes, px_dtype dtype) {
  int64_t strides[PX_MAX_DIMS];
  if (px__impl(call->op)->order && order_strides(call, ndim, sizes, strides))
    return px_tensor_empty_strided(&call->results[i], ndim, sizes, strides, dtype, call->device);
  px_memory_format format = px__result_format(call);
  if (format == PX_FORMAT_CONTIGUOUS || ndim != (format == PX_FORMAT_CHANNELS_LAST ? 4 : 5))
    return px_tensor_empty(&call->results[i], ndim, sizes, dtype, call->device);
  return px_tensor_empty_format(&call->results[i], ndim, sizes, format, dtype, call->device);
}
