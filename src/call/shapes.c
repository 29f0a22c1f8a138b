// SPDX-License-Identifier: Apache-2.0
// Checks of arguments against the sizes in `result` lines.
#include "call/shapes.h"

px_status px__shape_broadcast(px__shape *s, px_value a, px_value b) {
  px__sizes x = px__sizes_of(a), y = px__sizes_of(b);
  int64_t sizes[PX_MAX_DIMS];
  int ndim;
  PX_TRY(px__broadcast(&ndim, sizes, x.n, x.at, y.n, y.at));
  for (int d = 0; d < ndim; d++) px__shape_add(s, sizes[d]);
  return PX_OK;
}

px_status px__check_expands(px_value a, px__sizes target) {
  char want[128], have[128];
  px__sizes x = px__sizes_of(a);
  for (int i = 0; i < x.n; i++) {
    int at = target.n - x.n + i;
    if (at >= 0 && (x.at[i] == 1 || x.at[i] == target.at[at])) continue;
    PX_CHECK(at >= 0, PX_RUNTIME,
             "The number of sizes provided (%d) must be greater or equal to the number of "
             "dimensions in the tensor (%d)",
             target.n, x.n);
    PX_FAIL(PX_RUNTIME,
            "The expanded size of the tensor (%lld) must match the existing size (%lld) at "
            "non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: %s",
            (long long)target.at[at], (long long)x.at[i], at,
            px__sizes_text(want, sizeof want, target.n, target.at),
            px__sizes_text(have, sizeof have, x.n, x.at));
  }
  return PX_OK;
}
