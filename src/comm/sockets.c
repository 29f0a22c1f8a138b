// SPDX-License-Identifier: Apache-2.0
// Sockets of the store and the watchdog. All times are on the clock of px__now_ms.
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/store_impl.h"

static bool ready(int socket, short events, int64_t end) {
  for (;;) {
    int64_t left = end - px__now_ms();
    struct pollfd at = {socket, events, 0};
    int n = poll(&at, 1, left > 0 ? (int)left : 0);
    if (n > 0) return true;
    if (n == 0 && left <= 0) return errno = ETIMEDOUT, false;
    if (n < 0 && errno != EINTR) return false;
  }
}

bool px__send_all(int socket, const void *at, size_t size, int64_t end) {
  for (size_t done = 0; done < size;) {
    ssize_t n = send(socket, (const char *)at + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) done += (size_t)n;
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !ready(socket, POLLOUT, end)) return false;
  }
  return true;
}

bool px__receive_all(int socket, void *at, size_t size, int64_t end) {
  for (size_t done = 0; done < size;) {
    ssize_t n = recv(socket, (char *)at + done, size - done, MSG_DONTWAIT);
    if (n == 0) return errno = ECONNRESET, false;
    if (n > 0) done += (size_t)n;
    if (n > 0 || errno == EINTR) continue;
    if (errno != EAGAIN || !ready(socket, POLLIN, end)) return false;
  }
  return true;
}

static int connect_one(const struct addrinfo *at, int64_t end) {
  int one = 1, why = 0;
  socklen_t size = sizeof why;
  int s = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0) return -1;
  bool fine = !connect(s, at->ai_addr, at->ai_addrlen);
  if (!fine && errno == EINPROGRESS && ready(s, POLLOUT, end))
    fine = !getsockopt(s, SOL_SOCKET, SO_ERROR, &why, &size) && !why;
  if (!fine) {
    if (!why) why = errno;
    close(s);
    return errno = why, -1;
  }
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return s;
}

int px__connect(const char *host, int port, int64_t end) {
  char service[16];
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  int s = -1;
  snprintf(service, sizeof service, "%d", port);
  if (getaddrinfo(host, service, &hints, &found)) return -1;
  for (struct addrinfo *at = found; at && s < 0; at = at->ai_next) s = connect_one(at, end);
  freeaddrinfo(found);
  return s;
}

bool px__host_is_loopback(const char *host) {
  struct in_addr four;
  struct in6_addr six;
  if (!strcasecmp(host, "localhost")) return true;
  if (inet_pton(AF_INET, host, &four) == 1) return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
  return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

// Returns a socket that listens on an address, or -1.
static int listen_at(const struct sockaddr *at) {
  int one = 1, none = 0;
  int s = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0) return -1;
  bool six = at->sa_family == AF_INET6;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (six) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none);
  socklen_t size = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
  if (!bind(s, at, size) && !listen(s, 1024)) return s;
  int why = errno;
  close(s);
  return errno = why, -1;
}

// On all interfaces an IPv6 socket accepts IPv4, too. On the loopback it does not.
int px__listen(int *port, const char *host) {
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)*port)};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
  const struct sockaddr *const at[] = {(struct sockaddr *)&six, (struct sockaddr *)&four};
  socklen_t size = sizeof six;
  bool local = px__host_is_loopback(host), old = local && !strchr(host, ':');
  if (local) six.sin6_addr = in6addr_loopback;
  if (old && inet_pton(AF_INET, host, &four.sin_addr) != 1)
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int s = listen_at(at[old]);
  if (s < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) s = listen_at(at[!old]);
  if (s < 0 || getsockname(s, (struct sockaddr *)&six, &size)) return -1;
  *port = ntohs(six.sin6_port);  // same offset in sockaddr_in and sockaddr_in6
  return s;
}

int px__accept(int listener, bool *full) {
  int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  *full = socket < 0 && (errno == EMFILE || errno == ENFILE);
  return socket;
}

bool px__host_is_here(const char *host) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  bool here = false;
  if (getaddrinfo(host, NULL, &hints, &list) != 0) return false;
  for (struct addrinfo *at = list; at && !here; at = at->ai_next) {
    int s = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    here = s >= 0 && bind(s, at->ai_addr, at->ai_addrlen) == 0;
    if (s >= 0) close(s);
  }
  freeaddrinfo(list);
  return here;
}
