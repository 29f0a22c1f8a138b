// SPDX-License-Identifier: Apache-2.0
// Reductions other than folds: extremes with indices, variance, norms, logsumexp.
//
// An accumulator A takes `count` elements of type T from index i on (`take`) and other
// accumulators (`merge`); threads exchange its bytes. Rows of its Source type and narrower ones
// are read in vectors. Blocks have K_BLOCK threads, enough for all results and parts. By rows,
// `lanes` threads compute a result with coalesced reads. By columns, 8 threads compute each of
// 32 adjacent results. A part is a piece of a long reduction; its accumulator goes to `partial`,
// and a warp joins those of a result. The order of joining depends on shapes only.
#include "fold.cuh"

// ---- accumulators

// The first of equal elements wins; NaN beats all numbers. The minimum is the maximum of flipped
// values. a.i: minimum. b.i: with values.
static __device__ __forceinline__ float flipped(float x) { return -x; }
static __device__ __forceinline__ double flipped(double x) { return -x; }
static __device__ __forceinline__ int64_t flipped(int64_t x) { return ~x; }
template <typename Number>
struct extreme {
  typedef Number T, Source;
  T value;
  int64_t index;  // -1: none yet
  __device__ __forceinline__ void start(const k_fold &p) { value = T(), index = -1; }
  __device__ __forceinline__ void take(const k_fold &p, const T *x, int count, int64_t i) {
    for (int k = 0; k < count; k++) {
      T v = p.a.i ? flipped(x[k]) : x[k];
      if (index < 0 || (!(v <= value) && value == value)) value = v, index = i + k;
    }
  }
  __device__ __forceinline__ void merge(const k_fold &p, const extreme &o) {
    bool nan = value != value, other = o.value != o.value;
    bool equal = value == o.value || (nan && other);
    bool beaten = equal ? o.index < index : other || (!nan && o.value > value);
    if (o.index >= 0 && (index < 0 || beaten)) *this = o;
  }
  __device__ __forceinline__ void give(const k_fold &p, char *out, char *out2) const {
    if (index < 0) return;
    if (!p.b.i) {
      *(int64_t *)out = index;
      return;
    }
    k_store(out, p.out_dtype, p.a.i ? flipped(value) : value);
    *(int64_t *)out2 = index;
  }
};
typedef extreme<int64_t> extreme_i64;
typedef extreme<float> extreme_f32;
typedef extreme<double> extreme_f64;

// Sums of elements minus a pivot, initially the first element, and of the squares. Settled: the
// pivot is the mean, with the squares about it. a.f: correction. b.i: square root.
struct variance_f64 {
  typedef double T;
  typedef float Source;
  double pivot, sum, squares;
  int64_t n;
  __device__ __forceinline__ void start(const k_fold &p) { pivot = sum = squares = 0, n = 0; }
  __device__ __forceinline__ void take(const k_fold &p, const T *x, int count, int64_t i) {
    if (n == 0) pivot = x[0];
    n += count;
    for (int k = 0; k < count; k++) {
      double d = x[k] - pivot;
      sum += d, squares += d * d;
    }
  }
  // Moves the pivot to the mean, so that the sum is 0.
  __device__ __forceinline__ void settle() {
    if (n == 0 || sum == 0) return;
    double by = sum / (double)n;
    squares -= by * sum, pivot += by, sum = 0;
    if (squares < 0) squares = 0;
  }
  __device__ __forceinline__ void merge(const k_fold &p, variance_f64 o) {
    settle(), o.settle();
    if (o.n == 0) return;
    double apart = o.pivot - pivot, share = (double)o.n / (double)(n + o.n);
    squares += n ? o.squares + apart * apart * (double)n * share : o.squares;
    pivot = n ? pivot + apart * share : o.pivot;
    n += o.n;
  }
  __device__ __forceinline__ void give(const k_fold &p, char *out, char *) {
    settle();
    double degrees = (double)n - p.a.f, var = squares / (degrees > 0 ? degrees : 0);
    k_store(out, p.out_dtype, p.b.i ? sqrt(var) : var);
  }
};

