// SPDX-License-Identifier: Apache-2.0
// Loops over contiguous arrays of float and double shared by the row kernels: sums, maxima,
// exponentials. rows_impl.h holds the loops, instantiated per element type with suffixes _f32 and
// _f64.
//
// Long sums accumulate blocks in T and the blocks in double, so the error does not grow with the
// length. They poll for interrupts between blocks (px__work_stopped). The other loops are for short
// rows or steps of rows.
#pragma once
#include "cpu/vector/math_f64.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"

static inline vd vd_exp_nonpositive(vd x) {
  for (int i = 0; i < VD; i++) x[i] = k_exp_f64(x[i]);
  return x;
}
static inline double vd_sum(vd v) {
  double s = 0;
  for (int i = 0; i < VD; i++) s += v[i];
  return s;
}

#define T float
#define V vf
#define L VF
#define OP(x) vf_##x
#define NAME(x) x##_f32
#include "cpu/vector/rows_impl.h"
#undef T
#undef V
#undef L
#undef OP
#undef NAME
#define T double
#define V vd
#define L VD
#define OP(x) vd_##x
#define NAME(x) x##_f64
#include "cpu/vector/rows_impl.h"
#undef T
#undef V
#undef L
#undef OP
#undef NAME
