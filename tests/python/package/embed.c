// SPDX-License-Identifier: Apache-2.0
// A program that embeds Python, for test_interpreters.py. It trains before and after it makes
// subinterpreters, ends the interpreter while a tensor is lent and a daemon thread trains, and
// starts the next one. Its subinterpreters and the next interpreter print an ImportError.
#include <Python.h>

#include <unistd.h>

#include "phlox/dlpack.h"

static const char *const TRAIN =
    "import threading, phlox as torch\n"
    "def train(device, steps=3):\n"
    "    x = torch.ones(4, device=device, requires_grad=True)\n"
    "    x.register_hook(lambda grad: grad * 2)\n"
    "    for _ in range(steps): (x * 3).sum().backward()\n"
    "    return x.grad.sum().item()\n"
    "print([train(device) for device in ('cpu', 'cuda')], flush=True)\n";
static const char *const IMPORT =
    "try: import phlox\n"
    "except ImportError as error: print(error, flush=True)\n";

static void run(const char *code) {
  if (PyRun_SimpleString(code) < 0) exit(1);
}

static void make_subinterpreter(void) {
  PyThreadState *outer = PyThreadState_Get(), *inner = Py_NewInterpreter();
  run(IMPORT);
  Py_EndInterpreter(inner);
  PyThreadState_Swap(outer);
}

// An interpreter with its own GIL, since 3.12.
static void make_isolated(void) {
#if PY_VERSION_HEX >= 0x030C0000
  PyInterpreterConfig config = {.use_main_obmalloc = 0,
                                .check_multi_interp_extensions = 1,
                                .gil = PyInterpreterConfig_OWN_GIL};
  PyThreadState *outer = PyThreadState_Get(), *inner;
  if (PyStatus_Exception(Py_NewInterpreterFromConfig(&inner, &config))) exit(1);
  run(IMPORT);
  Py_EndInterpreter(inner);
  PyThreadState_Swap(outer);
#endif
}

static px_dl_managed *lend(void) {
  PyObject *dict = PyModule_GetDict(PyImport_AddModule("__main__"));
  PyObject *capsule =
      PyRun_String("torch.frombuffer(bytearray(64), dtype=torch.float32).__dlpack__()",
                   Py_eval_input, dict, dict);
  px_dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
  PyCapsule_SetName(capsule, "used_dltensor");
  Py_DECREF(capsule);
  return managed;
}

int main(void) {
  Py_Initialize();
  run(TRAIN);
  make_subinterpreter();
  make_isolated();
  run(TRAIN);
  px_dl_managed *lent = lend();
  run("threading.Thread(target=train, args=('cuda', 10**9), daemon=True).start()");
  Py_Finalize();
  lent->deleter(lent);
  usleep(200000);  // CPython does not start again while its threads still wait for the GIL
  Py_Initialize();
  run(IMPORT);
  Py_Finalize();
  puts("ended");
  return 0;
}
