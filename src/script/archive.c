// SPDX-License-Identifier: Apache-2.0
// The zip container of TorchScript. The bytes are untrusted: each offset and size is checked.
#include <errno.h>
#include <stdio.h>

#include "script/script_impl.h"

enum { LOCAL = 30, CENTRAL = 46, END = 22, STORED = 0, DEFLATED = 8, COMMENT = 65535 };

static size_t number(const unsigned char *at, int bytes) {
  size_t made = 0;
  for (int i = bytes - 1; i >= 0; i--) made = made << 8 | at[i];
  return made;
}

#define FAIL_ARCHIVE(what) \
  PX_FAIL(PX_RUNTIME, "PytorchStreamReader failed reading zip archive: %s", (what))

// Finds the end record from behind, and in it the directory.
static px_status find_directory(const px__archive *a, size_t *at, size_t *count) {
  size_t lowest = a->length > END + COMMENT ? a->length - END - COMMENT : 0;
  for (size_t end = a->length >= END ? a->length - END + 1 : 0; end > lowest; end--) {
    const unsigned char *record = a->bytes + end - 1;
    if (memcmp(record, "PK\5\6", 4)) continue;
    *count = number(record + 10, 2);
    *at = number(record + 16, 4);
    // Larger archives have the numbers in a second record before this one.
    const unsigned char *locator = end > 20 ? record - 20 : NULL;
    if (locator && !memcmp(locator, "PK\6\7", 4)) {
      size_t wide = number(locator + 8, 8);
      if (wide > a->length - END || a->length - wide < 56 || memcmp(a->bytes + wide, "PK\6\6", 4))
        FAIL_ARCHIVE("invalid zip64 record");
      *count = number(a->bytes + wide + 32, 8);
      *at = number(a->bytes + wide + 48, 8);
    }
    if (*at > a->length || *count > (a->length - *at) / CENTRAL)
      FAIL_ARCHIVE("invalid central directory");
    return PX_OK;
  }
  FAIL_ARCHIVE("failed finding central directory");
}

// Replaces sizes of all ones by those of the zip64 field.
static void read_wide(px__record *record, const unsigned char *extra, size_t length) {
  while (length >= 4) {
    size_t bytes = number(extra + 2, 2);
    if (bytes > length - 4) return;
    const unsigned char *at = extra + 4, *end = at + bytes;
    size_t *fields[] = {&record->size, &record->packed, &record->offset};
    for (int i = 0; number(extra, 2) == 1 && i < 3; i++)
      if (*fields[i] == UINT32_MAX && end - at >= 8) *fields[i] = number(at, 8), at += 8;
    extra = end;
    length -= 4 + bytes;
  }
}

// Moves a record's offset from its local header to its data.
static px_status locate(const px__archive *a, px__record *record) {
  const unsigned char *local = a->bytes + record->offset;
  if (record->offset > a->length || a->length - record->offset < LOCAL ||
      memcmp(local, "PK\3\4", 4))
    FAIL_ARCHIVE("invalid header or archive is corrupted");
  size_t skip = LOCAL + number(local + 26, 2) + number(local + 28, 2);
  if (skip > a->length - record->offset) FAIL_ARCHIVE("file read failed");
  record->offset += skip;
  if (record->packed > a->length - record->offset) FAIL_ARCHIVE("file read failed");
  if (!record->deflated && record->packed != record->size) FAIL_ARCHIVE("file read failed");
  return PX_OK;
}

