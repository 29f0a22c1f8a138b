// SPDX-License-Identifier: Apache-2.0
// IPC reference counts: the lifetime of device memory shared between processes.
//
// A sending process has a counter file with a slot for each storage it sends, counting messages in
// flight. A receiver first takes a read lock on the slot's byte in that file, then decrements the
// count. A storage is therefore unreferenced once its count is 0 and its byte is unlocked. The
// kernel releases the locks of a process however it exits. Until then the sender keeps the memory
// of a storage it released itself.
//
// One mutex guards all state. Allocations are freed without it, since that may call release
// functions. In a forked child all state belongs to the parent.
#include "tensor/ipc_counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOTS = 1 << 16 };
typedef struct slot {
  uint64_t serial;     // atomic; 0: free. Never reused
  uint64_t in_flight;  // atomic; messages in flight
} slot;
enum { BYTES = SLOTS * sizeof(slot) };

// The counter file of a process, mapped into this one.
struct px__counters {
  px__counters *next;
  int refs, fd;
  px_ipc_handle handle;
  slot *slots;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Guarded by `lock`. `own` is this process's counter file, kept until exit.
static px__counters own, *others;
static px__ipc_reference *sent, *received;
static int64_t kept,
    kept_checked;  // released storages kept for other processes; at the last collection

static px_status failed(const char *what) {
  PX_FAIL(PX_RUNTIME, "unable to %s the counter file of shared storages: %s (%d)", what,
          strerror(errno), errno);
}

static px_status storage_gone(void) {
  PX_FAIL(PX_RUNTIME, "the sending process has released the storage");
}

static void unlist(px__ipc_reference **list, px__ipc_reference *p) {
  while (*list != p) list = &(*list)->next;
  *list = p->next;
}

// ---- counters
static px_status map_counters(px__counters *c) {
  struct stat info;
  bool whole = fstat(c->fd, &info) == 0 && info.st_size >= BYTES;
  PX_CHECK(whole, PX_VALUE, "invalid IPC handle: not a counter file");
  void *memory = px__fault(PX__FAULT_FILE)
                     ? MAP_FAILED
                     : mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
  if (memory == MAP_FAILED) return failed("map");
  c->slots = memory;
  return PX_OK;
}

static px_status make_counters(px__counters *c) {
  PX_TRY(px__file_new(&c->fd, BYTES));
  PX_TRY(px__file_share(&c->handle, c->fd));
  return map_counters(c);
}

static px_status start_own(void) {
  px__counters made = {.fd = -1};
  if (own.slots) return PX_OK;
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
  munmap(c->slots, BYTES);
  close(c->fd);
  px__free(c);
}

// Sets or queries a lock on a slot, like fcntl.
static int lock_slot(const px__counters *c, uint64_t at, short type, int command, short *found) {
  struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
  int result = px__fault(PX__FAULT_FILE) ? (errno = EIO, -1) : fcntl(c->fd, command, &range);
  if (found) *found = range.l_type;
  return result;
}

// True if other processes hold the storage, or a message is in flight. True if this cannot be
// determined.
static bool is_referenced(const px__ipc_reference *p) {
  short found = F_RDLCK;
  if (__atomic_load_n(&own.slots[p->slot].in_flight, __ATOMIC_ACQUIRE)) return true;
  return lock_slot(&own, p->slot, F_WRLCK, F_OFD_GETLK, &found) != 0 || found != F_UNLCK;
}

// ---- sending
static px_status take_slot(px__ipc_reference *p) {
  static uint64_t next, serial;
  for (int i = 0; i < SLOTS; i++) {
    uint64_t at = next++ % SLOTS;
    if (own.slots[at].serial) continue;
    p->slot = at;
    p->serial = ++serial;
    __atomic_store_n(&own.slots[at].serial, p->serial, __ATOMIC_RELEASE);
    return PX_OK;
  }
  PX_FAIL(PX_RUNTIME, "a process cannot share more than %d device storages at a time", SLOTS);
}

static px_status make_sent(px_storage *storage) {
  px__ipc_reference *p;
  PX_TRY(start_own());
  PX_TRY(PX_NEW(&p));
  px_status status = px_event_new(&p->event, PX_EVENT_INTERPROCESS);
  if (status == PX_OK) status = take_slot(p);
  if (status != PX_OK) {
    px_release(p->event);
    px__free(p);
    return status;
  }
  p->storage = storage;
  p->next = sent;
  sent = storage->ipc_reference = p;
  return PX_OK;
}

px_status px__ipc_reference_of_storage(px__ipc_reference **out, px_storage *storage) {
  pthread_mutex_lock(&lock);
  px_status status = storage->ipc_reference ? PX_OK : make_sent(storage);
  *out = storage->ipc_reference;
  pthread_mutex_unlock(&lock);
  PX_TRY(status);
  PX_CHECK(!(*out)->from, PX_RUNTIME,
           "Attempted to send CUDA tensor received from another process; this is not currently "
           "supported. Consider cloning before sending.");
  return PX_OK;
}

void px__ipc_reference_send(px_storage_handle *out, px__ipc_reference *p) {
  out->counters = own.handle;
  out->slot = p->slot, out->serial = p->serial;
  __atomic_add_fetch(&own.slots[p->slot].in_flight, 1, __ATOMIC_ACQ_REL);
}

// Removes an unreferenced storage from the list. The caller disposes of it without the lock.
static void remove_sent(px__ipc_reference *p) {
  unlist(&sent, p);
  __atomic_store_n(&own.slots[p->slot].serial, 0, __ATOMIC_RELEASE);
}

static void dispose(px__ipc_reference *list) {
  for (px__ipc_reference *next; list; list = next) {
    next = list->next;
    px__allocation_free(list->allocation);
    px_release(list->event);
    px__free(list);
  }
}

// Moves kept storages without references to *ended. Returns the number of referenced storages.
static int64_t collect_unreferenced(px__ipc_reference **ended) {
  int64_t left = 0;
  for (px__ipc_reference *p = sent, *next; p; p = next) {
    next = p->next;
    bool referenced = is_referenced(p);
    left += referenced;
    if (referenced || p->storage) continue;
    remove_sent(p);
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
  int64_t left = collect_unreferenced(&ended);
  pthread_mutex_unlock(&lock);
  dispose(ended);
  return left;
}

bool px__ipc_references_collect_is_due(void) {
  enum { MIN_KEPT = 64 };
  pthread_mutex_lock(&lock);
  bool many = kept >= 2 * kept_checked + MIN_KEPT;
  pthread_mutex_unlock(&lock);
  return many;
}

// ---- receiving
static bool shares_slot(const px__ipc_reference *p) {
  for (const px__ipc_reference *other = received; other; other = other->next)
    if (other != p && other->from == p->from && other->serial == p->serial) return true;
  return false;
}

void px__ipc_reference_drop(void *context) {
  px__ipc_reference *p = context;
  if (!px_device_initialized()) return;
  pthread_mutex_lock(&lock);
  unlist(&received, p);
  if (!shares_slot(p)) lock_slot(p->from, p->slot, F_UNLCK, F_OFD_SETLK, NULL);
  close_counters(p->from);
  pthread_mutex_unlock(&lock);
  px__free(p);
}

// If a handle was received twice, the count stays at 0; the lock keeps the memory.
void px__ipc_reference_received(const px__ipc_reference *p) {
  uint64_t *at = &(p->from ? p->from : &own)->slots[p->slot].in_flight;
  uint64_t in_flight = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (in_flight && !__atomic_compare_exchange_n(at, &in_flight, in_flight - 1, true,
                                                   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    ;
}

// Locks the slot, unless this process already did.
static px_status lock_received(px__ipc_reference *p) {
  const slot *at = &p->from->slots[p->slot];
  bool first = !shares_slot(p);
  if (first && lock_slot(p->from, p->slot, F_RDLCK, F_OFD_SETLK, NULL)) return failed("lock");
  if (__atomic_load_n(&at->serial, __ATOMIC_ACQUIRE) == p->serial) return PX_OK;
  if (first) lock_slot(p->from, p->slot, F_UNLCK, F_OFD_SETLK, NULL);
  return storage_gone();
}

static px_status make_received(px__ipc_reference **out, const px_storage_handle *handle) {
  px__ipc_reference *p;
  PX_CHECK(handle->slot < SLOTS, PX_VALUE, "invalid IPC handle");
  PX_TRY(PX_NEW(&p));
  p->slot = handle->slot, p->serial = handle->serial;
  px_status status = open_counters(&p->from, &handle->counters);
  if (status == PX_OK) status = lock_received(p);
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
  while (list && (list->serial != handle->serial || list->slot != handle->slot ||
                  (list->from && memcmp(&list->from->handle, &handle->counters, size))))
    list = list->next;
  return list;
}

// Returns the record's storage with an additional reference; NULL if there is none, or another
// thread is destroying it.
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

// Replaces the allocation of a fresh storage and returns the old one. Lock held.
static px_allocation *exchange(px_storage *fresh, px_allocation *allocation, px__ipc_reference *p) {
  px_allocation *empty = fresh->allocation;
  fresh->allocation = allocation;
  fresh->ipc_reference = p;
  p->storage = fresh;
  return empty;
}

void px__ipc_reference_attach(px_storage *fresh, px_allocation *allocation, px__ipc_reference *p) {
  pthread_mutex_lock(&lock);
  px_allocation *empty = exchange(fresh, allocation, p);
  pthread_mutex_unlock(&lock);
  px__allocation_free(empty);
}

bool px__ipc_reference_is_own(const px_storage_handle *handle) {
  pthread_mutex_lock(&lock);
  bool ours = own.slots && !memcmp(&own.handle, &handle->counters, sizeof own.handle);
  pthread_mutex_unlock(&lock);
  return ours;
}

px_status px__ipc_reference_take_back(px_storage **out, px_event **event, px_storage *fresh,
                                      const px_storage_handle *handle) {
  for (*out = NULL; !*out; sched_yield()) {  // retry while another thread destroys the storage
    px_allocation *empty = NULL;
    pthread_mutex_lock(&lock);
    px__ipc_reference *p = find(sent, handle);
    if (p && p->allocation) empty = exchange(fresh, p->allocation, p), p->allocation = NULL, kept--;
    *out = revive(p);
    if (*out) *event = px_retain(p->event);
    pthread_mutex_unlock(&lock);
    px__allocation_free(empty);
    if (!p) return storage_gone();
  }
  return PX_OK;
}

// ---- destruction
void px__ipc_reference_end(px_storage *storage, px_allocation *allocation_take) {
  px__ipc_reference *p = storage->ipc_reference, *ended = NULL;
  storage->ipc_reference = NULL;
  if (px_device_initialized()) {
    pthread_mutex_lock(&lock);
    p->storage = NULL;
    bool keeps = !p->from && is_referenced(p);
    if (keeps) p->allocation = allocation_take, allocation_take = NULL, kept++;
    if (!p->from && !keeps) remove_sent(ended = p), p->next = NULL;
    pthread_mutex_unlock(&lock);
  }
  px__allocation_free(allocation_take);
  dispose(ended);
}
