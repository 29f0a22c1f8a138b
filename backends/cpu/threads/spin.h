// SPDX-License-Identifier: Apache-2.0
// What a thread does that looks again and again whether another one is done.
#pragma once

// Tells the processor so: the other thread of the core gets its units meanwhile.
static inline void px__spin(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}
