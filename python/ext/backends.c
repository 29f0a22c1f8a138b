// SPDX-License-Identifier: Apache-2.0
// The settings of PX_SETTING_MAP for torch.backends (phlox/backends.py), whose modules have them as
// attributes: values are kept in the library alone.
#include "ext.h"

EXT_METHOD0(torch, _settings, "list[tuple[str, str]]",
            "The settings by number: a module below torch.backends, and its attribute.") {
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
             "The value of a setting, which is set before where a value is given.") {
  EXT_ARGS(int64_t, number, value);
  if (value != EXT_NO_INT) px_setting_set((px_setting)number, (int)value);
  return PyLong_FromLong(px_setting_get((px_setting)number));
}
EXT_FUNCTION(torch, _library_version, "(name: str) -> int",
             "The version of a library that kernels are taken from, as \"cudnn\"; 0: not there.") {
  EXT_ARGS(const char *, name);
  return PyLong_FromLongLong(px_device_library(name));
}
EXT_GIVES(torch, _cpu_capability, "str", PyUnicode_FromString(px_cpu_capability()),
          "Which instructions of the processor the kernels use at most: DEFAULT, AVX2 or AVX512.");
