// SPDX-License-Identifier: Apache-2.0
// Instances of sort_vectors.h: 32-bit and 64-bit integers, with AVX2 and with AVX-512, selected at
// run time. Without either, keys are sorted by digits.
#include "cpu/vector/simd.h"
#include "cpu/sort/sort_keys.h"
#include "cpu/threads/threads.h"

#if defined(__AVX2__)
#define FLIP_4(x) 0 ^ (x), 1 ^ (x), 2 ^ (x), 3 ^ (x)
#define FLIP_8(x) FLIP_4(x), 4 ^ (x), 5 ^ (x), 6 ^ (x), 7 ^ (x)
#define FLIP_16(x) \
  FLIP_8(x), 8 ^ (x), 9 ^ (x), 10 ^ (x), 11 ^ (x), 12 ^ (x), 13 ^ (x), 14 ^ (x), 15 ^ (x)
#define OF(i, high, n) ((i) & (high) ? (n) + (i) : (i))
#define SIDE_4(h, n) OF(0, h, n), OF(1, h, n), OF(2, h, n), OF(3, h, n)
#define SIDE_8(h, n) SIDE_4(h, n), OF(4, h, n), OF(5, h, n), OF(6, h, n), OF(7, h, n)
#define SIDE_16(h, n) \
  SIDE_8(h, n), OF(8, h, n), OF(9, h, n), OF(10, h, n), OF(11, h, n), OF(12, h, n), OF(13, h, n), \
      OF(14, h, n), OF(15, h, n)
#define JOIN_2(i, n) (i), (n) + (i), (i) + 1, (n) + (i) + 1
#define ZIP_4(i, n) JOIN_2(i, n)
#define ZIP_8(i, n) JOIN_2(i, n), JOIN_2((i) + 2, n)
#define ZIP_16(i, n) ZIP_8(i, n), ZIP_8((i) + 4, n)
#define UNROLL _Pragma("GCC unroll 16")

// ---- AVX2

// Permutations: positions of set bits first, then those of clear bits, one byte each.
#define BIT(m, b) ((uint64_t)((m) >> (b)&1))
#define BELOW2(m) (BIT(m, 0) + BIT(m, 1))
#define BELOW4(m) (BELOW2(m) + BELOW2((m) >> 2))
#define SET(m, b, below) (BIT(m, b) * (b) << 8 * (below))
#define PERMUTATION(m) \
  (SET(m, 1, BIT(m, 0)) | SET(m, 2, BELOW2(m)) | SET(m, 3, BELOW2(m) + BIT(m, 2)) | \
   SET(m, 4, BELOW4(m)) | SET(m, 5, BELOW4(m) + BIT(m, 4)) | \
   SET(m, 6, BELOW4(m) + BELOW2((m) >> 4)) | SET(m, 7, BELOW4(m) + BELOW2((m) >> 4) + BIT(m, 6)))
#define PERMUTATION4(m) \
  PERMUTATION(m), PERMUTATION((m) + 1), PERMUTATION((m) + 2), PERMUTATION((m) + 3)
#define PERMUTATION16(m) \
  PERMUTATION4(m), PERMUTATION4((m) + 4), PERMUTATION4((m) + 8), PERMUTATION4((m) + 12)
#define PERMUTATION64(m) \
  PERMUTATION16(m), PERMUTATION16((m) + 16), PERMUTATION16((m) + 32), PERMUTATION16((m) + 48)
static const uint64_t set_bits_first[256] = {PERMUTATION64(0), PERMUTATION64(64),
                                             PERMUTATION64(128), PERMUTATION64(192)};

