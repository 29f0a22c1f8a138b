// SPDX-License-Identifier: Apache-2.0
// A client of a TCP store without the library: raw frames on a socket.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

enum { RAW_SET, RAW_GET, RAW_ADD, RAW_SWAP, RAW_DELETE, RAW_COUNT, RAW_AWAIT, RAW_KINDS };
enum { RAW_GREETING = 25, RAW_REPLY = 40 };

static inline void raw_put(uint8_t *at, uint32_t number) { memcpy(at, &number, 4); }

static inline int raw_try_connect(const char *host, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(s >= 0 && inet_pton(AF_INET, host, &at.sin_addr) == 1);
  if (connect(s, (struct sockaddr *)&at, sizeof at)) return close(s), -1;
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return s;
}

static inline int raw_listen(int *port) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t size = sizeof at;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(s >= 0 && !bind(s, (struct sockaddr *)&at, sizeof at) && !listen(s, 8));
  CHECK(!getsockname(s, (struct sockaddr *)&at, &size));
  *port = ntohs(at.sin_port);
  return s;
}

// Sends all, or as much as the peer takes.
static inline void raw_send(int s, const void *bytes, size_t size) {
  const char *at = bytes;
  for (ssize_t sent; size; at += sent, size -= (size_t)sent)
    if ((sent = send(s, at, size, MSG_NOSIGNAL)) <= 0) return;
}

// Returns a connection to a server without a secret.
static inline int raw_connect(int port) {
  uint8_t bytes[RAW_REPLY] = "PXSTORE1";
  int s = raw_try_connect("127.0.0.1", port);
  CHECK(s >= 0);
  raw_send(s, bytes, RAW_REPLY);
  CHECK(recv(s, bytes, RAW_GREETING + 1, MSG_WAITALL) == RAW_GREETING + 1);
  return s;
}

// Writes a request of a kind, a number and some items. Returns its size.
static inline size_t raw_request(uint8_t *frame, int kind, int64_t number, int count,
                                 const char *const *items) {
  uint8_t *at = frame + 17;
  frame[4] = (uint8_t)kind;
  memcpy(frame + 5, &number, 8);
  raw_put(frame + 13, (uint32_t)count);
  for (int i = 0; i < count; i++) {
    size_t size = strlen(items[i]);
    raw_put(at, (uint32_t)size);
    memcpy(at + 4, items[i], size);
    at += 4 + size;
  }
  raw_put(frame, (uint32_t)(at - frame - 4));
  return (size_t)(at - frame);
}

// Receives a successful answer. Returns the size of its value.
static inline size_t raw_answer(int s, int64_t *number, void *value, size_t capacity) {
  uint8_t head[13];
  uint32_t length;
  CHECK(recv(s, head, sizeof head, MSG_WAITALL) == sizeof head && head[4] == 1);
  memcpy(&length, head, 4);
  memcpy(number, head + 5, 8);
  CHECK(length >= 9 && length - 9 <= capacity);
  if (length > 9) CHECK(recv(s, value, length - 9, MSG_WAITALL) == (ssize_t)length - 9);
  return length - 9;
}

// Resident bytes of this process.
static inline long raw_memory(void) {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
  fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}
