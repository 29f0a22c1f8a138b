# SPDX-License-Identifier: Apache-2.0
"""torch.utils.checkpoint: activation checkpointing. Tensors a function saves for backward are discarded
and recomputed in backward."""
from __future__ import annotations

import traceback
import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from enum import Enum
from functools import partial
from threading import RLock

import phlox as torch
from phlox import _C
from phlox.autograd.graph import saved_tensors_hooks
from phlox.random import _RandomStates
from phlox.utils._pytree import tree_leaves, tree_map

TYPE_CHECKING = False  # type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

_C._name_missing(__name__)
_WARNING = ("{}: the use_reentrant parameter should be passed explicitly. In a future release, calling "
            "checkpoint without use_reentrant will raise an exception. use_reentrant=False is "
            "recommended, but if you need to preserve the current default behavior, you can pass "
            "use_reentrant=True. Refer to docs for more details on the differences between the two "
            "variants.")


class CheckpointError(RuntimeError):
    """The recomputation saved different tensors than the forward pass."""


def noop_context_fn() -> tuple[Any, Any]:
    """Returns two no-op contexts, for forward and recomputation."""
    return nullcontext(), nullcontext()


def _captured(preserve, values):
    """Captures the autocast settings, and with `preserve` the random states. Returns a context factory
    that restores them."""
    random = _RandomStates(values).restored if preserve else nullcontext
    regions = [torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), torch.is_autocast_cache_enabled())
               for kind in ("cpu", "cuda")]

    @contextmanager
    def restored():
        with random(), regions[0], regions[1]:
            yield

    return restored


class CheckpointFunction(torch.autograd.Function):
    """The reentrant variant: backward runs the function again and differentiates it."""

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        """Runs the function without recording. Saves only the arguments."""
        check_backward_validity(args)
        ctx.run, ctx.same = run_function, _captured(preserve_rng_state, args)
        ctx.others = [None if torch.is_tensor(x) else x for x in args]
        ctx.save_for_backward(*(x if torch.is_tensor(x) else None for x in args))
        with torch.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        """Recomputes the function and runs its backward."""
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


class _SavedInputs(torch.autograd.Function):
    """Saves the arguments of a non-reentrant checkpoint, through the hooks around it."""

    @staticmethod
    def forward(ctx, anchor, *tensors):
        ctx.save_for_backward(*tensors)
        return anchor.new_empty(0)


def _inputs_of(args):
    """Returns a function that returns args, with the tensors among them saved for backward."""
    at = [i for i, x in enumerate(args) if torch.is_tensor(x)]
    if not at or not torch.is_grad_enabled():
        return lambda: list(args)
    node = _SavedInputs.apply(torch.empty(0, requires_grad=True), *(args[i] for i in at)).grad_fn
    return lambda: list((dict(enumerate(args)) | dict(zip(at, node.saved_tensors))).values())


class _StopRecomputation(Exception):
    """Raised to stop a recomputation after the last saved tensor."""


def _metadata(tensor):
    return tensor.shape, tensor.dtype, tensor.device


class _Frame:
    """One checkpointed call: metadata of its saved tensors, by index, and the function to recompute them."""

    def __init__(self, run, check, early_stop, logs):
        self.run, self.check, self.early_stop, self.logs = run, check, early_stop, logs
        self.metadata, self.values = [], {}
        self.lock = RLock()  # backward passes of several devices run on several threads

    def pack(self, tensor):
        self.metadata.append(_metadata(tensor))
        return len(self.metadata) - 1

    def unpack(self, number):
        with self.lock:
            if number not in self.values:
                try:
                    self.recompute()
                except CheckpointError as error:
                    if not self.logs:
                        raise
                    raise CheckpointError(_C._checkpoint_report(*(log.saved_results for log in self.logs))) from error
            return self.values.pop(number)

    def keep(self, tensor):
        number = self.count
        self.count += 1
        if number < len(self.metadata):
            self.values[number] = tensor
        if self.early_stop and self.count == len(self.metadata):
            raise _StopRecomputation

    def recompute(self):
        self.count = 0
        try:
            with saved_tensors_hooks(self.keep, lambda tensor: tensor), torch.enable_grad():
                self.run()
        except _StopRecomputation:
            pass
        if self.count != len(self.metadata):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\nNumber of tensors saved during forward: "
                f"{len(self.metadata)}\nNumber of tensors saved during recomputation: {self.count}.\n{_C._checkpoint_tip()}")
        if self.check and [_metadata(self.values[i]) for i in range(self.count)] != self.metadata:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than during the forward pass.\n" + "\n".join(
                    f"tensor at position {i}:\nsaved metadata: {saved}\nrecomputed metadata: {again}"
                    for i, saved in enumerate(self.metadata)
                    if (again := _metadata(self.values[i])) != saved))


