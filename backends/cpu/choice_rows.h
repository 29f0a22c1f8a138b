// SPDX-License-Identifier: Apache-2.0
// multinomial for one element type (T, NAME as in vec_impl.h); random_order.c includes it twice.

// PyTorch's words for the first weight that cannot be, where places are drawn again.
static px_fault_code NAME(fault_at)(const T *p) {
  while (*p >= 0 && *p - *p == 0) p++;
  return *p >= 0 ? PX_FAULT_INFINITE_WEIGHT : PX_FAULT_NEGATIVE_WEIGHT;
}
static px_fault_code NAME(fault_of)(const T *p, int64_t n, bool replaced) {
  int wrong = 0, any = 0;
  for (px__steps t = {.n = n}; px__step(&t);)
    for (int64_t i = t.begin; i < t.end; i++) {
      wrong |= (p[i] - p[i] != 0) | (p[i] < 0);  // not finite, or below 0
      any |= p[i] > 0;
    }
  if (wrong && replaced) return NAME(fault_at)(p);
  return wrong ? PX_FAULT_WEIGHTS : any ? PX_FAULT_NONE : PX_FAULT_NO_WEIGHT;
}
// Running sums of rows, which do not wait for each other.
static void NAME(running_sums)(const T *p, int64_t n, int64_t rows, T *sums) {
  T total[ROWS] = {0};
  for (px__steps t = {.n = n}; px__step(&t);)
    if (rows == ROWS)
      for (int64_t i = t.begin; i < t.end; i++)
        for (int r = 0; r < ROWS; r++) sums[r * n + i] = total[r] += p[r * n + i];
    else
      for (int64_t r = 0; r < rows; r++)
        for (int64_t i = t.begin; i < t.end; i++) sums[r * n + i] = total[r] += p[r * n + i];
}
static int64_t NAME(place_in)(const T *sums, int64_t n, double u) {
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
// Draws with replacement by searching a row's running sums. They are scaled as PyTorch's are.
static void NAME(draw_again)(source *s, T *sums, int64_t n, int64_t *to, int64_t count) {
  T total = sums[n - 1];
  if (total > 1 || total < (T)0.99999)
    for (px__steps t = {.n = n}; px__step(&t);)
      for (int64_t i = t.begin; i < t.end; i++) sums[i] /= total;
  sums[n - 1] = 1;
  for (px__steps t = {.n = count}; px__draw_step(&t, s->mt);)
    for (int64_t k = t.begin; k < t.end; k++) to[k] = NAME(place_in)(sums, n, next_uniform(s));
}
// Draws without replacement: the largest of p / (an exponential number).
static void NAME(draw_once)(source *s, const T *p, double *race, int64_t n, int64_t *to,
                            int64_t count) {
  int64_t work = 0;
  for (px__steps t = {.n = n}; px__draw_step(&t, s->mt);)
    for (int64_t i = t.begin; i < t.end; i++) race[i] = (double)p[i] / -log1p(-next_uniform(s));
  for (int64_t k = 0; k < count && !px__worked(&work, n); k++) {
    int64_t best = 0;
    for (px__steps t = {.n = n}; px__step(&t);)
      for (int64_t i = t.begin; i < t.end; i++)
        if (race[i] > race[best]) best = i;
    to[k] = best;
    race[best] = -1;
  }
}
// All rows, ROWS at a time; `room` holds so many rows of doubles.
static void NAME(choose)(source *s, const T *p, int64_t n, int64_t rows, bool again, void *room,
                         int64_t *to, int64_t count) {
  int64_t work = 0;
  for (int64_t r0 = 0; r0 < rows; r0 += ROWS) {
    if (r0 > 0 && px__worked(&work, ROWS * n)) return;
    int64_t many = rows - r0 < ROWS ? rows - r0 : ROWS;
    if (again) NAME(running_sums)(p + r0 * n, n, many, room);
    for (int64_t r = r0; r < r0 + many; r++) {
      px_fault_code wrong = NAME(fault_of)(p + r * n, n, again);
      if (wrong)
        px_kernel_fault(s->l, wrong, 0, 0, 0);
      else if (again)
        NAME(draw_again)(s, (T *)room + (r - r0) * n, n, to + r * count, count);
      else
        NAME(draw_once)(s, p + r * n, room, n, to + r * count, count);
    }
  }
}
