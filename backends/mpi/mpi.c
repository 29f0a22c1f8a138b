// SPDX-License-Identifier: Apache-2.0
// The engine of collectives over MPI (Open MPI, MPICH): ranks that mpirun has started.
//
// Every call is begun without blocking and asked about until its deadline, since MPI itself waits
// for ever. Collectives run one at a time in the order of their numbers, as MPI matches them by
// their order. MPI works on memory of the engine's own, which stays with it if a call is given up:
// MPI may still write there. Reductions are exchanges of parts and a reduction of each part in the
// order of ranks, so that every dtype is served and all ranks get the same bits. One lock guards
// all calls of MPI.
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "phlox/engine.h"

enum { SPINS = 200, NAP_NS = 50000 };
#define KEY "mpi"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;  // by lock: MPI was started here
static bool spoiled;  // atomic: a call was given up, so that MPI would wait at its end

typedef struct joined {
  MPI_Comm comm;
  int rank, size;
  bool aborted;          // atomic
  pthread_mutex_t turn;  // of `next`
  pthread_cond_t changed;
  uint64_t next;  // the number of the collective that runs next
} joined;

static int fail(char *why, size_t room, const char *text) {
  return snprintf(why, room, "%s", text), 1;
}

// Says what MPI says.
static int check(int code, char *why, size_t room) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (code == MPI_SUCCESS) return 0;
  MPI_Error_string(code, text, &length);
  return fail(why, room, text);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// ---- MPI's beginning and end

static void finalize(void) {
  int over = 1;
  pthread_mutex_lock(&lock);
  MPI_Finalized(&over);
  if (!over && !__atomic_load_n(&spoiled, __ATOMIC_ACQUIRE)) MPI_Finalize();
  pthread_mutex_unlock(&lock);
}

static int start_mpi(char *why, size_t room) {
  int there = 0, over = 0, level = 0;
  MPI_Initialized(&there);
  MPI_Finalized(&over);
  if (over) return fail(why, room, "MPI was finalized");
  if (!there) {
    if (check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), why, room)) return 1;
    started = true;
    atexit(finalize);
  }
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_SERIALIZED)
    return fail(why, room, "MPI was started without MPI_THREAD_SERIALIZED, and threads call it");
  return check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), why, room);
}

static int world(int *rank, int *size, void *note, size_t bytes, char *why, size_t room) {
  pthread_mutex_lock(&lock);
  int bad = start_mpi(why, room);
  if (!bad) bad = check(MPI_Comm_rank(MPI_COMM_WORLD, rank), why, room);
  if (!bad) bad = check(MPI_Comm_size(MPI_COMM_WORLD, size), why, room);
  if (!bad && bytes)
    bad = check(MPI_Bcast(note, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD), why, room);
  pthread_mutex_unlock(&lock);
  return bad;
}

// ---- joining

// The ranks of MPI_COMM_WORLD that the communicator's are.
static int find_ranks(int *ranks, const px_engine_job *job, char *why, size_t room) {
  char key[32];
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks[job->rank]);
  snprintf(key, sizeof key, KEY "/%d", job->rank);
  if (job->set(job->store, key, &ranks[job->rank], sizeof(int), why, room)) return 1;
  for (int r = 0; r < job->size; r++) {
    void *value;
    size_t size;
    snprintf(key, sizeof key, KEY "/%d", r);
    if (job->get(job->store, key, &value, &size, why, room)) return 1;
    bool whole = size == sizeof(int);
    if (whole) memcpy(&ranks[r], value, sizeof(int));
    job->release(value);
    if (!whole) return fail(why, room, "the store has something else than ranks");
  }
  return 0;
}

static int make_comm(joined *self, const int *ranks, char *why, size_t room) {
  MPI_Group all, some;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  int bad = check(MPI_Group_incl(all, self->size, ranks, &some), why, room);
  if (!bad) {
    bad = check(MPI_Comm_create_group(MPI_COMM_WORLD, some, 0, &self->comm), why, room);
    MPI_Group_free(&some);
  }
  MPI_Group_free(&all);
  if (bad) return 1;
  return check(MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN), why, room);
}

static int join(void **out, const px_engine_job *job, char *why, size_t room) {
  joined *self = calloc(1, sizeof *self);
  int *ranks = calloc((size_t)job->size, sizeof *ranks);
  int bad = 1;
  *out = NULL;
  if (!self || !ranks) {
    fail(why, room, "there is no memory left");
  } else {
    *self = (joined){.rank = job->rank, .size = job->size, .next = 1};
    pthread_mutex_lock(&lock);
    bad = start_mpi(why, room);
    pthread_mutex_unlock(&lock);
    if (!bad) bad = find_ranks(ranks, job, why, room);
    pthread_mutex_lock(&lock);
    if (!bad) bad = make_comm(self, ranks, why, room);
    pthread_mutex_unlock(&lock);
  }
  free(ranks);
  if (bad) return free(self), 1;
  pthread_mutex_init(&self->turn, NULL);
  pthread_cond_init(&self->changed, NULL);
  *out = self;
  return 0;
}