_early_stop = None  # overrides the calls' early_stop, set by set_checkpoint_early_stop
_debug = None  # the same for debug


@contextmanager
def _overriding(name, value):
    before, globals()[name] = globals()[name], value
    try:
        yield
    finally:
        globals()[name] = before


def set_checkpoint_early_stop(enable: bool) -> Any:
    """A context manager that overrides early_stop of non-reentrant checkpoints."""
    return _overriding("_early_stop", enable)


def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """A context manager that overrides debug of non-reentrant checkpoints, unless `enabled` is None."""
    return _overriding("_debug", enabled)


# ---- selective checkpointing

class CheckpointPolicy(Enum):
    """A policy's decision on the results of an op: save or recompute. CPU offload is treated as recompute."""
    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD, PREFER_CPU_OFFLOAD = range(6)


SAC_IGNORED_OPS = {torch.ops.aten.detach.default}  # the policy is not called for these


class SelectiveCheckpointContext:
    """The context passed to a policy: is_recompute, and the op's results."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _OpCounter:
    """Numbers the calls of each op within a reenterable scope."""

    def __init__(self, saved_results):
        self.saved_results = saved_results

    def __enter__(self):
        self.counts, self.scope = Counter(), _C._DispatchHook(self)
        self.scope.__enter__()

    def __exit__(self, *error):
        self.scope.__exit__(*error)
        self.scope = None  # the scope refers to self: no cycle

    def number(self, op):
        self.counts[op] += 1
        return op, self.counts[op] - 1


def _short(value):
    return f"{str(value.dtype)[6:]}{list(value.shape)}" if torch.is_tensor(value) else repr(value)


class _OpLog(_OpCounter):
    """Logs the ops and their Python stacks, for debug=True."""

    def made(self, op, args, kwargs, result, whole):
        given = ", ".join([*map(_short, args), *(f"{key}={_short(value)}" for key, value in kwargs.items())])
        self.saved_results.append((f"{tree_map(_short, result)} = torch.ops.{op}({given})", "".join(traceback.format_stack()[:-1])))


class _SaveHook(_OpCounter):
    def __init__(self, saved_results, policy):
        self.policy = policy
        super().__init__(saved_results)

    def made(self, op, args, kwargs, result, whole):
        if op in SAC_IGNORED_OPS:
            return
        decision = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=result), op, *args, **kwargs)
        saves = decision is True or decision in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
        self.saved_results[self.number(op)] = tree_map(lambda x: (x.detach(), x._version), result) if saves and whole else None


class _RecallHook(_OpCounter):
    def __init__(self, saved_results, allow_mutation):
        self.allow_mutation = allow_mutation
        super().__init__(saved_results)

    def recall(self, op):
        if op in SAC_IGNORED_OPS:
            return None
        key = self.number(op)
        if key not in self.saved_results:
            which = f" invocation index {key[1]}" if (op, 0) in self.saved_results else ""
            raise RuntimeError(f"{op}{which} encountered during backward but not found in storage. This can happen if the operations "
                               "in the checkpointed region are nondeterministic or depend on global state that changed between "
                               "forward and backward.")
        result = self.saved_results[key]
        if result == ():
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region computed "
                               "under selective activation checkpoint.")
        if result is None:
            return None
        self.saved_results[key] = ()
        pairs = [result] if torch.is_tensor(result[0]) else result
        if not self.allow_mutation and any(x._version != version for x, version in pairs):
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return tuple(x.detach() for x, _ in pairs)


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> tuple[Any, Any]:
    """Creates contexts for checkpoint's context_fn that save the results of selected ops.

    Args:
        policy_fn_or_list (Callable or list): policy(context, op, *args, **kwargs) returns a
            CheckpointPolicy, or True to save the results; or a list of ops to save
        allow_cache_entry_mutation (bool): if True, saved results may be modified in place

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
    saved_results = {}
    return _SaveHook(saved_results, policy), _RecallHook(saved_results, allow_cache_entry_mutation)


