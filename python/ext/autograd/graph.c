// SPDX-License-Identifier: Apache-2.0
// Autograd graph in Python: grad_fn nodes, hooks and their handles, backward and grad. A node's
// object is created on access and owns a reference to the node; objects of the same node compare
// equal. Hooks run with the GIL, on the thread on which the engine runs the node.
#include "bind/ext.h"
#include "ops/ops.h"

#include <string.h>

// ---- nodes
typedef struct node_object {
  PyObject_HEAD px_node *node;
} node_object;
static PyTypeObject node_type;
static px_node *node_of(PyObject *self) { return ((node_object *)self)->node; }

// Scripts print type(y.grad_fn).__name__: each node name has its own type, created on first use.
static PyTypeObject *type_of(const char *name) {
  static PyObject *types;
  if (!types && !(types = PyDict_New())) return NULL;
  PyObject *known = PyDict_GetItemString(types, name);
  if (known) return (PyTypeObject *)known;
  EXT_OWNED *type = PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){s:()}", name,
                                          (PyObject *)&node_type, "__slots__");
  if (!type || PyDict_SetItemString(types, name, type) < 0) return NULL;
  return (PyTypeObject *)type;
}

// A new object per call; objects of the same node are equal and hash alike.
PyObject *ext_node(px_node *node) {
  if (!node) Py_RETURN_NONE;
  PyTypeObject *type = type_of(px_node_name(node));
  return type ? ext_wrap_core(type, px_retain(node)) : NULL;
}
EXT_OWNS(node, EXT_CORE(node_object, node));
// The ctx of a Function's node, borrowed; NULL for other nodes.
static PyObject *ctx_of(PyObject *self) {
  px_context context;
  bool own = px_node_context(node_of(self), &context) && context.release == ext_release;
  return own ? context.context : NULL;
}

static PyObject *node_repr(PyObject *self) {
  return PyUnicode_FromFormat("<%s%s object at %p>", ctx_of(self) ? "torch.autograd.function." : "",
                              px_node_name(node_of(self)), node_of(self));
}

// A Function's node has the attributes of its ctx: saved_tensors, and those set by forward.
static PyObject *node_getattr(PyObject *self, PyObject *name) {
  PyObject *found = PyObject_GenericGetAttr(self, name), *ctx = ctx_of(self);
  if (found || !ctx || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  EXT_OWNED *first = ext_exception_take();
  found = PyObject_GetAttr(ctx, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  ext_exception_set(ext_moved(&first));
  return NULL;
}
static Py_hash_t node_hash(PyObject *self) { return Py_HashPointer(node_of(self)); }
static PyObject *node_compare(PyObject *a, PyObject *b, int op) {
  if (!PyObject_TypeCheck(b, &node_type) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((node_of(a) == node_of(b)) == (op == Py_EQ));
}
EXT_TYPE(node, "torch.autograd.graph.Node", "autograd.graph.Node", node_object, EXT_BASETYPE,
         "A recorded operation: the grad_fn of its results.", EXT_LIFETIME_SLOTS(node),
         .tp_repr = node_repr, .tp_getattro = node_getattr, .tp_hash = node_hash,
         .tp_richcompare = node_compare);

// Names of ops end in a digit. Other nodes without a ctx belong to the engine itself.
EXT_METHOD0(node, name, "str", "Returns the name, such as AddBackward0.") {
  const char *name = px_node_name(node_of(self));
  char last = *name ? name[strlen(name) - 1] : '0';
  bool inner = !ctx_of(self) && !(last >= '0' && last <= '9');
  return PyUnicode_FromFormat("%s%s", inner ? "torch::autograd::" : "", name);
}
EXT_RETURNS(node, _address, "int", (void *)node_of(self), "Returns the address of the node.");
EXT_RETURNS(node, _sequence_nr, "int", px_node_sequence(node_of(self)),
            "Returns the sequence number: later nodes have higher numbers.");
EXT_GETTER(node, next_functions, "tuple[tuple[Node | None, int], ...]",
           "The nodes of the inputs, each with its output number.") {
  int count = px_node_edge_count(node_of(self));
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    int output_nr = 0;
    px_node *next = px_node_edge(node_of(self), i, &output_nr);
    PyObject *pair = Py_BuildValue("(Ni)", ext_node(next), next ? output_nr : 0);
    if (!pair) Py_CLEAR(tuple);
    if (tuple) PyTuple_SET_ITEM(tuple, i, pair);
  }
  return tuple;
}
EXT_GETTER(node, variable, "Tensor", "The leaf tensor whose gradient this node accumulates.") {
  px_tensor *variable = px_node_variable(node_of(self));
  if (!variable)
    EXT_FAIL(PyExc_AttributeError, "'%s' object has no attribute 'variable'",
             px_node_name(node_of(self)));
  return ext_wrap_borrowed(variable);
}
EXT_GETTER(node, metadata, "dict", "A dict for user-defined metadata.") {
  PyObject *known = px_node_user(node_of(self));
  if (known) return Py_NewRef(known);
  EXT_OWNED *dict = PyDict_New();
  if (!dict) return NULL;
  EXT_TRY(px_node_set_user(node_of(self), dict, ext_release));
  Py_INCREF(dict);  // owned by the node
  return ext_moved(&dict);
}

// ---- hooks
// Result of a hook for a tensor; new reference.
static PyObject *call_hook(void *hook, px_tensor *tensor) {
  EXT_OWNED *argument = ext_wrap_borrowed(tensor);
  return argument ? PyObject_CallOneArg(hook, argument) : NULL;
}

static px_status run_hook(px_tensor **out, px_tensor *grad, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  PyObject *result = call_hook(context, grad);
  *out = NULL;
  if (result && result != Py_None && !ext_is_tensor(result))
    PyErr_Format(PyExc_TypeError, "expected Variable, but hook returned '%s'",
                 ext_type_name(result));
  else if (result && result != Py_None)
    *out = px_retain(ext_tensor(result));
  px_status status = PyErr_Occurred() ? ext_error_from_python() : PX_OK;
  Py_XDECREF(result);
  ext_gil_give(&gil);
  return status;
}

static px_status run_accumulated_hook(px_tensor *self, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  PyObject *result = call_hook(context, self);
  px_status status = result ? PX_OK : ext_error_from_python();
  Py_XDECREF(result);
  ext_gil_give(&gil);
  return status;
}

static void remove_hook(void *hook, int64_t id) { px_hook_remove(hook); }

// ---- hooks of nodes: functions of tuples of gradients

static PyObject *tuple_of_borrowed(px_tensor *const *grads, int count) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) PyTuple_SET_ITEM(tuple, i, ext_wrap_borrowed(grads[i]));
  return tuple && PyErr_Occurred() ? Py_DECREF(tuple), NULL : tuple;
}

