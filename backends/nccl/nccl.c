// SPDX-License-Identifier: Apache-2.0
// Collective backend over NCCL for NVIDIA GPUs: collectives are queued on a stream.
//
// A group has two NCCL communicators. `whole` is non-blocking: its calls are polled until done,
// so missing ranks cause a timeout. Its child `comm`, a split with all ranks, is blocking,
// because NCCL starts a thread for each call of a non-blocking one. This takes longer than a small
// collective. A call may block its thread while NCCL connects the ranks, as the first of its kind
// does. Both communicators share resources and so the abort flag: aborting `whole` makes blocked
// calls of `comm` return. Then `comm` is aborted as well, and both are NULL.
#include "phlox/engine.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

// ---- declarations of NCCL's header

typedef struct nccl_comm nccl_comm;
typedef struct nccl_id {
  char bytes[128];
} nccl_id;
// Layout of version 2.18; newer libraries treat missing fields as unset.
typedef struct nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking, cluster, min_blocks, max_blocks;
  const char *net;
  int split_share;
} nccl_config;
enum { IN_PROGRESS = 7, MAGIC = (int)0xcafebeef, CONFIG_VERSION = 21800, UNDEFINED = INT_MIN };
enum { BYTE = 0, NO_TYPE = -1 };

static struct {
#define XX(result, name, parameters) result(*name) parameters;
#include "nccl/nccl.sym"
#undef XX
} api;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static void *library;  // guarded by `loading`

// ---- loading

static const char soname[] = "libnccl.so.2";

