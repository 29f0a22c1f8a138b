// SPDX-License-Identifier: Apache-2.0
// Binds Python arguments to an op's parameters. A mismatch is not an error yet: other overloads are
// tried first, and messages are formatted only after all have failed.
#include "ops/ops.h"

#include <string.h>

static int set_bind_error(ext_frame *frame, ext_bind_error why, int index, int position,
                          PyObject *object) {
  frame->bind_error = why;
  frame->index = index;
  frame->position = position;
  frame->object = object;
  return 0;
}

static void *frame_memory(ext_frame *frame, size_t bytes) {
  void *memory = frame->memory_count < EXT_LENGTH(frame->memory) ? PyMem_Malloc(bytes) : NULL;
  if (memory)
    frame->memory[frame->memory_count++] = memory;
  else
    PyErr_NoMemory();
  return memory;
}

void ext_frame_release(ext_frame *frame) {
  for (int i = 0; i < frame->owned_count; i++) Py_DECREF(frame->owned[i]);
  for (int i = 0; i < frame->memory_count; i++) PyMem_Free(frame->memory[i]);
  frame->owned_count = frame->memory_count = 0;
}

// ---- one value. Converters return 1, 0 (wrong type) or -1.
// A bool is a Python int but not a schema integer, as in PyTorch.
static bool is_integer(PyObject *object) {
  if (PyLong_Check(object)) return !PyBool_Check(object);
  if (ext_is_tensor(object))
    return px_tensor_numel(ext_tensor(object)) == 1 && px_tensor_ndim(ext_tensor(object)) == 0 &&
           !px_dtype_is_float(px_tensor_dtype(ext_tensor(object))) &&
           px_tensor_dtype(ext_tensor(object)) != PX_BOOL;
  return !PyFloat_Check(object) && PyIndex_Check(object);
}

bool ext_accepts_number(const px_op *op, int param) {
  if (op->flags & PX_OP_OF_COMPLEX && (op->params[param].optional || !param))
    return op->params[param].kind == PX_ARG_TENSOR && (param || op->flags & PX_OP_ONE_NUMBER);
  bool pointwise = op->kind == PX_OP_POINTWISE,
       marked = op->flags & (PX_OP_TAKES_NUMBERS | PX_OP_ONE_NUMBER);
  return op->params[param].kind == PX_ARG_TENSOR && !(op->flags & PX_OP_TENSORS_ONLY) &&
         (param > 0 ? pointwise || marked : pointwise && marked);
}

static px_tensor *bind_tensor(ext_frame *frame, PyObject *object) {
  if (!ext_is_plain(object) && ext_overrides(object)) frame->overridden = true;
  return ext_tensor(object);
}

// Makes the frame own a new object borrowed by bound values.
static int own(ext_frame *frame, PyObject *object) {
  if (frame->owned_count == EXT_LENGTH(frame->owned)) {
    Py_DECREF(object);
    EXT_FAIL_INT(PyExc_RuntimeError, "too many sequence arguments in one call");
  }
  frame->owned[frame->owned_count++] = object;
  return 0;
}

// A complex number given for a tensor.
static int to_complex(ext_frame *frame, PyObject *object, px_value *out) {
  PyObject *number = ext_complex(object);
  if (!number || own(frame, number) < 0) return -1;
  *out = PX_T(ext_tensor(number));
  return 1;
}

static bool is_value(const char *name) {
  return !strcmp(name, "value") || !strcmp(name, "fill_value");
}
static bool is_range_end(const char *name) {
  return !strcmp(name, "start") || !strcmp(name, "end");
}

