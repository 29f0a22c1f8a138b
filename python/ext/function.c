// SPDX-License-Identifier: Apache-2.0
// torch.autograd.Function: a user's own forward and backward. `apply` runs forward without
// recording, then makes one node (px_function_record) whose context is the ctx object.
#include "ext.h"

#include <string.h>

enum { MAX_VALUES = 64 };
typedef struct ctx_object {
  PyObject_HEAD PyObject *dict, *cls, *to_save, *dirty, *constant, *needs;
  px_saved **saved;
  int saved_count, input_count, output_count;
  bool materialize, dropped;
  px_tensor *outlines[MAX_VALUES];  // shapes of the outputs that are tensors, for zeros
  int8_t position[MAX_VALUES];      // of a recorded output among all outputs
  int all_outputs;
  char name[64];
} ctx_object;
static PyTypeObject ctx_type, function_base;

static int ctx_traverse(PyObject *object, visitproc visit, void *arg) {
  ctx_object *self = (ctx_object *)object;
  Py_VISIT(self->dict);
  Py_VISIT(self->cls);
  Py_VISIT(self->to_save);
  Py_VISIT(self->dirty);
  Py_VISIT(self->constant);
  return 0;
}
static int ctx_clear(PyObject *object) {
  ctx_object *self = (ctx_object *)object;
  Py_CLEAR(self->dict);
  Py_CLEAR(self->cls);
  Py_CLEAR(self->to_save);
  Py_CLEAR(self->dirty);
  Py_CLEAR(self->constant);
  return 0;
}
static void ctx_dealloc(PyObject *object) {
  ctx_object *self = (ctx_object *)object;
  PyObject_GC_UnTrack(self);
  ctx_clear(object);
  Py_XDECREF(self->needs);
  for (int i = 0; i < self->saved_count; i++) px_release(self->saved[i]);
  for (int i = 0; i < self->all_outputs; i++) px_release(self->outlines[i]);
  PyMem_Free(self->saved);
  Py_TYPE(object)->tp_free(object);
}

static PyObject *ctx_save(PyObject *self, PyObject *tensors) {
  Py_XSETREF(((ctx_object *)self)->to_save, Py_NewRef(tensors));
  Py_RETURN_NONE;
}
static PyObject *ctx_mark_dirty(PyObject *self, PyObject *tensors) {
  Py_XSETREF(((ctx_object *)self)->dirty, Py_NewRef(tensors));
  Py_RETURN_NONE;
}
static PyObject *ctx_mark_constant(PyObject *self, PyObject *tensors) {
  Py_XSETREF(((ctx_object *)self)->constant, Py_NewRef(tensors));
  Py_RETURN_NONE;
}
static PyObject *ctx_set_materialize(PyObject *self, PyObject *value) {
  int wanted = PyObject_IsTrue(value);
  if (wanted < 0) return NULL;
  ((ctx_object *)self)->materialize = wanted;
  Py_RETURN_NONE;
}

static PyObject *ctx_saved_tensors(PyObject *object, void *unused) {
  ctx_object *self = (ctx_object *)object;
  if (!self->saved) return self->to_save ? Py_NewRef(self->to_save) : PyTuple_New(0);
  if (self->dropped)
    EXT_FAIL(PyExc_RuntimeError,
             "Trying to backward through the graph a second time (or directly access saved tensors "
             "after they have already been freed). Saved intermediate values of the graph are "
             "freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you "
             "need to backward through the graph a second time or if you need to access saved "
             "tensors after calling backward.");
  PyObject *tuple = PyTuple_New(self->saved_count);
  for (int i = 0; tuple && i < self->saved_count; i++) {
    px_tensor *tensor = NULL;
    if (self->saved[i] && px_saved_unpack(&tensor, self->saved[i], self->name) != PX_OK) {
      Py_DECREF(tuple);
      return ext_raise();
    }
    PyTuple_SET_ITEM(tuple, i, ext_wrap(tensor));
  }
  return tuple;
}
static PyObject *ctx_needs(PyObject *self, void *unused) {
  PyObject *needs = ((ctx_object *)self)->needs;
  return needs ? Py_NewRef(needs) : PyTuple_New(0);
}

