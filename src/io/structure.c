// SPDX-License-Identifier: Apache-2.0
// The structure of a tree as JSON, stored in a file with its tensors.
//
// null, booleans, numbers and strings represent themselves. A dict with string keys is an object.
// Everything else is an array starting with a tag: ["list", 1, 2], ["tuple", ...], ["size", 3, 4],
// ["dict", [key, value], ...], ["ordered", [key, value], ...], ["float", "nan"],
// ["dtype", "float32"], ["device", "cuda:0"], and ["tensor", NAME, DEVICE] for the file's tensor of
// that name. A tensor has a further element "grad", "parameter" or "frozen" if applicable.
//
// Input is untrusted: depth, tags, numbers and names are checked. The tree is built while reading,
// without an intermediate JSON document.
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_impl.h"

enum { PATH_SIZE = 256, NUMBER_SIZE = 40 };

static const struct {
  const char *tag;
  px_tree_kind kind;
} tags[] = {{"list", PX_TREE_LIST},   {"tuple", PX_TREE_TUPLE},     {"size", PX_TREE_SIZE},
            {"dict", PX_TREE_DICT},   {"ordered", PX_TREE_ORDERED}, {"float", PX_TREE_NUMBER},
            {"dtype", PX_TREE_DTYPE}, {"device", PX_TREE_DEVICE},   {"tensor", PX_TREE_TENSOR}};
enum { TAGS = sizeof tags / sizeof *tags };

// The C locale: numbers use a decimal point independent of the program's locale.
static locale_t plain_locale(void) {
  static locale_t plain;
  locale_t known = __atomic_load_n(&plain, __ATOMIC_ACQUIRE);
  if (known) return known;
  known = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  locale_t none = (locale_t)0;
  if (__atomic_compare_exchange_n(&plain, &none, known, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return known;
  if (known) freelocale(known);
  return none;
}

// ---- writing

// A tensor already in the file, and its index there.
typedef struct seen {
  const px_tensor *tensor;
  int64_t number;
} seen;

typedef struct writing {
  px__json_writer json;
  px_dict *tensors;
  seen *seen;            // hash table by tensor address
  int64_t capacity;      // of `seen`: a power of two, at least twice the number of tensors
  char path[PATH_SIZE];  // of the current part, as "model.0.weight"
  size_t length;         // of the path; PATH_SIZE or more if truncated
} writing;

static px_status put_tag(writing *w, px_tree_kind kind) {
  PX_TRY(px__json_open(&w->json, '['));
  for (int i = 0; i < TAGS; i++)
    if (tags[i].kind == kind) return px__json_put_text(&w->json, tags[i].tag);
  PX_FAIL(PX_TYPE, "cannot write a tensor of a dtype unsupported by Phlox");
}

static px_status put_pair(writing *w, px_tree_kind kind, const char *text) {
  PX_TRY(put_tag(w, kind));
  PX_TRY(px__json_put_text(&w->json, text));
  return px__json_shut(&w->json, ']');
}

// Writes the shortest form that reads back as the same number.
static px_status put_float(writing *w, double number) {
  char text[NUMBER_SIZE];
  if (!isfinite(number))
    return put_pair(w, PX_TREE_NUMBER, isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text - 2, "%.*g", digits, number);
    if (strtod(text, NULL) == number) break;
  }
  if (!strpbrk(text, ".e")) memcpy(text + strlen(text), ".0", 3);
  return px__json_put(&w->json, text);
}

static px_status put_number(writing *w, px_scalar number) {
  char text[NUMBER_SIZE];
  if (number.kind == 'b') return px__json_put(&w->json, number.v.i ? "true" : "false");
  if (number.kind != 'i') return put_float(w, number.v.f);
  snprintf(text, sizeof text, "%lld", (long long)number.v.i);
  return px__json_put(&w->json, text);
}

static seen *seen_at(const writing *w, const px_tensor *t) {
  uint64_t at = (uintptr_t)t * 0x9e3779b97f4a7c15u >> 20;
  for (;; at++) {
    seen *slot = &w->seen[at & (uint64_t)(w->capacity - 1)];
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): more_seen has allocated the table
    if (!slot->tensor || slot->tensor == t) return slot;
  }
}

// Grows the table for one more tensor.
static px_status reserve_seen(writing *w) {
  seen *old = w->seen, *grown;
  int64_t capacity = w->capacity;
  if (2 * (px_dict_size(w->tensors) + 1) <= capacity) return PX_OK;
  PX_TRY(px_alloc((void **)&grown, (size_t)(capacity ? 2 * capacity : 16) * sizeof *old));
  w->seen = grown;
  w->capacity = capacity ? 2 * capacity : 16;
  for (int64_t i = 0; i < capacity; i++)
    if (old[i].tensor) *seen_at(w, old[i].tensor) = old[i];
  px_free(old);
  return PX_OK;
}

