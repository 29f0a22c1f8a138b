// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes without
// gaps. https://huggingface.co/docs/safetensors
//
// A file is not trusted: lengths, counts, types and offsets are checked before anything is
// allocated for them, and what is allocated is at most the file's size.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>
#include <yajl/yajl_tree.h>

#include "io/io_impl.h"
#include "phlox/ops.h"

enum { HEADER_LIMIT = 100 << 20 };
#define STRUCTURE "phlox.structure"  // the metadata that holds a tree's structure

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

// ---- writing

static int64_t bytes_of(const px_tensor *t) {
  return px_tensor_numel(t) * (int64_t)px_dtype_size(px_tensor_dtype(t));
}

static void put_text(yajl_gen json, const char *text) {
  yajl_gen_string(json, (const unsigned char *)text, strlen(text));
}

static void put_integers(yajl_gen json, const char *name, int count, const int64_t *values) {
  put_text(json, name);
  yajl_gen_array_open(json);
  for (int i = 0; i < count; i++) yajl_gen_integer(json, values[i]);
  yajl_gen_array_close(json);
}

static void put_tensor(yajl_gen json, const px_tensor *t, int64_t begin) {
  yajl_gen_map_open(json);
  put_text(json, "dtype");
  put_text(json, type_name(px_tensor_dtype(t)));
  put_integers(json, "shape", px_tensor_ndim(t), px_tensor_sizes(t));
  put_integers(json, "data_offsets", 2, (int64_t[]){begin, begin + bytes_of(t)});
  yajl_gen_map_close(json);
}

