// SPDX-License-Identifier: Apache-2.0
// Interface to LAPACK and BLAS for the linear algebra kernels.
//
// The library is loaded on first use (src/device/open/lapack.c), before such a kernel launches, and
// the function pointers never change afterwards. Names and arguments follow Fortran: numbers by
// address, matrices column-major, and the length of each text after all arguments.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// An integer passed by address. The library reads and writes 32 or 64 bits of it. On little-endian
// machines both widths are correct if output variables start as 0. An array is packed in the
// library's width; use px__int_at and px__int_put.
typedef int64_t px__int;
extern bool px__lapack_wide;  // the library's integers have 64 bits
static inline int px__int_at(const px__int *row, int k) {
  return px__lapack_wide ? (int)row[k] : ((const int *)(const void *)row)[k];
}
static inline void px__int_put(px__int *row, int k, int value) {
  if (px__lapack_wide)
    row[k] = value;
  else
    ((int *)(void *)row)[k] = value;
}
// Limits the library to n threads for calls from this thread, if it supports that. Returns the
// state for px__lapack_restore_limit.
int px__lapack_limit(int n);
void px__lapack_restore_limit(int before);

// XX(member, name for real types, name for complex types, parameters) for elements of type T with
// parts of type R. REAL(x) and COMPLEX(x) are parameters of only one kind.
#define PX_LAPACK_MAP(XX, T, R, REAL, COMPLEX) \
  XX(potrf, potrf, potrf, \
     (const char *uplo, const px__int *n, T *a, const px__int *lda, px__int *info, size_t)) \
  XX(getrf, getrf, getrf, \
     (const px__int *m, const px__int *n, T *a, const px__int *lda, px__int *pivots, \
      px__int *info)) \
  XX(getrs, getrs, getrs, \
     (const char *trans, const px__int *n, const px__int *columns, const T *a, const px__int *lda, \
      const px__int *pivots, T *b, const px__int *ldb, px__int *info, size_t)) \
  XX(getri, getri, getri, \
     (const px__int *n, T *a, const px__int *lda, const px__int *pivots, T *work, \
      const px__int *lwork, px__int *info)) \
  XX(trsm, trsm, trsm, \
     (const char *side, const char *uplo, const char *trans, const char *diagonal, \
      const px__int *m, const px__int *n, const T *alpha, const T *a, const px__int *lda, T *b, \
      const px__int *ldb, size_t, size_t, size_t, size_t)) \
  XX(sytrf, sytrf, sytrf, \
     (const char *uplo, const px__int *n, T *a, const px__int *lda, px__int *pivots, T *work, \
      const px__int *lwork, px__int *info, size_t)) \
  XX(hetrf, sytrf, hetrf, \
     (const char *uplo, const px__int *n, T *a, const px__int *lda, px__int *pivots, T *work, \
      const px__int *lwork, px__int *info, size_t)) \
  XX(sytrs, sytrs, sytrs, \
     (const char *uplo, const px__int *n, const px__int *columns, const T *a, const px__int *lda, \
      const px__int *pivots, T *b, const px__int *ldb, px__int *info, size_t)) \
  XX(hetrs, sytrs, hetrs, \
     (const char *uplo, const px__int *n, const px__int *columns, const T *a, const px__int *lda, \
      const px__int *pivots, T *b, const px__int *ldb, px__int *info, size_t)) \
  XX(geqrf, geqrf, geqrf, \
     (const px__int *m, const px__int *n, T *a, const px__int *lda, T *tau, T *work, \
      const px__int *lwork, px__int *info)) \
  XX(orgqr, orgqr, ungqr, \
     (const px__int *m, const px__int *n, const px__int *k, T *a, const px__int *lda, \
      const T *tau, T *work, const px__int *lwork, px__int *info)) \
  XX(ormqr, ormqr, unmqr, \
     (const char *side, const char *trans, const px__int *m, const px__int *n, const px__int *k, \
      const T *a, const px__int *lda, const T *tau, T *c, const px__int *ldc, T *work, \
      const px__int *lwork, px__int *info, size_t, size_t)) \
  XX(syevd, syevd, heevd, \
     (const char *vectors, const char *uplo, const px__int *n, T *a, const px__int *lda, \
      R *values, T *work, const px__int *lwork, \
      COMPLEX(R *rwork) COMPLEX(const px__int *lrwork) px__int *iwork, const px__int *liwork, \
      px__int *info, size_t, size_t)) \
  XX(geev, geev, geev, \
     (const char *left, const char *right, const px__int *n, T *a, const px__int *lda, T *values, \
      REAL(T *imaginary) T *vl, const px__int *ldvl, T *vr, const px__int *ldvr, T *work, \
      const px__int *lwork, COMPLEX(R *rwork) px__int *info, size_t, size_t)) \
  XX(gesdd, gesdd, gesdd, \
     (const char *vectors, const px__int *m, const px__int *n, T *a, const px__int *lda, R *s, \
      T *u, const px__int *ldu, T *vt, const px__int *ldvt, T *work, const px__int *lwork, \
      COMPLEX(R *rwork) px__int *iwork, px__int *info, size_t)) \
  XX(gels, gels, gels, \
     (const char *trans, const px__int *m, const px__int *n, const px__int *columns, T *a, \
      const px__int *lda, T *b, const px__int *ldb, T *work, const px__int *lwork, px__int *info, \
      size_t)) \
  XX(gelsy, gelsy, gelsy, \
     (const px__int *m, const px__int *n, const px__int *columns, T *a, const px__int *lda, T *b, \
      const px__int *ldb, px__int *iwork, const R *limit, px__int *rank, T *work, \
      const px__int *lwork, COMPLEX(R *rwork) px__int *info)) \
  XX(gelsd, gelsd, gelsd, \
     (const px__int *m, const px__int *n, const px__int *columns, T *a, const px__int *lda, T *b, \
      const px__int *ldb, R *s, const R *limit, px__int *rank, T *work, const px__int *lwork, \
      COMPLEX(R *rwork) px__int *iwork, px__int *info)) \
  XX(gelss, gelss, gelss, \
     (const px__int *m, const px__int *n, const px__int *columns, T *a, const px__int *lda, T *b, \
      const px__int *ldb, R *s, const R *limit, px__int *rank, T *work, const px__int *lwork, \
      COMPLEX(R *rwork) px__int *info))

// A parameter followed by a comma, and an omitted parameter.
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
