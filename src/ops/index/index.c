// SPDX-License-Identifier: Apache-2.0
// Indexing by tensors: converts all forms to that of index_impl.h and launches its kernels.
#include "ops/index/index_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"

void px__index_loop_release(px__index_loop *p) {
  for (int i = 0; i < p->count; i++) px_release(p->index[i]);
  p->count = 0;
}

px_status px__start_from_self(px_call *call, px_tensor *self) {
  if (call->mode != PX_CALL_INPLACE) return px_clone(&call->results[0], self, NULL);
  call->results[0] = px_retain(self);
  return PX_OK;
}

px_status px__start_row_major(px_call *call, px_tensor *self) {
  if (call->mode == PX_CALL_INPLACE) return px__start_from_self(call, self);
  return px_clone(&call->results[0], self, "contiguous_format");
}

// ---- launches

static px_access access_of(const px_tensor *t, bool write) { return px__access_of(t, write); }

static px_status broadcast_strides(int64_t *strides, const px__index_loop *p, const px_tensor *t) {
  int64_t sizes[PX_MAX_DIMS];
  int ndim, lead = p->ndim - t->ndim;
  char a[256], b[256];
  bool fits = px__broadcast(&ndim, sizes, p->ndim, p->sizes, t->ndim, t->sizes) == PX_OK;
  if (!fits) px_error_clear();
  fits = fits && ndim == p->ndim && !memcmp(sizes, p->sizes, sizeof *sizes * (size_t)ndim);
  PX_CHECK(fits, PX_RUNTIME,
           "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of "
           "shape %s",
           px__sizes_text(a, sizeof a, t->ndim, t->sizes),
           px__sizes_text(b, sizeof b, p->ndim, p->sizes));
  for (int d = 0; d < p->ndim; d++)
    strides[d] = d < lead || t->sizes[d - lead] == 1 ? 0 : t->strides[d - lead];
  return PX_OK;
}

static bool is_empty(const px__index_loop *p) {
  for (int d = 0; d < p->ndim; d++)
    if (p->sizes[d] == 0) return true;
  return false;
}

// Selects the real or imaginary parts of a complex operand. Their strides are doubled.
static void select_part(px_operand *o, int64_t *buffer, int imaginary) {
  o->dtype = (int)px_dtype_to_real((px_dtype)o->dtype);
  for (int d = 0; d < o->ndim; d++) buffer[d] = 2 * o->strides[d];
  o->strides = buffer;
  if (imaginary) o->data = (char *)o->data + px_dtype_size((px_dtype)o->dtype);
}

// Strides of index tensor i along the loop's dimensions.
static const int64_t *index_strides(const px__index_loop *p, int i, int64_t *strides) {
  const px_tensor *t = p->index[i];
  for (int d = 0; d < p->ndim; d++) {
    int own = d - (p->ends[i] - t->ndim);
    bool has = own >= 0 && own < t->ndim && t->sizes[own] != 1;
    strides[d] = has ? t->strides[own] : 0;
  }
  return strides;
}