// Returns the tensor's name in the file: its path in the tree, if short and unused.
static px_status name_of(char *name, writing *w, px_tensor *t) {
  PX_TRY(reserve_seen(w));
  seen *known = seen_at(w, t);
  if (known->tensor)
    return snprintf(name, PATH_SIZE, "%s", px_dict_name(w->tensors, known->number)), PX_OK;
  bool fits = w->length && w->length < PATH_SIZE && strcmp(w->path, PX__METADATA);
  snprintf(name, PATH_SIZE, "%s", fits ? w->path : "tensor");
  for (int64_t n = px_dict_size(w->tensors); px_dict_get(w->tensors, name); n++)
    snprintf(name, PATH_SIZE, "tensor.%lld", (long long)n);
  PX_TRY(px_dict_set(w->tensors, name, t));
  *known = (seen){t, px_dict_size(w->tensors) - 1};
  return PX_OK;
}

static px_status put_tensor(writing *w, const px_tree *tree) {
  char name[PATH_SIZE], device[PX_DEVICE_TEXT];
  px_tensor *t = px_tree_get_tensor(tree);
  bool leaf = px_tensor_requires_grad(t) && px_tensor_is_leaf(t);
  const char *mark = leaf ? "grad" : NULL;
  if (px_tensor_is_parameter(t)) mark = leaf ? "parameter" : "frozen";
  PX_TRY(name_of(name, w, t));
  PX_TRY(put_tag(w, PX_TREE_TENSOR));
  PX_TRY(px__json_put_text(&w->json, name));
  PX_TRY(px__json_put_text(&w->json, px_device_format(px_tensor_device(t), device)));
  if (mark) PX_TRY(px__json_put_text(&w->json, mark));
  return px__json_shut(&w->json, ']');
}

static px_status put_tree(writing *w, const px_tree *tree, int depth);

// Writes the i-th part with the path extended by its key or index.
static px_status put_part(writing *w, const px_tree *tree, int64_t i, int depth) {
  size_t length = w->length;
  const px_tree *key = px_tree_key(tree, i);
  const char *text = key ? px_tree_get_text(key) : NULL;
  char number[NUMBER_SIZE];
  px_scalar digits = key ? px_tree_get_number(key) : px_int(i);
  snprintf(number, sizeof number, "%lld", (long long)(digits.kind == 'i' ? digits.v.i : i));
  if (length < PATH_SIZE)
    w->length += (size_t)snprintf(w->path + length, PATH_SIZE - length, "%s%s", length ? "." : "",
                                  text ? text : number);
  px_status status = put_tree(w, px_tree_at(tree, i), depth);
  w->length = length;
  w->path[length < PATH_SIZE ? length : PATH_SIZE - 1] = 0;
  return status;
}

static bool keys_are_texts(const px_tree *tree) {
  for (int64_t i = 0; i < px_tree_size(tree); i++)
    if (!px_tree_get_text(px_tree_key(tree, i))) return false;
  return true;
}

static px_status put_object(writing *w, const px_tree *tree, int depth) {
  PX_TRY(px__json_open(&w->json, '{'));
  for (int64_t i = 0; i < px_tree_size(tree); i++) {
    PX_TRY(px__json_put_key(&w->json, px_tree_get_text(px_tree_key(tree, i))));
    PX_TRY(put_part(w, tree, i, depth));
  }
  return px__json_shut(&w->json, '}');
}

static px_status put_parts(writing *w, const px_tree *tree, int depth) {
  PX_TRY(put_tag(w, px_tree_kind_of(tree)));
  for (int64_t i = 0; i < px_tree_size(tree); i++) {
    bool pair = px_tree_key(tree, i) != NULL;
    if (pair) {
      PX_TRY(px__json_open(&w->json, '['));
      PX_TRY(put_tree(w, px_tree_key(tree, i), depth));
    }
    PX_TRY(put_part(w, tree, i, depth));
    if (pair) PX_TRY(px__json_shut(&w->json, ']'));
  }
  return px__json_shut(&w->json, ']');
}

static px_status put_tree(writing *w, const px_tree *tree, int depth) {
  char device[PX_DEVICE_TEXT];
  px_tree_kind kind = px_tree_kind_of(tree);
  PX_CHECK(depth < PX_TREE_DEPTH, PX_VALUE,
           "expected a tree of depth at most %d: it is too deep or contains itself", PX_TREE_DEPTH);
  switch (kind) {
    case PX_TREE_NONE:
      return px__json_put(&w->json, "null");
    case PX_TREE_NUMBER:
      return put_number(w, px_tree_get_number(tree));
    case PX_TREE_TEXT:
      return px__json_put_text(&w->json, px_tree_get_text(tree));
    case PX_TREE_DTYPE:
      return put_pair(w, kind, px_dtype_name(px_tree_get_dtype(tree)));
    case PX_TREE_DEVICE:
      return put_pair(w, kind, px_device_format(px_tree_get_device(tree), device));
    case PX_TREE_TENSOR:
      return put_tensor(w, tree);
    case PX_TREE_DICT:
      if (keys_are_texts(tree)) return put_object(w, tree, depth + 1);
    // fallthrough
    default:
      return put_parts(w, tree, depth + 1);
  }
}

