// SPDX-License-Identifier: Apache-2.0
// Process groups of torch.distributed: membership, registry and the default group. Their
// collectives are in collectives.c.
#include "dist/group.h"

EXT_MODULE(dist, "distributed",
           "Distributed training: process groups and their collectives, over Gloo on the CPU, and "
           "on simulated devices with NCCL's ordering.");

// The default group and all user-created groups, which live until they are destroyed. Guarded by
// the GIL. Each rank of a simulated cluster has its own.
typedef struct group_registry {
  PyObject *world, *made;
} group_registry;
static group_registry *registry(void) {
  enum { MAX_RANKS = 64 };
  static group_registry worlds[MAX_RANKS + 1];
  int rank = px_cluster_rank();
  return &worlds[rank < MAX_RANKS ? rank + 1 : 0];
}
enum { NO_MEMBER = -100 };

// At shutdown a joined thread may have stopped in a callback. Groups then end with the process.
void ext_release_nogil(void *core_take) {
  if (ext_is_ending()) return;
  PyThreadState *state = PyEval_SaveThread();
  px_release(core_take);
  ext_gil_restore(state);
}
static void group_release(PyObject *self) { ext_release_nogil(G(self)->comm); }
EXT_OWNS(group, EXT_FINALIZER(group_release), EXT_OBJECT(group_object, backend),
         EXT_OBJECT(group_object, store), EXT_OBJECT(group_object, ranks),
         EXT_OBJECT(group_object, name), EXT_OBJECT(group_object, description),
         EXT_OBJECT(group_object, device), EXT_OBJECT(group_object, numbers));

static PyObject *register_group(PyObject *group_take) {
  EXT_OWNED *group = group_take;
  if (!group || (!registry()->made && !(registry()->made = PyDict_New())) ||
      PyDict_SetItem(registry()->made, group, Py_None) < 0)
    return NULL;
  return ext_moved(&group);
}

static PyObject *group_made(PyTypeObject *type, px_comm *comm_take, PyObject *backend,
                            PyObject *store, PyObject *ranks, PyObject *name,
                            PyObject *description) {
  PyObject *self = ext_wrap_core(type, comm_take);
  if (!self) return NULL;
  G(self)->backend = Py_NewRef(backend);
  G(self)->store = Py_NewRef(store);
  G(self)->ranks = Py_NewRef(ranks);
  G(self)->name = Py_NewRef(name);
  G(self)->description = Py_NewRef(description);
  return register_group(self);
}

EXT_NEW(group,
        "(backend: str, store: Any, rank: int, ranks: Sequence[int], timeout: Any | None, name: "
        "str, description: str | None = None)") {
  PyObject *backend, *store, *ranks, *timeout, *name, *description;
  int64_t rank, milliseconds;
  px_comm *comm;
  EXT_BIND(backend, store, rank, ranks, timeout, name, description);
  px_store *shared = ext_store(store);
  EXT_OWNED *all = shared && ranks ? PySequence_Tuple(ranks) : NULL;
  const char *engine = backend && PyUnicode_Check(backend) ? ext_text(backend) : NULL;
  if (!all || !engine || !name || ext_to_milliseconds(timeout, &milliseconds) < 0) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "ProcessGroup: init_process_group");
    return NULL;
  }
  px_comm_options options = {engine, shared, ext_clamp_device_index(rank),
                             (int)PyTuple_GET_SIZE(all), milliseconds};
  EXT_WAIT(px_comm_new(&comm, &options));
  return group_made(type, comm, backend, store, all, name, description ? description : name);
}
EXT_SHARED_TYPE(group, ext_group_type, "torch.distributed.ProcessGroup", "distributed.ProcessGroup",
                group_object, EXT_BASETYPE,
                "A set of ranks that call collectives in the same order.",
                EXT_LIFETIME_SLOTS(group), .tp_new = group_new);

PyObject *ext_group_from_comm(px_comm *comm_take, PyObject *like, PyObject *ranks_take,
                              const char *description) {
  EXT_OWNED *ranks = ranks_take, *text = ext_str(description);
  EXT_OWNED *name =
      PyUnicode_FromFormat("%zd", registry()->made ? PyDict_GET_SIZE(registry()->made) : 0);
  if (ranks && text && name)
    return group_made(&ext_group_type, comm_take, G(like)->backend, G(like)->store, ranks, name,
                      text);
  px_release(comm_take);
  return NULL;
}

px_comm *ext_comm(PyObject *object) {
  if (object && PyObject_TypeCheck(object, &ext_group_type)) return G(object)->comm;
  EXT_FAIL(PyExc_TypeError, "expected a process group, got %s",
           object ? ext_type_name(object) : "None");
}

EXT_RETURNS(group, rank, "int", px_comm_rank(G(self)->comm),
            "Returns this process's rank in the group.");
