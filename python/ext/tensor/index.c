// SPDX-License-Identifier: Apache-2.0
// x[index] and x[index] = value. Integers, slices, None and Ellipsis are applied as views, one
// after another. Remaining indices (tensors, lists, masks) go to the index ops in one call. Also
// the other sequence slots of Tensor.
#include "bind/ext.h"

#include <string.h>

// State of a parsed index: the view so far, its next dimension, and index tensors by dimension of
// the view (NULL: the full dimension).
typedef struct parsed_index {
  px_tensor *view;  // owned; starts as the tensor itself
  int dim, ellipsis_dims;
  int position;                     // position of the current index, for messages
  px_tensor *indices[PX_MAX_DIMS];  // owned
  int index_count;                  // up to the last index tensor
} parsed_index;

static void parsed_index_free(parsed_index *r) {
  px_release(r->view);
  for (int i = 0; i < r->index_count; i++) px_release(r->indices[i]);
}

static int take_view(parsed_index *r, px_tensor *view_take) {
  if (!view_take) return -1;
  px_release(r->view);
  r->view = view_take;
  return 0;
}

// `position` is the position of the index, reported as the dimension in errors.
static px_tensor *select_view(const px_tensor *t, int dim, int64_t index, int position) {
  const px_op *op = EXT_OP("select");
  void *result[4] = {NULL};
  px_value args[] = {PX_T(t), PX_I(dim), PX_I(index)};
  if (!op) return NULL;
  if (px_tensor_ndim(t) == 0) {
    PyErr_SetString(PyExc_IndexError,
                    "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or "
                    "`tensor.item<T>()` in C++ to convert a 0-dim tensor to a number");
    return NULL;
  }
  int64_t size = px_tensor_sizes(t)[dim];
  if (__builtin_expect(index < -size || index >= size, 0)) {
    PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for dimension %d with size %lld",
                 (long long)index, position, (long long)size);
    return NULL;
  }
  if (__builtin_expect(px_op_call(op, PX_CALL_NEW, args, result) != PX_OK, 0)) return ext_raise();
  return result[0];
}

static px_tensor *slice_view(const px_tensor *t, int dim, PyObject *slice) {
  Py_ssize_t start, stop, step;
  const px_op *op = EXT_OP("slice");
  if (!op || PySlice_Unpack(slice, &start, &stop, &step) < 0) return NULL;
  if (px_tensor_ndim(t) == 0) {
    PyErr_SetString(PyExc_IndexError, "slice() cannot be applied to a 0-dim tensor.");
    return NULL;
  }
  if (step <= 0) {
    PyErr_SetString(PyExc_ValueError, "step must be greater than zero");
    return NULL;
  }
  int64_t size = px_tensor_size(t, dim);
  PySlice_AdjustIndices((Py_ssize_t)size, &start, &stop, step);
  if (stop < start) stop = start;
  void *result[4] = {NULL};
  px_value args[] = {PX_T(t), PX_I(dim), PX_I(start), PX_I(stop), PX_I(step)};
  if (px_op_call(op, PX_CALL_NEW, args, result) != PX_OK) return ext_raise();
  return result[0];
}

static px_tensor *unsqueezed(const px_tensor *t, int dim) {
  return ext_op_tensor(EXT_OP("unsqueeze"), PX_CALL_NEW, 2,
                       (ext_named[]){{"self", PX_T(t)}, {"dim", PX_I(dim)}});
}

// ---- items of an index
static bool is_mask(const px_tensor *t) {
  return px_tensor_dtype(t) == PX_BOOL || px_tensor_dtype(t) == PX_UINT8;
}
static bool is_basic(PyObject *item) {
  return PyLong_CheckExact(item) || PySlice_Check(item) || item == Py_None || item == Py_Ellipsis;
}
static bool is_array(PyObject *item) { return !PyLong_Check(item) && ext_is_array(item); }
// Data converted by torch.tensor: an array or a sequence (of numbers).
static bool is_data(PyObject *item) {
  return is_array(item) || (PySequence_Check(item) && !PyUnicode_Check(item) &&
                            !PyBytes_Check(item) && !ext_is_tensor(item));
}

