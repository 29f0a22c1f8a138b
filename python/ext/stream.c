// SPDX-License-Identifier: Apache-2.0
// torch.cuda.Stream and Event: queues of work, and marks in them. An object holds a reference to
// the core's stream or event; two objects of one stream are equal. A stream that is entered keeps
// what was current before, the stream of that device and the device, and goes back to it.
#include "ext.h"

enum { DEPTH = 32 };
typedef struct before {
  int device;
  px_stream *stream;  // owned: of the entered stream's device
} before;
typedef struct scope {
  int depth;
  before saved[DEPTH];
} scope;
typedef struct stream_object {
  PyObject_HEAD px_stream *stream;
  scope scope;
} stream_object;
typedef struct event_object {
  PyObject_HEAD px_event *event;
} event_object;
static px_stream *stream_of(PyObject *self) { return ((stream_object *)self)->stream; }
static px_event *event_of(PyObject *self) { return ((event_object *)self)->event; }

PyObject *ext_stream(px_stream *stream_take) { return ext_over(&ext_StreamType, stream_take); }
int ext_to_stream(PyObject *object, px_stream **out) {
  *out = NULL;
  if (ext_is_none(object)) return 0;
  if (!PyObject_TypeCheck(object, &ext_StreamType))
    EXT_FAIL_INT(PyExc_TypeError, "expected a torch.cuda.Stream, not %s", ext_type_name(object));
  *out = stream_of(object);
  return 0;
}

// ---- making current
static void scope_end(scope *s) {
  while (s->depth > 0) px_release(s->saved[--s->depth].stream);
}
// Nothing is kept until all has worked, so a failure needs no undoing.
static int scope_enter(scope *s, px_stream *stream) {
  if (s->depth == DEPTH) EXT_FAIL_INT(PyExc_RuntimeError, "the stream is entered too often");
  before *b = &s->saved[s->depth];
  px_device device = px_stream_device(stream);
  px_stream *current;
  b->device = px_device_peek();
  EXT_TRY_INT(px_stream_current(&current, device));
  EXT_TRY_INT(px_device_set(device.index));
  EXT_TRY_INT(px_stream_set_current(stream));
  b->stream = px_retain(current);
  s->depth++;
  return 0;
}
static int scope_exit(scope *s) {
  if (!s->depth) EXT_FAIL_INT(PyExc_RuntimeError, "the stream was not entered");
  before *b = &s->saved[--s->depth];
  px_status status = px_stream_set_current(b->stream);
  px_release(b->stream);
  EXT_TRY_INT(status);
  EXT_TRY_INT(px_device_set(b->device));
  return 0;
}

// ---- streams
static void stream_end(PyObject *self) { scope_end(&((stream_object *)self)->scope); }
EXT_OWNS(stream, EXT_ENDS(stream_end), EXT_CORE(stream_object, stream));

EXT_NEW(stream,
        "(device: Device | None = None, priority: int = 0, *, stream_id: int | None = None, "
        "device_index: int | None = None, device_type: int | None = None)") {
  ext_cuda device;
  int64_t priority;
  PyObject *stream_id, *device_index, *device_type;
  px_stream *made = NULL;
  EXT_BIND(device, priority, stream_id, device_index, device_type);
  if (stream_id || device_index || device_type)
    EXT_FAIL(PyExc_NotImplementedError,
             "Stream(): making the object of a stream by its stream_id is not implemented in "
             "Phlox");
  EXT_TRY(px_stream_new(&made, px_cuda(device.index), (int)priority));
  return ext_over(type, made);
}
static PyObject *stream_repr(PyObject *self) {
  char device[PX_DEVICE_TEXT], text[96];
  px_stream *stream = stream_of(self);
  size_t handle = px_stream_id(stream) ? (size_t)px_stream_native(stream) : 0;
  snprintf(text, sizeof text, "<torch.cuda.Stream device=%s cuda_stream=0x%zx>",
           px_device_format(px_stream_device(stream), device), handle);
  return PyUnicode_FromString(text);
}
static Py_hash_t stream_hash(PyObject *self) { return _Py_HashPointer(stream_of(self)); }
static PyObject *stream_compare(PyObject *a, PyObject *b, int op) {
  if (!PyObject_TypeCheck(b, &ext_StreamType) || (op != Py_EQ && op != Py_NE))
    Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((stream_of(a) == stream_of(b)) == (op == Py_EQ));
}
EXT_SHARED_TYPE(
    stream, ext_StreamType, "torch.cuda.Stream", "cuda.Stream Stream", stream_object,
    EXT_OPEN | EXT_CLASS,
    "A queue of work of one device. Work of one stream runs in its order; streams run beside "
    "each\nother, and beside the host.\n\n"
    "Args:\n"
    "    device (torch.device, str or int): the device; the current one by default\n"
    "    priority (int): lower numbers go first\n\n"
    ">>> s = torch.cuda.Stream()\n"
    ">>> with torch.cuda.stream(s):\n"
    "...     x = torch.zeros(3, device='cuda')\n"
    ">>> s.synchronize()\n"
    ">>> s.query()\n"
    "True\n",
    EXT_LIFE(stream), .tp_new = stream_new, .tp_repr = stream_repr, .tp_hash = stream_hash,
    .tp_richcompare = stream_compare);

