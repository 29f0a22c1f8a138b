// SPDX-License-Identifier: Apache-2.0
// Core functions of torch.distributed.checkpoint (phlox/distributed/_checkpoint.py): nested state
// dicts as lists of tensors and values, and their files.
#include "phlox/checkpoint.h"

#include <string.h>

#include "phlox/ops/copy.h"
#include "dist/placements.h"
#include "io/tree.h"

// ---- nested dicts as [(name, container, key, value), ...]; a name joins the keys with dots

static int flatten(PyObject *leaves, PyObject *name, PyObject *container, PyObject *key,
                   PyObject *value);

static PyObject *name_below(PyObject *name, PyObject *key) {
  EXT_OWNED *text = PyObject_Str(key);
  if (!text || !PyUnicode_GET_LENGTH(name)) return ext_moved(&text);
  return PyUnicode_FromFormat("%U.%U", name, text);
}

static int flatten_part(PyObject *leaves, PyObject *name, PyObject *container, PyObject *key,
                        PyObject *value) {
  EXT_OWNED *below = name_below(name, key);
  return below ? flatten(leaves, below, container, key, value) : -1;
}

static int flatten_dict(PyObject *leaves, PyObject *name, PyObject *dict) {
  EXT_OWNED *items = PyMapping_Items(dict);
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items); i++) {
    PyObject *pair = PyList_GET_ITEM(items, i);
    if (flatten_part(leaves, name, dict, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1)) < 0)
      return -1;
  }
  return items ? 0 : -1;
}

static int flatten_list(PyObject *leaves, PyObject *name, PyObject *list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    EXT_OWNED *key = PyLong_FromSsize_t(i);
    if (!key || flatten_part(leaves, name, list, key, PyList_GET_ITEM(list, i)) < 0) return -1;
  }
  return 0;
}

// True if a list contains tensors or dicts; a list of plain values is one value.
static int has_parts(PyObject *list) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *item = PyList_GET_ITEM(list, i);
    if (ext_is_tensor(item) || PyDict_Check(item) || (PyList_Check(item) && has_parts(item)))
      return true;
  }
  return false;
}

static int flatten(PyObject *leaves, PyObject *name, PyObject *container, PyObject *key,
                   PyObject *value) {
  if (Py_EnterRecursiveCall(" while a state dict is flattened")) return -1;
  int bad = 0;
  if (PyDict_Check(value) && PyDict_GET_SIZE(value)) {
    bad = flatten_dict(leaves, name, value);
  } else if (PyList_Check(value) && has_parts(value)) {
    bad = flatten_list(leaves, name, value);
  } else {
    EXT_OWNED *leaf = PyTuple_Pack(4, name, container, key, value);
    bad = leaf ? PyList_Append(leaves, leaf) : -1;
  }
  Py_LeaveRecursiveCall();
  return bad;
}

EXT_FUNCTION(torch, _checkpoint_leaves, "(state: dict) -> list[tuple]",
             "Returns name, container, key and value of all leaves of nested dicts.") {
  PyObject *state;
  EXT_BIND(state);
  if (!PyDict_Check(state))
    EXT_FAIL(PyExc_TypeError, "state_dict must be a dict, not %s", ext_type_name(state));
  EXT_OWNED *leaves = PyList_New(0);
  EXT_OWNED *none = PyUnicode_FromString("");
  if (!leaves || !none || flatten_dict(leaves, none, state) < 0) return NULL;
  return ext_moved(&leaves);
}

// ---- tensors as items

typedef struct items {
  px_checkpoint_item *list;
  int64_t (*sizes)[PX_MAX_DIMS];
  PyObject *keep;          // the leaves
  PyObject *full_tensors;  // pairs of a tensor not sharded by rows, and its full tensor
  int count;
} items;

static void items_end(items *all) {
  PyMem_Free(all->list);
  PyMem_Free(all->sizes);
  Py_CLEAR(all->keep);
  Py_CLEAR(all->full_tensors);
}

