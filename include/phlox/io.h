// SPDX-License-Identifier: Apache-2.0
// Tensor files and checkpoints: trees of tensors, numbers, texts, lists and dicts. The format is
// safetensors. Reading checks every size and offset before using it.
#pragma once
#include "phlox/nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// A file being written. If `path` is new, or a regular file with one hard link, the data goes to a
// temporary file in the same folder. It receives the owner and mode of the old file and is renamed
// at commit, so readers see the old or the new file, complete, and a crash leaves the old one.
// Otherwise (several hard links, a pipe, a device, a folder without write permission) the file is
// written in place. Symbolic links are followed. Leftover temporary files of this path from killed
// programs are removed. PX_NOT_FOUND; PX_IO, with errno as detail.
typedef struct px_file px_file;
PX_CALL px_file_create(px_file **out, const char *path);
PX_CALL px_file_write(px_file *self, const void *bytes, size_t length);
// Completes the file. Releasing a file without commit keeps the old one.
PX_CALL px_file_commit(px_file *self);

// Writes tensors on any device to a file, as px_file_create does. metadata: key, value, key, value,
// ..., NULL; or NULL.
PX_CALL px_save(const char *path, const px_dict *tensors, const char *const *metadata);
// Reads a file onto `device` (PX_DEVICE_NONE: the CPU). PX_NOT_FOUND, PX_IO; PX_RUNTIME, with the
// error and its offset, for a file that is not a valid safetensors file. Tensors of unsupported
// dtypes are omitted.
PX_CALL px_load(px_dict **out, const char *path, px_device device);
// Returns the metadata of a key, to be freed with px_free; *out is NULL if there is no such key.
PX_CALL px_load_metadata(char **out, const char *path, const char *key);

// ---- trees: nested values in one file, {"model": ..., "epoch": 3}

typedef enum px_tree_kind {
  PX_TREE_NONE,
  PX_TREE_NUMBER,  // a bool, an int or a float
  PX_TREE_TEXT,
  PX_TREE_DTYPE,
  PX_TREE_DEVICE,
  PX_TREE_TENSOR,
  PX_TREE_FOREIGN,  // a tensor of an unsupported dtype in a file; its text names the dtype
  PX_TREE_LIST,     // this and later kinds have parts
  PX_TREE_TUPLE,
  PX_TREE_SIZE,  // a tuple of ints (torch.Size)
  PX_TREE_DICT,  // this and later kinds have ordered keys
  PX_TREE_ORDERED
} px_tree_kind;
enum { PX_TREE_DEPTH = 60 };  // maximum depth of a written tree
typedef struct px_tree px_tree;

// Make a tree of one value, without parts.
PX_CALL px_tree_none(px_tree **out);
PX_CALL px_tree_number(px_tree **out, px_scalar number);
PX_CALL px_tree_text(px_tree **out, const char *utf8);
PX_CALL px_tree_dtype(px_tree **out, px_dtype dtype);
PX_CALL px_tree_device(px_tree **out, px_device device);
PX_CALL px_tree_tensor(px_tree **out, px_tensor *tensor);
// Makes an empty list, tuple, size or dict. PX_VALUE for a kind without parts.
PX_CALL px_tree_new(px_tree **out, px_tree_kind kind);
// px_tree_from_dict makes a tree of a dict of tensors (a state_dict). px_tree_to_dict does the
// reverse and omits PX_TREE_FOREIGN; PX_TYPE if the tree is not a dict of tensors.
PX_CALL px_tree_from_dict(px_tree **out, const px_dict *tensors);
PX_CALL px_tree_to_dict(px_dict **out, const px_tree *self);
// Add a part, retained by the tree: at the end, with a tree as key, or with a string as key.
// Existing keys are not checked. PX_TYPE if the tree's kind has no such parts.
PX_CALL px_tree_append(px_tree *self, px_tree *value);
PX_CALL px_tree_add(px_tree *self, px_tree *key, px_tree *value);
PX_CALL px_tree_set(px_tree *self, const char *key, px_tree *value);

// Return the contents of a tree. For a tree of another kind they return 0, NULL, or a number of
// kind 0. Results are borrowed.
PX_API px_tree_kind px_tree_kind_of(const px_tree *self);
PX_API px_scalar px_tree_get_number(const px_tree *self);
PX_API const char *px_tree_get_text(const px_tree *self);
PX_API px_dtype px_tree_get_dtype(const px_tree *self);
PX_API px_tensor *px_tree_get_tensor(const px_tree *self);
// Returns the device held by the tree; for a loaded tensor, the device it was saved from.
PX_API px_device px_tree_get_device(const px_tree *self);
PX_API int64_t px_tree_size(const px_tree *self);
PX_API px_tree *px_tree_at(const px_tree *self, int64_t i);
PX_API px_tree *px_tree_key(const px_tree *self, int64_t i);
PX_API px_tree *px_tree_get(const px_tree *self, const char *key);  // by text; NULL if absent

// Writes a tree as px_save does. A tensor occurring several times is written once. Flags
// requires_grad and parameter are saved. PX_VALUE for a tree deeper than PX_TREE_DEPTH.
PX_CALL px_save_tree(const char *path, const px_tree *tree);
// Reads a file written by px_save_tree, or by torch.save to a name ending in .safetensors.
// Otherwise as px_load. A file without a structure yields a dict of tensors, with PX_TREE_FOREIGN
// for unsupported dtypes.
PX_CALL px_load_tree(px_tree **out, const char *path, px_device device);
// The same, to and from memory. The caller frees *bytes with px_free. `name` replaces the file name
// in error messages.
PX_CALL px_tree_encode(void **bytes, size_t *length, const px_tree *tree);
PX_CALL px_tree_decode(px_tree **out, const void *bytes, size_t length, px_device device,
                       const char *name);

#ifdef __cplusplus
}
#endif
