// SPDX-License-Identifier: Apache-2.0
// Core functions of torch.distributed (phlox/distributed) other than groups (group.c) and
// collectives (collectives.c): stores, torchrun, and bytes of objects.
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "dist/group.h"
#include "ops/ops.h"
#include "phlox/extend.h"
#include "phlox/launch.h"

int ext_to_milliseconds(PyObject *object, int64_t *out) {
  *out = 0;
  if (!object || object == Py_None) return 0;
  EXT_OWNED *seconds = PyObject_CallMethod(object, "total_seconds", NULL);
  double value = seconds ? PyFloat_AsDouble(seconds) : -1;
  if (PyErr_Occurred()) {
    PyErr_Clear();
    EXT_FAIL_INT(PyExc_TypeError, "timeout must be a datetime.timedelta, not %s",
                 ext_type_name(object));
  }
  const double longest = 86399999999999984;  // of datetime.timedelta, rounded down to a double
  *out = value * 1000 > 1 ? (int64_t)fmin(value * 1000, longest) : 1;
  return 0;
}

PyObject *ext_timedelta(int64_t milliseconds) {
  return ext_call_from("datetime", "timedelta", "(iiiL)", 0, 0, 0, (long long)milliseconds);
}

// ---- stores

typedef struct store_object {
  PyObject_HEAD px_store *store;
} store_object;
#define S(self) (((store_object *)(self))->store)
EXT_OWNS(store, EXT_CORE(store_object, store));
EXT_NEW(store, "()") {
  EXT_FAIL(PyExc_TypeError,
           "torch.distributed.Store: no constructor defined; TCPStore, FileStore, HashStore and "
           "PrefixStore have one");
}
EXT_TYPE(store, "torch.distributed.Store", "_Store", store_object, EXT_BASETYPE,
         "Base class for all store implementations: a key-value store shared by processes.",
         EXT_LIFETIME_SLOTS(store), .tp_new = store_new);

static PyObject *made(PyTypeObject *type, px_store *store_take) {
  return ext_wrap_core(type, store_take);
}

EXT_NEW(tcp_store,
        "(host_name: str, port: int, world_size: int | None = None, is_master: bool = False, "
        "timeout: Any | None = None, wait_for_workers: bool = True, multi_tenant: bool = "
        "False, master_listen_fd: int | None = None, use_libuv: bool = True)") {
  const char *host_name;
  int64_t port, world_size, master_listen_fd, milliseconds;
  bool is_master, wait_for_workers, multi_tenant, use_libuv;
  PyObject *timeout;
  px_store *store;
  EXT_BIND(host_name, port, world_size, is_master, timeout, wait_for_workers, multi_tenant,
           master_listen_fd, use_libuv);
  if (master_listen_fd != EXT_NO_INT)
    EXT_FAIL(PyExc_NotImplementedError, "TCPStore(master_listen_fd=) is not implemented in Phlox");
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  px_store_tcp_options options = {
      .host = host_name,
      .port = port > 65535 || port < 0 ? -1 : (int)port,
      .serve = is_master,
      .workers = world_size == EXT_NO_INT ? 0 : ext_clamp_device_index(world_size),
      .wait = wait_for_workers,
      .timeout_ms = milliseconds};
  EXT_WAIT(px_store_tcp(&store, &options));
  return made(type, store);
}
EXT_TYPE(
    tcp_store, "torch.distributed.TCPStore", "_TCPStore", store_object, EXT_BASETYPE,
    "A TCP-based distributed key-value store: one process is the server. If PHLOX_STORE_SECRET "
    "is set, all processes must know it. Otherwise a server on localhost listens on the loopback "
    "only.",
    EXT_LIFETIME_SLOTS(store), .tp_base = &store_type, .tp_new = tcp_store_new);
EXT_GET(tcp_store, port, "int", px_store_port(S(self)), "The port number of the server.");

EXT_NEW(file_store, "(file_name: str, world_size: int = -1)") {
  const char *file_name;
  int64_t world_size;
  px_store *store;
  EXT_BIND(file_name, world_size);
  EXT_WAIT(px_store_file(&store, file_name));
  return made(type, store);
}
EXT_TYPE(file_store, "torch.distributed.FileStore", "_FileStore", store_object, EXT_BASETYPE,
         "A store implementation that uses a file.", EXT_LIFETIME_SLOTS(store),
         .tp_base = &store_type, .tp_new = file_store_new);

EXT_NEW(hash_store, "()") {
  px_store *store;
  EXT_TRY(px_store_memory(&store));
  return made(type, store);
}
EXT_TYPE(hash_store, "torch.distributed.HashStore", "_HashStore", store_object, EXT_BASETYPE,
         "A thread-safe store implementation based on a hashmap.", EXT_LIFETIME_SLOTS(store),
         .tp_base = &store_type, .tp_new = hash_store_new);

