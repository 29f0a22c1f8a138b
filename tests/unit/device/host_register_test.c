// SPDX-License-Identifier: Apache-2.0
// Host memory registered by programs.
#include "device_test.h"

static _Alignas(4096) char memory[40][4096];

PX_TEST(any_number_of_ranges) {
  simulate_plainly(1);
  for (int i = 0; i < 40; i += 2) OK(px_memory_host_register(memory[i], 4096));
  for (int i = 0; i < 40; i++) CHECK_EQ(px__host_registered(memory[i] + 1, 4095), i % 2 == 0);
  CHECK(!px__host_registered(memory[0], 4097));
  for (int i = 0; i < 40; i += 4) OK(px_memory_host_unregister(memory[i]));
  for (int i = 0; i < 40; i++) CHECK_EQ(px__host_registered(memory[i], 1), i % 4 == 2);
  for (int i = 2; i < 40; i += 4) OK(px_memory_host_unregister(memory[i]));
  CHECK_EQ(px__host_registered_count, 0);
}

PX_TEST(refused_ranges) {
  simulate_plainly(1);
  FAILS(px_memory_host_register(NULL, 4096), PX_VALUE, "invalid argument");
  FAILS(px_memory_host_register(memory, 0), PX_VALUE, "invalid argument");
  FAILS(px_memory_host_register(memory, SIZE_MAX), PX_VALUE, "invalid argument");
  px_allocation *device = block_on(px_cuda(0), 4096), *pinned = pinned_block(4096);
  FAILS(px_memory_host_register(device->data, 8), PX_VALUE, "invalid argument");
  FAILS(px_memory_host_register(pinned->data, 8), PX_VALUE, "invalid argument");
  px__allocation_free(device), px__allocation_free(pinned);
  OK(px_memory_host_register(memory[1], 4096));
  FAILS(px_memory_host_register(memory[0], 4097), PX_ACCELERATOR, "already mapped");
  FAILS(px_memory_host_unregister(memory[1] + 1), PX_ACCELERATOR, "does not correspond");
  CHECK_EQ(px__host_registered_count, 1);
  OK(px_memory_host_unregister(memory[1]));
  FAILS(px_memory_host_unregister(memory[1]), PX_ACCELERATOR, "does not correspond");
}

PX_TEST(memory_freed_during_a_copy_is_not_reused) {
  simulate_plainly(1);
  px_allocation *from = block_on(px_cuda(0), 4096), *to = block_on(px_cpu(), 4096);
  void *at = to->data;
  OK(px_memory_host_register(at, 4096));
  CHECK(px__allocation_is_pinned(to, 8, 4088) && !px__allocation_is_pinned(to, 8, 4089));
  OK(fill(from, 7, 100));
  OK(px__copy_bytes(to, 0, from, 0, 4096, true));
  CHECK(to->pending);
  px__allocation_free(to);
  px_allocation *next = block_on(px_cpu(), 4096);
#ifndef __SANITIZE_ADDRESS__  // every allocation is fresh
  CHECK(next->data == at);
  CHECK_EQ(*(int64_t *)at, 7);  // the copy was done before
#endif
  OK(px_memory_host_unregister(at));
  px__allocation_free(next), px__allocation_free(from);
}

static px_status interrupt(void) {
  PX_CHECK(false, PX_RUNTIME, "interrupted");
  return PX_OK;
}
PX_TEST(a_release_is_not_interrupted) {
  simulate_plainly(1);
  px_allocation *block = block_on(px_cuda(0), 4096);
  OK(px_memory_host_register(memory[0], 4096));
  OK(fill(block, 7, 200));
  px_interrupt_set_check(interrupt);
  OK(px_memory_host_unregister(memory[0]));
  px_interrupt_set_check(NULL);
  CHECK_EQ(px__host_registered_count, 0);
  px__allocation_free(block);
}
