// SPDX-License-Identifier: Apache-2.0
// Failed name lookups. A lookup may return NULL, and the call receiving that NULL can still report
// the unknown name (and a suggestion, by px_name_suggest).
#pragma once
#include "phlox/base.h"
#ifdef __cplusplus
extern "C" {
#endif

// Records for the calling thread that `name` is not among `names`, an arbitrary address identifying
// the set. px_name_missed returns the name, truncated to 63 bytes, until the thread records another
// miss or exits; NULL if the last miss was in another set.
PX_API void px_name_miss(const void *names, const char *name);
PX_API const char *px_name_missed(const void *names);

#ifdef __cplusplus
}
#endif
