// SPDX-License-Identifier: Apache-2.0
// Connections of the watchdog and the frames on them. Only establishing a connection blocks.
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/watch_impl.h"

// ---- frames

void px__link_flush(px__link *line) {
  while (line->socket >= 0 && line->out_size) {
    ssize_t sent = send(line->socket, line->out, line->out_size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;  // the reading side detects a closed connection
    line->out_size -= (size_t)sent;
    memmove(line->out, line->out + sent, line->out_size);
  }
}

bool px__link_send(px__link *line, px__message word, uint64_t number, const void *at, size_t size) {
  const px__head head = {word, (uint32_t)size, number};
  if (line->socket < 0 || line->out_size + sizeof head + size > PX__LINK_OUT) return false;
  memcpy(line->out + line->out_size, &head, sizeof head);
  if (size) memcpy(line->out + line->out_size + sizeof head, at, size);
  line->out_size += sizeof head + size;
  px__link_flush(line);
  return true;
}

bool px__link_read(px__link *line) {
  while (line->in_size < PX__LINK_IN) {
    ssize_t got =
        recv(line->socket, line->in + line->in_size, PX__LINK_IN - line->in_size, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    line->in_size += (size_t)got;
  }
  return true;
}

bool px__link_next(px__link *line, px__head *head, const char **at, bool *fine) {
  size_t drop = (size_t)(*at ? *at - (const char *)line->in + head->size : 0);
  line->in_size -= drop;
  memmove(line->in, line->in + drop, line->in_size);
  *at = NULL;
  if (line->in_size < sizeof *head) return false;
  memcpy(head, line->in, sizeof *head);
  *fine = head->word < PX__MESSAGES && head->size <= PX__LINK_IN - sizeof *head;
  if (!*fine || line->in_size < sizeof *head + head->size) return false;
  *at = (const char *)line->in + sizeof *head;
  return true;
}

void px__link_close(px__link *line) {
  if (line->socket >= 0) close(line->socket);
  line->socket = -1;
  line->in_size = line->out_size = 0;
}

// ---- address of the hub

static bool interface_address(char *out, size_t capacity, const char *name) {
  struct ifaddrs *list;
  bool found = false;
  if (getifaddrs(&list)) return false;
  for (struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
    if (!at->ifa_addr || strcmp(at->ifa_name, name) != 0) continue;
    int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    found = !getnameinfo(at->ifa_addr, size, out, (socklen_t)capacity, NULL, 0, NI_NUMERICHOST);
  }
  freeifaddrs(list);
  return found;
}

// Chooses the host as the engine does: the requested interface, else the host's name if it resolves
// to an address of this host, else 127.0.0.1.
static px_status own_host(char *out, size_t capacity) {
  const char *interface = NULL;
  PX_TRY(px_env_read("GLOO_SOCKET_IFNAME", &interface));
  if (interface) {
    PX_CHECK(interface_address(out, capacity, interface), PX_DIST_NETWORK,
             "GLOO_SOCKET_IFNAME: interface '%s' does not exist or has no address", interface);
    return PX_OK;
  }
  if (gethostname(out, capacity - 1) || !px__host_is_here(out))
    snprintf(out, capacity, "127.0.0.1");
  return PX_OK;
}

px_status px__hub_listen(int *out, uint8_t token[PX__TOKEN], px_store *store) {
  char host[PX__ADDRESS] = "", where[PX__TOKEN + PX__ADDRESS + 16];
  int port = 0;
  PX_TRY(own_host(host, sizeof host));
  PX_CHECK(getrandom(token, PX__TOKEN, 0) == PX__TOKEN, PX_DIST_NETWORK, "getrandom failed");
  int socket = px__listen(&port, host);
  PX_CHECK(socket >= 0, PX_DIST_NETWORK, "rank 0 cannot listen for other ranks: %s",
           strerror(errno));
  memcpy(where, token, PX__TOKEN);
  int length = snprintf(where + PX__TOKEN, sizeof where - PX__TOKEN, "%d %s", port, host);
  px_status status = px_store_set(store, "watch", where, (size_t)(PX__TOKEN + length));
  if (status == PX_OK) return *out = socket, PX_OK;
  close(socket);
  return status;
}

// Parses the published value, TOKEN "PORT HOST", into the token and a text of the same capacity.
// Returns the host, or NULL if the value is malformed.
static const char *parse_address(uint8_t token[PX__TOKEN], char text[PX__ADDRESS + 16], int *port,
                                 const void *value, size_t size) {
  char *host;
  if (size <= PX__TOKEN || size - PX__TOKEN >= PX__ADDRESS + 16) return NULL;
  memcpy(token, value, PX__TOKEN);
  size -= PX__TOKEN;
  memcpy(text, (const char *)value + PX__TOKEN, size);
  text[size] = 0;
  long number = strtol(text, &host, 10);
  *port = (int)number;
  return number > 0 && number < 65536 && host[0] == ' ' && host[1] ? host + 1 : NULL;
}

px_status px__hub_connect(int *out, int rank, px_store *store, int64_t end) {
  char text[PX__ADDRESS + 16];
  uint8_t hello[PX__HELLO];
  void *value;
  size_t size;
  int port, one = 1;
  const char *key = "watch";
  int64_t left = end - px__now_ms();
  // Use the group's timeout, not the store's, which other users may have changed.
  PX_TRY(px_store_wait(store, &key, 1, left > 1 ? left : 1));
  PX_TRY(px_store_get(&value, &size, store, key));
  const char *host = parse_address(hello, text, &port, value, size);
  px_free(value);
  PX_CHECK(host, PX_DIST_STORE, "the store has no valid address of rank 0");
  memcpy(hello + PX__TOKEN, &rank, 4);
  int socket = px__connect(host, port, end);
  if (socket >= 0 && px__send_all(socket, hello, sizeof hello, end)) {
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return *out = socket, PX_OK;
  }
  int why = errno;
  if (socket >= 0) close(socket);
  PX_FAIL(PX_DIST_NETWORK, "[Rank %d] cannot reach rank 0 at %s, port %d: %s", rank, host, port,
          strerror(why));
}
