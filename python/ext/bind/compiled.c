// SPDX-License-Identifier: Apache-2.0
// The state of compiled calls, and their errors.
#include "bind/compiled.h"
#include "phlox/fuse.h"

// The thread's innermost compiled call.
static _Thread_local struct {
  bool compiling;
  bool whole;  // with fullgraph=True
} here;
PyObject *ext_InvalidBackend;
static PyObject *Unsupported;
int ext_stance;

bool ext_refuses_reads(void) { return here.whole; }

px_status ext_refuse_read(const char *what) {
  PyErr_Format(Unsupported,
               "Graph break: the program needs %s, so its next operations depend on data. Use "
               "fullgraph=False, or torch.where in place of the branch",
               what);
  return ext_error_from_python();
}

bool ext_compiled_begin(ext_compiled_call *call, bool fuses, bool whole) {
  bool compiles = ext_stance != EXT_FORCE_EAGER;
  call->compiling = here.compiling, call->whole = here.whole;
  call->fuses = fuses && compiles;
  if (call->fuses && px_fuse_begin() != PX_OK) return ext_raise(), false;
  here.compiling = compiles, here.whole = whole && compiles;
  return true;
}

PyObject *ext_compiled_end(const ext_compiled_call *call, PyObject *result) {
  here.compiling = call->compiling, here.whole = call->whole;
  if (!call->fuses) return result;
  PyObject *raised = result ? NULL : ext_exception_take();
  px_status status = EXT_NOGIL(px_fuse_end(PX_OK));
  if (raised) ext_exception_set(raised);
  if (status == PX_OK) return result;
  if (!result) return px_error_clear(), NULL;  // the call's own exception counts
  Py_DECREF(result);
  return ext_raise();
}

bool ext_is_compiling(void) { return here.compiling; }

PyObject *ext_call_uncompiled(PyObject *function, PyObject *const *args, size_t nargsf,
                              PyObject *kwnames) {
  bool compiling = here.compiling, whole = here.whole;
  bool before = px_fuse_pause();
  here.compiling = here.whole = false;
  PyObject *result = PyObject_Vectorcall(function, args, nargsf, kwnames);
  here.compiling = compiling, here.whole = whole;
  px_fuse_resume(before);
  return result;
}

static int make_errors(PyObject *torch) {
  static const char *const names[] = {"TorchDynamoException", "Unsupported", "InvalidBackend"};
  PyObject *base =
      PyErr_NewExceptionWithDoc("torch._dynamo.exc.TorchDynamoException",
                                "An error of torch.compile.", PyExc_RuntimeError, NULL);
  Unsupported = PyErr_NewExceptionWithDoc(
      "torch._dynamo.exc.Unsupported", "With fullgraph=True the program read values of a tensor.",
      base, NULL);
  ext_InvalidBackend = PyErr_NewExceptionWithDoc(
      "torch._dynamo.exc.InvalidBackend", "torch.compile has no backend of this name.", base, NULL);
  PyObject *const made[] = {base, Unsupported, ext_InvalidBackend};
  EXT_OWNED *compiler = PyObject_GetAttrString(torch, "compiler");
  for (int i = 0; i < 3; i++)
    if (!compiler || !made[i] || PyModule_AddObjectRef(compiler, names[i], made[i]) < 0) return -1;
  return 0;
}
EXT_START(EXT_VALUES, make_errors);
