// SPDX-License-Identifier: Apache-2.0
// Optimizer steps in one pass over memory, numbers in the compute type.
#include "math.cuh"

// An element of each tensor: parameter, gradient, averages; those that are absent have no meaning.
template <typename C>
struct element {
  C p, g, a, b, top;
};
// step(element &) for each element; 16 bytes of each tensor at a time where all are aligned.
template <typename S, int N, typename F>
static __device__ __forceinline__ void walk_by(const k_step &t, int64_t first, int64_t last,
                                               F step) {
  typedef typename k_type<S>::number C;
  typedef k_vector<S, N> V;
  for (int64_t i = first + k_thread(); i < last; i += k_threads()) {
    V p = ((V *)t.param)[i], g = ((const V *)t.grad)[i], a, b, top;
    if (t.a && !t.first) a = ((V *)t.a)[i];
    if (t.b) b = ((V *)t.b)[i];
    if (t.top) top = ((V *)t.top)[i];
#pragma unroll
    for (int k = 0; k < N; k++) {
      C gradient = t.maximize ? -k_get(g.v[k]) : k_get(g.v[k]);
      element<C> e = {k_get(p.v[k]), gradient, k_get(a.v[k]), k_get(b.v[k]), k_get(top.v[k])};
      step(e);
      k_put(&p.v[k], e.p), k_put(&a.v[k], e.a), k_put(&b.v[k], e.b), k_put(&top.v[k], e.top);
    }
    ((V *)t.param)[i] = p;
    if (t.a) ((V *)t.a)[i] = a;
    if (t.b) ((V *)t.b)[i] = b;
    if (t.top) ((V *)t.top)[i] = top;
  }
}
template <typename S, typename F>
static __device__ __forceinline__ void walk(const k_step &t, F step) {
  const int N = 16 / sizeof(S);
  int64_t vectors = t.vector ? t.n / N : 0;
  walk_by<S, N>(t, 0, vectors, step);
  walk_by<S, 1>(t, vectors * N, t.n, step);
}

template <typename S>
static __device__ __forceinline__ void sgd_body(const k_step &t) {
  typedef typename k_type<S>::number C;
  C lr = (C)t.lr, momentum = (C)t.momentum, fresh = (C)t.fresh, decay = (C)t.decay;
  walk<S>(t, [&](element<C> &e) {
    C g = e.g;
    if (t.decay != 0) g += decay * e.p;
    if (t.a) {
      e.a = t.first ? g : e.a * momentum + g * fresh;
      g = t.nesterov ? g + momentum * e.a : e.a;
    }
    e.p -= lr * g;
  });
}
K_FLOATS(sgd, k_step)

static __device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
static __device__ __forceinline__ double root_of(double x) { return sqrt(x); }

// `size` is the step's size, `root` the root of the second bias correction, `keep` what decoupled
// decay leaves of a parameter.
template <typename S>
static __device__ __forceinline__ void adam_body(const k_step &t) {
  typedef typename k_type<S>::number C;
  C beta1 = (C)t.beta1, beta2 = (C)t.beta2, fresh1 = (C)(1 - t.beta1), fresh2 = (C)(1 - t.beta2);
  C size = (C)t.size, eps = (C)t.eps, root = (C)t.root, keep = (C)t.keep;
  C add = t.decoupled ? (C)0 : (C)t.decay;
  walk<S>(t, [&](element<C> &e) {
    C g = e.g + add * e.p;
    e.a = e.a * beta1 + g * fresh1;
    e.b = e.b * beta2 + g * g * fresh2;
    C s = e.b;
    if (t.top) s = e.top = s > e.top ? s : e.top;
    e.p = e.p * keep - size * e.a / (root_of(s) / root + eps);
  });
}
K_FLOATS(adam, k_step)

// a: averages of squares; b: of the squares of steps; beta1: what they keep.
template <typename S>
static __device__ __forceinline__ void adadelta_body(const k_step &t) {
  typedef typename k_type<S>::number C;
  S *p = (S *)t.param, *squares = (S *)t.a, *steps = (S *)t.b;
  const S *grad = (const S *)t.grad;
  C lr = (C)t.lr, rho = (C)t.beta1, fresh = (C)(1 - t.beta1), eps = (C)t.eps, decay = (C)t.decay;
  for (int64_t i = k_thread(); i < t.n; i += k_threads()) {
    C was = k_get(p[i]), g = (t.maximize ? -k_get(grad[i]) : k_get(grad[i])) + decay * was;
    C s = k_get(squares[i]) * rho + g * g * fresh, d = k_get(steps[i]);
    C step = root_of(d + eps) / root_of(s + eps) * g;
    k_put(&squares[i], s);
    k_put(&steps[i], d * rho + step * step * fresh);
    k_put(&p[i], was - lr * step);
  }
}
K_FLOATS(adadelta, k_step)
