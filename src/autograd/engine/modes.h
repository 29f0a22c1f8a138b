// SPDX-License-Identifier: Apache-2.0
// Functions registered as hooks of the op dispatcher (see px_op_hooks).
#pragma once
#include "autograd/engine/graph.h"
#include "phlox/vmap.h"

void px__suspend(bool on);
px_status px__before_inplace(const px_op *op, px_call_mode mode, px_tensor *self,
                             const px_value *args, px_tensor **original)
    __attribute__((warn_unused_result));
px_status px__record(const px_op *op, px_call_mode mode, const px_value *args, int result_count,
                     px_tensor *const *results, px_tensor *original)
    __attribute__((warn_unused_result));
// See px_op_hooks.descend. px__history_floor returns the current floor.
px_recording_state px__swap_recording(px_recording_state to);
int px__history_floor(void);
void px__print_history(const px_tensor *self, char *text, size_t size);
