// SPDX-License-Identifier: Apache-2.0
// Loops over operands with merged dimensions. Adjacent dimensions are merged if they are contiguous
// in all operands.
#include "cuda/host/ops/kernel.h"

void px__cuda_divisor(k_divisor *out, int64_t by) {
  uint32_t shift = 0;
  uint64_t d = (uint64_t)by;
  if (by < 1 || by >= INT64_C(1) << 31) {  // never used: the loop is empty, or uses 64-bit indices
    *out = (k_divisor){1, 1, 0};
    return;
  }
  while (UINT64_C(1) << shift < d) shift++;
  uint64_t magic = ((UINT64_C(1) << 32) * ((UINT64_C(1) << shift) - d)) / d + 1;
  *out = (k_divisor){(uint32_t)d, (uint32_t)magic, shift};
}

static int64_t stride_of(const px_operand *o, int d) {
  return px__cuda_absent(o) ? 0 : o->strides[d];
}
static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

// True if dimension a is inside b, decided by the strides of the result, then of the inputs.
static bool is_inner(const px_operand *operands, int n, int a, int b) {
  for (int i = 0; i < n; i++) {
    int64_t x = magnitude(stride_of(&operands[i], a)), y = magnitude(stride_of(&operands[i], b));
    if (x != y && x && y) return x < y;
  }
  return a > b;
}

static void add_dim(k_loop *p, const px_operand *operands, int n, int64_t size, int d) {
  if (p->ndim > 0) {
    int64_t *last = p->strides[p->ndim - 1], step = p->sizes[p->ndim - 1];
    bool joins = true;
    for (int i = 0; i < n; i++) joins &= stride_of(&operands[i], d) == last[i] * step;
    if (joins) {
      p->sizes[p->ndim - 1] *= size;
      return;
    }
  }
  p->sizes[p->ndim] = size;
  for (int i = 0; i < n; i++) p->strides[p->ndim][i] = stride_of(&operands[i], d);
  p->ndim++;
}

void px__cuda_read(k_number *out, const px_operand *o, bool real) {
  double f = 0;
  int64_t integer = 0;
  switch (o->dtype) {
    case PX_FLOAT64:
      memcpy(&f, o->value, sizeof f);
      integer = (int64_t)f;
      break;
    case PX_FLOAT32: {
      float x;
      memcpy(&x, o->value, sizeof x);
      f = x, integer = (int64_t)x;
      break;
    }
    case PX_INT64:
      memcpy(&integer, o->value, sizeof integer);
      break;
    case PX_INT32: {
      int32_t x;
      memcpy(&x, o->value, sizeof x);
      integer = x;
      break;
    }
    case PX_INT16: {
      int16_t x;
      memcpy(&x, o->value, sizeof x);
      integer = x;
      break;
    }
    case PX_INT8:
      integer = (int8_t)o->value[0];
      break;
    case PX_BOOL:
      integer = o->value[0] != 0;
      break;
    default:
      integer = o->value[0];
  }
  if (o->dtype < PX_FLOAT16) f = (double)integer;
  if (real)
    out->f = f;
  else
    out->i = integer;
}

// A complex immediate stores its imaginary part in the operand's data pointer, unused otherwise.
static void load_operand(k_loop *p, const px_operand *o, int i) {
  p->kind[i] = K_VALUE, p->data[i] = NULL, p->value[i].i = 0;
  p->dtype[i] = o->dtype == PX_DTYPE_NONE ? 0 : (uint8_t)o->dtype;
  if (px__cuda_absent(o)) return;
  p->data[i] = o->data;
  p->kind[i] = i == 0 ? K_MANY : K_ONE;
  for (int d = 0; d < o->ndim; d++)
    if (o->strides[d] != 0 && o->sizes[d] != 1) p->kind[i] = K_MANY;
}

// True if all operands are dense and aligned to vectors of the same number of elements.
static bool is_flat(const k_loop *p, int n, int vector_item) {
  if (vector_item == 0 || p->ndim > 1) return false;
  for (int i = 0; i < n; i++) {
    if (p->kind[i] != K_MANY) continue;
    if (p->ndim == 1 && p->n > 1 && p->strides[0][i] != 1) return false;
    size_t bytes = px__cuda_dtype_size(p->dtype[i]) * (size_t)(16 / vector_item);
    if ((uintptr_t)p->data[i] % bytes) return false;
  }
  return true;
}

// Row mode: the result's rows are dense, vector-aligned and multiples of the vector size. Inputs
// are too, or they are loaded element by element. Sizes and strides are converted to vectors.
static bool use_rows(k_loop *p, int n, int vector_item) {
  int64_t each = vector_item ? 16 / vector_item : 1;
  if (each == 1 || p->ndim == 0 || p->sizes[0] % each || p->n / each >> 31) return false;
  for (int i = 0; i < n; i++) {
    if (p->kind[i] != K_MANY || (i > 0 && p->strides[0][i] != 1)) continue;
    if (p->strides[0][i] != 1) return false;
    if ((uintptr_t)p->data[i] % (px__cuda_dtype_size(p->dtype[i]) * (size_t)each)) return false;
    for (int d = 1; d < p->ndim; d++)
      if (p->strides[d][i] % each) return false;
  }
  p->sizes[0] /= each;
  for (int i = 0; i < n; i++) p->strides[0][i] *= each;
  return true;
}

