// SPDX-License-Identifier: Apache-2.0
// Element-wise loops: what the generated row functions are made of, and what runs them.
//
// A row function computes n elements along one dimension: `p_` has the operands' addresses (results
// first), `s_` their strides in bytes. All operands have the types that the row was written for;
// px__cpu_pointwise_run sees to that, element blocks of other dtypes being converted on the way.
// Operands may be the same memory (in-place), never partly overlapping.
#pragma once
#include "cpu/vector/divisor.h"
#include "cpu/vector/math.h"
#include "cpu/vector/complex_blocks.h"
#include "cpu/vector/loop_hints.h"
#include "cpu/vector/math_avx512.h"

typedef void (*px__cpu_row)(char *const *p_, const int64_t *s_, int64_t n_, const px_launch *l);
typedef struct px__cpu_pointwise {
  int operands;
  uint32_t bools;                    // bit i: operand i is bool, whatever the compute dtype is
  bool alike;                        // no operand is read: all elements of a result are the same
  bool real;                         // results of complex numbers are real
  px__cpu_row rows[PX_DTYPE_COUNT];  // most half types have none: they go through float
} px__cpu_pointwise;
// Copies an operand to another of the same shape, of any dtype and strides.
px_status px__cpu_copy_elements(const px_launch *l);
px_status px__cpu_pointwise_run(const px_launch *l, const px__cpu_pointwise *op);

// `is(x, 'text')` of the tables.
static inline bool px__cpu_is(const px_value *v, const char *text) {
  return v->kind == PX_ARG_TEXT && !strcmp(v->v.text, text);
}

// A row of floats whose functions take longer than memory does is compiled for AVX-512, too, with
// the same operations, and chosen at run time. Such a form tells whether it has done the row: it
// has only what lies without gaps. Where operands stay on one element, pieces of the row have it
// repeated (px__cpu_wide_still).
typedef bool (*px__cpu_wide_row)(char *const *p_, const int64_t *s_, int64_t n_,
                                 const px_launch *l);
// Does a row of `operands` of `item` bytes; false if one of them has gaps, or it has done nothing.
bool px__cpu_wide_still(px__cpu_wide_row row, char *const *p, const int64_t *s, int64_t n,
                        const px_launch *l, int operands, int64_t item);
#if defined(__AVX2__)
#define PX__CPU_IF_WIDE(row, operands, T) \
  if (px_cpu_level_used() >= PX_CPU_AVX512 && \
      (row(p_, s_, n_, l) || px__cpu_wide_still(row, p_, s_, n_, l, operands, sizeof(T)))) \
    return;
#else
#define PX__CPU_IF_WIDE(row, operands, T)
#endif

#define PX__CPU_LOOP PX__CPU_APART for (int64_t k_ = 0; k_ < n_; k_++)

// Where an operand begins, in a variable: a row of bytes might write over the list of addresses, as
// far as the compiler knows, and is made of no vectors if it reads that list in each step.
#define PX__CPU_FROM(i) char *const at##i##_ = p_[i]

// The operand of an optional tensor; absent ones read as zero.
#define PX__CPU_MAYBE(T, a, i) \
  const bool has_##a = l->operands[i].dtype != PX_DTYPE_NONE; \
  (void)has_##a;

// An element of memory. Any byte but 0 is true: memory of other dtypes, and of others, has such.
#define PX__CPU_READ(T, at) \
  _Generic((T){0}, bool \
           : *(const uint8_t *)(const void *)(at) != 0, default \
           : *(const T *)(const void *)(at))
#define PX__CPU_STEP(T, i) (s_[i] == (int64_t)sizeof(T))
#define PX__CPU_AT(T, a, i) const T a = PX__CPU_READ(T, p_[i] + k_ * s_[i]);
#define PX__CPU_NEXT(T, a, i) const T a = PX__CPU_READ(T, (const T *)(const void *)at##i##_ + k_);
#define PX__CPU_ONE(T, a, i) const T a = PX__CPU_READ(T, p_[i]);
#define PX__CPU_PUT(O, expr) ((O *)(void *)at0_)[k_] = (O)(expr);
#define PX__CPU_PUT_AT(O, expr) *(O *)(void *)(p_[0] + k_ * s_[0]) = (O)(expr);

