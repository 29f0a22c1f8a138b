// SPDX-License-Identifier: Apache-2.0
// Run functions of losses: PyTorch's argument checks, and composites with PyTorch's steps.
#include <math.h>
#include <string.h>

#include "call/autocast.h"
#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/graph.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/layer.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/loss.h"

#define LL(x) ((long long)(x))

// ---- nll

static px_status check_target(const px_tensor *x, const px_tensor *target,
                              const px_tensor *weight) {
  char a[128], b[128];
  px__size_text(a, sizeof a, x);
  px__size_text(b, sizeof b, target);
  PX_CHECK(x->ndim >= 1, PX_RUNTIME, "input tensor should be 1D or 2D");
  PX_CHECK(x->ndim != 1 && x->ndim != 2 ? true : target->ndim <= 1, PX_RUNTIME,
           "0D or 1D target tensor expected, multi-target not supported");
  bool same = x->ndim == 1 ? target->numel == 1 : target->ndim == x->ndim - 1;
  for (int i = 0; same && x->ndim > 1 && i < target->ndim; i++)
    same = target->sizes[i] == x->sizes[i ? i + 1 : 0];
  if (!same && (x->ndim == 3 || x->ndim > 4) && target->ndim == x->ndim - 1) {
    int64_t expected[PX_MAX_DIMS];
    for (int i = 0; i < target->ndim; i++) expected[i] = x->sizes[i ? i + 1 : 0];
    PX_FAIL(PX_RUNTIME, "Expected target size %s, got %s",
            px__sizes_text(a, sizeof a, target->ndim, expected),
            px__sizes_text(b, sizeof b, target->ndim, target->sizes));
  }
  PX_CHECK(same, PX_RUNTIME, "size mismatch (got input: %s, target: %s)", a, b);
  PX_CHECK(target->dtype == PX_INT64 || target->dtype == PX_UINT8, PX_RUNTIME,
           "expected target dtype to be Long or Byte, but got %s",
           px_dtype_class((px_dtype)target->dtype));
  int64_t classes = x->sizes[x->ndim == 1 ? 0 : 1];
  if (!weight) return PX_OK;
  PX_CHECK(weight->ndim == 1 && weight->numel == classes, PX_RUNTIME,
           "weight tensor should be defined either for all %lld classes or no classes but got "
           "weight tensor of shape: %s",
           LL(classes), px__size_text(b, sizeof b, weight));
  PX_CHECK(weight->dtype == x->dtype, PX_RUNTIME, "expected scalar type %s but found %s",
           px_dtype_class((px_dtype)x->dtype), px_dtype_class((px_dtype)weight->dtype));
  return PX_OK;
}
PX_RUN(nll_loss_forward) { return check_target(args->self, args->target, args->weight); }

// ---- linear_cross_entropy

// Sizes in the format of a Python tuple.
static const char *tuple_text(char *buffer, size_t bytes, const int64_t *sizes, int ndim) {
  px__sizes_text(buffer, bytes - 2, ndim, sizes);
  char *last = strrchr(buffer, ']');  // NULL if the text was shortened
  if (last) memcpy(last, ndim == 1 ? ",)" : ")", ndim == 1 ? 3 : 2);
  buffer[0] = '(';
  return buffer;
}
// Checks that linear_bias has the leading sizes of linear_weight.
static px_status check_linear_bias(const px_tensor *bias, const px_tensor *weight) {
  char have[128], want[128];
  int ndim = weight->ndim - 1;
  bool fits = bias->ndim == ndim;
  for (int d = 0; fits && d < ndim; d++) fits = bias->sizes[d] == weight->sizes[d];
  PX_CHECK(fits, PX_RUNTIME, "expected linear_bias shape %s, got %s",
           tuple_text(want, sizeof want, weight->sizes, ndim),
           tuple_text(have, sizeof have, bias->sizes, bias->ndim));
  return PX_OK;
}
// The logits have the sizes (N, classes) of the input and the weight.
PX_RUN(linear_cross_entropy) {
  const px_tensor *x = args->input, *weight = args->linear_weight, *target = args->target;
  int last = weight->ndim - 1, lead = x->ndim - 1;
  int64_t features = weight->sizes[last];
  if (args->linear_bias) PX_TRY(check_linear_bias(args->linear_bias, weight));
  char text[128];
  PX_CHECK(
      lead || weight->ndim == 2, PX_RUNTIME,
      "K-dimensional loss defined by linear_weight shape %s requires batched input, (N, %lld), "
      "got unbatched input with shape (%lld,)",
      tuple_text(text, sizeof text, weight->sizes, weight->ndim), (long long)features,
      (long long)features);
  PX_TRY(px__check_ndim(lead + last));
  bool soft = target->ndim == lead + last && (!lead || target->sizes[0] == x->sizes[0]);
  for (int d = 0; soft && d < last; d++) soft = target->sizes[lead + d] == weight->sizes[d];
  PX_CHECK(!soft || !px__given(args->ignore_index), PX_RUNTIME,
           "ignore_index cannot be specified when target contains probabilities");
  return PX_OK;
}

// ---- composed losses

// Tensors without values on the host are not checked: mapped ones and those of a capture.
static px_status check_variance(const px_tensor *var) {
  px_stream *stream;
  if (px__is_batched(var) || px__is_meta(var)) return PX_OK;
  PX_TRY(px_stream_current(&stream, px__tensor_device(var)));
  if (px_stream_capturing(stream)) return PX_OK;
  PX_SCOPED(px_tensor) negative = NULL;
  PX_SCOPED(px_tensor) any = NULL;
  px_scalar found;
  PX_TRY(px_lt_scalar(&negative, var, px_int(0)));
  PX_TRY(px_any(&any, negative, NULL, 0, false));
  PX_TRY(px_tensor_item(&found, any));
  PX_CHECK(!px_scalar_int(found), PX_VALUE, "var has negative entry/entries");
  return PX_OK;
}
// Variance of all elements, per element, or per row of one dimension. The last dimension may be
// missing.
static px_status variance_of(px_tensor **out, px_tensor *var, const px_tensor *x) {
  int lead = x->ndim - 1;
  PX_TRY(check_variance(var));
  if (px__flags(var) & PX_TENSOR_WRAPPED) {
    px_scalar number;
    PX_TRY(px_tensor_item(&number, var));
    return px_full_like(out, x, number, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL);
  }
  if (lead >= 0 && px__has_sizes(var, lead, x->sizes)) return px_unsqueeze(out, var, -1);
  int others = 0;
  bool ones = var->ndim == x->ndim;
  for (int d = 0; d < x->ndim && ones; d++) {
    others += var->sizes[d] != x->sizes[d];
    ones = var->sizes[d] == x->sizes[d] || var->sizes[d] == 1;
  }
  PX_CHECK(ones && others <= 1, PX_VALUE, "var is of incorrect size");
  *out = px_retain(var);
  return PX_OK;
}
PX_RUN(gaussian_nll_loss) {
  PX_SCOPED(px_tensor) var = NULL;
  PX_TRY(variance_of(&var, args->var, args->input));
  return px__formula_reduced_gaussian_losses(
      call->results, (px_value[]){PX_T(args->input), PX_T(args->target), PX_T(var),
                                  PX_B(args->full), PX_F(args->eps), PX_TX(args->reduction)});
}
