// SPDX-License-Identifier: Apache-2.0
// Checkpoints of several processes: a folder into which each rank writes the rows that it has, as a
// safetensors file, and which any number of ranks, or a process alone, reads again.
//
// The file `.metadata` of the folder says what is there, and which files have it; it is a tree
// (phlox/io.h), and gets its name when all files are complete. So whoever is killed while it saves
// leaves the checkpoint that was there before.
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
  px_tensor *part;       // of any device
  const int64_t *sizes;  // of the whole, as many as part's; NULL: part is the whole
  int64_t first;         // the row of the whole at which part begins
} px_checkpoint_item;

// Writes a checkpoint into a folder, which is made if need be, in the place of the one that is
// there. All ranks of `comm` call it; NULL: this process alone. `device` is that of their
// collectives. What several ranks have alike, the first of them writes; `values`, a dict or NULL,
// are rank 0's. PX_IO and its like at the rank that cannot write, PX_RUNTIME "rank 1 could not
// write its part of the checkpoint 'x'" at the others.
PX_CALL px_checkpoint_save(const char *folder, px_comm *comm, px_device device,
                           const px_checkpoint_item *items, int count, px_tree *values);

typedef struct px_checkpoint px_checkpoint;
// Opens the checkpoint of a folder, of which the metadata is read. PX_NOT_FOUND if it has none;
// PX_RUNTIME, which says what is wrong, if it is damaged.
PX_CALL px_checkpoint_open(px_checkpoint **out, const char *folder);
typedef struct px_checkpoint_entry {
  const char *name;  // borrowed, as the sizes
  px_dtype dtype;
  int ndim;
  const int64_t *sizes;
} px_checkpoint_entry;
// The i-th tensor, in the order of names as they were saved; false past the end.
PX_API bool px_checkpoint_at(const px_checkpoint *self, int i, px_checkpoint_entry *out);
PX_API bool px_checkpoint_find(const px_checkpoint *self, const char *name,
                               px_checkpoint_entry *out);
PX_API px_tree *px_checkpoint_values(const px_checkpoint *self);  // a dict, borrowed
// Copies what was saved into parts of any rows, dtype and device. Names, sizes and files are
// checked before the first is changed: PX_RUNTIME "Missing key in checkpoint state_dict: x.", or a
// file that is missing or has another length; PX_VALUE "Size mismatch between saved torch.Size([2])
// and current: torch.Size([3]) for x".
PX_CALL px_checkpoint_read(px_checkpoint *self, const px_checkpoint_item *items, int count);

#ifdef __cplusplus
}
#endif
