// SPDX-License-Identifier: Apache-2.0
// torch.nn.utils.prune: hooks that, before each call of a module, multiply one of its parameters
// with a mask. Programs derive from BasePruningMethod; all attributes are in the object's dict.
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"

#include "nn/nn.h"

EXT_MODULE(nn_prune, "nn.utils.prune", "Weights of which masks leave a part.");

typedef struct prune_object {
  PyObject_HEAD PyObject *dict;
} prune_object;

static PyObject *joined(PyObject *name, const char *suffix) {
  return PyUnicode_FromFormat("%U%s", name, suffix);
}
// module.NAME_orig and the like.
static PyObject *part_of(PyObject *module, PyObject *name, const char *suffix) {
  EXT_OWNED *full = joined(name, suffix);
  return full ? PyObject_GetAttr(module, full) : NULL;
}
static PyObject *tensor_name(PyObject *method) {
  PyObject *name = PyObject_GetAttrString(method, "_tensor_name");
  if (!name || PyUnicode_Check(name)) return name;
  Py_DECREF(name);
  EXT_FAIL(PyExc_TypeError, "the name of a tensor must be str");
}
static PyObject *compute_mask(PyObject *method, PyObject *t, PyObject *mask) {
  EXT_OWNED *function = PyObject_GetAttrString(method, "compute_mask");
  EXT_OWNED *args = PyTuple_Pack(1, t);
  EXT_OWNED *named = Py_BuildValue("{sO}", "default_mask", mask);
  EXT_OWNED *made = function && args && named ? PyObject_Call(function, args, named) : NULL;
  if (made && !ext_need_tensor(made, "compute_mask", "mask")) return NULL;
  return ext_moved(&made);
}

// ---- the base

EXT_OWNS(pruning, EXT_OBJECT(prune_object, dict));
static PyObject *pruning_call(PyObject *self, PyObject *args, PyObject *kwargs);
static PyObject *pruning_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
EXT_TYPE(pruning, "torch.nn.utils.prune.BasePruningMethod", "nn.utils.prune.BasePruningMethod",
         prune_object, EXT_BASETYPE | EXT_GC | EXT_SHORT_NAME,
         "BasePruningMethod()\n--\n\n"
         "A hook that multiplies a tensor of a module with a mask: the parameter is `name_orig`, "
         "the mask the buffer\n`name_mask`. A class of one's own says by `compute_mask` what the "
         "mask is, and by PRUNING_TYPE\n(\"unstructured\", \"structured\" or \"global\") what of a "
         "tensor that was pruned before it sees.",
         EXT_LIFETIME_SLOTS(pruning), .tp_new = pruning_new, .tp_call = pruning_call,
         .tp_dictoffset = offsetof(prune_object, dict));

static bool is_method(PyObject *object) { return PyObject_TypeCheck(object, &pruning_type); }

EXT_METHOD(pruning, compute_mask, "(t: Tensor, default_mask: Tensor) -> Tensor",
           "The mask of a tensor, which has 0 where default_mask has.") {
  EXT_FAIL(PyExc_NotImplementedError, "%s lacks compute_mask", ext_type_name(self));
}

// Only classes that say what the mask is have objects.
static PyObject *pruning_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  EXT_OWNED *own = PyObject_GetAttrString((PyObject *)type, "compute_mask");
  EXT_OWNED *none = own ? PyObject_GetAttrString((PyObject *)&pruning_type, "compute_mask") : NULL;
  if (!none) return NULL;
  if (own != none) return PyType_GenericNew(type, args, kwargs);
#if PY_VERSION_HEX < 0x030C0000
  const char *lack = "with abstract method compute_mask";
#else
  const char *lack = "without an implementation for abstract method 'compute_mask'";
#endif
  const char *dot = strrchr(type->tp_name, '.');
  EXT_FAIL(PyExc_TypeError, "Can't instantiate abstract class %s %s", dot ? dot + 1 : type->tp_name,
           lack);
}

EXT_METHOD(pruning, apply_mask, "(module: Module) -> Tensor",
           "The product of the parameter and the mask.") {
  EXT_ARGS(PyObject *, module);
  EXT_OWNED *name = tensor_name(self);
  EXT_OWNED *original = name ? part_of(module, name, "_orig") : NULL;
  EXT_OWNED *mask = original ? part_of(module, name, "_mask") : NULL;
  EXT_OWNED *dtype = mask ? PyObject_GetAttrString(original, "dtype") : NULL;
  EXT_OWNED *cast = dtype ? PyObject_CallMethod(mask, "to", "O", dtype) : NULL;
  return cast ? PyNumber_Multiply(cast, original) : NULL;
}

// Sets the tensor to its product with the mask.
static int recompute(PyObject *method, PyObject *module) {
  EXT_OWNED *name = tensor_name(method);
  EXT_OWNED *value = name ? PyObject_CallMethod(method, "apply_mask", "O", module) : NULL;
  return value ? PyObject_SetAttr(module, name, value) : -1;
}
static PyObject *pruning_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *module, *inputs = NULL;
  if (!PyArg_UnpackTuple(args, "__call__", 1, 2, &module, &inputs)) return NULL;
  return ext_none_unless(recompute(self, module) < 0);
}

