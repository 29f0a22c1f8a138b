// SPDX-License-Identifier: Apache-2.0
// Methods of modules overridden or patched by users. The library calls its own methods directly
// after checking here that a class or object does not override them. The result for a class is
// cached until the class or a base changes (its version tag), the result for an object until its
// dict changes. An unpatched module costs two comparisons.
#include "nn/nn.h"

#include <string.h>

typedef struct protocol_row {
  const char *name;
  unsigned bit;
  PyObject *word;     // the interned name
  PyObject *own;      // Module's attribute of this name, if it is not a C method
  PyCFunction plain;  // the C method
} protocol_row;
#define ROW(bit, name) {#name, EXT_CUSTOM_##bit, NULL, NULL, NULL},
#define HOOK_ROW(bit, word, name) ROW(bit, name)
static protocol_row rows[] = {EXT_MODULE_PROTOCOL(ROW) EXT_MODULE_HOOKS(HOOK_ROW)};

static ext_module_base base;
static PyObject *classes;  // maps a type to the address of its ext_module_class; immortal

static ext_module_class *known_class(PyTypeObject *type) {
  PyObject *address = PyDict_GetItemWithError(classes, (PyObject *)type);
  return address ? PyLong_AsVoidPtr(address) : NULL;
}

// Information on the first library type among the bases of a type.
static const ext_module_class *native_base(PyTypeObject *type) {
  static const ext_module_class none;
  for (Py_ssize_t i = 0; type->tp_mro && i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    const ext_module_class *known = known_class((PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i));
    if (known && known->native) return known;
  }
  return &none;
}

static ext_module_class *new_class(PyTypeObject *type) {
  ext_module_class *made = PyMem_Calloc(1, sizeof *made);
  if (!made) return PyErr_NoMemory(), NULL;
  EXT_OWNED *address = PyLong_FromVoidPtr(made);
  if (!address || PyDict_SetItem(classes, (PyObject *)type, address) < 0)
    return PyMem_Free(made), NULL;
  made->type = type;
  made->version = EXT_NO_VERSION;
  return made;
}

// The kind used by C for modules of Python classes. Its name lives as long as the type, which is
// kept alive by `classes`.
static px_module_kind kind_of_class(const ext_module_class *class) {
  px_module_kind kind = class->native ? *class->native : (px_module_kind){0};
  const char *dot = strrchr(class->type->tp_name, '.');
  kind.name = dot ? dot + 1 : class->type->tp_name;
  return kind;
}

int ext_module_register_type(PyTypeObject *type, const px_module_kind *native) {
  if (!classes && !(classes = PyDict_New())) return -1;
  ext_module_class *made = new_class(type);
  if (!made) return -1;
  made->native = native, made->library = type;
  if (native) made->kind = *native;
  return 0;
}

static bool is_plain(const protocol_row *row, PyObject *found) {
  return found == row->own || (found && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
                               ((PyMethodDescrObject *)found)->d_method->ml_meth == row->plain);
}

// Module.__getattr__ is a method so that overriding classes can call super().__getattr__(name). For
// all other classes it would make CPython look up two methods per attribute.
static void set_getattro(ext_module_class *class) {
  PyTypeObject *type = class->type;
  class->has_base_getattro = false;
  static PyObject *names[2], *default_accessors[2];
  for (int i = 0; i < 2; i++) {
    if (!names[i]) names[i] = PyUnicode_InternFromString(i ? "__getattribute__" : "__getattr__");
    if (!default_accessors[i] && names[i])
      default_accessors[i] = Py_XNewRef(_PyType_Lookup(base.type, names[i]));
    if (!default_accessors[i] || _PyType_Lookup(type, names[i]) != default_accessors[i]) return;
  }
  type->tp_getattro = base.getattro;
  class->has_base_getattro = true;
}

