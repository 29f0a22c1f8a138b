// SPDX-License-Identifier: Apache-2.0
// Collectives of torch.distributed. Argument types are checked here, as in PyTorch; the core checks
// sizes, dtypes and devices before any communication.
#include <string.h>

#include "dist/group.h"

// ---- arguments

static int fail_argument(const char *name, const char *type, PyObject *given) {
  EXT_FAIL_INT(PyExc_TypeError,
               "Invalid function argument. Expected parameter `%s` of type %s\n"
               "             but got %S instead.",
               name, type, (PyObject *)Py_TYPE(given ? given : Py_None));
}

static int read_tensor(ext_tensors *to, const char *name, PyObject *given) {
  if (!given || !ext_is_tensor(given)) return fail_argument(name, "torch.Tensor", given);
  return ext_take_tensors(to, PyTuple_Pack(1, given), "a collective", name);
}

static int read_list(ext_tensors *to, const char *name, PyObject *given) {
  bool list = given && (PyList_Check(given) || PyTuple_Check(given));
  EXT_OWNED *items = list ? PySequence_List(given) : NULL;
  for (Py_ssize_t i = 0; items && list && i < PyList_GET_SIZE(items); i++)
    list = ext_is_tensor(PyList_GET_ITEM(items, i));
  if (!list) return fail_argument(name, "List[torch.Tensor]", given);
  return items ? ext_take_tensors(to, ext_moved(&items), "a collective", name) : -1;
}

// Resolves the root, given as a global or a group rank; EXT_NO_INT: not given. No-op for a group
// without this process.
static int resolve_root(px_collective *c, PyObject *group, int64_t rank, int64_t group_rank,
                        int64_t fallback) {
  if (rank != EXT_NO_INT && group_rank != EXT_NO_INT)
    EXT_FAIL_INT(PyExc_ValueError, "Can't specify both group_rank and global_rank");
  PyObject *own = ext_member_group(group);
  if (!own) return PyErr_Occurred() ? -1 : 0;
  if (group_rank != EXT_NO_INT) return c->peer = ext_clamp_device_index(group_rank), 0;
  if (rank == EXT_NO_INT) rank = fallback;
  c->peer = rank < 0 ? -1 : ext_group_rank(own, rank);
  return rank >= 0 && c->peer < 0 ? -1 : 0;
}

// A reduction: sum of the ranks' values multiplied by a factor each.
typedef struct premul_object {
  PyObject_HEAD double factor;
} premul_object;
EXT_NEW(premul, "()") {
  EXT_FAIL(PyExc_TypeError, "created by torch.distributed._make_nccl_premul_sum");
}
EXT_TYPE(premul, "torch.distributed._PremulSum", "distributed._PremulSum", premul_object, EXT_FINAL,
         "The sum of the ranks' values, premultiplied by a factor.", .tp_new = premul_new);
EXT_FUNCTION(dist, _make_nccl_premul_sum, "(factor: float | Tensor) -> Any",
             "Returns a reduction: the sum of the ranks' values, premultiplied by a factor.") {
  EXT_ARGS(PyObject *, factor);
  EXT_OWNED *number = factor ? PyNumber_Float(factor) : NULL;
  premul_object *made = number ? ext_new(&premul_type) : NULL;
  if (made) made->factor = PyFloat_AS_DOUBLE(number);
  return (PyObject *)made;
}

static int read_reduction(px_collective *c, PyObject *op) {
  int64_t number = PX_REDUCE_SUM;
  if (op && Py_IS_TYPE(op, &premul_type)) {
    c->factor = ((premul_object *)op)->factor;
    number = PX_REDUCE_PREMUL_SUM;
  } else if (op && op != Py_None && ext_to_int(op, &number) < 0) {
    EXT_FAIL_INT(PyExc_TypeError, "op must be a torch.distributed.ReduceOp, not %s",
                 ext_type_name(op));
  } else if (number == PX_REDUCE_PREMUL_SUM) {
    EXT_FAIL_INT(PyExc_ValueError,
                 "ReduceOp.PREMUL_SUM needs a factor: torch.distributed._make_nccl_premul_sum");
  }
  return c->reduce = (px_reduce_op)number, 0;
}

// ---- coalescing: works with a common wait

