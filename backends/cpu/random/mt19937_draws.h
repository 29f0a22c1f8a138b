// SPDX-License-Identifier: Apache-2.0
// Long runs of draws from the Mersenne Twister.
#pragma once
#include "cpu/random/mt19937.h"
#include "cpu/threads/threads.h"

// A px__step of draws that holds the lock of `mt` (may be NULL) during the step. Between steps the
// lock is free, because the program's interrupt check may draw numbers too.
static inline bool px__draw_step(px__steps *s, px_mt19937 *mt) {
  if (mt && s->end) px_spin_unlock(&mt->lock);
  bool more = px__step(s);
  if (mt && more) px_spin_lock(&mt->lock);
  return more;
}