// Recomputes the overridden methods of a class.
static void update_class(ext_module_class *class) {
  if (!base.type) return;  // during start-up, while Module is created
  class->patched = 0;
  for (int i = 0; i < EXT_LENGTH(rows); i++)
    if (!is_plain(&rows[i], _PyType_Lookup(class->type, rows[i].word)))
      class->patched |= rows[i].bit;
  class->kind.repr_fn = class->patched & EXT_CUSTOM_EXTRA_REPR ? base.extra_repr
                        : class->native                        ? class->native->repr_fn
                                                               : NULL;
  set_getattro(class);
  class->type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;  // ext_module_call handles a new __call__
  unsigned version = class->type->tp_version_tag;
  class->version = version ? version : EXT_NO_VERSION;
}

ext_module_class *ext_module_class_of(PyTypeObject *type) {
  ext_module_class *class = known_class(type);
  if (!class) {
    if (PyErr_Occurred() || !(class = new_class(type))) return NULL;
    const ext_module_class *above = native_base(type);
    class->native = above->native, class->library = above->library;
    class->kind = kind_of_class(class);
  }
  if (class->version != type->tp_version_tag) update_class(class);
  return class;
}

// ---- objects

static unsigned bits_of(PyObject *dict) {
  unsigned bits = 0;
  for (int i = 0; i < EXT_LENGTH(rows); i++)
    if (PyDict_Contains(dict, rows[i].word) > 0) bits |= rows[i].bit;
  return bits;
}

unsigned ext_module_refresh_custom(PyObject *self) {
  ext_module_object *object = (ext_module_object *)self;
  if (object->class->type != Py_TYPE(self) ||
      object->class->version != Py_TYPE(self)->tp_version_tag) {
    ext_module_class *class = ext_module_class_of(Py_TYPE(self));
    if (!class) return PyErr_Clear(), ~0u;  // out of memory: slow paths are always correct
    object->class = class;
  }
  Py_ssize_t size = object->dict ? PyDict_GET_SIZE(object->dict) : 0;
  if (size != object->seen) {
    object->patched = size ? bits_of(object->dict) : 0;
    object->seen = size;
  }
  return object->class->patched | object->patched;
}

int ext_module_any_custom(PyObject *self, unsigned bits) {
  if (!PyDict_GET_SIZE(((ext_module_object *)self)->children))
    return (ext_module_custom(self) & bits) != 0;
  EXT_OWNED *seen = PySet_New(NULL);
  EXT_OWNED *left = seen ? PyList_New(0) : NULL;
  if (!left || PyList_Append(left, self) < 0) return -1;
  for (Py_ssize_t count; (count = PyList_GET_SIZE(left));) {
    EXT_OWNED *module = Py_NewRef(PyList_GET_ITEM(left, count - 1));
    if (PyList_SetSlice(left, count - 1, count, NULL) < 0) return -1;
    if (ext_module_custom(module) & bits) return 1;
    PyObject *name, *child;
    Py_ssize_t at = 0;
    while (PyDict_Next(((ext_module_object *)module)->children, &at, &name, &child)) {
      if (child == Py_None) continue;
      EXT_OWNED *address = PyLong_FromVoidPtr(child);
      int known = address ? PySet_Contains(seen, address) : -1;
      if (known == 0 && (PySet_Add(seen, address) < 0 || PyList_Append(left, child) < 0))
        known = -1;
      if (known < 0) return -1;
    }
  }
  return 0;
}

// ---- methods in Python

PyObject *ext_module_python(const char *name, PyObject *first, PyObject *second) {
  static PyObject *module;
  if (!module && !(module = PyImport_ImportModule("phlox.nn._module"))) return NULL;
  EXT_OWNED *function = PyObject_GetAttrString(module, name);
  return function ? PyObject_CallFunctionObjArgs(function, first, second, NULL) : NULL;
}

int ext_module_init_protocol(const ext_module_base *given) {
  base = *given;
  for (int i = 0; i < EXT_LENGTH(rows); i++) {
    rows[i].word = PyUnicode_InternFromString(rows[i].name);
    PyObject *own = rows[i].word ? PyDict_GetItem(base.type->tp_dict, rows[i].word) : NULL;
    if (own && Py_IS_TYPE(own, &PyMethodDescr_Type))
      rows[i].plain = ((PyMethodDescrObject *)own)->d_method->ml_meth;
    else
      rows[i].own = Py_XNewRef(own);
  }
  return PyErr_Occurred() || !ext_module_class_of(base.type) ? -1 : 0;
}