px_store *ext_store(PyObject *object) {
  if (object && PyObject_TypeCheck(object, &store_type)) return S(object);
  EXT_FAIL(PyExc_TypeError, "store must be a torch.distributed.Store, not %s",
           object ? ext_type_name(object) : "None");
}

EXT_NEW(prefix_store, "(prefix: str, store: Any)") {
  const char *prefix;
  PyObject *store;
  px_store *inner, *out;
  EXT_BIND(prefix, store);
  if (!(inner = ext_store(store))) return NULL;
  EXT_TRY(px_store_prefix(&out, prefix, inner));
  return made(type, out);
}
EXT_TYPE(prefix_store, "torch.distributed.PrefixStore", "_PrefixStore", store_object, EXT_BASETYPE,
         "A wrapper around a store that adds a prefix to each key.", EXT_LIFETIME_SLOTS(store),
         .tp_base = &store_type, .tp_new = prefix_store_new);

// Bytes of a str or bytes value; borrowed.
static const char *bytes_of(PyObject *value, Py_ssize_t *size) {
  char *at = NULL;
  if (value && PyUnicode_Check(value)) return PyUnicode_AsUTF8AndSize(value, size);
  if (!value || PyBytes_AsStringAndSize(value, &at, size) < 0)
    EXT_FAIL(PyExc_TypeError, "a store's value must be str or bytes");
  return at;
}

static PyObject *as_bytes(void *value_take, size_t size) {
  PyObject *bytes = PyBytes_FromStringAndSize(value_take, (Py_ssize_t)size);
  px_free(value_take);
  return bytes;
}

EXT_METHOD(store, set, "(key: str, value: str | bytes) -> None",
           "Inserts the key-value pair into the store.") {
  const char *key;
  PyObject *value;
  Py_ssize_t size;
  EXT_BIND(key, value);
  const char *at = bytes_of(value, &size);
  if (!at) return NULL;
  EXT_WAIT(px_store_set(S(self), key, at, (size_t)size));
  Py_RETURN_NONE;
}
EXT_METHOD(store, get, "(key: str) -> bytes",
           "Retrieves the value of a key; waits until it is added.") {
  const char *key;
  void *value;
  size_t size;
  EXT_BIND(key);
  EXT_WAIT(px_store_get(&value, &size, S(self), key));
  return as_bytes(value, size);
}
EXT_METHOD(store, add, "(key: str, amount: int) -> int",
           "Adds to the counter of a key, initially 0, and returns it.") {
  const char *key;
  int64_t amount, sum;
  EXT_BIND(key, amount);
  EXT_WAIT(px_store_add(&sum, S(self), key, amount));
  return PyLong_FromLongLong(sum);
}
EXT_METHOD(store, compare_set, "(key: str, expected_value: str, desired_value: str) -> bytes",
           "Sets a value if the current one equals expected_value; returns the stored value.") {
  const char *key;
  PyObject *expected_value, *desired_value;
  Py_ssize_t expected_size, desired_size;
  void *value;
  size_t size;
  EXT_BIND(key, expected_value, desired_value);
  const char *expected = bytes_of(expected_value, &expected_size);
  const char *desired = expected ? bytes_of(desired_value, &desired_size) : NULL;
  if (!desired) return NULL;
  EXT_WAIT(px_store_compare_set(&value, &size, S(self), key, expected, (size_t)expected_size,
                                desired, (size_t)desired_size));
  return as_bytes(value, size);
}
EXT_METHOD(store, delete_key, "(key: str) -> bool", "Deletes a key; returns True if it existed.") {
  const char *key;
  bool there;
  EXT_BIND(key);
  EXT_WAIT(px_store_delete(&there, S(self), key));
  return PyBool_FromLong(there);
}
EXT_METHOD0(store, num_keys, "int", "Returns the number of keys set in the store.") {
  int64_t count;
  EXT_WAIT(px_store_num_keys(&count, S(self)));
  return PyLong_FromLongLong(count);
}

