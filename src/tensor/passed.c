// SPDX-License-Identifier: Apache-2.0
// How long memory of devices lives that several processes have.
//
// A process that sends storages has a file of counters, with a place for each of them: how many of
// its messages nobody has received yet. A process that receives one first locks the place's byte in
// that file, for reading, and then counts the message down. So the sender knows that a storage is
// nobody else's when its count is 0 and nobody has the lock, which the system takes from a process
// that ends in whatever way. Until then the memory of a storage that the sender let go of is kept.
//
// One lock guards all of this. Blocks are freed without it, since that may call release functions.
// In a forked child all of it is the parent's.
#include "tensor/passed.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 1 << 16 };
typedef struct place {
  uint64_t serial;  // atomic, 0: free; no number is used twice
  uint64_t flying;  // atomic: messages
} place;
enum { BYTES = PLACES * sizeof(place) };

// The counters of a process, as this one has them.
struct px__counters {
  px__counters *next;
  int refs, fd;
  px_ipc_handle handle;
  place *places;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// All below: guarded by `lock`. This process's own counters stay until it ends.
static px__counters own, *others;
static px__ipc_reference *sent, *received;
static int64_t kept, kept_checked;  // storages that ended and are others' still; at the last look

static px_status failed(const char *what) {
  PX_FAIL(PX_RUNTIME, "unable to %s the counters of shared storages: %s (%d)", what,
          strerror(errno), errno);
}

static px_status has_ended(void) {
  PX_FAIL(PX_RUNTIME, "the process that sent the storage has let go of it");
}

static void unlist(px__ipc_reference **list, px__ipc_reference *p) {
  while (*list != p) list = &(*list)->next;
  *list = p->next;
}

// ---- counters
static px_status map_counters(px__counters *c) {
  struct stat info;
  bool whole = fstat(c->fd, &info) == 0 && info.st_size >= BYTES;
  PX_CHECK(whole, PX_VALUE, "the handle is not of the counters of shared storages");
  void *memory = px__fault(PX__FAULT_FILE)
                     ? MAP_FAILED
                     : mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
  if (memory == MAP_FAILED) return failed("map");
  c->places = memory;
  return PX_OK;
}

static px_status make_counters(px__counters *c) {
  PX_TRY(px__file_new(&c->fd, BYTES));
  PX_TRY(px__file_share(&c->handle, c->fd));
  return map_counters(c);
}

static px_status start_own(void) {
  px__counters made = {.fd = -1};
  if (own.places) return PX_OK;
  px_status status = make_counters(&made);
  if (status == PX_OK)
    own = made;
  else if (made.fd >= 0)
    close(made.fd);
  return status;
}

static px_status open_new(px__counters **out, const px_ipc_handle *handle) {
  px__counters *c;
  PX_TRY(PX_NEW(&c));
  *c = (px__counters){.next = others, .handle = *handle};
  px_status status = px__file_open(&c->fd, handle);
  if (status == PX_OK) status = map_counters(c);
  if (status == PX_OK) return *out = others = c, PX_OK;
  if (c->fd >= 0) close(c->fd);
  px__free(c);
  return status;
}

static px_status open_counters(px__counters **out, const px_ipc_handle *handle) {
  px__counters *c = others;
  while (c && memcmp(&c->handle, handle, sizeof *handle)) c = c->next;
  if (!c) PX_TRY(open_new(&c, handle));
  c->refs++;
  *out = c;
  return PX_OK;
}

static void close_counters(px__counters *c) {
  px__counters **at = &others;
  if (--c->refs) return;
  while (*at != c) at = &(*at)->next;
  *at = c->next;
  munmap(c->places, BYTES);
  close(c->fd);
  px__free(c);
}

// Sets a lock on a place, or asks for one, as fcntl does.
static int lock_place(const px__counters *c, uint64_t at, short type, int command, short *found) {
  struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
  int result = px__fault(PX__FAULT_FILE) ? (errno = EIO, -1) : fcntl(c->fd, command, &range);
  if (found) *found = range.l_type;
  return result;
}

// Whether other processes have the storage, or have still to receive it. If that cannot be found
// out, they have.
static bool is_wanted(const px__ipc_reference *p) {
  short found = F_RDLCK;
  if (__atomic_load_n(&own.places[p->place].flying, __ATOMIC_ACQUIRE)) return true;
  return lock_place(&own, p->place, F_WRLCK, F_OFD_GETLK, &found) != 0 || found != F_UNLCK;
}

// ---- sending
static px_status take_place(px__ipc_reference *p) {
  static uint64_t next, serial;
  for (int i = 0; i < PLACES; i++) {
    uint64_t at = next++ % PLACES;
    if (own.places[at].serial) continue;
    p->place = at;
    p->serial = ++serial;
    __atomic_store_n(&own.places[at].serial, p->serial, __ATOMIC_RELEASE);
    return PX_OK;
  }
  PX_FAIL(PX_RUNTIME, "a process can share %d storages of devices at once", PLACES);
}

static px_status make_sent(px_storage *storage) {
  px__ipc_reference *p;
  PX_TRY(start_own());
  PX_TRY(PX_NEW(&p));
  px_status status = px_event_new(&p->event, PX_EVENT_INTERPROCESS);
  if (status == PX_OK) status = take_place(p);
  if (status != PX_OK) {
    px_release(p->event);
    px__free(p);
    return status;
  }
  p->storage = storage;
  p->next = sent;
  sent = storage->passed = p;
  return PX_OK;
}

px_status px__ipc_reference_of_storage(px__ipc_reference **out, px_storage *storage) {
  pthread_mutex_lock(&lock);
  px_status status = storage->passed ? PX_OK : make_sent(storage);
  *out = storage->passed;
  pthread_mutex_unlock(&lock);
  PX_TRY(status);
  PX_CHECK(!(*out)->from, PX_RUNTIME,
           "Attempted to send CUDA tensor received from another process; this is not currently "
           "supported. Consider cloning before sending.");
  return PX_OK;
}

void px__ipc_reference_send(px_storage_handle *out, px__ipc_reference *p) {
  out->counters = own.handle;
  out->place = p->place, out->serial = p->serial;
  __atomic_add_fetch(&own.places[p->place].flying, 1, __ATOMIC_ACQ_REL);
}

// Takes a storage that nobody wants off the list. It is to be disposed of without the lock.
static void end_sent(px__ipc_reference *p) {
  unlist(&sent, p);
  __atomic_store_n(&own.places[p->place].serial, 0, __ATOMIC_RELEASE);
}

static void dispose(px__ipc_reference *list) {
  for (px__ipc_reference *next; list; list = next) {
    next = list->next;
    px__allocation_free(list->block);
    px_release(list->event);
    px__free(list);
  }
}

// Takes off the list what was kept and is nobody's any more. Gives how many storages are others'.
static int64_t sort_out(px__ipc_reference **ended) {
  int64_t left = 0;
  for (px__ipc_reference *p = sent, *next; p; p = next) {
    next = p->next;
    bool wanted = is_wanted(p);
    left += wanted;
    if (wanted || p->storage) continue;
    end_sent(p);
    kept--;
    p->next = *ended;
    *ended = p;
  }
  kept_checked = kept;
  return left;
}

int64_t px__ipc_references_collect(void) {
  px__ipc_reference *ended = NULL;
  pthread_mutex_lock(&lock);
  int64_t left = sort_out(&ended);
  pthread_mutex_unlock(&lock);
  dispose(ended);
  return left;
}

bool px__ipc_references_collect_is_due(void) {
  enum { OFTEN = 64 };
  pthread_mutex_lock(&lock);
  bool many = kept >= 2 * kept_checked + OFTEN;
  pthread_mutex_unlock(&lock);
  return many;
}

// ---- receiving
static bool shares_place(const px__ipc_reference *p) {
  for (const px__ipc_reference *other = received; other; other = other->next)
    if (other != p && other->from == p->from && other->serial == p->serial) return true;
  return false;
}

void px__ipc_reference_drop(void *context) {
  px__ipc_reference *p = context;
  if (!px_device_initialized()) return;
  pthread_mutex_lock(&lock);
  unlist(&received, p);
  if (!shares_place(p)) lock_place(p->from, p->place, F_UNLCK, F_OFD_SETLK, NULL);
  close_counters(p->from);
  pthread_mutex_unlock(&lock);
  px__free(p);
}

// If a handle was used twice, the count stays at 0, and the lock is what keeps the memory.
void px__ipc_reference_received(const px__ipc_reference *p) {
  uint64_t *at = &(p->from ? p->from : &own)->places[p->place].flying;
  uint64_t flying = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (flying && !__atomic_compare_exchange_n(at, &flying, flying - 1, true, __ATOMIC_ACQ_REL,
                                                __ATOMIC_RELAXED))
    ;
}

// Locks the place, if this process has not done so.
static px_status take_hold(px__ipc_reference *p) {
  const place *at = &p->from->places[p->place];
  bool first = !shares_place(p);
  if (first && lock_place(p->from, p->place, F_RDLCK, F_OFD_SETLK, NULL)) return failed("lock");
  if (__atomic_load_n(&at->serial, __ATOMIC_ACQUIRE) == p->serial) return PX_OK;
  if (first) lock_place(p->from, p->place, F_UNLCK, F_OFD_SETLK, NULL);
  return has_ended();
}

static px_status make_received(px__ipc_reference **out, const px_storage_handle *handle) {
  px__ipc_reference *p;
  PX_CHECK(handle->place < PLACES, PX_VALUE, "the bytes are no handle that Phlox has made");
  PX_TRY(PX_NEW(&p));
  p->place = handle->place, p->serial = handle->serial;
  px_status status = open_counters(&p->from, &handle->counters);
  if (status == PX_OK) status = take_hold(p);
  if (status != PX_OK) {
    if (p->from) close_counters(p->from);
    px__free(p);
    return status;
  }
  p->next = received;
  *out = received = p;
  return PX_OK;
}

static px__ipc_reference *find(px__ipc_reference *list, const px_storage_handle *handle) {
  const size_t size = sizeof handle->counters;
  while (list && (list->serial != handle->serial || list->place != handle->place ||
                  (list->from && memcmp(&list->from->handle, &handle->counters, size))))
    list = list->next;
  return list;
}

// The record's storage with one more reference; NULL if there is none, or another thread is ending
// it.
static px_storage *revive(const px__ipc_reference *p) {
  px_storage *storage = p ? p->storage : NULL;
  int32_t refs = storage ? __atomic_load_n(&storage->head.refs, __ATOMIC_RELAXED) : 0;
  while (refs > 0 && !__atomic_compare_exchange_n(&storage->head.refs, &refs, refs + 1, true,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    ;
  return refs > 0 ? storage : NULL;
}

px_status px__ipc_reference_find(px_storage **out, px__ipc_reference **fresh,
                                 const px_storage_handle *handle) {
  pthread_mutex_lock(&lock);
  *out = revive(find(received, handle));
  px_status status = *out ? PX_OK : make_received(fresh, handle);
  pthread_mutex_unlock(&lock);
  return status;
}

// Gives a fresh storage a block in the place of its own, which is given back. Lock held.
static px_allocation *exchange(px_storage *fresh, px_allocation *block, px__ipc_reference *p) {
  px_allocation *empty = fresh->block;
  fresh->block = block;
  fresh->passed = p;
  p->storage = fresh;
  return empty;
}

void px__ipc_reference_attach(px_storage *fresh, px_allocation *block, px__ipc_reference *p) {
  pthread_mutex_lock(&lock);
  px_allocation *empty = exchange(fresh, block, p);
  pthread_mutex_unlock(&lock);
  px__allocation_free(empty);
}

bool px__ipc_reference_is_own(const px_storage_handle *handle) {
  pthread_mutex_lock(&lock);
  bool ours = own.places && !memcmp(&own.handle, &handle->counters, sizeof own.handle);
  pthread_mutex_unlock(&lock);
  return ours;
}

px_status px__ipc_reference_take_back(px_storage **out, px_event **event, px_storage *fresh,
                                      const px_storage_handle *handle) {
  for (*out = NULL; !*out; sched_yield()) {  // while another thread ends the storage
    px_allocation *empty = NULL;
    pthread_mutex_lock(&lock);
    px__ipc_reference *p = find(sent, handle);
    if (p && p->block) empty = exchange(fresh, p->block, p), p->block = NULL, kept--;
    *out = revive(p);
    if (*out) *event = px_retain(p->event);
    pthread_mutex_unlock(&lock);
    px__allocation_free(empty);
    if (!p) return has_ended();
  }
  return PX_OK;
}

// ---- the end of a storage
void px__passed_end(px_storage *storage, px_allocation *block_take) {
  px__ipc_reference *p = storage->passed, *ended = NULL;
  storage->passed = NULL;
  if (px_device_initialized()) {
    pthread_mutex_lock(&lock);
    p->storage = NULL;
    bool keeps = !p->from && is_wanted(p);
    if (keeps) p->block = block_take, block_take = NULL, kept++;
    if (!p->from && !keeps) end_sent(ended = p), p->next = NULL;
    pthread_mutex_unlock(&lock);
  }
  px__allocation_free(block_take);
  dispose(ended);
}
