// SPDX-License-Identifier: Apache-2.0
// Random numbers in the layout of PyTorch's device kernels: each thread has one Philox
// subsequence and draws four words a step, for values at a stride of the grid's threads. The
// grid is the generator's, so the numbers equal PyTorch's. Blocks have K_BLOCK threads; each
// step writes a contiguous, coalesced piece of the result.
#include "math.cuh"
#include "philox.cuh"

// Uniform in (0, 1] from two words.
static __device__ __forceinline__ double uniform_double(uint32_t x, uint32_t y) {
  uint64_t z = (uint64_t)x ^ ((uint64_t)y << 21);
  return fma((double)z, 1.1102230246251565e-16, 5.5511151231257827e-17);
}

template <typename C, int N>
struct numbers {
  C v[N];
};
// A Box-Muller pair, sine first. Uses the device's fast sine, as PyTorch does.
static __device__ __forceinline__ void normal_pair(uint32_t first, uint32_t second, float *x,
                                                   float *y) {
  const float turn = 6.2831855f;
  float v = (float)second * (2.3283064365386963e-10f * turn) + 1.1641532182693481e-10f * turn;
  float r = sqrtf(-2.0f * logf(uniform_float(first))), s, c;
  __sincosf(v, &s, &c);
  *x = r * s, *y = r * c;
}
template <typename S>
struct draw {  // from a lane of the words, in the compute type
  static const int lanes = 4;
  static __device__ __forceinline__ float uniform(const words &w, int lane) {
    return uniform_float(w.v[lane]);
  }
  static __device__ __forceinline__ numbers<float, lanes> normals(const words &w) {
    numbers<float, lanes> x;
#pragma unroll
    for (int k = 0; k < 4; k += 2) normal_pair(w.v[k], w.v[k + 1], &x.v[k], &x.v[k + 1]);
    return x;
  }
  static __device__ __forceinline__ float exponential(float u) {
    return u >= 1.0f - 5.9604644775390625e-08f ? 5.9604644775390625e-08f : -logf(u);
  }
};
template <>
struct draw<double> {
  static const int lanes = 2;
  static __device__ __forceinline__ double uniform(const words &w, int lane) {
    return uniform_double(w.v[2 * lane], w.v[2 * lane + 1]);
  }
  static __device__ __forceinline__ numbers<double, lanes> normals(const words &w) {
    double u = uniform_double(w.v[0], w.v[1]), v = uniform_double(w.v[2], w.v[3]), s, c;
    double r = sqrt(-2.0 * log(u));
    sincospi(2.0 * v, &s, &c);
    return {{r * s, r * c}};
  }
  static __device__ __forceinline__ double exponential(double u) {
    return u >= 1.0 - 1.1102230246251565e-16 ? 1.1102230246251565e-16 : -log(u);
  }
};

// Start of the launch's random sequence. For graphs it is read from memory, updated before each
// replay.
struct origin {
  uint64_t seed, offset;
};
static __device__ __forceinline__ origin origin_of(const k_random &p) {
  if (!p.state) return {p.seed, p.offset};
  return {__ldg((const unsigned long long *)p.state),
          p.offset + __ldg((const unsigned long long *)p.state + 1)};
}

