// SPDX-License-Identifier: Apache-2.0
// The Tensor type: one Python object per px_tensor. The object owns a reference to the tensor. The
// tensor has a borrowed pointer to its object (px_tensor_user): a tensor returned by the core maps
// to the same Python object while that lives. If an object with attributes or a user-defined class
// ends before its tensor, they are stored with the tensor (px_tensor_set_kept) for the next object.
// Modules keep the objects of their tensors alive. Plain objects are recycled through a free list.
#include "bind/ext.h"

enum { FREE_MAX = 128 };
static ext_tensor_object *free_list[FREE_MAX];
static int free_count;

// ---- attributes and class of a destroyed object, stored with its tensor
typedef struct stored_object {
  struct stored_object *next;  // in `dropped`
  PyObject *type, *dict;
} stored_object;

// Stored objects of destroyed tensors. Tensors may be destroyed without the GIL or under a core
// lock, so these are released when the next tensor object is created or destroyed.
static stored_object *dropped;  // atomic

static void stored_free(stored_object *kept) {
  Py_XDECREF(kept->dict);
  Py_XDECREF(kept->type);
  PyMem_RawFree(kept);
}

static void stored_release(void *object) {
  stored_object *kept = object;
  kept->next = __atomic_load_n(&dropped, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&dropped, &kept->next, kept, true, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED))
    ;
}

static void drain_dropped(void) {
  if (__builtin_expect(!__atomic_load_n(&dropped, __ATOMIC_RELAXED), 1)) return;
  stored_object *kept = __atomic_exchange_n(&dropped, NULL, __ATOMIC_ACQUIRE);
  for (stored_object *next; kept; kept = next) {
    next = kept->next;
    stored_free(kept);
  }
}

// Stores attributes and class with the tensor. They are lost if memory runs out.
static void store_attributes(ext_tensor_object *self) {
  PyTypeObject *type = Py_TYPE(self);
  bool plain = type == ext_TensorType || type == ext_ParameterType;
  bool empty = !self->dict || !PyDict_GET_SIZE(self->dict);
  if ((plain && empty) || px_refs(self->tensor) < 2) return;
  stored_object *kept = PyMem_RawMalloc(sizeof *kept);
  if (!kept) return;
  *kept = (stored_object){NULL, Py_NewRef(type), self->dict};
  self->dict = NULL;
  px_tensor_set_kept(self->tensor, kept);
}

bool ext_has_subclasses;
static ext_tensor_object *tensor_alloc(PyTypeObject *type) {
  if (type != ext_TensorType || !free_count) {
    ext_has_subclasses |= type != ext_TensorType && type != ext_ParameterType;
    return (ext_tensor_object *)type->tp_alloc(type, 0);
  }
  ext_tensor_object *self = free_list[--free_count];
  _Py_NewReference((PyObject *)self);  // type and type reference are still set
  PyObject_GC_Track(self);
  return self;
}

PyObject *ext_wrap_as(PyTypeObject *type, px_tensor *tensor) {
  if (!tensor) Py_RETURN_NONE;
  ext_tensor_object *self = tensor_alloc(type);
  if (!self) {
    px_release(tensor);
    return NULL;
  }
  self->tensor = tensor;
  px_tensor_set_user(tensor, self);
  return (PyObject *)self;
}

// New object of a tensor with stored attributes and class.
static PyObject *wrap_stored(stored_object *kept, px_tensor *tensor) {
  ext_tensor_object *self = (ext_tensor_object *)ext_wrap_as((PyTypeObject *)kept->type, tensor);
  if (!self) return NULL;
  self->dict = kept->dict;
  kept->dict = NULL;
  stored_free(kept);
  return (PyObject *)self;
}

