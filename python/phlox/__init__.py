# SPDX-License-Identifier: Apache-2.0
"""Phlox: tensors, devices, streams, autograd, modules and data parallelism, with PyTorch's names.

What costs time is in the C extension, whose names this file puts here. What programs derive from,
patch and read is Python, beside this file, and imported when it is first asked for."""

from . import _C

globals().update({name: value for name, value in vars(_C).items()
                  if not name.startswith("__") or name in ("__version__", "__getattr__")})


def _import_when_asked(module, *names):
    """Makes submodules in Python attributes of a module before they are imported."""
    lacking = module.__getattr__

    def find(name):
        if name not in names:
            return lacking(name)
        from importlib import import_module
        return import_module(f"{module.__name__}.{name}")

    module.__getattr__ = find
    module.__dir__ = lambda: sorted({*vars(module), *names})


def _arrange():
    import sys
    utils.__path__.append(__path__[0] + "/utils")
    _import_when_asked(utils, "data")


_arrange()
del _arrange
