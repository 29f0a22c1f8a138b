// SPDX-License-Identifier: Apache-2.0
// Counting floating-point operations, by module and op, as PyTorch's FlopCounterMode does: of
// matrix products, convolutions and attention, forward and backward. A product of an (m, k) and a
// (k, n) matrix is 2 m k n operations. Counts follow from sizes: on the device type meta nothing is
// computed for them.
//
// Example, what a step takes:
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
// From here on self, which has counted nothing then, counts what all threads call. Several may
// count at a time. PX_RUNTIME if it counts already. self lives until it ends.
PX_CALL px_flop_counter_begin(px_flop_counter *self);
// One that does not count stays as it is.
PX_API void px_flop_counter_end(px_flop_counter *self);
PX_API int64_t px_flop_counter_total(const px_flop_counter *self);

// What was counted. `module` is "Global", which has all, or a module with those within it
// ("MLP.layers.0"); `op` is PyTorch's name ("addmm", "convolution_backward").
typedef struct px_flop_count {
  const char *module, *op;  // as long as self counts nothing anew
  int64_t operations;
} px_flop_count;
// The i-th, in the order in which they were met; false behind the last. PX_NOMEM is
// px_flop_counter_table's to tell.
PX_API bool px_flop_counter_at(const px_flop_counter *self, int i, px_flop_count *out);
// The table that PyTorch prints, of modules down to `depth` (negative: all): px_free frees it.
// PX_NOMEM also if there was no memory while it counted.
PX_CALL px_flop_counter_table(char **out, const px_flop_counter *self, int depth);

// A number of the time since a counter began last; 0: none counts.
PX_API uint64_t px_flops_session(void);
// What the calling thread does from here on belongs to a module of this name, also what the
// backward passes of it do; leave ends the module that was entered last. Modules that are run by
// px_module_forward and its kin enter themselves. Where several threads call modules at once, it is
// not known whose backward pass it is.
PX_CALL px_flops_enter(const char *module);
PX_API void px_flops_leave(void);

#ifdef __cplusplus
}
#endif
