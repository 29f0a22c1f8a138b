// SPDX-License-Identifier: Apache-2.0
// Methods of Module: entries, walks, modes, moves, hooks.
#include "nn.h"

#include <string.h>

static int ready(PyObject *self) {
  if (ext_module(self)) return 0;
  EXT_FAIL_INT(PyExc_AttributeError, "'%s' object has not run Module.__init__()",
               ext_type_name(self));
}
#define READY(self) \
  if (ready(self) < 0) return NULL

static const char *text_of(PyObject *object, const char *fallback) {
  return ext_is_none(object) ? fallback : PyUnicode_AsUTF8(object);
}

EXT_FAST(module_forward) { return ext_module_forward(self, args, nargs, kwnames); }

EXT_FAST(register_parameter) {
  EXT_ARGS("register_parameter", "name param", out);
  px_module_entry entry;
  if (!PyUnicode_Check(out[0]))
    EXT_FAIL(PyExc_TypeError, "parameter name should be a string. Got %s", ext_type_name(out[0]));
  const char *name = PyUnicode_AsUTF8(out[0]);
  if (!name || ext_module_ready(self, "parameter") < 0) return NULL;
  bool taken =
      PyObject_HasAttr(self, out[0]) &&
      !(px_module_entry_find(ext_module(self), name, &entry) && entry.sort == PX_ENTRY_PARAMETER);
  if (taken) EXT_FAIL(PyExc_KeyError, "attribute '%s' already exists", name);
  char given[64];
  ext_type_text(out[1], given, sizeof given);
  if (out[1] != Py_None && !PyObject_TypeCheck(out[1], ext_ParameterType))
    EXT_FAIL(PyExc_TypeError,
             "cannot assign '%s' object to parameter '%s' (torch.nn.Parameter or None required)",
             given, name);
  EXT_TRY(px_module_register_parameter(ext_module(self), name,
                                       out[1] == Py_None ? NULL : ext_tensor(out[1])));
  Py_RETURN_NONE;
}

EXT_FAST(register_buffer) {
  EXT_ARGS("register_buffer", "name tensor|persistent", out);
  const char *name = PyUnicode_AsUTF8(out[0]);
  px_module_entry entry;
  if (!name || ext_module_ready(self, "buffer") < 0) return NULL;
  if (out[1] != Py_None && !ext_is_tensor(out[1]))
    EXT_FAIL(PyExc_TypeError,
             "cannot assign '%s' object to buffer '%s' (torch Tensor or None required)",
             ext_type_name(out[1]), name);
  bool taken =
      PyObject_HasAttr(self, out[0]) &&
      !(px_module_entry_find(ext_module(self), name, &entry) && entry.sort == PX_ENTRY_BUFFER);
  if (taken) EXT_FAIL(PyExc_KeyError, "attribute '%s' already exists", name);
  EXT_TRY(px_module_register_buffer(ext_module(self), name,
                                    out[1] == Py_None ? NULL : ext_tensor(out[1]),
                                    ext_to_bool(out[2], true)));
  Py_RETURN_NONE;
}

EXT_FAST(add_module) {
  EXT_ARGS("add_module", "name module", out);
  const char *name = PyUnicode_AsUTF8(out[0]);
  if (!name || ext_module_put_child(self, name, out[1]) < 0) return NULL;
  Py_RETURN_NONE;
}

// ---- walks: lists of tensors or modules, with or without their names

typedef struct gathering {
  PyObject *list;
  bool named;
} gathering;

static px_status gather(const char *name, const px_module_entry *entry, px_module *owner,
                        void *context) {
  gathering *to = context;
  PyObject *value = entry->sort == PX_ENTRY_MODULE ? ext_module_wrap(entry->module)
                                                   : ext_wrap_borrowed(entry->tensor);
  PyObject *item = to->named && value ? Py_BuildValue("(sN)", name, value) : value;
  int status = item ? PyList_Append(to->list, item) : -1;
  Py_XDECREF(item);
  return status < 0 ? ext_foreign() : PX_OK;
}

static PyObject *walk(PyObject *self, int sorts, const char *prefix, bool recurse, bool named,
                      bool duplicates) {
  READY(self);
  gathering to = {PyList_New(0), named};
  EXT_OWNED *list = to.list;
  if (!list || !prefix) return NULL;
  EXT_TRY(px_module_each(ext_module(self), sorts, prefix, recurse, duplicates, gather, &to));
  return PyObject_GetIter(list);
}