EXT_GET(stream, device, "device", px_stream_device(stream_of(self)), "The stream's device.");
EXT_GET(stream, device_index, "int", (int)px_stream_device(stream_of(self)).index,
        "The index of the stream's device.");
EXT_GET(stream, stream_id, "int", px_stream_id(stream_of(self)),
        "The stream's number on its device; 0 is the default stream.");
EXT_STATIC_METHOD(stream, priority_range, "() -> tuple[int, int]",
                  "The lowest priority and the highest, which is a number below it.\n\n"
                  ">>> torch.cuda.Stream.priority_range()[0]\n"
                  "0\n") {
  int least, greatest;
  if (call->nargs || call->kwnames)
    EXT_FAIL(PyExc_TypeError, "priority_range() takes no arguments");
  EXT_TRY(px_stream_priority_range(&least, &greatest));
  return Py_BuildValue("(ii)", least, greatest);
}
enum { OF_CUDA = 1 };  // PyTorch's number of the device type
EXT_GET(stream, device_type, "int", (int)OF_CUDA, "The number of the device type: 1, for cuda.");
EXT_GET(stream, priority, "int", px_stream_priority(stream_of(self)), "Lower numbers go first.");
EXT_GETTER(stream, cuda_stream, "int", "The backend's handle as a number.") {
  if (!px_stream_id(stream_of(self))) return PyLong_FromLong(0);
  return PyLong_FromVoidPtr(px_stream_native(stream_of(self)));
}

