// SPDX-License-Identifier: Apache-2.0
// Cache-line aligned memory.
#pragma once
#include <stdlib.h>

enum { PX__CACHE_LINE = 64 };  // bytes

// Rounds up to whole cache lines.
static inline size_t px__round_to_cache_line(size_t bytes) {
  return (bytes + PX__CACHE_LINE - 1) / PX__CACHE_LINE * PX__CACHE_LINE;
}
// Allocates memory aligned to a cache line, since vector accesses across lines are slow. The
// caller frees it with free(). NULL: out of memory.
static inline void *px__aligned_new(size_t bytes) {
  return aligned_alloc(PX__CACHE_LINE, px__round_to_cache_line(bytes + 1));
}
