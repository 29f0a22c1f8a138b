// SPDX-License-Identifier: Apache-2.0
// Finds and loads engines, libphlox_NAME.so. On simulated devices "nccl" maps to Gloo. An engine
// may load a further library.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm_impl.h"

enum { ENGINES = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  char name[32];
  const px_engine *engine;
} loaded[ENGINES];  // guarded by `lock`; failures are not cached
static int loaded_count;

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

static const char *remedy(const char *name) {
  if (!strcmp(name, "gloo"))
    return ". It requires Debian's package libgloo0 (apt install libgloo0); a build from sources "
           "requires libgloo-dev and g++";
  if (!strcmp(name, "mpi")) return ". A build with an MPI's mpicc has it";
  return "";
}

static px_status load(const px_engine **out, const char *name) {
  char why[PX_LOADER_TEXT];
  const char *folder = NULL;
  px_engine_entry_fn entry = NULL;
  for (int i = 0; i < loaded_count; i++)
    if (!strcmp(loaded[i].name, name)) return *out = loaded[i].engine, PX_OK;
  if (px_env_read("PHLOX_BACKEND_PATH", &folder) != PX_OK) px_error_clear();
  void *handle = px_library_open(folder, name, why);
  PX_CHECK(handle, PX_UNIMPLEMENTED, "the collective backend '%s' is unavailable (%s)%s", name, why,
           remedy(name));
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

px_status px_engine_library(const char **path, const char *name) {
  const px_engine *engine;
  Dl_info at;
  PX_GIVEN(path);
  PX_GIVEN(name);
  PX_TRY(px__engine_find(&engine, name));
  *path = dladdr(engine, &at) && at.dli_fname ? at.dli_fname : "";
  return PX_OK;
}

bool px_engine_available(const char *name) {
  const px_engine *engine;
  if (name && px__engine_find(&engine, name) == PX_OK) return true;
  px_error_clear();
  return false;
}
