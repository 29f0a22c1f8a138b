// SPDX-License-Identifier: Apache-2.0
// Python objects as trees of values. Types are preserved: objects of types without a file format
// are rejected, not converted to similar ones. Only NumPy scalars become Python numbers.
#include "io/tree.h"

#include <string.h>

// ---- to a tree

// The nesting depth is bounded, by the file format's limit: containers may contain themselves.
static px_tree *to_tree(PyObject *object, int depth);

static px_tree *fail_unsupported(PyObject *object) {
  EXT_OWNED *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__qualname__");
  const char *hint = PyObject_HasAttrString(object, "state_dict")
                         ? "; save its state_dict() instead"
                     : ext_is_array(object) ? "; convert it with torch.from_numpy"
                                            : "";
  if (!name) return NULL;
  PyErr_Format(PyExc_NotImplementedError,
               "torch.save writes safetensors: tensors, numbers, strings, None, and lists, tuples "
               "and dicts of them; an object of type '%U' cannot be saved%s",
               name, hint);
  return NULL;
}

static px_tree *number_tree(PyObject *object) {
  px_scalar number;
  px_tree *made = NULL;
  if (ext_to_scalar(object, &number) < 0) return NULL;
  if (number.kind == 'u') EXT_FAIL(PyExc_ValueError, "integers beyond int64 cannot be saved");
  EXT_TRY(px_tree_number(&made, number));
  return made;
}

static px_tree *text_tree(PyObject *object) {
  px_tree *made = NULL;
  const char *text = ext_text(object);
  if (!text) return NULL;
  EXT_TRY(px_tree_text(&made, text));
  return made;
}

static px_tree *sequence_tree(PyObject *object, px_tree_kind kind, int depth) {
  PX_SCOPED(px_tree) made = NULL;
  EXT_OWNED *items = PySequence_Tuple(object);
  if (!items) return NULL;
  EXT_TRY(px_tree_new(&made, kind));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
    PX_SCOPED(px_tree) part = to_tree(PyTuple_GET_ITEM(items, i), depth);
    if (!part) return NULL;
    EXT_TRY(px_tree_append(made, part));
  }
  return PX_MOVE(made);
}

static px_tree *dict_tree(PyObject *object, px_tree_kind kind, int depth) {
  PX_SCOPED(px_tree) made = NULL;
  EXT_OWNED *items = PyMapping_Items(object);
  if (!items) return NULL;
  EXT_TRY(px_tree_new(&made, kind));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
    PyObject *pair = PyList_GET_ITEM(items, i);
    PX_SCOPED(px_tree) key = to_tree(PyTuple_GET_ITEM(pair, 0), depth);
    PX_SCOPED(px_tree) value = key ? to_tree(PyTuple_GET_ITEM(pair, 1), depth) : NULL;
    if (!value) return NULL;
    EXT_TRY(px_tree_add(made, key, value));
  }
  return PX_MOVE(made);
}

static px_tree *tensor_tree(PyObject *object) {
  px_tree *made = NULL;
  EXT_TRY(px_tree_tensor(&made, ext_tensor(object)));
  return made;
}

// Non-tensor values of torch.
static px_tree *torch_tree(PyObject *object) {
  px_tree *made = NULL;
  px_dtype dtype;
  px_device device;
  if (ext_is_dtype(object)) {
    if (ext_to_dtype(object, &dtype) < 0) return NULL;
    EXT_TRY(px_tree_dtype(&made, dtype));
    return made;
  }
  if (!ext_is_device(object)) return fail_unsupported(object);
  if (ext_to_device(object, &device) < 0) return NULL;
  EXT_TRY(px_tree_device(&made, device));
  return made;
}

static bool is_ordered(PyObject *object) {
  return !strcmp(Py_TYPE(object)->tp_name, "collections.OrderedDict");
}

static px_tree *to_tree(PyObject *object, int depth) {
  px_tree *made = NULL;
  if (depth > PX_TREE_DEPTH)
    EXT_FAIL(PyExc_ValueError,
             "torch.save supports values nested up to %d levels; these are deeper, or contain "
             "themselves",
             PX_TREE_DEPTH);
  if (Py_IS_TYPE(object, ext_TensorType) || Py_IS_TYPE(object, ext_ParameterType))
    return tensor_tree(object);
  if (object == Py_None) {
    EXT_TRY(px_tree_none(&made));
    return made;
  }
  if (PyUnicode_CheckExact(object)) return text_tree(object);
  if (ext_is_number(object)) return number_tree(object);
  if (PyDict_CheckExact(object)) return dict_tree(object, PX_TREE_DICT, depth + 1);
  if (is_ordered(object)) return dict_tree(object, PX_TREE_ORDERED, depth + 1);
  if (PyList_CheckExact(object)) return sequence_tree(object, PX_TREE_LIST, depth + 1);
  if (PyTuple_CheckExact(object)) return sequence_tree(object, PX_TREE_TUPLE, depth + 1);
  if (Py_IS_TYPE(object, &ext_SizeType)) return sequence_tree(object, PX_TREE_SIZE, depth + 1);
  return torch_tree(object);
}

