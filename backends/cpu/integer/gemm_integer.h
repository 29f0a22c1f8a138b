// SPDX-License-Identifier: Apache-2.0
// Integer products of one type and vector width: defines the parameters of gemm_block.h from T, L,
// NAME and TARGET.
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

// Lanes of two vectors alternately, starting at lane a; half of each vector.
#define ALTERNATE_1(a) (a), (a) + L
#define ALTERNATE_2(a) ALTERNATE_1(a), ALTERNATE_1((a) + 1)
#define ALTERNATE_4(a) ALTERNATE_2(a), ALTERNATE_2((a) + 2)
#define ALTERNATE_8(a) ALTERNATE_4(a), ALTERNATE_4((a) + 4)
#define ALTERNATE_16(a) ALTERNATE_8(a), ALTERNATE_8((a) + 8)
#if L == 32
#define ALTERNATE_LANES ALTERNATE_16
#elif L == 16
#define ALTERNATE_LANES ALTERNATE_8
#elif L == 8
#define ALTERNATE_LANES ALTERNATE_4
#elif L == 4
#define ALTERNATE_LANES ALTERNATE_2
#else
#define ALTERNATE_LANES ALTERNATE_1
#endif
#define INTERLEAVE_LOW(x, y) PX_SHUFFLE(x, y, ALTERNATE_LANES(0))
#define INTERLEAVE_HIGH(x, y) PX_SHUFFLE(x, y, ALTERNATE_LANES(L / 2))

#include "cpu/threads/cache_line.h"
#include "cpu/gemm/gemm_block.h"
#undef ALTERNATE_LANES
#undef INLINE
