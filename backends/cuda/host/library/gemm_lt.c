// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt, with a fused bias.
//
// Choosing an algorithm takes longer than a small product. Each device therefore caches plans keyed
// by everything that the choice depends on. With a cached plan, a product costs little more than a
// launch. The lock is held during the library's call because a plan stores the bias's address.
#include "cuda/host/library/gemm.h"

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
static const px__cuda_symbol symbols[] = {
#define XX(name, parameters) {#name, offsetof(lt_api, name)},
#include "cuda/cublaslt.sym"
#undef XX
};
// Constants of cuBLASLt's header.
enum { TRANSPOSE_A = 3, TRANSPOSE_B = 4, EPILOGUE = 7, BIAS_AT = 8, WITH_BIAS = 4 };
enum { BATCH_COUNT = 5, BATCH_STRIDE = 6 };
enum { MAX_WORKSPACE = 1, REDUCTIONS = 3, ALIGNMENT_A = 5, ALIGNMENTS = 4 };
// Masks of REDUCTIONS: any scheme, or sums in compute precision only.
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
  loaded = px__cuda_symbols(&lt, library, symbols, sizeof symbols / sizeof *symbols);
}

// ---- plans

enum { FIRST, SECOND, D, MATRICES };
// The matrices as seen by cuBLASLt: d (m by n) is first (m by k) times second (k by n).
typedef struct key {
  int64_t m, n, k, batches;
  int64_t ld[MATRICES], batch_stride[MATRICES];
  uint64_t workspace;               // limit in bytes
  uint32_t alignments[ALIGNMENTS];  // of first, second, d, d, in bytes
  int32_t transposed[2];            // whether first, second are transposed
  int32_t dtype, with_bias, compute;
  uint32_t reductions;
} key;
_Static_assert(sizeof(key) % sizeof(uint64_t) == 0, "keys are hashed by words");
typedef struct plan {
  key key;
  bool known, works;
  void *description, *layouts[MATRICES];
  const void *bias;  // stored in the description
  choice choice;
} plan;
enum { PLANS = 1024 };
static struct {
  pthread_mutex_t lock;
  void *handle;
  plan *plans;
} devices[PX__CUDA_DEVICES];

static uint32_t alignment_of(const void *at) {
  uintptr_t lowest = (uintptr_t)at & -(uintptr_t)at;
  return lowest && lowest < 256 ? (uint32_t)lowest : 256;
}

static void evict(plan *p) {
  if (p->description) lt.cublasLtMatmulDescDestroy(p->description);
  for (int i = 0; i < MATRICES; i++)
    if (p->layouts[i]) lt.cublasLtMatrixLayoutDestroy(p->layouts[i]);
  *p = (plan){0};
}

static bool create_layout(plan *p, int i, int64_t rows, int64_t cols) {
  const key *k = &p->key;
  int32_t batches = (int32_t)k->batches;
  bool transposed = i != D && k->transposed[i];
  return !lt.cublasLtMatrixLayoutCreate(&p->layouts[i], px__cuda_arithmetic_of(k->dtype).type,
                                        (uint64_t)(transposed ? cols : rows),
                                        (uint64_t)(transposed ? rows : cols), k->ld[i]) &&
         !lt.cublasLtMatrixLayoutSetAttribute(p->layouts[i], BATCH_COUNT, &batches, 4) &&
         !lt.cublasLtMatrixLayoutSetAttribute(p->layouts[i], BATCH_STRIDE, &k->batch_stride[i], 8);
}

static bool describe(plan *p) {
  const key *k = &p->key;
  int epilogue = WITH_BIAS;
  int scale = k->dtype == PX_FLOAT64;  // data type: 0 float, 1 double
  void **d = &p->description;
  return !lt.cublasLtMatmulDescCreate(d, k->compute, scale) &&
         !lt.cublasLtMatmulDescSetAttribute(*d, TRANSPOSE_A, &k->transposed[FIRST], 4) &&
         !lt.cublasLtMatmulDescSetAttribute(*d, TRANSPOSE_B, &k->transposed[SECOND], 4) &&
         (!k->with_bias || !lt.cublasLtMatmulDescSetAttribute(*d, EPILOGUE, &epilogue, 4)) &&
         create_layout(p, FIRST, k->m, k->k) && create_layout(p, SECOND, k->k, k->n) &&
         create_layout(p, D, k->m, k->n);
}

static bool set_bias(plan *p, const void *bias) {
  if (p->bias == bias) return true;
  p->bias = bias;
  return !lt.cublasLtMatmulDescSetAttribute(p->description, BIAS_AT, &bias, sizeof bias);
}

