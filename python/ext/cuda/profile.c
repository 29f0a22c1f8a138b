// SPDX-License-Identifier: Apache-2.0
// The core of profilers: torch.autograd.profiler, for phlox/autograd/_profile.py and _marks.py,
// torch.cuda.nvtx and torch.cuda.profiler, for NVIDIA's tools, and counters of operations.
#include "bind/ext.h"

#include <string.h>

#include "nn/nn.h"
#include "phlox/flops.h"
#include "phlox/profile.h"

EXT_MODULE(autograd_profiler, "autograd.profiler", "Marks for profilers.");
EXT_MODULE(nvtx, "cuda.nvtx", "Marks for NVIDIA's tools.");

// ---- marks

EXT_FUNCTION(autograd_profiler, _enter, "(name: str) -> int",
             "Begins a part of the program. Returns 0 if the profiler is off.") {
  EXT_ARGS(PyObject *, name);
  const char *text = px_profile_running() ? PyUnicode_AsUTF8(name) : NULL;
  if (PyErr_Occurred()) return NULL;
  return PyLong_FromLongLong(text ? px_profile_enter(PX_PROFILE_RANGE, text) : 0);
}
EXT_FUNCTION(autograd_profiler, _leave, "(part: int) -> None", "Ends it.") {
  EXT_ARGS(int64_t, part);
  px_profile_leave(part);
  Py_RETURN_NONE;
}
EXT_FUNCTION(autograd_profiler, _emit_nvtx, "(on: bool, shapes: bool) -> None",
             "Begins or ends ranges of all ops, with the sizes of their arguments or without.") {
  EXT_ARGS(bool, on, shapes);
  px_nvtx_emit(on, shapes);
  Py_RETURN_NONE;
}

// ---- nvtx

EXT_FUNCTION(nvtx, range_push, "(msg: str) -> int",
             "Begins a range; how many are around it, or -2 where no tool listens.") {
  EXT_ARGS(const char *, msg);
  return PyLong_FromLong(px_nvtx_push(msg));
}
EXT_RETURNS(nvtx, range_pop, "int", px_nvtx_pop(),
            "Ends the range; how many are around it, or -2 where no tool listens.");
EXT_FUNCTION(nvtx, range_start, "(msg: str) -> int",
             "Begins a range that may end on another thread.") {
  EXT_ARGS(const char *, msg);
  return PyLong_FromUnsignedLongLong(px_nvtx_start(msg));
}
EXT_FUNCTION(nvtx, range_end, "(range_id: int) -> None", "Ends it.") {
  EXT_ARGS(int64_t, range_id);
  px_nvtx_end((uint64_t)range_id);
  Py_RETURN_NONE;
}
EXT_FUNCTION(nvtx, mark, "(msg: str) -> None", "Marks this moment.") {
  EXT_ARGS(const char *, msg);
  px_nvtx_mark(msg);
  Py_RETURN_NONE;
}

// ---- the profiler

