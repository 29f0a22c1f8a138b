# SPDX-License-Identifier: Apache-2.0
"""Modules that PyTorch has and that are no files of Phlox: their names are those of other modules,
or can be imported and refuse to be called. python/ext/declare/paths.h has the table."""
from functools import cache
from importlib import import_module
from types import ModuleType

from phlox import _C


def _refusing(path):
    """A class that can be imported, named and derived from. Who calls it learns that it is not
    there."""
    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"{path} is not implemented in Phlox")

    module, _, name = path.rpartition(".")
    base = RuntimeError if name.endswith("Error") else object
    return type(name, (base,), {"__new__": __new__, "__module__": module, "__doc__":
                                f"Not implemented in Phlox: raises NotImplementedError ({path})."})


def _answering(path, answer, text):
    """A function that gives the same, whatever it is asked."""
    def function(*args, **kwargs):
        return answer

    function.__module__, _, function.__name__ = path.rpartition(".")
    function.__doc__ = text
    return function


def _same(given=None, *args, **options):
    """Gives back what it is given, and as a decorator with options what it decorates: it concerns
    a compiler, and Phlox compiles nothing."""
    return given if callable(given) or isinstance(given, str) else _same


def _marking(name, *more, **options):
    """A decorator that tells a tracer or an exporter something: there is none in Phlox."""
    return more[-1] if more and callable(more[-1]) else _same


# What stands before the names that no module of Phlox has.
_KINDS = {
    "!": _refusing,
    "no": lambda path: _answering(path, False, "False: there is no such thing in Phlox."),
    "nothing": lambda path: _answering(path, None, "Does nothing: what it concerns is not in Phlox."),
    "same": lambda path: _same,
    "marks": lambda path: _marking,
}


def make_callable(module, function):
    """For a module that takes the place of a function of its name in its package when a program
    imports it."""
    module.__class__ = type("module", (ModuleType,), {"__call__": staticmethod(function)})


class Loader:
    """Fills a module when it is imported; its names are looked up when they are asked for."""

    def __init__(self, path, names):
        self.path, self.below = f"torch.{path}".strip("."), _C._path_below(path)
        self.source_of, self.name_of = {}, {}
        for part in filter(None, names.split("; ")):
            source, _, words = part.partition(": ")
            for name, _, there in (word.partition("=") for word in words.split()):
                self.source_of[name], self.name_of[name] = source, there or name

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__doc__ = f"{self.path}, as programs import it: its names stand elsewhere in Phlox."
        module.__getattr__ = lambda name: self.find(module, name)
        module.__dir__ = lambda: sorted({*vars(module), *self.below, *self.names(module)})
        own = module.__name__.rpartition(".")[2]
        if own in self.source_of and hasattr(module, own):
            make_callable(module, getattr(module, own))

    def names(self, module):
        """The names that are there, without those that Phlox lacks."""
        every = self.source_of.get("*")
        names = vars(self.module(module, every)) if every else self.source_of
        return [name for name in names if name[0] != "_" and hasattr(module, name)]

    def module(self, module, source):
        package = module.__name__.partition(".")[0]
        return import_module(package if source == "torch" else f"{package}.{source}")

    def find(self, module, name):
        if name == "__all__":  # from torch.fx import *
            return self.names(module)
        source = self.source_of.get(name, self.source_of.get("*", ""))
        if name in self.below:
            value = import_module(f"{module.__name__}.{name}")
        elif source in _KINDS:
            value = _KINDS[source](f"{self.path}.{name}")
        else:
            value = self.lent(module, source, name)
        setattr(module, name, value)
        return value

    def lent(self, module, source, name):
        missing = object()
        there = self.name_of.get(name, name)
        value = getattr(self.module(module, source), there, missing) if source else missing
        if value is missing:
            lacks = name in self.source_of or _C._lacks(self.path[len("torch."):], name)
            known = f": {self.path}.{name} is not implemented in Phlox" if lacks else ""
            raise AttributeError(f"module '{self.path}' has no attribute '{name}'{known}")
        return value


@cache
def _beside(path):
    return Loader(path, _C._path(path))


def lend(module, path, name):
    """What the table gives to a module beside what its file has: kept in the module."""
    if name not in vars(module):
        _beside(path).find(module, name)
    return vars(module)[name]
