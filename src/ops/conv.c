// SPDX-License-Identifier: Apache-2.0
// Run functions of convolution and pooling: sizes of results, and PyTorch's texts for what does not
// fit.
#include "ops/run.h"

#define LL(x) ((long long)(x))

// What a window does along dimension k (0 rows, 1 columns): padding before and behind.
static int64_t pad_before(px_value p, int k) { return px__int_at(p, k); }
static int64_t pad_behind(px_value p, int k) {
  return p.n == 4 ? p.v.ints[2 + k] : px__int_at(p, k);
}

static px_status check_list(px_value v, const char *name, int64_t least, bool four) {
  PX_CHECK(v.n == 1 || v.n == 2 || (four && v.n == 4), PX_RUNTIME,
           "expected %s to be a single integer value or a list of 2 values to match the "
           "convolution dimensions, but got %d values",
           name, v.n);
  for (int i = 0; i < v.n; i++)
    PX_CHECK(v.v.ints[i] >= least, PX_RUNTIME, "%s %s is not supported",
             least ? "non-positive" : "negative", name);
  return PX_OK;
}

static px_status check_conv(const px_call *call, const px_tensor *x, const px_tensor *w,
                            const px_tensor *b) {
  int64_t groups = call->args[6].v.i;
  char ws[128], xs[128], name_x[48], name_w[48];
  px__size_text(ws, sizeof ws, w);
  px__size_text(xs, sizeof xs, x);
  PX_TRY(check_list(call->args[3], "stride", 1, false));
  PX_TRY(check_list(call->args[4], "padding", 0, true));
  PX_TRY(check_list(call->args[5], "dilation", 1, false));
  PX_CHECK(groups > 0, PX_RUNTIME, "non-positive groups is not supported");
  PX_CHECK(w->ndim == 4 && x->ndim == 4, PX_RUNTIME,
           "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: %s",
           xs);
  bool elsewhere = px__tensor_device(x).type == PX_CUDA && px__tensor_device(w).type == PX_CPU;
  PX_CHECK(x->dtype == w->dtype && !elsewhere, PX_RUNTIME,
           "Input type (%s) and weight type (%s) should be the same",
           px_tensor_type_name(x, name_x), px_tensor_type_name(w, name_w));
  PX_CHECK(!b || b->dtype == x->dtype, PX_RUNTIME,
           "Input type (%s) and bias type (%s) should be the same", px_tensor_type_name(x, name_x),
           px_tensor_type_name(b ? b : x, name_w));
  PX_CHECK(w->sizes[0] >= groups && w->sizes[0] % groups == 0, PX_RUNTIME,
           "Given groups=%lld, expected weight to be at least %lld at dimension 0 and divisible by "
           "groups, but got weight of size %s instead",
           LL(groups), LL(groups), ws);
  PX_CHECK(x->sizes[1] == w->sizes[1] * groups, PX_RUNTIME,
           "Given groups=%lld, weight of size %s, expected input%s to have %lld channels, but got "
           "%lld channels instead",
           LL(groups), ws, xs, LL(w->sizes[1] * groups), LL(x->sizes[1]));
  PX_CHECK(!b || (b->ndim == 1 && b->numel == w->sizes[0]), PX_RUNTIME,
           "Given weight of size %s, expected bias to be 1-dimensional with %lld elements, but got "
           "bias of size %s instead",
           ws, LL(w->sizes[0]), px__size_text(xs, sizeof xs, b ? b : w));
  return PX_OK;
}
static px_status conv_sizes(const px_call *call, const px_tensor *x, const px_tensor *w,
                            int64_t *sizes) {
  px_value stride = call->args[3], padding = call->args[4], dilation = call->args[5];
  sizes[0] = x->sizes[0], sizes[1] = w->sizes[0];
  int64_t padded[2], kernel[2];
  for (int k = 0; k < 2; k++) {
    padded[k] = x->sizes[2 + k] + pad_before(padding, k) + pad_behind(padding, k);
    kernel[k] = px__int_at(dilation, k) * (w->sizes[2 + k] - 1) + 1;
    sizes[2 + k] = (padded[k] - kernel[k]) / px__int_at(stride, k) + 1;
  }
  PX_CHECK(padded[0] >= kernel[0] && padded[1] >= kernel[1], PX_RUNTIME,
           "Calculated padded input size per channel: (%lld x %lld). Kernel size: (%lld x %lld). "
           "Kernel size can't be greater than actual input size",
           LL(padded[0]), LL(padded[1]), LL(kernel[0]), LL(kernel[1]));
  return PX_OK;
}
// An image without a batch becomes a batch of one for the call.
static px_status unbatched(px_call *call) {
  px_value stride = call->args[3], padding = call->args[4], dilation = call->args[5];
  PX_SCOPED(px_tensor) batch = NULL;
  PX_SCOPED(px_tensor) result = NULL;
  call->composed = true;
  PX_TRY(px_unsqueeze(&batch, px__arg_tensor(call, 0), 0));
  PX_TRY(px_conv2d(&result, batch, px__arg_tensor(call, 1), px__arg_tensor(call, 2), stride.v.ints,
                   stride.n, padding.v.ints, padding.n, dilation.v.ints, dilation.n,
                   call->args[6].v.i));
  return px_squeeze_dim(&call->results[0], result, (int64_t[]){0}, 1);
}
PX_RUN(conv2d) {
  const px_tensor *x = px__arg_tensor(call, 0), *w = px__arg_tensor(call, 1);
  if (x->ndim == 3 && w->ndim == 4) return unbatched(call);
  PX_TRY(check_conv(call, x, w, px__arg_tensor(call, 2)));
  PX_TRY(px__call_same_device(call));
  int64_t sizes[4];
  PX_TRY(conv_sizes(call, x, w, sizes));
  return px__call_result(call, 0, 4, sizes, (px_dtype)x->dtype);
}
// A result of the sizes that the third argument gives: gradients.
PX_RUN(backward_to_size) {
  px_value size = call->args[call->args[1].kind == PX_ARG_INTS ? 1 : 2];
  return px__call_result(call, 0, size.n, size.v.ints, (px_dtype)px__arg_tensor(call, 0)->dtype);
}
// Padding on both sides that keeps the size: {before, ..., behind, ...} for each dimension.
static px_status same_padding(int64_t *padding, const px_call *call, const px_tensor *w) {
  const char *mode = call->args[4].v.text;
  bool same = !strcmp(mode, "same");
  int dims = w->ndim - 2;
  PX_CHECK(same || !strcmp(mode, "valid"), PX_RUNTIME, "Invalid padding string: '%s'", mode);
  for (int k = 0; same && k < dims; k++) {
    PX_CHECK(px__int_at(call->args[3], k) == 1, PX_RUNTIME,
             "padding='same' is not supported for strided convolutions");
    int64_t total = px__int_at(call->args[5], k) * (w->sizes[2 + k] - 1);
    padding[k] = total / 2, padding[dims + k] = total - total / 2;
  }
  return PX_OK;
}
PX_RUN(conv2d_mode) {
  const px_tensor *x = px__arg_tensor(call, 0), *w = px__arg_tensor(call, 1);
  px_value stride = call->args[3], dilation = call->args[5];
  int64_t padding[4] = {0};
  PX_CHECK(w->ndim == 4, PX_RUNTIME, "conv2d: expected weight to be 4-dimensional");
  PX_TRY(check_list(stride, "stride", 1, false));
  PX_TRY(check_list(dilation, "dilation", 1, false));
  PX_TRY(same_padding(padding, call, w));
  return px_conv2d(&call->results[0], x, w, px__arg_tensor(call, 2), stride.v.ints, stride.n,
                   padding, 4, dilation.v.ints, dilation.n, call->args[6].v.i);
}
// Lists of one number each, for the one dimension there is; a stride may be left out.
static px_status check_lone(const px_call *call) {
  for (int i = 1; i < call->op->param_count; i++) {
    const px_param *p = &call->op->params[i];
    px_value list = call->args[i];
    bool left_out = p->has_default && p->fallback.n == 0 && list.n == 0;
    PX_CHECK(list.kind != PX_ARG_INTS || list.n == 1 || left_out, PX_RUNTIME,
             "expected %s to be a single integer value or a list of 1 values to match the "
             "convolution dimensions, but got %d values",
             p->name, list.n);
  }
  return PX_OK;
}
// A signal is an image of one row.
PX_RUN(conv1d) {
  const px_tensor *x = px__arg_tensor(call, 0), *w = px__arg_tensor(call, 1);
  char text[128];
  PX_CHECK((x->ndim == 3 || x->ndim == 2) && w->ndim == 3, PX_RUNTIME,
           "Expected 2D (unbatched) or 3D (batched) input to conv1d, but got input of size: %s",
           px__size_text(text, sizeof text, x));
  PX_TRY(check_lone(call));
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  bool batch = x->ndim == 3;
  int64_t xs[4] = {batch ? x->sizes[0] : 1, x->sizes[x->ndim - 2], 1, x->sizes[x->ndim - 1]};
  int64_t ws[4] = {w->sizes[0], w->sizes[1], 1, w->sizes[2]};
  int64_t lists[3][2] = {
      {1, call->args[3].v.ints[0]}, {0, call->args[4].v.ints[0]}, {1, call->args[5].v.ints[0]}};
  PX_TRY(px_reshape(&image, x, xs, 4));
  PX_TRY(px_reshape(&kernel, w, ws, 4));
  PX_TRY(px_conv2d(&wide, image, kernel, px__arg_tensor(call, 2), lists[0], 2, lists[1], 2,
                   lists[2], 2, call->args[6].v.i));
  int64_t back[3] = {wide->sizes[0], wide->sizes[1], wide->sizes[3]};
  return px_reshape(&call->results[0], wide, batch ? back : back + 1, batch ? 3 : 2);
}
PX_RUN(conv1d_mode) {
  const px_tensor *x = px__arg_tensor(call, 0), *w = px__arg_tensor(call, 1);
  PX_SCOPED(px_tensor) padded = NULL;
  int64_t padding[2] = {0}, none = 0;
  PX_CHECK(w->ndim == 3, PX_RUNTIME, "conv1d: expected weight to be 3-dimensional");
  PX_TRY(check_lone(call));
  PX_TRY(same_padding(padding, call, w));
  PX_TRY(px_constant_pad_nd(&padded, x, padding, 2, px_int(0)));
  return px_conv1d(&call->results[0], padded, w, px__arg_tensor(call, 2), call->args[3].v.ints,
                   call->args[3].n, &none, 1, call->args[5].v.ints, call->args[5].n,
                   call->args[6].v.i);
}

