// SPDX-License-Identifier: Apache-2.0
// Functions with AVX-512 implementations. Tables of 16 doubles or 32 floats fit in two registers;
// exponents are extracted and applied by single instructions. They process blocks of
// PX__CPU_BLOCK_SIZE elements. All elements run the same operations, so results do not depend on
// position or neighbours.
#pragma once
#include "cpu/vector/math.h"
#include "cpu/vector/loop_hints.h"

enum { K_WIDE_BLOCK_SIZE = 64 };

#if defined(__AVX2__)
#include <immintrin.h>
#define K_WIDE PX__CPU_WIDE __attribute__((always_inline)) static inline

// clang-format off
// 2^(i / 16), and its rounding error.
static const double k_wide_roots[16] = {
    1, 1.0442737824274138, 1.0905077326652577, 1.1387886347566916, 1.189207115002721,
    1.241857812073484, 1.2968395546510096, 1.3542555469368927, 1.4142135623730951,
    1.4768261459394993, 1.5422108254079407, 1.6104903319492543, 1.681792830507429,
    1.7562521603732995, 1.8340080864093424, 1.9152065613971474};
static const double k_wide_roots_low[16] = {
    0, 8.551889705537965e-17, -3.046782079812471e-17, 8.912812676025408e-17,
    3.982015231465646e-17, 4.658027591836937e-17, 2.5382502794888315e-17, 7.70094837980299e-17,
    -9.667293313452913e-17, -3.483994556892796e-17, 7.949834809697621e-17, 2.4707192569797888e-17,
    8.199010020581497e-17, 2.960140695448873e-17, 3.283107224245627e-17, -1.0619946056195963e-16};
// Indexed by the upper bits of m: c near 1 / m with so few digits that m c - 1 is exact; and
// -log(c), split like K_LN2_HIGH and K_LN2_LOW.
static const double k_wide_inverses[16] = {
    1, 0.90625, 0.875, 0.8125, 0.78125, 0.75, 0.71875, 0.6875, 0.65625, 0.625, 0.59375, 0.59375,
    0.5625, 0.53125, 0.53125, 0.5};
static const double k_wide_logs[16] = {
    0, 0.09844007281321865, 0.13353139262449076, 0.20763936477828793, 0.2468600779316148,
    0.28768207245184385, 0.33024168687052224, 0.3746934494413381, 0.4212134650763346,
    0.4700036292456389, 0.521296923633372, 0.521296923633372, 0.5753641449034603,
    0.6325225587434034, 0.6325225587434034, 0.6931471805598903};
static const double k_wide_logs_low[16] = {
    0, 3.3871241029241416e-14, 3.1859736349078334e-14, -4.3425422595242564e-14,
    -8.899851356560444e-14, -6.292357389008195e-14, 5.4612144489920215e-14, 7.260466149925637e-14,
    -3.1063837541003616e-14, 9.667719603235566e-14, -8.590204918402764e-14,
    -8.590204918402764e-14, 1.0152652766306816e-13, 1.0711543657844876e-13,
    1.0711543657844876e-13, 5.497923018708371e-14};
// The same for floats, with base-2 logarithms; the high parts have 16 fractional bits.
static const float k_wide_inverses_f32[32] = {
    1.0f, 0.953125f, 0.921875f, 0.90625f, 0.875f, 0.8515625f, 0.828125f, 0.8125f, 0.7890625f,
    0.7734375f, 0.75f, 0.734375f, 0.71875f, 0.703125f, 0.6875f, 0.671875f, 0.65625f, 0.6484375f,
    0.6328125f, 0.625f, 0.609375f, 0.6015625f, 0.5859375f, 0.578125f, 0.5625f, 0.5546875f,
    0.546875f, 0.5390625f, 0.53125f, 0.5234375f, 0.515625f, 0.5f};
static const float k_wide_logs_f32[32] = {
    0.0f, 0.0692596436f, 0.117355347f, 0.14201355f, 0.192642212f, 0.231811523f, 0.272079468f,
    0.299560547f, 0.341781616f, 0.370635986f, 0.415039062f, 0.445404053f, 0.47644043f,
    0.508148193f, 0.54057312f, 0.573730469f, 0.607681274f, 0.624954224f, 0.66015625f,
    0.678070068f, 0.714599609f, 0.733215332f, 0.771179199f, 0.790542603f, 0.830078125f,
    0.850250244f, 0.87071228f, 0.891479492f, 0.912536621f, 0.933914185f, 0.955612183f, 1.0f};
