// SPDX-License-Identifier: Apache-2.0
// Reads the safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes
// without gaps. https://huggingface.co/docs/safetensors
//
// Files are untrusted: lengths, counts, types and offsets are checked before tensors are created.
// Memory is bounded by the file's size. Header entries are parsed one at a time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_impl.h"
#include "phlox/ops/copy.h"

enum { HEADER_LIMIT = 100 << 20, WINDOW = 1 << 16 };

const char *px__type_name(px_dtype dtype) {
  const px_dtype_info *about = px_dtype_about(dtype);
  return about ? about->safetensors : NULL;
}

// ---- entries

// A tensor's header entry. Strings point into the header's text.
typedef struct entry {
  const char *name;
  const char *foreign;  // name of a dtype unsupported by Phlox, or NULL
  px_dtype dtype;
  int ndim;
  size_t sizes;  // index of the first size in the header's `sizes`
  int64_t begin, end;
} entry;

typedef struct header {
  px__reader file;
  char *text;
  int64_t data;               // offset of the tensors' bytes in the file
  px__writer entries, sizes;  // growing arrays of entry and of int64_t
  char *window;               // read buffer of WINDOW bytes; allocated on first use
  int64_t begin, end, next;   // range of the file in the window; end of the last read
  const char *key;            // metadata key to look up, or NULL
  char *found;                // its value, or NULL
} header;

enum { DTYPE_LIMIT = 1 << 13 };

// An entry as parsed; see px__json_sizes for invalid values.
typedef struct described {
  const char *dtype;
  int ndim, ends;
  int64_t sizes[PX_MAX_DIMS], offsets[2];
} described;

static const entry *entry_at(const header *h, size_t i) {
  return (const entry *)(const void *)h->entries.memory + i;
}
static size_t entry_count(const header *h) { return h->entries.length / sizeof(entry); }
static const int64_t *sizes_of(const header *h, const entry *e) {
  return (const int64_t *)(const void *)h->sizes.memory + e->sizes;
}

static px_status described_member(described *d, const char *key, px__json *json) {
  if (!strcmp(key, "dtype")) return px__json_text(&d->dtype, json, DTYPE_LIMIT);
  if (!strcmp(key, "shape")) return px__json_sizes(d->sizes, PX_MAX_DIMS, &d->ndim, json);
  if (!strcmp(key, "data_offsets")) return px__json_sizes(d->offsets, 2, &d->ends, json);
  return px__json_skip(json);
}

static px_status described_read(described *d, px__json *json) {
  bool more;
  const char *key;
  PX_TRY(px__json_begin(json, '{'));
  for (;;) {
    PX_TRY(px__json_more(json, '}', &more));
    if (!more) return PX_OK;
    PX_TRY(px__json_key(&key, json));
    PX_TRY(described_member(d, key, json));
  }
}

// An unsupported dtype is recorded, so that the other tensors can still be loaded.
static px_status entry_dtype(entry *out, const header *h, const described *d) {
  PX_CHECK(d->dtype, PX_RUNTIME, "'%s': tensor '%.200s' has an unknown dtype", h->file.path,
           out->name);
  const entry *before = entry_count(h) ? entry_at(h, entry_count(h) - 1) : NULL;
  if (before && !before->foreign && !strcmp(px__type_name(before->dtype), d->dtype))
    return out->dtype = before->dtype, PX_OK;
  for (int i = 0; i < PX_DTYPE_COUNT; i++) {
    const char *own = px__type_name((px_dtype)i);
    if (own && !strcmp(own, d->dtype)) return out->dtype = (px_dtype)i, PX_OK;
  }
  out->dtype = PX_DTYPE_NONE;
  out->foreign = d->dtype;
  return PX_OK;
}

// Reads sizes and computes the size in bytes; for a foreign dtype the number of elements.
static px_status entry_sizes(entry *out, header *h, const described *d, int64_t *bytes) {
  PX_CHECK(d->ndim >= 0 && d->ndim <= PX_MAX_DIMS, PX_RUNTIME,
           "'%s': tensor '%.200s' has no valid shape of at most %d sizes", h->file.path, out->name,
           PX_MAX_DIMS);
  *bytes = out->foreign ? 1 : (int64_t)px_dtype_size(out->dtype);
  out->ndim = d->ndim;
  out->sizes = h->sizes.length / sizeof(int64_t);
  for (int i = 0; i < out->ndim; i++)
    PX_CHECK(d->sizes[i] >= 0 && !__builtin_mul_overflow(*bytes, d->sizes[i], bytes), PX_RUNTIME,
             "'%s': tensor '%.200s' has an invalid size", h->file.path, out->name);
  return px__writer_write(&h->sizes, d->sizes, (size_t)out->ndim * sizeof *d->sizes);
}

