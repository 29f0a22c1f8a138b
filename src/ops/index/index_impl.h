// SPDX-License-Identifier: Apache-2.0
// Common form of all indexed accesses: a loop over `sizes`. The address in the indexed tensor is a
// sum of strides plus, for each index tensor, its element times the stride of the indexed
// dimension. gather, index_select, x[i, j], embedding and their scatters differ only in strides.
#pragma once
#include "ops/core/run.h"

enum { PX__MAX_INDICES = PX_MAX_OPERANDS - 2 };  // index tensors of a launch

typedef struct px__index_loop {
  int ndim, count;
  int64_t sizes[PX_MAX_DIMS];     // of the loop
  int64_t strides[PX_MAX_DIMS];   // of the indexed tensor; 0 in index dimensions
  px_tensor *index[PX_MAX_DIMS];  // int64, on the device of the indexed tensor; owned
  int ends[PX_MAX_DIMS];          // loop dimension after the last one of an index tensor
  int64_t dim_sizes[PX_MAX_DIMS], dim_strides[PX_MAX_DIMS], dims[PX_MAX_DIMS];
  bool wraps;  // negative indices count from the end
  px_fault_code fault;
} px__index_loop;

void px__index_loop_release(px__index_loop *p);
// x[i, j]: index tensors at dims. Masks are replaced by the indices of their true elements.
px_status px__index_advanced(px__index_loop *p, const px_tensor *self, px_value indices,
                             px_value dims) __attribute__((warn_unused_result));
// index_select: one index vector for dimension `dim` of self.
px_status px__index_dim(px__index_loop *p, const px_tensor *self, int dim, const px_tensor *index)
    __attribute__((warn_unused_result));
// gather: an index per element, along dimension `dim`.
px_status px__index_along(px__index_loop *p, const px_tensor *self, int dim, const px_tensor *index)
    __attribute__((warn_unused_result));
// take: row-major indices. self must be row-major.
px_status px__index_flat(px__index_loop *p, const px_tensor *self, const px_tensor *index)
    __attribute__((warn_unused_result));
// get: out = indexed elements of self. put and join: stores values to the indexed elements, or adds
// or combines them. The other tensor has the loop's sizes or broadcasts to them.
px_status px__index_loop_get(const px__index_loop *p, px_tensor *out, const px_tensor *self)
    __attribute__((warn_unused_result));
px_status px__index_loop_put(const px__index_loop *p, px_tensor *self, const px_tensor *values,
                             bool add) __attribute__((warn_unused_result));
// Fails if a dtype does not support the combination. Call before writing any element.
px_status px__index_loop_check_dtype(px_dtype dtype, px_put_mode how)
    __attribute__((warn_unused_result));
px_status px__index_loop_combine(const px__index_loop *p, px_tensor *self, const px_tensor *values,
                                 px_put_mode how) __attribute__((warn_unused_result));
// Combines src with the first result, which is self or a copy of it, along `dim`. `first`, if
// given, is a 0-dim tensor stored to the indexed elements beforehand.
typedef struct px__scatter_call {
  px_tensor *self, *index, *src;
  int64_t dim;
  px_put_mode how;
  px_tensor *first;
} px__scatter_call;
px_status px__scatter(px_call *call, const px__scatter_call *s) __attribute__((warn_unused_result));
// A 0-dim tensor with the dtype and device of another.
px_status px__value_like(px_tensor **out, const px_tensor *like, px_scalar value)
    __attribute__((warn_unused_result));
// Makes the first result: a copy of self, or self in place.
px_status px__start_from_self(px_call *call, px_tensor *self) __attribute__((warn_unused_result));
// The same with a row-major copy, as PyTorch's scatter, index_add and index_copy.
px_status px__start_row_major(px_call *call, px_tensor *self) __attribute__((warn_unused_result));
// The largest element of an integer tensor, as a 0-dim int64 tensor.
px_status px__index_max(px_tensor **out, const px_tensor *self) __attribute__((warn_unused_result));
// The number of elements that are not 0, and their indices: an int64 tensor [n, ndim].
px_status px__count_nonzero(int64_t *out, const px_tensor *self)
    __attribute__((warn_unused_result));
px_status px__nonzero(px_tensor **out, const px_tensor *self) __attribute__((warn_unused_result));
