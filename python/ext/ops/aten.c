// SPDX-License-Identifier: Apache-2.0
// torch.ops.aten: ops under the names of PyTorch's dispatcher, and the hook of
// torch.utils.checkpoint that keeps results of their calls. Here an op has one form for all
// argument types, so all overloads of a name are the same object.
#include "bind/ext.h"
#include "phlox/extend.h"

#include <string.h>

// Ops with another name in PyTorch.
static const char *const aten_names[][2] = {
    {"_linear", "addmm"},
    {"conv2d", "convolution"},
    {"conv3d_forward", "convolution"},
    {"log_softmax", "_log_softmax"},
    {"softmax", "_softmax"},
    {"tiled_attention", "_scaled_dot_product_flash_attention"}};
static const char *aten_name(const px_op *op) {
  for (int i = 0; i < EXT_LENGTH(aten_names); i++)
    if (!strcmp(aten_names[i][0], op->name)) return aten_names[i][1];
  return op->python_name;
}
static const px_op *op_of_aten(const char *name) {
  char plain[96];
  size_t length = strlen(name);
  bool inplace = length > 1 && length < sizeof plain && name[length - 1] == '_';
  const px_op *op = inplace ? NULL : px_op_find(name);
  for (int i = 0; !op && i < EXT_LENGTH(aten_names); i++)
    if (!strcmp(aten_names[i][1], name)) op = px_op_find(aten_names[i][0]);
  if (op || !inplace) return op;
  memcpy(plain, name, length - 1);
  plain[length - 1] = 0;
  return px_op_find(plain);
}

// ---- an overload: the object that is called

typedef struct overload_object {
  PyObject_HEAD PyObject *name;  // "mm", "add_"
  const char *word;              // "default", "Tensor"
} overload_object;
#define O(self) ((overload_object *)(self))
static PyObject *overloads;  // by name

static bool takes_tensors(const px_op *op) {
  for (int i = 0; i < op->param_count; i++)
    if (!strcmp(op->params[i].name, "other")) return op->params[i].kind == PX_ARG_TENSOR;
  return false;
}
EXT_OWNS(op_overload, EXT_OBJECT(overload_object, name));
static PyTypeObject op_overload_type;
static PyObject *overload_named(PyObject *name, const px_op *op) {
  if (!overloads && !(overloads = PyDict_New())) return NULL;
  PyObject *known = PyDict_GetItemWithError(overloads, name);
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  EXT_OWNED *made = ext_new(&op_overload_type);
  if (!made) return NULL;
  O(made)->name = Py_NewRef(name);
  O(made)->word = op && takes_tensors(op) && !strchr(aten_name(op), '_') ? "Tensor" : "default";
  return PyDict_SetItem(overloads, name, made) < 0 ? NULL : ext_moved(&made);
}
static PyObject *overload_of(const px_op *op, px_call_mode mode) {
  EXT_OWNED *name = PyUnicode_FromFormat("%s%s", aten_name(op), mode == PX_CALL_INPLACE ? "_" : "");
  return name ? overload_named(name, op) : NULL;
}

static PyObject *function_named(PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  for (const char *space = "fnm"; text && *space; space++) {
    PyObject *known = ext_op_object(*space, text);
    if (known) return known;
  }
  if (text) PyErr_Format(PyExc_NotImplementedError, "torch.ops.aten.%s cannot be called", text);
  return NULL;
}
static PyObject *overload_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *function = function_named(O(self)->name);
  return function ? PyObject_Call(function, args, kwargs) : NULL;
}
static PyObject *overload_repr(PyObject *self) {
  return PyUnicode_FromFormat("<OpOverload(op='aten.%U', overload='%s')>", O(self)->name,
                              O(self)->word);
}
static PyObject *overload_str(PyObject *self) {
  return PyUnicode_FromFormat("aten.%U.%s", O(self)->name, O(self)->word);
}
EXT_TYPE(op_overload, "torch._ops.OpOverload", "_OpOverload", overload_object, EXT_FINAL,
         "An op under its name in PyTorch's dispatcher; can be called.",
         EXT_LIFETIME_SLOTS(op_overload), .tp_call = overload_call, .tp_repr = overload_repr,
         .tp_str = overload_str);
