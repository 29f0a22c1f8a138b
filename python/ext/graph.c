// SPDX-License-Identifier: Apache-2.0
// The graph in Python's eyes: grad_fn nodes, hooks and their handles, backward and grad. A node's
// object is made when it is asked for and holds a reference to the node; two of one node are equal.
// Hooks run with the GIL, on whichever thread the engine runs the node.
#include "ext.h"

#include <string.h>

// ---- nodes: two objects of one node are equal
typedef struct node_object {
  PyObject_HEAD px_node *node;
  PyObject *metadata;
} node_object;
static PyTypeObject node_type;
static px_node *node_of(PyObject *self) { return ((node_object *)self)->node; }

// type(y.grad_fn).__name__ is what scripts print: each name has a type of its own, made when it is
// first seen.
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

// Anew at each call: two objects of one node are equal, and hash alike.
PyObject *ext_node(px_node *node) {
  if (!node) Py_RETURN_NONE;
  PyTypeObject *type = type_of(px_node_name(node));
  return type ? ext_over(type, px_retain(node)) : NULL;
}
EXT_OWNS(node, EXT_CORE(node_object, node), EXT_OBJECT(node_object, metadata));
// The ctx of a Function's node, borrowed, or NULL.
static PyObject *ctx_of(PyObject *self) {
  px_context context;
  bool own = px_node_context(node_of(self), &context) && context.release == ext_release;
  return own ? context.context : NULL;
}

static PyObject *node_repr(PyObject *self) {
  return PyUnicode_FromFormat("<%s%s object at %p>", ctx_of(self) ? "torch.autograd.function." : "",
                              px_node_name(node_of(self)), node_of(self));
}

