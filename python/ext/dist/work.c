// SPDX-License-Identifier: Apache-2.0
// torch.distributed.Work: a pending collective, and its future.
#include "dist/group.h"

typedef struct work_object {
  PyObject_HEAD px_work *work;
  PyObject *outputs, *future;  // outputs: a list, or NULL for a send or receive
} work_object;
#define W(self) (((work_object *)(self))->work)
#define O(self) ((work_object *)(self))
EXT_OWNS(work, EXT_CORE(work_object, work), EXT_OBJECT(work_object, outputs),
         EXT_OBJECT(work_object, future));
EXT_NEW(work, "()") {
  EXT_FAIL(PyExc_TypeError, "torch.distributed.Work is created by collectives");
}
EXT_TYPE(work, "torch.distributed.Work", "_Work", work_object, EXT_FINAL | EXT_GC,
         "A pending collective.", EXT_LIFETIME_SLOTS(work), .tp_new = work_new);

PyObject *ext_work(px_work *work_take, PyObject *outputs) {
  PyObject *self = ext_wrap_core(&work_type, work_take);
  if (self) O(self)->outputs = Py_XNewRef(outputs);
  return self;
}

EXT_METHOD(work, wait, "(timeout: Any | None = None) -> bool",
           "Blocks until completion. For device tensors makes the current stream wait instead.") {
  PyObject *timeout;
  int64_t milliseconds;
  EXT_BIND(timeout);
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  EXT_WAIT(px_work_wait(W(self), milliseconds));
  Py_RETURN_TRUE;
}
EXT_RETURNS_NONE(work, synchronize, px_work_wait(W(self), 0), "Like wait(), without a timeout.");
EXT_RETURNS(work, is_completed, "bool", (bool)px_work_is_completed(W(self)),
            "Returns True if the work is complete.");
EXT_RETURNS(work, is_success, "bool",
            (bool)(px_work_is_completed(W(self)) && !px_work_error(W(self))),
            "Returns True if the work is complete without error.");

static PyObject *raised_by(px_work *work) {
  const px_error *error = px_work_error(work);
  if (!error) Py_RETURN_NONE;
  (void)px_error_give(error);
  ext_raise();
  return ext_exception_take();
}
EXT_METHOD0(work, exception, "Exception | None", "Returns the exception of the work, or None.") {
  return raised_by(W(self));
}
EXT_RETURNS(work, source_rank, "int", px_work_source(W(self)),
            "Returns the group rank of the sender of a receive.");
EXT_ALIASES(work, work_source_rank, _source_rank);
EXT_METHOD0(work, result, "list[Tensor]", "Returns the output tensors.") {
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

// Called on a thread of the communicator.
static void complete(void *context) {
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return;
  EXT_OWNED *self = context;
  EXT_OWNED *error = raised_by(W(self));
  bool failed = error && error != Py_None;
  if (!error || ext_future_complete(O(self)->future, failed ? error : O(self)->outputs, failed) < 0)
    PyErr_WriteUnraisable(self);
  Py_CLEAR(self);
  ext_gil_give(&gil);
}

static int begin_future(PyObject *self) {
  px_event *event = px_work_event(W(self));
  if (!event) {
    EXT_TRY_INT(px_work_at_end(W(self), complete, Py_NewRef(self)));
    return 0;
  }
  PyObject *object = ext_event(px_retain(event));
  if (ext_setattr_new(O(self)->future, "_event", object) < 0) return -1;
  return ext_future_complete(O(self)->future, O(self)->outputs, false);
}

EXT_METHOD0(
    work, get_future, "Any",
    "Returns a torch.futures.Future of the output tensors. For device tensors it is complete "
    "at once, and its wait() makes the current stream wait.") {
  if (!O(self)->outputs)
    EXT_FAIL(PyExc_NotImplementedError,
             "Work.get_future() of a send or receive is not implemented in Phlox");
  if (O(self)->future) return Py_NewRef(O(self)->future);
  if (!(O(self)->future = ext_future_new())) return NULL;
  return begin_future(self) < 0 ? NULL : Py_NewRef(O(self)->future);
}
