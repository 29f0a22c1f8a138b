// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms by FFTW: one dimension after another, each over all lines, for any
// strides. A pass is divided into pieces by sizes alone, so results do not depend on the number of
// threads. Interrupts are polled between pieces.
#include <math.h>

#include "kernel_args/fft.h"

#include "cpu/convert/dense.h"
#include "cpu/fft/fftw.h"
#include "cpu/threads/threads.h"

#define BOTH "cpu/fft/fft_rows.h"
#include "cpu/vector/for_f32_f64.h"

enum { MAX_PIECE = 1 << 15 };  // max elements of a piece

// One pass over all lines of a dimension.
typedef struct pass {
  px__fft_shape shape, tail;  // of a piece; of the last piece along the cut dimension
  px__fft_plan *plan, *tail_plan;
  px__fft_axis outer[PX_MAX_DIMS + 1];  // loops over pieces
  int outer_count;
  bool cut;  // the last outer axis is a part of the cut dimension
  char *in, *out;
  size_t in_bytes, out_bytes;  // of an element
  double scale;                // of the results; 1: unscaled
  bool mirrored;               // R2C: also write the redundant half
} pass;

// ---- division into pieces

static void sort_by_stride(px__fft_axis *axes, int count) {
  for (int i = 1; i < count; i++)
    for (int k = i; k > 0 && axes[k].to > axes[k - 1].to; k--) {
      px__fft_axis swap = axes[k];
      axes[k] = axes[k - 1], axes[k - 1] = swap;
    }
}
// All dimensions except `dim`, by descending stride, merged where possible. Returns their number.
static int other_axes(px__fft_axis *axes, const px_operand *from, const px_operand *to, int dim) {
  int count = 0, count_merged = 0;
  for (int d = 0; d < to->ndim; d++)
    if (d != dim && to->sizes[d] != 1)
      axes[count++] = (px__fft_axis){to->sizes[d], from->strides[d], to->strides[d]};
  sort_by_stride(axes, count);
  for (int i = 0; i < count; i++) {
    px__fft_axis a = axes[i], *before = count_merged ? &axes[count_merged - 1] : NULL;
    if (before && before->from == a.from * a.n && before->to == a.to * a.n)
      *before = (px__fft_axis){before->n * a.n, a.from, a.to};
    else
      axes[count_merged++] = a;
  }
  return count_merged;
}

// Moves dimensions to the outer loops until the rest fits a piece; cuts the last one if needed.
static void divide(pass *p, const px__fft_axis *axes, int count) {
  int64_t all = p->shape.line.n;
  int k = 0;
  for (int i = 0; i < count; i++) all *= axes[i].n;
  while (k < count && (all > MAX_PIECE || count - k > PX__FFT_BATCH)) {
    int64_t below = all / axes[k].n;
    if (below < MAX_PIECE && count - k <= PX__FFT_BATCH) break;
    p->outer[p->outer_count++] = axes[k++];
    all = below;
  }
  p->shape.batch_count = count - k;
  memcpy(p->shape.batch, axes + k, (size_t)(count - k) * sizeof *axes);
  p->tail = p->shape;
  if (k == count || all <= MAX_PIECE) return;
  int64_t max = MAX_PIECE / (all / axes[k].n), n = axes[k].n;
  if (max >= 4) max &= ~(int64_t)3;  // FFTW computes four lines together
  p->cut = true;
  p->outer[p->outer_count++] =
      (px__fft_axis){px__ceil_div(n, max), axes[k].from * max, axes[k].to * max};
  p->shape.batch[0].n = max;
  p->tail.batch[0].n = n % max ? n % max : max;
}

static void align(pass *p) {
  bool wide = p->shape.wide, aligned = true;
  int from = px__fftw_alignment(wide, p->in), to = px__fftw_alignment(wide, p->out);
  for (int i = 0; i < p->outer_count; i++) {
    const px__fft_axis *a = &p->outer[i];
    aligned &= px__fftw_alignment(wide, p->in + a->from * (ptrdiff_t)p->in_bytes) == from &&
               px__fftw_alignment(wide, p->out + a->to * (ptrdiff_t)p->out_bytes) == to;
  }
  p->shape.unaligned = p->tail.unaligned = !aligned;
  p->shape.from_at = p->tail.from_at = aligned ? from : 0;
  p->shape.to_at = p->tail.to_at = aligned ? to : 0;
}

// ---- pieces

static void finish(const pass *p, const px__fft_shape *s, char *out) {
  px__fft_axis axes[PX__FFT_BATCH + 1];
  int count = (int)s->batch_count, parts = s->way == PX__FFT_C2R ? 1 : 2;
  memcpy(axes, s->batch, sizeof s->batch);
  axes[count] = s->line;
  if (s->way == PX__FFT_R2C) axes[count].n = s->line.n / 2 + 1;
  sort_by_stride(axes, count + 1);
  void *at = out;
  if (p->scale != 1) {
    if (s->wide)
      scale_f64(at, axes, count + 1, parts, p->scale);
    else
      scale_f32(at, axes, count + 1, parts, (float)p->scale);
  }
  if (!p->mirrored) return;
  if (s->wide)
    mirror_f64(at, s->batch, count, &s->line);
  else
    mirror_f32(at, s->batch, count, &s->line);
}

