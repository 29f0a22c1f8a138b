// SPDX-License-Identifier: Apache-2.0
// Finds and loads libraries by name on first use; nothing is linked.
#include "cuda/host/driver/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *open_in(const char *folder, const char *subfolder, const char *name) {
  char path[2048];
  if (!folder || !*folder) return NULL;
  int needed = snprintf(path, sizeof path, "%s%s/%s", folder, subfolder, name);
  return needed < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
}

// Opens pip's copy of an NVIDIA library next to this package, if installed.
static void *open_pip(const char *name) {
  static const char *const subfolder[] = {"nvidia/cu13/lib",     "nvidia/cudnn/lib",
                                          "nvidia/cublas/lib",   "nvidia/cufft/lib",
                                          "nvidia/cusolver/lib", "nvidia/cuda_nvrtc/lib"};
  const int count = sizeof subfolder / sizeof *subfolder;
  char folder[1536];
  Dl_info self;
  const char *slash = dladdr((void *)&px__cu, &self) ? strrchr(self.dli_fname, '/') : NULL;
  int length = slash ? (int)(slash - self.dli_fname) : 0;
  if (!length || length > 1500) return NULL;
  void *library = NULL;
  snprintf(folder, sizeof folder, "%.*s/../", length, self.dli_fname);
  for (int i = 0; i < count && !library; i++) library = open_in(folder, subfolder[i], name);
  return library;
}

// Search order:
// - PHLOX_CUDA_PATH
// - a copy already loaded by the process
// - pip's copy, as requested by the program's environment
// - the system's search path
// - the toolkit named by CUDA_HOME or CUDA_PATH
// - /usr/local/cuda
static void *open_library(const char *name) {
  const px_core *core = px__cuda_core;
  const char *ours, *home, *path;
  if (px_env_PHLOX_CUDA_PATH(core, &ours) != PX_OK) ours = NULL;
  if (px_env_CUDA_HOME(core, &home) != PX_OK) home = NULL;
  if (px_env_CUDA_PATH(core, &path) != PX_OK) path = NULL;
  void *library = open_in(ours, "", name);
  if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  if (!library) library = open_pip(name);
  if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) library = open_in(home, "/lib64", name);
  if (!library) library = open_in(path, "/lib64", name);
  return library ? library : open_in("/usr/local/cuda", "/lib64", name);
}

void *px__cuda_library(const char *const *names, int count) {
  void *library = NULL;
  for (int i = 0; i < count && !library; i++) library = open_library(names[i]);
  return library;
}
