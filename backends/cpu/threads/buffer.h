// SPDX-License-Identifier: Apache-2.0
// Buffers of kernels. A thread of the program may have a stack of 64 KiB, so arrays above 2 KiB are
// allocated here instead of on the stack.
//
// Each thread has a region of memory. Its buffers end in reverse order of their creation.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// `PX__BUFFER(float, row, 4096);` defines `float *row`, an array of 4096 elements until the end of
// the scope. It is not initialized, and aligned to a cache line. It cannot fail.
#define PX__BUFFER(type, name, count) \
  __attribute__((cleanup(px__buffer_end))) type *name = px__buffer_new(sizeof(type) * (count))

void *px__buffer_new(size_t bytes);
// `variable`: the address of the pointer to the buffer.
void px__buffer_end(const void *variable);
// Allocates the calling thread's region. False: out of memory; its buffers would use the shared
// region.
bool px__buffers_reserve(void);