// Number of tensor dimensions consumed by an item.
static int dims_of(PyObject *item) {
  if (item == Py_None || item == Py_Ellipsis || PyBool_Check(item)) return 0;
  if (ext_is_tensor(item) && is_mask(ext_tensor(item))) return px_tensor_ndim(ext_tensor(item));
  return 1;
}

static int fail_index(PyObject *item) {
  EXT_FAIL_INT(PyExc_IndexError,
               "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
               "valid indices (got %s)",
               ext_type_name(item));
}

static int add_index(parsed_index *r, px_tensor *index_take, int dims) {
  if (!index_take) return -1;
  if (r->dim >= PX_MAX_DIMS) {
    px_release(index_take);
    EXT_FAIL_INT(PyExc_IndexError, "too many indices");
  }
  r->indices[r->dim] = index_take;
  r->index_count = r->dim + 1;
  r->dim += dims;
  return 0;
}

// True and False add a dimension of size 1 or 0.
static int apply_bool(parsed_index *r, bool value) {
  if (take_view(r, unsqueezed(r->view, r->dim)) < 0) return -1;
  px_tensor *index = NULL;
  int64_t one = value, zero = 0;
  EXT_TRY_INT(px_tensor_from_data(&index, &zero, 1, &one, PX_INT64, px_tensor_device(r->view)));
  return add_index(r, index, 1);
}

static int apply_tensor(parsed_index *r, px_tensor *index) {
  if (px_tensor_ndim(index) > 0 || px_tensor_is_batched(index)) {
    int dims = is_mask(index) ? px_tensor_ndim(index) : 1;
    return add_index(r, px_retain(index), dims);
  }
  px_scalar scalar;
  if (px_dtype_is_float(px_tensor_dtype(index)))
    EXT_FAIL_INT(PyExc_IndexError,
                 "tensors used as indices must be long, int, byte or bool tensors");
  EXT_TRY_INT(ext_item(&scalar, index));
  if (is_mask(index)) return apply_bool(r, px_scalar_int(scalar) != 0);
  return take_view(r, select_view(r->view, r->dim, px_scalar_int(scalar), r->position));
}

static int apply_data(parsed_index *r, PyObject *data) {
  EXT_OWNED *item = is_array(data) ? Py_NewRef(data) : PySequence_List(data);
  if (!item) return -1;
  PX_SCOPED(px_tensor) index = ext_tensor_from(item, PX_DTYPE_NONE, px_cpu());
  if (!index) return -1;
  if (px_tensor_numel(index) == 0 && px_dtype_is_float(px_tensor_dtype(index))) {
    px_release(index);
    index = ext_tensor_from(item, PX_INT64, px_cpu());
    if (!index) return -1;
  }
  return apply_tensor(r, index);
}

static int apply_item(parsed_index *r, PyObject *item) {
  int64_t index;
  if (PyLong_CheckExact(item)) {
    if (ext_to_int(item, &index) < 0) return -1;
    return take_view(r, select_view(r->view, r->dim, index, r->position));
  }
  if (item == Py_Ellipsis) {
    r->dim += r->ellipsis_dims;
    return 0;
  }
  if (item == Py_None) {
    if (take_view(r, unsqueezed(r->view, r->dim)) < 0) return -1;
    r->dim++;
    return 0;
  }
  if (PySlice_Check(item)) {
    if (take_view(r, slice_view(r->view, r->dim, item)) < 0) return -1;
    r->dim++;
    return 0;
  }
  if (PyBool_Check(item)) return apply_bool(r, item == Py_True);
  if (ext_is_tensor(item)) return apply_tensor(r, ext_tensor(item));
  if (is_data(item)) return apply_data(r, item);
  if (PyFloat_Check(item) || !PyIndex_Check(item)) return fail_index(item);
  if (ext_to_int(item, &index) < 0) return -1;
  return take_view(r, select_view(r->view, r->dim, index, r->position));
}

