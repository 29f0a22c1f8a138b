// SPDX-License-Identifier: Apache-2.0
// The watchdog of a communicator: one thread, independent of the collectives. It detects
// - the end of a rank's process: its connection closes,
// - a hung rank: no data for PHLOX_HEARTBEAT_TIMEOUT,
// - departure of a rank while others still call,
// - calls different from the hub's, by a running hash of all calls.
// The hub collects facts for a moment and sends one verdict. Every rank then aborts its pending
// calls. A rank without connection to the hub decides by itself.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/watch_impl.h"

enum {
  VERDICT_MS = 5000,  // wait for the hub's verdict
  QUIET_MS = 1000,    // hub silence regarded as unresponsive
  CLOSE_MS = 1000,    // wait for peers to close at the end
  SLICE_MS = 100,     // interval of checks while waiting for a verdict
  NEVER = 1 << 30     // heartbeat timeout if disabled, milliseconds
};

// Reasons of a group's failure in order of precedence, and the milliseconds to wait for a better
// one. The waits are multiples of PX__CHECK_MS, in which each rank reports its calls.
typedef enum fact { DEAD, DIFFER, LEFT, FAILED, FACTS } fact;
static const int patience[FACTS] = {600, 2 * PX__CHECK_MS, 2 * PX__CHECK_MS, 6 * PX__CHECK_MS};

// `lock` guards all fields but `thread`, `comm`, `hub` and those owned by the thread.
struct px__watchdog {
  px__watchdog *next;  // guarded by `all`
  px_comm *comm;       // borrowed; the communicator ends the watchdog first
  bool hub;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t verdict_set;
  int wake;
  bool ends, over;  // over: the thread has been joined
  bool idle;        // the thread waits for a whole heartbeat, as no calls are pending
  uint64_t begun, done;
  px__call ring[PX__RING];
  uint32_t hashes[PX__RING];  // running hash up to the call at the same index of `ring`
  bool failed;                // a local failure is to be reported
  uint64_t failed_number;
  char failed_why[PX__REASON], verdict[PX__REASON];
  // owned by the thread
  px__acceptor acceptor;  // on the hub
  px__link *links;        // on the hub: [i] is rank i + 1; elsewhere: the hub
  int count, timeout_ms, beat_ms;
  int64_t next_beat, decide_at;  // decide_at 0: no fact is known
  int64_t next_check, next_works_check, late_since;
  uint64_t begun_at_check;  // calls begun at the last check
  bool no_new_calls;        // no call began between the last two checks
  uint64_t checked, hub_hashed_to;
  uint32_t hub_hashes[PX__RING];  // on other ranks: the hub's hashes
  bool reported, differs, decided;
  struct {
    bool is;
    uint64_t number;
    int rank;
    char text[PX__REASON];
  } facts[FACTS];
};

// All watchdogs of this process, for exit and fork. `all` is acquired before a watchdog's lock.
static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static px__watchdog *watches;  // guarded by `all`

// ---- facts

static void record_fact(px__watchdog *self, fact kind, int rank, uint64_t number,
                        const char *text) {
  bool earlier = number < self->facts[kind].number ||
                 (number == self->facts[kind].number && rank < self->facts[kind].rank);
  bool better = !self->facts[kind].is || (kind == DIFFER && earlier);
  int64_t at = px__now_ms() + patience[kind];
  if (!better) return;
  self->facts[kind].is = true;
  self->facts[kind].number = number;
  self->facts[kind].rank = rank;
  snprintf(self->facts[kind].text, PX__REASON, "%s", text);
  if (self->facts[DEAD].is && self->facts[FAILED].is) at = px__now_ms();
  if (!self->decide_at || at < self->decide_at) self->decide_at = at;
}

static void record_fact_now(px__watchdog *self, fact kind, int rank, const char *text) {
  record_fact(self, kind, rank, 0, text);
  self->decide_at = px__now_ms();
}

