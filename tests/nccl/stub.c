// SPDX-License-Identifier: Apache-2.0
// A stub of NCCL, built as libnccl.so.2. See stub.h.
#include "nccl/stub.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
#define EXPORTED __attribute__((visibility("default")))

EXPORTED extern nccl_stub_state nccl_stub;
nccl_stub_state nccl_stub;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int polls_left;  // guarded by `lock`: polls left
static int child;       // its address stands in for all children

typedef struct id {
  char bytes[128];
} id;
typedef struct config {
  size_t size;
  unsigned magic, version;
  int blocking;
} config;

static int record(const char *name, nccl_stub_call call) {
  pthread_mutex_lock(&lock);
  call.name = name;
  if (nccl_stub.count < NCCL_STUB_CALLS) nccl_stub.calls[nccl_stub.count++] = call;
  int bad = nccl_stub.bad_call && !strcmp(name, nccl_stub.bad_call);
  pthread_mutex_unlock(&lock);
  return bad ? INVALID_USAGE : 0;
}
#define RECORD(...) record(__func__, (nccl_stub_call){NULL, __VA_ARGS__})

EXPORTED int ncclGetUniqueId(id *out);
int ncclGetUniqueId(id *out) {
  memset(out, 7, sizeof *out);
  return 0;
}

static int begin(int bad) {
  pthread_mutex_lock(&lock);
  polls_left = nccl_stub.delay;
  pthread_mutex_unlock(&lock);
  return bad ? bad : IN_PROGRESS;
}
EXPORTED int ncclCommInitRankConfig(void **out, int size, id all, int rank, const config *how);
int ncclCommInitRankConfig(void **out, int size, id all, int rank, const config *how) {
  nccl_stub.joined_size = size, nccl_stub.joined_rank = rank;
  nccl_stub.blocking[0] = how->blocking;
  *out = &nccl_stub;
  return begin(all.bytes[127] == 7 ? RECORD(.peer = rank) : INVALID_USAGE);
}
EXPORTED int ncclCommSplit(void *comm, int colour, int key, void **out, const config *how);
int ncclCommSplit(void *comm, int colour, int key, void **out, const config *how) {
  nccl_stub.blocking[1] = how->blocking;
  *out = &child;
  return begin(comm == &nccl_stub && !colour ? RECORD(.peer = key) : INVALID_USAGE);
}

EXPORTED int ncclCommGetAsyncError(void *comm, int *state);
int ncclCommGetAsyncError(void *comm, int *state) {
  bool joins = comm != &child;
  pthread_mutex_lock(&lock);
  *state = nccl_stub.bad_state ? nccl_stub.bad_state : joins && polls_left ? IN_PROGRESS : 0;
  if (joins && polls_left > 0) polls_left--;
  pthread_mutex_unlock(&lock);
  return 0;
}

// Blocks until `release_barrier` communicators are released.
static void await_releases(void) {
  __atomic_add_fetch(&nccl_stub.releasing, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&nccl_stub.releasing, __ATOMIC_ACQUIRE) < nccl_stub.release_barrier)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}
// A thread as started by the driver.
static void *run_driver_thread(void *unused) {
  prctl(PR_SET_NAME, "cuda-EvtHandlr");
  __atomic_store_n(&nccl_stub.driver_thread_alive, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&nccl_stub.driver_thread_alive, __ATOMIC_ACQUIRE))
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  return NULL;
}
static void start(void *(*body)(void *unused)) {
  pthread_t thread;
  if (!pthread_create(&thread, NULL, body, NULL)) pthread_detach(thread);
}
static void *tear_down(void *unused) {
  start(run_driver_thread);
  while (!__atomic_load_n(&nccl_stub.driver_thread_alive, __ATOMIC_ACQUIRE))
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  nanosleep(&(struct timespec){0, 300000000}, NULL);
  __atomic_store_n(&nccl_stub.torn_down, 1, __ATOMIC_RELEASE);
  return NULL;
}
EXPORTED int ncclCommDestroy(void *comm);
int ncclCommDestroy(void *comm) {
  if (comm == &child) return await_releases(), 0;
  __atomic_add_fetch(&nccl_stub.destroyed, 1, __ATOMIC_RELEASE);
  start(tear_down);
  return 0;
}
EXPORTED int ncclCommAbort(void *comm);
int ncclCommAbort(void *comm) {
  int *count = comm == &child ? &nccl_stub.aborted_children : &nccl_stub.aborted;
  __atomic_add_fetch(count, 1, __ATOMIC_RELEASE);
  if (nccl_stub.on_abort) nccl_stub.on_abort();
  return 0;
}

EXPORTED const char *ncclGetErrorString(int status);
const char *ncclGetErrorString(int status) {
  return status == INVALID_USAGE ? "invalid usage" : "remote process exited";
}
EXPORTED const char *ncclGetLastError(void *comm);
const char *ncclGetLastError(void *comm) { return "by the stand-in"; }

EXPORTED int ncclGroupStart(void);
int ncclGroupStart(void) { return RECORD(.in = NULL); }
EXPORTED int ncclGroupEnd(void);
int ncclGroupEnd(void) {
  int status = RECORD(.in = NULL);
  if (!__atomic_load_n(&nccl_stub.blocks_calls, __ATOMIC_ACQUIRE)) return status;
  while (!__atomic_load_n(&nccl_stub.aborted, __ATOMIC_ACQUIRE))
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  return REMOTE_ERROR;
}

EXPORTED int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm,
                           void *stream);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm,
                  void *stream) {
  return RECORD(in, out, count, type, op, -1, stream);
}
EXPORTED int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root,
                        void *comm, void *stream);
int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root, void *comm,
               void *stream) {
  return RECORD(in, out, count, type, op, root, stream);
}
EXPORTED int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op,
                               void *comm, void *stream);
int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm,
                      void *stream) {
  return RECORD(in, out, count, type, op, -1, stream);
}
EXPORTED int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm,
                           void *stream);
int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm,
                  void *stream) {
  return RECORD(in, out, count, type, -1, root, stream);
}
EXPORTED int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm,
                           void *stream);
int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream) {
  return RECORD(in, out, count, type, -1, -1, stream);
}
EXPORTED int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream);
int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream) {
  return RECORD(in, NULL, count, type, -1, peer, stream);
}
EXPORTED int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream);
int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream) {
  return RECORD(NULL, out, count, type, -1, peer, stream);
}
