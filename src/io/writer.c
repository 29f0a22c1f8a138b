// SPDX-License-Identifier: Apache-2.0
// Atomic writes: after a crash the old file is intact. The replaced file keeps its mode, owner and
// links.
//
// A temporary file is locked (flock) while its writer lives. An unlocked one was left by a killed
// writer, possibly of another container sharing the folder. The next writer of the same name
// removes it.
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io_impl.h"

enum { TRIES = 16 };

px__writer px__writer_memory(void) {
  return (px__writer){.descriptor = -1, .in_memory = true, .path = "memory"};
}

// ---- names

// Length of a path's folder, including the slash; 0 for the current folder.
static int folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (int)(slash - path) + 1 : 0;
}

static int folder_open(const char *path) {
  int length = folder_length(path);
  char *folder = strndup(length ? path : ".", length ? (size_t)length : 1);
  int descriptor = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  free(folder);
  return descriptor;
}

// True if `name` is a temporary file of `base`, as "base.123.4.tmp".
static bool is_temporary(const char *name, const char *base) {
  size_t length = strlen(base);
  if (strncmp(name, base, length) != 0) return false;
  name += length;
  for (int number = 0; number < 2; number++) {
    if (*name++ != '.' || !isdigit((unsigned char)*name)) return false;
    while (isdigit((unsigned char)*name)) name++;
  }
  return !strcmp(name, ".tmp");
}

static void remove_unlocked(int folder, const char *name) {
  int descriptor = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) unlinkat(folder, name, 0);
  close(descriptor);
}

// Removes temporary files left by killed writers of this path. Failures are ignored.
static void remove_leftovers(const char *target) {
  int folder = folder_open(target);
  if (folder < 0) return;
  DIR *names = fdopendir(folder);
  if (!names) {
    close(folder);
    return;
  }
  // cppcheck-suppress readdirCalled ; no other thread reads this folder by `names`
  for (struct dirent *entry = readdir(names); entry; entry = readdir(names))
    if (is_temporary(entry->d_name, target + folder_length(target)))
      remove_unlocked(folder, entry->d_name);
  closedir(names);
}

// ---- opening

static px_status fail_to_create(const char *path) {
  if (errno == ENOENT)
    return px_error_set(PX_NOT_FOUND, ENOENT, __FILE__, __LINE__, __func__,
                        "[Errno 2] No such file or directory: '%s'", path);
  PX_FAIL_ERRNO(PX_IO, "cannot create", path);
}

static px_status open_in_place(px__writer *writer) {
  int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY;
  writer->descriptor = px__file_fault() ? -1 : open(writer->path, flags, 0666);
  return writer->descriptor < 0 ? fail_to_create(writer->path) : PX_OK;
}

// Locks the file. False if it was unlinked before: another writer may have removed it as a
// leftover.
static bool locked(int descriptor) {
  struct stat info;
  return flock(descriptor, LOCK_EX | LOCK_NB) == 0 && fstat(descriptor, &info) == 0 &&
         info.st_nlink;
}

// Opens a temporary file next to the target. Returns false with errno on failure.
static bool open_temporary(px__writer *writer, size_t capacity) {
  static unsigned writers;  // atomic: separates threads writing to the same path
  for (int i = 0; i < TRIES; i++) {
    snprintf(writer->temporary, capacity, "%s.%ld.%u.tmp", writer->target, (long)getpid(),
             __atomic_fetch_add(&writers, 1, __ATOMIC_RELAXED));
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int descriptor = px__file_fault() ? -1 : open(writer->temporary, flags, 0666);
    if (descriptor >= 0 && locked(descriptor)) {
      writer->descriptor = descriptor;
      return true;
    }
    if (descriptor < 0 && errno != EEXIST) return false;
    if (descriptor >= 0) close(descriptor);
  }
  errno = EEXIST;
  return false;
}

// Sets owner and mode of the temporary file to those of the old file.
static bool copy_attributes(int descriptor, const struct stat *old) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return false;
  bool same = info.st_uid == old->st_uid && info.st_gid == old->st_gid;
  if (!same && fchown(descriptor, old->st_uid, old->st_gid) != 0) return false;
  return fchmod(descriptor, old->st_mode & 07777) == 0;
}

static void discard_temporary(px__writer *writer) {
  if (writer->descriptor >= 0) close(writer->descriptor);
  if (writer->descriptor >= 0) unlink(writer->temporary);
  px_free(writer->temporary);
  px_free(writer->target);
  writer->temporary = writer->target = NULL;
  writer->descriptor = -1;
}

