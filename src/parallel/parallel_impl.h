// SPDX-License-Identifier: Apache-2.0
// For the files of this folder.
#pragma once
#include "phlox/ops.h"
#include "phlox/parallel.h"

// Releases the tensors and clears their places.
void px__drop_all(px_tensor **tensors, int count);
