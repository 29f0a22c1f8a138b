// SPDX-License-Identifier: Apache-2.0
// The thread pool. It works on one job at a time, which is cut into shares, one for each thread,
// and these into pieces. A thread takes the pieces of its own share, and then those that others
// have left: the same thread so has the same part of a tensor in one op after the other, in the
// cache of its core, and takes them from a counter that no other one writes to.
//
// A caller that cannot get `busy` works alone. Workers join a job and leave it by one word,
// `state`, without a lock, as all of them come at once; the caller closes it when no piece is left,
// and then waits until nobody is inside, so that it knows when no worker uses its job any more. The
// pool is made at the first large job; a forked child starts without one. Workers never end.
//
// A job has as many threads as its work pays for: each is to have more to do than it takes two
// threads to meet, by half. Both are measured, the work of each kind of job as it runs (worth.h).
//
// Waking a sleeping thread takes longer than most jobs. So a worker spins for a moment before it
// sleeps, if the last two jobs came that close together and each thread can have a core: a training
// step keeps its workers awake, a single job does not. It gives its core away only after a while:
// where other programs want it, they keep it for some milliseconds, and the jobs that come
// meanwhile are done by one thread alone.
#include "cpu/threads/cache_line.h"
#include "cpu/threads/threads.h"
#include "cpu/threads/spin.h"
#include "cpu/threads/cost.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { MOST_THREADS = 64, LOOKS = 64 };  // LOOKS: between two of the clock
enum { LOOK_OUT_NS = 100 * 1000, KEEP_NS = 40 * 1000 };
enum { FIRST_STEP = 4, STEP_NS = 1000 * 1000 };  // grains of the first step; a short one
enum { LINE = PX__CACHE_LINE };  // what one thread writes is not beside what all read

typedef struct job {
  void (*fn)(void *context, int64_t begin, int64_t end);
  void *context;
  int64_t n, grain, chunk;
  int helpers;  // workers that may join
  bool stop;    // atomic
} job;

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static int started, cores;   // under busy
static int64_t last_end;     // atomic: when the last job ended, also one that was done alone
static int64_t pays_awake;   // atomic: ns of work that are worth one more thread; 0: not measured
static int64_t pays_asleep;  // under busy: the same where workers sleep; 0: not measured

// The shares of the current job: share 0 is the caller's, others the workers' of these numbers.
static struct share {
  _Alignas(LINE) int64_t next;  // atomic: where the next piece begins
  int64_t end;
} shares[MOST_THREADS];
static _Alignas(LINE) uint64_t unfinished;  // atomic: a bit for each share that has pieces left

// Atomic. `turn` counts jobs; `state` is that of the last one: whether it is closed, above how many
// workers are inside. A worker that came in before it was closed may use `current`.
enum { INSIDE = 1, CLOSED = 1 << 16 };
static _Alignas(LINE) uint64_t turn;
static bool close_upon;  // the current job came soon after the one before
static job *current;
static _Alignas(LINE) uint32_t state = CLOSED;

// For those that sleep: workers until there is another turn, a caller until all have left.
static _Alignas(LINE) pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static int asleep;    // atomic, written under lock
static bool waiting;  // atomic, written under lock

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- stopping: the caller asks the program, and tells the workers by the job

static _Thread_local job *mine;  // that this thread works on

bool px__cpu_stopped(void) {
  if (mine && __atomic_load_n(&mine->stop, __ATOMIC_RELAXED)) return true;
  if (!px_interrupt_due()) return false;
  if (mine) __atomic_store_n(&mine->stop, true, __ATOMIC_RELAXED);
  return true;
}

// In steps, between which it is asked. They double while they are short: short work is hardly cut,
// and long work ends soon. Where nobody can end the call there is one.
static void run_part(const job *j, int64_t begin, int64_t end) {
  int64_t step = j->grain == 1 ? 1 : FIRST_STEP * j->grain;
  if (!mine && !px_interrupt_wanted()) step = end - begin;
  while (end - begin > step) {
    if (px__cpu_stopped()) return;
    int64_t start = now();
    j->fn(j->context, begin, begin + step);
    begin += step;
    if (now() - start < STEP_NS) step *= 2;
  }
  j->fn(j->context, begin, end);
}