EXT_FUNCTION(autograd_profiler, _start,
             "(host: bool, devices: bool, shapes: bool, memory: bool, stacks: bool, flops: bool) "
             "-> None",
             "Begins to note what runs.") {
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
// The program's own lines; or the one that is known, where no others are.
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
// The profile, as its events keep it: their trace is written from it. A copy of an event has none.
typedef struct kept_object {
  PyObject_HEAD px_profile *profile;
} kept_object;
static void kept_end(PyObject *self) {
  px_profile_free(((kept_object *)self)->profile);
  PyObject_Free(self);
}
EXT_TYPE(kept, "torch.autograd.profiler._Kept", "autograd.profiler._Kept", kept_object, EXT_FINAL,
         "A profile, as its events keep it.", .tp_dealloc = kept_end);
EXT_METHOD0(kept, __reduce__, "tuple", "A copy is None.") {
  return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

// Takes over the profile.
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
    "Ends it: the profile, and kind, name, shapes, lines, parent, start, end, thread, device, "
    "stream, the bytes of CPU and devices, and operations, of each event.") {
  px_profile *profile = NULL;
  EXT_WAIT(px_profile_stop(&profile));
  return stopped(profile, NULL);
}
static PyObject *table_of(const px_profile *profile, const char *picture) {
  char *text = NULL;
  EXT_TRY(px_profile_table(&text, profile));
  EXT_OWNED *table = PyUnicode_FromString(text);
  px_free(text);
  EXT_WAIT(px_profile_draw(profile, picture));
  return ext_moved(&table);
}
EXT_FUNCTION(autograd_profiler, _report, "(picture: str) -> tuple[object, list[tuple], str]",
             "Ends it, and draws it: the same, and the table of devices.") {
  px_profile *profile = NULL;
  EXT_ARGS(const char *, picture);
  EXT_WAIT(px_profile_stop(&profile));
  PyObject *table = table_of(profile, picture);
  if (!table) return px_profile_free(profile), NULL;
  return stopped(profile, table);
}

// ---- traces

// The event of a profile that an object is made of, at the next place: `places` has those of
// others, by profile and number.
static int read_event(PyObject *from, px_profile_event *out, Py_ssize_t place, PyObject *places) {
  EXT_OWNED *of = PyObject_GetAttrString(from, "_of");
  EXT_OWNED *id = of ? PyObject_GetAttrString(from, "id") : NULL;
  long long number = id ? PyLong_AsLongLong(id) : -1;
  if (PyErr_Occurred()) return -1;
  if (Py_TYPE(of) != &kept_type ||
      !px_profile_event_at(((kept_object *)of)->profile, number - 1, out))
    EXT_FAIL_INT(PyExc_RuntimeError, "a trace can only have events of profiles, and no copies");
  EXT_OWNED *key = Py_BuildValue("(OL)", of, number);
  EXT_OWNED *above = Py_BuildValue("(OL)", of, (long long)out->parent + 1);
  EXT_OWNED *at = PyLong_FromSsize_t(place);
  PyObject *parent = above ? PyDict_GetItemWithError(places, above) : NULL;
  if (!key || !at || PyErr_Occurred()) return -1;
  out->parent = parent ? PyLong_AsLongLong(parent) : -1;
  return PyDict_SetItem(places, key, at);
}
static px_profile_event *read_events(PyObject *list) {
  Py_ssize_t count = PyList_GET_SIZE(list);
  px_profile_event *events = PyMem_Calloc((size_t)count + 1, sizeof *events);
  EXT_OWNED *places = events ? PyDict_New() : PyErr_NoMemory();
  bool good = places != NULL;
  for (Py_ssize_t i = 0; i < count && good; i++)
    good = read_event(PyList_GET_ITEM(list, i), &events[i], i, places) == 0;
  if (!good) PyMem_Free(events);
  return good ? events : NULL;
}
EXT_FUNCTION(autograd_profiler, _trace, "(events: list[Any], members: str) -> str",
             "The events in the Trace Event Format, with more members of its object.") {
  PyObject *events;
  const char *members;
  char *text = NULL;
  EXT_BIND(events, members);
  px_profile_event *read = read_events(events);
  if (!read) return NULL;
  px_status status = px_profile_trace(&text, read, PyList_GET_SIZE(events), members);
  PyMem_Free(read);
  EXT_TRY(status);
  PyObject *trace = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  px_free(text);
  return trace;
}
EXT_RETURNS(autograd_profiler, _enabled, "bool", px_profile_running(),
            "Whether it notes what runs.");

// ---- torch.cuda.profiler

EXT_MODULE(cuda_profiler, "cuda.profiler", "When NVIDIA's tools collect.");
EXT_RETURNS_NONE(cuda_profiler, start, px_tool_start(),
                 "Tells the driver to begin to collect for tools.");
EXT_RETURNS_NONE(cuda_profiler, stop, px_tool_stop(), "Tells the driver to end it.");

// ---- counters of operations (torch.utils.flop_counter)

static void counter_end(PyObject *capsule) {
  px_flop_counter_end(PyCapsule_GetPointer(capsule, NULL));
  px_release(PyCapsule_GetPointer(capsule, NULL));
}
static px_flop_counter *counter_of(PyObject *capsule) {
  return PyCapsule_GetPointer(capsule, NULL);
}
EXT_FUNCTION0(autograd_profiler, _flops_begin, "object", "A counter, which counts.") {
  px_flop_counter *counter = NULL;
  EXT_TRY(px_flop_counter_new(&counter));
  EXT_OWNED *capsule = PyCapsule_New(counter, NULL, counter_end);
  if (!capsule) px_release(counter);
  if (capsule) EXT_TRY(px_flop_counter_begin(counter));
  return ext_moved(&capsule);
}
EXT_FUNCTION(autograd_profiler, _flops_end, "(counter: object) -> None", "Ends it.") {
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
             "Module, op and operations, as they were met.") {
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
             "The table, of modules down to a depth; negative: of all.") {
  PyObject *counter;
  int64_t depth;
  EXT_BIND(counter, depth);
  char *text = NULL;
  if (!counter_of(counter)) return NULL;
  EXT_TRY(px_flop_counter_table(&text, counter_of(counter), (int)depth));
  PyObject *table = PyUnicode_FromString(text);
  px_free(text);
  return table;
}
EXT_FUNCTION(autograd_profiler, _flops_enter, "(module: object, args: object) -> None",
             "A hook before the forward of all modules.") {
  EXT_ARGS(PyObject *, module, args);
  (void)args;
  const char *name = strrchr(Py_TYPE(module)->tp_name, '.');
  if (ext_is_module(module) && ext_module(module))
    EXT_TRY(px_module_count_flops(ext_module(module), name ? name + 1 : Py_TYPE(module)->tp_name));
  Py_RETURN_NONE;
}
EXT_FUNCTION(autograd_profiler, _flops_leave,
             "(module: object, args: object, result: object) -> None", "... and behind it.") {
  EXT_ARGS(PyObject *, module, args, result);
  (void)args, (void)result;
  if (ext_is_module(module) && ext_module(module)) px_flops_leave();
  Py_RETURN_NONE;
}
