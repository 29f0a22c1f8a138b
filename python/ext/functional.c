// SPDX-License-Identifier: Apache-2.0
// Functions of the torch namespace that are not ops of the tables: comparisons that give a Python
// value, broadcasting of several tensors, variadic forms.
#include <math.h>
#include <string.h>

#include "ext.h"
#include "phlox/ops.h"

static PyObject *is_tensor(PyObject *m, PyObject *object) {
  return PyBool_FromLong(ext_is_tensor(object));
}
static PyObject *is_floating_point(PyObject *m, PyObject *object) {
  px_tensor *t = ext_need_tensor(object, "is_floating_point", "input");
  return t ? PyBool_FromLong(px_dtype_is_float(px_tensor_dtype(t))) : NULL;
}
static PyObject *is_complex(PyObject *m, PyObject *object) {
  return ext_need_tensor(object, "is_complex", "input") ? Py_NewRef(Py_False) : NULL;
}
EXT_FAST(numel) {
  EXT_ARGS("numel", "input", out);
  px_tensor *t = ext_need_tensor(out[0], "numel", "input");
  return t ? PyLong_FromLongLong(px_tensor_numel(t)) : NULL;
}
static PyObject *is_nonzero(PyObject *m, PyObject *object) {
  if (!ext_need_tensor(object, "is_nonzero", "input")) return NULL;
  int truth = PyObject_IsTrue(object);
  return truth < 0 ? NULL : PyBool_FromLong(truth);
}

// ---- comparisons
static bool same_sizes(const px_tensor *a, const px_tensor *b) {
  if (px_tensor_ndim(a) != px_tensor_ndim(b)) return false;
  for (int i = 0; i < px_tensor_ndim(a); i++)
    if (px_tensor_sizes(a)[i] != px_tensor_sizes(b)[i]) return false;
  return true;
}
static PyObject *all_true(PyObject *flags_take) {
  EXT_OWNED *flags = flags_take;
  EXT_OWNED *all = flags ? PyObject_CallMethod(flags, "all", NULL) : NULL;
  int truth = all ? PyObject_IsTrue(all) : -1;
  return truth < 0 ? NULL : PyBool_FromLong(truth);
}
EXT_FAST(equal) {
  EXT_ARGS("equal", "input other", out);
  px_tensor *a = ext_need_tensor(out[0], "equal", "input");
  px_tensor *b = a ? ext_need_tensor(out[1], "equal", "other") : NULL;
  if (!b) return NULL;
  char first[PX_DEVICE_TEXT], second[PX_DEVICE_TEXT];
  if (!px_device_equal(px_tensor_device(a), px_tensor_device(b)))
    EXT_FAIL(PyExc_RuntimeError,
             "Expected all tensors to be on the same device, but got other is on %s, different "
             "from other tensors on %s (when checking argument in method wrapper_CUDA__equal)",
             px_device_format(px_tensor_device(b), second),
             px_device_format(px_tensor_device(a), first));
  if (!same_sizes(a, b)) Py_RETURN_FALSE;
  return all_true(ext_richcompare(out[0], out[1], Py_EQ));
}

// |a - b| <= atol + rtol |b|, or equal (infinities), or both NaN where asked for.
static PyObject *close_to(PyObject *a, PyObject *b, PyObject *rtol, PyObject *atol, int equal_nan) {
  EXT_OWNED *difference = PyNumber_Subtract(a, b);
  EXT_OWNED *distance = difference ? PyNumber_Absolute(difference) : NULL;
  EXT_OWNED *size = distance ? PyNumber_Absolute(b) : NULL;
  EXT_OWNED *relative = size ? PyNumber_Multiply(size, rtol) : NULL;
  EXT_OWNED *allowed = relative ? PyNumber_Add(relative, atol) : NULL;
  EXT_OWNED *near_enough = allowed ? ext_richcompare(distance, allowed, Py_LE) : NULL;
  EXT_OWNED *zero = near_enough ? PyNumber_Subtract(distance, distance) : NULL;  // NaN: not finite
  EXT_OWNED *finite = zero ? ext_richcompare(zero, zero, Py_EQ) : NULL;
  EXT_OWNED *close = finite ? PyNumber_And(near_enough, finite) : NULL;
  EXT_OWNED *same = close ? ext_richcompare(a, b, Py_EQ) : NULL;
  EXT_OWNED *result = same ? PyNumber_Or(close, same) : NULL;
  if (!equal_nan || !result) return ext_moved(&result);
  EXT_OWNED *nan_a = ext_richcompare(a, a, Py_NE);
  EXT_OWNED *nan_b = nan_a ? ext_richcompare(b, b, Py_NE) : NULL;
  EXT_OWNED *both = nan_b ? PyNumber_And(nan_a, nan_b) : NULL;
  return both ? PyNumber_Or(result, both) : NULL;
}

