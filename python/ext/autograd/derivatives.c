// SPDX-License-Identifier: Apache-2.0
// torch.autograd.functional: Jacobians and Hessians of functions of tensors, and their products
// with vectors. Of all, inputs is a tensor or a tuple of them; with create_graph the results can be
// derived; strict refuses inputs that a result does not depend on, which count as zero otherwise.
#include "bind/ext.h"

#include <string.h>

// Tensors out of an argument: a tensor, or a tuple of them (`many`). The objects are owned.
typedef struct list {
  PyObject *tuple;
  px_tensor **items;
  int count;
  bool many;
} list;
static void list_end(list *l) {
  PyMem_Free(l->items);
  Py_CLEAR(l->tuple);
}
#define LIST __attribute__((cleanup(list_end))) list

static int take_items(list *l) {
  l->count = (int)PyTuple_GET_SIZE(l->tuple);
  l->items = PyMem_Calloc((size_t)l->count + 1, sizeof *l->items);
  if (!l->items) return PyErr_NoMemory(), -1;
  for (int i = 0; i < l->count; i++) {
    PyObject *item = PyTuple_GET_ITEM(l->tuple, i);
    l->items[i] = ext_is_tensor(item) ? ext_tensor(item) : NULL;
  }
  return 0;
}

static int read_list(list *l, PyObject *given, const char *what, const char *function) {
  l->many = PyTuple_Check(given);
  l->tuple = l->many ? Py_NewRef(given) : PyTuple_Pack(1, given);
  if (!l->tuple || take_items(l) < 0) return -1;
  for (int i = 0; i < l->count; i++) {
    if (l->items[i]) continue;
    EXT_OWNED *at = l->many ? PyUnicode_FromFormat("value at index %d", i)
                            : PyUnicode_FromFormat("given %s", what);
    PyObject *type = (PyObject *)Py_TYPE(PyTuple_GET_ITEM(l->tuple, i));
    if (at)
      PyErr_Format(PyExc_TypeError,
                   "The %s given to %s must be either a Tensor or a tuple of Tensors but the %U "
                   "has type %S.",
                   what, function, at, type);
    return -1;
  }
  return 0;
}

// The tensors, which it takes, as a result: detached unless they can be derived.
static PyObject *result_of(px_tensor **items_take, int count, bool create, bool many) {
  EXT_OWNED *tuple = PyTuple_New(count);
  for (int i = 0; i < count; i++) {
    px_tensor *item = items_take[i], *plain = NULL;
    items_take[i] = NULL;
    if (!create && item && !PyErr_Occurred() && px_tensor_detach(&plain, item) != PX_OK)
      ext_raise();
    if (!create) px_release(item), item = plain;
    PyObject *object = item ? ext_wrap(item) : NULL;
    if (tuple && object)
      PyTuple_SET_ITEM(tuple, i, object);
    else
      Py_XDECREF(object);
  }
  if (!tuple || PyErr_Occurred()) return NULL;
  return many ? ext_moved(&tuple) : Py_NewRef(PyTuple_GET_ITEM(tuple, 0));
}
static PyObject *result_of_list(const list *l, bool create) {
  px_tensor **items = PyMem_Calloc((size_t)l->count + 1, sizeof *items);
  if (!items) return PyErr_NoMemory();
  for (int i = 0; i < l->count; i++) items[i] = px_retain(l->items[i]);
  PyObject *result = result_of(items, l->count, create, l->many);
  PyMem_Free(items);
  return result;
}

// ---- calls of the function

typedef struct task {
  const char *name;
  PyObject *func;
  bool create, strict;
  list in, out;
} task;
static void task_end(task *t) { list_end(&t->in), list_end(&t->out); }

// An input of its own: a view where the result is to be derived by the program's.
static px_tensor *fresh(px_tensor *given, bool create) {
  px_tensor *own = NULL;
  if (create && !px_tensor_requires_grad(given) && px_tensor_is_dual(given)) {
    EXT_TRY(px_dual_variable(&own, given));
    return own;
  }
  if (create && px_tensor_requires_grad(given))
    return ext_op_tensor(EXT_OP("alias"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(given)}});
  EXT_TRY(px_tensor_detach(&own, given));
  if (px_tensor_set_requires_grad(own, true) == PX_OK) return own;
  px_release(own);
  return ext_raise();
}

