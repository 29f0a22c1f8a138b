// SPDX-License-Identifier: Apache-2.0
// Margin losses over class labels and label sets, composed from other ops. Labels are checked at
// once on the CPU. On devices the gather kernels check them.
#include "hidden/loss.h"
#include "ops/core/run.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "phlox/ops/loss.h"
#include "phlox/ops/pointwise.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "run_functions/loss.h"

static px_status check_classes(const px_tensor *target, int64_t min, int64_t classes,
                               const char *text) {
  if (px__tensor_device(target).type != PX_CPU) return PX_OK;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(px_contiguous(&flat, px__innermost_physical(target)));
  const int64_t *at;
  PX_TRY(px__tensor_read(&at, flat));
  for (int64_t i = 0; i < flat->numel; i++)
    PX_CHECK(at[i] >= min && at[i] < classes, PX_RUNTIME, "%s", text);
  return PX_OK;
}
// Adds a batch dimension to a single example. Its loss is 0-dim.
static px_status as_batch(px_tensor **out, px_tensor *t, int ndim) {
  if (t->ndim < ndim) return px_reshape(out, t, (const int64_t[]){1, -1}, ndim);
  *out = px_retain(t);
  return PX_OK;
}
static int64_t classes_of(const px_tensor *x) { return x->ndim ? x->sizes[x->ndim - 1] : 1; }
// Divides by the number of classes and reduces.
static px_status finish(px_tensor **out, const px_tensor *sums, int64_t classes, bool unbatched,
                        const char *reduction) {
  PX_SCOPED(px_tensor) means = NULL;
  PX_TRY(px_div_scalar(&means, sums, px_int(classes)));
  if (unbatched) return px_squeeze_dim(out, means, (int64_t[]){0}, 1);
  return px_reduced(out, means, reduction);
}

PX_RUN(multi_margin_loss) {
  const int64_t last = -1;
  int64_t classes = classes_of(args->input);
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) excess_of = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) excess = NULL;
  PX_SCOPED(px_tensor) powers = NULL;
  PX_SCOPED(px_tensor) weighted = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_TRY(check_classes(args->target, 0, classes, "target out of range"));
  PX_TRY(as_batch(&x, args->input, 2));
  PX_TRY(as_batch(&rows, args->target, 1));
  PX_TRY(px_unsqueeze(&target, rows, 1));
  PX_TRY(px_gather(&own, x, 1, target, false));
  PX_TRY(px_sub(&excess_of, x, own, px_int(1)));
  PX_TRY(px_add_scalar(&shifted, excess_of, px_float(args->margin), px_int(1)));
  PX_TRY(px_relu(&excess, shifted));
  if (args->p == 2)
    PX_TRY(px_mul(&powers, excess, excess));
  else
    powers = px_retain(excess);
  if (args->weight) {
    PX_SCOPED(px_tensor) gathered = NULL;
    PX_SCOPED(px_tensor) column = NULL;
    PX_TRY(px_index_select(&gathered, args->weight, 0, rows));
    PX_TRY(px_unsqueeze(&column, gathered, 1));
    PX_TRY(px_mul(&weighted, powers, column));
  } else {
    weighted = px_retain(powers);
  }
  PX_TRY(px_scatter_value(&others, weighted, 1, target, px_int(0)));
  PX_TRY(px_sum(&sums, others, &last, 1, false, PX_DTYPE_NONE));
  return finish(&call->results[0], sums, classes, args->input->ndim < 2, args->reduction);
}