// ---- complex numbers for real parameters
static const px_tensor *first_tensor(const ext_frame *frame, int i) {
  for (int k = 0; k < i; k++)
    if (frame->args[k].kind == PX_ARG_TENSOR) return frame->args[k].v.tensor;
  return NULL;
}
// Fails for the parameters which refuse complex numbers by name, as PyTorch does.
static int check_named(const px_op *op, const char *name) {
  if (!strcmp(op->name, "renorm") && !strcmp(name, "p"))
    EXT_FAIL_INT(PyExc_RuntimeError, "renorm: p must be real-valued");
  if (!strcmp(name, "maxnorm"))
    EXT_FAIL_INT(PyExc_RuntimeError, "renorm: maxnorm must be real-valued");
  if (!strcmp(name, "ord") || !strcmp(name, "p"))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "linalg.%s_norm: Expected a non-complex scalar as the order of norm.",
                 strstr(op->name, "matrix") ? "matrix" : "vector");
  if (!strcmp(name, "dx"))
    EXT_FAIL_INT(PyExc_RuntimeError, "%s: Currently, we only support dx as a real number.",
                 op->python_name);
  return 0;
}
static bool is_refused(const char *function) {
  static const char *const names[] = {"pad", "isin", "searchsorted", "bucketize"};
  for (int i = 0; i < EXT_LENGTH(names); i++)
    if (!strcmp(function, names[i])) return true;
  return false;
}
// The real part, if it is the whole number: 1, 0 (no match) or -1.
static int to_real(const ext_signature *s, int i, const ext_frame *frame, PyObject *object,
                   px_value *out) {
  const px_tensor *t = first_tensor(frame, i);
  px_dtype dtype = t ? px_tensor_dtype(t) : PX_FLOAT64;
  if (check_named(s->op, s->op->params[i].name) < 0) return -1;
  if (px_dtype_is_complex(dtype) || is_refused(s->op->python_name)) return 0;
  if (px_dtype_is_float(dtype) && px_dtype_size(dtype) <= 2) dtype = PX_FLOAT32;
  EXT_OWNED *real = ext_real_number(object, dtype);
  px_scalar scalar;
  if (!real || ext_to_scalar(real, &scalar) < 0) return -1;
  *out = PX_S(scalar);
  return 1;
}
// A bound of clamp or a weight of lerp does not promote the tensors.
static bool is_bounded(const px_op *op, int i, const ext_frame *frame) {
  const px_tensor *t = first_tensor(frame, i);
  px_dtype dtype = t ? px_tensor_dtype(t) : PX_FLOAT64;
  if (!strcmp(op->name, "clamp")) return px_dtype_is_float(dtype);
  return !strcmp(op->name, "lerp") && !px_dtype_is_complex(dtype);
}

// The number of a 0-dim tensor, given for a scalar which may be complex.
static int to_number(ext_frame *frame, PyObject *object, px_value *out) {
  px_complex value;
  if (px_tensor_ndim(ext_tensor(object))) return 0;
  if (px_tensor_item_complex(&value, ext_tensor(object)) != PX_OK) return ext_raise(), -1;
  EXT_OWNED *number = PyComplex_FromDoubles(value.real, value.imag);
  return number ? to_complex(frame, number, out) : -1;
}
static int to_tensor(const ext_signature *s, int i, ext_frame *frame, PyObject *object,
                     px_value *out) {
  if (ext_is_tensor(object) && s->op->flags & PX_OP_OF_COMPLEX && s->op->params[i].optional)
    return to_number(frame, object, out);
  if (ext_is_tensor(object)) {
    *out = PX_T(bind_tensor(frame, object));
    return 1;
  }
  px_scalar scalar;
  const char *name = s->op->params[i].name;
  if (ext_is_complex(object) && is_bounded(s->op, i, frame))
    return to_real(s, i, frame, object, out);
  if (ext_is_complex(object) &&
      (is_value(name) || is_range_end(name) || ext_accepts_number(s->op, i)))
    return to_complex(frame, object, out);
  if (!ext_accepts_number(s->op, i) || !ext_is_number(object)) return 0;
  if (ext_to_scalar(object, &scalar) < 0) return -1;
  bool above = scalar.kind == 'u' && !strcmp(name, "max") && !strncmp(s->op->name, "clamp", 5);
  const px_tensor *t = above ? first_tensor(frame, i) : NULL;
  *out = PX_S(t && px_tensor_dtype(t) == PX_INT64 ? px_int(INT64_MAX) : scalar);
  return 1;
}

