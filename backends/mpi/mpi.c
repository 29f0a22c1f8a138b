// SPDX-License-Identifier: Apache-2.0
// Collective backend over MPI (Open MPI, MPICH) for ranks started by mpirun.
//
// Every call is started non-blocking and polled until its deadline, because MPI itself waits
// forever. Collectives run one at a time in the order of their numbers, since MPI matches them
// by order. MPI works on buffers of the engine. They are leaked if a call is abandoned, because
// MPI may still write to them. A reduction exchanges parts and reduces each part in rank order,
// so every dtype is supported and all ranks get the same bits. One lock guards all MPI calls.
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "phlox/engine.h"

enum { SPINS = 200, NAP_NS = 50000 };  // polls before sleeping; nanoseconds between later polls
#define KEY "mpi"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;    // guarded by lock: MPI was started here
static bool abandoned;  // atomic: a call was abandoned, so MPI_Finalize would block

typedef struct joined {
  MPI_Comm comm;
  int rank, size;
  bool aborted;                // atomic
  pthread_mutex_t order_lock;  // guards `next`
  pthread_cond_t changed;
  uint64_t next;  // number of the next collective to run
} joined;

static int fail(char *why, size_t capacity, const char *text) {
  return snprintf(why, capacity, "%s", text), 1;
}

// Returns MPI's error text.
static int check(int code, char *why, size_t capacity) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code == MPI_SUCCESS) return 0;
  MPI_Error_string(code, text, &length);
  return fail(why, capacity, text);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// ---- start and end of MPI

static void finalize(void) {
  int over = 1;
  pthread_mutex_lock(&lock);
  MPI_Finalized(&over);
  if (!over && !__atomic_load_n(&abandoned, __ATOMIC_ACQUIRE)) MPI_Finalize();
  pthread_mutex_unlock(&lock);
}

static int start_mpi(char *why, size_t capacity) {
  int initialized = 0, over = 0, level = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&over);
  if (over) return fail(why, capacity, "MPI was finalized");
  if (!initialized) {
    if (check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), why, capacity)) return 1;
    started = true;
    atexit(finalize);
  }
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    return fail(why, capacity, "MPI was initialized without MPI_THREAD_SERIALIZED");
  return check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), why, capacity);
}

static int world(int *rank, int *size, void *note, size_t bytes, char *why, size_t capacity) {
  pthread_mutex_lock(&lock);
  int bad = start_mpi(why, capacity);
  if (!bad) bad = check(MPI_Comm_rank(MPI_COMM_WORLD, rank), why, capacity);
  if (!bad) bad = check(MPI_Comm_size(MPI_COMM_WORLD, size), why, capacity);
  if (!bad && bytes)
    bad = check(MPI_Bcast(note, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD), why, capacity);
  pthread_mutex_unlock(&lock);
  return bad;
}

// ---- joining

// Finds the communicator's ranks in MPI_COMM_WORLD.
static int find_ranks(int *ranks, const px_engine_job *job, char *why, size_t capacity) {
  char key[32];
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks[job->rank]);
  snprintf(key, sizeof key, KEY "/%d", job->rank);
  if (job->set(job->store, key, &ranks[job->rank], sizeof(int), why, capacity)) return 1;
  for (int r = 0; r < job->size; r++) {
    void *value;
    size_t size;
    snprintf(key, sizeof key, KEY "/%d", r);
    if (job->get(job->store, key, &value, &size, why, capacity)) return 1;
    bool whole = size == sizeof(int);
    if (whole) memcpy(&ranks[r], value, sizeof(int));
    job->release(value);
    if (!whole) return fail(why, capacity, "the store holds an invalid rank");
  }
  return 0;
}

static int make_comm(joined *self, const int *ranks, char *why, size_t capacity) {
  MPI_Group all, group;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  int bad = check(MPI_Group_incl(all, self->size, ranks, &group), why, capacity);
  if (!bad) {
    bad = check(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &self->comm), why, capacity);
    MPI_Group_free(&group);
  }
  MPI_Group_free(&all);
  if (bad) return 1;
  return check(MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN), why, capacity);
}

static int join(void **out, const px_engine_job *job, char *why, size_t capacity) {
  joined *self = calloc(1, sizeof *self);
  int *ranks = calloc((size_t)job->size, sizeof *ranks);
  int bad = 1;
  *out = NULL;
  if (!self || !ranks) {
    fail(why, capacity, "out of host memory");
  } else {
    *self = (joined){.rank = job->rank, .size = job->size, .next = 1};
    pthread_mutex_lock(&lock);
    bad = start_mpi(why, capacity);
    pthread_mutex_unlock(&lock);
    if (!bad) bad = find_ranks(ranks, job, why, capacity);
    pthread_mutex_lock(&lock);
    if (!bad) bad = make_comm(self, ranks, why, capacity);
    pthread_mutex_unlock(&lock);
  }
  free(ranks);
  if (bad) return free(self), 1;
  pthread_mutex_init(&self->order_lock, NULL);
  pthread_cond_init(&self->changed, NULL);
  *out = self;
  return 0;
}

