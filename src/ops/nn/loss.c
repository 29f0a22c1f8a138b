// SPDX-License-Identifier: Apache-2.0
// Run functions of losses: PyTorch's argument checks, and composites with PyTorch's steps.
#include <math.h>
#include <string.h>

#include "call/autocast.h"
#include "hidden/loss.h"
#include "ops/core/run.h"
#include "phlox/graph.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/layer.h"
#include "phlox/ops/linalg.h"
#include "phlox/ops/loss.h"
#include "phlox/ops/norm.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/loss.h"

#define LL(x) ((long long)(x))

typedef enum reduction { NONE, MEAN, SUM } reduction;
static px_status reduction_of(reduction *out, const char *s) {
  *out = !strcmp(s, "none") ? NONE : !strcmp(s, "sum") ? SUM : MEAN;
  PX_CHECK(*out != MEAN || !strcmp(s, "mean"), PX_VALUE, "%s is not a valid value for reduction",
           s);
  return PX_OK;
}
static px_status reduce(px_tensor **out, const px_tensor *t, reduction how) {
  if (how == MEAN) return px_mean_all(out, t, PX_DTYPE_NONE);
  if (how == SUM) return px_sum_all(out, t, PX_DTYPE_NONE);
  *out = px_retain(t);
  return PX_OK;
}

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
PX_RUN(nll_loss_forward) {
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  return check_target(args->self, args->target, args->weight);
}

typedef struct nll {
  const px_tensor *target, *weight;
  const char *how;
  int64_t ignore;
} nll;
static px_status nll_of(px_tensor **out, px_tensor **total, const px_tensor *x, const nll *n) {
  PX_CHECK(x->ndim < 2 || n->target->ndim < 1 || x->sizes[0] == n->target->sizes[0], PX_VALUE,
           "Expected input batch_size (%lld) to match target batch_size (%lld).", LL(x->sizes[0]),
           LL(n->target->sizes[0]));
  return x->ndim > 2 ? px_nll_loss2d_forward(out, total, x, n->target, n->weight, n->how, n->ignore)
                     : px_nll_loss_forward(out, total, x, n->target, n->weight, n->how, n->ignore);
}
PX_RUN(nll_loss) {
  PX_SCOPED(px_tensor) total = NULL;
  nll n = {args->target, args->weight, args->reduction, args->ignore_index};
  return nll_of(&call->results[0], &total, args->input, &n);
}

// ---- cross_entropy

// Reshapes class weights to [1, C, 1...].
static px_status along_classes(px_tensor **out, const px_tensor *weight, int ndim, int dim) {
  int64_t sizes[PX_MAX_DIMS];
  for (int i = 0; i < ndim; i++) sizes[i] = i == dim ? weight->numel : 1;
  return px_reshape(out, weight, sizes, ndim);
}
static px_status times_weight(px_tensor **out, const px_tensor *t, const px_tensor *weight,
                              int dim) {
  if (!weight) {
    *out = px_retain(t);
    return PX_OK;
  }
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(along_classes(&wide, weight, t->ndim, dim));
  return px_mul(out, t, wide);
}

// Class probabilities as targets.
static px_status soft_targets(px_tensor **out, const px_tensor *log_p, const px_tensor *target,
                              const px_tensor *weight, reduction how, double smoothing) {
  int64_t dim = log_p->ndim > 1 ? 1 : 0, classes = log_p->sizes[dim];
  PX_SCOPED(px_tensor) mixed = NULL;
  PX_SCOPED(px_tensor) smooth = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) weighted = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) scaled = NULL;
  PX_CHECK(px_dtype_is_float((px_dtype)target->dtype), PX_RUNTIME,
           "Expected floating point type for target with class probabilities, got %s",
           px_dtype_class((px_dtype)target->dtype));
  if (smoothing > 0) {
    PX_TRY(px_mul_scalar(&mixed, target, px_float(1 - smoothing)));
    PX_TRY(px_add_scalar(&smooth, mixed, px_float(smoothing / (double)classes), px_int(1)));
  } else {
    smooth = px_retain(target);
  }
  PX_TRY(px_mul(&product, log_p, smooth));
  PX_TRY(times_weight(&weighted, product, weight, (int)dim));
  PX_TRY(how == NONE ? px_sum(&total, weighted, &dim, 1, false, PX_DTYPE_NONE)
                     : px_sum_all(&total, weighted, PX_DTYPE_NONE));
  if (how != MEAN) return px_neg(out, total);
  PX_TRY(px_neg(&scaled, total));
  int64_t rows = classes ? log_p->numel / classes : 0;
  return px_div_scalar(out, scaled, px_float((double)rows));
}

