// SPDX-License-Identifier: Apache-2.0
// torch.library: ops defined in Python. Each is registered with the core as a composite op
// implemented by a CustomOpDef: kernels by device type, the fake kernel for meta tensors, and the
// gradient, recorded as a node like a Function's. The object lives as long as the process, like the
// op. Schemas are parsed in Python (phlox/_schemas.py).
#include "nn/nn.h"
#include "phlox/extend.h"
#include "phlox/register.h"

#include <string.h>

typedef struct def_object {
  PyObject_HEAD const px_op *op;
  PyObject *call;     // the callable in torch.ops
  PyObject *kernels;  // functions by device type; "" for any
  PyObject *fake, *backward, *setup;
  PyObject *node;     // subclass of Function
  PyObject *changes;  // custom_op only: names of mutated parameters; else NULL
} def_object;
static def_object *def_of(PyObject *self) { return (def_object *)self; }
EXT_OWNS(op_def, EXT_OBJECT(def_object, call), EXT_OBJECT(def_object, kernels),
         EXT_OBJECT(def_object, fake), EXT_OBJECT(def_object, backward),
         EXT_OBJECT(def_object, setup), EXT_OBJECT(def_object, node),
         EXT_OBJECT(def_object, changes));

// The op's name with another separator after the namespace.
static PyObject *name_with(const px_op *op, const char *between) {
  EXT_OWNED *name = ext_str(op->name);
  return name ? PyObject_CallMethod(name, "replace", "ss", "::", between) : NULL;
}

// ---- arguments of an op

static PyObject *list_of(px_value items) {
  PyObject *list = PyList_New(items.n);
  for (int i = 0; list && i < items.n; i++) {
    PyObject *item = items.kind == PX_ARG_TENSORS ? ext_wrap_borrowed(items.v.tensors[i])
                                                  : PyLong_FromLongLong(items.v.ints[i]);
    if (!item) return Py_DECREF(list), NULL;
    PyList_SET_ITEM(list, i, item);
  }
  return list;
}

static PyObject *object_of(px_value value) {
  if (value.kind == PX_ARG_TENSOR) return ext_wrap_borrowed(value.v.tensor);
  if (value.kind == PX_ARG_TENSORS || value.kind == PX_ARG_INTS) return list_of(value);
  if (value.kind == PX_ARG_DTYPE) return ext_dtype((px_dtype)value.v.i);
  if (value.kind == PX_ARG_DEVICE) return ext_device(value.v.device);
  return ext_from_value(value);
}

// Positional arguments and keyword arguments.
int ext_objects_of(const px_op *op, const px_value *args, PyObject **tuple, PyObject **options) {
  int positional = 0;
  while (positional < op->param_count && !op->params[positional].keyword_only) positional++;
  *tuple = PyTuple_New(positional);
  *options = PyDict_New();
  for (int i = 0; *tuple && *options && i < op->param_count; i++) {
    PyObject *object = object_of(args[i]);
    if (!object) return -1;
    if (i < positional) {
      PyTuple_SET_ITEM(*tuple, i, object);
      continue;
    }
    int failed = PyDict_SetItemString(*options, op->params[i].name, object);
    Py_DECREF(object);
    if (failed) return -1;
  }
  return *tuple && *options ? 0 : -1;
}

static int add_tensors(PyObject *list, PyObject *value) {
  if (ext_is_tensor(value)) return PyList_Append(list, value);
  for (Py_ssize_t i = 0; PyList_Check(value) && i < PyList_GET_SIZE(value); i++)
    if (ext_is_tensor(PyList_GET_ITEM(value, i)) &&
        PyList_Append(list, PyList_GET_ITEM(value, i)) < 0)
      return -1;
  return 0;
}

