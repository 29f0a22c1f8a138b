// SPDX-License-Identifier: Apache-2.0
// torch.nn.init: initialisation in place; each function gives its tensor back.
#include "nn.h"

static int fan_out_of(PyObject *mode, bool *fan_out) {
  *fan_out = false;
  if (ext_is_none(mode) || !PyUnicode_CompareWithASCIIString(mode, "fan_in")) return 0;
  *fan_out = !PyUnicode_CompareWithASCIIString(mode, "fan_out");
  if (!*fan_out)
    EXT_FAIL_INT(PyExc_ValueError, "Mode %U not supported, please use one of ['fan_in', 'fan_out']",
                 mode);
  return 0;
}

static int number_of(PyObject *object, double fallback, double *out) {
  *out = fallback;
  return object ? ext_to_double(object, out) : 0;
}

typedef px_status (*two_numbers)(px_tensor *, double, double, px_generator *);
typedef px_status (*one_number)(px_tensor *, double, px_generator *);
typedef px_status (*kaiming)(px_tensor *, double, bool, const char *, px_generator *);

static PyObject *fill_two(two_numbers fill, double a, double b, PyObject **out) {
  px_generator *generator;
  px_tensor *t = ext_need_tensor(out[0], "init", "tensor");
  if (!t || number_of(out[1], a, &a) < 0 || number_of(out[2], b, &b) < 0 ||
      ext_to_generator(out[3], &generator) < 0)
    return NULL;
  EXT_TRY(fill(t, a, b, generator));
  return Py_NewRef(out[0]);
}

static PyObject *fill_kaiming(kaiming fill, PyObject **out) {
  px_generator *generator;
  bool fan_out;
  double a;
  px_tensor *t = ext_need_tensor(out[0], "init", "tensor");
  const char *name = ext_is_none(out[3]) ? "leaky_relu" : PyUnicode_AsUTF8(out[3]);
  if (!t || !name || number_of(out[1], 0, &a) < 0 || fan_out_of(out[2], &fan_out) < 0 ||
      ext_to_generator(out[4], &generator) < 0)
    return NULL;
  EXT_TRY(fill(t, a, fan_out, name, generator));
  return Py_NewRef(out[0]);
}

static PyObject *fill_xavier(one_number fill, PyObject **out) {
  px_generator *generator;
  double gain;
  px_tensor *t = ext_need_tensor(out[0], "init", "tensor");
  if (!t || number_of(out[1], 1, &gain) < 0 || ext_to_generator(out[2], &generator) < 0)
    return NULL;
  EXT_TRY(fill(t, gain, generator));
  return Py_NewRef(out[0]);
}

static PyObject *fill_constant(PyObject *tensor, double value) {
  px_tensor *t = ext_need_tensor(tensor, "init", "tensor");
  if (!t) return NULL;
  EXT_TRY(px_init_constant(t, value));
  return Py_NewRef(tensor);
}

EXT_FAST(uniform) {
  EXT_ARGS("uniform_", "tensor|a b generator", out);
  return fill_two(px_init_uniform, 0, 1, out);
}
EXT_FAST(normal) {
  EXT_ARGS("normal_", "tensor|mean std generator", out);
  return fill_two(px_init_normal, 0, 1, out);
}
EXT_FAST(constant) {
  EXT_ARGS("constant_", "tensor val", out);
  double value;
  return ext_to_double(out[1], &value) < 0 ? NULL : fill_constant(out[0], value);
}
EXT_FAST(kaiming_uniform) {
  EXT_ARGS("kaiming_uniform_", "tensor|a mode nonlinearity generator", out);
  return fill_kaiming(px_init_kaiming_uniform, out);
}
EXT_FAST(kaiming_normal) {
  EXT_ARGS("kaiming_normal_", "tensor|a mode nonlinearity generator", out);
  return fill_kaiming(px_init_kaiming_normal, out);
}
EXT_FAST(xavier_uniform) {
  EXT_ARGS("xavier_uniform_", "tensor|gain generator", out);
  return fill_xavier(px_init_xavier_uniform, out);
}
EXT_FAST(xavier_normal) {
  EXT_ARGS("xavier_normal_", "tensor|gain generator", out);
  return fill_xavier(px_init_xavier_normal, out);
}
static PyObject *ones(PyObject *self, PyObject *tensor) { return fill_constant(tensor, 1); }
static PyObject *zeros(PyObject *self, PyObject *tensor) { return fill_constant(tensor, 0); }

EXT_FAST(calculate_gain) {
  EXT_ARGS("calculate_gain", "nonlinearity|param", out);
  const char *name = PyUnicode_AsUTF8(out[0]);
  double parameter, gain;
  if (!name || number_of(ext_is_none(out[1]) ? NULL : out[1], 0.01, &parameter) < 0) return NULL;
  EXT_TRY(px_init_gain(&gain, name, parameter));
  return PyFloat_FromDouble(gain);
}

static PyMethodDef functions[] = {EXT_DEF("uniform_", uniform),
                                  EXT_DEF("normal_", normal),
                                  EXT_DEF("constant_", constant),
                                  EXT_DEF("kaiming_uniform_", kaiming_uniform),
                                  EXT_DEF("kaiming_normal_", kaiming_normal),
                                  EXT_DEF("xavier_uniform_", xavier_uniform),
                                  EXT_DEF("xavier_normal_", xavier_normal),
                                  {"ones_", ones, METH_O, NULL},
                                  {"zeros_", zeros, METH_O, NULL},
                                  EXT_DEF("calculate_gain", calculate_gain),
                                  {NULL, NULL, 0, NULL}};

int ext_init_nn_init(PyObject *nn) { return ext_submodule(nn, "init", functions) ? 0 : -1; }
