// SPDX-License-Identifier: Apache-2.0
// What a DTensor's `_spec` says, for the files that bind sharded tensors.
#pragma once
#include "group.h"
#include "phlox/placement.h"

// The entries of a spec: the mesh, the placements, the sizes of the whole, and the group of the one
// dimension of the mesh along which it is cut; None where there is no such dimension.
enum { EXT_SPEC_MESH, EXT_SPEC_PLACEMENTS, EXT_SPEC_SHAPE, EXT_SPEC_COMM };

typedef struct ext_dtensor_spec {
  px_layout layout;  // borrowed from the spec, and over what follows
  px_placement placements[PX_MESH_DIMS];
  int64_t sizes[PX_MAX_DIMS];
} ext_dtensor_spec;
// The mesh of a DeviceMesh, borrowed; TypeError for other objects.
px_mesh *ext_mesh(PyObject *object);
int ext_read_spec(ext_dtensor_spec *out, PyObject *spec);
// What a placement says, which is the m-th of a mesh: NotImplementedError for those that are
// neither Shard nor Replicate nor Partial.
int ext_read_placement(px_placement *out, PyObject *object, int m);
// Whether a tensor is what is still to be reduced along some dimension, and whether each rank has
// the whole.
bool ext_spec_is_partial(const ext_dtensor_spec *of);
bool ext_spec_is_replicated(const ext_dtensor_spec *of);
// The spec of a DTensor, a new reference, and its layout.
PyObject *ext_spec_of(ext_dtensor_spec *out, PyObject *tensor);
// The tensor that all ranks have together, from this rank's part. Without the GIL.
px_status ext_full_tensor(px_tensor **out, const ext_dtensor_spec *of, px_tensor *local);
