// SPDX-License-Identifier: Apache-2.0
// Placements of DTensors on the ranks of a mesh (phlox/placement.h): converts Python placements to
// core placements, and creates shards of tensors and of DTensors.
#include "dist/placements.h"

#include <string.h>

#include "nn/nn.h"
#include "phlox/ops/copy.h"

// ---- placements

static PyObject *classes;  // Shard, Replicate, Partial
EXT_FUNCTION(torch, _placement_classes, "(shard: type, replicate: type, partial: type) -> None",
             "Sets the placement classes.") {
  EXT_ARGS(PyObject *, shard, replicate, partial);
  Py_XSETREF(classes, PyTuple_Pack(3, shard, replicate, partial));
  return ext_none_unless(!classes);
}

static const char *const reductions[PX_REDUCE_COUNT] = {
    [PX_REDUCE_SUM] = "sum",         [PX_REDUCE_AVG] = "avg",   [PX_REDUCE_MIN] = "min",
    [PX_REDUCE_MAX] = "max",         [PX_REDUCE_BAND] = "band", [PX_REDUCE_BOR] = "bor",
    [PX_REDUCE_PRODUCT] = "product", [PX_REDUCE_BXOR] = "bxor"};

static int read_reduction(px_placement *out, PyObject *object) {
  EXT_OWNED *name = PyObject_GetAttrString(object, "reduce_op");
  for (int r = 0; name && r < PX_REDUCE_COUNT; r++)
    if (reductions[r] && PyUnicode_Check(name) &&
        !PyUnicode_CompareWithASCIIString(name, reductions[r]))
      return out->reduce = r, 0;
  if (name) PyErr_Format(PyExc_ValueError, "Unknown reduce_op for Partial placement: %S", name);
  return -1;
}

static int read_dim(px_placement *out, PyObject *object) {
  EXT_OWNED *dim = PyObject_GetAttrString(object, "dim");
  long value = dim ? PyLong_AsLong(dim) : -1;
  out->dim = ext_clamp_device_index(value);
  return PyErr_Occurred() ? -1 : 0;
}

int ext_read_placement(px_placement *out, PyObject *object, int m) {
  static const px_placement_kind kinds[] = {PX_PLACEMENT_SHARD, PX_PLACEMENT_REPLICATE,
                                            PX_PLACEMENT_PARTIAL};
  int kind = 0;
  while (kind < 3 && (PyObject *)Py_TYPE(object) != PyTuple_GET_ITEM(classes, kind)) kind++;
  if (kind == 3)
    EXT_FAIL_INT(PyExc_NotImplementedError,
                 "Trying to distribute tensor with unsupported placements %S on device mesh "
                 "dimension %d!",
                 object, m);
  *out = (px_placement){.kind = kinds[kind]};
  if (out->kind == PX_PLACEMENT_SHARD) return read_dim(out, object);
  return out->kind == PX_PLACEMENT_PARTIAL ? read_reduction(out, object) : 0;
}

// ---- layouts

int ext_read_spec(ext_dtensor_spec *out, PyObject *spec) {
  if (!PyTuple_Check(spec) || PyTuple_GET_SIZE(spec) <= EXT_SPEC_COMM)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "the DTensor has no mesh: it was not created by a DTensor function");
  PyObject *placements = PyTuple_GET_ITEM(spec, EXT_SPEC_PLACEMENTS);
  PyObject *shape = PyTuple_GET_ITEM(spec, EXT_SPEC_SHAPE);
  px_mesh *mesh = ext_mesh(PyTuple_GET_ITEM(spec, EXT_SPEC_MESH));
  if (!mesh) return -1;
  int n = px_mesh_ndim(mesh), ndim = (int)PyTuple_GET_SIZE(shape);
  for (int m = 0; m < n; m++)
    if (ext_read_placement(&out->placements[m], PyTuple_GET_ITEM(placements, m), m) < 0) return -1;
  for (int d = 0; d < ndim; d++) out->sizes[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
  out->layout = (px_layout){mesh, out->placements, ndim, out->sizes};
  return PyErr_Occurred() ? -1 : 0;
}

PyObject *ext_spec_of(ext_dtensor_spec *out, PyObject *tensor) {
  EXT_OWNED *spec = PyObject_GetAttrString(tensor, "_spec");
  return spec && ext_read_spec(out, spec) == 0 ? ext_moved(&spec) : NULL;
}

static bool any(const ext_dtensor_spec *of, px_placement_kind kind) {
  for (int m = 0; m < px_mesh_ndim(of->layout.mesh); m++)
    if (of->placements[m].kind == kind) return true;
  return false;
}
bool ext_spec_is_partial(const ext_dtensor_spec *of) { return any(of, PX_PLACEMENT_PARTIAL); }
bool ext_spec_is_replicated(const ext_dtensor_spec *of) {
  return !any(of, PX_PLACEMENT_PARTIAL) && !any(of, PX_PLACEMENT_SHARD);
}

px_status ext_full_tensor(px_tensor **out, const ext_dtensor_spec *of, px_tensor *local) {
  px_placement whole[PX_MESH_DIMS] = {{.kind = PX_PLACEMENT_REPLICATE}};  // all dims: WHOLE is 0
  return px_redistribute(out, local, &of->layout, whole);
}

EXT_FUNCTION(torch, _local_shard, "(tensor: Tensor, spec: tuple) -> Tensor",
             "Returns a copy of this rank's shard of a full tensor.") {
  EXT_ARGS(PyObject *, tensor, spec);
  ext_dtensor_spec of;
  px_tensor *part;
  px_tensor *whole = ext_need_tensor(tensor, "distribute_tensor", "tensor");
  if (!whole || ext_read_spec(&of, spec) < 0) return NULL;
  EXT_TRY(px_layout_extract(&part, &of.layout, whole));
  return ext_wrap(part);
}
EXT_FUNCTION(
    torch, _redistribute_local, "(tensor: Tensor, spec: tuple) -> Tensor",
    "Redistributes a DTensor to a spec and returns this rank's shard. Called by all ranks.") {
  EXT_ARGS(PyObject *, tensor, spec);
  ext_dtensor_spec from, to;
  px_tensor *made;
  EXT_OWNED *before = ext_spec_of(&from, tensor);
  if (!before || ext_read_spec(&to, spec) < 0) return NULL;
  EXT_WAIT(px_redistribute(&made, ext_tensor(tensor), &from.layout, to.placements));
  if (made == ext_tensor(tensor)) px_release(made), made = NULL;
  return made ? ext_wrap(made) : ext_as_class(tensor, ext_TensorType, false);
}