PyObject *ext_wrap(px_tensor *tensor) {
  if (!tensor) Py_RETURN_NONE;
  PyObject *known = px_tensor_user(tensor);
  if (known) {
    Py_INCREF(known);
    px_release(tensor);
    return known;
  }
  stored_object *kept = px_tensor_kept(tensor);
  if (__builtin_expect(kept != NULL, 0)) return wrap_stored(kept, tensor);
  return ext_wrap_as(px_tensor_is_parameter(tensor) ? ext_ParameterType : ext_TensorType, tensor);
}

PyObject *ext_complex(PyObject *number) {
  px_tensor *made = NULL;
  Py_complex value = PyComplex_AsCComplex(number);
  return ext_result(px_tensor_from_complex(&made, (px_complex){value.real, value.imag}), &made);
}

PyObject *ext_wrap_borrowed(const px_tensor *tensor) {
  return ext_wrap((px_tensor *)px_retain(tensor));
}

PyObject *ext_wrap_list(px_list *list) {
  int64_t count = px_list_size(list);
  PyObject *tuple = PyTuple_New((Py_ssize_t)count);
  for (int64_t i = 0; tuple && i < count; i++) {
    PyObject *item = ext_wrap_borrowed(px_list_get(list, i));
    if (!item) Py_CLEAR(tuple);
    if (tuple) PyTuple_SET_ITEM(tuple, i, item);
  }
  px_release(list);
  return tuple;
}

// True if the object owns the Python references in the tensor (hooks, the ctx of a Function) and
// its attributes: only the object and modules keeping it refer to the tensor. Otherwise they may
// outlive the object, and the collector must assume external references. A collection traverses
// several times and needs the same answer each time, although a thread without the GIL may be using
// the tensor of a live object. The first traversal of a collection (subtract_refs) passes the
// object itself as `arg`: the answer is computed then and cached in `sole`.
static bool is_sole(ext_tensor_object *self, const void *arg) {
  if (arg == self || !self->sole)
    self->sole = self->tensor && px_tensor_is_sole(self->tensor, 1 + self->kept) ? 1 : -1;
  return self->sole > 0;
}

static int tensor_traverse(PyObject *object, visitproc visit, void *arg) {
  ext_tensor_object *self = (ext_tensor_object *)object;
  if (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) Py_VISIT(Py_TYPE(object));
  if (!is_sole(self, arg)) return 0;
  Py_VISIT(self->dict);
  px_context context;
  for (int i = 0; self->tensor && px_tensor_context_next(self->tensor, &i, &context);)
    if (context.release == ext_release) Py_VISIT((PyObject *)context.context);
  return 0;
}
static int tensor_clear(PyObject *object) {
  ext_tensor_object *self = (ext_tensor_object *)object;
  if (self->sole <= 0) return 0;
  Py_CLEAR(self->dict);
  px_context context;
  for (bool removed = self->tensor; removed;) {  // a removal may move later hooks forward
    removed = false;
    for (int i = 0; px_tensor_context_next(self->tensor, &i, &context);) {
      if (context.release != ext_release || !context.hook) continue;
      px_tensor_remove_hook(self->tensor, context.hook);
      removed = true;
    }
  }
  return 0;
}

// Hand-written: it runs for every temporary. The object leaves the collector's list before other
// code runs, and the tensor drops its pointer before anyone can look it up.
static void tensor_dealloc(PyObject *object) {
  ext_tensor_object *self = (ext_tensor_object *)object;
  PyObject_GC_UnTrack(self);
  if (self->weak) PyObject_ClearWeakRefs(object);
  px_tensor *tensor = self->tensor;
  if (tensor) px_tensor_set_user(tensor, NULL);
  bool plain = Py_IS_TYPE(object, ext_TensorType) && !self->dict;
  if (!plain && tensor) store_attributes(self);
  Py_CLEAR(self->dict);
  self->tensor = NULL;
  self->sole = 0;
  if (tensor) px_release(tensor);
  drain_dropped();
  PyTypeObject *type = Py_TYPE(object);
  if (type == ext_TensorType && free_count < FREE_MAX) {
    free_list[free_count++] = self;
    return;
  }
  type->tp_free(object);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) Py_DECREF(type);
}

