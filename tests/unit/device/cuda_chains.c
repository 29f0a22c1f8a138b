// SPDX-License-Identifier: Apache-2.0
// Chains on GPUs, without a GPU: the kernels of all pointwise ops compile; they are kept on disk;
// damaged files are compiled anew. The driver is a stub whose device memory is host memory and
// whose kernels do nothing. The tests are skipped if NVRTC is not installed.
//
// The backend loads the driver by name. This program's dlopen precedes the system's and resolves
// libcuda.so.1 to the program itself.
#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../../ops/samples.h"
#include "cuda_backend.h"
#include "phlox/fuse.h"
#include "phlox/op.h"

#define EXPORT __attribute__((visibility("default")))

// ---- the stub driver

static struct {
  int libraries, launches, chains;
  char loaded[5];  // the first bytes of the last program
} driver;
static char context, stream;

// Functions that only succeed.
#define SUCCEEDS(name) \
  EXPORT int name(void); \
  int name(void) { return 0; }
SUCCEEDS(cuInit)
SUCCEEDS(cuGraphInstantiateWithFlags)
SUCCEEDS(cuGetErrorString)
SUCCEEDS(cuDeviceGetName)
SUCCEEDS(cuDeviceGetUuid_v2)
SUCCEEDS(cuCtxSetCurrent)
SUCCEEDS(cuCtxSynchronize)
SUCCEEDS(cuDeviceCanAccessPeer)
SUCCEEDS(cuCtxEnablePeerAccess)
SUCCEEDS(cuMemGetAddressRange_v2)
SUCCEEDS(cuPointerGetAttribute)
SUCCEEDS(cuMemGetAllocationGranularity)
SUCCEEDS(cuMemAddressReserve)
SUCCEEDS(cuMemCreate)
SUCCEEDS(cuMemRelease)
SUCCEEDS(cuMemMap)
SUCCEEDS(cuMemUnmap)
SUCCEEDS(cuMemSetAccess)
SUCCEEDS(cuIpcGetMemHandle)
SUCCEEDS(cuIpcOpenMemHandle_v2)
SUCCEEDS(cuIpcCloseMemHandle)
SUCCEEDS(cuMemHostRegister_v2)
SUCCEEDS(cuMemHostUnregister)
SUCCEEDS(cuMemcpyPeerAsync)
SUCCEEDS(cuStreamDestroy_v2)
SUCCEEDS(cuStreamGetPriority)
SUCCEEDS(cuStreamQuery)
SUCCEEDS(cuStreamSynchronize)
SUCCEEDS(cuStreamWaitEvent)
SUCCEEDS(cuLaunchHostFunc)
SUCCEEDS(cuEventDestroy_v2)
SUCCEEDS(cuEventRecord)
SUCCEEDS(cuEventQuery)
SUCCEEDS(cuEventSynchronize)
SUCCEEDS(cuEventElapsedTime_v2)
SUCCEEDS(cuStreamBeginCapture_v2)
SUCCEEDS(cuStreamEndCapture)
SUCCEEDS(cuStreamIsCapturing)
SUCCEEDS(cuGraphLaunch)
SUCCEEDS(cuGraphDebugDotPrint)
SUCCEEDS(cuGraphDestroy)
SUCCEEDS(cuGraphExecDestroy)
SUCCEEDS(cuIpcGetEventHandle)
SUCCEEDS(cuIpcOpenEventHandle)
SUCCEEDS(cuModuleGetLoadingMode)
SUCCEEDS(cuKernelSetAttribute)

#define FUNCTION(name, ...) \
  EXPORT int name(__VA_ARGS__); \
  int name(__VA_ARGS__)
