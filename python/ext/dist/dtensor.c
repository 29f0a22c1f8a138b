// SPDX-License-Identifier: Apache-2.0
// torch.distributed.tensor.DTensor: a tensor with this rank's shard as memory and a `_spec`
// describing the full tensor (placements.h). It is a Python class over Tensor and _Sharded, defined
// here; op calls are dispatched to its __torch_function__. Also the hooks by which C creates
// tensors related to sharded ones.
#include "phlox/shard.h"

#include <math.h>
#include <string.h>

#include "nn/nn.h"
#include "phlox/op.h"
#include "phlox/optim.h"
#include "phlox/ops/copy.h"
#include "dist/placements.h"

// ---- classes of sharded tensors and parameters

static PyTypeObject *tensor_class;
PyTypeObject *ext_ShardedParameterType;
static PyObject *spec_word;

bool ext_is_sharded(PyObject *object) {
  return tensor_class && object && PyObject_TypeCheck(object, tensor_class);
}

static PyObject *with_spec(PyTypeObject *type, px_tensor *tensor_take, PyObject *like) {
  EXT_OWNED *spec = PyObject_GetAttr(like, spec_word);
  EXT_OWNED *made = spec ? ext_wrap_as(type, tensor_take) : (px_release(tensor_take), NULL);
  return made && PyObject_SetAttr(made, spec_word, spec) == 0 ? ext_moved(&made) : NULL;
}

PyObject *ext_wrap_like(PyObject *like, px_tensor *tensor) {
  bool alike = ext_is_sharded(like) && !px_tensor_user(tensor) && px_tensor_ndim(tensor) > 0 &&
               px_tensor_same_sizes(tensor, ext_tensor(like));
  return alike ? with_spec(tensor_class, px_retain(tensor), like) : ext_wrap_borrowed(tensor);
}

// NULL for other classes.
static PyObject *parameter_like(PyObject *data, px_tensor *leaf) {
  return ext_is_sharded(data) ? with_spec(ext_ShardedParameterType, px_retain(leaf), data) : NULL;
}

EXT_FUNCTION(torch, _sharded_classes, "(tensor: type, parameter: type) -> None",
             "Sets the classes of sharded tensors.") {
  EXT_ARGS(PyObject *, tensor, parameter);
  ext_parameter_like = parameter_like;
  Py_XSETREF(tensor_class, (PyTypeObject *)Py_NewRef(tensor));
  Py_XSETREF(ext_ShardedParameterType, (PyTypeObject *)Py_NewRef(parameter));
  return ext_none_unless(!spec_word && !(spec_word = PyUnicode_InternFromString("_spec")));
}

// ---- ops that can be computed on shards

// Ops that are not pointwise but act on each element separately, or on none.
static const char *const shard_ops[] = {"clone",
                                        "detach",
                                        "detach_",
                                        "to",
                                        "cpu",
                                        "cuda",
                                        "float",
                                        "double",
                                        "half",
                                        "bfloat16",
                                        "type",
                                        "type_as",
                                        "contiguous",
                                        "zero_",
                                        "fill_",
                                        "copy_",
                                        "zeros_like",
                                        "ones_like",
                                        "empty_like",
                                        "full_like",
                                        "dim",
                                        "ndimension",
                                        "is_contiguous",
                                        "is_floating_point",
                                        "is_complex",
                                        "is_signed",
                                        "element_size",
                                        "data_ptr",
                                        "get_device",
                                        "storage",
                                        "untyped_storage",
                                        "requires_grad_",
                                        "pin_memory",
                                        "is_pinned",
                                        "record_stream",
                                        "register_hook",
                                        "nan_to_num",
                                        "retain_grad",
                                        "__deepcopy__",
                                        "register_post_accumulate_grad_hook",
                                        "backward",
                                        "is_inference",
                                        "is_same_size",
                                        "_make_subclass"};

