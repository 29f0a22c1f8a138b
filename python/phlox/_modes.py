# SPDX-License-Identifier: Apache-2.0
"""Functions under a mode: what torch.no_grad and the like make of a function that they decorate."""
from functools import wraps
from types import GeneratorType


def under(mode, function):
    """`function`, run within `mode` at each call."""
    run = mode._run

    @wraps(function)
    def within(*args, **kwargs):
        result = run(function, args, kwargs)
        return _steps(run, result) if type(result) is GeneratorType else result

    return within


def _steps(run, generator):
    """A generator runs when it is asked for values: the mode holds in each of these steps, and not
    between them."""
    step, args = generator.send, (None,)
    try:
        while True:
            value = run(step, args, {})
            try:
                step, args = generator.send, ((yield value),)
            except GeneratorExit:
                run(generator.close, (), {})
                raise
            except BaseException as error:
                step, args = generator.throw, (error,)
    except StopIteration as done:
        return done.value
