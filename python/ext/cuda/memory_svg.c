// SPDX-License-Identifier: Apache-2.0
// Plots a memory snapshot of torch.cuda.memory._snapshot, also PyTorch's. Converts its dicts to the
// structs the core draws from; texts stay owned by the dicts.
#include "bind/ext.h"

#include <string.h>

// Stack of an event, reduced to the frame that names its owner.
typedef struct stack {
  px_traceback traceback;
  px_frame frame;
} stack;
// Snapshot of one device.
typedef struct device_snapshot {
  px_memory_trace pub;
  px_memory_block *blocks;
  px_memory_event *events;
  stack *stacks;  // by event
} device_snapshot;

// ---- dict entries, borrowed; ValueError if missing
static PyObject *entry(PyObject *dict, const char *key) {
  PyObject *value = PyDict_Check(dict) ? PyDict_GetItemString(dict, key) : NULL;
  if (!value) EXT_FAIL(PyExc_ValueError, "the file is no snapshot of memory: missing '%s'", key);
  return value;
}
static PyObject *list_in(PyObject *dict, const char *key) {
  PyObject *value = entry(dict, key);
  if (value && !PyList_Check(value))
    EXT_FAIL(PyExc_ValueError, "the file is no snapshot of memory: '%s' must be a list", key);
  return value;
}
static int64_t number_in(PyObject *dict, const char *key) {
  PyObject *value = entry(dict, key);
  int overflow = 1;
  int64_t number =
      value && PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : -1;
  if (value && overflow)
    PyErr_Format(PyExc_ValueError, "the file is no snapshot of memory: '%s' must be a number", key);
  return number;
}
static const char *text_in(PyObject *dict, const char *key) {
  PyObject *value = entry(dict, key);
  if (value && !PyUnicode_Check(value))
    EXT_FAIL(PyExc_ValueError, "the file is no snapshot of memory: '%s' must be a text", key);
  return value ? ext_text(value) : NULL;
}
static bool has_entry(PyObject *dict, const char *key) {
  return PyDict_Check(dict) && PyDict_GetItemString(dict, key);
}

// ---- stacks
// True for the files of this package, and of an installed PyTorch or Phlox elsewhere.
static bool is_library(PyObject *path, const char *file) {
  static const char *const installed[] = {"-packages/torch/", "-packages/phlox/"};
  for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
    if (strstr(file, installed[i])) return true;
  return ext_is_own_file(path);
}
// 1 if the frame is user code, which it then stores in the stack.
static int read_frame(PyObject *frame, stack *out) {
  px_frame *f = &out->frame;
  f->line = (int)number_in(frame, "line");
  if (PyErr_Occurred() || !(f->file = text_in(frame, "filename"))) return -1;
  out->traceback.count = f->line && !is_library(entry(frame, "filename"), f->file);
  return out->traceback.count;
}
static int read_stack(PyObject *event, stack *out) {
  PyObject *frames = has_entry(event, "frames") ? list_in(event, "frames") : NULL;
  if (!frames || !PyList_GET_SIZE(frames)) return PyErr_Occurred() ? -1 : 0;
  out->traceback.frames = &out->frame;
  out->frame.function = out->traceback.op = text_in(PyList_GET_ITEM(frames, 0), "name");
  int found = out->traceback.op ? 0 : -1;
  for (Py_ssize_t i = 0; !found && i < PyList_GET_SIZE(frames); i++)
    found = read_frame(PyList_GET_ITEM(frames, i), out);
  return found < 0 ? -1 : 0;
}

// ---- events and blocks
// Unknown actions, possibly of a later PyTorch, are ignored.
static px_memory_action action_of(const char *name) {
  int action = 0;
  while (action < PX_MEMORY_ACTIONS && strcmp(name, px_memory_action_name(action))) action++;
  return action == PX_MEMORY_ACTIONS ? PX_MEMORY_SNAPSHOT : (px_memory_action)action;
}
static int read_event(PyObject *from, px_memory_event *e, stack *s) {
  const char *action = text_in(from, "action");
  if (!action) return -1;
  e->action = action_of(action);
  e->size = number_in(from, "size");
  if (has_entry(from, "time_us")) e->time = number_in(from, "time_us");
  if (e->action == PX_MEMORY_ALLOC || e->action == PX_MEMORY_FREE_REQUESTED)
    e->address = number_in(from, "addr");
  e->stack = &s->traceback;
  return PyErr_Occurred() ? -1 : read_stack(from, s);
}
static int read_block(PyObject *from, px_memory_block *b) {
  if (!(b->state = text_in(from, "state"))) return -1;
  b->address = number_in(from, "address");
  b->size = number_in(from, "size");
  if (has_entry(from, "requested_size")) b->requested = number_in(from, "requested_size");
  return PyErr_Occurred() ? -1 : 0;
}
// Segments are identified by number; a segment without blocks gets an empty one.
static int read_segment(PyObject *segment, int64_t number, device_snapshot *p) {
  px_memory_block all = {.segment_address = number, .state = "inactive"};
  PyObject *blocks = list_in(segment, "blocks");
  all.segment_size = number_in(segment, "total_size");
  if (!blocks || PyErr_Occurred()) return -1;
  Py_ssize_t count = PyList_GET_SIZE(blocks);
  for (Py_ssize_t i = 0; i < (count ? count : 1); i++) {
    px_memory_block *b = &p->blocks[p->pub.block_count++];
    *b = all;
    if (count && read_block(PyList_GET_ITEM(blocks, i), b) < 0) return -1;
  }
  return 0;
}

