// SPDX-License-Identifier: Apache-2.0
// torch.distributed's process groups: who is in them, which there are, and the group of all. What
// they do together is in collectives.c.
#include "group.h"

EXT_MODULE(dist, "distributed",
           "Processes that work together: groups of ranks and their collectives, over Gloo on the "
           "CPU, and on simulated devices as NCCL orders them.");

// Guarded by the GIL. What programs have made stays until they destroy it. The ranks of a simulated
// cluster have theirs each.
typedef struct world_of {
  PyObject *world, *made;
} world_of;
static world_of *here(void) {
  enum { MOST = 64 };
  static world_of worlds[MOST + 1];
  int rank = px_cluster_rank();
  return &worlds[rank < MOST ? rank + 1 : 0];
}
enum { NO_MEMBER = -100 };

void ext_release_nogil(void *core_take) {
  Py_BEGIN_ALLOW_THREADS;
  px_release(core_take);
  Py_END_ALLOW_THREADS;
}
static void leave(PyObject *self) { ext_release_nogil(G(self)->comm); }
EXT_OWNS(group, EXT_FINALIZER(leave), EXT_OBJECT(group_object, backend),
         EXT_OBJECT(group_object, store), EXT_OBJECT(group_object, ranks),
         EXT_OBJECT(group_object, name), EXT_OBJECT(group_object, description),
         EXT_OBJECT(group_object, device), EXT_OBJECT(group_object, numbers));

static PyObject *keep(PyObject *group_take) {
  EXT_OWNED *group = group_take;
  if (!group || (!here()->made && !(here()->made = PyDict_New())) ||
      PyDict_SetItem(here()->made, group, Py_None) < 0)
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
  return keep(self);
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
  const char *engine = backend && PyUnicode_Check(backend) ? PyUnicode_AsUTF8(backend) : NULL;
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
                "Some ranks, which call collectives together and in the same order.",
                EXT_LIFETIME_SLOTS(group), .tp_new = group_new);

PyObject *ext_group_from_comm(px_comm *comm_take, PyObject *like, PyObject *ranks_take,
                              const char *description) {
  EXT_OWNED *ranks = ranks_take, *text = PyUnicode_FromString(description);
  EXT_OWNED *name = PyUnicode_FromFormat("%zd", here()->made ? PyDict_GET_SIZE(here()->made) : 0);
  if (ranks && text && name)
    return group_made(&ext_group_type, comm_take, G(like)->backend, G(like)->store, ranks, name,
                      text);
  px_release(comm_take);
  return NULL;
}

px_comm *ext_comm(PyObject *object) {
  if (object && PyObject_TypeCheck(object, &ext_group_type)) return G(object)->comm;
  EXT_FAIL(PyExc_TypeError, "a process group is wanted, not %s",
           object ? ext_type_name(object) : "None");
}

EXT_RETURNS(group, rank, "int", px_comm_rank(G(self)->comm), "This process's rank in the group.");
EXT_RETURNS(group, size, "int", px_comm_size(G(self)->comm), "How many ranks the group has.");
EXT_METHOD0(group, name, "str", "The name of the backend.") {
  return PyObject_Str(G(self)->backend);
}
EXT_METHOD0(group, abort, "None", "Ends what is under way, here and at the other ranks.") {
  px_comm_abort(G(self)->comm);
  Py_RETURN_NONE;
}
EXT_METHOD(group, _monitored_barrier, "(timeout: Any | None, wait_all: bool) -> None",
           "Waits for all ranks, or says which did not come.") {
  PyObject *timeout;
  bool wait_all;
  int64_t milliseconds;
  EXT_BIND(timeout, wait_all);
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  EXT_WAIT(px_comm_monitored_barrier(G(self)->comm, milliseconds, wait_all));
  Py_RETURN_NONE;
}
EXT_GET(group, group_name, "str", Py_NewRef(G(self)->name), "A name that no other group has.");
EXT_GET(group, group_desc, "str", Py_NewRef(G(self)->description), "What it is for.");
EXT_GET(group, _backend, "str", Py_NewRef(G(self)->backend), "The name of the backend.");
EXT_GET(group, _store, "Any", Py_NewRef(G(self)->store), "The store by which its ranks met.");
EXT_GET(group, _timeout, "Any", ext_timedelta(px_comm_timeout(G(self)->comm)),
        "How long its calls take at most.");
