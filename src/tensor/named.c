// SPDX-License-Identifier: Apache-2.0
// Shared memory in named files, for processes that share more storages than their limit of open
// files. A page after the data lists the processes holding the file; the last one to release it
// unlinks the name. References of killed processes are dropped by the next process that makes its
// first such file.
#include "tensor/tensor_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
enum { SLOTS = 4096 / sizeof(uint64_t) };  // fits in one page on all systems
// Each slot holds a process id (upper 32 bits) and its reference count (lower 32 bits); 0: free.
struct px__holders {
  uint64_t slots[SLOTS];
};

static uint64_t slot_of(pid_t process, uint64_t count) {
  return count ? (uint64_t)(uint32_t)process << 32 | count : 0;
}
static pid_t process_of(uint64_t slot) { return (pid_t)(slot >> 32); }

// Adds `by` to a process's reference count. False if no slot is free, or the process holds no
// reference.
static bool add_references(px__holders *self, pid_t process, int by) {
  for (int i = 0; i < SLOTS; i++) {
    uint64_t was = __atomic_load_n(&self->slots[i], __ATOMIC_ACQUIRE);
    while (process_of(was) == process || (!was && by > 0)) {
      uint64_t now = slot_of(process, (was & UINT32_MAX) + (uint64_t)by);
      if (__atomic_compare_exchange_n(&self->slots[i], &was, now, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE))
        return true;
    }
  }
  return false;
}

static bool is_held(const px__holders *self) {
  for (int i = 0; i < SLOTS; i++)
    if (__atomic_load_n(&self->slots[i], __ATOMIC_ACQUIRE)) return true;
  return false;
}

size_t px__named_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

px_status px__shared_failed(const char *what) {
  PX_FAIL(PX_RUNTIME, "unable to %s shared memory: %s (%d)", what, strerror(errno), errno);
}

px_status px__named_hold(px__holders *self, pid_t process) {
  PX_CHECK(add_references(self, process, 1), PX_RUNTIME,
           "unable to share memory by name with more than %d processes", (int)SLOTS);
  return PX_OK;
}

void px__named_drop(px__holders *self, const char *name, pid_t process) {
  if (add_references(self, process, -1) && !is_held(self)) shm_unlink(name);
}

// ---- names

// An id of the PID namespace, within which process ids are valid.
static uint64_t pid_namespace(void) {
  struct stat info;
  return stat("/proc/self/ns/pid", &info) ? 0 : (uint64_t)info.st_ino;
}

static px__holders *holders_of(int fd) {
  struct stat info;
  off_t page = (off_t)px__named_page();
  if (fstat(fd, &info) || info.st_size < 2 * page) return NULL;
  void *at =
      mmap(NULL, sizeof(px__holders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, info.st_size - page);
  return at == MAP_FAILED ? NULL : at;
}

// Drops the references of processes that no longer exist.
static void sweep_file(const char *name) {
  int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
  px__holders *self = fd < 0 ? NULL : holders_of(fd);
  for (int i = 0; self && i < SLOTS; i++) {
    uint64_t was = self->slots[i];
    if (was && kill(process_of(was), 0) && errno == ESRCH)
      __atomic_compare_exchange_n(&self->slots[i], &was, 0, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE);
  }
  if (self && !is_held(self)) shm_unlink(name);
  if (self) munmap(self, sizeof *self);
  if (fd >= 0) close(fd);
}

// Files of live creators are skipped: they may be new, without a reference yet.
static void sweep(void) {
  DIR *folder = opendir(FOLDER);
  for (struct dirent *e; folder && (e = readdir(folder));) {
    unsigned long in_namespace;
    int creator;
    if (sscanf(e->d_name, "phlox_%lx_%d_", &in_namespace, &creator) != 2 ||
        in_namespace != pid_namespace())
      continue;
    char name[sizeof e->d_name + 1];
    snprintf(name, sizeof name, "/%s", e->d_name);
    if (kill(creator, 0) && errno == ESRCH) sweep_file(name);
  }
  if (folder) closedir(folder);
}

// Creates an empty file with an unused name.
static int create_file(char name[PX__NAME_BYTES]) {
  static unsigned made;
  for (;;) {
    unsigned number = __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    if (!number) sweep();
    snprintf(name, PX__NAME_BYTES, "/phlox_%lx_%d_%u", (unsigned long)pid_namespace(),
             (int)getpid(), number);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
}

px_status px__named_new(int *out, char name[PX__NAME_BYTES], size_t bytes) {
  size_t page = px__named_page(), pages = bytes / page + 2;  // the last page is px__holders
  int fd = px__fault(PX__FAULT_FILE) ? (errno = EIO, -1) : create_file(name);
  if (fd < 0) return px__shared_failed("make");
  int why = posix_fallocate(fd, 0, (off_t)(pages * page));
  if (!why) return *out = fd, PX_OK;
  close(fd);
  shm_unlink(name);
  errno = why;
  return px__shared_failed("make");
}