static PyObject *close_of(PyObject **out, const char *name) {
  static PyObject *default_rtol, *default_atol;
  if (!default_rtol) default_rtol = PyFloat_FromDouble(1e-5);
  if (!default_atol) default_atol = PyFloat_FromDouble(1e-8);
  px_tensor *a = ext_need_tensor(out[0], name, "input");
  px_tensor *b = a ? ext_need_tensor(out[1], name, "other") : NULL;
  int equal_nan = ext_to_bool(out[4], false);
  if (!b || equal_nan < 0) return NULL;
  if (px_tensor_dtype(a) != px_tensor_dtype(b))
    EXT_FAIL(PyExc_RuntimeError, "%s did not match %s", px_dtype_class(px_tensor_dtype(a)),
             px_dtype_class(px_tensor_dtype(b)));
  if (px_tensor_dtype(a) == PX_BOOL) return ext_richcompare(out[0], out[1], Py_EQ);
  return close_to(out[0], out[1], out[2] ? out[2] : default_rtol, out[3] ? out[3] : default_atol,
                  equal_nan);
}
EXT_FAST(isclose) {
  EXT_ARGS("isclose", "input other|rtol atol equal_nan", out);
  return close_of(out, "isclose");
}
EXT_FAST(allclose) {
  EXT_ARGS("allclose", "input other|rtol atol equal_nan", out);
  return all_true(close_of(out, "allclose"));
}
static PyObject *as_method(PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t,
                                                 PyObject *),
                           PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames) {
  Py_ssize_t all = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  PyObject *given[EXT_MAX_ARGS] = {self};
  if (all >= EXT_MAX_ARGS) EXT_FAIL(PyExc_TypeError, "too many arguments");
  for (Py_ssize_t i = 0; i < all; i++) given[i + 1] = args[i];
  return function(NULL, given, nargs + 1, kwnames);
}
EXT_FAST(method_equal) { return as_method(equal, self, args, nargs, kwnames); }
EXT_FAST(method_isclose) { return as_method(isclose, self, args, nargs, kwnames); }
EXT_FAST(method_allclose) { return as_method(allclose, self, args, nargs, kwnames); }

// ---- types of results
// What a lower category adds to a higher one: nothing, unless it is of a higher kind of number.
static px_dtype combine(px_dtype higher, px_dtype lower) {
  if (higher == PX_DTYPE_NONE) return lower;
  if (lower == PX_DTYPE_NONE || px_dtype_is_float(higher)) return higher;
  if (higher == PX_BOOL || px_dtype_is_float(lower)) return px_dtype_promote(higher, lower);
  return higher;
}
static px_dtype join(px_dtype a, px_dtype b) {
  return a == PX_DTYPE_NONE ? b : b == PX_DTYPE_NONE ? a : px_dtype_promote(a, b);
}
EXT_FAST(result_type) {
  EXT_ARGS("result_type", "tensor other", out);
  px_dtype kinds[3] = {PX_DTYPE_NONE, PX_DTYPE_NONE, PX_DTYPE_NONE};
  for (int i = 0; i < 2; i++) {
    px_scalar scalar;
    int kind = 2;
    px_dtype dtype;
    if (ext_is_tensor(out[i])) {
      kind = px_tensor_ndim(ext_tensor(out[i])) ? 0 : 1;
      dtype = px_tensor_dtype(ext_tensor(out[i]));
    } else {
      if (ext_to_scalar(out[i], &scalar) < 0) return NULL;
      dtype = px_scalar_dtype(scalar);
    }
    kinds[kind] = join(kinds[kind], dtype);
  }
  return ext_dtype(combine(combine(kinds[0], kinds[1]), kinds[2]));
}