typedef struct coalescing_object {
  PyObject_HEAD PyObject *group, *works;  // works: a list
  bool async;
} coalescing_object;
static coalescing_object *coalescing_of(PyObject *self) { return (coalescing_object *)self; }
static PyObject *coalescing_groups;  // dict of groups with active coalescing; guarded by the GIL
EXT_OWNS(coalescing, EXT_OBJECT(coalescing_object, group), EXT_OBJECT(coalescing_object, works));
EXT_NEW(coalescing, "()") {
  PyObject *self = ext_new(type);
  if (self) coalescing_of(self)->works = PyList_New(0);
  return self;
}
EXT_TYPE(coalescing, "torch.distributed._CoalescingManager", "distributed._CoalescingManager",
         coalescing_object, EXT_BASETYPE, "Collectives with a common wait.",
         EXT_LIFETIME_SLOTS(coalescing), .tp_new = coalescing_new);
EXT_GET(coalescing, works, "list[Any]", Py_NewRef(coalescing_of(self)->works),
        "The pending works.");
EXT_METHOD(coalescing, append, "(work: Any | None = None) -> None", "Appends a work.") {
  EXT_ARGS(PyObject *, work);
  return ext_none_unless(work && work != Py_None &&
                         PyList_Append(coalescing_of(self)->works, work) < 0);
}
EXT_METHOD0(coalescing, wait, "None", "Waits for all works.") {
  PyObject *works = coalescing_of(self)->works;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(works); i++) {
    EXT_OWNED *waited = PyObject_CallMethod(PyList_GET_ITEM(works, i), "wait", NULL);
    if (!waited) return NULL;
  }
  Py_RETURN_NONE;
}
EXT_METHOD0(coalescing, __enter__, "Any", "Starts coalescing the collectives of the group.") {
  PyObject *group = ext_member_group(coalescing_of(self)->group);
  if (!group) return PyErr_Occurred() ? NULL : Py_NewRef(self);
  if (!coalescing_groups && !(coalescing_groups = PyDict_New())) return NULL;
  if (PyDict_Contains(coalescing_groups, group))
    EXT_FAIL(PyExc_ValueError, "ProcessGroup has non-empty op list at the start of coalescing");
  Py_XSETREF(coalescing_of(self)->group, Py_NewRef(group));
  return PyDict_SetItem(coalescing_groups, group, self) < 0 ? NULL : Py_NewRef(self);
}
EXT_METHOD(coalescing, __exit__, "(*exception: Any) -> None",
           "Ends coalescing and waits for the works unless asynchronous.") {
  ext_varargs exception;
  EXT_BIND(exception);
  PyObject *group = coalescing_of(self)->group;
  if (coalescing_groups && group && PyDict_GetItemWithError(coalescing_groups, group) == self &&
      PyDict_DelItem(coalescing_groups, group) < 0)
    return NULL;
  if (coalescing_of(self)->async || (exception.count && exception.items[0] != Py_None))
    Py_RETURN_NONE;
  return coalescing_wait(self, NULL);
}
EXT_FUNCTION(dist, _coalescing_manager,
             "(group: Any | None = None, device: Device | None = None, async_ops: bool = False) -> "
             "Any",
             "Context manager to coalesce collectives of a group: they do not wait; the exit, or "
             "wait(), waits for all of them.") {
  PyObject *group, *device;
  bool async_ops;
  EXT_BIND(group, device, async_ops);
  PyObject *made = coalescing_construct(&coalescing_type, NULL);
  if (!made) return NULL;
  coalescing_of(made)->group = Py_XNewRef(group);
  coalescing_of(made)->async = async_ops;
  return made;
}

// ---- launch

static PyObject *warn_not_in(const char *name) {
  if (PyErr_WarnFormat(PyExc_UserWarning, 1,
                       "Running %s on global rank %d which does not belong to the given group.",
                       name, px_comm_rank(ext_comm(ext_group(NULL)))) < 0)
    return NULL;
  Py_RETURN_NONE;
}

static bool all_on_device(const ext_tensors *tensors) {
  for (Py_ssize_t i = 0; i < tensors->count; i++)
    if (px_tensor_device(tensors->items[i]).type != PX_CUDA) return false;
  return true;
}