EXT_GETTER(group, _numbers, "dict[Any, int]", "How often groups of the same ranks were made.") {
  if (!G(self)->numbers && !(G(self)->numbers = PyDict_New())) return NULL;
  return Py_NewRef(G(self)->numbers);
}
EXT_GETTER_AND_SETTER(group, bound_device_id, "Device | None", "The device it was bound to.") {
  return Py_NewRef(G(self)->device ? G(self)->device : Py_None);
}
EXT_SETTER(group, bound_device_id) {
  Py_XSETREF(G(self)->device, Py_XNewRef(value));
  return 0;
}

// ---- which group is meant

bool ext_is_non_member(PyObject *group) {
  return group && PyLong_Check(group) && PyLong_AsLong(group) == NO_MEMBER;
}

PyObject *ext_group(PyObject *given) {
  if (given && given != Py_None) return given;
  if (here()->world) return here()->world;
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
             "The group that is meant: for None, that of all.") {
  EXT_ARGS(PyObject *, group);
  return Py_XNewRef(ext_group(group));
}
EXT_FUNCTION(dist, _set_world, "(group: Any | None) -> None", "Sets the group of all.") {
  EXT_ARGS(PyObject *, group);
  Py_XSETREF(here()->world, group && group != Py_None ? Py_NewRef(group) : NULL);
  Py_RETURN_NONE;
}
EXT_FUNCTION0(dist, _world, "Any", "The group of all, or None.") {
  return Py_NewRef(here()->world ? here()->world : Py_None);
}
EXT_RETURNS(dist, is_initialized, "bool", (bool)(here()->world != NULL),
            "Whether this process has joined the group of all.");
