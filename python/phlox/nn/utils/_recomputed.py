# SPDX-License-Identifier: Apache-2.0
"""The hook shared by weight_norm, spectral_norm and pruning."""
from phlox import nn


class Recomputed:
    """A pre-forward hook that recomputes one tensor of a module from other tensors. Subclasses define _computed."""

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self._computed(module))

    @classmethod
    def of(cls, module, name):
        """Returns the module's hooks of this class for a tensor, by their keys."""
        return {key: hook for key, hook in module._forward_pre_hooks.items() if isinstance(hook, cls) and hook._tensor_name == name}

    @classmethod
    def remove_hook(cls, module, name, text):
        """Removes the hook and restores the tensor. Raises ValueError(text) if there is no hook."""
        for key, hook in cls.of(module, name).items():
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
        raise ValueError(text)


class Norm(Recomputed):
    """A hook that replaces a parameter by tensors named name + suffix, for each of _suffixes."""

    _tensor_name = property(lambda self: self.name)

    def register(self, module, word, tensors):
        """Registers the hook and the tensors that `tensors` computes from the weight."""
        kind = type(self)
        if kind.of(module, self.name):
            raise RuntimeError(f"Cannot register two {word}_norm hooks on the same parameter {self.name}")
        weight = module._parameters[self.name]
        if weight is None:
            raise ValueError(f"`{kind.__name__}` cannot be applied as parameter `{self.name}` is None")
        if isinstance(weight, nn.parameter.UninitializedParameter):
            raise ValueError(f"The module passed to `{kind.__name__}` can't have uninitialized parameters. Make sure to run the "
                             f"dummy forward before applying {word} normalization")
        made = zip(self._suffixes, tensors(weight))
        delattr(module, self.name)
        for suffix, tensor in made:
            add = module.register_parameter if isinstance(tensor, nn.Parameter) else module.register_buffer
            add(self.name + suffix, tensor)
        setattr(module, self.name, weight.data)
        module.register_forward_pre_hook(self)
        return self

    def remove(self, module: nn.Module) -> None:
        """Restores the weight as a parameter with its current value."""
        weight = self._computed(module, 0).detach()
        for suffix in "", *self._suffixes:
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, nn.Parameter(weight))
