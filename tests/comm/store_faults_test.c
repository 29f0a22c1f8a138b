// SPDX-License-Identifier: Apache-2.0
// Robustness of stores: input from unauthenticated peers to a TCP store and to the watch of a
// group, and killed writers of a file store. LONG=1 in the environment runs 100000 inputs instead
// of 3000, from the seed SEED (0).
#include "phlox/comm.h"
#include "phlox/phlox.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "raw_store.h"

enum { SHORT = 3000, ALL = 100000 };

static int inputs(void) { return getenv("LONG") ? ALL : SHORT; }

// Pseudo-random numbers of a seed.
static uint64_t draw(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static uint64_t seed_of(int input) {
  const char *seed = getenv("SEED");
  return (seed ? (uint64_t)strtoull(seed, NULL, 10) : 0) << 32 | (uint64_t)input;
}

static int connect_to(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // A reset instead of a close leaves no port in TIME_WAIT.
  struct linger none = {.l_onoff = 1};
  int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(s >= 0 && !connect(s, (struct sockaddr *)&at, sizeof at));
  setsockopt(s, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  return s;
}

// Random bytes, possibly after a greeting without a secret, or after it a nearly valid request with
// flipped bits.
static size_t make_input(uint8_t bytes[512], uint64_t *state) {
  size_t size = draw(state) % 512;
  for (int i = 0; i < 512; i++) bytes[i] = (uint8_t)draw(state);
  int kind = (int)(draw(state) % 4);
  if (kind == 0) return size;
  memset(bytes, 0, RAW_REPLY);
  memcpy(bytes, "PXSTORE1", 8);
  if (kind == 1) return size;
  uint32_t length = (uint32_t)(13 + 4 + draw(state) % 32);
  raw_put(bytes + RAW_REPLY, length);
  bytes[RAW_REPLY + 4] = (uint8_t)(draw(state) % 8);
  raw_put(bytes + RAW_REPLY + 13, (uint32_t)(draw(state) % 3));
  raw_put(bytes + RAW_REPLY + 17, length - 17);
  for (uint64_t flips = kind == 2 ? 0 : 1 + draw(state) % 8; flips; flips--)
    bytes[RAW_REPLY + draw(state) % 24] ^= (uint8_t)(1u << draw(state) % 8);
  return draw(state) % 2 ? RAW_REPLY + 4 + length : size;
}

// `reads`: some connections read the replies.
static void send_input(int port, int input, bool reads) {
  uint8_t bytes[512], answer[64];
  uint64_t state = seed_of(input);
  size_t size = make_input(bytes, &state), first = size ? draw(&state) % size : 0;
  int s = connect_to(port);
  if (send(s, bytes, first, MSG_NOSIGNAL) >= 0)
    (void)!send(s, bytes + first, size - first, MSG_NOSIGNAL);
  if (reads && input % 16 == 0) (void)!recv(s, answer, RAW_GREETING, 0);
  close(s);
}

static void check_kept(px_store *store) {
  void *value;
  size_t size;
  OK(px_store_get(&value, &size, store, "kept"));
  CHECK(size == 3 && !memcmp(value, "yes", 3));
  px_free(value);
}

static px_store_tcp_options server_of(const char *secret) {
  return (px_store_tcp_options){
      .host = "127.0.0.1", .serve = true, .timeout_ms = 60000, .secret = secret};
}

PX_TEST(unauthenticated_input_changes_nothing) {
  PX_SCOPED(px_store) store = NULL;
  px_store_tcp_options options = server_of("of this job");
  int64_t keys;
  OK(px_store_tcp(&store, &options));
  OK(px_store_set(store, "kept", "yes", 3));
  for (int i = 0; i < inputs() / 2; i++) send_input(px_store_port(store), i, true);
  check_kept(store);
  OK(px_store_num_keys(&keys, store));
  CHECK_EQ(keys, 1);
}

PX_TEST(a_store_without_a_secret_survives_invalid_input) {
  PX_SCOPED(px_store) store = NULL;
  px_store_tcp_options options = server_of(NULL);
  OK(px_store_tcp(&store, &options));
  OK(px_store_set(store, "kept", "yes", 3));
  for (int i = inputs() / 2; i < inputs(); i++) {
    send_input(px_store_port(store), i, true);
    if (i % 1000 == 0) check_kept(store);
  }
  check_kept(store);
}

// The server does not trust the length of a frame: memory grows with the bytes received.
PX_TEST(unauthenticated_peers_cannot_allocate) {
  enum { MANY = 300, MEGABYTES = 128 };  // of 19 GiB
  PX_SCOPED(px_store) store = NULL;
  px_store_tcp_options options = server_of(NULL);
  uint8_t bytes[RAW_REPLY + 64] = "PXSTORE1";
  int sockets[MANY];
  OK(px_store_tcp(&store, &options));
  OK(px_store_set(store, "kept", "yes", 3));
  raw_put(bytes + RAW_REPLY, (64u << 20) - 1);
  long before = raw_memory();
  for (int i = 0; i < MANY; i++) {
    sockets[i] = connect_to(px_store_port(store));
    CHECK(send(sockets[i], bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes);
  }
  for (int i = 0; i < 10; i++) check_kept(store);
  CHECK(raw_memory() - before < (long)MEGABYTES << 20);
  for (int i = 0; i < MANY; i++) close(sockets[i]);
  check_kept(store);
}

// Opens silent connections and replaces each closed one until this process ends.
static void be_silent(int go, int ready, int count) {
  struct pollfd open[256];
  int port;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CHECK(count <= 256 && read(go, &port, sizeof port) == sizeof port);
  for (int i = 0; i < count; i++) open[i] = (struct pollfd){connect_to(port), POLLRDHUP, 0};
  CHECK(write(ready, "", 1) == 1);
  while (poll(open, (nfds_t)count, -1) >= 0)
    for (int i = 0; i < count; i++)
      if (open[i].revents) close(open[i].fd), open[i].fd = connect_to(port);
}

static void be_client(int go) {
  PX_SCOPED(px_store) store = NULL;
  int port;
  CHECK(read(go, &port, sizeof port) == sizeof port);
  px_store_tcp_options options = {.host = "127.0.0.1", .port = port, .timeout_ms = 25000};
  OK(px_store_tcp(&store, &options));
  check_kept(store);
}

// Starts a process. `to` is the pipe that starts it, and `from` the pipe by which the silent ones
// report.
static pid_t start(int *to, int *from, int silent) {
  int go[2], ready[2];
  CHECK(!pipe2(go, O_CLOEXEC) && !pipe2(ready, O_CLOEXEC));
  pid_t child = fork();
  if (!child) {
    if (silent)
      be_silent(go[0], ready[1], silent);
    else
      be_client(go[0]);
    _exit(0);
  }
  close(go[0]), close(ready[1]);
  *to = go[1];
  *from = ready[0];
  return child;
}

// The server has capacity for a quarter of them.
PX_TEST(silent_connections_do_not_block_clients) {
  PX_SCOPED(px_store) store = NULL;
  px_store_tcp_options options = server_of(NULL);
  int to[2], from[2], status;
  char byte;
  pid_t silent = start(&to[0], &from[0], 220), client = start(&to[1], &from[1], 0);
  CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}));
  OK(px_store_tcp(&store, &options));
  OK(px_store_set(store, "kept", "yes", 3));
  int port = px_store_port(store);
  CHECK(write(to[0], &port, sizeof port) == sizeof port && read(from[0], &byte, 1) == 1);
  CHECK(write(to[1], &port, sizeof port) == sizeof port);
  CHECK(waitpid(client, &status, 0) == client && !status);
  check_kept(store);
  kill(silent, SIGKILL);
  waitpid(silent, &status, 0);
}

