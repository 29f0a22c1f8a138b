// SPDX-License-Identifier: Apache-2.0
// Ops that concatenate, repeat or rearrange, by copies into views.
#include "vmap_rules/index.h"
#include "call/vmap.h"
#include "ops/core/run.h"
#include "phlox/ops/index.h"
#include "run_functions/index.h"

// ---- cat and stack

// Empty 1-d tensors join with any shape, a legacy rule of PyTorch.
static bool is_legacy_empty(const px_tensor *t) { return t->ndim == 1 && t->numel == 0; }

static px_status common_dtype(px_dtype *out, px_value list) {
  *out = (px_dtype)list.v.tensors[0]->dtype;
  for (int i = 1; i < list.n; i++)
    PX_TRY(px_dtype_promote_or_fail(out, *out, (px_dtype)list.v.tensors[i]->dtype));
  return PX_OK;
}

static px_status cat_shape(px_value list, int64_t given, int *out_dim, int *out_ndim,
                           int64_t *sizes) {
  const px_tensor *first = NULL;
  int dim = 0;
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    PX_CHECK(t->ndim > 0, PX_RUNTIME,
             "zero-dimensional tensor (at position %d) cannot be concatenated", i);
    if (is_legacy_empty(t) && (first || list.n > 1)) continue;
    if (!first) {
      first = t;
      PX_TRY(px__wrap_dim(&dim, given, t->ndim));
      memcpy(sizes, t->sizes, sizeof *sizes * (size_t)t->ndim);
      continue;
    }
    PX_CHECK(t->ndim == first->ndim, PX_RUNTIME,
             "Tensors must have same number of dimensions: got %d and %d", first->ndim, t->ndim);
    for (int d = 0; d < t->ndim; d++)
      PX_CHECK(
          d == dim || t->sizes[d] == sizes[d], PX_RUNTIME,
          "Sizes of tensors must match except in dimension %d. Expected size %lld but got size "
          "%lld for tensor number %d in the list.",
          dim, (long long)sizes[d], (long long)t->sizes[d], i);
    PX_CHECK(!px__add_size(sizes[dim], t->sizes[dim], &sizes[dim]), PX_RUNTIME,
             "integer out of range");
  }
  if (!first) sizes[0] = 0;
  *out_dim = dim, *out_ndim = first ? first->ndim : 1;
  return PX_OK;
}

// Fast path on the CPU: interleaves short rows of row-major tensors of one dtype. Not for bool:
// copies normalise its elements to 0 or 1.
static px__named_kernel joined = {.name = "joined", .moves = true};
enum {
  MAX_SHORT_ROW = 65536,
  MAX_TENSORS = PX_MAX_OPERANDS - 1
};  // max bytes of a row; tensors per launch
static bool has_short_rows(const px_tensor *result, px_value list, int64_t rows) {
  if (px__tensor_device(result).type != PX_CPU || rows < 2 || !result->numel) return false;
  bool plain = result->contiguous && result->dtype != PX_BOOL;
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    plain &= t->dtype == result->dtype && t->contiguous;
  }
  return plain && result->numel / rows * (int64_t)px__item(result) <= MAX_SHORT_ROW;
}
static px_status join_rows(px_tensor *result, px_value list, int64_t rows) {
  int64_t first = 0;
  for (int i = 0, n; i < list.n; i += n) {
    n = list.n - i < MAX_TENSORS ? list.n - i : MAX_TENSORS;
    const px_value params[] = {PX_I(rows), PX_I(first)};
    PX_TRY(px__run_kernel(&joined, px_cpu(), 1, &result, n, list.v.tensors + i, params, 2));
    for (int k = 0; k < n; k++) first += list.v.tensors[i + k]->numel / rows;
  }
  return PX_OK;
}

// Several copies to a device are batched in one launch.
static bool has_parts(const px_call *call, px_value list) {
  return list.n > 2 && px__tensor_device(call->results[0]).type == PX_CUDA;
}
typedef px_status (*copy_fn)(px_tensor *result, px_value list, int dim);
static px_status copy_parts(const px_call *call, copy_fn parts, px_value list, int dim) {
  px_tensor *result = call->results[0];
  int64_t rows = px__sizes_product(result->sizes, dim);
  if (has_short_rows(result, list, rows)) return join_rows(result, list, rows);
  if (!has_parts(call, list)) return parts(result, list, dim);
  px__launch_batch_begin();
  px_status status = px__launch_batch_parts(result->storage->allocation);
  return px_launch_batch_end(status == PX_OK ? parts(result, list, dim) : status);
}