static bool is_pointwise(const char *name) {
  char bare[64];
  size_t n = strlen(name);
  if (!n || n >= sizeof bare) return false;
  strcpy(bare, name);
  if (n > 4 && !strncmp(name, "__", 2) && !strcmp(name + n - 2, "__")) {
    memmove(bare, name + 2, n - 4);
    bare[n - 4] = 0;
    bool swapped = *bare == 'i' || *bare == 'r';  // __iadd__, __radd__
    const px_op *op = px_op_find(bare);
    if (!op && swapped) op = px_op_find(bare + 1);
    if (!op && (!strcmp(bare, "truediv") || !strcmp(bare + 1, "truediv"))) op = px_op_find("div");
    return op && op->kind == PX_OP_POINTWISE;
  }
  if (bare[n - 1] == '_') bare[n - 1] = 0;
  const px_op *op = px_op_find(bare);
  return op && op->kind == PX_OP_POINTWISE;
}

static bool is_in(const char *name, const char *const *list, int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(name, list[i])) return true;
  return false;
}
// For partial tensors: only ops that do not depend on the values.
static bool is_shard_op(const char *name, bool partial) {
  static const char *const numbers[] = {"fill_", "copy_", "ones_like", "full_like", "nan_to_num"};
  if (partial && is_in(name, numbers, EXT_LENGTH(numbers))) return false;
  return is_in(name, shard_ops, EXT_LENGTH(shard_ops)) || (!partial && is_pointwise(name));
}

// ---- attributes of a DTensor

typedef struct sharded_object {
  PyObject_HEAD
} sharded_object;
EXT_TYPE(sharded, "torch.distributed.tensor._Sharded", "_Sharded", sharded_object, EXT_BASETYPE,
         "Base of DTensor, next to Tensor.");

// New reference.
static PyObject *spec_entry(PyObject *self, int i) {
  EXT_OWNED *spec = PyObject_GetAttr(self, spec_word);
  if (spec && PyTuple_Check(spec) && PyTuple_GET_SIZE(spec) > EXT_SPEC_COMM)
    return Py_NewRef(PyTuple_GET_ITEM(spec, i));
  if (spec)
    PyErr_SetString(PyExc_RuntimeError,
                    "the DTensor has no mesh: it was not created by a DTensor function");
  return NULL;
}
EXT_GET(sharded, device_mesh, "Any", spec_entry(self, EXT_SPEC_MESH),
        "The DeviceMesh of the DTensor.");
EXT_GET(sharded, placements, "tuple[Any, ...]", spec_entry(self, EXT_SPEC_PLACEMENTS),
        "The placements on each mesh dimension.");
EXT_GET(sharded, shape, "Size", spec_entry(self, EXT_SPEC_SHAPE), "The size of the full tensor.");
EXT_GET(sharded, _comm, "Any", spec_entry(self, EXT_SPEC_COMM), "The communicator, or None.");

// All items, or that of a dimension if given.
static PyObject *item_of_dim(PyObject *numbers_take, PyObject *dim) {
  EXT_OWNED *numbers = numbers_take;
  return !numbers || ext_is_none(dim) ? ext_moved(&numbers) : PyObject_GetItem(numbers, dim);
}
EXT_METHOD(sharded, size, "(dim: int | None = None) -> Size | int",
           "Returns the size of the full tensor.") {
  PyObject *dim;
  EXT_BIND(dim);
  return item_of_dim(spec_entry(self, EXT_SPEC_SHAPE), dim);
}
// Product of the sizes from a dimension on.
static int64_t product(PyObject *shape, Py_ssize_t from) {
  int64_t n = 1;
  for (Py_ssize_t d = from; d < PyTuple_GET_SIZE(shape); d++)
    n *= PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
  return n;
}
EXT_METHOD(sharded, stride, "(dim: int | None = None) -> tuple[int, ...] | int",
           "Returns the strides of the full tensor, which is row-major.") {
  PyObject *dim;
  int64_t strides[PX_MAX_DIMS];
  EXT_BIND(dim);
  EXT_OWNED *shape = spec_entry(self, EXT_SPEC_SHAPE);
  if (!shape) return NULL;
  int n = (int)PyTuple_GET_SIZE(shape);
  for (int d = 0; d < n; d++) strides[d] = product(shape, d + 1);
  return item_of_dim(ext_tuple(n, strides, 1), dim);
}
static PyObject *count(PyObject *self) {
  EXT_OWNED *shape = spec_entry(self, EXT_SPEC_SHAPE);
  return shape ? PyLong_FromLongLong(product(shape, 0)) : NULL;
}
EXT_RETURNS(sharded, numel, "int", count(self),
            "Returns the number of elements of the full tensor.");
