// SPDX-License-Identifier: Apache-2.0
// The thread pool. It runs one job at a time. A job is cut into shares, one per thread, and each
// share into pieces. A thread takes the pieces of its own share first and then steals from others.
// The same thread thus processes the same part of a tensor in consecutive ops, from its core's
// cache, and usually takes pieces from an uncontended counter.
//
// A caller that cannot lock `busy` runs its job alone. Workers join and leave a job through one
// atomic word, `state`, without a lock, since all arrive at once. The caller closes the job when no
// piece is left, then waits until no worker is inside; after that no worker uses the job. The pool
// is created by the first large job. A forked child starts without one. Workers never exit, except
// at their start without memory.
//
// The thread count follows from the work: each thread must have 1.5 times as much to do as two
// threads take to rendezvous. Both are measured; the work of each kind of job as it runs (cost.h).
//
// Waking a sleeping thread takes longer than most jobs. A worker therefore spins before it sleeps,
// if the last two jobs were close together and there is a core per thread: a training step keeps
// its workers awake, an isolated job does not. A spinning worker yields its core only after a
// while, because another program would keep the core for milliseconds and jobs in that time would
// run on one thread.
#include "cpu/threads/buffer.h"
#include "cpu/threads/cache_line.h"
#include "cpu/threads/threads.h"
#include "cpu/threads/cost.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum {
  MAX_THREADS = 64,  // bits of `unfinished`
  SPINS = 64         // spins between two reads of the clock
};
enum {
  SPIN_NS = 100 * 1000,  // spin time before a thread sleeps
  YIELD_NS = 40 * 1000   // spin time before a thread yields its core
};
enum {
  FIRST_STEP_GRAINS = 4,       // grains in the first step between interrupt polls
  SHORT_STEP_NS = 1000 * 1000  // steps shorter than this double in size
};
enum { LINE = PX__CACHE_LINE };  // separates data written by one thread from data read by all

typedef struct job {
  void (*fn)(void *context, int64_t begin, int64_t end);
  void *context;
  int64_t n, grain, chunk;
  int helpers;  // max number of workers
  bool stop;    // atomic
} job;

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static int started, cores;       // under busy
static int64_t last_end;         // atomic: end of the last job, including jobs run by one thread
static int64_t min_work_awake;   // atomic: ns of work that justify one more thread; 0: not measured
static int64_t min_work_asleep;  // under busy: the same if workers sleep; 0: not measured

// Shares of the current job: share 0 is the caller's, share i that of worker i.
static struct share {
  _Alignas(LINE) int64_t next;  // atomic: start of the next piece
  int64_t end;
} shares[MAX_THREADS];
static _Alignas(LINE) uint64_t unfinished;  // atomic: bit s: share s has pieces left

// Atomic. `job_number` counts jobs. `state` belongs to the last job: the number of workers inside,
// and the CLOSED bit. A worker that entered before CLOSED was set may use `current`.
enum { INSIDE = 1, CLOSED = 1 << 16 };
static _Alignas(LINE) uint64_t job_number;
static bool keep_spinning;  // the current job came soon after its predecessor
static job *current;
static _Alignas(LINE) uint32_t state = CLOSED;

// For sleeping threads: workers wait for a new job, a caller waits for all workers to leave.
static _Alignas(LINE) pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static int sleepers;       // atomic, written under lock
static bool caller_waits;  // atomic, written under lock

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- interrupts: the caller polls the program and notifies workers through the job

static _Thread_local job *own_job;  // the job this thread works on

bool px__cpu_stopped(void) {
  if (own_job && __atomic_load_n(&own_job->stop, __ATOMIC_RELAXED)) return true;
  if (!px_interrupt_due()) return false;
  if (own_job) __atomic_store_n(&own_job->stop, true, __ATOMIC_RELAXED);
  return true;
}

// Runs a piece in steps with an interrupt poll between them. Steps double while they are short, so
// short work is hardly split and long work ends soon. A call that cannot be interrupted is one
// step.
static void run_part(const job *j, int64_t begin, int64_t end) {
  int64_t step = j->grain == 1 ? 1 : FIRST_STEP_GRAINS * j->grain;
  if (!own_job && !px_interrupt_wanted()) step = end - begin;
  while (end - begin > step) {
    if (px__cpu_stopped()) return;
    int64_t start = now();
    j->fn(j->context, begin, begin + step);
    begin += step;
    if (now() - start < SHORT_STEP_NS) step *= 2;
  }
  j->fn(j->context, begin, end);
}

