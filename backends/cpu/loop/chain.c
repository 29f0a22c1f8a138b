// SPDX-License-Identifier: Apache-2.0
// Runs a chain of pointwise launches (px_chain_step) block by block: all steps of a block of
// elements run before the next block, so results that are not stored stay in the cache.
//
// Each step runs the row function of its kernel, and each result is rounded to its dtype. Results
// therefore equal those of single launches bit for bit.
#include "cpu/loop/chain.h"

#include "cpu/convert/convert.h"
#include "cpu/convert/dense.h"
#include "cpu/loop/loop.h"
#include "cpu/threads/buffer.h"
#include "cpu/threads/threads.h"
#include "cpu_kernels.h"
#include "kernel_args/copy.h"

enum {
  CACHE = 24 << 10,  // bytes of the results of a block
  MIN_BLOCK = 256,   // elements
  MAX_BLOCK = 2048,
  GRAIN = 16384,  // grain of the pool, elements of a step
  MAX_ITEM = 16   // bytes of an element
};
_Static_assert(sizeof(px_chain_step) % sizeof(int64_t) == 0, "steps are passed as a list of ints");

typedef struct input {
  int step;  // the step whose result it is, or -1: memory
  const char *at;
  int64_t stride;            // bytes between elements
  const px_operand *spread;  // operand whose elements are not in the order of the results; or NULL
  int dtype, row_dtype;
  double number[2];  // a single element in the row's dtype
} input;
typedef struct step {
  px_launch launch;
  px__cpu_row row;  // NULL: a copy
  int count;        // operands
  int dtype, row_dtype;
  char *store;  // memory of the result, or NULL
  int slot;     // buffer of a result without memory, or -1
  input inputs[];
} step;
struct px__chain {
  int count, slots, operands;  // operands: most of one step
  int64_t block;               // elements
  size_t slot_bytes;
  step **steps;
};

// ---- preparation

// Returns the rows of a pointwise kernel: a launch without operands asks for them.
static const px__cpu_pointwise *rows_of(px_kernel kernel) {
  const px__cpu_pointwise *rows = NULL;
  px_launch ask = {.stream = &rows};
  (void)kernel(&ask);
  return rows;
}

static void read_memory(input *in, const px_operand *o) {
  bool flat = o->ndim == 1 && o->strides[0] == 1, single = o->immediate || o->ndim == 0;
  in->step = -1, in->dtype = o->dtype, in->at = o->data;
  in->stride = single ? 0 : px__cpu_item[o->dtype];
  in->spread = flat || single ? NULL : o;
  if (o->dtype == PX_DTYPE_NONE) {
    in->number[0] = in->number[1] = 0;  // absent operands read as zero
    in->dtype = in->row_dtype, in->at = (const char *)in->number, in->stride = 0, in->spread = NULL;
  } else if (single && in->dtype != in->row_dtype) {
    px__cpu_convert(in->number, MAX_ITEM, in->row_dtype, o->data, MAX_ITEM, o->dtype, 1);
    in->dtype = in->row_dtype, in->at = (const char *)in->number;
  }
}

static void prepare(step *to, const px_chain_step *from, step *const *steps, const px_launch *l,
                    px_operand *operands) {
  to->launch = *l;
  to->launch.op = from->op, to->launch.kernel = from->kernel, to->launch.compute = from->compute;
  to->launch.params = l->params + from->first_param, to->launch.param_count = from->param_count;
  to->launch.operands = operands, to->launch.operand_count = from->operand_count;
  to->count = from->operand_count, to->dtype = from->dtype;
  to->store = from->stores < 0 ? NULL : l->operands[from->stores].data;
  const px__cpu_pointwise *rows = from->kernel == px__cpu_copy ? NULL : rows_of(from->kernel);
  int compute = rows ? px__cpu_row_dtype(rows, from->compute) : from->dtype;
  to->row = rows ? rows->rows[compute] : NULL;
  to->row_dtype = rows ? px__cpu_operand_dtype(rows, 0, compute) : from->dtype;
  operands[0] = (px_operand){.dtype = from->dtype};
  for (int i = 1; i < to->count; i++) {
    input *in = &to->inputs[i];
    int source = from->sources[i];
    in->row_dtype = rows ? px__cpu_operand_dtype(rows, i, compute) : PX_DTYPE_NONE;
    if (source < 0) {
      *in = (input){.step = ~source, .dtype = steps[~source]->dtype, .row_dtype = in->row_dtype};
      operands[i] = (px_operand){.dtype = in->dtype};
    } else {
      operands[i] = l->operands[source];
      if (!rows) in->row_dtype = l->operands[source].dtype;
      read_memory(in, &l->operands[source]);
    }
  }
}