EXT_RETURNS(sharded, nelement, "int", count(self),
            "Returns the number of elements of the full tensor.");
EXT_METHOD0(sharded, __len__, "int", "Returns the first size of the full tensor.") {
  EXT_OWNED *shape = spec_entry(self, EXT_SPEC_SHAPE);
  if (shape && !PyTuple_GET_SIZE(shape)) EXT_FAIL(PyExc_TypeError, "len() of a 0-d tensor");
  return shape ? Py_NewRef(PyTuple_GET_ITEM(shape, 0)) : NULL;
}

// ---- shard and full tensor

static PyObject *local_tensor(PyObject *self) { return ext_as_class(self, ext_TensorType, false); }

static PyObject *full_tensor_of(PyObject *self) {
  ext_dtensor_spec of;
  px_tensor *full;
  EXT_OWNED *spec = ext_spec_of(&of, self);
  if (!spec) return NULL;
  if (ext_spec_is_replicated(&of)) return local_tensor(self);
  EXT_WAIT(ext_full_tensor(&full, &of, ext_tensor(self)));
  return ext_wrap(full);
}
static int fail_grad_placements(PyObject *grad_placements) {
  if (ext_is_none(grad_placements)) return 0;
  EXT_FAIL_INT(PyExc_NotImplementedError, "grad_placements= is not implemented in Phlox");
}
EXT_METHOD(sharded, to_local, "(*, grad_placements: Any | None = None) -> Tensor",
           "Returns the local tensor of this DTensor, sharing its memory.") {
  PyObject *grad_placements;
  EXT_BIND(grad_placements);
  return fail_grad_placements(grad_placements) < 0 ? NULL : local_tensor(self);
}
EXT_METHOD(sharded, full_tensor, "(*, grad_placements: Any | None = None) -> Tensor",
           "Returns the full tensor. Called by all ranks.") {
  PyObject *grad_placements;
  EXT_BIND(grad_placements);
  return fail_grad_placements(grad_placements) < 0 ? NULL : full_tensor_of(self);
}
static PyObject *detached_shard(PyObject *self) {
  px_tensor *bare;
  return ext_result(px_tensor_detach(&bare, ext_tensor(self)), &bare);
}
EXT_GET(sharded, _local_tensor, "Tensor", detached_shard(self),
        "Returns this rank's shard without history.");

// A DTensor over a shard, with its history.
static PyObject *wrap_shard(PyObject *part, PyObject *spec) {
  EXT_OWNED *made = ext_as_class(part, tensor_class, false);
  return made && PyObject_SetAttr(made, spec_word, spec) == 0 ? ext_moved(&made) : NULL;
}
EXT_FUNCTION(torch, _sharded_over, "(part: Tensor, spec: tuple) -> Tensor",
             "Returns a DTensor over this rank's shard.") {
  EXT_ARGS(PyObject *, part, spec);
  return ext_need_tensor(part, "DTensor", "part") ? wrap_shard(part, spec) : NULL;
}

