// SPDX-License-Identifier: Apache-2.0
// Internal header of the TCP store's server: its state, and one connection to it. The server's
// thread owns all of this but `stop`.
#pragma once
#include <poll.h>

#include "comm/store_impl.h"

enum {
  PX__CHUNK = 65536,     // most bytes of one recv
  PX__HELLO_MS = 10000,  // time of authentication
};

// Bytes in order of arrival: `size` of them from `start` on.
typedef struct px__byte_queue {
  uint8_t *at;
  size_t start, size, capacity;
} px__byte_queue;
typedef struct px__connection {
  int socket;
  bool authenticated;
  bool parked;       // the frame at the head of `in` waits for keys
  int64_t deadline;  // of authentication, or of the wait
  uint8_t nonce[PX__NONCE_BYTES];
  px__byte_queue in, out;
  size_t skipped;    // bytes still to come of a refused frame
  size_t awaited;    // offset in the parked frame of the first missing key
  uint64_t inserts;  // of the table when this key was last looked up
} px__connection;

// PHLOX_STORE_CONNECTIONS, PHLOX_STORE_QUEUE and PHLOX_STORE_REQUEST. The table has the others.
typedef struct px__limits {
  int64_t connections, queue, request;
} px__limits;
struct px__server {
  int socket, stop[2];
  int spare;  // a file descriptor, closed to answer a client if the process has no other
  pthread_t thread;
  char *secret;
  px__limits limits;
  px__table table;
  px__connection *connections;  // in order of arrival
  struct pollfd *polled;        // the listening socket, `stop`, then each connection
  px__bytes *items;
  uint8_t *chunk;
  int count;
  int64_t accept_after;  // accepts no connection until then
  int first;             // the connection visited first in this turn
  int64_t share;         // work of each connection in this turn, in bytes
  bool large_served;     // a large request was executed in this turn
};

// Makes a connection of an accepted socket and sends the greeting. Returns false if it has failed.
bool px__connection_open(px__server *s, px__connection *c, int socket);
// Tells a client why it is refused, and closes its socket. `limit`: 0 if file descriptors ran out.
void px__connection_refuse(int socket, int64_t limit);
void px__connection_close(px__server *s, px__connection *c);
// The events to poll. A connection with unexecuted requests or unread answers is not read.
short px__connection_events(const px__server *s, const px__connection *c);
// True if a visit has work to do without an event.
bool px__connection_is_busy(const px__server *s, const px__connection *c);
// Receives, executes and sends at most the server's share. `seen`: events. Returns false if the
// connection must be closed.
bool px__connection_visit(px__server *s, px__connection *c, short seen);
