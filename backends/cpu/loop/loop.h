// SPDX-License-Identifier: Apache-2.0
// Element-wise loops: macros for the generated row functions, and their driver.
//
// A row function computes n elements along one dimension. `p_` holds the operands' addresses
// (results first), `s_` their strides in bytes. All operands have the row's element types:
// px__cpu_pointwise_run converts blocks of other dtypes. Operands may be the same memory (in-place)
// but must not overlap partially.
#pragma once
#include "cpu/vector/divisor.h"
#include "cpu/vector/math.h"
#include "cpu/vector/complex_blocks.h"
#include "cpu/vector/loop_hints.h"
#include "cpu/vector/math_avx512.h"

typedef void (*px__cpu_row)(char *const *p_, const int64_t *s_, int64_t n_, const px_launch *l);
typedef struct px__cpu_pointwise {
  int operands;
  uint32_t bools;                    // bit i: operand i is bool, whatever the compute dtype
  bool alike;                        // no operand is read: all elements of a result are equal
  bool real;                         // complex inputs, real results
  px__cpu_row rows[PX_DTYPE_COUNT];  // usually NULL for fp16 and bf16: computed in float
} px__cpu_pointwise;
// A launch without operands asks for `op`: it is stored where l->stream points.
px_status px__cpu_pointwise_run(const px_launch *l, const px__cpu_pointwise *op);

// The row that serves a compute dtype, and the dtype of operand i in a row.
static inline int px__cpu_row_dtype(const px__cpu_pointwise *op, int compute) {
  bool half = compute == PX_FLOAT16 || compute == PX_BFLOAT16;
  return half && !op->rows[compute] ? PX_FLOAT32 : compute;
}
static inline int px__cpu_operand_dtype(const px__cpu_pointwise *op, int i, int compute) {
  if (op->bools >> i & 1u) return PX_BOOL;
  if (i > 0 || !op->real) return compute;
  return compute == PX_COMPLEX64 ? PX_FLOAT32 : compute == PX_COMPLEX128 ? PX_FLOAT64 : compute;
}

// `is(x, 'text')` in the op tables.
static inline bool px__cpu_is(const px_value *v, const char *text) {
  return v->kind == PX_ARG_TEXT && !strcmp(v->v.text, text);
}

// Compute-bound float rows are also compiled for AVX-512, with the same operations, and selected at
// run time. An AVX-512 row requires contiguous operands; otherwise it does nothing and returns
// false. Operands with stride 0 are then expanded piecewise (px__cpu_wide_broadcast).
typedef bool (*px__cpu_wide_row)(char *const *p_, const int64_t *s_, int64_t n_,
                                 const px_launch *l);
// Runs a row over `operands` operands of `item` bytes, some with stride 0. Returns false if an
// operand has any other gap or if nothing was computed.
bool px__cpu_wide_broadcast(px__cpu_wide_row row, char *const *p, const int64_t *s, int64_t n,
                            const px_launch *l, int operands, int64_t item);
#if defined(__AVX2__)
#define PX__CPU_IF_WIDE(row, operands, T) \
  if (px_cpu_level_used() >= PX_CPU_AVX512 && \
      (row(p_, s_, n_, l) || px__cpu_wide_broadcast(row, p_, s_, n_, l, operands, sizeof(T)))) \
    return;
#else
#define PX__CPU_IF_WIDE(row, operands, T)
#endif

#define PX__CPU_LOOP PX__CPU_INDEPENDENT for (int64_t k_ = 0; k_ < n_; k_++)

// Loads an operand's start into a local. Byte rows might alias the address list, so reading the
// list in every iteration would prevent vectorization.
#define PX__CPU_FROM(i) char *const at##i##_ = p_[i]

// Declares has_a: whether the optional operand is present. Absent operands read as zero.
#define PX__CPU_MAYBE(T, a, i) \
  const bool has_##a = l->operands[i].dtype != PX_DTYPE_NONE; \
  (void)has_##a;

// Reads an element. For bool any byte but 0 is true: external or reinterpreted memory may hold
// such bytes.
#define PX__CPU_READ(T, at) \
  _Generic((T){0}, bool \
           : *(const uint8_t *)(const void *)(at) != 0, default \
           : *(const T *)(const void *)(at))
