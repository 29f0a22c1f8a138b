// SPDX-License-Identifier: Apache-2.0
// Rows of complex numbers as split parts: a block holds the real parts in one array and the
// imaginary parts in another, so loops over it vectorize. Blocks have a constant length, short ones
// padded: results do not depend on the position in a row. Elements outside a fast path's range are
// marked in `far` and recomputed by C's complex arithmetic and libm.
#pragma once
#include "cpu/vector/math.h"
#include "cpu/vector/loop_hints.h"

enum { PX__CPU_PARTS = 64 };
#define PX__CPU_PART PX__CPU_ROLLED for (int k = 0; k < PX__CPU_PARTS; k++)

#define K_PARTS(S, R) \
  typedef struct k_parts_##S { \
    R re[PX__CPU_PARTS], im[PX__CPU_PARTS]; \
  } k_parts_##S; \
  K_INLINE void k_split_##S(k_parts_##S *x, const char *from, int64_t step, int64_t m) { \
    const R *at = (const R *)(const void *)from; \
    if (step == 2 * (int64_t)sizeof(R) && m == PX__CPU_PARTS) { \
      PX__CPU_INDEPENDENT PX__CPU_PART x->re[k] = at[2 * k], x->im[k] = at[2 * k + 1]; \
      return; \
    } \
    const R re = at[0], im = at[1]; \
    PX__CPU_PART x->re[k] = re, x->im[k] = im; \
    for (int64_t k = 1; step && k < m; k++) { \
      at = (const R *)(const void *)(from + k * step); \
      x->re[k] = at[0], x->im[k] = at[1]; \
    } \
  } \
  K_INLINE void k_store_parts_##S(char *to, int64_t step, const k_parts_##S *x, int64_t m) { \
    R *at = (R *)(void *)to; \
    if (step == 2 * (int64_t)sizeof(R) && m == PX__CPU_PARTS) { \
      PX__CPU_INDEPENDENT PX__CPU_PART at[2 * k] = x->re[k], at[2 * k + 1] = x->im[k]; \
      return; \
    } \
    for (int64_t k = 0; k < m; k++) { \
      at = (R *)(void *)(to + k * step); \
      at[0] = x->re[k], at[1] = x->im[k]; \
    } \
  } \
  K_INLINE void k_store_reals_##S(char *to, int64_t step, const k_parts_##S *x, int64_t m) { \
    if (step == (int64_t)sizeof(R)) \
      memcpy(to, x->re, (size_t)m * sizeof(R)); \
    else \
      for (int64_t k = 0; k < m; k++) *(R *)(void *)(to + k * step) = x->re[k]; \
  } \
  K_INLINE bool k_any_far_##S(const R *far) { \
    int any = 0; \
    for (int k = 0; k < PX__CPU_PARTS; k++) any |= far[k] != 0; \
    return any; \
  } \
  K_INLINE k_complex_##S k_part_##S(const k_parts_##S *x, int k) { \
    return k_of_parts_##S(x->re[k], x->im[k]); \
  } \
  K_INLINE void k_put_part_##S(k_parts_##S *x, int k, k_complex_##S value) { \
    x->re[k] = k_real_##S(value); \
    memcpy(&x->im[k], (const char *)&value + sizeof(R), sizeof(R)); \
  } \
  K_INLINE void k_parts_mul_##S(k_parts_##S *o, const k_parts_##S *x, const k_parts_##S *y) { \
    R far[PX__CPU_PARTS]; \
    PX__CPU_PART { \
      R a = x->re[k], b = x->im[k], c = y->re[k], d = y->im[k]; \
      R re = a * c - b * d, im = a * d + b * c; \
      far[k] = (re != re) & (im != im); \
      o->re[k] = re, o->im[k] = im; \
    } \
    if (k_any_far_##S(far)) \
      for (int k = 0; k < PX__CPU_PARTS; k++) \
        if (far[k] != 0) k_put_part_##S(o, k, k_part_##S(x, k) * k_part_##S(y, k)); \
  } \
  K_INLINE void k_parts_square_##S(k_parts_##S *o, const k_parts_##S *x) { \
    k_parts_mul_##S(o, x, x); \
  } \
  K_INLINE void k_parts_div_##S(k_parts_##S *o, const k_parts_##S *x, const k_parts_##S *y) { \
    R far[PX__CPU_PARTS]; \
    PX__CPU_PART o->re[k] = \
        k_quotient_##S(x->re[k], x->im[k], y->re[k], y->im[k], &o->im[k], &far[k]); \
    if (k_any_far_##S(far)) \
      for (int k = 0; k < PX__CPU_PARTS; k++) \
        if (far[k] != 0) k_put_part_##S(o, k, k_part_##S(x, k) / k_part_##S(y, k)); \
  } \
  K_INLINE void k_parts_reciprocal_##S(k_parts_##S *o, const k_parts_##S *x) { \
    R far[PX__CPU_PARTS]; \
    PX__CPU_PART o->re[k] = k_over_##S(x->re[k], x->im[k], &o->im[k], &far[k]); \
    if (k_any_far_##S(far)) \
      for (int k = 0; k < PX__CPU_PARTS; k++) \
        if (far[k] != 0) k_put_part_##S(o, k, 1 / k_part_##S(x, k)); \
  } \
  K_INLINE void k_parts_abs_##S(k_parts_##S *o, const k_parts_##S *x) { \
    R far[PX__CPU_PARTS]; \
    PX__CPU_PART o->re[k] = k_hypot_##S(x->re[k], x->im[k], &far[k]); \
    if (k_any_far_##S(far)) \
      for (int k = 0; k < PX__CPU_PARTS; k++) \
        if (far[k] != 0) o->re[k] = k_real_##S(k_abs_##S(k_part_##S(x, k))); \
  }