static int check_outputs(const task *t) {
  for (int i = 0; t->strict && i < t->out.count; i++)
    if (!px_tensor_requires_grad(t->out.items[i]))
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "Output %d of the user-provided function does not require gradients. The "
                   "outputs must be computed in a differentiable manner from the input when "
                   "running in strict mode.",
                   i);
  return 0;
}

static int call(task *t, PyObject *inputs) {
  LIST given = {NULL};
  if (read_list(&given, inputs, "inputs", t->name) < 0) return -1;
  t->in.tuple = PyTuple_New(given.count), t->in.many = given.many;
  for (int i = 0; t->in.tuple && i < given.count; i++) {
    px_tensor *own = fresh(given.items[i], t->create);
    if (!own) return -1;
    PyTuple_SET_ITEM(t->in.tuple, i, ext_wrap(own));
  }
  if (!t->in.tuple || take_items(&t->in) < 0) return -1;
  EXT_OWNED *output = PyObject_CallObject(t->func, t->in.tuple);
  if (!output) return -1;
  if (read_list(&t->out, output, "outputs of the user-provided function", t->name) < 0) return -1;
  return check_outputs(t);
}

// The function gives one number.
static int check_number(const task *t) {
  if (t->out.many)
    EXT_FAIL_INT(PyExc_RuntimeError, "The function given to %s should return a single Tensor",
                 t->name);
  if (px_tensor_numel(t->out.items[0]) != 1)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "The Tensor returned by the function given to %s should contain a single element",
                 t->name);
  return 0;
}

static int check_vector(const list *v, const list *like) {
  if (v->count != like->count && !like->many)
    EXT_FAIL_INT(PyExc_RuntimeError, "The given v should contain a single Tensor.");
  if (v->count != like->count)
    EXT_FAIL_INT(PyExc_RuntimeError, "v is a tuple of invalid length: should be %d but got %d.",
                 like->count, v->count);
  for (int i = 0; i < v->count; i++) {
    const px_tensor *a = v->items[i], *b = like->items[i];
    int ndim = px_tensor_ndim(a);
    bool same = ndim == px_tensor_ndim(b) &&
                !memcmp(px_tensor_sizes(a), px_tensor_sizes(b), (size_t)ndim * sizeof(int64_t));
    if (same) continue;
    EXT_OWNED *entry = like->many ? PyUnicode_FromFormat("Entry %d in ", i) : PyUnicode_New(0, 0);
    EXT_OWNED *wanted = ext_size(px_tensor_ndim(b), px_tensor_sizes(b));
    EXT_OWNED *got = ext_size(ndim, px_tensor_sizes(a));
    if (entry && wanted && got)
      PyErr_Format(PyExc_RuntimeError, "%Uv has invalid size: should be %S but got %S.", entry,
                   wanted, got);
    return -1;
  }
  return 0;
}

static px_tensor *alike(const char *op, const px_tensor *t) {
  return ext_op_tensor(ext_op_lookup(op), PX_CALL_NEW, 1,
                       (ext_named[]){{"self", PX_T((px_tensor *)t)}});
}

// The v of a call, or a one in its place; `where` says of what the size is.
static int read_vector(list *v, PyObject *given, const list *like, const task *t,
                       const char *where) {
  if (!ext_is_none(given))
    return read_list(v, given, "v", t->name) < 0 ? -1 : check_vector(v, like);
  if (like->count != 1 || px_tensor_numel(like->items[0]) != 1)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "The vector v can only be None if %s a single Tensor with a single element.",
                 where);
  EXT_OWNED *one = ext_wrap(alike("ones_like", like->items[0]));
  return one ? read_list(v, one, "v", t->name) : -1;
}
#define OF_INPUT "the input to the user-provided function is"
#define OF_OUTPUT "the user-provided function returns"

// ---- gradients

typedef struct strictness {
  bool strict, create;
  const char *what, *of;  // what is independent of an input; NULL: the gradient, in a Hessian
} strictness;