// Calls emit(of(words), lane, i) for each of the n elements.
template <int LANES, typename O, typename E>
static __device__ __forceinline__ void each(const k_random &p, O of, E emit) {
  int64_t thread = k_thread(), stride = k_threads(), step = 0, last = (LANES - 1) * stride;
  const origin at = origin_of(p);
  for (int64_t first = thread; first < p.n; first += stride * LANES, step++) {
    auto x = of(philox(at.seed, (uint64_t)thread, at.offset + 4 * (uint64_t)step));
    if (first + last < p.n) {
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) emit(x, lane, first + lane * stride);
      continue;
    }
#pragma unroll
    for (int lane = 0; lane < LANES; lane++)
      if (first + lane * stride < p.n) emit(x, lane, first + lane * stride);
  }
}
template <int LANES, typename E>
static __device__ __forceinline__ void each(const k_random &p, E emit) {
  each<LANES>(
      p, [](words w) { return w; }, emit);
}
// Keeps a number in a register; otherwise the compiler converts the parameter at each use.
static __device__ __forceinline__ float in_register(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
static __device__ __forceinline__ double in_register(double x) { return x; }

static __device__ __forceinline__ float scaled(float u, float low, float high) {
  return __fmaf_rn(u, high - low, low);
}
static __device__ __forceinline__ double scaled(double u, double low, double high) {
  return fma(u, high - low, low);
}
template <typename S>
static __device__ __forceinline__ void uniform_body(const k_random &p) {
  typedef typename k_type<S>::number C;
  C low = in_register((C)p.a), high = in_register((C)p.b);
  S none;
  k_put(&none, high);
  each<draw<S>::lanes>(p, [&](const words &w, int lane, int64_t i) {
    C x = scaled(draw<S>::uniform(w, lane), low, high);
    // Draws are in (0, 1]: values equal to the upper bound after rounding become the lower bound.
    S stored;
    k_put(&stored, x);
    k_put((S *)p.out + i, k_get(stored) == k_get(none) ? low : x);
  });
}
K_FLOATS(uniform, k_random)

template <typename S>
static __device__ __forceinline__ void normal_body(const k_random &p) {
  typedef draw<S> D;
  typedef typename k_type<S>::number C;
  C mean = in_register((C)p.a), deviation = in_register((C)p.b);
  each<D::lanes>(
      p, [](words w) { return D::normals(w); },
      [&](const numbers<C, D::lanes> &x, int lane, int64_t i) {
        k_put((S *)p.out + i, x.v[lane] * deviation + mean);
      });
}
K_FLOATS(normal, k_random)

template <typename S>
static __device__ __forceinline__ void exponential_body(const k_random &p) {
  typedef typename k_type<S>::number C;
  C rate = in_register((C)p.a);
  each<draw<S>::lanes>(p, [&](const words &w, int lane, int64_t i) {
    k_put((S *)p.out + i, draw<S>::exponential(draw<S>::uniform(w, lane)) / rate);
  });
}
K_FLOATS(exponential, k_random)

// `b` where a draw is below `a`, else 0. float64 draws doubles, other dtypes floats.
extern "C" __global__ void __launch_bounds__(K_BLOCK) chance(const __grid_constant__ k_random p) {
  k_wait();
  int item = k_item(p.dtype);
  if (p.dtype == K_FLOAT64)
    each<2>(p, [&](const words &w, int lane, int64_t i) {
      ((double *)p.out)[i] = draw<double>::uniform(w, lane) < p.a ? p.b : 0;
    });
  else
    each<4>(p, [&](const words &w, int lane, int64_t i) {
      k_store((char *)p.out + i * item, p.dtype,
              (double)draw<float>::uniform(w, lane) < p.a ? p.b : 0.0);
    });
}

// 1 / keep where a draw is below keep (`a`), else 0. A thread takes `from` adjacent elements,
// four a Philox block; with 1, four elements at the grid's stride.
template <typename S>
static __device__ __forceinline__ void dropout_body(const k_random &p) {
  typedef typename k_type<S>::number C;
  C keep = in_register((C)p.a);
  S one, none;
  k_put(&one, (C)p.b), k_put(&none, (C)0);
  int lanes = (int)p.from;
  if (lanes == 1) {
    each<4>(p, [&](const words &w, int lane, int64_t i) {
      ((S *)p.out)[i] = (C)uniform_float(w.v[lane]) < keep ? one : none;
    });
    return;
  }
  const origin at = origin_of(p);
  uint64_t offset = at.offset;
  for (int64_t first = k_thread() * lanes; first < p.n; first += k_threads() * lanes)
    for (int done = 0; done < lanes; done += 4, offset += 4) {
      words w = philox(at.seed, (uint64_t)k_thread(), offset);
#pragma unroll
      for (int lane = 0; lane < 4; lane++)
        if (done + lane < lanes)
          ((S *)p.out)[first + done + lane] = (C)uniform_float(w.v[lane]) < keep ? one : none;
    }
}
K_FLOATS(dropout, k_random)

// Integers in [from, from + range).
static __device__ __forceinline__ void put_integer(const k_random &p, int item, int64_t i,
                                                   uint64_t x) {
  int64_t value = (int64_t)(x + (uint64_t)p.from);
  if (p.dtype == K_INT64)
    ((int64_t *)p.out)[i] = value;
  else
    k_store((char *)p.out + i * item, p.dtype, value);
}
extern "C" __global__ void __launch_bounds__(K_BLOCK) whole(const __grid_constant__ k_random p) {
  k_wait();
  int item = k_item(p.dtype);
  if (p.wide)
    each<2>(p, [&](const words &w, int lane, int64_t i) {
      uint64_t x = (uint64_t)w.v[2 * lane] << 32 | w.v[2 * lane + 1];
      put_integer(p, item, i, x % p.range);
    });
  else
    each<4>(p, [&](const words &w, int lane, int64_t i) {
      uint64_t x = p.range >> 32 ? w.v[lane] : w.v[lane] % (uint32_t)p.range;
      put_integer(p, item, i, x);
    });
}

// Per-element probabilities: element i uses word i % 4 of subsequence i / 4.
template <typename S>
static __device__ __forceinline__ void bernoulli_body(const k_random &p) {
  int item = k_item(p.dtype);
  const origin at = origin_of(p);
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    double chance = k_get(((const S *)p.in)[i]);
    if (!(chance >= 0 && chance <= 1)) {
      k_fault(&p.where, K_FAULT_PROBABILITY, 0, 0, 0);
      continue;
    }
    words w = philox(at.seed, (uint64_t)i / 4, at.offset);
    uint32_t x = (i & 2) ? (i & 1 ? w.v[3] : w.v[2]) : (i & 1 ? w.v[1] : w.v[0]);
    k_store((char *)p.out + i * item, p.dtype, (double)uniform_float(x) <= chance ? 1.0 : 0.0);
  }
}
K_FLOATS(bernoulli, k_random)

