// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sizes and strides: extents, broadcasting, dimensions, views. No memory is accessed.
// Products are checked for overflow, since sizes come from users.
#include "phlox/extend.h"
#include "tensor/tensor_impl.h"

enum { SIZES_TEXT = 512 };

// Strides may wrap if the shape has more elements than int64: it then has a size of 0 or strides of
// 0, so they are never used.
void px__row_major(int ndim, const int64_t *sizes, int64_t *strides) {
  uint64_t stride = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    strides[d] = (int64_t)stride;
    stride *= sizes[d] > 1 ? (uint64_t)sizes[d] : 1;
  }
}

void px__tensor_update_derived(px_tensor *t) {
  int64_t numel = 1;
  bool contiguous = true;
  for (int d = t->ndim - 1; d >= 0; d--) {
    contiguous &= t->sizes[d] == 1 || t->strides[d] == numel;
    numel = (int64_t)((uint64_t)numel * (uint64_t)t->sizes[d]);
  }
  PX__SET(t->numel, numel);
  PX__SET(t->contiguous, contiguous || numel == 0);
}

px_status px__check_sizes(int ndim, const int64_t *sizes) {
  char text[SIZES_TEXT];
  PX_TRY(px__check_ndim(ndim));
  for (int d = 0; d < ndim; d++)
    PX_CHECK(sizes[d] >= 0, PX_RUNTIME, "Trying to create tensor with negative dimension %lld: %s",
             (long long)sizes[d], px__sizes_text(text, sizeof text, ndim, sizes));
  return PX_OK;
}

// Also checks the row-major strides: a size of 0 hides an overflow of numel but not of the strides.
px_status px__row_major_bytes(size_t *out, int ndim, const int64_t *sizes, px_dtype dtype) {
  int64_t numel = 1, stride = 1, bytes = 0;
  bool over = false;
  for (int d = ndim - 1; d >= 0; d--) over |= px__mul_size(numel, sizes[d], &numel);
  // For empty shapes only the strides can overflow.
  for (int d = ndim - 1; d > 0 && numel == 0; d--)
    over |= px__mul_size(stride, sizes[d] > 1 ? sizes[d] : 1, &stride);
  over |= px__mul_size(numel, (int64_t)px_dtype_size(dtype), &bytes);
  char text[SIZES_TEXT];
  PX_CHECK(!over, PX_RUNTIME, "Storage size calculation overflowed with sizes=%s",
           px__sizes_text(text, sizeof text, ndim, sizes));
  *out = (size_t)bytes;
  return PX_OK;
}

px_status px__extent_bytes(size_t *out, int ndim, const int64_t *sizes, const int64_t *strides,
                           int64_t offset, px_dtype dtype) {
  int64_t last = offset, step, numel = 1, bytes = 0;
  bool empty = false, over = offset < 0;
  for (int d = 0; d < ndim; d++) empty |= sizes[d] == 0;
  for (int d = 0; d < ndim && !empty; d++) {
    over |= sizes[d] < 0 || strides[d] < 0 || px__mul_size(sizes[d] - 1, strides[d], &step) ||
            px__add_size(last, step, &last) || px__mul_size(numel, sizes[d], &numel);
  }
  if (!empty)
    over |=
        px__add_size(last, 1, &last) || px__mul_size(last, (int64_t)px_dtype_size(dtype), &bytes);
  if (over) {
    char a[SIZES_TEXT], b[SIZES_TEXT];
    PX_FAIL(PX_RUNTIME, "Storage size calculation overflowed with sizes=%s and strides=%s",
            px__sizes_text(a, sizeof a, ndim, sizes), px__sizes_text(b, sizeof b, ndim, strides));
  }
  *out = (size_t)bytes;
  return PX_OK;
}

px_status px__broadcast(int *out_ndim, int64_t *out_sizes, int a_ndim, const int64_t *a, int b_ndim,
                        const int64_t *b) {
  int ndim = a_ndim > b_ndim ? a_ndim : b_ndim;
  PX_TRY(px__check_ndim(ndim));
  for (int d = ndim - 1; d >= 0; d--) {
    int ad = d - (ndim - a_ndim), bd = d - (ndim - b_ndim);
    int64_t x = ad >= 0 ? a[ad] : 1, y = bd >= 0 ? b[bd] : 1;
    PX_CHECK(x == y || x == 1 || y == 1, PX_RUNTIME,
             "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton "
             "dimension %d",
             (long long)x, (long long)y, d);
    out_sizes[d] = x == 1 ? y : x;
  }
  *out_ndim = ndim;
  return PX_OK;
}

// 0-dim tensors accept -1 and 0, like one-dimensional ones.
px_status px__wrap_dim(int *out, int64_t dim, int ndim) {
  int64_t range = ndim > 0 ? ndim : 1;
  PX_CHECK(dim >= -range && dim < range, PX_INDEX,
           "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
           (long long)-range, (long long)range - 1, (long long)dim);
  *out = (int)(dim < 0 ? dim + range : dim);
  return PX_OK;
}
px_status px__wrap_dims(uint64_t *out, const int64_t *dims, int count, int ndim) {
  uint64_t mask = 0;
  for (int i = 0; i < count; i++) {
    int d = 0;
    PX_TRY(px__wrap_dim(&d, dims[i], ndim));
    PX_CHECK(!(mask >> d & 1), PX_RUNTIME, "dim %d appears multiple times in the list of dims", d);
    mask |= UINT64_C(1) << d;
  }
  *out = mask;
  return PX_OK;
}
px_status px__wrap_dim_list(px__dims *out, const int64_t *dims, int count, int ndim) {
  uint64_t unique;
  PX_TRY(px__wrap_dims(&unique, dims, count, ndim));
  out->n = count;
  for (int i = 0; i < count; i++) out->at[i] = dims[i] < 0 ? dims[i] + (ndim ? ndim : 1) : dims[i];
  return PX_OK;
}
px_status px__wrap_size_dim(int *out, int64_t dim, int ndim) {
  PX_CHECK(ndim > 0, PX_INDEX, "Dimension specified as %lld but tensor has no dimensions",
           (long long)dim);
  return px__wrap_dim(out, dim, ndim);
}

