// SPDX-License-Identifier: Apache-2.0
// Core functions of DistributedDataParallel (phlox/nn/parallel.py): the reducer, the buckets passed
// to communication hooks, and tensors in forward results. Also the communicator of SyncBatchNorm.
#include "phlox/distributed.h"
#include "nn/nn.h"

// ---- buckets

typedef struct grad_bucket_object {
  PyObject_HEAD int64_t index;
  bool last;
  PyObject *buffer, *gradients, *parameters;
} grad_bucket_object;
#define B(self) ((grad_bucket_object *)(self))
EXT_OWNS(grad_bucket, EXT_OBJECT(grad_bucket_object, buffer),
         EXT_OBJECT(grad_bucket_object, gradients), EXT_OBJECT(grad_bucket_object, parameters));
EXT_NEW(grad_bucket, "()") {
  EXT_FAIL(PyExc_TypeError, "torch._C._distributed_c10d.GradBucket: No constructor defined!");
}
EXT_TYPE(grad_bucket, "torch.distributed.GradBucket", "distributed.GradBucket", grad_bucket_object,
         EXT_FINAL, "A bucket of gradients in contiguous memory, passed to communication hooks.",
         EXT_LIFETIME_SLOTS(grad_bucket), .tp_new = grad_bucket_new);
EXT_RETURNS(grad_bucket, index, "int", B(self)->index, "Returns the index of the bucket.");
EXT_RETURNS(grad_bucket, is_last, "bool", B(self)->last,
            "Returns True if this bucket is the last one reduced.");
EXT_METHOD0(grad_bucket, buffer, "Tensor", "Returns a flattened 1D tensor of the gradients.") {
  return Py_NewRef(B(self)->buffer);
}
EXT_METHOD0(grad_bucket, gradients, "list[Tensor]",
            "Returns the gradients as views of the buffer.") {
  return Py_NewRef(B(self)->gradients);
}
EXT_METHOD0(grad_bucket, parameters, "list[Tensor]", "Returns the parameters of the gradients.") {
  return Py_NewRef(B(self)->parameters);
}
EXT_METHOD(grad_bucket, set_buffer, "(buffer: Tensor) -> None",
           "Replaces the tensor in the bucket with the input tensor.") {
  EXT_ARGS(PyObject *, buffer);
  if (!ext_need_tensor(buffer, "set_buffer", "buffer")) return NULL;
  Py_XSETREF(B(self)->buffer, Py_NewRef(buffer));
  Py_RETURN_NONE;
}

static PyObject *list_of(px_tensor *const *tensors, int count) {
  EXT_OWNED *list = PyList_New(count);
  for (int i = 0; list && i < count; i++) {
    PyObject *tensor = ext_wrap_borrowed(tensors[i]);
    if (!tensor) return NULL;
    PyList_SET_ITEM(list, i, tensor);
  }
  return ext_moved(&list);
}

static PyObject *bucket_object(const px_bucket *bucket) {
  EXT_OWNED *self = ext_new(&grad_bucket_type);
  if (!self) return NULL;
  B(self)->index = bucket->index;
  B(self)->last = bucket->last;
  B(self)->buffer = ext_wrap_borrowed(bucket->buffer);
  B(self)->gradients = list_of(bucket->gradients, bucket->count);
  B(self)->parameters = list_of(bucket->parameters, bucket->count);
  return B(self)->buffer && B(self)->gradients && B(self)->parameters ? ext_moved(&self) : NULL;
}

// ---- communication hooks: callables that receive a bucket and return an object with wait()

static px_status hook_begin(void **pending, const px_bucket *bucket, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  PyObject *bucket_arg = bucket_object(bucket);
  PyObject *future = bucket_arg ? PyObject_CallOneArg(context, bucket_arg) : NULL;
  Py_XDECREF(bucket_arg);
  px_status status = future ? PX_OK : ext_error_from_python();
  *pending = future;
  ext_gil_give(&gil);
  return status;
}

