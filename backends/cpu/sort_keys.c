// SPDX-License-Identifier: Apache-2.0
// Keys: elements as integers of the same order. They are sorted by vectors, where the variant has
// such, or digit by digit from the lowest; the k-th is found digit by digit from the highest. No
// branch depends on comparisons, so no input is slow.
#include "cpu/sort_keys.h"
#include "cpu/threads.h"

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

// The elements whose keys these are; but zeros have no sign, and there is one NaN.
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

// ---- words of a key and a place, the place in the lower bits: no two are equal, and so any way of
// sorting them gives the order that keeps equal keys as they were.

#if defined(__AVX2__)
enum { VECTORS = true };
#else
enum { VECTORS = false };
// Never called.
#define NEVER(NAME, T) \
  static bool px__sort_##NAME(const T *from, T *to, T *room, int rooms, int64_t n) { \
    return from && to && room && rooms && n; \
  }
NEVER(i32, int32_t)
NEVER(i64, int64_t)
NEVER(f32, int32_t)
NEVER(f64, int64_t)
#endif
// Short arrays do not ask.
static bool ended(int64_t n) { return n > PX__STEP && px__cpu_stopped(); }
// Two digits take less than the vectors' pivots, if there is something to count.
static bool by_vectors(int64_t n, int bits) { return VECTORS && (n < MANY || bits > 16); }

// Of words of so many bits, of which the highest may be a sign: those from `shift` on differ.
static uint64_t *sort_words(uint64_t *a, uint64_t *room, int64_t n, int shift, int bits,
                            px__key_counts *counts) {
  if (!by_vectors(n, bits)) return sort_digits(a, room, n, shift, bits, counts);
  return px__sort_i64((int64_t *)a, (int64_t *)a, (int64_t *)room, 1, n) ? a : NULL;
}

static void order_few(const int64_t *keys, int64_t n, uint64_t *places, uint64_t mask) {
  for (int64_t i = 1; i < n; i++) {
    uint64_t place = places[i];
    int64_t j = i, key = keys[place & mask];
    for (; j > 0 && keys[places[j - 1] & mask] > key; j--) places[j] = places[j - 1];
    places[j] = place;
  }
}
// Of so few that each is compared with all before it: nothing branches.
enum { RANKED = 8 };
static void order_ranked(const int64_t *keys, int64_t n, int64_t *order) {
  int64_t rank[RANKED] = {0};
  for (int64_t i = 1; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      bool after = keys[j] > keys[i];
      rank[j] += after, rank[i] += !after;
    }
  for (int64_t i = 0; i < n; i++) order[rank[i]] = i;
}
// Words whose upper bits are equal, in the order of their places, by the whole of their keys.
static bool order_run(const int64_t *keys, int64_t n, uint64_t *words, uint64_t mask,
                      px__key_counts *counts) {
  if (n <= FEW) return order_few(keys, n, words, mask), true;
  int64_t *own = malloc((size_t)n * 3 * sizeof *own), *order = NULL;
  if (!own) return false;
  uint64_t *kept = (uint64_t *)own + 2 * n;
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) kept[i] = words[i], own[i] = keys[words[i] & mask];
  if (!ended(n)) order = px__keys_order(own, n, own + n, counts);
  for (px__steps s = {.n = order ? n : 0}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) words[i] = kept[order[i]];
  free(own);
  return order != NULL;
}
static bool order_runs(const int64_t *keys, int64_t n, uint64_t *words, int place_bits,
                       px__key_counts *counts) {
  uint64_t mask = ((uint64_t)1 << place_bits) - 1;
  int64_t work = 0;
  for (int64_t i = 0, next; i < n; i = next) {
    for (next = i + 1; next < n && (words[next] ^ words[i]) <= mask; next++) continue;
    if (px__work_stopped(&work, next - i)) return false;
    if (next - i > 1 && !order_run(keys, next - i, words + i, mask, counts)) return false;
  }
  return true;
}

// Where a word has no room for the whole key, its lower bits come later.
static uint64_t *order_words(int64_t *keys, int64_t n, uint64_t *a, uint64_t *room, int64_t least,
                             int key_bits, px__key_counts *counts) {
  int place_bits = bits_of((uint64_t)n - 1), most = 64 - place_bits;
  int left = key_bits > most ? key_bits - most : 0, bits = key_bits - left;
  uint64_t sign = by_vectors(n, bits) ? (uint64_t)1 << 63 : 0;
  px__steps s = {.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) {
      uint64_t key = ((uint64_t)keys[i] - (uint64_t)least) >> left;
      a[i] = (key << place_bits | (uint64_t)i) ^ sign;
    }
  if (!px__steps_done(&s)) return NULL;
  if (bits) a = sort_words(a, room, n, place_bits, bits, counts);
  if (!a || (left && !order_runs(keys, n, a, place_bits, counts))) return NULL;
  uint64_t places = ((uint64_t)1 << place_bits) - 1;
  s = (px__steps){.n = n};
  while (px__step(&s))
    for (int64_t i = s.begin; i < s.end; i++) a[i] &= places;
  return px__steps_done(&s) ? a : NULL;
}

