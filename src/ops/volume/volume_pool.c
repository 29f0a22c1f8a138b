// SPDX-License-Identifier: Apache-2.0
// Run functions of 3-D pooling by two 2-D pools: over the planes and then over the depth with each
// plane as one row. Maxima, sums and window sizes equal those of a direct 3-D pool. Adaptive max
// pooling reduces one dimension at a time with tables of window indices.
#include "hidden/conv.h"
#include "hidden/volume.h"
#include "ops/conv/conv_impl.h"
#include "phlox/ops/arithmetic.h"
#include "phlox/ops/conv.h"
#include "phlox/ops/copy.h"
#include "phlox/ops/factory.h"
#include "phlox/ops/index.h"
#include "phlox/ops/reduce.h"
#include "phlox/ops/view.h"
#include "phlox/ops/volume.h"
#include "run_functions/volume.h"

#include <stdio.h>

#define LL(x) ((long long)(x))
#define LIST(list) (list).v.ints, (list).n
enum { DIMS = 3 };

// ---- volumes as images: planes, and depths by the elements of a plane

// [.., C, D, H, W] as [.., C * D, H, W].
static px_status as_planes(px_tensor **out, const px_tensor *volume) {
  return px_flatten(out, volume, -4, -3);
}
// [.., C * D, H, W] as [.., C, D, H * W].
static px_status as_depths(px_tensor **out, const px_tensor *planes, int64_t channels) {
  const int64_t *s = planes->sizes + planes->ndim - 3;
  int64_t sizes[4] = {planes->sizes[0], channels, channels ? s[0] / channels : 0,
                      px__product(s[1], s[2])};
  int from = planes->ndim == 3;
  return px_reshape(out, planes, sizes + from, 4 - from);
}
// [.., C, D, H * W] as a volume whose last three sizes are `size`.
static px_status as_volume(px_tensor **out, const px_tensor *depths, const int64_t *size) {
  int64_t sizes[5] = {depths->sizes[0], depths->sizes[depths->ndim - 3], size[0], size[1], size[2]};
  int from = depths->ndim == 3;
  return px_reshape(out, depths, sizes + from, 5 - from);
}

// The parameters of the two 2-D pools.
typedef struct pool_lists {
  int64_t plane[2], depth[2];
} pool_lists;
static pool_lists pool_lists_of(px_value list, int64_t second) {
  return (pool_lists){{px__int_at(list, 1), px__int_at(list, 2)}, {px__int_at(list, 0), second}};
}

