// SPDX-License-Identifier: Apache-2.0
// torch.autograd.Function: user-defined forward and backward. `apply` runs forward without
// recording, then creates one node (px_function_record) with the ctx object as its context. The
// node owns a reference to ctx but not vice versa: saved results of the function have no history,
// and ctx drops the tensors named by forward when `apply` returns. There is no reference cycle.
#include "bind/ext.h"

#include <string.h>

enum { MAX_VALUES = 64 };
typedef struct ctx_object {
  PyObject_HEAD PyObject *dict, *cls, *to_save, *dirty, *constant, *needs;
  px_saved **saved;
  int saved_count, input_count, output_count;
  bool materialize, dropped;
  px_tensor *output_shapes[MAX_VALUES];  // shapes of tensor outputs, to materialize zeros
  int8_t position[MAX_VALUES];           // index of a recorded output among all outputs
  int all_outputs;
  char *name;  // of the node
} ctx_object;
static ctx_object *ctx_of(PyObject *self) { return (ctx_object *)self; }

static void ctx_end(PyObject *self) {
  for (int i = 0; i < ctx_of(self)->saved_count; i++) px_release(ctx_of(self)->saved[i]);
  for (int i = 0; i < ctx_of(self)->all_outputs; i++) px_release(ctx_of(self)->output_shapes[i]);
}
EXT_OWNS(ctx, EXT_OBJECT(ctx_object, dict), EXT_OBJECT(ctx_object, cls),
         EXT_OBJECT(ctx_object, to_save), EXT_OBJECT(ctx_object, dirty),
         EXT_OBJECT(ctx_object, constant), EXT_OBJECT(ctx_object, needs), EXT_FINALIZER(ctx_end),
         EXT_MEMORY(ctx_object, saved), EXT_MEMORY(ctx_object, name));
EXT_TYPE(ctx, "torch.autograd.function.FunctionCtx", "autograd.function.FunctionCtx", ctx_object,
         EXT_BASETYPE | EXT_GC,
         "FunctionCtx()\n--\n\n"
         "Context of a Function, the first argument of forward and backward. Passes attributes and "
         "tensors\nsaved by save_for_backward from one to the other.",
         EXT_LIFETIME_SLOTS(ctx), .tp_new = PyType_GenericNew,
         .tp_dictoffset = offsetof(ctx_object, dict));

// Stores the arguments for `apply`.
static PyObject *store_args(PyObject **field, const ext_call *call) {
  EXT_ARGS(ext_varargs, tensors);
  PyObject *tuple = ext_tuple_of(tensors);
  if (!tuple) return NULL;
  Py_XSETREF(*field, tuple);
  Py_RETURN_NONE;
}
EXT_METHOD(ctx, save_for_backward, "(*tensors: Tensor | None) -> None",
           "Saves given tensors for a future call to backward.") {
  return store_args(&ctx_of(self)->to_save, call);
}
EXT_ALIASES(ctx, ctx_save_for_backward, save_for_forward);
EXT_METHOD(ctx, mark_dirty, "(*tensors: Tensor) -> None",
           "Marks given inputs as modified in-place.") {
  return store_args(&ctx_of(self)->dirty, call);
}
EXT_METHOD(ctx, mark_non_differentiable, "(*tensors: Tensor) -> None",
           "Marks outputs as non-differentiable.") {
  return store_args(&ctx_of(self)->constant, call);
}
EXT_METHOD(
    ctx, set_materialize_grads, "(value: bool) -> None",
    "Sets whether to materialize undefined gradients of outputs as zeros (default) or pass None.") {
  EXT_ARGS(bool, value);
  ctx_of(self)->materialize = value;
  Py_RETURN_NONE;
}

