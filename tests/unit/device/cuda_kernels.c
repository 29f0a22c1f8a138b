// SPDX-License-Identifier: Apache-2.0
// The cuda backend has each kernel of the CPU except optional ones. The test prints missing names.
// No driver is needed, since kernels are found by name.
#include "cuda_backend.h"
#include "device/work/work.h"

static px_core core = {
    .size = sizeof core, .abi = PX_BACKEND_ABI, .error = px_error_set, .env = px_env_read};

// Other implementations cover weight norms, volumes, attention with dropout, values-only sorts,
// counts, unique_consecutive, pads, cat of rows, and embedding bags. Chains need NVRTC.
static bool is_optional(const char *name) {
  return !strncmp(name, "weight_", 7) || !strncmp(name, "conv3d_", 7) ||
         !strcmp(name, "attention_dropout") || !strcmp(name, "sorted") || !strcmp(name, "tally") ||
         !strcmp(name, "binned") || !strcmp(name, "kinds") || !strcmp(name, "pad_edges") ||
         !strcmp(name, "joined") || !strncmp(name, "bag_", 4) || !strcmp(name, "chain");
}

PX_TEST(every_required_cpu_kernel_exists) {
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