// The parameters of a pool.
typedef struct window {
  px_value kernel, stride, padding, dilation;
  bool ceiling, means;
} window;
static int64_t outputs(const window *w, int k, int64_t size) {
  px_value strides = w->stride.n ? w->stride : w->kernel;
  int64_t pad = px__int_at(w->padding, k), step = px__int_at(strides, k);
  int64_t gap = w->dilation.n ? px__int_at(w->dilation, k) : 1;
  return px__window_outputs(size, px__int_at(w->kernel, k), step, pad, gap, w->ceiling);
}
static px_status check_window(const window *w) {
  const px_value lists[] = {w->kernel, w->stride, w->padding, w->dilation};
  px_value strides = w->stride.n ? w->stride : w->kernel;
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < lists[i].n; k++)
      PX_CHECK(lists[i].v.ints[k] == (int)lists[i].v.ints[k], PX_RUNTIME, "integer out of range");
  for (int k = 0; k < DIMS; k++) {
    int64_t pad = px__int_at(w->padding, k), kernel = px__int_at(w->kernel, k);
    PX_CHECK(px__int_at(strides, k) != 0, PX_RUNTIME, "stride should not be zero");
    PX_CHECK(px__int_at(strides, k) > 0, PX_RUNTIME,
             "stride should be greater than zero, but got dT: %lld dH: %lld dW: %lld",
             LL(px__int_at(strides, 0)), LL(px__int_at(strides, 1)), LL(px__int_at(strides, 2)));
    PX_CHECK(kernel > 0, PX_RUNTIME,
             "kernel size should be greater than zero, but got kT: %lld kH: %lld kW: %lld",
             LL(px__int_at(w->kernel, 0)), LL(px__int_at(w->kernel, 1)),
             LL(px__int_at(w->kernel, 2)));
    PX_CHECK(pad >= 0, PX_RUNTIME, "pad must be non-negative, but got pad: %lld", LL(pad));
    PX_CHECK(pad <= kernel / 2, PX_RUNTIME,
             "pad should be at most half of effective kernel size, but got pad=%lld, "
             "kernel_size=%lld and dilation=%lld",
             LL(pad), LL(kernel), LL(w->dilation.n ? px__int_at(w->dilation, k) : 1));
  }
  return PX_OK;
}
// Checks that the dimensions from `first` on are not empty.
static px_status check_volume(const char *name, int ndim, const int64_t *sizes, int first) {
  char text[128];
  for (int d = first; d < ndim; d++)
    PX_CHECK(sizes[d] > 0, PX_RUNTIME,
             "%s(): Expected input to have non-zero size for non-batch dimensions, but input has "
             "sizes %s with dimension %d being empty",
             name, px__sizes_text(text, sizeof text, ndim, sizes), d);
  return PX_OK;
}
static px_status pool_sizes(int64_t *size, const char *name, const window *w, int ndim,
                            const int64_t *sizes) {
  const int64_t *s = sizes + ndim - DIMS;
  PX_TRY(check_window(w));
  PX_TRY(check_volume(name, ndim, sizes, ndim - DIMS - 1));
  for (int k = 0; k < DIMS; k++) {
    PX_CHECK(s[k] <= INT64_MAX / 4, PX_RUNTIME, "integer out of range");
    size[k] = outputs(w, k, s[k]);
  }
  bool fits = size[0] > 0 && size[1] > 0 && size[2] > 0;
  PX_CHECK(fits || !w->means, PX_RUNTIME,
           "input image (T: %lld H: %lld W: %lld) smaller than kernel size (kT: %lld kH: %lld kW: "
           "%lld)",
           LL(s[0]), LL(s[1]), LL(s[2]), LL(px__int_at(w->kernel, 0)), LL(px__int_at(w->kernel, 1)),
           LL(px__int_at(w->kernel, 2)));
  PX_CHECK(fits, PX_RUNTIME,
           "Given input size: (%lldx%lldx%lldx%lld). Calculated output size: "
           "(%lldx%lldx%lldx%lld). Output size is too small",
           LL(s[-1]), LL(s[0]), LL(s[1]), LL(s[2]), LL(s[-1]), LL(size[0]), LL(size[1]),
           LL(size[2]));
  return PX_OK;
}

// ---- maxima

// Indices of maxima in the volume. `inner` are the indices of the maxima over planes in their
// plane, `outer` the indices of the maxima over depths in [D, H * W]. `plane` is the number of
// elements of an input plane, `row` of a pooled plane.
static px_status volume_indices(px_tensor **out, const px_tensor *inner, const px_tensor *outer,
                                int64_t plane, int64_t row) {
  PX_SCOPED(px_tensor) from = NULL;
  PX_SCOPED(px_tensor) at = NULL;
  PX_SCOPED(px_tensor) plane_index = NULL;
  PX_SCOPED(px_tensor) depth = NULL;
  PX_SCOPED(px_tensor) base = NULL;
  PX_SCOPED(px_tensor) sum = NULL;
  PX_TRY(px_flatten(&from, inner, -2, -1));
  PX_TRY(px_flatten(&at, outer, -2, -1));
  PX_TRY(px_gather(&plane_index, from, -1, at, false));
  PX_TRY(px_floor_divide_scalar(&depth, at, px_int(row)));
  PX_TRY(px_mul_scalar(&base, depth, px_int(plane)));
  PX_TRY(px_add(&sum, plane_index, base, px_int(1)));
  return px_reshape(out, sum, outer->sizes, outer->ndim);
}

