// SPDX-License-Identifier: Apache-2.0
// Arithmetic of Tensor: number slots and comparisons. Operands other than tensors and numbers
// return NotImplemented, which makes Python try the other operand.
#include "bind/compiled.h"
#include "bind/ext.h"

// Slots and their ops, each looked up once.
#define SLOTS(XX) \
  XX(ADD, "add") \
  XX(SUB, "sub") \
  XX(MUL, "mul") \
  XX(DIV, "div") \
  XX(FLOORDIV, "floor_divide") \
  XX(REM, "remainder") \
  XX(POW, "pow") \
  XX(POW_OF_NUMBER, "pow_of_number") \
  XX(RSUB, "rsub") \
  XX(AND, "bitwise_and") \
  XX(OR, "bitwise_or") \
  XX(XOR, "bitwise_xor") \
  XX(LSHIFT, "bitwise_left_shift") \
  XX(RSHIFT, "bitwise_right_shift") \
  XX(MATMUL, "matmul") \
  XX(EQ, "eq") \
  XX(NE, "ne") \
  XX(LT, "lt") \
  XX(LE, "le") \
  XX(GT, "gt") \
  XX(GE, "ge") XX(NEG, "neg") XX(ABS, "abs") XX(NOT, "bitwise_not") XX(RECIPROCAL, "reciprocal")
typedef enum slot_op {
#define XX(slot, name) slot,
  SLOTS(XX)
#undef XX
      SLOT_OPS
} slot_op;
static const char *const slot_names[SLOT_OPS] = {
#define XX(slot, name) name,
    SLOTS(XX)
#undef XX
};
static const px_op *slot_ops[SLOT_OPS];

static const px_op *op_of(slot_op slot) {
  if (!slot_ops[slot]) slot_ops[slot] = ext_op_lookup(slot_names[slot]);
  return slot_ops[slot];
}

// 1 for an operand, 0 for other objects, -1 on error, TAKEN if it overrides calls. Exact types are
// tested first; PyLong_CheckExact also excludes bools, numbers of another dtype.
enum { OVERRIDDEN = 2 };
static inline int operand(PyObject *object, px_value *out) {
  if (ext_is_plain(object)) {
    *out = PX_T(ext_tensor(object));
    return 1;
  }
  if (PyFloat_CheckExact(object)) {
    *out = PX_S(px_float(PyFloat_AS_DOUBLE(object)));
    return 1;
  }
  if (PyLong_CheckExact(object)) {
    px_scalar value;
    if (ext_to_scalar(object, &value) < 0) return -1;
    *out = PX_S(value);
    return 1;
  }
  if (ext_overrides(object)) return OVERRIDDEN;
  px_scalar scalar;
  if (ext_is_tensor(object))
    *out = PX_T(ext_tensor(object));
  else if (!ext_is_number(object) || ext_is_complex(object))
    return 0;
  else if (ext_to_scalar(object, &scalar) < 0)
    return -1;
  else
    *out = PX_S(scalar);
  return 1;
}

enum { LARGE = 1 << 15 };
static bool is_large(const px_value *args, int count) {
  for (int i = 0; i < count; i++)
    if (args[i].kind == PX_ARG_TENSOR && px_tensor_numel(args[i].v.tensor) > LARGE &&
        !px_tensor_is_cuda(args[i].v.tensor))
      return true;
  return false;
}

// Arguments after the two operands have defaults.
enum { THIRD = EXT_OTHER + 1, FOURTH };
static PyObject *call_values(slot_op slot, px_call_mode mode, px_value *args, int count) {
  const px_op *op = op_of(slot);
  if (!op) return NULL;
  void *results[4] = {NULL};
  px_status status = is_large(args, count) ? EXT_NOGIL(px_op_call(op, mode, args, results))
                                           : px_op_call(op, mode, args, results);
  if (__builtin_expect(status != PX_OK, 0)) return ext_raise();
  return ext_wrap(results[0]);
}

// Dispatches to overrides: of the op's method, or of Python's reflected method if the tensor is on
// the right.
static PyObject *dispatch(slot_op slot, bool inplace, PyObject *a, PyObject *b) {
  static const char *const reflected[SLOT_OPS] = {
      [FLOORDIV] = "__rfloordiv__", [REM] = "__rmod__",       [POW] = "__rpow__",
      [POW_OF_NUMBER] = "__rpow__", [LSHIFT] = "__rlshift__", [RSHIFT] = "__rrshift__",
      [MATMUL] = "__rmatmul__"};
  char name[32];
  snprintf(name, sizeof name, "%s%s", slot_names[slot], inplace ? "_" : "");
  if (ext_is_tensor(a)) return ext_call_slot_override(name, a, b, NULL);
  return ext_call_slot_override(reflected[slot] ? reflected[slot] : name, b, a, NULL);
}

