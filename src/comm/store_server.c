// SPDX-License-Identifier: Apache-2.0
// The server of a TCP store: one thread, which polls its connections.
//
// What strangers send is bounded: a connection that has not shown that it knows the secret may send
// 40 bytes, within ten seconds; room for a frame grows with what has arrived, not with the length
// that it claims; there are at most 4096 connections. What does not fit closes the connection. Who
// says nothing keeps nobody out: where there is no room for more, it makes room after a second.
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

enum { CONNECTIONS = 4096, HELLO_MS = 10000, FIRST_ROOM = 256 };

typedef struct queue {
  uint8_t *at;
  size_t size, room;
} queue;
typedef struct connection {
  int socket;
  bool known;        // has answered the challenge
  bool parked;       // the frame at the head of `in` waits for keys
  int64_t deadline;  // of the answer to the challenge, or of the wait
  uint8_t nonce[PX__NONCE_BYTES];
  queue in, out;
} connection;

// All but `stop` belong to the server's thread.
struct px__server {
  int socket, stop[2];
  pthread_t thread;
  char *secret;
  px__table table;
  connection *connections;
  struct pollfd *polled;  // the listening socket, `stop`, and each connection
  px__bytes *items;
  int count;
  int64_t shut_until;  // nobody is taken in
};

