// SPDX-License-Identifier: Apache-2.0
// Placements of a tensor on the ranks of a mesh, and redistribution: the basis of
// torch.distributed.tensor's DTensor.
//
// Along each mesh dimension the ranks hold replicas, shards, or partial results. If several mesh
// dimensions shard the same tensor dimension, later ones split the shards of earlier ones.
//
// Example: tests/comm/placement_test.c.
#pragma once
#include "phlox/mesh.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum px_placement_kind {
  PX_PLACEMENT_REPLICATE,  // replicated: each rank has the whole tensor
  PX_PLACEMENT_SHARD,      // sharded: each rank has its rows along `dim` (px_shard_rows)
  PX_PLACEMENT_PARTIAL     // partial: the tensor is the reduction by `reduce` over the ranks
} px_placement_kind;
typedef struct px_placement {
  px_placement_kind kind;
  int dim;
  px_reduce_op reduce;  // PX_REDUCE_SUM, _AVG, _MIN, _MAX, _PRODUCT, or a bitwise one
} px_placement;
typedef struct px_layout {
  px_mesh *mesh;
  const px_placement *placements;  // one for each dimension of the mesh
  int ndim;
  const int64_t *sizes;  // of the whole tensor
} px_layout;

// Returns the sizes of this rank's part, and its offset in the whole tensor. PX_VALUE for a
// dimension out of range or incompatible reductions, "Mixed Partial reduce types are not supported
// in the same placement list."; PX_RUNTIME if this rank is not in the mesh.
PX_CALL px_layout_part(int64_t *sizes, int64_t *first, const px_layout *layout);
// Copies this rank's part of a whole tensor available on all ranks. For a partial sum, the whole
// divided by the number of ranks; for a partial average, minimum or maximum, the whole. Others:
// PX_VALUE "Replicate to Partial(product) conversion is not supported.".
PX_CALL px_layout_extract(px_tensor **out, const px_layout *layout, const px_tensor *whole);
// Redistributes this rank's part to other placements on the same mesh; *out is `local` if they are
// equal. All ranks of the mesh call it. Shards are gathered, partial results are reduced, or
// reduce-scattered if sharded afterwards. PX_RUNTIME "Can not redistribute from Replicate() to
// Partial(sum), only Shard to Partial(sum) redistribution is supported!".
//
// If recorded, the gradient is redistributed in reverse. For a partial result, each rank receives
// the gradient of the whole.
PX_CALL px_redistribute(px_tensor **out, px_tensor *local, const px_layout *from,
                        const px_placement *to);

#ifdef __cplusplus
}
#endif
