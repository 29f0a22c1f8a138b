# SPDX-License-Identifier: Apache-2.0
"""torch.sparse: tensors that keep what is not zero. A sparse tensor is a record of dense ones, its indices and values, and what it does is made of
their ops: so it runs on each device, and gradients go to the values, and through them, as those of any tensor."""
from __future__ import annotations

import math
import re
from typing import Any, Sequence

import phlox as torch
from phlox import _C

_C._name_missing(__name__)
_PLAIN = "abs relu sqrt square sign sin sinh tan tanh asin asinh atan atanh expm1 log1p ceil floor round trunc sgn erf".split()  # 0 stays 0
_TYPES = dict(double=_C.float64, float=_C.float32, half=_C.float16, bfloat16=_C.bfloat16, long=_C.int64, int=_C.int32)


def _body(tensor, indent):
    """The numbers of a tensor as it prints them, moved to the right."""
    plain = tensor.detach().cpu()
    text = re.sub(r", dtype=torch\.\w+\)$", ")", repr(plain))
    return (text if plain.numel() or "size=" in text else text[:-1] + f", size={tuple(plain.shape)})").replace("\n", "\n" + " " * indent)


def _need(condition, text):
    if not condition:
        raise RuntimeError(text)


class _SparseTensor:
    """A sparse tensor, COO (a column of `indices` for each of `values`) or, where `crow` says where rows begin, CSR. It is no Tensor: functions
    that know it are called through __torch_function__, and others refuse it by name."""

    def __init__(self, indices: _C.Tensor, values: _C.Tensor, size: Sequence[int], coalesced: bool = False, crow: _C.Tensor | None = None) -> None:
        self._at, self._kept, self.shape, self._ordered, self._crow = indices, values, _C.Size(size), coalesced, crow

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = _BESIDE_DENSE.get(func.__name__) or args and isinstance(args[0], cls) and getattr(cls, func.__name__, None)
        if not known:
            raise NotImplementedError(f"Could not run 'aten::{func.__name__}' with arguments from the 'Sparse' backend")
        return known(*args, **(kwargs or {}))

    # ---- what it is
    layout = property(lambda self: _C.sparse_coo if self._crow is None else _C.sparse_csr)
    ndim = property(lambda self: len(self.shape))
    is_sparse = property(lambda self: self._crow is None)
    is_sparse_csr = property(lambda self: self._crow is not None)
    grad = property(lambda self: None if self._kept.grad is None else self._with(self._kept.grad))

    size = lambda self, dim=None: self.shape if dim is None else self.shape[dim]
    dim = lambda self: self.ndim
    numel = lambda self: math.prod(self.shape)
    sparse_dim = lambda self: self._at.shape[0]
    dense_dim = lambda self: self.ndim - self.sparse_dim()
    _nnz = lambda self: self._at.shape[1]
    is_coalesced = lambda self: self._form("is_coalesced")._ordered
    _indices = lambda self: self._form("_indices")._at
    _values = lambda self: self._form("_values")._kept
    crow_indices = lambda self: self._form("crow_indices", True)._crow
    col_indices = lambda self: self._form("col_indices", True)._at[1]
    __len__ = lambda self: self.shape[0]

    def _form(self, name, csr=False):
        wanted, other = ("row compressed", "Sparse") if csr else ("coordinate", "SparseCsr")
        _need((self._crow is not None) == csr, f"{name} expected sparse {wanted} tensor layout but got {other}")
        return self

    def _settled(self, name):
        _need(self._ordered, f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
        return self

    indices = lambda self: self._form("indices")._settled("indices")._at
    values = lambda self: self._settled("values")._kept

    def __repr__(self) -> str:
        named = {"indices": self._at} if self._crow is None else {"crow_indices": self._crow, "col_indices": self._at[1]}
        text = "tensor(" + ",\n       ".join(f"{k}={_body(t, 8 + len(k))}" for k, t in {**named, "values": self._kept}.items())
        default = _C.get_default_dtype()
        usual = (default, _C.complex128 if default == _C.float64 else _C.complex64, _C.int64, _C.bool)
        grad = f"grad_fn=<{self.grad_fn.name()}>" if self.grad_fn else "requires_grad=True" if self.requires_grad else ""
        notes = [f"device='{self.device}'" if self.is_cuda else "", f"size={tuple(self.shape)}", f"nnz={self._nnz()}",
                 "" if self.dtype in usual else f"dtype={self.dtype}", f"layout={self.layout}", grad]
        room = 0 if self._crow is None else 80 - (len(text) - text.rfind("\n") + 1)  # the notes of COO begin a line
        for note in filter(None, notes):
            fits = len(note) + 2 <= room
            text += (", " if fits else ",\n       ") + note
            room = room - len(note) - 2 if fits else 73 - len(note)
        return text + ")"

    # ---- the same in another form
    def _with(self, values):
        return _SparseTensor(self._at, values, self.shape, self._ordered, self._crow)

    def _flat(self):
        """The number of each value's place, in row-major order."""
        flat = _C.zeros_like(self._at[0], dtype=_C.int64)
        for row, n in zip(self._at, self.shape):
            flat = flat * n + row
        return flat

    def coalesce(self) -> _SparseTensor:
        """With each place once, in order: values of the same place are added up."""
        if self._form("coalesce")._ordered:
            return self
        places, which = _C.unique(self._flat(), return_inverse=True)
        values = _C.zeros(len(places), *self._kept.shape[1:], dtype=self.dtype, device=self.device).index_add(0, which, self._kept)
        return _SparseTensor(_C.stack(_C.unravel_index(places, self.shape[:self.sparse_dim()])), values, self.shape, True)

    def to_dense(self, dtype: _C.dtype | None = None) -> _C.Tensor:
        """A tensor with all elements."""
        count = math.prod(self.shape[:self.sparse_dim()])
        made = _C.zeros(count, *self._kept.shape[1:], dtype=self.dtype, device=self.device).index_add(0, self._flat(), self._kept)
        return made.reshape(self.shape).to(dtype or self.dtype)

    def to_sparse(self, sparse_dim: int | None = None, *, layout: _C.layout | None = None) -> _SparseTensor:
        other = self if self._crow is None else _SparseTensor(self._at.long(), self._kept, self.shape, True)
        return self.to_sparse_csr() if layout == _C.sparse_csr else other

    to_sparse_coo = to_sparse

    def to_sparse_csr(self) -> _SparseTensor:
        """The same by rows, in order."""
        if self._crow is not None:
            return self
        _need(self.ndim == 2 and not self.dense_dim(), f"only matrices of two sparse dimensions have CSR form here, not tensors of {self.ndim} dimensions")
        ordered = self.coalesce()
        crow = _C.searchsorted(ordered._at[0].contiguous(), _C.arange(self.shape[0] + 1, device=self.device))
        return _SparseTensor(ordered._at, ordered._kept, self.shape, True, crow)

    def to(self, *args: Any, **options: Any) -> _SparseTensor:
        values = self._kept.to(*args, **options)
        crow = None if self._crow is None else self._crow.to(values.device)
        return self if values is self._kept else _SparseTensor(self._at.to(values.device), values, self.shape, self._ordered, crow)

    cpu = lambda self: self.to("cpu")
    cuda = lambda self, device="cuda": self.to(device)
    clone = lambda self: self._with(self._kept.clone())
    detach = lambda self: self._with(self._kept.detach())

    def requires_grad_(self, requires_grad: bool = True) -> _SparseTensor:
        self._kept.requires_grad_(requires_grad)
        return self

    def transpose(self, dim0: int, dim1: int) -> _SparseTensor:
        """COO with two of its sparse dimensions exchanged."""
        order, many = list(range(self.ndim)), self.sparse_dim()
        order[dim0], order[dim1] = order[dim1], order[dim0]
        _need(max(order[:many]) < many, "transpose(): can only transpose sparse dimensions of a sparse tensor")
        return _SparseTensor(self.to_sparse()._at[order[:many]], self._kept, [self.shape[d] for d in order])

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
    return a._with(a._kept / b)


def _add(a, b, *, alpha=1):
    _need(isinstance(b, _SparseTensor), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not isinstance(a, _SparseTensor):
        return a + b.to_dense() * alpha
    _need(a.shape == b.shape, f"add: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")
    places = _C.cat([a.to_sparse()._at, b.to_sparse()._at], 1)
    return _SparseTensor(places, _C.cat([a._kept, b._kept * alpha]), a.shape).coalesce().to_sparse(layout=a.layout)


def _mul(a, b):
    if not isinstance(a, _SparseTensor):
        a, b = b, a
    if not isinstance(b, _SparseTensor) and _single(b):
        return a._with(a._kept * b)
    _need(a.shape == b.shape, f"mul: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")
    kept = a if a._crow is not None else a.coalesce()
    if not isinstance(b, _SparseTensor):
        return kept._with(kept._kept * b[tuple(kept._at)])
    b = b.to_sparse().coalesce()
    flat, others = kept._flat(), b._flat()
    there = _C.isin(flat, others)
    made = _SparseTensor(kept._at[:, there], kept._kept[there] * b._kept[_C.isin(others, flat)], a.shape, True)
    return made.to_sparse(layout=a.layout)


def mm(sparse: Any, dense: Any) -> Any:
    """The product of two matrices of which one is sparse, or both, which makes a sparse one; or of a sparse matrix and a vector. Gradients go to the values
    of sparse ones, and to dense ones."""
    a, b = sparse, dense
    if not isinstance(a, _SparseTensor):
        return mm(b.t(), a.t()).t() if isinstance(b, _SparseTensor) else _C.mm(a, b)
    _need(a.ndim == 2 and not a.dense_dim(), f"mm: Argument #1 (sparse) must be a matrix, but it has {a.ndim} dimensions")
    _need(a.shape[1] == b.shape[0], f"addmm: Argument #3 (dense): Expected dim 0 size {a.shape[1]}, got {b.shape[0]}")
    if isinstance(b, _SparseTensor):
        return _of_sparse(a, b)
    if b.ndim == 1:
        return mm(a, b[:, None])[:, 0]
    rows, columns = a._at
    return _C.zeros(a.shape[0], b.shape[1], dtype=b.dtype, device=b.device).index_add(0, rows, a._kept[:, None] * b.index_select(0, columns))


def _of_sparse(a, b):
    """Each value of a meets the row of b that its column names."""
    rows = b.to_sparse().to_sparse_csr()
    first, counts = rows._crow[a._at[1]], rows._crow.diff()[a._at[1]]
    which = _C.repeat_interleave(_C.arange(len(counts), device=a.device), counts)
    at = _C.arange(len(which), device=a.device) - (counts.cumsum(0) - counts)[which] + first[which]
    places = _C.stack([a._at[0].long()[which], rows._at[1].long()[at]])
    return _SparseTensor(places, a._kept[which] * rows._kept[at], (a.shape[0], b.shape[1])).coalesce().to_sparse(layout=a.layout)


spmm = mm


def addmm(mat: _C.Tensor, mat1: Any, mat2: _C.Tensor, *, beta: float = 1, alpha: float = 1) -> _C.Tensor:
    """beta times mat, and alpha times the product of mat1, which is sparse, and mat2."""
    return mat * beta + mm(mat1, mat2) * alpha


def sum(input: Any, dim: int | Sequence[int] | None = None, dtype: _C.dtype | None = None) -> Any:
    """The sum of all elements, or over dimensions: a tensor if all sparse ones are among them, or a sparse one."""
    size = _C.empty(input.shape, device="meta").sum(dim).shape  # which refuses what is no dimension
    dims = range(input.ndim) if dim is None else {d % input.ndim for d in ([dim] if isinstance(dim, int) else dim)}
    left, inner = [d for d in range(input.sparse_dim()) if d not in dims], [d - input.sparse_dim() + 1 for d in dims if d >= input.sparse_dim()]
    values = input._kept.to(dtype or input.dtype)
    values = values.sum(inner) if inner else values
    return _SparseTensor(input.to_sparse()._at[left], values, size).coalesce() if left else values.sum(0)


def softmax(input: Any, dim: int, dtype: _C.dtype | None = None) -> Any:
    """Turns the values along a dimension into probabilities; what a sparse tensor does not keep counts as minus infinity."""
    return _softmax(_C._sparse_softmax, input, dim, dtype)


def log_softmax(input: Any, dim: int, dtype: _C.dtype | None = None) -> Any:
    """The logarithm of softmax, without loss of digits."""
    return _softmax(_C._sparse_log_softmax, input, dim, dtype)


def _softmax(op, input, dim, dtype):
    if getattr(input, "_crow", input) is not None:
        backend = "SparseCsr" * isinstance(input, _SparseTensor) + ("CUDA" if input.is_cuda else "CPU")
        raise NotImplementedError(f"Could not run 'aten::{op.__name__}' with arguments from the '{backend}' backend")
    kept = input.coalesce()
    return kept._with(op(kept._at, kept._kept.to(dtype or input.dtype), kept.shape, dim))


def _of_values(sparse, op):
    kept = sparse if sparse._crow is not None else sparse.coalesce()
    return kept._with(op(kept._kept))


_BESIDE_DENSE = {"mm": mm, "matmul": mm, "mv": mm, "addmm": addmm, "add": _add, "mul": _mul, "sum": sum}
for _name in _PLAIN:
    setattr(_SparseTensor, _name, lambda self, _op=getattr(_C, _name): _of_values(self, _op))
for _name in "dtype device is_cuda requires_grad is_leaf grad_fn".split():
    setattr(_SparseTensor, _name, property(lambda self, _name=_name: getattr(self._kept, _name)))
for _name, _dtype in _TYPES.items():
    setattr(_SparseTensor, _name, lambda self, _dtype=_dtype: self.to(_dtype))


# ---- making them
def _given(values, dtype, device, requires_grad):
    """Values that were given, as a tensor: one that is asked to want gradients is a leaf, others belong to the graph of what they come from."""
    made = values if isinstance(values, _C.Tensor) else _C.tensor(values)
    made = made.to(device=device or made.device, dtype=dtype or made.dtype)
    if requires_grad:
        return made.detach().requires_grad_()
    return made.view(made.shape) if made.requires_grad else made.detach()


def _places(indices, dtype, device):
    made = indices if isinstance(indices, _C.Tensor) else _C.tensor(indices, dtype=dtype)
    return made.to(device=device, dtype=made.dtype if dtype is None else dtype)


def sparse_coo_tensor(indices: Any, values: Any = None, size: Sequence[int] | None = None, *, dtype: _C.dtype | None = None, device: Any = None,
                      requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None) -> Any:
    """A sparse tensor with `values` at places that are the columns of `indices`; those of one place count together. Without values, zeros of a size.

    >>> torch.sparse_coo_tensor([[0, 1], [2, 0]], [3., 4.], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if values is None:
        size = indices if size is None else size
        indices, values = _C.zeros(len(size), 0, dtype=_C.int64), _C.zeros(0, dtype=dtype)
    kept = _given(values, dtype, device, requires_grad)
    at = _places(indices, _C.int64, kept.device)
    _need(at.ndim == 2, f"indices must be sparse_dim x nnz, but got: {list(at.shape)}")
    _need(at.shape[1] == len(kept), f"indices and values must have same nnz, but got nnz from indices: {at.shape[1]}, nnz from values: {len(kept)}")
    if size is None:
        size = [*((at.amax(1) + 1).tolist() if at.shape[1] else [0] * len(at)), *kept.shape[1:]]
    _need(len(size) == len(at) + kept.ndim - 1, f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {len(at)}, "
          f"dense_dim = {kept.ndim - 1}")
    if check_invariants is not False and at.shape[1]:
        for d, (low, high) in enumerate(zip(at.amin(1).tolist(), at.amax(1).tolist())):
            _need(low >= 0, f"found negative index {low} for dim {d}")
            _need(high < size[d], f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {high}")
    return _SparseTensor(at, kept, size, bool(is_coalesced))


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Sequence[int] | None = None, *, dtype: _C.dtype | None = None,
                      device: Any = None, requires_grad: bool = False, check_invariants: bool | None = None) -> Any:
    """A sparse matrix by rows: the values of row i are from crow_indices[i] on, up to crow_indices[i + 1]."""
    kept = _given(values, dtype, device, requires_grad)
    crow, columns = (_places(t, None, kept.device) for t in (crow_indices, col_indices))
    if size is None:
        size = (len(crow) - 1, int(columns.max()) + 1 if len(columns) else 0)
    nnz, counts = len(columns), crow.diff()
    _need(kept.ndim == 1 and len(size) == 2, "only matrices of two sparse dimensions have CSR form here")
    _need(len(crow) == size[0] + 1, f"crow_indices.shape[-1] must be equal to the number of rows + 1 ({size[0] + 1}), but got {len(crow)}")
    _need(len(kept) == nnz, f"number of elements in col_indices and values must be the same, but got {nnz} and {len(kept)}")
    fine = check_invariants is False or (crow[0] == 0) & (crow[-1] == nnz) & (counts >= 0).all() & (columns >= 0).all() & (columns < size[1]).all()
    _need(bool(fine), "crow_indices must begin with 0, not decrease and end with the number of values, and col_indices be from 0 to the number of columns")
    rows = _C.repeat_interleave(_C.arange(size[0], dtype=columns.dtype, device=kept.device), counts)
    return _SparseTensor(_C.stack([rows, columns]), kept, size, True, crow)


def _of_dense(tensor, sparse_dim, layout):
    """The elements of a tensor that are not 0, or the lines behind its first dimensions that are not."""
    sparse = tensor.ndim if sparse_dim is None else sparse_dim
    _need(0 < sparse <= tensor.ndim, f"to_sparse: sparse_dim argument must be in >=1 and <={tensor.ndim}, but got {sparse}")
    if layout not in (None, _C.sparse_coo, _C.sparse_csr):
        raise NotImplementedError(f"to_sparse: layout {layout}: there are torch.sparse_coo and torch.sparse_csr")
    kept = tensor.detach() != 0
    at = (kept.flatten(sparse).any(-1) if sparse < tensor.ndim else kept).nonzero().t().contiguous()
    made = _SparseTensor(at, tensor[tuple(at)], tensor.shape, True)
    return made.to_sparse_csr() if layout == _C.sparse_csr else made