def _checkpoint_non_reentrant(function, args, kwargs, preserve, context_fn, check, early_stop, debug):
    """The non-reentrant variant, with hooks for saved tensors. Saved tensors are identified by index."""
    same = _captured(preserve, (args, kwargs))
    inputs = _inputs_of(args)
    versions = [(x, x._version) for x in tree_leaves(([x for x in args if not torch.is_tensor(x)], kwargs)) if torch.is_tensor(x)]
    first, second = logs = (_OpLog([]), _OpLog([])) if debug else context_fn()

    def recompute():
        if any(x._version != version for x, version in versions):
            raise RuntimeError("one of the variables needed for gradient computation has been "
                               "modified by an inplace operation: an argument of checkpoint")
        if debug:
            second.saved_results.clear()
        with same(), second:
            function(*inputs(), **kwargs)

    frame = _Frame(recompute, check, early_stop if _early_stop is None else _early_stop, logs if debug else None)
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        return function(*args, **kwargs)


def checkpoint(function: Callable[..., Any] | None = None, *args: Any,
               use_reentrant: bool | None = None, preserve_rng_state: bool = True,
               context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
               determinism_check: str = "default", debug: bool = False, early_stop: bool = True,
               **kwargs: Any) -> Any:
    """Calls a function without keeping the tensors it saves for backward. Backward recomputes them.

    Args:
        function (Callable): the function; if omitted, returns a decorator
        use_reentrant (bool): True: a Function whose backward runs backward; an argument must require
            grad, and torch.autograd.grad is not supported. False: hooks for saved tensors, without
            these restrictions
        preserve_rng_state (bool): if True, the recomputation draws the same numbers from the default generators of the CPU, of the
            current device, and of the devices of tensors in the arguments, also in containers
        context_fn (Callable): returns two contexts, for forward and recomputation
        determinism_check (str): "default" compares the metadata of saved tensors; "none" does not
        debug (bool): if True, an error of the determinism check lists the ops of forward and recomputation,
            with their stacks
        early_stop (bool): if True, stops the recomputation after the last saved tensor

    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.utils.checkpoint.checkpoint(torch.exp, x, use_reentrant=False).sum().backward()
    """
    options = {"use_reentrant": use_reentrant, "preserve_rng_state": preserve_rng_state,
               "context_fn": context_fn, "determinism_check": determinism_check, "debug": debug,
               "early_stop": early_stop}
    if function is None and not args and not kwargs:
        return lambda given: partial(checkpoint, given, **options)
    if use_reentrant is None:
        warnings.warn(_WARNING.format("torch.utils.checkpoint"), stacklevel=2)
    reentrant = use_reentrant is None or use_reentrant
    if kwargs and (reentrant or function is None):
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if reentrant and (context_fn is not noop_context_fn or debug):
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    debug = debug if _debug is None else _debug
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    if determinism_check not in ("default", "none"):
        raise ValueError("determinism_check should be one of ['default', 'none'], but got "
                         f"{determinism_check}")
    if reentrant:
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    return _checkpoint_non_reentrant(function, args, kwargs, preserve_rng_state, context_fn,
                  determinism_check == "default", early_stop, debug)


def checkpoint_sequential(functions: Any, segments: int, input: Any,
                          use_reentrant: bool | None = None, preserve_rng_state: bool = True) -> Any:
    """Runs a sequence of modules in segments, each but the last checkpointed.

    Args:
        functions (Sequential or list): the modules or functions
        segments (int): the number of segments
    """
    if use_reentrant is None:
        warnings.warn(_WARNING.format("torch.utils.checkpoint.checkpoint_sequential"), stacklevel=2)
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


class DefaultDeviceType:
    """The device type of set_device_states. Default: cuda if there are devices, else cpu."""
    _type = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Sets the device type."""
        DefaultDeviceType._type = device

    @staticmethod
    def get_device_type() -> str:
        """Returns the device type."""
        return DefaultDeviceType._type or ("cuda" if torch.cuda.is_available() else "cpu")


def get_device_states(*args: Any) -> tuple[list[int], list[_C.Tensor]]:
    """Returns the devices of the tensors in args, one for each tensor, and the states of their generators."""
    devices = [x.get_device() for x in tree_leaves(args) if torch.is_tensor(x) and x.is_cuda]
    return devices, [torch.cuda.get_rng_state(device) for device in devices]


def set_device_states(devices: Iterable[int], states: Iterable[_C.Tensor], *,
                      device_type: str | None = None) -> None:
    """Sets the states of the generators of devices."""
    if (device_type or DefaultDeviceType.get_device_type()) != "meta":
        for device, state in zip(devices, states):
            torch.cuda.set_rng_state(state, device)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the inputs, with tensors detached: leaves with the same requires_grad."""
    if not isinstance(inputs, tuple):
        raise RuntimeError("Only tuple of tensors is supported. Got Unsupported input type: "
                           f"{type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns if no tensor of the inputs requires grad."""
    if not any(torch.is_tensor(x) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