// The tensors of all arguments, or only of parameters in `names`.
static PyObject *tensors_of(const px_op *op, PyObject *args, PyObject *options, PyObject *names) {
  EXT_OWNED *list = PyList_New(0);
  Py_ssize_t positional = PyTuple_GET_SIZE(args);
  for (int i = 0; list && i < op->param_count; i++) {
    EXT_OWNED *name = PyUnicode_FromString(op->params[i].name);
    int wanted = !name ? -1 : names ? PySequence_Contains(names, name) : 1;
    PyObject *value = i < positional ? PyTuple_GET_ITEM(args, i) : PyDict_GetItem(options, name);
    if (wanted < 0 || (wanted && add_tensors(list, value) < 0)) return NULL;
  }
  return ext_moved(&list);
}

// ---- running

static PyObject *kernel_for(const def_object *self, const char *device_type) {
  PyObject *kernel = PyDict_GetItemString(self->kernels, device_type);
  bool meta = !strcmp(device_type, "meta");
  if (!kernel && meta) kernel = self->fake;
  // A kernel for any device may not support meta tensors, unless it only calls ops.
  if (!kernel && !(meta && self->changes)) kernel = PyDict_GetItemString(self->kernels, "");
  if (kernel) return kernel;
  if (meta)
    EXT_FAIL(PyExc_NotImplementedError,
             "There was no fake impl registered for <CustomOpDef(%s)>. Please use register_fake to "
             "add an fake impl.",
             self->op->name);
  EXT_FAIL(PyExc_NotImplementedError, "Could not run '%s' with arguments from the '%s' backend.",
           self->op->name, strcmp(device_type, "cuda") ? "CPU" : "CUDA");
}

static int check_no_alias(const px_op *op, PyObject *result, PyObject *given) {
  EXT_OWNED *results = ext_is_tensor(result)                           ? PyTuple_Pack(1, result)
                       : PyTuple_Check(result) || PyList_Check(result) ? PySequence_Tuple(result)
                                                                       : PyTuple_New(0);
  if (!results) return -1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results) * PyList_GET_SIZE(given); i++) {
    PyObject *made = PyTuple_GET_ITEM(results, i / PyList_GET_SIZE(given));
    const px_tensor *one = ext_tensor(PyList_GET_ITEM(given, i % PyList_GET_SIZE(given)));
    if (ext_is_tensor(made) && px_tensor_storage(ext_tensor(made)) == px_tensor_storage(one))
      EXT_FAIL_INT(
          PyExc_RuntimeError,
          "%s: The output of this custom operator (1) must not also be an input to this custom "
          "operator and (2) may not alias any inputs to this custom operator or other returns. The "
          "most common way to trigger this error is if we have y = custom_op(x) and y and x are "
          "the same Tensor. Please instead return a clone of the offending output tensor(s) (e.g. "
          "return x.clone()) or refactor the custom operator to not return y.",
          op->name);
  }
  return 0;
}

static PyObject *run(const def_object *self, PyObject *args, PyObject *options) {
  EXT_OWNED *given = tensors_of(self->op, args, options, NULL);
  if (!given) return NULL;
  bool any = PyList_GET_SIZE(given) > 0;
  int type = any ? px_tensor_device(ext_tensor(PyList_GET_ITEM(given, 0))).type : PX_CPU;
  EXT_OWNED *kernel = Py_XNewRef(kernel_for(self, px_device_type_name(type)));
  EXT_OWNED *changed = self->changes ? tensors_of(self->op, args, options, self->changes) : NULL;
  if (self->changes && !changed) return NULL;
  for (Py_ssize_t i = 0; changed && i < PyList_GET_SIZE(changed); i++)
    EXT_TRY(px_op_before_write(ext_tensor(PyList_GET_ITEM(changed, i))));
  EXT_OWNED *result = kernel ? PyObject_Call(kernel, args, options) : NULL;
  if (!result || !self->changes) return ext_moved(&result);
  if (check_no_alias(self->op, result, given) < 0) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(changed); i++)
    px_tensor_bump_version(ext_tensor(PyList_GET_ITEM(changed, i)));
  return ext_moved(&result);
}

// ---- gradients