int64_t *px__keys_order(int64_t *keys, int64_t n, int64_t *room, px__key_counts *counts) {
  int64_t least, most;
  uint64_t *a = (uint64_t *)room, *more = NULL;
  if (n <= RANKED) return order_ranked(keys, n, room), room;
  if (!VECTORS && n <= FEW) {
    for (int64_t i = 0; i < n; i++) room[i] = i;
    return order_few(keys, n, a, UINT64_MAX), room;
  }
  if (!range_of(keys, n, &least, &most)) return NULL;
  int key_bits = bits_of((uint64_t)most - (uint64_t)least);
  // What is read once can be overwritten.
  bool once = key_bits + bits_of((uint64_t)n - 1) <= 64;
  if (!once && !(more = malloc((size_t)n * sizeof *more))) return NULL;
  uint64_t *sorted =
      order_words(keys, n, a, once ? (uint64_t *)keys : more, least, key_bits, counts);
  if (sorted && sorted == more) {
    for (px__steps s = {.n = n}; px__step(&s);)
      memcpy(a + s.begin, more + s.begin, (size_t)(s.end - s.begin) * sizeof *a);
    sorted = ended(n) ? NULL : a;
  }
  free(more);
  return (int64_t *)sorted;
}

// ---- values alone

enum { BLOCK = 512 };

// Sorted keys: 32 bits of each, or all; or the elements that they stand for.
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
    int64_t half = left / 2, met = key_at(s, first + half);
    first = met < key ? first + half + 1 : first;
    left = met < key ? left - half - 1 : half;
  }
  return first;
}

// Of floats, the elements that have this key: which they were is lost in it, so they are taken from
// where they were.
typedef struct alike {
  int64_t key, before, count;
} alike;
// Whether some of n are zero or NaN.
#define BRINGS(T) \
  static bool brings_##T(const char *at, int64_t n) { \
    const T *x = (const void *)at; \
    int found = 0; \
    for (int64_t k = 0; k < n; k++) found |= !((x[k] < 0) | (x[k] > 0)); \
    return found; \
  }
BRINGS(float)
BRINGS(double)
static bool brings(const px__line *from, const char *at, int64_t n) {
  if (from->stride != px__cpu_item[from->dtype]) return true;
  if (from->dtype == PX_FLOAT32) return brings_float(at, n);
  return from->dtype != PX_FLOAT64 || brings_double(at, n);
}
static bool bring_back(const alike *a, const px__line *to, const px__line *from, int64_t n) {
  int64_t keys[BLOCK], item = px__cpu_item[from->dtype], work = 0;
  char *at = to->at + a->before * to->stride, *end = at + a->count * to->stride;
  for (int64_t i = 0; i < n && at != end; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    const char *here = from->at + i * from->stride;
    if (px__work_stopped(&work, count)) return false;
    if (!brings(from, here, count)) continue;
    px__keys_load(keys, here, from->stride, from->dtype, false, count);
    for (int64_t k = 0; k < count && at != end; k++)
      if (keys[k] == a->key) {
        memcpy(at, here + k * from->stride, (size_t)item);
        at += to->stride;
      }
  }
  return true;
}

static bool bring_back_all(const sorted_keys *s, const px__line *to, const px__line *from) {
  int64_t nan = 0;
  char one[8];
  px_scalar_store(px_float(NAN), (px_dtype)from->dtype, one);
  px__keys_load(&nan, one, 8, from->dtype, false, 1);
  alike zeros = {.key = 0, .before = count_below(s, 0)};
  alike nans = {.key = nan, .before = count_below(s, nan)};
  zeros.count = count_below(s, 1) - zeros.before, nans.count = s->n - nans.before;
  return bring_back(&zeros, to, from, s->n) && bring_back(&nans, to, from, s->n);
}