static PyObject *walk_args(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames, int sorts) {
  EXT_ARGS("parameters", "|recurse", out);
  return walk(self, sorts, "", ext_to_bool(out[0], true), false, false);
}

static PyObject *walk_named(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames, int sorts) {
  EXT_ARGS("named_parameters", "|prefix recurse remove_duplicate", out);
  return walk(self, sorts, text_of(out[0], ""), ext_to_bool(out[1], true), true,
              !ext_to_bool(out[2], true));
}

EXT_FAST(parameters) { return walk_args(self, args, nargs, kwnames, PX_ENTRY_PARAMETER); }
EXT_FAST(buffers) { return walk_args(self, args, nargs, kwnames, PX_ENTRY_BUFFER); }
EXT_FAST(named_parameters) { return walk_named(self, args, nargs, kwnames, PX_ENTRY_PARAMETER); }
EXT_FAST(named_buffers) { return walk_named(self, args, nargs, kwnames, PX_ENTRY_BUFFER); }
static PyObject *modules(PyObject *self, PyObject *unused) {
  return walk(self, PX_ENTRY_MODULE, "", true, false, false);
}

EXT_FAST(named_modules) {
  EXT_ARGS("named_modules", "|memo prefix remove_duplicate", out);
  return walk(self, PX_ENTRY_MODULE, text_of(out[1], ""), true, true, !ext_to_bool(out[2], true));
}

// Own children that are not None, each once.
static PyObject *child_list(PyObject *self, bool named) {
  EXT_OWNED *list = PyList_New(0);
  EXT_OWNED *seen = PySet_New(NULL);
  PyObject *name, *child;
  Py_ssize_t at = 0;
  while (list && seen && PyDict_Next(((ext_module_object *)self)->children, &at, &name, &child)) {
    int known = child == Py_None ? 1 : PySet_Contains(seen, child);
    if (known > 0) continue;
    EXT_OWNED *item = named ? PyTuple_Pack(2, name, child) : Py_NewRef(child);
    if (known < 0 || !item || PySet_Add(seen, child) < 0 || PyList_Append(list, item) < 0)
      return NULL;
  }
  return list && seen ? PyObject_GetIter(list) : NULL;
}

static PyObject *children(PyObject *self, PyObject *unused) { return child_list(self, false); }
static PyObject *named_children(PyObject *self, PyObject *unused) { return child_list(self, true); }

static PyObject *get_submodule(PyObject *self, PyObject *target) {
  EXT_OWNED *parts = PyObject_CallMethod(target, "split", "s", ".");
  if (!parts) return NULL;
  PyObject *at = Py_NewRef(self);
  for (Py_ssize_t i = 0; at && i < PyList_GET_SIZE(parts); i++) {
    PyObject *name = PyList_GET_ITEM(parts, i);
    if (!PyUnicode_GET_LENGTH(name)) continue;
    PyObject *next = PyObject_GetAttr(at, name);
    Py_SETREF(at, next);
  }
  return at;
}

static PyObject *apply(PyObject *self, PyObject *fn) {
  PyObject *name, *child;
  Py_ssize_t at = 0;
  while (PyDict_Next(((ext_module_object *)self)->children, &at, &name, &child)) {
    if (child == Py_None) continue;
    EXT_OWNED *done = PyObject_CallMethod(child, "apply", "O", fn);
    if (!done) return NULL;
  }
  EXT_OWNED *result = PyObject_CallOneArg(fn, self);
  return result ? Py_NewRef(self) : NULL;
}

// ---- modes. Subclasses may override train, so it goes through the children's own method.

EXT_FAST(train) {
  EXT_ARGS("train", "|mode", out);
  if (out[0] && !PyBool_Check(out[0]))
    EXT_FAIL(PyExc_ValueError, "training mode is expected to be boolean");
  READY(self);
  px_module_set_training(ext_module(self), ext_to_bool(out[0], true));
  PyObject *name, *child;
  Py_ssize_t at = 0;
  while (PyDict_Next(((ext_module_object *)self)->children, &at, &name, &child)) {
    EXT_OWNED *done = child == Py_None
                          ? Py_NewRef(child)
                          : PyObject_CallMethod(child, "train", "O", out[0] ? out[0] : Py_True);
    if (!done) return NULL;
  }
  return Py_NewRef(self);
}

