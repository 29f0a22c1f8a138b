// SPDX-License-Identifier: Apache-2.0
// The cuda backend has a kernel of every name that the CPU has one of; the names that it lacks are
// printed. No driver is needed: kernels are found by name alone.
#include "device/state.h"
#include "test.h"

#include <dlfcn.h>

static px_core core = {.size = sizeof core, .abi = PX_BACKEND_ABI, .error = px_error_set};

static const px_backend *backend(void) {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
  CHECK(length > 0);
  path[length] = 0;
  for (int i = 0; i < 3; i++) *strrchr(path, '/') = 0;  // build/tests/unit/PROGRAM
  strcat(path, "/libphlox_cuda.so");
  if (access(path, R_OK)) SKIP("libphlox_cuda.so was not built");
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  px_backend_entry_fn entry = NULL;
  if (library) *(void **)&entry = dlsym(library, PX_BACKEND_ENTRY);
  CHECK(entry);
  return entry(&core);
}

PX_TEST(every_kernel_of_the_cpu_is_there) {
  const px_backend *b = backend();
  int count, missing = 0;
  const px_kernel_row *rows = px__host_kernels(&count);
  for (int i = 0; i < count; i++) {
    if (b->find(rows[i].name)) continue;
    fprintf(stderr, "%s%s", missing++ ? " " : "missing: ", rows[i].name);
  }
  if (missing) fprintf(stderr, "\n%d of %d\n", missing, count);
  CHECK_EQ(missing, 0);
}