PX_RUN(max_pool3d_with_indices) {
  const px_tensor *x = args->self;
  const int64_t *s = x->sizes + x->ndim - DIMS;
  px_value strides = args->stride.n ? args->stride : args->kernel_size;
  window w = {args->kernel_size, args->stride,    args->padding,
              args->dilation,    args->ceil_mode, false};
  int64_t size[DIMS];
  PX_TRY(pool_sizes(size, "max_pool3d_with_indices_out_cpu_template", &w, x->ndim, x->sizes));
  pool_lists kernel = pool_lists_of(args->kernel_size, 1), stride = pool_lists_of(strides, 1);
  pool_lists padding = pool_lists_of(args->padding, 0), dilation = pool_lists_of(args->dilation, 1);
  PX_SCOPED(px_tensor) planes = NULL;
  PX_SCOPED(px_tensor) maxima = NULL;
  PX_SCOPED(px_tensor) inner = NULL;
  PX_SCOPED(px_tensor) depths = NULL;
  PX_SCOPED(px_tensor) inner_depths = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) outer = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  PX_TRY(as_planes(&planes, x));
  PX_TRY(px_max_pool2d_with_indices(&maxima, &inner, planes, kernel.plane, 2, stride.plane, 2,
                                    padding.plane, 2, dilation.plane, 2, args->ceil_mode));
  PX_TRY(as_depths(&depths, maxima, s[-1]));
  PX_TRY(as_depths(&inner_depths, inner, s[-1]));
  PX_TRY(px_max_pool2d_with_indices(&made, &outer, depths, kernel.depth, 2, stride.depth, 2,
                                    padding.depth, 2, dilation.depth, 2, args->ceil_mode));
  PX_TRY(volume_indices(&index, inner_depths, outer, px__product(s[1], s[2]),
                        px__product(size[1], size[2])));
  PX_TRY(as_volume(&call->results[0], made, size));
  return as_volume(&call->results[1], index, size);
}
PX_RUN(max_pool3d) {
  PX_SCOPED(px_tensor) indices = NULL;
  return px_max_pool3d_with_indices(&call->results[0], &indices, args->self,
                                    LIST(args->kernel_size), LIST(args->stride),
                                    LIST(args->padding), LIST(args->dilation), args->ceil_mode);
}
// The planes of a volume stacked to one image: flat indices do not change.
PX_RUN(max_volume_backward) {
  const int64_t *s = args->input_size.v.ints + args->input_size.n - DIMS;
  const int64_t *lead = args->input_size.v.ints;
  int from = args->input_size.n == 4;
  int64_t sizes[4] = {lead[0], s[-1], px__product(s[0], s[1]), s[2]};
  PX_SCOPED(px_tensor) grad = NULL;
  PX_SCOPED(px_tensor) indices = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(px_flatten(&grad, args->grad_output, -3, -2));
  PX_TRY(px_flatten(&indices, args->indices, -3, -2));
  PX_TRY(px_max_pool2d_backward(&made, grad, indices, sizes + from, 4 - from, NULL, 0, NULL, 0,
                                (int64_t[]){0}, 1, (int64_t[]){1}, 1));
  return px_reshape(&call->results[0], made, lead, args->input_size.n);
}

// A 1-D signal is an image of one row.
PX_RUN(max_pool1d_with_indices) {
  px_value strides = args->stride.n ? args->stride : args->kernel_size;
  const px_value lists[] = {args->kernel_size, strides, args->padding, args->dilation};
  int64_t row[4][2] = {{1, 0}, {1, 0}, {0, 0}, {1, 0}};
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  for (int i = 0; i < 4; i++) {
    PX_CHECK(lists[i].n == 1, PX_RUNTIME, "max_pool1d(): expected one integer for each parameter");
    row[i][1] = lists[i].v.ints[0];
  }
  PX_TRY(px_unsqueeze(&image, args->self, -2));
  PX_TRY(px_max_pool2d_with_indices(&made, &index, image, row[0], 2, row[1], 2, row[2], 2, row[3],
                                    2, args->ceil_mode));
  PX_TRY(px_squeeze_dim(&call->results[0], made, (int64_t[]){-2}, 1));
  return px_squeeze_dim(&call->results[1], index, (int64_t[]){-2}, 1);
}

// ---- means

