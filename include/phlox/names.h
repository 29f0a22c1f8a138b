// SPDX-License-Identifier: Apache-2.0
// Names that were looked for in vain. A function that looks one up may return NULL, and the call
// that is then given NULL still tells which name was wrong (px_name_nearest: and what was meant).
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

// Remembers for the calling thread that `name` is not among `names`, any address that stands for
// them. px_name_missed returns it, cut to 63 bytes, until the thread misses another or has ended;
// NULL if the last one was not among other names.
PX_API void px_name_miss(const void *names, const char *name);
PX_API const char *px_name_missed(const void *names);

#ifdef __cplusplus
}
#endif