static void run_pieces(void *context, int64_t begin, int64_t end) {
  const pass *p = context;
  for (int64_t i = begin; i < end && !px__cpu_stopped(); i++) {
    ptrdiff_t from = 0, to = 0;
    bool tail = false;
    int64_t left = i;
    for (int k = p->outer_count - 1; k >= 0; k--) {
      const px__fft_axis *a = &p->outer[k];
      int64_t at = left % a->n;
      left /= a->n;
      from += at * a->from, to += at * a->to;
      tail |= p->cut && k == p->outer_count - 1 && at == a->n - 1;
    }
    char *in = p->in + from * (ptrdiff_t)p->in_bytes, *out = p->out + to * (ptrdiff_t)p->out_bytes;
    px__fftw_run(tail ? p->tail_plan : p->plan, in, out);
    finish(p, tail ? &p->tail : &p->shape, out);
  }
}

static void run_pass(const px_launch *l, pass *p, const px_operand *from, const px_operand *to,
                     int dim) {
  px__fft_axis axes[PX_MAX_DIMS];
  p->in = from->data, p->out = to->data;
  p->in_bytes = (size_t)px__dtypes[from->dtype].size;
  p->out_bytes = (size_t)px__dtypes[to->dtype].size;
  p->shape.in_place = p->in == p->out;
  divide(p, axes, other_axes(axes, from, to, dim));
  align(p);
  int64_t pieces = 1;
  for (int i = 0; i < p->outer_count; i++) pieces *= p->outer[i].n;
  p->plan = px__fftw_acquire(&p->shape, p->in, p->out);
  p->tail_plan = px__fftw_acquire(&p->tail, p->in, p->out);
  if (p->plan && p->tail_plan)
    px__cpu_parallel(pieces, 1, run_pieces, p);
  else
    px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)sizeof(px__fft_shape), 0, 0);
  px__fftw_release(p->plan);
  px__fftw_release(p->tail_plan);
}

// ---- kernels

static bool is_wide(const px_operand *o) {
  return o->dtype == PX_FLOAT64 || o->dtype == PX_COMPLEX128;
}
static ptrdiff_t step_of(const px_operand *o, int dim) { return o->ndim ? o->strides[dim] : 0; }

// Complex to complex, over the dimensions from last to first.
static void run_complex(const px_launch *l, const px_operand *from, const px_operand *to,
                        const int64_t *dims, int count, int sign, double scale) {
  // Without dimensions: a transform of length 1.
  for (int i = count ? count - 1 : 0; i >= 0; i--) {
    int dim = count ? (int)dims[i] : -1;
    pass p = {.shape = {.way = PX__FFT_C2C, .wide = is_wide(to), .sign = sign}};
    p.shape.line = (px__fft_axis){1, 0, 0};
    if (dim >= 0)
      p.shape.line = (px__fft_axis){to->sizes[dim], step_of(from, dim), step_of(to, dim)};
    p.scale = i ? 1 : scale;
    run_pass(l, &p, from, to, dim);
    from = to;
  }
}
PX_KERNEL(fft_c2c) {
  double n = 1;
  for (int i = 0; i < args->dim.n; i++) n *= (double)args->out->sizes[args->dim.v.ints[i]];
  run_complex(l, args->self, args->out, args->dim.v.ints, args->dim.n, args->way > 0 ? -1 : 1,
              px__fft_scale((int)args->normalization, n));
  return PX_OK;
}

static void run_real(const px_launch *l, pass *p, const px_operand *from, const px_operand *to,
                     int64_t dim, int64_t n) {
  p->shape.wide = is_wide(to);
  p->shape.line = (px__fft_axis){n, step_of(from, (int)dim), step_of(to, (int)dim)};
  run_pass(l, p, from, to, (int)dim);
}
// The last dimension first (real to complex), then the others (complex to complex).
PX_KERNEL(fft_r2c) {
  int others = args->dim.n - 1;
  int64_t dim = args->dim.v.ints[others];
  double n = 1;
  for (int i = 0; i <= others; i++) n *= (double)args->self->sizes[args->dim.v.ints[i]];
  double scale = px__fft_scale((int)args->normalization, n);
  pass p = {
      .shape = {.way = PX__FFT_R2C}, .mirrored = !args->onesided, .scale = others ? 1 : scale};
  run_real(l, &p, args->self, args->out, dim, args->self->sizes[dim]);
  if (others) run_complex(l, args->out, args->out, args->dim.v.ints, others, -1, scale);
  return PX_OK;
}
PX_KERNEL(fft_c2r) {
  int64_t n = args->out->sizes[args->dim];
  pass p = {.shape = {.way = PX__FFT_C2R},
            .scale = px__fft_scale((int)args->normalization, (double)n)};
  run_real(l, &p, args->self, args->out, args->dim, n);
  return PX_OK;
}