static void assign_slots(px__chain *c, const px_chain_step *from) {
  int slots[PX_CHAIN_STEPS];
  int64_t item = 1;
  c->slots = px__chain_slots(from, c->count, slots);
  for (int k = 0; k < c->count; k++) {
    c->steps[k]->slot = slots[k];
    if (px__cpu_item[c->steps[k]->dtype] > item) item = px__cpu_item[c->steps[k]->dtype];
  }
  c->block = CACHE / (item * (c->slots + 1)) / 64 * 64;
  c->block = c->block < MIN_BLOCK ? MIN_BLOCK : c->block > MAX_BLOCK ? MAX_BLOCK : c->block;
  c->slot_bytes = (size_t)(c->block * item);
}

// ---- a block

// Converts the elements [begin, begin + n) of a spread operand into a contiguous array.
static void gather(char *to, const input *in, int64_t begin, int64_t n) {
  const px_operand *o = in->spread;
  int64_t index[PX_MAX_DIMS], item = px__cpu_item[in->row_dtype], rest = begin, at = 0;
  int last = o->ndim - 1;
  for (int d = last; d >= 0; d--) {
    index[d] = rest % o->sizes[d], rest /= o->sizes[d];
    at += index[d] * o->strides[d];
  }
  while (n > 0) {
    int64_t run = o->sizes[last] - index[last], size = px__cpu_item[in->dtype];
    if (run > n) run = n;
    px__cpu_convert(to, item, in->row_dtype, in->at + at * size, o->strides[last] * size, in->dtype,
                    run);
    to += run * item, n -= run;
    at -= index[last] * o->strides[last], index[last] = 0;
    for (int d = last - 1; d >= 0; d--) {
      at += o->strides[d];
      if (++index[d] < o->sizes[d]) break;
      at -= index[d] * o->strides[d], index[d] = 0;
    }
  }
}

typedef struct block {
  const px__chain *c;
  char *slots, *converted;  // buffers: of results; of converted operands
  char *last;               // address for the last result, besides its memory; or NULL
  int64_t begin, n;
} block;

static char *result_at(const block *b, int k) {
  const step *s = b->c->steps[k];
  if (s->store) return s->store + b->begin * px__cpu_item[s->dtype];
  return b->last && k == b->c->count - 1 ? b->last : b->slots + (size_t)s->slot * b->c->slot_bytes;
}

static void load(const block *b, const input *in, char *buffer, char **at, int64_t *stride) {
  const char *from = in->step >= 0 ? result_at(b, in->step) : in->at + b->begin * in->stride;
  int64_t gap = in->step >= 0 ? px__cpu_item[in->dtype] : in->stride;
  bool same = in->dtype == in->row_dtype;
  *at = same ? (char *)(uintptr_t)from : buffer;
  *stride = same ? gap : px__cpu_item[in->row_dtype];
  if (in->spread)
    gather(*at = buffer, in, b->begin, b->n), *stride = px__cpu_item[in->row_dtype];
  else if (!same)
    px__cpu_convert(buffer, *stride, in->row_dtype, from, gap, in->dtype, b->n);
}

static void run_copy(const block *b, const step *s, char *to) {
  char *from;
  int64_t stride, item = px__cpu_item[s->dtype];
  enum { RESULT, SOURCE };
  input in = s->inputs[SOURCE];
  in.row_dtype = in.dtype;  // read as it is, and converted once
  load(b, &in, b->converted, &from, &stride);
  (s->launch.stream ? px__device_convert : px__cpu_convert)(to, item, s->dtype, from, stride,
                                                            in.dtype, b->n);
}

