// SPDX-License-Identifier: Apache-2.0
// torch.distributed.device_mesh: an n-dimensional array of ranks with a process group per
// dimension.
#include "phlox/mesh.h"

#include <string.h>

#include "dist/placements.h"

EXT_MODULE(device_mesh, "distributed.device_mesh", "n-dimensional arrays of ranks.");

typedef struct mesh_object {
  PyObject_HEAD px_mesh *mesh;
  PyObject *device_type, *groups;  // groups: a list by dimension; empty if not initialized
  PyObject *root;                  // the mesh this is a submesh of, or NULL
  PyObject *flattened;             // root meshes only: flattened meshes by name
} mesh_object;
#define M(object) ((mesh_object *)(object))
static void leave(PyObject *self) { ext_release_nogil(M(self)->mesh); }
EXT_OWNS(mesh, EXT_FINALIZER(leave), EXT_OBJECT(mesh_object, device_type),
         EXT_OBJECT(mesh_object, groups), EXT_OBJECT(mesh_object, root),
         EXT_OBJECT(mesh_object, flattened));
static PyTypeObject mesh_type;

static PyObject *root_of(PyObject *self) { return M(self)->root ? M(self)->root : self; }

// ---- values

// A variable of Python's environment, set by a launcher or user code.
static PyObject *environment_variable(const char *name) {
  return ext_call_from("phlox.distributed._groups", "_variable", "(s)", name);
}

static PyObject *numbers(int count, const int *values) {
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) PyTuple_SET_ITEM(tuple, i, PyLong_FromLong(values[i]));
  return tuple;
}

static PyObject *line_ranks(const px_mesh *mesh, int dim) {
  int count = (int)px_mesh_size(mesh, dim);
  int *ranks = PyMem_Malloc(((size_t)count + 1) * sizeof *ranks);
  if (!ranks) return PyErr_NoMemory();
  px_mesh_line(mesh, dim, ranks);
  PyObject *tuple = numbers(count, ranks);
  PyMem_Free(ranks);
  return tuple;
}

static PyObject *shape_of(const px_mesh *mesh) {
  int sizes[PX_MESH_DIMS];
  for (int d = 0; d < px_mesh_ndim(mesh); d++) sizes[d] = (int)px_mesh_size(mesh, d);
  return numbers(px_mesh_ndim(mesh), sizes);
}

static PyObject *names_of(const px_mesh *mesh) {
  int ndim = px_mesh_ndim(mesh);
  if (!ndim || !px_mesh_name(mesh, 0)) Py_RETURN_NONE;
  EXT_OWNED *names = PyTuple_New(ndim);
  for (int d = 0; names && d < ndim; d++) {
    PyObject *name = ext_str(px_mesh_name(mesh, d));
    if (!name) return NULL;
    PyTuple_SET_ITEM(names, d, name);
  }
  return ext_moved(&names);
}

// The ranks as an int32 tensor of the mesh's shape.
static PyObject *ranks_tensor(const px_mesh *mesh) {
  int64_t sizes[PX_MESH_DIMS];
  px_tensor *tensor;
  for (int d = 0; d < px_mesh_ndim(mesh); d++) sizes[d] = px_mesh_size(mesh, d);
  EXT_TRY(px_tensor_empty(&tensor, px_mesh_ndim(mesh), sizes, PX_INT32, (px_device){PX_CPU, -1}));
  px_mesh_ranks(mesh, px_tensor_data(tensor));
  return ext_wrap(tensor);
}

// ---- groups

// Process group of a dimension; the default group if they share the communicator.
static PyObject *group_along(const px_mesh *mesh, int dim) {
  PyObject *world = ext_group(NULL);
  px_comm *comm = px_mesh_comm(mesh, dim);
  if (!world || comm == ext_comm(world)) return Py_XNewRef(world);
  const char *name = px_mesh_name(mesh, dim);
  EXT_OWNED *description =
      name ? PyUnicode_FromFormat("mesh_%s", name) : PyUnicode_FromFormat("mesh_dim_%d", dim);
  if (!description) return NULL;
  EXT_OWNED *ranks = line_ranks(mesh, dim);
  EXT_OWNED *sorted = ranks ? PySequence_List(ranks) : NULL;
  if (!sorted || PyList_Sort(sorted) < 0) return NULL;
  return ext_group_from_comm(px_retain(comm), world, PyList_AsTuple(sorted),
                             PyUnicode_AsUTF8(description));
}