static void leave(void *object) {
  joined *self = object;
  int over = 0;
  pthread_mutex_lock(&lock);
  MPI_Finalized(&over);
  // MPI_Comm_free is collective: after an abandoned call the communicator is leaked.
  if (!over && !__atomic_load_n(&abandoned, __ATOMIC_ACQUIRE)) MPI_Comm_free(&self->comm);
  pthread_mutex_unlock(&lock);
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->order_lock);
  free(self);
}

static void abort_group(void *object) {
  joined *self = object;
  __atomic_store_n(&abandoned, true, __ATOMIC_RELEASE);
  __atomic_store_n(&self->aborted, true, __ATOMIC_RELEASE);
  pthread_mutex_lock(&self->order_lock);
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->order_lock);
}

// ---- waiting

static int await(joined *self, MPI_Request *request, MPI_Status *status, int64_t end, char *why,
                 size_t capacity) {
  const struct timespec nap = {0, NAP_NS};
  for (int polls = 0;; polls++) {
    int done = 0;
    pthread_mutex_lock(&lock);
    int bad = check(MPI_Test(request, &done, status), why, capacity);
    pthread_mutex_unlock(&lock);
    if (bad) return 1;
    if (done) return 0;
    bool aborted = __atomic_load_n(&self->aborted, __ATOMIC_ACQUIRE);
    if (aborted || now_ms() >= end) {
      __atomic_store_n(&abandoned, true, __ATOMIC_RELEASE);
      return fail(why, capacity, aborted ? "it was aborted" : "it timed out");
    }
    if (polls > SPINS) nanosleep(&nap, NULL);
  }
}

// ---- exchanges

// A running collective: its buffers, and the elements sent to and received from each rank.
typedef struct exchange {
  joined *self;
  const px_engine_call *call;
  int64_t end;
  MPI_Datatype item;
  char *in, *out;  // buffers of the engine
  int *counts;  // arrays by rank: send counts, send offsets, receive counts, receive offsets, parts
  char *why;
  size_t capacity;
} exchange;

static int finish_request(exchange *x, int code, MPI_Request *request) {
  pthread_mutex_unlock(&lock);
  if (check(code, x->why, x->capacity)) return 1;
  return await(x->self, request, MPI_STATUS_IGNORE, x->end, x->why, x->capacity);
}

static int *counts_of(exchange *x, int side) { return x->counts + (ptrdiff_t)side * x->self->size; }

static int all_to_all(exchange *x, const void *from, void *to) {
  MPI_Request request;
  pthread_mutex_lock(&lock);
  return finish_request(
      x,
      MPI_Ialltoallv(from, counts_of(x, 0), counts_of(x, 1), x->item, to, counts_of(x, 2),
                     counts_of(x, 3), x->item, x->self->comm, &request),
      &request);
}

// Elements of rank r's part of `n`.
static int part(int64_t n, int size, int r) { return (int)(n / size + (r < n % size)); }

static void set_offsets(int *counts, int *offsets, int size) {
  int at = 0;
  for (int r = 0; r < size; r++) offsets[r] = at, at += counts[r];
}

// Reduces this rank's part from all ranks, stored consecutively at x->out, into the first.
static void reduce_parts(exchange *x, int n) {
  const px_engine_call *c = x->call;
  for (int r = 1; r < x->self->size; r++)
    c->reduce(x->out, x->out, x->out + (size_t)r * (size_t)n * c->item, (size_t)n);
}

// Sends each rank its part of the input and reduces the received ones to x->out.
static int reduce_own_part(exchange *x, const int *parts) {
  int size = x->self->size, own = parts[x->self->rank];
  for (int r = 0; r < size; r++) counts_of(x, 0)[r] = parts[r], counts_of(x, 2)[r] = own;
  set_offsets(counts_of(x, 0), counts_of(x, 1), size);
  set_offsets(counts_of(x, 2), counts_of(x, 3), size);
  if (all_to_all(x, x->in, x->out)) return 1;
  reduce_parts(x, own);
  return 0;
}

static int all_reduce(exchange *x) {
  int size = x->self->size, *parts = counts_of(x, 4);
  MPI_Request request;
  for (int r = 0; r < size; r++) parts[r] = part(x->call->count, size, r);
  if (reduce_own_part(x, parts)) return 1;
  pthread_mutex_lock(&lock);
  int code = x->call->op == PX_REDUCE
                 ? MPI_Igatherv(x->out, parts[x->self->rank], x->item, x->in, parts,
                                counts_of(x, 1), x->item, x->call->peer, x->self->comm, &request)
                 : MPI_Iallgatherv(x->out, parts[x->self->rank], x->item, x->in, parts,
                                   counts_of(x, 1), x->item, x->self->comm, &request);
  return finish_request(x, code, &request);
}

