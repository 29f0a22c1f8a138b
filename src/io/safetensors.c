// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes without
// gaps. https://huggingface.co/docs/safetensors
//
// A file is not trusted: lengths, counts, types and offsets are checked before anything is
// allocated for them, and what is allocated is at most the file's size.
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_impl.h"
#include "phlox/ops.h"

enum { HEADER_LIMIT = 100 << 20 };

static const struct {
  const char *name;
  px_dtype dtype;
} types[] = {{"BOOL", PX_BOOL},   {"U8", PX_UINT8},   {"I8", PX_INT8},     {"I16", PX_INT16},
             {"I32", PX_INT32},   {"I64", PX_INT64},  {"F16", PX_FLOAT16}, {"BF16", PX_BFLOAT16},
             {"F32", PX_FLOAT32}, {"F64", PX_FLOAT64}};

static const char *type_name(px_dtype dtype) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].dtype == dtype) return types[i].name;
  return "?";
}

// cJSON takes a malloc that may fail: the library's, so that the fault tests reach it.
static void *json_alloc(size_t bytes) {
  void *memory = NULL;
  return px_alloc(&memory, bytes) == PX_OK ? memory : NULL;
}

static void json_setup(void) { cJSON_InitHooks(&(cJSON_Hooks){json_alloc, px_free}); }

// ---- writing

static cJSON *entry_json(px_tensor *t, int64_t begin, int64_t end) {
  cJSON *entry = cJSON_CreateObject();
  cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
  cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
  bool good = cJSON_AddStringToObject(entry, "dtype", type_name(px_tensor_dtype(t))) != NULL;
  for (int i = 0; i < px_tensor_ndim(t); i++)
    good &= cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)px_tensor_sizes(t)[i])) != 0;
  good &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin)) != 0;
  good &= cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)end)) != 0;
  if (good) return entry;
  cJSON_Delete(entry);
  return NULL;
}

static int64_t bytes_of(const px_tensor *t) {
  return px_tensor_numel(t) * (int64_t)px_dtype_size(px_tensor_dtype(t));
}

// The header as text, or NULL where memory is short.
static char *header_text(const px_dict *tensors, const char *const *metadata) {
  cJSON *root = cJSON_CreateObject();
  bool good = root != NULL;
  cJSON *notes = good && metadata ? cJSON_AddObjectToObject(root, "__metadata__") : NULL;
  good &= !metadata || notes != NULL;
  for (; good && metadata && *metadata; metadata += 2)
    good &= cJSON_AddStringToObject(notes, metadata[0], metadata[1]) != NULL;
  int64_t offset = 0;
  for (int64_t i = 0; good && i < px_dict_size(tensors); i++) {
    px_tensor *t = px_dict_value(tensors, i);
    cJSON *entry = entry_json(t, offset, offset + bytes_of(t));
    good &= entry && cJSON_AddItemToObject(root, px_dict_name(tensors, i), entry);
    offset += bytes_of(t);
  }
  char *text = good ? cJSON_PrintUnformatted(root) : NULL;
  cJSON_Delete(root);
  return text;
}

static px_status write_tensor(px__writer *writer, const px_tensor *t) {
  void *room;
  size_t bytes = (size_t)bytes_of(t);
  PX_TRY(px_alloc(&room, bytes));
  px_status status = px_tensor_read(t, room, bytes);
  if (status == PX_OK) status = px__writer_write(writer, room, bytes);
  px_free(room);
  return status;
}

static px_status write_header(px__writer *writer, const char *text) {
  static const char blanks[8] = "        ";
  uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
  PX_TRY(px__writer_write(writer, &padded, sizeof padded));  // little-endian, as the machine
  PX_TRY(px__writer_write(writer, text, length));
  return px__writer_write(writer, blanks, padded - length);
}

static px_status write_all(px__writer *writer, const px_dict *tensors, const char *text) {
  PX_TRY(write_header(writer, text));
  for (int64_t i = 0; i < px_dict_size(tensors); i++)
    PX_TRY(write_tensor(writer, px_dict_value(tensors, i)));
  return px__writer_commit(writer);
}

px_status px_save(const char *path, const px_dict *tensors, const char *const *metadata) {
  json_setup();
  char *text = header_text(tensors, metadata);
  PX_CHECK(text, PX_NOMEM, "out of memory while writing '%s'", path);
  px__writer writer;
  px_status status = px__writer_open(&writer, path);
  if (status == PX_OK) status = write_all(&writer, tensors, text);
  px__writer_abandon(&writer);
  px_free(text);
  return status;
}

