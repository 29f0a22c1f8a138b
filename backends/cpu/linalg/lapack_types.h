// SPDX-License-Identifier: Apache-2.0
// Includes the file EACH once per LAPACK element type. T: element; R: type of its parts; C: complex
// type with such parts; NAME(x): suffixed name; IS_COMPLEX: whether T is complex; MORE(x): an
// argument, with its comma, of complex functions only.
#define T float
#define R float
#define C float _Complex
#define IS_COMPLEX 0
#define MORE(x)
#define NAME(x) x##_f32
#include EACH
#undef T
#undef R
#undef C
#undef NAME
#define T double
#define R double
#define C double _Complex
#define NAME(x) x##_f64
#include EACH
#undef T
#undef R
#undef C
#undef IS_COMPLEX
#undef MORE
#undef NAME
#define T float _Complex
#define R float
#define C float _Complex
#define IS_COMPLEX 1
#define MORE(x) x,
#define NAME(x) x##_c64
#include EACH
#undef T
#undef R
#undef C
#undef NAME
#define T double _Complex
#define R double
#define C double _Complex
#define NAME(x) x##_c128
#include EACH
#undef T
#undef R
#undef C
#undef IS_COMPLEX
#undef MORE
#undef NAME
#undef EACH
