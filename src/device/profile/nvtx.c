// SPDX-License-Identifier: Apache-2.0
// Support of NVIDIA's tools: NVTX marks and ranges, and the driver's profiler. Both are loaded at
// first use. Without them the calls are no-ops. Nothing is linked.
//
// NVTX 3 has no library. The program keeps tables of functions, by module and number, and loads the
// tool's library. The tool writes its functions into the tables, at once or later. The numbers and
// the protocol are those of NVIDIA's public headers. Older versions have a library to call.
#include <dlfcn.h>
#include <pthread.h>

#include "device/core/state.h"
#include "phlox/profile.h"

typedef void (*function)(void);  // cast to the type of its slot
// Function numbers of the core module; 0 is none.
enum { MARK = 2, START = 5, END = 7, PUSH = 9, POP = 11 };
enum { CORE = 1, MODULES = 7, MAX_FUNCTIONS = 17, CALLBACKS = 1, VERSIONS = 3 };

// By module: the number of functions; the functions, written by a tool; and their addresses, passed
// to the tool. Unused modules are included, since tools expect them.
static const unsigned sizes[MODULES] = {[CORE] = 16, 9, 15, 7, 16, 7};
static function functions[MODULES][MAX_FUNCTIONS];  // atomic
static function *slots[MODULES][MAX_FUNCTIONS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void *library, const char *name, void *to) {
  void *found = dlsym(library, name);
  memcpy(to, &found, sizeof found);
}

// ---- callbacks for a tool
static int get_module(int module, function ***table, unsigned *size) {
  if (module < CORE || module >= MODULES) return 0;
  if (size) *size = sizes[module];
  if (table) *table = slots[module];
  return 1;
}
static void set_version(uint32_t version) { (void)version; }

static const struct {
  size_t bytes;
  int (*get_module)(int module, function ***table, unsigned *size);
} callbacks = {sizeof callbacks, get_module};
static const struct {
  size_t bytes;
  uint32_t version, reserved;
  void (*set_version)(uint32_t version);
} versions = {sizeof versions, 3, 0, set_version};

static const void *get_table(uint32_t number) {
  return number == CALLBACKS ? (const void *)&callbacks : number == VERSIONS ? &versions : NULL;
}

// ---- loading
static void fill_slots(void) {
  for (int module = CORE; module < MODULES; module++)
    for (unsigned i = 1; i < sizes[module]; i++) slots[module][i] = &functions[module][i];
}

// Loads a tool. False if there is none, or it declines.
static bool inject(const char *path) {
  int (*begin)(const void *(*give)(uint32_t number)) = NULL;
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!library) return false;
  find(library, "InitializeInjectionNvtx2", &begin);
  fill_slots();
  if (begin && begin(get_table)) return true;
  memset(functions, 0, sizeof functions);
  dlclose(library);
  return false;
}

// Loads the library of older versions, with all functions or none.
static void load_library(void) {
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

static void load(void) {
  px_env_text path = NULL;
  if (px_env_read("NVTX_INJECTION64_PATH", &path) != PX_OK) px_error_clear();
  if (!path || !*path || !inject(path)) load_library();
}

// Returns the tool's function; NULL without a tool.
static function tool_function(int number) {
  pthread_once(&once, load);
  return __atomic_load_n(&functions[CORE][number], __ATOMIC_ACQUIRE);
}

// ---- marks and ranges
int px_nvtx_push(const char *message) {
  function push = message ? tool_function(PUSH) : NULL;
  return push ? ((int (*)(const char *))push)(message) : PX_NVTX_NO_TOOL;
}
int px_nvtx_pop(void) {
  function pop = tool_function(POP);
  return pop ? ((int (*)(void))pop)() : PX_NVTX_NO_TOOL;
}
void px_nvtx_mark(const char *message) {
  function mark = message ? tool_function(MARK) : NULL;
  if (mark) ((void (*)(const char *))mark)(message);
}
uint64_t px_nvtx_start(const char *message) {
  function start = message ? tool_function(START) : NULL;
  return start ? ((uint64_t(*)(const char *))start)(message) : 0;
}
void px_nvtx_end(uint64_t range) {
  function end = tool_function(END);
  if (end) ((void (*)(uint64_t))end)(range);
}

void px_nvtx_emit(bool ops, bool shapes) {
  px__watch(PX__WATCH_NVTX, ops);
  px__watch(PX__WATCH_NVTX_SHAPES, ops && shapes);
}

// Calls the driver, which is loaded already if one of its devices is used. It applies to the
// thread's current context; px_device_memory makes that of the current device current. Its error
// codes are PyTorch's.
static px_status call_driver(const char *name) {
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

px_status px_tool_start(void) { return call_driver("cuProfilerStart"); }
px_status px_tool_stop(void) { return call_driver("cuProfilerStop"); }
