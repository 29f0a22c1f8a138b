// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax with backward kernels, over the middle dimension of outer x size x inner.
//
// Contiguous rows (inner = 1) stay in registers if aligned and not too long, and memory is read
// once: `lanes` threads per row, in blocks of 64 to 1024 threads (rows.cuh). Other rows are read
// twice by blocks of 1024. Strided lines are read twice, by one thread each in blocks of
// K_BLOCK; a warp reads 32 adjacent elements of `inner`.
#include "rows.cuh"

template <typename C>
struct lowest_of;
template <>
struct lowest_of<float> {
  static __device__ float get() { return K_min_value_f32; }
};
template <>
struct lowest_of<double> {
  static __device__ double get() { return K_min_value_f64; }
};
// exp(x) for results stored as S: with an error of 2^-21 for fp16 and bf16.
template <typename S>
static __device__ __forceinline__ float exp_for(float x) {
  return sizeof(S) == 2 ? __expf(x) : expf(x);
}
template <typename S>
static __device__ __forceinline__ double exp_for(double x) {
  return exp(x);
}
static __device__ __forceinline__ float log_of(float x) { return logf(x); }
static __device__ __forceinline__ double log_of(double x) { return log(x); }

// ---- rows in registers

template <typename S, int BYTES>
static __device__ __forceinline__ void softmax_body(const k_rows &p) {
  typedef k_row<S, BYTES> R;
  typedef typename R::C C;
  R r(p);
  C x[R::E], top = lowest_of<C>::get(), sum = 0;
  r.load(x, (const S *)p.input + r.begin(p), top);
#pragma unroll
  for (int k = 0; k < R::E; k++) top = k_maximum()(x[k], top);
  top = k_join(top, p.lanes, k_maximum());
#pragma unroll
  for (int k = 0; k < R::E; k++) {
    C v = x[k] - top, e = exp_for<S>(v);
    sum += e;
    x[k] = p.logs ? v : e;
  }
  sum = k_join(sum, p.lanes, k_add());
  C scale = p.logs ? (C)1 : 1 / sum, shift = p.logs ? -log_of(sum) : (C)0;
#pragma unroll
  for (int k = 0; k < R::E; k++) x[k] = x[k] * scale + shift;
  r.store((S *)p.result + r.begin(p), x);
}
K_ROW_FLOATS(softmax, K_LONG, 1024)

template <typename S, int BYTES>
static __device__ __forceinline__ void softmax_backward_body(const k_rows &p) {
  typedef k_row<S, BYTES> R;
  typedef typename R::C C;
  R r(p);
  C g[R::E], y[R::E], sum = 0;
  r.load(g, (const S *)p.grad + r.begin(p), 0);
  r.load(y, (const S *)p.output + r.begin(p), 0);
#pragma unroll
  for (int k = 0; k < R::E; k++) sum += p.logs ? g[k] : g[k] * y[k];
  sum = k_join(sum, p.lanes, k_add());
#pragma unroll
  for (int k = 0; k < R::E; k++)
    g[k] = p.logs ? g[k] - exp_for<S>(y[k]) * sum : (g[k] - sum) * y[k];
  r.store((S *)p.result + r.begin(p), g);
}
K_ROW_FLOATS(softmax_backward, K_MIDDLE, 1024)

// ---- rows and lines of any length

// Running maximum, and the sum of exp(x - maximum).
template <typename S>
struct online_softmax {
  typedef typename k_type<S>::number C;
  C top, sum;
  template <int COUNT>
  __device__ __forceinline__ void add(const C *x) {
    C maximum = top;
#pragma unroll
    for (int k = 0; k < COUNT; k++) maximum = k_maximum()(x[k], maximum);
    if (!(maximum == top)) sum *= exp_for<S>(top - maximum), top = maximum;
    C shift = maximum == lowest_of<C>::get() ? (C)0 : maximum;
#pragma unroll
    for (int k = 0; k < COUNT; k++) sum += exp_for<S>(x[k] - shift);
  }
  __device__ __forceinline__ void join(int lanes) {
    C maximum = k_join(top, lanes, k_maximum());
    sum = k_join(top == maximum ? sum : sum * exp_for<S>(top - maximum), lanes, k_add());
    top = maximum;
  }
};

