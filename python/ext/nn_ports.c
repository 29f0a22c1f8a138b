// SPDX-License-Identifier: Apache-2.0
// Inputs and results of layers as Python has them, and how calls name them: several tensors that
// belong together are a tuple, what is absent is None. The core has them one after another.
#include "nn.h"

#include <ctype.h>
#include <string.h>

const char *ext_port_name(const px_module_kind *kind, int i) {
  return kind->inputs && i < kind->input_count ? kind->inputs[i].name : "input";
}

static int tensors_of(const px_module_port *ports, int i) { return ports ? ports[i].tensors : 1; }

// The tensors of one tuple.
static int take_tuple(px_tensor **out, const px_module_kind *kind, int i, PyObject *given) {
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

// The function of a layer's name: layer_norm, leaky_relu, rms_norm, prelu. A capital begins a word
// behind small letters, and before them behind two capitals; "LU" ends one.
static void function_name(char *to, size_t room, const char *layer) {
  size_t used = 0;
  for (size_t i = 0; layer[i] && used + 2 < room; i++) {
    bool capital = isupper((unsigned char)layer[i]);
    bool behind_small = i && islower((unsigned char)layer[i - 1]);
    bool begins = i > 1 && isupper((unsigned char)layer[i - 1]) &&
                  isupper((unsigned char)layer[i - 2]) && islower((unsigned char)layer[i + 1]);
    if (capital && (behind_small || begins) && strncmp(layer + i, "LU", 2) != 0) to[used++] = '_';
    to[used++] = (char)tolower((unsigned char)layer[i]);
  }
  to[used] = 0;
}
// What is no tensor is refused by that function, as in PyTorch.
static px_tensor *take_input(const px_module_kind *kind, PyObject *given, int i) {
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
    if (tensors > 1 && !absent && take_tuple(out + count, kind, i, given[i]) < 0) return -1;
    if (tensors == 1 && !absent && !(out[count] = take_input(kind, given[i], i))) return -1;
    count += tensors;
  }
  return count;
}

// One tensor, or None for NULL, or a tuple of those of a port; references are taken.
static PyObject *give_port(px_tensor **take, int count) {
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

// A tuple's type whose fields are the results; made when it is first asked for, and kept.
static PyTypeObject *named_type(const px_module_kind *kind) {
  static PyObject *types;
  PyStructSequence_Field fields[EXT_PORTS + 1] = {{NULL, NULL}};
  if (!types && !(types = PyDict_New())) return NULL;
  PyObject *known = PyDict_GetItemString(types, kind->named);
  if (known) return (PyTypeObject *)known;
  for (int i = 0; i < kind->result_count; i++) fields[i].name = kind->results[i].name;
  char full[128];  // CPython copies it, and takes the module from it
  snprintf(full, sizeof full, "torch.nn.%s", kind->named);
  PyStructSequence_Desc desc = {full, NULL, fields, kind->result_count};
  EXT_OWNED *made = (PyObject *)PyStructSequence_NewType(&desc);
  if (made) ext_short_name((PyTypeObject *)made);
  if (!made || PyDict_SetItemString(types, kind->named, made) < 0) return NULL;
  return (PyTypeObject *)made;
}
static PyObject *give_named(const px_module_kind *kind, PyObject *tuple_take) {
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
    PyObject *item = give_port(take + at, kind->results[i].tensors);
    if (tuple && !item) Py_CLEAR(tuple);
    if (tuple)
      PyTuple_SET_ITEM(tuple, i, item);
    else
      Py_XDECREF(item);
  }
  return kind->named ? give_named(kind, tuple) : tuple;
}

PyObject *ext_wrap_results(const px_module_kind *kind, px_tensor **take) {
  if (kind->result_count > 1) return give_several(kind, take);
  return give_port(take, tensors_of(kind->results, 0));
}

