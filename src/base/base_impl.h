// SPDX-License-Identifier: Apache-2.0
// Internal interface of the base layer: memory, objects, environment, fault points, atomics.
#pragma once
#include "phlox/base.h"
#include "phlox/spin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PX_LIKELY(x) __builtin_expect(!!(x), 1)
#define PX_UNLIKELY(x) __builtin_expect(!!(x), 0)
// For functions on the path of every op: inlines all calls of functions in the same file.
#define PX__FLATTEN __attribute__((flatten))
// For variables read by every op: hidden, so the address needs no look-up in the GOT.
#define PX__HIDDEN __attribute__((visibility("hidden")))
// The same for thread-local variables: a function computes the thread's base address once.
#define PX__HIDDEN_THREAD __attribute__((visibility("hidden"), tls_model("local-dynamic")))
#define PX_COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

// True if a warning given once per process, with its own flag (atomic), is due.
bool px__warns(bool *warned);

// Host memory. px__alloc zeroes it; px__free accepts NULL. px__alloc and px__realloc pass the fault
// point "alloc".
__attribute__((warn_unused_result)) px_status px__alloc(void **out, size_t bytes);
__attribute__((warn_unused_result)) px_status px__realloc(
    void **place, size_t bytes);  // new bytes are not zeroed; on failure *place is unchanged
void px__free(void *memory);
// PX_NEW(&object): allocates and zeroes one object of the pointed-to type.
#define PX_NEW(place) px__alloc((void **)(place), sizeof **(place))
// Overflow-checked products and sums of sizes. Return true on overflow.
static inline bool px__mul_size(int64_t a, int64_t b, int64_t *out) {
  return __builtin_mul_overflow(a, b, out);
}
static inline bool px__add_size(int64_t a, int64_t b, int64_t *out) {
  return __builtin_add_overflow(a, b, out);
}

// Counts a new object and sets its references to 1. Destroy functions call px__object_end before
// they free the memory.
void px__object_init(void *object, const px_class *cls);
void px__object_end(void *object);

// Number of threads with an interrupted CPU kernel; atomic. Read at each launch, since it is
// cheaper than thread-local state.
extern int px__interrupted_count;
px_status px__interrupted_clear(void);
// Called after a kernel: returns and clears the error of its interruption, or PX_OK.
static inline px_status px__interrupted_take(void) {
  bool none = __atomic_load_n(&px__interrupted_count, __ATOMIC_RELAXED) == 0;
  return __builtin_expect(none, 1) ? PX_OK : px__interrupted_clear();
}
// memcpy in pieces, interruptible between them.
px_status px__copy_interruptible(void *to, const void *from, size_t bytes);
// `PX__INTS(strides);` defines a list of integers until the end of the scope; px__ints_reserve sets
// its size. Few are on the stack, which may be small.
enum { PX__FEW_INTS = 96 };
typedef struct px__ints {
  int64_t *at, few[PX__FEW_INTS];
} px__ints;
static inline void px__ints_drop(px__ints *list) {
  if (PX_UNLIKELY(list->at != list->few)) px__free(list->at);
}
static inline px_status px__ints_reserve(px__ints *list, int64_t count) {
  if (PX_LIKELY(count <= PX__FEW_INTS)) return PX_OK;
  return px__alloc((void **)&list->at, (size_t)count * sizeof *list->at);
}
#define PX__INTS(name) \
  __attribute__((cleanup(px__ints_drop))) px__ints name; \
  (name).at = (name).few
// Per-thread slots, in a list of structs starting with a px__thread_slot. take returns a slot for
// the calling thread: a released one with its old contents, or a new one of zeros. NULL without
// memory; no fault point, since callers work without it.
typedef struct px__thread_slot {
  struct px__thread_slot *next;
  bool taken;  // atomic
} px__thread_slot;
void px__thread_slot_add(px__thread_slot **list, px__thread_slot *slot);
void *px__thread_slot_take(px__thread_slot **list, size_t bytes);
void px__thread_slot_release(px__thread_slot *slot);
// A memory barrier of all threads of the process; a delay where the system refuses it.
bool px__process_barrier_available(void);
void px__process_barrier(void);
// Saves the thread's error during cleanup that may set another one: sets its record aside. A guard
// is restored by the thread that saved it.
typedef struct px__error_guard {
  void *record;  // NULL: no error
  bool lost;     // there was no memory for the record
} px__error_guard;
void px__error_save(px__error_guard *guard);
void px__error_restore(px__error_guard *guard);

// px__env_NAME(&value) reads a variable of phlox/tables/env.def. Each call reads the environment:
// cache the result on hot paths.
enum {
#define PX_ENV(name, type, fallback, allowed, doc) PX__ENV_##name,
#include "phlox/tables/env.def"
#undef PX_ENV
};
px_status px__env_read_row(int row, void *out) __attribute__((warn_unused_result));
#define PX_ENV(name, type, fallback, allowed, doc) \
  __attribute__((warn_unused_result)) static inline px_status px__env_##name(px_env_##type *out) { \
    return px__env_read_row(PX__ENV_##name, out); \
  }
#include "phlox/tables/env.def"
#undef PX_ENV
// Warns once per process of environment variables named PHLOX_* but missing in the table. If the
// sink turns warnings into errors, every call fails until the name is gone. Calls the sink: no lock
// may be held.
px_status px__env_check(void);
// Returns the number of cores usable by this process, at least 1.
int px__cores(void);
// Returns the limit set by the control groups listed in `list` (/proc/self/cgroup), below the
// folder `root` (/sys/fs/cgroup). INT_MAX: no limit.
int px__cores_of_groups(const char *root, const char *list);
// True if kernels of this thread run on it alone (px_set_single_threaded).
bool px__thread_is_alone(void);
// The default number of threads, without px_set_num_threads and PHLOX_THREADS.
int px__threads_default(void);
// Fails if PHLOX_THREADS has a bad value, unless the program has set a count.
px_status px__threads_check(void);
// Fails if PHLOX_CPU has a bad value.
px_status px__processor_check(void);

// Fault points: px__fault(PX__FAULT_ALLOC) is true if the calling operation must fail. Costs one
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
// Arms the points of PHLOX_FAULT, once. Fails if it is malformed. Host memory cannot be allocated
// then.
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

// A growing text. Adding to it cannot fail: without memory it stays unchanged and sets `failed`.
typedef struct px__text {
  char *at;
  size_t length, capacity;
  bool failed;
} px__text;
void px__text_add(px__text *text, const char *format, ...) PX_PRINTF(2, 3);
// Returns the number of bytes of the first UTF-8 character of a text; 0 if its bytes are not UTF-8.
int px__utf8_length(const char *text);
// Writes "[2, 3]" to `text` and returns it.
const char *px__sizes_text(char *text, size_t capacity, int n, const int64_t *sizes);