static inline void store_set(void *to, __m256i v, unsigned bits) {
  __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)&set_bits_first[bits]));
  _mm256_storeu_si256(to, _mm256_permutevar8x32_epi32(v, order));
}
static inline int split(__m256i v, __m256i less, void *low, void *high) {
  unsigned bits = (unsigned)_mm256_movemask_ps((__m256)less);
  store_set(low, v, bits);
  store_set(high, v, ~bits & 0xff);
  return __builtin_popcount(bits);
}
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int64_t i64x4 __attribute__((vector_size(32)));
static inline i32x8 min_i32x8(i32x8 a, i32x8 b) {
  return (i32x8)_mm256_min_epi32((__m256i)a, (__m256i)b);
}
static inline i32x8 max_i32x8(i32x8 a, i32x8 b) {
  return (i32x8)_mm256_max_epi32((__m256i)a, (__m256i)b);
}
static inline int split_i32x8(i32x8 v, i32x8 pivot, int32_t *low, int32_t *high) {
  return split((__m256i)v, (__m256i)(v < pivot), low, high);
}
static inline i64x4 min_i64x4(i64x4 a, i64x4 b) {
  return (i64x4)_mm256_blendv_pd((__m256d)a, (__m256d)b, (__m256d)(a > b));
}
static inline i64x4 max_i64x4(i64x4 a, i64x4 b) {
  return (i64x4)_mm256_blendv_pd((__m256d)b, (__m256d)a, (__m256d)(a > b));
}
static inline int split_i64x4(i64x4 v, i64x4 pivot, int64_t *low, int64_t *high) {
  return split((__m256i)v, (__m256i)(v < pivot), low, high) / 2;
}
#define TARGET
#define ROWS 8
#define T int32_t
#define L 8
#define NAME(x) x##_i32
#define MAX_VALUE INT32_MAX
#define FLOAT_INFINITY 0x7f800000
#define MIN min_i32x8
#define MAX(a, b, less) max_i32x8(a, b)
#define SPLIT split_i32x8
#include "cpu/sort/sort_vectors.h"
#undef MIN
#undef MAX
#undef SPLIT
#define T int64_t
#define L 4
#define NAME(x) x##_i64
#define MAX_VALUE INT64_MAX
#define FLOAT_INFINITY 0x7ff0000000000000
#define MIN min_i64x4
#define MAX(a, b, less) max_i64x4(a, b)
#define SPLIT split_i64x4
#include "cpu/sort/sort_vectors.h"
#undef MIN
#undef MAX
#undef SPLIT
#undef TARGET

