// SPDX-License-Identifier: Apache-2.0
// Memory formats, and the strides of new tensors, by PyTorch's rules.
//
// Strides of dimensions of size 1 do not affect the layout. Where a tensor matches several formats,
// they decide: images with one channel count as row-major unless their strides are exactly those of
// channels_last.
#include "tensor/tensor_impl.h"

// `ndim`: required number of dimensions; 0: any.
static const struct {
  const char *name;
  int ndim;
} formats[] = {[PX_FORMAT_CONTIGUOUS] = {"contiguous_format", 0},
               [PX_FORMAT_PRESERVE] = {"preserve_format", 0},
               [PX_FORMAT_CHANNELS_LAST] = {"channels_last", 4},
               [PX_FORMAT_CHANNELS_LAST_3D] = {"channels_last_3d", 5}};

const char *px_memory_format_name(px_memory_format format) {
  return (unsigned)format < PX_COUNT_OF(formats) ? formats[format].name : "unknown";
}

px_status px_memory_format_parse(px_memory_format *out, const char *name) {
  PX_GIVEN(out);
  PX_GIVEN(name);
  for (int i = 0; i < PX_COUNT_OF(formats); i++)
    if (!strcmp(formats[i].name, name)) return *out = (px_memory_format)i, PX_OK;
  PX_FAIL(PX_VALUE,
          "memory_format must be contiguous_format, preserve_format, channels_last or "
          "channels_last_3d, but got '%s'",
          name);
}

// Maps position k, from the innermost, to the dimension in channels_last order: 1, then the last
// down to 2, then 0.
static inline int last_dim(int ndim, int k) { return k == 0 ? 1 : k == ndim - 1 ? 0 : ndim - k; }

static void channels_last(int ndim, const int64_t *sizes, int64_t *strides) {
  uint64_t step = 1;  // may wrap (see px__row_major); 0 after a size of 0
  for (int k = 0; k < ndim; k++) {
    int d = last_dim(ndim, k);
    strides[d] = (int64_t)step;
    step *= (uint64_t)sizes[d];
  }
}

px_status px__format_strides(int64_t *strides, int ndim, const int64_t *sizes,
                             px_memory_format format) {
  PX_CHECK((unsigned)format < PX_COUNT_OF(formats), PX_VALUE, "invalid memory format %d",
           (int)format);
  int wanted = formats[format].ndim;
  PX_CHECK(!wanted || wanted == ndim, PX_RUNTIME, "required rank %d tensor to use %s format",
           wanted, formats[format].name);
  if (wanted)
    channels_last(ndim, sizes, strides);
  else
    px__row_major(ndim, sizes, strides);
  return PX_OK;
}

static bool has_channels_last(const px_tensor *t) {
  int64_t step = 1;
  for (int k = 0; k < t->ndim; k++) {
    int d = last_dim(t->ndim, k);
    if (t->sizes[d] == 1) continue;
    if (t->strides[d] != step) return false;
    step = px__steps(t->sizes[d], step);
  }
  return true;
}

bool px_tensor_has_format(const px_tensor *self, px_memory_format format) {
  if ((unsigned)format >= PX_COUNT_OF(formats) || !formats[format].ndim) return self->contiguous;
  return self->ndim == formats[format].ndim && has_channels_last(self);
}

// True if strides increase from the channels outward, with or without gaps. False if ambiguous: a
// single image of one row and column, and slices of such rows.
static bool is_like_channels_last(const px_tensor *t) {
  int64_t min_stride = 0;
  if (t->strides[1] == 0) return false;
  for (int k = 0; k < t->ndim; k++) {
    int d = last_dim(t->ndim, k);
    if (t->sizes[d] == 0 || t->strides[d] < min_stride) return false;
    if (d == 0 && min_stride == t->strides[1]) return false;
    min_stride = t->sizes[d] > 1 ? px__steps(t->sizes[d], t->strides[d]) : t->strides[d];
  }
  return true;
}

px_memory_format px_tensor_suggest_format(const px_tensor *self) {
  if (self->ndim != 4 && self->ndim != 5) return PX_FORMAT_CONTIGUOUS;
  if (!is_like_channels_last(self)) return PX_FORMAT_CONTIGUOUS;
  return self->ndim == 4 ? PX_FORMAT_CHANNELS_LAST : PX_FORMAT_CHANNELS_LAST_3D;
}