// ---- several tensors
enum { MAX_TENSORS = 64 };
// The tensors of f(a, b, c) or f([a, b, c]); the count, or -1.
static int read_tensors(PyObject *const *args, Py_ssize_t nargs, px_tensor **items,
                        const char *function) {
  EXT_OWNED *keep = NULL;
  if (nargs == 1 && !ext_is_tensor(args[0]))
    return ext_to_tensors(args[0], items, MAX_TENSORS, function, &keep);
  if (nargs > MAX_TENSORS) EXT_FAIL_INT(PyExc_ValueError, "%s(): too many tensors", function);
  for (Py_ssize_t i = 0; i < nargs; i++) {
    items[i] = ext_need_tensor(args[i], function, "tensors");
    if (!items[i]) return -1;
  }
  return (int)nargs;
}

static int broadcast_into(ext_ints *shape, const int64_t *sizes, int ndim) {
  if (ndim > shape->count) {
    int shift = ndim - shape->count;
    for (int i = shape->count - 1; i >= 0; i--) shape->items[i + shift] = shape->items[i];
    for (int i = 0; i < shift; i++) shape->items[i] = 1;
    shape->count = ndim;
  }
  for (int i = 0; i < ndim; i++) {
    int64_t *at = &shape->items[shape->count - ndim + i];
    if (*at == 1) *at = sizes[i];
    if (sizes[i] != 1 && sizes[i] != *at)
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "The size of tensor a (%lld) must match the size of tensor b (%lld) at "
                   "non-singleton dimension %d",
                   (long long)*at, (long long)sizes[i], shape->count - ndim + i);
  }
  return 0;
}

static PyObject *expanded(px_tensor *t, const ext_ints *shape) {
  return ext_op_named(
      EXT_OP("expand"), PX_CALL_NEW, 2,
      (ext_named[]){{"self", PX_T(t)}, {"size", PX_IS(shape->items, shape->count)}});
}

static PyObject *fill_tuple(PyObject *tuple, int i, PyObject *item_take) {
  if (!item_take) {
    Py_XDECREF(tuple);
    return NULL;
  }
  PyTuple_SET_ITEM(tuple, i, item_take);
  return tuple;
}

static PyObject *broadcast_tensors(PyObject *m, PyObject *const *args, Py_ssize_t nargs) {
  px_tensor *items[MAX_TENSORS];
  ext_ints shape = {.count = 0};
  int n = read_tensors(args, nargs, items, "broadcast_tensors");
  if (n < 0) return NULL;
  for (int i = 0; i < n; i++)
    if (broadcast_into(&shape, px_tensor_sizes(items[i]), px_tensor_ndim(items[i])) < 0)
      return NULL;
  PyObject *tuple = PyTuple_New(n);
  for (int i = 0; tuple && i < n; i++) tuple = fill_tuple(tuple, i, expanded(items[i], &shape));
  return tuple;
}

static PyObject *broadcast_shapes(PyObject *m, PyObject *const *args, Py_ssize_t nargs) {
  ext_ints shape = {.count = 0}, one;
  for (Py_ssize_t i = 0; i < nargs; i++) {
    if (ext_to_ints(args[i], &one) < 0) return NULL;
    if (broadcast_into(&shape, one.items, one.count) < 0) {
      PyErr_SetString(PyExc_RuntimeError,
                      "Shape mismatch: objects cannot be broadcast to a single shape");
      return NULL;
    }
  }
  return ext_size(shape.count, shape.items);
}