static PyObject *begin_in(PyObject *group, px_collective *c, const ext_tensors *in,
                          const ext_tensors *out) {
  px_work *work;
  EXT_OWNED *backend = PyObject_Str(G(group)->backend);
  const char *name = backend ? PyUnicode_AsUTF8(backend) : NULL;
  if (!name) return NULL;
  if (!strcmp(name, "nccl") && !(all_on_device(in) && all_on_device(out)))
    EXT_FAIL(PyExc_RuntimeError, "No backend type associated with device type cpu");
  c->inputs = in->items, c->input_count = (int)in->count;
  c->outputs = out->items, c->output_count = (int)out->count;
  EXT_OWNED *outputs = c->op == PX_SEND || c->op == PX_RECV ? Py_NewRef(Py_None)
                       : out->owner                         ? PySequence_List(out->owner)
                                                            : PyList_New(0);
  if (!outputs) return NULL;
  EXT_WAIT(px_comm_run(&work, G(group)->comm, c));
  return ext_work(work, outputs == Py_None ? NULL : outputs);
}

PyObject *ext_all_reduce_async(PyObject *group, PyObject *tensor) {
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_ALL_REDUCE};
  return read_tensor(&out, "tensor", tensor) < 0 ? NULL : begin_in(group, &c, &in, &out);
}

static PyObject *wait_for(PyObject *work_take) {
  EXT_OWNED *work = work_take;
  EXT_OWNED *waited = work ? PyObject_CallMethod(work, "wait", NULL) : NULL;
  return waited ? Py_NewRef(Py_None) : NULL;
}

static PyObject *begin(const char *name, PyObject *given, px_collective *c, const ext_tensors *in,
                       const ext_tensors *out, bool async) {
  PyObject *group = ext_member_group(given);
  if (!group) return PyErr_Occurred() ? NULL : warn_not_in(name);
  EXT_OWNED *work = begin_in(group, c, in, out);
  PyObject *coalescing =
      coalescing_groups ? PyDict_GetItemWithError(coalescing_groups, group) : NULL;
  if (!work || (!coalescing && PyErr_Occurred())) return NULL;
  if (coalescing) return ext_none_unless(PyList_Append(coalescing_of(coalescing)->works, work) < 0);
  return async ? ext_moved(&work) : wait_for(ext_moved(&work));
}

static const char *const names[] = {
#define XX(name, text) text,
    PX_COLLECTIVE_MAP(XX)
#undef XX
};
// Blocking collective used to exchange objects (_groups.py).
EXT_FUNCTION(dist, _exchange,
             "(group: Any, op: str, input: Tensor | None, outputs: Sequence[Tensor], root: int = "
             "0) -> None",
             "Runs a collective and waits for it.") {
  PyObject *group, *input, *outputs;
  const char *op;
  int64_t root;
  EXT_BIND(group, op, input, outputs, root);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  PyObject *own = ext_member_group(group);
  px_collective c = {.peer = (int)root};
  while (c.op < PX_COLLECTIVE_COUNT && strcmp(op, names[c.op])) c.op++;
  if (!own || (input && input != Py_None && read_tensor(&in, "input", input) < 0) ||
      read_list(&out, "outputs", outputs) < 0)
    return NULL;
  return wait_for(begin_in(own, &c, &in, &out));
}

// ---- collectives with one tensor per rank

EXT_FUNCTION(dist, broadcast,
             "(tensor: Tensor, src: int | None = None, group: Any | None = None, async_op: bool = "
             "False, group_src: int | None = None) -> Any",
             "Broadcasts the tensor to the whole group.") {
  PyObject *tensor, *group;
  int64_t src, group_src;
  bool async_op;
  EXT_BIND(tensor, src, group, async_op, group_src);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_BROADCAST};
  if (read_tensor(&out, "tensor", tensor) < 0 || resolve_root(&c, group, src, group_src, 0) < 0)
    return NULL;
  return begin("broadcast", group, &c, &in, &out, async_op);
}

// A sparse tensor is a record of Python (phlox/sparse.py).
static PyObject *reduce_sparse(PyObject *tensor, PyObject *op, PyObject *group, bool async_op) {
  EXT_OWNED *module = PyImport_ImportModule("phlox.distributed._sparse");
  return module ? PyObject_CallMethod(module, "all_reduce", "OOOO", tensor, op ? op : Py_None,
                                      group ? group : Py_None, async_op ? Py_True : Py_False)
                : NULL;
}