// Calls begun by a rank; 0 if it has not connected.
static uint64_t begun_by(const px__watchdog *self, int rank) {
  for (int i = 0; i < self->count; i++)
    if (self->links[i].rank == rank) return self->links[i].begun;
  return 0;
}

// Lists the ranks that have not begun a call, as in "1, 2". Returns their number.
static int list_late_ranks(const px__watchdog *self, uint64_t number, char *text, size_t size) {
  int n = 0;
  size_t at = 0;
  bool own = self->begun < number;
  if (own) at = (size_t)snprintf(text, size, "0"), n = 1;
  for (int r = 1; r < self->comm->size; r++)
    if (begun_by(self, r) < number && at < size)
      at += (size_t)snprintf(text + at, size - at, "%s%d", n++ ? ", " : "", r);
  return n;
}

static void write_verdict(const px__watchdog *self, char text[PX__REASON]) {
  char ranks[128] = "";
  fact kind = DEAD;
  while (kind < FAILED && !self->facts[kind].is) kind++;
  uint64_t number = self->facts[kind].number;
  int late = kind == FAILED && self->hub && number
                 ? list_late_ranks(self, number, ranks, sizeof ranks)
                 : 0;
  if (late)
    snprintf(text, PX__REASON, "rank%s %s ha%s not called number %llu. Rank %d: %.600s",
             late > 1 ? "s" : "", ranks, late > 1 ? "ve" : "s", (unsigned long long)number,
             self->facts[kind].rank, self->facts[kind].text);
  else if (kind == FAILED)
    snprintf(text, PX__REASON, "rank %d: %.800s", self->facts[kind].rank, self->facts[kind].text);
  else
    snprintf(text, PX__REASON, "%.1000s", self->facts[kind].text);
}

// Fails the group on this rank. The lock must not be held.
static void fail_group(px__watchdog *self, const char *text) {
  px_comm *comm = self->comm;
  pthread_mutex_lock(&comm->lock);
  bool first = !comm->aborted;
  if (!comm->broken[0]) snprintf(comm->broken, sizeof comm->broken, "%s", text);
  comm->aborted = comm->joined != NULL;
  void *joined = first ? comm->joined : NULL;
  pthread_mutex_unlock(&comm->lock);
  pthread_mutex_lock(&self->lock);
  if (!self->verdict[0]) snprintf(self->verdict, sizeof self->verdict, "%s", text);
  pthread_cond_broadcast(&self->verdict_set);
  pthread_mutex_unlock(&self->lock);
  px__works_abort(comm, text);
  if (joined) comm->engine->abort(joined);
}

// ---- comparison of calls

static uint32_t mix(uint32_t before, uint32_t tag) {
  uint64_t h = 0xcbf29ce484222325u ^ before;
  h = (h ^ tag) * 0x100000001b3u;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
  return (uint32_t)(h ^ h >> 32);
}

static bool remembered(const px__watchdog *self, uint64_t number) {
  return number && number <= self->begun && number + PX__RING > self->begun;
}

static void compare(px__watchdog *self, px__link *hub) {
  char text[PX__CALL];
  if (self->hub_hashed_to > PX__RING && self->checked < self->hub_hashed_to - PX__RING)
    self->checked = self->hub_hashed_to - PX__RING;
  while (!self->differs && self->checked < self->hub_hashed_to && self->checked < self->begun) {
    uint64_t number = ++self->checked;
    size_t at = number % PX__RING;
    if (!remembered(self, number) || self->hashes[at] == self->hub_hashes[at]) continue;
    px__call_describe(text, sizeof text, &self->ring[at], true);
    self->differs = px__link_send(hub, PX__MISMATCH, number, text, strlen(text));
  }
}