// Applies the node's Function to: each tensor separately, so it is an input of the node; then all
// arguments; then the options. counts_of maps the inputs back.
static PyObject *record(const def_object *self, PyObject *args, PyObject *options) {
  EXT_OWNED *inputs = PyList_New(0);
  for (Py_ssize_t i = 0; inputs && i < PyTuple_GET_SIZE(args); i++) {
    PyObject *value = PyTuple_GET_ITEM(args, i);
    bool tensors = PyList_Check(value) && self->op->params[i].kind == PX_ARG_TENSORS;
    if (tensors ? PyList_SetSlice(inputs, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, value) < 0
                : PyList_Append(inputs, value) < 0)
      return NULL;
  }
  if (!inputs || PyList_Append(inputs, args) < 0 || PyList_Append(inputs, options) < 0) return NULL;
  EXT_OWNED *tuple = PyList_AsTuple(inputs);
  EXT_OWNED *apply = tuple ? PyObject_GetAttrString(self->node, "apply") : NULL;
  return apply ? PyObject_CallObject(apply, tuple) : NULL;
}

// Number of node inputs of each argument: -1 for a single one, else the length of a tensor list.
static PyObject *counts_of(const px_op *op, PyObject *args) {
  PyObject *counts = PyTuple_New(PyTuple_GET_SIZE(args));
  for (Py_ssize_t i = 0; counts && i < PyTuple_GET_SIZE(args); i++) {
    bool tensors = op->params[i].kind == PX_ARG_TENSORS;
    Py_ssize_t count = tensors ? PyList_GET_SIZE(PyTuple_GET_ITEM(args, i)) : -1;
    PyTuple_SET_ITEM(counts, i, PyLong_FromSsize_t(count));
  }
  return counts;
}

EXT_METHOD(op_def, _forward, "(ctx: Any, *given: Any) -> Any",
           "Implements forward of the node's Function.") {
  PyObject *ctx;
  ext_varargs given;
  EXT_BIND(ctx, given);
  const def_object *def = def_of(self);
  if (given.count < 2) EXT_FAIL(PyExc_TypeError, "_forward() expects arguments of the op's node");
  PyObject *args = given.items[given.count - 2], *options = given.items[given.count - 1];
  EXT_OWNED *counts = counts_of(def->op, args);
  EXT_OWNED *result = run(def, args, options);
  if (!result || !counts || PyObject_SetAttrString(ctx, "_counts", counts) < 0) return NULL;
  if (def->setup) {
    EXT_OWNED *context = PyTuple_Pack(3, ctx, args, result);
    EXT_OWNED *named = PyDict_New();
    if (!named ||
        (PyDict_Size(options) && PyDict_SetItemString(named, "keyword_only_inputs", options) < 0))
      return NULL;
    EXT_OWNED *done = context ? PyObject_Call(def->setup, context, named) : NULL;
    if (!done) return NULL;
  }
  return PyList_Check(result) ? PyList_AsTuple(result) : ext_moved(&result);
}

// Appends the gradients of one argument.
static int add_grads(PyObject *list, PyObject *grad, Py_ssize_t count) {
  if (count < 0) return PyList_Append(list, grad);
  if (grad != Py_None) return PyList_SetSlice(list, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, grad);
  while (count-- > 0)
    if (PyList_Append(list, Py_None) < 0) return -1;
  return 0;
}

