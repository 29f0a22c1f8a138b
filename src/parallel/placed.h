// SPDX-License-Identifier: Apache-2.0
// What parts of tensors have in common, for the files of this folder.
#pragma once
#include "parallel/reducer_impl.h"

// The tensor, or, where the communicator takes none of the CPU's, a copy on the current device.
PX__MUST px_status px__placed_for(px_tensor **out, px_comm *comm, px_tensor *tensor);
// Gathers what the ranks have along a dimension, which has `size` places in the whole.
PX__MUST px_status px__placed_gather(px_tensor **out, px_comm *comm, const px_tensor *local,
                                     int dim, int64_t size);
