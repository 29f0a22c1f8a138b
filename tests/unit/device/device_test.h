// SPDX-License-Identifier: Apache-2.0
// Shared by tests of the device layer: simulated devices, and small kernels.
#pragma once
#include "device/memory/memory.h"
#include "device/open/open.h"
#include "device/work/work.h"
#include "devices.h"

// Devices with pauses in real time and without the race checker.
static inline void simulate_plainly(int count) {
  setenv("PHLOX_SIM_MODE", "threads", 1);
  simulate(count);
  px_race_enable(0, false);
}

static inline void pause_ms(long ms) { usleep((useconds_t)ms * 1000); }

// Kernels over one operand of int64. params: value, milliseconds.
static inline px_status fill_kernel(const px_launch *l) {
  if (l->params[1].v.i) pause_ms((long)l->params[1].v.i);
  int64_t *to = l->operands[0].data;
  for (int64_t i = 0; i < l->operands[0].sizes[0]; i++) to[i] = l->params[0].v.i;
  return PX_OK;
}
static inline px_status index_kernel(const px_launch *l) {
  px_kernel_fault(l, PX_FAULT_INDEX, 5, 0, 2);
  return PX_OK;
}
static inline px_status nothing_kernel(const px_launch *l) { return PX_OK; }

// Launches a kernel over a whole allocation on the device's current stream.
static inline px_status start(const char *op, px_kernel kernel, px_allocation *block, bool write,
                              int64_t value, int64_t ms) {
  int64_t size = (int64_t)block->bytes / 8, stride = 1;
  px_operand operand = {
      .data = block->data, .sizes = &size, .strides = &stride, .ndim = 1, .dtype = PX_INT64};
  px_value params[] = {PX_I(value), PX_I(ms)};
  px_launch launch = {.op = op,
                      .kernel = kernel,
                      .operand_count = 1,
                      .param_count = 2,
                      .operands = &operand,
                      .params = params,
                      .compute = PX_DTYPE_NONE};
  px_access access = {.allocation = block, .end = block->bytes, .write = write};
  return px__launch(block->device, &launch, &access, 1);
}
static inline px_status fill(px_allocation *block, int64_t value, int64_t ms) {
  return start("fill", fill_kernel, block, true, value, ms);
}
static inline px_status look(px_allocation *block) {
  return start("look", nothing_kernel, block, false, 0, 0);
}
static inline px_allocation *block_on(px_device device, size_t bytes) {
  px_allocation *block;
  OK(px__allocation_new(&block, bytes, device));
  return block;
}
static inline px_allocation *pinned_block(size_t bytes) {
  px_allocation *block;
  OK(px__allocation_new_pinned(&block, bytes));
  return block;
}
// Returns the first number of an allocation by a synchronous copy.
static inline int64_t first_of(px_allocation *block) {
  px_allocation *host = block_on(px_cpu(), 8);
  OK(px__copy_bytes(host, 0, block, 0, 8, false));
  int64_t value = *(int64_t *)host->data;
  px__allocation_free(host);
  return value;
}
static inline px_stream *new_stream(int device) {
  px_stream *stream;
  OK(px_stream_new(&stream, px_cuda(device), 0));
  return stream;
}
static inline px_stream *default_stream(int device) {
  px_stream *stream;
  OK(px_stream_default(&stream, px_cuda(device)));
  return stream;
}
static inline int64_t stat_of(const char *key) {
  int64_t value;
  OK(px_memory_stat_get(&value, 0, key));
  return value;
}