EXT_METHOD(op_def, _backward, "(ctx: Any, *grads: Any) -> Any",
           "Implements backward of the node's Function.") {
  PyObject *ctx;
  ext_varargs grads;
  EXT_BIND(ctx, grads);
  const def_object *def = def_of(self);
  EXT_OWNED *name = name_with(def->op, ".");
  if (name && !def->backward)
    EXT_FAIL(PyExc_RuntimeError,
             "Trying to backward through %U.default but no autograd formula was registered. Please "
             "use register_autograd to add one.",
             name);
  EXT_OWNED *counts = name ? PyObject_GetAttrString(ctx, "_counts") : NULL;
  EXT_OWNED *rest = counts ? ext_tuple_of(grads) : NULL;
  EXT_OWNED *first = rest ? PyTuple_Pack(1, ctx) : NULL;
  EXT_OWNED *args = first ? PySequence_Concat(first, rest) : NULL;
  EXT_OWNED *result = args ? PyObject_CallObject(def->backward, args) : NULL;
  if (!result) return NULL;
  EXT_OWNED *given = PyTuple_Check(result) ? Py_NewRef(result) : PyTuple_Pack(1, result);
  EXT_OWNED *list = given ? PyList_New(0) : NULL;
  if (!list) return NULL;
  if (PyTuple_GET_SIZE(given) != PyTuple_GET_SIZE(counts))
    EXT_FAIL(PyExc_RuntimeError, "Expected the backward of %s to return %zd gradients, got %zd",
             def->op->name, PyTuple_GET_SIZE(counts), PyTuple_GET_SIZE(given));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++)
    if (add_grads(list, PyTuple_GET_ITEM(given, i), PyLong_AsSsize_t(PyTuple_GET_ITEM(counts, i))) <
        0)
      return NULL;
  if (PyList_Append(list, Py_None) < 0 || PyList_Append(list, Py_None) < 0) return NULL;
  return PyList_AsTuple(list);
}

// ---- called by the core

// Custom ops are recorded as one node; for others, the gradient of the called ops is used unless
// one is registered.
static bool is_recorded(const def_object *self, const px_value *args) {
  bool needs = false;
  for (int i = 0; i < self->op->param_count && !needs; i++) {
    if (args[i].kind == PX_ARG_TENSOR) needs = px_tensor_is_recorded(args[i].v.tensor);
    for (int k = 0; args[i].kind == PX_ARG_TENSORS && k < args[i].n && !needs; k++)
      needs = px_tensor_is_recorded(args[i].v.tensors[k]);
  }
  return needs && (self->backward || self->changes);
}

static PyObject *answer(const def_object *self, const px_value *values) {
  EXT_OWNED *args = NULL;
  EXT_OWNED *options = NULL;
  if (ext_objects_of(self->op, values, &args, &options) < 0) return NULL;
  if (!is_recorded(self, values)) return run(self, args, options);
  if (self->op->result_count) return record(self, args, options);
  px_modes before = px_modes_get(), within = before;
  within.grad = false, within.forward = 0;
  px_modes_set(within);
  PyObject *result = run(self, args, options);
  px_modes_set(before);
  return result;
}

static int wrong_result(const px_op *op, PyObject *result) {
  EXT_FAIL_INT(PyExc_RuntimeError, "%s returned %s, but its schema is %s", op->name,
               ext_type_name(result), op->schema);
}

// Writes nothing unless all results are tensors.
static int take_results(const px_op *op, PyObject *result, px_tensor **results) {
  int count = op->result_count;
  if (count == 0) return result == Py_None ? 0 : wrong_result(op, result);
  bool list = PyTuple_Check(result) || PyList_Check(result);
  EXT_OWNED *tuple = count > 1 && list ? PySequence_Tuple(result) : PyTuple_Pack(1, result);
  if (!tuple) return -1;
  bool fits = PyTuple_GET_SIZE(tuple) == count;
  for (int i = 0; fits && i < count; i++) fits = ext_is_tensor(PyTuple_GET_ITEM(tuple, i));
  if (!fits) return wrong_result(op, result);
  for (int i = 0; i < count; i++) results[i] = px_retain(ext_tensor(PyTuple_GET_ITEM(tuple, i)));
  return 0;
}

static px_status serve(void *data, px_tensor **results, const px_value *args) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  const def_object *self = data;
  PyObject *result = answer(self, args);
  int failed = !result || take_results(self->op, result, results) < 0;
  px_status status = failed ? ext_error_from_python() : PX_OK;
  Py_XDECREF(result);
  ext_gil_give(&gil);
  return status;
}

// ---- the type

