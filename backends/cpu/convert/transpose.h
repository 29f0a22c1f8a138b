// SPDX-License-Identifier: Apache-2.0
// Transposing copies, used by other kernels for their operands.
#pragma once
#include "phlox/backend.h"

// Copies all elements in tiles on all threads, if the dtypes are equal and the source is contiguous
// along another dimension than the target. Otherwise does nothing and returns false.
bool px__cpu_copy_across(const px_operand *to, const px_operand *from);
