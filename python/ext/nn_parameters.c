// SPDX-License-Identifier: Apache-2.0
// nn.ParameterList and nn.ParameterDict: modules that hold parameters by number or by name. Each
// value is an attribute of the module, so that a tensor is a registered parameter and anything else
// a plain attribute; the list keeps its length in `_size`, the dict its names, in order, in
// `_keys`.
#include "nn.h"

static PyTypeObject *list_type, *dict_type;

// A plain tensor becomes a parameter; all else stays what it is.
static int put(PyObject *self, PyObject *name, PyObject *value) {
  bool plain = ext_is_tensor(value) && !px_tensor_is_parameter(ext_tensor(value));
  EXT_OWNED *kept =
      plain ? PyObject_CallOneArg((PyObject *)ext_ParameterType, value) : Py_NewRef(value);
  return kept ? PyObject_SetAttr(self, name, kept) : -1;
}

static bool is_iterable(PyObject *object) {
  return Py_TYPE(object)->tp_iter || PySequence_Check(object);
}

static int start_module(PyObject *self) {
  EXT_OWNED *none = PyTuple_New(0);
  return none ? ext_ModuleType.tp_init(self, none, NULL) : -1;
}

static int one_argument(const char *name, PyObject *args, PyObject *kwargs, PyObject **out) {
  static char *names[] = {"", NULL};
  static char *list_names[] = {"values", NULL}, *dict_names[] = {"parameters", NULL};
  char **wanted = !*name ? names : *name == 'v' ? list_names : dict_names;
  *out = Py_None;
  return PyArg_ParseTupleAndKeywords(args, kwargs, "|O", wanted, out) ? 0 : -1;
}

// "  (name): Parameter containing: [torch.float32 of size 2x3]": a line of the printed form.
static PyObject *line_of(PyObject *name, PyObject *value, bool by_dtype) {
  char type[48], device[PX_DEVICE_TEXT];
  if (!ext_is_tensor(value))
    return PyUnicode_FromFormat("  (%S): Object of type: %s", name, ext_type_name(value));
  const px_tensor *t = ext_tensor(value);
  EXT_OWNED *size = PyUnicode_FromString("");
  for (int i = 0; size && i < px_tensor_ndim(t); i++)
    Py_SETREF(size, PyUnicode_FromFormat("%U%s%lld", size, i ? "x" : "",
                                         (long long)px_tensor_size(t, i)));
  if (!size) return NULL;
  px_device_format(px_tensor_device(t), device);
  bool there = px_tensor_is_cuda(t);
  return PyUnicode_FromFormat(
      "  (%S): %s containing: [%s%s of size %U%s%s%s]", name,
      px_tensor_is_parameter(t) ? "Parameter" : "Tensor", by_dtype ? "torch." : "",
      by_dtype ? px_dtype_name(px_tensor_dtype(t)) : px_tensor_type_name(t, type), size,
      there ? " (" : "", there ? device : "", there ? ")" : "");
}

static PyObject *join_lines(PyObject *lines) {
  EXT_OWNED *newline = PyUnicode_FromString("\n");
  return newline && lines ? PyUnicode_Join(newline, lines) : NULL;
}

// ---- ParameterList

static Py_ssize_t list_length(PyObject *self) {
  EXT_OWNED *size = PyObject_GetAttrString(self, "_size");
  return size ? PyLong_AsSsize_t(size) : -1;
}

static PyObject *list_name(Py_ssize_t i) { return PyUnicode_FromFormat("%zd", i); }

// The name of the value at an index that may count from the end.
static PyObject *list_name_at(PyObject *self, PyObject *index) {
  int64_t i;
  Py_ssize_t n = list_length(self);
  if (n < 0 || ext_to_int(index, &i) < 0) return NULL;
  if (i < -n || i >= n) EXT_FAIL(PyExc_IndexError, "index %lld is out of range", (long long)i);
  return list_name((Py_ssize_t)(i < 0 ? i + n : i));
}

static PyObject *list_at(PyObject *self, Py_ssize_t i) {
  EXT_OWNED *name = list_name(i);
  return name ? PyObject_GetAttr(self, name) : NULL;
}

