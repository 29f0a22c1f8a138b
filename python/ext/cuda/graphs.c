// SPDX-License-Identifier: Apache-2.0
// torch.cuda.CUDAGraph: device work captured once and replayed as a whole. The capturing context
// manager (torch.cuda.graph) is in phlox/cuda/graphs.py.
#include "bind/ext.h"

#include "phlox/autocast.h"
#include "phlox/graph.h"
#include "phlox/ops/copy.h"

typedef struct graph_object {
  PyObject_HEAD px_graph *graph;
} graph_object;
static px_graph *graph_of(PyObject *self) { return ((graph_object *)self)->graph; }

PyObject *ext_graph_pool(px_graph_pool pool) {
  return Py_BuildValue("(KK)", (unsigned long long)pool.own, (unsigned long long)pool.shared);
}
static int to_pool(PyObject *object, px_graph_pool *out) {
  *out = (px_graph_pool){0};
  if (ext_is_none(object)) return 0;
  unsigned long long own, shared;
  if (!PyTuple_Check(object))
    EXT_FAIL_INT(PyExc_TypeError,
                 "pool must be a tuple of two ints from graph_pool_handle() or CUDAGraph.pool(), "
                 "not %s",
                 ext_type_name(object));
  if (!PyArg_ParseTuple(object, "KK", &own, &shared)) return -1;
  *out = (px_graph_pool){own, shared};
  return 0;
}
static int to_mode(const char *text, px_capture_mode *out) {
  static const char *const names[] = {"global", "thread_local", "relaxed"};
  for (int i = 0; i < EXT_LENGTH(names); i++)
    if (!strcmp(names[i], text)) return *out = (px_capture_mode)i, 0;
  EXT_FAIL_INT(PyExc_RuntimeError,
               "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
               "%s",
               text);
}

EXT_FUNCTION0(cuda, is_current_stream_capturing, "bool",
              "Returns True if the current stream is capturing.") {
  px_stream *stream;
  if (!px_device_initialized()) Py_RETURN_FALSE;
  EXT_TRY(px_stream_current(&stream, px_cuda(px_device_peek())));
  return PyBool_FromLong(px_stream_capturing(stream));
}
EXT_FUNCTION0(cuda, graph_pool_handle, "tuple[int, int]",
              "Returns a handle of a memory pool that graphs can share.") {
  return ext_graph_pool(px_graph_pool_new());
}

EXT_OWNS(device_graph, EXT_CORE(graph_object, graph));
EXT_NEW(device_graph, "(keep_graph: bool = False)") {
  EXT_ARGS(bool, keep_graph);
  PX_SCOPED(px_graph) made = NULL;
  EXT_TRY(px_graph_new(&made));
  if (keep_graph) EXT_TRY(px_graph_keep(made));
  return ext_wrap_core(type, PX_MOVE(made));
}
EXT_TYPE(device_graph, "torch.cuda.CUDAGraph", "cuda.CUDAGraph", graph_object,
         EXT_BASETYPE | EXT_SHORT_NAME,
         "Device work captured once and replayed as a whole, at the same addresses.\n"
         "Captured within `with torch.cuda.graph(g)`.\n\n"
         "Args:\n"
         "    keep_graph (bool): keeps the captured graph for raw_cuda_graph and "
         "debug_dump;\n"
         "        it is instantiated by instantiate(), or by the first replay\n\n"
         ">>> x, g = torch.ones(3, device='cuda'), torch.cuda.CUDAGraph()\n"
         ">>> with torch.cuda.graph(g):\n"
         "...     y = x * 2\n"
         ">>> x.fill_(5).device.type\n"
         "'cuda'\n"
         ">>> g.replay(); y.tolist()\n"
         "[10.0, 10.0, 10.0]\n",
         EXT_LIFETIME_SLOTS(device_graph), .tp_new = device_graph_new);

