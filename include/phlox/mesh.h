// SPDX-License-Identifier: Apache-2.0
// Meshes: the ranks of a communicator as an array of several dimensions, such as 2 hosts x 4
// devices. Along each dimension the ranks of a line have a communicator of their own.
//
// A dimension that is cut out, or that several are flattened into, keeps its place among the
// ranks: the mesh of some names is, for each rank, the part that the rank is in.
//
// Example: tests/comm/mesh_test.c.
#pragma once
#include "phlox/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PX_MESH_DIMS = 16 };  // of one mesh, at most

typedef struct px_mesh px_mesh;
typedef struct px_mesh_options {
  px_comm *comm;             // of all ranks; the mesh keeps it
  const int *ranks;          // of `comm`, in the order of the mesh; NULL: 0, 1, 2, ...
  const int64_t *sizes;      // of the dimensions
  const char *const *names;  // of the dimensions; NULL: they have none
  int ndim;
  // The communicators of the lines that this rank is in, one for each dimension; NULL: they are
  // made, and all ranks of `comm` call this together. A line of all ranks is `comm` itself.
  px_comm *const *lines;
  bool apart;  // nothing is made: px_mesh_comm gives NULL
} px_mesh_options;
// Makes a mesh. PX_RUNTIME "Mesh should not be bigger than default world size 2, but found 4
// ranks!", or for names that are not different; PX_VALUE for ranks that are not.
PX_CALL px_mesh_new(px_mesh **out, const px_mesh_options *options);

// A dimension that there is not has the size 0, no name and no communicator.
PX_API int px_mesh_ndim(const px_mesh *self);
PX_API int64_t px_mesh_size(const px_mesh *self, int dim);      // -1: of all
PX_API const char *px_mesh_name(const px_mesh *self, int dim);  // borrowed; NULL: it has none
// The place of this rank along a dimension; -1 if it is not in the mesh.
PX_API int64_t px_mesh_coordinate(const px_mesh *self, int dim);
// The ranks, of which px_mesh_size(self, -1) fit, in the order of the mesh; of a part, of the one
// that this rank is in.
PX_API void px_mesh_ranks(const px_mesh *self, int *ranks);
// The ranks along one dimension, through this rank's place.
PX_API void px_mesh_line(const px_mesh *self, int dim, int *ranks);
// The communicator of that line, borrowed; NULL if this rank is not in the mesh.
PX_API px_comm *px_mesh_comm(const px_mesh *self, int dim);
// How far ranks that follow one another lie apart along part `part` of a dimension, which has
// several where it was flattened from ones that do not lie together; 0 behind the last.
PX_API int64_t px_mesh_stride(const px_mesh *self, int dim, int part);
// Whether two meshes have the same ranks, shape and names.
PX_API bool px_mesh_equal(const px_mesh *a, const px_mesh *b);

// The dimension of a name: PX_KEY if there is none.
PX_CALL px_mesh_find(int *dim, const px_mesh *self, const char *name);
// Makes a mesh of some dimensions. PX_RUNTIME if they share ranks; PX_KEY unless they are in
// descending order of their strides.
PX_CALL px_mesh_select(px_mesh **out, px_mesh *const *meshes, const int *dims, int count);
// Makes a mesh of one dimension, of all ranks of the mesh. All ranks of the communicator call it,
// unless the mesh is `apart`.
PX_CALL px_mesh_flatten(px_mesh **out, px_mesh *self, const char *name);

#ifdef __cplusplus
}
#endif