#define PX__CPU_IS_CONTIGUOUS(T, i) (s_[i] == (int64_t)sizeof(T))
#define PX__CPU_AT(T, a, i) const T a = PX__CPU_READ(T, p_[i] + k_ * s_[i]);
#define PX__CPU_NEXT(T, a, i) const T a = PX__CPU_READ(T, (const T *)(const void *)at##i##_ + k_);
#define PX__CPU_SCALAR(T, a, i) const T a = PX__CPU_READ(T, p_[i]);
#define PX__CPU_PUT(O, expr) ((O *)(void *)at0_)[k_] = (O)(expr);
#define PX__CPU_PUT_AT(O, expr) *(O *)(void *)(p_[0] + k_ * s_[0]) = (O)(expr);

#define PX__CPU_ROW0(O, expr) \
  PX__CPU_FROM(0); \
  if (PX__CPU_IS_CONTIGUOUS(O, 0)) PX__CPU_LOOP { \
      PX__CPU_PUT(O, expr) \
    } \
  else \
    PX__CPU_LOOP { PX__CPU_PUT_AT(O, expr) }

#define PX__CPU_ROW1(O, A, a, i, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  if (PX__CPU_IS_CONTIGUOUS(O, 0) && PX__CPU_IS_CONTIGUOUS(A, i)) PX__CPU_LOOP { \
      PX__CPU_NEXT(A, a, i) PX__CPU_PUT(O, expr) \
    } \
  else \
    for (int64_t k_ = 0; k_ < n_; k_++) { \
      PX__CPU_AT(A, a, i) PX__CPU_PUT_AT(O, expr) \
    }

