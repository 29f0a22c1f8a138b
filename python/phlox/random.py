# SPDX-License-Identifier: Apache-2.0
"""torch.random: the seed and the state of the CPU's default generator."""
from __future__ import annotations

from phlox import _C
from phlox._C import default_generator

_C._name_missing(__name__)


def manual_seed(seed: int) -> _C.Generator:
    """Begins the stream of a seed on the CPU and all devices; gives the CPU's generator.

    Args:
        seed (int): of 64 bits

    >>> _ = torch.manual_seed(3); a = torch.rand(2)
    >>> _ = torch.manual_seed(3); torch.equal(a, torch.rand(2))
    True
    """
    _C._manual_seed(seed)
    return default_generator


def seed() -> int:
    """manual_seed with a seed from the system, which it gives."""
    fresh = _C.Generator().seed()
    _C._manual_seed(fresh)
    return fresh


def initial_seed() -> int:
    """The seed that the CPU's stream began with."""
    return default_generator.initial_seed()


def get_rng_state() -> _C.Tensor:
    """Where in its stream the CPU's generator is, as a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: _C.Tensor) -> None:
    """Lets the CPU's generator go to where get_rng_state was called."""
    default_generator.set_state(new_state)
