# SPDX-License-Identifier: Apache-2.0
"""Steps of complex parameters, as text: each optimiser with the options of its samples, alone, with foreach and recorded. `cases(torch)` runs
them with any library that has PyTorch's names. complex_steps.txt has the lines of PyTorch 2.15; running this file with PyTorch as `torch`
writes it."""
import importlib.util
import os
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "complex_steps.txt")
SAMPLES = os.path.join(HERE, "..", "..", "..", "build", "gen", "optim_samples.py")
START = [[1 + 2j, 3 - 1j, -0.5 + 0.25j], [-2 - 4j, 0.125 + 1j, 2 - 0.5j]]
SLOPE = [[0.5 + 1j, -1 + 0.25j, 2 - 1j], [-0.125 - 3j, 0.75 + 0.5j, -1 - 0.5j]]
FORMS = {"alone": {"foreach": False}, "foreach": {"foreach": True}, "recorded": {"differentiable": True}}
STEPS = 4


def samples():
    """(name, options) of each sample of the optimisers' entries."""
    spec = importlib.util.spec_from_file_location("optim_samples", SAMPLES)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SAMPLES


def gradient(torch, p, step):
    """Changes its sign and its size from step to step."""
    return p.detach().conj_physical() * 0.25 + torch.tensor(SLOPE, dtype=p.dtype) * (1 - 0.75 * step)


def parameter(torch):
    return torch.tensor(START, dtype=torch.complex128)


def numbers(torch, t):
    """The parts of all elements. 0 has no sign."""
    t = t.detach().resolve_conj().resolve_neg()
    return [round(x, 7) + 0.0 for x in (torch.view_as_real(t) if t.is_complex() else t).flatten().tolist()]


def take_steps(torch, optimiser, p):
    for step in range(STEPS):
        p.grad = gradient(torch, p, step)
        optimiser.step()


def recorded(torch, kind, options):
    """The parameter, and the gradient of the first one through the steps. PyTorch refuses it for some kinds, and detaches the first momentum."""
    first = parameter(torch).requires_grad_()
    p = first.clone()
    optimiser = kind([p], **options)
    take_steps(torch, optimiser, p)
    if options.get("momentum") and options.get("weight_decay"): return numbers(torch, p)
    try: (p * p.conj()).real.sum().backward()
    except RuntimeError: return numbers(torch, p)
    return [*numbers(torch, p), *numbers(torch, first.grad)]


def stepped(torch, kind, options):
    p = torch.nn.Parameter(parameter(torch))
    optimiser = kind([p], **options)
    take_steps(torch, optimiser, p)
    states = {name: value for name, value in sorted(optimiser.state[p].items()) if isinstance(value, torch.Tensor)}
    return [*numbers(torch, p), *(x for name, value in states.items() for x in (name, str(value.dtype).split(".")[-1], *numbers(torch, value)))]


def lbfgs(torch, options):
    p, q = torch.nn.Parameter(parameter(torch)), torch.nn.Parameter(torch.tensor([0.5, -1.5, 1.0], dtype=torch.float64))
    optimiser = torch.optim.LBFGS([q, p], lr=0.5, max_iter=4, **options)

    def closure():
        optimiser.zero_grad()
        loss = ((p - (1 - 1j)).abs() ** 2).sum() + (q ** 2).sum() + (p.real * p.imag).sum() * 0.25
        loss.backward()
        return loss
    losses = [optimiser.step(closure).item() for _ in range(2)]
    return [*(round(loss, 6) for loss in losses), *numbers(torch, p), *numbers(torch, q)]


def cases(torch):
    for i, (name, options) in enumerate(samples()):
        kind = getattr(torch.optim, name)
        for form, more in FORMS.items():
            run = recorded if form == "recorded" else stepped
            yield f"{name} {i} {form}", run(torch, kind, {**options, **more})
    for options in ({}, {"line_search_fn": "strong_wolfe"}, {"maximize": True}):
        yield f"LBFGS {''.join(map(str, options.values())) or 'plain'} alone", lbfgs(torch, options)


if __name__ == "__main__":
    import torch
    warnings.simplefilter("ignore")
    with open(TABLE, "w") as table:
        for name, values in cases(torch): print(name, *values, file=table)
