// SPDX-License-Identifier: Apache-2.0
// conv2d, conv3d and their gradients: sizes and dtype of a call, and the choice of its method.
//
// All six kernels take the same way. Among the methods that accept a call the cheapest one computes
// it, by the costs of conv_limits.h. A method that would give wrong results, as Winograd's does for
// inf and NaN, leaves the call to the methods after it in the table, which are more general.
#include "cpu/conv/conv.h"
#include "cpu/conv/conv_limits.h"
#include "cpu/convert/dense.h"
#include "cpu/gemm/gemm.h"
#include "cpu/threads/threads.h"
#include "kernel_args/conv.h"
#include "kernel_args/volume.h"

// From the most special method to the most general one.
static const conv_method *const methods[] = {
    &px__method_few_pixels, &px__method_depthwise, &px__method_depthwise_planes,
    &px__method_winograd,   &px__method_direct,    &px__method_product,
};
enum { METHODS = sizeof methods / sizeof *methods };

// The index of the cheapest method from `first` on. Methods of equal cost: the earlier one.
static int cheapest(const conv *t, int first) {
  int best = METHODS - 1, min = INT32_MAX;
  for (int i = first; i < METHODS; i++) {
    int cost = methods[i]->accepts(t) ? methods[i]->cost(t) : INT32_MAX;
    if (cost < min) best = i, min = cost;
  }
  return best;
}

// ---- sizes and dtype

// Stride, padding, dilation and groups of a call.
typedef struct steps {
  const px_value *stride, *padding, *dilation;
  int64_t groups;
} steps;
// The same and the sizes along one dimension.
typedef struct side {
  int64_t in, out, kernel, stride, pad, dilation;
} side;
static const side flat = {1, 1, 1, 1, 0, 1};
// Dimension k of the lists, 2 + k of the operands.
static side side_of(const conv_operands *o, const steps *by, int k) {
  return (side){.in = o->in->sizes[2 + k],
                .out = o->out->sizes[2 + k],
                .kernel = o->weight->sizes[2 + k],
                .stride = px__list_at(by->stride, k),
                .pad = px__list_at(by->padding, k),
                .dilation = px__list_at(by->dilation, k)};
}
// True if each plane is used whole: it may be a row of an image.
static bool keeps_planes(const side *y, const side *x) {
  bool one_to_one = y->kernel * x->kernel == 1 && y->stride == 1 && x->stride == 1;
  return one_to_one && y->pad == 0 && x->pad == 0 && y->out == y->in && x->out == x->in;
}
static void set_sides(conv *t, side z, side y, side x) {
  t->d = z.in, t->od = z.out, t->kd = z.kernel, t->sd = z.stride, t->pd = z.pad, t->dd = z.dilation;
  t->h = y.in, t->oh = y.out, t->kh = y.kernel, t->sh = y.stride, t->ph = y.pad, t->dh = y.dilation;
  t->w = x.in, t->ow = x.out, t->kw = x.kernel, t->sw = x.stride, t->pw = x.pad, t->dw = x.dilation;
}
static void set_sizes(conv *t, const steps *by) {
  const conv_operands *o = &t->operands;
  int dims = o->in->ndim - 2;
  side z = dims == 3 ? side_of(o, by, 0) : flat;
  side y = side_of(o, by, dims - 2), x = side_of(o, by, dims - 1);
  if (dims == 3 && keeps_planes(&y, &x)) {
    x.in *= y.in, x.out = x.in;
    y = z, z = flat;
  }
  set_sides(t, z, y, x);
  t->n = o->in->sizes[0], t->c = o->in->sizes[1], t->oc = o->out->sizes[1];
  t->groups = by->groups, t->cg = t->c / t->groups, t->og = t->oc / t->groups;
  t->kernel_taps = t->kd * t->kh * t->kw, t->k = t->cg * t->kernel_taps;
  t->p = t->oh * t->ow, t->out_pixels = t->od * t->p;
}