// ---- a device
// Upper bound of the number of blocks; negative on error.
static int64_t count_blocks(PyObject *segments, int64_t device) {
  int64_t count = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(segments); i++) {
    PyObject *segment = PyList_GET_ITEM(segments, i);
    int64_t on = number_in(segment, "device");
    PyObject *blocks = PyErr_Occurred() ? NULL : list_in(segment, "blocks");
    if (!blocks) return -1;
    if (on == device) count += PyList_GET_SIZE(blocks) + 1;
  }
  return count;
}
static int allocate(device_snapshot *p, int64_t blocks, int64_t events) {
  p->blocks = PyMem_Calloc((size_t)blocks + 1, sizeof *p->blocks);
  p->events = PyMem_Calloc((size_t)events + 1, sizeof *p->events);
  p->stacks = PyMem_Calloc((size_t)events + 1, sizeof *p->stacks);
  if (!p->blocks || !p->events || !p->stacks) return PyErr_NoMemory(), -1;
  p->pub.blocks = p->blocks, p->pub.events = p->events, p->pub.event_count = events;
  return 0;
}
static int read_device(PyObject *segments, PyObject *events, device_snapshot *p) {
  if (!PyList_Check(events))
    EXT_FAIL_INT(PyExc_ValueError, "the file is no snapshot of memory: a trace must be a list");
  int64_t blocks = count_blocks(segments, p->pub.device), count = PyList_GET_SIZE(events);
  if (blocks < 0 || allocate(p, blocks, count) < 0) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(segments); i++) {
    PyObject *segment = PyList_GET_ITEM(segments, i);
    if (number_in(segment, "device") == p->pub.device && read_segment(segment, i, p) < 0) return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++)
    if (read_event(PyList_GET_ITEM(events, i), &p->events[i], &p->stacks[i]) < 0) return -1;
  return 0;
}

// ---- all devices
static void free_snapshots(device_snapshot *devices, px_memory_trace *all, Py_ssize_t count) {
  for (Py_ssize_t i = 0; devices && i < count; i++) {
    PyMem_Free(devices[i].blocks);
    PyMem_Free(devices[i].events);
    PyMem_Free(devices[i].stacks);
  }
  PyMem_Free(devices);
  PyMem_Free(all);
}
static PyObject *draw(PyObject *segments, PyObject *traces, device_snapshot *devices,
                      px_memory_trace *all, int owners) {
  Py_ssize_t count = PyList_GET_SIZE(traces);
  char *text;
  if (!devices || !all) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) {
    devices[i].pub.device = (int)i;
    if (read_device(segments, PyList_GET_ITEM(traces, i), &devices[i]) < 0) return NULL;
    all[i] = devices[i].pub;
  }
  EXT_TRY(px_memory_picture(&text, all, (int)count, owners));
  PyObject *drawn = ext_str(text);
  px_free(text);
  return drawn;
}
EXT_FUNCTION(cuda, _draw_memory, "(snapshot: dict, owners: int = 12) -> str",
             "Plots a memory snapshot as SVG.\n\n"
             "Args:\n"
             "    snapshot (dict): a snapshot of torch.cuda.memory._snapshot\n"
             "    owners (int): number of owners with a color of their own\n") {
  PyObject *snapshot;
  int64_t owners;
  EXT_BIND(snapshot, owners);
  PyObject *segments = list_in(snapshot, "segments");
  PyObject *traces = segments ? list_in(snapshot, "device_traces") : NULL;
  if (!traces) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(traces);
  device_snapshot *devices = PyMem_Calloc((size_t)count + 1, sizeof *devices);
  px_memory_trace *all = PyMem_Calloc((size_t)count + 1, sizeof *all);
  PyObject *drawn = draw(segments, traces, devices, all, ext_clamp_device_index(owners));
  free_snapshots(devices, all, count);
  return drawn;
}
