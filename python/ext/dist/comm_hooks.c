// SPDX-License-Identifier: Apache-2.0
// torch.distributed.algorithms.ddp_comm_hooks.default_hooks: communication hooks reducing the
// buckets of DistributedDataParallel.
#include "dist/group.h"
#include "phlox/ops/arithmetic.h"

EXT_MODULE(algorithms, "distributed.algorithms", "Distributed algorithms built from collectives.");
EXT_MODULE(ddp_comm_hooks, "distributed.algorithms.ddp_comm_hooks",
           "Communication hooks of DistributedDataParallel.");
EXT_MODULE(comm_hooks, "distributed.algorithms.ddp_comm_hooks.default_hooks",
           "Communication hooks of DistributedDataParallel.");

// ---- callbacks of futures, bound to a value

static PyObject *then_call(PyObject *future_take, PyMethodDef *def, PyObject *with) {
  EXT_OWNED *future = future_take;
  EXT_OWNED *callback = future ? PyCFunction_New(def, with) : NULL;
  return callback ? PyObject_CallMethod(future, "then", "(O)", callback) : NULL;
}

// Tensor of a future's value: the value itself, or the only item of a list.
static PyObject *value_of(PyObject *future) {
  EXT_OWNED *value = PyObject_CallMethod(future, "value", NULL);
  if (value && PyList_Check(value) && PyList_GET_SIZE(value) == 1)
    return Py_NewRef(PyList_GET_ITEM(value, 0));
  return ext_moved(&value);
}

static PyObject *first_value(PyObject *unused, PyObject *future) { return value_of(future); }
static PyMethodDef first_def = {"first", first_value, METH_O, NULL};

static PyObject *decompress(PyObject *buffer, PyObject *future) {
  EXT_OWNED *value = value_of(future);
  return value ? PyObject_CallMethod(buffer, "copy_", "(O)", value) : NULL;
}
static PyMethodDef decompress_def = {"decompress", decompress, METH_O, NULL};

// ---- the hooks

// Future of the mean over a group; None is the default group.
static PyObject *mean_async(PyObject *given, PyObject *tensor) {
  PyObject *group = ext_group(given);
  px_comm *comm = group ? ext_comm(group) : NULL;
  if (!comm || !ext_need_tensor(tensor, "a communication hook", "buffer")) return NULL;
  EXT_TRY(px_div_scalar_(ext_tensor(tensor), px_int(px_comm_size(comm))));
  EXT_OWNED *work = ext_all_reduce_async(group, tensor);
  return work ? PyObject_CallMethod(work, "get_future", NULL) : NULL;
}

static PyObject *buffer_of(PyObject *bucket) {
  if (bucket) return PyObject_CallMethod(bucket, "buffer", NULL);
  EXT_FAIL(PyExc_TypeError, "a communication hook expects a bucket");
}

static PyObject *as_dtype(PyObject *tensor, px_dtype dtype) {
  return ext_convert(tensor, PX_DEVICE_NONE, dtype, false, false);
}

EXT_FUNCTION(comm_hooks, allreduce_hook, "(process_group: Any | None, bucket: Any) -> Any",
             "Averages a bucket with allreduce, as without a hook.") {
  EXT_ARGS(PyObject *, process_group, bucket);
  EXT_OWNED *buffer = buffer_of(bucket);
  return buffer ? then_call(mean_async(process_group, buffer), &first_def, NULL) : NULL;
}

static PyObject *compressed(PyObject *group, PyObject *bucket, px_dtype dtype) {
  EXT_OWNED *buffer = buffer_of(bucket);
  EXT_OWNED *small = buffer ? as_dtype(buffer, dtype) : NULL;
  return small ? then_call(mean_async(group, small), &decompress_def, buffer) : NULL;
}
EXT_FUNCTION(comm_hooks, fp16_compress_hook, "(process_group: Any | None, bucket: Any) -> Any",
             "Averages a bucket, communicated in float16.") {
  EXT_ARGS(PyObject *, process_group, bucket);
  return compressed(process_group, bucket, PX_FLOAT16);
}
EXT_FUNCTION(comm_hooks, bf16_compress_hook, "(process_group: Any | None, bucket: Any) -> Any",
             "Averages a bucket, communicated in bfloat16.") {
  EXT_ARGS(PyObject *, process_group, bucket);
  return compressed(process_group, bucket, PX_BFLOAT16);
}

// ---- hooks around hooks

// Runs a hook, given as (hook, dtype), on the bucket cast to a dtype.
static PyObject *run_wrapped(PyObject *pair, PyObject *args) {
  PyObject *state, *bucket;
  px_dtype dtype;
  if (!PyArg_ParseTuple(args, "OO", &state, &bucket) ||
      ext_to_dtype(PyTuple_GET_ITEM(pair, 1), &dtype) < 0)
    return NULL;
  EXT_OWNED *buffer = buffer_of(bucket);
  EXT_OWNED *small = buffer ? as_dtype(buffer, dtype) : NULL;
  EXT_OWNED *set = small ? PyObject_CallMethod(bucket, "set_buffer", "(O)", small) : NULL;
  if (!set) return NULL;
  return then_call(PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(pair, 0), state, bucket, NULL),
                   &decompress_def, buffer);
}
static PyMethodDef wrapped_def = {"compress_wrapper_hook", run_wrapped, METH_VARARGS, NULL};

static PyObject *wrap_hook(PyObject *hook, px_dtype dtype) {
  if (!hook || !PyCallable_Check(hook))
    EXT_FAIL(PyExc_TypeError, "Communication hook must be callable.");
  EXT_OWNED *object = ext_dtype(dtype);
  EXT_OWNED *pair = object ? PyTuple_Pack(2, hook, object) : NULL;
  return pair ? PyCFunction_New(&wrapped_def, pair) : NULL;
}
EXT_FUNCTION(comm_hooks, fp16_compress_wrapper, "(hook: Callable) -> Callable",
             "Wraps a hook to communicate in float16.") {
  EXT_ARGS(PyObject *, hook);
  return wrap_hook(hook, PX_FLOAT16);
}
EXT_FUNCTION(comm_hooks, bf16_compress_wrapper, "(hook: Callable) -> Callable",
             "Wraps a hook to communicate in bfloat16.") {
  EXT_ARGS(PyObject *, hook);
  return wrap_hook(hook, PX_BFLOAT16);
}

EXT_MODULE(debugging_hooks, "distributed.algorithms.ddp_comm_hooks.debugging_hooks",
           "Communication hooks for measuring communication overhead.");
EXT_FUNCTION(debugging_hooks, noop_hook, "(_: Any, bucket: Any) -> Any",
             "Returns the bucket unchanged: ranks continue with their own gradients.") {
  EXT_ARGS(PyObject *, _, bucket);
  EXT_OWNED *buffer = buffer_of(bucket);
  EXT_OWNED *future = buffer ? ext_future_new() : NULL;
  if (!future || ext_future_complete(future, buffer, false) < 0) return NULL;
  return ext_moved(&future);
}
