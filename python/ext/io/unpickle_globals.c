// SPDX-License-Identifier: Apache-2.0
// Globals that untrusted pickles may name and call: an allowlist with a check of the arguments
// each, and the user's safe globals.
//
// Checks run before the call and execute no user code. They bound the work of a call: a tensor is
// not accepted as a list of numbers (strides of 0 give it any length), messages show no nested
// values, and keys are measured before hashing.
#include "io/unpickle.h"

#include <string.h>

PyObject *ext_UnpicklingError;

enum { KEY_PARTS = 1000 };

// ---- errors
void *ext_pickle_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  PyErr_FormatV(ext_UnpicklingError, format, args);
  va_end(args);
  return NULL;
}

PyObject *ext_pickle_repr(PyObject *object) {
  bool text = PyUnicode_CheckExact(object) && PyUnicode_GET_LENGTH(object) < 1000;
  if (text || PyLong_CheckExact(object)) return PyObject_Repr(object);
  if (PyType_Check(object) || PyCFunction_Check(object) || PyFunction_Check(object))
    return PyObject_Str(object);
  return PyObject_Str((PyObject *)Py_TYPE(object));
}

void ext_pickle_call_failed(PyObject *call_checked, const char *name) {
  PyObject *const kinds[] = {PyExc_AttributeError, PyExc_LookupError, PyExc_OverflowError,
                             PyExc_TypeError, PyExc_ValueError};
  bool ours = false;
  for (int i = 0; i < EXT_LENGTH(kinds); i++) ours = ours || PyErr_ExceptionMatches(kinds[i]);
  if (!ours) return;
  PyObject *cause = ext_exception_take();
  EXT_OWNED *given_name =
      name ? PyUnicode_FromString(name) : PyObject_GetAttrString(call_checked, "__name__");
  if (!given_name) PyErr_Clear();
  EXT_OWNED *shown = given_name ? Py_NewRef(given_name) : ext_pickle_repr(call_checked);
  if (shown) ext_pickle_fail("%S cannot be called with the pickle's arguments: %S", shown, cause);
  PyObject *error = ext_exception_take();
  PyException_SetCause(error, cause);
  ext_exception_set(error);
}

// ---- checks of arguments
int ext_pickle_check_key(PyObject *key) {
  Py_ssize_t count = 0, parts = 0;
  if (!PyTuple_Check(key)) return 0;
  PyObject **left = PyMem_New(PyObject *, KEY_PARTS + 1);
  if (!left) return PyErr_NoMemory(), -1;
  left[count++] = key;
  while (count && parts <= KEY_PARTS) {
    PyObject *item = left[--count];
    Py_ssize_t inner = PyTuple_Check(item) ? PyTuple_GET_SIZE(item) : 0;
    parts += 1 + inner;
    for (Py_ssize_t i = 0; i < inner && parts <= KEY_PARTS; i++)
      left[count++] = PyTuple_GET_ITEM(item, i);
  }
  PyMem_Free(left);
  if (parts <= KEY_PARTS) return 0;
  return ext_pickle_fail("expected a key of at most %d parts", KEY_PARTS), -1;
}

// Number of parts of a container or text that a call may copy.
static Py_ssize_t length_of(PyObject *object) {
  if (PyUnicode_Check(object)) return PyUnicode_GET_LENGTH(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  bool plain = PyTuple_Check(object) || PyList_Check(object) || PyBytes_Check(object) ||
               PyByteArray_Check(object);
  return plain ? Py_SIZE(object) : 0;
}
static int count_copies(ext_pickle *p, PyObject *object) {
  p->copies -= length_of(object);
  if (p->copies >= 0) return 0;
  return ext_pickle_fail("the pickle makes more values than its length is worth"), -1;
}

// A check receives the arguments as a tuple.
typedef int check(ext_pickle *p, PyObject *args);
static PyObject *argument(PyObject *args, Py_ssize_t i) {
  return i < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, i) : NULL;
}

