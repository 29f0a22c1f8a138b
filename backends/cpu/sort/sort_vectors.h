// SPDX-License-Identifier: Apache-2.0
// Sorting of whole numbers by vectors, for one type and one kind of them; included once for each.
// What includes it defines T, L (lanes: 4, 8 or 16), NAME(x), TARGET, MOST (the greatest T),
// FLOAT_INFINITY (the bits of infinity) and before that the functions MIN(a, b), MAX(a, b) and
// SPLIT of vectors: SPLIT(v, pivot, low, high) stores the lanes that are less than the pivot's at
// `low`, the others at `high`, each from there on, with anything behind them in the place of a
// vector, and gives how many are less.
//
// A range is parted by a pivot until it fits into some vectors, which a network of comparisons
// sorts. Nothing branches on elements, but by how many are less. Of equal numbers it does not
// matter which comes first, so every kind gives the same.
typedef T NAME(vector) __attribute__((vector_size(L * sizeof(T))));
enum { NAME(FEW) = ROWS * L };
#undef SIGN
#define SIGN (8 * (int)sizeof(T) - 1)

TARGET static inline NAME(vector) NAME(load)(const T *p) {
  NAME(vector) v;
  memcpy(&v, p, sizeof v);
  return v;
}
TARGET static inline void NAME(store)(T *p, NAME(vector) v) { memcpy(p, &v, sizeof v); }

// ---- networks: numbers in columns, one for each lane. Columns are sorted, and then merged by
// twos, by fours and so on: nearly all comparisons are of whole vectors. At last they are turned to
// rows.

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
// What is `far` apart in runs of 2 * size, as Batcher's network compares it.
#define COMPARE(v, rows, size, far) \
  UNROLL for (int j_ = (far) % (size); j_ < (rows) - (far); \
              j_++) if ((j_ - (far) % (size)) / (far) % 2 == 0 && \
                        j_ / (2 * (size)) == (j_ + (far)) / (2 * (size))) \
      NAME(order)(&v[j_], &v[j_ + (far)]);
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
// Of two columns, or groups of `lanes` of them, that lie side by side, the lesser numbers go to the
// first one. Each meets its mirror image in the other.
#define MEET(v, rows, lanes) \
  UNROLL for (int i_ = 0; i_ < (rows + 1) / 2; i_++) { \
    V *a_ = &v[i_], *b_ = &v[rows - 1 - i_]; \
    V other_ = PX_SHUFFLE(*b_, *b_, FLIP(2 * lanes - 1)), less_ = MIN(*a_, other_); \
    other_ = MAX(*a_, other_, less_); \
    *a_ = PX_SHUFFLE(less_, other_, SIDE(lanes, L)); \
    less_ = PX_SHUFFLE(other_, less_, SIDE(lanes, L)); \
    if (rows > 1) *b_ = PX_SHUFFLE(less_, less_, FLIP(2 * lanes - 1)); \
  }
#define PART(v, rows, lanes) \
  UNROLL for (int i_ = 0; i_ < rows; i_++) { \
    V other_ = PX_SHUFFLE(v[i_], v[i_], FLIP(lanes)), less_ = MIN(v[i_], other_); \
    other_ = MAX(v[i_], other_, less_); \
    v[i_] = PX_SHUFFLE(less_, other_, SIDE(lanes, L)); \
  }
