// SPDX-License-Identifier: Apache-2.0
// Errors, objects and warnings. Every other header depends on this one.
//
// Errors. A fallible function returns px_status (PX_OK is 0) and its results through its first
// parameters. On failure the calling thread's error record (px_error_last) holds the message and
// the source locations passed on the way up. Setting an error allocates nothing. A NULL argument
// that must not be NULL is PX_TYPE: "px_save(): `path` is NULL". Result pointers, and the objects
// passed to functions that cannot fail, must not be NULL.
//
// Objects. Tensors, streams, modules and others are opaque and have atomic reference counts. A
// result through `out`, or from any `_new` or `_clone`, is a new reference to be released by the
// caller. Arguments and the results of accessors are borrowed. Functions and parameters named
// `_take` take ownership. px_release(NULL) does nothing.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "phlox/version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PX_API __attribute__((visibility("default")))
// PX_CALL declares a public function that can fail: `PX_CALL px_tensor_view(...)`.
#define PX_CALL PX_API __attribute__((warn_unused_result)) px_status
#define PX_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
// Marks error paths. The compiler places them apart from the hot code.
#define PX_COLD __attribute__((cold))

// Status codes: name, meaning, Python exception.
#define PX_STATUS_MAP(XX) \
  XX(OK, "no error", "") \
  XX(RUNTIME, "invalid operation", "RuntimeError") \
  XX(VALUE, "invalid value", "ValueError") \
  XX(TYPE, "invalid type", "TypeError") \
  XX(INDEX, "index out of range", "IndexError") \
  XX(KEY, "no such key", "KeyError") \
  XX(ATTRIBUTE, "no such attribute", "AttributeError") \
  XX(ASSERTION, "assertion failed", "AssertionError") \
  XX(OVERFLOW, "arithmetic overflow", "OverflowError") \
  XX(ZERO_DIVISION, "division by zero", "ZeroDivisionError") \
  XX(UNIMPLEMENTED, "not implemented", "NotImplementedError") \
  XX(NOMEM, "out of host memory", "MemoryError") \
  XX(OUT_OF_MEMORY, "out of device memory", "OutOfMemoryError") \
  XX(ACCELERATOR, "device error", "AcceleratorError") \
  XX(IO, "input/output error", "OSError") \
  XX(NOT_FOUND, "no such file", "FileNotFoundError") \
  XX(STOP, "end of iteration", "StopIteration") \
  XX(RECURSION, "nested too deeply", "RecursionError") \
  XX(LINALG, "linear algebra failed", "LinAlgError") \
  XX(DIST_BACKEND, "communicator error", "DistBackendError") \
  XX(DIST_NETWORK, "network error", "DistNetworkError") \
  XX(DIST_STORE, "store error", "DistStoreError") \
  XX(FOREIGN, "error of the embedding language", "") \
  XX(BUG, "internal error; please report it", "SystemError")
typedef enum px_status {
#define XX(name, text, exception) PX_##name,
  PX_STATUS_MAP(XX)
#undef XX
      PX_STATUS_COUNT
} px_status;

#define PX_ERROR_MESSAGE 3456
#define PX_ERROR_FRAMES 16
// One error. Plain data: it may be copied, or moved to another thread with px_error_take and
// px_error_give.
typedef struct px_error {
  px_status code;
  int detail;  // the driver's code for PX_ACCELERATOR, errno for PX_IO, otherwise 0
  int frame_count;
  struct {
    const char *file;
    int line;
    const char *function;
  } frames[PX_ERROR_FRAMES];
  void *foreign;  // PX_FOREIGN: the other language's exception, owned by the record
  void (*foreign_release)(void *object);  // releases `foreign`
  char message[PX_ERROR_MESSAGE];
} px_error;

