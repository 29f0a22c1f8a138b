// SPDX-License-Identifier: Apache-2.0
// The test harness: PX_TEST(name) { ... } registers a test; each runs in a process of its own, with
// a time limit, so that a crash or a hang is one failed test. Usage of a test program: PROGRAM [-l]
// [-t SECONDS] [NAME...]; -f runs in this process.
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
// Its runtime waits a second at the end of a process for races of threads that still run. Tests are
// processes, and some start a hundred.
#ifndef TSAN_DEFAULTS
#define TSAN_DEFAULTS "atexit_sleep_ms=20"
#endif
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return TSAN_DEFAULTS; }
// Gloo is not built with the tool, which cannot see the atomic counts that keep its buffers alive.
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:libgloo.so"; }
#endif

typedef struct px_test {
  const char *name;
  void (*run)(void);
} px_test;
// Writes the path of `name` in the build folder. The build folder is the one above `tests` in the
// path of this program.
static inline void built_path(char *path, size_t capacity, const char *name) {
  char *tests = NULL;
  ssize_t length = readlink("/proc/self/exe", path, capacity - 1);
  if (length < 0) length = 0;
  path[length] = 0;
  for (char *next = path; (next = strstr(next, "/tests/")); next++) tests = next;
  if (tests) snprintf(tests, capacity - (size_t)(tests - path), "%s%s", *name ? "/" : "", name);
}

// Counts what a run was put through: a line in the file that TALLY names (tools/tally.sh sums up).
static inline void tally(const char *what, int64_t count) {
  const char *path = getenv("TALLY");
  FILE *file = path && count ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s %lld\n", what, (long long)count);
  fclose(file);
}

#define PX_TEST(name) \
  static void test_##name(void); \
  static const px_test entry_##name = {#name, test_##name}; \
  static const px_test *const pointer_##name __attribute__((section("px_tests"), used)) = \
      &entry_##name; \
  static void test_##name(void)

// CHECK(condition): fails the test. OK(call): the call must succeed. FAILS(call, code, text): must
// fail with code, message holding text.
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
      const px_error *error_ = px_error_last(); \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, px_status_name(status_), \
              error_->message); \
      for (int i_ = 0; i_ < error_->frame_count; i_++) \
        fprintf(stderr, "  at %s:%d %s\n", error_->frames[i_].file, error_->frames[i_].line, \
                error_->frames[i_].function); \
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

// Runs one test in a child; 0 passed, 1 failed, 2 skipped.
static int run_apart(const px_test *test, unsigned seconds) {
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
  bool list = false, here = false;
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
  unsigned seconds = 900;  // all is up to ten times as slow, on a busy machine too
#else
  unsigned seconds = 120;
#endif
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-l"))
      list = true;
    else if (!strcmp(argv[i], "-f"))
      here = true;
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
    if (here) {
      (*at)->run();
      passed++;
      continue;
    }
    int result = run_apart(*at, seconds);
    printf("%s %s\n", result == 0 ? "ok" : result == 1 ? "FAIL" : "skip", (*at)->name);
    passed += result == 0, failed += result == 1, skipped += result == 2;
  }
  if (!list) printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed != 0;
}