static int fill_groups(PyObject *self) {
  const px_mesh *mesh = M(self)->mesh;
  for (int d = 0; d < px_mesh_ndim(mesh) && px_mesh_comm(mesh, d); d++) {
    EXT_OWNED *group = group_along(mesh, d);
    if (!group || PyList_Append(M(self)->groups, group) < 0) return -1;
  }
  return 0;
}

static PyObject *mesh_over(px_mesh *mesh_take, PyObject *device_type, PyObject *root) {
  EXT_OWNED *self = ext_wrap_core(&mesh_type, mesh_take);
  if (!self) return NULL;
  M(self)->device_type = Py_NewRef(device_type);
  M(self)->root = Py_XNewRef(root);
  M(self)->groups = PyList_New(0);
  M(self)->flattened = PyDict_New();
  return M(self)->groups && M(self)->flattened ? ext_moved(&self) : NULL;
}

// ---- construction

// Parsed arguments of a mesh. Texts are owned by the Python arguments.
typedef struct mesh_args {
  int64_t sizes[PX_MESH_DIMS];
  const char *names[PX_MESH_DIMS];
  int *ranks;        // owned; NULL: all ranks in order
  PyObject *groups;  // existing groups by dimension, a sequence of ext_items; NULL: created
  int ndim;
  bool named, no_groups;
} mesh_args;

static int read_names(mesh_args *p, PyObject *names) {
  if (!names || names == Py_None) return 0;
  if (!PyTuple_Check(names) || PyTuple_GET_SIZE(names) != p->ndim)
    EXT_FAIL_INT(PyExc_RuntimeError,
                 "mesh_shape and mesh_dim_names should have same length! Found "
                 "len(mesh_dim_names): %zd and len(mesh_shape):%d.",
                 PyTuple_Check(names) ? PyTuple_GET_SIZE(names) : -1, p->ndim);
  for (int d = 0; d < p->ndim; d++)
    if (!(p->names[d] = ext_text(PyTuple_GET_ITEM(names, d)))) return -1;
  p->named = true;
  for (int d = 0; d < p->ndim; d++)
    for (int e = 0; e < d; e++)
      if (!strcmp(p->names[d], p->names[e]))
        EXT_FAIL_INT(PyExc_RuntimeError,
                     "Each mesh_dim_name must be unique. Found repeated mesh_dim_name in "
                     "mesh_dim_names %R",
                     names);
  return 0;
}

static int read_shape(mesh_args *p, int count, const int64_t *sizes) {
  if (count > PX_MESH_DIMS)
    EXT_FAIL_INT(PyExc_ValueError, "expected a mesh of at most %d dimensions, got %d", PX_MESH_DIMS,
                 count);
  p->ndim = count;
  memcpy(p->sizes, sizes, (size_t)count * sizeof *sizes);
  return 0;
}

// Reads ranks from a tensor or nested sequences.
static int read_ranks(mesh_args *p, PyObject *mesh) {
  px_tensor *given =
      ext_is_tensor(mesh) ? px_retain(ext_tensor(mesh)) : ext_tensor_from(mesh, PX_INT32, px_cpu());
  px_tensor *plain = NULL;
  EXT_OWNED *keep = given ? ext_wrap(given) : NULL;
  EXT_OWNED *here = keep ? ext_convert(keep, px_cpu(), PX_INT32, false, false) : NULL;
  if (!here) return -1;
  EXT_TRY_INT(px_tensor_detach(&plain, ext_tensor(here)));
  EXT_OWNED *owner = ext_wrap(plain);
  int64_t count = px_tensor_numel(plain);
  EXT_OWNED *flat = PyObject_CallMethod(owner, "flatten", NULL);
  if (!flat || read_shape(p, px_tensor_ndim(plain), px_tensor_sizes(plain)) < 0) return -1;
  if (!(p->ranks = PyMem_Malloc(((size_t)count + 1) * sizeof *p->ranks)))
    return PyErr_NoMemory(), -1;
  if (count) memcpy(p->ranks, px_tensor_data(ext_tensor(flat)), (size_t)count * sizeof *p->ranks);
  return 0;
}

