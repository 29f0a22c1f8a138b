// SPDX-License-Identifier: Apache-2.0
// Internal header of src/parallel.
#pragma once
#include "phlox/parallel.h"

enum { PX__REPLICAS = 64 };  // maximum number of devices of one call
// Fails with PX_VALUE, as in "scatter takes 1 to 64 devices, but got 0".
px_status px__check_devices(const char *what, int min, int count)
    __attribute__((warn_unused_result));
// Releases the tensors and sets their pointers to NULL.
void px__drop_all(px_tensor **tensors, int count);
