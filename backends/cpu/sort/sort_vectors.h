// SPDX-License-Identifier: Apache-2.0
// Vectorized sorting of integers for one type and vector width; included once for each.
//
// The includer defines T, L (lanes: 4, 8 or 16), NAME(x), TARGET, MAX_VALUE (the max of T),
// FLOAT_INFINITY (the bits of inf), and the vector functions MIN(a, b), MAX(a, b) and SPLIT.
// SPLIT(v, pivot, low, high) stores the lanes less than the pivot at `low` and the others at
// `high`, packed; it may overwrite a full vector at each. It returns the number of lesser lanes.
//
// A range is partitioned by pivots until it fits into a few vectors, which a sorting network sorts.
// Branches depend only on counts, never on elements. Equal integers are indistinguishable, so all
// variants give the same result.
typedef T NAME(vector) __attribute__((vector_size(L * sizeof(T))));
enum { NAME(NETWORK_SIZE) = ROWS * L };
#undef SIGN
#define SIGN (8 * (int)sizeof(T) - 1)

TARGET static inline NAME(vector) NAME(load)(const T *p) {
  NAME(vector) v;
  memcpy(&v, p, sizeof v);
  return v;
}
TARGET static inline void NAME(store)(T *p, NAME(vector) v) { memcpy(p, &v, sizeof v); }

// ---- networks: numbers in columns, one per lane. Columns are sorted, then merged in pairs, fours
// and so on. Nearly all comparisons are of whole vectors. Finally columns are transposed to rows.

#undef FLIP
#undef SIDE
#undef ZIP
#if L == 4
#define FLIP FLIP_4
#define SIDE SIDE_4
#define ZIP ZIP_4
#elif L == 8
#define FLIP FLIP_8
#define SIDE SIDE_8
#define ZIP ZIP_8
#else
#define FLIP FLIP_16
#define SIDE SIDE_16
#define ZIP ZIP_16
#endif
#define V NAME(vector)
#define INLINE TARGET static inline __attribute__((always_inline))
INLINE void NAME(order)(V *a, V *b) {
  V less = MIN(*a, *b);
  *b = MAX(*a, *b, less), *a = less;
}
// Compares elements `distance` apart in runs of 2 * size, as in Batcher's odd-even merge network.
#define COMPARE(v, rows, size, distance) \
  UNROLL for (int j_ = (distance) % (size); j_ < (rows) - (distance); \
              j_++) if ((j_ - (distance) % (size)) / (distance) % 2 == 0 && \
                        j_ / (2 * (size)) == (j_ + (distance)) / (2 * (size))) \
      NAME(order)(&v[j_], &v[j_ + (distance)]);
INLINE void NAME(sort_columns)(V *v, const int rows) {
  if (rows >= 2) COMPARE(v, rows, 1, 1)
  if (rows >= 4) {
    COMPARE(v, rows, 2, 2)
    COMPARE(v, rows, 2, 1)
  }
  if (rows >= 8) {
    COMPARE(v, rows, 4, 4)
    COMPARE(v, rows, 4, 2)
    COMPARE(v, rows, 4, 1)
  }
  if (rows >= 16) {
    COMPARE(v, rows, 8, 8)
    COMPARE(v, rows, 8, 4)
    COMPARE(v, rows, 8, 2)
    COMPARE(v, rows, 8, 1)
  }
}
// Merge step of two adjacent columns, or groups of `lanes` columns: the smaller numbers go to the
// first. Each element is compared with its mirror image.
#define MERGE_PAIRS(v, rows, lanes) \
  UNROLL for (int i_ = 0; i_ < (rows + 1) / 2; i_++) { \
    V *a_ = &v[i_], *b_ = &v[rows - 1 - i_]; \
    V other_ = PX_SHUFFLE(*b_, *b_, FLIP(2 * lanes - 1)), less_ = MIN(*a_, other_); \
    other_ = MAX(*a_, other_, less_); \
    *a_ = PX_SHUFFLE(less_, other_, SIDE(lanes, L)); \
    less_ = PX_SHUFFLE(other_, less_, SIDE(lanes, L)); \
    if (rows > 1) *b_ = PX_SHUFFLE(less_, less_, FLIP(2 * lanes - 1)); \
  }