// The default group, created if missing.
static PyObject *require_world(void) {
  EXT_OWNED *world = ext_call_from("phlox.distributed", "_world", "()");
  if (!world) return NULL;
  if (world != Py_None) return ext_group(NULL);
  EXT_OWNED *made = ext_call_from("phlox.distributed", "init_process_group", "()");
  return made ? ext_group(NULL) : NULL;
}

// Selects the device of the local rank unless one is already in use.
static int choose_device(const char *type) {
  EXT_OWNED *rank = environment_variable("LOCAL_RANK");
  if (!rank || !PyUnicode_GetLength(rank) || strcmp(type, "cuda") || px_device_initialized())
    return rank ? 0 : -1;
  EXT_OWNED *number = PyNumber_Long(rank);
  EXT_OWNED *set = number ? ext_call_from("phlox.cuda", "set_device", "(O)", number) : NULL;
  return set ? 0 : -1;
}

static int check_type(PyObject *type) {
  const char *text = ext_text(type);
  if (!text) return -1;
  for (; *text; text++)
    if (!Py_ISALPHA(*text))
      EXT_FAIL_INT(PyExc_RuntimeError,
                   "Device type with index is not supported but got %U. If you maintained a "
                   "'torch.device' object, it's recommended to pass in 'device.type'.",
                   type);
  return 0;
}

static PyObject *create_mesh(const mesh_args *p, PyObject *device_type) {
  px_comm *lines[PX_MESH_DIMS] = {NULL};
  px_mesh *mesh;
  PyObject *world = require_world();
  if (!world || check_type(device_type) < 0 || choose_device(PyUnicode_AsUTF8(device_type)) < 0)
    return NULL;
  for (int d = 0; p->groups && d < p->ndim; d++)
    if (!(lines[d] = ext_comm(PySequence_Fast_GET_ITEM(p->groups, d)))) return NULL;
  px_mesh_options options = {.comm = G(world)->comm,
                             .ranks = p->ranks,
                             .sizes = p->sizes,
                             .names = p->named ? p->names : NULL,
                             .ndim = p->ndim,
                             .lines = p->groups ? lines : NULL,
                             .no_comms = p->no_groups};
  EXT_WAIT(px_mesh_new(&mesh, &options));
  EXT_OWNED *self = mesh_over(mesh, device_type, NULL);
  if (!self) return NULL;
  int bad = p->groups ? PyList_SetSlice(M(self)->groups, 0, 0, p->groups) : fill_groups(self);
  return bad < 0 ? NULL : ext_moved(&self);
}

static int fail_override(PyObject *backend_override) {
  if (!backend_override || backend_override == Py_None) return 0;
  EXT_FAIL_INT(PyExc_NotImplementedError,
               "DeviceMesh(backend_override=) is not implemented in Phlox");
}

EXT_NEW(mesh,
        "(device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None, "
        "backend_override: Any | None = None, _init_backend: bool = True)") {
  PyObject *device_type, *mesh, *mesh_dim_names, *backend_override;
  bool _init_backend;
  mesh_args p = {0};
  EXT_BIND(device_type, mesh, mesh_dim_names, backend_override, _init_backend);
  if (fail_override(backend_override) < 0) return NULL;
  if (!mesh || !device_type || !PyUnicode_Check(device_type))
    EXT_FAIL(PyExc_TypeError, "The mesh argument is required except for PRIVATE USAGE ONLY!");
  p.no_groups = !_init_backend;
  bool good = read_ranks(&p, mesh) == 0 && read_names(&p, mesh_dim_names) == 0;
  PyObject *self = good ? create_mesh(&p, device_type) : NULL;
  PyMem_Free(p.ranks);
  return self;
}

EXT_FUNCTION(device_mesh, init_device_mesh,
             "(device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: tuple[str, ...] | "
             "None = None, backend_override: Any | None = None) -> DeviceMesh",
             "Initializes a DeviceMesh of all ranks in order, and the default group if missing.") {
  PyObject *device_type, *mesh_dim_names, *backend_override;
  ext_ints mesh_shape;
  mesh_args p = {0};
  EXT_BIND(device_type, mesh_shape, mesh_dim_names, backend_override);
  if (fail_override(backend_override) < 0) return NULL;
  if (!device_type || !PyUnicode_Check(device_type) || mesh_shape.count < 0)
    EXT_FAIL(PyExc_TypeError, "init_device_mesh expects the name of a device type and a shape");
  if (read_shape(&p, mesh_shape.count, mesh_shape.items) < 0 || read_names(&p, mesh_dim_names) < 0)
    return NULL;
  return create_mesh(&p, device_type);
}
EXT_ALIASES(dist, device_mesh_init_device_mesh, init_device_mesh);