// Retries with a NumPy array as a tensor over its memory, or a complex number as a tensor.
// NotImplemented for other operands.
static PyObject *with_array(PyObject *(*call)(slot_op, PyObject *, PyObject *), slot_op slot,
                            PyObject *a, PyObject *b) {
  bool of_left = !ext_is_tensor(a);
  PyObject *array = of_left ? a : b, *other = of_left ? b : a;
  bool number = ext_is_complex(array);
  if ((!number && !ext_is_array(array)) || !ext_is_tensor(other)) Py_RETURN_NOTIMPLEMENTED;
  px_tensor *made = number ? NULL : ext_tensor_from_array(array);
  EXT_OWNED *tensor = number ? ext_complex(array) : made ? ext_wrap(made) : NULL;
  if (!tensor) return NULL;
  return of_left ? call(slot, tensor, b) : call(slot, a, tensor);
}

static PyObject *binary(slot_op slot, PyObject *a, PyObject *b) {
  px_value args[PX_MAX_OPERANDS];
  int left = operand(a, &args[EXT_SELF]), right = left ? operand(b, &args[EXT_OTHER]) : 0;
  if (left < 0 || right < 0) return NULL;
  if (!left || !right) return with_array(binary, slot, a, b);
  if (__builtin_expect((left | right) & OVERRIDDEN || ext_mode_count, 0) &&
      ((left | right) & OVERRIDDEN || ext_mode_active()))
    return dispatch(slot, false, a, b);
  args[THIRD] = args[FOURTH] = PX_NONE();
  return call_values(slot, PX_CALL_NEW, args, 2);
}

static PyObject *inplace(slot_op slot, PyObject *a, PyObject *b) {
  px_value args[PX_MAX_OPERANDS] = {PX_T(ext_tensor(a))};
  int right = operand(b, &args[EXT_OTHER]);
  if (right < 0) return NULL;
  if (!right) return with_array(inplace, slot, a, b);
  if (right == OVERRIDDEN || ext_is_overridden(a)) return dispatch(slot, true, a, b);
  args[THIRD] = args[FOURTH] = PX_NONE();
  return call_values(slot, PX_CALL_INPLACE, args, 2);
}

static PyObject *unary(slot_op slot, PyObject *a) {
  if (ext_is_overridden(a)) return ext_call_slot_override(slot_names[slot], a, NULL, NULL);
  px_value args[PX_MAX_OPERANDS] = {PX_T(ext_tensor(a)), PX_NONE(), PX_NONE()};
  return call_values(slot, PX_CALL_NEW, args, 1);
}

// Slots calling an op on their operands, and the in-place slots.
#define BINARY(XX) \
  XX(add, ADD) \
  XX(multiply, MUL) \
  XX(floor_divide, FLOORDIV) \
  XX(remainder, REM) XX(and, AND) XX(or, OR) XX(xor, XOR) XX(lshift, LSHIFT) XX(rshift, RSHIFT)
#define INPLACE(XX) BINARY(XX) XX(subtract, SUB) XX(true_divide, DIV)
#define XX(name, slot) \
  static PyObject *do_##name(PyObject *a, PyObject *b) { return binary(slot, a, b); }
BINARY(XX)
#undef XX
#define XX(name, slot) \
  static PyObject *do_##name##_inplace(PyObject *a, PyObject *b) { return inplace(slot, a, b); }
INPLACE(XX)
#undef XX

// number - tensor is rsub(tensor, number), as in PyTorch (RsubBackward).
static PyObject *sub(PyObject *a, PyObject *b) {
  if (ext_is_tensor(a)) return binary(SUB, a, b);
  return ext_is_overridden(b) ? ext_call_slot_override("__rsub__", b, a, NULL) : binary(RSUB, b, a);
}

// number / tensor is reciprocal(tensor) * number (MulBackward0).
static PyObject *divide(PyObject *a, PyObject *b) {
  if (ext_is_tensor(a)) return binary(DIV, a, b);
  if (ext_is_overridden(b)) return ext_call_slot_override("__rtruediv__", b, a, NULL);
  if (!ext_is_number(a)) return with_array(binary, DIV, a, b);
  EXT_OWNED *inverse = unary(RECIPROCAL, b);
  return inverse ? binary(MUL, inverse, a) : NULL;
}

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus) {
  return binary(PyLong_Check(a) || PyFloat_Check(a) ? POW_OF_NUMBER : POW, a, b);
}
static PyObject *ipower(PyObject *a, PyObject *b, PyObject *modulus) { return inplace(POW, a, b); }

static PyObject *matmul(PyObject *a, PyObject *b) {
  PyObject *other = ext_is_tensor(a) ? b : a;
  if (!ext_is_tensor(other) && !ext_overrides(other) && !ext_is_array(other))
    Py_RETURN_NOTIMPLEMENTED;
  return binary(MATMUL, a, b);
}

