// SPDX-License-Identifier: Apache-2.0
// The structure of a tree as JSON, which a file keeps beside its tensors.
//
// null, true, numbers and texts are themselves; a dict whose keys are texts is an object. All else
// is an array that begins with its tag: ["list", 1, 2], ["tuple", ...], ["size", 3, 4],
// ["dict", [key, value], ...], ["ordered", [key, value], ...], ["float", "nan"],
// ["dtype", "float32"], ["device", "cuda:0"], and ["tensor", NAME, DEVICE], which stands for the
// tensor of that name in the file, with "grad" or "parameter" as a last part where it is one.
//
// A structure that is read is not trusted: depth, tags, numbers and names are checked.
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>
#include <yajl/yajl_tree.h>

#include "io/io_impl.h"

enum { PATH_ROOM = 256, NUMBER_ROOM = 40, JSON_DEPTH = 125 };  // yajl writes 128 levels

static const struct {
  const char *tag;
  px_tree_kind kind;
} tags[] = {{"list", PX_TREE_LIST},   {"tuple", PX_TREE_TUPLE},     {"size", PX_TREE_SIZE},
            {"dict", PX_TREE_DICT},   {"ordered", PX_TREE_ORDERED}, {"float", PX_TREE_NUMBER},
            {"dtype", PX_TREE_DTYPE}, {"device", PX_TREE_DEVICE},   {"tensor", PX_TREE_TENSOR}};
enum { TAGS = sizeof tags / sizeof *tags };

// Numbers have a point, whatever the program's language.
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

typedef struct writing {
  yajl_gen json;
  px_dict *tensors;
  char path[PATH_ROOM];  // of the part at hand, "model.0.weight"
  size_t length;         // PATH_ROOM and more: it does not fit
} writing;

static void put_text(writing *w, const char *text) {
  yajl_gen_string(w->json, (const unsigned char *)text, strlen(text));
}

static px_status put_checked(writing *w, const char *text) {
  yajl_gen_status status = yajl_gen_string(w->json, (const unsigned char *)text, strlen(text));
  PX_CHECK(status != yajl_gen_invalid_string, PX_VALUE, "a text of the tree is not UTF-8");
  return PX_OK;
}

static void put_tag(writing *w, px_tree_kind kind) {
  yajl_gen_array_open(w->json);
  for (int i = 0; i < TAGS; i++)
    if (tags[i].kind == kind) put_text(w, tags[i].tag);
}

static void put_pair(writing *w, px_tree_kind kind, const char *text) {
  put_tag(w, kind);
  put_text(w, text);
  yajl_gen_array_close(w->json);
}

// The shortest form that reads back as the same number.
static void put_float(writing *w, double number) {
  char text[NUMBER_ROOM];
  if (!isfinite(number)) {
    put_pair(w, PX_TREE_NUMBER, isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    return;
  }
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text - 2, "%.*g", digits, number);
    if (strtod(text, NULL) == number) break;
  }
  if (!strpbrk(text, ".e")) memcpy(text + strlen(text), ".0", 3);
  yajl_gen_number(w->json, text, strlen(text));
}

static void put_number(writing *w, px_scalar number) {
  if (number.kind == 'b')
    yajl_gen_bool(w->json, number.v.i != 0);
  else if (number.kind == 'i')
    yajl_gen_integer(w->json, number.v.i);
  else
    put_float(w, number.v.f);
}

// The name that the tensor has in the file: its path in the tree, if that is short and free.
static px_status name_of(char *name, writing *w, px_tensor *t) {
  for (int64_t i = 0; i < px_dict_size(w->tensors); i++)
    if (px_dict_value(w->tensors, i) == t)
      return snprintf(name, PATH_ROOM, "%s", px_dict_name(w->tensors, i)), PX_OK;
  bool fits = w->length && w->length < PATH_ROOM && strcmp(w->path, PX__METADATA);
  snprintf(name, PATH_ROOM, "%s", fits ? w->path : "tensor");
  for (int64_t n = px_dict_size(w->tensors); px_dict_get(w->tensors, name); n++)
    snprintf(name, PATH_ROOM, "tensor.%lld", (long long)n);
  return px_dict_set(w->tensors, name, t);
}

