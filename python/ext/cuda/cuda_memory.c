// SPDX-License-Identifier: Apache-2.0
// Memory management of torch.cuda: statistics, blocks, limits. Text reports and deprecated names
// are in phlox/cuda/memory.py.
#include "bind/ext.h"

#include <string.h>

EXT_MODULE(sanitizer, "cuda._sanitizer", "The race checker, under PyTorch's name.");

// Resolves a device argument without initializing devices.
static int index_of(PyObject *device, int *out) {
  *out = px_device_peek();
  return ext_is_none(device) ? 0 : ext_to_cuda_index(device, out);
}

// Before initialization, statistics are 0 for any index.
static int statistics_index(PyObject *device, int *out) {
  if (index_of(device, out) < 0) return -1;
  if (px_device_initialized() && (*out < 0 || *out >= px_device_count(PX_CUDA)))
    EXT_FAIL_INT(PyExc_RuntimeError, "Invalid device argument %d: did you call init?", *out);
  return 0;
}

#define STATISTIC(name, function, text) \
  EXT_FUNCTION(cuda, name, "(device: Device | None = None) -> int", text) { \
    PyObject *device; \
    int index; \
    EXT_BIND(device); \
    return statistics_index(device, &index) < 0 ? NULL : PyLong_FromLongLong(function(index)); \
  }
STATISTIC(memory_allocated, px_memory_allocated,
          "Returns the memory currently occupied by tensors in bytes, for a given device.")
STATISTIC(max_memory_allocated, px_memory_allocated_peak,
          "Returns the maximum memory occupied by tensors in bytes, for a given device.")
STATISTIC(memory_reserved, px_memory_reserved,
          "Returns the memory currently managed by the caching allocator in bytes.")
STATISTIC(max_memory_reserved, px_memory_reserved_peak,
          "Returns the maximum memory managed by the caching allocator in bytes.")

static PyObject *reset(const ext_call *call, px_status (*function)(int device)) {
  int index;
  EXT_ARGS(PyObject *, device);
  if (index_of(device, &index) < 0) return NULL;
  return ext_none(function(index));
}
EXT_FUNCTION(cuda, reset_peak_memory_stats, "(device: Device | None = None) -> None",
             "Resets the peak statistics of a device to the current values.") {
  return reset(call, px_memory_reset_peak);
}
EXT_FUNCTION(cuda, reset_accumulated_memory_stats, "(device: Device | None = None) -> None",
             "Resets the accumulated statistics of a device.") {
  return reset(call, px_memory_reset_accumulated);
}
EXT_RETURNS_NONE(cuda, empty_cache, px_memory_empty_cache(),
                 "Releases all unoccupied cached memory to the devices.");
EXT_RETURNS_NONE(cuda, _empty_host_cache, px_memory_empty_host_cache(),
                 "Releases all unoccupied cached pinned memory to the system.");
EXT_FUNCTION(cuda, set_per_process_memory_fraction,
             "(fraction: float, device: Device | None = None) -> None",
             "Sets the memory fraction of a device for this process.\n\n"
             "Args:\n"
             "    fraction (float): fraction of the total memory, 0 to 1\n"
             "    device (torch.device, str, int or None): default: the current device\n") {
  PyObject *fraction;
  ext_cuda device;
  EXT_BIND(fraction, device);
  if (!PyFloat_Check(fraction))
    EXT_FAIL(PyExc_TypeError, "Invalid type for fraction argument, must be `float`");
  return ext_none(px_memory_set_fraction(PyFloat_AS_DOUBLE(fraction), device.index));
}
EXT_FUNCTION(cuda, get_per_process_memory_fraction, "(device: Device | None = None) -> float",
             "Returns the memory fraction of a device; 1.0 by default.") {
  ext_cuda device;
  double fraction;
  EXT_BIND(device);
  EXT_TRY(px_memory_fraction(&fraction, device.index));
  return PyFloat_FromDouble(fraction);
}
// Returns the driver's code, also of failures.
static PyObject *registration(px_status status) {
  int code = status == PX_OK ? 0 : px_error_last()->detail;
  if (status != PX_OK && !code) return ext_raise();
  if (code) px_error_clear();
  return PyLong_FromLong(code);
}
EXT_FUNCTION(cuda, _host_register, "(ptr: int, size: int) -> int",
             "Page-locks host memory where it is. Returns the driver's code, 0 for success.") {
  int64_t ptr, size;
  EXT_BIND(ptr, size);
  if (ptr < 0 || size < 0) EXT_FAIL(PyExc_ValueError, "an address or a size is negative");
  return registration(px_memory_host_register((void *)(uintptr_t)ptr, (size_t)size));
}
EXT_FUNCTION(cuda, _host_unregister, "(ptr: int) -> int",
             "Undoes _host_register. Returns the driver's code, 0 for success.") {
  int64_t ptr;
  EXT_BIND(ptr);
  return registration(EXT_NOGIL(px_memory_host_unregister((void *)(uintptr_t)ptr)));
}
EXT_RETURNS_NONE(cuda, reset_peak_host_memory_stats, px_memory_host_reset_peak(),
                 "Resets the peak statistics of pinned memory to the current values.");
