// SPDX-License-Identifier: Apache-2.0
// Every op as a Python function and method. One vectorcall serves all: it binds the arguments to
// the first matching signature, calls the op and wraps the results. Callables and their aliases are
// created at start-up from the core's op descriptors.
#include "ops/ops.h"
#include "phlox/ops/copy.h"

#include <string.h>

static PyTypeObject op_type, op_method_type;
static PyObject *return_types;

// Namespaces of callables: a dict by name.
typedef struct op_space {
  char letter;
  const char *alias_prefix;  // prefix in an entry's aliases ("nn" of "nn.relu"), or NULL
  const char *module;        // module for profilers and pickles
  const char *owner;         // word in declarations; NULL: not declared
  const char *prefix;        // prefix of callable names in this namespace
  PyObject *dict;
} op_space;
static op_space spaces[] = {
    {'m', NULL, "torch.Tensor", "tensor", "", NULL},
    {'f', "torch", "torch", "torch", "", NULL},
    {'n', "nn", "torch.nn.functional", "nn_functional", "", NULL},
    {'l', "linalg", "torch.linalg", "linalg", "linalg_", NULL},
    {'s', "special", "torch.special", "special", "special_", NULL},
    {'t', "fft", "torch.fft", "fft", "fft_", NULL},
    {'k', "masked", "torch.masked", "masked", "", NULL},
    {'o', NULL, "torch", NULL, "", NULL},
};

static const op_space *space_at(char letter) {
  int i = 0;
  while (spaces[i].letter != letter) i++;
  return &spaces[i];
}
static PyObject *space_of(char letter) { return space_at(letter)->dict; }
PyObject *ext_op_object(char space, const char *name) {
  return PyDict_GetItemString(space_of(space), name);
}

// ---- calling
enum { NOGIL_NUMEL = 1 << 15 };  // elements of a CPU tensor above which calls release the GIL
static bool is_large(const px_tensor *t) {
  return px_tensor_numel(t) > NOGIL_NUMEL && !px_tensor_is_cuda(t);
}
bool ext_sim_ranks_active;
// True if a call is long enough to release the GIL.
static bool is_long(const px_op *op, const px_value *args) {
  for (int i = 0; i < op->param_count; i++) {
    if (args[i].kind == PX_ARG_TENSOR && is_large(args[i].v.tensor)) return true;
    for (int k = 0; args[i].kind == PX_ARG_TENSORS && k < args[i].n; k++)
      if (is_large(args[i].v.tensors[k])) return true;
  }
  return false;
}
static bool is_on_device(const px_value *arg) {
  return arg->kind == PX_ARG_TENSOR && px_tensor_is_cuda(arg->v.tensor);
}
// True if a copy waits for a device: it reads from the device to the CPU, or a device mask
// determines the number of elements.
static bool will_wait(const px_op *op, px_call_mode mode, const px_value *args) {
  if (!is_on_device(&args[EXT_SELF]))
    return mode == PX_CALL_INPLACE && op->param_count > 1 && is_on_device(&args[EXT_OTHER]);
  for (int i = 1; i < op->param_count; i++) {
    if (args[i].kind == PX_ARG_DEVICE && args[i].v.device.type == PX_CPU) return true;
    for (int k = 0; args[i].kind == PX_ARG_TENSORS && k < args[i].n; k++) {
      const px_tensor *index = args[i].v.tensors[k];
      if (index && px_tensor_dtype(index) == PX_BOOL) return true;
    }
  }
  return false;
}

// Retains the tensors of lists during a call without the GIL: another thread may modify the list.
static void retain_lists(const px_op *op, const px_value *args, bool on) {
  for (int i = 0; i < op->param_count; i++)
    for (int k = 0; args[i].kind == PX_ARG_TENSORS && k < args[i].n; k++)
      on ? (void)px_retain(args[i].v.tensors[k]) : px_release(args[i].v.tensors[k]);
}
static px_status call_long(const px_op *op, px_call_mode mode, const px_value *args,
                           void **results) {
  retain_lists(op, args, true);
  px_status status = EXT_NOGIL(px_op_call(op, mode, args, results));
  retain_lists(op, args, false);
  return status;
}

static px_status call_op(const px_op *op, px_call_mode mode, const px_value *args, void **results) {
  bool copies = mode == PX_CALL_INPLACE && op == EXT_OP("copy");
  if (ext_sim_ranks_active || is_long(op, args) || (copies && will_wait(op, mode, args)))
    return call_long(op, mode, args, results);
  return px_op_call(op, mode, args, results);
}

static PyObject *wrap_results(const ext_signature *s, void **results) {
  const px_op *op = s->op;
  if (op->flags & PX_OP_RETURNS_LIST) return ext_wrap_list(results[0]);
  if (op->result_count == 0) Py_RETURN_NONE;
  if (op->result_count == 1) return ext_wrap(results[0]);
  PyObject *tuple = s->result ? PyStructSequence_New(s->result) : PyTuple_New(op->result_count);
  for (int i = 0; i < op->result_count; i++) {
    PyObject *item = tuple ? ext_wrap(results[i]) : NULL;
    if (!item) Py_CLEAR(tuple);
    if (tuple && s->result)
      PyStructSequence_SetItem(tuple, i, item);
    else if (tuple)
      PyTuple_SET_ITEM(tuple, i, item);
  }
  return tuple;
}