// Replaces gradients by a hook's result; a single tensor is accepted for a single gradient.
static int replace_gradients(px_tensor **grads, int count, PyObject *hook, PyObject *given) {
  if (given == Py_None) return 0;
  EXT_OWNED *tuple = ext_is_tensor(given) ? PyTuple_Pack(1, given) : Py_NewRef(given);
  if (!tuple) return -1;
  if (!PyTuple_Check(tuple))
    EXT_FAIL_INT(PyExc_TypeError, "expected tuple, but hook returned '%s'", ext_type_name(given));
  if (PyTuple_GET_SIZE(tuple) != count) {
    EXT_OWNED *name = PyObject_GetAttrString(hook, "__name__");
    PyErr_Clear();
    PyErr_Format(PyExc_RuntimeError,
                 "hook '%S' has returned an incorrect number of values (got %zd, but expected %d)",
                 name ? name : hook, PyTuple_GET_SIZE(tuple), count);
    return -1;
  }
  for (int i = 0; i < count; i++)
    if (PyTuple_GET_ITEM(tuple, i) != Py_None && !ext_is_tensor(PyTuple_GET_ITEM(tuple, i)))
      EXT_FAIL_INT(PyExc_TypeError, "expected Variable, but hook returned '%s'",
                   ext_type_name(PyTuple_GET_ITEM(tuple, i)));
  for (int i = 0; i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(tuple, i);
    px_tensor *before = grads[i];
    grads[i] = item == Py_None ? NULL : px_retain(ext_tensor(item));
    px_release(before);
  }
  return 0;
}

// A prehook gets the gradients of the node's results. A posthook gets those of the inputs and then
// those of the results.
static px_status run_node_hook(px_tensor **grads, int count, px_tensor *const *others,
                               int other_count, void *hook) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  PyObject *first = tuple_of_borrowed(grads, count);
  PyObject *second = first && others ? tuple_of_borrowed(others, other_count) : NULL;
  PyObject *given =
      PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(hook, first, second, NULL);
  bool good = given && replace_gradients(grads, count, hook, given) == 0;
  px_status status = good ? PX_OK : ext_error_from_python();
  Py_XDECREF(given);
  Py_XDECREF(second);
  Py_XDECREF(first);
  ext_gil_give(&gil);
  return status;
}