EXT_METHOD(
    device_graph, capture_begin,
    "(pool: tuple[int, int] | None = None, capture_error_mode: str = 'global') -> None",
    "Begins capturing work on the current stream, which must not be a default stream.\n\n"
    "Args:\n"
    "    pool: memory pool to share, from graph_pool_handle() or another graph's pool(); "
    "default: a new one\n"
    "    capture_error_mode: device waits that fail during the capture: \"global\" those of all "
    "threads, \"thread_local\" those of this thread, \"relaxed\" only those on the capture\n") {
  PyObject *pool;
  const char *capture_error_mode;
  px_graph_pool from;
  px_capture_mode mode;
  EXT_BIND(pool, capture_error_mode);
  if (to_pool(pool, &from) < 0 || to_mode(capture_error_mode, &mode) < 0) return NULL;
  return ext_none(px_graph_begin(graph_of(self), from, mode));
}
EXT_RETURNS_NONE(device_graph, capture_end, px_graph_end(graph_of(self)),
                 "Ends the capture. Must be called on the stream on which it began.");
EXT_RETURNS_NONE(device_graph, replay, px_graph_replay(graph_of(self)),
                 "Replays the graph on the current stream.");
EXT_RETURNS_NONE(device_graph, reset, px_graph_reset(graph_of(self)),
                 "Deletes the captured graph and releases its memory.");
EXT_RETURNS_NONE(device_graph, instantiate, px_graph_instantiate(graph_of(self)),
                 "Instantiates the kept graph for replay, again if it already was.");
EXT_RETURNS_NONE(device_graph, enable_debug_mode, px_graph_keep(graph_of(self)),
                 "Keeps graphs captured from now on, like keep_graph=True.");

static PyObject *native(PyObject *self, bool ready) {
  void *handle;
  EXT_TRY(px_graph_native(&handle, graph_of(self), ready));
  return PyLong_FromVoidPtr(handle);
}
EXT_METHOD0(device_graph, raw_cuda_graph, "int",
            "Returns the backend's handle of the kept graph; a cudaGraph_t on CUDA.") {
  return native(self, false);
}
EXT_METHOD0(device_graph, raw_cuda_graph_exec, "int",
            "Returns the backend's handle of the instantiated graph; a cudaGraphExec_t on CUDA.") {
  return native(self, true);
}
EXT_METHOD(device_graph, debug_dump, "(debug_path: str) -> None",
           "Writes the kept graph to a file in Graphviz format.") {
  const char *debug_path;
  EXT_BIND(debug_path);
  return ext_none(px_graph_print(graph_of(self), debug_path));
}
EXT_METHOD0(device_graph, pool, "tuple[int, int]",
            "Returns the handle of the graph's memory pool.") {
  px_graph_pool pool;
  EXT_TRY(px_graph_pool_of(&pool, graph_of(self)));
  return ext_graph_pool(pool);
}
EXT_METHOD(device_graph, register_generator_state, "(generator: Generator) -> None",
           "Checks that a graph can use `generator`, which must be a device's. No registration is "
           "needed: the\nfirst graph drawing from a generator owns it.") {
  px_generator *given;
  EXT_ARGS(PyObject *, generator);
  if (ext_to_generator(generator, &given) < 0) return NULL;
  if (!given || px_generator_device(given).type != PX_CUDA)
    EXT_FAIL(PyExc_RuntimeError, "Expected a 'cuda' device type for generator but found '%s'",
             given ? px_device_type_name(px_generator_device(given).type) : "none");
  Py_RETURN_NONE;
}