static PyMethodDef ctx_methods[] = {
    {"save_for_backward", ctx_save, METH_VARARGS, NULL},
    {"save_for_forward", ctx_save, METH_VARARGS, NULL},
    {"mark_dirty", ctx_mark_dirty, METH_VARARGS, NULL},
    {"mark_non_differentiable", ctx_mark_constant, METH_VARARGS, NULL},
    {"set_materialize_grads", ctx_set_materialize, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef ctx_getset[] = {{"saved_tensors", ctx_saved_tensors, NULL, NULL, NULL},
                                   {"saved_variables", ctx_saved_tensors, NULL, NULL, NULL},
                                   {"needs_input_grad", ctx_needs, NULL, NULL, NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static PyTypeObject ctx_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.autograd.function.FunctionCtx",
    .tp_basicsize = sizeof(ctx_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = ctx_dealloc,
    .tp_traverse = ctx_traverse,
    .tp_clear = ctx_clear,
    .tp_methods = ctx_methods,
    .tp_getset = ctx_getset,
    .tp_dictoffset = offsetof(ctx_object, dict),
};

static bool holds(PyObject *tuple, PyObject *object) {
  for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++)
    if (PyTuple_GET_ITEM(tuple, i) == object) return true;
  return false;
}

// ---- backward
static PyObject *gradient_of(ctx_object *self, int i, px_tensor *grad) {
  if (grad) return ext_wrap_borrowed(grad);
  if (!self->materialize || !self->outlines[i]) Py_RETURN_NONE;
  return ext_op_named(EXT_OP("zeros_like"), PX_CALL_NEW, 1,
                      (ext_named[]){{"self", PX_T(self->outlines[i])}});
}

static PyObject *backward_args(ctx_object *self, px_tensor *const *grads, int count) {
  PyObject *args = PyTuple_New(self->all_outputs + 1);
  if (!args) return NULL;
  PyTuple_SET_ITEM(args, 0, Py_NewRef((PyObject *)self));
  px_tensor *given[MAX_VALUES] = {NULL};
  for (int i = 0; i < count && i < self->output_count; i++) given[self->position[i]] = grads[i];
  for (int i = 0; i < self->all_outputs; i++) {
    PyObject *grad = gradient_of(self, i, given[i]);
    if (!grad) return Py_DECREF(args), NULL;
    PyTuple_SET_ITEM(args, i + 1, grad);
  }
  return args;
}

static int take_gradients(const ctx_object *self, PyObject *result, px_tensor **out, int count) {
  EXT_OWNED *tuple = PyTuple_Check(result) || PyList_Check(result) ? PySequence_Tuple(result)
                                                                   : PyTuple_Pack(1, result);
  if (!tuple) return -1;
  Py_ssize_t given = PyTuple_GET_SIZE(tuple);
  for (Py_ssize_t i = count; i < given; i++)
    if (PyTuple_GET_ITEM(tuple, i) != Py_None)
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "function %s returned an incorrect number of gradients (expected %d, got %zd)",
                   self->name, count, given);
  if (given < count)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "function %s returned an incorrect number of gradients (expected %d, got %zd)",
                 self->name, count, given);
  for (int i = 0; i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(tuple, i);
    if (item == Py_None) continue;
    if (!ext_is_tensor(item))
      EXT_FAIL_INT(PyExc_RuntimeError, "expected Variable or None (got %s)", ext_type_name(item));
    out[i] = px_retain(ext_tensor(item));
  }
  return 0;
}

static px_status run_backward(px_tensor **grad_inputs, int input_count,
                              px_tensor *const *grad_outputs, int output_count, void *context) {
  PyGILState_STATE state = PyGILState_Ensure();
  ctx_object *self = context;
  PyObject *args = backward_args(self, grad_outputs, output_count);
  PyObject *function = args ? PyObject_GetAttrString(self->cls, "backward") : NULL;
  PyObject *result = function ? PyObject_CallObject(function, args) : NULL;
  int failed = !result || take_gradients(self, result, grad_inputs, input_count) < 0;
  px_status status = failed ? ext_foreign() : PX_OK;
  Py_XDECREF(result);
  Py_XDECREF(function);
  Py_XDECREF(args);
  PyGILState_Release(state);
  return status;
}

// After a backward that does not retain the graph. px_release needs no GIL.
static void drop_saved(void *context) {
  ctx_object *self = context;
  for (int i = 0; i < self->saved_count; i++) {
    px_saved *saved = self->saved[i];
    self->saved[i] = NULL;
    self->dropped |= saved != NULL;
    px_release(saved);
  }
}

static void release_ctx(void *context) {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject *)context);
  PyGILState_Release(state);
}

