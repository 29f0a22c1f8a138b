// SPDX-License-Identifier: Apache-2.0
// Runs a chain without a kernel of its own: each step is a launch, and results that nobody keeps go
// to scratch memory.
#include <stdlib.h>

#include "cuda/host/chain/chain.h"

// The sizes of a step: a dimension for each number of elements that ends a dimension of an operand.
// `inner[d]` elements are within one index of dimension d; dimensions are outermost first.
typedef struct shape {
  int ndim;
  int64_t inner[PX_MAX_DIMS], sizes[PX_MAX_DIMS];
} shape;
typedef struct run {
  const px_launch *launch;
  const px_chain_step *steps;
  int64_t n;
  int slots[PX_CHAIN_STEPS];
  char *scratch;
  size_t slot_bytes;
  // Of the step that runs:
  shape shape;
  px_operand operands[PX_MAX_OPERANDS];
  int64_t strides[PX_MAX_OPERANDS][PX_MAX_DIMS];
} run;

static void *result_of(const run *r, int k) {
  int stores = r->steps[k].stores;
  return stores >= 0 ? r->launch->operands[stores].data
                     : r->scratch + (size_t)r->slots[k] * r->slot_bytes;
}

static void cut(shape *s, int64_t inner) {
  int at = 0;
  while (at < s->ndim && s->inner[at] > inner) at++;
  if (at < s->ndim && s->inner[at] == inner) return;
  for (int d = s->ndim++; d > at; d--) s->inner[d] = s->inner[d - 1];
  s->inner[at] = inner;
}

static void cut_by(shape *s, const px_operand *o) {
  int64_t inner = 1;
  for (int d = o->ndim - 1; d >= 0; d--) {
    if (o->sizes[d] == 1) continue;
    cut(s, inner);
    inner *= o->sizes[d];
  }
}

static void set_sizes(shape *s, int64_t n) {
  cut(s, 1);
  for (int d = 0; d < s->ndim; d++) s->sizes[d] = (d ? s->inner[d - 1] : n) / s->inner[d];
}

// Gives an operand the sizes of the step.
static void fit(px_operand *o, const shape *s, int64_t *strides) {
  int64_t inner = 1;
  int d = s->ndim - 1;
  for (int k = o->ndim - 1; k >= 0; k--)
    for (int64_t end = inner * o->sizes[k], base = inner; inner < end; d--) {
      strides[d] = o->strides[k] * (s->inner[d] / base);
      inner *= s->sizes[d];
    }
  for (; d >= 0; d--) strides[d] = 0;
  o->ndim = s->ndim, o->sizes = s->sizes, o->strides = strides;
}

static px_status run_step(run *r, int k) {
  static const int64_t one = 1;
  const px_chain_step *from = &r->steps[k];
  r->shape.ndim = 0;
  for (int i = 0; i < from->operand_count; i++) {
    px_operand *o = &r->operands[i];
    int step = i ? ~from->sources[i] : k;
    if (step < 0) {
      *o = r->launch->operands[from->sources[i]];
      if (!px__cuda_absent(o)) cut_by(&r->shape, o);
    } else {
      *o = (px_operand){.data = result_of(r, step),
                        .sizes = &r->n,
                        .strides = &one,
                        .ndim = 1,
                        .dtype = r->steps[step].dtype};
    }
  }
  set_sizes(&r->shape, r->n);
  for (int i = 0; i < from->operand_count; i++)
    if (!px__cuda_absent(&r->operands[i])) fit(&r->operands[i], &r->shape, r->strides[i]);
  px_launch l = px__cuda_step_launch(r->launch, from);
  l.operands = r->operands, l.operand_count = from->operand_count;
  return from->kernel(&l);
}

static px_status run_fold(const run *r, const px_chain_step *fold, int last) {
  px_operand in = r->launch->operands[fold->shape];
  in.data = result_of(r, last), in.immediate = false;
  px_operand operands[] = {r->launch->operands[fold->stores], in};
  px_launch l = px__cuda_step_launch(r->launch, fold);
  l.operands = operands, l.operand_count = 2;
  return fold->kernel(&l);
}

static px_status run_all(run *r, int count, const px_chain_step *fold) {
  size_t item = 1;
  int slots = px__chain_slots(r->steps, count, r->slots);
  for (int k = 0; k < count; k++)
    if (px__cuda_dtype_size(r->steps[k].dtype) > item)
      item = px__cuda_dtype_size(r->steps[k].dtype);
  r->n = px_operand_numel(&r->launch->operands[fold ? fold->shape : 0]);
  r->slot_bytes = ((size_t)r->n * item + 511) & ~(size_t)511;
  void *scratch = NULL;
  if (slots) PX_CUDA_PASS(px__cuda_scratch(r->launch, r->slot_bytes * (size_t)slots, &scratch));
  r->scratch = scratch;
  for (int k = 0; k < count; k++) PX_CUDA_PASS(run_step(r, k));
  return fold ? run_fold(r, fold, count - 1) : PX_OK;
}

px_status px__cuda_chain_steps(const px_launch *l, const px_chain_step *steps, int count,
                               const px_chain_step *fold) {
  run *r = malloc(sizeof *r);
  if (!r) PX_CUDA_FAIL(PX_NOMEM, "%s: out of memory", l->op);
  r->launch = l, r->steps = steps;
  // Steps depend on each other: they are not batched.
  px__cuda_loops *loops = px__cuda_loops_batch;
  px__cuda_folds *folds = px__cuda_folds_batch;
  px__cuda_loops_batch = NULL, px__cuda_folds_batch = NULL;
  px_status status = run_all(r, count, fold);
  px__cuda_loops_batch = loops, px__cuda_folds_batch = folds;
  free(r);
  return status;
}
