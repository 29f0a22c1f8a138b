// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows for one element type (T, NAME as in rows_impl.h); cross_entropy.c includes
// it twice.

// The max may skip a NaN; the sum then becomes NaN.
static void NAME(class_loss)(const class_task *t, int64_t i) {
  const T *x = (const T *)t->x + i * t->size;
  int64_t c = class_of_row(t, i);
  T max = x[0];
  double sum = 0;
  for (px__steps s = {.n = t->size}; px__step(&s);) {
    T block_max = NAME(vec_max)(x + s.begin, s.end - s.begin);
    max = block_max > max ? block_max : max;
  }
  for (px__steps s = {.n = t->size}; px__step(&s);)
    sum += NAME(vec_exp_sum)(NULL, x + s.begin, max, s.end - s.begin, PX__STEP);
  T whole = (T)((double)max + log(sum));
  ((T *)t->logsumexp)[i] = whole;
  ((T *)t->losses)[i] = c < 0 ? 0 : whole - x[c];
}
static void NAME(class_backward)(const class_task *t, int64_t i) {
  const T *x = (const T *)t->x + i * t->size;
  T *to = (T *)t->to + i * t->size, whole = ((const T *)t->logsumexp)[i];
  int64_t c = class_of_row(t, i);
  T g = c < 0 ? 0 : ((const T *)t->grad)[i];
  for (px__steps s = {.n = t->size}; px__step(&s);) {
    NAME(vec_exp_sum)(to + s.begin, x + s.begin, whole, s.end - s.begin, PX__STEP);
    for (int64_t j = s.begin; j < s.end; j++) to[j] = c < 0 ? 0 : to[j] * g;
  }
  if (c >= 0) to[c] -= g;
}
