// SPDX-License-Identifier: Apache-2.0
// LAPACK and BLAS, whose functions the kernels of linear algebra call.
//
// They are found when they are first needed (src/device/lapack.c), before such a kernel is
// launched, and never change afterwards. Names and arguments are Fortran's: numbers by address,
// matrices by columns, 32-bit integers, and behind all arguments the length of each text.
#pragma once
#include <stddef.h>

// XX(function, parameters) for elements of type T.
#define PX_LAPACK_MAP(XX, T) \
  XX(potrf, (const char *uplo, const int *n, T *a, const int *lda, int *info, size_t)) \
  XX(getrf, (const int *m, const int *n, T *a, const int *lda, int *pivots, int *info)) \
  XX(getrs, (const char *turned, const int *n, const int *columns, const T *a, const int *lda, \
             const int *pivots, T *b, const int *ldb, int *info, size_t)) \
  XX(getri, \
     (const int *n, T *a, const int *lda, const int *pivots, T *work, const int *most, int *info)) \
  XX(trsm, (const char *side, const char *uplo, const char *turned, const char *diagonal, \
            const int *m, const int *n, const T *alpha, const T *a, const int *lda, T *b, \
            const int *ldb, size_t, size_t, size_t, size_t)) \
  XX(sytrf, (const char *uplo, const int *n, T *a, const int *lda, int *pivots, T *work, \
             const int *most, int *info, size_t)) \
  XX(sytrs, (const char *uplo, const int *n, const int *columns, const T *a, const int *lda, \
             const int *pivots, T *b, const int *ldb, int *info, size_t)) \
  XX(geqrf, (const int *m, const int *n, T *a, const int *lda, T *tau, T *work, const int *most, \
             int *info)) \
  XX(orgqr, (const int *m, const int *n, const int *k, T *a, const int *lda, const T *tau, \
             T *work, const int *most, int *info)) \
  XX(ormqr, (const char *side, const char *turned, const int *m, const int *n, const int *k, \
             const T *a, const int *lda, const T *tau, T *c, const int *ldc, T *work, \
             const int *most, int *info, size_t, size_t)) \
  XX(syevd, \
     (const char *vectors, const char *uplo, const int *n, T *a, const int *lda, T *values, \
      T *work, const int *most, int *places, const int *most_places, int *info, size_t, size_t)) \
  XX(gesdd, (const char *vectors, const int *m, const int *n, T *a, const int *lda, T *s, T *u, \
             const int *ldu, T *vt, const int *ldvt, T *work, const int *most, int *places, \
             int *info, size_t)) \
  XX(gels, (const char *turned, const int *m, const int *n, const int *columns, T *a, \
            const int *lda, T *b, const int *ldb, T *work, const int *most, int *info, size_t)) \
  XX(gelsy, \
     (const int *m, const int *n, const int *columns, T *a, const int *lda, T *b, const int *ldb, \
      int *places, const T *limit, int *rank, T *work, const int *most, int *info)) \
  XX(gelsd, \
     (const int *m, const int *n, const int *columns, T *a, const int *lda, T *b, const int *ldb, \
      T *s, const T *limit, int *rank, T *work, const int *most, int *places, int *info)) \
  XX(gelss, \
     (const int *m, const int *n, const int *columns, T *a, const int *lda, T *b, const int *ldb, \
      T *s, const T *limit, int *rank, T *work, const int *most, int *info))

#define XX(name, parameters) void(*name) parameters;
typedef struct px__lapack_float {
  PX_LAPACK_MAP(XX, float)
} px__lapack_float;
typedef struct px__lapack_double {
  PX_LAPACK_MAP(XX, double)
} px__lapack_double;
#undef XX
extern px__lapack_float px__lapack_f32;
extern px__lapack_double px__lapack_f64;