INLINE void NAME(settle_columns)(V *v, const int rows) {
  if (rows >= 16) COMPARE(v, rows, 8, 8)
  if (rows >= 8) COMPARE(v, rows, 4, 4)
  if (rows >= 4) COMPARE(v, rows, 2, 2)
  if (rows >= 2) COMPARE(v, rows, 1, 1)
}
INLINE void NAME(merge_columns)(V *v, const int rows) {
  MEET(v, rows, 1)
  NAME(settle_columns)(v, rows);
  MEET(v, rows, 2)
  PART(v, rows, 1)
  NAME(settle_columns)(v, rows);
#if L >= 8
  MEET(v, rows, 4)
  PART(v, rows, 2)
  PART(v, rows, 1)
  NAME(settle_columns)(v, rows);
#endif
#if L >= 16
  MEET(v, rows, 8)
  PART(v, rows, 4)
  PART(v, rows, 2)
  PART(v, rows, 1)
  NAME(settle_columns)(v, rows);
#endif
}
// Columns become rows: vectors of the first half and of the second are joined lane by lane.
INLINE void NAME(zip)(V *v, const int rows) {
  V turned[ROWS];
  UNROLL for (int i = 0; i < rows / 2; i++) {
    turned[2 * i] = PX_SHUFFLE(v[i], v[i + rows / 2], ZIP(0, L));
    turned[2 * i + 1] = PX_SHUFFLE(v[i], v[i + rows / 2], ZIP(L / 2, L));
  }
  UNROLL for (int i = 0; i < rows; i++) v[i] = turned[i];
}
INLINE void NAME(turn)(V *v, const int rows) {
  if (rows >= 2) NAME(zip)(v, rows);
  if (rows >= 4) NAME(zip)(v, rows);
  if (rows >= 8) NAME(zip)(v, rows);
  if (rows >= 16) NAME(zip)(v, rows);
}
// From `from` to `to`, which may be the same; n is not above rows * L. What is below 0 has the bits
// of `flip` turned at the end.
INLINE void NAME(network)(const T *from, T *to, int64_t n, T flip, const int rows) {
  V v[ROWS];
  T edge[L], beyond[L];
  int64_t whole = n / L;
  size_t rest = (size_t)(n % L) * sizeof(T);
  NAME(store)(edge, (V){0} + MOST);
  NAME(store)(beyond, (V){0} + MOST);
  memcpy(edge, from + whole * L, rest);
  UNROLL for (int i = 0; i < rows; i++) v[i] = NAME(load)(i < whole    ? from + i * L
                                                          : i == whole ? edge
                                                                       : beyond);
  NAME(sort_columns)(v, rows);
  NAME(merge_columns)(v, rows);
  NAME(turn)(v, rows);
  V turned = (V){0} + flip;
  UNROLL for (int i = 0; i < rows; i++) v[i] ^= (v[i] >> SIGN) & turned;
  UNROLL for (int i = 0; i < rows; i++) NAME(store)(i < whole    ? to + i * L
                                                    : i == whole ? edge
                                                                 : beyond,
                                                    v[i]);
  memcpy(to + whole * L, edge, rest);
}
TARGET static void NAME(sort_few)(const T *from, T *to, int64_t n, T flip) {
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

// ---- parts

// Bits of floats as keys (key_f32), and in place back; but zeros have a sign, by which they come in
// another order, as NaN do by its bits.
INLINE V NAME(keys)(V bits) {
#ifdef KEYS
  return KEYS(bits);
#else
  V nan = (V)((bits & MOST) > FLOAT_INFINITY), key = bits ^ ((bits >> SIGN) & MOST);
  return (key & ~nan) | (nan & MOST);
#endif
}
TARGET static void NAME(unkey)(T *keys, int64_t n) {
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) keys[i] ^= (keys[i] >> SIGN) & MOST;
}