static PyObject *list_append(PyObject *self, PyObject *value) {
  Py_ssize_t n = list_length(self);
  EXT_OWNED *name = n < 0 ? NULL : list_name(n);
  EXT_OWNED *size = name ? PyLong_FromSsize_t(n + 1) : NULL;
  if (!size || put(self, name, value) < 0 || PyObject_SetAttrString(self, "_size", size) < 0)
    return NULL;
  return Py_NewRef(self);
}

static PyObject *list_extend(PyObject *self, PyObject *values) {
  if (!is_iterable(values))
    EXT_FAIL(PyExc_TypeError, "ParameterList.extend should be called with an iterable, but got %s",
             ext_type_name(values));
  EXT_OWNED *all = PySequence_List(values);  // a list may be extended by itself
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all); i++) {
    EXT_OWNED *same = list_append(self, PyList_GET_ITEM(all, i));
    if (!same) return NULL;
  }
  return all ? Py_NewRef(self) : NULL;
}

static int list_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *values;
  EXT_OWNED *zero = PyLong_FromLong(0);
  if (one_argument("values", args, kwargs, &values) < 0 || start_module(self) < 0 || !zero ||
      PyObject_SetAttrString(self, "_size", zero) < 0)
    return -1;
  EXT_OWNED *done = values == Py_None ? Py_NewRef(self) : list_extend(self, values);
  return done ? 0 : -1;
}

static PyObject *list_slice(PyObject *self, PyObject *slice) {
  Py_ssize_t start, stop, step, n = list_length(self);
  if (n < 0 || PySlice_Unpack(slice, &start, &stop, &step) < 0) return NULL;
  Py_ssize_t count = PySlice_AdjustIndices(n, &start, &stop, step);
  EXT_OWNED *part = PyObject_CallNoArgs((PyObject *)Py_TYPE(self));
  for (Py_ssize_t i = 0; part && i < count; i++) {
    EXT_OWNED *value = list_at(self, start + i * step);
    EXT_OWNED *same = value ? list_append(part, value) : NULL;
    if (!same) return NULL;
  }
  return ext_moved(&part);
}

static PyObject *list_subscript(PyObject *self, PyObject *index) {
  if (PySlice_Check(index)) return list_slice(self, index);
  EXT_OWNED *name = list_name_at(self, index);
  return name ? PyObject_GetAttr(self, name) : NULL;
}

static int list_assign(PyObject *self, PyObject *index, PyObject *value) {
  if (!value) EXT_FAIL_INT(PyExc_TypeError, "a value of a ParameterList cannot be deleted");
  EXT_OWNED *name = list_name_at(self, index);
  return name ? put(self, name, value) : -1;
}

static PyObject *list_values(PyObject *self) {
  Py_ssize_t n = list_length(self);
  EXT_OWNED *values = n < 0 ? NULL : PyList_New(0);
  for (Py_ssize_t i = 0; values && i < n; i++) {
    EXT_OWNED *value = list_at(self, i);
    if (!value || PyList_Append(values, value) < 0) return NULL;
  }
  return ext_moved(&values);
}

static PyObject *list_iterate(PyObject *self) {
  EXT_OWNED *values = list_values(self);
  return values ? PyObject_GetIter(values) : NULL;
}

static PyObject *list_extra_repr(PyObject *self, PyObject *unused) {
  EXT_OWNED *lines = list_values(self);
  for (Py_ssize_t i = 0; lines && i < PyList_GET_SIZE(lines); i++) {
    EXT_OWNED *name = list_name(i);
    PyObject *line = name ? line_of(name, PyList_GET_ITEM(lines, i), true) : NULL;
    if (!line || PyList_SetItem(lines, i, line) < 0) return NULL;
  }
  return join_lines(lines);
}

static PyObject *not_called(PyObject *self, PyObject *args, PyObject *kwargs) {
  EXT_FAIL(PyExc_RuntimeError, "%s should not be called.",
           PyObject_TypeCheck(self, list_type) ? "ParameterList" : "ParameterDict");
}

