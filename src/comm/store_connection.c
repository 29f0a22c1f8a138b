// SPDX-License-Identifier: Apache-2.0
// One connection to a store's server. Bounds on the memory and the time of a peer:
// - Before authentication it may send 40 bytes, within ten seconds.
// - A buffer grows with the bytes received, not with the length claimed by a frame.
// - A connection is not read while it waits for keys, while it has unexecuted requests, or while
//   PHLOX_STORE_QUEUE bytes of answers are unread. It holds at most one frame and one chunk.
// - A visit executes requests up to the connection's share of the turn. Large ones run one a turn.
// - A request above a limit is answered by an error text, and its remaining bytes are discarded.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/server_impl.h"

enum {
  MIN_CAPACITY = 256,    // of a queue, in bytes
  KEPT = 4096,           // capacity kept by an empty queue
  REQUEST_WORK = 256,    // work of a request besides its bytes
  KEY_WORK = 64,         // work of looking up a key
  LARGE = 256 << 10,     // least work of a large request
  MAX_SENT = 256 << 10,  // most bytes of one send
  MAX_WAIT_MS = 60000
};

// ---- queues

// Moves the bytes to the start only if at least as many have been removed: amortised, each byte
// moves once.
static bool reserve(px__server *s, px__byte_queue *q, size_t more) {
  size_t capacity = q->capacity ? q->capacity : MIN_CAPACITY;
  if (q->start >= q->size && q->start) {
    if (q->size) memmove(q->at, q->at + q->start, q->size);
    q->start = 0;
  }
  while (capacity < q->start + q->size + more) capacity *= 2;
  if (capacity == q->capacity) return true;
  if (px_realloc((void **)&q->at, capacity) != PX_OK) return px_error_clear(), false;
  s->table.used += (int64_t)(capacity - q->capacity);
  q->capacity = capacity;
  return true;
}

static bool push(px__server *s, px__byte_queue *q, const void *at, size_t size) {
  if (!reserve(s, q, size)) return false;
  if (size) memcpy(q->at + q->start + q->size, at, size);
  q->size += size;
  return true;
}

static void release(px__server *s, px__byte_queue *q) {
  px_free(q->at);
  s->table.used -= (int64_t)q->capacity;
  *q = (px__byte_queue){0};
}

static void drop(px__server *s, px__byte_queue *q, size_t size) {
  q->start += size;
  q->size -= size;
  if (q->size) return;
  q->start = 0;
  if (q->capacity > KEPT) release(s, q);
}

// ---- answers

static bool answer(px__server *s, px__connection *c, bool fine, const px__response *response) {
  uint8_t head[13];
  uint32_t length = (uint32_t)(9 + response->size);
  memcpy(head, &length, 4);
  head[4] = fine;
  memcpy(head + 5, &response->number, 8);
  return push(s, &c->out, head, sizeof head) && push(s, &c->out, response->value, response->size);
}

// Answers with the thread's error, and clears it.
static bool answer_error(px__server *s, px__connection *c) {
  char text[PX_ERROR_MESSAGE];
  int length = snprintf(text, sizeof text, "%s", px_error_last()->message);
  px_error_clear();
  return answer(s, c, false, &(px__response){.value = text, .size = (size_t)length});
}