// ---- transposed

static px_status check_transposed(const px_call *call, const px_tensor *x, const px_tensor *w) {
  int64_t groups = call->args[6].v.i;
  char ws[128], xs[128];
  PX_TRY(check_list(call->args[3], "stride", 1, false));
  PX_TRY(check_list(call->args[4], "padding", 0, false));
  PX_TRY(check_list(call->args[5], "output_padding", 0, false));
  PX_TRY(check_list(call->args[7], "dilation", 1, false));
  PX_CHECK(groups > 0, PX_RUNTIME, "non-positive groups is not supported");
  PX_CHECK(x->ndim == 4 && w->ndim == 4, PX_RUNTIME,
           "Expected 3D (unbatched) or 4D (batched) input to conv_transpose2d, but got input of "
           "size: %s",
           px__size_text(xs, sizeof xs, x));
  PX_CHECK(w->sizes[0] % groups == 0 && x->sizes[1] == w->sizes[0], PX_RUNTIME,
           "Given transposed=1, weight of size %s, expected input%s to have %lld channels, but got "
           "%lld channels instead",
           px__size_text(ws, sizeof ws, w), px__size_text(xs, sizeof xs, x), LL(w->sizes[0]),
           LL(x->sizes[1]));
  for (int k = 0; k < 2; k++)
    PX_CHECK(px__int_at(call->args[5], k) < px__int_at(call->args[3], k) ||
                 px__int_at(call->args[5], k) < px__int_at(call->args[7], k),
             PX_RUNTIME,
             "output padding must be smaller than either stride or dilation, but got "
             "output_padding_height: %lld output_padding_width: %lld stride_height: %lld "
             "stride_width: %lld dilation_height: %lld dilation_width: %lld",
             LL(px__int_at(call->args[5], 0)), LL(px__int_at(call->args[5], 1)),
             LL(px__int_at(call->args[3], 0)), LL(px__int_at(call->args[3], 1)),
             LL(px__int_at(call->args[7], 0)), LL(px__int_at(call->args[7], 1)));
  return PX_OK;
}
static px_status transposed_sizes(const px_call *call, const px_tensor *x, const px_tensor *w,
                                  int64_t *sizes) {
  sizes[0] = x->sizes[0], sizes[1] = w->sizes[1] * call->args[6].v.i;
  for (int k = 0; k < 2; k++) {
    int64_t stride = px__int_at(call->args[3], k), dilation = px__int_at(call->args[7], k);
    sizes[2 + k] = (x->sizes[2 + k] - 1) * stride - 2 * px__int_at(call->args[4], k) +
                   dilation * (w->sizes[2 + k] - 1) + px__int_at(call->args[5], k) + 1;
    PX_CHECK(sizes[2 + k] > 0, PX_RUNTIME,
             "Given input size per channel: (%lld x %lld). Calculated output size per channel: "
             "dimension %d is %lld. Output size is too small",
             LL(x->sizes[2]), LL(x->sizes[3]), k, LL(sizes[2 + k]));
  }
  return PX_OK;
}
// The gradient of conv2d with respect to its input, and a bias for each channel.
PX_RUN(conv_transpose2d) {
  const px_tensor *w = px__arg_tensor(call, 1), *bias = px__arg_tensor(call, 2);
  px_value stride = call->args[3], padding = call->args[4], dilation = call->args[7];
  PX_SCOPED(px_tensor) x = px_retain(px__arg_tensor(call, 0));
  PX_SCOPED(px_tensor) spread = NULL;
  PX_SCOPED(px_tensor) shift = NULL;
  PX_SCOPED(px_tensor) whole = NULL;
  bool alone = x->ndim == 3 && w->ndim == 4;
  int64_t sizes[4];
  if (alone) {
    px_tensor *batch;
    PX_TRY(px_unsqueeze(&batch, x, 0));
    px_release(x);
    x = batch;
  }
  PX_TRY(check_transposed(call, x, w));
  PX_TRY(transposed_sizes(call, x, w, sizes));
  PX_TRY(px_conv2d_backward_input(&spread, x, w, sizes, 4, stride.v.ints, stride.n, padding.v.ints,
                                  padding.n, dilation.v.ints, dilation.n, call->args[6].v.i));
  if (bias) {
    PX_CHECK(bias->ndim == 1 && bias->numel == sizes[1], PX_RUNTIME,
             "expected bias to be 1-dimensional with %lld elements", LL(sizes[1]));
    PX_TRY(px_reshape(&shift, bias, (int64_t[]){sizes[1], 1, 1}, 3));
    PX_TRY(px_add(&whole, spread, shift, px_int(1)));
  } else {
    whole = PX_MOVE(spread);
  }
  if (alone) return px_squeeze_dim(&call->results[0], whole, (int64_t[]){0}, 1);
  call->results[0] = PX_MOVE(whole);
  return PX_OK;
}