// Norm of order a.f.
static __device__ __noinline__ double power(double x, double by) { return pow(x, by); }
struct norm_f64 {
  typedef double T;
  typedef float Source;
  double sum;
  __device__ __forceinline__ void start(const k_fold &p) {
    sum = p.a.f == -K_inf_f64 ? K_inf_f64 : 0;
  }
  __device__ __forceinline__ void take(const k_fold &p, const T *x, int count, int64_t i) {
    if (p.a.f == 2) {  // the most frequent case, memory-bound
      for (int k = 0; k < count; k++) sum += x[k] * x[k];
      return;
    }
    for (int k = 0; k < count; k++) {
      double a = fabs(x[k]);
      join(p, is_plain(p) ? a : p.a.f == 0 ? a != 0 : power(a, p.a.f));
    }
  }
  __device__ __forceinline__ void merge(const k_fold &p, const norm_f64 &o) { join(p, o.sum); }
  __device__ __forceinline__ void give(const k_fold &p, char *out, char *) const {
    bool root = !is_plain(p) && p.a.f != 0;
    k_store(out, p.out_dtype, !root ? sum : p.a.f == 2 ? sqrt(sum) : power(sum, 1 / p.a.f));
  }

 private:
  static __device__ __forceinline__ bool is_plain(const k_fold &p) {
    return p.a.f == 1 || fabs(p.a.f) == K_inf_f64;
  }
  __device__ __forceinline__ void join(const k_fold &p, double x) {
    if (fabs(p.a.f) != K_inf_f64)
      sum += x;
    else if ((p.a.f > 0 ? x > sum : x < sum) || x != x)
      sum = x;
  }
};

static __device__ __forceinline__ float exp_of(float x) { return expf(x); }
static __device__ __forceinline__ double exp_of(double x) { return exp(x); }

// Running maximum, and the sum of exp(x - maximum); exp(x) if the maximum is infinite.
template <typename Number>
struct logsumexp {
  typedef Number T, Source;
  T top, sum;
  static __device__ __forceinline__ T shift(T top) {
    return fabs(top) == (T)K_inf_f64 ? (T)0 : top;
  }
  __device__ __forceinline__ void rescale(T maximum) {
    if (sum != 0) sum *= exp_of(shift(top) - shift(maximum));
    top = maximum;
  }
  __device__ __forceinline__ void start(const k_fold &p) { top = (T)K_min_value_f64, sum = 0; }
  __device__ __forceinline__ void take(const k_fold &p, const T *x, int count, int64_t i) {
    T maximum = top;
    for (int k = 0; k < count; k++) maximum = k_maximum()(x[k], maximum);
    if (!(maximum == top)) rescale(maximum);
    for (int k = 0; k < count; k++) sum += exp_of(x[k] - shift(top));
  }
  __device__ __forceinline__ void merge(const k_fold &p, logsumexp o) {
    T maximum = k_maximum()(o.top, top);
    rescale(maximum), o.rescale(maximum);
    sum += o.sum;
  }
  __device__ __forceinline__ void give(const k_fold &p, char *out, char *) const {
    k_store(out, p.out_dtype, (double)log(sum) + (double)shift(top));
  }
};
typedef logsumexp<float> logsumexp_f32;
typedef logsumexp<double> logsumexp_f64;

// ---- traversal

// Takes elements [begin, end) of a dense row stored as S, in steps of `lanes` vectors of N.
template <typename A, typename S, int N>
static __device__ __forceinline__ void take_dense(A *a, const k_fold &p, const char *row,
                                                  int64_t begin, int64_t end, int lane, int step) {
  enum { AHEAD = N == 1 ? 8 : 4 };  // vectors in flight a thread
  typedef typename A::T T;
  int64_t last = end / N;
  for (int64_t i = begin / N + lane; i < last; i += AHEAD * step) {
    const k_loaded<S, N> *from = (const k_loaded<S, N> *)row + i;
    int lanes = step, left = last - i < AHEAD * lanes ? (int)(last - i) : AHEAD * lanes;
    k_loaded<S, N> v[AHEAD] = {};
    k_opaque(&lanes);
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (u * lanes < left) v[u] = from[u * lanes];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      if (u * lanes >= left) break;
      T x[N];
#pragma unroll
      for (int k = 0; k < N; k++) x[k] = (T)k_get(v[u][k]);
      a->take(p, x, N, (i + u * lanes) * N);
    }
  }
