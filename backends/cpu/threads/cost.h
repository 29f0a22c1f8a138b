// SPDX-License-Identifier: Apache-2.0
// How long jobs take, by what was measured of the like of them.
#pragma once
#include <stdint.h>

// Jobs that do the same to about as much: how long one thread takes for a grain of it, in
// picoseconds; 0 while that is not known. Atomic.
typedef struct px__kind {
  uintptr_t of;
  int64_t grain_ps;
} px__kind;

// `op` stands for what is done, as the address of the function that does it; `grains` tells how
// much of it there is, in parts of a size that is the same for all of its jobs.
px__kind *px__kind_of(const void *op, double grains);
// One thread did so many grains in so many nanoseconds.
void px__kind_note(px__kind *k, double grains, int64_t ns);
// What one thread would take for them, in nanoseconds; 0: not known.
double px__kind_work(const px__kind *k, double grains);
