// SPDX-License-Identifier: Apache-2.0
// torch.compile and torch.compiler. A compiled call runs the program as it is, with fusion on
// (phlox/fuse.h). Nothing is traced, so there is nothing to guard or to compile again.
#include "bind/compiled.h"
#include "nn/nn.h"

#include <string.h>

EXT_MODULE(compiler, "compiler", "Compiled functions: calls with fusion on.");

// ---- compiled functions

// A function whose calls are compiled; or, within compiled calls, run with fusion off (`off`).
typedef struct compiled_object {
  PyObject_HEAD PyObject *function, *dict;
  bool fuses, whole, off;
  vectorcallfunc call;
} compiled_object;

static PyObject *call_function(PyObject *object, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames) {
  const compiled_object *self = (compiled_object *)object;
  ext_compiled_call call;
  if (self->off) return ext_call_uncompiled(self->function, args, nargsf, kwnames);
  if (!ext_compiled_begin(&call, self->fuses, self->whole)) return NULL;
  return ext_compiled_end(&call, PyObject_Vectorcall(self->function, args, nargsf, kwnames));
}

// A function of a class is a method.
static PyObject *bind_method(PyObject *self, PyObject *instance, PyObject *type) {
  return instance ? PyMethod_New(self, instance) : Py_NewRef(self);
}

EXT_OWNS(compiled, EXT_OBJECT(compiled_object, function), EXT_OBJECT(compiled_object, dict));
static PyGetSetDef compiled_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL}};
EXT_TYPE(compiled, "torch.compiler.CompiledFunction", "", compiled_object, EXT_GC | EXT_VECTORCALL,
         "A function whose calls are compiled.", EXT_LIFETIME_SLOTS(compiled),
         .tp_call = PyVectorcall_Call, .tp_descr_get = bind_method,
         .tp_vectorcall_offset = offsetof(compiled_object, call),
         .tp_dictoffset = offsetof(compiled_object, dict), .tp_getset = compiled_attributes);

EXT_FUNCTION(torch, _compiled_call,
             "(function: Callable[..., Any], fuses: bool, whole: bool, args: tuple[Any, ...], "
             "kwargs: dict[str, Any]) -> Any",
             "Makes a compiled call.") {
  PyObject *function, *args, *kwargs;
  bool fuses, whole;
  ext_compiled_call compiled;
  EXT_BIND(function, fuses, whole, args, kwargs);
  if (!ext_compiled_begin(&compiled, fuses, whole)) return NULL;
  return ext_compiled_end(&compiled, ext_apply(function, args, kwargs));
}

static PyObject *compiled_of(PyObject *function, bool fuses, bool whole, bool off) {
  compiled_object *self = ext_new(&compiled_type);
  if (!self) return NULL;
  self->function = Py_NewRef(function), self->call = call_function;
  self->fuses = fuses, self->whole = whole, self->off = off;
  EXT_OWNED *object = (PyObject *)self;
  EXT_OWNED *named = ext_call_from("functools", "update_wrapper", "(OO)", object, function);
  if (!named || PyObject_SetAttrString(object, "_torchdynamo_orig_callable", function) < 0)
    return NULL;
  return ext_moved(&object);
}

// ---- arguments of torch.compile

static bool is_one_of(const char *const *names, const char *name) {
  for (; *names; names++)
    if (!strcmp(*names, name)) return true;
  return false;
}
static const char *const modes[] = {"default", "reduce-overhead", "max-autotune",
                                    "max-autotune-no-cudagraphs", NULL};
static const char *const fusing[] = {"cudagraphs", "inductor", NULL};
static const char *const plain[] = {"aot_eager", "eager", NULL};  // for debugging: do not fuse
static const char *const options_known[] = {
    "epilogue_fusion",     "fallback_random",   "guard_filter_fn",
    "max_autotune",        "shape_padding",     "trace.enabled",
    "trace.graph_diagram", "triton.cudagraphs", NULL};

static int check_options(PyObject *options) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  if (!ext_is_none(options) && !PyDict_Check(options))
    EXT_FAIL_INT(PyExc_TypeError, "torch.compile: options must be dict, not %s",
                 ext_type_name(options));
  while (!ext_is_none(options) && PyDict_Next(options, &at, &key, &value)) {
    const char *name = ext_text(key);
    if (!name) return -1;
    if (!is_one_of(options_known, name))
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "Unexpected optimization option %s, known options are epilogue_fusion, "
                   "fallback_random, guard_filter_fn, max_autotune, shape_padding, trace.enabled, "
                   "trace.graph_diagram, triton.cudagraphs",
                   name);
  }
  return 0;
}

