// SPDX-License-Identifier: Apache-2.0
// torch.cuda's figures of memory: statistics, blocks, limits. What is told of them in words, and
// the older names, are phlox/cuda/memory.py.
#include "ext.h"

EXT_MODULE(sanitizer, "cuda._sanitizer", "The race checker under PyTorch's name.");

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

#define FIGURE(name, function, text) \
  EXT_FUNCTION(cuda, name, "(device: Device | None = None) -> int", text) { \
    PyObject *device; \
    int index; \
    EXT_BIND(device); \
    return figure_index(device, &index) < 0 ? NULL : PyLong_FromLongLong(function(index)); \
  }
FIGURE(memory_allocated, px_memory_allocated, "Bytes of a device that tensors hold now.")
FIGURE(max_memory_allocated, px_memory_allocated_peak, "The most bytes that tensors held at once.")
FIGURE(memory_reserved, px_memory_reserved, "Bytes of a device that the allocator holds now.")
FIGURE(max_memory_reserved, px_memory_reserved_peak, "The most bytes that the allocator held.")

static PyObject *reset(const ext_call *call, px_status (*function)(int device)) {
  int index;
  EXT_ARGS(PyObject *, device);
  if (index_of(device, &index) < 0) return NULL;
  return ext_none(function(index));
}
EXT_FUNCTION(cuda, reset_peak_memory_stats, "(device: Device | None = None) -> None",
             "Lets the peaks of a device begin again from what is used now.") {
  return reset(call, px_memory_reset_peak);
}
EXT_FUNCTION(cuda, reset_accumulated_memory_stats, "(device: Device | None = None) -> None",
             "Sets the sums of a device, of what was allocated and freed, to 0.") {
  return reset(call, px_memory_reset_accumulated);
}
EXT_DOES(cuda, empty_cache, px_memory_empty_cache(),
         "Gives memory that no tensor holds back to the devices.");
EXT_FUNCTION(cuda, set_per_process_memory_fraction,
             "(fraction: float, device: Device | None = None) -> None",
             "Limits what the allocator takes of a device.\n\n"
             "Args:\n"
             "    fraction (float): of all its memory, 0 to 1\n"
             "    device (torch.device, str, int or None): the current one by default\n") {
  PyObject *fraction;
  ext_cuda device;
  EXT_BIND(fraction, device);
  if (!PyFloat_Check(fraction))
    EXT_FAIL(PyExc_TypeError, "Invalid type for fraction argument, must be `float`");
  return ext_none(px_memory_set_fraction(PyFloat_AS_DOUBLE(fraction), device.index));
}
EXT_FUNCTION(cuda, _set_allocator_settings, "(env: str) -> None",
             "The settings of PYTORCH_CUDA_ALLOC_CONF from here on.") {
  EXT_ARGS(const char *, env);
  return ext_none(px_memory_configure(env));
}
EXT_GIVES(cuda, get_allocator_backend, "str", (const char *)"native", "\"native\".");

// ---- statistics
static void add_stat(const px_memory_stat *stat, void *context) {
  PyObject *value = PyLong_FromLongLong(stat->value);
  if (value) PyMapping_SetItemString((PyObject *)context, stat->key, value);
  Py_XDECREF(value);
}
static PyObject *ordered_dict(void) { return ext_call_from("collections", "OrderedDict", "()"); }
EXT_FUNCTION(cuda, memory_stats, "(device: Device | None = None) -> OrderedDict[str, int]",
             "All figures of a device, with PyTorch's keys, as \"allocated_bytes.all.peak\".") {
  int index;
  EXT_ARGS(PyObject *, device);
  EXT_OWNED *stats = ordered_dict();
  if (!stats || index_of(device, &index) < 0) return NULL;
  EXT_TRY(px_memory_stats(index, add_stat, stats));
  return PyErr_Occurred() ? NULL : ext_moved(&stats);
}
EXT_METHOD0(cuda, host_memory_stats, "OrderedDict[str, int]", "The same of pinned memory.") {
  EXT_OWNED *stats = ordered_dict();
  if (!stats) return NULL;
  EXT_TRY(px_memory_host_stats(add_stat, stats));
  return PyErr_Occurred() ? NULL : ext_moved(&stats);
}

static void add_block(const px_memory_block *b, void *context) {
  PyObject *block = Py_BuildValue(
      "{s:L,s:L,s:L,s:O,s:L,s:L,s:L,s:s}", "segment_address", (long long)b->segment_address,
      "segment_size", (long long)b->segment_size, "stream", (long long)b->stream, "small",
      b->small_pool ? Py_True : Py_False, "address", (long long)b->address, "size",
      (long long)b->size, "requested_size", (long long)b->requested, "state", b->state);
  if (block) PyList_Append(context, block);
  Py_XDECREF(block);
}
EXT_FUNCTION(cuda, _memory_blocks, "(device: int) -> list[dict]",
             "The blocks of a device, by segment and address.") {
  EXT_ARGS(int64_t, device);
  EXT_OWNED *list = PyList_New(0);
  if (!list) return NULL;
  EXT_TRY(px_memory_snapshot(ext_narrow(device), add_block, list));
  return PyErr_Occurred() ? NULL : ext_moved(&list);
}

// ---- the race checker
EXT_METHOD0(sanitizer, enable_cuda_sanitizer, "None",
            "Checks every launch for races from here on.") {
  px_race_enable(1, true);
  Py_RETURN_NONE;
}