FUNCTION(cuDeviceGetCount, int *count) { return *count = 1, 0; }
FUNCTION(cuDeviceGet, int *device, int index) { return *device = index, 0; }
FUNCTION(cuDeviceTotalMem_v2, size_t *bytes, int device) { return *bytes = (size_t)1 << 32, 0; }
FUNCTION(cuMemGetInfo_v2, size_t *left, size_t *all) { return *left = *all = (size_t)1 << 32, 0; }
FUNCTION(cuDevicePrimaryCtxRetain, void **out, int device) { return *out = &context, 0; }
FUNCTION(cuCtxGetCurrent, void **out) { return *out = &context, 0; }
FUNCTION(cuStreamGetCtx, void *of, void **out) { return *out = &context, 0; }
FUNCTION(cuStreamCreateWithPriority, void **out, unsigned flags, int priority) {
  return *out = &stream, 0;
}
FUNCTION(cuEventCreate, void **out, unsigned flags) { return *out = &stream, 0; }
FUNCTION(cuDeviceGetAttribute, int *out, int which, int device) {
  enum { MULTIPROCESSORS = 16, THREADS = 39, MAJOR = 75, SHARED = 97 };
  *out = which == MULTIPROCESSORS ? 132
         : which == THREADS       ? 2048
         : which == MAJOR         ? 9
         : which == SHARED        ? 232448
                                  : 0;
  return 0;
}
FUNCTION(cuMemAlloc_v2, void **out, size_t bytes) { return !(*out = calloc(1, bytes)); }
FUNCTION(cuMemFree_v2, void *at) { return free(at), 0; }
FUNCTION(cuMemHostAlloc, void **out, size_t bytes, unsigned flags) {
  return !(*out = calloc(1, bytes));
}
FUNCTION(cuMemFreeHost, void *at) { return free(at), 0; }
#define COPY(name) \
  FUNCTION(name, void *to, const void *from, size_t bytes, void *on) { \
    return memcpy(to, from, bytes), 0; \
  }
COPY(cuMemcpyHtoDAsync_v2)
COPY(cuMemcpyDtoHAsync_v2)
COPY(cuMemcpyDtoDAsync_v2)
FUNCTION(cuMemsetD8Async, void *to, int value, size_t bytes, void *on) {
  return memset(to, value, bytes), 0;
}
FUNCTION(cuLibraryLoadData, void **out, const void *code) {
  driver.libraries++;
  memcpy(driver.loaded, code, sizeof driver.loaded - 1);
  return *out = &driver, 0;
}
FUNCTION(cuLibraryGetKernel, const char **out, void *library, const char *name) {
  return *out = strdup(name), 0;
}
FUNCTION(cuLaunchKernelEx, const void *config, const char *kernel, void **params, void **extra) {
  driver.launches++;
  driver.chains += !strcmp(kernel, "chain");
  return 0;
}
// NVRTC's own calls.
FUNCTION(cuDriverGetVersion, int *version) { return *version = 13000, 0; }
FUNCTION(cuGetExportTable, const void **out, const void *id) { return *out = NULL, 999; }

EXPORT void *dlopen(const char *name, int flags);
void *dlopen(const char *name, int flags) {
  void *(*real)(const char *, int);
  *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
  return real(name && strstr(name, "libcuda.so") ? NULL : name, flags);
}

// ---- a device

static char folder[] = "/tmp/phlox-chains-XXXXXX";
static px_device device;

// Kernels are compiled before their first launch, and kept in a folder of the test's own.
static void use_stub(void) {
  char path[4096];
  built_path(path, sizeof path, "");
  cuda_entry();
  if (!dlopen("libnvrtc.so.13", RTLD_NOW) &&
      !dlopen("/usr/local/cuda/lib64/libnvrtc.so.13", RTLD_NOW))
    SKIP("NVRTC is not installed");
  setenv("PHLOX_BACKEND_PATH", path, 1);
  setenv("PHLOX_BACKENDS", "cuda", 1);
  setenv("PHLOX_FUSE_COMPILE", "wait", 1);
  CHECK(mkdtemp(folder));
  setenv("PHLOX_CACHE", folder, 1);
  device = px_cuda(0);
}

static int files(void) {
  int count = 0;
  DIR *all = opendir(folder);
  while (readdir(all)) count++;
  closedir(all);
  return count - 2;
}

static void remove_files(void) {
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK_EQ(system(command), 0);
}

// ---- tests

