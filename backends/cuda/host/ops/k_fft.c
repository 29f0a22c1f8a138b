// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms by cuFFT, up to three dimensions at a time. Operands with a layout
// unsupported by cuFFT are copied to scratch memory. Inputs of complex-to-real transforms are
// always copied because cuFFT may overwrite them.
#include "cuda/fft_params.h"
#include "cuda/host/library/cufft.h"
#include "cuda/host/ops/kernel.h"
#include "kernel_args/fft.h"

#include <math.h>

enum { MAX_RANK = 3 };  // dimensions of a plan

// One transform. `dims` holds the batch dimensions followed by the transformed ones, each in order
// of decreasing stride, without dimensions of size 1.
typedef struct pass {
  const px_launch *launch;
  px__cufft_shape shape;
  int dims[PX_MAX_DIMS], count, rank;
  bool forward, mirrored;  // mirrored: R2C with the redundant half filled in
  double scale;            // of the result; 1: none
} pass;

// ---- layouts

static void sort_by_stride(int *dims, int count, const int64_t *strides) {
  for (int i = 1; i < count; i++)
    for (int k = i; k > 0 && strides[dims[k]] > strides[dims[k - 1]]; k--) {
      int swap = dims[k];
      dims[k] = dims[k - 1], dims[k - 1] = swap;
    }
}

// Describes the operand's layout to cuFFT. False if unsupported: each stride must be a multiple of
// the next, and the batch must have a single stride.
static bool describe_layout(px__cufft_side *side, const pass *p, const px_operand *o) {
  const int *dims = p->dims, first = p->count - p->rank;
  int64_t inner = o->strides[dims[p->count - 1]];
  size_t unit = px__cuda_dtype_size(o->dtype) * (px__dtypes[o->dtype].kind == 'c' ? 1 : 2);
  if (inner < 1 || (uintptr_t)o->data % unit) return false;
  side->stride = inner;
  for (int i = p->rank - 1; i > 0; i--) {
    int64_t stride = o->strides[dims[first + i - 1]];
    if (stride < inner * o->sizes[dims[first + i]] || stride % inner) return false;
    side->embed[i] = stride / inner;
    inner = stride;
  }
  side->embed[0] = o->sizes[dims[first]];
  side->distance = first ? o->strides[dims[first - 1]] : inner * o->sizes[dims[first]];
  for (int i = first - 1; i > 0; i--)
    if (o->strides[dims[i - 1]] != o->strides[dims[i]] * o->sizes[dims[i]]) return false;
  return side->distance > 0;
}
// True if the operand has no gaps in memory.
static bool is_dense(const pass *p, const px_operand *o) {
  int64_t last = 0;
  for (int i = 0; i < p->count; i++) last += (o->sizes[p->dims[i]] - 1) * o->strides[p->dims[i]];
  return last + 1 == px_operand_numel(o);
}

// Allocates a scratch copy of the operand, dense in the pass's dimension order. The caller keeps
// `strides`.
static px_status allocate_copy(px_operand *made, int64_t *strides, const pass *p,
                               const px_operand *o) {
  int64_t step = 1;
  *made = *o;
  made->strides = strides;
  for (int d = 0; d < o->ndim; d++) strides[d] = 1;
  for (int i = p->count - 1; i >= 0; i--) {
    strides[p->dims[i]] = step;
    step *= o->sizes[p->dims[i]];
  }
  return px__cuda_scratch(p->launch, (size_t)step * px__cuda_dtype_size(o->dtype), &made->data);
}

// ---- a pass