EXT_FAST(meshgrid) {
  px_tensor *items[MAX_TENSORS];
  bool swap = false;
  if (kwnames && PyTuple_GET_SIZE(kwnames)) {
    PyObject *indexing = args[nargs];
    bool xy = PyUnicode_Check(indexing) && !PyUnicode_CompareWithASCIIString(indexing, "xy");
    if (!xy && PyUnicode_CompareWithASCIIString(indexing, "ij"))
      EXT_FAIL(PyExc_RuntimeError,
               "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: %S",
               indexing);
    swap = xy;
  }
  int n = read_tensors(args, nargs, items, "meshgrid");
  if (n < 0) return NULL;
  swap = swap && n >= 2;
  ext_ints shape = {.count = n};
  for (int i = 0; i < n; i++) shape.items[swap && i < 2 ? 1 - i : i] = px_tensor_numel(items[i]);
  PyObject *tuple = PyTuple_New(n);
  for (int i = 0; tuple && i < n; i++) {
    int64_t view[PX_MAX_DIMS];
    int dim = swap && i < 2 ? 1 - i : i;
    for (int k = 0; k < n; k++) view[k] = k == dim ? px_tensor_numel(items[i]) : 1;
    PX_SCOPED(px_tensor)
    shaped = ext_op_tensor(EXT_OP("reshape"), PX_CALL_NEW, 2,
                           (ext_named[]){{"self", PX_T(items[i])}, {"shape", PX_IS(view, n)}});
    tuple = fill_tuple(tuple, i, shaped ? expanded(shaped, &shape) : NULL);
  }
  return tuple;
}

static PyObject *einsum(PyObject *m, PyObject *const *args, Py_ssize_t nargs) {
  px_tensor *items[MAX_TENSORS];
  const char *equation = nargs && PyUnicode_Check(args[0]) ? PyUnicode_AsUTF8(args[0]) : NULL;
  if (!equation) EXT_FAIL(PyExc_TypeError, "einsum(): the first argument must be the equation");
  int n = read_tensors(args + 1, nargs - 1, items, "einsum");
  if (n < 0) return NULL;
  return ext_op_named(EXT_OP("einsum"), PX_CALL_NEW, 2,
                      (ext_named[]){{"equation", PX_TX(equation)}, {"tensors", PX_TS(items, n)}});
}

// ---- forms of ops that take fewer arguments
// The columns of nonzero(): what where(condition) gives.
static PyObject *nonzero_tuple(PyObject *self) {
  EXT_OWNED *found = ext_op_named(EXT_OP("nonzero"), PX_CALL_NEW, 1,
                                  (ext_named[]){{"self", PX_T(ext_tensor(self))}});
  return found ? PyObject_CallMethod(found, "unbind", "i", 1) : NULL;
}
EXT_FAST(nonzero) {
  EXT_ARGS("nonzero", "input|$out as_tuple", out);
  px_tensor *t = ext_need_tensor(out[0], "nonzero", "input");
  int as_tuple = ext_to_bool(out[2], false);
  if (!t || as_tuple < 0) return NULL;
  if (as_tuple) return nonzero_tuple(out[0]);
  return ext_op_named(EXT_OP("nonzero"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(t)}});
}
EXT_FAST(method_nonzero) { return as_method(nonzero, self, args, nargs, kwnames); }

static PyObject *where_op;
EXT_FAST(where) {
  if (nargs == 1 && (!kwnames || !PyTuple_GET_SIZE(kwnames)))
    return ext_need_tensor(args[0], "where", "condition") ? nonzero_tuple(args[0]) : NULL;
  return PyObject_Vectorcall(where_op, args, (size_t)nargs, kwnames);
}
EXT_FAST(method_where) {
  EXT_ARGS("where", "condition other", out);
  PyObject *given[] = {out[0], self, out[1]};
  return PyObject_Vectorcall(where_op, given, 3, NULL);
}

// ---- other sizes of images

