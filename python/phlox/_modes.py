# SPDX-License-Identifier: Apache-2.0
"""Wraps functions in a mode: the decorator form of torch.no_grad and the like."""
from functools import wraps
from types import GeneratorType


def under(mode, function):
    """Returns `function` wrapped to run within `mode` at each call."""
    run = mode._run

    @wraps(function)
    def within(*args, **kwargs):
        result = run(function, args, kwargs)
        return _steps(run, result) if type(result) is GeneratorType else result

    return within


def _steps(run, generator):
    """Drives a generator. The mode holds within each step of the generator, and not between
    steps."""
    try:
        value = run(generator.send, (None,), {})
        while True:
            try:
                sent = yield value
            except GeneratorExit:
                run(generator.close, (), {})
                raise
            except BaseException as error:
                value = run(generator.throw, (error,), {})
            else:
                value = run(generator.send, (sent,), {})
    except StopIteration as done:
        return done.value
