// SPDX-License-Identifier: Apache-2.0
// torch.futures: a value that is to come, set once by one thread and waited for by others. All
// fields are guarded by the GIL. The value of work of a device is there at once, with an event
// that streams wait for: those of who waits, and one on which what follows it runs.
#include "bind/ext.h"
#include "phlox/stream.h"

typedef struct future_object {
  PyObject_HEAD PyObject *value;  // the result, or the exception; NULL until it is done
  bool failed;
  PyObject *callbacks;  // a list; NULL where there are none
  PyObject *event;      // what threads wait for; NULL until one does
  px_event *behind;     // the work of a device that the value is of, or NULL
  px_device device;
} future_object;
static future_object *future_of(PyObject *self) { return (future_object *)self; }
EXT_OWNS(future, EXT_OBJECT(future_object, value), EXT_OBJECT(future_object, callbacks),
         EXT_OBJECT(future_object, event), EXT_CORE(future_object, behind));
EXT_MODULE(futures, "futures", "Values that are to come.");

EXT_NEW(future, "(*, devices: Sequence[Device] | None = None)") {
  EXT_ARGS(PyObject *, devices);
  Py_ssize_t count = devices ? PySequence_Size(devices) : 0;
  if (count < 0) return NULL;
  if (count)
    EXT_FAIL(PyExc_NotImplementedError,
             "torch.futures.Future(devices=) is not implemented in Phlox");
  return ext_new(type);
}
EXT_TYPE(future, "torch.futures.Future", "futures.Future", future_object, EXT_BASETYPE | EXT_GC,
         "A value that is to come.\n\n"
         ">>> future = torch.futures.Future()\n"
         ">>> double = future.then(lambda future: 2 * future.value())\n"
         ">>> future.set_result(21); double.wait()\n"
         "42\n",
         EXT_LIFETIME_SLOTS(future), .tp_new = future_new);

// ---- when it is done

// What a callback raises has nobody to go to.
static void call_back(PyObject *callback, PyObject *self) {
  EXT_OWNED *result = PyObject_CallOneArg(callback, self);
  if (!result) PyErr_WriteUnraisable(callback);
}

static int complete(PyObject *object, PyObject *value, bool failed) {
  future_object *self = future_of(object);
  if (self->value)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Attempting to mark a completed Future as complete again. Note that a Future can "
                 "only be marked completed once.");
  self->value = Py_NewRef(value);
  self->failed = failed;
  EXT_OWNED *callbacks = self->callbacks;
  self->callbacks = NULL;
  EXT_OWNED *set = self->event ? PyObject_CallMethod(self->event, "set", NULL) : NULL;
  if (self->event && !set) return -1;
  for (Py_ssize_t i = 0; callbacks && i < PyList_GET_SIZE(callbacks); i++)
    call_back(PyList_GET_ITEM(callbacks, i), object);
  return 0;
}