static int check_keys(PyObject *items, bool pairs) {
  if (!items || PyDict_Check(items) || PyAnySet_Check(items) || PyUnicode_Check(items)) return 0;
  if (!PyTuple_Check(items) && !PyList_Check(items))
    EXT_FAIL_INT(PyExc_TypeError, "must be a list of keys, not %s", Py_TYPE(items)->tp_name);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
    PyObject *key = PySequence_Fast_GET_ITEM(items, i);
    if (pairs && ((!PyTuple_Check(key) && !PyList_Check(key)) || Py_SIZE(key) != 2))
      EXT_FAIL_INT(PyExc_TypeError, "must be a list of pairs");
    if (ext_pickle_check_key(pairs ? PySequence_Fast_GET_ITEM(key, 0) : key) < 0) return -1;
  }
  return 0;
}
static int check_pairs(ext_pickle *p, PyObject *args) {
  return check_keys(argument(args, 0), true);
}
static int check_items(ext_pickle *p, PyObject *args) {
  return check_keys(argument(args, 0), false);
}

static int check_encoding(PyObject *text, PyObject *encoding) {
  if (!text || !encoding || !PyUnicode_Check(text) || !PyUnicode_Check(encoding))
    EXT_FAIL_INT(PyExc_TypeError, "must be a text and its encoding");
  if (PyUnicode_CompareWithASCIIString(encoding, "latin1") &&
      PyUnicode_CompareWithASCIIString(encoding, "latin-1")) {
    EXT_OWNED *shown = ext_pickle_repr(encoding);
    return shown ? (ext_pickle_fail("expected bytes encoded as latin1, got %S", shown), -1) : -1;
  }
  return 0;
}
static int check_encode(ext_pickle *p, PyObject *args) {
  return check_encoding(argument(args, 0), argument(args, 1));
}
static int check_bytearray(ext_pickle *p, PyObject *args) {
  PyObject *data = argument(args, 0);
  if (!data || PyBytes_Check(data) || PyByteArray_Check(data)) return 0;
  if (PyIndex_Check(data)) return ext_pickle_fail("bytearray is called with a size"), -1;
  return check_encoding(data, argument(args, 1));
}

// Sizes and strides must be tuples or lists.
static int check_geometry(ext_pickle *p, PyObject *args) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
    if (ext_is_tensor(PyTuple_GET_ITEM(args, i)))
      EXT_FAIL_INT(PyExc_TypeError, "must not be a Tensor");
  return 0;
}
static int check_size(ext_pickle *p, PyObject *args) {
  PyObject *size = argument(args, 0);
  if (!size || PyTuple_Check(size) || PyList_Check(size)) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "must be a tuple of ints, not %s", Py_TYPE(size)->tp_name);
}
static int check_text(ext_pickle *p, PyObject *args) {
  PyObject *text = argument(args, 0);
  if (text && PyUnicode_Check(text) && PyUnicode_GET_LENGTH(text) < 1000) return 0;
  EXT_FAIL_INT(PyExc_TypeError, "must be a name");
}

// An attribute dict, or a pair of dicts: attributes and slots. None means no attributes.
static int check_state(ext_pickle *p, PyObject *state) {
  bool pair = PyTuple_Check(state) && PyTuple_GET_SIZE(state) == 2;
  for (int i = 0; i < (pair ? 2 : 1); i++) {
    PyObject *part = pair ? PyTuple_GET_ITEM(state, i) : state;
    if (part != Py_None && !PyDict_Check(part))
      EXT_FAIL_INT(PyExc_TypeError, "a state must be a dict, not %s", Py_TYPE(part)->tp_name);
    if (count_copies(p, part) < 0) return -1;
  }
  return 0;
}
static int check_parameter(ext_pickle *p, PyObject *args) {
  PyObject *data = argument(args, 0), *state = argument(args, 3);
  if (data && !ext_is_tensor(data)) return ext_pickle_fail("a Parameter requires a tensor"), -1;
  return state ? check_state(p, state) : 0;
}
static check check_from_type;