// The hooks of a module for a tensor, by their keys.
static PyObject *hooks_for(PyObject *module, PyObject *name) {
  EXT_OWNED *hooks = PyObject_GetAttrString(module, "_forward_pre_hooks");
  EXT_OWNED *pairs = hooks ? PyMapping_Items(hooks) : NULL;
  EXT_OWNED *found = pairs ? PyDict_New() : NULL;
  for (Py_ssize_t i = 0; found && i < PyList_GET_SIZE(pairs); i++) {
    PyObject *key, *hook;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(pairs, i), "OO", &key, &hook)) return NULL;
    if (!is_method(hook)) continue;
    EXT_OWNED *its = tensor_name(hook);
    int same = its ? PyObject_RichCompareBool(its, name, Py_EQ) : -1;
    if (same < 0 || (same && PyDict_SetItem(found, key, hook) < 0)) return NULL;
  }
  return ext_moved(&found);
}
static int remove_hook(PyObject *module, PyObject *key) {
  EXT_OWNED *hooks = PyObject_GetAttrString(module, "_forward_pre_hooks");
  return hooks ? PyObject_DelItem(hooks, key) : -1;
}

// The scores that are given, or else the tensor itself.
static PyObject *scores_for(PyObject *tensor, PyObject *scores, PyObject *what) {
  if (ext_is_none(scores)) return Py_NewRef(tensor);
  EXT_OWNED *wanted = PyObject_GetAttrString(tensor, "shape");
  EXT_OWNED *shape = wanted ? PyObject_GetAttrString(scores, "shape") : NULL;
  int same = shape ? PyObject_RichCompareBool(shape, wanted, Py_EQ) : -1;
  if (same > 0) return Py_NewRef(scores);
  if (same == 0)
    PyErr_Format(PyExc_AssertionError,
                 "importance_scores should have the same shape as %S, got %S vs %S", what, shape,
                 wanted);
  return NULL;
}

static PyObject *ones_like(PyObject *tensor) {
  px_tensor *from = ext_need_tensor(tensor, "ones_like", "input"), *made = NULL;
  if (!from) return NULL;
  return ext_result(px_ones_like(&made, from, PX_DTYPE_NONE, PX_DEVICE_NONE, false, false, NULL),
                    &made);
}

// ---- masks of a tensor that was pruned before

// What of a tensor a method sees: an index.
static PyObject *seen_by(PyObject *method, px_tensor *t, px_tensor *mask) {
  EXT_OWNED *kind = PyObject_GetAttrString(method, "PRUNING_TYPE");
  const char *word = kind ? PyUnicode_AsUTF8(kind) : NULL;
  int64_t dim, others[PX_MAX_DIMS];
  int ndim = px_tensor_ndim(t), count = 0;
  px_tensor *part = NULL;
  if (!word) return NULL;
  if (!strcmp(word, "global")) return Py_NewRef(Py_Ellipsis);
  if (!strcmp(word, "unstructured")) {
    return ext_result(px_eq_scalar(&part, mask, px_int(1)), &part);
  }
  if (strcmp(word, "structured")) EXT_FAIL(PyExc_ValueError, "Unrecognized PRUNING_TYPE %s", word);
  EXT_OWNED *dim_ = PyObject_GetAttrString(method, "dim");
  if (!dim_)
    EXT_FAIL(PyExc_AttributeError,
             "Pruning methods of PRUNING_TYPE \"structured\" need to have the attribute `dim` "
             "defined.");
  if (ext_to_int(dim_, &dim) < 0) return NULL;
  if (dim < -ndim || dim >= ndim)
    EXT_FAIL(PyExc_IndexError, "Index is out of bounds for tensor with dimensions %d", ndim);
  if (dim < 0) dim += ndim;
  for (int d = 0; d < ndim; d++)
    if (d != dim) others[count++] = d;
  PX_SCOPED(px_tensor) sums = NULL;
  EXT_TRY(px_sum(&sums, mask, others, count, false, PX_DTYPE_NONE));
  EXT_TRY(px_ne_scalar(&part, sums, px_int(0)));
  PyObject *index = PyTuple_New((Py_ssize_t)dim + 1);
  for (Py_ssize_t d = 0; index && d < dim; d++)
    PyTuple_SET_ITEM(index, d, PySlice_New(NULL, NULL, NULL));
  EXT_OWNED *kept = ext_wrap(part);
  if (index) PyTuple_SET_ITEM(index, (Py_ssize_t)dim, ext_moved(&kept));
  return index;
}

