// SPDX-License-Identifier: Apache-2.0
// Shared by batched matrix ops: PyTorch's argument checks, and column-major results as written by
// LAPACK.
#pragma once
#include "ops/core/run.h"

// Minimum and maximum of two sizes.
static inline int64_t px__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t px__max(int64_t a, int64_t b) { return a > b ? a : b; }

// ---- checks; `name` is the op's name in error texts

px_status px__check_matrices(const px_tensor *t, const char *name, const char *role)
    __attribute__((warn_unused_result));
px_status px__check_square(const px_tensor *t, const char *name)
    __attribute__((warn_unused_result));
// True for the dtypes of LAPACK: real or complex, in single or double precision.
bool px__is_lapacks(const px_tensor *t);
// Fails unless floating-point or complex. `narrow`: fp16 and bf16 are allowed.
px_status px__check_numbers(const px_tensor *t, const char *name, bool narrow)
    __attribute__((warn_unused_result));
// For LAPACK kernels: fails for an unsupported dtype, a matrix size beyond its integers, or a
// missing library.
px_status px__check_lapack(const px_call *call, const px_tensor *t)
    __attribute__((warn_unused_result));

// Checks of direct calls to kernel ops; composites check their arguments themselves. check_kernel:
// t has matrices, square on request. check_batch_like: other has the given dtype and, before its
// last dimensions, the batch sizes of t. check_fits: a condition holds.
px_status px__check_kernel(const px_call *call, const px_tensor *t, bool square)
    __attribute__((warn_unused_result));
px_status px__check_batch_like(const px_call *call, const px_tensor *t, const px_tensor *other,
                               int last, px_dtype dtype) __attribute__((warn_unused_result));
px_status px__check_fits(const px_call *call, bool fits) __attribute__((warn_unused_result));

// ---- results of kernels

// Makes result i: column-major m by n matrices, as many as in t, of its dtype or a given one.
px_status px__matrices_result(px_call *call, int i, const px_tensor *t, int64_t m, int64_t n)
    __attribute__((warn_unused_result));
px_status px__matrices_result_of(px_call *call, int i, const px_tensor *t, int64_t m, int64_t n,
                                 px_dtype dtype) __attribute__((warn_unused_result));
// Makes result i: n elements per matrix of t, or a single one if n is -1.
px_status px__lines_result(px_call *call, int i, const px_tensor *t, int64_t n, px_dtype dtype)
    __attribute__((warn_unused_result));
