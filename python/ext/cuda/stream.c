// SPDX-License-Identifier: Apache-2.0
// torch.Stream and Event, and their subclasses torch.cuda.Stream and Event. An object owns a
// reference to the core's stream or event; objects of the same stream are equal. The scopes of
// torch.cuda and an entered stream save the current device, and the current stream of the device
// they make current, and restore them on exit.
#include "bind/ext.h"
#include "phlox/graph.h"

// State restored on exit.
typedef struct saved_state {
  int device;
  px_stream *stream;  // owned; NULL if no stream was entered
} saved_state;
// One saved state per entry; usually there is one.
typedef struct scope {
  int depth;
  saved_state first, *more;
} scope;
typedef struct stream_object {
  PyObject_HEAD px_stream *stream;
  scope scope;
} stream_object;
typedef struct event_object {
  PyObject_HEAD px_event *event;
  int16_t type;  // of its device
  bool timing;   // an option, for repr
} event_object;
static PyTypeObject cuda_stream_type, cuda_event_type;
static px_stream *stream_of(PyObject *self) { return ((stream_object *)self)->stream; }
static px_event *event_of(PyObject *self) { return ((event_object *)self)->event; }

PyObject *ext_stream(px_stream *stream_take) {
  return ext_wrap_core(&cuda_stream_type, stream_take);
}
static PyObject *wrap_event(PyTypeObject *type, px_event *event_take, int device_type) {
  PyObject *made = ext_wrap_core(type, event_take);
  if (made) ((event_object *)made)->type = (int16_t)device_type;
  return made;
}
PyObject *ext_event(px_event *event_take) {
  return wrap_event(&cuda_event_type, event_take, PX_CUDA);
}
int ext_to_stream(PyObject *object, px_stream **out) {
  *out = NULL;
  if (ext_is_none(object)) return 0;
  if (!PyObject_TypeCheck(object, &ext_StreamType))
    EXT_FAIL_INT(PyExc_TypeError, "expected a torch.cuda.Stream, not %s", ext_type_name(object));
  *out = stream_of(object);
  return 0;
}

// ---- scopes
static saved_state *innermost(scope *s) {
  return s->depth > 1 ? &s->more[s->depth - 2] : &s->first;
}
static void scope_pop(scope *s) {
  px_release(innermost(s)->stream);
  s->depth--;
}
static void scope_end(scope *s) {
  while (s->depth > 0) scope_pop(s);
  PyMem_Free(s->more);
}
static int scope_push(scope *s, int device, px_stream *stream) {
  if (s->depth) {
    saved_state *more = PyMem_Realloc(s->more, (size_t)s->depth * sizeof *more);
    if (!more) return PyErr_NoMemory(), -1;
    s->more = more;
  }
  s->depth++;
  *innermost(s) = (saved_state){device, px_retain(stream)};
  return 0;
}

// On failure nothing is changed.
static int enter_stream(scope *s, px_stream *stream) {
  px_device device = px_stream_device(stream);
  px_stream *current;
  int index = px_device_peek();
  if (device.type == PX_CPU) return scope_push(s, index, NULL);
  EXT_TRY_INT(px_stream_current(&current, device));
  if (scope_push(s, index, current) < 0) return -1;
  px_status status = px_device_set(device.index);
  if (status == PX_OK) status = px_stream_set_current(stream);
  if (status == PX_OK) return 0;
  scope_pop(s);
  return ext_raise(), -1;
}
static int enter_device(scope *s, int index) {
  int now = px_device_peek();
  if (index >= 0 && index != now) EXT_TRY_INT(px_device_set(index));
  return scope_push(s, now, NULL);
}
static int exit_scope(scope *s, const char *what, bool restores) {
  if (!s->depth) EXT_FAIL_INT(PyExc_RuntimeError, "the %s was not entered", what);
  px_status status = PX_OK;
  saved_state b = *innermost(s);
  if (b.stream) status = px_stream_set_current(b.stream);
  if (status == PX_OK && restores && b.device != px_device_peek()) status = px_device_set(b.device);
  scope_pop(s);
  if (status != PX_OK) return ext_raise(), -1;
  return 0;
}

