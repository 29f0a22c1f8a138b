// SPDX-License-Identifier: Apache-2.0
// Device meshes. A mesh and all meshes derived from it share one table of ranks. An axis is a list
// of sizes and strides over that table: unraveling an axis index by the sizes and weighting it by
// the strides gives its offset. A flattened axis concatenates the lists of its axes.
#include "phlox/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_impl.h"

// The ranks of a mesh and of its derived meshes. Immutable.
typedef struct mesh_table {
  px_object head;
  px_comm *comm;
  int *ranks;
  int64_t count, own_index;  // own_index: index of this rank, or -1
  bool apart;
} mesh_table;

typedef struct mesh_axis {
  char *name;  // owned, or NULL
  int64_t size, coordinate;
  int parts;
  int64_t sizes[PX_MESH_DIMS], strides[PX_MESH_DIMS];
  px_comm *comm;  // owned, or NULL
} mesh_axis;

struct px_mesh {
  px_object head;
  mesh_table *table;
  int ndim;
  mesh_axis axes[PX_MESH_DIMS];
};

// ---- arithmetic

static int64_t offset_of(const mesh_axis *axis, int64_t index) {
  int64_t offset = 0;
  for (int p = axis->parts - 1; p >= 0; p--) {
    offset += index % axis->sizes[p] * axis->strides[p];
    index /= axis->sizes[p];
  }
  return offset;
}

// Offset in the table of a mesh element, relative to the first element.
static int64_t table_offset(const px_mesh *self, int64_t index) {
  int64_t index_in_table = 0;
  for (int d = self->ndim - 1; d >= 0; d--) {
    index_in_table += offset_of(&self->axes[d], index % self->axes[d].size);
    index /= self->axes[d].size;
  }
  return index_in_table;
}

// Table index of the first element of the submesh containing this rank.
static int64_t table_base(const px_mesh *self) {
  int64_t base = self->table->own_index;
  if (base < 0) return 0;
  for (int d = 0; d < self->ndim; d++) base -= offset_of(&self->axes[d], self->axes[d].coordinate);
  return base;
}

static void add_part(mesh_axis *axis, int64_t size, int64_t stride) {
  if (size == 1 && axis->parts) return;
  if (axis->size == 1) axis->parts = 0;
  int last = axis->parts - 1;
  if (last >= 0 && axis->strides[last] == size * stride) {
    axis->sizes[last] *= size;
    axis->strides[last] = stride;
  } else {
    axis->sizes[axis->parts] = size;
    axis->strides[axis->parts++] = stride;
  }
}

// Returns an axis of size 0 for a dimension out of range.
static const mesh_axis *axis_of(const px_mesh *self, int dim) {
  static const mesh_axis none = {.coordinate = -1};
  return dim >= 0 && dim < self->ndim ? &self->axes[dim] : &none;
}

int px_mesh_ndim(const px_mesh *self) { return self->ndim; }
int64_t px_mesh_size(const px_mesh *self, int dim) {
  int64_t size = 1;
  if (dim != -1) return axis_of(self, dim)->size;
  for (int d = 0; d < self->ndim; d++) size *= self->axes[d].size;
  return size;
}
const char *px_mesh_name(const px_mesh *self, int dim) { return axis_of(self, dim)->name; }
int64_t px_mesh_coordinate(const px_mesh *self, int dim) {
  return self->table->own_index < 0 ? -1 : axis_of(self, dim)->coordinate;
}
px_comm *px_mesh_comm(const px_mesh *self, int dim) { return axis_of(self, dim)->comm; }
int64_t px_mesh_stride(const px_mesh *self, int dim, int part) {
  const mesh_axis *axis = axis_of(self, dim);
  return part >= 0 && part < axis->parts ? axis->strides[part] : 0;
}

void px_mesh_ranks(const px_mesh *self, int *ranks) {
  int64_t base = table_base(self), count = px_mesh_size(self, -1);
  for (int64_t i = 0; i < count; i++) ranks[i] = self->table->ranks[base + table_offset(self, i)];
}