// Puts the tensors of out= into results.
static int read_out(const px_op *op, PyObject *out, void **results) {
  if (op->result_count == 1) {
    results[0] = ext_need_tensor(out, op->name, "out");
    return results[0] ? 0 : -1;
  }
  if (!PyTuple_Check(out) && !PyList_Check(out))
    EXT_FAIL_INT(PyExc_TypeError, "%s(): argument 'out' must be tuple of Tensors, not %s",
                 op->python_name, ext_type_name(out));
  Py_ssize_t count = PySequence_Fast_GET_SIZE(out);
  if (count != op->result_count)
    EXT_FAIL_INT(PyExc_TypeError, "expected tuple of %d elements but got %zd", op->result_count,
                 count);
  for (int i = 0; i < op->result_count; i++) {
    results[i] = ext_need_tensor(PySequence_Fast_GET_ITEM(out, i), op->name, "out");
    if (!results[i]) return -1;
  }
  return 0;
}

px_tensor *ext_pin(px_tensor *tensor) {
  if (px_device_count(PX_CUDA) == 0) {
    PyErr_SetString(PyExc_RuntimeError,
                    "pin_memory=True requires a CUDA or other accelerator backend; no pinned "
                    "memory allocator is available on this system.");
    return NULL;
  }
  if (px_tensor_is_cuda(tensor)) {
    PyErr_SetString(PyExc_RuntimeError, "Only dense CPU tensors can be pinned");
    return NULL;
  }
  const px_op *op = EXT_OP("pin_memory");
  return op ? ext_op_tensor(op, PX_CALL_NEW, 1, (ext_named[]){{"self", PX_T(tensor)}}) : NULL;
}

static PyObject *finish_factory(const ext_frame *frame, px_tensor *made_take) {
  PX_SCOPED(px_tensor) made = made_take;
  if (frame->pin_memory) {
    px_tensor *pinned = ext_pin(made);
    if (!pinned) return NULL;
    px_release(made);
    made = pinned;
  }
  if (frame->requires_grad) {
    EXT_TRY(px_dtype_check_grad(px_tensor_dtype(made)));
    EXT_TRY(px_tensor_set_requires_grad(made, true));
  }
  return ext_wrap(PX_MOVE(made));
}

// A fill value read from a tensor of one GPU cannot fill a tensor of another.
static int check_value(const px_op *op, const ext_frame *frame) {
  px_device device = px_device_default();
  char here[PX_DEVICE_TEXT], there[PX_DEVICE_TEXT];
  for (int i = op->param_count; i-- > 0;) {
    if (frame->args[i].kind == PX_ARG_TENSOR) device = px_tensor_device(frame->args[i].v.tensor);
    if (frame->args[i].kind == PX_ARG_DEVICE) device = frame->args[i].v.device;
  }
  if (device.type != PX_CUDA) return 0;
  EXT_TRY_INT(px_device_resolve(&device, device));
  if (px_device_equal(device, frame->read_at)) return 0;
  EXT_FAIL_INT(PyExc_RuntimeError,
               "Expected all tensors to be on the same device, but found at least two devices, %s "
               "and %s!",
               px_device_format(device, here), px_device_format(frame->read_at, there));
}

static PyObject *run(const ext_signature *s, ext_frame *frame) {
  void *results[4] = {NULL};
  const ext_signature indexed = {.op = s->indexed};
  if (__builtin_expect(frame->indexed, 0)) s = &indexed;
  if (__builtin_expect(frame->reads, 0) && check_value(s->op, frame) < 0) return NULL;
  px_call_mode mode = __builtin_expect(frame->inplace, 0) ? PX_CALL_INPLACE : s->mode;
  if (frame->out) {
    mode = PX_CALL_OUT;
    if (read_out(s->op, frame->out, results) < 0) return NULL;
  }
  if (__builtin_expect(call_op(s->op, mode, frame->args, results) != PX_OK, 0)) return ext_raise();
  if (frame->requires_grad || frame->pin_memory) return finish_factory(frame, results[0]);
  return wrap_results(s, results);
}

static bool is_overridden(const ext_frame *frame) {
  return __builtin_expect(frame->overridden || ext_mode_count, 0) &&
         (frame->overridden || ext_mode_active());
}

// ---- size_average= and reduce=, PyTorch's legacy arguments for the reduction of a loss

static bool has_reduction(const ext_callable *self) {
  const px_op *op = self->signatures[0].op;
  for (int i = 0; i < op->param_count; i++)
    if (!strcmp(op->params[i].name, "reduction")) return self->signatures[0].functional;
  return false;
}