// ---- printing

// "(dp=2, tp=4)", or only the shape.
static PyObject *shape_text(const px_mesh *mesh) {
  EXT_OWNED *parts = PyList_New(0);
  EXT_OWNED *comma = PyUnicode_FromString(", ");
  EXT_OWNED *shape = shape_of(mesh);
  if (!parts || !comma || !shape) return NULL;
  if (!px_mesh_ndim(mesh) || !px_mesh_name(mesh, 0)) return PyObject_Repr(shape);
  for (int d = 0; d < px_mesh_ndim(mesh); d++) {
    EXT_OWNED *part =
        PyUnicode_FromFormat("%s=%lld", px_mesh_name(mesh, d), (long long)px_mesh_size(mesh, d));
    if (!part || PyList_Append(parts, part) < 0) return NULL;
  }
  EXT_OWNED *joined = PyUnicode_Join(comma, parts);
  return joined ? PyUnicode_FromFormat("(%U)", joined) : NULL;
}

// The stride of each dimension, or a tuple for a dimension with several.
static PyObject *strides_of(const px_mesh *mesh) {
  EXT_OWNED *all = PyTuple_New(px_mesh_ndim(mesh));
  for (int d = 0; all && d < px_mesh_ndim(mesh); d++) {
    int parts[PX_MESH_DIMS], count = 0;
    for (; count < PX_MESH_DIMS && px_mesh_stride(mesh, d, count); count++)
      parts[count] = (int)px_mesh_stride(mesh, d, count);
    PyObject *strides = count == 1 ? PyLong_FromLong(*parts) : numbers(count, parts);
    if (!strides) return NULL;
    PyTuple_SET_ITEM(all, d, strides);
  }
  return ext_moved(&all);
}

static PyObject *mesh_repr(PyObject *self) {
  EXT_OWNED *shape = shape_text(M(self)->mesh);
  EXT_OWNED *strides = shape ? strides_of(M(self)->mesh) : NULL;
  if (!strides) return NULL;
  EXT_OWNED *level = environment_variable("TORCH_DISTRIBUTED_DEBUG");
  if (!level) return NULL;
  if (PyUnicode_CompareWithASCIIString(level, "DETAIL"))
    return PyUnicode_FromFormat("DeviceMesh(%U, '%U', stride=%R)", shape, M(self)->device_type,
                                strides);
  EXT_OWNED *ranks = ranks_tensor(M(self)->mesh);
  EXT_OWNED *list = ranks ? PyObject_CallMethod(ranks, "tolist", NULL) : NULL;
  if (!list) return NULL;
  return PyUnicode_FromFormat("DeviceMesh(%U, '%U', stride=%R, Mesh: %R)", shape,
                              M(self)->device_type, strides, list);
}

static PyObject *mesh_compare(PyObject *a, PyObject *b, int op) {
  if ((op != Py_EQ && op != Py_NE) || !PyObject_TypeCheck(b, &mesh_type)) Py_RETURN_NOTIMPLEMENTED;
  bool equal = px_mesh_equal(M(a)->mesh, M(b)->mesh) &&
               !PyUnicode_Compare(M(a)->device_type, M(b)->device_type);
  return PyBool_FromLong(equal == (op == Py_EQ));
}

static Py_hash_t mesh_hash(PyObject *self) {
  EXT_OWNED *text = shape_text(M(self)->mesh);
  return text ? PyObject_Hash(text) : -1;
}

// ---- submeshes

// A mesh of selected dimensions of other meshes, sharing their groups.
static PyObject *select_dims(PyObject *self, PyObject *const *from, const int *dims, int count) {
  px_mesh *meshes[PX_MESH_DIMS], *mesh;
  for (int i = 0; i < count; i++) meshes[i] = M(from[i])->mesh;
  EXT_TRY(px_mesh_select(&mesh, meshes, dims, count));
  EXT_OWNED *part = mesh_over(mesh, M(self)->device_type, root_of(self));
  for (int i = 0; part && i < count; i++)
    if (PyList_GET_SIZE(M(from[i])->groups) > dims[i] &&
        PyList_Append(M(part)->groups, PyList_GET_ITEM(M(from[i])->groups, dims[i])) < 0)
      return NULL;
  return part ? ext_moved(&part) : NULL;
}

