// SPDX-License-Identifier: Apache-2.0
// The cuda backend without a driver: it loads, finds no device, and reports that.
//
// The tests open the library in the build folder. They are skipped if it was not built or if there
// is a driver.
#include "cuda_backend.h"

static size_t core_pack(const px_launch *launch, void *room, size_t capacity) { return 0; }
static void *core_scratch(const px_launch *launch, size_t bytes) { return NULL; }
static px_core core = {.size = sizeof core,
                       .abi = PX_BACKEND_ABI,
                       .error = px_error_set,
                       .env = px_env_read,
                       .pack = core_pack,
                       .scratch = core_scratch};

static const px_backend *backend(void) { return cuda_backend(&core); }
static const px_backend *without_driver(void) {
  const px_backend *b = backend();
  if (b->probe() > 0) SKIP("there is a driver, and a device");
  return b;
}

PX_TEST(the_backend_loads_and_has_its_name) {
  const px_backend *b = backend();
  CHECK_EQ(b->abi, PX_BACKEND_ABI);
  CHECK_EQ(b->type, PX_CUDA);
  CHECK_TEXT(b->name, "cuda");
}

PX_TEST(all_table_entries_are_set) {
  const px_backend *b = backend();
  CHECK_EQ(b->size, sizeof *b);
  void *const *entries = (void *const *)&b->probe, *const *end =
                                                       (void *const *)&b->runs_host_kernels;
  for (; entries < end; entries++) CHECK(*entries);
}

PX_TEST(a_core_of_another_abi_is_refused) {
  px_core other = core;
  other.abi = PX_BACKEND_ABI + 1;
  CHECK(!cuda_entry()(&other));
  other = core;
  other.size = sizeof other - 1;
  CHECK(!cuda_entry()(&other));
}

PX_TEST(probe_returns_zero_repeatedly) {
  const px_backend *b = without_driver();
  for (int i = 0; i < 3; i++) CHECK_EQ(b->probe(), 0);
}

PX_TEST(opening_without_a_device_is_an_error) {
  const px_backend *b = without_driver();
  px_status status = b->open(0);
  CHECK(status == PX_RUNTIME || status == PX_ACCELERATOR);
  CHECK(*px_error_last()->message);
}

PX_TEST(peers_and_kernels_can_be_queried) {
  const px_backend *b = without_driver();
  CHECK(!b->can_access_peer(0, 1));
  CHECK(b->find("mm") && !b->find("nonesuch"));
}

// The core then tries the next backend.
PX_TEST(the_core_finds_no_cuda_device) {
  char folder[4096];
  without_driver();
  built_path(folder, sizeof folder, "");
  setenv("PHLOX_BACKEND_PATH", folder, 1);
  unsetenv("PHLOX_SIM_DEVICES");
  CHECK_EQ(px_device_count(PX_CUDA), 0);
  FAILS(px_device_init(), PX_RUNTIME, "No CUDA GPUs are available");
}
