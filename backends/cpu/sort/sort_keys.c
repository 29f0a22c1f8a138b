// SPDX-License-Identifier: Apache-2.0
// Sort keys: elements as integers of the same order. Sorted by vectors if available, otherwise by
// digits from the lowest (radix sort); the k-th is selected by digits from the highest. No branch
// depends on comparisons, so no input is slow.
#include "cpu/threads/buffer.h"
#include "cpu/sort/sort_keys.h"
#include "cpu/threads/threads.h"

#include <math.h>
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
// fp16 and bf16: magnitudes above infinity are NaN.
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
LOAD(BOOL, uint8_t, x != 0)  // any nonzero byte is true
LOAD(UINT8, uint8_t, x)
LOAD(INT8, int8_t, x)
LOAD(INT16, int16_t, x)
LOAD(INT32, int32_t, x)
LOAD(INT64, int64_t, x)
LOAD(UINT16, uint16_t, x)
LOAD(UINT32, uint32_t, x)
LOAD(UINT64, uint64_t, x ^ (uint64_t)1 << 63)
LOAD(FLOAT16, uint16_t, key_16(x, 0x7c00))
LOAD(BFLOAT16, uint16_t, key_16(x, 0x7f80))
LOAD(FLOAT32, float, key_f32(x))
LOAD(FLOAT64, double, key_f64(x))

void px__keys_load(int64_t *keys, const char *at, int64_t stride, int dtype, bool down, int64_t n) {
  typedef void (*load_fn)(int64_t *, const char *, int64_t, int64_t, int64_t);
  static const load_fn loads[PX_DTYPE_COUNT] = {
#define XX(name, ...) load_##name,
      PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
          [PX_UINT16] = load_UINT16,
      [PX_UINT32] = load_UINT32,
      [PX_UINT64] = load_UINT64,
  };
  for (px__steps s = {.n = n}; px__step(&s);)
    loads[dtype](keys + s.begin, at + s.begin * stride, stride, down ? -1 : 0, s.end - s.begin);
}

// Elements from keys; zeros lose their sign, NaN its payload.
#define STORE(NAME, T, BITS) \
  static void store_##NAME(const int64_t *restrict keys, char *at, int64_t stride, int64_t n) { \
    T *row = (void *)at; \
    for (int64_t i = 0; stride == sizeof(T) && i < n; i++) { \
      T key = (T)keys[i]; \
      row[i] = (T)(BITS); \
    } \
    for (int64_t i = 0; stride != sizeof(T) && i < n; i++) { \
      T key = (T)keys[i]; \
      *(T *)(void *)(at + i * stride) = (T)(BITS); \
    } \
  }
STORE(8, int8_t, key)
STORE(16, int16_t, key)
STORE(32, int32_t, key)
STORE(64, int64_t, key)
STORE(half, int16_t, key < 0 ? (-1 - key) | 0x8000 : key)
STORE(float, int32_t, key ^ ((key >> 31) & INT32_MAX))
STORE(double, int64_t, key ^ ((key >> 63) & INT64_MAX))
typedef void (*store_fn)(const int64_t *, char *, int64_t, int64_t);
static store_fn store_of(int dtype) {
  if (dtype == PX_FLOAT32) return store_float;
  if (dtype == PX_FLOAT64) return store_double;
  if (px_dtype_is_float((px_dtype)dtype)) return store_half;
  int64_t item = px__cpu_item[dtype];
  return item == 1 ? store_8 : item == 2 ? store_16 : item == 4 ? store_32 : store_64;
}

// ---- digits

enum {
  MAX_INSERTION = 48,    // max keys of an insertion sort
  MIN_WIDE_DIGIT = 8192  // min keys for a wide digit
};

static int bits_of(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }
// Digit width. A wide digit pays off for long arrays, but only in a single pass: it scatters
// elements to many places at once.
static int digit_for(int64_t n) {
  return n < MIN_WIDE_DIGIT ? PX__KEYS_DIGIT : PX__KEYS_WIDE_DIGIT;
}

// Min and max of n keys. Returns false if interrupted.
static bool min_max_of(const int64_t *keys, int64_t n, int64_t *min, int64_t *max) {
  int64_t lo = keys[0], hi = keys[0];
  px__steps s = {.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) {
      lo = keys[i] < lo ? keys[i] : lo;
      hi = keys[i] > hi ? keys[i] : hi;
    }
  *min = lo, *max = hi;
  return px__steps_done(&s);
}

