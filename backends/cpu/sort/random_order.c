// SPDX-License-Identifier: Apache-2.0
// randperm and multinomial. On the CPU randperm is a Fisher-Yates shuffle. On devices it sorts by
// random keys, with enough bits to make collisions rare, and shuffles equal keys, as PyTorch does.
#include "cpu/convert/dense.h"
#include "cpu/random/mt19937_draws.h"
#include "cpu/random/philox.h"
#include "kernel_args/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  BLOCK = 256,  // threads of a device block
  ROWS = 4      // rows of multinomial summed together
};

typedef struct keyed {
  uint64_t key;
  int64_t value;
} keyed;
static int by_key(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  return x->key != y->key ? (x->key < y->key ? -1 : 1)
                          : (x->value > y->value) - (x->value < y->value);
}
static int key_bits(int64_t n) {
  double x = (double)n, bits = ceil(log2(x - (6 * x * x + 1) / (log(0.9) * 12)));
  return bits < 64 ? (int)bits : 64;
}
// The key of element i: a draw of random_() over the full range of int32 or int64, two words per
// number.
static uint64_t key_of(const px_launch *l, int64_t stride, int64_t i, bool wide) {
  int64_t chunk = i / stride, thread = i % stride, lane = chunk % 2;
  px_philox4 w = px_philox(l->seed, (uint64_t)thread, l->offset + 4 * (uint64_t)(chunk / 2));
  uint64_t x = (uint64_t)w.v[2 * lane] << 32 | w.v[2 * lane + 1];
  return x % (wide ? UINT64_MAX : (uint64_t)UINT32_MAX);
}
// Shuffles a run of equal keys, with the random numbers of its first thread.
static void shuffle_run(const px_launch *l, keyed *run, int64_t first, int64_t count,
                        uint64_t offset) {
  uint64_t draw = 0;
  for (int64_t i = count - 1; i > 0; i--, draw++) {
    uint32_t word = px_philox(l->seed, (uint64_t)first, offset + draw / 4 * 4).v[draw % 4];
    int64_t r = word % (uint32_t)(i + 1);
    int64_t kept = run[i].value;
    run[i].value = run[r].value, run[r].value = kept;
  }
}
static void permute_philox(const px_launch *l, keyed *order, int64_t n, int64_t stride) {
  int bits = key_bits(n);
  uint64_t mask = bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
  for (int64_t i = 0; i < n; i++) {
    order[i].key = key_of(l, stride, i, bits > 32) & mask;
    order[i].value = i;
  }
  qsort(order, (size_t)n, sizeof *order, by_key);
  uint64_t shuffle_offset = l->offset + (uint64_t)((n - 1) / (stride * 2) + 1) * 4;
  for (int64_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && order[end].key == order[i].key;) end++;
    if (end - i > 1) shuffle_run(l, order + i, i, end - i, shuffle_offset);
  }
}
static void permute_mt(px_mt19937 *mt, keyed *order, int64_t n) {
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) order[i].value = i;
  for (px__steps s = {.n = n - 1}; px__draw_step(&s, mt);)
    for (int64_t i = s.begin; i < s.end; i++) {
      int64_t z = i + (int64_t)(px_mt19937_random32(mt) % (uint64_t)(n - i)), kept = order[i].value;
      order[i].value = order[z].value, order[z].value = kept;
    }
}
PX_KERNEL(randperm_fill) {
  px__dense d = {.launch = l};
  int dtype = args->out->dtype;
  int64_t n = px_operand_numel(args->out);
  char *to = px__dense_out(&d, args->out, dtype);
  keyed *order = d.failed ? NULL : px__scratch_new(l, (size_t)n * sizeof *order);
  if (order && n) {
    if (l->mt19937)
      permute_mt(l->mt19937, order, n);
    else
      permute_philox(l, order, n, l->blocks * BLOCK);
    size_t item = px_dtype_size((px_dtype)dtype);
    for (px__steps s = {.n = n}; px__step(&s);)
      for (int64_t i = s.begin; i < s.end; i++) {
        if (dtype == PX_INT64)
          ((int64_t *)(void *)to)[i] = order[i].value;
        else
          px_scalar_store(px_int(order[i].value), (px_dtype)dtype, to + (size_t)i * item);
      }
  }
  free(order);
  px__dense_close(&d);
  return PX_OK;
}

// ---- multinomial

typedef struct source {
  const px_launch *l;
  px_mt19937 *mt;
  bool wide;  // device numbers of the exponential distribution are doubles
  int64_t drawn;
} source;
// The next number of the exponential distribution; on devices, that of exponential_().
static double next_exponential(source *s) {
  if (s->mt) return -log1p(-px_mt19937_uniform_double(s->mt));
  int64_t threads = s->l->blocks * BLOCK, lanes = s->wide ? 2 : 4, i = s->drawn++ / threads;
  uint64_t thread = (uint64_t)((s->drawn - 1) % threads), offset = 4 * (uint64_t)(i / lanes);
  px_philox4 w = px_philox(s->l->seed, thread, s->l->offset + offset);
  int64_t lane = i % lanes;
  double u = s->wide ? px_philox_uniform_double(w.v[2 * lane], w.v[2 * lane + 1])
                     : (double)px_philox_uniform_float(w.v[lane]);
  return px__philox_exponential(u, s->wide);
}
// Draw k of a row; on devices, each has a thread.
static double next_uniform(source *s, int64_t row, int64_t count, int64_t k) {
  if (s->mt) return px_mt19937_uniform_double(s->mt);
  int64_t threads = (count + 127) / 128 * 128;
  px_philox4 w = px_philox(s->l->seed, (uint64_t)(row * threads + k), s->l->offset);
  return px_philox_uniform_float(w.v[0]);
}
#define BOTH "cpu/random/multinomial_rows.h"
#include "cpu/vector/for_f32_f64.h"

PX_KERNEL(multinomial) {
  px__dense d = {.launch = l};
  const px_operand *self = args->self;
  int compute = px__compute_of(self->dtype);
  int64_t n = self->sizes[self->ndim - 1], count = args->num_samples;
  int64_t rows = n ? px_operand_numel(self) / n : 0;
  int64_t *to = px__dense_out(&d, args->out, args->out->dtype);
  const void *weights = px__dense_in(&d, self, compute);
  // A single draw uses exponential races, as in PyTorch.
  bool again = args->replacement && count > 1;
  void *scratch = d.failed ? NULL : px__scratch_new(l, (size_t)n * ROWS * sizeof(double));
  source s = {.l = l, .mt = l->mt19937, .wide = self->dtype == PX_FLOAT64};
  if (scratch && compute == PX_FLOAT64)
    choose_f64(&s, weights, n, rows, again, scratch, to, count);
  else if (scratch)
    choose_f32(&s, weights, n, rows, again, scratch, to, count);
  free(scratch);
  px__dense_close(&d);
  return PX_OK;
}