// A mask without what a method takes from it.
static PyObject *narrowed(PyObject *method, PyObject *t, PyObject *mask) {
  px_tensor *scores = ext_need_tensor(t, "prune", "t"), *copy = NULL;
  px_tensor *before = scores ? ext_need_tensor(mask, "prune", "default_mask") : NULL;
  if (!before) return NULL;
  EXT_OWNED *index = seen_by(method, scores, before);
  EXT_OWNED *part = index ? PyObject_GetItem(t, index) : NULL;
  EXT_OWNED *its = part ? PyObject_GetItem(mask, index) : NULL;
  EXT_OWNED *made = its ? compute_mask(method, part, its) : NULL;
  if (!made) return NULL;
  EXT_TRY(px_to(&copy, before, px_tensor_dtype(scores), PX_DEVICE_NONE, false, true));
  EXT_OWNED *left = ext_wrap(copy);
  return left && PyObject_SetItem(left, index, made) == 0 ? ext_moved(&left) : NULL;
}

// ---- several methods

EXT_OWNS(container, EXT_OBJECT(prune_object, dict));
static PySequenceMethods container_sequence;
static PyMappingMethods container_mapping;
static int add_method(PyObject *self, PyObject *method);
EXT_INIT(container, "(*args: BasePruningMethod)") {
  ext_varargs args;
  EXT_BIND_OR(-1, args);
  if (ext_setattr_new(self, "_pruning_methods", PyTuple_New(0)) < 0) return -1;
  for (Py_ssize_t i = 0; i < args.count; i++) {
    EXT_OWNED *name = i ? NULL : PyObject_GetAttrString(args.items[0], "_tensor_name");
    if (!i && (!name || PyObject_SetAttrString(self, "_tensor_name", name) < 0)) return -1;
    if (add_method(self, args.items[i]) < 0) return -1;
  }
  return 0;
}
static PyObject *methods_of(PyObject *container) {
  EXT_OWNED *methods = PyObject_GetAttrString(container, "_pruning_methods");
  if (methods && !PyTuple_Check(methods))
    EXT_FAIL(PyExc_TypeError, "_pruning_methods must be a tuple");
  return ext_moved(&methods);
}
static PyObject *container_iter(PyObject *self) {
  EXT_OWNED *methods = methods_of(self);
  return methods ? PyObject_GetIter(methods) : NULL;
}
EXT_TYPE(container, "torch.nn.utils.prune.PruningContainer", "nn.utils.prune.PruningContainer",
         prune_object, EXT_BASETYPE | EXT_GC | EXT_SHORT_NAME,
         "Several methods that prune one tensor, one after another.", EXT_LIFETIME_SLOTS(container),
         .tp_base = &pruning_type, .tp_new = pruning_new, .tp_init = container_init,
         .tp_iter = container_iter, .tp_as_sequence = &container_sequence,
         .tp_as_mapping = &container_mapping, .tp_dictoffset = offsetof(prune_object, dict));

static Py_ssize_t container_length(PyObject *self) {
  EXT_OWNED *methods = methods_of(self);
  return methods ? PyTuple_GET_SIZE(methods) : -1;
}
static PyObject *container_item(PyObject *self, PyObject *index) {
  EXT_OWNED *methods = methods_of(self);
  return methods ? PyObject_GetItem(methods, index) : NULL;
}
static PySequenceMethods container_sequence = {.sq_length = container_length};
static PyMappingMethods container_mapping = {container_length, container_item, NULL};

static int check_added(PyObject *self, PyObject *method) {
  if (!is_method(method))
    EXT_FAIL_INT(PyExc_TypeError, "%S is not a BasePruningMethod subclass",
                 (PyObject *)Py_TYPE(method));
  EXT_OWNED *own = tensor_name(self);
  EXT_OWNED *its = own ? tensor_name(method) : NULL;
  int same = its ? PyObject_RichCompareBool(own, its, Py_EQ) : -1;
  if (same == 0)
    PyErr_Format(PyExc_ValueError,
                 "Can only add pruning methods acting on the parameter named '%U' to "
                 "PruningContainer %S. Found '%U'",
                 own, self, its);
  return same > 0 ? 0 : -1;
}

static int add_method(PyObject *self, PyObject *method) {
  if (method != Py_None && check_added(self, method) < 0) return -1;
  EXT_OWNED *methods = methods_of(self);
  EXT_OWNED *one = PyTuple_Pack(1, method);
  EXT_OWNED *all = methods && one ? PySequence_Concat(methods, one) : NULL;
  return all ? PyObject_SetAttrString(self, "_pruning_methods", all) : -1;
}

EXT_METHOD(container, add_pruning_method, "(method: BasePruningMethod | None) -> None",
           "Adds one at the end.") {
  EXT_ARGS(PyObject *, method);
  return ext_none_unless(add_method(self, method ? method : Py_None) < 0);
}

EXT_METHOD(container, compute_mask, "(t: Tensor, default_mask: Tensor) -> Tensor",
           "What the last method leaves of a mask.") {
  EXT_ARGS(PyObject *, t, default_mask);
  EXT_OWNED *methods = methods_of(self);
  EXT_OWNED *last = methods ? PySequence_GetItem(methods, -1) : NULL;
  return last ? narrowed(last, t, default_mask) : NULL;
}

// ---- a module's tensor