// Returns the number of elements processed by this thread.
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

// Processes the thread's own share, then steals from the others in cyclic order. Returns the number
// of elements processed by this thread.
static int64_t work(job *j, int own) {
  job *outer = own_job;
  int64_t done = 0;
  own_job = j;
  for (int s = own;;) {
    done += do_share(j, &shares[s]);
    uint64_t rest = __atomic_and_fetch(&unfinished, ~(UINT64_C(1) << s), __ATOMIC_RELAXED);
    if (!rest || px__cpu_stopped()) break;
    uint64_t after = rest >> own << own;
    s = __builtin_ctzll(after ? after : rest);
  }
  own_job = outer;
  return done;
}

// ---- spinning

static bool has_new_job(uint64_t seen) {
  return __atomic_load_n(&job_number, __ATOMIC_SEQ_CST) != seen;
}
static uint32_t count_inside(void) { return __atomic_load_n(&state, __ATOMIC_SEQ_CST) % CLOSED; }
static bool all_workers_left(uint64_t unused) { return count_inside() == 0; }

// Yields the core's execution units to its other hardware thread.
static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until `condition` holds or SPIN_NS have passed; yields the core after YIELD_NS.
static void spin_until(bool (*condition)(uint64_t), uint64_t argument) {
  int64_t begin = now(), elapsed;
  do {
    for (int i = 0; i < SPINS; i++) {
      if (condition(argument)) return;
      pause_briefly();
    }
    elapsed = now() - begin;
    if (elapsed > YIELD_NS) sched_yield();
  } while (elapsed < SPIN_NS);
}

// ---- workers. A thread announces that it sleeps before its last check of the condition; a thread
// that changes the condition checks for sleepers afterwards. One of the two sees the other. The
// store before each check is an exchange or an addition, on x86 the same as a seq_cst store.
// Under QEMU's emulation of aarch64 a check may overtake a plain store; real processors never do
// so.