// Stable radix sort by bits [shift, shift + bits), the highest nonzero ones. Returns the array that
// holds the result; NULL: interrupted.
static uint64_t *sort_digits(uint64_t *a, uint64_t *scratch, int64_t n, int shift, int bits,
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
    if (to[a[0] >> at & mask] == n) continue;  // the digit is the same for all
    for (int64_t b = 0; b < buckets; b++) {
      int64_t count = to[b];
      to[b] = sum, sum += count;
    }
    for (s = (px__steps){.n = n}; px__step(&s);)
      for (int64_t i = s.begin; i < s.end; i++) scratch[to[a[i] >> at & mask]++] = a[i];
    if (!px__steps_done(&s)) return NULL;
    uint64_t *swap = a;
    a = scratch, scratch = swap;
  }
  return a;
}

// ---- words of a key and an index in the lower bits. No two are equal, so any sort of words is a
// stable sort of keys.

#if defined(__AVX2__)
enum { HAS_VECTORS = true };
#else
enum { HAS_VECTORS = false };
// Never called: placeholders without vectors.
#define UNAVAILABLE(NAME, T) \
  static bool px__sort_##NAME(const T *from, T *to, T *scratch, int arrays, int64_t n) { \
    return from && to && scratch && arrays && n; \
  }
UNAVAILABLE(i32, int32_t)
UNAVAILABLE(i64, int64_t)
UNAVAILABLE(f32, int32_t)
UNAVAILABLE(f64, int64_t)
#endif
// Polls for interrupts, except for short arrays.
static bool interrupted(int64_t n) { return n > PX__STEP && px__cpu_stopped(); }
// Vectors, unless two digits suffice for many keys: that is faster than partitioning.
static bool use_vectors(int64_t n, int bits) {
  return HAS_VECTORS && (n < MIN_WIDE_DIGIT || bits > 16);
}

// Sorts words of so many bits, the highest possibly a sign; they differ from bit `shift` on.
static uint64_t *sort_words(uint64_t *a, uint64_t *scratch, int64_t n, int shift, int bits,
                            px__key_counts *counts) {
  if (!use_vectors(n, bits)) return sort_digits(a, scratch, n, shift, bits, counts);
  return px__sort_i64((int64_t *)a, (int64_t *)a, (int64_t *)scratch, 1, n) ? a : NULL;
}

static void insertion_sort(const int64_t *keys, int64_t n, uint64_t *indices, uint64_t mask) {
  for (int64_t i = 1; i < n; i++) {
    uint64_t index = indices[i];
    int64_t j = i, key = keys[index & mask];
    for (; j > 0 && keys[indices[j - 1] & mask] > key; j--) indices[j] = indices[j - 1];
    indices[j] = index;
  }
}
// So few keys that each is compared with all before it, branch-free.
enum { MAX_RANKED = 8 };
static void rank_sort(const int64_t *keys, int64_t n, int64_t *order) {
  int64_t rank[MAX_RANKED] = {0};
  for (int64_t i = 1; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      bool after = keys[j] > keys[i];
      rank[j] += after, rank[i] += !after;
    }
  for (int64_t i = 0; i < n; i++) order[rank[i]] = i;
}
// Sorts words with equal upper bits, in index order, by their full keys.
static bool order_run(const int64_t *keys, int64_t n, uint64_t *words, uint64_t mask,
                      px__key_counts *counts) {
  if (n <= MAX_INSERTION) return insertion_sort(keys, n, words, mask), true;
  int64_t *own = malloc((size_t)n * 3 * sizeof *own), *order = NULL;
  if (!own) return false;
  uint64_t *kept = (uint64_t *)own + 2 * n;
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) kept[i] = words[i], own[i] = keys[words[i] & mask];
  if (!interrupted(n)) order = px__keys_order(own, n, own + n, counts);
  for (px__steps s = {.n = order ? n : 0}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) words[i] = kept[order[i]];
  free(own);
  return order != NULL;
}
static bool order_runs(const int64_t *keys, int64_t n, uint64_t *words, int index_bits,
                       px__key_counts *counts) {
  uint64_t mask = ((uint64_t)1 << index_bits) - 1;
  int64_t work = 0;
  for (int64_t i = 0, next; i < n; i = next) {
    for (next = i + 1; next < n && (words[next] ^ words[i]) <= mask; next++) continue;
    if (px__work_stopped(&work, next - i)) return false;
    if (next - i > 1 && !order_run(keys, next - i, words + i, mask, counts)) return false;
  }
  return true;
}

