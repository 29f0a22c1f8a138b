// SPDX-License-Identifier: Apache-2.0
// Serialised states of the two engines, in PyTorch's layouts.
#pragma once
#include "tensor/tensor_impl.h"

struct px_mt19937;
enum { PX__MT19937_STATE = 5056, PX__PHILOX_STATE = 16 };

void px__mt19937_save(const struct px_mt19937 *engine, void *state);
// PX_RUNTIME "Invalid mt19937 state"; the engine is unchanged then.
px_status px__mt19937_load(struct px_mt19937 *engine, const void *state)
    __attribute__((warn_unused_result));
void px__philox_save(uint64_t seed, uint64_t offset, void *state);
px_status px__philox_load(uint64_t *seed, uint64_t *offset, const void *state)
    __attribute__((warn_unused_result));
