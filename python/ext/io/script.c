// SPDX-License-Identifier: Apache-2.0
// TorchScript archives for torch.jit.load (phlox/_jit.py).
#include "phlox/script.h"
#include "io/tree.h"
#include "nn/nn.h"

typedef struct script_object {
  PyObject_HEAD px_script *script;
} script_object;
#define S(self) (((script_object *)(self))->script)
EXT_OWNS(script, EXT_CORE(script_object, script));

static px_status load(px_script **out, PyObject *source, px_device device, PyObject *keep) {
  Py_buffer bytes;
  if (keep) return EXT_NOGIL(px_script_load(out, PyBytes_AS_STRING(keep), device));
  if (PyObject_GetBuffer(source, &bytes, PyBUF_SIMPLE) < 0) return ext_error_from_python();
  px_status status =
      EXT_NOGIL(px_script_load_bytes(out, bytes.buf, (size_t)bytes.len, device, "the file"));
  PyBuffer_Release(&bytes);
  return status;
}
EXT_NEW(script, "(source: object, device: object)") {
  EXT_ARGS(PyObject *, source, device_);
  px_device device = PX_DEVICE_NONE;
  EXT_OWNED *keep = NULL;
  px_script *made = NULL;
  if (device_ != Py_None && ext_to_device(device_, &device) < 0) return NULL;
  if (!PyBytes_Check(source) && !PyUnicode_FSConverter(source, &keep)) return NULL;
  EXT_TRY(load(&made, source, device, keep));
  script_object *self = ext_new(type);
  if (!self)
    px_release(made);
  else
    self->script = made;
  return (PyObject *)self;
}
EXT_TYPE(script, "torch._C._Script", "_Script", script_object, EXT_FINAL,
         "A loaded TorchScript archive.", EXT_LIFETIME_SLOTS(script), .tp_new = script_new);

static px_tree *tree_of(PyObject *object) {
  px_tree *tree = ext_tree_from(object);
  if (tree || !PyErr_ExceptionMatches(PyExc_NotImplementedError)) return tree;
  PyErr_Clear();
  EXT_FAIL(PyExc_TypeError,
           "TorchScript takes tensors, numbers, strings, devices, dtypes, None, and lists, tuples "
           "and dicts of them");
}
static PyObject *place(px_tensor *tensor, px_device home, void *context) {
  (void)home;
  (void)context;
  return ext_wrap_borrowed(tensor);
}

EXT_METHOD(script, run, "(method: str, args: tuple, named: dict) -> Any", "Calls a method.") {
  EXT_ARGS(PyObject *, method, args, named);
  const char *name = ext_text(method);
  PX_SCOPED(px_tree) positional = name ? tree_of(args) : NULL;
  PX_SCOPED(px_tree) by_name = positional ? tree_of(named) : NULL;
  PX_SCOPED(px_tree) result = NULL;
  if (!by_name) return NULL;
  EXT_WAIT(px_script_run(&result, S(self), name, positional, by_name));
  return ext_tree_object(result, place, NULL);
}
EXT_METHOD(script, get, "(name: str) -> Any", "Returns an attribute.") {
  EXT_ARGS(PyObject *, name);
  const char *text = ext_text(name);
  PX_SCOPED(px_tree) value = NULL;
  if (!text) return NULL;
  EXT_WAIT(px_script_get(&value, S(self), text));
  return ext_tree_object(value, place, NULL);
}
EXT_METHOD(script, set, "(name: str, value: object) -> None", "Sets an attribute.") {
  EXT_ARGS(PyObject *, name, value);
  const char *text = ext_text(name);
  PX_SCOPED(px_tree) tree = text ? tree_of(value) : NULL;
  return tree ? ext_none(EXT_NOGIL(px_script_set(S(self), text, tree))) : NULL;
}
EXT_METHOD(script, methods, "(path: str) -> list[str]", "Returns the methods of a module.") {
  EXT_ARGS(PyObject *, path);
  const char *text = ext_text(path), *name;
  EXT_OWNED *list = text ? PyList_New(0) : NULL;
  for (int i = 0; list; i++) {
    EXT_WAIT(px_script_method(&name, S(self), text, i));
    EXT_OWNED *item = name ? ext_str(name) : NULL;
    if (!name) break;
    if (!item || PyList_Append(list, item) < 0) return NULL;
  }
  return ext_moved(&list);
}

// An object of the class for a module, after objects for its submodules.
static PyObject *module_of(PyTypeObject *type, px_module *module) {
  PyObject *known = px_module_user(module);
  if (known) return Py_NewRef(known);
  px_module_entry entry;
  EXT_OWNED *children = PyList_New(0);
  for (int i = 0; children && px_module_entry_next(module, PX_ENTRY_MODULE, &i, &entry);) {
    EXT_OWNED *child = module_of(type, entry.module);
    if (!child || PyList_Append(children, child) < 0) return NULL;
  }
  EXT_OWNED *self = children ? ext_module_from_core(type, px_retain(module)) : NULL;
  return self && ext_module_wrap_children(self) == 0 ? ext_moved(&self) : NULL;
}
EXT_METHOD(script, module, "(type: type) -> object",
           "Returns the module as an object of a class.") {
  EXT_ARGS(PyObject *, type);
  if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &ext_ModuleType))
    EXT_FAIL(PyExc_TypeError, "expected a class of modules");
  return module_of((PyTypeObject *)type, px_script_module(S(self)));
}