// Removes a keyword and returns its truth: false, true, -1 if not given, -2 with an exception.
static int pop_flag(PyObject *kwargs, const char *name) {
  EXT_OWNED *value = Py_XNewRef(PyDict_GetItemString(kwargs, name));
  if (value && PyDict_DelItemString(kwargs, name) < 0) return -2;
  int truth = ext_is_none(value) ? -1 : PyObject_IsTrue(value);
  return value && value != Py_None && truth < 0 ? -2 : truth;
}

static int set_reduction(PyObject *kwargs) {
  int averages = pop_flag(kwargs, "size_average"), reduces = pop_flag(kwargs, "reduce");
  if (averages == -2 || reduces == -2) return -1;
  if (averages < 0 && reduces < 0) return 0;
  EXT_OWNED *reduction = PyUnicode_FromString(!reduces ? "none" : !averages ? "sum" : "mean");
  if (!reduction || PyErr_WarnFormat(PyExc_UserWarning, 1,
                                     "size_average and reduce args will be deprecated, please use "
                                     "reduction='%U' instead.",
                                     reduction) < 0)
    return -1;
  return PyDict_SetItemString(kwargs, "reduction", reduction);
}

// Calls a loss with legacy arguments converted to `reduction`. NULL without an exception if there
// are none.
static PyObject *call_with_reduction(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                                     PyObject *kwnames) {
  if (!kwnames || !has_reduction((ext_callable *)object)) return NULL;
  EXT_OWNED *kwargs = ext_kwargs_of(args, nargs, kwnames);
  if (!kwargs ||
      (!PyDict_GetItemString(kwargs, "size_average") && !PyDict_GetItemString(kwargs, "reduce")))
    return NULL;
  return set_reduction(kwargs) < 0 ? NULL
                                   : PyObject_VectorcallDict(object, args, (size_t)nargs, kwargs);
}

static bool has_complex(PyObject *const *args, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++)
    if (ext_is_complex(args[i]) || ext_is_complex_tensor(args[i])) return true;
  return false;
}

// True if a signature need not be tried: the complex overload (tried last) without a complex
// argument, or too few arguments. At least one signature is bound, for the error message.
static bool is_excluded(const ext_callable *self, int i, PyObject *const *args, Py_ssize_t all) {
  const ext_signature *s = &self->signatures[i];
  if (s->op->flags & PX_OP_OF_COMPLEX) return i && !has_complex(args, all);
  return all < s->needed && i + 1 < self->count && !(s[1].op->flags & PX_OP_OF_COMPLEX);
}

static PyObject *call_callable(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames) {
  ext_callable *self = (ext_callable *)object;
  ext_frame frame;
  if (self->method && (nargs < 1 || !ext_is_tensor(*args)))
    EXT_FAIL(PyExc_TypeError,
             "descriptor '%U' for 'torch._C.TensorBase' objects doesn't apply to "
             "a '%s' object",
             self->name, nargs ? Py_TYPE(*args)->tp_name : "NoneType");
  Py_ssize_t all = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  bool last = false;
  for (int i = 0; i < self->count; i++) {
    if (is_excluded(self, i, args, all)) continue;
    int fits = ext_bind(&self->signatures[i], &frame, last, args, nargs, kwnames);
    PyObject *result = fits <= 0               ? NULL
                       : is_overridden(&frame) ? ext_call_override(object, args, nargs, kwnames)
                                               : run(&self->signatures[i], &frame);
    ext_frame_release(&frame);
    if (fits) return result;
    if (i + 1 == self->count && !last && has_complex(args, all)) last = true, i = -1;
  }
  if (ext_any_overrides(args, all)) return ext_call_override(object, args, nargs, kwnames);
  PyObject *result = call_with_reduction(object, args, nargs, kwnames);
  if (result || PyErr_Occurred()) return result;
  return ext_no_matching_overload(self, &frame, args, nargs, kwnames);
}

// ---- profilers
// CPython 3.12 and later report all calls of builtin functions to profilers. Earlier versions
// report only those of their own type; other types must do so themselves.
#if PY_VERSION_HEX >= 0x030C0000
static PyObject *callable_call(PyObject *object, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames) {
  return call_callable(object, args, PyVectorcall_NARGS(nargsf), kwnames);
}
#else
static bool is_profiled(const PyThreadState *thread) {
  return thread->c_profilefunc && !thread->tracing;
}

// The profiler itself is not profiled.
static int call_profiler(PyThreadState *thread, int event, PyObject *function) {
  EXT_OWNED *frame = (PyObject *)PyThreadState_GetFrame(thread);
  if (!frame || !is_profiled(thread)) return 0;
  EXT_OWNED *kept = Py_XNewRef(thread->c_profileobj);
  int on = thread->cframe->use_tracing;
  thread->tracing++, thread->cframe->use_tracing = 0;
  int status = thread->c_profilefunc(kept, (PyFrameObject *)frame, event, function);
  thread->tracing--;
  thread->cframe->use_tracing = thread->c_tracefunc || thread->c_profilefunc ? on : 0;
  return status;
}

