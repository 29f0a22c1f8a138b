// SPDX-License-Identifier: Apache-2.0
// Attributes that PyTorch has and Phlox lacks: absent for hasattr, with an AttributeError naming
// Phlox.
#include "bind/ext.h"
#include "declare/missing.h"
#include "declare/paths.h"

#include <string.h>

// ---- methods of classes
// A descriptor that raises. It does not slow down lookups of existing attributes.
typedef struct missing_object {
  PyObject_HEAD PyObject *name;
  const char *path;  // of the class
} missing_object;

static PyObject *missing_get(PyObject *self, PyObject *instance, PyObject *owner) {
  PyObject *name = ((missing_object *)self)->name;
  const char *path = ((missing_object *)self)->path;
  bool of_class = !instance || instance == Py_None;
  PyTypeObject *type = of_class ? (PyTypeObject *)owner : Py_TYPE(instance);
  EXT_FAIL(PyExc_AttributeError,
           "%s'%s'%s has no attribute '%U': torch.%s.%U is not implemented in Phlox",
           of_class ? "type object " : "", type->tp_name, of_class ? "" : " object", name, path,
           name);
}
EXT_OWNS(missing, EXT_OBJECT(missing_object, name));
EXT_TYPE(missing, "torch.missing", "", missing_object, EXT_FINAL,
         "A method of PyTorch that Phlox lacks.", EXT_LIFETIME_SLOTS(missing),
         .tp_descr_get = missing_get);

// Adds descriptors for space-separated names that the type does not define.
static int fill(PyTypeObject *type, const char *path, const char *names) {
  PyObject *dict = type->tp_dict;
  while (*names) {
    size_t length = strcspn(names, " ");
    EXT_OWNED *name = PyUnicode_FromStringAndSize(names, (Py_ssize_t)length);
    names += length + (names[length] == ' ');
    if (!name) return -1;
    if (PyDict_Contains(dict, name)) continue;
    EXT_OWNED *object = ext_new(&missing_type);
    if (!object) return -1;
    ((missing_object *)object)->name = Py_NewRef(name);
    ((missing_object *)object)->path = path;
    if (PyDict_SetItem(dict, name, object) < 0) return -1;
  }
  PyType_Modified(type);
  return 0;
}

// ---- modules of the table
// Remainder of a path after `above` and a dot; NULL if it does not start so. "" is the root.
static const char *path_after(const char *path, const char *above) {
  size_t length = strlen(above);
  if (!length) return path;
  return !strncmp(path, above, length) && path[length] == '.' ? path + length + 1 : NULL;
}

// Next components of all paths below a path.
static PyObject *submodules_of(const char *path) {
  EXT_OWNED *names = PyList_New(0);
  for (int i = 0; names && i < EXT_LENGTH(paths); i++) {
    const char *rest = path_after(paths[i].path, path);
    if (!rest || !*rest) continue;
    EXT_OWNED *name = PyUnicode_FromStringAndSize(rest, (Py_ssize_t)strcspn(rest, "."));
    int known = name ? PySequence_Contains(names, name) : -1;
    if (known < 0 || (!known && PyList_Append(names, name) < 0)) return NULL;
  }
  return ext_moved(&names);
}

// Names in the table for a path below torch, or NULL.
static const char *names_of(const char *path) {
  for (int i = 0; i < EXT_LENGTH(paths); i++)
    if (!strcmp(paths[i].path, path)) return paths[i].names;
  return NULL;
}

EXT_FUNCTION(torch, _path, "(path: str) -> str | None",
             "Returns the names in the module table for a path below torch.") {
  EXT_ARGS(const char *, path);
  const char *names = names_of(path);
  return names ? PyUnicode_FromString(names) : Py_NewRef(Py_None);
}
EXT_FUNCTION(torch, _path_below, "(path: str) -> list[str]",
             "Returns the direct submodules of a path in the module table.") {
  EXT_ARGS(const char *, path);
  return submodules_of(path);
}

// True if PyTorch's module has the name and Phlox lacks it.
static bool is_missing(const char *path, const char *name) {
  for (int i = 0; i < EXT_LENGTH(lacking); i++)
    if (!strcmp(lacking[i].path, path)) return ext_has_word(lacking[i].names, name);
  return false;
}

EXT_FUNCTION(torch, _lacks, "(path: str, name: str) -> bool",
             "Returns True if PyTorch's module has the name and Phlox lacks it.") {
  EXT_ARGS(const char *, path, name);
  return PyBool_FromLong(is_missing(path, name));
}

bool ext_has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words; length && (at = strstr(at, word)); at += length)
    if ((at == words || at[-1] == ' ') && strchr(" ;=", at[length])) return true;
  return false;
}

