// SPDX-License-Identifier: Apache-2.0
// Run functions of pools of images, and checks of those of signals and volumes, which are formulas
// of pools of images (ops/conv.op, ops/volume.op). Adaptive max pools reduce one dimension at a
// time with tables of window indices.
#include "formulas.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/copy.h"
#include "run_functions/conv.h"
#include "run_functions/volume.h"

#include <stdio.h>

#define LL(x) ((long long)(x))
enum { DIMS = 3 };

// ---- windows

// A pool over the last `dims` dimensions. An empty stride is the kernel's size, and an empty
// dilation 1.
typedef struct pool {
  int dims;
  px_value kernel, stride, padding, dilation;
  bool ceiling;
} pool;
static int64_t step_at(const pool *p, int k) {
  return px__int_at(p->stride.n ? p->stride : p->kernel, k);
}
static int64_t gap_at(const pool *p, int k) {
  return p->dilation.n ? px__int_at(p->dilation, k) : 1;
}
// Text of a list by dimension: " kT: 2 kH: 3 kW: 3".
static const char *by_letter(char text[128], const char *name, int dims, px_value list) {
  size_t used = 0;
  for (int k = 0; k < dims; k++)
    used += (size_t)snprintf(text + used, 128 - used, " %s%c: %lld", name, "THW"[DIMS - dims + k],
                             LL(px__int_at(list, k)));
  return text;
}
static px_status check_dim(const pool *p, int k) {
  char text[128];
  int64_t kernel = px__int_at(p->kernel, k), pad = px__int_at(p->padding, k);
  PX_CHECK(step_at(p, k) != 0, PX_RUNTIME, "stride should not be zero");
  PX_CHECK(kernel > 0, PX_RUNTIME, "kernel size should be greater than zero, but got%s",
           by_letter(text, "k", p->dims, p->kernel));
  PX_CHECK(step_at(p, k) > 0, PX_RUNTIME, "stride should be greater than zero, but got%s",
           by_letter(text, "d", p->dims, p->stride));
  PX_CHECK(pad >= 0, PX_RUNTIME, "pad must be non-negative, but got pad: %lld", LL(pad));
  PX_CHECK(pad <= kernel / 2, PX_RUNTIME,
           "pad should be at most half of effective kernel size, but got pad=%lld, "
           "kernel_size=%lld and dilation=%lld",
           LL(pad), LL(kernel), LL(gap_at(p, k)));
  return PX_OK;
}
static px_status check_window(const pool *p) {
  const px_value lists[] = {p->kernel, p->stride, p->padding, p->dilation};
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < lists[i].n; k++)
      PX_CHECK(lists[i].v.ints[k] == (int)lists[i].v.ints[k], PX_RUNTIME, "integer out of range");
  for (int k = 0; k < p->dims; k++) PX_TRY(check_dim(p, k));
  return PX_OK;
}

// ---- sizes