// ---- AVX-512

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));
TARGET static inline int split_i32x16(i32x16 v, i32x16 pivot, int32_t *low, int32_t *high) {
  __mmask16 less = _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)pivot);
  _mm512_storeu_si512(low, _mm512_maskz_compress_epi32(less, (__m512i)v));
  _mm512_storeu_si512(high, _mm512_maskz_compress_epi32(_knot_mask16(less), (__m512i)v));
  return __builtin_popcount(less);
}
TARGET static inline int split_i64x8(i64x8 v, i64x8 pivot, int64_t *low, int64_t *high) {
  __mmask8 less = _mm512_cmplt_epi64_mask((__m512i)v, (__m512i)pivot);
  _mm512_storeu_si512(low, _mm512_maskz_compress_epi64(less, (__m512i)v));
  _mm512_storeu_si512(high, _mm512_maskz_compress_epi64(_knot_mask8(less), (__m512i)v));
  return __builtin_popcount(less);
}
// Each part is appended at its end pointer, which advances.
#define PARTS(bits, lanes) \
  __m512i x = (__m512i)v; \
  __mmask##lanes a = _mm512_cmplt_epi##bits##_mask(x, (__m512i)low), \
                 b = _mm512_cmplt_epi##bits##_mask(x, (__m512i)middle), \
                 c = _mm512_cmplt_epi##bits##_mask(x, (__m512i)high); \
  int first = __builtin_popcount(a), second = __builtin_popcount(b), \
      third = __builtin_popcount(c); \
  _mm512_storeu_si512(ends[0], _mm512_maskz_compress_epi##bits(a, x)); \
  _mm512_storeu_si512(ends[1], _mm512_maskz_compress_epi##bits(_kandn_mask##lanes(a, b), x)); \
  _mm512_storeu_si512(ends[2], _mm512_maskz_compress_epi##bits(_kandn_mask##lanes(b, c), x)); \
  _mm512_storeu_si512(ends[3], _mm512_maskz_compress_epi##bits(_knot_mask##lanes(c), x)); \
  ends[0] += first, ends[1] += second - first, ends[2] += third - second, ends[3] += lanes - third
TARGET static inline void quarter_i32x16(i32x16 v, i32x16 low, i32x16 middle, i32x16 high,
                                         int32_t **ends) {
  PARTS(32, 16);
}
TARGET static inline void quarter_i64x8(i64x8 v, i64x8 low, i64x8 middle, i64x8 high,
                                        int64_t **ends) {
  PARTS(64, 8);
}
// The max of two, given the min: min and max of zmm registers use one port, bit operations two.
#define OTHER_OF(a, b, c) _mm512_ternarylogic_epi32((__m512i)(a), (__m512i)(b), (__m512i)(c), 0x96)
enum { MIN_PARTITION_4 = 1 << 13 };  // min bytes of a range partitioned in four
// Negative numbers have all bits but the sign flipped; NaN becomes the max, whatever its sign.
#define KEYS_OF(bits, suffix, vector) \
  __m512i x = (__m512i)v, most = _mm512_set1_epi##bits(INT##bits##_MAX); \
  __m512i key = _mm512_ternarylogic_epi##bits(x, _mm512_srai_epi##bits(x, bits - 1), most, 0x78); \
  return _mm512_mask_mov_epi##bits( \
      key, _mm512_cmp_##suffix##_mask((vector)v, (vector)v, _CMP_UNORD_Q), most)
TARGET static inline __m512i keys_i32x16(i32x16 v) { KEYS_OF(32, ps, __m512); }
TARGET static inline __m512i keys_i64x8(i64x8 v) { KEYS_OF(64, pd, __m512d); }
#undef ROWS
#define ROWS 16
#define T int32_t
#define L 16
#define NAME(x) x##_i32_512
#define MAX_VALUE INT32_MAX
#define FLOAT_INFINITY 0x7f800000
#define MIN(a, b) ((i32x16)_mm512_min_epi32((__m512i)(a), (__m512i)(b)))
#define MAX(a, b, less) ((i32x16)OTHER_OF(a, b, less))
#define SPLIT split_i32x16
#define PARTITION_4 quarter_i32x16
#define KEYS(v) ((i32x16)keys_i32x16(v))
#include "cpu/sort/sort_vectors.h"
#undef MIN
#undef MAX
#undef SPLIT
#define T int64_t
#define L 8
#define NAME(x) x##_i64_512
#define MAX_VALUE INT64_MAX
#define FLOAT_INFINITY 0x7ff0000000000000
#define MIN(a, b) ((i64x8)_mm512_min_epi64((__m512i)(a), (__m512i)(b)))
#define MAX(a, b, less) ((i64x8)OTHER_OF(a, b, less))
#define SPLIT split_i64x8
#undef PARTITION_4
#undef KEYS
#define PARTITION_4 quarter_i64x8
#define KEYS(v) ((i64x8)keys_i64x8(v))
#include "cpu/sort/sort_vectors.h"

// Sampled pivots before the value range is halved: twice the number needed with good pivots.
static int tries_for(int64_t n) { return 2 * (64 - __builtin_clzll((uint64_t)n | 1)); }
static bool wide(void) { return px_cpu_level_used() >= PX_CPU_AVX512; }
#define ARRAYS(kind, to, scratch, arrays, n) \
  (arrays_##kind) { \
    to, scratch, (arrays) >= 3 ? (scratch) + (n) : NULL, \
        (arrays) >= 3 ? (scratch) + 2 * (n) : NULL \
  }
#define SORTS(BITS, T) \
  bool px__sort_i##BITS(const T *from, T *to, T *scratch, int arrays, int64_t n) { \
    if (!wide()) \
      return sort_i##BITS(false, from, ARRAYS(i##BITS, to, scratch, arrays, n), n, tries_for(n)); \
    return sort_i##BITS##_512(false, from, ARRAYS(i##BITS##_512, to, scratch, arrays, n), n, \
                              tries_for(n)); \
  } \
  bool px__sort_f##BITS(const T *from, T *to, T *scratch, int arrays, int64_t n) { \
    if (!wide()) \
      return sort_floats_i##BITS(from, ARRAYS(i##BITS, to, scratch, arrays, n), n, tries_for(n)); \
    return sort_floats_i##BITS##_512(from, ARRAYS(i##BITS##_512, to, scratch, arrays, n), n, \
                                     tries_for(n)); \
  }
SORTS(32, int32_t)
SORTS(64, int64_t)
#endif
