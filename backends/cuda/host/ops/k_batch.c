// SPDX-License-Identifier: Apache-2.0
// Batched loops: one launch applies a function to several contiguous tensors. Blocks look up their
// tensor in the launch's arguments (kernels/loop.cuh).
#include "cuda/host/ops/kernel.h"

#include <stddef.h>

_Thread_local px__cuda_loops *px__cuda_loops_batch;

static px_status launch_loops(px__cuda_loops *loops) {
  k_list *list = &loops->p.list;
  void *params[] = {&loops->p};
  if (!list->count) return PX_OK;
  uint64_t last = list->at[(list->count - 1) * list->words];
  loops->p.mode = K_LIST;
  px_status status = px__cuda_launch(&loops->launch, loops->module, loops->function,
                                     (unsigned)(last >> 32), K_LOOP, 0, params);
  list->count = 0;
  return status;
}

void px__cuda_loops_begin(px__cuda_loops *loops) {
  loops->p.list.count = 0;
  px__cuda_loops_batch = loops;
}
px_status px__cuda_loops_end(px__cuda_loops *loops) {
  px__cuda_loops_batch = NULL;
  return launch_loops(loops);
}

// True if all operands with several elements are contiguous.
static bool is_contiguous(const k_loop *p, int operands) {
  if (p->ndim > 1 || p->n >> 31) return false;
  for (int i = 0; i < operands && p->n > 1; i++)
    if (p->kind[i] == K_MANY && p->strides[0][i] != 1) return false;
  return true;
}

// True if operand i matches the batch's. In one-element loops, single elements count as arrays. A
// shared scalar must be identical.
static bool same_operand(const k_loop *all, const k_loop *p, int i) {
  if (all->dtype[i] != p->dtype[i]) return false;
  if (all->kind[i] == K_MANY) return p->kind[i] == K_MANY || (p->n == 1 && p->kind[i] == K_ONE);
  return all->kind[i] == p->kind[i] && all->data[i] == p->data[i] &&
         all->value[i].i == p->value[i].i;
}
static bool matches(const px__cuda_loops *loops, const px__cuda_loops *own) {
  const k_loop *all = &loops->p, *p = &own->p;
  bool same = loops->launch.stream == own->launch.stream && loops->each == own->each &&
              loops->operands == own->operands && all->has == p->has && all->truth == p->truth &&
              (all->list.count + 1) * all->list.words <= K_LIST_WORDS &&
              !strcmp(loops->module, own->module) && !strcmp(loops->function, own->function) &&
              !memcmp(all->numbers, p->numbers, (size_t)own->numbers * sizeof *p->numbers);
  for (int i = 0; i < own->operands && same; i++) same = same_operand(all, p, i);
  return same;
}

static void start(px__cuda_loops *loops, const px__cuda_loops *own) {
  memcpy(loops, own, offsetof(px__cuda_loops, p) + offsetof(k_loop, list));
  for (int i = 1; i < own->operands && own->p.n == 1; i++)
    if (own->p.kind[i] == K_ONE) loops->p.kind[i] = K_MANY;
  loops->p.list.words = 1 + own->operands;
}

static void add(px__cuda_loops *loops, const k_loop *p) {
  enum { SCALARS_EACH = 4 };  // elements per thread without vectors
  k_list *list = &loops->p.list;
  uint64_t *entry = &list->at[list->count * list->words], begin = 0, vectors = K_LIST_VECTORS;
  int64_t each = loops->each, tile = K_LOOP * SCALARS_EACH;
  if (list->count++) begin = entry[-list->words] >> 32;
  for (int i = 0; i < loops->operands; i++) {
    entry[1 + i] = (uint64_t)(uintptr_t)p->data[i];
    if (loops->p.kind[i] == K_MANY && entry[1 + i] % (px__cuda_dtype_size(p->dtype[i]) * each))
      vectors = 0;
  }
  if (vectors) tile = K_LOOP * each * K_FLIGHT(each);
  entry[0] = (begin + (uint64_t)(p->n / tile + 1)) << 32 | vectors | (uint64_t)p->n;
}

px_status px__cuda_loops_add(bool *batched, const px_launch *l, const char *module,
                             const char *function, int each, int operands, int numbers,
                             const k_loop *p) {
  px__cuda_loops *loops = px__cuda_loops_batch, own;
  size_t length = strlen(function) + 1;
  if (!is_contiguous(p, operands) || length > sizeof own.function) return PX_OK;
  own.launch = *l, own.module = module, own.each = each;
  own.operands = operands, own.numbers = numbers;
  memcpy(own.function, function, length);
  memcpy(&own.p, p, offsetof(k_loop, list));
  if (loops->p.list.count && !matches(loops, &own)) PX_CUDA_PASS(launch_loops(loops));
  if (!loops->p.list.count) start(loops, &own);
  add(loops, p);
  *batched = true;
  return PX_OK;
}
