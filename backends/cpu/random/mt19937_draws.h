// SPDX-License-Identifier: Apache-2.0
// Long runs of draws from the Mersenne twister.
#pragma once
#include "cpu/random/mt19937.h"
#include "cpu/threads/threads.h"

// A step of draws (px__step), during which the lock of `mt`, if that is given, is held. Between
// steps it is free: what the program does when it is asked may want numbers too.
static inline bool px__draw_step(px__steps *s, px_mt19937 *mt) {
  if (mt && s->end) px_mt19937_unlock(mt);
  bool more = px__step(s);
  if (mt && more) px_mt19937_lock(mt);
  return more;
}