EXT_GETTER(ctx, saved_tensors, "tuple[Tensor | None, ...]", "Tensors saved by save_for_backward.") {
  const ctx_object *ctx = ctx_of(self);
  if (!ctx->saved) return ctx->to_save ? Py_NewRef(ctx->to_save) : PyTuple_New(0);
  if (ctx->dropped)
    EXT_FAIL(PyExc_RuntimeError,
             "Trying to backward through the graph a second time (or directly access saved tensors "
             "after they have already been freed). Saved intermediate values of the graph are "
             "freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you "
             "need to backward through the graph a second time or if you need to access saved "
             "tensors after calling backward.");
  PyObject *tuple = PyTuple_New(ctx->saved_count);
  for (int i = 0; tuple && i < ctx->saved_count; i++) {
    px_tensor *tensor = NULL;
    if (ctx->saved[i] && px_saved_unpack(&tensor, ctx->saved[i], ctx->name) != PX_OK) {
      Py_DECREF(tuple);
      return ext_raise();
    }
    PyTuple_SET_ITEM(tuple, i, ext_wrap(tensor));
  }
  return tuple;
}
EXT_ALIASES(ctx, ctx_attr_saved_tensors, saved_variables);
EXT_GET(ctx, needs_input_grad, "tuple[bool, ...]",
        ctx_of(self)->needs ? Py_NewRef(ctx_of(self)->needs) : PyTuple_New(0),
        "Tuple of bools: True for each argument of forward that requires a gradient.");

static bool contains_object(PyObject *tuple, PyObject *object) {
  for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++)
    if (PyTuple_GET_ITEM(tuple, i) == object) return true;
  return false;
}

// ---- backward
static PyObject *gradient_of(ctx_object *self, int i, px_tensor *grad) {
  if (grad) return ext_wrap_borrowed(grad);
  if (!self->materialize || !self->output_shapes[i]) Py_RETURN_NONE;
  return ext_op_named(EXT_OP("zeros_like"), PX_CALL_NEW, 1,
                      (ext_named[]){{"self", PX_T(self->output_shapes[i])}});
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

// Called by the autograd engine on any thread, without the GIL.
static px_status run_backward(px_tensor **grad_inputs, int input_count,
                              px_tensor *const *grad_outputs, int output_count, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  ctx_object *self = context;
  PyObject *args = backward_args(self, grad_outputs, output_count);
  PyObject *function = args ? PyObject_GetAttrString(self->cls, "backward") : NULL;
  PyObject *result = function ? PyObject_CallObject(function, args) : NULL;
  int failed = !result || take_gradients(self, result, grad_inputs, input_count) < 0;
  px_status status = failed ? ext_error_from_python() : PX_OK;
  Py_XDECREF(result);
  Py_XDECREF(function);
  Py_XDECREF(args);
  ext_gil_give(&gil);
  return status;
}

// Called after a backward that does not retain the graph. px_release needs no GIL.
static void drop_saved(void *context) {
  ctx_object *self = context;
  for (int i = 0; i < self->saved_count; i++) {
    px_saved *saved = self->saved[i];
    self->saved[i] = NULL;
    self->dropped |= saved != NULL;
    px_release(saved);
  }
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
    EXT_TRY_INT(px_saved_new(&self->saved[i], ext_tensor(item), contains_object(outputs, item)));
  }
  return 0;
}

// Replaces an output that is an input and not marked dirty by a new tensor: a view, or a detached
// tensor if it is non-differentiable.
static px_tensor *alias_output(const ctx_object *self, PyObject *item) {
  px_tensor *alias = NULL;
  if (!contains_object(self->constant, item))
    return ext_op_tensor(EXT_OP("alias"), PX_CALL_NEW, 1,
                         (ext_named[]){{"self", PX_T(ext_tensor(item))}});
  return px_tensor_detach(&alias, ext_tensor(item)) == PX_OK ? alias : ext_raise();
}

static void replace(PyObject *tuple, const PyObject *item, PyObject *other) {
  for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject *old = PyTuple_GET_ITEM(tuple, i);
    if (old != item) continue;
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(other));
    Py_DECREF(old);
  }
}

