// SPDX-License-Identifier: Apache-2.0
// Calling a module: hooks, then the user's forward or the layer's forward in C.
#include "bind/compiled.h"
#include "nn/nn.h"

#include <string.h>

// MANY_ELEMENTS: input size above which a CPU layer runs without the GIL.
enum { MANY_ELEMENTS = 1 << 14, NAME_SIZE = 64 };

// For layers with a result size, `output_size` follows the inputs.
static const char *input_name(const px_module_kind *kind, int i) {
  if (kind->sized && i == kind->input_count) return "output_size";
  return ext_port_name(kind, i);
}
static bool is_optional(const px_module_kind *kind, int i) {
  return kind->inputs && kind->inputs[i].optional;
}

static int bind_inputs(const px_module_kind *kind, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames, PyObject **given) {
  ext_call_spec takes = {
      kind->name, "forward", kind->input_count + (kind->sized != NULL), {0}, {0}};
  for (int i = 0; i < takes.count; i++) {
    takes.names[i] = input_name(kind, i);
    takes.optional[i] = i == kind->input_count || is_optional(kind, i);
  }
  return ext_bind_names(&takes, args, nargs, kwnames, given);
}

static PyObject *call_layer(PyObject *self, const px_module_kind *kind, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames);

// Forward reads tensors that are not entries, the i-th among them. They are plain attributes or
// properties, as set by code computing a weight, and become entries for the duration of the call.
static PyObject *call_with_attributes(PyObject *self, const px_module_kind *kind, int i,
                                      PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  px_module_entry entry;
  char name[NAME_SIZE];
  bool more;
  while ((more = px_module_tensor_name(ext_module(self), i, name, sizeof name)) &&
         px_module_entry_find(ext_module(self), name, &entry))
    i++;
  if (!more) return call_layer(self, kind, args, nargs, kwnames);
  EXT_OWNED *value = PyObject_GetAttrString(self, name);
  if (!value || (value != Py_None && !ext_need_tensor(value, kind->name, name))) return NULL;
  entry = (px_module_entry){name, PX_ENTRY_BUFFER, false,
                            value == Py_None ? NULL : ext_tensor(value), NULL};
  EXT_TRY(px_module_put(ext_module(self), &entry));
  EXT_OWNED *result = call_with_attributes(self, kind, i + 1, args, nargs, kwnames);
  ((ext_module_object *)self)->may_lack_tensors = true;
  EXT_TRY(px_module_remove(ext_module(self), name));
  return ext_moved(&result);
}

static bool lacks_tensors(PyObject *self, const px_module_kind *kind) {
  px_module_entry entry;
  char name[NAME_SIZE];
  for (int i = 0; px_module_tensor_name(ext_module(self), i, name, sizeof name); i++)
    if (!px_module_entry_find(ext_module(self), name, &entry)) return true;
  return ((ext_module_object *)self)->may_lack_tensors = false;
}

// A layer with one or two results.
static PyObject *call_pair(px_module *module, const px_module_kind *kind,
                           px_tensor *const *inputs) {
  px_tensor *first, *second;
  EXT_WAIT(kind->pair(&first, &second, module, inputs, kind->input_count));
  EXT_OWNED *result = ext_wrap(first);
  EXT_OWNED *more = second ? ext_wrap(second) : NULL;
  return more && result ? PyTuple_Pack(2, result, more) : ext_moved(&result);
}

// A layer whose result size is an argument.
static PyObject *call_sized(px_module *module, const px_module_kind *kind, px_tensor *const *inputs,
                            PyObject *size) {
  ext_ints sizes;
  px_tensor *result;
  if (ext_to_ints(size, &sizes) < 0) return NULL;
  return ext_result(
      EXT_NOGIL(kind->sized(&result, module, inputs, PX_IS(sizes.items, sizes.count))), &result);
}

// A packed sequence (torch.nn.utils.rnn) is a tuple accepted by layers with a batch_sizes input.
// Python unpacks it.
static PyObject *call_packed(PyObject *self, PyObject *const *given) {
  EXT_OWNED *how = PyTuple_Pack(2, given[0], given[1] ? given[1] : Py_None);
  return how ? ext_module_python("packed", self, how) : NULL;
}
static bool is_packed(const px_module_kind *kind, PyObject *const *given) {
  int last = kind->input_count - 1;
  return last == 2 && kind->inputs && kind->inputs[last].optional && PyTuple_Check(given[0]) &&
         !given[last];
}