// Array of the texts of a list, borrowed from it; freed by the caller.
static const char **texts_of(PyObject *list, Py_ssize_t *count) {
  *count = PySequence_Fast_GET_SIZE(list);
  const char **texts = PyMem_Malloc(((size_t)*count + 1) * sizeof *texts);
  for (Py_ssize_t i = 0; texts && i < *count; i++)
    if (!(texts[i] = ext_text(PySequence_Fast_GET_ITEM(list, i)))) {
      PyMem_Free(texts);
      return NULL;
    }
  if (!texts) PyErr_NoMemory();
  return texts;
}
EXT_METHOD(store, wait, "(keys: Sequence[str], timeout: Any | None = None) -> None",
           "Waits for each key to be added; DistStoreError on timeout.") {
  PyObject *keys, *timeout;
  int64_t milliseconds;
  Py_ssize_t count;
  EXT_BIND(keys, timeout);
  EXT_OWNED *list = ext_items(keys, "keys must be a sequence of str");
  if (!list || ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  const char **texts = texts_of(list, &count);
  if (!texts) return NULL;
  px_status status = EXT_NOGIL(px_store_wait(S(self), texts, (int)count, milliseconds));
  PyMem_Free(texts);
  return ext_none(status);
}
EXT_METHOD(store, check, "(keys: Sequence[str]) -> bool",
           "Returns True if all keys are in the store.") {
  PyObject *keys;
  Py_ssize_t count;
  bool there = false;
  EXT_BIND(keys);
  EXT_OWNED *list = ext_items(keys, "keys must be a sequence of str");
  const char **texts = list ? texts_of(list, &count) : NULL;
  if (!texts) return NULL;
  px_status status = EXT_NOGIL(px_store_check(&there, S(self), texts, (int)count));
  PyMem_Free(texts);
  EXT_TRY(status);
  return PyBool_FromLong(there);
}
EXT_METHOD(store, set_timeout, "(timeout: Any) -> None", "Sets the timeout of calls.") {
  PyObject *timeout;
  int64_t milliseconds;
  EXT_BIND(timeout);
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  px_store_set_timeout(S(self), milliseconds);
  Py_RETURN_NONE;
}
EXT_GET(store, timeout, "Any", ext_timedelta(px_store_timeout(S(self))), "The timeout of calls.");

EXT_FUNCTION(torch, _engine_available, "(name: str) -> bool",
             "Returns True if a communication backend can be loaded.") {
  const char *name;
  EXT_BIND(name);
  return PyBool_FromLong(px_engine_available(name));
}

EXT_FUNCTION(torch, _engine_library, "(name: str) -> str",
             "Returns the path of a communication backend's library. NotImplementedError, with the "
             "reason, if it cannot be loaded.") {
  const char *name, *path;
  EXT_BIND(name);
  EXT_TRY(px_engine_library(&path, name));
  return PyUnicode_DecodeFSDefault(path);
}

// ---- simulated clusters

// Thread ids of ranks running Python code; guarded by the GIL.
static unsigned long rank_threads[64];

static px_status call_rank(int rank, int ranks, void *argument) {
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  rank_threads[rank] = PyThread_get_thread_ident();
  PyObject *result = PyObject_CallFunction(argument, "i", rank);
  px_status status = result ? PX_OK : ext_error_from_python();
  Py_XDECREF(result);
  rank_threads[rank] = 0;
  ext_gil_give(&gil);
  return status;
}
// An exception of a signal handler in the thread waiting for the ranks stops them: core calls fail,
// and Python code gets a KeyboardInterrupt.
static px_status check_signals(void) {
  px_status status = ext_run_handlers();
  if (status == PX_OK) return PX_OK;
  ext_gil gil;
  PX_TRY(ext_gil_take(&gil));
  for (size_t r = 0; r < EXT_LENGTH(rank_threads); r++)
    if (rank_threads[r]) PyThreadState_SetAsyncExc(rank_threads[r], PyExc_KeyboardInterrupt);
  ext_gil_give(&gil);
  return status;
}
// Releases the GIL while a rank waits for a device: it may depend on other ranks needing the GIL.
static void *release_gil(void) { return ext_gil_held() ? PyEval_SaveThread() : NULL; }
static void acquire_gil(void *held) { ext_gil_restore(held); }

EXT_FUNCTION(torch, _cluster_run, "(function: Any, ranks: int) -> None",
             "Calls function(rank) in a thread per rank of a simulated cluster.") {
  PyObject *function;
  int64_t ranks;
  EXT_BIND(function, ranks);
  if (ext_sim_ranks_active) EXT_FAIL(PyExc_RuntimeError, "a simulated cluster is already running");
  ext_sim_ranks_active = true;
  bool asks = px_interrupt_wanted();  // false on all other threads
  px_wait_set_hooks(release_gil, acquire_gil);
  if (asks) px_interrupt_set_check(check_signals);
  px_status status = EXT_NOGIL(px_cluster_run(ext_clamp_device_index(ranks), call_rank, function));
  if (asks) px_interrupt_set_check(ext_run_handlers);
  px_wait_set_hooks(NULL, NULL);
  ext_sim_ranks_active = false;
  return ext_none(status);
}
EXT_FUNCTION0(
    torch, _cluster, "tuple[Any, int, int] | None",
    "Returns, on a rank of a simulated cluster, a store for its next default group, the rank and "
    "the number of ranks.") {
  px_store *store;
  int rank;
  if ((rank = px_cluster_rank()) < 0) Py_RETURN_NONE;
  EXT_TRY(px_cluster_next_store(&store));
  EXT_OWNED *object = made(&prefix_store_type, store);
  return object ? Py_BuildValue("(Oii)", object, rank, px_cluster_size()) : NULL;
}
EXT_FUNCTION0(torch, _end_with_parent, "None",
              "Makes the process receive SIGINT when its parent exits.") {
  (void)prctl(PR_SET_PDEATHSIG, SIGINT);
  Py_RETURN_NONE;
}
EXT_FUNCTION(
    torch, _mpi, "(timeout: Any) -> tuple[Any, int, int]",
    "Returns a store of the ranks started by mpirun, this rank, and the number of ranks.") {
  PyObject *timeout;
  px_store *store;
  int64_t milliseconds;
  int rank, size;
  EXT_BIND(timeout);
  if (ext_to_milliseconds(timeout, &milliseconds) < 0) return NULL;
  EXT_WAIT(px_store_mpi(&store, &rank, &size, milliseconds));
  EXT_OWNED *object = made(&tcp_store_type, store);
  return object ? Py_BuildValue("(Oii)", object, rank, size) : NULL;
}

// ---- torchrun

// Replaces the texts of a list by their bytes in the file system's encoding. Returns an array of
// them that ends in NULL, freed by the caller.
static const char **encode_texts(PyObject *list, Py_ssize_t *count) {
  *count = PyList_GET_SIZE(list);
  const char **texts = PyMem_Calloc((size_t)*count + 1, sizeof *texts);
  if (!texts) PyErr_NoMemory();
  for (Py_ssize_t i = 0; texts && i < *count; i++) {
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(PyList_GET_ITEM(list, i), &bytes)) return PyMem_Free(texts), NULL;
    PyList_SetItem(list, i, bytes);
    texts[i] = PyBytes_AS_STRING(bytes);
  }
  return texts;
}

