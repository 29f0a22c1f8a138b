# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.random: the seeds and the states of the devices' default generators."""
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


def manual_seed(seed: int) -> None:
    """Begins the stream of a seed, an int of 64 bits, on the current device; without devices, does
    nothing."""
    seed = int(seed)
    if cuda.device_count():
        _generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """manual_seed on all devices."""
    for generator in _generators():
        generator.manual_seed(seed)


def seed() -> None:
    """manual_seed with a seed from the system."""
    manual_seed(_C.Generator().seed())


def seed_all() -> None:
    """seed on all devices, with one seed."""
    manual_seed_all(_C.Generator().seed())


def initial_seed() -> int:
    """The seed that the current device's stream began with."""
    return _generator(None).initial_seed()


def get_rng_state(device: Device = "cuda") -> _C.Tensor:
    """Where in its stream the generator of a device is, as a tensor of bytes."""
    return _generator(device).get_state()


def set_rng_state(new_state: _C.Tensor, device: Device = "cuda") -> None:
    """Lets the generator of a device go to where get_rng_state was called."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[_C.Tensor]:
    """get_rng_state of each device."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state_all(new_states: Iterable[_C.Tensor]) -> None:
    """set_rng_state of each device, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