static void put_header(yajl_gen json, const px_dict *tensors, const char *const *metadata) {
  int64_t offset = 0;
  yajl_gen_map_open(json);
  if (metadata) {
    put_text(json, PX__METADATA);
    yajl_gen_map_open(json);
    for (; *metadata; metadata++) put_text(json, *metadata);
    yajl_gen_map_close(json);
  }
  for (int64_t i = 0; i < px_dict_size(tensors); i++) {
    put_text(json, px_dict_name(tensors, i));
    put_tensor(json, px_dict_value(tensors, i), offset);
    offset += bytes_of(px_dict_value(tensors, i));
  }
  yajl_gen_map_close(json);
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

static px_status write_header(px__writer *writer, const char *text, size_t length) {
  static const char blanks[8] = "        ";
  uint64_t padded = (length + 7) / 8 * 8;
  PX_TRY(px__writer_write(writer, &padded, sizeof padded));  // little-endian, as the machine
  PX_TRY(px__writer_write(writer, text, length));
  return px__writer_write(writer, blanks, padded - length);
}

static px_status write_all(px__writer *writer, const px_dict *tensors, const char *text,
                           size_t length) {
  PX_TRY(write_header(writer, text, length));
  for (int64_t i = 0; i < px_dict_size(tensors); i++)
    PX_TRY(write_tensor(writer, px_dict_value(tensors, i)));
  return px__writer_commit(writer);
}

static px_status save(px__writer *writer, const px_dict *tensors, const char *const *metadata) {
  const unsigned char *text = NULL;
  size_t length = 0;
  PX_CHECK(!px_dict_get(tensors, PX__METADATA), PX_VALUE,
           "'%s' cannot be a tensor's name in a file", PX__METADATA);
  yajl_gen json = yajl_gen_alloc(NULL);
  PX_CHECK(json, PX_NOMEM, "out of memory while writing '%s'", writer->path);
  put_header(json, tensors, metadata);
  yajl_gen_get_buf(json, &text, &length);
  px_status status = write_all(writer, tensors, (const char *)text, length);
  yajl_gen_free(json);
  return status;
}

px_status px_save(const char *path, const px_dict *tensors, const char *const *metadata) {
  PX_GIVEN(path);
  PX_GIVEN(tensors);
  px__writer writer;
  px_status status = px__writer_open(&writer, path);
  if (status == PX_OK) status = save(&writer, tensors, metadata);
  px__writer_abandon(&writer);
  return status;
}

static px_status save_tree(px__writer *writer, const px_tree *tree) {
  PX_SCOPED(px_dict) tensors = NULL;
  char *structure = NULL;
  PX_TRY(px_dict_new(&tensors));
  PX_TRY(px__structure_write(&structure, tensors, tree));
  const char *metadata[] = {"phlox", px_version(), STRUCTURE, structure, NULL};
  px_status status = save(writer, tensors, metadata);
  px_free(structure);
  return status;
}

px_status px_save_tree(const char *path, const px_tree *tree) {
  PX_GIVEN(path);
  PX_GIVEN(tree);
  px__writer writer;
  px_status status = px__writer_open(&writer, path);
  if (status == PX_OK) status = save_tree(&writer, tree);
  px__writer_abandon(&writer);
  return status;
}

px_status px_tree_encode(void **bytes, size_t *length, const px_tree *tree) {
  PX_GIVEN(tree);
  px__writer writer = px__writer_memory();
  *bytes = NULL;
  px_status status = save_tree(&writer, tree);
  if (status == PX_OK) {
    *bytes = writer.memory;
    *length = writer.length;
    writer.memory = NULL;
  }
  px__writer_abandon(&writer);
  return status;
}

// ---- reading

typedef struct header {
  px__reader file;
  yajl_val root;
  int64_t data;  // offset of the tensors' bytes in the file
} header;

enum { DEPTH_LIMIT = 8 };

static bool size_of(yajl_val number, int64_t *out) {
  if (!YAJL_IS_INTEGER(number)) return false;
  *out = YAJL_GET_INTEGER(number);
  return *out >= 0;
}

static px_status header_parse(header *h, int64_t length) {
  char *text, wrong[256] = "it holds a zero byte";
  PX_TRY(px_alloc((void **)&text, (size_t)length + 1));
  px_status status = px__reader_read(&h->file, text, 8, length);
  bool whole = status == PX_OK && strlen(text) == (size_t)length;
  if (whole) h->root = px__json_parse(text, DEPTH_LIMIT, wrong, sizeof wrong);
  px_free(text);
  PX_TRY(status);
  PX_CHECK(YAJL_IS_OBJECT(h->root), PX_RUNTIME, "'%s': the header is not a JSON object: %s",
           h->file.path, wrong);
  h->data = 8 + length;
  return PX_OK;
}

static void header_close(header *h) {
  yajl_tree_free(h->root);
  px__reader_close(&h->file);
}

// A zip of pickles, which PyTorch writes, is worth a word of its own.
static px_status header_length(int64_t *out, const header *h) {
  unsigned char first[8] = {0};
  uint64_t length = 0;
  PX_TRY(px__reader_read(&h->file, first, 0, sizeof first));
  PX_CHECK(memcmp(first, "PK\3\4", 4), PX_RUNTIME,
           "'%s' is a zip file, as PyTorch writes it: only safetensors files are read",
           h->file.path);
  memcpy(&length, first, sizeof length);
  PX_CHECK(length <= HEADER_LIMIT && (int64_t)length <= h->file.size - 8, PX_RUNTIME,
           "'%s' is not a safetensors file: its header claims %llu bytes", h->file.path,
           (unsigned long long)length);
  *out = (int64_t)length;
  return PX_OK;
}

// Reads the header of h->file, which is open; and closes it after a failure.
static px_status header_read(header *h) {
  int64_t length = 0;
  px_status status = header_length(&length, h);
  if (status == PX_OK) status = header_parse(h, length);
  if (status != PX_OK) header_close(h);
  return status;
}

static px_status header_open(header *h, const char *path) {
  *h = (header){.file = {.descriptor = -1}};
  PX_TRY(px__reader_open(&h->file, path));
  return header_read(h);
}

typedef struct entry {
  const char *name;
  px_dtype dtype;
  int ndim;
  int64_t sizes[PX_MAX_DIMS];
  int64_t begin, end;
} entry;

// The value of a key of an object; NULL if it has none.
static yajl_val member(yajl_val object, const char *key) {
  return yajl_tree_get(object, (const char *[]){key, NULL}, yajl_t_any);
}

static px_status entry_dtype(entry *out, const char *path, yajl_val item) {
  const char *dtype = YAJL_GET_STRING(member(item, "dtype"));
  for (size_t i = 0; dtype && i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].name, dtype)) return out->dtype = types[i].dtype, PX_OK;
  PX_FAIL(PX_RUNTIME, "'%s': tensor '%.200s' has an unknown dtype", path, out->name);
}

// Sizes, and the bytes that they come to.
static px_status entry_sizes(entry *out, const char *path, yajl_val item, int64_t *bytes) {
  yajl_val shape = member(item, "shape");
  PX_CHECK(YAJL_IS_ARRAY(shape) && shape->u.array.len <= PX_MAX_DIMS, PX_RUNTIME,
           "'%s': tensor '%.200s' has no shape of at most %d sizes", path, out->name, PX_MAX_DIMS);
  *bytes = (int64_t)px_dtype_size(out->dtype);
  for (size_t i = 0; i < shape->u.array.len; i++) {
    int64_t n;
    PX_CHECK(size_of(shape->u.array.values[i], &n) && !__builtin_mul_overflow(*bytes, n, bytes),
             PX_RUNTIME, "'%s': tensor '%.200s' has an invalid size", path, out->name);
    out->sizes[out->ndim++] = n;
  }
  return PX_OK;
}

