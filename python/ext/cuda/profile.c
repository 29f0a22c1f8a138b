// SPDX-License-Identifier: Apache-2.0
// Bindings of the profilers: torch.autograd.profiler (for phlox/autograd/_profile.py and
// _marks.py), torch.cuda.nvtx and torch.cuda.profiler (for NVIDIA's tools), and FLOP counters.
#include "bind/ext.h"

#include <string.h>

#include "nn/nn.h"
#include "phlox/flops.h"
#include "phlox/profile.h"

EXT_MODULE(autograd_profiler, "autograd.profiler", "Profiling of ops and device work.");
EXT_MODULE(nvtx, "cuda.nvtx", "Annotations for NVIDIA's tools.");

// ---- annotations

EXT_FUNCTION(autograd_profiler, _enter, "(name: str) -> int",
             "Begins a labeled range. Returns its id, or 0 if the profiler is off.") {
  EXT_ARGS(PyObject *, name);
  const char *text = px_profile_running() ? ext_text(name) : NULL;
  if (PyErr_Occurred()) return NULL;
  return PyLong_FromLongLong(text ? px_profile_enter(PX_PROFILE_RANGE, text) : 0);
}
EXT_FUNCTION(autograd_profiler, _leave, "(part: int) -> None", "Ends a range begun by _enter.") {
  EXT_ARGS(int64_t, part);
  px_profile_leave(part);
  Py_RETURN_NONE;
}
EXT_FUNCTION(autograd_profiler, _emit_nvtx, "(on: bool, shapes: bool) -> None",
             "Enables or disables NVTX ranges of all ops, optionally with argument sizes.") {
  EXT_ARGS(bool, on, shapes);
  px_nvtx_emit(on, shapes);
  Py_RETURN_NONE;
}

// ---- nvtx

EXT_FUNCTION(nvtx, range_push, "(msg: str) -> int",
             "Pushes a range onto a stack of nested range spans. Returns the zero-based depth of "
             "the range that is started, or -2 without a tool.") {
  EXT_ARGS(const char *, msg);
  return PyLong_FromLong(px_nvtx_push(msg));
}
EXT_RETURNS(nvtx, range_pop, "int", px_nvtx_pop(),
            "Pops a range off of a stack of nested range spans. Returns the zero-based depth of "
            "the range that is ended, or -2 without a tool.");
EXT_FUNCTION(nvtx, range_start, "(msg: str) -> int",
             "Marks the start of a range. Returns a handle for range_end, valid on any thread.") {
  EXT_ARGS(const char *, msg);
  return PyLong_FromUnsignedLongLong(px_nvtx_start(msg));
}
EXT_FUNCTION(nvtx, range_end, "(range_id: int) -> None", "Marks the end of a range.") {
  EXT_ARGS(int64_t, range_id);
  px_nvtx_end((uint64_t)range_id);
  Py_RETURN_NONE;
}
EXT_FUNCTION(nvtx, mark, "(msg: str) -> None", "Describes an instantaneous event.") {
  EXT_ARGS(const char *, msg);
  px_nvtx_mark(msg);
  Py_RETURN_NONE;
}

// ---- the profiler

EXT_FUNCTION(autograd_profiler, _start,
             "(host: bool, devices: bool, shapes: bool, memory: bool, stacks: bool, flops: bool) "
             "-> None",
             "Starts recording.") {
  px_profile_options o = {0};
  EXT_ARGS(bool, host, devices, shapes, memory, stacks, flops);
  o.host = host, o.devices = devices, o.shapes = shapes, o.memory = memory, o.flops = flops;
  o.lines = o.stacks = stacks;
  return ext_none(EXT_NOGIL(px_profile_start(&o)));
}

