// SPDX-License-Identifier: Apache-2.0
// Core functions of torch.distributed.fsdp (phlox/distributed/_fsdp.py): groups of sharded
// parameters, and FSDPModule, a base added to the class of such modules.
#include "phlox/shard.h"

#include "nn/nn.h"
#include "dist/placements.h"

// ---- groups

typedef struct shards_object {
  PyObject_HEAD px_shards *shards;
  PyObject *hook;  // set by set_all_reduce_hook, or NULL
} shards_object;
#define H(self) (((shards_object *)(self))->shards)
// The hook receives this object, which the group may outlive.
static void shards_release(PyObject *self) {
  if (H(self)) (void)EXT_NOGIL(px_shards_on_reduced(H(self), NULL, NULL, NULL, NULL));
}
EXT_OWNS(shards, EXT_FINALIZER(shards_release), EXT_CORE(shards_object, shards),
         EXT_OBJECT(shards_object, hook));

// Array to be freed by the caller; NULL with an error.
static px_module **read_modules(PyObject *modules) {
  EXT_OWNED *list = ext_items(modules, "modules must be a list");
  Py_ssize_t count = list ? PySequence_Fast_GET_SIZE(list) : 0;
  if (list && !count) EXT_FAIL(PyExc_IndexError, "tuple index out of range");
  px_module **out = count ? PyMem_Calloc((size_t)count, sizeof *out) : NULL;
  if (count && !out) return (px_module **)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++)
    out[i] = ext_module(PySequence_Fast_GET_ITEM(list, i));  // types checked by the caller
  return out;
}

// Result of shard_placement_fn for a parameter: None, or Shard(dim).
static int call_placement_fn(int *dim, PyObject *parameter, PyObject *fn) {
  px_placement place = {.kind = PX_PLACEMENT_SHARD};
  EXT_OWNED *said = parameter ? PyObject_CallOneArg(fn, parameter) : NULL;
  if (!said || said == Py_None) return said ? 0 : -1;
  bool is = ext_read_placement(&place, said, 0) == 0 && place.kind == PX_PLACEMENT_SHARD;
  *dim = place.dim;
  if (is) return 0;
  PyErr_Clear();
  EXT_FAIL_INT(PyExc_ValueError, "Invalid shard_placement_fn result: %S", said);
}
static px_status dim_for(int *dim, px_tensor *parameter, void *fn) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  EXT_OWNED *object = ext_wrap_borrowed(parameter);
  px_status status = call_placement_fn(dim, object, fn) == 0 ? PX_OK : ext_error_from_python();
  Py_CLEAR(object);
  ext_gil_give(&gil);
  return status;
}

EXT_NEW(shards,
        "(comm: Any, replicas: Any | None, modules: Sequence[Any], device: Device, "
        "ignored: Sequence[Tensor], keep: bool | None, param_dtype: dtype | None, "
        "reduce_dtype: dtype | None, dim_of: object, offload: bool, pin: bool)") {
  PyObject *comm, *replicas, *modules, *ignored, *dim_of;
  bool offload, pin;
  px_device device;
  ext_optional_bool keep;
  px_dtype param_dtype, reduce_dtype;
  EXT_TENSORS items = {0};
  EXT_BIND(comm, replicas, modules, device, ignored, keep, param_dtype, reduce_dtype, dim_of,
           offload, pin);
  px_shard_options options = {.comm = ext_comm(comm),
                              .replicas = ext_is_none(replicas) ? NULL : ext_comm(replicas),
                              .device = device,
                              .keep = keep > 0,
                              .keep_outermost = keep < 0,
                              .param_dtype = param_dtype,
                              .reduce_dtype = reduce_dtype,
                              .dim_of = ext_is_none(dim_of) ? NULL : dim_for,
                              .dim_context = dim_of,
                              .offload = offload,
                              .pin = pin};
  if (PyErr_Occurred() || ext_take_tensors(&items, ext_items(ignored, "ignored must be a list"),
                                           "fully_shard", "ignored_params") < 0)
    return NULL;
  options.ignored = items.items;
  options.ignored_count = (int)items.count;
  px_shards *made = NULL;
  px_module **members = read_modules(modules);
  if (!members) return NULL;
  options.others = members + 1;
  options.other_count = (int)PySequence_Size(modules) - 1;
  px_status status = EXT_NOGIL(px_shards_new(&made, members[0], &options));
  PyMem_Free(members);
  EXT_TRY(status);
  return ext_wrap_core(type, made);
}
EXT_TYPE(shards, "torch._C._Shards", "_Shards", shards_object, EXT_FINAL | EXT_GC,
         "Parameters of a module, sharded over ranks.", EXT_LIFETIME_SLOTS(shards),
         .tp_new = shards_new);