// Label smoothing: adds the mean loss over all classes.
static px_status smoothed(px_tensor **out, const px_tensor *log_p, const nll *n, reduction how,
                          double smoothing) {
  int64_t dim = log_p->ndim > 1 ? 1 : 0, classes = log_p->sizes[dim];
  PX_SCOPED(px_tensor) hard = NULL;
  PX_SCOPED(px_tensor) weights = NULL;
  PX_SCOPED(px_tensor) weighted = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) ignored = NULL;
  PX_SCOPED(px_tensor) kept = NULL;
  PX_SCOPED(px_tensor) loss_sum = NULL;
  PX_SCOPED(px_tensor) uniform = NULL;
  PX_SCOPED(px_tensor) scaled_hard = NULL;
  PX_TRY(nll_of(&hard, &weights, log_p, n));
  PX_TRY(times_weight(&weighted, log_p, n->weight, (int)dim));
  PX_TRY(px_sum(&sum, weighted, &dim, 1, false, PX_DTYPE_NONE));
  PX_TRY(px_eq_scalar(&ignored, n->target, px_int(n->ignore)));
  PX_TRY(px_masked_fill(&kept, sum, ignored, px_float(0)));
  if (how == NONE)
    uniform = px_retain(kept);
  else
    PX_TRY(px_sum_all(&loss_sum, kept, PX_DTYPE_NONE));
  if (how == SUM) uniform = px_retain(loss_sum);
  if (how == MEAN) {
    PX_SCOPED(px_tensor) plain = NULL;  // a number, not part of the graph
    PX_TRY(px_tensor_detach(&plain, weights));
    PX_TRY(px_div(&uniform, loss_sum, plain));
  }
  PX_TRY(px_mul_scalar(&scaled_hard, hard, px_float(1 - smoothing)));
  return px_sub(out, scaled_hard, uniform, px_float(smoothing / (double)classes));
}

// True if targets are class probabilities.
static bool is_soft(const px_tensor *x, const px_tensor *target) {
  bool soft = x->ndim == target->ndim && px_dtype_is_float((px_dtype)target->dtype);
  for (int i = 0; soft && i < x->ndim; i++) soft = x->sizes[i] == target->sizes[i];
  return soft;
}
// True if autocast applies.
static bool casts(const px_tensor *x) {
  return px__autocast_here.on && px__autocast_here.set.enabled[px__tensor_device(x).type];
}

// True for (rows, classes) inputs large enough for the fused kernel, which avoids the matrix of log
// probabilities. Requires one device and no batched tensors.
static bool is_large(const px_tensor *x, const nll *n, double smoothing) {
  enum { LARGE = 1 << 20 };
  const px_tensor *t = n->target;
  return x->ndim == 2 && t->ndim == 1 && x->sizes[0] == t->sizes[0] && x->numel >= LARGE &&
         !n->weight && smoothing == 0 && t->dtype == PX_INT64 &&
         px_dtype_is_float((px_dtype)x->dtype) && x->dtype < PX_DTYPE_COMPUTED &&
         px_device_equal(px__tensor_device(x), px__tensor_device(t)) && !px__is_batched(x) &&
         !px__is_batched(t);
}
// With autocast the losses are float32, as if the input had been cast.
static px_status large_classes(px_tensor **out, const px_tensor *x, const nll *n, reduction how) {
  PX_SCOPED(px_tensor) losses = NULL;
  PX_SCOPED(px_tensor) logsumexp = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  PX_SCOPED(px_tensor) counted = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_TRY(px_class_losses(&losses, &logsumexp, x, n->target, n->ignore));
  if (how == NONE) {
    total = px_retain(losses);
  } else if (how == SUM) {
    PX_TRY(px_sum_all(&total, losses, PX_DTYPE_NONE));
  } else {
    PX_SCOPED(px_tensor) sum = NULL;
    PX_TRY(px_sum_all(&sum, losses, PX_DTYPE_NONE));
    PX_TRY(px_ne_scalar(&counted, n->target, px_int(n->ignore)));
    PX_TRY(px_sum_all(&count, counted, PX_DTYPE_NONE));
    PX_TRY(px_div(&total, sum, count));
  }
  return px_to(out, total, casts(x) ? (px_dtype)losses->dtype : (px_dtype)x->dtype, PX_DEVICE_NONE,
               false, false);
}