static px_status put_tensor(writing *w, const px_tree *tree) {
  char name[PATH_ROOM], device[PX_DEVICE_TEXT];
  px_tensor *t = px_tree_get_tensor(tree);
  PX_TRY(name_of(name, w, t));
  put_tag(w, PX_TREE_TENSOR);
  put_text(w, name);
  put_text(w, px_device_format(px_tensor_device(t), device));
  bool leaf = px_tensor_requires_grad(t) && px_tensor_is_leaf(t);
  if (px_tensor_is_parameter(t))
    put_text(w, leaf ? "parameter" : "frozen");
  else if (leaf)
    put_text(w, "grad");
  yajl_gen_array_close(w->json);
  return PX_OK;
}

static px_status put_tree(writing *w, const px_tree *tree, int depth);

// The part under `key`, or the i-th, with the path led on to it.
static px_status put_part(writing *w, const px_tree *tree, int64_t i, int depth) {
  size_t length = w->length;
  const px_tree *key = px_tree_key(tree, i);
  const char *text = key ? px_tree_get_text(key) : NULL;
  char number[NUMBER_ROOM];
  px_scalar digits = key ? px_tree_get_number(key) : px_int(i);
  snprintf(number, sizeof number, "%lld", (long long)(digits.kind == 'i' ? digits.v.i : i));
  if (length < PATH_ROOM)
    w->length += (size_t)snprintf(w->path + length, PATH_ROOM - length, "%s%s", length ? "." : "",
                                  text ? text : number);
  px_status status = put_tree(w, px_tree_at(tree, i), depth);
  w->length = length;
  w->path[length < PATH_ROOM ? length : PATH_ROOM - 1] = 0;
  return status;
}

static bool keys_are_texts(const px_tree *tree) {
  for (int64_t i = 0; i < px_tree_size(tree); i++)
    if (!px_tree_get_text(px_tree_key(tree, i))) return false;
  return true;
}

static px_status put_object(writing *w, const px_tree *tree, int depth) {
  yajl_gen_map_open(w->json);
  for (int64_t i = 0; i < px_tree_size(tree); i++) {
    PX_TRY(put_checked(w, px_tree_get_text(px_tree_key(tree, i))));
    PX_TRY(put_part(w, tree, i, depth));
  }
  yajl_gen_map_close(w->json);
  return PX_OK;
}

static px_status put_parts(writing *w, const px_tree *tree, int depth) {
  put_tag(w, px_tree_kind_of(tree));
  for (int64_t i = 0; i < px_tree_size(tree); i++) {
    bool pair = px_tree_key(tree, i) != NULL;
    if (pair) {
      yajl_gen_array_open(w->json);
      PX_TRY(put_tree(w, px_tree_key(tree, i), depth));
    }
    PX_TRY(put_part(w, tree, i, depth));
    if (pair) yajl_gen_array_close(w->json);
  }
  yajl_gen_array_close(w->json);
  return PX_OK;
}