// ---- streams
static void stream_end(PyObject *self) { scope_end(&((stream_object *)self)->scope); }
EXT_OWNS(stream, EXT_FINALIZER(stream_end), EXT_CORE(stream_object, stream));

enum { OF_CPU, OF_CUDA };  // PyTorch's numbers of device types
static int device_of_numbers(px_device *out, int64_t index, int64_t type) {
  if (type != OF_CPU && type != OF_CUDA)
    EXT_FAIL_INT(PyExc_RuntimeError, "Stream(): there are no streams of device type %lld",
                 (long long)type);
  if (type == OF_CUDA && (index < 0 || index > 127))
    EXT_FAIL_INT(PyExc_RuntimeError, "Device index must be between 0 and 127, but got %lld",
                 (long long)index);
  *out = type == OF_CUDA ? px_cuda((int)index) : px_cpu();
  return 0;
}
static PyObject *stream_of_numbers(PyTypeObject *type, int64_t id, int64_t index,
                                   int64_t device_type) {
  px_device device;
  px_stream *found = NULL;
  if (device_of_numbers(&device, index, device_type) < 0) return NULL;
  EXT_TRY(px_stream_from_id(&found, device, id));
  return ext_wrap_core(type, found);
}

// Stream(device=None, *, priority=0) and Stream(stream_id, device_index, device_type).
EXT_NEW(stream,
        "(device: Device | int | None = None, device_index: int | None = None, device_type: int | "
        "None = None, *, stream_id: int | None = None, priority: int = 0)") {
  PyObject *device;
  int64_t device_index, device_type, stream_id, priority;
  px_device resolved = px_cuda(-1);
  px_stream *made = NULL;
  EXT_BIND(device, device_index, device_type, stream_id, priority);
  bool by_device =
      device_index == EXT_NO_INT && device_type == EXT_NO_INT && stream_id == EXT_NO_INT;
  if (by_device && device && ext_to_device(device, &resolved) < 0) return NULL;
  if (by_device) {
    EXT_TRY(px_stream_new(&made, resolved, (int)priority));
    return ext_wrap_core(type, made);
  }
  if (device && stream_id == EXT_NO_INT && PyLong_Check(device) && !PyBool_Check(device)) {
    if (ext_to_int(device, &stream_id) < 0) return NULL;
    device = NULL;
  }
  if (device || stream_id == EXT_NO_INT || device_index == EXT_NO_INT || device_type == EXT_NO_INT)
    EXT_FAIL(PyExc_TypeError,
             "Stream() takes a device, or the integers stream_id, device_index and device_type");
  return stream_of_numbers(type, stream_id, device_index, device_type);
}
static int number_of_type(px_device device) { return device.type == PX_CPU ? OF_CPU : OF_CUDA; }
static PyObject *stream_repr(PyObject *self) {
  px_device device = px_stream_device(stream_of(self));
  return PyUnicode_FromFormat("torch.Stream device_type=%s, device_index=%d, stream_id=%lld",
                              px_device_type_name(device.type), device.index,
                              (long long)px_stream_id(stream_of(self)));
}
static Py_hash_t stream_hash(PyObject *self) { return Py_HashPointer(stream_of(self)); }
static PyObject *stream_compare(PyObject *a, PyObject *b, int op) {
  if (!PyObject_TypeCheck(b, &ext_StreamType) || (op != Py_EQ && op != Py_NE))
    Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((stream_of(a) == stream_of(b)) == (op == Py_EQ));
}
#define STREAM_ARGUMENTS \
  "Args:\n" \
  "    device (torch.device, str or int): the device; default: the current one\n" \
  "    priority (int): lower numbers have higher priority\n" \
  "    stream_id, device_index, device_type (int): those of an existing stream, instead of a " \
  "device\n\n"
EXT_SHARED_TYPE(
    stream, ext_StreamType, "torch.Stream", "Stream", stream_object, EXT_BASETYPE,
    "A stream: a queue of work of one device. Work in a stream runs in order; streams run "
    "concurrently\nwith each other and with the host.\n\n" STREAM_ARGUMENTS
    ">>> s = torch.Stream('cuda')\n"
    ">>> torch.Stream(s.stream_id, s.device_index, s.device_type) == s\n"
    "True\n",
    EXT_LIFETIME_SLOTS(stream), .tp_new = stream_new, .tp_repr = stream_repr,
    .tp_hash = stream_hash, .tp_richcompare = stream_compare);

