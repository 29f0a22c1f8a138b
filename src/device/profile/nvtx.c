// SPDX-License-Identifier: Apache-2.0
// NVIDIA's tools, which may watch a program: marks and ranges by NVTX, and the driver's profiler.
// Both are found when they are first asked for; without them the calls do nothing. Nothing is
// linked.
//
// NVTX 3 has no library: the program keeps tables of functions, by module and number, and loads the
// tool's library, which puts its own functions there, at once or later. The numbers, and how the
// two find each other, are those of NVIDIA's public headers. Before, there was a library to call.
#include <dlfcn.h>
#include <pthread.h>

#include "device/core/state.h"
#include "phlox/profile.h"

typedef void (*function)(void);  // of another type, which its place tells
// Numbers of the module that is used here; 0 is none.
enum { MARK = 2, START = 5, END = 7, PUSH = 9, POP = 11 };
enum { CORE = 1, MODULES = 7, MOST = 17, CALLBACKS = 1, VERSIONS = 3 };

// By module: how many numbers there are; their functions, which a tool writes; where these are, as
// a tool is told. What only others call is there, too, so that the tool finds what it expects.
static const unsigned sizes[MODULES] = {[CORE] = 16, 9, 15, 7, 16, 7};
static function functions[MODULES][MOST];  // atomic
static function *places[MODULES][MOST];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void *library, const char *name, void *to) {
  void *found = dlsym(library, name);
  memcpy(to, &found, sizeof found);
}

// ---- what a tool asks for
static int give_module(int module, function ***table, unsigned *size) {
  if (module < CORE || module >= MODULES) return 0;
  if (size) *size = sizes[module];
  if (table) *table = places[module];
  return 1;
}
static void take_version(uint32_t version) { (void)version; }

static const struct {
  size_t bytes;
  int (*give_module)(int module, function ***table, unsigned *size);
} callbacks = {sizeof callbacks, give_module};
static const struct {
  size_t bytes;
  uint32_t version, reserved;
  void (*take_version)(uint32_t version);
} versions = {sizeof versions, 3, 0, take_version};

static const void *give_table(uint32_t number) {
  return number == CALLBACKS ? (const void *)&callbacks : number == VERSIONS ? &versions : NULL;
}

// ---- finding one
static void make_places(void) {
  for (int module = CORE; module < MODULES; module++)
    for (unsigned i = 1; i < sizes[module]; i++) places[module][i] = &functions[module][i];
}

// False if there is none, or it does not want to hear.
static bool inject(const char *path) {
  int (*begin)(const void *(*give)(uint32_t number)) = NULL;
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!library) return false;
  find(library, "InitializeInjectionNvtx2", &begin);
  make_places();
  if (begin && begin(give_table)) return true;
  memset(functions, 0, sizeof functions);
  dlclose(library);
  return false;
}

// All of it or nothing.
static void look_for_library(void) {
  static const struct {
    int number;
    const char *name;
  } names[] = {{PUSH, "nvtxRangePushA"},
               {POP, "nvtxRangePop"},
               {MARK, "nvtxMarkA"},
               {START, "nvtxRangeStartA"},
               {END, "nvtxRangeEnd"}};
  void *library = dlopen("libnvToolsExt.so.1", RTLD_NOW | RTLD_LOCAL);
  bool whole = library != NULL;
  for (int i = 0; library && i < PX_COUNT_OF(names); i++) {
    find(library, names[i].name, &functions[CORE][names[i].number]);
    whole &= functions[CORE][names[i].number] != NULL;
  }
  if (!whole) memset(functions, 0, sizeof functions);
}

static void look(void) {
  px_env_text path = NULL;
  if (px_env_read("NVTX_INJECTION64_PATH", &path) != PX_OK) px_error_clear();
  if (!path || !*path || !inject(path)) look_for_library();
}

// NULL: nobody hears it.
static function heard(int number) {
  pthread_once(&once, look);
  return __atomic_load_n(&functions[CORE][number], __ATOMIC_ACQUIRE);
}

// ---- marks and ranges
int px_nvtx_push(const char *message) {
  function push = message ? heard(PUSH) : NULL;
  return push ? ((int (*)(const char *))push)(message) : PX_NVTX_NO_TOOL;
}
int px_nvtx_pop(void) {
  function pop = heard(POP);
  return pop ? ((int (*)(void))pop)() : PX_NVTX_NO_TOOL;
}
void px_nvtx_mark(const char *message) {
  function mark = message ? heard(MARK) : NULL;
  if (mark) ((void (*)(const char *))mark)(message);
}
uint64_t px_nvtx_start(const char *message) {
  function start = message ? heard(START) : NULL;
  return start ? ((uint64_t(*)(const char *))start)(message) : 0;
}
void px_nvtx_end(uint64_t range) {
  function end = heard(END);
  if (end) ((void (*)(uint64_t))end)(range);
}

void px_nvtx_emit(bool ops, bool shapes) {
  px__watch(PX__WATCH_NVTX, ops);
  px__watch(PX__WATCH_NVTX_SHAPES, ops && shapes);
}

// The driver is there already if a device of it is used. It is told of the thread's context: that
// of the current device, since what is asked of a device makes it so. Its code for an error is
// PyTorch's.
static px_status tell_driver(const char *name) {
  int (*call)(void) = NULL;
  size_t free_bytes, total;
  PX_TRY(px_device_init());
  if (strcmp(px_device_backend(), "cuda")) return PX_OK;
  PX_TRY(px_device_memory(&free_bytes, &total, -1));
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (driver) find(driver, name, &call);
  int code = call ? call() : 0;
  if (driver) dlclose(driver);
  return code ? px__error_cuda(code) : PX_OK;
}

px_status px_tool_start(void) { return tell_driver("cuProfilerStart"); }
px_status px_tool_stop(void) { return tell_driver("cuProfilerStop"); }