// Items not sharded by rows use a full tensor: gathered to save, or allocated to read into.
static int add_full_tensor(items *all, px_checkpoint_item *item, const ext_dtensor_spec *of,
                           PyObject *tensor, bool reads) {
  px_tensor *whole, *part = ext_tensor(tensor);
  EXT_TRY_INT(reads ? px_tensor_empty(&whole, of->layout.ndim, of->sizes, px_tensor_dtype(part),
                                      px_tensor_device(part))
                    : EXT_NOGIL(ext_full_tensor(&whole, of, part)));
  EXT_OWNED *object = ext_wrap(whole);
  EXT_OWNED *pair = object ? PyTuple_Pack(2, tensor, object) : NULL;
  item->part = whole;
  return pair ? PyList_Append(all->full_tensors, pair) : -1;
}

// A tensor sharded by rows is saved as this rank's rows of the full tensor.
static int add_rows(items *all, px_checkpoint_item *item, PyObject *tensor, bool reads) {
  ext_dtensor_spec of;
  int64_t first[PX_MAX_DIMS], own[PX_MAX_DIMS], *sizes = all->sizes[all->count];
  bool rows = true;
  EXT_OWNED *spec = ext_spec_of(&of, tensor);
  if (!spec || ext_spec_is_replicated(&of)) return spec ? 0 : -1;
  EXT_TRY_INT(px_layout_part(own, first, &of.layout));
  for (int m = 0; m < px_mesh_ndim(of.layout.mesh); m++)
    rows &= of.placements[m].kind != PX_PLACEMENT_PARTIAL && !of.placements[m].dim;
  if (!rows) return add_full_tensor(all, item, &of, tensor, reads);
  memcpy(sizes, of.sizes, sizeof of.sizes);
  item->sizes = sizes, item->first = first[0];
  return 0;
}

// Copies this rank's shards out of the full tensors read.
static int store_shards(const items *all) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(all->full_tensors); i++) {
    PyObject *pair = PyList_GET_ITEM(all->full_tensors, i), *tensor = PyTuple_GET_ITEM(pair, 0);
    ext_dtensor_spec of;
    PX_SCOPED(px_tensor) part = NULL;
    PX_SCOPED(px_tensor) to = NULL;
    EXT_OWNED *spec = ext_spec_of(&of, tensor);
    if (!spec) return -1;
    EXT_TRY_INT(px_layout_extract(&part, &of.layout, ext_tensor(PyTuple_GET_ITEM(pair, 1))));
    EXT_TRY_INT(px_tensor_detach(&to, ext_tensor(tensor)));
    EXT_TRY_INT(EXT_NOGIL(px_copy_(to, part, false)));
  }
  return 0;
}

static int add_items(items *all, PyObject *leaves, bool reads) {
  EXT_OWNED *list = ext_items(leaves, "leaves must be a list");
  Py_ssize_t n = list ? PySequence_Fast_GET_SIZE(list) : 0;
  if (!list) return -1;
  all->list = PyMem_Calloc((size_t)n + 1, sizeof *all->list);
  all->sizes = PyMem_Calloc((size_t)n + 1, sizeof *all->sizes);
  if (!all->list || !all->sizes) return PyErr_NoMemory(), -1;
  if (!(all->full_tensors = PyList_New(0))) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *leaf = PySequence_Fast_GET_ITEM(list, i), *tensor = PyTuple_GET_ITEM(leaf, 3);
    px_checkpoint_item *item = &all->list[all->count];
    if (!ext_is_tensor(tensor)) continue;
    *item = (px_checkpoint_item){.name = ext_text(PyTuple_GET_ITEM(leaf, 0)),
                                 .part = ext_tensor(tensor)};
    if (!item->name) return -1;
    if (ext_is_sharded(tensor) && add_rows(all, item, tensor, reads) < 0) return -1;
    all->count++;
  }
  all->keep = ext_moved(&list);
  return 0;
}

// Non-tensor leaves by name.
static px_tree *values_of(PyObject *leaves) {
  EXT_OWNED *dict = PyDict_New();
  for (Py_ssize_t i = 0; dict && i < PyList_GET_SIZE(leaves); i++) {
    PyObject *leaf = PyList_GET_ITEM(leaves, i), *value = PyTuple_GET_ITEM(leaf, 3);
    if (ext_is_tensor(value)) continue;
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(leaf, 0), value) < 0) return NULL;
  }
  return dict ? ext_tree_from(dict) : NULL;
}