static px_status copy_slices(px_tensor *result, px_value list, int dim) {
  int64_t current = 0;
  for (int i = 0; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    if (t->numel) {
      PX_SCOPED(px_tensor) part = NULL;
      PX_TRY(px__part_slice(&part, result, dim, current, t->sizes[dim], 1));
      PX_TRY(px__tensor_copy(part, t, false));
    }
    current += is_legacy_empty(t) ? 0 : t->sizes[dim];
  }
  return PX_OK;
}

PX_RUN(cat) {
  px_value list = args->tensors;
  int64_t sizes[PX_MAX_DIMS];
  int dim = 0, ndim = 0;
  PX_TRY(px__call_same_device(call));
  PX_TRY(cat_shape(list, args->dim, &dim, &ndim, sizes));
  px_dtype dtype;
  PX_TRY(common_dtype(&dtype, list));
  PX_TRY(px__call_result(call, 0, ndim, sizes, dtype));
  return copy_parts(call, copy_slices, list, dim);
}

static px_status check_equal_sizes(px_value list) {
  const px_tensor *first = list.v.tensors[0];
  char a[256], b[256];
  for (int i = 1; i < list.n; i++) {
    const px_tensor *t = list.v.tensors[i];
    PX_CHECK(px__has_sizes(t, first->ndim, first->sizes), PX_RUNTIME,
             "stack expects each tensor to be equal size, but got %s at entry 0 and %s at entry %d",
             px__sizes_text(a, sizeof a, first->ndim, first->sizes),
             px__sizes_text(b, sizeof b, t->ndim, t->sizes), i);
  }
  return PX_OK;
}

static px_status copy_selected(px_tensor *result, px_value list, int dim) {
  for (int i = 0; i < list.n && list.v.tensors[0]->numel; i++) {
    PX_SCOPED(px_tensor) part = NULL;
    PX_TRY(px__part_select(&part, result, dim, i));
    PX_TRY(px__tensor_copy(part, list.v.tensors[i], false));
  }
  return PX_OK;
}

// Tensors of one channels_last format give the strides of their concatenation along dim, split.
static px_status stacked(px_call *call, px_value list, int dim, const int64_t *sizes,
                         px_dtype dtype) {
  const px_tensor *first = list.v.tensors[0];
  int64_t whole[PX_MAX_DIMS], strides[PX_MAX_DIMS + 1];
  px_memory_format format = px__list_format(list);
  if (format == PX_FORMAT_CONTIGUOUS || dim == first->ndim || call->given[0])
    return px__call_result(call, 0, first->ndim + 1, sizes, dtype);
  memcpy(whole, first->sizes, (size_t)first->ndim * sizeof *whole);
  whole[dim] *= list.n;
  PX_TRY(px__format_strides(strides, first->ndim, whole, format));
  memmove(strides + dim + 1, strides + dim, (size_t)(first->ndim - dim) * sizeof *strides);
  strides[dim] *= first->sizes[dim];
  return px_tensor_empty_strided(&call->results[0], first->ndim + 1, sizes, strides, dtype,
                                 call->device);
}

PX_RUN(stack) {
  px_value list = args->tensors;
  int64_t sizes[PX_MAX_DIMS];
  int dim;
  const px_tensor *first = list.v.tensors[0];
  PX_TRY(px__check_ndim(first->ndim + 1));
  PX_TRY(px__wrap_dim(&dim, args->dim, first->ndim + 1));
  PX_TRY(check_equal_sizes(list));
  PX_TRY(px__call_same_device(call));
  for (int d = 0, from = 0; d <= first->ndim; d++)
    sizes[d] = d == dim ? list.n : first->sizes[from++];
  px_dtype dtype;
  PX_TRY(common_dtype(&dtype, list));
  PX_TRY(stacked(call, list, dim, sizes, dtype));
  return copy_parts(call, copy_selected, list, dim);
}

// ---- repeating