// Integer means are rounded, so means of means would differ.
static px_status integer_means(px_call *call, const px__avg_pool3d_args *args, const window *w,
                               const int64_t *size) {
  px_tensor *x = args->self;
  px_value strides = w->stride.n ? w->stride : w->kernel;
  int64_t divisor = px__given(args->divisor_override) ? px_value_int(args->divisor_override) : 0;
  px__window_steps steps[DIMS];
  for (int k = 0; k < DIMS; k++)
    steps[k] = (px__window_steps){.size = x->sizes[x->ndim - DIMS + k],
                                  .outputs = size[k],
                                  .kernel = px__int_at(w->kernel, k),
                                  .stride = px__int_at(strides, k),
                                  .pad = px__int_at(w->padding, k)};
  return px__integer_means(&call->results[0], x, DIMS, steps, args->count_include_pad, divisor);
}
PX_RUN(avg_pool3d) {
  const px_tensor *x = args->self;
  px_value strides = args->stride.n ? args->stride : args->kernel_size;
  window w = {args->kernel_size, args->stride,    args->padding,
              PX_IS(NULL, 0),    args->ceil_mode, true};
  int64_t size[DIMS],
      one = 1,
      divisor = px__given(args->divisor_override) ? px_value_int(args->divisor_override) : 0;
  PX_TRY(pool_sizes(size, "avg_pool3d", &w, x->ndim, x->sizes));
  if (x->dtype == PX_INT64) return integer_means(call, args, &w, size);
  pool_lists kernel = pool_lists_of(args->kernel_size, 1), stride = pool_lists_of(strides, 1);
  pool_lists padding = pool_lists_of(args->padding, 0);
  PX_SCOPED(px_tensor) planes = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) depths = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(as_planes(&planes, x));
  PX_TRY(px_avg_pool2d(&means, planes, kernel.plane, 2, stride.plane, 2, padding.plane, 2,
                       args->ceil_mode, args->count_include_pad, divisor ? &one : NULL));
  PX_TRY(as_depths(&depths, means, x->sizes[x->ndim - 4]));
  PX_TRY(px_avg_pool2d(&made, depths, kernel.depth, 2, stride.depth, 2, padding.depth, 2,
                       args->ceil_mode, args->count_include_pad, divisor ? &divisor : NULL));
  return as_volume(&call->results[0], made, size);
}
// The input sizes of the two backward steps: of the pool over depths (as depths and as planes) and
// of the pool over planes. Without a batch they start at index 1.
typedef struct back_sizes {
  int64_t depths[4], means[4], planes[4];
  int from;
} back_sizes;
static back_sizes back_sizes_of(px_value input, const px_tensor *grad) {
  const int64_t *all = input.v.ints, *s = all + input.n - DIMS, *g = grad->sizes + input.n - DIMS;
  int64_t planes = px__product(s[-1], s[0]);
  return (back_sizes){.depths = {all[0], s[-1], s[0], px__product(g[1], g[2])},
                      .means = {all[0], planes, g[1], g[2]},
                      .planes = {all[0], planes, s[1], s[2]},
                      .from = input.n == 4};
}
PX_RUN(avg_pool3d_backward) {
  px_tensor *grad = args->grad_output;
  px_value strides = args->stride.n ? args->stride : args->kernel_size;
  int64_t one = 1,
          divisor = px__given(args->divisor_override) ? px_value_int(args->divisor_override) : 0;
  pool_lists kernel = pool_lists_of(args->kernel_size, 1), stride = pool_lists_of(strides, 1);
  pool_lists padding = pool_lists_of(args->padding, 0);
  back_sizes size = back_sizes_of(args->input_size, grad);
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) depths = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) planes = NULL;
  PX_TRY(px_flatten(&rows, grad, -2, -1));
  PX_TRY(px_avg_pool2d_backward(&depths, rows, size.depths + size.from, 4 - size.from, kernel.depth,
                                2, stride.depth, 2, padding.depth, 2, args->ceil_mode,
                                args->count_include_pad, divisor ? &divisor : NULL, NULL));
  PX_TRY(px_reshape(&means, depths, size.means + size.from, 4 - size.from));
  PX_TRY(px_avg_pool2d_backward(&planes, means, size.planes + size.from, 4 - size.from,
                                kernel.plane, 2, stride.plane, 2, padding.plane, 2, args->ceil_mode,
                                args->count_include_pad, divisor ? &one : NULL, NULL));
  return px_reshape(&call->results[0], planes, LIST(args->input_size));
}