static PyObject *eval(PyObject *self, PyObject *unused) {
  return PyObject_CallMethod(self, "train", "O", Py_False);
}

EXT_FAST(requires_grad) {
  EXT_ARGS("requires_grad_", "|requires_grad", out);
  READY(self);
  EXT_TRY(px_module_requires_grad(ext_module(self), ext_to_bool(out[0], true)));
  return Py_NewRef(self);
}

static px_status zero_one(const char *name, const px_module_entry *entry, px_module *owner,
                          void *context) {
  px_tensor *grad = px_tensor_grad(entry->tensor);
  if (!grad) return PX_OK;
  PX_TRY(px_tensor_detach_inplace(grad));
  EXT_OWNED *object = ext_wrap_borrowed(grad);
  EXT_OWNED *done = object ? PyObject_CallMethod(object, "zero_", NULL) : NULL;
  return done ? PX_OK : ext_foreign();
}

EXT_FAST(zero_grad) {
  EXT_ARGS("zero_grad", "|set_to_none", out);
  READY(self);
  int to_none = ext_to_bool(out[0], true);
  if (to_none < 0) return NULL;
  if (to_none)
    EXT_TRY(px_module_zero_grad(ext_module(self)));
  else
    EXT_TRY(px_module_each(ext_module(self), PX_ENTRY_PARAMETER, "", true, false, zero_one, NULL));
  Py_RETURN_NONE;
}

// ---- moves

static PyObject *move(PyObject *self, px_dtype dtype, px_device device, bool non_blocking) {
  READY(self);
  EXT_WAIT(px_module_to(ext_module(self), dtype, device, non_blocking));
  return Py_NewRef(self);
}

// to(device), to(dtype), to(device, dtype), to(tensor), with non_blocking.
static PyObject *to(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  EXT_ARGS("to", "|first second non_blocking$device dtype memory_format", out);
  px_dtype dtype = PX_DTYPE_NONE;
  px_device device = PX_DEVICE_NONE;
  PyObject *given[] = {out[0], out[1], out[3], out[4]};
  for (int i = 0; i < EXT_LENGTH(given); i++) {
    PyObject *value = given[i];
    if (ext_is_none(value) || (i == 1 && PyBool_Check(value))) continue;
    if (ext_is_tensor(value)) {
      dtype = px_tensor_dtype(ext_tensor(value));
      device = px_tensor_device(ext_tensor(value));
    } else if (ext_is_dtype(value)) {
      if (ext_to_dtype(value, &dtype) < 0) return NULL;
    } else if (ext_to_device(value, &device) < 0)
      return NULL;
  }
  bool second_is_flag = out[1] && PyBool_Check(out[1]);
  return move(self, dtype, device, ext_to_bool(second_is_flag ? out[1] : out[2], false));
}

static PyObject *cuda(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  EXT_ARGS("Module.cuda", "|device$device_id", out);
  int index;
  PyObject *device = out[0];
  if (out[1]) {
    if (PyErr_WarnEx(PyExc_FutureWarning,
                     "Module.cuda(device_id=...) is an old name: use device=", 1) < 0)
      return NULL;
    device = out[1];
  }
  if (ext_to_cuda_index(device, &index) < 0) return NULL;
  return move(self, PX_DTYPE_NONE, px_cuda(index), false);
}

static PyObject *cpu(PyObject *self, PyObject *unused) {
  return move(self, PX_DTYPE_NONE, px_cpu(), false);
}
#define CONVERSION(name, type) \
  static PyObject *name(PyObject *self, PyObject *unused) { \
    return move(self, type, PX_DEVICE_NONE, false); \
  }
CONVERSION(to_float, PX_FLOAT32)
CONVERSION(to_double, PX_FLOAT64)
CONVERSION(to_half, PX_FLOAT16)
CONVERSION(to_bfloat16, PX_BFLOAT16)

static PyObject *to_type(PyObject *self, PyObject *type) {
  px_dtype dtype;
  px_device device = PX_DEVICE_NONE;
  if (ext_is_dtype(type)) {
    if (ext_to_dtype(type, &dtype) < 0) return NULL;
  } else if (ext_is_type_object(type)) {
    ext_type_object(type, &dtype, &device);
  } else {
    const char *text = PyUnicode_Check(type) ? PyUnicode_AsUTF8(type) : NULL;
    if (!text)
      EXT_FAIL(PyExc_TypeError, "type() takes a dtype or a type, not %s", ext_type_name(type));
    if (!ext_dtype_of_type_name(text, &dtype, &device))
      EXT_FAIL(PyExc_ValueError, "invalid type: '%s'", text);
  }
  return move(self, dtype, device, false);
}