// ---- apply
static int save_tensors(ctx_object *self, PyObject *outputs) {
  Py_ssize_t count = self->to_save ? PyTuple_GET_SIZE(self->to_save) : 0;
  self->saved = PyMem_Calloc((size_t)count + 1, sizeof *self->saved);
  if (!self->saved) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PyTuple_GET_ITEM(self->to_save, i);
    self->saved_count = (int)i + 1;
    if (item == Py_None) continue;
    if (!ext_is_tensor(item))
      EXT_FAIL_INT(PyExc_TypeError,
                   "save_for_backward can only save variables, but argument %zd is of type %s", i,
                   ext_type_name(item));
    EXT_TRY_INT(px_saved_new(&self->saved[i], ext_tensor(item), holds(outputs, item)));
  }
  Py_CLEAR(self->to_save);
  return 0;
}

// An output that is an input, and not marked dirty, becomes a tensor of its own.
static int separate(const ctx_object *self, PyObject *inputs, PyObject *outputs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); i++) {
    PyObject *item = PyTuple_GET_ITEM(outputs, i);
    if (!ext_is_tensor(item) || !holds(inputs, item) || holds(self->dirty, item)) continue;
    px_tensor *alias = NULL;
    EXT_TRY_INT(px_tensor_detach(&alias, ext_tensor(item)));
    PyObject *fresh = ext_wrap_as(ext_TensorType, alias);
    if (!fresh) return -1;
    PyTuple_SET_ITEM(outputs, i, fresh);
    Py_DECREF(item);
  }
  return 0;
}

static int record(ctx_object *self, PyObject *inputs, PyObject *outputs) {
  px_tensor *ins[MAX_VALUES], *outs[MAX_VALUES];
  Py_ssize_t n = PyTuple_GET_SIZE(inputs), m = PyTuple_GET_SIZE(outputs);
  bool wanted = false;
  if (n > MAX_VALUES || m > MAX_VALUES)
    EXT_FAIL_INT(PyExc_RuntimeError, "a Function takes and gives at most %d values", MAX_VALUES);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = PyTuple_GET_ITEM(inputs, i);
    ins[i] = ext_is_tensor(item) ? ext_tensor(item) : NULL;
    wanted |= ins[i] && px_tensor_requires_grad(ins[i]);
  }
  if (!wanted || !px_grad_enabled()) return 0;
  self->all_outputs = (int)m;
  for (Py_ssize_t i = 0; i < m; i++) {
    PyObject *item = PyTuple_GET_ITEM(outputs, i);
    if (!ext_is_tensor(item)) continue;
    EXT_TRY_INT(px_tensor_outline(&self->outlines[i], ext_tensor(item)));
    if (holds(self->constant, item)) continue;
    int at = self->output_count++;
    outs[at] = ext_tensor(item);
    self->position[at] = (int8_t)i;
  }
  px_function function = {self->name, run_backward, release_ctx, drop_saved};
  Py_INCREF(self);
  EXT_TRY_INT(px_function_record(&function, self, (int)n, ins, self->output_count, outs));
  return 0;
}

static PyObject *call_forward(ctx_object *self, PyObject *cls, PyObject *args) {
  EXT_OWNED *forward = PyObject_GetAttrString(cls, "forward");
  EXT_OWNED *setup = PyObject_GetAttrString(cls, "setup_context");
  if (!forward || !setup) return NULL;
  if (setup != Py_None) {
    EXT_OWNED *output = PyObject_CallObject(forward, args);
    EXT_OWNED *done = output ? PyObject_CallFunctionObjArgs(setup, self, args, output, NULL) : NULL;
    return done ? ext_moved(&output) : NULL;
  }
  EXT_OWNED *first = PyTuple_Pack(1, self);
  EXT_OWNED *all = first ? PySequence_Concat(first, args) : NULL;
  return all ? PyObject_CallObject(forward, all) : NULL;
}

