// SPDX-License-Identifier: Apache-2.0
// The GIL in callbacks from the core, on any thread and at any time.
//
// Daemon threads and threads of the library may outlive the interpreter. CPython before 3.14 ends
// such a thread by pthread_exit once it requests the GIL, also within Python code of a callback.
// Frames of the core are below the callback, and other threads may work on their data. A cleanup
// handler therefore stops the thread instead, like CPython 3.14.
#include "bind/ext.h"

#include <unistd.h>

// glibc's non-lexical form of pthread_cleanup_push. The handler runs above all frames of the
// thread, which stay intact.
void _pthread_cleanup_push(struct _pthread_cleanup_buffer *, void (*)(void *), void *);
void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *, int);

void ext_stop_thread(void) {
  for (;;) pause();
}
static void stop_thread(void *unused) { ext_stop_thread(); }

bool ext_has_ended;
static void end(void) { __atomic_store_n(&ext_has_ended, true, __ATOMIC_RELAXED); }
int ext_gil_watch(void) {
  if (Py_AtExit(end) == 0) return 0;
  PyErr_SetString(PyExc_RuntimeError, "too many exit functions");
  return -1;
}

// PyGILState_Check is true on any thread once a subinterpreter was made, and during finalization.
bool ext_gil_held(void) {
  PyThreadState *current = PyThreadState_GetUnchecked();
#if PY_VERSION_HEX < 0x030C0000  // the state of the GIL's owner, on whichever thread
  return current && current == PyGILState_GetThisThreadState();
#else
  return current;
#endif
}

bool ext_is_ending(void) {
  return __atomic_load_n(&ext_has_ended, __ATOMIC_RELAXED) || !Py_IsInitialized() ||
         Py_IsFinalizing();
}

// The main thread runs Python code until the interpreter has ended.
static bool is_finalizing_thread(void) {
  return Py_IsFinalizing() && getpid() == gettid() && PyGILState_GetThisThreadState();
}

px_status ext_gil_take(ext_gil *gil) {
  gil->held = ext_gil_held();
  PX_CHECK(gil->held || !ext_is_ending() || is_finalizing_thread(), PX_RUNTIME,
           "cannot call Python at interpreter shutdown");
  _pthread_cleanup_push(&gil->guard, stop_thread, NULL);
  if (!gil->held) gil->state = PyGILState_Ensure();
  return PX_OK;
}

void ext_gil_give(ext_gil *gil) {
  if (!gil->held) PyGILState_Release(gil->state);
  _pthread_cleanup_pop(&gil->guard, 0);
}
