// SPDX-License-Identifier: Apache-2.0
// Finding and loading engines: libphlox_NAME.so in the folder of PHLOX_BACKEND_PATH, beside this
// library, or where the system looks. NCCL's communicators are Gloo's on simulated devices, and may
// stand on a library that is found in turn.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm_impl.h"

enum { ENGINES = 8, REASON = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char name[32];
  const px_engine *engine;
} loaded[ENGINES];  // by `lock`; what is not there is looked for again
static int loaded_count;

// The linker's text is gone with the next question to it.
static void keep_reason(char why[REASON]) {
  const char *text = dlerror();
  snprintf(why, REASON, "%s", text ? text : "");
}
static void *open_library(const char *name, char why[REASON]) {
  const char *folder = NULL;
  char path[4096];
  Dl_info self;
  void *handle = NULL;
  if (px_env_read("PHLOX_BACKEND_PATH", &folder) != PX_OK) px_error_clear();
  if (folder && snprintf(path, sizeof path, "%s/libphlox_%s.so", folder, name) < (int)sizeof path)
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char *slash = dladdr((void *)&loaded, &self) ? strrchr(self.dli_fname, '/') : NULL;
  if (!handle && slash) {
    int length = (int)(slash - self.dli_fname);
    snprintf(path, sizeof path, "%.*s/libphlox_%s.so", length, self.dli_fname, name);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) keep_reason(why);
  }
  if (handle) return handle;
  snprintf(path, sizeof path, "libphlox_%s.so", name);
  handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle && !*why) keep_reason(why);
  return handle;
}

// The library that the engine stands on.
static px_status load_beneath(const px_engine *engine) {
  px_engine_paths places;
  char why[PX__WHY] = "";
  if (!PX__ENGINE_HAS(engine, load)) return PX_OK;
  PX_TRY(px_env_read("PHLOX_CUDA_PATH", &places.ours));
  PX_TRY(px_env_read("CUDA_HOME", &places.home));
  PX_TRY(px_env_read("CUDA_PATH", &places.path));
  PX_CHECK(!engine->load(&places, why, sizeof why), PX_UNIMPLEMENTED, "%s", why);
  return PX_OK;
}

static px_status load(const px_engine **out, const char *name) {
  char why[REASON] = "";
  px_engine_entry_fn entry = NULL;
  for (int i = 0; i < loaded_count; i++)
    if (!strcmp(loaded[i].name, name)) return *out = loaded[i].engine, PX_OK;
  void *handle = open_library(name, why);
  PX_CHECK(handle, PX_UNIMPLEMENTED,
           "the engine of collectives '%s' is not there (%s). Gloo's is built where libgloo-dev "
           "and g++ are installed",
           name, *why ? why : "no such library");
  *(void **)&entry = dlsym(handle, PX_ENGINE_ENTRY);
  *out = entry ? entry(PX_ENGINE_ABI) : NULL;
  PX_CHECK(*out && (*out)->abi == PX_ENGINE_ABI, PX_UNIMPLEMENTED,
           "libphlox_%s.so is no engine of collectives of this version", name);
  PX_TRY(load_beneath(*out));
  if (loaded_count < ENGINES) {
    snprintf(loaded[loaded_count].name, sizeof loaded[0].name, "%s", name);
    loaded[loaded_count++].engine = *out;
  }
  return PX_OK;
}

px_status px__engine_find(const px_engine **out, const char *name) {
  size_t length = strlen(name);
  PX_CHECK(length > 0 && length < sizeof loaded[0].name && !strpbrk(name, "/."), PX_VALUE,
           "'%.64s' is no name of an engine of collectives", name);
  if (!strcmp(name, "nccl")) {
    const char *backend = px_device_backend();
    PX_CHECK(!strcmp(backend, "sim") || !strcmp(backend, "cuda"), PX_RUNTIME,
             "ProcessGroupNCCL is only supported with GPUs, no GPUs found!");
    if (!strcmp(backend, "sim")) name = "gloo";
  }
  pthread_mutex_lock(&lock);
  px_status status = load(out, name);
  pthread_mutex_unlock(&lock);
  return status;
}

bool px_engine_available(const char *name) {
  const px_engine *engine;
  if (name && px__engine_find(&engine, name) == PX_OK) return true;
  px_error_clear();
  return false;
}