// Name of a parameter, its shard as an object of the class, the full sizes, and the sharded
// dimension.
static PyObject *describe_shard(const px_shard *shard) {
  EXT_OWNED *part = px_tensor_user(shard->local)
                        ? ext_wrap_borrowed(shard->local)
                        : ext_wrap_as(ext_ShardedParameterType, px_retain(shard->local));
  EXT_OWNED *shape = ext_size(shard->ndim, shard->sizes);
  return part && shape ? Py_BuildValue("(sOOi)", shard->name, part, shape, shard->dim) : NULL;
}
EXT_METHOD0(shards, parameters, "list[tuple[str, Tensor, Any, int]]",
            "Returns name, shard, full size and sharded dimension of each parameter.") {
  EXT_OWNED *list = PyList_New(0);
  px_shard shard;
  for (int i = 0; list && px_shards_at(H(self), i, &shard); i++) {
    EXT_OWNED *item = describe_shard(&shard);
    if (!item || PyList_Append(list, item) < 0) return NULL;
  }
  return ext_moved(&list);
}

// ---- FSDPModule

typedef struct fsdp_module_object {
  PyObject_HEAD
} fsdp_module_object;
EXT_TYPE(fsdp_module, "torch.distributed.fsdp.FSDPModule", "_FSDPModule", fsdp_module_object,
         EXT_BASETYPE, "Base class added to a module by fully_shard.");

// Group owned by a module; NULL with ValueError for other objects.
static PyObject *object_of(PyObject *module) {
  bool is = PyObject_TypeCheck(module, &fsdp_module_type);
  EXT_OWNED *group = is ? PyObject_GetAttrString(module, "_fsdp") : NULL;
  if (group && PyObject_TypeCheck(group, &shards_type)) return group;
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_ValueError, "Expects FSDPModule but got %R: %S", (PyObject *)Py_TYPE(module),
                 module);
  return NULL;
}
static px_shards *group_of(PyObject *module) {
  PyObject *group = object_of(module);
  return group ? H(group) : NULL;
}

// Calls set(group, with) for the module and, with `recurse`, its descendants.
typedef void setting(px_shards *group, bool with);
static PyObject *set_all(PyObject *self, bool recurse, setting *set, bool with) {
  EXT_OWNED *found = recurse ? PyObject_CallMethod(self, "modules", NULL) : PyTuple_Pack(1, self);
  EXT_OWNED *modules = found ? PySequence_List(found) : NULL;
  for (Py_ssize_t i = 0; modules && i < PyList_GET_SIZE(modules); i++) {
    PyObject *module = PyList_GET_ITEM(modules, i);
    bool is = PyObject_TypeCheck(module, &fsdp_module_type);
    px_shards *group = is ? group_of(module) : NULL;
    if (is && !group) return NULL;
    if (group) set(group, with);
  }
  return modules ? Py_NewRef(Py_None) : NULL;
}
static void part_after_forward(px_shards *group, bool with) { px_shards_keep(group, false, !with); }
static void part_after_backward(px_shards *group, bool with) { px_shards_keep(group, true, !with); }
EXT_METHOD(fsdp_module, set_requires_gradient_sync,
           "(requires_gradient_sync: bool, *, recurse: bool = True) -> None",
           "Sets if backward should reduce gradients. If not, full gradients accumulate locally.") {
  bool requires_gradient_sync, recurse;
  EXT_BIND(requires_gradient_sync, recurse);
  return set_all(self, recurse, px_shards_reduce, requires_gradient_sync);
}
EXT_METHOD(fsdp_module, set_requires_all_reduce,
           "(requires_all_reduce: bool, *, recurse: bool = True) -> None",
           "Sets if backward should all-reduce gradients over replicas. If not, reduced gradients "
           "accumulate in each replica.") {
  bool requires_all_reduce, recurse;
  EXT_BIND(requires_all_reduce, recurse);
  return set_all(self, recurse, px_shards_average, requires_all_reduce);
}
EXT_METHOD(fsdp_module, set_reshard_after_forward,
           "(reshard_after_forward: bool, recurse: bool = True) -> None",
           "Sets if the module should free full parameters after forward.") {
  PyObject *reshard_after_forward;
  bool recurse;
  EXT_BIND(reshard_after_forward, recurse);
  if (!PyBool_Check(reshard_after_forward))
    EXT_FAIL(PyExc_ValueError, "reshard_after_forward should be a bool, got %R",
             (PyObject *)Py_TYPE(reshard_after_forward));
  return set_all(self, recurse, part_after_forward, reshard_after_forward == Py_True);
}
EXT_METHOD(fsdp_module, set_reshard_after_backward,
           "(reshard_after_backward: bool, *, recurse: bool = True) -> None",
           "Sets if the module should free full parameters after backward.") {
  bool reshard_after_backward, recurse;
  EXT_BIND(reshard_after_backward, recurse);
  return set_all(self, recurse, part_after_backward, reshard_after_backward);
}
EXT_METHOD(fsdp_module, set_unshard_in_backward, "(unshard_in_backward: bool) -> None",
           "Sets if backward gathers the parameters. Not needed by embeddings, for example.") {
  EXT_ARGS(bool, unshard_in_backward);
  return set_all(self, false, px_shards_gather_for_backward, unshard_in_backward);
}
EXT_METHOD(
    fsdp_module, set_post_optim_event, "(event: Any) -> None",
    "Sets the event after the optimizer step for the root module: the next forward waits for "
    "it\ninstead of the current stream before gathering.") {
  EXT_ARGS(PyObject *, event);
  px_event *native = NULL;
  px_shards *group = group_of(self);
  if (!group || (event != Py_None && ext_to_event(event, &native) < 0)) return NULL;
  return ext_none(px_shards_after_event(group, native));
}
EXT_METHOD(fsdp_module, set_is_last_backward, "(is_last_backward: bool) -> None",
           "Sets whether the next backward is the last one before the gradients are used.") {
  EXT_ARGS(bool, is_last_backward);
  return set_all(self, false, px_shards_last_backward, is_last_backward);
}