// part: 0 (real) or 1 (imaginary) of complex numbers; -1 for whole elements.
static px_status launch(const px__index_loop *p, const px_tensor *self, const px_tensor *other,
                        const int64_t *other_strides, bool put, px_put_mode how, int part) {
  int64_t buffers[2][PX_MAX_DIMS], scaled_strides[PX_MAX_DIMS];
  static px__named_kernel kernels[2] = {{.name = "index_get"}, {.name = "index_put"}};
  px__named_kernel *kernel = &kernels[put];
  px_device device = px__tensor_device(self);
  // Checked here for all indices, so that devices never get NULL memory.
  PX_CHECK(self->numel || device.type != PX_CUDA, PX_INDEX,
           "index is out of bounds for dimension with size 0");
  PX__INTS(strides);
  PX_TRY(px__ints_reserve(&strides, (int64_t)p->count * p->ndim));
  PX_TRY(px__storage_ready(self->storage));
  PX_TRY(px__storage_ready(other->storage));
  for (int i = 0; i < p->count; i++) PX_TRY(px__storage_ready(p->index[i]->storage));
  px_operand o[PX_MAX_OPERANDS] = {0};
  px_access uses[PX_MAX_OPERANDS];
  px_operand *of_self = &o[put ? 0 : 1], *of_other = &o[put ? 1 : 0];
  px__operand_of(of_self, self);
  of_self->strides = p->strides;
  px__operand_of(of_other, other);
  of_other->strides = other_strides;
  if (how != PX_PUT_STORE)
    of_self->dtype = of_other->dtype = (uint8_t)px__signed_of((px_dtype)self->dtype);
  uses[put ? 0 : 1] = access_of(self, put);
  uses[put ? 1 : 0] = access_of(other, !put);
  for (int i = 0; i < p->count; i++) {
    px__operand_of(&o[2 + i], p->index[i]);
    o[2 + i].strides = index_strides(p, i, strides.at + i * p->ndim);
    uses[2 + i] = access_of(p->index[i], false);
  }
  for (int i = 0; i < 2 + p->count; i++) o[i].sizes = p->sizes, o[i].ndim = p->ndim;
  for (int i = 0; i < 2 && part >= 0; i++) select_part(&o[i], buffers[i], part);
  for (int i = 0; i < p->count; i++) scaled_strides[i] = p->dim_strides[i] * (part >= 0 ? 2 : 1);
  px_value params[6] = {PX_IS(p->dim_sizes, p->count),
                        PX_IS(scaled_strides, p->count),
                        PX_IS(p->dims, p->count),
                        PX_B(p->wraps),
                        PX_I(p->fault),
                        PX_I(how)};
  px_launch l = {.op = put ? "index_put_" : "index",
                 .kernel = px__named_kernel_on(kernel, (px_device_type)device.type),
                 .operand_count = 2 + p->count,
                 .operands = o,
                 .params = params,
                 .param_count = put ? 6 : 5,
                 .compute = PX_DTYPE_NONE};
  PX_CHECK(l.kernel, PX_UNIMPLEMENTED, "%s has no kernel for device type %s (dtype %s)",
           kernel->name, px_device_type_name(device.type), px_dtype_name((px_dtype)self->dtype));
  return px__launch(device, &l, uses, 2 + p->count);
}

px_status px__index_loop_get(const px__index_loop *p, px_tensor *out, const px_tensor *self) {
  int64_t strides[PX_MAX_DIMS];
  PX_TRY(broadcast_strides(strides, p, out));
  return is_empty(p) ? PX_OK : launch(p, self, out, strides, false, PX_PUT_STORE, -1);
}

// Complex numbers support ADD, by their parts, and on the CPU MULTIPLY. Unsigned integers support
// ADD and MULTIPLY, as signed ones.
px_status px__index_loop_check_dtype(px_dtype dtype, px_put_mode how) {
  bool product = how == PX_PUT_MULTIPLY && (dtype == PX_COMPLEX64 || dtype == PX_COMPLEX128);
  bool parts = product || (how == PX_PUT_ADD && px_dtype_is_complex(dtype));
  bool bits = (how == PX_PUT_ADD || how == PX_PUT_MULTIPLY) && px__is_unsigned(dtype);
  PX_CHECK(how == PX_PUT_STORE || dtype < PX_DTYPE_COMPUTED || parts || bits, PX_UNIMPLEMENTED,
           "\"index_put\" not implemented for '%s'", px_dtype_class(dtype));
  return PX_OK;
}
px_status px__index_loop_combine(const px__index_loop *p, px_tensor *self, const px_tensor *values,
                                 px_put_mode how) {
  int64_t strides[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) scaled_strides = NULL;
  if (values->storage == self->storage) {
    PX_TRY(px_clone(&scaled_strides, values, NULL));
    values = scaled_strides;
  }
  PX_TRY(broadcast_strides(strides, p, values));
  if (is_empty(p)) return PX_OK;
  PX_TRY(px__index_loop_check_dtype((px_dtype)self->dtype, how));
  PX_CHECK(how != PX_PUT_MULTIPLY || !px_dtype_is_complex((px_dtype)self->dtype) ||
               px__tensor_device(self).type == PX_CPU,
           PX_UNIMPLEMENTED, "\"scatter_gather_base_kernel_func\" not implemented for '%s'",
           px_dtype_class((px_dtype)self->dtype));
  if (how != PX_PUT_ADD || !px_dtype_is_complex((px_dtype)self->dtype))
    return launch(p, self, values, strides, true, how, -1);
  PX_TRY(launch(p, self, values, strides, true, how, 0));
  return launch(p, self, values, strides, true, how, 1);
}
px_status px__index_loop_put(const px__index_loop *p, px_tensor *self, const px_tensor *values,
                             bool add) {
  return px__index_loop_combine(p, self, values, add ? PX_PUT_ADD : PX_PUT_STORE);
}

