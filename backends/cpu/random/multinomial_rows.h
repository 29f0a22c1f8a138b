// SPDX-License-Identifier: Apache-2.0
// multinomial for one element type (T, NAME as in rows_impl.h); random_order.c includes it twice.

// PyTorch's error for the first invalid weight, with replacement.
static px_fault_code NAME(fault_at)(const T *p) {
  while (*p >= 0 && *p - *p == 0) p++;
  return *p >= 0 ? PX_FAULT_INFINITE_WEIGHT : PX_FAULT_NEGATIVE_WEIGHT;
}
static px_fault_code NAME(fault_of)(const T *p, int64_t n, bool replaced) {
  int wrong = 0, any = 0;
  for (px__steps t = {.n = n}; px__step(&t);)
    for (int64_t i = t.begin; i < t.end; i++) {
      wrong |= (p[i] - p[i] != 0) | (p[i] < 0);  // inf, NaN or negative
      any |= p[i] > 0;
    }
  if (wrong && replaced) return NAME(fault_at)(p);
  return wrong ? PX_FAULT_WEIGHTS : any ? PX_FAULT_NONE : PX_FAULT_NO_WEIGHT;
}
// Cumulative sums of rows, interleaved so that they do not wait for each other.
static void NAME(cumulative_sums)(const T *p, int64_t n, int64_t rows, T *sums) {
  T total[ROWS] = {0};
  for (px__steps t = {.n = n}; px__step(&t);)
    if (rows == ROWS)
      for (int64_t i = t.begin; i < t.end; i++)
        for (int r = 0; r < ROWS; r++) sums[r * n + i] = total[r] += p[r * n + i];
    else
      for (int64_t r = 0; r < rows; r++)
        for (int64_t i = t.begin; i < t.end; i++) sums[r * n + i] = total[r] += p[r * n + i];
}
static int64_t NAME(search)(const T *sums, int64_t n, double u) {
  int64_t low = 0, high = n;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if ((double)sums[middle] < u)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
// Draws with replacement by binary search in a row's cumulative sums, normalized as in PyTorch.
static void NAME(draw_with_replacement)(source *s, T *sums, int64_t n, int64_t row, int64_t *to,
                                        int64_t count) {
  T total = sums[n - 1];
  if (total > 1 || total < (T)0.99999)
    for (px__steps t = {.n = n}; px__step(&t);)
      for (int64_t i = t.begin; i < t.end; i++) sums[i] /= total;
  sums[n - 1] = 1;
  for (px__steps t = {.n = count}; px__draw_step(&t, s->mt);)
    for (int64_t k = t.begin; k < t.end; k++)
      to[k] = NAME(search)(sums, n, next_uniform(s, row, count, k));
}
// Draws without replacement: the largest values of p / (an exponential sample).
static void NAME(draw_without_replacement)(source *s, const T *p, double *race, int64_t n,
                                           int64_t *to, int64_t count) {
  int64_t work = 0;
  for (px__steps t = {.n = n}; px__draw_step(&t, s->mt);)
    for (int64_t i = t.begin; i < t.end; i++) race[i] = (double)p[i] / next_exponential(s);
  for (int64_t k = 0; k < count && !px__work_stopped(&work, n); k++) {
    int64_t best = 0;
    for (px__steps t = {.n = n}; px__step(&t);)
      for (int64_t i = t.begin; i < t.end; i++)
        if (race[i] > race[best]) best = i;
    to[k] = best;
    race[best] = -1;
  }
}
// Processes all rows, ROWS at a time; `scratch` holds ROWS rows of doubles.
static void NAME(choose)(source *s, const T *p, int64_t n, int64_t rows, bool again, void *scratch,
                         int64_t *to, int64_t count) {
  int64_t work = 0;
  for (int64_t r0 = 0; r0 < rows; r0 += ROWS) {
    if (r0 > 0 && px__work_stopped(&work, ROWS * n)) return;
    int64_t many = rows - r0 < ROWS ? rows - r0 : ROWS;
    if (again) NAME(cumulative_sums)(p + r0 * n, n, many, scratch);
    for (int64_t r = r0; r < r0 + many; r++) {
      px_fault_code wrong = NAME(fault_of)(p + r * n, n, again);
      int64_t *row = to + r * count;
      if (wrong)
        px_kernel_fault(s->l, wrong, 0, 0, 0);
      else if (again)
        NAME(draw_with_replacement)(s, (T *)scratch + (r - r0) * n, n, r, row, count);
      else
        NAME(draw_without_replacement)(s, p + r * n, scratch, n, row, count);
    }
  }
}