static px_status composed(px_tensor **out, const px_tensor *x, const nll *n, double smoothing) {
  reduction how;
  PX_TRY(reduction_of(&how, n->how));
  PX_SCOPED(px_tensor) log_p = NULL;
  PX_TRY(px_log_softmax(&log_p, x, x->ndim == 1 ? 0 : 1, PX_DTYPE_NONE));
  if (is_soft(x, n->target)) return soft_targets(out, log_p, n->target, n->weight, how, smoothing);
  if (smoothing > 0) return smoothed(out, log_p, n, how, smoothing);
  PX_SCOPED(px_tensor) total = NULL;
  return nll_of(out, &total, log_p, n);
}
PX_RUN(composed_cross_entropy) {
  const nll n = {args->target, args->weight, args->reduction, args->ignore_index};
  return composed(&call->results[0], args->input, &n, args->label_smoothing);
}

PX_RUN(cross_entropy) {
  const px_tensor *x = args->input;
  const nll n = {args->target, args->weight, args->reduction, args->ignore_index};
  double smoothing = args->label_smoothing;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  PX_CHECK(!is_soft(x, n.target) || args->ignore_index < 0, PX_RUNTIME,
           "ignore_index is not supported for floating point target");
  if (is_large(x, &n, smoothing)) return large_classes(&call->results[0], x, &n, how);
  if (!casts(x)) return composed(&call->results[0], x, &n, smoothing);
  return px_composed_cross_entropy(&call->results[0], x, n.target, n.weight, n.ignore, n.how,
                                   smoothing);
}

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
PX_RUN(linear_cross_entropy) {
  const px_tensor *x = args->input, *weight = args->linear_weight, *bias = args->linear_bias;
  int64_t sizes[PX_MAX_DIMS], inferred = -1;
  int last = weight->ndim - 1, ndim = 0, lead = x->ndim - 1;
  int64_t features = weight->sizes[last], rows = px__sizes_product(weight->sizes, last);
  if (bias) PX_TRY(check_linear_bias(bias, weight));
  char text[128];
  PX_CHECK(
      lead || weight->ndim == 2, PX_RUNTIME,
      "K-dimensional loss defined by linear_weight shape %s requires batched input, (N, %lld), "
      "got unbatched input with shape (%lld,)",
      tuple_text(text, sizeof text, weight->sizes, weight->ndim), (long long)features,
      (long long)features);
  PX_TRY(px__check_ndim(lead + last));
  if (lead) sizes[ndim++] = x->sizes[0];
  for (int d = 0; d < last; d++) sizes[ndim++] = weight->sizes[d];
  const px_tensor *target = args->target;
  bool soft = target->ndim == ndim;
  for (int d = 0; soft && d < ndim; d++) soft = target->sizes[d] == sizes[d];
  PX_CHECK(!soft || !px__given(args->ignore_index), PX_RUNTIME,
           "ignore_index cannot be specified when target contains probabilities");
  PX_SCOPED(px_tensor) matrix = NULL;
  PX_SCOPED(px_tensor) shift = NULL;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_SCOPED(px_tensor) logits = NULL;
  PX_TRY(px_reshape(&matrix, weight, (const int64_t[]){rows, features}, 2));
  if (bias) PX_TRY(px_reshape(&shift, bias, &inferred, 1));
  PX_TRY(px_linear(&flat, x, matrix, shift));
  PX_TRY(px_reshape(&logits, flat, sizes, ndim));
  return px_cross_entropy(&call->results[0], logits, target, args->weight,
                          px__given(args->ignore_index) ? args->ignore_index.v.i : -100,
                          args->reduction, args->label_smoothing);
}