PX_RUN(adaptive_avg_pool3d) {
  const px_tensor *x = args->self;
  int64_t size[DIMS];
  PX_TRY(check_volume("adaptive_avg_pool3d", x->ndim, x->sizes, 1));
  for (int k = 0; k < DIMS; k++) size[k] = px__int_at(args->output_size, k);
  if (!x->numel) {
    int64_t sizes[5];
    px__sizes_copy(sizes, x->sizes, x->ndim);
    memcpy(sizes + x->ndim - DIMS, size, sizeof size);
    return px__zeros_like_sized(&call->results[0], x, x->ndim, sizes);
  }
  PX_SCOPED(px_tensor) planes = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) depths = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_TRY(as_planes(&planes, x));
  PX_TRY(px_adaptive_avg_pool2d(&means, planes, size + 1, 2));
  PX_TRY(as_depths(&depths, means, x->sizes[x->ndim - 4]));
  if (size[1] && size[2])
    PX_TRY(px_adaptive_avg_pool2d(&made, depths,
                                  (int64_t[]){size[0], px__product(size[1], size[2])}, 2));
  else
    PX_TRY(px_narrow(&made, depths, -2, 0, 0));
  return as_volume(&call->results[0], made, size);
}
PX_RUN(adaptive_avg_pool3d_backward) {
  px_tensor *grad = args->grad_output;
  back_sizes size = back_sizes_of(args->input_size, grad);
  PX_SCOPED(px_tensor) rows = NULL;
  PX_SCOPED(px_tensor) depths = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) planes = NULL;
  if (!grad->numel) return px__zeros_of(&call->results[0], grad, args->input_size);
  PX_TRY(px_flatten(&rows, grad, -2, -1));
  PX_TRY(
      px_adaptive_avg_pool2d_backward(&depths, rows, size.depths + size.from, 4 - size.from, NULL));
  PX_TRY(px_reshape(&means, depths, size.means + size.from, 4 - size.from));
  PX_TRY(px_adaptive_avg_pool2d_backward(&planes, means, size.planes + size.from, 4 - size.from,
                                         NULL));
  return px_reshape(&call->results[0], planes, LIST(args->input_size));
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

static px_status adaptive_max_pool(px_call *call, px_tensor *x, px_value output_size, int dims,
                                   const char *name) {
  int64_t sizes[PX_MAX_DIMS];
  char text[128];
  bool none = false;
  PX_TRY(check_volume(name, x->ndim, x->sizes, 1));
  PX_CHECK(px_dtype_is_float((px_dtype)x->dtype), PX_UNIMPLEMENTED,
           "\"%s\" not implemented for '%s'", dims == 3 ? "adaptive_max_pool3d_cpu" : name,
           px_dtype_class((px_dtype)x->dtype));
  memcpy(sizes, x->sizes, (size_t)x->ndim * sizeof *sizes);
  px__window_steps steps[DIMS];
  for (int k = 0; k < dims; k++) {
    int64_t *size = &sizes[x->ndim - dims + k];
    steps[k] = (px__window_steps){.size = *size, .outputs = px__int_at(output_size, k)};
    *size = steps[k].outputs;
  }
  for (int k = x->ndim - dims; k < x->ndim; k++) {
    PX_CHECK(sizes[k] >= 0, PX_RUNTIME, "Trying to create tensor with negative dimension %lld: %s",
             LL(sizes[k]), px__sizes_text(text, sizeof text, x->ndim, sizes));
    none |= sizes[k] == 0;
  }
  if (none || !x->numel) {
    PX_TRY(px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype));
    return px__call_result(call, 1, x->ndim, sizes, PX_INT64);
  }
  return px__max_over_windows(&call->results[0], &call->results[1], x, dims, adaptive_table, steps);
}
PX_RUN(adaptive_max_pool2d_with_indices) {
  return adaptive_max_pool(call, args->self, args->output_size, 2, "adaptive_max_pool2d");
}
PX_RUN(adaptive_max_pool3d_with_indices) {
  return adaptive_max_pool(call, args->self, args->output_size, 3, "adaptive_max_pool3d");
}
PX_RUN(adaptive_max_pool1d_with_indices) {
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) made = NULL;
  PX_SCOPED(px_tensor) index = NULL;
  PX_TRY(px_unsqueeze(&image, args->self, -2));
  PX_TRY(px_adaptive_max_pool2d_with_indices(&made, &index, image,
                                             (int64_t[]){1, args->output_size.v.ints[0]}, 2));
  PX_TRY(px_squeeze_dim(&call->results[0], made, (int64_t[]){-2}, 1));
  return px_squeeze_dim(&call->results[1], index, (int64_t[]){-2}, 1);
}
PX_RUN(adaptive_max_pool1d) {
  PX_SCOPED(px_tensor) indices = NULL;
  return px_adaptive_max_pool1d_with_indices(&call->results[0], &indices, args->self,
                                             LIST(args->output_size));
}
PX_RUN(adaptive_max_pool2d) {
  PX_SCOPED(px_tensor) indices = NULL;
  return px_adaptive_max_pool2d_with_indices(&call->results[0], &indices, args->self,
                                             LIST(args->output_size));
}
PX_RUN(adaptive_max_pool3d) {
  PX_SCOPED(px_tensor) indices = NULL;
  return px_adaptive_max_pool3d_with_indices(&call->results[0], &indices, args->self,
                                             LIST(args->output_size));
}

