// SPDX-License-Identifier: Apache-2.0
// Trees of values in safetensors files and bytes, for torch.save and torch.load (phlox/_files.py).
// Nothing in a file is ever executed.
#include "phlox/ops/copy.h"
#include "io/tree.h"

// File name as UTF-8, owned by *keep.
static const char *path_of(PyObject *object, PyObject **keep) {
  PyObject *bytes = NULL;
  if (!PyUnicode_FSConverter(object, &bytes)) return NULL;
  *keep = bytes;
  return PyBytes_AS_STRING(bytes);
}

EXT_FUNCTION(torch, _save_tree, "(obj: object, path: object) -> bytes | None",
             "Writes a file, or returns its bytes if path is None.") {
  void *bytes;
  size_t length;
  EXT_ARGS(PyObject *, obj, path);
  EXT_OWNED *keep = NULL;
  PX_SCOPED(px_tree) tree = ext_tree_from(obj);
  if (!tree) return NULL;
  if (path != Py_None) {
    const char *name = path_of(path, &keep);
    if (!name) return NULL;
    EXT_WAIT(px_save_tree(name, tree));
    Py_RETURN_NONE;
  }
  EXT_WAIT(px_tree_encode(&bytes, &length, tree));
  PyObject *data = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
  px_free(bytes);
  return data;
}

// ---- files written by Python (.pt files) with the library's atomic commit

typedef struct file_object {
  PyObject_HEAD px_file *file;
} file_object;
EXT_OWNS(file, EXT_CORE(file_object, file));
EXT_NEW(file, "(path: object)") {
  EXT_ARGS(PyObject *, path);
  EXT_OWNED *keep = NULL;
  px_file *made = NULL;
  const char *name = path_of(path, &keep);
  if (!name) return NULL;
  EXT_WAIT(px_file_create(&made, name));
  file_object *self = ext_new(type);
  if (!self)
    px_release(made);
  else
    self->file = made;
  return (PyObject *)self;
}
EXT_TYPE(file, "torch._C._File", "_File", file_object, EXT_FINAL,
         "A file that gets its name on commit.", EXT_LIFETIME_SLOTS(file), .tp_new = file_new);
EXT_METHOD(file, write, "(data: bytes) -> int", "Writes bytes and returns their number.") {
  EXT_ARGS(PyObject *, data);
  Py_buffer bytes;
  px_file *file = ((file_object *)self)->file;
  if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0) return NULL;
  px_status status = EXT_NOGIL(px_file_write(file, bytes.buf, (size_t)bytes.len));
  Py_ssize_t length = bytes.len;
  PyBuffer_Release(&bytes);
  EXT_TRY(status);
  return PyLong_FromSsize_t(length);
}
EXT_METHOD0(file, commit, "None", "Commits the file.") {
  return ext_none(EXT_NOGIL(px_file_commit(((file_object *)self)->file)));
}

// Target device of tensors: the result of the Python function `device_of(tensor, home)`, per tensor
// if it needs the tensor, else per home device.
typedef struct device_mapping {
  PyObject *device_of;
  bool needs_tensor;
  px_device home, device;  // last argument and its cached result
} device_mapping;

static int mapping_update(device_mapping *p, PyObject *tensor, px_device home) {
  if (!p->needs_tensor && px_device_equal(home, p->home)) return 0;
  EXT_OWNED *from = ext_device(home);
  EXT_OWNED *wanted = from ? PyObject_CallFunctionObjArgs(
                                 p->device_of, p->needs_tensor ? tensor : Py_None, from, NULL)
                           : NULL;
  if (!wanted || ext_to_device(wanted, &p->device) < 0) return -1;
  p->home = home;
  return 0;
}

static PyObject *map_tensor(px_tensor *tensor, px_device home, void *context) {
  device_mapping *p = context;
  PX_SCOPED(px_tensor) data = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  EXT_OWNED *object = ext_wrap_borrowed(tensor);
  if (!object || mapping_update(p, object, home) < 0) return NULL;
  if (p->device.type == PX_CPU) return ext_moved(&object);
  EXT_TRY(px_tensor_detach(&data, tensor));
  EXT_WAIT(px_to(&moved, data, PX_DTYPE_NONE, p->device, false, false));
  px_tensor_set_parameter(moved, px_tensor_is_parameter(tensor));
  EXT_TRY(px_tensor_set_requires_grad(moved, px_tensor_requires_grad(tensor)));
  return ext_wrap(PX_MOVE(moved));
}

static px_tree *read_bytes(PyObject *data) {
  px_tree *tree = NULL;
  Py_buffer bytes;
  if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0) return NULL;
  px_status status =
      EXT_NOGIL(px_tree_decode(&tree, bytes.buf, (size_t)bytes.len, px_cpu(), "the file"));
  PyBuffer_Release(&bytes);
  EXT_TRY(status);
  return tree;
}
static px_tree *read_file(PyObject *path) {
  px_tree *tree = NULL;
  EXT_OWNED *keep = NULL;
  const char *name = path_of(path, &keep);
  if (!name) return NULL;
  EXT_WAIT(px_load_tree(&tree, name, px_cpu()));
  return tree;
}
EXT_FUNCTION(torch, _load_tree,
             "(path: object, data: object, device_of: Callable, sees: bool) -> object",
             "Reads a file, or bytes if path is None.") {
  EXT_ARGS(PyObject *, path, data, device_of, sees);
  device_mapping p = {
      .device_of = device_of, .needs_tensor = sees == Py_True, .home = PX_DEVICE_NONE};
  PX_SCOPED(px_tree) tree = path == Py_None ? read_bytes(data) : read_file(path);
  return tree ? ext_tree_object(tree, map_tensor, &p) : NULL;
}
