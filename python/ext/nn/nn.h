// SPDX-License-Identifier: Apache-2.0
// torch.nn.Module in the extension, shared by the nn_*.c files and parallel.c.
#pragma once
#include "bind/ext.h"
#include <limits.h>

#include "phlox/nn.h"

// Objects of tensors, with their numbers of entries (kept.c).
typedef struct ext_kept_tensor {
  ext_tensor_object *object;  // owned; NULL: a free slot
  int entries;
} ext_kept_tensor;
typedef struct ext_kept_tensors {
  ext_kept_tensor *slots;
  size_t count, capacity;  // capacity: 0 or a power of two
} ext_kept_tensors;
void ext_kept_drop(ext_kept_tensors *kept_take);

// Python object of a module. The px_module owns parameters, buffers, children and attributes;
// `children` and `kept` keep the Python objects of child modules and tensors alive. `module` is
// NULL until Module.__init__ has run.
typedef struct ext_module_object {
  PyObject_HEAD px_module *module;
  PyObject *dict, *weak;
  PyObject *children;              // dict of name to Module or None
  ext_kept_tensors kept;           // of the tensor entries
  struct ext_module_class *class;  // class information as of the last check
  bool
      may_lack_tensors;  // entries were removed: tensors read by the layer's forward may be missing
  unsigned patched;      // bits of EXT_CUSTOM for names in the dict, when it had `seen` items
  Py_ssize_t seen;
  bool compiled, fuses, whole;  // set by Module.compile: calls are compiled (bind/compiled.h)
  vectorcallfunc call;
} ext_module_object;

// Protocol names that user code may override in a class or an object: methods and hook dicts. Each
// hook dict also has an index in hooks.c. Several names may share a bit.
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
  EXT_CUSTOM_FORWARD = 1,
  EXT_CUSTOM_BEFORE = 2,
  EXT_CUSTOM_EXTRA_REPR = 4,
  EXT_CUSTOM_TRAIN = 8,
  EXT_CUSTOM_APPLY = 16,
  EXT_CUSTOM_SAVE = 32,
  EXT_CUSTOM_LOAD = 64,
  EXT_CUSTOM_VERSION = 128,
  EXT_CUSTOM_PARAMETERS = 256,
  EXT_CUSTOM_NAMED_PARAMETERS = 512,
  EXT_CUSTOM_NAMED_BUFFERS = 1024,
  EXT_CUSTOM_NAMED_MODULES = 2048,
  EXT_CUSTOM_NAMED_CHILDREN = 4096,
  EXT_CUSTOM_REGISTER = 8192,
  EXT_CUSTOM_AFTER = 16384,
  EXT_CUSTOM_MARKS = 32768,
  EXT_CUSTOM_BACKWARD = 65536,
  EXT_CUSTOM_VISIT = 131072,
  EXT_CUSTOM_HOOKS = EXT_CUSTOM_BEFORE | EXT_CUSTOM_AFTER | EXT_CUSTOM_BACKWARD,
};

// Cached information on a module type.
typedef struct ext_module_class {
  PyTypeObject *type;
  unsigned version, patched;     // bits of EXT_CUSTOM for overridden library methods
  bool has_base_getattro;        // ext_module_base.getattro can be used: __getattribute__ is not
                                 // overridden
  const px_module_kind *native;  // kind of the library type it is or descends from, or NULL
  PyTypeObject *library;         // that library type
  px_module_kind kind;           // kind of its modules
} ext_module_class;
#define EXT_NO_VERSION UINT_MAX
// NULL with an exception on failure. Library types register their kind before first use.
ext_module_class *ext_module_class_of(PyTypeObject *type);
int ext_module_register_type(PyTypeObject *type, const px_module_kind *native);
// Bits of EXT_CUSTOM overridden by an object or its class. ext_module_refresh_custom recomputes
// them after changes of the class or of the object's dict.
unsigned ext_module_refresh_custom(PyObject *self);
static inline unsigned ext_module_custom(PyObject *self) {
  const ext_module_object *object = (const ext_module_object *)self;
  const ext_module_class *class = object->class;
  Py_ssize_t size = object->dict ? PyDict_GET_SIZE(object->dict) : 0;
  bool same = class->type == Py_TYPE(self) && class->version == Py_TYPE(self)->tp_version_tag &&
              size == object->seen;
  return same ? class->patched | object->patched : ext_module_refresh_custom(self);
}
// 1 if the module or a descendant has any of the bits; -1 with an exception.
int ext_module_any_custom(PyObject *self, unsigned bits);
// Base functions of all module classes; set once, when Module has all its methods.
typedef struct ext_module_base {
  PyTypeObject *type;
  getattrofunc getattro;  // object.__getattribute__ and Module.__getattr__ in one step
  void (*extra_repr)(const px_module *self, char *text, size_t capacity);  // for subclasses
} ext_module_base;
int ext_module_init_protocol(const ext_module_base *base);
// Calls a function of phlox/nn/_module.py with one or two arguments.
PyObject *ext_module_python(const char *name, PyObject *first, PyObject *second);

