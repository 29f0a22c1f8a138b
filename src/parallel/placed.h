// SPDX-License-Identifier: Apache-2.0
// Internal header: helpers shared by placement.c and shard_whole.c.
#pragma once
#include "parallel/reducer_impl.h"

// Returns the tensor, or a copy on the current GPU if the communicator rejects CPU tensors.
PX__MUST px_status px__placed_for(px_tensor **out, px_comm *comm, px_tensor *tensor);
// All-gathers the ranks' shards along `dim`. `size` is the unsharded size of that dimension.
PX__MUST px_status px__placed_gather(px_tensor **out, px_comm *comm, const px_tensor *local,
                                     int dim, int64_t size);