static PyObject *make_node(PyObject *self, const px_op *op) {
  EXT_OWNED *name = name_with(op, "_");
  EXT_OWNED *text = name ? PyUnicode_FromFormat("GeneratedBackwardFor_%U_default", name) : NULL;
  EXT_OWNED *autograd = text ? ext_extension_attr("autograd") : NULL;
  EXT_OWNED *function = autograd ? PyObject_GetAttrString(autograd, "Function") : NULL;
  EXT_OWNED *forward = function ? PyObject_GetAttrString(self, "_forward") : NULL;
  EXT_OWNED *backward = forward ? PyObject_GetAttrString(self, "_backward") : NULL;
  if (!backward) return NULL;
  return PyObject_CallFunction((PyObject *)&PyType_Type, "O(O){sOsO}", text, function, "forward",
                               forward, "backward", backward);
}

EXT_NEW(op_def, "(schema: str, changes: set[str] | None = None)") {
  const char *schema;
  PyObject *changes;
  EXT_BIND(schema, changes);
  EXT_OWNED *object = ext_new(type);
  def_object *self = object ? def_of(object) : NULL;
  if (!self || !(self->kernels = PyDict_New())) return NULL;
  self->changes = Py_XNewRef(changes);
  px_op_definition definition = {
      .schema = schema, .kind = "composite", .serve = serve, .data = self};
  EXT_TRY(px_op_register(&self->op, &definition));
  Py_INCREF(self);  // owned by the op
  self->node = make_node(object, self->op);
  self->call = self->node ? Py_XNewRef(ext_op_registered(self->op->name)) : NULL;
  return self->call ? ext_moved(&object) : NULL;
}

static PyObject *def_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  return PyObject_Call(def_of(self)->call, args, kwargs);
}
static PyObject *def_repr(PyObject *self) {
  return PyUnicode_FromFormat("<CustomOpDef(%s)>", def_of(self)->op->name);
}
EXT_TYPE(op_def, "torch._library.custom_ops.CustomOpDef", "_CustomOpDef", def_object, EXT_FINAL,
         "A user-defined op; can be called.", EXT_LIFETIME_SLOTS(op_def), .tp_new = op_def_new,
         .tp_call = def_call, .tp_repr = def_repr);
EXT_GET(op_def, _qualname, "str", def_of(self)->op->name, "The name with its namespace.");
EXT_GET(op_def, _schema, "str", def_of(self)->op->schema, "The schema.");
EXT_GET(op_def, _opoverload, "Callable", Py_NewRef(def_of(self)->call),
        "The callable in torch.ops.");

// A method with its first arguments bound, for use as a decorator.
static PyObject *decorator(PyObject *self, const char *name, PyObject *first) {
  EXT_OWNED *functools = PyImport_ImportModule("functools");
  EXT_OWNED *method = functools ? PyObject_GetAttrString(self, name) : NULL;
  return method ? PyObject_CallMethod(functools, "partial", first ? "OO" : "O", method, first)
                : NULL;
}

static int check_callable(PyObject *fn) {
  if (PyCallable_Check(fn)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "expected a function, not %s", ext_type_name(fn));
}

// Device type of a kernel, from a device or dispatch key name.
static const char *device_of_key(PyObject *name) {
  static const char *const places[][2] = {{"cpu", "cpu"},
                                          {"cuda", "cuda"},
                                          {"meta", "meta"},
                                          {"CPU", "cpu"},
                                          {"CUDA", "cuda"},
                                          {"Meta", "meta"},
                                          {"default", ""},
                                          {"", ""},
                                          {"CompositeImplicitAutograd", ""},
                                          {"CompositeExplicitAutograd", ""}};
  const char *text = PyUnicode_Check(name) ? ext_lookup_text(name) : NULL;
  for (int i = 0; text && i < EXT_LENGTH(places); i++)
    if (!strcmp(places[i][0], text)) return places[i][1];
  EXT_FAIL(PyExc_RuntimeError, "could not parse dispatch key: %S", name);
}