// Stores hashes of the hub. A hub that begins many calls at once skips some; those are unchecked.
static void take_hashes(px__watchdog *self, uint64_t first, const char *at, size_t size) {
  if (size && first > self->hub_hashed_to + 1 && self->checked < first - 1)
    self->checked = first - 1;
  for (size_t i = 0; i < size / 4; i++) {
    memcpy(&self->hub_hashes[(first + i) % PX__RING], at + 4 * i, 4);
    self->hub_hashed_to = first + i;
  }
}

static void record_mismatch(px__watchdog *self, const px__link *link, uint64_t number,
                            const char *hub_hashes, size_t size) {
  char text[PX__REASON], mine[PX__CALL] = "a different collective";
  if (remembered(self, number))
    px__call_describe(mine, sizeof mine, &self->ring[number % PX__RING], true);
  snprintf(text, sizeof text, "rank %d called %.*s, and rank 0 called %s", link->rank,
           (int)(size < PX__CALL ? size : PX__CALL), hub_hashes, mine);
  record_fact(self, DIFFER, link->rank, number, text);
}

// ---- sending

static void send_hashes(px__watchdog *self, px__link *link) {
  uint32_t hashes[PX__HASHES];
  uint64_t first = link->reported + 1;
  if (self->begun >= first + PX__RING) first = self->begun - PX__HASHES + 1;
  size_t n = 0;
  for (; n < PX__HASHES && first + n <= self->begun; n++)
    hashes[n] = self->hashes[(first + n) % PX__RING];
  if (px__link_send(link, PX__BEAT, first, hashes, 4 * n) && n) link->reported = first + n - 1;
}

static void send_beats(px__watchdog *self, bool to_all) {
  for (int i = 0; i < self->count; i++) {
    px__link *link = &self->links[i];
    px__link_flush(link);
    if (link->socket < 0 || link->rank < 0 || link->out_size) continue;
    if (!to_all && link->reported >= self->begun) continue;
    if (self->hub)
      send_hashes(self, link);
    else if (px__link_send(link, PX__BEAT, self->begun, NULL, 0))
      link->reported = self->begun;
  }
}

static bool is_pending(const px__watchdog *self) {
  return self->begun > self->done && !self->decided;
}

// Sends a heartbeat every PX__HEARTBEAT_MS. While a call is pending it also sends at each check, as
// the call may be waiting for ranks that will not make it.
static void send_due_beats(px__watchdog *self) {
  int64_t now = px__now_ms();
  bool beat_due = now >= self->next_beat, check_due = now >= self->next_check;
  if (check_due) {
    self->no_new_calls = self->begun == self->begun_at_check;
    self->begun_at_check = self->begun, self->next_check = now + PX__CHECK_MS;
  }
  if (beat_due) self->next_beat = now + self->beat_ms;
  if (beat_due || (check_due && self->no_new_calls && is_pending(self))) send_beats(self, beat_due);
}

// Assigns a connected rank to its link. Returns false for an invalid or duplicate rank.
static bool admit_rank(void *context, int rank, int socket) {
  px__watchdog *self = context;
  bool fine = rank > 0 && rank < self->comm->size && self->links[rank - 1].rank < 0;
  if (fine) self->links[rank - 1] = (px__link){.socket = socket, .rank = rank};
  return fine;
}

static void accept_ranks(px__watchdog *self, const struct pollfd *polled) {
  int missing = 0;
  if (self->acceptor.listener < 0) return;
  px__acceptor_service(&self->acceptor, polled, admit_rank, self);
  for (int i = 0; i < self->count; i++) missing += self->links[i].rank < 0;
  if (!missing) px__acceptor_close(&self->acceptor);
}