// A signal as an image of one row, and back.
static px_status as_image(px_tensor **out, const px_tensor *signal) {
  return px_unsqueeze(out, signal, -2);
}
static px_status as_signal(px_tensor **out, const px_tensor *image) {
  return px_squeeze_dim(out, image, (int64_t[]){-2}, 1);
}
// A number of the call's list i for the one dimension there is, with what the row has: 1 or 0.
typedef struct row_pair {
  int64_t of[2];
} row_pair;
static row_pair beside(const px_call *call, int i, int64_t row) {
  return (row_pair){{row, call->args[i].v.ints[0]}};
}
PX_RUN(conv_transpose1d) {
  const px_tensor *x = px__arg_tensor(call, 0), *w = px__arg_tensor(call, 1);
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) kernel = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  char text[128];
  PX_CHECK((x->ndim == 2 || x->ndim == 3) && w->ndim == 3, PX_RUNTIME,
           "Expected 2D (unbatched) or 3D (batched) input to conv_transpose1d, but got input of "
           "size: %s",
           px__size_text(text, sizeof text, x));
  PX_TRY(check_lone(call));
  PX_TRY(as_image(&image, x));
  PX_TRY(as_image(&kernel, w));
  PX_TRY(px_conv_transpose2d(&wide, image, kernel, px__arg_tensor(call, 2), beside(call, 3, 1).of,
                             2, beside(call, 4, 0).of, 2, beside(call, 5, 0).of, 2,
                             call->args[6].v.i, beside(call, 7, 1).of, 2));
  return as_signal(&call->results[0], wide);
}