static void leave(void) {
  uint32_t outer = __atomic_fetch_sub(&state, INSIDE, __ATOMIC_SEQ_CST);
  if (outer % CLOSED != INSIDE || !__atomic_load_n(&caller_waits, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(&lock);
  pthread_cond_signal(&left);
  pthread_mutex_unlock(&lock);
}
// Enters the job, unless it is closed or has enough workers. Since all workers arrive at once, a
// worker enters first and leaves again if it should not have entered.
static job *join(void) {
  if (__atomic_load_n(&state, __ATOMIC_RELAXED) & CLOSED) return NULL;
  uint32_t outer = __atomic_fetch_add(&state, INSIDE, __ATOMIC_SEQ_CST);
  if (outer < CLOSED) {
    job *j = __atomic_load_n(&current, __ATOMIC_RELAXED);
    if (outer < (uint32_t)j->helpers) return j;
  }
  leave();
  return NULL;
}
static void sleep_until_after(uint64_t seen) {
  pthread_mutex_lock(&lock);
  __atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST);
  while (!has_new_job(seen)) pthread_cond_wait(&wake, &lock);
  __atomic_fetch_sub(&sleepers, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
}
static void *worker(void *number) {
  const int own = (int)(intptr_t)number;
  uint64_t seen = 0;
  if (!px__buffers_reserve()) return NULL;
  for (;;) {
    if (__atomic_load_n(&keep_spinning, __ATOMIC_RELAXED)) spin_until(has_new_job, seen);
    if (!has_new_job(seen)) sleep_until_after(seen);
    seen = __atomic_load_n(&job_number, __ATOMIC_ACQUIRE);
    job *j = join();
    if (!j) continue;
    work(j, own % (j->helpers + 1));
    leave();
  }
}

// Resets the pool in a forked child: no worker exists, and other threads may have held the locks.
static void reset_after_fork(void) {
  busy = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  wake = left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  state = CLOSED, sleepers = started = 0, caller_waits = false,
  min_work_awake = min_work_asleep = 0;
}

int px__cpu_thread_count(void) {
  int n = px_num_threads();
  return n > MAX_THREADS ? MAX_THREADS : n;
}

// Caller holds `busy`. Threads that cannot be created are ignored.
static void start_workers(int wanted) {
  pthread_attr_t attributes;
  if (started >= wanted || pthread_attr_init(&attributes)) return;
  if (!cores) {
    cpu_set_t set;
    pthread_atfork(NULL, NULL, reset_after_fork);
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

// Divides the pieces over the shares evenly; sizes differ by at most one piece.
static void assign_shares(const job *j, int64_t pieces) {
  const int count = j->helpers + 1;
  for (int s = 0; s < count; s++) {
    int64_t end = pieces * (s + 1) / count * j->chunk;
    shares[s].end = end < j->n ? end : j->n;
    __atomic_store_n(&shares[s].next, pieces * s / count * j->chunk, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&unfinished, ~UINT64_C(0) >> (MAX_THREADS - count), __ATOMIC_RELAXED);
}

static void record_end(void) { __atomic_store_n(&last_end, now(), __ATOMIC_RELAXED); }
// True if the last job ended within SPIN_NS.
static bool last_job_is_recent(void) {
  return now() - __atomic_load_n(&last_end, __ATOMIC_RELAXED) < SPIN_NS;
}

static void post(job *j) {
  __atomic_store_n(&current, j, __ATOMIC_RELAXED);
  __atomic_store_n(&keep_spinning, started < cores && last_job_is_recent(), __ATOMIC_RELAXED);
  __atomic_fetch_and(&state, ~(uint32_t)CLOSED, __ATOMIC_RELEASE);  // a worker may be leaving
  __atomic_fetch_add(&job_number, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST) == 0) return;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < sleepers && i < j->helpers; i++) pthread_cond_signal(&wake);
  pthread_mutex_unlock(&lock);
}

// Closes the job and waits for its workers. The lock is released while the program is polled.
static void finish(job *j) {
  __atomic_fetch_or(&state, CLOSED, __ATOMIC_SEQ_CST);
  if (started < cores) spin_until(all_workers_left, 0);
  if (count_inside() == 0) return;
  pthread_mutex_lock(&lock);
  (void)__atomic_exchange_n(&caller_waits, true, __ATOMIC_SEQ_CST);
  while (count_inside() > 0) {
    px_interrupt_wait(&left, &lock);
    if (count_inside() == 0) break;
    pthread_mutex_unlock(&lock);
    if (px_interrupt_due()) __atomic_store_n(&j->stop, true, __ATOMIC_RELAXED);
    pthread_mutex_lock(&lock);
  }
  __atomic_store_n(&caller_waits, false, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&lock);
}

// Runs the job in so many pieces. Returns the elements processed by this thread and its run time.
typedef struct part {
  int64_t done, ns;
} part;
static part run_shared(job *j, int64_t pieces) {
  assign_shares(j, pieces);
  post(j);
  int64_t begin = now();
  int64_t done = work(j, 0), end = now();
  finish(j);
  record_end();
  return (part){done, end - begin};
}

// ---- min work per thread: 1.5 times the rendezvous time of two threads, each with a piece that
// ends once the other has started

enum {
  RENDEZVOUS_TRIALS = 8,          // measurements; the minimum counts
  AWAKE_TIMEOUT_NS = 20 * 1000,   // timeout of a rendezvous with a spinning worker
  ASLEEP_TIMEOUT_NS = 200 * 1000  // timeout of a rendezvous with a sleeping worker
};
enum {
  MIN_WORK_NS = 500,      // lower bound of the min work
  DEFAULT_WORK_NS = 4000  // min work before the first measurement
};
enum {
  REMEASURE_SOON_NS =
      20 * 1000 * 1000,              // until the next measurement if the last one looks disturbed
  REMEASURE_NS = 1000 * 1000 * 1000  // until the next measurement otherwise
};

typedef struct rendezvous {
  int64_t arrived, deadline;
} rendezvous;
static void run_rendezvous(void *context, int64_t begin, int64_t end) {
  rendezvous *m = context;
  __atomic_fetch_add(&m->arrived, end - begin, __ATOMIC_RELAXED);
  while (__atomic_load_n(&m->arrived, __ATOMIC_RELAXED) < 2 && now() < m->deadline) pause_briefly();
}
static int64_t measure_rendezvous(int64_t longest) {
  int64_t begin = now();
  rendezvous m = {.deadline = begin + longest};
  job j = {run_rendezvous, &m, .n = 2, .grain = 1, .chunk = 1, .helpers = 1};
  run_shared(&j, 2);
  int64_t min_work = (now() - begin) * 3 / 2;
  return min_work > MIN_WORK_NS ? min_work : MIN_WORK_NS;
}
// If other programs occupy the cores, the result is too high. It is then measured again soon.
static void measure_min_work(void) {
  static int64_t last;
  int64_t begin = now(), least = INT64_MAX;
  if (!started ||
      begin - last < (min_work_awake > DEFAULT_WORK_NS ? REMEASURE_SOON_NS : REMEASURE_NS))
    return;
  if (__atomic_load_n(&sleepers, __ATOMIC_RELAXED))
    min_work_asleep = measure_rendezvous(ASLEEP_TIMEOUT_NS);
  for (int i = 0; i < RENDEZVOUS_TRIALS; i++) {
    int64_t min_work = measure_rendezvous(AWAKE_TIMEOUT_NS);
    if (min_work < least) least = min_work;
  }
  __atomic_store_n(&min_work_awake, least, __ATOMIC_RELAXED);
  last = begin;
}

// ---- jobs
enum {
  PARTS_PER_GRAIN = 8,   // pieces are multiples of 1/8 grain
  PIECES_PER_SHARE = 4,  // pieces per share
  SAMPLE_PERIOD = 16     // measures one in 16 single-threaded jobs
};

static int64_t min_piece(int64_t grain) {
  return grain > PARTS_PER_GRAIN ? grain / PARTS_PER_GRAIN : 1;
}

static int round_count(double wanted, int max) {
  return wanted < 1.5 ? 1 : wanted < max ? (int)(wanted + 0.5) : max;
}
// Assumes spinning workers. Unknown cost: one thread per grain.
px__cpu_plan px__cpu_plan_of(const void *op, double grains) {
  px__cpu_plan p = {.grains = grains, .count = px__cpu_thread_count()};
  if (p.count == 1) return p;
  p.kind = px__job_cost_of(op, grains);
  int64_t min_work = __atomic_load_n(&min_work_awake, __ATOMIC_RELAXED);
  double work = px__job_cost_ns(p.kind, grains);
  p.count = round_count(work > 0 ? work / (double)(min_work ? min_work : DEFAULT_WORK_NS) : grains,
                        p.count);
  return p;
}
// Fewer threads if workers sleep because the last job ended long ago.
static int count_awake(const px__cpu_plan *p) {
  double work = p->kind ? px__job_cost_ns(p->kind, p->grains) : 0;
  if (!min_work_asleep || work <= 0 || last_job_is_recent()) return p->count;
  return round_count(work / (double)min_work_asleep, p->count);
}

// Measures one job in SAMPLE_PERIOD: reading the clock takes as long as a short job.
static void run_alone(const px__cpu_plan *p, const job *j) {
  static _Thread_local unsigned jobs;
  bool measured =
      p->kind && !own_job && (++jobs % SAMPLE_PERIOD == 0 || px__job_cost_ns(p->kind, 1) <= 0);
  int64_t begin = measured ? now() : 0;
  run_part(j, 0, j->n);
  if (!measured) return;
  px__job_cost_record(p->kind, p->grains, now() - begin);
  if (pthread_mutex_trylock(&busy)) return;
  measure_min_work();
  pthread_mutex_unlock(&busy);
}

// Caller holds `busy`.
static void run_by(int count, const px__cpu_plan *p, job *j) {
  int64_t least = min_piece(j->grain), pieces = PIECES_PER_SHARE * (int64_t)count;
  int64_t chunk = px__ceil_div(j->n, pieces);
  j->chunk = px__ceil_div(chunk, least) * least;
  pieces = px__ceil_div(j->n, j->chunk);
  j->helpers = pieces < count ? (int)pieces - 1 : count - 1;
  start_workers(j->helpers);
  measure_min_work();
  j->stop = px_interrupt_due();  // polled here, since workers may leave no piece to this thread
  part own = run_shared(j, pieces);
  if (p->kind && own.done)
    px__job_cost_record(p->kind, p->grains * (double)own.done / (double)j->n, own.ns);
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
    run_alone(p, &j), record_end();
  pthread_mutex_unlock(&busy);
}

void px__cpu_parallel_of(const void *op, int64_t n, int64_t grain,
                         void (*fn)(void *context, int64_t begin, int64_t end), void *context) {
  if (n <= min_piece(grain)) {
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