static const float k_wide_logs_low_f32[32] = {
    0.0f, 3.01888235e-06f, 1.60395848e-06f, 5.45506782e-06f, 2.86602835e-06f, 4.15178556e-06f,
    7.76633655e-08f, -2.65016098e-07f, 6.90103707e-06f, 7.39359211e-06f, -1.56322119e-06f,
    7.09558799e-06f, -2.38574444e-06f, -1.28968907e-06f, -4.73875434e-06f, 4.77654794e-06f,
    1.30280716e-06f, 6.34502021e-06f, -6.25288476e-06f, 1.83675331e-06f, -1.82823726e-06f,
    -1.8727261e-06f, 2.11028532e-06f, 4.03183185e-06f, -3.12644238e-06f, 2.63635479e-06f,
    4.70278155e-06f, -3.94896551e-06f, 5.37655922e-07f, -3.37502797e-06f, -6.30197565e-06f, 0.0f};
// clang-format on

K_WIDE __m512d k_wide_of(double x) { return _mm512_set1_pd(x); }
// One of 16 (32) table entries per lane, selected by the lowest bits of `at`.
K_WIDE __m512d k_wide_pick(const double *table, __m512i at) {
  return _mm512_permutex2var_pd(_mm512_loadu_pd(table), at, _mm512_loadu_pd(table + 8));
}
K_WIDE __m512 k_wide_pick_f32(const float *table, __m512i at) {
  return _mm512_permutex2var_ps(_mm512_loadu_ps(table), at, _mm512_loadu_ps(table + 16));
}
#define K_PAIR(x, high, low) _mm512_fmadd_pd(k_wide_of(high), x, k_wide_of(low))

// y 2^n for a subnormal result: counts multiples of the smallest subnormal, and the count is the
// bit pattern. Multiplying out takes the processor about 100 times as long.
K_WIDE __m512d k_wide_subnormal(__m512d y, __m512d n) {
  const __m512d whole = k_wide_of(0x1p52);  // adding it rounds to an integer
  __m512d many = _mm512_add_pd(_mm512_scalef_pd(y, _mm512_add_pd(n, k_wide_of(1074))), whole);
  return _mm512_castsi512_pd(
      _mm512_sub_epi64(_mm512_castpd_si512(many), _mm512_castpd_si512(whole)));
}
// 2^(n / 16) e^r. n / 16 is x / ln 2 rounded to sixteenths; the root of 2 has two parts. Overflow:
// the power becomes inf. Inputs with a result of certainly 0 are masked, since computing a power
// below the subnormal range is slow.
K_WIDE __m512d k_wide_exp(__m512d x) {
  __mmask8 some = _mm512_cmp_pd_mask(x, k_wide_of(-746), _CMP_NLT_UQ);
  const __m512d magic = k_wide_of(0x1.8p48);  // adding it rounds to sixteenths
  // min returns the second operand if it is NaN.
  __m512d a = _mm512_min_pd(k_wide_of(1000), _mm512_maskz_mov_pd(some, x));
  __m512d shifted = _mm512_fmadd_pd(a, k_wide_of(1.4426950408889634), magic);
  __m512d n = _mm512_sub_pd(shifted, magic);
  __m512d r = _mm512_fnmadd_pd(n, k_wide_of(K_LN2_HIGH), a);
  r = _mm512_fnmadd_pd(n, k_wide_of(K_LN2_LOW), r);
  __m512i at = _mm512_castpd_si512(shifted);
  __m512d root = k_wide_pick(k_wide_roots, at), low = k_wide_pick(k_wide_roots_low, at);
  __m512d q = _mm512_mul_pd(r, r), p = K_PAIR(r, 0.008333472200697228, 0.04166666665961905);
  p = _mm512_fmadd_pd(k_wide_of(0.001388912960856827), q, p);
  p = _mm512_fmadd_pd(p, q, K_PAIR(r, 0.16666666664408858, 0.5000000000000006));
  p = _mm512_fmadd_pd(p, q, r);
  __m512d y = _mm512_add_pd(root, _mm512_fmadd_pd(root, p, low));
  __mmask8 small = _mm512_cmp_pd_mask(a, k_wide_of(-708.3964185322642), _CMP_LT_OQ);
  if (__builtin_expect(small, 0))
    return _mm512_mask_mov_pd(_mm512_maskz_scalef_pd((__mmask8)(some & ~small), y, n), small,
                              k_wide_subnormal(y, n));
  return _mm512_maskz_scalef_pd(some, y, n);
}

