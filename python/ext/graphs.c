// SPDX-License-Identifier: Apache-2.0
// torch.cuda.CUDAGraph: device work that is captured once and replayed as a whole. What captures
// with it (torch.cuda.graph) is phlox/cuda/graphs.py.
#include "ext.h"

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
                 "pool must be a tuple of two ints, as graph_pool_handle() and "
                 "CUDAGraph.pool() give it, not %s",
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
              "Whether work of the current stream is being captured.") {
  px_stream *stream;
  if (!px_device_initialized()) Py_RETURN_FALSE;
  EXT_TRY(px_stream_current(&stream, px_cuda(px_device_peek())));
  return PyBool_FromLong(px_stream_capturing(stream));
}
EXT_FUNCTION0(cuda, graph_pool_handle, "tuple[int, int]",
              "Names a pool of memory that graphs may share.") {
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
         "Device work that is captured once and then replayed as a whole, at the same addresses.\n"
         "It is filled within `with torch.cuda.graph(g)`.\n\n"
         "Args:\n"
         "    keep_graph (bool): whether what is captured stays as it was, for raw_cuda_graph and "
         "debug_dump;\n"
         "        it is made ready by instantiate(), or by the first replay\n\n"
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
    "Begins to capture the current stream, which may not be a default one.\n\n"
    "Args:\n"
    "    pool: whose memory is used, of graph_pool_handle() or another graph's pool(); one "
    "of its own by default\n"
    "    capture_error_mode: whose waits for devices are refused meanwhile: \"global\" those "
    "of all threads, \"thread_local\" this thread's, \"relaxed\" only those for the capture\n") {
  PyObject *pool;
  const char *capture_error_mode;
  px_graph_pool from;
  px_capture_mode mode;
  EXT_BIND(pool, capture_error_mode);
  if (to_pool(pool, &from) < 0 || to_mode(capture_error_mode, &mode) < 0) return NULL;
  return ext_none(px_graph_begin(graph_of(self), from, mode));
}
EXT_RETURNS_NONE(device_graph, capture_end, px_graph_end(graph_of(self)),
                 "Ends the capture, on the stream on which it began.");
EXT_RETURNS_NONE(device_graph, replay, px_graph_replay(graph_of(self)),
                 "Queues one run of the graph on the current stream.");
EXT_RETURNS_NONE(device_graph, reset, px_graph_reset(graph_of(self)),
                 "Lets go of what was captured, and of its memory.");
EXT_RETURNS_NONE(device_graph, instantiate, px_graph_instantiate(graph_of(self)),
                 "Makes what was kept ready for replays, anew where it was.");
EXT_RETURNS_NONE(device_graph, enable_debug_mode, px_graph_keep(graph_of(self)),
                 "Keeps what is captured from now on as it was, as keep_graph=True does.");

static PyObject *native(PyObject *self, bool ready) {
  void *handle;
  EXT_TRY(px_graph_native(&handle, graph_of(self), ready));
  return PyLong_FromVoidPtr(handle);
}
EXT_METHOD0(device_graph, raw_cuda_graph, "int",
            "The backend's handle of what was kept; on CUDA a cudaGraph_t.") {
  return native(self, false);
}
EXT_METHOD0(device_graph, raw_cuda_graph_exec, "int",
            "The backend's handle of what is ready for replays; on CUDA a cudaGraphExec_t.") {
  return native(self, true);
}
EXT_METHOD(device_graph, debug_dump, "(debug_path: str) -> None",
           "Writes what was kept to a file, in the language of Graphviz.") {
  const char *debug_path;
  EXT_BIND(debug_path);
  return ext_none(px_graph_print(graph_of(self), debug_path));
}
EXT_METHOD0(device_graph, pool, "tuple[int, int]",
            "The pool of the graph's memory, for other graphs.") {
  px_graph_pool pool;
  EXT_TRY(px_graph_pool_of(&pool, graph_of(self)));
  return ext_graph_pool(pool);
}
EXT_METHOD(device_graph, register_generator_state, "(generator: Generator) -> None",
           "Checks that a graph can draw from `generator`, which must be one of a device. There is "
           "nothing to\nregister: a generator belongs to a graph once that draws from it.") {
  px_generator *given;
  EXT_ARGS(PyObject *, generator);
  if (ext_to_generator(generator, &given) < 0) return NULL;
  if (!given || px_generator_device(given).type != PX_CUDA)
    EXT_FAIL(PyExc_RuntimeError, "Expected a 'cuda' device type for generator but found '%s'",
             given ? px_device_type_name(px_generator_device(given).type) : "none");
  Py_RETURN_NONE;
}

