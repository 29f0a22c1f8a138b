// SPDX-License-Identifier: Apache-2.0
// max and min with indices for one element type. T: element; I: an integer of the same width;
// NAME(x): suffixed names; IS_NAN(x): for elements and vectors; V: vector; M: its mask; OP(x) and
// MASK(x): their functions in simd.h. extreme.c includes it for each type.

// Index of the first of n elements equal to x, where n is at most the length of four vectors. There
// is one, unless the program writes the tensor concurrently.
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

// True if x beats y, given that y has the smaller index.
static inline bool NAME(beats)(T x, T y, bool is_min) {
  return (is_min ? x < y : x > y) || (IS_NAN(x) && !IS_NAN(y));
}

// Adds n elements, the first with index `first`.
static void NAME(join)(best *b, const void *elements, int64_t n, int64_t first, bool is_min) {
  const T *e = elements;
  bool has_nan = false;
  int64_t first_index;
  T x = is_min ? NAME(px__extreme)(e, n, true, &has_nan, &first_index)
               : NAME(px__extreme)(e, n, false, &has_nan, &first_index);
  if (b->has_value &&
      (has_nan ? IS_NAN(b->value.NAME(of)) : !NAME(beats)(x, b->value.NAME(of), is_min)))
    return;
  int64_t at = has_nan ? NAME(find_nan)(e, n)
                       : first_index + NAME(find)(e + first_index, n - first_index, x);
  *b = (best){.has_value = true, .index = first + at, .value.NAME(of) = e[at]};
}
static void NAME(merge)(best *b, const best *later, bool is_min) {
  if (!b->has_value || NAME(beats)(later->value.NAME(of), b->value.NAME(of), is_min)) *b = *later;
}

// Adds a row to the extremes of n columns and to their row numbers.
static void NAME(columns)(void *extremes, void *rows, const void *elements, int64_t n, int64_t row,
                          bool is_min) {
  T *restrict top = extremes;
  I *restrict at = rows;
  const T *restrict e = elements;
  I here = (I)row;
  if (is_min) {
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