// ---- the list
typedef struct entry {
  const char *name, *module, *attribute;  // the name in pickles, and its location in Phlox
  check *check;                           // NULL: the function itself checks its arguments
  PyObject *object;                       // resolved at first use, then kept
} entry;
#define REBUILDS "torch._utils."
static entry list[] = {
    // the most frequent first
    {REBUILDS "_rebuild_tensor_v2", "phlox._utils", "_rebuild_tensor_v2", check_geometry, NULL},
    {"collections.OrderedDict", "collections", "OrderedDict", check_pairs, NULL},
    {REBUILDS "_rebuild_parameter", "phlox._utils", "_rebuild_parameter", check_parameter, NULL},
    {REBUILDS "_rebuild_parameter_with_state", "phlox._utils", "_rebuild_parameter_with_state",
     check_parameter, NULL},
    {REBUILDS "_rebuild_tensor", "phlox._utils", "_rebuild_tensor", check_geometry, NULL},
    {REBUILDS "_rebuild_tensor_v3", "phlox._utils", "_rebuild_tensor_v3", check_geometry, NULL},
    {REBUILDS "_rebuild_meta_tensor_no_storage", "phlox._utils", "_rebuild_meta_tensor_no_storage",
     check_geometry, NULL},
    {"torch._tensor._rebuild_from_type_v2", "phlox._tensor", "_rebuild_from_type_v2",
     check_from_type, NULL},
    {"torch.nn.parameter.Parameter", "phlox._C", "_Parameter", check_parameter, NULL},
    {"torch.Size", "phlox._C", "Size", check_size, NULL},
    {"torch.device", "phlox._C", "device", NULL, NULL},
    {"torch.serialization._get_layout", "phlox.serialization", "_get_layout", check_text, NULL},
    {"collections.Counter", "collections", "Counter", check_items, NULL},
    {"set", "builtins", "set", check_items, NULL},
    {"complex", "builtins", "complex", NULL, NULL},
    {"bytearray", "builtins", "bytearray", check_bytearray, NULL},
    {"_codecs.encode", "_codecs", "encode", check_encode, NULL},
};
enum { REBUILD_TENSOR, ORDERED_DICT };  // the first two

static PyObject *storage_types, *storage_type;  // storage classes by name, and their metaclass
static PyObject *newer_names, *newer_modules;   // Python 3 names by Python 2 names
static int import_once(PyObject **kept, const char *module, const char *name) {
  if (!*kept) *kept = ext_import(module, name);
  return *kept ? 0 : -1;
}
int ext_pickle_init_globals(void) {
  if (import_once(&ext_UnpicklingError, "pickle", "UnpicklingError") < 0) return -1;
  for (int i = 0; i < EXT_LENGTH(list); i++)
    if (import_once(&list[i].object, list[i].module, list[i].attribute) < 0) return -1;
  if (import_once(&storage_types, "phlox._utils", "_TYPE_OF_NAME") < 0) return -1;
  if (import_once(&storage_type, "phlox._utils", "StorageType") < 0) return -1;
  if (import_once(&newer_names, "_compat_pickle", "NAME_MAPPING") < 0) return -1;
  return import_once(&newer_modules, "_compat_pickle", "IMPORT_MAPPING");
}
static const entry *known_of(PyObject *object) {
  for (int i = 0; i < EXT_LENGTH(list); i++)
    if (list[i].object == object) return &list[i];
  return NULL;
}

static bool is_allowed(const ext_pickle *p, PyObject *object) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(p->safe, &at, &name, &value);)
    if (value == object) return true;
  return false;
}
bool ext_pickle_is_safe(const ext_pickle *p, PyObject *object, PyTypeObject *base) {
  return PyObject_TypeCheck(object, base) && is_allowed(p, (PyObject *)Py_TYPE(object));
}
bool ext_pickle_is_dict(const ext_pickle *p, PyObject *object) {
  const entry *type = known_of((PyObject *)Py_TYPE(object));
  return PyDict_CheckExact(object) || (type && !strcmp(type->module, "collections")) ||
         ext_pickle_is_safe(p, object, &PyDict_Type);
}

