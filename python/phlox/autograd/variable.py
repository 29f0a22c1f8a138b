# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.Variable: a legacy name of Tensor."""
import warnings

from phlox import _C

_C._name_missing(__name__)


class VariableMeta(type):
    """The metaclass of Variable. Every tensor is an instance of Variable."""

    __module__ = "torch.autograd"

    def __call__(cls, data=None, requires_grad=False, volatile=False):
        data = _C.empty(0) if data is None else data
        if not isinstance(data, _C.Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if volatile:
            warnings.warn("volatile was removed and now has no effect. Use `with torch.no_grad():` "
                          "instead.", stacklevel=2)
        made = data.detach()
        return made.requires_grad_() if requires_grad else made

    def __instancecheck__(cls, value):
        return isinstance(value, _C.Tensor)


class Variable(metaclass=VariableMeta):
    """Creates a tensor sharing the memory of `data`, detached from its graph. Legacy constructor.

    Args:
        data (Tensor)
        requires_grad (bool): if True, records operations on the tensor

    >>> torch.autograd.Variable(torch.ones(1), requires_grad=True)
    tensor([1.], requires_grad=True)
    """

    __module__ = "torch.autograd.variable"