// True if a range end selects the tensor overload: it is complex, or batched by vmap (linspace and
// logspace).
static bool is_tensor_range_end(const ext_signature *s, int i, const px_tensor *t) {
  const char *function = s->op->python_name;
  if (!is_range_end(s->op->params[i].name)) return false;
  bool line = !strcmp(function, "linspace") || !strcmp(function, "logspace");
  return px_dtype_is_complex(px_tensor_dtype(t)) || (line && px_tensor_is_batched(t));
}
static int to_scalar(const ext_signature *s, int i, ext_frame *frame, PyObject *object,
                     px_value *out) {
  px_scalar scalar;
  if (frame->last && ext_is_complex(object)) return to_real(s, i, frame, object, out);
  if (ext_is_complex_tensor(object) && !frame->last) return 0;
  if (!ext_is_number(object) && !(ext_is_tensor(object) && px_tensor_ndim(ext_tensor(object)) == 0))
    return 0;
  if (ext_is_tensor(object) && is_tensor_range_end(s, i, ext_tensor(object))) return 0;
  if (PyLong_Check(object) && !strcmp(s->op->name, "pad")) {  // PyTorch's value is a float
    double value;
    if (ext_to_double(object, &value) < 0) return -1;
    scalar = ext_to_scalar(object, &scalar) == 0 ? scalar : px_float(value);
    PyErr_Clear();
  } else if (ext_to_scalar(object, &scalar) < 0) {
    return -1;
  }
  if (ext_is_tensor(object) && is_value(s->op->params[i].name)) {
    frame->read_at = px_tensor_device(ext_tensor(object));
    frame->reads = frame->read_at.type == PX_CUDA;
  }
  *out = PX_S(scalar);
  return 1;
}

static int to_int(PyObject *object, px_value *out) {
  int64_t value;
  if (!is_integer(object)) return 0;
  if (ext_to_int(object, &value) < 0) return -1;
  *out = PX_I(value);
  return 1;
}

static int to_float(PyObject *object, px_value *out) {
  double value;
  if (!ext_is_number(object) && !(ext_is_tensor(object) && !px_tensor_ndim(ext_tensor(object))))
    return 0;
  if (ext_to_double(object, &value) < 0) return -1;
  *out = PX_F(value);
  return 1;
}

static int to_bool(PyObject *object, px_value *out) {
  if (!PyBool_Check(object) && strcmp(Py_TYPE(object)->tp_name, "numpy.bool_")) return 0;
  *out = PX_B(PyObject_IsTrue(object));
  return 1;
}

// Ints of items[0..count), stored in the frame.
static int ints_of(ext_frame *frame, PyObject *const *items, Py_ssize_t count, px_value *out) {
  int64_t *ints = frame->ints + frame->ints_used;
  for (Py_ssize_t i = 0; i < count; i++)
    if (!is_integer(items[i])) return 0;
  if (frame->ints_used + count > EXT_LENGTH(frame->ints)) {
    ints = frame_memory(frame, (size_t)count * sizeof *ints);
    if (!ints) return -1;
  } else {
    frame->ints_used += (int)count;
  }
  for (Py_ssize_t i = 0; i < count; i++)
    if (ext_to_int(items[i], &ints[i]) < 0) return -1;
  *out = PX_IS(ints, count);
  return 1;
}

// Returns the sequence as a list or tuple owned by the frame or the caller; NULL without an
// exception if the object is no sequence.
static PyObject *sequence_of(ext_frame *frame, PyObject *object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return object;
  if (PyUnicode_Check(object) || !PySequence_Check(object)) return NULL;
  PyObject *sequence = PySequence_Fast(object, "");
  if (!sequence) {
    PyErr_Clear();
    return NULL;
  }
  return own(frame, sequence) < 0 ? NULL : sequence;
}

// True if converting an item may run user code, which may modify the list.
static bool may_run_code(PyObject *sequence) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); i++)
    if (!PyLong_CheckExact(PySequence_Fast_GET_ITEM(sequence, i))) return true;
  return false;
}

static int to_ints(ext_frame *frame, PyObject *object, px_value *out) {
  if (is_integer(object)) return ints_of(frame, &object, 1, out);
  if (ext_is_tensor(object)) return 0;
  PyObject *sequence = sequence_of(frame, object);
  if (!sequence) return PyErr_Occurred() ? -1 : 0;
  if (PyList_Check(sequence) && may_run_code(sequence)) {
    sequence = PyList_AsTuple(sequence);
    if (!sequence || own(frame, sequence) < 0) return -1;
  }
  return ints_of(frame, PySequence_Fast_ITEMS(sequence), PySequence_Fast_GET_SIZE(sequence), out);
}

