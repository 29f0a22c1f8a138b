// SPDX-License-Identifier: Apache-2.0
// Creates the declared objects (declare.h): reads the rows of the linker section in stages. Owner
// words are resolved to types and modules only here.
#include "declare/declare.h"

#include <string.h>

extern ext_row *__start_ext_rows[] __attribute__((visibility("hidden")));
extern ext_row *__stop_ext_rows[] __attribute__((visibility("hidden")));
#define EACH_ROW(at) for (ext_row **at = __start_ext_rows; at != __stop_ext_rows; at++)

// Maps a word to a type, or to a list of modules.
static PyObject *owners;

// ---- modules
int ext_add(PyObject *module, const char *name, PyObject *object) {
  if (!object) return -1;
  int failed = PyModule_AddObjectRef(module, name, object);
  Py_DECREF(object);
  return failed;
}

// Full name of a submodule. The root "phlox._C" is called "phlox" in it.
static PyObject *full_name(PyObject *parent, const char *name) {
  const char *above = PyModule_GetName(parent);
  if (!above) return NULL;
  return PyUnicode_FromFormat("%s.%s", strcmp(above, "phlox._C") ? above : "phlox", name);
}

PyObject *ext_submodule(PyObject *parent, const char *name) {
  PyObject *known = PyDict_GetItemString(PyModule_GetDict(parent), name);
  if (known && PyModule_Check(known)) return known;
  EXT_OWNED *full = full_name(parent, name);
  EXT_OWNED *module = full ? PyModule_NewObject(full) : NULL;
  EXT_OWNED *path = PyList_New(0);  // an empty __path__ makes it a package to the import system
  if (!module || !path || PyModule_AddObjectRef(module, "__path__", path) < 0) return NULL;
  if (PyDict_SetItem(PyImport_GetModuleDict(), full, module) < 0 ||
      PyModule_AddObjectRef(parent, name, module) < 0)
    return NULL;
  return PyDict_GetItemString(PyModule_GetDict(parent), name);
}

// Consumes the next path in `at` and returns its module, created if missing. If `name` is given,
// the last part of the path is the name of a type and goes there.
static PyObject *module_at(PyObject *root, const char **at, char *name, size_t size) {
  PyObject *module = root;
  char part[64];
  if (name) *name = 0;
  for (;;) {
    size_t length = strcspn(*at, ". ");
    snprintf(part, sizeof part, "%.*s", (int)length, *at);
    char end = (*at)[length];
    *at += length + (end != 0);
    if (name && end != '.') {
      snprintf(name, size, "%s", part);
      break;
    }
    if (*part) module = ext_submodule(module, part);
    if (!module || end != '.') break;
  }
  *at += strspn(*at, " ");
  return module;
}

static int make_module(PyObject *root, const ext_row *row) {
  EXT_OWNED *modules = PyList_New(0);
  bool first = true;
  for (const char *at = row->name; modules && *at; first = false) {
    PyObject *module = module_at(root, &at, NULL, 0);
    if (!module || PyList_Append(modules, module) < 0) return -1;
    if (first && row->doc && PyModule_SetDocString(module, row->doc) < 0) return -1;
  }
  return modules ? PyDict_SetItemString(owners, row->owner, modules) : -1;
}

PyObject *ext_import(const char *module, const char *name) {
  EXT_OWNED *from = PyImport_ImportModule(module);
  return from ? PyObject_GetAttrString(from, name) : NULL;
}
PyObject *ext_extension_attr(const char *name) { return ext_import("phlox._C", name); }