static int alias_input_outputs(const ctx_object *self, PyObject *inputs, PyObject *outputs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); i++) {
    PyObject *item = PyTuple_GET_ITEM(outputs, i);
    if (!ext_is_tensor(item) || !contains_object(inputs, item) ||
        contains_object(self->dirty, item))
      continue;
    px_tensor *alias = alias_output(self, item);
    PyObject *fresh = alias ? ext_wrap_as(ext_TensorType, alias) : NULL;
    if (!fresh) return -1;
    PyTuple_SET_ITEM(outputs, i, fresh);
    replace(self->constant, item, fresh);
    Py_DECREF(item);
  }
  return 0;
}

static int check_dirty(const ctx_object *self, PyObject *outputs) {
  for (Py_ssize_t i = 0; self->dirty && i < PyTuple_GET_SIZE(self->dirty); i++)
    if (!contains_object(outputs, PyTuple_GET_ITEM(self->dirty, i)))
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "Some elements marked as dirty during the forward method were not returned as "
                   "output. The inputs that are modified inplace must all be outputs of the "
                   "Function.");
  return 0;
}

static int record(ctx_object *self, PyObject *inputs, PyObject *outputs) {
  px_tensor *ins[MAX_VALUES], *outs[MAX_VALUES];
  Py_ssize_t n = PyTuple_GET_SIZE(inputs), m = PyTuple_GET_SIZE(outputs);
  bool wanted = false;
  if (n > MAX_VALUES || m > MAX_VALUES)
    EXT_FAIL_INT(PyExc_RuntimeError, "a Function supports at most %d inputs and outputs",
                 MAX_VALUES);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = PyTuple_GET_ITEM(inputs, i);
    ins[i] = ext_is_tensor(item) ? ext_tensor(item) : NULL;
    wanted |= ins[i] && px_tensor_is_recorded(ins[i]);
  }
  if (!wanted) return 0;
  self->all_outputs = (int)m;
  for (Py_ssize_t i = 0; i < m; i++) {
    PyObject *item = PyTuple_GET_ITEM(outputs, i);
    if (!ext_is_tensor(item)) continue;
    EXT_TRY_INT(px_tensor_outline(&self->output_shapes[i], ext_tensor(item)));
    if (contains_object(self->constant, item)) continue;
    int at = self->output_count++;
    outs[at] = ext_tensor(item);
    self->position[at] = (int8_t)i;
  }
  px_function function = {self->name, run_backward, ext_release, drop_saved};
  Py_INCREF(self);
  return ext_zero(px_function_record(&function, self, (int)n, ins, self->output_count, outs));
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

// ---- a Function's own vmap
static PyTypeObject function_type;

// The deepest vmap level of the arguments; 0 if none is batched.
static int level_of(PyObject *args) {
  int level = 0;
  for (Py_ssize_t i = 0; px_vmap_depth() && i < PyTuple_GET_SIZE(args); i++) {
    PyObject *item = PyTuple_GET_ITEM(args, i);
    int own = ext_is_tensor(item) ? px_tensor_batch_level(ext_tensor(item)) : 0;
    if (own > level) level = own;
  }
  return level;
}

// Returns whether the class overrides vmap, or -1 with an exception.
static int overrides_vmap(PyObject *cls) {
  EXT_OWNED *own = PyObject_GetAttrString(cls, "vmap");
  EXT_OWNED *base = PyObject_GetAttrString((PyObject *)&function_type, "vmap");
  EXT_OWNED *generates = PyObject_GetAttrString(cls, "generate_vmap_rule");
  EXT_OWNED *setup = PyObject_GetAttrString(cls, "setup_context");
  int generated = generates ? PyObject_IsTrue(generates) : -1;
  if (!own || !base || !setup || generated < 0) return -1;
  if (own == base) return 0;
  if (generated)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "You tried to vmap over %s, but it has both generate_vmap_rule=True and an "
                 "overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
                 "overridden vmap staticmethod to avoid ambiguity.",
                 ((PyTypeObject *)cls)->tp_name);
  if (setup == Py_None)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, "
                 "jacrev, ...), it must override the setup_context staticmethod.");
  return 1;
}

