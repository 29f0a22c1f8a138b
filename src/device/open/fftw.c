// SPDX-License-Identifier: Apache-2.0
// Loads FFTW at the first CPU launch of a Fourier transform, and caches its plans. Nothing is
// linked.
#include "cpu/fft/fftw.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/core/device_impl.h"

enum { ESTIMATE = 1 << 6, PRESERVE_INPUT = 1 << 4, UNALIGNED = 1 << 1 };  // fftw3.h
enum { CACHED = 64 };                                                     // cached plans

typedef struct api {
#define XX(name, result, parameters) result(*name) parameters;
  PX_FFTW_MAP(XX)
#undef XX
} api;
static api apis[2];  // float32, float64
static bool ready;   // atomic; written under lock, after the tables

struct px__fft_plan {
  px__fft_shape shape;
  void *handle;
  uint64_t used;  // value of `uses` at the last use
  int users;
  bool kept;
};
// Guards the library's planner and the cached plans.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px__fft_plan *plans[CACHED];  // NULL: free
static uint64_t uses;

// ---- the library

static const struct {
  const char *name;  // without the prefix
  size_t at;
} symbols[] = {
#define XX(name, result, parameters) {#name, offsetof(api, name)},
    PX_FFTW_MAP(XX)
#undef XX
};

static const char *missing(api *to, void *library, const char *prefix) {
  static char name[40];  // under lock
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    snprintf(name, sizeof name, "%s%s", prefix, symbols[i].name);
    void *found = dlsym(library, name);
    if (!found) return name;
    memcpy((char *)to + symbols[i].at, &found, sizeof found);
  }
  return NULL;
}

// Opens the library of float32: the same one, or its sibling named with an f after "fftw3".
static void *open_narrow(const char *name, void *wide) {
  char path[4096];
  const char *at = strstr(name, "fftw3");
  if (dlsym(wide, "fftwf_execute_dft") || !at) return wide;
  for (const char *next; (next = strstr(at + 1, "fftw3"));) at = next;
  int head = (int)(at - name) + 5;
  int length = snprintf(path, sizeof path, "%.*sf%s", head, name, name + head);
  return length < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static px_status load(void) {
  const char *named;
  PX_TRY(px__env_PHLOX_FFTW(&named));
  bool by_default = !named || !*named;
  const char *name = by_default ? "libfftw3.so.3" : named;
  void *wide = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  void *narrow = wide ? open_narrow(name, wide) : NULL;
  if (!narrow) {
    const char *why = dlerror();
    if (wide) dlclose(wide);
    PX_CHECK(!by_default, PX_RUNTIME,
             "Fourier transforms on the CPU need FFTW, and libfftw3.so.3 and libfftw3f.so.3 were "
             "not found. Install them (Debian: libfftw3-double3 and libfftw3-single3), or set "
             "PHLOX_FFTW to a library with its functions.");
    PX_FAIL(PX_RUNTIME,
            "Fourier transforms on the CPU need FFTW, and PHLOX_FFTW names '%.200s', which cannot "
            "be opened: %.400s",
            name, why ? why : "");
  }
  const char *missing_name = missing(&apis[0], narrow, "fftwf_");
  if (!missing_name) missing_name = missing(&apis[1], wide, "fftw_");
  if (!missing_name) return PX_OK;
  if (narrow != wide) dlclose(narrow);
  dlclose(wide);
  PX_FAIL(PX_RUNTIME,
          "Fourier transforms on the CPU need FFTW, and the library %.200s lacks its function %s",
          name, missing_name);
}

px_status px__fftw_ready(void) {
  if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) return PX_OK;
  pthread_mutex_lock(&lock);
  px_status status = ready ? PX_OK : load();
  if (status == PX_OK) __atomic_store_n(&ready, true, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  return status;
}

int px__fftw_alignment(bool wide, void *at) { return apis[wide].alignment_of(at); }

// ---- plans

static void *make(const px__fft_shape *s, void *in, void *out) {
  const api *a = &apis[s->wide];
  unsigned flags = ESTIMATE | PRESERVE_INPUT | (s->unaligned ? UNALIGNED : 0);
  int batch = (int)s->batch_count;
  if (s->way == PX__FFT_R2C)
    return a->plan_guru64_dft_r2c(1, &s->line, batch, s->batch, in, out, flags);
  if (s->way == PX__FFT_C2R)
    return a->plan_guru64_dft_c2r(1, &s->line, batch, s->batch, in, out, flags);
  if (s->in_place) flags &= ~(unsigned)PRESERVE_INPUT;
  return a->plan_guru64_dft(1, &s->line, batch, s->batch, in, out, (int)s->sign, flags);
}

static void destroy(px__fft_plan *plan) {
  if (plan->handle) apis[plan->shape.wide].destroy_plan(plan->handle);
  free(plan);
}

// Returns the slot of a plan for the shape; else a free one, or that of the least recently used
// plan. NULL if all are in use.
static px__fft_plan **slot_for(const px__fft_shape *shape) {
  px__fft_plan **best = NULL;
  for (int i = 0; i < CACHED; i++) {
    px__fft_plan *p = plans[i];
    if (p && !memcmp(&p->shape, shape, sizeof *shape)) return &plans[i];
    bool better = !best || (*best && (!p || p->used < (*best)->used));
    if (better && !(p && p->users)) best = &plans[i];
  }
  return best;
}

static px__fft_plan *find_or_make(const px__fft_shape *shape, void *in, void *out) {
  px__fft_plan **slot = slot_for(shape);
  px__fft_plan *plan = slot ? *slot : NULL;
  if (plan && !memcmp(&plan->shape, shape, sizeof *shape)) return plan;
  px__fft_plan *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->shape = *shape;
  made->handle = make(shape, in, out);
  if (!made->handle) return destroy(made), NULL;
  if (plan) destroy(plan);
  if (slot) *slot = made;
  made->kept = slot != NULL;
  return made;
}

px__fft_plan *px__fftw_acquire(const px__fft_shape *shape, void *in, void *out) {
  pthread_mutex_lock(&lock);
  px__fft_plan *plan = find_or_make(shape, in, out);
  if (plan) plan->users++, plan->used = ++uses;
  pthread_mutex_unlock(&lock);
  return plan;
}
void px__fftw_release(px__fft_plan *plan) {
  if (!plan) return;
  pthread_mutex_lock(&lock);
  if (--plan->users == 0 && !plan->kept) destroy(plan);
  pthread_mutex_unlock(&lock);
}

void px__fftw_run(const px__fft_plan *plan, void *in, void *out) {
  const api *a = &apis[plan->shape.wide];
  void (*execute)(void *, void *, void *) = plan->shape.way == PX__FFT_R2C   ? a->execute_dft_r2c
                                            : plan->shape.way == PX__FFT_C2R ? a->execute_dft_c2r
                                                                             : a->execute_dft;
  execute(plan->handle, in, out);
}