static px_status entry_offsets(entry *out, const header *h, const described *d, int64_t bytes) {
  out->begin = d->offsets[0];
  out->end = d->offsets[1];
  PX_CHECK(d->ends == 2 && out->begin >= 0 && out->end >= 0, PX_RUNTIME,
           "'%s': tensor '%.200s' has invalid data_offsets", h->file.path, out->name);
  PX_CHECK(out->begin <= out->end && (out->foreign || out->end - out->begin == bytes), PX_RUNTIME,
           "'%s': tensor '%.200s' has %lld bytes, but its data_offsets are %lld to %lld",
           h->file.path, out->name, (long long)bytes, (long long)out->begin, (long long)out->end);
  PX_CHECK(out->end <= h->file.size - h->data, PX_RUNTIME,
           "'%s' is truncated: tensor '%.200s' ends at byte %lld of %lld", h->file.path, out->name,
           (long long)out->end, (long long)(h->file.size - h->data));
  return PX_OK;
}

static px_status entry_read(header *h, const char *name, px__json *json) {
  entry e = {.name = name};
  described d = {.ndim = -1, .ends = -1};
  int64_t bytes = 0;
  if (px__json_peek(json) != '{') {
    PX_TRY(px__json_skip(json));
    PX_FAIL(PX_RUNTIME, "'%s': the entry '%.200s' is not an object", h->file.path, name);
  }
  PX_TRY(described_read(&d, json));
  PX_TRY(entry_dtype(&e, h, &d));
  PX_TRY(entry_sizes(&e, h, &d, &bytes));
  PX_TRY(entry_offsets(&e, h, &d, bytes));
  return px__writer_write(&h->entries, &e, sizeof e);
}

// ---- the header

static px_status metadata_value(header *h, px__json *json, bool selected) {
  const char *text;
  if (px__json_peek(json) != '"') return px__json_skip(json);
  if (!selected) return px__json_skip_text(json);
  PX_TRY(px__json_text(&text, json, json->length));
  h->found = text ? json->text + (text - json->text) : NULL;
  return PX_OK;
}

static px_status metadata_read(header *h, px__json *json) {
  const char *name;
  bool more;
  if (px__json_peek(json) != '{') return metadata_value(h, json, false);
  PX_TRY(px__json_begin(json, '{'));
  for (;;) {
    PX_TRY(px__json_more(json, '}', &more));
    if (!more) return PX_OK;
    PX_TRY(px__json_key(&name, json));
    PX_TRY(metadata_value(h, json, h->key && !strcmp(name, h->key)));
  }
}

static px_status members_read(header *h, px__json *json) {
  const char *name;
  bool more;
  PX_TRY(px__json_begin(json, '{'));
  for (;;) {
    PX_TRY(px__json_more(json, '}', &more));
    if (!more) return px__json_end(json);
    PX_TRY(px__json_key(&name, json));
    PX_TRY(strcmp(name, PX__METADATA) ? entry_read(h, name, json) : metadata_read(h, json));
  }
}

// Zip files of pickles (PyTorch's format) get an error text of their own.
static px_status header_length(int64_t *out, const header *h) {
  unsigned char first[8] = {0};
  uint64_t length = 0;
  PX_TRY(px__reader_read(&h->file, first, 0, sizeof first));
  PX_CHECK(memcmp(first, "PK\3\4", 4), PX_RUNTIME,
           "'%s' is a zip file, as PyTorch writes it: expected a safetensors file", h->file.path);
  memcpy(&length, first, sizeof length);
  PX_CHECK(length <= HEADER_LIMIT && (int64_t)length <= h->file.size - 8, PX_RUNTIME,
           "'%s' is not a safetensors file: its header length is %llu bytes", h->file.path,
           (unsigned long long)length);
  *out = (int64_t)length;
  return PX_OK;
}