// ---- index tensors

static px_status add_index(px__index_loop *p, const px_tensor *index, const px_tensor *self) {
  PX_CHECK(p->count < PX_MAX_DIMS, PX_INDEX, "too many indices for tensor of dimension %d",
           self->ndim);
  PX_TRY(px__tensor_to(&p->index[p->count], index, PX_INT64, px__tensor_device(self)));
  p->count++;
  return PX_OK;
}

// Validates index tensor i and converts it to memory offsets.
__attribute__((noinline)) static px_status offsets_of(px_tensor **out, const px__index_loop *p,
                                                      int i) {
  const px_tensor *t = p->index[i];
  px_device device = px__tensor_device(t);
  PX_SCOPED(px_tensor) counted = NULL;
  PX_SCOPED(px_tensor) offsets = NULL;
  px__index_loop one = {.ndim = t->ndim, .count = 1, .wraps = p->wraps, .fault = p->fault};
  for (int d = 0; d < t->ndim; d++) one.sizes[d] = t->sizes[d];
  one.index[0] = p->index[i], one.dims[0] = p->dims[i];
  one.dim_sizes[0] = p->dim_sizes[i], one.dim_strides[0] = 1;
  one.ends[0] = one.ndim;
  PX_TRY(px_arange(&counted, px_int(0), px_int(p->dim_sizes[i]), px_int(1), PX_INT64, device, false,
                   false));
  PX_TRY(px_mul_scalar(&offsets, counted, px_int(p->dim_strides[i])));
  PX_TRY(px_tensor_empty(out, t->ndim, t->sizes, PX_INT64, device));
  return px__index_loop_get(&one, *out, offsets);
}

// Merges the last index tensors into one, the sum of their offsets, if a launch has too few
// operands.
static px_status merge_last(px__index_loop *p) {
  enum { LAST = PX__MAX_INDICES - 1 };
  int64_t span = 1;
  PX_SCOPED(px_tensor) sum = NULL;
  for (int i = LAST; i < p->count; i++) {
    PX_SCOPED(px_tensor) addend = NULL;
    px_tensor *next = NULL;
    PX_TRY(offsets_of(&addend, p, i));
    if (p->dim_sizes[i]) span = px__sum(span, px__product(p->dim_sizes[i] - 1, p->dim_strides[i]));
    if (sum)
      PX_TRY(px_add(&next, sum, addend, px_int(1)));
    else
      next = px_retain(addend);
    px_release(sum);
    sum = next;
  }
  for (; p->count > LAST; p->count--) px_release(p->index[p->count - 1]);
  p->index[LAST] = PX_MOVE(sum);
  p->dim_sizes[LAST] = span, p->dim_strides[LAST] = 1;
  p->count = PX__MAX_INDICES;
  return PX_OK;
}

static void set_dim(px__index_loop *p, int i, const px_tensor *self, int dim) {
  p->dims[i] = dim;
  p->dim_sizes[i] = self->ndim ? self->sizes[dim] : 1;
  p->dim_strides[i] = self->ndim ? self->strides[dim] : 1;
}

static px_status check_index(const px_tensor *index, const px_tensor *self) {
  px_device d = px__tensor_device(index), own = px__tensor_device(self);
  char text[PX_DEVICE_TEXT];
  PX_CHECK(index->dtype == PX_INT64 || index->dtype == PX_INT32 || index->dtype == PX_UINT8 ||
               index->dtype == PX_BOOL,
           PX_INDEX, "tensors used as indices must be long, int, byte or bool tensors");
  PX_CHECK(d.type == PX_CPU || px_device_equal(d, own) || index->ndim == 0, PX_RUNTIME,
           "indices should be either on cpu or on the same device as the indexed tensor (%s)",
           px_device_format(own, text));
  return PX_OK;
}