// Views the result with two dimensions per dimension: repeats and self's size.
static px_status repeat_into(px_tensor *to, const px_tensor *self, const int64_t *repeats) {
  int64_t sizes[2 * PX_MAX_DIMS], strides[2 * PX_MAX_DIMS], own[2 * PX_MAX_DIMS];
  int n = 0, lead = to->ndim - self->ndim;
  for (int d = 0; d < to->ndim; d++) {
    int64_t size = d < lead ? 1 : self->sizes[d - lead];
    if (repeats[d] != 1) {
      sizes[n] = repeats[d], strides[n] = px__steps(size, to->strides[d]), own[n++] = 0;
    }
    if (size == 1) continue;
    sizes[n] = size, strides[n] = to->strides[d], own[n++] = self->strides[d - lead];
  }
  PX_CHECK(n <= PX_MAX_DIMS, PX_UNIMPLEMENTED, "repeat: too many repeated dimensions");
  PX_SCOPED(px_tensor) wide = NULL;
  PX_SCOPED(px_tensor) from = NULL;
  PX_TRY(px__tensor_view(&wide, to, n, sizes, strides, to->offset));
  PX_TRY(px__tensor_view(&from, self, n, sizes, own, self->offset));
  return px__tensor_copy(wide, from, false);
}

PX_RUN(repeat) {
  const px_tensor *self = args->self;
  px_value repeats = args->repeats;
  int64_t sizes[PX_MAX_DIMS];
  char text[256];
  PX_TRY(px__check_ndim(repeats.n));
  PX_CHECK(repeats.n >= self->ndim, PX_RUNTIME,
           "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
           "tensor");
  for (int d = 0; d < repeats.n; d++) {
    int from = d - (repeats.n - self->ndim);
    PX_CHECK(repeats.v.ints[d] >= 0, PX_RUNTIME,
             "Trying to create tensor with negative dimension %lld: %s",
             (long long)repeats.v.ints[d],
             px__sizes_text(text, sizeof text, repeats.n, repeats.v.ints));
    PX_CHECK(!px__mul_size(repeats.v.ints[d], from < 0 ? 1 : self->sizes[from], &sizes[d]),
             PX_RUNTIME, "numel: integer multiplication overflow");
  }
  PX_TRY(px__call_result(call, 0, repeats.n, sizes, (px_dtype)self->dtype));
  return call->results[0]->numel ? repeat_into(call->results[0], self, repeats.v.ints) : PX_OK;
}

PX_RUN(tile) {
  px_tensor *self = args->self;
  int64_t repeats[PX_MAX_DIMS];
  int n = args->dims.n, lead = self->ndim - n;
  PX_TRY(px__check_ndim(n));
  if (lead < 0) lead = 0;
  for (int d = 0; d < lead; d++) repeats[d] = 1;
  for (int d = 0; d < n; d++) repeats[lead + d] = args->dims.v.ints[d];
  return px_repeat(&call->results[0], self, repeats, lead + n);
}

// The host reads the repeats, because the size of the result depends on them.
static px_status sum_repeats(int64_t *total, const int64_t *times, int64_t n, px_value size_arg) {
  size_t bytes;
  *total = 0;
  for (int64_t i = 0; i < n; i++) {
    PX_CHECK(times[i] >= 0, PX_RUNTIME, "repeats can not be negative");
    PX_CHECK(!px__add_size(*total, times[i], total), PX_RUNTIME,
             "repeat_interleave: the sum of repeats is too large");
  }
  PX_CHECK(!px__given(size_arg) || size_arg.v.i == *total, PX_RUNTIME,
           "allocated size does not match required size");
  return px__row_major_bytes(&bytes, 1, total, PX_INT64);
}
static px_status repeated_indices(px_tensor **out, const px_tensor *repeats, px_value size_arg) {
  PX_SCOPED(px_tensor) wide = NULL;
  int64_t *times = NULL, *indices = NULL, n = repeats->numel, total = 0;
  PX_TRY(px__tensor_to(&wide, repeats, PX_INT64, PX_DEVICE_NONE));
  PX_TRY(px__alloc((void **)&times, (size_t)n * sizeof *times));
  px_status status = px_tensor_read(wide, times, (size_t)n * sizeof *times);
  if (status == PX_OK) status = sum_repeats(&total, times, n, size_arg);
  if (status == PX_OK)
    status = px__alloc((void **)&indices, (size_t)(total ? total : 1) * sizeof *indices);
  for (int64_t i = 0, current = 0; i < n && status == PX_OK; i++)
    for (int64_t k = 0; k < times[i]; k++) indices[current++] = i;
  if (status == PX_OK)
    status = px_tensor_from_data(out, indices, 1, &total, PX_INT64, px__tensor_device(repeats));
  px__free(times);
  px__free(indices);
  return status;
}

