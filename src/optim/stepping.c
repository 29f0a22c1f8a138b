// SPDX-License-Identifier: Apache-2.0
// States created during the step of a parameter.
#include "optim/optim_impl.h"
#include "phlox/ops/factory.h"

px_status px__stepping_begin(px__stepping *s, int k, double value) {
  s->first = 1;
  return px_full_like(&s->begun[k], s->parameter, px_float(value), PX_DTYPE_NONE, PX_DEVICE_NONE,
                      false, false, NULL);
}

void px__stepping_end(px__stepping *s, bool done) {
  for (int k = 0; k < PX_OPTIMIZER_STATES; k++) {
    if (!s->begun[k]) continue;  // the common case
    if (done)
      s->state[k] = s->begun[k];
    else
      px_release(s->begun[k]);
    s->begun[k] = NULL;
  }
}
