// SPDX-License-Identifier: Apache-2.0
// Launches of optimiser updates, generated in kernels_cuda_optim.cu. Several parameters share a
// launch.
#include "cuda/host/ops/kernel.h"

static _Thread_local px__cuda_updates *current;  // NULL: no batching

static px_status launch_batch(px__cuda_updates *batch) {
  int count = batch->p.count = batch->count;
  batch->count = 0;
  if (!count) return PX_OK;
  return px__cuda_by_dtype(&batch->launch, "kernels_cuda_optim", batch->name, batch->dtype,
                           batch->p.of[count - 1].end, K_BLOCK, &batch->p);
}

void px__cuda_updates_begin(px__cuda_updates *batch) {
  batch->count = 0;
  current = batch;
}
px_status px__cuda_updates_end(px__cuda_updates *batch) {
  current = NULL;
  return launch_batch(batch);
}

// True if the step shares numbers, dtype and stream with the batch, and the batch has space.
static bool matches(const px__cuda_updates *batch, const px_launch *l, const px__cuda_step *step,
                    const char *name, int dtype) {
  return batch->count < K_UPDATES && batch->dtype == dtype && batch->launch.stream == l->stream &&
         !strcmp(batch->name, name) &&
         !memcmp(batch->p.numbers, step->numbers, sizeof step->numbers);
}

// Blocks for a parameter. Threads process 16-byte vectors if all tensors are aligned, VECTORS_EACH
// of them each, to amortise the block's lookup. At least one block, to update the scalars.
static void add(px__cuda_updates *batch, const px__cuda_step *step, const px_operand *param) {
  enum { MAX_BLOCKS = 1 << 24, VECTORS_EACH = 4 };
  k_update *u = &batch->p.of[batch->count];
  int64_t each = 16 / (int64_t)px__cuda_dtype_size(param->dtype);
  *u = (k_update){.grad = step->grad, .n = px_operand_numel(param), .line = step->line};
  memcpy(u->at, step->at, sizeof u->at);
  memcpy(u->scalars, step->scalars, sizeof u->scalars);
  u->vector = (uintptr_t)u->grad % 16 == 0;
  for (int i = 0; i < K_UPDATED; i++) u->vector &= (uintptr_t)u->at[i] % 16 == 0;
  int64_t threads = u->vector ? u->n / (each * VECTORS_EACH) + 1 : u->n;
  int64_t blocks = (threads + K_BLOCK - 1) / K_BLOCK;
  blocks = blocks < 1 ? 1 : blocks > MAX_BLOCKS ? MAX_BLOCKS : blocks;
  u->end = (batch->count++ ? u[-1].end : 0) + (uint32_t)blocks;
}

px_status px__cuda_update(px__cuda_dense *d, const px__cuda_step *step, const char *name,
                          const px_operand *param) {
  px__cuda_updates own;
  own.count = 0;
  PX_CUDA_PASS(d->status);
  // Outputs copied back from scratch memory cannot be batched.
  px__cuda_updates *batch = current && !d->count ? current : &own;
  if (batch->count && !matches(batch, d->launch, step, name, param->dtype))
    PX_CUDA_PASS(launch_batch(batch));
  if (!batch->count) {
    batch->launch = *d->launch, batch->name = name, batch->dtype = param->dtype;
    memcpy(batch->p.numbers, step->numbers, sizeof step->numbers);
  }
  add(batch, step, param);
  if (batch != &own) return PX_OK;
  PX_CUDA_PASS(launch_batch(batch));
  return px__cuda_dense_close(d);
}

_Static_assert((int)K_LINE == (int)PX_NUMBERS_ROW && (int)K_LEFT_OUT == (int)PX_NUMBERS_SKIPPED &&
                   (int)K_UPDATE_NUMBERS == (int)PX_NUMBERS &&
                   (int)K_SCALARS == (int)PX_NUMBERS_SCALARS,
               "a line of numbers is that of phlox/backend.h");
px_status px__cuda_numbers(const px_launch *l, k_numbers *p, const char *name,
                           const px_operand *out, const px_operand *rate, const px_operand *found,
                           const px_operand *scalars) {
  px__cuda_dense d = {.launch = l};
  p->lines = (int32_t)out->sizes[0];
  p->out = px__cuda_dense_out(&d, out, PX_FLOAT64);
  p->rate = px__cuda_dense_in(&d, rate, PX_FLOAT64);
  p->found = px__cuda_dense_in(&d, found, PX_FLOAT32);
  for (int64_t i = 0; i < p->lines * p->each; i++)
    p->scalars[i] = px__cuda_dense_in(&d, &scalars[i], PX_FLOAT32);
  PX_CUDA_PASS(d.status);
  PX_CUDA_PASS(px__cuda_over(l, "kernels_cuda_optim", name, p->lines, p));
  return px__cuda_dense_close(&d);
}
