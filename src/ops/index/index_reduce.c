// SPDX-License-Identifier: Apache-2.0
// Run functions of scatter reductions, index_reduce, sparse softmax and segment_reduce.
#include <math.h>
#include <string.h>

#include "formulas.h"
#include "ops/index/index_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/reduce.h"
#include "run_functions/index.h"

// ---- the reductions

// Identity of a reduction; for min and max a limit of the dtype.
typedef enum identity { ZERO, ONE, LOWEST, HIGHEST } identity;
typedef struct reduction {
  const char *name;
  px_put_mode how;
  identity identity;
} reduction;
static const reduction reductions[] = {
    {"sum", PX_PUT_ADD, ZERO},          {"mean", PX_PUT_ADD, ZERO},
    {"add", PX_PUT_ADD, ZERO},          {"prod", PX_PUT_MULTIPLY, ONE},
    {"multiply", PX_PUT_MULTIPLY, ONE}, {"amax", PX_PUT_MAX, LOWEST},
    {"amin", PX_PUT_MIN, HIGHEST}};
static const reduction *reduction_named(const char *name) {
  const reduction *w = reductions;
  while (strcmp(w->name, name) != 0) w++;
  return w;
}
static px_scalar identity_of(identity u, px_dtype dtype) {
  if (u == ZERO || u == ONE) return px_int(u);
  if (px_dtype_is_float(dtype)) return px_float(u == LOWEST ? -INFINITY : INFINITY);
  if (dtype == PX_BOOL) return px_int(u == HIGHEST);
  bool has_sign = px_dtype_is_signed(dtype);
  int bits = 8 * (int)px_dtype_size(dtype) - has_sign;
  int64_t highest = (int64_t)(UINT64_MAX >> (64 - bits));
  return px_int(u == HIGHEST ? highest : has_sign ? -highest - 1 : 0);
}

// ---- scatter

PX_RUN(scatter_add_or_multiply) {
  px_put_mode how = reduction_named(args->reduce)->how;
  return px__scatter(call,
                     &(px__scatter_call){args->self, args->index, args->src, args->dim, how, NULL});
}
PX_RUN(scatter_value_add_or_multiply) {
  PX_SCOPED(px_tensor) value = NULL;
  PX_TRY(px__value_like(&value, args->self, args->value));
  px_put_mode how = reduction_named(args->reduce)->how;
  return px__scatter(call,
                     &(px__scatter_call){args->self, args->index, value, args->dim, how, NULL});
}

PX_RUN(scatter_reduce) {
  px_tensor *self = args->self;
  px_dtype dtype = (px_dtype)self->dtype;
  const reduction *w = reduction_named(args->reduce);
  bool mean = !strcmp(args->reduce, "mean");
  bool divides = dtype != PX_BOOL && !px__is_unsigned(dtype);
  PX_CHECK(!mean || divides, PX_UNIMPLEMENTED,
           "\"scatter_gather_tensor_cpu_reduce_mean\" not implemented for '%s'",
           px_dtype_class(dtype));
  PX_SCOPED(px_tensor) first = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  if (!args->include_self) PX_TRY(px__value_like(&first, self, identity_of(w->identity, dtype)));
  PX_TRY(px__scatter(call,
                     &(px__scatter_call){self, args->index, args->src, args->dim, w->how, first}));
  if (!mean) return PX_OK;
  PX_TRY(px__formula_scatter_counts(
      &count,
      (px_value[]){PX_T(self), PX_I(args->dim), PX_T(args->index), PX_B(args->include_self)}));
  px_tensor *result = call->results[0];
  bool exact = px_dtype_is_float(dtype) || px_dtype_is_complex(dtype);
  return exact ? px_div_(result, count) : px_floor_divide_(result, count);
}

// ---- segments of a dimension

static px_status check_lengths(const px_tensor *data, const px_tensor *lengths, int axis,
                               bool offsets) {
  bool matches = lengths->ndim == axis + 1;
  PX_CHECK(data->ndim >= lengths->ndim, PX_RUNTIME,
           "Expected data.dim() >= %s_value.dim() to be true, but got false.  (Could this error "
           "message be improved?  If so, please report an enhancement request to PyTorch.)",
           offsets ? "offsets" : "lengths");
  PX_CHECK(matches, PX_RUNTIME,
           "segment_reduce(): Expected axis to be the last dimension of %s but got %d.",
           offsets ? "offsets" : "lengths", axis);
  for (int d = 0; d < axis; d++) matches = matches && data->sizes[d] == lengths->sizes[d];
  PX_CHECK(matches, PX_RUNTIME,
           "segment_reduce(): Expected the sizes of %s before axis to match those of data",
           offsets ? "offsets" : "lengths");
  PX_CHECK(!px_dtype_is_float((px_dtype)lengths->dtype) && lengths->dtype != PX_BOOL,
           PX_UNIMPLEMENTED, "\"_segment_reduce_%s_cpu_kernel1\" not implemented for '%s'",
           offsets ? "offsets" : "lengths", px_dtype_class((px_dtype)lengths->dtype));
  return PX_OK;
}
// PyTorch's text for empty offsets: a result with -1 segments.
static px_status check_offsets(const px_tensor *offsets, const px_tensor *data, int axis) {
  int64_t sizes[PX_MAX_DIMS];
  char text[256];
  px__sizes_copy(sizes, data->sizes, data->ndim);
  sizes[axis] = offsets->sizes[axis] - 1;
  PX_CHECK(offsets->sizes[axis] > 0, PX_RUNTIME,
           "Trying to create tensor with negative dimension -1: %s",
           px__sizes_text(text, sizeof text, data->ndim, sizes));
  return PX_OK;
}
PX_RUN(segment_reduce) {
  const px_tensor *data = args->data, *given = args->lengths ? args->lengths : args->offsets;
  int axis;
  PX_TRY(px__wrap_dim(&axis, args->axis, data->ndim));
  PX_TRY(check_lengths(data, given, axis, !args->lengths));
  return args->lengths ? PX_OK : check_offsets(given, data, axis);
}
