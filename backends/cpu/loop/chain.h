// SPDX-License-Identifier: Apache-2.0
// Chains: pointwise launches that run as one, block by block in the cache.
#pragma once
#include "phlox/backend.h"

typedef struct px__chain px__chain;
// Computes the elements [begin, begin + n) of a chain's last result into a contiguous array of the
// result's dtype. For reductions at the end of a chain (px_launch.chain).
void px__cpu_chain_read(const px__chain *c, void *to, int64_t begin, int64_t n);
