// SPDX-License-Identifier: Apache-2.0
// Sorting of lines on the device, for those that need an order.
#pragma once
#include "cuda/host/ops/kernel.h"

// Says of which dtype the elements are, and whether the greatest come first.
void px__cuda_sort_as(k_sort *s, int dtype, bool down);
// Sorts dense lines, stably: `in`, `from`, `out`, `indices`, `lines`, `size`, `skip` and `take` are
// given. Of keys with fewer bits than their dtype `passes` may be less.
px_status px__cuda_sort_lines(const px_launch *l, k_sort *s);