// valid: labels before the first -1 of a row. mine: mask of the classes among them.
typedef struct labels {
  px_tensor *safe, *valid, *is_target;
} labels;
static void labels_release(labels *l) {
  px_release(l->safe), px_release(l->valid), px_release(l->is_target);
}
static px_status labels_read(labels *l, const px_tensor *target, px_dtype dtype) {
  PX_SCOPED(px_tensor) ended = NULL;
  PX_SCOPED(px_tensor) count = NULL;
  PX_SCOPED(px_tensor) counts = NULL;
  PX_SCOPED(px_tensor) zeros = NULL;
  PX_TRY(px_lt_scalar(&ended, target, px_int(0)));
  PX_TRY(px_cumsum(&counts, ended, 1, PX_INT64));
  PX_TRY(px_eq_scalar(&count, counts, px_int(0)));
  PX_TRY(px__tensor_to(&l->valid, count, dtype, PX_DEVICE_NONE));
  PX_TRY(px_masked_fill(&l->safe, target, ended, px_int(0)));
  PX_TRY(px__zeros_like_sized(&zeros, l->valid, target->ndim, target->sizes));
  PX_SCOPED(px_tensor) times = NULL;
  PX_TRY(px_scatter_add(&times, zeros, 1, l->safe, l->valid));
  return px_gt_scalar(&l->is_target, times, px_int(0));
}
// Sums over pairs of a target class and another class.
static px_status sum_pairs(px_tensor **out, const px_tensor *x, const labels *l) {
  const int64_t both[] = {1, 2};
  PX_SCOPED(px_tensor) own = NULL;
  PX_SCOPED(px_tensor) column = NULL;
  PX_SCOPED(px_tensor) row = NULL;
  PX_SCOPED(px_tensor) excess_of = NULL;
  PX_SCOPED(px_tensor) shifted = NULL;
  PX_SCOPED(px_tensor) excess = NULL;
  PX_SCOPED(px_tensor) valid = NULL;
  PX_SCOPED(px_tensor) is_target = NULL;
  PX_SCOPED(px_tensor) of_valid = NULL;
  PX_SCOPED(px_tensor) pairs = NULL;
  PX_TRY(px_gather(&own, x, 1, l->safe, false));
  PX_TRY(px_unsqueeze(&column, own, 2));
  PX_TRY(px_unsqueeze(&row, x, 1));
  PX_TRY(px_sub(&excess_of, row, column, px_int(1)));
  PX_TRY(px_add_scalar(&shifted, excess_of, px_int(1), px_int(1)));
  PX_TRY(px_relu(&excess, shifted));
  PX_TRY(px_unsqueeze(&valid, l->valid, 2));
  PX_TRY(px_mul(&of_valid, excess, valid));
  PX_TRY(px_unsqueeze(&is_target, l->is_target, 1));
  PX_TRY(px_masked_fill(&pairs, of_valid, is_target, px_int(0)));
  return px_sum(out, pairs, both, 2, false, PX_DTYPE_NONE);
}
PX_RUN(multilabel_margin_loss) {
  int64_t classes = classes_of(args->input);
  PX_SCOPED(px_tensor) x = NULL;
  PX_SCOPED(px_tensor) target = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  labels l = {0};
  PX_TRY(check_classes(args->target, -1, classes, "argument #2 'target' is out of range"));
  PX_TRY(as_batch(&x, args->input, 2));
  PX_TRY(as_batch(&target, args->target, 2));
  px_status status = labels_read(&l, target, (px_dtype)x->dtype);
  if (status == PX_OK) status = sum_pairs(&sums, x, &l);
  labels_release(&l);
  if (status != PX_OK) return status;
  return finish(&call->results[0], sums, classes, args->input->ndim < 2, args->reduction);
}

PX_RUN(multilabel_soft_margin_loss) {
  const px_tensor *x = args->input, *target = args->target;
  const int64_t last = -1;
  PX_SCOPED(px_tensor) each = NULL;
  PX_SCOPED(px_tensor) weighted = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) softplus = NULL;
  PX_SCOPED(px_tensor) product = NULL;
  PX_SCOPED(px_tensor) negated = NULL;
  // log(1 + exp(x)) - x target
  PX_TRY(px_neg(&negated, x));
  PX_TRY(px_log_sigmoid(&softplus, negated));
  PX_TRY(px_mul(&product, x, target));
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_add(&sum, softplus, product, px_int(1)));
  PX_TRY(px_neg(&each, sum));
  if (args->weight)
    PX_TRY(px_mul(&weighted, each, args->weight));
  else
    weighted = px_retain(each);
  PX_TRY(px_mean(&means, weighted, &last, 1, false, PX_DTYPE_NONE));
  return px_reduced(&call->results[0], means, args->reduction);
}
