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
px__lapack_float_complex px__lapack_c64;
px__lapack_double_complex px__lapack_c128;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;  // atomic; written under lock, after the tables

typedef struct symbol {
  const char *real, *complex;  // without the letter of the element type
  size_t at;                   // in all tables
} symbol;
static const symbol symbols[] = {
#define XX(member, real, complex, parameters) \
  {#real "_", #complex "_", offsetof(px__lapack_float, member)},
    PX_LAPACK_MAP(XX, float, float, PX_LAPACK_WITH, PX_LAPACK_WITHOUT)
#undef XX
};

typedef struct table {
  void *functions;
  char letter;  // that begins the names of the element type's functions
  bool complex;
} table;
static const table tables[] = {{&px__lapack_f32, 's', false},
                               {&px__lapack_f64, 'd', false},
                               {&px__lapack_c64, 'c', true},
                               {&px__lapack_c128, 'z', true}};
_Static_assert(sizeof px__lapack_f32 == sizeof px__lapack_c128, "the tables have the same places");

// Fills the tables; gives the name of a function that the library lacks, or NULL.
static const char *missing(void *library) {
  static char name[32];  // under lock
  for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
      const symbol *s = &symbols[i];
      snprintf(name, sizeof name, "%c%s", tables[k].letter,
               tables[k].complex ? s->complex : s->real);
      void *found = dlsym(library, name);
      if (!found) return name;
      memcpy((char *)tables[k].functions + s->at, &found, sizeof found);
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
  lacks = missing(library);
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
