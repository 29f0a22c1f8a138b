// SPDX-License-Identifier: Apache-2.0
// Files for the formats of this folder: whole reads that are checked, writes that leave the old
// file or the new one. And what the files of this folder share.
#pragma once
#include <json-c/json.h>

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

// Whether the fault point "file" fails this call of the system; errno says EIO then.
bool px__file_fault(void);
#define PX_FAIL_ERRNO(code, what, path) \
  return px_error_set((code), errno, __FILE__, __LINE__, __func__, "%s: '%s': %s", (what), (path), \
                      strerror(errno))

// A file being written: beside its final place, whose name it gets by `commit`; or in place, where
// that would break what the name is. `abandon` may follow a failure anywhere, and commit.
typedef struct px__writer {
  int descriptor;
  bool in_memory;  // the bytes gather in `memory`, which commit leaves to the caller
  char *memory;
  size_t length, room;
  char *temporary, *target;  // both NULL where it is written in place
  const char *path;
} px__writer;
px__writer px__writer_memory(void);
px_status px__writer_open(px__writer *writer, const char *path) __attribute__((warn_unused_result));
px_status px__writer_write(px__writer *writer, const void *from, size_t bytes)
    __attribute__((warn_unused_result));
px_status px__writer_commit(px__writer *writer) __attribute__((warn_unused_result));
void px__writer_abandon(px__writer *writer);

#define PX__METADATA "__metadata__"
#define PX__STRUCTURE "phlox.structure"     // the metadata that holds a tree's structure
const char *px__type_name(px_dtype dtype);  // as files have it, "F32"; NULL: they lack it

// A cursor over the JSON text of a file, in which the texts that are read are decoded where they
// stand. `of` says in messages what cannot be read.
typedef struct px__json {
  char *text;  // a zero stands behind it
  size_t length, at;
  const char *path, *of;
  bool first;  // no part of the object or array at hand has been read
  json_tokener *parser;
} px__json;
// Goes to the next value, and says how it begins; 0 at the end.
char px__json_peek(px__json *json);
// Steps into an object or array, and on to its next part; *more is false past the last one.
px_status px__json_begin(px__json *json, char bracket) __attribute__((warn_unused_result));
px_status px__json_more(px__json *json, char bracket, bool *more)
    __attribute__((warn_unused_result));
// Reads a value of at most `limit` bytes, for json_object_put; NULL with PX_OK for null.
px_status px__json_value(json_object **out, px__json *json, size_t limit)
    __attribute__((warn_unused_result));
px_status px__json_skip(px__json *json) __attribute__((warn_unused_result));
// Reads a text of at most `limit` bytes, which *out borrows from the cursor's; NULL for any other
// value.
px_status px__json_text(const char **out, px__json *json, size_t limit)
    __attribute__((warn_unused_result));
// Reads a member's name likewise, and stops before its value.
px_status px__json_key(const char **out, px__json *json) __attribute__((warn_unused_result));
// Steps over a text without decoding it.
px_status px__json_skip_text(px__json *json) __attribute__((warn_unused_result));
// Reads an array of numbers from 0 on, `room` of them into `out`; any other part is below 0.
// *count tells how many there are; -1 for a value that is no array.
px_status px__json_sizes(int64_t *out, int room, int *count, px__json *json)
    __attribute__((warn_unused_result));
// Nothing but blanks follows.
px_status px__json_end(px__json *json) __attribute__((warn_unused_result));
void px__json_close(px__json *json);

// Writes JSON, and the commas in it. `open` and `shut` take brackets. PX_VALUE for a text that is
// not UTF-8.
typedef struct px__json_writer {
  px__writer *to;
  bool first, after_key;
  json_tokener *parser;
} px__json_writer;
px_status px__json_open(px__json_writer *w, char bracket) __attribute__((warn_unused_result));
px_status px__json_shut(px__json_writer *w, char bracket) __attribute__((warn_unused_result));
px_status px__json_put(px__json_writer *w, const char *literal) __attribute__((warn_unused_result));
px_status px__json_put_text(px__json_writer *w, const char *text)
    __attribute__((warn_unused_result));
px_status px__json_put_key(px__json_writer *w, const char *text)
    __attribute__((warn_unused_result));
void px__json_writer_close(px__json_writer *w);

// A tensor that was on `home` when it was written.
px_status px__tree_tensor_of(px_tree **out, px_tensor *tensor, px_device home)
    __attribute__((warn_unused_result));
// A tensor of a dtype that only files have.
px_status px__tree_foreign(px_tree **out, const char *dtype) __attribute__((warn_unused_result));
// A tree as JSON (px_free), and its tensors by the names that stand for them there; and back, which
// decodes texts where they stand.
px_status px__structure_write(char **text, px_dict *tensors, const px_tree *tree)
    __attribute__((warn_unused_result));
px_status px__structure_read(px_tree **out, char *text, const px_dict *tensors, const char *path)
    __attribute__((warn_unused_result));