EXT_RETURNS(group, size, "int", px_comm_size(G(self)->comm),
            "Returns the number of ranks in the group.");
EXT_METHOD0(group, name, "str", "Returns the name of the backend.") {
  return PyObject_Str(G(self)->backend);
}
EXT_METHOD0(group, abort, "None", "Aborts pending collectives on all ranks.") {
  px_comm_abort(G(self)->comm);
  Py_RETURN_NONE;
}
EXT_METHOD(group, _monitored_barrier, "(timeout: Any | None, wait_all: bool) -> None",
           "Waits for all ranks; fails listing missing ones.") {
  PyObject *timeout;
  bool wait_all;
  int64_t milliseconds;
  EXT_BIND(timeout, wait_all);
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  EXT_WAIT(px_comm_monitored_barrier(G(self)->comm, milliseconds, wait_all));
  Py_RETURN_NONE;
}
EXT_GET(group, group_name, "str", Py_NewRef(G(self)->name), "The unique name of the group.");
EXT_GET(group, group_desc, "str", Py_NewRef(G(self)->description), "The description of the group.");
EXT_GET(group, _backend, "str", Py_NewRef(G(self)->backend), "The name of the backend.");
EXT_GET(group, _store, "Any", Py_NewRef(G(self)->store), "The store used for rendezvous.");
EXT_GET(group, _timeout, "Any", ext_timedelta(px_comm_timeout(G(self)->comm)),
        "The timeout of its calls.");
EXT_GETTER(group, _numbers, "dict[Any, int]", "Numbers of groups created per set of ranks.") {
  if (!G(self)->numbers && !(G(self)->numbers = PyDict_New())) return NULL;
  return Py_NewRef(G(self)->numbers);
}
EXT_GETTER_AND_SETTER(group, bound_device_id, "Device | None",
                      "The device the group is bound to.") {
  return Py_NewRef(G(self)->device ? G(self)->device : Py_None);
}
EXT_SETTER(group, bound_device_id) {
  Py_XSETREF(G(self)->device, Py_XNewRef(value));
  return 0;
}

// ---- resolving group arguments

bool ext_is_non_member(PyObject *group) {
  return group && PyLong_Check(group) && PyLong_AsLong(group) == NO_MEMBER;
}

PyObject *ext_group(PyObject *given) {
  if (given && given != Py_None) return given;
  if (registry()->world) return registry()->world;
  EXT_FAIL(PyExc_ValueError,
           "Default process group has not been initialized, please make sure to call "
           "init_process_group.");
}

PyObject *ext_member_group(PyObject *given) {
  PyObject *group = ext_group(given);
  if (!group || ext_is_non_member(group) || !ext_comm(group)) return NULL;
  return group;
}

int ext_group_rank(PyObject *group, int64_t global_rank) {
  PyObject *ranks = G(group)->ranks;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ranks); i++)
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(ranks, i)) == global_rank) return (int)i;
  EXT_FAIL_INT(PyExc_ValueError, "Global rank %lld is not part of group %R", (long long)global_rank,
               group);
}

EXT_FUNCTION(dist, _group, "(group: Any | None) -> Any",
             "Resolves a group argument; None is the default group.") {
  EXT_ARGS(PyObject *, group);
  return Py_XNewRef(ext_group(group));
}
EXT_FUNCTION(dist, _set_world, "(group: Any | None) -> None", "Sets the default group.") {
  EXT_ARGS(PyObject *, group);
  Py_XSETREF(registry()->world, group && group != Py_None ? Py_NewRef(group) : NULL);
  Py_RETURN_NONE;
}
EXT_FUNCTION0(dist, _world, "Any", "Returns the default group, or None.") {
  return Py_NewRef(registry()->world ? registry()->world : Py_None);
}
EXT_RETURNS(dist, is_initialized, "bool", (bool)(registry()->world != NULL),
            "Returns True if the default process group has been initialized.");