// If a word cannot hold the full key, its lower bits are sorted afterwards.
static uint64_t *order_words(int64_t *keys, int64_t n, uint64_t *a, uint64_t *scratch, int64_t min,
                             int key_bits, px__key_counts *counts) {
  int index_bits = bits_of((uint64_t)n - 1), max = 64 - index_bits;
  int left = key_bits > max ? key_bits - max : 0, bits = key_bits - left;
  uint64_t sign = use_vectors(n, bits) ? (uint64_t)1 << 63 : 0;
  px__steps s = {.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) {
      uint64_t key = ((uint64_t)keys[i] - (uint64_t)min) >> left;
      a[i] = (key << index_bits | (uint64_t)i) ^ sign;
    }
  if (!px__steps_done(&s)) return NULL;
  if (bits) a = sort_words(a, scratch, n, index_bits, bits, counts);
  if (!a || (left && !order_runs(keys, n, a, index_bits, counts))) return NULL;
  uint64_t indices = ((uint64_t)1 << index_bits) - 1;
  s = (px__steps){.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) a[i] &= indices;
  return px__steps_done(&s) ? a : NULL;
}

int64_t *px__keys_order(int64_t *keys, int64_t n, int64_t *scratch, px__key_counts *counts) {
  int64_t min, max;
  uint64_t *a = (uint64_t *)scratch, *more = NULL;
  if (n <= MAX_RANKED) return rank_sort(keys, n, scratch), scratch;
  if (!HAS_VECTORS && n <= MAX_INSERTION) {
    for (int64_t i = 0; i < n; i++) scratch[i] = i;
    return insertion_sort(keys, n, a, UINT64_MAX), scratch;
  }
  if (!min_max_of(keys, n, &min, &max)) return NULL;
  int key_bits = bits_of((uint64_t)max - (uint64_t)min);
  // Keys that are read only once can be overwritten.
  bool read_once = key_bits + bits_of((uint64_t)n - 1) <= 64;
  if (!read_once && !(more = malloc((size_t)n * sizeof *more))) return NULL;
  uint64_t *sorted =
      order_words(keys, n, a, read_once ? (uint64_t *)keys : more, min, key_bits, counts);
  if (sorted && sorted == more) {
    for (px__steps s = {.n = n}; px__step(&s);)
      memcpy(a + s.begin, more + s.begin, (size_t)(s.end - s.begin) * sizeof *a);
    sorted = interrupted(n) ? NULL : a;
  }
  free(more);
  return (int64_t *)sorted;
}

// ---- sorting of values

enum { BLOCK = 512 };

// Sorted keys: 32-bit, 64-bit, or the elements themselves.
typedef struct sorted_keys {
  const int32_t *narrow;
  const int64_t *wide;
  const float *floats;
  const double *doubles;
  int64_t n;
} sorted_keys;
static int64_t key_at(const sorted_keys *s, int64_t i) {
  if (s->floats) return key_f32(s->floats[i]);
  if (s->doubles) return key_f64(s->doubles[i]);
  return s->narrow ? s->narrow[i] : s->wide[i];
}
static int64_t count_below(const sorted_keys *s, int64_t key) {
  int64_t first = 0;
  for (int64_t left = s->n; left > 0;) {
    int64_t half = left / 2, key_there = key_at(s, first + half);
    first = key_there < key ? first + half + 1 : first;
    left = key_there < key ? left - half - 1 : half;
  }
  return first;
}

// Floats with a given key: zero or NaN. The key loses their bits, so they are copied from the
// input.
typedef struct special {
  int64_t key, before, count;
} special;
// True if any of n elements is zero or NaN.
#define MAY_BE_SPECIAL(T) \
  static bool may_be_special_##T(const char *at, int64_t n) { \
    const T *x = (const void *)at; \
    int found = 0; \
    for (int64_t k = 0; k < n; k++) found |= !((x[k] < 0) | (x[k] > 0)); \
    return found; \
  }
