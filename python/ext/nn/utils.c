// SPDX-License-Identifier: Apache-2.0
// torch.nn.utils: parameters as one vector, fusion of normalizations, and modules without
// initialization.
#include "phlox/ops/index.h"
#include "phlox/ops/view.h"

#include "nn/nn.h"

// ---- parameters as a vector

// Appends a tensor to a Python list.
static int add(PyObject *list, px_tensor *tensor_take) {
  EXT_OWNED *object = ext_wrap(tensor_take);
  return object ? PyList_Append(list, object) : -1;
}

EXT_FUNCTION(nn_utils, parameters_to_vector, "(parameters: Iterable[Tensor]) -> Tensor",
             "Flattens an iterable of parameters into a single vector.\n\n"
             ">>> torch.nn.utils.parameters_to_vector([torch.ones(1, 2), torch.zeros(1)])\n"
             "tensor([1., 1., 0.])\n") {
  EXT_ARGS(PyObject *, parameters);
  EXT_TENSORS given = {NULL};
  EXT_TENSORS flat = {NULL};
  px_tensor *vector = NULL;
  PyObject *items = ext_items(parameters, "parameters must be a sequence");
  if (ext_take_tensors(&given, items, "parameters_to_vector", "parameters") < 0) return NULL;
  PyObject *rows = PyList_New(0);
  for (Py_ssize_t i = 0; rows && i < given.count; i++) {
    px_tensor *row = NULL;
    if (px_view(&row, given.items[i], (int64_t[]){-1}, 1) != PX_OK) ext_raise();
    if (!row || add(rows, row) < 0) Py_CLEAR(rows);
  }
  if (ext_take_tensors(&flat, rows, "parameters_to_vector", "parameters") < 0) return NULL;
  return ext_result(EXT_NOGIL(px_cat(&vector, flat.items, flat.count, 0)), &vector);
}

// Returns a view of a vector at offset `at`, in the shape of a parameter.
static px_status slice_like(px_tensor **out, const px_tensor *vector, int64_t at,
                            const px_tensor *like) {
  PX_SCOPED(px_tensor) part = NULL;
  PX_TRY(px_narrow(&part, vector, 0, at, px_tensor_numel(like)));
  return px_view(out, part, px_tensor_sizes(like), px_tensor_ndim(like));
}

EXT_FUNCTION(nn_utils, vector_to_parameters, "(vec: Tensor, parameters: Iterable[Tensor]) -> None",
             "Copies slices of a vector into an iterable of parameters, as views of it.") {
  EXT_ARGS(PyObject *, vec, parameters);
  EXT_TENSORS given = {NULL};
  EXT_TENSORS parts = {NULL};
  if (!ext_is_tensor(vec))
    EXT_FAIL(PyExc_TypeError, "expected torch.Tensor, but got: %s", ext_type_name(vec));
  PyObject *items = ext_items(parameters, "parameters must be a sequence");
  if (ext_take_tensors(&given, items, "vector_to_parameters", "parameters") < 0) return NULL;
  PyObject *list = PyList_New(0);  // all slices, before any parameter changes
  int64_t at = 0;
  for (Py_ssize_t i = 0; list && i < given.count; at += px_tensor_numel(given.items[i++])) {
    px_tensor *part = NULL;
    if (slice_like(&part, ext_tensor(vec), at, given.items[i]) != PX_OK) ext_raise();
    if (!part || add(list, part) < 0) Py_CLEAR(list);
  }
  if (ext_take_tensors(&parts, list, "vector_to_parameters", "vec") < 0) return NULL;
  for (Py_ssize_t i = 0; i < given.count; i++)
    EXT_WAIT(px_tensor_set_data(given.items[i], parts.items[i]));
  Py_RETURN_NONE;
}

// ---- fusion of a normalization with the preceding layer

static PyObject *as_parameter(px_tensor *tensor_take, bool learned) {
  if (tensor_take && px_tensor_set_requires_grad(tensor_take, learned) != PX_OK) {
    px_release(tensor_take);
    return ext_raise();
  }
  return ext_wrap_as(ext_ParameterType, tensor_take);
}

static PyObject *fuse(const px_tensor *weight, const px_tensor *bias, const px_channel_norm *norm,
                      bool transposed) {
  px_tensor *fused = NULL, *shifts = NULL;
  EXT_WAIT(px_fuse_norm(&fused, &shifts, weight, bias, norm, transposed));
  EXT_OWNED *first = as_parameter(fused, px_tensor_requires_grad(weight));
  EXT_OWNED *second = as_parameter(shifts, bias && px_tensor_requires_grad(bias));
  return first && second ? PyTuple_Pack(2, first, second) : NULL;
}