static bool load_narrow(int32_t *keys, const px__line *from, int64_t n) {
  int64_t block[BLOCK], work = 0;
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t count = n - i < BLOCK ? n - i : BLOCK;
    const char *here = from->at + i * from->stride;
    if (px__work_stopped(&work, count)) return false;
    px__keys_load(block, here, from->stride, from->dtype, false, count);
    for (int64_t k = 0; k < count; k++) keys[i + k] = (int32_t)block[k];
  }
  return true;
}
static bool store_sorted(const sorted_keys *s, const px__line *to, const px__line *from) {
  int64_t block[BLOCK], work = 0;
  store_fn store = store_of(from->dtype);
  for (int64_t i = 0; i < s->n; i += BLOCK) {
    int64_t count = s->n - i < BLOCK ? s->n - i : BLOCK;
    const int64_t *keys = s->narrow ? block : s->wide + i;
    char *here = to->at + i * to->stride;
    if (px__work_stopped(&work, count)) return false;
    for (int64_t k = 0; s->narrow && k < count; k++) block[k] = s->narrow[i + k];
    store(keys, here, to->stride, count);
  }
  return !px_dtype_is_float((px_dtype)from->dtype) || bring_back_all(s, to, from);
}

// By counting, where there are few different keys; NULL: the call has been ended.
static int64_t *count_keys(int64_t *keys, int64_t n, int64_t least, int64_t buckets,
                           px__key_counts *counts) {
  int64_t *of = counts->of, at = 0;
  memset(of, 0, (size_t)buckets * sizeof *of);
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) of[keys[i] - least]++;
  if (ended(n)) return NULL;
  for (int64_t b = 0; b < buckets; b++)
    for (px__steps s = {.n = of[b]}; px__step(&s); at += s.end - s.begin)
      for (int64_t i = s.begin; i < s.end; i++) keys[at + i - s.begin] = least + b;
  return at == n ? keys : NULL;
}
static int64_t *sort_keys(int64_t *keys, int64_t n, int64_t *room, px__key_counts *counts) {
  int64_t least, most;
  if (!range_of(keys, n, &least, &most)) return NULL;
  int bits = bits_of((uint64_t)most - (uint64_t)least);
  if (bits == 0) return keys;
  if (bits <= digit_for(n) && n > FEW)
    return count_keys(keys, n, least, (int64_t)1 << bits, counts);
  if (VECTORS) return px__sort_i64(keys, keys, room, 2, n) ? keys : NULL;
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      keys[i] = (int64_t)((uint64_t)keys[i] - (uint64_t)least);
  if (ended(n)) return NULL;
  uint64_t *sorted = sort_digits((uint64_t *)keys, (uint64_t *)room, n, 0, bits, counts);
  for (px__steps s = {.n = sorted ? n : 0}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) sorted[i] += (uint64_t)least;
  return ended(n) ? NULL : (int64_t *)sorted;
}

// What lies in a row, of a dtype that vectors sort, is sorted where it is to be.
static bool in_row(const px__line *x) {
  bool whole = x->dtype == PX_INT32 || x->dtype == PX_INT64;
  bool known = whole || x->dtype == PX_FLOAT32 || x->dtype == PX_FLOAT64;
  return known && x->stride == px__cpu_item[x->dtype];
}
// Whether so many are of few kinds, which are counted sooner than numbers of 64 bits are sorted.
static bool are_few(const px__line *from, int64_t n) {
  int64_t least, most;
  if (from->dtype != PX_INT64 || n <= FEW) return false;
  return range_of((const void *)from->at, n, &least, &most) &&
         bits_of((uint64_t)most - (uint64_t)least) <= digit_for(n);
}
static bool sort_row(const px__line *to, const px__line *from, int64_t n, int64_t *room) {
  const void *a = from->at;
  void *b = to->at, *rooms = room;
  if (from->dtype == PX_INT32) return px__sort_i32(a, b, rooms, 3, n);
  if (from->dtype == PX_INT64) return px__sort_i64(a, b, rooms, 3, n);
  bool wide = from->dtype == PX_FLOAT64;
  sorted_keys s = {.floats = wide ? NULL : b, .doubles = wide ? b : NULL, .n = n};
  bool done = wide ? px__sort_f64(a, b, rooms, 3, n) : px__sort_f32(a, b, rooms, 3, n);
  return done && bring_back_all(&s, to, from);
}

bool px__values_sort(const px__line *to, const px__line *from, int64_t n, int64_t *room,
                     px__key_counts *counts) {
  int64_t item = px__cpu_item[from->dtype];
  sorted_keys s = {.n = n};
  if (VECTORS && in_row(from) && in_row(to) && !are_few(from, n))
    return sort_row(to, from, n, room);
  if (VECTORS && (item == 4 || item == 2)) {
    int32_t *keys = (int32_t *)room;
    if (!load_narrow(keys, from, n) || !px__sort_i32(keys, keys, keys + n, 3, n)) return false;
    s.narrow = keys;
  } else {
    px__keys_load(room, from->at, from->stride, from->dtype, false, n);
    s.wide = ended(n) ? NULL : sort_keys(room, n, room + n, counts);
    if (!s.wide) return false;
  }
  return store_sorted(&s, to, from);
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
