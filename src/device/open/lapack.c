// SPDX-License-Identifier: Apache-2.0
// Finds LAPACK when a kernel of linear algebra on the CPU is first to be launched: the library that
// the environment names, one that pip has put beside this one, or one of those that systems have.
// Nothing is linked.
#include "cpu/linalg/lapack.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/core/device_impl.h"
#include "phlox/lapack.h"

px__lapack_float px__lapack_f32;
px__lapack_double px__lapack_f64;
px__lapack_float_complex px__lapack_c64;
px__lapack_double_complex px__lapack_c128;

bool px__lapack_wide;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;              // atomic; written under lock, after the tables and functions
static void (*set_all)(int);    // how many threads each caller is given
static int (*get_all)(void);    // with set_all
static int (*set_caller)(int);  // how many this one is; gives what it was, 0 where nobody has said
static int (*get_caller)(void);

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

// How libraries name their functions around LAPACK's own names. One that has several ways is taken
// by the first.
typedef struct form {
  const char *before, *behind;
  bool wide;
  const char *threads;  // behind the names of the functions that count threads
} form;
static const form forms[] = {{"", "", false, ""},
                             {"scipy_", "", false, ""},
                             {"scipy_", "64_", true, "64_"},
                             {"", "64_", true, "64_"}};
enum { FORMS = sizeof forms / sizeof *forms };

// Fills the tables; gives the name of a function that the library lacks, or NULL.
static const char *missing(void *library, const form *f) {
  static char name[48];  // under lock
  for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
      const symbol *s = &symbols[i];
      snprintf(name, sizeof name, "%s%c%s%s", f->before, tables[k].letter,
               tables[k].complex ? s->complex : s->real, f->behind);
      void *found = dlsym(library, name);
      if (!found) return name;
      memcpy((char *)tables[k].functions + s->at, &found, sizeof found);
    }
  return NULL;
}

static void *function_of(void *library, const form *f, const char *named) {
  char name[64];
  snprintf(name, sizeof name, "%s%s%s", f->before, named, f->threads);
  return dlsym(library, name);
}
// Takes the library, if it has all functions; else gives the name of one that it lacks.
static const char *take(void *library) {
  const form *f = forms;
  while (f < forms + FORMS && missing(library, f)) f++;
  if (f == forms + FORMS) return missing(library, forms);
  px__lapack_wide = f->wide;
  *(void **)&set_all = function_of(library, f, "openblas_set_num_threads");
  *(void **)&get_all = function_of(library, f, "openblas_get_num_threads");
  *(void **)&set_caller = dlsym(library, "MKL_Set_Num_Threads_Local");
  *(void **)&get_caller = dlsym(library, "MKL_Get_Max_Threads");
  return NULL;
}

// Opens the first library that a pattern of paths names and that has all functions.
static bool take_first(const char *pattern) {
  glob_t found;
  bool taken = false;
  if (glob(pattern, 0, NULL, &found)) return false;
  for (size_t i = 0; i < found.gl_pathc && !taken; i++) {
    void *library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    taken = library && !take(library);
    if (library && !taken) dlclose(library);
  }
  globfree(&found);
  return taken;
}
// Where pip puts MKL and the OpenBLAS that SciPy and NumPy bring, if it has put this library
// beside them: they are newer than most systems', and know newer processors.
static bool take_beside(void) {
  static const char *const beside[] = {"../../../libmkl_rt.so.[23]",
                                       "../scipy.libs/libscipy_openblas*.so*",
                                       "../numpy.libs/libscipy_openblas*.so*"};
  char path[4096];
  Dl_info self;
  const char *slash = dladdr((void *)&px__lapack_wide, &self) ? strrchr(self.dli_fname, '/') : NULL;
  for (size_t i = 0; slash && i < sizeof beside / sizeof *beside; i++) {
    int length = (int)(slash - self.dli_fname) + 1;
    int needed = snprintf(path, sizeof path, "%.*s%s", length, self.dli_fname, beside[i]);
    if (needed < (int)sizeof path && take_first(path)) return true;
  }
  return false;
}
// Where the system looks, the fastest first.
static bool take_systems(void) {
  static const char *const names[] = {"libmkl_rt.so.3", "libmkl_rt.so.2", "libopenblas.so.0",
                                      "libflexiblas.so.3", "liblapack.so.3"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library && !take(library)) return true;
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
  const char *lacks = take(library);
  if (!lacks) return PX_OK;
  dlclose(library);
  PX_FAIL(PX_RUNTIME,
          "Linear algebra on the CPU needs LAPACK, and the library %.200s lacks its function %s",
          named, lacks);
}
static px_status load(void) {
  const char *named;
  PX_TRY(px__env_PHLOX_LAPACK(&named));
  if (named && *named) return load_named(named);
  PX_CHECK(take_beside() || take_systems(), PX_RUNTIME,
           "Linear algebra on the CPU needs LAPACK, and no liblapack.so.3 was found. Install it "
           "(Debian: liblapack3, or libopenblas0, which is faster), or let PHLOX_LAPACK name a "
           "library that has its functions.");
  return PX_OK;
}

px_status px_cpu_lapack(const char **path) {
  PX_GIVEN(path);
  PX_TRY(px__lapack_ready());
  Dl_info library;
  PX_CHECK(dladdr(*(void **)&px__lapack_f32.getrf, &library), PX_RUNTIME,
           "where LAPACK was found is not known");
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

// A count that is less already was set by the program, or by a call of another thread that will
// set it back.
int px__lapack_limit(int n) {
  if (get_caller && set_caller) return get_caller() > n ? set_caller(n) : -1;
  int before = get_all && set_all ? get_all() : 0;
  if (before <= n) return -1;
  set_all(n);
  return before;
}
void px__lapack_unlimit(int before) {
  if (before < 0) return;
  if (set_caller)
    set_caller(before);
  else
    set_all(before);
}
