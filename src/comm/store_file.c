// SPDX-License-Identifier: Apache-2.0
// A store in a file. Each change is appended as a record. A request locks the file, applies the
// records appended by other processes, and is then served from the in-memory table. A truncated
// record of a killed writer is overwritten.
#include "comm/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef struct file_store {
  px_store store;
  pthread_mutex_t lock;
  int file;
  int64_t seen;  // bytes of the file already applied; `lock` guards it and the table
  px__table table;
} file_store;

static px_status io_failed(const char *what) {
  return px_error_set(PX_IO, errno, __FILE__, __LINE__, __func__, "store file: %s: %s", what,
                      strerror(errno));
}

static px_status read_all(int file, void *at, size_t size, int64_t from) {
  for (size_t done = 0; done < size;) {
    ssize_t got = pread(file, (char *)at + done, size - done, (off_t)(from + (int64_t)done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_failed("read");
    PX_CHECK(got > 0, PX_DIST_STORE, "unexpected end of the store file");
    done += (size_t)got;
  }
  return PX_OK;
}

// Applies the record at self->seen. Sets *more to false if it is incomplete or absent.
static px_status read_record(bool *more, file_store *self, int64_t size) {
  uint32_t length;
  px__bytes items[3];
  px__store_request request;
  px__response response;
  uint8_t *frame;
  *more = size - self->seen >= 4;
  if (!*more) return PX_OK;
  PX_TRY(read_all(self->file, &length, 4, self->seen));
  PX_CHECK(length >= 13 && length < PX__STORE_FRAME, PX_DIST_STORE, "the file is not a store");
  *more = size - self->seen - 4 >= length;
  if (!*more) return PX_OK;
  PX_TRY(px_alloc((void **)&frame, length));
  px_status status = read_all(self->file, frame, length, self->seen + 4);
  if (status == PX_OK && (frame[0] > PX__REQUEST_DELETE || frame[9] > 3 || frame[10] || frame[11] ||
                          frame[12] || !px__request_unpack(&request, items, frame, length)))
    status =
        px_error_set(PX_DIST_STORE, 0, __FILE__, __LINE__, __func__, "the file is not a store");
  if (status == PX_OK) status = px__table_apply(&self->table, &request, &response);
  if (status == PX_OK) px_free(response.value), self->seen += 4 + (int64_t)length;
  px_free(frame);
  return status;
}

static px_status catch_up(file_store *self) {
  off_t size = lseek(self->file, 0, SEEK_END);
  if (size < 0) return io_failed("seek");
  for (bool more = true; more;) PX_TRY(read_record(&more, self, (int64_t)size));
  return PX_OK;
}

static px_status append(file_store *self, const px__store_request *request) {
  void *frame;
  size_t size, done = 0;
  PX_TRY(px__request_pack(&frame, &size, request));
  while (done < size) {
    ssize_t put =
        pwrite(self->file, (char *)frame + done, size - done, (off_t)(self->seen + (int64_t)done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) break;
    done += (size_t)put;
  }
  px_free(frame);
  if (done < size) return io_failed("write");
  if (ftruncate(self->file, (off_t)(self->seen + (int64_t)size))) return io_failed("truncate");
  return PX_OK;
}

static px_status respond_locked(file_store *self, const px__store_request *request,
                                px__response *response) {
  PX_TRY(catch_up(self));
  bool changes = request->kind == PX__REQUEST_SET || request->kind == PX__REQUEST_ADD ||
                 request->kind == PX__REQUEST_SWAP || request->kind == PX__REQUEST_DELETE;
  if (!changes) return px__table_apply(&self->table, request, response);
  // The record is the packed request. Applying it to the table produces the response.
  PX_TRY(append(self, request));
  int64_t before = self->seen;
  PX_TRY(px__table_apply(&self->table, request, response));
  off_t size = lseek(self->file, 0, SEEK_END);
  self->seen = size < 0 ? before : (int64_t)size;
  return PX_OK;
}

static px_status file_request(px_store *store, const px__store_request *request,
                              px__response *response) {
  file_store *self = (file_store *)store;
  int64_t end = px__now_ms() + (request->kind == PX__REQUEST_AWAIT ? request->number : 0);
  px_status status;
  do {
    pthread_mutex_lock(&self->lock);
    status =
        flock(self->file, LOCK_EX) ? io_failed("lock") : respond_locked(self, request, response);
    flock(self->file, LOCK_UN);
    pthread_mutex_unlock(&self->lock);
    if (status != PX_OK || request->kind != PX__REQUEST_AWAIT || response->number) break;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  } while (px__now_ms() < end);
  return status;
}

static void file_destroy(void *object) {
  file_store *self = object;
  px__table_clear(&self->table);
  if (self->file >= 0) close(self->file);
  pthread_mutex_destroy(&self->lock);
  px_object_end(self);
  px_free(self);
}

px_status px_store_file(px_store **out, const char *path) {
  static const px_class cls = {"store", file_destroy};
  PX_GIVEN(out);
  PX_GIVEN(path);
  file_store *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  px_object_init(self, &cls);
  pthread_mutex_init(&self->lock, NULL);
  self->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  self->store.request = file_request;
  self->store.timeout_ms = 300000;
  if (self->file < 0) {
    px_status status = io_failed(path);
    px_release(self);
    return status;
  }
  *out = &self->store;
  return PX_OK;
}