// ---- types
int ext_traverse(PyObject *self, const ext_owned *owned, visitproc visit, void *arg) {
  for (; owned->kind; owned++)
    if (owned->kind == EXT_OWNS_OBJECT) Py_VISIT(*(PyObject **)((char *)self + owned->offset));
  return 0;
}
int ext_clear(PyObject *self, const ext_owned *owned) {
  for (; owned->kind; owned++)
    if (owned->kind == EXT_OWNS_OBJECT) Py_CLEAR(*(PyObject **)((char *)self + owned->offset));
  return 0;
}
// Also runs for objects of Python subclasses: CPython's subtype_dealloc calls it for the base and
// drops the class reference itself. Weak references are cleared first, while the object is intact.
// Python objects are dropped before core objects, whose destructors may run Python code.
void ext_dealloc(PyObject *self, const ext_owned *owned) {
  PyTypeObject *type = Py_TYPE(self);
  if (PyType_IS_GC(type)) PyObject_GC_UnTrack(self);
  if (type->tp_weaklistoffset) PyObject_ClearWeakRefs(self);
  ext_clear(self, owned);
  for (; owned->kind; owned++) {
    void **field = (void **)((char *)self + owned->offset);
    if (owned->kind == EXT_OWNS_CORE) px_release(*field);
    if (owned->kind == EXT_OWNS_MEMORY) PyMem_Free(*field);
    if (owned->kind == EXT_OWNS_CUSTOM) owned->end(self);
  }
  type->tp_free(self);
}

PyObject *ext_wrap_core(PyTypeObject *type, void *core_take) {
  PyObject *self = ext_new(type);
  if (self)
    *(void **)(self + 1) = core_take;  // first field after the header
  else
    px_release(core_take);
  return self;
}

int ext_register_owner(const char *word, PyTypeObject *type) {
  return PyDict_SetItemString(owners, word, (PyObject *)type);
}

static const char *short_name(const char *full) {
  const char *dot = strrchr(full, '.');
  return dot ? dot + 1 : full;
}
void ext_short_name(PyTypeObject *type) { type->tp_name = short_name(type->tp_name); }

// Static types are named with their module in messages, Python classes without. Rewrites
// "'torch.cuda.Stream' object has no attribute 'x'" with the short name. Exceptions of getters and
// messages naming a subclass are unchanged.
static void shorten_attribute_error(PyObject *object) {
  const char *full = Py_TYPE(object)->tp_name;
  if (short_name(full) == full || !PyErr_ExceptionMatches(PyExc_AttributeError)) return;
  PyObject *exception = ext_exception_take();
  EXT_OWNED *text = PyObject_Str(exception);
  EXT_OWNED *start = PyUnicode_FromFormat("'%s' object ", full);
  if (text && start && PyUnicode_Tailmatch(text, start, 0, PY_SSIZE_T_MAX, -1) == 1) {
    EXT_OWNED *rest =
        PyUnicode_Substring(text, PyUnicode_GET_LENGTH(start), PyUnicode_GET_LENGTH(text));
    EXT_OWNED *args =
        rest ? Py_BuildValue("(N)", PyUnicode_FromFormat("'%s' object %U", short_name(full), rest))
             : NULL;
    if (args) PyObject_SetAttrString(exception, "args", args);
  }
  PyErr_Clear();
  ext_exception_set(exception);
}
static PyObject *class_getattro(PyObject *object, PyObject *name) {
  PyObject *value = PyObject_GenericGetAttr(object, name);
  if (!value) shorten_attribute_error(object);
  return value;
}
static int class_setattro(PyObject *object, PyObject *name, PyObject *value) {
  int failed = PyObject_GenericSetAttr(object, name, value);
  if (failed) shorten_attribute_error(object);
  return failed;
}

int ext_add_type(PyObject *module, const char *name, PyTypeObject *type) {
  if (PyType_Ready(type) < 0) return -1;
  return PyModule_AddObjectRef(module, name, (PyObject *)type);
}
static void use_short_name_in_errors(PyTypeObject *type) {
  if (!type->tp_getattro) type->tp_getattro = class_getattro;
  if (!type->tp_setattro) type->tp_setattro = class_setattro;
}
static void fill_slots(PyTypeObject *type, const char *word) {
  EACH_ROW(at)
  if ((*at)->row_kind == EXT_ROW_SLOT && !strcmp((*at)->owner, word))
    memcpy((char *)type + (*at)->offset, &(*at)->slot, sizeof(void *));
}