#pragma unroll 1
  for (int64_t i = last * N + lane; i < end; i += step) {
    T x = (T)k_get(((const S *)row)[i]);
    a->take(p, &x, 1, i);
  }
}
// Takes elements begin, begin + step, ... with any strides.
template <typename A>
static __device__ __forceinline__ void take_any(A *a, const k_fold &p, const char *row,
                                                int64_t begin, int64_t end, int step) {
#pragma unroll 1
  for (int64_t i = begin; i < end; i += step) {
    typename A::T x =
        k_load<typename A::T>(row + k_locate_in(p.reduced, p.reduced_count, i), p.in_dtype);
    a->take(p, &x, 1, i);
  }
}
// Access to a dense row by `lanes` threads; by elements if unaligned.
struct dense_row {
  const char *at;
  int64_t begin, end;
  int lane, lanes;
  bool vector;
};
template <typename A, typename S>
static __device__ __forceinline__ void take_stored(A *a, const k_fold &p, const dense_row &r) {
  if (r.vector)
    take_dense<A, S, sizeof(S) < 4 ? 4 : 16 / sizeof(S)>(a, p, r.at, r.begin, r.end, r.lane,
                                                         r.lanes);
  else
    take_dense<A, S, 1>(a, p, r.at, r.begin, r.end, r.lane, r.lanes);
}
// False if the dtype is not read directly.
template <typename A>
static __device__ __forceinline__ bool take_native(A *a, const k_fold &p, const dense_row &r) {
  typedef k_native<typename A::Source> native;
  if (p.in_dtype == native::a)
    take_stored<A, typename native::A>(a, p, r);
  else if (native::b >= 0 && p.in_dtype == native::b)
    take_stored<A, typename native::B>(a, p, r);
  else if (native::c >= 0 && p.in_dtype == native::c)
    take_stored<A, typename native::C>(a, p, r);
  else
    return false;
  return true;
}
template <typename A>
static __device__ __forceinline__ void take_row(A *a, const k_fold &p, const char *row,
                                                int64_t begin, int64_t end, int lane) {
  dense_row r = {row, begin, end, lane, p.lanes, p.vector != 0};
  if (!p.dense || !take_native(a, p, r)) take_any(a, p, row, begin + lane, end, p.lanes);
}

// Another lane's accumulator.
template <typename A>
static __device__ __forceinline__ A from_lane(const A &a, int step) {
  union {
    A a;
    unsigned words[sizeof(A) / 4];
  } x;
  x.a = a;
#pragma unroll
  for (int k = 0; k < (int)(sizeof(A) / 4); k++)
    x.words[k] = __shfl_xor_sync(0xffffffffu, x.words[k], step);
  return x.a;
}
// Joins a group's accumulators; the first thread has the result. All threads of the block must
// call it.
template <typename A>
static __device__ __forceinline__ void join_lanes(A *a, const k_fold &p, int lanes) {
  __shared__ A partials[32];
#pragma unroll 1
  for (int step = (lanes < 32 ? lanes : 32) / 2; step > 0; step /= 2)
    a->merge(p, from_lane(*a, step));
  if (lanes <= 32) return;
  int warps = blockDim.x / 32;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) partials[threadIdx.x / 32] = *a;
  __syncthreads();
#pragma unroll 1
  for (int i = 1; threadIdx.x == 0 && i < warps; i++) a->merge(p, partials[i]);
}
template <typename A>
static __device__ __forceinline__ void store_part(A *a, const k_fold &p, int64_t result,
                                                  int64_t part, int64_t out, int64_t out2) {
  if (p.parts > 1)
    ((A *)p.partial)[result * p.parts + part] = *a;
  else
    a->give(p, (char *)p.out + out, (char *)p.out2 + out2);
}

