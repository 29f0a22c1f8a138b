// SPDX-License-Identifier: Apache-2.0
// Marks that programs set for profilers: torch.profiler.record_function, which Phlox's own hears,
// and torch.cuda.nvtx, for NVIDIA's tools; and the profiler as phlox/profiler.py has it.
#include "bind/ext.h"

#include <string.h>

#include "nn/nn.h"
#include "phlox/flops.h"
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
  EXT_OWNED *way = ext_import("contextlib", "ContextDecorator");
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
         mark_object, EXT_BASETYPE,
         "A part of the program with a name, for profilers: a context manager, or a decorator.\n\n"
         ">>> with torch.autograd.profiler.record_function(\"forward\"):\n"
         "...     x = torch.ones(1)\n",
         EXT_LIFETIME_SLOTS(mark), .tp_new = mark_new, .tp_call = mark_call);
EXT_GET(mark, name, "str", Py_NewRef(mark_of(self)->name), "What it is called.");
EXT_GET(mark, args, "str | None", Py_NewRef(mark_of(self)->args ? mark_of(self)->args : Py_None),
        "What it was given.");
EXT_METHOD0(mark, __enter__, "Any", NULL) {
  if (px_profile_running()) {
    const char *name = PyUnicode_AsUTF8(mark_of(self)->name);
    if (!name) return NULL;
    mark_of(self)->part = px_profile_enter(PX_PROFILE_RANGE, name);
  }
  return Py_NewRef(self);
}
EXT_METHOD(mark, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_varargs, exc);
  px_profile_leave(mark_of(self)->part);
  mark_of(self)->part = 0;
  Py_RETURN_NONE;
}
EXT_NEW(range, "(msg: str, *args: Any)") {
  PyObject *msg;
  ext_varargs args;
  EXT_BIND(msg, args);
  PyObject *self = ext_new(type);
  EXT_OWNED *rest = self ? ext_tuple_of(args) : NULL;
  EXT_OWNED *format = rest ? PyObject_GetAttrString(msg, "format") : NULL;
  if (format) mark_of(self)->name = PyObject_CallObject(format, rest);
  if (self && !mark_of(self)->name) Py_CLEAR(self);
  return self;
}
EXT_TYPE(
    range, "torch.cuda.nvtx.range", "cuda.nvtx.range", mark_object, EXT_BASETYPE,
    "A part of the program with a name, for NVIDIA's tools: a context manager, or a decorator.",
    EXT_LIFETIME_SLOTS(mark), .tp_new = range_new, .tp_call = mark_call);
EXT_METHOD0(range, _recreate_cm, "Any", "It may be entered again.") { return Py_NewRef(self); }
EXT_METHOD0(range, __enter__, "Any", NULL) {
  const char *text = PyUnicode_AsUTF8(mark_of(self)->name);
  if (!text) return NULL;
  px_nvtx_push(text);
  return Py_NewRef(self);
}
EXT_METHOD(range, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_varargs, exc);
  px_nvtx_pop();
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

// A figure of events by an older name, in which devices are called cuda.
typedef struct older_object {
  PyObject_HEAD PyObject *name;
} older_object;
static PyObject *older_get(PyObject *self, PyObject *instance, PyObject *owner) {
  PyObject *name = ((older_object *)self)->name;
  EXT_OWNED *older = instance ? PyObject_CallMethod(name, "replace", "ss", "device", "cuda") : NULL;
  if (!instance) return Py_NewRef(self);
  if (!older || PyErr_WarnFormat(PyExc_FutureWarning, 1, "`%U` is deprecated. Use `%U` instead.",
                                 older, name) < 0)
    return NULL;
  return PyObject_GetAttr(instance, name);
}
EXT_NEW(older, "(name: str)") {
  PyObject *name;
  EXT_BIND(name);
  older_object *made = PyUnicode_Check(name) ? ext_new(type) : NULL;
  if (made) made->name = Py_NewRef(name);
  if (!made && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a figure's name is a str");
  return (PyObject *)made;
}
EXT_OWNS(older, EXT_OBJECT(older_object, name));
EXT_TYPE(older, "torch.autograd.profiler._older", "autograd.profiler._older", older_object,
         EXT_FINAL, "A figure of events by an older name, which says so.",
         EXT_LIFETIME_SLOTS(older), .tp_new = older_new, .tp_descr_get = older_get);

// A line of a file that flame graphs are made of; none where nothing was measured.
static int write_stack(FILE *to, PyObject *event, const char *figure) {
  EXT_OWNED *value = PyObject_GetAttrString(event, figure);
  EXT_OWNED *stack = value ? PyObject_GetAttrString(event, "stack") : NULL;
  double took = stack ? PyFloat_AsDouble(value) : -1;
  if (PyErr_Occurred()) return -1;
  Py_ssize_t count = PyList_Check(stack) ? PyList_GET_SIZE(stack) : 0;
  if (!count || took < 1) return 0;
  for (Py_ssize_t i = count - 1; i >= 0; i--) {
    const char *line = PyUnicode_AsUTF8(PyList_GET_ITEM(stack, i));
    if (!line) return -1;
    for (; *line; line++) fputc(strchr(" ;\t\n", *line) ? '_' : *line, to);
    fputc(i ? ';' : ' ', to);
  }
  fprintf(to, "%lld\n", (long long)took);
  return 0;
}

EXT_FUNCTION(autograd_profiler, _export_stacks,
             "(events: list[Any], path: str, metric: str) -> None",
             "Writes the stacks of events, each with a figure.") {
  static const char cpu[] = "self_cpu_time_total", device[] = "self_device_time_total";
  static const char devices[] =
      "self_cuda_time_total self_xpu_time_total "
      "self_privateuse1_time_total";
  PyObject *events;
  const char *path, *metric;
  EXT_BIND(events, path, metric);
  if (strcmp(metric, cpu) && !ext_has_word(devices, metric))
    EXT_FAIL(PyExc_ValueError,
             "metric should be one of: ['self_cpu_time_total', 'self_cuda_time_total', "
             "'self_xpu_time_total', 'self_privateuse1_time_total']");
  EXT_OWNED *list = PySequence_List(events);
  FILE *to = list ? fopen(path, "w") : NULL;
  if (!to) return list ? PyErr_SetFromErrnoWithFilename(PyExc_OSError, path) : NULL;
  int failed = 0;
  for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(list); i++)
    failed = write_stack(to, PyList_GET_ITEM(list, i), strcmp(metric, cpu) ? device : cpu);
  bool bad = ferror(to) != 0;
  bad |= fclose(to) != 0;
  if (bad && !failed) return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
  return failed ? NULL : Py_NewRef(Py_None);
}

