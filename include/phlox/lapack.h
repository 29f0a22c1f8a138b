// SPDX-License-Identifier: Apache-2.0
// The library that linear algebra on the CPU calls.
#pragma once
#include "phlox/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The path of the LAPACK that linear algebra on the CPU calls, which is looked for if no call has
// needed it yet. The library keeps the text. PX_RUNTIME where there is none.
PX_CALL px_cpu_lapack(const char **path);

#ifdef __cplusplus
}
#endif
