// SPDX-License-Identifier: Apache-2.0
// Measured cost of parallel jobs, by op and size class.
#pragma once
#include <stdint.h>

// Cost of one op at one size class: picoseconds that one thread takes per grain; 0: unknown. Fields
// are accessed atomically.
typedef struct px__job_cost {
  uintptr_t key;
  int64_t grain_ps;
} px__job_cost;

// Returns the cost entry. `op` identifies the op, such as the address of its function. `grains` is
// the amount of work, in a unit common to all jobs of the op.
px__job_cost *px__job_cost_of(const void *op, double grains);
// Records a measurement: one thread did `grains` in `ns` nanoseconds.
void px__job_cost_record(px__job_cost *k, double grains, int64_t ns);
// Estimated nanoseconds of one thread for `grains`; 0: unknown.
double px__job_cost_ns(const px__job_cost *k, double grains);