// ---- rejection sampling. Parameters are tensors of doubles (`in`, `in2`) or numbers.

// A subsequence, word by word.
struct k_source {
  uint64_t seed, subsequence, offset;
  words block;
  float spare;  // second normal of a pair
  bool has_spare;
};
static __device__ __forceinline__ bool k_is_device(const k_source *s) { return true; }
static __device__ __forceinline__ uint32_t next_word(k_source *s) {
  uint32_t at = s->offset & 3;
  if (at == 0) s->block = philox(s->seed, s->subsequence, s->offset);
  s->offset++;
  const words &w = s->block;
  return at & 2 ? (at & 1 ? w.v[3] : w.v[2]) : (at & 1 ? w.v[1] : w.v[0]);
}
static __device__ __forceinline__ double k_uniform(k_source *s) {
  return uniform_float(next_word(s));
}
static __device__ __forceinline__ double k_fraction(k_source *s) {
  return (next_word(s) & 0xffffffu) * 5.9604644775390625e-08;
}
static __device__ __forceinline__ double k_normal(k_source *s) {
  if (s->has_spare) return s->has_spare = false, s->spare;
  uint32_t first = next_word(s);
  float x;
  normal_pair(first, next_word(s), &x, &s->spare);
  s->has_spare = true;
  return x;
}
static __device__ __forceinline__ double k_wide_normal(k_source *s) {
  s->offset += 4;
  return draw<double>::normals(philox(s->seed, s->subsequence, s->offset - 4)).v[0];
}
#include "rejection.h"

