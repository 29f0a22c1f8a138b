// SPDX-License-Identifier: Apache-2.0
// torch.cuda's figures of memory: statistics, summary, snapshot, limits.
#include "ext.h"

#include <string.h>

// The device of an argument without initialising anything.
static int index_of(PyObject *device, int *out) {
  *out = px_device_peek();
  return ext_is_none(device) ? 0 : ext_to_cuda_index(device, out);
}

// Zeros before anything is initialised, whatever the index.
static int figure_index(PyObject *device, int *out) {
  if (index_of(device, out) < 0) return -1;
  if (px_device_initialized() && (*out < 0 || *out >= px_device_count(PX_CUDA)))
    EXT_FAIL_INT(PyExc_RuntimeError, "Invalid device argument %d: did you call init?", *out);
  return 0;
}

#define FIGURE(name, function) \
  static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t nargs, \
                        PyObject *kwnames) { \
    EXT_ARGS(#name, "|device", out); \
    int index; \
    return figure_index(out[0], &index) < 0 ? NULL : PyLong_FromLongLong(function(index)); \
  }
FIGURE(memory_allocated, px_memory_allocated)
FIGURE(max_memory_allocated, px_memory_allocated_peak)
FIGURE(memory_reserved, px_memory_reserved)
FIGURE(max_memory_reserved, px_memory_reserved_peak)

static int renamed(const char *old, const char *name) {
  char text[160];
  snprintf(text, sizeof text, "`torch.cuda.%s` has been renamed to `torch.cuda.%s`", old, name);
  return PyErr_WarnEx(PyExc_FutureWarning, text, 1);
}
EXT_FAST(memory_cached) {
  if (renamed("memory_cached", "memory_reserved") < 0) return NULL;
  return memory_reserved(self, args, nargs, kwnames);
}
EXT_FAST(max_memory_cached) {
  if (renamed("max_memory_cached", "max_memory_reserved") < 0) return NULL;
  return max_memory_reserved(self, args, nargs, kwnames);
}

EXT_FAST(reset_peak) {
  EXT_ARGS("reset_peak_memory_stats", "|device", out);
  int index;
  if (index_of(out[0], &index) < 0) return NULL;
  EXT_TRY(px_memory_reset_peak(index));
  Py_RETURN_NONE;
}
EXT_FAST(reset_accumulated) {
  EXT_ARGS("reset_accumulated_memory_stats", "|device", out);
  int index;
  if (index_of(out[0], &index) < 0) return NULL;
  EXT_TRY(px_memory_reset_accumulated(index));
  Py_RETURN_NONE;
}
static int reset_warning(const char *name) {
  char text[200];
  snprintf(text, sizeof text,
           "torch.cuda.%s now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak "
           "memory stats.",
           name);
  return PyErr_WarnEx(PyExc_FutureWarning, text, 1);
}
EXT_FAST(reset_max_allocated) {
  return reset_warning("reset_max_memory_allocated") < 0 ? NULL
                                                         : reset_peak(self, args, nargs, kwnames);
}
EXT_FAST(reset_max_cached) {
  return reset_warning("reset_max_memory_cached") < 0 ? NULL
                                                      : reset_peak(self, args, nargs, kwnames);
}
static PyObject *empty_cache(PyObject *m, PyObject *u) {
  EXT_WAIT(px_memory_empty_cache());
  Py_RETURN_NONE;
}
EXT_FAST(set_fraction) {
  EXT_ARGS("set_per_process_memory_fraction", "fraction|device", out);
  int index;
  if (!PyFloat_Check(out[0]))
    EXT_FAIL(PyExc_TypeError, "Invalid type for fraction argument, must be `float`");
  if (ext_to_cuda_index(out[1], &index) < 0) return NULL;
  EXT_TRY(px_memory_set_fraction(PyFloat_AS_DOUBLE(out[0]), index));
  Py_RETURN_NONE;
}

EXT_FAST(set_allocator_settings) {
  EXT_ARGS("_set_allocator_settings", "env", out);
  if (!PyUnicode_Check(out[0]))
    EXT_FAIL(PyExc_TypeError, "_set_allocator_settings(): argument 'env' must be str, not %s",
             ext_type_name(out[0]));
  const char *text = PyUnicode_AsUTF8(out[0]);
  if (!text) return NULL;
  EXT_TRY(px_memory_configure(text));
  Py_RETURN_NONE;
}

// ---- statistics
static void add_stat(const px_memory_stat *stat, void *context) {
  PyObject *value = PyLong_FromLongLong(stat->value);
  if (value) PyMapping_SetItemString((PyObject *)context, stat->key, value);
  Py_XDECREF(value);
}
static PyObject *ordered_dict(void) {
  EXT_OWNED *module = PyImport_ImportModule("collections");
  return module ? PyObject_CallMethod(module, "OrderedDict", NULL) : NULL;
}
EXT_FAST(memory_stats) {
  EXT_ARGS("memory_stats", "|device", out);
  int index;
  EXT_OWNED *stats = ordered_dict();
  if (!stats || index_of(out[0], &index) < 0) return NULL;
  EXT_TRY(px_memory_stats(index, add_stat, stats));
  return PyErr_Occurred() ? NULL : ext_moved(&stats);
}
static PyObject *host_memory_stats(PyObject *m, PyObject *u) {
  EXT_OWNED *stats = ordered_dict();
  if (!stats) return NULL;
  EXT_TRY(px_memory_host_stats(add_stat, stats));
  return PyErr_Occurred() ? NULL : ext_moved(&stats);
}

// ---- the summary: a table of 77 columns
static const struct {
  const char *key, *title;
  bool bytes;
} rows[] = {{"allocated_bytes", "Allocated memory", true},
            {"active_bytes", "Active memory", true},
            {"requested_bytes", "Requested memory", true},
            {"reserved_bytes", "GPU reserved memory", true},
            {"inactive_split_bytes", "Non-releasable memory", true},
            {"allocation", "Allocations", false},
            {"active", "Active allocs", false},
            {"segment", "GPU reserved segments", false},
            {"inactive_split", "Non-releasable allocs", false}};
static const char *const pools[] = {"all", "large_pool", "small_pool"};
static const char *const kinds[] = {"current", "peak", "allocated", "freed"};

typedef struct summary {
  char text[16384];
  size_t length;
  int device;
} summary;
__attribute__((format(printf, 2, 3))) static void put(summary *s, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int n = vsnprintf(s->text + s->length, sizeof s->text - s->length, format, list);
  va_end(list);
  if (n > 0 && (size_t)n < sizeof s->text - s->length) s->length += (size_t)n;
}
static void rule(summary *s, char mark) {
  char line[76];
  memset(line, mark, 75);
  line[75] = 0;
  put(s, "|%s|\n", line);
}
// `scale` decides the unit: that of the row "all", so that the rows of a group agree.
static void cell(summary *s, int64_t value, int64_t scale, bool bytes) {
  static const char *const byte_units[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
  static const char *const count_units[] = {" ", "K", "M"};
  int unit = 0;
  double reference = (double)scale;
  while (unit < (bytes ? 5 : 2) && reference >= (bytes ? 768.0 * 1024 : 750.0 * 1000)) {
    value /= bytes ? 1024 : 1000;
    reference /= bytes ? 1024 : 1000;
    unit++;
  }
  if (bytes)
    put(s, " %6lld %s |", (long long)value, byte_units[unit]);
  else
    put(s, " %7lld %s  |", (long long)value, count_units[unit]);
}
static int64_t value_of(const summary *s, const char *key) {
  int64_t value = 0;
  if (px_memory_stat_get(&value, s->device, key) != PX_OK) px_error_clear();
  return value;
}
static void group(summary *s, int row, int pool_count) {
  int64_t scales[4] = {0};
  for (int pool = 0; pool < pool_count; pool++) {
    char title[32];
    snprintf(title, sizeof title, "%s%.5s pool", "      from ", pools[pool]);
    put(s, "| %-21s |", pool ? title : rows[row].title);
    for (int kind = 0; kind < 4; kind++) {
      char key[96];
      snprintf(key, sizeof key, "%s.%s.%s", rows[row].key, pools[pool], kinds[kind]);
      int64_t value = value_of(s, key);
      if (!pool) scales[kind] = value;
      cell(s, value, scales[kind], rows[row].bytes);
    }
    put(s, "\n");
  }
}
static void oversize(summary *s, const char *title, const char *name) {
  rule(s, '-');
  put(s, "| %-21s |", title);
  for (int kind = 0; kind < 4; kind++) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", name, kinds[kind]);
    cell(s, value_of(s, key), value_of(s, key), false);
  }
  put(s, "\n");
}

EXT_FAST(memory_summary) {
  EXT_ARGS("memory_summary", "|device abbreviated", out);
  int abbreviated = ext_to_bool(out[1], false);
  summary *s = PyMem_Calloc(1, sizeof *s);
  if (!s || abbreviated < 0 || index_of(out[0], &s->device) < 0) {
    PyMem_Free(s);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  }
  rule(s, '=');
  put(s, "|                  PyTorch CUDA memory summary, device ID %-18d|\n", s->device);
  rule(s, '-');
  put(s, "|            CUDA OOMs: %-13lld|        cudaMalloc retries: %-10lld|\n",
      (long long)value_of(s, "num_ooms"), (long long)value_of(s, "num_alloc_retries"));
  rule(s, '=');
  put(s, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n");
  for (int row = 0; row < EXT_LENGTH(rows); row++) {
    rule(s, '-');
    group(s, row, abbreviated ? 1 : 3);
  }
  oversize(s, "Oversize allocations", "oversize_allocations");
  oversize(s, "Oversize GPU segments", "oversize_segments");
  rule(s, '=');
  PyObject *text = PyUnicode_FromString(s->text);
  PyMem_Free(s);
  return text;
}

// ---- the snapshot: a list of segments with their blocks
typedef struct snapshot {
  PyObject *list, *segment;  // owned, borrowed
  int64_t address;
  int device;
  bool failed;
} snapshot;

static PyObject *new_segment(const px_memory_block *b, int device) {
  return Py_BuildValue("{s:i,s:L,s:L,s:L,s:s,s:(ii),s:L,s:L,s:L,s:O,s:N,s:N}", "device", device,
                       "address", (long long)b->segment_address, "total_size",
                       (long long)b->segment_size, "stream", (long long)b->stream, "segment_type",
                       b->small_pool ? "small" : "large", "segment_pool_id", 0, 0, "allocated_size",
                       0LL, "active_size", 0LL, "requested_size", 0LL, "is_expandable", Py_False,
                       "frames", PyList_New(0), "blocks", PyList_New(0));
}
static int add_to(PyObject *dict, const char *key, int64_t amount) {
  PyObject *before = PyDict_GetItemString(dict, key);
  EXT_OWNED *sum = PyLong_FromLongLong(amount + (before ? PyLong_AsLongLong(before) : 0));
  return sum ? PyDict_SetItemString(dict, key, sum) : -1;
}
static int add_block(snapshot *s, const px_memory_block *b) {
  if (!s->segment || s->address != b->segment_address) {
    EXT_OWNED *segment = new_segment(b, s->device);
    if (!segment || PyList_Append(s->list, segment) < 0) return -1;
    s->segment = segment;
    s->address = b->segment_address;
  }
  EXT_OWNED *block = Py_BuildValue(
      "{s:L,s:L,s:L,s:s,s:N}", "address", (long long)b->address, "size", (long long)b->size,
      "requested_size", (long long)b->requested, "state", b->state, "frames", PyList_New(0));
  PyObject *blocks = PyDict_GetItemString(s->segment, "blocks");
  if (!block || PyList_Append(blocks, block) < 0) return -1;
  bool allocated = !strcmp(b->state, "active_allocated"), active = strcmp(b->state, "inactive");
  if (add_to(s->segment, "allocated_size", allocated ? b->size : 0) < 0 ||
      add_to(s->segment, "requested_size", allocated ? b->requested : 0) < 0)
    return -1;
  return add_to(s->segment, "active_size", active ? b->size : 0);
}
static void each_block(const px_memory_block *block, void *context) {
  snapshot *s = context;
  if (!s->failed && add_block(s, block) < 0) s->failed = true;
}
static PyObject *memory_snapshot(PyObject *m, PyObject *u) {
  EXT_OWNED *list = PyList_New(0);
  for (int i = 0; list && px_device_initialized() && i < px_device_count(PX_CUDA); i++) {
    snapshot s = {.list = list, .device = i};
    EXT_TRY(px_memory_snapshot(i, each_block, &s));
    if (s.failed) return NULL;
  }
  return ext_moved(&list);
}
static PyObject *get_allocator_backend(PyObject *m, PyObject *u) {
  return PyUnicode_FromString("native");
}

// ---- the race checker, under PyTorch's name of its own
static PyObject *enable_sanitizer(PyObject *m, PyObject *u) {
  px_race_enable(1, true);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    EXT_DEF("memory_allocated", memory_allocated),
    EXT_DEF("max_memory_allocated", max_memory_allocated),
    EXT_DEF("memory_reserved", memory_reserved),
    EXT_DEF("max_memory_reserved", max_memory_reserved),
    EXT_DEF("memory_cached", memory_cached),
    EXT_DEF("max_memory_cached", max_memory_cached),
    EXT_DEF("reset_peak_memory_stats", reset_peak),
    EXT_DEF("reset_accumulated_memory_stats", reset_accumulated),
    EXT_DEF("reset_max_memory_allocated", reset_max_allocated),
    EXT_DEF("reset_max_memory_cached", reset_max_cached),
    {"empty_cache", empty_cache, METH_NOARGS, NULL},
    EXT_DEF("set_per_process_memory_fraction", set_fraction),
    EXT_DEF("_set_allocator_settings", set_allocator_settings),
    EXT_DEF("memory_stats", memory_stats),
    {"host_memory_stats", host_memory_stats, METH_NOARGS, NULL},
    EXT_DEF("memory_summary", memory_summary),
    {"memory_snapshot", memory_snapshot, METH_NOARGS, NULL},
    {"get_allocator_backend", get_allocator_backend, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
static PyMethodDef sanitizer_functions[] = {
    {"enable_cuda_sanitizer", enable_sanitizer, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};

static int ext_init_cuda_memory(PyObject *m) {
  EXT_OWNED *cuda = PyObject_GetAttrString(m, "cuda");
  PyObject *memory = cuda ? ext_submodule(cuda, "memory", functions) : NULL;
  if (!memory || !ext_submodule(cuda, "_sanitizer", sanitizer_functions)) return -1;
  return PyModule_AddFunctions(cuda, functions);
}
EXT_START(EXT_VALUES, ext_init_cuda_memory);