static const char *path_in(PyObject *path, PyObject **keep) {
  return PyUnicode_FSConverter(path, keep) ? PyBytes_AS_STRING(*keep) : NULL;
}

EXT_FUNCTION(torch, _checkpoint_save,
             "(path: Any, group: Any | None, device: Device, leaves: list[tuple]) -> None",
             "Writes this rank's part of a checkpoint of the leaves.") {
  PyObject *path, *group, *leaves;
  px_device device;
  __attribute__((cleanup(items_end))) items all = {0};
  EXT_BIND(path, group, device, leaves);
  EXT_OWNED *keep = NULL;
  const char *folder = path_in(path, &keep);
  px_comm *comm = folder && !ext_is_none(group) ? ext_comm(group) : NULL;
  if (!folder || PyErr_Occurred() || add_items(&all, leaves, false) < 0) return NULL;
  PX_SCOPED(px_tree) values = values_of(leaves);
  if (!values) return NULL;
  EXT_WAIT(px_checkpoint_save(folder, comm, device, all.list, all.count, values));
  Py_RETURN_NONE;
}

static PyObject *wrap_tensor(px_tensor *tensor, px_device home, void *context) {
  return ext_wrap_borrowed(tensor);
}

// Stores a value in its container.
static int store_value(PyObject *leaf, PyObject *values) {
  PyObject *name = PyTuple_GET_ITEM(leaf, 0);
  PyObject *value = PyDict_GetItemWithError(values, name);
  if (value) return PyObject_SetItem(PyTuple_GET_ITEM(leaf, 1), PyTuple_GET_ITEM(leaf, 2), value);
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_RuntimeError, "Missing key in checkpoint state_dict: %U.", name);
  return -1;
}

EXT_FUNCTION(torch, _checkpoint_load, "(path: Any, leaves: list[tuple]) -> None",
             "Reads a checkpoint into the tensors and containers of the leaves.") {
  PyObject *path, *leaves;
  __attribute__((cleanup(items_end))) items all = {0};
  EXT_BIND(path, leaves);
  EXT_OWNED *keep = NULL;
  PX_SCOPED(px_checkpoint) saved = NULL;
  const char *folder = path_in(path, &keep);
  if (!folder || add_items(&all, leaves, true) < 0) return NULL;
  EXT_WAIT(px_checkpoint_open(&saved, folder));
  EXT_OWNED *values = ext_tree_object(px_checkpoint_values(saved), wrap_tensor, NULL);
  if (!values) return NULL;
  EXT_WAIT(px_checkpoint_read(saved, all.list, all.count));
  if (store_shards(&all) < 0) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(leaves); i++) {
    PyObject *leaf = PyList_GET_ITEM(leaves, i);
    if (!ext_is_tensor(PyTuple_GET_ITEM(leaf, 3)) && store_value(leaf, values) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

EXT_FUNCTION(torch, _checkpoint_sizes, "(path: Any) -> dict[str, tuple]",
             "Returns dtype and full size of each tensor of a checkpoint, by name.") {
  PyObject *path;
  EXT_BIND(path);
  EXT_OWNED *keep = NULL;
  PX_SCOPED(px_checkpoint) saved = NULL;
  const char *folder = path_in(path, &keep);
  if (!folder) return NULL;
  EXT_WAIT(px_checkpoint_open(&saved, folder));
  EXT_OWNED *dict = PyDict_New();
  px_checkpoint_entry entry;
  for (int i = 0; dict && px_checkpoint_at(saved, i, &entry); i++) {
    EXT_OWNED *pair =
        Py_BuildValue("(NN)", ext_dtype(entry.dtype), ext_size(entry.ndim, entry.sizes));
    if (!pair || PyDict_SetItemString(dict, entry.name, pair) < 0) return NULL;
  }
  return ext_moved(&dict);
}
