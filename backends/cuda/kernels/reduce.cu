// SPDX-License-Identifier: Apache-2.0
// Reductions that are no folds: extremes with their places, variance, norms, logsumexp. `lanes`
// threads make a result, in double, or in int64 for the extremes of integers.
#include "math.cuh"

// The rows of a block, one after the other: body(input, results, length); a row
// beyond the last has no result and no length.
template <typename B>
static __device__ __forceinline__ void each_row(const k_fold &p, B body) {
  int64_t each = blockDim.x / p.lanes;
  for (int64_t b = blockIdx.x * each; b < p.results; b += gridDim.x * each) {
    int64_t row = b + threadIdx.x / p.lanes, in = 0, out = 0, out2 = 0;
    bool alive = row < p.results;
    if (alive) k_place(p.kept, p.kept_count, row, &in, &out, &out2);
    body((const char *)p.in + in, alive ? (char *)p.out + out : nullptr, (char *)p.out2 + out2,
         alive ? p.length : 0);
  }
}
template <typename T>
static __device__ __forceinline__ T element(const k_fold &p, const char *row, int64_t i) {
  return k_load<T>(row + k_place_in(p.gone, p.gone_count, i), p.in_dtype);
}

// ---- extremes: the first of equals; NaN is beyond all numbers. a.i: the least; b.i: with values

template <typename T>
struct best {
  T value;
  int64_t index;  // -1: none yet
};
template <typename T>
static __device__ __forceinline__ bool beats(const best<T> &a, const best<T> &b, bool least) {
  if (a.index < 0 || b.index < 0) return b.index < 0;
  bool an = a.value != a.value, bn = b.value != b.value;
  if (an || bn) return an && (!bn || a.index < b.index);
  if (a.value == b.value) return a.index < b.index;
  return least ? a.value < b.value : a.value > b.value;
}
template <typename T>
static __device__ best<T> join_best(best<T> x, int lanes, bool least) {
  __shared__ best<T> room[32];
  for (int step = (lanes < 32 ? lanes : 32) / 2; step > 0; step /= 2) {
    best<T> y;
    y.value = __shfl_xor_sync(0xffffffffu, x.value, step);
    y.index = __shfl_xor_sync(0xffffffffu, x.index, step);
    if (beats(y, x, least)) x = y;
  }
  if (lanes <= 32) return x;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  x = room[0];
  for (int i = 1; i < blockDim.x / 32; i++)
    if (beats(room[i], x, least)) x = room[i];
  return x;
}
template <typename T>
static __device__ __forceinline__ void extreme_body(const k_fold &p) {
  int lane = threadIdx.x % p.lanes;
  bool least = p.a.i != 0;
  each_row(p, [&](const char *row, char *out, char *out2, int64_t n) {
    best<T> b = {T(), -1};
    for (int64_t i = lane; i < n; i += p.lanes) {
      best<T> e = {element<T>(p, row, i), i};
      if (beats(e, b, least)) b = e;
    }
    b = join_best(b, p.lanes, least);
    if (lane || !n || !out) return;
    if (!p.b.i) {
      *(int64_t *)out = b.index;
      return;
    }
    k_store(out, p.out_dtype, b.value);
    *(int64_t *)out2 = b.index;
  });
}
K_KERNEL(extreme, i64, int64_t, k_fold)
K_KERNEL(extreme, f64, double, k_fold)

// ---- variance: the mean first, then the squares about it. a.f: the correction; b.i: the root

extern "C" __global__ void __launch_bounds__(1024) variance(const __grid_constant__ k_fold p) {
  int lane = threadIdx.x % p.lanes;
  each_row(p, [&](const char *row, char *out, char *, int64_t n) {
    double sum = 0, squares = 0, count = (double)p.length;
    for (int64_t i = lane; i < n; i += p.lanes) sum += element<double>(p, row, i);
    double mean = k_join(sum, p.lanes, k_add()) / count;
    for (int64_t i = lane; i < n; i += p.lanes) {
      double d = element<double>(p, row, i) - mean;
      squares += d * d;
    }
    squares = k_join(squares, p.lanes, k_add());
    double degrees = count - p.a.f, var = squares / (degrees > 0 ? degrees : 0);
    if (lane == 0 && out) k_store(out, p.out_dtype, p.b.i ? sqrt(var) : var);
  });
}

// ---- norms of order a.f

struct k_less {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
extern "C" __global__ void __launch_bounds__(1024) vector_norm(const __grid_constant__ k_fold p) {
  int lane = threadIdx.x % p.lanes;
  double order = p.a.f;
  bool most = order == K_inf_f64, least = order == -K_inf_f64;
  each_row(p, [&](const char *row, char *out, char *, int64_t n) {
    double sum = least ? K_inf_f64 : 0;
    for (int64_t i = lane; i < n; i += p.lanes) {
      double a = fabs(element<double>(p, row, i));
      sum = most         ? k_greater()(a, sum)
            : least      ? k_less()(a, sum)
            : order == 2 ? sum + a * a
            : order == 1 ? sum + a
            : order == 0 ? sum + (a != 0)
                         : sum + pow(a, order);
    }
    sum = most    ? k_join(sum, p.lanes, k_greater())
          : least ? k_join(sum, p.lanes, k_less())
                  : k_join(sum, p.lanes, k_add());
    bool power = !most && !least && order != 0 && order != 1;
    if (lane == 0 && out)
      k_store(out, p.out_dtype, !power ? sum : order == 2 ? sqrt(sum) : pow(sum, 1 / order));
  });
}

extern "C" __global__ void __launch_bounds__(1024) logsumexp(const __grid_constant__ k_fold p) {
  int lane = threadIdx.x % p.lanes;
  each_row(p, [&](const char *row, char *out, char *, int64_t n) {
    double top = K_least_f64, sum = 0;
    for (int64_t i = lane; i < n; i += p.lanes) top = k_greater()(element<double>(p, row, i), top);
    top = k_join(top, p.lanes, k_greater());
    double shift = fabs(top) != K_inf_f64 ? top : 0;
    for (int64_t i = lane; i < n; i += p.lanes) sum += exp(element<double>(p, row, i) - shift);
    sum = k_join(sum, p.lanes, k_add());
    if (lane == 0 && out) k_store(out, p.out_dtype, log(sum) + shift);
  });
}