static int check_from_type(ext_pickle *p, PyObject *args) {
  PyObject *function, *cls, *inner, *state;
  if (!PyArg_ParseTuple(args, "OOO!O", &function, &cls, &PyTuple_Type, &inner, &state)) return -1;
  const entry *rebuild = known_of(function);
  bool allowed = cls == (PyObject *)ext_TensorType || cls == (PyObject *)ext_ParameterType ||
                 is_allowed(p, cls);
  if (!allowed || !rebuild || strncmp(rebuild->name, REBUILDS, strlen(REBUILDS))) {
    EXT_OWNED *shown = ext_pickle_repr(function);
    if (shown) ext_pickle_fail("Trying to call reduce for unrecognized function %S", shown);
    return -1;
  }
  if (rebuild->check(p, inner) < 0) return -1;
  EXT_OWNED *set = PyObject_GetAttrString(cls, "__setstate__");
  EXT_OWNED *usual = PyObject_GetAttrString((PyObject *)ext_TensorType, "__setstate__");
  if (!set || !usual) return -1;
  return set == usual ? check_state(p, state) : 0;  // a class with its own accepts any state
}

// ---- names
// Maps Python 2 names, used by protocol 2, to Python 3 names.
static int map_python2_name(PyObject **module, PyObject **name) {
  EXT_OWNED *pair = PyTuple_Pack(2, *module, *name);
  PyObject *found = pair ? PyDict_GetItemWithError(newer_names, pair) : NULL;
  if (found && PyTuple_Check(found) && PyTuple_GET_SIZE(found) == 2) {
    *module = PyTuple_GET_ITEM(found, 0);
    *name = PyTuple_GET_ITEM(found, 1);
    return 0;
  }
  if (!PyErr_Occurred()) found = PyDict_GetItemWithError(newer_modules, *module);
  if (found) *module = found;
  return PyErr_Occurred() ? -1 : 0;
}

// Non-function globals: dtypes, storage types, Tensor. Borrowed; NULL if unknown, with or without
// an error.
static PyObject *value_of(PyObject *full) {
  const char *name = ext_lookup_text(full);
  if (!name) return NULL;
  if (!strcmp(name, "torch.Tensor")) return (PyObject *)ext_TensorType;
  PyObject *found = PyDict_GetItemWithError(storage_types, full);
  if (found || PyErr_Occurred() || strncmp(name, "torch.", 6) || strchr(name + 6, '.'))
    return found;
  EXT_OWNED *torch = PyImport_ImportModule("phlox._C");
  found = torch ? PyDict_GetItemString(PyModule_GetDict(torch), name + 6) : NULL;
  return found && ext_is_dtype(found) ? found : NULL;
}