static bool choose(plan *p, void *handle) {
  void *preference = NULL, **at = p->layouts;
  int count = 0;
  if (lt.cublasLtMatmulPreferenceCreate(&preference)) return false;
  bool good =
      !lt.cublasLtMatmulPreferenceSetAttribute(preference, MAX_WORKSPACE, &p->key.workspace, 8) &&
      !lt.cublasLtMatmulPreferenceSetAttribute(preference, REDUCTIONS, &p->key.reductions, 4);
  for (int i = 0; i < ALIGNMENTS; i++)
    good = good && !lt.cublasLtMatmulPreferenceSetAttribute(preference, ALIGNMENT_A + i,
                                                            &p->key.alignments[i], 4);
  good = good &&
         !lt.cublasLtMatmulAlgoGetHeuristic(handle, p->description, at[FIRST], at[SECOND], at[D],
                                            at[D], preference, 1, &p->choice, &count) &&
         count == 1 && p->choice.state == 0;
  lt.cublasLtMatmulPreferenceDestroy(preference);
  return good;
}

// Returns the key's plan, replacing the slot's previous one if it differs. Lock held.
static plan *plan_of(int device, const key *wanted, const void *bias) {
  const uint64_t *words = (const uint64_t *)(const void *)wanted;
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof *wanted / sizeof *words; i++)
    hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
  plan *p = &devices[device].plans[hash % PLANS];
  if (p->known && !memcmp(&p->key, wanted, sizeof *wanted)) return p;
  evict(p);
  p->key = *wanted;
  p->known = true;
  p->works = describe(p) && set_bias(p, bias) && choose(p, devices[device].handle);
  return p;
}

// ---- the product

static bool ready(int device) {
  if (!devices[device].handle && lt.cublasLtCreate(&devices[device].handle)) return false;
  if (!devices[device].plans) devices[device].plans = calloc(PLANS, sizeof(plan));
  return devices[device].plans != NULL;
}

// For a row-major c, describes its transpose: the factors transposed, in reverse order.
static key key_of(const px_launch *l, const px__cuda_product *p, const px__cuda_layout *const at[],
                  bool with_bias) {
  key k;
  memset(&k, 0, sizeof k);
  bool rows = at[D]->rows;
  k.m = p->c.sizes[rows ? 2 : 1], k.n = p->c.sizes[rows ? 1 : 2], k.k = p->a.sizes[2];
  k.batches = p->c.sizes[0];
  for (int i = 0; i < MATRICES; i++) {
    k.ld[i] = at[i]->ld, k.batch_stride[i] = at[i]->batch;
    k.alignments[i] = alignment_of(at[i]->at);
    if (i != D) k.transposed[i] = at[i]->rows != rows;
  }
  k.alignments[MATRICES] = k.alignments[D];
  k.workspace = px__cuda_workspace_size(l, p);
  k.dtype = p->dtype, k.with_bias = with_bias;
  k.compute = px__cuda_arithmetic_of(p->dtype).compute;
  k.reductions = px__cuda_reduced_precision(p->dtype) ? ANY_REDUCTION : WIDE_REDUCTION;
  return k;
}

static bool call(const px_launch *l, const px__cuda_product *p, const plan *chosen,
                 const px__cuda_layout *const at[]) {
  size_t bytes = chosen->choice.workspace;
  void *workspace = bytes ? px__cuda_core->scratch(l, bytes) : NULL;
  if (bytes && !workspace) return false;
  double beta = chosen->key.with_bias ? 0 : p->beta;
  float one[2] = {(float)p->alpha, (float)beta};
  double wide[2] = {p->alpha, beta};
  bool is_wide = p->dtype == PX_FLOAT64;
  void *const *layouts = chosen->layouts;
  return !lt.cublasLtMatmul(
      devices[l->device].handle, chosen->description, is_wide ? (void *)&wide[0] : (void *)&one[0],
      at[FIRST]->at, layouts[FIRST], at[SECOND]->at, layouts[SECOND],
      is_wide ? (void *)&wide[1] : (void *)&one[1], at[D]->at, layouts[D], at[D]->at, layouts[D],
      chosen->choice.algorithm, workspace, bytes, l->stream);
}

bool px__cuda_multiply_lt(const px_launch *l, const px__cuda_product *p, const px__cuda_layout *c,
                          const px__cuda_layout *a, const px__cuda_layout *b, bool with_bias) {
  const px__cuda_layout *at[MATRICES] = {c->rows ? b : a, c->rows ? a : b, c};
  if (p->dtype >= PX_DTYPE_COMPUTED) return false;  // complex numbers
  // cuBLASLt requires a 16-byte aligned bias.
  if (with_bias && (uintptr_t)p->s.at % 16) return false;
  pthread_once(&once, load);
  if (!loaded) return false;
  key wanted = key_of(l, p, at, with_bias);
  pthread_mutex_lock(&devices[l->device].lock);
  const void *bias = with_bias ? p->s.at : NULL;
  plan *chosen = ready(l->device) ? plan_of(l->device, &wanted, bias) : NULL;
  bool done = chosen && chosen->works && set_bias(chosen, bias) && call(l, p, chosen, at);
  pthread_mutex_unlock(&devices[l->device].lock);
  return done;
}