static PyObject *call_profiled(PyThreadState *thread, PyObject *function, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames) {
  if (call_profiler(thread, PyTrace_C_CALL, function) < 0) return NULL;
  PyObject *result = call_callable(function, args, nargs, kwnames);
  if (result && call_profiler(thread, PyTrace_C_RETURN, function) < 0) Py_CLEAR(result);
  if (result || !PyErr_Occurred()) return result;
  PyObject *failure = ext_exception_take();
  if (call_profiler(thread, PyTrace_C_EXCEPTION, function) < 0)
    Py_DECREF(failure);
  else
    ext_exception_set(failure);
  return NULL;
}

static PyObject *callable_call(PyObject *object, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames) {
  PyThreadState *thread = PyThreadState_Get();
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (__builtin_expect(thread->cframe->use_tracing && is_profiled(thread), 0))
    return call_profiled(thread, object, args, nargs, kwnames);
  return call_callable(object, args, nargs, kwnames);
}
#endif

// ---- calls from C with named arguments
const px_op *ext_op_lookup(const char *name) {
  const px_op *op = px_op_find(name);
  if (!op) PyErr_Format(PyExc_NotImplementedError, "%s is not implemented", name);
  return op;
}

static int call_named(const px_op *op, px_call_mode mode, int count, const ext_named *named,
                      void **results) {
  px_value args[EXT_OP_PARAMS] = {{0}};
  for (int k = 0; k < count; k++) {
    int i = 0;
    while (i < op->param_count && strcmp(op->params[i].name, named[k].name)) i++;
    if (i < op->param_count)
      args[i] = named[k].value;
    else if (named[k].value.kind != PX_ARG_NONE)
      EXT_FAIL_INT(PyExc_NotImplementedError, "%s: unknown argument %s", op->name, named[k].name);
  }
  return ext_zero(will_wait(op, mode, args) ? call_long(op, mode, args, results)
                                            : call_op(op, mode, args, results));
}

PyObject *ext_op_named(const px_op *op, px_call_mode mode, int count, const ext_named *named) {
  void *results[4] = {NULL};
  const ext_signature s = {.op = op};
  if (!op || call_named(op, mode, count, named, results) < 0) return NULL;
  return wrap_results(&s, results);
}

px_tensor *ext_op_tensor(const px_op *op, px_call_mode mode, int count, const ext_named *named) {
  void *results[4] = {NULL};
  if (!op || call_named(op, mode, count, named, results) < 0) return NULL;
  return results[0];
}

// Fills in missing values from self; *same: nothing would change.
static int resolve_target(PyObject *self, px_device *device, px_dtype *dtype, bool *same) {
  const px_tensor *t = ext_tensor(self);
  px_device here = px_tensor_device(t);
  if (device->type < 0)
    *device = here;
  else
    EXT_TRY_INT(px_device_resolve(device, *device));
  if (*dtype == PX_DTYPE_NONE) *dtype = px_tensor_dtype(t);
  *same = px_device_equal(here, *device) && *dtype == px_tensor_dtype(t);
  return 0;
}

PyObject *ext_convert(PyObject *self, px_device device, px_dtype dtype, bool non_blocking,
                      bool copy) {
  bool same;
  if (resolve_target(self, &device, &dtype, &same) < 0) return NULL;
  if (same && !copy) return Py_NewRef(self);
  const px_op *op = EXT_OP("_to_copy");
  if (!op) return NULL;
  ext_named named[] = {{"self", PX_T(ext_tensor(self))},
                       {"dtype", PX_DT(dtype)},
                       {"device", PX_DV(device)},
                       {"non_blocking", PX_B(non_blocking)}};
  return ext_op_named(op, PX_CALL_NEW, EXT_LENGTH(named), named);
}

// ---- the callables as objects
static PyObject *callable_repr(PyObject *object) {
  ext_callable *self = (ext_callable *)object;
  if (self->method)
    return PyUnicode_FromFormat("<method '%U' of 'torch._C.TensorBase' objects>", self->name);
  return PyUnicode_FromFormat("<built-in method %U of type object>", self->name);
}
static PyObject *method_get(PyObject *self, PyObject *instance, PyObject *owner) {
  return !instance || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}
