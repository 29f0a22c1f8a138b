// SPDX-License-Identifier: Apache-2.0
// Turns of the TCP store's server, one visit at a time without its thread.
#include <fcntl.h>

#include "../comm/raw_store.h"
#include "comm/server_impl.h"

static px__server server;
static px__connection connections[2];
static int clients[2];

// Two authenticated connections.
static void begin(int64_t share) {
  server = (px__server){.limits = {2, 1 << 20, 64 << 20}, .share = share};
  OK(px_alloc((void **)&server.items, PX__STORE_KEYS * sizeof *server.items));
  OK(px_alloc((void **)&server.chunk, PX__CHUNK));
  for (int i = 0; i < 2; i++) {
    int ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK(px__connection_open(&server, &connections[i], ends[0]));
    connections[i].authenticated = true;
    clients[i] = ends[1];
    uint8_t hello[PX__HELLO_BYTES];
    CHECK(recv(clients[i], hello, sizeof hello, MSG_WAITALL) == sizeof hello);
  }
}

static void end(void) {
  for (int i = 0; i < 2; i++) {
    px__connection_close(&server, &connections[i]);
    close(clients[i]);
  }
  CHECK(server.table.used >= 0);
  px__table_clear(&server.table);
  px_free(server.items);
  px_free(server.chunk);
}

static int64_t keys(void) { return server.table.count; }

static short events(int i) { return px__connection_events(&server, &connections[i]); }

PX_TEST(a_visit_executes_the_share_of_the_connection) {
  enum { FRAMES = 40, BYTES = 26 + 4, WORK = 256 + BYTES - 4 };
  begin(4 * WORK);
  for (int i = 0; i < FRAMES; i++) {
    uint8_t frame[64];
    char key[16];
    snprintf(key, sizeof key, "%05d", i);
    raw_send(clients[0], frame, raw_request(frame, RAW_SET, 0, 2, (const char *[]){key, ""}));
  }
  CHECK(px__connection_visit(&server, &connections[0], POLLIN));
  CHECK_EQ(keys(), 4);
  for (int visits = 2; keys() < FRAMES; visits++) {
    bool busy = px__connection_is_busy(&server, &connections[0]);
    CHECK(busy != (bool)(events(0) & POLLIN));  // requests come before the reading of more
    CHECK(px__connection_visit(&server, &connections[0], busy ? 0 : POLLIN));
    CHECK(keys() <= 4 * (int64_t)visits);
  }
  end();
}

static void send_large(int i) {
  enum { SIZE = 300000 };
  static uint8_t frame[SIZE + 64];
  static char value[SIZE + 1];
  memset(value, 'v', SIZE);
  size_t size = raw_request(frame, RAW_SET, 0, 2, (const char *[]){i ? "b" : "a", value}), done = 0;
  CHECK(!fcntl(clients[i], F_SETFL, O_NONBLOCK));
  while (done < size) {
    ssize_t sent = send(clients[i], frame + done, size - done, 0);
    if (sent > 0) done += (size_t)sent;
    server.large_served = true;  // so that the frame is not executed yet
    CHECK(px__connection_visit(&server, &connections[i], POLLIN));
  }
  while (!px__connection_is_busy(&server, &connections[i]))
    CHECK(px__connection_visit(&server, &connections[i], POLLIN));
}

PX_TEST(one_large_request_is_executed_in_a_turn) {
  begin(1 << 20);
  for (int i = 0; i < 2; i++) send_large(i);
  CHECK_EQ(keys(), 0);
  for (int turn = 1; turn <= 2; turn++) {
    server.large_served = false;
    for (int i = 0; i < 2; i++) CHECK(px__connection_visit(&server, &connections[i], 0));
    CHECK_EQ(keys(), turn);
  }
  end();
}

PX_TEST(a_parked_or_unread_connection_is_not_read) {
  uint8_t frame[64];
  begin(1 << 20);
  CHECK(events(0) & POLLIN);
  raw_send(clients[0], frame, raw_request(frame, RAW_AWAIT, 60000, 1, (const char *[]){"missing"}));
  CHECK(px__connection_visit(&server, &connections[0], POLLIN));
  CHECK(!(events(0) & POLLIN) && events(0) & POLLRDHUP);
  CHECK(!px__connection_is_busy(&server, &connections[0]));
  raw_send(clients[1], frame, raw_request(frame, RAW_SET, 0, 2, (const char *[]){"missing", ""}));
  CHECK(px__connection_visit(&server, &connections[1], POLLIN));
  CHECK(px__connection_is_busy(&server, &connections[0]));
  CHECK(px__connection_visit(&server, &connections[0], 0));
  CHECK(events(0) & POLLIN);
  server.limits.queue = 0;
  CHECK(!(events(0) & POLLIN));
  end();
}
