// SPDX-License-Identifier: Apache-2.0
// Reading with every length checked, and writing so that a crash leaves the old file whole.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io_impl.h"

#define PX_FAIL_ERRNO(code, what, path) \
  return px_error_set((code), errno, __FILE__, __LINE__, __func__, "%s: '%s': %s", (what), (path), \
                      strerror(errno))

static bool fault(void) {
  if (!px_fault_pass("file")) return false;
  errno = EIO;
  return true;
}

px__reader px__reader_memory(const void *bytes, size_t size, const char *name) {
  return (px__reader){.descriptor = -1, .memory = bytes, .size = (int64_t)size, .path = name};
}

px_status px__reader_open(px__reader *reader, const char *path) {
  *reader = (px__reader){.descriptor = -1, .path = path};
  // Without waiting: a pipe that nobody writes to would hold the reader for ever.
  int descriptor = fault() ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 && errno == ENOENT)
    return px_error_set(PX_NOT_FOUND, ENOENT, __FILE__, __LINE__, __func__,
                        "[Errno 2] No such file or directory: '%s'", path);
  if (descriptor < 0) PX_FAIL_ERRNO(PX_IO, "cannot open", path);
  reader->descriptor = descriptor;
  struct stat facts;
  bool good = fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
  if (!good) px__reader_close(reader);
  PX_CHECK(good, PX_IO, "not a regular file: '%s'", path);
  reader->size = facts.st_size;
  return PX_OK;
}

px_status px__reader_read(const px__reader *reader, void *to, int64_t offset, int64_t bytes) {
  PX_CHECK(offset >= 0 && bytes >= 0 && bytes <= reader->size && offset <= reader->size - bytes,
           PX_RUNTIME, "'%s' is truncated: %lld bytes are due at offset %lld, but it has %lld",
           reader->path, (long long)bytes, (long long)offset, (long long)reader->size);
  if (reader->memory) {
    if (bytes) memcpy(to, reader->memory + offset, (size_t)bytes);
    return PX_OK;
  }
  for (int64_t done = 0; done < bytes;) {
    ssize_t got = fault() ? -1
                          : pread(reader->descriptor, (char *)to + done, (size_t)(bytes - done),
                                  offset + done);
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

px__writer px__writer_memory(void) {
  return (px__writer){.descriptor = -1, .in_memory = true, .path = "memory"};
}

px_status px__writer_open(px__writer *writer, const char *path) {
  static unsigned writers;  // atomic: threads that write to one path do not meet in one file
  *writer = (px__writer){.descriptor = -1, .path = path};
  size_t room = strlen(path) + 48;
  PX_TRY(px_alloc((void **)&writer->temporary, room));
  snprintf(writer->temporary, room, "%s.%ld.%u.tmp", path, (long)getpid(),
           __atomic_fetch_add(&writers, 1, __ATOMIC_RELAXED));
  unlink(writer->temporary);  // of a process of this number that died
  int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  writer->descriptor = fault() ? -1 : open(writer->temporary, flags, 0666);
  if (writer->descriptor < 0 && errno == ENOENT)
    return px_error_set(PX_NOT_FOUND, ENOENT, __FILE__, __LINE__, __func__,
                        "[Errno 2] No such file or directory: '%s'", path);
  if (writer->descriptor < 0) PX_FAIL_ERRNO(PX_IO, "cannot create", writer->temporary);
  return PX_OK;
}

static px_status gather(px__writer *writer, const void *from, size_t bytes) {
  if (bytes > writer->room - writer->length) {
    size_t room = 2 * writer->room + bytes;
    PX_TRY(px_realloc((void **)&writer->memory, room));
    writer->room = room;
  }
  if (bytes) memcpy(writer->memory + writer->length, from, bytes);
  writer->length += bytes;
  return PX_OK;
}

px_status px__writer_write(px__writer *writer, const void *from, size_t bytes) {
  if (writer->in_memory) return gather(writer, from, bytes);
  for (size_t done = 0; done < bytes;) {
    ssize_t put = fault() ? -1 : write(writer->descriptor, (const char *)from + done, bytes - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) PX_FAIL_ERRNO(PX_IO, "cannot write", writer->temporary);
    done += (size_t)put;
  }
  return PX_OK;
}

// Makes the new name durable. A failure here is not an error: the file's contents are safe already.
static void sync_folder(const char *path) {
  char folder[4096];
  const char *slash = strrchr(path, '/');
  if (slash && slash - path >= (long)sizeof folder) return;
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
  int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  (void)!fsync(descriptor);
  close(descriptor);
}

px_status px__writer_commit(px__writer *writer) {
  if (writer->in_memory) return PX_OK;
  if (fault() || fdatasync(writer->descriptor) != 0)
    PX_FAIL_ERRNO(PX_IO, "cannot flush", writer->temporary);
  int descriptor = writer->descriptor;
  writer->descriptor = -1;
  if (close(descriptor) != 0) PX_FAIL_ERRNO(PX_IO, "cannot close", writer->temporary);
  if (fault() || rename(writer->temporary, writer->path) != 0)
    PX_FAIL_ERRNO(PX_IO, "cannot rename to", writer->path);
  sync_folder(writer->path);
  px_free(writer->temporary);
  writer->temporary = NULL;
  return PX_OK;
}

void px__writer_abandon(px__writer *writer) {
  if (writer->descriptor >= 0) close(writer->descriptor);
  if (writer->temporary) unlink(writer->temporary);
  px_free(writer->temporary);
  px_free(writer->memory);
  *writer = (px__writer){.descriptor = -1};
}