static void leave(void *object) {
  joined *self = object;
  int over = 0;
  pthread_mutex_lock(&lock);
  MPI_Finalized(&over);
  // MPI_Comm_free is for all ranks together: one that is over stays.
  if (!over && !__atomic_load_n(&spoiled, __ATOMIC_ACQUIRE)) MPI_Comm_free(&self->comm);
  pthread_mutex_unlock(&lock);
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->turn);
  free(self);
}

static void give_up(void *object) {
  joined *self = object;
  __atomic_store_n(&spoiled, true, __ATOMIC_RELEASE);
  __atomic_store_n(&self->aborted, true, __ATOMIC_RELEASE);
  pthread_mutex_lock(&self->turn);
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->turn);
}

// ---- waiting

static int await(joined *self, MPI_Request *request, MPI_Status *status, int64_t end, char *why,
                 size_t room) {
  const struct timespec nap = {0, NAP_NS};
  for (int turns = 0;; turns++) {
    int done = 0;
    pthread_mutex_lock(&lock);
    int bad = check(MPI_Test(request, &done, status), why, room);
    pthread_mutex_unlock(&lock);
    if (bad) return 1;
    if (done) return 0;
    bool aborted = __atomic_load_n(&self->aborted, __ATOMIC_ACQUIRE);
    if (aborted || now_ms() >= end) {
      __atomic_store_n(&spoiled, true, __ATOMIC_RELEASE);
      return fail(why, room, aborted ? "it was aborted" : "it took too long");
    }
    if (turns > SPINS) nanosleep(&nap, NULL);
  }
}

// ---- exchanges

// What a collective is on its way: its memory, and what each rank sends and gets, in bytes.
typedef struct exchange {
  joined *self;
  const px_engine_call *call;
  int64_t end;
  MPI_Datatype item;
  char *in, *out;  // the engine's
  int *counts;     // sent, from where, got, to where: of each rank
  char *why;
  size_t room;
} exchange;

static int finish_request(exchange *x, int code, MPI_Request *request) {
  pthread_mutex_unlock(&lock);
  if (check(code, x->why, x->room)) return 1;
  return await(x->self, request, MPI_STATUS_IGNORE, x->end, x->why, x->room);
}

static int *sent(exchange *x, int side) { return x->counts + (ptrdiff_t)side * x->self->size; }

static int all_to_all(exchange *x, const void *from, void *to) {
  MPI_Request request;
  pthread_mutex_lock(&lock);
  return finish_request(x,
                        MPI_Ialltoallv(from, sent(x, 0), sent(x, 1), x->item, to, sent(x, 2),
                                       sent(x, 3), x->item, x->self->comm, &request),
                        &request);
}

// Rank r gets part r of `n` elements, or, where all_to_all is asked for, what the counts say.
static int part(int64_t n, int size, int r) { return (int)(n / size + (r < n % size)); }

static void place(int *counts, int *places, int size) {
  int at = 0;
  for (int r = 0; r < size; r++) places[r] = at, at += counts[r];
}

// Sums part `rank` of all ranks, which lie behind each other at x->out, into its first.
static void reduce_parts(exchange *x, int n) {
  const px_engine_call *c = x->call;
  for (int r = 1; r < x->self->size; r++)
    c->reduce(x->out, x->out, x->out + (size_t)r * (size_t)n * c->item, (size_t)n);
}

// Sends each rank its part of the input and reduces what came; the part is then at x->out.
static int reduce_own_part(exchange *x, const int *parts) {
  int size = x->self->size, own = parts[x->self->rank];
  for (int r = 0; r < size; r++) sent(x, 0)[r] = parts[r], sent(x, 2)[r] = own;
  place(sent(x, 0), sent(x, 1), size);
  place(sent(x, 2), sent(x, 3), size);
  if (all_to_all(x, x->in, x->out)) return 1;
  reduce_parts(x, own);
  return 0;
}

static int all_reduce(exchange *x) {
  int size = x->self->size, *parts = sent(x, 4);
  MPI_Request request;
  for (int r = 0; r < size; r++) parts[r] = part(x->call->count, size, r);
  if (reduce_own_part(x, parts)) return 1;
  pthread_mutex_lock(&lock);
  int code = x->call->op == PX_REDUCE
                 ? MPI_Igatherv(x->out, parts[x->self->rank], x->item, x->in, parts, sent(x, 1),
                                x->item, x->call->peer, x->self->comm, &request)
                 : MPI_Iallgatherv(x->out, parts[x->self->rank], x->item, x->in, parts, sent(x, 1),
                                   x->item, x->self->comm, &request);
  return finish_request(x, code, &request);
}

static int reduce_scatter(exchange *x) {
  int *parts = sent(x, 4);
  for (int r = 0; r < x->self->size; r++) parts[r] = (int)x->call->count;
  return reduce_own_part(x, parts);
}