// Number of a kind's parameters that are attributes. A lazy size is an attribute, not an argument.
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
// Python type of a library kind ("Linear").
PyTypeObject *ext_module_type(const char *kind);
// Creates the type torch.nn.NAME, found by ext_module_type and by pickles. Its docstring is that of
// the kind of this name, if any.
PyTypeObject *ext_module_make_type(const char *name, const PyType_Slot *slots);
// Family of a layer or family, such as torch.nn._ConvNd, or NULL.
const char *ext_module_family(const char *name);
// The module's existing Python object, or a new one of its kind's type.
PyObject *ext_module_wrap(px_module *module);
// Creates objects for children created by the core.
int ext_module_wrap_children(PyObject *self);
// A new object of the type over an existing px_module, whose reference it takes. `child` wraps the
// children.
PyObject *ext_module_from_core(PyTypeObject *type, px_module *module_take);
// Creates an empty px_module of the object's class for it.
int ext_module_begin(PyObject *self);
// Runs the global registration hooks for an entry ("parameter", "buffer", "module"). Returns the
// value or its replacement, a new reference.
PyObject *ext_module_registration_hook(PyObject *self, const char *sort, const char *name,
                                       PyObject *value);
// Object of an entry's tensor, kept by the module: a parameter is the same object as long as it is
// registered. New reference.
PyObject *ext_module_tensor(px_module *owner, px_tensor *tensor);
// Replaces a kept object after a change of an entry. Either may be None or NULL.
int ext_module_keep(PyObject *module, PyObject *before, PyObject *after);
// Object of the tensor of an entry, or None. New reference.
PyObject *ext_module_entry_object(PyObject *module, const char *name);
// Registers a tensor or None as a parameter or buffer, and keeps its object.
int ext_module_put_tensor(PyObject *self, px_entry_sort sort, const char *name, PyObject *value,
                          bool persistent);
// Registers a child module and keeps its object.
int ext_module_put_child(PyObject *self, const char *name, PyObject *child);
// A new dict of the pairs of a mapping or of an iterable: arguments of a ModuleDict.
PyObject *ext_module_pairs(PyObject *modules);
// Fails before Module.__init__ has run.
int ext_module_ready(PyObject *self, const char *what);
// Type of a value in PyTorch's messages: 'torch.FloatTensor', 'int'.
void ext_type_text(PyObject *value, char *text, size_t capacity);
// Converts an attribute value to a Python object, and back (0 if not convertible, -1 with an
// exception).
PyObject *ext_from_value(px_value value);
int ext_to_value(PyObject *object, uint8_t kind, px_value *out, ext_ints *ints);

// Unwraps bound arguments into layer inputs, borrowed. NULL, or None for an optional input, means
// no tensor. Returns the number of tensors, or -1 with an exception. ext_wrap_results wraps results
// and takes their references.
enum { EXT_PORTS = 8 };  // limit of input and of result tensors
const char *ext_port_name(const px_module_kind *kind, int i);
int ext_unwrap_inputs(px_tensor **out, const px_module_kind *kind, PyObject *const *given);
PyObject *ext_wrap_results(const px_module_kind *kind, px_tensor **take);
// The opposite direction: wraps inputs of a C call as Python arguments (returns how many; the last
// is NULL with an exception on failure), and unwraps the results as new references.
int ext_wrap_inputs(PyObject **out, const px_module_kind *kind, px_tensor *const *inputs,
                    int count);
int ext_unwrap_results(px_tensor **out, const px_module_kind *kind, PyObject *value);
// Computes a layer's forward with functions replaced in torch.nn.functional by user code. 1: *out
// is the result; 0: the layer uses no replaced function; -1: exception.
int ext_module_via_functional(PyObject **out, PyObject *self, const px_module_kind *kind,
                              PyObject *const *inputs);
// True if a mode is active, or an argument (or an item of a tuple) overrides calls.
bool ext_module_is_overridden(PyObject *const *given, int count);
// Fast-path test: no mode, no replaced function, and all inputs are plain tensors, which it
// unwraps. No further checks are needed then.
bool ext_module_is_fast_path(px_tensor **out, const px_module_kind *kind, PyObject *const *given);
// Named parameters of a call. ext_bind_names sets `given`, NULL for missing arguments. A mismatch
// raises TypeError with Python's message.
typedef struct ext_call_spec {
  const char *owner, *method;
  int count;
  const char *names[16];
  bool optional[16];
} ext_call_spec;
int ext_bind_names(const ext_call_spec *spec, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **given);
// Calls the i-th method of the kind's table; the first is forward. ext_module_methods are the
// functions of types for the others. ext_module_invoke is called from C for any method.
PyObject *ext_module_method(PyObject *self, int which, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames);
extern const _PyCFunctionFastWithKeywords ext_module_methods[];
px_status ext_module_invoke(px_tensor **results, int result_count, px_module *self,
                            const char *method, const px_named_value *args, int count);
// The layer's own forward, without hooks.
PyObject *ext_module_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames);
// Wraps a copied px_module like `model`: same types, attribute dicts copied by `copy_dict`.
PyObject *ext_module_mirror(PyObject *model, px_module *copied,
                            PyObject *(*copy_dict)(PyObject *dict, PyObject *memo), PyObject *memo);
PyObject *ext_module_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *ext_module_tp_call(PyObject *self, PyObject *args, PyObject *kwargs);
// Calls the forward found by Python attribute lookup, with Python hooks but without C hooks.
PyObject *ext_module_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
bool ext_is_sequential(const px_module_kind *kind);
// A forward to be run between Python hooks.
typedef PyObject *ext_module_runner(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames);
PyObject *ext_module_run_hooked(ext_module_runner *forward, PyObject *self, PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames);
// Hook dicts for calls of all modules, by name; NULL until created.
extern PyObject *ext_global_hooks;
// Hook dict of a module, created on first access and a plain attribute afterwards. NULL for other
// names, with or without an exception.
PyObject *ext_module_hook_dict(PyObject *self, PyObject *name);
