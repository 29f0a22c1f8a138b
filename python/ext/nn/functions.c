// SPDX-License-Identifier: Apache-2.0
// Evaluation of layers by Python functions. Layers call ops directly. If user code has replaced one
// of their functions in torch.nn.functional, or an input or a mode overrides calls
// (__torch_function__), Python evaluates the layer's formula. Detecting a change of the module's
// dict costs one comparison per call.
#include "nn/nn.h"

static PyObject *functions, *initial;  // the module's dict, and its copy at start-up
static PyObject *replaced;             // names with replaced values

static int find_replaced(void) {
  PyObject *name, *value, *now;
  Py_ssize_t at = 0;
  if (PySet_Clear(replaced) < 0) return -1;
  while (PyDict_Next(initial, &at, &name, &value)) {
    if (PyUnicode_READ_CHAR(name, 0) == '_') continue;  // not used by formulas
    now = PyDict_GetItemWithError(functions, name);
    if (now && now != value && PySet_Add(replaced, name) < 0) return -1;
  }
  return PyErr_Occurred() ? -1 : 0;
}

#if PY_VERSION_HEX < 0x030C0000
static uint64_t seen;
static bool may_have_changed(void) { return ((PyDictObject *)functions)->ma_version_tag != seen; }
static bool has_changed(void) {
  bool changed = may_have_changed();
  seen = ((PyDictObject *)functions)->ma_version_tag;
  return changed;
}
static int watch(void) { return 0; }
#else
static bool changed_since;
static bool may_have_changed(void) { return changed_since; }
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

bool ext_module_is_overridden(PyObject *const *given, int count) {
  if (ext_mode_count && ext_mode_active()) return true;
  for (int i = 0; i < count; i++) {
    if (!given[i] || ext_is_plain(given[i])) continue;
    if (ext_overrides(given[i])) return true;
    for (Py_ssize_t k = 0; PyTuple_Check(given[i]) && k < PyTuple_GET_SIZE(given[i]); k++)
      if (ext_overrides(PyTuple_GET_ITEM(given[i], k))) return true;
  }
  return false;
}

// A layer without a formula has a single function, its forward.
static int dispatch_forward(PyObject **out, PyObject *self, const px_module_kind *kind,
                            PyObject *const *inputs) {
  enum { LIMIT = 4 };
  PyObject *args[LIMIT + 1] = {self};
  EXT_OWNED *forward = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "forward");
  for (int i = 0; i < kind->input_count && i < LIMIT; i++)
    args[i + 1] = inputs[i] ? inputs[i] : Py_None;
  *out = forward ? ext_call_override(forward, args, kind->input_count + 1, NULL) : NULL;
  return *out ? 1 : -1;
}

__attribute__((noinline)) static int by_functions(PyObject **out, PyObject *self,
                                                  const px_module_kind *kind,
                                                  PyObject *const *inputs, bool taken) {
  if (taken && !kind->formula) return dispatch_forward(out, self, kind, inputs);
  EXT_OWNED *given = PyDict_New();
  for (int i = 0; given && i < kind->input_count; i++)
    if (PyDict_SetItemString(given, ext_port_name(kind, i), inputs[i] ? inputs[i] : Py_None) < 0)
      return -1;
  EXT_OWNED *how =
      given ? Py_BuildValue("(zOO)", kind->formula, given, taken ? Py_None : replaced) : NULL;
  PyObject *result = how ? ext_module_python("by_functions", self, how) : NULL;
  if (!result) return -1;
  if (result != Py_NotImplemented) return *out = result, 1;
  Py_DECREF(result);
  return taken ? dispatch_forward(out, self, kind, inputs) : 0;
}

int ext_module_via_functional(PyObject **out, PyObject *self, const px_module_kind *kind,
                              PyObject *const *inputs) {
  *out = NULL;
  bool taken = ext_module_is_overridden(inputs, kind->input_count);
  if (has_changed() && find_replaced() < 0) return -1;
  return taken || PySet_GET_SIZE(replaced) ? by_functions(out, self, kind, inputs, taken) : 0;
}

bool ext_module_is_fast_path(px_tensor **out, const px_module_kind *kind, PyObject *const *given) {
  if (ext_mode_count || may_have_changed() || PySet_GET_SIZE(replaced)) return false;
  for (int i = 0; i < kind->input_count; i++) {
    if (!given[i] || !ext_is_plain(given[i])) return false;
    if (kind->inputs && kind->inputs[i].tensors != 1) return false;
    out[i] = ext_tensor(given[i]);
  }
  return true;
}

static int copy_functions(PyObject *root) {
  PyObject *nn = ext_submodule(root, "nn"), *module = nn ? ext_submodule(nn, "functional") : NULL;
  if (!module) return -1;
  functions = Py_NewRef(PyModule_GetDict(module));
  initial = PyDict_Copy(functions);
  replaced = PySet_New(NULL);
  return initial && replaced ? watch() : -1;
}
EXT_START(EXT_LAST, copy_functions);