EXT_FUNCTION(torch, _job_run,
             "(arguments: Sequence[str], interpreter: Sequence[str], environment: Sequence[str], "
             "local_rank_argument: bool) -> None",
             "Runs a job like torchrun.") {
  PyObject *arguments, *interpreter, *environment;
  bool local_rank_argument;
  Py_ssize_t count[3] = {0};
  const char **texts[3] = {NULL};
  px_status status = PX_OK;
  EXT_BIND(arguments, interpreter, environment, local_rank_argument);
  PyObject *lists[3] = {arguments, interpreter, environment};
  for (int i = 0; i < 3; i++) {
    lists[i] = lists[i] ? PySequence_List(lists[i]) : NULL;
    texts[i] = lists[i] ? encode_texts(lists[i], &count[i]) : NULL;
  }
  if (texts[0] && texts[1] && texts[2]) {
    px_job_options options = {texts[0],      (int)count[0], texts[1],
                              (int)count[1], texts[2],      local_rank_argument};
    status = EXT_NOGIL(px_job_run(&options));
  }
  for (int i = 0; i < 3; i++) {
    PyMem_Free(texts[i]);
    Py_XDECREF(lists[i]);
  }
  return PyErr_Occurred() ? NULL : ext_none(status);
}
EXT_FUNCTION(torch, _job_usage, "() -> str", "Returns the usage text of torchrun.") {
  return PyUnicode_FromString(px_job_usage());
}

// ---- pickled bytes as CPU tensors

EXT_FUNCTION(torch, _bytes_tensor, "(data: bytes) -> Tensor",
             "Returns a uint8 tensor with a copy of the bytes.") {
  PyObject *data;
  px_tensor *tensor;
  EXT_BIND(data);
  if (!data || !PyBytes_Check(data)) EXT_FAIL(PyExc_TypeError, "data must be bytes");
  int64_t size = PyBytes_GET_SIZE(data);
  EXT_TRY(px_tensor_empty(&tensor, 1, &size, PX_UINT8, (px_device){PX_CPU, -1}));
  if (size) memcpy(px_tensor_data(tensor), PyBytes_AS_STRING(data), (size_t)size);
  return ext_wrap(tensor);
}
EXT_FUNCTION(torch, _tensor_bytes, "(tensor: Tensor, size: int) -> bytes",
             "Returns the first bytes of a contiguous uint8 CPU tensor.") {
  px_tensor *tensor;
  int64_t size;
  EXT_BIND(tensor, size);
  if (!tensor || px_tensor_dtype(tensor) != PX_UINT8 || !px_tensor_is_contiguous(tensor) ||
      px_tensor_device(tensor).type != PX_CPU || size < 0 || size > px_tensor_numel(tensor))
    EXT_FAIL(PyExc_ValueError, "expected a contiguous uint8 CPU tensor of at least %lld elements",
             (long long)size);
  return PyBytes_FromStringAndSize(px_tensor_data(tensor), (Py_ssize_t)size);
}
