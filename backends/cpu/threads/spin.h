// SPDX-License-Identifier: Apache-2.0
// Pause hint for spin loops.
#pragma once

// Yields the core's execution units to its other hardware thread.
static inline void px__spin(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}
