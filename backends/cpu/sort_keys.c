// SPDX-License-Identifier: Apache-2.0
// Keys: elements as integers of the same order. They are sorted digit by digit from the lowest, and
// the k-th is found digit by digit from the highest. No branch depends on comparisons, so no input
// is slow.
#include "cpu/sort_keys.h"
#include "cpu/threads.h"

#include <stdlib.h>
#include <string.h>

// ---- keys of elements

static inline int64_t key_f32(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits ^= (bits >> 31) & INT32_MAX;
  bits = x == 0 ? 0 : bits;
  return x != x ? INT32_MAX : bits;
}
static inline int64_t key_f64(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits ^= (bits >> 63) & INT64_MAX;
  bits = x == 0 ? 0 : bits;
  return x != x ? INT64_MAX : bits;
}
// Of the half formats, where magnitudes beyond that of infinity are NaN.
static inline int64_t key_16(uint16_t x, int infinity) {
  int magnitude = x & 0x7fff, bits = x & 0x8000 ? -1 - magnitude : magnitude;
  bits = magnitude == 0 ? 0 : bits;
  return magnitude > infinity ? INT16_MAX : bits;
}

#define LOAD(NAME, T, KEY) \
  static void load_##NAME(int64_t *restrict keys, const char *at, int64_t stride, int64_t flip, \
                          int64_t n) { \
    if (stride == sizeof(T)) { \
      const T *e = (const void *)at; \
      for (int64_t i = 0; i < n; i++) { \
        T x = e[i]; \
        keys[i] = (int64_t)(KEY) ^ flip; \
      } \
      return; \
    } \
    for (int64_t i = 0; i < n; i++) { \
      T x = *(const T *)(const void *)(at + i * stride); \
      keys[i] = (int64_t)(KEY) ^ flip; \
    } \
  }
LOAD(BOOL, uint8_t, x != 0)  // any byte is a truth
LOAD(UINT8, uint8_t, x)
LOAD(INT8, int8_t, x)
LOAD(INT16, int16_t, x)
LOAD(INT32, int32_t, x)
LOAD(INT64, int64_t, x)
LOAD(FLOAT16, uint16_t, key_16(x, 0x7c00))
LOAD(BFLOAT16, uint16_t, key_16(x, 0x7f80))
LOAD(FLOAT32, float, key_f32(x))
LOAD(FLOAT64, double, key_f64(x))

void px__keys_load(int64_t *keys, const char *at, int64_t stride, int dtype, bool down, int64_t n) {
  typedef void (*load_fn)(int64_t *, const char *, int64_t, int64_t, int64_t);
  static const load_fn loads[PX_DTYPE_COMPUTED] = {
#define XX(name, ...) load_##name,
      PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
  };
  for (px__steps s = {.n = n}; px__step(&s);)
    loads[dtype](keys + s.begin, at + s.begin * stride, stride, down ? -1 : 0, s.end - s.begin);
}

// ---- digits

enum { FEW = 48, MANY = 8192 };

static int bits_of(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }
// Long arrays are worth the counters of a wide digit; but not that elements go to so many places
// at once, when it takes several passes anyway.
static int digit_for(int64_t n) { return n < MANY ? PX__KEYS_DIGIT : PX__KEYS_WIDE_DIGIT; }

// False: the call has been ended.
static bool range_of(const int64_t *keys, int64_t n, int64_t *least, int64_t *most) {
  int64_t lo = keys[0], hi = keys[0];
  px__steps s = {.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) {
      lo = keys[i] < lo ? keys[i] : lo;
      hi = keys[i] > hi ? keys[i] : hi;
    }
  *least = lo, *most = hi;
  return px__steps_done(&s);
}

// Sorts by the bits [shift, shift + bits), which are the highest that are set, stably; gives that
// of the two arrays that holds the result, or NULL if the call has been ended.
static uint64_t *sort_digits(uint64_t *a, uint64_t *room, int64_t n, int shift, int bits,
                             px__key_counts *counts) {
  int width = bits <= digit_for(n) ? bits : PX__KEYS_DIGIT, passes = (bits + width - 1) / width;
  width = (bits + passes - 1) / passes;
  int64_t buckets = (int64_t)1 << width;
  uint64_t mask = (uint64_t)buckets - 1;
  memset(counts->of, 0, (size_t)(passes * buckets) * sizeof *counts->of);
  px__steps s = {.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) {
      uint64_t key = a[i] >> shift;
      int64_t *of = counts->of;
      for (int p = 0; p < passes; p++, key >>= width, of += buckets) of[key & mask]++;
    }
  if (!px__steps_done(&s)) return NULL;
  for (int p = 0; p < passes; p++) {
    int64_t *to = counts->of + p * buckets, sum = 0;
    int at = shift + p * width;
    if (to[a[0] >> at & mask] == n) continue;  // all have this digit
    for (int64_t b = 0; b < buckets; b++) {
      int64_t here = to[b];
      to[b] = sum, sum += here;
    }
    for (s = (px__steps){.n = n}; px__step(&s);)
      for (int64_t i = s.begin; i < s.end; i++) room[to[a[i] >> at & mask]++] = a[i];
    if (!px__steps_done(&s)) return NULL;
    uint64_t *swap = a;
    a = room, room = swap;
  }
  return a;
}

