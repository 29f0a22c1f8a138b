// SPDX-License-Identifier: Apache-2.0
// The base layer, for the library's own files: memory, objects, environment, fault points, atomics.
#pragma once
#include "phlox/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#define PX_LIKELY(x) __builtin_expect(!!(x), 1)
#define PX_UNLIKELY(x) __builtin_expect(!!(x), 0)
// A function that every op comes through: what it calls of its file is part of it.
#define PX__FLATTEN __attribute__((flatten))
// A variable of the library's own that every op looks at: its address is known without a look.
#define PX__HIDDEN __attribute__((visibility("hidden")))
// The same of each thread: a function that looks at several asks once where the thread has them.
#define PX__HIDDEN_THREAD __attribute__((visibility("hidden"), tls_model("local-dynamic")))
#define PX_COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

// Host memory. px__alloc is the library's only malloc: it passes the fault point "alloc". Memory is
// zeroed. px__free takes NULL.
__attribute__((warn_unused_result)) px_status px__alloc(void **out, size_t bytes);
__attribute__((warn_unused_result)) px_status px__realloc(
    void **place, size_t bytes);  // new bytes are not zeroed; on failure *place is unchanged
void px__free(void *memory);
// PX_NEW(&object): allocates and zeroes one object of the pointed-to type.
#define PX_NEW(place) px__alloc((void **)(place), sizeof **(place))
// Products and sums of sizes; true on overflow.
static inline bool px__mul_size(int64_t a, int64_t b, int64_t *out) {
  return __builtin_mul_overflow(a, b, out);
}
static inline bool px__add_size(int64_t a, int64_t b, int64_t *out) {
  return __builtin_add_overflow(a, b, out);
}

// Whether the process has no other thread, as the C library knows: then what is atomic need not be
// locked.
static inline bool px__single_threaded(void) {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded;
#else
  return false;
#endif
}

// Starts the count of a new object at 1. Destroy functions call px__object_end before they free the
// memory.
void px__object_init(void *object, const px_class *cls);
void px__object_end(void *object);

// The number of threads whose CPU kernel was told to end early; atomic. Read at each launch, and
// cheaper than what belongs to the thread.
extern int px__stop_count;
px_status px__stopped_forget(void);
// The kernel is over: gives what stopped it, and forgets it; PX_OK: nothing did.
static inline px_status px__stopped_take(void) {
  bool none = __atomic_load_n(&px__stop_count, __ATOMIC_RELAXED) == 0;
  return __builtin_expect(none, 1) ? PX_OK : px__stopped_forget();
}
// memcpy for memory of any size, which ends early between pieces.
px_status px__copy_interruptible(void *to, const void *from, size_t bytes);
// A list of blocks, which begin with a px__thread_slot. px__thread_slot_take gives the calling
// thread one that no other has, perhaps with what that has left in it, or a new one of zeros; NULL
// without memory. It passes no fault point: callers go on without.
typedef struct px__thread_slot {
  struct px__thread_slot *next;
  bool taken;  // atomic
} px__thread_slot;
void px__thread_slot_add(px__thread_slot **list, px__thread_slot *slot);
void *px__thread_slot_take(px__thread_slot **list, size_t bytes);
void px__thread_slot_release(px__thread_slot *slot);
// Saves the thread's error while cleanup runs, which may set another one.
typedef struct px__error_guard {
  bool held;
  px_error error;
} px__error_guard;
void px__error_save(px__error_guard *guard);
void px__error_restore(px__error_guard *guard);

// px__env_NAME(&value) reads a variable of phlox/env.def into a place of its type. The environment
// is asked at each call: keep the result where the call is hot.
enum {
#define PX_ENV(name, type, fallback, allowed, doc) PX__ENV_##name,
#include "phlox/env.def"
#undef PX_ENV
};
px_status px__env_read_row(int row, void *out) __attribute__((warn_unused_result));
#define PX_ENV(name, type, fallback, allowed, doc) \
  __attribute__((warn_unused_result)) static inline px_status px__env_##name(px_env_##type *out) { \
    return px__env_read_row(PX__ENV_##name, out); \
  }
#include "phlox/env.def"
#undef PX_ENV
// Warns, once in a process, of names in the environment that begin with PHLOX_ and are not in the
// table. If the sink makes errors of warnings, the error remains until the name is gone. Calls the
// sink: no lock may be held.
px_status px__env_check(void);
// The cores that this process may use, at least 1.
int px__cores(void);
// The most that control groups allow: those whose names `list` has (/proc/self/cgroup), in the
// folder `root` (/sys/fs/cgroup). INT_MAX: no limit.
int px__cores_of_groups(const char *root, const char *list);
// Whether kernels of this thread run on it alone (px_threads_alone).
bool px__thread_is_alone(void);
// The number of threads where neither the program nor PHLOX_THREADS asks for one.
int px__threads_usual(void);
// Fails if PHLOX_THREADS has a bad value, and the program has set no count itself.
px_status px__threads_check(void);
// Fails if PHLOX_CPU has a bad value.
px_status px__processor_check(void);

// Fault points: px__fault(PX__FAULT_ALLOC) is true if the calling operation must fail. One
// predicted branch while nothing is armed.
#define PX_FAULT_POINTS(XX) \
  XX(ALLOC, "alloc") \
  XX(DEVICE_ALLOC, "device.alloc") \
  XX(HOST_ALLOC, "host.alloc") \
  XX(LAUNCH, "launch") \
  XX(KERNEL, "kernel") \
  XX(COPY, "copy") \
  XX(STREAM, "stream") \
  XX(EVENT, "event") \
  XX(FILE, "file") \
  XX(THREAD, "thread") \
  XX(COLLECTIVE, "collective") XX(INTERRUPT, "interrupt") XX(GRAPH, "graph") XX(MAP, "map")
typedef enum px__fault_point {
#define XX(name, text) PX__FAULT_##name,
  PX_FAULT_POINTS(XX)
#undef XX
      PX__FAULT_COUNT
} px__fault_point;
// Arms the points of PHLOX_FAULT, once. Fails if its text is wrong; until that is mended, host
// memory cannot be allocated.
px_status px__fault_begin(void);
extern PX__HIDDEN int px__fault_armed;  // atomic: number of armed points
bool px__fault_hit(px__fault_point point);
static inline bool px__faults(void) {
  return PX_UNLIKELY(__atomic_load_n(&px__fault_armed, __ATOMIC_RELAXED) != 0);
}
static inline bool px__fault(px__fault_point point) { return px__faults() && px__fault_hit(point); }

// Starts a joinable thread (fault point "thread").
__attribute__((warn_unused_result)) px_status px__thread_start(pthread_t *out, void *(*run)(void *),
                                                               void *argument);

// A growing text for messages and printing. Adding to it cannot fail: without memory it stays as it
// was, and `failed` is set.
typedef struct px__text {
  char *at;
  size_t length, room;
  bool failed;
} px__text;
void px__text_add(px__text *text, const char *format, ...) PX_PRINTF(2, 3);
// Writes "[2, 3]" to `room`; returns it.
const char *px__sizes_text(char *text, size_t room, int n, const int64_t *sizes);