// Its calls are recorded below the level; the caller records the Function at the level.
static PyObject *call_vmap(PyObject *cls, int level, PyObject *args) {
  EXT_OWNED *module = PyImport_ImportModule("phlox.func._vmap");
  return module ? PyObject_CallMethod(module, "call_function", "OiO", cls, level, args) : NULL;
}
static int setup_context(PyObject *self, PyObject *cls, PyObject *args, PyObject *output) {
  EXT_OWNED *done = PyObject_CallMethod(cls, "setup_context", "OOO", self, args, output);
  return done ? 0 : -1;
}

static PyObject *needs_of(PyObject *args) {
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject *needs = PyTuple_New(n);
  for (Py_ssize_t i = 0; needs && i < n; i++) {
    PyObject *item = PyTuple_GET_ITEM(args, i);
    const px_tensor *t = ext_is_tensor(item) ? ext_tensor(item) : NULL;
    bool need = t && (px_tensor_requires_grad(t) || px_tensor_is_dual(t));
    PyTuple_SET_ITEM(needs, i, PyBool_FromLong(need));
  }
  return needs;
}

static char *name_of_node(const PyTypeObject *class) {
  const char *dot = strrchr(class->tp_name, '.'), *name = dot ? dot + 1 : class->tp_name;
  size_t length = strlen(name);
  char *made = PyMem_Malloc(length + sizeof "Backward");
  if (made) memcpy(mempcpy(made, name, length), "Backward", sizeof "Backward");
  return made;
}

// forward runs before the node is created, so an exception leaves no trace. Tensors are saved after
// it: a saved result belongs to the node.
static PyObject *run_and_record(ctx_object *self, PyObject *cls, PyObject *args) {
  int level = level_of(args), own_vmap = level ? overrides_vmap(cls) : 0;
  if (own_vmap < 0) return NULL;
  px_modes before = px_modes_get(), within = before;
  EXT_OWNED *mapped = own_vmap ? call_vmap(cls, level, args) : NULL;
  if (own_vmap && !mapped) return NULL;
  within.grad = false, within.forward = 0;
  px_modes_set(within);
  EXT_OWNED *result = mapped ? Py_NewRef(mapped) : call_forward(self, cls, args);
  EXT_OWNED *list = result && PyTuple_Check(result) ? PySequence_List(result) : NULL;
  EXT_OWNED *outputs = list ? PyList_AsTuple(list) : result ? PyTuple_Pack(1, result) : NULL;
  int failed =
      !outputs || check_dirty(self, outputs) < 0 || alias_input_outputs(self, args, outputs) < 0;
  failed = failed || (mapped && setup_context((PyObject *)self, cls, args, mapped) < 0);
  px_modes_set(before);
  if (failed || record(self, args, outputs) < 0 || save_tensors(self, outputs) < 0) return NULL;
  return PyTuple_Check(result) ? ext_moved(&outputs) : Py_NewRef(PyTuple_GET_ITEM(outputs, 0));
}

static PyObject *apply(PyObject *cls, PyObject *args) {
  EXT_OWNED *object = ext_new(&ctx_type);
  if (!object) return NULL;
  ctx_object *self = ctx_of(object);
  self->materialize = true;
  self->cls = Py_NewRef(cls);
  self->needs = needs_of(args);
  if (!(self->name = name_of_node((PyTypeObject *)cls))) return PyErr_NoMemory();
  PyObject *result = run_and_record(self, cls, args);
  Py_CLEAR(self->to_save);
  Py_CLEAR(self->dirty);
  Py_CLEAR(self->constant);
  return result;
}