static int check_gradient(const strictness *s, const px_tensor *grad, int i) {
  static const char text[] =
      "%s of the user-provided function is independent of input %d. This is not allowed in strict "
      "mode%s.";
  if (!s->strict) return 0;
  if (!grad) EXT_FAIL_INT(PyExc_RuntimeError, text, s->what, i, "");
  if (s->create && !s->of && !px_tensor_requires_grad(grad))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "While computing the hessian, found that the jacobian of the user-provided "
                 "function with respect to input %d is independent of the input. This is not "
                 "allowed in strict mode. You should ensure that your function is twice "
                 "differentiable and that the jacobian depends on the inputs (this would be "
                 "violated by a linear function for example).",
                 i);
  if (s->create && !px_tensor_requires_grad(grad))
    EXT_FAIL_INT(PyExc_RuntimeError, text, s->of, i, " when create_graph=True");
  return 0;
}

// The gradients of outputs by inputs, new references: zeros where there is none.
static int gradients(px_tensor **grads, const list *outputs, const list *inputs,
                     px_tensor *const *flow, const strictness *s) {
  px_tensor **out = PyMem_Calloc(2 * (size_t)outputs->count + 1, sizeof *out);
  px_tensor **seed = out + outputs->count;
  int count = 0, failed = 0;
  if (!out) return PyErr_NoMemory(), -1;
  for (int i = 0; i < outputs->count; i++)
    if (px_tensor_requires_grad(outputs->items[i]))
      out[count] = outputs->items[i], seed[count++] = flow[i];
  px_status status = PX_OK;
  if (count)
    status = EXT_NOGIL(
        px_grad(grads, count, out, seed, inputs->count, inputs->items, true, s->create, true));
  PyMem_Free(out);
  if (status != PX_OK) return ext_raise(), -1;
  for (int i = 0; i < inputs->count && !failed; i++) {
    failed = check_gradient(s, grads[i], i) < 0;
    if (!failed && !grads[i]) failed = (grads[i] = alike("zeros_like", inputs->items[i])) == NULL;
  }
  return failed ? -1 : 0;
}

// The same as a list.
static int gradient_list(list *l, const list *outputs, const list *inputs, px_tensor *const *flow,
                         const strictness *s) {
  px_tensor **grads = PyMem_Calloc((size_t)inputs->count + 1, sizeof *grads);
  if (!grads) return PyErr_NoMemory(), -1;
  int failed = gradients(grads, outputs, inputs, flow, s);
  if (!failed) l->tuple = result_of(grads, inputs->count, true, true);
  for (int i = 0; i < inputs->count; i++) px_release(grads[i]);
  PyMem_Free(grads);
  l->many = inputs->many;
  return failed || !l->tuple ? -1 : take_items(l);
}

// ---- the functions

typedef PyObject *(*body)(task *t, PyObject *inputs, PyObject *v);
// Runs a body with recording, which is then as it was.
static PyObject *run(body b, task t, PyObject *inputs, PyObject *v) {
  bool was = px_grad_enabled();
  px_grad_set_enabled(true);
  PyObject *result = b(&t, inputs, v);
  px_grad_set_enabled(was);
  task_end(&t);
  return result;
}
static PyObject *both(const list *outputs, const list *products, bool create) {
  EXT_OWNED *first = result_of_list(outputs, create);
  EXT_OWNED *second = first ? result_of_list(products, create) : NULL;
  return second ? PyTuple_Pack(2, first, second) : NULL;
}

static PyObject *run_vjp(task *t, PyObject *inputs, PyObject *given) {
  LIST v = {NULL}, grads = {NULL};
  strictness s = {t->strict, t->create, "The output", "The jacobian"};
  if (call(t, inputs) < 0 || read_vector(&v, given, &t->out, t, OF_OUTPUT) < 0) return NULL;
  if (gradient_list(&grads, &t->out, &t->in, v.items, &s) < 0) return NULL;
  return both(&t->out, &grads, t->create);
}

// By two backward passes: the first is linear in what flows into it, and derived by that.
static PyObject *run_jvp(task *t, PyObject *inputs, PyObject *given) {
  LIST v = {NULL}, flow = {NULL}, grads = {NULL}, products = {NULL};
  strictness s = {t->strict, true, "The output", "The jacobian"}, none = {.create = t->create};
  if (call(t, inputs) < 0 || read_vector(&v, given, &t->in, t, OF_INPUT) < 0) return NULL;
  flow.tuple = PyTuple_New(t->out.count);
  for (int i = 0; flow.tuple && i < t->out.count; i++) {
    px_tensor *zeros = alike("zeros_like", t->out.items[i]);
    if (!zeros || px_tensor_set_requires_grad(zeros, true) != PX_OK)
      return px_release(zeros), PyErr_Occurred() ? NULL : ext_raise();
    PyTuple_SET_ITEM(flow.tuple, i, ext_wrap(zeros));
  }
  if (!flow.tuple || take_items(&flow) < 0) return NULL;
  flow.many = t->out.many;
  if (gradient_list(&grads, &t->out, &t->in, flow.items, &s) < 0) return NULL;
  if (gradient_list(&products, &grads, &flow, v.items, &none) < 0) return NULL;
  return both(&t->out, &products, t->create);
}