// c64 division in double: the range holds the squares of all floats. Both parts are NaN if C's
// rules for infinities apply.
K_INLINE float k_quotient_c64(float a, float b, float c, float d, float *im, float *far) {
  double x = a, y = b, u = c, v = d, over = 1 / (u * u + v * v);
  float re = (float)((x * u + y * v) * over);
  *im = (float)((y * u - x * v) * over);
  *far = (re != re) & (*im != *im);
  return re;
}
K_INLINE float k_over_c64(float c, float d, float *im, float *far) {
  double u = c, v = d, size = u * u + v * v, over = 1 / size;
  *im = (float)((0 * u - v) * over);
  *far = size > 0 && size < (double)INFINITY ? 0.0f : 1.0f;
  return (float)(u * over);
}
// True if squares of x and their products stay in double's range.
K_INLINE bool k_squares_in_range(double x) {
  double size = fabs(x);
  return (size > 0x1p-200 && size < 0x1p200) || x == 0;
}
// Smith's method: scales by the ratio of the divisor's smaller part to its larger part.
K_INLINE double k_quotient_c128(double a, double b, double c, double d, double *im, double *far) {
  bool steep = fabs(c) < fabs(d);
  double u = steep ? d : c, v = steep ? c : d, p = steep ? b : a, q = steep ? a : b;
  double share = v / u, size = v * share + u;
  double flat = b - a * share, high = b * share - a;
  *im = (steep ? high : flat) / size;
  *far = k_squares_in_range(a) & k_squares_in_range(b) & k_squares_in_range(c) &
                 k_squares_in_range(d) & (u != 0)
             ? 0
             : 1;
  return (q * share + p) / size;
}

K_INLINE double k_over_c128(double c, double d, double *im, double *far) {
  return k_quotient_c128(1, 0, c, d, im, far);
}

