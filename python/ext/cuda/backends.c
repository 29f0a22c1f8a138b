// SPDX-License-Identifier: Apache-2.0
// Settings of PX_SETTING_MAP as attributes of torch.backends modules (phlox/backends.py). Values
// are stored only in the library. Then the lists of backends (phlox/devices.py) and of environment
// variables (phlox/env.py).
#include "bind/ext.h"
#include "phlox/op.h"
#include "phlox/device.h"

EXT_METHOD0(torch, _settings, "list[tuple[str, str]]",
            "Returns the settings by number: a module below torch.backends, and its attribute.") {
  static const struct {
    const char *module, *name;
  } settings[] = {
#define XX(name, module, attribute, value) {module, attribute},
      PX_SETTING_MAP(XX)
#undef XX
  };
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < PX_SETTING_COUNT; i++) {
    EXT_OWNED *pair = Py_BuildValue("(ss)", settings[i].module, settings[i].name);
    if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(list);
  }
  return list;
}
EXT_FUNCTION(torch, _setting, "(number: int, value: int | None = None) -> int",
             "Returns the value of a setting, after setting it if a value is given.") {
  EXT_ARGS(int64_t, number, value);
  if (value != EXT_NO_INT) px_setting_set((px_setting)number, (int)value);
  return PyLong_FromLong(px_setting_get((px_setting)number));
}
EXT_FUNCTION(torch, _can_use_sdp,
             "(number: int, on_cpu: bool, query: Tensor, key: Tensor, value: Tensor, "
             "attn_mask: Tensor | None, dropout: float, is_causal: bool, enable_gqa: bool, "
             "debug: bool) -> bool",
             "Returns True if a setting enables tiled attention and the arguments support it.") {
  int64_t number;
  double dropout;
  bool on_cpu, is_causal, enable_gqa, debug;
  px_tensor *query, *key, *value, *attn_mask;
  EXT_BIND(number, on_cpu, query, key, value, attn_mask, dropout, is_causal, enable_gqa, debug);
  const char *why =
      px_attention_unsupported(query, key, value, attn_mask, dropout, is_causal, enable_gqa);
  if (attn_mask && is_causal) why = "attn_mask and is_causal are given both.";
  if (!on_cpu && px_tensor_device(query).type != PX_CUDA) why = "query is not on a cuda device.";
  if (!px_setting_get((px_setting)number)) why = "it is turned off.";
  if (why && debug) EXT_TRY(px_warn(PX_WARN_USER, "Attention kernel not used because: %s", why));
  return PyBool_FromLong(!why);
}
EXT_FUNCTION(torch, _library_version, "(name: str) -> int",
             "Returns the version of a kernel library such as \"cudnn\"; 0 if not available.") {
  EXT_ARGS(const char *, name);
  return PyLong_FromLongLong(px_device_library(name));
}
EXT_RETURNS(torch, _cpu_capability, "str", PyUnicode_FromString(px_cpu_capability()),
            "Returns the highest instruction set used by kernels: DEFAULT, AVX2 or AVX512.");
EXT_METHOD0(torch, _cpu_lapack, "str",
            "Returns the path of the LAPACK library used on the CPU; raises if there is none.") {
  const char *path;
  EXT_TRY(px_cpu_lapack(&path));
  return PyUnicode_DecodeFSDefault(path);
}

// ---- lists
EXT_METHOD0(
    torch, _backends, "list[tuple[str, bool, str | None, str]]",
    "Returns the backends for device type cuda: name, True if PHLOX_BACKENDS names it, path "
    "of its library, and the\nreason if it cannot be used.") {
  enum { ROWS = 8 };
  px_backend_row rows[ROWS];
  int count;
  EXT_TRY(px_device_backends(rows, ROWS, &count));
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < count && i < ROWS; i++) {
    const px_backend_row *row = &rows[i];
    PyObject *library = row->library ? PyUnicode_DecodeFSDefault(row->library) : Py_NewRef(Py_None);
    EXT_OWNED *tuple = Py_BuildValue("(sNNN)", row->name, PyBool_FromLong(row->listed), library,
                                     PyUnicode_DecodeFSDefault(row->why));
    if (!tuple || PyList_Append(list, tuple) < 0) Py_CLEAR(list);
  }
  return list;
}
EXT_METHOD0(
    torch, _environment, "list[str]",
    "Returns the names of the environment variables of the library and of the Python module. "
    "A name may end in *.") {
  static const char *const names[] = {
#define PX_ENV(name, type, fallback, allowed, doc) #name,
#include "bind/env.def"
#undef PX_ENV
      NULL};
  const px_env_row *row;
  PyObject *list = PyList_New(0);
  for (int i = 0, own = 0; list; i++) {
    const char *name = (row = px_env_at(i)) ? row->name : names[own++];
    if (!name) break;
    EXT_OWNED *text = PyUnicode_FromString(name);
    if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
  }
  return list;
}