EXT_RETURNS_NONE(cuda, reset_accumulated_host_memory_stats, px_memory_host_reset_accumulated(),
                 "Resets the accumulated statistics of pinned memory.");
EXT_FUNCTION(cuda, _set_allocator_settings, "(env: str) -> None",
             "Changes the settings of PYTORCH_CUDA_ALLOC_CONF.") {
  EXT_ARGS(const char *, env);
  return ext_none(px_memory_configure(env));
}
EXT_FUNCTION(cuda, _caching_allocator_enable, "(value: bool) -> None",
             "Enables or disables caching of device memory.") {
  EXT_ARGS(bool, value);
  px_memory_set_caching(value);
  Py_RETURN_NONE;
}

// ---- statistics
static void add_stat(const px_memory_stat *stat, void *context) {
  PyObject *value = PyLong_FromLongLong(stat->value);
  if (value) PyMapping_SetItemString((PyObject *)context, stat->key, value);
  Py_XDECREF(value);
}
static PyObject *ordered_dict(void) { return ext_call_from("collections", "OrderedDict", "()"); }
EXT_FUNCTION(
    cuda, memory_stats, "(device: Device | None = None) -> OrderedDict[str, int]",
    "Returns allocator statistics of a device, with keys like \"allocated_bytes.all.peak\".") {
  int index;
  EXT_ARGS(PyObject *, device);
  EXT_OWNED *stats = ordered_dict();
  if (!stats || index_of(device, &index) < 0) return NULL;
  EXT_TRY(px_memory_stats(index, add_stat, stats));
  return PyErr_Occurred() ? NULL : ext_moved(&stats);
}
EXT_METHOD0(cuda, host_memory_stats, "OrderedDict[str, int]",
            "Returns allocator statistics of pinned memory.") {
  EXT_OWNED *stats = ordered_dict();
  if (!stats) return NULL;
  EXT_TRY(px_memory_host_stats(add_stat, stats));
  return PyErr_Occurred() ? NULL : ext_moved(&stats);
}

// ---- snapshot and history
// Frame lists are created once per stack and cached in `known` by the stack's address.
typedef struct event_list {
  PyObject *list, *known;
} event_list;

static void add_frame(PyObject *list, const char *file, int line, const char *function) {
  EXT_OWNED *frame =
      Py_BuildValue("{s:s,s:i,s:s}", "filename", file, "line", line, "name", function);
  if (frame) PyList_Append(list, frame);
}
// The op is also a frame, like library functions in PyTorch's stacks.
static PyObject *list_frames(const px_traceback *stack) {
  PyObject *list = PyList_New(0);
  if (list && stack && stack->op) add_frame(list, "libphlox", 0, stack->op);
  for (int i = 0; list && stack && i < stack->count; i++)
    add_frame(list, stack->frames[i].file, stack->frames[i].line, stack->frames[i].function);
  return list;
}
static PyObject *frames_of(const px_traceback *stack, PyObject *known) {
  EXT_OWNED *key = PyLong_FromVoidPtr((void *)stack);
  PyObject *list = key ? PyDict_GetItemWithError(known, key) : NULL;
  if (list || PyErr_Occurred()) return Py_XNewRef(list);
  list = list_frames(stack);
  if (list && PyDict_SetItem(known, key, list) < 0) Py_CLEAR(list);
  return list;
}

static void add_block(const px_memory_block *b, void *context) {
  const event_list *to = context;
  if (PyErr_Occurred()) return;
  EXT_OWNED *block = Py_BuildValue(
      "{s:L,s:L,s:N,s:N,s:L,s:O,s:O,s:L,s:L,s:L,s:s,s:N}", "segment_address",
      (long long)b->segment_address, "segment_size", (long long)b->segment_size, "pool",
      ext_graph_pool(b->pool), "segment_frames", frames_of(b->segment_stack, to->known), "stream",
      (long long)b->segment_stream, "small", b->small_pool ? Py_True : Py_False, "expandable",
      b->expandable ? Py_True : Py_False, "address", (long long)b->address, "size",
      (long long)b->size, "requested_size", (long long)b->requested, "state", b->state, "frames",
      frames_of(b->stack, to->known));
  if (block) PyList_Append(to->list, block);
}
EXT_FUNCTION(
    cuda, _memory_blocks, "(device: int, known: dict) -> list[dict]",
    "Returns the blocks of a device, by segment and address. Caches frame lists in `known`.") {
  int64_t device;
  PyObject *known;
  EXT_BIND(device, known);
  EXT_OWNED *list = PyList_New(0);
  if (!list) return NULL;
  EXT_TRY(
      px_memory_snapshot(ext_clamp_device_index(device), add_block, &(event_list){list, known}));
  return PyErr_Occurred() ? NULL : ext_moved(&list);
}

