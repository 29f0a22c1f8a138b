// SPDX-License-Identifier: Apache-2.0
// Functions of torch.nn.functional that a program has replaced. Layers call the ops themselves;
// where one of theirs was replaced, the layer's formula is evaluated by Python, with the program's
// function. Whether anything in the module's dict changed is one comparison a call.
#include "nn.h"

static PyObject *functions, *usual;  // the module's dict, and a copy of it from the start
static PyObject *replaced;           // the names whose values are others now

static int find_replaced(void) {
  PyObject *name, *value, *now;
  Py_ssize_t at = 0;
  if (PySet_Clear(replaced) < 0) return -1;
  while (PyDict_Next(usual, &at, &name, &value)) {
    now = PyDict_GetItemWithError(functions, name);
    if (now && now != value && PySet_Add(replaced, name) < 0) return -1;
  }
  return PyErr_Occurred() ? -1 : 0;
}

#if PY_VERSION_HEX < 0x030C0000
static uint64_t seen;
static bool has_changed(void) {
  uint64_t version = ((PyDictObject *)functions)->ma_version_tag;
  bool changed = version != seen;
  seen = version;
  return changed;
}
static int watch(void) { return 0; }
#else
static bool changed_since;
static bool has_changed(void) {
  bool changed = changed_since;
  changed_since = false;
  return changed;
}
static int note_change(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
  changed_since = true;
  return 0;
}
static int watch(void) {
  int id = PyDict_AddWatcher(note_change);
  return id < 0 ? -1 : PyDict_Watch(id, functions);
}
#endif

int ext_module_by_functions(PyObject **out, PyObject *self, const px_module_kind *kind,
                            PyObject *const *inputs) {
  *out = NULL;
  if (has_changed() && find_replaced() < 0) return -1;
  if (!PySet_GET_SIZE(replaced) || !kind->formula) return 0;
  EXT_OWNED *given = PyDict_New();
  for (int i = 0; given && i < kind->input_count; i++)
    if (PyDict_SetItemString(given, kind->inputs ? kind->inputs[i] : "input", inputs[i]) < 0)
      return -1;
  EXT_OWNED *how = given ? Py_BuildValue("(sOO)", kind->formula, given, replaced) : NULL;
  PyObject *result = how ? ext_module_python("by_functions", self, how) : NULL;
  if (!result) return -1;
  if (result != Py_NotImplemented) return *out = result, 1;
  Py_DECREF(result);
  return 0;
}

static int keep_usual(PyObject *root) {
  PyObject *nn = ext_submodule(root, "nn"), *module = nn ? ext_submodule(nn, "functional") : NULL;
  if (!module) return -1;
  functions = Py_NewRef(PyModule_GetDict(module));
  usual = PyDict_Copy(functions);
  replaced = PySet_New(NULL);
  return usual && replaced ? watch() : -1;
}
EXT_START(EXT_LAST, keep_usual);