static void *open_in(const char *folder, const char *subfolder) {
  char path[2048];
  if (!folder || !*folder) return NULL;
  int needed = snprintf(path, sizeof path, "%s%s/%s", folder, subfolder, soname);
  return needed < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

// Opens pip's copy of NCCL next to this package, if installed.
static void *open_pip(void) {
  char folder[1536];
  Dl_info self;
  const char *slash = dladdr((void *)&api, &self) ? strrchr(self.dli_fname, '/') : NULL;
  int length = slash ? (int)(slash - self.dli_fname) : 0;
  if (!length || length > 1500) return NULL;
  snprintf(folder, sizeof folder, "%.*s/..", length, self.dli_fname);
  return open_in(folder, "/nvidia/nccl/lib");
}

static void *open_library(const px_engine_paths *places) {
  void *found = open_in(places->ours, "");
  if (!found) found = open_pip();
  if (!found) found = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (!found) found = open_in(places->home, "/lib64");
  if (!found) found = open_in(places->path, "/lib64");
  return found ? found : open_in("/usr/local/cuda", "/lib64");
}

static const char *missing_symbol(void *from) {
  static const struct {
    const char *name;
    void **at;
  } symbols[] = {
#define XX(result, name, parameters) {#name, (void **)&api.name},
#include "nccl/nccl.sym"
#undef XX
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
    if (!(*symbols[i].at = dlsym(from, symbols[i].name))) return symbols[i].name;
  return NULL;
}

static int load_locked(const px_engine_paths *places, char *why, size_t capacity) {
  void *found = open_library(places);
  if (!found)
    return snprintf(why, capacity,
                    "NCCL not found: looked for %s in PHLOX_CUDA_PATH, nvidia/nccl/lib "
                    "next to this package, the system's search path and the CUDA toolkit",
                    soname),
           1;
  const char *missing = missing_symbol(found);
  if (missing)
    return snprintf(why, capacity, "%s is too old for Phlox: it lacks %s", soname, missing), 1;
  library = found;
  return 0;
}

static int load(const px_engine_paths *places, char *why, size_t capacity) {
  pthread_mutex_lock(&loading);
  int bad = library ? 0 : load_locked(places, why, capacity);
  pthread_mutex_unlock(&loading);
  return bad;
}

// ---- communicators and their state

typedef struct joined {
  pthread_mutex_t lock;
  pthread_cond_t left;        // a thread has returned from NCCL
  nccl_comm *whole, *comm;    // guarded by `lock`; NULL after the end
  int inside;                 // guarded by `lock`: threads in calls of `comm`
  int64_t since_ns, time_ms;  // guarded by `lock`: start and time limit of the latest call
  int size, rank;
} joined;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int set_error(char *why, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int set_error(char *why, size_t capacity, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, capacity, format, arguments);
  va_end(arguments);
  return 1;
}

static bool is_bad(int status) { return status != 0 && status != IN_PROGRESS; }

static int nccl_error(nccl_comm *comm, int status, char *why, size_t capacity) {
  const char *more = comm ? api.ncclGetLastError(comm) : NULL;
  return set_error(why, capacity, "NCCL: %s%s%s", api.ncclGetErrorString(status),
                   more && *more ? ": " : "", more ? more : "");
}

static int ended_error(char *why, size_t capacity) {
  return set_error(why, capacity, "the group has ended");
}
static int timeout_error(int64_t time_ms, char *why, size_t capacity) {
  return set_error(why, capacity, "the other ranks have not come within %lld ms",
                   (long long)time_ms);
}

// Returns a communicator's state. Lock held, unless it is not shared yet.
enum { NOT_YET = -1 };
static int state_of(nccl_comm *comm, char *why, size_t capacity) {
  int state = 0;
  int status = api.ncclCommGetAsyncError(comm, &state);
  if (status || is_bad(state)) return nccl_error(comm, status ? status : state, why, capacity);
  return state == IN_PROGRESS ? NOT_YET : 0;
}

// Polls until the pending operation is done. `begin`: start of the job's time limit.
static int await(nccl_comm *whole, const px_engine_job *job, int64_t begin, char *why,
                 size_t capacity) {
  enum { SPIN_NS = 500000, NAP_NS = 200000 };
  int64_t elapsed;
  int answer;
  while ((answer = state_of(whole, why, capacity)) == NOT_YET) {
    elapsed = now_ns() - begin;
    if (job->over && job->over(job->store, why, capacity)) return 1;
    if (elapsed / 1000000 >= job->timeout_ms) return timeout_error(job->timeout_ms, why, capacity);
    if (elapsed < SPIN_NS)
      sched_yield();
    else
      nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  }
  return answer;
}

// ---- joining and leaving

static int share_id(nccl_id *id, const px_engine_job *job, char *why, size_t capacity) {
  static const char key[] = "nccl";
  void *value = NULL;
  size_t size = 0;
  if (job->rank == 0) {
    int status = api.ncclGetUniqueId(id);
    if (status) return set_error(why, capacity, "NCCL: %s", api.ncclGetErrorString(status));
    return job->set(job->store, key, id, sizeof *id, why, capacity);
  }
  if (job->get(job->store, key, &value, &size, why, capacity)) return 1;
  bool fits = size == sizeof *id;
  if (fits) memcpy(id, value, sizeof *id);
  job->release(value);
  return fits ? 0 : set_error(why, capacity, "rank 0 stored an invalid NCCL id");
}

// Names of threads. A new thread inherits its creator's name, so NCCL's threads can be identified.
static const char waiter[] = "phlox-nccl", ender[] = "phlox-nccl-end";

static bool is_ender(const char *id) {
  char path[64], name[sizeof ender + 1] = "";
  snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", id);
  FILE *file = fopen(path, "r");
  bool named = file && fgets(name, sizeof name, file) && !strncmp(name, ender, sizeof ender - 1);
  if (file) fclose(file);
  return named;
}

static bool any_ender(void) {
  DIR *folder = opendir("/proc/self/task");
  const struct dirent *entry;
  bool found = false;
  while (folder && !found && (entry = readdir(folder))) found = is_ender(entry->d_name);
  if (folder) closedir(folder);
  return found;
}

// Ends a non-blocking communicator. A thread of NCCL does the work, without a call to query its
// end, and a process exiting meanwhile may hang. Therefore waits for threads with the inherited
// name `ender`. Threads started by the driver meanwhile persist but rename themselves.
static void end_nonblocking(int (*end)(nccl_comm *comm), nccl_comm *comm) {
  enum { PATIENCE = 5000, NAP_NS = 1000000 };
  char name[16];
  prctl(PR_GET_NAME, name);
  prctl(PR_SET_NAME, ender);
  (void)end(comm);
  prctl(PR_SET_NAME, name);
  for (int naps = 0; naps < PATIENCE && any_ender(); naps++)
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}

// Detaches both communicators; returns whether there were any.
static bool detach(joined *self, nccl_comm **whole, nccl_comm **comm) {
  pthread_mutex_lock(&self->lock);
  *whole = self->whole, *comm = self->comm;
  self->whole = self->comm = NULL;
  pthread_mutex_unlock(&self->lock);
  return *whole != NULL;
}

// Waits until no thread is in a call, or PATIENCE_S have elapsed.
static void await_calls(joined *self) {
  enum { PATIENCE_S = 5 };
  struct timespec until;
  int late = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE_S;
  pthread_mutex_lock(&self->lock);
  while (self->inside && !late) late = pthread_cond_timedwait(&self->left, &self->lock, &until);
  pthread_mutex_unlock(&self->lock);
}

static void end_all(void *joined_self) {
  joined *self = joined_self;
  nccl_comm *whole, *comm;
  if (!detach(self, &whole, &comm)) return;
  end_nonblocking(api.ncclCommAbort, whole);
  await_calls(self);
  if (comm) (void)api.ncclCommAbort(comm);
}

static nccl_config config_of(bool blocking) {
  return (nccl_config){.size = sizeof(nccl_config),
                       .magic = (unsigned)MAGIC,
                       .version = CONFIG_VERSION,
                       .blocking = blocking,
                       .cluster = UNDEFINED,
                       .min_blocks = UNDEFINED,
                       .max_blocks = UNDEFINED,
                       .split_share = blocking ? UNDEFINED : 1};
}

static int begin_joining(joined *self, const px_engine_job *job, char *why, size_t capacity) {
  nccl_id id;
  nccl_config config = config_of(false);
  if (share_id(&id, job, why, capacity)) return 1;
  int status = api.ncclCommInitRankConfig(&self->whole, self->size, id, self->rank, &config);
  return is_bad(status) ? nccl_error(self->whole, status, why, capacity) : 0;
}
static int begin_splitting(joined *self, char *why, size_t capacity) {
  nccl_config config = config_of(true);
  int status = api.ncclCommSplit(self->whole, 0, self->rank, &self->comm, &config);
  return is_bad(status) ? nccl_error(self->whole, status, why, capacity) : 0;
}

static void drop(joined *self) {
  end_all(self);
  pthread_cond_destroy(&self->left);
  pthread_mutex_destroy(&self->lock);
  free(self);
}

static int join(void **out, const px_engine_job *job, char *why, size_t capacity) {
  joined *self = calloc(1, sizeof *self);
  if (!self) return set_error(why, capacity, "out of host memory");
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->left, NULL);
  self->size = job->size, self->rank = job->rank;
  int64_t begin = now_ns();
  if (begin_joining(self, job, why, capacity) || await(self->whole, job, begin, why, capacity) ||
      begin_splitting(self, why, capacity) || await(self->whole, job, begin, why, capacity))
    return drop(self), 1;
  *out = self;
  return 0;
}

// An orderly destruction. It waits for the other ranks' destructions, and each of these may first
// wait for another group's. It therefore has a thread, awaited for a limited time.
typedef struct ending {
  struct ending *next;  // guarded by `ends`
  nccl_comm *whole, *comm;
  pthread_t thread;
  bool done;  // guarded by `ends`
} ending;
static pthread_mutex_t ends = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_done = PTHREAD_COND_INITIALIZER;
static ending *endings;  // guarded by `ends`

static void end_both(nccl_comm *whole, nccl_comm *comm) {
  (void)api.ncclCommDestroy(comm);
  end_nonblocking(api.ncclCommDestroy, whole);
}
static void *end_on_thread(void *argument) {
  ending *self = argument;
  prctl(PR_SET_NAME, waiter);
  end_both(self->whole, self->comm);
  pthread_mutex_lock(&ends);
  self->done = true;
  pthread_cond_broadcast(&one_done);
  pthread_mutex_unlock(&ends);
  return NULL;
}

static ending *unlink_ending(ending *which) {
  ending **at = &endings;
  while (*at && *at != which) at = &(*at)->next;
  if (*at) *at = which->next;
  return which;
}

// Waits for one destruction, or for all if `which` is NULL.
static void await_ends(ending *which, int64_t patience_ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_ms / 1000;
  pthread_mutex_lock(&ends);
  for (ending *at = which ? which : endings; at; at = which ? NULL : endings) {
    int late = 0;
    while (!at->done && !late) late = pthread_cond_timedwait(&one_done, &ends, &until);
    if (!at->done) break;
    pthread_join(unlink_ending(at)->thread, NULL);
    free(at);
  }
  pthread_mutex_unlock(&ends);
}

// Forked processes have none of the threads.
static pid_t owner;
static void await_all_ends(void) {
  enum { PATIENCE_MS = 5000 };
  if (owner == getpid()) await_ends(NULL, PATIENCE_MS);
}
static void at_exit(void) {
  owner = getpid();
  atexit(await_all_ends);
}

// Destroys both communicators; queued work has completed.
static void end_in_order(nccl_comm *whole, nccl_comm *comm) {
  enum { PATIENCE_MS = 1000 };
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  ending *self = calloc(1, sizeof *self);
  pthread_once(&once, at_exit);
  pthread_mutex_lock(&ends);
  if (self) self->whole = whole, self->comm = comm;
  bool begun = self && !pthread_create(&self->thread, NULL, end_on_thread, self);
  if (begun) self->next = endings, endings = self;
  pthread_mutex_unlock(&ends);
  if (begun) {
    await_ends(self, PATIENCE_MS);
  } else {
    free(self);
    end_both(whole, comm);
  }
}

static void leave(void *joined_self) {
  joined *self = joined_self;
  nccl_comm *whole, *comm;
  char why[256];
  bool fine = self->comm && !state_of(self->comm, why, sizeof why);
  if (fine && detach(self, &whole, &comm)) end_in_order(whole, comm);
  drop(self);
}

// Reports NCCL's asynchronous error, or a timeout if a call blocks its thread for too long.
static int check(void *joined_self, char *why, size_t capacity) {
  joined *self = joined_self;
  pthread_mutex_lock(&self->lock);
  int bad = self->comm ? state_of(self->comm, why, capacity) : 0;
  bool held = !bad && self->comm && self->inside;
  if (held && (now_ns() - self->since_ns) / 1000000 >= self->time_ms)
    bad = timeout_error(self->time_ms, why, capacity);
  pthread_mutex_unlock(&self->lock);
  return bad == 1;
}

// ---- calls

static const int8_t types[PX_DTYPE_COUNT] = {
    [PX_BOOL] = 1,    [PX_UINT8] = 1,          [PX_INT8] = 0,         [PX_INT16] = NO_TYPE,
    [PX_INT32] = 2,   [PX_INT64] = 4,          [PX_FLOAT16] = 6,      [PX_BFLOAT16] = 9,
    [PX_FLOAT32] = 7, [PX_FLOAT64] = 8,        [PX_UINT16] = NO_TYPE, [PX_UINT32] = 3,
    [PX_UINT64] = 5,  [PX_FLOAT8_E4M3FN] = 10, [PX_FLOAT8_E5M2] = 11,
};
enum { ADD = 0, MULTIPLY = 1, MAX = 2, MIN = 3, AVERAGE = 4, NO_OP = -1 };
static const int8_t reductions[PX_REDUCE_COUNT] = {
    [PX_REDUCE_SUM] = ADD,   [PX_REDUCE_AVG] = AVERAGE, [PX_REDUCE_PRODUCT] = MULTIPLY,
    [PX_REDUCE_MIN] = MIN,   [PX_REDUCE_MAX] = MAX,     [PX_REDUCE_BAND] = NO_OP,
    [PX_REDUCE_BOR] = NO_OP, [PX_REDUCE_BXOR] = NO_OP,  [PX_REDUCE_PREMUL_SUM] = ADD,
};
#define XX(name) #name,
static const char *const reduction_names[] = {PX_REDUCE_MAP(XX)};
#undef XX

static bool reduces(px_collective_op op) {
  return op == PX_ALL_REDUCE || op == PX_REDUCE || op == PX_REDUCE_SCATTER;
}

// Dtypes without a row have 0, the number of int8.
static int type_of(px_dtype dtype) {
  bool known = dtype >= 0 && dtype < PX_DTYPE_COUNT && (types[dtype] || dtype == PX_INT8);
  return known ? types[dtype] : NO_TYPE;
}

// A sum of bools is their logical or.
static int reduction_of(const px_engine_call *call) {
  bool is_bool_sum = call->dtype == PX_BOOL && call->reduction == PX_REDUCE_SUM;
  return is_bool_sum ? MAX : reductions[call->reduction];
}

static int refuse(const px_engine_call *call, char *why, size_t capacity) {
  if (call->op == PX_RECV && call->peer < 0)
    return 2 + set_error(why, capacity, "Backend nccl does not support recvAnysource");
  if (!reduces(call->op)) return 0;
  if (reductions[call->reduction] == NO_OP)
    return set_error(why, capacity, "Cannot use ReduceOp.%s with NCCL",
                     reduction_names[call->reduction]);
  if (call->dtype == PX_BOOL && call->reduction == PX_REDUCE_AVG)
    return set_error(why, capacity, "Cannot use ReduceOp.AVG with Boolean inputs");
  if (type_of(call->dtype) != NO_TYPE) return 0;
  return 1 + set_error(why, capacity,
                       "Input tensor data type is not supported for NCCL process group: ");
}

// A call being issued to NCCL; data movement counts bytes.
typedef struct order {
  const px_engine_call *c;
  nccl_comm *comm;
  void *stream;
  int size, rank;
} order;

static size_t bytes_of(const order *o) { return o->c->item * (size_t)o->c->count; }

static int all_reduce(const order *o) {
  return api.ncclAllReduce(o->c->in, o->c->out, (size_t)o->c->count, type_of(o->c->dtype),
                           reduction_of(o->c), o->comm, o->stream);
}

static int reduce(const order *o) {
  return api.ncclReduce(o->c->in, o->c->out, (size_t)o->c->count, type_of(o->c->dtype),
                        reduction_of(o->c), o->c->peer, o->comm, o->stream);
}

static int reduce_scatter(const order *o) {
  return api.ncclReduceScatter(o->c->in, o->c->out, (size_t)o->c->count, type_of(o->c->dtype),
                               reduction_of(o->c), o->comm, o->stream);
}

static int broadcast(const order *o) {
  return api.ncclBroadcast(o->c->in, o->c->out, bytes_of(o), BYTE, o->c->peer, o->comm, o->stream);
}

static int all_gather(const order *o) {
  return api.ncclAllGather(o->c->in, o->c->out, bytes_of(o), BYTE, o->comm, o->stream);
}

static int send_part(const order *o, int peer, size_t at, size_t bytes) {
  const char *from = o->c->in;
  return bytes ? api.ncclSend(from + at, bytes, BYTE, peer, o->comm, o->stream) : 0;
}

static int receive_part(const order *o, int peer, size_t at, size_t bytes) {
  char *to = o->c->out;
  return bytes ? api.ncclRecv(to + at, bytes, BYTE, peer, o->comm, o->stream) : 0;
}

static int send_all(const order *o) { return send_part(o, o->c->peer, 0, bytes_of(o)); }
static int receive_all(const order *o) { return receive_part(o, o->c->peer, 0, bytes_of(o)); }

static int all_to_all(const order *o) {
  size_t in = 0, out = 0;
  int status = 0;
  for (int r = 0; r < o->size && !is_bad(status); r++) {
    size_t to = (size_t)o->c->in_counts[r] * o->c->item;
    size_t from = (size_t)o->c->out_counts[r] * o->c->item;
    status = send_part(o, r, in, to);
    if (!is_bad(status)) status = receive_part(o, r, out, from);
    in += to, out += from;
  }
  return status;
}

static int gather(const order *o) {
  size_t part = bytes_of(o);
  int status = send_all(o);
  for (int r = 0; r < o->size && o->c->peer == o->rank && !is_bad(status); r++)
    status = receive_part(o, r, (size_t)r * part, part);
  return status;
}

static int scatter(const order *o) {
  size_t part = bytes_of(o);
  int status = receive_all(o);
  for (int r = 0; r < o->size && o->c->peer == o->rank && !is_bad(status); r++)
    status = send_part(o, r, (size_t)r * part, part);
  return status;
}

// A barrier is an all_reduce of one element.
static int (*const issuers[PX_COLLECTIVE_COUNT])(const order *o) = {
    [PX_BROADCAST] = broadcast,
    [PX_ALL_REDUCE] = all_reduce,
    [PX_REDUCE] = reduce,
    [PX_ALL_GATHER] = all_gather,
    [PX_REDUCE_SCATTER] = reduce_scatter,
    [PX_ALL_TO_ALL] = all_to_all,
    [PX_GATHER] = gather,
    [PX_SCATTER] = scatter,
    [PX_BARRIER] = all_reduce,
    [PX_SEND] = send_all,
    [PX_RECV] = receive_all,
};

// Issues the calls as one NCCL group. The group is ended even if a call fails.
static int issue_all(const joined *self, nccl_comm *comm, const px_engine_call *calls, int count,
                     void *stream) {
  int status = api.ncclGroupStart();
  if (is_bad(status)) return status;
  for (int i = 0; i < count && !is_bad(status); i++) {
    order o = {&calls[i], comm, stream, self->size, self->rank};
    status = issuers[calls[i].op](&o);
  }
  int ended = api.ncclGroupEnd();
  return is_bad(status) ? status : ended;
}

static int64_t longest_time(const px_engine_call *calls, int count) {
  int64_t time_ms = 0;
  for (int i = 0; i < count; i++)
    if (calls[i].timeout_ms > time_ms) time_ms = calls[i].timeout_ms;
  return time_ms;
}
static nccl_comm *enter(joined *self, int64_t time_ms) {
  pthread_mutex_lock(&self->lock);
  nccl_comm *comm = self->comm;
  if (comm) self->inside++, self->since_ns = now_ns(), self->time_ms = time_ms;
  pthread_mutex_unlock(&self->lock);
  return comm;
}
// The status of an aborted call is ignored: the group ended first.
static int exit_call(joined *self, nccl_comm *comm, int status, char *why, size_t capacity) {
  pthread_mutex_lock(&self->lock);
  int bad = !self->comm      ? ended_error(why, capacity)
            : is_bad(status) ? nccl_error(comm, status, why, capacity)
                             : 0;
  self->inside--;
  pthread_cond_broadcast(&self->left);
  pthread_mutex_unlock(&self->lock);
  return bad;
}
static int queue(void *joined_self, const px_engine_call *calls, int count, void *stream, char *why,
                 size_t capacity) {
  joined *self = joined_self;
  nccl_comm *comm = enter(self, longest_time(calls, count));
  if (!comm) return ended_error(why, capacity);
  return exit_call(self, comm, issue_all(self, comm, calls, count, stream), why, capacity);
}

// ---- the table

static const px_engine table = {
    .abi = PX_ENGINE_ABI,
    .size = sizeof(px_engine),
    .name = "nccl",
    .load = load,
    .open = join,
    .close = leave,
    .abort = end_all,
    .queue = queue,
    .check = check,
    .refuse = refuse,
};

__attribute__((visibility("default"))) const px_engine *px_engine_entry(uint32_t abi);
const px_engine *px_engine_entry(uint32_t abi) { return abi == PX_ENGINE_ABI ? &table : NULL; }