// fp16 and bf16 rows that only manipulate bits; `infinite` is the format's bit pattern of inf.
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
  if (PX__CPU_IS_CONTIGUOUS(O, 0) && PX__CPU_IS_CONTIGUOUS(A, i) && PX__CPU_IS_CONTIGUOUS(B, j)) \
    PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_PUT(O, expr) } \
  else if (PX__CPU_IS_CONTIGUOUS(O, 0) && PX__CPU_IS_CONTIGUOUS(A, i) && s_[j] == 0) { \
    PX__CPU_SCALAR(B, b, j) \
    PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_PUT(O, expr) } \
  } else if (PX__CPU_IS_CONTIGUOUS(O, 0) && s_[i] == 0 && PX__CPU_IS_CONTIGUOUS(B, j)) { \
    PX__CPU_SCALAR(A, a, i) \
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
  if (PX__CPU_IS_CONTIGUOUS(O, 0) && PX__CPU_IS_CONTIGUOUS(A, i) && PX__CPU_IS_CONTIGUOUS(B, j) && \
      PX__CPU_IS_CONTIGUOUS(C, m)) \
    PX__CPU_LOOP { \
      PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_NEXT(C, c, m) PX__CPU_PUT(O, expr) \
    } \
  else if (PX__CPU_IS_CONTIGUOUS(O, 0) && PX__CPU_IS_CONTIGUOUS(A, i) && \
           PX__CPU_IS_CONTIGUOUS(B, j) && s_[m] == 0) { \
    PX__CPU_SCALAR(C, c, m) \
    PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_PUT(O, expr) } \
  } else if (PX__CPU_IS_CONTIGUOUS(O, 0) && PX__CPU_IS_CONTIGUOUS(A, i) && s_[j] == 0 && \
             s_[m] == 0) { \
    PX__CPU_SCALAR(B, b, j) PX__CPU_SCALAR(C, c, m) PX__CPU_LOOP { \
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
  if (PX__CPU_IS_CONTIGUOUS(O, 0) && PX__CPU_IS_CONTIGUOUS(A, i) && PX__CPU_IS_CONTIGUOUS(B, j) && \
      PX__CPU_IS_CONTIGUOUS(C, m) && PX__CPU_IS_CONTIGUOUS(D, q)) \
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
  if (!PX__CPU_IS_CONTIGUOUS(O, 0) || !PX__CPU_IS_CONTIGUOUS(A, i)) return false; \
  PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_PUT(O, expr) }
#define PX__CPU_WIDE_ROW2(O, A, a, i, B, b, j, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  PX__CPU_FROM(j); \
  if (!PX__CPU_IS_CONTIGUOUS(O, 0) || !PX__CPU_IS_CONTIGUOUS(A, i) || \
      !PX__CPU_IS_CONTIGUOUS(B, j)) \
    return false; \
  PX__CPU_LOOP { PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_PUT(O, expr) }
#define PX__CPU_WIDE_ROW3(O, A, a, i, B, b, j, C, c, m, expr) \
  PX__CPU_FROM(0); \
  PX__CPU_FROM(i); \
  PX__CPU_FROM(j); \
  PX__CPU_FROM(m); \
  if (!PX__CPU_IS_CONTIGUOUS(O, 0) || !PX__CPU_IS_CONTIGUOUS(A, i) || \
      !PX__CPU_IS_CONTIGUOUS(B, j) || !PX__CPU_IS_CONTIGUOUS(C, m)) \
    return false; \
  PX__CPU_LOOP { \
    PX__CPU_NEXT(A, a, i) PX__CPU_NEXT(B, b, j) PX__CPU_NEXT(C, c, m) PX__CPU_PUT(O, expr) \
  }
#define PX__CPU_WIDE_ROW4(O, A, a, i, B, b, j, C, c, m, D, d, q, expr) return false;

// Rows in blocks of constant length, short blocks padded. All elements run through the same code
// whatever their position, because libm's vector and scalar variants differ in the last bit. A full
// contiguous block is read and written directly.
enum { PX__CPU_BLOCK_SIZE = K_WIDE_BLOCK_SIZE };
#define PX__CPU_BLOCKS \
  for (int64_t begin_ = 0, m_; begin_ < n_ && (m_ = px__cpu_block(n_ - begin_), true); begin_ += m_)
static inline int64_t px__cpu_block(int64_t left) {
  return left < PX__CPU_BLOCK_SIZE ? left : PX__CPU_BLOCK_SIZE;
}
#define PX__CPU_DIRECT(T, i) (PX__CPU_IS_CONTIGUOUS(T, i) && m_ == PX__CPU_BLOCK_SIZE)
#define PX__CPU_LOAD(T, a, i) \
  T a##_buffer_[PX__CPU_BLOCK_SIZE]; \
  const char *a##_from_ = p_[i] + begin_ * s_[i]; \
  const T *a##_ = PX__CPU_DIRECT(T, i) ? (const T *)(const void *)a##_from_ : a##_buffer_; \
  if (a##_ == a##_buffer_) { \
    const T a##_one_ = PX__CPU_READ(T, a##_from_); \
    for (int64_t k_ = 0; k_ < PX__CPU_BLOCK_SIZE; k_++) a##_buffer_[k_] = a##_one_; \
    for (int64_t k_ = 1; s_[i] && k_ < m_; k_++) \
      a##_buffer_[k_] = PX__CPU_READ(T, a##_from_ + k_ * s_[i]); \
  }
#define PX__CPU_EACH(O) \
  O o_buffer_[PX__CPU_BLOCK_SIZE]; \
  char *to_ = p_[0] + begin_ * s_[0]; \
  O *o_ = PX__CPU_DIRECT(O, 0) ? (O *)(void *)to_ : o_buffer_; \
  PX__CPU_INDEPENDENT PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_BLOCK_SIZE; k_++)
// A function with a shorter form for "plain" arguments (k_are_plain_NAME). One of the two forms
// runs for a whole block. Both agree on plain arguments, so a result does not depend on its
// neighbours.
#define PX__CPU_EACH_PLAIN(T, S, name, a) \
  T o_buffer_[PX__CPU_BLOCK_SIZE]; \
  char *to_ = p_[0] + begin_ * s_[0]; \
  T *o_ = PX__CPU_DIRECT(T, 0) ? (T *)(void *)to_ : o_buffer_; \
  if (k_are_plain_##name##_##S(a##_, PX__CPU_BLOCK_SIZE)) \
    PX__CPU_INDEPENDENT PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_BLOCK_SIZE; k_++) \
        o_[k_] = k_plain_##name##_##S(a##_[k_]); \
  else \
    PX__CPU_INDEPENDENT PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_BLOCK_SIZE; k_++) \
        o_[k_] = k_##name##_##S(a##_[k_]);
