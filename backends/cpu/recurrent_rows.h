// SPDX-License-Identifier: Apache-2.0
// Rows of the steps of recurrent cells, for one element type (both.h). Arrays do not overlap.

// Keeps the state before, and gives the new one to the state and the output; a state that is
// projected first is left alone.
static void NAME(pass_on)(const step *s, int64_t row, const T *fresh) {
  size_t bytes = (size_t)s->size * sizeof(T);
  if (s->h) {
    T *h = (T *)s->h + row * s->size;
    memcpy((T *)s->h_before + row * s->size, h, bytes);
    memcpy(h, fresh, bytes);
  }
}

static void NAME(lstm_row)(T *restrict i, T *restrict f, T *restrict g, T *restrict o,
                           T *restrict c, T *restrict before, T *restrict h, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    T in = NAME(k_sigmoid)(i[k]), keep = NAME(k_sigmoid)(f[k]), fresh = NAME(k_tanh)(g[k]);
    T out = NAME(k_sigmoid)(o[k]), state = keep * c[k] + in * fresh;
    i[k] = in, f[k] = keep, g[k] = fresh, o[k] = out;
    before[k] = c[k];
    c[k] = state;
    h[k] = out * NAME(k_tanh)(state);
  }
}
static void NAME(lstm)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    T *gates = (T *)s->gates + row * 4 * n, *output = (T *)s->output + row * n;
    NAME(lstm_row)
    (gates, gates + n, gates + 2 * n, gates + 3 * n, (T *)s->c + row * n,
     (T *)s->c_before + row * n, output, n);
    NAME(pass_on)(s, row, output);
  }
}

static void NAME(gru_row)(T *restrict r, T *restrict z, T *restrict fresh, const T *restrict hr,
                          const T *restrict hz, const T *restrict hn, T *restrict kept,
                          const T *restrict h, T *restrict to, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    T reset = NAME(k_sigmoid)(r[k] + hr[k]), keep = NAME(k_sigmoid)(z[k] + hz[k]);
    T state = NAME(k_tanh)(fresh[k] + reset * hn[k]);
    r[k] = reset, z[k] = keep, fresh[k] = state;
    kept[k] = hn[k];
    to[k] = state + keep * (h[k] - state);
  }
}
static void NAME(gru)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    T *gates = (T *)s->gates + row * 3 * n, *output = (T *)s->output + row * n;
    const T *hidden = (const T *)s->hidden + row * 3 * n;
    NAME(gru_row)
    (gates, gates + n, gates + 2 * n, hidden, hidden + n, hidden + 2 * n, (T *)s->kept + row * n,
     (const T *)s->h + row * n, output, n);
    NAME(pass_on)(s, row, output);
  }
}

static void NAME(rnn)(void *context, int64_t begin, int64_t end) {
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
static inline T NAME(arriving)(const T *grad_h, const T *grad_output, int64_t k) {
  return grad_output ? grad_h[k] + grad_output[k] : grad_h[k];
}
static inline const T *NAME(row_or_none)(const void *array, int64_t row, int64_t n) {
  return array ? (const T *)array + row * n : NULL;
}

static void NAME(lstm_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    const T *restrict i = (const T *)s->gates + row * 4 * n, *restrict f = i + n;
    const T *restrict g = f + n, *restrict o = g + n;
    const T *restrict before = (const T *)s->c_before + row * n;
    const T *restrict grad_h = (const T *)s->grad_h + row * n;
    const T *restrict grad_output = NAME(row_or_none)(s->grad_output, row, n);
    T *restrict grad_c = (T *)s->grad_c + row * n, *restrict to = (T *)s->grad_gates + row * 4 * n;
    for (int64_t k = 0; k < n; k++) {
      T top = NAME(k_tanh)(f[k] * before[k] + i[k] * g[k]);
      T dh = NAME(arriving)(grad_h, grad_output, k);
      T dc = grad_c[k] + dh * o[k] * (1 - top * top);
      to[k] = dc * g[k] * i[k] * (1 - i[k]);
      to[n + k] = dc * before[k] * f[k] * (1 - f[k]);
      to[2 * n + k] = dc * i[k] * (1 - g[k] * g[k]);
      to[3 * n + k] = dh * top * o[k] * (1 - o[k]);
      grad_c[k] = dc * f[k];
    }
  }
}

// Leaves in grad_h what comes to the state before without the products.
static void NAME(gru_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    const T *restrict r = (const T *)s->gates + row * 3 * n, *restrict z = r + n;
    const T *restrict fresh = z + n, *restrict kept = (const T *)s->kept + row * n;
    const T *restrict before = (const T *)s->h_before + row * n;
    const T *restrict grad_output = NAME(row_or_none)(s->grad_output, row, n);
    T *restrict grad_h = (T *)s->grad_h + row * n, *restrict to = (T *)s->grad_gates + row * 3 * n;
    T *restrict hidden = (T *)s->grad_hidden + row * 3 * n;
    for (int64_t k = 0; k < n; k++) {
      T dh = NAME(arriving)(grad_h, grad_output, k);
      T dn = dh * (1 - z[k]) * (1 - fresh[k] * fresh[k]);
      hidden[k] = to[k] = dn * kept[k] * r[k] * (1 - r[k]);
      hidden[n + k] = to[n + k] = dh * (before[k] - fresh[k]) * z[k] * (1 - z[k]);
      to[2 * n + k] = dn;
      hidden[2 * n + k] = dn * r[k];
      grad_h[k] = dh * z[k];
    }
  }
}

static void NAME(rnn_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    const T *restrict h = (const T *)s->gates + row * n;
    const T *restrict grad_h = (const T *)s->grad_h + row * n;
    const T *restrict grad_output = NAME(row_or_none)(s->grad_output, row, n);
    T *restrict to = (T *)s->grad_gates + row * n;
    for (int64_t k = 0; k < n; k++) {
      T dh = NAME(arriving)(grad_h, grad_output, k);
      to[k] = s->relu ? (h[k] > 0 ? dh : 0) : dh * (1 - h[k] * h[k]);
    }
  }
}
