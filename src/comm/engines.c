// SPDX-License-Identifier: Apache-2.0
// Finds and loads engines, libphlox_NAME.so: in PHLOX_BACKEND_PATH, this library's folder, its
// subfolder `phlox`, the folder of `make install`, or the system's paths. On simulated devices
// "nccl" maps to Gloo. An engine may load a further library.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm_impl.h"

enum { ENGINES = 8, REASON = 256, FOLDER = 1500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char name[32];
  const px_engine *engine;
} loaded[ENGINES];  // guarded by `lock`; failures are not cached
static int loaded_count;

// Saves the loader's message of the first failure, or of a library that exists.
static void *open_in(const char *folder, const char *below, const char *name, char why[REASON]) {
  char path[FOLDER + 96];
  snprintf(path, sizeof path, "%s%s/libphlox_%s.so", folder, below, name);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle || (*why && access(path, F_OK))) return handle;
  const char *text = dlerror();
  snprintf(why, REASON, "%s", text ? text : "");
  return NULL;
}

// Writes the folder of this library, or of the program if it is linked statically.
static void own_folder(char out[FOLDER]) {
  Dl_info self;
  const char *path = dladdr((void *)&loaded, &self) && self.dli_fname ? self.dli_fname : "";
  const char *slash = strrchr(path, '/');
  snprintf(out, FOLDER, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

static void *open_library(const char *name, char why[REASON]) {
  const char *folder = NULL;
  char own[FOLDER], file[64], ignored[REASON] = "";
  own_folder(own);
  if (px_env_read("PHLOX_BACKEND_PATH", &folder) != PX_OK) px_error_clear();
  void *handle = folder ? open_in(folder, "", name, ignored) : NULL;
  if (!handle) handle = open_in(own, "", name, why);
  if (!handle) handle = open_in(own, "/phlox", name, why);
  if (!handle) handle = open_in(PX_BACKEND_FOLDER, "", name, why);
  if (handle) return handle;
  snprintf(file, sizeof file, "libphlox_%s.so", name);
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

// Loads the library behind the engine (for example NCCL).
static px_status load_dependency(const px_engine *engine) {
  px_engine_paths places;
  char why[PX__REASON] = "";
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
  PX_CHECK(
      handle, PX_UNIMPLEMENTED,
      "the collective backend '%s' is unavailable (%s). The gloo backend requires libgloo0, and "
      "libgloo-dev and g++ at build time",
      name, *why ? why : "no such library");
  *(void **)&entry = dlsym(handle, PX_ENGINE_ENTRY);
  *out = entry ? entry(PX_ENGINE_ABI) : NULL;
  PX_CHECK(*out && (*out)->abi == PX_ENGINE_ABI, PX_UNIMPLEMENTED,
           "libphlox_%s.so is not a collective backend of this version", name);
  PX_TRY(load_dependency(*out));
  if (loaded_count < ENGINES) {
    snprintf(loaded[loaded_count].name, sizeof loaded[0].name, "%s", name);
    loaded[loaded_count++].engine = *out;
  }
  return PX_OK;
}

px_status px__engine_find(const px_engine **out, const char *name) {
  size_t length = strlen(name);
  PX_CHECK(length > 0 && length < sizeof loaded[0].name && !strpbrk(name, "/."), PX_VALUE,
           "invalid name of a collective backend: '%.64s'", name);
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
