// SPDX-License-Identifier: Apache-2.0
// States created during the step of a parameter.
#include "optim/optim_impl.h"
#include "phlox/ops/factory.h"

px__stepping px__stepping_of(px_tensor *parameter, px_tensor *grad_take, px_tensor **state) {
  px__stepping made = {.parameter = parameter, .grad = grad_take, .state = state};
  for (int k = 0; k < PX_OPTIMIZER_STATES; k++) made.found[k] = PX_READ(state[k]);
  return made;
}

px_status px__stepping_begin(px__stepping *s, int k, double value) {
  s->first = 1;
  return px_full_like(&s->begun[k], s->parameter, px_float(value), PX_DTYPE_NONE, PX_DEVICE_NONE,
                      false, false, NULL);
}

void px__stepping_end(px__stepping *s, bool done) {
  for (int k = 0; k < PX_OPTIMIZER_STATES; k++) {
    if (!s->begun[k]) continue;  // the common case
    px_tensor *none = NULL;      // unless another step has created the state
    if (!done || !__atomic_compare_exchange_n(&s->state[k], &none, s->begun[k], false,
                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      px_release(s->begun[k]);
    s->begun[k] = NULL;
  }
  px_release(s->grad);
  s->grad = NULL;
}