// A Function's node has what its ctx has: saved_tensors, and what forward left there.
static PyObject *node_getattr(PyObject *self, PyObject *name) {
  PyObject *found = PyObject_GenericGetAttr(self, name), *ctx = ctx_of(self);
  if (found || !ctx || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  EXT_OWNED *first = ext_exception_take();
  found = PyObject_GetAttr(ctx, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  ext_exception_give(ext_moved(&first));
  return NULL;
}
static Py_hash_t node_hash(PyObject *self) { return _Py_HashPointer(node_of(self)); }
static PyObject *node_compare(PyObject *a, PyObject *b, int op) {
  if (!PyObject_TypeCheck(b, &node_type) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((node_of(a) == node_of(b)) == (op == Py_EQ));
}
EXT_TYPE(node, "torch.autograd.graph.Node", "autograd.graph.Node", node_object, EXT_OPEN,
         "An operation that was recorded: the grad_fn of its results.", EXT_LIFE(node),
         .tp_repr = node_repr, .tp_getattro = node_getattr, .tp_hash = node_hash,
         .tp_richcompare = node_compare);

EXT_GIVES(node, name, "str", px_node_name(node_of(self)), "The name, as AddBackward0.");
EXT_GIVES(node, _sequence_nr, "int", px_node_sequence(node_of(self)),
          "When it was recorded: later nodes have higher numbers.");
EXT_GETTER(node, next_functions, "tuple[tuple[Node | None, int], ...]",
           "The nodes of its inputs, each with the number of the result that it was.") {
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
EXT_GETTER(node, variable, "Tensor", "The leaf of a node that adds up its gradient.") {
  px_tensor *variable = px_node_variable(node_of(self));
  if (!variable)
    EXT_FAIL(PyExc_AttributeError, "'%s' object has no attribute 'variable'",
             px_node_name(node_of(self)));
  return ext_wrap_borrowed(variable);
}
EXT_GETTER(node, metadata, "dict", "A dict for the program's own use.") {
  node_object *object = (node_object *)self;
  if (!object->metadata) object->metadata = PyDict_New();
  return Py_XNewRef(object->metadata);
}

// ---- hooks
// What a hook makes of a tensor; new reference.
static PyObject *call_hook(void *hook, px_tensor *tensor) {
  EXT_OWNED *argument = ext_wrap_borrowed(tensor);
  return argument ? PyObject_CallOneArg(hook, argument) : NULL;
}

static px_status run_hook(px_tensor **out, px_tensor *grad, void *context) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *result = call_hook(context, grad);
  *out = NULL;
  if (result && result != Py_None && !ext_is_tensor(result))
    PyErr_Format(PyExc_TypeError, "expected Variable, but hook returned '%s'",
                 ext_type_name(result));
  else if (result && result != Py_None)
    *out = px_retain(ext_tensor(result));
  px_status status = PyErr_Occurred() ? ext_foreign() : PX_OK;
  Py_XDECREF(result);
  PyGILState_Release(state);
  return status;
}

static px_status run_accumulated_hook(px_tensor *self, void *context) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *result = call_hook(context, self);
  px_status status = result ? PX_OK : ext_foreign();
  Py_XDECREF(result);
  PyGILState_Release(state);
  return status;
}

static void remove_hook(void *hook, int64_t id) { px_hook_remove(hook); }

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

// ---- hooks for saved tensors: the context is the tuple of both
static px_status run_pack(void **out, px_tensor *tensor, void *context) {
  PyGILState_STATE state = PyGILState_Ensure();
  *out = call_hook(PyTuple_GET_ITEM((PyObject *)context, 0), tensor);
  px_status status = *out ? PX_OK : ext_foreign();
  PyGILState_Release(state);
  return status;
}

static px_status run_unpack(px_tensor **out, void *packed, void *context) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *result = PyObject_CallOneArg(PyTuple_GET_ITEM((PyObject *)context, 1), packed);
  if (result && !ext_is_tensor(result))
    PyErr_Format(PyExc_TypeError,
                 "Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                 "type %s",
                 ext_type_name(result));
  else if (result)
    *out = px_retain(ext_tensor(result));
  px_status status = PyErr_Occurred() ? ext_foreign() : PX_OK;
  Py_XDECREF(result);
  PyGILState_Release(state);
  return status;
}

EXT_FUNCTION(torch, _push_saved_hooks, "(pack: Callable, unpack: Callable) -> None",
             "Lets hooks have the tensors that are saved for backward, until they are popped.") {
  EXT_ARGS(PyObject *, pack, unpack);
  static const px_saved_hooks hooks = {run_pack, run_unpack, ext_release, ext_release};
  PyObject *pair = PyTuple_Pack(2, pack, unpack);
  if (!pair) return NULL;
  px_status status = px_saved_hooks_push(&hooks, pair);
  if (status != PX_OK) Py_DECREF(pair);
  return ext_none(status);
}
EXT_FUNCTION0(torch, _pop_saved_hooks, "None", "Takes the hooks away that were pushed last.") {
  px_saved_hooks_pop();
  Py_RETURN_NONE;
}

// ---- backward and grad
enum { MAX_TENSORS = 512 };

// Adds what px_grad gives to the gradients of `inputs`: backward(inputs=...).
static PyObject *accumulate(int count, px_tensor *const *inputs, px_tensor **grads) {
  PyObject *failed = NULL;
  for (int i = 0; i < count; i++) {
    PX_SCOPED(px_tensor) grad = grads[i];
    px_tensor *before = px_tensor_grad(inputs[i]);
    if (!grad || failed || PyErr_Occurred()) continue;
    PX_SCOPED(px_tensor)
    sum = before ? ext_op_tensor(EXT_OP("add"), PX_CALL_NEW, 2,
                                 (ext_named[]){{"self", PX_T(before)}, {"other", PX_T(grad)}})
                 : px_retain(grad);
    if (sum && px_tensor_set_grad(inputs[i], sum) != PX_OK) ext_raise();
  }
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

static PyObject *backward_inputs(int count, px_tensor *const *outputs, px_tensor *const *gradients,
                                 bool retain, bool create, PyObject *inputs) {
  px_tensor *items[MAX_TENSORS], *grads[MAX_TENSORS] = {NULL};
  EXT_OWNED *keep = NULL;
  int n = ext_to_tensors(inputs, items, MAX_TENSORS, "backward", &keep);
  if (n < 0) return NULL;
  if (n == 0) EXT_FAIL(PyExc_RuntimeError, "`inputs` argument to `backward()` cannot be empty.");
  EXT_WAIT(px_grad(grads, count, outputs, gradients, n, items, retain, create, true));
  return accumulate(n, items, grads);
}

PyObject *ext_backward(int count, px_tensor *const *outputs, px_tensor *const *gradients,
                       ext_maybe retain_graph, bool create_graph, PyObject *inputs) {
  bool retain = retain_graph < 0 ? create_graph : retain_graph;
  if (!ext_is_none(inputs))
    return backward_inputs(count, outputs, gradients, retain, create_graph, inputs);
  return ext_none(EXT_NOGIL(px_backward(count, outputs, gradients, retain, create_graph)));
}

// outputs and their gradients out of the arguments; the count or -1.
static int read_outputs(PyObject *outputs, PyObject *gradients, px_tensor **outs, px_tensor **grads,
                        PyObject **keep_outs, PyObject **keep_grads, const char *function) {
  int n = ext_to_tensors(outputs, outs, MAX_TENSORS, function, keep_outs);
  if (n < 0 || ext_is_none(gradients)) return n;
  int given = ext_to_tensors(gradients, grads, MAX_TENSORS, function, keep_grads);
  if (given >= 0 && given != n)
    EXT_FAIL_INT(PyExc_RuntimeError, "got %d tensors and %d gradients", n, given);
  return given < 0 ? -1 : n;
}

EXT_FUNCTION(
    autograd, backward,
    "(tensors: Tensor | Sequence[Tensor], grad_tensors: Tensor | Sequence[Tensor | None] | "
    "None = None, retain_graph: bool | None = None, create_graph: bool = False, "
    "grad_variables: Tensor | Sequence[Tensor | None] | None = None, inputs: Tensor | "
    "Sequence[Tensor] | None = None) -> None",
    "Tensor.backward of several tensors at once.\n\n"
    "Args:\n"
    "    tensors (Tensor or sequence): what is derived\n"
    "    grad_tensors (Tensor, sequence or None): what flows into each of them\n"
    "    retain_graph, create_graph, inputs: as in Tensor.backward\n"
    "    grad_variables: the older name of grad_tensors\n") {
  PyObject *tensors, *grad_tensors, *grad_variables, *inputs;
  ext_maybe retain_graph;
  bool create_graph;
  EXT_BIND(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs);
  px_tensor *outs[MAX_TENSORS], *grads[MAX_TENSORS] = {NULL};
  EXT_OWNED *keep_outs = NULL, *keep_grads = NULL;
  int n = read_outputs(tensors, grad_tensors ? grad_tensors : grad_variables, outs, grads,
                       &keep_outs, &keep_grads, "backward");
  return n < 0 ? NULL : ext_backward(n, outs, grads, retain_graph, create_graph, inputs);
}

// Zeros for an input that outputs do not depend on; with create_graph a leaf that can be derived.
static px_tensor *zeros_of(px_tensor *input, bool create) {
  PX_SCOPED(px_tensor)
  zeros = ext_op_tensor(EXT_OP("zeros_like"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(input)}});
  if (zeros && create) EXT_TRY(px_tensor_set_requires_grad(zeros, true));
  return PX_MOVE(zeros);
}

// A tuple of the gradients, which it takes; zeros for those that are not there, where asked for.
static PyObject *tuple_of(int count, px_tensor **grads_take, px_tensor *const *inputs, bool zeros,
                          bool create) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; i < count; i++) {
    if (!grads_take[i] && zeros) grads_take[i] = zeros_of(inputs[i], create);
    PyObject *item = ext_wrap(grads_take[i]);
    if (tuple && item)
      PyTuple_SET_ITEM(tuple, i, item);
    else
      Py_XDECREF(item);
  }
  return PyErr_Occurred() ? Py_XDECREF(tuple), NULL : tuple;
}