EXT_NEW(cuda_stream,
        "(device: Device | None = None, priority: int = 0, *, stream_id: int | None = None, "
        "device_index: int | None = None, device_type: int | None = None)") {
  PyObject *device;
  int64_t priority, stream_id, device_index, device_type;
  ext_cuda resolved;
  px_stream *made = NULL;
  EXT_BIND(device, priority, stream_id, device_index, device_type);
  bool by_device =
      stream_id == EXT_NO_INT && device_index == EXT_NO_INT && device_type == EXT_NO_INT;
  if (!by_device && (stream_id == EXT_NO_INT || device_index == EXT_NO_INT ||
                     (device_type != OF_CUDA && device_type != EXT_NO_INT)))
    EXT_FAIL(PyExc_TypeError,
             "Stream() needs stream_id and device_index together, and device_type 1");
  if (!by_device) return stream_of_numbers(type, stream_id, device_index, OF_CUDA);
  if (ext_to_cuda_index(device, &resolved.index) < 0) return NULL;
  EXT_TRY(px_stream_new(&made, px_cuda(resolved.index), (int)priority));
  return ext_wrap_core(type, made);
}
static void *native_stream(PyObject *self) {
  return px_stream_id(stream_of(self)) ? px_stream_native(stream_of(self)) : NULL;
}
static PyObject *cuda_stream_repr(PyObject *self) {
  char device[PX_DEVICE_TEXT], text[96];
  snprintf(text, sizeof text, "<torch.cuda.Stream device=%s cuda_stream=0x%zx>",
           px_device_format(px_stream_device(stream_of(self)), device),
           (size_t)native_stream(self));
  return PyUnicode_FromString(text);
}
EXT_TYPE(
    cuda_stream, "torch.cuda.Stream", "cuda.Stream", stream_object, EXT_BASETYPE | EXT_SHORT_NAME,
    "A CUDA stream: a queue of work of one device. Work in a stream runs in order; streams run "
    "concurrently\nwith each other and with the host.\n\n" STREAM_ARGUMENTS
    ">>> s = torch.cuda.Stream()\n"
    ">>> with torch.cuda.stream(s):\n"
    "...     x = torch.zeros(3, device='cuda')\n"
    ">>> s.synchronize()\n"
    ">>> s.query()\n"
    "True\n",
    EXT_LIFETIME_SLOTS(stream), .tp_base = &ext_StreamType, .tp_new = cuda_stream_new,
    .tp_repr = cuda_stream_repr);

static int stream_from(px_stream **out, PyObject *number, int device) {
  void *native = PyLong_AsVoidPtr(number);
  if (!native && PyErr_Occurred()) return -1;
  return ext_zero(px_stream_from_native(out, px_cuda(device), native));
}
EXT_NEW(external, "(stream_ptr: int, device: Device | None = None)") {
  PyObject *stream_ptr;
  ext_cuda device;
  px_stream *found = NULL;
  EXT_BIND(stream_ptr, device);
  return stream_from(&found, stream_ptr, device.index) < 0 ? NULL : ext_wrap_core(type, found);
}
EXT_TYPE(external, "torch.cuda.ExternalStream", "cuda.ExternalStream", stream_object,
         EXT_BASETYPE | EXT_SHORT_NAME,
         "A stream created by another library. It must stay alive until work queued on it here has "
         "completed\nand was waited for.\n\n"
         "Args:\n"
         "    stream_ptr (int): the other library's handle, a cudaStream_t\n"
         "    device (torch.device, str or int): its device; default: the current one\n\n"
         ">>> s = torch.cuda.Stream()\n"
         ">>> torch.cuda.ExternalStream(s.cuda_stream) == s\n"
         "True\n",
         EXT_LIFETIME_SLOTS(stream), .tp_base = &cuda_stream_type, .tp_new = external_new);