static PyObject *add_node_hook(PyObject *self, PyObject *hook, bool after) {
  px_hook *added;
  Py_INCREF(hook);
  if (px_node_add_hook(&added, node_of(self), after, run_node_hook, hook, ext_release) == PX_OK)
    return ext_handle(added, 0, remove_hook, px_release);
  Py_DECREF(hook);
  return ext_raise();
}
EXT_METHOD(node, register_hook, "(fn: Callable) -> RemovableHandle",
           "Registers a backward hook: fn(grad_inputs, grad_outputs) is called with tuples of "
           "gradients\nafter each run of the node. It may return new grad_inputs.\n\n"
           ">>> x = torch.ones(1, requires_grad=True)\n"
           ">>> y = x * 2\n"
           ">>> handle = y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 5, None))\n"
           ">>> y.backward(); x.grad\n"
           "tensor([10.])\n") {
  EXT_ARGS(PyObject *, fn);
  return add_node_hook(self, fn, true);
}
EXT_METHOD(node, register_prehook, "(fn: Callable) -> RemovableHandle",
           "Registers a backward pre-hook: fn(grad_outputs) is called with a tuple of gradients "
           "before each run of the node. It may return new ones.") {
  EXT_ARGS(PyObject *, fn);
  return add_node_hook(self, fn, false);
}
EXT_GET(node, requires_grad, "bool", (bool)true, "Always True: the operation was recorded.");

PyObject *ext_tensor_register_hook(PyObject *self, PyObject *hook, bool accumulated) {
  px_tensor *tensor = ext_tensor(self);
  if (!px_tensor_requires_grad(tensor))
    EXT_FAIL(PyExc_RuntimeError,
             "cannot register a hook on a tensor that doesn't require gradient");
  int64_t id;
  Py_INCREF(hook);
  px_status status = accumulated ? px_tensor_add_accumulated_hook(&id, tensor, run_accumulated_hook,
                                                                  hook, ext_release)
                                 : px_tensor_add_hook(&id, tensor, run_hook, hook, ext_release);
  if (status == PX_OK)
    return ext_handle(px_retain(px_tensor_hook(tensor, id)), id, remove_hook, px_release);
  Py_DECREF(hook);
  return ext_raise();
}

// ---- hooks for saved tensors; the context is the tuple (pack, unpack)
static px_status run_pack(void **out, px_tensor *tensor, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  *out = call_hook(PyTuple_GET_ITEM((PyObject *)context, 0), tensor);
  px_status status = *out ? PX_OK : ext_error_from_python();
  ext_gil_give(&gil);
  return status;
}

static px_status run_unpack(px_tensor **out, void *packed, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  PyObject *result = PyObject_CallOneArg(PyTuple_GET_ITEM((PyObject *)context, 1), packed);
  if (result && !ext_is_tensor(result))
    PyErr_Format(PyExc_TypeError,
                 "Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                 "type %s",
                 ext_type_name(result));
  else if (result)
    *out = px_retain(ext_tensor(result));
  px_status status = PyErr_Occurred() ? ext_error_from_python() : PX_OK;
  Py_XDECREF(result);
  ext_gil_give(&gil);
  return status;
}

EXT_FUNCTION(torch, _push_saved_hooks, "(pack: Callable, unpack: Callable) -> None",
             "Pushes hooks for tensors saved for backward.") {
  EXT_ARGS(PyObject *, pack, unpack);
  static const px_saved_hooks hooks = {run_pack, run_unpack, ext_release, ext_release};
  PyObject *pair = PyTuple_Pack(2, pack, unpack);
  if (!pair) return NULL;
  px_status status = px_saved_hooks_push(&hooks, pair);
  if (status != PX_OK) Py_DECREF(pair);
  return ext_none(status);
}
EXT_FUNCTION0(torch, _pop_saved_hooks, "None", "Pops the hooks pushed last.") {
  px_saved_hooks_pop();
  Py_RETURN_NONE;
}
EXT_FUNCTION(
    torch, _disable_saved_hooks, "(message: str | None) -> str | None",
    "Disables saved tensor hooks with an error message, or enables them for None. Returns the "
    "previous message.") {
  EXT_ARGS(PyObject *, message);
  if (message && !PyUnicode_Check(message))
    EXT_FAIL(PyExc_TypeError, "error_message must be str, not %s", ext_type_name(message));
  const char *text = message ? ext_text(message) : NULL;
  if (!text && message) return NULL;
  const char *before = px_saved_hooks_disabled();
  EXT_OWNED *was = before ? ext_str(before) : Py_NewRef(Py_None);
  if (!was) return NULL;
  EXT_TRY(px_saved_hooks_disable(text));
  return ext_moved(&was);
}

