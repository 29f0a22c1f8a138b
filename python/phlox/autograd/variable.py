# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.Variable: every tensor is one."""
from phlox import _C

_C._name_missing(__name__)


class VariableMeta(type):
    """The class of Variable: isinstance takes any tensor."""

    __module__ = "torch.autograd"

    def __call__(cls, data=None, requires_grad=False, volatile=False):
        if not isinstance(data, _C.Tensor):
            raise TypeError(f"Variable(): argument 'data' must be Tensor, not "
                            f"{type(data).__name__}")
        made = data.detach()
        return made.requires_grad_() if requires_grad else made

    def __instancecheck__(cls, value):
        return isinstance(value, _C.Tensor)


class Variable(metaclass=VariableMeta):
    """A tensor over the memory of `data`, without its history: the name from when tensors had none.

    Args:
        data (Tensor)
        requires_grad (bool): whether operations on it are recorded

    >>> torch.autograd.Variable(torch.ones(1), requires_grad=True)
    tensor([1.], requires_grad=True)
    """

    __module__ = "torch.autograd.variable"
