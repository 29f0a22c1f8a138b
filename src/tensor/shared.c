// SPDX-License-Identifier: Apache-2.0
// Storages in shared memory: memory files that several processes map. A process maps a file once,
// so tensors that came to it by different ways have one address.
#include "tensor/tensor_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct px__shared {
  px__shared *next;
  int refs, fd;
  size_t bytes;  // mapped
  void *data;
  dev_t device;
  ino_t inode;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static px__shared *first;  // all of this process, with their counts guarded by `lock`

static px_status failed(const char *what) {
  PX_FAIL(PX_RUNTIME, "unable to %s shared memory: %s (%d)", what, strerror(errno), errno);
}

static void unmap(px__shared *s) {
  if (s->data) munmap(s->data, s->bytes);
  close(s->fd);
  px__free(s);
}

// Given back by the block over it.
static void give_back(void *context) {
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

static px_status map_file(px__shared **out, int fd, size_t bytes, const struct stat *info) {
  px__shared *s;
  PX_TRY(PX_NEW(&s));
  *s = (px__shared){.bytes = bytes, .device = info->st_dev, .inode = info->st_ino};
  void *data = MAP_FAILED;
  s->fd = px__fault(PX__FAULT_FILE) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (s->fd >= 0) data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
  if (data == MAP_FAILED) {
    px_status status = failed("map");
    if (s->fd >= 0) close(s->fd);
    px__free(s);
    return status;
  }
  s->data = data;
  s->next = first;
  first = *out = s;
  return PX_OK;
}

// The mapping of a file, with one more reference.
static px_status open_file(px__shared **out, int fd, size_t bytes) {
  struct stat info;
  if (fstat(fd, &info)) return failed("open");
  PX_CHECK(S_ISREG(info.st_mode) && (uint64_t)info.st_size >= bytes, PX_VALUE,
           "the file has not the %zu bytes of shared memory that it should have", bytes);
  pthread_mutex_lock(&lock);
  px__shared *s = find(&info, bytes);
  px_status status = s ? PX_OK : map_file(&s, fd, bytes ? bytes : 1, &info);
  if (status == PX_OK) s->refs++;
  pthread_mutex_unlock(&lock);
  *out = s;
  return status;
}

// The block over a mapping, whose reference it takes, also on failure.
static px_status block_over(px_block **out, px__shared *s, size_t bytes) {
  px_status status = px__block_wrap(out, s->data, bytes, px_cpu(), give_back, s);
  if (status != PX_OK) give_back(s);
  return status;
}

px_status px_storage_from_fd(px_storage **out, int fd, size_t bytes) {
  PX_GIVEN(out);
  px__shared *s = NULL;
  px_block *block = NULL;
  *out = NULL;
  PX_TRY(open_file(&s, fd, bytes));
  PX_TRY(block_over(&block, s, bytes));
  PX_TRY(px__storage_from_block(out, block));
  (*out)->shared = s;
  (*out)->fixed = true;
  return PX_OK;
}

px_status px_storage_share(px_storage *storage) {
  PX_GIVEN(storage);
  px_block *old = storage->block, *block = NULL;
  px__shared *s = NULL;
  int fd = -1;
  if (storage->shared || old->device.type != PX_CPU) return PX_OK;
  PX_TRY(px__block_wait(old, "share", false));
  PX_TRY(px__file_new(&fd, old->bytes));
  px_status status = open_file(&s, fd, old->bytes);
  close(fd);
  if (status == PX_OK) status = block_over(&block, s, old->bytes);
  if (status == PX_OK) status = px__copy_long(block->data, old->data, old->bytes);
  if (status != PX_OK) {
    px__block_free(block);
    return px_error_pass(status, __FILE__, __LINE__, __func__);
  }
  PX_TRY(px__storage_replace(storage, block));
  storage->shared = s;
  storage->fixed = true;
  return PX_OK;
}

bool px_storage_is_shared(const px_storage *storage) {
  return storage->shared || storage->block->device.type == PX_CUDA;
}

px_status px_storage_fd(int *out, px_storage *storage) {
  PX_GIVEN(out);
  *out = -1;
  PX_GIVEN(storage);
  PX_CHECK(storage->shared, PX_RUNTIME, "the storage is not in shared memory");
  *out = storage->shared->fd;
  return PX_OK;
}