static PyObject *negative(PyObject *a) { return unary(NEG, a); }
static PyObject *positive(PyObject *a) {
  if (px_tensor_dtype(ext_tensor(a)) == PX_BOOL)
    EXT_FAIL(PyExc_NotImplementedError, "The `+` operator, on a bool tensor is not supported.");
  return Py_NewRef(a);
}
static PyObject *absolute(PyObject *a) { return unary(ABS, a); }
static PyObject *invert(PyObject *a) {
  if (px_dtype_is_float(px_tensor_dtype(ext_tensor(a))))
    EXT_FAIL(PyExc_TypeError,
             "~ (operator.invert) is only implemented on integer and Boolean-type tensors");
  return unary(NOT, a);
}

// ---- reflected methods, by name; operands in the op's order
#define REFLECTED(name, slot, what) \
  EXT_METHOD(tensor_base, name, "(other: Tensor | Number) -> Tensor", what) { \
    EXT_ARGS(PyObject *, other); \
    return binary(slot, self, other); \
  } \
  struct ext_row
REFLECTED(__radd__, ADD, "Returns other + self.");
REFLECTED(__rmul__, MUL, "Returns other * self.");
REFLECTED(__rand__, AND, "Returns other & self.");
REFLECTED(__ror__, OR, "Returns other | self.");
REFLECTED(__rxor__, XOR, "other ^ self.");

PyObject *ext_richcompare(PyObject *a, PyObject *b, int op) {
  static const slot_op slots[] = {
      [Py_LT] = LT, [Py_LE] = LE, [Py_EQ] = EQ, [Py_NE] = NE, [Py_GT] = GT, [Py_GE] = GE};
  return binary(slots[op], a, b);
}

// ---- conversion to Python numbers
static int item_of(PyObject *self, px_scalar *out) {
  if (px_tensor_numel(ext_tensor(self)) != 1)
    EXT_FAIL_INT(PyExc_ValueError, "only one element tensors can be converted to Python scalars");
  return ext_zero(ext_item(out, ext_tensor(self)));
}

static int truth(PyObject *self) {
  if (ext_is_overridden(self)) {
    EXT_OWNED *answer = ext_call_slot_override("__bool__", self, NULL, NULL);
    return answer ? PyObject_IsTrue(answer) : -1;
  }
  int64_t n = px_tensor_numel(ext_tensor(self));
  if (n > 1)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Boolean value of Tensor with more than one value is ambiguous");
  if (n == 0)
    EXT_FAIL_INT(PyExc_RuntimeError, "Boolean value of Tensor with no values is ambiguous");
  if (px_tensor_is_batched(ext_tensor(self)))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "vmap: It looks like you're attempting to use a Tensor in some data-dependent "
                 "control flow. We don't support that yet, please file an issue at "
                 "https://github.com/pytorch/pytorch/issues .");
  if (ext_refuses_reads()) EXT_TRY_INT(ext_refuse_read("the truth of a Tensor"));
  px_complex number;
  EXT_TRY_INT(EXT_NOGIL(px_tensor_item_complex(&number, ext_tensor(self))));
  return number.real != 0 || number.imag != 0;
}

static PyObject *as_int(PyObject *self) {
  px_scalar scalar;
  if (ext_is_overridden(self)) return ext_call_slot_override("__int__", self, NULL, NULL);
  if (item_of(self, &scalar) < 0) return NULL;
  return scalar.kind == 'f' ? PyLong_FromDouble(scalar.v.f)
                            : ext_scalar(scalar.kind == 'b' ? px_int(scalar.v.b) : scalar);
}
static PyObject *as_float(PyObject *self) {
  px_scalar scalar;
  if (ext_is_overridden(self)) return ext_call_slot_override("__float__", self, NULL, NULL);
  return item_of(self, &scalar) < 0 ? NULL : PyFloat_FromDouble(px_scalar_float(scalar));
}
static PyObject *as_index(PyObject *self) {
  if (ext_is_overridden(self)) return ext_call_slot_override("__index__", self, NULL, NULL);
  px_dtype dtype = px_tensor_dtype(ext_tensor(self));
  if (px_dtype_is_float(dtype) || px_dtype_is_complex(dtype) ||
      px_tensor_numel(ext_tensor(self)) != 1)
    EXT_FAIL(PyExc_TypeError,
             "only integer tensors of a single element can be converted to an index");
  return as_int(self);
}

static PyNumberMethods number_methods = {.nb_subtract = sub,
                                         .nb_true_divide = divide,
                                         .nb_power = power,
                                         .nb_inplace_power = ipower,
                                         .nb_matrix_multiply = matmul,
                                         .nb_negative = negative,
                                         .nb_positive = positive,
                                         .nb_absolute = absolute,
                                         .nb_invert = invert,
                                         .nb_bool = truth,
                                         .nb_int = as_int,
                                         .nb_float = as_float,
                                         .nb_index = as_index,
#define XX(name, slot) .nb_##name = do_##name,
                                         BINARY(XX)
#undef XX
#define XX(name, slot) .nb_inplace_##name = do_##name##_inplace,
                                             INPLACE(XX)
#undef XX
};
EXT_SLOT(tensor_base, tp_as_number, &number_methods);
EXT_SLOT(tensor_base, tp_richcompare, ext_richcompare);