// The result of a hook: a tensor, or a list of one.
static int read_result(PyObject *result, px_tensor **out) {
  if (result && PyList_Check(result) && PyList_GET_SIZE(result) == 1)
    result = PyList_GET_ITEM(result, 0);
  px_tensor *tensor = result ? ext_need_tensor(result, "a communication hook", "result") : NULL;
  if (!tensor) return -1;
  return *out = px_retain(tensor), 0;
}

static px_status hook_end(px_tensor **out, void *pending_take, void *context) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  PyObject *result = PyObject_CallMethod(pending_take, "wait", NULL);
  px_status status = read_result(result, out) == 0 ? PX_OK : ext_error_from_python();
  Py_XDECREF(result);
  Py_DECREF((PyObject *)pending_take);
  ext_gil_give(&gil);
  return status;
}

// ---- the reducer

typedef struct reducer_object {
  PyObject_HEAD px_reducer *reducer;
  bool casts;
  px_dtype inputs;  // mixed precision: dtype of forward inputs
} reducer_object;
#define R(self) (((reducer_object *)(self))->reducer)
static void reducer_release(PyObject *self) { ext_release_nogil(R(self)); }
EXT_OWNS(reducer, EXT_FINALIZER(reducer_release));
EXT_NEW(reducer,
        "(comm: Any, parameters: Sequence[Tensor], bucket_bytes: int, bucket_view: bool, "
        "find_unused: bool, static_graph: bool)") {
  PyObject *comm, *parameters;
  int64_t bucket_bytes;
  bool bucket_view, find_unused, static_graph;
  EXT_TENSORS items = {0};
  EXT_BIND(comm, parameters, bucket_bytes, bucket_view, find_unused, static_graph);
  px_reducer_options options = {.comm = ext_comm(comm),
                                .first_bytes = bucket_bytes,
                                .bucket_bytes = bucket_bytes,
                                .bucket_view = bucket_view,
                                .find_unused = find_unused,
                                .static_graph = static_graph};
  if (!options.comm || ext_take_tensors(&items, ext_items(parameters, "parameters must be a list"),
                                        "Reducer", "parameters") < 0)
    return NULL;
  options.parameters = items.items;
  options.count = (int)items.count;
  px_reducer *made;
  EXT_WAIT(px_reducer_new(&made, &options));
  return ext_wrap_core(type, made);
}
EXT_TYPE(reducer, "torch._C._Reducer", "_Reducer", reducer_object, EXT_FINAL,
         "Averages the gradients of parameters over ranks.", EXT_LIFETIME_SLOTS(reducer),
         .tp_new = reducer_new);
EXT_METHOD0(reducer, begin, "None", "Called before a forward pass.") {
  EXT_WAIT(px_reducer_begin(R(self)));
  Py_RETURN_NONE;
}
EXT_METHOD0(reducer, bucket_count, "int", "Returns the number of buckets.") {
  return PyLong_FromLong(px_reducer_bucket_count(R(self)));
}
EXT_METHOD(reducer, divide_by, "(ranks: int) -> None",
           "Sets the number of ranks by which sums are divided.") {
  EXT_ARGS(int64_t, ranks);
  EXT_TRY(px_reducer_divide_by(R(self), ext_clamp_device_index(ranks)));
  Py_RETURN_NONE;
}
EXT_METHOD0(reducer, shadow, "None",
            "Shadows a step of other ranks after local batches are exhausted.") {
  EXT_WAIT(px_reducer_shadow(R(self)));
  Py_RETURN_NONE;
}
EXT_METHOD(reducer, set_hook, "(hook: Callable) -> None", "Sets a hook that reduces the buckets.") {
  static const px_bucket_hook hook_of = {hook_begin, hook_end, ext_release, ext_release};
  EXT_ARGS(PyObject *, hook);
  EXT_TRY(px_reducer_set_hook(R(self), &hook_of, hook));
  Py_INCREF(hook);
  Py_RETURN_NONE;
}
EXT_METHOD(reducer, compress, "(dtype: dtype | None) -> None",
           "Sets the dtype in which buckets are communicated.") {
  px_dtype dtype;
  EXT_BIND(dtype);
  EXT_TRY(px_reducer_compress(R(self), dtype));
  Py_RETURN_NONE;
}