// Calls all pointwise ops, with one sample each; results of equal size share kernels.
static void compile_all(px_dtype dtype) {
  enum { ROOM = 4096 };
  static px_tensor *results[ROOM];
  static sample samples[SAMPLE_ROWS];
  int count = 0, opened = 0, calls = 0;
  for (int i = 0; i < SAMPLE_ROWS; i++) {
    sample *s = &samples[opened];
    bool again = i && !strcmp(sample_rows[i].op_name, sample_rows[i - 1].op_name);
    if (again || px_op_find(sample_rows[i].op_name)->kind != PX_OP_POINTWISE) continue;
    sample_open(s, i, dtype, device);
    opened++;
  }
  OK(px_fuse_begin());
  for (int i = 0; i < opened; i++) {
    int n = 0;
    px_status status = sample_call(&samples[i], samples[i].tensors, results + count, &n);
    if (status != PX_OK) px_error_clear();  // not for this dtype
    if (status == PX_OK) count += n, calls++;
    CHECK(count < ROOM - SAMPLE_RESULTS);
  }
  OK(px_fuse_end(PX_OK));
  fprintf(stderr, "%s: %d calls, %d chains\n", px_dtype_name(dtype), calls, driver.chains);
  CHECK(calls > 100 && driver.chains > 0);
  CHECK_TEXT(driver.loaded, "\177ELF");
  for (int i = 0; i < count; i++) px_release(results[i]);
  for (int i = 0; i < opened; i++) sample_close(&samples[i]);
}
#define PX_TEST_ALL(name, dtype) \
  PX_TEST(the_kernels_of_all_##name##_ops_compile) { \
    use_stub(); \
    compile_all(dtype); \
    remove_files(); \
  }
PX_TEST_ALL(float32, PX_FLOAT32)
PX_TEST_ALL(int32, PX_INT32)

// exp(x) * x, or its mean.
static void run(int64_t size, bool mean) {
  px_tensor *x = NULL, *e = NULL, *y = NULL, *m = NULL;
  OK(px_ones(&x, &size, 1, PX_FLOAT32, device, false, false));
  OK(px_fuse_begin());
  OK(px_exp(&e, x));
  OK(px_mul(&y, e, x));
  if (mean) OK(px_mean(&m, y, NULL, 0, false, PX_DTYPE_NONE));
  px_release(e);
  if (mean) px_release(y);
  OK(px_fuse_end(PX_OK));
  if (!mean) px_release(y);
  px_release(x), px_release(m);
}

PX_TEST(a_kernel_serves_all_sizes) {
  use_stub();
  run(1000, false);
  int libraries = driver.libraries;
  for (int64_t size = 3; size < 1 << 20; size *= 3) run(size, false);
  CHECK_EQ(driver.libraries, libraries);
  CHECK_EQ(driver.chains, 13);
  CHECK_EQ(files(), 1);
  remove_files();
}

// x in dtype and back.
static void run_cast(px_dtype dtype) {
  const int64_t size = 1000;
  px_tensor *x = NULL, *narrow = NULL, *back = NULL;
  OK(px_ones(&x, &size, 1, PX_FLOAT32, device, false, false));
  OK(px_fuse_begin());
  OK(px_to(&narrow, x, dtype, PX_DEVICE_NONE, false, false));
  OK(px_to(&back, narrow, PX_FLOAT32, PX_DEVICE_NONE, false, false));
  px_release(narrow);
  OK(px_fuse_end(PX_OK));
  px_release(x), px_release(back);
}
PX_TEST(each_dtype_of_a_conversion_has_a_kernel) {
  use_stub();
  run_cast(PX_FLOAT16);
  run_cast(PX_BFLOAT16);
  run_cast(PX_INT8);
  run_cast(PX_BFLOAT16);
  CHECK_EQ(driver.chains, 4);
  CHECK_EQ(files(), 3);
  remove_files();
}

// Steps that run one by one depend on each other, also if they have the same op.
PX_TEST(steps_are_not_batched) {
  const int64_t size = 1000;
  px_tensor *x = NULL, *y = NULL;
  use_stub();
  setenv("PHLOX_FUSE_COMPILE", "beside", 1);
  OK(px_ones(&x, &size, 1, PX_FLOAT32, device, false, false));
  int before = driver.launches;
  px_launch_batch_begin();
  OK(px_fuse_begin());
  for (int i = 0; i < 3; i++) {
    px_tensor *square = NULL;
    OK(px_mul(&square, y ? y : x, y ? y : x));
    px_release(y);
    y = square;
  }
  OK(px_fuse_end(PX_OK));
  OK(px_launch_batch_end(PX_OK));
  CHECK_EQ(driver.launches - before, 3);
  px_release(x), px_release(y);
  remove_files();
}

