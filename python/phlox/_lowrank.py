# SPDX-License-Identifier: Apache-2.0
"""Matrix functions composed of torch.linalg's: LU under its older name, low-rank SVD and PCA."""
from __future__ import annotations

import warnings

import phlox as torch
from phlox import _C


def lu(A: _C.Tensor, pivot: bool = True, get_infos: bool = False,
       out: tuple[_C.Tensor, ...] | None = None) -> tuple[_C.Tensor, ...]:
    """Computes the LU decomposition, as linalg.lu_factor. With get_infos, as linalg.lu_factor_ex, without raising errors.

    >>> torch.lu(torch.eye(2))[1]
    tensor([1, 2], dtype=torch.int32)
    """
    made = torch.linalg.lu_factor_ex(A, pivot=pivot) if get_infos else torch.linalg.lu_factor(A, pivot=pivot)
    if out is None:
        return tuple(made)
    if len(out) != len(made):
        raise TypeError(f"expected tuple of {len(made)} elements but got {len(out)}")
    for to, result in zip(out, made):
        to.resize_as_(result).copy_(result)
    return tuple(out)


def chain_matmul(*matrices: _C.Tensor, out: _C.Tensor | None = None) -> _C.Tensor:
    """Returns the product of matrices. Deprecated: use linalg.multi_dot.

    >>> torch.chain_matmul(torch.eye(2), torch.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    warnings.warn("torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
                  "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather "
                  "than multiple parameters.", stacklevel=2)
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for i, matrix in enumerate(matrices):
        if not isinstance(matrix, _C.Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(matrix).__name__}")
        if matrix.dim() != 2:
            raise RuntimeError(f"Tensor dimension is {matrix.dim()}, expected 2 instead.")
    if len(matrices) > 1:
        return torch.linalg.multi_dot(matrices, out=out)
    return matrices[0].view_as(matrices[0]) if out is None else out.resize_as_(matrices[0]).copy_(matrices[0])


def _range_of(A, q, niter):
    """Returns an approximate orthonormal basis of A's range: A times q random vectors, then `niter` subspace iterations with A A'."""
    basis = torch.linalg.qr(A @ torch.randn(A.shape[-1], q, dtype=A.dtype, device=A.device)).Q
    for _ in range(niter):
        basis = torch.linalg.qr(A @ torch.linalg.qr(A.mT @ basis).Q).Q
    return basis


def svd_lowrank(A: _C.Tensor, q: int | None = 6, niter: int | None = 2,
                M: _C.Tensor | None = None) -> tuple[_C.Tensor, _C.Tensor, _C.Tensor]:
    """Returns the approximate q largest singular values of A - M and their vectors: U, S and V. N. Halko, P. Martinsson and J. Tropp 2011,
    Finding structure with randomness: probabilistic algorithms for constructing approximate matrix decompositions.

    >>> torch.svd_lowrank(torch.diag(torch.tensor([3., 2., 0.])), q=2)[1].round()
    tensor([3., 2.])
    """
    matrix = A if M is None else A - M
    wide = matrix.shape[-2] < matrix.shape[-1]
    tall = matrix.mT if wide else matrix
    basis = _range_of(tall, 6 if q is None else q, 2 if niter is None else niter)
    u, s, vh = torch.linalg.svd(basis.mT @ tall, full_matrices=False)
    u, v = basis @ u, vh.mT
    return (v, s, u) if wide else (u, s, v)


def pca_lowrank(A: _C.Tensor, q: int | None = None, center: bool = True,
                niter: int = 2) -> tuple[_C.Tensor, _C.Tensor, _C.Tensor]:
    """Performs an approximate PCA of the rows of A. Returns U, S and V; the columns of V are the q principal components. `center`
    subtracts the mean row.

    >>> torch.pca_lowrank(torch.tensor([[1., 0.], [3., 0.]]), q=1)[1]
    tensor([1.4142])
    """
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