// What is less than the pivot goes to `low`, the rest to `high`: one of them may be `from`.
// `floats`: `from` has those.
INLINE int64_t NAME(part_of)(const bool floats, const T *from, int64_t n, T pivot, T *low,
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
TARGET static int64_t NAME(part)(const T *from, int64_t n, T pivot, T *low, T *high) {
  return NAME(part_of)(false, from, n, pivot, low, high);
}
// Some of them in order, more where a range is long; gives how many.
enum { NAME(SAMPLES) = 8 * L };
TARGET static int NAME(sample)(bool floats, const T *from, int64_t n, T *some) {
  int count = n < 1024 ? L : n < 8192 ? 4 * L : NAME(SAMPLES);
  int64_t step = n / count;
  for (int i = 0; i < count; i++) some[i] = from[i * step + step / 2];
  for (int i = 0; floats && i < count; i += L)
    NAME(store)(some + i, NAME(keys)(NAME(load)(some + i)));
  NAME(sort_few)(some, some, count, 0);
  return count;
}
// The middle one of some.
TARGET static T NAME(sampled)(bool floats, const T *from, int64_t n) {
  T some[NAME(SAMPLES)];
  int count = NAME(sample)(floats, from, n, some);
  return some[count / 2];
}
// What is in the middle between the least and the greatest, above the least; if all are equal,
// they.
static T NAME(halfway)(const T *from, int64_t n) {
  T least = from[0], most = least;
  for (int64_t i = 0; i < n; i++) {
    least = from[i] < least ? from[i] : least;
    most = from[i] > most ? from[i] : most;
  }
  T half = (least & most) + ((least ^ most) >> 1);  // rounded down
  return half < most ? half + 1 : most;
}
// Memory for n each: `to`, where they are to be in order, and others; `third` may be NULL.
typedef struct NAME(places) {
  T *to, *other, *third, *fourth;
} NAME(places);

#ifdef QUARTER
// Parts by three pivots at once what is at `from`, which may be `to` or `other`, to the four
// places, from the least on: where a range does not lie in the first cache, passes take as long as
// memory does. False: pivots are alike, and nothing was done.
INLINE bool NAME(quarter_of)(const bool floats, const T *from, int64_t n, const NAME(places) * at,
                             int64_t *counts) {
  T some[NAME(SAMPLES)], *ends[4] = {at->to, at->other, at->third, at->fourth};
  int count = NAME(sample)(floats, from, n, some);
  T pivots[3] = {some[count / 4], some[count / 2], some[count / 4 * 3]};
  if (pivots[0] == pivots[1] || pivots[1] == pivots[2]) return false;
  int64_t whole = n / L * L;
  V low = (V){0} + pivots[0], middle = (V){0} + pivots[1], high = (V){0} + pivots[2];
  for (px__steps s = {.n = whole}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i += L) {
      V v = NAME(load)(from + i);
      for (int k = 0; k < 4; k++) __builtin_prefetch(ends[k] + 4 * L, 1);
      QUARTER(floats ? NAME(keys)(v) : v, low, middle, high, ends);
    }
  for (int64_t i = whole; i < n; i++) {
    T x = floats ? NAME(keys)((V){0} + from[i])[0] : from[i];
    *ends[(x >= pivots[0]) + (x >= pivots[1]) + (x >= pivots[2])]++ = x;
  }
  counts[0] = ends[0] - at->to, counts[1] = ends[1] - at->other, counts[2] = ends[2] - at->third;
  counts[3] = n - counts[0] - counts[1] - counts[2];
  return true;
}
TARGET static bool NAME(quarter)(const T *from, int64_t n, const NAME(places) * at,
                                 int64_t *counts) {
  return NAME(quarter_of)(false, from, n, at, counts);
}
enum { NAME(QUARTERED) = QUARTERED / (int)sizeof(T) };
static bool NAME(sort)(bool floats, const T *from, NAME(places) at, int64_t n, int tries);
// Sorts the upper three parts: what is behind another one, and what is no longer needed, is room.
static bool NAME(sort_parts)(bool floats, const NAME(places) * at, const int64_t *counts,
                             int tries) {
  int64_t second = counts[0], third = second + counts[1], fourth = third + counts[2];
  T *rest = at->other + counts[1];
  NAME(places) a = {at->to + fourth, at->fourth, at->third + counts[2], rest};
  NAME(places) b = {at->to + third, at->third, at->fourth, rest};
  NAME(places) c = {at->to + second, at->other, at->third, at->fourth};
  return NAME(sort)(floats, at->fourth, a, counts[3], tries) &&
         NAME(sort)(floats, at->third, b, counts[2], tries) &&
         NAME(sort)(floats, at->other, c, counts[1], tries);
}
#endif

// Sorts what is at `from`, which is at.to, at.other or elsewhere, to at.to. After `tries` pivots of
// samples the range of the numbers is halved, and no input takes long. `floats`: what is sorted
// becomes floats again, as it is at hand. False: the call has been ended.
static bool NAME(sort)(bool floats, const T *from, NAME(places) at, int64_t n, int tries) {
  while (n > NAME(FEW)) {
    if (n > PX__STEP && px__cpu_stopped()) return false;
#ifdef QUARTER
    int64_t counts[4];
    if (at.third && n >= NAME(QUARTERED) && tries > 1 && NAME(quarter)(from, n, &at, counts)) {
      tries -= 2;
      if (!NAME(sort_parts)(floats, &at, counts, tries)) return false;
      from = at.to, n = counts[0];
      continue;
    }
#endif
    T pivot = tries-- > 0 ? NAME(sampled)(false, from, n) : NAME(halfway)(from, n);
    int64_t less = NAME(part)(from, n, pivot, at.to, at.other);
    if (less > 0) {
      NAME(places) above = {at.to + less, at.other, at.third, at.fourth};
      if (!NAME(sort)(floats, at.other, above, n - less, tries)) return false;
      from = at.to, n = less;
      continue;
    }
    // The pivot is the least: all of its kind come first.
    less = pivot == MOST ? n : NAME(part)(at.other, n, (T)(pivot + 1), at.to, at.other);
    if (pivot == MOST && at.to != at.other) memcpy(at.to, at.other, (size_t)n * sizeof(T));
    if (floats) NAME(unkey)(at.to, less);
    from = at.other, at.to += less, n -= less;
  }
  NAME(sort_few)(from, at.to, n, floats ? MOST : 0);
  return true;
}
// Sorts the floats at `from`, which is elsewhere: they become keys where they are first parted.
TARGET static bool NAME(sort_floats)(const T *from, NAME(places) at, int64_t n, int tries) {
#ifdef QUARTER
  int64_t counts[4];
  if (at.third && n >= NAME(QUARTERED) && NAME(quarter_of)(true, from, n, &at, counts))
    return NAME(sort_parts)(true, &at, counts, tries) &&
           NAME(sort)(true, at.to, at, counts[0], tries);
#endif
  T pivot = n >= L ? NAME(sampled)(true, from, n) : MOST;
  int64_t less = NAME(part_of)(true, from, n, pivot, at.to, at.other);
  NAME(places) above = {at.to + less, at.other, at.third, at.fourth};
  return NAME(sort)(true, at.other, above, n - less, tries) &&
         NAME(sort)(true, at.to, at, less, tries);
}
#undef T
#undef L
#undef NAME
#undef MOST
#undef FLOAT_INFINITY
#undef V
#undef INLINE
#undef MEET
#undef COMPARE
#undef PART
