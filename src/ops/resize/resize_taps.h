// SPDX-License-Identifier: Apache-2.0
// The taps of a resized output element: input indices and weights. Included once for each type of
// positions, with the macros T (the type), NAME(x) (the name of x for T) and M(x) (the libm
// function).

static void NAME(two_taps)(T at, int64_t size, int64_t *indices, T *weights) {
  T inside = at < 0 ? 0 : at;
  indices[0] = clamp_index((int64_t)inside, size);
  indices[1] = clamp_index(indices[0] + 1, size);
  weights[1] = inside - (T)indices[0];
  weights[0] = 1 - weights[1];
}
// Cubic convolution (Keys 1981), a = -0.75.
static T NAME(keys)(T x) {
  const T a = (T)-0.75;
  x = M(fabs)(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}
static void NAME(four_taps)(T at, int64_t size, int64_t *indices, T *weights) {
  T low = M(floor)(at), fraction = at - low;
  for (int k = 0; k < 4; k++) {
    indices[k] = clamp_index((int64_t)low - 1 + k, size);
    weights[k] = NAME(keys)(fraction + 1 - (T)k);
  }
}
// The indices and weights of the taps of output element i.
static void NAME(taps_of)(const struct mode *m, const span *s, int64_t i, int64_t *indices,
                          T *weights) {
  T centre = (T)m->centre;
  T step = s->scale > 0 ? (T)(1 / s->scale) : (T)s->from / (T)s->to;
  T at = ((T)i + centre) * step - (m->taps > 1 ? centre : 0);
  if (s->corners) at = s->to > 1 ? (T)i * ((T)(s->from - 1) / (T)(s->to - 1)) : 0;
  if (m->taps == 1)
    indices[0] = clamp_index((int64_t)M(floor)(at), s->from);
  else
    (m->taps == 2 ? NAME(two_taps) : NAME(four_taps))(at, s->from, indices, weights);
}
static void NAME(fill)(const struct mode *m, const span *s, int64_t *const *indices,
                       void *const *weights) {
  int64_t one[TAPS];
  T weight[TAPS] = {1};
  for (int64_t i = 0; i < s->to; i++) {
    NAME(taps_of)(m, s, i, one, weight);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): one table of indices for each tap
    for (int k = 0; k < m->taps; k++) indices[k][i] = one[k], ((T *)weights[k])[i] = weight[k];
  }
}

// ---- antialias: the filter is widened by the scale when shrinking

static T NAME(triangle)(T x) {
  x = M(fabs)(x);
  return x < 1 ? 1 - x : 0;
}
// Cubic convolution (Keys 1981), a = -0.5.
static T NAME(cubic)(T x) {
  x = M(fabs)(x);
  if (x < 1) return (T)((1.5 * x - 2.5) * x * x + 1);
  return x < 2 ? (T)(((-0.5 * x + 2.5) * x - 4) * x + 2) : 0;
}
static T NAME(sinc)(T x) { return x == 0 ? 1 : M(sin)((T)PI * x) / ((T)PI * x); }
static T NAME(lanczos)(T x) { return -3 <= x && x < 3 ? NAME(sinc)(x) * NAME(sinc)(x / 3) : 0; }
// `reach` is the filter's radius at scale 1. Indices and weights have `most` rows of s->to
// elements.
static void NAME(fill_antialias)(int radius, const span *s, int64_t max_taps, int64_t *indices,
                                 void *numbers) {
  T *weights = numbers;
  T (*filter)(T) = radius == 1 ? NAME(triangle) : radius == 2 ? NAME(cubic) : NAME(lanczos);
  T scale = s->corners     ? (s->to > 1 ? (T)(s->from - 1) / (T)(s->to - 1) : 0)
            : s->scale > 0 ? (T)(1 / s->scale)
                           : (T)s->from / (T)s->to;
  T support = scale >= 1 ? (T)radius * scale : (T)radius, inverse = scale >= 1 ? 1 / scale : 1;
  for (int64_t i = 0; i < s->to; i++) {
    T centre = scale * ((T)i + (T)0.5), sum = 0;
    int64_t first = (int64_t)(centre - support + (T)0.5),
            end = (int64_t)(centre + support + (T)0.5);
    if (first < 0) first = 0;
    if (end > s->from) end = s->from;
    for (int64_t k = 0; k < max_taps; k++) {
      bool covered = first + k < end;
      T w = covered ? filter(((T)(first + k) - centre + (T)0.5) * inverse) : 0;
      indices[k * s->to + i] = covered ? first + k : clamp_index(end - 1, s->from);
      weights[k * s->to + i] = w, sum += w;
    }
    for (int64_t k = 0; k < max_taps && sum != 0; k++) weights[k * s->to + i] /= sum;
  }
}
#undef T
#undef NAME
#undef M