// One block per row.
template <typename S>
static __device__ __forceinline__ void softmax_rows_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *__restrict__ x = (const S *)p.input + blockIdx.x * p.size;
  S *__restrict__ y = (S *)p.result + blockIdx.x * p.size;
  k_strip<S> strip(x, p.size, p.vector);
  online_softmax<S> h = {lowest_of<C>::get(), 0};
  strip.each([&](auto count, int64_t i) {
    auto v = k_several<count.value>(x, i);
    C c[count.value];
#pragma unroll
    for (int k = 0; k < count.value; k++) c[k] = k_get(v.v[k]);
    h.template add<count.value>(c);
  });
  h.join(blockDim.x);
  C scale = 1 / h.sum, shift = log_of(h.sum);
  strip.each([&](auto count, int64_t i) {
    auto v = k_several<count.value>(x, i);
#pragma unroll
    for (int k = 0; k < count.value; k++) {
      C d = k_get(v.v[k]) - h.top;
      k_put(&v.v[k], p.logs ? d - shift : exp_for<S>(d) * scale);
    }
    *(decltype(v) *)(y + i) = v;
  });
}
K_FLOATS(softmax_rows, k_rows)

template <typename S>
static __device__ __forceinline__ void softmax_backward_rows_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *__restrict__ g = (const S *)p.grad + blockIdx.x * p.size;
  const S *__restrict__ y = (const S *)p.output + blockIdx.x * p.size;
  S *__restrict__ to = (S *)p.result + blockIdx.x * p.size;
  k_strip<S> strip(g, p.size, p.vector);
  C sum = 0;
  strip.each([&](auto count, int64_t i) {
    auto a = k_several<count.value>(g, i), b = k_several<count.value>(y, i);
#pragma unroll
    for (int k = 0; k < count.value; k++)
      sum += p.logs ? k_get(a.v[k]) : k_get(a.v[k]) * k_get(b.v[k]);
  });
  sum = k_join(sum, blockDim.x, k_add());
  strip.each([&](auto count, int64_t i) {
    auto a = k_several<count.value>(g, i), b = k_several<count.value>(y, i);
#pragma unroll
    for (int k = 0; k < count.value; k++) {
      C gk = k_get(a.v[k]), yk = k_get(b.v[k]);
      k_put(&a.v[k], p.logs ? gk - exp_for<S>(yk) * sum : (gk - sum) * yk);
    }
    *(decltype(a) *)(to + i) = a;
  });
}
K_FLOATS(softmax_backward_rows, k_rows)

// One thread per line: offset of its first element, and its n elements at stride p.inner.
struct line {
  int64_t at, n;
  __device__ __forceinline__ line(const k_rows &p, int64_t row)
      : at(row / p.inner * p.size * p.inner + row % p.inner), n(p.size) {}
};
enum { AHEAD = 8 };  // elements in flight a thread

template <typename S>
static __device__ __forceinline__ void softmax_lines_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  for (int64_t row = k_thread(); row < p.outer * p.inner; row += k_threads()) {
    line l(p, row);
    const S *x = (const S *)p.input + l.at;
    S *y = (S *)p.result + l.at;
    online_softmax<S> h = {lowest_of<C>::get(), 0};
    for (int64_t i = 0; i < l.n; i += AHEAD) {
      C v[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; k++)
        v[k] = i + k < l.n ? k_get(x[(i + k) * p.inner]) : lowest_of<C>::get();
      h.template add<AHEAD>(v);
    }
    C scale = 1 / h.sum, shift = log_of(h.sum);
#pragma unroll AHEAD
    for (int64_t i = 0; i < l.n; i++) {
      C v = k_get(x[i * p.inner]) - h.top;
      k_put(&y[i * p.inner], p.logs ? v - shift : exp_for<S>(v) * scale);
    }
  }
}
K_FLOATS(softmax_lines, k_rows)

