// SPDX-License-Identifier: Apache-2.0
// Conversions from and to storage-only dtypes: one kernel for all pairs, with both dtypes
// selected at run time; and copies of 16-byte elements. One thread per element; operands have any
// strides.
#define PX_FLOAT8_MATH static __device__ __forceinline__
#include "loop.cuh"
#include "phlox/tables/float8.h"

// An intermediate number: a 64-bit integer (`large`: unsigned), or real and imaginary parts
// (`large`: of a double).
struct k_any {
  bool is_integer, large;
  int64_t bits;
  double real, imag;
};
template <typename C>
static __device__ __forceinline__ C k_real(const k_any &x) {
  if (!x.is_integer) return (C)x.real;
  return x.large ? (C)(uint64_t)x.bits : (C)x.bits;
}
template <typename I>
static __device__ __forceinline__ I k_integer(const k_any &x) {
  if (x.is_integer) return (I)x.bits;
  return x.large ? k_to_integer<I>(x.real) : k_to_integer<I>((float)x.real);
}

template <typename C>
static __device__ __forceinline__ k_any k_any_of(C x) {
  if (k_is_real<C>::value) return {false, sizeof(C) == 8, 0, (double)x, 0};
  return {true, false, (int64_t)x, 0, 0};
}
static __device__ k_any k_any_load(const char *from, int dtype) {
  switch (dtype) {
#define XX(name, suffix, ...) \
  case K_##name: \
    return k_any_of(k_get(*(const k_##suffix *)from));
    PX_DTYPE_COMPUTED_MAP(XX)
#undef XX
#define XX(name, suffix, cell, ...) \
  case K_##name: \
    return {true, sizeof(cell) == 8, (int64_t)*(const cell *)from, 0, 0};
    PX_DTYPE_UNSIGNED_MAP(XX)
#undef XX
#define XX(name, suffix, cell, format, ...) \
  case K_##name: \
    return {false, false, 0, (double)px_float8_load(PX_FLOAT8 format, *(const uint8_t *)from), 0};
    PX_DTYPE_FLOAT8_MAP(XX)
#undef XX
    case K_COMPLEX32:
      return {false, false, 0, __half2float(((const __half *)from)[0]),
              __half2float(((const __half *)from)[1])};
    case K_COMPLEX64:
      return {false, false, 0, ((const float *)from)[0], ((const float *)from)[1]};
    case K_COMPLEX128:
      return {false, true, 0, ((const double *)from)[0], ((const double *)from)[1]};
  }
  return {};
}

static __device__ void k_any_store(char *to, int dtype, const k_any &x) {
  switch (dtype) {
    case K_BOOL:
      *(uint8_t *)to = x.is_integer ? x.bits != 0 : x.real != 0 || x.imag != 0;
      break;
#define XX(name, suffix, cell, ...) \
  case K_##name: \
    *(cell *)to = k_integer<cell>(x); \
    break;
      XX(UINT8, u8, uint8_t)
      XX(INT8, i8, int8_t)
      XX(INT16, i16, int16_t)
      XX(INT32, i32, int32_t)
      XX(INT64, i64, int64_t)
      PX_DTYPE_UNSIGNED_MAP(XX)
#undef XX
    case K_FLOAT16:
      k_put((__half *)to, k_real<float>(x));
      break;
    case K_BFLOAT16:
      k_put((__nv_bfloat16 *)to, k_real<float>(x));
      break;
    case K_FLOAT32:
      *(float *)to = k_real<float>(x);
      break;
    case K_FLOAT64:
      *(double *)to = k_real<double>(x);
      break;
    case K_COMPLEX32:
      k_put((__half *)to, k_real<float>(x));
      k_put((__half *)to + 1, (float)x.imag);
      break;
    case K_COMPLEX64:
      ((float *)to)[0] = k_real<float>(x), ((float *)to)[1] = (float)x.imag;
      break;
    case K_COMPLEX128:
      ((double *)to)[0] = k_real<double>(x), ((double *)to)[1] = x.imag;
      break;
#define XX(name, suffix, cell, format, ...) \
  case K_##name: \
    *(uint8_t *)to = px_float8_store(PX_FLOAT8 format, k_real<float>(x)); \
    break;
      PX_DTYPE_FLOAT8_MAP(XX)
#undef XX
  }
}

struct k_source {
  int64_t at;
  __device__ __forceinline__ void step(const k_loop &p, int d, int64_t k) {
    at += k * p.strides[d][1];
  }
};
extern "C" __global__ void __launch_bounds__(K_BLOCK) raw_16(const __grid_constant__ k_loop p) {
  k_wait();
  k_source source;
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    int64_t to = k_find<false>(p, i, source);
    ((int4 *)p.data[0])[to] = ((const int4 *)p.data[1])[source.at];
  }
}
extern "C" __global__ void __launch_bounds__(K_BLOCK)
    convert_stored(const __grid_constant__ k_loop p) {
  k_wait();
  int to_item = k_item(p.dtype[0]), from_item = k_item(p.dtype[1]);
  k_source source;
  for (int64_t i = k_thread(); i < p.n; i += k_threads()) {
    int64_t to = k_find<false>(p, i, source);
    k_any x = p.kind[1] != K_VALUE
                  ? k_any_load((const char *)p.data[1] + source.at * from_item, p.dtype[1])
              : p.dtype[1] >= K_FLOAT16 ? k_any_of(p.value[1].f)
                                        : k_any_of(p.value[1].i);
    k_any_store((char *)p.data[0] + to * to_item, p.dtype[0], x);
  }
}
