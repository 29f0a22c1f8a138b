// SPDX-License-Identifier: Apache-2.0
// What convolutions of images and of volumes share: PyTorch's checks of their arguments, and the
// sizes of results. How many places a window has, for pooling too.
#pragma once
#include "ops/core/run.h"

// The sizes of an input with its batch and of a weight: of a signal 3, of an image 4, of a volume
// 5.
typedef struct px__pair {
  int ndim;
  int64_t x[5], w[5];
} px__pair;
px__pair px__pair_of(const px_tensor *x, const px_tensor *w);

// A list has a number for all dimensions, or one for each; with `both`, perhaps before and behind.
px_status px__conv_list(px_value v, const char *name, int64_t least, int dims, bool both)
    __attribute__((warn_unused_result));
// How a kernel goes over its input; `both` is of the padding.
typedef struct px__conv_steps {
  px_value stride, padding, dilation;
} px__conv_steps;
#define PX_CONV_STEPS(args) ((px__conv_steps){(args)->stride, (args)->padding, (args)->dilation})
px_status px__conv_lists(px__conv_steps by, int dims, bool both)
    __attribute__((warn_unused_result));
// The padding behind along dimension k; that before is px__int_at's.
static inline int64_t px__pad_behind(px_value padding, int dims, int k) {
  return px__int_at(padding, padding.n == 2 * dims ? dims + k : k);
}
// Channels and bias of a convolution, or of a transposed one, fit the weight.
px_status px__conv_channels(const px__pair *p, const px_tensor *bias, int64_t groups,
                            bool transposed) __attribute__((warn_unused_result));
// Dtypes and devices are one, as far as a convolution's own texts say.
px_status px__conv_types(const px_tensor *x, const px_tensor *w, const px_tensor *bias)
    __attribute__((warn_unused_result));
// A kernel is no larger than the padded input.
px_status px__conv_inside(int dims, const int64_t *padded, const int64_t *kernel)
    __attribute__((warn_unused_result));
// The sizes that a convolution of sizes x by a kernel of sizes w gives, which were checked.
px_status px__conv_sizes(int dims, const int64_t *x, const int64_t *w, px__conv_steps by,
                         int64_t *sizes) __attribute__((warn_unused_result));
// Of a gradient's arguments: without `sizes`, the channels of the sizes x and w fit; with them,
// which such a convolution gives, grad has these.
px_status px__conv_grad_fits(const px_call *call, const px_tensor *grad, px_value x, px_value w,
                             int64_t groups, const int64_t *sizes)
    __attribute__((warn_unused_result));
// Padding on both sides that keeps the size: {before, ..., behind, ...} for each dimension.
px_status px__same_padding(int64_t *padding, const char *mode, const px_tensor *w, px_value stride,
                           px_value dilation) __attribute__((warn_unused_result));
// A result without elements. It depends on all arguments, whose gradients are zeros.
px_status px__conv_nothing(px_tensor **out, const px_tensor *const *args, int n, int ndim,
                           const int64_t *sizes) __attribute__((warn_unused_result));
// Output padding of a stride or more: a convolution of the result would have places behind the
// last. So there is less padding behind, and what is left no element reaches: it leaves the sizes
// of a transposed convolution, and is a padding by zeros. Gives how many paddings there are.
typedef struct px__beyond {
  int64_t padding[6], zeros[6];
} px__beyond;
int px__beyond_steps(px__beyond *out, int64_t *sizes, int dims, px_value beyond, px__conv_steps by);
// A bias for each channel is added, if there is one; dims behind the channels.
px_status px__conv_biased(px_tensor **out, px_tensor *made, const px_tensor *bias, int dims)
    __attribute__((warn_unused_result));

// ---- whole numbers: what the kernels of floats do, by other ops

static inline bool px__is_whole(const px_tensor *x) {
  return px_dtype_is_integer((px_dtype)x->dtype) && x->dtype < PX_DTYPE_COMPUTED;
}
// Of images, x with its batch, to the sizes that are given.
px_status px__conv_integers(px_tensor **out, const px_tensor *x, const px_tensor *w,
                            px__conv_steps by, int64_t groups, const int64_t *sizes)
    __attribute__((warn_unused_result));
px_status px__conv_integers_back(px_tensor **out, const px_tensor *grad, const px_tensor *w,
                                 px__conv_steps by, int64_t groups, const int64_t *sizes)
    __attribute__((warn_unused_result));
// A window along one of the last dimensions, of `size` elements.
typedef struct px__window_steps {
  int64_t size, places, kernel, stride, pad, dilation;
} px__window_steps;
// Means without their fractions, by a divisor if it is not 0; maxima, and where they are in the
// last dimensions.
px_status px__integer_means(px_tensor **out, px_tensor *x, int dims, const px__window_steps *s,
                            bool count_pad, int64_t divisor) __attribute__((warn_unused_result));
px_status px__integer_maxima(px_tensor **out, px_tensor **where, px_tensor *x, int dims,
                             const px__window_steps *s) __attribute__((warn_unused_result));
// Maxima over windows, a dimension at a time, and their places in the last `dims` dimensions. A
// table [places, most] has the elements of each window of dimension k.
typedef px_status px__window_table(px_tensor **out, const void *context, int k, const px_tensor *x);
px_status px__tops_of(px_tensor **out, px_tensor **where, px_tensor *x, int dims,
                      px__window_table *table, const void *context)
    __attribute__((warn_unused_result));

// The places that a window has along a dimension of `size` elements.
static inline int64_t px__window_places(int64_t size, int64_t kernel, int64_t stride, int64_t pad,
                                        int64_t dilation, bool ceiling) {
  int64_t room = size + 2 * pad - dilation * (kernel - 1) - 1 + (ceiling ? stride - 1 : 0);
  int64_t n = room / stride - (room % stride < 0) + 1;
  // The last window starts inside the image or its padding before it.
  return ceiling && (n - 1) * stride >= size + pad ? n - 1 : n;
}
