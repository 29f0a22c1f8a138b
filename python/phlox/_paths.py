# SPDX-License-Identifier: Apache-2.0
"""PyTorch's modules without a file in Phlox. Their names are aliases of names in other modules, or
placeholders: importable, but calling them raises NotImplementedError. python/ext/declare/paths.h has the
table."""
from functools import cache
from importlib import import_module
from types import ModuleType

from phlox import _C


def _unimplemented_class(path):
    """Returns a placeholder class: it can be imported, named and subclassed, but calling it raises
    NotImplementedError."""
    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"{path} is not implemented in Phlox")

    module, _, name = path.rpartition(".")
    base = RuntimeError if name.endswith("Error") else object
    return type(name, (base,), {"__new__": __new__, "__module__": module, "__doc__":
                                f"Not implemented in Phlox: raises NotImplementedError ({path})."})


def _constant_function(path, answer, text):
    """Returns a function that ignores its arguments and returns `answer`."""
    def function(*args, **kwargs):
        return answer

    function.__module__, _, function.__name__ = path.rpartition(".")
    function.__doc__ = text
    return function


def _identity(given=None, *args, **options):
    """Returns its argument; with options alone, returns itself as the decorator. For compiler hints,
    because Phlox compiles nothing."""
    return given if callable(given) or isinstance(given, str) else _identity


def _registering(name, *more, **options):
    """A decorator that registers an object with a tracer or exporter. Phlox has neither."""
    return more[-1] if more and callable(more[-1]) else _identity


# Handlers for names without an implementation, by the prefix of their row in paths.h.
_KINDS = {
    "!": _unimplemented_class,
    "no": lambda path: _constant_function(path, False, "Returns False: not in Phlox."),
    "nothing": lambda path: _constant_function(path, None, "Does nothing: not in Phlox."),
    "same": lambda path: _identity,
    "marks": lambda path: _registering,
}


def make_callable(module, function):
    """Makes a module callable. For a submodule whose import replaces the function of the same name in
    its package."""
    module.__class__ = type("module", (ModuleType,), {"__call__": staticmethod(function)})


class Loader:
    """Fills a module at import. Its names are resolved on first access."""

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
        module.__doc__ = f"{self.path}: aliases of names in other modules of Phlox."
        module.__getattr__ = lambda name: self.find(module, name)
        module.__dir__ = lambda: sorted({*vars(module), *self.below, *self.names(module)})
        own = module.__name__.rpartition(".")[2]
        if own in self.source_of and hasattr(module, own):
            make_callable(module, getattr(module, own))

    def names(self, module):
        """Returns the module's public names, without those unimplemented in Phlox."""
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
            value = self.lookup(module, source, name)
        setattr(module, name, value)
        return value

    def lookup(self, module, source, name):
        missing = object()
        there = self.name_of.get(name, name)
        value = getattr(self.module(module, source), there, missing) if source else missing
        if value is missing:
            lacks = name in self.source_of or _C._lacks(self.path[len("torch."):], name)
            known = f": {self.path}.{name} is not implemented in Phlox" if lacks else ""
            raise AttributeError(f"module '{self.path}' has no attribute '{name}'{known}")
        return value


@cache
def _loader(path):
    return Loader(path, _C._path(path))


def lend(module, path, name):
    """Returns a name added by the table to a module with a file, and caches it in the module."""
    if name not in vars(module):
        _loader(path).find(module, name)
    return vars(module)[name]