static void run_step(const block *b, int k) {
  const step *s = b->c->steps[k];
  char *at[PX_MAX_OPERANDS], *to = result_at(b, k);
  int64_t strides[PX_MAX_OPERANDS];
  if (!s->row) {
    run_copy(b, s, to);
    return;
  }
  size_t room = (size_t)b->c->block * MAX_ITEM;
  bool same = s->dtype == s->row_dtype;
  at[0] = same ? to : b->converted, strides[0] = px__cpu_item[s->row_dtype];
  for (int i = 1; i < s->count; i++)
    load(b, &s->inputs[i], b->converted + (size_t)i * room, &at[i], &strides[i]);
  s->row(at, strides, b->n, &s->launch);
  if (!same)
    px__cpu_convert(to, px__cpu_item[s->dtype], s->dtype, at[0], strides[0], s->row_dtype, b->n);
}

static void run(const px__chain *c, char *last, int64_t begin, int64_t end) {
  PX__BUFFER(char, slots, c->slot_bytes *(size_t)(c->slots + 1));
  PX__BUFFER(char, converted, (size_t)(c->block * MAX_ITEM * c->operands));
  int64_t work = 0, item = px__cpu_item[c->steps[c->count - 1]->dtype];
  for (block b = {c, slots, converted, last, begin, 0}; b.begin < end; b.begin += b.n) {
    b.n = end - b.begin < c->block ? end - b.begin : c->block;
    for (int k = 0; k < c->count; k++) run_step(&b, k);
    char *made = result_at(&b, c->count - 1);
    if (last && made != b.last) memcpy(b.last, made, (size_t)(b.n * item));
    if (last) b.last += b.n * item;
    if (px__work_stopped(&work, b.n)) return;
  }
}

void px__cpu_chain_read(const px__chain *c, void *to, int64_t begin, int64_t n) {
  run(c, to, begin, begin + n);
}

static void run_part(void *chain, int64_t begin, int64_t end) { run(chain, NULL, begin, end); }

// ---- the kernel

static px_status run_fold(const px_launch *l, const px_chain_step *fold, const px__chain *c) {
  px_operand operands[2] = {l->operands[fold->stores], l->operands[fold->shape]};
  px_launch launch = *l;
  launch.op = fold->op, launch.kernel = fold->kernel, launch.compute = fold->compute;
  launch.operands = operands, launch.operand_count = 2;
  launch.params = l->params + fold->first_param, launch.param_count = fold->param_count;
  launch.chain = c;
  return fold->kernel(&launch);
}

PX_KERNEL(chain) {
  const px_chain_step *from = (const void *)args->steps.v.ints;
  int all = (int)((size_t)args->steps.n * sizeof(int64_t) / sizeof *from), operand_count = 0;
  bool folds = from[all - 1].fold;
  px__chain c = {.count = all - folds};
  for (int k = 0; k < c.count; k++) operand_count += from[k].operand_count;
  PX__BUFFER(px_operand, operands, (size_t)operand_count);
  PX__BUFFER(char, room, (size_t)c.count * sizeof(step) + (size_t)operand_count * sizeof(input));
  PX__BUFFER(step *, steps, (size_t)c.count);
  px_operand *own = operands;
  char *at = room;
  c.steps = steps;
  for (int k = 0; k < c.count; k++) {
    steps[k] = (step *)(void *)at;
    at += sizeof(step) + (size_t)from[k].operand_count * sizeof(input);
    prepare(steps[k], &from[k], steps, l, own);
    own += from[k].operand_count;
    if (c.operands < from[k].operand_count) c.operands = from[k].operand_count;
  }
  assign_slots(&c, from);
  if (folds) return run_fold(l, &from[all - 1], &c);
  int64_t n = px_operand_numel(&l->operands[0]);
  px__cpu_plan plan =
      px__cpu_plan_of((const void *)(uintptr_t)run_part, (double)n * c.count / GRAIN);
  px__cpu_run(&plan, n, c.block, run_part, &c);
  return PX_OK;
}
