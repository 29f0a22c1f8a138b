# SPDX-License-Identifier: Apache-2.0
"""torch.utils.checkpoint: what a function saves for backward is not kept, but computed again when
backward needs it."""
from __future__ import annotations

import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from enum import Enum
from functools import partial
from threading import RLock

import phlox as torch
from phlox import _C
from phlox.autograd.graph import saved_tensors_hooks
from phlox.utils._pytree import tree_map

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


# ---- what is kept of a function's ops

class CheckpointPolicy(Enum):
    """What a policy says of the results of an op: that they are kept, or computed again, as those to be put off to the CPU are, too."""
    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD, PREFER_CPU_OFFLOAD = range(6)


SAC_IGNORED_OPS = {torch.ops.aten.detach.default}  # of which no policy is asked


class SelectiveCheckpointContext:
    """What a policy is told besides an op and its arguments: its results."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Numbered:
    """Calls of an op by their number, in a scope that is entered again and again."""

    def __init__(self, kept):
        self.kept, self.scope = kept, _C._Keeping(self)

    def __enter__(self):
        self.counts = Counter()
        self.scope.__enter__()

    def __exit__(self, *error):
        self.scope.__exit__(*error)

    def number(self, op):
        self.counts[op] += 1
        return op, self.counts[op] - 1


class _Keeper(_Numbered):
    def __init__(self, kept, policy):
        self.policy = policy
        super().__init__(kept)

    def made(self, op, args, kwargs, result, whole):
        if op in SAC_IGNORED_OPS:
            return
        said = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=result), op, *args, **kwargs)
        saves = said is True or said in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
        self.kept[self.number(op)] = tree_map(lambda x: (x.detach(), x._version), result) if saves and whole else None


class _Recaller(_Numbered):
    def __init__(self, kept, allow_mutation):
        self.allow_mutation = allow_mutation
        super().__init__(kept)

    def recall(self, op):
        if op in SAC_IGNORED_OPS:
            return None
        key = self.number(op)
        if key not in self.kept:
            which = f" invocation index {key[1]}" if (op, 0) in self.kept else ""
            raise RuntimeError(f"{op}{which} encountered during backward but not found in storage. This can happen if the operations "
                               "in the checkpointed region are nondeterministic or depend on global state that changed between "
                               "forward and backward.")
        kept = self.kept[key]
        if kept == ():
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region computed "
                               "under selective activation checkpoint.")
        if kept is None:
            return None
        self.kept[key] = ()
        pairs = [kept] if torch.is_tensor(kept[0]) else kept
        if not self.allow_mutation and any(x._version != version for x, version in pairs):
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return tuple(x.detach() for x, _ in pairs)


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> tuple[Any, Any]:
    """Contexts, for checkpoint's context_fn, that keep results of some ops, which are not computed again.

    Args:
        policy_fn_or_list (Callable or list): policy(context, op, *args, **kwargs) gives a
            CheckpointPolicy, or whether to keep the results; or a list of ops to keep those of
        allow_cache_entry_mutation (bool): what is kept may be changed in place

    >>> keep = lambda: torch.utils.checkpoint.create_selective_checkpoint_contexts([torch.ops.aten.mm.default])
    >>> x = torch.ones(2, 2, requires_grad=True)
    >>> torch.utils.checkpoint.checkpoint(lambda x: (x @ x).exp(), x, use_reentrant=False, context_fn=keep).sum().backward()
    """
    policy = policy_fn_or_list
    if isinstance(policy, list):
        for op in policy:
            if not isinstance(op, _C._OpOverload):
                more = ("Please update the OpOverloadPacket to a specific OpOverload.For example, if you have `torch.ops.aten.mm`, "
                        "change it to `torch.ops.aten.mm.default`.") if isinstance(op, _C._OpOverloadPacket) else ""
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {more}")
        ops = frozenset(policy)
        policy = lambda context, op, *args, **kwargs: op in ops
    elif not callable(policy):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept = {}
    return _Keeper(kept, policy), _Recaller(kept, allow_cache_entry_mutation)


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
