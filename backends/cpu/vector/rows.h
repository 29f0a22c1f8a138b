// SPDX-License-Identifier: Apache-2.0
// Loops over contiguous arrays of float and double that the row kernels share: sums, maxima,
// exponentials. vec_impl.h has the loops, once per element type; the names end in _f32 and _f64.
//
// Long sums add blocks in float and the blocks in double, so that their error does not grow with
// the length; between blocks they end early (px__worked). The others are for rows that do not take
// long, or steps of rows.
#pragma once
#include "cpu/vector/math_f64.h"
#include "cpu/vector/simd.h"
#include "cpu/threads/threads.h"

static inline vd vd_exp_below(vd x) {
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