// ---- reports of checkpoints
static const char debug_tip[] =
    "\nTip: To see a more detailed error message, either pass `debug=True` to\n"
    "`torch.utils.checkpoint.checkpoint(...)` or wrap the code block\n"
    "with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to\n"
    "enable checkpoint-debug mode globally.";
EXT_FUNCTION0(torch, _checkpoint_tip, "str", "Returns the advice of a CheckpointError.") {
  return ext_str(debug_tip);
}

// Appends the ops of a log, pairs of an op and its stack: with the stacks, or one op a line.
static int append_ops(PyObject **text, PyObject *log, const char *label) {
  Py_ssize_t count = PyList_GET_SIZE(log);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *op, *stack;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(log, i), "UU", &op, &stack)) return -1;
    if (label)
      ext_append(text, "%U   (%zd of %zd in %s)\n\n%U\n", op, i + 1, count, label, stack);
    else
      ext_append(text, "%U\n", op);
  }
  return *text ? 0 : -1;
}
EXT_FUNCTION(torch, _checkpoint_report, "(forward: list, recomputation: list) -> str",
             "Returns the text of a CheckpointError with debug=True.") {
  EXT_ARGS(PyObject *, forward, recomputation);
  EXT_OWNED *text = ext_str(
      "An error happened while unpacking tensors; dumping logs of latest computation\n"
      "because you passed `debug=True` to `torch.utils.checkpoint.checkpoint()`.\n\n"
      "1. Stack traces of the operators that ran in the original forward\n\n");
  if (append_ops(&text, forward, "original") < 0) return NULL;
  ext_append(&text, "2. Stack traces of the operators that ran during recomputation\n\n");
  if (append_ops(&text, recomputation, "recompute") < 0) return NULL;
  ext_append(&text,
             "3. Log of operators in the original forward and recomputation\n\n"
             "Operations executed during the original forward:\n\n");
  if (append_ops(&text, forward, NULL) < 0) return NULL;
  ext_append(&text, "\nOperations executed during recomputation:\n\n");
  if (append_ops(&text, recomputation, NULL) < 0) return NULL;
  ext_append(&text, "\n ERROR: Detected non-determinism while running activation checkpointing");
  return ext_moved(&text);
}

EXT_FUNCTION(torch, _mutable_saved, "(on: bool) -> None",
             "Enters or exits allow_mutation_on_saved_tensors.") {
  EXT_ARGS(PyObject *, on);
  if (on == Py_True) return ext_none(px_saved_mutable_begin());
  px_saved_mutable_end();
  Py_RETURN_NONE;
}
EXT_FUNCTION(torch, _mutable_saved_list, "(copies: bool) -> tuple[Tensor, ...]",
             "Returns the tensors saved in this mode, or the copies of those modified.") {
  EXT_ARGS(PyObject *, copies);
  px_list *list = NULL;
  EXT_TRY(px_saved_mutable_list(&list, copies == Py_True));
  return ext_wrap_list(list);
}

// ---- gradient edges: a node and the number of one of its results, in place of the tensor
// (phlox.autograd._edges)

static bool is_edge(PyObject *object) {
  return PyTuple_Check(object) && !PyTuple_CheckExact(object) &&
         PyObject_HasAttrString(object, "output_nr");
}
static PyObject *tensor_of_edge(PyObject *edge) {
  EXT_OWNED *node = PyObject_GetAttrString(edge, "node");
  EXT_OWNED *number = PyObject_GetAttrString(edge, "output_nr");
  px_tensor *result;
  int64_t nr;
  if (!node || !number || ext_to_int(number, &nr) < 0) return NULL;
  if (!PyObject_TypeCheck(node, &node_type))
    EXT_FAIL(PyExc_TypeError, "the node of a GradientEdge must be a Node, not %s",
             ext_type_name(node));
  return ext_result(px_node_result(&result, node_of(node), nr < 0 || nr > INT32_MAX ? -1 : (int)nr),
                    &result);
}
// Replaces gradient edges among user-supplied tensors by tensors.
static PyObject *replace_edges(PyObject *given) {
  if (!given || ext_is_tensor(given)) return Py_XNewRef(given);
  if (is_edge(given)) return tensor_of_edge(given);
  if (!PyTuple_Check(given) && !PyList_Check(given)) return Py_NewRef(given);
  EXT_OWNED *list = PySequence_List(given);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (!is_edge(item)) continue;
    PyObject *tensor = tensor_of_edge(item);
    if (!tensor || PyList_SetItem(list, i, tensor) < 0) return NULL;
  }
  return ext_moved(&list);
}