// The mask and the tensor broadcast to the tensor's shape.
static int check_fits(PyObject *mask, PyObject *tensor) {
  PX_SCOPED(px_tensor) wide = NULL;
  px_tensor *t = ext_tensor(tensor);
  return ext_zero(px_mul(&wide, ext_tensor(mask), t));
}

static int put_beside(PyObject *module, PyObject *name, PyObject *tensor) {
  EXT_OWNED *full = joined(name, "_orig");
  EXT_OWNED *done =
      full ? PyObject_CallMethod(module, "register_parameter", "OO", full, tensor) : NULL;
  EXT_OWNED *parameters = done ? PyObject_GetAttrString(module, "_parameters") : NULL;
  return parameters ? PyObject_DelItem(parameters, name) : -1;
}

// The hook that is to be registered: the method, or the container of all.
static PyObject *hook_of(PyObject *module, PyObject *method, PyObject *before) {
  PyObject *key, *old;
  Py_ssize_t at = 0;
  if (!PyDict_Next(before, &at, &key, &old)) return Py_NewRef(method);
  bool container = PyObject_TypeCheck(old, &container_type);
  EXT_OWNED *hook = container
                        ? Py_NewRef(old)
                        : PyObject_CallFunctionObjArgs((PyObject *)&container_type, old, NULL);
  if (!hook || add_method(hook, method) < 0 || remove_hook(module, key) < 0) return NULL;
  return ext_moved(&hook);
}

static PyObject *prune(PyObject *method, PyObject *module, PyObject *name, PyObject *given) {
  EXT_OWNED *tensor = PyObject_GetAttr(module, name);
  EXT_OWNED *before = tensor ? hooks_for(module, name) : NULL;
  EXT_OWNED *what = before ? PyUnicode_FromFormat("parameter %U of %S", name, module) : NULL;
  EXT_OWNED *ones = what ? ones_like(tensor) : NULL;
  EXT_OWNED *scores = ones ? scores_for(tensor, given, what) : NULL;
  if (!scores || PyObject_SetAttrString(method, "_tensor_name", name) < 0) return NULL;
  if (PyDict_GET_SIZE(before) > 1)
    EXT_FAIL(PyExc_AssertionError,
             "Avoid adding multiple pruning hooks to the same tensor %U of module %S. Use a "
             "PruningContainer.",
             name, module);
  bool first = PyDict_GET_SIZE(before) == 0;
  EXT_OWNED *old = first ? NULL : part_of(module, name, "_mask");
  if (!first && !old) return NULL;
  EXT_OWNED *mask = first ? compute_mask(method, scores, ones) : narrowed(method, scores, old);
  if (!mask || check_fits(mask, tensor) < 0) return NULL;
  EXT_OWNED *hook = hook_of(module, method, before);
  EXT_OWNED *full = joined(name, "_mask");
  if (!hook || !full || (first && put_beside(module, name, tensor) < 0)) return NULL;
  EXT_OWNED *put = PyObject_CallMethod(module, "register_buffer", "OO", full, mask);
  if (!put || recompute(hook, module) < 0) return NULL;
  EXT_OWNED *handle = PyObject_CallMethod(module, "register_forward_pre_hook", "O", hook);
  return handle ? ext_moved(&hook) : NULL;
}

// A method of a class, with the arguments of a call but the first, of which it takes one out.
static PyObject *make_method(PyObject *cls, const ext_call *call, Py_ssize_t skip,
                             PyObject **scores) {
  EXT_OWNED *kwargs = ext_kwargs_of(call->args, call->nargs, call->kwnames);
  EXT_OWNED *args = ext_tuple_of((ext_varargs){call->args + skip, call->nargs - skip});
  if (!kwargs || !args) return NULL;
  *scores = Py_XNewRef(PyDict_GetItemString(kwargs, "importance_scores"));
  if (*scores && PyDict_DelItemString(kwargs, "importance_scores") < 0) return NULL;
  return PyObject_Call(cls, args, kwargs);
}

EXT_CLASS_METHOD(pruning, apply,
                 "(module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, "
                 "**kwargs: Any) -> BasePruningMethod",
                 "Prunes a tensor of a module by a method of this class, made with the arguments; "
                 "if it was pruned before,\nby the container of all its methods.") {
  EXT_OWNED *scores = NULL;
  PyObject *module, *name;
  if (!EXT_UNPACK_ARGS(call->args, call->nargs < 2 ? call->nargs : 2, &module, &name) ||
      !PyUnicode_Check(name))
    EXT_FAIL(PyExc_TypeError, "apply() takes a module and the name of a tensor first");
  EXT_OWNED *method = make_method(self, call, 2, &scores);
  if (method && !is_method(method))
    EXT_FAIL(PyExc_TypeError, "%S is not a BasePruningMethod", method);
  return method ? prune(method, module, name, scores) : NULL;
}

EXT_METHOD(pruning, prune,
           "(t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = "
           "None) -> Tensor",
           "A tensor, pruned, without a module.") {
  EXT_ARGS(PyObject *, t, default_mask, importance_scores);
  EXT_OWNED *what = PyUnicode_FromString("tensor t");
  EXT_OWNED *scores = what ? scores_for(t, importance_scores, what) : NULL;
  EXT_OWNED *ones = !scores                     ? NULL
                    : ext_is_none(default_mask) ? ones_like(t)
                                                : Py_NewRef(default_mask);
  EXT_OWNED *mask = ones ? compute_mask(self, scores, ones) : NULL;
  return mask ? PyNumber_Multiply(t, mask) : NULL;
}

