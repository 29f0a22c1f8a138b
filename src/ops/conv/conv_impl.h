// SPDX-License-Identifier: Apache-2.0
// Shared by convolutions and pools: PyTorch's argument checks, sizes of results, and compositions
// that replace missing kernels.
#pragma once
#include "ops/core/run.h"

// The number of dimensions in the name of an op: 2 for conv2d.
static inline int px__op_dims(const px_op *op) { return *strpbrk(op->name, "123") - '0'; }

// ---- arguments of convolutions

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
// Checks that dtypes and devices agree, as far as convolutions have texts of their own for it.
px_status px__conv_types(const px_tensor *x, const px_tensor *w, const px_tensor *bias)
    __attribute__((warn_unused_result));
// Checks channels and bias of a convolution, or of a transposed one, against the weight.
px_status px__conv_channels(const px__pair *p, const px_tensor *bias, int64_t groups,
                            bool transposed) __attribute__((warn_unused_result));
// Checks numbers of dimensions, types, channels and bias.
px_status px__conv_operands(bool transposed, int dims, const px_tensor *x, const px_tensor *w,
                            const px_tensor *bias, int64_t groups)
    __attribute__((warn_unused_result));
// Checks that a kernel is not empty and that sizes of inputs and kernels are in range.
px_status px__conv_kernel(int dims, const int64_t *x, const int64_t *w)
    __attribute__((warn_unused_result));
// Sizes of a convolution of x by a kernel w. Fails if a kernel is empty or larger than the padded
// input.
px_status px__conv_sizes(int dims, const int64_t *x, const int64_t *w, px__conv_steps by,
                         int64_t *sizes) __attribute__((warn_unused_result));
// Texts: " stride_height: 1 stride_width: 2" and "5 x 5".
const char *px__by_dimension(char text[160], const char *name, int dims, px_value list);
const char *px__by_text(char text[96], int dims, const int64_t *sizes);

// ---- convolutions without a kernel

static inline bool px__has_integers(const px_tensor *x) {
  return px_dtype_is_integer((px_dtype)x->dtype) && x->dtype < PX_DTYPE_COMPUTED;
}
// True if volumes are convolved as images: integers, and volumes on other devices than the CPU.
bool px__conv_by_images(const px_call *call, int dims, const px_tensor *x);
px_status px__conv_of_images(px_call *call) __attribute__((warn_unused_result));
px_status px__input_of_images(px_call *call) __attribute__((warn_unused_result));
px_status px__weight_of_images(px_call *call) __attribute__((warn_unused_result));

// ---- pools

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
