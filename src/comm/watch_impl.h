// SPDX-License-Identifier: Apache-2.0
// The watch of a communicator: which ranks live, and whether they call the same collectives. Rank 0
// is the hub: each other rank has one connection to it, on which both sides speak every TICK, and
// of a call that is under way for longer than a LOOK.
#pragma once
#include <poll.h>

#include "comm/comm_impl.h"

enum {
  PX__TICK_MS = 250,
  PX__LOOK_MS = 50,
  PX__RING = 256,    // calls that are remembered
  PX__HASHES = 128,  // of calls, in one frame
  PX__LINE_IN = 2048,
  PX__LINE_OUT = 4096
};

// What is said, each with a head, and what follows it.
typedef enum px__word {
  PX__BEAT,     // number: calls begun. The hub's: of the first of the hashes that follow
  PX__DIFFERS,  // a rank's call `number` is not the hub's: the text says what it is
  PX__FAILED,   // `number` (0 for a send or recv) has failed: why
  PX__BYE,      // leaves in order; number: calls that are done
  PX__VERDICT,  // of the hub: why the group is over
  PX__WORDS
} px__word;
typedef struct px__head {
  uint32_t word, size;  // of what follows
  uint64_t number;
} px__head;

// One connection. `out` and `socket`: by the watch's lock; the rest is the thread's.
typedef struct px__line {
  int socket;  // -1: over
  int rank;    // of the other side; -1 until it has come
  int silent;  // milliseconds since it last spoke, of those in which this process ran
  bool left;   // has said goodbye
  bool lost;   // has ended without
  uint64_t begun, done, told;
  size_t in_size, out_size;
  uint8_t in[PX__LINE_IN], out[PX__LINE_OUT];
} px__line;

// Puts a frame in the queue; false where there is no room. Sends what can be sent.
bool px__line_say(px__line *line, px__word word, uint64_t number, const void *at, size_t size);
void px__line_flush(px__line *line);
// Reads what has come; false if the other side has ended.
bool px__line_read(px__line *line);
// Takes the next whole frame out of what was read. False: there is none; *fine is false if what is
// there is no frame. What follows the head is at *at until the next call.
bool px__line_take(px__line *line, px__head *head, const char **at, bool *fine);
void px__line_close(px__line *line);

// Where the hub listens, and the word that tells ranks from strangers; kept in the store.
enum { PX__TOKEN = 16, PX__HELLO = PX__TOKEN + 4, PX__ADDRESS = 128 };
__attribute__((warn_unused_result)) px_status px__hub_listen(int *socket, uint8_t token[PX__TOKEN],
                                                             px_store *store);
__attribute__((warn_unused_result)) px_status px__hub_connect(int *socket, int rank,
                                                              px_store *store, int64_t end);

// ---- watch_door.c: connections to the hub until it is known whose they are; the watch's thread
// has all of it
enum { PX__WAITING = 128 };
typedef struct px__newcomer {
  int socket;
  int64_t came;
  size_t size;
  uint8_t said[PX__HELLO];
} px__newcomer;
typedef struct px__door {
  int listener;  // -1: nobody is to come any more
  uint8_t token[PX__TOKEN];
  int64_t shut_until;
  int count;
  px__newcomer waiting[PX__WAITING];  // in the order in which they came
} px__door;
// Fills in what is to be polled, 1 + PX__WAITING at most, and says how many these are.
int px__door_poll(const px__door *self, struct pollfd *polled);
// Hears who they are, and takes in others. `admit` takes over the socket of a rank, or refuses.
void px__door_attend(px__door *self, const struct pollfd *polled,
                     bool (*admit)(void *context, int rank, int socket), void *context);
void px__door_close(px__door *self);
