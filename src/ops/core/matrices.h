// SPDX-License-Identifier: Apache-2.0
// What ops of batches of matrices share: checks with PyTorch's texts, results that lie by columns
// as LAPACK writes them, batches that are made to agree, and errors that a decomposition found.
#pragma once
#include "ops/core/run.h"

// The lesser and the greater of two sizes.
static inline int64_t px__least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t px__most(int64_t a, int64_t b) { return a > b ? a : b; }

// ---- checks; `name` is the op's in texts

px_status px__check_matrices(const px_tensor *t, const char *name, const char *what)
    __attribute__((warn_unused_result));
px_status px__check_square(const px_tensor *t, const char *name)
    __attribute__((warn_unused_result));
// Whether the dtype is one that LAPACK has: real or complex, of four or eight bytes a part.
bool px__is_lapacks(const px_tensor *t);
// Floating-point or complex; with `narrow` those of two bytes too.
px_status px__check_numbers(const px_tensor *t, const char *name, bool narrow)
    __attribute__((warn_unused_result));
// Fails, for a kernel of LAPACK's, where the dtype is none that it has, a size none that it can
// count, or the library is missing.
px_status px__check_lapack(const px_call *call, const px_tensor *t)
    __attribute__((warn_unused_result));

// What the composites have seen to, and who calls a kernel's op itself has not: that t has
// matrices, square ones if it is said; that other has the dtype and, before its last dimensions,
// the batch of t; that a condition holds.
px_status px__check_kernel(const px_call *call, const px_tensor *t, bool square)
    __attribute__((warn_unused_result));
px_status px__check_beside(const px_call *call, const px_tensor *t, const px_tensor *other,
                           int last, px_dtype dtype) __attribute__((warn_unused_result));
px_status px__check_fits(const px_call *call, bool fits) __attribute__((warn_unused_result));

// ---- results of kernels

// Result i: matrices m by n that lie by columns, as many as t has, of its dtype or another.
px_status px__matrices_result(px_call *call, int i, const px_tensor *t, int64_t m, int64_t n)
    __attribute__((warn_unused_result));
px_status px__matrices_result_of(px_call *call, int i, const px_tensor *t, int64_t m, int64_t n,
                                 px_dtype dtype) __attribute__((warn_unused_result));
// Result i: for each of t's matrices a line of n elements, or with n -1 one.
px_status px__lines_result(px_call *call, int i, const px_tensor *t, int64_t n, px_dtype dtype)
    __attribute__((warn_unused_result));

// ---- batches

// Repeats a and b, whose last two dimensions are matrices, so that their batches are the same.
px_status px__match_batches(px_tensor **a_out, px_tensor **b_out, const px_tensor *a,
                            const px_tensor *b) __attribute__((warn_unused_result));
// Repeats t, of which `last` dimensions are no batch, as often as `like` has matrices.
px_status px__expand_batch(px_tensor **out, const px_tensor *t, int last, const px_tensor *like)
    __attribute__((warn_unused_result));

// ---- errors that decompositions found

// Fails with the text if a number of info is not 0: of the first such one. The text is given the
// name, which matrix of a batch it is ("(Batch element 2): "), and the number, twice.
px_status px__check_info(const px_tensor *info, px_status code, const char *name, const char *text)
    __attribute__((warn_unused_result));
