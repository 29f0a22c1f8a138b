# SPDX-License-Identifier: Apache-2.0
"""torch.utils.flop_counter: FLOPs by module and op."""
from __future__ import annotations

import collections
import warnings
from typing import Any

from phlox.autograd import profiler as _core
from phlox.nn import _module


class FlopCounterMode:
    """A context manager that counts the FLOPs of matrix products, convolutions and attention, by module
    and op, including backward passes. Counts are computed from shapes.

    Args:
        mods: no effect
        depth (int): the maximum depth of modules in the table. None: all
        display (bool): if True, prints the table at exit
        custom_mapping: formulas for other ops; not implemented
        skip_unsupported (bool): no effect: there are no higher-order operators

    >>> with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
    ...     y = torch.ones(2, 3) @ torch.ones(3, 4)
    >>> counter.get_total_flops()
    48
    """

    def __init__(self, mods: Any = None, depth: "int | None" = 2, display: bool = True,
                 custom_mapping: "dict[Any, Any] | None" = None, skip_unsupported: bool = False) -> None:
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode: custom_mapping is not implemented in Phlox")
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth, self.display, self.skip_unsupported = depth, display, skip_unsupported
        self._counter, self._hooks = None, ()

    def get_total_flops(self) -> int:
        """Returns the total number of FLOPs."""
        return sum(self.get_flop_counts()["Global"].values())

    def get_flop_counts(self) -> "dict[str, dict[Any, int]]":
        """Returns the FLOPs by module, then by op (torch.ops.aten.mm)."""
        counts: dict = {"Global": {}}
        for module, op, operations in _core._flops_counts(self._counter) if self._counter else ():
            counts.setdefault(module, {})[op] = operations
        return counts

    def get_unsupported_ops(self) -> "collections.Counter[str]":
        """Returns uncounted higher-order operators: none."""
        return collections.Counter()

    def get_table(self, depth: "int | None" = None) -> str:
        """Returns the counts as a table.

        Args:
            depth (int): overrides the counter's depth
        """
        depth = self.depth if depth is None else depth
        counter = self._counter or _core._flops_begin()
        if not self._counter:
            _core._flops_end(counter)
        return _core._flops_table(counter, -1 if depth is None else depth)

    def __enter__(self) -> "FlopCounterMode":
        self._counter = _core._flops_begin()
        self._hooks = (_module.register_module_forward_pre_hook(_core._flops_enter),
                       _module.register_module_forward_hook(_core._flops_leave, always_call=True))
        return self

    def __exit__(self, *error: Any) -> None:
        _core._flops_end(self._counter)
        for hook in self._hooks:
            hook.remove()
        if self.display:
            print(self.get_table(self.depth))