// ---- pointwise losses

// Broadcasts input and target to one shape, with PyTorch's warning.
typedef struct pair {
  px_tensor *a, *b;  // owned
} pair;
static void pair_release(pair *p) {
  px_release(p->a);
  px_release(p->b);
}
#define PAIR __attribute__((cleanup(pair_release))) pair
static px_status pair_of(pair *out, const px_tensor *a, const px_tensor *b) {
  if (px__has_sizes(a, b->ndim, b->sizes)) {
    out->a = px_retain(a), out->b = px_retain(b);
    return PX_OK;
  }
  char have[128], want[128];
  PX_TRY(px_warn(PX_WARN_USER,
                 "Using a target size (torch.Size(%s)) that is different to the input size "
                 "(torch.Size(%s)). This will likely lead to incorrect results due to "
                 "broadcasting. Please ensure they have the same size.",
                 px__size_text(have, sizeof have, b), px__size_text(want, sizeof want, a)));
  int64_t sizes[PX_MAX_DIMS];
  int ndim;
  PX_TRY(px__broadcast(&ndim, sizes, a->ndim, a->sizes, b->ndim, b->sizes));
  PX_TRY(px_expand(&out->a, a, sizes, ndim));
  return px_expand(&out->b, b, sizes, ndim);
}
PX_RUN(element_loss) {
  reduction how;
  return reduction_of(&how, args->reduction);
}

// Applies weights, then reduces.
static px_status weigh(px_tensor **out, const px_tensor *each, const px_tensor *weight,
                       reduction how) {
  PX_SCOPED(px_tensor) weighted = NULL;
  PX_TRY(px_mul(&weighted, each, weight));
  return reduce(out, weighted, how);
}
// Like `weigh`, but 'mean' is the weighted mean.
static px_status weigh_mean(px_tensor **out, const px_tensor *each, const px_tensor *weight,
                            reduction how) {
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) total = NULL;
  if (how != MEAN) return weigh(out, each, weight, how);
  PX_TRY(weigh(&sum, each, weight, SUM));
  PX_TRY(px_sum(&total, weight, NULL, 0, false, PX_DTYPE_NONE));
  return px_div(out, sum, total);
}
PX_RUN(mse_loss) {
  PAIR p = {NULL, NULL};
  PX_SCOPED(px_tensor) each = NULL;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  PX_TRY(pair_of(&p, args->input, args->target));
  if (!args->weight) return px_mse_loss_forward(&call->results[0], p.a, p.b, args->reduction);
  PX_TRY(px_mse_loss_forward(&each, p.a, p.b, "none"));
  return weigh_mean(&call->results[0], each, args->weight, how);
}
PX_RUN(l1_loss) {
  PAIR p = {NULL, NULL};
  PX_SCOPED(px_tensor) difference = NULL;
  PX_SCOPED(px_tensor) distance = NULL;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  PX_TRY(pair_of(&p, args->input, args->target));
  PX_TRY(px_sub(&difference, p.a, p.b, px_int(1)));
  PX_TRY(px_abs(&distance, difference));
  if (args->weight) return weigh_mean(&call->results[0], distance, args->weight, how);
  return reduce(&call->results[0], distance, how);
}
PX_RUN(smooth_l1_loss) {
  PAIR p = {NULL, NULL};
  PX_TRY(pair_of(&p, args->input, args->target));
  return px_smooth_l1_loss_forward(&call->results[0], p.a, p.b, args->reduction, args->beta);
}
PX_RUN(huber_loss) {
  PAIR p = {NULL, NULL};
  PX_SCOPED(px_tensor) each = NULL;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  PX_TRY(pair_of(&p, args->input, args->target));
  if (!args->weight)
    return px_huber_loss_forward(&call->results[0], p.a, p.b, args->reduction, args->delta);
  PX_TRY(px_huber_loss_forward(&each, p.a, p.b, "none", args->delta));
  return weigh(&call->results[0], each, args->weight, how);
}