EXT_FUNCTION(
    torch, _backward_call, "(nodes: list) -> tuple[int, int]",
    "Returns, inside a hook, the number of the backward call and how many of the nodes (or node "
    "addresses) it reaches.") {
  EXT_ARGS(PyObject *, nodes);
  EXT_OWNED *list = ext_items(nodes, "nodes must be a sequence");
  Py_ssize_t reached = 0;
  for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(list); i++) {
    PyObject *node = PySequence_Fast_GET_ITEM(list, i);
    const void *address = PyLong_Check(node) ? PyLong_AsVoidPtr(node) : NULL;
    if (PyErr_Occurred()) return NULL;
    if (PyObject_TypeCheck(node, &node_type)) address = node_of(node);
    reached += px_backward_will_run(address);
  }
  return list ? Py_BuildValue("Kn", (unsigned long long)px_backward_number(), reached) : NULL;
}

static px_status succeed(void *context) { return PX_OK; }
EXT_FUNCTION(torch, _keep_in_backward, "(object: object) -> None",
             "Keeps an object alive, inside a hook, until the backward call ends.") {
  EXT_ARGS(PyObject *, object);
  return ext_none(px_backward_at_end(succeed, Py_NewRef(object), ext_release));
}

EXT_FUNCTION(autograd_graph, increment_version, "(tensor: Tensor | Iterable[Tensor]) -> None",
             "Increments the version counters of tensors modified in-place outside of autograd.\n\n"
             ">>> x = torch.ones(2)\n"
             ">>> torch.autograd.graph.increment_version(x); x._version\n"
             "1\n") {
  EXT_ARGS(PyObject *, tensor);
  EXT_OWNED *list = ext_is_tensor(tensor)
                        ? PyTuple_Pack(1, tensor)
                        : ext_items(tensor, "tensor must be a Tensor or a sequence");
  if (!list) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); i++)
    if (!ext_need_tensor(PySequence_Fast_GET_ITEM(list, i), "increment_version", "tensor"))
      return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); i++)
    px_tensor_bump_version(ext_tensor(PySequence_Fast_GET_ITEM(list, i)));
  Py_RETURN_NONE;
}

// ---- backward and grad
static PyObject *backward_inputs(int count, px_tensor *const *outputs, px_tensor *const *gradients,
                                 bool retain, bool create, PyObject *inputs) {
  EXT_TENSORS items = {0};
  if (ext_to_tensors(&items, inputs, "backward") < 0) return NULL;
  EXT_WAIT(
      px_backward_inputs(count, outputs, gradients, (int)items.count, items.items, retain, create));
  Py_RETURN_NONE;
}

PyObject *ext_backward(int count, px_tensor *const *outputs, px_tensor *const *gradients,
                       ext_optional_bool retain_graph, bool create_graph, PyObject *inputs) {
  bool retain = retain_graph < 0 ? create_graph : retain_graph;
  if (!ext_is_none(inputs))
    return backward_inputs(count, outputs, gradients, retain, create_graph, inputs);
  return ext_none(EXT_NOGIL(px_backward(count, outputs, gradients, retain, create_graph)));
}

// Reads outputs and their gradients; returns the count or -1.
static int read_outputs(PyObject *outputs, PyObject *gradients, ext_tensors *outs,
                        ext_tensors *grads, const char *function) {
  if (ext_to_tensors(outs, outputs, function) < 0) return -1;
  int n = (int)outs->count;
  if (ext_is_none(gradients)) return ext_room_for_tensors(grads, n) < 0 ? -1 : n;
  if (ext_to_tensors(grads, gradients, function) < 0) return -1;
  if (grads->count != n)
    EXT_FAIL_INT(PyExc_RuntimeError, "got %d tensors and %zd gradients", n, grads->count);
  return n;
}