// The gradient as an object of the class, created once.
static PyObject *gradient(PyObject *self) {
  PX_SCOPED(px_tensor) grad = NULL;
  EXT_TRY(px_tensor_get_grad(&grad, ext_tensor(self)));
  EXT_OWNED *object = grad ? ext_wrap_like(self, grad) : Py_NewRef(Py_None);
  if (!object || object == Py_None || ext_is_sharded(object)) return ext_moved(&object);
  EXT_OWNED *bare = detached_shard(object);
  EXT_OWNED *spec = bare ? PyObject_GetAttr(self, spec_word) : NULL;
  EXT_OWNED *made = spec ? wrap_shard(bare, spec) : NULL;
  if (!made) return NULL;
  EXT_TRY(px_tensor_set_grad(ext_tensor(self), ext_tensor(made)));
  return ext_moved(&made);
}
EXT_GETTER_AND_SETTER(sharded, grad, "Tensor | None", "The gradient, with the same sharding.") {
  return gradient(self);
}
EXT_SETTER(sharded, grad) {
  if (!ext_is_none(value) && !ext_is_tensor(value))
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "assigned grad expected to be a Tensor or None but got grad of type %s",
                 ext_type_name(value));
  return ext_zero(
      px_tensor_set_grad(ext_tensor(self), ext_is_none(value) ? NULL : ext_tensor(value)));
}

static PyObject *text_of(PyObject *self) {
  EXT_OWNED *part = detached_shard(self);
  EXT_OWNED *mesh = part ? spec_entry(self, EXT_SPEC_MESH) : NULL;
  EXT_OWNED *placements = mesh ? spec_entry(self, EXT_SPEC_PLACEMENTS) : NULL;
  return placements
             ? PyUnicode_FromFormat("DTensor(local_tensor=%S, device_mesh=%S, placements=%S)", part,
                                    mesh, placements)
             : NULL;
}
EXT_RETURNS(sharded, __repr__, "str", text_of(self),
            "Returns a text with shard, mesh and placements.");
EXT_METHOD(sharded, __reduce_ex__, "(protocol: int) -> tuple",
           "Raises: a mesh cannot be pickled.") {
  EXT_FAIL(PyExc_NotImplementedError,
           "pickling a DTensor is not implemented in Phlox: save its full_tensor(), or use "
           "torch.distributed.checkpoint");
}

// ---- calls

typedef struct op_call {
  PyObject *func, *args, *kwargs;
  PyObject *tensors;  // all tensors in the arguments: a list
  PyObject *spec;     // of the first sharded one
  const char *name;
} op_call;

static const char *name_of(PyObject *func, PyObject **keep) {
  *keep = PyObject_GetAttrString(func, "__name__");
  if (!*keep) PyErr_Clear();
  const char *name = *keep && PyUnicode_Check(*keep) ? PyUnicode_AsUTF8(*keep) : "";
  return name ? name : (PyErr_Clear(), "");
}

static int find_spec(op_call *c) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(c->tensors) && !c->spec; i++) {
    PyObject *one = PyList_GET_ITEM(c->tensors, i);
    if (ext_is_sharded(one) && !(c->spec = PyObject_GetAttr(one, spec_word))) return -1;
  }
  return 0;
}

// 1 if all sharded arguments have the same spec and others are numbers, else 0; -1 on error.
static int same_spec(const op_call *c) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(c->tensors); i++) {
    PyObject *one = PyList_GET_ITEM(c->tensors, i);
    if (!ext_is_sharded(one) && px_tensor_ndim(ext_tensor(one))) return 0;
    EXT_OWNED *spec = ext_is_sharded(one) ? PyObject_GetAttr(one, spec_word) : Py_NewRef(c->spec);
    int same = spec ? PyObject_RichCompareBool(spec, c->spec, Py_EQ) : -1;
    if (same <= 0) return same;
  }
  return 1;
}

// Wraps a result of a shard's size as a shard.
static PyObject *rewrap_shard(PyObject *result, void *context) {
  const op_call *c = context;
  px_tensor *t = ext_tensor(result);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(c->tensors) && !ext_is_sharded(result); i++) {
    PyObject *one = PyList_GET_ITEM(c->tensors, i);
    if (ext_is_sharded(one) && px_tensor_same_sizes(t, ext_tensor(one)))
      return wrap_shard(result, c->spec);
  }
  return Py_NewRef(result);
}

