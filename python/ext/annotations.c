// SPDX-License-Identifier: Apache-2.0
// Marks that programs set for profilers: torch.profiler.record_function, which Phlox's own hears,
// and torch.cuda.nvtx, to which no tool listens; and the profiler as phlox/profiler.py has it.
#include "ext.h"

#include <string.h>

#include "phlox/profile.h"

typedef struct mark_object {
  PyObject_HEAD PyObject *name, *args;
  int64_t part;  // while it is entered
} mark_object;
static mark_object *mark_of(PyObject *self) { return (mark_object *)self; }

// ---- record_function, and nvtx.range

EXT_MODULE(autograd_profiler, "autograd.profiler", "Marks for profilers.");
EXT_MODULE(nvtx, "cuda.nvtx", "Marks for NVIDIA's tools.");
EXT_OWNS(mark, EXT_OBJECT(mark_object, name), EXT_OBJECT(mark_object, args));

// As a decorator nvtx.range gives the function back: nothing need be done around it.
static PyObject *range_call(PyObject *self, PyObject *args, PyObject *kwargs) {
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
// As a decorator it goes around each call: contextlib's way to do so asks for a new part each time.
static PyObject *mark_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *func;
  if (!PyArg_ParseTuple(args, "O", &func)) return NULL;
  if (!PyCallable_Check(func))
    EXT_FAIL(PyExc_TypeError, "expected a function, not %s", ext_type_name(func));
  EXT_OWNED *way = ext_from("contextlib", "ContextDecorator");
  EXT_OWNED *decorate = way ? PyObject_GetAttrString(way, "__call__") : NULL;
  return decorate ? PyObject_CallFunctionObjArgs(decorate, self, func, NULL) : NULL;
}
EXT_METHOD0(mark, _recreate_cm, "Any",
            "A part of the same name, for a call of what it decorates.") {
  PyObject *args = mark_of(self)->args;
  return PyObject_CallFunctionObjArgs((PyObject *)Py_TYPE(self), mark_of(self)->name,
                                      args ? args : Py_None, NULL);
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
EXT_METHOD0(mark, __enter__, "Any", NULL) {
  if (px_profile_running()) {
    const char *name = PyUnicode_AsUTF8(mark_of(self)->name);
    if (!name) return NULL;
    mark_of(self)->part = px_profile_enter(PX_PROFILE_PART, name);
  }
  return Py_NewRef(self);
}
EXT_METHOD(mark, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_rest, exc);
  px_profile_leave(mark_of(self)->part);
  mark_of(self)->part = 0;
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
    EXT_LIFE(mark), .tp_new = range_new, .tp_call = range_call);
EXT_METHOD0(range, __enter__, "Any", NULL) { return Py_NewRef(self); }
EXT_METHOD(range, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_rest, exc);
  Py_RETURN_NONE;
}

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

// ---- the profiler

EXT_FUNCTION(autograd_profiler, _start,
             "(host: bool, devices: bool, shapes: bool, memory: bool, lines: bool) -> None",
             "Begins to note what runs.") {
  px_profile_options o = {0};
  EXT_ARGS(bool, host, devices, shapes, memory, lines);
  o.host = host, o.devices = devices, o.shapes = shapes, o.memory = memory, o.lines = lines;
  return ext_none(EXT_NOGIL(px_profile_start(&o)));
}

static PyObject *row_of(const px_profile_event *e) {
  return Py_BuildValue("(isssiLLLiiLLL)", (int)e->kind, e->name, e->shapes, e->file ? e->file : "",
                       e->line, (long long)e->parent, (long long)e->start, (long long)e->end,
                       e->thread, e->device.type == PX_CUDA ? e->device.index : -1,
                       (long long)e->stream, (long long)e->cpu_bytes, (long long)e->device_bytes);
}
EXT_FUNCTION0(
    autograd_profiler, _stop, "list[tuple]",
    "Ends it: kind, name, shapes, file, line, parent, start, end, thread, device, stream, "
    "and the bytes of CPU and devices, of each event.") {
  px_profile *profile = NULL;
  px_profile_event e;
  EXT_WAIT(px_profile_stop(&profile));
  EXT_OWNED *rows = PyList_New(0);
  for (int64_t i = 0; rows && px_profile_event_at(profile, i, &e); i++) {
    EXT_OWNED *row = row_of(&e);
    if (!row || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
  }
  px_profile_free(profile);
  return ext_moved(&rows);
}
EXT_GIVES(autograd_profiler, _enabled, "bool", px_profile_running(), "Whether it notes what runs.");

EXT_NEW(emit, "(enabled: bool = True, record_shapes: bool = False)") {
  bool enabled, record_shapes;
  EXT_BIND(enabled, record_shapes);
  if (!enabled) return ext_new(type);
  EXT_FAIL(PyExc_NotImplementedError, "%s is not implemented in Phlox", type->tp_name);
}
EXT_TYPE(emit, "torch.autograd.profiler.emit_nvtx", "autograd.profiler.emit_nvtx", PyObject,
         EXT_FINAL,
         "Marks of all ops that are switched off; NotImplementedError with enabled=True.",
         .tp_new = emit_new);
EXT_METHOD0(emit, __enter__, "None", NULL) { Py_RETURN_NONE; }
EXT_METHOD(emit, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_rest, exc);
  Py_RETURN_NONE;
}