// A list with a non-number item is treated as a tuple, as in PyTorch.
static bool is_nested_list(PyObject *index) {
  if (!PyList_CheckExact(index) || PyList_GET_SIZE(index) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(index); i++) {
    PyObject *item = PyList_GET_ITEM(index, i);
    if (ext_is_tensor(item) || PySlice_Check(item) || PySequence_Check(item) || item == Py_None ||
        item == Py_Ellipsis)
      return true;
  }
  return false;
}
static PyObject *tuple_of_list(PyObject *list) {
  if (PyErr_WarnEx(
          PyExc_UserWarning,
          "Using a non-tuple sequence for multidimensional indexing is deprecated and will be "
          "changed in pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will "
          "be interpreted as tensor index, x[torch.tensor(seq)], which will result either in an "
          "error or a different result",
          1) < 0)
    return NULL;
  return PyList_AsTuple(list);
}

// Parses and applies the index. All items are checked first: the size of the ellipsis depends on
// all others, and a bad item must leave no view.
static int read_index(parsed_index *r, PyObject *self, PyObject *index) {
  *r = (parsed_index){.view = px_retain(ext_tensor(self))};
  EXT_OWNED *items = PyTuple_Check(index)    ? Py_NewRef(index)
                     : is_nested_list(index) ? tuple_of_list(index)
                                             : PyTuple_Pack(1, index);
  if (!items) return -1;
  int ndim = px_tensor_ndim(r->view), dims = 0, ellipses = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
    PyObject *item = PyTuple_GET_ITEM(items, i);
    if (!is_basic(item) && !ext_is_tensor(item) && !PyBool_Check(item) && !is_data(item) &&
        (PyFloat_Check(item) || !PyIndex_Check(item)))
      return fail_index(item);
    dims += dims_of(item);
    ellipses += item == Py_Ellipsis;
  }
  if (dims > ndim && ndim == 0 && PyTuple_GET_SIZE(items) == 1) {
    PyObject *alone = PyTuple_GET_ITEM(items, 0);
    if (PyLong_CheckExact(alone)) return select_view(r->view, 0, 0, 0) ? 0 : -1;
    if (PySlice_Check(alone)) return slice_view(r->view, 0, alone) ? 0 : -1;
  }
  if (dims > ndim)
    EXT_FAIL_INT(PyExc_IndexError, "too many indices for tensor of dimension %d", ndim);
  r->ellipsis_dims = ellipses ? ndim - dims : 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
    r->position = (int)i;
    if (apply_item(r, PyTuple_GET_ITEM(items, i)) < 0) return -1;
  }
  return 0;
}

// The given index tensors and their dimensions.
typedef struct index_tensors {
  px_tensor *indices[PX_MAX_DIMS];
  int64_t dims[PX_MAX_DIMS];
  int count;
} index_tensors;

static index_tensors index_tensors_of(const parsed_index *r) {
  index_tensors p = {.count = 0};
  for (int i = 0; i < r->index_count; i++) {
    if (!r->indices[i]) continue;
    p.indices[p.count] = r->indices[i];
    p.dims[p.count++] = i;
  }
  return p;
}

static PyObject *call_index(const parsed_index *r) {
  index_tensors p = index_tensors_of(r);
  return ext_op_named(EXT_OP("index"), PX_CALL_NEW, 3,
                      (ext_named[]){{"self", PX_T(r->view)},
                                    {"indices", PX_TS(p.indices, p.count)},
                                    {"dims", PX_IS(p.dims, p.count)}});
}

static px_tensor *call_index_put(const parsed_index *r, px_call_mode mode, px_tensor *values,
                                 bool accumulate) {
  index_tensors p = index_tensors_of(r);
  ext_named named[] = {{"self", PX_T(r->view)},
                       {"indices", PX_TS(p.indices, p.count)},
                       {"dims", PX_IS(p.dims, p.count)},
                       {"values", PX_T(values)},
                       {"accumulate", PX_B(accumulate)}};
  return ext_op_tensor(EXT_OP("index_put"), mode, 5, named);
}

// ---- reading
static bool index_overrides(PyObject *index) {
  return !PyLong_CheckExact(index) && !PySlice_Check(index) && ext_any_overrides(&index, 1);
}