static PyObject *call_on_shards(op_call *c) {
  ext_overrides_off(1, 0);
  EXT_OWNED *result = ext_apply(c->func, c->args, c->kwargs);
  ext_overrides_off(-1, 0);
  return result ? ext_map_tensors(result, rewrap_shard, c) : NULL;
}

static PyObject *gather_full(PyObject *tensor, void *context) {
  return ext_is_sharded(tensor) ? full_tensor_of(tensor) : Py_NewRef(tensor);
}

// Wraps a result computed from full tensors on each rank as replicated.
static PyObject *wrap_replicated(PyObject *result, void *context) {
  const op_call *c = context;
  EXT_OWNED *replicate = ext_call_from("phlox.distributed._placements", "Replicate", "()");
  EXT_OWNED *one = replicate ? PyTuple_Pack(1, replicate) : NULL;
  PyObject *mesh = PyTuple_GET_ITEM(c->spec, EXT_SPEC_MESH);
  PyObject *before = PyTuple_GET_ITEM(c->spec, EXT_SPEC_PLACEMENTS);
  EXT_OWNED *each = one ? PySequence_Repeat(one, PyObject_Length(before)) : NULL;
  EXT_OWNED *shape = each ? PyObject_GetAttrString(result, "shape") : NULL;
  EXT_OWNED *spec = shape ? PyTuple_Pack(4, mesh, each, shape, Py_None) : NULL;
  return spec ? wrap_shard(result, spec) : NULL;
}

// Copies this rank's shard of a full tensor modified in-place back.
static PyObject *store_shard(const op_call *c, PyObject *full) {
  PyObject *self = PyTuple_GET_ITEM(c->args, 0);
  ext_dtensor_spec of;
  PX_SCOPED(px_tensor) mine = NULL;
  PX_SCOPED(px_tensor) part = NULL;
  EXT_OWNED *spec = ext_spec_of(&of, self);
  if (!spec) return NULL;
  if (ext_spec_is_replicated(&of)) return Py_NewRef(self);
  EXT_TRY(px_layout_extract(&mine, &of.layout, ext_tensor(full)));
  EXT_TRY(px_tensor_detach(&part, ext_tensor(self)));
  EXT_TRY(px_copy_(part, mine, false));
  return Py_NewRef(self);
}

static bool is_in_place(const op_call *c) {
  size_t n = strlen(c->name);
  if (!strcmp(c->name, "__setitem__")) return true;
  return n > 1 && c->name[n - 1] == '_' && c->name[n - 2] != '_' && PyTuple_GET_SIZE(c->args) &&
         ext_is_sharded(PyTuple_GET_ITEM(c->args, 0));
}

// Rejects in-place ops on partial tensors: a full result cannot be stored in them.
static int check_not_partial(const op_call *c) {
  ext_dtensor_spec of;
  if (!ext_is_sharded(PyTuple_GET_ITEM(c->args, 0))) return 0;
  EXT_OWNED *spec = ext_spec_of(&of, PyTuple_GET_ITEM(c->args, 0));
  if (!spec || !ext_spec_is_partial(&of)) return spec ? 0 : -1;
  EXT_FAIL_INT(
      PyExc_RuntimeError,
      "%s: in-place operations that require placement changes are not supported. The input "
      "has placement %S, but no valid strategy preserves this placement. Please use the "
      "out-of-place version of this operation instead.",
      c->name, PyTuple_GET_ITEM(spec, EXT_SPEC_PLACEMENTS));
}

static PyObject *call_on_full(op_call *c) {
  if (is_in_place(c) && check_not_partial(c) < 0) return NULL;
  EXT_OWNED *args = ext_map_tensors(c->args, gather_full, NULL);
  EXT_OWNED *kwargs = args ? ext_map_tensors(c->kwargs, gather_full, NULL) : NULL;
  EXT_OWNED *result = kwargs ? ext_apply(c->func, args, kwargs) : NULL;
  if (!result) return NULL;
  if (is_in_place(c)) return store_shard(c, PyTuple_GET_ITEM(args, 0));
  return ext_map_tensors(result, wrap_replicated, c);
}