static PyObject *needs_of(PyObject *args) {
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject *needs = PyTuple_New(n);
  for (Py_ssize_t i = 0; needs && i < n; i++) {
    PyObject *item = PyTuple_GET_ITEM(args, i);
    bool need = ext_is_tensor(item) && px_tensor_requires_grad(ext_tensor(item));
    PyTuple_SET_ITEM(needs, i, PyBool_FromLong(need));
  }
  return needs;
}

static PyObject *function_apply(PyObject *cls, PyObject *args) {
  EXT_OWNED *object = PyObject_CallNoArgs((PyObject *)&ctx_type);
  if (!object) return NULL;
  ctx_object *self = (ctx_object *)object;
  self->materialize = true;
  self->cls = Py_NewRef(cls);
  self->needs = needs_of(args);
  const char *dot = strrchr(((PyTypeObject *)cls)->tp_name, '.');
  snprintf(self->name, sizeof self->name, "%sBackward",
           dot ? dot + 1 : ((PyTypeObject *)cls)->tp_name);
  bool grad = px_grad_enabled();
  px_grad_set_enabled(false);
  EXT_OWNED *result = call_forward(self, cls, args);
  px_grad_set_enabled(grad);
  if (!result) return NULL;
  EXT_OWNED *outputs = PyTuple_Check(result) ? PySequence_List(result) : NULL;
  Py_XSETREF(outputs, outputs ? PyList_AsTuple(outputs) : PyTuple_Pack(1, result));
  if (!outputs || separate(self, args, outputs) < 0 || record(self, args, outputs) < 0 ||
      save_tensors(self, outputs) < 0)
    return NULL;
  return PyTuple_Check(result) ? ext_moved(&outputs) : Py_NewRef(PyTuple_GET_ITEM(outputs, 0));
}

static PyObject *forward_missing(PyObject *cls, PyObject *args) {
  EXT_FAIL(PyExc_NotImplementedError,
           "You must implement the forward function for custom autograd.Function.");
}
static PyObject *backward_missing(PyObject *cls, PyObject *args) {
  EXT_FAIL(PyExc_NotImplementedError,
           "You must implement either the backward or vjp method for your custom "
           "autograd.Function to use it with backward mode AD.");
}
static PyMethodDef base_methods[] = {
    {"apply", function_apply, METH_VARARGS | METH_CLASS, NULL},
    {"forward", forward_missing, METH_VARARGS | METH_STATIC, NULL},
    {"backward", backward_missing, METH_VARARGS | METH_STATIC, NULL},
    {NULL, NULL, 0, NULL}};
static PyTypeObject function_base = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.autograd.Function",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_methods = base_methods,
};

// once_differentiable(backward): runs it without recording.
static PyObject *run_once(PyObject *function, PyObject *args, PyObject *kwargs) {
  bool grad = px_grad_enabled();
  px_grad_set_enabled(false);
  PyObject *result = PyObject_Call(function, args, kwargs);
  px_grad_set_enabled(grad);
  return result;
}
static PyMethodDef run_once_def = {"once_differentiable", (PyCFunction)(void (*)(void))run_once,
                                   METH_VARARGS | METH_KEYWORDS, NULL};
static PyObject *once_differentiable(PyObject *module, PyObject *function) {
  return PyCFunction_New(&run_once_def, function);
}
static PyMethodDef functions[] = {{"once_differentiable", once_differentiable, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

static int ext_init_function(PyObject *m) {
  EXT_OWNED *autograd = PyObject_GetAttrString(m, "autograd");
  PyObject *function = autograd ? ext_submodule(autograd, "function", functions) : NULL;
  if (!function || ext_add_type(autograd, "Function", &function_base) < 0 ||
      ext_add_type(function, "Function", &function_base) < 0 ||
      ext_add_type(function, "FunctionCtx", &ctx_type) < 0)
    return -1;
  return PyDict_SetItemString(function_base.tp_dict, "setup_context", Py_None);
}
EXT_START(EXT_VALUES, ext_init_function);
