// SPDX-License-Identifier: Apache-2.0
// torch.distributed.Work: a collective that has begun, and its future.
#include "dist/group.h"

typedef struct work_object {
  PyObject_HEAD px_work *work;
  PyObject *outputs, *future;  // outputs: a list, or NULL for a send or receive
} work_object;
#define W(self) (((work_object *)(self))->work)
#define O(self) ((work_object *)(self))
EXT_OWNS(work, EXT_CORE(work_object, work), EXT_OBJECT(work_object, outputs),
         EXT_OBJECT(work_object, future));
EXT_NEW(work, "()") { EXT_FAIL(PyExc_TypeError, "torch.distributed.Work: collectives make it"); }
EXT_TYPE(work, "torch.distributed.Work", "_Work", work_object, EXT_FINAL | EXT_CYCLES,
         "A collective that has begun.", EXT_LIFE(work), .tp_new = work_new);

PyObject *ext_work(px_work *work_take, PyObject *outputs) {
  PyObject *self = ext_over(&work_type, work_take);
  if (self) O(self)->outputs = Py_XNewRef(outputs);
  return self;
}

EXT_METHOD(work, wait, "(timeout: Any | None = None) -> bool",
           "Waits for the end; of devices, makes the current stream wait.") {
  PyObject *timeout;
  int64_t milliseconds;
  EXT_BIND(timeout);
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  EXT_WAIT(px_work_wait(W(self), milliseconds));
  Py_RETURN_TRUE;
}
EXT_DOES(work, synchronize, px_work_wait(W(self), 0), "Waits for the end, as wait() does.");
EXT_GIVES(work, is_completed, "bool", (bool)px_work_is_completed(W(self)), "Whether it has ended.");
EXT_GIVES(work, is_success, "bool",
          (bool)(px_work_is_completed(W(self)) && !px_work_error(W(self))),
          "Whether it has ended without an error.");

static PyObject *raised_by(px_work *work) {
  const px_error *error = px_work_error(work);
  if (!error) Py_RETURN_NONE;
  (void)px_error_give(error);
  ext_raise();
  return ext_exception_take();
}
EXT_METHOD0(work, exception, "Exception | None", "What went wrong, or None.") {
  return raised_by(W(self));
}
EXT_GIVES(work, source_rank, "int", px_work_source(W(self)),
          "The rank of the group that a receive came from.");
EXT_ALSO(work, work_source_rank, _source_rank);
EXT_METHOD0(work, result, "list[Tensor]", "The tensors that it writes.") {
  return O(self)->outputs ? PySequence_List(O(self)->outputs) : PyList_New(0);
}

// ---- its future, a torch.futures.Future

EXT_FUNCTION(torch, _call_back, "(callback: Callable, future: Any) -> None",
             "Calls callback(future). Its exception goes to sys.unraisablehook.") {
  EXT_ARGS(PyObject *, callback, future);
  EXT_OWNED *result = PyObject_CallOneArg(callback, future);
  if (!result) PyErr_WriteUnraisable(callback);
  Py_RETURN_NONE;
}

PyObject *ext_future_new(void) { return ext_call_from("phlox.futures", "Future", "()"); }
int ext_future_complete(PyObject *future, PyObject *value, bool failed) {
  EXT_OWNED *set =
      PyObject_CallMethod(future, failed ? "set_exception" : "set_result", "(O)", value);
  return set ? 0 : -1;
}

// On a thread of the communicator.
static void complete(void *context) {
  PyGILState_STATE gil = PyGILState_Ensure();
  EXT_OWNED *self = context;
  EXT_OWNED *error = raised_by(W(self));
  bool failed = error && error != Py_None;
  if (!error || ext_future_complete(O(self)->future, failed ? error : O(self)->outputs, failed) < 0)
    PyErr_WriteUnraisable(self);
  Py_CLEAR(self);
  PyGILState_Release(gil);
}

static int begin_future(PyObject *self) {
  px_event *event = px_work_event(W(self));
  if (!event) {
    EXT_TRY_INT(px_work_at_end(W(self), complete, Py_NewRef(self)));
    return 0;
  }
  PyObject *object = ext_over(&ext_EventType, px_retain(event));
  if (ext_keep(O(self)->future, "_event", object) < 0) return -1;
  return ext_future_complete(O(self)->future, O(self)->outputs, false);
}

EXT_METHOD0(work, get_future, "Any",
            "A torch.futures.Future of the list of tensors that it writes: of devices, it is done "
            "at once, and its wait() makes the current stream wait.") {
  if (!O(self)->outputs)
    EXT_FAIL(PyExc_NotImplementedError,
             "Work.get_future() of a send or receive is not implemented in Phlox");
  if (O(self)->future) return Py_NewRef(O(self)->future);
  if (!(O(self)->future = ext_future_new())) return NULL;
  return begin_future(self) < 0 ? NULL : Py_NewRef(O(self)->future);
}
