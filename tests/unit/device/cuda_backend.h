// SPDX-License-Identifier: Apache-2.0
// The cuda backend as a library opened by the test. Skips the test if the build folder lacks it.
#pragma once
#include "phlox/backend.h"
#include "test.h"

#include <dlfcn.h>

static inline px_backend_entry_fn cuda_entry(void) {
  char path[4096];
  built_path(path, sizeof path, "libphlox_cuda.so");
  if (access(path, R_OK)) SKIP("libphlox_cuda.so was not built");
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  CHECK(library);
  px_backend_entry_fn entry = NULL;
  *(void **)&entry = dlsym(library, PX_BACKEND_ENTRY);
  CHECK(entry);
  return entry;
}
static inline const px_backend *cuda_backend(const px_core *core) {
  const px_backend *b = cuda_entry()(core);
  CHECK(b);
  return b;
}