static PyObject *run_vhp(task *t, PyObject *inputs, PyObject *given) {
  LIST v = {NULL}, one = {NULL}, grads = {NULL}, products = {NULL};
  strictness first = {t->strict, true, "The output", NULL};
  strictness second = {t->strict, t->create, "The jacobian", "The hessian"};
  if (call(t, inputs) < 0 || check_number(t) < 0) return NULL;
  if (read_vector(&v, given, &t->in, t, OF_INPUT) < 0) return NULL;
  if (read_vector(&one, NULL, &t->out, t, OF_OUTPUT) < 0) return NULL;
  if (gradient_list(&grads, &t->out, &t->in, one.items, &first) < 0) return NULL;
  if (gradient_list(&products, &grads, &t->in, v.items, &second) < 0) return NULL;
  return both(&t->out, &products, t->create);
}

// The derivatives of all elements of an output: of each input, one row for each of them, which are
// put together.
static PyObject *rows_of(task *t, px_tensor *output, int number) {
  char what[24];
  int64_t n = px_tensor_numel(output);
  snprintf(what, sizeof what, "Output %d", number);
  strictness s = {t->strict, t->create, what, "The jacobian"};
  EXT_OWNED *flat = ext_wrap(
      ext_op_tensor(EXT_OP("reshape"), PX_CALL_NEW, 2,
                    (ext_named[]){{"self", PX_T(output)}, {"shape", PX_IS((int64_t[]){n}, 1)}}));
  EXT_OWNED *columns = PyList_New(0);
  for (int i = 0; columns && i < t->in.count; i++) {
    EXT_OWNED *column = PyList_New(0);
    if (!column || PyList_Append(columns, column) < 0) return NULL;
  }
  for (int64_t k = 0; flat && columns && k < n; k++) {
    LIST element = {NULL}, one = {NULL}, grads = {NULL};
    EXT_OWNED *item = PySequence_GetItem(flat, (Py_ssize_t)k);
    if (!item || read_list(&element, item, "", t->name) < 0) return NULL;
    if (read_vector(&one, NULL, &element, t, "") < 0) return NULL;
    if (gradient_list(&grads, &element, &t->in, one.items, &s) < 0) return NULL;
    for (int i = 0; i < t->in.count; i++)
      if (PyList_Append(PyList_GET_ITEM(columns, i), PyTuple_GET_ITEM(grads.tuple, i)) < 0)
        return NULL;
  }
  return flat ? ext_moved(&columns) : NULL;
}

// Rows as one tensor of the sizes of the output, then the input's.
static px_tensor *joined(PyObject *rows, const px_tensor *output, const px_tensor *input) {
  int a = px_tensor_ndim(output), b = px_tensor_ndim(input);
  int64_t sizes[2 * PX_MAX_DIMS];
  if (a) memcpy(sizes, px_tensor_sizes(output), (size_t)a * sizeof *sizes);
  if (b) memcpy(sizes + a, px_tensor_sizes(input), (size_t)b * sizeof *sizes);
  if (PyList_GET_SIZE(rows)) {
    EXT_OWNED *stack = PyObject_CallFunctionObjArgs(ext_op_object('f', "stack"), rows, NULL);
    if (!stack) return NULL;
    return ext_op_tensor(
        EXT_OP("reshape"), PX_CALL_NEW, 2,
        (ext_named[]){{"self", PX_T(ext_tensor(stack))}, {"shape", PX_IS(sizes, a + b)}});
  }
  px_tensor *empty = NULL;
  EXT_TRY(px_tensor_empty(&empty, a + b, sizes, px_tensor_dtype(input), px_tensor_device(input)));
  return empty;
}