// LANES numbers, 128 elements apart, come from one source.
template <double (*DRAW)(k_source *, double, double), int LANES>
static __device__ __forceinline__ void drawn(const k_random &p, bool rates) {
  const int threads = 128;
  int item = k_item(p.dtype);
  int64_t sources = (p.n + threads * LANES - 1) / (threads * LANES) * threads;
  const origin at = origin_of(p);
  for (int64_t thread = k_thread(); thread < sources; thread += k_threads()) {
    k_source s = {at.seed, (uint64_t)thread, at.offset, {}, 0, false};
    int64_t i = thread / threads * threads * LANES + thread % threads;
    for (int lane = 0; lane < LANES && i < p.n; lane++, i += threads) {
      double x = DRAW(&s, ((const double *)p.in)[i], p.in2 ? ((const double *)p.in2)[i] : p.b);
      if (rates && x != x) k_fault(&p.where, K_FAULT_RATE, 0, 0, 0);
      k_store((char *)p.out + i * item, p.dtype, x);
    }
  }
}
#define DRAWN(NAME, LANES, RATES) \
  extern "C" __global__ void __launch_bounds__(K_BLOCK) \
      drawn_##NAME(const __grid_constant__ k_random p) { \
    k_wait(); \
    drawn<k_draw_##NAME, LANES>(p, RATES); \
  }
DRAWN(gamma, 1, false)
DRAWN(poisson, 1, true)
DRAWN(binomial, 8, false)

// ---- distributions by a function of a uniform or a normal number

// float64 draws doubles, other dtypes floats.
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    geometric(const __grid_constant__ k_random p) {
  k_wait();
  int item = k_item(p.dtype);
  if (p.dtype == K_FLOAT64)
    each<2>(p, [&](const words &w, int lane, int64_t i) {
      ((double *)p.out)[i] = k_geometric(draw<double>::uniform(w, lane), p.a);
    });
  else
    each<4>(p, [&](const words &w, int lane, int64_t i) {
      k_store((char *)p.out + i * item, p.dtype, k_geometric(draw<float>::uniform(w, lane), p.a));
    });
}
// The uniform number is kept away from 0 and 1.
template <typename S>
static __device__ __forceinline__ void cauchy_body(const k_random &p) {
  typedef typename k_type<S>::number C;
  const C near = sizeof(C) == 8 ? (C)2.2204460492503131e-16 : (C)1.1920928955078125e-07;
  each<draw<S>::lanes>(p, [&](const words &w, int lane, int64_t i) {
    C u = draw<S>::uniform(w, lane);
    u = u < near ? near : u > 1 - near ? 1 - near : u;
    k_put((S *)p.out + i, (C)k_cauchy(u, p.a, p.b));
  });
}
K_FLOATS(cauchy, k_random)

template <typename S>
static __device__ __forceinline__ void log_normal_body(const k_random &p) {
  typedef draw<S> D;
  typedef typename k_type<S>::number C;
  C mean = in_register((C)p.a), deviation = in_register((C)p.b);
  each<D::lanes>(
      p, [](words w) { return D::normals(w); },
      [&](const numbers<C, D::lanes> &x, int lane, int64_t i) {
        k_put((S *)p.out + i, exp(x.v[lane] * deviation + mean));
      });
}
K_FLOATS(log_normal, k_random)

// ---- randperm: sorts random keys with enough bits to make collisions rare; equal keys are
// shuffled. Keys are drawn on the generator's grid; then one thread inspects each element, and
// few find runs to shuffle.

