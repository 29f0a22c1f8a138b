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

static void stop_thread(void *unused) {
  for (;;) pause();
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

bool ext_is_ending(void) { return !Py_IsInitialized() || Py_IsFinalizing(); }

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