EXT_FUNCTION(
    dist, all_reduce,
    "(tensor: Tensor, op: Any | None = None, group: Any | None = None, async_op: bool = "
    "False) -> Any",
    "Reduces the tensor data across all machines in-place: all ranks get the final result.") {
  PyObject *tensor, *op, *group;
  bool async_op;
  EXT_BIND(tensor, op, group, async_op);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_ALL_REDUCE};
  if (tensor && !ext_is_tensor(tensor) && PyObject_HasAttrString(tensor, "_coords"))
    return reduce_sparse(tensor, op, group, async_op);
  if (read_tensor(&out, "tensor", tensor) < 0 || read_reduction(&c, op) < 0) return NULL;
  return begin("all_reduce", group, &c, &in, &out, async_op);
}

EXT_FUNCTION(dist, all_reduce_coalesced,
             "(tensors: Sequence[Tensor], op: Any | None = None, group: Any | None = None, "
             "async_op: bool = False) -> Any",
             "Reduces several tensors across all ranks in-place with one call.") {
  PyObject *tensors, *op, *group;
  bool async_op;
  EXT_BIND(tensors, op, group, async_op);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_ALL_REDUCE};
  int bad = tensors && ext_is_tensor(tensors) ? read_tensor(&out, "tensor", tensors)
                                              : read_list(&out, "tensor", tensors);
  if (bad < 0 || read_reduction(&c, op) < 0) return NULL;
  return begin("all_reduce_coalesced", group, &c, &in, &out, async_op);
}

EXT_FUNCTION(dist, reduce,
             "(tensor: Tensor, dst: int | None = None, op: Any | None = None, group: Any | None = "
             "None, async_op: bool = False, group_dst: int | None = None) -> Any",
             "Reduces the tensor data across all machines into the tensor of rank dst.") {
  PyObject *tensor, *op, *group;
  int64_t dst, group_dst;
  bool async_op;
  EXT_BIND(tensor, dst, op, group, async_op, group_dst);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_REDUCE};
  if (read_tensor(&out, "tensor", tensor) < 0 || read_reduction(&c, op) < 0 ||
      resolve_root(&c, group, dst, group_dst, 0) < 0)
    return NULL;
  return begin("reduce", group, &c, &in, &out, async_op);
}

// ---- collectives with tensors of all ranks

EXT_FUNCTION(dist, all_gather,
             "(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any | None = None, async_op: "
             "bool = False) -> Any",
             "Gathers tensors from the whole group in a list.") {
  PyObject *tensor_list, *tensor, *group;
  bool async_op;
  EXT_BIND(tensor_list, tensor, group, async_op);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_ALL_GATHER};
  if (read_list(&out, "tensor_list", tensor_list) < 0 || read_tensor(&in, "tensor", tensor) < 0)
    return NULL;
  return begin("all_gather", group, &c, &in, &out, async_op);
}

// One all_gather per tensor. They complete in order, so the last work represents all.
static PyObject *gather_each(PyObject *lists, PyObject *tensors, PyObject *group, bool async) {
  PyObject *last = NULL;
  Py_ssize_t count = PyList_GET_SIZE(tensors), ranks = PyList_GET_SIZE(lists);
  for (Py_ssize_t i = 0; i < count; i++) {
    EXT_TENSORS in = {0};
    EXT_TENSORS out = {0};
    EXT_OWNED *column = PyList_New(0);
    for (Py_ssize_t r = 0; column && r < ranks; r++) {
      EXT_OWNED *one = PySequence_GetItem(PyList_GET_ITEM(lists, r), i);
      if (!one || PyList_Append(column, one) < 0) return Py_XDECREF(last), NULL;
    }
    px_collective c = {.op = PX_ALL_GATHER};
    Py_XSETREF(last, NULL);
    if (!column || read_list(&out, "output_tensor_lists", column) < 0 ||
        read_tensor(&in, "input_tensor_list", PyList_GET_ITEM(tensors, i)) < 0 ||
        !(last = begin("all_gather_coalesced", group, &c, &in, &out, true)))
      return NULL;
  }
  if (async || !last || last == Py_None) return last ? last : Py_NewRef(Py_None);
  return wait_for(last);
}

