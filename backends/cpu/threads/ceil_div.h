// SPDX-License-Identifier: Apache-2.0
// Counts of elements, pieces and units.
#pragma once
#include <stdint.h>

// The smaller of two counts.
static inline int64_t px__min_count(int64_t a, int64_t b) { return a < b ? a : b; }
// n / by, rounded up; n must not be negative.
static inline int64_t px__ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }
