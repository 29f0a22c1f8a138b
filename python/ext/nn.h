// SPDX-License-Identifier: Apache-2.0
// torch.nn.Module as the extension sees it: shared by the nn_*.c files and by parallel.c.
#pragma once
#include "ext.h"
#include "phlox/nn.h"

// The Python object of a module. The px_module is the truth about parameters, buffers, children and
// attributes; `children` keeps the Python objects of child modules alive. `module` is NULL until
// Module.__init__ has run.
typedef struct ext_module_object {
  PyObject_HEAD px_module *module;
  PyObject *dict, *weak;
  PyObject *children;   // dict of name to Module or None
  bool python_forward;  // the type has a forward of its own
  vectorcallfunc call;
} ext_module_object;

extern PyTypeObject ext_ModuleType;
static inline bool ext_is_module(PyObject *object) {
  return PyObject_TypeCheck(object, &ext_ModuleType);
}
static inline px_module *ext_module(PyObject *object) {
  return ((ext_module_object *)object)->module;
}
// The kind of modules of a Python type: made on first use and kept for good.
const px_module_kind *ext_module_kind(PyTypeObject *type);
// The Python type of a library kind ("Linear").
PyTypeObject *ext_module_type(const char *kind);
// Makes the type torch.nn.NAME, which ext_module_type then finds: pickles go by it. Its docstring
// is that of the kind of the name, if there is one.
PyTypeObject *ext_module_make_type(const char *name, const PyType_Slot *slots);
// The object of a px_module: the one it has, or a new one of its kind's type.
PyObject *ext_module_wrap(px_module *module);
// A new object of the type over an existing px_module (reference taken); children are wrapped by
// `child`.
PyObject *ext_module_over(PyTypeObject *type, px_module *module_take);
// Registers a child and keeps its object.
int ext_module_put_child(PyObject *self, const char *name, PyObject *child);
// Fails where Module.__init__ has not run.
int ext_module_ready(PyObject *self, const char *what);
// The type of a value as PyTorch's messages name it: 'torch.FloatTensor', 'int'.
void ext_type_text(PyObject *value, char *text, size_t room);
// A value of an attribute as a Python object, and back (0 where it cannot be one, -1 with an
// exception).
PyObject *ext_from_value(px_value value);
int ext_to_value(PyObject *object, uint8_t kind, px_value *out, ext_ints *room);

// The layer's own forward, without hooks.
PyObject *ext_module_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);
// Adds a hook of Python, and gives its handle, or its id; the function of a hook, NULL if it is
// C's.
PyObject *ext_module_add_hook(PyObject *self, bool before, PyObject *function);
int ext_module_hook(int64_t *id, PyObject *self, bool before, PyObject *function);
PyObject *ext_hook_function(const px_hook_entry *hook);
// Python objects for a px_module that was copied from `model`'s: the same types, with attributes
// copied by `copy_dict`.
PyObject *ext_module_mirror(PyObject *model, px_module *copied,
                            PyObject *(*copy_dict)(PyObject *dict, PyObject *memo), PyObject *memo);
PyObject *ext_module_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
bool ext_is_sequential(const px_module_kind *kind);
