# SPDX-License-Identifier: Apache-2.0
"""Methods of Tensor that are not performance-critical: copying, pickling, conversion by type name,
and the new_* factories."""
from __future__ import annotations

import warnings

from phlox import _C, _lowrank, _utils, sparse

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from phlox._typing import Device, Number

_Parameter = _C._Parameter


def _like(made, model):
    """Returns `made` with the class, requires_grad and attributes of `model`."""
    cls = type(model)
    if issubclass(cls, _Parameter):
        made = _Parameter.__new__(cls, made, model.requires_grad)
    else:
        made = made if cls is _C.Tensor else made.as_subclass(cls)
        made.requires_grad_(model.requires_grad)
    if model.__dict__:
        made.__dict__.update(model.__dict__)
    return made


def _memory_copied(tensor, memo):
    """Returns a tensor over a copy of the whole storage. The memo keeps the copied storage: tensors
    sharing memory have copies sharing memory. Parameters, and conjugate and negative views, are
    cloned separately, as in PyTorch."""
    plain = tensor.detach()
    if isinstance(tensor, _Parameter) or _C._get_tensor_metadata(tensor):
        return plain.clone()
    storage = tensor.untyped_storage()
    key = "storage", hash(storage), tensor.dtype
    if key not in memo:
        memo[key] = plain.as_strided((storage.nbytes() // tensor.itemsize,), (1,), 0).clone()
    return memo[key].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).detach()


def _rebuild_from_type_v2(func, new_type, args, state):
    """For pickles: calls func(*args), converts the result to new_type and restores its
    attributes."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.detach().as_subclass(new_type).requires_grad_(made.requires_grad)  # a leaf
    if getattr(new_type, "__setstate__", None) is not _C.Tensor.__setstate__:
        made.__setstate__(state)
        return made
    return _utils.with_state(made, state)


class Tensor:
    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support "
                               "the deepcopy protocol at the moment.  If you were attempting to "
                               "deepcopy a module, this may be because of a "
                               "torch.nn.utils.weight_norm usage, see "
                               "https://github.com/pytorch/pytorch/pull/103001")
        if id(self) in memo:
            return memo[id(self)]
        copy = _like(_memory_copied(self, memo), self)
        if self.grad is not None and not isinstance(self, _Parameter):
            copy.grad = _memory_copied(self.grad, memo)
        memo[id(self)] = copy
        return copy

    def __copy__(self) -> Tensor:
        """Returns a detached tensor sharing this tensor's memory."""
        return _like(self.detach(), self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The pickle encodes the class: None is Tensor, True is Parameter, others are themselves.
        if self.requires_grad and not self.is_leaf:
            raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which "
                               "requires_grad, since autograd does not support crossing process "
                               "boundaries.  If you just want to transfer the data, call detach() "
                               "on the tensor before serializing (e.g., putting it on the queue).")
        cls = {_C.Tensor: None, _Parameter: True}.get(type(self), type(self))
        data = b"" if self.is_meta else _C._bytes_of(self)
        values = (cls, data, list(self.shape), str(self.dtype)[len("torch."):],
                  str(self.device), self.requires_grad)
        return _C._rebuild_tensor, values, self.__dict__ or None

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and type(self) is _C.Tensor:
            return format(self.item(), spec)
        if spec:
            raise TypeError(f"unsupported format string passed to {type(self).__name__}.__format__")
        return str(self)

    def lu(self, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
        """See torch.lu()."""
        return _lowrank.lu(self, pivot, get_infos)

    def to_sparse(self, sparse_dim: int | None = None, *, layout: _C.layout | None = None) -> Any:
        """Converts a dense tensor to a sparse one, COO or `layout`. `sparse_dim` is the number of
        sparse dimensions; the values are slices over the other dimensions."""
        return sparse._of_dense(self, sparse_dim, layout)

    def to_sparse_coo(self) -> Any:
        """Converts a dense tensor to a sparse COO tensor."""
        return sparse._of_dense(self, None, None)

    def to_sparse_csr(self) -> Any:
        """Converts a dense tensor to a sparse CSR tensor."""
        return sparse._of_dense(self, None, _C.sparse_csr)

    def to_dense(self, dtype: _C.dtype | None = None) -> Tensor:
        """Returns the tensor itself, already dense, converted to `dtype` if given."""
        return self if dtype is None else self.to(dtype)

    def apply_(self, callable: Callable[[Any], Number]) -> Tensor:
        """Replaces each element x with callable(x), in place. CPU only, and slow."""
        return _mapped(self, callable)

    def map_(self, tensor: Tensor, callable: Callable[[Any, Any], Number]) -> Tensor:
        """Replaces each element x with callable(x, y), in place; y is the corresponding element of
        `tensor`. CPU only, and slow."""
        if not isinstance(tensor, _C.Tensor):
            raise TypeError(f"map_(): argument 'tensor' must be Tensor, not "
                            f"{type(tensor).__name__}")
        return _mapped(self, callable, tensor)

    def __rdiv__(self, other: Tensor | Number) -> Tensor:
        """Returns other / self. Python 2's name."""
        return self.reciprocal() * other

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Returns the name of the tensor's type, or the tensor converted to `dtype`.

        Args:
            dtype (torch.dtype, str or type): torch.float32, "torch.FloatTensor", torch.FloatTensor
            non_blocking (bool): if True, a copy from pinned memory is asynchronous

        >>> torch.ones(2).type()
        'torch.FloatTensor'
        """
        if dtype is None:
            where = "torch." if self.is_cpu else f"torch.{self.device.type}."
            return where + _C._dtype_class(self.dtype) + "Tensor"
        if isinstance(dtype, _C.dtype):
            return self.to(dtype, non_blocking=non_blocking)
        device = None
        if isinstance(dtype, type) and type(dtype).__name__ == "tensortype":
            dtype, device = dtype.dtype, dtype._device
        elif isinstance(dtype, str):
            found = _C._type_of_name(dtype)
            if found is None:
                raise ValueError(f"invalid type: '{dtype}'")
            dtype, device = found
        elif dtype not in (float, int):
            raise TypeError("dtype must be a type, str, or dtype object")
        if device is not None and device.type == self.device.type:
            device = None
        return self.to(device=device, dtype=dtype, non_blocking=non_blocking)

    def set_(self, source: Any = ..., storage_offset: int | None = None,
             size: Sequence[int] | None = None, stride: Sequence[int] | None = None) -> Tensor:
        """Replaces the memory by that of a tensor or a storage, seen with the given geometry; without
        arguments by none. The storage grows if it is too small."""
        if self.requires_grad and self.is_leaf and _C.is_grad_enabled():
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        storage, geometry = _source_of(self, source)
        if size is not None:
            stride = _C.empty(size, device="meta").stride() if stride is None else stride
            geometry = storage_offset or 0, size, stride
            if len(size) != len(stride):
                raise RuntimeError(f"unequal size length ({len(size)}) and stride length ({len(stride)})")
            if geometry[0] < 0:
                raise RuntimeError(f"Tensor: invalid storage offset {geometry[0]}")
            last = geometry[0] + sum((n - 1) * step for n, step in zip(size, stride))
            if min(size, default=1) and storage.nbytes() < (last + 1) * self.itemsize:
                storage.resize_((last + 1) * self.itemsize)
        if storage.device != self.device:
            raise RuntimeError(f"Attempted to set the storage of a tensor on device \"{self.device}\" to a "
                               f"storage on different device \"{storage.device}\".  This is no longer "
                               "allowed; the devices must match.")
        self.data = _C._tensor_of_storage(storage, self.dtype, *geometry)
        _C.autograd.graph.increment_version(self)
        return self

    def new_tensor(self, data: Any, *, dtype: _C.dtype | None = None, device: Device | None = None,
                   requires_grad: bool = False, layout: _C.layout | None = None,
                   pin_memory: bool = False) -> Tensor:
        """torch.tensor(data) with this tensor's dtype and device as defaults."""
        dtype = self.dtype if dtype is None else dtype
        device = self.device if device is None else device
        if isinstance(data, _C.Tensor):
            warnings.warn("To copy construct from a tensor, it is recommended to use "
                          "sourceTensor.detach().clone() or "
                          "sourceTensor.detach().clone().requires_grad_(True), rather than "
                          "tensor.new_tensor(sourceTensor).", stacklevel=2)
            data = data.detach().to(device, dtype, copy=True)
            return data.requires_grad_(requires_grad)
        return _C.tensor(data, dtype=dtype, device=device, requires_grad=requires_grad,
                         pin_memory=pin_memory, layout=layout)

    def new(self, *data: Any, **options: Any) -> Tensor:
        """Creates a tensor of this tensor's type from sizes or from a sequence of values. Legacy
        constructor."""
        values = len(data) == 1 and isinstance(data[0], (list, tuple))
        if values and not isinstance(data[0], _C.Size):
            return _C.tensor(data[0], dtype=self.dtype, device=self.device)
        return self.new_empty(*(data or (0,)), **options)


def _source_of(tensor, source):
    """Returns the storage of a source of set_, and its offset, size and strides."""
    if source is ...:
        source = _C.empty(0, dtype=tensor.dtype, device=tensor.device)
    if isinstance(source, _C.Tensor):
        if source.dtype != tensor.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {tensor.dtype}")
        return source.untyped_storage(), (source.storage_offset(), source.shape, source.stride())
    if not isinstance(source, (_C.UntypedStorage, _C.TypedStorage)):
        raise TypeError("set_() received an invalid combination of arguments - got "
                        f"({type(source).__name__}), but expected a Tensor or a storage")
    storage = source.untyped() if isinstance(source, _C.TypedStorage) else source
    return storage, (0, (storage.nbytes() // tensor.itemsize,), (1,))


def _mapped(tensor, function, *others):
    if tensor.is_cuda:
        raise TypeError("apply_ is only implemented on CPU tensors")
    if tensor.requires_grad:
        raise RuntimeError("Can't call apply_() on Variable that requires grad. Use "
                           "var.detach().apply_() instead.")
    if any(other.numel() != tensor.numel() or other.dtype != tensor.dtype for other in others):
        raise RuntimeError("map_: the tensors differ in size or dtype")
    values = (t.detach().reshape(-1).tolist() for t in (tensor, *others))
    with _C.no_grad():
        made = _C.tensor([function(*v) for v in zip(*values)], dtype=tensor.dtype)
        return tensor.copy_(made.view(tensor.shape))