static px_status entry_parse(entry *out, const header *h, const char *name, yajl_val item) {
  const char *path = h->file.path;
  int64_t bytes = 0;
  memset(out, 0, sizeof *out);
  out->name = name;
  PX_CHECK(YAJL_IS_OBJECT(item), PX_RUNTIME, "'%s': the entry '%.200s' is not an object", path,
           name);
  PX_TRY(entry_dtype(out, path, item));
  PX_TRY(entry_sizes(out, path, item, &bytes));
  yajl_val offsets = member(item, "data_offsets");
  PX_CHECK(YAJL_IS_ARRAY(offsets) && offsets->u.array.len == 2 &&
               size_of(offsets->u.array.values[0], &out->begin) &&
               size_of(offsets->u.array.values[1], &out->end),
           PX_RUNTIME, "'%s': tensor '%.200s' has invalid data_offsets", path, name);
  PX_CHECK(out->begin <= out->end && out->end - out->begin == bytes, PX_RUNTIME,
           "'%s': tensor '%.200s' takes %lld bytes, but its data_offsets are %lld to %lld", path,
           name, (long long)bytes, (long long)out->begin, (long long)out->end);
  PX_CHECK(out->end <= h->file.size - h->data, PX_RUNTIME,
           "'%s' is truncated: tensor '%.200s' ends at byte %lld of %lld", path, name,
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

static bool is_metadata(const char *name) { return !strcmp(name, PX__METADATA); }

static px_status entries_check(const header *h) {
  entry *entries;
  int count = 0, length = (int)h->root->u.object.len;
  PX_TRY(px_alloc((void **)&entries, (size_t)length * sizeof *entries));
  px_status status = PX_OK;
  for (int i = 0; i < length && status == PX_OK; i++) {
    const char *name = h->root->u.object.keys[i];
    if (is_metadata(name)) continue;
    status = entry_parse(&entries[count++], h, name, h->root->u.object.values[i]);
  }
  if (status == PX_OK) status = names_check(h, entries, count);
  if (status == PX_OK) status = layout_check(h, entries, count);
  px_free(entries);
  return status;
}

static px_status read_tensor(px_tensor **out, const header *h, const char *name, yajl_val item,
                             px_device device) {
  entry e;
  void *room;
  PX_SCOPED(px_tensor) host = NULL;
  PX_TRY(entry_parse(&e, h, name, item));
  PX_TRY(px_tensor_empty(&host, e.ndim, e.sizes, e.dtype, px_cpu()));
  PX_TRY(px_tensor_host_data(&room, host));
  PX_TRY(px__reader_read(&h->file, room, h->data + e.begin, e.end - e.begin));
  // A bool is one byte, 0 or 1: any other would be a trap for C.
  for (int64_t i = 0; e.dtype == PX_BOOL && i < e.end - e.begin; i++)
    ((uint8_t *)room)[i] = ((uint8_t *)room)[i] != 0;
  return px_to(out, host, PX_DTYPE_NONE, device.type < 0 ? px_cpu() : device, false, false);
}

static px_status read_all(px_dict *tensors, const header *h, px_device device) {
  PX_TRY(entries_check(h));
  for (size_t i = 0; i < h->root->u.object.len; i++) {
    PX_SCOPED(px_tensor) t = NULL;
    const char *name = h->root->u.object.keys[i];
    if (is_metadata(name)) continue;
    PX_TRY(read_tensor(&t, h, name, h->root->u.object.values[i], device));
    PX_TRY(px_dict_set(tensors, name, t));
  }
  return PX_OK;
}

px_status px_load(px_dict **out, const char *path, px_device device) {
  PX_GIVEN(path);
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

static const char *metadata_of(const header *h, const char *key) {
  return YAJL_GET_STRING(member(member(h->root, PX__METADATA), key));
}

static px_status read_tree(px_tree **out, const header *h, px_device device) {
  PX_SCOPED(px_dict) tensors = NULL;
  const char *structure = metadata_of(h, STRUCTURE);
  PX_TRY(px_dict_new(&tensors));
  PX_TRY(read_all(tensors, h, device));
  if (!structure) return px_tree_from_dict(out, tensors);
  return px__structure_read(out, structure, tensors, h->file.path);
}

px_status px_load_tree(px_tree **out, const char *path, px_device device) {
  PX_GIVEN(path);
  *out = NULL;
  header h;
  PX_TRY(header_open(&h, path));
  px_status status = read_tree(out, &h, device);
  header_close(&h);
  return status;
}

px_status px_tree_decode(px_tree **out, const void *bytes, size_t length, px_device device,
                         const char *name) {
  PX_GIVEN(bytes);
  PX_GIVEN(name);
  *out = NULL;
  header h = {.file = px__reader_memory(bytes, length, name)};
  PX_TRY(header_read(&h));
  px_status status = read_tree(out, &h, device);
  header_close(&h);
  return status;
}

px_status px_load_metadata(char **out, const char *path, const char *key) {
  PX_GIVEN(path);
  PX_GIVEN(key);
  *out = NULL;
  header h;
  PX_TRY(header_open(&h, path));
  const char *value = metadata_of(&h, key);
  px_status status = PX_OK;
  if (value) {
    size_t bytes = strlen(value) + 1;
    status = px_alloc((void **)out, bytes);
    if (status == PX_OK) memcpy(*out, value, bytes);
  }
  header_close(&h);
  return status;
}
