// SPDX-License-Identifier: Apache-2.0
// The `_spec` of a DTensor, for the files binding sharded tensors.
#pragma once
#include "dist/group.h"
#include "phlox/placement.h"

// Entries of a spec: mesh, placements, global sizes, and the group of the only mesh dimension along
// which the tensor is sharded, or None.
enum { EXT_SPEC_MESH, EXT_SPEC_PLACEMENTS, EXT_SPEC_SHAPE, EXT_SPEC_COMM };

typedef struct ext_dtensor_spec {
  px_layout layout;  // borrows from the spec and the fields below
  px_placement placements[PX_MESH_DIMS];
  int64_t sizes[PX_MAX_DIMS];
} ext_dtensor_spec;
// Mesh of a DeviceMesh, borrowed; TypeError for other objects.
px_mesh *ext_mesh(PyObject *object);
int ext_read_spec(ext_dtensor_spec *out, PyObject *spec);
// Reads the placement for mesh dimension m. NotImplementedError unless it is Shard, Replicate or
// Partial.
int ext_read_placement(px_placement *out, PyObject *object, int m);
// True if the tensor has a pending reduction along some mesh dimension, and true if each rank holds
// the full tensor.
bool ext_spec_is_partial(const ext_dtensor_spec *of);
bool ext_spec_is_replicated(const ext_dtensor_spec *of);
// Spec of a DTensor, a new reference, and its layout.
PyObject *ext_spec_of(ext_dtensor_spec *out, PyObject *tensor);
// Gathers the full tensor from the local shards of all ranks. Called without the GIL.
px_status ext_full_tensor(px_tensor **out, const ext_dtensor_spec *of, px_tensor *local);