EXT_GET(op_overload, _opname, "str", Py_NewRef(O(self)->name), "The name.");
EXT_GET(op_overload, _overloadname, "str", PyUnicode_FromString(O(self)->word),
        "The overload's name.");
EXT_GET(op_overload, namespace, "str", PyUnicode_FromString("aten"), "The namespace.");
EXT_METHOD0(op_overload, name, "str", "Returns the name with its namespace.") {
  bool only = !strcmp(O(self)->word, "default");
  return PyUnicode_FromFormat("aten::%U%s%s", O(self)->name, only ? "" : ".",
                              only ? "" : O(self)->word);
}

// ---- the overloads of a name

typedef struct packet_object {
  PyObject_HEAD PyObject *overload;
} packet_object;
#define P(self) ((packet_object *)(self))
EXT_OWNS(op_packet, EXT_OBJECT(packet_object, overload));

static PyObject *packet_getattro(PyObject *self, PyObject *name) {
  static const char words[] =
      "default Tensor Scalar Tensor_Scalar Scalar_Tensor Tensor_Tensor Tensor_mode Scalar_mode dim "
      "int dim_IntList dim_max dim_min correction dims self";
  const char *text = ext_lookup_text(name);
  if (text && ext_has_word(words, text)) return Py_NewRef(P(self)->overload);
  return PyObject_GenericGetAttr(self, name);
}
static PyObject *packet_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  return PyObject_Call(P(self)->overload, args, kwargs);
}
static PyObject *packet_repr(PyObject *self) {
  return PyUnicode_FromFormat("<OpOverloadPacket(op='aten.%U')>", O(P(self)->overload)->name);
}
static PyObject *packet_str(PyObject *self) {
  return PyUnicode_FromFormat("aten.%U", O(P(self)->overload)->name);
}
EXT_TYPE(op_packet, "torch._ops.OpOverloadPacket", "_OpOverloadPacket", packet_object, EXT_FINAL,
         "The overloads of an op, as attributes.", EXT_LIFETIME_SLOTS(op_packet),
         .tp_getattro = packet_getattro, .tp_call = packet_call, .tp_repr = packet_repr,
         .tp_str = packet_str);

static PyObject *packets;  // by name
static PyObject *packet_named(PyObject *name, const px_op *op) {
  if (!packets && !(packets = PyDict_New())) return NULL;
  PyObject *known = PyDict_GetItemWithError(packets, name);
  if (known || PyErr_Occurred()) return Py_XNewRef(known);
  EXT_OWNED *made = ext_new(&op_packet_type);
  if (!made || !(P(made)->overload = overload_named(name, op))) return NULL;
  return PyDict_SetItem(packets, name, made) < 0 ? NULL : ext_moved(&made);
}
// Names for FLOP counting without an op here: they cannot be called.
static bool is_counted(const char *name) {
  static const char words[] =
      "convolution_backward _scaled_dot_product_flash_attention_backward "
      "_scaled_dot_product_flash_attention_for_cpu "
      "_scaled_dot_product_flash_attention_for_cpu_backward";
  return ext_has_word(words, name);
}
PyObject *ext_aten_packet(PyObject *name) {
  const char *text = ext_lookup_text(name);
  const px_op *op = text ? op_of_aten(text) : NULL;
  return op || (text && is_counted(text)) ? packet_named(name, op) : NULL;
}
PyObject *ext_aten_counted(const char *name) {
  EXT_OWNED *text = PyUnicode_FromString(name);
  return text ? packet_named(text, op_of_aten(name)) : NULL;
}

// ---- kept results

