// SPDX-License-Identifier: Apache-2.0
// Files of tensors, and checkpoints: trees of tensors, numbers, texts, lists and dicts. The format
// is safetensors. When a file is read, every size and offset is checked before it is used.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// A file that is being written. Where `path` is new, or a regular file with one name, a temporary
// file beside it gets its owner, mode and, in the end, its name: whoever reads sees the old file or
// the new one, whole, and a crash leaves the old one. Otherwise (several hard links, a pipe, a
// device, a folder that takes no new files) it is written in place. Symbolic links are followed.
// Temporary files of this path that killed programs left are removed. PX_NOT_FOUND; PX_IO, with
// errno in the detail.
typedef struct px_file px_file;
PX_CALL px_file_create(px_file **out, const char *path);
PX_CALL px_file_write(px_file *self, const void *bytes, size_t length);
// Completes the file. One that is released before leaves the old file.
PX_CALL px_file_commit(px_file *self);

// Writes tensors of any device to a file, as px_file_create does. metadata: key, value, key,
// value, ..., NULL; or NULL.
PX_CALL px_save(const char *path, const px_dict *tensors, const char *const *metadata);
// Reads a file; tensors are made on `device` (PX_DEVICE_NONE: the CPU). PX_NOT_FOUND, PX_IO;
// PX_RUNTIME, which says what is wrong and where, for a file that is not a safetensors file.
// Tensors of dtypes that Phlox lacks (F8_E4M3, U16, C64 ...) are left out.
PX_CALL px_load(px_dict **out, const char *path, px_device device);
// Gives the metadata of a key, to be freed with px_free; *out is NULL if the file has no such key.
PX_CALL px_load_metadata(char **out, const char *path, const char *key);

// ---- trees: nested values in one file, {"model": ..., "epoch": 3}

typedef enum px_tree_kind {
  PX_TREE_NONE,
  PX_TREE_NUMBER,  // a bool, an int or a float
  PX_TREE_TEXT,
  PX_TREE_DTYPE,
  PX_TREE_DEVICE,
  PX_TREE_TENSOR,
  PX_TREE_FOREIGN,  // a tensor of a dtype that Phlox lacks, in a file; its text names the dtype
  PX_TREE_LIST,     // from here on: with parts
  PX_TREE_TUPLE,
  PX_TREE_SIZE,  // a tuple of ints (torch.Size)
  PX_TREE_DICT,  // from here on: with keys, in order
  PX_TREE_ORDERED
} px_tree_kind;
enum { PX_TREE_DEPTH = 60 };  // deeper trees are not written
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
// Makes a tree of a dict of tensors (a state_dict), and the reverse, without what is
// PX_TREE_FOREIGN: PX_TYPE if the tree is no such dict.
PX_CALL px_tree_from_dict(px_tree **out, const px_dict *tensors);
PX_CALL px_tree_to_dict(px_dict **out, const px_tree *self);
// Adds a part, of which the tree keeps a reference: at the end, under a key, or under a text. It
// does not look whether the key is there already. PX_TYPE if the tree's kind has no such parts.
PX_CALL px_tree_append(px_tree *self, px_tree *value);
PX_CALL px_tree_add(px_tree *self, px_tree *key, px_tree *value);
PX_CALL px_tree_set(px_tree *self, const char *key, px_tree *value);

// What a tree holds. For a tree of another kind they return 0, NULL, or a number of kind 0. All
// results are borrowed.
PX_API px_tree_kind px_tree_kind_of(const px_tree *self);
PX_API px_scalar px_tree_get_number(const px_tree *self);
PX_API const char *px_tree_get_text(const px_tree *self);
PX_API px_dtype px_tree_get_dtype(const px_tree *self);
PX_API px_tensor *px_tree_get_tensor(const px_tree *self);
// The device that the tree holds; of a loaded tensor, the device from which it was saved.
PX_API px_device px_tree_get_device(const px_tree *self);
PX_API int64_t px_tree_size(const px_tree *self);
PX_API px_tree *px_tree_at(const px_tree *self, int64_t i);
PX_API px_tree *px_tree_key(const px_tree *self, int64_t i);
PX_API px_tree *px_tree_get(const px_tree *self, const char *key);  // by text; NULL if absent

// Writes a tree as px_save does. A tensor that occurs several times is written once; whether it
// requires grad, or is a parameter, is kept. PX_VALUE for a tree that is too deep.
PX_CALL px_save_tree(const char *path, const px_tree *tree);
// Reads what px_save_tree, or torch.save to a name that ends in .safetensors, wrote, as px_load
// does; a file without a structure gives a dict of tensors, among which those of dtypes that Phlox
// lacks are PX_TREE_FOREIGN.
PX_CALL px_load_tree(px_tree **out, const char *path, px_device device);
// The same, to and from memory. The caller frees *bytes with px_free. `name` stands for the file in
// error messages.
PX_CALL px_tree_encode(void **bytes, size_t *length, const px_tree *tree);
PX_CALL px_tree_decode(px_tree **out, const void *bytes, size_t length, px_device device,
                       const char *name);

#ifdef __cplusplus
}
#endif
