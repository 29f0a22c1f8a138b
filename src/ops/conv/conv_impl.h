// SPDX-License-Identifier: Apache-2.0
// Shared by convolutions of images and volumes: PyTorch's argument checks, and sizes of results.
// Window counts, for pooling too.
#pragma once
#include "ops/core/run.h"

// Sizes of an input with its batch dimension and of a weight: ndim is 3 for signals, 4 for images,
// 5 for volumes.
typedef struct px__pair {
  int ndim;
  int64_t x[5], w[5];
} px__pair;
px__pair px__pair_of(const px_tensor *x, const px_tensor *w);

// Checks a list with one number for all dimensions, or one each. `both`: or two each (begin, end).
px_status px__conv_list(px_value v, const char *name, int64_t min, int dims, bool both)
    __attribute__((warn_unused_result));
// Stride, padding and dilation. `both`: padding may differ at begin and end.
typedef struct px__conv_steps {
  px_value stride, padding, dilation;
} px__conv_steps;
#define PX_CONV_STEPS(args) ((px__conv_steps){(args)->stride, (args)->padding, (args)->dilation})
px_status px__conv_lists(px__conv_steps by, int dims, bool both)
    __attribute__((warn_unused_result));
// Padding at the end of dimension k; px__int_at returns that at the beginning.
static inline int64_t px__pad_end(px_value padding, int dims, int k) {
  return px__int_at(padding, padding.n == 2 * dims ? dims + k : k);
}
// Checks channels and bias of a convolution, or of a transposed one, against the weight.
px_status px__conv_channels(const px__pair *p, const px_tensor *bias, int64_t groups,
                            bool transposed) __attribute__((warn_unused_result));
// Checks that dtypes and devices agree, as far as convolutions have texts of their own for it.
px_status px__conv_types(const px_tensor *x, const px_tensor *w, const px_tensor *bias)
    __attribute__((warn_unused_result));
// Fails if a kernel is larger than the padded input.
px_status px__conv_check_kernel(int dims, const int64_t *padded, const int64_t *kernel)
    __attribute__((warn_unused_result));
// Sizes of a convolution of x by a kernel w. The arguments are already checked.
px_status px__conv_sizes(int dims, const int64_t *x, const int64_t *w, px__conv_steps by,
                         int64_t *sizes) __attribute__((warn_unused_result));
// Checks arguments of a gradient. Without `sizes`: the channels of x and w match. With `sizes`, the
// sizes of the convolution: grad has them.
px_status px__conv_grad_fits(const px_call *call, const px_tensor *grad, px_value x, px_value w,
                             int64_t groups, const int64_t *sizes)
    __attribute__((warn_unused_result));
// Padding of mode 'same': {begin, ..., end, ...} for each dimension.
px_status px__same_padding(int64_t *padding, const char *mode, const px_tensor *w, px_value stride,
                           px_value dilation) __attribute__((warn_unused_result));
// An empty result. It depends on all arguments, with zero gradients.
px_status px__conv_empty(px_tensor **out, const px_tensor *const *args, int n, int ndim,
                         const int64_t *sizes) __attribute__((warn_unused_result));
// Output padding of at least the stride, beyond the last output of a convolution of the result.
// Reduces the padding at the end. The remainder, which receives no input, is removed from the sizes
// of the transposed convolution and added as zero padding. Returns the number of paddings.
typedef struct px__output_padding {
  int64_t padding[6], zeros[6];
} px__output_padding;
int px__split_output_padding(px__output_padding *out, int64_t *sizes, int dims, px_value beyond,
                             px__conv_steps by);
// Adds a bias per channel, if given. `dims`: dimensions after the channels.
px_status px__conv_biased(px_tensor **out, px_tensor *made, const px_tensor *bias, int dims)
    __attribute__((warn_unused_result));

// ---- integers: compositions that replace the floating-point kernels

static inline bool px__has_integers(const px_tensor *x) {
  return px_dtype_is_integer((px_dtype)x->dtype) && x->dtype < PX_DTYPE_COMPUTED;
}
// Images only. x has a batch dimension; the result has the given sizes.
px_status px__conv_integers(px_tensor **out, const px_tensor *x, const px_tensor *w,
                            px__conv_steps by, int64_t groups, const int64_t *sizes)
    __attribute__((warn_unused_result));
px_status px__conv_integers_back(px_tensor **out, const px_tensor *grad, const px_tensor *w,
                                 px__conv_steps by, int64_t groups, const int64_t *sizes)
    __attribute__((warn_unused_result));
// A window along one of the last dimensions, which has `size` elements.
typedef struct px__window_steps {
  int64_t size, outputs, kernel, stride, pad, dilation;
} px__window_steps;
// Truncated means, with a divisor unless it is 0; maxima, and their indices in the last dimensions.
px_status px__integer_means(px_tensor **out, px_tensor *x, int dims, const px__window_steps *s,
                            bool count_pad, int64_t divisor) __attribute__((warn_unused_result));
px_status px__integer_maxima(px_tensor **out, px_tensor **where, px_tensor *x, int dims,
                             const px__window_steps *s) __attribute__((warn_unused_result));
// Maxima over windows, one dimension at a time, and their indices in the last `dims` dimensions.
// The table for dimension k, [outputs, taps], holds the element indices of each window.
typedef px_status px__window_table(px_tensor **out, const void *context, int k, const px_tensor *x);
px_status px__max_over_windows(px_tensor **out, px_tensor **where, px_tensor *x, int dims,
                               px__window_table *table, const void *context)
    __attribute__((warn_unused_result));

// Number of output elements of a window along a dimension of `size` elements.
static inline int64_t px__window_outputs(int64_t size, int64_t kernel, int64_t stride, int64_t pad,
                                         int64_t dilation, bool ceiling) {
  int64_t span = size + 2 * pad - dilation * (kernel - 1) - 1 + (ceiling ? stride - 1 : 0);
  int64_t n = span / stride - (span % stride < 0) + 1;
  // The last window starts inside the image or the padding before it.
  return ceiling && (n - 1) * stride >= size + pad ? n - 1 : n;
}
