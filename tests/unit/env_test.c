// SPDX-License-Identifier: Apache-2.0
// The table of environment variables: types, defaults, allowed values, and unknown names.
#include "device_test.h"
#include "folder.h"
#include "phlox/ops.h"

#include <limits.h>
#include <sched.h>
#include <sys/stat.h>

static void refused(const char *name, const char *value, const char *why) {
  union {
    bool flag;
    int64_t number;
    const char *text;
  } out = {.number = 77};
  setenv(name, value, 1);
  FAILS(px_env_read(name, &out), PX_VALUE, why);
  CHECK_EQ(out.number, 77);
  unsetenv(name);
}

// ---- types

PX_TEST(flags_share_one_syntax) {
  static const char *const on[] = {"1", "true", "yes", "ON"}, *const off[] = {"0", "False", "no",
                                                                              "off"};
  bool flag;
  for (int i = 0; i < 4; i++) {
    setenv("PHLOX_SANITIZE", on[i], 1), setenv("PHLOX_CUDNN", off[i], 1);
    OK(px__env_PHLOX_SANITIZE(&flag));
    CHECK(flag);
    OK(px__env_PHLOX_CUDNN(&flag));
    CHECK(!flag);
  }
  refused("PHLOX_SANITIZE", "2",
          "PHLOX_SANITIZE must be 1, true, yes or on, or 0, false, no or off, but is '2'");
  refused("CUDA_LAUNCH_BLOCKING", "maybe", "CUDA_LAUNCH_BLOCKING must be 1, true");
  refused("PHLOX_SIM_POISON", " 1", "but is ' 1'");
}