EXT_FUNCTION(
    autograd, backward,
    "(tensors: Tensor | Sequence[Tensor], grad_tensors: Tensor | Sequence[Tensor | None] | "
    "None = None, retain_graph: bool | None = None, create_graph: bool = False, "
    "grad_variables: Tensor | Sequence[Tensor | None] | None = None, inputs: Tensor | "
    "Sequence[Tensor] | None = None) -> None",
    "Computes the sum of gradients of given tensors with respect to graph leaves.\n\n"
    "Args:\n"
    "    tensors (Tensor or sequence): tensors to be differentiated\n"
    "    grad_tensors (Tensor, sequence or None): gradient of each of the tensors\n"
    "    retain_graph, create_graph, inputs: as in Tensor.backward\n"
    "    grad_variables: deprecated name of grad_tensors\n") {
  PyObject *tensors, *grad_tensors, *grad_variables, *inputs;
  ext_optional_bool retain_graph;
  bool create_graph;
  EXT_BIND(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs);
  EXT_TENSORS outs = {0}, grads = {0};
  EXT_OWNED *plain = replace_edges(tensors);
  EXT_OWNED *leaves = replace_edges(inputs);
  if (PyErr_Occurred()) return NULL;
  int n =
      read_outputs(plain, grad_tensors ? grad_tensors : grad_variables, &outs, &grads, "backward");
  return n < 0 ? NULL
               : ext_backward(n, outs.items, grads.items, retain_graph, create_graph, leaves);
}

// Zero gradient for an unused input. With create_graph it is a leaf that requires grad.
static px_tensor *zeros_for(px_tensor *input, bool create) {
  PX_SCOPED(px_tensor)
  zeros = ext_op_tensor(EXT_OP("zeros_like"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(input)}});
  if (zeros && create) EXT_TRY(px_tensor_set_requires_grad(zeros, true));
  return PX_MOVE(zeros);
}

// A tuple of the gradients, whose references it takes. Missing ones become zeros if requested.
static PyObject *tuple_of(int count, px_tensor **grads_take, px_tensor *const *inputs, bool zeros,
                          bool create) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; i < count; i++) {
    if (!grads_take[i] && zeros) grads_take[i] = zeros_for(inputs[i], create);
    PyObject *item = ext_wrap(grads_take[i]);
    if (tuple && item)
      PyTuple_SET_ITEM(tuple, i, item);
    else
      Py_XDECREF(item);
  }
  return PyErr_Occurred() ? Py_XDECREF(tuple), NULL : tuple;
}

// ---- gradients of a batch

static int fail_shapes(int i, const px_tensor *grad, const px_tensor *output) {
  EXT_OWNED *given = ext_size(px_tensor_ndim(grad), px_tensor_sizes(grad));
  EXT_OWNED *wanted = ext_size(px_tensor_ndim(output), px_tensor_sizes(output));
  EXT_FAIL_INT(
      PyExc_RuntimeError,
      "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as "
      "the batch dimension. The sizes of the remaining dimensions are expected to match "
      "the shape of corresponding output, but a mismatch was detected: grad_output[%d] has "
      "a shape of %S and output[%d] has a shape of %S. If you only want some tensors in "
      "`grad_output` to be considered batched, consider using vmap.",
      i, given, i, wanted);
}

// Returns the common first size of the gradients, or -1 with an exception.
static int64_t batch_size(int n, px_tensor *const *outputs, px_tensor *const *grads) {
  int64_t size = -1;
  for (int i = 0; i < n; i++) {
    const px_tensor *grad = grads[i], *output = outputs[i];
    if (!grad)
      EXT_FAIL_INT(PyExc_RuntimeError, "grad can be implicitly created only for scalar outputs");
    int ndim = px_tensor_ndim(output);
    if (px_tensor_ndim(grad) == 0)
      EXT_FAIL_INT(PyExc_IndexError,
                   "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                   "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number");
    if (px_tensor_ndim(grad) != ndim + 1 ||
        (ndim && memcmp(px_tensor_sizes(grad) + 1, px_tensor_sizes(output),
                        (size_t)ndim * sizeof(int64_t)) != 0))
      return fail_shapes(i, grad, output);
    int64_t own = px_tensor_sizes(grad)[0];
    if (own == 0)
      EXT_FAIL_INT(PyExc_IndexError, "index 0 is out of bounds for dimension 0 with size 0");
    if (size >= 0 && own != size)
      EXT_FAIL_INT(PyExc_ValueError,
                   "vmap: Expected all tensors to have the same size in the mapped dimension, got "
                   "sizes [%lld, %lld] for the mapped dimension",
                   (long long)size, (long long)own);
    size = own;
  }
  return size;
}

typedef struct gradient_call {
  int n, m;
  px_tensor *const *outputs, *const *inputs;
  bool retain, create, unused_ok;
} gradient_call;

static px_status grads_in_map(px_tensor **results, const gradient_call *c,
                              px_tensor *const *samples) {
  PX_TRY(px_grad(results, c->n, c->outputs, samples, c->m, c->inputs, c->retain, c->create,
                 c->unused_ok));
  for (int i = 0; i < c->m; i++) {
    px_tensor *whole = NULL;
    if (!results[i]) continue;
    PX_TRY(px_unbatch(&whole, results[i], 0));
    px_release(results[i]);
    results[i] = whole;
  }
  return PX_OK;
}

// Maps one backward pass over the first dimension of the gradients. `samples` receives them without
// it.
static px_status grads_of_batch(px_tensor **results, const gradient_call *c, int64_t size,
                                px_tensor *const *grads, px_tensor **samples) {
  int level;
  PX_TRY(px_vmap_begin(&level, size, PX_RANDOMNESS_ERROR));
  px_status status = PX_OK;
  for (int i = 0; i < c->n && status == PX_OK; i++) status = px_batch(&samples[i], grads[i], 0);
  if (status == PX_OK) status = grads_in_map(results, c, samples);
  px_vmap_end();
  for (int i = 0; i < c->n; i++) px_release(samples[i]);
  for (int i = 0; i < c->m && status != PX_OK; i++) px_release(results[i]);
  return status;
}

// A dict with the keys of another and the given values.
static PyObject *with_keys_of(PyObject *dict, PyObject *values) {
  EXT_OWNED *made = PyDict_Copy(dict);
  PyObject *key, *old;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; made && PyDict_Next(dict, &at, &key, &old); i++)
    if (PyDict_SetItem(made, key, PyTuple_GET_ITEM(values, i)) < 0) return NULL;
  return Py_XNewRef(made);
}

