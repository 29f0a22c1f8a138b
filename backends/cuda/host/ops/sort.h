// SPDX-License-Identifier: Apache-2.0
// Sorting of lines on the device.
#pragma once
#include "cuda/host/ops/kernel.h"

// Sets the dtype of the elements, and descending order with `down`.
void px__cuda_sort_as(k_sort *s, int dtype, bool down);
// Sorts dense lines stably. Inputs: `in`, `from`, `out`, `indices`, `lines`, `size`, `skip`,
// `take`. `passes` may be lowered for keys with fewer bits than their dtype.
px_status px__cuda_sort_lines(const px_launch *l, k_sort *s);