static int reduce_scatter(exchange *x) {
  int *parts = counts_of(x, 4);
  for (int r = 0; r < x->self->size; r++) parts[r] = (int)x->call->count;
  return reduce_own_part(x, parts);
}

static int exchange_all(exchange *x) {
  int size = x->self->size;
  for (int r = 0; r < size; r++) {
    counts_of(x, 0)[r] = (int)x->call->in_counts[r];
    counts_of(x, 2)[r] = (int)x->call->out_counts[r];
  }
  set_offsets(counts_of(x, 0), counts_of(x, 1), size);
  set_offsets(counts_of(x, 2), counts_of(x, 3), size);
  return all_to_all(x, x->in, x->out);
}

static int simple(exchange *x) {
  const px_engine_call *c = x->call;
  int n = (int)c->count, code = MPI_SUCCESS;
  MPI_Request request;
  MPI_Comm comm = x->self->comm;
  pthread_mutex_lock(&lock);
  if (c->op == PX_BROADCAST) code = MPI_Ibcast(x->in, n, x->item, c->peer, comm, &request);
  if (c->op == PX_ALL_GATHER)
    code = MPI_Iallgather(x->in, n, x->item, x->out, n, x->item, comm, &request);
  if (c->op == PX_GATHER)
    code = MPI_Igather(x->in, n, x->item, x->out, n, x->item, c->peer, comm, &request);
  if (c->op == PX_SCATTER)
    code = MPI_Iscatter(x->in, n, x->item, x->out, n, x->item, c->peer, comm, &request);
  if (c->op == PX_BARRIER) code = MPI_Ibarrier(comm, &request);
  return finish_request(x, code, &request);
}

// Implementation and element counts of each collective: one rank's share, all ranks' shares, or
// as given by the counts. Collectives without an output work in place.
enum { NONE, ONE, ALL, COUNTS };
static const struct {
  int (*run)(exchange *x);
  unsigned char in, out, capacity;  // capacity: minimum capacity of x->out, excluding uneven parts
} collectives[PX_COLLECTIVE_COUNT] = {
    [PX_BROADCAST] = {simple, ONE, NONE, NONE},
    [PX_ALL_REDUCE] = {all_reduce, ONE, NONE, ONE},
    [PX_REDUCE] = {all_reduce, ONE, NONE, ONE},
    [PX_ALL_GATHER] = {simple, ONE, ALL, ALL},
    [PX_REDUCE_SCATTER] = {reduce_scatter, ALL, ONE, ALL},
    [PX_ALL_TO_ALL] = {exchange_all, COUNTS, COUNTS, COUNTS},
    [PX_GATHER] = {simple, ONE, ALL, ALL},
    [PX_SCATTER] = {simple, ALL, ONE, ONE},
    [PX_BARRIER] = {simple, NONE, NONE, NONE},
};

static size_t bytes_of(const joined *self, const px_engine_call *c, int kind, bool out) {
  int64_t n = kind == ONE ? c->count : kind == ALL ? c->count * self->size : 0;
  for (int r = 0; kind == COUNTS && r < self->size; r++)
    n += out ? c->out_counts[r] : c->in_counts[r];
  return (size_t)n * c->item;
}

static int exchange_bytes(exchange *x) {
  const px_engine_call *c = x->call;
  const joined *self = x->self;
  bool in_place = collectives[c->op].out == NONE;
  size_t in = bytes_of(self, c, collectives[c->op].in, false);
  size_t out = bytes_of(self, c, collectives[c->op].out, true);
  size_t capacity =
      bytes_of(self, c, collectives[c->op].capacity, true) + (size_t)self->size * c->item;
  x->in = malloc(in + 1);
  x->out = malloc(capacity + 1);
  x->counts = calloc(5 * (size_t)self->size, sizeof(int));
  if (!x->in || !x->out || !x->counts) return fail(x->why, x->capacity, "out of host memory");
  if (c->in && in) memcpy(x->in, c->in, in);
  if (collectives[c->op].run(x)) return 1;
  size_t wanted = !in_place ? out : c->op == PX_REDUCE && c->peer != self->rank ? 0 : in;
  if (c->out && wanted) memcpy(c->out, in_place ? x->in : x->out, wanted);
  return 0;
}

// ---- ordering by number