// ---- make_graphed_callables
// True if an attribute of a module is not empty.
static int is_nonempty(PyObject *module, const char *name) {
  EXT_OWNED *hooks = PyObject_GetAttrString(module, name);
  return hooks ? PyObject_IsTrue(hooks) : -1;
}
static int check_hooks(PyObject *module) {
  static const char *const names[] = {"_backward_hooks", "_forward_hooks", "_forward_pre_hooks"};
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    int held = is_nonempty(module, names[i]);
    if (held < 0) return -1;
    if (held)
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "Modules must not have hooks registered at the time they are passed. However, "
                   "registering hooks on modules after passing them through "
                   "make_graphed_callables is allowed.");
  }
  return 0;
}
static int check_buffers(PyObject *module) {
  EXT_OWNED *buffers = PyObject_CallMethod(module, "buffers", NULL);
  EXT_OWNED *list = buffers ? PySequence_List(buffers) : NULL;
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    EXT_OWNED *needs = PyObject_GetAttrString(PyList_GET_ITEM(list, i), "requires_grad");
    if (!needs) return -1;
    if (needs == Py_True)
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, "
                   "only parameters may be trainable. All buffers must have "
                   "``requires_grad=False``.");
  }
  return list ? 0 : -1;
}
// Copies tensors to the inputs of a graph. Copying a tensor to itself is a no-op.
static px_status copy_to_inputs(PyObject *kept, PyObject *given) {
  Py_ssize_t count = PyTuple_GET_SIZE(given), capacity = PyTuple_GET_SIZE(kept);
  for (Py_ssize_t i = 0; i < count && i < capacity; i++) {
    PyObject *to = PyTuple_GET_ITEM(kept, i), *from = PyTuple_GET_ITEM(given, i);
    if (ext_is_tensor(to) && ext_is_tensor(from))
      PX_TRY(px_copy_(ext_tensor(to), ext_tensor(from), true));
  }
  return PX_OK;
}
EXT_FUNCTION(torch, _graphed_replay, "(graph: Any, kept: Any, given: Any) -> None",
             "Copies `given` to the graph's inputs `kept` and replays the graph.") {
  EXT_ARGS(PyObject *, graph, kept, given);
  EXT_OWNED *to = PySequence_Tuple(kept);
  EXT_OWNED *from = to ? PySequence_Tuple(given) : NULL;
  if (!from) return NULL;
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = copy_to_inputs(to, from);
  px_grad_set_enabled(was);
  EXT_TRY(status);
  return PyObject_CallMethod(graph, "replay", NULL);
}
EXT_FUNCTION(torch, _graphed_check, "(module: Any, inputs: Any) -> None",
             "Checks that a module and its inputs can be captured.") {
  EXT_ARGS(PyObject *, module, inputs);
  px_autocast mixed = px_autocast_get();
  if (mixed.enabled[PX_CUDA] && mixed.cache)
    EXT_FAIL(PyExc_RuntimeError,
             "make_graphed_callables does not support the autocast caching. Please set "
             "`cache_enabled=False`.");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++)
    if (!ext_is_tensor(PyTuple_GET_ITEM(inputs, i)))
      EXT_FAIL(PyExc_TypeError,
               "In the beta API, sample_args for each callable must contain only Tensors. Other "
               "types are not allowed.");
  return check_hooks(module) < 0 || check_buffers(module) < 0 ? NULL : Py_NewRef(Py_None);
}

// ---- with torch.cuda.graph(g)
typedef struct capture_object {
  PyObject_HEAD PyObject *graph, *pool, *stream, *mode;
} capture_object;
EXT_OWNS(graph_scope, EXT_OBJECT(capture_object, graph), EXT_OBJECT(capture_object, pool),
         EXT_OBJECT(capture_object, stream), EXT_OBJECT(capture_object, mode));