static int fail_names(PyObject *self, PyObject *asked) {
  EXT_OWNED *own = names_of(M(self)->mesh);
  EXT_OWNED *valid = own ? PySequence_List(own) : NULL;
  EXT_OWNED *flat = valid ? PyDict_Keys(M(self)->flattened) : NULL;
  EXT_OWNED *all = flat ? PySequence_Concat(valid, flat) : NULL;
  if (!all) return -1;
  EXT_FAIL_INT(PyExc_KeyError, "Invalid mesh_dim_names %R specified. Valid mesh_dim_names are %R.",
               asked, all);
}

// Looks up a name among the mesh's dimensions, and a root's flattened meshes.
static int find_name(PyObject *self, PyObject *asked, PyObject *name, PyObject **from, int *dim) {
  const char *text = PyUnicode_Check(name) ? ext_lookup_text(name) : NULL;
  *from = self;
  if (text && px_mesh_find(dim, M(self)->mesh, text) == PX_OK) return 0;
  px_error_clear();
  *dim = 0;
  *from = text ? PyDict_GetItemWithError(M(self)->flattened, name) : NULL;
  if (*from) return 0;
  return PyErr_Occurred() ? -1 : fail_names(self, asked);
}

static PyObject *mesh_slice(PyObject *self, PyObject *key) {
  EXT_OWNED *own = names_of(M(self)->mesh);
  EXT_OWNED *asked = PyUnicode_Check(key) ? PyTuple_Pack(1, key) : PySequence_Tuple(key);
  PyObject *from[PX_MESH_DIMS];
  int dims[PX_MESH_DIMS];
  if (!own || !asked) return NULL;
  if (own == Py_None)
    EXT_FAIL(PyExc_RuntimeError, "Cannot slice a DeviceMesh without mesh_dim_names!");
  if (PyObject_RichCompareBool(own, asked, Py_EQ) == 1) return Py_NewRef(self);
  int count = (int)PyTuple_GET_SIZE(asked);
  if (!count || count > PX_MESH_DIMS) return fail_names(self, asked), NULL;
  for (int i = 0; i < count; i++)
    if (find_name(self, asked, PyTuple_GET_ITEM(asked, i), &from[i], &dims[i]) < 0) return NULL;
  EXT_OWNED *part = select_dims(self, from, dims, count);
  if (!part && PyErr_ExceptionMatches(PyExc_KeyError))
    PyErr_Format(PyExc_KeyError,
                 "Invalid mesh_dim_names %R specified. Mesh dim indices should be in ascending "
                 "order.",
                 asked);
  return ext_moved(&part);
}

static PyMappingMethods mesh_mapping = {NULL, mesh_slice, NULL};
static PyTypeObject mesh_type;
EXT_TYPE(mesh, "torch.distributed.device_mesh.DeviceMesh",
         "distributed.device_mesh.DeviceMesh distributed.DeviceMesh", mesh_object,
         EXT_BASETYPE | EXT_GC,
         "Represents a mesh of devices: an n-dimensional array of ranks with a process group along "
         "each dimension. Created by all ranks together.",
         EXT_LIFETIME_SLOTS(mesh), .tp_new = mesh_new, .tp_repr = mesh_repr, .tp_hash = mesh_hash,
         .tp_richcompare = mesh_compare, .tp_as_mapping = &mesh_mapping);

// The flattened mesh of a name, borrowed; fails if its ranks differ.
static PyObject *flattened_before(PyObject *self, PyObject *name, bool *bad) {
  PyObject *before = PyDict_GetItemWithError(M(root_of(self))->flattened, name);
  int dim;
  *bad = PyErr_Occurred() != NULL;
  if (!before && !*bad &&
      px_mesh_find(&dim, M(root_of(self))->mesh, PyUnicode_AsUTF8(name)) == PX_OK) {
    *bad = true;
    PyErr_Format(PyExc_ValueError,
                 "%U already exists for submesh of the %R. Please specify another valid "
                 "mesh_dim_name.",
                 name, root_of(self));
  }
  px_error_clear();
  if (before && px_mesh_size(M(before)->mesh, -1) != px_mesh_size(M(self)->mesh, -1)) {
    *bad = true;
    PyErr_Format(PyExc_ValueError,
                 "Flatten mesh with mesh_dim_name %U has been created before, Please specify "
                 "another valid mesh_dim_name.",
                 name);
  }
  return *bad ? NULL : before;
}