PX_TEST(an_unset_or_empty_variable_has_its_default) {
  bool cudnn;
  int64_t starve;
  const char *mode, *visible;
  for (int i = 0; i < 2; i++) {
    OK(px__env_PHLOX_CUDNN(&cudnn));
    OK(px__env_PHLOX_SIM_STARVE(&starve));
    OK(px__env_PHLOX_SIM_MODE(&mode));
    CHECK(cudnn && starve == -1);
    CHECK_TEXT(mode, "threads");
    setenv("PHLOX_CUDNN", "", 1), setenv("PHLOX_SIM_STARVE", "", 1),
        setenv("PHLOX_SIM_MODE", "", 1);
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  OK(px__env_CUDA_VISIBLE_DEVICES(&visible));
  CHECK(visible == NULL);  // all of them
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  OK(px__env_CUDA_VISIBLE_DEVICES(&visible));
  CHECK_TEXT(visible, "");  // none
}

PX_TEST(numbers_are_integers_within_bounds) {
  int64_t n;
  setenv("PHLOX_SIM_DEVICES", "64", 1);
  OK(px__env_PHLOX_SIM_DEVICES(&n));
  CHECK_EQ(n, 64);
  refused("PHLOX_SIM_DEVICES", "65",
          "PHLOX_SIM_DEVICES must be a number from 0 to 64, but is '65'");
  refused("PHLOX_SIM_DEVICES", "-1", "but is '-1'");
  refused("PHLOX_SIM_DEVICES", "4x", "but is '4x'");
  refused("PHLOX_SIM_DEVICES", "four", "but is 'four'");
  refused("PHLOX_THREADS", "4K", "PHLOX_THREADS must be a number");
  refused("PHLOX_SIM_SEED", "9223372036854775808", "PHLOX_SIM_SEED must be a number");
}

PX_TEST(bytes_have_suffixes) {
  static const struct {
    const char *text;
    int64_t bytes;
  } good[] = {
      {"1", 1}, {"3k", 3072}, {"2M", 2 << 20}, {"1024G", (int64_t)1 << 40}, {"", (int64_t)4 << 30}};
  for (int i = 0; i < PX_COUNT_OF(good); i++) {
    int64_t n;
    setenv("PHLOX_SIM_MEMORY", good[i].text, 1);
    OK(px__env_PHLOX_SIM_MEMORY(&n));
    CHECK_EQ(n, good[i].bytes);
  }
  refused("PHLOX_SIM_MEMORY", "12Q",
          "PHLOX_SIM_MEMORY must be a size such as 512M or 4G, but is '12Q' (1 to 1024G");
  refused("PHLOX_SIM_MEMORY", "1025G", "but is '1025G'");
  refused("PHLOX_SIM_MEMORY", "9000000000G", "but is '9000000000G'");
  refused("PHLOX_SIM_MEMORY", "1MB", "but is '1MB'");
  refused("PHLOX_SIM_MEMORY", "0", "but is '0'");
}

PX_TEST(a_choice_must_be_listed) {
  const char *mode;
  setenv("PHLOX_SIM_MODE", "schedule", 1);
  OK(px__env_PHLOX_SIM_MODE(&mode));
  CHECK_TEXT(mode, "schedule");
  refused("PHLOX_SIM_MODE", "thread",
          "PHLOX_SIM_MODE must be threads or schedule, but is 'thread'");
  refused("PHLOX_SIM_MODE", "threads|schedule", "must be threads or schedule");
}

PX_TEST(a_folder_must_exist) {
  const char *path;
  setenv("PHLOX_CUDA_PATH", "/tmp", 1);
  OK(px__env_PHLOX_CUDA_PATH(&path));
  CHECK_TEXT(path, "/tmp");
  setenv("PHLOX_CUDA_PATH", "", 1);
  OK(px__env_PHLOX_CUDA_PATH(&path));
  CHECK(path == NULL);
  refused("PHLOX_CUDA_PATH", "/nowhere",
          "PHLOX_CUDA_PATH must be a folder that exists, but is '/nowhere'");
  refused("PHLOX_BACKEND_PATH", "/dev/null", "must be a folder that exists");
  setenv("PHLOX_BACKEND_PATH", "/nowhere", 1);
  CHECK_EQ(px_device_count(PX_CUDA), 0);
  FAILS(px_device_init(), PX_VALUE, "PHLOX_BACKEND_PATH must be a folder that exists");
}

PX_TEST(every_default_is_allowed) {
  const px_env_row *row;
  for (int i = 0; (row = px_env_at(i)); i++) {
    int64_t parsed;
    unsetenv(row->name);
    OK(px_env_read(row->name, &parsed));
    CHECK(row->doc[0]);
    CHECK(row->fallback[0] || !strcmp(row->type, "text") || !strcmp(row->type, "folder"));
  }
  CHECK(px_env_at(-1) == NULL);
  FAILS(px_env_read("PHLOX_NOTHING", &row), PX_KEY, "no environment variable 'PHLOX_NOTHING'");
  FAILS(px_env_read("PHLOX_TREADS", &row), PX_KEY, "the nearest name is PHLOX_THREADS");
}

// ---- reporting of mistakes

static int warnings;
static char warned[512];
static px_status keep_warning(px_warning category, const char *text) {
  snprintf(warned, sizeof warned, "%s", text);
  warnings++;
  return PX_OK;
}

PX_TEST(invalid_device_flags_fail_the_first_device_call) {
  static const char *const flags[] = {"CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING",
                                      "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "PHLOX_SANITIZE",
                                      "TORCH_CUDA_SANITIZER"};
  simulate(1);
  for (int i = 0; i < PX_COUNT_OF(flags); i++) {
    setenv(flags[i], "perhaps", 1);
    FAILS(px_device_init(), PX_VALUE, flags[i]);
    setenv(flags[i], "0", 1);
  }
  OK(px_device_init());
}

PX_TEST(an_invalid_device_count_warns_and_fails_the_first_use) {
  simulate(1);
  px_warning_set_sink(keep_warning);
  setenv("PHLOX_SIM_DEVICES", "many", 1);
  CHECK_EQ(px_device_count(PX_CUDA) + px_device_count(PX_CUDA), 0);
  CHECK_EQ(warnings, 1);
  CHECK(strstr(warned, "CUDA initialization: PHLOX_SIM_DEVICES must be a number from 0 to 64"));
  FAILS(px_device_init(), PX_VALUE,
        "PHLOX_SIM_DEVICES must be a number from 0 to 64, but is 'many'");
  setenv("PHLOX_SIM_DEVICES", "2", 1);
  OK(px_device_init());
  CHECK_EQ(px_device_count(PX_CUDA), 2);
}

PX_TEST(simulator_variables_may_be_corrected_after_a_failure) {
  px_stream *stream;
  simulate(1);
  setenv("PHLOX_SIM_PEERS", "0-99", 1);
  FAILS(px_stream_new(&stream, px_cuda(0), 0), PX_VALUE,
        "PHLOX_SIM_PEERS must be all, none, or pairs such as 0-1,2-3 or 0>1, but is '0-99'");
  setenv("PHLOX_SIM_PEERS", "none", 1);
  OK(px_stream_new(&stream, px_cuda(0), 0));
  px_release(stream);
}

PX_TEST(missing_backends_are_named) {
  simulate(1);
  setenv("PHLOX_BACKENDS", "simm", 1);
  FAILS(px_device_init(), PX_RUNTIME, "No CUDA GPUs are available (PHLOX_BACKENDS is 'simm'");
}

PX_TEST(an_invalid_number_of_threads_fails_the_first_op) {
  PX_SCOPED(px_tensor) t = NULL;
  setenv("PHLOX_THREADS", "some", 1);
  CHECK(px_num_threads() > 0);
  const int64_t sizes[] = {2};
  FAILS(px_ones(&t, sizes, 1, PX_FLOAT32, px_cpu(), false, false), PX_VALUE,
        "PHLOX_THREADS must be a number from 0 to 65536, but is 'some'");
  CHECK(t == NULL);
  setenv("PHLOX_THREADS", "3", 1);
  OK(px_ones(&t, sizes, 1, PX_FLOAT32, px_cpu(), false, false));
  CHECK_EQ(px_num_threads(), 3);
}

// ---- the default number of threads

static void write_text(const char *name, const char *text) {
  FILE *file = fopen(path_of(name), "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int cores_by(const char *groups) {
  write_text("list", groups);
  return px__cores_of_groups(path_of("."), path_of("list"));
}

PX_TEST(cgroup_v2_limits_include_all_ancestors) {
  CHECK(mkdir(path_of("a"), 0777) == 0 && mkdir(path_of("a/b"), 0777) == 0);
  write_text("a/b/cpu.max", "max 100000\n");
  CHECK_EQ(cores_by("0::/a/b\n"), INT_MAX);
  write_text("a/b/cpu.max", "350000 100000\n");
  CHECK_EQ(cores_by("0::/a/b\n"), 4);
  write_text("a/cpu.max", "20000 100000\n");
  CHECK_EQ(cores_by("0::/a/b\n"), 1);
  CHECK_EQ(cores_by("0::/elsewhere\n"), INT_MAX);
  write_text("cpu.max", "200000 100000\n");
  CHECK_EQ(cores_by("0::/elsewhere\n"), 2);
}

PX_TEST(cgroup_v1_limits_are_two_files) {
  CHECK(mkdir(path_of("cpu"), 0777) == 0 && mkdir(path_of("cpu/job"), 0777) == 0);
  write_text("cpu/job/cpu.cfs_period_us", "100000\n");
  write_text("cpu/job/cpu.cfs_quota_us", "-1\n");
  CHECK_EQ(cores_by("3:cpuset:/\n1:cpuacct,cpu:/job\n"), INT_MAX);
  write_text("cpu/job/cpu.cfs_quota_us", "300000\n");
  CHECK_EQ(cores_by("3:cpuset:/\n1:cpuacct,cpu:/job\n"), 3);
  CHECK_EQ(cores_by("3:cpuset:/job\n2:cpuacct:/job\nwhat is this\n"), INT_MAX);
  CHECK_EQ(px__cores_of_groups(path_of("."), path_of("none")), INT_MAX);
}

PX_TEST(affinity_limits_threads_and_openmp_may_lower_them) {
  cpu_set_t set, one;
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  int cores = px__cores(), first = 0;
  CHECK(cores >= 1 && cores <= CPU_COUNT(&set));
  unsetenv("PHLOX_THREADS");
  static const char *const ignored[] = {"0", "-1", "some", "", "2x", "70000"};
  for (int i = 0; i < 6; i++) {
    setenv("OMP_NUM_THREADS", ignored[i], 1);
    CHECK_EQ(px__threads_default(), cores);
  }
  setenv("OMP_NUM_THREADS", " 1 ,4", 1);
  CHECK_EQ(px__threads_default(), 1);
  unsetenv("OMP_NUM_THREADS");
  while (!CPU_ISSET(first, &set)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK_EQ(px__threads_default(), 1);
  CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
  setenv("OMP_NUM_THREADS", "1", 1);
  CHECK_EQ(px_num_threads(), 1);
}

PX_TEST(an_invalid_processor_level_fails_the_first_op) {
  PX_SCOPED(px_tensor) t = NULL;
  setenv("PHLOX_CPU", "amx2", 1);
  const int64_t sizes[] = {2};
  FAILS(px_ones(&t, sizes, 1, PX_FLOAT32, px_cpu(), false, false), PX_VALUE,
        "PHLOX_CPU must be base or avx2 or avx512 or avx512_bf16 or amx, but is 'amx2'");
  CHECK(t == NULL);
}

PX_TEST(an_invalid_fault_fails_the_first_allocation) {
  static const char *const wrong[] = {"launch", "launch:0", "launch:2x", "lunch:1", "alloc:1,:"};
  void *memory;
  for (int i = 0; i < PX_COUNT_OF(wrong); i++) {
    setenv("PHLOX_FAULT", wrong[i], 1);
    FAILS(px_alloc(&memory, 8), PX_VALUE, "PHLOX_FAULT must be fault points such as launch:3");
    FAILS(px_fault_arm("alloc", 1, false), PX_VALUE, wrong[i]);
  }
  setenv("PHLOX_FAULT", "alloc:2,copy:1+", 1);
  OK(px_alloc(&memory, 8));
  px_free(memory);
  FAILS(px_alloc(&memory, 8), PX_NOMEM, "out of memory");
  CHECK(px_fault_check("copy") && px_fault_check("copy") && !px_fault_check("launch"));
}

// ---- names

PX_TEST(a_misspelt_name_warns_once_with_the_nearest) {
  px_warning_set_sink(keep_warning);
  setenv("PHLOX_SIM_DEVICE", "4", 1);
  setenv("PHLOXY", "not ours", 1);
  simulate(1);
  CHECK_EQ(px_device_count(PX_CUDA), 1);
  OK(px_device_init());
  OK(px__env_check());
  CHECK_EQ(warnings, 1);
  CHECK_TEXT(warned,
             "the environment has PHLOX_SIM_DEVICE, which Phlox does not read: the nearest "
             "name is PHLOX_SIM_DEVICES");
}

PX_TEST(the_first_cpu_op_warns_of_a_misspelt_name) {
  PX_SCOPED(px_tensor) t = NULL;
  px_warning_set_sink(keep_warning);
  setenv("PHLOX_TREADS", "4", 1);
  for (int i = 0; i < 2; i++) {
    px_release(PX_MOVE(t));
    OK(px_ones(&t, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false));
  }
  CHECK_EQ(warnings, 1);
  CHECK(strstr(warned, "PHLOX_TREADS") && strstr(warned, "nearest name is PHLOX_THREADS"));
}

PX_TEST(the_version_has_three_parts) {
  char text[40];
  snprintf(text, sizeof text, "%d.%d.%d", PX_VERSION_MAJOR, PX_VERSION_MINOR, PX_VERSION_PATCH);
  CHECK_TEXT(PX_VERSION, text);
  CHECK_TEXT(px_version(), text);
  CHECK(PX_VERSION_NUMBER >= PX_VERSION_OF(0, 12, 0) && PX_VERSION_NUMBER < PX_VERSION_OF(1, 0, 0));
}

static void warn_twice(void) {
  OK(px_warn(PX_WARN_USER, "three is %d", 3));
  px_warning_set_sink(NULL);
  OK(px_warn(PX_WARN_USER, "dropped"));
}
PX_TEST(warnings_of_c_programs_go_to_stderr) {
  char text[80];
  capture_stderr(text, sizeof text, warn_twice);
  CHECK_TEXT(text, "phlox: UserWarning: three is 3\n");
}

static px_status raise_warning(px_warning category, const char *text) {
  PX_FAIL(PX_RUNTIME, "raised: %s", text);
}
PX_TEST(a_warning_sink_may_raise_an_error) {
  PX_SCOPED(px_tensor) t = NULL;
  px_warning_set_sink(raise_warning);
  setenv("PHLOX_a_name_that_is_much_longer_than_any_of_those_that_the_table_has_by_now", "1", 1);
  FAILS(px_ones(&t, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false), PX_RUNTIME,
        "raised: the environment has PHLOX_a_name");
  unsetenv("PHLOX_a_name_that_is_much_longer_than_any_of_those_that_the_table_has_by_now");
  OK(px_ones(&t, (int64_t[]){2}, 1, PX_FLOAT32, px_cpu(), false, false));
}