// Sends without blocking. Returns false if the connection has failed.
static bool flush_out(px__server *s, px__connection *c) {
  size_t size = c->out.size < MAX_SENT ? c->out.size : MAX_SENT;
  if (!size) return true;
  ssize_t sent = send(c->socket, c->out.at + c->out.start, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  drop(s, &c->out, (size_t)sent);
  return true;
}

// ---- the greeting

bool px__connection_open(px__server *s, px__connection *c, int socket) {
  uint8_t hello[PX__HELLO_BYTES] = PX__STORE_MAGIC;
  int one = 1;
  *c = (px__connection){.socket = socket, .deadline = px__now_ms() + PX__HELLO_MS};
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  bool drawn = getrandom(c->nonce, sizeof c->nonce, 0) == (ssize_t)sizeof c->nonce;
  hello[8] = s->secret ? PX__GREETING_SECRET : PX__GREETING_OPEN;
  memcpy(hello + 9, c->nonce, sizeof c->nonce);
  return drawn && push(s, &c->out, hello, sizeof hello) && flush_out(s, c);
}

void px__connection_refuse(int socket, int64_t limit) {
  uint8_t hello[PX__HELLO_BYTES] = PX__STORE_MAGIC;
  hello[8] = PX__GREETING_REFUSED;
  memcpy(hello + 9, &limit, sizeof limit);
  (void)!send(socket, hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
  close(socket);
}

void px__connection_close(px__server *s, px__connection *c) {
  if (c->socket >= 0) close(c->socket);
  release(s, &c->in);
  release(s, &c->out);
  *c = (px__connection){.socket = -1};
}

// Compares memory in constant time.
static bool equal(const uint8_t *a, const uint8_t *b, size_t size) {
  uint8_t differ = 0;
  for (size_t i = 0; i < size; i++) differ |= a[i] ^ b[i];
  return !differ;
}

static bool authenticate(px__server *s, px__connection *c) {
  uint8_t expected[PX__SECRET_BYTES] = {0};
  const uint8_t *reply = c->in.at + c->in.start;
  if (memcmp(reply, PX__STORE_MAGIC, 8)) return false;
  if (s->secret) px__secret_response(expected, s->secret, c->nonce, sizeof c->nonce);
  if (!equal(expected, reply + 8, sizeof expected)) return false;
  c->authenticated = true;
  drop(s, &c->in, PX__REPLY_BYTES);
  return push(s, &c->out, "\1", 1);
}

// ---- frames

// Returns the frame at the head of `in` and its length, or NULL if the length has not arrived.
static const uint8_t *head_frame(const px__connection *c, uint32_t *length) {
  if (!c->authenticated || c->in.size < 4) return NULL;
  memcpy(length, c->in.at + c->in.start, 4);
  return c->in.at + c->in.start + 4;
}

static bool has_frame(const px__connection *c) {
  uint32_t length;
  return head_frame(c, &length) && c->in.size - 4 >= length;
}

static px_status check_frame(px__server *s, const px__connection *c, uint32_t length) {
  PX_CHECK(length <= s->limits.request, PX_DIST_STORE,
           "expected a request of at most %lld bytes, got %u; PHLOX_STORE_REQUEST of the store's "
           "process sets the limit",
           (long long)s->limits.request, length);
  bool grows = c->in.size > PX__CHUNK && c->in.size - 4 < length;
  return grows ? px__table_check_used(&s->table, PX__CHUNK) : PX_OK;
}

// Looks up the keys of the parked frame from the first missing one on, and answers if all exist or
// the wait is over. Keys deleted in the meantime count, as in PyTorch.
static bool resume(px__server *s, px__connection *c, int64_t *share) {
  uint32_t length = 0, size;
  const uint8_t *frame = head_frame(c, &length);
  for (; c->awaited < length; c->awaited += 4 + (size_t)size) {
    if (*share <= 0) return true;
    *share -= KEY_WORK;
    memcpy(&size, frame + c->awaited, 4);
    if (!px__table_find(&s->table, (px__bytes){frame + c->awaited + 4, size})) break;
  }
  bool exist = c->awaited == length;
  c->inserts = s->table.inserts;
  c->parked = !exist && px__now_ms() < c->deadline;
  if (c->parked) return true;
  drop(s, &c->in, 4 + (size_t)length);
  return answer(s, c, true, &(px__response){.number = exist});
}

// Parks the connection. `resume` answers.
static void park(px__server *s, px__connection *c, int64_t milliseconds) {
  if (milliseconds > MAX_WAIT_MS) milliseconds = MAX_WAIT_MS;
  c->deadline = px__now_ms() + (milliseconds > 0 ? milliseconds : 0);
  c->awaited = 13;
  c->inserts = s->table.inserts - 1;
  c->parked = true;
}

// Bytes of the value to be answered.
static size_t answer_size(const px__server *s, const px__store_request *request) {
  bool reads = request->kind == PX__REQUEST_GET || request->kind == PX__REQUEST_SWAP;
  const px__bytes *value =
      reads && request->count ? px__table_find(&s->table, request->items[0]) : NULL;
  return value ? value->size : 0;
}

static px_status apply(px__server *s, const px__store_request *request, px__response *response,
                       size_t value) {
  if (value > PX__CHUNK) PX_TRY(px__table_check_used(&s->table, (int64_t)value));
  return px__table_apply(&s->table, request, response);
}

typedef enum outcome { DONE, NOTHING, BROKEN } outcome;

// Executes a complete frame. Returns NOTHING if it is large and another one was executed in this
// turn.
static outcome execute(px__server *s, px__connection *c, const uint8_t *frame, uint32_t length,
                       int64_t *share) {
  px__store_request request;
  px__response response = {0};
  int64_t work = REQUEST_WORK + (int64_t)length;
  if (work > LARGE && s->large_served) return NOTHING;
  if (!px__request_unpack(&request, s->items, frame, length)) return BROKEN;
  size_t value = answer_size(s, &request);
  work += (int64_t)value;
  if (work > LARGE && s->large_served) return NOTHING;
  s->large_served |= work > LARGE;
  *share -= work;
  if (request.kind == PX__REQUEST_AWAIT) return park(s, c, request.number), DONE;
  px_status status = apply(s, &request, &response, value);
  bool sent = status == PX_OK ? answer(s, c, true, &response) : answer_error(s, c);
  px_free(response.value);
  drop(s, &c->in, 4 + (size_t)length);
  return sent ? DONE : BROKEN;
}

// Handles the frame at the head of `in`.
static outcome handle_frame(px__server *s, px__connection *c, int64_t *share) {
  uint32_t length;
  const uint8_t *frame = head_frame(c, &length);
  if (!frame) return NOTHING;
  if (length < 13) return BROKEN;
  if (check_frame(s, c, length) != PX_OK) {
    size_t total = 4 + (size_t)length, here = c->in.size < total ? c->in.size : total;
    c->skipped = total - here;
    drop(s, &c->in, here);
    return answer_error(s, c) ? DONE : BROKEN;
  }
  return c->in.size - 4 < length ? NOTHING : execute(s, c, frame, length, share);
}

// ---- visits

static bool can_execute(const px__server *s, const px__connection *c) {
  return !c->parked && (int64_t)c->out.size < s->limits.queue;
}

short px__connection_events(const px__server *s, const px__connection *c) {
  bool reads = can_execute(s, c) && !has_frame(c);
  int parked = c->parked ? POLLRDHUP : 0;
  return (short)((c->out.size ? POLLOUT : 0) | (reads ? POLLIN : parked));
}

bool px__connection_is_busy(const px__server *s, const px__connection *c) {
  return c->parked ? c->inserts != s->table.inserts : can_execute(s, c) && has_frame(c);
}

static bool receive(px__server *s, px__connection *c) {
  size_t max = PX__REPLY_BYTES - c->in.size;
  if (c->authenticated) max = s->share < PX__CHUNK ? (size_t)s->share : PX__CHUNK;
  ssize_t got = recv(c->socket, s->chunk, max, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  size_t skipped = c->skipped < (size_t)got ? c->skipped : (size_t)got;
  c->skipped -= skipped;
  return push(s, &c->in, s->chunk + skipped, (size_t)got - skipped);
}

// True if a missing key may have been set, or the wait may be over.
static bool may_resume(const px__server *s, const px__connection *c) {
  return c->parked && (c->inserts != s->table.inserts || px__now_ms() >= c->deadline);
}

bool px__connection_visit(px__server *s, px__connection *c, short seen) {
  bool reads = px__connection_events(s, c) & POLLIN;
  int64_t share = s->share;
  outcome last = DONE;
  if (seen & (POLLIN | POLLRDHUP | POLLHUP | POLLERR) && !(reads && receive(s, c))) return false;
  if (!c->authenticated && px__now_ms() >= c->deadline) return false;
  if (!c->authenticated && c->in.size >= PX__REPLY_BYTES && !authenticate(s, c)) return false;
  while (last == DONE && share > 0 && (can_execute(s, c) || may_resume(s, c)))
    if (!c->parked)
      last = handle_frame(s, c, &share);
    else if (!resume(s, c, &share))
      return false;
  return last != BROKEN && flush_out(s, c);
}