PyObject *ext_tensor_text(PyObject *self, const char *prefix) {
  char *text = NULL;
  EXT_WAIT(px_tensor_text(&text, ext_tensor(self), prefix));
  PyObject *result = ext_str(text);
  px_free(text);
  return result;
}

static PyObject *parameter_repr(PyObject *self) {
  EXT_OWNED *text = ext_tensor_text(self, "tensor(");
  return text ? PyUnicode_FromFormat("Parameter containing:\n%U", text) : NULL;
}

// Hash of id(self): a positive int below the hash modulus hashes to itself.
static Py_hash_t tensor_hash(PyObject *self) { return (Py_hash_t)(uintptr_t)self; }

#define TENSOR_DOC \
  "Tensor(*data, device=None)\n--\n\n" \
  "A multi-dimensional array with elements of a single dtype, on one device."
EXT_SHARED_TYPE(tensor_base, ext_TensorBaseType, "torch._C.TensorBase", "_TensorBase",
                ext_tensor_object, EXT_BASETYPE | EXT_GC, TENSOR_DOC, .tp_dealloc = tensor_dealloc,
                .tp_traverse = tensor_traverse, .tp_clear = tensor_clear, .tp_hash = tensor_hash,
                .tp_dictoffset = offsetof(ext_tensor_object, dict),
                .tp_weaklistoffset = offsetof(ext_tensor_object, weak));

// ---- Parameter: a leaf tensor registered by modules
PyObject *(*ext_parameter_like)(PyObject *data, px_tensor *leaf);

// A parameter of a user-defined subclass keeps its class and is marked by an attribute.
static PyObject *marked_parameter(PyObject *data, bool requires_grad) {
  EXT_OWNED *made = PyObject_CallMethod(data, "detach", NULL);
  if (!made) return NULL;
  if (!Py_IS_TYPE(made, Py_TYPE(data)))
    EXT_FAIL(PyExc_RuntimeError,
             "Creating a Parameter from an instance of type %s requires that detach() returns an "
             "instance of the same type, but return type %s was found instead. To use the type as "
             "a Parameter, please correct the detach() semantics defined by its "
             "__torch_dispatch__() implementation.",
             ext_type_name(data), ext_type_name(made));
  EXT_OWNED *leaf =
      PyObject_CallMethod(made, "requires_grad_", "O", requires_grad ? Py_True : Py_False);
  if (!leaf || PyObject_SetAttrString(leaf, "_is_param", Py_True) < 0) return NULL;
  px_tensor_set_parameter(ext_tensor(leaf), true);
  return ext_moved(&leaf);
}

bool ext_is_parameter(PyObject *object) {
  if (!ext_is_tensor(object)) return false;
  if (PyObject_TypeCheck(object, ext_ParameterType)) return true;
  PyObject *dict = ((ext_tensor_object *)object)->dict;
  return dict && PyDict_GetItemString(dict, "_is_param") == Py_True;
}

static PyObject *check_instance(PyObject *cls, PyObject *object) {
  if (cls == (PyObject *)ext_ParameterType && ext_is_tensor(object))
    return PyBool_FromLong(ext_is_parameter(object));
  return PyObject_CallMethod((PyObject *)&PyType_Type, "__instancecheck__", "OO", cls, object);
}
static PyMethodDef parameter_meta_methods[] = {{"__instancecheck__", check_instance, METH_O, NULL},
                                               {NULL, NULL, 0, NULL}};
static PyTypeObject parameter_meta = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch.nn.parameter._ParameterMeta",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_methods = parameter_meta_methods,
};

