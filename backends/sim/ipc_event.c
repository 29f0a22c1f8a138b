// SPDX-License-Identifier: Apache-2.0
// Events shared between processes. Each has an entry in a table: a memory file of the creating
// process, mapped by all users.
//
// An entry counts the event's records and stores the latest completed ones. A record is identified
// by its number; its state is overwritten after RING more records.
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

enum { RING = 8, ENTRIES = 1 << 16 };
struct px__sim_entry {
  uint64_t serial;  // atomic; 0: free
  uint64_t issued;  // atomic: number of records so far
  uint32_t futex;   // atomic futex: incremented when a record is done
  struct {
    uint64_t begun, done;  // atomic: the latest begun and done record with number % RING == index
    int64_t process;       // atomic: issuer of the begun record
  } records[RING];
};
// This process's mapping of a process's table.
struct px__sim_table {
  px__sim_table *next;
  int refs, file;  // file: -1 for another process's table
  px_ipc_handle handle;
  px__sim_entry *posts;
};
static px__sim_table own = {.file = -1}, *others;  // guarded by the lock

static px_status map_table(px__sim_table *table, int file) {
  enum { BYTES = ENTRIES * sizeof(px__sim_entry) };
  void *memory = px__sim_file_bytes(file) < BYTES ? MAP_FAILED
                                                  : mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                                                         MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) return px__sim_fail(PX__SIM_HANDLE);
  table->posts = memory;
  return PX_OK;
}

static px_status open_own(void) {
  if (own.posts) return PX_OK;
  int file = memfd_create("phlox-sim-events", MFD_CLOEXEC);
  bool made = file >= 0 && !ftruncate(file, ENTRIES * sizeof(px__sim_entry));
  px_status status = made ? map_table(&own, file) : px__sim_fail(PX__SIM_HANDLE);
  if (status == PX_OK)
    own.file = file;
  else if (file >= 0)
    close(file);
  return status;
}

static px_status open_other(px__sim_table **out, const px_ipc_handle *handle) {
  px__sim_table *table = others;
  while (table && memcmp(table->handle.bytes, handle->bytes, PX_FILE_HANDLE)) table = table->next;
  *out = table;
  if (table) return table->refs++, PX_OK;
  int file;
  PX__SIM_TRY(px__sim.core->file_open(&file, handle));
  table = calloc(1, sizeof *table);
  px_status status = table ? map_table(table, file) : px__sim_fail(PX__SIM_HANDLE);
  close(file);
  if (status != PX_OK) return free(table), status;
  *table = (px__sim_table){others, 1, -1, *handle, table->posts};
  *out = others = table;
  return PX_OK;
}

static void close_other(px__sim_table *table) {
  if (table == &own || --table->refs) return;
  px__sim_table **at = &others;
  while (*at != table) at = &(*at)->next;
  *at = table->next;
  munmap(table->posts, ENTRIES * sizeof *table->posts);
  free(table);
}

static px__sim_shared *shared_new(px__sim_table *table, px__sim_entry *entry, uint64_t serial) {
  px__sim_shared *s = calloc(1, sizeof *s);
  if (s) *s = (px__sim_shared){1, table, entry, serial};
  return s;
}

px_status px__sim_shared_make(px__sim_shared **out) {
  static uint64_t serial, next;
  *out = NULL;
  px__sim_lock();
  px_status status = open_own();
  for (int i = 0; status == PX_OK && i < ENTRIES && !*out; i++, next++) {
    px__sim_entry *entry = &own.posts[next % ENTRIES];
    if (entry->serial || !(*out = shared_new(&own, entry, serial + 1))) continue;
    memset(entry, 0, sizeof *entry);
    __atomic_store_n(&entry->serial, ++serial, __ATOMIC_RELEASE);
  }
  px__sim_unlock();
  if (status == PX_OK && !*out)
    PX__SIM_FAIL(PX_NOMEM, 0, "no free entry for an interprocess event");
  return status;
}

void px__sim_shared_release(px__sim_shared *s) {
  if (!s || --s->refs) return;
  if (s->table == &own) __atomic_store_n(&s->entry->serial, 0, __ATOMIC_RELEASE);
  close_other(s->table);
  free(s);
}

px_status px__sim_shared_handle(const px__sim_shared *s, px_ipc_handle *out) {
  if (!s || s->table != &own) return px__sim_fail(PX__SIM_HANDLE);
  return px__sim_share_file(out, own.file,
                            (px__sim_handle){(uint64_t)(s->entry - own.posts), s->serial});
}

px_status px__sim_shared_open(px__sim_shared **out, const px_ipc_handle *handle) {
  px__sim_handle h = px__sim_numbers(handle);
  px__sim_table *table;
  if (h.at >= ENTRIES) return px__sim_fail(PX__SIM_INVALID);
  PX__SIM_TRY(open_other(&table, handle));
  px__sim_entry *entry = &table->posts[h.at];
  bool lives = h.bytes && __atomic_load_n(&entry->serial, __ATOMIC_ACQUIRE) == h.bytes;
  *out = lives ? shared_new(table, entry, h.bytes) : NULL;
  if (*out) return PX_OK;
  close_other(table);
  return px__sim_fail(PX__SIM_HANDLE);
}

// ---- records
uint64_t px__sim_shared_record(px__sim_shared *s) {
  px__sim_entry *entry = s->entry;
  uint64_t number = __atomic_add_fetch(&entry->issued, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&entry->records[number % RING].process, getpid(), __ATOMIC_RELEASE);
  __atomic_store_n(&entry->records[number % RING].begun, number, __ATOMIC_RELEASE);
  return number;
}

void px__sim_shared_done(px__sim_shared *s, uint64_t number) {
  uint64_t *done = &s->entry->records[number % RING].done;
  uint64_t before = __atomic_load_n(done, __ATOMIC_ACQUIRE);
  while (before < number && !__atomic_compare_exchange_n(done, &before, number, false,
                                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    ;
  __atomic_add_fetch(&s->entry->futex, 1, __ATOMIC_ACQ_REL);
  syscall(SYS_futex, &s->entry->futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t px__sim_shared_latest(const px__sim_shared *s) {
  return __atomic_load_n(&s->entry->issued, __ATOMIC_ACQUIRE);
}

bool px__sim_shared_is_done(const px__sim_shared *s, uint64_t number) {
  return __atomic_load_n(&s->entry->records[number % RING].done, __ATOMIC_ACQUIRE) >= number ||
         __atomic_load_n(&s->entry->serial, __ATOMIC_ACQUIRE) != s->serial;
}

// True if the record will never complete because its process has exited.
static bool is_lost(const px__sim_entry *entry, uint64_t number) {
  int64_t process = __atomic_load_n(&entry->records[number % RING].process, __ATOMIC_ACQUIRE);
  return __atomic_load_n(&entry->records[number % RING].begun, __ATOMIC_ACQUIRE) == number &&
         kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

void px__sim_shared_await(const px__sim_shared *s, uint64_t number) {
  const struct timespec interval = {0, 50000000};  // 50 ms: is_lost has no notification
  for (;;) {
    uint32_t futex = __atomic_load_n(&s->entry->futex, __ATOMIC_ACQUIRE);
    if (px__sim_shared_is_done(s, number) || is_lost(s->entry, number)) return;
    syscall(SYS_futex, &s->entry->futex, FUTEX_WAIT, futex, &interval, NULL, 0);
  }
}