#define PX__CPU_ROW0(O, expr) \
  PX__CPU_FROM(0); \
  if (PX__CPU_STEP(O, 0)) PX__CPU_LOOP { \
      PX__CPU_PUT(O, expr) \
    } \
  else \
    PX__CPU_LOOP { PX__CPU_PUT_AT(O, expr) }

#define PX__CPU_ROW1(O, A, a, i, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  if (PX__CPU_STEP(O, 0) && PX__CPU_STEP(A, i)) PX__CPU_LOOP { \
      PX__CPU_NEXT(A, a, i) PX__CPU_PUT(O, expr) \
    } \
  else \
    for (int64_t k_ = 0; k_ < n_; k_++) { \
      PX__CPU_AT(A, a, i) PX__CPU_PUT_AT(O, expr) \
    }

// Rows of a half format that look at its bits alone, by the bits of its infinity.
#define PX__CPU_SIGN_neg(bits, infinite) (bits) ^ 0x8000
#define PX__CPU_SIGN_abs(bits, infinite) (bits) & 0x7fff
#define PX__CPU_SIGN_relu(bits, infinite) \
  (bits) > 0x8000 && (bits) <= (0x8000 | (infinite)) ? 0 : (bits)
#define PX__CPU_SIGN_ROW(name, infinite) \
  PX__CPU_ROW1(uint16_t, uint16_t, bits, 1, PX__CPU_SIGN_##name(bits, infinite))

#define PX__CPU_ROW2(O, A, a, i, B, b, j, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  PX__CPU_FROM(j); \
  if (PX__CPU_STEP(O, 0) && PX__CPU_STEP(A, i) && PX__CPU_STEP(B, j)) PX__CPU_LOOP { \
      PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_PUT(O, expr) \
    } \
  else if (PX__CPU_STEP(O, 0) && PX__CPU_STEP(A, i) && s_[j] == 0) { \
    PX__CPU_ONE(B, b, j) \
    PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_PUT(O, expr) } \
  } else if (PX__CPU_STEP(O, 0) && s_[i] == 0 && PX__CPU_STEP(B, j)) { \
    PX__CPU_ONE(A, a, i) \
    PX__CPU_LOOP { PX__CPU_NEXT(B, b, j) PX__CPU_PUT(O, expr) } \
  } else \
    for (int64_t k_ = 0; k_ < n_; k_++) { \
      PX__CPU_AT(A, a, i) PX__CPU_AT(B, b, j) PX__CPU_PUT_AT(O, expr) \
    }

#define PX__CPU_ROW3(O, A, a, i, B, b, j, C, c, m, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  PX__CPU_FROM(j); \
  PX__CPU_FROM(m); \
  if (PX__CPU_STEP(O, 0) && PX__CPU_STEP(A, i) && PX__CPU_STEP(B, j) && PX__CPU_STEP(C, m)) \
    PX__CPU_LOOP { \
      PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_NEXT(C, c, m) PX__CPU_PUT(O, expr) \
    } \
  else if (PX__CPU_STEP(O, 0) && PX__CPU_STEP(A, i) && PX__CPU_STEP(B, j) && s_[m] == 0) { \
    PX__CPU_ONE(C, c, m) \
    PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_PUT(O, expr) } \
  } else if (PX__CPU_STEP(O, 0) && PX__CPU_STEP(A, i) && s_[j] == 0 && s_[m] == 0) { \
    PX__CPU_ONE(B, b, j) PX__CPU_ONE(C, c, m) PX__CPU_LOOP { \
      PX__CPU_NEXT(A, a, i) PX__CPU_PUT(O, expr) \
    } \
  } else \
    for (int64_t k_ = 0; k_ < n_; k_++) { \
      PX__CPU_AT(A, a, i) PX__CPU_AT(B, b, j) PX__CPU_AT(C, c, m) PX__CPU_PUT_AT(O, expr) \
    }

