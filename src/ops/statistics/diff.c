// SPDX-License-Identifier: Apache-2.0
// Run function of repeated differences. Others are formulas of ops/reduce.op.
#include "formulas.h"
#include "ops/core/run.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/index.h"
#include "run_functions/reduce.h"

PX_RUN(diff) {
  px_tensor *parts[3], *self = args->self;
  int n = 0, dim;
  PX_TRY(px__wrap_dim(&dim, args->dim, self->ndim));
  if (!args->n) return px_clone(&call->results[0], self, NULL);
  if (args->prepend) parts[n++] = args->prepend;
  parts[n++] = self;
  if (args->append) parts[n++] = args->append;
  PX_SCOPED(px_tensor) current = NULL;
  if (n > 1)
    PX_TRY(px_cat(&current, parts, n, dim));
  else
    current = px_retain(self);
  for (int64_t i = 0; i < args->n && current->sizes[dim]; i++) {
    px_tensor *next = NULL;
    PX_TRY(px__formula_steps(&next, (const px_value[]){PX_T(current), PX_I(dim)}));
    px_release(current);
    current = next;
  }
  call->results[0] = PX_MOVE(current);
  return PX_OK;
}