MAY_BE_SPECIAL(float)
MAY_BE_SPECIAL(double)
static bool may_be_special(const px__line *from, const char *at, int64_t n) {
  if (from->stride != px__cpu_item[from->dtype]) return true;
  if (from->dtype == PX_FLOAT32) return may_be_special_float(at, n);
  return from->dtype != PX_FLOAT64 || may_be_special_double(at, n);
}
static bool restore_special(const special *a, const px__line *to, const px__line *from, int64_t n) {
  PX__BUFFER(int64_t, keys, BLOCK);
  int64_t item = px__cpu_item[from->dtype], work = 0;
  char *at = to->at + a->before * to->stride, *end = at + a->count * to->stride;
  for (int64_t i = 0; i < n && at != end; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    const char *block_start = from->at + i * from->stride;
    if (px__work_stopped(&work, count)) return false;
    if (!may_be_special(from, block_start, count)) continue;
    px__keys_load(keys, block_start, from->stride, from->dtype, false, count);
    for (int64_t k = 0; k < count && at != end; k++)
      if (keys[k] == a->key) {
        memcpy(at, block_start + k * from->stride, (size_t)item);
        at += to->stride;
      }
  }
  return true;
}

static bool restore_zeros_and_nans(const sorted_keys *s, const px__line *to, const px__line *from) {
  int64_t nan = 0;
  char one[8];
  px_scalar_store(px_float(NAN), (px_dtype)from->dtype, one);
  px__keys_load(&nan, one, 8, from->dtype, false, 1);
  special zeros = {.key = 0, .before = count_below(s, 0)};
  special nans = {.key = nan, .before = count_below(s, nan)};
  zeros.count = count_below(s, 1) - zeros.before, nans.count = s->n - nans.before;
  return restore_special(&zeros, to, from, s->n) && restore_special(&nans, to, from, s->n);
}

static bool load_narrow(int32_t *keys, const px__line *from, int64_t n) {
  PX__BUFFER(int64_t, block, BLOCK);
  int64_t work = 0;
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    const char *block_start = from->at + i * from->stride;
    if (px__work_stopped(&work, count)) return false;
    px__keys_load(block, block_start, from->stride, from->dtype, false, count);
    for (int64_t k = 0; k < count; k++) keys[i + k] = (int32_t)block[k];
  }
  return true;
}
static bool store_sorted(const sorted_keys *s, const px__line *to, const px__line *from) {
  PX__BUFFER(int64_t, block, BLOCK);
  int64_t work = 0;
  store_fn store = store_of(from->dtype);
  for (int64_t i = 0; i < s->n; i += BLOCK) {
    int64_t count = s->n - i < BLOCK ? s->n - i : BLOCK;
    const int64_t *keys = s->narrow ? block : s->wide + i;
    char *block_start = to->at + i * to->stride;
    if (px__work_stopped(&work, count)) return false;
    for (int64_t k = 0; s->narrow && k < count; k++) block[k] = s->narrow[i + k];
    store(keys, block_start, to->stride, count);
  }
  return !px_dtype_is_float((px_dtype)from->dtype) || restore_zeros_and_nans(s, to, from);
}

// Counting sort for few different keys; NULL: interrupted.
static int64_t *count_keys(int64_t *keys, int64_t n, int64_t min, int64_t buckets,
                           px__key_counts *counts) {
  int64_t *of = counts->of, at = 0;
  memset(of, 0, (size_t)buckets * sizeof *of);
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) of[keys[i] - min]++;
  if (interrupted(n)) return NULL;
  for (int64_t b = 0; b < buckets; b++)
    for (px__steps s = {.n = of[b]}; px__step(&s); at += s.end - s.begin)
      for (int64_t i = s.begin; i < s.end; i++) keys[at + i - s.begin] = min + b;
  return at == n ? keys : NULL;
}
static int64_t *sort_keys(int64_t *keys, int64_t n, int64_t *scratch, px__key_counts *counts) {
  int64_t min, max;
  if (!min_max_of(keys, n, &min, &max)) return NULL;
  int bits = bits_of((uint64_t)max - (uint64_t)min);
  if (bits == 0) return keys;
  if (bits <= digit_for(n) && n > MAX_INSERTION)
    return count_keys(keys, n, min, (int64_t)1 << bits, counts);
  if (HAS_VECTORS) return px__sort_i64(keys, keys, scratch, 2, n) ? keys : NULL;
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      keys[i] = (int64_t)((uint64_t)keys[i] - (uint64_t)min);
  if (interrupted(n)) return NULL;
  uint64_t *sorted = sort_digits((uint64_t *)keys, (uint64_t *)scratch, n, 0, bits, counts);
  for (px__steps s = {.n = sorted ? n : 0}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) sorted[i] += (uint64_t)min;
  return interrupted(n) ? NULL : (int64_t *)sorted;
}

