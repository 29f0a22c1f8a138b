// SPDX-License-Identifier: Apache-2.0
// The kernel "chain": its parameters and key, and its launch.
#include <stdlib.h>

#include "cuda/host/chain/chain.h"
#include "kernel_args/copy.h"

// ---- what a chain consists of

static const void *row_of(px_kernel kernel) {
  const void *row = NULL;
  px_launch ask = {.stream = &row};
  (void)kernel(&ask);
  return row;
}

static bool add_key(px__cuda_chain *c, int64_t x) {
  if (c->key_count + 2 > PX__CHAIN_KEY) return false;
  c->key[c->key_count++] = (int32_t)x;
  c->key[c->key_count++] = (int32_t)(x >> 32);
  return true;
}
// Returns the next `count` words, or NULL.
static k_number *add_words(px__cuda_chain *c, int count) {
  k_number *at = &c->params.words[c->word_count];
  if (c->word_count + count > PX__CHAIN_WORDS) return NULL;
  c->word_count += count;
  return at;
}

static bool is_computed(int dtype) { return dtype >= 0 && dtype < PX_DTYPE_COMPUTED; }

// k_spread of kernels/chain.cuh after the address: divisors, then strides.
static bool add_dims(px__cuda_chain *c, const px_operand *o) {
  int half_words = 3 * o->ndim;
  k_number *at = add_words(c, (half_words + 1) / 2 + o->ndim);
  if (!at) return false;
  k_divisor by[K_DIMS] = {{0}};
  for (int d = 0; d < o->ndim; d++) px__cuda_divisor(&by[d], o->sizes[o->ndim - 1 - d]);
  memcpy(at, by, (size_t)o->ndim * sizeof *by);
  at += (half_words + 1) / 2;
  for (int d = 0; d < o->ndim; d++) at[d].i = o->strides[o->ndim - 1 - d];
  return true;
}

static bool add_operand(px__cuda_chain *c, int i) {
  const px_operand *o = &c->launch->operands[i];
  bool flat = o->ndim == 1 && o->strides[0] == 1;
  if (px__cuda_absent(o)) return true;
  if (!is_computed(o->dtype)) return false;
  px__cuda_chained *to = &c->operands[i];
  *to = (px__cuda_chained){flat      ? PX__FLAT
                           : o->ndim ? PX__SPREAD
                                     : PX__ONE,
                           (uint8_t)o->ndim, (int16_t)c->word_count};
  int item = (int)px__cuda_dtype_size(o->dtype);
  if (flat && item * c->each > 16) c->each = 16 / item;
  k_number *at = add_words(c, 1);
  if (!at) return false;
  at->i = (int64_t)(uintptr_t)o->data;
  if (to->reading == PX__SPREAD && (c->params.n >> 31 || o->ndim > K_DIMS || !add_dims(c, o)))
    return false;
  return add_key(c, to->reading | to->dims << 8 | o->dtype << 16 | (int64_t)i << 32);
}

static bool add_arguments(px__cuda_chain *c, int k) {
  const px_chain_step *s = &c->steps[k];
  const px__cuda_pointwise *row = c->rows[k];
  k_number numbers[K_NUMBERS];
  px_launch l = px__cuda_step_launch(c->launch, s);
  px__cuda_read_numbers(&l, row, numbers, &c->has[k], &c->truth[k]);
  for (int i = 0; i < row->argument_count; i++) {
    const px__cuda_argument *a = &row->arguments[i];
    const px_operand *o = NULL;
    if (a->operand > 0) {
      if (s->sources[a->operand] < 0) continue;
      o = &c->launch->operands[s->sources[a->operand]];
      if (!px__cuda_absent(o)) continue;
    }
    k_number *at = add_words(c, 1);
    if (!at) return false;
    if (!o)
      *at = numbers[a->number];
    else if (o->immediate)
      px__cuda_read(at, o, px__cuda_is_float(s->compute));
    else
      at->i = 0;
  }
  return add_key(c, c->has[k]) && add_key(c, c->truth[k]);
}

static bool add_step(px__cuda_chain *c, int k) {
  const px_chain_step *s = &c->steps[k];
  c->rows[k] = s->kernel == px__cuda_find("copy") ? NULL : row_of(s->kernel);
  c->first_number[k] = c->word_count;
  if (!is_computed(s->dtype)) return false;
  bool added = add_key(c, (int64_t)(uintptr_t)c->rows[k]) && add_key(c, s->compute) &&
               add_key(c, s->dtype) && add_key(c, s->stores);
  for (int i = 1; i < s->operand_count; i++) {
    int from = s->sources[i];
    const px_operand *o = from < 0 ? NULL : &c->launch->operands[from];
    added = added && add_key(c, o && px__cuda_absent(o) ? INT32_MAX : from);
  }
  if (!added || !c->rows[k]) return added;
  bool known = is_computed(s->compute) && c->rows[k]->lambdas[s->compute];
  return known && add_arguments(c, k);
}