static int exchange_all(exchange *x) {
  int size = x->self->size;
  for (int r = 0; r < size; r++) {
    sent(x, 0)[r] = (int)x->call->in_counts[r];
    sent(x, 2)[r] = (int)x->call->out_counts[r];
  }
  place(sent(x, 0), sent(x, 1), size);
  place(sent(x, 2), sent(x, 3), size);
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

// How each collective is done, and how many elements its sides have: the share of one rank, those
// of all, or as the counts say. Without an output of its own, a collective changes its input.
enum { NONE, ONE, ALL, COUNTS };
static const struct {
  int (*run)(exchange *x);
  unsigned char in, out, room;  // room: what it needs at x->out, where parts lie that do not divide
} ways[PX_COLLECTIVE_COUNT] = {
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
  bool in_place = ways[c->op].out == NONE;
  size_t in = bytes_of(self, c, ways[c->op].in, false);
  size_t out = bytes_of(self, c, ways[c->op].out, true);
  size_t room = bytes_of(self, c, ways[c->op].room, true) + (size_t)self->size * c->item;
  x->in = malloc(in + 1);
  x->out = malloc(room + 1);
  x->counts = calloc(5 * (size_t)self->size, sizeof(int));
  if (!x->in || !x->out || !x->counts) return fail(x->why, x->room, "there is no memory left");
  if (c->in && in) memcpy(x->in, c->in, in);
  if (ways[c->op].run(x)) return 1;
  size_t wanted = !in_place ? out : c->op == PX_REDUCE && c->peer != self->rank ? 0 : in;
  if (c->out && wanted) memcpy(c->out, in_place ? x->in : x->out, wanted);
  return 0;
}

// ---- the order of numbers

static int take_turn(joined *self, uint64_t number, int64_t end, char *why, size_t room) {
  struct timespec until;
  int bad = 0;
  pthread_mutex_lock(&self->turn);
  while (!bad && self->next != number) {
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&self->changed, &self->turn, &until);
    if (__atomic_load_n(&self->aborted, __ATOMIC_ACQUIRE)) bad = fail(why, room, "it was aborted");
    if (!bad && now_ms() >= end) bad = fail(why, room, "an earlier collective is not over");
  }
  pthread_mutex_unlock(&self->turn);
  return bad;
}

static void pass_turn(joined *self) {
  pthread_mutex_lock(&self->turn);
  self->next++;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->turn);
}

// ---- sends and receives

typedef struct pending {
  joined *self;
  MPI_Request request;
  char *data;  // the engine's
  void *out;   // of a receive
  size_t bytes;
  bool receives;
} pending;

static int start(void **out, void *object, const px_engine_call *call, char *why, size_t room) {
  joined *self = object;
  int *most = NULL, there = 0, code;
  pending *p = calloc(1, sizeof *p);
  *out = p;
  if (p) *p = (pending){.self = self, .out = call->out, .receives = call->op == PX_RECV};
  if (p) p->bytes = (size_t)call->count * call->item;
  if (!p || !(p->data = malloc(p->bytes + 1))) return free(p), fail(why, room, "no memory is left");
  pthread_mutex_lock(&lock);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &there);
  bool fits = there && call->tag <= (uint32_t)*most && p->bytes <= 0x7fffffff;
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
  return check(code, why, room);
}

static int finish(void *object, int *peer, int64_t timeout_ms, char *why, size_t room) {
  pending *p = object;
  MPI_Status status = {.MPI_SOURCE = -1};
  *peer = -1;
  // Its memory stays where MPI may still need it.
  if (timeout_ms < 0) return free(p), 0;
  int bad = await(p->self, &p->request, &status, now_ms() + timeout_ms, why, room);
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
                        size_t room) {
  exchange x = {.self = self, .call = call, .end = end, .why = why, .room = room};
  pthread_mutex_lock(&lock);
  MPI_Type_contiguous((int)(call->item ? call->item : 1), MPI_BYTE, &x.item);
  MPI_Type_commit(&x.item);
  pthread_mutex_unlock(&lock);
  int bad = exchange_bytes(&x);
  pthread_mutex_lock(&lock);
  MPI_Type_free(&x.item);
  pthread_mutex_unlock(&lock);
  if (bad) return 1;  // with the memory, which MPI may still use
  free(x.in);
  free(x.out);
  free(x.counts);
  return 0;
}

static int run(void *object, const px_engine_call *call, char *why, size_t room) {
  joined *self = object;
  int64_t end = now_ms() + call->timeout_ms;
  void *sends;
  int peer;
  if (call->op == PX_SEND || call->op == PX_RECV)
    return start(&sends, self, call, why, room) ||
           finish(sends, &peer, call->timeout_ms, why, room);
  if (call->count * self->size > 0x7fffffff)
    return fail(why, room, "MPI counts up to 2147483647 elements");
  if (take_turn(self, call->number, end, why, room)) return 1;
  int bad = run_exchange(self, call, end, why, room);
  pass_turn(self);
  return bad;
}

static const px_engine table = {.abi = PX_ENGINE_ABI,
                                .size = sizeof(px_engine),
                                .name = "mpi",
                                .open = join,
                                .close = leave,
                                .abort = give_up,
                                .run = run,
                                .start = start,
                                .finish = finish,
                                .world = world};

__attribute__((visibility("default"))) const px_engine *px_engine_entry(uint32_t abi);
const px_engine *px_engine_entry(uint32_t abi) { return abi == PX_ENGINE_ABI ? &table : NULL; }