EXT_FUNCTION(dist, all_gather_coalesced,
             "(output_tensor_lists: Sequence[Any], input_tensor_list: Sequence[Tensor], group: Any "
             "| None = None, async_op: bool = False) -> Any",
             "Gathers input tensors from the whole group in a list of lists.") {
  PyObject *output_tensor_lists, *input_tensor_list, *group;
  bool async_op;
  EXT_BIND(output_tensor_lists, input_tensor_list, group, async_op);
  EXT_TENSORS in = {0};
  if (read_list(&in, "input_tensor_list", input_tensor_list) < 0) return NULL;
  if (!output_tensor_lists || !PyList_Check(output_tensor_lists))
    EXT_FAIL(PyExc_RuntimeError, "Invalid function argument: output_tensor_lists should be a list");
  EXT_OWNED *lists = PySequence_List(output_tensor_lists);
  EXT_OWNED *tensors = PySequence_List(input_tensor_list);
  return lists && tensors ? gather_each(lists, tensors, group, async_op) : NULL;
}

// A collective with one input and one output tensor.
static PyObject *one_to_one(const char *name, px_collective *c, PyObject *input,
                            const char *input_name, PyObject *output, const char *output_name,
                            PyObject *group, bool async) {
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  if (read_tensor(&in, input_name, input) < 0 || read_tensor(&out, output_name, output) < 0)
    return NULL;
  return begin(name, group, c, &in, &out, async);
}

EXT_FUNCTION(dist, all_gather_into_tensor,
             "(output_tensor: Tensor, input_tensor: Tensor, group: Any | None = None, async_op: "
             "bool = False) -> Any",
             "Gathers tensors from all ranks and puts them in a single output tensor.") {
  PyObject *output_tensor, *input_tensor, *group;
  bool async_op;
  EXT_BIND(output_tensor, input_tensor, group, async_op);
  px_collective c = {.op = PX_ALL_GATHER};
  return one_to_one("all_gather_into_tensor", &c, input_tensor, "input_tensor", output_tensor,
                    "output_tensor", group, async_op);
}
EXT_ALIASES(dist, dist_all_gather_into_tensor, _all_gather_base);

EXT_FUNCTION(dist, reduce_scatter_tensor,
             "(output: Tensor, input: Tensor, op: Any | None = None, group: Any | None = None, "
             "async_op: bool = False) -> Any",
             "Reduces, then scatters a tensor to all ranks in a group.") {
  PyObject *output, *input, *op, *group;
  bool async_op;
  EXT_BIND(output, input, op, group, async_op);
  px_collective c = {.op = PX_REDUCE_SCATTER};
  if (read_reduction(&c, op) < 0) return NULL;
  return one_to_one("reduce_scatter_tensor", &c, input, "input", output, "output", group, async_op);
}
EXT_ALIASES(dist, dist_reduce_scatter_tensor, _reduce_scatter_base);

EXT_FUNCTION(dist, reduce_scatter,
             "(output: Tensor, input_list: Sequence[Tensor], op: Any | None = None, group: Any | "
             "None = None, async_op: bool = False) -> Any",
             "Reduces, then scatters a list of tensors to all processes in a group.") {
  PyObject *output, *input_list, *op, *group;
  bool async_op;
  EXT_BIND(output, input_list, op, group, async_op);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_REDUCE_SCATTER};
  if (read_tensor(&out, "output", output) < 0 || read_list(&in, "input_list", input_list) < 0 ||
      read_reduction(&c, op) < 0)
    return NULL;
  return begin("reduce_scatter", group, &c, &in, &out, async_op);
}

EXT_FUNCTION(dist, all_to_all,
             "(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: "
             "Any | None = None, async_op: bool = False) -> Any",
             "Scatters a list of input tensors to all processes and returns the gathered list.") {
  PyObject *output_tensor_list, *input_tensor_list, *group;
  bool async_op;
  EXT_BIND(output_tensor_list, input_tensor_list, group, async_op);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_ALL_TO_ALL};
  if (read_list(&out, "output_tensor_list", output_tensor_list) < 0 ||
      read_list(&in, "input_tensor_list", input_tensor_list) < 0)
    return NULL;
  return begin("all_to_all", group, &c, &in, &out, async_op);
}

