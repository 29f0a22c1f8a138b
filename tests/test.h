// SPDX-License-Identifier: Apache-2.0
// The test harness. PX_TEST(name) { ... } registers a test. Each test runs in its own process with
// a time limit: a crash or a hang fails only that test. Usage of a test program: PROGRAM [-l] [-t
// SECONDS] [NAME...]. -l lists the tests, -t sets the time limit, -f runs the tests in this
// process.
#pragma once
#include "phlox/base.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
// At exit, ThreadSanitizer sleeps for a second to catch races of running threads. Each test is a
// process, and some start a hundred more, so shorten the sleep.
#ifndef TSAN_DEFAULTS
#define TSAN_DEFAULTS "atexit_sleep_ms=20"
#endif
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return TSAN_DEFAULTS; }
// Gloo is built without ThreadSanitizer, which misses the atomic reference counts of its buffers.
#ifndef TSAN_SUPPRESSIONS
#define TSAN_SUPPRESSIONS ""
#endif
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:libgloo.so\n" TSAN_SUPPRESSIONS; }
#endif

typedef struct px_test {
  const char *name;
  void (*run)(void);
} px_test;
// Writes the path of `name` in the build folder: the parent of `tests` in this program's path.
static inline void built_path(char *path, size_t capacity, const char *name) {
  char *tests = NULL;
  ssize_t length = readlink("/proc/self/exe", path, capacity - 1);
  if (length < 0) length = 0;
  path[length] = 0;
  for (char *next = path; (next = strstr(next, "/tests/")); next++) tests = next;
  if (tests) snprintf(tests, capacity - (size_t)(tests - path), "%s%s", *name ? "/" : "", name);
}

// Appends a counter of test work (schedules, faults, ...) to the file named by TALLY.
// tools/tally.sh adds them up.
static inline void tally(const char *what, int64_t count) {
  const char *path = getenv("TALLY");
  FILE *file = path && count ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s %lld\n", what, (long long)count);
  fclose(file);
}

// Writes the output of `run` on stderr to `text`, truncated.
static inline void capture_stderr(char *text, size_t capacity, void (*run)(void)) {
  FILE *file = tmpfile();
  int kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  run();
  dup2(kept, STDERR_FILENO);
  close(kept);
  rewind(file);
  text[fread(text, 1, capacity - 1, file)] = 0;
  fclose(file);
}

#define PX_TEST(name) \
  static void test_##name(void); \
  static const px_test entry_##name = {#name, test_##name}; \
  static const px_test *const pointer_##name __attribute__((section("px_tests"), used)) = \
      &entry_##name; \
  static void test_##name(void)

// CHECK(condition): fails the test if false. OK(call): fails unless the call succeeds. FAILS(call,
// code, text): the call must fail with `code` and a message that contains `text`.
#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
      exit(1); \
    } \
  } while (0)
#define CHECK_EQ(a, b) \
  do { \
    long long left_ = (long long)(a), right_ = (long long)(b); \
    if (left_ != right_) { \
      fprintf(stderr, "%s:%d: %s is %lld, but %s is %lld\n", __FILE__, __LINE__, #a, left_, #b, \
              right_); \
      exit(1); \
    } \
  } while (0)
#define CHECK_NEAR(a, b, tolerance) \
  do { \
    double left_ = (a), right_ = (b); \
    if (!(fabs(left_ - right_) <= (tolerance))) { \
      fprintf(stderr, "%s:%d: %s is %.9g, but %s is %.9g\n", __FILE__, __LINE__, #a, left_, #b, \
              right_); \
      exit(1); \
    } \
  } while (0)
#define CHECK_TEXT(a, b) \
  do { \
    const char *left_ = (a), *right_ = (b); \
    if (strcmp(left_, right_)) { \
      fprintf(stderr, "%s:%d: got\n  %s\nwanted\n  %s\n", __FILE__, __LINE__, left_, right_); \
      exit(1); \
    } \
  } while (0)
#define OK(call) \
  do { \
    px_status status_ = (call); \
    if (status_ != PX_OK) { \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #call); \
      px_error_print(); \
      exit(1); \
    } \
  } while (0)
#define FAILS(call, wanted, text) \
  do { \
    px_status status_ = (call); \
    if (status_ != (wanted) || !strstr(px_error_last()->message, text)) { \
      fprintf(stderr, "%s:%d: %s gave %s: %s\nwanted %s: %s\n", __FILE__, __LINE__, #call, \
              px_status_name(status_), px_error_last()->message, px_status_name(wanted), text); \
      exit(1); \
    } \
    px_error_clear(); \
  } while (0)
#define SKIP(reason) \
  do { \
    fprintf(stderr, "skipped: %s\n", reason); \
    exit(77); \
  } while (0)

extern const px_test *const __start_px_tests[];
extern const px_test *const __stop_px_tests[];

// Runs one test in a child process. Returns 0 if it passed, 1 if it failed, 2 if it was skipped.
static int run_in_child(const px_test *test, unsigned seconds) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    test->run();
    fflush(NULL);
    exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    fprintf(stderr, "%s: %s\n", test->name,
            WTERMSIG(status) == SIGALRM ? "timed out" : strsignal(WTERMSIG(status)));
  return !WIFEXITED(status) ? 1 : WEXITSTATUS(status) == 77 ? 2 : WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv) {
  int passed = 0, failed = 0, skipped = 0, names = 0;
  bool list = false, in_process = false;
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
  unsigned seconds = 900;  // sanitizers slow a test down by up to ten times, on a busy machine too
#else
  unsigned seconds = 120;
#endif
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-l"))
      list = true;
    else if (!strcmp(argv[i], "-f"))
      in_process = true;
    else if (!strcmp(argv[i], "-t") && i + 1 < argc)
      seconds = (unsigned)atoi(argv[++i]);
    else
      argv[1 + names++] = argv[i];
  }
  for (const px_test *const *at = __start_px_tests; at < __stop_px_tests; at++) {
    bool wanted = names == 0;
    for (int i = 0; i < names; i++) wanted |= !strcmp(argv[1 + i], (*at)->name);
    if (!wanted) continue;
    if (list) {
      puts((*at)->name);
      continue;
    }
    if (in_process) {
      (*at)->run();
      passed++;
      continue;
    }
    int result = run_in_child(*at, seconds);
    printf("%s %s\n", result == 0 ? "ok" : result == 1 ? "FAIL" : "skip", (*at)->name);
    passed += result == 0, failed += result == 1, skipped += result == 2;
  }
  if (!list) printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed != 0;
}