// Batches may be empty, images may not.
static px_status check_image(px_value x) {
  char text[128];
  for (int i = x.n - 3; i < x.n; i++)
    PX_CHECK(x.v.ints[i] > 0, PX_RUNTIME,
             "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but "
             "got:%s",
             px__sizes_text(text, sizeof text, x.n, x.v.ints));
  return PX_OK;
}
// Checks that the dimensions from `first` on are not empty.
static px_status check_volume(const char *name, px_value x, int first) {
  char text[128];
  for (int d = first; d < x.n; d++)
    PX_CHECK(x.v.ints[d] > 0, PX_RUNTIME,
             "%s(): Expected input to have non-zero size for non-batch dimensions, but input has "
             "sizes %s with dimension %d being empty",
             name, px__sizes_text(text, sizeof text, x.n, x.v.ints), d);
  return PX_OK;
}
// Sizes of the result for an input of sizes x.
static px_status set_sizes(const pool *p, px_value x, int64_t *sizes) {
  for (int i = 0; i < x.n; i++) sizes[i] = x.v.ints[i];
  for (int k = 0; k < p->dims; k++) {
    int64_t *size = &sizes[x.n - p->dims + k];
    PX_CHECK(*size <= INT64_MAX / 4, PX_RUNTIME, "integer out of range");
    *size = px__window_outputs(*size, px__int_at(p->kernel, k), step_at(p, k),
                               px__int_at(p->padding, k), gap_at(p, k), p->ceiling);
  }
  return PX_OK;
}
static bool has_outputs(const pool *p, px_value x, const int64_t *sizes) {
  bool any = true;
  for (int k = 1; k <= p->dims; k++) any &= sizes[x.n - k] >= 1;
  return any;
}
// "3x5x5": sizes from the channels on.
static const char *from_channels(char text[96], const pool *p, int ndim, const int64_t *sizes) {
  size_t used = 0;
  for (int i = ndim - p->dims - 1; i < ndim; i++)
    used += (size_t)snprintf(text + used, 96 - used, used ? "x%lld" : "%lld", LL(sizes[i]));
  return text;
}
static px_status check_outputs(const pool *p, px_value x, const int64_t *sizes) {
  char in[96], out[96];
  PX_CHECK(has_outputs(p, x, sizes), PX_RUNTIME,
           "Given input size: (%s). Calculated output size: (%s). Output size is too small",
           from_channels(in, p, x.n, x.v.ints), from_channels(out, p, x.n, sizes));
  return PX_OK;
}
static px_value sizes_of(const px_tensor *t) { return PX_IS(t->sizes, t->ndim); }
static px_status image_sizes(const pool *p, px_value x, int64_t *sizes) {
  PX_TRY(check_window(p));
  PX_TRY(check_image(x));
  PX_TRY(set_sizes(p, x, sizes));
  return check_outputs(p, x, sizes);
}

// ---- integers

static void steps_of(px__window_steps *s, const pool *p, const px_tensor *x, const int64_t *sizes) {
  for (int k = 0; k < p->dims; k++)
    s[k] = (px__window_steps){.size = x->sizes[x->ndim - p->dims + k],
                              .outputs = sizes[x->ndim - p->dims + k],
                              .kernel = px__int_at(p->kernel, k),
                              .stride = step_at(p, k),
                              .pad = px__int_at(p->padding, k),
                              .dilation = gap_at(p, k)};
}
// Copies to the memory format of x, like the kernel's results.
static px_status like_format(px_tensor **out, const px_tensor *made, const px_tensor *x) {
  return px_clone(out, made, px_memory_format_name(px_tensor_suggest_format(x)));
}
static px_status maxima_of_integers(px_call *call, px_tensor *x, const pool *p,
                                    const int64_t *sizes) {
  px__window_steps steps[DIMS];
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) where = NULL;
  call->composed = true;
  steps_of(steps, p, x, sizes);
  PX_TRY(px__integer_maxima(&made, &where, x, p->dims, steps));
  PX_TRY(like_format(&call->results[0], made, x));
  return like_format(&call->results[1], where, x);
}
static px_status means_of_integers(px_tensor **out, px_tensor *x, const pool *p,
                                   const int64_t *sizes, bool count_pad, px_value divisor) {
  px__window_steps steps[DIMS];
  steps_of(steps, p, x, sizes);
  return px__integer_means(out, x, p->dims, steps, count_pad,
                           px__given(divisor) ? px_value_int(divisor) : 0);
}

// ---- maxima