// Waits for pending works of a group; for the default group, of all groups. The group may have
// other owners and then outlive this call, up to process exit.
static int wait_for_works(PyObject *meant) {
  bool all = meant == registry()->world && registry()->made;
  EXT_OWNED *made = all ? PySequence_List(registry()->made) : Py_BuildValue("[O]", meant);
  for (Py_ssize_t i = 0; made && i < PyList_GET_SIZE(made); i++) {
    PyObject *group = PyList_GET_ITEM(made, i);
    bool is = PyObject_TypeCheck(group, &ext_group_type);
    px_status status = is ? EXT_NOGIL(px_comm_synchronize(G(group)->comm)) : PX_OK;
    if (ext_zero(status) < 0) return -1;
  }
  return made ? 0 : -1;
}
EXT_FUNCTION(dist, destroy_process_group, "(group: Any | None = None) -> None",
             "Destroys a given process group, or all of them, after waiting for pending work.") {
  EXT_ARGS(PyObject *, group);
  PyObject *meant = ext_group(group);
  if (!meant || wait_for_works(meant) < 0) return NULL;
  if (meant == registry()->world) {
    EXT_OWNED *all = registry()->made;
    registry()->made = NULL;
    Py_CLEAR(registry()->world);
  } else if (registry()->made && PyDict_Contains(registry()->made, meant) > 0 &&
             PyDict_DelItem(registry()->made, meant) < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

// Returns an int of a group that includes this process; -1 otherwise.
#define RETURN_OF_MEMBER(value) \
  PyObject *own = ext_member_group(group); \
  if (!own && PyErr_Occurred()) return NULL; \
  return PyLong_FromLong(own ? (value) : -1)
EXT_FUNCTION(
    dist, get_rank, "(group: Any | None = None) -> int",
    "Returns the rank of the current process in the group; -1 if it is not in the group.") {
  EXT_ARGS(PyObject *, group);
  RETURN_OF_MEMBER(px_comm_rank(G(own)->comm));
}
EXT_FUNCTION(
    dist, get_world_size, "(group: Any | None = None) -> int",
    "Returns the number of processes in the group; -1 if this process is not in the group.") {
  EXT_ARGS(PyObject *, group);
  RETURN_OF_MEMBER(px_comm_size(G(own)->comm));
}

// Resolves a group that must include this process, or raises ValueError.
static PyObject *require_member(PyObject *given) {
  PyObject *group = ext_member_group(given);
  if (!group && !PyErr_Occurred())
    PyErr_SetString(PyExc_ValueError, "Invalid process group specified");
  return group;
}
EXT_FUNCTION(dist, get_backend, "(group: Any | None = None) -> str",
             "Returns the backend of the given process group.") {
  EXT_ARGS(PyObject *, group);
  PyObject *own = require_member(group);
  return own ? Py_NewRef(G(own)->backend) : NULL;
}
EXT_FUNCTION(dist, get_process_group_ranks, "(group: Any | None) -> list[int]",
             "Returns the global ranks of the processes in the group.") {
  EXT_ARGS(PyObject *, group);
  PyObject *own = require_member(group);
  return own ? PySequence_List(G(own)->ranks) : NULL;
}
EXT_FUNCTION(dist, get_group_rank, "(group: Any, global_rank: int) -> int",
             "Translates a global rank into a group rank.") {
  PyObject *group;
  int64_t global_rank;
  EXT_BIND(group, global_rank);
  PyObject *own = require_member(group);
  int rank = own ? ext_group_rank(own, global_rank) : -1;
  return rank < 0 ? NULL : PyLong_FromLong(rank);
}
EXT_FUNCTION(dist, get_global_rank, "(group: Any, group_rank: int) -> int",
             "Translates a group rank into a global rank.") {
  PyObject *group;
  int64_t group_rank;
  EXT_BIND(group, group_rank);
  PyObject *own = require_member(group);
  if (!own) return NULL;
  if (group_rank < 0 || group_rank >= PyTuple_GET_SIZE(G(own)->ranks))
    EXT_FAIL(PyExc_ValueError, "Group rank %lld is not part of group %R", (long long)group_rank,
             own);
  return Py_NewRef(PyTuple_GET_ITEM(G(own)->ranks, (Py_ssize_t)group_rank));
}
EXT_FUNCTION0(dist, get_pg_count, "int", "Returns the number of process groups of this process.") {
  return PyLong_FromSsize_t(registry()->made ? PyDict_GET_SIZE(registry()->made) : 0);
}

// ---- queries available before initialization

EXT_FUNCTION(dist, get_default_backend_for_device, "(device: Device | str) -> str",
             "Returns the default backend for a device: gloo for cpu, nccl for cuda.") {
  px_device device;
  EXT_BIND(device);
  if (device.type == PX_CPU) return PyUnicode_FromString("gloo");
  if (device.type == PX_CUDA) return PyUnicode_FromString("nccl");
  EXT_FAIL(PyExc_ValueError, "Default backend not registered for device : %s",
           device.type == PX_META ? "meta" : "None");
}
EXT_FUNCTION(dist, supports_complex, "(reduceOp: Any) -> bool",
             "Returns True if the reduction supports complex numbers.") {
  EXT_ARGS(PyObject *, reduceOp);
  int64_t op;
  if (!reduceOp || ext_to_int(reduceOp, &op) < 0) return NULL;
  return PyBool_FromLong(op == PX_REDUCE_SUM || op == PX_REDUCE_AVG);
}
EXT_FUNCTION(dist, get_backend_config, "(group: Any | None = None) -> str",
             "Returns a group's backend for each device type.") {
  EXT_ARGS(PyObject *, group);
  PyObject *own = require_member(group);
  return own ? PyUnicode_FromFormat("cpu:%U,cuda:%U", G(own)->backend, G(own)->backend) : NULL;
}