// ---- hooks and texts

EXT_FAST(register_forward_hook) {
  EXT_ARGS("register_forward_hook", "hook", out);
  READY(self);
  return ext_module_add_hook(self, false, out[0]);
}
EXT_FAST(register_forward_pre_hook) {
  EXT_ARGS("register_forward_pre_hook", "hook", out);
  READY(self);
  return ext_module_add_hook(self, true, out[0]);
}
static PyObject *backward_hook(PyObject *self, PyObject *hook) {
  EXT_FAIL(PyExc_NotImplementedError,
           "Module.register_full_backward_hook is not implemented in Phlox");
}

static PyObject *extra_repr(PyObject *self, PyObject *unused) {
  char text[512];
  READY(self);
  const px_module_kind *kind = px_module_kind_of(ext_module(self));
  // A subclass that overrides this and calls super() must not come back to itself.
  const px_module_kind *plain = px_module_kind_find(kind->name);
  if (plain)
    px_module_extra_repr(ext_module(self), text, sizeof text);
  else
    *text = 0;
  return PyUnicode_FromString(text);
}

static PyObject *get_name(PyObject *self, PyObject *unused) {
  return PyUnicode_FromString(ext_type_name(self));
}

static PyObject *module_dir(PyObject *self, PyObject *unused) {
  EXT_OWNED *names = PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__dir__", "O", self);
  px_module_entry entry;
  int all = PX_ENTRY_PARAMETER | PX_ENTRY_BUFFER | PX_ENTRY_MODULE;
  for (int i = 0; names && ext_module(self) && px_module_entry_at(ext_module(self), all, i, &entry);
       i++) {
    EXT_OWNED *name = PyUnicode_FromString(entry.name);
    if (!name || PyList_Append(names, name) < 0) return NULL;
  }
  return ext_moved(&names);
}

PyMethodDef ext_module_methods[] = {EXT_DEF("forward", module_forward),
                                    EXT_DEF("register_parameter", register_parameter),
                                    EXT_DEF("register_buffer", register_buffer),
                                    EXT_DEF("add_module", add_module),
                                    EXT_DEF("register_module", add_module),
                                    EXT_DEF("parameters", parameters),
                                    EXT_DEF("buffers", buffers),
                                    EXT_DEF("named_parameters", named_parameters),
                                    EXT_DEF("named_buffers", named_buffers),
                                    {"modules", modules, METH_NOARGS, NULL},
                                    EXT_DEF("named_modules", named_modules),
                                    {"children", children, METH_NOARGS, NULL},
                                    {"named_children", named_children, METH_NOARGS, NULL},
                                    {"get_submodule", get_submodule, METH_O, NULL},
                                    {"apply", apply, METH_O, NULL},
                                    EXT_DEF("train", train),
                                    {"eval", eval, METH_NOARGS, NULL},
                                    EXT_DEF("requires_grad_", requires_grad),
                                    EXT_DEF("zero_grad", zero_grad),
                                    EXT_DEF("to", to),
                                    EXT_DEF("cuda", cuda),
                                    {"cpu", cpu, METH_NOARGS, NULL},
                                    {"float", to_float, METH_NOARGS, NULL},
                                    {"double", to_double, METH_NOARGS, NULL},
                                    {"half", to_half, METH_NOARGS, NULL},
                                    {"bfloat16", to_bfloat16, METH_NOARGS, NULL},
                                    {"type", to_type, METH_O, NULL},
                                    EXT_DEF("register_forward_hook", register_forward_hook),
                                    EXT_DEF("register_forward_pre_hook", register_forward_pre_hook),
                                    {"register_full_backward_hook", backward_hook, METH_O, NULL},
                                    {"register_backward_hook", backward_hook, METH_O, NULL},
                                    {"extra_repr", extra_repr, METH_NOARGS, NULL},
                                    {"_get_name", get_name, METH_NOARGS, NULL},
                                    {"__dir__", module_dir, METH_NOARGS, NULL},
                                    {NULL, NULL, 0, NULL}};
