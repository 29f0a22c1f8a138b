// SPDX-License-Identifier: Apache-2.0
// Conversion of layer inputs and results between Python and the core, and binding by name. In
// Python, related tensors form a tuple and missing ones are None; the core has a flat list.
#include "nn/nn.h"

#include <ctype.h>
#include <string.h>

const char *ext_port_name(const px_module_kind *kind, int i) {
  return kind->inputs && i < kind->input_count ? kind->inputs[i].name : "input";
}

static int tensors_of(const px_module_port *ports, int i) { return ports ? ports[i].tensors : 1; }

// Unwraps the tensors of one tuple.
static int unwrap_tuple(px_tensor **out, const px_module_kind *kind, int i, PyObject *given) {
  int wanted = kind->inputs[i].tensors;
  EXT_OWNED *items = ext_is_tensor(given) ? NULL : PySequence_Tuple(given);
  if (!items) PyErr_Clear();
  if (!items || PyTuple_GET_SIZE(items) != wanted)
    EXT_FAIL_INT(PyExc_TypeError,
                 "%s.forward(): argument '%s' must be a tuple of %d Tensors, not %s", kind->name,
                 kind->inputs[i].name, wanted, items ? "of another length" : ext_type_name(given));
  for (int k = 0; k < wanted; k++)
    if (!(out[k] = ext_need_tensor(PyTuple_GET_ITEM(items, k), kind->name, kind->inputs[i].name)))
      return -1;
  return 0;
}

// Name of a layer's function: layer_norm, leaky_relu, rms_norm, prelu. A capital starts a word
// after a lower-case letter, or before one if it follows two capitals. "LU" ends a word.
static void function_name(char *to, size_t capacity, const char *layer) {
  size_t used = 0;
  for (size_t i = 0; layer[i] && used + 2 < capacity; i++) {
    bool capital = isupper((unsigned char)layer[i]);
    bool behind_small = i && islower((unsigned char)layer[i - 1]);
    bool begins = i > 1 && isupper((unsigned char)layer[i - 1]) &&
                  isupper((unsigned char)layer[i - 2]) && islower((unsigned char)layer[i + 1]);
    if (capital && (behind_small || begins) && strncmp(layer + i, "LU", 2) != 0) to[used++] = '_';
    to[used++] = (char)tolower((unsigned char)layer[i]);
  }
  to[used] = 0;
}
// Non-tensors are rejected in the name of that function, as in PyTorch.
static px_tensor *unwrap_input(const px_module_kind *kind, PyObject *given, int i) {
  char name[64];
  if (ext_is_tensor(given)) return ext_tensor(given);
  function_name(name, sizeof name, kind->name);
  PyErr_Format(PyExc_TypeError, "%s(): argument '%s' (position %d) must be Tensor, not %s", name,
               ext_port_name(kind, i), i + 1, Py_TYPE(given)->tp_name);
  return NULL;
}

int ext_unwrap_inputs(px_tensor **out, const px_module_kind *kind, PyObject *const *given) {
  int count = 0;
  for (int i = 0; i < kind->input_count; i++) {
    int tensors = tensors_of(kind->inputs, i);
    bool absent = !given[i] || (given[i] == Py_None && kind->inputs && kind->inputs[i].optional);
    if (tensors > 1 && !absent && unwrap_tuple(out + count, kind, i, given[i]) < 0) return -1;
    if (tensors == 1 && !absent && !(out[count] = unwrap_input(kind, given[i], i))) return -1;
    count += tensors;
  }
  return count;
}

// One tensor, None for NULL, or a tuple for a port of several tensors. Takes references.
static PyObject *wrap_port(px_tensor **take, int count) {
  if (count == 1) return ext_wrap(*take);
  PyObject *tuple = PyTuple_New(count);
  for (int k = 0; k < count; k++) {
    PyObject *item = tuple ? ext_wrap(take[k]) : NULL;
    if (!tuple) px_release(take[k]);
    if (tuple && !item) Py_CLEAR(tuple);
    if (tuple) PyTuple_SET_ITEM(tuple, k, item);
  }
  return tuple;
}