static PyMethodDef list_methods[] = {
    {"append", list_append, METH_O, NULL},
    {"extend", list_extend, METH_O, NULL},
    {"extra_repr", list_extra_repr, METH_NOARGS, NULL},
    {"forward", (PyCFunction)(void (*)(void))not_called, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot list_slots[] = {{Py_tp_init, (void *)list_init},
                                   {Py_tp_methods, list_methods},
                                   {Py_tp_iter, (void *)list_iterate},
                                   {Py_sq_length, (void *)list_length},
                                   {Py_sq_inplace_concat, (void *)list_extend},
                                   {Py_mp_length, (void *)list_length},
                                   {Py_mp_subscript, (void *)list_subscript},
                                   {Py_mp_ass_subscript, (void *)list_assign},
                                   {0, NULL}};

// ---- ParameterDict

static PyObject *names_of(PyObject *self) { return PyObject_GetAttrString(self, "_keys"); }

static int check_key(PyObject *key) {
  if (PyUnicode_Check(key)) return 0;
  EXT_FAIL_INT(PyExc_TypeError,
               "Index given to ParameterDict cannot be used as a key as it is not a string (type "
               "is '%s'). Open an issue on github if you need non-string keys.",
               ext_type_name(key));
}

static Py_ssize_t dict_length(PyObject *self) {
  EXT_OWNED *names = names_of(self);
  return names ? PyDict_Size(names) : -1;
}

static int dict_contains(PyObject *self, PyObject *key) {
  EXT_OWNED *names = names_of(self);
  return names ? PyDict_Contains(names, key) : -1;
}

static PyObject *dict_subscript(PyObject *self, PyObject *key) {
  return check_key(key) < 0 ? NULL : PyObject_GetAttr(self, key);
}

static int dict_assign(PyObject *self, PyObject *key, PyObject *value) {
  EXT_OWNED *names = names_of(self);
  if (!names) return -1;
  if (!value) return PyDict_DelItem(names, key) < 0 ? -1 : PyObject_SetAttr(self, key, NULL);
  if (check_key(key) < 0 || put(self, key, value) < 0) return -1;
  return PyDict_SetItem(names, key, Py_None);
}

static PyObject *dict_keys(PyObject *self, PyObject *unused) {
  EXT_OWNED *names = names_of(self);
  return names ? PyObject_CallMethod(names, "keys", NULL) : NULL;
}

// Lists of the values, or of the pairs.
static PyObject *dict_list(PyObject *self, bool pairs) {
  EXT_OWNED *names = names_of(self);
  EXT_OWNED *list = names ? PyDict_Keys(names) : NULL;
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
    EXT_OWNED *value = dict_subscript(self, PyList_GET_ITEM(list, i));
    if (!value) return NULL;
    PyObject *item = pairs ? PyTuple_Pack(2, PyList_GET_ITEM(list, i), value) : Py_NewRef(value);
    if (!item || PyList_SetItem(list, i, item) < 0) return NULL;
  }
  return ext_moved(&list);
}
static PyObject *dict_values(PyObject *self, PyObject *unused) { return dict_list(self, false); }
static PyObject *dict_items(PyObject *self, PyObject *unused) { return dict_list(self, true); }

static PyObject *dict_iterate(PyObject *self) {
  EXT_OWNED *keys = dict_keys(self, NULL);
  return keys ? PyObject_GetIter(keys) : NULL;
}

static PyObject *dict_reversed(PyObject *self, PyObject *unused) {
  EXT_OWNED *names = names_of(self);
  EXT_OWNED *list = names ? PyDict_Keys(names) : NULL;
  if (!list || PyList_Reverse(list) < 0) return NULL;
  return PyObject_GetIter(list);
}

static int update_pair(PyObject *self, PyObject *pair, Py_ssize_t i) {
  if (!is_iterable(pair))
    EXT_FAIL_INT(PyExc_TypeError,
                 "ParameterDict update sequence element #%zd should be Iterable; is%s", i,
                 ext_type_name(pair));
  EXT_OWNED *both = PySequence_Tuple(pair);
  if (!both) return -1;
  if (PyTuple_GET_SIZE(both) != 2)
    EXT_FAIL_INT(PyExc_ValueError,
                 "ParameterDict update sequence element #%zd has length %zd; 2 is required", i,
                 PyTuple_GET_SIZE(both));
  return dict_assign(self, PyTuple_GET_ITEM(both, 0), PyTuple_GET_ITEM(both, 1));
}

// The pairs of what update takes; those of a plain mapping in the order of their keys, as PyTorch.
static PyObject *pairs_of(PyObject *given) {
  if (!is_iterable(given))
    EXT_FAIL(PyExc_TypeError,
             "ParametersDict.update should be called with an iterable of key/value pairs, but got "
             "%s",
             ext_type_name(given));
  if (PyObject_TypeCheck(given, dict_type)) return dict_list(given, true);
  if (!PyMapping_Check(given) || !PyObject_HasAttrString(given, "items"))
    return PySequence_List(given);
  EXT_OWNED *keys = PyMapping_Keys(given);
  if (!keys) return NULL;
  if (PyDict_CheckExact(given) && PyList_Sort(keys) < 0) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
    EXT_OWNED *value = PyObject_GetItem(given, PyList_GET_ITEM(keys, i));
    PyObject *pair = value ? PyTuple_Pack(2, PyList_GET_ITEM(keys, i), value) : NULL;
    if (!pair || PyList_SetItem(keys, i, pair) < 0) return NULL;
  }
  return ext_moved(&keys);
}