// ---- unpooling

static const char *tuple_text(char text[128], int n, const int64_t *items) {
  px__sizes_text(text, 128, n, items);
  if (n != 1) *text = '(', text[strlen(text) - 1] = ')';
  if (n == 1) snprintf(text, 128, "(%lld,)", LL(items[0]));
  return text;
}
// True if sums of a few such numbers cannot overflow.
static bool is_safe(int64_t n) { return -INT64_MAX / 8 <= n && n <= INT64_MAX / 8; }
// The default unpooled sizes, or output_size if it differs by less than a stride.
static px_status unpool_sizes(int64_t *size, const px__max_unpool_args *args, int dims) {
  px_value requested = args->output_size,
           strides = px__given(args->stride) && args->stride.n ? args->stride : args->kernel_size;
  const int64_t *s = args->input->sizes + args->input->ndim - dims;
  char text[128];
  bool given = px__given(requested);
  int skipped = given && requested.n == dims + 2 ? 2 : 0;
  PX_CHECK(!given || requested.n == dims || skipped, PX_VALUE,
           "output_size should be a sequence containing %d or %d elements, but it has a length of "
           "'%d'",
           dims, dims + 2, requested.n);
  for (int k = 0; k < dims; k++) {
    int64_t step = px__int_at(strides, k), kernel = px__int_at(args->kernel_size, k);
    int64_t pad = px__int_at(args->padding, k), span;
    PX_CHECK(!px__mul_size(s[k] - 1, step, &span) && is_safe(span) && is_safe(step) &&
                 is_safe(kernel) && is_safe(pad),
             PX_RUNTIME, "integer out of range");
    int64_t default_size = span + kernel - 2 * pad;
    size[k] = given ? requested.v.ints[skipped + k] : default_size;
    PX_CHECK(!given || (default_size - step < size[k] && size[k] < default_size + step), PX_VALUE,
             "invalid output_size \"%s\" (dim %d must be between %lld and %lld)",
             tuple_text(text, requested.n, requested.v.ints), k, LL(default_size - step),
             LL(default_size + step));
    PX_CHECK(size[k] >= 0 && size[k] <= INT32_MAX, PX_RUNTIME,
             "max_unpool: output size %lld is out of range", LL(size[k]));
  }
  return PX_OK;
}
// Checks indices on the CPU. On devices the kernel reports errors.
static px_status check_indices(const px_tensor *indices, int64_t count, const int64_t *size,
                               int dims) {
  char text[128] = "";
  if (px__tensor_device(indices).type != PX_CPU) return PX_OK;
  PX_SCOPED(px_tensor) flat = NULL;
  PX_TRY(px_contiguous(&flat, px__innermost_physical(indices)));
  const int64_t *at;
  PX_TRY(px__tensor_read(&at, flat));
  for (int k = 0; k < dims; k++)
    snprintf(text + strlen(text), sizeof text - strlen(text), k ? "x%lld" : "%lld", LL(size[k]));
  for (int64_t i = 0; i < flat->numel; i++)
    PX_CHECK(at[i] >= 0 && at[i] < count, PX_RUNTIME,
             "Found an invalid max index: %lld (output volumes are of size %s)", LL(at[i]), text);
  return PX_OK;
}
PX_RUN(max_unpool) {
  px_tensor *x = args->input;
  int dims = call->op->name[strlen("max_unpool")] - '0', lead = x->ndim - dims;
  int64_t size[DIMS], count = 1, sizes[PX_MAX_DIMS];
  PX_SCOPED(px_tensor) none = NULL;
  PX_SCOPED(px_tensor) values = NULL;
  PX_SCOPED(px_tensor) outputs = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  for (int i = 2; i < 5; i++) {
    px_value list = i == 2 ? args->kernel_size : i == 3 ? args->stride : args->padding;
    PX_CHECK(list.kind != PX_ARG_INTS || list.n == 1 || list.n == dims || (i == 3 && !list.n),
             PX_RUNTIME, "%s: expected kernel_size, stride and padding of 1 or %d integers",
             call->op->name, dims);
  }
  for (int k = 0; dims == DIMS && args->stride.n && k < DIMS; k++)
    PX_CHECK(px__int_at(args->stride, k) > 0, PX_RUNTIME,
             "strides should be greater than zero, but got stride: [%lld, %lld, %lld]",
             LL(px__int_at(args->stride, 0)), LL(px__int_at(args->stride, 1)),
             LL(px__int_at(args->stride, 2)));
  PX_TRY(unpool_sizes(size, args, dims));
  for (int k = 0; k < dims; k++)
    PX_CHECK(!px__mul_size(count, size[k], &count), PX_RUNTIME,
             "numel: integer multiplication overflow");
  memcpy(sizes, x->sizes, (size_t)lead * sizeof *sizes);
  sizes[lead] = count;
  PX_TRY(check_indices(args->indices, count, size, dims));
  PX_TRY(px__zeros_like_sized(&none, x, lead + 1, sizes));
  PX_TRY(px_flatten(&values, x, lead, -1));
  PX_TRY(px_flatten(&outputs, args->indices, lead, -1));
  PX_TRY(px_scatter(&result, none, -1, outputs, values));
  memcpy(sizes + lead, size, (size_t)dims * sizeof *sizes);
  return px_reshape(&call->results[0], result, sizes, x->ndim);
}

