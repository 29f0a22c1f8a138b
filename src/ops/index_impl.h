// SPDX-License-Identifier: Apache-2.0
// One form for every way of picking elements by index: a loop over some sizes, in which each
// element of the indexed tensor is at a sum of strides plus, for each index tensor, its element
// times the stride of the dimension that it indexes. gather, index_select, x[i, j], embedding and
// their opposites are this form with other strides.
#pragma once
#include "ops/run.h"

enum { PX__MAX_INDICES = PX_MAX_OPERANDS - 2 };  // of a launch

typedef struct px__picking {
  int ndim, count;
  int64_t sizes[PX_MAX_DIMS];     // of the loop
  int64_t strides[PX_MAX_DIMS];   // of the indexed tensor, 0 where an index decides
  px_tensor *index[PX_MAX_DIMS];  // int64, on the device of the indexed tensor; owned
  int64_t index_strides[PX_MAX_DIMS][PX_MAX_DIMS];
  int64_t dim_sizes[PX_MAX_DIMS], dim_strides[PX_MAX_DIMS], dims[PX_MAX_DIMS];
  bool wraps;  // negative indices count from the end
  px_fault_code fault;
} px__picking;

void px__picking_drop(px__picking *p);
// x[i, j]: index tensors (masks are replaced by the indices of what is true) at dims.
px_status px__pick_advanced(px__picking *p, const px_tensor *self, px_value indices, px_value dims)
    __attribute__((warn_unused_result));
// One index tensor of one dimension for a whole dimension of self.
px_status px__pick_dim(px__picking *p, const px_tensor *self, int dim, const px_tensor *index)
    __attribute__((warn_unused_result));
// An index for each element, along a dimension.
px_status px__pick_along(px__picking *p, const px_tensor *self, int dim, const px_tensor *index)
    __attribute__((warn_unused_result));
// Places in row-major order; self must be row-major.
px_status px__pick_flat(px__picking *p, const px_tensor *self, const px_tensor *index)
    __attribute__((warn_unused_result));
// out = the picked elements of self; self's picked elements = (or +=, or joined otherwise with)
// values. The other tensor has the loop's sizes, or broadcasts to them.
px_status px__picking_get(const px__picking *p, px_tensor *out, const px_tensor *self)
    __attribute__((warn_unused_result));
px_status px__picking_put(const px__picking *p, px_tensor *self, const px_tensor *values, bool add)
    __attribute__((warn_unused_result));
// Whether elements of a dtype can be joined so, before any is written.
px_status px__picking_takes(px_dtype dtype, px_put_mode how) __attribute__((warn_unused_result));
px_status px__picking_join(const px__picking *p, px_tensor *self, const px_tensor *values,
                           px_put_mode how) __attribute__((warn_unused_result));
// Puts src along dimension `dim` of the first result, which is self or a copy of it, with an index
// for each element. `first`, if given, is a 0-dim tensor that is stored at the places before.
typedef struct px__scattering {
  px_tensor *self, *index, *src;
  int64_t dim;
  px_put_mode how;
  px_tensor *first;
} px__scattering;
px_status px__scatter(px_call *call, const px__scattering *s) __attribute__((warn_unused_result));
// A 0-dim tensor of the dtype and device of another.
px_status px__value_like(px_tensor **out, const px_tensor *like, px_scalar value)
    __attribute__((warn_unused_result));
// The first result as a copy of self, or, in place, self.
px_status px__start_from_self(px_call *call, px_tensor *self) __attribute__((warn_unused_result));
// The largest element of an integer tensor, as a 0-dim int64 tensor.
px_status px__index_max(px_tensor **out, const px_tensor *self) __attribute__((warn_unused_result));
// Elements of a mask or number tensor that are not zero: an int64 tensor [n, ndim].
px_status px__nonzero(px_tensor **out, const px_tensor *self) __attribute__((warn_unused_result));