// The hook is owned by the object, which makes it visible to the garbage collector.
static px_status call_hook(px_tensor *reduced, void *group) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  EXT_OWNED *hook = Py_XNewRef(((shards_object *)group)->hook);
  EXT_OWNED *tensor = hook ? ext_wrap_borrowed(reduced) : NULL;
  EXT_OWNED *done = tensor ? PyObject_CallOneArg(hook, tensor) : NULL;
  px_status status = done || !hook ? PX_OK : ext_error_from_python();
  Py_CLEAR(done);
  Py_CLEAR(tensor);
  Py_CLEAR(hook);
  ext_gil_give(&gil);
  return status;
}
EXT_METHOD(
    fsdp_module, set_all_reduce_hook, "(hook: Callable, *, stream: Any | None = None) -> None",
    "Sets a hook that receives this rank's result of each reduction and may modify it before "
    "it becomes the gradient.") {
  PyObject *hook, *stream;
  px_stream *native = NULL;
  EXT_BIND(hook, stream);
  PyObject *group = object_of(self);
  if (!group || (!ext_is_none(stream) && ext_to_stream(stream, &native) < 0)) return NULL;
  EXT_WAIT(px_shards_on_reduced(H(group), call_hook, group, NULL, native));
  Py_XSETREF(((shards_object *)group)->hook, Py_NewRef(hook));
  Py_RETURN_NONE;
}

static PyObject *prefetch(PyObject *self, bool backward, PyObject *modules) {
  EXT_OWNED *list = ext_items(modules, "modules must be a list");
  px_shards *own = list ? group_of(self) : NULL;
  Py_ssize_t count = list ? PySequence_Fast_GET_SIZE(list) : 0;
  px_shards **groups = own ? PyMem_Calloc((size_t)count + 1, sizeof *groups) : NULL;
  if (!groups) return NULL;
  Py_ssize_t i = 0;
  while (i < count && (groups[i] = group_of(PySequence_Fast_GET_ITEM(list, i)))) i++;
  PyObject *done =
      i < count ? NULL : ext_none(px_shards_prefetch(own, backward, groups, (int)count));
  PyMem_Free(groups);
  return done;
}
EXT_METHOD(fsdp_module, set_modules_to_forward_prefetch, "(modules: Sequence[Any]) -> None",
           "Sets the modules to prefetch during this module's forward.") {
  EXT_ARGS(PyObject *, modules);
  return prefetch(self, false, modules);
}
EXT_METHOD(fsdp_module, set_modules_to_backward_prefetch, "(modules: Sequence[Any]) -> None",
           "Sets the modules to prefetch during this module's backward.") {
  EXT_ARGS(PyObject *, modules);
  return prefetch(self, true, modules);
}

static PyObject *divide(PyObject *self, double factor) {
  px_shards *group = group_of(self);
  if (group) px_shards_divide(group, factor);
  return group ? Py_NewRef(Py_None) : NULL;
}
EXT_METHOD(fsdp_module, set_gradient_divide_factor, "(factor: float) -> None",
           "Sets the divisor of gradient sums, instead of the number of ranks.") {
  EXT_ARGS(double, factor);
  return divide(self, factor);
}
EXT_METHOD(fsdp_module, set_reduce_scatter_divide_factor, "(factor: float) -> None",
           "Deprecated name of set_gradient_divide_factor.") {
  EXT_ARGS(double, factor);
  return divide(self, factor);
}

