// SPDX-License-Identifier: Apache-2.0
// What gcc and clang are told of a loop, each in its own words.
#pragma once

// PX__CPU_APART: no pass reads what another one writes, so that it is vectorised without a test.
// PX__CPU_UNROLLED: gcc makes one piece of a loop over lanes, unless it compiles for room.
// PX__CPU_ROLLED: gcc leaves it a loop, which it then vectorises; clang does so unasked.
#ifdef __clang__
#define PX__CPU_APART _Pragma("clang loop vectorize(assume_safety)")
#define PX__CPU_ROLLED
#define PX__CPU_UNROLLED
#else
#define PX__CPU_APART _Pragma("GCC ivdep")
#define PX__CPU_ROLLED _Pragma("GCC unroll 1")
#ifdef __OPTIMIZE_SIZE__
#define PX__CPU_UNROLLED
#else
#define PX__CPU_UNROLLED _Pragma("GCC unroll 16")
#endif
#endif

// The form for wide vectors of a function: compiled for AVX-512, with the same operations.
#if defined(__AVX2__)
#define PX__CPU_WIDE \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#else
#define PX__CPU_WIDE __attribute__((unused))
#endif
