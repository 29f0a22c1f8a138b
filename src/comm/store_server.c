// SPDX-License-Identifier: Apache-2.0
// The server of a TCP store: one thread polls all connections.
//
// Limits on unauthenticated peers and on memory:
// - Before authentication a peer may send 40 bytes, within ten seconds.
// - A receive buffer grows with the bytes received, not with the length claimed by the frame.
// - At most 4096 connections. A violation closes the connection.
// - At the connection limit, an unauthenticated connection older than one second is closed for a
//   new one, so silent peers cannot block others.
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/store_impl.h"

enum { CONNECTIONS = 4096, HELLO_MS = 10000, MIN_CAPACITY = 256 };

typedef struct queue {
  uint8_t *at;
  size_t size, capacity;
} queue;
typedef struct connection {
  int socket;
  bool authenticated;
  bool parked;       // the frame at the head of `in` waits for keys
  int64_t deadline;  // of authentication, or of the wait
  uint8_t nonce[PX__NONCE_BYTES];
  queue in, out;
} connection;

// The server's thread owns everything but `stop`.
struct px__server {
  int socket, stop[2];
  pthread_t thread;
  char *secret;
  px__table table;
  connection *connections;
  struct pollfd *polled;  // the listening socket, `stop`, then each connection
  px__bytes *items;
  int count;
  int64_t accept_after;  // accepts no connection until then
};

static bool reserve(queue *q, size_t more) {
  size_t capacity = q->capacity ? q->capacity : MIN_CAPACITY;
  while (capacity < q->size + more) capacity *= 2;
  if (capacity == q->capacity) return true;
  if (px_realloc((void **)&q->at, capacity) != PX_OK) return px_error_clear(), false;
  q->capacity = capacity;
  return true;
}

static bool push(queue *q, const void *at, size_t size) {
  if (!reserve(q, size)) return false;
  if (size) memcpy(q->at + q->size, at, size);
  q->size += size;
  return true;
}

static void drop(queue *q, size_t size) {
  q->size -= size;
  if (q->size) memmove(q->at, q->at + size, q->size);
}

static void end(connection *c) {
  if (c->socket >= 0) close(c->socket);
  px_free(c->in.at);
  px_free(c->out.at);
  *c = (connection){.socket = -1};
}

