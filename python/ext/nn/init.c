// SPDX-License-Identifier: Apache-2.0
// torch.nn.init: in-place initialization. Each function returns its tensor.
#include "nn/nn.h"

#include "phlox/shard.h"

EXT_MODULE(init, "nn.init", "Functions to initialize parameters in-place.");

// The tensor argument.
static px_tensor *tensor_of(PyObject *tensor) { return ext_need_tensor(tensor, "init", "tensor"); }

static int fan_out_of(const char *mode, bool *fan_out) {
  *fan_out = !strcmp(mode, "fan_out");
  if (!*fan_out && strcmp(mode, "fan_in"))
    EXT_FAIL_INT(PyExc_ValueError, "Mode %s not supported, please use one of ['fan_in', 'fan_out']",
                 mode);
  return 0;
}

// Fills `tensor` with a core function called with the given arguments, and returns it. For a shard,
// the function fills the full tensor.
#define FILL(function, ...) \
  px_tensor *t = tensor_of(tensor); \
  PX_SCOPED(px_tensor) whole = NULL; \
  if (!t) return NULL; \
  EXT_TRY(EXT_NOGIL(px_shard_placeholder(&whole, t))); \
  EXT_TRY(function(whole, __VA_ARGS__)); \
  EXT_TRY(EXT_NOGIL(px_shard_take_rows(t, whole))); \
  return Py_NewRef(tensor)

// Distributions with two parameters.
#define DRAW(name, function, first, second, signature, text) \
  EXT_FUNCTION(init, name##_, \
               "(tensor: Tensor, " signature ", generator: Generator | None = None) -> Tensor", \
               text) { \
    PyObject *tensor; \
    double first, second; \
    px_generator *generator; \
    EXT_BIND(tensor, first, second, generator); \
    FILL(function, first, second, generator); \
  }
DRAW(uniform, px_init_uniform, a, b, "a: float = 0.0, b: float = 1.0",
     "Fills the input tensor with values drawn from the uniform distribution U(a, b).")
DRAW(normal, px_init_normal, mean, std, "mean: float = 0.0, std: float = 1.0",
     "Fills the input tensor with values drawn from the normal distribution N(mean, std^2).")

// Fills a complex tensor with a complex number.
static PyObject *fill_complex(PyObject *tensor, PyObject *number) {
  PX_SCOPED(px_tensor) plain = NULL;
  EXT_OWNED *value = ext_complex(number);
  if (!value) return NULL;
  EXT_TRY(px_tensor_detach(&plain, ext_tensor(tensor)));
  PX_SCOPED(px_tensor)
  done = ext_op_tensor(EXT_OP("copy"), PX_CALL_INPLACE, 2,
                       (ext_named[]){{"self", PX_T(plain)}, {"src", PX_T(ext_tensor(value))}});
  return done ? Py_NewRef(tensor) : NULL;
}
EXT_FUNCTION(init, constant_, "(tensor: Tensor, val: Number) -> Tensor",
             "Fills the input tensor with the value val.") {
  EXT_ARGS(PyObject *, tensor, val);
  double number;
  px_tensor *given = tensor_of(tensor);
  if (!given) return NULL;
  bool complex = ext_is_complex(val);
  if (complex && px_dtype_is_complex(px_tensor_dtype(given))) return fill_complex(tensor, val);
  EXT_OWNED *real = complex ? ext_real_number(val, px_tensor_dtype(given)) : Py_NewRef(val);
  if (!real || ext_to_double(real, &number) < 0) return NULL;
  FILL(px_init_constant, number);
}
EXT_FUNCTION(init, ones_, "(tensor: Tensor) -> Tensor", "Fills the input tensor with ones.") {
  EXT_ARGS(PyObject *, tensor);
  FILL(px_init_constant, 1);
}
EXT_FUNCTION(init, zeros_, "(tensor: Tensor) -> Tensor", "Fills the input tensor with zeros.") {
  EXT_ARGS(PyObject *, tensor);
  FILL(px_init_constant, 0);
}

