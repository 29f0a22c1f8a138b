// SPDX-License-Identifier: Apache-2.0
// torch.use_deterministic_algorithms and related functions: settings of the core, read by kernels.
#include "declare/declare.h"

#include <string.h>

enum { DEFAULT, WARN, ERROR };  // debug modes, as PyTorch numbers them
static const char *const mode_names[] = {"default", "warn", "error"};

static void set(bool on, bool warn_only) {
  px_setting_set(PX_SETTING_DETERMINISTIC, on);
  px_setting_set(PX_SETTING_DETERMINISTIC_WARN, warn_only);
}

EXT_FUNCTION(
    torch, use_deterministic_algorithms, "(mode: bool, *, warn_only: bool = False) -> None",
    "Sets whether operations must use deterministic algorithms: indexed accumulation on GPUs has a "
    "fixed\norder, cuDNN algorithms are deterministic, and torch.empty fills memory.\n\n"
    "Args:\n"
    "    mode (bool): whether to use deterministic algorithms\n"
    "    warn_only (bool): whether operations without a deterministic implementation warn instead "
    "of failing;\n        there are none\n\n"
    ">>> torch.use_deterministic_algorithms(True)\n"
    ">>> torch.empty(2), torch.empty(1, dtype=torch.uint8)\n"
    "(tensor([nan, nan]), tensor([255], dtype=torch.uint8))\n"
    ">>> torch.use_deterministic_algorithms(False)\n") {
  EXT_ARGS(bool, mode, warn_only);
  set(mode, warn_only);
  Py_RETURN_NONE;
}

EXT_RETURNS(torch, are_deterministic_algorithms_enabled, "bool",
            (bool)px_setting_get(PX_SETTING_DETERMINISTIC),
            "Returns True if deterministic algorithms are enabled.");
EXT_RETURNS(torch, is_deterministic_algorithms_warn_only_enabled, "bool",
            (bool)px_setting_get(PX_SETTING_DETERMINISTIC_WARN),
            "Returns True if nondeterministic operations would warn instead of failing.");
EXT_RETURNS(torch, get_deterministic_debug_mode, "int",
            !px_setting_get(PX_SETTING_DETERMINISTIC)       ? DEFAULT
            : px_setting_get(PX_SETTING_DETERMINISTIC_WARN) ? WARN
                                                            : ERROR,
            "Returns the debug mode for deterministic operations: 0 default, 1 warn, 2 error.");

static int mode_of(PyObject *mode) {
  if (PyUnicode_Check(mode)) {
    for (int i = 0; i < EXT_LENGTH(mode_names); i++)
      if (!PyUnicode_CompareWithASCIIString(mode, mode_names[i])) return i;
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but "
                 "got %U",
                 mode);
  }
  if (!PyLong_Check(mode))
    EXT_FAIL_INT(PyExc_TypeError, "debug_mode must be str or int, but got %R", Py_TYPE(mode));
  int overflow = 0;
  long number = PyLong_AsLongAndOverflow(mode, &overflow);
  if (overflow || number < DEFAULT || number > ERROR)
    EXT_FAIL_INT(PyExc_RuntimeError, "invalid value of debug_mode, expected 0, 1, or 2, but got %S",
                 mode);
  return (int)number;
}

EXT_FUNCTION(torch, set_deterministic_debug_mode, "(debug_mode: int | str) -> None",
             "Sets the debug mode for deterministic operations: \"default\" or 0, \"warn\" or 1, "
             "\"error\" or 2.") {
  EXT_ARGS(PyObject *, debug_mode);
  int mode = mode_of(debug_mode);
  if (mode < 0) return NULL;
  set(mode != DEFAULT, mode == WARN);
  Py_RETURN_NONE;
}

// ---- warnings

EXT_FUNCTION(torch, set_warn_always, "(b: bool) -> None",
             "Repeats warnings that are otherwise given once per process.") {
  EXT_ARGS(bool, b);
  px_warn_set_always(b);
  Py_RETURN_NONE;
}
EXT_FUNCTION0(torch, is_warn_always_enabled, "bool",
              "Returns True if warnings given once per process are repeated.") {
  return PyBool_FromLong(px_warn_always());
}