static px_status add_mask(px__index_loop *p, const px_tensor *self, int dim, const px_tensor *mask,
                          int at) {
  char a[256], b[256];
  PX_SCOPED(px_tensor) on_device = NULL;
  PX_SCOPED(px_tensor) rows = NULL;
  PX_CHECK(mask->ndim > 0, PX_UNIMPLEMENTED, "indexing with a 0-dim mask is not supported");
  PX_CHECK(dim + mask->ndim <= self->ndim, PX_INDEX, "too many indices for tensor of dimension %d",
           self->ndim);
  for (int d = 0; d < mask->ndim; d++)
    PX_CHECK(mask->sizes[d] == self->sizes[dim + d], PX_INDEX,
             "The shape of the mask %s at index %d does not match the shape of the indexed tensor "
             "%s at index %d",
             px__sizes_text(a, sizeof a, mask->ndim, mask->sizes), at + d,
             px__sizes_text(b, sizeof b, self->ndim, self->sizes), dim + d);
  PX_TRY(px__tensor_to(&on_device, mask, PX_DTYPE_NONE, px__tensor_device(self)));
  PX_TRY(px__nonzero(&rows, on_device));
  for (int d = 0; d < mask->ndim; d++) {
    PX_SCOPED(px_tensor) column = NULL;
    PX_TRY(px__part_select(&column, rows, 1, d));
    PX_TRY(add_index(p, column, self));
    set_dim(p, p->count - 1, self, dim + d);
  }
  return PX_OK;
}

// Fails if a dimension has two indices, because another one would have none.
static px_status check_distinct(const px__index_loop *p) {
  bool seen[PX_MAX_DIMS] = {false};
  for (int i = 0; i < p->count; i++) {
    PX_CHECK(!seen[p->dims[i]], PX_VALUE, "index(): dimension %d is indexed twice",
             (int)p->dims[i]);
    seen[p->dims[i]] = true;
  }
  return PX_OK;
}

static px_status add_indices(px__index_loop *p, const px_tensor *self, px_value indices,
                             px_value dims) {
  PX_CHECK(indices.n == dims.n, PX_VALUE, "index(): expected a dimension for each index tensor");
  for (int i = 0; i < indices.n; i++) {
    const px_tensor *t = indices.v.tensors[i];
    int dim;
    PX_CHECK(dims.v.ints[i] < self->ndim, PX_INDEX, "too many indices for tensor of dimension %d",
             self->ndim);
    PX_TRY(px__wrap_dim(&dim, dims.v.ints[i], self->ndim));
    PX_TRY(check_index(t, self));
    if (t->dtype == PX_BOOL || t->dtype == PX_UINT8) {
      PX_TRY(add_mask(p, self, dim, t, dim));
      continue;
    }
    PX_TRY(add_index(p, t, self));
    set_dim(p, p->count - 1, self, dim);
  }
  return check_distinct(p);
}

__attribute__((noinline)) static px_status shape_mismatch(const px__index_loop *p) {
  char all[1024] = "";
  size_t used = 0;
  for (int i = 0; i < p->count; i++) {
    char one[256];
    px__sizes_text(one, sizeof one, p->index[i]->ndim, p->index[i]->sizes);
    size_t n = strlen(one), gap = i ? 2 : 0;
    if (used + n + gap >= sizeof all) break;
    memcpy(all + used, ", ", gap);
    memcpy(all + used + gap, one, n + 1);
    used += n + gap;
  }
  PX_FAIL(PX_INDEX,
          "shape mismatch: indexing tensors could not be broadcast together with shapes %s", all);
}

// Lays out the loop: broadcast index dimensions replace the indexed ones if those are adjacent, and
// come first otherwise. Other dimensions of self keep their order.
static px_status set_layout(px__index_loop *p, const px_tensor *self, int b_ndim,
                            const int64_t *b) {
  bool indexed[PX_MAX_DIMS] = {false}, adjacent = true;
  for (int i = 0; i < p->count; i++) {
    adjacent &= i == 0 || p->dims[i] == p->dims[i - 1] + 1;
    indexed[p->dims[i]] = true;
  }
  int first = adjacent ? (int)p->dims[0] : 0, n = 0;
  PX_TRY(px__check_ndim(self->ndim - p->count + b_ndim));
  for (int d = 0; d <= self->ndim; d++) {
    if (d == first)
      for (int k = 0; k < b_ndim; k++) p->sizes[n] = b[k], p->strides[n++] = 0;
    if (d == self->ndim || indexed[d]) continue;
    p->sizes[n] = self->sizes[d], p->strides[n++] = self->strides[d];
  }
  p->ndim = n;
  if (p->count > PX__MAX_INDICES) PX_TRY(merge_last(p));
  for (int i = 0; i < p->count; i++) p->ends[i] = first + b_ndim;
  return PX_OK;
}

