# SPDX-License-Identifier: Apache-2.0
"""Learning rates of schedules resumed at an epoch, in sequence, and chained, as text. `cases(torch)` runs them with any library that has PyTorch's
names. schedule_rates.txt has the lines of PyTorch 2.15; running this file with PyTorch as `torch` writes it."""
import os
import warnings

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schedule_rates.txt")
EPOCHS = 8
# Options saved by an earlier run of a schedule.
RESUMED = {"OneCycleLR": {"initial_lr": 0.02, "max_lr": 0.5, "min_lr": 2e-6, "max_momentum": 0.95, "base_momentum": 0.85},
           "CyclicLR": {"initial_lr": 0.1, "max_momentum": 0.9, "base_momentum": 0.8}, "SWALR": {"initial_lr": 1.0, "swa_lr": 0.05}}


def kinds(torch):
    """Functions that make each kind of schedule."""
    s = torch.optim.lr_scheduler
    return {
        "StepLR": lambda o, **k: s.StepLR(o, 3, 0.5, **k),
        "MultiStepLR": lambda o, **k: s.MultiStepLR(o, [2, 4, 4], 0.5, **k),
        "ConstantLR": lambda o, **k: s.ConstantLR(o, 0.25, 4, **k),
        "LinearLR": lambda o, **k: s.LinearLR(o, 0.25, 0.75, 5, **k),
        "ExponentialLR": lambda o, **k: s.ExponentialLR(o, 0.9, **k),
        "PolynomialLR": lambda o, **k: s.PolynomialLR(o, 12, 2.0, **k),
        "CosineAnnealingLR": lambda o, **k: s.CosineAnnealingLR(o, 5, 0.01, **k),
        "CosineAnnealingWarmRestarts": lambda o, **k: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01, **k),
        "OneCycleLR": lambda o, **k: s.OneCycleLR(o, 0.5, 20, **k),
        "CyclicLR": lambda o, **k: s.CyclicLR(o, 0.1, 0.5, 3, **k),
        "LambdaLR": lambda o, **k: s.LambdaLR(o, lambda epoch: 0.5 ** epoch, **k),
        "MultiplicativeLR": lambda o, **k: s.MultiplicativeLR(o, lambda epoch: 0.9, **k),
        "SWALR": lambda o, **k: torch.optim.swa_utils.SWALR(o, 0.05, 4, **k),
    }


def optimizer(torch, **options):
    made = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4, momentum=0.9)
    made.param_groups[0].update(options)
    return made


def rates(made, schedule):
    """The rates of the first epochs, as text."""
    found = []
    for _ in range(EPOCHS):
        found.append(f"{float(made.param_groups[0]['lr']):.6g}")
        made.step()
        schedule.step()
    return " ".join(found)


def resumed(torch):
    for name, make in kinds(torch).items():
        for epoch in (-1, 0, 1, 4):
            o = optimizer(torch, **(RESUMED.get(name, {"initial_lr": 1.0}) if epoch >= 0 else {}))
            yield f"{name} last_epoch={epoch}", o, make(o, last_epoch=epoch)


def in_sequence(torch):
    s, made = torch.optim.lr_scheduler, kinds(torch)
    parts = [((first, second), [3], {}) for first in made for second in ("ExponentialLR", "LinearLR")]
    parts += [(("CosineAnnealingLR", second), [3], {}) for second in made]
    parts += [(("ConstantLR", second), [0], {}) for second in made]
    parts += [(("ConstantLR", second), [3], {"last_epoch": epoch}) for second in made for epoch in (0, 2, 4)]
    parts += [(("ConstantLR", "LinearLR", "ExponentialLR"), milestones, {}) for milestones in ([2, 5], [3, 3])]
    for names, milestones, options in parts:
        o = optimizer(torch)
        yield f"{'+'.join(names)} {milestones} {options}", o, s.SequentialLR(o, [made[name](o) for name in names], milestones, **options)


def chained(torch):
    s, made = torch.optim.lr_scheduler, kinds(torch)
    for name in made:
        for other in ("ExponentialLR", "ConstantLR"):
            o = optimizer(torch)
            yield f"{name}*{other}", o, s.ChainedScheduler([made[name](o), made[other](o)])
            o = optimizer(torch)
            yield f"{name}*{other}+Cosine", o, s.SequentialLR(o, [s.ChainedScheduler([made[name](o), made[other](o)]), s.CosineAnnealingLR(o, 5)], [3])


def cases(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for group in (resumed, in_sequence, chained):
            for name, made, schedule in group(torch):
                yield f"{name}: {rates(made, schedule)}"


if __name__ == "__main__":
    import torch
    with open(TABLE, "w") as table:
        table.writelines(f"{line}\n" for line in cases(torch))