#define PX__CPU_ROW4(O, A, a, i, B, b, j, C, c, m, D, d, q, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  PX__CPU_FROM(j); \
  PX__CPU_FROM(m); \
  PX__CPU_FROM(q); \
  if (PX__CPU_STEP(O, 0) && PX__CPU_STEP(A, i) && PX__CPU_STEP(B, j) && PX__CPU_STEP(C, m) && \
      PX__CPU_STEP(D, q)) \
    PX__CPU_LOOP { \
      PX__CPU_NEXT(A, a, i) \
      PX__CPU_NEXT(B, b, j) PX__CPU_NEXT(C, c, m) PX__CPU_NEXT(D, d, q) PX__CPU_PUT(O, expr) \
    } \
  else \
    for (int64_t k_ = 0; k_ < n_; k_++) { \
      PX__CPU_AT(A, a, i) \
      PX__CPU_AT(B, b, j) PX__CPU_AT(C, c, m) PX__CPU_AT(D, d, q) PX__CPU_PUT_AT(O, expr) \
    }

#define PX__CPU_WIDE_ROW1(O, A, a, i, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  if (!PX__CPU_STEP(O, 0) || !PX__CPU_STEP(A, i)) return false; \
  PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_PUT(O, expr) }
#define PX__CPU_WIDE_ROW2(O, A, a, i, B, b, j, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  PX__CPU_FROM(j); \
  if (!PX__CPU_STEP(O, 0) || !PX__CPU_STEP(A, i) || !PX__CPU_STEP(B, j)) return false; \
  PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_PUT(O, expr) }
#define PX__CPU_WIDE_ROW3(O, A, a, i, B, b, j, C, c, m, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  PX__CPU_FROM(j); \
  PX__CPU_FROM(m); \
  if (!PX__CPU_STEP(O, 0) || !PX__CPU_STEP(A, i) || !PX__CPU_STEP(B, j) || !PX__CPU_STEP(C, m)) \
    return false; \
  PX__CPU_LOOP { \
    PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_NEXT(C, c, m) PX__CPU_PUT(O, expr) \
  }
#define PX__CPU_WIDE_ROW4(O, A, a, i, B, b, j, C, c, m, D, d, q, expr) return false;

// Rows in blocks of a constant length, short ones filled up: all elements, wherever they lie, go
// through the same code. Functions of libm are the reason: their forms for vectors and for one
// number differ in the last bit. A whole block without gaps is read and written where it lies.
enum { PX__CPU_PIECE = K_WIDE_PIECE };
#define PX__CPU_BLOCKS \
  for (int64_t begin_ = 0, m_; begin_ < n_ && (m_ = px__cpu_block(n_ - begin_), true); begin_ += m_)
static inline int64_t px__cpu_block(int64_t left) {
  return left < PX__CPU_PIECE ? left : PX__CPU_PIECE;
}
#define PX__CPU_WHOLE(T, i) (PX__CPU_STEP(T, i) && m_ == PX__CPU_PIECE)
#define PX__CPU_LOAD(T, a, i) \
  T a##_room_[PX__CPU_PIECE]; \
  const char *a##_from_ = p_[i] + begin_ * s_[i]; \
  const T *a##_ = PX__CPU_WHOLE(T, i) ? (const T *)(const void *)a##_from_ : a##_room_; \
  if (a##_ == a##_room_) { \
    const T a##_one_ = PX__CPU_READ(T, a##_from_); \
    for (int64_t k_ = 0; k_ < PX__CPU_PIECE; k_++) a##_room_[k_] = a##_one_; \
    for (int64_t k_ = 1; s_[i] && k_ < m_; k_++) \
      a##_room_[k_] = PX__CPU_READ(T, a##_from_ + k_ * s_[i]); \
  }
#define PX__CPU_EACH(O) \
  O o_room_[PX__CPU_PIECE]; \
  char *to_ = p_[0] + begin_ * s_[0]; \
  O *o_ = PX__CPU_WHOLE(O, 0) ? (O *)(void *)to_ : o_room_; \
  PX__CPU_APART PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_PIECE; k_++)
