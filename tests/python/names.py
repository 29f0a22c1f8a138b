# SPDX-License-Identifier: Apache-2.0
"""All public names of the package: modules, functions, classes and their members. Run, it says how many have a docstring, how
many callables a signature that inspect reads, and which do not."""
import importlib, inspect, pathlib, sys, types
import phlox as torch


def modules():
    """Paths below torch of all modules that Phlox has: those that are made in C, and the files of the package. What libraries import by
    PyTorch's name has the names of these. What utils.tensorboard needs may not be installed: test_tensorboard.py looks at it."""
    made = {name.partition(".")[2] for name in sys.modules if name.startswith("phlox.")}
    root = pathlib.Path(torch.__path__[0])
    files = {".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for file in root.rglob("*.py")}
    left_out = {path for path in made | files if path.startswith(("_", "utils.tensorboard")) or "._" in path}
    return ["torch", "utils._pytree", "nn.modules.utils", *sorted((made | files) - left_out)]


MODULES = modules()


def is_ours(value):
    """Neither a name that Phlox lacks, nor one of Python's that a file has imported."""
    if type(value).__name__ == "missing" or inspect.ismodule(value):
        return False
    return (getattr(value, "__module__", None) or "torch").partition(".")[0] in ("torch", "phlox", "builtins")


def told(value):
    """Whether a value is such that it has a docstring: not a constant."""
    return callable(value) or isinstance(value, (property, types.GetSetDescriptorType, types.MemberDescriptorType))


def public():
    """(path, object) of each name, once for each object; modules come with their names."""
    seen = {}
    for path in MODULES:
        module = torch if path == "torch" else importlib.import_module("phlox." + path)
        seen[id(module)] = path, module
        for name in dir(module):
            value = getattr(module, name)
            if name.startswith("_") or not is_ours(value) or not told(value):
                continue
            where = name if path == "torch" else f"{path}.{name}"
            seen.setdefault(id(value), (where, value))
            if inspect.isclass(value):
                members(seen, where, value)
    return list(seen.values())


def members(seen, where, cls):
    for name in vars(cls):
        if name.startswith("_") or type(vars(cls)[name]).__name__ == "missing":
            continue
        value = getattr(cls, name)
        if told(value) and (type(value).__name__ == "method" or not inspect.isclass(value)):
            seen.setdefault(id(value), (f"{where}.{name}", value))
            KEPT.append(value)
            INHERITED[id(value)] = next((vars(base)[name].__doc__ for base in cls.__mro__[1:]
                                         if base is not object and getattr(vars(base).get(name), "__doc__", None)), None)


KEPT = []  # bound methods that are made when asked for: their ids are those of nothing else
INHERITED = {}  # by id: the docstring of what a member takes the place of, as help() shows it


def has_signature(value):
    try:
        inspect.signature(value)
    except (TypeError, ValueError):
        return False
    return True


def docstring(value):
    """Of a slot, what __slots__ says of it; of what overrides a member without words of its own, that one's."""
    return (inspect.getdoc(value) if inspect.ismemberdescriptor(value) else value.__doc__) or INHERITED.get(id(value))


def report():
    """(names, without a docstring, callables, without a signature)."""
    names = public()
    callables = [(path, value) for path, value in names if callable(value)]
    return (names, [path for path, value in names if not (docstring(value) or "").strip()], callables,
            [path for path, value in callables if not has_signature(value)])


if __name__ == "__main__":
    names, mute, callables, unsigned = report()
    print(f"{len(names)} public names, {len(names) - len(mute)} with a docstring")
    print(f"{len(callables)} callables, {len(callables) - len(unsigned)} with a signature")
    for title, paths in ("without a docstring", mute), ("without a signature", unsigned):
        print(f"{title}: {' '.join(sorted(paths))}")
