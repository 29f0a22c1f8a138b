// SPDX-License-Identifier: Apache-2.0
// torch.nn.Module as the extension sees it: shared by the nn_*.c files and by parallel.c.
#pragma once
#include "bind/ext.h"
#include <limits.h>

#include "phlox/nn.h"

// The Python object of a module. The px_module is the truth about parameters, buffers, children and
// attributes; `children` and `tensors` keep the Python objects of child modules and tensors alive.
// `module` is NULL until Module.__init__ has run.
typedef struct ext_module_object {
  PyObject_HEAD px_module *module;
  PyObject *dict, *weak;
  PyObject *children;              // dict of name to Module or None
  ext_tensor_object **tensors;     // owned; one for each entry that was a tensor when last looked
  int tensor_count, tensor_at;     // tensor_at: where the next search begins
  struct ext_module_class *class;  // what was known of the type when it was last asked
  bool lacks;        // perhaps tensors that the layer's forward reads: entries were taken out
  unsigned patched;  // what the dict has of the protocol, when it had `seen` items
  Py_ssize_t seen;
  vectorcallfunc call;
} ext_module_object;

// What the library asks of modules and programs may replace, in a class or in an object: methods,
// and dicts of hooks, which have a word in nn_hooks.c too. Several names may have one bit.
// clang-format off
#define EXT_MODULE_HOOKS(XX) \
  XX(BEFORE, BEFORE, _forward_pre_hooks) XX(MARKS, BEFORE_NAMED, _forward_pre_hooks_with_kwargs) \
  XX(AFTER, AFTER, _forward_hooks) XX(MARKS, AFTER_NAMED, _forward_hooks_with_kwargs) \
  XX(MARKS, AFTER_ALWAYS, _forward_hooks_always_called) \
  XX(BACKWARD, BACKWARD_BEFORE, _backward_pre_hooks) XX(BACKWARD, BACKWARD, _backward_hooks) \
  XX(SAVE, SAVE_BEFORE, _state_dict_pre_hooks) XX(SAVE, SAVE, _state_dict_hooks) \
  XX(SAVE, SAVE_SILENT, _state_dict_hooks_without_result) \
  XX(LOAD, LOAD_BEFORE, _load_state_dict_pre_hooks) \
  XX(LOAD, LOAD_OF_MODULE, _load_state_dict_pre_hooks_of_module) \
  XX(LOAD, LOAD_AFTER, _load_state_dict_post_hooks)
#define EXT_MODULE_PROTOCOL(XX) \
  XX(FORWARD, forward) \
  XX(EXTRA_REPR, extra_repr) \
  XX(TRAIN, train) \
  XX(APPLY, _apply) \
  XX(SAVE, state_dict) XX(SAVE, _save_to_state_dict) XX(SAVE, get_extra_state) \
  XX(LOAD, _load_from_state_dict) XX(LOAD, set_extra_state) \
  XX(VERSION, _version) \
  XX(PARAMETERS, parameters) XX(NAMED_PARAMETERS, named_parameters) \
  XX(NAMED_BUFFERS, named_buffers) XX(NAMED_MODULES, named_modules) \
  XX(NAMED_CHILDREN, named_children) XX(VISIT, children) XX(VISIT, apply) \
  XX(REGISTER, register_parameter) XX(REGISTER, register_buffer)
// clang-format on
enum {
  EXT_HEARS_FORWARD = 1,
  EXT_HEARS_BEFORE = 2,
  EXT_HEARS_EXTRA_REPR = 4,
  EXT_HEARS_TRAIN = 8,
  EXT_HEARS_APPLY = 16,
  EXT_HEARS_SAVE = 32,
  EXT_HEARS_LOAD = 64,
  EXT_HEARS_VERSION = 128,
  EXT_HEARS_PARAMETERS = 256,
  EXT_HEARS_NAMED_PARAMETERS = 512,
  EXT_HEARS_NAMED_BUFFERS = 1024,
  EXT_HEARS_NAMED_MODULES = 2048,
  EXT_HEARS_NAMED_CHILDREN = 4096,
  EXT_HEARS_REGISTER = 8192,
  EXT_HEARS_AFTER = 16384,
  EXT_HEARS_MARKS = 32768,
  EXT_HEARS_BACKWARD = 65536,
  EXT_HEARS_VISIT = 131072,
  EXT_HEARS_HOOKS = EXT_HEARS_BEFORE | EXT_HEARS_AFTER | EXT_HEARS_BACKWARD,
};

