// SPDX-License-Identifier: Apache-2.0
// Loads LAPACK at the first CPU launch of linear algebra: from PHLOX_LAPACK, from a pip package
// installed next to this library, or from the system. Nothing is linked.
#include "cpu/linalg/lapack.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/core/device_impl.h"
#include "phlox/device.h"

px__lapack_float px__lapack_f32;
px__lapack_double px__lapack_f64;
px__lapack_float_complex px__lapack_c64;
px__lapack_double_complex px__lapack_c128;

bool px__lapack_wide;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;              // atomic; written under lock, after the tables and functions
static void (*set_all)(int);    // sets the thread count of every caller
static int (*get_all)(void);    // with set_all
static int (*set_caller)(int);  // sets the caller's count; returns the old one, 0: unset
static int (*get_caller)(void);

typedef struct symbol {
  const char *real, *complex;  // names without the letter of the element type
  size_t at;                   // offset in each table
} symbol;
static const symbol symbols[] = {
#define XX(member, real, complex, parameters) \
  {#real "_", #complex "_", offsetof(px__lapack_float, member)},
    PX_LAPACK_MAP(XX, float, float, PX_LAPACK_WITH, PX_LAPACK_WITHOUT)
#undef XX
};

typedef struct table {
  void *functions;
  char letter;  // prefix of the element type's functions
  bool complex;
} table;
static const table tables[] = {{&px__lapack_f32, 's', false},
                               {&px__lapack_f64, 'd', false},
                               {&px__lapack_c64, 'c', true},
                               {&px__lapack_c128, 'z', true}};
_Static_assert(sizeof px__lapack_f32 == sizeof px__lapack_c128, "the tables have equal layouts");

// Decorations of LAPACK's names by libraries. The first match is used.
typedef struct naming {
  const char *prefix, *suffix;
  bool wide;
  const char *threads;  // suffix of the functions for thread counts
} naming;
static const naming namings[] = {{"", "", false, ""},
                                 {"scipy_", "", false, ""},
                                 {"scipy_", "64_", true, "64_"},
                                 {"", "64_", true, "64_"}};
enum { NAMINGS = sizeof namings / sizeof *namings };

// Fills the tables. Returns the name of a missing function, or NULL.
static const char *missing(void *library, const naming *f) {
  static char name[48];  // under lock
  for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
      const symbol *s = &symbols[i];
      snprintf(name, sizeof name, "%s%c%s%s", f->prefix, tables[k].letter,
               tables[k].complex ? s->complex : s->real, f->suffix);
      void *found = dlsym(library, name);
      if (!found) return name;
      memcpy((char *)tables[k].functions + s->at, &found, sizeof found);
    }
  return NULL;
}

static void *function_of(void *library, const naming *f, const char *named) {
  char name[64];
  snprintf(name, sizeof name, "%s%s%s", f->prefix, named, f->threads);
  return dlsym(library, name);
}
// Uses the library if it has all functions; else returns the name of a missing one.
static const char *use(void *library) {
  const naming *f = namings;
  while (f < namings + NAMINGS && missing(library, f)) f++;
  if (f == namings + NAMINGS) return missing(library, namings);
  px__lapack_wide = f->wide;
  *(void **)&set_all = function_of(library, f, "openblas_set_num_threads");
  *(void **)&get_all = function_of(library, f, "openblas_get_num_threads");
  *(void **)&set_caller = dlsym(library, "MKL_Set_Num_Threads_Local");
  *(void **)&get_caller = dlsym(library, "MKL_Get_Max_Threads");
  return NULL;
}

// Uses the first library with all functions among the paths of a pattern.
static bool use_first(const char *pattern) {
  glob_t found;
  bool taken = false;
  if (glob(pattern, 0, NULL, &found)) return false;
  for (size_t i = 0; i < found.gl_pathc && !taken; i++) {
    void *library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    taken = library && !use(library);
    if (library && !taken) dlclose(library);
  }
  globfree(&found);
  return taken;
}
// Looks where pip installs MKL, and the OpenBLAS of SciPy and NumPy, relative to this library.
// These are newer than most systems' libraries, with kernels for newer processors.
static bool use_pip(void) {
  static const char *const patterns[] = {"../../../libmkl_rt.so.[23]",
                                         "../scipy.libs/libscipy_openblas*.so*",
                                         "../numpy.libs/libscipy_openblas*.so*"};
  char path[3072];
  Dl_info self;
  const char *slash = dladdr((void *)&px__lapack_wide, &self) ? strrchr(self.dli_fname, '/') : NULL;
  for (size_t i = 0; slash && i < sizeof patterns / sizeof *patterns; i++) {
    int length = (int)(slash - self.dli_fname) + 1;
    int needed = snprintf(path, sizeof path, "%.*s%s", length, self.dli_fname, patterns[i]);
    if (needed < (int)sizeof path && use_first(path)) return true;
  }
  return false;
}
// Looks on the system, fastest library first.
static bool use_system(void) {
  static const char *const names[] = {"libmkl_rt.so.3", "libmkl_rt.so.2", "libopenblas.so.0",
                                      "libflexiblas.so.3", "liblapack.so.3"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library && !use(library)) return true;
    if (library) dlclose(library);
  }
  return false;
}

static px_status load_named(const char *named) {
  void *library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
  PX_CHECK(library, PX_RUNTIME,
           "Linear algebra on the CPU needs LAPACK, and PHLOX_LAPACK names '%.200s', which cannot "
           "be opened: %.400s",
           named, dlerror());
  const char *missing_name = use(library);
  if (!missing_name) return PX_OK;
  dlclose(library);
  PX_FAIL(PX_RUNTIME,
          "Linear algebra on the CPU needs LAPACK, and the library %.200s lacks its function %s",
          named, missing_name);
}
static px_status load(void) {
  const char *named;
  PX_TRY(px__env_PHLOX_LAPACK(&named));
  if (named && *named) return load_named(named);
  PX_CHECK(
      use_pip() || use_system(), PX_RUNTIME,
      "Linear algebra on the CPU needs LAPACK, and no liblapack.so.3 was found. Install it "
      "(Debian: liblapack3, or the faster libopenblas0), or set PHLOX_LAPACK to a library with "
      "its functions.");
  return PX_OK;
}

px_status px_cpu_lapack(const char **path) {
  PX_GIVEN(path);
  PX_TRY(px__lapack_ready());
  Dl_info library;
  PX_CHECK(dladdr(*(void **)&px__lapack_f32.getrf, &library), PX_RUNTIME,
           "the path of LAPACK is unknown");
  *path = library.dli_fname;
  return PX_OK;
}

px_status px__lapack_ready(void) {
  if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) return PX_OK;
  pthread_mutex_lock(&lock);
  px_status status = ready ? PX_OK : load();
  if (status == PX_OK) __atomic_store_n(&ready, true, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  return status;
}

// Keeps a lower count: it was set by the program, or temporarily by another thread's call.
int px__lapack_limit(int n) {
  if (get_caller && set_caller) return get_caller() > n ? set_caller(n) : -1;
  int previous = get_all && set_all ? get_all() : 0;
  if (previous <= n) return -1;
  set_all(n);
  return previous;
}
void px__lapack_restore_limit(int previous) {
  if (previous < 0) return;
  if (set_caller)
    set_caller(previous);
  else
    set_all(previous);
}