static void header_close(header *h) {
  px_free(h->text);
  px_free(h->window);
  px__writer_abandon(&h->entries);
  px__writer_abandon(&h->sizes);
  px__reader_close(&h->file);
}

static px_status header_parse(header *h) {
  int64_t length = 0;
  PX_TRY(header_length(&length, h));
  PX_TRY(px_alloc((void **)&h->text, (size_t)length + 1));
  PX_TRY(px__reader_read(&h->file, h->text, 8, length));
  h->data = 8 + length;
  px__json json = {.text = h->text,
                   .length = (size_t)length,
                   .path = h->file.path,
                   .of = "the header is not a JSON object"};
  px_status status = members_read(h, &json);
  px__json_close(&json);
  return status;
}

// Reads the header of a file and takes the file. Closes it on failure.
static px_status header_read(header *h, px__reader file, const char *key) {
  *h = (header){
      .file = file, .entries = px__writer_memory(), .sizes = px__writer_memory(), .key = key};
  px_status status = header_parse(h);
  if (status != PX_OK) header_close(h);
  return status;
}

static px_status header_open(header *h, const char *path, const char *key) {
  px__reader file;
  PX_TRY(px__reader_open(&file, path));
  return header_read(h, file, key);
}

// ---- the tensors

typedef struct range {
  int64_t begin, end;
} range;

