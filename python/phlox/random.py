# SPDX-License-Identifier: Apache-2.0
"""torch.random: the seed and state of the CPU's default generator."""
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
    """Sets the seed of the generators of the CPU and all devices. Returns the CPU's generator.

    Args:
        seed (int): the 64-bit seed

    >>> _ = torch.manual_seed(3); a = torch.rand(2)
    >>> _ = torch.manual_seed(3); torch.equal(a, torch.rand(2))
    True
    """
    _C._manual_seed(seed)
    return default_generator


def seed() -> int:
    """Sets the seed of all generators to a random number, and returns it."""
    fresh = _C.Generator().seed()
    _C._manual_seed(fresh)
    return fresh


def initial_seed() -> int:
    """Returns the initial seed of the CPU's generator."""
    return default_generator.initial_seed()


def get_rng_state() -> _C.Tensor:
    """Returns the state of the CPU's generator as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: _C.Tensor) -> None:
    """Sets the state of the CPU's generator, from get_rng_state."""
    default_generator.set_state(new_state)


def thread_safe_generator() -> _C.Generator | None:
    """Returns the generator of a DataLoader's worker thread, for random numbers drawn by a dataset. Workers are processes, and the default generator
    of each has its own seed: None, which stands for the default generator.

    Example::

        >>> torch.randint(0, 10, (5,), generator=torch.thread_safe_generator()).shape
        torch.Size([5])
    """
    return None


class _RandomStates:
    """The states of the default generators of the CPU, of the current device, and of the devices of the tensors in nested values."""

    def __init__(self, values: Any) -> None:
        from phlox import cuda
        from phlox.utils._pytree import tree_leaves
        devices = {x.device.index for x in tree_leaves(values) if isinstance(x, _C.Tensor) and x.is_cuda}
        if cuda.is_initialized():
            devices.add(cuda.current_device())
        self.cpu, self.devices = get_rng_state(), {device: cuda.get_rng_state(device) for device in sorted(devices)}

    def restore(self) -> None:
        """Restores the states."""
        from phlox import cuda
        set_rng_state(self.cpu)
        for device, state in self.devices.items():
            cuda.set_rng_state(state, device)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """A context manager that restores the states, and at exit those before."""
        with fork_rng(self.devices):
            self.restore()
            yield


@contextmanager
def fork_rng(devices: Iterable[Any] | None = None, enabled: bool = True,
             device_type: str | None = None) -> Iterator[None]:
    """A context manager that restores the generators' states at exit.

    Args:
        devices (iterable): devices to restore in addition to the CPU. Default: all
        enabled (bool): if False, does nothing
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
