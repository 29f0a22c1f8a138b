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

static int64_t classes_of(const px_tensor *x) { return x->ndim ? x->sizes[x->ndim - 1] : 1; }
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
PX_RUN(multi_margin_loss) {
  return check_classes(args->target, 0, classes_of(args->input), "target out of range");
}
PX_RUN(multilabel_margin_loss) {
  return check_classes(args->target, -1, classes_of(args->input),
                       "argument #2 'target' is out of range");
}