static int by_begin(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static bool in_order(const header *h) {
  int64_t at = 0;
  for (size_t i = 0; i < entry_count(h); at = entry_at(h, i++)->end)
    if (entry_at(h, i)->begin != at) return false;
  return true;
}

static px_status ranges_check(const header *h, range *ranges, size_t count) {
  int64_t at = 0;
  for (size_t i = 0; i < count; i++)
    ranges[i] = (range){entry_at(h, i)->begin, entry_at(h, i)->end};
  qsort(ranges, count, sizeof *ranges, by_begin);
  for (size_t i = 0; i < count; at = ranges[i++].end)
    PX_CHECK(ranges[i].begin == at, PX_RUNTIME,
             "'%s': the tensors' bytes overlap or leave a hole at byte %lld", h->file.path,
             (long long)at);
  return PX_OK;
}

// Tensor bytes must fill the rest of the file: no gaps, no overlaps, no trailing bytes.
static px_status layout_check(const header *h) {
  size_t count = entry_count(h);
  int64_t owned = 0;
  for (size_t i = 0; i < count; i++)
    if (entry_at(h, i)->end > owned) owned = entry_at(h, i)->end;
  if (!in_order(h)) {
    range *ranges;
    PX_TRY(px_alloc((void **)&ranges, count * sizeof *ranges));
    px_status status = ranges_check(h, ranges, count);
    px_free(ranges);
    PX_TRY(status);
  }
  PX_CHECK(owned == h->file.size - h->data, PX_RUNTIME, "'%s' has %lld trailing bytes",
           h->file.path, (long long)(h->file.size - h->data - owned));
  return PX_OK;
}

// Consecutive small tensors are read through a buffer: one system call costs more than all other
// work for a small tensor.
static px_status read_data(header *h, void *to, int64_t at, int64_t bytes) {
  bool follows = at == h->next;
  h->next = at + bytes;
  if (!bytes) return PX_OK;
  if (h->file.memory || !follows || bytes > WINDOW / 8)
    return px__reader_read(&h->file, to, at, bytes);
  if (at < h->begin || at + bytes > h->end) {
    int64_t rest = h->file.size - at;
    if (!h->window) PX_TRY(px_alloc((void **)&h->window, WINDOW));
    h->begin = h->end = at;
    PX_TRY(px__reader_read(&h->file, h->window, at, rest < WINDOW ? rest : WINDOW));
    h->end = rest < WINDOW ? h->file.size : at + WINDOW;
  }
  memcpy(to, h->window + (at - h->begin), (size_t)bytes);
  return PX_OK;
}

static px_status read_tensor(px_tensor **out, header *h, const entry *e, px_device device) {
  void *data;
  PX_SCOPED(px_tensor) host = NULL;
  PX_TRY(px_tensor_empty(&host, e->ndim, sizes_of(h, e), e->dtype, px_cpu()));
  PX_TRY(px_tensor_host_data(&data, host));
  PX_TRY(read_data(h, data, h->data + e->begin, e->end - e->begin));
  // Bools must be 0 or 1; other values are undefined behaviour in C.
  for (int64_t i = 0; e->dtype == PX_BOOL && i < e->end - e->begin; i++)
    ((uint8_t *)data)[i] = ((uint8_t *)data)[i] != 0;
  if (device.type < 0) return *out = PX_MOVE(host), PX_OK;
  return px_to(out, host, PX_DTYPE_NONE, device, false, false);
}

// Adds an entry's tensor to the dict. *duplicate: the name was present already.
static px_status read_entry(bool *duplicate, px_dict *tensors, header *h, const entry *e,
                            px_device device) {
  PX_SCOPED(px_tensor) t = NULL;
  int64_t before = px_dict_size(tensors);
  if (e->foreign) return *duplicate = px_dict_get(tensors, e->name), PX_OK;
  PX_TRY(read_tensor(&t, h, e, device));
  PX_TRY(px_dict_set(tensors, e->name, t));
  *duplicate = px_dict_size(tensors) == before;
  return PX_OK;
}

static px_status read_all(px_dict *tensors, header *h, px_device device) {
  PX_TRY(layout_check(h));
  for (size_t i = 0; i < entry_count(h); i++) {
    bool duplicate = false;
    const entry *e = entry_at(h, i);
    PX_TRY(read_entry(&duplicate, tensors, h, e, device));
    PX_CHECK(!duplicate, PX_RUNTIME, "'%s': duplicate name '%.200s'", h->file.path, e->name);
  }
  return PX_OK;
}

px_status px_load(px_dict **out, const char *path, px_device device) {
  PX_GIVEN(out);
  PX_GIVEN(path);
  *out = NULL;
  header h;
  PX_SCOPED(px_dict) tensors = NULL;
  PX_TRY(px_dict_new(&tensors));
  PX_TRY(header_open(&h, path, NULL));
  px_status status = read_all(tensors, &h, device);
  header_close(&h);
  if (status == PX_OK) *out = PX_MOVE(tensors);
  return status;
}

// A file without a structure is loaded as a dict of its tensors.
static px_status plain_tree(px_tree **out, const header *h, const px_dict *tensors) {
  PX_SCOPED(px_tree) made = NULL;
  PX_TRY(px_tree_new(&made, PX_TREE_DICT));
  for (size_t i = 0; i < entry_count(h); i++) {
    PX_SCOPED(px_tree) part = NULL;
    const entry *e = entry_at(h, i);
    if (e->foreign)
      PX_TRY(px__tree_foreign(&part, e->foreign));
    else
      PX_TRY(px_tree_tensor(&part, px_dict_get(tensors, e->name)));
    PX_TRY(px_tree_set(made, e->name, part));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

// Reads the tree of an open file and closes the file.
static px_status read_tree(px_tree **out, px__reader file, px_device device) {
  header h;
  PX_SCOPED(px_dict) tensors = NULL;
  PX_TRY(header_read(&h, file, PX__STRUCTURE));
  px_status status = px_dict_new(&tensors);
  if (status == PX_OK) status = read_all(tensors, &h, device);
  if (status == PX_OK)
    status = h.found ? px__structure_read(out, h.found, tensors, h.file.path)
                     : plain_tree(out, &h, tensors);
  header_close(&h);
  return status;
}

px_status px_load_tree(px_tree **out, const char *path, px_device device) {
  PX_GIVEN(out);
  PX_GIVEN(path);
  px__reader file;
  *out = NULL;
  PX_TRY(px__reader_open(&file, path));
  return read_tree(out, file, device);
}

px_status px_tree_decode(px_tree **out, const void *bytes, size_t length, px_device device,
                         const char *name) {
  PX_GIVEN(out);
  PX_GIVEN(bytes);
  PX_GIVEN(name);
  *out = NULL;
  return read_tree(out, px__reader_memory(bytes, length, name), device);
}

px_status px_load_metadata(char **out, const char *path, const char *key) {
  PX_GIVEN(out);
  PX_GIVEN(path);
  PX_GIVEN(key);
  *out = NULL;
  header h;
  PX_TRY(header_open(&h, path, key));
  px_status status = h.found ? px_strdup(out, h.found) : PX_OK;
  header_close(&h);
  return status;
}