static PyObject *jacobian_of_output(task *t, int number) {
  px_tensor *output = t->out.items[number];
  EXT_OWNED *columns = rows_of(t, output, number);
  px_tensor **whole = columns ? PyMem_Calloc((size_t)t->in.count + 1, sizeof *whole) : NULL;
  if (!whole) return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  for (int i = 0; i < t->in.count && !PyErr_Occurred(); i++)
    whole[i] = joined(PyList_GET_ITEM(columns, i), output, t->in.items[i]);
  PyObject *result = result_of(whole, t->in.count, t->create, t->in.many);
  PyMem_Free(whole);
  return result;
}

static PyObject *run_jacobian(task *t, PyObject *inputs, PyObject *unused) {
  if (call(t, inputs) < 0) return NULL;
  EXT_OWNED *whole = PyTuple_New(t->out.count);
  for (int i = 0; whole && i < t->out.count; i++) {
    PyObject *one = jacobian_of_output(t, i);
    if (!one) return NULL;
    PyTuple_SET_ITEM(whole, i, one);
  }
  if (!whole) return NULL;
  return t->out.many ? ext_moved(&whole) : Py_NewRef(PyTuple_GET_ITEM(whole, 0));
}

// The gradients of a function of one number, as a function: what hessian takes the Jacobian of.
static PyObject *gradients_of(PyObject *self, PyObject *inputs) {
  bool strict = PyTuple_GET_ITEM(self, 1) == Py_True;
  task t = {"hessian", PyTuple_GET_ITEM(self, 0), true, strict, {NULL}, {NULL}};
  LIST one = {NULL}, grads = {NULL};
  strictness s = {strict, true, "The output", NULL};
  PyObject *result = NULL;
  if (call(&t, inputs) == 0 && check_number(&t) == 0 &&
      read_vector(&one, NULL, &t.out, &t, OF_OUTPUT) == 0 &&
      gradient_list(&grads, &t.out, &t.in, one.items, &s) == 0)
    result = Py_NewRef(grads.tuple);
  task_end(&t);
  return result;
}
static PyMethodDef gradients_def = {"gradients", gradients_of, METH_VARARGS, NULL};

// Whether it is to be by forward mode, or -1.
static int check_strategy(const char *strategy, bool vectorize, bool strict, bool create) {
  if (strcmp(strategy, "forward-mode") && strcmp(strategy, "reverse-mode"))
    EXT_FAIL_INT(PyExc_AssertionError,
                 "Expected strategy to be either \"forward-mode\" or \"reverse-mode\". Hint: If "
                 "your function has more outputs than inputs, \"forward-mode\" tends to be more "
                 "performant. Otherwise, prefer to use \"reverse-mode\".");
  bool forward = strcmp(strategy, "forward-mode") == 0;
  static const char together[] =
      "torch.autograd.functional.jacobian: `%s=True` and `strategy=\"forward-mode\"` are not "
      "supported together (yet). Please either set `%s=False` or `strategy=\"reverse-mode\"`.";
  if (forward && create)
    EXT_FAIL_INT(PyExc_NotImplementedError, together, "create_graph", "create_graph");
  if (forward && strict) EXT_FAIL_INT(PyExc_RuntimeError, together, "strict", "strict");
  if (forward && !vectorize)
    EXT_FAIL_INT(PyExc_NotImplementedError,
                 "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly "
                 "implemented for `vectorize=True`.");
  if (vectorize && strict)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
                 "supported together. Please either set `strict=False` or `vectorize=False`.");
  return forward;
}

// torch.func.jacfwd by all inputs, or by the one.
static PyObject *forward_jacobian(PyObject *func, PyObject *inputs) {
  LIST given = {NULL};
  if (read_list(&given, inputs, "inputs", "jacobian") < 0) return NULL;
  EXT_OWNED *module = PyImport_ImportModule("phlox.func");
  EXT_OWNED *places = given.many ? PyTuple_New(given.count) : PyLong_FromLong(0);
  if (!module || !places) return NULL;
  for (int i = 0; given.many && i < given.count; i++)
    PyTuple_SET_ITEM(places, i, PyLong_FromLong(i));
  EXT_OWNED *made = PyObject_CallMethod(module, "jacfwd", "OO", func, places);
  return made ? PyObject_CallObject(made, given.tuple) : NULL;
}

EXT_MODULE(autograd_functional, "autograd.functional",
           "Jacobians and Hessians of functions of tensors, and their products with vectors.");
