// SPDX-License-Identifier: Apache-2.0
// The graph in Python's eyes: grad_fn nodes, hooks and their handles, backward and grad.
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

PyObject *ext_node(px_node *node) {
  if (!node) Py_RETURN_NONE;
  PyTypeObject *type = type_of(px_node_name(node));
  node_object *self = type ? (node_object *)type->tp_alloc(type, 0) : NULL;
  if (!self) return NULL;
  self->node = px_retain(node);
  return (PyObject *)self;
}
static void node_dealloc(PyObject *self) {
  px_release(node_of(self));
  Py_CLEAR(((node_object *)self)->metadata);
  Py_TYPE(self)->tp_free(self);
}
static PyObject *node_repr(PyObject *self) {
  return PyUnicode_FromFormat("<%s object at %p>", px_node_name(node_of(self)), node_of(self));
}
static Py_hash_t node_hash(PyObject *self) { return _Py_HashPointer(node_of(self)); }
static PyObject *node_compare(PyObject *a, PyObject *b, int op) {
  if (!PyObject_TypeCheck(b, &node_type) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((node_of(a) == node_of(b)) == (op == Py_EQ));
}
static PyObject *node_name(PyObject *self, PyObject *unused) {
  return PyUnicode_FromString(px_node_name(node_of(self)));
}
static PyObject *node_next(PyObject *self, void *unused) {
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
static PyObject *node_variable(PyObject *self, void *unused) {
  px_tensor *variable = px_node_variable(node_of(self));
  if (!variable)
    EXT_FAIL(PyExc_AttributeError, "'%s' object has no attribute 'variable'",
             px_node_name(node_of(self)));
  return ext_wrap_borrowed(variable);
}
static PyObject *node_metadata(PyObject *self, void *unused) {
  node_object *object = (node_object *)self;
  if (!object->metadata) object->metadata = PyDict_New();
  return Py_XNewRef(object->metadata);
}
static PyObject *node_sequence(PyObject *self, PyObject *unused) {
  return PyLong_FromUnsignedLongLong(px_node_sequence(node_of(self)));
}
static PyGetSetDef node_getset[] = {{"next_functions", node_next, NULL, NULL, NULL},
                                    {"variable", node_variable, NULL, NULL, NULL},
                                    {"metadata", node_metadata, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};
static PyMethodDef node_methods[] = {{"name", node_name, METH_NOARGS, NULL},
                                     {"_sequence_nr", node_sequence, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
static PyTypeObject node_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.autograd.graph.Node",
    .tp_basicsize = sizeof(node_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_dealloc = node_dealloc,
    .tp_repr = node_repr,
    .tp_hash = node_hash,
    .tp_richcompare = node_compare,
    .tp_methods = node_methods,
    .tp_getset = node_getset,
};

// ---- hooks
typedef struct handle_object {
  PyObject_HEAD px_tensor *tensor;
  int64_t id;
} handle_object;
static PyTypeObject handle_type;

static void release_hook(void *context) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject *)context);
  PyGILState_Release(state);
}

static px_status run_hook(px_tensor **out, px_tensor *grad, void *context) {
  PyGILState_STATE state = PyGILState_Ensure();
  px_status status = PX_OK;
  PyObject *argument = ext_wrap_borrowed(grad);
  PyObject *result = argument ? PyObject_CallOneArg((PyObject *)context, argument) : NULL;
  *out = NULL;
  if (result && result != Py_None && !ext_is_tensor(result))
    PyErr_Format(PyExc_TypeError, "expected Variable, but hook returned '%s'",
                 ext_type_name(result));
  else if (result && result != Py_None)
    *out = px_retain(ext_tensor(result));
  if (PyErr_Occurred()) status = ext_foreign();
  Py_XDECREF(argument);
  Py_XDECREF(result);
  PyGILState_Release(state);
  return status;
}

static px_status run_accumulated_hook(px_tensor *self, void *context) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *argument = ext_wrap_borrowed(self);
  PyObject *result = argument ? PyObject_CallOneArg((PyObject *)context, argument) : NULL;
  px_status status = result ? PX_OK : ext_foreign();
  Py_XDECREF(argument);
  Py_XDECREF(result);
  PyGILState_Release(state);
  return status;
}

PyObject *ext_tensor_register_hook(PyObject *self, PyObject *hook, bool accumulated) {
  px_tensor *tensor = ext_tensor(self);
  if (!px_tensor_requires_grad(tensor))
    EXT_FAIL(PyExc_RuntimeError,
             "cannot register a hook on a tensor that doesn't require gradient");
  handle_object *handle = PyObject_New(handle_object, &handle_type);
  if (!handle) return NULL;
  handle->tensor = px_retain(tensor);
  handle->id = 0;
  Py_INCREF(hook);
  px_status status = accumulated
                         ? px_tensor_add_accumulated_hook(&handle->id, tensor, run_accumulated_hook,
                                                          hook, release_hook)
                         : px_tensor_add_hook(&handle->id, tensor, run_hook, hook, release_hook);
  if (status == PX_OK) return (PyObject *)handle;
  Py_DECREF(hook);
  Py_DECREF(handle);
  return ext_raise();
}

static PyObject *handle_remove(PyObject *self, PyObject *unused) {
  handle_object *handle = (handle_object *)self;
  px_tensor *tensor = handle->tensor;
  handle->tensor = NULL;
  if (tensor) px_tensor_remove_hook(tensor, handle->id);
  px_release(tensor);
  Py_RETURN_NONE;
}
static void handle_dealloc(PyObject *self) {
  px_release(((handle_object *)self)->tensor);
  PyObject_Free(self);
}
static PyObject *handle_enter(PyObject *self, PyObject *unused) { return Py_NewRef(self); }
static PyMethodDef handle_methods[] = {{"remove", handle_remove, METH_NOARGS, NULL},
                                       {"__enter__", handle_enter, METH_NOARGS, NULL},
                                       {"__exit__", handle_remove, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
static PyTypeObject handle_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.utils.hooks.RemovableHandle",
    .tp_basicsize = sizeof(handle_object),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = handle_dealloc,
    .tp_methods = handle_methods,
};

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
                       PyObject *retain_graph, PyObject *create_graph, PyObject *inputs) {
  int create = ext_to_bool(create_graph, false);
  int retain = create < 0 ? -1 : ext_to_bool(retain_graph, create);
  if (retain < 0) return NULL;
  if (!ext_is_none(inputs))
    return backward_inputs(count, outputs, gradients, retain, create, inputs);
  EXT_WAIT(px_backward(count, outputs, gradients, retain, create));
  Py_RETURN_NONE;
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

EXT_FAST(autograd_backward) {
  EXT_ARGS("backward", "tensors|grad_tensors retain_graph create_graph grad_variables inputs", out);
  px_tensor *outs[MAX_TENSORS], *grads[MAX_TENSORS] = {NULL};
  EXT_OWNED *keep_outs = NULL, *keep_grads = NULL;
  int n = read_outputs(out[0], out[1] ? out[1] : out[4], outs, grads, &keep_outs, &keep_grads,
                       "backward");
  return n < 0 ? NULL : ext_backward(n, outs, grads, out[2], out[3], out[5]);
}

EXT_FAST(autograd_grad) {
  EXT_ARGS("grad",
           "outputs inputs|grad_outputs retain_graph create_graph only_inputs allow_unused "
           "is_grads_batched materialize_grads",
           out);
  px_tensor *outs[MAX_TENSORS], *grads[MAX_TENSORS] = {NULL}, *ins[MAX_TENSORS];
  px_tensor *results[MAX_TENSORS] = {NULL};
  EXT_OWNED *keep_outs = NULL, *keep_grads = NULL, *keep_ins = NULL;
  int n = read_outputs(out[0], out[2], outs, grads, &keep_outs, &keep_grads, "grad");
  int m = n < 0 ? -1 : ext_to_tensors(out[1], ins, MAX_TENSORS, "grad", &keep_ins);
  int create = ext_to_bool(out[4], false), retain = ext_to_bool(out[3], create > 0);
  int materialize = ext_to_bool(out[8], false), unused = ext_to_bool(out[6], materialize > 0);
  if (m < 0 || create < 0 || retain < 0 || unused < 0) return NULL;
  if (m == 0) EXT_FAIL(PyExc_RuntimeError, "`inputs` argument to `grad()` cannot be empty.");
  EXT_WAIT(px_grad(results, n, outs, grads, m, ins, retain, create, unused));
  PyObject *tuple = PyTuple_New(m);
  for (int i = 0; i < m; i++) {
    if (!results[i] && materialize > 0)
      results[i] = ext_op_tensor(EXT_OP("zeros_like"), PX_CALL_NEW, 1,
                                 (ext_named[]){{"self", PX_T(ins[i])}});
    PyObject *item = ext_wrap(results[i]);
    if (tuple && item)
      PyTuple_SET_ITEM(tuple, i, item);
    else
      Py_XDECREF(item);
  }
  return PyErr_Occurred() ? Py_XDECREF(tuple), NULL : tuple;
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

EXT_FAST(autograd_gradcheck) {
  EXT_ARGS("gradcheck",
           "func inputs|eps atol rtol raise_exception nondet_tol fast_mode check_undefined_grad",
           out);
  double eps = 1e-6, atol = 1e-5, rtol = 1e-3;
  if ((out[2] && ext_to_double(out[2], &eps) < 0) || (out[3] && ext_to_double(out[3], &atol) < 0) ||
      (out[4] && ext_to_double(out[4], &rtol) < 0))
    return NULL;
  EXT_OWNED *inputs = ext_is_tensor(out[1]) ? PyTuple_Pack(1, out[1]) : PySequence_Tuple(out[1]);
  if (!inputs) return NULL;
  px_tensor *items[32];
  int n = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs) && n < 32; i++)
    if (ext_is_tensor(PyTuple_GET_ITEM(inputs, i)))
      items[n++] = ext_tensor(PyTuple_GET_ITEM(inputs, i));
  check_context context = {out[0], inputs};
  px_status status = EXT_NOGIL(px_gradcheck(call_checked, &context, n, items, eps, atol, rtol));
  if (status == PX_OK) Py_RETURN_TRUE;
  if (ext_to_bool(out[5], true)) return ext_raise();
  px_error_clear();
  Py_RETURN_FALSE;
}

static PyMethodDef functions[] = {EXT_DEF("backward", autograd_backward),
                                  EXT_DEF("grad", autograd_grad),
                                  EXT_DEF("gradcheck", autograd_gradcheck),
                                  {NULL, NULL, 0, NULL}};

static int ext_init_graph(PyObject *m) {
  PyObject *autograd = ext_submodule(m, "autograd", functions);
  PyObject *graph = autograd ? ext_submodule(autograd, "graph", NULL) : NULL;
  PyObject *utils = ext_submodule(m, "utils", NULL);
  PyObject *hooks = utils ? ext_submodule(utils, "hooks", NULL) : NULL;
  if (!graph || !hooks || ext_add_type(graph, "Node", &node_type) < 0) return -1;
  return ext_add_class(hooks, "RemovableHandle", &handle_type);
}
EXT_START(EXT_VALUES, ext_init_graph);
EXT_MODULE(autograd, "autograd", "Automatic differentiation.");
EXT_MODULE(autograd_graph, "autograd.graph", "Nodes of the graph.");
EXT_MODULE(utils, "utils", "What belongs to no other module.");
EXT_MODULE(utils_hooks, "utils.hooks", "Handles of hooks.");