// A scale for both dimensions, or (height, width); *given tells whether there is one.
static int read_scale(PyObject *object, double *scale, bool *given) {
  *given = !ext_is_none(object);
  if (!*given) return 0;
  if (!PySequence_Check(object)) {
    if (ext_to_double(object, &scale[0]) < 0) return -1;
    scale[1] = scale[0];
    return 0;
  }
  Py_ssize_t count = PySequence_Size(object);
  if (count < 1 || count > 2)
    EXT_FAIL_INT(PyExc_ValueError, "scale_factor takes one or two numbers, but got %zd", count);
  for (Py_ssize_t i = 0; i < 2; i++) {
    EXT_OWNED *item = PySequence_GetItem(object, count == 2 ? i : 0);
    if (!item || ext_to_double(item, &scale[i]) < 0) return -1;
  }
  return 0;
}
// The sizes that scales give, where they are to take the scales' place.
static void size_of_scale(const px_tensor *x, const double *scale, ext_ints *size) {
  int dims = px_tensor_ndim(x) - 2;
  for (int k = 0; k < dims && k < 2; k++)
    size->items[k] = (int64_t)floor((double)px_tensor_sizes(x)[2 + k] * scale[dims == 1 ? 1 : k]);
  size->count = dims < 2 ? dims : 2;
}
EXT_FAST(interpolate) {
  EXT_ARGS("interpolate",
           "input|size scale_factor mode align_corners recompute_scale_factor antialias", out);
  px_tensor *x = ext_need_tensor(out[0], "interpolate", "input"), *made;
  const char *mode = out[3] ? PyUnicode_AsUTF8(out[3]) : "nearest";
  ext_ints size = {.count = 0};
  double scale[2];
  bool scaled;
  if (!x || !mode || read_scale(out[2], scale, &scaled) < 0) return NULL;
  if (!ext_is_none(out[1]) && ext_to_ints(out[1], &size) < 0) return NULL;
  int again = ext_to_bool(out[5], false), smooth = ext_to_bool(out[6], false);
  // align_corners=False is refused too by the modes that have no corners.
  int corners = ext_to_bool(out[4], false);
  if (!ext_is_none(out[4]) && (!strncmp(mode, "nearest", 7) || !strcmp(mode, "area"))) corners = 1;
  if (again < 0 || smooth < 0 || corners < 0) return NULL;
  if (smooth)
    EXT_FAIL(PyExc_NotImplementedError, "interpolate with antialias=True is not implemented");
  bool sized = size.count > 0;
  if (again && scaled && !sized) size_of_scale(x, scale, &size), scaled = false, sized = true;
  EXT_TRY(px_resize_images(&made, x, sized ? size.items : NULL, size.count,
                           scaled ? &scale[0] : NULL, scaled ? &scale[1] : NULL, mode, corners));
  return ext_wrap(made);
}
static PyMethodDef nn_functions[] = {
    EXT_DEF("interpolate", interpolate), EXT_DEF("upsample", interpolate), {NULL, NULL, 0, NULL}};

static PyMethodDef functions[] = {
    {"is_tensor", is_tensor, METH_O, NULL},
    {"is_floating_point", is_floating_point, METH_O, NULL},
    {"is_complex", is_complex, METH_O, NULL},
    {"is_nonzero", is_nonzero, METH_O, NULL},
    EXT_DEF("numel", numel),
    EXT_DEF("equal", equal),
    EXT_DEF("isclose", isclose),
    EXT_DEF("allclose", allclose),
    EXT_DEF("result_type", result_type),
    EXT_DEF("meshgrid", meshgrid),
    {"broadcast_tensors", (PyCFunction)(void (*)(void))broadcast_tensors, METH_FASTCALL, NULL},
    {"broadcast_shapes", (PyCFunction)(void (*)(void))broadcast_shapes, METH_FASTCALL, NULL},
    {"einsum", (PyCFunction)(void (*)(void))einsum, METH_FASTCALL, NULL},
    EXT_DEF("nonzero", nonzero),
    EXT_DEF("where", where),
    {NULL, NULL, 0, NULL}};
static PyMethodDef methods[] = {
    EXT_DEF("equal", method_equal),       EXT_DEF("isclose", method_isclose),
    EXT_DEF("allclose", method_allclose), EXT_DEF("nonzero", method_nonzero),
    EXT_DEF("where", method_where),       {NULL, NULL, 0, NULL}};

static int ext_init_functional(PyObject *m) {
  EXT_OWNED *nn = PyObject_GetAttrString(m, "nn");
  EXT_OWNED *layers = nn ? PyObject_GetAttrString(nn, "functional") : NULL;
  if (!layers || PyModule_AddFunctions(layers, nn_functions) < 0) return -1;
  where_op = Py_XNewRef(ext_op_object('f', "where"));
  if (ext_add_methods(ext_TensorType, methods) < 0) return -1;
  return PyModule_AddFunctions(m, functions);
}
EXT_START(EXT_VALUES, ext_init_functional);