static PyObject *dispatch(op_call *c) {
  ext_dtensor_spec of;
  if (ext_read_spec(&of, c->spec) < 0) return NULL;
  bool attribute = !strcmp(c->name, "__get__") || !strcmp(c->name, "__set__");
  int fits = attribute || is_shard_op(c->name, ext_spec_is_partial(&of)) ? same_spec(c) : 0;
  if (fits) return fits < 0 ? NULL : call_on_shards(c);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(c->tensors); i++) {
    PyObject *one = PyList_GET_ITEM(c->tensors, i);
    if (!ext_is_sharded(one) && px_tensor_ndim(ext_tensor(one)))
      EXT_FAIL(PyExc_RuntimeError,
               "%s: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
               "DTensor before calling distributed operators!",
               c->name);
  }
  return call_on_full(c);
}

EXT_CLASS_METHOD(sharded, __torch_function__,
                 "(func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = "
                 "None) -> object",
                 "Computes elementwise ops on shards, and others on full tensors gathered by all "
                 "ranks.") {
  PyObject *func, *types, *args_, *kwargs;
  EXT_BIND(func, types, args_, kwargs);
  EXT_OWNED *none = PyTuple_New(0);
  EXT_OWNED *empty = PyDict_New();
  if (!none || !empty) return NULL;
  op_call c = {.func = func, .args = args_ ? args_ : none};
  c.kwargs = ext_is_none(kwargs) ? empty : kwargs;
  EXT_OWNED *both = PyTuple_Pack(2, c.args, c.kwargs);
  EXT_OWNED *tensors = both ? ext_collect_tensors(both) : NULL;
  EXT_OWNED *name = NULL;
  c.name = name_of(func, &name);
  if (!(c.tensors = tensors) || find_spec(&c) < 0) return NULL;
  EXT_OWNED *spec = c.spec;
  if (!spec) return Py_NewRef(Py_NotImplemented);
  return dispatch(&c);
}

// ---- norms over ranks

// Items of a sequence, or their gradients, sorted into shards and others.
typedef struct norm_items {
  px_tensor **parts, **own, **held;  // held: owned references of the items
  int64_t part_count, own_count;
  PyObject *full_tensors;  // owns full tensors of items sharded along several dimensions or partial
  PyObject *like;          // the first sharded item; borrowed
  PyObject *comm;
} norm_items;

// Gathers the full tensor unless it is sharded along exactly one mesh dimension.
static int replace_by_full(norm_items *k, PyObject *object, px_tensor **value) {
  ext_dtensor_spec of;
  px_tensor *full;
  EXT_OWNED *spec = ext_spec_of(&of, object);
  if (!spec || ext_spec_is_replicated(&of)) return spec ? 0 : -1;
  EXT_TRY_INT(EXT_NOGIL(ext_full_tensor(&full, &of, *value)));
  EXT_OWNED *keeps = ext_wrap(full);
  *value = keeps ? ext_tensor(keeps) : NULL;
  return keeps ? PyList_Append(k->full_tensors, keeps) : -1;
}

static int sort_one(norm_items *k, PyObject *object, px_tensor *value) {
  EXT_OWNED *comm = ext_is_sharded(object) ? PyObject_GetAttrString(object, "_comm") : NULL;
  if (PyErr_Occurred()) return -1;
  bool part = comm && comm != Py_None;
  if (comm && !part && replace_by_full(k, object, &value) < 0) return -1;
  if (part && !k->like) k->like = object, k->comm = Py_NewRef(comm);
  if (part && ext_comm(comm) != ext_comm(k->comm))
    EXT_FAIL_INT(PyExc_NotImplementedError,
                 "the norm of tensors that are sharded over different groups is not implemented "
                 "in Phlox");
  if (part)
    k->parts[k->part_count++] = value;
  else
    k->own[k->own_count++] = value;
  return 0;
}

