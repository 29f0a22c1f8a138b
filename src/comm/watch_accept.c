// SPDX-License-Identifier: Apache-2.0
// Unauthenticated connections to the hub, until they name their rank.
//
// Up to PX__MAX_PENDING_PEERS are pending at a time, so silent peers cannot block others. At the
// limit the oldest one is closed for a new one, unless it is younger than PX__GRACE_MS.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/watch_impl.h"

enum { HELLO_MS = 10000 };

static void drop_peer(px__acceptor *self, int i) {
  int socket = self->peers[i].socket;
  self->peers[i].socket = -1;
  if (socket >= 0) close(socket);
  self->count--;
  memmove(&self->peers[i], &self->peers[i + 1], (size_t)(self->count - i) * sizeof *self->peers);
}

void px__acceptor_close(px__acceptor *self) {
  while (self->count) drop_peer(self, 0);
  if (self->listener >= 0) close(self->listener);
  self->listener = -1;
}

int px__acceptor_poll(const px__acceptor *self, struct pollfd *polled) {
  bool open = px__now_ms() >= self->accept_after;
  polled[0] = (struct pollfd){open ? self->listener : -1, POLLIN, 0};
  for (int i = 0; i < self->count; i++)
    polled[1 + i] = (struct pollfd){self->peers[i].socket, POLLIN, 0};
  return 1 + self->count;
}

// Reads the greeting only; data after it is for the watchdog. Returns false to close.
static bool read_greeting(px__pending_peer *peer) {
  size_t left = sizeof peer->greeting - peer->size;
  ssize_t got = recv(peer->socket, peer->greeting + peer->size, left, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  peer->size += (size_t)got;
  return got > 0;
}

// Returns 1 to admit, 0 to close, -1 to keep waiting.
static int check_greeting(const px__acceptor *self, px__pending_peer *peer, bool speaks) {
  if (speaks && !read_greeting(peer)) return 0;
  if (peer->size < sizeof peer->greeting) return px__now_ms() < peer->arrived + HELLO_MS ? -1 : 0;
  return !memcmp(peer->greeting, self->token, PX__TOKEN);
}

// Closes the oldest connection if necessary. `full`: the process has no free file descriptor.
static bool make_capacity(px__acceptor *self, bool full) {
  if (!full && self->count < PX__MAX_PENDING_PEERS) return true;
  bool drops = self->count && px__now_ms() >= self->peers[0].arrived + PX__GRACE_MS;
  if (drops) drop_peer(self, 0);
  return drops;
}

// Accepts all pending connections. Pauses if there is no capacity left.
static void accept_pending(px__acceptor *self) {
  for (bool full = false; make_capacity(self, full);) {
    int socket = px__accept(self->listener, &full);
    if (socket < 0 && !full) return;
    if (!full)
      self->peers[self->count++] = (px__pending_peer){.socket = socket, .arrived = px__now_ms()};
  }
  self->accept_after = px__now_ms() + PX__PAUSE_MS;
}

void px__acceptor_service(px__acceptor *self, const struct pollfd *polled,
                          bool (*admit)(void *context, int rank, int socket), void *context) {
  int rank, known = self->count;
  for (int i = 0, at = 0; at < known; at++) {
    px__pending_peer *peer = &self->peers[i];
    int is = check_greeting(self, peer, polled[1 + at].revents);
    memcpy(&rank, peer->greeting + PX__TOKEN, sizeof rank);
    if (is == 1 && admit(context, rank, peer->socket)) peer->socket = -1;
    if (is < 0)
      i++;
    else
      drop_peer(self, i);
  }
  if (polled[0].revents) accept_pending(self);
}
