// SPDX-License-Identifier: Apache-2.0
// Limits of a TCP store against clients that send or ask for too much: the store answers them with
// errors, holds a bounded amount of memory, and serves other clients at once. Hostile servers and
// values of a store are refused by clients.
#include "phlox/comm.h"
#include "phlox/phlox.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include "raw_store.h"

static px_store *server(void) {
  px_store *store;
  OK(px_store_tcp(
      &store, &(px_store_tcp_options){.host = "127.0.0.1", .serve = true, .timeout_ms = 60000}));
  return store;
}

static px_store *client_of(px_store *store) {
  px_store *client;
  OK(px_store_tcp(&client,
                  &(px_store_tcp_options){
                      .host = "127.0.0.1", .port = px_store_port(store), .timeout_ms = 60000}));
  return client;
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// ---- frames behind a wait

enum { FLOOD = 26, BLOCK = 1000 };  // bytes of a request, requests of a block
typedef struct flood {
  pthread_t thread;
  int socket;
  int64_t blocks, sent;  // sent: atomic
} flood;

static void *send_flood(void *context) {
  flood *f = context;
  static uint8_t block[BLOCK * FLOOD];
  for (int i = 0; i < BLOCK; i++)
    CHECK(raw_request(block + FLOOD * i, RAW_ADD, 1, 1, (const char *[]){"flood"}) == FLOOD);
  for (int64_t i = 0; i < f->blocks; i++) {
    raw_send(f->socket, block, sizeof block);
    __atomic_add_fetch(&f->sent, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

// Sends requests behind a wait for a key until the server has all of them or reads no more.
static void start_flood(flood *f, px_store *store, int64_t bytes, const char *key) {
  uint8_t wait[64];
  *f = (flood){.socket = raw_connect(px_store_port(store)), .blocks = bytes / (BLOCK * FLOOD)};
  raw_send(f->socket, wait, raw_request(wait, RAW_AWAIT, 60000, 1, &key));
  CHECK(!pthread_create(&f->thread, NULL, send_flood, f));
  for (int64_t before = -1, now = 0; now != before && now < f->blocks; usleep(200000)) {
    before = now;
    now = __atomic_load_n(&f->sent, __ATOMIC_RELAXED);
  }
}

// Queues small requests behind a wait. Other clients are served, and the requests are executed in
// order after the wait.
static void check_flood(int64_t bytes) {
  PX_SCOPED(px_store) store = server();
  int64_t sum, number;
  flood f;
  start_flood(&f, store, bytes, "go");
  int64_t begin = now_ms();
  for (int i = 1; i <= 1000; i++) {
    OK(px_store_add(&sum, store, "honest", 1));
    CHECK_EQ(sum, i);
  }
  OK(px_store_set(store, "go", "", 0));
  CHECK(raw_answer(f.socket, &number, NULL, 0) == 0 && number == 1);
  for (int64_t i = 1; i <= BLOCK * f.blocks; i++) {
    CHECK(raw_answer(f.socket, &number, NULL, 0) == 0);
    CHECK_EQ(number, i);
    if (i % 1000 == 0) OK(px_store_add(&sum, store, "honest", 1));
  }
  CHECK(now_ms() - begin < 10000);
  CHECK(!pthread_join(f.thread, NULL));
  close(f.socket);
}

PX_TEST(four_megabytes_of_requests_behind_a_wait_are_answered_after_it) { check_flood(4 << 20); }
PX_TEST(twenty_megabytes_of_requests_behind_a_wait_are_answered_after_it) { check_flood(20 << 20); }

// The server reads a request only if it can execute it.
PX_TEST(requests_behind_a_wait_use_no_memory) {
  enum { MEGABYTES = 16 };  // of 40
  PX_SCOPED(px_store) store = server();
  flood f;
  long before = raw_memory();
  start_flood(&f, store, 40 << 20, "never");
  CHECK(raw_memory() - before < (long)MEGABYTES << 20);
  shutdown(f.socket, SHUT_RDWR);
  CHECK(!pthread_join(f.thread, NULL));
  close(f.socket);
}

PX_TEST(a_client_that_ends_during_a_wait_is_closed) {
  PX_SCOPED(px_store) store = server();
  uint8_t wait[64], byte;
  int s = raw_connect(px_store_port(store));
  raw_send(s, wait, raw_request(wait, RAW_AWAIT, 60000, 1, (const char *[]){"never"}));
  shutdown(s, SHUT_WR);
  CHECK_EQ(recv(s, &byte, 1, 0), 0);
  close(s);
}

// ---- unread answers

PX_TEST(unread_answers_are_bounded_and_arrive_once_read) {
  enum { GETS = 300, MEGABYTES = 32 };  // of 300
  PX_SCOPED(px_store) store = server();
  static char value[1 << 20], got[1 << 20];
  uint8_t frame[64];
  int64_t number, sum;
  memset(value, 'v', sizeof value);
  OK(px_store_set(store, "large", value, sizeof value));
  int s = raw_connect(px_store_port(store));
  size_t size = raw_request(frame, RAW_GET, 0, 1, (const char *[]){"large"});
  long before = raw_memory();
  for (int i = 0; i < GETS; i++) raw_send(s, frame, size);
  for (int i = 0; i < 100; i++) OK(px_store_add(&sum, store, "honest", 1));
  usleep(300000);
  CHECK(raw_memory() - before < (long)MEGABYTES << 20);
  for (int i = 0; i < GETS; i++) {
    CHECK(raw_answer(s, &number, got, sizeof got) == sizeof got && number == 1);
    CHECK(!memcmp(got, value, sizeof got));
  }
  close(s);
}

// ---- many connections waiting for many keys

PX_TEST(waits_for_many_keys_do_not_delay_other_clients) {
  enum { WAITS = 64, KEYS = 65000 };
  PX_SCOPED(px_store) store = server();
  int sockets[WAITS];
  int64_t sum, number;
  size_t size = 0;
  const char **keys = calloc(KEYS, sizeof *keys);
  uint8_t *frame = malloc(64 + KEYS * 8);
  CHECK(keys && frame);
  for (int i = 0; i < KEYS; i++) keys[i] = i == KEYS - 1 ? "last" : i ? "set" : "first";
  size = raw_request(frame, RAW_AWAIT, 60000, KEYS, keys);
  OK(px_store_set(store, "set", "", 0));
  for (int i = 0; i < WAITS; i++) {
    sockets[i] = raw_connect(px_store_port(store));
    raw_send(sockets[i], frame, size);
  }
  int64_t begin = now_ms();
  for (int i = 0; i < 1000; i++) OK(px_store_add(&sum, store, "honest", 1));
  OK(px_store_set(store, "first", "", 0));
  for (int i = 0; i < 1000; i++) OK(px_store_add(&sum, store, "honest", 1));
  CHECK(now_ms() - begin < 10000);
  OK(px_store_set(store, "last", "", 0));
  for (int i = 0; i < WAITS; i++) {
    CHECK(raw_answer(sockets[i], &number, NULL, 0) == 0 && number == 1);
    close(sockets[i]);
  }
  free(keys);
  free(frame);
}

// ---- limits are errors of the calls

PX_TEST(a_key_above_the_limit_is_refused_and_the_client_continues) {
  setenv("PHLOX_STORE_KEYS", "3", 1);
  PX_SCOPED(px_store) store = server();
  int64_t sum;
  bool gone;
  const char *const keys[] = {"a", "b", "c"};
  for (int i = 0; i < 3; i++) OK(px_store_set(store, keys[i], "1", 1));
  FAILS(px_store_set(store, "d", "1", 1), PX_DIST_STORE,
        "the store server refused the request: the store has reached its limit of 3 keys; "
        "PHLOX_STORE_KEYS of its process sets it");
  FAILS(px_store_add(&sum, store, "e", 1), PX_DIST_STORE, "PHLOX_STORE_KEYS");
  OK(px_store_add(&sum, store, "a", 1));
  CHECK_EQ(sum, 2);
  OK(px_store_delete(&gone, store, "b"));
  OK(px_store_set(store, "d", "1", 1));
}

PX_TEST(values_above_the_memory_limit_are_refused_and_the_client_continues) {
  setenv("PHLOX_STORE_MEMORY", "4M", 1);
  PX_SCOPED(px_store) store = server();
  static char value[1 << 20];
  void *got, *swapped;
  size_t size;
  px_status status = PX_OK;
  bool gone;
  OK(px_store_set(store, "0", value, sizeof value));
  for (int i = 1; i < 4 && status == PX_OK; i++)
    status = px_store_set(store, (char[2]){(char)('0' + i)}, value, sizeof value);
  FAILS(status, PX_DIST_STORE,
        "the store has reached its limit of 4194304 bytes; PHLOX_STORE_MEMORY of its process sets "
        "it");
  FAILS(px_store_compare_set(&swapped, &size, store, "9", "", 0, value, sizeof value),
        PX_DIST_STORE, "PHLOX_STORE_MEMORY");
  OK(px_store_set(store, "small", "1", 1));
  OK(px_store_delete(&gone, store, "1"));
  OK(px_store_get(&got, &size, store, "0"));
  CHECK_EQ(size, sizeof value);
  px_free(got);
}

PX_TEST(a_request_above_the_limit_is_refused_and_the_client_continues) {
  setenv("PHLOX_STORE_REQUEST", "1K", 1);
  PX_SCOPED(px_store) store = server();
  static char value[3 << 20];
  int64_t sum;
  FAILS(px_store_set(store, "a", value, sizeof value), PX_DIST_STORE,
        "expected a request of at most 1024 bytes, got 3145750; PHLOX_STORE_REQUEST of the store's "
        "process sets the limit");
  FAILS(px_store_set(store, "a", value, 1024), PX_DIST_STORE, "PHLOX_STORE_REQUEST");
  OK(px_store_set(store, "a", value, 900));
  OK(px_store_num_keys(&sum, store));
  CHECK_EQ(sum, 1);
}

PX_TEST(a_connection_above_the_limit_is_refused_by_name) {
  setenv("PHLOX_STORE_CONNECTIONS", "2", 1);
  PX_SCOPED(px_store) store = server();
  PX_SCOPED(px_store) second = client_of(store);
  px_store *third = NULL;
  px_store_tcp_options options = {
      .host = "127.0.0.1", .port = px_store_port(store), .timeout_ms = 60000};
  FAILS(px_store_tcp(&third, &options), PX_DIST_NETWORK,
        "the store server has reached its limit of 2 connections; PHLOX_STORE_CONNECTIONS of its "
        "process sets it");
  px_release(PX_MOVE(second));
  for (px_status status = PX_DIST_NETWORK; status != PX_OK; usleep(1000)) {
    status = px_store_tcp(&third, &options);
    CHECK(status == PX_OK || status == PX_DIST_NETWORK);
  }
  px_release(third);
}

PX_TEST(many_clients_connect_and_are_refused_without_delay) {
  enum { CLIENTS = 400, LIMIT = 200 };
  setenv("PHLOX_STORE_CONNECTIONS", "200", 1);
  PX_SCOPED(px_store) store = server();
  int sockets[CLIENTS], port = px_store_port(store);
  int64_t begin = now_ms();
  // The first connection is the server's own.
  for (int i = 1; i < CLIENTS; i++)
    sockets[i] = i < LIMIT ? raw_connect(port) : raw_try_connect("127.0.0.1", port);
  for (int i = LIMIT; i < CLIENTS; i++) {
    uint8_t bytes[RAW_GREETING];
    CHECK(recv(sockets[i], bytes, RAW_GREETING, MSG_WAITALL) == RAW_GREETING);
    CHECK_EQ(bytes[8], 2);
  }
  CHECK(now_ms() - begin < 10000);
  for (int i = 1; i < CLIENTS; i++) close(sockets[i]);
}

static void use_all_descriptors(void) {
  CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}));
  while (dup(0) >= 0) continue;
}

static int be_refused(int port) {
  px_store *store;
  px_store_tcp_options options = {.host = "127.0.0.1", .port = port, .timeout_ms = 60000};
  FAILS(px_store_tcp(&store, &options), PX_DIST_NETWORK,
        "the process of the store server has no free file descriptor; `ulimit -n` sets its limit");
  return 0;
}

PX_TEST(a_client_is_refused_by_name_if_descriptors_run_out) {
  int ports[2], port, status;
  CHECK(!pipe(ports));
  pid_t child = fork();
  if (child == 0) {
    CHECK(read(ports[0], &port, sizeof port) == sizeof port);
    _exit(be_refused(port));
  }
  PX_SCOPED(px_store) store = server();
  port = px_store_port(store);
  use_all_descriptors();
  CHECK(write(ports[1], &port, sizeof port) == sizeof port);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

PX_TEST(an_invalid_limit_is_named) {
  px_store *store;
  px_store_tcp_options options = {.host = "127.0.0.1", .serve = true};
  setenv("PHLOX_STORE_KEYS", "none", 1);
  FAILS(px_store_tcp(&store, &options), PX_VALUE, "PHLOX_STORE_KEYS");
}

// ---- the loopback

static int warnings;
static char warning[512];
static px_status count_warning(px_warning category, const char *text) {
  CHECK(category == PX_WARN_USER);
  snprintf(warning, sizeof warning, "%s", text);
  warnings++;
  return PX_OK;
}

// 127.0.0.2 is an address of this host, too.
static bool listens_at(const char *host, int port) {
  int s = raw_try_connect(host, port);
  if (s >= 0) close(s);
  return s >= 0;
}

PX_TEST(a_store_on_localhost_without_a_secret_listens_on_the_loopback_address_only) {
  static const char *const hosts[] = {"127.0.0.1", "localhost"};
  px_warning_set_sink(count_warning);
  for (int i = 0; i < 2; i++) {
    PX_SCOPED(px_store) store = NULL;
    OK(px_store_tcp(&store, &(px_store_tcp_options){.host = hosts[i], .serve = true}));
    CHECK(listens_at("127.0.0.1", px_store_port(store)));
    CHECK(!listens_at("127.0.0.2", px_store_port(store)));
  }
  CHECK_EQ(warnings, 0);
}

PX_TEST(a_store_on_all_interfaces_without_a_secret_warns_once) {
  px_warning_set_sink(count_warning);
  for (int i = 0; i < 2; i++) {
    PX_SCOPED(px_store) store = NULL;
    OK(px_store_tcp(&store, &(px_store_tcp_options){.host = "0.0.0.0", .serve = true}));
    CHECK(listens_at("127.0.0.2", px_store_port(store)));
  }
  CHECK_EQ(warnings, 1);
  CHECK(strstr(warning, "listens on all network interfaces without a secret"));
  CHECK(strstr(warning, "PHLOX_STORE_SECRET"));
}

PX_TEST(a_store_with_a_secret_listens_on_all_interfaces_without_a_warning) {
  PX_SCOPED(px_store) store = NULL;
  px_warning_set_sink(count_warning);
  OK(px_store_tcp(&store, &(px_store_tcp_options){
                              .host = "127.0.0.1", .serve = true, .secret = "of this job"}));
  CHECK(listens_at("127.0.0.2", px_store_port(store)));
  CHECK_EQ(warnings, 0);
}

// ---- hostile values

// The value fills its buffer with digits, so that no host follows the port.
PX_TEST(an_address_of_rank_0_without_a_host_is_refused) {
  static const struct {
    const char *fill;
    size_t size;
  } values[] = {{"9", 159}, {"9", 160}, {"9", 4096}, {"9", 16}, {"9", 17}, {" ", 159}, {"0 ", 159}};
  char value[4096];
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    PX_SCOPED(px_store) store = NULL;
    px_comm *comm;
    for (size_t k = 0; k < sizeof value; k++) value[k] = values[i].fill[k % strlen(values[i].fill)];
    OK(px_store_memory(&store));
    OK(px_store_set(store, "watch", value, values[i].size));
    if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
    FAILS(px_comm_new(&comm, &(px_comm_options){"gloo", store, 1, 2, 2000}), PX_DIST_STORE,
          "the store has no valid address of rank 0");
  }
}

// ---- a hostile server

typedef struct hostile {
  pthread_t thread;
  int listener;
  const uint8_t *answer;
  size_t size;
} hostile;

// Greets without a secret, then gives the same answer to each request.
static void *be_hostile(void *context) {
  const hostile *h = context;
  uint8_t input[256] = "PXSTORE1";
  int s = accept(h->listener, NULL, NULL);
  CHECK(s >= 0 && send(s, input, RAW_GREETING, MSG_NOSIGNAL) == RAW_GREETING);
  CHECK(recv(s, input, RAW_REPLY, MSG_WAITALL) == RAW_REPLY);
  CHECK(send(s, "\1", 1, MSG_NOSIGNAL) == 1);
  while (recv(s, input, sizeof input, 0) > 0 && send(s, h->answer, h->size, MSG_NOSIGNAL) > 0)
    continue;
  close(s);
  return NULL;
}

// Calls a function with a client of a server whose answers claim `length` and have `value` bytes of
// x. `success`: the first byte after the length.
static void with_hostile(uint32_t length, uint8_t success, size_t value,
                         void (*call)(px_store *store)) {
  static uint8_t answer[13 + 100000];
  PX_SCOPED(px_store) store = NULL;
  int port;
  hostile h = {.listener = raw_listen(&port), .answer = answer, .size = 13 + value};
  memset(answer, 0, 13);
  raw_put(answer, length);
  answer[4] = success;
  memset(answer + 13, 'x', value);
  CHECK(!pthread_create(&h.thread, NULL, be_hostile, &h));
  OK(px_store_tcp(&store,
                  &(px_store_tcp_options){.host = "127.0.0.1", .port = port, .timeout_ms = 60000}));
  call(store);
  px_release(PX_MOVE(store));
  CHECK(!pthread_join(h.thread, NULL));
  close(h.listener);
}

static void get_refused(px_store *store) {
  FAILS(px_store_set(store, "a", "1", 1), PX_DIST_STORE, "refused the request: xxxx");
}
PX_TEST(an_error_text_of_a_server_is_bounded) { with_hostile(9 + 100000, 0, 100000, get_refused); }

static void ignore_values(px_store *store) {
  int64_t number;
  OK(px_store_set(store, "a", "1", 1));
  OK(px_store_add(&number, store, "a", 1));
  OK(px_store_num_keys(&number, store));
  CHECK_EQ(number, 0);
}
PX_TEST(unexpected_values_of_a_server_are_freed) { with_hostile(9 + 1000, 1, 1000, ignore_values); }

static void lose_server(px_store *store) {
  FAILS(px_store_set(store, "a", "1", 1), PX_DIST_NETWORK, "the peer is not a store server");
}
PX_TEST(an_answer_of_an_invalid_length_ends_the_connection) {
  static const uint32_t lengths[] = {0, 8, 64u << 20, UINT32_MAX};
  for (int i = 0; i < 4; i++) with_hostile(lengths[i], 1, 0, lose_server);
}

// ---- the table

PX_TEST(a_store_of_many_keys_keeps_all) {
  enum { KEYS = 20000 };
  PX_SCOPED(px_store) store = NULL;
  char key[32];
  int64_t sum;
  bool there;
  OK(px_store_memory(&store));
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "key %d", i);
    OK(px_store_add(&sum, store, key, i));
  }
  for (int i = 0; i < KEYS; i += 2) {
    snprintf(key, sizeof key, "key %d", i);
    OK(px_store_delete(&there, store, key));
    CHECK(there);
  }
  OK(px_store_num_keys(&sum, store));
  CHECK_EQ(sum, KEYS / 2);
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "key %d", i);
    OK(px_store_add(&sum, store, key, 1));
    CHECK_EQ(sum, i % 2 ? i + 1 : 1);
  }
}

PX_TEST(a_value_of_many_digits_is_a_number) {
  PX_SCOPED(px_store) store = NULL;
  int64_t sum;
  char zeros[64];
  OK(px_store_memory(&store));
  memset(zeros, ' ', sizeof zeros);
  zeros[0] = '7';
  for (size_t size = 1; size <= sizeof zeros; size++) {
    OK(px_store_set(store, "n", zeros, size));
    OK(px_store_add(&sum, store, "n", 1));
    CHECK_EQ(sum, 8);
  }
}