// Returns whether the backend fuses; -1 for a bad argument.
static int check_arguments(const char *mode, PyObject *options, PyObject *backend) {
  if (mode && !ext_is_none(options))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Either mode or options can be specified, but both can't be specified at the "
                 "same time.");
  if (mode && !is_one_of(modes, mode))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "Unrecognized mode=%s, should be one of: default, reduce-overhead, "
                 "max-autotune, max-autotune-no-cudagraphs",
                 mode);
  if (check_options(options) < 0) return -1;
  if (!backend) return 1;
  if (PyCallable_Check(backend))
    EXT_FAIL_INT(PyExc_NotImplementedError,
                 "torch.compile: backend must be a name. A backend function takes a torch.fx "
                 "graph, and Phlox records none");
  const char *name = ext_text(backend);
  if (!name) return -1;
  if (is_one_of(fusing, name)) return 1;
  if (is_one_of(plain, name)) return 0;
  EXT_FAIL_INT(ext_InvalidBackend,
               "Invalid backend: '%s', see `torch._dynamo.list_backends()` for available backends.",
               name);
}

#define OPTIONS \
  "fullgraph: bool = False, dynamic: bool | None = None, backend: Any = 'inductor', mode: str | " \
  "None = None, options: dict[str, Any] | None = None, disable: bool = False"
#define OPTION_TEXTS \
  "    fullgraph (bool): reads of values by the program raise torch._dynamo.exc.Unsupported\n" \
  "    dynamic (bool): without effect: kernels serve any shape\n" \
  "    backend (str): \"inductor\" or \"cudagraphs\"; \"eager\" and \"aot_eager\" do not fuse\n" \
  "    mode (str): \"default\", \"reduce-overhead\", \"max-autotune\" or\n" \
  "        \"max-autotune-no-cudagraphs\". They do the same\n" \
  "    options (dict): options of PyTorch's inductor. All are hints without effect on results\n"

// With options alone: the decorator.
static PyObject *decorator_of(PyObject *function, const ext_call *call) {
  EXT_OWNED *kwargs = ext_kwargs_of(call->args, call->nargs, call->kwnames);
  EXT_OWNED *args = PyTuple_Pack(1, function);
  EXT_OWNED *partial = ext_import("functools", "partial");
  return args && kwargs && partial ? PyObject_Call(partial, args, kwargs) : NULL;
}

EXT_FUNCTION(torch, compile, "(model: Callable[..., Any] | None = None, *, " OPTIONS ") -> Any",
             "Returns a function or module whose calls are fused: chains of pointwise ops run as "
             "one kernel, and their\nintermediate results get no memory. Results, gradients and "
             "errors are those of the calls one by one.\nWithout `model`, returns a decorator.\n\n"
             "Args:\n"
             "    model (Callable): the function or module to compile\n" OPTION_TEXTS
             "    disable (bool): returns `model` unchanged\n\n"
             ">>> double = torch.compile(lambda x: (x * 2).relu())\n"
             ">>> double(torch.tensor([-1.0, 1.5]))\n"
             "tensor([0., 3.])\n") {
  PyObject *model, *dynamic, *backend, *options;
  const char *mode;
  bool fullgraph, disable;
  EXT_BIND(model, fullgraph, dynamic, backend, mode, options, disable);
  int fuses = check_arguments(mode, options, backend);
  if (fuses < 0) return NULL;
  if (ext_is_none(model)) {
    EXT_OWNED *own = ext_extension_attr("compile");
    return own ? decorator_of(own, call) : NULL;
  }
  if (!PyCallable_Check(model))
    EXT_FAIL(PyExc_RuntimeError, "torch.compile: expected a function or a module, but got %s",
             ext_type_name(model));
  if (disable) return Py_NewRef(model);
  if (ext_is_module(model))
    return ext_call_from("phlox._optimized", "OptimizedModule", "(OOO)", model,
                         fuses ? Py_True : Py_False, fullgraph ? Py_True : Py_False);
  return compiled_of(model, fuses, fullgraph, false);
}

EXT_METHOD(module, compile, "(*, " OPTIONS ") -> None",
           "Compiles the module's own calls, as torch.compile does.\n\n"
           "Args:\n" OPTION_TEXTS
           "    disable (bool): does nothing\n\n"
           ">>> layer = torch.nn.Linear(2, 3)\n"
           ">>> layer.compile()\n"
           ">>> layer(torch.ones(4, 2)).shape\n"
           "torch.Size([4, 3])\n") {
  PyObject *dynamic, *backend, *options;
  const char *mode;
  bool fullgraph, disable;
  EXT_BIND(fullgraph, dynamic, backend, mode, options, disable);
  int fuses = check_arguments(mode, options, backend);
  if (fuses < 0) return NULL;
  ext_module_object *object = (ext_module_object *)self;
  if (!disable) object->compiled = true, object->fuses = fuses, object->whole = fullgraph;
  Py_RETURN_NONE;
}

// ---- torch.compiler

