// SPDX-License-Identifier: Apache-2.0
// The loops of rows.h for one element type. T: element, V: its vector of L lanes, OP(x): vector
// functions, NAME(x): suffixed names.
enum { NAME(SUM_BLOCK) = 256 * L };

static inline double NAME(vec_sum)(const T *x, int64_t n) {
  double total = 0;
  for (int64_t work = 0; n > 0;) {
    int64_t m = n < NAME(SUM_BLOCK) ? n : NAME(SUM_BLOCK), i = 0;
    V a = OP(set)(0), b = a;
    for (; i + 2 * L <= m; i += 2 * L) a += OP(load)(x + i), b += OP(load)(x + i + L);
    double s = OP(sum)(a + b);
    for (; i < m; i++) s += x[i];
    total += s, x += m, n -= m;
    if (n > 0 && px__work_stopped(&work, m)) break;
  }
  return total;
}
// Sum of (x - mean)^2. Prefetches `ahead` elements past x.
static inline double NAME(vec_sum_square)(const T *x, T mean, int64_t n, int64_t ahead) {
  double total = 0;
  for (int64_t work = 0; n > 0;) {
    int64_t m = n < NAME(SUM_BLOCK) ? n : NAME(SUM_BLOCK), i = 0;
    V a = OP(set)(0), b = a, centre = OP(set)(mean);
    for (; i + 2 * L <= m; i += 2 * L) {
      __builtin_prefetch(x + i + ahead);
      V p = OP(load)(x + i) - centre, q = OP(load)(x + i + L) - centre;
      a = OP(fma)(p, p, a), b = OP(fma)(q, q, b);
    }
    double s = OP(sum)(a + b);
    for (; i < m; i++) s += (double)(x[i] - mean) * (x[i] - mean);
    total += s, x += m, n -= m;
    if (n > 0 && px__work_stopped(&work, m)) break;
  }
  return total;
}
static inline double NAME(vec_dot)(const T *x, const T *y, int64_t n) {
  double total = 0;
  for (int64_t work = 0; n > 0;) {
    int64_t m = n < NAME(SUM_BLOCK) ? n : NAME(SUM_BLOCK), i = 0;
    V a = OP(set)(0), b = a;
    for (; i + 2 * L <= m; i += 2 * L) {
      a = OP(fma)(OP(load)(x + i), OP(load)(y + i), a);
      b = OP(fma)(OP(load)(x + i + L), OP(load)(y + i + L), b);
    }
    double s = OP(sum)(a + b);
    for (; i < m; i++) s += (double)x[i] * y[i];
    total += s, x += m, y += m, n -= m;
    if (n > 0 && px__work_stopped(&work, m)) break;
  }
  return total;
}
// Max; x must not contain NaN.
static inline T NAME(vec_max)(const T *x, int64_t n) {
  T top = x[0];
  int64_t i = 0;
  if (n >= L) {
    V a = OP(load)(x), b = a;
    for (i = L; i + 2 * L <= n; i += 2 * L)
      a = OP(max)(OP(load)(x + i), a), b = OP(max)(OP(load)(x + i + L), b);
    a = OP(max)(a, b);
    for (int k = 0; k < L; k++) top = a[k] > top ? a[k] : top;
  }
  for (; i < n; i++) top = x[i] > top ? x[i] : top;
  return top;
}
// y = exp(x - shift) for x <= shift; returns the sum of y. `y` may be NULL if only the sum is
// needed. Prefetches `ahead` elements past x.
static inline double NAME(vec_exp_sum)(T *y, const T *x, T shift, int64_t n, int64_t ahead) {
  V sum = OP(set)(0), s = OP(set)(shift);
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    __builtin_prefetch(x + i + ahead);
    V e = OP(exp_nonpositive)(OP(load)(x + i) - s);
    if (y) OP(store)(y + i, e);
    sum += e;
  }
  double total = OP(sum)(sum);
  if (i == n) return total;
  T line[L] = {0};
  for (int k = 0; k < L; k++) line[k] = k < n - i ? x[i + k] : shift;
  V e = OP(exp_nonpositive)(OP(load)(line) - s);
  OP(store)(line, e);
  for (int k = 0; k < n - i; k++) total += line[k];
  if (y) memcpy(y + i, line, (size_t)(n - i) * sizeof(T));
  return total;
}
// y = exp(x) for x <= 0.
static inline void NAME(vec_exp)(T *y, const T *x, int64_t n) {
  (void)NAME(vec_exp_sum)(y, x, 0, n, 0);
}
