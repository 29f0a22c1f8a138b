// SPDX-License-Identifier: Apache-2.0
// torch.cuda.Stream, Event, stream(...): queues of work in Python.
#include "ext.h"

enum { DEPTH = 32 };
// What was current before a stream was entered.
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
static px_stream *stream_of(PyObject *self) { return ((stream_object *)self)->stream; }

PyObject *ext_stream(px_stream *stream_take) {
  PyObject *self = ext_StreamType.tp_alloc(&ext_StreamType, 0);
  if (!self) {
    px_release(stream_take);
    return NULL;
  }
  ((stream_object *)self)->stream = stream_take;
  return self;
}

int ext_to_stream(PyObject *object, px_stream **out) {
  *out = NULL;
  if (ext_is_none(object)) return 0;
  if (!PyObject_TypeCheck(object, &ext_StreamType))
    EXT_FAIL_INT(PyExc_TypeError, "expected a torch.cuda.Stream, not %s", ext_type_name(object));
  *out = stream_of(object);
  return 0;
}

// The stream of an argument, or the current one.
static int stream_or_current(PyObject *object, px_stream **out) {
  if (ext_to_stream(object, out) < 0) return -1;
  if (!*out) EXT_TRY_INT(px_stream_current(out, px_cuda(-1)));
  return 0;
}

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"Stream", "|device priority$stream_id device_index device_type", 0, 0, 0,
                          {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  int64_t priority = 0;
  int index;
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return NULL;
  if (ext_to_cuda_index(out[0], &index) < 0) return NULL;
  if (!ext_is_none(out[1]) && ext_to_int(out[1], &priority) < 0) return NULL;
  PyObject *self = type->tp_alloc(type, 0);
  if (!self) return NULL;
  if (px_stream_new(&((stream_object *)self)->stream, px_cuda(index), (int)priority) == PX_OK)
    return self;
  Py_DECREF(self);
  return ext_raise();
}
static void stream_dealloc(PyObject *self) {
  scope *s = &((stream_object *)self)->scope;
  for (int i = 0; i < s->depth; i++) px_release(s->saved[i].stream);
  px_release(stream_of(self));
  Py_TYPE(self)->tp_free(self);
}

// ---- making current
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
static PyObject *stream_enter(PyObject *self, PyObject *u) {
  stream_object *object = (stream_object *)self;
  return scope_enter(&object->scope, object->stream) < 0 ? NULL : Py_NewRef(self);
}
static PyObject *stream_exit(PyObject *self, PyObject *u) {
  if (scope_exit(&((stream_object *)self)->scope) < 0) return NULL;
  Py_RETURN_NONE;
}

// ---- methods
static PyObject *stream_query(PyObject *self, PyObject *u) {
  bool done;
  EXT_TRY(px_stream_query(&done, stream_of(self)));
  return PyBool_FromLong(done);
}
static PyObject *stream_synchronize(PyObject *self, PyObject *u) {
  EXT_WAIT(px_stream_synchronize(stream_of(self)));
  Py_RETURN_NONE;
}
// What PyTorch says of another object: that it lacks the method that would be called.
static int need(PyObject *object, PyTypeObject *type, const char *method) {
  if (PyObject_TypeCheck(object, type)) return 0;
  EXT_FAIL_INT(PyExc_AttributeError, "'%s' object has no attribute '%s'", ext_type_name(object),
               method);
}

EXT_FAST(stream_wait_stream) {
  EXT_ARGS("wait_stream", "stream", out);
  if (need(out[0], &ext_StreamType, "record_event") < 0) return NULL;
  EXT_TRY(px_stream_wait_stream(stream_of(self), stream_of(out[0])));
  Py_RETURN_NONE;
}

typedef struct event_object {
  PyObject_HEAD px_event *event;
} event_object;
static px_event *event_of(PyObject *self) { return ((event_object *)self)->event; }