// The initializations of a pair differ only in the core function.
#define KAIMING(name, text) \
  EXT_FUNCTION(init, kaiming_##name##_, \
               "(tensor: Tensor, a: float = 0.0, mode: str = 'fan_in', " \
               "nonlinearity: str = 'leaky_relu', generator: Generator | None = None) -> Tensor", \
               text) { \
    PyObject *tensor; \
    double a; \
    const char *mode, *nonlinearity; \
    px_generator *generator; \
    bool fan_out; \
    EXT_BIND(tensor, a, mode, nonlinearity, generator); \
    if (!tensor_of(tensor) || fan_out_of(mode, &fan_out) < 0) return NULL; \
    FILL(px_init_kaiming_##name, a, fan_out, nonlinearity, generator); \
  }
KAIMING(uniform, "Fills the input tensor with a Kaiming uniform distribution (He et al. 2015).")
KAIMING(normal, "Fills the input tensor with a Kaiming normal distribution (He et al. 2015).")

#define XAVIER(name, text) \
  EXT_FUNCTION( \
      init, xavier_##name##_, \
      "(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor", text) { \
    PyObject *tensor; \
    double gain; \
    px_generator *generator; \
    EXT_BIND(tensor, gain, generator); \
    FILL(px_init_xavier_##name, gain, generator); \
  }
XAVIER(uniform,
       "Fills the input tensor with a Xavier uniform distribution (Glorot and Bengio 2010).")
XAVIER(normal, "Fills the input tensor with a Xavier normal distribution (Glorot and Bengio 2010).")

EXT_FUNCTION(init, calculate_gain, "(nonlinearity: str, param: float = 0.01) -> float",
             "Returns the recommended gain value for the given nonlinearity function. param is the "
             "negative\nslope of leaky_relu.\n\n"
             ">>> torch.nn.init.calculate_gain('tanh')\n"
             "1.6666666666666667\n") {
  const char *nonlinearity;
  double param, gain;
  EXT_BIND(nonlinearity, param);
  EXT_TRY(px_init_gain(&gain, nonlinearity, param));
  return PyFloat_FromDouble(gain);
}

// ---- matrices

EXT_FUNCTION(init, eye_, "(tensor: Tensor) -> Tensor",
             "Fills the 2-dimensional input tensor with the identity matrix.") {
  EXT_ARGS(PyObject *, tensor);
  px_tensor *t = tensor_of(tensor);
  if (!t) return NULL;
  EXT_TRY(px_init_eye(t));
  return Py_NewRef(tensor);
}
EXT_FUNCTION(init, dirac_, "(tensor: Tensor, groups: int = 1) -> Tensor",
             "Fills the input tensor with the Dirac delta function: the convolution preserves its "
             "channels.") {
  PyObject *tensor;
  int64_t groups;
  EXT_BIND(tensor, groups);
  FILL(px_init_dirac, groups);
}
EXT_FUNCTION(
    init, sparse_,
    "(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = "
    "None) -> Tensor",
    "Fills the 2D input tensor as a sparse matrix: a fraction `sparsity` of each column is 0.") {
  PyObject *tensor;
  double sparsity, std;
  px_generator *generator;
  EXT_BIND(tensor, sparsity, std, generator);
  FILL(px_init_sparse, sparsity, std, generator);
}
EXT_FUNCTION(init, orthogonal_,
             "(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor",
             "Fills the input tensor with a (semi) orthogonal matrix (Saxe et al. 2013).\n\n"
             ">>> w = torch.nn.init.orthogonal_(torch.empty(3, 5))\n"
             ">>> torch.allclose(w @ w.t(), torch.eye(3), atol=1e-5)\n"
             "True\n") {
  PyObject *tensor;
  double gain;
  px_generator *generator;
  EXT_BIND(tensor, gain, generator);
  FILL(px_init_orthogonal, gain, generator);
}
EXT_FUNCTION(
    init, trunc_normal_,
    "(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = "
    "2.0, generator: Generator | None = None) -> Tensor",
    "Fills the input tensor with values drawn from a normal distribution truncated to [a, b].") {
  PyObject *tensor;
  double mean, std, a, b;
  px_generator *generator;
  EXT_BIND(tensor, mean, std, a, b, generator);
  FILL(px_init_truncated_normal, mean, std, a, b, generator);
}

EXT_FUNCTION(init, _calculate_fan_in_and_fan_out, "(tensor: Tensor) -> tuple[int, int]",
             "Returns fan_in and fan_out of a weight.") {
  EXT_ARGS(PyObject *, tensor);
  px_tensor *t = tensor_of(tensor);
  int64_t fan_in, fan_out;
  if (!t) return NULL;
  EXT_TRY(px_init_fans(&fan_in, &fan_out, t));
  return Py_BuildValue("(LL)", (long long)fan_in, (long long)fan_out);
}
EXT_FUNCTION(init, _calculate_correct_fan, "(tensor: Tensor, mode: str) -> int",
             "Returns fan_in or fan_out, selected by mode.") {
  PyObject *tensor;
  const char *mode;
  bool out;
  int64_t fans[2];
  EXT_BIND(tensor, mode);
  px_tensor *t = tensor_of(tensor);
  if (!t || fan_out_of(mode, &out) < 0) return NULL;
  EXT_TRY(px_init_fans(&fans[0], &fans[1], t));
  return PyLong_FromLongLong(fans[out]);
}
