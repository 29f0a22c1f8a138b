# SPDX-License-Identifier: Apache-2.0
"""Processor time per element of what a program may hold, at 10^3 and 10^5 elements: the table of docs/reference/limits.md.

growth.py [MODULE [WORD...]]: MODULE is phlox or torch; with words, only rows whose name contains one of them.
"""
import gc
import importlib
import sys
import time

torch = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "phlox")
nn = torch.nn
COUNTS = 1000, 100000
ROWS = []


def row(name, make=lambda n: None):
    """Adds a row: the time of a function of the number of elements and of make's result."""
    return lambda run: ROWS.append((name, make, run))


def parameters(n):
    return [nn.Parameter(torch.zeros(1)) for _ in range(n)]


def linears(n):
    return nn.ModuleList(nn.Linear(1, 1) for _ in range(n))


def hold(n, add):
    return [add() for _ in range(n)]


row("parameters of a ParameterList: create", parameters)(lambda n, x: nn.ParameterList(x))
row("parameters of a ParameterList: read", lambda n: nn.ParameterList(parameters(n)))(lambda n, x: [x[i] for i in range(n)])
row("parameters of a ParameterDict: create", lambda n: {str(i): p for i, p in enumerate(parameters(n))})(lambda n, x: nn.ParameterDict(x))
row("parameters of a ParameterDict: remove", lambda n: nn.ParameterDict({str(i): p for i, p in enumerate(parameters(n))}))(lambda n, x: x.clear())
row("modules of a ModuleList: create", lambda n: [nn.Identity() for _ in range(n)])(lambda n, x: nn.ModuleList(x))
row("modules of a ModuleList: read", lambda n: nn.ModuleList(nn.Identity() for _ in range(n)))(lambda n, x: [x[i] for i in range(n)])
row("layers: named_parameters", linears)(lambda n, x: list(x.named_parameters()))
row("layers: state_dict, load_state_dict", linears)(lambda n, x: x.load_state_dict(x.state_dict()))
row("layers: apply, train, zero_grad, double", linears)(lambda n, x: (x.apply(id), x.train(), x.zero_grad(), x.double()))
row("hooks of a tensor: add, remove", lambda n: torch.ones(1, requires_grad=True))(
    lambda n, x: [hook.remove() for hook in hold(n, lambda: x.register_hook(print))])
row("hooks of a module: add, remove", lambda n: nn.Identity())(
    lambda n, x: [hook.remove() for hook in hold(n, lambda: x.register_forward_hook(print))])


@row("nodes of a graph, in a chain")
def chain(n, _):
    x = y = torch.ones(1, requires_grad=True)
    for _ in range(n):
        y = y * 1.0
    y.backward()


@row("nodes of a graph, side by side")
def wide(n, _):
    x = torch.ones(1, requires_grad=True)
    torch.stack(hold(n, lambda: x * 1.0)).sum().backward()


@row("parameters of an optimizer: Adam step", parameters)
def adam(n, x):
    for parameter in x:
        parameter.grad = torch.ones(1)
    torch.optim.Adam(x).step()


row("groups of an optimizer: create", parameters)(lambda n, x: torch.optim.SGD([{"params": [p]} for p in x], lr=0.1))
row("inputs of autograd.grad", lambda n: hold(n, lambda: torch.ones(1, requires_grad=True)))(
    lambda n, x: torch.autograd.grad(torch.stack(x).sum(), x))


@row("keys of a store", lambda n: torch.distributed.HashStore())
def keys(n, store):
    for i in range(n):
        store.set(str(i), "value")
    for i in range(n):
        store.get(str(i))


if torch.cuda.is_available():
    row("streams")(lambda n, x: hold(n, torch.cuda.Stream))

    @row("events: record, wait")
    def events(n, _):
        for event in hold(n, torch.cuda.Event):
            event.record()
            event.wait()
        torch.cuda.synchronize()

    row("tensors on a device")(lambda n, x: hold(n, lambda: torch.zeros(1, device="cuda")))


def measure(make, run, n):
    """Returns microseconds per element, as a text."""
    given = make(n)
    gc.collect()
    gc.disable()
    begin = time.process_time()
    try:
        held = run(n, given)
        elapsed = time.process_time() - begin
        del held
        return f"{elapsed / n * 1e6:.2f}"
    except Exception as error:  # a limit
        return type(error).__name__
    finally:
        gc.enable()


print("| elements | us each at 1,000 | us each at 100,000 |\n|---|---|---|")
for name, make, run in ROWS:
    if len(sys.argv) < 3 or any(word in name for word in sys.argv[2:]):
        measure(make, run, 100)  # a first call is slower
        print(f"| {name} | {' | '.join(measure(make, run, n) for n in COUNTS)} |", flush=True)