EXT_FUNCTION(
    autograd, grad,
    "(outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], grad_outputs: "
    "Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None, "
    "create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None, "
    "is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Tensor, ...]",
    "The gradients of `inputs`, and nothing added to any grad.\n\n"
    "Args:\n"
    "    outputs (Tensor or sequence): what is derived\n"
    "    inputs (Tensor or sequence): by what\n"
    "    grad_outputs (Tensor, sequence or None): what flows into each of outputs\n"
    "    retain_graph (bool or None): keeps what was saved; by default as create_graph\n"
    "    create_graph (bool): records the computation of the gradients too\n"
    "    allow_unused (bool): an input that outputs do not depend on gets None, and is no "
    "error\n"
    "    materialize_grads (bool): ... gets zeros\n\n"
    ">>> x = torch.tensor([3.], requires_grad=True)\n"
    ">>> torch.autograd.grad(x * x, x)\n"
    "(tensor([6.]),)\n") {
  PyObject *outputs, *inputs, *grad_outputs;
  ext_maybe retain_graph, allow_unused;
  bool create_graph, only_inputs, is_grads_batched, materialize_grads;
  EXT_BIND(outputs, inputs, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused,
           is_grads_batched, materialize_grads);
  px_tensor *outs[MAX_TENSORS], *grads[MAX_TENSORS] = {NULL}, *ins[MAX_TENSORS];
  px_tensor *results[MAX_TENSORS] = {NULL};
  EXT_OWNED *keep_outs = NULL, *keep_grads = NULL, *keep_ins = NULL;
  int n = read_outputs(outputs, grad_outputs, outs, grads, &keep_outs, &keep_grads, "grad");
  int m = n < 0 ? -1 : ext_to_tensors(inputs, ins, MAX_TENSORS, "grad", &keep_ins);
  if (m < 0) return NULL;
  if (m == 0) EXT_FAIL(PyExc_RuntimeError, "`inputs` argument to `grad()` cannot be empty.");
  bool retain = retain_graph < 0 ? create_graph : retain_graph;
  if (materialize_grads && allow_unused == 0)
    EXT_FAIL(PyExc_ValueError,
             "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
             "allow_unused=False.");
  bool unused_ok = allow_unused < 0 ? materialize_grads : allow_unused;
  EXT_WAIT(px_grad(results, n, outs, grads, m, ins, retain, create_graph, unused_ok));
  return tuple_of(m, results, ins, materialize_grads, create_graph);
}

