// SPDX-License-Identifier: Apache-2.0
// Trees of values, the in-memory form of checkpoints. A tree holds references to its parts. A part
// may belong to several trees. Independent of files.
#include <string.h>

#include "io/io_impl.h"

// Files may have millions of nodes, so each node has the size of its kind.
struct px_tree {
  px_object head;
  px_tree_kind kind;
  union {
    px_scalar number;
    px_dtype dtype;
    char *text;  // follows the tree in the same allocation
    struct {
      px_tensor *tensor;
      px_device device;  // also of PX_TREE_DEVICE
    };
  };
};
typedef struct branch {
  px_tree tree;
  px_tree **parts, **keys;  // keys: dicts only
  int64_t count, capacity;
} branch;

static bool has_keys(const px_tree *self) { return self->kind >= PX_TREE_DICT; }
static bool has_parts(const px_tree *self) { return self->kind >= PX_TREE_LIST; }
static bool has_text(const px_tree *self) {
  return self->kind == PX_TREE_TEXT || self->kind == PX_TREE_FOREIGN;
}
// Returns an empty branch for a tree without parts.
static const branch *parts_of(const px_tree *self) {
  static const branch none;
  return has_parts(self) ? (const branch *)self : &none;
}

static void branch_end(branch *self) {
  for (int64_t i = 0; i < self->count; i++) {
    px_release(self->parts[i]);
    if (self->keys) px_release(self->keys[i]);
  }
  px_free(self->parts);
  px_free(self->keys);
}

static void tree_destroy(void *object) {
  px_tree *self = object;
  if (has_parts(self)) branch_end(object);
  if (self->kind == PX_TREE_TENSOR) px_release(self->tensor);
  px_object_end(self);
  px_free(self);
}
static const px_class tree_class = {"tree", tree_destroy};

static px_status make_sized(px_tree **out, px_tree_kind kind, size_t bytes) {
  PX_TRY(px_alloc((void **)out, bytes));
  px_object_init(*out, &tree_class);
  (*out)->kind = kind;
  return PX_OK;
}
static px_status make(px_tree **out, px_tree_kind kind) {
  return make_sized(out, kind, kind >= PX_TREE_LIST ? sizeof(branch) : sizeof(px_tree));
}

px_status px_tree_none(px_tree **out) {
  PX_GIVEN(out);
  return make(out, PX_TREE_NONE);
}

px_status px_tree_number(px_tree **out, px_scalar number) {
  PX_GIVEN(out);
  PX_TRY(make(out, PX_TREE_NUMBER));
  (*out)->number = number;
  return PX_OK;
}

px_status px_tree_text(px_tree **out, const char *utf8) {
  PX_GIVEN(out);
  PX_GIVEN(utf8);
  size_t bytes = strlen(utf8) + 1;
  *out = NULL;
  PX_TRY(make_sized(out, PX_TREE_TEXT, sizeof **out + bytes));
  (*out)->text = memcpy(*out + 1, utf8, bytes);
  return PX_OK;
}

px_status px_tree_dtype(px_tree **out, px_dtype dtype) {
  PX_GIVEN(out);
  PX_TRY(make(out, PX_TREE_DTYPE));
  (*out)->dtype = dtype;
  return PX_OK;
}

px_status px_tree_device(px_tree **out, px_device device) {
  PX_GIVEN(out);
  PX_TRY(make(out, PX_TREE_DEVICE));
  (*out)->device = device;
  return PX_OK;
}

px_status px_tree_tensor(px_tree **out, px_tensor *tensor) {
  PX_GIVEN(out);
  PX_GIVEN(tensor);
  PX_TRY(make(out, PX_TREE_TENSOR));
  (*out)->tensor = px_retain(tensor);
  (*out)->device = px_tensor_device(tensor);
  return PX_OK;
}

px_status px__tree_foreign(px_tree **out, const char *dtype) {
  PX_TRY(px_tree_text(out, dtype));
  (*out)->kind = PX_TREE_FOREIGN;
  return PX_OK;
}

px_status px__tree_tensor_of(px_tree **out, px_tensor *tensor, px_device home) {
  PX_TRY(px_tree_tensor(out, tensor));
  (*out)->device = home;
  return PX_OK;
}

px_status px_tree_new(px_tree **out, px_tree_kind kind) {
  PX_GIVEN(out);
  *out = NULL;
  PX_CHECK(kind >= PX_TREE_LIST && kind <= PX_TREE_ORDERED, PX_VALUE,
           "a tree of kind %d has no parts", (int)kind);
  return make(out, kind);
}

// ---- parts