// Fills the slots of all types before the first PyType_Ready: any type may be a base of another.
static void fill_all_slots(void) {
  EACH_ROW(at) {
    if ((*at)->row_kind != EXT_ROW_TYPE) continue;
    fill_slots((*at)->type, (*at)->owner);
    if ((*at)->flags & EXT_SHORT_NAME) use_short_name_in_errors((*at)->type);
  }
}

static int make_type(PyObject *root, const ext_row *row) {
  char name[64];
  if (PyType_Ready(row->type) < 0 || ext_register_owner(row->owner, row->type) < 0) return -1;
  if (row->flags & EXT_MUTABLE) row->type->tp_flags &= ~Py_TPFLAGS_IMMUTABLETYPE;
  for (const char *at = row->name; *at;) {
    PyObject *module = module_at(root, &at, name, sizeof name);
    if (!module || PyModule_AddObjectRef(module, name, (PyObject *)row->type) < 0) return -1;
  }
  return 0;
}

// Row of a word's type; NULL for run-time types.
static ext_row *type_row(const char *word) {
  EACH_ROW(at)
  if ((*at)->row_kind == EXT_ROW_TYPE && !strcmp((*at)->owner, word)) return *at;
  return NULL;
}

// Must run before PyType_Ready, which splits the signature off the docstring. inspect reads the
// signature of a constructor from its type's docstring.
static int set_constructor_doc(const ext_row *row) {
  const ext_row *type = type_row(row->owner);
  if (!type) return 0;
  ((ext_row *)row)->name = short_name(type->type->tp_name);
  type->type->tp_doc = ext_text_signature(row->name, row->signature, type->doc, NULL);
  return type->type->tp_doc ? 0 : -1;
}

// ---- members
// Adds to the dict of a ready type; setattr rejects static types. PyType_Modified invalidates the
// attribute caches. Members are never slots, so slots of subclasses need no update.
static int add_to_type(ext_row *row, PyTypeObject *type) {
  PyObject *made;
  if (row->row_kind == EXT_ROW_ATTRIBUTE) {
    made = PyDescr_NewGetSet(type, &row->attribute);
  } else if (row->method.ml_flags & METH_CLASS) {
    made = PyDescr_NewClassMethod(type, &row->method);
  } else {
    made = PyDescr_NewMethod(type, &row->method);
  }
  if (made && row->row_kind == EXT_ROW_MEMBER && row->method.ml_flags & METH_STATIC) {
    PyObject *function = PyCFunction_New(&row->method, NULL);
    Py_SETREF(made, function ? PyStaticMethod_New(function) : NULL);
    Py_XDECREF(function);
  }
  int failed = made ? PyDict_SetItemString(type->tp_dict, row->name, made) : -1;
  Py_XDECREF(made);
  PyType_Modified(type);
  return failed;
}

static int add_to_module(ext_row *row, PyObject *module) {
  EXT_OWNED *space = PyObject_GetAttrString(module, "__name__");
  EXT_OWNED *function = space ? PyCFunction_NewEx(&row->method, module, space) : NULL;
  return function ? PyModule_AddObjectRef(module, row->name, function) : -1;
}

// Copies the aliased row, except name and owner.
static void resolve_alias(ext_row *row) {
  const ext_row *same = row->same;
  row->row_kind = same->row_kind;
  if (!row->doc) row->doc = same->doc;
  if (!row->signature) row->signature = same->signature;
  if (row->row_kind == EXT_ROW_ATTRIBUTE) {
    row->attribute = same->attribute;
    row->attribute.name = row->name;
    return;
  }
  if (!row->method.ml_meth) row->method = same->method;
  row->method.ml_name = row->name;
}

// Sets "Module.to" as a method's name in argument errors.
static int set_qualified_name(ext_row *row) {
  const ext_row *type = type_row(row->owner);
  if (!type || !(type->flags & EXT_QUALIFIED)) return 0;
  const char *class = short_name(type->type->tp_name);
  size_t size = strlen(class) + strlen(row->name) + 2;
  char *text = PyMem_Malloc(size);  // lives as long as the row
  if (!text) return PyErr_NoMemory(), -1;
  snprintf(text, size, "%s.%s", class, row->name);
  row->display_name = text;
  return 0;
}