EXT_FUNCTION(nn_utils, fuse_conv_bn_weights,
             "(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, "
             "bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False) -> "
             "tuple[Parameter, Parameter]",
             "Fuses convolutional module parameters and BatchNorm parameters into new convolution "
             "parameters.") {
  px_tensor *conv_w, *conv_b, *bn_rm, *bn_rv, *bn_w, *bn_b;
  double bn_eps;
  bool transpose;
  EXT_BIND(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose);
  return fuse(conv_w, conv_b, &(px_channel_norm){bn_rm, bn_rv, bn_w, bn_b, bn_eps}, transpose);
}

EXT_FUNCTION(
    nn_utils, fuse_linear_bn_weights,
    "(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: "
    "float, bn_w: Tensor | None, bn_b: Tensor | None) -> tuple[Parameter, Parameter]",
    "Fuses linear module parameters and BatchNorm parameters into new linear parameters.") {
  px_tensor *linear_w, *linear_b, *bn_rm, *bn_rv, *bn_w, *bn_b;
  double bn_eps;
  EXT_BIND(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b);
  return fuse(linear_w, linear_b, &(px_channel_norm){bn_rm, bn_rv, bn_w, bn_b, bn_eps}, false);
}

// Reads a tensor attribute of a module, borrowed; *out is unchanged for None.
static int tensor_of(px_tensor **out, PyObject *module, const char *name) {
  EXT_OWNED *value = PyObject_GetAttrString(module, name);
  if (!value) return -1;
  if (value == Py_None) return 0;
  *out = ext_need_tensor(value, "fuse", name);
  return *out ? 0 : -1;
}

static int norm_of(px_channel_norm *norm, PyObject *bn) {
  px_tensor *found[4] = {NULL};
  static const char *const names[] = {"running_mean", "running_var", "weight", "bias"};
  for (int i = 0; i < 4; i++)
    if (tensor_of(&found[i], bn, names[i]) < 0) return -1;
  if (!found[0] || !found[1])
    EXT_FAIL_INT(PyExc_AssertionError, "bn.running_mean and bn.running_var must not be None");
  EXT_OWNED *eps = PyObject_GetAttrString(bn, "eps");
  *norm = (px_channel_norm){found[0], found[1], found[2], found[3], 0};
  return eps ? ext_to_double(eps, &norm->eps) : -1;
}

static int is_training(PyObject *module) {
  EXT_OWNED *training = PyObject_GetAttrString(module, "training");
  return training ? PyObject_IsTrue(training) : -1;
}

// Returns a copy of a layer with the following normalization fused into its weights.
static PyObject *fused_copy(PyObject *layer, PyObject *bn, bool transposed) {
  px_channel_norm norm;
  px_tensor *weight = NULL, *bias = NULL;
  int layer_training = is_training(layer), bn_training = layer_training < 0 ? -1 : is_training(bn);
  if (bn_training < 0) return NULL;
  if (layer_training || bn_training) EXT_FAIL(PyExc_AssertionError, "Fusion only for eval!");
  if (norm_of(&norm, bn) < 0 || tensor_of(&weight, layer, "weight") < 0) return NULL;
  if (tensor_of(&bias, layer, "bias") < 0) return NULL;
  if (!weight) EXT_FAIL(PyExc_TypeError, "the layer to fuse must have a weight");
  EXT_OWNED *made = fuse(weight, bias, &norm, transposed);
  EXT_OWNED *copy = made ? ext_call_from("copy", "deepcopy", "(O)", layer) : NULL;
  if (!copy || PyObject_SetAttrString(copy, "weight", PyTuple_GET_ITEM(made, 0)) < 0) return NULL;
  if (PyObject_SetAttrString(copy, "bias", PyTuple_GET_ITEM(made, 1)) < 0) return NULL;
  return ext_moved(&copy);
}

EXT_FUNCTION(nn_utils, fuse_conv_bn_eval, "(conv: Any, bn: Any, transpose: bool = False) -> Any",
             "Fuses a convolution and a BatchNorm into a new convolution, both in evaluation mode. "
             "`transpose`\nselects transposed convolution.") {
  PyObject *conv, *bn;
  bool transpose;
  EXT_BIND(conv, bn, transpose);
  return fused_copy(conv, bn, transpose);
}