// Functions do not bind. inspect recognizes a routine by its __get__.
static PyObject *function_get(PyObject *self, PyObject *instance, PyObject *owner) {
  return Py_NewRef(self);
}
// Compared by identity: C functions compare by their C function, which all callables share.
static Py_hash_t callable_hash(PyObject *self) { return Py_HashPointer(self); }
static PyObject *callable_compare(PyObject *a, PyObject *b, int op) {
  if (op != Py_EQ && op != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((a == b) == (op == Py_EQ));
}
#define CALLABLE_TYPE(word, name, flags, get) \
  EXT_TYPE(word, name, "", ext_callable, EXT_VECTORCALL | (flags), NULL, \
           .tp_base = &PyCFunction_Type, .tp_call = PyVectorcall_Call, .tp_repr = callable_repr, \
           .tp_vectorcall_offset = offsetof(ext_callable, base.vectorcall), .tp_descr_get = get, \
           .tp_hash = callable_hash, .tp_richcompare = callable_compare)
CALLABLE_TYPE(op, "torch.op", EXT_FINAL, function_get);
CALLABLE_TYPE(op_method, "torch.method", EXT_METHOD_DESCRIPTOR, method_get);

#define NAME(self) Py_NewRef(((ext_callable *)(self))->name)
EXT_GET(op, __name__, "str", NAME(self), NULL);
EXT_GETTER(op, __module__, "str", NULL) {
  const ext_callable *callable = (ext_callable *)self;
  return callable->method ? PyUnicode_InternFromString("torch")
                          : Py_NewRef(callable->base.m_module);
}
EXT_GET(op, __doc__, "str", ext_op_doc((ext_callable *)self), NULL);
EXT_GET(op, __text_signature__, "str", ext_op_text_signature((ext_callable *)self), NULL);
EXT_GETTER(op, __qualname__, "str", NULL) {
  const ext_callable *callable = (ext_callable *)self;
  return PyUnicode_FromString(callable->def.ml_name + callable->prefix);
}
// Registered ops have exactly one overload.
EXT_GETTER(op, default, "Callable", NULL) {
  if (((ext_callable *)self)->signatures[0].op->flags & PX_OP_REGISTERED) return Py_NewRef(self);
  EXT_FAIL(PyExc_AttributeError, "'builtin_function_or_method' object has no attribute 'default'");
}
EXT_SAME_MEMBERS(op_method, op_attr, __name__, __module__, __qualname__, __doc__,
                 __text_signature__);

// ---- named tuples of several results
static PyObject *struct_repr(PyObject *self) {
  EXT_OWNED *text = PyUnicode_FromFormat("%s(\n", Py_TYPE(self)->tp_name);
  EXT_OWNED *names = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "__match_args__");
  Py_ssize_t count = PyTuple_GET_SIZE(self);
  for (Py_ssize_t i = 0; text && names && i < count; i++) {
    PyObject *next = PyUnicode_FromFormat("%U%U=%R%s", text, PyTuple_GET_ITEM(names, i),
                                          PyTuple_GET_ITEM(self, i), i + 1 < count ? ",\n" : ")");
    Py_SETREF(text, next);
  }
  return ext_moved(&text);
}

static PyTypeObject *make_result_type(const px_op *op, const char *name) {
  PyObject *known = PyDict_GetItemString(PyModule_GetDict(return_types), name);
  if (known) return (PyTypeObject *)Py_NewRef(known);
  PyStructSequence_Field fields[5] = {{NULL, NULL}};
  for (int i = 0; i < op->result_count; i++)
    fields[i] = (PyStructSequence_Field){op->result_names[i], "A result tensor."};
  char full[128];
  snprintf(full, sizeof full, "torch.return_types.%s", name);
  PyStructSequence_Desc desc = {full, "The results of an op, a named tuple.", fields,
                                op->result_count};
  PyTypeObject *type = PyStructSequence_NewType(&desc);
  if (!type) return NULL;
  type->tp_repr = type->tp_str = struct_repr;
  if (ext_add(return_types, name, Py_NewRef((PyObject *)type)) < 0) return NULL;
  return type;
}

// ---- construction
// Callers of a builtin function use its vectorcall.
static PyObject *call_unsupported(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyErr_BadInternalCall();
  return NULL;
}
static ext_callable *callable_of(char space, const char *name) {
  PyObject *dict = space_of(space), *known = PyDict_GetItemString(dict, name);
  if (known) return (ext_callable *)known;
  ext_callable *self = ext_new(space == 'm' ? &op_method_type : &op_type);
  if (!self) return NULL;
  self->name = PyUnicode_FromFormat("%s%s", space_at(space)->prefix, name);
  if (!self->name) return Py_DECREF(self), NULL;
  PyUnicode_InternInPlace(&self->name);
  self->prefix = (uint8_t)strlen(space_at(space)->prefix);
  self->method = space == 'm';
  self->def =
      (PyMethodDef){PyUnicode_AsUTF8(self->name), (PyCFunction)(void (*)(void))call_unsupported,
                    METH_VARARGS | METH_KEYWORDS, NULL};
  self->base.m_ml = &self->def;
  self->base.m_module = PyUnicode_InternFromString(space_at(space)->module);
  self->base.vectorcall = callable_call;
  int failed = PyDict_SetItemString(dict, name, (PyObject *)self);
  Py_DECREF(self);
  return failed ? NULL : self;
}

static int8_t varargs_of(const px_op *op, bool method) {
  int first = op->param_count && !strcmp(op->params->name, "self") ? 1 : 0, positional = 0;
  for (int i = first; i < op->param_count; i++) positional += !op->params[i].keyword_only;
  bool alone = positional == 1 && first < op->param_count && op->params[first].kind == PX_ARG_INTS;
  if (!alone || (first && !method)) return -1;
  return (int8_t)first;
}