static PyObject *full_view(PyObject *self) {
  px_tensor *t = ext_tensor(self);
  return ext_op_named(
      EXT_OP("view"), PX_CALL_NEW, 2,
      (ext_named[]){{"self", PX_T(t)}, {"size", PX_IS(px_tensor_sizes(t), px_tensor_ndim(t))}});
}

PyObject *ext_getitem(PyObject *self, PyObject *index) {
  if (ext_is_overridden(self) || index_overrides(index))
    return ext_call_slot_override("__getitem__", self, index, NULL);
  if (PyLong_CheckExact(index)) {
    int64_t i;
    px_tensor *view = ext_to_int(index, &i) < 0 ? NULL : select_view(ext_tensor(self), 0, i, 0);
    return view ? ext_wrap(view) : NULL;
  }
  parsed_index r;
  PyObject *result = NULL;
  if (read_index(&r, self, index) < 0) {
    result = NULL;
  } else if (r.index_count) {
    result = call_index(&r);
  } else if (r.view == ext_tensor(self)) {
    result = full_view(self);
  } else {
    result = ext_wrap(r.view);
    r.view = NULL;
  }
  parsed_index_free(&r);
  return result;
}

// ---- writing
// A number given for elements of self, as a new reference: complex numbers only if self is complex.
static PyObject *number_for(const px_tensor *self, PyObject *value) {
  px_dtype dtype = px_tensor_dtype(self);
  if (ext_is_complex(value) && !px_dtype_is_complex(dtype)) return ext_real_number(value, dtype);
  int overflow = 0;
  if (PyLong_CheckExact(value)) PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow && dtype != PX_UINT64)
    EXT_FAIL(PyExc_ValueError, "Overflow when unpacking long long");
  px_scalar scalar;
  bool exact = !px_dtype_is_float(dtype) && !px_dtype_is_complex(dtype);
  if (!exact || !ext_is_number(value)) return Py_NewRef(value);
  if (ext_to_scalar(value, &scalar) < 0) return NULL;
  if (!px_scalar_fits(scalar, dtype))
    EXT_FAIL(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
             px_dtype_about(dtype)->c_name);
  return Py_NewRef(value);
}

// The value as a new reference; a number becomes a 0-dim tensor of self's dtype.
static px_tensor *value_tensor(const px_tensor *self, PyObject *value) {
  if (ext_is_tensor(value)) return px_retain(ext_tensor(value));
  char text[48];
  if (!ext_is_number(value) && !ext_is_complex(value)) {
    PyErr_Format(PyExc_TypeError, "can't assign a %s to a %s", ext_type_name(value),
                 px_tensor_type_name(self, text));
    return NULL;
  }
  EXT_OWNED *number = number_for(self, value);
  return number ? ext_tensor_from(number, px_tensor_dtype(self), px_tensor_device(self)) : NULL;
}

// Drops leading dimensions of size 1 missing in the destination.
static px_tensor *without_leading_ones(px_tensor *value, int ndim) {
  int skip = 0, have = px_tensor_ndim(value);
  while (have - skip > ndim && px_tensor_sizes(value)[skip] == 1) skip++;
  if (!skip) return px_retain(value);
  return ext_op_tensor(EXT_OP("reshape"), PX_CALL_NEW, 2,
                       (ext_named[]){{"self", PX_T(value)},
                                     {"shape", PX_IS(px_tensor_sizes(value) + skip, have - skip)}});
}

// Expands to the destination's size; fails like expand.
static px_tensor *expand_to(px_tensor *value, const px_tensor *view) {
  int ndim = px_tensor_ndim(view);
  const int64_t *sizes = px_tensor_sizes(view);
  bool same = px_tensor_ndim(value) == ndim &&
              (!ndim || !memcmp(px_tensor_sizes(value), sizes, (size_t)ndim * sizeof *sizes));
  if (same || !px_tensor_ndim(value)) return px_retain(value);
  return ext_op_tensor(EXT_OP("expand"), PX_CALL_NEW, 2,
                       (ext_named[]){{"self", PX_T(value)}, {"size", PX_IS(sizes, ndim)}});
}

