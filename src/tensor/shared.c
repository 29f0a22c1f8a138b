// SPDX-License-Identifier: Apache-2.0
// Storages in shared memory: memory files mapped by several processes. A process maps a file once,
// so all its tensors over it have the same address.
#include "tensor/in_use.h"
#include "tensor/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct px__shared {
  px__shared *next;
  int refs, fd;          // the descriptor is -1 for named files
  px__holders *holders;  // of a named file
  char name[PX__NAME_BYTES];
  size_t bytes;  // mapped
  void *data;
  dev_t device;
  ino_t inode;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px__shared *first;  // all mappings of this process; `lock` guards the list and the counts

static void unmap(px__shared *s) {
  if (s->holders) px__named_drop(s->holders, s->name, getpid());
  if (s->data) munmap(s->data, s->bytes);
  if (s->fd >= 0) close(s->fd);
  px__free(s);
}

// Release function of the allocation over a mapping.
static void release_mapping(void *context) {
  px__shared *s = context, **at = &first;
  pthread_mutex_lock(&lock);
  bool last = --s->refs == 0;
  while (last && *at != s) at = &(*at)->next;
  if (last) *at = s->next;
  pthread_mutex_unlock(&lock);
  if (last) unmap(s);
}

static px__shared *find(const struct stat *info, size_t bytes) {
  px__shared *s = first;
  while (s && (s->device != info->st_dev || s->inode != info->st_ino || s->bytes < bytes))
    s = s->next;
  return s;
}

static px_status map_data(px__shared *s, int fd) {
  void *data = px__fault(PX__FAULT_FILE)
                   ? (errno = EIO, MAP_FAILED)
                   : mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return px__shared_failed("map");
  s->data = data;
  return PX_OK;
}
// Keeps an unnamed file open, so its descriptor can be sent.
static px_status map_unnamed(px__shared *s, int fd) {
  s->fd = px__fault(PX__FAULT_FILE) ? (errno = EIO, -1) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return s->fd < 0 ? px__shared_failed("map") : map_data(s, fd);
}
static px_status map_named(px__shared *s, int fd, const char *name) {
  PX_TRY(map_data(s, fd));
  px__holders *holders = (void *)((char *)s->data + s->bytes - px__named_page());
  PX_TRY(px__named_hold(holders, getpid()));
  s->holders = holders;
  memcpy(s->name, name, strlen(name) + 1);
  return PX_OK;
}

// `name`: of a named file; else NULL.
static px_status map_file(px__shared **out, int fd, size_t bytes, const char *name,
                          const struct stat *info) {
  px__shared *s;
  PX_TRY(PX_NEW(&s));
  *s = (px__shared){.fd = -1, .device = info->st_dev, .inode = info->st_ino};
  s->bytes = name ? (size_t)info->st_size : bytes ? bytes : 1;
  px_status status = name ? map_named(s, fd, name) : map_unnamed(s, fd);
  if (status != PX_OK) {
    unmap(s);
    return status;
  }
  s->next = first;
  first = *out = s;
  return PX_OK;
}

// Returns the mapping of a file, with an additional reference.
static px_status open_file(px__shared **out, int fd, size_t bytes, const char *name) {
  struct stat info;
  size_t extra = name ? px__named_page() : 0;
  if (fstat(fd, &info)) return px__shared_failed("open");
  PX_CHECK(S_ISREG(info.st_mode) && (uint64_t)info.st_size >= extra &&
               (uint64_t)info.st_size - extra >= bytes,
           PX_VALUE, "expected a shared memory file of at least %zu bytes", bytes);
  pthread_mutex_lock(&lock);
  px__shared *s = find(&info, bytes);
  px_status status = s ? PX_OK : map_file(&s, fd, bytes, name, &info);
  if (status == PX_OK) s->refs++;
  pthread_mutex_unlock(&lock);
  *out = s;
  return status;
}

// Makes the allocation over a mapping. Takes ownership of the reference, also on failure.
static px_status allocation_over(px_allocation **out, px__shared *s, size_t bytes) {
  px_status status = px__allocation_wrap(out, s->data, bytes, px_cpu(), release_mapping, s);
  if (status != PX_OK) release_mapping(s);
  return status;
}

// Makes the storage over a file.
static px_status storage_of(px_storage **out, int fd, size_t bytes, const char *name) {
  px__shared *s = NULL;
  px_allocation *allocation = NULL;
  PX_TRY(open_file(&s, fd, bytes, name));
  PX_TRY(allocation_over(&allocation, s, bytes));
  PX_TRY(px__storage_from_allocation(out, allocation, px__thread_cache_here));
  (*out)->shared = s;
  (*out)->fixed = true;
  return PX_OK;
}

px_status px_storage_from_fd(px_storage **out, int fd, size_t bytes) {
  PX_GIVEN(out);
  *out = NULL;
  return storage_of(out, fd, bytes, NULL);
}