static int sort(norm_items *k, const ext_tensors *g, bool gradients) {
  for (Py_ssize_t i = 0; i < g->count; i++) {
    px_tensor *value = px_retain(gradients ? NULL : g->items[i]);
    if (gradients) EXT_TRY_INT(px_tensor_get_grad(&value, g->items[i]));
    k->held[i] = value;
    if (value && sort_one(k, px_tensor_user(g->items[i]), value) < 0) return -1;
  }
  return 0;
}

static bool any_sharded(const ext_tensors *g) {
  for (Py_ssize_t i = 0; i < g->count; i++)
    if (ext_is_sharded(px_tensor_user(g->items[i]))) return true;
  return false;
}

static int check_finite(px_tensor *norm, double norm_type) {
  px_scalar value;
  EXT_TRY_INT(ext_item(&value, norm));
  if (isfinite(px_scalar_float(value))) return 0;
  EXT_OWNED *order = PyFloat_FromDouble(norm_type);
  if (order)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "The total norm of order %R for gradients from `parameters` is non-finite, so it "
                 "cannot be clipped. To disable this error and scale the gradients by the "
                 "non-finite norm anyway, set `error_if_nonfinite=False`",
                 order);
  return -1;
}

int ext_sharded_norm(px_tensor **out, const ext_tensors *g, bool gradients, double norm_type,
                     bool error_if_nonfinite) {
  *out = NULL;
  if (!any_sharded(g)) return 0;
  EXT_OWNED *full_tensors = PyList_New(0);
  norm_items k = {.full_tensors = full_tensors};
  if (!full_tensors) return -1;
  k.parts = PyMem_Calloc(3 * (size_t)g->count, sizeof *k.parts);
  if (!k.parts) return PyErr_NoMemory(), -1;
  k.own = k.parts + g->count, k.held = k.own + g->count;
  int bad = sort(&k, g, gradients);
  px_comm *comm = !bad && k.part_count ? ext_comm(k.comm) : NULL;
  if (comm) {
    px_status status =
        EXT_NOGIL(px_shard_norm(out, comm, k.parts, k.part_count, k.own, k.own_count, norm_type));
    if (status != PX_OK) ext_raise(), bad = -1;
  }
  if (comm && !bad && error_if_nonfinite && check_finite(*out, norm_type) < 0) bad = -1;
  Py_XDECREF(k.comm);
  for (Py_ssize_t i = 0; i < g->count; i++) px_release(k.held[i]);
  PyMem_Free(k.parts);
  if (bad) px_release(*out), *out = NULL;
  return bad;
}

// Replaces a number by its maximum over all ranks with shards of a tensor.
static px_status max_over_ranks(const ext_dtensor_spec *of, px_tensor *number) {
  for (int m = 0; m < px_mesh_ndim(of->layout.mesh); m++)
    if (of->placements[m].kind != PX_PLACEMENT_REPLICATE)
      PX_TRY(px_shard_max(px_mesh_comm(of->layout.mesh, m), number));
  return PX_OK;
}

int ext_sharded_found(PyObject *grads, PyObject *found) {
  EXT_OWNED *before = NULL;  // mesh and placements of the previous gradient
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(grads); i++) {
    PyObject *grad = PyList_GET_ITEM(grads, i);
    ext_dtensor_spec of;
    if (!ext_is_sharded(grad)) continue;
    EXT_OWNED *spec = ext_spec_of(&of, grad);
    EXT_OWNED *place = spec ? PyTuple_GetSlice(spec, 0, EXT_SPEC_SHAPE) : NULL;
    EXT_OWNED *device = place ? ext_device(px_tensor_device(ext_tensor(grad))) : NULL;
    int again = device && before ? PyObject_RichCompareBool(place, before, Py_EQ) : 0;
    if (!device || again < 0) return -1;
    if (again || ext_spec_is_replicated(&of)) continue;
    PyObject *number = PyDict_GetItemWithError(found, device);
    if (!number) return -1;
    EXT_TRY_INT(EXT_NOGIL(max_over_ranks(&of, ext_tensor(number))));
    Py_XSETREF(before, Py_NewRef(place));
  }
  return 0;
}
