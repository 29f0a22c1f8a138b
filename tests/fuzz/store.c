// SPDX-License-Identifier: Apache-2.0
// Frames to a TCP store without a secret: requests of any kind, keys and values, some mutated, on
// connections that read their answers or do not. Eight clients work next to them. The server is a
// process. The program prints the number of frames, the longest call of a client, and the most work
// of the server during a call, which does not depend on the load of the machine.
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include "../comm/raw_store.h"
#include "phlox/comm.h"

enum { HONEST = 8, HOSTILE = 16, FRAMES = 200, MAX_FRAME = 1 << 20 };

// ---- clients that work

typedef struct honest {
  pthread_t thread;
  px_store *store;
  int number;
  int64_t calls;
  double longest, longest_work;  // of a call: seconds, and seconds of the server's processor time
} honest;
static honest clients[HONEST];
static bool stop;  // atomic
static pid_t server;
static int port, server_life;  // the server ends when server_life is closed
static clockid_t server_clock;

static void work(honest *h, const char *key) {
  char text[32];
  void *value;
  size_t size;
  int64_t sum;
  int length = snprintf(text, sizeof text, "%019lld", (long long)h->calls);
  switch (h->calls % 4) {
    case 0:
      OK(px_store_set(h->store, key, text, (size_t)length));
      break;
    case 1:
      OK(px_store_get(&value, &size, h->store, key));
      CHECK(size == 19 && atoll(value) == h->calls - 1);
      px_free(value);
      break;
    case 2:
      OK(px_store_add(&sum, h->store, key, 5));
      CHECK_EQ(sum, h->calls + 3);
      break;
    default:
      OK(px_store_wait(h->store, &key, 1, 0));
  }
}

static double processor_time(void) {
  struct timespec t;
  CHECK(!clock_gettime(server_clock, &t));
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *be_honest(void *context) {
  honest *h = context;
  char key[64];
  snprintf(key, sizeof key, "of the honest client %d", h->number);
  for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); h->calls++) {
    double begin = fuzz_now(), worked = processor_time();
    work(h, key);
    h->longest = fmax(h->longest, fuzz_now() - begin);
    h->longest_work = fmax(h->longest_work, processor_time() - worked);
    usleep(500);
  }
  return NULL;
}

static void be_server(int told, int lives) {
  PX_SCOPED(px_store) store = NULL;
  char byte;
  setenv("PHLOX_STORE_KEYS", "20000", 1), setenv("PHLOX_STORE_MEMORY", "64M", 1);
  setenv("PHLOX_STORE_REQUEST", "512K", 1);
  OK(px_store_tcp(&store, &(px_store_tcp_options){.host = "127.0.0.1", .serve = true}));
  port = px_store_port(store);
  CHECK(write(told, &port, sizeof port) == sizeof port);
  CHECK(read(lives, &byte, 1) == 0);  // until the parent closes its end
}

// Starts the server, a process, and the clients.
static void start_all(void) {
  int tells[2], lives[2];
  CHECK(!pipe2(tells, O_CLOEXEC) && !pipe2(lives, O_CLOEXEC));
  server = fork();
  if (server == 0) {
    close(lives[1]);
    be_server(tells[1], lives[0]);
    exit(0);
  }
  close(lives[0]), close(tells[1]);
  server_life = lives[1];
  CHECK(read(tells[0], &port, sizeof port) == sizeof port);
  close(tells[0]);
  CHECK(!clock_getcpuclockid(server, &server_clock));
  for (int i = 0; i < HONEST; i++) {
    px_store_tcp_options options = {.host = "127.0.0.1", .port = port, .timeout_ms = 60000};
    clients[i].number = i;
    OK(px_store_tcp(&clients[i].store, &options));
    CHECK(!pthread_create(&clients[i].thread, NULL, be_honest, &clients[i]));
  }
}

// Prints the longest call.
static void stop_all(int64_t sent, int64_t answered) {
  int64_t calls = 0;
  int status;
  double longest = 0, longest_work = 0;
  __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
  for (int i = 0; i < HONEST; i++) {
    CHECK(!pthread_join(clients[i].thread, NULL));
    calls += clients[i].calls;
    longest = fmax(longest, clients[i].longest);
    longest_work = fmax(longest_work, clients[i].longest_work);
    px_release(clients[i].store);
  }
  close(server_life);
  CHECK(waitpid(server, &status, 0) == server);
  CHECK_EQ(status, 0);
  fprintf(stderr,
          "store_frames: %lld frames sent, %lld answered; %lld calls of %d clients, the longest "
          "%.1f ms, or %.1f ms of the server\n",
          (long long)sent, (long long)answered, (long long)calls, HONEST, 1e3 * longest,
          1e3 * longest_work);
  tally("frames", sent);
}

// ---- clients that do not