static int write_view(px_tensor *view, PyObject *value) {
  px_scalar scalar;
  bool complex = px_dtype_is_complex(px_tensor_dtype(view));
  if (!ext_is_tensor(value) && (ext_is_number(value) || (ext_is_complex(value) && !complex))) {
    EXT_OWNED *number = number_for(view, value);
    if (!number || ext_to_scalar(number, &scalar) < 0) return -1;
    PX_SCOPED(px_tensor)
    done = ext_op_tensor(EXT_OP("fill"), PX_CALL_INPLACE, 2,
                         (ext_named[]){{"self", PX_T(view)}, {"value", PX_S(scalar)}});
    return done ? 0 : -1;
  }
  PX_SCOPED(px_tensor) given = value_tensor(view, value);
  PX_SCOPED(px_tensor) part = given ? without_leading_ones(given, px_tensor_ndim(view)) : NULL;
  PX_SCOPED(px_tensor) source = part ? expand_to(part, view) : NULL;
  if (!source) return -1;
  PX_SCOPED(px_tensor)
  done = ext_op_tensor(EXT_OP("copy"), PX_CALL_INPLACE, 2,
                       (ext_named[]){{"self", PX_T(view)}, {"src", PX_T(source)}});
  return done ? 0 : -1;
}

static const px_tensor *only_index(const parsed_index *r) {
  const px_tensor *found = NULL;
  for (int i = 0; i < r->index_count; i++) {
    if (!r->indices[i]) continue;
    if (found) return NULL;
    found = r->indices[i];
  }
  return found;
}
// PyTorch fills the elements of a single index tensor, and the value must fit: unlike one that is
// stored in a 0-dim tensor.
static int check_fill(const parsed_index *r, PyObject *value) {
  px_dtype dtype = px_tensor_dtype(r->view);
  bool real = !px_dtype_is_complex(dtype);
  px_scalar scalar;
  const px_tensor *index = only_index(r);
  if (!index || ext_is_tensor(value)) return 0;
  if (ext_is_complex(value) && real && !is_mask(index) && px_tensor_ndim(index))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  if (!ext_is_number(value) || !px_dtype_is_float(dtype)) return 0;
  EXT_OWNED *number = number_for(r->view, value);
  if (!number || ext_to_scalar(number, &scalar) < 0) return -1;
  if (!px_scalar_fits(scalar, dtype))
    EXT_FAIL_INT(PyExc_RuntimeError, "value cannot be converted to type %s without overflow",
                 px_dtype_about(dtype)->c_name);
  return 0;
}

static int write_index(parsed_index *r, PyObject *value) {
  if (check_fill(r, value) < 0) return -1;
  PX_SCOPED(px_tensor) given = value_tensor(r->view, value);
  PX_SCOPED(px_tensor) source = given ? without_leading_ones(given, 0) : NULL;
  PX_SCOPED(px_tensor)
  done = source ? call_index_put(r, PX_CALL_INPLACE, source, false) : NULL;
  return done ? 0 : -1;
}

// The given index tensors. A 0-dim integer becomes a list of one: it is no view to write to.
static PyObject *tensors_of(const char *name, PyObject *indices) {
  if (!PyTuple_Check(indices) && !PyList_Check(indices))
    EXT_FAIL(PyExc_TypeError, "%s(): argument 'indices' must be tuple of Tensors, not %s", name,
             ext_type_name(indices));
  EXT_OWNED *list = PySequence_List(indices);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (!ext_is_tensor(item))
      EXT_FAIL(PyExc_TypeError, "expected Tensor as element %zd in argument 0, but got %s", i,
               ext_type_name(item));
    px_tensor *index = ext_tensor(item);
    if (px_tensor_ndim(index) || is_mask(index) || px_dtype_is_float(px_tensor_dtype(index)))
      continue;
    px_tensor *line = unsqueezed(index, 0);
    if (!line || PyList_SetItem(list, i, ext_wrap(line)) < 0) return NULL;
  }
  return list ? PyList_AsTuple(list) : NULL;
}

