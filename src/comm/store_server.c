// SPDX-License-Identifier: Apache-2.0
// The server of a TCP store: one thread polls all connections. Each event wakes it for a turn: a
// visit of every connection, with an equal share of the turn's work.
//
// At the limit of connections, an unauthenticated one older than one second is closed for a new
// one, so silent peers cannot block others. If all are authenticated, the new one is refused.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/server_impl.h"

enum {
  TURN = 1 << 20,    // work of a turn, in bytes
  MIN_SHARE = 1024,  // of a connection
  ACCEPTS = 64       // connections accepted in a turn
};

// ---- accepting

typedef enum capacity { FREE, FULL, SOON } capacity;

// Closes an old unauthenticated connection if necessary. `full`: the process has no free file
// descriptor. SOON: an unauthenticated connection is too young.
static capacity make_capacity(px__server *s, bool full) {
  int i = 0;
  if (!full && s->count < s->limits.connections) return FREE;
  while (i < s->count && s->connections[i].authenticated) i++;
  px__connection *c = &s->connections[i];
  if (i == s->count) return FULL;
  if (px__now_ms() < c->deadline - PX__HELLO_MS + PX__GRACE_MS) return SOON;
  px__connection_close(s, c);
  s->count--;
  memmove(c, c + 1, (size_t)(s->count - i) * sizeof *c);
  return FREE;
}

