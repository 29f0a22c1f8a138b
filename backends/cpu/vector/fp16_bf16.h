// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16 conversion by bits: rounds to nearest even, preserves NaN, and is branch-free, so
// that loops vectorize on processors without conversion instructions.
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static inline float px__bits_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}
static inline uint32_t px__float_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline float px__bfloat_load(uint16_t h) { return px__bits_float((uint32_t)h << 16); }
static inline uint16_t px__bfloat_store(float x) {
  uint32_t u = px__float_bits(x), rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return (uint16_t)(x != x ? 0x7fc0u : rounded);
}

// An fp16 number is a float with another bias: multiplying by 2^112 corrects it, subnormals
// included.
static inline float px__half_load(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
  float value = px__bits_float(rest) * 5.192296858534828e33f;
  uint32_t special = rest | 0x7f800000u;
  uint32_t u = rest >= 0x0f800000u ? special : px__float_bits(value);
  return px__bits_float(sign | u);
}
static inline uint16_t px__half_store(float x) {
  uint32_t u = px__float_bits(x), sign = u >> 16 & 0x8000u;
  u &= 0x7fffffffu;
  uint32_t normal = (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13;
  // Adding 0.5 aligns the last bit of a subnormal result with the last bit of the sum.
  uint32_t small = px__float_bits(px__bits_float(u) + 0.5f) - 0x3f000000u;
  uint32_t h = u < 0x38800000u ? small : normal;
  h = u >= 0x477ff000u ? 0x7c00u : h;
  h = u > 0x7f800000u ? 0x7e00u : h;
  return (uint16_t)(sign | h);
}

static inline void px__half_load_many(float *to, const uint16_t *from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#elif defined(__aarch64__)
  for (; i + 4 <= n; i += 4)
    vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
#endif
  for (; i < n; i++) to[i] = px__half_load(from[i]);
}
static inline void px__half_store_many(uint16_t *to, const float *from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((__m128i *)(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  for (; i + 4 <= n; i += 4)
    vst1_u16(to + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
#endif
  for (; i < n; i++) to[i] = px__half_store(from[i]);
}