template <typename A>
static __device__ __forceinline__ void reduce_rows(const k_fold &p) {
  k_groups of(p.lanes);
  int64_t total = p.results * p.parts;
  for (int64_t g0 = (int64_t)blockIdx.x * of.count; g0 < total;
       g0 += (int64_t)gridDim.x * of.count) {
    int64_t g = g0 + of.group, result = p.parts > 1 ? g / p.parts : g, part = g - result * p.parts;
    int64_t in = 0, out = 0, out2 = 0, begin = part * p.part, end = begin + p.part;
    A a;
    a.start(p);
    if (end > p.length) end = p.length;
    if (g < total) {
      k_locate(p.kept, p.kept_count, result, &in, &out, &out2);
      take_row(&a, p, (const char *)p.in + in, begin, end, of.lane);
    }
    join_lanes(&a, p, p.lanes);
    if (of.lane == 0 && g < total) store_part(&a, p, result, part, out, out2);
  }
}
template <typename A>
static __device__ __forceinline__ void reduce_columns(const k_fold &p) {
  __shared__ A partials[8][32];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  int64_t width = p.kept[0].size, pieces = (width + 31) / 32, total = p.results / width * pieces;
  for (int64_t b = blockIdx.x; b < total * p.parts; b += gridDim.x) {
    int64_t part = b % p.parts, piece = b / p.parts, column = piece % pieces * 32 + x;
    int64_t result = piece / pieces * width + column, in = 0, out = 0, out2 = 0;
    int64_t begin = part * p.part, end = begin + p.part;
    A a;
    a.start(p);
    if (end > p.length) end = p.length;
    if (column < width) {
      k_locate(p.kept, p.kept_count, result, &in, &out, &out2);
      take_any(&a, p, (const char *)p.in + in, begin + y, end, 8);
    }
    __syncthreads();
    partials[y][x] = a;
    __syncthreads();
    if (y || column >= width) continue;
#pragma unroll 1
    for (int k = 1; k < 8; k++) a.merge(p, partials[k][x]);
    store_part(&a, p, result, part, out, out2);
  }
}
template <typename A>
static __device__ __forceinline__ void reduce_join(const k_fold &p) {
  k_groups of(p.lanes);
  for (int64_t r0 = (int64_t)blockIdx.x * of.count; r0 < p.results;
       r0 += (int64_t)gridDim.x * of.count) {
    int64_t result = r0 + of.group, in, out, out2;
    A a;
    a.start(p);
#pragma unroll 1
    for (int64_t i = of.lane; result < p.results && i < p.parts; i += p.lanes)
      a.merge(p, ((const A *)p.partial)[result * p.parts + i]);
    join_lanes(&a, p, p.lanes);
    if (of.lane || result >= p.results) continue;
    k_locate(p.kept, p.kept_count, result, &in, &out, &out2);
    a.give(p, (char *)p.out + out, (char *)p.out2 + out2);
  }
}

// ---- batched whole-tensor reductions, in the order of separate launches by rows

static __device__ __forceinline__ const k_fold_of &fold_of_block(const k_folds &p, int64_t *part) {
  int i = 0;
  while (blockIdx.x >= p.of[i].end) i++;
  *part = blockIdx.x - (i ? p.of[i - 1].end : 0);
  return p.of[i];
}
// One block per part.
template <typename A>
static __device__ __forceinline__ void reduce_listed(const k_folds &p) {
  int64_t part;
  const k_fold_of &f = fold_of_block(p, &part);
  k_groups of(f.lanes);
  int64_t begin = part * f.part, end = begin + f.part < f.length ? begin + f.part : f.length;
  dense_row row = {(const char *)f.in, begin, end, of.lane, f.lanes, f.vector != 0};
  A a;
  a.start(p.all);
  if (of.group == 0) take_native(&a, p.all, row);
  join_lanes(&a, p.all, f.lanes);
  if (threadIdx.x != 0) return;
  if (f.parts > 1)
    ((A *)p.all.partial)[f.first + part] = a;
  else
    a.give(p.all, (char *)f.out, NULL);
}
// One block joins the parts of a tensor, if it has several.
template <typename A>
static __device__ __forceinline__ void reduce_listed_join(const k_folds &p) {
  const k_fold_of &f = p.of[blockIdx.x];
  int lanes = f.parts > 64 ? K_BLOCK : 32;
  k_groups of(lanes);
  A a;
  a.start(p.all);
#pragma unroll 1
  for (int64_t i = of.lane; of.group == 0 && i < f.parts && f.parts > 1; i += lanes)
    a.merge(p.all, ((const A *)p.all.partial)[f.first + i]);
  join_lanes(&a, p.all, lanes);
  if (threadIdx.x == 0 && f.parts > 1) a.give(p.all, (char *)f.out, NULL);
}

#define REDUCE_WAY(type, way, params) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK, 3) \
      type##_##way(const __grid_constant__ params p) { \
    k_wait(); \
    reduce_##way<type>(p); \
  }
#define REDUCE(type) \
  REDUCE_WAY(type, rows, k_fold) REDUCE_WAY(type, columns, k_fold) REDUCE_WAY(type, join, k_fold)
REDUCE(extreme_i64)
REDUCE(extreme_f32)
REDUCE(extreme_f64)
REDUCE(variance_f64)
REDUCE(norm_f64)
REDUCE_WAY(norm_f64, listed, k_folds)
REDUCE_WAY(norm_f64, listed_join, k_folds)
REDUCE(logsumexp_f32)
REDUCE(logsumexp_f64)