// ---- reading

typedef struct header {
  px__reader file;
  cJSON *root;
  int64_t data;  // offset of the tensors' bytes in the file
} header;

// A JSON number as a size: an integer from 0 to 2^53, beyond which doubles skip integers.
static bool size_of(const cJSON *number, int64_t *out) {
  if (!cJSON_IsNumber(number)) return false;
  double value = number->valuedouble;
  if (!(value >= 0 && value <= 9007199254740992.0) || value != floor(value)) return false;
  *out = (int64_t)value;
  return true;
}

static px_status header_parse(header *h, int64_t length) {
  char *text;
  PX_TRY(px_alloc((void **)&text, (size_t)length + 1));
  px_status status = px__reader_read(&h->file, text, 8, length);
  if (status == PX_OK) h->root = cJSON_ParseWithLength(text, (size_t)length);
  px_free(text);
  PX_TRY(status);
  PX_CHECK(cJSON_IsObject(h->root), PX_RUNTIME, "'%s': the header is not a JSON object",
           h->file.path);
  h->data = 8 + length;
  return PX_OK;
}

static void header_close(header *h) {
  cJSON_Delete(h->root);
  px__reader_close(&h->file);
}

static px_status header_open(header *h, const char *path) {
  json_setup();
  *h = (header){.file = {.descriptor = -1}};
  PX_TRY(px__reader_open(&h->file, path));
  uint64_t length;
  px_status status = px__reader_read(&h->file, &length, 0, sizeof length);
  if (status == PX_OK && (length > HEADER_LIMIT || (int64_t)length > h->file.size - 8))
    status = px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                          "'%s' is not a safetensors file: its header claims %llu bytes", path,
                          (unsigned long long)length);
  if (status == PX_OK) status = header_parse(h, (int64_t)length);
  if (status != PX_OK) header_close(h);
  return status;
}

typedef struct entry {
  const char *name;
  px_dtype dtype;
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  int64_t begin, end;
} entry;

static px_status entry_dtype(entry *out, const char *path, const cJSON *item) {
  const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
  for (size_t i = 0; cJSON_IsString(dtype) && i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].name, dtype->valuestring)) return out->dtype = types[i].dtype, PX_OK;
  PX_FAIL(PX_RUNTIME, "'%s': tensor '%.200s' has an unknown dtype", path, item->string);
}

// Sizes, and the bytes that they come to.
static px_status entry_sizes(entry *out, const char *path, const cJSON *item, int64_t *bytes) {
  const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
  PX_CHECK(cJSON_IsArray(shape) && cJSON_GetArraySize(shape) <= PX_MAX_DIMS, PX_RUNTIME,
           "'%s': tensor '%.200s' has no shape of at most %d sizes", path, item->string,
           PX_MAX_DIMS);
  *bytes = (int64_t)px_dtype_size(out->dtype);
  const cJSON *size;
  cJSON_ArrayForEach(size, shape) {
    int64_t n;
    PX_CHECK(size_of(size, &n) && !__builtin_mul_overflow(*bytes, n, bytes), PX_RUNTIME,
             "'%s': tensor '%.200s' has an invalid size", path, item->string);
    out->sizes[out->ndim++] = n;
  }
  return PX_OK;
}

static px_status entry_parse(entry *out, const header *h, const cJSON *item) {
  const char *path = h->file.path;
  int64_t bytes;
  memset(out, 0, sizeof *out);
  out->name = item->string;
  PX_CHECK(cJSON_IsObject(item), PX_RUNTIME, "'%s': the entry '%.200s' is not an object", path,
           item->string);
  PX_TRY(entry_dtype(out, path, item));
  PX_TRY(entry_sizes(out, path, item, &bytes));
  const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
  PX_CHECK(cJSON_IsArray(offsets) && cJSON_GetArraySize(offsets) == 2 &&
               size_of(cJSON_GetArrayItem(offsets, 0), &out->begin) &&
               size_of(cJSON_GetArrayItem(offsets, 1), &out->end),
           PX_RUNTIME, "'%s': tensor '%.200s' has invalid data_offsets", path, item->string);
  PX_CHECK(out->begin <= out->end && out->end - out->begin == bytes, PX_RUNTIME,
           "'%s': tensor '%.200s' takes %lld bytes, but its data_offsets are %lld to %lld", path,
           item->string, (long long)bytes, (long long)out->begin, (long long)out->end);
  PX_CHECK(out->end <= h->file.size - h->data, PX_RUNTIME,
           "'%s' is truncated: tensor '%.200s' ends at byte %lld of %lld", path, item->string,
           (long long)out->end, (long long)(h->file.size - h->data));
  return PX_OK;
}

