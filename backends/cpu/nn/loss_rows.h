// SPDX-License-Identifier: Apache-2.0
// Element-wise losses for one element type (T, NAME as in rows_impl.h); loss.c includes it twice.

static inline T NAME(mse)(T a, T b, T p) { return (a - b) * (a - b); }
static inline T NAME(mse_slope)(T a, T b, T p) { return 2 * (a - b); }
static inline T NAME(smooth)(T a, T b, T beta) {
  T d = NAME(k_abs)(a - b);
  return d < beta ? (T)0.5 * d * d / beta : d - (T)0.5 * beta;
}
static inline T NAME(smooth_slope)(T a, T b, T beta) {
  T d = a - b;
  return NAME(k_abs)(d) < beta ? d / beta : d > 0 ? (T)1 : d < 0 ? (T)-1 : d;
}
static inline T NAME(huber)(T a, T b, T delta) {
  T d = NAME(k_abs)(a - b);
  return d <= delta ? (T)0.5 * d * d : delta * (d - (T)0.5 * delta);
}
static inline T NAME(huber_slope)(T a, T b, T delta) {
  T d = a - b;
  return d < -delta ? -delta : d > delta ? delta : d;
}
// Logarithms are clamped at -100, so that a probability of 0 gives a finite loss.
static inline T NAME(bce)(T a, T b, T p) {
  T yes = NAME(k_log)(a), no = NAME(k_log1p)(-a);
  return (b - 1) * (no > -100 ? no : -100) - b * (yes > -100 ? yes : -100);
}
static inline T NAME(bce_slope)(T a, T b, T p) {
  T q = a * (1 - a);
  return (a - b) / (q > (T)1e-12 ? q : (T)1e-12);
}
static inline T NAME(logits)(T a, T b, T p) {
  T rest = NAME(k_log1p)(NAME(k_exp)(-NAME(k_abs)(a)));
  return (a > 0 ? a * (1 - b) : -a * b) + rest;
}
static inline T NAME(logits_slope)(T a, T b, T p) { return NAME(k_sigmoid)(a) - b; }

#define LOSS_LOOP_AS(row, name) \
  static void NAME(row)(T * o, const T *a, const T *b, T p) { \
    PX__CPU_ROLLED for (int k = 0; k < PX__CPU_BLOCK_SIZE; k++) o[k] = NAME(name)(a[k], b[k], p); \
  }
#define LOSS_LOOP(name) \
  PX__CPU_WIDE LOSS_LOOP_AS(name##_wide_row, name) LOSS_LOOP_AS(name##_row, name)
LOSSES(LOSS_LOOP)
#undef LOSS_LOOP_AS
#undef LOSS_LOOP

// True if all elements are in [0, 1]; false for NaN.
static bool NAME(all_probabilities)(const void *at, int64_t n) {
  const T *x = at;
  bool good = true;
  for (int64_t i = 0; i < n; i++) good &= x[i] >= 0 && x[i] <= 1;
  return good;
}

// Elements [begin, end): stored to t->out, times the gradient if present; or returns their sum.
static double NAME(part)(const loss_task *t, int64_t begin, int64_t end) {
  T a[PX__CPU_BLOCK_SIZE] = {0}, b[PX__CPU_BLOCK_SIZE] = {0}, o[PX__CPU_BLOCK_SIZE];
  double lanes[LANES] = {0}, sum = 0;
  const T *grad = t->grad;
  void (*row)(T *, const T *, const T *, T) =
      px_cpu_level_used() >= PX_CPU_AVX512 ? NAME(t->f->wide_row) : NAME(t->f->row);
  for (int64_t i = begin; i < end; i += PX__CPU_BLOCK_SIZE) {
    int64_t n = px__cpu_block(end - i);
    const T *from_a = (const T *)t->a + i, *from_b = (const T *)t->b + i;
    if (n < PX__CPU_BLOCK_SIZE) {
      from_a = memcpy(a, from_a, (size_t)n * sizeof *a);
      from_b = memcpy(b, from_b, (size_t)n * sizeof *b);
    }
    row(o, from_a, from_b, (T)t->p);
    for (int64_t k = 0; grad && k < n; k++)
      o[k] = (T)(o[k] * t->scale * grad[t->one_grad ? 0 : i + k]);
    if (t->out) {
      memcpy((T *)t->out + i, o, (size_t)n * sizeof *o);
      continue;
    }
    for (int64_t k = n; k < PX__CPU_BLOCK_SIZE; k++) o[k] = 0;
    for (int k = 0; k < PX__CPU_BLOCK_SIZE; k += LANES)
      for (int j = 0; j < LANES; j++) lanes[j] += (double)o[k + j];
  }
  for (int j = 0; j < LANES; j++) sum += lanes[j];
  return sum;
}
