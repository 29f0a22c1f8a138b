// SPDX-License-Identifier: Apache-2.0
// torch.use_deterministic_algorithms and its like: settings of the core, which kernels read.
#include "declare.h"

#include <string.h>

enum { DEFAULT, WARN, ERROR };  // debug modes, as PyTorch numbers them
static const char *const mode_names[] = {"default", "warn", "error"};

static void set(bool on, bool warn_only) {
  px_setting_set(PX_SETTING_DETERMINISTIC, on);
  px_setting_set(PX_SETTING_DETERMINISTIC_WARN, warn_only);
}

EXT_FUNCTION(
    torch, use_deterministic_algorithms, "(mode: bool, *, warn_only: bool = False) -> None",
    "Says whether results are to be the same every time: what adds by index on a GPU then "
    "does so in a\nfixed order, cuDNN is asked for what repeats, and torch.empty fills.\n\n"
    "Args:\n"
    "    mode (bool): whether they are\n"
    "    warn_only (bool): whether operations that cannot do it warn, and do not fail; "
    "all can\n\n"
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
            "Whether results are to be the same every time.");
EXT_RETURNS(torch, is_deterministic_algorithms_warn_only_enabled, "bool",
            (bool)px_setting_get(PX_SETTING_DETERMINISTIC_WARN),
            "Whether operations that cannot do it would warn, and not fail.");
EXT_RETURNS(torch, get_deterministic_debug_mode, "int",
            !px_setting_get(PX_SETTING_DETERMINISTIC)       ? DEFAULT
            : px_setting_get(PX_SETTING_DETERMINISTIC_WARN) ? WARN
                                                            : ERROR,
            "The same as a number: 0 no, 1 warn, 2 fail.");

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
             "use_deterministic_algorithms with a word or a number: \"default\" 0, \"warn\" 1, "
             "\"error\" 2.") {
  EXT_ARGS(PyObject *, debug_mode);
  int mode = mode_of(debug_mode);
  if (mode < 0) return NULL;
  set(mode != DEFAULT, mode == WARN);
  Py_RETURN_NONE;
}
