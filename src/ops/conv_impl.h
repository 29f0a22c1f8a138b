// SPDX-License-Identifier: Apache-2.0
// What convolutions of images and of volumes share: PyTorch's checks of their arguments.
#pragma once
#include "ops/run.h"

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
// Channels and bias of a convolution, or of a transposed one, fit the weight.
px_status px__conv_channels(const px__pair *p, const px_tensor *bias, int64_t groups,
                            bool transposed) __attribute__((warn_unused_result));
// Dtypes and devices are one, as far as a convolution's own texts say.
px_status px__conv_types(const px_tensor *x, const px_tensor *w, const px_tensor *bias)
    __attribute__((warn_unused_result));
// A kernel is no larger than the padded input.
px_status px__conv_inside(int dims, const int64_t *padded, const int64_t *kernel)
    __attribute__((warn_unused_result));
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
// A bias for each channel is added, if there is one; dims behind the channels.
px_status px__conv_biased(px_tensor **out, px_tensor *made, const px_tensor *bias, int dims)
    __attribute__((warn_unused_result));