// Fails for a non-empty index into a dimension of size 0, even if the result is empty because of
// another dimension.
static px_status check_emptiness(const px__index_loop *p, int b_ndim, const int64_t *b) {
  for (int k = 0; k < b_ndim; k++)
    if (b[k] == 0) return PX_OK;
  for (int i = 0; i < p->count; i++)
    PX_CHECK(p->dim_sizes[i], PX_INDEX, "index is out of bounds for dimension with size 0");
  return PX_OK;
}

px_status px__index_advanced(px__index_loop *p, const px_tensor *self, px_value indices,
                             px_value dims) {
  int64_t b[PX_MAX_DIMS] = {0};
  int b_ndim = 0;
  p->count = 0, p->wraps = true, p->fault = PX_FAULT_INDEX;
  PX_TRY(add_indices(p, self, indices, dims));
  PX_CHECK(p->count > 0, PX_INDEX, "index(): expected at least one index tensor");
  for (int i = 0; i < p->count; i++)
    if (px__broadcast(&b_ndim, b, b_ndim, b, p->index[i]->ndim, p->index[i]->sizes) != PX_OK) {
      px_error_clear();
      return shape_mismatch(p);
    }
  PX_TRY(check_emptiness(p, b_ndim, b));
  return set_layout(p, self, b_ndim, b);
}

px_status px__index_dim(px__index_loop *p, const px_tensor *self, int dim, const px_tensor *index) {
  p->count = 0, p->wraps = false, p->fault = PX_FAULT_RANGE;
  PX_CHECK(index->dtype == PX_INT64 || index->dtype == PX_INT32, PX_RUNTIME,
           "index_select(): Expected dtype int32 or int64 for index");
  PX_CHECK(index->ndim <= 1, PX_INDEX, "index_select(): Index is supposed to be a vector");
  PX_TRY(add_index(p, index, self));
  set_dim(p, 0, self, dim);
  p->ndim = self->ndim, p->ends[0] = dim + 1;
  for (int d = 0; d < p->ndim; d++) {
    p->sizes[d] = d == dim ? index->numel : self->sizes[d];
    p->strides[d] = d == dim ? 0 : self->strides[d];
  }
  if (self->ndim == 0 && index->numel != 1) {  // a 0-dim tensor counts as one element
    p->ndim = 1, p->sizes[0] = index->numel, p->strides[0] = 0;
  }
  return PX_OK;
}

px_status px__index_along(px__index_loop *p, const px_tensor *self, int dim,
                          const px_tensor *index) {
  // PyTorch raises RuntimeError here on the CPU. Faults on devices are IndexErrors for all ops.
  bool device = px__tensor_device(self).type != PX_CPU;
  p->count = 0, p->wraps = false, p->fault = device ? PX_FAULT_INDEX : PX_FAULT_INDEX_RUNTIME;
  PX_TRY(add_index(p, index, self));
  set_dim(p, 0, self, dim);
  p->ndim = p->ends[0] = index->ndim;
  for (int d = 0; d < p->ndim; d++) {
    p->sizes[d] = index->sizes[d];
    p->strides[d] = d == dim || d >= self->ndim ? 0 : self->strides[d];
  }
  return PX_OK;
}

px_status px__index_flat(px__index_loop *p, const px_tensor *self, const px_tensor *index) {
  p->count = 0, p->wraps = true, p->fault = PX_FAULT_RANGE;
  PX_TRY(add_index(p, index, self));
  p->dims[0] = 0, p->dim_sizes[0] = self->numel, p->dim_strides[0] = 1;
  p->ndim = p->ends[0] = index->ndim;
  for (int d = 0; d < p->ndim; d++) {
    p->sizes[d] = index->sizes[d];
    p->strides[d] = 0;
  }
  return PX_OK;
}