static int add_frame(PyObject *list, const char *file, int line, const char *function) {
  EXT_OWNED *text = *function ? PyUnicode_FromFormat("%s(%d): %s", file, line, function)
                              : PyUnicode_FromFormat("%s(%d)", file, line);
  return text ? PyList_Append(list, text) : -1;
}
// Frames of user code, or the event's own source line if there are none.
static PyObject *stack_of(const px_profile_event *e) {
  EXT_OWNED *list = PyList_New(0);
  int failed = !list;
  for (int i = 0; e->stack && i < e->stack->count && !failed; i++) {
    const px_frame *f = &e->stack->frames[i];
    if (*f->file && !f->inside) failed = add_frame(list, f->file, f->line, f->function);
  }
  if (!failed && !PyList_GET_SIZE(list) && e->file) failed = add_frame(list, e->file, e->line, "");
  return failed ? NULL : ext_moved(&list);
}
static PyObject *row_of(const px_profile_event *e) {
  EXT_OWNED *stack = stack_of(e);
  if (!stack) return NULL;
  return Py_BuildValue("(issOLLLiiLLLL)", (int)e->kind, e->name, e->shapes, stack,
                       (long long)e->parent, (long long)e->start, (long long)e->end, e->thread,
                       e->device.type == PX_CUDA ? e->device.index : -1, (long long)e->stream,
                       (long long)e->cpu_bytes, (long long)e->device_bytes, (long long)e->flops);
}
static PyObject *rows_of(const px_profile *profile) {
  px_profile_event e;
  EXT_OWNED *rows = PyList_New(0);
  for (int64_t i = 0; rows && px_profile_event_at(profile, i, &e); i++) {
    EXT_OWNED *row = row_of(&e);
    if (!row || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
  }
  return ext_moved(&rows);
}
// Owns a profile on behalf of its events, whose traces are written from it.
typedef struct kept_object {
  PyObject_HEAD px_profile *profile;
} kept_object;
static void kept_end(PyObject *self) {
  px_profile_free(((kept_object *)self)->profile);
  PyObject_Free(self);
}
EXT_TYPE(kept, "torch.autograd.profiler._Kept", "autograd.profiler._Kept", kept_object, EXT_FINAL,
         "Owns a profile for its events.", .tp_dealloc = kept_end);
EXT_METHOD0(kept, __reduce__, "tuple", "Copies and pickles to None.") {
  return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

// Takes ownership of the profile and the table. Returns (handle, rows) or (handle, rows, table).
static PyObject *stopped(px_profile *profile, PyObject *take_table) {
  EXT_OWNED *table = take_table;
  EXT_OWNED *kept = ext_new(&kept_type);
  if (!kept) return px_profile_free(profile), NULL;
  ((kept_object *)kept)->profile = profile;
  EXT_OWNED *rows = rows_of(profile);
  if (!rows) return NULL;
  return table ? PyTuple_Pack(3, kept, rows, table) : PyTuple_Pack(2, kept, rows);
}
EXT_FUNCTION0(
    autograd_profiler, _stop, "tuple[object, list[tuple]]",
    "Stops recording. Returns the profile and a tuple for each event: kind, name, shapes, stack, "
    "parent, start, end, thread, device, stream, CPU bytes, device bytes, FLOPs.") {
  px_profile *profile = NULL;
  EXT_WAIT(px_profile_stop(&profile));
  return stopped(profile, NULL);
}
static PyObject *table_of(const px_profile *profile, const char *picture) {
  char *text = NULL;
  EXT_TRY(px_profile_table(&text, profile));
  EXT_OWNED *table = ext_str(text);
  px_free(text);
  EXT_WAIT(px_profile_draw(profile, picture));
  return ext_moved(&table);
}
EXT_FUNCTION(autograd_profiler, _report, "(picture: str) -> tuple[object, list[tuple], str]",
             "Stops recording and draws the profile to the SVG file `picture`. Returns the values "
             "of _stop and the table of devices.") {
  px_profile *profile = NULL;
  EXT_ARGS(const char *, picture);
  EXT_WAIT(px_profile_stop(&profile));
  PyObject *table = table_of(profile, picture);
  if (!table) return px_profile_free(profile), NULL;
  return stopped(profile, table);
}

// ---- traces

// Reads profile event number `index` of a trace from its Python object. `indices` maps
// (profile, id) of earlier events to their indices.
static int read_event(PyObject *from, px_profile_event *out, Py_ssize_t index, PyObject *indices) {
  EXT_OWNED *of = PyObject_GetAttrString(from, "_of");
  EXT_OWNED *id = of ? PyObject_GetAttrString(from, "id") : NULL;
  long long number = id ? PyLong_AsLongLong(id) : -1;
  if (PyErr_Occurred()) return -1;
  if (Py_TYPE(of) != &kept_type ||
      !px_profile_event_at(((kept_object *)of)->profile, number - 1, out))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "a trace requires events of profiles, got a copy or another object");
  EXT_OWNED *key = Py_BuildValue("(OL)", of, number);
  EXT_OWNED *parent_key = Py_BuildValue("(OL)", of, (long long)out->parent + 1);
  EXT_OWNED *at = PyLong_FromSsize_t(index);
  PyObject *parent = parent_key ? PyDict_GetItemWithError(indices, parent_key) : NULL;
  if (!key || !at || PyErr_Occurred()) return -1;
  out->parent = parent ? PyLong_AsLongLong(parent) : -1;
  return PyDict_SetItem(indices, key, at);
}
static px_profile_event *read_events(PyObject *list) {
  Py_ssize_t count = PyList_GET_SIZE(list);
  px_profile_event *events = PyMem_Calloc((size_t)count + 1, sizeof *events);
  EXT_OWNED *indices = events ? PyDict_New() : PyErr_NoMemory();
  bool good = indices != NULL;
  for (Py_ssize_t i = 0; i < count && good; i++)
    good = read_event(PyList_GET_ITEM(list, i), &events[i], i, indices) == 0;
  if (!good) PyMem_Free(events);
  return good ? events : NULL;
}
EXT_FUNCTION(autograd_profiler, _trace, "(events: list[Any], members: str) -> str",
             "Returns events in the Trace Event Format. `members` are further members of the "
             "top-level JSON object.") {
  PyObject *events;
  const char *members;
  char *text = NULL;
  EXT_BIND(events, members);
  px_profile_event *read = read_events(events);
  if (!read) return NULL;
  px_status status = px_profile_trace(&text, read, PyList_GET_SIZE(events), members);
  PyMem_Free(read);
  EXT_TRY(status);
  PyObject *trace = ext_str(text);
  px_free(text);
  return trace;
}
EXT_RETURNS(autograd_profiler, _enabled, "bool", px_profile_running(),
            "Returns True if the profiler is recording.");

// ---- torch.cuda.profiler

EXT_MODULE(cuda_profiler, "cuda.profiler", "Collection by NVIDIA's tools.");
EXT_RETURNS_NONE(cuda_profiler, start, px_tool_start(), "Starts profiling by the active tool.");
EXT_RETURNS_NONE(cuda_profiler, stop, px_tool_stop(), "Stops profiling by the active tool.");

// ---- FLOP counters (torch.utils.flop_counter)

static void counter_end(PyObject *capsule) {
  px_flop_counter_end(PyCapsule_GetPointer(capsule, NULL));
  px_release(PyCapsule_GetPointer(capsule, NULL));
}
static px_flop_counter *counter_of(PyObject *capsule) {
  return PyCapsule_GetPointer(capsule, NULL);
}
EXT_FUNCTION0(autograd_profiler, _flops_begin, "object", "Returns a new, counting FLOP counter.") {
  px_flop_counter *counter = NULL;
  EXT_TRY(px_flop_counter_new(&counter));
  EXT_OWNED *capsule = PyCapsule_New(counter, NULL, counter_end);
  if (!capsule) px_release(counter);
  if (capsule) EXT_TRY(px_flop_counter_begin(counter));
  return ext_moved(&capsule);
}
EXT_FUNCTION(autograd_profiler, _flops_end, "(counter: object) -> None", "Stops counting.") {
  EXT_ARGS(PyObject *, counter);
  if (!counter_of(counter)) return NULL;
  px_flop_counter_end(counter_of(counter));
  Py_RETURN_NONE;
}
static PyObject *count_of(const px_flop_count *count) {
  EXT_OWNED *op = ext_aten_counted(count->op);
  return op ? Py_BuildValue("(sOL)", count->module, op, (long long)count->operations) : NULL;
}
EXT_FUNCTION(autograd_profiler, _flops_counts, "(counter: object) -> list[tuple]",
             "Returns tuples of module, op and FLOPs, in order of first occurrence.") {
  EXT_ARGS(PyObject *, counter);
  px_flop_count count;
  EXT_OWNED *rows = counter_of(counter) ? PyList_New(0) : NULL;
  for (int i = 0; rows && px_flop_counter_at(counter_of(counter), i, &count); i++) {
    EXT_OWNED *row = count_of(&count);
    if (!row || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
  }
  return ext_moved(&rows);
}
EXT_FUNCTION(autograd_profiler, _flops_table, "(counter: object, depth: int) -> str",
             "Returns the table as text, down to a module depth. All modules if it is negative.") {
  PyObject *counter;
  int64_t depth;
  EXT_BIND(counter, depth);
  char *text = NULL;
  if (!counter_of(counter)) return NULL;
  EXT_TRY(px_flop_counter_table(&text, counter_of(counter), (int)depth));
  PyObject *table = ext_str(text);
  px_free(text);
  return table;
}
EXT_FUNCTION(autograd_profiler, _flops_enter, "(module: object, args: object) -> None",
             "Global forward pre-hook: opens a module's FLOP count.") {
  EXT_ARGS(PyObject *, module, args);
  (void)args;
  const char *name = strrchr(Py_TYPE(module)->tp_name, '.');
  if (ext_is_module(module) && ext_module(module))
    EXT_TRY(px_module_count_flops(ext_module(module), name ? name + 1 : Py_TYPE(module)->tp_name));
  Py_RETURN_NONE;
}
EXT_FUNCTION(autograd_profiler, _flops_leave,
             "(module: object, args: object, result: object) -> None",
             "Global forward hook: closes a module's FLOP count.") {
  EXT_ARGS(PyObject *, module, args, result);
  (void)args, (void)result;
  if (ext_is_module(module) && ext_module(module)) px_flops_leave();
  Py_RETURN_NONE;
}