static int to_tensors(ext_frame *frame, PyObject *object, px_value *out) {
  PyObject *sequence = ext_is_tensor(object) ? NULL : sequence_of(frame, object);
  if (!sequence) return PyErr_Occurred() ? -1 : 0;
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  px_tensor **tensors = frame->tensors + frame->tensors_used;
  if (frame->tensors_used + count > EXT_LENGTH(frame->tensors)) {
    tensors = frame_memory(frame, (size_t)count * sizeof *tensors);
    if (!tensors) return -1;
  } else {
    frame->tensors_used += (int)count;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(sequence, i);
    if (!ext_is_tensor(item)) return 0;
    tensors[i] = bind_tensor(frame, item);
  }
  *out = PX_TS(tensors, count);
  return 1;
}

static int to_device(PyObject *object, px_value *out) {
  px_device device;
  if (!ext_is_device(object) && !PyUnicode_Check(object) && !PyLong_CheckExact(object)) return 0;
  if (ext_to_device(object, &device) < 0) return -1;
  *out = PX_DV(device);
  return 1;
}

static int to_dtype(PyObject *object, px_value *out) {
  px_dtype dtype;
  if (!ext_is_dtype(object) && !PyType_Check(object)) return 0;
  if (ext_to_dtype(object, &dtype) < 0) return -1;
  *out = PX_DT(dtype);
  return 1;
}

// A memory format is a name for ops and an object in Python.
static bool is_format(const px_param *param) { return !strcmp(param->name, "memory_format"); }
static int to_text(const px_param *param, PyObject *object, px_value *out) {
  ext_format format;
  if (is_format(param)) {
    if (!Py_IS_TYPE(object, &ext_MemoryFormatType)) return 0;
    if (ext_to_format(object, &format) < 0) return -1;
    *out = PX_TX(format.name);
    return 1;
  }
  if (!PyUnicode_Check(object)) return 0;
  const char *text = ext_text(object);
  *out = PX_TX(text);
  return text ? 1 : -1;
}

static int to_generator(PyObject *object, px_value *out) {
  px_generator *generator;
  if (!Py_IS_TYPE(object, &ext_GeneratorType)) return 0;
  if (ext_to_generator(object, &generator) < 0) return -1;
  *out = PX_G(generator);
  return 1;
}

// None is also accepted for an empty list, such as an omitted dim.
bool ext_accepts_none(const ext_signature *s, int i) {
  const px_param *param = &s->op->params[i];
  bool empty = param->kind == PX_ARG_INTS && param->has_default && !param->fallback.n;
  return param->optional || param->kind == PX_ARG_DTYPE || param->kind == PX_ARG_DEVICE ||
         param->kind == PX_ARG_GENERATOR || empty;
}

// None in an output_size means the size of the input's corresponding trailing dimension.
static int sizes_of_input(const ext_signature *s, int i, ext_frame *frame, PyObject *object,
                          px_value *out) {
  px_value input = frame->args[EXT_SELF];
  bool asked =
      s->functional && PyTuple_Check(object) && !strcmp(s->op->params[i].name, "output_size");
  Py_ssize_t count = asked ? PyTuple_GET_SIZE(object) : 0;
  if (!asked || input.kind != PX_ARG_TENSOR || count > px_tensor_ndim(input.v.tensor) ||
      !PySequence_Contains(object, Py_None))
    return to_ints(frame, object, out);
  EXT_OWNED *sizes = PyTuple_New(count);
  for (Py_ssize_t k = 0; sizes && k < count; k++) {
    PyObject *item = PyTuple_GET_ITEM(object, k);
    int64_t own = px_tensor_size(input.v.tensor, (int)(k - count));
    PyObject *size = item == Py_None ? PyLong_FromLongLong(own) : Py_NewRef(item);
    if (!size) return -1;
    PyTuple_SET_ITEM(sizes, k, size);
  }
  return sizes ? to_ints(frame, sizes, out) : -1;
}

