# SPDX-License-Identifier: Apache-2.0
"""torch.utils.checkpoint: what a function saves for backward is not kept, but computed again when
backward needs it."""
from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import RLock

import phlox as torch
from phlox import _C
from phlox.autograd.graph import saved_tensors_hooks

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_C._name_missing(__name__)
_UNSAID = ("{}: the use_reentrant parameter should be passed explicitly. In a future release, calling "
           "checkpoint without use_reentrant will raise an exception. use_reentrant=False is "
           "recommended, but if you need to preserve the current default behavior, you can pass "
           "use_reentrant=True. Refer to docs for more details on the differences between the two "
           "variants.")


class CheckpointError(RuntimeError):
    """The second run of a function did not save what the first one did."""


def noop_context_fn() -> tuple[Any, Any]:
    """Contexts that do nothing, for both runs."""
    return nullcontext(), nullcontext()


class _Random:
    """The state of the generators: the CPU's, and those of the devices of tensors."""

    def __init__(self, values):
        self.devices = sorted({x.device.index for x in values if torch.is_tensor(x) and x.is_cuda})
        self.cpu = torch.get_rng_state()
        self.states = [torch.cuda.get_rng_state(device) for device in self.devices]

    @contextmanager
    def again(self):
        """The same state once more; then the one of before."""
        with torch.random.fork_rng(self.devices):
            torch.set_rng_state(self.cpu)
            for device, state in zip(self.devices, self.states):
                torch.cuda.set_rng_state(state, device)
            yield


def _same(preserve, values):
    """What makes contexts in which a function runs as it does now: with the settings of autocast,
    and the random numbers."""
    random = _Random(values).again if preserve else nullcontext
    regions = [torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
               for kind in ("cpu", "cuda")]

    @contextmanager
    def again():
        with random(), regions[0], regions[1]:
            yield

    return again


class CheckpointFunction(torch.autograd.Function):
    """The reentrant form: backward runs the function again, and backward through that."""

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        """The first run, of which only the arguments are kept."""
        if not any(torch.is_tensor(x) and x.requires_grad for x in args):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None")
        ctx.run, ctx.same = run_function, _same(preserve_rng_state, args)
        ctx.others = [None if torch.is_tensor(x) else x for x in args]
        ctx.save_for_backward(*(x if torch.is_tensor(x) else None for x in args))
        with torch.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        """The second run, and backward through it."""
        inputs = [other if saved is None else saved.detach().requires_grad_(saved.requires_grad)
                  for saved, other in zip(ctx.saved_tensors, ctx.others)]
        with ctx.same(), torch.enable_grad():
            outputs = ctx.run(*inputs)
        outputs = (outputs,) if torch.is_tensor(outputs) else outputs
        pairs = [(y, grad) for y, grad in zip(outputs, grads) if torch.is_tensor(y) and y.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        torch.autograd.backward(*zip(*pairs))
        return (None, None, *(x.grad if torch.is_tensor(x) else None for x in inputs))


class _Enough(Exception):
    """All that was saved is there again."""


def _form(tensor):
    return tensor.shape, tensor.dtype, tensor.device


class _Frame:
    """One call of a function: what it saved, by number, and how to compute it again."""

    def __init__(self, run, check, early_stop):
        self.run, self.check, self.early_stop = run, check, early_stop
        self.forms, self.values = [], {}
        self.lock = RLock()  # backward of several devices runs on several threads

    def pack(self, tensor):
        self.forms.append(_form(tensor))
        return len(self.forms) - 1

    def unpack(self, number):
        with self.lock:
            if number not in self.values:
                self.compute_again()
            return self.values.pop(number)

    def keep(self, tensor):
        number = self.count
        self.count += 1
        if number < len(self.forms):
            self.values[number] = tensor
        if self.early_stop and self.count == len(self.forms):
            raise _Enough

    def compute_again(self):
        self.count = 0
        try:
            with saved_tensors_hooks(self.keep, lambda kept: kept), torch.enable_grad():
                self.run()
        except _Enough:
            pass
        if self.count != len(self.forms):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\nNumber of tensors saved during forward: "
                f"{len(self.forms)}\nNumber of tensors saved during recomputation: {self.count}")
        if self.check and [_form(self.values[i]) for i in range(self.count)] != self.forms:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than during the forward pass.\n" + "\n".join(
                    f"tensor at position {i}:\nsaved metadata: {form}\nrecomputed metadata: {again}"
                    for i, form in enumerate(self.forms)
                    if (again := _form(self.values[i])) != form))