// True if after position i `b` accepts a tensor where `a` accepts a number.
static bool is_crossed(const px_op *a, const px_op *b, int i) {
  for (i++; i < a->param_count && i < b->param_count; i++)
    if (b->params[i].kind == PX_ARG_TENSOR && a->params[i].kind == PX_ARG_SCALAR) return true;
  return false;
}
// True if `a` accepts a tensor at the first difference, where `b` accepts a number: `a` is then
// tried first, and only arguments it rejects are read as numbers. Of two signatures that differ in
// both directions, the one starting with the number comes first.
static bool precedes(const px_op *a, const px_op *b) {
  if ((a->flags | b->flags) & PX_OP_OF_COMPLEX) return !(a->flags & PX_OP_OF_COMPLEX);
  for (int i = 0; i < a->param_count && i < b->param_count; i++) {
    if (a->params[i].kind == b->params[i].kind) continue;
    bool number = b->params[i].kind == PX_ARG_SCALAR || b->params[i].kind == PX_ARG_FLOAT ||
                  (b->params[i].kind == PX_ARG_INT && !ext_accepts_number(a, i));
    if (a->params[i].kind == PX_ARG_SCALAR) return is_crossed(b, a, i);
    return a->params[i].kind == PX_ARG_TENSOR && number && !is_crossed(a, b, i);
  }
  return false;
}

// Inserts a signature in order.
static ext_signature *insert_signature(ext_callable *self, const px_op *op) {
  int at = 0;
  while (at < self->count && !precedes(op, self->signatures[at].op)) at++;
  memmove(&self->signatures[at + 1], &self->signatures[at],
          (size_t)(self->count - at) * sizeof *self->signatures);
  self->count++;
  return &self->signatures[at];
}

// The op returning indices in addition to an op's results: named OP_with_indices, with the same
// parameters.
static const px_op *indexed_op(const px_op *op) {
  char name[96];
  snprintf(name, sizeof name, "%s_with_indices", op->name);
  const px_op *found = px_op_find(name);
  return found && found->param_count == op->param_count ? found : NULL;
}

static int add_signature(char space, const char *name, const px_op *op, px_call_mode mode) {
  ext_callable *self = callable_of(space, name);
  if (!self) return -1;
  if (self->count == EXT_OP_OVERLOADS || op->param_count > EXT_OP_PARAMS)
    EXT_FAIL_INT(PyExc_SystemError, "%s: too many overloads or parameters", name);
  PyObject **names = PyMem_Calloc((size_t)op->param_count, sizeof *names);
  if (!names) return PyErr_NoMemory(), -1;
  ext_signature *s = insert_signature(self, op);
  *s = (ext_signature){
      .op = op, .mode = mode, .method = space == 'm', .functional = space == 'n', .names = names};
  s->varargs = varargs_of(op, s->method);
  s->indexed = space == 'n' ? indexed_op(op) : NULL;
  for (int i = 0; i < op->param_count; i++) {
    s->positional = (uint8_t)(s->positional + !op->params[i].keyword_only);
    s->needed = (uint8_t)(s->needed + !op->params[i].has_default);
    names[i] = PyUnicode_InternFromString(op->params[i].name);
    if (!names[i]) return -1;
  }
  // Registered ops return plain tuples.
  bool named = op->result_count > 1 && op->result_names && !(op->flags & PX_OP_REGISTERED);
  if (named && !(op->flags & PX_OP_RETURNS_LIST)) {
    char full[96];
    snprintf(full, sizeof full, "%s%s", space_at(space)->prefix, name);
    s->result = make_result_type(op, full);
    if (!s->result) return -1;
  }
  return 0;
}

static int add_modes(char space, const px_op *op, const char *name) {
  bool only = op->flags & PX_OP_ONLY_INPLACE;
  if (!only && add_signature(space, name, op, PX_CALL_NEW) < 0) return -1;
  if (!only && !(op->flags & PX_OP_HAS_INPLACE)) return 0;
  size_t length = strlen(name);
  bool marked = length && name[length - 1] == '_';
  EXT_OWNED *inplace = PyUnicode_FromFormat("%s%s", name, marked ? "" : "_");
  return inplace ? add_signature(space, PyUnicode_AsUTF8(inplace), op, PX_CALL_INPLACE) : -1;
}

static int add_op(const px_op *op, const char *name) {
  if (op->flags & PX_OP_HIDDEN) return 0;
  if (op->flags & PX_OP_IS_METHOD && add_modes('m', op, name) < 0) return -1;
  if (op->flags & PX_OP_IS_FUNCTION && add_modes('f', op, name) < 0) return -1;
  if (op->flags & PX_OP_IS_NN && add_modes('n', op, name) < 0) return -1;
  return 0;
}

// Copies a function to another namespace: torch.relu as nn.functional.relu, which accepts inplace.
static int copy_callable(char space, const char *name, const ext_callable *known) {
  ext_callable *self = callable_of(space, name);
  if (!self) return -1;
  self->count = known->count;
  memcpy(self->signatures, known->signatures, sizeof self->signatures);
  for (int i = 0; i < self->count; i++) {
    ext_signature *s = &self->signatures[i];
    s->functional = space == 'n';
    s->indexed = s->functional ? indexed_op(s->op) : NULL;
  }
  return 0;
}

