# SPDX-License-Identifier: Apache-2.0
"""All public names of the package: modules, functions, classes and their members. As a program, prints how many have a docstring
and how many callables have a signature readable by inspect, and lists the others."""
import importlib, inspect, pathlib, sys, types
import phlox as torch


def modules():
    """Paths below torch of all modules of Phlox, created in C or files of the package. Modules imported under PyTorch's names share them.
    utils.tensorboard is left out, since its dependency may not be installed; test_tensorboard.py covers it."""
    made = {name.partition(".")[2] for name in sys.modules if name.startswith("phlox.")}
    root = pathlib.Path(torch.__path__[0])
    files = {".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for file in root.rglob("*.py")}
    left_out = {path for path in made | files if path.startswith(("_", "utils.tensorboard")) or "._" in path}
    return ["torch", "utils._pytree", "nn.modules.utils", *sorted((made | files) - left_out)]


MODULES = modules()


def is_ours(value):
    """False for placeholders of missing names, and for imports from the standard library."""
    if type(value).__name__ == "missing" or inspect.ismodule(value):
        return False
    return (getattr(value, "__module__", None) or "torch").partition(".")[0] in ("torch", "phlox", "builtins")


def is_documentable(value):
    """True for values that can have a docstring, as opposed to constants."""
    return callable(value) or isinstance(value, (property, types.GetSetDescriptorType, types.MemberDescriptorType))


def public():
    """(path, object) of each public name, once per object; modules are included."""
    seen = {}
    for path in MODULES:
        module = torch if path == "torch" else importlib.import_module("phlox." + path)
        seen[id(module)] = path, module
        for name in dir(module):
            value = getattr(module, name)
            if name.startswith("_") or not is_ours(value) or not is_documentable(value):
                continue
            name_path = name if path == "torch" else f"{path}.{name}"
            seen.setdefault(id(value), (name_path, value))
            if inspect.isclass(value):
                members(seen, name_path, value)
    return list(seen.values())


def members(seen, name_path, cls):
    for name in vars(cls):
        if name.startswith("_") or type(vars(cls)[name]).__name__ == "missing":
            continue
        value = getattr(cls, name)
        if is_documentable(value) and (type(value).__name__ == "method" or not inspect.isclass(value)):
            seen.setdefault(id(value), (f"{name_path}.{name}", value))
            KEPT.append(value)
            INHERITED[id(value)] = next((vars(base)[name].__doc__ for base in cls.__mro__[1:]
                                         if base is not object and name in vars(base) and vars(base)[name].__doc__), None)


KEPT = []  # bound methods created on access, kept alive so that their ids stay unique
INHERITED = {}  # by id: the docstring of the overridden member, as shown by help()


def has_signature(value):
    try:
        inspect.signature(value)
    except (TypeError, ValueError):
        return False
    return True


def docstring(value):
    """The entry of __slots__ for a slot; the inherited docstring for an override without one."""
    return (inspect.getdoc(value) if inspect.ismemberdescriptor(value) else value.__doc__) or INHERITED.get(id(value))


def report():
    """Returns (names, paths without a docstring, callables, paths without a signature)."""
    names = public()
    callables = [(path, value) for path, value in names if callable(value)]
    return (names, [path for path, value in names if not (docstring(value) or "").strip()], callables,
            [path for path, value in callables if not has_signature(value)])


if __name__ == "__main__":
    names, undocumented, callables, unsigned = report()
    print(f"{len(names)} public names, {len(names) - len(undocumented)} with a docstring")
    print(f"{len(callables)} callables, {len(callables) - len(unsigned)} with a signature")
    for title, paths in ("without a docstring", undocumented), ("without a signature", unsigned):
        print(f"{title}: {' '.join(sorted(paths))}")