// x = 2^e m, and log(x) = e ln 2 - log(c) + log(1 + r) with r = m c - 1. e ln 2 and log(c) cancel
// for x near 1.
K_WIDE __m512d k_wide_log(__m512d x) {
  __m512d e = _mm512_getexp_pd(x);
  __m512d m = _mm512_getmant_pd(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
  __m512i at = _mm512_srli_epi64(_mm512_castpd_si512(m), 48);
  __m512d r = _mm512_fmsub_pd(m, k_wide_pick(k_wide_inverses, at), k_wide_of(1));
  __m512d high = _mm512_fmadd_pd(e, k_wide_of(K_LN2_HIGH), k_wide_pick(k_wide_logs, at));
  __m512d low = _mm512_fmadd_pd(e, k_wide_of(K_LN2_LOW), k_wide_pick(k_wide_logs_low, at));
  __m512d q = _mm512_mul_pd(r, r), s = _mm512_mul_pd(q, q);
  __m512d p = _mm512_fmadd_pd(k_wide_of(0.08088622720887031), q,
                              K_PAIR(r, -0.09990443428591522, 0.11114178624626725));
  p = _mm512_fmadd_pd(p, q, K_PAIR(r, -0.1250008148296514, 0.14285711139387255));
  __m512d t = _mm512_fmadd_pd(K_PAIR(r, -0.16666666572235936, 0.20000000001276474), q,
                              K_PAIR(r, -0.2500000000002992, 0.3333333333333316));
  p = _mm512_fmadd_pd(p, s, t);
  __m512d sum = _mm512_add_pd(high, r), rest = _mm512_add_pd(_mm512_sub_pd(high, sum), r);
  p = _mm512_fmsub_pd(r, p, k_wide_of(0.5));
  __m512d y = _mm512_add_pd(sum, _mm512_fmadd_pd(p, q, _mm512_add_pd(rest, low)));
  // inf and NaN stay; negative x gives NaN; 0 gives -inf.
  y = _mm512_fixupimm_pd(y, x, _mm512_set1_epi64(0x00540422), 0);
  return _mm512_mask_mov_pd(y, _mm512_cmp_pd_mask(x, _mm512_setzero_pd(), _CMP_LT_OQ),
                            k_wide_of((double)NAN));
}

// Square root from the reciprocal root, doubling the digits per step (Goldschmidt). The last step
// uses the exact residual and rounds correctly. If the residual could underflow or x is not a
// positive finite number, uses the hardware square root, which takes three times as long.
K_WIDE __m512d k_wide_sqrt(__m512d x) {
  const __m512i least = _mm512_set1_epi64(0x0800000000000000),
                many = _mm512_set1_epi64(0x7000000000000000);
  __mmask8 plain = _mm512_cmplt_epu64_mask(_mm512_sub_epi64(_mm512_castpd_si512(x), least), many);
  if (__builtin_expect(plain != 0xff, 0)) return _mm512_sqrt_pd(x);
  __m512d y = _mm512_rsqrt14_pd(x), g = _mm512_mul_pd(x, y);
  __m512d h = _mm512_mul_pd(y, k_wide_of(0.5)), r = _mm512_fnmadd_pd(g, h, k_wide_of(0.5));
  g = _mm512_fmadd_pd(g, r, g), h = _mm512_fmadd_pd(h, r, h);
  r = _mm512_fnmadd_pd(g, h, k_wide_of(0.5));
  g = _mm512_fmadd_pd(g, r, g), h = _mm512_fmadd_pd(h, r, h);
  return _mm512_fmadd_pd(_mm512_fnmadd_pd(g, g, x), h, g);
}

#define K_WIDE_BLOCK(name) \
  K_WIDE void k_wide_##name##_f64(double *to, const double *x) { \
    for (int k = 0; k < K_WIDE_BLOCK_SIZE; k += 8) \
      _mm512_storeu_pd(to + k, k_wide_##name(_mm512_loadu_pd(x + k))); \
  }
K_WIDE_BLOCK(exp)
K_WIDE_BLOCK(log)
K_WIDE_BLOCK(sqrt)

#define K_PAIR_F32(x, high, low) _mm512_fmadd_ps(_mm512_set1_ps(high), x, _mm512_set1_ps(low))
// b times the base-2 logarithm of |a|, a normal; *rest receives the low part.
K_WIDE __m512 k_wide_log2_times(__m512 a, __m512 b, __m512 *rest) {
  const __m512 one = _mm512_set1_ps(1.44269502f), one_low = _mm512_set1_ps(1.92596303e-08f);
  __m512 e = _mm512_getexp_ps(a);
  __m512 m = _mm512_getmant_ps(a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
  __m512i at = _mm512_srli_epi32(_mm512_castps_si512(m), 18);
  __m512 r = _mm512_fmsub_ps(m, k_wide_pick_f32(k_wide_inverses_f32, at), _mm512_set1_ps(1));
  __m512 whole = _mm512_add_ps(e, k_wide_pick_f32(k_wide_logs_f32, at));
  __m512 q = _mm512_mul_ps(r, r), p = K_PAIR_F32(r, 0.288617492f, -0.360678911f);
  p = _mm512_fmadd_ps(_mm512_set1_ps(-0.231882304f), q, p);
  p = _mm512_mul_ps(q, _mm512_fmadd_ps(p, q, K_PAIR_F32(r, 0.48089835f, -0.721347511f)));
  __m512 first = _mm512_mul_ps(r, one), low = _mm512_fmsub_ps(r, one, first);
  low = _mm512_add_ps(_mm512_fmadd_ps(r, one_low, k_wide_pick_f32(k_wide_logs_low_f32, at)), low);
  __m512 h = _mm512_add_ps(first, p), log = _mm512_add_ps(whole, h);
  low = _mm512_add_ps(_mm512_sub_ps(p, _mm512_sub_ps(h, first)), low);
  low = _mm512_add_ps(_mm512_sub_ps(h, _mm512_sub_ps(log, whole)), low);
  __m512 t = _mm512_mul_ps(b, log);
  *rest = _mm512_fmadd_ps(b, low, _mm512_fmsub_ps(b, log, t));
  return t;
}
// 2^(t + rest).
K_WIDE __m512 k_wide_exp2(__m512 t, __m512 rest) {
  const __m512 magic = _mm512_set1_ps(K_SHIFT);
  __m512 n = _mm512_sub_ps(_mm512_add_ps(t, magic), magic);
  __m512 x = _mm512_add_ps(_mm512_sub_ps(t, n), rest), square = _mm512_mul_ps(x, x);
  __m512 y = K_PAIR_F32(x, 0.00133909972f, 0.00961850304f);
  y = _mm512_fmadd_ps(_mm512_set1_ps(0.00015327803f), square, y);
  y = _mm512_fmadd_ps(y, square, K_PAIR_F32(x, 0.0555035956f, 0.240226477f));
  y = _mm512_fmadd_ps(y, x, _mm512_set1_ps(0.693147182f));
  y = _mm512_fmadd_ps(y, x, _mm512_set1_ps(1));
  return _mm512_scalef_ps(y, n);
}

// Completes blocks with special arguments from the powers of magnitudes. A base of 0 counts as 1.
#define K_SELDOM PX__CPU_WIDE __attribute__((noinline, unused)) static
K_SELDOM void k_wide_settle_pow(float *to, float *far, const float *a, const float *b,
                                const float *t) {
  PX__CPU_INDEPENDENT for (int k = 0; k < K_WIDE_BLOCK_SIZE; k++) {
    float x = a[k], y = b[k], s = x == 0 ? y * 0 : t[k], power = x == 0 ? 1 : to[k];
    to[k] = k_settled_power(&far[k], x, y, k_power_size(x), power, s);
  }
}
// a^b within 1.5 ulp. Returns false if *far marks elements that are not. Plain: a is a positive
// normal number, and b has more than two binary digits, which excludes the special exponents of
// k_pow.
K_WIDE bool k_wide_pow_f32(float *to, float *far, const float *a, const float *b) {
  enum { VECTORS = K_WIDE_BLOCK_SIZE / 16, NOT_PLAIN = 0xff };
  const __m512i digits = _mm512_set1_epi32(0x003fffff);
  __m512 t[VECTORS], rest[VECTORS];
  __mmask16 other = 0;
  PX__CPU_UNROLLED for (int k = 0; k < VECTORS; k++) {
    __m512 x = _mm512_loadu_ps(a + 16 * k), y = _mm512_loadu_ps(b + 16 * k);
    t[k] = k_wide_log2_times(x, y, &rest[k]);
    other |= _mm512_fpclass_ps_mask(x, NOT_PLAIN) |
             _mm512_testn_epi32_mask(_mm512_castps_si512(y), digits) |
             _mm512_cmp_ps_mask(_mm512_abs_ps(t[k]), _mm512_set1_ps(64), _CMP_NLT_UQ);
  }
  PX__CPU_UNROLLED for (int k = 0; k < VECTORS; k++)
      _mm512_storeu_ps(to + 16 * k, k_wide_exp2(t[k], rest[k]));
  if (!other) return true;
  float kept[K_WIDE_BLOCK_SIZE];
  PX__CPU_UNROLLED for (int k = 0; k < VECTORS; k++) _mm512_storeu_ps(kept + 16 * k, t[k]);
  k_wide_settle_pow(to, far, a, b, kept);
  return false;
}
#else
// Never called: placeholders without AVX-512.
#define K_NO_WIDE(name) \
  K_INLINE void k_wide_##name##_f64(double *to, const double *x) { *to = *x; }
K_NO_WIDE(exp)
K_NO_WIDE(log)
K_NO_WIDE(sqrt)
K_INLINE bool k_wide_pow_f32(float *to, float *far, const float *a, const float *b) {
  return *to = *far = *a + *b, true;
}
#endif
