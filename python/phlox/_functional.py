# SPDX-License-Identifier: Apache-2.0
"""Functions of torch whose work is in their arguments: broadcasting, grids, types of results."""
from __future__ import annotations

from phlox import _C

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from phlox._typing import Device, Number


def _joined(shape, other):
    """The shape that two shapes are broadcast to."""
    dims = max(len(shape), len(other))
    a, b = ([1] * (dims - len(s)) + list(s) for s in (shape, other))
    for i, (x, y) in enumerate(zip(a, b)):
        if x != 1 and y not in (1, x):
            raise RuntimeError(f"The size of tensor a ({x}) must match the size of tensor b ({y}) "
                               f"at non-singleton dimension {i}")
    return [y if x == 1 else x for x, y in zip(a, b)]


def _need_tensor(function, argument, value):
    if not isinstance(value, _C.Tensor):
        raise TypeError(f"{function}(): argument '{argument}' must be Tensor, not "
                        f"{type(value).__name__}")


def _tensors(given, function):
    """The tensors of f(a, b, c) or f([a, b, c])."""
    if len(given) == 1 and not isinstance(given[0], _C.Tensor):
        given = given[0]
    if not hasattr(given, "__len__"):
        raise TypeError("expected a sequence of Tensors")
    for tensor in given:
        if not isinstance(tensor, _C.Tensor):
            _need_tensor(function, "tensors", tensor)
    return given


def broadcast_tensors(*tensors: _C.Tensor | Sequence[_C.Tensor]) -> tuple[_C.Tensor, ...]:
    """Views of the tensors with one size, by the rules of broadcasting.

    >>> a, b = torch.broadcast_tensors(torch.zeros(3), torch.zeros(2, 1))
    >>> a.shape == b.shape == (2, 3)
    True
    """
    tensors, shape = _tensors(tensors, "broadcast_tensors"), []
    for tensor in tensors:
        shape = _joined(shape, tensor.shape)
    return tuple(tensor.expand(shape) for tensor in tensors)


def broadcast_shapes(*shapes: int | Sequence[int]) -> _C.Size:
    """The size that sizes are broadcast to.

    >>> torch.broadcast_shapes((3,), (2, 1))
    torch.Size([2, 3])
    """
    joined = []
    for shape in shapes:
        try:
            joined = _joined(joined, (shape,) if isinstance(shape, int) else shape)
        except RuntimeError:
            raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single "
                               "shape") from None
    return _C.Size(joined)


def meshgrid(*tensors: _C.Tensor | Sequence[_C.Tensor],
             indexing: str | None = None) -> tuple[_C.Tensor, ...]:
    """Grids of coordinates: of n tensors, n of n dimensions, each with one tensor's values along
    one.

    Args:
        tensors: of one dimension, or none
        indexing (str): "ij" (the default), or "xy", where the first two dimensions are exchanged

    >>> torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4]), indexing='ij')[0]
    tensor([[1, 1],
            [2, 2]])
    """
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError('torch.meshgrid: indexing must be one of "xy" or "ij", but received: '
                           f'{indexing}')
    tensors = _tensors(tensors, "meshgrid")
    for tensor in tensors:
        if tensor.dim() > 1:
            raise RuntimeError("torch.meshgrid: Expected 0D or 1D tensor in the tensor list but "
                               f"got: {tensor}")
        if tensor.dtype != tensors[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
        if tensor.device != tensors[0].device:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    dims = list(range(len(tensors)))
    if indexing == "xy" and len(dims) > 1:
        dims[:2] = 1, 0
    shape = [tensors[dim].numel() for dim in dims]
    return tuple(tensor.reshape([-1 if i == dims[k] else 1 for i in range(len(dims))]).expand(shape)
                 for k, tensor in enumerate(tensors))


def _category(dtype):
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != _C.bool)