static px_status reserve(branch *self) {
  if (self->count < self->capacity) return PX_OK;
  int64_t capacity = self->capacity ? 2 * self->capacity : 4;
  PX_TRY(px_realloc((void **)&self->parts, (size_t)capacity * sizeof *self->parts));
  if (has_keys(&self->tree))
    PX_TRY(px_realloc((void **)&self->keys, (size_t)capacity * sizeof *self->keys));
  self->capacity = capacity;
  return PX_OK;
}

px_status px_tree_append(px_tree *self, px_tree *value) {
  PX_GIVEN(self);
  PX_GIVEN(value);
  PX_CHECK(has_parts(self) && !has_keys(self), PX_TYPE, "expected a list or a tuple to append to");
  branch *to = (branch *)self;
  PX_TRY(reserve(to));
  to->parts[to->count++] = px_retain(value);
  return PX_OK;
}

px_status px_tree_add(px_tree *self, px_tree *key, px_tree *value) {
  PX_GIVEN(self);
  PX_GIVEN(key);
  PX_GIVEN(value);
  PX_CHECK(has_keys(self), PX_TYPE, "expected a dict to add a key to");
  branch *to = (branch *)self;
  PX_TRY(reserve(to));
  to->keys[to->count] = px_retain(key);
  to->parts[to->count++] = px_retain(value);
  return PX_OK;
}

px_status px_tree_set(px_tree *self, const char *key, px_tree *value) {
  PX_GIVEN(self);
  PX_GIVEN(key);
  PX_GIVEN(value);
  PX_SCOPED(px_tree) text = NULL;
  PX_TRY(px_tree_text(&text, key));
  return px_tree_add(self, text, value);
}

px_status px_tree_from_dict(px_tree **out, const px_dict *tensors) {
  PX_GIVEN(out);
  PX_GIVEN(tensors);
  PX_SCOPED(px_tree) made = NULL;
  *out = NULL;
  PX_TRY(px_tree_new(&made, PX_TREE_DICT));
  for (int64_t i = 0; i < px_dict_size(tensors); i++) {
    PX_SCOPED(px_tree) part = NULL;
    PX_TRY(px_tree_tensor(&part, px_dict_value(tensors, i)));
    PX_TRY(px_tree_set(made, px_dict_name(tensors, i), part));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px_tree_to_dict(px_dict **out, const px_tree *self) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_SCOPED(px_dict) made = NULL;
  *out = NULL;
  PX_CHECK(has_keys(self), PX_TYPE, "the tree is not a dict of tensors");
  PX_TRY(px_dict_new(&made));
  for (int64_t i = 0; i < px_tree_size(self); i++) {
    const px_tree *part = px_tree_at(self, i);
    const char *name = px_tree_get_text(px_tree_key(self, i));
    if (part->kind == PX_TREE_FOREIGN) continue;
    PX_CHECK(name && px_tree_get_tensor(part), PX_TYPE,
             "the tree is not a dict of tensors: its part %lld is not a tensor", (long long)i);
    PX_TRY(px_dict_set(made, name, px_tree_get_tensor(part)));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

// ---- accessors

px_tree_kind px_tree_kind_of(const px_tree *self) { return self->kind; }
px_scalar px_tree_get_number(const px_tree *self) {
  return self->kind == PX_TREE_NUMBER ? self->number : (px_scalar){0};
}
const char *px_tree_get_text(const px_tree *self) { return has_text(self) ? self->text : NULL; }
px_dtype px_tree_get_dtype(const px_tree *self) {
  return self->kind == PX_TREE_DTYPE ? self->dtype : PX_DTYPE_NONE;
}
px_tensor *px_tree_get_tensor(const px_tree *self) {
  return self->kind == PX_TREE_TENSOR ? self->tensor : NULL;
}
px_device px_tree_get_device(const px_tree *self) {
  bool has = self->kind == PX_TREE_TENSOR || self->kind == PX_TREE_DEVICE;
  return has ? self->device : PX_DEVICE_NONE;
}
int64_t px_tree_size(const px_tree *self) { return parts_of(self)->count; }

px_tree *px_tree_at(const px_tree *self, int64_t i) {
  return i >= 0 && i < px_tree_size(self) ? parts_of(self)->parts[i] : NULL;
}
px_tree *px_tree_key(const px_tree *self, int64_t i) {
  return has_keys(self) && i >= 0 && i < px_tree_size(self) ? parts_of(self)->keys[i] : NULL;
}
px_tree *px_tree_get(const px_tree *self, const char *key) {
  for (int64_t i = 0; has_keys(self) && i < px_tree_size(self); i++) {
    const char *name = px_tree_get_text(px_tree_key(self, i));
    if (name && !strcmp(name, key)) return px_tree_at(self, i);
  }
  return NULL;
}