typedef struct function_object {
  PyObject_HEAD
} function_object;
static int function_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  (void)args, (void)kwargs;
  return PyErr_WarnFormat(
      PyExc_DeprecationWarning, 1,
      "%R should not be instantiated. Methods on autograd functions are all static, so you should "
      "invoke them on the class itself. Instantiating an autograd function will raise an error in "
      "a future version of PyTorch.",
      Py_TYPE(self));
}
static PyObject *function_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  (void)self, (void)args, (void)kwargs;
  EXT_FAIL(PyExc_RuntimeError,
           "Legacy autograd function with non-static forward method is deprecated. Please use "
           "new-style autograd function with static forward method. (Example: "
           "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)");
}
EXT_TYPE(
    function, "torch.autograd.Function", "autograd.Function autograd.function.Function",
    function_object, EXT_BASETYPE,
    "Function()\n--\n\n"
    "Base class to create custom autograd operations: a subclass implements the static methods "
    "forward\nand backward and is used by `apply`.\n\n"
    ">>> class Double(torch.autograd.Function):\n"
    "...     @staticmethod\n"
    "...     def forward(ctx, x):\n"
    "...         return x * 2\n"
    "...     @staticmethod\n"
    "...     def backward(ctx, grad):\n"
    "...         return grad * 2\n"
    ">>> x = torch.ones(1, requires_grad=True)\n"
    ">>> Double.apply(x).backward(); x.grad\n"
    "tensor([2.])\n",
    .tp_new = PyType_GenericNew, .tp_init = function_init, .tp_call = function_call);

EXT_CLASS_METHOD(function, apply, "(*args: object) -> object",
                 "Runs forward without recording and records backward as one operation.") {
  EXT_ARGS(ext_varargs, args);
  EXT_OWNED *tuple = ext_tuple_of(args);
  return tuple ? apply(self, tuple) : NULL;
}
EXT_STATIC_METHOD(
    function, forward, "(*args: object) -> object",
    "Defines the forward of the operation, with ctx and the arguments of apply; or with the "
    "arguments\nalone if setup_context(ctx, inputs, output) is defined. Must be overridden.") {
  EXT_FAIL(PyExc_NotImplementedError,
           "You must implement the forward function for custom autograd.Function.");
}
EXT_STATIC_METHOD(
    function, backward, "(*args: object) -> object",
    "Defines the gradient formula, with ctx and the gradients of outputs. Must be overridden.") {
  EXT_FAIL(PyExc_NotImplementedError,
           "You must implement either the backward or vjp method for your custom "
           "autograd.Function to use it with backward mode AD.");
}
EXT_STATIC_METHOD(
    function, vmap, "(info: Any, in_dims: Any, *args: object) -> object",
    "Defines the operation on a batch, with the batch size and randomness, the batch dimension of "
    "each\nargument or None, and the arguments. Returns the output and its batch dimensions. "
    "Without "
    "it,\nforward is mapped.") {
  EXT_FAIL(PyExc_NotImplementedError,
           "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
           "set generate_vmap_rule=True.");
}
// setup_context: None means not defined by the class.
static int add_class_values(PyObject *torch) {
  if (PyDict_SetItemString(function_type.tp_dict, "generate_vmap_rule", Py_False) < 0) return -1;
  return PyDict_SetItemString(function_type.tp_dict, "setup_context", Py_None);
}
EXT_START(EXT_VALUES, add_class_values);

// ---- once_differentiable
EXT_MODULE(autograd_function, "autograd.function", "Custom autograd operations.");
static PyObject *run_once(PyObject *function, PyObject *args, PyObject *kwargs) {
  bool grad = px_grad_enabled();
  if (px_modes_get().forward)
    EXT_FAIL(PyExc_NotImplementedError,
             "forward mode through a backward that is once_differentiable is not implemented");
  px_grad_set_enabled(false);
  PyObject *result = PyObject_Call(function, args, kwargs);
  px_grad_set_enabled(grad);
  return result;
}
static PyMethodDef run_once_def = {"once_differentiable", (PyCFunction)(void (*)(void))run_once,
                                   METH_VARARGS | METH_KEYWORDS, NULL};
EXT_FUNCTION(
    autograd_function, once_differentiable, "(fn: Callable) -> Callable",
    "Decorator for a backward that is not itself differentiable: runs it without recording.") {
  EXT_ARGS(PyObject *, fn);
  return PyCFunction_New(&run_once_def, fn);
}