EXT_GET(stream, device, "device", px_stream_device(stream_of(self)), "The device of the stream.");
EXT_GET(stream, device_index, "int", (int)px_stream_device(stream_of(self)).index,
        "The device index of the stream.");
EXT_GET(stream, stream_id, "int", px_stream_id(stream_of(self)),
        "The number of the stream on its device; 0 is the default stream.");
EXT_STATIC_METHOD(
    cuda_stream, priority_range, "() -> tuple[int, int]",
    "Returns the lowest and the highest priority; higher priorities are lower numbers.\n\n"
    ">>> torch.cuda.Stream.priority_range()[0]\n"
    "0\n") {
  int lowest, highest;
  if (call->nargs || call->kwnames)
    EXT_FAIL(PyExc_TypeError, "priority_range() takes no arguments");
  EXT_TRY(px_stream_priority_range(&lowest, &highest));
  return Py_BuildValue("(ii)", lowest, highest);
}
EXT_GET(stream, device_type, "int", number_of_type(px_stream_device(stream_of(self))),
        "The number of the device type: 0 for cpu, 1 for cuda.");
EXT_RETURNS(stream, is_capturing, "bool", px_stream_capturing(stream_of(self)),
            "Whether a graph captures the stream.");
EXT_GETTER(stream, native_handle, "int", "The backend's handle as a number.") {
  if (px_stream_device(stream_of(self)).type == PX_CPU)
    EXT_FAIL(PyExc_RuntimeError, "Backend doesn't support getting stream native handle.");
  return PyLong_FromVoidPtr(native_stream(self));
}
EXT_GET(cuda_stream, priority, "int", px_stream_priority(stream_of(self)),
        "The priority; lower numbers have higher priority.");
EXT_GET(cuda_stream, cuda_stream, "int", native_stream(self), "The backend's handle as a number.");
// For calls of a C function by ctypes.
static PyObject *as_parameter(void *handle) {
  EXT_OWNED *ctypes = PyImport_ImportModule("ctypes");
  EXT_OWNED *number = PyLong_FromVoidPtr(handle);
  return ctypes && number ? PyObject_CallMethod(ctypes, "c_void_p", "O", number) : NULL;
}
EXT_GET(cuda_stream, _as_parameter_, "Any", as_parameter(native_stream(self)), NULL);
EXT_METHOD0(cuda_stream, __cuda_stream__, "tuple[int, int]",
            "The protocol of CUDA streams: its version, 0, and the handle as a number.") {
  return Py_BuildValue("(iN)", 0, PyLong_FromVoidPtr(native_stream(self)));
}

