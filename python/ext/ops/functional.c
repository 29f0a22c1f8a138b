// SPDX-License-Identifier: Apache-2.0
// Functions of torch that are not ops of the tables: they return Python values, or accept argument
// forms that schemas cannot express. They compute by calling ops.
#include <math.h>
#include <string.h>

#include "bind/ext.h"
#include "phlox/extend.h"
#include "phlox/ops/layer.h"

EXT_FUNCTION(torch, is_tensor, "(obj: object) -> bool",
             "Returns True if obj is a PyTorch tensor.") {
  EXT_ARGS(PyObject *, obj);
  return Py_NewRef(ext_is_tensor(obj) ? Py_True : Py_False);
}

// An attribute, or None if missing.
static PyObject *attribute_of(PyObject *object, const char *name) {
  PyObject *found = PyObject_GetAttrString(object, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return Py_NewRef(Py_None);
}
EXT_FUNCTION(torch, typename, "(obj: object, /) -> str",
             "Returns Tensor.type() of a tensor; of another object its name, or that of its class, "
             "qualified by\nthe module.\n\n"
             ">>> torch.typename(torch.ones(1))\n"
             "'torch.FloatTensor'\n") {
  EXT_ARGS(PyObject *, obj);
  if (ext_is_tensor(obj)) return PyObject_CallMethod(obj, "type", NULL);
  EXT_OWNED *name = attribute_of(obj, "__qualname__");
  if (name == Py_None) Py_SETREF(name, attribute_of(obj, "__name__"));
  if (name == Py_None) {
    obj = (PyObject *)Py_TYPE(obj);
    Py_SETREF(name, attribute_of(obj, "__qualname__"));
  }
  EXT_OWNED *module = name ? attribute_of(obj, "__module__") : NULL;
  if (!module) return NULL;
  bool plain = module == Py_None || !PyUnicode_Check(module) || !PyUnicode_GET_LENGTH(module) ||
               !PyUnicode_CompareWithASCIIString(module, "builtins");
  return plain ? PyObject_Str(name) : PyUnicode_FromFormat("%U.%S", module, name);
}
EXT_FUNCTION(torch, is_floating_point, "(input: Tensor) -> bool",
             "Returns True if the dtype of input is a floating point type.") {
  EXT_ARGS(px_tensor *, input);
  return PyBool_FromLong(px_dtype_is_float(px_tensor_dtype(input)));
}
EXT_FUNCTION_AND_METHOD(torch, tensor, is_conj, "(input: Tensor) -> bool",
                        "Returns True if the conjugate bit of input is set.") {
  EXT_ARGS(px_tensor *, input);
  return PyBool_FromLong((px_tensor_marks(input) & PX_MARK_CONJ) != 0);
}
EXT_FUNCTION_AND_METHOD(torch, tensor, is_neg, "(input: Tensor) -> bool",
                        "Returns True if the negative bit of input is set.") {
  EXT_ARGS(px_tensor *, input);
  return PyBool_FromLong((px_tensor_marks(input) & PX_MARK_NEG) != 0);
}
EXT_FUNCTION(torch, is_complex, "(input: Tensor) -> bool",
             "Returns True if the dtype of input is a complex type.") {
  EXT_ARGS(px_tensor *, input);
  return PyBool_FromLong(px_dtype_is_complex(px_tensor_dtype(input)));
}

// ---- comparisons
static PyObject *all_true(PyObject *flags_take) {
  EXT_OWNED *flags = flags_take;
  EXT_OWNED *all = flags ? PyObject_CallMethod(flags, "all", NULL) : NULL;
  int truth = all ? PyObject_IsTrue(all) : -1;
  return truth < 0 ? NULL : PyBool_FromLong(truth);
}
EXT_FUNCTION_AND_METHOD(torch, tensor, equal, "(input: Tensor, other: Tensor) -> bool",
                        "Returns True if two tensors have the same size and elements.\n\n"
                        "Raises RuntimeError for tensors on different devices.\n\n"
                        ">>> torch.equal(torch.tensor([1, 2]), torch.tensor([1, 2]))\n"
                        "True\n") {
  EXT_ARGS(PyObject *, input, other);
  px_tensor *a = ext_need_tensor(input, "equal", "input");
  px_tensor *b = a ? ext_need_tensor(other, "equal", "other") : NULL;
  if (!b) return NULL;
  char first[PX_DEVICE_TEXT], second[PX_DEVICE_TEXT];
  if (!px_device_equal(px_tensor_device(a), px_tensor_device(b)))
    EXT_FAIL(PyExc_RuntimeError,
             "Expected all tensors to be on the same device, but got other is on %s, different "
             "from other tensors on %s (when checking argument in method wrapper_CUDA__equal)",
             px_device_format(px_tensor_device(b), second),
             px_device_format(px_tensor_device(a), first));
  if (!px_tensor_same_sizes(a, b)) Py_RETURN_FALSE;
  return all_true(ext_richcompare(input, other, Py_EQ));
}

// ---- ops with fewer arguments
// The columns of nonzero(), the result of where(condition).
static PyObject *nonzero_tuple(PyObject *self) {
  if (px_tensor_ndim(ext_tensor(self)) == 0) {
    EXT_OWNED *row = PyObject_CallMethod(self, "unsqueeze", "i", 0);
    return row ? nonzero_tuple(row) : NULL;
  }
  EXT_OWNED *found = ext_op_named(EXT_OP("nonzero"), PX_CALL_NEW, 1,
                                  (ext_named[]){{"self", PX_T(ext_tensor(self))}});
  return found ? PyObject_CallMethod(found, "unbind", "i", 1) : NULL;
}
EXT_FUNCTION_AND_METHOD(
    torch, tensor, nonzero,
    "(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Tensor | "
    "tuple[Tensor, ...]",
    "Returns the indices of all non-zero elements.\n\n"
    "Args:\n"
    "    input (Tensor)\n"
    "    as_tuple (bool): returns one tensor per dimension instead of one row per element\n\n"
    ">>> torch.nonzero(torch.tensor([0, 7, 0, 5]))\n"
    "tensor([[1],\n"
    "        [3]])\n") {
  PyObject *input, *out;
  bool as_tuple;
  EXT_BIND(input, out, as_tuple);
  px_tensor *t = ext_need_tensor(input, "nonzero", "input");
  if (!t) return NULL;
  if (as_tuple && out)
    EXT_FAIL(PyExc_TypeError, "nonzero(): argument 'out' is not supported with as_tuple=True");
  if (as_tuple) return nonzero_tuple(input);
  const px_op *op = EXT_OP("nonzero");
  void *into[4] = {out ? ext_need_tensor(out, "nonzero", "out") : NULL};
  if (!op || (out && !into[0])) return NULL;
  px_value args[] = {PX_T(t)};
  EXT_TRY(EXT_NOGIL(px_op_call(op, out ? PX_CALL_OUT : PX_CALL_NEW, args, into)));
  return ext_wrap(into[0]);
}

static PyObject *where_op;
// With one argument, nonzero(as_tuple=True); otherwise the op.
EXT_FUNCTION(
    torch, where,
    "(condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None "
    "= None, *, out: Tensor | None = None) -> Tensor | tuple[Tensor, ...]",
    "Returns elements of `input` where the condition is True, else of `other`. With a condition "
    "only,\nreturns the indices where it is True, one tensor per dimension.\n\n"
    ">>> torch.where(torch.tensor([True, False]), 1, 2)\n"
    "tensor([1, 2])\n") {
  PyObject *condition;
  bool alone = EXT_UNPACK_ARGS(call->args, call->nargs, &condition);
  alone &= !(call->kwnames && PyTuple_GET_SIZE(call->kwnames));
  if (!alone) return PyObject_Vectorcall(where_op, call->args, (size_t)call->nargs, call->kwnames);
  return ext_need_tensor(condition, "where", "condition") ? nonzero_tuple(condition) : NULL;
}
EXT_METHOD(tensor, where, "(condition: Tensor, other: Tensor | Number) -> Tensor",
           "torch.where(condition, self, other).") {
  EXT_ARGS(PyObject *, condition, other);
  PyObject *given[] = {condition, self, other};
  return PyObject_Vectorcall(where_op, given, 3, NULL);
}
static int find_where(PyObject *torch) {
  where_op = Py_XNewRef(ext_op_object('f', "where"));
  return where_op ? 0 : -1;
}
EXT_START(EXT_VALUES, find_where);

// ---- interpolation

enum { SPATIAL = 3 };
// Target of interpolate: sizes, or scales of depth, height and width; NAN for none.
typedef struct resize_target {
  ext_ints size;
  double scales[SPATIAL];
} resize_target;

static int spatial_of(const px_tensor *input) {
  int dims = px_tensor_ndim(input) - 2;
  return dims < 1 ? 1 : dims > SPATIAL ? SPATIAL : dims;
}

// Reads one scale for all dimensions, or one for each.
static int read_scales(resize_target *r, PyObject *given, const px_tensor *input) {
  int dims = spatial_of(input);
  for (int k = 0; k < SPATIAL; k++) r->scales[k] = NAN;
  if (ext_is_none(given)) return 0;
  if (PyUnicode_Check(given)) EXT_FAIL_INT(PyExc_TypeError, "must be real number, not str");
  bool list = PySequence_Check(given) && !ext_is_tensor(given);
  EXT_OWNED *items = list ? PySequence_Tuple(given) : PyTuple_Pack(1, given);
  Py_ssize_t count = items ? PyTuple_GET_SIZE(items) : -1;
  if (count < 0) return -1;
  if (list && count != dims) {
    EXT_OWNED *sizes = PyList_New(0);
    for (int k = 0; sizes && k < px_tensor_ndim(input) - 2; k++) {
      EXT_OWNED *size = PyLong_FromLongLong(px_tensor_size(input, 2 + k));
      if (!size || PyList_Append(sizes, size) < 0) return -1;
    }
    EXT_FAIL_INT(PyExc_ValueError,
                 "Input and scale_factor must have the same number of spatial dimensions, but got "
                 "input with spatial dimensions of %R and scale_factor of shape %R. Please provide "
                 "input tensor in (N, C, d1, d2, ...,dK) format and scale_factor in (s1, s2, "
                 "...,sK) format.",
                 sizes, given);
  }
  for (int k = 0; k < dims && k < SPATIAL; k++)
    if (ext_to_double(PyTuple_GET_ITEM(items, count == 1 ? 0 : k), &r->scales[SPATIAL - dims + k]) <
        0)
      return -1;
  return 0;
}
// Replaces the scales by the resulting sizes.
static void compute_sizes(resize_target *r, const px_tensor *input, int dims) {
  if (r->size.count > 0 || isnan(r->scales[SPATIAL - 1])) return;
  r->size.count = dims;
  for (int k = 0; k < dims; k++) {
    double scale = r->scales[SPATIAL - dims + k];
    r->size.items[k] = (int64_t)floor((double)px_tensor_size(input, 2 + k) * scale);
  }
  for (int k = 0; k < SPATIAL; k++) r->scales[k] = NAN;
}
static PyObject *resize(const px_tensor *input, const resize_target *r, const char *mode,
                        bool corners, bool antialias) {
  px_tensor *made;
  const double *scales[SPATIAL];
  bool sized = r->size.count > 0;
  for (int k = 0; k < SPATIAL; k++) scales[k] = isnan(r->scales[k]) ? NULL : &r->scales[k];
  EXT_TRY(px_resize_images(&made, input, sized ? r->size.items : NULL, sized ? r->size.count : 0,
                           scales[1], scales[2], mode, corners, scales[0], antialias));
  return ext_wrap(made);
}

EXT_FUNCTION(nn_functional, interpolate,
             "(input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | "
             "Sequence[float] | None = None, mode: str = 'nearest', align_corners: bool | None = "
             "None, recompute_scale_factor: bool | None = None, antialias: bool = False) -> Tensor",
             "Down/up samples volumes (N, C, D, H, W), images (N, C, H, W) or lines (N, C, L).\n\n"
             "Args:\n"
             "    input (Tensor)\n"
             "    size (int or ints): output spatial size; or\n"
             "    scale_factor (float or floats): multiplier for spatial size\n"
             "    mode (str): \"nearest\", \"nearest-exact\", \"linear\", \"bilinear\", "
             "\"bicubic\", \"trilinear\" or \"area\"\n"
             "    align_corners (bool): aligns the centers of corner elements of input and output\n"
             "    recompute_scale_factor (bool): recomputes the scale from the rounded sizes\n"
             "    antialias (bool): for images in mode \"bilinear\", \"bicubic\" or \"lanczos\": "
             "filters when "
             "downsampling\n\n"
             ">>> torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), scale_factor=2).shape\n"
             "torch.Size([1, 1, 4, 4])\n") {
  px_tensor *input;
  PyObject *scale_factor;
  ext_optional_bool align_corners, recompute_scale_factor;
  ext_ints size;
  const char *mode;
  bool antialias;
  EXT_BIND(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias);
  resize_target r = {.size = size};
  int dims = spatial_of(input);
  if (read_scales(&r, scale_factor, input) < 0) return NULL;
  if (recompute_scale_factor > 0) compute_sizes(&r, input, dims);
  // PyTorch rejects align_corners=False, too, for modes without corners.
  bool cornerless = !strncmp(mode, "nearest", 7) || !strcmp(mode, "area");
  return resize(input, &r, mode, align_corners > 0 || (align_corners == 0 && cornerless),
                antialias);
}
EXT_ALIASES(nn_functional, nn_functional_interpolate, upsample);

#define DEPRECATED_UPSAMPLE(name, of_mode, corners, text) \
  EXT_FUNCTION(nn_functional, upsample_##name, \
               "(input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | " \
               "Sequence[float] | None = None) -> Tensor", \
               text) { \
    px_tensor *input; \
    PyObject *scale_factor; \
    ext_ints size; \
    EXT_BIND(input, size, scale_factor); \
    resize_target r = {.size = size}; \
    if (read_scales(&r, scale_factor, input) < 0) return NULL; \
    return resize(input, &r, of_mode, corners, false); \
  }
DEPRECATED_UPSAMPLE(nearest, "nearest", false, "Deprecated: interpolate in mode nearest.")
DEPRECATED_UPSAMPLE(bilinear, "bilinear", true,
                    "Deprecated: interpolate in mode bilinear with align_corners=True.")