EXT_METHOD(pruning, remove, "(module: Module) -> None",
           "Makes the tensor a parameter again, with zeros for what was pruned.") {
  static const char *const suffixes[] = {"", "_orig", "_mask"};
  EXT_ARGS(PyObject *, module);
  EXT_OWNED *name = tensor_name(self);
  EXT_OWNED *weight = name ? PyObject_CallMethod(self, "apply_mask", "O", module) : NULL;
  EXT_OWNED *data = weight ? PyObject_GetAttrString(weight, "data") : NULL;
  EXT_OWNED *original = data ? part_of(module, name, "_orig") : NULL;
  if (!original) return NULL;
  for (int i = 0; i < 3; i++) {
    EXT_OWNED *full = joined(name, suffixes[i]);
    if (!full || PyObject_DelAttr(module, full) < 0) return NULL;
  }
  if (PyObject_SetAttrString(original, "data", data) < 0) return NULL;
  return ext_none_unless(PyObject_SetAttr(module, name, original) < 0);
}

// ---- the methods of the library

// amount: a whole number, or a share.
static int read_amount(PyObject *amount, px_prune *how) {
  if (!amount || !ext_is_number(amount))
    EXT_FAIL_INT(PyExc_TypeError, "Invalid type for amount: %S. Must be int or float.",
                 amount ? amount : Py_None);
  how->share = !PyIndex_Check(amount);
  if (ext_to_double(amount, &how->amount) < 0) return -1;
  if (how->amount >= 0 && (!how->share || how->amount <= 1)) return 0;
  EXT_FAIL_INT(PyExc_ValueError,
               "amount=%S should either be a float in the range [0, 1] or a non-negative integer",
               amount);
}

static PyObject *mask_of(PyObject *self, PyObject *t, PyObject *default_mask, px_prune how) {
  px_tensor *scores = ext_need_tensor(t, "compute_mask", "t"), *made = NULL;
  px_tensor *mask = scores ? ext_need_tensor(default_mask, "compute_mask", "default_mask") : NULL;
  EXT_OWNED *amount = mask ? PyObject_GetAttrString(self, "amount") : NULL;
  if (!amount || read_amount(amount, &how) < 0) return NULL;
  if (how.channels) {
    EXT_OWNED *dim = PyObject_GetAttrString(self, "dim");
    int64_t number;
    if (!dim || ext_to_int(dim, &number) < 0) return NULL;
    how.dim = ext_clamp_device_index(number) < 0 && number >= 0 ? INT16_MAX : (int)number;
  }
  if (how.channels && !how.random) {
    EXT_OWNED *n = PyObject_GetAttrString(self, "n");
    if (!n) return NULL;
    bool word = PyUnicode_Check(n);
    if (word && PyUnicode_CompareWithASCIIString(n, "fro"))
      EXT_FAIL(PyExc_NotImplementedError, "the norm %R is not implemented in Phlox", n);
    if (!word && ext_to_double(n, &how.p) < 0) return NULL;
  }
  return ext_result(EXT_NOGIL(px_prune_mask(&made, scores, mask, &how)), &made);
}

static int keep_amount(PyObject *self, PyObject *amount) {
  px_prune how;
  return read_amount(amount, &how) < 0 ? -1 : ext_setattr_new(self, "amount", Py_NewRef(amount));
}
static int keep_dim(PyObject *self, int64_t dim) {
  return ext_setattr_new(self, "dim", PyLong_FromLongLong(dim));
}

#define METHOD(word, Name, text) \
  EXT_OWNS(word, EXT_OBJECT(prune_object, dict)); \
  EXT_TYPE(word, "torch.nn.utils.prune." #Name, "nn.utils.prune." #Name, prune_object, \
           EXT_BASETYPE | EXT_GC | EXT_SHORT_NAME, text, EXT_LIFETIME_SLOTS(word), \
           .tp_base = &pruning_type, .tp_new = pruning_new, .tp_init = word##_init, \
           .tp_dictoffset = offsetof(prune_object, dict)); \
  EXT_METHOD(word, compute_mask, "(t: Tensor, default_mask: Tensor) -> Tensor", \
             "The mask, without what this method takes from it.")
#define MASK(...) \
  EXT_ARGS(PyObject *, t, default_mask); \
  return mask_of(self, t, default_mask, (px_prune){__VA_ARGS__})

EXT_INIT(keep_all, "()") { return 0; }
METHOD(keep_all, Identity, "Prunes nothing: for a tensor that is to have a mask.") {
  EXT_ARGS(PyObject *, t, default_mask);
  return Py_NewRef(default_mask ? default_mask : Py_None);
}