#define SYNCHRONIZE(word, work) \
  EXT_METHOD0(word, query, "bool", "Whether " work " is done.") { \
    bool done; \
    EXT_TRY(px_##word##_query(&done, word##_of(self))); \
    return PyBool_FromLong(done); \
  } \
  EXT_RETURNS_NONE(word, synchronize, px_##word##_synchronize(word##_of(self)), \
                   "Waits for " work " to complete.")
SYNCHRONIZE(stream, "all the work submitted so far");

static PyObject *no_events(int type) {
  EXT_FAIL(PyExc_RuntimeError, "%s backend doesn't support events.", px_device_type_name(type));
}
// Rejects other objects with PyTorch's message: the missing method it would call.
static int check_type(PyObject *object, PyTypeObject *type, const char *method) {
  if (PyObject_TypeCheck(object, type)) return 0;
  EXT_FAIL_INT(PyExc_AttributeError, "'%s' object has no attribute '%s'", ext_type_name(object),
               method);
}
EXT_METHOD(stream, wait_stream, "(stream: Stream) -> None",
           "Makes all future work submitted to this stream wait for all work submitted to `stream` "
           "so far.") {
  EXT_ARGS(PyObject *, stream);
  if (check_type(stream, &ext_StreamType, "record_event") < 0) return NULL;
  if (px_stream_device(stream_of(stream)).type == PX_CPU) return no_events(PX_CPU);
  return ext_none(px_stream_wait_stream(stream_of(self), stream_of(stream)));
}
EXT_METHOD(stream, wait_event, "(event: Event) -> None",
           "Makes all future work submitted to this stream wait for the last record of `event`.") {
  EXT_ARGS(PyObject *, event);
  if (check_type(event, &ext_EventType, "wait") < 0) return NULL;
  return ext_none(px_stream_wait_event(stream_of(self), event_of(event)));
}
EXT_METHOD(stream, record_event, "(event: Event | None = None) -> Event",
           "Records an event, by default a new one, and returns it.") {
  EXT_ARGS(PyObject *, event);
  if (px_stream_device(stream_of(self)).type == PX_CPU) return no_events(PX_CPU);
  bool cuda = PyObject_TypeCheck(self, &cuda_stream_type);
  PyTypeObject *type = cuda ? &cuda_event_type : &ext_EventType;
  EXT_OWNED *used = event ? Py_NewRef(event) : PyObject_CallNoArgs((PyObject *)type);
  if (!used || check_type(used, &ext_EventType, "record") < 0) return NULL;
  EXT_TRY(px_event_record(event_of(used), stream_of(self)));
  return ext_moved(&used);
}
EXT_METHOD0(stream, __enter__, "Stream", NULL) {
  return enter_stream(&((stream_object *)self)->scope, stream_of(self)) < 0 ? NULL
                                                                            : Py_NewRef(self);
}
EXT_METHOD(stream, __exit__, "(*exc: object) -> None", NULL) {
  return exit_scope(&((stream_object *)self)->scope, "stream", true) < 0 ? NULL
                                                                         : Py_NewRef(Py_None);
}

// ---- with torch.cuda.stream(s)
typedef struct context_object {
  PyObject_HEAD PyObject *stream;
  scope scope;
} context_object;
static void context_end(PyObject *self) { scope_end(&((context_object *)self)->scope); }
EXT_OWNS(context, EXT_OBJECT(context_object, stream), EXT_FINALIZER(context_end));
EXT_NEW(context, "(stream: Stream | None)") {
  if (!call->nargs && !(call->kwargs && PyDict_GET_SIZE(call->kwargs)))
    EXT_FAIL(PyExc_TypeError,
             "stream() missing 1 required positional argument: 'stream' (a new stream is made by "
             "torch.cuda.Stream())");
  EXT_ARGS(PyObject *, stream);
  context_object *self = ext_new(type);
  if (self) self->stream = Py_NewRef(stream ? stream : Py_None);
  return (PyObject *)self;
}
EXT_TYPE(context, "torch.cuda.StreamContext", "cuda.StreamContext cuda.stream", context_object,
         EXT_BASETYPE | EXT_SHORT_NAME,
         "Context manager that selects a given stream and its device. None is a no-op.\n\n"
         "Args:\n"
         "    stream (Stream or None)\n\n"
         ">>> with torch.cuda.stream(torch.cuda.Stream()):\n"
         "...     x = torch.zeros(2, device='cuda')\n",
         EXT_LIFETIME_SLOTS(context), .tp_new = context_new);
EXT_GET(context, stream, "Stream | None", Py_NewRef(((context_object *)self)->stream),
        "The stream.");
EXT_METHOD0(context, __enter__, "None", NULL) {
  context_object *object = (context_object *)self;
  px_stream *stream;
  if (ext_to_stream(object->stream, &stream) < 0) return NULL;
  return stream && enter_stream(&object->scope, stream) < 0 ? NULL : Py_NewRef(Py_None);
}
EXT_METHOD(context, __exit__, "(*exc: object) -> None", NULL) {
  context_object *object = (context_object *)self;
  if (object->stream == Py_None) Py_RETURN_NONE;
  return exit_scope(&object->scope, "stream", true) < 0 ? NULL : Py_NewRef(Py_None);
}

// ---- with torch.cuda.device(i)
typedef struct device_scope_object {
  PyObject_HEAD int index;  // -1: none
  bool restores;            // the block changed the current device
  scope scope;
} device_scope_object;
static void device_scope_end(PyObject *self) { scope_end(&((device_scope_object *)self)->scope); }
EXT_OWNS(device_scope, EXT_FINALIZER(device_scope_end));
EXT_NEW(device_scope, "(device: Device | None)") {
  EXT_ARGS(PyObject *, device);
  int index = -1;
  if (device && ext_to_scope_index(device, &index) < 0) return NULL;
  device_scope_object *self = ext_new(type);
  if (self) self->index = index, self->restores = index >= 0 || !device || !PyLong_Check(device);
  return (PyObject *)self;
}
EXT_TYPE(
    device_scope, "torch.cuda.device", "cuda.device", device_scope_object,
    EXT_BASETYPE | EXT_SHORT_NAME,
    "Context manager that changes the selected device.\n\n"
    "Args:\n"
    "    device (torch.device, str or int): device index to select; a negative index or None is "
    "a no-op\n\n"
    ">>> with torch.cuda.device(0):\n"
    "...     x = torch.zeros(2, device='cuda')\n",
    EXT_LIFETIME_SLOTS(device_scope), .tp_new = device_scope_new);
EXT_GET(device_scope, idx, "int", ((device_scope_object *)self)->index, "The index; -1 for none.");
EXT_METHOD0(device_scope, __enter__, "device", NULL) {
  device_scope_object *object = (device_scope_object *)self;
  return enter_device(&object->scope, object->index) < 0 ? NULL : Py_NewRef(self);
}
EXT_METHOD(device_scope, __exit__, "(*exc: object) -> Literal[False]", NULL) {
  device_scope_object *object = (device_scope_object *)self;
  return exit_scope(&object->scope, "device scope", object->restores) < 0 ? NULL
                                                                          : Py_NewRef(Py_False);
}

EXT_NEW(device_of_scope, "(obj: Any)") {
  EXT_ARGS(PyObject *, obj);
  EXT_OWNED *is_cuda = PyObject_GetAttrString(obj ? obj : Py_None, "is_cuda");
  int on_device = is_cuda ? PyObject_IsTrue(is_cuda) : -1;
  EXT_OWNED *index = on_device > 0    ? PyObject_CallMethod(obj, "get_device", NULL)
                     : on_device == 0 ? PyLong_FromLong(-1)
                                      : NULL;
  const ext_call of_index = {&device_scope_construct_row, NULL, &index, 1, NULL, NULL};
  return index ? device_scope_construct(type, &of_index) : NULL;
}
EXT_TYPE(device_of_scope, "torch.cuda.device_of", "cuda.device_of", device_scope_object,
         EXT_BASETYPE | EXT_SHORT_NAME,
         "Context manager that selects the device of a tensor; a no-op for CPU tensors.\n\n"
         "Args:\n"
         "    obj (Tensor): a tensor, or another object with is_cuda and get_device\n",
         EXT_LIFETIME_SLOTS(device_scope), .tp_base = &device_scope_type,
         .tp_new = device_of_scope_new);

// ---- events
EXT_OWNS(event, EXT_CORE(event_object, event));

static unsigned event_flags(bool enable_timing, bool blocking, bool interprocess) {
  return (enable_timing ? PX_EVENT_TIMING : 0) | (blocking ? PX_EVENT_BLOCKING : 0) |
         (interprocess ? PX_EVENT_INTERPROCESS : 0);
}
EXT_NEW(event,
        "(device: Device | None = None, *, enable_timing: bool = False, blocking: bool = False, "
        "interprocess: bool = False)") {
  bool enable_timing, blocking, interprocess;
  px_device device;
  px_event *made = NULL;
  EXT_BIND(device, enable_timing, blocking, interprocess);
  EXT_TRY(px_event_new(&made, event_flags(enable_timing, blocking, interprocess)));
  PyObject *self = wrap_event(type, made, device.type < 0 ? PX_CUDA : device.type);
  if (self) ((event_object *)self)->timing = enable_timing;
  return self;
}
static px_device device_of_event(PyObject *self) {
  px_device recorded = px_event_device(event_of(self));
  return recorded.type < 0 ? (px_device){((event_object *)self)->type, -1} : recorded;
}
static PyObject *event_repr(PyObject *self) {
  px_device device = device_of_event(self);
  EXT_OWNED *handle = PyLong_FromVoidPtr(px_event_native(event_of(self)));
  if (!handle) return NULL;
  return PyUnicode_FromFormat(
      "torch.Event device_type=%s, device_index=%d, event_flag=%d, event_id=%S",
      px_device_type_name(device.type), device.index, ((event_object *)self)->timing, handle);
}
EXT_SHARED_TYPE(
    event, ext_EventType, "torch.Event", "Event", event_object, EXT_BASETYPE,
    "A marker in a stream, used to wait for its work and to measure time.\n\n"
    "Args:\n"
    "    device (torch.device, str or int): its type is that of the streams; default: cuda\n"
    "    enable_timing (bool): whether the event should measure time\n"
    "    blocking (bool): whether synchronize blocks the thread instead of spinning\n"
    "    interprocess (bool): whether the event can be shared between processes\n\n"
    ">>> a, b = (torch.Event('cuda', enable_timing=True) for _ in range(2))\n"
    ">>> a.record(); b.record(); b.synchronize()\n"
    ">>> a.elapsed_time(b) >= 0\n"
    "True\n",
    EXT_LIFETIME_SLOTS(event), .tp_new = event_new, .tp_repr = event_repr);

EXT_NEW(cuda_event,
        "(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, "
        "external: bool = False)") {
  bool enable_timing, blocking, interprocess, external;
  px_event *made = NULL;
  EXT_BIND(enable_timing, blocking, interprocess, external);
  EXT_TRY(px_event_new(&made, event_flags(enable_timing, blocking, interprocess)));
  return wrap_event(type, made, PX_CUDA);
}
static PyObject *cuda_event_repr(PyObject *self) {
  if (!px_event_native(event_of(self)))
    return PyUnicode_FromString("<torch.cuda.Event uninitialized>");
  return PyUnicode_FromFormat("<torch.cuda.Event %p>", px_event_native(event_of(self)));
}
EXT_TYPE(cuda_event, "torch.cuda.Event", "cuda.Event", event_object, EXT_BASETYPE | EXT_SHORT_NAME,
         "A marker in a stream, used to wait for its work and to measure time.\n\n"
         "Args:\n"
         "    enable_timing (bool): whether the event should measure time\n"
         "    blocking (bool): whether synchronize blocks the thread instead of spinning\n"
         "    interprocess (bool): whether the event can be shared between processes\n\n"
         ">>> a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
         ">>> a.record(); b.record(); b.synchronize()\n"
         ">>> a.elapsed_time(b) >= 0\n"
         "True\n",
         EXT_LIFETIME_SLOTS(event), .tp_base = &ext_EventType, .tp_new = cuda_event_new,
         .tp_repr = cuda_event_repr);

int ext_to_event(PyObject *object, px_event **out) {
  if (!PyObject_TypeCheck(object, &ext_EventType))
    EXT_FAIL_INT(PyExc_TypeError, "expected a torch.cuda.Event, not %s", ext_type_name(object));
  *out = event_of(object);
  return 0;
}

EXT_GET(event, device, "device", device_of_event(self),
        "The device of the recording stream; without an index before the first record.");
EXT_GET(event, event_id, "int", px_event_native(event_of(self)),
        "The backend's handle as a number; 0 before the first record.");
EXT_GET(cuda_event, device, "device | None", px_event_device(event_of(self)),
        "The device of the recording stream; None before the first record.");
EXT_GET(cuda_event, cuda_event, "int", px_event_native(event_of(self)),
        "The backend's handle as a number.");
EXT_GET(cuda_event, _as_parameter_, "Any", as_parameter(px_event_native(event_of(self))), NULL);

// None means the current stream.
static int stream_or_current(px_stream **stream) {
  if (!*stream) EXT_TRY_INT(px_stream_current(stream, px_cuda(-1)));
  return 0;
}
EXT_METHOD(event, record, "(stream: Stream | None = None) -> None",
           "Records the event in a given stream; default: the current stream.") {
  EXT_ARGS(px_stream *, stream);
  int type = ((event_object *)self)->type;
  if (type != PX_CUDA) return no_events(type);
  if (stream_or_current(&stream) < 0) return NULL;
  if (px_stream_device(stream).type != PX_CUDA)
    EXT_FAIL(PyExc_RuntimeError,
             "Event device type CUDA does not match recording stream's device type CPU.");
  return ext_none(px_event_record(event_of(self), stream));
}
EXT_METHOD(event, wait, "(stream: Stream | None = None) -> None",
           "Makes all future work submitted to the stream (default: the current one) wait for this "
           "event.") {
  EXT_ARGS(px_stream *, stream);
  if (stream_or_current(&stream) < 0) return NULL;
  return ext_none(px_stream_wait_event(stream, event_of(self)));
}
SYNCHRONIZE(event, "all work captured by the event");
EXT_METHOD(event, elapsed_time, "(end_event: Event) -> float",
           "Returns the milliseconds between this event and `end_event`. Both must be created with "
           "enable_timing=True\nand completed.") {
  float milliseconds;
  EXT_ARGS(PyObject *, end_event);
  px_event *end;
  if (ext_to_event(end_event, &end) < 0) return NULL;
  EXT_TRY(px_event_elapsed(&milliseconds, event_of(self), end));
  return PyFloat_FromDouble((double)milliseconds);
}
EXT_METHOD0(
    event, ipc_handle, "bytes",
    "Returns an IPC handle of this event, which must be created with interprocess=True and "
    "kept alive while\nother processes use it. An event not recorded yet becomes one of the "
    "current device.") {
  px_ipc_handle handle;
  EXT_TRY(px_event_ipc_handle(&handle, event_of(self)));
  return PyBytes_FromStringAndSize((char *)handle.bytes, sizeof handle.bytes);
}
EXT_CLASS_METHOD(event, from_ipc_handle, "(device: Device, handle: bytes) -> Event",
                 "Reconstructs an event from an IPC handle on the given device.") {
  ext_cuda device;
  PyObject *handle;
  px_ipc_handle bytes;
  px_event *made = NULL;
  EXT_BIND(device, handle);
  if (!PyBytes_Check(handle))
    EXT_FAIL(PyExc_TypeError, "from_ipc_handle() expects handle to be bytes, not %s",
             ext_type_name(handle));
  if (PyBytes_GET_SIZE(handle) != (Py_ssize_t)sizeof bytes)
    EXT_FAIL(PyExc_RuntimeError,
             "cudaIpcEventHandle_t expects byte-like object of size %zu, but got %zd", sizeof bytes,
             PyBytes_GET_SIZE(handle));
  memcpy(bytes.bytes, PyBytes_AS_STRING(handle), sizeof bytes);
  EXT_TRY(px_event_from_ipc_handle(&made, px_cuda(device.index), &bytes));
  return wrap_event((PyTypeObject *)self, made, PX_CUDA);
}

// ---- functions
// Finds a stream of the device argument, by default of the current device. Looks up the current
// device only if needed.
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
             "Returns this thread's currently selected stream for a device.") {
  return stream_at(call, px_stream_current);
}
EXT_FUNCTION(cuda, default_stream, "(device: Device | None = None) -> Stream",
             "Returns the default stream of a device.") {
  return stream_at(call, px_stream_default);
}
EXT_FUNCTION(cuda, get_stream_from_external,
             "(data_ptr: int, device: Device | None = None) -> Stream",
             "Returns a stream from an external handle, a cudaStream_t. The same lifetime rules as "
             "for\n:class:`ExternalStream` apply.") {
  PyObject *data_ptr;
  ext_cuda device;
  px_stream *found = NULL;
  EXT_BIND(data_ptr, device);
  return stream_from(&found, data_ptr, device.index) < 0 ? NULL : ext_stream(found);
}
EXT_FUNCTION(cuda, set_stream, "(stream: Stream | None) -> None",
             "Sets the current stream and its device for this thread. None is a no-op.") {
  EXT_ARGS(px_stream *, stream);
  if (!stream) Py_RETURN_NONE;
  EXT_TRY(px_device_set(px_stream_device(stream).index));
  return ext_none(px_stream_set_current(stream));
}
EXT_SAME_MEMBERS(accelerator, cuda, current_stream, set_stream);

static int to_stream(PyObject *object, void *out) { return ext_to_stream(object, out); }
EXT_CONVERTS(EXT_KIND_STREAM, to_stream);