// The compute dtype. bfloat16 is kept if the processor multiplies it and the groups have enough
// channels. With AVX512-BF16 alone float is twice as fast. Converting the weights pays off for
// kernels of several taps with enough results.
static int compute_dtype(const conv *t) {
  int dtype = t->operands.weight->dtype;
  bool fits = t->groups == 1 || (t->cg >= BF16_MIN_CHANNELS && t->og >= BF16_MIN_CHANNELS);
  if (dtype != PX_BFLOAT16 || !fits || !px__gemm_has_bf16()) return px__compute_of(dtype);
  bool floats = px_cpu_level_used() < PX_CPU_AMX && t->kernel_taps > 1 &&
                t->n * t->out_pixels >= BF16_MIN_FLOAT_PIXELS;
  return floats ? PX_FLOAT32 : PX_BFLOAT16;
}
// True if the operand can be used as stored and its channels are adjacent.
static bool is_channels_last(const conv *t, const px_operand *o) {
  return o->dtype == t->dtype && !o->immediate && px__operand_channels_last(o) &&
         !px__operand_row_major(o);
}
// Layouts in which operands are used as stored. Images: both are channels_last and the results fill
// vectors. Weights: float methods except those of channels_last images require row-major ones.
static void set_layouts(conv *t) {
  const conv_operands *o = &t->operands;
  int64_t results = t->mode == 'i' ? t->cg : t->og;
  t->channels_last = t->dtype != PX_BFLOAT16 && px__conv_fills_lanes(results) &&
                     is_channels_last(t, o->in) && is_channels_last(t, o->out);
  t->weight_channels_last =
      (t->dtype != PX_FLOAT32 || t->channels_last) && is_channels_last(t, o->weight);
}

// ---- the call

static const px_operand *result_of(const conv *t) {
  const conv_operands *o = &t->operands;
  return t->mode == 'f' ? o->out : t->mode == 'i' ? o->in : o->weight;
}
// An operand's elements: as stored, or as a row-major array of the compute dtype.
static void *array_of(const conv *t, px__dense *d, const px_operand *o, bool stored) {
  if (stored) return o->data;
  return o == result_of(t) ? px__dense_out(d, o, t->dtype) : px__dense_in(d, o, t->dtype);
}
static bool open_arrays(conv *t, px__dense *d) {
  const conv_operands *o = &t->operands;
  void *in = array_of(t, d, o->in, t->channels_last);
  void *out = array_of(t, d, o->out, t->channels_last);
  void *weight = array_of(t, d, o->weight, t->weight_channels_last);
  t->in = in, t->grad = out, t->weight = weight;
  t->out = t->mode == 'f' ? out : t->mode == 'i' ? in : weight;
  if (o->bias) t->bias = px__dense_in(d, o->bias, t->dtype);
  return !d->failed;
}
// Sums of no terms.
static void clear(conv *t, px__dense *d) {
  const px_operand *o = result_of(t);
  if (!open_arrays(t, d)) return;
  px__cpu_clear(t->out, (size_t)px_operand_numel(o) * px_dtype_size((px_dtype)t->dtype));
}
static void run_methods(conv *t, px__dense *d) {
  for (int i = cheapest(t, 0);; i = cheapest(t, i + 1)) {
    if (!methods[i]->reads_stored && !t->out && !open_arrays(t, d)) return;
    if (methods[i]->run(t)) return;
  }
}
static px_status convolve(const px_launch *l, char mode, conv_operands operands, const steps *by) {
  px__dense d = {.launch = l};
  conv t = {.launch = l, .mode = mode, .operands = operands};
  set_sizes(&t, by);
  t.dtype = compute_dtype(&t);
  set_layouts(&t);
  if (!px_operand_numel(result_of(&t))) return PX_OK;
  if (px_operand_numel(operands.out))
    run_methods(&t, &d);
  else
    clear(&t, &d);
  if (t.failed) px_kernel_fault(l, PX_FAULT_NOMEM, (int64_t)1 << 20, 0, 0);
  px__dense_close(&d);
  return PX_OK;
}

#define STEPS(args) \
  &(steps) { &(args)->stride, &(args)->padding, &(args)->dilation, (args)->groups }

PX_KERNEL(conv2d) {
  conv_operands o = {args->input, args->weight, args->bias, args->out};
  return convolve(l, 'f', o, STEPS(args));
}
PX_KERNEL(conv3d_forward) {
  conv_operands o = {args->input, args->weight, args->bias, args->out};
  return convolve(l, 'f', o, STEPS(args));
}
PX_KERNEL(conv2d_backward_input) {
  conv_operands o = {args->out, args->weight, NULL, args->grad_output};
  return convolve(l, 'i', o, STEPS(args));
}
PX_KERNEL(conv3d_backward_input) {
  conv_operands o = {args->out, args->weight, NULL, args->grad_output};
  return convolve(l, 'i', o, STEPS(args));
}
PX_KERNEL(conv2d_backward_weight) {
  conv_operands o = {args->input, args->out, NULL, args->grad_output};
  return convolve(l, 'w', o, STEPS(args));
}
PX_KERNEL(conv3d_backward_weight) {
  conv_operands o = {args->input, args->out, NULL, args->grad_output};
  return convolve(l, 'w', o, STEPS(args));
}