// Moves a storage into a new file, and closes the descriptor.
static px_status move_to(px_storage *storage, int fd, const char *name) {
  px_allocation *old = storage->allocation, *allocation = NULL;
  px__shared *s = NULL;
  px_status status = open_file(&s, fd, old->bytes, name);
  close(fd);
  if (status != PX_OK && name) shm_unlink(name);
  if (status == PX_OK) status = allocation_over(&allocation, s, old->bytes);
  if (status == PX_OK) status = px__copy_interruptible(allocation->data, old->data, old->bytes);
  if (status != PX_OK) {
    px__allocation_free(allocation);
    return px_error_add_frame(status, __FILE__, __LINE__, __func__);
  }
  PX_TRY(px__storage_replace(storage, allocation));
  storage->fixed = true;
  __atomic_store_n(&storage->shared, s, __ATOMIC_RELEASE);
  return PX_OK;
}

static px_status share_locked(px_storage *storage, bool by_name) {
  char name[PX__NAME_BYTES];
  int fd = -1;
  PX_TRY(px__storage_ready(storage));
  px_allocation *allocation = storage->allocation;
  if (storage->shared || allocation->device.type != PX_CPU) return PX_OK;
  PX_TRY(px__allocation_wait(allocation, "share", false));
  PX_TRY(by_name ? px__named_new(&fd, name, allocation->bytes)
                 : px__file_new(&fd, allocation->bytes));
  return move_to(storage, fd, by_name ? name : NULL);
}

static px_status share(px_storage *storage, bool by_name) {
  PX_TRY(px__storage_lock(storage));
  px_status status = share_locked(storage, by_name);
  px__storage_unlock(storage);
  return status;
}

px_status px_storage_share(px_storage *storage) {
  PX_GIVEN(storage);
  return share(storage, false);
}
px_status px_storage_share_named(px_storage *storage) {
  PX_GIVEN(storage);
  return share(storage, true);
}

// Set once for a storage.
static px__shared *shared_of(const px_storage *storage) {
  return __atomic_load_n(&storage->shared, __ATOMIC_ACQUIRE);
}

bool px_storage_is_shared(const px_storage *storage) {
  PX__USES_STORAGE(storage);
  return shared_of(storage) || storage->allocation->device.type == PX_CUDA;
}

bool px_storage_is_named(const px_storage *storage) {
  const px__shared *s = shared_of(storage);
  return s && s->holders;
}

px_status px_storage_fd(int *out, px_storage *storage) {
  PX_GIVEN(out);
  *out = -1;
  PX_GIVEN(storage);
  PX_CHECK(shared_of(storage), PX_RUNTIME, "the storage is not in shared memory");
  PX_CHECK(!px_storage_is_named(storage), PX_RUNTIME,
           "the storage is in a named file without an open descriptor");
  *out = shared_of(storage)->fd;
  return PX_OK;
}

// ---- names

// True if the name refers to the file of the mapping.
static bool is_file_of(const char *name, const px__shared *s) {
  struct stat info;
  int fd = px__fault(PX__FAULT_FILE) ? (errno = EIO, -1) : shm_open(name, O_RDONLY | O_CLOEXEC, 0);
  bool found = fd >= 0 && fstat(fd, &info) == 0;
  if (fd >= 0) close(fd);
  return found && info.st_dev == s->device && info.st_ino == s->inode;
}

// The message holds a reference in this process's name until received. A forked child inherits the
// mapping, but possibly after all references were released.
px_status px_storage_name(char *out, px_storage *storage) {
  PX_GIVEN(out);
  *out = 0;
  PX_GIVEN(storage);
  px__shared *s = shared_of(storage);
  PX_CHECK(px_storage_is_named(storage), PX_RUNTIME, "the storage is not in a named file");
  PX_TRY(px__named_hold(s->holders, getpid()));
  if (!is_file_of(s->name, s)) {
    px__named_drop(s->holders, s->name, getpid());
    PX_FAIL(PX_RUNTIME, "the shared memory '%s' is gone: the processes that held it have exited",
            s->name);
  }
  snprintf(out, PX_SHARED_NAME, "%s@%d", s->name, (int)getpid());
  return PX_OK;
}

px_status px_storage_from_name(px_storage **out, const char *name, size_t bytes) {
  PX_GIVEN(out);
  PX_GIVEN(name);
  char file[PX_SHARED_NAME];
  int sender = 0, end = 0;
  *out = NULL;
  bool right = strlen(name) < sizeof file && !strncmp(name, "/phlox_", 7) &&
               sscanf(name + 1, "%[a-z0-9_]@%d%n", file + 1, &sender, &end) == 2 &&
               !name[1 + end] && sender > 0;
  PX_CHECK(right, PX_VALUE, "'%.80s' is not a shared memory name", name);
  file[0] = '/';
  int fd = px__fault(PX__FAULT_FILE) ? (errno = EIO, -1) : shm_open(file, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return px__shared_failed("open");
  px_status status = storage_of(out, fd, bytes, file);
  close(fd);
  if (status == PX_OK) px__named_drop((*out)->shared->holders, file, sender);
  return status;
}
