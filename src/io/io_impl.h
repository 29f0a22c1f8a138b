// SPDX-License-Identifier: Apache-2.0
// Internal header of src/io. Files are read with all lengths checked. A write leaves either the old
// or the new file.
#pragma once
#include <json-c/json.h>

#include "phlox/io.h"

// A file open for reading. `size` is fixed at opening. When closed all fields are zero, except
// `descriptor` -1.
typedef struct px__reader {
  int descriptor;
  const char *memory;  // instead of a file; borrowed
  int64_t size;
  const char *path;
} px__reader;
// Returns a reader of bytes in memory. `name` is used in error texts.
px__reader px__reader_memory(const void *bytes, size_t size, const char *name);
px_status px__reader_open(px__reader *reader, const char *path) __attribute__((warn_unused_result));
// Reads exactly `bytes` at `offset`. Fails with PX_RUNTIME and the offset if the file is shorter.
px_status px__reader_read(const px__reader *reader, void *to, int64_t offset, int64_t bytes)
    __attribute__((warn_unused_result));
void px__reader_close(px__reader *reader);

// True if the fault point "file" makes this system call fail. Sets errno to EIO.
bool px__file_fault(void);
#define PX_FAIL_ERRNO(code, what, path) \
  return px_error_set((code), errno, __FILE__, __LINE__, __func__, "%s: '%s': %s", (what), (path), \
                      strerror(errno))

// A file being written: a temporary file next to the target, renamed by `commit`. It is written in
// place if a rename would break a link, a device or a pipe. `abandon` is allowed after a failure at
// any point, and after commit.
typedef struct px__writer {
  int descriptor;
  bool in_memory;  // bytes are collected in `memory`, which commit leaves to the caller
  char *memory;
  size_t length, capacity;
  char *temporary, *target;  // NULL if written in place
  const char *path;
} px__writer;
px__writer px__writer_memory(void);
px_status px__writer_open(px__writer *writer, const char *path) __attribute__((warn_unused_result));
px_status px__writer_write(px__writer *writer, const void *from, size_t bytes)
    __attribute__((warn_unused_result));
px_status px__writer_commit(px__writer *writer) __attribute__((warn_unused_result));
void px__writer_abandon(px__writer *writer);

#define PX__METADATA "__metadata__"
#define PX__STRUCTURE "phlox.structure"  // metadata key of a tree's structure
const char *px__type_name(
    px_dtype dtype);  // the dtype's name in files, as "F32"; NULL: unsupported

// A cursor over the JSON text of a file. Strings are decoded in place. `of` is the subject of error
// texts.
typedef struct px__json {
  char *text;  // zero-terminated
  size_t length, at;
  const char *path, *of;
  bool first;  // at the first member of the current object or array
  json_tokener *parser;
} px__json;
// Skips blanks and returns the first character of the next value; 0 at the end.
char px__json_peek(px__json *json);
// Enters an object or array; moves to its next member. *more is false past the last one.
px_status px__json_begin(px__json *json, char bracket) __attribute__((warn_unused_result));
px_status px__json_more(px__json *json, char bracket, bool *more)
    __attribute__((warn_unused_result));
// Parses a value of at most `limit` bytes. Release with json_object_put. null is NULL with PX_OK.
px_status px__json_value(json_object **out, px__json *json, size_t limit)
    __attribute__((warn_unused_result));
px_status px__json_skip(px__json *json) __attribute__((warn_unused_result));
// Reads a string of at most `limit` bytes. *out points into the cursor's text. NULL for any other
// value.
px_status px__json_text(const char **out, px__json *json, size_t limit)
    __attribute__((warn_unused_result));
// Reads a member's name in the same way and stops before its value.
px_status px__json_key(const char **out, px__json *json) __attribute__((warn_unused_result));
// Skips a string without decoding it.
px_status px__json_skip_text(px__json *json) __attribute__((warn_unused_result));
// Reads an array of integers >= 0, up to `capacity` of them into `out`; other elements are stored
// as negative values. *count is the number of elements, or -1 if the value is no array.
px_status px__json_sizes(int64_t *out, int capacity, int *count, px__json *json)
    __attribute__((warn_unused_result));
// Fails if anything but blanks follows.
px_status px__json_end(px__json *json) __attribute__((warn_unused_result));
void px__json_close(px__json *json);

// Writes JSON with commas. `open` and `shut` take brackets. Strings must be UTF-8, otherwise the
// calls fail with PX_VALUE.
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

// Returns a tensor leaf with `home` as its device at the time of writing.
px_status px__tree_tensor_of(px_tree **out, px_tensor *tensor, px_device home)
    __attribute__((warn_unused_result));
// Returns a leaf for a tensor of a dtype unsupported by Phlox.
px_status px__tree_foreign(px_tree **out, const char *dtype) __attribute__((warn_unused_result));
// Converts a tree to JSON (free with px_free) and collects its tensors by name; and back. Reading
// decodes strings in place.
px_status px__structure_write(char **text, px_dict *tensors, const px_tree *tree)
    __attribute__((warn_unused_result));
px_status px__structure_read(px_tree **out, char *text, const px_dict *tensors, const char *path)
    __attribute__((warn_unused_result));