#define WAITED_FOR(word, work) \
  EXT_METHOD0(word, query, "bool", "Whether " work " is done.") { \
    bool done; \
    EXT_TRY(px_##word##_query(&done, word##_of(self))); \
    return PyBool_FromLong(done); \
  } \
  EXT_DOES(word, synchronize, px_##word##_synchronize(word##_of(self)), \
           "Waits until " work " is done.")
WAITED_FOR(stream, "all work so far");

// What PyTorch says of another object: that it lacks the method that would be called.
static int need(PyObject *object, PyTypeObject *type, const char *method) {
  if (PyObject_TypeCheck(object, type)) return 0;
  EXT_FAIL_INT(PyExc_AttributeError, "'%s' object has no attribute '%s'", ext_type_name(object),
               method);
}
EXT_METHOD(stream, wait_stream, "(stream: Stream) -> None",
           "Work queued from now on waits for all work that `stream` has so far.") {
  EXT_ARGS(PyObject *, stream);
  if (need(stream, &ext_StreamType, "record_event") < 0) return NULL;
  return ext_none(px_stream_wait_stream(stream_of(self), stream_of(stream)));
}
EXT_METHOD(stream, wait_event, "(event: Event) -> None",
           "Work queued from now on waits for the latest record of `event`.") {
  EXT_ARGS(PyObject *, event);
  if (need(event, &ext_EventType, "wait") < 0) return NULL;
  return ext_none(px_stream_wait_event(stream_of(self), event_of(event)));
}
EXT_METHOD(stream, record_event, "(event: Event | None = None) -> Event",
           "Records `event`, or a new one, after all work so far, and gives it.") {
  EXT_ARGS(PyObject *, event);
  EXT_OWNED *used = event ? Py_NewRef(event) : PyObject_CallNoArgs((PyObject *)&ext_EventType);
  if (!used || need(used, &ext_EventType, "record") < 0) return NULL;
  EXT_TRY(px_event_record(event_of(used), stream_of(self)));
  return ext_moved(&used);
}
EXT_METHOD0(stream, __enter__, "Stream", NULL) {
  stream_object *object = (stream_object *)self;
  return scope_enter(&object->scope, object->stream) < 0 ? NULL : Py_NewRef(self);
}
EXT_METHOD(stream, __exit__, "(*exc: object) -> None", NULL) {
  if (scope_exit(&((stream_object *)self)->scope) < 0) return NULL;
  Py_RETURN_NONE;
}

// ---- events
EXT_OWNS(event, EXT_CORE(event_object, event));

EXT_NEW(event,
        "(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, "
        "external: bool = False, *, device: Device | None = None)") {
  bool enable_timing, blocking, interprocess, external;
  ext_cuda device;
  EXT_BIND(enable_timing, blocking, interprocess, external, device);
  unsigned flags = (enable_timing ? PX_EVENT_TIMING : 0) | (blocking ? PX_EVENT_BLOCKING : 0) |
                   (interprocess ? PX_EVENT_INTERPROCESS : 0);
  px_event *made = NULL;
  EXT_TRY(px_event_new(&made, flags));
  return ext_over(type, made);
}
static PyObject *event_repr(PyObject *self) {
  if (!px_event_recorded(event_of(self)))
    return PyUnicode_FromString("<torch.cuda.Event uninitialized>");
  return PyUnicode_FromFormat("<torch.cuda.Event %p>", px_event_native(event_of(self)));
}
EXT_SHARED_TYPE(event, ext_EventType, "torch.cuda.Event", "cuda.Event Event", event_object,
                EXT_OPEN | EXT_CLASS,
                "A mark in a stream, to wait for and to measure time between.\n\n"
                "Args:\n"
                "    enable_timing (bool): elapsed_time may ask it\n"
                "    blocking (bool): synchronize sleeps rather than spins\n"
                "    interprocess (bool): not served by the backends there are\n"
                "    device (torch.device, str or int): the event is of the device that first "
                "records it, so\n        this is only checked\n\n"
                ">>> a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
                ">>> a.record(); b.record(); b.synchronize()\n"
                ">>> a.elapsed_time(b) >= 0\n"
                "True\n",
                EXT_LIFE(event), .tp_new = event_new, .tp_repr = event_repr);

EXT_GET(event, device, "device | None", px_event_device(event_of(self)),
        "The device of the stream that recorded it; None before that.");
EXT_GET(event, cuda_event, "int", px_event_native(event_of(self)),
        "The backend's handle as a number.");

// None is the current stream.
static int stream_or_current(px_stream **stream) {
  if (!*stream) EXT_TRY_INT(px_stream_current(stream, px_cuda(-1)));
  return 0;
}
EXT_METHOD(event, record, "(stream: Stream | None = None) -> None",
           "Marks the place after all work that the stream (the current one) has so far.") {
  EXT_ARGS(px_stream *, stream);
  if (stream_or_current(&stream) < 0) return NULL;
  return ext_none(px_event_record(event_of(self), stream));
}
EXT_METHOD(event, wait, "(stream: Stream | None = None) -> None",
           "Work that the stream (the current one) gets from now on waits for the mark.") {
  EXT_ARGS(px_stream *, stream);
  if (stream_or_current(&stream) < 0) return NULL;
  return ext_none(px_stream_wait_event(stream, event_of(self)));
}
WAITED_FOR(event, "the work before the mark");
EXT_METHOD(event, elapsed_time, "(end_event: Event) -> float",
           "Milliseconds from this mark to that of `end_event`. Both must be made with "
           "enable_timing=True,\nand their work be done.") {
  float milliseconds;
  EXT_ARGS(PyObject *, end_event);
  if (!PyObject_TypeCheck(end_event, &ext_EventType))
    EXT_FAIL(PyExc_TypeError, "expected a torch.cuda.Event, not %s", ext_type_name(end_event));
  EXT_TRY(px_event_elapsed(&milliseconds, event_of(self), event_of(end_event)));
  return PyFloat_FromDouble((double)milliseconds);
}
EXT_METHOD0(event, ipc_handle, "bytes", "Not implemented.") {
  EXT_FAIL(PyExc_NotImplementedError, "torch.cuda.Event.ipc_handle");
}

// ---- functions
// A stream of the device in a call's argument; of the current one, which is not asked for before it
// is needed, where there is none.
static PyObject *stream_at(const ext_call *call, px_status (*find)(px_stream **, px_device)) {
  PyObject *device;
  int index = -1;
  px_stream *stream;
  EXT_BIND(device);
  if (device && ext_to_cuda_index(device, &index) < 0) return NULL;
  EXT_TRY(find(&stream, px_cuda(index)));
  return ext_stream(px_retain(stream));
}
EXT_FUNCTION(cuda, current_stream, "(device: Device | None = None) -> Stream",
             "The stream that calls of this thread queue their work in, for a device.") {
  return stream_at(call, px_stream_current);
}
EXT_FUNCTION(cuda, default_stream, "(device: Device | None = None) -> Stream",
             "The stream of a device that is current where no other was chosen.") {
  return stream_at(call, px_stream_default);
}
EXT_FUNCTION(cuda, set_stream, "(stream: Stream | None) -> None",
             "Makes a stream, and its device, current for this thread. None changes nothing.") {
  EXT_ARGS(px_stream *, stream);
  if (!stream) Py_RETURN_NONE;
  EXT_TRY(px_device_set(px_stream_device(stream).index));
  return ext_none(px_stream_set_current(stream));
}
EXT_SHARES(accelerator, cuda, current_stream, set_stream);

static int to_stream(PyObject *object, void *out) { return ext_to_stream(object, out); }
EXT_CONVERTS(EXT_KIND_STREAM, to_stream);