// Lists of numbers in place of tensors, for layers accepting them.
static bool is_numbers(const px_module_kind *kind, int i, PyObject *given) {
  return kind->inputs && kind->inputs[i].numbers && given &&
         (PyTuple_Check(given) || PyList_Check(given));
}
static bool has_numbers(const px_module_kind *kind, PyObject *const *given) {
  for (int i = 0; i < kind->input_count; i++)
    if (is_numbers(kind, i, given[i])) return true;
  return false;
}
static PyObject *call_with_numbers(PyObject *self, const px_module_kind *kind,
                                   PyObject *const *given) {
  EXT_OWNED *full = PyTuple_New(kind->input_count);
  for (int i = 0; full && i < kind->input_count; i++) {
    PyObject *item = given[i] ? given[i] : Py_None, *made = NULL;
    if (is_numbers(kind, i, item)) {
      px_tensor *tensor = ext_tensor_from(item, PX_INT64, px_cpu());
      made = tensor ? ext_wrap(tensor) : NULL;
    } else {
      made = Py_NewRef(item);
    }
    if (!made) return NULL;
    PyTuple_SET_ITEM(full, i, made);
  }
  return full ? call_layer(self, kind, &PyTuple_GET_ITEM(full, 0), kind->input_count, NULL) : NULL;
}

// Calls forward by a reader of the module: another thread may change it while the GIL is released.
static PyObject *forward_by_reader(px_module *module, const px_module_kind *kind,
                                   px_tensor *const *inputs, int count, PyObject *size) {
  px_tensor *results[EXT_PORTS] = {NULL};
  if (kind->pair) return call_pair(module, kind, inputs);
  if (!ext_is_none(size)) return call_sized(module, kind, inputs, size);
  if (px_tensor_numel(*inputs) < MANY_ELEMENTS && kind->result_count <= 1)
    EXT_TRY(kind->forward(results, module, inputs, count));
  else
    EXT_WAIT(kind->forward(results, module, inputs, count));
  return ext_wrap_results(kind, results);
}

// The layer's forward in C.
static PyObject *call_layer(PyObject *self, const px_module_kind *kind, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames) {
  px_module *module = ext_module(self);
  PyObject *bound[EXT_PORTS + 1] = {NULL}, *const *given = args;
  px_tensor *inputs[EXT_PORTS] = {NULL};
  if (((ext_module_object *)self)->may_lack_tensors && lacks_tensors(self, kind))
    return call_with_attributes(self, kind, 0, args, nargs, kwnames);
  if (kind->method_count) return ext_module_method(self, 0, args, nargs, kwnames);
  if (kwnames || nargs != kind->input_count) {
    if (bind_inputs(kind, args, nargs, kwnames, bound) < 0) return NULL;
    given = bound;
  }
  int count = kind->input_count;
  if (!ext_module_is_fast_path(inputs, kind, given)) {
    PyObject *said;
    if (ext_module_via_functional(&said, self, kind, given)) return said;
    if (is_packed(kind, given)) return call_packed(self, given);
    if (has_numbers(kind, given)) return call_with_numbers(self, kind, given);
    count = ext_unwrap_inputs(inputs, kind, given);
    if (count < 0) return NULL;
  }
  PyObject *size = given == bound ? bound[kind->input_count] : NULL;
  int reader = px_module_read_begin(module);
  PyObject *result = forward_by_reader(module, kind, inputs, count, size);
  px_module_read_end(module, reader);
  return result;
}

// One step of Sequential. Calls the child's Python object: subclasses and Python hooks take effect,
// and non-tensors are passed through. A child registered by C may have no object.
static px_status call_child(px_module *child, void *value) {
  PyObject **x = value, *next;
  EXT_OWNED *object = Py_XNewRef(child ? px_module_user(child) : Py_None);  // may be replaced
  if (object) {
    next = PyObject_CallOneArg(object, *x);
  } else {
    px_tensor *given = ext_need_tensor(*x, px_module_kind_of(child)->name, "input"), *result;
    if (!given) return ext_error_from_python();
    PX_TRY(px_module_call(&result, child, given));
    next = ext_wrap(result);
  }
  if (!next) return ext_error_from_python();
  Py_SETREF(*x, next);
  return PX_OK;
}

