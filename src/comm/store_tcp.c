// SPDX-License-Identifier: Apache-2.0
// A store over TCP: one connection to the server with one request at a time. Waits are split into
// slices (store.c), so other threads can send requests in between.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/store_impl.h"

enum { ANSWER_MS = 60000 };  // timeout of one response; the connection is then lost

typedef struct tcp_store {
  px_store store;
  pthread_mutex_t lock;
  int socket;  // guarded by `lock`; -1 after the connection was lost
  px__server *server;
} tcp_store;

static px_status lost(tcp_store *self, const char *why) {
  if (self->socket >= 0) close(self->socket);
  self->socket = -1;
  PX_FAIL(PX_DIST_NETWORK, "lost the connection to the store server: %s", why);
}

// Returns the error text of a refused request.
static px_status refused(const px__response *response) {
  PX_FAIL(PX_DIST_STORE, "the store server refused the request: %.*s",
          response->size < PX_ERROR_MESSAGE ? (int)response->size : PX_ERROR_MESSAGE,
          (const char *)response->value);
}

static px_status receive_answer(tcp_store *self, px__response *response, int64_t end) {
  uint8_t head[13];
  uint32_t length;
  if (!px__receive_all(self->socket, head, sizeof head, end)) return lost(self, strerror(errno));
  memcpy(&length, head, 4);
  memcpy(&response->number, head + 5, 8);
  if (length < 9 || length >= PX__STORE_FRAME) return lost(self, "the peer is not a store server");
  response->size = length - 9;
  // One byte more: the value ends with 0, and an empty value is an allocation, too.
  px_status status = px_alloc(&response->value, response->size + 1);
  if (status != PX_OK) return (void)lost(self, "no memory"), status;
  if (!px__receive_all(self->socket, response->value, response->size, end))
    return lost(self, strerror(errno));
  return head[4] ? PX_OK : refused(response);
}

static px_status exchange(tcp_store *self, const px__store_request *request, px__response *response,
                          const void *frame, size_t size) {
  int64_t end = px__now_ms() + ANSWER_MS;
  PX_CHECK(self->socket >= 0, PX_DIST_NETWORK, "lost the connection to the store server");
  if (!px__send_all(self->socket, frame, size, end)) return lost(self, strerror(errno));
  px_status status = receive_answer(self, response, end);
  bool returns_value =
      request->kind == PX__REQUEST_SWAP || (request->kind == PX__REQUEST_GET && response->number);
  if (status == PX_OK && returns_value) return PX_OK;
  px_free(response->value);
  response->value = NULL;
  return status;
}

static px_status tcp_request(px_store *store, const px__store_request *request,
                             px__response *response) {
  tcp_store *self = (tcp_store *)store;
  void *frame;
  size_t size;
  *response = (px__response){0};
  PX_TRY(px__request_pack(&frame, &size, request));
  pthread_mutex_lock(&self->lock);
  px_status status = exchange(self, request, response, frame, size);
  pthread_mutex_unlock(&self->lock);
  px_free(frame);
  return status;
}

// ---- connecting

static px_status refused_connection(const uint8_t *at) {
  int64_t limit;
  memcpy(&limit, at, sizeof limit);
  PX_CHECK(
      limit, PX_DIST_NETWORK,
      "the process of the store server has no free file descriptor; `ulimit -n` sets its limit");
  PX_FAIL(PX_DIST_NETWORK,
          "the store server has reached its limit of %lld connections; PHLOX_STORE_CONNECTIONS of "
          "its process sets it",
          (long long)limit);
}