// Infers the size given as -1; the sizes must multiply to numel.
static px_status infer_size(int64_t numel, int ndim, int64_t *sizes) {
  char text[SIZES_TEXT];
  int64_t known = 1;
  int inferred = -1;
  bool over = false;
  for (int d = 0; d < ndim; d++) {
    if (sizes[d] == -1) {
      PX_CHECK(inferred < 0, PX_RUNTIME, "only one dimension can be inferred");
      inferred = d;
      continue;
    }
    PX_CHECK(sizes[d] >= 0, PX_RUNTIME, "invalid shape dimension %lld", (long long)sizes[d]);
    over |= px__mul_size(known, sizes[d], &known);
  }
  bool fits = !over && (inferred < 0 ? known == numel
                        : known == 0 ? numel == 0
                                     : numel % known == 0);
  PX_CHECK(fits, PX_RUNTIME, "shape '%s' is invalid for input of size %lld",
           px__sizes_text(text, sizeof text, ndim, sizes), (long long)numel);
  if (inferred < 0) return PX_OK;
  PX_CHECK(known != 0, PX_RUNTIME,
           "cannot reshape tensor of 0 elements into shape %s because the unspecified dimension "
           "size -1 can be any value and is ambiguous",
           px__sizes_text(text, sizeof text, ndim, sizes));
  sizes[inferred] = numel / known;
  return PX_OK;
}

// Computes the strides of a view, from the last dimension. Old dimensions contiguous with each
// other form a run, which may be split arbitrarily. The new sizes must cover each run exactly.
static bool split_runs(const px_tensor *t, int ndim, const int64_t *sizes, int64_t *strides) {
  int at = ndim - 1;
  int64_t base = t->ndim ? t->strides[t->ndim - 1] : 1, run = 1, covered = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    run = px__steps(t->sizes[d], run);
    bool joined = d > 0 && (t->sizes[d - 1] == 1 || t->strides[d - 1] == px__steps(run, base));
    if (joined) continue;
    for (; at >= 0 && (covered < run || sizes[at] == 1); at--) {
      strides[at] = px__steps(covered, base);
      covered = px__steps(sizes[at], covered);
    }
    if (covered != run) return false;
    if (d > 0) base = t->strides[d - 1], run = covered = 1;
  }
  return at < 0;
}

px_status px__view_strides(bool *possible, const px_tensor *self, int ndim, int64_t *sizes,
                           int64_t *strides) {
  PX_TRY(px__check_ndim(ndim));
  PX_TRY(infer_size(self->numel, ndim, sizes));
  *possible = true;
  if (px__has_sizes(self, ndim, sizes))
    memcpy(strides, self->strides, sizeof *strides * (size_t)ndim);
  else if (self->numel == 0 || self->contiguous || self->ndim == 0)
    px__row_major(ndim, sizes, strides);
  else
    *possible = split_runs(self, ndim, sizes, strides);
  return PX_OK;
}

// ---- byte ranges of a storage accessed by a tensor
int64_t px__tensor_reach(const px_tensor *t) {
  int64_t last = 0;
  if (t->numel == 0) return 0;
  for (int d = 0; d < t->ndim; d++) last += (t->sizes[d] - 1) * t->strides[d];
  return last + 1;
}

// The dimensions with more than one element and a nonzero stride, ordered by stride.
static int sorted_dims(const px_tensor *t, int *order) {
  int n = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (t->sizes[d] <= 1 || t->strides[d] == 0) continue;
    int at = n++;
    for (; at > 0 && t->strides[order[at - 1]] > t->strides[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  return n;
}
static uint64_t common_divisor(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// Splits the dimensions, sorted by stride, at each possible index: the span of the smaller strides
// repeats at multiples of the gcd of the larger ones, leaving a gap. If there are more than
// PX__GAPS, the innermost ones and the outermost one are kept.
void px__tensor_gaps(px__gap *gaps, const px_tensor *t) {
  int order[PX_MAX_DIMS], n = sorted_dims(t, order), count = 0;
  uint64_t pitches[PX_MAX_DIMS + 1] = {0}, width = 1, item = px__item(t);
  for (int k = n; k-- > 0;)
    pitches[k] = common_divisor((uint64_t)t->strides[order[k]], k + 1 < n ? pitches[k + 1] : 0);
  for (int k = 0; k < n; k++) {
    if (pitches[k] > width && pitches[k] <= UINT32_MAX / item) {
      gaps[count] = (px__gap){(uint32_t)(pitches[k] * item), (uint32_t)(width * item)};
      if (count < PX__GAPS - 1) count++;
    }
    width += (uint64_t)(t->sizes[order[k]] - 1) * (uint64_t)t->strides[order[k]];
  }
}

bool px_may_overlap(int ndim, const int64_t *sizes, const int64_t *strides) {
  bool used[PX_MAX_DIMS] = {false};
  int64_t extent = 0;
  for (int n = 0; n < ndim; n++) {
    int smallest = 0;
    while (used[smallest]) smallest++;
    for (int d = smallest + 1; d < ndim; d++)
      if (!used[d] && strides[d] < strides[smallest]) smallest = d;
    used[smallest] = true;
    if (sizes[smallest] <= 1) continue;
    if (strides[smallest] <= extent) return true;
    extent += (sizes[smallest] - 1) * strides[smallest];
  }
  return false;
}
