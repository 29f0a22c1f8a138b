// SPDX-License-Identifier: Apache-2.0
// NVIDIA's tools, which may watch a program: marks and ranges by NVTX, and the driver's profiler.
// Both are found when they are first asked for; without them the calls do nothing. Nothing is
// linked.
#include <dlfcn.h>
#include <pthread.h>

#include "device/state.h"
#include "phlox/profile.h"

static struct {
  int (*push)(const char *message);
  int (*pop)(void);
  void (*mark)(const char *message);
  uint64_t (*start)(const char *message);
  void (*end)(uint64_t range);
} nvtx;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void *library, const char *name, void *to) {
  void *found = dlsym(library, name);
  memcpy(to, &found, sizeof found);
}

// All of it or nothing.
static void look(void) {
  void *library = dlopen("libnvToolsExt.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  find(library, "nvtxRangePushA", &nvtx.push);
  find(library, "nvtxRangePop", &nvtx.pop);
  find(library, "nvtxMarkA", &nvtx.mark);
  find(library, "nvtxRangeStartA", &nvtx.start);
  find(library, "nvtxRangeEnd", &nvtx.end);
  bool whole = nvtx.push && nvtx.pop && nvtx.mark && nvtx.start && nvtx.end;
  if (!whole) memset(&nvtx, 0, sizeof nvtx);
}

static bool listens(void) {
  pthread_once(&once, look);
  return nvtx.push != NULL;
}

int px_nvtx_push(const char *message) {
  return message && listens() ? nvtx.push(message) : PX_NVTX_NOBODY;
}
int px_nvtx_pop(void) { return listens() ? nvtx.pop() : PX_NVTX_NOBODY; }
void px_nvtx_mark(const char *message) {
  if (message && listens()) nvtx.mark(message);
}
uint64_t px_nvtx_start(const char *message) {
  return message && listens() ? nvtx.start(message) : 0;
}
void px_nvtx_end(uint64_t range) {
  if (listens()) nvtx.end(range);
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