px_status px__structure_write(char **text, px_dict *tensors, const px_tree *tree) {
  px__writer to = px__writer_memory();
  writing w = {.json = {.to = &to, .first = true}, .tensors = tensors};
  locale_t before = uselocale(plain_locale());
  px_status status = put_tree(&w, tree, 0);
  uselocale(before);
  px__json_writer_close(&w.json);
  px_free(w.seen);
  if (status == PX_OK) status = px__writer_write(&to, "", 1);
  if (status == PX_OK) {
    *text = to.memory;
    to.memory = NULL;
  }
  px__writer_abandon(&to);
  return status;
}

// ---- reading

typedef struct reading {
  const px_dict *tensors;
  px__json json;
  int depth;
} reading;

#define FAIL_STRUCTURE(r, what) \
  PX_FAIL(PX_RUNTIME, "'%s': its structure %s", (r)->json.path, (what))

static px_status read_tree(px_tree **out, reading *r);

static px_status literal_tree(px_tree **out, const reading *r, json_object *json) {
  switch (json_object_get_type(json)) {
    case json_type_null:
      return px_tree_none(out);
    case json_type_boolean:
      return px_tree_number(out, px_bool(json_object_get_boolean(json)));
    case json_type_int:
      if (json_object_get_uint64(json) > INT64_MAX && json_object_get_int64(json) >= 0)
        FAIL_STRUCTURE(r, "has a number out of range");
      return px_tree_number(out, px_int(json_object_get_int64(json)));
    default:
      if (!isfinite(json_object_get_double(json))) FAIL_STRUCTURE(r, "has a number out of range");
      return px_tree_number(out, px_float(json_object_get_double(json)));
  }
}

static px_status read_literal(px_tree **out, reading *r) {
  json_object *json;
  PX_TRY(px__json_value(&json, &r->json, r->json.length));
  px_status status = literal_tree(out, r, json);
  json_object_put(json);
  return status;
}

static px_status read_text(px_tree **out, reading *r) {
  const char *text;
  PX_TRY(px__json_text(&text, &r->json, r->json.length));
  return px_tree_text(out, text);
}

// Reads the next element of an array; NULL past the last.
static px_status read_next(px_tree **out, reading *r) {
  bool more;
  PX_TRY(px__json_more(&r->json, ']', &more));
  return more ? read_tree(out, r) : PX_OK;
}

static px_status read_list(px_tree *made, reading *r) {
  for (;;) {
    PX_SCOPED(px_tree) value = NULL;
    PX_TRY(read_next(&value, r));
    if (!value) return PX_OK;
    PX_TRY(px_tree_append(made, value));
  }
}

static px_status read_pair(px_tree *made, reading *r) {
  PX_SCOPED(px_tree) key = NULL;
  PX_SCOPED(px_tree) value = NULL;
  PX_SCOPED(px_tree) rest = NULL;
  bool array = px__json_peek(&r->json) == '[';
  if (array) PX_TRY(px__json_begin(&r->json, '['));
  if (array) PX_TRY(read_next(&key, r));
  if (key) PX_TRY(read_next(&value, r));
  if (value) PX_TRY(read_next(&rest, r));
  if (!value || rest) FAIL_STRUCTURE(r, "has a dict with an entry that is not a pair");
  return px_tree_add(made, key, value);
}

static px_status read_pairs(px_tree *made, reading *r) {
  for (;;) {
    bool more;
    PX_TRY(px__json_more(&r->json, ']', &more));
    if (!more) return PX_OK;
    PX_TRY(read_pair(made, r));
  }
}