// Named tuple type of the results, created on first use and kept.
static PyTypeObject *named_type(const px_module_kind *kind) {
  static PyObject *types;
  PyStructSequence_Field fields[EXT_PORTS + 1] = {{NULL, NULL}};
  if (!types && !(types = PyDict_New())) return NULL;
  PyObject *known = PyDict_GetItemString(types, kind->named);
  if (known) return (PyTypeObject *)known;
  for (int i = 0; i < kind->result_count; i++) fields[i].name = kind->results[i].name;
  char full[128];  // copied by CPython, which derives the module from it
  snprintf(full, sizeof full, "torch.nn.%s", kind->named);
  PyStructSequence_Desc desc = {full, NULL, fields, kind->result_count};
  EXT_OWNED *made = (PyObject *)PyStructSequence_NewType(&desc);
  if (made) ext_short_name((PyTypeObject *)made);
  if (!made || PyDict_SetItemString(types, kind->named, made) < 0) return NULL;
  return (PyTypeObject *)made;
}
static PyObject *wrap_named(const px_module_kind *kind, PyObject *tuple_take) {
  EXT_OWNED *tuple = tuple_take;
  PyTypeObject *type = tuple ? named_type(kind) : NULL;
  PyObject *named = type ? PyStructSequence_New(type) : NULL;
  for (int i = 0; named && i < kind->result_count; i++)
    PyStructSequence_SET_ITEM(named, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  return named;
}

__attribute__((noinline)) static PyObject *give_several(const px_module_kind *kind,
                                                        px_tensor **take) {
  PyObject *tuple = PyTuple_New(kind->result_count);
  for (int i = 0, at = 0; i < kind->result_count; at += kind->results[i++].tensors) {
    PyObject *item = wrap_port(take + at, kind->results[i].tensors);
    if (tuple && !item) Py_CLEAR(tuple);
    if (tuple)
      PyTuple_SET_ITEM(tuple, i, item);
    else
      Py_XDECREF(item);
  }
  return kind->named ? wrap_named(kind, tuple) : tuple;
}

PyObject *ext_wrap_results(const px_module_kind *kind, px_tensor **take) {
  if (kind->result_count > 1) return give_several(kind, take);
  return wrap_port(take, tensors_of(kind->results, 0));
}

int ext_wrap_inputs(PyObject **out, const px_module_kind *kind, px_tensor *const *inputs,
                    int count) {
  int made = 0;
  for (int at = 0; at < count;) {
    int tensors = made < kind->input_count ? tensors_of(kind->inputs, made) : 1;
    px_tensor *own[4] = {NULL};
    bool absent = at + tensors > count || !inputs[at];
    for (int k = 0; k < tensors && !absent; k++) own[k] = px_retain(inputs[at + k]);
    out[made] = absent ? Py_NewRef(Py_None) : wrap_port(own, tensors);
    if (!out[made++]) return made;
    at += tensors;
  }
  return made;
}

static int unwrap_flat(px_tensor **out, int *count, int capacity, PyObject *value) {
  if (ext_is_tensor(value) && *count < capacity) {
    out[(*count)++] = px_retain(ext_tensor(value));
    return 0;
  }
  if (!PyTuple_Check(value))
    EXT_FAIL_INT(PyExc_TypeError, "forward must return a Tensor here, not %s",
                 ext_type_name(value));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++)
    if (unwrap_flat(out, count, capacity, PyTuple_GET_ITEM(value, i)) < 0) return -1;
  return 0;
}

int ext_unwrap_results(px_tensor **out, const px_module_kind *kind, PyObject *value) {
  int capacity = kind->result_count ? px_module_port_tensors(kind->results, kind->result_count) : 1;
  int count = 0;
  if (capacity == 1 && !ext_is_tensor(value))
    EXT_FAIL_INT(PyExc_TypeError, "forward must return a Tensor here, not %s",
                 ext_type_name(value));
  int failed = unwrap_flat(out, &count, capacity, value);
  if (!failed && count != capacity)
    PyErr_Format(PyExc_TypeError, "forward must return %d Tensors here, not %d", capacity, count);
  if (!failed && count == capacity) return 0;
  while (count) px_release(out[--count]), out[count] = NULL;
  return -1;
}

// ---- names

// "'input1', 'input2' and 'target'": the missing arguments.
static void name_missing(const ext_call_spec *spec, PyObject *const *given, int missing, char *text,
                         size_t capacity) {
  size_t used = 0;
  for (int i = 0, n = 0; i < spec->count; i++) {
    if (given[i] || spec->optional[i]) continue;
    const char *comma = n == 0 ? "" : n + 1 < missing ? ", " : missing > 2 ? ", and " : " and ";
    used += (size_t)snprintf(text + used, capacity - used, "%s'%s'", comma, spec->names[i]);
    n++;
  }
}

// Binds by position, then by name, like a Python function.
int ext_bind_names(const ext_call_spec *spec, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **given) {
  Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (nargs > spec->count)
    EXT_FAIL_INT(PyExc_TypeError, "%s.%s() takes %d positional arguments but %zd were given",
                 spec->owner, spec->method, spec->count + 1, nargs + keywords + 1);
  int missing = 0;
  for (Py_ssize_t i = 0; i < nargs; i++) given[i] = args[i];
  for (Py_ssize_t k = 0; k < keywords; k++) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, k);
    int i = 0;
    while (i < spec->count && PyUnicode_CompareWithASCIIString(name, spec->names[i])) i++;
    if (i == spec->count || given[i])
      EXT_FAIL_INT(PyExc_TypeError,
                   i == spec->count ? "%s.%s() got an unexpected keyword argument '%U'"
                                    : "%s.%s() got multiple values for argument '%U'",
                   spec->owner, spec->method, name);
    given[i] = args[nargs + k];
  }
  for (int i = 0; i < spec->count; i++) missing += !given[i] && !spec->optional[i];
  if (!missing) return 0;
  char names[256];
  name_missing(spec, given, missing, names, sizeof names);
  EXT_FAIL_INT(PyExc_TypeError, "%s.%s() missing %d required positional argument%s: %s",
               spec->owner, spec->method, missing, missing > 1 ? "s" : "", names);
}