static int sockets[HOSTILE];  // -1: none
static int64_t frames_sent, frames_answered;
static uint8_t frame[MAX_FRAME + 1024];

static size_t item_size(void) {
  if (fuzz_one_in(2000)) return (size_t)fuzz_below(MAX_FRAME / 2);
  return (size_t)fuzz_below(fuzz_one_in(100) ? 20000 : 40);
}

// Few keys, so that requests meet, or random bytes.
static size_t put_item(uint8_t *at) {
  size_t size = item_size();
  if (fuzz_one_in(2)) {
    size = (size_t)snprintf((char *)at + 4, 16, "key %d", (int)fuzz_below(50));
  } else {
    for (size_t i = 0; i < size; i++) at[4 + i] = (uint8_t)(fuzz_state >> i % 57);
    if (size) at[4] = (uint8_t)fuzz_bits();
  }
  raw_put(at, (uint32_t)size);
  return 4 + size;
}

static size_t make_frame(void) {
  static const int counts[RAW_KINDS] = {2, 1, 1, 3, 1, 0, 2};
  int kind = (int)fuzz_below(RAW_KINDS);
  int64_t number = fuzz_int();
  // Few requests wait, most of them for milliseconds.
  if (kind == RAW_AWAIT && !fuzz_one_in(1000)) number = fuzz_one_in(30) ? fuzz_below(3) : 0;
  int count = fuzz_one_in(20) ? (int)fuzz_below(4) : counts[kind];
  size_t size = raw_request(frame, kind, number, 0, NULL);
  raw_put(frame + 13, (uint32_t)count);
  for (int i = 0; i < count && size < MAX_FRAME / 2; i++) size += put_item(frame + size);
  raw_put(frame, (uint32_t)(size - 4));
  return size;
}

static void mutate(size_t size) {
  for (int64_t flips = 1 + fuzz_below(4); flips > 0; flips--)
    frame[fuzz_below(size < 64 ? (int64_t)size : 64)] ^= (uint8_t)(1u << fuzz_below(8));
}

// The answers of the current connection: the length of the next one, as far as it has arrived, and
// the bytes left of the last one.
static struct answers {
  uint8_t length[4];
  size_t arrived, left;
  int64_t count;
} answers;

static void count_answers(const uint8_t *at, size_t size) {
  while (size) {
    size_t skipped = answers.left < size ? answers.left : size;
    answers.left -= skipped, at += skipped, size -= skipped;
    if (!size) return;
    answers.length[answers.arrived++] = *at++, size--;
    if (answers.arrived < 4) continue;
    uint32_t length;
    memcpy(&length, answers.length, 4);
    CHECK(length >= 9 && length < MAX_FRAME);
    answers.left = length;
    answers.arrived = 0;
    answers.count++;
  }
}

// Returns false if the server has closed the connection.
static bool read_answers(int s) {
  static uint8_t bytes[1 << 18];
  ssize_t got;
  while ((got = recv(s, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) count_answers(bytes, (size_t)got);
  return got < 0 && errno == EAGAIN;
}

// Sends a frame. Returns false if the server does not read it.
static bool send_frame(int s, size_t size, bool reads) {
  size_t done = 0;
  for (int waits = 0; done < size && waits < 20;) {
    ssize_t sent = send(s, frame + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent > 0) done += (size_t)sent;
    if (reads) (void)read_answers(s);
    if (sent < 0) poll(&(struct pollfd){s, POLLOUT, 0}, 1, 1), waits++;
  }
  return done == size;
}

// Waits for the answers until one takes 5 ms: a request may wait for a key.
static void await_answers(int s, int64_t count) {
  while (answers.count < count && poll(&(struct pollfd){s, POLLIN, 0}, 1, 5) == 1)
    if (!read_answers(s)) return;
}

static void fuzz_store_frames(void) {
  int *s = &sockets[fuzz_below(HOSTILE)];
  bool reads = !fuzz_one_in(4), open = true;
  int64_t before = frames_sent;
  answers = (struct answers){0};
  if (*s >= 0) close(*s);
  *s = raw_connect(port);
  for (int i = 0; i < FRAMES && open; i++) {
    size_t size = make_frame();
    if (i == FRAMES - 1 && fuzz_one_in(2)) mutate(size);
    open = send_frame(*s, size, reads);
    frames_sent += open;
  }
  if (reads) await_answers(*s, frames_sent - before);
  frames_answered += answers.count;
  if (fuzz_one_in(2)) close(*s), *s = -1;
}

PX_TEST(store_frames) {
  for (int i = 0; i < HOSTILE; i++) sockets[i] = -1;
  start_all();
  fuzz_run("store_frames", fuzz_store_frames);
  for (int i = 0; i < HOSTILE; i++)
    if (sockets[i] >= 0) close(sockets[i]);
  stop_all(frames_sent, frames_answered);
}