void px_mesh_line(const px_mesh *self, int dim, int *ranks) {
  const mesh_axis *axis = axis_of(self, dim);
  int64_t base = self->table->own_index;
  base = base < 0 ? 0 : base - offset_of(axis, axis->coordinate);
  for (int64_t i = 0; i < axis->size; i++) ranks[i] = self->table->ranks[base + offset_of(axis, i)];
}

static bool same_axis(const mesh_axis *a, const mesh_axis *b) {
  size_t bytes = (size_t)a->parts * sizeof *a->sizes;
  if (a->size != b->size || a->parts != b->parts || !a->name != !b->name) return false;
  return (!a->name || !strcmp(a->name, b->name)) && !memcmp(a->sizes, b->sizes, bytes) &&
         !memcmp(a->strides, b->strides, bytes);
}

static bool same_table(const mesh_table *a, const mesh_table *b) {
  return a == b ||
         (a->count == b->count && !memcmp(a->ranks, b->ranks, (size_t)a->count * sizeof *a->ranks));
}

bool px_mesh_equal(const px_mesh *a, const px_mesh *b) {
  if (a->ndim != b->ndim || !same_table(a->table, b->table)) return false;
  for (int d = 0; d < a->ndim; d++)
    if (!same_axis(&a->axes[d], &b->axes[d])) return false;
  return true;
}

// ---- making

static void table_destroy(void *object) {
  mesh_table *self = object;
  px_release(self->comm);
  px_free(self->ranks);
  px_object_end(self);
  px_free(self);
}

static void mesh_destroy(void *object) {
  px_mesh *self = object;
  for (int d = 0; d < self->ndim; d++) {
    px_free(self->axes[d].name);
    px_release(self->axes[d].comm);
  }
  px_release(self->table);
  px_object_end(self);
  px_free(self);
}

static px_status fill_table(mesh_table *self, const px_mesh_options *o) {
  int world = px_comm_size(o->comm), rank = px_comm_rank(o->comm);
  for (int64_t i = 0; i < self->count; i++) {
    self->ranks[i] = o->ranks ? o->ranks[i] : (int)i;
    PX_CHECK(self->ranks[i] >= 0 && self->ranks[i] < world, PX_VALUE,
             "rank %d of a mesh is not in a group of %d", self->ranks[i], world);
    for (int64_t j = 0; j < i; j++)
      PX_CHECK(self->ranks[i] != self->ranks[j], PX_VALUE, "rank %d appears in a mesh twice",
               self->ranks[i]);
    if (self->ranks[i] == rank) self->own_index = i;
  }
  return PX_OK;
}

static px_status table_new(mesh_table **out, const px_mesh_options *o, int64_t count) {
  static const px_class cls = {"mesh_table", table_destroy};
  mesh_table *self;
  PX_CHECK(count <= px_comm_size(o->comm), PX_RUNTIME,
           "Mesh should not be bigger than default world size %d, but found %lld ranks!",
           px_comm_size(o->comm), (long long)count);
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  PX_SCOPED(mesh_table) owned = self;
  px_object_init(self, &cls);
  self->comm = px_retain(o->comm);
  self->count = count;
  self->own_index = -1;
  self->apart = o->no_comms;
  PX_TRY(px_alloc((void **)&self->ranks, (size_t)(count + 1) * sizeof *self->ranks));
  PX_TRY(fill_table(self, o));
  *out = PX_MOVE(owned);
  return PX_OK;
}

