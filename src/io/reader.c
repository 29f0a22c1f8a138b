// SPDX-License-Identifier: Apache-2.0
// Reads with all lengths checked.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io_impl.h"

bool px__file_fault(void) {
  if (!px_fault_check("file")) return false;
  errno = EIO;
  return true;
}

px__reader px__reader_memory(const void *bytes, size_t size, const char *name) {
  return (px__reader){.descriptor = -1, .memory = bytes, .size = (int64_t)size, .path = name};
}

px_status px__reader_open(px__reader *reader, const char *path) {
  *reader = (px__reader){.descriptor = -1, .path = path};
  // Non-blocking: opening a pipe without a writer would block forever.
  int descriptor = px__file_fault() ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 && errno == ENOENT)
    return px_error_set(PX_NOT_FOUND, ENOENT, __FILE__, __LINE__, __func__,
                        "[Errno 2] No such file or directory: '%s'", path);
  if (descriptor < 0) PX_FAIL_ERRNO(PX_IO, "cannot open", path);
  reader->descriptor = descriptor;
  struct stat info;
  bool good = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (!good) px__reader_close(reader);
  PX_CHECK(good, PX_IO, "not a regular file: '%s'", path);
  reader->size = info.st_size;
  return PX_OK;
}

px_status px__reader_read(const px__reader *reader, void *to, int64_t offset, int64_t bytes) {
  PX_CHECK(offset >= 0 && bytes >= 0 && bytes <= reader->size && offset <= reader->size - bytes,
           PX_RUNTIME,
           "'%s' is truncated: expected %lld bytes at offset %lld, but its size is %lld",
           reader->path, (long long)bytes, (long long)offset, (long long)reader->size);
  if (reader->memory) {
    if (bytes) memcpy(to, reader->memory + offset, (size_t)bytes);
    return PX_OK;
  }
  for (int64_t done = 0; done < bytes;) {
    ssize_t got = px__file_fault() ? -1
                                   : pread(reader->descriptor, (char *)to + done,
                                           (size_t)(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) PX_FAIL_ERRNO(PX_IO, "cannot read", reader->path);
    PX_CHECK(got > 0, PX_RUNTIME, "'%s' was truncated while it was read", reader->path);
    done += got;
  }
  return PX_OK;
}

void px__reader_close(px__reader *reader) {
  if (reader->descriptor >= 0) close(reader->descriptor);
  reader->descriptor = -1;
}