// Converts split sizes (rows per rank) to element counts, owned by the caller. *out is NULL for
// None and empty sizes.
static int read_counts(int64_t **out, PyObject *sizes, PyObject *tensor, PyObject *group) {
  *out = NULL;
  if (!sizes || sizes == Py_None || !tensor || !ext_is_tensor(tensor)) return 0;
  EXT_OWNED *items = ext_items(sizes, "split sizes must be a sequence of int");
  if (!items) return -1;
  const px_tensor *t = ext_tensor(tensor);
  Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  int64_t rows = px_tensor_ndim(t) ? px_tensor_size(t, 0) : 0;
  if (!count) return 0;
  if (count != px_comm_size(G(group)->comm))
    EXT_FAIL_INT(PyExc_RuntimeError, "Number of tensor splits not equal to group size");
  if (!(*out = PyMem_Calloc((size_t)count, sizeof **out))) return PyErr_NoMemory(), -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (ext_to_int(PySequence_Fast_GET_ITEM(items, i), &(*out)[i]) < 0) return -1;
    (*out)[i] *= rows ? px_tensor_numel(t) / rows : 1;
  }
  return 0;
}

EXT_FUNCTION(
    dist, all_to_all_single,
    "(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None, "
    "input_split_sizes: Sequence[int] | None = None, group: Any | None = None, async_op: "
    "bool = False) -> Any",
    "Splits the input tensor along dim 0 and scatters the splits to all processes in a group.") {
  PyObject *output, *input, *output_split_sizes, *input_split_sizes, *group, *work = NULL;
  bool async_op;
  EXT_BIND(output, input, output_split_sizes, input_split_sizes, group, async_op);
  PyObject *own = ext_member_group(group);
  if (!own) return PyErr_Occurred() ? NULL : warn_not_in("all_to_all_single");
  int64_t *to = NULL, *from = NULL;
  if (read_counts(&to, input_split_sizes, input, own) == 0 &&
      read_counts(&from, output_split_sizes, output, own) == 0) {
    px_collective c = {.op = PX_ALL_TO_ALL, .input_counts = to, .output_counts = from};
    work = one_to_one("all_to_all_single", &c, input, "input", output, "output", group, async_op);
  }
  PyMem_Free(to);
  PyMem_Free(from);
  return work;
}

// ---- collectives with a list on the root

// 1 if this rank is the root with the list, 0 for other ranks, -1 with ValueError on a mismatch.
static int has_list(PyObject *group, const px_collective *c, PyObject *list, const char *name,
                    const char *side) {
  PyObject *own = ext_member_group(group);
  if (!own) return PyErr_Occurred() ? -1 : 0;
  bool root = px_comm_rank(G(own)->comm) == c->peer;
  int given = list ? PyObject_IsTrue(list) : 0;
  if (given < 0) return -1;
  if (root && !given)
    EXT_FAIL_INT(PyExc_ValueError, "Argument ``%s`` must be specified on %s rank.", name, side);
  if (!root && given)
    EXT_FAIL_INT(PyExc_ValueError, "Argument ``%s`` must NOT be specified on non-%s ranks.", name,
                 side);
  return root;
}

EXT_FUNCTION(dist, gather,
             "(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = "
             "None, group: Any | None = None, async_op: bool = False, group_dst: int | None = "
             "None) -> Any",
             "Gathers a list of tensors in a single process.") {
  PyObject *tensor, *gather_list, *group;
  int64_t dst, group_dst;
  bool async_op;
  EXT_BIND(tensor, gather_list, dst, group, async_op, group_dst);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_GATHER};
  if (read_tensor(&in, "tensor", tensor) < 0 || resolve_root(&c, group, dst, group_dst, 0) < 0)
    return NULL;
  int has = has_list(group, &c, gather_list, "gather_list", "destination");
  if (has < 0 || (has && read_list(&out, "gather_list", gather_list) < 0)) return NULL;
  return begin("gather", group, &c, &in, &out, async_op);
}

EXT_FUNCTION(dist, scatter,
             "(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = "
             "None, group: Any | None = None, async_op: bool = False, group_src: int | None = "
             "None) -> Any",
             "Scatters a list of tensors to all processes in a group.") {
  PyObject *tensor, *scatter_list, *group;
  int64_t src, group_src;
  bool async_op;
  EXT_BIND(tensor, scatter_list, src, group, async_op, group_src);
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_SCATTER};
  if (read_tensor(&out, "tensor", tensor) < 0 || resolve_root(&c, group, src, group_src, 0) < 0)
    return NULL;
  int has = has_list(group, &c, scatter_list, "scatter_list", "source");
  if (has < 0 || (has && read_list(&in, "scatter_list", scatter_list) < 0)) return NULL;
  return begin("scatter", group, &c, &in, &out, async_op);
}