// Handles received frames. Returns false if the data is malformed. Stores a verdict in `over`.
static bool handle_frames(px__watchdog *self, px__link *link, char over[PX__REASON]) {
  px__head head = {0};
  const char *at = NULL;
  bool fine = true;
  while (px__link_next(link, &head, &at, &fine)) {
    if (head.word == PX__BEAT && self->hub) link->begun = head.number;
    if (head.word == PX__BEAT && !self->hub) take_hashes(self, head.number, at, head.size);
    if (head.word == PX__BYE) link->left = true, link->done = head.number;
    if (head.word == PX__MISMATCH && self->hub)
      record_mismatch(self, link, head.number, at, head.size);
    if (head.word == PX__FAILED && self->hub) {
      char why[PX__REASON];
      snprintf(why, sizeof why, "%.*s", (int)head.size, at);
      if (head.number > link->begun) link->begun = head.number;
      record_fact(self, FAILED, link->rank, head.number, why);
    }
    if (head.word == PX__VERDICT && !self->hub)
      snprintf(over, PX__REASON, "%.*s", (int)head.size, at);
  }
  return fine;
}

static void mark_lost(px__watchdog *self, px__link *link) {
  char text[PX__REASON];
  px__link_close(link);
  if (link->rank < 0 || link->left || link->lost) return;
  link->lost = true;
  snprintf(text, sizeof text, "lost the connection to rank %d: its process may have ended",
           link->rank);
  record_fact(self, DEAD, link->rank, 0, text);
}

static void service_link(px__watchdog *self, px__link *link, short seen, char over[PX__REASON]) {
  char text[PX__REASON];
  bool open = true;
  if (seen & (POLLIN | POLLHUP | POLLERR)) {
    open = px__link_read(link);
    link->silent = 0;
  }
  if (link->rank >= 0 && (!handle_frames(self, link, over) || link->left)) open = false;
  if (!open) {
    mark_lost(self, link);
  } else if (link->rank >= 0 && !link->left && !link->lost && link->silent > self->timeout_ms) {
    snprintf(text, sizeof text,
             "rank %d sent no heartbeat for %d ms: its process is stopped or unreachable",
             link->rank, self->timeout_ms);
    link->lost = true;
    record_fact_now(self, DEAD, link->rank, text);
  }
}

// ---- the thread

// Records a fact if a rank has begun a call after another rank left.
static void check_departed(px__watchdog *self) {
  char text[PX__REASON];
  uint64_t max = self->begun;
  for (int i = 0; i < self->count; i++)
    if (!self->links[i].left && self->links[i].begun > max) max = self->links[i].begun;
  for (int i = 0; i < self->count; i++) {
    const px__link *link = &self->links[i];
    if (link->rank < 0 || !link->left || max <= link->done) continue;
    snprintf(text, sizeof text, "rank %d has left the group after its call number %llu", link->rank,
             (unsigned long long)link->done);
    record_fact(self, LEFT, link->rank, link->done, text);
  }
}

// Sends a local failure to the hub. The hub, or a rank without a hub, records it as a fact.
static void report_failure(px__watchdog *self) {
  px__link *hub = self->hub ? NULL : &self->links[0];
  if (!self->failed || self->reported) return;
  if (hub && hub->socket >= 0)
    self->reported = px__link_send(hub, PX__FAILED, self->failed_number, self->failed_why,
                                   strlen(self->failed_why));
  else
    self->reported = true;
  if (!hub || hub->socket < 0)
    record_fact(self, FAILED, self->comm->rank, self->failed_number, self->failed_why);
}

// One step of the thread, under the lock. Fills `over` when the group has failed.
static void step(px__watchdog *self, char over[PX__REASON]) {
  send_due_beats(self);
  if (!self->hub) compare(self, &self->links[0]);
  check_departed(self);
  report_failure(self);
  if (*over) self->decided = true;
  if (self->decided || !self->decide_at || px__now_ms() < self->decide_at) return;
  self->decided = true;
  write_verdict(self, over);
  for (int i = 0; self->hub && i < self->count; i++)
    if (self->links[i].rank > 0)
      (void)px__link_send(&self->links[i], PX__VERDICT, 0, over, strlen(over));
}

