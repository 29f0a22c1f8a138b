# SPDX-License-Identifier: Apache-2.0
"""Methods of recurrent layers that programs read or override. forward is the C library's."""
from __future__ import annotations

import phlox as torch

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from phlox import Tensor


def packed(module: Any, given: tuple) -> Any:
    """The forward for a PackedSequence. Its data is sorted by length; hidden states keep the caller's
    order."""
    sequence, hx = given
    data, batch_sizes, order, back = sequence
    if hx is not None:
        hx = module.permute_hidden(hx, order)
    output, hidden = torch.nn.Module.forward(module, data, hx, batch_sizes)
    return type(sequence)(output, batch_sizes, order, back), module.permute_hidden(hidden, back)


class RNNBase:
    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of the weights, for each layer and direction."""
        names = ["weight_ih_l{}{}", "weight_hh_l{}{}"] + ["bias_ih_l{}{}", "bias_hh_l{}{}"] * self.bias
        names += ["weight_hr_l{}{}"] * (self.proj_size > 0)
        return [[name.format(layer, suffix) for name in names] for layer in range(self.num_layers)
                for suffix in ("", "_reverse")[:1 + self.bidirectional]]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The weights, for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        """The names of all weights, in order."""
        return sum(self._all_weights, [])

    @property
    def _flat_weights(self) -> list[Tensor]:
        """All weights, in order."""
        return sum(self.all_weights, [])

    def flatten_parameters(self) -> None:
        """Does nothing: weights are used without flattening."""

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """Permutes the batch dimension of the hidden states."""
        if permutation is None:
            return hx
        if isinstance(hx, torch.Tensor):
            return hx.index_select(1, permutation)
        return tuple(state.index_select(1, permutation) for state in hx)
