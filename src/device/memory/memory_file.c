// SPDX-License-Identifier: Apache-2.0
// Anonymous memory files, and IPC handles to open them in other processes.
//
// A handle holds the process with the open file, its descriptor there, and the file's identity.
// Files have no name, so killed processes leave nothing behind, and their handles become invalid.
#include "device/core/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

px_status px__file_new(int *out, size_t bytes) {
  int fd = px__fault(PX__FAULT_FILE) ? -1 : memfd_create("phlox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && ftruncate(fd, (off_t)(bytes ? bytes : 1)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    *out = fd;
    return PX_OK;
  }
  int why = errno;
  if (fd >= 0) close(fd);
  PX_FAIL(PX_RUNTIME, "unable to create shared memory: %s (%d)", strerror(why), why);
}

typedef struct file_name {
  char mark[8];
  int32_t process, fd;
  uint64_t device, inode;
} file_name;
_Static_assert(sizeof(file_name) == PX_FILE_HANDLE, "the first part of a handle");
static const char mark[8] = "phlox/1";

px_status px__file_share(px_ipc_handle *out, int fd) {
  struct stat info;
  file_name name = {.process = (int32_t)getpid(), .fd = fd};
  int failed = px__fault(PX__FAULT_FILE) ? (errno = EIO) : fstat(fd, &info);
  PX_CHECK(!failed, PX_RUNTIME, "unable to share a file: %s (%d)", strerror(errno), errno);
  memcpy(name.mark, mark, sizeof mark);
  name.device = info.st_dev, name.inode = info.st_ino;
  memcpy(out->bytes, &name, sizeof name);
  return PX_OK;
}

static bool is_same_file(int fd, const file_name *name) {
  struct stat info;
  return fstat(fd, &info) == 0 && info.st_dev == name->device && info.st_ino == name->inode;
}

px_status px__file_open(int *out, const px_ipc_handle *handle) {
  file_name name;
  char path[64];
  memcpy(&name, handle->bytes, sizeof name);
  *out = -1;
  PX_CHECK(!memcmp(name.mark, mark, sizeof mark), PX_VALUE, "invalid IPC handle");
  snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.fd);
  int fd = px__fault(PX__FAULT_FILE) ? (errno = EIO, -1) : open(path, O_RDWR | O_CLOEXEC);
  PX_CHECK(fd >= 0, PX_RUNTIME,
           "process %d, the owner of the IPC handle, has ended or is inaccessible: %s (%d)",
           name.process, strerror(errno), errno);
  bool same = is_same_file(fd, &name);
  if (!same) close(fd);
  PX_CHECK(same, PX_RUNTIME, "stale IPC handle: process %d closed the file", name.process);
  *out = fd;
  return PX_OK;
}