// ---- binary cross entropy

PX_RUN(binary_cross_entropy) {
  const px_tensor *x = args->input, *target = args->target;
  const px_tensor *weight = args->weight;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  if (!weight)
    return px_binary_cross_entropy_forward(&call->results[0], x, target, args->reduction);
  PX_SCOPED(px_tensor) each = NULL;
  PX_TRY(px_binary_cross_entropy_forward(&each, x, target, "none"));
  return weigh(&call->results[0], each, weight, how);
}

// With pos_weight w: (1 - t) x + (1 + (w - 1) t) (log(1 + exp(-|x|)) + max(-x, 0)).
static px_status positive_logits(px_tensor **out, const px_tensor *x, const px_tensor *target,
                                 const px_tensor *pos_weight) {
  PX_SCOPED(px_tensor) no = NULL;
  PX_SCOPED(px_tensor) linear = NULL;
  PX_SCOPED(px_tensor) excess = NULL;
  PX_SCOPED(px_tensor) share = NULL;
  PX_SCOPED(px_tensor) factor = NULL;
  PX_SCOPED(px_tensor) soft = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_TRY(px_rsub_scalar(&no, target, px_int(1), px_int(1)));
  PX_TRY(px_mul(&linear, no, x));
  PX_TRY(px_add_scalar(&excess, pos_weight, px_int(-1), px_int(1)));
  PX_TRY(px_mul(&share, excess, target));
  PX_TRY(px_add_scalar(&factor, share, px_int(1), px_int(1)));
  PX_TRY(px_log_sigmoid(&soft, x));
  PX_TRY(px_mul(&product, factor, soft));
  return px_sub(out, linear, product, px_int(1));
}
PX_RUN(binary_cross_entropy_with_logits) {
  const px_tensor *x = args->input, *target = args->target;
  const px_tensor *weight = args->weight, *pos_weight = args->pos_weight;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  if (!weight && !pos_weight)
    return px_bce_with_logits_forward(&call->results[0], x, target, args->reduction);
  PX_SCOPED(px_tensor) each = NULL;
  PX_TRY(pos_weight ? positive_logits(&each, x, target, pos_weight)
                    : px_bce_with_logits_forward(&each, x, target, "none"));
  return weight ? weigh(&call->results[0], each, weight, how)
                : reduce(&call->results[0], each, how);
}

PX_RUN(kl_div) {
  const px_tensor *x = args->input, *target = args->target;
  bool logs = args->log_target, batch = !strcmp(args->reduction, "batchmean");
  PX_SCOPED(px_tensor) p = NULL;
  PX_SCOPED(px_tensor) apart = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) cross = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  reduction how = SUM;
  if (!batch) PX_TRY(reduction_of(&how, args->reduction));
  if (logs) {
    PX_TRY(px_exp(&p, target));
    PX_TRY(px_sub(&apart, target, x, px_int(1)));
    PX_TRY(px_mul(&each, p, apart));
  } else {
    PX_TRY(px_xlogy(&own, target, target));
    PX_TRY(px_mul(&cross, target, x));
    PX_TRY(px_sub(&each, own, cross, px_int(1)));
  }
  if (!batch) return reduce(&call->results[0], each, how);
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(reduce(&sum, each, SUM));
  return px_div_scalar(&call->results[0], sum, px_float(x->ndim ? (double)x->sizes[0] : 1));
}

// ---- composed losses

