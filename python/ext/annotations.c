// SPDX-License-Identifier: Apache-2.0
// Marks that programs set for profilers: torch.profiler.record_function, torch.cuda.nvtx. Phlox has
// no profiler yet, and no tool listens: they do nothing, as in PyTorch while nothing is profiled.
// What was to be measured is refused; a profile that is switched off does nothing.
#include "ext.h"

#include <string.h>

typedef struct mark_object {
  PyObject_HEAD PyObject *name, *args;
} mark_object;
static mark_object *mark_of(PyObject *self) { return (mark_object *)self; }

// ---- record_function, and nvtx.range

EXT_MODULE(autograd_profiler, "autograd.profiler", "Marks for profilers.");
EXT_MODULE(nvtx, "cuda.nvtx", "Marks for NVIDIA's tools.");
EXT_OWNS(mark, EXT_OBJECT(mark_object, name), EXT_OBJECT(mark_object, args));

// As a decorator it gives the function back: nothing need be done around it.
static PyObject *mark_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *func;
  if (!PyArg_ParseTuple(args, "O", &func)) return NULL;
  if (PyCallable_Check(func)) return Py_NewRef(func);
  EXT_FAIL(PyExc_TypeError, "expected a function, not %s", ext_type_name(func));
}

EXT_NEW(mark, "(name: str, args: str | None = None)") {
  PyObject *name, *args;
  EXT_BIND(name, args);
  PyObject *self = ext_new(type);
  if (!self) return NULL;
  mark_of(self)->name = Py_NewRef(name);
  mark_of(self)->args = Py_XNewRef(args);
  return self;
}
EXT_TYPE(mark, "torch.autograd.profiler.record_function", "autograd.profiler.record_function",
         mark_object, EXT_OPEN,
         "A part of the program with a name, for profilers: a context manager, or a decorator.\n\n"
         ">>> with torch.autograd.profiler.record_function(\"forward\"):\n"
         "...     x = torch.ones(1)\n",
         EXT_LIFE(mark), .tp_new = mark_new, .tp_call = mark_call);
EXT_GET(mark, name, "str", Py_NewRef(mark_of(self)->name), "What it is called.");
EXT_GET(mark, args, "str | None", Py_NewRef(mark_of(self)->args ? mark_of(self)->args : Py_None),
        "What it was given.");
EXT_METHOD0(mark, __enter__, "Any", NULL) { return Py_NewRef(self); }
EXT_METHOD(mark, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_rest, exc);
  Py_RETURN_NONE;
}
EXT_NEW(range, "(msg: str, *args: Any)") {
  PyObject *msg;
  ext_rest args;
  EXT_BIND(msg, args);
  PyObject *self = ext_new(type);
  // The text is made as it would be for a tool: a wrong one is an error here too.
  EXT_OWNED *rest = self ? ext_tuple_of(args) : NULL;
  EXT_OWNED *format = rest ? PyObject_GetAttrString(msg, "format") : NULL;
  if (format) mark_of(self)->name = PyObject_CallObject(format, rest);
  if (self && !mark_of(self)->name) Py_CLEAR(self);
  return self;
}
EXT_TYPE(
    range, "torch.cuda.nvtx.range", "cuda.nvtx.range", mark_object, EXT_OPEN,
    "A part of the program with a name, for NVIDIA's tools: a context manager, or a decorator.",
    EXT_LIFE(mark), .tp_new = range_new, .tp_call = mark_call);
EXT_SHARES(range, mark, __enter__, __exit__);

// ---- nvtx

enum { NOT_TRACKED = -2 };  // what NVTX answers where no tool listens
EXT_FUNCTION(nvtx, range_push, "(msg: str) -> int", "Begins a range; -2, since no tool listens.") {
  EXT_ARGS(const char *, msg);
  return PyLong_FromLong(NOT_TRACKED);
}
EXT_GIVES(nvtx, range_pop, "int", (int)NOT_TRACKED, "Ends the range; -2, since no tool listens.");
EXT_FUNCTION(nvtx, range_start, "(msg: str) -> int",
             "Begins a range that may end on another thread.") {
  EXT_ARGS(const char *, msg);
  return PyLong_FromLong(0);
}
EXT_FUNCTION(nvtx, range_end, "(range_id: int) -> None", "Ends it.") {
  EXT_ARGS(int64_t, range_id);
  Py_RETURN_NONE;
}
EXT_FUNCTION(nvtx, mark, "(msg: str) -> None", "Marks this moment.") {
  EXT_ARGS(const char *, msg);
  Py_RETURN_NONE;
}

// ---- what would measure

static PyObject *switched_off(PyTypeObject *type, bool enabled) {
  if (!enabled) return ext_new(type);
  EXT_FAIL(PyExc_NotImplementedError, "%s is not implemented in Phlox", type->tp_name);
}
EXT_NEW(profile,
        "(enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, "
        "record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False, "
        "with_stack: bool = False, with_modules: bool = False, use_kineto: bool = False, use_cpu: "
        "bool = True)") {
  bool enabled, use_cuda, record_shapes, with_flops, profile_memory, with_stack, with_modules;
  bool use_kineto, use_cpu;
  PyObject *use_device;
  EXT_BIND(enabled, use_cuda, use_device, record_shapes, with_flops, profile_memory, with_stack,
           with_modules, use_kineto, use_cpu);
  return switched_off(type, enabled);
}
EXT_TYPE(profile, "torch.autograd.profiler.profile", "autograd.profiler.profile", PyObject,
         EXT_FINAL, "A profile that is switched off; NotImplementedError with enabled=True.",
         .tp_new = profile_new);
EXT_NEW(emit, "(enabled: bool = True, record_shapes: bool = False)") {
  bool enabled, record_shapes;
  EXT_BIND(enabled, record_shapes);
  return switched_off(type, enabled);
}
EXT_TYPE(emit, "torch.autograd.profiler.emit_nvtx", "autograd.profiler.emit_nvtx", PyObject,
         EXT_FINAL,
         "Marks of all ops that are switched off; NotImplementedError with enabled=True.",
         .tp_new = emit_new);
EXT_METHOD0(profile, __enter__, "None", NULL) { Py_RETURN_NONE; }
EXT_METHOD(profile, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_rest, exc);
  Py_RETURN_NONE;
}
EXT_SHARES(emit, profile, __enter__, __exit__);