#define MERGE_WITHIN(v, rows, lanes) \
  UNROLL for (int i_ = 0; i_ < rows; i_++) { \
    V other_ = PX_SHUFFLE(v[i_], v[i_], FLIP(lanes)), less_ = MIN(v[i_], other_); \
    other_ = MAX(v[i_], other_, less_); \
    v[i_] = PX_SHUFFLE(less_, other_, SIDE(lanes, L)); \
  }
INLINE void NAME(sort_merged_columns)(V *v, const int rows) {
  if (rows >= 16) COMPARE(v, rows, 8, 8)
  if (rows >= 8) COMPARE(v, rows, 4, 4)
  if (rows >= 4) COMPARE(v, rows, 2, 2)
  if (rows >= 2) COMPARE(v, rows, 1, 1)
}
INLINE void NAME(merge_columns)(V *v, const int rows) {
  MERGE_PAIRS(v, rows, 1)
  NAME(sort_merged_columns)(v, rows);
  MERGE_PAIRS(v, rows, 2)
  MERGE_WITHIN(v, rows, 1)
  NAME(sort_merged_columns)(v, rows);
#if L >= 8
  MERGE_PAIRS(v, rows, 4)
  MERGE_WITHIN(v, rows, 2)
  MERGE_WITHIN(v, rows, 1)
  NAME(sort_merged_columns)(v, rows);
#endif
#if L >= 16
  MERGE_PAIRS(v, rows, 8)
  MERGE_WITHIN(v, rows, 4)
  MERGE_WITHIN(v, rows, 2)
  MERGE_WITHIN(v, rows, 1)
  NAME(sort_merged_columns)(v, rows);
#endif
}
// Interleaves the first and the second half of the vectors lane by lane.
INLINE void NAME(interleave_halves)(V *v, const int rows) {
  V flipped[ROWS];
  UNROLL for (int i = 0; i < rows / 2; i++) {
    flipped[2 * i] = PX_SHUFFLE(v[i], v[i + rows / 2], ZIP(0, L));
    flipped[2 * i + 1] = PX_SHUFFLE(v[i], v[i + rows / 2], ZIP(L / 2, L));
  }
  UNROLL for (int i = 0; i < rows; i++) v[i] = flipped[i];
}
INLINE void NAME(transpose)(V *v, const int rows) {
  if (rows >= 2) NAME(interleave_halves)(v, rows);
  if (rows >= 4) NAME(interleave_halves)(v, rows);
  if (rows >= 8) NAME(interleave_halves)(v, rows);
  if (rows >= 16) NAME(interleave_halves)(v, rows);
}
// Sorts n <= rows * L numbers from `from` to `to`, which may be the same. At the end negative
// numbers are XORed with `flip`.
INLINE void NAME(network)(const T *from, T *to, int64_t n, T flip, const int rows) {
  V v[ROWS];
  T edge[L], beyond[L];
  int64_t whole = n / L;
  size_t rest = (size_t)(n % L) * sizeof(T);
  NAME(store)(edge, (V){0} + MAX_VALUE);
  NAME(store)(beyond, (V){0} + MAX_VALUE);
  memcpy(edge, from + whole * L, rest);
  UNROLL for (int i = 0; i < rows; i++) v[i] = NAME(load)(i < whole    ? from + i * L
                                                          : i == whole ? edge
                                                                       : beyond);
  NAME(sort_columns)(v, rows);
  NAME(merge_columns)(v, rows);
  NAME(transpose)(v, rows);
  V flipped = (V){0} + flip;
  UNROLL for (int i = 0; i < rows; i++) v[i] ^= (v[i] >> SIGN) & flipped;
  UNROLL for (int i = 0; i < rows; i++) NAME(store)(i < whole    ? to + i * L
                                                    : i == whole ? edge
                                                                 : beyond,
                                                    v[i]);
  memcpy(to + whole * L, edge, rest);
}
TARGET static void NAME(sort_small)(const T *from, T *to, int64_t n, T flip) {
  if (n <= L)
    NAME(network)(from, to, n, flip, 1);
  else if (n <= 2 * L)
    NAME(network)(from, to, n, flip, 2);
  else if (n <= 4 * L)
    NAME(network)(from, to, n, flip, 4);
  else if (n <= 8 * L)
    NAME(network)(from, to, n, flip, 8);
#if ROWS >= 16
  else
    NAME(network)(from, to, n, flip, 16);
#endif
}

// ---- partitioning

