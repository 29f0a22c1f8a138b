// SPDX-License-Identifier: Apache-2.0
// Deterministic fuzzing. A target runs cases 0, 1, 2, ... for FUZZ_SECONDS (default 1). FUZZ_SEED
// (default 1) and the number determine a case. A failure, or a case longer than FUZZ_LIMIT seconds
// (default 20), prints its number. FUZZ_CASE=n runs only case n. With FUZZ_TO=n a target runs all
// cases before n, for any time.
#pragma once
// Sanitizer allocators return NULL, too, and refuse large sizes early.
#define FUZZ_MEMORY "allocator_may_return_null=1:max_allocation_size_mb=512"
// Pointers to arrays of functions that returned are errors as well.
#define FUZZ_ADDRESS FUZZ_MEMORY ":detect_stack_use_after_return=1"
#define TSAN_DEFAULTS FUZZ_MEMORY ":atexit_sleep_ms=20"
#include "phlox/phlox.h"
#include "test.h"

#include <time.h>

// ---- numbers (splitmix64)
static uint64_t fuzz_state;
static inline uint64_t fuzz_bits(void) {
  uint64_t z = fuzz_state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static inline int64_t fuzz_below(int64_t n) { return (int64_t)(fuzz_bits() % (uint64_t)n); }
static inline bool fuzz_one_in(int64_t n) { return fuzz_below(n) == 0; }
// A small number or an extreme one.
static inline int64_t fuzz_int(void) {
  static const int64_t edges[] = {
      0, -1, 1, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, INT64_MAX - 1, (int64_t)1 << 62};
  if (fuzz_one_in(8)) return edges[fuzz_below(sizeof edges / sizeof *edges)];
  return fuzz_below(13) - 6;
}

// ---- cases
static const char *fuzz_name;
static int64_t fuzz_case;
static uint64_t fuzz_seed;

// Names the case that ended the process. Async-signal-safe: calls only snprintf and write.
static inline void fuzz_died(void) {
  char text[160];
  int n = snprintf(text, sizeof text, "%s: case %lld (FUZZ_CASE=%lld FUZZ_SEED=%llu)\n", fuzz_name,
                   (long long)fuzz_case, (long long)fuzz_case, (unsigned long long)fuzz_seed);
  (void)!write(2, text, (size_t)n);
}
static inline void fuzz_signal(int number) {
  fuzz_died();
  signal(number, SIG_DFL);
  raise(number);
}
#ifdef __SANITIZE_ADDRESS__
void __sanitizer_set_death_callback(void (*callback)(void));
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return FUZZ_ADDRESS; }
#endif
// Errors of the undefined behaviour sanitizer end in SIGABRT, so that the case is named.
__attribute__((visibility("default"))) const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1"; }
static bool fuzz_done;
static const char *fuzz_counts = "inputs";  // the name of the cases in the tally; NULL: not tallied
static inline unsigned fuzz_limit(void) {
  const char *limit = getenv("FUZZ_LIMIT");
  return limit ? (unsigned)atoi(limit) : 20;
}
static inline void fuzz_exit(void) {
  if (!fuzz_done) fuzz_died();
}

static inline double fuzz_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Cases with past findings, by target. They run first.
static const struct {
  const char *name;
  uint64_t seed;
  int64_t number;
} fuzz_kept[] = {
#define SEED(name, seed, number) {#name, seed, number},
#include "fuzz/corpus/seeds.inc"
#undef SEED
};

// Runs a case, which must leave the number of live objects unchanged.
static inline void fuzz_once(uint64_t seed, int64_t number, void (*one)(void)) {
  fuzz_case = number;
  fuzz_seed = seed;
  fuzz_state = seed * 0x2545f4914f6cdd1du + (uint64_t)number;
  int64_t objects = px_live_objects(NULL);
  alarm(fuzz_limit());
  one();
  px_error_clear();
  CHECK_EQ(px_live_objects(NULL), objects);
}

// Runs a target until its time is over.
static inline void fuzz_run(const char *name, void (*one)(void)) {
  const char *only = getenv("FUZZ_CASE"), *from = getenv("FUZZ_FROM");
  const char *seconds = getenv("FUZZ_SECONDS"), *seed = getenv("FUZZ_SEED");
  const char *to = getenv("FUZZ_TO");
  uint64_t base = seed ? strtoull(seed, NULL, 10) : 1;
  double begin = fuzz_now(), end = begin + (seconds ? atof(seconds) : 1);
  fuzz_name = name;
  atexit(fuzz_exit);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(fuzz_died);
#else
  for (int i = 0; i < 3; i++) signal((int[]){SIGSEGV, SIGBUS, SIGFPE}[i], fuzz_signal);
#endif
  signal(SIGABRT, fuzz_signal);
  signal(SIGALRM, fuzz_signal);
  int64_t first = only ? atoll(only) : from ? atoll(from) : 0, last = to ? atoll(to) : INT64_MAX;
  for (size_t i = 0; i < sizeof fuzz_kept / sizeof *fuzz_kept && !only; i++)
    if (!strcmp(fuzz_kept[i].name, name)) fuzz_once(fuzz_kept[i].seed, fuzz_kept[i].number, one);
  for (fuzz_case = first; only || (fuzz_case < last && (to || fuzz_now() < end)); fuzz_case++) {
    fuzz_once(base, fuzz_case, one);
    if (only) break;
  }
  fprintf(stderr, "%s: %lld cases, %.0f a second\n", name, (long long)(fuzz_case - first),
          (double)(fuzz_case - first) / (fuzz_now() - begin));
  if (fuzz_counts) tally(fuzz_counts, fuzz_case - first);
  fuzz_done = true;
}
#define FUZZ(name) \
  static void fuzz_##name(void); \
  PX_TEST(name) { fuzz_run(#name, fuzz_##name); } \
  static void fuzz_##name(void)

// True if a call succeeded, or failed with a text and not by an internal error.
static inline bool fuzz_fine(px_status status) {
  if (status == PX_OK) return true;
  const px_error *e = px_error_last();
  CHECK(e->code == status && e->message[0]);
  if (status == PX_BUG) fprintf(stderr, "%s\n", e->message);
  CHECK(status != PX_BUG);
  px_error_clear();
  return false;
}

// ---- texts
typedef struct fuzz_text {
  char at[4096];
  size_t length;
} fuzz_text;
static inline void fuzz_put(fuzz_text *t, const char *bytes, size_t n) {
  if (n > sizeof t->at - 1 - t->length) n = sizeof t->at - 1 - t->length;
  memcpy(t->at + t->length, bytes, n);
  t->length += n;
  t->at[t->length] = 0;
}
// Random words of a list. One in `noise` is a random byte instead.
static inline void fuzz_words(fuzz_text *t, int count, const char *const *words, int word_count,
                              int noise) {
  for (int i = 0; i < count; i++) {
    char byte = (char)(1 + fuzz_below(255));
    const char *word = words[fuzz_below(word_count)];
    if (noise && fuzz_one_in(noise))
      fuzz_put(t, &byte, 1);
    else
      fuzz_put(t, word, strlen(word));
  }
}
#define FUZZ_WORDS(t, count, words, noise) \
  fuzz_words(t, count, words, (int)(sizeof(words) / sizeof *(words)), noise)