// Returns how much of it this thread did.
static int64_t do_share(job *j, struct share *of) {
  int64_t done = 0;
  while (!px__cpu_stopped()) {
    int64_t begin = __atomic_fetch_add(&of->next, j->chunk, __ATOMIC_RELAXED);
    if (begin >= of->end) break;
    int64_t end = of->end - begin < j->chunk ? of->end : begin + j->chunk;
    run_part(j, begin, end);
    done += end - begin;
  }
  return done;
}

// Does its own share, and then what is left of the others', from the next one on. Returns how much
// this thread did.
static int64_t work(job *j, int own) {
  job *before = mine;
  int64_t done = 0;
  mine = j;
  for (int s = own;;) {
    done += do_share(j, &shares[s]);
    uint64_t rest = __atomic_and_fetch(&unfinished, ~(UINT64_C(1) << s), __ATOMIC_RELAXED);
    if (!rest || px__cpu_stopped()) break;
    uint64_t after = rest >> own << own;
    s = __builtin_ctzll(after ? after : rest);
  }
  mine = before;
  return done;
}

// ---- looking out

static bool new_turn(uint64_t seen) { return __atomic_load_n(&turn, __ATOMIC_SEQ_CST) != seen; }
static uint32_t count_inside(void) { return __atomic_load_n(&state, __ATOMIC_SEQ_CST) % CLOSED; }
static bool all_left(uint64_t unused) { return count_inside() == 0; }

// Looks for a moment whether it has come, and, if not soon, lets others have the core meanwhile.
static void look_out(bool (*come)(uint64_t), uint64_t argument) {
  int64_t begin = now(), passed;
  do {
    for (int i = 0; i < LOOKS; i++) {
      if (come(argument)) return;
      px__spin();
    }
    passed = now() - begin;
    if (passed > KEEP_NS) sched_yield();
  } while (passed < LOOK_OUT_NS);
}

// ---- workers. Who goes to sleep says so before the last look at what it waits for, and who
// changes that looks afterwards whether somebody sleeps: one of the two sees the other. What is
// looked after is written by an exchange or a sum, which on x86 is what a store of that order is,
// too: where QEMU emulates aarch64, the look may overtake a mere store, which no processor does.

static void leave(void) {
  uint32_t before = __atomic_fetch_sub(&state, INSIDE, __ATOMIC_SEQ_CST);
  if (before % CLOSED != INSIDE || !__atomic_load_n(&waiting, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(&lock);
  pthread_cond_signal(&left);
  pthread_mutex_unlock(&lock);
}
// Goes in, unless the job is closed or has no room. It does not ask first, as all come at once: one
// that should not have come in goes out again.
static job *join(void) {
  if (__atomic_load_n(&state, __ATOMIC_RELAXED) & CLOSED) return NULL;
  uint32_t before = __atomic_fetch_add(&state, INSIDE, __ATOMIC_SEQ_CST);
  if (before < CLOSED) {
    job *j = __atomic_load_n(&current, __ATOMIC_RELAXED);
    if (before < (uint32_t)j->helpers) return j;
  }
  leave();
  return NULL;
}
static void sleep_until_after(uint64_t seen) {
  pthread_mutex_lock(&lock);
  __atomic_fetch_add(&asleep, 1, __ATOMIC_SEQ_CST);
  while (!new_turn(seen)) pthread_cond_wait(&wake, &lock);
  __atomic_fetch_sub(&asleep, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
}
static void *worker(void *number) {
  const int own = (int)(intptr_t)number;
  uint64_t seen = 0;
  for (;;) {
    if (__atomic_load_n(&close_upon, __ATOMIC_RELAXED)) look_out(new_turn, seen);
    if (!new_turn(seen)) sleep_until_after(seen);
    seen = __atomic_load_n(&turn, __ATOMIC_ACQUIRE);
    job *j = join();
    if (!j) continue;
    work(j, own % (j->helpers + 1));
    leave();
  }
  return NULL;
}

// In a forked child no worker lives, and another thread may have held the locks.
static void start_afresh(void) {
  busy = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  wake = left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  state = CLOSED, asleep = started = 0, waiting = false, pays_awake = pays_asleep = 0;
}

int px__cpu_thread_count(void) {
  int n = px_num_threads();
  return n > MOST_THREADS ? MOST_THREADS : n;
}

// Holding `busy`. Threads that cannot be started are done without.
static void start_workers(int wanted) {
  pthread_attr_t attributes;
  if (started >= wanted || pthread_attr_init(&attributes)) return;
  if (!cores) {
    cpu_set_t set;
    pthread_atfork(NULL, NULL, start_afresh);
    cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  }
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  while (started < wanted) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, worker, (void *)(intptr_t)(started + 1))) break;
    started++;
  }
  pthread_attr_destroy(&attributes);
}

