# SPDX-License-Identifier: Apache-2.0
"""Methods of recurrent layers that programs read and override. The forward is the library's."""
from __future__ import annotations

import phlox as torch

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from phlox import Tensor


def packed(module: Any, given: tuple) -> Any:
    """The forward for a packed sequence. Its data is sorted by length; states are in the caller's order."""
    sequence, hx = given
    data, batch_sizes, order, back = sequence
    if hx is not None:
        hx = module.permute_hidden(hx, order)
    output, hidden = torch.nn.Module.forward(module, data, hx, batch_sizes)
    return type(sequence)(output, batch_sizes, order, back), module.permute_hidden(hidden, back)


class RNNBase:
    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of the weights of each layer and direction."""
        names = ["weight_ih_l{}{}", "weight_hh_l{}{}"] + ["bias_ih_l{}{}", "bias_hh_l{}{}"] * self.bias
        names += ["weight_hr_l{}{}"] * (self.proj_size > 0)
        return [[name.format(layer, suffix) for name in names] for layer in range(self.num_layers)
                for suffix in ("", "_reverse")[:1 + self.bidirectional]]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        """The names of all weights, in their order."""
        return sum(self._all_weights, [])

    @property
    def _flat_weights(self) -> list[Tensor]:
        """All weights, in their order."""
        return sum(self.all_weights, [])

    def flatten_parameters(self) -> None:
        """Does nothing: the weights are used where they lie."""

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The states with their sequences in another order."""
        if permutation is None:
            return hx
        if isinstance(hx, torch.Tensor):
            return hx.index_select(1, permutation)
        return tuple(state.index_select(1, permutation) for state in hx)
