// SPDX-License-Identifier: Apache-2.0
// What the two files of checkpoints share: names, and how their trees are laid out.
#pragma once
#include "io/io_impl.h"
#include "phlox/autograd.h"
#include "phlox/checkpoint.h"

#define PX__CHECKPOINT_METADATA ".metadata"
enum { PX__CHECKPOINT_VERSION = 1, PX__CHECKPOINT_PATH = 4096, PX__CHECKPOINT_NAME = 128 };
// What a rank tells of a tensor, and what the metadata has of one, are lists of these.
enum { PX__ITEM_NAME, PX__ITEM_DTYPE, PX__ITEM_SIZES, PX__ITEM_FIRST, PX__ITEM_ROWS };
enum { PX__ENTRY_DTYPE, PX__ENTRY_SIZES, PX__ENTRY_PIECES, PX__ENTRY_PARTS };
enum { PX__PIECE_FILE, PX__PIECE_FIRST, PX__PIECE_ROWS, PX__PIECE_PARTS };

// Writes folder/name; PX_VALUE if that is too long.
px_status px__checkpoint_path(char *path, const char *folder, const char *name)
    __attribute__((warn_unused_result));
// Of a tensor without dimensions 1; of one without elements, as many as it says.
int64_t px__checkpoint_rows(const px_tensor *part);