EXT_METHOD(op_def, register_kernel,
           "(device_types: str | Sequence[str] | None, fn: Callable | None = None) -> Any",
           "Registers an implementation for device types. Returns a decorator if fn is None.") {
  PyObject *device_types, *fn;
  EXT_BIND(device_types, fn);
  if (!fn) return decorator(self, "register_kernel", device_types ? device_types : Py_None);
  if (check_callable(fn) < 0) return NULL;
  bool one = !device_types || PyUnicode_Check(device_types);
  EXT_OWNED *any = PyUnicode_FromString("");
  EXT_OWNED *list = any ? PySequence_Tuple(one ? any : device_types) : NULL;
  if (one && list) Py_SETREF(list, PyTuple_Pack(1, device_types ? device_types : any));
  for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(list); i++)
    if (!device_of_key(PyTuple_GET_ITEM(list, i))) return NULL;
  for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(list); i++)
    if (PyDict_SetItemString(def_of(self)->kernels, device_of_key(PyTuple_GET_ITEM(list, i)), fn) <
        0)
      return NULL;
  return list ? Py_NewRef(fn) : NULL;
}
EXT_METHOD(op_def, register_fake, "(fn: Callable | None = None) -> Any",
           "Registers a fake implementation for meta tensors. Returns a decorator if fn is None.") {
  EXT_ARGS(PyObject *, fn);
  if (!fn) return decorator(self, "register_fake", NULL);
  if (check_callable(fn) < 0) return NULL;
  Py_XSETREF(def_of(self)->fake, Py_NewRef(fn));
  return Py_NewRef(fn);
}
static PyObject *set_gradient(PyObject *self, PyObject *backward, PyObject *setup_context) {
  if (check_callable(backward) < 0 || (setup_context && check_callable(setup_context) < 0))
    return NULL;
  Py_XSETREF(def_of(self)->backward, Py_NewRef(backward));
  Py_XSETREF(def_of(self)->setup, Py_XNewRef(setup_context));
  Py_RETURN_NONE;
}
EXT_METHOD(
    op_def, register_autograd,
    "(backward: Callable, *, setup_context: Callable | None = None) -> None",
    "Registers a backward formula, backward(ctx, *grads). setup_context(ctx, inputs, output) runs "
    "after\neach differentiated call.") {
  PyObject *backward, *setup_context;
  EXT_BIND(backward, setup_context);
  return set_gradient(self, backward, setup_context);
}

// ---- ops by name

static PyObject *ops;            // defined ops
static PyObject *pending_fakes;  // fakes for ops not defined yet, of libraries that are not loaded
static PyObject *defined_namespaces;  // namespaces already defined

static PyObject *op_named(PyObject *op) {
  if (Py_TYPE(op) == &op_def_type) return op;
  PyObject *known = PyDict_GetItemWithError(ops, op);
  if (!known && !PyErr_Occurred())
    PyErr_Format(PyExc_RuntimeError, "operator %S does not exist", op);
  return known;
}

EXT_FUNCTION(library, _define, "(schema: str, changes: set[str] | None = None) -> Any",
             "Defines an op with the schema NAMESPACE::NAME(...) -> ...") {
  PyObject *schema, *changes;
  EXT_BIND(schema, changes);
  EXT_OWNED *parts = PyObject_CallMethod(schema, "partition", "s", "(");
  PyObject *name = parts ? PyTuple_GET_ITEM(parts, 0) : NULL;
  const char *text = name ? ext_text(name) : NULL;
  if (!text) return NULL;
  if (!strstr(text, "::"))
    EXT_FAIL(PyExc_ValueError, "expected an op name 'namespace::name', got '%s'", text);
  if (PyDict_Contains(ops, name))
    EXT_FAIL(PyExc_RuntimeError,
             "Tried to register an operator (%U) with the same name and overload name multiple "
             "times. Each overload's schema should only be registered with a single call to def().",
             schema);
  EXT_OWNED *made = PyObject_CallFunctionObjArgs((PyObject *)&op_def_type, schema,
                                                 changes ? changes : Py_None, NULL);
  if (!made || PyDict_SetItem(ops, name, made) < 0) return NULL;
  def_of(made)->fake = Py_XNewRef(PyDict_GetItem(pending_fakes, name));
  return ext_moved(&made);
}
EXT_FUNCTION(library, define, "(qualname: str, schema: str, *, lib: Any = None) -> None",
             "Defines a new op. Its kernels are registered by impl. It is never removed.") {
  PyObject *qualname, *schema, *lib;
  EXT_BIND(qualname, schema, lib);
  EXT_OWNED *whole = PyUnicode_FromFormat("%S%S", qualname, schema);
  EXT_OWNED *made = whole ? PyObject_CallMethod(self, "_define", "O", whole) : NULL;
  return made ? Py_NewRef(Py_None) : NULL;
}

