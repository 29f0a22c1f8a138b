// SPDX-License-Identifier: Apache-2.0
// Random orders and choices: randperm and multinomial. On the CPU randperm is a Fisher-Yates
// shuffle; on devices it sorts by random keys of as many bits as keep collisions rare, and shuffles
// equal keys, as PyTorch does.
#include "cpu/dense.h"
#include "cpu/mt19937.h"
#include "cpu/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 };

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
// The key of element i: what random_() over the whole range of an int32 or int64 draws, two words a
// number.
static uint64_t key_of(const px_launch *l, int64_t stride, int64_t i, bool wide) {
  int64_t chunk = i / stride, thread = i % stride, lane = chunk % 2;
  px_philox4 w = px_philox(l->seed, (uint64_t)thread, l->offset + 4 * (uint64_t)(chunk / 2));
  uint64_t x = (uint64_t)w.v[2 * lane] << 32 | w.v[2 * lane + 1];
  return x % (wide ? UINT64_MAX : (uint64_t)UINT32_MAX);
}
// Shuffles the elements of one run of equal keys, with the random numbers of its first thread.
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
static void permute_philox(const px_launch *l, keyed *order, int64_t n) {
  int bits = key_bits(n);
  int64_t stride = px_value_int(l->params[1]) * BLOCK;
  uint64_t mask = bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
  for (int64_t i = 0; i < n; i++) {
    order[i].key = key_of(l, stride, i, bits > 32) & mask;
    order[i].value = i;
  }
  qsort(order, (size_t)n, sizeof *order, by_key);
  uint64_t moved = l->offset + (uint64_t)((n - 1) / (stride * 2) + 1) * 4;
  for (int64_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && order[end].key == order[i].key;) end++;
    if (end - i > 1) shuffle_run(l, order + i, i, end - i, moved);
  }
}
static void permute_mt(px_mt19937 *mt, keyed *order, int64_t n) {
  for (int64_t i = 0; i < n; i++) order[i].value = i;
  px_mt19937_lock(mt);
  for (int64_t i = 0; i < n - 1; i++) {
    int64_t z = i + (int64_t)(px_mt19937_random32(mt) % (uint64_t)(n - i)), kept = order[i].value;
    order[i].value = order[z].value, order[z].value = kept;
  }
  px_mt19937_unlock(mt);
}
// randperm_fill_(self, generator)
PX_KERNEL(randperm_fill) {
  px__dense d[1];
  if (!px__dense_open(d, l, "W", PX_FLOAT32)) return PX_OK;
  int64_t n = d->n;
  keyed *order = px__scratch_new(l, (size_t)n * sizeof *order);
  if (order && n) {
    if (l->mt19937)
      permute_mt(l->mt19937, order, n);
    else
      permute_philox(l, order, n);
    size_t item = px_dtype_size((px_dtype)d->dtype);
    for (int64_t i = 0; i < n; i++) {
      if (d->dtype == PX_INT64)
        ((int64_t *)d->at)[i] = order[i].value;
      else
        px_scalar_store(px_int(order[i].value), (px_dtype)d->dtype,
                        (char *)d->at + (size_t)i * item);
    }
  }
  free(order);
  px__dense_close(d, "W");
  return PX_OK;
}

// ---- multinomial

typedef struct source {
  const px_launch *l;
  px_mt19937 *mt;
  uint64_t drawn;
} source;
static double next_uniform(source *s) {
  if (s->mt) return px_mt19937_uniform_double(s->mt);
  uint64_t i = s->drawn++;
  px_philox4 w = px_philox(s->l->seed, i, s->l->offset);
  return px_philox_uniform_double(w.v[0], w.v[1]) * (1 - 0x1p-53);
}
// Draws with replacement by searching the running sums.
static void draw_again(source *s, const double *p, double *sums, int64_t n, int64_t *to,
                       int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < n; i++) sums[i] = total += p[i];
  for (int64_t k = 0; k < count; k++) {
    double u = next_uniform(s) * total;
    int64_t low = 0, high = n - 1;
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (sums[middle] <= u)
        low = middle + 1;
      else
        high = middle;
    }
    to[k] = low;
  }
}
// Draws without replacement: the largest of p / (an exponential number).
static void draw_once(source *s, const double *p, double *race, int64_t n, int64_t *to,
                      int64_t count) {
  for (int64_t i = 0; i < n; i++) race[i] = p[i] / -log1p(-next_uniform(s));
  for (int64_t k = 0; k < count; k++) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
      if (race[i] > race[best]) best = i;
    to[k] = best;
    race[best] = -1;
  }
}
static px_fault_code fault_of(const double *p, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!(p[i] >= 0) || isinf(p[i])) return PX_FAULT_WEIGHTS;
    total += p[i];
  }
  return total > 0 ? PX_FAULT_NONE : PX_FAULT_NO_WEIGHT;
}
// multinomial(self, num_samples, replacement, generator)
PX_KERNEL(multinomial) {
  static const char spec[] = "Wr";
  px__dense d[2];
  if (!px__dense_open(d, l, spec, PX_FLOAT64)) return PX_OK;
  int64_t n = l->operands[1].sizes[l->operands[1].ndim - 1], count = px__param_int(l, 1);
  int64_t rows = n ? d[1].n / n : 0;
  double *room = px__scratch_new(l, (size_t)n * sizeof *room);
  source s = {.l = l, .mt = l->mt19937};
  if (s.mt) px_mt19937_lock(s.mt);
  for (int64_t r = 0; room && r < rows; r++) {
    const double *p = (const double *)d[1].at + r * n;
    int64_t *to = (int64_t *)d[0].at + r * count;
    px_fault_code wrong = fault_of(p, n);
    if (wrong)
      px_kernel_fault(l, wrong, 0, 0, 0);
    else if (px__param_int(l, 2))
      draw_again(&s, p, room, n, to, count);
    else
      draw_once(&s, p, room, n, to, count);
  }
  if (s.mt) px_mt19937_unlock(s.mt);
  free(room);
  px__dense_close(d, spec);
  return PX_OK;
}