// Float bits to keys (key_f32), and back in place. Zeros keep their sign and differ; NaN payloads
// are lost.
INLINE V NAME(keys)(V bits) {
#ifdef KEYS
  return KEYS(bits);
#else
  V nan = (V)((bits & MAX_VALUE) > FLOAT_INFINITY), key = bits ^ ((bits >> SIGN) & MAX_VALUE);
  return (key & ~nan) | (nan & MAX_VALUE);
#endif
}
TARGET static void NAME(unkey)(T *keys, int64_t n) {
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) keys[i] ^= (keys[i] >> SIGN) & MAX_VALUE;
}

// Partitions into `low` (less than the pivot) and `high`; one of them may be `from`. `floats`:
// `from` holds float bits.
INLINE int64_t NAME(partition_keys)(const bool floats, const T *from, int64_t n, T pivot, T *low,
                                    T *high) {
  int64_t less = 0, whole = n / L * L;
  V at = (V){0} + pivot;
  for (px__steps s = {.n = whole}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i += L) {
      V v = NAME(load)(from + i);
      less += SPLIT(floats ? NAME(keys)(v) : v, at, low + less, high + (i - less));
    }
  for (int64_t i = whole; i < n; i++) {
    T x = floats ? NAME(keys)((V){0} + from[i])[0] : from[i];
    low[less] = x, high[i - less] = x;
    less += x < pivot;
  }
  return less;
}
TARGET static int64_t NAME(partition)(const T *from, int64_t n, T pivot, T *low, T *high) {
  return NAME(partition_keys)(false, from, n, pivot, low, high);
}
// A sorted sample, larger for long ranges; returns its size.
enum { NAME(SAMPLES) = 8 * L };
TARGET static int NAME(sample)(bool floats, const T *from, int64_t n, T *sample_values) {
  int count = n < 1024 ? L : n < 8192 ? 4 * L : NAME(SAMPLES);
  int64_t step = n / count;
  for (int i = 0; i < count; i++) sample_values[i] = from[i * step + step / 2];
  for (int i = 0; floats && i < count; i += L)
    NAME(store)(sample_values + i, NAME(keys)(NAME(load)(sample_values + i)));
  NAME(sort_small)(sample_values, sample_values, count, 0);
  return count;
}
// The median of a sample.
TARGET static T NAME(sample_median)(bool floats, const T *from, int64_t n) {
  T sample_values[NAME(SAMPLES)];
  int count = NAME(sample)(floats, from, n, sample_values);
  return sample_values[count / 2];
}
// The midpoint between min and max, above the min; the value itself if all are equal.
static T NAME(midpoint)(const T *from, int64_t n) {
  T min = from[0], max = min;
  for (int64_t i = 0; i < n; i++) {
    min = from[i] < min ? from[i] : min;
    max = from[i] > max ? from[i] : max;
  }
  T half = (min & max) + ((min ^ max) >> 1);  // rounded down
  return half < max ? half + 1 : max;
}
// Arrays of n elements: the destination `to` and scratch; `third` and `fourth` may be NULL.
typedef struct NAME(arrays) {
  T *to, *other, *third, *fourth;
} NAME(arrays);

#ifdef PARTITION_4
// Partitions `from`, which may be `to` or `other`, by three pivots into the four arrays, ascending.
// For ranges beyond L1, passes are memory-bound. Returns false if pivots are equal; nothing is done
// then.
INLINE bool NAME(partition_4_keys)(const bool floats, const T *from, int64_t n,
                                   const NAME(arrays) * at, int64_t *counts) {
  T sample_values[NAME(SAMPLES)], *ends[4] = {at->to, at->other, at->third, at->fourth};
  int count = NAME(sample)(floats, from, n, sample_values);
  T pivots[3] = {sample_values[count / 4], sample_values[count / 2], sample_values[count / 4 * 3]};
  if (pivots[0] == pivots[1] || pivots[1] == pivots[2]) return false;
  int64_t whole = n / L * L;
  V low = (V){0} + pivots[0], middle = (V){0} + pivots[1], high = (V){0} + pivots[2];
  for (px__steps s = {.n = whole}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i += L) {
      V v = NAME(load)(from + i);
      for (int k = 0; k < 4; k++) __builtin_prefetch(ends[k] + 4 * L, 1);
      PARTITION_4(floats ? NAME(keys)(v) : v, low, middle, high, ends);
    }
  for (int64_t i = whole; i < n; i++) {
    T x = floats ? NAME(keys)((V){0} + from[i])[0] : from[i];
    *ends[(x >= pivots[0]) + (x >= pivots[1]) + (x >= pivots[2])]++ = x;
  }
  counts[0] = ends[0] - at->to, counts[1] = ends[1] - at->other, counts[2] = ends[2] - at->third;
  counts[3] = n - counts[0] - counts[1] - counts[2];
  return true;
}
TARGET static bool NAME(partition_4)(const T *from, int64_t n, const NAME(arrays) * at,
                                     int64_t *counts) {
  return NAME(partition_4_keys)(false, from, n, at, counts);
}
enum { NAME(MIN_PARTITION_4) = MIN_PARTITION_4 / (int)sizeof(T) };
static bool NAME(sort)(bool floats, const T *from, NAME(arrays) at, int64_t n, int tries);
// Sorts the upper three parts. Free space after each part serves as scratch.
static bool NAME(sort_parts)(bool floats, const NAME(arrays) * at, const int64_t *counts,
                             int tries) {
  int64_t second = counts[0], third = second + counts[1], fourth = third + counts[2];
  T *rest = at->other + counts[1];
  NAME(arrays) a = {at->to + fourth, at->fourth, at->third + counts[2], rest};
  NAME(arrays) b = {at->to + third, at->third, at->fourth, rest};
  NAME(arrays) c = {at->to + second, at->other, at->third, at->fourth};
  return NAME(sort)(floats, at->fourth, a, counts[3], tries) &&
         NAME(sort)(floats, at->third, b, counts[2], tries) &&
         NAME(sort)(floats, at->other, c, counts[1], tries);
}
#endif

