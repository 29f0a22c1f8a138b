// SPDX-License-Identifier: Apache-2.0
// The products of integers of one type and one width of vectors: what gemm_block.h needs, from T,
// L, NAME and TARGET.
#define V NAME(lanes)
#define R PX__TILE_ROWS
#define LOAD NAME(load)
#define STORE NAME(store)
#define SET NAME(set)
#define FMA(x, y, z) ((x) * (y) + (z))
#define NUMBER(x) ((T)(int64_t)(x))
#define INLINE static inline __attribute__((always_inline)) TARGET

typedef T V __attribute__((vector_size(L * sizeof(T))));
INLINE V LOAD(const T *p) {
  V v;
  memcpy(&v, p, sizeof v);
  return v;
}
INLINE void STORE(T *p, V v) { memcpy(p, &v, sizeof v); }
INLINE V SET(T x) { return (V){0} + x; }

// The lanes of two vectors in turn, from the a-th: half a vector of each.
#define TURNS_1(a) (a), (a) + L
#define TURNS_2(a) TURNS_1(a), TURNS_1((a) + 1)
#define TURNS_4(a) TURNS_2(a), TURNS_2((a) + 2)
#define TURNS_8(a) TURNS_4(a), TURNS_4((a) + 4)
#define TURNS_16(a) TURNS_8(a), TURNS_8((a) + 8)
#if L == 32
#define TURNS TURNS_16
#elif L == 16
#define TURNS TURNS_8
#elif L == 8
#define TURNS TURNS_4
#elif L == 4
#define TURNS TURNS_2
#else
#define TURNS TURNS_1
#endif
#define INTERLEAVE_LOW(x, y) PX_SHUFFLE(x, y, TURNS(0))
#define INTERLEAVE_HIGH(x, y) PX_SHUFFLE(x, y, TURNS(L / 2))

#include "cpu/threads/cache_line.h"
#include "cpu/gemm/gemm_block.h"
#undef TURNS
#undef INLINE
