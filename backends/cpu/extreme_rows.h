// SPDX-License-Identifier: Apache-2.0
// Extremes with their places for one element type: T the element, I a number as wide, NAME(x) the
// names, those of its math functions too, IS_NAN(x); extreme.c includes it for each type.

// The extreme of n elements, at least one; NaN, if there is one.
#define EXTREME(NAME, CHOOSE) \
  static T NAME(const T *e, int64_t n) { \
    T lane[LANES], top = e[0]; \
    int64_t i = 0; \
    if (n >= LANES) { \
      memcpy(lane, e, sizeof lane); \
      for (i = LANES; i + LANES <= n; i += LANES) \
        PX__CPU_ROLLED for (int k = 0; k < LANES; k++) lane[k] = CHOOSE(lane[k], e[i + k]); \
      for (int k = 0; k < LANES; k++) top = CHOOSE(top, lane[k]); \
    } \
    for (; i < n; i++) top = CHOOSE(top, e[i]); \
    return top; \
  }
EXTREME(NAME(most), NAME(k_max))
EXTREME(NAME(least), NAME(k_min))
#undef EXTREME

// The first element that equals x, or is NaN if x is; there is one.
static int64_t NAME(find)(const T *e, int64_t n, T x) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    int any = 0;
    for (int k = 0; k < LANES; k++) any |= (e[i + k] == x) | (IS_NAN(e[i + k]) & IS_NAN(x));
    if (any) break;
  }
  while (i < n - 1 && !(e[i] == x || (IS_NAN(e[i]) && IS_NAN(x)))) i++;
  return i;
}

// Whether x goes before y, which comes earlier.
static inline bool NAME(beats)(T x, T y, bool least) {
  return (least ? x < y : x > y) || (IS_NAN(x) && !IS_NAN(y));
}

// n more elements, of which the first is number `first`.
static void NAME(join)(best *b, const void *elements, int64_t n, int64_t first, bool least) {
  const T *e = elements;
  T x = least ? NAME(least)(e, n) : NAME(most)(e, n);
  if (b->some && !NAME(beats)(x, b->value.NAME(of), least)) return;
  int64_t at = NAME(find)(e, n, x);
  *b = (best){.some = true, .index = first + at, .value.NAME(of) = e[at]};
}
static void NAME(merge)(best *b, const best *later, bool least) {
  if (!b->some || NAME(beats)(later->value.NAME(of), b->value.NAME(of), least)) *b = *later;
}

// A row more of n columns: their extremes so far, and in which rows they are.
static void NAME(columns)(void *extremes, void *rows, const void *elements, int64_t n, int64_t row,
                          bool least) {
  T *restrict top = extremes;
  I *restrict at = rows;
  const T *restrict e = elements;
  I here = (I)row;
  if (least) {
    for (int64_t i = 0; i < n; i++) {
      T x = e[i], y = top[i];
      bool take = !(x >= y) & !IS_NAN(y);
      top[i] = take ? x : y;
      at[i] = take ? here : at[i];
    }
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    T x = e[i], y = top[i];
    bool take = !(x <= y) & !IS_NAN(y);
    top[i] = take ? x : y;
    at[i] = take ? here : at[i];
  }
}
static void NAME(widen)(int64_t *index, void *rows, int64_t n, int64_t first) {
  I *at = rows;
  for (int64_t i = 0; i < n; i++) {
    if (at[i] >= 0) index[i] = first + at[i];
    at[i] = -1;
  }
}
static const kind NAME(kind) = {DTYPE, NAME(join), NAME(merge), NAME(columns), NAME(widen)};