static px_status put_tree(writing *w, const px_tree *tree, int depth) {
  char device[PX_DEVICE_TEXT];
  px_tree_kind kind = px_tree_kind_of(tree);
  PX_CHECK(depth < PX_TREE_DEPTH, PX_VALUE,
           "a tree of values is written up to a depth of %d; this one is deeper, or holds itself",
           PX_TREE_DEPTH);
  switch (kind) {
    case PX_TREE_NONE:
      yajl_gen_null(w->json);
      return PX_OK;
    case PX_TREE_NUMBER:
      put_number(w, px_tree_get_number(tree));
      return PX_OK;
    case PX_TREE_TEXT:
      return put_checked(w, px_tree_get_text(tree));
    case PX_TREE_DTYPE:
      put_pair(w, kind, px_dtype_name(px_tree_get_dtype(tree)));
      return PX_OK;
    case PX_TREE_DEVICE:
      put_pair(w, kind, px_device_format(px_tree_get_device(tree), device));
      return PX_OK;
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
  const unsigned char *bytes;
  size_t length;
  writing w = {.json = yajl_gen_alloc(NULL), .tensors = tensors};
  PX_CHECK(w.json, PX_NOMEM, "out of memory while writing a structure");
  yajl_gen_config(w.json, yajl_gen_validate_utf8, 1);
  locale_t before = uselocale(plain_locale());
  px_status status = put_tree(&w, tree, 0);
  uselocale(before);
  if (status == PX_OK) {
    yajl_gen_get_buf(w.json, &bytes, &length);
    status = px_alloc((void **)text, length + 1);
    if (status == PX_OK) memcpy(*text, bytes, length);
  }
  yajl_gen_free(w.json);
  return status;
}

// ---- reading

typedef struct reading {
  const px_dict *tensors;
  const char *path;  // of the file, for messages
} reading;

#define WRONG(r, what) PX_FAIL(PX_RUNTIME, "'%s': its structure %s", (r)->path, (what))

static px_status read_tree(px_tree **out, const reading *r, yajl_val json);

static px_status read_number(px_tree **out, const reading *r, yajl_val json) {
  const char *text = YAJL_GET_NUMBER(json);
  if (strpbrk(text, ".eE")) {
    if (!YAJL_IS_DOUBLE(json)) WRONG(r, "has a number out of range");
    return px_tree_number(out, px_float(YAJL_GET_DOUBLE(json)));
  }
  errno = 0;
  long long number = strtoll(text, NULL, 10);  // the parser's own has no -2^63
  if (errno) WRONG(r, "has a number out of range");
  return px_tree_number(out, px_int(number));
}

// Adds one part: of a list the value, of a dict a pair.
static px_status read_part(px_tree *made, const reading *r, yajl_val json) {
  PX_SCOPED(px_tree) key = NULL;
  PX_SCOPED(px_tree) value = NULL;
  if (px_tree_kind_of(made) < PX_TREE_DICT) {
    PX_TRY(read_tree(&value, r, json));
    return px_tree_append(made, value);
  }
  if (!YAJL_IS_ARRAY(json) || json->u.array.len != 2) WRONG(r, "has a dict of something but pairs");
  PX_TRY(read_tree(&key, r, json->u.array.values[0]));
  PX_TRY(read_tree(&value, r, json->u.array.values[1]));
  return px_tree_add(made, key, value);
}

static px_status read_parts(px_tree **out, const reading *r, yajl_val json, px_tree_kind kind) {
  PX_SCOPED(px_tree) made = NULL;
  PX_TRY(px_tree_new(&made, kind));
  for (size_t i = 1; i < json->u.array.len; i++)
    PX_TRY(read_part(made, r, json->u.array.values[i]));
  *out = PX_MOVE(made);
  return PX_OK;
}

static px_status read_object(px_tree **out, const reading *r, yajl_val json) {
  PX_SCOPED(px_tree) made = NULL;
  PX_TRY(px_tree_new(&made, PX_TREE_DICT));
  for (size_t i = 0; i < json->u.object.len; i++) {
    PX_SCOPED(px_tree) value = NULL;
    PX_TRY(read_tree(&value, r, json->u.object.values[i]));
    PX_TRY(px_tree_set(made, json->u.object.keys[i], value));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

// The text at place i of a tagged array; NULL if there is none.
static const char *text_at(yajl_val json, size_t i) {
  return i < json->u.array.len ? YAJL_GET_STRING(json->u.array.values[i]) : NULL;
}

static px_status read_tensor(px_tree **out, const reading *r, yajl_val json) {
  const char *name = text_at(json, 1), *home = text_at(json, 2), *mark = text_at(json, 3);
  px_device device;
  px_tensor *t = name ? px_dict_get(r->tensors, name) : NULL;
  PX_CHECK(t, PX_RUNTIME, "'%s': its structure names a tensor '%.200s' that it does not have",
           r->path, name ? name : "");
  if (!home || px_device_parse(&device, home) != PX_OK) WRONG(r, "has a tensor without a device");
  if (mark && strcmp(mark, "frozen")) {
    if (!px_dtype_is_float(px_tensor_dtype(t))) WRONG(r, "has an integer that requires grad");
    PX_TRY(px_tensor_set_requires_grad(t, true));
  }
  if (mark && strcmp(mark, "grad")) px_tensor_set_parameter(t, true);
  return px__tree_tensor_of(out, t, device);
}

static px_status read_float(px_tree **out, const reading *r, const char *text) {
  if (!strcmp(text, "nan")) return px_tree_number(out, px_float(NAN));
  if (!strcmp(text, "inf")) return px_tree_number(out, px_float(INFINITY));
  if (!strcmp(text, "-inf")) return px_tree_number(out, px_float(-INFINITY));
  WRONG(r, "has a float of an unknown form");
}

static px_status read_word(px_tree **out, const reading *r, px_tree_kind kind, const char *text) {
  px_dtype dtype;
  px_device device;
  if (!text) WRONG(r, "has a tag without its text");
  if (kind == PX_TREE_NUMBER) return read_float(out, r, text);
  if (kind == PX_TREE_DTYPE) {
    if (px_dtype_parse(&dtype, text) != PX_OK) WRONG(r, "has an unknown dtype");
    return px_tree_dtype(out, dtype);
  }
  if (px_device_parse(&device, text) != PX_OK) WRONG(r, "has an unknown device");
  return px_tree_device(out, device);
}

static px_status read_tagged(px_tree **out, const reading *r, yajl_val json) {
  const char *tag = text_at(json, 0);
  for (int i = 0; tag && i < TAGS; i++) {
    if (strcmp(tags[i].tag, tag)) continue;
    if (tags[i].kind == PX_TREE_TENSOR) return read_tensor(out, r, json);
    if (tags[i].kind >= PX_TREE_LIST) return read_parts(out, r, json, tags[i].kind);
    return read_word(out, r, tags[i].kind, text_at(json, 1));
  }
  PX_FAIL(PX_RUNTIME, "'%s': its structure has the unknown tag '%.100s'", r->path, tag ? tag : "");
}

static px_status read_tree(px_tree **out, const reading *r, yajl_val json) {
  if (YAJL_IS_NULL(json)) return px_tree_none(out);
  if (YAJL_IS_TRUE(json) || YAJL_IS_FALSE(json))
    return px_tree_number(out, px_bool(YAJL_IS_TRUE(json)));
  if (YAJL_IS_NUMBER(json)) return read_number(out, r, json);
  if (YAJL_IS_STRING(json)) return px_tree_text(out, YAJL_GET_STRING(json));
  return YAJL_IS_OBJECT(json) ? read_object(out, r, json) : read_tagged(out, r, json);
}

px_status px__structure_read(px_tree **out, const char *text, const px_dict *tensors,
                             const char *path) {
  char wrong[256];
  reading r = {tensors, path};
  locale_t before = uselocale(plain_locale());
  yajl_val json = px__json_parse(text, JSON_DEPTH, wrong, sizeof wrong);
  px_status status = json ? read_tree(out, &r, json)
                          : px_error_set(PX_RUNTIME, 0, __FILE__, __LINE__, __func__,
                                         "'%s': its structure is not JSON: %s", path, wrong);
  uselocale(before);
  yajl_tree_free(json);
  return status;
}
