// SPDX-License-Identifier: Apache-2.0
// torch.nn.init: initialisation in place; each function gives its tensor back.
#include "nn.h"

EXT_MODULE(init, "nn.init", "Functions that fill a tensor with starting values, and give it back.");

// The tensor of a function's first argument.
static px_tensor *tensor_of(PyObject *tensor) { return ext_need_tensor(tensor, "init", "tensor"); }

static int fan_out_of(const char *mode, bool *fan_out) {
  *fan_out = !strcmp(mode, "fan_out");
  if (!*fan_out && strcmp(mode, "fan_in"))
    EXT_FAIL_INT(PyExc_ValueError, "Mode %s not supported, please use one of ['fan_in', 'fan_out']",
                 mode);
  return 0;
}

// Fills `tensor` by a function of the core's, which gets what follows, and gives it back.
#define FILL(function, ...) \
  px_tensor *t = tensor_of(tensor); \
  if (!t) return NULL; \
  EXT_TRY(function(t, __VA_ARGS__)); \
  return Py_NewRef(tensor)

// Numbers that two arguments describe.
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
     "Fills the tensor with numbers between a and b, all equally likely.")
DRAW(normal, px_init_normal, mean, std, "mean: float = 0.0, std: float = 1.0",
     "Fills the tensor with normally distributed numbers.")

EXT_FUNCTION(init, constant_, "(tensor: Tensor, val: float) -> Tensor",
             "Fills the tensor with a number.") {
  PyObject *tensor;
  double val;
  EXT_BIND(tensor, val);
  FILL(px_init_constant, val);
}
EXT_FUNCTION(init, ones_, "(tensor: Tensor) -> Tensor", "Fills the tensor with ones.") {
  EXT_ARGS(PyObject *, tensor);
  FILL(px_init_constant, 1);
}
EXT_FUNCTION(init, zeros_, "(tensor: Tensor) -> Tensor", "Fills the tensor with zeros.") {
  EXT_ARGS(PyObject *, tensor);
  FILL(px_init_constant, 0);
}

// The two initialisations of each name differ in the core's function alone.
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
KAIMING(uniform, "Uniform numbers whose spread keeps variances through a layer (He et al. 2015).")
KAIMING(normal, "Normal numbers whose spread keeps variances through a layer (He et al. 2015).")

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
XAVIER(uniform, "Uniform numbers whose spread is that of both fans (Glorot and Bengio 2010).")
XAVIER(normal, "Normal numbers whose spread is that of both fans (Glorot and Bengio 2010).")

EXT_FUNCTION(init, calculate_gain, "(nonlinearity: str, param: float = 0.01) -> float",
             "Gives the factor by which a nonlinearity makes up for the variance that it takes. "
             "param is the\nslope of a leaky relu.\n\n"
             ">>> torch.nn.init.calculate_gain('tanh')\n"
             "1.6666666666666667\n") {
  const char *nonlinearity;
  double param, gain;
  EXT_BIND(nonlinearity, param);
  EXT_TRY(px_init_gain(&gain, nonlinearity, param));
  return PyFloat_FromDouble(gain);
}