// Calls a method of an op; without the function it returns a decorator.
static PyObject *call_method(PyObject *op, const char *method, PyObject *key, PyObject *fn) {
  PyObject *known = op_named(op);
  if (!known) return NULL;
  if (key) return PyObject_CallMethod(known, method, "OO", key, fn ? fn : Py_None);
  return PyObject_CallMethod(known, method, "O", fn ? fn : Py_None);
}
EXT_FUNCTION(library, register_kernel,
             "(op: Any, device_types: str | Sequence[str] | None, func: Callable | None = None, /, "
             "*, lib: Any = None) -> Any",
             "Registers a kernel for device types. Returns a decorator if func is None.") {
  PyObject *op, *device_types, *func, *lib;
  EXT_BIND(op, device_types, func, lib);
  return call_method(op, "register_kernel", device_types ? device_types : Py_None, func);
}
EXT_FUNCTION(library, register_fake,
             "(op: Any, func: Callable | None = None, /, *, lib: Any = None, _stacklevel: int = 1) "
             "-> Any",
             "Registers a fake implementation: computes shapes and dtypes of results. Returns a "
             "decorator if\nfunc is None. The op may be defined later.") {
  PyObject *op, *func, *lib;
  int64_t _stacklevel;
  EXT_BIND(op, func, lib, _stacklevel);
  bool late = PyUnicode_Check(op) && !PyDict_Contains(ops, op);
  if (!late) return call_method(op, "register_fake", NULL, func);
  if (!func) return decorator(self, "register_fake", op);
  return check_callable(func) < 0 || PyDict_SetItem(pending_fakes, op, func) < 0 ? NULL
                                                                                 : Py_NewRef(func);
}
EXT_FUNCTION(
    library, register_autograd,
    "(op: Any, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = "
    "None) -> None",
    "Registers a backward formula for an op.") {
  PyObject *op, *backward, *setup_context, *lib;
  EXT_BIND(op, backward, setup_context, lib);
  PyObject *known = op_named(op);
  return known ? set_gradient(known, backward, setup_context) : NULL;
}

// ---- namespaces

typedef struct library_object {
  PyObject_HEAD PyObject *ns, *kind, *dispatch_key;
} library_object;
static library_object *library_of(PyObject *self) { return (library_object *)self; }
EXT_OWNS(namespace, EXT_OBJECT(library_object, ns), EXT_OBJECT(library_object, kind),
         EXT_OBJECT(library_object, dispatch_key));