static int int_attribute(int64_t *out, PyObject *module, const char *name) {
  EXT_OWNED *value = PyObject_GetAttrString(module, name);
  return value ? ext_to_int(value, out) : -1;
}

EXT_FUNCTION(nn_utils, fuse_linear_bn_eval, "(linear: Any, bn: Any) -> Any",
             "Fuses a linear layer and a BatchNorm into a new linear layer, both in evaluation "
             "mode.") {
  EXT_ARGS(PyObject *, linear, bn);
  int64_t out, features;
  if (int_attribute(&out, linear, "out_features") < 0 ||
      int_attribute(&features, bn, "num_features") < 0)
    return NULL;
  if (features != out && features != 1)
    EXT_FAIL(PyExc_AssertionError,
             "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
             "linear.out_features=%lld and bn.num_features=%lld",
             (long long)out, (long long)features);
  return fused_copy(linear, bn, false);
}

// ---- modules without initialization

// True if the constructor of a class has a device parameter.
static int has_device_parameter(PyObject *cls) {
  EXT_OWNED *signature = ext_call_from("inspect", "signature", "(O)", cls);
  EXT_OWNED *known = signature ? PyObject_GetAttrString(signature, "parameters") : NULL;
  EXT_OWNED *device = PyUnicode_FromString("device");
  return known && device ? PySequence_Contains(known, device) : -1;
}

EXT_FUNCTION(nn_utils, skip_init, "(module_cls: type, *args: Any, **kwargs: Any) -> Any",
             "Instantiates a module without initializing parameters and buffers.\n\n"
             ">>> torch.nn.utils.skip_init(torch.nn.Linear, 5, 1, dtype=torch.float64).weight"
             ".dtype\ntorch.float64\n") {
  PyObject *cls = call->nargs ? *call->args : NULL;
  if (!cls || !PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, &ext_ModuleType))
    EXT_FAIL(PyExc_RuntimeError, "Expected a Module; got %S", cls ? cls : Py_None);
  int takes = has_device_parameter(cls);
  if (takes < 0) return NULL;
  if (!takes)
    EXT_FAIL(PyExc_RuntimeError, "Module must support a 'device' arg to skip initialization");
  EXT_OWNED *kwargs = ext_kwargs_of(call->args, call->nargs, call->kwnames);
  EXT_OWNED *args = ext_tuple_of((ext_varargs){call->args + 1, call->nargs - 1});
  EXT_OWNED *to_kwargs = kwargs ? PyDict_New() : NULL;
  if (!args || !to_kwargs) return NULL;
  PyObject *device = PyDict_GetItemString(kwargs, "device");
  EXT_OWNED *meta = PyUnicode_FromString("meta");
  EXT_OWNED *cpu = PyUnicode_FromString("cpu");
  if (!meta || !cpu || PyDict_SetItemString(to_kwargs, "device", device ? device : cpu) < 0)
    return NULL;
  if (PyDict_SetItemString(kwargs, "device", meta) < 0) return NULL;
  EXT_OWNED *made = PyObject_Call(cls, args, kwargs);
  EXT_OWNED *fill = made ? PyObject_GetAttrString(made, "to_empty") : NULL;
  EXT_OWNED *none = PyTuple_New(0);
  return fill && none ? PyObject_Call(fill, none, to_kwargs) : NULL;
}

// ---- pruning

EXT_FUNCTION(
    torch, _prune_mask,
    "(scores: Tensor, mask: Tensor, amount: Number, random: bool = False, dim: int | None "
    "= None, p: float = 2) -> Tensor",
    "Returns a pruning mask: `mask` with `amount` more elements zeroed, or channels along dim. A "
    "float amount is a fraction.") {
  px_tensor *scores, *mask, *made = NULL;
  px_scalar amount;
  bool random;
  int64_t dim;
  double p;
  EXT_BIND(scores, mask, amount, random, dim, p);
  px_prune how = {.amount = px_scalar_float(amount), .share = amount.kind == 'f', .p = p};
  how.random = random, how.channels = dim != EXT_NO_INT;
  // Saturates dims beyond int to an out-of-range dim.
  if (how.channels) how.dim = ext_clamp_device_index(dim) < 0 && dim >= 0 ? INT16_MAX : (int)dim;
  return ext_result(EXT_NOGIL(px_prune_mask(&made, scores, mask, &how)), &made);
}