// Sends without blocking. Returns false if the connection has failed.
static bool flush_out(connection *c) {
  while (c->out.size) {
    ssize_t sent = send(c->socket, c->out.at, c->out.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    drop(&c->out, (size_t)sent);
  }
  return true;
}

static bool reply(connection *c, bool fine, const px__response *response) {
  uint8_t head[13];
  uint32_t length = (uint32_t)(9 + response->size);
  memcpy(head, &length, 4);
  head[4] = fine;
  memcpy(head + 5, &response->number, 8);
  return push(&c->out, head, sizeof head) && push(&c->out, response->value, response->size);
}

// Compares memory in constant time.
static bool equal(const uint8_t *a, const uint8_t *b, size_t size) {
  uint8_t differ = 0;
  for (size_t i = 0; i < size; i++) differ |= a[i] ^ b[i];
  return !differ;
}

static bool authenticate(px__server *s, connection *c) {
  uint8_t expected[PX__SECRET_BYTES] = {0};
  if (memcmp(c->in.at, PX__STORE_MAGIC, 8)) return false;
  if (s->secret) px__secret_response(expected, s->secret, c->nonce, sizeof c->nonce);
  if (!equal(expected, c->in.at + 8, sizeof expected)) return false;
  c->authenticated = true;
  drop(&c->in, PX__REPLY_BYTES);
  return push(&c->out, "\1", 1);
}

// Answers the frame at the head of `in`, or parks the connection. Returns false if malformed.
static bool handle_frame(px__server *s, connection *c, size_t length) {
  px__request request;
  px__response response = {0};
  if (!px__request_unpack(&request, s->items, c->in.at + 4, length)) return false;
  px_status status = px__table_apply(&s->table, &request, &response);
  bool waits = request.kind == PX__REQUEST_AWAIT && status == PX_OK && !response.number &&
               request.number > 0;
  if (waits && !c->parked)
    c->deadline = px__now_ms() + (request.number < 60000 ? request.number : 60000);
  c->parked = waits && px__now_ms() < c->deadline;
  if (c->parked) return true;
  bool sent = reply(c, status == PX_OK, &response);
  px_free(response.value);
  px_error_clear();
  drop(&c->in, 4 + length);
  return sent;
}

// Processes received bytes. Returns false if the connection must be closed.
static bool process_input(px__server *s, connection *c) {
  if (!c->authenticated && c->in.size >= PX__REPLY_BYTES && !authenticate(s, c)) return false;
  while (c->authenticated && c->in.size >= 4) {
    uint32_t length;
    memcpy(&length, c->in.at, 4);
    if (length < 13 || length >= PX__STORE_FRAME) return false;
    if (c->in.size - 4 < length) break;
    if (!handle_frame(s, c, length)) return false;
    if (c->parked) break;
  }
  return flush_out(c);
}

static bool receive(px__server *s, connection *c) {
  size_t max = c->authenticated ? 65536 : PX__REPLY_BYTES - c->in.size;
  // A parked client has no reason to send more.
  if (c->parked && c->in.size > PX__STORE_FRAME) return false;
  if (!reserve(&c->in, max)) return false;
  ssize_t got = recv(c->socket, c->in.at + c->in.size, max, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  c->in.size += (size_t)got;
  return true;
}

static void greet(px__server *s, int socket) {
  uint8_t hello[PX__HELLO_BYTES] = PX__STORE_MAGIC;
  int one = 1;
  connection *c = &s->connections[s->count];
  *c = (connection){.socket = socket, .deadline = px__now_ms() + HELLO_MS};
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  bool drawn = getrandom(c->nonce, sizeof c->nonce, 0) == (ssize_t)sizeof c->nonce;
  hello[8] = s->secret != NULL;
  memcpy(hello + 9, c->nonce, sizeof c->nonce);
  if (drawn && push(&c->out, hello, sizeof hello) && flush_out(c))
    s->count++;
  else
    end(c);
}

// Closes an old unauthenticated connection if necessary. `full`: the process has no free file
// descriptor. Connections are in order of arrival. Returns false if none can be closed.
static bool make_capacity(px__server *s, bool full) {
  int i = 0;
  if (!full && s->count < CONNECTIONS) return true;
  while (i < s->count && s->connections[i].authenticated) i++;
  connection *c = &s->connections[i];
  if (i == s->count || px__now_ms() < c->deadline - HELLO_MS + PX__GRACE_MS) return false;
  end(c);
  s->count--;
  memmove(c, c + 1, (size_t)(s->count - i) * sizeof *c);
  return true;
}

// Accepts all pending connections. Pauses if there is no capacity left.
static void accept_pending(px__server *s) {
  for (bool full = false; make_capacity(s, full);) {
    int socket = px__accept(s->socket, &full);
    if (socket < 0 && !full) return;
    if (!full) greet(s, socket);
  }
  s->accept_after = px__now_ms() + PX__PAUSE_MS;
}

// Poll timeout: milliseconds to the next deadline, or -1.
static int poll_timeout(px__server *s) {
  int64_t now = px__now_ms(), min = now < s->accept_after ? s->accept_after - now : -1;
  for (int i = 0; i < s->count; i++) {
    const connection *c = &s->connections[i];
    if (c->authenticated && !c->parked) continue;
    int64_t left = c->deadline > now ? c->deadline - now : 0;
    if (min < 0 || left < min) min = left;
  }
  return (int)min;
}

static void serve_all(px__server *s) {
  bool any = false;
  int polled = s->count, kept = 0;
  for (int i = 0; i < s->count; i++) {
    connection *c = &s->connections[i];
    short seen = s->polled[2 + i].revents;
    bool fine = c->authenticated || px__now_ms() < c->deadline;
    if (fine && seen & (POLLIN | POLLHUP | POLLERR)) fine = receive(s, c);
    if (fine && (seen || c->parked)) fine = process_input(s, c);
    any |= seen != 0;
    if (!fine) end(c);
  }
  // A key set by one connection may complete the waits of others.
  for (int i = 0; any && i < polled; i++) {
    connection *c = &s->connections[i];
    if (c->socket >= 0 && c->parked && !process_input(s, c)) end(c);
  }
  for (int i = 0; i < s->count; i++)
    if (s->connections[i].socket >= 0) s->connections[kept++] = s->connections[i];
  s->count = kept;
}

static void *serve(void *argument) {
  px__server *s = argument;
  for (;;) {
    bool open = px__now_ms() >= s->accept_after;
    s->polled[0] = (struct pollfd){open ? s->socket : -1, POLLIN, 0};
    s->polled[1] = (struct pollfd){s->stop[0], POLLIN, 0};
    for (int i = 0; i < s->count; i++) {
      const connection *c = &s->connections[i];
      s->polled[2 + i] = (struct pollfd){c->socket, POLLIN | (c->out.size ? POLLOUT : 0), 0};
    }
    if (poll(s->polled, (nfds_t)s->count + 2, poll_timeout(s)) < 0 && errno != EINTR) break;
    if (s->polled[1].revents) break;
    serve_all(s);
    if (s->polled[0].revents) accept_pending(s);
  }
  return NULL;
}

static void release_server(px__server *s) {
  for (int i = 0; i < s->count; i++) end(&s->connections[i]);
  if (s->socket >= 0) close(s->socket);
  for (int i = 0; i < 2; i++)
    if (s->stop[i] >= 0) close(s->stop[i]);
  px__table_clear(&s->table);
  px_free(s->secret);
  px_free(s->connections);
  px_free(s->polled);
  px_free(s->items);
  px_free(s);
}

static px_status prepare(px__server *s, int *port, const char *secret) {
  s->socket = px__listen(port);
  PX_CHECK(s->socket >= 0, PX_DIST_NETWORK,
           "The server socket has failed to listen on any local network address. port: %d, "
           "message: %s",
           *port, strerror(errno));
  PX_CHECK(!pipe2(s->stop, O_CLOEXEC), PX_DIST_NETWORK, "pipe: %s", strerror(errno));
  if (secret) PX_TRY(px_strdup(&s->secret, secret));
  PX_TRY(px_alloc((void **)&s->connections, (CONNECTIONS + 1) * sizeof *s->connections));
  PX_TRY(px_alloc((void **)&s->polled, (CONNECTIONS + 2) * sizeof *s->polled));
  PX_TRY(px_alloc((void **)&s->items, PX__STORE_KEYS * sizeof *s->items));
  return px_thread_start(&s->thread, serve, s);
}

px_status px__server_start(px__server **out, int *port, const char *secret) {
  px__server *s;
  PX_TRY(px_alloc((void **)&s, sizeof *s));
  s->socket = s->stop[0] = s->stop[1] = -1;
  px_status status = prepare(s, port, secret);
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