extern "C" __global__ void __launch_bounds__(K_BLOCK)
    order_keys(const __grid_constant__ k_random p) {
  k_wait();
  uint64_t mask = p.bits >= 64 ? ~0ull : (1ull << p.bits) - 1;
  each<2>(p, [&](const words &w, int lane, int64_t i) {
    uint64_t x = (uint64_t)w.v[2 * lane] << 32 | w.v[2 * lane + 1];
    // PyTorch sorts signed numbers in ascending order, which is the order of these.
    ((uint64_t *)p.keys)[i] = x % (p.bits > 32 ? ~0ull : 0xffffffffull) & mask;
    ((int64_t *)p.scratch)[i] = i;
  });
}
// The first thread of a run of equal keys shuffles it with numbers of its own subsequence and
// stores the indices.
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    order_runs(const __grid_constant__ k_random p) {
  k_wait();
  const uint64_t *key = (const uint64_t *)p.keys;
  int64_t *index = (int64_t *)p.scratch;
  const origin at = origin_of(p);
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    if (i > 0 && key[i] == key[i - 1]) continue;
    int64_t count = 1, item = k_item(p.dtype);
    while (i + count < p.n && key[i + count] == key[i]) count++;
    uint64_t drawn = 0;
    for (int64_t k = count - 1; k > 0; k--, drawn++) {
      words w = philox(at.seed, (uint64_t)i, at.offset + drawn / 4 * 4);
      int64_t r = w.v[drawn % 4] % (uint32_t)(k + 1), saved = index[i + k];
      index[i + k] = index[i + r];
      index[i + r] = saved;
    }
    for (int64_t k = i; k < i + count; k++) k_store((char *)p.out + k * item, p.dtype, index[k]);
  }
}

// ---- multinomial: one thread per row of `range` probabilities (double), with `from` samples
// each. With replacement, the cumulative sums are searched; without, the largest of p / (a number
// of exponential_()) win. Accesses are not coalesced: for few or short rows.

// Number i of exponential_() in a launch with p.stride threads.
template <typename S>
static __device__ __forceinline__ double exponential_at(const k_random &p, const origin &at,
                                                        int64_t i) {
  int64_t step = i / p.stride, lanes = draw<S>::lanes;
  words w = philox(at.seed, (uint64_t)(i % p.stride), at.offset + 4 * (uint64_t)(step / lanes));
  return draw<S>::exponential(draw<S>::uniform(w, (int)(step % lanes)));
}
// PyTorch's fault for the first invalid weight when sampling with replacement, or for the lack
// of positive weights.
static __device__ __noinline__ int weight_fault(const double *chance, int64_t n, bool replacement) {
  const double endless = __longlong_as_double(0x7ff0000000000000ll);
  for (int64_t i = 0; i < n; i++) {
    if (chance[i] >= 0 && chance[i] < endless) continue;
    if (!replacement) return K_FAULT_WEIGHTS;
    return chance[i] >= 0 ? K_FAULT_INFINITE_WEIGHT : K_FAULT_NEGATIVE_WEIGHT;
  }
  return K_FAULT_NO_WEIGHT;
}
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    multinomial(const __grid_constant__ k_random p) {
  k_wait();
  int64_t n = (int64_t)p.range;
  const origin at = origin_of(p);
  for (int64_t row = k_thread(); row < p.rows; row += k_threads()) {
    const double *chance = (const double *)p.in + row * n;
    double *scores = (double *)p.scratch + row * n, total = 0;
    int64_t *to = (int64_t *)p.out + row * p.from;
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
      good &= chance[i] >= 0 && chance[i] < __longlong_as_double(0x7ff0000000000000ll);
      scores[i] = total += chance[i];
    }
    if (!good || !(total > 0)) {
      k_fault(&p.where, weight_fault(chance, n, p.replacement), 0, 0, 0);
      continue;
    }
    for (int64_t i = 0; !p.replacement && i < n; i++)
      scores[i] = chance[i] / (p.wide ? exponential_at<double>(p, at, row * n + i)
                                      : exponential_at<float>(p, at, row * n + i));
    for (int64_t k = 0; k < p.from; k++) {
      int64_t low = 0, high = n - 1;
      if (!p.replacement) {
        for (int64_t i = 1; i < n; i++)
          if (scores[i] > scores[low]) low = i;
        scores[low] = -1;
      }
      // Each sample has a thread.
      words w = philox(at.seed, (uint64_t)(row * ((p.from + 127) / 128 * 128) + k), at.offset);
      double u = uniform_float(w.v[0]) * total;
      while (p.replacement && low < high) {
        int64_t middle = (low + high) / 2;
        if (scores[middle] < u)
          low = middle + 1;
        else
          high = middle;
      }
      to[k] = low;
    }
  }
}