def result_type(tensor: _C.Tensor | Number, other: _C.Tensor | Number) -> _C.dtype:
    """The dtype of what an operation on the two gives.

    >>> torch.result_type(torch.tensor([1, 2]), 1.0)
    torch.float32
    """
    # A tensor with dimensions counts before one without, and that before a number: what comes after
    # adds its dtype only if it is of a higher kind, as float is to int.
    kinds = [None, None, None]
    for value in tensor, other:
        if isinstance(value, _C.Tensor):
            kind, dtype = (0 if value.dim() else 1), value.dtype
        else:
            if not isinstance(value, complex) and not hasattr(value, "__float__"):
                raise TypeError(f"must be Number, not {type(value).__name__}")
            kind, dtype = 2, _C.tensor(value).dtype
        kinds[kind] = dtype if kinds[kind] is None else _C.promote_types(kinds[kind], dtype)
    result = None
    for dtype in kinds:
        if result is None:
            result = dtype
        elif dtype is not None and _category(dtype) > _category(result):
            if not dtype.is_complex:
                result = _C.promote_types(result, dtype)
            else:
                result = result.to_complex() if result.is_floating_point else dtype
    return result


def allclose(input: _C.Tensor, other: _C.Tensor, rtol: float = 1e-05, atol: float = 1e-08,
             equal_nan: bool = False) -> bool:
    """Whether isclose holds everywhere; its arguments.

    >>> torch.allclose(torch.tensor([1., 2.]), torch.tensor([1., 2.1]))
    False
    """
    _need_tensor("allclose", "input", input)
    _need_tensor("allclose", "other", other)
    return bool(_C.isclose(input, other, rtol, atol, equal_nan).all())



def asarray(obj: Any, *, dtype: _C.dtype | None = None, device: Device | None = None,
            copy: bool | None = None, requires_grad: bool = False) -> _C.Tensor:
    """`obj` as a tensor, which shares its memory where it can and copy is not True.

    Args:
        obj: what torch.tensor takes, or a storage
        dtype (torch.dtype), device (torch.device): of the tensor; another than the object's makes
            a copy
        copy (bool or None): True makes one in any case
        requires_grad (bool): whether operations on it are recorded
    """
    if _C.is_storage(obj):
        obj = _C._storage_elements(obj)
    if not copy:
        made = _C.as_tensor(obj, dtype=dtype, device=device)
        return made.requires_grad_() if requires_grad else made
    if isinstance(obj, _C.Tensor):
        obj = obj.detach().clone()
        return _C.as_tensor(obj, dtype=dtype, device=device).requires_grad_(requires_grad)
    return _C.tensor(obj, dtype=dtype, device=device, requires_grad=requires_grad)


def scalar_tensor(s: Number, *, dtype: _C.dtype | None = None, device: Device | None = None,
                  requires_grad: bool = False, pin_memory: bool = False,
                  layout: _C.layout | None = None) -> _C.Tensor:
    """A tensor without dimensions that holds a number, of the default dtype.

    >>> torch.scalar_tensor(3)
    tensor(3.)
    """
    return _C.tensor(s, dtype=_C.get_default_dtype() if dtype is None else dtype, device=device,
                     requires_grad=requires_grad, pin_memory=pin_memory, layout=layout)


def einsum(equation: Any, *operands: Any) -> _C.Tensor:
    """Sums of products along dimensions that are named by letters.

    Args:
        equation (str): letters of each operand's dimensions, and behind "->" those of the result
        operands (Tensors, or a sequence of them)

    >>> torch.einsum('ij,jk->ik', torch.ones(2, 3), torch.ones(3, 2))
    tensor([[3., 3.],
            [3., 3.]])
    """
    if not isinstance(equation, str):
        raise TypeError("einsum(): argument 'equation' (position 1) must be str, not "
                        f"{type(equation).__name__}")
    return _C.einsum(equation, list(_tensors(operands, "einsum")))


def is_nonzero(input: _C.Tensor) -> bool:
    """The truth of a tensor of one element; RuntimeError for others."""
    _need_tensor("is_nonzero", "input", input)
    return bool(input)


def numel(input: _C.Tensor) -> int:
    """Number of elements."""
    _need_tensor("numel", "input", input)
    return input.numel()


def get_device_module(device: Device | None = None) -> Any:
    """The module of a device's type, torch.cuda or torch.cpu; without one, that of the accelerator.

    >>> torch.get_device_module("cpu") is torch.cpu
    True
    """
    if device is None:
        return _C.cuda if _C.cuda.is_available() else _C.cpu
    kind = _C.device(device).type
    if kind not in ("cpu", "cuda"):
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.")
    return getattr(_C, kind)