// Adds an alias of a callable to a namespace: the callable itself within its namespace, otherwise a
// copy. An op without a namespace is added as an overload of the alias.
static int bind_alias(char space, const char *alias, const char *name, const px_op *op) {
  const char from[] = {space, 'f', 'n', 'm'};
  if (op && !(op->flags & (PX_OP_IS_METHOD | PX_OP_IS_FUNCTION | PX_OP_IS_NN)))
    return add_signature(space, alias, op, PX_CALL_NEW);
  if (PyDict_GetItemString(space_of(space), alias)) return 0;
  for (int i = 0; i < 4; i++) {
    PyObject *known = PyDict_GetItemString(space_of(from[i]), name);
    if (known && from[i] == space) return PyDict_SetItemString(space_of(space), alias, known);
    if (known) return copy_callable(space, alias, (ext_callable *)known);
  }
  return 0;
}

// An alias without a namespace applies to function and method, and to the in-place form if
// any.
static int add_alias(const px_op *op, const char *alias) {
  static const char endings[][2] = {"", "_"};
  char known[64], name[64];
  for (int i = 0; !strchr(alias, '.') && i < 2; i++) {
    snprintf(known, sizeof known, "%s%s", op->python_name, endings[i]);
    snprintf(name, sizeof name, "%s%s", alias, endings[i]);
    for (const char *space = "fm"; *space; space++)
      if (PyDict_GetItemString(space_of(*space), known) &&
          bind_alias(*space, name, known, NULL) < 0)
        return -1;
  }
  size_t length = strcspn(alias, ".");
  if (!alias[length]) return 0;
  bool inplace = alias[strlen(alias) - 1] == '_';
  snprintf(known, sizeof known, "%s%s", op->python_name, endings[inplace]);
  for (int i = 0; i < EXT_LENGTH(spaces); i++)
    if (spaces[i].alias_prefix && strlen(spaces[i].alias_prefix) == length &&
        !strncmp(spaces[i].alias_prefix, alias, length))
      return bind_alias(spaces[i].letter, alias + length + 1, known, inplace ? NULL : op);
  EXT_FAIL_INT(PyExc_SystemError, "%s: unknown namespace of alias %s", op->name, alias);
}

static int add_aliases(const px_op *op) {
  char alias[64];
  for (const char *at = op->aliases; at && *at; at += strspn(at, " ")) {
    size_t length = strcspn(at, " ");
    snprintf(alias, sizeof alias, "%.*s", (int)length, at);
    if (add_alias(op, alias) < 0) return -1;
    at += length;
  }
  return 0;
}

static int fill(PyObject *target_dict, PyObject *space) {
  return PyDict_Merge(target_dict, space, 0);
}

// ---- registered ops

static PyObject *root;  // phlox._C, borrowed
static int ops_seen;    // ops with lower ids have been added

// Also sets the name in the package, which copied the names of phlox._C unless it is still being
// imported.
static int publish_name(char space, const char *name) {
  PyObject *made = PyDict_GetItemString(space_of(space), name);
  PyObject *package = PyDict_GetItemString(PyImport_GetModuleDict(), "phlox");
  if (!made) return 0;
  if (space == 'm') return PyDict_SetItemString(ext_TensorType->tp_dict, name, made);
  if (package && PyObject_SetAttrString(package, name, made) < 0) return -1;
  return PyDict_SetItemString(PyModule_GetDict(root), name, made);
}

// Adds a method or function named like the op without its namespace, if requested. Existing ops are
// never overloaded.
static int add_registered(const px_op *op) {
  const char *colon = strrchr(op->name, ':'), *bare = colon ? colon + 1 : op->name;
  EXT_OWNED *inplace = PyUnicode_FromFormat("%s_", bare);
  if (!inplace) return -1;
  for (const char *space = "mf"; *space; space++) {
    bool asked = op->flags & (*space == 'm' ? PX_OP_IS_METHOD : PX_OP_IS_FUNCTION);
    if (!asked) continue;
    if (PyDict_GetItemString(space_of(*space), bare))
      EXT_FAIL_INT(PyExc_RuntimeError, "%s cannot be torch.%s%s: there is one", op->name,
                   *space == 'm' ? "Tensor." : "", bare);
    if (add_modes(*space, op, bare) < 0 || publish_name(*space, bare) < 0 ||
        publish_name(*space, PyUnicode_AsUTF8(inplace)) < 0)
      return -1;
  }
  PyType_Modified(ext_TensorType);
  return 0;
}

int ext_ops_update(void) {
  while (ops_seen < px_op_count()) {
    const px_op *op = px_op_at(ops_seen++);
    if (op->flags & PX_OP_REGISTERED && add_registered(op) < 0) return -1;
  }
  return 0;
}