PX_RUN(max_pool2d_with_indices) {
  px_tensor *x = args->self;
  int64_t sizes[PX_MAX_DIMS];
  pool p = {2, args->kernel_size, args->stride, args->padding, args->dilation, args->ceil_mode};
  PX_TRY(image_sizes(&p, sizes_of(x), sizes));
  if (px__has_integers(x) && x->numel) return maxima_of_integers(call, x, &p, sizes);
  call->composed = px__has_integers(x);
  PX_TRY(px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype));
  return px__call_result(call, 1, x->ndim, sizes, PX_INT64);
}
PX_RUN(max_pool3d) {
  int64_t sizes[PX_MAX_DIMS];
  px_value x = sizes_of(args->self);
  pool p = {3, args->kernel_size, args->stride, args->padding, args->dilation, args->ceil_mode};
  PX_TRY(check_window(&p));
  PX_TRY(check_volume("max_pool3d_with_indices_out_cpu_template", x, x.n - DIMS - 1));
  PX_TRY(set_sizes(&p, x, sizes));
  return check_outputs(&p, x, sizes);
}
// Checks that lists have one number, for a signal's only dimension. A stride may be omitted.
static px_status check_lone(const px_call *call) {
  for (int i = 1; i < call->op->param_count; i++) {
    const px_param *p = &call->op->params[i];
    px_value list = call->args[i];
    bool left_out = p->has_default && p->fallback.n == 0 && list.n == 0;
    PX_CHECK(list.kind != PX_ARG_INTS || list.n == 1 || left_out, PX_RUNTIME,
             "expected %s to be a single integer value or a list of 1 values to match the "
             "convolution dimensions, but got %s=%s",
             p->name, p->name, px__sizes_text((char[128]){0}, 128, list.n, list.v.ints));
  }
  return PX_OK;
}
PX_RUN(signal_lists) {
  (void)args;
  return check_lone(call);
}
// PyTorch's texts for signals.
PX_RUN(max_pool1d) {
  PX_TRY(check_lone(call));
  pool p = {1, args->kernel_size, args->stride, args->padding, args->dilation, args->ceil_mode};
  int64_t kernel = px__int_at(p.kernel, 0), pad = px__int_at(p.padding, 0), span;
  int64_t gap = gap_at(&p, 0), size = args->self->sizes[args->self->ndim - 1];
  PX_CHECK(pad <= kernel / 2, PX_RUNTIME,
           "max_pool1d() padding should be at most half of kernel size, but got padding=%lld and "
           "kernel_size=%lld",
           LL(pad), LL(kernel));
  PX_CHECK(!__builtin_mul_overflow(kernel - 1, gap, &span), PX_RUNTIME,
           "effective kernel size overflows, but got kernel_size=%lld and dilation=%lld",
           LL(kernel), LL(gap));
  int64_t outputs = px__window_outputs(size, kernel, step_at(&p, 0), pad, gap, p.ceiling);
  PX_CHECK(outputs > 0, PX_RUNTIME, "max_pool1d() Invalid computed output size: %lld", LL(outputs));
  return PX_OK;
}

// ---- means

PX_RUN(avg_pool2d) {
  px_tensor *x = args->self;
  int64_t sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) made = NULL;
  pool p = {2, args->kernel_size, args->stride, args->padding, PX_IS(NULL, 0), args->ceil_mode};
  PX_TRY(image_sizes(&p, sizes_of(x), sizes));
  if (x->dtype != PX_INT64) return px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype);
  call->composed = true;
  PX_TRY(means_of_integers(&made, x, &p, sizes, args->count_include_pad, args->divisor_override));
  return like_format(&call->results[0], made, x);
}
PX_RUN(avg_pool2d_backward) {
  const px_tensor *grad = args->grad_output;
  px_value x = args->input_size;
  int64_t sizes[PX_MAX_DIMS];
  char have[128], want[128];
  pool p = {2, args->kernel_size, args->stride, args->padding, PX_IS(NULL, 0), args->ceil_mode};
  PX_TRY(image_sizes(&p, x, sizes));
  PX_CHECK(px__has_sizes(grad, x.n, sizes), PX_RUNTIME,
           "%s: expected a gradient of size %s, but got %s", call->op->name,
           px__sizes_text(want, sizeof want, x.n, sizes), px__size_text(have, sizeof have, grad));
  return PX_OK;
}
// Integer means are rounded, so means of means would differ.
PX_RUN(avg_pool3d) {
  px_value x = sizes_of(args->self);
  int64_t sizes[PX_MAX_DIMS];
  char in[128], kernel[128];
  pool p = {3, args->kernel_size, args->stride, args->padding, PX_IS(NULL, 0), args->ceil_mode};
  PX_TRY(check_window(&p));
  PX_TRY(check_volume("avg_pool3d", x, x.n - DIMS - 1));
  PX_TRY(set_sizes(&p, x, sizes));
  PX_CHECK(has_outputs(&p, x, sizes), PX_RUNTIME, "input image (%s) smaller than kernel size (%s)",
           by_letter(in, "", DIMS, PX_IS(x.v.ints + x.n - DIMS, DIMS)) + 1,
           by_letter(kernel, "k", DIMS, p.kernel) + 1);
  if (args->self->dtype == PX_INT64)
    return means_of_integers(&call->results[0], args->self, &p, sizes, args->count_include_pad,
                             args->divisor_override);
  return px__formula_volume_means(call->results, call->args);
}
PX_RUN(adaptive_avg_pool3d) {
  (void)call;
  return check_volume("adaptive_avg_pool3d", sizes_of(args->self), 1);
}