EXT_INIT(random_unstructured, "(amount: Any)") {
  PyObject *amount;
  EXT_BIND_OR(-1, amount);
  return keep_amount(self, amount);
}
METHOD(random_unstructured, RandomUnstructured, "Prunes elements at random.") {
  MASK(.random = true);
}

EXT_INIT(l1_unstructured, "(amount: Any)") {
  PyObject *amount;
  EXT_BIND_OR(-1, amount);
  return keep_amount(self, amount);
}
METHOD(l1_unstructured, L1Unstructured, "Prunes the elements that are nearest to 0.") {
  MASK(.channels = false);
}

EXT_INIT(random_structured, "(amount: Any, dim: int = -1)") {
  PyObject *amount;
  int64_t dim;
  EXT_BIND_OR(-1, amount, dim);
  return keep_amount(self, amount) < 0 ? -1 : keep_dim(self, dim);
}
METHOD(random_structured, RandomStructured, "Prunes channels along dim at random.") {
  MASK(.channels = true, .random = true);
}

EXT_INIT(ln_structured, "(amount: Any, n: Any, dim: int = -1)") {
  PyObject *amount, *n;
  int64_t dim;
  EXT_BIND_OR(-1, amount, n, dim);
  if (keep_amount(self, amount) < 0 || keep_dim(self, dim) < 0) return -1;
  return ext_setattr_new(self, "n", Py_NewRef(n ? n : Py_None));
}
METHOD(ln_structured, LnStructured, "Prunes the channels along dim whose n-norm is least.") {
  MASK(.channels = true, .p = 2);
}

EXT_INIT(custom_from_mask, "(mask: Tensor)") {
  PyObject *mask;
  EXT_BIND_OR(-1, mask);
  return ext_setattr_new(self, "mask", Py_NewRef(mask ? mask : Py_None));
}
METHOD(custom_from_mask, CustomFromMask, "Prunes what a mask has 0 for.") {
  EXT_ARGS(PyObject *, t, default_mask);
  EXT_OWNED *mask = PyObject_GetAttrString(self, "mask");
  EXT_OWNED *shape = mask ? PyObject_GetAttrString(mask, "shape") : NULL;
  EXT_OWNED *wanted = shape ? PyObject_GetAttrString(default_mask, "shape") : NULL;
  int same = wanted ? PyObject_RichCompareBool(shape, wanted, Py_EQ) : -1;
  if (same < 0) return NULL;
  if (!same)
    EXT_FAIL(PyExc_AssertionError, "default_mask shape %S must match self.mask shape %S", wanted,
             shape);
  EXT_OWNED *dtype = PyObject_GetAttrString(default_mask, "dtype");
  EXT_OWNED *cast = dtype ? PyObject_CallMethod(mask, "to", "O", dtype) : NULL;
  return cast ? PyNumber_Multiply(default_mask, cast) : NULL;
}

static const struct {
  PyTypeObject *type;
  const char *kind;  // NULL: of what it holds
} kinds[] = {{&keep_all_type, "unstructured"},
             {&random_unstructured_type, "unstructured"},
             {&l1_unstructured_type, "unstructured"},
             {&random_structured_type, "structured"},
             {&ln_structured_type, "structured"},
             {&custom_from_mask_type, "global"},
             {&container_type, NULL}};
static int ext_init_prune(PyObject *torch) {
  for (int i = 0; i < EXT_LENGTH(kinds); i++) {
    EXT_OWNED *kind = kinds[i].kind ? PyUnicode_FromString(kinds[i].kind) : NULL;
    if (!kinds[i].kind) continue;
    if (!kind || PyDict_SetItemString(kinds[i].type->tp_dict, "PRUNING_TYPE", kind) < 0) return -1;
  }
  return 0;
}
EXT_START(EXT_VALUES, ext_init_prune);

// ---- copies and pickles: types of the library go by name, as layers do

EXT_GETTER(pruning, __dict__, "dict[str, Any]", NULL) {
  return PyObject_GenericGetDict(self, NULL);
}

EXT_FUNCTION(torch, _rebuild_pruning, "(name: str) -> Any",
             "An empty method of the library, for pickles.") {
  EXT_ARGS(const char *, name);
  for (int i = 0; name && i < EXT_LENGTH(kinds); i++)
    if (!strcmp(strrchr(kinds[i].type->tp_name, '.') + 1, name)) return ext_new(kinds[i].type);
  EXT_FAIL(PyExc_ValueError, "there is no pruning method %s", name ? name : "None");
}

EXT_METHOD0(pruning, __reduce__, "tuple", "The parts that a pickle or a copy of it is made of.") {
  const char *dot = strrchr(Py_TYPE(self)->tp_name, '.');
  bool ours = !(Py_TYPE(self)->tp_flags & Py_TPFLAGS_HEAPTYPE) && dot;
  EXT_OWNED *maker =
      ours ? ext_extension_attr("_rebuild_pruning") : ext_import("copyreg", "__newobj__");
  EXT_OWNED *argument = ours ? PyUnicode_FromString(dot + 1) : Py_NewRef((PyObject *)Py_TYPE(self));
  EXT_OWNED *state = PyObject_GenericGetDict(self, NULL);
  return maker && argument && state ? Py_BuildValue("O(O)O", maker, argument, state) : NULL;
}

