// SPDX-License-Identifier: Apache-2.0
// Unauthenticated connections to the hub, until they name their rank.
//
// Up to PX__GUESTS are pending at a time, so silent peers cannot block others. At the limit the
// oldest one is closed for a new one, unless it is younger than PX__GRACE_MS.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/watch_impl.h"

enum { HELLO_MS = 10000 };

static void drop_guest(px__door *self, int i) {
  int socket = self->guests[i].socket;
  self->guests[i].socket = -1;
  if (socket >= 0) close(socket);
  self->count--;
  memmove(&self->guests[i], &self->guests[i + 1], (size_t)(self->count - i) * sizeof *self->guests);
}

void px__door_close(px__door *self) {
  while (self->count) drop_guest(self, 0);
  if (self->listener >= 0) close(self->listener);
  self->listener = -1;
}

int px__door_poll(const px__door *self, struct pollfd *polled) {
  bool open = px__now_ms() >= self->shut_until;
  polled[0] = (struct pollfd){open ? self->listener : -1, POLLIN, 0};
  for (int i = 0; i < self->count; i++)
    polled[1 + i] = (struct pollfd){self->guests[i].socket, POLLIN, 0};
  return 1 + self->count;
}

// Reads the greeting only; data after it is for the watchdog. Returns false to close.
static bool read_greeting(px__guest *guest) {
  size_t left = sizeof guest->greeting - guest->size;
  ssize_t got = recv(guest->socket, guest->greeting + guest->size, left, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  guest->size += (size_t)got;
  return got > 0;
}

// Returns 1 to admit, 0 to close, -1 to keep waiting.
static int check_greeting(const px__door *self, px__guest *guest, bool speaks) {
  if (speaks && !read_greeting(guest)) return 0;
  if (guest->size < sizeof guest->greeting)
    return px__now_ms() < guest->arrived + HELLO_MS ? -1 : 0;
  return !memcmp(guest->greeting, self->token, PX__TOKEN);
}

// Closes the oldest connection if necessary. `full`: the process has no free file descriptor.
static bool make_capacity(px__door *self, bool full) {
  if (!full && self->count < PX__GUESTS) return true;
  bool goes = self->count && px__now_ms() >= self->guests[0].arrived + PX__GRACE_MS;
  if (goes) drop_guest(self, 0);
  return goes;
}

// Accepts all pending connections. Pauses if there is no capacity left.
static void accept_pending(px__door *self) {
  for (bool full = false; make_capacity(self, full);) {
    int socket = px__accept(self->listener, &full);
    if (socket < 0 && !full) return;
    if (!full) self->guests[self->count++] = (px__guest){.socket = socket, .arrived = px__now_ms()};
  }
  self->shut_until = px__now_ms() + PX__PAUSE_MS;
}

void px__door_service(px__door *self, const struct pollfd *polled,
                      bool (*admit)(void *context, int rank, int socket), void *context) {
  int rank, known = self->count;
  for (int i = 0, at = 0; at < known; at++) {
    px__guest *guest = &self->guests[i];
    int is = check_greeting(self, guest, polled[1 + at].revents);
    memcpy(&rank, guest->greeting + PX__TOKEN, sizeof rank);
    if (is == 1 && admit(context, rank, guest->socket)) guest->socket = -1;
    if (is < 0)
      i++;
    else
      drop_guest(self, i);
  }
  if (polled[0].revents) accept_pending(self);
}