PX_RUN(repeat_interleave_counts) {
  const px_tensor *repeats = args->repeats;
  px_value size_arg = args->output_size;
  px_dtype dtype = (px_dtype)repeats->dtype;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_CHECK(!px__given(size_arg) || size_arg.v.i >= 0, PX_RUNTIME,
           "Trying to create tensor with negative dimension %lld: [%lld]", (long long)size_arg.v.i,
           (long long)size_arg.v.i);
  bool is_meta = px__is_meta(repeats);
  PX_CHECK(!is_meta || px__given(size_arg), PX_RUNTIME,
           "cannot repeat_interleave a meta tensor without output_size");
  int64_t size = px__given(size_arg) && repeats->numel ? size_arg.v.i : 0;
  if (is_meta || !repeats->numel)
    return px_tensor_empty(&call->results[0], 1, &size, dtype, px__tensor_device(repeats));
  PX_TRY(repeated_indices(&indices, repeats, size_arg));
  return px__tensor_to(&call->results[0], indices, dtype, PX_DEVICE_NONE);
}
// The output size depends on values, so callers must pass it.
PX_VMAP_RULE(repeat_interleave_counts) {
  PX_CHECK(px__given(args->output_size), PX_RUNTIME,
           "repeat_interleave: vmapping over the `repeats` tensor requires the `output_size` "
           "argument to be specified, because the size of the output equals the sum of `repeats`, "
           "which is data-dependent and may differ between batch elements. Please pass "
           "output_size, e.g. output_size=int(repeats.sum(-1).max()).");
  return px__vmap_loop(b, true);
}

PX_RUN(repeat_interleave_tensor) {
  const px_tensor *self = args->self, *repeats = args->repeats;
  int64_t n = self->numel;
  int dim = 0;
  if (px__given(args->dim)) {
    PX_TRY(px__wrap_dim(&dim, args->dim.v.i, self->ndim));
    n = self->ndim ? self->sizes[dim] : 1;
  }
  PX_CHECK(repeats->ndim <= 1, PX_RUNTIME, "repeats must be 0-dim or 1-dim tensor");
  PX_CHECK(repeats->numel == n || repeats->numel == 1, PX_RUNTIME,
           "repeats must have the same size as input along dim, but got repeats.size(0) = %lld and "
           "input.size(%d) = %lld",
           (long long)repeats->numel, dim, (long long)n);
  if (!px_dtype_is_integer((px_dtype)repeats->dtype))
    return px__refuse_dtype(call->op, (px_dtype)repeats->dtype, px__tensor_device(repeats));
  return PX_OK;
}

// ---- flip and roll

// Runs the kernel "copy" with negative source strides.
static px_status copy_flipped(px_tensor *to, const px_tensor *self, uint64_t dims) {
  static px__named_kernel copy = {.name = "copy"};
  px_device device = px__tensor_device(self);
  px_operand o[2] = {0};
  px_access uses[2] = {px__access_of(to, true), px__access_of(self, false)};
  int64_t strides[PX_MAX_DIMS], first = 0;
  for (int d = 0; d < self->ndim; d++) {
    bool back = dims >> d & 1;
    strides[d] = back ? -self->strides[d] : self->strides[d];
    if (back) first += (self->sizes[d] - 1) * self->strides[d];
  }
  px__operand_of(&o[0], to);
  px__operand_of(&o[1], self);
  o[1].strides = strides;
  o[1].data = (char *)o[1].data + first * (int64_t)px__item(self);
  px_launch l = {.op = "flip",
                 .kernel = px__named_kernel_on(&copy, (px_device_type)device.type),
                 .operand_count = 2,
                 .operands = o,
                 .compute = PX_DTYPE_NONE};
  PX_CHECK(l.kernel, PX_UNIMPLEMENTED, "flip has no kernel for device type %s",
           px_device_type_name(device.type));
  return px__launch(device, &l, uses, 2);
}

PX_RUN(flip) {
  const px_tensor *self = args->self;
  uint64_t dims;
  PX_TRY(px__wrap_dims(&dims, args->dims.v.ints, args->dims.n, self->ndim));
  PX_TRY(px__empty_as(&call->results[0], self, (px_dtype)self->dtype, px__tensor_device(self)));
  return self->numel ? copy_flipped(call->results[0], self, dims) : PX_OK;
}