// ---- maxima of adaptive windows

// An index table [outputs, maximum window size] of a dimension. Short windows repeat their last
// index.
static px_status adaptive_table(px_tensor **out, const void *context, int k, const px_tensor *x) {
  const px__window_steps *s = (const px__window_steps *)context + k;
  int64_t from = s->size, to = s->outputs;
  int64_t max_size = from / to + (from % to ? 2 : 0);
  PX_SCOPED(px_tensor) table = NULL;
  PX_TRY(px_tensor_empty(&table, 2, (int64_t[]){to, max_size}, PX_INT64, px_cpu()));
  int64_t *at = px__tensor_at(table);
  for (int64_t i = 0; i < to; i++) {
    int64_t first = i * from / to, last = ((i + 1) * from + to - 1) / to - 1;
    for (int64_t n = 0; n < max_size; n++) *at++ = first + n < last ? first + n : last;
  }
  return px__tensor_to(out, table, PX_INT64, px__tensor_device(x));
}

// Sizes of the result; the windows of each dimension.
static px_status adaptive_sizes(int64_t *sizes, px__window_steps *steps, px_value x,
                                px_value output_size, int dims) {
  char text[128];
  for (int i = 0; i < x.n; i++) sizes[i] = x.v.ints[i];
  for (int k = 0; k < dims; k++) {
    int64_t *size = &sizes[x.n - dims + k];
    steps[k] = (px__window_steps){.size = *size, .outputs = px__int_at(output_size, k)};
    *size = steps[k].outputs;
  }
  for (int i = x.n - dims; i < x.n; i++)
    PX_CHECK(sizes[i] >= 0, PX_RUNTIME, "Trying to create tensor with negative dimension %lld: %s",
             LL(sizes[i]), px__sizes_text(text, sizeof text, x.n, sizes));
  return PX_OK;
}
PX_RUN(adaptive_max_pool) {
  px_tensor *x = args->self;
  int dims = px__op_dims(call->op);
  const char *name = dims == 3 ? "adaptive_max_pool3d" : "adaptive_max_pool2d";
  int64_t sizes[PX_MAX_DIMS];
  px__window_steps steps[DIMS];
  PX_TRY(check_volume(name, sizes_of(x), 1));
  PX_CHECK(px_dtype_is_float((px_dtype)x->dtype), PX_UNIMPLEMENTED,
           "\"%s%s\" not implemented for '%s'", name, dims == 3 ? "_cpu" : "",
           px_dtype_class((px_dtype)x->dtype));
  PX_TRY(adaptive_sizes(sizes, steps, sizes_of(x), args->output_size, dims));
  if (px__sizes_product(sizes, x->ndim) && x->numel)
    return px__max_over_windows(&call->results[0], &call->results[1], x, dims, adaptive_table,
                                steps);
  PX_TRY(px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype));
  return px__call_result(call, 1, x->ndim, sizes, PX_INT64);
}