// ---- functions

// Prunes by a method made of the last `count` values, and gives the module.
static PyObject *by(PyTypeObject *type, PyObject *module, PyObject *name, PyObject *scores,
                    PyObject *args_take) {
  EXT_OWNED *args = args_take;
  if (!PyUnicode_Check(name)) EXT_FAIL(PyExc_TypeError, "the name of a tensor must be str");
  EXT_OWNED *method = args ? PyObject_Call((PyObject *)type, args, NULL) : NULL;
  EXT_OWNED *hook = method ? prune(method, module, name, scores) : NULL;
  return hook ? Py_NewRef(module) : NULL;
}

EXT_FUNCTION(nn_prune, identity, "(module: Module, name: str) -> Module",
             "Gives a tensor a mask that leaves all.") {
  EXT_ARGS(PyObject *, module, name);
  return by(&keep_all_type, module, name, NULL, PyTuple_New(0));
}
EXT_FUNCTION(nn_prune, random_unstructured, "(module: Module, name: str, amount: Any) -> Module",
             "Prunes so many elements of a tensor, or that share of them, at random.") {
  EXT_ARGS(PyObject *, module, name, amount);
  return by(&random_unstructured_type, module, name, NULL, PyTuple_Pack(1, amount));
}
EXT_FUNCTION(nn_prune, l1_unstructured,
             "(module: Module, name: str, amount: Any, importance_scores: Tensor | None = None) -> "
             "Module",
             "Prunes so many elements of a tensor, or that share of them, that are nearest to 0, "
             "or whose scores are.") {
  EXT_ARGS(PyObject *, module, name, amount, importance_scores);
  return by(&l1_unstructured_type, module, name, importance_scores, PyTuple_Pack(1, amount));
}
EXT_FUNCTION(nn_prune, random_structured,
             "(module: Module, name: str, amount: Any, dim: int) -> Module",
             "Prunes so many channels of a tensor along dim, or that share of them, at random.") {
  EXT_ARGS(PyObject *, module, name, amount, dim);
  return by(&random_structured_type, module, name, NULL, PyTuple_Pack(2, amount, dim));
}
EXT_FUNCTION(nn_prune, ln_structured,
             "(module: Module, name: str, amount: Any, n: Any, dim: int, importance_scores: Tensor "
             "| None = None) -> Module",
             "Prunes so many channels of a tensor along dim, or that share of them, whose "
             "n-norms, or their scores', are\nleast.") {
  EXT_ARGS(PyObject *, module, name, amount, n, dim, importance_scores);
  return by(&ln_structured_type, module, name, importance_scores, PyTuple_Pack(3, amount, n, dim));
}
EXT_FUNCTION(nn_prune, custom_from_mask, "(module: Module, name: str, mask: Tensor) -> Module",
             "Prunes what a mask has 0 for.") {
  EXT_ARGS(PyObject *, module, name, mask);
  return by(&custom_from_mask_type, module, name, NULL, PyTuple_Pack(1, mask));
}

// ---- several tensors as one

// Of each pair of a module and a name: the scores, the mask, or ones for it, and the tensor.
static int add_pair(PyObject *pair, PyObject *given, PyObject *scores, PyObject *masks,
                    PyObject *tensors) {
  PyObject *module, *name;
  if (!PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "OU", &module, &name))
    EXT_FAIL_INT(PyExc_TypeError, "parameters must be pairs of a module and a name");
  EXT_OWNED *tensor = PyObject_GetAttr(module, name);
  if (!tensor || !ext_need_tensor(tensor, "global_unstructured", "parameters")) return -1;
  PyObject *score = given ? PyDict_GetItemWithError(given, pair) : NULL;
  if (!score && PyErr_Occurred()) return -1;
  EXT_OWNED *mask = part_of(module, name, "_mask");
  if (!mask && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    mask = ones_like(tensor);
  }
  if (!mask || PyList_Append(masks, mask) < 0 || PyList_Append(tensors, tensor) < 0) return -1;
  return PyList_Append(scores, score ? score : tensor);
}

// Prunes each pair by its part of a mask.
static int apply_parts(PyObject *pairs, PyObject *tensors, px_tensor *mask) {
  int64_t at = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(pairs); i++) {
    PX_SCOPED(px_tensor) row = NULL;
    px_tensor *t = ext_tensor(PyList_GET_ITEM(tensors, i)), *part = NULL;
    PyObject *pair = PyList_GET_ITEM(pairs, i);
    EXT_TRY_INT(px_narrow(&row, mask, 0, at, px_tensor_numel(t)));
    EXT_TRY_INT(px_view(&part, row, px_tensor_sizes(t), px_tensor_ndim(t)));
    EXT_OWNED *own = ext_wrap(part);
    EXT_OWNED *args = own ? PyTuple_Pack(1, own) : NULL;
    EXT_OWNED *done = args ? by(&custom_from_mask_type, PyTuple_GET_ITEM(pair, 0),
                                PyTuple_GET_ITEM(pair, 1), NULL, ext_moved(&args))
                           : NULL;
    if (!done) return -1;
    at += px_tensor_numel(t);
  }
  return 0;
}