// ---- injected faults

// A client of its own and one call of each kind.
static px_status use_store(int port) {
  PX_SCOPED(px_store) store = NULL;
  char value[5000] = "0", *read;
  size_t size;
  int64_t sum;
  bool gone;
  const char *const keys[] = {"kept", "used"};
  px_store_tcp_options options = {.host = "127.0.0.1", .port = port, .timeout_ms = 60000};
  PX_TRY(px_store_tcp(&store, &options));
  PX_TRY(px_store_set(store, "used", value, sizeof value));
  PX_TRY(px_store_get((void **)&read, &size, store, "used"));
  CHECK(size == sizeof value && !memcmp(read, value, size));
  px_free(read);
  PX_TRY(px_store_compare_set((void **)&read, &size, store, "used", value, sizeof value, "1", 1));
  CHECK(size == 1 && *read == '1');
  px_free(read);
  PX_TRY(px_store_add(&sum, store, "used", 2));
  CHECK_EQ(sum, 3);
  PX_TRY(px_store_wait(store, keys, 2, 1000));
  return px_store_delete(&gone, store, "used");
}

PX_TEST(a_failed_allocation_fails_one_call_and_keeps_the_store) {
  PX_SCOPED(px_store) store = NULL;
  px_store_tcp_options options = server_of(NULL);
  OK(px_store_tcp(&store, &options));
  OK(px_store_set(store, "kept", "yes", 3));
  int64_t failures = 0;
  bool reached = true;
  for (int64_t n = 1; reached; n++) {
    OK(px_fault_arm("alloc", n, false));
    px_status status = use_store(px_store_port(store));
    reached = px_fault_seen("alloc") >= n;
    px_fault_disarm_all();
    CHECK(reached ? status == PX_OK || px_error_last()->message[0] : status == PX_OK);
    failures += status != PX_OK;
    px_error_clear();
    check_kept(store);
  }
  CHECK(failures > 10);
  tally("faults", failures);
}