// Each share has as many pieces as the others, or one more.
static void share_out(const job *j, int64_t pieces) {
  const int count = j->helpers + 1;
  for (int s = 0; s < count; s++) {
    int64_t end = pieces * (s + 1) / count * j->chunk;
    shares[s].end = end < j->n ? end : j->n;
    __atomic_store_n(&shares[s].next, pieces * s / count * j->chunk, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&unfinished, ~UINT64_C(0) >> (MOST_THREADS - count), __ATOMIC_RELAXED);
}

static void note_end(void) { __atomic_store_n(&last_end, now(), __ATOMIC_RELAXED); }
// Whether the last job ended a moment ago.
static bool is_close(void) {
  return now() - __atomic_load_n(&last_end, __ATOMIC_RELAXED) < LOOK_OUT_NS;
}

static void post(job *j) {
  __atomic_store_n(&current, j, __ATOMIC_RELAXED);
  __atomic_store_n(&close_upon, started < cores && is_close(), __ATOMIC_RELAXED);
  __atomic_fetch_and(&state, ~(uint32_t)CLOSED, __ATOMIC_RELEASE);  // somebody may be going out
  __atomic_fetch_add(&turn, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) == 0) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < asleep && i < j->helpers; i++) pthread_cond_signal(&wake);
  pthread_mutex_unlock(&lock);
}

