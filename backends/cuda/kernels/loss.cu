// SPDX-License-Identifier: Apache-2.0
// Losses: selection by class (nll), and element-wise losses with their sums. Sums are double, in
// an order that depends on sizes only.
//
// Up to 1024 blocks of K_BLOCK threads loop over the elements in order; each stores a sum, and
// one block joins them. In nll a thread handles one position: it reads the target and one
// element of x. These elements are `inner` neighbours or, with inner = 1, a row of classes
// apart.
#include "math.cuh"

// ---- nll. Classes are the middle dimension of outer x size x inner; targets are int64 or uint8
// (`dtype`).

// Class of position i, or -1 if ignored; an invalid class is reported.
static __device__ __forceinline__ int64_t class_at(const k_rows &p, const void *target, int64_t i) {
  int64_t t = p.dtype == K_INT64 ? ((const int64_t *)target)[i] : ((const uint8_t *)target)[i];
  if (t == p.ignore) return -1;
  if (t >= 0 && t < p.size) return t;
  k_fault(&p.where, K_FAULT_TARGET, t, 0, 0);
  return -1;
}
// Writes losses and zero total weight, or each block's sum and weight (partial).
template <typename S>
static __device__ __forceinline__ void nll_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *x = (const S *)p.input, *weight = (const S *)p.weight;
  int64_t n = p.outer * p.inner;
  double sum = 0, total = 0;
  for (int64_t i = k_thread(); i < n; i += k_threads()) {
    int64_t c = class_at(p, p.target, i);
    C w = c < 0 ? (C)0 : weight ? k_get(weight[c]) : (C)1;
    C v = c < 0 ? (C)0 : -w * k_get(x[(i / p.inner * p.size + c) * p.inner + i % p.inner]);
    if (p.how == K_EACH) k_put((S *)p.result + i, v);
    sum += v, total += w;
  }
  if (p.how == K_EACH) {
    if (k_thread() == 0) k_put((S *)p.total_weight, 0.0);
    return;
  }
  sum = k_join(sum, blockDim.x, k_add()), total = k_join(total, blockDim.x, k_add());
  double *to = (double *)p.partial + 2 * blockIdx.x;
  if (threadIdx.x == 0) to[0] = sum, to[1] = total;
}
K_FLOATS(nll, k_rows)

// One block joins the sums of `chunks` blocks.
template <typename S>
static __device__ __forceinline__ void nll_join_body(const k_rows &p) {
  const double *from = (const double *)p.partial;
  double sum = 0, total = 0;
  for (int64_t i = threadIdx.x; i < p.chunks; i += blockDim.x)
    sum += from[2 * i], total += from[2 * i + 1];
  sum = k_join(sum, blockDim.x, k_add()), total = k_join(total, blockDim.x, k_add());
  if (threadIdx.x) return;
  k_put((S *)p.result, p.how == K_SUM ? sum : sum / total);
  k_put((S *)p.total_weight, total);
}
K_FLOATS(nll_join, k_rows)

// Gradient of x, which is cleared before.
template <typename S>
static __device__ __forceinline__ void nll_backward_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *g = (const S *)p.grad, *weight = (const S *)p.weight;
  C scale = p.how == K_MEAN ? 1 / (C)k_get(*(const S *)p.total_weight) : (C)1;
  for (int64_t i = k_thread(); i < p.outer * p.inner; i += k_threads()) {
    int64_t c = class_at(p, p.target, i);
    if (c < 0) continue;
    C w = weight ? k_get(weight[c]) : (C)1;
    k_put((S *)p.result + (i / p.inner * p.size + c) * p.inner + i % p.inner,
          -w * scale * k_get(g[p.how == K_EACH ? i : 0]));
  }
}
K_FLOATS(nll_backward, k_rows)

// ---- element-wise losses f(a, b) with parameter p, and their derivatives in a

template <typename C>
static __device__ __forceinline__ C larger(C a, C b) {
  return a > b ? a : b;
}
template <typename C>
static __device__ __forceinline__ C loss_of(int loss, C a, C b, C p) {
  C d = fabs(a - b);
  switch (loss) {
    case K_MSE:
      return d * d;
    case K_SMOOTH:
      return d < p ? (C)0.5 * d * d / p : d - (C)0.5 * p;
    case K_HUBER:
      return d <= p ? (C)0.5 * d * d : p * (d - (C)0.5 * p);
    case K_BCE:  // logarithms are clamped at -100, so a probability of 0 gives a finite loss
      return (b - 1) * larger((C)log1p(-a), (C)-100) - b * larger((C)log(a), (C)-100);
    default:
      return (a > 0 ? a * (1 - b) : -a * b) + (C)log1p(exp(-fabs(a)));
  }
}
template <typename C>
static __device__ __forceinline__ C slope_of(int loss, C a, C b, C p) {
  C d = a - b;
  switch (loss) {
    case K_MSE:
      return 2 * d;
    case K_SMOOTH:
      return fabs(d) < p ? d / p : d > 0 ? (C)1 : d < 0 ? (C)-1 : d;
    case K_HUBER:
      return d < -p ? -p : d > p ? p : d;
    case K_BCE:
      return d / larger(a * (1 - a), (C)1e-12);
    default:
      return 1 / (1 + (C)exp(-a)) - b;
  }
}
// Reports invalid probabilities, the input's before the target's.
template <typename C>
static __device__ __forceinline__ void check_chances(const k_rows &p, C a, C b) {
  if (!(a >= 0 && a <= 1)) k_fault(&p.where, K_FAULT_INPUT, 0, 0, 0);
  if (!(b >= 0 && b <= 1)) k_fault(&p.where, K_FAULT_TARGETS, 0, 0, 0);
}
// Losses of `size` elements, or each block's sum (partial).
template <typename S>
static __device__ __forceinline__ void element_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  double sum = 0;
  for (int64_t i = k_thread(); i < p.size; i += k_threads()) {
    C a = (C)k_get(((const S *)p.input)[i]), b = (C)k_get(((const S *)p.target)[i]);
    C v = loss_of(p.logs, a, b, (C)p.number);
    if (p.logs == K_BCE) check_chances(p, a, b);
    if (p.how == K_EACH)
      k_put((S *)p.result + i, v);
    else
      sum += v;
  }
  if (p.how == K_EACH) return;
  sum = k_join(sum, blockDim.x, k_add());
  if (threadIdx.x == 0) ((double *)p.partial)[blockIdx.x] = sum;
}
K_FLOATS(element, k_rows)

// One block joins the sums of `chunks` blocks.
template <typename S>
static __device__ __forceinline__ void element_join_body(const k_rows &p) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < p.chunks; i += blockDim.x) sum += ((double *)p.partial)[i];
  sum = k_join(sum, blockDim.x, k_add());
  if (threadIdx.x == 0) k_put((S *)p.result, p.how == K_MEAN ? sum / (double)p.size : sum);
}
K_FLOATS(element_join, k_rows)

// Gradient of a; the loss's gradient is one number, or one per element.
template <typename S>
static __device__ __forceinline__ void element_backward_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  C scale = p.how == K_MEAN ? (C)(1 / (double)p.size) : (C)1;
  for (int64_t i = k_thread(); i < p.size; i += k_threads()) {
    C v = slope_of(p.logs, (C)k_get(((const S *)p.input)[i]), (C)k_get(((const S *)p.target)[i]),
                   (C)p.number);
    k_put((S *)p.result + i, v * scale * k_get(((const S *)p.grad)[p.outer == 1 ? 0 : i]));
  }
}
K_FLOATS(element_backward, k_rows)