static void add_event(const px_memory_event *e, void *context) {
  const event_list *to = context;
  if (PyErr_Occurred()) return;
  EXT_OWNED *event = Py_BuildValue(
      "{s:s,s:L,s:L,s:N,s:L,s:N}", "action", px_memory_action_name(e->action), "size",
      (long long)e->size, "stream", (long long)e->stream, "pool_id", ext_graph_pool(e->pool),
      "time_us", (long long)e->time, "frames", frames_of(e->stack, to->known));
  bool oom = e->action == PX_MEMORY_OOM;
  EXT_OWNED *number = event ? PyLong_FromLongLong(oom ? e->free_bytes : e->address) : NULL;
  if (number && PyDict_SetItemString(event, oom ? "device_free" : "addr", number) == 0)
    PyList_Append(to->list, event);
}
EXT_FUNCTION(cuda, _memory_events, "(device: int, known: dict) -> list[dict]",
             "Returns the recorded history of a device. Caches frame lists in `known`.") {
  int64_t device;
  PyObject *known;
  EXT_BIND(device, known);
  EXT_OWNED *list = PyList_New(0);
  if (!list) return NULL;
  EXT_TRY(px_memory_events(ext_clamp_device_index(device), add_event, &(event_list){list, known}));
  return PyErr_Occurred() ? NULL : ext_moved(&list);
}

static const char *const contexts[] = {"", "state", "alloc", "all"};
static int read_skipped(PyObject *actions, unsigned *out) {
  EXT_OWNED *list = PySequence_Fast(actions, "skip_actions must be a list of str");
  for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(list); i++) {
    const char *name = ext_text(PySequence_Fast_GET_ITEM(list, i));
    int action = 0;
    if (!name) return -1;
    while (action < PX_MEMORY_ACTIONS && strcmp(name, px_memory_action_name(action))) action++;
    if (action == PX_MEMORY_ACTIONS)
      EXT_FAIL_INT(PyExc_ValueError, "Unknown action to skip: '%s'", name);
    *out |= 1u << action;
  }
  return list ? 0 : -1;
}
EXT_FUNCTION(cuda, _record_memory,
             "(max_entries: int | None, context: str, ops: bool, skip_actions: Any, clear: bool) "
             "-> None",
             "Enables recording of memory history, or disables it if max_entries is None.") {
  px_memory_history history = {0};
  int64_t max_entries;
  const char *context;
  PyObject *skip_actions;
  bool ops, clear;
  EXT_BIND(max_entries, context, ops, skip_actions, clear);
  if (read_skipped(skip_actions, &history.skipped) < 0) return NULL;
  while (strcmp(contexts[history.stacks], context)) history.stacks++;
  ext_sites_enabled = true;  // the next call without the GIL lends its lines, too
  history.max_entries = max_entries, history.clear = clear, history.lines_only = !ops;
  return ext_none(px_memory_record(max_entries == EXT_NO_INT ? NULL : &history));
}

// ---- pools
typedef struct pool_object {
  PyObject_HEAD px_memory_pool *pool;
  PyObject *allocator;  // or NULL
} pool_object;
static px_memory_pool *pool_of(PyObject *self) { return ((pool_object *)self)->pool; }

EXT_OWNS(mem_pool, EXT_CORE(pool_object, pool), EXT_OBJECT(pool_object, allocator));
EXT_NEW(mem_pool,
        "(allocator: CUDAPluggableAllocator | None = None, use_on_oom: bool = False, "
        "no_split: bool = False)") {
  px_memory_pool *made;
  const px_memory_allocator *functions;
  PyObject *allocator;
  bool use_on_oom, no_split;
  EXT_BIND(allocator, use_on_oom, no_split);
  if (ext_pluggable_allocator(allocator, "MemPool()", &functions) < 0) return NULL;
  EXT_TRY(px_memory_pool_new_over(&made, -1, functions));
  EXT_TRY(px_memory_pool_set(made, use_on_oom, no_split));
  PyObject *self = ext_wrap_core(type, made);
  if (self && functions) ((pool_object *)self)->allocator = Py_NewRef(allocator);
  return self;
}
EXT_TYPE(mem_pool, "torch.cuda.MemPool", "cuda.MemPool", pool_object, EXT_BASETYPE,
         "A memory pool of the current device. Allocations within\n"
         "`with torch.cuda.use_mem_pool(pool)` use segments reserved for the pool while it lives.\n"
         "Graphs can share it: `torch.cuda.graph(g, pool=pool.id)`.\n\n"
         "Args:\n"
         "    allocator (CUDAPluggableAllocator or None): allocator of its segments; None: the "
         "device's\n"
         "    use_on_oom (bool): whether free memory of the pool serves other requests before they "
         "fail\n"
         "    no_split (bool): whether each block has its own segment\n",
         EXT_LIFETIME_SLOTS(mem_pool), .tp_new = mem_pool_new);