static int to_value(const ext_signature *s, int i, ext_frame *frame, PyObject *object) {
  const px_param *param = &s->op->params[i];
  px_value *out = &frame->args[i];
  if (object == Py_None) {
    *out = PX_NONE();
    return ext_accepts_none(s, i);
  }
  switch (param->kind) {
    case PX_ARG_TENSOR:
      return to_tensor(s, i, frame, object, out);
    case PX_ARG_TENSORS:
      return to_tensors(frame, object, out);
    case PX_ARG_SCALAR:
      return to_scalar(s, i, frame, object, out);
    case PX_ARG_INT:
      return to_int(object, out);
    case PX_ARG_FLOAT:
      return to_float(object, out);
    case PX_ARG_BOOL:
      return to_bool(object, out);
    case PX_ARG_INTS:
      return sizes_of_input(s, i, frame, object, out);
    case PX_ARG_DTYPE:
      return to_dtype(object, out);
    case PX_ARG_DEVICE:
      return to_device(object, out);
    case PX_ARG_TEXT:
      return to_text(param, object, out);
    default:
      return to_generator(object, out);
  }
}

// ---- keywords
static const struct {
  const char *given, *meant;
} aliases[] = {{"input", "self"},
               {"axis", "dim"},
               {"keepdims", "keepdim"},
               {"axis", "dims"},
               {"x", "self"},
               {"dim", "dims"},
               {"size", "sizes"},
               {"shape", "size"},
               {"axis0", "dim0"},
               {"axis1", "dim1"},
               {"split_size_or_sections", "split_size"},
               {"p", "ord"},
               {"exponent", "other"},
               {"weights", "weight"}};

static bool is_text(PyObject *name, const char *text) {
  return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

static int find_param(const ext_signature *s, PyObject *name) {
  for (int i = 0; i < s->op->param_count; i++)
    if (s->names[i] == name) return i;
  for (int i = 0; i < s->op->param_count; i++)
    if (PyUnicode_Compare(s->names[i], name) == 0) return i;
  for (int k = 0; k < EXT_LENGTH(aliases); k++) {
    if (!is_text(name, aliases[k].given)) continue;
    for (int i = 0; i < s->op->param_count; i++)
      if (!strcmp(s->op->params[i].name, aliases[k].meant)) return i;
  }
  return -1;
}

// Activations and dropouts of nn.functional accept inplace after their other arguments.
bool ext_accepts_inplace(const ext_signature *s) {
  static const char *const others[] = {"dropout",
                                       "dropout1d",
                                       "dropout2d",
                                       "dropout3d",
                                       "relu6",
                                       "alpha_dropout",
                                       "feature_alpha_dropout"};
  if (!s->functional || s->op->flags & PX_OP_HAS_INPLACE) return s->functional;
  for (int i = 0; i < EXT_LENGTH(others); i++)
    if (!strcmp(s->op->name, others[i])) return true;
  return false;
}
static int set_flag(bool *flag, PyObject *value) {
  int wanted = ext_to_bool(value, false);
  *flag = wanted > 0;
  return wanted < 0 ? -1 : 1;
}

bool ext_is_factory(const px_op *op) {
  return op->flags & PX_OP_IS_FACTORY || strstr(op->name, "_like") || !strncmp(op->name, "new_", 4);
}

// Layout and names of a new tensor, which are no parameters: 1 handled, 0 unknown, -1.
static int tensor_option(const ext_signature *s, const char *text, PyObject *value) {
  bool is_factory = ext_is_factory(s->op);
  ext_layout layout;
  if (is_factory && !strcmp(text, "names")) return ext_no_names(value) < 0 ? -1 : 1;
  if (!is_factory || strcmp(text, "layout")) return 0;
  if (value == Py_None) return 1;
  int status = ext_to_layout(value, &layout);
  if (status == 0 || !PyErr_ExceptionMatches(PyExc_TypeError)) return status < 0 ? -1 : 1;
  EXT_FAIL_INT(PyExc_TypeError, "%s(): argument 'layout' must be torch.layout, not %s",
               s->op->python_name, ext_type_name(value));
}

// Keywords that are not parameters of the op: 1 handled, 0 unknown, -1.
static int extra_keyword(const ext_signature *s, ext_frame *frame, PyObject *name,
                         PyObject *value) {
  const char *text = ext_lookup_text(name);
  if (!text) return 0;
  if (!strcmp(text, "out") && (s->op->flags & PX_OP_HAS_OUT || value == Py_None)) {
    frame->out = value == Py_None ? NULL : value;
    if (ext_overrides(value)) frame->overridden = true;
    return 1;
  }
  bool is_factory = ext_is_factory(s->op);
  if (ext_accepts_inplace(s) && !strcmp(text, "inplace")) return set_flag(&frame->inplace, value);
  if (s->indexed && !strcmp(text, "return_indices")) return set_flag(&frame->indexed, value);
  if (s->functional && !strcmp(text, "_stacklevel")) return 1;
  int looks = tensor_option(s, text, value);
  if (looks) return looks;
  if (is_factory && !strcmp(text, "requires_grad")) return set_flag(&frame->requires_grad, value);
  if (is_factory && !strcmp(text, "pin_memory")) return set_flag(&frame->pin_memory, value);
  return value == Py_None && (!strcmp(text, "dtype") || !strcmp(text, "device") ||
                              !strcmp(text, "generator") || !strcmp(text, "rounding_mode"));
}

static int bind_keywords(const ext_signature *s, ext_frame *frame, PyObject *const *values,
                         PyObject *kwnames, uint32_t *given) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, k);
    int i = find_param(s, name);
    if (i < 0) {
      int taken = extra_keyword(s, frame, name, values[k]);
      if (taken < 0) return -1;
      if (!taken) return set_bind_error(frame, UNEXPECTED, -1, -1, name);
      continue;
    }
    if (*given & (1u << i)) return set_bind_error(frame, TWICE, i, -1, name);
    int fits = to_value(s, i, frame, values[k]);
    if (fits < 0) return -1;
    if (!fits) return set_bind_error(frame, WRONG_TYPE, i, -1, values[k]);
    *given |= 1u << i;
  }
  return 1;
}

