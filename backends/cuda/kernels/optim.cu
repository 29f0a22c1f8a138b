// SPDX-License-Identifier: Apache-2.0
// Optimizer steps in one pass over memory: a thread an element, numbers in the compute type.
#include "math.cuh"

template <typename S>
static __device__ __forceinline__ void sgd_body(const k_step &t) {
  typedef typename k_type<S>::number C;
  S *p = (S *)t.param, *m = (S *)t.a;
  const S *grad = (const S *)t.grad;
  C lr = (C)t.lr, momentum = (C)t.momentum, fresh = (C)t.fresh, decay = (C)t.decay;
  for (int64_t i = k_thread(); i < t.n; i += k_threads()) {
    C x = k_get(p[i]), g = t.maximize ? -k_get(grad[i]) : k_get(grad[i]);
    if (t.decay != 0) g += decay * x;
    if (m) {
      C b = t.first ? g : k_get(m[i]) * momentum + g * fresh;
      k_put(&m[i], b);
      g = t.nesterov ? g + momentum * b : b;
    }
    k_put(&p[i], x - lr * g);
  }
}
K_FLOATS(sgd, k_step)

static __device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
static __device__ __forceinline__ double root_of(double x) { return sqrt(x); }

// `size` is the step's size, `root` the root of the second bias correction, `keep` what decoupled
// decay leaves of a parameter.
template <typename S>
static __device__ __forceinline__ void adam_body(const k_step &t) {
  typedef typename k_type<S>::number C;
  S *p = (S *)t.param, *avg = (S *)t.a, *sq = (S *)t.b, *top = (S *)t.top;
  const S *grad = (const S *)t.grad;
  C beta1 = (C)t.beta1, beta2 = (C)t.beta2, fresh1 = (C)(1 - t.beta1), fresh2 = (C)(1 - t.beta2);
  C size = (C)t.size, eps = (C)t.eps, root = (C)t.root, keep = (C)t.keep;
  C add = t.decoupled ? (C)0 : (C)t.decay;
  for (int64_t i = k_thread(); i < t.n; i += k_threads()) {
    C was = k_get(p[i]), g = (t.maximize ? -k_get(grad[i]) : k_get(grad[i])) + add * was;
    C a = k_get(avg[i]) * beta1 + g * fresh1, s = k_get(sq[i]) * beta2 + g * g * fresh2;
    k_put(&avg[i], a);
    k_put(&sq[i], s);
    if (top) {
      C most = k_get(top[i]);
      s = s > most ? s : most;
      k_put(&top[i], s);
    }
    k_put(&p[i], was * keep - size * a / (root_of(s) / root + eps));
  }
}
K_FLOATS(adam, k_step)
