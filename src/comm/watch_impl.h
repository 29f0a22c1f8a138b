// SPDX-License-Identifier: Apache-2.0
// Internal header of the watchdog. It checks that all ranks of a communicator are alive and make
// the same calls. Rank 0 is the hub. Each other rank has one connection to it. Both sides send a
// heartbeat every PX__HEARTBEAT_MS, and every PX__CHECK_MS while a call is pending.
#pragma once
#include <poll.h>

#include "comm/comm_impl.h"

enum {
  PX__HEARTBEAT_MS = 250,  // heartbeat interval
  PX__CHECK_MS = 50,       // interval of checks while calls are pending
  PX__RING = 256,          // remembered calls
  PX__HASHES = 128,        // call hashes per frame
  PX__LINK_IN = 2048,      // receive buffer, bytes
  PX__LINK_OUT = 4096,     // send buffer, bytes
};

// Messages. Each is a head followed by a payload.
typedef enum px__message {
  PX__BEAT,      // number: calls begun. From the hub: number of the first hash in the payload
  PX__MISMATCH,  // call `number` of a rank differs from the hub's. Payload: its description
  PX__FAILED,    // call `number` failed (0: a send or recv). Payload: the reason
  PX__BYE,       // orderly departure; number: completed calls
  PX__VERDICT,   // from the hub. Payload: the reason of the group's failure
  PX__MESSAGES
} px__message;
typedef struct px__head {
  uint32_t word, size;  // size of the payload
  uint64_t number;
} px__head;

// One connection. The watchdog's lock guards `out` and `socket`; the thread owns the rest.
typedef struct px__link {
  int socket;  // -1: closed
  int rank;    // of the peer; -1 until it has connected
  int silent;  // milliseconds without data from the peer; excludes time this process was stopped
  bool left;   // departed with PX__BYE
  bool lost;   // disconnected without it
  uint64_t begun, done, reported;
  size_t in_size, out_size;
  uint8_t in[PX__LINK_IN], out[PX__LINK_OUT];
} px__link;

// Appends a frame to the send buffer and sends without blocking. False if the buffer is full.
bool px__link_send(px__link *line, px__message word, uint64_t number, const void *at, size_t size);
void px__link_flush(px__link *line);
// Receives without blocking. False if the peer has closed the connection.
bool px__link_read(px__link *line);
// Extracts the next complete frame. Returns false if there is none; *fine is then false if the data
// is malformed. The payload is at *at until the next call.
bool px__link_next(px__link *line, px__head *head, const char **at, bool *fine);
void px__link_close(px__link *line);

// The hub's address and a token that authenticates ranks. Both are published in the store.
enum { PX__TOKEN = 16, PX__HELLO = PX__TOKEN + 4, PX__ADDRESS = 128 };
__attribute__((warn_unused_result)) px_status px__hub_listen(int *socket, uint8_t token[PX__TOKEN],
                                                             px_store *store);
__attribute__((warn_unused_result)) px_status px__hub_connect(int *socket, int rank,
                                                              px_store *store, int64_t end);

// ---- watch_accept.c: hub connections before authentication; owned by the watchdog's thread
enum { PX__MAX_PENDING_PEERS = 128 };  // maximum number of unauthenticated connections
typedef struct px__pending_peer {
  int socket;
  int64_t arrived;
  size_t size;
  uint8_t greeting[PX__HELLO];
} px__pending_peer;
typedef struct px__acceptor {
  int listener;  // -1: all ranks have connected
  uint8_t token[PX__TOKEN];
  int64_t accept_after;
  int count;
  px__pending_peer peers[PX__MAX_PENDING_PEERS];  // in order of arrival
} px__acceptor;
// Fills in the descriptors to poll and returns their number, at most 1 + PX__MAX_PENDING_PEERS.
int px__acceptor_poll(const px__acceptor *self, struct pollfd *polled);
// Reads greetings and accepts new connections. `admit` takes the socket of an authenticated rank,
// or returns false to refuse it.
void px__acceptor_service(px__acceptor *self, const struct pollfd *polled,
                          bool (*admit)(void *context, int rank, int socket), void *context);
void px__acceptor_close(px__acceptor *self);
