# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.prune: forward pre-hooks that multiply a parameter of a module by a mask.

Pruning moves the parameter NAME to NAME_orig and adds the mask as the buffer NAME_mask. NAME
becomes an attribute, their product."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any

import phlox as torch
from phlox import _C, Tensor
from phlox.nn import Module
from phlox.nn.utils import parameters_to_vector


class BasePruningMethod(ABC):
    """Abstract base class for pruning methods: a forward pre-hook that multiplies a tensor by a
    mask. The parameter is kept as `name_orig` and the mask is the buffer `name_mask`.

    Subclasses define compute_mask and PRUNING_TYPE. PRUNING_TYPE selects the entries of an already
    pruned tensor passed to compute_mask: "unstructured" (unpruned elements), "structured"
    (channels along `dim` with an unpruned element) or "global" (all)."""
    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: Any = None) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Computes and returns a mask for the input tensor t. Entries already zero in default_mask
        must stay zero."""
        raise NotImplementedError(f"{type(self).__name__} does not define compute_mask")

    def apply_mask(self, module: Module) -> Tensor:
        """Returns the product of the parameter and the mask."""
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(original.dtype) * original

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None,
              **kwargs: Any) -> BasePruningMethod:
        """Adds pruning to a tensor of a module. The arguments construct a method of this class.
        Returns the hook: the method, or the container of all methods if the tensor was already
        pruned."""
        return _prune(cls(*args, **kwargs), module, name, importance_scores)

    def prune(self, t: Tensor, default_mask: Tensor | None = None,
              importance_scores: Tensor | None = None) -> Tensor:
        """Computes and returns a pruned version of input tensor t, without a module."""
        scores = _scores(t, importance_scores, "tensor t")
        mask = torch.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Module) -> None:
        """Makes the pruned tensor a parameter again. Pruned entries stay zero."""
        name, weight = self._tensor_name, self.apply_mask(module).data
        original = getattr(module, name + "_orig")
        for suffix in "", "_orig", "_mask":
            delattr(module, name + suffix)
        original.data = weight
        setattr(module, name, original)


# ---- a module's tensor

def _hooks(module, name):
    """Returns the pruning hooks of a module's tensor, by key."""
    return {key: hook for key, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name}


def _scores(tensor, scores, what):
    """Returns the importance scores, the tensor itself by default."""
    if scores is None:
        return tensor
    if scores.shape != tensor.shape:
        raise AssertionError(f"importance_scores should have the same shape as {what}, got "
                             f"{scores.shape} vs {tensor.shape}")
    return scores


def _visible(method, t, mask):
    """Returns the index of the entries passed to a method, by its PRUNING_TYPE."""
    kind, ndim = method.PRUNING_TYPE, t.ndim
    if kind == "global":
        return ...
    if kind == "unstructured":
        return mask == 1
    if kind != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
    if not hasattr(method, "dim"):
        raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the '
                             "attribute `dim` defined.")
    if not -ndim <= method.dim < ndim:
        raise IndexError(f"Index is out of bounds for tensor with dimensions {ndim}")
    dim = method.dim % ndim
    kept = mask.sum([d for d in range(ndim) if d != dim]) != 0
    return (*[slice(None)] * dim, kept)


def _combine_masks(method, t, mask):
    """Returns a mask further reduced by a method."""
    at = _visible(method, t, mask)
    part = method.compute_mask(t[at], default_mask=mask[at])
    mask = mask.to(t.dtype, copy=True)
    mask[at] = part
    return mask


def _prune(method, module, name, scores):
    """Adds a method to a module's tensor and returns the hook. Leaves the module unchanged if the
    method fails."""
    tensor, before = getattr(module, name), _hooks(module, name)
    ones = torch.ones_like(tensor)
    scores = _scores(tensor, scores, f"parameter {name} of {module}")
    method._tensor_name = name
    if len(before) > 1:
        raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of "
                             f"module {module}. Use a PruningContainer.")
    mask = (_combine_masks(method, scores, getattr(module, name + "_mask")) if before else
            method.compute_mask(scores, default_mask=ones))
    torch.mul(mask, tensor)  # fails before any change if the shapes do not match
    module.register_buffer(name + "_mask", mask)
    hook = method
    for key, old in before.items():
        hook = old if isinstance(old, PruningContainer) else PruningContainer(old)
        hook.add_pruning_method(method)
        del module._forward_pre_hooks[key]
    if not before:
        module.register_parameter(name + "_orig", tensor)
        del module._parameters[name]
    hook(module)
    module.register_forward_pre_hook(hook)
    return hook