// Polls the connections. The timeout is the next heartbeat, or the next check while calls are
// pending. Returns the elapsed milliseconds.
static int wait_for_events(px__watchdog *self, struct pollfd *polled) {
  int64_t before = px__now_ms(), until = self->next_beat;
  if (self->decide_at && !self->decided && self->decide_at < until) until = self->decide_at;
  pthread_mutex_lock(&self->lock);
  self->idle = self->no_new_calls && !is_pending(self);
  if (!self->idle && self->next_check < until) until = self->next_check;
  polled[0] = (struct pollfd){self->wake, POLLIN, 0};
  for (int i = 0; i < self->count; i++) {
    const px__link *link = &self->links[i];
    polled[1 + i] =
        (struct pollfd){link->socket, (short)(POLLIN | (link->out_size ? POLLOUT : 0)), 0};
  }
  pthread_mutex_unlock(&self->lock);
  int count = 1 + self->count;
  count += px__acceptor_poll(&self->acceptor, polled + count);
  int wait = until > before ? (int)(until - before) : 0;
  if (poll(polled, (nfds_t)count, wait) < 0)
    for (int i = 0; i < count; i++) polled[i].revents = 0;
  uint64_t times;
  if (polled[0].revents) (void)!read(self->wake, &times, sizeof times);
  int64_t took = px__now_ms() - before;
  // If this process itself was stopped, the peers were not silent: bound the elapsed time.
  return took > 2 * self->beat_ms ? 2 * self->beat_ms : (int)took;
}

// Closes all connections. Closing a socket with unread data can discard the last data sent, so each
// side shuts down its sending half and waits for the peer to close, at most CLOSE_MS.
static void close_links(px__watchdog *self, struct pollfd *polled) {
  int64_t end = px__now_ms() + CLOSE_MS, left;
  for (int i = 0; i < self->count; i++)
    if (self->links[i].socket >= 0) (void)shutdown(self->links[i].socket, SHUT_WR);
  while ((left = end - px__now_ms()) > 0) {
    int open = 0;
    for (int i = 0; i < self->count; i++) {
      px__link *link = &self->links[i];
      link->in_size = 0;
      if (link->socket >= 0 && (link->rank < 0 || link->lost || !px__link_read(link)))
        px__link_close(link);
      polled[open] = (struct pollfd){link->socket, POLLIN, 0};
      open += link->socket >= 0;
    }
    if (!open || (poll(polled, (nfds_t)open, (int)left) < 0 && errno != EINTR)) return;
  }
}

// Number of the call that is not queued yet, or 0.
static uint64_t unqueued_call(px__watchdog *self) {
  pthread_mutex_lock(&self->lock);
  uint64_t number = self->begun > self->done ? self->begun : 0;
  pthread_mutex_unlock(&self->lock);
  return number;
}

// Polls device works, which complete without notification. Reports a late work to the other ranks.
static void check_works(px__watchdog *self, char over[PX__REASON]) {
  char why[PX__REASON];
  uint64_t number;
  int64_t now = px__now_ms();
  if (!self->comm->queues || self->decided || now < self->next_works_check) return;
  self->next_works_check = now + PX__CHECK_MS;
  bool bad = px__works_check(self->comm, &number, why);
  px__watchdog_done(self, px__works_done(self->comm));
  if (!bad) return;
  if (!number) number = unqueued_call(self);
  if (!self->late_since) self->late_since = now, px__watchdog_failed(self, number, why);
  // The hub does not respond.
  if (now - self->late_since >= VERDICT_MS) snprintf(over, PX__REASON, "%s", why);
}

static void *run_watchdog(void *argument) {
  px__watchdog *self = argument;
  struct pollfd *polled = (struct pollfd *)(self->links + self->count);
  for (bool ends = false; !ends;) {
    char over[PX__REASON] = "";
    int took = wait_for_events(self, polled);
    check_works(self, over);
    pthread_mutex_lock(&self->lock);
    ends = self->ends;
    for (int i = 0; i < self->count && !ends; i++) {
      if (self->links[i].socket < 0) continue;
      self->links[i].silent += took;
      service_link(self, &self->links[i], polled[1 + i].revents, over);
    }
    if (!ends) accept_ranks(self, polled + 1 + self->count);
    if (!ends) step(self, over);
    pthread_mutex_unlock(&self->lock);
    if (*over) fail_group(self, over);
  }
  close_links(self, polled);
  return NULL;
}