static int dtype_in(PyObject *policy, const char *name, px_dtype *out) {
  EXT_OWNED *value = PyObject_GetAttrString(policy, name);
  *out = PX_DTYPE_NONE;
  return !value ? -1 : value == Py_None ? 0 : ext_to_dtype(value, out);
}
EXT_METHOD(reducer, mix, "(module: Any, policy: Any, ignored: Sequence[Tensor]) -> None",
           "Enables mixed precision training of a module.") {
  EXT_ARGS(PyObject *, module, policy, ignored);
  EXT_TENSORS items = {0};
  px_mixed_precision mixed;
  if (!ext_is_module(module)) EXT_FAIL(PyExc_TypeError, "mix expects a Module");
  if (dtype_in(policy, "param_dtype", &mixed.param_dtype) < 0 ||
      dtype_in(policy, "reduce_dtype", &mixed.reduce_dtype) < 0 ||
      dtype_in(policy, "buffer_dtype", &mixed.buffer_dtype) < 0 ||
      ext_take_tensors(&items, ext_items(ignored, "ignored must be a list"), "mix", "ignored") < 0)
    return NULL;
  EXT_TRY(px_reducer_set_mixed_precision(R(self), ext_module(module), &mixed, items.items,
                                         (int)items.count));
  ((reducer_object *)self)->casts = mixed.param_dtype != PX_DTYPE_NONE;
  ((reducer_object *)self)->inputs = mixed.param_dtype;
  Py_RETURN_NONE;
}
EXT_METHOD(reducer, lower, "(inputs: Any) -> Any",
           "Called before a forward pass in mixed precision; casts and returns its inputs.") {
  EXT_ARGS(PyObject *, inputs);
  const reducer_object *own = (reducer_object *)self;
  EXT_WAIT(px_reducer_cast_parameters(R(self)));
  return own->casts ? ext_cast_tensors(inputs, own->inputs) : Py_NewRef(inputs);
}
EXT_METHOD(reducer, raise_, "() -> None", "Called after a forward pass in mixed precision.") {
  EXT_WAIT(px_reducer_restore_parameters(R(self)));
  Py_RETURN_NONE;
}

EXT_METHOD(reducer, expect, "(output: Any) -> None",
           "Called after a forward pass with its output.") {
  EXT_ARGS(PyObject *, output);
  EXT_TENSORS items = {0};
  EXT_OWNED *list = ext_collect_tensors(output);
  if (!list || ext_take_tensors(&items, Py_NewRef(list), "expect", "output") < 0) return NULL;
  EXT_WAIT(px_reducer_expect(R(self), items.items, (int)items.count));
  Py_RETURN_NONE;
}

// ---- consistency of ranks

EXT_FUNCTION(torch, _copy_from, "(comm: Any, tensors: Sequence[Tensor], root: int = 0) -> None",
             "Broadcasts the tensors of a rank.") {
  PyObject *comm, *tensors;
  int64_t root;
  EXT_BIND(comm, tensors, root);
  EXT_TENSORS items = {0};
  px_comm *among = ext_comm(comm);
  if (!among || ext_take_tensors(&items, ext_items(tensors, "tensors are a list"), "of a module",
                                 "tensors") < 0)
    return NULL;
  EXT_WAIT(px_comm_copy_from(among, ext_clamp_device_index(root), items.items, (int)items.count));
  Py_RETURN_NONE;
}
EXT_FUNCTION(torch, _check_alike, "(comm: Any, parameters: Sequence[Tensor]) -> None",
             "Raises RuntimeError unless all ranks have matching parameters.") {
  EXT_ARGS(PyObject *, comm, parameters);
  EXT_TENSORS items = {0};
  px_comm *among = ext_comm(comm);
  if (!among || ext_take_tensors(&items, ext_items(parameters, "parameters must be a list"),
                                 "of a module", "parameters") < 0)
    return NULL;
  EXT_WAIT(px_comm_check_parameters(among, items.items, (int)items.count));
  Py_RETURN_NONE;
}