// Writes values at the indices to self in place, or to a copy of it.
static PyObject *put_values(PyObject *self, PyObject *index, px_call_mode mode, px_tensor *values,
                            bool accumulate) {
  parsed_index r;
  px_tensor *made = NULL;
  if (!self || !index) return NULL;
  if (read_index(&r, self, index) == 0) made = call_index_put(&r, mode, values, accumulate);
  parsed_index_free(&r);
  if (!made || mode == PX_CALL_NEW) return made ? ext_wrap(made) : NULL;
  px_release(made);
  return Py_NewRef(self);
}
EXT_FUNCTION_AND_METHOD(
    torch, tensor, index_put,
    "(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = "
    "False) -> Tensor",
    "Returns a copy of `input` with `values` written or added at the indices.\n\n"
    ">>> torch.index_put(torch.zeros(3), (torch.tensor([1]),), torch.tensor(2.))\n"
    "tensor([0., 2., 0.])\n") {
  PyObject *input, *indices;
  px_tensor *values;
  bool accumulate;
  EXT_BIND(input, indices, values, accumulate);
  if (!ext_need_tensor(input, "index_put", "input")) return NULL;
  EXT_OWNED *index = tensors_of("index_put", indices);
  return put_values(input, index, PX_CALL_NEW, values, accumulate);
}
// ---- masked indexing

// Clamps the indices to the sizes of `self`: results of out-of-range indices are masked out.
static PyObject *clamp_indices(px_tensor *self, PyObject *indices) {
  EXT_OWNED *given = ext_items(indices, "argument 'indices' must be tuple of Tensors");
  Py_ssize_t count = given ? PySequence_Fast_GET_SIZE(given) : 0;
  EXT_OWNED *made = given ? PyTuple_New(count) : NULL;
  if (made && count > px_tensor_ndim(self))
    EXT_FAIL(PyExc_IndexError, "too many indices for tensor of dimension %d", px_tensor_ndim(self));
  for (Py_ssize_t i = 0; made && i < count; i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(given, i);
    int64_t size = px_tensor_sizes(self)[i];
    px_tensor *index = item == Py_None ? NULL : ext_need_tensor(item, "index", "indices");
    if (!index && item != Py_None) return NULL;
    PyObject *kept = index ? ext_op_named(EXT_OP("clamp"), PX_CALL_NEW, 3,
                                          (ext_named[]){{"self", PX_T(index)},
                                                        {"min", PX_S(px_int(-size))},
                                                        {"max", PX_S(px_int(size - 1))}})
                           : PySlice_New(NULL, NULL, NULL);
    if (!kept) return NULL;
    PyTuple_SET_ITEM(made, i, kept);
  }
  return ext_moved(&made);
}
static PyObject *filled_outside(px_tensor *t, px_tensor *mask, px_scalar fill) {
  PX_SCOPED(px_tensor)
  outside =
      ext_op_tensor(EXT_OP("logical_not"), PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(mask)}});
  if (!outside) return NULL;
  return ext_op_named(
      EXT_OP("masked_fill"), PX_CALL_NEW, 3,
      (ext_named[]){{"self", PX_T(t)}, {"mask", PX_T(outside)}, {"value", PX_S(fill)}});
}
EXT_FUNCTION(
    torch, _unsafe_masked_index,
    "(input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Number) -> "
    "Tensor",
    "Returns input[indices] where `mask` is True, else `fill`; masked indices may be out of "
    "range.") {
  px_tensor *input, *mask;
  PyObject *indices;
  px_scalar fill;
  EXT_BIND(input, mask, indices, fill);
  EXT_OWNED *index = clamp_indices(input, indices);
  EXT_OWNED *from = index ? ext_wrap_borrowed(input) : NULL;
  EXT_OWNED *picked = from ? ext_getitem(from, index) : NULL;
  return picked ? filled_outside(ext_tensor(picked), mask, fill) : NULL;
}
EXT_FUNCTION(torch, _unsafe_masked_index_put_accumulate,
             "(input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> "
             "Tensor",
             "Returns a copy of `input` with `values` added at the indices where `mask` is True; "
             "masked\nindices may be out of range.") {
  px_tensor *input, *mask, *values;
  PyObject *indices;
  EXT_BIND(input, mask, indices, values);
  EXT_OWNED *from = ext_wrap_borrowed(input);
  if (!from) return NULL;
  if (px_tensor_numel(input) == 0) return PyObject_CallMethod(from, "clone", NULL);
  EXT_OWNED *index = clamp_indices(input, indices);
  EXT_OWNED *added = index ? filled_outside(values, mask, px_int(0)) : NULL;
  return added ? put_values(from, index, PX_CALL_NEW, ext_tensor(added), true) : NULL;
}