// ---- called by other threads

static void wake_thread(px__watchdog *self) {
  const uint64_t one = 1;
  (void)!write(self->wake, &one, sizeof one);
}

void px__watchdog_begun(px__watchdog *self, const px__call *call) {
  if (!self) return;
  size_t at = call->number % PX__RING;
  pthread_mutex_lock(&self->lock);
  self->ring[at] = *call;
  self->hashes[at] = mix(self->hashes[(call->number - 1) % PX__RING], call->tag);
  self->begun = call->number;
  bool idle = self->idle;
  self->idle = false;
  pthread_mutex_unlock(&self->lock);
  if (idle) wake_thread(self);
}

void px__watchdog_done(px__watchdog *self, uint64_t number) {
  if (!self) return;
  pthread_mutex_lock(&self->lock);
  if (number > self->done) self->done = number;
  pthread_mutex_unlock(&self->lock);
}

void px__watchdog_failed(px__watchdog *self, uint64_t number, const char *why) {
  pthread_mutex_lock(&self->lock);
  if (!self->failed) {
    self->failed = true;
    self->failed_number = number;
    snprintf(self->failed_why, sizeof self->failed_why, "%.800s", why);
  }
  pthread_mutex_unlock(&self->lock);
  wake_thread(self);
}

// True if the hub is silent now, but would be declared dead only much later. Another rank may have
// declared it dead already and closed its connections; the local failure is then not the cause.
static bool hub_is_unresponsive(const px__watchdog *self) {
  int silent = self->links[0].silent;
  return !self->hub && silent > QUIET_MS && silent + VERDICT_MS < self->timeout_ms;
}

static void wait_a_slice(px__watchdog *self) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += SLICE_MS * 1000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  (void)pthread_cond_timedwait(&self->verdict_set, &self->lock, &until);
}

void px__watchdog_explain(px__watchdog *self, uint64_t number, char why[PX__REASON]) {
  if (!self) return;
  int64_t end = px__now_ms() + VERDICT_MS;
  px__watchdog_failed(self, number, why);
  pthread_mutex_lock(&self->lock);
  while (!self->verdict[0] && px__now_ms() < end && !hub_is_unresponsive(self)) wait_a_slice(self);
  // Later callers return this verdict without waiting again.
  if (!self->verdict[0])
    snprintf(self->verdict, sizeof self->verdict, "%.900s%s", why,
             self->hub ? "" : "; rank 0 did not respond with the status of other ranks");
  snprintf(why, PX__REASON, "%s", self->verdict);
  pthread_mutex_unlock(&self->lock);
}

// ---- start and end

static void send_goodbyes(px__watchdog *self) {
  for (int i = 0; i < self->count; i++)
    if (self->links[i].rank >= 0)
      (void)px__link_send(&self->links[i], PX__BYE, self->done, NULL, 0);
}

// Updates `done` with works completed since the last poll.
static void check_works_at_end(px__watchdog *self) {
  char why[PX__REASON];
  uint64_t number;
  if (!self->comm->queues) return;
  (void)px__works_check(self->comm, &number, why);
  px__watchdog_done(self, px__works_done(self->comm));
}

// At exit: departs from all groups whose communicators still exist.
static void leave_all(void) {
  pthread_mutex_lock(&all);
  for (px__watchdog *at = watches; at; at = at->next) {
    check_works_at_end(at);
    pthread_mutex_lock(&at->lock);
    send_goodbyes(at);
    at->ends = at->over = true;
    pthread_mutex_unlock(&at->lock);
    wake_thread(at);
  }
  for (px__watchdog *at = watches; at; at = at->next) pthread_join(at->thread, NULL);
  pthread_mutex_unlock(&all);
}