// Nobody joins from here on. The lock is given up while it is asked whether the call is to end.
static void finish(job *j) {
  __atomic_fetch_or(&state, CLOSED, __ATOMIC_SEQ_CST);
  if (started < cores) look_out(all_left, 0);
  if (count_inside() == 0) return;
  pthread_mutex_lock(&lock);
  (void)__atomic_exchange_n(&waiting, true, __ATOMIC_SEQ_CST);
  while (count_inside() > 0) {
    px_interrupt_wait(&left, &lock);
    if (count_inside() == 0) break;
    pthread_mutex_unlock(&lock);
    if (px_interrupt_due()) __atomic_store_n(&j->stop, true, __ATOMIC_RELAXED);
    pthread_mutex_lock(&lock);
  }
  __atomic_store_n(&waiting, false, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
}

// With so many pieces. Returns how much this thread did, and how long it worked.
typedef struct part {
  int64_t done, ns;
} part;
static part run_together(job *j, int64_t pieces) {
  share_out(j, pieces);
  post(j);
  int64_t begin = now();
  int64_t done = work(j, 0), end = now();
  finish(j);
  note_end();
  return (part){done, end - begin};
}

// ---- what a thread must have to do: as long as it takes two to meet, each with a piece of its own
// that ends when the other one has begun, and half as long again

enum { MEETINGS = 8, AWAKE_NS = 20 * 1000, ASLEEP_NS = 200 * 1000 };  // the longest
enum { LEAST_NS = 500, GUESS_NS = 4000 };  // of what pays; before it was measured
enum { SOON_NS = 20 * 1000 * 1000, LATER_NS = 1000 * 1000 * 1000 };  // until it is measured again

typedef struct meeting {
  int64_t here, until;
} meeting;
static void meet(void *context, int64_t begin, int64_t end) {
  meeting *m = context;
  __atomic_fetch_add(&m->here, end - begin, __ATOMIC_RELAXED);
  while (__atomic_load_n(&m->here, __ATOMIC_RELAXED) < 2 && now() < m->until) px__spin();
}
static int64_t time_meeting(int64_t longest) {
  int64_t begin = now();
  meeting m = {.until = begin + longest};
  job j = {meet, &m, .n = 2, .grain = 1, .chunk = 1, .helpers = 1};
  run_together(&j, 2);
  int64_t pays = (now() - begin) * 3 / 2;
  return pays > LEAST_NS ? pays : LEAST_NS;
}
// Where other programs have the cores just now, this is more than it would be: then it is measured
// again soon.
static void measure(void) {
  static int64_t last;
  int64_t begin = now(), least = INT64_MAX;
  if (!started || begin - last < (pays_awake > GUESS_NS ? SOON_NS : LATER_NS)) return;
  if (__atomic_load_n(&asleep, __ATOMIC_RELAXED)) pays_asleep = time_meeting(ASLEEP_NS);
  for (int i = 0; i < MEETINGS; i++) {
    int64_t pays = time_meeting(AWAKE_NS);
    if (pays < least) least = pays;
  }
  __atomic_store_n(&pays_awake, least, __ATOMIC_RELAXED);
  last = begin;
}

// ---- jobs
enum { FINEST = 8, PIECES = 4, SAMPLED = 16 };  // parts of a grain; pieces of a share

static int64_t finest(int64_t grain) { return grain > FINEST ? grain / FINEST : 1; }

static int rounded(double wanted, int most) {
  return wanted < 1.5 ? 1 : wanted < most ? (int)(wanted + 0.5) : most;
}
// Of workers that look out; as many as there are grains while nothing is known.
px__cpu_plan px__cpu_plan_of(const void *op, double grains) {
  px__cpu_plan p = {.grains = grains, .count = px__cpu_thread_count()};
  if (p.count == 1) return p;
  p.kind = px__kind_of(op, grains);
  int64_t pays = __atomic_load_n(&pays_awake, __ATOMIC_RELAXED);
  double work = px__kind_work(p.kind, grains);
  p.count = rounded(work > 0 ? work / (double)(pays ? pays : GUESS_NS) : grains, p.count);
  return p;
}
// Fewer where workers sleep, as the last job is long ago.
static int count_awake(const px__cpu_plan *p) {
  double work = p->kind ? px__kind_work(p->kind, p->grains) : 0;
  if (!pays_asleep || work <= 0 || is_close()) return p->count;
  return rounded(work / (double)pays_asleep, p->count);
}

// One job in some is measured: the clock takes as long as a short one.
static void run_alone(const px__cpu_plan *p, const job *j) {
  static _Thread_local unsigned jobs;
  bool measured = p->kind && !mine && (++jobs % SAMPLED == 0 || px__kind_work(p->kind, 1) <= 0);
  int64_t begin = measured ? now() : 0;
  run_part(j, 0, j->n);
  if (!measured) return;
  px__kind_note(p->kind, p->grains, now() - begin);
  if (pthread_mutex_trylock(&busy)) return;
  measure();
  pthread_mutex_unlock(&busy);
}

// Holding `busy`.
static void run_by(int count, const px__cpu_plan *p, job *j) {
  int64_t least = finest(j->grain), pieces = PIECES * (int64_t)count;
  int64_t chunk = px__ceil_div(j->n, pieces);
  j->chunk = px__ceil_div(chunk, least) * least;
  pieces = px__ceil_div(j->n, j->chunk);
  j->helpers = pieces < count ? (int)pieces - 1 : count - 1;
  start_workers(j->helpers);
  measure();
  j->stop = px_interrupt_due();  // asked here, as the workers may leave this thread no piece
  part own = run_together(j, pieces);
  if (p->kind && own.done)
    px__kind_note(p->kind, p->grains * (double)own.done / (double)j->n, own.ns);
}

void px__cpu_run(const px__cpu_plan *p, int64_t n, int64_t grain,
                 void (*fn)(void *context, int64_t begin, int64_t end), void *context) {
  job j = {.fn = fn, .context = context, .n = n, .grain = grain};
  if (p->count == 1 || pthread_mutex_trylock(&busy)) {
    run_alone(p, &j);
    return;
  }
  int count = count_awake(p);
  if (count > 1)
    run_by(count, p, &j);
  else
    run_alone(p, &j), note_end();
  pthread_mutex_unlock(&busy);
}

void px__cpu_parallel_of(const void *op, int64_t n, int64_t grain,
                         void (*fn)(void *context, int64_t begin, int64_t end), void *context) {
  if (n <= finest(grain)) {
    if (n > 0) fn(context, 0, n);
    return;
  }
  px__cpu_plan p = {.count = px__cpu_thread_count()};
  if (grain > 1)
    p = px__cpu_plan_of(op, (double)n / (double)grain);
  else if (n < p.count)
    p.count = (int)n;
  px__cpu_run(&p, n, grain, fn, context);
}
void px__cpu_parallel(int64_t n, int64_t grain,
                      void (*fn)(void *context, int64_t begin, int64_t end), void *context) {
  px__cpu_parallel_of((const void *)(uintptr_t)fn, n, grain, fn, context);
}