static PyObject *call_sequential(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames) {
  PyObject *given[1] = {NULL};
  if (bind_inputs(((ext_module_object *)self)->class->native, args, nargs, kwnames, given) < 0)
    return NULL;
  EXT_OWNED *x = Py_NewRef(given[0]);
  EXT_TRY(px_module_chain(ext_module(self), call_child, &x));
  return ext_moved(&x);
}

bool ext_is_sequential(const px_module_kind *kind) {
  static const px_module_kind *sequential;  // name comparison costs 10 % of a small layer's call
  if (!sequential) sequential = px_module_kind_find("Sequential");
  return kind->forward == sequential->forward;
}

static PyObject *fail_no_forward(PyObject *self) {
  EXT_FAIL(PyExc_NotImplementedError, "Module [%s] is missing the required \"forward\" function",
           ext_type_name(self));
}

static inline PyObject *own_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames) {
  if (!ext_module(self))
    EXT_FAIL(PyExc_AttributeError, "'%s' object was called before its Module.__init__()",
             ext_type_name(self));
  const px_module_kind *kind = ((ext_module_object *)self)->class->native;
  if (!kind || !kind->forward) return fail_no_forward(self);
  if (!ext_is_sequential(kind)) return call_layer(self, kind, args, nargs, kwnames);
  if (Py_EnterRecursiveCall(" while calling a module")) return NULL;
  PyObject *result = call_sequential(self, args, nargs, kwnames);
  Py_LeaveRecursiveCall();
  return result;
}

PyObject *ext_module_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  return own_forward(self, args, nargs, kwnames);
}

// Calls the forward found by Python lookup, possibly in the object's dict. Usually it is a method
// of the class, which is called without binding.
static PyObject *call_found_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                    PyObject *kwnames) {
  enum { MAX_ARGS = 8 };
  static PyObject *name;
  const ext_module_object *object = (ext_module_object *)self;
  Py_ssize_t count = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (!name && !(name = PyUnicode_InternFromString("forward"))) return NULL;
  PyObject *own =
      object->patched & EXT_CUSTOM_FORWARD || !object->class->has_base_getattro || count > MAX_ARGS
          ? NULL
          : _PyType_Lookup(Py_TYPE(self), name);
  if (own && Py_IS_TYPE(own, &PyMethodDescr_Type)) {  // a layer's C method
    const PyMethodDef *method = ((PyMethodDescrObject *)own)->d_method;
    if (method->ml_flags == (METH_FASTCALL | METH_KEYWORDS))
      return ((_PyCFunctionFastWithKeywords)(void (*)(void))method->ml_meth)(self, args, nargs,
                                                                             kwnames);
  }
  if (!own || !PyType_HasFeature(Py_TYPE(own), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
    EXT_OWNED *forward = PyObject_GetAttr(self, name);
    return forward ? PyObject_Vectorcall(forward, args, (size_t)nargs, kwnames) : NULL;
  }
  PyObject *flat[1 + MAX_ARGS] = {self};
  EXT_OWNED *kept = Py_NewRef(own);
  for (Py_ssize_t i = 0; i < count; i++) flat[1 + i] = args[i];
  return PyObject_Vectorcall(kept, flat, (size_t)nargs + 1, kwnames);
}

// ---- hooks. Python hooks run around forward (hooks.c). C hooks are run by the core, around all
// of that.

static PyObject *run_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  if (ext_module_custom(self) & EXT_CUSTOM_FORWARD)
    return call_found_forward(self, args, nargs, kwnames);
  return ext_module_forward(self, args, nargs, kwnames);
}

// Runs Python hooks and forward, without C hooks.
static inline PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  unsigned custom = ext_module_custom(self);
  if (custom & EXT_CUSTOM_HOOKS || ext_global_hooks)
    return ext_module_run_hooked(run_forward, self, args, nargs, kwnames);
  if (custom & EXT_CUSTOM_FORWARD) return call_found_forward(self, args, nargs, kwnames);
  return own_forward(self, args, nargs, kwnames);
}

// A call from Python to a module with C hooks.
typedef struct python_call {
  PyObject *self, *result;
  PyObject **args;  // each owned
  Py_ssize_t nargs;
  PyObject *kwnames;
} python_call;

