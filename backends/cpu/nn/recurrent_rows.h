// SPDX-License-Identifier: Apache-2.0
// Rows of recurrent steps for one element type (for_f32_f64.h). Arrays do not overlap.

// Saves the previous state and stores the new one. Without s->h (the state is projected first) does
// nothing.
static TARGET void NAME(store_state)(const step *s, int64_t row, const T *candidate) {
  size_t bytes = (size_t)s->size * sizeof(T);
  if (s->h) {
    T *h = (T *)s->h + row * s->size;
    memcpy((T *)s->h_before + row * s->size, h, bytes);
    memcpy(h, candidate, bytes);
  }
}

// One function per loop: a combined one would exceed the registers. A row stays in L1.
static TARGET void NAME(sigmoids)(T *x, int64_t n) {
  for (int64_t k = 0; k < n; k++) x[k] = NAME(k_sigmoid)(x[k]);
}
static TARGET void NAME(tanhs)(T *x, int64_t n) {
  for (int64_t k = 0; k < n; k++) x[k] = NAME(k_tanh)(x[k]);
}

static TARGET void NAME(lstm_row)(T *restrict gates, T *restrict c, T *restrict before,
                                  T *restrict h, int64_t n) {
  const T *restrict in = gates, *restrict keep = gates + n, *restrict candidate = gates + 2 * n;
  const T *restrict out = gates + 3 * n;
  NAME(sigmoids)(gates, 2 * n);
  NAME(tanhs)(gates + 2 * n, n);
  NAME(sigmoids)(gates + 3 * n, n);
  for (int64_t k = 0; k < n; k++) {
    before[k] = c[k];
    h[k] = c[k] = keep[k] * c[k] + in[k] * candidate[k];
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
    NAME(store_state)(s, row, output);
  }
}

static TARGET void NAME(gru_row)(T *restrict gates, const T *restrict hidden, T *restrict kept,
                                 const T *restrict h, T *restrict to, int64_t n) {
  const T *restrict reset = gates, *restrict keep = gates + n;
  T *restrict candidate = gates + 2 * n;
  for (int64_t k = 0; k < 2 * n; k++) gates[k] += hidden[k];
  NAME(sigmoids)(gates, 2 * n);
  for (int64_t k = 0; k < n; k++) {
    kept[k] = hidden[2 * n + k];
    candidate[k] += reset[k] * kept[k];
  }
  NAME(tanhs)(candidate, n);
  for (int64_t k = 0; k < n; k++) to[k] = candidate[k] + keep[k] * (h[k] - candidate[k]);
}
static TARGET void NAME(gru)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    T *output = (T *)s->output + row * n;
    NAME(gru_row)
    ((T *)s->gates + row * 3 * n, (const T *)s->hidden + row * 3 * n, (T *)s->kept + row * n,
     (const T *)s->h + row * n, output, n);
    NAME(store_state)(s, row, output);
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
    NAME(store_state)(s, row, output);
  }
}

// ---- backward

// The gradient of the state: from the next step plus this step's output. Accumulated in grad_h.
static TARGET T *NAME(state_gradient)(const step *s, int64_t row) {
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
  const T *keep = in + n, *candidate = keep + n, *out = candidate + n;
  for (int64_t k = 0; k < n; k++) {
    T top = NAME(k_tanh)(keep[k] * before[k] + in[k] * candidate[k]), dh = grad_h[k];
    T dc = grad_c[k] + dh * out[k] * (1 - top * top);
    to[k] = dc * candidate[k] * in[k] * (1 - in[k]);
    to[n + k] = dc * before[k] * keep[k] * (1 - keep[k]);
    to[2 * n + k] = dc * in[k] * (1 - candidate[k] * candidate[k]);
    to[3 * n + k] = dh * top * out[k] * (1 - out[k]);
    grad_c[k] = dc * keep[k];
  }
}
static TARGET void NAME(lstm_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) NAME(lstm_back_row)
  ((const T *)s->gates + row * 4 * n, (const T *)s->c_before + row * n,
   NAME(state_gradient)(s, row), (T *)s->grad_c + row * n, (T *)s->grad_gates + row * 4 * n, n);
}

// Leaves in grad_h the gradient of the previous state, except for the part through the products.
static __attribute__((noinline)) TARGET void NAME(gru_back_row)(const T *restrict reset,
                                                                const T *restrict kept,
                                                                const T *restrict before,
                                                                T *restrict grad_h, T *restrict to,
                                                                T *restrict hidden, int64_t n) {
  const T *keep = reset + n, *candidate = keep + n;
  for (int64_t k = 0; k < n; k++) {
    T dh = grad_h[k], dn = dh * (1 - keep[k]) * (1 - candidate[k] * candidate[k]);
    T dr = dn * kept[k] * reset[k] * (1 - reset[k]);
    T dz = dh * (before[k] - candidate[k]) * keep[k] * (1 - keep[k]);
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
   (const T *)s->h_before + row * n, NAME(state_gradient)(s, row), (T *)s->grad_gates + row * 3 * n,
   (T *)s->grad_hidden + row * 3 * n, n);
}

static TARGET void NAME(rnn_back)(void *context, int64_t begin, int64_t end) {
  const step *s = context;
  int64_t n = s->size;
  for (int64_t row = begin; row < end; row++) {
    const T *restrict h = (const T *)s->gates + row * n, *restrict dh =
                                                             NAME(state_gradient)(s, row);
    T *restrict to = (T *)s->grad_gates + row * n;
    if (s->relu)
      for (int64_t k = 0; k < n; k++) to[k] = h[k] > 0 ? dh[k] : 0;
    else
      for (int64_t k = 0; k < n; k++) to[k] = dh[k] * (1 - h[k] * h[k]);
  }
}