PX_TEST(a_fold_at_the_end_is_part_of_the_kernel) {
  use_stub();
  run(1 << 20, true);
  CHECK_EQ(driver.chains, 1);
  CHECK_EQ(driver.launches, 3);  // ones, the chain, and the join of its parts
  remove_files();
}

static void in_a_process(void (*function)(void)) {
  int status;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    function();
    _exit(0);
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}
static void run_once(void) {
  run(1000, false);
  CHECK_EQ(driver.chains, 1);
}
static void run_steps(void) {
  run(1000, false);
  CHECK_EQ(driver.chains, 0);
  CHECK_EQ(driver.launches, 3);
}

// The only file of the folder, and the file's number, which a new file changes.
static ino_t kept(char *path, size_t capacity) {
  struct stat about;
  DIR *all = opendir(folder);
  for (struct dirent *entry; (entry = readdir(all));)
    if (entry->d_name[0] != '.') snprintf(path, capacity, "%s/%s", folder, entry->d_name);
  closedir(all);
  CHECK_EQ(stat(path, &about), 0);
  CHECK_EQ(about.st_mode & 0777, 0600);
  return about.st_ino;
}

PX_TEST(kernels_are_kept_between_processes) {
  char path[512];
  use_stub();
  in_a_process(run_once);
  ino_t first = kept(path, sizeof path);
  in_a_process(run_once);
  CHECK_EQ(files(), 1);
  CHECK_EQ(kept(path, sizeof path), first);
  remove_files();
}

// Changes a byte, or cuts the file off (byte < 0): the program is compiled anew.
static void damage(int64_t byte) {
  char path[512], x = 0;
  ino_t first = kept(path, sizeof path);
  FILE *file = fopen(path, "r+");
  CHECK(file);
  if (byte < 0) {
    CHECK_EQ(ftruncate(fileno(file), -byte), 0);
  } else {
    CHECK_EQ(pread(fileno(file), &x, 1, byte), 1);
    x ^= 1;
    CHECK_EQ(pwrite(fileno(file), &x, 1, byte), 1);
  }
  fclose(file);
  in_a_process(run_once);
  CHECK(kept(path, sizeof path) != first);
  CHECK_EQ(files(), 1);
}
PX_TEST(damaged_files_are_compiled_anew) {
  use_stub();
  in_a_process(run_once);
  for (int64_t byte = 0; byte < 5000; byte += 1237) damage(byte);
  damage(-1);
  damage(-100);
  damage(-3000);
  remove_files();
}

PX_TEST(kernels_need_no_folder) {
  use_stub();
  setenv("PHLOX_CACHE", "0", 1);
  in_a_process(run_once);
  CHECK_EQ(files(), 0);
  setenv("PHLOX_CACHE", "/proc/nowhere", 1);
  in_a_process(run_once);
  CHECK_EQ(files(), 0);
  remove_files();
}

PX_TEST(without_compilation_calls_run_one_by_one) {
  use_stub();
  setenv("PHLOX_FUSE_COMPILE", "never", 1);
  run_steps();
  CHECK_EQ(files(), 0);
  remove_files();
}

// The first run does not wait. The process may end during the compilation.
static void run_beside(void) {
  run_steps();
  for (int i = 0; i < 6000 && !driver.chains; i++) {
    usleep(10000);
    run(2000, false);
  }
  CHECK(driver.chains > 0);
}
static int wait_ms;
static void leave_early(void) {
  run_steps();
  usleep(1000 * wait_ms);
  exit(0);
}
PX_TEST(kernels_are_compiled_beside_the_program) {
  use_stub();
  setenv("PHLOX_FUSE_COMPILE", "beside", 1);
  for (wait_ms = 10; wait_ms < 400; wait_ms *= 3) {
    in_a_process(leave_early);
    remove_files();
    CHECK_EQ(mkdir(folder, 0700), 0);
  }
  in_a_process(run_beside);
  CHECK_EQ(files(), 1);
  remove_files();
}