typedef struct handle_object {
  PyObject_HEAD PyObject *group;
} handle_object;
EXT_OWNS(unshard_handle, EXT_OBJECT(handle_object, group));
EXT_TYPE(unshard_handle, "torch.distributed.fsdp.UnshardHandle", "_UnshardHandle", handle_object,
         EXT_FINAL, "A handle to wait on an asynchronous unshard.",
         EXT_LIFETIME_SLOTS(unshard_handle));
EXT_METHOD0(unshard_handle, wait, "None",
            "Waits for the unshard: the parameters are full afterwards.") {
  EXT_WAIT(px_shards_unshard(H(((handle_object *)self)->group), false));
  Py_RETURN_NONE;
}
EXT_METHOD(
    fsdp_module, unshard, "(async_op: bool = False) -> Any",
    "Gathers the parameters. With async_op returns a handle with wait() instead of waiting.") {
  bool async_op;
  EXT_BIND(async_op);
  px_shards *group = group_of(self);
  if (!group) return NULL;
  EXT_WAIT(px_shards_unshard(group, async_op));
  EXT_OWNED *handle = async_op ? ext_new(&unshard_handle_type) : Py_NewRef(Py_None);
  if (handle && async_op) ((handle_object *)handle)->group = PyObject_GetAttrString(self, "_fsdp");
  return ext_moved(&handle);
}
EXT_METHOD0(fsdp_module, reshard, "None", "Frees the full parameters.") {
  px_shards *group = group_of(self);
  if (!group) return NULL;
  EXT_WAIT(px_shards_reshard(group));
  Py_RETURN_NONE;
}
EXT_METHOD(fsdp_module, __deepcopy__, "(memo: dict) -> Any", "Raises, as in PyTorch.") {
  EXT_FAIL(PyExc_AssertionError,
           "FSDP does not support deepcopy. Please use state dict for serialization.");
}

// ---- forward hooks

// Casts floating-point tensors to a dtype of the module's policy.
static PyObject *cast(PyObject *module, const char *name, PyObject *values) {
  px_dtype dtype;
  EXT_OWNED *policy = PyObject_GetAttrString(module, "_fsdp_policy");
  EXT_OWNED *wanted = policy ? PyObject_GetAttrString(policy, name) : NULL;
  if (!wanted || wanted == Py_None) return wanted ? Py_NewRef(values) : NULL;
  return ext_to_dtype(wanted, &dtype) < 0 ? NULL : ext_cast_tensors(values, dtype);
}

static int casts_inputs(PyObject *module) {
  EXT_OWNED *policy = PyObject_GetAttrString(module, "_fsdp_policy");
  EXT_OWNED *says = policy ? PyObject_GetAttrString(policy, "cast_forward_inputs") : NULL;
  return says ? PyObject_IsTrue(says) : -1;
}

typedef px_status around(px_shards *self, px_tensor *const *tensors, int count);
static int pass(PyObject *module, PyObject *values, around *call) {
  EXT_TENSORS items = {0};
  px_shards *group = group_of(module);
  EXT_OWNED *list = group ? ext_collect_tensors(values) : NULL;
  if (!list || ext_take_tensors(&items, Py_NewRef(list), "forward", "input") < 0) return -1;
  px_status status = EXT_NOGIL(call(group, items.items, (int)items.count));
  return ext_zero(status);
}

EXT_FUNCTION(torch, _fsdp_before, "(module: Any, args: tuple, kwargs: dict) -> tuple",
             "Pre-forward hook: gathers parameters and returns the arguments of forward.") {
  EXT_ARGS(PyObject *, module, args, kwargs);
  EXT_OWNED *given = PyTuple_Pack(2, args, kwargs);
  px_shards *group = given ? group_of(module) : NULL;
  if (!group) return NULL;
  if (!px_shards_enters(group, ext_module(module))) return ext_moved(&given);
  int casts = casts_inputs(module);
  if (casts < 0) return NULL;
  EXT_OWNED *values = casts ? cast(module, "param_dtype", given) : Py_NewRef(given);
  return values && pass(module, values, px_shards_before_forward) == 0 ? ext_moved(&values) : NULL;
}
EXT_FUNCTION(torch, _fsdp_after, "(module: Any, args: tuple, result: object) -> object",
             "Forward hook: frees parameters and returns the result, None after an error.") {
  EXT_ARGS(PyObject *, module, args, result);
  px_shards *group = group_of(module);
  if (!group) return NULL;
  if (result == Py_None) {
    px_shards_forward_failed(group);
    return Py_NewRef(Py_None);
  }
  if (!px_shards_leaves(group, ext_module(module))) return Py_NewRef(result);
  EXT_OWNED *value = cast(module, "output_dtype", result);
  return value && pass(module, value, px_shards_after_forward) == 0 ? ext_moved(&value) : NULL;
}