typedef struct emit_object {
  PyObject_HEAD bool enabled, shapes, entered;
} emit_object;
static emit_object *emit_of(PyObject *self) { return (emit_object *)self; }
EXT_NEW(emit, "(enabled: bool = True, record_shapes: bool = False)") {
  bool enabled, record_shapes;
  EXT_BIND(enabled, record_shapes);
  PyObject *self = ext_new(type);
  if (self) emit_of(self)->enabled = enabled, emit_of(self)->shapes = record_shapes;
  return self;
}
EXT_TYPE(emit, "torch.autograd.profiler.emit_nvtx", "autograd.profiler.emit_nvtx", emit_object,
         EXT_FINAL,
         "Makes ranges of all ops for NVIDIA's tools, with record_shapes=True with the sizes of "
         "their\narguments; with enabled=False nothing.",
         .tp_new = emit_new);
EXT_METHOD0(emit, __enter__, "Any", NULL) {
  emit_object *e = emit_of(self);
  if (!e->enabled) Py_RETURN_NONE;
  if (e->entered) EXT_FAIL(PyExc_RuntimeError, "NVTX annotation context manager is not reentrant");
  e->entered = true;
  px_nvtx_emit(true, e->shapes);
  return Py_NewRef(self);
}
EXT_METHOD(emit, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_varargs, exc);
  if (emit_of(self)->enabled) px_nvtx_emit(false, false);
  Py_RETURN_NONE;
}

// ---- torch.cuda.profiler

EXT_MODULE(cuda_profiler, "cuda.profiler", "When NVIDIA's tools collect.");
EXT_RETURNS_NONE(cuda_profiler, start, px_tool_start(),
                 "Tells the driver to begin to collect for tools.");
EXT_RETURNS_NONE(cuda_profiler, stop, px_tool_stop(), "Tells the driver to end it.");
EXT_FUNCTION(cuda_profiler, init,
             "(output_file: str, flags: list[str] | None = None, output_mode: str = 'key_value') "
             "-> None",
             "Refused, as by PyTorch: there is nothing to initialize.") {
  EXT_ARGS(PyObject *, output_file, flags, output_mode);
  EXT_FAIL(PyExc_AssertionError, "CUDA12+ does not need profiler initialization!");
}
EXT_NEW(collect, "()") { return ext_new(type); }
EXT_TYPE(collect, "torch.cuda.profiler.profile", "cuda.profiler.profile", PyObject, EXT_FINAL,
         "A part of the program for which tools collect: a context manager.",
         .tp_new = collect_new);
EXT_METHOD0(collect, __enter__, "None", NULL) { return ext_none(px_tool_start()); }
EXT_METHOD(collect, __exit__, "(*exc: object) -> None", NULL) {
  EXT_ARGS(ext_varargs, exc);
  return ext_none(px_tool_stop());
}

// ---- torch.cuda.cudart

EXT_MODULE(cudart, "cuda._cudart", "Functions of CUDA's runtime that programs call; 0 is success.");
EXT_FUNCTION0(cudart, cudaProfilerStart, "int", "Tells the driver to begin to collect for tools.") {
  EXT_WAIT(px_tool_start());
  return PyLong_FromLong(0);
}
EXT_FUNCTION0(cudart, cudaProfilerStop, "int", "Tells the driver to end it.") {
  EXT_WAIT(px_tool_stop());
  return PyLong_FromLong(0);
}
EXT_FUNCTION(cudart, cudaMemGetInfo, "(device: Device) -> tuple[int, int]",
             "The bytes of a device that are free, and all.") {
  EXT_ARGS(ext_cuda, device);
  return ext_memory_of(device.index);
}
EXT_FUNCTION0(cuda, cudart, "Any", "CUDA's runtime, as far as profiled programs call it.") {
  EXT_TRY(px_device_init());
  return ext_call_from("importlib", "import_module", "(s)", "phlox.cuda._cudart");
}

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
