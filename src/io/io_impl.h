// SPDX-License-Identifier: Apache-2.0
// Files for the formats of this folder: whole reads that are checked, writes that are atomic.
#pragma once
#include "phlox/io.h"

// A file open for reading; `size` is fixed at opening. All zero but `descriptor` -1 when closed.
typedef struct px__reader {
  int descriptor;
  int64_t size;
  const char *path;
} px__reader;
px_status px__reader_open(px__reader *reader, const char *path) __attribute__((warn_unused_result));
// Reads exactly `bytes` at `offset`; PX_RUNTIME naming the offset if the file is shorter.
px_status px__reader_read(const px__reader *reader, void *to, int64_t offset, int64_t bytes)
    __attribute__((warn_unused_result));
void px__reader_close(px__reader *reader);

// A file being written beside its final place. `commit` flushes it to the disk and gives it its
// name; `abandon` removes it and may follow a failure anywhere, also after commit.
typedef struct px__writer {
  int descriptor;
  char *temporary;
  const char *path;
} px__writer;
px_status px__writer_open(px__writer *writer, const char *path) __attribute__((warn_unused_result));
px_status px__writer_write(px__writer *writer, const void *from, size_t bytes)
    __attribute__((warn_unused_result));
px_status px__writer_commit(px__writer *writer) __attribute__((warn_unused_result));
void px__writer_abandon(px__writer *writer);