EXT_FUNCTION(
    autograd, grad,
    "(outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor] | dict[str, Tensor], "
    "grad_outputs: "
    "Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None, "
    "create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None, "
    "is_grads_batched: bool = False, materialize_grads: bool = False) -> Any",
    "Computes and returns the sum of gradients of outputs with respect to the inputs.\n\n"
    "Args:\n"
    "    outputs (Tensor or sequence): outputs of the differentiated function\n"
    "    inputs (Tensor, sequence or dict): inputs to differentiate with respect to\n"
    "    grad_outputs (Tensor, sequence or None): gradient of each of the outputs\n"
    "    retain_graph (bool or None): keeps the graph for another call; default: create_graph\n"
    "    create_graph (bool): records the computation of the gradients, too\n"
    "    allow_unused (bool): returns None for an input unused by the outputs instead of raising "
    "an "
    "error\n"
    "    is_grads_batched (bool): the first dimension of each grad_output is a batch of gradients, "
    "and so is\n"
    "        that of each result\n"
    "    materialize_grads (bool): an unused input gets zeros\n\n"
    "Returns:\n"
    "    tuple of Tensors: one for each input; a dict with the keys of a dict\n\n"
    ">>> x = torch.tensor([3.], requires_grad=True)\n"
    ">>> torch.autograd.grad(x * x, x)\n"
    "(tensor([6.]),)\n") {
  PyObject *outputs, *inputs, *grad_outputs;
  ext_optional_bool retain_graph, allow_unused;
  bool create_graph, only_inputs, is_grads_batched, materialize_grads;
  EXT_DISPATCH_TO_CLASSES();
  EXT_BIND(outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused,
           is_grads_batched, materialize_grads);
  EXT_TENSORS outs = {0}, grads = {0}, ins = {0}, results = {0}, samples = {0};
  bool named = PyDict_CheckExact(inputs);
  if (!named && PyMapping_Check(inputs) && PyObject_HasAttrString(inputs, "keys"))
    EXT_FAIL(PyExc_TypeError,
             "`inputs` argument to `grad()` must be a dict, not %s. Other Mapping types are not "
             "supported.",
             ext_type_name(inputs));
  EXT_OWNED *given = named ? PyDict_Values(inputs) : Py_NewRef(inputs);
  EXT_OWNED *from = given ? replace_edges(outputs) : NULL;
  EXT_OWNED *by = from ? replace_edges(given) : NULL;
  if (!by) return NULL;
  int n = read_outputs(from, grad_outputs, &outs, &grads, "grad");
  if (n < 0 || ext_to_tensors(&ins, by, "grad") < 0) return NULL;
  int m = (int)ins.count;
  if (m == 0) EXT_FAIL(PyExc_RuntimeError, "`inputs` argument to `grad()` cannot be empty.");
  bool retain = retain_graph < 0 ? create_graph : retain_graph;
  if (materialize_grads && allow_unused == 0)
    EXT_FAIL(PyExc_ValueError,
             "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
             "allow_unused=False.");
  bool unused_ok = allow_unused < 0 ? materialize_grads : allow_unused;
  if (ext_room_for_tensors(&results, m) < 0) return NULL;
  if (is_grads_batched) {
    const gradient_call c = {n, m, outs.items, ins.items, retain, create_graph, unused_ok};
    int64_t size = batch_size(n, outs.items, grads.items);
    if (size < 0 || ext_room_for_tensors(&samples, n) < 0) return NULL;
    EXT_WAIT(grads_of_batch(results.items, &c, size, grads.items, samples.items));
  } else {
    EXT_WAIT(px_grad(results.items, n, outs.items, grads.items, m, ins.items, retain, create_graph,
                     unused_ok));
  }
  EXT_OWNED *made = tuple_of(m, results.items, ins.items, materialize_grads, create_graph);
  return made && named ? with_keys_of(inputs, made) : Py_XNewRef(made);
}