px_tree *ext_tree_from(PyObject *object) { return to_tree(object, 0); }

// ---- from a tree

typedef struct object_builder {
  ext_tree_tensor_fn place;
  void *context;
  PyObject *placed;  // a dict: address of a tensor to its object
} object_builder;

static PyObject *to_object(const px_tree *tree, object_builder *b);

static PyObject *tensor_object(const px_tree *tree, object_builder *b) {
  px_tensor *tensor = px_tree_get_tensor(tree);
  EXT_OWNED *address = PyLong_FromVoidPtr(tensor);
  PyObject *known = address ? PyDict_GetItemWithError(b->placed, address) : NULL;
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  EXT_OWNED *made = b->place(tensor, px_tree_get_device(tree), b->context);
  if (!made || PyDict_SetItem(b->placed, address, made) < 0) return NULL;
  return ext_moved(&made);
}

static PyObject *list_object(const px_tree *tree, object_builder *b) {
  EXT_OWNED *list = PyList_New(0);
  for (int64_t i = 0; list && i < px_tree_size(tree); i++) {
    EXT_OWNED *part = to_object(px_tree_at(tree, i), b);
    if (!part || PyList_Append(list, part) < 0) return NULL;
  }
  return ext_moved(&list);
}

static PyObject *tuple_object(const px_tree *tree, object_builder *b, bool size) {
  EXT_OWNED *list = list_object(tree, b);
  EXT_OWNED *tuple = list ? PyList_AsTuple(list) : NULL;
  if (!tuple || !size) return ext_moved(&tuple);
  return PyObject_CallOneArg((PyObject *)&ext_SizeType, tuple);
}

static PyObject *ordered_new(void) { return ext_call_from("collections", "OrderedDict", "()"); }

// A dict whose missing entries report unsupported dtypes.
static PyObject *partial_dict(PyObject *dict, PyObject *foreign) {
  return ext_call_from("phlox._files", "PartlyRead", "(OO)", dict, foreign);
}

static PyObject *dict_object(const px_tree *tree, object_builder *b, bool ordered) {
  EXT_OWNED *foreign = PyDict_New();
  EXT_OWNED *dict = ordered ? ordered_new() : PyDict_New();
  for (int64_t i = 0; dict && foreign && i < px_tree_size(tree); i++) {
    px_tree *part = px_tree_at(tree, i);
    bool known = px_tree_kind_of(part) != PX_TREE_FOREIGN;
    EXT_OWNED *key = to_object(px_tree_key(tree, i), b);
    EXT_OWNED *value = !key ? NULL : known ? to_object(part, b) : ext_str(px_tree_get_text(part));
    if (!value || PyObject_SetItem(known ? dict : foreign, key, value) < 0) return NULL;
  }
  if (!dict || !foreign) return NULL;
  return PyDict_GET_SIZE(foreign) ? partial_dict(dict, foreign) : ext_moved(&dict);
}

static PyObject *to_object(const px_tree *tree, object_builder *b) {
  px_tree_kind kind = px_tree_kind_of(tree);
  switch (kind) {
    case PX_TREE_NUMBER:
      return ext_scalar(px_tree_get_number(tree));
    case PX_TREE_TEXT:
      return ext_str(px_tree_get_text(tree));
    case PX_TREE_DTYPE:
      return ext_dtype(px_tree_get_dtype(tree));
    case PX_TREE_DEVICE:
      return ext_device(px_tree_get_device(tree));
    case PX_TREE_TENSOR:
      return tensor_object(tree, b);
    case PX_TREE_LIST:
      return list_object(tree, b);
    case PX_TREE_TUPLE:
    case PX_TREE_SIZE:
      return tuple_object(tree, b, kind == PX_TREE_SIZE);
    case PX_TREE_DICT:
    case PX_TREE_ORDERED:
      return dict_object(tree, b, kind == PX_TREE_ORDERED);
    default:
      Py_RETURN_NONE;
  }
}

PyObject *ext_tree_object(const px_tree *tree, ext_tree_tensor_fn place, void *context) {
  EXT_OWNED *placed = PyDict_New();
  object_builder b = {place, context, placed};
  return placed ? to_object(tree, &b) : NULL;
}