EXT_METHOD(mesh, _flatten,
           "(mesh_dim_name: str | None = None, backend_override: Any | None = None) -> DeviceMesh",
           "Returns a 1D mesh of all its ranks. Called by all ranks.") {
  PyObject *mesh_dim_name, *backend_override;
  px_mesh *flat;
  bool bad;
  EXT_BIND(mesh_dim_name, backend_override);
  EXT_OWNED *own = names_of(M(self)->mesh);
  if (!own || fail_override(backend_override) < 0) return NULL;
  if (own == Py_None)
    EXT_FAIL(PyExc_RuntimeError, "Cannot flatten a DeviceMesh without mesh_dim_names!");
  EXT_OWNED *line = PyUnicode_FromString("_");
  EXT_OWNED *name = mesh_dim_name && PyUnicode_Check(mesh_dim_name) ? Py_NewRef(mesh_dim_name)
                    : line                                          ? PyUnicode_Join(line, own)
                                                                    : NULL;
  const char *text = name ? ext_text(name) : NULL;
  if (!text) return NULL;
  if (PyTuple_GET_SIZE(own) == 1 && !PyUnicode_Compare(PyTuple_GET_ITEM(own, 0), name))
    return Py_NewRef(self);
  PyObject *before = flattened_before(self, name, &bad);
  if (bad || before) return Py_XNewRef(before);
  EXT_WAIT(px_mesh_flatten(&flat, M(self)->mesh, text));
  EXT_OWNED *made = mesh_over(flat, M(self)->device_type, root_of(self));
  if (!made || fill_groups(made) < 0 || PyDict_SetItem(M(root_of(self))->flattened, name, made) < 0)
    return NULL;
  return ext_moved(&made);
}

EXT_STATIC_METHOD(mesh, _concatenate, "(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh",
                  "Concatenates the dimensions of submeshes of the same mesh.") {
  EXT_ARGS(PyObject *, device_mesh_list);
  EXT_OWNED *list = ext_items(device_mesh_list, "device_mesh_list must be a list");
  PyObject *from[PX_MESH_DIMS];
  int dims[PX_MESH_DIMS], count = 0;
  if (!list) return NULL;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); i++) {
    PyObject *one = PySequence_Fast_GET_ITEM(list, i);
    if (!PyObject_TypeCheck(one, &mesh_type))
      EXT_FAIL(PyExc_TypeError, "expected a DeviceMesh, got %s", ext_type_name(one));
    for (int d = 0; d < px_mesh_ndim(M(one)->mesh) && count < PX_MESH_DIMS; d++)
      from[count] = one, dims[count++] = d;
  }
  if (!count) EXT_FAIL(PyExc_ValueError, "no meshes to concatenate");
  return select_dims(from[0], from, dims, count);
}

// ---- meshes of existing groups

static PyObject *from_single_group(PyObject *group, PyObject *device_type, PyObject *mesh,
                                   PyObject *names) {
  mesh_args p = {0};
  EXT_OWNED *ranks = PySequence_List(G(group)->ranks);
  EXT_OWNED *given = mesh && ext_is_tensor(mesh) ? PyObject_CallMethod(mesh, "tolist", NULL)
                                                 : Py_NewRef(mesh ? mesh : Py_None);
  if (!ranks || !given) return NULL;
  if (given != Py_None && PyObject_RichCompareBool(given, ranks, Py_EQ) != 1)
    EXT_FAIL(PyExc_ValueError, "Invalid mesh %S for ProcessGroup with ranks %R", mesh, ranks);
  EXT_OWNED *groups = PyTuple_Pack(1, group);
  p.groups = groups;
  bool good = groups && read_ranks(&p, ranks) == 0 && read_names(&p, names) == 0;
  PyObject *self = good ? create_mesh(&p, device_type) : NULL;
  PyMem_Free(p.ranks);
  return self;
}

