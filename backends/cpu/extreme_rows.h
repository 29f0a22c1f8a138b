// SPDX-License-Identifier: Apache-2.0
// Extremes with their places for one element type: T the element, I a number as wide, NAME(x) the
// names, IS_NAN(x) of elements and vectors; V a vector, M its mask, OP(x) and MASK(x) the functions
// of simd.h for them. extreme.c includes it for each type.

// The better of two, and of the lanes of two; the second one if one of them is NaN.
static inline T NAME(better)(T x, T y, bool least) { return (least ? x < y : x > y) ? x : y; }
static inline V NAME(choose)(V x, V y, bool least) { return least ? OP(min)(x, y) : OP(max)(x, y); }
// Lanes of all ones where one of two is NaN.
static inline M NAME(odd)(V x, V y) { return IS_NAN(x) | IS_NAN(y); }

// The extreme of n elements, at least one. Where one of them is NaN, *odd is set.
static inline __attribute__((always_inline)) T NAME(extreme)(const T *e, int64_t n, bool least,
                                                             bool *odd) {
  enum { L = sizeof(V) / sizeof(T), STEP = 4 * L };
  T top = e[0];
  if (n < STEP) {
    for (int64_t i = 0; i < n; i++) {
      *odd |= IS_NAN(e[i]);
      top = NAME(better)(e[i], top, least);
    }
    return top;
  }
  V a = OP(load)(e), b = OP(load)(e + L), c = OP(load)(e + 2 * L), d = OP(load)(e + 3 * L);
  M p = NAME(odd)(a, b), q = NAME(odd)(c, d);
  for (int64_t i = STEP; i < n; i += STEP) {
    const T *at = e + (i + STEP <= n ? i : n - STEP);  // the last ones may come twice
    V x = OP(load)(at), y = OP(load)(at + L), z = OP(load)(at + 2 * L), w = OP(load)(at + 3 * L);
    a = NAME(choose)(x, a, least), b = NAME(choose)(y, b, least);
    c = NAME(choose)(z, c, least), d = NAME(choose)(w, d, least);
    p |= NAME(odd)(x, y), q |= NAME(odd)(z, w);
  }
  *odd |= vfi_any((vfi)(p | q));
  a = NAME(choose)(NAME(choose)(a, b, least), NAME(choose)(c, d, least), least);
  T lane[L];
  memcpy(lane, &a, sizeof lane);
  PX__CPU_UNROLLED for (int half = L / 2; half; half /= 2)
      PX__CPU_UNROLLED for (int k = 0; k < half; k++) lane[k] =
          NAME(better)(lane[k + half], lane[k], least);
  return lane[0];
}

// The first element that equals x; there is one, unless a program writes meanwhile.
static int64_t NAME(find)(const T *e, int64_t n, T x) {
  enum { L = sizeof(V) / sizeof(T), STEP = 4 * L };
  int64_t i = 0;
  if (n < STEP) {
    while (i < n - 1 && e[i] != x) i++;
    return i;
  }
  V all = OP(set)(x);
  for (;; i = i + 2 * STEP <= n ? i + STEP : n - STEP) {
    const T *at = e + i;
    M a = OP(load)(at) == all, b = OP(load)(at + L) == all;
    M c = OP(load)(at + 2 * L) == all, d = OP(load)(at + 3 * L) == all;
    if (i < n - STEP && !vfi_any((vfi)(a | b | c | d))) continue;
    uint32_t low = MASK(bits)(a) | MASK(bits)(b) << L, high = MASK(bits)(c) | MASK(bits)(d) << L;
    uint32_t bits = low | high << 2 * L;
    return bits ? i + __builtin_ctz(bits) : i;
  }
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
  T x = least ? NAME(extreme)(e, n, true, &odd) : NAME(extreme)(e, n, false, &odd);
  if (b->some && (odd ? IS_NAN(b->value.NAME(of)) : !NAME(beats)(x, b->value.NAME(of), least)))
    return;
  int64_t at = odd ? NAME(find_nan)(e, n) : NAME(find)(e, n, x);
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