// ---- pooling

static int64_t pooled(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation,
                      bool ceiling) {
  int64_t room = size + 2 * pad - dilation * (kernel - 1) - 1 + (ceiling ? stride - 1 : 0);
  int64_t n = (room < 0 ? (room - stride + 1) / stride : room / stride) + 1;
  // The last window starts inside the image or its padding before it.
  return ceiling && (n - 1) * stride >= size + pad ? n - 1 : n;
}
static px_status pool_sizes(const px_call *call, px_value dilation, bool ceiling, int64_t *sizes) {
  const px_tensor *x = px__arg_tensor(call, 0);
  px_value kernel = call->args[1], stride = call->args[2].n ? call->args[2] : kernel;
  px_value padding = call->args[3];
  const char *name = call->op->name;
  char text[128];
  PX_CHECK(kernel.n == 1 || kernel.n == 2, PX_RUNTIME,
           "%s: kernel_size must either be a single int, or a tuple of two ints", name);
  PX_CHECK(stride.n == 1 || stride.n == 2, PX_RUNTIME,
           "%s: stride must either be omitted, a single int, or a tuple of two ints", name);
  PX_CHECK(padding.n == 1 || padding.n == 2, PX_RUNTIME,
           "%s: padding must either be a single int, or a tuple of two ints", name);
  PX_CHECK(x->ndim == 3 || x->ndim == 4, PX_RUNTIME,
           "non-empty 3D or 4D (batch mode) tensor expected for input, but got ndim: %d", x->ndim);
  for (int i = 0; i < x->ndim; i++) sizes[i] = x->sizes[i];
  for (int k = 0; k < 2; k++) {
    int64_t size = px__int_at(kernel, k), pad = px__int_at(padding, k);
    int64_t step = px__int_at(stride, k), *out = &sizes[x->ndim - 2 + k];
    PX_CHECK(size > 0, PX_RUNTIME, "kernel size should be greater than zero, but got kH: %lld",
             LL(size));
    PX_CHECK(step > 0, PX_RUNTIME, "stride should not be zero");
    PX_CHECK(pad >= 0 && pad <= size / 2, PX_RUNTIME,
             "pad should be at most half of effective kernel size, but got pad=%lld, "
             "kernel_size=%lld and dilation=%lld",
             LL(pad), LL(size), dilation.n ? LL(px__int_at(dilation, k)) : 1LL);
    *out = pooled(*out, size, step, pad, dilation.n ? px__int_at(dilation, k) : 1, ceiling);
    PX_CHECK(*out >= 1, PX_RUNTIME, "Given input size: %s. Calculated output size is too small",
             px__size_text(text, sizeof text, x));
  }
  return PX_OK;
}
PX_RUN(max_pool2d) {
  const px_tensor *x = px__arg_tensor(call, 0);
  int64_t sizes[PX_MAX_DIMS];
  PX_CHECK(call->args[4].n == 1 || call->args[4].n == 2, PX_RUNTIME,
           "%s: dilation must be either a single int, or a tuple of two ints", call->op->name);
  PX_TRY(pool_sizes(call, call->args[4], px__arg_bool(call, 5), sizes));
  PX_TRY(px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype));
  return px__call_result(call, 1, x->ndim, sizes, PX_INT64);
}
PX_RUN(max_pool2d_pick) {
  const px_tensor *t = px__arg_tensor(call, 0), *indices = px__arg_tensor(call, 1);
  return px__call_result(call, 0, indices->ndim, indices->sizes, (px_dtype)t->dtype);
}
PX_RUN(max_pool2d_only) {
  PX_SCOPED(px_tensor) indices = NULL;
  const px_value *a = call->args;
  return px_max_pool2d_with_indices(&call->results[0], &indices, px__arg_tensor(call, 0),
                                    a[1].v.ints, a[1].n, a[2].v.ints, a[2].n, a[3].v.ints, a[3].n,
                                    a[4].v.ints, a[4].n, px__arg_bool(call, 5));
}
PX_RUN(avg_pool2d) {
  const px_tensor *x = px__arg_tensor(call, 0);
  int64_t sizes[PX_MAX_DIMS];
  px_value by = call->args[6];
  PX_CHECK(by.kind == PX_ARG_NONE || px_value_int(by) != 0, PX_RUNTIME, "divisor must be not zero");
  PX_TRY(pool_sizes(call, PX_IS(NULL, 0), px__arg_bool(call, 4), sizes));
  return px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype);
}
PX_RUN(adaptive_avg_pool2d) {
  const px_tensor *x = px__arg_tensor(call, 0);
  px_value size = call->args[1];
  int64_t sizes[PX_MAX_DIMS];
  char text[128];
  PX_CHECK(x->ndim == 3 || x->ndim == 4, PX_RUNTIME,
           "adaptive_avg_pool2d(): Expected 3D or 4D tensor, but got %s",
           px__size_text(text, sizeof text, x));
  PX_CHECK(size.n == 1 || size.n == 2, PX_RUNTIME, "adaptive_avg_pool2d: output_size must be 2");
  for (int i = 0; i < x->ndim; i++) sizes[i] = x->sizes[i];
  for (int k = 0; k < 2; k++) sizes[x->ndim - 2 + k] = px__int_at(size, k);
  return px__call_result(call, 0, x->ndim, sizes, (px_dtype)x->dtype);
}