PX_TEST(a_server_without_memory_does_not_start) {
  px_store_tcp_options options = server_of(NULL);
  int64_t n = 1;
  for (px_status status = PX_OUT_OF_MEMORY; status != PX_OK; n++) {
    px_store *store = NULL;
    OK(px_fault_arm("alloc", n, false));
    status = px_store_tcp(&store, &options);
    px_fault_disarm_all();
    CHECK(status == PX_OK || (px_error_last()->message[0] && !store));
    px_error_clear();
    if (store) px_release(store);
  }
  CHECK(n > 7);
}

// ---- the watch of a group

static void *run_rank_0(void *store) {
  px_comm *comm;
  OK(px_comm_new(&comm, &(px_comm_options){"gloo", store, 0, 2, 600000}));
  return comm;
}

static px_status barrier(px_comm *comm) {
  PX_SCOPED(px_work) work = NULL;
  PX_TRY(px_comm_run(&work, comm, &(px_collective){.op = PX_BARRIER}));
  return px_work_wait(work, 0);
}
static void *barrier_in_thread(void *comm) {
  OK(barrier(comm));
  return NULL;
}

// Returns the port of rank 0's watch. The value begins with a 16-byte secret.
static int watch_port(px_store *store) {
  void *value;
  size_t size;
  char text[64] = "";
  OK(px_store_get(&value, &size, store, "watch"));
  CHECK(size > 16 && size - 16 < sizeof text);
  memcpy(text, (char *)value + 16, size - 16);
  px_free(value);
  return atoi(text);
}

