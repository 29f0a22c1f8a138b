// SPDX-License-Identifier: Apache-2.0
// Memory by lines of the processor's caches.
#pragma once
#include <stdlib.h>

enum { PX__CACHE_LINE = 64 };  // bytes

// So many bytes in whole lines.
static inline size_t px__in_cache_lines(size_t bytes) {
  return (bytes + PX__CACHE_LINE - 1) / PX__CACHE_LINE * PX__CACHE_LINE;
}
// Memory that begins with a line, as vectors of what lies across two are slow; to be freed. NULL:
// there is none.
static inline void *px__room_new(size_t bytes) {
  return aligned_alloc(PX__CACHE_LINE, px__in_cache_lines(bytes + 1));
}