// A Phlox class under its PyTorch name, if it is a safe global. New reference.
static PyObject *phlox_class(ext_pickle *p, PyObject *module, PyObject *name) {
  EXT_OWNED *utils = PyImport_ImportModule("phlox._utils");
  EXT_OWNED *is_torch = utils ? PyObject_CallMethod(utils, "is_torch", "O", module) : NULL;
  if (is_torch != Py_True || !PyDict_GET_SIZE(p->safe)) return NULL;
  EXT_OWNED *found = PyObject_CallMethod(utils, "find", "OO", module, name);
  if (!found && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return found && is_allowed(p, found) ? ext_moved(&found) : NULL;
}

static bool is_blocked(PyObject *module) {
  static const char *const blocked[] = {"sys", "os", "posix", "nt"};
  for (int i = 0; i < EXT_LENGTH(blocked); i++)
    if (!PyUnicode_CompareWithASCIIString(module, blocked[i])) return true;
  return false;
}

PyObject *ext_pickle_find(ext_pickle *p, PyObject *module, PyObject *name) {
  if (map_python2_name(&module, &name) < 0) return NULL;
  bool builtin = !PyUnicode_CompareWithASCIIString(module, "builtins");
  EXT_OWNED *full = builtin ? Py_NewRef(name) : PyUnicode_FromFormat("%U.%U", module, name);
  if (!full) return NULL;
  if (is_blocked(module)) {
    p->refusal = EXT_BLOCKED;
    return ext_pickle_fail("Trying to load unsupported GLOBAL %U whose module %U is blocked.", full,
                           module);
  }
  PyObject *found = PyDict_GetItemWithError(p->safe, full);
  for (int i = 0; !found && i < EXT_LENGTH(list); i++)
    if (!PyUnicode_CompareWithASCIIString(full, list[i].name)) found = list[i].object;
  if (!found && !PyErr_Occurred()) found = value_of(full);
  if (found || PyErr_Occurred()) return Py_XNewRef(found);
  found = phlox_class(p, module, name);
  if (found || PyErr_Occurred()) return found;
  p->refusal = EXT_UNSAFE;
  return ext_pickle_fail(
      "Unsupported global: GLOBAL %U was not an allowed global by default. Please use "
      "`torch.serialization.add_safe_globals([%U])` or the "
      "`torch.serialization.safe_globals([%U])` context manager to allowlist this global if you "
      "trust this class/function.",
      full, full, full);
}

// ---- calls
// Fast path for the most frequent tensor; NULL for others, with or without an error.
static PyObject *plain_tensor(PyObject *args) {
  ext_ints size, stride;
  int64_t offset;
  if (PyTuple_GET_SIZE(args) != 6) return NULL;
  PyObject *const *a = &PyTuple_GET_ITEM(args, 0);
  bool bare = a[5] == Py_None || (PyDict_Check(a[5]) && !PyDict_GET_SIZE(a[5]));
  if (!ext_is_storage(a[0]) || !PyLong_Check(a[1]) || !PyTuple_Check(a[2]) ||
      !PyTuple_Check(a[3]) || a[4] != Py_False || !bare)
    return NULL;
  if (ext_to_int(a[1], &offset) < 0 || ext_to_ints(a[2], &size) < 0 ||
      ext_to_ints(a[3], &stride) < 0)
    return NULL;
  return ext_storage_tensor(a[0], offset, &size, &stride);
}

static PyObject *call_checked(ext_pickle *p, const entry *function, PyObject *args) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
    if (count_copies(p, PyTuple_GET_ITEM(args, i)) < 0) return NULL;
  if (function->check && function->check(p, args) < 0) return NULL;
  PyObject *made = function == &list[REBUILD_TENSOR] ? plain_tensor(args) : NULL;
  return made || PyErr_Occurred() ? made : PyObject_Call(function->object, args, NULL);
}

static PyObject *call(ext_pickle *p, const entry *known, PyObject *function, PyObject *args) {
  PyObject *made = NULL;
  if (!PyTuple_Check(args))
    PyErr_Format(PyExc_TypeError, "must be a tuple, not %s", Py_TYPE(args)->tp_name);
  else
    made = known ? call_checked(p, known, args) : PyObject_Call(function, args, NULL);
  if (!made) ext_pickle_call_failed(function, NULL);
  return made;
}

PyObject *ext_pickle_reduce(ext_pickle *p, PyObject *function, PyObject *args) {
  const entry *known = known_of(function);
  if (known || is_allowed(p, function)) return call(p, known, function, args);
  EXT_OWNED *shown = ext_pickle_repr(function);
  return shown ? ext_pickle_fail("Trying to call reduce for unrecognized function %S", shown)
               : NULL;
}