static int await_order(joined *self, uint64_t number, int64_t end, char *why, size_t capacity) {
  struct timespec until;
  int bad = 0;
  pthread_mutex_lock(&self->order_lock);
  while (!bad && self->next != number) {
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&self->changed, &self->order_lock, &until);
    if (__atomic_load_n(&self->aborted, __ATOMIC_ACQUIRE))
      bad = fail(why, capacity, "it was aborted");
    if (!bad && now_ms() >= end)
      bad = fail(why, capacity, "timed out waiting for an earlier collective");
  }
  pthread_mutex_unlock(&self->order_lock);
  return bad;
}

static void advance_order(joined *self) {
  pthread_mutex_lock(&self->order_lock);
  self->next++;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->order_lock);
}

// ---- sends and receives

typedef struct pending {
  joined *self;
  MPI_Request request;
  char *data;  // buffer of the engine
  void *out;   // receives
  size_t bytes;
  bool receives;
} pending;

static int start(void **out, void *object, const px_engine_call *call, char *why, size_t capacity) {
  joined *self = object;
  int *max_tag = NULL, initialized = 0, code;
  pending *p = calloc(1, sizeof *p);
  *out = p;
  if (p) *p = (pending){.self = self, .out = call->out, .receives = call->op == PX_RECV};
  if (p) p->bytes = (size_t)call->count * call->item;
  if (!p || !(p->data = malloc(p->bytes + 1)))
    return free(p), fail(why, capacity, "out of host memory");
  pthread_mutex_lock(&lock);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &max_tag, &initialized);
  bool fits = initialized && call->tag <= (uint32_t)*max_tag && p->bytes <= 0x7fffffff;
  if (!fits) {
    code = MPI_ERR_TAG;
  } else if (p->receives) {
    code = MPI_Irecv(p->data, (int)p->bytes, MPI_BYTE, call->peer < 0 ? MPI_ANY_SOURCE : call->peer,
                     (int)call->tag, self->comm, &p->request);
  } else {
    if (p->bytes) memcpy(p->data, call->in, p->bytes);
    code = MPI_Isend(p->data, (int)p->bytes, MPI_BYTE, call->peer, (int)call->tag, self->comm,
                     &p->request);
  }
  pthread_mutex_unlock(&lock);
  if (code == MPI_SUCCESS) return 0;
  free(p->data);
  free(p);
  return check(code, why, capacity);
}

static int finish(void *object, int *peer, int64_t timeout_ms, char *why, size_t capacity) {
  pending *p = object;
  MPI_Status status = {.MPI_SOURCE = -1};
  *peer = -1;
  // The buffer is leaked: MPI may still access it.
  if (timeout_ms < 0) return free(p), 0;
  int bad = await(p->self, &p->request, &status, now_ms() + timeout_ms, why, capacity);
  if (!bad && p->receives) {
    *peer = status.MPI_SOURCE;
    if (p->bytes) memcpy(p->out, p->data, p->bytes);
  }
  if (!bad) free(p->data);
  free(p);
  return bad;
}

// ---- collectives

static int run_exchange(joined *self, const px_engine_call *call, int64_t end, char *why,
                        size_t capacity) {
  exchange x = {.self = self, .call = call, .end = end, .why = why, .capacity = capacity};
  pthread_mutex_lock(&lock);
  MPI_Type_contiguous((int)(call->item ? call->item : 1), MPI_BYTE, &x.item);
  MPI_Type_commit(&x.item);
  pthread_mutex_unlock(&lock);
  int bad = exchange_bytes(&x);
  pthread_mutex_lock(&lock);
  MPI_Type_free(&x.item);
  pthread_mutex_unlock(&lock);
  if (bad) return 1;  // leaks the buffers, which MPI may still access
  free(x.in);
  free(x.out);
  free(x.counts);
  return 0;
}

static int run(void *object, const px_engine_call *call, char *why, size_t capacity) {
  joined *self = object;
  int64_t end = now_ms() + call->timeout_ms;
  void *sends;
  int peer;
  if (call->op == PX_SEND || call->op == PX_RECV)
    return start(&sends, self, call, why, capacity) ||
           finish(sends, &peer, call->timeout_ms, why, capacity);
  if (call->count * self->size > 0x7fffffff)
    return fail(why, capacity, "MPI supports at most 2147483647 elements");
  if (await_order(self, call->number, end, why, capacity)) return 1;
  int bad = run_exchange(self, call, end, why, capacity);
  advance_order(self);
  return bad;
}

static const px_engine table = {.abi = PX_ENGINE_ABI,
                                .size = sizeof(px_engine),
                                .name = "mpi",
                                .open = join,
                                .close = leave,
                                .abort = abort_group,
                                .run = run,
                                .start = start,
                                .finish = finish,
                                .world = world};

__attribute__((visibility("default"))) const px_engine *px_engine_entry(uint32_t abi);
const px_engine *px_engine_entry(uint32_t abi) { return abi == PX_ENGINE_ABI ? &table : NULL; }