static int by_begin(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

// The tensors' bytes must fill the rest of the file: no holes, no overlaps, nothing after them.
static px_status layout_check(const header *h, entry *entries, int count) {
  int64_t at = 0;
  qsort(entries, (size_t)count, sizeof *entries, by_begin);
  for (int i = 0; i < count; i++) {
    PX_CHECK(entries[i].begin == at, PX_RUNTIME,
             "'%s': the tensors' bytes overlap or leave a hole at byte %lld", h->file.path,
             (long long)at);
    at = entries[i].end;
  }
  PX_CHECK(at == h->file.size - h->data, PX_RUNTIME, "'%s' has %lld bytes that no tensor owns",
           h->file.path, (long long)(h->file.size - h->data - at));
  return PX_OK;
}

static bool is_metadata(const cJSON *item) { return !strcmp(item->string, "__metadata__"); }

static int by_name(const void *a, const void *b) {
  return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static px_status names_check(const header *h, entry *entries, int count) {
  qsort(entries, (size_t)count, sizeof *entries, by_name);
  for (int i = 1; i < count; i++)
    PX_CHECK(strcmp(entries[i - 1].name, entries[i].name), PX_RUNTIME,
             "'%s': the name '%.200s' stands twice", h->file.path, entries[i].name);
  return PX_OK;
}

static px_status entries_check(const header *h) {
  entry *entries;
  int count = 0;
  PX_TRY(px_alloc((void **)&entries, (size_t)cJSON_GetArraySize(h->root) * sizeof *entries));
  px_status status = PX_OK;
  const cJSON *item;
  cJSON_ArrayForEach(item, h->root) {
    if (!is_metadata(item)) status = entry_parse(&entries[count++], h, item);
    if (status != PX_OK) break;
  }
  if (status == PX_OK) status = names_check(h, entries, count);
  if (status == PX_OK) status = layout_check(h, entries, count);
  px_free(entries);
  return status;
}

static px_status read_tensor(px_tensor **out, const header *h, const cJSON *item,
                             px_device device) {
  entry e;
  void *room;
  PX_SCOPED(px_tensor) host = NULL;
  PX_TRY(entry_parse(&e, h, item));
  PX_TRY(px_tensor_empty(&host, e.ndim, e.sizes, e.dtype, px_cpu()));
  PX_TRY(px_tensor_host_data(&room, host));
  PX_TRY(px__reader_read(&h->file, room, h->data + e.begin, e.end - e.begin));
  // A bool is one byte, 0 or 1: any other would be a trap for C.
  for (int64_t i = 0; e.dtype == PX_BOOL && i < e.end - e.begin; i++)
    ((uint8_t *)room)[i] = ((uint8_t *)room)[i] != 0;
  return px_to(out, host, PX_DTYPE_NONE, device.type < 0 ? px_cpu() : device, false, false);
}

static px_status read_all(px_dict *tensors, const header *h, px_device device) {
  const cJSON *item;
  PX_TRY(entries_check(h));
  cJSON_ArrayForEach(item, h->root) {
    PX_SCOPED(px_tensor) t = NULL;
    if (is_metadata(item)) continue;
    PX_TRY(read_tensor(&t, h, item, device));
    PX_TRY(px_dict_set(tensors, item->string, t));
  }
  return PX_OK;
}

px_status px_load(px_dict **out, const char *path, px_device device) {
  *out = NULL;
  header h;
  PX_SCOPED(px_dict) tensors = NULL;
  PX_TRY(px_dict_new(&tensors));
  PX_TRY(header_open(&h, path));
  px_status status = read_all(tensors, &h, device);
  header_close(&h);
  if (status == PX_OK) *out = PX_MOVE(tensors);
  return status;
}

px_status px_load_metadata(char **out, const char *path, const char *key) {
  *out = NULL;
  header h;
  PX_TRY(header_open(&h, path));
  const cJSON *notes = cJSON_GetObjectItemCaseSensitive(h.root, "__metadata__");
  const cJSON *value = cJSON_IsObject(notes) ? cJSON_GetObjectItemCaseSensitive(notes, key) : NULL;
  px_status status = PX_OK;
  if (cJSON_IsString(value)) {
    size_t bytes = strlen(value->valuestring) + 1;
    status = px_alloc((void **)out, bytes);
    if (status == PX_OK) memcpy(*out, value->valuestring, bytes);
  }
  header_close(&h);
  return status;
}