// "phlox::add" is the library's op "add".
static const px_op *find_registered(const char *name) {
  if (!strncmp(name, "phlox::", 7)) name += 7;
  const px_op *op = px_op_find(name);
  size_t length = strlen(name);
  if (op || !length || name[length - 1] != '_') return op;
  EXT_OWNED *stem = PyUnicode_FromStringAndSize(name, (Py_ssize_t)length - 1);
  return stem ? px_op_find(PyUnicode_AsUTF8(stem)) : NULL;
}

PyObject *ext_op_registered(const char *name) {
  PyObject *known = PyDict_GetItemString(space_of('o'), name);
  const px_op *op = known ? NULL : find_registered(name);
  if (!op || op->flags & PX_OP_HIDDEN) return known;
  bool bare = !strchr(op->name, ':');
  EXT_OWNED *full = PyUnicode_FromFormat("%s%s", bare ? "phlox::" : "", op->name);
  if (!full) return NULL;
  if (!PyDict_GetItem(space_of('o'), full) && add_modes('o', op, PyUnicode_AsUTF8(full)) < 0)
    return NULL;
  return PyDict_GetItemString(space_of('o'), name);
}

static int ext_init_ops(PyObject *m) {
  for (int i = 0; i < EXT_LENGTH(spaces); i++) {
    spaces[i].dict = PyDict_New();
    if (!spaces[i].dict) return -1;
  }
  return_types = ext_submodule(m, "return_types");
  if (!return_types) return -1;
  for (int i = 0; i < px_op_count(); i++)
    if (!(px_op_at(i)->flags & PX_OP_REGISTERED) &&
        add_op(px_op_at(i), px_op_at(i)->python_name) < 0)
      return -1;
  for (int i = 0; i < px_op_count(); i++)
    if (add_aliases(px_op_at(i)) < 0) return -1;
  PyObject *nn = ext_submodule(m, "nn");
  PyObject *functional = nn ? ext_submodule(nn, "functional") : NULL;
  PyObject *parameter = nn ? ext_submodule(nn, "parameter") : NULL;
  if (!functional || fill(PyModule_GetDict(functional), space_of('n')) < 0) return -1;
  for (const char *letter = "lstk"; *letter; letter++) {
    PyObject *module = ext_submodule(m, space_at(*letter)->alias_prefix);
    if (!module || fill(PyModule_GetDict(module), space_of(*letter)) < 0) return -1;
  }
  PyObject *linalg = ext_submodule(m, "linalg");
  if (!linalg || ext_add(linalg, "LinAlgError", Py_NewRef(ext_LinAlgError)) < 0) return -1;
  if (!parameter || ext_add_type(nn, "Parameter", ext_ParameterType) < 0 ||
      ext_add_type(parameter, "Parameter", ext_ParameterType) < 0)
    return -1;
  if (fill(PyModule_GetDict(m), space_of('f')) < 0) return -1;
  if (fill(ext_TensorType->tp_dict, space_of('m')) < 0) return -1;
  PyType_Modified(ext_TensorType);
  root = m;
  return ext_ops_update();
}
EXT_START(EXT_OPS, ext_init_ops);
EXT_MODULE(nn, "nn", "Layers, losses and containers.");
EXT_MODULE(return_types, "return_types", "Named tuples of ops with several results.");
EXT_MODULE(nn_parameter, "nn.parameter", "Parameters of modules.");
EXT_MODULE(nn_functional, "nn.functional", "Functional forms of layers and losses.");
EXT_MODULE(fft, "fft", "Discrete Fourier transforms.");
EXT_MODULE(linalg, "linalg", "Linear algebra.");
EXT_MODULE(masked, "masked", "Operations on masked tensors.");
EXT_MODULE(signal, "signal", "Signal processing.");
EXT_MODULE(signal_windows, "signal.windows", "Window functions.");
EXT_MODULE(special, "special", "Special functions.");

// ---- for tools
static int list_space(PyObject *list, const op_space *space) {
  PyObject *name, *object;
  for (Py_ssize_t at = 0; PyDict_Next(space->dict, &at, &name, &object);) {
    const ext_callable *self = (ext_callable *)object;
    for (int i = 0; i < self->count; i++)
      for (int rest = self->signatures[i].varargs >= 0; rest >= 0; rest--) {
        EXT_OWNED *signature = ext_op_signature(&self->signatures[i], rest);
        EXT_OWNED *row = signature ? Py_BuildValue("(ssOOs)", "op", space->owner, name, signature,
                                                   self->signatures[i].op->doc)
                                   : NULL;
        if (!row || PyList_Append(list, row) < 0) return -1;
      }
  }
  return 0;
}
EXT_FUNCTION0(torch, _op_signatures, "list[tuple]",
              "Returns the signatures of all ops as rows of _declared(), for tools.") {
  PyObject *list = PyList_New(0);
  for (int i = 0; list && i < EXT_LENGTH(spaces); i++)
    if (spaces[i].owner && list_space(list, &spaces[i]) < 0) Py_CLEAR(list);
  return list;
}