EXT_FUNCTION(compiler, disable,
             "(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | "
             "None = None) -> Any",
             "Returns a function that runs with fusion off, also when a compiled function calls "
             "it.\n\n"
             "Args:\n"
             "    recursive (bool): if False, `fn` is returned: functions that it calls may fuse\n"
             "    reason (str): a note for the reader\n") {
  PyObject *fn;
  const char *reason;
  bool recursive;
  EXT_BIND(fn, recursive, reason);
  if (ext_is_none(fn)) {
    EXT_OWNED *compiler = ext_extension_attr("compiler");
    EXT_OWNED *own = compiler ? PyObject_GetAttrString(compiler, "disable") : NULL;
    return own ? decorator_of(own, call) : NULL;
  }
  return recursive ? compiled_of(fn, false, false, true) : Py_NewRef(fn);
}

EXT_FUNCTION0(compiler, is_compiling, "bool", "Returns whether the code runs in a compiled call.") {
  return PyBool_FromLong(ext_is_compiling());
}

EXT_FUNCTION0(compiler, is_dynamo_compiling, "bool",
              "Returns whether the code runs in a compiled call.") {
  return PyBool_FromLong(ext_is_compiling());
}

EXT_FUNCTION(compiler, list_backends,
             "(exclude_tags: tuple[str, ...] = ('debug', 'experimental')) -> list[str]",
             "Returns the names of the backends of torch.compile. Those that do not fuse have the "
             "tag \"debug\".") {
  PyObject *exclude_tags;
  EXT_BIND(exclude_tags);
  EXT_OWNED *tag = ext_str("debug");
  int hides = !tag ? -1 : exclude_tags ? PySequence_Contains(exclude_tags, tag) : 1;
  if (hides < 0) return NULL;
  return hides ? Py_BuildValue("[ss]", fusing[0], fusing[1])
               : Py_BuildValue("[ssss]", plain[0], fusing[0], plain[1], fusing[1]);
}

// ---- stances

// By number.
static const char *const stances[] = {"default",
                                      "force_eager",
                                      "fail_on_recompile",
                                      "eager_on_recompile",
                                      "eager_then_compile",
                                      "aot_eager_then_compile",
                                      NULL};

typedef struct stance_object {
  PyObject_HEAD int stance, before;
} stance_object;

EXT_NEW(stance,
        "(stance: str = 'default', *, skip_guard_eval_unsafe: bool = False, "
        "force_backend: str | None = None)") {
  const char *stance, *force_backend;
  bool skip_guard_eval_unsafe;
  int at = 0;
  EXT_BIND(stance, skip_guard_eval_unsafe, force_backend);
  while (stances[at] && strcmp(stances[at], stance)) at++;
  if (!stances[at]) EXT_FAIL(PyExc_RuntimeError, "invalid torch.compile stance '%s'", stance);
  if (force_backend)
    EXT_FAIL(PyExc_NotImplementedError,
             "torch.compiler.set_stance: force_backend is not "
             "supported");
  stance_object *self = ext_new(type);
  if (!self) return NULL;
  self->stance = at, self->before = ext_stance;
  ext_stance = at;
  return (PyObject *)self;
}

static PyObject *stance_enter(PyObject *self, PyObject *unused) {
  ext_stance = ((stance_object *)self)->stance;
  return Py_NewRef(self);
}
static PyObject *stance_exit(PyObject *self, PyObject *unused) {
  ext_stance = ((stance_object *)self)->before;
  Py_RETURN_NONE;
}
static PyObject *stance_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  PyObject *function, *given, *kwargs;
  if (!EXT_UNPACK_ARGS(args, nargs, &function, &given, &kwargs))
    EXT_FAIL(PyExc_TypeError, "_run() expects a function, a tuple and a dict");
  int before = ext_stance;
  ext_stance = ((stance_object *)self)->stance;
  PyObject *result = ext_apply(function, given, kwargs);
  ext_stance = before;
  return result;
}
static PyObject *stance_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *function;
  if (!PyArg_ParseTuple(args, "O", &function)) return NULL;
  ext_stance = ((stance_object *)self)->before;
  return ext_call_from("phlox._modes", "under", "(OO)", self, function);
}
static PyMethodDef stance_methods[] = {
    {"__enter__", stance_enter, METH_NOARGS, NULL},
    {"__exit__", stance_exit, METH_VARARGS, NULL},
    {"_run", (PyCFunction)(void (*)(void))stance_run, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
EXT_TYPE(stance, "torch.compiler.set_stance", "compiler.set_stance", stance_object, 0,
         "Sets how compiled functions run: from the call on, as a context manager, or as a "
         "decorator. \"force_eager\"\nruns them uncompiled. With all other stances they run "
         "compiled, since nothing is ever compiled again.",
         .tp_new = stance_new, .tp_call = stance_call, .tp_methods = stance_methods);
