// SPDX-License-Identifier: Apache-2.0
// torch.nn.utils: clipping of gradients.
#include "phlox/optim.h"

#include "declare/declare.h"

EXT_MODULE(nn_utils, "nn.utils",
           "Utilities for gradients, parameters and modules: clipping, norms of weights.");

static int read_tensors(ext_tensors *out, PyObject *object, const char *function,
                        const char *argument) {
  PyObject *items = ext_is_tensor(object) ? PyTuple_Pack(1, object)
                                          : ext_items(object, "parameters must be a sequence");
  return ext_take_tensors(out, items, function, argument);
}

// Converts like float(): norms may be 'inf', limits may be tensors.
static int number(PyObject *object, double *out) {
  EXT_OWNED *value = PyUnicode_Check(object) ? PyFloat_FromString(object) : PyNumber_Float(object);
  return value ? (*out = PyFloat_AS_DOUBLE(value), 0) : -1;
}

static int warn_if_empty(PyObject *parameters, const ext_tensors *g) {
  if (g->count || !PyGen_Check(parameters)) return 0;
  return PyErr_WarnEx(PyExc_UserWarning,
                      "`parameters` is an empty generator, no gradient clipping will occur.", 1);
}

#define NORMS \
  "(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, " \
  "error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor"
static PyObject *clip_norm(PyObject *parameters, PyObject *max_norm_, PyObject *norm_type_,
                           bool error_if_nonfinite) {
  EXT_TENSORS g = {NULL};
  double max_norm, norm_type = 2;
  px_tensor *total = NULL;
  if (read_tensors(&g, parameters, "clip_grad_norm_", "parameters") < 0) return NULL;
  if (warn_if_empty(parameters, &g) < 0 || number(max_norm_, &max_norm) < 0) return NULL;
  if (norm_type_ && number(norm_type_, &norm_type) < 0) return NULL;
  if (ext_sharded_norm(&total, &g, true, norm_type, error_if_nonfinite) < 0) return NULL;
  EXT_OWNED *norm = total ? ext_wrap(total) : NULL;
  if (norm) {
    EXT_WAIT(px_clip_grads_with_norm(g.items, g.count, max_norm, total));
    return ext_moved(&norm);
  }
  EXT_WAIT(px_clip_grad_norm(&total, g.items, g.count, max_norm, norm_type, error_if_nonfinite));
  return ext_wrap(total);
}

EXT_FUNCTION(nn_utils, clip_grad_norm_, NORMS,
             "Clips the gradient norm of an iterable of parameters: scales the gradients so that "
             "their total norm is at most\nmax_norm. Returns the norm before clipping, a 0-dim "
             "tensor, without waiting for it.\n\n"
             "Args:\n"
             "    norm_type (float): type of the used p-norm; `inf` for the infinity norm\n"
             "    error_if_nonfinite (bool): RuntimeError if the norm is inf or NaN\n"
             "    foreach: no effect\n\n"
             ">>> weight = torch.zeros(2, requires_grad=True)\n"
             ">>> weight.grad = torch.tensor([3.0, 4.0])\n"
             ">>> torch.nn.utils.clip_grad_norm_([weight], 1.0), weight.grad\n"
             "(tensor(5.), tensor([0.6000, 0.8000]))\n") {
  PyObject *parameters, *max_norm, *norm_type;
  bool error_if_nonfinite;
  ext_optional_bool foreach;
  EXT_BIND(parameters, max_norm, norm_type, error_if_nonfinite, foreach);
  return clip_norm(parameters, max_norm, norm_type, error_if_nonfinite);
}

EXT_FUNCTION(nn_utils, clip_grad_norm, NORMS, "Deprecated name of clip_grad_norm_.") {
  PyObject *parameters, *max_norm, *norm_type;
  bool error_if_nonfinite;
  ext_optional_bool foreach;
  EXT_BIND(parameters, max_norm, norm_type, error_if_nonfinite, foreach);
  if (PyErr_WarnEx(PyExc_FutureWarning,
                   "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
                   "`torch.nn.utils.clip_grad_norm_`.",
                   1) < 0)
    return NULL;
  return clip_norm(parameters, max_norm, norm_type, error_if_nonfinite);
}

EXT_FUNCTION(
    nn_utils, get_total_norm,
    "(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: "
    "bool = False, foreach: bool | None = None) -> Tensor",
    "Computes the norm of all elements of `tensors`, a 0-dim tensor on the first one's device.\n\n"
    ">>> torch.nn.utils.get_total_norm([torch.tensor([3.0]), torch.tensor([4.0])])\n"
    "tensor(5.)\n") {
  PyObject *tensors, *norm_type_;
  bool error_if_nonfinite;
  ext_optional_bool foreach;
  EXT_TENSORS g = {NULL};
  double norm_type = 2;
  px_tensor *total = NULL;
  EXT_BIND(tensors, norm_type_, error_if_nonfinite, foreach);
  if (read_tensors(&g, tensors, "get_total_norm", "tensors") < 0) return NULL;
  if (norm_type_ && number(norm_type_, &norm_type) < 0) return NULL;
  if (ext_sharded_norm(&total, &g, false, norm_type, error_if_nonfinite) < 0) return NULL;
  if (total) return ext_wrap(total);
  EXT_WAIT(px_total_norm(&total, g.items, g.count, norm_type, error_if_nonfinite));
  return ext_wrap(total);
}

EXT_FUNCTION(
    nn_utils, clip_grads_with_norm_,
    "(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, "
    "foreach: bool | None = None) -> None",
    "Scales the gradients of `parameters` with a given total norm, as clip_grad_norm_ does.") {
  PyObject *parameters, *max_norm_;
  px_tensor *total_norm;
  ext_optional_bool foreach;
  EXT_TENSORS g = {NULL};
  double max_norm;
  EXT_BIND(parameters, max_norm_, total_norm, foreach);
  if (read_tensors(&g, parameters, "clip_grads_with_norm_", "parameters") < 0) return NULL;
  if (number(max_norm_, &max_norm) < 0) return NULL;
  return ext_none(EXT_NOGIL(px_clip_grads_with_norm(g.items, g.count, max_norm, total_norm)));
}

EXT_FUNCTION(nn_utils, clip_grad_value_,
             "(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = "
             "None) -> None",
             "Clips the gradients of an iterable of parameters to [-clip_value, clip_value].\n\n"
             ">>> weight = torch.zeros(2, requires_grad=True)\n"
             ">>> weight.grad = torch.tensor([3.0, -0.5])\n"
             ">>> torch.nn.utils.clip_grad_value_([weight], 1.0)\n"
             ">>> weight.grad\n"
             "tensor([ 1.0000, -0.5000])\n") {
  PyObject *parameters, *clip_value_;
  ext_optional_bool foreach;
  EXT_TENSORS g = {NULL};
  double clip_value;
  EXT_BIND(parameters, clip_value_, foreach);
  if (read_tensors(&g, parameters, "clip_grad_value_", "parameters") < 0) return NULL;
  if (number(clip_value_, &clip_value) < 0) return NULL;
  return ext_none(EXT_NOGIL(px_clip_grad_value(g.items, g.count, clip_value)));
}
