// SPDX-License-Identifier: Apache-2.0
// Internal header of stores. Each kind of store is one function that answers a request at once.
// Blocking waits repeat their request (store.c).
#pragma once
#include "phlox/comm.h"

#include <pthread.h>

enum { PX__STORE_FRAME = 64 << 20, PX__STORE_KEYS = 65536, PX__SECRET_BYTES = 32 };

typedef enum px__store_request_kind {
  PX__REQUEST_SET,
  PX__REQUEST_GET,  // response number: 1 if the key exists
  PX__REQUEST_ADD,
  PX__REQUEST_SWAP,    // key, expected, desired
  PX__REQUEST_DELETE,  // response number: 1 if the key existed
  PX__REQUEST_COUNT,
  PX__REQUEST_AWAIT,  // number: timeout in milliseconds; in the response, 1 if all keys exist
  PX__REQUEST_KINDS
} px__store_request_kind;
typedef struct px__bytes {
  const void *at;
  size_t size;
} px__bytes;
typedef struct px__store_request {
  px__store_request_kind kind;
  int64_t number;
  int count;
  const px__bytes *items;  // keys and values
} px__store_request;
typedef struct px__response {
  int64_t number;
  void *value;  // owned by the caller
  size_t size;
} px__response;

struct px_store {
  px_object head;
  px_status (*request)(px_store *self, const px__store_request *request, px__response *response);
  int64_t timeout_ms;  // atomic
  int port;
};

// A hash table of keys and values. The number of buckets grows by one with each key, so no
// insertion takes long.
typedef struct px__store_entry px__store_entry;
typedef struct px__table {
  px__store_entry **heads;
  uint64_t buckets, capacity;  // used and allocated heads
  uint64_t secret[2];          // of the hash: peers cannot choose colliding keys
  uint64_t inserts;            // keys inserted so far
  int64_t count, max_count;    // keys; 0: no limit
  int64_t used, max_used;      // bytes of entries and of the owner's buffers; 0: no limit
} px__table;
// Executes a request on a table. On failure the table is unchanged.
__attribute__((warn_unused_result)) px_status px__table_apply(px__table *table,
                                                              const px__store_request *request,
                                                              px__response *response);
void px__table_clear(px__table *table);
// Fails if `more` bytes would exceed the limit.
__attribute__((warn_unused_result)) px_status px__table_check_used(const px__table *table,
                                                                   int64_t more);
// Returns the value of a key, or NULL.
const px__bytes *px__table_find(const px__table *table, px__bytes key);

int64_t px__now_ms(void);  // monotonic clock, milliseconds

// ---- sockets (sockets.c)

// Sends or receives exactly `size` bytes until the deadline `end`. On failure sets errno.
bool px__send_all(int socket, const void *at, size_t size, int64_t end);
bool px__receive_all(int socket, void *at, size_t size, int64_t end);
// Returns a connected socket, or -1.
int px__connect(const char *host, int port, int64_t end);
// Returns a listening socket, or -1. A port of 0 selects a free one. *port receives the port.
// Listens on `host` only if it names the loopback, on all interfaces otherwise.
int px__listen(int *port, const char *host);
// True for localhost, 127.0.0.0/8 and ::1. Names are not resolved: Debian maps the name of the host
// itself to 127.0.1.1.
bool px__host_is_loopback(const char *host);
// Accepts a pending connection, or returns -1. `full`: the process has no free file descriptor.
int px__accept(int listener, bool *full);
bool px__host_is_here(const char *host);
// Overload: GRACE is the age after which an unauthenticated peer may be dropped in favour of a new
// one. PAUSE is the time without accepting if none could be dropped.
enum { PX__GRACE_MS = 1000, PX__PAUSE_MS = 50 };

// Wire format of the handshake.
#define PX__STORE_MAGIC "PXSTORE1"
// The byte after the magic number. REFUSED is followed by the limit of connections in the nonce's
// first 8 bytes.
typedef enum px__greeting {
  PX__GREETING_OPEN,
  PX__GREETING_SECRET,
  PX__GREETING_REFUSED
} px__greeting;
enum { PX__NONCE_BYTES = 16, PX__HELLO_BYTES = 8 + 1 + PX__NONCE_BYTES, PX__REPLY_BYTES = 8 + 32 };
void px__secret_response(uint8_t out[PX__SECRET_BYTES], const char *secret, const uint8_t *nonce,
                         size_t size);
// Packs a request into a frame, and unpacks it. A frame is its length (4 bytes), kind (1),
// number (8), count (4), and each item preceded by its length (4). Unpacked items point into the
// frame.
__attribute__((warn_unused_result)) px_status px__request_pack(void **out, size_t *size,
                                                               const px__store_request *request);
// Returns false if the frame is malformed. `items` has a capacity of PX__STORE_KEYS.
bool px__request_unpack(px__store_request *out, px__bytes *items, const uint8_t *frame,
                        size_t size);

typedef struct px__server px__server;
__attribute__((warn_unused_result)) px_status px__server_start(px__server **out, int *port,
                                                               const char *host,
                                                               const char *secret);
void px__server_stop(px__server *server);

// Polled by store waits in addition to the thread's interrupt check; set by clusters. Atomic, may
// be NULL.
extern px_status (*px__store_poll)(void);
