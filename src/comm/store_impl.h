// SPDX-License-Identifier: Apache-2.0
// Stores, for the files of this folder. A kind of store is one function, which answers what it is
// asked at once; what waits asks again (store.c).
#pragma once
#include "phlox/comm.h"

#include <pthread.h>

enum { PX__STORE_FRAME = 64 << 20, PX__STORE_KEYS = 65536, PX__SECRET_BYTES = 32 };

typedef enum px__ask_kind {
  PX__ASK_SET,
  PX__ASK_GET,  // number: whether it is there
  PX__ASK_ADD,
  PX__ASK_SWAP,    // key, expected, desired
  PX__ASK_DELETE,  // number: whether it was there
  PX__ASK_COUNT,
  PX__ASK_AWAIT,  // number: for so many milliseconds; in the answer, whether all keys are there
  PX__ASK_KINDS
} px__ask_kind;
typedef struct px__bytes {
  const void *at;
  size_t size;
} px__bytes;
typedef struct px__ask {
  px__ask_kind kind;
  int64_t number;
  int count;
  const px__bytes *items;  // the key, or keys, and values
} px__ask;
typedef struct px__answer {
  int64_t number;
  void *value;  // owned by who asked
  size_t size;
} px__answer;

struct px_store {
  px_object head;
  px_status (*ask)(px_store *self, const px__ask *ask, px__answer *answer);
  int64_t timeout_ms;  // atomic
  int port;
};

// Keys with their values.
typedef struct px__entry px__entry;
typedef struct px__table {
  px__entry **heads;
  int64_t room, count;
} px__table;
// Answers from a table, which is changed if it is asked so; on failure it is not.
__attribute__((warn_unused_result)) px_status px__table_ask(px__table *table, const px__ask *ask,
                                                            px__answer *answer);
void px__table_clear(px__table *table);
// The value of a key, or NULL.
const px__bytes *px__table_find(const px__table *table, px__bytes key);

int64_t px__now_ms(void);  // of a clock that nobody sets

// ---- sockets (net.c)

// Sends or receives all, until a time of px__now_ms; on failure errno says why.
bool px__send_all(int socket, const void *at, size_t size, int64_t end);
bool px__receive_all(int socket, void *at, size_t size, int64_t end);
// A connection, or -1.
int px__connect(const char *host, int port, int64_t end);
// A socket that listens, with IPv6 where there is any, at *port; 0: at one that is free. Or -1.
int px__listen(int *port);
// Takes one that has connected, or gives -1; `full`: the process can open no more files.
int px__accept(int listener, bool *full);
bool px__host_is_here(const char *host);
// Where there is no room for all who want in: for how long one that says nothing may stay, and for
// how long nobody is taken in when all that are there may stay.
enum { PX__GRACE_MS = 1000, PX__PAUSE_MS = 50 };

// What both sides of a connection agree on.
#define PX__STORE_MAGIC "PXSTORE1"
enum { PX__NONCE_BYTES = 16, PX__HELLO_BYTES = 8 + 1 + PX__NONCE_BYTES, PX__REPLY_BYTES = 8 + 32 };
void px__secret_answer(uint8_t out[PX__SECRET_BYTES], const char *secret, const uint8_t *nonce,
                       size_t size);
// An ask as a frame, and back. A frame is its length (4 bytes), kind (1), number (8), count (4),
// and each item with its length (4). The items of what is read point into the frame.
__attribute__((warn_unused_result)) px_status px__ask_pack(void **out, size_t *size,
                                                           const px__ask *ask);
// False if it is no frame; items has room for PX__STORE_KEYS of them.
bool px__ask_unpack(px__ask *out, px__bytes *items, const uint8_t *frame, size_t size);

typedef struct px__server px__server;
__attribute__((warn_unused_result)) px_status px__server_start(px__server **out, int *port,
                                                               const char *secret);
void px__server_stop(px__server *server);

// What waits for keys ask, beside the thread's own check; of clusters. Atomic; NULL: nothing.
extern px_status (*px__store_asks)(void);
