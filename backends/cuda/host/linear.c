// SPDX-License-Identifier: Apache-2.0
// A product of two matrices and a bias in one pass, by cuBLASLt.
//
// Choosing an algorithm takes longer than a small product, so choices are kept, by everything that
// they depend on, in a table of each device. Its lock is held while the library is called: an entry
// carries the address of the bias.
#include "cuda/host/gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- the library

typedef struct lt_api {
#define XX(name, parameters) int(*name) parameters;
#include "cuda/cublaslt.sym"
#undef XX
} lt_api;
static lt_api lt;
static const struct {
  const char *name;
  size_t at;
} symbols[] = {
#define XX(name, parameters) {#name, offsetof(lt_api, name)},
#include "cuda/cublaslt.sym"
#undef XX
};
// Of cuBLASLt's header.
enum { TRANSPOSE_A = 3, TRANSPOSE_B = 4, EPILOGUE = 7, BIAS_AT = 8, WITH_BIAS = 4 };
enum { GREATEST_WORKSPACE = 1, REDUCTIONS = 3, ALIGNMENT_A = 5, ALIGNMENTS = 4 };
// Masks of REDUCTIONS: any, or sums in the precision of the arithmetic alone.
enum { ANY_REDUCTION = 7, WIDE_REDUCTION = 2 };
typedef struct choice {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} choice;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  void *library = px__cuda_library(names, 2);
  if (!library) return;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *found = dlsym(library, symbols[i].name);
    if (!found) return;
    memcpy((char *)&lt + symbols[i].at, &found, sizeof found);
  }
  loaded = true;
}

// ---- choices

// The matrices as cuBLASLt sees them: d (m by n) is first (m by k) times second (k by n).
typedef struct key {
  int64_t m, n, k, first_ld, second_ld, d_ld;
  int32_t first_turned, second_turned, dtype, compute;
  uint32_t reductions;
  uint32_t alignments[ALIGNMENTS];  // of first, second, d, d, in bytes
  uint64_t workspace;
} key;
typedef struct entry {
  key key;
  bool known, works;
  void *description, *first, *second, *d;
  choice choice;
} entry;
enum { ENTRIES = 512 };
static struct {
  pthread_mutex_t lock;
  void *handle;
  entry *entries;
} devices[PX__CUDA_DEVICES];

static uint32_t alignment_of(const void *at) {
  uintptr_t lowest = (uintptr_t)at & -(uintptr_t)at;
  return lowest && lowest < 256 ? (uint32_t)lowest : 256;
}

static void forget(entry *e) {
  if (e->description) lt.cublasLtMatmulDescDestroy(e->description);
  if (e->first) lt.cublasLtMatrixLayoutDestroy(e->first);
  if (e->second) lt.cublasLtMatrixLayoutDestroy(e->second);
  if (e->d) lt.cublasLtMatrixLayoutDestroy(e->d);
  *e = (entry){0};
}

static bool describe(entry *e) {
  const key *k = &e->key;
  px__cuda_arithmetic kind = {.type = px__cuda_arithmetic_of(k->dtype).type, .compute = k->compute};
  int epilogue = WITH_BIAS,
      scale = k->dtype == PX_FLOAT64;  // the types' numbers: 0 float, 1 double
  bool a = k->first_turned, b = k->second_turned;
  return !lt.cublasLtMatmulDescCreate(&e->description, kind.compute, scale) &&
         !lt.cublasLtMatmulDescSetAttribute(e->description, TRANSPOSE_A, &k->first_turned, 4) &&
         !lt.cublasLtMatmulDescSetAttribute(e->description, TRANSPOSE_B, &k->second_turned, 4) &&
         !lt.cublasLtMatmulDescSetAttribute(e->description, EPILOGUE, &epilogue, 4) &&
         !lt.cublasLtMatrixLayoutCreate(&e->first, kind.type, (uint64_t)(a ? k->k : k->m),
                                        (uint64_t)(a ? k->m : k->k), k->first_ld) &&
         !lt.cublasLtMatrixLayoutCreate(&e->second, kind.type, (uint64_t)(b ? k->n : k->k),
                                        (uint64_t)(b ? k->k : k->n), k->second_ld) &&
         !lt.cublasLtMatrixLayoutCreate(&e->d, kind.type, (uint64_t)k->m, (uint64_t)k->n, k->d_ld);
}

static bool set_bias(entry *e, const void *bias) {
  return !lt.cublasLtMatmulDescSetAttribute(e->description, BIAS_AT, &bias, sizeof bias);
}