static bool reserve(queue *q, size_t more) {
  size_t room = q->room ? q->room : FIRST_ROOM;
  while (room < q->size + more) room *= 2;
  if (room == q->room) return true;
  if (px_realloc((void **)&q->at, room) != PX_OK) return px_error_clear(), false;
  q->room = room;
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

// Sends what it can; false if the connection is over.
static bool flush_out(connection *c) {
  while (c->out.size) {
    ssize_t sent = send(c->socket, c->out.at, c->out.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    drop(&c->out, (size_t)sent);
  }
  return true;
}

static bool reply(connection *c, bool fine, const px__answer *answer) {
  uint8_t head[13];
  uint32_t length = (uint32_t)(9 + answer->size);
  memcpy(head, &length, 4);
  head[4] = fine;
  memcpy(head + 5, &answer->number, 8);
  return push(&c->out, head, sizeof head) && push(&c->out, answer->value, answer->size);
}

// True if the memory of both is equal; takes as long in any case.
static bool equal(const uint8_t *a, const uint8_t *b, size_t size) {
  uint8_t differ = 0;
  for (size_t i = 0; i < size; i++) differ |= a[i] ^ b[i];
  return !differ;
}

static bool greeted(px__server *s, connection *c) {
  uint8_t wanted[PX__SECRET_BYTES] = {0};
  if (memcmp(c->in.at, PX__STORE_MAGIC, 8)) return false;
  if (s->secret) px__secret_answer(wanted, s->secret, c->nonce, sizeof c->nonce);
  if (!equal(wanted, c->in.at + 8, sizeof wanted)) return false;
  c->known = true;
  drop(&c->in, PX__REPLY_BYTES);
  return push(&c->out, "\1", 1);
}

// Answers the frame at the head of `in`, or parks the connection. False: it is no frame.
static bool answer_frame(px__server *s, connection *c, size_t length) {
  px__ask ask;
  px__answer answer = {0};
  if (!px__ask_unpack(&ask, s->items, c->in.at + 4, length)) return false;
  px_status status = px__table_ask(&s->table, &ask, &answer);
  bool waits = ask.kind == PX__ASK_AWAIT && status == PX_OK && !answer.number && ask.number > 0;
  if (waits && !c->parked) c->deadline = px__now_ms() + (ask.number < 60000 ? ask.number : 60000);
  c->parked = waits && px__now_ms() < c->deadline;
  if (c->parked) return true;
  bool sent = reply(c, status == PX_OK, &answer);
  px_free(answer.value);
  px_error_clear();
  drop(&c->in, 4 + length);
  return sent;
}

// Works off what has arrived; false if the connection is to be closed.
static bool work_off(px__server *s, connection *c) {
  if (!c->known && c->in.size >= PX__REPLY_BYTES && !greeted(s, c)) return false;
  while (c->known && c->in.size >= 4) {
    uint32_t length;
    memcpy(&length, c->in.at, 4);
    if (length < 13 || length >= PX__STORE_FRAME) return false;
    if (c->in.size - 4 < length) break;
    if (!answer_frame(s, c, length)) return false;
    if (c->parked) break;
  }
  return flush_out(c);
}

static bool receive(px__server *s, connection *c) {
  size_t most = c->known ? 65536 : PX__REPLY_BYTES - c->in.size;
  // One who is waiting has nothing to send.
  if (c->parked && c->in.size > PX__STORE_FRAME) return false;
  if (!reserve(&c->in, most)) return false;
  ssize_t got = recv(c->socket, c->in.at + c->in.size, most, MSG_DONTWAIT);
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

// `full`: the process can open no more files. Connections are in the order in which they came.
static bool make_room(px__server *s, bool full) {
  int i = 0;
  if (!full && s->count < CONNECTIONS) return true;
  while (i < s->count && s->connections[i].known) i++;
  connection *c = &s->connections[i];
  if (i == s->count || px__now_ms() < c->deadline - HELLO_MS + PX__GRACE_MS) return false;
  end(c);
  s->count--;
  memmove(c, c + 1, (size_t)(s->count - i) * sizeof *c);
  return true;
}

// Takes all that have connected, as far as there is room; then nobody for a moment.
static void take_in(px__server *s) {
  for (bool full = false; make_room(s, full);) {
    int socket = px__accept(s->socket, &full);
    if (socket < 0 && !full) return;
    if (!full) greet(s, socket);
  }
  s->shut_until = px__now_ms() + PX__PAUSE_MS;
}

// How long poll may wait: to the next deadline.
static int patience(px__server *s) {
  int64_t now = px__now_ms(), least = now < s->shut_until ? s->shut_until - now : -1;
  for (int i = 0; i < s->count; i++) {
    const connection *c = &s->connections[i];
    if (c->known && !c->parked) continue;
    int64_t left = c->deadline > now ? c->deadline - now : 0;
    if (least < 0 || left < least) least = left;
  }
  return (int)least;
}

static void serve_all(px__server *s) {
  bool any = false;
  int polled = s->count, kept = 0;
  for (int i = 0; i < s->count; i++) {
    connection *c = &s->connections[i];
    short seen = s->polled[2 + i].revents;
    bool fine = c->known || px__now_ms() < c->deadline;
    if (fine && seen & (POLLIN | POLLHUP | POLLERR)) fine = receive(s, c);
    if (fine && (seen || c->parked)) fine = work_off(s, c);
    any |= seen != 0;
    if (!fine) end(c);
  }
  // What one has set, others may have waited for.
  for (int i = 0; any && i < polled; i++) {
    connection *c = &s->connections[i];
    if (c->socket >= 0 && c->parked && !work_off(s, c)) end(c);
  }
  for (int i = 0; i < s->count; i++)
    if (s->connections[i].socket >= 0) s->connections[kept++] = s->connections[i];
  s->count = kept;
}

static void *serve(void *argument) {
  px__server *s = argument;
  for (;;) {
    bool open = px__now_ms() >= s->shut_until;
    s->polled[0] = (struct pollfd){open ? s->socket : -1, POLLIN, 0};
    s->polled[1] = (struct pollfd){s->stop[0], POLLIN, 0};
    for (int i = 0; i < s->count; i++) {
      const connection *c = &s->connections[i];
      s->polled[2 + i] = (struct pollfd){c->socket, POLLIN | (c->out.size ? POLLOUT : 0), 0};
    }
    if (poll(s->polled, (nfds_t)s->count + 2, patience(s)) < 0 && errno != EINTR) break;
    if (s->polled[1].revents) break;
    serve_all(s);
    if (s->polled[0].revents) take_in(s);
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
