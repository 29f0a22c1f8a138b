// SPDX-License-Identifier: Apache-2.0
// Includes the file BOTH twice: for float (suffix _f32) and for double (_f64).
#define T float
#define NAME(x) x##_f32
#include BOTH
#undef T
#undef NAME
#define T double
#define NAME(x) x##_f64
#include BOTH
#undef T
#undef NAME
#undef BOTH