EXT_GET(mem_pool, id, "tuple[int, int]", ext_graph_pool(px_memory_pool_name(pool_of(self))),
        "The ID of the pool, accepted by graphs.");
EXT_GETTER(mem_pool, allocator, "CUDAPluggableAllocator | None",
           "The allocator of its segments; None: the device's.") {
  PyObject *allocator = ((pool_object *)self)->allocator;
  return Py_NewRef(allocator ? allocator : Py_None);
}
EXT_METHOD0(mem_pool, use_count, "int",
            "Returns the reference count of the pool: itself, active uses, and graphs.") {
  int uses;
  EXT_TRY(px_memory_pool_uses(&uses, pool_of(self)));
  return PyLong_FromLong(uses);
}
EXT_METHOD(mem_pool, snapshot, "(include_traces: bool = True) -> list[dict[str, Any]]",
           "Returns the pool's segments in the format of memory_snapshot, without traces.") {
  bool include_traces;
  EXT_BIND(include_traces);
  return ext_call_from("phlox.cuda.memory", "memory_snapshot", "(N)",
                       ext_graph_pool(px_memory_pool_name(pool_of(self))));
}
EXT_METHOD(mem_pool, _begin, "(device: int) -> None", "Enters use_mem_pool.") {
  EXT_ARGS(int64_t, device);
  return ext_none(px_memory_pool_begin(pool_of(self), ext_clamp_device_index(device)));
}
EXT_METHOD(mem_pool, _end, "(device: int) -> None", "Exits use_mem_pool.") {
  EXT_ARGS(int64_t, device);
  EXT_WAIT(px_memory_pool_end(pool_of(self), ext_clamp_device_index(device)));
  Py_RETURN_NONE;
}

// ---- the race checker
EXT_METHOD0(sanitizer, enable_cuda_sanitizer, "None",
            "Enables the race checker for all later launches.") {
  px_race_enable(1, true);
  Py_RETURN_NONE;
}
EXT_METHOD0(sanitizer, _collect, "None",
            "Enables the race checker for all later launches. Races are reported, not raised.") {
  px_race_enable(1, false);
  Py_RETURN_NONE;
}
EXT_METHOD0(sanitizer, _reports, "list[str]", "Returns the stored reports of races.") {
  EXT_OWNED *list = PyList_New(0);
  const char *text;
  for (int64_t i = 0; list && (text = px_race_report(i)); i++) {
    EXT_OWNED *report = ext_str(text);
    if (!report || PyList_Append(list, report) < 0) Py_CLEAR(list);
  }
  return ext_moved(&list);
}

// ---- observers of shortages
static PyObject *shortage_observers;  // a list

// An exception of an observer is printed: the allocation fails with its own error.
static void call_observers(int device, size_t requested, size_t total, size_t unused,
                           void *context) {
  ext_gil gil;
  if (ext_gil_take(&gil) != PX_OK) return;
  PyObject *before = ext_exception_take();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(shortage_observers); i++) {
    PyObject *observer = PyList_GET_ITEM(shortage_observers, i);
    PyObject *done = PyObject_CallFunction(observer, "iKKK", device, (unsigned long long)requested,
                                           (unsigned long long)total, (unsigned long long)unused);
    if (!done) PyErr_WriteUnraisable(observer);
    Py_XDECREF(done);
  }
  if (before) ext_exception_set(before);
  ext_gil_give(&gil);
}

EXT_FUNCTION(
    torch, _cuda_attach_out_of_memory_observer, "(observer: Callable) -> None",
    "Calls observer(device, requested bytes, the device's memory, free bytes) before an allocation "
    "fails.") {
  EXT_ARGS(PyObject *, observer);
  if (!PyCallable_Check(observer))
    EXT_FAIL(PyExc_TypeError, "expected a callable observer, not %s", ext_type_name(observer));
  if (!shortage_observers) {
    if (!(shortage_observers = PyList_New(0))) return NULL;
    EXT_TRY(px_memory_observe_shortage(call_observers, NULL));
  }
  return PyList_Append(shortage_observers, observer) < 0 ? NULL : Py_NewRef(Py_None);
}
EXT_SAME_MEMBERS(accelerator, cuda, host_memory_stats, reset_peak_host_memory_stats,
                 reset_accumulated_host_memory_stats);