PyObject *ext_pickle_new(ext_pickle *p, PyObject *cls, PyObject *args) {
  const entry *known = known_of(cls);
  if (known && (known->check == check_pairs || !strcmp(known->attribute, "Counter") ||
                !strcmp(known->attribute, "_Parameter")))
    return call(p, known, cls, args);
  if (!PyType_Check(cls) || !is_allowed(p, cls)) {
    EXT_OWNED *shown = ext_pickle_repr(cls);
    return shown ? ext_pickle_fail(
                       "Can only create new object for nn.Parameter or classes "
                       "allowlisted via `add_safe_globals` but got %S",
                       shown)
                 : NULL;
  }
  EXT_OWNED *first = PyTuple_Pack(1, cls);
  EXT_OWNED *all = first && PyTuple_Check(args) ? PySequence_Concat(first, args) : NULL;
  if (first && !all && !PyErr_Occurred())
    PyErr_Format(PyExc_TypeError, "must be a tuple, not %s", Py_TYPE(args)->tp_name);
  EXT_OWNED *maker = all ? PyObject_GetAttrString(cls, "__new__") : NULL;
  PyObject *made = maker ? PyObject_Call(maker, all, NULL) : NULL;
  if (!made) ext_pickle_call_failed(NULL, "__new__");
  return made;
}