// What is known of a type of modules.
typedef struct ext_module_class {
  PyTypeObject *type;
  unsigned version, patched;  // bits of EXT_HEARS for methods that are not the library's
  bool looks_up;  // attributes by ext_module_base.getattro: there is no __getattribute__ of its own
  const px_module_kind *native;  // of the library's type that it is or descends from, or NULL
  PyTypeObject *library;         // that type
  px_module_kind kind;           // of its modules
} ext_module_class;
#define EXT_NO_VERSION UINT_MAX
// NULL with an exception. A type of the library is told with its kind, before it is first used.
ext_module_class *ext_module_class_of(PyTypeObject *type);
int ext_module_know(PyTypeObject *type, const px_module_kind *native);
// Bits of EXT_HEARS for what an object, or its class, has in the place of the library's own; looks
// where the class or the object's dict has changed.
unsigned ext_module_look(PyObject *self);
static inline unsigned ext_module_hears(PyObject *self) {
  const ext_module_object *object = (const ext_module_object *)self;
  const ext_module_class *class = object->class;
  Py_ssize_t size = object->dict ? PyDict_GET_SIZE(object->dict) : 0;
  bool same = class->type == Py_TYPE(self) && class->version == Py_TYPE(self)->tp_version_tag &&
              size == object->seen;
  return same ? class->patched | object->patched : ext_module_look(self);
}
// Whether the module or one below it has any of the bits; -1 with an exception.
int ext_module_any_hears(PyObject *self, unsigned bits);
// What the classes start from: told once, when Module has all of its methods.
typedef struct ext_module_base {
  PyTypeObject *type;
  getattrofunc getattro;  // object.__getattribute__ and Module.__getattr__ in one step
  void (*extra_repr)(const px_module *self, char *text, size_t room);  // a subclass's
} ext_module_base;
int ext_module_protocol(const ext_module_base *base);
// Calls a function of phlox/nn/_module.py with one argument, or two.
PyObject *ext_module_python(const char *name, PyObject *first, PyObject *second);

// How many of a kind's parameters are attributes: the size of a lazy one is no argument.
static inline int ext_attribute_count(const px_module_kind *kind) {
  return kind->param_count + (kind->lazy != NULL);
}

extern PyTypeObject ext_ModuleType;
static inline bool ext_is_module(PyObject *object) {
  return PyObject_TypeCheck(object, &ext_ModuleType);
}
static inline px_module *ext_module(PyObject *object) {
  return ((ext_module_object *)object)->module;
}
// The Python type of a library kind ("Linear").
PyTypeObject *ext_module_type(const char *kind);
// Makes the type torch.nn.NAME, which ext_module_type then finds: pickles go by it. Its docstring
// is that of the kind of the name, if there is one.
PyTypeObject *ext_module_make_type(const char *name, const PyType_Slot *slots);
// The family that a layer or a family belongs to, torch.nn._ConvNd, or NULL.
const char *ext_module_family(const char *name);
// The object of a px_module: the one it has, or a new one of its kind's type.
PyObject *ext_module_wrap(px_module *module);
// A new object of the type over an existing px_module (reference taken); children are wrapped by
// `child`.
PyObject *ext_module_over(PyTypeObject *type, px_module *module_take);
// Gives the object an empty px_module of its class's kind.
int ext_module_begin(PyObject *self);
// What goes into an entry ("parameter", "buffer", "module"): the value, or what a program's hook
// for all registrations gives in its place. New reference.
PyObject *ext_module_registered(PyObject *self, const char *sort, const char *name,
                                PyObject *value);
