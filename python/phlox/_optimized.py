# SPDX-License-Identifier: Apache-2.0
"""The result of torch.compile for a module."""
from typing import Any

from phlox import _C, nn


class OptimizedModule(nn.Module):
    """A module whose calls are compiled. Attributes are those of the module, `_orig_mod`."""

    # Assignments reach the module through __setattr__.
    training = property(lambda self: getattr(self._modules.get("_orig_mod"), "training", True), lambda self, value: None,
                        doc="Whether the module is in training mode.")

    def __init__(self, mod: nn.Module, fuses: bool = True, whole: bool = False) -> None:
        super().__init__()
        super().__setattr__("_orig_mod", mod)
        super().__setattr__("_options", (fuses, whole))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _C._compiled_call(self._orig_mod, *self._options, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "_orig_mod" else getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in ("_orig_mod", "_options") or "_orig_mod" not in self._modules
        (super() if own else self._orig_mod).__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)