template <typename S>
static __device__ __forceinline__ void softmax_backward_lines_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  for (int64_t row = k_thread(); row < p.outer * p.inner; row += k_threads()) {
    line l(p, row);
    const S *g = (const S *)p.grad + l.at, *y = (const S *)p.output + l.at;
    S *to = (S *)p.result + l.at;
    C sum = 0;
#pragma unroll 4
    for (int64_t i = 0; i < l.n; i++)
      sum += p.logs ? k_get(g[i * p.inner]) : k_get(g[i * p.inner]) * k_get(y[i * p.inner]);
#pragma unroll 4
    for (int64_t i = 0; i < l.n; i++) {
      C gi = k_get(g[i * p.inner]), yi = k_get(y[i * p.inner]);
      k_put(&to[i * p.inner], p.logs ? gi - exp_for<S>(yi) * sum : (gi - sum) * yi);
    }
  }
}
K_FLOATS(softmax_backward_lines, k_rows)

// ---- cross entropy of rows of classes: one block per row, which is read once and, backward,
// written once. C is the type of losses, their gradients and the rows' logsumexp.

// Class of a row, or -1 if ignored; an invalid class is reported.
static __device__ __forceinline__ int64_t class_of_row(const k_rows &p) {
  int64_t t = ((const int64_t *)p.target)[blockIdx.x];
  if (t == p.ignore) return -1;
  if (t >= 0 && t < p.size) return t;
  if (threadIdx.x == 0) k_fault(&p.where, K_FAULT_TARGET, t, 0, 0);
  return -1;
}
template <typename S>
static __device__ __forceinline__ void class_losses_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *__restrict__ x = (const S *)p.input + blockIdx.x * p.size;
  k_strip<S> strip(x, p.size, p.vector);
  online_softmax<S> h = {lowest_of<C>::get(), 0};
  strip.each([&](auto count, int64_t i) {
    auto v = k_several<count.value>(x, i);
    C c[count.value];
#pragma unroll
    for (int k = 0; k < count.value; k++) c[k] = k_get(v.v[k]);
    h.template add<count.value>(c);
  });
  h.join(blockDim.x);
  int64_t t = class_of_row(p);
  if (threadIdx.x != 0) return;
  C logsumexp = h.top + log_of(h.sum);
  ((C *)p.logsumexp)[blockIdx.x] = logsumexp;
  ((C *)p.result)[blockIdx.x] = t < 0 ? (C)0 : logsumexp - k_get(x[t]);
}
K_FLOATS(class_losses, k_rows)

template <typename S>
static __device__ __forceinline__ void class_losses_backward_body(const k_rows &p) {
  typedef typename k_type<S>::number C;
  const S *__restrict__ x = (const S *)p.input + blockIdx.x * p.size;
  S *__restrict__ to = (S *)p.result + blockIdx.x * p.size;
  int64_t t = class_of_row(p);
  C logsumexp = ((const C *)p.logsumexp)[blockIdx.x];
  C g = t < 0 ? (C)0 : ((const C *)p.grad)[blockIdx.x];
  k_strip<S> strip(x, p.size, p.vector);
  strip.each([&](auto count, int64_t i) {
    auto v = k_several<count.value>(x, i);
#pragma unroll
    for (int k = 0; k < count.value; k++) {
      C share = t < 0 ? (C)0 : exp_for<S>(k_get(v.v[k]) - logsumexp) * g;
      k_put(&v.v[k], i + k == t ? share - g : share);
    }
    *(decltype(v) *)(to + i) = v;
  });
}
K_FLOATS(class_losses_backward, k_rows)
