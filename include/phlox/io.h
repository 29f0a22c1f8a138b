// SPDX-License-Identifier: Apache-2.0
// Tensors in files, and checkpoints: trees of tensors, numbers, texts, lists and dicts. The format
// is safetensors, written atomically, read with every size and offset checked before it is used.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// Writes the tensors (from any device) to `path`: first to a temporary file beside it, which then
// takes its name, so that a crash leaves the old file whole. metadata: key, value, key, value, ...,
// NULL; may be NULL. PX_IO with errno in the detail.
PX_CALL px_save(const char *path, const px_dict *tensors, const char *const *metadata);
// Reads a file. Tensors go to `device` (PX_DEVICE_NONE: the CPU). PX_NOT_FOUND, PX_IO; PX_RUNTIME
// for a file that is no safetensors file, saying what is wrong and where.
PX_CALL px_load(px_dict **out, const char *path, px_device device);
// The value of a metadata key of a file: *out NULL if it has none; freed by the caller with
// px_free.
PX_CALL px_load_metadata(char **out, const char *path, const char *key);

// ---- trees: what a program keeps in one file, {"model": ..., "epoch": 3}

typedef enum px_tree_kind {
  PX_TREE_NONE,
  PX_TREE_NUMBER,  // a bool, an int or a float
  PX_TREE_TEXT,
  PX_TREE_DTYPE,
  PX_TREE_DEVICE,
  PX_TREE_TENSOR,
  PX_TREE_LIST,  // from here on: with parts
  PX_TREE_TUPLE,
  PX_TREE_SIZE,  // a tuple of ints (torch.Size)
  PX_TREE_DICT,  // from here on: with keys, in order
  PX_TREE_ORDERED
} px_tree_kind;
enum { PX_TREE_DEPTH = 60 };  // parts in parts; deeper trees are not written
typedef struct px_tree px_tree;

// One value without parts.
PX_CALL px_tree_none(px_tree **out);
PX_CALL px_tree_number(px_tree **out, px_scalar number);
PX_CALL px_tree_text(px_tree **out, const char *utf8);
PX_CALL px_tree_dtype(px_tree **out, px_dtype dtype);
PX_CALL px_tree_device(px_tree **out, px_device device);
PX_CALL px_tree_tensor(px_tree **out, px_tensor *tensor);
// An empty list, tuple, size or dict. PX_VALUE for a kind without parts.
PX_CALL px_tree_new(px_tree **out, px_tree_kind kind);
// A dict of tensors (a state_dict) as a tree; and the other way: PX_TYPE if the tree is none.
PX_CALL px_tree_from_dict(px_tree **out, const px_dict *tensors);
PX_CALL px_tree_to_dict(px_dict **out, const px_tree *self);
// Adds a part, which the tree retains: at the end, under a key, or under a text. A key that is
// there already is not looked for. PX_TYPE if the tree's kind has no such parts.
PX_CALL px_tree_append(px_tree *self, px_tree *value);
PX_CALL px_tree_add(px_tree *self, px_tree *key, px_tree *value);
PX_CALL px_tree_set(px_tree *self, const char *key, px_tree *value);

// What a tree is. Wrong kinds give 0, NULL, or a number of kind 0; all results are borrowed.
PX_API px_tree_kind px_tree_kind_of(const px_tree *self);
PX_API px_scalar px_tree_get_number(const px_tree *self);
PX_API const char *px_tree_get_text(const px_tree *self);
PX_API px_dtype px_tree_get_dtype(const px_tree *self);
PX_API px_tensor *px_tree_get_tensor(const px_tree *self);
// The device that it names; of a tensor that was loaded, the one that it was saved on.
PX_API px_device px_tree_get_device(const px_tree *self);
PX_API int64_t px_tree_size(const px_tree *self);
PX_API px_tree *px_tree_at(const px_tree *self, int64_t i);
PX_API px_tree *px_tree_key(const px_tree *self, int64_t i);
PX_API px_tree *px_tree_get(const px_tree *self, const char *key);  // by text; NULL if absent

// Writes a tree, as px_save does: a tensor that stands in several places is written once, and
// whether it requires grad or is a parameter is kept. PX_VALUE for a tree that is too deep.
PX_CALL px_save_tree(const char *path, const px_tree *tree);
// Reads what px_save_tree or torch.save wrote; a file of tensors without a structure is a dict. As
// px_load.
PX_CALL px_load_tree(px_tree **out, const char *path, px_device device);
// The same bytes in memory; freed by the caller with px_free. `name` stands for the file in errors.
PX_CALL px_tree_encode(void **bytes, size_t *length, const px_tree *tree);
PX_CALL px_tree_decode(px_tree **out, const void *bytes, size_t length, px_device device,
                       const char *name);

#ifdef __cplusplus
}
#endif