// True if the line is contiguous and its dtype is sortable by vectors.
static bool is_sortable_row(const px__line *x) {
  bool whole = x->dtype == PX_INT32 || x->dtype == PX_INT64;
  bool known = whole || x->dtype == PX_FLOAT32 || x->dtype == PX_FLOAT64;
  return known && x->stride == px__cpu_item[x->dtype];
}
// True for int64 with few different values, for which a counting sort is faster.
static bool has_few_values(const px__line *from, int64_t n) {
  int64_t min, max;
  if (from->dtype != PX_INT64 || n <= MAX_INSERTION) return false;
  return min_max_of((const void *)from->at, n, &min, &max) &&
         bits_of((uint64_t)max - (uint64_t)min) <= digit_for(n);
}
static bool sort_row(const px__line *to, const px__line *from, int64_t n, int64_t *scratch) {
  const void *a = from->at;
  void *b = to->at, *arrays = scratch;
  if (from->dtype == PX_INT32) return px__sort_i32(a, b, arrays, 3, n);
  if (from->dtype == PX_INT64) return px__sort_i64(a, b, arrays, 3, n);
  bool wide = from->dtype == PX_FLOAT64;
  sorted_keys s = {.floats = wide ? NULL : b, .doubles = wide ? b : NULL, .n = n};
  bool done = wide ? px__sort_f64(a, b, arrays, 3, n) : px__sort_f32(a, b, arrays, 3, n);
  return done && restore_zeros_and_nans(&s, to, from);
}

bool px__values_sort(const px__line *to, const px__line *from, int64_t n, int64_t *scratch,
                     px__key_counts *counts) {
  int64_t item = px__cpu_item[from->dtype];
  sorted_keys s = {.n = n};
  if (HAS_VECTORS && is_sortable_row(from) && is_sortable_row(to) && !has_few_values(from, n))
    return sort_row(to, from, n, scratch);
  if (HAS_VECTORS && (item == 4 || item == 2)) {
    int32_t *keys = (int32_t *)scratch;
    if (!load_narrow(keys, from, n) || !px__sort_i32(keys, keys, keys + n, 3, n)) return false;
    s.narrow = keys;
  } else {
    px__keys_load(scratch, from->at, from->stride, from->dtype, false, n);
    s.wide = interrupted(n) ? NULL : sort_keys(scratch, n, scratch + n, counts);
    if (!s.wide) return false;
  }
  return store_sorted(&s, to, from);
}

// ---- selection

static int64_t select_by_insertion(int64_t *a, int64_t n, int64_t k, int64_t *below) {
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

bool px__keys_select(int64_t *out, const int64_t *keys, int64_t n, int64_t k, int64_t *scratch,
                     px__key_counts *counts, int64_t *below) {
  const int64_t *from = keys;
  *below = 0;
  for (;;) {
    if (n <= MAX_INSERTION) {
      memmove(scratch, from, (size_t)n * sizeof *scratch);
      *out = select_by_insertion(scratch, n, k, below);
      return true;
    }
    int64_t min, max, below_bucket = 0, bucket = 0, count = 0;
    if (!min_max_of(from, n, &min, &max)) return false;
    int bits = bits_of((uint64_t)max - (uint64_t)min), width = digit_for(n);
    *out = min;
    if (bits == 0) return true;
    int shift = bits > width ? bits - width : 0;
    int64_t *of = counts->of;
    memset(of, 0, sizeof *of << width);
    px__steps s = {.n = n};
    while (px__step(&s))
      for (int64_t i = s.begin; i < s.end; i++) of[((uint64_t)from[i] - (uint64_t)min) >> shift]++;
    if (!px__steps_done(&s)) return false;
    while (below_bucket + of[bucket] <= k) below_bucket += of[bucket++];
    *below += below_bucket;
    *out = (int64_t)((uint64_t)min + (uint64_t)bucket);
    if (shift == 0) return true;
    // Keeps the keys of the bucket; `scratch` never runs ahead of the reads.
    for (s = (px__steps){.n = n}; px__step(&s);)
      for (int64_t i = s.begin; i < s.end; i++) {
        int64_t x = from[i];
        bool in_bucket = (int64_t)(((uint64_t)x - (uint64_t)min) >> shift) == bucket;
        scratch[count] = x;
        count += in_bucket;
      }
    if (!px__steps_done(&s)) return false;
    from = scratch, n = count, k -= below_bucket;
  }
}