// The object of an entry's tensor, which the module keeps: a parameter is the same object for as
// long as a module has it. New reference.
PyObject *ext_module_tensor(px_module *owner, px_tensor *tensor);
// Keeps the objects of the tensors that are entries now, and no others.
int ext_module_keep(PyObject *self);
// Registers a tensor or None, as a parameter or a buffer, and keeps its object.
int ext_module_put_tensor(PyObject *self, px_entry_sort sort, const char *name, PyObject *value,
                          bool persistent);
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

// The inputs of a layer from the arguments that were bound to them (NULL, or None of what may be
// absent: no tensor), borrowed; how many tensors they are, or -1 with an exception. And results as
// Python has them; references are taken.
enum { EXT_PORTS = 8 };  // tensors in, and out
const char *ext_port_name(const px_module_kind *kind, int i);
int ext_take_inputs(px_tensor **out, const px_module_kind *kind, PyObject *const *given);
PyObject *ext_give_results(const px_module_kind *kind, px_tensor **take);
// The other way: arguments for a call of Python from a call in C (how many were made; the last is
// NULL with an exception if one failed), and the tensors of what it gave, new references.
int ext_give_inputs(PyObject **out, const px_module_kind *kind, px_tensor *const *inputs,
                    int count);
int ext_take_results(px_tensor **out, const px_module_kind *kind, PyObject *value);
// Gives what a layer's forward comes to with functions that a program has put into
// torch.nn.functional: 1; or 0 where the layer uses none of those; -1 with an exception.
int ext_module_by_functions(PyObject **out, PyObject *self, const px_module_kind *kind,
                            PyObject *const *inputs);
// Whether one of the arguments, or a tuple's item, or a mode takes calls over.
bool ext_module_is_taken(PyObject *const *given, int count);
// Whether a call is as most are: no mode, no function replaced, and all inputs are there and are
// plain tensors, which it gives. Then there is nothing else to look at.
bool ext_module_is_usual(px_tensor **out, const px_module_kind *kind, PyObject *const *given);
// What a call takes, by name: `given` gets what it was given, NULL for what it was not. TypeError
// in Python's words where they do not fit.
typedef struct ext_takes {
  const char *owner, *method;
  int count;
  const char *names[16];
  bool optional[16];
} ext_takes;
int ext_bind_names(const ext_takes *takes, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **given);
// The i-th method of the kind's table, the first of which is forward; the functions that a type has
// for the others; and what C calls for any method.
PyObject *ext_module_method(PyObject *self, int which, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames);
extern const _PyCFunctionFastWithKeywords ext_module_methods[];
px_status ext_module_invoke(px_tensor **results, int result_count, px_module *self,
                            const char *method, const px_named_value *args, int count);
// The layer's own forward, without hooks.
PyObject *ext_module_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);
// Python objects for a px_module that was copied from `model`'s: the same types, with attributes
// copied by `copy_dict`.
PyObject *ext_module_mirror(PyObject *model, px_module *copied,
                            PyObject *(*copy_dict)(PyObject *dict, PyObject *memo), PyObject *memo);
PyObject *ext_module_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *ext_module_tp_call(PyObject *self, PyObject *args, PyObject *kwargs);
// The hooks of Python and the forward that Python's lookup finds, without the hooks of C.
PyObject *ext_module_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
bool ext_is_sequential(const px_module_kind *kind);
// A forward with the hooks of Python around it.
typedef PyObject *ext_module_runner(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames);
PyObject *ext_module_run_hooked(ext_module_runner *forward, PyObject *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames);
// Dicts of hooks for the calls of all modules, by their names; NULL before there are any.
extern PyObject *ext_hooks_of_all;
// A dict of hooks, which is made when it is first asked for and a plain attribute from then on;
// NULL, perhaps without an exception, where the name is none.
PyObject *ext_module_hook_dict(PyObject *self, PyObject *name);

// Puts the parts of a module's sharded parameters into a state dict (dtensor.c).
px_status ext_sharded_state(PyObject *dict, px_module *module, const char *prefix);
