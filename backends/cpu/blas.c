// SPDX-License-Identifier: Apache-2.0
// The system's BLAS for large products: OpenBLAS, loaded when first needed. Without it the blocked
// product does all.
//
// A call runs on one thread, because gemm.c has split the product already: two pools of threads
// would fight for the same cores. So the library's own threads are switched off when it is loaded
// by this file; a copy that the program had loaded before keeps its setting, and is not used.
#include "cpu/gemm.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
typedef void (*sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *,
                         int, float, float *, int);
typedef void (*dgemm_fn)(int, int, int, int, int, int, double, const double *, int, const double *,
                         int, double, double *, int);
static sgemm_fn sgemm;
static dgemm_fn dgemm;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  static const char name[] = "libopenblas.so.0";
  const char *choice = getenv("PHLOX_BLAS");
  if (choice && choice[0] == '0') return;
  if (dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return;
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  void (*set_threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
  if (!set_threads) return;
  set_threads(1);
  sgemm = (sgemm_fn)dlsym(library, "cblas_sgemm");
  dgemm = (dgemm_fn)dlsym(library, "cblas_dgemm");
}

// A matrix as BLAS wants it: one stride 1, the other at least the length of a line.
static bool layout(int64_t rows, int64_t cols, int64_t r, int64_t c, int *flag, int *lead) {
  if (rows > INT_MAX || cols > INT_MAX) return false;
  bool plain = c == 1 && r >= cols && r <= INT_MAX, turned = r == 1 && c >= rows && c <= INT_MAX;
  *flag = plain ? NO_TRANSPOSE : TRANSPOSE;
  *lead = (int)(plain ? r : c);
  return plain || turned;
}

typedef struct plan {
  int ta, tb, la, lb;
} plan;
static bool plan_of(const px__gemm *g, plan *p) {
  pthread_once(&once, load);
  return sgemm && dgemm && g->cc == 1 && g->cr >= g->n && g->cr <= INT_MAX &&
         layout(g->m, g->k, g->ar, g->ac, &p->ta, &p->la) &&
         layout(g->k, g->n, g->br, g->bc, &p->tb, &p->lb);
}

#define PREFILL(type) \
  if (g->s && g->beta != 0 && (g->s != g->c || g->sr != g->cr || g->sc != g->cc)) { \
    for (int64_t i = 0; i < g->m; i++) \
      for (int64_t j = 0; j < g->n; j++) \
        ((type *)g->c)[i * g->cr + j] = ((const type *)g->s)[i * g->sr + j * g->sc] * beta; \
    beta = 1; \
  }
bool px__blas_f32(const px__gemm *g) {
  plan p;
  if (!plan_of(g, &p)) return false;
  float beta = g->s ? (float)g->beta : 0;
  PREFILL(float)
  sgemm(ROW_MAJOR, p.ta, p.tb, (int)g->m, (int)g->n, (int)g->k, (float)g->alpha, g->a, p.la, g->b,
        p.lb, beta, g->c, (int)g->cr);
  return true;
}
bool px__blas_f64(const px__gemm *g) {
  plan p;
  if (!plan_of(g, &p)) return false;
  double beta = g->s ? g->beta : 0;
  PREFILL(double)
  dgemm(ROW_MAJOR, p.ta, p.tb, (int)g->m, (int)g->n, (int)g->k, g->alpha, g->a, p.la, g->b, p.lb,
        beta, g->c, (int)g->cr);
  return true;
}
