// SPDX-License-Identifier: Apache-2.0
// LAPACK and BLAS, whose functions the kernels of linear algebra call.
//
// They are found when they are first needed (src/device/lapack.c), before such a kernel is
// launched, and never change afterwards. Names and arguments are Fortran's: numbers by address,
// matrices by columns, 32-bit integers, and behind all arguments the length of each text.
#pragma once
#include <stddef.h>

// XX(member, name of real numbers', of complex numbers', parameters) for elements of type T, whose
// parts are of type R; REAL(x) and COMPLEX(x) are the parameters that only one of both has.
#define PX_LAPACK_MAP(XX, T, R, REAL, COMPLEX) \
  XX(potrf, potrf, potrf, \
     (const char *uplo, const int *n, T *a, const int *lda, int *info, size_t)) \
  XX(getrf, getrf, getrf, \
     (const int *m, const int *n, T *a, const int *lda, int *pivots, int *info)) \
  XX(getrs, getrs, getrs, \
     (const char *turned, const int *n, const int *columns, const T *a, const int *lda, \
      const int *pivots, T *b, const int *ldb, int *info, size_t)) \
  XX(getri, getri, getri, \
     (const int *n, T *a, const int *lda, const int *pivots, T *work, const int *most, int *info)) \
  XX(trsm, trsm, trsm, \
     (const char *side, const char *uplo, const char *turned, const char *diagonal, const int *m, \
      const int *n, const T *alpha, const T *a, const int *lda, T *b, const int *ldb, size_t, \
      size_t, size_t, size_t)) \
  XX(sytrf, sytrf, sytrf, \
     (const char *uplo, const int *n, T *a, const int *lda, int *pivots, T *work, const int *most, \
      int *info, size_t)) \
  XX(hetrf, sytrf, hetrf, \
     (const char *uplo, const int *n, T *a, const int *lda, int *pivots, T *work, const int *most, \
      int *info, size_t)) \
  XX(sytrs, sytrs, sytrs, \
     (const char *uplo, const int *n, const int *columns, const T *a, const int *lda, \
      const int *pivots, T *b, const int *ldb, int *info, size_t)) \
  XX(hetrs, sytrs, hetrs, \
     (const char *uplo, const int *n, const int *columns, const T *a, const int *lda, \
      const int *pivots, T *b, const int *ldb, int *info, size_t)) \
  XX(geqrf, geqrf, geqrf, \
     (const int *m, const int *n, T *a, const int *lda, T *tau, T *work, const int *most, \
      int *info)) \
  XX(orgqr, orgqr, ungqr, \
     (const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau, T *work, \
      const int *most, int *info)) \
  XX(ormqr, ormqr, unmqr, \
     (const char *side, const char *turned, const int *m, const int *n, const int *k, const T *a, \
      const int *lda, const T *tau, T *c, const int *ldc, T *work, const int *most, int *info, \
      size_t, size_t)) \
  XX(syevd, syevd, heevd, \
     (const char *vectors, const char *uplo, const int *n, T *a, const int *lda, R *values, \
      T *work, const int *most, COMPLEX(R *more) COMPLEX(const int *most_more) int *places, \
      const int *most_places, int *info, size_t, size_t)) \
  XX(geev, geev, geev, \
     (const char *left, const char *right, const int *n, T *a, const int *lda, T *values, \
      REAL(T *imaginary) T *vl, const int *ldvl, T *vr, const int *ldvr, T *work, const int *most, \
      COMPLEX(R *more) int *info, size_t, size_t)) \
  XX(gesdd, gesdd, gesdd, \
     (const char *vectors, const int *m, const int *n, T *a, const int *lda, R *s, T *u, \
      const int *ldu, T *vt, const int *ldvt, T *work, const int *most, \
      COMPLEX(R *more) int *places, int *info, size_t)) \
  XX(gels, gels, gels, \
     (const char *turned, const int *m, const int *n, const int *columns, T *a, const int *lda, \
      T *b, const int *ldb, T *work, const int *most, int *info, size_t)) \
  XX(gelsy, gelsy, gelsy, \
     (const int *m, const int *n, const int *columns, T *a, const int *lda, T *b, const int *ldb, \
      int *places, const R *limit, int *rank, T *work, const int *most, \
      COMPLEX(R *more) int *info)) \
  XX(gelsd, gelsd, gelsd, \
     (const int *m, const int *n, const int *columns, T *a, const int *lda, T *b, const int *ldb, \
      R *s, const R *limit, int *rank, T *work, const int *most, COMPLEX(R *more) int *places, \
      int *info)) \
  XX(gelss, gelss, gelss, \
     (const int *m, const int *n, const int *columns, T *a, const int *lda, T *b, const int *ldb, \
      R *s, const R *limit, int *rank, T *work, const int *most, COMPLEX(R *more) int *info))

// A parameter of both lists, in front of others, and one that is left out.
#define PX_LAPACK_WITH(x) x,
#define PX_LAPACK_WITHOUT(x)

#define XX(member, real, complex, parameters) void(*member) parameters;
typedef struct px__lapack_float {
  PX_LAPACK_MAP(XX, float, float, PX_LAPACK_WITH, PX_LAPACK_WITHOUT)
} px__lapack_float;
typedef struct px__lapack_double {
  PX_LAPACK_MAP(XX, double, double, PX_LAPACK_WITH, PX_LAPACK_WITHOUT)
} px__lapack_double;
typedef struct px__lapack_float_complex {
  PX_LAPACK_MAP(XX, float _Complex, float, PX_LAPACK_WITHOUT, PX_LAPACK_WITH)
} px__lapack_float_complex;
typedef struct px__lapack_double_complex {
  PX_LAPACK_MAP(XX, double _Complex, double, PX_LAPACK_WITHOUT, PX_LAPACK_WITH)
} px__lapack_double_complex;
#undef XX
extern px__lapack_float px__lapack_f32;
extern px__lapack_double px__lapack_f64;
extern px__lapack_float_complex px__lapack_c64;
extern px__lapack_double_complex px__lapack_c128;