static PyObject *parameter_of(PyTypeObject *type, px_tensor *data, bool requires_grad) {
  if (requires_grad) EXT_TRY(px_dtype_check_grad(px_tensor_dtype(data)));
  PX_SCOPED(px_tensor) leaf = NULL;
  EXT_TRY(px_tensor_detach(&leaf, data));
  EXT_TRY(px_tensor_set_requires_grad(leaf, requires_grad));
  px_tensor_set_parameter(leaf, true);
  PyObject *of = px_tensor_user(data);
  if (!of || ext_is_plain(of)) return ext_wrap_as(type, PX_MOVE(leaf));
  bool sharded = type == ext_ParameterType && ext_parameter_like;
  PyObject *made = sharded ? ext_parameter_like(of, leaf) : NULL;
  return made || PyErr_Occurred() ? made : marked_parameter(of, requires_grad);
}

EXT_NEW(parameter, "(data: Tensor | None = None, requires_grad: bool = True)") {
  px_tensor *data;
  bool requires_grad;
  EXT_BIND(data, requires_grad);
  if (data) return parameter_of(type, data, requires_grad);
  PX_SCOPED(px_tensor) empty = NULL;
  EXT_TRY(px_tensor_empty(&empty, 1, (int64_t[]){0}, PX_DTYPE_NONE, PX_DEVICE_NONE));
  return parameter_of(type, empty, requires_grad);
}

static int parameter_init(PyObject *self, PyObject *args, PyObject *kwargs) { return 0; }

// ---- the classes: heap types, like Python classes. Messages use their short names, and user code
// may add attributes.
PyTypeObject *ext_TensorType, *ext_ParameterType;

static PyTypeObject *make_class(const char *name, PyTypeObject *base, PyType_Slot *slots) {
  PyType_Spec spec = {name, sizeof(ext_tensor_object), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  EXT_OWNED *bases = PyTuple_Pack(1, (PyObject *)base);
  PyTypeObject *type = bases ? (PyTypeObject *)PyType_FromSpecWithBases(&spec, bases) : NULL;
  if (type) ext_short_name(type);
  return type;
}

#define TENSOR_SLOTS \
  {Py_tp_dealloc, tensor_dealloc}, {Py_tp_traverse, tensor_traverse}, { Py_tp_clear, tensor_clear }
static PyType_Slot tensor_slots[] = {TENSOR_SLOTS, {Py_tp_doc, TENSOR_DOC}, {0, NULL}};
static PyType_Slot parameter_slots[] = {
    TENSOR_SLOTS,
    {Py_tp_doc,
     "Parameter(data=None, requires_grad=True)\n--\n\n"
     "A tensor that is registered as a module parameter when assigned as a module attribute.\n\n"
     "Args:\n"
     "    data (Tensor or None): parameter tensor, whose memory is shared; an empty tensor if "
     "None\n"
     "    requires_grad (bool): whether the parameter requires gradient\n\n"
     ">>> torch.nn.Parameter(torch.ones(2))\n"
     "Parameter containing:\n"
     "tensor([1., 1.], requires_grad=True)\n"},
    {Py_tp_new, parameter_new},
    {Py_tp_init, parameter_init},
    {Py_tp_repr, parameter_repr},
    {0, NULL}};

static int make_tensor_types(PyObject *torch) {
  px_tensor_set_kept_release(stored_release);
  ext_TensorType = make_class("torch.Tensor", &ext_TensorBaseType, tensor_slots);
  if (!ext_TensorType) return -1;
  ext_ParameterType = make_class("torch.nn.parameter.Parameter", ext_TensorType, parameter_slots);
  parameter_meta.tp_base = &PyType_Type;
  if (!ext_ParameterType || PyType_Ready(&parameter_meta) < 0) return -1;
  Py_SET_TYPE(ext_ParameterType, &parameter_meta);
  if (ext_register_owner("tensor", ext_TensorType) < 0 ||
      ext_register_owner("parameter", ext_ParameterType) < 0)
    return -1;
  if (ext_add_type(torch, "Tensor", ext_TensorType) < 0) return -1;
  return ext_add_type(torch, "_Parameter", ext_ParameterType);
}
EXT_START(EXT_TYPES, make_tensor_types);