// A function with an AVX-512 implementation (math_avx512.h), which may mark elements in `far`.
#define PX__CPU_EACH_AVX512(T, S, name, a) \
  T o_buffer_[PX__CPU_BLOCK_SIZE]; \
  char *to_ = p_[0] + begin_ * s_[0]; \
  T *o_ = PX__CPU_DIRECT(T, 0) ? (T *)(void *)to_ : o_buffer_; \
  k_wide_##name##_##S(o_, a##_);
#define PX__CPU_AVX512_FIRST(S, name, a, b) \
  const bool done_ = k_wide_##name##_##S(o_, far_, a##_, b##_);
#define PX__CPU_TAKE(T, a) const T a = PX__CPU_READ(T, &a##_[k_]);
#define PX__CPU_SET(O, expr) o_[k_] = (O)(expr);
#define PX__CPU_STORE(O) \
  if (o_ == o_buffer_ && PX__CPU_IS_CONTIGUOUS(O, 0)) \
    memcpy(to_, o_, (size_t)m_ * sizeof(O)); \
  else if (o_ == o_buffer_) \
    for (int64_t k_ = 0; k_ < m_; k_++) *(O *)(void *)(to_ + k_ * s_[0]) = o_[k_];

// Fast forms are valid only on a subrange and mark other elements in `far`; those are recomputed.
// The result may alias an operand, so it is buffered.
#define PX__CPU_FAR(T) T far_[PX__CPU_BLOCK_SIZE];
#define PX__CPU_BUFFERED(O) \
  O o_buffer_[PX__CPU_BLOCK_SIZE], *o_ = o_buffer_; \
  char *to_ = p_[0] + begin_ * s_[0];
#define PX__CPU_EACH_LANE PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_BLOCK_SIZE; k_++)
#define PX__CPU_EACH_BUFFERED(O) PX__CPU_BUFFERED(O) PX__CPU_EACH_LANE
// A binary function with a shorter form for plain arguments and results in range
// (k_are_close_NAME). The general code that follows computes blocks that are not plain. Results out
// of range are recomputed alone where k_mark_far_NAME marks them.
#define PX__CPU_PLAIN_FIRST(T, S, name, a, b) \
  bool plain_ = k_are_plain_##name##_##S(a##_, b##_, PX__CPU_BLOCK_SIZE), done_ = false; \
  if (plain_) { \
    PX__CPU_EACH_LANE o_[k_] = k_plain_##name##_##S(far_ + k_, a##_[k_], b##_[k_]); \
    done_ = k_are_close_##S(far_, PX__CPU_BLOCK_SIZE); \
    plain_ = done_ || k_mark_far_##S(far_, b##_, PX__CPU_BLOCK_SIZE); \
  }
#define PX__CPU_FIND_FAR(limit) \
  int again_ = 0; \
  for (int64_t k_ = 0; k_ < PX__CPU_BLOCK_SIZE; k_++) again_ |= far_[k_] >= (limit);
#define PX__CPU_RECOMPUTE(O, limit, takes_and_set) \
  PX__CPU_FIND_FAR(limit) \
  if (again_) \
    for (int64_t k_ = 0; k_ < m_; k_++) \
      if (far_[k_] >= (limit)) { \
        takes_and_set \
      }
// Recomputes a whole block, for functions whose general form is branch-free too.
#define PX__CPU_RECOMPUTE_BLOCK(O, limit, takes, expr) \
  PX__CPU_FIND_FAR(limit) \
  if (again_) PX__CPU_ROLLED for (int64_t k_ = 0; k_ < PX__CPU_BLOCK_SIZE; k_++) { \
      takes const O right_ = (O)(expr); \
      o_[k_] = far_[k_] >= (limit) ? right_ : o_[k_]; \
    }

// Instances compare unsigned values with zero and do arithmetic on bool: correct for every type,
// redundant for some.
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wbool-operation"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wpass-failed"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#else
#pragma GCC diagnostic ignored "-Wbool-compare"
#endif
