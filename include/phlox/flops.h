// SPDX-License-Identifier: Apache-2.0
// Counting floating-point operations by module and op, as PyTorch's FlopCounterMode does: matrix
// products, convolutions and attention, forward and backward. A product of an (m, k) and a (k, n)
// matrix is 2 m k n operations. Counts depend on sizes only, so on the device type meta nothing is
// computed.
//
// Example, the operations of a step:
//
//   PX_SCOPED(px_flop_counter) counter = NULL;
//   PX_TRY(px_flop_counter_new(&counter));
//   PX_TRY(px_flop_counter_begin(counter));
//   px_status status = step();
//   px_flop_counter_end(counter);
//   PX_TRY(status);
//   PX_TRY(px_flop_counter_table(&text, counter, 2));
#pragma once
#include "phlox/autograd.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_flop_counter px_flop_counter;

PX_CALL px_flop_counter_new(px_flop_counter **out);
// Starts counting the ops of all threads; previous counts are dropped. Several counters may run at
// a time. PX_RUNTIME if it is already counting. A running counter stays alive.
PX_CALL px_flop_counter_begin(px_flop_counter *self);
// Stops counting. No-op for a counter that is not running.
PX_API void px_flop_counter_end(px_flop_counter *self);
PX_API int64_t px_flop_counter_total(const px_flop_counter *self);

// One count. `module` is "Global" (all modules), or a module including its children
// ("MLP.layers.0"). `op` is PyTorch's name ("addmm", "convolution_backward").
typedef struct px_flop_count {
  const char *module, *op;  // valid until self counts again
  int64_t operations;
} px_flop_count;
// Returns the i-th count, in order of first occurrence; false past the end. An allocation failure
// while counting is reported by px_flop_counter_table.
PX_API bool px_flop_counter_at(const px_flop_counter *self, int i, px_flop_count *out);
// Returns PyTorch's table, down to module depth `depth` (negative: all); free with px_free.
// PX_NOMEM also if memory ran out while counting.
PX_CALL px_flop_counter_table(char **out, const px_flop_counter *self, int depth);

// Returns an id of the current counting session, which begins with each start of a counter; 0: no
// counter is running.
PX_API uint64_t px_flops_session(void);
// Attributes the calling thread's later work, including its backward passes, to a module of this
// name. px_flops_leave ends the innermost module. Calls through px_module_forward and its variants
// do this themselves. If several threads call modules concurrently, their backward passes cannot be
// told apart.
PX_CALL px_flops_enter(const char *module);
PX_API void px_flops_leave(void);

#ifdef __cplusplus
}
#endif