// ---- norms of windows

// The norm: the root of the window size times the mean of the powers.
PX_RUN(lp_pool) {
  int dims = call->op->name[strlen("lp_pool")] - '0';
  px_value strides = px__given(args->stride) ? args->stride : PX_IS(NULL, 0);
  int64_t none = 0, count = 1;
  px_tensor *x = args->input;
  PX_CHECK(args->kernel_size.n == 1 || args->kernel_size.n == dims, PX_RUNTIME,
           "%s: kernel_size must either be a single int, or have %d", call->op->name, dims);
  for (int k = 0; k < dims; k++)
    PX_CHECK(!__builtin_mul_overflow(count, px__int_at(args->kernel_size, k), &count), PX_RUNTIME,
             "integer out of range");
  PX_SCOPED(px_tensor) powers = NULL;
  PX_SCOPED(px_tensor) means = NULL;
  PX_SCOPED(px_tensor) sums = NULL;
  PX_SCOPED(px_tensor) zero = NULL;
  PX_SCOPED(px_tensor) others = NULL;
  PX_SCOPED(px_tensor) roots = NULL;
  PX_TRY(px_pow_scalar(&powers, x, px_float(args->norm_type)));
  if (dims == 1)
    PX_TRY(px_avg_pool1d(&means, powers, LIST(args->kernel_size), LIST(strides), &none, 1,
                         args->ceil_mode, true));
  else
    PX_TRY((dims == 2 ? px_avg_pool2d : px_avg_pool3d)(&means, powers, LIST(args->kernel_size),
                                                       LIST(strides), &none, 1, args->ceil_mode,
                                                       true, NULL));
  PX_TRY(px_mul_scalar(&sums, means, px_int(count)));
  // The root has no finite slope at 0: the gradient of such windows is 0.
  PX_TRY(px_eq_scalar(&zero, sums, px_int(0)));
  PX_TRY(px_masked_fill(&others, sums, zero, px_int(1)));
  PX_TRY(px_pow_scalar(&roots, others, px_float(1 / args->norm_type)));
  return px_masked_fill(&call->results[0], roots, zero, px_int(0));
}
