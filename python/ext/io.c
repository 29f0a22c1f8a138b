// SPDX-License-Identifier: Apache-2.0
// torch.save and torch.load, through safetensors: a dict of tensors, or a tensor. Nothing in a file
// is ever executed.
#include "ext.h"
#include "phlox/io.h"
#include "phlox/ops.h"

static const char alone[] = "tensor";  // the name of a tensor that was saved by itself

static int add_item(px_dict *dict, PyObject *key, PyObject *value) {
  const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
  if (!name || !ext_is_tensor(value)) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_NotImplementedError,
                   "torch.save writes safetensors: a tensor or a dict of names and tensors, not %s",
                   ext_type_name(name ? value : key));
    return -1;
  }
  EXT_TRY_INT(px_dict_set(dict, name, ext_tensor(value)));
  return 0;
}

static int to_dict(PyObject *object, px_dict *dict) {
  if (ext_is_tensor(object)) {
    EXT_TRY_INT(px_dict_set(dict, alone, ext_tensor(object)));
    return 0;
  }
  if (!PyDict_Check(object))
    EXT_FAIL_INT(PyExc_NotImplementedError,
                 "torch.save writes safetensors: a tensor or a dict of names and tensors, not %s",
                 ext_type_name(object));
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(object, &at, &key, &value))
    if (add_item(dict, key, value) < 0) return -1;
  return 0;
}

// The file's name as UTF-8 in *keep's bytes.
static const char *path_of(PyObject *object, PyObject **keep) {
  PyObject *bytes = NULL;
  if (!PyUnicode_FSConverter(object, &bytes)) return NULL;
  *keep = bytes;
  return PyBytes_AS_STRING(bytes);
}

// Tensors remember where they were: the device of each is written as metadata of its name.
static const char **metadata_of(const px_dict *dict, char (*texts)[PX_DEVICE_TEXT]) {
  int64_t count = px_dict_size(dict);
  const char **rows = PyMem_Calloc((size_t)(2 * count + 3), sizeof *rows);
  if (!rows) return NULL;
  rows[0] = "phlox";
  rows[1] = px_version();
  for (int64_t i = 0; i < count; i++) {
    rows[2 * i + 2] = px_dict_name(dict, i);
    rows[2 * i + 3] = px_device_format(px_tensor_device(px_dict_value(dict, i)), texts[i]);
  }
  return rows;
}

EXT_FAST(save) {
  EXT_ARGS("save", "obj f", out);
  PX_SCOPED(px_dict) dict = NULL;
  EXT_OWNED *keep = NULL;
  EXT_TRY(px_dict_new(&dict));
  const char *path = path_of(out[1], &keep);
  if (!path || to_dict(out[0], dict) < 0) return NULL;
  char(*texts)[PX_DEVICE_TEXT] = PyMem_Malloc((size_t)(px_dict_size(dict) + 1) * sizeof *texts);
  const char **metadata = texts ? metadata_of(dict, texts) : NULL;
  px_status status = metadata ? EXT_NOGIL(px_save(path, dict, metadata)) : PX_OK;
  bool failed = !metadata;
  PyMem_Free(metadata);
  PyMem_Free(texts);
  if (failed) return PyErr_NoMemory();
  EXT_TRY(status);
  Py_RETURN_NONE;
}

// Where a tensor that was on `saved` goes: map_location is NULL, a device, or a dict of device
// names.
static int location_of(PyObject *map, const char *saved, px_device *out) {
  if (!ext_is_none(map) && !PyDict_Check(map)) return ext_to_device(map, out);
  PyObject *mapped = !ext_is_none(map) ? PyDict_GetItemString(map, saved) : NULL;
  if (mapped) return ext_to_device(mapped, out);
  EXT_TRY_INT(px_device_parse(out, saved));
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

static PyObject *placed(px_tensor *tensor, const char *path, const char *name, PyObject *map) {
  char *saved = NULL;
  px_device device = px_cpu();
  px_tensor *moved;
  EXT_TRY(px_load_metadata(&saved, path, name));
  int status = location_of(map, saved ? saved : "cpu", &device);
  px_free(saved);
  if (status < 0) return NULL;
  EXT_WAIT(px_to(&moved, tensor, PX_DTYPE_NONE, device, false, false));
  return ext_wrap(moved);
}

EXT_FAST(load) {
  EXT_ARGS("load", "f|map_location pickle_module$weights_only mmap", out);
  PX_SCOPED(px_dict) dict = NULL;
  EXT_OWNED *keep = NULL;
  const char *path = path_of(out[0], &keep);
  if (!path) return NULL;
  EXT_WAIT(px_load(&dict, path, px_cpu()));
  if (px_dict_size(dict) == 1 && px_dict_get(dict, alone))
    return placed(px_dict_get(dict, alone), path, alone, out[1]);
  PyObject *result = PyDict_New();
  for (int64_t i = 0; result && i < px_dict_size(dict); i++) {
    EXT_OWNED *value = placed(px_dict_value(dict, i), path, px_dict_name(dict, i), out[1]);
    if (!value || PyDict_SetItemString(result, px_dict_name(dict, i), value) < 0) Py_CLEAR(result);
  }
  return result;
}

static PyMethodDef functions[] = {
    EXT_DEF("save", save), EXT_DEF("load", load), {NULL, NULL, 0, NULL}};

int ext_init_io(PyObject *m) { return PyModule_AddFunctions(m, functions); }