// ---- modules' __getattr__
// Name of a module in messages: "phlox.nn" as "torch.nn"; the root is "phlox._C".
static PyObject *torch_name(PyObject *module) {
  const char *name = PyModule_GetName(module), *path_after = name ? strchr(name, '.') : NULL;
  if (!name) return NULL;
  return PyUnicode_FromFormat("torch%s", path_after && strcmp(path_after, "._C") ? path_after : "");
}

// Looks up an attribute of the module at a path in the table: a submodule, imported under the
// package's current name, or an additional name. NULL if missing, with or without an exception.
static PyObject *table_attribute(PyObject *module, const char *path, const char *name) {
  const char *package = PyModule_GetName(module), *names = names_of(path);
  EXT_OWNED *path_after = PyUnicode_FromFormat("%s%s%s", path, *path ? "." : "", name);
  if (!package || !path_after || !*name) return NULL;
  if (names_of(PyUnicode_AsUTF8(path_after))) {
    EXT_OWNED *first = PyUnicode_FromStringAndSize(package, (Py_ssize_t)strcspn(package, "."));
    EXT_OWNED *real = first ? PyUnicode_FromFormat("%U.%U", first, path_after) : NULL;
    return real ? PyImport_Import(real) : NULL;
  }
  if (!names || !ext_has_word(names, name)) return NULL;
  return ext_call_from("phlox._paths", "lend", "(Oss)", module, path, name);
}

static PyObject *module_getattr(PyObject *module, PyObject *name) {
  EXT_OWNED *space = torch_name(module);
  const char *word = ext_lookup_text(name), *full = space ? PyUnicode_AsUTF8(space) : NULL;
  if (!full) return NULL;
  const char *path = full[strlen("torch")] ? full + strlen("torch.") : "";
  PyObject *found = word ? table_attribute(module, path, word) : NULL;
  if (found || PyErr_Occurred()) return found;
  if (word && is_missing(path, word))
    EXT_FAIL(PyExc_AttributeError,
             "module '%U' has no attribute '%U': %U.%U is not implemented in Phlox", space, name,
             space, name);
  EXT_FAIL(PyExc_AttributeError, "module '%U' has no attribute '%U'", space, name);
}
static PyMethodDef module_getattr_def = {"__getattr__", module_getattr, METH_O, NULL};

// Fills the classes defined by the module itself.
static int fill_classes(PyObject *module) {
  const char *name = PyModule_GetName(module);
  for (int i = 0; i < EXT_LENGTH(class_names); i++) {
    const char *class = name ? path_after(name, "phlox") : NULL;
    class = class ? path_after(class_names[i].path, class) : NULL;
    PyObject *found = class ? PyDict_GetItemString(PyModule_GetDict(module), class) : NULL;
    if (!found || !PyType_Check(found)) continue;
    if (fill((PyTypeObject *)found, class_names[i].path, class_names[i].names) < 0) return -1;
  }
  return 0;
}

// Also makes the module a package: the table may have submodules.
static int install_getattr(PyObject *module) {
  PyObject *space = PyModule_GetDict(module);
  EXT_OWNED *path = PyList_New(0);
  if (!path || fill_classes(module) < 0 ||
      (!PyDict_GetItemString(space, "__path__") &&
       PyDict_SetItemString(space, "__path__", path) < 0))
    return -1;
  if (PyDict_GetItemString(space, "__getattr__")) return 0;
  EXT_OWNED *function = PyCFunction_New(&module_getattr_def, module);
  return function ? PyDict_SetItemString(space, "__getattr__", function) : -1;
}

EXT_FUNCTION(
    torch, _name_missing, "(name: str) -> None",
    "Installs __getattr__ in a Python module being imported, which reports missing names.") {
  EXT_ARGS(PyObject *, name);
  PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (!module) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_KeyError, "%R", name);
  return ext_none_unless(install_getattr(module) < 0);
}

static int give_all_getattr(PyObject *root) {
  EXT_OWNED *names = PyDict_Keys(PyImport_GetModuleDict());
  if (!names || install_getattr(root) < 0) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
    const char *name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i));
    if (!name || strncmp(name, "phlox.", 6)) continue;
    PyObject *module = PyDict_GetItem(PyImport_GetModuleDict(), PyList_GET_ITEM(names, i));
    if (PyModule_CheckExact(module) && install_getattr(module) < 0) return -1;
  }
  return 0;
}

// Runs at the last stage, after all attributes have been created.
static int fill_missing(PyObject *torch) {
  return fill(ext_TensorType, "Tensor", tensor_names) < 0 ? -1 : give_all_getattr(torch);
}
EXT_START(EXT_LAST, fill_missing);