EXT_FUNCTION(
    torch, _jvp,
    "(outputs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[Tensor], "
    "create_graph: bool) -> tuple[Tensor | None, ...]",
    "Returns the tangents of outputs for given tangents of inputs; None for an output that "
    "depends on no input.") {
  PyObject *outputs, *inputs, *tangents;
  bool create_graph;
  EXT_BIND(outputs, inputs, tangents, create_graph);
  EXT_TENSORS outs = {0}, ins = {0}, changes = {0}, results = {0};
  if (ext_to_tensors(&outs, outputs, "jvp") < 0) return NULL;
  int n = (int)outs.count, m = read_outputs(inputs, tangents, &ins, &changes, "jvp");
  if (m < 0 || ext_room_for_tensors(&results, n) < 0) return NULL;
  EXT_WAIT(px_jvp(results.items, n, outs.items, m, ins.items, changes.items, create_graph));
  return tuple_of(n, results.items, NULL, false, false);
}

// ---- gradcheck(fn, inputs)
typedef struct check_context {
  PyObject *fn, *inputs;
} check_context;

static px_status call_checked(px_tensor **out, px_tensor *const *inputs, void *argument) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  check_context *context = argument;
  Py_ssize_t n = PyTuple_GET_SIZE(context->inputs);
  EXT_OWNED *args = PyTuple_New(n);
  int tensors = 0;
  for (Py_ssize_t i = 0; args && i < n; i++) {
    PyObject *given = PyTuple_GET_ITEM(context->inputs, i);
    PyTuple_SET_ITEM(
        args, i, ext_is_tensor(given) ? ext_wrap_borrowed(inputs[tensors++]) : Py_NewRef(given));
  }
  EXT_OWNED *result = args ? PyObject_CallObject(context->fn, args) : NULL;
  PyObject *first = result && PyTuple_Check(result) && PyTuple_GET_SIZE(result)
                        ? PyTuple_GET_ITEM(result, 0)
                        : result;
  px_tensor *tensor = first ? ext_need_tensor(first, "gradcheck", "output") : NULL;
  px_status status = tensor ? PX_OK : ext_error_from_python();
  *out = px_retain(tensor);
  Py_CLEAR(args);
  Py_CLEAR(result);
  ext_gil_give(&gil);
  return status;
}

EXT_FUNCTION(
    autograd, _gradcheck,
    "(func: Callable, inputs: tuple, eps: float, atol: float, rtol: float) -> None",
    "Implements torch.autograd.gradcheck: fails if analytical and numerical gradients differ.") {
  PyObject *func, *inputs;
  double eps, atol, rtol;
  EXT_BIND(func, inputs, eps, atol, rtol);
  px_tensor **items = PyMem_New(px_tensor *, (size_t)PyTuple_GET_SIZE(inputs));
  int n = 0;
  if (!items) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++)
    if (ext_is_tensor(PyTuple_GET_ITEM(inputs, i)))
      items[n++] = ext_tensor(PyTuple_GET_ITEM(inputs, i));
  check_context context = {func, inputs};
  px_status status = EXT_NOGIL(px_gradcheck(call_checked, &context, n, items, eps, atol, rtol));
  PyMem_Free(items);
  return ext_none(status);
}

EXT_MODULE(autograd, "autograd", "Automatic differentiation.");
EXT_MODULE(autograd_graph, "autograd.graph", "Nodes of the autograd graph.");
EXT_MODULE(utils, "utils", "Utilities.");
EXT_MODULE(utils_hooks, "utils.hooks", "Handles of hooks.");
