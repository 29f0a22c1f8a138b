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
  *b = MAX(*a, *b), *a = less;
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
    other_ = MAX(*a_, other_); \
    *a_ = PX_SHUFFLE(less_, other_, SIDE(lanes, L)); \
    less_ = PX_SHUFFLE(other_, less_, SIDE(lanes, L)); \
    if (rows > 1) *b_ = PX_SHUFFLE(less_, less_, FLIP(2 * lanes - 1)); \
  }
#define PART(v, rows, lanes) \
  UNROLL for (int i_ = 0; i_ < rows; i_++) { \
    V other_ = PX_SHUFFLE(v[i_], v[i_], FLIP(lanes)), less_ = MIN(v[i_], other_); \
    other_ = MAX(v[i_], other_); \
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
// From `from` to `to`, which may be the same; n is not above rows * L.
INLINE void NAME(network)(const T *from, T *to, int64_t n, const int rows) {
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
  UNROLL for (int i = 0; i < rows; i++) NAME(store)(i < whole    ? to + i * L
                                                    : i == whole ? edge
                                                                 : beyond,
                                                    v[i]);
  memcpy(to + whole * L, edge, rest);
}
TARGET static void NAME(sort_few)(const T *from, T *to, int64_t n) {
  if (n <= L)
    NAME(network)(from, to, n, 1);
  else if (n <= 2 * L)
    NAME(network)(from, to, n, 2);
  else if (n <= 4 * L)
    NAME(network)(from, to, n, 4);
  else if (n <= 8 * L)
    NAME(network)(from, to, n, 8);
#if ROWS >= 16
  else
    NAME(network)(from, to, n, 16);
#endif
}

// ---- parts

// Bits of floats as keys (key_f32), and in place back, but that zeros have no sign.
INLINE V NAME(keys)(V bits) {
  V size = bits & MOST, key = bits ^ ((bits >> SIGN) & MOST);
  V zero = (V)(size == 0), nan = (V)(size > FLOAT_INFINITY);
  return (key & ~(zero | nan)) | (nan & MOST);
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
// The middle one of some, of more where a range is long.
TARGET static T NAME(sampled)(bool floats, const T *from, int64_t n) {
  T some[8 * L];
  int count = n < 1024 ? L : n < 8192 ? 4 * L : 8 * L;
  int64_t step = n / count;
  for (int i = 0; i < count; i++) some[i] = from[i * step + step / 2];
  for (int i = 0; floats && i < count; i += L)
    NAME(store)(some + i, NAME(keys)(NAME(load)(some + i)));
  NAME(sort_few)(some, some, count);
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
// Sorts what is at `from`, which is `to` or `other`, to `to`. Both have room for n. After `tries`
// pivots of samples the range of the numbers is halved, and no input takes long. `floats`: what is
// sorted becomes floats again, as it is at hand. False: the call has been ended.
static bool NAME(sort)(bool floats, T *from, T *to, T *other, int64_t n, int tries) {
  while (n > NAME(FEW)) {
    if (n > PX__STEP && px__cpu_stopped()) return false;
    T pivot = tries-- > 0 ? NAME(sampled)(false, from, n) : NAME(halfway)(from, n);
    int64_t less = NAME(part)(from, n, pivot, to, other);
    if (less > 0) {
      if (!NAME(sort)(floats, other, to + less, other, n - less, tries)) return false;
      from = to, n = less;
      continue;
    }
    // The pivot is the least: all of its kind come first.
    less = pivot == MOST ? n : NAME(part)(other, n, (T)(pivot + 1), to, other);
    if (pivot == MOST && to != other) memcpy(to, other, (size_t)n * sizeof(T));
    if (floats) NAME(unkey)(to, less);
    from = other, to += less, n -= less;
  }
  NAME(sort_few)(from, to, n);
  if (floats) NAME(unkey)(to, n);
  return true;
}
// Sorts the floats at `from`, which is elsewhere: they become keys where they are first parted.
TARGET static bool NAME(sort_floats)(const T *from, T *to, T *other, int64_t n, int tries) {
  T pivot = n >= L ? NAME(sampled)(true, from, n) : MOST;
  int64_t less = NAME(part_of)(true, from, n, pivot, to, other);
  return NAME(sort)(true, other, to + less, other, n - less, tries) &&
         NAME(sort)(true, to, to, other, less, tries);
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