// Default stream for captures: one per device.
static PyObject *default_stream(void) {
  enum { DEVICES = 64 };
  static px_stream *kept[DEVICES];
  int device;
  EXT_TRY(px_device_current(&device));
  if (!kept[device]) EXT_TRY(px_stream_new(&kept[device], px_cuda(device), 0));
  return ext_stream(px_retain(kept[device]));
}
EXT_NEW(graph_scope,
        "(cuda_graph: CUDAGraph, pool: tuple[int, int] | None = None, stream: Stream | None = "
        "None, capture_error_mode: str = 'global')") {
  PyObject *cuda_graph, *pool, *stream;
  const char *capture_error_mode;
  px_graph_pool checked;
  px_capture_mode mode;
  px_stream *given;
  EXT_BIND(cuda_graph, pool, stream, capture_error_mode);
  if (to_pool(pool, &checked) < 0 || to_mode(capture_error_mode, &mode) < 0) return NULL;
  if (ext_to_stream(stream ? stream : Py_None, &given) < 0) return NULL;
  EXT_OWNED *used = given ? Py_NewRef(stream) : default_stream();
  EXT_OWNED *text = used ? PyUnicode_FromString(capture_error_mode) : NULL;
  capture_object *self = text ? ext_new(type) : NULL;
  if (!self) return NULL;
  self->graph = Py_NewRef(cuda_graph), self->pool = Py_NewRef(pool ? pool : Py_None);
  self->stream = ext_moved(&used), self->mode = ext_moved(&text);
  return (PyObject *)self;
}
EXT_TYPE(
    graph_scope, "torch.cuda.graph", "cuda.graph", capture_object, EXT_BASETYPE | EXT_SHORT_NAME,
    "Context manager that captures work into a graph instead of running it.\n\n"
    "Args:\n"
    "    cuda_graph (CUDAGraph): the graph to capture into\n"
    "    pool (tuple): memory pool to share, from graph_pool_handle() or another graph's pool()\n"
    "    stream (Stream): the stream to capture, made current; default: an internal side stream\n"
    "    capture_error_mode (str): \"global\", \"thread_local\" or \"relaxed\", as of "
    "CUDAGraph.capture_begin\n\n"
    ">>> x, g = torch.zeros(2, device='cuda'), torch.cuda.CUDAGraph()\n"
    ">>> with torch.cuda.graph(g):\n"
    "...     _ = x.add_(1)\n"
    ">>> g.replay(); g.replay(); x.tolist()\n"
    "[2.0, 2.0]\n",
    EXT_LIFETIME_SLOTS(graph_scope), .tp_new = graph_scope_new);
EXT_GET(graph_scope, cuda_graph, "CUDAGraph", Py_NewRef(((capture_object *)self)->graph),
        "The graph captured into.");
EXT_GET(graph_scope, capture_stream, "Stream", Py_NewRef(((capture_object *)self)->stream),
        "The captured stream.");

// Collects garbage first: memory freed during the capture could not be reused in it.
static int collect_garbage(void) {
  EXT_TRY_INT(EXT_NOGIL(px_device_synchronize(-1)));
  PyGC_Collect();
  return ext_zero(EXT_NOGIL(px_memory_empty_cache()));
}
// Preserves a pending exception.
static int exit_stream(PyObject *stream) {
  PyObject *raised = ext_exception_take();
  EXT_OWNED *left = PyObject_CallMethod(stream, "__exit__", "OOO", Py_None, Py_None, Py_None);
  if (raised) ext_exception_set(raised);
  return left ? 0 : -1;
}
EXT_METHOD0(graph_scope, __enter__, "None", NULL) {
  capture_object *c = (capture_object *)self;
  if (collect_garbage() < 0) return NULL;
  EXT_OWNED *entered = PyObject_CallMethod(c->stream, "__enter__", NULL);
  if (!entered) return NULL;
  EXT_OWNED *begun = PyObject_CallMethod(c->graph, "capture_begin", "OO", c->pool, c->mode);
  return begun || exit_stream(c->stream) < 0 ? ext_moved(&begun) : NULL;
}
EXT_METHOD(graph_scope, __exit__, "(*exc: object) -> None", NULL) {
  capture_object *c = (capture_object *)self;
  EXT_OWNED *ended = PyObject_CallMethod(c->graph, "capture_end", NULL);
  return exit_stream(c->stream) < 0 ? NULL : ext_moved(&ended);
}
