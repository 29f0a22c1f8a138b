# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.parametrize: tensors of a module computed on access from other parameters."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import phlox as torch
from phlox import Tensor
from phlox.nn import Module, ModuleDict, ModuleList, Parameter

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """A context manager that caches parametrized tensors until the outermost context exits."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module, name, tensor):
    (module.register_parameter if isinstance(tensor, Parameter) else module.register_buffer)(name, tensor)


def _require_type(given, kind, text, dot=""):
    if not isinstance(given, kind):
        raise ValueError(f"{text}{type(given).__name__}{dot}")


def _require_same(names, wanted, given, text, was, now):
    """Raises ValueError if one of the named attributes differs; {} in the texts is replaced by its name."""
    for name in names:
        if getattr(wanted, name) != getattr(given, name):
            lines = text, f"{was}: {getattr(wanted, name)}", f"{now}: {getattr(given, name)}"
            raise ValueError("\n".join(lines).replace("{}", name))


class ParametrizationList(ModuleList):
    """A sequence of parametrizations of a tensor, each applied to the result of the previous one. The input of the first is the
    parameter or buffer `original`, or several: `original0`, `original1`, ..."""

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe, new, text = unsafe, original, "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got "
        with torch.no_grad():
            for module in reversed(list(self)):
                try:
                    new = module.right_inverse(new) if hasattr(module, "right_inverse") else new
                except NotImplementedError:
                    pass  # keeps the tensor's values as the original's
        _require_type(new, (Tensor, Sequence), text)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            _require_same(("dtype", "device"), original, new, "When `right_inverse` outputs one tensor, it may not change the {}.",
                       "original.{}", "right_inverse(original).{}")
        for i, tensor in enumerate(() if self.is_tensor else new):
            _require_type(tensor, Tensor, f"{text}element {i} of the sequence with type ", ".")
            tensor = Parameter(tensor, original.requires_grad) if isinstance(original, Parameter) else tensor
            _register(self, f"original{i}", tensor.requires_grad_(original.requires_grad))
        if not unsafe:
            result = self._apply_all([new] if self.is_tensor else self._originals())
            _require_type(result, Tensor, "A parametrization must return a tensor. Got ", ".")
            _require_same(("dtype", "shape"), original, result, "Registering a parametrization may not change the {} of the tensor, "
                       "unless `unsafe` flag is enabled.", "unparametrized {}", "parametrized {}")
        if self.is_tensor:
            original.data = new.data
            _register(self, "original", original)

    def _originals(self):
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def _apply_all(self, values):
        for module in self:
            values = [module(*values)]
        return values[0]

    def forward(self) -> Any:
        """Computes the parametrized tensor."""
        return self._apply_all(self._originals())

    @torch.no_grad()
    def right_inverse(self, value: Any) -> None:
        """Assigns a value: sets the originals by right_inverse, last parametrization first."""
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
            value = module.right_inverse(value)
        if self.is_tensor:
            _require_type(value, Tensor, "`right_inverse` should return a tensor. Got ")
        values = [value] if self.is_tensor else value
        _require_type(values, Sequence, "'right_inverse' must return a sequence of tensors. Got ", ".")
        if len(values) != self.ntensors:
            raise ValueError(f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length "
                             f"{len(values)}.")
        for i, (original, tensor) in enumerate(zip(self._originals(), values)):
            _require_type(tensor, Tensor, "'right_inverse' must return a sequence of tensors or reference-type opaques. Got element "
                  f"{i} of type ", ".")
            if original.dtype != tensor.dtype:
                subject, number = ("The tensor", "") if self.is_tensor else (f"Tensor {i}", i)
                raise ValueError(f"{subject} returned by `right_inverse` has dtype {tensor.dtype} while `original{number}` has dtype "
                                 f"{original.dtype}")
        for original, tensor in zip(self._originals(), values):
            original.data = tensor.data


# ---- parametrized modules: a class per module, with a property per tensor

def _getstate(self):
    raise RuntimeError("Serialization of parametrized modules is only supported through state_dict(). See:\nhttps://pytorch.org/"
                       "tutorials/beginner/saving_loading_models.html#saving-loading-a-general-checkpoint-for-inference-and-or-"
                       "resuming-training")


def _deepcopy(self, memo):
    cls = type(self)
    copy = memo[id(self)] = cls.__new__(cls)
    copy.__setstate__(deepcopy(super(cls, self).__getstate__(), memo))
    copy.__class__ = type(cls.__name__, cls.__bases__, {**vars(cls)})  # removals from one class do not affect the other
    return copy


def _property(name):
    def get(self):
        parametrization, key = self.parametrizations[name], (id(self), name)
        if not _cache_enabled:
            return parametrization()
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    return property(get, lambda self, value: self.parametrizations[name].right_inverse(value))


def _check_fits(module, name, parametrization):
    """Raises unless another parametrization fits the existing ones."""
    before, which, unless = getattr(module, name), f"module.{name}", "unless the `unsafe` flag is enabled."
    after = parametrization(before)
    _require_type(after, Tensor, "A parametrization must return a tensor. Got ", ".")
    _require_same(("dtype", "shape"), before, after, f"Registering a parametrization may not change the {{}} of the tensor, {unless}",
               f"{which}.{{}}", f"parametrization({which}).{{}}")
    try:
        back = parametrization.right_inverse(after) if hasattr(parametrization, "right_inverse") else before
    except NotImplementedError:
        return
    _require_type(back, Tensor, "parametrization.right_inverse must return a tensor. Got: ")
    _require_same(("dtype", "shape"), before, back, "The tensor returned by parametrization.right_inverse must have the same {} as "
               f"{which}, {unless}", f"{which}.{{}}", "returned {}")


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Parametrizes a tensor of a module. `module.tensor_name` becomes the result of the parametrization applied to the original
    parameter or buffer, now `module.parametrizations.tensor_name.original`. Further parametrizations are applied in sequence. Unless
    `unsafe`, dtype and shape must not change. Assignments use `right_inverse`, if defined."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_fits(module, tensor_name, parametrization)
        module.parametrizations[tensor_name].append(parametrization).unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    parametrizations, cls = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe), type(module)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        copies = {} if hasattr(cls, "__deepcopy__") else {"__deepcopy__": _deepcopy}
        module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), {"__getstate__": _getstate, **copies})
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = parametrizations
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Returns True if a module has parametrizations, or one for the named tensor."""
    found = getattr(module, "parametrizations", None)
    return isinstance(found, ModuleDict) and (len(found) > 0 if tensor_name is None else tensor_name in found)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Removes the parametrizations of a tensor. It keeps the parametrized value, or with leave_parametrized=False the original's."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if not parametrizations.is_tensor and not leave_parametrized:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
                         "sequence of tensors.")
    original = parametrizations._originals()[0]
    value = getattr(module, tensor_name).detach() if leave_parametrized else original.data
    if parametrizations.is_tensor:
        original.data = value
    else:
        original = Parameter(value, original.requires_grad) if isinstance(original, Parameter) else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Returns the class of a module before parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Transfers the parametrizations of a module, or of one tensor, to another module, with their originals."""
    given = from_module.parametrizations if is_parametrized(from_module) else {}
    for name in [tensor_name] if given and tensor_name is not None else list(given):
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in given[name]:
            register_parametrization(to_module, name, parametrization)
        for key, tensor in [*given[name]._parameters.items(), *given[name]._buffers.items()]:
            setattr(to_module.parametrizations[name], key, tensor)
    return to_module
