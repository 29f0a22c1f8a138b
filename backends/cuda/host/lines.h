// SPDX-License-Identifier: Apache-2.0
// Sorting of lines on the device, for those that need an order.
#pragma once
#include "cuda/host/kernel.h"

// Room for the keys and places of n elements, 8 bytes each, twice.
px_status px__cuda_sort_room(const px_launch *l, k_lines *s, int64_t n);
// Sorts the lines that lie in `keys` and `places`, stably; the fields then say where the order is.
// Suffix: of the keys' type, "f32" "f64" "i64".
px_status px__cuda_sort_keys(const px_launch *l, k_lines *s, const char *suffix);
