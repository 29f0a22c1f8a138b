// SPDX-License-Identifier: Apache-2.0
// Grid sampling: the sum over all combinations of taps (formula grid_tap) along each dimension.
// Formulas have no nested loops.
#include "call/shapes.h"
#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/view.h"
#include "run_functions/layer.h"

enum { TAPS = 4, DIMS = 3 };

// Replaces a tensor by the result of an op.
#define STEP(x, call_) \
  do { \
    px_tensor *next_ = NULL; \
    px_tensor **const out_ = &next_; \
    PX_TRY(call_); \
    px_release(x); \
    (x) = next_; \
  } while (0)

// Indices and weights of the taps along a dimension.
typedef struct taps {
  int count;
  px_tensor *of[TAPS][2];
} taps;
static void taps_drop(taps *t) {
  for (int i = 0; i < t->count; i++) px_release(t->of[i][0]), px_release(t->of[i][1]);
}

// k: index of the dimension's coordinate in the grid.
static px_status taps_of(taps *t, const px_tensor *grid, int k, int64_t size,
                         const px__grid_sample_args *args) {
  bool cubic = !strcmp(args->mode, "bicubic"), nearest = *args->mode == 'n';
  px_value corners = PX_B(px__given(args->align_corners) && px_value_int(args->align_corners));
  px_value padding = PX_TX(args->padding_mode);
  int first = cubic ? -1 : 0, count = cubic ? 4 : nearest ? 1 : 2;
  PX_SCOPED(px_tensor) x = NULL;
  PX_TRY(px__formula_grid_coordinate(
      &x, (px_value[]){PX_T((px_tensor *)grid), PX_I(k), PX_I(size), corners}));
  if (!cubic)
    STEP(x, px__formula_bordered(out_, (px_value[]){PX_T(x), PX_I(size), corners, padding}));
  for (; t->count < count; t->count++)
    PX_TRY(px__formula_grid_tap(t->of[t->count],
                                (px_value[]){PX_T(x), PX_TX(args->mode), PX_I(first + t->count),
                                             PX_I(size), corners, padding}));
  return PX_OK;
}

// Adds the weighted elements of one combination of taps.
static px_status add_combination(px_tensor **sum, const px_tensor *flat, const taps *all,
                                 const int *chosen, const px_tensor *input) {
  PX_SCOPED(px_tensor) index = px_retain(all[0].of[chosen[0]][0]);
  PX_SCOPED(px_tensor) weight = px_retain(all[0].of[chosen[0]][1]);
  PX_SCOPED(px_tensor) elements = NULL;
  for (int k = 1; k < input->ndim - 2; k++) {
    STEP(index, px_mul_scalar(out_, index, px_int(input->sizes[2 + k])));
    STEP(index, px_add(out_, index, all[k].of[chosen[k]][0], px_int(1)));
    STEP(weight, px_mul(out_, weight, all[k].of[chosen[k]][1]));
  }
  PX_TRY(px__formula_grid_elements(
      &elements, (px_value[]){PX_T((px_tensor *)flat), PX_T(index), PX_T(weight)}));
  if (*sum)
    STEP(*sum, px_add(out_, *sum, elements, px_int(1)));
  else
    *sum = PX_MOVE(elements);
  return PX_OK;
}
static px_status add_all(px_tensor **sum, const px_tensor *input, const taps *all) {
  int dims = input->ndim - 2, each = all[0].count, combinations = 1;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(px_reshape(&flat, input, (int64_t[]){input->sizes[0], input->sizes[1], -1}, 3));
  for (int k = 0; k < dims; k++) combinations *= each;
  for (int i = 0; i < combinations; i++) {
    int chosen[DIMS], remainder = i;
    for (int k = 0; k < dims; k++) chosen[k] = remainder % each, remainder /= each;
    PX_TRY(add_combination(sum, flat, all, chosen, input));
  }
  return PX_OK;
}

// fp16 and bf16 coordinates would be off by whole elements.
static px_status widened(px_tensor **out, const px_tensor *t) {
  px_dtype dtype = (px_dtype)t->dtype;
  return px__tensor_to(out, t, px_dtype_is_float(dtype) ? px__acc_dtype(dtype) : dtype,
                       PX_DEVICE_NONE);
}
PX_RUN(grid_sample) {
  int dims = args->input->ndim - 2;
  PX_SCOPED(px_tensor) input = NULL;
  PX_SCOPED(px_tensor) grid = NULL;
  PX_SCOPED(px_tensor) shaped = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  taps all[DIMS] = {{0}};
  px_status status = PX_OK;
  PX_TRY(widened(&input, args->input));
  PX_TRY(widened(&grid, args->grid));
  int64_t sizes[5] = {input->sizes[0], input->sizes[1]};
  for (int k = 0; k < dims; k++) sizes[2 + k] = grid->sizes[1 + k];
  if (!input->numel || !grid->numel)
    return px__zeros_like_sized(&call->results[0], args->input, input->ndim, sizes);
  for (int k = 0; k < dims && status == PX_OK; k++)
    status = taps_of(&all[k], grid, dims - 1 - k, input->sizes[2 + k], args);
  if (status == PX_OK) status = add_all(&sum, input, all);
  for (int k = 0; k < dims; k++) taps_drop(&all[k]);
  PX_TRY(status);
  PX_TRY(px_reshape(&shaped, sum, sizes, input->ndim));
  return px__tensor_to(&call->results[0], shaped, (px_dtype)args->input->dtype, PX_DEVICE_NONE);
}
