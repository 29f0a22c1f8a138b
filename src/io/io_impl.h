// SPDX-License-Identifier: Apache-2.0
// Files for the formats of this folder: whole reads that are checked, writes that are atomic. And
// what its files share.
#pragma once
#include "phlox/io.h"

// A file open for reading; `size` is fixed at opening. All zero but `descriptor` -1 when closed.
typedef struct px__reader {
  int descriptor;
  const char *memory;  // instead of a file; borrowed
  int64_t size;
  const char *path;
} px__reader;
// A reader of bytes in memory, which `name` stands for in messages.
px__reader px__reader_memory(const void *bytes, size_t size, const char *name);
px_status px__reader_open(px__reader *reader, const char *path) __attribute__((warn_unused_result));
// Reads exactly `bytes` at `offset`; PX_RUNTIME naming the offset if the file is shorter.
px_status px__reader_read(const px__reader *reader, void *to, int64_t offset, int64_t bytes)
    __attribute__((warn_unused_result));
void px__reader_close(px__reader *reader);

// A file being written beside its final place. `commit` flushes it to the disk and gives it its
// name; `abandon` removes it and may follow a failure anywhere, also after commit.
typedef struct px__writer {
  int descriptor;
  bool in_memory;  // the bytes gather in `memory`, which commit leaves to the caller
  char *memory;
  size_t length, room;
  char *temporary;
  const char *path;
} px__writer;
px__writer px__writer_memory(void);
px_status px__writer_open(px__writer *writer, const char *path) __attribute__((warn_unused_result));
px_status px__writer_write(px__writer *writer, const void *from, size_t bytes)
    __attribute__((warn_unused_result));
px_status px__writer_commit(px__writer *writer) __attribute__((warn_unused_result));
void px__writer_abandon(px__writer *writer);

#define PX__METADATA "__metadata__"
// Parses JSON whose brackets nest no deeper than `limit`. NULL, with the reason in `wrong`, if that
// fails; the caller frees the result with yajl_tree_free.
struct yajl_val_s *px__json_parse(const char *text, int limit, char *wrong, size_t room);
// A tensor that was on `home` when it was written.
px_status px__tree_tensor_of(px_tree **out, px_tensor *tensor, px_device home)
    __attribute__((warn_unused_result));
// A tree as JSON (px_free), and its tensors by the names that stand for them there; and back.
px_status px__structure_write(char **text, px_dict *tensors, const px_tree *tree)
    __attribute__((warn_unused_result));
px_status px__structure_read(px_tree **out, const char *text, const px_dict *tensors,
                             const char *path) __attribute__((warn_unused_result));