static int prune_all(PyObject *pairs, PyObject *method, PyObject *given) {
  EXT_OWNED *scores = PyList_New(0);
  EXT_OWNED *masks = PyList_New(0);
  EXT_OWNED *tensors = PyList_New(0);
  if (!scores || !masks || !tensors) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(pairs); i++)
    if (add_pair(PyList_GET_ITEM(pairs, i), given, scores, masks, tensors) < 0) return -1;
  EXT_OWNED *all = ext_vector_of(scores);
  EXT_OWNED *before = all ? ext_vector_of(masks) : NULL;
  EXT_OWNED *mask = before ? narrowed(method, all, before) : NULL;
  return mask ? apply_parts(pairs, tensors, ext_tensor(mask)) : -1;
}

// A value by place or, taken out of the dict, by name. New reference; NULL without an exception.
static PyObject *taken(const ext_call *call, Py_ssize_t place, PyObject *kwargs, const char *name) {
  PyObject *value = place < call->nargs ? call->args[place] : PyDict_GetItemString(kwargs, name);
  Py_XINCREF(value);
  if (value && place >= call->nargs && PyDict_DelItemString(kwargs, name) < 0) Py_CLEAR(value);
  return value;
}

EXT_FUNCTION(nn_prune, global_unstructured,
             "(parameters: Iterable[tuple[Module, str]], pruning_method: type, importance_scores: "
             "dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any) -> None",
             "Prunes several tensors, each a module and a name, as if they were one.\n\n"
             "Args:\n"
             "    importance_scores: scores of such pairs\n"
             "    kwargs: what the method is made with\n") {
  EXT_OWNED *kwargs = ext_kwargs_of(call->args, call->nargs, call->kwnames);
  if (!kwargs) return NULL;
  EXT_OWNED *parameters = taken(call, 0, kwargs, "parameters");
  EXT_OWNED *cls = taken(call, 1, kwargs, "pruning_method");
  EXT_OWNED *given = taken(call, 2, kwargs, "importance_scores");
  if (!parameters || !cls)
    EXT_FAIL(PyExc_TypeError, "global_unstructured() takes parameters and a pruning_method");
  EXT_OWNED *pairs = PySequence_List(parameters);
  if (!pairs) EXT_FAIL(PyExc_TypeError, "global_unstructured(): parameters is not an Iterable");
  if (!ext_is_none(given) && !PyDict_Check(given))
    EXT_FAIL(PyExc_TypeError, "global_unstructured(): importance_scores must be of type dict");
  EXT_OWNED *none = PyTuple_New(0);
  EXT_OWNED *method = none ? PyObject_Call(cls, none, kwargs) : NULL;
  EXT_OWNED *kind = method ? PyObject_GetAttrString(method, "PRUNING_TYPE") : NULL;
  if (!kind) return NULL;
  if (!PyUnicode_Check(kind) || PyUnicode_CompareWithASCIIString(kind, "unstructured"))
    EXT_FAIL(PyExc_TypeError,
             "Only \"unstructured\" PRUNING_TYPE supported for the `pruning_method`. Found method "
             "%S of type %S",
             cls, kind);
  return ext_none_unless(prune_all(pairs, method, ext_is_none(given) ? NULL : given) < 0);
}

EXT_FUNCTION(nn_prune, remove, "(module: Module, name: str) -> Module",
             "Ends the pruning of a tensor: it is a parameter again, with zeros.") {
  EXT_ARGS(PyObject *, module, name);
  PyObject *key, *hook;
  Py_ssize_t at = 0;
  EXT_OWNED *hooks = hooks_for(module, name);
  if (!hooks) return NULL;
  if (!PyDict_Next(hooks, &at, &key, &hook))
    EXT_FAIL(PyExc_ValueError,
             "Parameter '%S' of module %S has to be pruned before pruning can be removed", name,
             module);
  EXT_OWNED *done = PyObject_CallMethod(hook, "remove", "O", module);
  return done && remove_hook(module, key) == 0 ? Py_NewRef(module) : NULL;
}

EXT_FUNCTION(nn_prune, is_pruned, "(module: Module) -> bool",
             "Whether a tensor of a module, or of one within it, is pruned.") {
  EXT_ARGS(PyObject *, module);
  EXT_OWNED *modules = PyObject_CallMethod(module, "modules", NULL);
  EXT_OWNED *list = modules ? PySequence_List(modules) : NULL;
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    EXT_OWNED *hooks = PyObject_GetAttrString(PyList_GET_ITEM(list, i), "_forward_pre_hooks");
    EXT_OWNED *values = hooks ? PyMapping_Values(hooks) : NULL;
    if (!values) return NULL;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(values); k++)
      if (is_method(PyList_GET_ITEM(values, k))) Py_RETURN_TRUE;
  }
  if (!list) return NULL;
  Py_RETURN_FALSE;
}
