// SPDX-License-Identifier: Apache-2.0
// Rows of the steps of recurrent cells, for one element type (both.h). Arrays do not overlap.

// Keeps the state before, and gives the new one to the state and the output; a state that is
// projected first is left alone.
static TARGET void NAME(pass_on)(const step *s, int64_t row, const T *fresh) {
  size_t bytes = (size_t)s->size * sizeof(T);
  if (s->h) {
    T *h = (T *)s->h + row * s->size;
    memcpy((T *)s->h_before + row * s->size, h, bytes);
    memcpy(h, fresh, bytes);
  }
}

// One function a loop: several in one would not fit the registers. A row stays in the nearest
// cache.
static TARGET void NAME(sigmoids)(T *x, int64_t n) {
  for (int64_t k = 0; k < n; k++) x[k] = NAME(k_sigmoid)(x[k]);
}
static TARGET void NAME(tanhs)(T *x, int64_t n) {
  for (int64_t k = 0; k < n; k++) x[k] = NAME(k_tanh)(x[k]);
}

static TARGET void NAME(lstm_row)(T *restrict gates, T *restrict c, T *restrict before,
                                  T *restrict h, int64_t n) {
  const T *restrict in = gates, *restrict keep = gates + n, *restrict fresh = gates + 2 * n;
  const T *restrict out = gates + 3 * n;
  NAME(sigmoids)(gates, 2 * n);
  NAME(tanhs)(gates + 2 * n, n);
  NAME(sigmoids)(gates + 3 * n, n);
  for (int64_t k = 0; k < n; k++) {
    before[k] = c[k];
    h[k] = c[k] = keep[k] * c[k] + in[k] * fresh[k];
  }
  NAME(tanhs)(h, n);
  for (int64_t k = 0; k < n; k++) h[k] *= out[k];
}
static TARGET void NAME(lstm)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    T *output = (T *)s->output + row * n;
    NAME(lstm_row)
    ((T *)s->gates + row * 4 * n, (T *)s->c + row * n, (T *)s->c_before + row * n, output, n);
    NAME(pass_on)(s, row, output);
  }
}

static TARGET void NAME(gru_row)(T *restrict gates, const T *restrict hidden, T *restrict kept,
                                 const T *restrict h, T *restrict to, int64_t n) {
  const T *restrict reset = gates, *restrict keep = gates + n;
  T *restrict fresh = gates + 2 * n;
  for (int64_t k = 0; k < 2 * n; k++) gates[k] += hidden[k];
  NAME(sigmoids)(gates, 2 * n);
  for (int64_t k = 0; k < n; k++) {
    kept[k] = hidden[2 * n + k];
    fresh[k] += reset[k] * kept[k];
  }
  NAME(tanhs)(fresh, n);
  for (int64_t k = 0; k < n; k++) to[k] = fresh[k] + keep[k] * (h[k] - fresh[k]);
}
static TARGET void NAME(gru)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    T *output = (T *)s->output + row * n;
    NAME(gru_row)
    ((T *)s->gates + row * 3 * n, (const T *)s->hidden + row * 3 * n, (T *)s->kept + row * n,
     (const T *)s->h + row * n, output, n);
    NAME(pass_on)(s, row, output);
  }
}

static TARGET void NAME(rnn)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    T *restrict gates = (T *)s->gates + row * n, *restrict output = (T *)s->output + row * n;
    if (s->relu)
      for (int64_t k = 0; k < n; k++) output[k] = gates[k] = gates[k] < 0 ? 0 : gates[k];
    else
      for (int64_t k = 0; k < n; k++) output[k] = gates[k] = NAME(k_tanh)(gates[k]);
    NAME(pass_on)(s, row, output);
  }
}

// ---- backward

// All that comes back to the state: from the next step, and from the output of this one.
static TARGET T *NAME(arriving)(const step *s, int64_t row) {
  T *restrict grad_h = (T *)s->grad_h + row * s->size;
  if (!s->grad_output) return grad_h;
  const T *restrict grad_output = (const T *)s->grad_output + row * s->size;
  for (int64_t k = 0; k < s->size; k++) grad_h[k] += grad_output[k];
  return grad_h;
}

static __attribute__((noinline)) TARGET void NAME(lstm_back_row)(const T *restrict in,
                                                                 const T *restrict before,
                                                                 const T *restrict grad_h,
                                                                 T *restrict grad_c, T *restrict to,
                                                                 int64_t n) {
  const T *keep = in + n, *fresh = keep + n, *out = fresh + n;
  for (int64_t k = 0; k < n; k++) {
    T top = NAME(k_tanh)(keep[k] * before[k] + in[k] * fresh[k]), dh = grad_h[k];
    T dc = grad_c[k] + dh * out[k] * (1 - top * top);
    to[k] = dc * fresh[k] * in[k] * (1 - in[k]);
    to[n + k] = dc * before[k] * keep[k] * (1 - keep[k]);
    to[2 * n + k] = dc * in[k] * (1 - fresh[k] * fresh[k]);
    to[3 * n + k] = dh * top * out[k] * (1 - out[k]);
    grad_c[k] = dc * keep[k];
  }
}
static TARGET void NAME(lstm_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) NAME(lstm_back_row)
  ((const T *)s->gates + row * 4 * n, (const T *)s->c_before + row * n, NAME(arriving)(s, row),
   (T *)s->grad_c + row * n, (T *)s->grad_gates + row * 4 * n, n);
}

// Leaves in grad_h what comes to the state before without the products.
static __attribute__((noinline)) TARGET void NAME(gru_back_row)(const T *restrict reset,
                                                                const T *restrict kept,
                                                                const T *restrict before,
                                                                T *restrict grad_h, T *restrict to,
                                                                T *restrict hidden, int64_t n) {
  const T *keep = reset + n, *fresh = keep + n;
  for (int64_t k = 0; k < n; k++) {
    T dh = grad_h[k], dn = dh * (1 - keep[k]) * (1 - fresh[k] * fresh[k]);
    T dr = dn * kept[k] * reset[k] * (1 - reset[k]);
    T dz = dh * (before[k] - fresh[k]) * keep[k] * (1 - keep[k]);
    to[k] = dr, to[n + k] = dz, to[2 * n + k] = dn;
    hidden[k] = dr, hidden[n + k] = dz, hidden[2 * n + k] = dn * reset[k];
    grad_h[k] = dh * keep[k];
  }
}
static TARGET void NAME(gru_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) NAME(gru_back_row)
  ((const T *)s->gates + row * 3 * n, (const T *)s->kept + row * n,
   (const T *)s->h_before + row * n, NAME(arriving)(s, row), (T *)s->grad_gates + row * 3 * n,
   (T *)s->grad_hidden + row * 3 * n, n);
}

static TARGET void NAME(rnn_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    const T *restrict h = (const T *)s->gates + row * n, *restrict dh = NAME(arriving)(s, row);
    T *restrict to = (T *)s->grad_gates + row * n;
    if (s->relu)
      for (int64_t k = 0; k < n; k++) to[k] = h[k] > 0 ? dh[k] : 0;
    else
      for (int64_t k = 0; k < n; k++) to[k] = dh[k] * (1 - h[k] * h[k]);
  }
}
