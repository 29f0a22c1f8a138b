// SPDX-License-Identifier: Apache-2.0
// Meshes: the ranks of a communicator as a multi-dimensional array, such as 2 hosts x 4 devices.
// The ranks along each line of a dimension share a communicator.
//
// Selected and flattened dimensions keep their ranks: each rank's submesh by names is the slice
// containing that rank.
//
// Example: tests/comm/mesh_test.c.
#pragma once
#include "phlox/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PX_MESH_DIMS = 16 };  // maximum dimensions of a mesh

typedef struct px_mesh px_mesh;
typedef struct px_mesh_options {
  px_comm *comm;             // of all ranks; retained
  const int *ranks;          // of `comm`, in mesh order (row-major); NULL: 0, 1, 2, ...
  const int64_t *sizes;      // of the dimensions
  const char *const *names;  // of the dimensions; NULL: unnamed
  int ndim;
  // Communicators of this rank's lines, one for each dimension. NULL: they are created, and all
  // ranks of `comm` must call px_mesh_new. A line of all ranks uses `comm` itself.
  px_comm *const *lines;
  bool no_comms;  // create no communicators: px_mesh_comm returns NULL
} px_mesh_options;
// Makes a mesh. PX_RUNTIME "Mesh should not be bigger than default world size 2, but found 4
// ranks!", or for duplicate names; PX_VALUE for duplicate ranks.
PX_CALL px_mesh_new(px_mesh **out, const px_mesh_options *options);

// A missing dimension has size 0, no name and no communicator.
PX_API int px_mesh_ndim(const px_mesh *self);
PX_API int64_t px_mesh_size(const px_mesh *self, int dim);      // -1: of all
PX_API const char *px_mesh_name(const px_mesh *self, int dim);  // borrowed; NULL: unnamed
// Returns this rank's coordinate along a dimension; -1 if it is not in the mesh.
PX_API int64_t px_mesh_coordinate(const px_mesh *self, int dim);
// Stores the px_mesh_size(self, -1) ranks in mesh order; for a submesh, those of this rank's slice.
PX_API void px_mesh_ranks(const px_mesh *self, int *ranks);
// Stores the ranks along one dimension, through this rank's coordinates.
PX_API void px_mesh_line(const px_mesh *self, int dim, int *ranks);
// Returns the communicator of that line, borrowed; NULL if this rank is not in the mesh.
PX_API px_comm *px_mesh_comm(const px_mesh *self, int dim);
// Returns the rank stride between neighbours along part `part` of a dimension. A dimension
// flattened from non-contiguous ones has several parts; 0 past the last.
PX_API int64_t px_mesh_stride(const px_mesh *self, int dim, int part);
// True if two meshes have the same ranks, shape and names.
PX_API bool px_mesh_equal(const px_mesh *a, const px_mesh *b);

// Finds a dimension by name: PX_KEY if there is none.
PX_CALL px_mesh_find(int *dim, const px_mesh *self, const char *name);
// Makes a mesh of selected dimensions. PX_RUNTIME if they share ranks; PX_KEY unless they are in
// descending order of strides.
PX_CALL px_mesh_select(px_mesh **out, px_mesh *const *meshes, const int *dims, int count);
// Makes a one-dimensional mesh of all ranks of the mesh. All ranks of the communicator must call
// it, unless the mesh is `no_comms`.
PX_CALL px_mesh_flatten(px_mesh **out, px_mesh *self, const char *name);

#ifdef __cplusplus
}
#endif
