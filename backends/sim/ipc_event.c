// SPDX-License-Identifier: Apache-2.0
// What the processes that have an event together know of it: a post in a memory file of the process
// that made it, which all map.
//
// The post says how often the event was recorded, and which records are done. A record is known by
// its number; what is said of it is kept until RING more are made.
#include "sim/sim.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RING = 8, POSTS = 1 << 16 };
struct px__sim_post {
  uint64_t serial;  // atomic; 0: free
  uint64_t issued;  // atomic: records so far
  uint32_t bell;    // atomic: changes when a record is done
  struct {
    uint64_t begun, done;  // atomic: the latest such records of those whose number is here mod RING
    int64_t process;       // atomic: of the one that has begun
  } records[RING];
};
// The posts of a process, as this one has them.
struct px__sim_board {
  px__sim_board *next;
  int refs, file;  // file: -1 in a board of another process
  px_ipc_handle handle;
  px__sim_post *posts;
};
static px__sim_board own = {.file = -1}, *others;  // lock

static px_status map_board(px__sim_board *board, int file) {
  enum { BYTES = POSTS * sizeof(px__sim_post) };
  void *memory = px__sim_file_bytes(file) < BYTES ? MAP_FAILED
                                                  : mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                                                         MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) return px__sim_fail(PX__SIM_HANDLE);
  board->posts = memory;
  return PX_OK;
}

static px_status open_own(void) {
  if (own.posts) return PX_OK;
  int file = memfd_create("phlox-sim-events", MFD_CLOEXEC);
  bool made = file >= 0 && !ftruncate(file, POSTS * sizeof(px__sim_post));
  px_status status = made ? map_board(&own, file) : px__sim_fail(PX__SIM_HANDLE);
  if (status == PX_OK)
    own.file = file;
  else if (file >= 0)
    close(file);
  return status;
}

static px_status open_other(px__sim_board **out, const px_ipc_handle *handle) {
  px__sim_board *board = others;
  while (board && memcmp(board->handle.bytes, handle->bytes, PX_FILE_HANDLE)) board = board->next;
  *out = board;
  if (board) return board->refs++, PX_OK;
  int file;
  PX__SIM_TRY(px__sim.core->file_open(&file, handle));
  board = calloc(1, sizeof *board);
  px_status status = board ? map_board(board, file) : px__sim_fail(PX__SIM_HANDLE);
  close(file);
  if (status != PX_OK) return free(board), status;
  *board = (px__sim_board){others, 1, -1, *handle, board->posts};
  *out = others = board;
  return PX_OK;
}

static void close_other(px__sim_board *board) {
  if (board == &own || --board->refs) return;
  px__sim_board **at = &others;
  while (*at != board) at = &(*at)->next;
  *at = board->next;
  munmap(board->posts, POSTS * sizeof *board->posts);
  free(board);
}

static px__sim_shared *shared_new(px__sim_board *board, px__sim_post *post, uint64_t serial) {
  px__sim_shared *s = calloc(1, sizeof *s);
  if (s) *s = (px__sim_shared){1, board, post, serial};
  return s;
}

px_status px__sim_shared_make(px__sim_shared **out) {
  static uint64_t serial, next;
  *out = NULL;
  px__sim_lock();
  px_status status = open_own();
  for (int i = 0; status == PX_OK && i < POSTS && !*out; i++, next++) {
    px__sim_post *post = &own.posts[next % POSTS];
    if (post->serial || !(*out = shared_new(&own, post, serial + 1))) continue;
    memset(post, 0, sizeof *post);
    __atomic_store_n(&post->serial, ++serial, __ATOMIC_RELEASE);
  }
  px__sim_unlock();
  if (status == PX_OK && !*out) PX__SIM_FAIL(PX_NOMEM, 0, "no room for an event of processes");
  return status;
}

void px__sim_shared_release(px__sim_shared *s) {
  if (!s || --s->refs) return;
  if (s->board == &own) __atomic_store_n(&s->post->serial, 0, __ATOMIC_RELEASE);
  close_other(s->board);
  free(s);
}

px_status px__sim_shared_handle(const px__sim_shared *s, px_ipc_handle *out) {
  if (!s || s->board != &own) return px__sim_fail(PX__SIM_HANDLE);
  return px__sim_share_file(out, own.file,
                            (px__sim_handle){(uint64_t)(s->post - own.posts), s->serial});
}

px_status px__sim_shared_open(px__sim_shared **out, const px_ipc_handle *handle) {
  px__sim_handle h = px__sim_numbers(handle);
  px__sim_board *board;
  if (h.at >= POSTS) return px__sim_fail(PX__SIM_INVALID);
  PX__SIM_TRY(open_other(&board, handle));
  px__sim_post *post = &board->posts[h.at];
  bool lives = h.bytes && __atomic_load_n(&post->serial, __ATOMIC_ACQUIRE) == h.bytes;
  *out = lives ? shared_new(board, post, h.bytes) : NULL;
  if (*out) return PX_OK;
  close_other(board);
  return px__sim_fail(PX__SIM_HANDLE);
}

// ---- records
uint64_t px__sim_shared_record(px__sim_shared *s) {
  px__sim_post *post = s->post;
  uint64_t number = __atomic_add_fetch(&post->issued, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&post->records[number % RING].process, getpid(), __ATOMIC_RELEASE);
  __atomic_store_n(&post->records[number % RING].begun, number, __ATOMIC_RELEASE);
  return number;
}

void px__sim_shared_done(px__sim_shared *s, uint64_t number) {
  uint64_t *done = &s->post->records[number % RING].done;
  uint64_t before = __atomic_load_n(done, __ATOMIC_ACQUIRE);
  while (before < number && !__atomic_compare_exchange_n(done, &before, number, false,
                                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    ;
  __atomic_add_fetch(&s->post->bell, 1, __ATOMIC_ACQ_REL);
  syscall(SYS_futex, &s->post->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t px__sim_shared_latest(const px__sim_shared *s) {
  return __atomic_load_n(&s->post->issued, __ATOMIC_ACQUIRE);
}

bool px__sim_shared_is_done(const px__sim_shared *s, uint64_t number) {
  return __atomic_load_n(&s->post->records[number % RING].done, __ATOMIC_ACQUIRE) >= number ||
         __atomic_load_n(&s->post->serial, __ATOMIC_ACQUIRE) != s->serial;
}

// Whether nobody will do a record's work any more: its process has ended.
static bool is_lost(const px__sim_post *post, uint64_t number) {
  int64_t process = __atomic_load_n(&post->records[number % RING].process, __ATOMIC_ACQUIRE);
  return __atomic_load_n(&post->records[number % RING].begun, __ATOMIC_ACQUIRE) == number &&
         kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

void px__sim_shared_await(const px__sim_shared *s, uint64_t number) {
  const struct timespec now_and_then = {0, 50000000};  // is_lost rings no bell
  for (;;) {
    uint32_t bell = __atomic_load_n(&s->post->bell, __ATOMIC_ACQUIRE);
    if (px__sim_shared_is_done(s, number) || is_lost(s->post, number)) return;
    syscall(SYS_futex, &s->post->bell, FUTEX_WAIT, bell, &now_and_then, NULL, 0);
  }
}