static int add_member(ext_row *row) {
  PyObject *owner = PyDict_GetItemString(owners, row->owner);
  if (!owner)
    EXT_FAIL_INT(PyExc_SystemError, "%s.%s: no type or module has this word", row->owner,
                 row->name);
  if (row->same) resolve_alias(row);
  bool of_type = PyType_Check(owner), attribute = row->row_kind == EXT_ROW_ATTRIBUTE,
       bound = !attribute && row->same && row->method.ml_meth != row->same->method.ml_meth;
  if (attribute) {
    row->attribute.doc = row->doc;
  } else {
    const char *first = row->method.ml_flags & METH_STATIC  ? NULL
                        : row->method.ml_flags & METH_CLASS ? "$type"
                        : of_type                           ? "$self"
                                                            : "$module";
    row->method.ml_doc = bound ? ext_text_of_method(row->name, row->signature, row->doc)
                               : ext_text_signature(row->name, row->signature, row->doc, first);
    if (!row->method.ml_doc) return -1;
  }
  if (of_type) return set_qualified_name(row) < 0 ? -1 : add_to_type(row, (PyTypeObject *)owner);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(owner); i++)
    if (add_to_module(row, PyList_GET_ITEM(owner, i)) < 0) return -1;
  return 0;
}

// ---- start-up
static int make_all(PyObject *root, ext_row_kind what) {
  EACH_ROW(at) {
    ext_row *row = *at;
    bool member = row->row_kind == EXT_ROW_MEMBER || row->row_kind == EXT_ROW_ATTRIBUTE;
    int failed = what == EXT_ROW_MEMBER && member ? add_member(row)
                 : row->row_kind != what          ? 0
                 : what == EXT_ROW_MODULE         ? make_module(root, row)
                 : what == EXT_ROW_TYPE           ? make_type(root, row)
                 : what == EXT_ROW_CONVERTER      ? (ext_set_converter(row->kind, row->convert), 0)
                 : what == EXT_ROW_NEW            ? set_constructor_doc(row)
                                                  : 0;
    if (failed) return -1;
  }
  return 0;
}

static int start_all(PyObject *root, ext_stage stage) {
  EACH_ROW(at) {
    const ext_row *row = *at;
    if (row->row_kind != EXT_ROW_START || row->stage != stage || row->start(root) == 0) continue;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ImportError, "%s failed", row->name);
    return -1;
  }
  return 0;
}

int ext_declare_all(PyObject *root) {
  owners = PyDict_New();
  if (!owners || make_all(root, EXT_ROW_MODULE) < 0 || start_all(root, EXT_ERRORS) < 0) return -1;
  make_all(root, EXT_ROW_CONVERTER);
  fill_all_slots();
  if (make_all(root, EXT_ROW_NEW) < 0 || make_all(root, EXT_ROW_TYPE) < 0) return -1;
  if (start_all(root, EXT_TYPES) < 0 || start_all(root, EXT_OPS) < 0) return -1;
  if (make_all(root, EXT_ROW_MEMBER) < 0) return -1;
  for (ext_stage stage = EXT_VALUES; stage <= EXT_LAST; stage++)
    if (start_all(root, stage) < 0) return -1;
  return 0;
}

// The rows for generators of stubs and pages: (kind, owner's word, name, signature, doc). Settable
// attributes have the kind "variable".
EXT_MODULE(torch, ".", "Tensors, devices, streams and automatic differentiation.");
EXT_FUNCTION0(torch, _declared, "list[tuple]", "Returns all declarations, for tools.") {
  static const char *const kind_names[] = {"module", "type", "new", "member", "attribute"};
  PyObject *list = PyList_New(0);
  EACH_ROW(at) {
    const ext_row *row = *at;
    if (!list || row->row_kind >= EXT_ROW_SLOT) continue;
    bool variable = row->row_kind == EXT_ROW_ATTRIBUTE && row->attribute.set;
    const char *what = variable ? "variable" : kind_names[row->row_kind];
    EXT_OWNED *item =
        Py_BuildValue("(sszzz)", what, row->owner, row->name, row->signature, row->doc);
    if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
  }
  return list;
}
