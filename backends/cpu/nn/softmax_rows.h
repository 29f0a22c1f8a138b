// SPDX-License-Identifier: Apache-2.0
// Softmax of one row and of a block of interleaved rows, for one element type (T, NAME as in
// rows_impl.h); softmax.c includes it twice.

// A row longer than PX__STEP.
static void NAME(long_row)(bool logs, T *y, const T *x, int64_t n) {
  T top = x[0];
  double sum = 0;
  for (px__steps s = {.n = n}; px__step(&s);) {
    T here = NAME(vec_max)(x + s.begin, s.end - s.begin);
    top = here > top ? here : top;
  }
  for (px__steps s = {.n = n}; px__step(&s);)
    sum +=
        NAME(vec_exp_sum)(logs ? NULL : y + s.begin, x + s.begin, top, s.end - s.begin, PX__STEP);
  T scale = (T)(1 / sum), shift = (T)LOG(sum);
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) y[i] = logs ? x[i] - top - shift : y[i] * scale;
}
// Prefetches the next row during the exponentials. The max may skip a NaN; the sum then becomes
// NaN.
static void NAME(row)(bool logs, T *y, const T *x, int64_t n) {
  if (n > PX__STEP) {
    NAME(long_row)(logs, y, x, n);
    return;
  }
  T top = NAME(vec_max)(x, n);
  if (!logs) {
    T scale = (T)(1 / NAME(vec_exp_sum)(y, x, top, n, n));
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
    return;
  }
  T shift = (T)LOG(NAME(vec_exp_sum)(NULL, x, top, n, n));
  for (int64_t i = 0; i < n; i++) y[i] = x[i] - top - shift;
}

// `lanes` rows at once with elements `step` apart: reduces over a dimension other than the last.
static void NAME(lanes)(bool logs, T *y, const T *x, int64_t n, int64_t step, int lanes) {
  T top[LANES], sum[LANES], line[LANES];
  for (int j = 0; j < lanes; j++) top[j] = x[j], sum[j] = 0;
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      for (int j = 0; j < lanes; j++) {
        T v = x[i * step + j];
        top[j] = v > top[j] || v != v ? v : top[j];
      }
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) {
      for (int j = 0; j < lanes; j++) line[j] = x[i * step + j] - top[j];
      NAME(vec_exp)(line, line, lanes);
      for (int j = 0; j < lanes; j++) sum[j] += line[j];
      if (!logs) memcpy(y + i * step, line, (size_t)lanes * sizeof(T));
    }
  for (int j = 0; j < lanes; j++) sum[j] = logs ? (T)LOG(sum[j]) : 1 / sum[j];
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      for (int j = 0; j < lanes; j++) {
        int64_t at = i * step + j;
        y[at] = logs ? x[at] - top[j] - sum[j] : y[at] * sum[j];
      }
}

// vec_exp requires y <= 0, as holds for log_softmax.
static void NAME(row_backward)(bool logs, T *to, const T *g, const T *y, int64_t n) {
  T sum = (T)(logs ? NAME(vec_sum)(g, n) : NAME(vec_dot)(g, y, n));
  for (px__steps s = {.n = n}; px__step(&s);) {
    if (logs) NAME(vec_exp)(to + s.begin, y + s.begin, s.end - s.begin);
    for (int64_t i = s.begin; i < s.end; i++)
      to[i] = logs ? g[i] - to[i] * sum : (g[i] - sum) * y[i];
  }
}
static void NAME(lanes_backward)(bool logs, T *to, const T *g, const T *y, int64_t n, int64_t step,
                                 int lanes) {
  T sum[LANES] = {0}, line[LANES];
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++)
      for (int j = 0; j < lanes; j++) {
        int64_t at = i * step + j;
        sum[j] += logs ? g[at] : g[at] * y[at];
      }
  for (px__steps s = {.n = n}; px__step(&s);)
    for (int64_t i = s.begin; i < s.end; i++) {
      if (logs) NAME(vec_exp)(line, y + i * step, lanes);
      for (int j = 0; j < lanes; j++) {
        int64_t at = i * step + j;
        to[at] = logs ? g[at] - line[j] * sum[j] : (g[at] - sum[j]) * y[at];
      }
    }
}

// Rows [begin, end) of outer x inner; blocks of LANES rows if inner > 1.
static void NAME(range)(const task *t, int64_t begin, int64_t end) {
  T *to = t->to;
  const T *a = t->a, *b = t->b;
  if (t->inner == 1) {
    for (int64_t i = begin; i < end; i++) {
      int64_t at = i * t->size;
      if (t->backward)
        NAME(row_backward)(t->logs, to + at, a + at, b + at, t->size);
      else
        NAME(row)(t->logs, to + at, a + at, t->size);
    }
    return;
  }
  int64_t blocks = px__ceil_div(t->inner, LANES);
  for (int64_t i = begin; i < end; i++) {
    int64_t j = i % blocks * LANES, at = i / blocks * t->size * t->inner + j;
    int lanes = t->inner - j < LANES ? (int)(t->inner - j) : LANES;
    if (t->backward)
      NAME(lanes_backward)(t->logs, to + at, a + at, b + at, t->size, t->inner, lanes);
    else
      NAME(lanes)(t->logs, to + at, a + at, t->size, t->inner, lanes);
  }
}
