// SPDX-License-Identifier: Apache-2.0
// Processes killed at each byte of a save, and processes forked while their threads compute. LONG=1
// in the environment tests all bytes and a thousand forks.
#include "devices.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>

enum { ELEMENTS = 700, FORKS = 24, FORKS_LONG = 1000 };

static bool is_long(void) { return getenv("LONG") != NULL; }

// ---- killed savers
static char folder[] = "/tmp/phlox-processes-XXXXXX";
static char path[64];

static void begin_folder(void) {
  CHECK(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/state", folder);
}

static px_status save(double value) {
  PX_SCOPED(px_dict) state = NULL;
  PX_SCOPED(px_tensor) t = NULL;
  PX_TRY(px_dict_new(&state));
  PX_TRY(
      px_full(&t, (int64_t[]){ELEMENTS}, 1, px_float(value), PX_FLOAT32, px_cpu(), false, false));
  PX_TRY(px_dict_set(state, "weight", t));
  return px_save(path, state, NULL);
}

// Returns the common value of all elements of the file.
static double loaded(void) {
  PX_SCOPED(px_dict) state = NULL;
  float values[ELEMENTS];
  OK(px_load(&state, path, PX_DEVICE_NONE));
  OK(px_tensor_read(px_dict_get(state, "weight"), values, sizeof values));
  for (int i = 1; i < ELEMENTS; i++) CHECK(values[i] == values[0]);
  return values[0];
}

static int files(void) {
  int count = 0;
  DIR *open = opendir(folder);
  CHECK(open);
  while (readdir(open)) count++;
  closedir(open);
  return count - 2;
}

// Saves 2s in a process that is killed once it writes more than `bytes` bytes to a file. Returns
// true if it was killed.
static bool killed_at(rlim_t bytes) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes});
    signal(SIGXFSZ, SIG_DFL);
    _exit(save(2) != PX_OK);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) CHECK_EQ(WTERMSIG(status), SIGXFSZ);
  if (WIFEXITED(status)) CHECK_EQ(WEXITSTATUS(status), 0);
  return WIFSIGNALED(status);
}

PX_TEST(a_save_killed_at_any_byte_keeps_the_old_file) {
  int64_t states = 0;
  rlim_t step = is_long() ? 1 : 97;
  begin_folder();
  OK(save(1));
  for (rlim_t bytes = 0; killed_at(bytes); bytes += step, states++) {
    CHECK(loaded() == 1);
    CHECK(files() <= 2);  // the next save removes leftover files
    if (states % 8) continue;
    OK(save(1));
    CHECK_EQ(files(), 1);
  }
  CHECK(loaded() == 2);
  CHECK(states > (is_long() ? 4 * ELEMENTS : 10));
  tally("crash-states", states);
  CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

// A file truncated by a system that reorders writes.
static void truncate_file(const char *bytes, size_t kept) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(bytes, 1, kept, file) == kept);
  CHECK(fclose(file) == 0);
}

PX_TEST(a_truncated_file_is_refused) {
  char bytes[8192];
  int64_t states = 0;
  begin_folder();
  OK(save(1));
  FILE *file = fopen(path, "rb");
  CHECK(file);
  size_t size = fread(bytes, 1, sizeof bytes, file), step = is_long() ? 1 : 61;
  fclose(file);
  CHECK(size > 4 * ELEMENTS && size < sizeof bytes);
  for (size_t kept = 0; kept < size; kept += step) {
    PX_SCOPED(px_dict) state = NULL;
    truncate_file(bytes, kept);
    CHECK(px_load(&state, path, PX_DEVICE_NONE) != PX_OK && px_error_last()->message[0]);
    px_error_clear();
    states++;
  }
  tally("crash-states", states);
  CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

// ---- forks
static bool stop;  // atomic

static void *compute(void *context) {
  const px_device *device = context;
  while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
    PX_SCOPED(px_tensor) t = NULL;
    OK(px_full(&t, (int64_t[]){1000}, 1, px_float(1), PX_FLOAT32, *device, false, false));
    OK(px_add_(t, t, px_int(1)));
  }
  return NULL;
}

// In the child, CPU ops work and device ops fail.
static int run_child(px_tensor *host, px_tensor *device) {
  PX_SCOPED(px_tensor) sum = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  px_scalar number;
  if (px_sum_all(&sum, host, PX_DTYPE_NONE) != PX_OK) return 1;
  if (px_tensor_item(&number, sum) != PX_OK || px_scalar_float(number) != 1000) return 2;
  if (px_add(&made, device, device, px_int(1)) == PX_OK) return 3;
  return px_error_last()->message[0] ? 0 : 4;
}

PX_TEST(a_forked_child_computes_on_the_cpu) {
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
  SKIP("the tool's own locks do not survive copies of a process that has threads");
#endif
  int count = is_long() ? FORKS_LONG : FORKS;
  static const px_device cpu = {PX_CPU, -1}, cuda = {PX_CUDA, 0};
  PX_SCOPED(px_tensor) host = NULL;
  PX_SCOPED(px_tensor) device = NULL;
  pthread_t threads[2];
  simulate(1);
  OK(px_full(&host, (int64_t[]){1000}, 1, px_float(1), PX_FLOAT32, px_cpu(), false, false));
  OK(px_to(&device, host, PX_DTYPE_NONE, px_cuda(0), false, false));
  for (int i = 0; i < 2; i++)
    CHECK(pthread_create(&threads[i], NULL, compute, (void *)(i ? &cuda : &cpu)) == 0);
  for (int i = 0; i < count; i++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a lock held by a thread of the parent would hang
      _exit(run_child(host, device));
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
  }
  __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  tally("forks", count);
}