// ---- pooling of signals

static px_status check_signal(const px_call *call) {
  const px_tensor *x = px__arg_tensor(call, 0);
  PX_CHECK(x->ndim == 2 || x->ndim == 3, PX_RUNTIME,
           "%s() Expected 2D or 3D input tensor, but got %dD", call->op->name, x->ndim);
  return check_lone(call);
}
static row_pair stride_beside(const px_call *call) {
  return call->args[2].n ? beside(call, 2, 1) : beside(call, 1, 1);
}
PX_RUN(max_pool1d) {
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(check_signal(call));
  PX_TRY(as_image(&image, px__arg_tensor(call, 0)));
  PX_TRY(px_max_pool2d(&wide, image, beside(call, 1, 1).of, 2, stride_beside(call).of, 2,
                       beside(call, 3, 0).of, 2, beside(call, 4, 1).of, 2, px__arg_bool(call, 5)));
  return as_signal(&call->results[0], wide);
}
PX_RUN(avg_pool1d) {
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(check_signal(call));
  PX_TRY(as_image(&image, px__arg_tensor(call, 0)));
  PX_TRY(px_avg_pool2d(&wide, image, beside(call, 1, 1).of, 2, stride_beside(call).of, 2,
                       beside(call, 3, 0).of, 2, px__arg_bool(call, 4), px__arg_bool(call, 5),
                       NULL));
  return as_signal(&call->results[0], wide);
}
PX_RUN(adaptive_avg_pool1d) {
  PX_SCOPED(px_tensor) image = NULL;
  PX_SCOPED(px_tensor) wide = NULL;
  PX_TRY(check_signal(call));
  PX_TRY(as_image(&image, px__arg_tensor(call, 0)));
  PX_TRY(px_adaptive_avg_pool2d(&wide, image, beside(call, 1, 1).of, 2));
  return as_signal(&call->results[0], wide);
}