// ---- tensors owned by one rank each

static PyObject *owners_list(const int *owners, Py_ssize_t count) {
  EXT_OWNED *list = PyList_New(count);
  for (Py_ssize_t i = 0; list && i < count; i++)
    PyList_SET_ITEM(list, i, PyLong_FromLong(owners[i]));
  return ext_moved(&list);
}
EXT_FUNCTION(torch, _partition,
             "(groups: Sequence[Sequence[Tensor]], size: int) -> list[list[int]]",
             "Returns the owner rank of each tensor of each group: largest first, assigned to the "
             "rank with the fewest elements.") {
  PyObject *groups;
  int64_t size;
  EXT_BIND(groups, size);
  EXT_OWNED *list = ext_items(groups, "groups must be a list");
  EXT_OWNED *result = PyList_New(0);
  int64_t *loads = list && result ? PyMem_Calloc((size_t)size + 1, sizeof *loads) : NULL;
  bool good = loads;
  for (Py_ssize_t g = 0; good && g < PySequence_Fast_GET_SIZE(list); g++) {
    EXT_TENSORS items = {0};
    PyObject *group = ext_items(PySequence_Fast_GET_ITEM(list, g), "each group must be a list");
    int *owners = NULL;
    good = ext_take_tensors(&items, group, "partition", "tensors") == 0 &&
           (owners = PyMem_Calloc((size_t)items.count + 1, sizeof *owners));
    if (good && px_partition(owners, loads, (int)size, items.items, (int)items.count) != PX_OK)
      ext_raise(), good = false;
    EXT_OWNED *one = good ? owners_list(owners, items.count) : NULL;
    good = one && PyList_Append(result, one) == 0;
    PyMem_Free(owners);
  }
  PyMem_Free(loads);
  return good ? ext_moved(&result) : NULL;
}

EXT_FUNCTION(torch, _share_owned,
             "(comm: Any, tensors: Sequence[Tensor], owners: Sequence[int]) -> None",
             "Broadcasts each tensor from its owner.") {
  PyObject *comm, *tensors, *owners;
  EXT_TENSORS items = {0};
  EXT_BIND(comm, tensors, owners);
  px_comm *of = ext_comm(comm);
  EXT_OWNED *ranks = of ? ext_items(owners, "owners must be a list") : NULL;
  if (!ranks ||
      ext_take_tensors(&items, ext_items(tensors, "tensors are a list"), "share", "tensors") < 0)
    return NULL;
  if (PySequence_Fast_GET_SIZE(ranks) != items.count)
    EXT_FAIL(PyExc_ValueError, "expected one owner per tensor");
  int *list = PyMem_Calloc((size_t)items.count + 1, sizeof *list);
  if (!list) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < items.count; i++)
    list[i] = (int)PyLong_AsLong(PySequence_Fast_GET_ITEM(ranks, i));
  px_status status = EXT_NOGIL(px_comm_broadcast_owned(of, items.items, list, (int)items.count));
  PyMem_Free(list);
  return PyErr_Occurred() ? NULL : ext_none(status);
}

// ---- group of a SyncBatchNorm: its own, or the default group

static int comm_of(PyObject *layer, px_comm **out) {
  EXT_OWNED *own = layer ? PyObject_GetAttrString(layer, "process_group") : Py_NewRef(Py_None);
  EXT_OWNED *world = own ? ext_call_from("phlox.distributed", "_world", "()") : NULL;
  PyObject *group = own && own != Py_None ? own : world;
  if (!group || group == Py_None) return world ? 0 : -1;
  px_comm *comm = ext_comm(group);
  *out = px_retain(comm);
  return comm ? 0 : -1;
}

static px_status choose(px_comm **out, px_module *layer) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  *out = NULL;
  px_status status = comm_of(px_module_user(layer), out) == 0 ? PX_OK : ext_error_from_python();
  ext_gil_give(&gil);
  return status;
}

static int choose_comm(PyObject *torch) {
  px_sync_norm_choose(choose);
  return 0;
}
EXT_START(EXT_VALUES, choose_comm);
