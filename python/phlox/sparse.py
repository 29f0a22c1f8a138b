# SPDX-License-Identifier: Apache-2.0
"""torch.sparse: sparse tensors. A sparse tensor is a pair of dense tensors, indices and values, and its ops are compositions of dense ops. They
run on every device, and gradients flow through the values."""
from __future__ import annotations

import math
import re
from typing import Any, Sequence

import phlox as torch
from phlox import _C

_C._name_missing(__name__)
_PLAIN = "abs relu sqrt square sign sin sinh tan tanh asin asinh atan atanh expm1 log1p ceil floor round trunc sgn erf".split()  # f(0) = 0
_TYPES = dict(double=_C.float64, float=_C.float32, half=_C.float16, bfloat16=_C.bfloat16, long=_C.int64, int=_C.int32)


def _elements_text(tensor, indent):
    """Returns the printed elements of a tensor, indented."""
    plain = tensor.detach().cpu()
    text = re.sub(r", dtype=torch\.\w+\)$", ")", repr(plain))
    return (text if plain.numel() or "size=" in text else text[:-1] + f", size={tuple(plain.shape)})").replace("\n", "\n" + " " * indent)


def _check(condition, text):
    if not condition:
        raise RuntimeError(text)


class _SparseTensor:
    """A sparse tensor: COO (one column of `indices` per value), or CSR if `crow` (row offsets) is given. Not a Tensor subclass: supported functions
    are dispatched through __torch_function__, others raise NotImplementedError."""

    def __init__(self, indices: _C.Tensor, values: _C.Tensor, size: Sequence[int], coalesced: bool = False, crow: _C.Tensor | None = None) -> None:
        self._coords, self._data, self.shape, self._is_sorted, self._crow = indices, values, _C.Size(size), coalesced, crow

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = _FUNCTIONS.get(func.__name__) or args and isinstance(args[0], cls) and getattr(cls, func.__name__, None)
        if not known:
            raise NotImplementedError(f"Could not run 'aten::{func.__name__}' with arguments from the 'Sparse' backend")
        return known(*args, **(kwargs or {}))

    # ---- attributes
    layout = property(lambda self: _C.sparse_coo if self._crow is None else _C.sparse_csr)
    ndim = property(lambda self: len(self.shape))
    is_sparse = property(lambda self: self._crow is None)
    is_sparse_csr = property(lambda self: self._crow is not None)
    grad = property(lambda self: None if self._data.grad is None else self._with_values(self._data.grad))

    size = lambda self, dim=None: self.shape if dim is None else self.shape[dim]
    dim = lambda self: self.ndim
    numel = lambda self: math.prod(self.shape)
    sparse_dim = lambda self: self._coords.shape[0]
    dense_dim = lambda self: self.ndim - self.sparse_dim()
    _nnz = lambda self: self._coords.shape[1]
    is_coalesced = lambda self: self._require_layout("is_coalesced")._is_sorted
    _indices = lambda self: self._require_layout("_indices")._coords
    _values = lambda self: self._require_layout("_values")._data
    crow_indices = lambda self: self._require_layout("crow_indices", True)._crow
    col_indices = lambda self: self._require_layout("col_indices", True)._coords[1]
    __len__ = lambda self: self.shape[0]

    def _require_layout(self, name, csr=False):
        wanted, other = ("row compressed", "Sparse") if csr else ("coordinate", "SparseCsr")
        _check((self._crow is not None) == csr, f"{name} expected sparse {wanted} tensor layout but got {other}")
        return self

    def _require_coalesced(self, name):
        _check(self._is_sorted, f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
        return self

    indices = lambda self: self._require_layout("indices")._require_coalesced("indices")._coords
    values = lambda self: self._require_coalesced("values")._data

    def __repr__(self) -> str:
        named = {"indices": self._coords} if self._crow is None else {"crow_indices": self._crow, "col_indices": self._coords[1]}
        text = "tensor(" + ",\n       ".join(f"{k}={_elements_text(t, 8 + len(k))}" for k, t in {**named, "values": self._data}.items())
        default = _C.get_default_dtype()
        default_dtypes = (default, _C.complex128 if default == _C.float64 else _C.complex64, _C.int64, _C.bool)
        grad = f"grad_fn=<{self.grad_fn.name()}>" if self.grad_fn else "requires_grad=True" if self.requires_grad else ""
        notes = [f"device='{self.device}'" if self.is_cuda else "", f"size={tuple(self.shape)}", f"nnz={self._nnz()}",
                 "" if self.dtype in default_dtypes else f"dtype={self.dtype}", f"layout={self.layout}", grad]
        columns_left = 0 if self._crow is None else 80 - (len(text) - text.rfind("\n") + 1)  # the notes of COO begin a line
        for note in filter(None, notes):
            fits = len(note) + 2 <= columns_left
            text += (", " if fits else ",\n       ") + note
            columns_left = columns_left - len(note) - 2 if fits else 73 - len(note)
        return text + ")"

    # ---- conversions
    def _with_values(self, values):
        return _SparseTensor(self._coords, values, self.shape, self._is_sorted, self._crow)

    def _linear_index(self):
        """Returns the linear index of each value, in row-major order."""
        flat = _C.zeros_like(self._coords[0], dtype=_C.int64)
        for row, n in zip(self._coords, self.shape):
            flat = flat * n + row
        return flat

    def coalesce(self) -> _SparseTensor:
        """Returns the tensor with sorted, unique indices. Values with equal indices are summed."""
        if self._require_layout("coalesce")._is_sorted:
            return self
        positions, which = _C.unique(self._linear_index(), return_inverse=True)
        values = _C.zeros(len(positions), *self._data.shape[1:], dtype=self.dtype, device=self.device).index_add(0, which, self._data)
        return _SparseTensor(_C.stack(_C.unravel_index(positions, self.shape[:self.sparse_dim()])), values, self.shape, True)

    def to_dense(self, dtype: _C.dtype | None = None) -> _C.Tensor:
        """Converts to a dense tensor."""
        count = math.prod(self.shape[:self.sparse_dim()])
        made = _C.zeros(count, *self._data.shape[1:], dtype=self.dtype, device=self.device).index_add(0, self._linear_index(), self._data)
        return made.reshape(self.shape).to(dtype or self.dtype)

    def to_sparse(self, sparse_dim: int | None = None, *, layout: _C.layout | None = None) -> _SparseTensor:
        other = self if self._crow is None else _SparseTensor(self._coords.long(), self._data, self.shape, True)
        return self.to_sparse_csr() if layout == _C.sparse_csr else other

    to_sparse_coo = to_sparse

    def to_sparse_csr(self) -> _SparseTensor:
        """Converts to CSR."""
        if self._crow is not None:
            return self
        _check(self.ndim == 2 and not self.dense_dim(), f"CSR requires a matrix with two sparse dimensions, got {self.ndim} dimensions")
        ordered = self.coalesce()
        crow = _C.searchsorted(ordered._coords[0].contiguous(), _C.arange(self.shape[0] + 1, device=self.device))
        return _SparseTensor(ordered._coords, ordered._data, self.shape, True, crow)

    def to(self, *args: Any, **options: Any) -> _SparseTensor:
        values = self._data.to(*args, **options)
        crow = None if self._crow is None else self._crow.to(values.device)
        return self if values is self._data else _SparseTensor(self._coords.to(values.device), values, self.shape, self._is_sorted, crow)

    cpu = lambda self: self.to("cpu")
    cuda = lambda self, device="cuda": self.to(device)
    clone = lambda self: self._with_values(self._data.clone())
    detach = lambda self: self._with_values(self._data.detach())

    def requires_grad_(self, requires_grad: bool = True) -> _SparseTensor:
        self._data.requires_grad_(requires_grad)
        return self

    def transpose(self, dim0: int, dim1: int) -> _SparseTensor:
        """Transposes two sparse dimensions. Returns COO."""
        order, many = list(range(self.ndim)), self.sparse_dim()
        order[dim0], order[dim1] = order[dim1], order[dim0]
        _check(max(order[:many]) < many, "transpose(): can only transpose sparse dimensions of a sparse tensor")
        return _SparseTensor(self.to_sparse()._coords[order[:many]], self._data, [self.shape[d] for d in order])

    t = lambda self: self.transpose(0, 1)
    T = property(t)

    # ---- arithmetic
    sum = lambda self, dim=None, dtype=None: sum(self, dim, dtype)
    __neg__ = neg = lambda self: _mul(self, -1)
    __add__ = add = lambda self, other, *, alpha=1: _add(self, other, alpha=alpha)
    __radd__ = lambda self, other: _add(other, self)
    __sub__ = sub = lambda self, other, *, alpha=1: _add(self, other, alpha=-alpha)
    __mul__ = __rmul__ = mul = lambda self, other: _mul(self, other)
    __truediv__ = div = lambda self, other: _div(self, other)
    __matmul__ = matmul = mm = mv = lambda self, other: mm(self, other)
    __rmatmul__ = lambda self, other: mm(other, self)


def _single(other):
    return not isinstance(other, _C.Tensor) or other.ndim == 0


def _div(a, b):
    if isinstance(b, _SparseTensor) or not _single(b):
        raise NotImplementedError(f"div of a sparse tensor and {type(b).__name__}: only numbers here")
    return a._with_values(a._data / b)


def _add(a, b, *, alpha=1):
    _check(isinstance(b, _SparseTensor), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not isinstance(a, _SparseTensor):
        return _C.add(a, b.to_dense(), alpha=alpha)
    _check(a.shape == b.shape, f"add: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")
    positions = _C.cat([a.to_sparse()._coords, b.to_sparse()._coords], 1)
    return _SparseTensor(positions, _C.cat([a._data, _C.add(b._data.new_zeros(()), b._data, alpha=alpha)]), a.shape).coalesce().to_sparse(layout=a.layout)


def _mul(a, b):
    if not isinstance(a, _SparseTensor):
        a, b = b, a
    if not isinstance(b, _SparseTensor) and _single(b):
        return a._with_values(a._data * b)
    _check(a.shape == b.shape, f"mul: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")
    coalesced = a if a._crow is not None else a.coalesce()
    if not isinstance(b, _SparseTensor):
        return coalesced._with_values(coalesced._data * b[tuple(coalesced._coords)])
    b = b.to_sparse().coalesce()
    flat, others = coalesced._linear_index(), b._linear_index()
    there = _C.isin(flat, others)
    made = _SparseTensor(coalesced._coords[:, there], coalesced._data[there] * b._data[_C.isin(others, flat)], a.shape, True)
    return made.to_sparse(layout=a.layout)


def mm(sparse: Any, dense: Any) -> Any:
    """Computes the product of two matrices, or of a matrix and a vector. At least one matrix is sparse; two sparse matrices give a sparse result.
    Gradients flow to the values of sparse operands and to dense operands."""
    a, b = sparse, dense
    if not isinstance(a, _SparseTensor):
        return mm(b.t(), a.t()).t() if isinstance(b, _SparseTensor) else _C.mm(a, b)
    _check(a.ndim == 2 and not a.dense_dim(), f"mm: Argument #1 (sparse) must be a matrix, but it has {a.ndim} dimensions")
    _check(a.shape[1] == b.shape[0], f"addmm: Argument #3 (dense): Expected dim 0 size {a.shape[1]}, got {b.shape[0]}")
    if isinstance(b, _SparseTensor):
        return _mm_sparse(a, b)
    if b.ndim == 1:
        return mm(a, b[:, None])[:, 0]
    rows, columns = a._coords
    return _C.zeros(a.shape[0], b.shape[1], dtype=b.dtype, device=b.device).index_add(0, rows, a._data[:, None] * b.index_select(0, columns))


def _mm_sparse(a, b):
    """The product of two sparse matrices: each value of a is multiplied by the row of b selected by its column."""
    rows = b.to_sparse().to_sparse_csr()
    first, counts = rows._crow[a._coords[1]], rows._crow.diff()[a._coords[1]]
    which = _C.repeat_interleave(_C.arange(len(counts), device=a.device), counts)
    at = _C.arange(len(which), device=a.device) - (counts.cumsum(0) - counts)[which] + first[which]
    positions = _C.stack([a._coords[0].long()[which], rows._coords[1].long()[at]])
    return _SparseTensor(positions, a._data[which] * rows._data[at], (a.shape[0], b.shape[1])).coalesce().to_sparse(layout=a.layout)


spmm = mm


def addmm(mat: _C.Tensor, mat1: Any, mat2: _C.Tensor, *, beta: float = 1, alpha: float = 1) -> _C.Tensor:
    """Computes beta * mat + alpha * (mat1 @ mat2), with a sparse mat1."""
    beta, alpha = (_C.scalar_tensor(x, dtype=mat.dtype) if isinstance(x, complex) else x for x in (beta, alpha))
    return mat * beta + mm(mat1, mat2) * alpha


def sum(input: Any, dim: int | Sequence[int] | None = None, dtype: _C.dtype | None = None) -> Any:
    """Sums all elements, or over dimensions. The result is dense if all sparse dimensions are summed, else sparse."""
    size = _C.empty(input.shape, device="meta").sum(dim).shape  # raises for an invalid dim
    dims = range(input.ndim) if dim is None else {d % input.ndim for d in ([dim] if isinstance(dim, int) else dim)}
    left, inner = [d for d in range(input.sparse_dim()) if d not in dims], [d - input.sparse_dim() + 1 for d in dims if d >= input.sparse_dim()]
    values = input._data.to(dtype or input.dtype)
    values = values.sum(inner) if inner else values
    return _SparseTensor(input.to_sparse()._coords[left], values, size).coalesce() if left else values.sum(0)


def softmax(input: Any, dim: int, dtype: _C.dtype | None = None) -> Any:
    """Computes softmax along a dimension. Unspecified elements count as minus infinity."""
    return _softmax(_C._sparse_softmax, input, dim, dtype)


def log_softmax(input: Any, dim: int, dtype: _C.dtype | None = None) -> Any:
    """Computes the logarithm of softmax, numerically stable."""
    return _softmax(_C._sparse_log_softmax, input, dim, dtype)


def _softmax(op, input, dim, dtype):
    if getattr(input, "_crow", input) is not None:
        backend = "SparseCsr" * isinstance(input, _SparseTensor) + ("CUDA" if input.is_cuda else "CPU")
        raise NotImplementedError(f"Could not run 'aten::{op.__name__}' with arguments from the '{backend}' backend")
    coalesced = input.coalesce()
    return coalesced._with_values(op(coalesced._coords, coalesced._data.to(dtype or input.dtype), coalesced.shape, dim))


def _of_values(sparse, op):
    coalesced = sparse if sparse._crow is not None else sparse.coalesce()
    return coalesced._with_values(op(coalesced._data))


_FUNCTIONS = {"mm": mm, "matmul": mm, "mv": mm, "addmm": addmm, "add": _add, "mul": _mul, "sum": sum}
for _name in _PLAIN:
    setattr(_SparseTensor, _name, lambda self, _op=getattr(_C, _name): _of_values(self, _op))
for _name in "dtype device is_cuda requires_grad is_leaf grad_fn".split():
    setattr(_SparseTensor, _name, property(lambda self, _name=_name: getattr(self._data, _name)))
for _name, _dtype in _TYPES.items():
    setattr(_SparseTensor, _name, lambda self, _dtype=_dtype: self.to(_dtype))


# ---- construction
def _as_values(values, dtype, device, requires_grad):
    """Converts values to a tensor. With requires_grad it is a leaf; otherwise it keeps the graph of its source."""
    made = values if isinstance(values, _C.Tensor) else _C.tensor(values)
    made = made.to(device=device or made.device, dtype=dtype or made.dtype)
    if requires_grad:
        return made.detach().requires_grad_()
    return made.view(made.shape) if made.requires_grad else made.detach()


def _as_indices(indices, dtype, device):
    made = indices if isinstance(indices, _C.Tensor) else _C.tensor(indices, dtype=dtype)
    return made.to(device=device, dtype=made.dtype if dtype is None else dtype)


def sparse_coo_tensor(indices: Any, values: Any = None, size: Sequence[int] | None = None, *, dtype: _C.dtype | None = None, device: Any = None,
                      requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None) -> Any:
    """Creates a sparse COO tensor. Column i of `indices` is the position of values[i]; duplicate positions are summed. Without values, creates zeros of a
    size.

    >>> torch.sparse_coo_tensor([[0, 1], [2, 0]], [3., 4.], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if values is None:
        size = indices if size is None else size
        indices, values = _C.zeros(len(size), 0, dtype=_C.int64), _C.zeros(0, dtype=dtype)
    data = _as_values(values, dtype, device, requires_grad)
    at = _as_indices(indices, _C.int64, data.device)
    _check(at.ndim == 2, f"indices must be sparse_dim x nnz, but got: {list(at.shape)}")
    _check(at.shape[1] == len(data), f"indices and values must have same nnz, but got nnz from indices: {at.shape[1]}, nnz from values: {len(data)}")
    if size is None:
        size = [*((at.amax(1) + 1).tolist() if at.shape[1] else [0] * len(at)), *data.shape[1:]]
    _check(len(size) == len(at) + data.ndim - 1, f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {len(at)}, "
          f"dense_dim = {data.ndim - 1}")
    if check_invariants is not False and at.shape[1]:
        for d, (low, high) in enumerate(zip(at.amin(1).tolist(), at.amax(1).tolist())):
            _check(low >= 0, f"found negative index {low} for dim {d}")
            _check(high < size[d], f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {high}")
    return _SparseTensor(at, data, size, bool(is_coalesced))


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Sequence[int] | None = None, *, dtype: _C.dtype | None = None,
                      device: Any = None, requires_grad: bool = False, check_invariants: bool | None = None) -> Any:
    """Creates a sparse CSR matrix. The values of row i are values[crow_indices[i]:crow_indices[i + 1]]."""
    data = _as_values(values, dtype, device, requires_grad)
    crow, columns = (_as_indices(t, None, data.device) for t in (crow_indices, col_indices))
    if size is None:
        size = (len(crow) - 1, int(columns.max()) + 1 if len(columns) else 0)
    nnz, counts = len(columns), crow.diff()
    _check(data.ndim == 1 and len(size) == 2, "CSR requires a matrix with two sparse dimensions")
    _check(len(crow) == size[0] + 1, f"crow_indices.shape[-1] must be equal to the number of rows + 1 ({size[0] + 1}), but got {len(crow)}")
    _check(len(data) == nnz, f"number of elements in col_indices and values must be the same, but got {nnz} and {len(data)}")
    fine = check_invariants is False or (crow[0] == 0) & (crow[-1] == nnz) & (counts >= 0).all() & (columns >= 0).all() & (columns < size[1]).all()
    _check(bool(fine), "crow_indices must begin with 0, not decrease and end with the number of values, and col_indices be from 0 to the number of columns")
    rows = _C.repeat_interleave(_C.arange(size[0], dtype=columns.dtype, device=data.device), counts)
    return _SparseTensor(_C.stack([rows, columns]), data, size, True, crow)


def _of_dense(tensor, sparse_dim, layout):
    """Converts a dense tensor: keeps nonzero elements, or with sparse_dim the slices over the other dimensions with a nonzero."""
    sparse = tensor.ndim if sparse_dim is None else sparse_dim
    _check(0 < sparse <= tensor.ndim, f"to_sparse: sparse_dim argument must be in >=1 and <={tensor.ndim}, but got {sparse}")
    if layout not in (None, _C.sparse_coo, _C.sparse_csr):
        raise NotImplementedError(f"to_sparse: expected layout torch.sparse_coo or torch.sparse_csr, got {layout}")
    mask = tensor.detach() != 0
    at = (mask.flatten(sparse).any(-1) if sparse < tensor.ndim else mask).nonzero().t().contiguous()
    made = _SparseTensor(at, tensor[tuple(at)], tensor.shape, True)
    return made.to_sparse_csr() if layout == _C.sparse_csr else made