static px_status mesh_over(px_mesh **out, mesh_table *over) {
  static const px_class cls = {"mesh", mesh_destroy};
  px_mesh *self;
  PX_TRY(px_alloc((void **)&self, sizeof *self));
  px_object_init(self, &cls);
  self->table = px_retain(over);
  *out = self;
  return PX_OK;
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// Joins the communicator of this rank's line along one axis. Its ranks are sorted ascending,
// independent of the order in the mesh.
static px_status join_line(px_mesh *self, int dim, uint64_t number) {
  mesh_table *over = self->table;
  mesh_axis *axis = &self->axes[dim];
  char name[64];
  int *ranks;
  if (over->own_index < 0) return PX_OK;
  if (axis->size == px_comm_size(over->comm)) return axis->comm = px_retain(over->comm), PX_OK;
  PX_TRY(px_alloc((void **)&ranks, (size_t)axis->size * sizeof *ranks));
  px_mesh_line(self, dim, ranks);
  qsort(ranks, (size_t)axis->size, sizeof *ranks, by_value);
  snprintf(name, sizeof name, "mesh/%llu/%d/%d", (unsigned long long)number, dim, *ranks);
  px_status status = px_comm_split(&axis->comm, over->comm, name, ranks, (int)axis->size, 0);
  px_free(ranks);
  return status;
}

static px_status join_lines(px_mesh *self) {
  px_comm *comm = self->table->comm;
  if (self->table->apart) return PX_OK;
  pthread_mutex_lock(&comm->lock);
  uint64_t number = ++comm->meshes;
  pthread_mutex_unlock(&comm->lock);
  for (int d = 0; d < self->ndim; d++) PX_TRY(join_line(self, d, number));
  return PX_OK;
}

static px_status check_options(const px_mesh_options *o, int64_t *count) {
  PX_CHECK(o->ndim >= 0 && o->ndim <= PX_MESH_DIMS, PX_VALUE,
           "expected 0 to %d mesh dimensions, got %d", PX_MESH_DIMS, o->ndim);
  for (int d = 0; d < o->ndim; d++) {
    PX_CHECK(o->sizes[d] > 0 && o->sizes[d] <= INT32_MAX, PX_VALUE,
             "expected a positive size for mesh dimension %d, got %lld", d, (long long)o->sizes[d]);
    PX_CHECK(!__builtin_mul_overflow(*count, o->sizes[d], count), PX_OVERFLOW,
             "the number of ranks of the mesh overflows");
    for (int e = 0; o->names && e < d; e++)
      PX_CHECK(strcmp(o->names[d], o->names[e]), PX_RUNTIME,
               "Each mesh_dim_name must be unique. Found repeated mesh_dim_name '%.64s'",
               o->names[d]);
  }
  return PX_OK;
}

static px_status fill_mesh(px_mesh *self, const px_mesh_options *o) {
  int64_t stride = 1, own_index = self->table->own_index;
  self->ndim = o->ndim;
  for (int d = o->ndim - 1; d >= 0; d--) {
    mesh_axis *axis = &self->axes[d];
    add_part(axis, o->sizes[d], stride);
    axis->size = o->sizes[d];
    axis->coordinate = own_index < 0 ? 0 : own_index / stride % o->sizes[d];
    stride *= o->sizes[d];
    if (o->names) PX_TRY(px_strdup(&axis->name, o->names[d]));
    if (o->lines && own_index >= 0) axis->comm = px_retain(o->lines[d]);
  }
  return o->lines ? PX_OK : join_lines(self);
}

px_status px_mesh_new(px_mesh **out, const px_mesh_options *options) {
  PX_GIVEN(out);
  PX_GIVEN(options);
  PX_GIVEN(options->comm);
  PX_GIVEN_N(options->sizes, options->ndim);
  int64_t count = 1;
  PX_SCOPED(mesh_table) over = NULL;
  PX_SCOPED(px_mesh) self = NULL;
  PX_TRY(check_options(options, &count));
  PX_TRY(table_new(&over, options, count));
  PX_TRY(mesh_over(&self, over));
  PX_TRY(fill_mesh(self, options));
  *out = PX_MOVE(self);
  return PX_OK;
}

// ---- derived meshes

px_status px_mesh_find(int *dim, const px_mesh *self, const char *name) {
  PX_GIVEN(dim);
  PX_GIVEN(self);
  PX_GIVEN(name);
  for (int d = 0; d < self->ndim; d++)
    if (self->axes[d].name && !strcmp(self->axes[d].name, name)) return *dim = d, PX_OK;
  PX_FAIL(PX_KEY, "Mesh dimension '%.64s' does not exist.", name);
}

static px_status copy_axis(mesh_axis *to, const mesh_axis *from) {
  *to = *from;
  to->name = NULL;
  to->comm = px_retain(from->comm);
  return from->name ? px_strdup(&to->name, from->name) : PX_OK;
}

// Sets *out to true if all elements of the mesh are distinct and inside the table.
static px_status are_distinct(bool *out, const px_mesh *self) {
  int64_t count = px_mesh_size(self, -1), size = self->table->count;
  bool *seen;
  *out = count <= size;
  PX_TRY(px_alloc((void **)&seen, (size_t)size));
  for (int64_t i = 0; *out && i < count; i++) {
    int64_t index_in_table = table_offset(self, i);
    *out = index_in_table < size && !seen[index_in_table];
    if (*out) seen[index_in_table] = true;
  }
  px_free(seen);
  return PX_OK;
}

static bool is_sorted(const px_mesh *self) {
  for (int d = 1; d < self->ndim; d++)
    if (self->axes[d - 1].strides[0] < self->axes[d].strides[0]) return false;
  return true;
}

px_status px_mesh_select(px_mesh **out, px_mesh *const *meshes, const int *dims, int count) {
  PX_GIVEN(out);
  PX_CHECK(count > 0 && count <= PX_MESH_DIMS, PX_VALUE, "expected 1 to %d mesh dimensions, got %d",
           PX_MESH_DIMS, count);
  PX_GIVEN_N(dims, count);
  PX_GIVEN_EACH(meshes, count);
  bool apart;
  PX_SCOPED(px_mesh) self = NULL;
  PX_TRY(mesh_over(&self, meshes[0]->table));
  for (int i = 0; i < count; i++) {
    PX_CHECK(meshes[i]->table == self->table, PX_RUNTIME,
             "Cannot concatenate DeviceMeshes derived from different device meshes");
    PX_CHECK(dims[i] >= 0 && dims[i] < meshes[i]->ndim, PX_INDEX,
             "expected a dimension in [0, %d), got %d", meshes[i]->ndim, dims[i]);
    self->ndim++;
    PX_TRY(copy_axis(&self->axes[i], &meshes[i]->axes[dims[i]]));
  }
  PX_CHECK(is_sorted(self), PX_KEY, "Mesh dim indices should be in ascending order.");
  PX_TRY(are_distinct(&apart, self));
  PX_CHECK(apart, PX_RUNTIME, "Slicing overlapping dim_names is not allowed.");
  *out = PX_MOVE(self);
  return PX_OK;
}

px_status px_mesh_flatten(px_mesh **out, px_mesh *self, const char *name) {
  PX_GIVEN(out);
  PX_GIVEN(self);
  PX_GIVEN(name);
  PX_SCOPED(px_mesh) flat = NULL;
  PX_TRY(mesh_over(&flat, self->table));
  mesh_axis *axis = &flat->axes[0];
  flat->ndim = axis->size = 1;
  for (int d = 0; d < self->ndim; d++) {
    for (int p = 0; p < self->axes[d].parts; p++) {
      PX_CHECK(axis->parts < PX_MESH_DIMS, PX_VALUE,
               "a flattened mesh dimension cannot have more than %d strides", PX_MESH_DIMS);
      add_part(axis, self->axes[d].sizes[p], self->axes[d].strides[p]);
    }
    axis->coordinate = axis->coordinate * self->axes[d].size + self->axes[d].coordinate;
    axis->size *= self->axes[d].size;
  }
  PX_TRY(px_strdup(&axis->name, name));
  PX_TRY(join_lines(flat));
  *out = PX_MOVE(flat);
  return PX_OK;
}