// ---- gradcheck(fn, inputs)
typedef struct check_context {
  PyObject *fn, *inputs;
} check_context;

static px_status call_checked(px_tensor **out, px_tensor *const *inputs, void *argument) {
  PyGILState_STATE state = PyGILState_Ensure();
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
  px_status status = tensor ? PX_OK : ext_foreign();
  *out = px_retain(tensor);
  Py_CLEAR(args);
  Py_CLEAR(result);
  PyGILState_Release(state);
  return status;
}

EXT_FUNCTION(autograd, _gradcheck,
             "(func: Callable, inputs: tuple, eps: float, atol: float, rtol: float) -> None",
             "For torch.autograd.gradcheck: an error where gradients and differences part.") {
  PyObject *func, *inputs;
  double eps, atol, rtol;
  EXT_BIND(func, inputs, eps, atol, rtol);
  px_tensor *items[32];
  int n = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs) && n < EXT_LENGTH(items); i++)
    if (ext_is_tensor(PyTuple_GET_ITEM(inputs, i)))
      items[n++] = ext_tensor(PyTuple_GET_ITEM(inputs, i));
  check_context context = {func, inputs};
  return ext_none(EXT_NOGIL(px_gradcheck(call_checked, &context, n, items, eps, atol, rtol)));
}

EXT_MODULE(autograd, "autograd", "Automatic differentiation.");
EXT_MODULE(autograd_graph, "autograd.graph", "The nodes of the graph.");
EXT_MODULE(utils, "utils", "What belongs to no other module.");
EXT_MODULE(utils_hooks, "utils.hooks", "Handles of hooks.");