static PyObject *from_groups(PyObject *groups, PyObject *device_type, PyObject *mesh,
                             PyObject *names) {
  mesh_args p = {.groups = groups};
  Py_ssize_t count = PySequence_Fast_GET_SIZE(groups);
  if (!count) EXT_FAIL(PyExc_ValueError, "Expects at least one ProcessGroup to be passed");
  if (!mesh) EXT_FAIL(PyExc_ValueError, "Must pass mesh if passing multiple ProcessGroups");
  if (!names)
    EXT_FAIL(PyExc_ValueError, "Must pass mesh_dim_names if passing multiple ProcessGroups");
  PyObject *self = NULL;
  if (read_ranks(&p, mesh) == 0) {
    if (p.ndim != count)
      PyErr_Format(PyExc_ValueError,
                   "Expects mesh with ndim equal to number of ProcessGroups but got mesh %S and "
                   "%zd ProcessGroups",
                   mesh, count);
    else if (read_names(&p, names) == 0)
      self = create_mesh(&p, device_type);
  }
  PyMem_Free(p.ranks);
  return self;
}

EXT_STATIC_METHOD(mesh, from_group,
                  "(group: Any, device_type: str, mesh: Any | None = None, *, mesh_dim_names: "
                  "tuple[str, ...] | None = None) -> DeviceMesh",
                  "Constructs a DeviceMesh from existing groups: one, or one per dimension.") {
  PyObject *group, *device_type, *mesh, *mesh_dim_names;
  EXT_BIND(group, device_type, mesh, mesh_dim_names);
  if (!device_type || !PyUnicode_Check(device_type))
    EXT_FAIL(PyExc_TypeError, "from_group expects the name of a device type");
  if (group && PyObject_TypeCheck(group, &ext_group_type))
    return from_single_group(group, device_type, mesh, mesh_dim_names);
  EXT_OWNED *groups = ext_items(group, "group must be a ProcessGroup or a list of them");
  return groups ? from_groups(groups, device_type, mesh, mesh_dim_names) : NULL;
}

// ---- attributes

EXT_GET(mesh, device_type, "str", Py_NewRef(M(self)->device_type), "The device type.");
EXT_GET(mesh, ndim, "int", px_mesh_ndim(M(self)->mesh), "The number of dimensions.");
EXT_GET(mesh, shape, "tuple[int, ...]", shape_of(M(self)->mesh), "The sizes of the dimensions.");
EXT_GET(mesh, mesh_dim_names, "tuple[str, ...] | None", names_of(M(self)->mesh),
        "The names of the dimensions.");
EXT_GET(mesh, mesh, "Tensor", ranks_tensor(M(self)->mesh),
        "The ranks; for a submesh, those of the one that includes this rank.");
EXT_GET(mesh, _flatten_mapping, "dict[str, DeviceMesh]", Py_NewRef(M(root_of(self))->flattened),
        "The flattened meshes by name.");
EXT_METHOD0(mesh, _get_root_mesh, "DeviceMesh", "Returns the mesh of a submesh, or itself.") {
  return Py_NewRef(root_of(self));
}

// Index of a dimension given by index or name; -1 with an exception.
static int to_dim(PyObject *self, PyObject *given) {
  int64_t index;
  int dim, ndim = px_mesh_ndim(M(self)->mesh);
  if (PyUnicode_Check(given)) {
    EXT_OWNED *names = names_of(M(self)->mesh);
    const char *name = ext_lookup_text(given);
    if (!names) return -1;
    if (names == Py_None) EXT_FAIL_INT(PyExc_KeyError, "No `mesh_dim_names` found.");
    if (name && px_mesh_find(&dim, M(self)->mesh, name) == PX_OK) return dim;
    px_error_clear();
    EXT_FAIL_INT(PyExc_KeyError,
                 "Mesh dimension '%U' does not exist. Available mesh dimensions are: "
                 "mesh_dim_names=%R",
                 given, names);
  }
  if (ext_to_int(given, &index) < 0) return -1;
  if (index < -ndim || index >= ndim) EXT_FAIL_INT(PyExc_IndexError, "tuple index out of range");
  return (int)(index < 0 ? index + ndim : index);
}