// Square root, corrected by its residual divided by twice the root: correctly rounded.
#ifdef __FMA__
K_INLINE float k_hypot_c64(float a, float b, float *far) {
  float p = a * a, q = b * b, s = p + q, rest = p > q ? p - s + q : q - s + p;
  rest += K_FMA_f32(a, a, -p) + K_FMA_f32(b, b, -q);
  float h = sqrtf(s);
  rest = (rest + K_FMA_f32(-h, h, s)) / (2 * h);
  *far = (s > 0x1p-90f && s < 0x1p126f) | (fabsf(a) + fabsf(b) == 0) ? 0.0f : 1.0f;
  return h + (h > 0 ? rest : 0);
}
#else
K_INLINE float k_hypot_c64(float a, float b, float *far) {
  *far = 0 * (a + b) == 0 ? 0.0f : 1.0f;
  return (float)sqrt((double)a * a + (double)b * b);
}
#endif
// The upper half of a double's mantissa bits: its square is exact.
K_INLINE double k_upper(double x) { return k_bits_double(k_double_bits(x) & ~(uint64_t)0x7ffffff); }
K_INLINE double k_hypot_c128(double a, double b, double *far) {
  double x = k_upper(a), y = k_upper(b), p = x * x, q = y * y;
  double s = p + q, rest = p > q ? p - s + q : q - s + p;
  rest += (a - x) * (a + x) + (b - y) * (b + y);
  double h = sqrt(s + rest), z = k_upper(h);
  rest += s - z * z - (h - z) * (h + z);
  *far = (s > 0x1p-900 && s < 0x1p1000) | (fabs(a) + fabs(b) == 0) ? 0 : 1;
  return h + (h > 0 ? rest / (2 * h) : 0);
}
K_PARTS(c64, float)
K_PARTS(c128, double)

K_INLINE void k_parts_sgn_c64(k_parts_c64 *o, const k_parts_c64 *x) {
  PX__CPU_PART {
    double a = x->re[k], b = x->im[k], s = a * a + b * b, over = 1 / sqrt(s);
    o->re[k] = s == 0 ? 0 : (float)(a * over), o->im[k] = s == 0 ? 0 : (float)(b * over);
  }
}
K_INLINE void k_parts_sgn_c128(k_parts_c128 *o, const k_parts_c128 *x) {
  k_parts_c128 length;
  k_parts_abs_c128(&length, x);
  PX__CPU_PART {
    double h = length.re[k];
    o->re[k] = h == 0 ? 0 : x->re[k] / h, o->im[k] = h == 0 ? 0 : x->im[k] / h;
  }
}
K_INLINE void k_parts_angle_c64(k_parts_c64 *o, const k_parts_c64 *x) {
  PX__CPU_PART o->re[k] = (float)k_atan2_f64((double)x->im[k], (double)x->re[k]);
}

// Rows by operand count. `put`: k_store_parts, or k_store_reals for real results.
#define PX__CPU_PARTS_ROW(m) \
  for (int64_t begin_ = 0, m; \
       begin_ < n_ && (m = n_ - begin_ < PX__CPU_PARTS ? n_ - begin_ : PX__CPU_PARTS, true); \
       begin_ += m)
#define PX__CPU_PARTS_ROW1(S, name, put) \
  PX__CPU_PARTS_ROW(m_) { \
    k_parts_##S o_, x_; \
    k_split_##S(&x_, p_[1] + begin_ * s_[1], s_[1], m_); \
    k_parts_##name##_##S(&o_, &x_); \
    put##_##S(p_[0] + begin_ * s_[0], s_[0], &o_, m_); \
  }
#define PX__CPU_PARTS_ROW2(S, name, put) \
  PX__CPU_PARTS_ROW(m_) { \
    k_parts_##S o_, x_, y_; \
    k_split_##S(&x_, p_[1] + begin_ * s_[1], s_[1], m_); \
    k_split_##S(&y_, p_[2] + begin_ * s_[2], s_[2], m_); \
    k_parts_##name##_##S(&o_, &x_, &y_); \
    put##_##S(p_[0] + begin_ * s_[0], s_[0], &o_, m_); \
  }

// pow(x, 2).
PX__CPU_WIDE static inline void k_square_wide_c64(char *const *p_, const int64_t *s_, int64_t n_) {
  PX__CPU_PARTS_ROW1(c64, square, k_store_parts)
}
static inline void k_square_row_c64(char *const *p_, const int64_t *s_, int64_t n_) {
  if (px_cpu_level_used() >= PX_CPU_AVX512)
    k_square_wide_c64(p_, s_, n_);
  else
    PX__CPU_PARTS_ROW1(c64, square, k_store_parts)
}