// ---- point-to-point

static PyObject *begin_send(PyObject *tensor, int64_t dst, PyObject *group, int64_t tag,
                            int64_t group_dst, bool async) {
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_SEND, .tag = (int)tag};
  if (read_tensor(&in, "tensor", tensor) < 0 || resolve_root(&c, group, dst, group_dst, 0) < 0)
    return NULL;
  return begin(async ? "isend" : "send", group, &c, &in, &out, async);
}
EXT_FUNCTION(dist, isend,
             "(tensor: Tensor, dst: int | None = None, group: Any | None = None, tag: int = 0, "
             "group_dst: int | None = None) -> Any",
             "Sends a tensor asynchronously.") {
  PyObject *tensor, *group;
  int64_t dst, tag, group_dst;
  EXT_BIND(tensor, dst, group, tag, group_dst);
  return begin_send(tensor, dst, group, tag, group_dst, true);
}
EXT_FUNCTION(dist, send,
             "(tensor: Tensor, dst: int | None = None, group: Any | None = None, tag: int = 0, "
             "group_dst: int | None = None) -> None",
             "Sends a tensor synchronously.") {
  PyObject *tensor, *group;
  int64_t dst, tag, group_dst;
  EXT_BIND(tensor, dst, group, tag, group_dst);
  return begin_send(tensor, dst, group, tag, group_dst, false);
}

static PyObject *begin_recv(const char *name, PyObject *tensor, int64_t src, PyObject *group,
                            int64_t tag, int64_t group_src) {
  EXT_TENSORS in = {0};
  EXT_TENSORS out = {0};
  px_collective c = {.op = PX_RECV, .tag = (int)tag};
  if (read_tensor(&out, "tensor", tensor) < 0 || resolve_root(&c, group, src, group_src, -1) < 0)
    return NULL;
  return begin(name, group, &c, &in, &out, true);
}
EXT_FUNCTION(dist, irecv,
             "(tensor: Tensor, src: int | None = None, group: Any | None = None, tag: int = 0, "
             "group_src: int | None = None) -> Any",
             "Receives a tensor asynchronously, from any rank by default.") {
  PyObject *tensor, *group;
  int64_t src, tag, group_src;
  EXT_BIND(tensor, src, group, tag, group_src);
  return begin_recv("irecv", tensor, src, group, tag, group_src);
}
EXT_FUNCTION(dist, recv,
             "(tensor: Tensor, src: int | None = None, group: Any | None = None, tag: int = 0, "
             "group_src: int | None = None) -> int",
             "Receives a tensor synchronously and returns the sender rank.") {
  PyObject *tensor, *group;
  int64_t src, tag, group_src;
  EXT_BIND(tensor, src, group, tag, group_src);
  PyObject *own = ext_member_group(group);
  EXT_OWNED *work = begin_recv("recv", tensor, src, group, tag, group_src);
  if (!work || !own || work == Py_None) return work ? PyLong_FromLong(-1) : NULL;
  EXT_OWNED *done = wait_for(Py_NewRef(work));
  EXT_OWNED *from = done ? PyObject_CallMethod(work, "source_rank", NULL) : NULL;
  if (!from) return NULL;
  long rank = PyLong_AsLong(from);
  if (rank >= 0) return Py_NewRef(PyTuple_GET_ITEM(G(own)->ranks, rank));
  return PyLong_FromLongLong(src == EXT_NO_INT ? group_src : src);
}

static int read_pair(px_collective *c, PyObject *group, PyObject *given, px_tensor **tensor) {
  PyObject *object, *peer, *group_peer;
  int send, tag;
  int64_t ranks[2] = {EXT_NO_INT, EXT_NO_INT};
  if (!PyArg_ParseTuple(given, "pOOOi", &send, &object, &peer, &group_peer, &tag)) return -1;
  if (!ext_is_tensor(object)) return fail_argument("tensor", "torch.Tensor", object);
  if ((peer != Py_None && ext_to_int(peer, &ranks[0]) < 0) ||
      (group_peer != Py_None && ext_to_int(group_peer, &ranks[1]) < 0))
    return -1;
  *tensor = ext_tensor(object);
  *c = (px_collective){.op = send ? PX_SEND : PX_RECV,
                       .inputs = tensor,
                       .outputs = tensor,
                       .input_count = send,
                       .output_count = !send,
                       .tag = tag};
  return resolve_root(c, group, ranks[0], ranks[1], send ? 0 : -1);
}

