// SPDX-License-Identifier: Apache-2.0
// The LAPACK library for linear algebra on the CPU.
#pragma once
#include "phlox/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Returns the path of the loaded LAPACK, loading it first if no call has needed it yet. A static
// string. PX_RUNTIME if none is found.
PX_CALL px_cpu_lapack(const char **path);

#ifdef __cplusplus
}
#endif