// C hooks receive tensors, and may replace the first input or the result.
static px_status run_c_hook(px_module *self, const px_hook_entry *hook, void *with) {
  enum { LIMIT = EXT_PORTS };
  python_call *call = with;
  px_tensor *inputs[LIMIT] = {NULL}, *replacement = NULL;
  bool tensors_only = call->nargs <= LIMIT && (!call->result || ext_is_tensor(call->result));
  for (Py_ssize_t i = 0; tensors_only && i < call->nargs; i++) {
    tensors_only = ext_is_tensor(call->args[i]);
    inputs[i] = tensors_only ? ext_tensor(call->args[i]) : NULL;
  }
  PX_CHECK(tensors_only && call->nargs, PX_TYPE,
           "C hooks of %s require all inputs and results to be Tensors",
           px_module_kind_of(self)->name);
  px_tensor *result = call->result ? ext_tensor(call->result) : NULL;
  PX_TRY(hook->run(&replacement, self, inputs, (int)call->nargs, result, hook->context));
  PyObject *said = replacement ? ext_wrap(replacement) : NULL;
  if (!replacement) return PX_OK;
  if (!said) return ext_error_from_python();
  Py_SETREF(*(hook->before ? call->args : &call->result), said);
  return PX_OK;
}

static px_status run_python(px_module *self, void *with) {
  python_call *call = with;
  call->result = run(call->self, call->args, call->nargs, call->kwnames);
  return call->result ? PX_OK : ext_error_from_python();
}

static PyObject *run_hooked(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
  static const px_module_runner way = {run_c_hook, run_python};
  Py_ssize_t count = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  python_call call = {self, NULL, PyMem_Calloc((size_t)count + 1, sizeof *args), nargs, kwnames};
  if (!call.args) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) call.args[i] = Py_NewRef(args[i]);
  px_status status = px_module_run(ext_module(self), &way, &call);
  for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(call.args[i]);
  PyMem_Free(call.args);
  if (status == PX_OK) return call.result;
  Py_XDECREF(call.result);
  return ext_raise();
}

// ---- calls

PyObject *ext_module_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames) {
  return run(self, args, nargs, kwnames);
}

static PyObject *call_uncompiled(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames) {
  px_module *module = ext_module(self);
  if (module && px_module_has_hooks(module)) return run_hooked(self, args, nargs, kwnames);
  return run(self, args, nargs, kwnames);
}

static PyObject *call_compiled(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
  const ext_module_object *object = (ext_module_object *)self;
  ext_compiled_call compiled;
  if (!ext_compiled_begin(&compiled, object->fuses, object->whole)) return NULL;
  return ext_compiled_end(&compiled, call_uncompiled(self, args, nargs, kwnames));
}

static inline PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames) {
  if (__builtin_expect(((ext_module_object *)self)->compiled, 0))
    return call_compiled(self, args, nargs, kwnames);
  return call_uncompiled(self, args, nargs, kwnames);
}

#if PY_VERSION_HEX >= 0x030D0000  // exported, but declared in an internal header
PyObject *_PyObject_MakeTpCall(PyThreadState *, PyObject *, PyObject *const *, Py_ssize_t,
                               PyObject *);
#endif

// A user-defined __call__ of a class is in its tp_call slot.
PyObject *ext_module_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (Py_TYPE(self)->tp_call != ext_module_tp_call)
    return _PyObject_MakeTpCall(PyThreadState_Get(), self, args, nargs, kwnames);
  return call(self, args, nargs, kwnames);
}

// Module.__call__, also called from overriding classes.
PyObject *ext_module_tp_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  Py_ssize_t nargs = PyTuple_GET_SIZE(args), count = kwargs ? PyDict_GET_SIZE(kwargs) : 0, at = 0;
  if (!count) return call(self, &PyTuple_GET_ITEM(args, 0), nargs, NULL);
  PyObject **flat = PyMem_Malloc((size_t)(nargs + count) * sizeof *flat), *name;
  EXT_OWNED *kwnames = PyTuple_New(count);
  if (!flat || !kwnames) return PyMem_Free(flat), PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < nargs; i++) flat[i] = PyTuple_GET_ITEM(args, i);
  for (Py_ssize_t i = 0; PyDict_Next(kwargs, &at, &name, &flat[nargs + i]); i++)
    PyTuple_SET_ITEM(kwnames, i, Py_NewRef(name));
  PyObject *result = call(self, flat, nargs, kwnames);
  PyMem_Free(flat);
  return result;
}