// Waits for the works of a group, and, of all, for those of its parts. A group may be held by
// others than who destroys it, and end with the process.
static int await_works(PyObject *meant) {
  bool all = meant == here()->world && here()->made;
  EXT_OWNED *made = all ? PySequence_List(here()->made) : Py_BuildValue("[O]", meant);
  for (Py_ssize_t i = 0; made && i < PyList_GET_SIZE(made); i++) {
    PyObject *group = PyList_GET_ITEM(made, i);
    bool is = PyObject_TypeCheck(group, &ext_group_type);
    px_status status = is ? EXT_NOGIL(px_comm_synchronize(G(group)->comm)) : PX_OK;
    if (ext_zero(status) < 0) return -1;
  }
  return made ? 0 : -1;
}
EXT_FUNCTION(dist, destroy_process_group, "(group: Any | None = None) -> None",
             "Leaves a group, or, without one, all, when what it was given is over.") {
  EXT_ARGS(PyObject *, group);
  PyObject *meant = ext_group(group);
  if (!meant || await_works(meant) < 0) return NULL;
  if (meant == here()->world) {
    EXT_OWNED *all = here()->made;
    here()->made = NULL;
    Py_CLEAR(here()->world);
  } else if (here()->made && PyDict_Contains(here()->made, meant) > 0 &&
             PyDict_DelItem(here()->made, meant) < 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

// An int of a group that this process is in; -1 of another.
#define OF_OWN(value) \
  PyObject *own = ext_member_group(group); \
  if (!own && PyErr_Occurred()) return NULL; \
  return PyLong_FromLong(own ? (value) : -1)
EXT_FUNCTION(dist, get_rank, "(group: Any | None = None) -> int",
             "The rank in a group; -1 if this process is not in it.") {
  EXT_ARGS(PyObject *, group);
  OF_OWN(px_comm_rank(G(own)->comm));
}
EXT_FUNCTION(dist, get_world_size, "(group: Any | None = None) -> int",
             "How many ranks a group has; -1 if this process is not in it.") {
  EXT_ARGS(PyObject *, group);
  OF_OWN(px_comm_size(G(own)->comm));
}

// The group of an argument, or ValueError.
static PyObject *need_own(PyObject *given) {
  PyObject *group = ext_member_group(given);
  if (!group && !PyErr_Occurred())
    PyErr_SetString(PyExc_ValueError, "Invalid process group specified");
  return group;
}
EXT_FUNCTION(dist, get_backend, "(group: Any | None = None) -> str",
             "The name of a group's backend.") {
  EXT_ARGS(PyObject *, group);
  PyObject *own = need_own(group);
  return own ? Py_NewRef(G(own)->backend) : NULL;
}
EXT_FUNCTION(dist, get_process_group_ranks, "(group: Any | None) -> list[int]",
             "The ranks of all that are in a group.") {
  EXT_ARGS(PyObject *, group);
  PyObject *own = need_own(group);
  return own ? PySequence_List(G(own)->ranks) : NULL;
}
EXT_FUNCTION(dist, get_group_rank, "(group: Any, global_rank: int) -> int",
             "The rank in a group of one of all ranks.") {
  PyObject *group;
  int64_t global_rank;
  EXT_BIND(group, global_rank);
  PyObject *own = need_own(group);
  int rank = own ? ext_group_rank(own, global_rank) : -1;
  return rank < 0 ? NULL : PyLong_FromLong(rank);
}
EXT_FUNCTION(dist, get_global_rank, "(group: Any, group_rank: int) -> int",
             "The rank of all of one in a group.") {
  PyObject *group;
  int64_t group_rank;
  EXT_BIND(group, group_rank);
  PyObject *own = need_own(group);
  if (!own) return NULL;
  if (group_rank < 0 || group_rank >= PyTuple_GET_SIZE(G(own)->ranks))
    EXT_FAIL(PyExc_ValueError, "Group rank %lld is not part of group %R", (long long)group_rank,
             own);
  return Py_NewRef(PyTuple_GET_ITEM(G(own)->ranks, (Py_ssize_t)group_rank));
}
EXT_FUNCTION0(dist, get_pg_count, "int", "How many groups this process is in.") {
  return PyLong_FromSsize_t(here()->made ? PyDict_GET_SIZE(here()->made) : 0);
}

// ---- what programs ask before they begin

EXT_FUNCTION(dist, get_default_backend_for_device, "(device: Device | str) -> str",
             "The backend for tensors of a device: gloo for cpu, nccl for cuda.") {
  px_device device;
  EXT_BIND(device);
  if (device.type == PX_CPU) return PyUnicode_FromString("gloo");
  if (device.type == PX_CUDA) return PyUnicode_FromString("nccl");
  EXT_FAIL(PyExc_ValueError, "Default backend not registered for device : %s",
           device.type == PX_META ? "meta" : "None");
}
EXT_FUNCTION(dist, supports_complex, "(reduceOp: Any) -> bool",
             "Whether a reduction takes complex numbers.") {
  EXT_ARGS(PyObject *, reduceOp);
  int64_t op;
  if (!reduceOp || ext_to_int(reduceOp, &op) < 0) return NULL;
  return PyBool_FromLong(op == PX_REDUCE_SUM || op == PX_REDUCE_AVG);
}
EXT_FUNCTION(dist, get_backend_config, "(group: Any | None = None) -> str",
             "A group's backend for each type of device.") {
  EXT_ARGS(PyObject *, group);
  PyObject *own = need_own(group);
  return own ? PyUnicode_FromFormat("cpu:%U,cuda:%U", G(own)->backend, G(own)->backend) : NULL;
}