// ---- sorting: the place of a key goes along in the lower bits of its word, as much of the key as
// there is room for in the upper ones. Longer keys take several rounds, the lower bits first.

typedef struct rounds {
  const int64_t *keys;
  int64_t n;
  uint64_t least;
  int key_bits, place_bits;
} rounds;

static uint64_t *sort_rounds(const rounds *r, uint64_t *a, uint64_t *room, px__key_counts *counts) {
  uint64_t places = ((uint64_t)1 << r->place_bits) - 1;
  int most = 64 - r->place_bits;
  for (px__steps s = {.n = r->n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) a[i] = (uint64_t)i;
  for (int from = 0; from < r->key_bits; from += most) {
    int bits = r->key_bits - from < most ? r->key_bits - from : most;
    for (px__steps s = {.n = r->n}; px__step(&s);)
      for (int64_t i = s.begin; i < s.end; i++) {
        uint64_t place = a[i] & places, key = ((uint64_t)r->keys[place] - r->least) >> from;
        a[i] = key << r->place_bits | place;
      }
    uint64_t *sorted = sort_digits(a, room, r->n, r->place_bits, bits, counts);
    if (!sorted) return NULL;
    if (sorted != a) room = a, a = sorted;
  }
  for (px__steps s = {.n = r->n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) a[i] &= places;
  return px__cpu_stopped() ? NULL : a;
}

static int64_t *order_few(const int64_t *keys, int64_t n, int64_t *places) {
  for (int64_t i = 0; i < n; i++) {
    int64_t j = i;
    for (; j > 0 && keys[places[j - 1]] > keys[i]; j--) places[j] = places[j - 1];
    places[j] = i;
  }
  return places;
}

int64_t *px__keys_order(int64_t *keys, int64_t n, int64_t *room, px__key_counts *counts) {
  int64_t least, most;
  if (n <= FEW) return order_few(keys, n, room);
  if (!range_of(keys, n, &least, &most)) return NULL;
  rounds r = {keys, n, (uint64_t)least, bits_of((uint64_t)most - (uint64_t)least),
              bits_of((uint64_t)n - 1)};
  uint64_t *a = (uint64_t *)room, *b = (uint64_t *)keys;
  if (r.key_bits > 64 - r.place_bits) {
    uint64_t *more = malloc((size_t)n * sizeof *more);
    if (!more) return NULL;
    uint64_t *sorted = sort_rounds(&r, a, more, counts);
    for (px__steps s = {.n = sorted == more ? n : 0}; px__step(&s);)
      memcpy(a + s.begin, more + s.begin, (size_t)(s.end - s.begin) * sizeof *a);
    free(more);
    return sorted && !px__cpu_stopped() ? room : NULL;
  }
  // One round reads each key but once: its array is the other half of the sorting.
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      a[i] = ((uint64_t)keys[i] - r.least) << r.place_bits | (uint64_t)i;
  if (r.key_bits) a = sort_digits(a, b, n, r.place_bits, r.key_bits, counts);
  if (!a) return NULL;
  uint64_t places = ((uint64_t)1 << r.place_bits) - 1;
  px__steps s = {.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) a[i] &= places;
  return px__steps_done(&s) ? (int64_t *)a : NULL;
}

// ---- choosing

static int64_t select_few(int64_t *a, int64_t n, int64_t k, int64_t *below) {
  for (int64_t i = 1; i < n; i++) {
    int64_t x = a[i], j = i;
    for (; j > 0 && a[j - 1] > x; j--) a[j] = a[j - 1];
    a[j] = x;
  }
  int64_t first = k;
  while (first > 0 && a[first - 1] == a[k]) first--;
  *below += first;
  return a[k];
}

bool px__keys_select(int64_t *out, const int64_t *keys, int64_t n, int64_t k, int64_t *room,
                     px__key_counts *counts, int64_t *below) {
  const int64_t *from = keys;
  *below = 0;
  for (;;) {
    if (n <= FEW) {
      memmove(room, from, (size_t)n * sizeof *room);
      *out = select_few(room, n, k, below);
      return true;
    }
    int64_t least, most, passed = 0, bucket = 0, count = 0;
    if (!range_of(from, n, &least, &most)) return false;
    int bits = bits_of((uint64_t)most - (uint64_t)least), width = digit_for(n);
    *out = least;
    if (bits == 0) return true;
    int shift = bits > width ? bits - width : 0;
    int64_t *of = counts->of;
    memset(of, 0, sizeof *of << width);
    px__steps s = {.n = n};
    while (px__step(&s))
      for (int64_t i = s.begin; i < s.end; i++)
        of[((uint64_t)from[i] - (uint64_t)least) >> shift]++;
    if (!px__steps_done(&s)) return false;
    while (passed + of[bucket] <= k) passed += of[bucket++];
    *below += passed;
    *out = (int64_t)((uint64_t)least + (uint64_t)bucket);
    if (shift == 0) return true;
    // Those of the bucket; the room is not behind what is read.
    for (s = (px__steps){.n = n}; px__step(&s);)
      for (int64_t i = s.begin; i < s.end; i++) {
        int64_t x = from[i];
        bool here = (int64_t)(((uint64_t)x - (uint64_t)least) >> shift) == bucket;
        room[count] = x;
        count += here;
      }
    if (!px__steps_done(&s)) return false;
    from = room, n = count, k -= passed;
  }
}