static void before_fork(void) { pthread_mutex_lock(&all); }
static void after_fork(void) { pthread_mutex_unlock(&all); }
// A child that outlives its parent must not keep the connections open.
static void in_child(void) {
  for (px__watchdog *at = watches; at; at = at->next) {
    for (int i = 0; i < at->count; i++) px__link_close(&at->links[i]);
    px__acceptor_close(&at->acceptor);
  }
  watches = NULL;
  pthread_mutex_unlock(&all);
}

static void prepare_once(void) {
  (void)atexit(leave_all);
  (void)pthread_atfork(before_fork, after_fork, in_child);
}

static void release(px__watchdog *self) {
  for (int i = 0; i < self->count; i++) px__link_close(&self->links[i]);
  px__acceptor_close(&self->acceptor);
  if (self->wake >= 0) close(self->wake);
  pthread_cond_destroy(&self->verdict_set);
  pthread_mutex_destroy(&self->lock);
  px_free(self->links);
  px_free(self);
}

static px_status make(px__watchdog *self) {
  int64_t limit;
  px_comm *comm = self->comm;
  int count = self->hub ? comm->size - 1 : 1;
  PX_TRY(px_env_read("PHLOX_HEARTBEAT_TIMEOUT", &limit));
  self->timeout_ms = limit ? (int)limit : NEVER;
  self->beat_ms =
      self->timeout_ms < 4 * PX__HEARTBEAT_MS ? self->timeout_ms / 4 + 1 : PX__HEARTBEAT_MS;
  // The poll descriptors follow the links in the same allocation.
  PX_TRY(px_alloc((void **)&self->links,
                  (size_t)count * (sizeof *self->links + sizeof(struct pollfd)) +
                      (2 + PX__MAX_PENDING_PEERS) * sizeof(struct pollfd)));
  self->count = count;
  for (int i = 0; i < count; i++) self->links[i].socket = self->links[i].rank = -1;
  self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  PX_CHECK(self->wake >= 0, PX_DIST_NETWORK, "eventfd: %s", strerror(errno));
  if (self->hub) {
    PX_TRY(px__hub_listen(&self->acceptor.listener, self->acceptor.token, comm->store));
  } else {
    PX_TRY(px__hub_connect(&self->links[0].socket, comm->rank, comm->store,
                           px__now_ms() + comm->timeout_ms));
    self->links[0].rank = 0;
  }
  return px_thread_start(&self->thread, run_watchdog, self);
}

px_status px__watchdog_start(px__watchdog **out, px_comm *comm) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_condattr_t how;
  px__watchdog *self;
  *out = NULL;
  if (comm->size == 1) return PX_OK;
  pthread_once(&once, prepare_once);
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  self->comm = comm;
  self->hub = comm->rank == 0;
  self->acceptor.listener = self->wake = -1;
  pthread_mutex_init(&self->lock, NULL);
  pthread_condattr_init(&how);
  pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
  pthread_cond_init(&self->verdict_set, &how);
  pthread_condattr_destroy(&how);
  px_status status = make(self);
  if (status != PX_OK) return release(self), status;
  pthread_mutex_lock(&all);
  self->next = watches;
  watches = self;
  pthread_mutex_unlock(&all);
  *out = self;
  return PX_OK;
}

void px__watchdog_end(px__watchdog *self) {
  if (!self) return;
  pthread_mutex_lock(&all);
  px__watchdog **at = &watches;
  while (*at && *at != self) at = &(*at)->next;
  if (*at) *at = self->next;
  pthread_mutex_unlock(&all);
  check_works_at_end(self);
  pthread_mutex_lock(&self->lock);
  if (!self->ends) send_goodbyes(self);
  self->ends = true;
  pthread_mutex_unlock(&self->lock);
  wake_thread(self);
  if (!self->over) pthread_join(self->thread, NULL);
  release(self);
}
