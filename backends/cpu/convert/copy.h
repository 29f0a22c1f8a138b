// SPDX-License-Identifier: Apache-2.0
// Copies between layouts, which other kernels make of their operands.
#pragma once
#include "phlox/backend.h"

// Copies all elements in tiles, by all threads, if both are of one dtype and the source is dense
// along another dimension than the target; else it does nothing and gives false.
bool px__cpu_copy_across(const px_operand *to, const px_operand *from);