EXT_METHOD(mesh, _get_mesh_dim_by_name, "(mesh_dim_name: str) -> int",
           "Returns the index of a named dimension.") {
  EXT_ARGS(PyObject *, mesh_dim_name);
  int dim = to_dim(self, mesh_dim_name ? mesh_dim_name : Py_None);
  return dim < 0 ? NULL : PyLong_FromLong(dim);
}

EXT_METHOD(mesh, size, "(mesh_dim: int | None = None) -> int",
           "Returns the number of ranks, in total or of a dimension.") {
  EXT_ARGS(PyObject *, mesh_dim);
  int dim = mesh_dim && mesh_dim != Py_None ? to_dim(self, mesh_dim) : -1;
  return PyErr_Occurred() ? NULL : PyLong_FromLongLong(px_mesh_size(M(self)->mesh, dim));
}

// Resolves a dimension argument, which is optional for 1D meshes only.
static int require_dim(PyObject *self, PyObject *given) {
  if (given && given != Py_None) return to_dim(self, given);
  if (px_mesh_ndim(M(self)->mesh) == 1) return 0;
  EXT_FAIL_INT(PyExc_RuntimeError,
               "Found the DeviceMesh have %d dimensions, Optional kwarg `mesh_dim` needs to be "
               "specified when device_mesh.ndim > 1.",
               px_mesh_ndim(M(self)->mesh));
}

static PyObject *group_at(PyObject *self, int dim) {
  if (dim < 0) return NULL;
  if (dim < PyList_GET_SIZE(M(self)->groups))
    return Py_NewRef(PyList_GET_ITEM(M(self)->groups, dim));
  EXT_FAIL(PyExc_RuntimeError, "DeviceMesh process groups not initialized!");
}

EXT_METHOD(mesh, get_group, "(mesh_dim: int | str | None = None) -> Any",
           "Returns the process group of a dimension that includes this rank.") {
  EXT_ARGS(PyObject *, mesh_dim);
  bool named = mesh_dim && PyUnicode_Check(mesh_dim);
  PyObject *flat = named ? PyDict_GetItemWithError(M(root_of(self))->flattened, mesh_dim) : NULL;
  if (flat) return group_at(flat, 0);
  return PyErr_Occurred() ? NULL : group_at(self, require_dim(self, mesh_dim));
}
EXT_METHOD0(mesh, get_all_groups, "list[Any]", "Returns the process groups of all dimensions.") {
  return PySequence_List(M(self)->groups);
}
EXT_METHOD0(mesh, get_rank, "int", "Returns the current global rank.") {
  PyObject *world = ext_group(NULL);
  return world ? PyLong_FromLong(px_comm_rank(G(world)->comm)) : NULL;
}
EXT_METHOD(mesh, get_local_rank, "(mesh_dim: int | str | None = None) -> int",
           "Returns the local rank in the group of a dimension.") {
  EXT_ARGS(PyObject *, mesh_dim);
  EXT_OWNED *group = group_at(self, require_dim(self, mesh_dim));
  return group ? PyLong_FromLong(px_comm_rank(G(group)->comm)) : NULL;
}
EXT_METHOD0(mesh, get_coordinate, "tuple[int, ...] | None",
            "Returns the coordinates of this rank; None if it is not in the mesh.") {
  int place[PX_MESH_DIMS], ndim = px_mesh_ndim(M(self)->mesh);
  for (int d = 0; d < ndim; d++) {
    place[d] = (int)px_mesh_coordinate(M(self)->mesh, d);
    if (place[d] < 0) Py_RETURN_NONE;
  }
  return numbers(ndim, place);
}

px_mesh *ext_mesh(PyObject *object) {
  if (PyObject_TypeCheck(object, &mesh_type)) return M(object)->mesh;
  PyErr_Format(PyExc_TypeError, "expected a DeviceMesh, not %s", ext_type_name(object));
  return NULL;
}

// In PyTorch a mesh as a context manager is the default of DTensor functions, which Phlox lacks.
EXT_METHOD0(mesh, __enter__, "DeviceMesh", "Returns the mesh itself.") { return Py_NewRef(self); }
EXT_METHOD(mesh, __exit__, "(*exception: Any) -> None", "No-op.") {
  ext_varargs exception;
  EXT_BIND(exception);
  Py_RETURN_NONE;
}