static int bind_positions(const ext_signature *s, ext_frame *frame, PyObject *const *args,
                          Py_ssize_t nargs, uint32_t *given) {
  for (int i = 0; i < nargs; i++) {
    if (i == s->varargs && (nargs - i > 1 || is_integer(args[i]))) {
      int fits = ints_of(frame, args + i, nargs - i, &frame->args[i]);
      *given |= 1u << i;
      return fits == 0 ? set_bind_error(frame, WRONG_TYPE, i, i, args[i]) : fits;
    }
    bool *flag = i != s->positional || !PyBool_Check(args[i]) ? NULL
                 : s->indexed                                 ? &frame->indexed
                 : ext_accepts_inplace(s)                     ? &frame->inplace
                                                              : NULL;
    if (flag) {
      *flag = args[i] == Py_True;
      continue;
    }
    if (i >= s->positional) return set_bind_error(frame, TOO_MANY, i, (int)nargs, NULL);
    int fits = to_value(s, i, frame, args[i]);
    if (fits < 0) return -1;
    if (!fits) return set_bind_error(frame, WRONG_TYPE, i, i, args[i]);
    *given |= 1u << i;
  }
  return 1;
}

int ext_bind(const ext_signature *s, ext_frame *frame, bool last, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames) {
  uint32_t given = 0;
  frame->ints_used = frame->owned_count = frame->memory_count = frame->tensors_used = 0;
  frame->out = NULL;
  frame->last = last;
  frame->requires_grad = frame->pin_memory = frame->reads = false;
  frame->inplace = frame->indexed = frame->overridden = false;
  int fits = bind_positions(s, frame, args, nargs, &given);
  if (fits > 0 && kwnames) fits = bind_keywords(s, frame, args + nargs, kwnames, &given);
  if (fits <= 0) return fits;
  for (int i = 0; i < s->op->param_count; i++) {
    if (given & (1u << i)) continue;
    const px_param *param = &s->op->params[i];
    if (!param->has_default) return set_bind_error(frame, MISSING, i, -1, NULL);
    frame->args[i] = PX_NONE();
  }
  bool alone = s->op->flags & PX_OP_ONE_NUMBER && frame->args[EXT_SELF].kind == PX_ARG_SCALAR &&
               frame->args[EXT_OTHER].kind == PX_ARG_SCALAR;
  return alone ? set_bind_error(frame, WRONG_TYPE, 0, 0, *args) : 1;
}

bool ext_arg_matches(const ext_signature *s, int param, PyObject *object) {
  ext_frame frame = {.args = {PX_NONE()}};
  int fits = to_value(s, param, &frame, object);
  ext_frame_release(&frame);
  if (fits < 0) PyErr_Clear();
  return fits > 0;
}