EXT_METHOD(future, set_result, "(result: Any) -> None", "Gives the value: once, or RuntimeError.") {
  PyObject *result = NULL;
  EXT_BIND(result);
  return complete(self, result ? result : Py_None, false) < 0 ? NULL : Py_NewRef(Py_None);
}
EXT_METHOD(future, set_exception, "(result: Exception) -> None",
           "Gives what wait() and value() raise, in the place of a value.") {
  EXT_ARGS(PyObject *, result);
  if (!result || !PyExceptionInstance_Check(result))
    EXT_FAIL(PyExc_AssertionError, "%S is of type %S, not an Exception.", result ? result : Py_None,
             (PyObject *)Py_TYPE(result ? result : Py_None));
  return complete(self, result, true) < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *ext_future_new(void) { return ext_new(&future_type); }
int ext_future_complete(PyObject *future, PyObject *value, bool failed) {
  return complete(future, value, failed);
}
void ext_future_set_event(PyObject *future, px_event *event_take, px_device device) {
  px_release(future_of(future)->behind);
  future_of(future)->behind = event_take;
  future_of(future)->device = device;
}

// ---- what it gives

static PyObject *outcome(const future_object *self) {
  if (!self->failed) return Py_NewRef(self->value);
  PyErr_SetObject((PyObject *)Py_TYPE(self->value), self->value);
  return NULL;
}

EXT_RETURNS(future, done, "bool", (bool)(future_of(self)->value != NULL),
            "Whether it has a value.");
EXT_METHOD0(future, value, "Any", "The value of a future that is done; RuntimeError of another.") {
  if (future_of(self)->value) return outcome(future_of(self));
  EXT_FAIL(PyExc_RuntimeError, "the Future is not completed: wait() waits for it");
}
EXT_METHOD0(future, wait, "Any", "Waits for the value, and gives it.") {
  future_object *future = future_of(self);
  if (!future->value && !future->event) {
    EXT_OWNED *event = ext_call_from("threading", "Event", "()");
    if (!event) return NULL;
    if (!future->event) future->event = Py_NewRef(event);
  }
  EXT_OWNED *event = Py_XNewRef(future->event);
  EXT_OWNED *waited = future->value ? Py_NewRef(Py_None) : PyObject_CallMethod(event, "wait", NULL);
  if (!waited) return NULL;
  if (future->behind) {
    px_stream *current;
    EXT_TRY(px_stream_current(&current, future->device));
    EXT_TRY(px_stream_wait_event(current, future->behind));
  }
  return outcome(future);
}

// ---- what follows it

static int follow(PyObject *object, PyObject *callback) {
  future_object *self = future_of(object);
  if (self->value) return call_back(callback, object), 0;
  if (!self->callbacks && !(self->callbacks = PyList_New(0))) return -1;
  return PyList_Append(self->callbacks, callback);
}
static int need_callback(PyObject *callback) {
  if (callback && PyCallable_Check(callback)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "expected a function, not %s",
               ext_type_name(callback ? callback : Py_None));
}
EXT_METHOD(future, add_done_callback, "(callback: Callable[[Future], Any]) -> None",
           "Calls callback(self) when it is done: at once where it is.") {
  EXT_ARGS(PyObject *, callback);
  return ext_none_unless(need_callback(callback) < 0 || follow(self, callback) < 0);
}

// A callback with what it works on, (child, more).
static int follow_with(PyObject *object, PyMethodDef *def, PyObject *child, PyObject *more) {
  EXT_OWNED *pair = PyTuple_Pack(2, child, more);
  EXT_OWNED *callback = pair ? PyCFunction_New(def, pair) : NULL;
  return callback ? follow(object, callback) : -1;
}

// Calls back on a stream of its own, behind the parent's work; the child's is what it is given.
static PyObject *call_on_stream(PyObject *child, PyObject *callback, PyObject *parent) {
  PX_SCOPED(px_stream) stream = NULL;
  PX_SCOPED(px_stream) before = NULL;
  PX_SCOPED(px_event) event = NULL;
  px_stream *current;
  px_device device = future_of(parent)->device;
  EXT_TRY(px_stream_current(&current, device));
  before = px_retain(current);
  EXT_TRY(px_stream_new(&stream, device, 0));
  EXT_TRY(px_event_new(&event, 0));
  EXT_TRY(px_stream_wait_event(stream, future_of(parent)->behind));
  EXT_TRY(px_stream_set_current(stream));
  EXT_OWNED *result = PyObject_CallOneArg(callback, parent);
  EXT_TRY(px_stream_set_current(before));
  if (!result) return NULL;
  EXT_TRY(px_event_record(event, stream));
  ext_future_set_event(child, PX_MOVE(event), device);
  return ext_moved(&result);
}

static PyObject *run_then(PyObject *pair, PyObject *parent) {
  PyObject *child = PyTuple_GET_ITEM(pair, 0), *callback = PyTuple_GET_ITEM(pair, 1);
  EXT_OWNED *result = future_of(parent)->behind ? call_on_stream(child, callback, parent)
                                                : PyObject_CallOneArg(callback, parent);
  EXT_OWNED *raised = result ? NULL : ext_exception_take();
  EXT_OWNED *text =
      raised ? PyUnicode_FromFormat("Got the following error when running the callback: %s: %S",
                                    ext_type_name(raised), raised)
             : NULL;
  EXT_OWNED *error = text ? PyObject_CallOneArg(PyExc_RuntimeError, text) : NULL;
  if (!result && !error) return NULL;
  return complete(child, result ? result : error, !result) < 0 ? NULL : Py_NewRef(Py_None);
}
static PyMethodDef then_def = {"then", run_then, METH_O, NULL};
EXT_METHOD(future, then, "(callback: Callable[[Future], Any]) -> Future",
           "A future of callback(self), which is called when this one is done.") {
  EXT_ARGS(PyObject *, callback);
  if (need_callback(callback) < 0) return NULL;
  EXT_OWNED *child = ext_new(&future_type);
  if (!child || follow_with(self, &then_def, child, callback) < 0) return NULL;
  return ext_moved(&child);
}
EXT_CLASS_METHOD(future, __class_getitem__, "(item: Any) -> type", NULL) {
  EXT_ARGS(PyObject *, item);
  return Py_NewRef(self);
}

// ---- several

static PyObject *collected(PyObject *pair, PyObject *unused) {
  PyObject *child = PyTuple_GET_ITEM(pair, 0), *list = PyTuple_GET_ITEM(pair, 1), *error = NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    const future_object *one = future_of(PyList_GET_ITEM(list, i));
    if (!one->value) Py_RETURN_NONE;
    if (one->failed && !error) error = one->value;
  }
  if (future_of(child)->value) Py_RETURN_NONE;  // the last two were done at the same time
  return complete(child, error ? error : list, error) < 0 ? NULL : Py_NewRef(Py_None);
}
static PyMethodDef collected_def = {"collected", collected, METH_O, NULL};

EXT_FUNCTION(futures, collect_all, "(futures: list[Future]) -> Future",
             "A future that is done when all are, with the list of them; it fails if one does.") {
  EXT_ARGS(PyObject *, futures);
  EXT_OWNED *list = futures ? PySequence_List(futures) : PyList_New(0);
  EXT_OWNED *child = list ? ext_new(&future_type) : NULL;
  if (!child) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
    if (!PyObject_TypeCheck(PyList_GET_ITEM(list, i), &future_type))
      EXT_FAIL(PyExc_TypeError, "expected a Future as element %zd, but got %s", i,
               ext_type_name(PyList_GET_ITEM(list, i)));
  if (!PyList_GET_SIZE(list) && complete(child, list, false) < 0) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
    if (follow_with(PyList_GET_ITEM(list, i), &collected_def, child, list) < 0) return NULL;
  return ext_moved(&child);
}
EXT_FUNCTION(futures, wait_all, "(futures: list[Future]) -> list[Any]",
             "Waits for all, and gives their values.") {
  EXT_ARGS(PyObject *, futures);
  EXT_OWNED *child = PyObject_CallMethod(self, "collect_all", "O", futures ? futures : Py_None);
  EXT_OWNED *list = child ? PyObject_CallMethod(child, "wait", NULL) : NULL;
  PyObject *values = list ? PyList_New(PyList_GET_SIZE(list)) : NULL;
  for (Py_ssize_t i = 0; values && i < PyList_GET_SIZE(list); i++)
    PyList_SET_ITEM(values, i, Py_NewRef(future_of(PyList_GET_ITEM(list, i))->value));
  return values;
}
