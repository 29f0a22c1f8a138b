// SPDX-License-Identifier: Apache-2.0
// Unauthenticated connections to the hub, until they name their rank.
//
// Up to PX__WAITING are pending at a time, so silent peers cannot block others. At the limit the
// oldest one is closed for a new one, unless it is younger than PX__GRACE_MS.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/watch_impl.h"

enum { HELLO_MS = 10000 };

static void send_away(px__door *self, int i) {
  int socket = self->waiting[i].socket;
  self->waiting[i].socket = -1;
  if (socket >= 0) close(socket);
  self->count--;
  memmove(&self->waiting[i], &self->waiting[i + 1],
          (size_t)(self->count - i) * sizeof *self->waiting);
}

void px__door_close(px__door *self) {
  while (self->count) send_away(self, 0);
  if (self->listener >= 0) close(self->listener);
  self->listener = -1;
}

int px__door_poll(const px__door *self, struct pollfd *polled) {
  bool open = px__now_ms() >= self->shut_until;
  polled[0] = (struct pollfd){open ? self->listener : -1, POLLIN, 0};
  for (int i = 0; i < self->count; i++)
    polled[1 + i] = (struct pollfd){self->waiting[i].socket, POLLIN, 0};
  return 1 + self->count;
}

// Reads the greeting only; data after it is for the watchdog. Returns false to close.
static bool listen_to(px__newcomer *who) {
  size_t left = sizeof who->said - who->size;
  ssize_t got = recv(who->socket, who->said + who->size, left, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  who->size += (size_t)got;
  return got > 0;
}

// Returns 1 to admit, 0 to close, -1 to keep waiting.
static int judge(const px__door *self, px__newcomer *who, bool speaks) {
  if (speaks && !listen_to(who)) return 0;
  if (who->size < sizeof who->said) return px__now_ms() < who->came + HELLO_MS ? -1 : 0;
  return !memcmp(who->said, self->token, PX__TOKEN);
}

// Closes the oldest connection if necessary. `full`: the process has no free file descriptor.
static bool make_capacity(px__door *self, bool full) {
  if (!full && self->count < PX__WAITING) return true;
  bool goes = self->count && px__now_ms() >= self->waiting[0].came + PX__GRACE_MS;
  if (goes) send_away(self, 0);
  return goes;
}

// Accepts all pending connections. Pauses if there is no capacity left.
static void accept_pending(px__door *self) {
  for (bool full = false; make_capacity(self, full);) {
    int socket = px__accept(self->listener, &full);
    if (socket < 0 && !full) return;
    if (!full)
      self->waiting[self->count++] = (px__newcomer){.socket = socket, .came = px__now_ms()};
  }
  self->shut_until = px__now_ms() + PX__PAUSE_MS;
}

void px__door_attend(px__door *self, const struct pollfd *polled,
                     bool (*admit)(void *context, int rank, int socket), void *context) {
  int rank, known = self->count;
  for (int i = 0, at = 0; at < known; at++) {
    px__newcomer *who = &self->waiting[i];
    int is = judge(self, who, polled[1 + at].revents);
    memcpy(&rank, who->said + PX__TOKEN, sizeof rank);
    if (is == 1 && admit(context, rank, who->socket)) who->socket = -1;
    if (is < 0)
      i++;
    else
      send_away(self, i);
  }
  if (polled[0].revents) accept_pending(self);
}