#define PRODUCT(name, body, doc) \
  EXT_FUNCTION(autograd_functional, name, \
               "(func: Callable, inputs: Tensor | tuple[Tensor, ...], v: Tensor | tuple[Tensor, " \
               "...] | None = None, create_graph: bool = False, strict: bool = False) -> " \
               "tuple[Any, Any]", \
               doc) { \
    PyObject *func, *inputs, *v; \
    bool create_graph, strict; \
    EXT_BIND(func, inputs, v, create_graph, strict); \
    return run(body, (task){#name, func, create_graph, strict, {NULL}, {NULL}}, inputs, v); \
  }
PRODUCT(
    vjp, run_vjp,
    "The outputs of func, and the product of v with its Jacobian.\n\n"
    ">>> torch.autograd.functional.vjp(torch.sin, torch.zeros(2), torch.tensor([1.0, 2.0]))[1]\n"
    "tensor([1., 2.])\n")
PRODUCT(jvp, run_jvp, "The outputs of func, and the product of its Jacobian with v.")
PRODUCT(vhp, run_vhp, "The output of func, one number, and the product of v with its Hessian.")
PRODUCT(hvp, run_vhp,
        "The output of func, one number, and the product of its Hessian, which is symmetric, with "
        "v.")

EXT_FUNCTION(
    autograd_functional, jacobian,
    "(func: Callable, inputs: Tensor | tuple[Tensor, ...], create_graph: bool = False, "
    "strict: bool = False, vectorize: bool = False, strategy: str = 'reverse-mode') -> Any",
    "The derivatives of all elements of func's outputs by all of its inputs.\n\n"
    "Args:\n"
    "    create_graph (bool): whether they can be derived\n"
    "    strict (bool): RuntimeError where one does not depend on the inputs\n"
    "    vectorize (bool): without effect in reverse mode; forward mode demands it\n"
    "    strategy (str): 'reverse-mode', or 'forward-mode', as torch.func.jacfwd\n\n"
    ">>> torch.autograd.functional.jacobian(torch.square, torch.tensor([1.0, 2.0]))\n"
    "tensor([[2., 0.],\n"
    "        [0., 4.]])\n") {
  PyObject *func, *inputs;
  bool create_graph, strict, vectorize;
  const char *strategy;
  EXT_BIND(func, inputs, create_graph, strict, vectorize, strategy);
  int forward = check_strategy(strategy, vectorize, strict, create_graph);
  if (forward) return forward < 0 ? NULL : forward_jacobian(func, inputs);
  return run(run_jacobian, (task){"jacobian", func, create_graph, strict, {NULL}, {NULL}}, inputs,
             NULL);
}

EXT_FUNCTION(autograd_functional, hessian,
             "(func: Callable, inputs: Tensor | tuple[Tensor, ...], create_graph: bool = False, "
             "strict: bool = False, vectorize: bool = False, outer_jacobian_strategy: str = "
             "'reverse-mode') -> Any",
             "The second derivatives of func, which gives one number; the arguments as of "
             "jacobian.\n\n"
             ">>> torch.autograd.functional.hessian(torch.prod, torch.tensor([2.0, 3.0]))\n"
             "tensor([[0., 1.],\n"
             "        [1., 0.]])\n") {
  PyObject *func, *inputs;
  bool create_graph, strict, vectorize;
  const char *outer_jacobian_strategy;
  EXT_BIND(func, inputs, create_graph, strict, vectorize, outer_jacobian_strategy);
  int forward = check_strategy(outer_jacobian_strategy, vectorize, strict, create_graph);
  if (forward < 0) return NULL;
  LIST given = {NULL};
  if (read_list(&given, inputs, "inputs", "hessian") < 0) return NULL;
  EXT_OWNED *bound = PyTuple_Pack(2, func, strict ? Py_True : Py_False);
  EXT_OWNED *first = bound ? PyCFunction_New(&gradients_def, bound) : NULL;
  if (!first) return NULL;
  EXT_OWNED *whole =
      forward ? forward_jacobian(first, given.tuple)
              : run(run_jacobian, (task){"jacobian", first, create_graph, strict, {NULL}, {NULL}},
                    given.tuple, NULL);
  if (!whole || given.many) return ext_moved(&whole);
  return Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(whole, 0), 0));
}
