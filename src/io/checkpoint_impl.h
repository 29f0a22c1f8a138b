// SPDX-License-Identifier: Apache-2.0
// Internal header of checkpoints: names and layout of their trees.
#pragma once
#include "io/io_impl.h"
#include "phlox/autograd.h"
#include "phlox/checkpoint.h"

#define PX__CHECKPOINT_METADATA ".metadata"
enum { PX__CHECKPOINT_VERSION = 1, PX__CHECKPOINT_PATH = 3072, PX__CHECKPOINT_NAME = 128 };
// List fields of a rank's tensor, of a metadata entry, and of a piece of an entry.
enum { PX__ITEM_NAME, PX__ITEM_DTYPE, PX__ITEM_SIZES, PX__ITEM_FIRST, PX__ITEM_ROWS };
enum { PX__ENTRY_DTYPE, PX__ENTRY_SIZES, PX__ENTRY_PIECES, PX__ENTRY_PARTS };
enum { PX__PIECE_FILE, PX__PIECE_FIRST, PX__PIECE_ROWS, PX__PIECE_PARTS };

// Joins folder/name. Fails with PX_VALUE if the path is too long.
px_status px__checkpoint_path(char *path, const char *folder, const char *name)
    __attribute__((warn_unused_result));
// Rows of a part: size(0), or 1 for a 0-dimensional tensor.
int64_t px__checkpoint_rows(const px_tensor *part);