int ext_wrap_inputs(PyObject **out, const px_module_kind *kind, px_tensor *const *inputs,
                    int count) {
  int made = 0;
  for (int at = 0; at < count;) {
    int tensors = made < kind->input_count ? tensors_of(kind->inputs, made) : 1;
    px_tensor *own[4] = {NULL};
    bool absent = at + tensors > count || !inputs[at];
    for (int k = 0; k < tensors && !absent; k++) own[k] = px_retain(inputs[at + k]);
    out[made] = absent ? Py_NewRef(Py_None) : give_port(own, tensors);
    if (!out[made++]) return made;
    at += tensors;
  }
  return made;
}

static int take_flat(px_tensor **out, int *count, int room, PyObject *value) {
  if (ext_is_tensor(value) && *count < room) {
    out[(*count)++] = px_retain(ext_tensor(value));
    return 0;
  }
  if (!PyTuple_Check(value))
    EXT_FAIL_INT(PyExc_TypeError, "forward must give a Tensor here, not %s", ext_type_name(value));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++)
    if (take_flat(out, count, room, PyTuple_GET_ITEM(value, i)) < 0) return -1;
  return 0;
}

int ext_unwrap_results(px_tensor **out, const px_module_kind *kind, PyObject *value) {
  int room = kind->result_count ? px_module_port_tensors(kind->results, kind->result_count) : 1;
  int count = 0;
  if (room == 1 && !ext_is_tensor(value))
    EXT_FAIL_INT(PyExc_TypeError, "forward must give a Tensor here, not %s", ext_type_name(value));
  int failed = take_flat(out, &count, room, value);
  if (!failed && count != room)
    PyErr_Format(PyExc_TypeError, "forward must give %d Tensors here, not %d", room, count);
  if (!failed && count == room) return 0;
  while (count) px_release(out[--count]), out[count] = NULL;
  return -1;
}

// ---- names

// "'input1', 'input2' and 'target'": what is not given.
static void name_missing(const ext_call_spec *takes, PyObject *const *given, int missing,
                         char *text, size_t room) {
  size_t used = 0;
  for (int i = 0, n = 0; i < takes->count; i++) {
    if (given[i] || takes->optional[i]) continue;
    const char *comma = n == 0 ? "" : n + 1 < missing ? ", " : missing > 2 ? ", and " : " and ";
    used += (size_t)snprintf(text + used, room - used, "%s'%s'", comma, takes->names[i]);
    n++;
  }
}

// By position, then by name, as a Python function takes arguments.
int ext_bind_names(const ext_call_spec *takes, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **given) {
  Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (nargs > takes->count)
    EXT_FAIL_INT(PyExc_TypeError, "%s.%s() takes %d positional arguments but %zd were given",
                 takes->owner, takes->method, takes->count + 1, nargs + keywords + 1);
  int missing = 0;
  for (Py_ssize_t i = 0; i < nargs; i++) given[i] = args[i];
  for (Py_ssize_t k = 0; k < keywords; k++) {
    PyObject *name = PyTuple_GET_ITEM(kwnames, k);
    int i = 0;
    while (i < takes->count && PyUnicode_CompareWithASCIIString(name, takes->names[i])) i++;
    if (i == takes->count || given[i])
      EXT_FAIL_INT(PyExc_TypeError,
                   i == takes->count ? "%s.%s() got an unexpected keyword argument '%U'"
                                     : "%s.%s() got multiple values for argument '%U'",
                   takes->owner, takes->method, name);
    given[i] = args[nargs + k];
  }
  for (int i = 0; i < takes->count; i++) missing += !given[i] && !takes->optional[i];
  if (!missing) return 0;
  char names[256];
  name_missing(takes, given, missing, names, sizeof names);
  EXT_FAIL_INT(PyExc_TypeError, "%s.%s() missing %d required positional argument%s: %s",
               takes->owner, takes->method, missing, missing > 1 ? "s" : "", names);
}