static int update(PyObject *self, PyObject *given) {
  EXT_OWNED *pairs = pairs_of(given);
  for (Py_ssize_t i = 0; pairs && i < PyList_GET_SIZE(pairs); i++)
    if (update_pair(self, PyList_GET_ITEM(pairs, i), i) < 0) return -1;
  return pairs ? 0 : -1;
}

static PyObject *dict_update(PyObject *self, PyObject *given) {
  if (update(self, given) < 0) return NULL;
  Py_RETURN_NONE;
}

static int dict_init(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *given;
  EXT_OWNED *names = PyDict_New();
  if (one_argument("parameters", args, kwargs, &given) < 0 || start_module(self) < 0 || !names ||
      PyObject_SetAttrString(self, "_keys", names) < 0)
    return -1;
  return given == Py_None ? 0 : update(self, given);
}

static PyObject *dict_copy(PyObject *self, PyObject *unused) {
  EXT_OWNED *made = PyObject_CallNoArgs((PyObject *)Py_TYPE(self));
  return made && update(made, self) == 0 ? ext_moved(&made) : NULL;
}

static PyObject *dict_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs < 1 || nargs > 2)
    EXT_FAIL(PyExc_TypeError, "get expected 1 or 2 arguments, got %zd", nargs);
  int there = dict_contains(self, args[0]);
  if (there) return there < 0 ? NULL : dict_subscript(self, args[0]);
  return Py_NewRef(nargs == 2 ? args[1] : Py_None);
}

static PyObject *dict_setdefault(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs < 1 || nargs > 2)
    EXT_FAIL(PyExc_TypeError, "setdefault expected 1 or 2 arguments, got %zd", nargs);
  int there = dict_contains(self, args[0]);
  if (there < 0 || (!there && dict_assign(self, args[0], nargs == 2 ? args[1] : Py_None) < 0))
    return NULL;
  return dict_subscript(self, args[0]);
}

static PyObject *dict_pop(PyObject *self, PyObject *key) {
  EXT_OWNED *value = dict_subscript(self, key);
  return value && dict_assign(self, key, NULL) == 0 ? ext_moved(&value) : NULL;
}

static PyObject *dict_popitem(PyObject *self, PyObject *unused) {
  EXT_OWNED *names = names_of(self);
  EXT_OWNED *list = names ? PyDict_Keys(names) : NULL;
  if (!list) return NULL;
  if (!PyList_GET_SIZE(list)) EXT_FAIL(PyExc_KeyError, "popitem(): dictionary is empty");
  PyObject *last = PyList_GET_ITEM(list, PyList_GET_SIZE(list) - 1);
  EXT_OWNED *value = dict_pop(self, last);
  return value ? PyTuple_Pack(2, last, value) : NULL;
}

