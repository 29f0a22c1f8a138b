# SPDX-License-Identifier: Apache-2.0
"""Uninitialized parameters and buffers, and the lazy modules that use them."""
from __future__ import annotations

import phlox as torch
from phlox import Tensor, _C
from phlox.nn import Buffer, Module, Parameter

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

_UNKNOWN = ("Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` to "
            "initialize the parameters before accessing their attributes.")
_ALLOWED = frozenset("__hash__ __deepcopy__ __reduce_ex__ size copy_ is_complex is_floating_point half float double char short int long "
                     "cuda cpu to get_device bfloat16 type __get__ __set__".split())


class _Uninitialized:
    """The behaviour of a tensor before it has a shape."""

    _becomes = Tensor

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Allocates memory of the given shape and turns the tensor into a regular one."""
        device, dtype = device or self.data.device, dtype or self.data.dtype
        self.data = torch.empty(shape, device=device, dtype=dtype)
        self.__class__ = self._becomes

    @property
    def shape(self) -> Any:
        """Raises RuntimeError: the shape is not known yet."""
        raise RuntimeError(_UNKNOWN)

    def share_memory_(self) -> Any:
        """Raises RuntimeError: no memory is allocated yet."""
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the "
                           "parameters before calling `module.share_memory()`.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__

    def __reduce_ex__(self, proto: int) -> tuple:
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)

    def __deepcopy__(self, memo: dict) -> Any:
        memo[id(self)] = made = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Raises ValueError for functions that need a shape."""
        if getattr(func, "__name__", "") in _ALLOWED:
            return super().__torch_function__(func, types, args, kwargs or {})
        raise ValueError(f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
                         f"`LazyModule` or explicitly manipulating `torch.nn.parameter.{cls.__name__}` objects. When using "
                         "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch "
                         "functions")


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter without a shape. `materialize(shape)` turns it into a Parameter of that shape.

    >>> torch.nn.UninitializedParameter()
    <UninitializedParameter>
    """

    _becomes = cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        """Creates an uninitialized parameter on a device, with a dtype."""
        return Parameter.__new__(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(_Uninitialized, Tensor):
    """A buffer without a shape. `materialize(shape)` turns it into a tensor of that shape.

    >>> torch.nn.UninitializedBuffer()
    <UninitializedBuffer>
    """

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
                persistent: bool = True) -> UninitializedBuffer:
        """Creates an uninitialized buffer on a device, with a dtype."""
        made = torch.empty(0, device=device, dtype=dtype).requires_grad_(requires_grad).as_subclass(cls)
        made.persistent, made._is_buffer = persistent, True
        return made


def is_lazy(param: Any) -> bool:
    """Returns True if a tensor is uninitialized."""
    return isinstance(param, _Uninitialized)


def begin(module: Any) -> None:
    """Makes the empty tensors of a new lazy layer uninitialized and registers its initialization hooks."""
    for name, value in (*module._parameters.items(), *module._buffers.items()):
        if value is not None and value.dim() == 1 and not value.numel():
            value.__class__ = UninitializedParameter if name in module._parameters else UninitializedBuffer
    _register_hooks(module)


def _register_hooks(module):
    module._load_hook = module._register_load_state_dict_pre_hook(module._lazy_load_hook)
    module._initialize_hook = module.register_forward_pre_hook(module._infer_parameters, with_kwargs=True)


class LazyModuleMixin:
    """The methods of torch.nn.modules.lazy.LazyModuleMixin."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super(_C.nn.LazyModuleMixin, self).__init__(*args, **kwargs)
        _register_hooks(self)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if is_lazy(value) or keep_vars else value.detach()

    def _lazy_load_hook(self, state: Any, prefix: str, *rest: Any) -> None:
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            given = state.get(prefix + name)
            if is_lazy(value) and given is not None and not is_lazy(given):
                value.materialize(given.shape)

    def has_uninitialized_params(self) -> bool:
        """Returns True if the module has uninitialized parameters or buffers."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Initializes the parameters with the shapes inferred from forward's arguments."""
        if not _C._infer(self, args[0] if args else next(iter(kwargs.values()), None)):
            raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")
        for value in (*self._parameters.values(), *self._buffers.values()):
            if is_lazy(value):
                value.__class__ = value._becomes

    def _infer_parameters(self, module: Any, args: tuple, kwargs: dict | None = None) -> None:
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {type(self).__name__} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook
        if self.cls_to_become is not None:
            _C._become(self, self.cls_to_become)