static int check_namespace(PyObject *ns, const char *kind) {
  if (strcmp(kind, "IMPL") && strcmp(kind, "DEF") && strcmp(kind, "FRAGMENT"))
    EXT_FAIL_INT(PyExc_ValueError, "Unsupported kind: %s", kind);
  int taken = strcmp(kind, "DEF") ? 0 : PySet_Contains(defined_namespaces, ns);
  if (taken > 0)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Only a single TORCH_LIBRARY can be used to register the namespace %S; please put "
                 "all of your definitions in a single TORCH_LIBRARY block.",
                 ns);
  return taken < 0 ? -1 : PySet_Add(defined_namespaces, ns);
}
EXT_NEW(namespace, "(ns: str, kind: str, dispatch_key: str = '')") {
  PyObject *ns, *kind, *dispatch_key;
  EXT_BIND(ns, kind, dispatch_key);
  const char *text = ext_text(kind);
  if (!text || check_namespace(ns, text) < 0) return NULL;
  library_object *self = ext_new(type);
  if (!self) return NULL;
  self->ns = Py_NewRef(ns);
  self->kind = Py_NewRef(kind);
  self->dispatch_key = dispatch_key ? Py_NewRef(dispatch_key) : PyUnicode_FromString("");
  return (PyObject *)self;
}
static PyObject *namespace_repr(PyObject *self) {
  const library_object *library = library_of(self);
  return PyUnicode_FromFormat("Library(kind=%S, ns=%S, dispatch_key=%S)>", library->kind,
                              library->ns, library->dispatch_key);
}
EXT_TYPE(namespace, "torch.library.Library", "library.Library", library_object, EXT_BASETYPE,
         "A namespace of ops: kind DEF defines it, FRAGMENT extends it, IMPL registers kernels.",
         EXT_LIFETIME_SLOTS(namespace), .tp_new = namespace_new, .tp_repr = namespace_repr);
EXT_GET(namespace, ns, "str", Py_NewRef(library_of(self)->ns), "The name.");
EXT_GET(namespace, kind, "str", Py_NewRef(library_of(self)->kind), "DEF, FRAGMENT or IMPL.");
EXT_GET(namespace, dispatch_key, "str", Py_NewRef(library_of(self)->dispatch_key),
        "The default dispatch key of impl.");

EXT_METHOD(namespace, define, "(schema: str) -> str", "Defines an op and returns its name.") {
  EXT_ARGS(PyObject *, schema);
  EXT_OWNED *whole = PyUnicode_FromFormat("%S::%S", library_of(self)->ns, schema);
  EXT_OWNED *module = whole ? ext_extension_attr("library") : NULL;
  EXT_OWNED *made = module ? PyObject_CallMethod(module, "_define", "O", whole) : NULL;
  return made ? PyUnicode_FromString(strstr(def_of(made)->op->name, "::") + 2) : NULL;
}
EXT_METHOD(namespace, impl, "(op_name: str, fn: Callable, dispatch_key: str = '') -> None",
           "Registers the implementation of an op for a dispatch key.") {
  PyObject *op_name, *fn, *dispatch_key;
  EXT_BIND(op_name, fn, dispatch_key);
  const library_object *library = library_of(self);
  bool given = dispatch_key && PyObject_IsTrue(dispatch_key) > 0;
  EXT_OWNED *name = PyUnicode_FromFormat("%S::%S", library->ns, op_name);
  EXT_OWNED *done =
      name ? call_method(name, "register_kernel", given ? dispatch_key : library->dispatch_key, fn)
           : NULL;
  return done ? Py_NewRef(Py_None) : NULL;
}

EXT_FUNCTION(
    library, impl,
    "(qualname: Any, types: str | Sequence[str], func: Any = None, *, lib: Any = None) -> Any",
    "Registers an implementation for device types. Returns a decorator if func is None.\n"
    "impl(library, name, dispatch_key) is a decorator, too.") {
  PyObject *qualname, *types, *func, *lib;
  EXT_BIND(qualname, types, func, lib);
  if (!PyObject_TypeCheck(qualname, &namespace_type))
    return call_method(qualname, "register_kernel", types, func);
  EXT_OWNED *name = PyUnicode_FromFormat("%S::%S", library_of(qualname)->ns, types);
  return name ? call_method(name, "register_kernel",
                            func ? func : library_of(qualname)->dispatch_key, NULL)
              : NULL;
}
EXT_MODULE(library, "library", "User-defined ops.");

static int make_registry(PyObject *torch) {
  ops = PyDict_New(), pending_fakes = PyDict_New();
  EXT_OWNED *taken = Py_BuildValue("(sss)", "aten", "phlox", "prims");
  defined_namespaces = taken ? PySet_New(taken) : NULL;
  return ops && pending_fakes && defined_namespaces ? 0 : -1;
}
EXT_START(EXT_VALUES, make_registry);