// Return the code's name ("VALUE"), meaning, or Python exception. Static strings.
PX_API const char *px_status_name(px_status code);
PX_API const char *px_status_text(px_status code);
PX_API const char *px_status_exception(px_status code);
// Returns the calling thread's record, valid until the thread's next failing call. Never NULL;
// without an error its code is PX_OK.
PX_API const px_error *px_error_last(void);
// Prints the calling thread's record to stderr, as "RuntimeError: message", then the source
// locations. Prints nothing without an error.
PX_API PX_COLD void px_error_print(void);
// Clears the calling thread's record.
PX_API void px_error_clear(void);
// px_error_take moves the thread's record to *out and clears it. px_error_give installs a record on
// the calling thread, which may be another one, and returns its code. px_error_drop releases the
// exception of a taken record instead.
PX_API void px_error_take(px_error *out);
PX_API PX_COLD px_status px_error_give(const px_error *error);
PX_API void px_error_drop(px_error *error);
// Records an error and returns `code`. `detail` as in px_error. Use PX_FAIL.
PX_API PX_COLD px_status px_error_set(px_status code, int detail, const char *file, int line,
                                      const char *function, const char *format, ...)
    PX_PRINTF(6, 7);
// Records an exception of another language and returns PX_FOREIGN. Clearing the record calls
// release(object).
PX_API PX_COLD px_status px_error_set_foreign(void *object, void (*release)(void *),
                                              const char *message);
// Appends a source location to the trace and returns `code`. Use PX_TRY.
PX_API PX_COLD px_status px_error_add_frame(px_status code, const char *file, int line,
                                            const char *function);
// Appends text to the current message. Use PX_NOTE.
PX_API PX_COLD void px_error_note(const char *format, ...) PX_PRINTF(1, 2);

// Evaluates `call`, which returns `code`. Clang's analyzer cannot see this from outside the
// library. Without the hint it follows paths on which a failing call returns PX_OK.
#ifdef __clang_analyzer__
#define PX_SAME_CODE(code, call) ((void)(call), (code))
#else
#define PX_SAME_CODE(code, call) (call)
#endif

// PX_TRY(call): returns the call's status from the current function if it failed. PX_FAIL(code,
// "text", ...): fails. PX_CHECK(condition, code, "text", ...): fails unless the condition holds.
#define PX_TRY(call) \
  do { \
    px_status px_try_status_ = (call); \
    if (__builtin_expect(px_try_status_ != PX_OK, 0)) \
      return PX_SAME_CODE(px_try_status_, \
                          px_error_add_frame(px_try_status_, __FILE__, __LINE__, __func__)); \
  } while (0)
#define PX_FAIL(code, ...) \
  return PX_SAME_CODE((code), px_error_set((code), 0, __FILE__, __LINE__, __func__, __VA_ARGS__))
#define PX_CHECK(condition, code, ...) \
  do { \
    if (__builtin_expect(!(condition), 0)) PX_FAIL((code), __VA_ARGS__); \
  } while (0)