static PyObject *dict_clear(PyObject *self, PyObject *unused) {
  EXT_OWNED *names = names_of(self);
  EXT_OWNED *list = names ? PyDict_Keys(names) : NULL;
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++)
    if (dict_assign(self, PyList_GET_ITEM(list, i), NULL) < 0) return NULL;
  if (!list) return NULL;
  Py_RETURN_NONE;
}

static PyObject *dict_fromkeys(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs < 1 || nargs > 2)
    EXT_FAIL(PyExc_TypeError, "fromkeys expected 1 or 2 arguments, got %zd", nargs);
  EXT_OWNED *keys = PySequence_List(args[0]);
  EXT_OWNED *made = keys ? PyObject_CallNoArgs((PyObject *)dict_type) : NULL;
  for (Py_ssize_t i = 0; made && i < PyList_GET_SIZE(keys); i++)
    if (dict_assign(made, PyList_GET_ITEM(keys, i), nargs == 2 ? args[1] : Py_None) < 0)
      return NULL;
  return ext_moved(&made);
}

static PyObject *dict_or(PyObject *a, PyObject *b) {
  EXT_OWNED *made = PyObject_TypeCheck(a, dict_type) ? dict_copy(a, NULL) : NULL;
  if (!made && !PyErr_Occurred()) {
    made = PyObject_CallNoArgs((PyObject *)Py_TYPE(b));
    if (made && update(made, a) < 0) return NULL;
  }
  return made && update(made, b) == 0 ? ext_moved(&made) : NULL;
}

static PyObject *dict_or_in_place(PyObject *self, PyObject *given) {
  return update(self, given) < 0 ? NULL : Py_NewRef(self);
}

static PyObject *dict_extra_repr(PyObject *self, PyObject *unused) {
  EXT_OWNED *lines = dict_list(self, true);
  for (Py_ssize_t i = 0; lines && i < PyList_GET_SIZE(lines); i++) {
    PyObject *pair = PyList_GET_ITEM(lines, i);
    PyObject *line = line_of(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), false);
    if (!line || PyList_SetItem(lines, i, line) < 0) return NULL;
  }
  return join_lines(lines);
}

#define FASTCALL(name, function) \
  { name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, NULL }
static PyMethodDef dict_methods[] = {
    {"keys", dict_keys, METH_NOARGS, NULL},
    {"values", dict_values, METH_NOARGS, NULL},
    {"items", dict_items, METH_NOARGS, NULL},
    {"update", dict_update, METH_O, NULL},
    {"copy", dict_copy, METH_NOARGS, NULL},
    {"pop", dict_pop, METH_O, NULL},
    {"popitem", dict_popitem, METH_NOARGS, NULL},
    {"clear", dict_clear, METH_NOARGS, NULL},
    FASTCALL("get", dict_get),
    FASTCALL("setdefault", dict_setdefault),
    FASTCALL("fromkeys", dict_fromkeys),
    {"__reversed__", dict_reversed, METH_NOARGS, NULL},
    {"extra_repr", dict_extra_repr, METH_NOARGS, NULL},
    {"forward", (PyCFunction)(void (*)(void))not_called, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};
static PyType_Slot dict_slots[] = {{Py_tp_init, (void *)dict_init},
                                   {Py_tp_methods, dict_methods},
                                   {Py_tp_iter, (void *)dict_iterate},
                                   {Py_sq_length, (void *)dict_length},
                                   {Py_sq_contains, (void *)dict_contains},
                                   {Py_mp_length, (void *)dict_length},
                                   {Py_mp_subscript, (void *)dict_subscript},
                                   {Py_mp_ass_subscript, (void *)dict_assign},
                                   {Py_nb_or, (void *)dict_or},
                                   {Py_nb_inplace_or, (void *)dict_or_in_place},
                                   {0, NULL}};

static int make_types(PyObject *root) {
  list_type = ext_module_make_type("ParameterList", list_slots);
  dict_type = list_type ? ext_module_make_type("ParameterDict", dict_slots) : NULL;
  return dict_type ? 0 : -1;
}
EXT_START(EXT_TYPES, make_types);