EXT_FAST(stream_wait_event) {
  EXT_ARGS("wait_event", "event", out);
  if (need(out[0], &ext_EventType, "wait") < 0) return NULL;
  EXT_TRY(px_stream_wait_event(stream_of(self), event_of(out[0])));
  Py_RETURN_NONE;
}
EXT_FAST(stream_record_event) {
  EXT_ARGS("record_event", "|event", out);
  EXT_OWNED *event =
      ext_is_none(out[0]) ? PyObject_CallNoArgs((PyObject *)&ext_EventType) : Py_NewRef(out[0]);
  if (!event || need(event, &ext_EventType, "record") < 0) return NULL;
  EXT_TRY(px_event_record(event_of(event), stream_of(self)));
  return ext_moved(&event);
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
static PyObject *stream_device(PyObject *self, void *u) {
  return ext_device(px_stream_device(stream_of(self)));
}
static PyObject *stream_device_index(PyObject *self, void *u) {
  return PyLong_FromLong(px_stream_device(stream_of(self)).index);
}
static PyObject *stream_id(PyObject *self, void *u) {
  return PyLong_FromLongLong(px_stream_id(stream_of(self)));
}
static PyObject *stream_native(PyObject *self, void *u) {
  if (!px_stream_id(stream_of(self))) return PyLong_FromLong(0);
  return PyLong_FromVoidPtr(px_stream_native(stream_of(self)));
}
static PyObject *stream_priority(PyObject *self, void *u) {
  return PyLong_FromLong(px_stream_priority(stream_of(self)));
}
static PyMethodDef stream_methods[] = {{"query", stream_query, METH_NOARGS, NULL},
                                       {"synchronize", stream_synchronize, METH_NOARGS, NULL},
                                       EXT_DEF("wait_stream", stream_wait_stream),
                                       EXT_DEF("wait_event", stream_wait_event),
                                       EXT_DEF("record_event", stream_record_event),
                                       {"__enter__", stream_enter, METH_NOARGS, NULL},
                                       {"__exit__", stream_exit, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyGetSetDef stream_getset[] = {{"device", stream_device, NULL, NULL, NULL},
                                      {"device_index", stream_device_index, NULL, NULL, NULL},
                                      {"stream_id", stream_id, NULL, NULL, NULL},
                                      {"cuda_stream", stream_native, NULL, NULL, NULL},
                                      {"priority", stream_priority, NULL, NULL, NULL},
                                      {NULL, NULL, NULL, NULL, NULL}};
PyTypeObject ext_StreamType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.cuda.Stream",
    .tp_basicsize = sizeof(stream_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = stream_new,
    .tp_dealloc = stream_dealloc,
    .tp_repr = stream_repr,
    .tp_hash = stream_hash,
    .tp_richcompare = stream_compare,
    .tp_methods = stream_methods,
    .tp_getset = stream_getset,
};

// ---- events
static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static ext_spec spec = {"Event", "|enable_timing blocking interprocess external", 0, 0, 0,
                          {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return NULL;
  unsigned flags = 0;
  for (int i = 0; i < 3; i++) {
    int given = ext_to_bool(out[i], false);
    if (given < 0) return NULL;
    if (given) flags |= 1u << i;  // PX_EVENT_TIMING, BLOCKING, INTERPROCESS
  }
  PyObject *self = type->tp_alloc(type, 0);
  if (!self) return NULL;
  if (px_event_new(&((event_object *)self)->event, flags) == PX_OK) return self;
  Py_DECREF(self);
  return ext_raise();
}
static void event_dealloc(PyObject *self) {
  px_release(event_of(self));
  Py_TYPE(self)->tp_free(self);
}
EXT_FAST(event_record) {
  EXT_ARGS("record", "|stream", out);
  px_stream *stream;
  if (stream_or_current(out[0], &stream) < 0) return NULL;
  EXT_TRY(px_event_record(event_of(self), stream));
  Py_RETURN_NONE;
}
EXT_FAST(event_wait) {
  EXT_ARGS("wait", "|stream", out);
  px_stream *stream;
  if (stream_or_current(out[0], &stream) < 0) return NULL;
  EXT_TRY(px_stream_wait_event(stream, event_of(self)));
  Py_RETURN_NONE;
}
static PyObject *event_query(PyObject *self, PyObject *u) {
  bool done;
  EXT_TRY(px_event_query(&done, event_of(self)));
  return PyBool_FromLong(done);
}
static PyObject *event_synchronize(PyObject *self, PyObject *u) {
  EXT_WAIT(px_event_synchronize(event_of(self)));
  Py_RETURN_NONE;
}
EXT_FAST(event_elapsed) {
  EXT_ARGS("elapsed_time", "end_event", out);
  float milliseconds;
  if (!PyObject_TypeCheck(out[0], &ext_EventType))
    EXT_FAIL(PyExc_TypeError, "expected a torch.cuda.Event, not %s", ext_type_name(out[0]));
  EXT_TRY(px_event_elapsed(&milliseconds, event_of(self), event_of(out[0])));
  return PyFloat_FromDouble((double)milliseconds);
}
static PyObject *event_ipc(PyObject *self, PyObject *u) {
  EXT_FAIL(PyExc_NotImplementedError, "torch.cuda.Event.ipc_handle");
}
static PyObject *event_repr(PyObject *self) {
  if (!px_event_recorded(event_of(self)))
    return PyUnicode_FromString("<torch.cuda.Event uninitialized>");
  return PyUnicode_FromFormat("<torch.cuda.Event %p>", px_event_native(event_of(self)));
}
static PyObject *event_device(PyObject *self, void *u) {
  return ext_device(px_event_device(event_of(self)));
}
static PyObject *event_native(PyObject *self, void *u) {
  return PyLong_FromVoidPtr(px_event_native(event_of(self)));
}
static PyMethodDef event_methods[] = {EXT_DEF("record", event_record),
                                      EXT_DEF("wait", event_wait),
                                      {"query", event_query, METH_NOARGS, NULL},
                                      {"synchronize", event_synchronize, METH_NOARGS, NULL},
                                      EXT_DEF("elapsed_time", event_elapsed),
                                      {"ipc_handle", event_ipc, METH_NOARGS, NULL},
                                      {NULL, NULL, 0, NULL}};
static PyGetSetDef event_getset[] = {{"device", event_device, NULL, NULL, NULL},
                                     {"cuda_event", event_native, NULL, NULL, NULL},
                                     {NULL, NULL, NULL, NULL, NULL}};
PyTypeObject ext_EventType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.cuda.Event",
    .tp_basicsize = sizeof(event_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = event_new,
    .tp_dealloc = event_dealloc,
    .tp_repr = event_repr,
    .tp_methods = event_methods,
    .tp_getset = event_getset,
};

// ---- with torch.cuda.stream(s)
typedef struct context_object {
  PyObject_HEAD PyObject *stream;
  scope scope;
} context_object;
static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  if (!PyTuple_GET_SIZE(args) && !(kwargs && PyDict_Size(kwargs)))
    EXT_FAIL(PyExc_TypeError,
             "stream() missing 1 required positional argument: 'stream' (a new "
             "stream is made by torch.cuda.Stream())");
  static ext_spec spec = {"stream", "stream", 0, 0, 0, {NULL}};
  PyObject *out[EXT_MAX_ARGS] = {NULL};
  if (ext_args_tuple(&spec, args, kwargs, out) < 0) return NULL;
  PyObject *self = type->tp_alloc(type, 0);
  if (self) ((context_object *)self)->stream = Py_NewRef(out[0]);
  return self;
}
static void context_dealloc(PyObject *self) {
  Py_XDECREF(((context_object *)self)->stream);
  Py_TYPE(self)->tp_free(self);
}
static PyObject *context_enter(PyObject *self, PyObject *u) {
  context_object *object = (context_object *)self;
  px_stream *stream;
  if (ext_to_stream(object->stream, &stream) < 0) return NULL;
  if (stream && scope_enter(&object->scope, stream) < 0) return NULL;
  Py_RETURN_NONE;
}
static PyObject *context_exit(PyObject *self, PyObject *u) {
  context_object *object = (context_object *)self;
  if (object->stream != Py_None && scope_exit(&object->scope) < 0) return NULL;
  Py_RETURN_NONE;
}
static PyMethodDef context_methods[] = {{"__enter__", context_enter, METH_NOARGS, NULL},
                                        {"__exit__", context_exit, METH_VARARGS, NULL},
                                        {NULL, NULL, 0, NULL}};
static PyMemberDef context_members[] = {
    {"stream", T_OBJECT, offsetof(context_object, stream), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};
static PyTypeObject context_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.cuda.StreamContext",
    .tp_basicsize = sizeof(context_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = context_new,
    .tp_dealloc = context_dealloc,
    .tp_methods = context_methods,
    .tp_members = context_members,
};

// ---- functions
static int device_of(PyObject *object, px_device *out) {
  int index = -1;
  if (!ext_is_none(object) && ext_to_cuda_index(object, &index) < 0) return -1;
  *out = px_cuda(index);
  return 0;
}
EXT_FAST(current_stream) {
  EXT_ARGS("current_stream", "|device", out);
  px_device device;
  px_stream *stream;
  if (device_of(out[0], &device) < 0) return NULL;
  EXT_TRY(px_stream_current(&stream, device));
  return ext_stream(px_retain(stream));
}
EXT_FAST(default_stream) {
  EXT_ARGS("default_stream", "|device", out);
  px_device device;
  px_stream *stream;
  if (device_of(out[0], &device) < 0) return NULL;
  EXT_TRY(px_stream_default(&stream, device));
  return ext_stream(px_retain(stream));
}
EXT_FAST(set_stream) {
  EXT_ARGS("set_stream", "stream", out);
  px_stream *stream;
  if (ext_to_stream(out[0], &stream) < 0) return NULL;
  if (!stream) Py_RETURN_NONE;
  EXT_TRY(px_device_set(px_stream_device(stream).index));
  EXT_TRY(px_stream_set_current(stream));
  Py_RETURN_NONE;
}
static PyMethodDef functions[] = {EXT_DEF("current_stream", current_stream),
                                  EXT_DEF("default_stream", default_stream),
                                  EXT_DEF("set_stream", set_stream),
                                  {NULL, NULL, 0, NULL}};
static PyMethodDef accelerator_functions[] = {EXT_DEF("current_stream", current_stream),
                                              EXT_DEF("set_stream", set_stream),
                                              {NULL, NULL, 0, NULL}};

int ext_init_stream(PyObject *m) {
  EXT_OWNED *cuda = PyObject_GetAttrString(m, "cuda");
  EXT_OWNED *accelerator = PyObject_GetAttrString(m, "accelerator");
  if (!cuda || !accelerator || ext_add_class(cuda, "Stream", &ext_StreamType) < 0 ||
      ext_add_class(cuda, "Event", &ext_EventType) < 0 ||
      ext_add_class(cuda, "StreamContext", &context_type) < 0 ||
      ext_add_class(cuda, "stream", &context_type) < 0 ||
      ext_add_class(m, "Stream", &ext_StreamType) < 0 ||
      ext_add_class(m, "Event", &ext_EventType) < 0 ||
      PyModule_AddFunctions(accelerator, accelerator_functions) < 0)
    return -1;
  return PyModule_AddFunctions(cuda, functions);
}