// Results of a call: a tensor or a tuple.
static PyObject *results_of(int count, px_tensor *const *results) {
  if (count == 1) return ext_wrap_borrowed(results[0]);
  EXT_OWNED *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    PyObject *one = results[i] ? ext_wrap_borrowed(results[i]) : Py_NewRef(Py_None);
    if (!one) return NULL;
    PyTuple_SET_ITEM(tuple, i, one);
  }
  return ext_moved(&tuple);
}
static int call_made(PyObject *keeper, const px_op *op, px_call_mode mode, const px_value *values,
                     int count, px_tensor *const *results, bool whole) {
  EXT_OWNED *args = NULL;
  EXT_OWNED *options = NULL;
  if (ext_objects_of(op, values, &args, &options) < 0) return -1;
  EXT_OWNED *overload = overload_of(op, mode);
  EXT_OWNED *result = overload ? results_of(count, results) : NULL;
  EXT_OWNED *done = result ? PyObject_CallMethod(keeper, "made", "OOOOO", overload, args, options,
                                                 result, whole ? Py_True : Py_False)
                           : NULL;
  return done ? 0 : -1;
}
static px_status made(const px_op *op, px_call_mode mode, const px_value *args, int count,
                      px_tensor *const *results, bool whole, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  px_status status = call_made(context, op, mode, args, count, results, whole) < 0
                         ? ext_error_from_python()
                         : PX_OK;
  ext_gil_give(&gil);
  return status;
}

// 1: the hook returned results, 0: it did not.
static int call_recall(PyObject *keeper, const px_op *op, px_tensor **results) {
  EXT_OWNED *overload = overload_of(op, PX_CALL_NEW);
  EXT_OWNED *given = overload ? PyObject_CallMethod(keeper, "recall", "O", overload) : NULL;
  if (!given || given == Py_None) return given ? 0 : -1;
  EXT_OWNED *tuple = PyTuple_Check(given) ? Py_NewRef(given) : PyTuple_Pack(1, given);
  Py_ssize_t count = tuple ? PyTuple_GET_SIZE(tuple) : 0;
  if (count != op->result_count)
    EXT_FAIL_INT(PyExc_RuntimeError, "%s has %d results, not %zd", op->name, op->result_count,
                 count);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *one = PyTuple_GET_ITEM(tuple, i);
    results[i] = ext_is_tensor(one) ? px_retain(ext_tensor(one)) : NULL;
  }
  return 1;
}
static px_status recall(const px_op *op, const px_value *args, px_tensor **results, bool *recalled,
                        void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  int given = call_recall(context, op, results);
  px_status status = given < 0 ? ext_error_from_python() : PX_OK;
  ext_gil_give(&gil);
  *recalled = given > 0;
  return status;
}

// A scope with a dispatch hook: calls `made` of an object after each op of the thread, or requests
// results from its `recall`.
typedef struct hook_object {
  PyObject_HEAD PyObject *keeper;
  px_dispatch_hook calls;
  const px_dispatch_hook *before;
  bool entered;
} hook_object;
#define K(self) ((hook_object *)(self))
EXT_OWNS(keeping, EXT_OBJECT(hook_object, keeper));
EXT_NEW(keeping, "(keeper: object)") {
  EXT_ARGS(PyObject *, keeper);
  EXT_OWNED *self = ext_new(type);
  if (!self) return NULL;
  K(self)->keeper = Py_NewRef(keeper);
  K(self)->calls = (px_dispatch_hook){PyObject_HasAttrString(keeper, "recall") ? recall : NULL,
                                      PyObject_HasAttrString(keeper, "made") ? made : NULL, keeper};
  return ext_moved(&self);
}
EXT_TYPE(keeping, "torch._DispatchHook", "_DispatchHook", hook_object, EXT_GC,
         "Context manager that calls an object's `made` for each called op, or gets results from "
         "`recall`.",
         EXT_LIFETIME_SLOTS(keeping), .tp_new = keeping_new);
EXT_METHOD0(keeping, __enter__, "None", "Enters the scope.") {
  if (K(self)->entered) EXT_FAIL(PyExc_RuntimeError, "the scope is already entered");
  EXT_TRY(px_op_set_dispatch_hook(&K(self)->calls, &K(self)->before));
  K(self)->entered = true;
  Py_INCREF(self);  // the thread's
  Py_RETURN_NONE;
}
EXT_METHOD(keeping, __exit__, "(*error: object) -> None", "Exits the scope.") {
  EXT_ARGS(ext_varargs, error);
  (void)error;
  if (!K(self)->entered) EXT_FAIL(PyExc_RuntimeError, "the scope was not entered");
  EXT_TRY(px_op_set_dispatch_hook(K(self)->before, NULL));
  K(self)->entered = false;
  Py_DECREF(self);
  Py_RETURN_NONE;
}
