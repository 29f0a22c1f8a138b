// SPDX-License-Identifier: Apache-2.0
// How a tensor lies on the ranks of a mesh, and how it comes to lie otherwise: the parts of which
// torch.distributed.tensor's DTensor is made.
//
// Along each dimension of the mesh the ranks have the same, or each a part, or each a summand.
// Where several dimensions cut the same dimension of the tensor, later ones cut the parts of
// earlier ones.
//
// Example: tests/comm/placement_test.c.
#pragma once
#include "phlox/mesh.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum px_placement_kind {
  PX_PLACED_WHOLE,   // each rank has the whole
  PX_PLACED_PART,    // each rank has its places along `dim`: px_shard_rows
  PX_PLACED_PARTIAL  // the tensor is what `reduce` gives of what the ranks have
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

// Which part this rank has: its sizes, and the place of the whole at which it begins. PX_VALUE for
// dimensions that the tensor has not, or for kinds of reductions that do not go together, "Mixed
// Partial reduce types are not supported in the same placement list."; PX_RUNTIME for a mesh that
// this rank is not in.
PX_CALL px_layout_part(int64_t *sizes, int64_t *first, const px_layout *layout);
// Copies this rank's part of a whole tensor that all ranks have. A summand is the whole by the
// number of ranks; of an average, a minimum and a maximum the whole; of others PX_VALUE "Replicate
// to Partial(product) conversion is not supported.".
PX_CALL px_layout_cut(px_tensor **out, const px_layout *layout, const px_tensor *whole);
// Copies this rank's part, as it lies otherwise on the same mesh; *out is `local` where it lies
// like that. All ranks of the mesh call it: what was cut is gathered, what is to be reduced is
// reduced, and, where it is cut then, reduced and cut at once. PX_RUNTIME "Can not redistribute
// from Replicate() to Partial(sum), only Shard to Partial(sum) redistribution is supported!".
//
// Where it is recorded, the gradient goes back the same way; that of what is to be reduced is the
// gradient of the whole, which each rank gets.
PX_CALL px_redistribute(px_tensor **out, px_tensor *local, const px_layout *from,
                        const px_placement *to);

#ifdef __cplusplus
}
#endif