// Sorts `from`, which is at.to, at.other or elsewhere, into at.to. After `tries` sampled pivots,
// pivots halve the value range, so no input is slow. `floats`: converts results back to float bits
// while in cache. Returns false if interrupted.
static bool NAME(sort)(bool floats, const T *from, NAME(arrays) at, int64_t n, int tries) {
  while (n > NAME(NETWORK_SIZE)) {
    if (n > PX__STEP && px__cpu_stopped()) return false;
#ifdef PARTITION_4
    int64_t counts[4];
    if (at.third && n >= NAME(MIN_PARTITION_4) && tries > 1 &&
        NAME(partition_4)(from, n, &at, counts)) {
      tries -= 2;
      if (!NAME(sort_parts)(floats, &at, counts, tries)) return false;
      from = at.to, n = counts[0];
      continue;
    }
#endif
    T pivot = tries-- > 0 ? NAME(sample_median)(false, from, n) : NAME(midpoint)(from, n);
    int64_t less = NAME(partition)(from, n, pivot, at.to, at.other);
    if (less > 0) {
      NAME(arrays) above = {at.to + less, at.other, at.third, at.fourth};
      if (!NAME(sort)(floats, at.other, above, n - less, tries)) return false;
      from = at.to, n = less;
      continue;
    }
    // The pivot is the min: its equals come first.
    less = pivot == MAX_VALUE ? n : NAME(partition)(at.other, n, (T)(pivot + 1), at.to, at.other);
    if (pivot == MAX_VALUE && at.to != at.other) memcpy(at.to, at.other, (size_t)n * sizeof(T));
    if (floats) NAME(unkey)(at.to, less);
    from = at.other, at.to += less, n -= less;
  }
  NAME(sort_small)(from, at.to, n, floats ? MAX_VALUE : 0);
  return true;
}
// Sorts the float bits at `from`, which is elsewhere; the first partitioning converts them to keys.
TARGET static bool NAME(sort_floats)(const T *from, NAME(arrays) at, int64_t n, int tries) {
#ifdef PARTITION_4
  int64_t counts[4];
  if (at.third && n >= NAME(MIN_PARTITION_4) && NAME(partition_4_keys)(true, from, n, &at, counts))
    return NAME(sort_parts)(true, &at, counts, tries) &&
           NAME(sort)(true, at.to, at, counts[0], tries);
#endif
  T pivot = n >= L ? NAME(sample_median)(true, from, n) : MAX_VALUE;
  int64_t less = NAME(partition_keys)(true, from, n, pivot, at.to, at.other);
  NAME(arrays) above = {at.to + less, at.other, at.third, at.fourth};
  return NAME(sort)(true, at.other, above, n - less, tries) &&
         NAME(sort)(true, at.to, at, less, tries);
}
#undef T
#undef L
#undef NAME
#undef MAX_VALUE
#undef FLOAT_INFINITY
#undef V
#undef INLINE
#undef MERGE_PAIRS
#undef COMPARE
#undef MERGE_WITHIN