// Default of pickle for classes without __setstate__.
static PyObject *with_state(ext_pickle *p, PyObject *made, PyObject *state) {
  if (check_state(p, state) < 0) return NULL;
  EXT_OWNED *set = ext_import("phlox._utils", "with_state");
  return set ? PyObject_CallFunctionObjArgs(set, made, state, NULL) : NULL;
}
int ext_pickle_build(ext_pickle *p, PyObject *made, PyObject *state) {
  bool plain = Py_IS_TYPE(made, (PyTypeObject *)list[ORDERED_DICT].object) ||
               Py_IS_TYPE(made, ext_ParameterType);
  if (!plain && !ext_pickle_is_safe(p, made, &PyBaseObject_Type)) {
    EXT_OWNED *shown = ext_pickle_repr((PyObject *)Py_TYPE(made));
    if (shown)
      ext_pickle_fail(
          "Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
          "`add_safe_globals`, but got %S",
          shown);
    return -1;
  }
  EXT_OWNED *set = plain ? NULL : PyObject_GetAttrString(made, "__setstate__");
  if (!plain && !set && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  EXT_OWNED *done = set                ? PyObject_CallOneArg(set, state)
                    : PyErr_Occurred() ? NULL
                                       : with_state(p, made, state);
  if (!done) ext_pickle_call_failed(NULL, set ? "__setstate__" : "with_state");
  return done ? 0 : -1;
}

// ---- storages
typedef struct storage_id {
  PyObject *dtype, *key;
  int64_t bytes;
} storage_id;

// Parses a storage id: ("storage", type, key, location, count), followed in old files by a view
// description.
static int read_storage_id(PyObject *saved, storage_id *out) {
  if (!PyTuple_Check(saved))
    return ext_pickle_fail("saved_id must be a tuple, got %s", Py_TYPE(saved)->tp_name), -1;
  PyObject *word = argument(saved, 0), *const *part = &PyTuple_GET_ITEM(saved, 0);
  if (!word || !PyUnicode_Check(word) || PyUnicode_CompareWithASCIIString(word, "storage")) {
    EXT_OWNED *shown = PyObject_Str(word ? (PyObject *)Py_TYPE(word) : saved);
    if (shown) ext_pickle_fail("Only persistent_load of storage is allowed, but got %S", shown);
    return -1;
  }
  if (PyTuple_GET_SIZE(saved) < 5)
    return ext_pickle_fail("expected a storage id of 5 parts, got %zd", PyTuple_GET_SIZE(saved)),
           -1;
  int is_type = PyObject_IsInstance(part[1], storage_type), overflow = 0;
  if (is_type <= 0) {
    EXT_OWNED *shown = is_type < 0 ? NULL : ext_pickle_repr(part[1]);
    if (shown) ext_pickle_fail("unsupported storage type %S", shown);
    return -1;
  }
  out->dtype = PyObject_GetAttrString(part[1], "dtype");
  px_dtype dtype = PX_UINT8;
  if (!out->dtype || (out->dtype != Py_None && ext_to_dtype(out->dtype, &dtype) < 0)) return -1;
  int64_t count = PyLong_Check(part[4]) ? PyLong_AsLongLongAndOverflow(part[4], &overflow) : -1;
  if (overflow || !PyUnicode_Check(part[3]) || count < 0 ||
      __builtin_mul_overflow(count, (int64_t)px_dtype_size(dtype), &out->bytes)) {
    EXT_OWNED *elements = ext_pickle_repr(part[4]);
    EXT_OWNED *location = elements ? ext_pickle_repr(part[3]) : NULL;
    if (location) ext_pickle_fail("invalid storage of %S elements on %S", elements, location);
    return -1;
  }
  if (PyTuple_GET_SIZE(saved) > 5 && part[5] != Py_None)
    return ext_pickle_fail("storage views, written by PyTorch before 0.4, are not supported"), -1;
  if (!PyUnicode_Check(part[2]) && !PyLong_Check(part[2]))
    return ext_pickle_fail("expected a str as storage key, got %s", Py_TYPE(part[2])->tp_name), -1;
  out->key = PyObject_Str(part[2]);
  return out->key ? 0 : -1;
}

static PyObject *make_storage(const storage_id *at, PyObject *location, PyObject *storages,
                              PyObject *make) {
  PyObject *known = PyDict_GetItemWithError(storages, at->key);
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  EXT_OWNED *storage =
      PyObject_CallFunction(make, "OOOL", at->dtype, at->key, location, (long long)at->bytes);
  if (!storage) return NULL;
  if (!ext_is_storage(storage))
    EXT_FAIL(PyExc_TypeError, "expected a storage, not %s", Py_TYPE(storage)->tp_name);
  EXT_OWNED *made = PyTuple_Pack(2, storage, at->dtype);
  return made && PyDict_SetItem(storages, at->key, made) == 0 ? ext_moved(&made) : NULL;
}

PyObject *ext_pickle_storage(PyObject *saved, PyObject *storages, PyObject *make) {
  storage_id at = {NULL, NULL, 0};
  px_dtype dtype = PX_DTYPE_NONE;
  int failed = read_storage_id(saved, &at);
  EXT_OWNED *own_dtype = at.dtype, *own_key = at.key;
  if (failed) return NULL;
  EXT_OWNED *known = make_storage(&at, PyTuple_GET_ITEM(saved, 3), storages, make);
  if (!known) return NULL;
  PyObject *storage = PyTuple_GET_ITEM(known, 0), *had = PyTuple_GET_ITEM(known, 1);
  if (had != at.dtype)
    return ext_pickle_fail("storage %U has two dtypes, %S and %S", at.key, had, at.dtype);
  if (had != Py_None && ext_to_dtype(had, &dtype) < 0) return NULL;
  return ext_storage_as(storage, dtype);
}
EXT_FUNCTION(
    torch, _storage_of_id, "(saved: tuple, storages: dict, make: Callable) -> object",
    "Returns the storage of an id in a pickle: found in `storages`, or created by make(dtype, "
    "key,\nlocation, bytes).") {
  EXT_ARGS(PyObject *, saved, storages, make);
  return ext_pickle_init_globals() < 0 ? NULL : ext_pickle_storage(saved, storages, make);
}

EXT_FUNCTION(torch, _is_known_global, "(name: str) -> bool",
             "Whether a pickle may refer to a name with weights_only, if the program allows no "
             "others.") {
  EXT_ARGS(PyObject *, name);
  if (ext_pickle_init_globals() < 0) return NULL;
  for (int i = 0; i < EXT_LENGTH(list); i++)
    if (!PyUnicode_CompareWithASCIIString(name, list[i].name)) Py_RETURN_TRUE;
  PyObject *found = value_of(name);
  return PyErr_Occurred() ? NULL : PyBool_FromLong(found != NULL);
}