static void open_spare(px__server *s) {
  if (s->spare < 0) s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

// Accepts a connection and refuses it. Returns false if there is none.
static bool refuse_one(px__server *s, bool full) {
  bool none;
  if (full && s->spare >= 0) close(s->spare), s->spare = -1;
  int socket = px__accept(s->socket, &none);
  if (socket >= 0) px__connection_refuse(socket, full ? 0 : s->limits.connections);
  open_spare(s);
  return socket >= 0;
}

static void open_one(px__server *s, int socket) {
  px__connection *c = &s->connections[s->count];
  if (px__connection_open(s, c, socket))
    s->count++;
  else
    px__connection_close(s, c);
}

// Accepts or refuses pending connections. Pauses if it can do neither.
static void accept_pending(px__server *s) {
  bool full = false;
  capacity now = FREE;
  for (int i = 0; i < ACCEPTS && now == FREE; i++) {
    now = make_capacity(s, full);
    if (now == FREE) {
      int socket = px__accept(s->socket, &full);
      if (socket < 0 && !full) return;
      if (socket >= 0) open_one(s, socket);
    } else if (now == FULL && refuse_one(s, full)) {
      now = FREE;
    }
  }
  if (now != FREE) s->accept_after = px__now_ms() + PX__PAUSE_MS;
}

// ---- turns

// Milliseconds to the next deadline, or -1.
static int next_deadline(const px__server *s) {
  int64_t now = px__now_ms(), min = now < s->accept_after ? s->accept_after - now : -1;
  for (int i = 0; i < s->count; i++) {
    const px__connection *c = &s->connections[i];
    if (c->authenticated && !c->parked) continue;
    int64_t left = c->deadline > now ? c->deadline - now : 0;
    if (min < 0 || left < min) min = left;
  }
  return (int)min;
}

// Waits for events and divides the turn among the connections that have work. Returns false at the
// end.
static bool begin_turn(px__server *s) {
  int busy = 0, events;
  s->polled[0] = (struct pollfd){px__now_ms() < s->accept_after ? -1 : s->socket, POLLIN, 0};
  s->polled[1] = (struct pollfd){s->stop[0], POLLIN, 0};
  for (int i = 0; i < s->count; i++) {
    const px__connection *c = &s->connections[i];
    s->polled[2 + i] = (struct pollfd){c->socket, px__connection_events(s, c), 0};
    busy += px__connection_is_busy(s, c);
  }
  events = poll(s->polled, (nfds_t)s->count + 2, busy ? 0 : next_deadline(s));
  if (events < 0 && errno != EINTR) return false;
  if (events > 0) busy += events;
  s->share = busy && TURN / busy > MIN_SHARE ? TURN / busy : MIN_SHARE;
  s->large_served = false;
  return !s->polled[1].revents;
}

// The first connection changes from turn to turn: it may execute a large request.
static void visit_all(px__server *s) {
  int kept = 0;
  s->first = s->count ? (s->first + 1) % s->count : 0;
  for (int k = 0; k < s->count; k++) {
    int i = (s->first + k) % s->count;
    px__connection *c = &s->connections[i];
    if (!px__connection_visit(s, c, s->polled[2 + i].revents)) px__connection_close(s, c);
  }
  for (int i = 0; i < s->count; i++)
    if (s->connections[i].socket >= 0) s->connections[kept++] = s->connections[i];
  s->count = kept;
}

static void *serve(void *argument) {
  px__server *s = argument;
  while (begin_turn(s)) {
    visit_all(s);
    if (s->polled[0].revents) accept_pending(s);
  }
  return NULL;
}

// ---- start and end

static void release_server(px__server *s) {
  for (int i = 0; i < s->count; i++) px__connection_close(s, &s->connections[i]);
  if (s->socket >= 0) close(s->socket);
  if (s->spare >= 0) close(s->spare);
  for (int i = 0; i < 2; i++)
    if (s->stop[i] >= 0) close(s->stop[i]);
  px__table_clear(&s->table);
  px_free(s->secret);
  px_free(s->connections);
  px_free(s->polled);
  px_free(s->items);
  px_free(s->chunk);
  px_free(s);
}

static px_status read_limits(px__server *s) {
  PX_TRY(px_env_read("PHLOX_STORE_CONNECTIONS", &s->limits.connections));
  PX_TRY(px_env_read("PHLOX_STORE_REQUEST", &s->limits.request));
  PX_TRY(px_env_read("PHLOX_STORE_QUEUE", &s->limits.queue));
  PX_TRY(px_env_read("PHLOX_STORE_KEYS", &s->table.max_count));
  return px_env_read("PHLOX_STORE_MEMORY", &s->table.max_used);
}

static px_status prepare(px__server *s, int *port, const char *host, const char *secret) {
  PX_TRY(read_limits(s));
  size_t max = (size_t)s->limits.connections;
  // With a secret, peers of all interfaces are welcome, whatever this process calls its host.
  s->socket = px__listen(port, secret ? "" : host);
  PX_CHECK(s->socket >= 0, PX_DIST_NETWORK,
           "The server socket has failed to listen on any local network address. port: %d, "
           "message: %s",
           *port, strerror(errno));
  PX_CHECK(!pipe2(s->stop, O_CLOEXEC), PX_DIST_NETWORK, "pipe: %s", strerror(errno));
  open_spare(s);
  if (secret) PX_TRY(px_strdup(&s->secret, secret));
  PX_TRY(px_alloc((void **)&s->connections, (max + 1) * sizeof *s->connections));
  PX_TRY(px_alloc((void **)&s->polled, (max + 2) * sizeof *s->polled));
  PX_TRY(px_alloc((void **)&s->items, PX__STORE_KEYS * sizeof *s->items));
  PX_TRY(px_alloc((void **)&s->chunk, PX__CHUNK));
  return px_thread_start(&s->thread, serve, s);
}

px_status px__server_start(px__server **out, int *port, const char *host, const char *secret) {
  px__server *s;
  PX_TRY(px_alloc((void **)&s, sizeof *s));
  s->socket = s->spare = s->stop[0] = s->stop[1] = -1;
  px_status status = prepare(s, port, host, secret);
  if (status != PX_OK) return release_server(s), status;
  *out = s;
  return PX_OK;
}

void px__server_stop(px__server *s) {
  if (!s) return;
  close(s->stop[1]);
  s->stop[1] = -1;
  pthread_join(s->thread, NULL);
  release_server(s);
}