static px_status call(const pass *p, const char *name, k_fft *params, int64_t threads) {
  char function[24];
  snprintf(function, sizeof function, "fft_%s_%s", name, p->shape.wide ? "f64" : "f32");
  return px__cuda_over(p->launch, "fft", function, threads, params);
}
static k_fft lines_of(const pass *p, const px_operand *o, const px__cufft_side *side) {
  return (k_fft){.at = o->data,
                 .lines = p->shape.batch,
                 .distance = side->distance,
                 .n = p->shape.sizes[0],
                 .stride = side->stride};
}
// Scales n contiguous real numbers.
static px_status scaled(const pass *p, void *to, const void *from, int64_t n) {
  k_fft scale = {.at = to, .from = from, .n = n, .by = p->scale};
  return call(p, "scale", &scale, n / 2 + 1);
}
// Zeroes the imaginary parts known to be zero by symmetry. cuFFT's result for nonzero ones is
// undefined.
static px_status clear_imaginary(const pass *p, const px_operand *in) {
  k_fft ends = lines_of(p, in, &p->shape.in);
  return call(p, "ends", &ends, ends.lines);
}
static px_status finish(const pass *p, const px_operand *out) {
  k_fft mirror = lines_of(p, out, &p->shape.out);
  int parts = p->shape.kind == PX__CUFFT_C2R ? 1 : 2;
  if (p->mirrored) PX_CUDA_PASS(call(p, "mirror", &mirror, mirror.lines * ((mirror.n - 1) / 2)));
  return p->scale != 1 ? scaled(p, out->data, out->data, px_operand_numel(out) * parts) : PX_OK;
}

// Copies an operand to scratch memory. Inputs of C2R are scaled on the way if both layouts are
// equal.
static px_status copy_in(pass *p, const px_operand *to, const px_operand *from) {
  bool same_layout = p->shape.kind == PX__CUFFT_C2R && p->scale != 1 &&
                     (uintptr_t)from->data % px__cuda_dtype_size(from->dtype) == 0;
  for (int d = 0; d < from->ndim; d++)
    same_layout &= from->sizes[d] == 1 || from->strides[d] == to->strides[d];
  if (!same_layout) return px__cuda_copy_operand(p->launch, to, from);
  PX_CUDA_PASS(scaled(p, to->data, from->data, 2 * px_operand_numel(from)));
  p->scale = 1;  // applied
  return PX_OK;
}

static px_status run(pass *p, const px_operand *from, const px_operand *to) {
  int64_t in_strides[PX_MAX_DIMS], out_strides[PX_MAX_DIMS];
  px_operand in = *from, out = *to;
  bool to_real = p->shape.kind == PX__CUFFT_C2R;
  if (to_real || !describe_layout(&p->shape.in, p, &in)) {
    PX_CUDA_PASS(allocate_copy(&in, in_strides, p, from));
    PX_CUDA_PASS(copy_in(p, &in, from));
    describe_layout(&p->shape.in, p, &in);
  }
  if (!is_dense(p, &out) || !describe_layout(&p->shape.out, p, &out)) {
    PX_CUDA_PASS(allocate_copy(&out, out_strides, p, to));
    describe_layout(&p->shape.out, p, &out);
  }
  if (to_real) PX_CUDA_PASS(clear_imaginary(p, &in));
  PX_CUDA_PASS(px__cufft_run(p->launch, &p->shape, in.data, out.data, p->forward));
  PX_CUDA_PASS(finish(p, &out));
  return out.data != to->data ? px__cuda_copy_operand(p->launch, to, &out) : PX_OK;
}

// Sets the pass's dimensions: `line`, in order, and all others as its batch.
static void set_dims(pass *p, const px_operand *to, const int *line, int rank) {
  uint64_t transformed = 0;
  for (int i = 0; i < rank; i++) transformed |= UINT64_C(1) << line[i];
  p->count = 0, p->rank = rank;
  p->shape.rank = rank, p->shape.batch = 1;
  for (int d = 0; d < to->ndim; d++) {
    if (transformed >> d & 1 || to->sizes[d] == 1) continue;
    p->dims[p->count++] = d;
    p->shape.batch *= to->sizes[d];
  }
  sort_by_stride(p->dims, p->count, to->strides);
  for (int i = 0; i < rank; i++) {
    p->dims[p->count++] = line[i];
    p->shape.sizes[i] = to->sizes[line[i]];
  }
}