static px_status read_record(px__archive *a, px__record *out, size_t *at) {
  const unsigned char *entry = a->bytes + *at;
  if (*at > a->length || a->length - *at < CENTRAL || memcmp(entry, "PK\1\2", 4))
    FAIL_ARCHIVE("invalid central directory");
  size_t name = number(entry + 28, 2), extra = number(entry + 30, 2);
  size_t whole = CENTRAL + name + extra + number(entry + 32, 2), method = number(entry + 10, 2);
  if (whole > a->length - *at) FAIL_ARCHIVE("invalid central directory");
  if ((method != STORED && method != DEFLATED) || number(entry + 8, 2) & 1)
    FAIL_ARCHIVE("unsupported method or encryption");
  *out = (px__record){.name = (const char *)entry + CENTRAL,
                      .name_length = name,
                      .check = (uint32_t)number(entry + 16, 4),
                      .packed = number(entry + 20, 4),
                      .size = number(entry + 24, 4),
                      .offset = number(entry + 42, 4),
                      .deflated = method == DEFLATED};
  read_wide(out, entry + CENTRAL + name, extra);
  const char *slash = memchr(out->name, '/', name);
  if (slash) out->name_length -= (size_t)(slash + 1 - out->name), out->name = slash + 1;
  *at += whole;
  return locate(a, out);
}

static px_status read_directory(px__archive *a) {
  size_t at = 0, count = 0;
  PX_TRY(find_directory(a, &at, &count));
  PX_TRY(px_alloc((void **)&a->records, (count + 1) * sizeof *a->records));
  for (; (size_t)a->count < count; a->count++) PX_TRY(read_record(a, &a->records[a->count], &at));
  a->left = 64 * a->length + (1 << 20);  // text deflates to about a tenth
  return PX_OK;
}

static px_status read_file(px__archive *a, FILE *file, const char *path) {
  long length = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
  if (length < 0 || fseek(file, 0, SEEK_SET) || px_fault_check("file"))
    return px_error_set(PX_IO, errno, __FILE__, __LINE__, __func__, "cannot read '%s': %s", path,
                        strerror(errno));
  PX_TRY(px_alloc((void **)&a->bytes, (size_t)length + 1));
  a->length = fread(a->bytes, 1, (size_t)length, file);
  PX_CHECK(a->length == (size_t)length, PX_IO, "cannot read '%s': it ended early", path);
  return PX_OK;
}

px_status px__archive_open(px__archive *out, const char *path) {
  FILE *file = fopen(path, "rbe");
  if (!file)
    return px_error_set(errno == ENOENT ? PX_NOT_FOUND : PX_IO, errno, __FILE__, __LINE__, __func__,
                        "The provided filename %s does not exist or cannot be read: %s", path,
                        strerror(errno));
  px_status status = read_file(out, file, path);
  fclose(file);
  return status == PX_OK ? read_directory(out) : status;
}

px_status px__archive_copy(px__archive *out, const void *bytes, size_t length) {
  PX_TRY(px_alloc((void **)&out->bytes, length + 1));
  if (length) memcpy(out->bytes, bytes, length);
  out->length = length;
  return read_directory(out);
}

const px__record *px__archive_find(const px__archive *a, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < a->count; i++)
    if (a->records[i].name_length == length && !memcmp(a->records[i].name, name, length))
      return &a->records[i];
  return NULL;
}

static uint32_t crc(const unsigned char *bytes, size_t length) {
  static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                     0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                     0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  uint32_t made = ~0u;
  for (size_t i = 0; i < length; i++) {
    made = table[(made ^ bytes[i]) & 15] ^ made >> 4;
    made = table[(made ^ (uint32_t)(bytes[i] >> 4)) & 15] ^ made >> 4;
  }
  return ~made;
}

px_status px__archive_read(char **out, px__archive *a, const px__record *record) {
  char *made;
  if (record->size > a->left) FAIL_ARCHIVE("its records are larger than the archive allows");
  a->left -= record->size;
  PX_TRY(px_alloc((void **)&made, record->size + 1));
  px_status status = PX_OK;
  if (record->deflated)
    status = px__inflate(made, record->size, a->bytes + record->offset, record->packed);
  else
    memcpy(made, a->bytes + record->offset, record->size);
  bool damaged = record->check && record->check != crc((unsigned char *)made, record->size);
  if (status == PX_OK && !damaged) return *out = made, PX_OK;
  px_free(made);
  PX_TRY(status);
  FAIL_ARCHIVE("CRC-32 check failed");
}

void px__archive_close(px__archive *a) {
  px_free(a->bytes);
  px_free(a->records);
  *a = (px__archive){0};
}
