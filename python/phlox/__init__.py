# SPDX-License-Identifier: Apache-2.0
"""Phlox: tensors, devices, streams, autograd, modules and data parallelism, with PyTorch's names.

Performance-critical code is in the C extension; this file re-exports its names. Classes and
functions meant for subclassing, patching or reading are Python modules of this package, imported on
first use."""

from . import _C

globals().update({name: value for name, value in vars(_C).items()
                  if not name.startswith("__") or name in ("__version__", "__getattr__")})

_IN_PYTHON = {}  # module -> {file: its names, separated by spaces}


def _import_lazily(module, files):
    """Makes the names of `files` attributes of `module`; a file is imported on first access."""
    inherited = module.__getattr__
    file_of = {name: file for file, names in files.items() for name in names.split()}
    for name in file_of:
        vars(module).pop(name, None)  # the C op of the same name: the Python function wraps it

    def find(name):
        file = file_of.get(name)
        if name == "__all__":  # from torch import *
            return [name for name in module.__dir__() if not name.startswith("_")]
        if file is None:
            return inherited(name)
        from importlib import import_module
        found = import_module(file if file.startswith("phlox.") else f"{module.__name__}.{file}")
        value = found if name == file else getattr(found, name)
        setattr(module, name, value)
        return value

    module.__getattr__ = find
    module.__dir__ = lambda: sorted({*vars(module), *file_of})


class _LazyMethod:
    """A descriptor for a Python method of a C type. The first access imports the method and
    replaces the descriptor."""

    def __init__(self, file, cls, name):
        self.file, self.cls, self.name = file, cls, name

    def __get__(self, instance, cls):
        from importlib import import_module
        method = vars(getattr(import_module(self.file), self.cls.__name__))[self.name]
        setattr(self.cls, self.name, method)
        return method.__get__(instance, cls)


def _reduced(obj):
    from . import _utils
    return _utils.reduced(obj)


def _make_picklable():
    import copyreg
    for kind in (_C.Generator, _C.UntypedStorage, _C.TypedStorage, type(_C.relu),
                 type(_C.Tensor.relu)):
        copyreg.pickle(kind, _reduced)


def _install_python_names():
    import sys
    for owner, file, names in _C._in_python():
        cls = _C
        for part in filter(None, owner.split(".")):
            cls = getattr(cls, part)
        if isinstance(cls, type):
            for name in names.split():
                setattr(cls, name, _LazyMethod(file, cls, name))
        else:
            _IN_PYTHON.setdefault(owner, {})[file] = names
    for path, files in _IN_PYTHON.items():
        module = sys.modules[f"{__name__}.{path}" if path else __name__]
        if path:
            module.__path__.append(f"{__path__[0]}/{path.replace('.', '/')}")
        _import_lazily(module, files)
    sys.meta_path.insert(0, _PathFinder)


class _PathFinder:
    """An import hook for modules of PyTorch without a file in this package
    (python/ext/declare/paths.h)."""

    # First in sys.meta_path: the path-based finder treats a folder without files as a namespace
    # package, and upgrades can leave such folders.
    @staticmethod
    def find_spec(name, path=None, target=None):
        names = _C._path(name[6:]) if name.startswith("phlox.") else None
        if names is None:
            return None
        from importlib.machinery import ModuleSpec, PathFinder
        file = PathFinder.find_spec(name, path)
        if file and file.origin:
            return file
        from ._paths import Loader
        return ModuleSpec(name, Loader(name[6:], names), is_package=True)


class _AfterImport:
    """An import hook: calls `then(module)` once the named module is loaded. Programs that never
    import the module do not pay for it."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        import sys
        from importlib.machinery import PathFinder
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def load_and_notify(module):
            load(module)
            self.then(module)

        spec.loader.exec_module = load_and_notify
        return spec


def _share_tensors():
    """Makes multiprocessing send tensors through shared memory, as soon as it is imported."""
    import sys
    name = "multiprocessing.reduction"

    def register(reduction):
        from . import _reductions  # noqa: F401

    if name in sys.modules:
        register(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, register))


_install_python_names()
_share_tensors()
_make_picklable()
del _install_python_names, _share_tensors, _make_picklable