static PyObject *works_of(px_work **works_take, int count) {
  PyObject *list = PyList_New(count);
  for (int i = 0; i < count; i++) {
    PyObject *work = list ? ext_work(works_take[i], NULL) : NULL;
    if (!list) px_release(works_take[i]);
    if (work)
      PyList_SET_ITEM(list, i, work);
    else
      Py_CLEAR(list);
  }
  return list;
}

// Starts a batch of sends and receives: tuples of is_send, tensor, global or group rank of the
// peer, and tag.
EXT_FUNCTION(dist, _pairs, "(group: Any, pairs: Sequence[Any]) -> list[Any]",
             "Starts a batch of sends and receives.") {
  PyObject *group, *pairs, *result = NULL;
  EXT_BIND(group, pairs);
  EXT_OWNED *items = ext_items(pairs, "pairs must be a list");
  PyObject *own = ext_member_group(group);
  if (!items || !own) return PyErr_Occurred() ? NULL : warn_not_in("batch_isend_irecv");
  int count = (int)PySequence_Fast_GET_SIZE(items), bad = 0;
  px_tensor **tensors = PyMem_Calloc((size_t)count + 1, sizeof *tensors);
  px_collective *list = PyMem_Calloc((size_t)count + 1, sizeof *list);
  px_work **works = PyMem_Calloc((size_t)count + 1, sizeof *works);
  if (!tensors || !list || !works) bad = (PyErr_NoMemory(), -1);
  for (int i = 0; i < count && bad == 0; i++)
    bad = read_pair(&list[i], group, PySequence_Fast_GET_ITEM(items, i), &tensors[i]);
  if (bad == 0) {
    px_status status = EXT_NOGIL(px_comm_run_all(works, G(own)->comm, list, count));
    result = status == PX_OK ? works_of(works, count) : (ext_raise(), NULL);
  }
  PyMem_Free(tensors);
  PyMem_Free(list);
  PyMem_Free(works);
  return result;
}

// ---- barriers

EXT_FUNCTION(dist, barrier,
             "(group: Any | None = None, async_op: bool = False, device_ids: Any | None = None) -> "
             "Any",
             "Synchronizes all processes.") {
  PyObject *group, *device_ids;
  bool async_op;
  EXT_BIND(group, async_op, device_ids);
  EXT_TENSORS none = {0};
  px_collective c = {.op = PX_BARRIER};
  PyObject *own = ext_member_group(group);
  EXT_OWNED *backend = own ? PyObject_Str(G(own)->backend) : NULL;
  if (backend && PyUnicode_CompareWithASCIIString(backend, "nccl") == 0) {
    px_stream *stream;
    EXT_TRY(px_stream_current(&stream, (px_device){PX_CUDA, -1}));
    EXT_WAIT(px_stream_synchronize(stream));
  }
  return begin("barrier", group, &c, &none, &none, async_op);
}

EXT_FUNCTION(dist, monitored_barrier,
             "(group: Any | None = None, timeout: Any | None = None, wait_all_ranks: bool = False) "
             "-> None",
             "Synchronizes all processes; rank 0 reports ranks missing at the timeout.") {
  PyObject *group, *timeout;
  bool wait_all_ranks;
  int64_t milliseconds;
  EXT_BIND(group, timeout, wait_all_ranks);
  PyObject *own = ext_member_group(group);
  if (!own) return PyErr_Occurred() ? NULL : warn_not_in("monitored_barrier");
  EXT_OWNED *backend = PyObject_Str(G(own)->backend);
  if (!backend || PyUnicode_CompareWithASCIIString(backend, "gloo"))
    EXT_FAIL(PyExc_ValueError, "monitored_barrier is only implemented for GLOO backend.");
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  EXT_WAIT(px_comm_monitored_barrier(G(own)->comm, milliseconds, wait_all_ranks));
  Py_RETURN_NONE;
}
