# SPDX-License-Identifier: Apache-2.0
"""torch.random: the seed and the state of the CPU's default generator."""
from __future__ import annotations

from contextlib import contextmanager

from phlox import _C
from phlox._C import default_generator

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

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


@contextmanager
def fork_rng(devices: Iterable[Any] | None = None, enabled: bool = True,
             device_type: str | None = None) -> Iterator[None]:
    """Within a with statement, random numbers are drawn without effect on those drawn after it.

    Args:
        devices (iterable): of which the states are kept, beside the CPU's; None: all
        enabled (bool): False: nothing is kept
        device_type (str): "cuda", or "meta", which has no state

    >>> with torch.random.fork_rng():
    ...     a = torch.rand(2)
    >>> torch.equal(a, torch.rand(2))
    True
    """
    if device_type not in (None, "cuda", "meta"):
        raise RuntimeError(f"torch has no module of `{device_type}`, you should register a module "
                           "by `torch._register_device_module`.")
    if not enabled or device_type == "meta":
        yield
        return
    from phlox import cuda
    devices = list(range(cuda.device_count()) if devices is None else devices)
    cpu, states = get_rng_state(), [cuda.get_rng_state(device) for device in devices]
    try:
        yield
    finally:
        set_rng_state(cpu)
        for device, state in zip(devices, states):
            cuda.set_rng_state(state, device)