// Limits of a kernel's code, in steps times elements. MAX_CODE: beyond it a thread has one vector
// in flight instead of two. MAX_FOLD_CODE: for the vectors that a fold computes ahead, ROW_AHEAD
// to 2.
enum { MAX_CODE = 64, MAX_FOLD_CODE = 512, ROW_AHEAD = 8 };

// False if the chain cannot be one kernel: its steps then run one by one.
static bool describe(px__cuda_chain *c, const px_chain_step *fold) {
  const px_launch *l = c->launch;
  c->each = 8;
  if (l->operand_count > PX__CHAIN_OPERANDS) return false;
  if (!add_key(c, c->count | (int64_t)l->operand_count << 32)) return false;
  for (int i = 0; i < l->operand_count; i++) {
    bool ends = fold && (i == fold->stores || i == fold->shape);
    if (!ends && !add_operand(c, i)) return false;
  }
  for (int k = 0; k < c->count; k++)
    if (!add_step(c, k)) return false;
  c->flight = c->each * c->count > MAX_CODE ? 1 : 2;
  c->ahead = ROW_AHEAD;
  while (c->ahead > 2 && c->ahead * c->each * c->count > MAX_FOLD_CODE) c->ahead /= 2;
  return add_key(c, c->each | (int64_t)c->columns << 32) &&
         add_key(c, (int64_t)(uintptr_t)c->members);
}

// ---- launches

static px_status launch_loop(px__cuda_chain *c, CUkernel kernel) {
  void *params[] = {&c->params.n};
  int64_t tile = (int64_t)K_LOOP * c->flight * c->each, blocks = c->params.n / tile + 1;
  const unsigned grid[3] = {blocks > INT32_MAX ? (unsigned)INT32_MAX : (unsigned)blocks, 1, 1};
  const unsigned block[3] = {K_LOOP, 1, 1};
  return px__cuda_launch_function(c->launch, kernel, grid, block, 0, params);
}

static px_status run(bool *ran, px__cuda_chain *c) {
  CUkernel kernel = NULL;
  if (describe(c, NULL)) PX_CUDA_PASS(px__cuda_chain_kernel(&kernel, c));
  *ran = kernel != NULL;
  return kernel ? launch_loop(c, kernel) : PX_OK;
}

// The input of the fold at the end begins at address 0 (kernels/chain.cuh).
static px_status run_fold(bool *ran, px__cuda_chain *c, const px_chain_step *fold) {
  const px_operand *out = &c->launch->operands[fold->stores];
  px_operand in = c->launch->operands[fold->shape];
  const char *const *variants;
  k_fold *p = &c->params.fold;
  CUkernel kernel = NULL;
  in.data = NULL, in.immediate = false;
  PX_CUDA_PASS(
      px__cuda_fold_open(p, &variants, &c->members, fold->compute, row_of(fold->kernel), out, &in));
  c->columns = px__cuda_fold_columns(p);
  if (c->members && describe(c, fold)) PX_CUDA_PASS(px__cuda_chain_kernel(&kernel, c));
  *ran = kernel != NULL;
  if (!kernel) return PX_OK;
  return px__cuda_reduce(c->launch, p, "kernels_cuda_fold", variants, sizeof(double), kernel);
}

static void free_chain(px__cuda_chain **c) { free(*c); }

PX_CUDA_KERNEL(chain) {
  __attribute__((cleanup(free_chain))) px__cuda_chain *c = malloc(sizeof *c);
  bool ran = false;
  if (!c) PX_CUDA_FAIL(PX_NOMEM, "%s: out of memory", l->op);
  c->launch = l, c->steps = (const void *)args->steps.v.ints;
  c->count = (int)((size_t)args->steps.n * sizeof(int64_t) / sizeof *c->steps);
  c->word_count = c->key_count = 0, c->members = NULL, c->columns = false;
  const px_chain_step *fold = c->steps[c->count - 1].fold ? &c->steps[--c->count] : NULL;
  c->params.n = px_operand_numel(&l->operands[fold ? fold->shape : 0]);
  c->params.where = px__cuda_where(l);
  PX_CUDA_PASS(fold ? run_fold(&ran, c, fold) : run(&ran, c));
  return ran ? PX_OK : px__cuda_chain_steps(l, c->steps, c->count, fold);
}