class PruningContainer(BasePruningMethod):
    """Container holding a sequence of pruning methods for iterative pruning of one tensor."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Adds a child pruning method at the end."""
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and method._tensor_name != self._tensor_name:
            raise ValueError("Can only add pruning methods acting on the parameter named "
                             f"'{self._tensor_name}' to PruningContainer {self}. Found "
                             f"'{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Applies the latest method by computing the new partial mask and returning its combination
        with default_mask."""
        return _combine_masks(self._pruning_methods[-1], t, default_mask)


# ---- methods

def _checked(amount):
    """Returns a valid amount: a number of elements or channels (int) or a fraction (float)."""
    if not isinstance(amount, Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if not (amount >= 0 and (isinstance(amount, Integral) or amount <= 1)):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a "
                         "non-negative integer")
    return amount


class Identity(BasePruningMethod):
    """Prunes nothing, but adds the pruning parametrization with a mask of ones."""
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns default_mask."""
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes unpruned elements of a tensor at random."""
    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        self.amount = _checked(amount)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns default_mask with more elements zeroed at random."""
        return _C._prune_mask(t, default_mask, _checked(self.amount), random=True)


class L1Unstructured(BasePruningMethod):
    """Prunes the unpruned elements of a tensor with the lowest L1-norm."""
    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        self.amount = _checked(amount)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns default_mask with the elements of lowest magnitude zeroed."""
        return _C._prune_mask(t, default_mask, _checked(self.amount))


class RandomStructured(BasePruningMethod):
    """Prunes unpruned channels of a tensor along dim at random."""
    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        self.amount, self.dim = _checked(amount), dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns default_mask with more channels zeroed at random."""
        return _C._prune_mask(t, default_mask, _checked(self.amount), random=True, dim=self.dim)


class LnStructured(BasePruningMethod):
    """Prunes the unpruned channels of a tensor along dim with the lowest Ln-norm."""
    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        self.amount, self.n, self.dim = _checked(amount), n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns default_mask with the channels of lowest norm zeroed."""
        if isinstance(self.n, str) and self.n != "fro":
            raise NotImplementedError(f"the norm {self.n!r} is not implemented in Phlox")
        norm = float(2 if self.n == "fro" else self.n)
        return _C._prune_mask(t, default_mask, _checked(self.amount), dim=self.dim, p=norm)


class CustomFromMask(BasePruningMethod):
    """Prunes the entries of a tensor at zeros of a given mask."""
    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the product of default_mask and the mask."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"default_mask shape {default_mask.shape} must match self.mask "
                                 f"shape {self.mask.shape}")
        return default_mask * self.mask.to(default_mask.dtype)


# ---- functions

def identity(module: Module, name: str) -> Module:
    """Applies pruning reparametrization without pruning any elements: adds a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prunes a tensor by zeroing elements at random. An int amount is a number of elements, a
    float a fraction."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Any,
                    importance_scores: Tensor | None = None) -> Module:
    """Prunes a tensor by zeroing the elements with the lowest L1-norm, or with the lowest
    importance scores. An int amount is a number of elements, a float a fraction."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prunes a tensor by zeroing channels along dim at random. An int amount is a number of
    channels, a float a fraction."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: Any, n: Any, dim: int,
                  importance_scores: Tensor | None = None) -> Module:
    """Prunes a tensor by zeroing the channels along dim with the lowest Ln-norm, computed from
    importance_scores if given. An int amount is a number of channels, a float a fraction."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prunes a tensor by applying a precomputed mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Iterable[tuple[Module, str]], pruning_method: type,
                        importance_scores: dict[tuple[Module, str], Tensor] | None = None,
                        **kwargs: Any) -> None:
    """Globally prunes tensors corresponding to all pairs (module, name) in parameters, as if they
    were one tensor.

    Args:
        importance_scores (dict): scores of pairs (module, name), the tensor itself by default
        kwargs: arguments of pruning_method, with an int or float amount of all elements
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if not isinstance(importance_scores, (dict, type(None))):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    parameters, given = list(parameters), importance_scores or {}
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError('Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
                        f"Found method {pruning_method} of type {method.PRUNING_TYPE}")
    tensors = [getattr(module, name) for module, name in parameters]
    scores = [given.get((module, name), t) for (module, name), t in zip(parameters, tensors)]
    masks = [getattr(module, name + "_mask", torch.ones_like(t)) for (module, name), t in
             zip(parameters, tensors)]
    mask = _combine_masks(method, parameters_to_vector(scores), parameters_to_vector(masks))
    parts = mask.split([t.numel() for t in tensors])
    for (module, name), t, part in zip(parameters, tensors, parts):
        custom_from_mask(module, name, part.view_as(t))


def remove(module: Module, name: str) -> Module:
    """Removes the pruning reparametrization from a module. The tensor becomes a parameter again and
    its pruned entries stay zero."""
    for key, hook in _hooks(module, name).items():
        hook.remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can "
                     "be removed")


def is_pruned(module: Module) -> bool:
    """Returns True if a tensor of a module or of its submodules is pruned."""
    return any(isinstance(hook, BasePruningMethod) for part in module.modules()
               for hook in part._forward_pre_hooks.values())


_C._name_missing(__name__)