PX_RUN(reduced) {
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  return reduce(&call->results[0], args->self, how);
}
PX_RUN(triplet_margin_loss) {
  PX_SCOPED(px_tensor) near = NULL;
  PX_SCOPED(px_tensor) far = NULL;
  PX_SCOPED(px_tensor) excess = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  PX_TRY(px_pairwise_distance(&near, args->anchor, args->positive, args->p, args->eps, false));
  PX_TRY(px_pairwise_distance(&far, args->anchor, args->negative, args->p, args->eps, false));
  if (args->swap) {
    PX_SCOPED(px_tensor) other = NULL;
    PX_SCOPED(px_tensor) first = PX_MOVE(far);
    PX_TRY(px_pairwise_distance(&other, args->positive, args->negative, args->p, args->eps, false));
    PX_TRY(px_minimum(&far, first, other));
  }
  PX_TRY(px_sub(&excess, near, far, px_int(1)));
  PX_TRY(px_add_scalar(&shifted, excess, px_float(args->margin), px_int(1)));
  PX_TRY(px_relu(&each, shifted));
  return reduce(&call->results[0], each, how);
}
// Stirling's t log t - t + log(2 pi t) / 2, for counts above 1.
static px_status stirling(px_tensor **out, const px_tensor *t) {
  PX_SCOPED(px_tensor) small = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) difference = NULL;
  PX_SCOPED(px_tensor) tau_scaled = NULL;
  PX_SCOPED(px_tensor) half = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_le_scalar(&small, t, px_int(1)));
  PX_TRY(px_xlogy(&product, t, t));
  PX_TRY(px_sub(&difference, product, t, px_int(1)));
  PX_TRY(px_mul_scalar(&tau_scaled, t, px_float(2 * M_PI)));
  PX_TRY(px_log(&half, tau_scaled));
  PX_TRY(px_add(&sum, difference, half, px_float(0.5)));
  return px_masked_fill(out, sum, small, px_int(0));
}
PX_RUN(poisson_nll_loss) {
  const px_tensor *x = args->input, *target = args->target;
  PX_SCOPED(px_tensor) rate = NULL;
  PX_SCOPED(px_tensor) likelihood = NULL;
  PX_SCOPED(px_tensor) each = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) logarithm = NULL;
  bool is_log = args->log_input;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  if (is_log) {
    PX_TRY(px_exp(&rate, x));
    PX_TRY(px_mul(&likelihood, target, x));
  } else {
    PX_TRY(px_add_scalar(&shifted, x, px_float(args->eps), px_int(1)));
    PX_TRY(px_log(&logarithm, shifted));
    PX_TRY(px_mul(&likelihood, target, logarithm));
  }
  PX_TRY(px_sub(&each, is_log ? rate : x, likelihood, px_int(1)));
  if (!args->full) return reduce(&call->results[0], each, how);
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) full = NULL;
  PX_TRY(stirling(&count, target));
  PX_TRY(px_add(&full, each, count, px_int(1)));
  return reduce(&call->results[0], full, how);
}
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
  const px_tensor *x = args->input, *target = args->target;
  PX_SCOPED(px_tensor) difference = NULL;
  PX_SCOPED(px_tensor) square = NULL;
  PX_SCOPED(px_tensor) safe = NULL;
  PX_SCOPED(px_tensor) logarithm = NULL;
  PX_SCOPED(px_tensor) ratio = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) half = NULL;
  PX_SCOPED(px_tensor) full = NULL;
  reduction how;
  PX_TRY(reduction_of(&how, args->reduction));
  PX_SCOPED(px_tensor) var = NULL;
  PX_TRY(variance_of(&var, args->var, x));
  // The floor of the variance has no gradient.
  PX_SCOPED(px_tensor) plain = NULL;
  PX_SCOPED(px_tensor) below = NULL;
  PX_SCOPED(px_tensor) gap = NULL;
  PX_TRY(px_tensor_detach(&plain, var));
  PX_TRY(px_rsub_number(&below, plain, px_float(args->eps), px_int(1)));
  PX_TRY(px_relu(&gap, below));
  PX_TRY(px_add(&safe, var, gap, px_int(1)));
  PX_TRY(px_sub(&difference, x, target, px_int(1)));
  PX_TRY(px_square(&square, difference));
  PX_TRY(px_log(&logarithm, safe));
  PX_TRY(px_div(&ratio, square, safe));
  PX_TRY(px_add(&sum, logarithm, ratio, px_int(1)));
  PX_TRY(px_mul_scalar(&half, sum, px_float(0.5)));
  if (!args->full) return reduce(&call->results[0], half, how);
  PX_TRY(px_add_scalar(&full, half, px_float(log(2 * M_PI) / 2), px_int(1)));
  return reduce(&call->results[0], full, how);
}
