// SPDX-License-Identifier: Apache-2.0
// Finds LAPACK when a kernel of linear algebra on the CPU is first to be launched: the library that
// the environment names, or one of those that systems have. Nothing is linked.
#include "cpu/lapack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/device_impl.h"

px__lapack_float px__lapack_f32;
px__lapack_double px__lapack_f64;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;  // atomic; written under lock, after the tables

typedef struct symbol {
  const char *name;  // without the letter of the element type
  size_t at;         // in both tables
} symbol;
static const symbol symbols[] = {
#define XX(name, parameters) {#name "_", offsetof(px__lapack_float, name)},
    PX_LAPACK_MAP(XX, float)
#undef XX
};
_Static_assert(sizeof px__lapack_f32 == sizeof px__lapack_f64, "the tables have the same places");

// The functions of one element type, whose letter begins their names.
static const char *missing(void *table, void *library, char letter) {
  static char name[32];  // under lock
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    snprintf(name, sizeof name, "%c%s", letter, symbols[i].name);
    void *found = dlsym(library, name);
    if (!found) return name;
    memcpy((char *)table + symbols[i].at, &found, sizeof found);
  }
  return NULL;
}

static void *open_first(const char *named) {
  static const char *const names[] = {"liblapack.so.3", "libopenblas.so.0", "libflexiblas.so.3",
                                      "libmkl_rt.so.2"};
  if (*named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  void *library = NULL;
  for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  return library;
}

static px_status load(void) {
  const char *named, *lacks;
  PX_TRY(px__env_PHLOX_LAPACK(&named));
  if (!named) named = "";
  void *library = open_first(named);
  PX_CHECK(library || !*named, PX_RUNTIME,
           "Linear algebra on the CPU needs LAPACK, and PHLOX_LAPACK names '%.200s', which cannot "
           "be opened: %.400s",
           named, dlerror());
  PX_CHECK(library, PX_RUNTIME,
           "Linear algebra on the CPU needs LAPACK, and no liblapack.so.3 was found. Install it "
           "(Debian: liblapack3, or libopenblas0, which is faster), or let PHLOX_LAPACK name a "
           "library that has its functions.");
  lacks = missing(&px__lapack_f32, library, 's');
  if (!lacks) lacks = missing(&px__lapack_f64, library, 'd');
  if (!lacks) return PX_OK;
  dlclose(library);
  PX_FAIL(PX_RUNTIME,
          "Linear algebra on the CPU needs LAPACK, and the library %.200s lacks its function %s",
          *named ? named : "that was found", lacks);
}

px_status px__lapack_ready(void) {
  if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) return PX_OK;
  pthread_mutex_lock(&lock);
  px_status status = ready ? PX_OK : load();
  if (status == PX_OK) __atomic_store_n(&ready, true, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  return status;
}