// ---- dimension order

// Returns the stride of an operand after broadcasting. Dimensions of size 1 that are not expanded
// keep their stride.
static int64_t stride_of(const px__layout *l, int i, int d) {
  const px__form *t = &l->of[i];
  int own = d - (l->ndim - t->ndim);
  return own < 0 || (t->sizes[own] == 1 && l->sizes[d] != 1) ? 0 : t->strides[own];
}

// Negative if a is inside b, positive if outside, 0 if undecided. The first operand with nonzero
// strides in both decides; for equal strides the smaller dimension is inside.
static int compare(const px__layout *l, int a, int b) {
  for (int i = 0; i < l->n; i++) {
    int64_t x = stride_of(l, i, a), y = stride_of(l, i, b);
    if (x == 0 || y == 0) continue;
    if (x != y) return x < y ? -1 : 1;
    if (l->sizes[a] > l->sizes[b]) return 1;
  }
  return 0;
}

// Insertion sort with skipping of undecided pairs. The comparison is not a strict weak order, so
// another sort would give another result.
static void ordered_strides(int64_t *strides, const px__layout *l) {
  int order[PX_MAX_DIMS];
  for (int k = 0; k < l->ndim; k++) order[k] = l->ndim - 1 - k;
  for (int i = 1; i < l->ndim; i++) {
    for (int at = i, k = i - 1; k >= 0; k--) {
      int found = compare(l, order[k], order[at]);
      if (found < 0) break;
      if (found == 0) continue;
      int moved = order[k];
      order[k] = order[at], order[at] = moved;
      at = k;
    }
  }
  uint64_t step = 1;
  for (int k = 0; k < l->ndim; k++) {
    strides[order[k]] = (int64_t)step;
    step *= l->sizes[order[k]] > 1 ? (uint64_t)l->sizes[order[k]] : 1;
  }
}

static bool is_dense(px__form t, int64_t numel) {
  uint64_t seen = 0;
  for (int64_t step = 1; step < numel;) {  // find the dimension with this stride
    int d = 0;
    while (d < t.ndim && (t.sizes[d] == 1 || seen >> d & 1 || t.strides[d] != step)) d++;
    if (d == t.ndim) return false;
    seen |= UINT64_C(1) << d;
    step = px__steps(t.sizes[d], step);
  }
  return true;
}
bool px_tensor_is_dense(const px_tensor *self) {
  return self->contiguous || self->numel == 0 || is_dense(px__form_of(self), self->numel);
}

static bool is_row_major(const px_tensor *t) {
  int64_t step = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (t->strides[d] != step) return false;
    if (t->sizes[d] > 1) step = px__steps(t->sizes[d], step);
  }
  return true;
}

static bool equal(int n, const int64_t *a, const int64_t *b) {
  return !memcmp(a, b, (size_t)n * sizeof *a);
}
// True if all operands have the strides of the first, and these are dense.
static bool is_uniform(const px__layout *l) {
  px__form first = l->of[0];
  int64_t numel = 1;
  for (int d = 0; d < l->ndim; d++) numel *= l->sizes[d];
  for (int i = 0; i < l->n; i++)
    if (l->of[i].ndim != l->ndim || !equal(l->ndim, l->of[i].sizes, l->sizes) ||
        !equal(l->ndim, l->of[i].strides, first.strides))
      return false;
  return l->n && !l->mixed && is_dense(first, numel);
}

void px__layout_strides(int64_t *strides, const px__layout *l) {
  if (is_uniform(l))
    memcpy(strides, l->of[0].strides, (size_t)l->ndim * sizeof *strides);
  else
    ordered_strides(strides, l);
}

const int64_t *px__preserved_strides(int64_t *buffer, const px_tensor *t) {
  if (PX_LIKELY(t->contiguous) && is_row_major(t)) return NULL;
  if (px_tensor_is_dense(t)) return t->strides;
  px__layout l = {.ndim = t->ndim, .n = 1, .sizes = t->sizes, .of = {px__form_of(t)}};
  ordered_strides(buffer, &l);
  return buffer;
}