// ---- what make_graphed_callables takes
// Whether an attribute of a module holds anything.
static int holds(PyObject *module, const char *name) {
  EXT_OWNED *hooks = PyObject_GetAttrString(module, name);
  return hooks ? PyObject_IsTrue(hooks) : -1;
}
static int check_hooks(PyObject *module) {
  static const char *const names[] = {"_backward_hooks", "_forward_hooks", "_forward_pre_hooks"};
  for (int i = 0; i < EXT_LENGTH(names); i++) {
    int held = holds(module, names[i]);
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
// Copies tensors to those that a graph reads; to itself, a copy does nothing.
static px_status refill(PyObject *kept, PyObject *given) {
  Py_ssize_t count = PyTuple_GET_SIZE(given), room = PyTuple_GET_SIZE(kept);
  for (Py_ssize_t i = 0; i < count && i < room; i++) {
    PyObject *to = PyTuple_GET_ITEM(kept, i), *from = PyTuple_GET_ITEM(given, i);
    if (ext_is_tensor(to) && ext_is_tensor(from))
      PX_TRY(px_copy_(ext_tensor(to), ext_tensor(from), true));
  }
  return PX_OK;
}
EXT_FUNCTION(torch, _graphed_replay, "(graph: Any, kept: Any, given: Any) -> None",
             "Copies `given` to what the graph reads, `kept`, and replays it.") {
  EXT_ARGS(PyObject *, graph, kept, given);
  EXT_OWNED *to = PySequence_Tuple(kept);
  EXT_OWNED *from = to ? PySequence_Tuple(given) : NULL;
  if (!from) return NULL;
  bool was = px_grad_enabled();
  px_grad_set_enabled(false);
  px_status status = refill(to, from);
  px_grad_set_enabled(was);
  EXT_TRY(status);
  return PyObject_CallMethod(graph, "replay", NULL);
}
EXT_FUNCTION(torch, _graphed_check, "(module: Any, inputs: Any) -> None",
             "Checks that a module, and tensors for it, can be made graphs of.") {
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

// The stream of captures that are given none: one for each device.
static PyObject *usual_stream(void) {
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
  EXT_OWNED *used = given ? Py_NewRef(stream) : usual_stream();
  EXT_OWNED *text = used ? PyUnicode_FromString(capture_error_mode) : NULL;
  capture_object *self = text ? ext_new(type) : NULL;
  if (!self) return NULL;
  self->graph = Py_NewRef(cuda_graph), self->pool = Py_NewRef(pool ? pool : Py_None);
  self->stream = ext_moved(&used), self->mode = ext_moved(&text);
  return (PyObject *)self;
}
EXT_TYPE(graph_scope, "torch.cuda.graph", "cuda.graph", capture_object,
         EXT_BASETYPE | EXT_SHORT_NAME,
         "Captures what is issued within a with statement, instead of running it.\n\n"
         "Args:\n"
         "    cuda_graph (CUDAGraph): what is filled\n"
         "    pool (tuple): of graph_pool_handle() or another graph's pool(): memory to share\n"
         "    stream (Stream): the stream that is captured, and current; by default one that is "
         "kept for this\n"
         "    capture_error_mode (str): \"global\", \"thread_local\" or \"relaxed\", as of "
         "CUDAGraph.capture_begin\n\n"
         ">>> x, g = torch.zeros(2, device='cuda'), torch.cuda.CUDAGraph()\n"
         ">>> with torch.cuda.graph(g):\n"
         "...     _ = x.add_(1)\n"
         ">>> g.replay(); g.replay(); x.tolist()\n"
         "[2.0, 2.0]\n",
         EXT_LIFETIME_SLOTS(graph_scope), .tp_new = graph_scope_new);
EXT_GET(graph_scope, cuda_graph, "CUDAGraph", Py_NewRef(((capture_object *)self)->graph),
        "What is filled.");
EXT_GET(graph_scope, capture_stream, "Stream", Py_NewRef(((capture_object *)self)->stream),
        "The stream that is captured.");

// What is garbage now would be freed during the capture, and could not be reused in it.
static int prepare(void) {
  EXT_TRY_INT(EXT_NOGIL(px_device_synchronize(-1)));
  PyGC_Collect();
  return ext_zero(EXT_NOGIL(px_memory_empty_cache()));
}
// What was raised before goes on being raised.
static int leave(PyObject *stream) {
  PyObject *raised = ext_exception_take();
  EXT_OWNED *left = PyObject_CallMethod(stream, "__exit__", "OOO", Py_None, Py_None, Py_None);
  if (raised) ext_exception_set(raised);
  return left ? 0 : -1;
}
EXT_METHOD0(graph_scope, __enter__, "None", NULL) {
  capture_object *c = (capture_object *)self;
  if (prepare() < 0) return NULL;
  EXT_OWNED *entered = PyObject_CallMethod(c->stream, "__enter__", NULL);
  if (!entered) return NULL;
  EXT_OWNED *begun = PyObject_CallMethod(c->graph, "capture_begin", "OO", c->pool, c->mode);
  return begun || leave(c->stream) < 0 ? ext_moved(&begun) : NULL;
}
EXT_METHOD(graph_scope, __exit__, "(*exc: object) -> None", NULL) {
  capture_object *c = (capture_object *)self;
  EXT_OWNED *ended = PyObject_CallMethod(c->graph, "capture_end", NULL);
  return leave(c->stream) < 0 ? NULL : ext_moved(&ended);
}