px_status px__cuda_fits(const px_operand *o, int64_t least) {
  int count = 0;
  for (int d = 0; d < o->ndim; d++) count += o->sizes[d] >= least;
  if (count > K_DIMS) PX_CUDA_FAIL(PX_RUNTIME, "tensor has too many (>%d) dims", K_DIMS);
  return PX_OK;
}

void px__cuda_walk(k_loop *p, const px_operand *operands, int n) {
  int order[PX_MAX_DIMS], count = 0;
  const px_operand *shape = &operands[0];
  p->n = px_operand_numel(shape), p->ndim = 0;
  for (int i = 0; i < n; i++) load_operand(p, &operands[i], i);
  for (int d = shape->ndim - 1; d >= 0; d--) {
    if (shape->sizes[d] == 1) continue;
    int at = count++;
    for (; at > 0 && is_inner(operands, n, d, order[at - 1]); at--) order[at] = order[at - 1];
    order[at] = d;
  }
  for (int k = 0; k < count; k++) add_dim(p, operands, n, shape->sizes[order[k]], order[k]);
}

// Adds a loop dimension: `size` indices of dimension d, `step` apart.
static void put_dim(k_loop *to, int at, const k_loop *from, int d, int64_t step, int64_t size) {
  to->sizes[at] = size;
  for (int i = 0; i < K_OPERANDS; i++) to->strides[at][i] = from->strides[d][i] * step;
}
// Largest power of two that divides a size, at most `most`.
static int64_t part_of(int64_t size, int64_t most) {
  while (size % most) most /= 2;
  return most;
}
// If an operand is contiguous across the rows of the result, a block of threads processes a tile,
// so memory transactions of that operand serve threads that run together. A tile is 4 vectors by 32
// rows (fastest by measurement), or 32 elements by 8.
static void tile(k_loop *p, int n) {
  bool rows = p->mode == K_ROWS;
  int64_t width, height;
  int down = 0, count = 0;
  if ((!rows && p->mode != K_NARROW) || p->ndim < 2 || p->ndim > K_DIMS - 2) return;
  for (int d = 1; d < p->ndim; d++)
    for (int i = 1; i < n; i++)
      if (p->strides[d][i] == 1 && p->strides[0][i] > 1) down = d;
  width = part_of(p->sizes[0], rows ? 4 : 32), height = part_of(p->sizes[down], rows ? 32 : 8);
  if (down == 0 || width == 1 || height == 1) return;
  k_loop own = *p;
  put_dim(p, count++, &own, 0, 1, width);
  put_dim(p, count++, &own, down, 1, height);
  put_dim(p, count++, &own, 0, width, own.sizes[0] / width);
  put_dim(p, count++, &own, down, height, own.sizes[down] / height);
  for (int d = 1; d < own.ndim; d++)
    if (d != down) put_dim(p, count++, &own, d, 1, own.sizes[d]);
  p->ndim = count;
}

void px__cuda_vectors(k_loop *p, int n, int vector_item) {
  p->mode = is_flat(p, n, vector_item)    ? K_FLAT
            : use_rows(p, n, vector_item) ? K_ROWS
            : p->n >> 31                  ? K_WIDE
                                          : K_NARROW;
  tile(p, n);
  for (int d = 0; d < p->ndim; d++) px__cuda_divisor(&p->by[d], p->sizes[d]);
}

px_status px__cuda_over(const px_launch *l, const char *module, const char *function, int64_t n,
                        void *params) {
  void *list[] = {params};
  if (n <= 0) return PX_OK;
  return px__cuda_launch(l, module, function, px__cuda_grid(l, n, K_BLOCK), K_BLOCK, 0, list);
}

// One block for each 128 to 512 vectors: 5 % faster on large tensors than a grid-stride loop. Modes
// locating elements by division use a grid-stride loop.
px_status px__cuda_each(const px_launch *l, const char *module, const char *function, int each,
                        k_loop *p) {
  void *list[] = {p};
  int64_t tile = (int64_t)K_LOOP * each * (p->mode == K_FLAT ? K_FLIGHT(each) : 1);
  int64_t blocks = p->n / tile + 1;
  unsigned grid = p->mode > K_ROWS     ? px__cuda_grid(l, p->n, K_LOOP)
                  : blocks > INT32_MAX ? (unsigned)INT32_MAX
                                       : (unsigned)blocks;
  return px__cuda_launch(l, module, function, grid, K_LOOP, 0, list);
}
