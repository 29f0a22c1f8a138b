// SPDX-License-Identifier: Apache-2.0
// The cuda backend has a kernel of every name that the CPU has one of, but of those that a backend
// need not have; the names that it lacks are printed. No driver is needed: kernels are found by
// name alone.
#include "cuda_backend.h"
#include "device/work/work.h"

static px_core core = {.size = sizeof core, .abi = PX_BACKEND_ABI, .error = px_error_set};

// Norms of weights, volumes, attention with dropout, sorts without places, counts, runs of equals,
// pads, rows of several tensors and bags have other ways.
static bool is_optional(const char *name) {
  return !strncmp(name, "weight_", 7) || !strncmp(name, "conv3d_", 7) ||
         !strcmp(name, "attention_dropout") || !strcmp(name, "sorted") || !strcmp(name, "tally") ||
         !strcmp(name, "binned") || !strcmp(name, "kinds") || !strcmp(name, "pad_edges") ||
         !strcmp(name, "joined") || !strncmp(name, "bag_", 4);
}

PX_TEST(every_kernel_of_the_cpu_is_there) {
  const px_backend *b = cuda_backend(&core);
  int count, missing = 0;
  const px_kernel_row *rows = px__host_kernels(&count);
  for (int i = 0; i < count; i++) {
    bool found = b->find(rows[i].name) != NULL;
    if (found || is_optional(rows[i].name)) continue;
    fprintf(stderr, "%s%s", missing++ ? " " : "missing: ", rows[i].name);
  }
  if (missing) fprintf(stderr, "\n%d of %d\n", missing, count);
  CHECK_EQ(missing, 0);
}