// ---- kernels

static double scale_of(int64_t normalization, double n) {
  return normalization == 0 ? 1 : normalization == 1 ? 1 / sqrt(n) : 1 / n;
}
static bool is_wide(const px_operand *o) {
  return o->dtype == PX_FLOAT64 || o->dtype == PX_COMPLEX128;
}

// Transforms along `dims`, in order of decreasing stride.
static px_status run_complex(const px_launch *l, const px_operand *from, const px_operand *to,
                             const int *dims, int count, bool forward, double scale) {
  for (int i = 0; i < count; i += MAX_RANK) {
    int rank = count - i < MAX_RANK ? count - i : MAX_RANK;
    pass p = {.launch = l,
              .shape = {.kind = PX__CUFFT_C2C, .wide = is_wide(to)},
              .forward = forward,
              .scale = i + rank == count ? scale : 1};
    set_dims(&p, to, dims + i, rank);
    PX_CUDA_PASS(run(&p, from, to));
    from = to;
  }
  return PX_OK;
}
PX_CUDA_KERNEL(fft_c2c) {
  const px_operand *from = args->self, *to = args->out;
  int dims[PX_MAX_DIMS], count = 0;
  double n = 1;
  for (int i = 0; i < args->dim.n; i++) {
    int d = (int)args->dim.v.ints[i];
    if (to->sizes[d] != 1) dims[count++] = d;
    n *= (double)to->sizes[d];
  }
  // The transform of a single number is the number itself.
  if (!count) return px__cuda_copy_operand(l, to, from);
  sort_by_stride(dims, count, to->strides);
  return run_complex(l, from, to, dims, count, args->way > 0, scale_of(args->normalization, n));
}

// Transforms lines of n real numbers along the last dimension, to or from the nonredundant half of
// their spectra.
static px_status run_real(pass *p, const px_operand *to, const px_operand *from, const int *dims,
                          int rank, int64_t n) {
  if (n == 1) return px__cuda_copy_operand(p->launch, to, from);
  p->shape.wide = is_wide(to);
  set_dims(p, to, dims, rank);
  p->shape.sizes[rank - 1] = n;
  return run(p, from, to);
}
// A plan's other dimensions are complex. cuFFT requires strides in decreasing order, so the
// outermost dimensions may be left for a separate complex pass.
PX_CUDA_KERNEL(fft_r2c) {
  const px_operand *to = args->out;
  int dims[PX_MAX_DIMS], count = 0, last = (int)args->dim.v.ints[args->dim.n - 1];
  int64_t length = args->self->sizes[last];
  double n = (double)length;
  for (int i = 0; i + 1 < args->dim.n; i++) {
    int d = (int)args->dim.v.ints[i];
    if (to->sizes[d] != 1) dims[count++] = d;
    n *= (double)to->sizes[d];
  }
  sort_by_stride(dims, count, to->strides);
  int left = count < MAX_RANK ? 0 : count - MAX_RANK + 1;
  double scale = scale_of(args->normalization, n);
  pass p = {.launch = l,
            .shape = {.kind = PX__CUFFT_R2C},
            .forward = true,
            .mirrored = !args->onesided,
            .scale = left ? 1 : scale};
  dims[count] = last;
  if (length == 1) left = count;
  PX_CUDA_PASS(run_real(&p, to, args->self, dims + left, count + 1 - left, length));
  return left ? run_complex(l, to, to, dims, left, true, scale) : PX_OK;
}
PX_CUDA_KERNEL(fft_c2r) {
  int line = (int)args->dim;
  double scale = scale_of(args->normalization, (double)args->last_dim_size);
  pass p = {.launch = l, .shape = {.kind = PX__CUFFT_C2R}, .scale = scale};
  return run_real(&p, args->out, args->self, &line, 1, args->last_dim_size);
}
