// SPDX-License-Identifier: Apache-2.0
// Checkpoints of several processes: a folder of safetensors files, one for each rank, with that
// rank's rows. Any number of ranks, or a single process, can read it.
//
// The file `.metadata` lists the contents and their files. It is a tree (phlox/io.h) and is renamed
// into place after all files are complete, so a save that is killed leaves the previous checkpoint
// intact.
//
// Example: tests/comm/checkpoint_test.c.
#pragma once
#include "phlox/comm.h"
#include "phlox/io.h"
#ifdef __cplusplus
extern "C" {
#endif

// A tensor, or this rank's rows of one.
typedef struct px_checkpoint_item {
  const char *name;
  px_tensor *part;       // on any device
  const int64_t *sizes;  // of the whole tensor, with part's dimensions; NULL: part is the whole
  int64_t first;         // row of the whole tensor at the start of part
} px_checkpoint_item;

// Writes a checkpoint into a folder, created if missing, and replaces the one there. All ranks of
// `comm` call it; NULL: this process alone. `device` is the device of their collectives. Data held
// by several ranks is written by the first of them. `values`, a dict or NULL, are taken from rank
// 0. A rank that cannot write gets PX_IO or similar; the others get PX_RUNTIME "rank 1 could not
// write its part of the checkpoint 'x'".
PX_CALL px_checkpoint_save(const char *folder, px_comm *comm, px_device device,
                           const px_checkpoint_item *items, int count, px_tree *values);

typedef struct px_checkpoint px_checkpoint;
// Opens a checkpoint and reads its metadata. PX_NOT_FOUND if the folder has none; PX_RUNTIME,
// describing the damage, if it is corrupt.
PX_CALL px_checkpoint_open(px_checkpoint **out, const char *folder);
typedef struct px_checkpoint_entry {
  const char *name;  // borrowed, like sizes
  px_dtype dtype;
  int ndim;
  const int64_t *sizes;
} px_checkpoint_entry;
// Returns the i-th tensor, in the order of saving; false past the end.
PX_API bool px_checkpoint_at(const px_checkpoint *self, int i, px_checkpoint_entry *out);
PX_API bool px_checkpoint_find(const px_checkpoint *self, const char *name,
                               px_checkpoint_entry *out);
PX_API px_tree *px_checkpoint_values(const px_checkpoint *self);  // a dict, borrowed
// Copies saved data into parts with any rows, dtype and device. Checks names, sizes and files
// before it changes the first part. PX_RUNTIME "Missing key in checkpoint state_dict: x.", or for a
// file that is missing or has a wrong length; PX_VALUE "Size mismatch between saved torch.Size([2])
// and current: torch.Size([3]) for x".
PX_CALL px_checkpoint_read(px_checkpoint *self, const px_checkpoint_item *items, int count);

#ifdef __cplusplus
}
#endif