// Opens a temporary file for `target`. `old`: its metadata, or NULL if it does not exist. Writes in
// place if the folder is not writable or the owner cannot be preserved.
static px_status open_next_to(px__writer *writer, const char *target, const struct stat *old) {
  size_t capacity = strlen(target) + 48;
  PX_TRY(px_alloc((void **)&writer->target, capacity));
  memcpy(writer->target, target, strlen(target) + 1);
  PX_TRY(px_alloc((void **)&writer->temporary, capacity));
  remove_leftovers(target);
  bool opened = open_temporary(writer, capacity);
  if (opened && (!old || copy_attributes(writer->descriptor, old))) return PX_OK;
  int reason = errno;
  discard_temporary(writer);
  errno = reason;
  if (old && (reason == EACCES || reason == EPERM || reason == EROFS)) return open_in_place(writer);
  return fail_to_create(writer->path);
}

px_status px__writer_open(px__writer *writer, const char *path) {
  struct stat old;
  *writer = (px__writer){.descriptor = -1, .path = path};
  bool exists = stat(path, &old) == 0;
  if (!exists) {
    // A dangling link: create its target.
    struct stat link;
    if (lstat(path, &link) == 0) return open_in_place(writer);
    return open_next_to(writer, path, NULL);
  }
  bool replaceable = S_ISREG(old.st_mode) && old.st_nlink == 1 && access(path, W_OK) == 0;
  char *target = replaceable ? realpath(path, NULL) : NULL;
  px_status status = target ? open_next_to(writer, target, &old) : open_in_place(writer);
  free(target);
  return status;
}

// ---- writing

static px_status append_memory(px__writer *writer, const void *from, size_t bytes) {
  if (bytes > writer->capacity - writer->length) {
    size_t capacity = 2 * writer->capacity + bytes;
    PX_TRY(px_realloc((void **)&writer->memory, capacity));
    writer->capacity = capacity;
  }
  if (bytes) memcpy(writer->memory + writer->length, from, bytes);
  writer->length += bytes;
  return PX_OK;
}

px_status px__writer_write(px__writer *writer, const void *from, size_t bytes) {
  if (writer->in_memory) return append_memory(writer, from, bytes);
  for (size_t done = 0; done < bytes;) {
    ssize_t put =
        px__file_fault() ? -1 : write(writer->descriptor, (const char *)from + done, bytes - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) PX_FAIL_ERRNO(PX_IO, "cannot write", writer->path);
    done += (size_t)put;
  }
  return PX_OK;
}

// Makes the rename durable. Failures are ignored, as the file's contents are already durable.
static void sync_folder(const char *path) {
  int descriptor = folder_open(path);
  if (descriptor < 0) return;
  (void)!fsync(descriptor);
  close(descriptor);
}

// Pipes and devices have nothing to flush.
static bool flushed(int descriptor) {
  struct stat info;
  if (px__file_fault() || fstat(descriptor, &info) != 0) return false;
  return !S_ISREG(info.st_mode) || fdatasync(descriptor) == 0;
}

// Keeps the lock until the file has been renamed.
px_status px__writer_commit(px__writer *writer) {
  if (writer->in_memory) return PX_OK;
  if (!flushed(writer->descriptor)) PX_FAIL_ERRNO(PX_IO, "cannot flush", writer->path);
  if (writer->temporary) {
    if (px__file_fault() || rename(writer->temporary, writer->target) != 0)
      PX_FAIL_ERRNO(PX_IO, "cannot rename to", writer->path);
    sync_folder(writer->target);
    px_free(writer->temporary);
    writer->temporary = NULL;
  }
  int descriptor = writer->descriptor;
  writer->descriptor = -1;
  if (close(descriptor) != 0) PX_FAIL_ERRNO(PX_IO, "cannot close", writer->path);
  return PX_OK;
}

void px__writer_abandon(px__writer *writer) {
  if (writer->temporary) {
    discard_temporary(writer);
  } else if (writer->descriptor >= 0) {
    close(writer->descriptor);
  }
  px_free(writer->target);
  px_free(writer->memory);
  *writer = (px__writer){.descriptor = -1};
}

// ---- public API

struct px_file {
  px_object head;
  px__writer writer;
  char *path;
};

static void file_destroy(void *object) {
  px_file *self = object;
  px__writer_abandon(&self->writer);
  px_free(self->path);
  px_object_end(self);
  px_free(self);
}
static const px_class file_class = {"file", file_destroy};

px_status px_file_create(px_file **out, const char *path) {
  PX_GIVEN(out);
  PX_GIVEN(path);
  PX_SCOPED(px_file) self = NULL;
  *out = NULL;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  px_object_init(self, &file_class);
  self->writer.descriptor = -1;
  PX_TRY(px_strdup(&self->path, path));
  PX_TRY(px__writer_open(&self->writer, self->path));
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_file_write(px_file *self, const void *bytes, size_t length) {
  PX_GIVEN(self);
  PX_GIVEN_N(bytes, length);
  PX_CHECK(self->writer.descriptor >= 0, PX_VALUE, "'%s' is already committed", self->path);
  return px__writer_write(&self->writer, bytes, length);
}

px_status px_file_commit(px_file *self) {
  PX_GIVEN(self);
  PX_CHECK(self->writer.descriptor >= 0, PX_VALUE, "'%s' is already committed", self->path);
  return px__writer_commit(&self->writer);
}
