# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.random: seeds and states of the devices' default generators."""
from __future__ import annotations

from phlox import _C, cuda

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable

    from phlox._typing import Device

_C._name_missing(__name__)


def _generators():
    return [cuda._default_generator(index) for index in range(cuda.device_count())]


def _generator(device):
    return cuda._default_generator(cuda._index_of(device))


default_generators = tuple(_generators())


def manual_seed(seed: int) -> None:
    """Sets the seed (a 64-bit int) of the current device's generator. Does nothing without
    devices."""
    seed = int(seed)
    if cuda.device_count():
        _generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Sets the seed of the generators of all devices."""
    for generator in _generators():
        generator.manual_seed(seed)


def seed() -> None:
    """Sets the seed of the current device's generator to a random number."""
    manual_seed(_C.Generator().seed())


def seed_all() -> None:
    """Sets the seed of the generators of all devices to the same random number."""
    manual_seed_all(_C.Generator().seed())


def initial_seed() -> int:
    """Returns the initial seed of the current device's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device: Device = "cuda") -> _C.Tensor:
    """Returns the state of a device's generator as a uint8 tensor."""
    return _generator(device).get_state()


def set_rng_state(new_state: _C.Tensor, device: Device = "cuda") -> None:
    """Sets the state of a device's generator, from get_rng_state."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[_C.Tensor]:
    """Returns the states of all devices' generators."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state_all(new_states: Iterable[_C.Tensor]) -> None:
    """Sets the states of all devices' generators, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