// Authenticates this process. The server closes the connection on a wrong secret.
static px_status introduce(tcp_store *self, const char *secret, int64_t end) {
  uint8_t hello[PX__HELLO_BYTES], response[PX__REPLY_BYTES] = PX__STORE_MAGIC, fine;
  if (!px__receive_all(self->socket, hello, sizeof hello, end)) return lost(self, strerror(errno));
  if (memcmp(hello, PX__STORE_MAGIC, 8)) return lost(self, "the peer is not a store server");
  if (hello[8] == PX__GREETING_REFUSED) return refused_connection(hello + 9);
  PX_CHECK(hello[8] == PX__GREETING_OPEN || secret, PX_DIST_NETWORK,
           "the store server requires a secret, but PHLOX_STORE_SECRET is not set");
  PX_CHECK(hello[8] == PX__GREETING_SECRET || !secret, PX_DIST_NETWORK,
           "PHLOX_STORE_SECRET is set, but the store server has no secret");
  if (secret) px__secret_response(response + 8, secret, hello + 9, PX__NONCE_BYTES);
  if (!px__send_all(self->socket, response, sizeof response, end))
    return lost(self, strerror(errno));
  if (!px__receive_all(self->socket, &fine, 1, end))
    return lost(self, secret ? "the server has a different secret" : strerror(errno));
  return PX_OK;
}

static px_status join(tcp_store *self, const char *host, const char *secret) {
  int64_t end = px__now_ms() + self->store.timeout_ms;
  while ((self->socket = px__connect(host, self->store.port, end)) < 0) {
    PX_TRY(px_interrupt_poll());
    PX_CHECK(px__now_ms() < end, PX_DIST_NETWORK,
             "The client socket has timed out after %lldms while trying to connect to (%s, %d).",
             (long long)self->store.timeout_ms, host, self->store.port);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
  return introduce(self, secret, end);
}

// Each process increments "init/", as in PyTorch. The serving process waits for all of them.
static px_status count_workers(px_store *self, const px_store_tcp_options *options) {
  int64_t here, end = px__now_ms() + self->timeout_ms;
  if (options->workers <= 0) return PX_OK;
  PX_TRY(px_store_add(&here, self, "init/", 1));
  while (options->serve && options->wait && here < options->workers) {
    PX_TRY(px_interrupt_poll());
    PX_CHECK(px__now_ms() < end, PX_DIST_STORE,
             "Timed out after %lld seconds waiting for clients. %lld/%d clients joined.",
             (long long)(self->timeout_ms + 999) / 1000, (long long)here, options->workers);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    PX_TRY(px_store_add(&here, self, "init/", 0));
  }
  return PX_OK;
}

static void tcp_destroy(void *object) {
  tcp_store *self = object;
  if (self->socket >= 0) close(self->socket);
  px__server_stop(self->server);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

// Warns once if any host may connect.
static px_status warn_if_open(const char *host, const char *secret) {
  static bool warned;  // atomic
  if (secret || px__host_is_loopback(host)) return PX_OK;
  if (__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED) && !px_warn_always()) return PX_OK;
  return px_warn(
      PX_WARN_USER,
      "the TCP store listens on all network interfaces without a secret: every host that "
      "reaches its port can read and change the job's keys. Set PHLOX_STORE_SECRET to "
      "the same random text in all processes of the job");
}

px_status px_store_tcp(px_store **out, const px_store_tcp_options *options) {
  static const px_class cls = {"store", tcp_destroy};
  PX_GIVEN(out);
  PX_GIVEN(options);
  PX_GIVEN(options->host);
  PX_CHECK(options->port >= 0 && options->port < 65536, PX_VALUE,
           "expected a port in [0, 65536), got %d", options->port);
  tcp_store *self;
  const char *secret = options->secret;
  if (!secret) PX_TRY(px_env_read("PHLOX_STORE_SECRET", &secret));
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(px_store) owned = &self->store;
  px_object_init(self, &cls);
  pthread_mutex_init(&self->lock, NULL);
  self->socket = -1;
  self->store.request = tcp_request;
  self->store.port = options->port;
  self->store.timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : 300000;
  if (options->serve) {
    PX_TRY(warn_if_open(options->host, secret));
    PX_TRY(px__server_start(&self->server, &self->store.port, options->host, secret));
  }
  PX_TRY(join(self, options->host, secret));
  PX_TRY(count_workers(owned, options));
  *out = PX_MOVE(owned);
  return PX_OK;
}