PX_TEST(a_group_survives_invalid_input_to_its_watch) {
  enum { SILENT = 200 };  // more than the backlog
  PX_SCOPED(px_store) store = NULL;
  pthread_t first;
  void *comm = NULL, *other = NULL;
  int silent[SILENT];
  if (!px_engine_available("gloo")) SKIP("the gloo engine is not built");
  OK(px_store_memory(&store));
  CHECK(!pthread_create(&first, NULL, run_rank_0, store));
  int port = watch_port(store);
  for (int i = 0; i < SILENT; i++) silent[i] = connect_to(port);
  for (int i = 0; i < inputs() / 3; i++) send_input(port, i, false);
  OK(px_comm_new((px_comm **)&other, &(px_comm_options){"gloo", store, 1, 2, 600000}));
  CHECK(!pthread_join(first, &comm));
  CHECK(!pthread_create(&first, NULL, barrier_in_thread, comm));
  OK(barrier(other));
  CHECK(!pthread_join(first, NULL));
  for (int i = 0; i < SILENT; i++) close(silent[i]);
  px_release(comm);
  px_release(other);
}

// ---- files

static void write_on(const char *path, int to) {
  PX_SCOPED(px_store) store = NULL;
  OK(px_store_file(&store, path));
  for (int64_t n = 1;; n++) {
    char value[300];
    int64_t sum;
    memset(value, 'a' + (int)(n % 26), sizeof value);
    OK(px_store_set(store, "text", value, 1 + (size_t)n % sizeof value));
    OK(px_store_add(&sum, store, "count", 1));
    // A reported value is in the file, whatever happens to the writer.
    CHECK(write(to, &sum, sizeof sum) == (ssize_t)sizeof sum);
  }
}

PX_TEST(a_file_keeps_the_records_of_killed_writers) {
  char path[] = "/tmp/phlox-store-XXXXXX";
  PX_SCOPED(px_store) store = NULL;
  int64_t sum, reported, last = 0;
  CHECK(mkstemp(path) >= 0);
  for (int round = 0; round < 20; round++) {
    int ends[2];
    CHECK(!pipe(ends));
    pid_t writer = fork();
    if (writer == 0) write_on(path, ends[1]);
    close(ends[1]);
    for (int i = 0; i < 1 + 7 * round; i++) CHECK(read(ends[0], &last, sizeof last) > 0);
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    while (read(ends[0], &reported, sizeof reported) > 0) last = reported;
    close(ends[0]);
    if (!store) OK(px_store_file(&store, path));
    OK(px_store_add(&sum, store, "count", 0));
    CHECK(sum == last || sum == last + 1);
    void *value;
    size_t size;
    OK(px_store_get(&value, &size, store, "text"));
    for (size_t i = 1; i < size; i++) CHECK(((char *)value)[i] == ((char *)value)[0]);
    px_free(value);
  }
  unlink(path);
}

// The file of a writer killed within a record.
PX_TEST(a_truncated_record_is_overwritten) {
  char path[] = "/tmp/phlox-store-XXXXXX";
  int file = mkstemp(path);
  PX_SCOPED(px_store) store_of_file = NULL;
  struct stat one, two;
  CHECK(file >= 0);
  OK(px_store_file(&store_of_file, path));
  OK(px_store_set(store_of_file, "kept", "yes", 3));
  CHECK(!fstat(file, &one));
  OK(px_store_set(store_of_file, "half", "written", 7));
  CHECK(!fstat(file, &two));
  uint8_t bytes[256];
  CHECK(two.st_size < (off_t)sizeof bytes && pread(file, bytes, sizeof bytes, 0) == two.st_size);
  for (off_t size = one.st_size; size < two.st_size; size++) {
    PX_SCOPED(px_store) store = NULL;
    PX_SCOPED(px_store) again = NULL;
    bool ready;
    CHECK(!ftruncate(file, 0) && pwrite(file, bytes, (size_t)size, 0) == size);
    OK(px_store_file(&store, path));
    check_kept(store);
    OK(px_store_check(&ready, store, (const char *[]){"half"}, 1));
    CHECK(!ready);
    OK(px_store_set(store, "next", "one", 3));
    OK(px_store_file(&again, path));
    check_kept(again);
    OK(px_store_check(&ready, again, (const char *[]){"next"}, 1));
    CHECK(ready);
  }
  unlink(path);
}