static bool choose(entry *e, void *handle) {
  void *preference = NULL;
  int count = 0;
  if (lt.cublasLtMatmulPreferenceCreate(&preference)) return false;
  bool good = !lt.cublasLtMatmulPreferenceSetAttribute(preference, GREATEST_WORKSPACE,
                                                       &e->key.workspace, 8);
  good = good &&
         !lt.cublasLtMatmulPreferenceSetAttribute(preference, REDUCTIONS, &e->key.reductions, 4);
  for (int i = 0; i < ALIGNMENTS; i++)
    good = good && !lt.cublasLtMatmulPreferenceSetAttribute(preference, ALIGNMENT_A + i,
                                                            &e->key.alignments[i], 4);
  good = good &&
         !lt.cublasLtMatmulAlgoGetHeuristic(handle, e->description, e->first, e->second, e->d, e->d,
                                            preference, 1, &e->choice, &count) &&
         count == 1 && e->choice.state == 0;
  lt.cublasLtMatmulPreferenceDestroy(preference);
  return good;
}

static entry *entry_of(int device, const key *wanted, const void *bias) {
  const unsigned char *bytes = (const unsigned char *)wanted;
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < sizeof *wanted; i++) hash = (hash ^ bytes[i]) * 16777619u;
  entry *e = &devices[device].entries[hash % ENTRIES];
  if (e->known && !memcmp(&e->key, wanted, sizeof *wanted)) return e;
  forget(e);
  e->key = *wanted;
  e->known = true;
  e->works = describe(e) && set_bias(e, bias) && choose(e, devices[device].handle);
  return e;
}

// ---- the product

static bool ready(int device) {
  if (!devices[device].handle && lt.cublasLtCreate(&devices[device].handle)) return false;
  if (!devices[device].entries)
    devices[device].entries = calloc(ENTRIES, sizeof *devices[device].entries);
  return devices[device].entries != NULL;
}

// Of a row-major c, cuBLASLt computes the transposed one, to whose columns the bias is added.
static key key_of(const px__cuda_product *p, const px__cuda_layout *c, const px__cuda_layout *a,
                  const px__cuda_layout *b, size_t workspace) {
  key k;
  memset(&k, 0, sizeof k);
  k.m = p->c.sizes[2], k.n = p->c.sizes[1], k.k = p->a.sizes[2];
  k.first_ld = b->ld, k.second_ld = a->ld, k.d_ld = c->ld;
  k.first_turned = !b->rows, k.second_turned = !a->rows;
  k.dtype = p->dtype, k.compute = px__cuda_arithmetic_of(p->dtype).compute;
  k.reductions = px__cuda_narrow_sums(p->dtype) ? ANY_REDUCTION : WIDE_REDUCTION;
  k.alignments[0] = alignment_of(b->at);
  k.alignments[1] = alignment_of(a->at);
  k.alignments[2] = k.alignments[3] = alignment_of(c->at);
  k.workspace = workspace;
  return k;
}

static bool call(const px_launch *l, const px__cuda_product *p, const entry *e, const void *first,
                 const void *second, void *d, void *room, size_t bytes) {
  float one[2] = {(float)p->alpha, 0};
  double wide[2] = {p->alpha, 0};
  bool is_wide = p->dtype == PX_FLOAT64;
  return !lt.cublasLtMatmul(devices[l->device].handle, e->description,
                            is_wide ? (void *)&wide[0] : (void *)&one[0], first, e->first, second,
                            e->second, is_wide ? (void *)&wide[1] : (void *)&one[1], d, e->d, d,
                            e->d, e->choice.algorithm, room, bytes, l->stream);
}

px_status px__cuda_linear(const px_launch *l, const px__cuda_product *p, const px__cuda_layout *c,
                          const px__cuda_layout *a, const px__cuda_layout *b, bool *done) {
  *done = false;
  // The library reads a bias in words of 16 bytes.
  if ((uintptr_t)p->s.at % 16) return PX_OK;
  pthread_once(&once, load);
  if (!loaded) return PX_OK;
  size_t bytes;
  void *room = px__cuda_workspace(l, p, &bytes);
  key wanted = key_of(p, c, a, b, bytes);
  pthread_mutex_lock(&devices[l->device].lock);
  entry *e = ready(l->device) ? entry_of(l->device, &wanted, p->s.at) : NULL;
  *done = e && e->works && set_bias(e, p->s.at) && call(l, p, e, b->at, a->at, c->at, room, bytes);
  pthread_mutex_unlock(&devices[l->device].lock);
  return PX_OK;
}
