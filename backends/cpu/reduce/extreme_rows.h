// SPDX-License-Identifier: Apache-2.0
// Extremes with their places for one element type: T the element, I a number as wide, NAME(x) the
// names, IS_NAN(x) of elements and vectors; V a vector, M its mask, OP(x) and MASK(x) the functions
// of simd.h for them. extreme.c includes it for each type.

// The first of n elements that equals x, n being less than four vectors have, or of so many; there
// is one, unless a program writes meanwhile.
static int64_t NAME(find)(const T *e, int64_t n, T x) {
  enum { L = sizeof(V) / sizeof(T) };
  int64_t i = 0;
  if (n < 4 * L) {
    while (i < n - 1 && e[i] != x) i++;
    return i;
  }
  V all = OP(set)(x);
  uint32_t low = MASK(bits)(OP(load)(e) == all) | MASK(bits)(OP(load)(e + L) == all) << L;
  uint32_t high = MASK(bits)(OP(load)(e + 2 * L) == all) | MASK(bits)(OP(load)(e + 3 * L) == all)
                                                               << L;
  uint32_t bits = low | high << 2 * L;
  return bits ? __builtin_ctz(bits) : 0;
}
static int64_t NAME(find_nan)(const T *e, int64_t n) {
  int64_t i = 0;
  while (i < n - 1 && !IS_NAN(e[i])) i++;
  return i;
}

// Whether x goes before y, which comes earlier.
static inline bool NAME(beats)(T x, T y, bool least) {
  return (least ? x < y : x > y) || (IS_NAN(x) && !IS_NAN(y));
}

// n more elements, of which the first is number `first`.
static void NAME(join)(best *b, const void *elements, int64_t n, int64_t first, bool least) {
  const T *e = elements;
  bool odd = false;
  int64_t place;
  T x = least ? NAME(px__extreme)(e, n, true, &odd, &place)
              : NAME(px__extreme)(e, n, false, &odd, &place);
  if (b->some && (odd ? IS_NAN(b->value.NAME(of)) : !NAME(beats)(x, b->value.NAME(of), least)))
    return;
  int64_t at = odd ? NAME(find_nan)(e, n) : place + NAME(find)(e + place, n - place, x);
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