// A function of which plain numbers have a shorter form. One of both serves a whole block, and they
// give the same for a plain number, so that it does not matter what others are with it.
#define PX__CPU_EACH_PLAIN(T, S, name, a) \
  T o_room_[PX__CPU_PIECE]; \
  char *to_ = p_[0] + begin_ * s_[0]; \
  T *o_ = PX__CPU_WHOLE(T, 0) ? (T *)(void *)to_ : o_room_; \
  if (k_are_plain_##name##_##S(a##_, PX__CPU_PIECE)) \
    PX__CPU_APART PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_PIECE; k_++) o_[k_] = \
        k_plain_##name##_##S(a##_[k_]); \
  else \
    PX__CPU_APART PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_PIECE; k_++) o_[k_] = \
        k_##name##_##S(a##_[k_]);
// A function that AVX-512 has a form of its own for (wide.h), which may give back what is far.
#define PX__CPU_EACH_OWN(T, S, name, a) \
  T o_room_[PX__CPU_PIECE]; \
  char *to_ = p_[0] + begin_ * s_[0]; \
  T *o_ = PX__CPU_WHOLE(T, 0) ? (T *)(void *)to_ : o_room_; \
  k_wide_##name##_##S(o_, a##_);
#define PX__CPU_OWN_FIRST(S, name, a, b) \
  const bool done_ = k_wide_##name##_##S(o_, far_, a##_, b##_);
#define PX__CPU_TAKE(T, a) const T a = PX__CPU_READ(T, &a##_[k_]);
#define PX__CPU_SET(O, expr) o_[k_] = (O)(expr);
#define PX__CPU_STORE(O) \
  if (o_ == o_room_ && PX__CPU_STEP(O, 0)) \
    memcpy(to_, o_, (size_t)m_ * sizeof(O)); \
  else if (o_ == o_room_) \
    for (int64_t k_ = 0; k_ < m_; k_++) *(O *)(void *)(to_ + k_ * s_[0]) = o_[k_];

// What was computed with functions that are right for near numbers alone is done again where one
// is far; the result may lie where an operand lies, so it waits.
#define PX__CPU_FAR(T) T far_[PX__CPU_PIECE];
#define PX__CPU_ASIDE(O) \
  O o_room_[PX__CPU_PIECE], *o_ = o_room_; \
  char *to_ = p_[0] + begin_ * s_[0];
#define PX__CPU_EACH_PLACE PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_PIECE; k_++)
#define PX__CPU_EACH_ASIDE(O) PX__CPU_ASIDE(O) PX__CPU_EACH_PLACE
// A function of two that has a shorter form, too, for plain numbers whose results are close. What
// is neither is computed by what follows; where some are not close, those alone, if that is known.
#define PX__CPU_PLAIN_FIRST(T, S, name, a, b) \
  bool plain_ = k_are_plain_##name##_##S(a##_, b##_, PX__CPU_PIECE), done_ = false; \
  if (plain_) { \
    PX__CPU_EACH_PLACE o_[k_] = k_plain_##name##_##S(far_ + k_, a##_[k_], b##_[k_]); \
    done_ = k_are_close_##S(far_, PX__CPU_PIECE); \
    plain_ = done_ || k_mark_far_##S(far_, b##_, PX__CPU_PIECE); \
  }
#define PX__CPU_ANY_FAR(limit) \
  int again_ = 0; \
  for (int64_t k_ = 0; k_ < PX__CPU_PIECE; k_++) again_ |= far_[k_] >= (limit);
#define PX__CPU_AGAIN(O, limit, takes_and_set) \
  PX__CPU_ANY_FAR(limit) \
  if (again_) \
    for (int64_t k_ = 0; k_ < m_; k_++) \
      if (far_[k_] >= (limit)) { \
        takes_and_set \
      }
// A block at once, where what is right for all numbers has no branches either.
#define PX__CPU_AGAIN_AT_ONCE(O, limit, takes, expr) \
  PX__CPU_ANY_FAR(limit) \
  if (again_) PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_PIECE; k_++) { \
      takes const O right_ = (O)(expr); \
      o_[k_] = far_[k_] >= (limit) ? right_ : o_[k_]; \
    }

// Comparisons of unsigned numbers with zero, arithmetic of bool: right in every stamp, if needless
// in some.
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wbool-operation"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wpass-failed"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#else
#pragma GCC diagnostic ignored "-Wbool-compare"
#endif