static px_status read_parts(px_tree **out, reading *r, px_tree_kind kind) {
  PX_SCOPED(px_tree) made = NULL;
  PX_TRY(px_tree_new(&made, kind));
  PX_TRY(kind < PX_TREE_DICT ? read_list(made, r) : read_pairs(made, r));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status read_object(px_tree **out, reading *r) {
  PX_SCOPED(px_tree) made = NULL;
  PX_TRY(px_tree_new(&made, PX_TREE_DICT));
  PX_TRY(px__json_begin(&r->json, '{'));
  for (;;) {
    PX_SCOPED(px_tree) value = NULL;
    const char *key;
    bool more;
    PX_TRY(px__json_more(&r->json, '}', &more));
    if (!more) break;
    PX_TRY(px__json_key(&key, &r->json));
    PX_TRY(read_tree(&value, r));
    PX_TRY(px_tree_set(made, key, value));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

// Reads the strings that end a tagged array. Missing ones stay NULL.
static px_status read_words(const char **words, int capacity, reading *r) {
  const char *text;
  bool more;
  for (int i = 0;; i++) {
    PX_TRY(px__json_more(&r->json, ']', &more));
    if (!more) return PX_OK;
    PX_TRY(px__json_text(&text, &r->json, r->json.length));
    if (i < capacity) words[i] = text;
  }
}

static px_status read_tensor(px_tree **out, reading *r) {
  const char *words[3] = {NULL};
  PX_TRY(read_words(words, 3, r));
  const char *name = words[0], *home = words[1], *mark = words[2];
  px_device device;
  px_tensor *t = name ? px_dict_get(r->tensors, name) : NULL;
  PX_CHECK(t, PX_RUNTIME, "'%s': its structure names a tensor '%.200s' that is not in the file",
           r->json.path, name ? name : "");
  if (!home || px_device_parse(&device, home) != PX_OK)
    FAIL_STRUCTURE(r, "has a tensor without a device");
  if (mark && strcmp(mark, "frozen")) {
    px_dtype dtype = px_tensor_dtype(t);
    if (!px_dtype_is_float(dtype) && !px_dtype_is_complex(dtype))
      FAIL_STRUCTURE(r, "has an integer that requires grad");
    PX_TRY(px_tensor_set_requires_grad(t, true));
  }
  if (mark && strcmp(mark, "grad")) px_tensor_set_parameter(t, true);
  return px__tree_tensor_of(out, t, device);
}

static px_status read_float(px_tree **out, const reading *r, const char *text) {
  if (!strcmp(text, "nan")) return px_tree_number(out, px_float(NAN));
  if (!strcmp(text, "inf")) return px_tree_number(out, px_float(INFINITY));
  if (!strcmp(text, "-inf")) return px_tree_number(out, px_float(-INFINITY));
  FAIL_STRUCTURE(r, "has a float of an unknown form");
}

static px_status read_word(px_tree **out, reading *r, px_tree_kind kind) {
  px_dtype dtype;
  px_device device;
  const char *text = NULL;
  PX_TRY(read_words(&text, 1, r));
  if (!text) FAIL_STRUCTURE(r, "has a tag without its text");
  if (kind == PX_TREE_NUMBER) return read_float(out, r, text);
  if (kind == PX_TREE_DTYPE) {
    if (px_dtype_parse(&dtype, text) != PX_OK) FAIL_STRUCTURE(r, "has an unknown dtype");
    return px_tree_dtype(out, dtype);
  }
  if (px_device_parse(&device, text) != PX_OK) FAIL_STRUCTURE(r, "has an unknown device");
  return px_tree_device(out, device);
}

static px_status read_tagged(px_tree **out, reading *r) {
  const char *tag = NULL;
  bool more;
  PX_TRY(px__json_begin(&r->json, '['));
  PX_TRY(px__json_more(&r->json, ']', &more));
  if (more) PX_TRY(px__json_text(&tag, &r->json, r->json.length));
  for (int i = 0; tag && i < TAGS; i++) {
    if (strcmp(tags[i].tag, tag)) continue;
    if (tags[i].kind == PX_TREE_TENSOR) return read_tensor(out, r);
    if (tags[i].kind >= PX_TREE_LIST) return read_parts(out, r, tags[i].kind);
    return read_word(out, r, tags[i].kind);
  }
  PX_FAIL(PX_RUNTIME, "'%s': its structure has the unknown tag '%.100s'", r->json.path,
          tag ? tag : "");
}

static px_status read_tree(px_tree **out, reading *r) {
  char first = px__json_peek(&r->json);
  if (first == '"') return read_text(out, r);
  if (first != '{' && first != '[') return read_literal(out, r);
  if (r->depth == PX_TREE_DEPTH) FAIL_STRUCTURE(r, "is nested too deeply");
  r->depth++;
  px_status status = first == '{' ? read_object(out, r) : read_tagged(out, r);
  r->depth--;
  return status;
}

px_status px__structure_read(px_tree **out, char *text, const px_dict *tensors, const char *path) {
  PX_SCOPED(px_tree) made = NULL;
  reading r = {
      .tensors = tensors,
      .json = {
          .text = text, .length = strlen(text), .path = path, .of = "its structure is not JSON"}};
  px_status status = read_tree(&made, &r);
  if (status == PX_OK) status = px__json_end(&r.json);
  if (status == PX_OK) *out = PX_MOVE(made);
  px__json_close(&r.json);
  return status;
}
