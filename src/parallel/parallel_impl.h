// SPDX-License-Identifier: Apache-2.0
// For the files of this folder.
#pragma once
#include "phlox/parallel.h"

enum { PX__REPLICAS = 64 };  // the most devices of one call
// PX_VALUE "scatter takes 1 to 64 devices, but got 0".
px_status px__check_devices(const char *what, int least, int count)
    __attribute__((warn_unused_result));
// Releases the tensors and clears their places.
void px__drop_all(px_tensor **tensors, int count);
