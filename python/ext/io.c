// SPDX-License-Identifier: Apache-2.0
// torch.save and torch.load: trees of values in safetensors files, or in file-like objects. Nothing
// in a file is ever executed.
#include "phlox/ops.h"
#include "tree.h"

// The file's name as UTF-8 in *keep's bytes.
static const char *path_of(PyObject *object, PyObject **keep) {
  PyObject *bytes = NULL;
  if (!PyUnicode_FSConverter(object, &bytes)) return NULL;
  *keep = bytes;
  return PyBytes_AS_STRING(bytes);
}

static bool is_path(PyObject *object) {
  return PyUnicode_Check(object) || PyBytes_Check(object) ||
         PyObject_HasAttrString(object, "__fspath__");
}

// ---- writing

static PyObject *save_to_object(PyObject *file, const px_tree *tree) {
  void *bytes;
  size_t length;
  if (!PyObject_HasAttrString(file, "write"))
    EXT_FAIL(PyExc_AttributeError,
             "expected 'f' to be string, path, or a file-like object with a 'write' attribute");
  EXT_WAIT(px_tree_encode(&bytes, &length, tree));
  EXT_OWNED *data = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
  px_free(bytes);
  EXT_OWNED *done = data ? PyObject_CallMethod(file, "write", "O", data) : NULL;
  if (!done) return NULL;
  Py_RETURN_NONE;
}

EXT_FAST(save) {
  EXT_ARGS("save", "obj f|pickle_module pickle_protocol _use_new_zipfile_serialization", out);
  EXT_OWNED *keep = NULL;
  PX_SCOPED(px_tree) tree = ext_tree_from(out[0]);
  if (!tree) return NULL;
  if (!is_path(out[1])) return save_to_object(out[1], tree);
  const char *path = path_of(out[1], &keep);
  if (!path) return NULL;
  EXT_WAIT(px_save_tree(path, tree));
  Py_RETURN_NONE;
}

// ---- where tensors go

// The device of a location as files have it, "cuda:1": it must be there.
static int device_of_location(const char *location, px_device *out) {
  if (px_device_parse(out, location) != PX_OK) {
    px_error_clear();
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "don't know how to restore data location of torch.storage.UntypedStorage (tagged "
                 "with %s)",
                 location);
  }
  if (out->type != PX_CUDA) return 0;
  int count = px_device_count(PX_CUDA);
  if (count == 0)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() "
                 "is False. If you are running on a "
                 "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to "
                 "map your storages to the CPU.");
  if (out->index >= count)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Attempting to deserialize object on CUDA device %d but torch.cuda.device_count() "
                 "is %d. Please use torch.load with "
                 "map_location to map your storages to an existing device.",
                 out->index, count);
  return 0;
}

static int device_of_object(PyObject *object, px_device *out) {
  EXT_OWNED *text = PyObject_Str(object);
  const char *location = text ? PyUnicode_AsUTF8(text) : NULL;
  return location ? device_of_location(location, out) : -1;
}

// What a function of map_location makes of a tensor's storage; None: where it was.
static int device_of_call(PyObject *map, px_tensor *tensor, const char *saved, px_device *out) {
  EXT_OWNED *object = ext_wrap_borrowed(tensor);
  EXT_OWNED *storage = object ? PyObject_CallMethod(object, "untyped_storage", NULL) : NULL;
  EXT_OWNED *result = storage ? PyObject_CallFunction(map, "Os", storage, saved) : NULL;
  if (!result) return -1;
  if (result == Py_None) return device_of_location(saved, out);
  EXT_OWNED *device = PyObject_GetAttrString(result, "device");
  return device ? device_of_object(device, out) : -1;
}

static int location_of(PyObject *map, px_tensor *tensor, px_device home, px_device *out) {
  char saved[PX_DEVICE_TEXT];
  px_device_format(home, saved);
  if (ext_is_none(map)) return device_of_location(saved, out);
  if (PyUnicode_Check(map) || ext_is_device(map)) return device_of_object(map, out);
  if (!PyDict_Check(map)) return device_of_call(map, tensor, saved, out);
  PyObject *mapped = PyDict_GetItemString(map, saved);
  return mapped ? device_of_object(mapped, out) : device_of_location(saved, out);
}

static PyObject *placed(px_tensor *tensor, px_device home, void *map) {
  px_device device = px_cpu();
  PX_SCOPED(px_tensor) data = NULL;
  PX_SCOPED(px_tensor) moved = NULL;
  if (location_of(map, tensor, home, &device) < 0) return NULL;
  if (device.type == PX_CPU) return ext_wrap_borrowed(tensor);
  EXT_TRY(px_tensor_detach(&data, tensor));
  EXT_WAIT(px_to(&moved, data, PX_DTYPE_NONE, device, false, false));
  px_tensor_set_parameter(moved, px_tensor_is_parameter(tensor));
  EXT_TRY(px_tensor_set_requires_grad(moved, px_tensor_requires_grad(tensor)));
  return ext_wrap(PX_MOVE(moved));
}

// ---- reading

static px_tree *load_from_object(PyObject *file) {
  px_tree *tree = NULL;
  if (!PyObject_HasAttrString(file, "read"))
    EXT_FAIL(PyExc_AttributeError,
             "'%s' object has no attribute 'read'. You can only torch.load from a file that is "
             "seekable. Please pre-load the data into a buffer like io.BytesIO and try to load "
             "from it instead.",
             Py_TYPE(file)->tp_name);
  EXT_OWNED *data = PyObject_CallMethod(file, "read", NULL);
  Py_buffer bytes;
  if (!data || PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0) return NULL;
  px_status status =
      EXT_NOGIL(px_tree_decode(&tree, bytes.buf, (size_t)bytes.len, px_cpu(), "the file"));
  PyBuffer_Release(&bytes);
  EXT_TRY(status);
  return tree;
}

static px_tree *load_from_path(PyObject *file) {
  px_tree *tree = NULL;
  EXT_OWNED *keep = NULL;
  const char *path = path_of(file, &keep);
  if (!path) return NULL;
  EXT_WAIT(px_load_tree(&tree, path, px_cpu()));
  return tree;
}

EXT_FAST(load) {
  EXT_ARGS("load", "f|map_location pickle_module$weights_only mmap", out);
  PX_SCOPED(px_tree) tree = is_path(out[0]) ? load_from_path(out[0]) : load_from_object(out[0]);
  return tree ? ext_tree_object(tree, placed, out[1]) : NULL;
}

static PyMethodDef functions[] = {
    EXT_DEF("save", save), EXT_DEF("load", load), {NULL, NULL, 0, NULL}};

static int ext_init_io(PyObject *m) { return PyModule_AddFunctions(m, functions); }
EXT_START(EXT_VALUES, ext_init_io);