// PX_GIVEN(pointer): fails with PX_TYPE if the argument is NULL. PX_GIVEN_N(array, count): the
// same, but allows NULL for an empty array, and fails with PX_VALUE for a negative count.
// PX_GIVEN_EACH(array, count): the same, and fails for a NULL element.
#define PX_GIVEN(pointer) PX_CHECK(pointer, PX_TYPE, "%s(): `" #pointer "` is NULL", __func__)
#define PX_GIVEN_N(array, count) \
  do { \
    PX_CHECK((count) >= 1 || (count) == 0, PX_VALUE, \
             "%s(): expected a non-negative count of `" #array "`, got %lld", __func__, \
             (long long)(count)); \
    PX_CHECK((array) || (count) == 0, PX_TYPE, "%s(): `" #array "` is NULL", __func__); \
  } while (0)
#define PX_GIVEN_EACH(array, count) \
  do { \
    PX_GIVEN_N(array, count); \
    for (int64_t each_ = 0; each_ < (count); each_++) \
      PX_CHECK((array)[each_], PX_TYPE, #array "[%lld] is NULL", (long long)each_); \
  } while (0)
#define PX_NOTE(...) px_error_note(__VA_ARGS__)

// Warnings go to the program's sink. The library prints nothing else.
#define PX_WARNING_MAP(XX) \
  XX(USER, "UserWarning") XX(FUTURE, "FutureWarning") XX(DEPRECATION, "DeprecationWarning")
typedef enum px_warning {
#define XX(name, category) PX_WARN_##name,
  PX_WARNING_MAP(XX)
#undef XX
} px_warning;
// A sink may turn a warning into an error: it sets the error record and returns the code, and
// px_warn returns it too. The default sink prints to stderr; NULL drops warnings.
typedef px_status (*px_warning_sink)(px_warning category, const char *text);
PX_API void px_warning_set_sink(px_warning_sink sink);
PX_CALL px_warn(px_warning category, const char *format, ...) PX_PRINTF(2, 3);
// Some warnings are given once per process; `always` repeats them (off at start).
PX_API void px_warn_set_always(bool always);
PX_API bool px_warn_always(void);

// The header of every object with a reference count, at offset 0.
typedef struct px_class {
  const char *name;             // "tensor"
  void (*destroy)(void *self);  // called once, when the last reference is released
} px_class;
typedef struct px_object {
  int32_t refs;  // atomic
  const px_class *cls;
} px_object;
// Adds a reference to any Phlox object; returns it. NULL-safe.
PX_API void *px_retain(const void *object);
// Releases a reference; the last one destroys the object. NULL-safe.
PX_API void px_release(void *object);
// Returns the number of references, for tests and diagnostics.
PX_API int32_t px_refs(const void *object);
// For PX_SCOPED: releases *(void **)variable, the address of a variable.
PX_API void px_release_at(void *variable);
// Returns the reference of a scoped variable and sets the variable to NULL.
PX_API void *px_move_at(void *variable);
// `PX_SCOPED(px_tensor) t = NULL;` releases t at the end of the scope. `PX_MOVE(t)` returns its
// reference and leaves NULL.
#define PX_SCOPED(type) __attribute__((cleanup(px_release_at))) type *
#define PX_MOVE(variable) ((__typeof__(variable))px_move_at(&(variable)))

// For programs with their own objects. px_alloc returns zeroed memory, to be freed with px_free
// (phlox/tensor.h); it passes the fault point "alloc". px_realloc does not zero the added bytes; on
// failure the old pointer stays valid. px_strdup copies a string into such memory. All fail with
// PX_NOMEM. px_object_init sets the reference count to 1. Destroy functions call px_object_end
// before they free the memory.
PX_CALL px_alloc(void **out, size_t bytes);
PX_CALL px_realloc(void **memory, size_t bytes);
PX_CALL px_strdup(char **out, const char *text);
PX_API void px_object_init(void *object, const px_class *cls);
PX_API void px_object_end(void *object);
// Starts a joinable thread; `thread` points to a pthread_t. Passes the fault point "thread".
PX_CALL px_thread_start(void *thread, void *(*run)(void *argument), void *argument);

// Returns the name with the smallest edit distance (insertions, deletions, substitutions) to a
// misspelt one; "" if there are none. at(names, i) returns name i, or NULL past the end.
typedef const char *(*px_name_at)(const void *names, int i);
PX_API const char *px_name_suggest(const char *name, px_name_at at, const void *names);

// The library's version, "major.minor.patch". PX_VERSION is that of the headers.
PX_API const char *px_version(void);
// Returns the number of live objects of class `name`, or of all classes (NULL). Always counted; a
// leak test compares two calls.
PX_API int64_t px_live_objects(const char *name);

// For layers with backends: opens libphlox_NAME.so in `folder` (NULL: none), in this library's
// folder, its subfolder `phlox`, the folder of `make install`, or on the system's paths. NULL if
// there is none. `why` then holds the loader's message, or that none is installed.
enum { PX_LOADER_TEXT = 256 };
PX_API void *px_library_open(const char *folder, const char *name, char why[PX_LOADER_TEXT]);

// Sets a cancellation check for the calling thread; NULL: none. Waits for devices, backward passes,
// large CPU kernels and loaders call it a few times a second, without locks held. They fail with
// its status and error record if it does not return PX_OK (docs/reference/threads.md). The check
// may use the library.
typedef px_status (*px_interrupt_check)(void);
PX_API void px_interrupt_set_check(px_interrupt_check check);
// For long operations: calls the check, unless it was called a moment ago. px_interrupt_wanted is
// true if the thread has a check.
PX_CALL px_interrupt_poll(void);
PX_API bool px_interrupt_wanted(void);
// For CPU kernels: polls the check. Returns true from its failure to the end of the launch, and the
// launch then fails.
PX_API bool px_interrupt_due(void);
// hold(true) suspends the check until hold(false), for code holding a lock or cleaning up. Nests.
PX_API void px_interrupt_hold(bool on);
// Waits on a pthread_cond_t with its pthread_mutex_t held, at most until the next poll is due. The
// condition must use the realtime clock.
PX_API void px_interrupt_wait(void *condition, void *mutex);

// The number of threads of CPU kernels, including the calling one: the last value set, else
// PHLOX_THREADS, else one for each core allowed by affinity and by the CPU limits of the control
// groups, or OMP_NUM_THREADS if lower. Results do not depend on it. Setting fails with PX_RUNTIME
// unless count is positive.
PX_API int px_num_threads(void);
PX_CALL px_set_num_threads(int64_t count);
// While on, kernels launched by the calling thread run on it alone, and px_num_threads returns 1.
// For worker threads running in parallel.
PX_API void px_set_single_threaded(bool on);

// Instruction sets of CPU kernels, from fewest to most. Each includes the ones before it.
// px_cpu_level_used returns the level in use: the processor's, limited by PHLOX_CPU. Results of one
// level do not depend on the machine.
typedef enum px_cpu_level {
  PX_CPU_BASE,
  PX_CPU_AVX2,
  PX_CPU_AVX512,
  PX_CPU_AVX512_BF16,  // dot products of bfloat16
  PX_CPU_AMX           // tile products of bfloat16
} px_cpu_level;
PX_API px_cpu_level px_cpu_level_used(void);

// Environment variables. phlox/tables/env.def is the table; its head describes types and columns.
typedef bool px_env_flag;
typedef int64_t px_env_int, px_env_bytes;
typedef const char *px_env_choice, *px_env_folder, *px_env_text;
typedef struct px_env_row {
  const char *name, *type, *fallback, *doc, *allowed;
} px_env_row;
// Returns the i-th row, or NULL past the end.
PX_API const px_env_row *px_env_at(int i);
// Reads a variable, or its default if unset. `out` points to the C type of the variable's type:
// `int64_t threads; px_env_read("PHLOX_THREADS", &threads)`. Texts are borrowed from the
// environment. PX_VALUE, naming the allowed values, if the value is not allowed; PX_KEY if the
// table has no such variable.
PX_CALL px_env_read(const char *name, void *out);

// Fault points: places where tests inject failures. px_fault_arm makes the nth passage (from 1) of
// a point fail, once, or from then on; nth 0 disarms it. Points: "alloc" "device.alloc"
// "host.alloc" "launch" "kernel" "copy" "stream" "event" "file" "thread" "collective" "interrupt"
// "graph" "map". PX_KEY for others.
PX_CALL px_fault_arm(const char *point, int64_t nth, bool from_then_on);
// Returns the number of passages since the point was last armed.
PX_API int64_t px_fault_seen(const char *point);
PX_API void px_fault_disarm_all(void);
// Counts a passage of a point; true if it must fail. For code that simulates a failure.
PX_API bool px_fault_check(const char *point);

// ---- failed name lookups
// A lookup may return NULL. The call receiving that NULL can still report the unknown name, and a
// suggestion by px_name_suggest.
//
// Records for the calling thread that `name` is not among `names`, an arbitrary address identifying
// the set. px_name_missed returns the name, truncated to 63 bytes, until the thread records another
// miss or exits; NULL if the last miss was in another set.
PX_API void px_name_miss(const void *names, const char *name);
PX_API const char *px_name_missed(const void *names);

#ifdef __cplusplus
}
#endif