EXT_METHOD(tensor, index_put_,
           "(indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor",
           "Writes values at the indices, in-place; with accumulate adds them, including those of "
           "repeated\nindices.\n\n"
           ">>> x = torch.zeros(3)\n"
           ">>> x.index_put_((torch.tensor([1, 1]),), torch.tensor(1.), accumulate=True)\n"
           "tensor([0., 2., 0.])\n") {
  PyObject *indices;
  px_tensor *values;
  bool accumulate;
  EXT_BIND(indices, values, accumulate);
  EXT_OWNED *index = tensors_of("index_put_", indices);
  return put_values(self, index, PX_CALL_INPLACE, values, accumulate);
}

int ext_setitem(PyObject *self, PyObject *index, PyObject *value) {
  if (!value) EXT_FAIL_INT(PyExc_TypeError, "Tensor does not support deleting items");
  if (ext_is_overridden(self) || index_overrides(index) || ext_overrides(value)) {
    EXT_OWNED *done = ext_call_slot_override("__setitem__", self, index, value);
    return done ? 0 : -1;
  }
  parsed_index r;
  int status = read_index(&r, self, index);
  if (status == 0) status = r.index_count ? write_index(&r, value) : write_view(r.view, value);
  parsed_index_free(&r);
  return status;
}

// ---- the slots
static Py_ssize_t tensor_length(PyObject *self) {
  if (ext_is_overridden(self)) {
    EXT_OWNED *length = ext_call_slot_override("__len__", self, NULL, NULL);
    return length ? PyLong_AsSsize_t(length) : -1;
  }
  const px_tensor *tensor = ext_tensor(self);
  if (px_tensor_ndim(tensor) == 0) EXT_FAIL_INT(PyExc_TypeError, "len() of a 0-d tensor");
  return (Py_ssize_t)px_tensor_size(tensor, 0);
}

static PyObject *tensor_item_at(PyObject *self, Py_ssize_t i) {
  EXT_OWNED *index = PyLong_FromSsize_t(i);
  return index ? ext_getitem(self, index) : NULL;
}

static PyObject *tensor_iter(PyObject *self) {
  if (px_tensor_ndim(ext_tensor(self)) == 0)
    EXT_FAIL(PyExc_TypeError, "iteration over a 0-d tensor");
  PyObject *unbind = ext_op_object('f', "unbind");
  if (!unbind) EXT_FAIL(PyExc_NotImplementedError, "unbind");
  EXT_OWNED *items = PyObject_CallOneArg(unbind, self);
  return items ? PyObject_GetIter(items) : NULL;
}

static int tensor_contains(PyObject *self, PyObject *element) {
  if (ext_is_overridden(self) || ext_overrides(element)) {
    EXT_OWNED *found = ext_call_slot_override("__contains__", self, element, NULL);
    return found ? PyObject_IsTrue(found) : -1;
  }
  if (!ext_is_tensor(element) && !ext_is_number(element))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %R.",
                 (PyObject *)Py_TYPE(element));
  EXT_OWNED *equal = PyObject_RichCompare(self, element, Py_EQ);
  EXT_OWNED *any = equal ? PyObject_CallMethod(equal, "any", NULL) : NULL;
  return any ? PyObject_IsTrue(any) : -1;
}

static PySequenceMethods sequence = {
    .sq_length = tensor_length, .sq_item = tensor_item_at, .sq_contains = tensor_contains};
static PyMappingMethods mapping = {
    .mp_length = tensor_length, .mp_subscript = ext_getitem, .mp_ass_subscript = ext_setitem};
EXT_SLOT(tensor_base, tp_as_sequence, &sequence);
EXT_SLOT(tensor_base, tp_as_mapping, &mapping);
EXT_SLOT(tensor_base, tp_iter, tensor_iter);