_early_stop = None  # what set_checkpoint_early_stop says instead of the calls


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """A scope in which checkpoints without reentrance have this early_stop, whatever they say."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


def _plain(function, args, kwargs, preserve, context_fn, check, early_stop):
    """The form without reentrance: what is saved within the call is known by its number."""
    values = [*args, *kwargs.values()]
    same = _same(preserve, values)
    versions = [(x, x._version) for x in values if torch.is_tensor(x)]
    first, second = context_fn()

    def again():
        if any(x._version != version for x, version in versions):
            raise RuntimeError("one of the variables needed for gradient computation has been "
                               "modified by an inplace operation: an argument of checkpoint")
        with same(), second:
            function(*args, **kwargs)

    frame = _Frame(again, check, early_stop if _early_stop is None else _early_stop)
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint(function: Callable[..., Any] | None = None, *args: Any,
               use_reentrant: bool | None = None, preserve_rng_state: bool = True,
               context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
               determinism_check: str = "default", debug: bool = False, early_stop: bool = True,
               **kwargs: Any) -> Any:
    """Calls a function without keeping what its ops save: backward runs it a second time.

    Args:
        function (Callable): without it, a decorator
        use_reentrant (bool): True: as a Function, whose backward runs backward within; an argument
            must require grad, and torch.autograd.grad does not work. False: by hooks for saved
            tensors, without these limits
        preserve_rng_state (bool): the second run draws the random numbers of the first
        context_fn (Callable): gives two contexts, for the runs
        determinism_check (str): "default" compares the forms of what both runs save; "none"
        early_stop (bool): the second run ends once all is there again

    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.utils.checkpoint.checkpoint(torch.exp, x, use_reentrant=False).sum().backward()
    """
    options = {"use_reentrant": use_reentrant, "preserve_rng_state": preserve_rng_state,
               "context_fn": context_fn, "determinism_check": determinism_check, "debug": debug,
               "early_stop": early_stop}
    if function is None and not args and not kwargs:
        return lambda given: partial(checkpoint, given, **options)
    if use_reentrant is None:
        warnings.warn(_UNSAID.format("torch.utils.checkpoint"), stacklevel=2)
    reentrant = use_reentrant is None or use_reentrant
    if kwargs and (reentrant or function is None):
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if reentrant and (context_fn is not noop_context_fn or debug):
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if debug:
        raise NotImplementedError("torch.utils.checkpoint: debug=True is not implemented in Phlox")
    if determinism_check not in ("default", "none"):
        raise ValueError("determinism_check should be one of ['default', 'none'], but got "
                         f"{determinism_check}")
    if reentrant:
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    return _plain(function, args, kwargs, preserve_rng_state, context_fn,
                  determinism_check == "default", early_stop)


def checkpoint_sequential(functions: Any, segments: int, input: Any,
                          use_reentrant: bool | None = None, preserve_rng_state: bool = True) -> Any:
    """Runs modules one after another in segments, each but the last under checkpoint.

    Args:
        functions (Sequential or list): of modules or functions
        segments (int): into how many they are divided
    """
    if use_reentrant is None:
        warnings.warn(_UNSAID.format("torch.utils.checkpoint.checkpoint_sequential"), stacklevel=2)
        use_reentrant = True
    functions = list(functions)
    size = len(functions) // segments

    def run(part, x):
        for function in part:
            x = function(x)
        return x

    end = size * (segments - 1)
    for start in range(0, end, size):
        input = checkpoint(partial(run, functions[start:start + size]), input,
                           use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
    return run(functions[end:], input)
