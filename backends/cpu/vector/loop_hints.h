// SPDX-License-Identifier: Apache-2.0
// Loop annotations for gcc and clang.
#pragma once

// PX__CPU_INDEPENDENT: iterations are independent, so the loop is vectorized without alias checks.
// PX__CPU_UNROLLED: gcc unrolls a loop over lanes completely, except when compiling for size.
// PX__CPU_ROLLED: gcc does not unroll, and then vectorizes; clang does so by default.
#ifdef __clang__
#define PX__CPU_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define PX__CPU_ROLLED
#define PX__CPU_UNROLLED
#else
#define PX__CPU_INDEPENDENT _Pragma("GCC ivdep")
#define PX__CPU_ROLLED _Pragma("GCC unroll 1")
#ifdef __OPTIMIZE_SIZE__
#define PX__CPU_UNROLLED
#else
#define PX__CPU_UNROLLED _Pragma("GCC unroll 16")
#endif
#endif

// Target attribute of the AVX-512 variant of a function; same operations.
#if defined(__AVX2__)
#define PX__CPU_WIDE \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#else
#define PX__CPU_WIDE __attribute__((unused))
#endif
